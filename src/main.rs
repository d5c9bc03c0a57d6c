//! The command `relax-aot`.

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use relax_aot::cli::{Cli, CodegenArgs, Color, Command, Format};
use relax_aot::driver::{Failed, Session};
use relax_aot::{render, run};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    // A panic is our fault, never a user's: exit code 4 and what to report.
    let caught = std::panic::catch_unwind(real_main);
    caught.unwrap_or_else(|_| {
        eprintln!("this is a fault of relax-aot: please report it with the model and the message above");
        ExitCode::from(4)
    })
}

fn real_main() -> ExitCode {
    let cli = Cli::parse();
    let mut session = Session::default();
    let options = match &cli.command {
        None => cli.compile.options.clone(),
        Some(Command::Check(a)) => a.options.clone(),
        Some(Command::Run(a)) => a.options.clone(),
        Some(Command::Print(a)) => a.options.clone(),
        Some(Command::Inspect(a)) => a.options.clone(),
    };
    if options.verbose {
        let _ = tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false).try_init();
    }
    let bar = progress(&mut session);
    // Deeply nested models need more stack than a main thread has.
    let code = std::thread::scope(|scope| {
        let worker =
            std::thread::Builder::new().stack_size(256 << 20).spawn_scoped(scope, || command(cli, &mut session));
        match worker.map(|w| w.join()) {
            Ok(Ok(code)) => code,
            _ => 4,
        }
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    finish(&session, &options);
    ExitCode::from(code)
}

/// What `Session` cannot hold across threads stays here: the bar that shows the stage of a long compilation.
fn progress(session: &mut Session) -> Option<ProgressBar> {
    if !std::io::stderr().is_terminal() {
        return None;
    }
    let bar = ProgressBar::new_spinner();
    bar.set_style(
        ProgressStyle::with_template("{spinner} {msg} [{elapsed}]")
            .unwrap_or_else(|_| ProgressStyle::default_spinner()),
    );
    bar.enable_steady_tick(Duration::from_millis(500));
    let shown = bar.clone();
    session.progress = Some(Box::new(move |stage| shown.set_message(stage.to_string())));
    Some(bar)
}

fn command(cli: Cli, s: &mut Session) -> u8 {
    match cli.command {
        None => {
            let (Some(model), Some(out)) = (&cli.compile.model, &cli.compile.output) else { return 2 };
            let done = s.build(model, out, cli.compile.emit, &cli.compile.options);
            if let (Ok(program), true) = (&done, cli.compile.options.report) {
                print(&relax_aot::report::text(program, &s.sources));
            }
            outcome(s, done.map(|_| ()))
        }
        Some(Command::Check(a)) => {
            let done = s.lower(&a.model, "model", &a.options, true);
            if a.format == Format::Json {
                let code = render::exit_code(&s.diags);
                print(&format!("{:#}\n", render::json(&s.diags, &s.sources)));
                s.diags.list.clear();
                return code;
            }
            if let Ok((program, _)) = &done {
                print(&relax_aot::report::summary(program));
            }
            outcome(s, done.map(|_| ()))
        }
        Some(Command::Run(a)) => {
            let done = run::run(s, &a).map(|text| print(&text));
            outcome(s, done)
        }
        Some(Command::Print(a)) => {
            let done = s.print(&a.model, a.stage, &a.options).map(|text| print(&text));
            outcome(s, done)
        }
        Some(Command::Inspect(a)) => {
            let done = relax_aot::inspect::inspect(s, &a).map(|text| print(&text));
            outcome(s, done)
        }
    }
}

/// Standard output may be closed early (`| head`): that is no fault.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn outcome(s: &Session, r: Result<(), Failed>) -> u8 {
    match (render::exit_code(&s.diags), r) {
        (0, Err(Failed)) => 4,
        (code, _) => code,
    }
}

fn finish(s: &Session, o: &CodegenArgs) {
    let color = match o.color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
    };
    let text = render::text(&s.diags, &s.sources, color);
    let _ = std::io::stderr().write_all(text.as_bytes());
    if o.timings {
        for (name, time) in &s.timings {
            eprintln!("{name:>16} {:9.3} ms", time.as_secs_f64() * 1e3);
        }
    }
}
