//! The command `relax-aot`.

use clap::Parser;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use relax_aot::cli::{Cli, CodegenArgs, Color, Command, Format};
use relax_aot::driver::{Failed, Session};
use relax_aot::{inspect, render, report, run};
use relax_ir::{Diagnostic, Span};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

/// What the last panic said. A panic is our fault, never a user's: it becomes a diagnostic and exit code 4.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// Work that takes longer shows its progress on a terminal.
const SILENT: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let cli = Cli::parse();
    std::panic::set_hook(Box::new(|info| {
        if let Ok(mut last) = PANIC.lock() {
            *last = Some(info.to_string());
        }
    }));
    let options = options(&cli).clone();
    if options.verbose {
        let _ = tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false).try_init();
    }
    let mut session = Session::default();
    let bar = progress(&mut session);
    // Deeply nested models need more stack than a main thread has.
    let done = std::thread::scope(|scope| {
        let worker =
            std::thread::Builder::new().stack_size(256 << 20).spawn_scoped(scope, || command(&cli, &mut session));
        worker.map(|w| w.join())
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let text = match done {
        Ok(Ok(text)) => text,
        Ok(Err(_)) => {
            let what = PANIC.lock().ok().and_then(|mut p| p.take()).unwrap_or_default();
            session.diags.push(Diagnostic::internal(Span::NONE, what));
            Err(Failed)
        }
        Err(e) => {
            session.diags.push(Diagnostic::internal(Span::NONE, format!("cannot start a thread: {e}")));
            Err(Failed)
        }
    };
    let code = match (render::exit_code(&session.diags), &text) {
        (0, Err(Failed)) => 4,
        (code, _) => code,
    };
    finish(&cli, &session, &options, text.unwrap_or_default());
    ExitCode::from(code)
}

fn options(cli: &Cli) -> &CodegenArgs {
    match &cli.command {
        None => &cli.compile.options,
        Some(Command::Check(a)) => &a.options,
        Some(Command::Run(a)) => &a.options,
        Some(Command::Print(a)) => &a.options,
        Some(Command::Inspect(a)) => &a.options,
    }
}

/// The stage of a long compilation, on a terminal.
fn progress(session: &mut Session) -> Option<ProgressBar> {
    if !std::io::stderr().is_terminal() {
        return None;
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    let style = ProgressStyle::with_template("{spinner} {msg} [{elapsed}]");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    let stages = bar.clone();
    session.progress = Some(Box::new(move |stage| stages.set_message(stage.to_string())));
    let shown = bar.clone();
    std::thread::spawn(move || {
        std::thread::sleep(SILENT);
        if !shown.is_finished() {
            shown.set_draw_target(ProgressDrawTarget::stderr());
            shown.enable_steady_tick(Duration::from_millis(200));
        }
    });
    Some(bar)
}

/// Does what was asked; the text for standard output.
fn command(cli: &Cli, s: &mut Session) -> Result<String, Failed> {
    match &cli.command {
        None => {
            // The parser of the command line requires both.
            let (Some(model), Some(out)) = (&cli.compile.model, &cli.compile.output) else { return Err(Failed) };
            let o = &cli.compile.options;
            let program = s.build(model, out, cli.compile.emit, o)?;
            Ok(report::asked(o.report, &program, &s.sources).unwrap_or_default())
        }
        Some(Command::Check(a)) => {
            s.explain = true;
            let (program, _) = s.lower(&a.model, "model", &a.options, true)?;
            if a.format == Format::Json {
                let mut found = relax_backend::descriptor::metadata(&program);
                found["report"] = report::json(&program, &s.sources);
                return Ok(found.to_string());
            }
            let asked = report::asked(a.options.report, &program, &s.sources);
            Ok(asked.unwrap_or_else(|| report::preflight(&program, &s.sources)))
        }
        Some(Command::Run(a)) => run::run(s, a),
        Some(Command::Print(a)) => s.print(&a.model, a.stage, &a.options),
        Some(Command::Inspect(a)) => inspect::inspect(s, a),
    }
}

/// Standard output may be closed early (`| head`): that is no fault.
fn finish(cli: &Cli, s: &Session, o: &CodegenArgs, text: String) {
    let color = match o.color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
    };
    if matches!(&cli.command, Some(Command::Check(a)) if a.format == Format::Json) {
        let mut all = render::json(&s.diags, &s.sources);
        // Nothing was found: what the model takes and gives, and what calls check.
        if let Ok(model) = serde_json::from_str::<serde_json::Value>(&text) {
            all["model"] = model;
        }
        let _ = writeln!(std::io::stdout(), "{all:#}");
    } else {
        let _ = std::io::stdout().write_all(text.as_bytes());
        let _ = std::io::stderr().write_all(render::text(&s.diags, &s.sources, color).as_bytes());
    }
    if o.timings {
        for (name, time) in &s.timings {
            eprintln!("{name:>16} {:9.3} ms", time.as_secs_f64() * 1e3);
        }
    }
}
