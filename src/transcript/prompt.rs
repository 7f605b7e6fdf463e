//! What a prompt costs: its estimated size, and the provider's bill foretold from it. Responsible for the names
//! under which a history and what it cost are found again, and for one prediction out of what is known: the bill of
//! an earlier request of the same conversation, what the model's provider usually bills, or the class estimate alone.
//!
//! For metrics, guards against overflow and money only. What shows in rewritten bytes must not depend on it, since
//! what was learned differs from process to process.

use super::Transcript;
use super::identity::{Chain, Domain, Hash};
use super::tokens::Estimate;
use crate::wire::message::{Message, Role};

/// How large a prompt is, by the class estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// The declared tools: rendered by each provider in its own way, so that their ratio is a different one.
    pub tools: Estimate,
    pub messages: Estimate,
    /// `messages` rests on samples of so small a part that nothing is told by it of what tools cost. What a conversation
    /// grows by is counted, so that differences are exact.
    pub sampled: bool,
}

/// What is known of a history that was sent before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Anchor {
    pub size: Size,
    /// Tokens billed for it; 0 where the upstream did not tell.
    pub prompt: u64,
    /// Tokens billed for the reply to it.
    pub completion: u64,
    /// Names the edits that it was sent with: with others it costs something else.
    pub edits: Hash,
    /// Names the hidden rounds that were put back in it; 0 where none were.
    pub rounds: u64,
}

/// What a provider bills for an estimated token, in ten-thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    pub tools: u32,
    pub messages: u32,
}

/// What a prediction rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The bill of an earlier request of the conversation, and an estimate of what is new.
    Usage,
    /// The estimate, and the ratio learned from other conversations with the model.
    Ratio,
    /// The class estimate alone.
    Class,
}

impl Basis {
    /// As in labels and fields.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::Ratio => "ratio",
            Self::Class => "class",
        }
    }
}

/// A foretold bill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prediction {
    pub tokens: u64,
    pub basis: Basis,
}

impl Ratio {
    /// As much as estimated.
    pub const ONE: Self = Self { tools: Self::WHOLE, messages: Self::WHOLE };
    /// What stands for 1.
    pub const WHOLE: u32 = 10_000;
}

/// Foretells the bill of a prompt of `size`. `earlier`: what is known of its beginning, with the estimate of the
/// reply that follows there.
pub fn predict(size: Size, earlier: Option<(&Anchor, Estimate)>, ratio: Option<Ratio>) -> Prediction {
    let rate = ratio.unwrap_or(Ratio::ONE);
    if let Some((anchor, reply)) = earlier.filter(|(anchor, _)| anchor.prompt > 0) {
        let new = size.messages.saturating_sub(anchor.size.messages).saturating_sub(reply);
        let tokens = anchor.prompt + reply_cost(anchor, reply, rate) + billed(new, rate.messages);
        return Prediction { tokens, basis: Basis::Usage };
    }
    let basis = if ratio.is_some() { Basis::Ratio } else { Basis::Class };
    Prediction { tokens: billed(size.tools, rate.tools) + billed(size.messages, rate.messages), basis }
}

/// What a reply costs as part of the next prompt: what was billed for it, unless that is far more than the text
/// that came back. Then it holds reasoning, which clients do not send again.
fn reply_cost(anchor: &Anchor, reply: Estimate, rate: Ratio) -> u64 {
    let estimated = billed(reply, rate.messages);
    let believed = 0 < anchor.completion && anchor.completion <= estimated + estimated / 4 + 10;
    if believed { anchor.completion } else { estimated }
}

fn billed(estimate: Estimate, rate: u32) -> u64 {
    let tokens = u128::from(estimate.hundredths()) * u128::from(rate) / (100 * u128::from(Ratio::WHOLE));
    u64::try_from(tokens).unwrap_or(u64::MAX)
}

/// How many earlier replies are tried: clients that split a reply over messages, and requests that were cut off
/// before their usage came, leave the last one without a bill.
pub const MOST_EARLIER: usize = 3;
/// Bytes of each message's beginning and of its end that go into a name. With its length they are 64, which the hasher
/// takes without copying them.
const SAMPLE_BYTES: usize = 28;

/// The names of a conversation's histories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histories {
    /// All its messages.
    pub whole: Hash,
    /// Those before each of the last replies, the newest first: how many messages, and their name.
    pub earlier: Vec<(usize, Hash)>,
}

impl Histories {
    /// Names the histories of `transcript` as `model` is sent them.
    ///
    /// Of each message the length, the beginning and the end are read: two histories that agree on these, on the
    /// caller, on the conversation and on the tools cost the same or nearly.
    pub fn read(transcript: &Transcript<'_>, model: Hash) -> Self {
        let place = Place::of(transcript, model);
        let name =
            |name: Hash| transcript.identity.key.hash(Domain::History, &[place.bytes(), &bytes_of(name)]);
        let Told { chain, earlier } = told(transcript);
        let earlier = earlier.iter().rev().map(|(count, before)| (*count, name(*before))).collect();
        Self { whole: name(chain.name()), earlier }
    }
}

/// The name of the first `count` messages, as [`Histories::read`] has it; `None` where there are fewer.
pub fn history(transcript: &Transcript<'_>, model: Hash, count: usize) -> Option<Hash> {
    let mut chain = transcript.identity.key.chain(Domain::History);
    transcript
        .request
        .messages
        .get(..count)?
        .iter()
        .for_each(|message| add(&mut chain, message, transcript.body));
    let name = bytes_of(chain.name());
    Some(transcript.identity.key.hash(Domain::History, &[Place::of(transcript, model).bytes(), &name]))
}

/// Messages as far as they were named.
struct Told {
    chain: Chain,
    /// The last replies, oldest first: how many messages stand before each, and their name.
    earlier: Vec<(usize, Hash)>,
}

/// Names all messages.
fn told(transcript: &Transcript<'_>) -> Told {
    let mut told = Told { chain: transcript.identity.key.chain(Domain::History), earlier: Vec::new() };
    for (index, message) in transcript.request.messages.iter().enumerate() {
        if index > 0 && message.role == Role::Assistant {
            let surplus = (told.earlier.len() + 1).saturating_sub(MOST_EARLIER);
            told.earlier.drain(..surplus);
            told.earlier.push((index, told.chain.name()));
        }
        add(&mut told.chain, message, transcript.body);
    }
    told
}

/// Adds what is read of a message.
fn add(chain: &mut Chain, message: &Message, body: &[u8]) {
    let (length, start, end) = sample(message.span.of(body));
    let mut sampled = [0; size_of::<u64>() + 2 * SAMPLE_BYTES];
    let (front, back) = sampled.split_at_mut(length.len() + SAMPLE_BYTES);
    front[..length.len()].copy_from_slice(&length);
    front[length.len()..][..start.len()].copy_from_slice(start);
    back[..end.len()].copy_from_slice(end);
    chain.add(&sampled);
}

/// What goes into the names of histories beside their messages: the caller, the model and the tools.
struct Place {
    bytes: [u8; PLACE_BYTES],
    filled: usize,
}

/// Two names, and the length, the beginning and the end of the tools.
const PLACE_BYTES: usize = 2 * size_of::<Hash>() + size_of::<u64>() + 2 * SAMPLE_BYTES;

impl Place {
    fn of(transcript: &Transcript<'_>, model: Hash) -> Self {
        let (request, body) = (transcript.request, transcript.body);
        let tools = request.tools.first().zip(request.tools.last());
        let tools = tools.map_or(0..0, |(first, last)| first.span.start as usize..last.span.end as usize);
        let (length, start, end) = sample(body.get(tools).unwrap_or_default());
        let mut place = Self { bytes: [0; PLACE_BYTES], filled: 0 };
        for part in [&bytes_of(transcript.calls.root)[..], &bytes_of(model), &length, start, end] {
            place.bytes[place.filled..][..part.len()].copy_from_slice(part);
            place.filled += part.len();
        }
        place
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }
}

fn bytes_of(name: Hash) -> [u8; 16] {
    name.0.to_le_bytes()
}

/// The length of `bytes`, their beginning and their end.
fn sample(bytes: &[u8]) -> ([u8; 8], &[u8], &[u8]) {
    let (start, rest) = bytes.split_at(bytes.len().min(SAMPLE_BYTES));
    let end = &rest[rest.len().saturating_sub(SAMPLE_BYTES)..];
    ((bytes.len() as u64).to_le_bytes(), start, end)
}

#[cfg(test)]
mod tests {
    use super::super::identity::{HashKey, Identity};
    use super::super::memo::NoMemo;
    use super::*;
    use crate::wire::request::Request;

    fn tokens(tokens: u32) -> Estimate {
        Estimate::of_tokens(tokens)
    }

    fn size(tools: u32, messages: u32) -> Size {
        Size { tools: tokens(tools), messages: tokens(messages), sampled: false }
    }

    #[test]
    fn a_bill_is_foretold_from_the_best_that_is_known() {
        let ratio = Some(Ratio { tools: 6_000, messages: 12_000 });
        let anchor = Anchor { size: size(500, 1_000), prompt: 1_500, completion: 0, ..Anchor::default() };
        let untold = Anchor { prompt: 0, ..anchor };
        let reply = tokens(100);
        for (earlier, ratio, expected, basis) in [
            (None, None, 500 + 2_000, Basis::Class),
            (None, ratio, 300 + 2_400, Basis::Ratio),
            (Some(&untold), ratio, 300 + 2_400, Basis::Ratio),
            (Some(&anchor), None, 1_500 + 1_000, Basis::Usage),
            (Some(&anchor), ratio, 1_500 + 1_200, Basis::Usage),
        ] {
            let earlier = earlier.map(|anchor| (anchor, reply));
            let predicted = predict(size(500, 2_000), earlier, ratio);
            assert_eq!(predicted, Prediction { tokens: expected, basis });
        }
    }

    #[test]
    fn what_was_billed_for_a_reply_counts_unless_it_holds_reasoning() {
        for (completion, expected) in [(0, 100), (90, 90), (130, 130), (900, 100)] {
            let anchor = Anchor { size: size(0, 1_000), prompt: 1_000, completion, ..Anchor::default() };
            let predicted = predict(size(0, 1_150), Some((&anchor, tokens(100))), None);
            assert_eq!(predicted.tokens, 1_000 + expected + 50, "{completion}");
        }
    }

    #[test]
    fn a_history_has_the_name_that_its_own_request_had() {
        let messages = [r#"{"role":"user","content":"q"}"#, r#"{"role":"assistant","content":"a"}"#, "{}"];
        let body = |count: usize| format!(r#"{{"messages":[{}]}}"#, messages[..count].join(","));
        let body_of_all = body(3);
        let request = Request::parse(body_of_all.as_bytes()).unwrap();
        let identity = Identity { key: HashKey::fixed(1), principal: Hash(1), explicit: None };
        let transcript = Transcript::read(&request, body_of_all.as_bytes(), &identity, &NoMemo);
        for count in 1..=3 {
            assert_eq!(history(&transcript, Hash(9), count), Some(histories(&body(count), 9).whole));
        }
        assert_eq!(history(&transcript, Hash(9), 4), None);
        assert_ne!(history(&transcript, Hash(8), 2), history(&transcript, Hash(9), 2));
    }

    fn histories(body: &str, model: u128) -> Histories {
        let request = Request::parse(body.as_bytes()).unwrap();
        let identity = Identity { key: HashKey::fixed(1), principal: Hash(1), explicit: None };
        let transcript = Transcript::read(&request, body.as_bytes(), &identity, &NoMemo);
        Histories::read(&transcript, Hash(model))
    }

    #[test]
    fn a_history_is_found_again_before_the_reply_to_it() {
        let asked = r#"{"role":"user","content":"q"}"#;
        let reply = r#"{"role":"assistant","content":"a"}"#;
        let body = |messages: &[&str]| format!(r#"{{"messages":[{}]}}"#, messages.join(", "));
        let first = histories(&body(&[asked]), 1);
        assert_eq!(first.earlier, []);
        let next = histories(&body(&[asked, reply, asked]), 1);
        assert_eq!(next.earlier, [(1, first.whole)]);
        let later = histories(&body(&[asked, reply, asked, reply, asked]), 1);
        assert_eq!(later.earlier, [(3, next.whole), (1, first.whole)]);
        assert_ne!(histories(&body(&[asked]), 2).whole, first.whole, "another model");
    }

    #[test]
    fn other_messages_and_other_tools_are_another_history() {
        let of = |content: &str, tool: &str| {
            let body = format!(
                r#"{{"messages":[{{"role":"user","content":"{content}"}}],"tools":[{{"function":{{"name":"{tool}"}}}}]}}"#
            );
            histories(&body, 1).whole
        };
        let long = "x".repeat(200);
        assert_eq!(of(&long, "f"), of(&long, "f"));
        assert_ne!(of(&long, "f"), of(&long, "g"));
        assert_ne!(of(&long, "f"), of(&"x".repeat(201), "f"));
        assert_ne!(of(&long, "f"), of(&format!("{}y", "x".repeat(199)), "f"));
    }
}
