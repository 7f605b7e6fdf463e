//! The demonstration's agent over the Responses API, directly at the upstream.

use super::super::super::agent::{Agent, Journey, Outcome};
use super::super::super::endpoint::Endpoint;
use super::*;
use std::collections::BTreeSet;

#[tokio::test]
async fn the_agent_gets_the_same_outcome_over_both_endpoints() {
    let served = Served::start().await;
    for endpoint in [Endpoint::Chat, Endpoint::Responses] {
        let agent = Agent::new(served.address, endpoint);
        for (model, question, tool_calls, outcome) in [
            ("demo-runaway", "Find out everything about bicycles.", 25, Outcome::GaveUp(25)),
            ("demo-chat", "Read https://example.com/page with read_url.", 1, Outcome::Answered),
            ("demo-chat", "Use web_search and read_url.", 2, Outcome::Answered),
            ("demo-no-tools", "Who built it?", 0, Outcome::Refused(StatusCode::BAD_REQUEST)),
        ] {
            let journey = agent.work(model, question).await;
            assert_eq!(
                journey,
                Journey { tool_calls, actions: BTreeSet::new(), outcome },
                "{endpoint:?} {model}"
            );
        }
    }
}

#[tokio::test]
async fn the_agent_keeps_nothing_at_the_upstream() {
    let served = Served::start().await;
    let body = Endpoint::Responses.body("demo-chat", &[Endpoint::question("q")]);
    assert_eq!([&body["store"], &body["stream"]], [&json!(false), &json!(true)]);
    assert_eq!(body["tools"][0]["name"], "web_search");
    let (status, _, text) = served.send(Method::POST, PATH, body.to_string()).await;
    assert_eq!(status, StatusCode::OK);
    let id = &super::validator::validate(&text).unwrap().last["id"];
    assert_eq!(served.stored(Method::GET, id.as_str().unwrap()).await.0, 404);
}
