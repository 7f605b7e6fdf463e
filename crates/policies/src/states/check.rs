//! Checks of the machine as written: names of states that do not exist, states that are never entered, transitions
//! that are never taken, tools that look misspelled. Reports all problems at once; runs nothing.

use super::machine::{Machine, State, Transition};
use super::written::{Config, StateConfig, TransitionConfig, Trigger};
use crate::ConfigError;
use crate::about::exact_names;
use crate::pattern::Pattern;
use regex::{Regex, RegexBuilder};
use std::collections::BTreeMap;

/// The largest compiled pattern, in bytes. Generous for hand-written patterns, and it bounds time and memory.
const PATTERN_BYTES: usize = 1 << 20;
/// The shortest name of a tool that is compared with others: too many shorter ones are one letter apart.
const SHORTEST_TYPO: usize = 4;

/// The machine that `config` describes.
///
/// # Errors
/// Every problem found, each with its key. Transitions count from 1.
pub fn check(config: &Config) -> Result<Machine, Vec<ConfigError>> {
    let mut problems = check_names(config);
    let order = in_order_of_reach(config);
    let places: BTreeMap<&str, usize> = order.iter().enumerate().map(|(at, name)| (*name, at)).collect();
    let mut states = Vec::new();
    for name in &order {
        let Some(state) = config.state.get(*name) else { continue };
        let transitions = check_transitions(name, state, &places, &mut problems);
        let (tools, text) = (state.tools.clone(), state.text.clone().filter(|text| !text.trim().is_empty()));
        states.push(State { name: (*name).to_owned(), tools, text, transitions });
    }
    let machine = Machine { states, always: config.always.clone() };
    problems.extend(machine.states.iter().flat_map(never_taken));
    // Where a state does not exist, the problems that follow from it are not reported.
    if problems.is_empty() {
        problems.extend(never_entered(config, &machine));
        problems.extend(never_called(&machine));
        problems.extend(misspelled(config));
    }
    if problems.is_empty() { Ok(machine) } else { Err(problems) }
}

fn check_names(config: &Config) -> Vec<ConfigError> {
    let mut problems = Vec::new();
    if config.state.is_empty() {
        problems.push(ConfigError::new("state", "expected at least one state"));
    } else if !config.state.contains_key(&config.start) {
        let names = config.state.keys().map(String::as_str);
        problems.push(ConfigError::new("start", no_state(&config.start, names)));
    }
    for (name, state) in &config.state {
        let plain = |char: char| char.is_alphanumeric() || matches!(char, '_' | '-');
        if name.is_empty() || !name.chars().all(plain) {
            let problem = "expected a name of letters, digits, `_` and `-`";
            problems.push(ConfigError::new(format!("state.{name}"), problem));
        }
        if state.on.is_empty() && !state.r#final {
            let problem = "no transition leads out of it; if that is meant, mark it `final = true`";
            problems.push(ConfigError::new(format!("state.{name}"), problem));
        }
        if !state.on.is_empty() && state.r#final {
            let problem = "transitions lead out of it, so it is not final";
            problems.push(ConfigError::new(format!("state.{name}.final"), problem));
        }
    }
    problems
}

/// The names of the states, the start first and then as they are reached; at the end those that never are.
fn in_order_of_reach(config: &Config) -> Vec<&str> {
    let mut order: Vec<&str> = vec![&config.start];
    let mut at = 0;
    while let Some(name) = order.get(at) {
        for transition in config.state.get(*name).map_or(&[][..], |state| &state.on) {
            if config.state.contains_key(&transition.to) && !order.contains(&transition.to.as_str()) {
                order.push(&transition.to);
            }
        }
        at += 1;
    }
    let rest: Vec<&str> =
        config.state.keys().map(String::as_str).filter(|name| !order.contains(name)).collect();
    order.extend(rest);
    order
}

fn check_transitions(
    name: &str,
    state: &StateConfig,
    places: &BTreeMap<&str, usize>,
    problems: &mut Vec<ConfigError>,
) -> Vec<Transition> {
    let mut transitions = Vec::new();
    for (at, written) in state.on.iter().enumerate() {
        let mut problem = |key: &str, problem: String| {
            problems.push(ConfigError::new(format!("state.{name}.on.{}.{key}", at + 1), problem));
        };
        for (key, text) in misplaced(written) {
            problem(key, text);
        }
        let to = places.get(written.to.as_str()).copied();
        if to.is_none() {
            problem("to", no_state(&written.to, places.keys().copied()));
        }
        let pattern = match written.pattern.as_deref().map(compiled).transpose() {
            Ok(pattern) => pattern,
            Err(text) => {
                problem("pattern", text);
                None
            }
        };
        transitions.push(Transition {
            trigger: written.event,
            tool: written.tool.clone(),
            pattern,
            words: written.words.unwrap_or(0),
            count: written.count,
            to: to.unwrap_or(0),
        });
    }
    transitions
}

/// Keys that have no effect on such an event.
fn misplaced(written: &TransitionConfig) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let of_tool = written.event.is_of_tool();
    if written.tool.is_some() && !of_tool {
        found.push(("tool", "only events of tools have one".to_owned()));
    }
    if written.pattern.is_some() && of_tool {
        found.push(("pattern", "only messages have a text".to_owned()));
    }
    if written.words.is_some() && written.event != Trigger::UserMessage {
        found.push(("words", "only the words of user messages are counted".to_owned()));
    }
    if written.count == 0 {
        found.push(("count", "expected at least 1".to_owned()));
    }
    found
}

fn compiled(pattern: &str) -> Result<Regex, String> {
    let built = RegexBuilder::new(pattern).size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_BYTES).build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => "the regular expression is too large".to_owned(),
        _ => "expected a regular expression without look-around and back-references".to_owned(),
    })
}

/// Transitions that another one of the same state always preempts.
fn never_taken(state: &State) -> Vec<ConfigError> {
    let mut problems = Vec::new();
    for (at, transition) in state.transitions.iter().enumerate() {
        let forestalls = |(other_at, other): &(usize, &Transition)| {
            let sooner = (other.count, *other_at) < (transition.count, at);
            sooner && other.includes(transition)
        };
        if let Some((other_at, other)) = state.transitions.iter().enumerate().find(forestalls) {
            let same = transition.includes(other) && transition.count == other.count;
            let fits = if same { "the very same events" } else { "all of its events, no later" };
            let problem = format!("never taken: transition {} of this state fits {fits}", other_at + 1);
            problems.push(ConfigError::new(format!("state.{}.on.{}", state.name, at + 1), problem));
        }
    }
    problems
}

fn never_entered(config: &Config, machine: &Machine) -> Vec<ConfigError> {
    let mut reached = vec![false; machine.states.len()];
    let mut open = vec![0];
    while let Some(at) = open.pop() {
        if !std::mem::replace(&mut reached[at], true) {
            open.extend(machine.states[at].transitions.iter().map(|transition| transition.to));
        }
    }
    let unreached = machine.states.iter().zip(reached).filter(|(_, reached)| !reached);
    let problem = format!("never entered: no transitions lead to it from `{}`", config.start);
    unreached.map(|(state, _)| ConfigError::new(format!("state.{}", state.name), problem.clone())).collect()
}

/// Transitions on tools that can never be called in their state.
fn never_called(machine: &Machine) -> Vec<ConfigError> {
    let mut problems = Vec::new();
    for (place, state) in machine.states.iter().enumerate() {
        for (at, transition) in state.transitions.iter().enumerate() {
            let key = format!("state.{}.on.{}.tool", state.name, at + 1);
            let Some(tool) = transition.tool.as_ref().filter(|tool| tool.is_exact()) else { continue };
            let tool = tool.as_str();
            if !machine.allows_ever(tool) {
                let all = machine.named_tools();
                let near = exact_names(&all).find(|name| are_one_apart(name, tool));
                let hint = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                problems.push(ConfigError::new(key, format!("no state lets `{tool}` be called{hint}")));
            } else if transition.trigger == Trigger::ToolCalled && !machine.allows(place, tool) {
                let problem = format!("never happens: the state's `tools` do not let `{tool}` be called");
                problems.push(ConfigError::new(key, problem));
            }
        }
    }
    problems
}

/// A position in which a tool is named.
struct Use<'a> {
    tool: &'a str,
    key: String,
    /// The list that contains it, if any.
    list: Option<usize>,
}

/// Tools that are named once and are one letter from another. Names that differ in a digit, or that are next to each
/// other in a list, are intended.
fn misspelled(config: &Config) -> Vec<ConfigError> {
    let uses = uses(config);
    let mut problems = Vec::new();
    for suspect in &uses {
        let times = |tool: &str| uses.iter().filter(|other| other.tool == tool).count();
        let side_by_side = |other: &Use<'_>| suspect.list.is_some() && suspect.list == other.list;
        let near = |other: &&Use<'_>| are_one_apart(suspect.tool, other.tool);
        // Of two that are named once, the later one is reported.
        let Some(other) = uses.iter().find(near).filter(|_| times(suspect.tool) == 1) else { continue };
        let reported_already = times(other.tool) == 1 && problems.iter().any(|(_, tool)| *tool == other.tool);
        if reported_already || uses.iter().filter(near).any(side_by_side) {
            continue;
        }
        let problem = format!(
            "`{}` is one letter from `{}` and named nowhere else; if both are meant, name them side by side in a list",
            suspect.tool, other.tool
        );
        problems.push((ConfigError::new(suspect.key.clone(), problem), suspect.tool));
    }
    problems.into_iter().map(|(problem, _)| problem).collect()
}

fn uses(config: &Config) -> Vec<Use<'_>> {
    let mut uses = Vec::new();
    let exact = |pattern: &Pattern| pattern.is_exact();
    let always = config.always.iter().filter(|tool| exact(tool));
    uses.extend(always.map(|tool| Use { tool: tool.as_str(), key: "always".to_owned(), list: Some(0) }));
    for (list, (name, state)) in config.state.iter().enumerate() {
        let listed = state.tools.iter().flatten().filter(|tool| exact(tool));
        let key = format!("state.{name}.tools");
        uses.extend(listed.map(|tool| Use { tool: tool.as_str(), key: key.clone(), list: Some(list + 1) }));
        for (at, transition) in state.on.iter().enumerate() {
            if let Some(tool) = transition.tool.as_ref().filter(|tool| exact(tool)) {
                let key = format!("state.{name}.on.{}.tool", at + 1);
                uses.push(Use { tool: tool.as_str(), key, list: None });
            }
        }
    }
    uses
}

/// Whether two names differ by one letter more, less, changed or swapped with the next; digits are no letters.
fn are_one_apart(one: &str, other: &str) -> bool {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    if one == other || one.len().min(other.len()) < SHORTEST_TYPO {
        return false;
    }
    let head = one.iter().zip(&other).take_while(|(one, other)| one == other).count();
    let (one, other) = (&one[head..], &other[head..]);
    let tail = one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count();
    let (one, other) = (&one[..one.len() - tail], &other[..other.len() - tail]);
    if one.iter().chain(other).any(|char| char.is_numeric()) {
        return false;
    }
    match (one, other) {
        ([_], [] | [_]) | ([], [_]) => true,
        ([first, second], [third, fourth]) => first == fourth && second == third,
        _ => false,
    }
}

fn no_state<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    match known.iter().find(|known| are_one_apart(known, name)) {
        Some(near) => format!("there is no state `{name}`; did you mean `{near}`?"),
        None => format!("there is no state `{name}`; there are: {}", known.join(", ")),
    }
}
