//! Outcomes and sinks for the tests of this folder.

use super::endpoint::Endpoint;
use super::outcome::{
    Context, Fallback, JudgedCall, LimitUse, NewResult, On, Outcome, PrefixBreak, Route, SHORTENED, Said,
    Times, Tokens, Verdict,
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

/// An outcome with something of everything but failures.
pub(super) fn rich() -> Outcome {
    let mut outcome = Outcome::new(Route::Chat);
    outcome.request_id = "req-1".to_owned();
    outcome.conversation = Some("talk-1".to_owned());
    outcome.model = Some("gpt-4o".to_owned());
    outcome.profile = Some("chat".into());
    outcome.caller = Some("c0ffee".to_owned());
    outcome.method = "POST".to_owned();
    outcome.path = "/v1/chat/completions".to_owned();
    outcome.endpoint = Endpoint::ChatCompletions;
    outcome.mode = "enforce";
    outcome.status = 200;
    outcome.streamed = true;
    outcome.act(On::Request, "truncate", SHORTENED, 2);
    outcome.act(On::Request, "budget", "notice", 1);
    outcome.act(On::Reply, "rate_limit", "withheld", 1);
    outcome.judged = calls();
    let result = |tool: &str, bytes, tokens, took| NewResult { tool: tool.to_owned(), bytes, tokens, took };
    outcome.results = vec![
        result("search", 5_120, 1_280, Some(Duration::from_millis(350))),
        result("weather", 10, 3, None),
    ];
    outcome.tokens = Tokens {
        prompt: 3_000,
        cached: 2_048,
        cache_written: 100,
        completion: 70,
        reasoning: 20,
        saved: 900,
    };
    outcome.context = Context { touched: true, held_out: false };
    outcome.upstream_requests = 2;
    outcome.upstream_request_id = Some("up-1".to_owned());
    outcome.fallbacks = vec![Fallback::Placement];
    outcome.prefix_breaks = vec![PrefixBreak::Ledger];
    outcome.unjudged = vec!["event_too_long"];
    outcome.lost_rounds = 1;
    outcome.reasks = 1;
    outcome.usage_of_limits = vec![
        LimitUse { policy: Some("rate_limit"), tool: "weather".to_owned(), used: 3, limit: 3 },
        LimitUse { policy: None, tool: "*".to_owned(), used: 12, limit: 50 },
    ];
    outcome.times = Times {
        total: Duration::from_micros(1_500_250),
        upstream: Duration::from_millis(1_500),
        first_byte: Some(Duration::from_micros(420_500)),
        overhead: Duration::from_micros(250),
    };
    outcome.request_bytes = 32_768;
    outcome.reply_bytes = 900;
    outcome.traceparent = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned());
    outcome
}

fn calls() -> Vec<JudgedCall> {
    let call = |tool: &str, verdict| JudgedCall {
        tool: tool.to_owned(),
        id: "call-0".to_owned(),
        verdict,
        unjudged: false,
        said: vec![],
        is_spoken: false,
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
