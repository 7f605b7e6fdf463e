//! Requests read from where the one before them ended: an agent sends the whole conversation again with every request,
//! and its tools too, and what was read of them once is not read twice. Responsible for the names under which beginnings
//! and lists of tools are found; the reading is the wire's, the cache the shell's.

use super::identity::{Chain, Domain, Hash, HashKey};
use super::memo::{Derived, Memo};
use crate::wire::begun::{Beginning, Begun};
use crate::wire::body::Fault;
use crate::wire::declared::Declared;
use crate::wire::request::Request;
use std::sync::Arc;

/// A shorter body is read in less time than its beginnings are looked up.
const LEAST_BYTES: usize = 8 * 1024;
/// How many lengths are tried between one and its double: what is read again is a thirtieth on the average.
const STEPS: usize = 16;
/// The shortest beginning that is looked for is this part of the body.
const LEAST_PART: usize = 4;
/// A shorter list of tools is read in little more time than it is looked up.
const LEAST_LIST: usize = 512;
/// Where a list of tools is sampled for its name, and how much of it: agents that share their first tools differ behind.
const SAMPLES_AT: [usize; 4] = [0, 1 << 10, 4 << 10, 16 << 10];
const SAMPLE_BYTES: usize = 128;
/// Lists kept of one name: an agent and its helpers share their first tools too.
const MOST_ALIKE: usize = 4;

/// Reads `body`, from memory as far as an earlier one had the same beginning.
///
/// # Errors
/// See [`Request::parse`].
pub fn read_request(body: &[u8], key: &HashKey, memo: &dyn Memo) -> Result<Request, Fault> {
    let mut request = read_messages(body, key, memo)?;
    if request.declared.is_none() && !request.tools.is_empty() {
        request.declared = declared(&request, body, key, memo);
    }
    Ok(request)
}

/// The request, with its tools known if they stand behind its messages, as most clients write them.
fn read_messages(body: &[u8], key: &HashKey, memo: &dyn Memo) -> Result<Request, Fault> {
    let known_tools = |rest: &[u8]| {
        find_lists(tools_name(rest, key), memo).iter().find(|known| known.begins(rest)).cloned()
    };
    let lengths = lengths(body.len());
    if lengths.is_empty() {
        return Request::parse_known(body, &known_tools);
    }
    let chains = key.beginnings(Domain::Begun, body, &lengths);
    let mut named = chains.iter().map(Chain::name).enumerate().rev();
    let known = named.find_map(|(at, name)| Some((at, name, find(name, memo)?)));
    let before = known.as_ref().map(|(_, name, begun)| beginning(*name, begun));
    // The place that is to be known from now on, if it is better than what is.
    let mut news = None;
    let keep = |request: &Request| {
        let last = lengths.partition_point(|length| *length <= steady(request)).checked_sub(1);
        news = last.filter(|last| known.as_ref().is_none_or(|(at, ..)| at < last));
        news.map_or(0, |at| lengths[at])
    };
    let mut request = Request::resume(body, known.as_ref().map(|(.., begun)| begun), &known_tools, keep)?;
    request.beginnings = [before, None];
    if let (Some(at), Some(begun)) = (news, &request.begun) {
        let name = chains[at].name();
        memo.keep(name, Derived::Begun(Arc::clone(begun)));
        request.beginnings = [Some(beginning(name, begun)), before];
    }
    Ok(request)
}

/// How much of the body the next request of the conversation begins with, as far as can be known: what stands behind
/// the messages, tools mostly, will stand elsewhere then, and the last message may be written anew.
fn steady(request: &Request) -> usize {
    let before_the_last = request.messages.iter().rev().nth(1);
    before_the_last.map_or(0, |message| message.span.range().end)
}

fn beginning(name: Hash, begun: &Begun) -> Beginning {
    Beginning { name: name.0, messages: begun.notes.len() }
}

/// The list of the request's tools, from now on known: it was not when they were read, or they stood before the messages.
fn declared(request: &Request, body: &[u8], key: &HashKey, memo: &dyn Memo) -> Option<Arc<Declared>> {
    let list = request.value(body, "tools").filter(|list| list.len() >= LEAST_LIST)?;
    let rest = &body[list.range().start..];
    let name = tools_name(rest, key);
    let alike = find_lists(name, memo);
    if let Some(known) = alike.iter().find(|known| known.begins(rest)) {
        return Some(Arc::clone(known));
    }
    let declared = Arc::new(Declared::of(request, list, body)?);
    let lists = std::iter::once(&declared).chain(alike.iter()).take(MOST_ALIKE).cloned();
    memo.keep(name, Derived::Declared(lists.collect()));
    Some(declared)
}

/// The lists of this name, the newest first.
fn find_lists(name: Hash, memo: &dyn Memo) -> Arc<[Arc<Declared>]> {
    match memo.find(name) {
        Some(Derived::Declared(lists)) => lists,
        _ => Arc::default(),
    }
}

/// The name of a list of tools that starts a text, by samples, since nobody knows yet where it ends. Whoever finds one
/// compares it.
fn tools_name(text: &[u8], key: &HashKey) -> Hash {
    let sample = |from: &usize| text.get(*from..).map(|rest| &rest[..rest.len().min(SAMPLE_BYTES)]);
    let samples: Vec<&[u8]> = SAMPLES_AT.iter().filter_map(sample).collect();
    key.hash(Domain::Begun, &[&[b"tools".as_slice()], &samples[..]].concat())
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Kept(Mutex<HashMap<Hash, Derived>>, AtomicUsize);

    impl Memo for Kept {
        fn derive(&self, _key: Hash, compute: &mut dyn FnMut() -> Derived) -> Derived {
            compute()
        }

        fn find(&self, key: Hash) -> Option<Derived> {
            let found = self.0.lock().unwrap().get(&key).cloned();
            self.1.fetch_add(usize::from(matches!(found, Some(Derived::Begun(_)))), Ordering::Relaxed);
            found
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
            let plain = |request: Request| {
                format!("{:?}", Request { begun: None, beginnings: [None; 2], declared: None, ..request })
            };
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
    fn a_conversation_is_known_though_its_last_message_is_another_or_much_stands_behind_its_messages() {
        let tool = format!(r#"{{"function":{{"name":"t","description":"{}"}}}}"#, "word ".repeat(500));
        let tools = format!(r#","tools":[{}]}}"#, vec![tool; 10].join(","));
        for behind in ["}", tools.as_str()] {
            for messages in [40, 45, 50, 60, 90] {
                let (memo, key) = (Kept::default(), HashKey::fixed(1));
                for (more, last) in [(0, "and now?"), (0, "or now?"), (1, "thanks")] {
                    let body = String::from_utf8(body(messages + more, last)).unwrap();
                    let body = format!("{}{behind}", &body[..body.len() - 1]);
                    let request = read_request(body.as_bytes(), &key, &memo).unwrap();
                    // Of the messages all but a tenth and one or two more.
                    let known = request.begun.map_or(0, |begun| begun.notes.len());
                    assert!(known + 3 >= messages - messages / 10, "{known} of {messages} {last}");
                    assert_eq!(memo.1.load(Ordering::Relaxed) > 0, last != "and now?", "{messages} {last}");
                }
            }
        }
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
    fn a_list_of_tools_is_known_from_the_second_request_on_wherever_it_stands() {
        let tool = |at: usize| {
            format!(r#"{{"function":{{"name":"t{at}","description":"{}"}}}}"#, "word ".repeat(50))
        };
        let list = |count: usize| format!("[{}]", (0..count).map(tool).collect::<Vec<_>>().join(","));
        let message = |text: &str| format!(r#"{{"role":"user","content":"{text}"}}"#);
        let messages = message(&"word ".repeat(2000));
        for (before, behind) in [("", ",\"tools\":LIST"), ("\"tools\":LIST,", "")] {
            let (memo, key) = (Kept::default(), HashKey::fixed(1));
            let known: Vec<_> = [20, 40, 20, 40, 10]
                .into_iter()
                .map(|count| {
                    let body =
                        format!(r#"{{{before}"messages":[{messages},{}]{behind}}}"#, message("and now?"));
                    let body = body.replace("LIST", &list(count));
                    let request = read_request(body.as_bytes(), &key, &memo).unwrap();
                    assert_eq!(request.tools, Request::parse(body.as_bytes()).unwrap().tools);
                    request.declared.unwrap()
                })
                .collect();
            assert!(Arc::ptr_eq(&known[0], &known[2]) && Arc::ptr_eq(&known[1], &known[3]), "{before}");
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
