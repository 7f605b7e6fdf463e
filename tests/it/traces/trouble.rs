//! A collector that is down, slow or wrong: no request notices, what is lost is counted and said once, and the program
//! ends in time.

use crate::support::program::{Toolrein, before};
use crate::support::reply::Reply;
use crate::support::scripted::Scripted;
use crate::support::until;
use crate::traces::collector::{Collector, program, settings, taken};
use crate::traces::requests::{Endpoint, in_all_forms};
use std::io::Write as _;
use std::net::TcpListener;
use std::process::Command;

const LOST: &str = "traces are lost, since the collector does not take them";
const AGAIN: &str = "the collector takes traces again";

fn talkative() -> Scripted {
    Scripted::start(|_, request| match request.path.ends_with("responses") {
        true => Endpoint::Responses.says(request, "Hello.", &[]),
        false => Endpoint::Chat.says(request, "Hello.", &[]),
    })
}

fn lines_with(toolrein: &Toolrein, text: &str) -> usize {
    toolrein.logs().iter().filter(|line| line.contains(text)).count()
}

/// An address at which nobody listens.
fn nowhere() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[test]
fn with_a_collector_that_is_down_requests_go_on_and_what_is_lost_is_counted_and_said_once() {
    let upstream = talkative();
    let toolrein = Toolrein::before(&upstream, &settings(&nowhere(), "timeout = \"50ms\"\n"));
    in_all_forms(|endpoint, stream| {
        let before = toolrein.metric("toolrein_trace_spans_total{result=\"lost\"}");
        endpoint.ask(&toolrein, stream, &[]);
        toolrein.wait_for_metric("toolrein_trace_spans_total{result=\"lost\"}", before + 2.0);
    });
    until("the line", || (lines_with(&toolrein, LOST) > 0).then_some(()));
    assert_eq!(toolrein.metric("toolrein_trace_spans_total{result=\"sent\"}"), 0.0);
    let logs = toolrein.stop();
    assert_eq!(logs.iter().filter(|line| line.contains(LOST)).count(), 1, "{logs:#?}");
}

#[test]
fn the_recovery_of_the_collector_is_logged() {
    let upstream = talkative();
    // A refusal that is no reason to try again.
    let collector =
        Collector::answering(|nth| if nth == 0 { Reply::bytes(400, "text/plain", "no") } else { taken() });
    let toolrein = program(&upstream, &collector, "");
    Endpoint::Chat.ask(&toolrein, true, &[]);
    toolrein.wait_for_metric("toolrein_trace_spans_total{result=\"lost\"}", 2.0);
    Endpoint::Chat.ask(&toolrein, true, &[]);
    toolrein.wait_for_metric("toolrein_trace_spans_total{result=\"sent\"}", 2.0);
    until("both lines", || (lines_with(&toolrein, AGAIN) == 1).then_some(()));
    assert_eq!(lines_with(&toolrein, LOST), 1);
}

#[test]
fn a_batch_that_the_collector_cannot_take_now_is_sent_again() {
    let upstream = talkative();
    let collector =
        Collector::answering(|nth| if nth == 0 { Reply::bytes(503, "text/plain", "busy") } else { taken() });
    let toolrein = program(&upstream, &collector, "");
    Endpoint::Chat.ask(&toolrein, false, &[]);
    toolrein.wait_for_metric("toolrein_trace_spans_total{result=\"sent\"}", 2.0);
    assert_eq!(toolrein.metric("toolrein_trace_spans_total{result=\"lost\"}"), 0.0);
    assert_eq!(collector.exports().len(), 2);
}

#[test]
fn the_last_traces_are_sent_at_the_end() {
    let (upstream, collector) = (talkative(), Collector::start());
    let toolrein = program(&upstream, &collector, "");
    for stream in [false, true] {
        Endpoint::Chat.ask(&toolrein, stream, &[]);
    }
    toolrein.stop();
    assert_eq!(collector.spans().len(), 4);
}

#[test]
fn a_silent_collector_does_not_keep_the_program_from_its_end() {
    let upstream = talkative();
    let collector = Collector::answering(|_| Reply::silence());
    let toolrein = program(&upstream, &collector, "timeout = \"60s\"\n");
    Endpoint::Chat.ask(&toolrein, false, &[]);
    until("the export", || (!collector.exports().is_empty()).then_some(()));
    Endpoint::Chat.ask(&toolrein, false, &[]);
    let logs = toolrein.stop().join("\n");
    assert!(logs.contains("traces were not sent in time at the end"), "{logs}");
}

#[test]
fn a_full_queue_drops_whole_traces_and_counts_them() {
    let upstream = talkative();
    let collector = Collector::answering(|_| Reply::silence());
    let toolrein = program(&upstream, &collector, "queue = 512\ntimeout = \"60s\"\n");
    Endpoint::Chat.ask(&toolrein, false, &[]);
    until("the export", || (!collector.exports().is_empty()).then_some(()));
    until("a lost trace", || {
        Endpoint::Chat.ask(&toolrein, false, &[]);
        let lost = toolrein.metric("toolrein_trace_spans_total{result=\"lost\"}");
        (lost > 0.0).then(|| assert_eq!(lost % 2.0, 0.0))
    });
}

#[test]
fn a_check_names_a_wrong_endpoint_and_shows_no_secret_of_it() {
    let check = |endpoint: &str| {
        let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        file.write_all(before("http://127.0.0.1:1/v1", &settings(endpoint, "")).as_bytes()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolrein"));
        let output = command.arg("check").arg(file.path()).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    };
    assert!(check("http://127.0.0.1:4318").0);
    for wrong in ["127.0.0.1:4318", "grpc://c:4317", "http://me:hunter2@c:4318"] {
        let (is_good, text) = check(wrong);
        assert!(
            !is_good && text.contains("telemetry.traces.endpoint") && !text.contains("hunter2"),
            "{text}"
        );
    }
}

#[test]
fn a_header_whose_variable_is_not_set_stops_the_start() {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    let headers = "headers = { api-key = \"NO_SUCH_KEY_HERE\" }\n";
    let config = before("http://127.0.0.1:1/v1", &settings("http://127.0.0.1:1", headers));
    file.write_all(config.as_bytes()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolrein"));
    let output = command.arg("serve").arg("--config").arg(file.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("NO_SUCH_KEY_HERE is not set"), "{text}");
}
