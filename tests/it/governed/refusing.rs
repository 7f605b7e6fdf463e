//! Requests that the operator's configuration refuses.

use crate::governed::talk::{BOTH, after, calling, log_line, own_error, question};
use crate::support::client::Request;
use crate::support::program::Toolrein;
use crate::support::scripted::Scripted;

#[test]
fn a_request_over_a_budget_that_rejects_never_reaches_the_upstream() {
    let upstream = Scripted::start(calling(1));
    let toolrein = Toolrein::before(&upstream, "[policy.budget]\ntool_calls = 2\nexhausted = \"reject\"\n");
    for (nth, stream) in BOTH.into_iter().enumerate() {
        let ask =
            |body: String| Request::post(&toolrein.chat_url(), body).header("x-session-id", "talk").send();
        assert_eq!(ask(question(stream)).status, 200);
        let reply = ask(after(&["r", "r"], stream));
        assert_eq!(own_error(&reply, 400, "budget_exceeded").as_deref(), Some("false"));
        assert!(reply.text().contains("2 of 2"), "it says what is used up: {}", reply.text());
        assert_eq!(reply.header("content-type"), Some("application/json"));
        assert!(reply.header("x-toolrein-actions").is_some_and(|acted| acted.contains("budget=rejected")));
        assert_eq!(reply.header("x-toolrein-conversation"), Some("talk"));
        assert_eq!(upstream.requests().len(), nth + 1);
        let line = log_line(&toolrein, 2 * nth + 1);
        assert_eq!((&line["error"], &line["status"]), (&"budget_exceeded".into(), &400.into()));
        assert_eq!(line.get("upstream_requests"), None);
    }
    toolrein.wait_for_metric("toolrein_requests_total{endpoint=\"chat_completions\",status=\"400\"}", 2.0);
}
