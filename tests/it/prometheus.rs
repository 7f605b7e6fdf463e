//! The real Prometheus scrapes the running program with the shipped `deploy/prometheus.yml`, and its own linter
//! reads the metrics. What each metric means is tested elsewhere.

use crate::support;

use serde_json::{Value, json};
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use support::client::{Request, post};
use support::program::Toolrein;
use support::reply::{Reply, Speech};
use support::scripted::Scripted;
use support::until;

const ASK: &str = r#"{"model":"m","messages":[{"role":"user","content":"q"}]}"#;

/// A running Prometheus; killed when dropped.
struct Prometheus {
    child: Child,
    origin: String,
    data: tempfile::TempDir,
}

impl Prometheus {
    /// Starts it with this configuration, on a port that was free a moment before; another if it is taken after all.
    fn start(config: &str) -> Self {
        until("a Prometheus that stays up", || {
            let mut server = Self::spawn(config);
            let ready = until("Prometheus to answer or to end", || {
                let ended = server.child.try_wait().expect("its status").is_some();
                (ended || server.is_ready()).then_some(!ended)
            });
            ready.then_some(server)
        })
    }

    fn spawn(config: &str) -> Self {
        let data = tempfile::tempdir().expect("a temporary folder");
        let file = data.path().join("prometheus.yml");
        std::fs::write(&file, config).expect("the configuration is written");
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = free.local_addr().expect("its address");
        drop(free);
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", data.path().join("tsdb").display()));
        command.arg(format!("--web.listen-address={address}"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap_or_else(|error| panic!("{}", missing("prometheus", &error)));
        Self { child, origin: format!("http://{address}"), data }
    }

    fn is_ready(&self) -> bool {
        let address = self.origin.trim_start_matches("http://");
        std::net::TcpStream::connect(address).is_ok()
            && Request::new("GET", &format!("{}/-/ready", self.origin), "").send().status == 200
    }

    /// The series that an instant query finds.
    fn query(&self, query: &str) -> Vec<Value> {
        let url = format!("{}/api/v1/query?query={query}", self.origin);
        let answer = Request::new("GET", &url, "").send().json();
        assert_eq!(answer["status"], "success", "{answer}");
        answer["data"]["result"].as_array().expect("a vector").clone()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Named, since the folder must outlive the process that writes into it.
        let _ = &self.data;
    }
}

#[test]
fn prometheus_scrapes_the_admin_port_with_the_shipped_configuration() {
    let (upstream, toolrein) = one_request_answered();
    let shipped = std::fs::read_to_string(deployed("prometheus.yml")).unwrap();
    let admin = toolrein.admin_url().trim_start_matches("http://");
    let config = shipped.replace("127.0.0.1:4243", admin).replace("15s", "1s");
    assert!(config.contains(admin) && config.contains("interval: 1s"), "the file names the port: {shipped}");
    let prometheus = Prometheus::start(&config);
    let series = until("toolrein_requests_total in Prometheus", || {
        prometheus.query("toolrein_requests_total").into_iter().find(|series| series["value"][1] != "0")
    });
    assert_eq!(series["metric"]["job"], "toolrein", "{series}");
    assert_eq!(series["metric"]["status"], "200", "{series}");
    upstream.assert_clean();
}

#[test]
fn promtool_has_no_complaint_about_the_metrics() {
    let (_upstream, toolrein) = one_request_answered();
    let metrics = toolrein.metrics();
    let output = promtool(&["check", "metrics"], &metrics);
    assert!(output.status.success(), "{}\n{metrics}", complaints(&output));
    assert_eq!(complaints(&output), "", "in\n{metrics}");
}

#[test]
fn promtool_accepts_the_shipped_configuration() {
    let file = deployed("prometheus.yml");
    let output = promtool(&["check", "config", &file.to_string_lossy()], "");
    assert!(output.status.success(), "{}", complaints(&output));
}

/// The program, after one request that it counted.
fn one_request_answered() -> (Scripted, Toolrein) {
    let upstream = Scripted::queue([Reply::text("a")]);
    let toolrein = Toolrein::before(&upstream, "[policy.budget]\n");
    assert_eq!(post(&toolrein.chat_url(), ASK).status, 200);
    toolrein.wait_for_metric("toolrein_requests_total", 1.0);
    (upstream, toolrein)
}

fn deployed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name)
}

fn promtool(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new("promtool");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{}", missing("promtool", &error)));
    child.stdin.take().expect("its input").write_all(input.as_bytes()).expect("it reads its input");
    child.wait_with_output().expect("it ends")
}

fn complaints(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.clone(), output.stderr.clone()].concat()).into_owned()
}

fn missing(program: &str, error: &std::io::Error) -> String {
    format!("{program}: {error}; `make test` installs Debian's package prometheus")
}

/// 300 sidecars whose agents have 25 tools each stay under 30,000 series.
#[test]
fn a_sidecar_as_shipped_has_less_than_a_hundred_series_whatever_its_tools() {
    let upstream = Scripted::start(|nth, request| {
        let tools = request.json()["messages"].as_array().map_or(0, Vec::len);
        let (id, name) = (format!("call_{nth}"), format!("tool_{}", nth % 25));
        match nth % 3 {
            0 => Reply::speech(request, &Speech::text(&format!("{tools} messages"))),
            _ => Reply::speech(request, &Speech::calls(&[(&id, &name, "{}")])),
        }
    });
    let settings = "base = \"shipped\"\ntelemetry.per_tool = false\n";
    let program = Toolrein::before(&upstream, settings);
    let tools: Vec<Value> = (0..25)
        .map(|nth| {
            let parameters = json!({"type": "object"});
            json!({"type": "function", "function": {"name": format!("tool_{nth}"), "parameters": parameters}})
        })
        .collect();
    let (mut messages, mut call) = (vec![json!({"role": "user", "content": "q"})], 0);
    for nth in 0..60 {
        let body = json!({"model": "gpt-4o", "messages": messages, "tools": tools, "stream": nth % 2 == 0});
        assert_eq!(post(&program.chat_url(), body.to_string()).status, 200);
        call += 1;
        let made = json!({"id": format!("c{call}"), "type": "function",
            "function": {"name": format!("tool_{}", nth % 25), "arguments": format!("{{\"n\":{nth}}}")}});
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": [made]}));
        let result =
            if nth % 7 == 0 { "Error: failed".to_owned() } else { format!("result {nth} ").repeat(300) };
        messages.push(json!({"role": "tool", "tool_call_id": format!("c{call}"), "content": result}));
    }
    program.wait_for_metric("toolrein_requests_total{endpoint=\"chat_completions\"}", 60.0);
    let metrics = program.metrics();
    let series: Vec<&str> = metrics.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(series.len() < 100, "{} series:\n{}", series.len(), series.join("\n"));
    assert!(metrics.contains("tool=\"other\""), "tools are counted together");
}

#[test]
fn the_shipped_rules_and_alerts_pass_their_own_tests() {
    let rules = deployed("prometheus/rules.yml");
    let output = promtool(&["check", "rules", &rules.to_string_lossy()], "");
    assert!(output.status.success(), "{}", complaints(&output));
    let tests = deployed("prometheus/rules_test.yml");
    let output = promtool(&["test", "rules", &tests.to_string_lossy()], "");
    assert!(output.status.success(), "{}", complaints(&output));
    let [rules, tests] = [rules, tests].map(|path| std::fs::read_to_string(path).unwrap());
    let alerts = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let untested: Vec<&str> =
        alerts.filter(|alert| !tests.contains(&format!("alertname: {alert}"))).collect();
    assert_eq!(untested, [""; 0]);
}

/// Between two bounds of buckets a quantile is only interpolated, so an alert on one is false for all values between them.
#[test]
fn every_alert_on_a_histogram_asks_for_a_bound_that_the_program_has() {
    let rules = std::fs::read_to_string(deployed("prometheus/rules.yml")).unwrap();
    let alerts: Vec<&str> = rules.split("- alert: ").skip(1).collect();
    assert!(alerts.iter().all(|alert| !alert.contains("_quantile")), "a quantile is interpolated");
    let upstream = Scripted::start(|nth, request| match nth {
        0 => Reply::speech(request, &Speech::calls(&[("c", "f", "{}")])),
        _ => Reply::speech(request, &Speech::text("Done.")),
    });
    let program = Toolrein::before(&upstream, "telemetry.per_tool = true\n[policy.budget]\ntool_calls = 5\n");
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let mut messages = vec![json!({"role": "user", "content": "q"})];
    for _ in 0..2 {
        let body = json!({"model": "gpt-4o", "messages": messages});
        assert_eq!(post(&program.chat_url(), body.to_string()).status, 200);
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
        messages.push(json!({"role": "tool", "tool_call_id": "c", "content": "r"}));
    }
    program.wait_for_metric("toolrein_requests_total", 2.0);
    let metrics = program.metrics();
    let mut asked = 0;
    for alert in &alerts {
        for (at, _) in alert.match_indices("le=\"") {
            let bound = alert[at..].split('"').nth(1).unwrap();
            let name = alert[..at].rsplit_once("_bucket{").unwrap().0;
            let name =
                name.rsplit(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').next().unwrap();
            let is_it = |line: &str| {
                line.starts_with(&format!("{name}_bucket{{")) && line.contains(&format!("le=\"{bound}\""))
            };
            let is_known = metrics.lines().any(is_it);
            assert!(is_known, "{name} has no bucket with the bound {bound} in\n{metrics}");
            asked += 1;
        }
    }
    assert!(asked >= 5, "{asked}");
}

#[test]
fn every_alert_is_in_the_documentation() {
    let rules = std::fs::read_to_string(deployed("prometheus/rules.yml")).unwrap();
    let page = std::fs::read_to_string(source("docs/metrics.md")).unwrap();
    let alerts = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let missing: Vec<&str> = alerts.filter(|alert| !page.contains(&format!("| `{alert}` |"))).collect();
    assert_eq!(missing, [""; 0]);
}

/// Every name that a rule or a panel asks for is a family that the program has.
#[test]
fn rules_and_the_grafana_dashboard_ask_for_metrics_that_exist() {
    let families: Vec<String> = {
        let files = std::fs::read_dir(source("src/telemetry")).unwrap().map(|file| file.unwrap().path());
        let files = files.filter(|path| path.extension().is_some_and(|end| end == "rs"));
        let text: String = files.map(|path| std::fs::read_to_string(path).unwrap()).collect();
        text.split('"').filter(|word| word.starts_with("toolrein_")).map(str::to_owned).collect()
    };
    let rules = std::fs::read_to_string(deployed("prometheus/rules.yml")).unwrap();
    let dashboard = std::fs::read_to_string(deployed("grafana/dashboard.json")).unwrap();
    let parsed: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = parsed["panels"].as_array().unwrap();
    assert!(panels.iter().filter(|panel| panel["type"] != "row").count() >= 15);
    let recorded = |name: &str| rules.contains(&format!("record: {name}"));
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "_:".contains(letter);
    let mut asked = 0;
    for name in [&rules, &dashboard].into_iter().flat_map(|text| text.split(|letter| !is_name(letter))) {
        let family =
            ["_bucket", "_count", "_sum"].into_iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        if family.starts_with("toolrein_") {
            asked += 1;
            assert!(families.iter().any(|known| known == family), "{name}");
        } else if name.starts_with("toolrein:") {
            assert!(recorded(name), "{name}");
        }
    }
    assert!(asked > 50, "{asked} names");
}

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
