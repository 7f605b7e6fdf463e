//! The stored form of a hidden exchange of the Responses API. It holds the items of a reply in their order, those that
//! the client was shown too: only beside them is a blocked call accepted again, since reasoning must not be separated
//! from the item after it.

use super::item::parse_item;
use crate::short::{short_arguments, short_result, short_text};
use bytes::Bytes;
use model::source::{Origin, Source};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::HashMap;
use wire::body::{Scanner, Span};
use wire::json::{decode, quote};

/// One element of a hidden exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Element {
    /// The reply's id: a request that continues from it begins here. It is empty where no request can continue from it:
    /// toolrein made the reply, or its calls are written as text.
    Reply(String),
    /// An item that the client was shown, as JSON.
    Shown(Bytes),
    /// A blocked call as the model made it, as JSON.
    Hidden(Bytes),
    /// The synthetic result of a blocked call, as JSON.
    Result(Bytes),
}

/// The hidden exchange as JSON objects joined by commas.
pub fn write(elements: &[Element]) -> Bytes {
    let mut out = Vec::new();
    for element in elements {
        let (name, value) = match element {
            Element::Reply(id) => ("reply", Bytes::from(quote(id))),
            Element::Shown(item) => ("shown", item.clone()),
            Element::Hidden(item) => ("hidden", item.clone()),
            Element::Result(item) => ("result", item.clone()),
        };
        if !out.is_empty() {
            out.push(b',');
        }
        out.extend_from_slice(format!("{{\"{name}\":").as_bytes());
        out.extend_from_slice(&value);
        out.push(b'}');
    }
    out.into()
}

/// Reads what [`write`] wrote, or several of it joined by commas. What cannot be read is left out: it comes from the
/// state store.
pub fn read(exchange: &[u8]) -> Vec<Element> {
    let list = [b"[", exchange, b"]"].concat();
    let Ok(objects) = serde_json::from_slice::<Vec<HashMap<String, Box<RawValue>>>>(&list) else {
        return Vec::new();
    };
    let element = |(name, value): (String, Box<RawValue>)| {
        let item = Bytes::copy_from_slice(value.get().as_bytes());
        if name != "reply" && !item.starts_with(b"{") {
            return None;
        }
        Some(match &*name {
            "reply" => Element::Reply(serde_json::from_str(value.get()).ok()?),
            "shown" => Element::Shown(item),
            "hidden" => Element::Hidden(item),
            "result" => Element::Result(item),
            _ => return None,
        })
    };
    objects.into_iter().flatten().filter_map(element).collect()
}

/// The items that such an exchange holds, in their order, as they are sent. Messages without text, which bridges put before
/// calls, are left out: providers refuse them.
pub fn items(exchange: &[u8]) -> impl Iterator<Item = Bytes> {
    read(exchange).into_iter().filter_map(|element| match element {
        Element::Reply(_) => None,
        Element::Shown(item) => (!is_empty_message(&item)).then_some(item),
        Element::Hidden(item) | Element::Result(item) => Some(item),
    })
}

/// The blocked calls of a hidden exchange and their results, without the items that the client was shown.
pub fn source(exchange: &[u8]) -> Option<Source> {
    let items = read(exchange).into_iter().filter_map(|element| match element {
        Element::Hidden(item) | Element::Result(item) => Some(item),
        Element::Reply(_) | Element::Shown(_) => None,
    });
    let list = Bytes::from([b"[", &items.collect::<Vec<_>>().join(&b","[..])[..], b"]"].concat());
    let span = Span::new(0, list.len());
    // Nothing that the model wrote into a blocked call declares a tool.
    let source = super::request::source(Origin::Blocked, list, span, false)?;
    Some(source.declaring(Vec::new(), Vec::new()))
}

/// [`items`], separated by commas.
pub fn joined_items(exchange: &[u8]) -> Bytes {
    items(exchange).collect::<Vec<_>>().join(&b","[..]).into()
}

fn is_empty_message(item: &Bytes) -> bool {
    let is_empty_part = |part: &Value| part["type"] == "output_text" && is_blank(&part["text"]);
    let Ok(item) = serde_json::from_slice::<Value>(item) else { return false };
    item["type"] == "message"
        && match &item["content"] {
            Value::Array(parts) => parts.iter().all(is_empty_part),
            content => is_blank(content),
        }
}

fn is_blank(text: &Value) -> bool {
    text.as_str().is_some_and(|text| text.trim().is_empty())
}

/// The hidden exchange with its calls as text in an assistant's messages, and their results as text in a user's messages.
pub fn plain_exchange(exchange: &[u8]) -> Bytes {
    let mut names: HashMap<String, String> = HashMap::new();
    let plain = read(exchange).into_iter().map(|element| match element {
        Element::Reply(_) => Element::Reply(String::new()),
        Element::Shown(item) => Element::Shown(item),
        Element::Hidden(item) => Element::Hidden(plain_call(&item, &mut names).unwrap_or(item)),
        Element::Result(item) => Element::Result(plain_result(&item, &names).unwrap_or(item)),
    });
    write(&plain.collect::<Vec<_>>())
}

fn plain_call(item: &Bytes, names: &mut HashMap<String, String>) -> Option<Bytes> {
    let call = parse_item(&mut Scanner::new(item)).ok()?.call;
    let name = call.full_name(item)?.into_owned();
    let text = format!("[called {name} with {}]", call.arguments.text(item));
    names.insert(decode(call.id?, item).into_owned(), name);
    Some(message("assistant", &text))
}

fn plain_result(item: &Bytes, names: &HashMap<String, String>) -> Option<Bytes> {
    let read = parse_item(&mut Scanner::new(item)).ok()?;
    let name = names.get(&*decode(read.call.id?, item)).map_or("a tool", String::as_str);
    let texts: Vec<_> = read.content.as_ref()?.texts().map(|text| decode(text, item)).collect();
    Some(message("user", &format!("[result of {name}]\n{}", texts.join("\n"))))
}

fn message(role: &str, text: &str) -> Bytes {
    format!(r#"{{"type":"message","role":"{role}","content":{}}}"#, quote(text)).into()
}

/// The hidden exchange with short arguments and results.
pub fn short_exchange(exchange: &[u8]) -> Bytes {
    let short = read(exchange).into_iter().map(|element| match element {
        Element::Hidden(item) => Element::Hidden(short_item(&item).unwrap_or(item)),
        Element::Result(item) => Element::Result(short_item(&item).unwrap_or(item)),
        other => other,
    });
    write(&short.collect::<Vec<_>>())
}

fn short_item(item: &Bytes) -> Option<Bytes> {
    let mut item: Map<String, Value> = serde_json::from_slice(item).ok()?;
    for (name, value) in &mut item {
        match (name.as_str(), value) {
            ("arguments", Value::String(text)) => *text = short_arguments(text),
            ("input" | "reason", Value::String(text)) => *text = short_text(text),
            ("output", Value::String(text)) => *text = short_result(text),
            ("operation", Value::Object(members)) => members.values_mut().for_each(shorten),
            ("output", Value::Array(parts)) => {
                parts.iter_mut().filter_map(|part| part.get_mut("stderr")).for_each(|text| {
                    if let Value::String(text) = text {
                        *text = short_result(text);
                    }
                });
            }
            _ => {}
        }
    }
    Some(Value::Object(item).to_string().into())
}

fn shorten(value: &mut Value) {
    if let Value::String(text) = value {
        *text = short_text(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_exchange_has_no_call_and_continues_from_no_reply() {
        let elements = [
            Element::Reply("resp_1".to_owned()),
            Element::Hidden(Bytes::from_static(
                br#"{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}"#,
            )),
            Element::Result(Bytes::from_static(
                br#"{"type":"function_call_output","call_id":"c","output":"no"}"#,
            )),
        ];
        let items = joined_items(&plain_exchange(&write(&elements)));
        assert_eq!(
            items,
            r#"{"type":"message","role":"assistant","content":"[called f with {}]"},{"type":"message","role":"user","content":"[result of f]\nno"}"#
        );
        assert_eq!(read(&plain_exchange(&write(&elements)))[0], Element::Reply(String::new()));
    }

    #[test]
    fn messages_without_text_are_not_sent() {
        for (content, is_sent) in [
            (r#"[{"type":"output_text","text":"","annotations":[]}]"#, false),
            (r#"[{"type":"output_text","text":"\n\n"}]"#, false),
            ("[]", false),
            ("\"\"", false),
            (r#"[{"type":"output_text","text":"I pay."}]"#, true),
            (r#"[{"type":"refusal","refusal":"No."}]"#, true),
        ] {
            let message = format!(r#"{{"type":"message","role":"assistant","content":{content}}}"#);
            let exchange = write(&[Element::Shown(message.clone().into())]);
            assert_eq!(joined_items(&exchange), if is_sent { message } else { String::new() }, "{content}");
        }
    }

    #[test]
    fn hidden_exchanges_are_read_back_exactly_as_written() {
        let elements = [
            Element::Reply("resp_1".to_owned()),
            Element::Shown(Bytes::from_static(br#"{"id":"rs_1", "summary":[]}"#)),
            Element::Hidden(Bytes::from_static(br#"{"arguments":"\u007b}"}"#)),
            Element::Result(Bytes::from_static(br#"{"output":"no"}"#)),
        ];
        assert_eq!(read(&write(&elements)), elements);
        let two = [write(&elements[..2]), write(&elements[2..])].join(&b","[..]);
        assert_eq!(read(&two), elements, "joined");
        assert_eq!(read(b"{\"hidden\":"), [], "broken");
        assert_eq!(read(b"{\"hidden\":\"a\"},{\"result\":[]}"), [], "no items");
    }
}
