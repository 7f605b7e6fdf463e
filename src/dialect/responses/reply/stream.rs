//! The event loop of a stream: each event belongs to an item, and waits for the decision on its call where it has one.

use super::convert::error_event;
use super::event::{Class, Event, Index};
use super::items::{MOST_ITEMS, OutItem, block_by_name, release_rest};
use super::last::{Last, response_members};
use super::owner::Added;
use super::unread::{has_call_in_other_lines, holds_stray_call, may_hold_calls};
use super::written::call_events;
use super::{Phase, ReplyJudge, Unjudged};
use crate::dialect::error::friendly::{friendly_event, friendly_text_event};
use crate::dialect::error::{UpstreamError, parse_event};
use crate::dialect::judge::CallJudge;
use crate::dialect::lines::{hides_lines, is_empty_list, single_events};
use crate::dialect::reply::{Form, Refusal};
use crate::dialect::responses::item::{Item, ItemKind};
use bytes::Bytes;
use wire::json::decode;
use wire::sse::{Piece, parse_fields};

/// An event that waits.
pub struct Held {
    raw: Bytes,
    /// Its data and what was read of it; `None` for one that says nothing.
    event: Option<(Event, Bytes)>,
    /// The item that it belongs to.
    item: Option<usize>,
    /// Its size for the limit on held bytes; for a call's deltas only the arguments count.
    bytes: usize,
}

/// What a complete item is.
enum Completed {
    /// The item at this position.
    At(usize),
    /// A call that was complete before.
    Again,
    /// Another call than was judged, and the client may run it now.
    Renamed,
}

impl<J: CallJudge> ReplyJudge<J> {
    /// Handles a piece of the upstream's stream.
    pub(super) fn piece(&mut self, piece: Piece, now_ms: u64, out: &mut Vec<Bytes>) {
        match piece {
            Piece::Event(raw) | Piece::Oversized(raw) if matches!(self.phase, Phase::Unjudged) => {
                out.push(raw);
            }
            Piece::Event(raw) => self.event(raw, now_ms, out),
            Piece::Oversized(raw) => {
                self.begin_reading();
                self.phase = Phase::Unjudged;
                self.escape(Unjudged::EventTooLong, raw, out);
            }
        }
    }

    /// Passes an event on in its turn.
    pub(super) fn pass(&mut self, raw: Bytes, out: &mut Vec<Bytes>) {
        let bytes = raw.len();
        self.enqueue(Held { raw, event: None, item: None, bytes }, out);
    }

    fn event(&mut self, raw: Bytes, now_ms: u64, out: &mut Vec<Bytes>) {
        let fields = parse_fields(&raw);
        let reads = |data: &[u8]| Event::parse(data).is_ok();
        let parse = |data: &[u8]| Event::parse_named(fields.name, data);
        let may_call = |data: &[u8]| parse(data).is_ok_and(|event| may_hold_calls(&event, data));
        if self.judging.is_strict() && hides_lines(&raw, &fields, reads, may_call) {
            return self.break_off(Unjudged::Ambiguous);
        }
        if fields.data.is_empty() || fields.data.starts_with(b"[DONE]") {
            if has_call_in_other_lines(&raw) && self.is_in_doubt() {
                return self.break_off(Unjudged::Ambiguous);
            }
            return self.after_or_pass(raw, out);
        }
        let data: Bytes = match fields.place {
            Some(place) => raw.slice(place.range()),
            None => Bytes::copy_from_slice(&fields.data),
        };
        let name = fields.name.and_then(|name| std::str::from_utf8(name).ok());
        let error = parse_event(name, fields.field, &data);
        let Ok(event) = parse(&data) else {
            if let Some(events) = single_events(&raw, reads) {
                return events.into_iter().for_each(|raw| self.event(raw, now_ms, out));
            }
            // Some servers send such words as a keep-alive.
            let is_word = is_empty_list(&data) || !data.iter().any(|byte| matches!(byte, b'{' | b'['));
            if is_word {
                return match error {
                    Some(error) => self.text_of_error(raw, error, out),
                    None => self.after_or_pass(raw, out),
                };
            }
            self.begin_reading();
            return self.escape(Unjudged::NotJson, raw, out);
        };
        let (raw, mut event, data) = self.without_markup(raw, event, data, now_ms, out);
        if (event.ambiguous || holds_stray_call(&raw, &event, &data)) && self.is_in_doubt() {
            return self.break_off(Unjudged::Ambiguous);
        }
        if let Some(item) = &mut event.item {
            item.settle(self.judging.hosts_shell());
        }
        let holds_calls = may_hold_calls(&event, &data);
        if let Some(error) = error.filter(|_| !holds_calls) {
            let (raw, event, data) = self.for_people(raw, event, data, &error);
            if matches!(self.phase, Phase::Head) {
                return self.refuse(Refusal { error, raw }, &data);
            }
            self.phase = Phase::Failed;
            if event.response.is_none() {
                let bytes = raw.len();
                return self.enqueue(Held { raw, event: Some((event, data)), item: None, bytes }, out);
            }
            return self.read(raw, (event, data), now_ms, out);
        }
        self.read(raw, (event, data), now_ms, out);
    }

    /// A whole error as the client gets it.
    pub(super) fn error_bytes(&self, status: u16, raw: Bytes, error: &UpstreamError) -> Bytes {
        if self.form == Form::Whole {
            return raw;
        }
        let event = error_event(status, &raw);
        let is_for_people = self.options.friendly && (200..300).contains(&status);
        is_for_people.then(|| friendly_event(&event, error)).flatten().unwrap_or(event)
    }

    /// Takes an error event whose data is a text alone.
    fn text_of_error(&mut self, raw: Bytes, error: UpstreamError, out: &mut Vec<Bytes>) {
        let friendly = self.options.friendly.then(|| friendly_text_event(&raw, &error)).flatten();
        let raw = friendly.unwrap_or(raw);
        if matches!(self.phase, Phase::Head) {
            self.phase = Phase::Refused(Refusal { error, raw });
            return;
        }
        self.phase = Phase::Failed;
        let bytes = raw.len();
        self.enqueue(Held { raw, event: None, item: None, bytes }, out);
    }

    /// The event with an error, as people get it.
    fn for_people(
        &self,
        raw: Bytes,
        event: Event,
        data: Bytes,
        error: &UpstreamError,
    ) -> (Bytes, Event, Bytes) {
        let friendly = self.options.friendly.then(|| friendly_event(&raw, error)).flatten();
        let read = friendly.and_then(|new| {
            let fields = parse_fields(&new);
            let data = new.slice(fields.place?.range());
            let event = Event::parse_named(fields.name, &data).ok()?;
            Some((new, event, data))
        });
        read.unwrap_or((raw, event, data))
    }

    /// What comes after the last event goes out after it.
    fn after_or_pass(&mut self, raw: Bytes, out: &mut Vec<Bytes>) {
        if self.last.as_ref().is_some_and(|last| !last.given) {
            self.after.push(raw);
        } else {
            self.pass(raw, out);
        }
    }

    pub(super) fn read(
        &mut self,
        raw: Bytes,
        (event, data): (Event, Bytes),
        now_ms: u64,
        out: &mut Vec<Bytes>,
    ) {
        let class = event.class(&data);
        let is_call = |item: &Item| matches!(item.kind, ItemKind::Call(_));
        if event.response.is_some() && event.item.as_ref().is_some_and(is_call) && !self.judging.observes() {
            // Two kinds of event in one: clients differ on which they read.
            return self.break_off(Unjudged::Ambiguous);
        }
        if self.last.is_some() || matches!(self.phase, Phase::Done) {
            if may_hold_calls(&event, &data) && !self.judging.observes() {
                // Nothing may follow the last event; clients differ on whether they read it.
                self.is_changed = true;
                return;
            }
            return self.after_or_pass(raw, out);
        }
        if self.items.len() >= MOST_ITEMS {
            self.phase = Phase::Unjudged;
            return self.escape(Unjudged::ReplyTooLong, raw, out);
        }
        match (class, &event.item) {
            (Class::Life { ended: true }, _) => {
                self.begin_reading();
                self.take_last(Last::of_event(raw, data, event), now_ms, out);
            }
            (Class::Life { .. }, _) => self.life(raw, event, data, now_ms, out),
            (Class::Added, Some(item)) => {
                self.begin_reading();
                let index = event.index.map(|(_, index)| index);
                match self.begin_item(index, item, &data, now_ms) {
                    Completed::At(at) => {
                        self.veil(at);
                        self.enqueue_of(raw, event, data, Some(at), out);
                    }
                    Completed::Again => self.drop_event(),
                    Completed::Renamed => return self.break_off(Unjudged::Ambiguous),
                }
                self.advance(false, now_ms, out);
            }
            (Class::Done, Some(item)) => {
                self.begin_reading();
                let index = event.index.map(|(_, index)| index);
                match self.complete(index, item, &data, now_ms) {
                    Completed::At(at) => {
                        self.settle_veil(at);
                        self.enqueue_of(raw, event, data, Some(at), out);
                    }
                    Completed::Again => self.drop_event(),
                    Completed::Renamed => return self.break_off(Unjudged::Ambiguous),
                }
                self.advance(false, now_ms, out);
            }
            _ => {
                self.begin_reading();
                self.piece_of_item(raw, event, data, now_ms, out);
            }
        }
    }

    /// Handles the first events of a reply, which say nothing yet. Those of a later reply are dropped.
    fn life(&mut self, raw: Bytes, event: Event, data: Bytes, now_ms: u64, out: &mut Vec<Bytes>) {
        let response = event.response.unwrap_or_default();
        let id = id_of(response.of(&data));
        if id.is_some() {
            self.shown.reply_id = id;
        }
        let mut begun = Last::of_event(raw.clone(), data.clone(), event.clone());
        begun.settle_shells(self.judging.hosts_shell());
        if begun.ambiguous && self.is_in_doubt() {
            return self.break_off(Unjudged::Ambiguous);
        }
        if begun.has_calls() {
            // The first event of a resumed stream contains the items that came before. They cannot be removed.
            self.begin_reading();
            for entry in begun.entries() {
                let mut item = OutItem::begin(None, &entry.item, &data);
                item.complete(&entry.item, &data);
                self.items.push(item);
            }
            self.advance(false, now_ms, out);
            if self.items.iter().any(|item| !item.is_shown()) && !self.judging.observes() {
                return self.break_off(Unjudged::Ambiguous);
            }
        }
        if self.has_head {
            self.numbers.rewrite();
            self.is_changed = true;
            return;
        }
        if self.head.is_empty() {
            self.head = response_members(response, &data);
        }
        if event.type_of(&data) == "response.in_progress" {
            self.in_progress = Some(raw.clone());
        }
        self.enqueue_of(raw, event, data, None, out);
    }

    /// Adds an item and returns its position.
    pub(super) fn add(&mut self, mut item: OutItem, now_ms: u64) -> usize {
        // Calls are judged in the order in which they began: the name alone decides when the call's turn has come.
        let has_turn = self.items.iter().all(OutItem::is_decided);
        if let Some(call) = item.call.as_mut().filter(|_| has_turn) {
            block_by_name(call, &mut self.judging, now_ms);
        }
        self.items.push(item);
        self.items.len() - 1
    }

    /// Leaves out what the client has: a client may run a call once more when it is complete once more.
    pub(super) fn drop_event(&mut self) {
        self.numbers.rewrite();
        self.is_changed = true;
    }

    /// Adds an item that begins.
    fn begin_item(&mut self, index: Option<Index>, item: &Item, data: &Bytes, now_ms: u64) -> Completed {
        let added = self.added(index, item, data);
        match added {
            Added::Again if !self.judging.observes() => return Completed::Again,
            Added::Renamed if self.is_in_doubt() => return Completed::Renamed,
            Added::Pieces(at) => {
                self.items[at].begin_late(index, item, data);
                if let Some(call) = &mut self.items[at].call {
                    block_by_name(call, &mut self.judging, now_ms);
                }
                return Completed::At(at);
            }
            _ => {}
        }
        Completed::At(self.add(OutItem::begin(index, item, data), now_ms))
    }

    /// Adds a complete item.
    fn complete(&mut self, index: Option<Index>, item: &Item, data: &Bytes, now_ms: u64) -> Completed {
        let is_call = matches!(item.kind, ItemKind::Call(_));
        if is_call && self.names_two_calls(item, data) && self.is_in_doubt() {
            return Completed::Renamed;
        }
        if let Some(at) = self.owner_of_complete(index, item, data) {
            let known = &mut self.items[at];
            known.kind = item.kind;
            match (&mut known.call, item.kind) {
                (Some(call), ItemKind::Call(kind)) => call.kind = kind,
                // Pieces of a call that the provider has run itself.
                (call, _) => *call = None,
            }
            let is_judged = self.complete_known(at, item, data, now_ms);
            return if is_judged { Completed::At(at) } else { Completed::Renamed };
        }
        if !self.judging.observes() && self.is_complete_already(index, item, data) {
            return Completed::Again;
        }
        let has_key = index.is_some() || item.id.is_some() || item.call.id.is_some();
        let repeats = |known: &OutItem| {
            known.index == index && (has_key || known.call.is_none()) && known.is_repeated_by(item, data)
        };
        if let Some(at) = self.items.iter().rposition(repeats) {
            return Completed::At(at);
        }
        let mut new = OutItem::begin(index, item, data);
        new.complete(item, data);
        Completed::At(self.add(new, now_ms))
    }

    /// Completes a known item; `false` if the client may now run another call than was judged.
    pub(super) fn complete_known(&mut self, at: usize, item: &Item, data: &[u8], now_ms: u64) -> bool {
        let renamed = self.items[at].complete(item, data);
        let seen = self.items[at].call.as_ref().filter(|call| renamed && call.is_released());
        let objects = seen.is_some_and(|call| {
            self.judging.objects_to_new_name(super::CHOICE, true, &call.assembled, now_ms)
        });
        !objects || self.judging.observes()
    }

    pub(super) fn enqueue_of(
        &mut self,
        raw: Bytes,
        event: Event,
        data: Bytes,
        item: Option<usize>,
        out: &mut Vec<Bytes>,
    ) {
        let bytes = match event.delta.filter(|_| event.is_of_call(&data)) {
            Some(delta) => delta.span.len(),
            None => raw.len(),
        };
        self.enqueue(Held { raw, event: Some((event, data)), item, bytes }, out);
    }

    fn enqueue(&mut self, held: Held, out: &mut Vec<Bytes>) {
        self.queued_bytes += held.bytes;
        self.queue.push_back(held);
        self.drain(out);
        if self.queued_bytes > self.limits.held {
            if self.judging.is_strict() {
                return self.break_off(Unjudged::HeldTooMuch);
            }
            self.note(Unjudged::HeldTooMuch);
            release_rest(&mut self.items, &mut self.judging);
            self.update();
            self.drain(out);
        }
    }

    /// Gives out every event at the front whose item is decided on.
    pub(super) fn drain(&mut self, out: &mut Vec<Bytes>) {
        while let Some(front) = self.queue.front() {
            let is_open = front.item.is_some_and(|at| !self.items[at].is_settled());
            if is_open && !self.judging.observes() {
                return;
            }
            let Some(held) = self.queue.pop_front() else { return };
            self.queued_bytes -= held.bytes;
            self.give(held, out);
        }
    }

    fn give(&mut self, held: Held, out: &mut Vec<Bytes>) {
        let Held { raw, event, item, .. } = held;
        let Some((event, data)) = event else { return out.push(raw) };
        let Some(at) = item else {
            let raw = self.renumbered(raw, &event, &data, None);
            return out.push(raw);
        };
        if !self.judging.observes() {
            if !self.items[at].is_shown() {
                self.numbers.rewrite();
                self.is_changed = true;
                return;
            }
            self.say_preface(out);
            if self.items[at].call.as_ref().is_some_and(super::items::Call::is_written) {
                return self.give_written(at, out);
            }
        }
        let index = self.shown_as(at);
        if let Some(delta) = event.delta.filter(|_| self.items[at].call.is_none()) {
            self.shown.give(&decode(delta, &data));
        }
        let raw = self.renumbered(raw, &event, &data, Some(index));
        out.push(raw);
    }

    /// The client's index of the item.
    fn shown_as(&mut self, at: usize) -> u64 {
        let item = &mut self.items[at];
        *item.shown_as.get_or_insert_with(|| self.numbers.begin_item(item.index.and_then(Index::number)))
    }

    /// Writes a call once, instead of its events.
    fn give_written(&mut self, at: usize, out: &mut Vec<Bytes>) {
        self.numbers.rewrite();
        if std::mem::replace(&mut self.items[at].written, true) {
            return;
        }
        let index = self.shown_as(at);
        let Some((kind, call)) = self.items[at].judged() else { return };
        for event in call_events(kind, &call, index) {
            let event = self.own_event(event);
            out.push(event);
        }
    }
}

fn id_of(response: &[u8]) -> Option<String> {
    let members = response_members(wire::body::Span::new(0, response.len()), response);
    let (_, id) = members.into_iter().find(|(key, _)| key == b"id")?;
    serde_json::from_slice(&id).ok()
}
