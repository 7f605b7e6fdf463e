//! The keys of a conversation's histories. Under these keys the state store finds the hidden exchanges of each
//! history, and which histories were refused for their length. Computes hashes; stores nothing.

use super::identity::{Domain, Hash, RunningHash};
use super::{Transcript, View};
use crate::message::Role;
use std::collections::VecDeque;

/// How many earlier replies are tried: clients that split a reply over messages, and requests that were cut off,
/// leave the last one unknown.
pub const MOST_EARLIER: usize = 3;
/// Bytes of each message's beginning and of its end that go into a key. With its length they are 64, which the hasher
/// takes without copying them.
const SAMPLE_BYTES: usize = 28;

/// The keys of a conversation's histories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histories {
    /// All its messages.
    pub whole: Hash,
    /// The messages before each of the last replies, the newest first: how many they are, and their key.
    pub earlier: Vec<(usize, Hash)>,
}

impl Histories {
    /// Computes the keys of the histories of `transcript` as they are sent to `model`.
    ///
    /// Of each message the length, the beginning and the end are hashed, together with the caller, the conversation and
    /// the tools.
    pub fn read(transcript: &Transcript, model: Hash) -> Self {
        let prefix = key_prefix(transcript, model);
        let name = |name: Hash| prefix.combined_with(name);
        let NamedMessages { hash, earlier, .. } = NamedMessages::read(transcript);
        let earlier = earlier.iter().rev().map(|(count, before)| (*count, name(before.hash()))).collect();
        Self { whole: name(hash.hash()), earlier }
    }
}

/// The key of the first `count` messages, as [`Histories::read`] has it; `None` where there are fewer.
pub fn history(transcript: &Transcript, model: Hash, count: usize) -> Option<Hash> {
    let mut hash = transcript.identity.key.running_hash(Domain::History);
    if count > transcript.len() {
        return None;
    }
    transcript.views().take(count).for_each(|view| add(&mut hash, view));
    Some(key_prefix(transcript, model).combined_with(hash.hash()))
}

/// The digests of the first messages of `transcript`, one for each number in `counts`; `None` where there are fewer
/// messages. The digests depend on the caller and the conversation, and not on the model or the tools.
pub fn beginnings(transcript: &Transcript, counts: &[usize]) -> Vec<Option<Hash>> {
    let mut hash = transcript.identity.key.running_hash(Domain::Account);
    hash.add(&transcript.calls.root.0.to_le_bytes());
    let most = counts.iter().copied().filter(|count| *count <= transcript.len()).max().unwrap_or(0);
    let mut found = vec![None; counts.len()];
    for count in 0..=most {
        for (at, _) in counts.iter().enumerate().filter(|(_, wanted)| **wanted == count) {
            found[at] = Some(hash.hash());
        }
        if count < transcript.len() {
            add(&mut hash, transcript.view(count));
        }
    }
    found
}

/// The messages hashed so far.
#[derive(Clone, Debug)]
pub(crate) struct NamedMessages {
    hash: RunningHash,
    /// How many they are.
    count: usize,
    /// The last replies, oldest first: how many messages are before each, and their hash.
    earlier: VecDeque<(usize, RunningHash)>,
}

impl NamedMessages {
    /// Hashes all messages, from those on that were hashed for the checkpoint.
    fn read(transcript: &Transcript) -> Self {
        let named = transcript.checkpoint().map(|checkpoint| (&checkpoint.named, checkpoint.notes.len()));
        let known = named.and_then(|(known, _)| known.get()).cloned();
        let mut all = known.unwrap_or_else(|| {
            let hash = transcript.identity.key.running_hash(Domain::History);
            Self { hash, count: 0, earlier: VecDeque::new() }
        });
        let kept = named.filter(|(known, _)| known.get().is_none());
        let first = first_earlier(transcript, transcript.len());
        let last_kept = kept.map_or(0, |(_, count)| count);
        let first_kept = first_earlier(transcript, last_kept);
        for index in all.count..transcript.len() {
            let is_earlier = index >= first || (first_kept..last_kept).contains(&index);
            all.add(transcript.view(index), is_earlier);
            if let Some((kept, _)) = kept.filter(|(_, count)| *count == index + 1) {
                // A checkpoint is shared by requests: one of them sets it.
                let _ = kept.set(all.clone());
            }
        }
        all
    }

    fn add(&mut self, view: View<'_>, is_earlier: bool) {
        if view.message.role == Role::Assistant && is_earlier {
            if self.earlier.len() == MOST_EARLIER {
                self.earlier.pop_front();
            }
            self.earlier.push_back((self.count, self.hash.clone()));
        }
        add(&mut self.hash, view);
        self.count += 1;
    }
}

/// The position of the first of the last replies among the first `count` messages.
fn first_earlier(transcript: &Transcript, count: usize) -> usize {
    let is_reply = |index: &usize| transcript.message(*index).role == Role::Assistant;
    (1..count).rev().filter(is_reply).nth(MOST_EARLIER - 1).unwrap_or(1)
}

/// Adds the sample of a message.
fn add(hash: &mut RunningHash, view: View<'_>) {
    let (length, start, end) = sample(view.message.span.of(view.body));
    let mut sampled = [0; size_of::<u64>() + 2 * SAMPLE_BYTES];
    let (front, back) = sampled.split_at_mut(length.len() + SAMPLE_BYTES);
    front[..length.len()].copy_from_slice(&length);
    front[length.len()..][..start.len()].copy_from_slice(start);
    back[..end.len()].copy_from_slice(end);
    hash.add(&sampled);
}

/// What the keys of all histories of the request have in common: the caller, the conversation, the model and the tools.
fn key_prefix(transcript: &Transcript, model: Hash) -> Hash {
    let (request, body) = (&transcript.request, &transcript.body);
    let prefix = transcript.calls.root.combined_with(model);
    let Some((first, last)) = request.tools.first().zip(request.tools.last()) else { return prefix };
    let tools = first.span.start as usize..last.span.end as usize;
    let (length, start, end) = sample(body.get(tools).unwrap_or_default());
    prefix.combined_with(transcript.identity.key.hash(Domain::History, &[&length, start, end]))
}

/// The length of `bytes`, their beginning and their end.
fn sample(bytes: &[u8]) -> ([u8; 8], &[u8], &[u8]) {
    let (start, rest) = bytes.split_at(bytes.len().min(SAMPLE_BYTES));
    let end = &rest[rest.len().saturating_sub(SAMPLE_BYTES)..];
    ((bytes.len() as u64).to_le_bytes(), start, end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{HashKey, Identity};
    use crate::testing::{SampleItem, SampleRequest, assistant, user};

    fn identity() -> Identity {
        Identity { key: HashKey::fixed(1), caller: Hash(1), explicit: None }
    }

    fn histories(request: &SampleRequest, model: u128) -> Histories {
        Histories::read(&request.transcript(&identity()), Hash(model))
    }

    #[test]
    fn the_hash_of_a_history_prefix_equals_the_hash_of_the_request_that_sent_it() {
        let messages = [user("q"), assistant("a"), SampleItem::of_another_role()];
        let first = |count: usize| SampleRequest::new(&messages[..count]);
        let (all, identity) = (first(3), identity());
        let transcript = all.transcript(&identity);
        for count in 1..=3 {
            assert_eq!(history(&transcript, Hash(9), count), Some(histories(&first(count), 9).whole));
        }
        assert_eq!(history(&transcript, Hash(9), 4), None);
        assert_ne!(history(&transcript, Hash(8), 2), history(&transcript, Hash(9), 2));
    }

    #[test]
    fn earlier_requests_are_found_as_prefixes_of_a_later_history() {
        let messages = [user("q"), assistant("a"), user("q"), assistant("a"), user("q")];
        let of = |count: usize, model| histories(&SampleRequest::new(&messages[..count]), model);
        let first = of(1, 1);
        assert_eq!(first.earlier, []);
        let next = of(3, 1);
        assert_eq!(next.earlier, [(1, first.whole)]);
        assert_eq!(of(5, 1).earlier, [(3, next.whole), (1, first.whole)]);
        assert_ne!(of(1, 2).whole, first.whole, "another model");
    }

    #[test]
    fn different_messages_or_tools_give_a_different_history_hash() {
        let of = |content: &str, tool: &str| {
            histories(&SampleRequest::new(&[user(content)]).declaring(tool, "{}"), 1).whole
        };
        let long = "x".repeat(200);
        assert_eq!(of(&long, "f"), of(&long, "f"));
        assert_ne!(of(&long, "f"), of(&long, "g"));
        assert_ne!(of(&long, "f"), of(&"x".repeat(201), "f"));
        assert_ne!(of(&long, "f"), of(&format!("{}y", "x".repeat(199)), "f"));
    }
}
