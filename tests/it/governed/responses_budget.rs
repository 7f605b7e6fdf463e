//! `budget` on the Responses API: what was billed to a conversation, in whatever way the client keeps it.

use crate::governed::talk::BOTH;
use crate::support::program::Toolrein;
use crate::support::responses::Output;
use crate::support::responses_kit::{Talk, input, may_call};
use crate::support::scripted::Scripted;
use serde_json::Value;

/// Four replies of 25 tokens.
const BILLED: &str = "[policy.budget]\ntool_calls = 0\nbilled_tokens = 100\n";

#[test]
fn billed_tokens_are_announced_where_they_stay_and_end_in_the_final_answer() {
    for stream in BOTH {
        let upstream = Scripted::start(|nth, request| {
            let output = Output::new(nth);
            if may_call(request) { output.call(&format!("{nth}"), "f", "{}") } else { output.says("Done.") }
                .reply(request)
        });
        let toolrein = Toolrein::before(&upstream, BILLED);
        let mut talk = Talk::new(stream);
        for _ in 0..4 {
            let answer = talk.ask(&toolrein);
            talk.go_on(&answer);
        }
        assert_eq!(talk.ask(&toolrein).said(), "Done.");
        let sent: Vec<Vec<Value>> = upstream.requests().iter().map(input).collect();
        assert_eq!(sent.len(), 5, "four calls, the final answer");
        for pair in sent.windows(2) {
            assert_eq!(pair[1][..pair[0].len()], pair[0]);
        }
        let notices = |items: &[Value]| {
            items
                .iter()
                .map(Value::to_string)
                .filter(|item| item.contains("billed tokens of this conv"))
                .count()
        };
        let shown: Vec<usize> = sent.iter().map(|items| notices(items)).collect();
        assert_eq!(shown, [0, 0, 1, 2, 3]);
        upstream.assert_clean();
    }
}
