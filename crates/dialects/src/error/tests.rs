//! Errors in every shape that upstreams send them in, and healthy replies that are none.

use crate::chat::completion::Reply;
use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use wire::sse::{Piece, Splitter, parse_fields};

const ERRORS: &str = include_str!("../../../../tests/data/refusals/error_in_200.jsonl");
const HEALTHY: &str = include_str!("../../../../tests/data/refusals/healthy_200.jsonl");

/// A line of the two files.
#[derive(Deserialize)]
struct Case {
    origin: String,
    kind: String,
    /// Part of what the error says.
    #[serde(default)]
    says: String,
    body: String,
}

impl Case {
    /// The first error in the reply, read as the proxy reads it.
    fn error(&self) -> Option<UpstreamError> {
        match self.kind.as_str() {
            "json" => parse_in_200(self.body.as_bytes()),
            _ => events(&self.body).iter().find_map(|event| {
                let fields = parse_fields(event);
                let name = fields.name.map(|name| String::from_utf8_lossy(name).into_owned());
                parse_event(name.as_deref(), fields.field, &fields.data)
            }),
        }
    }
}

fn events(body: &str) -> Vec<Bytes> {
    let mut splitter = Splitter::new(1 << 20);
    let mut events = Vec::new();
    let mut keep = |piece| match piece {
        Piece::Event(event) => events.push(event),
        Piece::Oversized(_) => panic!("an event of a MiB"),
    };
    splitter.push(Bytes::copy_from_slice(body.as_bytes()), &mut keep);
    splitter.finish().into_iter().for_each(&mut keep);
    events
}

fn cases(lines: &str) -> impl Iterator<Item = Case> {
    lines.lines().map(|line| serde_json::from_str(line).expect("a case"))
}

fn messages(body: &str) -> Vec<String> {
    parse(body.as_bytes()).unwrap_or_default().messages
}

#[test]
fn an_error_inside_a_200_is_found_with_its_words() {
    for case in cases(ERRORS) {
        let error = case.error().unwrap_or_else(|| panic!("{}: {}", case.origin, case.body));
        assert!(
            error.messages.iter().any(|message| message.contains(&case.says)),
            "{}: {error:?}",
            case.origin
        );
    }
}

#[test]
fn a_healthy_reply_is_no_error() {
    for case in cases(HEALTHY) {
        assert_eq!(case.error(), None, "{}", case.origin);
    }
}

#[test]
fn the_members_of_a_reply_show_whether_it_may_hold_an_error() {
    for (body, expected) in [
        (r#"{"object":"chat.completion","choices":[{"error":{"code":"error"}}],"usage":null}"#, false),
        (r#"{"choices":[{"message":{"content":"\"error\""}}]}"#, false),
        (r#"{"choices":[],"error":null}"#, true),
        (r#"{"err\u006fr":"x"}"#, true),
        (r#"{"object":"error","message":"x"}"#, true),
        (r#"{"type":"response.failed"}"#, true),
        (r#"{"base_resp":{"status_code":0}}"#, true),
    ] {
        let reply = Reply::parse(body.as_bytes()).expect("a reply");
        assert_eq!(may_be_in_200(&reply.members, body.as_bytes()), expected, "{body}");
    }
}

#[test]
fn an_error_event_without_a_message_is_still_an_error() {
    for (name, field, data) in
        [(Some("error"), "data", ""), (None, "error", "{}"), (None, "data", r#"{"error":true}"#)]
    {
        assert_eq!(parse_event(name, field, data.as_bytes()), Some(UpstreamError::default()), "{data}");
    }
}

#[test]
fn the_messages_are_found_in_every_shape_of_an_error_body() {
    for (body, says) in [
        (r#"{"error":{"message":"a","type":"t","param":null,"code":null}}"#, vec!["a"]),
        (r#"{"object":"error","message":"a","code":400}"#, vec!["a"]),
        (r#"{"error":"a"}"#, vec!["a"]),
        (r#"{"detail":"a"}"#, vec!["a"]),
        (r#"{"code":20037,"message":"a","data":null}"#, vec!["a"]),
        (r#"[{"error":{"message":"a"}}]"#, vec!["a"]),
        (r#""a""#, vec!["a"]),
        ("a\n", vec!["a"]),
        (r#"{"status":404,"title":"Not Found","detail":"a"}"#, vec!["a"]),
        (r#"{"title":"Not Found"}"#, vec!["Not Found"]),
        (
            r#"{"error":{"message":"Provider returned error","metadata":{"raw":"{\"error\":{\"message\":\"a\"}}"}}}"#,
            vec!["Provider returned error", "a"],
        ),
        (
            r#"{"detail":[{"loc":["body","tools",0,"x"],"msg":"a"},{"loc":["body","tools"],"msg":"b"}]}"#,
            vec!["body.tools.0.x: a", "body.tools: b"],
        ),
        ("data: {\"error\":{\"message\":\"a\"}}\n\ndata: [DONE]\n", vec!["a"]),
        ("error: something broke", vec!["error: something broke"]),
    ] {
        assert_eq!(messages(body), says, "{body}");
    }
    assert_eq!(parse(b" \r\n"), None);
    assert_eq!(parse(b"null"), None);
}

#[test]
fn code_parameter_and_status_are_the_outermost() {
    let body = r#"{"error":{"message":"a","code":"unsupported_value","param":"tools","status":"X",
        "metadata":{"raw":"{\"message\":\"b\",\"code\":422,\"param\":\"n\"}"}}}"#;
    let error = parse(body.as_bytes()).expect("an error");
    assert_eq!(
        (error.code.as_deref(), error.param.as_deref(), error.status),
        (Some("unsupported_value"), Some("tools"), Some(422))
    );
}

#[test]
fn our_own_error_is_read_like_any_other() {
    let body = own_error_body("say \"please\"", "strict");
    assert!(body.contains(r#""type":"toolrein_error","param":null"#));
    let error = parse(body.as_bytes()).expect("an error");
    assert_eq!((error.messages, error.code.as_deref()), (vec!["say \"please\"".to_owned()], Some("strict")));
}

/// A member of a reply that may report an error, and its possible values.
const KEY: &str = r"error|err\\u006fr|object|type|\\u0074ype|base_resp|choices|id";
const VALUE: &str = r#"null|"error"|"err\\u006fr"|"response\.failed"|\{"message":"error"\}|\{"status_code":[01]\}|\[\]|"chat\.completion""#;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_error_in_a_reply_is_missed_by_the_check_of_its_members(
        members in prop::collection::vec((KEY, VALUE), 0..4),
        space in "|\n |\u{feff}",
    ) {
        let members: Vec<String> =
            members.iter().map(|(key, value)| format!("{space}\"{key}\":{space}{value}")).collect();
        let body = format!("{space}{{{}}}", members.join(","));
        if let Ok(reply) = Reply::parse(body.as_bytes()) && parse_in_200(body.as_bytes()).is_some() {
            prop_assert!(may_be_in_200(&reply.members, body.as_bytes()), "{}", body);
        }
    }

    #[test]
    fn any_body_is_read_within_the_bounds(body in any::<Vec<u8>>(), depth in 0_usize..3_000, field in "data|error|x") {
        let deep = [&b"{\"error\":[".repeat(depth)[..], &body].concat();
        for body in [&body, &deep] {
            let _ = (parse_in_200(body), parse_event(None, &field, body));
            let error = parse(body).unwrap_or_default();
            prop_assert!(error.messages.len() <= MAX_MESSAGES);
            prop_assert!(error.messages.iter().all(|message| message.len() <= MAX_MESSAGE_BYTES));
        }
    }
}
