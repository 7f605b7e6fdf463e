//! A tool of toolrein's own by which the model reads the parts of results that were cut.
//!
//! # What it does
//! Where results may be cut, one more tool is declared to the model, `read_more`, after the client's tools. Its
//! arguments are the number of a call, as the markers name it, and the wanted part of its result: characters, lines,
//! a text to search for, or a path into JSON. toolrein answers the call itself from the whole result; the client
//! never sees it. An answer has at most `max_chars` characters and says what is left out. `reads` calls are answered
//! in a turn; after that the model reads that there are no more. What another policy keeps from the model cannot be
//! read in this way either.
//!
//! # Why
//! A cut that can be undone may be a deep one. The client sends the whole result again with every request, so nothing
//! has to be stored. How often a tool's results are read again shows whether its limit is too low.
//!
//! # State
//! The request's bytes, shared, and the position of each result in them; the reads of the turn, including those in
//! its hidden exchanges. The tool is declared from the first request on, depending only on the configuration and the
//! client's tools, so that the prompt cache stays valid; it is left out only where the reply must be a call, which is
//! the client's.
//!
//! # Example
//! Of a build log of 200,000 characters the model reads the beginning and the end around `[toolrein: cut ... use
//! read_more with call 7]`; it calls `read_more` with `{"call": 7, "search": "linker"}` and reads the lines around
//! each hit.

mod found;
mod read_request;
mod search;

use super::about::{About, Need};
use super::texts::{OwnTexts, Text, Texts, described};
use super::{ConfigError, Policy, RequestView};
use bytes::Bytes;
use model::plan::{Frame, Plan, Proposed, Reason, ReasonKind, TextFacts, ToolsEdit, Usage, Verdict};
use model::{Event, ToolResult};
use read_request::ReadRequest;
use serde::Deserialize;
use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;
use wire::body::Str;
use wire::escaped_text::EscapedText;
use wire::hidden_unicode::strip;
use wire::json::decode;

/// The tool's name.
const TOOL: &str = "read_more";
/// The tool's declaration.
const DECLARATION: &str = include_str!("read_more/tool.json");
/// The tool's description.
const DECLARED: Text = Text {
    key: "declared",
    default: "Reads more of an earlier tool result that was shortened or cleared here. Its marker names the \
              number of the call. Ask for one thing: search, lines, path, or characters from and to. Does not \
              run the tool again; prefer search over reading it all.",
    placeholders: &[],
};
const UNREADABLE: Text = Text {
    key: "unreadable",
    default: "[toolrein: the result of call {call} ({tool}) cannot be read]",
    placeholders: &["call", "tool"],
};
/// The answer to a call whose arguments cannot be meant.
const INVALID: Text = Text { key: "invalid", default: "[toolrein: {problem}]", placeholders: &["problem"] };
const USED_UP: Text = Text {
    key: "used_up",
    default: "{tool} was used {limit} {limit:time/times} in this turn; no more reads are possible until the user's next message. Go \
              on with what you have read, or call the tool itself for a narrower part.",
    placeholders: &["tool", "limit"],
};
/// The smallest `max_chars`: the first line and some text.
const MIN_CHARS: usize = 1_000;

/// See the module.
pub struct ReadMore {
    config: Config,
    texts: Texts,
    declaration: Arc<str>,
}

/// `[policy.read_more]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Calls that are answered in a turn.
    reads: u64,
    /// The longest answer, in characters.
    max_chars: usize,
    /// The operator's own texts.
    texts: OwnTexts,
}

impl Default for Config {
    fn default() -> Self {
        Self { reads: 8, max_chars: 16_000, texts: OwnTexts::default() }
    }
}

/// What is known of one conversation.
#[derive(Clone, Default)]
pub struct State {
    /// The tool is ours in this conversation.
    on: bool,
    /// Shared by the choices of a reply.
    results: Arc<Vec<Kept>>,
    /// Reads in the turn.
    reads: u64,
}

/// A result that may be asked for.
#[derive(Clone)]
struct Kept {
    /// The number of its call.
    call: usize,
    tool: String,
    /// The bytes that hold its texts.
    bytes: Bytes,
    texts: Vec<KeptText>,
}

#[derive(Clone)]
struct KeptText {
    form: KeptForm,
    /// Another policy has removed characters that hide text from people.
    cleaned: bool,
    /// Lines that another policy has put before and after it.
    around: Vec<Frame>,
}

#[derive(Clone)]
enum KeptForm {
    /// As the client sent it.
    Sent(Str),
    /// As another policy left it.
    Edited(EscapedText),
    Blocked,
}

impl Policy for ReadMore {
    const NAME: &'static str = "read_more";
    const SUMMARY: &'static str = "lets the model read what was cut of a result, without the client";
    const SCOPE: Option<&'static str> = Some(
        "what a request holds; with previous_response_id or a conversation upstream what the state store kept of it",
    );
    const TEXTS: &'static [Text] = &[DECLARED, found::RESULT, UNREADABLE, INVALID, USED_UP];
    type Config = Config;
    type State = State;

    fn new(config: Config) -> Result<Self, Vec<ConfigError>> {
        let mut problems = Vec::new();
        if config.reads == 0 {
            problems.push(ConfigError::new("reads", "expected at least 1"));
        }
        if config.max_chars < MIN_CHARS {
            let problem = format!("expected at least {MIN_CHARS} characters");
            problems.push(ConfigError::new("max_chars", problem));
        }
        let texts = config.texts.clone().check(Self::TEXTS, &mut problems);
        if texts.own(&found::RESULT).is_some_and(|own| own.chars().count() > found::MOST_RESULT_CHARS) {
            let problem = format!("expected at most {} characters", found::MOST_RESULT_CHARS);
            problems.push(ConfigError::new("texts.result", problem));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let declaration = described(DECLARATION, &texts.fill(&DECLARED, &[]));
        Ok(Self { config, texts, declaration })
    }

    fn about(&self) -> About {
        About { edits_context: true, needs: vec![Need::CutResults], ..About::default() }
    }

    fn open(&self, request: &RequestView<'_>, state: &mut State, plan: &mut Plan) {
        let is_taken = request.tools.iter().any(|tool| tool.name == TOOL);
        state.on = request.takes_tools && request.cuts && !is_taken;
        if !state.on {
            return;
        }
        // Also where it is not declared: the markers must not depend on anything that changes in a conversation.
        plan.edit_tools(ToolsEdit::Own { name: TOOL, reads_results: true });
        if !request.forced {
            plan.edit_tools(ToolsEdit::Declare(Arc::clone(&self.declaration)));
        }
    }

    fn read(&self, event: &Event<'_>, state: &mut State, plan: &mut Plan) {
        match event {
            _ if !state.on => {}
            Event::TurnBegins(_) => state.reads = 0,
            Event::Hidden(view) => {
                let calls = view.message.calls.iter();
                let names = calls.filter_map(|call| call.full_name(view.body));
                state.reads += names.filter(|name| name == TOOL).count() as u64;
            }
            Event::Result(result) => {
                let kept = kept(result, plan);
                Arc::make_mut(&mut state.results).extend(kept);
            }
            _ => {}
        }
    }

    fn judge(&self, call: &Proposed<'_>, state: &State) -> Verdict {
        if !state.on || call.name != TOOL {
            return Verdict::Allow;
        }
        if state.reads >= self.config.reads {
            return Verdict::Block(self.reason(state.reads));
        }
        let asked = ReadRequest::read(call.arguments.unwrap_or_default());
        let found = asked.and_then(|asked| Ok((state.kept(asked.call)?, asked)));
        match found {
            Ok((kept, asked)) => Verdict::Answer {
                content: kept.answer(&asked, self.config.max_chars, &self.texts),
                re_requests: Some(kept.tool.clone()),
            },
            Err(problem) => Verdict::Answer {
                content: self.texts.fill(&INVALID, &[("problem", &problem)]),
                re_requests: None,
            },
        }
    }

    fn release(&self, call: &Proposed<'_>, state: &mut State) {
        state.reads += u64::from(state.on && call.name == TOOL);
    }

    fn usage(&self, state: &State, _now_ms: u64) -> Vec<Usage> {
        let used = Usage { tool: TOOL.to_owned(), used: state.reads, limit: self.config.reads };
        if state.on { vec![used] } else { Vec::new() }
    }
}

impl ReadMore {
    fn reason(&self, used: u64) -> Reason {
        let limit = self.config.reads;
        let text = self.texts.fill(&USED_UP, &[("tool", &TOOL as &dyn Display), ("limit", &limit)]);
        Reason::new(ReasonKind::BudgetExceeded, text).with(vec![("used", used), ("limit", limit)])
    }
}

impl State {
    /// The result of the call with this number.
    fn kept(&self, call: usize) -> Result<&Kept, String> {
        // Most numbers grow, but parallel calls may be answered in any order.
        let found = self.results.iter().find(|kept| kept.call == call);
        found.ok_or_else(|| format!("call {call} of this conversation has no result to read"))
    }
}

impl Kept {
    fn answer(&self, asked: &ReadRequest, max_chars: usize, own: &Texts) -> String {
        let mut around: Vec<&Frame> = Vec::new();
        let mut texts: Vec<Cow<'_, str>> = Vec::new();
        for text in &self.texts {
            let shown: Cow<'_, str> = match &text.form {
                KeptForm::Sent(place) => decode(*place, &self.bytes),
                KeptForm::Edited(edited) => Cow::Borrowed(edited),
                KeptForm::Blocked => continue,
            };
            let cleaned = if text.cleaned { strip(&shown) } else { None };
            texts.push(cleaned.map_or(shown, |(cleaned, _)| Cow::Owned(cleaned)));
            around.extend(&text.around);
        }
        let Self { call, tool, .. } = self;
        if texts.is_empty() {
            return own.fill(&UNREADABLE, &[("call", call as &dyn Display), ("tool", tool)]);
        }
        let whole = texts.join("\n");
        let mut answer = found::answer(&whole, asked, *call, tool, max_chars, own);
        around.dedup();
        for Frame { before, after } in around {
            answer = format!("{before}{answer}{after}");
        }
        answer
    }
}

/// The texts of a result, unless an earlier policy keeps them from the model.
fn kept(result: &ToolResult<'_>, plan: &Plan) -> Option<Kept> {
    let message = result.view.message;
    let call = result.call.filter(|_| !message.odd)?;
    let facts = plan.facts_here();
    let texts = message.content.texts().enumerate().map(|(at, place)| text(facts.text(at), place)).collect();
    let (bytes, tool) = (result.view.body.clone(), call.name.to_string());
    Some(Kept { call: call.ordinal, tool, bytes, texts })
}

fn text(facts: Option<&TextFacts<'_>>, place: Str) -> KeptText {
    let mut kept = KeptText { form: KeptForm::Sent(place), cleaned: false, around: Vec::new() };
    if let Some(facts) = facts {
        kept.form = match facts.replaced {
            _ if facts.blocked => KeptForm::Blocked,
            Some(by) => KeptForm::Edited(by.clone()),
            None => kept.form,
        };
        kept.cleaned = facts.cleaned;
        kept.around = facts.around.iter().copied().cloned().collect();
    }
    kept
}

#[cfg(test)]
mod tests;
