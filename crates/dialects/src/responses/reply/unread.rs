//! Whether an event holds a call: in its members, or where its reader does not look and some client may all the same. Such
//! calls cannot be judged in their place.

use super::event::Event;
use crate::responses::item::{Item, parse_item};
use crate::stray::CallSigns;
use memchr::memmem::find;
use serde_json::{Map, Value};
use std::collections::HashMap;
use wire::body::Scanner;
use wire::json::{decode_bytes, is_same_name};
use wire::members::{Member, members_of};
use wire::sse::lines;

/// The signs of calls of the Responses API.
pub(super) const CALLS: CallSigns =
    CallSigns { words: &["_call\"", "mcp_approval_request\"", "call_id\""], is_call };

/// Whether a client may read a call from the event.
pub fn may_hold_calls(event: &Event, data: &[u8]) -> bool {
    let of_item = event.item.as_ref().is_some_and(Item::may_be_call);
    // The response repeats the request too, which may say anything.
    let is_output = |member: &Member| is_same_name(&decode_bytes(member.key, data), b"output");
    let may_call = |members: &[Member]| {
        members.iter().filter(|member| is_output(member)).any(|output| {
            let text = output.value.of(data);
            let mark = |word: &[u8]| find(text, word).is_some();
            mark(b"_call\"")
                || mark(b"call_id\"")
                || mark(b"arguments\"")
                || mark(b"mcp_approval_request")
                || mark(b"\\u")
        })
    };
    let in_response = match (&event.members, event.response) {
        (Some(members), _) => may_call(&members.all),
        (None, Some(response)) => may_call(&members_of(data, response)),
        (None, None) => false,
    };
    event.ambiguous || of_item || in_response || event.is_of_call(data)
}

/// Whether an event holds a call outside of its `item` and its `response`. `raw`: its lines; `data`: what its data lines say
/// together; `event`: what was read of that.
pub fn holds_stray_call(raw: &[u8], event: &Event, data: &[u8]) -> bool {
    has_call_in_other_lines(raw) || has_unread_call(event, data)
}

/// Whether a line that is no data holds a call: a body without any framing, or another field.
pub fn has_call_in_other_lines(raw: &[u8]) -> bool {
    CALLS.are_in_lines(lines(raw).filter(|line| !line.starts_with(b"data:")))
}

fn has_unread_call(event: &Event, data: &[u8]) -> bool {
    let read = [event.item.as_ref().map(|item| item.span), event.response];
    // Most events have no more than one of them, and nothing that looks like a call beside it.
    let beside = match read {
        [Some(_), Some(_)] | [None, None] => [data, &[]],
        [Some(span), None] | [None, Some(span)] => [&data[..span.range().start], &data[span.range().end..]],
    };
    if !beside.into_iter().any(|text| CALLS.may_be_in(text)) {
        return false;
    }
    let mut unread = data.to_vec();
    for span in read.into_iter().flatten() {
        if span.of(data).len() == data.trim_ascii().len() {
            return false;
        }
        unread[span.range()].fill(b' ');
        if let Some(first) = unread.get_mut(span.range().start) {
            *first = b'0';
        }
    }
    CALLS.are_in(&unread)
}

/// Whether an object with these members is a call, by the members that say so: the others may be long.
fn is_call(members: &Map<String, Value>) -> bool {
    let named = |name: &'static str| members.get(name).map(|value| (name, value));
    let item: HashMap<&str, &Value> =
        ["type", "execution", "name", "call_id"].into_iter().filter_map(named).collect();
    let item = serde_json::to_vec(&item).unwrap_or_default();
    parse_item(&mut Scanner::new(&item)).is_ok_and(|item| item.may_be_call())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: &str = r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}"#;

    fn is_stray(data: &str) -> bool {
        let raw = format!("data: {data}\n\n");
        holds_stray_call(raw.as_bytes(), &Event::parse(data.as_bytes()).unwrap(), data.as_bytes())
    }

    #[test]
    fn a_call_outside_of_the_members_that_are_read_is_stray() {
        for data in [
            CALL.to_owned(),
            format!(r#"{{"type":"response.completed","data":{{"response":{{"output":[{CALL}]}}}}}}"#),
            format!(r#"{{"type":"response.output_item.done","output_index":0,"call":{CALL}}}"#),
            r#"{"x":{"type":"\u0066unction_call","name":"f"}}"#.to_owned(),
            format!(r#"{{"items":[{CALL}]}}"#),
        ] {
            assert!(is_stray(&data), "{data}");
        }
        for data in [
            format!(r#"{{"type":"response.output_item.done","output_index":0,"item":{CALL}}}"#),
            format!(r#"{{"type":"response.completed","response":{{"output":[{CALL}]}}}}"#),
            format!(r#"{{"object":"response","status":"completed","output":[{CALL}]}}"#),
            r#"{"type":"response.output_text.delta","delta":"a \"function_call\" caf\u00e9"}"#.to_owned(),
            r#"{"type":"response.output_text.delta","delta":"function_call"}"#.to_owned(),
            r#"{"type":"response.function_call_arguments.delta","item_id":"fc_1","delta":"{\u0022"}"#
                .to_owned(),
        ] {
            assert!(!is_stray(&data), "{data}");
        }
    }

    #[test]
    fn a_call_in_a_line_that_is_no_data_is_stray() {
        for raw in [
            format!("{{\"output\":[{CALL}]}}\n\n"),
            format!("Data: {CALL}\n\n"),
            format!("error: {CALL}\ndata: {{}}\n\n"),
            format!(": ping\n{{\n\"output\":\n[{CALL}]}}\n\n"),
        ] {
            assert!(has_call_in_other_lines(raw.as_bytes()), "{raw}");
        }
        for raw in [
            "event: response.function_call_arguments.delta\ndata: {\"type\":\"function_call\"}\n\n",
            ": ping\n\n",
            "data: {\"a\":\"\\u0066\"}\nid: 1\n\n",
        ] {
            assert!(!has_call_in_other_lines(raw.as_bytes()), "{raw}");
        }
    }
}
