//! Request records and sinks for the tests of this folder.

use model::adaptation::Adaptation;
use model::record::{
    Context, Endpoint, JudgedCall, LimitUse, NewResult, On, PrefixBreak, RequestRecord, ResultOutcome, Retry,
    Route, SHORTENED, Said, Times, Tokens, Verdict,
};
use std::io::{self, Write};
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
pub(super) fn rich() -> RequestRecord {
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
        said: vec![],
        is_spoken: false,
        message: None,
    };
    vec![
        call("search", Verdict::Allow),
        call("search", Verdict::Allow),
        JudgedCall {
            said: [("rate_limit", "RATE_LIMIT"), ("loops", "LOOP_DETECTED")]
                .map(|(policy, reason)| Said { policy, reason })
                .into(),
            is_spoken: true,
            ..call("weather", Verdict::Block)
        },
        JudgedCall { unjudged: true, ..call("weather", Verdict::Allow) },
    ]
}
