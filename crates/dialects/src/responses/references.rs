//! References of a request to items that the upstream keeps (`item_reference`), read as the items that they name where
//! these are known from earlier replies: policies count the calls among them. The upstream gets the references.

use super::item::{Item, ItemKind, parse_item};
use super::request::is_reference;
use bytes::Bytes;
use model::request::{ReferencedItems, Request};
use serde_json::value::RawValue;
use std::collections::HashMap;
use wire::body::{Scanner, Span};
use wire::json::decode;
use wire::splice::Splices;

/// The request with the items that it refers to in their places, and the body of both.
pub fn with_items(body: &Bytes, request: &Request, known: &[Box<RawValue>]) -> Option<(Bytes, Request)> {
    let known: HashMap<String, &str> =
        known.iter().filter_map(|item| Some((id_of(item.get())?, item.get()))).collect();
    let (mut all, mut at) = (Vec::with_capacity(2 * body.len()), 0);
    let mut referenced = ReferencedItems { original: body.clone(), ..ReferencedItems::default() };
    let is_it = |item: &Item| item.kind == ItemKind::Other && is_reference(item.span.of(body));
    for reference in super::restore::items_of(request, body).into_iter().filter(is_it) {
        let id = reference.id.map(|id| decode(id, body).into_owned()).unwrap_or_default();
        let Some(item) = known.get(&id) else {
            referenced.unknown += 1;
            continue;
        };
        let range = reference.span.range();
        all.extend_from_slice(&body[at..range.start]);
        let span = Span::new(all.len(), all.len() + item.len());
        all.extend_from_slice(item.as_bytes());
        at = range.end;
        // The upstream did not issue toolrein's own ids: it gets those items themselves.
        if !id.starts_with(super::OWN_ID) {
            referenced.items.push((span, body.slice(range)));
        }
    }
    all.extend_from_slice(&body[at..]);
    let all = Bytes::from(all);
    let mut whole = super::parse(&all).ok()?;
    whole.may_be_continued = request.may_be_continued;
    whole.referenced = Some(Box::new(referenced));
    Some((all, whole))
}

/// Puts the references back in the places of the items that policies have read.
pub fn put_back(referenced: &ReferencedItems, splices: &mut Splices) {
    for (span, reference) in &referenced.items {
        if !splices.covers(*span) {
            splices.replace_all(*span, reference.clone());
        }
    }
}

fn id_of(item: &str) -> Option<String> {
    let read = parse_item(&mut Scanner::new(item.as_bytes())).ok()?;
    Some(decode(read.id?, item.as_bytes()).into_owned())
}
