//! Which profile a request takes, as the client sees it, and what reaches the upstream, the log and the metrics.

use crate::profiles::ask;
use crate::support::client::{Request, get};
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::Scripted;
use crate::support::talk::{Form, Said, Talk, in_both_forms, text};
use serde_json::{Value, json};

/// In each of these profiles another tool is denied, so that the calls let through tell which one was taken.
const PROFILES: &str = r#"
[tier.free]
# printf %s sk-free | sha256sum
keys = ["sha256:a97ffab5cd3331858e03076328705ababa22813218d8511eb09bbbce51d39ff8"]
[policy.allow]
except = ["base"]
[profile.named]
policy.allow.except = ["named"]
[profile.free]
tiers = ["free"]
policy.allow.except = ["free"]
[profile.small]
models = ["*-mini"]
policy.allow.except = ["small"]
"#;
const TOOLS: [&str; 4] = ["base", "named", "free", "small"];

/// A model that calls every tool at once.
fn model() -> Scripted {
    Scripted::start(|_, request| {
        let calls: Vec<_> = TOOLS.iter().map(|tool| (*tool, *tool, "{}")).collect();
        Reply::speech(request, &Speech::calls(&calls))
    })
}

fn talk(form: Form, model: &str) -> Talk {
    let mut talk = Talk::new(form);
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
    talk.members = json!({"model": model, "tools": TOOLS.map(tool)});
    talk
}

#[test]
fn the_header_goes_before_the_tier_the_tier_before_the_model_and_else_none_is_taken() {
    let (by_header, by_tier) = (("x-toolrein-profile", "named"), ("api-key", "sk-free"));
    in_both_forms(|form| {
        let upstream = model();
        let program = Toolrein::before(&upstream, PROFILES);
        for (headers, model, denied) in [
            (&[by_header, by_tier][..], "gpt-4o-mini", "named"),
            (&[by_tier], "gpt-4o-mini", "free"),
            (&[], "gpt-4o-mini", "small"),
            (&[], "gpt-4o", "base"),
            (&[("x-toolrein-tier", "free")], "gpt-4o", "base"),
        ] {
            let said = ask(&talk(form, model), &program, headers);
            said.assert_coherent(form);
            let released: Vec<&str> = said.calls.iter().map(|(_, name, _)| name.as_str()).collect();
            let expected: Vec<&str> = TOOLS.into_iter().filter(|tool| *tool != denied).collect();
            assert_eq!(released, expected, "{headers:?} {model}");
        }
        upstream.assert_clean();
    });
}

#[test]
fn the_choice_does_not_travel_on_and_the_body_stays_as_it_was() {
    let upstream = Scripted::start(|_, request| text("Hello.", request));
    let program = Toolrein::before(&upstream, PROFILES);
    let talk = talk(Form::Whole, "gpt-4o");
    ask(
        &talk,
        &program,
        &[("x-toolrein-profile", "named"), ("x-toolrein-tier", "free"), ("x-other", "stays")],
    );
    let seen = upstream.request(0);
    assert_eq!(seen.body, talk.body().to_string().into_bytes());
    assert!(seen.headers.iter().all(|(name, _)| !name.starts_with("x-toolrein-")), "{:?}", seen.headers);
    assert_eq!(seen.header("x-other"), Some("stays"));
}

#[test]
fn an_unknown_profile_is_refused_as_not_retryable_with_a_list_of_known_ones() {
    in_both_forms(|form| {
        let upstream = model();
        let program = Toolrein::before(&upstream, PROFILES);
        let said = ask(&talk(form, "gpt-4o"), &program, &[("x-toolrein-profile", "nmaed")]);
        assert_eq!(said.response.status, 400);
        assert_eq!(said.response.header("x-should-retry"), Some("false"));
        let error = json!({
            "message": "There is no profile of that name. Known here: named, free, small.",
            "type": "toolrein_error", "param": null, "code": "unknown_profile",
        });
        let mut shown = said.response.json()["error"].clone();
        let id = shown.as_object_mut().unwrap().remove("request_id");
        assert_eq!(id.as_ref().and_then(|id| id.as_str()), said.response.header("x-toolrein-request-id"));
        assert_eq!(shown, error);
        assert_eq!(upstream.requests().len(), 0);
    });
}

#[test]
fn where_clients_may_not_choose_the_header_is_passed_over() {
    let upstream = model();
    let program = Toolrein::before(&upstream, &format!("conversation.profile_header = false\n{PROFILES}"));
    for name in ["named", "nothing"] {
        let headers = [("x-toolrein-profile", name), ("x-api-key", "sk-free")];
        let said = ask(&talk(Form::Whole, "gpt-4o"), &program, &headers);
        assert!(said.calls.iter().all(|(_, name, _)| name != "free"), "{:?}", said.calls);
        assert_eq!(upstream.requests().last().unwrap().header("x-toolrein-profile"), None);
    }
}

#[test]
fn while_observing_a_name_that_there_is_not_changes_nothing() {
    let upstream = model();
    let program = Toolrein::before(&upstream, &format!("mode = \"observe\"\n{PROFILES}"));
    let said = ask(&talk(Form::Whole, "gpt-4o-mini"), &program, &[("x-toolrein-profile", "nothing")]);
    assert_eq!((said.response.status, said.calls.len()), (200, TOOLS.len()));
    program.wait_for_metric("toolrein_profile_requests_total{profile=\"small\"}", 1.0);
}

#[test]
fn the_profile_is_logged_counted_and_shown_and_no_key_is() {
    let upstream = model();
    let program = Toolrein::before(&upstream, PROFILES);
    ask(&talk(Form::Whole, "gpt-4o"), &program, &[("x-api-key", "sk-free")]);
    ask(&talk(Form::Whole, "gpt-4o"), &program, &[]);
    program.wait_for_metric("toolrein_requests_total{endpoint=\"chat_completions\"}", 2.0);
    assert!((program.metric("toolrein_profile_requests_total") - 1.0).abs() < 1e-9);
    let shown: Value = get(&format!("{}/config", program.admin_url())).json();
    assert_eq!(shown["profile"]["free"]["policy"]["allow"]["except"], json!(["free"]));
    assert_eq!(shown["profile"]["free"]["tiers"], json!(["free"]));
    let logs = program.stop();
    let requests: Vec<Value> = logs.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let profiles: Vec<&Value> =
        requests.iter().filter(|line| line["message"] == "request").map(|line| &line["profile"]).collect();
    assert_eq!(profiles, [&json!("free"), &Value::Null]);
    assert!(logs.iter().all(|line| !line.contains("sk-free")), "{logs:#?}");
}

/// Sends the conversation with no key but those among these headers.
fn ask_with(talk: &Talk, program: &Toolrein, headers: &[(&str, &str)]) -> Said {
    let request = Request::new("POST", &program.chat_url(), talk.body().to_string());
    let request = request.header("content-type", "application/json");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(name, value));
    Said::read(request.send(), talk.form)
}

#[test]
fn guests_take_their_profile_and_so_do_callers_with_a_key_of_no_tier() {
    let profiles = r#"
[tier.guest]
# printf %s demo | sha256sum
keys = ["sha256:2a97516c354b68848cdbd8f54a226a0a55b21ed138e207ad6c5cbb9c00aa5aea"]
[tier.free]
keys = ["sha256:a97ffab5cd3331858e03076328705ababa22813218d8511eb09bbbce51d39ff8"]
[policy.allow]
except = ["base"]
[profile.named]
tiers = ["guest"]
policy.allow.except = ["named"]
[profile.small]
tiers = ["auth"]
policy.allow.except = ["small"]
"#;
    in_both_forms(|form| {
        let upstream = model();
        let program = Toolrein::before(&upstream, profiles);
        for (headers, denied) in [
            (&[][..], "named"),
            (&[("authorization", "Bearer ")], "named"),
            (&[("authorization", "Bearer demo")], "named"),
            (&[("x-api-key", "demo")], "named"),
            (&[("authorization", "Bearer sk-mine")], "small"),
            (&[("authorization", "Bearer sk-free")], "base"),
        ] {
            let said = ask_with(&talk(form, "gpt-4o"), &program, headers);
            said.assert_coherent(form);
            let released: Vec<&str> = said.calls.iter().map(|(_, name, _)| name.as_str()).collect();
            assert!(!released.contains(&denied) && released.len() == 3, "{headers:?} {released:?}");
        }
    });
}

#[test]
fn a_renewed_token_keeps_its_quota() {
    use base64::Engine as _;
    let encode = |text: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
    let token = |claims: &str| format!("Bearer {}.{}.c2ln", encode(r#"{"alg":"HS256"}"#), encode(claims));
    let settings = "conversation.caller = \"jwt\"\n[policy.quota.limits]\nall = { tools = [\"*\"], calls = 4, per = \"1h\" }\n";
    let upstream = Scripted::start(|_, request| {
        if request.json()["messages"].to_string().contains("RATE_LIMIT") {
            return text("No more.", request);
        }
        let calls: Vec<_> = TOOLS.iter().map(|tool| (*tool, *tool, "{}")).collect();
        Reply::speech(request, &Speech::calls(&calls))
    });
    let program = Toolrein::before(&upstream, settings);
    let ask = |claims: &str| {
        let mut talk = talk(Form::Whole, "gpt-4o");
        talk.messages[0]["content"] = json!(claims);
        ask_with(&talk, &program, &[("authorization", &token(claims))]).calls.len()
    };
    assert_eq!(ask(r#"{"iss":"i","sub":"ann","exp":1}"#), 4);
    assert_eq!(ask(r#"{"iss":"i","sub":"ann","exp":2}"#), 0, "renewed");
    assert_eq!(ask(r#"{"iss":"i","sub":"bob","exp":2}"#), 4);
}
