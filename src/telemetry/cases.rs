//! Request records, sinks and expected outputs for the tests of what is written about requests.

use model::adaptation::Adaptation;
use model::record::{
    ApprovalRecord, Consent, Context, Endpoint, JudgedCall, LimitUse, NewResult, NewText, On, PolicyDecision,
    PrefixBreak, RequestRecord, ResultOutcome, Retry, Route, SHORTENED, Times, Tokens, Verdict,
};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Keeps what is written to it.
#[derive(Clone, Default)]
pub(super) struct Sink(Arc<Mutex<Vec<u8>>>);

impl Sink {
    pub(super) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A record with some of everything except failures.
pub(crate) fn rich() -> RequestRecord {
    let mut record = RequestRecord::new(Route::Chat);
    record.request_id = "req-1".to_owned();
    record.conversation = Some("talk-1".to_owned());
    record.model = Some("gpt-4o".to_owned());
    record.profile = Some("chat".into());
    record.caller = Some("c0ffee".to_owned());
    record.method = "POST".to_owned();
    record.path = "/v1/chat/completions".to_owned();
    record.endpoint = Endpoint::ChatCompletions;
    record.mode = "enforce";
    record.status = 200;
    record.streamed = true;
    record.act(On::Request, "truncate", SHORTENED, 2);
    record.act(On::Request, "budget", "notice", 1);
    record.act(On::Reply, "rate_limit", "blocked", 1);
    record.judged = calls();
    record.results = results();
    record.tokens_of("truncate").removed = 900;
    record.tokens_of("budget").added = 30;
    record.tokens_of("rate_limit").reasked = 1_500;
    record.tokens = Tokens {
        prompt: 3_000,
        cached: 2_048,
        cache_written: 100,
        completion: 70,
        reasoning: 20,
        saved: 900,
    };
    record.context = Context { touched: true, held_out: false };
    record.upstream_requests = 2;
    record.upstream_request_ids = vec!["up-0".to_owned(), "up-1".to_owned()];
    record.fallbacks = vec![Retry::Adapted(Adaptation::Placement)];
    record.prefix_breaks = vec![PrefixBreak::StateStore];
    record.carried = vec!["web_search_call"];
    record.unjudged = vec!["event_too_long"];
    record.lost_hidden_exchanges = 1;
    record.late_results = 1;
    record.reasks = 1;
    record.usage_of_limits = vec![
        LimitUse {
            policy: Some("rate_limit"),
            tool: "weather".to_owned(),
            used: 3,
            limit: 3,
            is_used: true,
            of_caller: false,
        },
        LimitUse { policy: None, tool: "*".to_owned(), used: 12, limit: 50, is_used: true, of_caller: false },
    ];
    record.times = Times {
        total: Duration::from_micros(1_500_250),
        upstream: Duration::from_millis(1_500),
        first_byte: Some(Duration::from_micros(420_500)),
        overhead: Duration::from_micros(250),
    };
    record.request_bytes = 32_768;
    record.reply_bytes = 900;
    record.traceparent = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned());
    record
}

/// A record with everything in it: each member that some output writes has information, and texts from outside are long,
/// or have what no output may show.
pub(crate) fn complete() -> RequestRecord {
    let mut record = rich();
    record.conversation = Some("talk \u{7}1".to_owned());
    record.model = Some(format!("model-{}", "m".repeat(510)));
    record.response_model = Some("gpt-4o-2024".to_owned());
    record.path = "/v1/chat/ü".to_owned();
    (record.status, record.error, record.client_gone) = (502, Some("upstream_unreachable"), true);
    record.error_detail = Some("Connection\nrefused".to_owned());
    record.partly_ungoverned = Some("lone_surrogate");
    record.act(On::Reply, "redact", "a \u{1b}[2J".repeat(60), 3);
    record.judged.extend(decided_calls());
    record.new_texts = vec![NewText {
        policy: "rewrite_query",
        tool: "web search".to_owned(),
        before: "b".repeat(500),
        after: "after\n".to_owned(),
    }];
    let approval = |tool: &str, outcome, approver: Option<&str>, reason: Option<&str>| ApprovalRecord {
        tool: tool.to_owned(),
        outcome,
        approver: approver.map(str::to_owned),
        reason: reason.map(str::to_owned),
    };
    record.approvals = vec![
        approval("pay now", Consent::Approved, Some("ann@example.org"), Some("known\tcustomer")),
        approval("pay", Consent::Expired, None, None),
    ];
    let result = record.results[1].clone();
    record.results.extend((0..20).map(|bytes| NewResult { bytes, ..result.clone() }));
    record.fallbacks.push(Retry::Stale);
    record.implausible_usage = true;
    (record.system_tokens, record.definition_tokens) = (Some(320), 930);
    record.declared_tools = ["search".to_owned(), "weather".to_owned()].into();
    (record.cost, record.context.held_out) = (Some(1_234_567), true);
    record.usage_of_limits.push(LimitUse {
        policy: Some("loops"),
        tool: "*".to_owned(),
        used: 2,
        limit: 5,
        is_used: true,
        of_caller: false,
    });
    record
}

/// The decision of a policy; with a `message`, an objection.
fn decision(policy: &'static str, reason: &'static str, message: Option<&str>) -> PolicyDecision {
    let numbers = message.map(|_| vec![("retry_after_ms", 400), ("limit", 3)]).unwrap_or_default();
    let is_objection = message.is_some();
    PolicyDecision { policy, reason, is_objection, message: message.map(str::to_owned), numbers }
}

/// A call for each verdict, with the decisions of policies.
fn decided_calls() -> Vec<JudgedCall> {
    let call =
        |tool: &str, verdict, said: &[(&'static str, &'static str)], message: Option<&str>| JudgedCall {
            tool: tool.to_owned(),
            id: format!("call-{}", tool.len()),
            verdict,
            unjudged: false,
            decisions: said.iter().map(|&(policy, reason)| decision(policy, reason, message)).collect(),
            is_spoken: verdict == Verdict::Block,
            new_arguments: (verdict == Verdict::Modify).then(|| r#"{"to":"ann@example.org"}"#.to_owned()),
        };
    vec![
        call(
            &format!("long \n{}", "n".repeat(70)),
            Verdict::Block,
            &[("loops", "LOOP_DETECTED")],
            Some("The call was not run: search for ann@example.org was called 4 times. Stop."),
        ),
        call("web search", Verdict::Modify, &[("rewrite_query", "rewritten")], None),
        call("read_more", Verdict::Answer, &[("read_more", "answered")], None),
        call("pay", Verdict::Ask, &[("confirm", "CONFIRMATION_REQUIRED")], Some("Pay ann@example.org?")),
        JudgedCall {
            id: "i".repeat(80),
            ..call("", Verdict::Allow, &[("budget", "BUDGET")], Some("Too many."))
        },
    ]
}

/// Compares an output with the one that is expected, `tests/data/records/NAME`; with `UPDATE_RECORDS=1`, writes that.
pub(crate) fn assert_expected(name: &str, output: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/records").join(name);
    if std::env::var_os("UPDATE_RECORDS").is_some() {
        std::fs::write(&path, output).unwrap();
    }
    assert_eq!(output, std::fs::read_to_string(&path).unwrap_or_default(), "{name}");
}

/// `line` with `now` in place of each value of this `member`, which ends at a comma.
pub(crate) fn without_time(line: &str, member: &str) -> String {
    let key = format!("\"{member}\":");
    let mut parts = line.split(&key);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |line, part| {
        let end = part.find(',').unwrap();
        format!("{line}{key}\"now\"{}", &part[end..])
    })
}

fn results() -> Vec<NewResult> {
    let result = |tool: &str, bytes, tokens, took, outcome| NewResult {
        tool: tool.to_owned(),
        bytes,
        tokens,
        took,
        outcome,
    };
    vec![
        result("search", 5_120, 1_280, Some(Duration::from_millis(350)), ResultOutcome::Useful),
        result("weather", 10, 3, None, ResultOutcome::Failed),
    ]
}

fn calls() -> Vec<JudgedCall> {
    let call = |tool: &str, verdict| JudgedCall {
        tool: tool.to_owned(),
        id: "call-0".to_owned(),
        verdict,
        unjudged: false,
        decisions: vec![],
        is_spoken: false,
        new_arguments: None,
    };
    vec![
        call("search", Verdict::Allow),
        call("search", Verdict::Allow),
        JudgedCall {
            decisions: [("rate_limit", "RATE_LIMIT"), ("loops", "LOOP_DETECTED")]
                .map(|(policy, reason)| decision(policy, reason, None))
                .into(),
            is_spoken: true,
            ..call("weather", Verdict::Block)
        },
        JudgedCall { unjudged: true, ..call("weather", Verdict::Allow) },
    ]
}
