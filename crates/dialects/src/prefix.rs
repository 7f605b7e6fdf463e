//! The prefix cache of requests: an agent sends the whole conversation again with every request, and a prefix that was
//! parsed once is not parsed again. Responsible for the hashes under which checkpoints are found; the dialect parses,
//! the shell stores.

use super::Dialect;
use model::checkpoint::Checkpoint;
use model::identity::{Domain, HashKey, RunningHash};
use model::memo::Memo;
use model::request::Request;
use wire::body::Fault;

/// Parsing a shorter body takes less time than looking up its prefixes.
const LEAST_BYTES: usize = 8 * 1024;
/// How many lengths are tried between one length and its double. On average a thirtieth of a prefix is parsed again.
const STEPS: usize = 16;
/// The shortest prefix that is looked up is this fraction of the body.
const LEAST_PART: usize = 4;
/// Parses `body`, resuming from a checkpoint as far as an earlier one had the same prefix.
///
/// # Errors
/// See [`Dialect::parse`].
pub fn read_request(
    dialect: &dyn Dialect,
    body: &[u8],
    key: &HashKey,
    memo: &dyn Memo,
) -> Result<Request, Fault> {
    let lengths = lengths(body.len());
    if lengths.is_empty() {
        return dialect.read(body);
    }
    let hashes = key.prefix_hashes(Domain::Prefix, body, &lengths);
    let mut names = hashes.iter().map(RunningHash::hash).enumerate().rev();
    let known = names.find_map(|(at, name)| Some((at, memo.known::<Checkpoint>(name)?)));
    // The index of a new checkpoint's length, if it is longer than the known one's.
    let mut news = None;
    let mut keep = |request: &Request| {
        let last = lengths.partition_point(|length| *length <= steady(request)).checked_sub(1);
        news = last.filter(|last| known.as_ref().is_none_or(|(at, _)| at < last));
        news.map_or(0, |at| lengths[at])
    };
    let request = dialect.parse(body, known.as_ref().map(|(_, checkpoint)| checkpoint), &mut keep)?;
    if let (Some(at), Some(checkpoint)) = (news, &request.checkpoint) {
        memo.remember(hashes[at].hash(), checkpoint);
    }
    Ok(request)
}

/// How much of the body is expected to be a prefix of the conversation's next request: what follows the messages, tools
/// mostly, will be at another position then, and the last message may be rewritten.
fn steady(request: &Request) -> usize {
    let before_the_last = request.messages.iter().rev().nth(1);
    before_the_last.map_or(0, |message| message.span.range().end)
}

/// The lengths of a body's prefixes that are hashed, in order: the same for every body, so that a longer one finds the
/// checkpoints of a shorter one.
fn lengths(bytes: usize) -> Vec<usize> {
    let mut lengths = Vec::with_capacity(STEPS * (LEAST_PART.ilog2() as usize + 1));
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
    use crate::chat::Chat;
    use model::identity::Hash;
    use model::memo::DerivedValue;
    use std::collections::HashMap;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Kept(Mutex<HashMap<Hash, DerivedValue>>, AtomicUsize);

    impl Memo for Kept {
        fn find(&self, key: Hash) -> Option<DerivedValue> {
            let found = self.0.lock().unwrap().get(&key).cloned();
            let is_checkpoint = found.as_ref().is_some_and(|found| found.is::<Checkpoint>());
            self.1.fetch_add(usize::from(is_checkpoint), Ordering::Relaxed);
            found
        }

        fn keep(&self, key: Hash, value: DerivedValue, _weight: usize) {
            self.0.lock().unwrap().insert(key, value);
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
            let request = read_request(&Chat, &body, &key, &memo).unwrap();
            let plain = |request: Request| format!("{:?}", Request { checkpoint: None, ..request });
            if let Some(checkpoint) = &request.checkpoint {
                assert!(checkpoint.bytes() <= body.len());
                known = checkpoint.bytes();
            }
            assert_eq!(plain(request), plain(crate::chat::parse(&body).unwrap()));
        }
        assert!(known > 80_000, "{known}");
        assert!(memo.0.lock().unwrap().len() < 80);
    }

    #[test]
    fn a_cached_prefix_is_found_despite_a_new_last_message_or_a_long_tool_list() {
        let tool = format!(r#"{{"function":{{"name":"t","description":"{}"}}}}"#, "word ".repeat(500));
        let tools = format!(r#","tools":[{}]}}"#, vec![tool; 10].join(","));
        for after in ["}", tools.as_str()] {
            for messages in [40, 45, 50, 60, 90] {
                let (memo, key) = (Kept::default(), HashKey::fixed(1));
                for (more, last) in [(0, "and now?"), (0, "or now?"), (1, "thanks")] {
                    let body = String::from_utf8(body(messages + more, last)).unwrap();
                    let body = format!("{}{after}", &body[..body.len() - 1]);
                    let request = read_request(&Chat, body.as_bytes(), &key, &memo).unwrap();
                    // All messages but a tenth and one or two more.
                    let known = request.checkpoint.map_or(0, |checkpoint| checkpoint.notes.len());
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
            let request = read_request(&Chat, body.as_bytes(), &key, &memo).unwrap();
            let text = request.messages[0].content.texts().next().unwrap();
            assert!(text.raw(body.as_bytes()).starts_with(format!("0 {word}").as_bytes()));
        }
    }

    #[test]
    fn checkpoint_lengths_are_close_to_each_other_and_few() {
        assert!(lengths(LEAST_BYTES - 1).is_empty());
        for bytes in (LEAST_BYTES..2_000_000).step_by(9_973) {
            let lengths = lengths(bytes);
            let last = lengths.last().unwrap();
            assert!(*last <= bytes && bytes - last <= bytes / STEPS, "{bytes} {last}");
            assert!(lengths.is_sorted() && lengths.len() <= 3 * STEPS);
        }
    }
}
