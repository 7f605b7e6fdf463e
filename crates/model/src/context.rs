//! A digest of what the model saw before a message: texts, images and other parts, calls and results of every message
//! before it. Two conversations that differ in any of these have different digests; the form in which a client writes
//! the same content makes no difference. Reasoning, and members of assistant messages such as `name`, are left out,
//! because clients add and drop them between requests.

use super::identity::{Domain, Hash, HashKey};
use crate::message::{Content, Message, Role};
use std::borrow::Cow;
use wire::body::{Scanner, Span};
use wire::json::{decode, decode_bytes};

type Piece<'a> = Cow<'a, [u8]>;

/// The digest after `before` and one more message; `content` is the hash of its content, `calls` are its keys.
pub(super) fn context_after(
    before: Hash,
    content: Hash,
    calls: impl Iterator<Item = Hash>,
    key: &HashKey,
) -> Hash {
    let mut bytes = Vec::with_capacity(64);
    for hash in [before, content].into_iter().chain(calls) {
        bytes.extend_from_slice(&hash.0.to_le_bytes());
    }
    key.hash(Domain::Context, &[&bytes])
}

/// As [`context_after`], equal for conversations that differ in the ids of calls alone. `calls`: the name and the hash of
/// the arguments of each. Its parts are keyed hashes, so they are combined by arithmetic, in a tenth of a hash's time.
pub(super) fn context_without_ids_after<'a>(
    before: Hash,
    content: Hash,
    calls: impl Iterator<Item = (&'a str, Hash)>,
) -> Hash {
    /// An odd number with as many ones as zeros: 2^128 divided by the golden ratio.
    const FACTOR: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    let combine = |before: u128, part: u128| (before ^ part).wrapping_mul(FACTOR).rotate_left(64);
    let name = |name: &str| name.bytes().fold(1, |before, byte| combine(before, byte.into()));
    let after = combine(before.0, content.0);
    Hash(calls.fold(after, |before, (tool, arguments)| combine(combine(before, arguments.0), name(tool))))
}

/// The hash of a message's content, without its calls and without ids.
pub(super) fn content_hash(message: &Message, body: &[u8], key: &HashKey) -> Hash {
    let named = |tag: &'static [u8], text: Option<_>| {
        text.map(|text| [Piece::Borrowed(tag), decode_bytes(text, body)]).into_iter().flatten()
    };
    let mut pieces: Vec<Piece<'_>> = Vec::new();
    match message.role {
        Role::System | Role::User => {
            let role: &[u8] = if message.role == Role::User { b"user" } else { b"system" };
            pieces.push(role.into());
            pieces.extend(named(b"name", message.name));
            pieces.extend(content(&message.content, body));
        }
        Role::Assistant => {
            pieces.push(b"assistant".into());
            pieces.extend(content(&message.content, body));
        }
        Role::Tool => {
            pieces.push(b"tool".into());
            // The deprecated form has no id.
            pieces.extend(named(b"name", message.name.filter(|_| message.tool_call_id.is_none())));
            match &message.content {
                // Results are hashed as written: a client always sends a result in the same form, and most bytes of a
                // conversation are results.
                Content::Text(text) => pieces.extend([Piece::Borrowed(b"text"), text.raw(body).into()]),
                other => pieces.extend(content(other, body)),
            }
        }
        Role::Other => pieces.extend([b"other".into(), message.span.of(body).into()]),
    }
    key.hash_all(Domain::Context, pieces.iter().map(|piece| &**piece))
}

/// The content of a message: its texts without surrounding white space, joined where no other part comes between, and
/// its other parts. None, null and "" are no content.
fn content<'a>(content: &Content, body: &'a [u8]) -> Vec<Piece<'a>> {
    let text = |text: Cow<'a, str>| match text {
        Cow::Borrowed(text) => Piece::Borrowed(text.trim().as_bytes()),
        Cow::Owned(text) => text.trim().as_bytes().to_vec().into(),
    };
    let mut pieces = Vec::new();
    match content {
        Content::Absent | Content::Null(_) => {}
        Content::Text(said) => pieces.extend([Piece::Borrowed(b"text"), text(decode(*said, body))]),
        Content::Other(span) => pieces.extend([Piece::Borrowed(b"value"), span.of(body).into()]),
        Content::Parts { parts, .. } => {
            let mut so_far = String::new();
            for part in parts {
                match part.text {
                    Some(more) => so_far.push_str(&decode(more, body)),
                    None => {
                        pieces.extend([Piece::Borrowed(b"text"), text(std::mem::take(&mut so_far).into())]);
                        pieces.push(b"part".into());
                        pieces.extend(part_pieces(part.span, body));
                    }
                }
            }
            pieces.extend([Piece::Borrowed(b"text"), text(so_far.into())]);
        }
    }
    without_blanks(pieces)
}

/// Leaves out empty texts, so that clients may represent no content in their own way.
fn without_blanks(pieces: Vec<Piece<'_>>) -> Vec<Piece<'_>> {
    let mut kept: Vec<Piece<'_>> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        if piece.is_empty() && kept.last().is_some_and(|tag| **tag == *b"text") {
            kept.pop();
        } else {
            kept.push(piece);
        }
    }
    kept
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
