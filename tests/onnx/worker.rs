//! Worker processes: a case that crashes takes its worker with it, not the test.

use super::case::{self, Class, Outcome};
use super::columns;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::time::Duration;

/// Set in the environment of a worker.
pub const MARK: &str = "RELAX_AOT_ONNX_WORKER";
/// A case may take so long.
const LIMIT: Duration = Duration::from_secs(60);
/// A worker is replaced after so many cases: libraries stay mapped, memory grows.
const CASES: usize = 200;

/// Serves cases: a folder per line in, an outcome as JSON per line out; or the columns of a case, with a line for each.
pub fn serve() {
    std::panic::set_hook(Box::new(|_| {}));
    // Deeply nested models need more stack than a main thread has.
    let served = std::thread::Builder::new().stack_size(256 << 20).spawn(|| {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let parts: Vec<&str> = line.split('\t').collect();
            if let ["columns", folder, origin, columns] = parts[..] {
                columns::serve(Path::new(folder), Path::new(origin), columns);
                continue;
            }
            let outcome = case::run(Path::new(&line));
            let Ok(text) = serde_json::to_string(&outcome) else { return };
            println!("{text}");
        }
    });
    let _ = served.map(|t| t.join());
}

struct Process {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    served: usize,
}

impl Process {
    fn start() -> std::io::Result<Process> {
        let mut child = Command::new(std::env::current_exe()?)
            .env(MARK, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(std::io::Error::other("no pipes"));
        };
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Process { child, stdin, lines, served: 0 })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A worker process, started again whenever it died.
#[derive(Default)]
pub struct Worker(Option<Process>);

impl Worker {
    pub fn run(&mut self, folder: &Path) -> Outcome {
        let outcome = self.ask(&folder.display().to_string(), 1).pop();
        outcome.unwrap_or_else(|| crash("no answer".into()))
    }

    /// Sends a request and reads `count` outcomes: fewer, of which the last is a crash, when the worker dies.
    pub fn ask(&mut self, request: &str, count: usize) -> Vec<Outcome> {
        if self.0.as_ref().is_none_or(|p| p.served >= CASES) {
            match Process::start() {
                Ok(p) => self.0 = Some(p),
                Err(e) => return vec![crash(format!("no worker: {e}"))],
            }
        }
        let Some(p) = &mut self.0 else { return vec![crash("no worker".into())] };
        p.served += 1;
        let mut out = vec![];
        let mut sent = writeln!(p.stdin, "{request}").and_then(|()| p.stdin.flush());
        while out.len() < count {
            let outcome = match (sent, p.lines.recv_timeout(LIMIT)) {
                (Ok(()), Ok(line)) => serde_json::from_str(&line).map_err(|e| format!("worker says {line}: {e}")),
                (_, Err(RecvTimeoutError::Timeout)) => Err(format!("no answer within {} s", LIMIT.as_secs())),
                _ => Err(match p.child.wait() {
                    Ok(status) => format!("the process died: {status}"),
                    Err(e) => format!("the process died: {e}"),
                }),
            };
            sent = Ok(());
            match outcome {
                Ok(o) => out.push(o),
                Err(reason) => {
                    out.push(crash(reason));
                    self.0 = None;
                    break;
                }
            }
        }
        out
    }
}

fn crash(reason: String) -> Outcome {
    Outcome { class: Class::Crash, reason, seconds: 0.0 }
}
