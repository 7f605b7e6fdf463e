//! Blocked calls in the form in which every provider accepts them in a history: names of `[A-Za-z0-9_-]{1,64}` and ids that
//! occur once. The dialects write the calls; the arguments' form is in `repair`.

use super::codec::KnownIds;
use memchr::memmem::find_iter;
use model::assembled::Assembled;
use wire::json::{escaped, quote};

/// The longest name that OpenAI and Amazon Bedrock accept in a history.
const LONGEST_NAME: usize = 64;
/// The name of a call whose own name has no accepted character.
const NO_NAME: &str = "unknown_tool";
/// The length of a new id. Mistral wants 9 letters and digits; the other providers accept these too.
const ID_CHARS: usize = 9;

/// The name and the id under which a blocked call is written, escaped as in JSON; `None` where its own one is accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcceptedForm {
    pub name: Option<Vec<u8>>,
    pub id: Option<Vec<u8>>,
}

impl AcceptedForm {
    /// The form of the call `at` of one reply. `calls`: all its calls, each with whether the client sees it. A name that the
    /// request declares (`is_declared`) is accepted: the upstream has accepted it there.
    pub fn new(calls: &[(&Assembled, bool)], at: usize, is_declared: bool, known_ids: &KnownIds) -> Self {
        let (call, _) = calls[at];
        let name = call.name();
        let is_sound = is_accepted_name(&name) || is_declared;
        let name = (!is_sound).then(|| accepted_name(&name).into_bytes());
        let mut others = calls.iter().enumerate().filter(|(other, _)| *other != at);
        let mut is_repeated =
            || others.any(|(other, (with, shown))| with.id == call.id && (other < at || *shown));
        let needs_id = call.id.is_empty() || known_ids.has(&call.id()) || is_repeated();
        let id = (needs_id && !call.legacy).then(|| {
            let is_used = |id: &str| {
                let is_in_reply = calls.iter().any(|(other, _)| other.id == id.as_bytes());
                is_in_reply || known_ids.has(id)
            };
            escaped(&new_id(call, at, is_used))
        });
        Self { name, id }
    }

    /// The call under this name and id.
    pub fn of(&self, call: &Assembled) -> Assembled {
        let mut call = call.clone();
        if let Some(name) = &self.name {
            call.name.clone_from(name);
        }
        if let Some(id) = &self.id {
            call.id.clone_from(id);
        }
        call
    }
}

/// Whether every provider accepts `name` in a history.
pub fn is_accepted_name(name: &str) -> bool {
    (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(is_accepted)
}

/// The name that replaces `name`, which some provider refuses.
pub fn accepted_name(name: &str) -> String {
    if !name.chars().any(|char| char.is_ascii_alphanumeric()) {
        return NO_NAME.to_owned();
    }
    name.chars().map(|char| if is_accepted(char) { char } else { '_' }).take(LONGEST_NAME).collect()
}

fn is_accepted(char: char) -> bool {
    char.is_ascii_alphanumeric() || char == '_' || char == '-'
}

/// An id for the call `at`, which is not used yet. Equal calls at equal places get the same one.
pub fn new_id(call: &Assembled, at: usize, is_used: impl Fn(&str) -> bool) -> String {
    let mut seed = at as u64;
    loop {
        let id = id_of([&call.id, &call.name, &call.arguments], seed);
        if !is_used(&id) {
            return id;
        }
        seed = seed.wrapping_add(1 << 32);
    }
}

/// Letters and digits by FNV-1a, whose results do not change with the compiler.
fn id_of(parts: [&Vec<u8>; 3], seed: u64) -> String {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    const ALPHABET: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let seed = seed.to_le_bytes();
    let bytes = parts.iter().flat_map(|part| part.iter().chain(&[0xff])).chain(&seed);
    let mut hash = bytes.fold(OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME));
    let digits = std::iter::repeat_with(|| {
        let digit = char::from(ALPHABET[(hash % 36) as usize]);
        hash /= 36;
        digit
    });
    digits.take(ID_CHARS).collect()
}

/// Whether a member `id`, or one whose name ends in `_id`, has the value `id` in this JSON text.
pub fn has_id(text: &[u8], id: &str) -> bool {
    let quoted = quote(id);
    let is_value = |at: usize| {
        let before = text[..at].trim_ascii_end();
        let key = before.strip_suffix(b":").map(<[u8]>::trim_ascii_end);
        key.is_some_and(|key| key.ends_with(b"id\""))
    };
    find_iter(text, quoted.as_bytes()).any(is_value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_providers_refuse_become_accepted_ones() {
        let long = "x".repeat(70);
        for (name, accepted) in [
            ("browser.tabs.open", "browser_tabs_open"),
            ("  ", "unknown_tool"),
            ("", "unknown_tool"),
            ("..", "unknown_tool"),
            ("caf\u{e9}", "caf_"),
            (&long, &long[..64]),
        ] {
            assert!(!is_accepted_name(name), "{name}");
            assert_eq!(accepted_name(name), accepted);
            assert!(is_accepted_name(accepted));
        }
        assert!(is_accepted_name("a-B_9"));
    }

    #[test]
    fn an_id_is_found_as_the_value_of_a_member_for_ids_alone() {
        for text in [r#"{"id":"a"}"#, r#"{"tool_call_id" : "a"}"#, r#"[{"call_id":"a","x":1}]"#] {
            assert!(has_id(text.as_bytes(), "a"), "{text}");
        }
        for text in [r#"{"id":"ab"}"#, r#"{"a":"id"}"#, r#"{"name":"a"}"#, r#"["a"]"#, r#""a""#] {
            assert!(!has_id(text.as_bytes(), "a"), "{text}");
        }
    }

    #[test]
    fn a_new_id_is_the_same_for_the_same_call_and_another_one_where_it_is_used() {
        let call = Assembled { name: b"f".to_vec(), ..Assembled::default() };
        let first = new_id(&call, 0, |_| false);
        assert_eq!(first.len(), 9);
        assert_eq!(new_id(&call, 0, |_| false), first);
        assert_ne!(new_id(&call, 1, |_| false), first);
        assert_ne!(new_id(&call, 0, |id| id == first), first);
    }
}
