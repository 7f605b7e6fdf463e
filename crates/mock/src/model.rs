//! The simulated models: what each refuses and what each answers, as rules over the conversation. `reply` writes the
//! answers on the wire.

use super::refusal::{Code, Refusal};
use super::request::{Chat, Choice, Format, Tool, text_of};
use super::sample::sample;
use hyper::http::StatusCode;
use serde_json::{Value, json};
use wire::plural::counted;

/// How much of the end of a text `demo-polite` searches for a request to stop, in characters. A notice is at the end; a
/// long page that mentions budgets is no reason to stop.
const HEEDED_CHARS: usize = 1_000;
/// Words on which `demo-polite` stops calling tools, in lower case.
const STOP_WORDS: [&str; 6] =
    ["answer now", "final answer", "budget", "loop_detected", "rate_limit", "was not run"];
/// How `demo-runaway` varies its query.
const VARIATIONS: [&str; 6] = ["", "overview", "explained", "latest", "examples", "sources"];
/// One in so many calls of `demo-runaway` reads a page instead of searching.
const PAGE_EVERY: usize = 6;

/// A model that can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Model {
    /// Answers; calls each tool that the user names, once a turn.
    Chat,
    /// Searches for ever, with a slightly changed query each time.
    Runaway,
    /// Searches like the runaway until a notice asks it to stop.
    Polite,
    /// Makes the same call for ever.
    Stuck,
    /// Refuses every request with tools, in Ollama's words.
    NoTools,
    /// As polite, but refuses system messages after the first message, as Qwen's template does on vLLM.
    Strict,
}

/// What a model says in one reply.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Said {
    /// An answer.
    Text(String),
    /// Tool calls: names and arguments.
    Calls(Vec<(String, Value)>),
}

impl Model {
    /// Every model, in the order of `GET /v1/models`.
    pub(super) const ALL: [Self; 6] =
        [Self::Chat, Self::Runaway, Self::Polite, Self::Stuck, Self::NoTools, Self::Strict];

    /// The name that a request gives.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Chat => "demo-chat",
            Self::Runaway => "demo-runaway",
            Self::Polite => "demo-polite",
            Self::Stuck => "demo-stuck",
            Self::NoTools => "demo-no-tools",
            Self::Strict => "demo-strict",
        }
    }

    /// The model of that name.
    pub(super) fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|model| model.name() == name)
    }

    /// What follows OpenAI's own words where a request names none of the models: without it, a program that asks for
    /// `gpt-4o` learns nothing of what it could ask for.
    pub(super) fn list() -> String {
        format!("This upstream is simulated and has the models {}.", Self::ALL.map(Self::name).join(", "))
    }

    /// Refuses what OpenAI accepts but this model does not.
    pub(super) fn accepts(self, chat: &Chat) -> Result<(), Refusal> {
        let refusal =
            |kind, message: String| Refusal { kind, ..Refusal::plain(StatusCode::BAD_REQUEST, message) };
        match self {
            Self::NoTools if chat.offers_tools => {
                Err(refusal("api_error", format!("{} does not support tools", self.name())))
            }
            Self::Strict if chat.messages.iter().skip(1).any(is_instruction) => {
                let text = "System message must be at the beginning.";
                Err(Refusal { code: Code::Number(400), ..refusal("BadRequestError", text.to_owned()) })
            }
            _ => Ok(()),
        }
    }

    /// What the model says to the conversation. Equal conversations get equal replies.
    pub(super) fn reply(self, chat: &Chat) -> Said {
        let calls = match &chat.choice {
            _ if chat.tools.is_empty() => Vec::new(),
            Choice::None => Vec::new(),
            Choice::Named(name) => {
                chat.tools.iter().filter(|tool| tool.name == *name).map(|tool| chat.call(tool)).collect()
            }
            Choice::Auto => self.calls(chat),
            Choice::Required => {
                let calls = self.calls(chat);
                if calls.is_empty() { vec![chat.call(&chat.tools[0])] } else { calls }
            }
        };
        if calls.is_empty() { Said::Text(self.answer(chat)) } else { Said::Calls(calls) }
    }

    /// The calls that the model makes when it may choose; `chat` offers at least one tool.
    fn calls(self, chat: &Chat) -> Vec<(String, Value)> {
        match self {
            Self::Chat | Self::NoTools => chat.calls_asked_for(),
            Self::Polite | Self::Strict if chat.says_stop() => Vec::new(),
            Self::Runaway | Self::Polite | Self::Strict => vec![chat.next_search()],
            Self::Stuck => vec![chat.call(chat.search_tool())],
        }
    }

    fn answer(self, chat: &Chat) -> String {
        let text = match self {
            Self::Chat | Self::NoTools => chat.short_answer(),
            Self::Runaway | Self::Polite | Self::Stuck | Self::Strict => chat.summary(),
        };
        match &chat.format {
            Format::Text => text,
            Format::Json => json!({"answer": text}).to_string(),
            Format::Schema(schema) => sample(schema, &text).to_string(),
        }
    }
}

impl Chat {
    /// The tools that the last user message names and that were not called since, or the first of them
    /// where calls must come one by one.
    fn calls_asked_for(&self) -> Vec<(String, Value)> {
        let asked = self.messages.iter().rposition(|message| message["role"] == "user");
        let since = &self.messages[asked.unwrap_or(0)..];
        let called: Vec<&str> = since
            .iter()
            .filter_map(|message| message["tool_calls"].as_array())
            .flatten()
            .filter_map(|call| call["function"]["name"].as_str())
            .collect();
        let question = asked.map(|asked| text_of(&self.messages[asked])).unwrap_or_default();
        let words: Vec<&str> =
            question.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))).collect();
        let named = |tool: &&Tool| words.iter().any(|word| word.eq_ignore_ascii_case(&tool.name));
        let wanted = self.tools.iter().filter(named).filter(|tool| !called.contains(&tool.name.as_str()));
        wanted.take(if self.parallel { usize::MAX } else { 1 }).map(|tool| self.call(tool)).collect()
    }

    /// The runaway's next call: a search with a new query, now and then a page.
    fn next_search(&self) -> (String, Value) {
        let round = self.results().count();
        let page = self.tools.iter().find(|tool| tool.name.to_lowercase().contains("url"));
        if let Some(page) = page
            && round % PAGE_EVERY == PAGE_EVERY - 1
        {
            return (page.name.clone(), json!({"url": format!("https://example.com/page-{}", round + 1)}));
        }
        let variation = VARIATIONS[round % VARIATIONS.len()];
        let lap = match round / VARIATIONS.len() {
            0 => String::new(),
            lap => format!("page {}", lap + 1),
        };
        let query = [self.topic().as_str(), variation, &lap].join(" ");
        let tool = self.search_tool();
        (tool.name.clone(), arguments(tool, query.split_whitespace().collect::<Vec<_>>().join(" ").as_str()))
    }

    /// A call of `tool` about the conversation's topic.
    fn call(&self, tool: &Tool) -> (String, Value) {
        (tool.name.clone(), arguments(tool, &self.topic()))
    }

    /// The first tool that searches, by its name, else the first of all.
    fn search_tool(&self) -> &Tool {
        self.tools.iter().find(|tool| tool.name.contains("search")).unwrap_or(&self.tools[0])
    }

    /// The first words of the first user message: they stay the same while the conversation grows.
    fn topic(&self) -> String {
        let first = self.messages.iter().find(|message| message["role"] == "user");
        let text = first.map(text_of).unwrap_or_default();
        text.split_whitespace().take(6).collect::<Vec<_>>().join(" ")
    }

    /// The tool messages.
    fn results(&self) -> impl Iterator<Item = &Value> {
        self.messages.iter().filter(|message| message["role"] == "tool")
    }

    /// Whether a message since the model's last one asks it to stop.
    fn says_stop(&self) -> bool {
        let news = self.messages.iter().rev().take_while(|message| message["role"] != "assistant");
        news.map(text_of).any(|text| {
            let start = text.char_indices().rev().nth(HEEDED_CHARS - 1).map_or(0, |(start, _)| start);
            let end = text[start..].to_lowercase();
            STOP_WORDS.iter().any(|word| end.contains(word))
        })
    }

    fn short_answer(&self) -> String {
        let last = self.messages.iter().rev().find(|message| message["role"] == "user");
        let question: String = last.map(text_of).unwrap_or_default().chars().take(120).collect();
        let about = format!("This is the simulated model's answer to \"{question}\".");
        if self.results().next().is_none() { about } else { format!("{about} {}", self.summary()) }
    }

    fn summary(&self) -> String {
        let (results, characters) = self
            .results()
            .map(|message| text_of(message).chars().count())
            .fold((0_usize, 0), |(results, all), characters| (results + 1, all + characters));
        format!(
            "I have seen {} with {}, and this is my final answer.",
            counted(results, "tool result"),
            counted(characters, "character")
        )
    }
}

/// Arguments that fit the tool's schema, its texts being `text`.
fn arguments(tool: &Tool, text: &str) -> Value {
    match tool.parameters {
        Value::Object(_) => sample(&tool.parameters, text),
        _ => json!({}),
    }
}

fn is_instruction(message: &Value) -> bool {
    message["role"] == "system" || message["role"] == "developer"
}
