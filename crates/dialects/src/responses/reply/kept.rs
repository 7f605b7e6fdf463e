//! Replies that the upstream keeps: from which of them a later request can continue, which items the upstream then needs first,
//! and under which id the client knows the reply. The upstream does not keep replies of toolrein's own, so the next request
//! brings their items.

use super::{Form, ResponsesReplies};
use crate::reply_choice::ReplyChoice;
use crate::responses::history::{HistoryRecord, continued_by};
use crate::responses::restore::{as_new, kind_and_id};
use crate::responses::{OWN_ID, in_conversation};
use crate::variant::PlannedRequest;
use bytes::Bytes;
use std::mem::discriminant;

/// What is known of the replies of one client request as the upstream keeps them.
#[derive(Default)]
pub struct ContinuableReplies {
    /// The next reply is toolrein's own.
    is_next_own: bool,
    /// The present one is.
    is_own: bool,
    /// The last reply of the upstream before the present reply.
    before: Option<KeptReply>,
}

/// A reply that the upstream keeps.
struct KeptReply {
    id: String,
    /// The results that the upstream waits for.
    owed: Vec<Bytes>,
}

impl ContinuableReplies {
    pub fn expect_own(&mut self) {
        self.is_next_own = true;
    }

    pub fn begin_reply(&mut self) {
        self.is_own = std::mem::take(&mut self.is_next_own);
    }

    /// Whether the present reply is toolrein's own.
    pub fn is_own(&self) -> bool {
        self.is_own
    }

    /// The present reply with this id has ended, and another one follows. `owed`: the results that the upstream waits for.
    pub fn end_reply(&mut self, id: Option<&str>, owed: Vec<Bytes>) {
        if let Some(id) = id.filter(|_| !self.is_own) {
            self.before = Some(KeptReply { id: id.to_owned(), owed });
        }
    }

    /// The id of the upstream's last reply, where the present one is toolrein's own.
    fn last_id(&self) -> Option<&str> {
        self.before.as_ref().filter(|_| self.is_own).map(|before| &*before.id)
    }
}

/// The ids of the last item of each kind: some clients refer only to what the model thought or said, and send the calls.
pub(super) fn last_of_each_kind(items: &[Bytes]) -> Vec<String> {
    let (mut kinds, mut ids) = (Vec::new(), Vec::new());
    for (kind, id) in items.iter().rev().filter_map(|item| kind_and_id(item)) {
        let kind = discriminant(&kind);
        if !kinds.contains(&kind) {
            kinds.push(kind);
            ids.push(id);
        }
    }
    ids
}

impl ResponsesReplies {
    /// The id under which the client has the reply. Where toolrein's own reply ends it and its head was not sent before, it is
    /// that of the upstream's last reply, so that the upstream knows it whatever is forgotten here.
    pub(super) fn shown_id(&self) -> Option<String> {
        let last = self.kept.last_id().filter(|_| self.form == Form::Whole);
        let first = || {
            let (_, id) = self.head.iter().find(|(name, _)| name == b"id")?;
            serde_json::from_slice(id).ok()
        };
        last.map(str::to_owned).or_else(first)
    }

    /// The items of all replies that the client has, as JSON.
    pub(super) fn shown_items(&self, choice: &ReplyChoice) -> Vec<Bytes> {
        self.earlier.iter().cloned().chain(self.present_items(choice)).collect()
    }

    /// Those of the present reply.
    fn present_items<'a>(&'a self, choice: &'a ReplyChoice) -> impl Iterator<Item = Bytes> + 'a {
        let items =
            self.items.iter().filter(|item| item.is_shown(choice)).filter_map(|item| item.done.clone());
        self.own_before.iter().cloned().chain(items).chain(self.own_after.iter().cloned())
    }

    /// Whether the client has items of toolrein's own.
    fn has_own_items(&self) -> bool {
        let is_own = |item: &Bytes| kind_and_id(item).is_some_and(|(_, id)| id.starts_with(OWN_ID));
        let adds_text = !self.own_before.is_empty() || !self.own_after.is_empty();
        self.kept.is_own || adds_text || self.earlier.iter().any(is_own)
    }

    /// See [`ReplyCodec::history`](crate::codec::ReplyCodec::history). Where the client sends its history itself, it may
    /// still refer to items of the reply; those of toolrein's own are known here alone.
    pub(super) fn kept_history(
        &self,
        planned: &PlannedRequest<'_>,
        choice: &ReplyChoice,
    ) -> Option<(String, Bytes)> {
        let PlannedRequest { request, body, .. } = *planned;
        let is_needed = request.may_be_continued || (request.is_stored && self.has_own_items());
        if !is_needed || !self.is_end_given {
            return None;
        }
        // In a conversation the name stays the same.
        let conversation = request.continues.clone().filter(|_| in_conversation(request, body));
        let name = conversation.or_else(|| self.shown_id())?;
        let (upstream_id, owed) = if !self.kept.is_own {
            (self.reply_id.clone()?, self.owed(choice))
        } else {
            let (id, mut owed) = match &self.kept.before {
                Some(before) => (before.id.clone(), before.owed.clone()),
                None => continued_by(planned),
            };
            owed.extend(self.present_items(choice).map(|item| as_new(&item)));
            (id, owed)
        };
        let shown = self.shown_items(choice);
        let mut known = HistoryRecord::after(planned, upstream_id, &shown, &owed);
        if self.kept.is_own {
            let ids = self.present_items(choice).filter_map(|item| Some(kind_and_id(&item)?.1));
            known = known.with_own_ids(ids);
        }
        if self.kept.is_own && self.kept.before.is_none() && !in_conversation(request, body) {
            known = known.with_own_reply(&self.own_response(&shown));
        }
        Some((name, known.to_bytes()))
    }

    /// The response of toolrein's own that holds `items`.
    fn own_response(&self, items: &[Bytes]) -> Vec<u8> {
        let is_kept = |name: &[u8]| !matches!(name, b"output" | b"status" | b"usage");
        let members = self.head.iter().filter(|(name, _)| is_kept(name));
        let mut response = br#"{"object":"response","#.to_vec();
        for (name, value) in members {
            response.extend([&b"\""[..], &name[..], b"\":", &value[..], b","].concat());
        }
        response.extend_from_slice(br#""status":"completed","usage":null,"output":["#);
        response.extend(items.join(&b','));
        response.extend_from_slice(b"]}");
        response
    }
}
