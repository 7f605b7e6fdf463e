//! The prefix cache of requests: an agent sends the whole conversation again with every request, and a prefix that was
//! parsed once is not parsed again. Responsible for the hashes under which checkpoints are found; the dialect parses,
//! the shell stores.

use super::Dialect;
use model::checkpoint::Checkpoint;
use model::identity::{Domain, Hash, HashKey, RunningHash};
use model::memo::{Derived, Memo};
use model::request::Request;
use std::sync::Arc;
use wire::body::Fault;

/// Parsing a shorter body takes less time than looking up its prefixes.
const LEAST_BYTES: usize = 8 * 1024;
/// How many lengths are tried between one length and its double. On average a thirtieth of a prefix is parsed again.
const STEPS: usize = 16;
/// The octave of this fraction of the body has the shortest prefixes that are looked up.
const LEAST_PART: usize = 4;

/// Which of the lengths of an octave have checkpoints, by the hash of the octave's shortest prefix: one bit each, so that
/// prefixes that were never read are not looked up one by one.
struct KnownLengths(u16);

impl Derived for KnownLengths {}

/// The key of the [`KnownLengths`] of the octave that begins with this prefix.
fn octave_key(prefix: &RunningHash) -> Hash {
    prefix.hash().combined_with(Hash(Domain::Prefix as u128))
}

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
    let (hashes, digest) = key.prefix_hashes(body, &lengths);
    let known = longest_known(&hashes, memo);
    // The index of a new checkpoint's length, if it is longer than the known one's.
    let mut news = None;
    let mut keep = |request: &Request| {
        let last = lengths.partition_point(|length| *length <= steady(request)).checked_sub(1);
        news = last.filter(|last| known.as_ref().is_none_or(|(at, _)| at < last));
        news.map_or(0, |at| lengths[at])
    };
    let mut request = dialect.parse(body, known.as_ref().map(|(_, checkpoint)| checkpoint), &mut keep)?;
    request.digest = Some(digest);
    if let (Some(at), Some(checkpoint)) = (news, &request.checkpoint) {
        checkpoint.keep_tools(&request, body, key, memo);
        let own_key = hashes[at].hash();
        checkpoint.set_key(own_key);
        memo.remember(own_key, checkpoint);
        let octave = octave_key(&hashes[at - at % STEPS]);
        let others = memo.known::<KnownLengths>(octave).map_or(0, |others| others.0);
        memo.remember(octave, &Arc::new(KnownLengths(others | 1 << (at % STEPS))));
    }
    Ok(request)
}

/// The longest known one of the prefixes with these hashes: its index, and its checkpoint.
fn longest_known(hashes: &[RunningHash], memo: &dyn Memo) -> Option<(usize, Arc<Checkpoint>)> {
    let mut octaves = hashes.chunks(STEPS).enumerate().rev();
    octaves.find_map(|(octave, hashes)| {
        let KnownLengths(known) = *memo.known(octave_key(&hashes[0]))?;
        let mut steps = (0..hashes.len()).rev().filter(|step| known >> step & 1 == 1);
        steps.find_map(|step| Some((octave * STEPS + step, memo.known(hashes[step].hash())?)))
    })
}

/// How much of the body is expected to be a prefix of the conversation's next request: what follows the messages, tools
/// mostly, will be at another position then, and the last message may be rewritten.
fn steady(request: &Request) -> usize {
    let before_the_last = request.messages.iter().rev().nth(1);
    before_the_last.map_or(0, |message| message.span.range().end)
}

/// The lengths of a body's prefixes that are hashed, in order, by whole octaves but for the last: the same for every body,
/// so that a longer one finds the checkpoints of a shorter one.
fn lengths(bytes: usize) -> Vec<usize> {
    if bytes < LEAST_BYTES {
        return Vec::new();
    }
    let mut octave = LEAST_BYTES << (bytes / LEAST_PART / LEAST_BYTES).checked_ilog2().unwrap_or(0);
    let mut lengths = Vec::with_capacity(STEPS * (LEAST_PART.ilog2() as usize + 1));
    while octave <= bytes {
        let steps = (0..STEPS).map(|step| octave + octave / STEPS * step);
        lengths.extend(steps.take_while(|length| *length <= bytes));
        octave *= 2;
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::Chat;
    use crate::{CHAT, MESSAGES, RESPONSES};
    use model::Transcript;
    use model::histories::Histories;
    use model::identity::Identity;
    use model::memo::{DerivedValue, NoMemo};
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
            assert_eq!(request.digest, Some(key.digest(&body)));
            let plain = |request: Request| {
                format!("{:?}", Request { checkpoint: None, digest: None, known_tools: None, ..request })
            };
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
    fn a_list_of_tools_after_the_messages_is_read_once_and_reads_the_same_at_every_position() {
        let chat = r#"[{"type":"function","function":{"name":"f","description":"d","parameters":{}}},{"function":{"name":"g"}},7]"#;
        let responses = r#"[{"type":"function","name":"f","parameters":{}},{"type":"mcp","server_label":"s","server_description":"d"},
            {"type":"namespace","name":"n","tools":[{"type":"function","name":"h"}]},{"type":"computer_use_preview"}]"#;
        let messages = r#"[{"name":"f","description":"d","input_schema":{}},{"type":"mcp_toolset","mcp_server_name":"s"}]"#;
        for (dialect, list, tools) in
            [(CHAT, "messages", chat), (RESPONSES, "input", responses), (MESSAGES, "messages", messages)]
        {
            let (memo, key) = (Kept::default(), HashKey::fixed(1));
            let read = |count: usize, tools: &str| {
                let body = String::from_utf8(body(count, "?")).unwrap().replacen("messages", list, 1);
                let body = format!(r#"{},"tools":{tools},"stream":true}}"#, &body[..body.len() - 1]);
                let request = read_request(dialect, body.as_bytes(), &key, &memo).unwrap();
                let is_known = request.known_tools.is_some();
                let plain =
                    |request| Request { checkpoint: None, digest: None, known_tools: None, ..request };
                let whole = plain(dialect.read(body.as_bytes()).unwrap());
                assert_eq!(format!("{:?}", plain(request)), format!("{whole:?}"), "{count} {tools}");
                is_known
            };
            let other = format!("{},{{}}]", &tools[..tools.len() - 1]);
            let known = [(40, tools), (41, tools), (42, tools), (42, &other), (42, tools)];
            let known = known.map(|(count, tools)| read(count, tools));
            assert_eq!(known, [false, true, true, false, true], "{list}");
        }
    }

    /// A request with `count` calls, each with its result, of the tools of this list. `form`: of every seventh call.
    fn talk(count: usize, form: &str, tools: &str) -> Vec<u8> {
        let call = |at: usize| {
            let arguments = format!(r#"{{\"q\":\"{at} {}\",\"n\":1.0}}"#, "word ".repeat(at % 50));
            match form {
                "placeholder" if at.is_multiple_of(7) => {
                    let id = if at.is_multiple_of(2) { "call_k1b2x3d4" } else { "p" };
                    format!(r#"{{"id":"{id}{at}","function":{{"name":"","arguments":"{{}}"}}}}"#)
                }
                "wrapper" if at.is_multiple_of(7) => format!(
                    r#"{{"id":"w{at}","function":{{"name":"multi_tool_use.parallel","arguments":"{{\"tool_uses\":[{{\"recipient_name\":\"functions.f\",\"parameters\":{{}}}}]}}"}}}}"#
                ),
                "same ids" => format!(r#"{{"id":"a","function":{{"name":"F","arguments":"{arguments}"}}}}"#),
                _ => format!(
                    r#"{{"id":"call_k1b2x3d4{at}","function":{{"name":"f","arguments":"{arguments}"}}}}"#
                ),
            }
        };
        let exchange = |at: usize| {
            let question = if at.is_multiple_of(5) {
                r#"{"role":"assistant","content":" ok "},{"role":"user","content":"more"},"#
            } else {
                ""
            };
            let result = format!(
                r#"{{"role":"tool","tool_call_id":"call_k1b2x3d4{at}","content":"{at} {}"}}"#,
                "line ".repeat(60)
            );
            format!(r#"{question}{{"role":"assistant","content":null,"tool_calls":[{}]}},{result}"#, call(at))
        };
        let exchanges: Vec<String> = (0..count).map(exchange).collect();
        format!(
            r#"{{"model":"m","messages":[{{"role":"system","content":"s"}},{{"role":"user","content":"q"}},{}],"tools":{tools}}}"#,
            exchanges.join(",")
        )
        .into_bytes()
    }

    /// All that a conversation derives from its messages.
    fn derived(request: Request, body: &[u8], caller: u128, memo: &Arc<dyn Memo>) -> String {
        let identity = Identity { key: HashKey::fixed(1), caller: Hash(caller), explicit: None };
        let transcript = Transcript::read(request, body.to_vec(), identity, Arc::clone(memo));
        let histories = Histories::read(&transcript, Hash(9));
        let (conversation, request) = (transcript.conversation(), transcript.request_key());
        let tokens = transcript.definition_tokens();
        format!("{:?} {histories:?} {conversation} {request} {tokens:?}", transcript.calls)
    }

    #[test]
    fn calls_and_histories_are_the_same_whatever_is_known_of_their_beginning() {
        let of = |names: &[&str]| {
            let tools = names.iter().map(|name| format!(r#"{{"function":{{"name":"{name}"}}}}"#));
            format!("[{}]", tools.collect::<Vec<_>>().join(","))
        };
        let key = HashKey::fixed(1);
        for form in ["plain", "placeholder", "wrapper", "same ids"] {
            let (memo, nothing) =
                (Arc::new(Kept::default()) as Arc<dyn Memo>, Arc::new(NoMemo) as Arc<dyn Memo>);
            for count in (10..90).step_by(3).chain([40, 89, 90]) {
                // Another list of tools, and another caller, for some of the requests.
                let tools = of(if count % 4 == 0 { &["f", "F"] } else { &["f"] });
                let caller = u128::from(count % 10 == 0);
                let body = talk(count, form, &tools);
                let fresh = derived(Chat.read(&body).unwrap(), &body, caller, &nothing);
                for _ in 0..2 {
                    let request = read_request(&Chat, &body, &key, &*memo).unwrap();
                    assert_eq!(derived(request, &body, caller, &memo), fresh, "{form} {count}");
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
            assert!(lengths[0] <= (bytes / LEAST_PART).max(LEAST_BYTES), "{bytes}");
            for octave in lengths.chunks(STEPS) {
                assert!(octave[0].is_power_of_two() && octave.iter().all(|length| *length < 2 * octave[0]));
            }
            assert!(*last <= bytes && bytes - last <= bytes / STEPS, "{bytes} {last}");
            assert!(lengths.is_sorted() && lengths.len() <= 3 * STEPS);
        }
    }
}
