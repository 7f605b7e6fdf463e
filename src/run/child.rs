//! The command as a child process: started in toolrein's own process group, so that the terminal stays its own, given the
//! signals that toolrein gets, and waited for.

#[cfg(not(unix))]
pub use self::elsewhere::{Signals, exit_code, wait};
#[cfg(unix)]
pub use self::unix::{Signals, exit_code, wait};

use super::agent::Start;
use std::io;
use std::process::{Child, Command};

/// Exit codes of shells for a command that cannot be run, and for one that is not there.
const NOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Starts the command.
///
/// # Errors
/// A sentence for the user, and the exit code.
pub fn spawn(start: &Start) -> Result<Child, (String, u8)> {
    let Some((program, arguments)) = start.command.split_first() else {
        return Err(("there is no command".to_owned(), NOT_FOUND));
    };
    let mut command = Command::new(program);
    command.args(arguments);
    for name in &start.removed {
        command.env_remove(name);
    }
    command.envs(start.variables.iter().map(|(name, value)| (name, value)));
    command.spawn().map_err(|error| {
        let name = program.to_string_lossy();
        match error.kind() {
            io::ErrorKind::NotFound => (format!("{name}: there is no such program"), NOT_FOUND),
            io::ErrorKind::PermissionDenied => (format!("{name}: permission denied"), NOT_RUN),
            _ => (format!("{name}: {error}"), NOT_RUN),
        }
    })
}

#[cfg(unix)]
mod unix {
    use super::NOT_RUN;
    use futures_util::future::select_all;
    use rustix::process::{Pid, Signal, getpgrp, kill_process};
    use rustix::termios::tcgetpgrp;
    use std::io::{self, Write as _};
    use std::os::fd::AsFd as _;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Child, ExitStatus};
    use std::time::Duration;
    use tokio::signal::unix::{self, SignalKind, signal};
    use tokio::time::{Instant, sleep_until};

    /// How long the command may take to end after the first signal, before a second one kills it.
    const GRACE: Duration = Duration::from_secs(5);
    /// How many signals of the terminal within that time say that the command should have ended.
    const INSISTS: usize = 3;
    /// To which the number of a signal is added.
    const BY_SIGNAL: i32 = 128;

    /// The signals that are passed on. Those that were ignored when toolrein started stay ignored, by the command too
    /// (`nohup`).
    pub struct Signals {
        child_ended: unix::Signal,
        passed_on: Vec<(Signal, unix::Signal)>,
    }

    impl Signals {
        /// Listens from now on.
        ///
        /// # Errors
        /// Those of the system.
        pub fn listen() -> io::Result<Self> {
            let ignored = ignored_signals();
            let mut passed_on = Vec::new();
            for (kind, own) in [
                (SignalKind::interrupt(), Signal::INT),
                (SignalKind::terminate(), Signal::TERM),
                (SignalKind::hangup(), Signal::HUP),
                (SignalKind::quit(), Signal::QUIT),
            ] {
                if ignored >> (own.as_raw() - 1) & 1 == 0 {
                    passed_on.push((own, signal(kind)?));
                }
            }
            Ok(Self { child_ended: signal(SignalKind::child())?, passed_on })
        }
    }

    /// The next signal of those that are passed on.
    async fn next(passed_on: &mut [(Signal, unix::Signal)]) -> Signal {
        let waits = passed_on.iter_mut().map(|(own, signal)| {
            Box::pin(async {
                signal.recv().await;
                *own
            })
        });
        let waits: Vec<_> = waits.collect();
        if waits.is_empty() {
            return std::future::pending().await;
        }
        select_all(waits).await.0
    }

    /// The signals that this process ignores, a bit each.
    #[cfg(target_os = "linux")]
    fn ignored_signals() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
    }

    /// Elsewhere the system does not say so in a file.
    #[cfg(not(target_os = "linux"))]
    fn ignored_signals() -> u64 {
        0
    }

    /// Waits for the command's end, and passes signals on. A second signal kills a command that has not ended [`GRACE`] after
    /// the first one; a third one kills it at once. What is typed at the terminal reaches the command without toolrein, and
    /// many programs go on after it; where it is typed again and again, a sentence says how to end the command.
    ///
    /// # Errors
    /// Those of the system.
    pub async fn wait(child: &mut Child, signals: &mut Signals, name: &str) -> io::Result<ExitStatus> {
        let Signals { child_ended, passed_on } = signals;
        let (mut first, mut kill_at): (Option<Instant>, Option<Instant>) = (None, None);
        let mut typed: Vec<Instant> = Vec::new();
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            let end = kill_at.unwrap_or_else(Instant::now);
            tokio::select! {
                _ = child_ended.recv() => {}
                () = sleep_until(end), if kill_at.is_some() => {
                    child.kill()?;
                    kill_at = None;
                }
                signal = next(passed_on) => {
                    let now = Instant::now();
                    if is_of_terminal(signal) {
                        insist(&mut typed, now, name, child.id());
                        continue;
                    }
                    pass_on(child, signal);
                    let since = *first.get_or_insert(now);
                    if since != now {
                        kill_at = Some(if kill_at.is_some() { now } else { now.max(since + GRACE) });
                        let left = kill_at.unwrap_or(now) - now;
                        let _ = writeln!(io::stderr(), "toolrein: {name} has not ended; it is killed {}", within(left));
                    }
                }
            }
        }
    }

    /// Notes a signal of the terminal at `now`; after [`INSISTS`] of them, says how the command can be ended.
    fn insist(typed: &mut Vec<Instant>, now: Instant, name: &str, id: u32) {
        typed.retain(|at| now - *at < GRACE);
        typed.push(now);
        if typed.len() == INSISTS {
            typed.clear();
            let _ = writeln!(io::stderr(), "toolrein: {name} has not ended; `kill -9 {id}` ends it");
        }
    }

    fn within(time: Duration) -> String {
        match time.as_secs_f64().ceil() {
            0.0 => "now".to_owned(),
            seconds => format!("in {seconds} s"),
        }
    }

    /// Sends a child that has not been waited for, so that its id is its own.
    fn pass_on(child: &Child, signal: Signal) {
        let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        // A child that has just ended needs none.
        let _ = id.map(|id| kill_process(id, signal));
    }

    /// Whether the terminal sent the signal, which then went to the whole group in the foreground.
    fn is_of_terminal(signal: Signal) -> bool {
        if ![Signal::INT, Signal::QUIT].contains(&signal) {
            return false;
        }
        let (input, output, error) = (io::stdin(), io::stdout(), io::stderr());
        let terminals = [input.as_fd(), output.as_fd(), error.as_fd()];
        terminals.into_iter().any(|terminal| tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp()))
    }

    /// The exit code for `status`, as shells have it.
    pub fn exit_code(status: ExitStatus) -> u8 {
        let code = status.code().or_else(|| status.signal().map(|signal| BY_SIGNAL + signal));
        code.and_then(|code| u8::try_from(code).ok()).unwrap_or(NOT_RUN)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_exit_code_is_the_commands_or_that_of_the_signal() {
            for (raw, expected) in [(0, 0), (3 << 8, 3), (15, 143), (9, 137)] {
                assert_eq!(exit_code(ExitStatus::from_raw(raw)), expected);
            }
        }
    }
}

#[cfg(not(unix))]
mod elsewhere {
    use super::NOT_RUN;
    use std::io;
    use std::process::{Child, ExitStatus};
    use std::time::Duration;
    use tokio::time::sleep;

    /// How often the command is looked at.
    const PAUSE: Duration = Duration::from_millis(50);

    /// Outside of Unix the console gives Ctrl-C to the command itself; toolrein stays until the command has ended.
    pub struct Signals;

    impl Signals {
        /// Survives Ctrl-C from now on.
        ///
        /// # Errors
        /// None here.
        pub fn listen() -> io::Result<Self> {
            tokio::spawn(async { while tokio::signal::ctrl_c().await.is_ok() {} });
            Ok(Self)
        }
    }

    /// Waits for the command's end.
    ///
    /// # Errors
    /// Those of the system.
    pub async fn wait(child: &mut Child, _signals: &mut Signals, _name: &str) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            sleep(PAUSE).await;
        }
    }

    /// The exit code for `status`.
    pub fn exit_code(status: ExitStatus) -> u8 {
        status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(NOT_RUN)
    }
}
