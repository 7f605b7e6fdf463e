//! The `toolrein` program: parses the command line, calls the library, and turns the results into output and exit
//! codes.

mod signals;

use clap::Parser as _;
use policies::REGISTRY;
use signals::Signals;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::thread::available_parallelism;
use tokio::runtime::{self, Runtime};
use toolrein::cli::{
    Cli, Command, DemoArgs, DoctorArgs, EXIT_REFUSED, ExplainArgs, ReplayArgs, RunArgs, SetupArgs, Terminal,
    UndoArgs, completions, for_terminal, man_report, policies_report, tried_report,
};
use toolrein::config::{Config, LogFormat, Overrides, OwnToken, Source};
use toolrein::replay::Enforced;
use toolrein::secret::random_token;
use toolrein::serve::Running;
use toolrein::serve::trial::Trial;
use toolrein::serve::watch::Watch;
use toolrein::{doctor, setup};

/// Uses less memory for many streams than glibc's allocator, and less time (docs/performance.md).
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The exit code when the program could not start, or streams had to be cut.
const EXIT_FAILED: u8 = 1;

fn main() -> ExitCode {
    let (text, code) = match Cli::parse().into_command() {
        Command::Serve(args) => return start(&args.source(), &args.overrides(), None),
        Command::Demo(args) => return start(&Source::Shipped, &args.overrides(), Some(args)),
        Command::Run(args) => return run(&args),
        Command::Setup(args) => return set_up(&args),
        Command::Undo(args) => return undo(&args),
        Command::Check(args) => tried_report(args.source(), &args.overrides(), REGISTRY, try_start),
        Command::Replay(args) => return replay(&args),
        Command::Explain(args) => return explain(&args),
        Command::Doctor(args) => return examine(&args),
        Command::Policies { name } => policies_report(REGISTRY, name.as_deref()),
        Command::Completions { shell } => (completions(shell), 0),
        Command::Man { command } => man_report(command.as_deref()),
    };
    // A reader that has left (`| head`) has seen enough.
    let _ = io::stdout().write_all(for_terminal(&text).as_bytes());
    ExitCode::from(code)
}

fn start(source: &Source, overrides: &Overrides, demonstration: Option<DemoArgs>) -> ExitCode {
    // Before the file is read, so that no change is missed.
    let mut watch = Watch::of(source);
    let mut config = match Config::load(source.clone(), overrides, REGISTRY) {
        Ok(config) => config,
        Err(problems) => return fail(&problems, EXIT_REFUSED),
    };
    let is_shown = match &demonstration {
        Some(args) => !args.once,
        None => shows_dashboard(&config),
    };
    let token = (is_shown && !config.admin.has_token()).then(random_token);
    config.admin.own_token = token.clone().map(OwnToken);
    watch.follow(config.certificates.clone());
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error, EXIT_FAILED),
    };
    runtime.block_on(async {
        let signals = match Signals::listen() {
            Ok(signals) => signals,
            Err(error) => return fail(&error, EXIT_FAILED),
        };
        let running = match Running::start(config).await {
            Ok(running) => running,
            Err(error) => return fail(&error, EXIT_FAILED),
        };
        if demonstration.is_none()
            && let Some(token) = &token
        {
            // Not a line of the log, which may be kept.
            let _ = writeln!(io::stderr(), "{}", dashboard_line(&running, token));
        }
        let ended = tokio::select! {
            done = demonstrate(&running, demonstration, token) => done,
            done = listen(signals, watch, &running, || running.reload(source, overrides, REGISTRY)) => done,
        };
        match ended {
            Ok(()) if running.stop().await => ExitCode::SUCCESS,
            Ok(()) => ExitCode::from(EXIT_FAILED),
            Err(error) => fail(&error, EXIT_FAILED),
        }
    })
}

/// Runs a command with a proxy of its own in front of it.
fn run(args: &RunArgs) -> ExitCode {
    let config = match Config::load(args.source(), &args.overrides(), REGISTRY) {
        Ok(config) => config,
        Err(problems) => return fail(&problems, EXIT_REFUSED),
    };
    let say = |lines: &[String]| {
        // The terminal may have been closed.
        lines.iter().for_each(|line| drop(writeln!(io::stderr(), "toolrein: {}", for_terminal(line))));
    };
    let order = args.order(&config);
    if !order.logs_here {
        // The log, which has them too, is in a file.
        say(&config.warnings);
    }
    say(args.detour().as_slice());
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error, EXIT_FAILED),
    };
    match runtime.block_on(toolrein::run::run(config, &order)) {
        Ok(ending) => {
            say(&ending.lines);
            ExitCode::from(ending.code)
        }
        Err(error) => fail(&error, EXIT_FAILED),
    }
}

/// Puts the proxy in front of an agent, or lists the agents.
fn set_up(args: &SetupArgs) -> ExitCode {
    let config = match Config::load(args.source(), &args.overrides(), REGISTRY) {
        Ok(config) => config,
        Err(problems) => return fail(&problems, EXIT_REFUSED),
    };
    let base_url = doctor::base_url(&config);
    let Some(agent) = args.agent.as_deref().filter(|_| !args.list) else {
        return printed(setup::list(&base_url));
    };
    let mut lines = match setup::named(agent).and_then(|agent| setup::setup(agent, &base_url)) {
        Ok(lines) => lines,
        Err(problem) => return fail(&problem, EXIT_FAILED),
    };
    match runtime() {
        Ok(runtime) => {
            let findings = runtime.block_on(doctor::examine_proxy(&config));
            lines.extend(findings.first().map(|found| format!("{}: {}", found.outcome, found.text)));
        }
        Err(error) => return fail(&error, EXIT_FAILED),
    }
    printed(Ok(lines))
}

/// Takes an agent away from the proxy again.
fn undo(args: &UndoArgs) -> ExitCode {
    let mut ask = |question: &str| {
        if !io::stdin().is_terminal() {
            return None;
        }
        let _ = write!(io::stderr(), "{} [y/N] ", for_terminal(question));
        let mut answer = String::new();
        io::stdin().read_line(&mut answer).ok()?;
        Some(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
    };
    printed(setup::named(&args.agent).and_then(|agent| setup::undo(agent, args.force, &mut ask)))
}

/// Prints the lines, or what went wrong.
fn printed(lines: Result<Vec<String>, String>) -> ExitCode {
    match lines {
        Ok(lines) => {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            // A reader that has left (`| head`) has seen enough.
            let _ = io::stdout().write_all(for_terminal(&text).as_bytes());
            ExitCode::SUCCESS
        }
        Err(problem) => fail(&problem, EXIT_FAILED),
    }
}

/// The runtime. On one processor, as many sidecars have, it is single-threaded, which saves synchronisation.
fn runtime() -> io::Result<Runtime> {
    let is_alone = available_parallelism().is_ok_and(|processors| processors.get() == 1);
    let mut builder =
        if is_alone { runtime::Builder::new_current_thread() } else { runtime::Builder::new_multi_thread() };
    builder.enable_all().build()
}

/// What would stop a start with `config`.
fn try_start(config: &Config) -> Trial {
    match runtime() {
        Ok(runtime) => runtime.block_on(Trial::run(config)),
        Err(error) => Trial { problems: vec![error.to_string()], ..Trial::default() },
    }
}

fn replay(args: &ReplayArgs) -> ExitCode {
    let config = match Config::load(args.source(), &args.overrides(), REGISTRY) {
        Ok(config) => Enforced::new(config),
        Err(problems) => return fail(&problems, EXIT_REFUSED),
    };
    let options = args.options();
    if let Some(Err(unknown)) = options.profile.as_ref().map(|name| config.profiles.named(name)) {
        return fail(&unknown, EXIT_REFUSED);
    }
    let mut out = Terminal::new(io::BufWriter::new(io::stdout().lock()));
    let mut terminal = io::stderr();
    if let Some(caveat) = toolrein::replay::caveat(&config) {
        let _ = writeln!(terminal, "toolrein: {caveat}");
    }
    // Where both are the same terminal, the bar would mix with the lines.
    let shows_bar = terminal.is_terminal() && !(args.verbose && io::stdout().is_terminal());
    let bar: Option<&mut dyn io::Write> = if shows_bar { Some(&mut terminal) } else { None };
    ended(toolrein::replay::run(&config, &args.files, &options, &mut out, bar))
}

fn explain(args: &ExplainArgs) -> ExitCode {
    let config = match Config::load(args.source(), &args.overrides(), REGISTRY) {
        Ok(config) => Enforced::new(config),
        Err(problems) => return fail(&problems, EXIT_REFUSED),
    };
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let plain = set("NO_COLOR").is_some() || set("TERM").is_some_and(|term| term == "dumb");
    let options = args.options(io::stdout().is_terminal() && !plain);
    if let Some(Err(unknown)) = options.profile.as_ref().map(|name| config.profiles.named(name)) {
        return fail(&unknown, EXIT_REFUSED);
    }
    let mut out = Terminal::new(io::BufWriter::new(io::stdout().lock()));
    let mut aside = Terminal::new(io::stderr());
    ended(toolrein::explain::run(&config, &args.file, &options, &mut out, &mut aside))
}

fn examine(args: &DoctorArgs) -> ExitCode {
    let config = match Config::load(args.source(), &args.overrides(), REGISTRY) {
        Ok(config) => config,
        Err(problems) => return fail(&problems, EXIT_REFUSED),
    };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error, EXIT_FAILED),
    };
    let findings = runtime.block_on(doctor::examine(&config, &args.environment(&config)));
    let (report, has_problem) = doctor::report(&config, &findings);
    ended(io::stdout().write_all(for_terminal(&report).as_bytes()).map(|()| !has_problem))
}

/// The exit code of a command that reports whether it found anything.
fn ended(found: io::Result<bool>) -> ExitCode {
    match found {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_FAILED),
        // A reader that has left (`| head`) has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => fail(&error, EXIT_FAILED),
    }
}

/// Plays the demonstration, if requested; returns if nothing is to be served after it.
///
/// `token`: the one that it made for the dashboard.
async fn demonstrate(
    running: &Running,
    demonstration: Option<DemoArgs>,
    token: Option<String>,
) -> io::Result<()> {
    let Some((args, model)) = demonstration.zip(running.model()) else {
        return std::future::pending().await;
    };
    let addresses = mock::Addresses { direct: model.address, proxied: running.address() };
    mock::run(addresses, &model.upstream, &mut io::stdout()).await?;
    if args.once {
        return Ok(());
    }
    writeln!(io::stdout(), "\nStill serving. Try it:\n\n{}\n", mock::curl_line(running.address()))?;
    writeln!(io::stdout(), "{}", dashboard_line(running, &token.unwrap_or_default()))?;
    writeln!(io::stdout(), "Metrics:   http://{}/metrics. Ctrl-C ends it.", running.admin_address())?;
    std::future::pending().await
}

/// Whether the operator sees the address of the dashboard: at a terminal whose lines are not JSON, on the same machine.
fn shows_dashboard(config: &Config) -> bool {
    let is_local = config.listen.admin.ip().is_loopback();
    is_local && io::stderr().is_terminal() && config.log.format != LogFormat::Json
}

/// Where the dashboard is, with the token that it needs.
fn dashboard_line(running: &Running, token: &str) -> String {
    let signed_in = if token.is_empty() { String::new() } else { format!("#token={token}") };
    format!("Dashboard: http://{}/{signed_in}", running.admin_address())
}

/// Calls `reload` for every SIGHUP and every change of the files, until a signal ends the program.
async fn listen(
    mut signals: Signals,
    mut watch: Watch,
    running: &Running,
    reload: impl Fn() -> bool,
) -> io::Result<()> {
    loop {
        tokio::select! {
            reloads = signals.receive() => {
                if !reloads {
                    return Ok(());
                }
                watch.mark_loaded();
            }
            () = watch.changed(running.watch_interval()) => {}
        }
        if reload() {
            watch.follow(running.certificates());
        }
    }
}

fn fail(error: &dyn std::fmt::Display, code: u8) -> ExitCode {
    let _ = writeln!(io::stderr(), "toolrein: {}", for_terminal(&error.to_string()));
    ExitCode::from(code)
}
