//! The markup filter of a final answer: removes calls that the model wrote as text from the events of a stream and from
//! whole replies. `dialect::markup` recognises the markup; this module edits the JSON. A text comes up to four times in
//! a stream (deltas, its end, its part, its item) and once more in the last event: all say the same. Bytes without
//! markup stay.

use super::event::{Class, Event, Index};
use super::last::Last;
use super::{Form, ResponsesReplies};
use crate::error::UpstreamError;
use crate::lines::framed;
use crate::markup::{TextCleaner, ToolNames};
use crate::reply_choice::ReplyChoice;
use crate::responses::item::{Item, ItemKind};
use bytes::Bytes;
use wire::body::{Scanner, Span, Str};
use wire::json::{decode, decode_bytes, escaped};
use wire::members::members_of;
use wire::splice::Splices;
use wire::sse::parse_fields;

/// The name of a text that comes in pieces: the item that holds it, by its number and its id, and its number in the item.
type TextName = (Option<Index>, String, u64);

/// The filters of one reply's texts.
#[derive(Debug)]
pub(super) struct Cleaner {
    texts: TextCleaner<TextName>,
    /// The data of the last event of each text: held text goes out in the same form.
    last: Vec<(TextName, Bytes)>,
}

/// An event without markup.
struct Cleaned {
    splices: Splices,
    /// The data of events that go out before it: text that was held and is no markup.
    before: Vec<Bytes>,
    /// It says something.
    is_visible: bool,
}

impl Cleaner {
    /// A filter of texts in which the model may have written calls of these tools.
    pub(super) fn new(tools: ToolNames) -> Self {
        Self { texts: TextCleaner::new(tools), last: Vec::new() }
    }

    /// Whether something was removed from the reply.
    pub(super) fn has_cut(&self) -> bool {
        self.texts.has_cut()
    }

    /// Cleans the texts of a message; returns whether anything of them remains.
    fn message(&mut self, item: &Item, data: &[u8], splices: &mut Splices) -> bool {
        if !matches!(item.kind, ItemKind::Message(_)) {
            return false;
        }
        let texts: Vec<Str> = item.content.iter().flat_map(|content| content.texts()).collect();
        self.texts.clean_whole(&texts, data, splices)
    }

    /// Cleans the messages of a response.
    fn response(&mut self, last: &Last, response: Span, data: &[u8], splices: &mut Splices) {
        for entry in last.entries() {
            self.message(&entry.item, data, splices);
        }
        if let Some(text) = text_member(response, "output_text", data) {
            self.texts.clean_whole(&[text], data, splices);
        }
    }

    /// Cleans an event of a stream.
    fn event(&mut self, raw: &Bytes, event: &Event, data: &Bytes) -> Cleaned {
        let mut cleaned = Cleaned { splices: Splices::default(), before: Vec::new(), is_visible: false };
        let whole = Span::new(0, data.len());
        if let Some(response) = event.response {
            if matches!(event.class(data), Class::Life { ended: true }) {
                self.end_texts(|_| true, &mut cleaned);
            }
            let last = Last::of_event(raw.clone(), data.clone(), event.clone());
            self.response(&last, response, data, &mut cleaned.splices);
        } else if let Some(item) = &event.item {
            if event.class(data) == Class::Done {
                let (index, id) = (event.index.map(|(_, index)| index), item.id.map(|id| decode(id, data)));
                let is_of_item = |name: &TextName| {
                    let is_same = index.is_some() && name.0 == index;
                    is_same || id.as_deref().is_some_and(|id| *id == name.1)
                };
                self.end_texts(is_of_item, &mut cleaned);
            }
            cleaned.is_visible |= self.message(item, data, &mut cleaned.splices);
        } else if is_of_text(&event.type_of(data)) {
            self.piece(event, data, whole, &mut cleaned);
        }
        cleaned
    }

    /// Cleans a piece of a text, its end, or the part that holds it.
    fn piece(&mut self, event: &Event, data: &Bytes, whole: Span, cleaned: &mut Cleaned) {
        let name = name_of(event, data, whole);
        if let Some(delta) = event.delta {
            let visible = self.texts.clean_piece(name.clone(), delta, false, data, &mut cleaned.splices);
            cleaned.is_visible |= visible;
            self.last.retain(|(known, _)| *known != name);
            self.last.push((name, data.clone()));
            return;
        }
        let part =
            members_of(data, whole).into_iter().find(|member| *decode_bytes(member.key, data) == *b"part");
        let text = match part {
            Some(part) => text_member(part.value, "text", data),
            None => text_member(whole, "text", data),
        };
        if let Some(text) = text {
            self.end_texts(|known| *known == name, cleaned);
            cleaned.is_visible |= self.texts.clean_whole(&[text], data, &mut cleaned.splices);
        }
    }

    /// Ends texts: what was held of them goes out.
    fn end_texts(&mut self, ends: impl Fn(&TextName) -> bool, cleaned: &mut Cleaned) {
        for (name, rest) in self.texts.end(&ends) {
            cleaned.is_visible |= !rest.trim().is_empty();
            let last = self.last.iter().find(|(known, _)| *known == name);
            cleaned.before.extend(last.and_then(|(_, last)| with_delta(last, &rest)));
        }
        self.last.retain(|(name, _)| !ends(name));
    }
}

/// Whether events of this type are of a text that a person reads.
fn is_of_text(kind: &str) -> bool {
    let is_text = kind.contains("output_text") || kind.contains("content_part") || kind.contains(".text.");
    is_text && !kind.contains("reasoning") && !kind.contains("annotation")
}

/// The text under this name, if it is one.
fn text_member(object: Span, name: &str, data: &[u8]) -> Option<Str> {
    let members = members_of(data, object);
    let member = members.iter().rfind(|member| *decode_bytes(member.key, data) == *name.as_bytes())?;
    Scanner::within(data, member.value).string().ok()
}

/// The text that the event is of.
fn name_of(event: &Event, data: &[u8], whole: Span) -> TextName {
    let members = members_of(data, whole);
    let value = |name: &[u8]| {
        members
            .iter()
            .find(|member| *decode_bytes(member.key, data) == *name)
            .map(|member| member.value.of(data))
    };
    let id = value(b"item_id").and_then(|id| serde_json::from_slice(id).ok()).unwrap_or_default();
    let part =
        value(b"content_index").and_then(|index| serde_json::from_slice(index).ok()).unwrap_or_default();
    (event.index.map(|(_, index)| index), id, part)
}

/// The data of a delta with another text.
fn with_delta(data: &Bytes, text: &str) -> Option<Bytes> {
    let delta = Event::parse(data).ok()?.delta?;
    let mut splices = Splices::default();
    splices.replace(delta.span, escaped(text));
    Some(splices.apply(data).join())
}

impl ResponsesReplies {
    /// The event without call markup, if the model was asked for its final answer. Held text that goes
    /// out before it is added to the texts that are read next.
    pub(super) fn without_markup(
        &mut self,
        raw: Bytes,
        event: Event,
        data: Bytes,
        choices: &mut [ReplyChoice],
    ) -> (Bytes, Event, Bytes) {
        let Some(markup) = &mut self.markup else { return (raw, event, data) };
        let Cleaned { splices, before, is_visible } = markup.event(&raw, &event, &data);
        if is_visible {
            choices.iter_mut().for_each(ReplyChoice::show_waiting_texts);
        }
        for data in before.into_iter().rev() {
            self.numbers.rewrite();
            let Ok(event) = Event::parse(&data) else { continue };
            let kind = event.type_of(&data).into_owned();
            let raw: Bytes = [b"event: ", kind.as_bytes(), b"\ndata: ", &data, b"\n\n"].concat().into();
            self.texts.push((raw, event, data));
        }
        if splices.is_empty() {
            return (raw, event, data);
        }
        self.is_changed = true;
        let cleaned = framed(&raw, &splices.apply(&data).join());
        let fields = parse_fields(&cleaned);
        let data = fields
            .place
            .map_or_else(|| Bytes::copy_from_slice(&fields.data), |place| cleaned.slice(place.range()));
        match Event::parse_named(fields.name, &data) {
            Ok(event) => (cleaned.clone(), event, data),
            Err(_) => (raw, event, data),
        }
    }

    /// A whole reply without call markup.
    pub(super) fn without_markup_in_body(&mut self, body: Bytes) -> Bytes {
        let Some(markup) = self.markup.as_mut().filter(|_| self.form == Form::Whole) else { return body };
        let Some(last) = Last::of_body(&body) else { return body };
        let mut splices = Splices::default();
        markup.response(&last, Span::new(0, body.len()), &body, &mut splices);
        if splices.is_empty() {
            return body;
        }
        self.is_changed = true;
        splices.apply(&body).join()
    }

    /// Whether the server stopped reading the model's calls because toolrein wrote a list of allowed tools into the request: it
    /// passes the model's own markup on as the answer. vLLM 0.32 does so in whole replies.
    pub(super) fn lost_calls(&self, last: &Last) -> bool {
        let Some(tools) = self.tools.clone().filter(|_| self.form == Form::Whole && !last.has_calls()) else {
            return false;
        };
        let mut cleaner = Cleaner::new(tools);
        for entry in last.entries() {
            cleaner.message(&entry.item, last.data(), &mut Splices::default());
        }
        cleaner.has_cut()
    }
}

/// What such a reply says of the request, as an error would.
pub(super) fn no_calls_with_a_list() -> UpstreamError {
    UpstreamError {
        messages: vec!["calls are not read with a list of allowed tools".to_owned()],
        param: Some("tool_choice".to_owned()),
        ..UpstreamError::default()
    }
}
