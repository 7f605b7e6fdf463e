//! An upstream whose models refuse what others accept: tools, a choice of tools, calls in the history, late system
//! messages, long requests. It refuses as real upstreams do: by a status, or inside a reply whose status is 200.

use super::client::MODELS;
use super::numbers::Numbers;
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What a model may refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dislike {
    Tools,
    Choice,
    History,
    LateSystem,
    Length,
}

/// What a model answers to one sending, if it refuses it.
#[derive(Clone, Debug)]
pub struct Refused {
    pub dislike: Dislike,
    /// 200: the refusal is inside the reply.
    pub status: u16,
    pub body: Bytes,
}

/// The models of one world, and what each of them refuses.
pub struct Upstream {
    dislikes: BTreeMap<&'static str, Vec<Dislike>>,
    /// Most bytes that a model takes that refuses long requests.
    most_bytes: usize,
    numbers: Numbers,
}

impl Upstream {
    pub fn new(seed: u64) -> Self {
        use Dislike::{Choice, History, LateSystem, Length, Tools};
        let mut numbers = Numbers::of(seed ^ 0x5eed);
        let tempers: [&[Dislike]; 18] = [
            &[],
            &[],
            &[],
            &[],
            &[Tools],
            &[Tools, History],
            &[Choice],
            &[Choice],
            &[Choice],
            &[Choice],
            &[Choice, Tools],
            &[LateSystem],
            &[LateSystem, Length],
            &[LateSystem, Tools, Length],
            &[Length],
            &[Choice, Tools, History, LateSystem],
            &[Choice, Tools, History, LateSystem, Length],
            &[LateSystem, Choice, Tools],
        ];
        let dislikes = MODELS.map(|model| (model, numbers.pick(&tempers).to_vec())).into();
        Self { dislikes, most_bytes: 2_500 + numbers.below(5_000), numbers }
    }

    /// None of the models takes long requests.
    pub fn tighten(&mut self) {
        let gained = |disliked: &mut Vec<Dislike>| disliked.push(Dislike::Length);
        self.dislikes.values_mut().filter(|disliked| !disliked.contains(&Dislike::Length)).for_each(gained);
    }

    /// What is wrong with a request, if its model refuses such requests.
    pub fn refuses(&mut self, sent: &Value) -> Option<Refused> {
        let model = sent["model"].as_str().unwrap_or_default();
        let disliked = self.dislikes.get(model)?.iter().copied();
        let dislike = disliked.into_iter().find(|dislike| self.has(sent, *dislike))?;
        let error = self.error(dislike, sent);
        let status = if self.numbers.percent(50) { 200 } else { error.0 };
        Some(Refused { dislike, status, body: json!({"error": error.1}).to_string().into() })
    }

    fn has(&self, sent: &Value, disliked: Dislike) -> bool {
        let messages = sent["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
        match disliked {
            Dislike::Tools => sent.get("tools").is_some(),
            Dislike::Choice => sent.get("tool_choice").is_some(),
            Dislike::History => messages.iter().any(|message| {
                message["role"] == "tool" || message["role"] == "function" || message["tool_calls"].is_array()
            }),
            Dislike::LateSystem => {
                let first = messages.iter().take_while(|message| message["role"] == "system").count();
                messages[first..].iter().any(|message| message["role"] == "system")
            }
            Dislike::Length => sent["messages"].to_string().len() > self.most_bytes,
        }
    }

    fn error(&mut self, dislike: Dislike, sent: &Value) -> (u16, Value) {
        let (status, message) = match dislike {
            Dislike::Tools => *self.numbers.pick(&[
                (404, "No endpoints found that support tool use."),
                (400, "small-model does not support tools"),
                (500, "tools param requires --jinja flag"),
            ]),
            Dislike::Choice => (404, "No endpoints found that support the provided 'tool_choice' value."),
            // So says one whose tools are gone and whose history holds calls.
            Dislike::History if sent.get("tools").is_none() => (
                400,
                "The toolConfig field must be defined when using toolUse and toolResult content blocks.",
            ),
            Dislike::History => (400, "This model does not support messages with the 'tool' role."),
            Dislike::LateSystem => (400, "System message must be at the beginning."),
            Dislike::Length => (400, "This model's maximum context length is 4096 tokens."),
        };
        (status, json!({"message": message, "type": "invalid_request_error"}))
    }
}
