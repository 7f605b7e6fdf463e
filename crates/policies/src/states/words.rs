//! The texts that the model reads about the machine: the state that it has entered, why a call was not run and what
//! must happen first.

use super::machine::{Machine, Position, Transition};
use super::written::Trigger;
use crate::pattern::Pattern;
use crate::texts::{Text, Texts};
use std::borrow::Cow;
use wire::plural::{counted, noun_after};

/// The most tools that a sentence names.
const MOST_NAMED: usize = 12;
/// The most steps that a sentence lists.
const MOST_STEPS: usize = 5;

pub const BLOCKED: Text = Text {
    key: "blocked",
    default: "The call was not run: {tool} may not be called in the state {state}. {callable} {first}",
    placeholders: &["tool", "state", "callable", "first"],
};
pub const STATE: Text = Text {
    key: "state",
    default: "[toolrein] State: {state}. {text}{tools}",
    placeholders: &["state", "text", "tools"],
};

/// The notice of the entered state with index `state`; `None` where it has no text. A function of the settings alone,
/// so that it never changes once it is in a conversation.
pub fn notice((machine, texts): (&Machine, &Texts), state: usize) -> Option<String> {
    let state = machine.states.get(state)?;
    let text = state.text.as_ref()?;
    let tools = state.tools.as_ref().map_or_else(String::new, |tools| {
        let allowed: Vec<&str> = tools.iter().chain(&machine.always).map(Pattern::as_str).collect();
        format!(" {}", callable(&allowed))
    });
    Some(texts.fill(&STATE, &[("state", &state.name), ("text", &text.trim()), ("tools", &tools)]))
}

/// The reason for a blocked call of `tool`. `declared`: the declared tools; `route`: the way to a state in which it
/// may be called.
pub fn blocked(
    (machine, texts): (&Machine, &Texts),
    position: &Position,
    tool: &str,
    (declared, route): (&[String], Option<&[&Transition]>),
) -> String {
    let name = |state: usize| machine.states.get(state).map_or("", |state| state.name.as_str());
    let allowed: Vec<&str> =
        declared.iter().map(String::as_str).filter(|tool| machine.allows(position.state, tool)).collect();
    let first = match route {
        Some(route) => route_text(machine, position, route),
        None if machine.allows_ever(tool) => "It cannot be called any more in this conversation.".to_owned(),
        None => "It may be called in no state of this conversation.".to_owned(),
    };
    let (state, callable) = (name(position.state), callable(&allowed));
    texts.fill(&BLOCKED, &[("tool", &tool), ("state", &state), ("callable", &callable), ("first", &first)])
}

fn callable(allowed: &[&str]) -> String {
    match allowed.len() {
        0 => "No tool may be called now.".to_owned(),
        count if count > MOST_NAMED => {
            format!("You may call now: {} and {} more.", allowed[..MOST_NAMED].join(", "), count - MOST_NAMED)
        }
        _ => format!("You may call now: {}.", allowed.join(", ")),
    }
}

fn route_text(machine: &Machine, position: &Position, route: &[&Transition]) -> String {
    let name = |transition: &Transition| machine.states[transition.to].name.as_str();
    let goal = route.last().map_or("", |last| name(last));
    let steps = route.iter().take(MOST_STEPS).enumerate().map(|(at, transition)| {
        let seen = if at == 0 { position.seen(machine, transition) } else { 0 };
        format!("{} (state {})", needed(transition, seen), name(transition))
    });
    let steps = steps.collect::<Vec<_>>().join("; then ");
    let rest = if route.len() > MOST_STEPS { "; and so on" } else { "" };
    format!("It may be called in the state {goal}. What must happen first: {steps}{rest}.")
}

/// What must still happen for `transition`, whose event has come `seen` times.
fn needed(transition: &Transition, seen: u32) -> String {
    let left = transition.count.saturating_sub(seen);
    let more = if seen > 0 { " more" } else { "" };
    let tool = tool_of(transition);
    let times = match left {
        0 | 1 => String::new(),
        left => format!(" {left}{more} times"),
    };
    let pattern =
        transition.pattern.as_ref().map_or_else(String::new, |pattern| format!(" that matches {pattern}"));
    let words = match transition.words {
        0 => String::new(),
        words => format!(" of at least {}", counted(words, "word")),
    };
    let missing = |noun: &str| match left {
        0 | 1 if seen > 0 => format!("one more {noun}"),
        0 | 1 => format!("a {noun}"),
        left => format!("{left}{more} {}", noun_after(left, noun)),
    };
    match transition.trigger {
        Trigger::UserMessage => {
            format!("the user writes {}{words}{pattern}", missing("message"))
        }
        Trigger::AssistantMessage => format!("you give the user {}{pattern}", missing("reply")),
        Trigger::AssistantQuestion => {
            format!("you ask the user {}{pattern}", missing("question"))
        }
        Trigger::ToolCalled => format!("{tool} is called{times}"),
        Trigger::ToolSucceeded => format!("{tool} succeeds{times}"),
        Trigger::ToolFailed => format!("{tool} fails{times}"),
        Trigger::ToolEmpty => format!("{tool} brings nothing{times}"),
    }
}

/// A transition's event in a few words, for a diagram.
pub fn label(transition: &Transition) -> String {
    let tool = tool_of(transition);
    let event: Cow<'_, str> = match transition.trigger {
        Trigger::UserMessage => "user message".into(),
        Trigger::AssistantMessage => "assistant message".into(),
        Trigger::AssistantQuestion => "assistant question".into(),
        Trigger::ToolCalled => format!("{tool} called").into(),
        Trigger::ToolSucceeded => format!("{tool} succeeded").into(),
        Trigger::ToolFailed => format!("{tool} failed").into(),
        Trigger::ToolEmpty => format!("{tool} brought nothing").into(),
    };
    let words = if transition.words > 0 {
        format!(", {} or more", counted(transition.words, "word"))
    } else {
        String::new()
    };
    let pattern =
        transition.pattern.as_ref().map_or_else(String::new, |pattern| format!(", matching {pattern}"));
    let count = if transition.count > 1 { format!(", {} times", transition.count) } else { String::new() };
    format!("{event}{words}{pattern}{count}")
}

fn tool_of(transition: &Transition) -> &str {
    transition.tool.as_ref().map_or("a tool", Pattern::as_str)
}
