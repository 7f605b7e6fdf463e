//! References of a request to items that the upstream keeps (`item_reference`), read as the items that they name where
//! these are known from earlier replies: policies count the calls among them. The upstream gets the references.

use super::history::HistoryRecord;
use super::item::{Item, ItemKind, parse_item};
use super::request::{is_compaction, is_reference, source, take_shells};
use super::restore::{as_new, items_of, kind_and_id};
use crate::edit::change_items;
use crate::upstream_history::{Piece, PieceKind, ResolvedReferences, UpstreamHistory};
use bytes::Bytes;
use model::plan::Plan;
use model::request::Request;
use model::source::{CLIENT, ItemId, Order, Origin, Source};
use std::collections::HashMap;
use std::sync::Arc;
use wire::body::{Scanner, Span};
use wire::json::decode;
use wire::splice::Splices;

/// What the items of `history`, which `record` holds, say of the references in the request. Each item is read for the first reference to it.
pub fn resolved(
    request: &mut Request,
    body: &Bytes,
    record: &Bytes,
    history: &HistoryRecord,
) -> UpstreamHistory {
    let mut found = Resolver::read(request, body, history);
    if take_shells(request, &found.sources) {
        found = Resolver::read(request, body, history);
    }
    let ReferencedItems { sources, references, unknown, declares_elsewhere, order } = found;
    request.declares_elsewhere = declares_elsewhere;
    let (record, sources) = (record.clone(), sources.into_iter().map(Arc::new).collect());
    UpstreamHistory { record, sources, references, order, unknown, ..UpstreamHistory::default() }
}

/// The items of a request among which there are references.
struct ReferencedItems {
    sources: Vec<Source>,
    references: Vec<ResolvedReferences>,
    order: Order,
    unknown: u64,
    /// More tools may be callable than the request and the items show.
    declares_elsewhere: bool,
}

/// Reads the items of a request one after the other.
struct Resolver<'a> {
    request: &'a Request,
    body: &'a Bytes,
    /// The items that are known and were not referred to yet, by id.
    known: HashMap<String, &'a str>,
    history: &'a HistoryRecord,
    found: ReferencedItems,
    /// The items that the model made one after the other: how each is sent, its place in the body, and the item.
    run: Vec<(PieceKind, Span, Bytes)>,
}

impl<'a> Resolver<'a> {
    /// Reads all items of the request.
    fn read(request: &'a Request, body: &'a Bytes, history: &'a HistoryRecord) -> ReferencedItems {
        let mut known = HashMap::new();
        for item in history.items.iter().map(|item| item.get()) {
            id_of(item).into_iter().for_each(|id| _ = known.entry(id).or_insert(item));
        }
        let has_prompt = request.value(body, "prompt").is_some_and(|prompt| prompt.of(body) != b"null");
        let found = ReferencedItems {
            sources: Vec::new(),
            references: Vec::new(),
            order: Order::default(),
            unknown: 0,
            declares_elsewhere: has_prompt,
        };
        let mut resolver = Self { request, body, known, history, found, run: Vec::new() };
        items_of(request, body).iter().for_each(|item| resolver.take(item));
        resolver.finish()
    }

    fn take(&mut self, item: &Item) {
        let sent = item.span;
        if item.kind != ItemKind::Other || !is_reference(sent.of(self.body)) {
            let written = (PieceKind::Written, sent, self.body.slice(sent.range()));
            return self.add(item, written);
        }
        let id = item.id.map(|id| decode(id, self.body).into_owned()).unwrap_or_default();
        let named = self.known.remove(&id).map(|named| Bytes::copy_from_slice(named.as_bytes()));
        let read = named.and_then(|named| Some((parse_item(&mut Scanner::new(&named)).ok()?, named)));
        let Some((read, named)) = read else {
            self.end_run();
            return self.miss(1);
        };
        let is_own = self.history.is_own(&id);
        self.add(&read, (if is_own { PieceKind::Own } else { PieceKind::Reference }, sent, named));
    }

    /// Counts references to items that are not known, which may declare tools.
    fn miss(&mut self, references: u64) {
        self.found.unknown += references;
        self.found.declares_elsewhere |= references > 0;
    }

    /// Adds an item to those that the model made before it, or ends these.
    fn add(&mut self, item: &Item, piece: (PieceKind, Span, Bytes)) {
        self.found.declares_elsewhere |= is_compaction(item.kind, &piece.2);
        if !item.is_of_model() {
            self.end_run();
        }
        self.run.push(piece);
        if !item.is_of_model() {
            self.end_run();
        }
    }

    /// Makes a source of the items so far, if there is a reference among them.
    fn end_run(&mut self) {
        let run = std::mem::take(&mut self.run);
        let referring = run.iter().filter(|(kind, ..)| *kind != PieceKind::Written).count();
        let (Some((_, first, _)), Some((_, last, _))) = (run.first(), run.last()) else { return };
        if referring == 0 {
            return;
        }
        let span = Span { start: first.start, end: last.end };
        let (mut bytes, mut pieces) = (b"[".to_vec(), Vec::new());
        for (kind, sent, item) in &run {
            if bytes.len() > 1 {
                bytes.push(b',');
            }
            let start = bytes.len();
            bytes.extend_from_slice(item);
            pieces.push(Piece { kind: *kind, item: Span::new(start, bytes.len()), sent: *sent });
        }
        bytes.push(b']');
        let list = Span::new(0, bytes.len());
        let read = source(Origin::Client, bytes.into(), list, self.request.hosts_shell);
        match read.filter(|read| read.messages.len() == 1) {
            Some(read) => {
                self.found.sources.push(read);
                self.found.references.push(ResolvedReferences { span, pieces });
            }
            None => self.miss(referring as u64),
        }
    }

    /// Puts the sources in order with the client's other items.
    fn finish(mut self) -> ReferencedItems {
        self.end_run();
        let mut order = Order::default();
        let position = |at: u32| self.request.messages.partition_point(|item| item.span.start < at);
        let mut next = 0;
        for (at, references) in self.found.references.iter().enumerate() {
            let first = position(references.span.start);
            order.add(ItemId::of_client(next), first - next);
            order.add(ItemId::first_of(at + CLIENT + 1), 1);
            next = position(references.span.end);
        }
        order.end_with_client(next);
        ReferencedItems { order, ..self.found }
    }
}

/// Writes what the policies want of the items in `upstream` that the client refers to: of what the client wrote among them,
/// and of toolrein's own items, which go in the places of the references to them.
pub fn write_references(upstream: &UpstreamHistory, plan: &Plan, splices: &mut Splices) {
    for (number, source, references) in upstream.referenced() {
        if plan.drops(ItemId::first_of(number)) {
            continue;
        }
        let Source { bytes, messages, .. } = source;
        let mut changes = Splices::default();
        change_items(number, (messages, bytes), plan, &mut changes);
        for Piece { kind, item, sent } in &references.pieces {
            match kind {
                PieceKind::Reference => {}
                PieceKind::Written => splices.append(changes.moved(*item, sent.start)),
                PieceKind::Own => {
                    let own = changes.moved(*item, 0).apply(&bytes.slice(item.range())).join();
                    splices.replace(*sent, as_new(&own));
                }
            }
        }
    }
}

/// The id of an item; `None` of a reference to one.
fn id_of(item: &str) -> Option<String> {
    let (kind, id) = kind_and_id(item.as_bytes())?;
    let refers = kind == ItemKind::Other && is_reference(item.as_bytes());
    (!refers).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::responses::history::upstream_history;
    use crate::responses::repair::{broken, repaired};
    use crate::responses::{parse, write};
    use crate::variant::{Placement, PlannedRequest, Variant};
    use model::adaptation::Adaptation;
    use model::message::Role;
    use model::plan::{Change, Edit};
    use serde_json::{Value, json};

    fn call(id: &str, said: &str) -> Value {
        json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": format!("call_{id}"), "name": "f",
            "arguments": json!({ "q": said }).to_string()})
    }

    fn output(id: &str) -> Value {
        json!({"type": "function_call_output", "call_id": format!("call_{id}"), "output": "r"})
    }

    fn reference(id: &str) -> Value {
        json!({"type": "item_reference", "id": id})
    }

    struct Resolved {
        body: Bytes,
        request: Request,
        upstream: UpstreamHistory,
    }

    /// A request with these items. The upstream keeps the `known` ones.
    fn resolve(input: &[Value], known: &[Value]) -> Resolved {
        let body = Bytes::from(json!({ "input": input }).to_string());
        let mut request = parse(&body).unwrap();
        let known = json!({"upstream_id": "", "items": known, "owed": []}).to_string();
        let upstream = upstream_history(&mut request, &body, &known.into()).unwrap();
        Resolved { body, request, upstream }
    }

    impl Resolved {
        /// The role of each item in order, with the number of its calls.
        fn order(&self) -> Vec<(Role, usize)> {
            let Self { request, upstream, .. } = self;
            let ids = (0..upstream.order.count(request.messages.len())).map(|at| upstream.order.id(at));
            let messages = ids.map(|id| match id.source {
                0 => &request.messages[id.index],
                further => &upstream.sources[further - 1].messages[id.index],
            });
            messages.map(|message| (message.role, message.calls.len())).collect()
        }

        fn sent(&self, changes: Vec<(ItemId, Change)>) -> Vec<Value> {
            let edit = |(item, change)| Edit { item, decided: 0, policy: "p", change };
            let mut plan = Plan::default();
            plan.edits = changes.into_iter().map(edit).collect();
            plan.order = self.upstream.order.clone();
            let planned = PlannedRequest {
                upstream: Some(&self.upstream),
                ..PlannedRequest::new(&self.body, &self.request, &plan)
            };
            let out = write(&planned, &Variant::plain(Placement::Suffix)).join();
            let out: Value = serde_json::from_slice(&out).unwrap();
            out["input"].as_array().unwrap().clone()
        }
    }

    fn redact(source: usize, call: usize) -> (ItemId, Change) {
        (ItemId::first_of(source), Change::RedactCall { call, by: r#"{"q":"[V]"}"#.into() })
    }

    fn user() -> Value {
        json!({"role": "user", "content": "q"})
    }

    #[test]
    fn items_that_the_model_made_in_a_row_are_one_item_however_the_client_sends_each() {
        let input = [user(), reference("fc_a"), call("b", "x"), output("a"), output("b"), reference("m")];
        let said = json!({"type": "message", "id": "m", "role": "user", "content": "more"});
        let resolved = resolve(&input, &[call("a", "x"), said]);
        let expected =
            [(Role::User, 0), (Role::Assistant, 2), (Role::Tool, 0), (Role::Tool, 0), (Role::User, 0)];
        assert_eq!(resolved.order(), expected);
        assert_eq!(resolved.sent(Vec::new()), input, "references are sent as references");
        assert!(!resolved.request.declares_elsewhere);
    }

    #[test]
    fn calls_of_the_providers_beside_a_reference_change_nothing_about_it() {
        let search = json!({"type": "web_search_call", "id": "ws_1", "status": "completed"});
        let input = [user(), search, reference("fc_a"), output("a")];
        let resolved = resolve(&input, &[call("a", "x")]);
        assert_eq!(resolved.order(), [(Role::User, 0), (Role::Assistant, 1), (Role::Tool, 0)]);
        assert_eq!(resolved.sent(Vec::new()), input);
        let compaction = json!({"type": "compaction", "id": "cmp_1", "encrypted_content": "x"});
        assert!(resolve(&[compaction, reference("fc_a")], &[call("a", "x")]).request.declares_elsewhere);
    }

    #[test]
    fn a_record_with_references_says_nothing_of_the_items_that_they_name() {
        let known = [call("a", "x"), reference("fc_a"), reference("fc_b")];
        let resolved = resolve(&[reference("fc_a"), reference("fc_b"), output("a")], &known);
        assert_eq!(resolved.order(), [(Role::Assistant, 1), (Role::Other, 0), (Role::Tool, 0)]);
        assert_eq!((resolved.upstream.unknown, resolved.request.declares_elsewhere), (1, true));
    }

    #[test]
    fn the_second_reference_to_an_item_is_one_that_is_not_known() {
        let resolved = resolve(&[reference("fc_a"), output("a"), reference("fc_a")], &[call("a", "x")]);
        assert_eq!(resolved.order(), [(Role::Assistant, 1), (Role::Tool, 0), (Role::Other, 0)]);
        assert_eq!(resolved.upstream.unknown, 1);
    }

    #[test]
    fn a_history_of_references_is_not_broken() {
        for input in [
            vec![user(), reference("fc_a"), output("a")],
            vec![user(), reference("fc_a"), call("b", "x"), output("a"), output("b")],
            vec![user(), call("b", "x"), reference("fc_a"), output("b"), output("a")],
            vec![user(), call("b", "x"), reference("rs_1"), call("c", "x"), output("b"), output("c")],
            vec![user(), reference("fc_a"), call("b", "x"), output("a"), reference("out"), output("b")],
        ] {
            let Resolved { body, request, upstream } = resolve(&input, &[call("a", "x")]);
            let plan = Plan::default();
            let planned =
                PlannedRequest { upstream: Some(&upstream), ..PlannedRequest::new(&body, &request, &plan) };
            assert!(broken(&planned, Adaptation::SUSPECTED_REPAIRS).is_empty(), "{input:?}");
            assert_eq!(repaired(&body, Adaptation::SUSPECTED_REPAIRS).unwrap().join(), body);
        }
    }

    #[test]
    fn a_reference_to_an_item_that_is_not_known_stays_an_item_of_its_own_and_is_counted() {
        let input = [user(), reference("fc_a"), call("b", "x"), output("b")];
        let resolved = resolve(&input, &[]);
        let expected = [(Role::User, 0), (Role::Other, 0), (Role::Assistant, 1), (Role::Tool, 0)];
        assert_eq!(resolved.order(), expected);
        assert_eq!((resolved.upstream.unknown, resolved.request.declares_elsewhere), (1, true));
    }

    #[test]
    fn values_are_hidden_in_what_the_client_wrote_beside_a_reference_and_the_reference_stays() {
        let input = [user(), reference("fc_a"), call("b", "secret"), output("a"), output("b")];
        let resolved = resolve(&input, &[call("a", "secret")]);
        let sent = resolved.sent(vec![redact(1, 0), redact(1, 1)]);
        assert_eq!(sent[1], reference("fc_a"));
        assert_eq!(sent[2], call("b", "[V]"));
    }

    #[test]
    fn an_item_of_toolreins_own_goes_in_the_place_of_the_reference_without_its_id_and_hidden_values() {
        let id = format!("{}_1", crate::responses::OWN_ID);
        let own = json!({"type": "function_call", "id": id, "call_id": "call_o", "name": "f", "arguments": "{\"q\":\"secret\"}"});
        let resolved = resolve(&[user(), reference(&id), output("o")], &[own]);
        let sent = resolved.sent(vec![redact(1, 0)]);
        let expected = json!({"type": "function_call", "call_id": "call_o", "name": "f", "arguments": "{\"q\":\"[V]\"}"});
        assert_eq!(sent, [user(), expected, output("o")]);
    }
}
