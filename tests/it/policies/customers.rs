//! A budget for each customer, where a header or a member of the body names it: whom toolrein takes for the same one, whom
//! for another, and whom it refuses, in both dialects.

use crate::support::client::{Request, Response};
use crate::support::program::Toolrein;
use crate::support::responses::Output;
use crate::support::responses_kit::url as responses_url;
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::text;

/// One request a day for each caller.
const ONE_A_DAY: &str = "[policy.budget]\ntool_calls = 0\nday = { requests = 1 }\nexhausted = \"reject\"\n";

/// The endpoints, each with the members of a request for it.
const ENDPOINTS: [(bool, &str); 2] =
    [(false, r#""messages":[{"role":"user","content":"Hello"}]"#), (true, r#""input":"Hello""#)];

/// A model that answers both endpoints.
fn answering() -> Scripted {
    Scripted::start(|nth, request: &Recorded| match request.path.ends_with("responses") {
        true => Output::text(nth, "Hello.").reply(request),
        false => text("Hello.", request),
    })
}

fn before(upstream: &Scripted, caller: &str, more: &str) -> Toolrein {
    Toolrein::before(upstream, &format!("conversation.caller = \"{caller}\"\n{more}{ONE_A_DAY}"))
}

/// Sends a request to the endpoint with these further members, as they are written.
fn ask(program: &Toolrein, (is_responses, body): (bool, &str), stream: bool, members: &str) -> Response {
    let url = if is_responses { responses_url(program) } else { program.chat_url() };
    Request::post(&url, format!(r#"{{"model":"m","stream":{stream},{body}{members}}}"#)).send()
}

/// What became of a request: served, or the code of the refusal.
fn outcome(response: &Response) -> String {
    match response.status {
        200 => "served".to_owned(),
        _ => response.json()["error"]["code"]
            .as_str()
            .unwrap_or_else(|| panic!("{}", response.text()))
            .to_owned(),
    }
}

/// Asserts the outcome of each request in turn, at each endpoint, whole and streamed, with a program of its own.
fn assert_outcomes(caller: &str, more: &str, requests: &[(&str, &str)]) {
    let upstream = answering();
    for endpoint in ENDPOINTS {
        for stream in [false, true] {
            let program = before(&upstream, caller, more);
            for (nth, (members, expected)) in requests.iter().enumerate() {
                let response = ask(&program, endpoint, stream, members);
                assert_eq!(outcome(&response), *expected, "{caller} {endpoint:?} {stream} {nth}: {members}");
            }
        }
    }
}

const SERVED: &str = "served";
const OVER: &str = "budget_exceeded";
const REFUSED: &str = "ambiguous_credentials";

#[test]
fn a_member_of_the_body_gives_each_customer_a_budget_of_its_own() {
    for (caller, ann, bob) in [
        ("body:user", r#","user":"ann""#, r#","user":"bob""#),
        ("body:safety_identifier", r#","safety_identifier":"ann""#, r#","safety_identifier":"bob""#),
        (
            "body:metadata.customer",
            r#","metadata":{"a":"1","customer":"ann"}"#,
            r#","metadata":{"customer":"bob"}"#,
        ),
    ] {
        assert_outcomes(caller, "", &[(ann, SERVED), (bob, SERVED), (ann, OVER), (bob, OVER), (ann, OVER)]);
    }
}

#[test]
fn names_that_differ_anywhere_are_different_customers() {
    let long = "x".repeat(100_000);
    let (one, other) = (format!(r#","user":"{long}1""#), format!(r#","user":"{long}2""#));
    let different = [
        r#","user":"customer-1""#,
        r#","user":"customer-2""#,
        r#","user":"Customer-1""#,
        r#","user":"Anna Smith""#,
        r#","user":"Anna Jones""#,
        r#","user":"王伟""#,
        r#","user":"王芳""#,
        r#","user":"Jörg""#,
        r#","user":"Jorg""#,
        r#","user":"ann\u0000a""#,
        r#","user":"ann\u0000b""#,
        r#","user":"ann""#,
        r#","user":7"#,
        r#","user":7.0"#,
        &one,
        &other,
    ];
    let mut requests: Vec<(&str, &str)> = different.iter().map(|members| (*members, SERVED)).collect();
    requests.extend(different.iter().map(|members| (*members, OVER)));
    assert_outcomes("body:user", "", &requests);
}

#[test]
fn one_name_is_one_customer_however_it_is_spelled() {
    assert_outcomes(
        "body:user",
        "",
        &[
            (r#","user":"J\u00f6rg 🙂""#, SERVED),
            (r#","user":"Jörg 🙂""#, OVER),
            (r#","\u0075ser":"J\u00F6rg \ud83d\ude42""#, OVER),
            (r#","user":" \tJörg 🙂\n""#, OVER),
            (r#","user":42"#, SERVED),
            (r#","user":"42""#, OVER),
        ],
    );
}

#[test]
fn requests_that_name_nobody_share_one_budget() {
    assert_outcomes(
        "body:metadata.customer",
        "",
        &[
            ("", SERVED),
            (r#","metadata":null"#, OVER),
            (r#","metadata":{}"#, OVER),
            (r#","metadata":{"customer":null}"#, OVER),
            (r#","metadata":{"customer":""}"#, OVER),
            (r#","metadata":{"customer":"  "}"#, OVER),
            (r#","customer":"ann""#, OVER),
            (r#","metadata":{"inner":{"customer":"ann"}}"#, OVER),
            (r#","metadata":{"Customer":"ann"}"#, OVER),
            (r#","metadata":{"customer":"ann"}"#, SERVED),
        ],
    );
}

#[test]
fn a_member_that_could_name_two_people_or_no_person_is_refused() {
    for (caller, members) in [
        ("body:user", r#","user":"ann","user":"bob""#),
        ("body:user", r#","user":"ann","\u0075ser":"ann""#),
        ("body:user", r#","user":null,"user":"ann""#),
        ("body:user", r#","user":{"id":"ann"}"#),
        ("body:user", r#","user":["ann"]"#),
        ("body:user", r#","user":true"#),
        ("body:user", r#","user":"ann\ud83d""#),
        ("body:metadata.customer", r#","metadata":{"customer":"ann"},"metadata":{"customer":"bob"}"#),
        ("body:metadata.customer", r#","metadata":{"customer":"ann","customer":"bob"}"#),
        ("body:metadata.customer", r#","metadata":"customer=ann""#),
        ("body:metadata.customer", r#","metadata":[{"customer":"ann"}]"#),
    ] {
        assert_outcomes(caller, "", &[(members, REFUSED), (members, REFUSED)]);
    }
    let upstream = answering();
    let program = before(&upstream, "body:user", "");
    let refused = ask(&program, ENDPOINTS[0], false, r#","user":"ann","user":"bob""#);
    let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("body:user") && message.contains("more than once"), "{message}");
    assert!(upstream.requests().is_empty(), "a refused request is not sent");
}

#[test]
fn while_observing_no_name_is_refused_and_the_request_stays_as_it_is() {
    let upstream = answering();
    let program = before(&upstream, "body:user", "mode = \"observe\"\n");
    let members =
        [r#","user":"ann","user":"bob""#, r#","user":{"id":1}"#, r#","user":"ann""#, r#","user":"ann""#];
    for (nth, members) in members.into_iter().enumerate() {
        let endpoint = ENDPOINTS[nth % 2];
        assert_eq!(outcome(&ask(&program, endpoint, false, members)), SERVED, "{members}");
        let sent = String::from_utf8(upstream.request(nth).body.clone()).unwrap();
        assert!(sent.ends_with(&format!("{}{members}}}", endpoint.1)), "{sent}");
    }
}

#[test]
fn only_the_member_counts_whoever_has_the_key_and_the_upstream_gets_it_as_it_came() {
    let upstream = answering();
    let program = before(&upstream, "body:user", "");
    let ask = |key: &str, members: &str| {
        let body = format!(r#"{{"model":"m",{}{members}}}"#, ENDPOINTS[0].1);
        let request =
            Request::new("POST", &program.chat_url(), body).header("content-type", "application/json");
        outcome(&request.header("authorization", key).header("x-api-key", "sk-of-a-gateway").send())
    };
    assert_eq!(
        ask("Bearer sk-one", r#","user":"J\u00f6rg""#),
        SERVED,
        "two keys are no trouble where neither counts"
    );
    assert_eq!(ask("Bearer sk-two", r#","user":"Jörg""#), OVER);
    assert_eq!(ask("Bearer sk-one", r#","user":"ann""#), SERVED);
    let sent = String::from_utf8(upstream.request(0).body).unwrap();
    assert!(sent.ends_with(r#","user":"J\u00f6rg"}"#), "{sent}");
}
