//! The running program under test: started with the test's configuration, found by the addresses that it logs, stopped
//! as an orchestrator stops it, killed if the test gives up.

use super::scripted::Scripted;
use super::{client, until};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

/// The token of the admin port, for configurations that need one: it is in the variable `TOKEN_OF_THE_TESTS`.
pub const ADMIN_TOKEN: &str = "token-of-the-tests";

const RELOADS: &str = "toolrein_config_reloads_total";

/// A running `toolrein serve`.
pub struct Toolrein {
    child: Child,
    proxy: String,
    admin: String,
    logs: Arc<Mutex<Vec<String>>>,
    config: tempfile::NamedTempFile,
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
        Self::start_by(Command::new(env!("CARGO_BIN_EXE_toolrein")), config, variables)
    }

    /// As [`Toolrein::start`], with the program at this path, such as one that a package installed.
    pub fn start_at(program: &Path, config: &str) -> Self {
        Self::start_by(Command::new(program), config, &[])
    }

    /// As [`Toolrein::start`], with at most this many file descriptors.
    pub fn start_with_descriptors(config: &str, most: u32) -> Self {
        let mut shell = Command::new("sh");
        shell
            .arg("-c")
            .arg(format!("ulimit -n {most} && exec \"$0\" \"$@\""))
            .arg(env!("CARGO_BIN_EXE_toolrein"));
        Self::start_by(shell, config, &[])
    }

    /// As [`Toolrein::start`], on only one processor.
    pub fn start_on_one_processor(config: &str) -> Self {
        let status = std::fs::read_to_string("/proc/self/status").expect("what the kernel says of us");
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let first = allowed.and_then(|list| list.trim().split([',', '-']).next()).expect("a processor");
        let mut taskset = Command::new("taskset");
        taskset.args(["-c", first, env!("CARGO_BIN_EXE_toolrein")]);
        Self::start_by(taskset, config, &[])
    }

    fn start_by(mut command: Command, config: &str, variables: &[(&str, &str)]) -> Self {
        let mut file = tempfile::Builder::new().suffix(".toml").tempfile().expect("a temporary file");
        file.write_all(config.as_bytes()).expect("the configuration is written");
        command.arg("serve").arg("--config").arg(file.path());
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOOLREIN_")) {
            command.env_remove(name);
        }
        command.env("TOKEN_OF_THE_TESTS", ADMIN_TOKEN);
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
        // Built before the wait, so that a program that never listens is killed too.
        let mut program = Self { child, proxy: String::new(), admin: String::new(), logs, config: file };
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
        Self::start_in(&before(&upstream.base_url(), settings), variables)
    }

    /// The origin of the proxy: `http://127.0.0.1:PORT`.
    pub fn origin(&self) -> &str {
        &self.proxy
    }

    /// The base URL for clients.
    pub fn base_url(&self) -> String {
        format!("{}/v1", self.proxy)
    }

    /// The URL of chat completions.
    pub fn chat_url(&self) -> String {
        format!("{}/v1/chat/completions", self.proxy)
    }

    /// The origin of the admin port.
    pub fn admin_url(&self) -> &str {
        &self.admin
    }

    /// The port of the probes, where `listen.probes` is set.
    pub fn probes_port(&self) -> u16 {
        let lines = self.logs();
        let line = lines.iter().find(|line| line.contains("\"listening\"")).expect("the line of the start");
        let line: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        let address = line["probes"].as_str().expect("the address of the probes");
        address.rsplit_once(':').expect("a port").1.parse().expect("a number")
    }

    /// The text of `/metrics` at the admin port.
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

    /// Waits until [`Toolrein::metric`] gives `value`: counts at the end of a reply may come a moment after the client
    /// has its last byte.
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
        self.signal("TERM");
    }

    /// The path of its configuration file.
    pub fn config_file(&self) -> &Path {
        self.config.path()
    }

    /// Replaces the configuration, asks the program to reload it (SIGHUP) and waits until it has; returns whether it
    /// was accepted.
    pub fn reload(&self, config: &str) -> bool {
        std::fs::write(self.config_file(), config).expect("the configuration is written");
        self.reread()
    }

    /// The same for a configuration that is already in the file.
    pub fn reread(&self) -> bool {
        let counts =
            || ["ok", "refused"].map(|result| self.metric(&format!("{RELOADS}{{result=\"{result}\"}}")));
        let before = counts();
        self.signal("HUP");
        until("the configuration to be read again", || {
            let now = counts();
            (now != before).then_some(now[0] > before[0])
        })
    }

    fn signal(&self, name: &str) {
        // The shell's own `kill`, since a program of that name may not be installed.
        let done = Command::new("sh").arg("-c").arg(format!("kill -{name} {}", self.pid())).status();
        assert!(done.is_ok_and(|status| status.success()), "the signal was sent");
    }

    /// How many file descriptors it has open.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("its descriptors").count()
    }

    /// Kills it (SIGKILL).
    pub fn kill(&mut self) {
        self.child.kill().expect("the signal is sent");
        self.wait();
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
            // One more look at the log after its end, since the last lines may have been read late.
            ended = self.child.try_wait().expect("its status").is_some();
            found
        })
    }
}

/// A configuration of the program in front of the upstream at `url`, on free ports; `settings` as in
/// [`Toolrein::before`]. No policy is on that they do not name, unless they say so.
pub fn before(url: &str, settings: &str) -> String {
    let free = "127.0.0.1:0";
    let base = if settings.contains("base = ") { "" } else { "base = \"none\"\n" };
    let series = if settings.contains("telemetry") { "" } else { "telemetry.per_tool = true\n" };
    format!(
        "{base}{series}listen.proxy = {free:?}\nlisten.admin = {free:?}\nupstream.url = {url:?}\n{settings}"
    )
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

/// The proxy's and the admin's address, if `line` is the line that contains them.
fn addresses(line: &str) -> Option<(String, String)> {
    if line.contains(" listening ") {
        let field = |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name)).map(str::to_owned);
        return field("proxy=").zip(field("admin="));
    }
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
