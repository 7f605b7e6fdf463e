//! Ids of calls that strict upstreams refuse: those that an earlier call of the conversation has, and those that are
//! empty, too long, or of other characters than letters, digits, `_` and `-`. The first call with an id keeps it; a later
//! one gets an id of its own, and its result the same.

use super::Pairing;
use model::adaptation::{Adaptation, Adaptations};
use model::message::Role;
use model::request::Request;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use wire::body::Str;
use wire::json::{decode, quote};
use wire::splice::Splices;

/// The longest id of a call that OpenAI's chat completions accept.
const LONGEST: usize = 40;
/// The length of a new id: Mistral accepts nine letters and digits and nothing else, and every other provider does too.
const NEW: usize = 9;

/// The ids in the history that are refused in one of the ways `of`, each with the one that takes its place. What an id
/// becomes depends on the calls before it alone, so that it is the same in every later request.
pub(super) fn new_ids(
    request: &Request,
    body: &[u8],
    pairing: &dyn Pairing,
    of: Adaptations,
) -> Vec<(Str, String)> {
    let mut found = Vec::new();
    let mut seen: HashSet<String> = HashSet::new();
    // The calls of the last assistant message by their ids, the last call first: some providers give several the same.
    let mut open: HashMap<Cow<'_, str>, Vec<Option<String>>> = HashMap::new();
    for message in &request.messages {
        if !message.calls.is_empty() {
            open.clear();
        }
        let mut named = Vec::with_capacity(message.calls.len());
        let calls = message.calls.iter().filter(|call| pairing.may_rename(call));
        for id in calls.filter_map(|call| call.id) {
            let old = decode(id, body);
            let is_refused = (of.contains(Adaptation::IdForms) && !is_accepted(&old))
                || (of.contains(Adaptation::RepeatedIds) && seen.contains(&*old));
            let new = is_refused.then(|| own_id(&old, &seen));
            seen.insert(new.clone().unwrap_or_else(|| old.clone().into_owned()));
            found.extend(new.clone().map(|new| (id, new)));
            named.push((old, new));
        }
        for (old, new) in named.into_iter().rev() {
            open.entry(old).or_default().push(new);
        }
        if let Some(id) = message.tool_call_id.filter(|_| message.role == Role::Tool) {
            let answered = open.get_mut(&decode(id, body)).and_then(Vec::pop);
            found.extend(answered.flatten().map(|new| (id, new)));
        }
    }
    found
}

/// Writes the new ids.
pub(super) fn renumber(
    request: &Request,
    body: &[u8],
    pairing: &dyn Pairing,
    of: Adaptations,
    splices: &mut Splices,
) {
    for (id, new) in new_ids(request, body, pairing, of) {
        splices.replace(id.quoted(), quote(&new));
    }
}

fn is_accepted(id: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    !id.is_empty() && id.len() <= LONGEST && id.bytes().all(is_part)
}

/// An id that no earlier call has, derived from the old one.
fn own_id(old: &str, seen: &HashSet<String>) -> String {
    let mut hash = fnv(old.bytes(), 0xcbf2_9ce4_8422_2325);
    loop {
        // The loop ends: the hash goes through far more values than there are calls.
        hash = fnv(seen.len().to_le_bytes().into_iter(), hash);
        let new = spelt(hash);
        if !seen.contains(&new) {
            return new;
        }
    }
}

/// FNV-1a, which gives the same in every process.
fn fnv(bytes: impl Iterator<Item = u8>, start: u64) -> u64 {
    bytes.fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

fn spelt(mut number: u64) -> String {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let digit = |_| {
        let digit = usize::try_from(number % 36).unwrap_or_default();
        number /= 36;
        char::from(DIGITS[digit])
    };
    (0..NEW).map(digit).collect()
}
