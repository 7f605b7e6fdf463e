//! The state machine, checked: its states, their transitions, and the shortest way to a state in which a tool may be
//! called. Pure functions; no texts.

use super::text::{count_words, is_question};
use super::written::Trigger;
use crate::about::{Callable, NamedTool, list_tools};
use crate::pattern::Pattern;
use model::outcome::{Emptiness, has_failed, is_empty};
use model::{ToolResult, View};
use regex::Regex;
use std::cell::OnceCell;
use std::collections::VecDeque;

/// A machine whose first state is its start.
pub struct Machine {
    pub states: Vec<State>,
    /// Tools that may be called in every state.
    pub always: Vec<Pattern>,
}

/// One state.
pub struct State {
    pub name: String,
    /// `None`: all tools.
    pub tools: Option<Vec<Pattern>>,
    pub text: Option<String>,
    pub transitions: Vec<Transition>,
}

/// A transition out of a state.
pub struct Transition {
    pub trigger: Trigger,
    pub tool: Option<Pattern>,
    pub pattern: Option<Regex>,
    pub words: usize,
    /// How often it must come; at least 1.
    pub count: u32,
    /// The index of the state that is entered.
    pub to: usize,
}

/// The position of a machine in one conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The index of the state.
    pub state: usize,
    /// How often each of its transitions' events has come; shorter where the rest has not.
    seen: Vec<u32>,
}

/// What happens in a conversation, as far as it can cause a transition.
pub enum Happening<'a> {
    User(Said<'a>),
    /// A message without calls.
    Assistant(Said<'a>),
    /// A call of the tool.
    Called(&'a str),
    Answered(&'a ToolResult<'a>),
}

/// A message whose text is decoded when it is needed.
pub struct Said<'a> {
    view: &'a View<'a>,
    text: OnceCell<String>,
}

impl Machine {
    /// Takes the first transition that `happening` completes; true where a state was entered, even the same one.
    pub fn step(&self, happening: &Happening<'_>, position: &mut Position) -> bool {
        let Some(state) = self.states.get(position.state) else { return false };
        for (at, transition) in state.transitions.iter().enumerate() {
            if !transition.fits(happening) {
                continue;
            }
            if position.seen.len() <= at {
                position.seen.resize(at + 1, 0);
            }
            position.seen[at] += 1;
            if position.seen[at] >= transition.count {
                *position = Position { state: transition.to, seen: Vec::new() };
                return true;
            }
        }
        false
    }

    /// Whether `tool` may be called in the state with index `state`.
    pub fn allows(&self, state: usize, tool: &str) -> bool {
        let listed = self.states.get(state).and_then(|state| state.tools.as_ref());
        listed.is_none_or(|listed| listed.iter().chain(&self.always).any(|pattern| pattern.matches(tool)))
    }

    /// Whether `tool` may be called in any state.
    pub fn allows_ever(&self, tool: &str) -> bool {
        self.callable().includes(tool)
    }

    /// The tools that may be called in any state.
    pub fn callable(&self) -> Callable {
        let listed: Option<Vec<&Vec<Pattern>>> =
            self.states.iter().map(|state| state.tools.as_ref()).collect();
        let only = listed.map(|listed| listed.into_iter().flatten().chain(&self.always).cloned().collect());
        Callable { only, except: Vec::new() }
    }

    /// Whether any tool is ever blocked.
    pub fn restricts(&self) -> bool {
        self.states.iter().any(|state| state.tools.is_some())
    }

    /// The fewest transitions from the state at `from` to one in which `tool` may be called, without relying on
    /// failures where that is possible; `None` where there is no such way.
    pub fn route(&self, from: usize, tool: &str) -> Option<Vec<&Transition>> {
        let healthy = |transition: &Transition| transition.trigger != Trigger::ToolFailed;
        self.route_over(from, tool, &healthy).or_else(|| self.route_over(from, tool, &|_| true))
    }

    /// Every tool that is named, with the key that names it.
    pub fn named_tools(&self) -> Vec<NamedTool> {
        let of_state = |state: &State| {
            let listed = list_tools(format!("state.{}.tools", state.name), state.tools.iter().flatten());
            let moving = state.transitions.iter().enumerate().flat_map(|(at, transition)| {
                list_tools(format!("state.{}.on.{}.tool", state.name, at + 1), &transition.tool)
            });
            listed.into_iter().chain(moving).collect::<Vec<_>>()
        };
        list_tools("always", &self.always).into_iter().chain(self.states.iter().flat_map(of_state)).collect()
    }

    fn route_over(
        &self,
        from: usize,
        tool: &str,
        counts: &dyn Fn(&Transition) -> bool,
    ) -> Option<Vec<&Transition>> {
        let mut reached_by: Vec<Option<(usize, &Transition)>> = self.states.iter().map(|_| None).collect();
        let mut open = VecDeque::from([from]);
        while let Some(at) = open.pop_front() {
            if at != from && self.allows(at, tool) {
                return Some(backtrack(&reached_by, from, at));
            }
            for transition in self.states[at].transitions.iter().filter(|transition| counts(transition)) {
                if transition.to != from && reached_by[transition.to].is_none() {
                    reached_by[transition.to] = Some((at, transition));
                    open.push_back(transition.to);
                }
            }
        }
        None
    }
}

/// The transitions that lead from `from` to `to`.
fn backtrack<'a>(
    reached_by: &[Option<(usize, &'a Transition)>],
    from: usize,
    to: usize,
) -> Vec<&'a Transition> {
    let mut route = Vec::new();
    let mut at = to;
    while let Some((before, transition)) = reached_by[at].filter(|_| at != from) {
        route.push(transition);
        at = before;
    }
    route.reverse();
    route
}

impl Position {
    /// How often the event of a transition of this state has come since it was entered.
    pub fn seen(&self, machine: &Machine, transition: &Transition) -> u32 {
        let transitions = &machine.states[self.state].transitions;
        let at = transitions.iter().position(|known| std::ptr::eq(known, transition));
        at.and_then(|at| self.seen.get(at)).copied().unwrap_or(0)
    }
}

impl State {
    /// Whether no transition leads out of it.
    pub fn is_final(&self) -> bool {
        self.transitions.is_empty()
    }
}

impl Transition {
    /// Whether every event that fits `other` fits this one too.
    pub fn includes(&self, other: &Self) -> bool {
        let tool = match (&self.tool, &other.tool) {
            (None, _) => true,
            (Some(pattern), None) => pattern.as_str() == "*",
            // A star in the other's pattern is matched by one star of this one, or not at all.
            (Some(pattern), Some(other)) => pattern.matches(other.as_str()),
        };
        let source = |pattern: &Option<Regex>| pattern.as_ref().map(|regex| regex.as_str().to_owned());
        let pattern = self.pattern.is_none() || source(&self.pattern) == source(&other.pattern);
        self.trigger.includes(other.trigger) && tool && pattern && self.words <= other.words
    }

    fn fits(&self, happening: &Happening<'_>) -> bool {
        match (self.trigger, happening) {
            (Trigger::UserMessage, Happening::User(said)) => {
                (self.words == 0 || count_words(said.text()) >= self.words) && self.fits_text(said)
            }
            (Trigger::AssistantMessage, Happening::Assistant(said)) => {
                !said.text().trim().is_empty() && self.fits_text(said)
            }
            (Trigger::AssistantQuestion, Happening::Assistant(said)) => {
                is_question(said.text()) && self.fits_text(said)
            }
            (Trigger::ToolCalled, Happening::Called(tool)) => self.fits_tool(tool),
            (trigger, Happening::Answered(result)) if trigger.is_of_tool() => {
                self.fits_tool(result.tool()) && fits_outcome(trigger, &result.view)
            }
            _ => false,
        }
    }

    fn fits_text(&self, said: &Said<'_>) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| pattern.is_match(said.text()))
    }

    fn fits_tool(&self, tool: &str) -> bool {
        self.tool.as_ref().is_none_or(|pattern| pattern.matches(tool))
    }
}

fn fits_outcome(trigger: Trigger, result: &View<'_>) -> bool {
    match trigger {
        Trigger::ToolSucceeded => !is_empty(result, &ToTheLetter) && !has_failed(result),
        Trigger::ToolFailed => has_failed(result),
        Trigger::ToolEmpty => is_empty(result, &ToTheLetter) && !has_failed(result),
        _ => false,
    }
}

/// Empty means without content in any language.
struct ToTheLetter;

impl Emptiness for ToTheLetter {
    fn says_nothing(&self, _text: &str) -> bool {
        false
    }

    fn holds_results(&self, _key: &str) -> bool {
        false
    }
}

impl<'a> Said<'a> {
    /// What `view` says.
    pub fn new(view: &'a View<'a>) -> Self {
        Self { view, text: OnceCell::new() }
    }

    fn text(&self) -> &str {
        self.text.get_or_init(|| self.view.texts().collect::<Vec<_>>().join("\n"))
    }
}
