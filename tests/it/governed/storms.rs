//! A storm of equal requests: warned about once, and stopped where a setting says so. What client libraries send again
//! meets neither.

use crate::support::client::{Request, Response};
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::responses::Output;
use crate::support::scripted::{Recorded, Scripted};
use crate::support::until;
use serde_json::{Value, json};

const PRICE: &str = "model.\"m\".price = { input = 1.0, output = 1.0 }\n";

fn answering() -> Scripted {
    Scripted::start(|nth, request: &Recorded| match request.path.ends_with("responses") {
        true => Output::text(nth, "Hello.").reply(request),
        false => Reply::speech(request, &Speech::text("Hello.")),
    })
}

/// A request for chat completions or responses, as `key` sends it.
fn ask(program: &Toolrein, key: &str, is_responses: bool, more: &Value) -> Response {
    let (path, mut body) = match is_responses {
        true => ("responses", json!({"input": "Hello"})),
        false => ("chat/completions", json!({"messages": [{"role": "user", "content": "Hello"}]})),
    };
    body["model"] = json!("m");
    more.as_object().unwrap().iter().for_each(|(name, value)| body[name] = value.clone());
    let request = Request::new("POST", &format!("{}/{path}", program.base_url()), body.to_string());
    request
        .header("content-type", "application/json")
        .header("authorization", &format!("Bearer {key}"))
        .send()
}

/// The warnings about storms so far, as fields.
fn warnings(program: &Toolrein) -> Vec<Value> {
    let lines = program.logs();
    let lines = lines.iter().filter(|line| line.contains("again and again, byte for byte"));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// As [`warnings`], once there is one: the log is written after the reply and the metrics.
fn first_warnings(program: &Toolrein) -> Vec<Value> {
    until("a warning", || Some(warnings(program)).filter(|warned| !warned.is_empty()))
}

/// A field of a line, wherever the log puts it.
fn field<'a>(line: &'a Value, name: &str) -> &'a Value {
    line.get(name).unwrap_or(&line["fields"][name])
}

#[test]
fn a_storm_is_warned_about_once_for_each_caller_and_every_request_is_served() {
    let upstream = answering();
    let program = Toolrein::before(&upstream, PRICE);
    for key in ["sk-one", "sk-two"] {
        for _ in 0..25 {
            let reply = ask(&program, key, false, &json!({}));
            assert_eq!((reply.status, reply.header("x-toolrein-actions")), (200, None), "nothing was done");
        }
    }
    let warned = until("both warnings", || Some(warnings(&program)).filter(|warned| warned.len() >= 2));
    assert_eq!(warned.len(), 2, "{warned:?}");
    for line in &warned {
        assert_eq!(
            (field(line, "endpoint"), field(line, "requests"), field(line, "refused")),
            (&json!("chat_completions"), &json!(10), &json!(false)),
            "{line}"
        );
        // Nine were answered: 20 tokens and 5 each, at a dollar for a million.
        assert_eq!(field(line, "tokens"), &json!(225), "{line}");
        let cost = field(line, "cost_usd").as_f64().unwrap_or_else(|| panic!("{line}"));
        assert!((cost - 0.000_225).abs() < 1e-9, "{line}");
        assert!(!line.to_string().contains("sk-"), "{line}");
    }
    assert_ne!(field(&warned[0], "caller"), field(&warned[1], "caller"));
    program.wait_for_metric("toolrein_actions_total{policy=\"equal_requests\",action=\"storm\"}", 2.0);
    assert_eq!(upstream.requests().len(), 50);
}

#[test]
fn what_client_libraries_and_frameworks_send_again_is_no_storm() {
    let upstream = Scripted::start(|_, _| Reply::error(500, "server_error", "overloaded", "Try again."));
    let program = Toolrein::before(&upstream, "");
    for is_responses in [false, true] {
        for _ in 0..9 {
            assert_eq!(ask(&program, "sk-one", is_responses, &json!({})).status, 500);
        }
    }
    // Many requests that differ, in one number only.
    for seed in 0..30 {
        assert_eq!(ask(&program, "sk-one", false, &json!({"seed": seed})).status, 500);
    }
    assert!(program.metrics().contains("toolrein_requests_total"));
    assert!(!program.metrics().contains("equal_requests"), "{}", program.metrics());
    assert_eq!(warnings(&program), Vec::<Value>::new());
}

#[test]
fn a_setting_refuses_further_equal_requests_of_that_caller_and_no_others() {
    for (is_responses, stream) in [(false, false), (false, true), (true, false), (true, true)] {
        let upstream = answering();
        let program = Toolrein::before(&upstream, "limits.equal_requests = 12\n");
        let more = json!({"stream": stream});
        for nth in 0..12 {
            assert_eq!(ask(&program, "sk-one", is_responses, &more).status, 200, "{nth}");
        }
        for _ in 0..3 {
            let refused = ask(&program, "sk-one", is_responses, &more);
            let error = refused.json()["error"].clone();
            assert_eq!(
                (refused.status, &error["code"]),
                (400, &json!("equal_requests")),
                "{}",
                refused.text()
            );
            assert_eq!((&error["type"], &error["param"]), (&json!("toolrein_error"), &Value::Null));
            assert_eq!(error["request_id"].as_str(), refused.header("x-toolrein-request-id"));
            assert!(
                error["message"].as_str().unwrap().contains("limits.equal_requests allows 12"),
                "{error}"
            );
            assert_eq!(refused.header("x-should-retry"), Some("false"));
            assert_eq!(refused.header("x-toolrein-actions"), Some("equal_requests=rejected"));
        }
        assert_eq!(upstream.requests().len(), 12, "a refused request is not sent");
        assert_eq!(ask(&program, "sk-two", is_responses, &more).status, 200, "another caller");
        let other = json!({"stream": stream, "user": "else"});
        assert_eq!(ask(&program, "sk-one", is_responses, &other).status, 200, "another request");
        program.wait_for_metric("toolrein_actions_total{policy=\"equal_requests\",action=\"rejected\"}", 3.0);
        program.wait_for_metric("toolrein_requests_total{error=\"equal_requests\"}", 3.0);
        assert_eq!(first_warnings(&program).len(), 1);
    }
}

#[test]
fn a_limit_below_a_storm_warns_when_it_refuses_and_a_reload_takes_it_away() {
    let upstream = answering();
    let program = Toolrein::before(&upstream, "limits.equal_requests = 3\n");
    let statuses: Vec<u16> = (0..5).map(|_| ask(&program, "sk-one", false, &json!({})).status).collect();
    assert_eq!(statuses, [200, 200, 200, 400, 400]);
    let warned = first_warnings(&program).remove(0);
    assert_eq!(
        (field(&warned, "requests"), field(&warned, "refused")),
        (&json!(4), &json!(true)),
        "{warned}"
    );
    let settings = std::fs::read_to_string(program.config_file()).unwrap();
    assert!(program.reload(&settings.replace("equal_requests = 3", "equal_requests = 0")));
    assert_eq!(ask(&program, "sk-one", false, &json!({})).status, 200);
}

#[test]
fn while_observing_a_storm_is_counted_and_nothing_is_refused() {
    let upstream = answering();
    let program = Toolrein::before(&upstream, "mode = \"observe\"\nlimits.equal_requests = 10\n");
    for _ in 0..13 {
        let reply = ask(&program, "sk-one", false, &json!({}));
        assert_eq!((reply.status, reply.header("x-toolrein-actions")), (200, None));
    }
    program.wait_for_metric("toolrein_actions_total{policy=\"equal_requests\",action=\"rejected\"}", 3.0);
    program.wait_for_metric("toolrein_actions_total{policy=\"equal_requests\",action=\"storm\"}", 1.0);
    assert_eq!((first_warnings(&program).len(), upstream.requests().len()), (1, 13));
}
