//! Which traces are kept, and what the upstream gets of them.

use crate::support::client::Request;
use crate::support::program::Toolrein;
use crate::support::scripted::Scripted;
use crate::traces::collector::{Collector, hex, program};
use crate::traces::requests::{Endpoint, PARENT, TRACE, in_all_forms, traceparent};

fn talkative() -> Scripted {
    Scripted::start(|_, request| match request.path.ends_with("responses") {
        true => Endpoint::Responses.says(request, "Hello.", &[]),
        false => Endpoint::Chat.says(request, "Hello.", &[]),
    })
}

#[test]
fn the_callers_decision_is_followed_and_the_share_holds_for_the_others() {
    for (share, parent, expected) in [
        ("1.0", None, 1),
        ("0.0", None, 0),
        ("0.0", Some(traceparent(true)), 1),
        ("1.0", Some(traceparent(false)), 0),
        // What is no traceparent decides nothing.
        ("1.0", Some(format!("00-{TRACE}-{PARENT}")), 1),
        ("0.0", Some(format!("ff-{TRACE}-{PARENT}-01")), 0),
        ("0.0", Some("00-00000000000000000000000000000000-00f067aa0ba902b7-01".to_owned()), 0),
        ("0.0", Some("x".repeat(5000)), 0),
    ] {
        let (upstream, collector) = (talkative(), Collector::start());
        let toolrein = program(&upstream, &collector, &format!("sample = {share}\n"));
        let headers: Vec<_> = parent.iter().map(|parent| ("traceparent", parent.as_str())).collect();
        Endpoint::Chat.ask(&toolrein, false, &headers);
        let sent = upstream.request(0).header("traceparent").map(str::to_owned);
        assert_eq!(sent, parent, "unchanged");
        toolrein.stop();
        assert_eq!(collector.spans().len(), 2 * expected, "share {share}, {parent:?}");
    }
}

#[test]
fn duplicate_traceparent_headers_are_ignored() {
    let (upstream, collector) = (talkative(), Collector::start());
    let toolrein = program(&upstream, &collector, "");
    let other = format!("00-{}-{PARENT}-01", "1".repeat(32));
    Endpoint::Chat.ask(&toolrein, false, &[("traceparent", &traceparent(true)), ("traceparent", &other)]);
    let trace = collector.trace(0);
    assert!(trace.request.parent_span_id.is_empty(), "{trace:?}");
    assert_ne!(hex(&trace.request.trace_id), TRACE);
}

#[test]
fn the_upstream_continues_the_trace_where_a_setting_asks_for_it() {
    in_all_forms(|endpoint, stream| {
        for parent in [None, Some(traceparent(true))] {
            let (upstream, collector) = (talkative(), Collector::start());
            let toolrein = program(&upstream, &collector, "propagate = true\n");
            let headers: Vec<_> = parent.iter().map(|parent| ("traceparent", parent.as_str())).collect();
            endpoint.ask(&toolrein, stream, &headers);
            let trace = collector.trace(0);
            let step = trace.step("upstream request");
            let expected = format!("00-{}-{}-01", hex(&trace.request.trace_id), hex(&step.span_id));
            assert_eq!(upstream.request(0).header("traceparent"), Some(expected.as_str()));
            assert_eq!(hex(&trace.request.trace_id) == TRACE, parent.is_some());
        }
    });
}

#[test]
fn without_a_collector_there_is_no_trace_no_series_and_no_thread() {
    let upstream = talkative();
    let toolrein = Toolrein::before(&upstream, "");
    let request = Request::post(&toolrein.chat_url(), Endpoint::Chat.question(false).to_string());
    assert_eq!(request.header("traceparent", &traceparent(true)).send().status, 200);
    assert_eq!(upstream.request(0).header("traceparent"), Some(traceparent(true).as_str()));
    assert!(!toolrein.metrics().contains("toolrein_trace_spans_total"));
    let tasks = std::fs::read_dir(format!("/proc/{}/task", toolrein.pid())).unwrap();
    let names =
        tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default());
    let names: Vec<String> = names.collect();
    assert!(!names.iter().any(|name| name.starts_with("OpenTelemetry")), "{names:?}");
}
