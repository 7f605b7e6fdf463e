//! A process that plays a scenario of `tests/clients/` with a real package of Python or Node. Starts it, feeds it and
//! waits for its successful end; its script says what it plays.

use super::{PATIENCE, until};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

/// Whose package it is.
#[derive(Clone, Copy, Debug)]
pub enum Client {
    Python,
    Node,
}

/// A scenario's name, and which form of it.
pub type Play<'a> = (&'a str, &'a str);

/// A client's process; it is killed if the test ends before it does.
pub struct Player {
    child: Child,
    name: String,
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Player {
    /// Starts the client with toolrein, or an upstream, at `base_url`.
    ///
    /// # Panics
    /// If it is not installed.
    pub fn start(client: Client, (scenario, form): Play<'_>, base_url: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut command = match client {
            Client::Python => {
                let python = installed(root.join(".venv/bin/python"));
                let mut command = Command::new(python);
                // -I: only the packages of the venv are imported, and no script of ours in their place.
                command.arg("-I").arg(root.join(format!("tests/clients/python/{scenario}.py")));
                command
            }
            Client::Node => {
                installed(root.join("tests/clients/node/node_modules/openai"));
                let mut command = Command::new("node");
                command.arg(root.join(format!("tests/clients/node/{scenario}.mjs")));
                command
            }
        };
        command.arg(form).env("OPENAI_BASE_URL", base_url).env("OPENAI_API_KEY", "sk-test");
        command.env("PYTHONUTF8", "1").env("NO_PROXY", "127.0.0.1").stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let name = format!("{client:?}, {scenario} {form}");
        Self { child: command.spawn().expect("the client starts"), name }
    }

    /// Writes to the client's input and closes it.
    pub fn write_input(&mut self, text: &str) {
        let mut input = self.child.stdin.take().expect("its input");
        input.write_all(text.as_bytes()).expect("it listens");
    }

    /// Whether its process is running.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("its status").is_none()
    }

    /// Closes the client's input and waits for its end, which must be successful; returns what it printed.
    ///
    /// # Panics
    /// With what it said if it failed.
    pub fn finish(mut self) -> String {
        drop(self.child.stdin.take());
        let status = until(&self.name, || self.child.try_wait().expect("its status"));
        let (mut printed, mut failed) = (String::new(), String::new());
        self.child.stdout.take().expect("its output").read_to_string(&mut printed).expect("text");
        self.child.stderr.take().expect("its complaints").read_to_string(&mut failed).expect("text");
        assert!(status.success(), "{}: {status}\n{printed}{failed}", self.name);
        printed
    }

    /// The lines that the client prints until its successful end; each may take [`PATIENCE`].
    ///
    /// # Panics
    /// With what it said if it failed.
    pub fn finish_by_lines(mut self) -> Vec<String> {
        let (output, mut complaints) = (
            self.child.stdout.take().expect("its output"),
            self.child.stderr.take().expect("its complaints"),
        );
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let complaining = std::thread::spawn(move || {
            let mut text = String::new();
            complaints.read_to_string(&mut text).map(|_| text).unwrap_or_default()
        });
        let mut lines = Vec::new();
        loop {
            match receiver.recv_timeout(PATIENCE) {
                Ok(line) => lines.push(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    panic!("{}: no line within {PATIENCE:?} after {lines:#?}", self.name)
                }
            }
        }
        let status = until(&self.name, || self.child.try_wait().expect("its status"));
        assert!(
            status.success(),
            "{}: {status}\n{lines:#?}\n{}",
            self.name,
            complaining.join().expect("text")
        );
        lines
    }
}

fn installed(path: PathBuf) -> PathBuf {
    assert!(path.exists(), "{} is missing; `make test` installs the clients", path.display());
    path
}
