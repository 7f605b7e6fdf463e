//! `[caller.NAME]`: only known callers are served, under their names, and their keys are not sent to the upstream.

use crate::access::post;
use crate::support::client::Request;
use crate::support::program::{Toolrein, before};
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::Scripted;

/// printf %s KEY | sha256sum, of "key-of-ann", "second-key-of-ann" and "key-of-bob".
const CALLERS: &str = r#"
[caller.ann]
keys = [
    "sha256:ca64daa8b294dc4835d29ca02a6a47427ebc6a225ea3ac2e15f8417fb6601db2",
    "sha256:704a1dbf2f5d02b81ba8ca5fea40de8257b2af01c7d4507a5e1b4ddba70d59af",
]
[caller.bob]
keys = ["sha256:808a1d81b5de08d72083995df738947d519d230a20c236003268f0f4b65ee475"]
"#;
const OWN: &str = "sk-of-the-operator";

fn answering() -> Scripted {
    Scripted::start(|_, request| Reply::speech(request, &Speech::text("ok")))
}

fn start(upstream: &Scripted, settings: &str) -> Toolrein {
    let settings = format!("upstream.api_key_env = \"OWN_KEY\"\n{settings}{CALLERS}");
    Toolrein::before_in(upstream, &settings, &[("OWN_KEY", OWN)])
}

#[test]
fn a_request_without_a_callers_key_is_answered_with_401_on_every_route_and_in_every_mode() {
    let upstream = answering();
    for mode in ["enforce", "observe", "off"] {
        let toolrein = start(&upstream, &format!("mode = \"{mode}\"\n"));
        let base = toolrein.base_url();
        let wrong = [("authorization", "Bearer key-of-anne")];
        let upgrade = [("connection", "upgrade"), ("upgrade", "websocket")];
        for request in [
            post(&toolrein.chat_url(), &[]),
            post(&toolrein.chat_url(), &wrong),
            post(&toolrein.chat_url(), &[("authorization", "Bearer")]),
            post(&format!("{}?api-key=key-of-anne", toolrein.chat_url()), &[]),
            post(&format!("{base}/responses"), &wrong),
            post(&format!("{base}/embeddings"), &wrong),
            Request::new("GET", &format!("{base}/models"), ""),
            Request::new("GET", &format!("{base}/responses/resp_1"), ""),
            upgrade
                .iter()
                .fold(Request::new("GET", &format!("{base}/realtime"), ""), |request, (name, value)| {
                    request.header(name, value)
                }),
        ] {
            let said = request.send();
            let error = &said.json()["error"];
            assert_eq!(
                (said.status, &error["code"]),
                (401, &"unknown_caller".into()),
                "{mode}: {}",
                said.text()
            );
            assert!(error["type"] == "toolrein_error" && error["param"].is_null(), "{error}");
            assert!(!said.text().contains("anne"), "{}", said.text());
            assert_eq!(said.header("www-authenticate"), Some("Bearer"));
            assert_eq!(said.header("x-should-retry"), Some("false"));
        }
        toolrein.wait_for_metric("toolrein_requests_total{error=\"unknown_caller\"}", 9.0);
        assert!(upstream.requests().is_empty(), "{mode}");
    }
}

#[test]
fn a_callers_key_is_accepted_in_every_place_and_never_forwarded() {
    let upstream = answering();
    let toolrein = start(&upstream, "");
    let sent = [
        post(&toolrein.chat_url(), &[("authorization", "Bearer key-of-ann")]),
        post(&toolrein.chat_url(), &[("api-key", "key-of-bob")]),
        post(&format!("{}?api-key=key-of-bob", toolrein.chat_url()), &[]),
        Request::new("GET", &format!("{}/models", toolrein.base_url()), "").header("x-api-key", "key-of-ann"),
    ];
    for (nth, request) in sent.into_iter().enumerate() {
        assert_eq!(request.send().status, 200, "{nth}");
        let seen = upstream.request(nth);
        assert_eq!(seen.header("authorization"), Some(format!("Bearer {OWN}").as_str()));
        assert!(!format!("{:?}{}", seen.headers, seen.path).contains("key-of-"), "{seen:?}");
    }
    let log = toolrein.stop().join("\n");
    assert!(!log.contains("key-of-") && !log.contains(OWN), "{log}");
}

#[test]
fn a_caller_is_the_same_with_another_key_and_a_reload_takes_a_key_back() {
    let upstream = answering();
    let toolrein = start(&upstream, "log.format = \"json\"\nreload.watch = \"0s\"\n");
    for key in ["key-of-ann", "second-key-of-ann", "key-of-bob"] {
        let bearer = format!("Bearer {key}");
        assert_eq!(post(&toolrein.chat_url(), &[("authorization", &bearer)]).send().status, 200);
    }
    let settings = format!(
        "upstream.api_key_env = \"OWN_KEY\"\nlog.format = \"json\"\nreload.watch = \"0s\"\n{}",
        CALLERS.replace(
            "    \"sha256:ca64daa8b294dc4835d29ca02a6a47427ebc6a225ea3ac2e15f8417fb6601db2\",\n",
            ""
        )
    );
    assert!(toolrein.reload(&before(&upstream.base_url(), &settings)));
    let status = |key: &str| post(&toolrein.chat_url(), &[("api-key", key)]).send().status;
    assert_eq!((status("key-of-ann"), status("second-key-of-ann")), (401, 200));
    let log = toolrein.stop();
    let callers: Vec<&str> =
        log.iter().filter_map(|line| line.split_once("\"caller\":\"")).map(|(_, rest)| &rest[..32]).collect();
    assert_eq!(callers.len(), 4, "{log:?}");
    assert!(callers[0] == callers[1] && callers[0] == callers[3] && callers[0] != callers[2], "{callers:?}");
}
