//! The built program, running: started with a configuration of the test's, found by the addresses that it logs,
//! stopped as an orchestrator stops it, killed if the test gives up.

use super::scripted::Scripted;
use super::{client, until};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

/// A running `toolrein serve`.
pub struct Toolrein {
    child: Child,
    proxy: String,
    admin: String,
    logs: Arc<Mutex<Vec<String>>>,
    _config: tempfile::NamedTempFile,
}

impl Toolrein {
    /// Starts the program with this configuration file and waits until it listens.
    ///
    /// # Panics
    /// With its log if it does not.
    pub fn start(config: &str) -> Self {
        Self::start_in(config, &[])
    }

    /// The same with these variables in its environment.
    pub fn start_in(config: &str, variables: &[(&str, &str)]) -> Self {
        let mut file = tempfile::Builder::new().suffix(".toml").tempfile().expect("a temporary file");
        file.write_all(config.as_bytes()).expect("the configuration is written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolrein"));
        command.arg("serve").arg("--config").arg(file.path());
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOOLREIN_")) {
            command.env_remove(name);
        }
        command.envs(variables.iter().copied());
        let silent = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = silent.spawn().expect("the built program starts");
        let logs = Arc::<Mutex<Vec<String>>>::default();
        let (stderr, sink) = (child.stderr.take().expect("its stderr"), Arc::clone(&logs));
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                sink.lock().unwrap().push(line);
            }
        });
        // Built before the wait, so that a program that never listens is killed all the same.
        let mut program = Self { child, proxy: String::new(), admin: String::new(), logs, _config: file };
        let (proxy, admin) = program.listening();
        (program.proxy, program.admin) = (format!("http://{proxy}"), format!("http://{admin}"));
        program
    }

    /// Starts it in front of `upstream`, on free ports, with further settings. `settings` may begin with
    /// top-level keys; of `listen` and `upstream` it sets further keys dotted: `upstream.tools_unsupported = "pass"`.
    pub fn before(upstream: &Scripted, settings: &str) -> Self {
        Self::before_in(upstream, settings, &[])
    }

    /// The same with these variables in its environment.
    pub fn before_in(upstream: &Scripted, settings: &str, variables: &[(&str, &str)]) -> Self {
        let url = upstream.base_url();
        let config = format!(
            "listen.proxy = \"127.0.0.1:0\"\nlisten.admin = \"127.0.0.1:0\"\nupstream.url = \"{url}\"\n{settings}"
        );
        Self::start_in(&config, variables)
    }

    /// What stands before the proxy's paths: `http://127.0.0.1:PORT`.
    pub fn origin(&self) -> &str {
        &self.proxy
    }

    /// What a client takes for its base URL.
    pub fn base_url(&self) -> String {
        format!("{}/v1", self.proxy)
    }

    /// Where chat completions are asked for.
    pub fn chat_url(&self) -> String {
        format!("{}/v1/chat/completions", self.proxy)
    }

    /// What stands before the admin port's paths.
    pub fn admin_url(&self) -> &str {
        &self.admin
    }

    /// What the admin port tells at `/metrics`.
    pub fn metrics(&self) -> String {
        client::get(&format!("{}/metrics", self.admin)).text()
    }

    /// The sum of the series `name{label="value",...}`, further labels of any value; 0 where there is none yet.
    pub fn metric(&self, series: &str) -> f64 {
        let (name, labels) = series_of(series);
        let text = self.metrics();
        let values = text.lines().filter_map(|line| {
            let (found, value) = line.rsplit_once(' ')?;
            let (found, has) = series_of(found);
            let fits = found == name && labels.iter().all(|label| has.contains(label));
            fits.then(|| value.parse::<f64>().ok())?
        });
        values.sum()
    }

    /// Waits until [`Toolrein::metric`] gives `value`: what is counted when a reply has ended may come a moment
    /// after the client has its last byte.
    pub fn wait_for_metric(&self, series: &str, value: f64) {
        until(&format!("{series} = {value}"), || ((self.metric(series) - value).abs() < 1e-9).then_some(()));
    }

    /// The lines logged so far.
    pub fn logs(&self) -> Vec<String> {
        self.logs.lock().unwrap().clone()
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to stop (SIGTERM).
    pub fn terminate(&self) {
        // The shell's own `kill`, since no program of that name is sure to be installed.
        let done = Command::new("sh").arg("-c").arg(format!("kill -TERM {}", self.pid())).status();
        assert!(done.is_ok_and(|status| status.success()), "the signal was sent");
    }

    /// Waits until it has ended.
    pub fn wait(&mut self) -> ExitStatus {
        until("the program to end", || self.child.try_wait().expect("its status"))
    }

    /// Asks it to stop, waits, and returns its log.
    ///
    /// # Panics
    /// If it does not end with 0.
    pub fn stop(mut self) -> Vec<String> {
        self.terminate();
        let status = self.wait();
        assert!(status.success(), "{status} after SIGTERM\n{}", self.logs().join("\n"));
        self.logs()
    }

    fn listening(&mut self) -> (String, String) {
        let mut ended = false;
        until("the program to listen", || {
            let found = self.logs().iter().find_map(|line| addresses(line));
            assert!(found.is_some() || !ended, "it ended before it listened:\n{}", self.logs().join("\n"));
            // One more look at the log after its end, which may have been read late.
            ended = self.child.try_wait().expect("its status").is_some();
            found
        })
    }
}

impl Drop for Toolrein {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the program's log:\n{}", self.logs().join("\n"));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The proxy's and the admin's address, if `line` is the line that tells them.
fn addresses(line: &str) -> Option<(String, String)> {
    let line: Value = serde_json::from_str(line).ok()?;
    let member = |name: &str| line.get(name).or_else(|| line["fields"].get(name))?.as_str();
    if member("message")? != "listening" {
        return None;
    }
    Some((member("proxy")?.to_owned(), member("admin")?.to_owned()))
}

/// The name of a series and its labels, each as written.
fn series_of(series: &str) -> (&str, Vec<&str>) {
    let Some((name, labels)) = series.split_once('{') else { return (series, Vec::new()) };
    let labels = labels.trim_end_matches('}').split("\",");
    (name, labels.map(|label| label.trim().trim_end_matches('"')).filter(|label| !label.is_empty()).collect())
}
