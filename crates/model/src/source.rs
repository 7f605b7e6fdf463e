//! Sources: the bytes that a conversation was read from, each with its items, and the order of the items. The client's
//! body is the first source; a record of what the upstream keeps and hidden exchanges are further ones. A source is added
//! and never changed, so that an [`ItemId`] names one item for as long as the request lasts.

use crate::checkpoint::Note;
use crate::message::Message;
use crate::request::Tool;
use bytes::Bytes;
use std::sync::Arc;
use wire::body::Span;

/// Where the items of a source come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The client sent them, in words or by reference.
    Client,
    /// The upstream keeps them: policies read them, and they are not sent again.
    Upstream,
    /// Blocked calls and their synthetic results: the client did not see them.
    Blocked,
}

/// The number of the client's body among the sources.
pub const CLIENT: usize = 0;

/// One item of a conversation: the number of its source, and its index among the items of that source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemId {
    pub source: usize,
    pub index: usize,
}

impl ItemId {
    /// The item of the client's body at `index`.
    pub const fn of_client(index: usize) -> Self {
        Self { source: CLIENT, index }
    }

    /// The first item of a source.
    pub const fn first_of(source: usize) -> Self {
        Self { source, index: 0 }
    }
}

/// A part of a source: equal for equal parts of one conversation alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceSpan {
    pub(crate) source: usize,
    pub(crate) span: Span,
}

impl SourceSpan {
    /// This part of the source of `item`.
    pub fn new(item: ItemId, span: Span) -> Self {
        Self { source: item.source, span }
    }
}

/// The bytes of all sources of a conversation.
#[derive(Clone, Copy, Default)]
pub struct SourceBytes<'a> {
    pub(crate) body: &'a [u8],
    pub(crate) further: &'a [Arc<Source>],
}

impl SourceSpan {
    /// Its bytes.
    pub fn of(self, sources: SourceBytes<'_>) -> &[u8] {
        match self.source {
            CLIENT => self.span.of(sources.body),
            further => self.span.of(&sources.further[further - 1].bytes),
        }
    }

    /// How many bytes it has.
    pub fn bytes(self) -> usize {
        self.span.len()
    }
}

/// Items and the bytes that hold them.
#[derive(Debug)]
pub struct Source {
    pub origin: Origin,
    pub bytes: Bytes,
    /// The items, as spans of `bytes`.
    pub messages: Vec<Message>,
    /// The tools that items among them declare, and the namespaces and servers of tools that they describe.
    pub tools: Vec<Tool>,
    pub namespaces: Vec<Tool>,
    /// Values derived from each item.
    pub(crate) notes: Vec<Note>,
}

impl Source {
    /// A source of items that declare no tools.
    pub fn new(origin: Origin, bytes: Bytes, messages: Vec<Message>) -> Self {
        let notes = messages.iter().map(|_| Note::default()).collect();
        Self { origin, bytes, messages, tools: Vec::new(), namespaces: Vec::new(), notes }
    }

    /// The same, where items declare these tools and describe these namespaces.
    #[must_use]
    pub fn declaring(self, tools: Vec<Tool>, namespaces: Vec<Tool>) -> Self {
        Self { tools, namespaces, ..self }
    }
}

/// The order of the items that the client and the upstream have: runs of items of one source, and then the rest of the
/// client's. Hidden exchanges are not in it: each belongs before one of these items. The default is the order of the
/// client's items alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order {
    runs: Vec<Run>,
    /// The indexes of the runs of the client's items, and of those of further sources; both ascending by item.
    of_client: Vec<usize>,
    of_others: Vec<usize>,
    /// The client's items from this index on end the conversation.
    rest: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: ItemId,
    /// The position of `first`.
    position: usize,
    items: usize,
}

impl Order {
    /// Adds a run of `items` items of one source after those so far, before the rest of the client's. The runs of the client
    /// are added in the order of its body, and further sources in the order of their numbers.
    pub fn add(&mut self, first: ItemId, items: usize) {
        if items > 0 {
            let of = if first.source == CLIENT { &mut self.of_client } else { &mut self.of_others };
            of.push(self.runs.len());
            self.runs.push(Run { first, position: self.in_runs(), items });
        }
    }

    /// The client's items from `index` on follow those that were added.
    pub fn end_with_client(&mut self, index: usize) {
        self.rest = index;
    }

    /// The item at a position.
    pub fn id(&self, position: usize) -> ItemId {
        if self.runs.is_empty() {
            return ItemId::of_client(position + self.rest);
        }
        let before = self.runs.partition_point(|run| run.position <= position);
        let run = before.checked_sub(1).map(|last| self.runs[last]);
        match run.filter(|run| position < run.position + run.items) {
            Some(run) => ItemId { index: run.first.index + position - run.position, ..run.first },
            None => ItemId::of_client(position - self.in_runs() + self.rest),
        }
    }

    /// The position of an item; `None` where it has none.
    pub fn position(&self, item: ItemId) -> Option<usize> {
        let runs = if item.source == CLIENT { &self.of_client } else { &self.of_others };
        let before = runs.partition_point(|run| self.runs[*run].first <= item);
        let run = before.checked_sub(1).map(|last| self.runs[runs[last]]);
        let within = |run: Run| {
            let after = item.index.checked_sub(run.first.index)?;
            (item.source == run.first.source && after < run.items).then_some(run.position + after)
        };
        let rest = || (item.source == CLIENT).then(|| item.index.checked_sub(self.rest)).flatten();
        run.and_then(within).or_else(|| Some(rest()? + self.in_runs()))
    }

    /// How many items there are, where the client's body has `client` items.
    pub fn count(&self, client: usize) -> usize {
        self.in_runs() + client.saturating_sub(self.rest)
    }

    fn in_runs(&self) -> usize {
        self.runs.last().map_or(0, |last| last.position + last.items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Hash, HashKey, Identity};
    use crate::memo::NoMemo;
    use crate::testing::{SampleRequest, call, hidden_exchange, reply, result, source, user};
    use crate::{Event, Transcript};

    /// An event by its kind, with the name of its tool or its text, and the source of its item.
    fn shown(event: &Event<'_>) -> Option<(&'static str, String, usize)> {
        let text = |view: &crate::View<'_>| view.texts().collect::<String>();
        Some(match event {
            Event::User(view) => ("user", text(view), view.id.source),
            Event::Hidden(view) => ("hidden", text(view), view.id.source),
            Event::Assistant(view) => ("assistant", text(view), view.id.source),
            Event::Result(result) => ("result", result.tool().to_owned(), result.view.id.source),
            Event::TurnBegins(_) | Event::Call(_) | Event::System(_) | Event::ResultsComplete(_) => {
                return None;
            }
        })
    }

    #[test]
    fn one_conversation_is_read_from_several_sources_and_calls_are_paired_across_them() {
        let record = source(Origin::Upstream, &[user("q"), reply([call("a", "f", "{}")])]);
        let mut order = Order::default();
        order.add(ItemId { source: 1, index: 0 }, record.messages.len());
        let sent = SampleRequest::new(&[result("a", "r"), user("more")]);
        let identity = Identity { key: HashKey::fixed(1), caller: Hash(1), explicit: None };
        let (request, body) = (sent.request.clone(), sent.body().to_vec());
        let mut transcript = Transcript::with_sources(
            (Arc::new(request), body.into()),
            (vec![Arc::new(record)], order),
            identity,
            Arc::new(NoMemo),
        );
        assert_eq!((transcript.len(), transcript.first_sent()), (4, 2));
        let calls = transcript.calls.made();
        transcript.add_hidden(1, hidden_exchange(&[reply([call("b", "g", "{}")]), result("b", "no")]));
        let mut events = Vec::new();
        transcript.read_events(|event| events.extend(shown(event)));
        let expected = [
            ("user", "q", 1),
            ("hidden", "", 2),
            ("hidden", "no", 2),
            ("assistant", "", 1),
            ("result", "f", 0),
            ("user", "more", 0),
        ];
        assert_eq!(events, expected.map(|(kind, text, source)| (kind, text.to_owned(), source)));
        assert_eq!(transcript.calls.made(), calls, "a call of a hidden exchange is not counted");
        assert_eq!(transcript.view(2).id, ItemId::of_client(0));
    }

    #[test]
    fn the_items_of_the_client_alone_are_in_the_order_of_its_body() {
        let order = Order::default();
        assert_eq!((order.id(3), order.count(5)), (ItemId::of_client(3), 5));
        assert_eq!(order.position(ItemId::of_client(3)), Some(3));
        assert_eq!(order.position(ItemId { source: 1, index: 0 }), None);
    }

    #[test]
    fn each_position_has_one_item_and_each_item_in_the_order_that_position() {
        let of = |source, index| ItemId { source, index };
        for (runs, rest, client, expected) in [
            (vec![(of(1, 0), 2)], 0, 2, vec![of(1, 0), of(1, 1), of(0, 0), of(0, 1)]),
            (vec![(of(0, 0), 1), (of(1, 0), 1)], 3, 4, vec![of(0, 0), of(1, 0), of(0, 3)]),
            (vec![(of(1, 0), 0), (of(2, 0), 1), (of(0, 1), 1)], 2, 2, vec![of(2, 0), of(0, 1)]),
        ] {
            let mut order = Order::default();
            runs.into_iter().for_each(|(first, items)| order.add(first, items));
            order.end_with_client(rest);
            let ids: Vec<ItemId> = (0..order.count(client)).map(|position| order.id(position)).collect();
            assert_eq!(ids, expected);
            for (position, item) in expected.into_iter().enumerate() {
                assert_eq!(order.position(item), Some(position), "{item:?}");
            }
        }
        let mut order = Order::default();
        order.add(of(1, 0), 1);
        order.end_with_client(2);
        assert_eq!(order.position(of(0, 1)), None, "another source stands for it");
    }
}
