//! The writer of whole replies: the first reply's bytes, without the blocks that the client does not see, with the blocks of later
//! replies and texts of toolrein's in its content, and with the last reply's end.

use super::MessagesReplies;
use super::block::{Block, NewMembers, elements, own_value, set_members};
use super::convert::AT_END;
use super::write::remove_results;
use crate::codec::{Frame, Payload, WriteContext};
use crate::reply_choice::ReplyChoice;
use bytes::Bytes;
use serde_json::Value;
use wire::body::Span;
use wire::json::{decode_bytes, quote};
use wire::members::members_of;
use wire::splice::Splices;

/// The members of a message that are those of the last reply.
const OF_LAST: [&str; 2] = ["diagnostics", "context_management"];

/// What of a whole reply the client gets.
#[derive(Debug)]
enum BlockEdit {
    Keep,
    Cut,
    Replace(Bytes),
}

/// The content of the client's message besides what stays of the first reply.
#[derive(Debug, Default)]
pub(super) struct ClientContent {
    /// What becomes of the first reply's blocks; none as long as that reply is the present one.
    first: Option<Vec<BlockEdit>>,
    /// toolrein's texts before all blocks.
    before: Vec<Bytes>,
    /// The blocks after those of the first reply.
    after: Vec<Bytes>,
    /// toolrein's texts after the present reply.
    own: Vec<Bytes>,
}

impl ClientContent {
    /// Adds a text of toolrein's.
    pub(super) fn add_text(&mut self, text: &str, before: bool) {
        let block = format!(r#"{{"type":"text","text":{}}}"#, quote(text)).into();
        if before { self.before.push(block) } else { self.own.push(block) }
    }

    /// Bytes in memory.
    pub(super) fn size(&self) -> usize {
        self.before.iter().chain(&self.after).chain(&self.own).map(Bytes::len).sum()
    }
}

impl MessagesReplies {
    /// The present reply has ended: keeps what the client gets of it.
    pub(super) fn keep_content(&mut self, choice: &ReplyChoice) {
        let edit = |block: &Block| match block.written(choice) {
            _ if !block.is_visible(choice) => BlockEdit::Cut,
            Some(json) => BlockEdit::Replace(json),
            None => BlockEdit::Keep,
        };
        let blocks = self.blocks.all();
        if self.content.first.is_none() {
            self.content.first = Some(blocks.iter().map(edit).collect());
        } else {
            let shown = blocks.iter().filter_map(|block| match edit(block) {
                BlockEdit::Cut => None,
                BlockEdit::Replace(json) => Some(json),
                BlockEdit::Keep => Some(block.json()),
            });
            self.content.after.extend(shown);
        }
        self.content.after.append(&mut self.content.own);
    }

    pub(super) fn write_whole(
        &mut self,
        frames: &[Frame],
        choice: &ReplyChoice,
        context: &WriteContext,
        out: &mut Vec<Bytes>,
    ) {
        let ([first, ..], [.., last]) = (frames, frames) else { return };
        let (data, end) = (first.payload(), last.payload());
        let mut splices = Splices::default();
        let mut new: NewMembers<'_> = Vec::new();
        if context.acts {
            self.keep_content(choice);
            self.edit_content(data, &mut splices, &mut new);
        }
        if frames.len() > 1 {
            for name in AT_END.iter().chain(&OF_LAST) {
                let (of_first, of_last) = (own_value(data, name.as_bytes()), own_value(end, name.as_bytes()));
                let value = of_last.map_or_else(|| b"null".to_vec(), <[u8]>::to_vec);
                if of_last.is_some() || of_first.is_some_and(|value| value != b"null") {
                    new.push((name.as_bytes(), value));
                }
            }
        } else if context.acts {
            remove_results(&mut splices, data, choice);
        }
        let reason = match self.stop_reason {
            reason if last.number == self.messages => reason.map(|reason| reason.of(end)),
            _ => own_value(end, b"stop_reason"),
        };
        let reason = reason.unwrap_or_default();
        if let Some(reason) = self.reason(reason, choice, context) {
            new.retain(|(name, _)| *name != b"stop_reason");
            new.push((b"stop_reason", quote(reason).into_bytes()));
        }
        new.extend(context.usage.as_ref().map(|usage| (&b"usage"[..], Value::to_string(usage).into_bytes())));
        set_members(&mut splices, data, Span::new(0, data.len()), new);
        if splices.is_empty() {
            return out.push(first.raw.clone());
        }
        self.is_changed = true;
        let Payload::Span(at) = first.payload else { return out.push(first.raw.clone()) };
        out.push(first.raw.slice(..at.start as usize));
        out.extend(splices.apply(&first.raw.slice(at.range())).into_pieces());
    }

    /// The edits of the first reply's content.
    fn edit_content(&self, data: &[u8], splices: &mut Splices, new: &mut NewMembers<'_>) {
        let ClientContent { first, before, after, .. } = &self.content;
        let members = members_of(data, Span::new(0, data.len()));
        let content = members.iter().rfind(|member| *decode_bytes(member.key, data) == *b"content");
        let list = content.and_then(|content| Some((content.value, elements(data, content.value)?)));
        let Some((list, blocks)) = list else {
            let all: Vec<Bytes> = before.iter().chain(after).cloned().collect();
            if !all.is_empty() {
                new.push((b"content", [b"[", &all.join(&b","[..])[..], b"]"].concat()));
            }
            return;
        };
        let edits: Vec<&BlockEdit> = first.iter().flatten().collect();
        let is_cut = |at: usize| matches!(edits.get(at), Some(BlockEdit::Cut));
        let items: Vec<(usize, Span)> = blocks.iter().copied().enumerate().collect();
        splices.remove_items(&items, |(_, block)| *block, |(at, _)| is_cut(*at));
        for ((_, block), edit) in items.iter().zip(&edits) {
            if let BlockEdit::Replace(json) = edit {
                splices.replace(*block, json.clone());
            }
        }
        let has_kept = items.iter().any(|(at, _)| !is_cut(*at));
        if !before.is_empty() {
            let comma: &[u8] = if has_kept || !after.is_empty() { b"," } else { b"" };
            splices.insert(list.start + 1, [&before.join(&b","[..])[..], comma].concat());
        }
        if !after.is_empty() {
            let comma: &[u8] = if has_kept { b"," } else { b"" };
            splices.insert(list.end - 1, [comma, &after.join(&b","[..])[..]].concat());
        }
    }
}
