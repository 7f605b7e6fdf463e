//! Requests read from where the one before them ended: an agent sends the whole conversation again with every request,
//! and what was read of it once is not read twice. Responsible for the names under which beginnings are found; the
//! reading is the wire's, the cache the shell's.

use super::identity::{Domain, Hash, HashKey};
use super::memo::{Derived, Memo};
use crate::wire::begun::{Beginning, Begun};
use crate::wire::body::Fault;
use crate::wire::request::Request;
use std::sync::Arc;

/// A shorter body is read in less time than its beginnings are looked up.
const LEAST_BYTES: usize = 8 * 1024;
/// How many lengths are tried between one and its double: what is read again is a thirtieth on the average.
const STEPS: usize = 16;
/// The shortest beginning that is looked for is this part of the body.
const LEAST_PART: usize = 4;

/// Reads `body`, from memory as far as an earlier one had the same beginning.
///
/// # Errors
/// See [`Request::parse`].
pub fn read_request(body: &[u8], key: &HashKey, memo: &dyn Memo) -> Result<Request, Fault> {
    let lengths = lengths(body.len());
    let Some(longest) = lengths.last() else { return Request::parse(body) };
    let names = key.beginnings(Domain::Begun, body, &lengths);
    let known = names.iter().rev().enumerate().find_map(|(missed, name)| {
        let begun = find(*name, memo)?;
        Some((missed, Beginning { name: name.0, messages: begun.notes.len() }, begun))
    });
    let is_news = known.as_ref().is_none_or(|(missed, ..)| *missed > 0);
    // What is known already is not made again.
    let keep = if is_news { *longest } else { 0 };
    let mut request = Request::resume(body, known.as_ref().map(|(.., begun)| begun), keep)?;
    let before = known.map(|(_, beginning, _)| beginning);
    request.beginnings = [before, None];
    if let (true, Some(begun), Some(name)) = (is_news, &request.begun, names.last()) {
        memo.keep(*name, Derived::Begun(Arc::clone(begun)));
        request.beginnings = [Some(Beginning { name: name.0, messages: begun.notes.len() }), before];
    }
    Ok(request)
}

fn find(name: Hash, memo: &dyn Memo) -> Option<Arc<Begun>> {
    match memo.find(name) {
        Some(Derived::Begun(begun)) => Some(begun),
        _ => None,
    }
}

/// The lengths of the beginnings of a body that are named, in order: the same for every body, so that a longer one
/// finds what a shorter one left.
fn lengths(bytes: usize) -> Vec<usize> {
    let mut lengths = Vec::new();
    let mut octave = LEAST_BYTES;
    while octave <= bytes {
        let steps = (0..STEPS).map(|step| octave + octave / STEPS * step);
        lengths.extend(steps.filter(|length| (bytes / LEAST_PART..=bytes).contains(length)));
        octave *= 2;
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Kept(Mutex<HashMap<Hash, Derived>>);

    impl Memo for Kept {
        fn derive(&self, _key: Hash, compute: &mut dyn FnMut() -> Derived) -> Derived {
            compute()
        }

        fn find(&self, key: Hash) -> Option<Derived> {
            self.0.lock().unwrap().get(&key).cloned()
        }

        fn keep(&self, key: Hash, derived: Derived) {
            self.0.lock().unwrap().insert(key, derived);
        }
    }

    fn body(messages: usize, last: &str) -> Vec<u8> {
        let message = |at: usize| format!(r#"{{"role":"user","content":"{at} {}"}}"#, "word ".repeat(100));
        let history: Vec<String> = (0..messages).map(message).collect();
        format!(r#"{{"model":"m","messages":[{},{{"role":"user","content":"{last}"}}]}}"#, history.join(","))
            .into()
    }

    #[test]
    fn a_conversation_that_grows_is_read_from_memory_and_reads_the_same() {
        let (memo, key) = (Kept::default(), HashKey::fixed(1));
        let mut known = 0;
        for messages in 1..200 {
            let body = body(messages, "and now?");
            let request = read_request(&body, &key, &memo).unwrap();
            let plain =
                |request: Request| format!("{:?}", Request { begun: None, beginnings: [None; 2], ..request });
            if let Some(begun) = &request.begun {
                assert!(begun.bytes() <= body.len());
                known = begun.bytes();
            }
            assert_eq!(plain(request), plain(Request::parse(&body).unwrap()));
        }
        assert!(known > 80_000, "{known}");
        assert!(memo.0.lock().unwrap().len() < 80);
    }

    #[test]
    fn another_history_of_the_same_length_is_not_mistaken_for_it() {
        let (memo, key) = (Kept::default(), HashKey::fixed(1));
        for word in ["one", "two"] {
            let body = String::from_utf8(body(40, "?")).unwrap().replacen("0 word", &format!("0 {word} "), 1);
            let request = read_request(body.as_bytes(), &key, &memo).unwrap();
            let text = request.messages[0].content.texts().next().unwrap();
            assert!(text.raw(body.as_bytes()).starts_with(format!("0 {word}").as_bytes()));
        }
    }

    #[test]
    fn lengths_are_the_same_for_every_body_and_lie_close() {
        assert!(lengths(LEAST_BYTES - 1).is_empty());
        for bytes in (LEAST_BYTES..2_000_000).step_by(9_973) {
            let lengths = lengths(bytes);
            let last = lengths.last().unwrap();
            assert!(*last <= bytes && bytes - last <= bytes / STEPS, "{bytes} {last}");
            assert!(lengths.is_sorted() && lengths.len() <= 3 * STEPS);
        }
    }
}
