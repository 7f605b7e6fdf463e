//! The parser of chat-completions requests to spans: one pass over the body, nothing copied, resuming from a checkpoint
//! if its prefix was parsed before. Finds the members that matter; decides nothing.

use super::message::parse_message;
use crate::request_body;
use model::checkpoint::{Checkpoint, Head, List};
use model::request::{Choice, Request, Tool};
use std::sync::Arc;
use wire::body::{Fault, Kind, Scanner, Span, Str};
use wire::json::{decode, decode_bytes, in_one_case};
use wire::members::{Member, SeenMembers, string_or_skip, whole_number_or_skip};

/// Reads a request body.
///
/// # Errors
/// A [`Fault`] if toolrein cannot read the body as a chat-completions request; it is then left to the
/// upstream.
pub fn parse(body: &[u8]) -> Result<Request, Fault> {
    read(body, None)
}

/// As [`parse`]. What is before the messages goes into `head`, where there is one.
pub(super) fn read(body: &[u8], head: Option<&mut Option<Head>>) -> Result<Request, Fault> {
    let mut scanner = request_body::begin(body)?;
    let start = scanner.at();
    let mut request = Request { choices: 1, ..Request::default() };
    request.messages.reserve(body.len() / BYTES_A_MESSAGE + 4);
    request.span = Span::new(start, start);
    scanner.object()?;
    rest(&mut request, &mut scanner, &mut SeenMembers::default(), head)?;
    Ok(request)
}

/// Reads the remaining members. What is before the messages goes into `head`, where there is one.
pub(super) fn rest(
    request: &mut Request,
    scanner: &mut Scanner<'_>,
    seen: &mut SeenMembers,
    mut head: Option<&mut Option<Head>>,
) -> Result<(), Fault> {
    while let Some(key) = scanner.member()? {
        if let Some(head) = &mut head
            && head.is_none()
            && request.messages.is_empty()
            && key.raw(scanner.text()) == b"messages"
        {
            scanner.peek()?;
            let mut seen = *seen;
            seen.once(MESSAGES)?;
            let list = List { key, start: scanner.at() };
            let before = Request { has_odd_text: scanner.odd(), ..request.clone() };
            **head = Some(Head { request: before, seen, list });
        }
        let value = parse_member(request, key, scanner, seen)?;
        request.members.push(Member { key, value });
    }
    request.span = Span::new(request.span.range().start, scanner.at());
    scanner.end()?;
    request.settle_oddness(scanner.odd());
    let text = scanner.text();
    let has = |name| request.value(text, name).is_some();
    request.takes_more_tools = has("tools") && !has("functions");
    if request.choice == Choice::Forced {
        let choice = request.value(text, "tool_choice");
        request.forced_tool = choice.and_then(|choice| named_in(choice.of(text)));
    }
    if request.messages_span.is_empty() { Err(Fault::NoMessages) } else { Ok(()) }
}

fn parse_member(
    request: &mut Request,
    key: Str,
    scanner: &mut Scanner<'_>,
    seen: &mut SeenMembers,
) -> Result<Span, Fault> {
    let kind = scanner.peek()?;
    let start = scanner.at();
    let name = decode_bytes(key, scanner.text());
    if let Some(deciding) = deciding(&name) {
        seen.once(deciding)?;
    }
    match &*name {
        b"model" => request.model = string_or_skip(scanner)?,
        b"messages" => parse_messages(request, scanner)?,
        b"tools" | b"functions" => parse_tools(request, scanner)?,
        b"tool_choice" | b"function_call" => request.choice = request.choice.stronger(parse_choice(scanner)?),
        b"stream" => {
            request.stream = kind == Kind::True;
            scanner.skip_kind(kind)?;
        }
        b"n" => {
            request.choices = whole_number_or_skip(scanner)?.and_then(|n| n.try_into().ok()).unwrap_or(1);
        }
        b"stream_options" => {
            let span = scanner.skip()?;
            request.include_usage = is_member_true(scanner.text(), span, b"include_usage")?;
        }
        b"max_tokens" | b"max_completion_tokens" => {
            request.output_limit = whole_number_or_skip(scanner)?.or(request.output_limit);
        }
        b"response_format" => request.structured = parse_structured(scanner)?,
        _ => {
            scanner.skip_kind(kind)?;
        }
    }
    Ok(Span::new(start, scanner.at()))
}

fn parse_messages(request: &mut Request, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
    if scanner.peek()? != Kind::Array {
        return Err(Fault::Type);
    }
    let start = scanner.at();
    scanner.array()?;
    rest_of_messages(request, scanner, start).map(drop)
}

/// Reads the remaining messages of the list that starts at `start`.
pub(super) fn rest_of_messages(
    request: &mut Request,
    scanner: &mut Scanner<'_>,
    start: usize,
) -> Result<Span, Fault> {
    while scanner.element()? {
        request.messages.push(parse_message(scanner)?);
        if request.messages.len() > MOST_MESSAGES {
            return Err(Fault::Crowded);
        }
    }
    request.messages_span = Span::new(start, scanner.at());
    Ok(request.messages_span)
}

fn parse_tools(request: &mut Request, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
    if scanner.peek()? != Kind::Array {
        scanner.skip()?;
        return Ok(());
    }
    request.declares_tools = true;
    let start = scanner.at();
    if !request.take_known_tools(scanner) {
        scanner.array()?;
        while scanner.element()? {
            let tool = parse_tool(scanner)?;
            request.tools.push(tool);
            request_body::check_tools(request)?;
        }
    }
    request.tool_list = Some(Span::new(start, scanner.at()));
    request_body::check_tools(request)
}

/// As [`parse`], for a body whose first [`Checkpoint::bytes`] are those that `known` was read from. A
/// checkpoint of as many first bytes as `keep` wants of the request is then in [`Request::checkpoint`].
///
/// # Errors
/// See [`parse`].
pub fn resume(
    body: &[u8],
    known: Option<&Arc<Checkpoint>>,
    keep: impl FnOnce(&Request) -> usize,
) -> Result<Request, Fault> {
    let (mut request, head) = match known {
        Some(known) => go_on(body, known)?,
        None => {
            let mut head = None;
            (read(body, Some(&mut head))?, head)
        }
    };
    let bytes = keep(&request);
    Checkpoint::renew(&mut request, head, bytes);
    Ok(request)
}

fn go_on(body: &[u8], known: &Arc<Checkpoint>) -> Result<(Request, Option<Head>), Fault> {
    let (mut scanner, mut request, head) = request_body::resume(body, known)?;
    let mut seen = head.seen;
    let value = rest_of_messages(&mut request, &mut scanner, head.list.start)?;
    request.members.push(Member { key: head.list.key, value });
    rest(&mut request, &mut scanner, &mut seen, None)?;
    Ok((request, Some(head)))
}

/// Most messages that are read: a body of nothing but `{},` takes a hundred times its bytes in memory. The longest recorded
/// conversation has 300 messages.
const MOST_MESSAGES: usize = 64 * 1024;

/// Most conversations have fewer messages than that, so that their list grows once at most.
const BYTES_A_MESSAGE: usize = 1024;

/// See [`deciding`].
const MESSAGES: u32 = 1;

/// The number of a decisive member, whose second occurrence would change what is governed. Go's `encoding/json` accepts
/// a name in any case of letters, and the last one counts.
fn deciding(name: &[u8]) -> Option<u32> {
    Some(match &*in_one_case(name) {
        b"model" => 0,
        b"messages" => MESSAGES,
        b"tools" => 2,
        b"functions" => 3,
        b"tool_choice" => 4,
        b"function_call" => 5,
        b"stream" => 6,
        b"n" => 7,
        b"stream_options" => 8,
        b"parallel_tool_calls" => 9,
        _ => return None,
    })
}

fn parse_tool(scanner: &mut Scanner<'_>) -> Result<Tool, Fault> {
    let mut tool = Tool::default();
    if scanner.peek()? != Kind::Object {
        tool.span = scanner.skip()?;
        return Ok(tool);
    }
    let start = scanner.at();
    parse_tool_members(scanner, &mut tool, true)?;
    tool.span = Span::new(start, scanner.at());
    Ok(tool)
}

/// Reads the members of a tool, or of its `function`: some clients write a name in both.
fn parse_tool_members(scanner: &mut Scanner<'_>, tool: &mut Tool, outer: bool) -> Result<(), Fault> {
    scanner.object()?;
    while let Some(key) = scanner.member()? {
        match &*decode_bytes(key, scanner.text()) {
            b"function" | b"custom" if outer && scanner.peek()? == Kind::Object => {
                parse_tool_members(scanner, tool, false)?;
            }
            b"name" => tool.name = string_or_skip(scanner)?.or(tool.name),
            b"description" => tool.description = string_or_skip(scanner)?.or(tool.description),
            b"parameters" => tool.parameters = Some(scanner.skip()?),
            _ => {
                scanner.skip()?;
            }
        }
    }
    Ok(())
}

fn parse_choice(scanner: &mut Scanner<'_>) -> Result<Choice, Fault> {
    match scanner.peek()? {
        Kind::String => {
            let word = scanner.string()?;
            Ok(match &*decode(word, scanner.text()) {
                "none" => Choice::None,
                // "any" is Mistral's word for it.
                "required" | "any" => Choice::Forced,
                _ => Choice::Auto,
            })
        }
        Kind::Object => {
            let span = scanner.skip()?;
            parse_choice_object(Scanner::within(scanner.text(), span))
        }
        _ => scanner.skip().map(|_| Choice::Auto),
    }
}

/// A named function forces a call; `allowed_tools` does where its mode says `required`.
fn parse_choice_object(mut scanner: Scanner<'_>) -> Result<Choice, Fault> {
    let mut allowed = false;
    scanner.object()?;
    while let Some(key) = scanner.member()? {
        let name = key.raw(scanner.text());
        if name == b"allowed_tools" || name == b"mode" {
            allowed = true;
        }
        let span = scanner.skip()?;
        if allowed && memchr::memmem::find(span.of(scanner.text()), b"\"required\"").is_some() {
            return Ok(Choice::Forced);
        }
        if name == b"type" && span.of(scanner.text()) == b"\"allowed_tools\"" {
            allowed = true;
        }
    }
    Ok(if allowed { Choice::Auto } else { Choice::Forced })
}

/// The name of the tool that a `tool_choice` names.
fn named_in(choice: &[u8]) -> Option<String> {
    let choice: serde_json::Value = serde_json::from_slice(choice).ok()?;
    let of = |kind: &str| choice.get(kind)?.get("name")?.as_str().map(str::to_owned);
    of("function").or_else(|| of("custom"))
}

fn parse_structured(scanner: &mut Scanner<'_>) -> Result<bool, Fault> {
    let span = scanner.skip()?;
    let text = span.of(scanner.text());
    Ok(memchr::memmem::find(text, b"json_schema").is_some()
        || memchr::memmem::find(text, b"json_object").is_some())
}

/// Whether the object at `span` has the member `name` with the value true.
fn is_member_true(text: &[u8], span: Span, name: &[u8]) -> Result<bool, Fault> {
    let mut scanner = Scanner::within(text, span);
    if scanner.peek()? != Kind::Object {
        return Ok(false);
    }
    scanner.object()?;
    while let Some(key) = scanner.member()? {
        let value = scanner.skip()?;
        if key.raw(text) == name {
            return Ok(value.of(text) == b"true");
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::call::Arguments;
    use model::message::{Content, Role};

    fn read_str(body: &str) -> Request {
        parse(body.as_bytes()).unwrap()
    }

    #[test]
    fn every_shape_of_content_is_read() {
        let body = r#"{"messages":[
            {"role":"system","content":"s"}, {"role":"developer"}, {"role":"user","content":null},
            {"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"x"}},"?",
                {"type":"input_text","text":"b"},{"type":"output_text","text":"c"},{"type":"audio","text":"no"},7]},
            {"role":"tool","tool_call_id":"c","content":7}, {"role":"robot","content":""}]}"#;
        let request = read_str(body);
        let roles: Vec<Role> = request.messages.iter().map(|message| message.role).collect();
        assert_eq!(roles, [Role::System, Role::System, Role::User, Role::User, Role::Tool, Role::Other]);
        let texts = request.messages[3].content.texts().map(|text| text.raw(body.as_bytes()));
        assert_eq!(
            texts.collect::<Vec<_>>(),
            [&b"a"[..], b"?", b"b", b"c"],
            "also as lenient servers take them"
        );
        assert!(matches!(request.messages[4].content, Content::Other(_)));
        assert!(!request.messages[5].content.has_text());
    }

    #[test]
    fn calls_are_read_in_every_known_form() {
        let body = r#"{"messages":[{"role":"assistant","tool_calls":[
            {"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},
            {"function":{"name":"g","arguments":{"x":1}},"index":3},
            {"id":"c","type":"custom","custom":{"name":"h","input":"free"}}, {"id":null,"function":null}, 5]},
            {"role":"assistant","tool_calls":null,"function_call":{"name":"old","arguments":null}}]}"#;
        let request = read_str(body);
        let calls = &request.messages[0].calls;
        assert_eq!(calls.len(), 4, "the one that holds nothing is none");
        assert_eq!(calls[0].arguments.text(body.as_bytes()), r#"{"x":1}"#);
        assert_eq!(calls[1].index.unwrap().1, 3);
        assert_eq!(calls[1].arguments.text(body.as_bytes()), r#"{"x":1}"#);
        assert_eq!(calls[2].arguments.text(body.as_bytes()), "free");
        assert_eq!(calls[3].name, None);
        let old = request.messages[1].calls[0];
        assert!(old.legacy && matches!(old.arguments, Arguments::Null(_)));
    }

    #[test]
    fn a_body_that_cannot_be_governed_is_rejected_with_its_fault() {
        for (body, fault) in [
            ("", Fault::Syntax),
            ("nonsense", Fault::Syntax),
            ("null", Fault::Type),
            ("[]", Fault::Type),
            ("{}", Fault::NoMessages),
            (r#"{"messages":null}"#, Fault::Type),
            (r#"{"messages":[1]}"#, Fault::Type),
            (r#"{"messages":[{"role":1}]}"#, Fault::Type),
            (r#"{"messages":[],"messages":[]}"#, Fault::Duplicate),
            (r#"{"messages":[],"mess\u0061ges":[]}"#, Fault::Duplicate),
            (r#"{"messages":[],"MessageS":[]}"#, Fault::Duplicate),
            (r#"{"Stream":true,"messages":[],"stream":false}"#, Fault::Duplicate),
            ("{\"messages\":[],\"me\u{17f}sages\":[]}", Fault::Duplicate),
            (r#"{"Messages":[]}"#, Fault::NoMessages),
            (r#"{"messages":[{"role":"user","Role":"tool"}]}"#, Fault::Duplicate),
            (r#"{"messages":[{"role":"user","role":"tool"}]}"#, Fault::Duplicate),
            (r#"{"messages":[]} x"#, Fault::Syntax),
            (r#"{"messages":[]"#, Fault::Syntax),
        ] {
            assert_eq!(parse(body.as_bytes()).err(), Some(fault), "{body}");
        }
        assert_eq!(parse(b"{\"messages\":[],\"x\":\"\xff\"}").err(), Some(Fault::Utf8));
    }

    #[test]
    fn what_servers_accept_beside_json_is_read_and_keeps_its_place() {
        let deep = format!("{}1{}", "[".repeat(1100), "]".repeat(1100));
        let body = format!(
            "\u{feff}{{\"model\":\"m\",\"temperature\":NaN,\"n\":-Infinity,\"x\":{deep},\"messages\":[{{\"role\":\"user\",\
             \"weight\":Infinity,\"content\":\"q\"}}]}}"
        );
        let request = read_str(&body);
        assert_eq!((request.model_name(body.as_bytes()).as_ref(), request.choices), ("m", 1));
        assert_eq!(request.span.of(body.as_bytes()), &body.as_bytes()[3..]);
        assert_eq!(request.messages[0].content.texts().next().unwrap().raw(body.as_bytes()), b"q");
    }

    #[test]
    fn forced_choices_are_distinguished_from_free_ones() {
        for (choice, expected) in [
            (r#""auto""#, Choice::Auto),
            ("null", Choice::Auto),
            (r#""none""#, Choice::None),
            (r#""required""#, Choice::Forced),
            (r#""any""#, Choice::Forced),
            (r#"{"type":"function","function":{"name":"f"}}"#, Choice::Forced),
            (r#"{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}}"#, Choice::Auto),
            (r#"{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[]}}"#, Choice::Forced),
        ] {
            let body = format!(r#"{{"messages":[],"tool_choice":{choice}}}"#);
            assert_eq!(read_str(&body).choice, expected, "{choice}");
        }
    }

    #[test]
    fn declared_tools_are_found_in_both_spellings() {
        let body = r#"{"messages":[],"tools":[{"type":"function","function":{"name":"a","parameters":{"name":"x"}}},
            {"function":{"name":"b"}},{"type":"openrouter:web_search"}],"functions":[{"name":"c","parameters":{}}]}"#;
        let request = read_str(body);
        let names: Vec<_> =
            request.tools.iter().map(|tool| tool.name.map(|name| decode(name, body.as_bytes()))).collect();
        assert_eq!(names, [Some("a".into()), Some("b".into()), None, Some("c".into())]);
    }

    #[test]
    fn member_names_are_recognised_despite_escapes() {
        let body = r#"{"messages":[{"r\u006fle":"assistant","tool_c\u0061lls":[
            {"\u0069d":"a","functi\u006fn":{"n\u0061me":"f","\u0061rguments":"{}"}}]},
            {"role":"tool","content":[{"typ\u0065":"te\u0078t","t\u0065xt":"r"}]}],
            "tools":[{"functi\u006fn":{"n\u0061me":"f"}}]}"#;
        let (request, bytes) = (read_str(body), body.as_bytes());
        let call = request.messages[0].calls[0];
        assert_eq!(
            (decode(call.id.unwrap(), bytes), decode(call.name.unwrap(), bytes)),
            ("a".into(), "f".into())
        );
        assert_eq!(call.arguments.text(bytes), "{}");
        assert_eq!(request.messages[1].content.texts().count(), 1);
        assert!(request.tools[0].name.is_some());
    }

    #[test]
    fn an_odd_string_marks_the_request_and_only_its_own_message() {
        let request =
            read_str(r#"{"messages":[{"role":"user","content":"\ud800"},{"role":"user","content":"x"}]}"#);
        assert!(request.has_odd_text && !request.odd);
        assert!(request.messages[0].odd && !request.messages[1].odd);
    }
}

#[cfg(test)]
mod resuming {
    use super::*;
    use std::sync::atomic::Ordering;

    fn plain(request: &Request) -> String {
        format!("{:?}", Request { checkpoint: None, known_tools: None, ..request.clone() })
    }

    #[test]
    fn resuming_the_parser_at_any_checkpoint_gives_the_same_request() {
        let body = r#" {"model":"m\u0000","stream":true, "messages" : [ {"role":"user","content":"q\n"} ,
            {"role":"assistant","content":null,"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]},
            {"role":"tool","tool_call_id":"a","content":"half \ud800"},{"role":"user","content":[{"type":"text","text":"é"}]}
            ], "tools":[{"function":{"name":"f"}}],"n":2, "x":"\u0000"} "#
            .as_bytes();
        let whole = parse(body).unwrap();
        for keep in 0..=body.len() {
            let first = resume(body, None, |_| keep).unwrap();
            assert_eq!(plain(&first), plain(&whole));
            let Some(known) = first.checkpoint else { continue };
            assert!(known.bytes() <= keep && known.bytes() > 0);
            let again = resume(body, Some(&known), |_| body.len()).unwrap();
            assert_eq!(plain(&again), plain(&whole), "{keep}");
            assert_eq!(again.checkpoint.unwrap().notes.len(), 4);
        }
    }

    #[test]
    fn a_resumed_parser_finds_faults_after_the_checkpoint() {
        let body = |rest: &str| format!(r#"{{"model":"m","messages":[{{"role":"user"}}{rest}"#).into_bytes();
        let good = body("]}");
        let known = resume(&good, None, |_| good.len()).unwrap().checkpoint.unwrap();
        for (rest, fault) in [
            (r#"],"model":"other"}"#, Fault::Duplicate),
            (r#"],"messages":[]}"#, Fault::Duplicate),
            (r#",1]}"#, Fault::Type),
            (r#",]}"#, Fault::Syntax),
            (r#"]}}"#, Fault::Syntax),
            (r#"}}"#, Fault::Syntax),
        ] {
            let body = body(rest);
            assert_eq!(resume(&body, Some(&known), |_| 0).unwrap_err(), fault, "{rest}");
            assert_eq!(parse(&body).unwrap_err(), fault, "{rest}");
        }
        let mut broken = good;
        broken.extend_from_slice(b"\xff");
        assert_eq!(resume(&broken, Some(&known), |_| 0).unwrap_err(), Fault::Utf8);
    }

    #[test]
    fn a_checkpoint_keeps_the_notes_of_messages_that_are_unchanged() {
        let body = br#"{"messages":[{"role":"user"},{"role":"user"}]}"#;
        let known = resume(body, None, |_| 30).unwrap().checkpoint.unwrap();
        assert_eq!(known.notes.len(), 1);
        known.notes[0].counted.store(7, Ordering::Relaxed);
        let more = resume(body, Some(&known), |_| body.len()).unwrap().checkpoint.unwrap();
        let counted: Vec<u64> = more.notes.iter().map(|note| note.counted.load(Ordering::Relaxed)).collect();
        assert_eq!(counted, [7, 0]);
    }

    #[test]
    fn the_weight_of_a_checkpoint_includes_every_unbounded_list() {
        let many = |item: &str| vec![item; 1000].join(",");
        let weight = |head: &str, message: &str| {
            let body = format!(r#"{{{head}"messages":[{{"role":"user"{message}}}]}}"#);
            resume(body.as_bytes(), None, |_| body.len()).unwrap().checkpoint.unwrap().weight()
        };
        let plain = weight("", "");
        for (head, message) in [
            (format!("{},", many("\"x\":1")), String::new()),
            (format!("\"tools\":[{}],", many("1")), String::new()),
            (String::new(), format!(",\"content\":[{}]", many("1"))),
            (String::new(), format!(",\"tool_calls\":[{}]", many("1"))),
        ] {
            assert!(weight(&head, &message) > plain + 16_000, "{head}{message}");
        }
    }
}
