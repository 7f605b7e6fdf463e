//! A digest of what the model saw before a message: texts, images and other parts, calls and results of every message
//! before it. Two conversations that differ in any of these have different digests; the form in which a client writes
//! the same content makes no difference. Reasoning, and members of assistant messages such as `name`, are left out,
//! because clients add and drop them between requests.

use super::identity::{CallKey, Domain, Hash, HashKey};
use crate::message::{Content, Message, Role};
use smallvec::SmallVec;
use std::borrow::Cow;
use wire::body::{Scanner, Span};
use wire::json::{decode_bytes, respelled, trim_spelled};

type Piece<'a> = Cow<'a, [u8]>;

/// Most messages have one text.
type Pieces<'a> = SmallVec<[Piece<'a>; 6]>;

/// The digest after `before` and one more message; `content` is the hash of its content, `calls` are its keys.
pub(super) fn context_after(before: Hash, content: Hash, calls: impl Iterator<Item = Hash>) -> Hash {
    calls.fold(before.combined_with(content), Hash::combined_with)
}

/// As [`context_after`], equal for conversations that differ in the ids of calls alone. `calls`: the hashes of the name and of
/// the arguments of each.
pub(super) fn context_without_ids_after(
    before: Hash,
    content: Hash,
    calls: impl Iterator<Item = (Hash, Hash)>,
) -> Hash {
    calls.fold(before.combined_with(content), |before, (name, arguments)| {
        key_without_id(before, name, arguments)
    })
}

/// The key of a call with these hashes of its name and its arguments, after what the model saw before it.
pub(super) fn key_without_id(context: Hash, name: Hash, arguments: Hash) -> CallKey {
    context.combined_with(arguments).combined_with(name)
}

/// Whether a message is the assistant's and has no content: most of those that call tools. They all have one
/// [`content_hash`].
pub(super) fn says_nothing(message: &Message) -> bool {
    message.role == Role::Assistant
        && match &message.content {
            Content::Absent | Content::Null(_) => true,
            Content::Parts { parts, .. } => parts.is_empty(),
            Content::Text(_) | Content::Other(_) => false,
        }
}

/// The content hash of every message that [`says_nothing`].
pub(super) fn hash_of_nothing(key: &HashKey) -> Hash {
    key.hash(Domain::Context, &[ASSISTANT])
}

const ASSISTANT: &[u8] = b"assistant";

/// The hash of a message's content, without its calls and without ids.
pub(super) fn content_hash(message: &Message, body: &[u8], key: &HashKey) -> Hash {
    // Results are hashed as written: a client always sends a result in the same form, and most bytes of a conversation
    // are results. The deprecated form has no id.
    if let (Role::Tool, Content::Text(text), Some(_)) = (message.role, &message.content, message.tool_call_id)
    {
        return key.hash(Domain::Context, &[b"tool", b"text", text.raw(body)]);
    }
    let named = |tag: &'static [u8], text: Option<_>| {
        text.map(|text| [Piece::Borrowed(tag), decode_bytes(text, body)]).into_iter().flatten()
    };
    let mut pieces = Pieces::new();
    match message.role {
        Role::System | Role::User => {
            let role: &[u8] = if message.role == Role::User { b"user" } else { b"system" };
            pieces.push(role.into());
            pieces.extend(named(b"name", message.name));
            add_content(&message.content, body, &mut pieces);
        }
        Role::Assistant => {
            pieces.push(ASSISTANT.into());
            add_content(&message.content, body, &mut pieces);
        }
        Role::Tool => {
            pieces.push(b"tool".into());
            pieces.extend(named(b"name", message.name.filter(|_| message.tool_call_id.is_none())));
            match &message.content {
                Content::Text(text) => pieces.extend([Piece::Borrowed(b"text"), text.raw(body).into()]),
                other => add_content(other, body, &mut pieces),
            }
        }
        Role::Other => pieces.extend([b"other".into(), message.span.of(body).into()]),
    }
    key.hash_all(Domain::Context, pieces.iter().map(|piece| &**piece))
}

/// Adds the content of a message: its texts without surrounding white space, joined where no other part comes between, and
/// its other parts. None, null and "" are no content. Texts are [`respelled`] and not decoded: most then need no copy.
fn add_content<'a>(content: &Content, body: &'a [u8], pieces: &mut Pieces<'a>) {
    match content {
        Content::Absent | Content::Null(_) => {}
        Content::Text(said) => add_text(respelled(*said, body), pieces),
        Content::Other(span) => pieces.extend([Piece::Borrowed(b"value"), span.of(body).into()]),
        Content::Parts { parts, .. } => {
            let mut so_far = Piece::Borrowed(b"");
            for part in parts {
                match part.text {
                    Some(first) if so_far.is_empty() => so_far = respelled(first, body),
                    Some(more) => so_far.to_mut().extend_from_slice(&respelled(more, body)),
                    None => {
                        add_text(std::mem::take(&mut so_far), pieces);
                        pieces.push(b"part".into());
                        pieces.extend(part_pieces(part.span, body));
                    }
                }
            }
            add_text(so_far, pieces);
        }
    }
}

/// Adds a text, unless it is blank: clients represent no content in their own ways.
fn add_text<'a>(text: Piece<'a>, pieces: &mut Pieces<'a>) {
    let text = match text {
        Piece::Borrowed(text) => Piece::Borrowed(trim_spelled(text)),
        Piece::Owned(text) => Piece::Owned(trim_spelled(&text).to_vec()),
    };
    if !text.is_empty() {
        pieces.extend([Piece::Borrowed(b"text"), text]);
    }
}

/// Whether two parts that are not text have equal members, whatever their order and marks for the provider's
/// cache.
pub(super) fn is_same_part(one: &[u8], other: &[u8]) -> bool {
    if one == other {
        return true;
    }
    // Two pictures are long, and a cache mark is short.
    let longest_mark = 128;
    let whole = |part: &[u8]| Span::new(0, part.len());
    one.len().abs_diff(other.len()) <= longest_mark
        && part_pieces(whole(one), one) == part_pieces(whole(other), other)
}

/// The members of a part that is not text, sorted by name: clients write them in different orders. Cache marks are
/// left out, since they move with the conversation.
fn part_pieces(part: Span, body: &[u8]) -> Vec<Piece<'_>> {
    let whole = || vec![Piece::Borrowed(part.of(body))];
    let mut scanner = Scanner::within(body, part);
    if scanner.object().is_err() {
        return whole();
    }
    let mut members = Vec::new();
    loop {
        let Ok(key) = scanner.member() else { return whole() };
        let Some(key) = key else { break };
        let Ok(value) = scanner.skip() else { return whole() };
        members.push((decode_bytes(key, body), value));
    }
    members.retain(|(key, _)| **key != *b"cache_control");
    members.sort_by(|(one, _), (other, _)| one.cmp(other));
    members.into_iter().flat_map(|(key, value)| [key, value.of(body).into()]).collect()
}
