//! Replies that the upstream keeps: from which of them a later request can continue, which items the upstream then needs first,
//! and under which id the client knows the reply. The upstream does not keep replies of toolrein's own, so the next request
//! brings their items.

use super::{Form, ResponsesReplies};
use crate::reply_choice::ReplyChoice;
use crate::responses::history::{HistoryRecord, continued_by};
use crate::responses::in_conversation;
use crate::responses::item::{CallKind, ItemKind};
use crate::responses::restore::{kind_of, without_id};
use crate::variant::PlannedRequest;
use bytes::Bytes;

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

    /// See [`Reply::history`](crate::reply::Reply::history).
    pub(super) fn kept_history(
        &self,
        planned: &PlannedRequest<'_>,
        choice: &ReplyChoice,
    ) -> Option<(String, Bytes)> {
        let PlannedRequest { request, body, .. } = *planned;
        if !request.may_be_continued || !self.is_end_given {
            return None;
        }
        // In a conversation the name stays the same.
        let conversation = request.continues.clone().filter(|_| in_conversation(request, body));
        let name = conversation.or_else(|| self.shown_id())?;
        let items =
            self.items.iter().filter(|item| item.is_shown(choice)).filter_map(|item| item.done.clone());
        let present: Vec<Bytes> =
            self.own_before.iter().cloned().chain(items).chain(self.own_after.iter().cloned()).collect();
        let (upstream_id, owed) = if !self.kept.is_own {
            (self.reply_id.clone()?, self.owed(choice))
        } else {
            let (id, mut owed) = match &self.kept.before {
                Some(before) => (before.id.clone(), before.owed.clone()),
                None => continued_by(planned),
            };
            owed.extend(present.iter().map(|item| {
                // The client answers it by its `id`.
                let is_shell = kind_of(item) == ItemKind::Call(CallKind::LocalShell);
                if is_shell { item.clone() } else { without_id(item) }
            }));
            (id, owed)
        };
        let shown: Vec<Bytes> = self.earlier.iter().cloned().chain(present).collect();
        let mut known = HistoryRecord::after(planned, upstream_id, &shown, &owed);
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
