//! The signals that reload and end the program, on each operating system. Decides nothing else; `main` acts on them.

#[cfg(unix)]
pub(crate) use self::unix::Signals;
#[cfg(windows)]
pub(crate) use self::windows::Signals;

#[cfg(unix)]
mod unix {
    use std::io::{self, IsTerminal as _};
    use tokio::signal::unix::{Signal, SignalKind, signal};

    /// SIGXFSZ on Linux and macOS.
    const FILE_SIZE_LIMIT: i32 = 25;

    /// SIGHUP reloads; SIGINT and SIGTERM end the program.
    pub(crate) struct Signals {
        hangup: Signal,
        interrupt: Signal,
        terminate: Signal,
        /// Only then SIGHUP may mean that the terminal was closed.
        has_terminal: bool,
    }

    impl Signals {
        /// Listens from now on, so that a signal that comes while the program starts is obeyed once it runs.
        pub(crate) fn listen() -> io::Result<Self> {
            // A file at the limit of its size (`ulimit -f`) would end the program. Once handled, whether anybody listens
            // or not, it is a write that fails.
            drop(signal(SignalKind::from_raw(FILE_SIZE_LIMIT))?);
            Ok(Self {
                hangup: signal(SignalKind::hangup())?,
                interrupt: signal(SignalKind::interrupt())?,
                terminate: signal(SignalKind::terminate())?,
                has_terminal: io::stderr().is_terminal(),
            })
        }

        /// Waits for the next signal; `true`: to reload, `false`: to end, or the program's terminal was closed.
        pub(crate) async fn receive(&mut self) -> bool {
            tokio::select! {
                _ = self.hangup.recv() => !self.has_terminal || io::stderr().is_terminal(),
                _ = self.interrupt.recv() => false,
                _ = self.terminate.recv() => false,
            }
        }
    }
}

#[cfg(windows)]
mod windows {
    use std::io;
    use tokio::signal::windows::{CtrlBreak, CtrlC, CtrlClose, ctrl_break, ctrl_c, ctrl_close};

    /// Ctrl-C, Ctrl-Break and a closed window end the program. Windows has no signal to reload; the files are watched.
    pub(crate) struct Signals {
        interrupt: CtrlC,
        stop: CtrlBreak,
        close: CtrlClose,
    }

    impl Signals {
        /// Listens from now on, so that what comes while the program starts is obeyed once it runs.
        pub(crate) fn listen() -> io::Result<Self> {
            Ok(Self { interrupt: ctrl_c()?, stop: ctrl_break()?, close: ctrl_close()? })
        }

        /// Waits for the next one; always `false`: to end.
        pub(crate) async fn receive(&mut self) -> bool {
            tokio::select! {
                _ = self.interrupt.recv() => false,
                _ = self.stop.recv() => false,
                _ = self.close.recv() => false,
            }
        }
    }
}
