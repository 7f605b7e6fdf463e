//! The last event of a reply, or a whole reply: it repeats all items, and some clients read calls from nowhere else. It
//! is rebuilt from what the client was shown.

use super::event::Event;
use super::items::{CHOICE, MOST_ITEMS, OutItem};
use super::owner::{Copied, Ids};
use super::{Form, ResponsesReplies, text_of};
use crate::CARRIED;
use crate::codec::{
    CallPiece, Frame, FrameKind, FrameUsage, Payload, REPORT, ReplyEvent, ReplyEvents, WriteContext,
};
use crate::error::may_be_in_200;
use crate::lines::framed;
use crate::reply::Unjudged;
use crate::reply_choice::ReplyChoice;
use crate::responses::item::{Item, ItemKind, parse_item};
use bytes::Bytes;
use smallvec::SmallVec;
use wire::body::{Fault, Kind, Scanner, Span};
use wire::json::{decode_bytes, is_same_name, quote};
use wire::members::{Member, may_be_read_as, members_of};
use wire::splice::Splices;
use wire::sse::parse_fields;

/// The members that later replies repeat from the first one: clients know the response by them.
static HEAD: [&[u8]; 10] = [
    b"id",
    b"created_at",
    b"model",
    b"previous_response_id",
    b"conversation",
    b"instructions",
    b"tools",
    b"tool_choice",
    b"parallel_tool_calls",
    b"store",
];

/// See the file's head.
pub struct Last {
    /// The event as it came; `None` for a whole reply.
    raw: Option<Bytes>,
    data: Bytes,
    event: Event,
    members: Vec<Member>,
    entries: Vec<Entry>,
    /// The list of items.
    output: Option<Span>,
    /// Two parsers may find different items in it.
    pub ambiguous: bool,
    /// The response reports a failure.
    pub failed: bool,
    /// It ended before the model had finished: for its length, or by a filter.
    pub cut: bool,
}

/// One item in the list.
#[derive(Clone, Debug)]
pub struct Entry {
    pub item: Item,
    /// The item of the reply that it repeats.
    at: Option<usize>,
    /// Its content differs from that item.
    differs: bool,
}

/// The members of a response that later ones repeat: their names, and their values as written.
pub type HeadMembers = Vec<(&'static [u8], Bytes)>;

/// Those among `members`; `written` gives the bytes of a value.
fn repeated(members: &[Member], data: &[u8], written: impl Fn(Span) -> Bytes) -> HeadMembers {
    let mut repeated = HeadMembers::with_capacity(HEAD.len());
    repeated.extend(members.iter().filter_map(|member| {
        let key = decode_bytes(member.key, data);
        let name = HEAD.iter().find(|name| ***name == *key)?;
        Some((*name, written(member.value)))
    }));
    repeated
}

/// The members of a response, and the items of its list.
#[derive(Clone, Debug, Default)]
pub struct ResponseMembers {
    pub all: Vec<Member>,
    /// The list of items.
    output: Option<Span>,
    entries: Vec<Entry>,
    /// Parsers differ on the items.
    is_ambiguous: bool,
}

impl ResponseMembers {
    /// Those of the object at the position of `scanner`, as far as they can be read.
    ///
    /// # Errors
    /// A [`Fault`] where it is no JSON object.
    pub fn read_from(&mut self, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
        // A response has more than a dozen.
        self.all.reserve(24);
        scanner.object()?;
        while let Some(key) = scanner.member()? {
            let is_output = *decode_bytes(key, scanner.text()) == *b"output";
            let value = if is_output { self.read_output(scanner)? } else { scanner.skip()? };
            self.all.push(Member { key, value });
        }
        Ok(())
    }

    /// Reads the value of `output`. Of several the last one counts.
    fn read_output(&mut self, scanner: &mut Scanner<'_>) -> Result<Span, Fault> {
        (self.output, self.entries, self.is_ambiguous) = (None, Vec::new(), false);
        if scanner.peek()? != Kind::Array {
            return scanner.skip();
        }
        let (start, mut ahead) = (scanner.at(), scanner.clone());
        let (entries, are_ambiguous) = entries(&mut ahead);
        let span = match are_ambiguous {
            Ok(_) => {
                *scanner = ahead;
                Span::new(start, scanner.at())
            }
            Err(_) => scanner.skip()?,
        };
        (self.output, self.entries, self.is_ambiguous) = (Some(span), entries, are_ambiguous.unwrap_or(true));
        Ok(span)
    }
}

impl Last {
    /// The last event of a stream.
    pub fn of_event(raw: Bytes, data: Bytes, mut event: Event) -> Self {
        let members = event.members.take().unwrap_or_else(|| {
            let mut members = Box::<ResponseMembers>::default();
            // What comes after a fault is no member.
            let _ = members.read_from(&mut Scanner::within(&data, event.response.unwrap_or_default()));
            members
        });
        let mut last = Self::of(data, *members, event);
        last.raw = Some(raw);
        last
    }

    /// A whole reply; `None` if it is none.
    pub fn of_body(body: &Bytes) -> Option<Self> {
        let (mut scanner, mut members) = (Scanner::tolerant(body), ResponseMembers::default());
        members.read_from(&mut scanner).ok()?;
        scanner.end().ok()?;
        let last = Self::of(body.clone(), members, Event::default());
        (last.output.is_some() || last.ambiguous).then_some(last)
    }

    fn of(data: Bytes, members: ResponseMembers, event: Event) -> Self {
        let ResponseMembers { all: members, output, entries, is_ambiguous } = members;
        let status = members.iter().rfind(|member| *decode_bytes(member.key, &data) == *b"status");
        let status = status.map(|status| status.value.of(&data));
        let cut = status == Some(b"\"incomplete\"") || event.type_of(&data) == "response.incomplete";
        let failed = matches!(status, Some(b"\"failed\"" | b"\"cancelled\""));
        let ambiguous = is_ambiguous || has_odd_output(&members, &data);
        Self { raw: None, event, members, entries, output, ambiguous, failed, cut, data }
    }

    /// The usage that it reports: that of the response or, as some gateways write it, one beside the response.
    fn usage(&self) -> Option<Span> {
        let is_report = |usage: &Span| usage.of(&self.data) != b"null";
        let beside = || {
            let members = members_of(&self.data, Span::new(0, self.data.len()));
            let usage =
                members.into_iter().rfind(|member| *decode_bytes(member.key, &self.data) == *b"usage");
            Some(usage?.value).filter(|usage| usage.of(&self.data).starts_with(b"{"))
        };
        self.member("usage").filter(is_report).or_else(beside)
    }

    /// The id of the response.
    pub fn id(&self) -> Option<String> {
        serde_json::from_slice(self.value("id")?).ok()
    }

    /// The members of the response that later ones repeat.
    pub fn head(&self) -> HeadMembers {
        // Of a stream the event is not kept for them.
        match self.raw {
            Some(_) => repeated(&self.members, &self.data, |value| self.copied(value)),
            None => repeated(&self.members, &self.data, |value| self.data.slice(value.range())),
        }
    }

    /// The same of an event that ends a stream: in one without a response they are its own.
    fn head_of_end(&self) -> HeadMembers {
        if self.raw.is_none() || self.event.response.is_some() {
            return self.head();
        }
        let members = members_of(&self.data, Span::new(0, self.data.len()));
        repeated(&members, &self.data, |value| self.copied(value))
    }

    fn copied(&self, value: Span) -> Bytes {
        Bytes::copy_from_slice(value.of(&self.data))
    }

    /// Its items.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Takes the calls of shells for what the request says that they are: see [`Item::settle`].
    pub fn settle_shells(&mut self, hosts_shell: bool) {
        self.entries.iter_mut().for_each(|entry| entry.item.settle(hosts_shell));
    }

    /// The JSON that its items are spans of.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Its items as copies of those that came before.
    pub fn copies(&self) -> Vec<Copied<'_>> {
        let data = &self.data[..];
        let entries = (0..).zip(&self.entries);
        entries
            .map(|(nth, Entry { item, .. })| Copied { item, data, nth, ids: Ids::of(item, data) })
            .collect()
    }

    /// Whether some client may find calls in it that it runs.
    pub fn has_calls(&self) -> bool {
        self.ambiguous || self.entries.iter().any(|entry| matches!(entry.item.kind, ItemKind::Call(_)))
    }

    /// Whether it may report an error as [`parse_in_200`](crate::error::parse_in_200) finds it.
    pub fn may_be_error(&self) -> bool {
        // Every response has the member, and `null` is no error.
        let is_set = |member: &&Member| {
            member.key.raw(&self.data) != b"error" || member.value.of(&self.data) != b"null"
        };
        may_be_in_200(self.members.iter().filter(is_set), &self.data)
    }

    /// The whole response, as JSON.
    pub fn response(&self) -> &[u8] {
        self.event.response.map_or(&self.data, |response| response.of(&self.data))
    }

    fn member(&self, name: &str) -> Option<Span> {
        let named = |member: &&Member| *decode_bytes(member.key, &self.data) == *name.as_bytes();
        self.members.iter().find(named).map(|member| member.value)
    }

    /// The value of a member of the response, as written.
    fn value(&self, name: &str) -> Option<&[u8]> {
        self.member(name).map(|value| value.of(&self.data))
    }

    /// Its copy of `item`, which is one of `items`.
    pub fn copy_of(&self, item: &OutItem, items: &[OutItem]) -> Option<Bytes> {
        let is_it = |entry: &&Entry| {
            entry.at.and_then(|at| items.get(at)).is_some_and(|known| std::ptr::eq(known, item))
                && !entry.differs
        };
        let entry = self.entries.iter().find(is_it)?;
        Some(self.data.slice(entry.item.span.range()))
    }

    /// Bytes kept.
    pub fn size(&self) -> usize {
        self.data.len()
    }
}

/// The kind under which an item is counted that no client runs.
fn carried_kind(item: &[u8]) -> &'static str {
    let members = members_of(item, Span::new(0, item.len()));
    let kind =
        members.iter().find(|member| member.key.raw(item) == b"type").map(|member| member.value.of(item));
    let is_it = |name: &&&str| kind.is_some_and(|kind| kind.trim_ascii() == format!("\"{name}\"").as_bytes());
    CARRIED.iter().find(is_it).unwrap_or(&"other")
}

/// Whether a response with these members has no list of items, or several, for some parsers.
fn has_odd_output(members: &[Member], data: &[u8]) -> bool {
    let is_output = |member: &&Member| is_same_name(&decode_bytes(member.key, data), b"output");
    let mut outputs = members.iter().filter(is_output);
    let Some(first) = outputs.next() else { return false };
    let (key, value) = (decode_bytes(first.key, data), first.value.of(data));
    let is_list = *key == *b"output" && value.starts_with(b"[");
    outputs.next().is_some() || (!is_list && may_be_read_as(&key, value, &[b"output"]))
}

/// The items of the list at the position of `scanner`, and whether parsers differ on them: one is ambiguous, a list, or (a
/// fault) too large to be read. What is neither an object nor a list holds no call for any parser.
fn entries(scanner: &mut Scanner<'_>) -> (Vec<Entry>, Result<bool, Fault>) {
    let mut entries = Vec::new();
    let mut read = || {
        let mut is_ambiguous = false;
        scanner.array()?;
        while scanner.element()? {
            let item = match scanner.peek()? {
                Kind::Object => parse_item(scanner)?,
                kind => {
                    is_ambiguous |= kind == Kind::Array;
                    Item { span: scanner.skip_kind(kind)?, ..Item::default() }
                }
            };
            is_ambiguous |= item.call.ambiguous;
            entries.push(Entry { item, at: None, differs: false });
        }
        Ok(is_ambiguous)
    };
    let is_ambiguous = read();
    (entries, is_ambiguous)
}

impl ResponsesReplies {
    /// Takes the last event of a stream, or a whole reply.
    pub(super) fn take_last(&mut self, mut last: Last, choices: &mut Vec<ReplyChoice>) -> Frame {
        last.settle_shells(self.hosts_shell);
        let raw = last.raw.clone().unwrap_or_else(|| last.data.clone());
        let mut events = ReplyEvents::new();
        let usage = last.usage().map(|usage| {
            let reports = SmallVec::from_elem(usage, 1);
            Box::new(FrameUsage { reports, model: last.member("model"), is_alone: false })
        });
        if self.head.is_empty() {
            self.head = last.head_of_end();
        }
        self.reply_id = last.id().or(self.reply_id.take()).filter(|_| !self.kept.is_own());
        // What follows a reply of its own cannot pass unjudged.
        let is_held_back = self.is_strict || self.is_later();
        if (last.ambiguous || last.entries.len() > MOST_ITEMS) && is_held_back {
            let why = if last.ambiguous { Unjudged::Ambiguous } else { Unjudged::ReplyTooLong };
            return Frame::new(raw, FrameKind::Unread(why));
        }
        if last.entries.len() > MOST_ITEMS {
            return Frame::new(raw, FrameKind::Unread(Unjudged::ReplyTooLong));
        }
        self.choice_of(choices);
        events.push(ReplyEvent::Choice(CHOICE));
        self.reconcile(&mut last, choices, &mut events);
        for at in 0..self.items.len() {
            self.settle_visibility(at, choices);
        }
        self.end_calls(choices);
        self.settle_names(choices, &mut events);
        let carried =
            self.items.iter().filter(|item| matches!(item.kind, ItemKind::Carried | ItemKind::Reasoning));
        self.carried.extend(carried.filter_map(|item| item.done.as_deref()).map(carried_kind));
        events.push(ReplyEvent::Finish { is_cut: last.cut });
        events.extend(last.failed.then_some(ReplyEvent::Error));
        let place = last.raw.as_ref().map(|raw| parse_fields(raw).place);
        let payload = match place {
            None => Payload::Span(Span::new(0, raw.len())),
            Some(Some(place)) => Payload::Span(place),
            Some(None) => Payload::Joined(Box::new(last.data.clone())),
        };
        let is_doubtful = last.ambiguous;
        self.last = Some(last);
        Frame { payload, usage, events, ends: true, is_doubtful, ..Frame::new(raw, FrameKind::Part) }
    }

    /// Finds for each item of the last event the one that it repeats. A call that came nowhere else is a new one.
    fn reconcile(&mut self, last: &mut Last, choices: &mut Vec<ReplyChoice>, events: &mut ReplyEvents) {
        for (nth, found) in self.repeated_by(last).into_iter().enumerate() {
            let (entry, data) = (&mut last.entries[nth], &last.data);
            let item = &entry.item;
            let (mut renames, mut is_new) = (false, false);
            let at = match found {
                Some(at) if self.items[at].done.is_some() => {
                    entry.differs = !self.items[at].may_become(item, data, &choices[0]);
                    entry.at = Some(at);
                    continue;
                }
                Some(at) => {
                    renames = self.items[at].complete(item, data);
                    at
                }
                None => {
                    is_new = true;
                    let mut new = OutItem::begin(None, item, data);
                    new.complete(item, data);
                    self.add(new, choices)
                }
            };
            entry.at = Some(at);
            if let (None, Some(content)) = (&self.items[at].call, &item.content) {
                events.extend(content.texts().map(|text| ReplyEvent::Text(text.span)));
            }
            if let Some(call) = &self.items[at].call {
                events.push(ReplyEvent::Call(CallPiece {
                    call: call.at as u16,
                    begins: is_new,
                    names: renames,
                    respells: renames,
                    ..CallPiece::default()
                }));
            }
        }
    }

    /// Reports the calls that clients may know by two names.
    fn settle_names(&self, choices: &[ReplyChoice], events: &mut ReplyEvents) {
        for item in self.items.iter().filter(|item| item.has_two_names() && self.is_strict) {
            let call = item.judged_in(&choices[0]).and(item.call.as_ref()).map(|call| call.at as u16);
            let piece = |call| CallPiece { call, is_ambiguous: true, ..CallPiece::default() };
            events.extend(call.map(|call| ReplyEvent::Call(piece(call))));
        }
    }

    /// The bytes of the last event, or of the whole reply, as the client gets them.
    pub(super) fn write_last(
        &mut self,
        choices: &[ReplyChoice],
        context: &WriteContext,
        out: &mut Vec<Bytes>,
    ) {
        let (Some(last), Some(choice)) = (self.last.take(), choices.first()) else { return };
        let is_question_alone = self.form == Form::Whole && choice.asks_approval() && !self.observes;
        if is_question_alone {
            self.earlier.retain(|item| text_of(item).is_empty());
        }
        let raw = last.raw.clone().unwrap_or_else(|| last.data.clone());
        let mut splices = Splices::default();
        if !self.observes {
            self.rebuild(&last, choice, context, &mut splices);
        }
        let sequence = self.numbers.next(last.event.sequence.map(|(_, number)| number));
        if let (Some((span, number)), Some(new)) = (last.event.sequence, sequence)
            && new != number
        {
            splices.replace(span, new.to_string());
        }
        let end = last.data.iter().rposition(|byte| *byte == b'}');
        if let Some((end, report)) = end.zip(self.report.take()) {
            splices.insert(end as u32, format!(",\"{REPORT}\":{report}"));
        }
        self.is_end_given = true;
        if splices.is_empty() {
            out.push(raw);
        } else {
            self.is_changed = true;
            let data = splices.apply(&last.data).join();
            out.push(if last.raw.is_some() { framed(&raw, &data) } else { data });
        }
        self.last = Some(last);
    }

    fn rebuild(&self, last: &Last, choice: &ReplyChoice, context: &WriteContext, splices: &mut Splices) {
        self.rebuild_output(last, choice, splices);
        if !self.is_later() && !self.has_head && context.usage.is_none() {
            return;
        }
        for member in &last.members {
            let key = decode_bytes(member.key, &last.data);
            let first = self.head.iter().find(|(name, _)| **name == *key).map(|(_, value)| value);
            if *key == *b"id"
                && let Some(id) = self.shown_id().map(|id| quote(&id))
            {
                if id.as_bytes() != member.value.of(&last.data) {
                    splices.replace(member.value, id);
                }
                continue;
            }
            if let Some(first) = first.filter(|first| **first != *member.value.of(&last.data)) {
                splices.replace(member.value, first.clone());
            }
            if let (b"usage", Some(sum)) = (&*key, &context.usage) {
                splices.replace(member.value, sum.to_string());
            }
        }
        let is_usage = |member: &Member| *decode_bytes(member.key, &last.data) == *b"usage";
        if let Some(sum) = &context.usage
            && let Some(end) = last.members.last().map(|member| member.value.end)
            && !last.members.iter().any(is_usage)
        {
            splices.insert(end, format!(",\"usage\":{sum}"));
        }
    }

    /// The list of items: those of earlier replies, then those of this one that the client has.
    fn rebuild_output(&self, last: &Last, choice: &ReplyChoice, splices: &mut Splices) {
        let Some(output) = last.output else { return };
        let has_upstreams = self.items.iter().any(|item| item.done.is_some());
        if last.entries.is_empty() && has_upstreams {
            // Some servers leave the list empty, and so do we.
            return;
        }
        let is_gone = |entry: &Entry| entry.at.is_some_and(|at| !self.items[at].is_shown(choice));
        splices.remove_items(&last.entries, |entry| entry.item.span, is_gone);
        for entry in last.entries.iter().filter(|entry| !is_gone(entry)) {
            let Some(item) = entry.at.map(|at| &self.items[at]) else { continue };
            if item.is_call_written(choice) {
                let call = item.written_call(choice).map(|(_, call)| call);
                splices.replace(entry.item.span, call.unwrap_or_default());
            } else if entry.differs
                && let Some(done) = &item.done
            {
                splices.replace(entry.item.span, done.clone());
            }
        }
        let before: Vec<Bytes> = self.earlier.iter().chain(&self.own_before).cloned().collect();
        let kept = last.entries.iter().filter(|entry| !is_gone(entry)).count();
        let mut start = before.join(&b","[..]);
        if !before.is_empty() && kept + self.own_after.len() > 0 {
            start.push(b',');
        }
        let mut end = self.own_after.join(&b","[..]);
        if !self.own_after.is_empty() && kept > 0 {
            end.insert(0, b',');
        }
        if !start.is_empty() {
            splices.insert(output.start + 1, start);
        }
        if !end.is_empty() {
            splices.insert(output.end - 1, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_items_are_those_of_the_last_list() {
        for (body, expected) in [
            (r#"{"id":"r","output":[{"type":"message"},7],"status":"completed"}"#, Some((2, false))),
            (r#"{"output":[{"type":"message"}],"output":[]}"#, Some((0, true))),
            (r#"{"output":[],"output":[{"type":"message"}]}"#, Some((1, true))),
            (r#"{"output":[{"type":"message"}],"output":1}"#, Some((0, true))),
            (r#"{"output":[[]]}"#, Some((1, true))),
            (r#"{"output":{}}"#, None),
            (r#"{"output":[{"type":"message"}}"#, None),
        ] {
            let last = Last::of_body(&Bytes::from_static(body.as_bytes()));
            assert_eq!(last.map(|last| (last.entries.len(), last.ambiguous)), expected, "{body}");
        }
    }
}
