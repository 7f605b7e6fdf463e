//! Loops: calls that are made again and again and bring nothing new.
//!
//! # What it does
//! A call that gets the same result `notice` times in a row is followed by a notice; the `withhold`-th such call
//! is withheld. So are circles of two or three calls, and replies of more parallel calls that are made over and
//! over: told after `notice - 1` full rounds, withheld from the call that begins the `withhold`-th on. `empty`
//! results in a row that hold nothing are followed by a notice. Arguments are compared as JSON, whatever the
//! order of their keys. Tools in `exempt` (thinking, waiting) are not looked at, and after one everything begins
//! anew: what is asked again behind a wait is a new question. With `strict = true` what would be told is withheld
//! at once, and equal calls count wherever in the turn they stand and whatever they bring.
//!
//! # Why
//! A model that is stuck does not see it. Of the calls that repeat an earlier one most are healthy (80 % of those
//! of coding agents bring a changed result), so call *and* result are compared, and only next to each other: by
//! name and arguments alone 72 % of healthy coding runs would be stopped.
//!
//! # State
//! The last steps of the turn, each a call with the place of its result, and how long they have gone in circles;
//! the empty results in a row. All from the transcript. It begins anew where a turn begins, and not with every
//! user message: some clients put one of their own behind each group of results (dspy), and would never be told.
//!
//! # Example
//! `weather` is called five times with `{"city":"Paris"}` and answers "rain" each time: behind the third and the
//! fourth result the model reads that this will not change, and the fifth call is withheld with `LOOP_DETECTED`.

mod trail;
mod words;

use super::pattern::{Pattern, exact_names};
use super::plan::{Plan, Proposed, Reason, ReasonKind, Verdict};
use super::{ConfigError, Evidence, Policy};
use crate::transcript::calls::Call;
use crate::transcript::identity::Hash;
use crate::transcript::outcome::{Answer, Emptiness, has_failed, is_empty};
use crate::transcript::{Event, ToolResult, View};
use serde::Deserialize;
use std::collections::HashMap;
use trail::{Kind, Step, Trail};

/// See the file's head.
pub struct Loops {
    notice: usize,
    withhold: usize,
    empty: usize,
    strict: bool,
    exempt: Vec<Pattern>,
    words: Nothing,
}

/// `[policy.loops]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Equal calls with equal results in a row from which the model is told; 0: never.
    notice: usize,
    /// The equal call in a row that is withheld; 0: none.
    withhold: usize,
    /// Empty results in a row from which the model is told; 0: never.
    empty: usize,
    /// Withhold what would be told, and compare calls alone.
    strict: bool,
    /// Tools that may repeat themselves, by name or pattern.
    exempt: Vec<Pattern>,
    /// Texts that count as empty results, as patterns; case does not count.
    empty_texts: Vec<String>,
    /// Members of an object that hold its results.
    empty_keys: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Self {
            notice: 3,
            withhold: 5,
            empty: 2,
            strict: false,
            exempt: ["think", "wait*"].map(Pattern::new).to_vec(),
            empty_texts: owned(&["none", "no results*", "no matches*", "nothing found*"]),
            empty_keys: owned(&["results", "result", "items", "data", "hits", "matches", "documents", "rows", "content", "text"]),
        }
    }
}

/// What the settings count as empty.
struct Nothing {
    /// In lower case.
    texts: Vec<Pattern>,
    keys: Vec<String>,
}

/// A turn as far as it was read.
#[derive(Clone, Default)]
pub struct Turn {
    /// The calls of the last reply; those that are exempt have no step.
    reply: Vec<Made>,
    trail: Trail,
    empty: EmptyRun,
    /// How often each call was made; counted where the policy is strict.
    equal: HashMap<(String, Hash), usize>,
}

/// A call of a reply whose results are coming.
#[derive(Clone)]
struct Made {
    tool: String,
    arguments: Hash,
    answer: Option<(Answer, Kind)>,
}

/// Empty results in a row.
#[derive(Clone, Default)]
struct EmptyRun {
    results: usize,
    /// The results when the model was last told.
    told: usize,
    /// The tools that gave them, each once.
    tools: Vec<String>,
}

impl Policy for Loops {
    const NAME: &'static str = "loops";
    const SUMMARY: &'static str = "tells the model that it goes round in circles, then withholds the call";
    type Config = Config;
    type State = Turn;

    fn new(config: Config) -> Result<Self, Vec<ConfigError>> {
        let counts = [("notice", config.notice), ("withhold", config.withhold)];
        let problems: Vec<ConfigError> = counts
            .into_iter()
            .filter(|(_, count)| *count == 1)
            .map(|(key, _)| ConfigError::new(key, "expected 0 (off) or at least 2: one call is no loop"))
            .collect();
        if !problems.is_empty() {
            return Err(problems);
        }
        let texts = config.empty_texts.iter().map(|text| Pattern::new(text.trim().to_lowercase())).collect();
        Ok(Self {
            notice: config.notice,
            withhold: config.withhold,
            empty: config.empty,
            strict: config.strict,
            exempt: config.exempt,
            words: Nothing { texts, keys: config.empty_keys },
        })
    }

    fn named_tools(&self) -> Vec<String> {
        let exempt: Vec<_> = self.exempt.iter().map(|pattern| (pattern.clone(), ())).collect();
        exact_names(&exempt)
    }

    fn read(&self, event: &Event<'_>, turn: &mut Turn, plan: &mut Plan) {
        match event {
            Event::TurnBegins(_) => *turn = Turn::default(),
            Event::Assistant(_) => turn.begin_reply(),
            Event::Call(call) => self.add_call(call, turn),
            Event::Result(result) => self.add_result(result, turn),
            Event::ResultsComplete(view) => {
                self.add_reply(view, turn);
                if !self.strict {
                    self.tell(turn, plan);
                }
            }
            Event::System(_) | Event::User(_) => {}
        }
    }

    fn evidence(&self, name: &str, turn: &Turn) -> Evidence {
        if self.is_exempt(name) {
            return Evidence::Nothing;
        }
        let counts = self.strict && self.notice > 0;
        if counts || self.closed(turn).any(|circle| circle.has_tool(name)) {
            return Evidence::Arguments;
        }
        if self.strict && self.empty > 0 { Evidence::Name } else { Evidence::Nothing }
    }

    fn judge(&self, call: &Proposed<'_>, turn: &Turn) -> Verdict {
        if self.is_exempt(call.name) {
            return Verdict::Allow;
        }
        let reason = self.strict_reason(call, turn).or_else(|| self.reason(call, turn));
        reason.map_or(Verdict::Allow, Verdict::Withhold)
    }

    fn release(&self, call: &Proposed<'_>, turn: &mut Turn) {
        // What it brings is not known yet, so nothing behind it can be the next round of anything.
        turn.trail.clear();
        if let Some(arguments) = call.arguments_hash.filter(|_| self.strict && !self.is_exempt(call.name)) {
            turn.count(call.name, arguments);
        }
    }
}

impl Loops {
    fn is_exempt(&self, tool: &str) -> bool {
        self.exempt.iter().any(|pattern| pattern.matches(tool))
    }

    /// The circles whose next round is withheld.
    fn closed<'a>(&self, turn: &'a Turn) -> impl Iterator<Item = trail::Circle<'a>> {
        let withhold = self.withhold;
        turn.trail.circles(move |length| match (withhold, length) {
            (0, _) => usize::MAX,
            (_, 1) => withhold - 1,
            // Two calls behind one another are no circle until they come again.
            _ => (withhold - 1).max(2),
        })
    }

    fn add_call(&self, call: &Call<'_>, turn: &mut Turn) {
        if self.strict && !self.is_exempt(&call.name) {
            turn.count(&call.name, call.arguments);
        }
        turn.reply.push(Made { tool: call.name.to_string(), arguments: call.arguments, answer: None });
    }

    fn add_result(&self, result: &ToolResult<'_>, turn: &mut Turn) {
        let view = &result.view;
        let Some(made) = result.call.and_then(|call| turn.reply.get_mut(call.position)) else { return };
        let kind = if self.empty > 0 && is_empty(view, &self.words) {
            Kind::Empty
        } else if turn.trail.knows(&made.tool, made.arguments) && has_failed(view) {
            Kind::Failed
        } else {
            Kind::Useful
        };
        made.answer = Some((Answer::of(view), kind));
    }

    /// The last reply is answered: takes its steps up to the trail, in the order of the calls.
    fn add_reply(&self, last: &View<'_>, turn: &mut Turn) {
        let mut steps = Vec::new();
        for made in turn.reply.drain(..) {
            let Some((answer, kind)) = made.answer.filter(|_| !self.is_exempt(&made.tool)) else {
                turn.trail.clear();
                turn.empty = EmptyRun::default();
                steps.clear();
                continue;
            };
            turn.empty.add(&made.tool, kind);
            steps.push(Step { tool: made.tool, arguments: made.arguments, answer, kind });
        }
        turn.trail.add_reply(steps, last.body);
    }

    fn tell(&self, turn: &mut Turn, plan: &mut Plan) {
        let (notice, withhold) = (self.notice, self.withhold);
        let enough = |length| match (notice, length) {
            (0, _) => usize::MAX,
            (_, 1) => notice,
            _ => (notice - 1).max(2),
        };
        let due = self.empty > 0 && turn.empty.results >= turn.empty.told + self.empty;
        if due {
            turn.empty.told = turn.empty.results;
        }
        if let Some(circle) = turn.trail.tell(enough) {
            plan.notice("notice", words::notice(&circle, withhold > 0 && circle.rounds + 1 >= withhold));
        } else if due {
            plan.notice("empty", words::notice_empty(turn.empty.results, &turn.empty.tools));
        }
    }

    fn reason(&self, call: &Proposed<'_>, turn: &Turn) -> Option<Reason> {
        let arguments = call.arguments_hash?;
        let circle = self.closed(turn).find(|circle| circle.has_call(call.name, arguments))?;
        let numbers = vec![("rounds", circle.rounds as u64), ("calls_per_round", circle.steps.len() as u64)];
        Some(reason(words::withheld(&circle), numbers))
    }

    fn strict_reason(&self, call: &Proposed<'_>, turn: &Turn) -> Option<Reason> {
        if !self.strict {
            return None;
        }
        let equal = call.arguments_hash.map_or(0, |arguments| turn.count_of(call.name, arguments));
        if self.notice > 0 && equal + 1 >= self.notice {
            return Some(reason(words::withheld_equal(call.name, equal), vec![("equal_calls", equal as u64)]));
        }
        let empty = &turn.empty;
        let found_nothing = empty.tools.iter().any(|tool| tool == call.name);
        if self.empty > 0 && empty.results >= self.empty && found_nothing {
            let numbers = vec![("empty_results", empty.results as u64)];
            return Some(reason(words::withheld_empty(call.name, empty.results), numbers));
        }
        None
    }
}

fn reason(message: String, numbers: Vec<(&'static str, u64)>) -> Reason {
    Reason { kind: ReasonKind::LoopDetected, message, retryable: false, numbers }
}

impl Turn {
    /// A reply begins. One before it that was never answered in full breaks every circle.
    fn begin_reply(&mut self) {
        if !self.reply.is_empty() {
            self.reply.clear();
            self.trail.clear();
            self.empty = EmptyRun::default();
        }
    }

    fn count(&mut self, tool: &str, arguments: Hash) {
        *self.equal.entry((tool.to_owned(), arguments)).or_default() += 1;
    }

    fn count_of(&self, tool: &str, arguments: Hash) -> usize {
        self.equal.get(&(tool.to_owned(), arguments)).copied().unwrap_or_default()
    }
}

impl EmptyRun {
    fn add(&mut self, tool: &str, kind: Kind) {
        if kind != Kind::Empty {
            *self = Self::default();
            return;
        }
        self.results += 1;
        if !self.tools.iter().any(|known| known == tool) {
            self.tools.push(tool.to_owned());
        }
    }
}

impl Emptiness for Nothing {
    fn says_nothing(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        self.texts.iter().any(|pattern| pattern.matches(&text))
    }

    fn holds_results(&self, key: &str) -> bool {
        self.keys.iter().any(|known| known == key)
    }
}
