//! The stored form of a hidden exchange of the Responses API. It holds the items of a reply in their order, those that
//! the client was shown too: only beside them is a blocked call accepted again, since reasoning must not be separated
//! from the item after it.

use bytes::Bytes;
use serde_json::value::RawValue;
use std::collections::HashMap;

/// One element of a hidden exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Element {
    /// The reply's id: a request that continues from it begins here.
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
            Element::Reply(id) => ("reply", Bytes::from(crate::wire::json::quote(id))),
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

/// The items that such an exchange holds, in their order, separated by commas.
pub fn items(exchange: &[u8]) -> Bytes {
    let item = |element| match element {
        Element::Reply(_) => None,
        Element::Shown(item) | Element::Hidden(item) | Element::Result(item) => Some(item),
    };
    read(exchange).into_iter().filter_map(item).collect::<Vec<_>>().join(&b","[..]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

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
