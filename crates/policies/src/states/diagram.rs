//! The machine as a Mermaid `stateDiagram-v2`, for `toolrein check`. Names, arrows and notes; draws nothing itself.

use super::machine::Machine;
use super::words::label;
use crate::pattern::Pattern;
use std::fmt::Write as _;

/// Names that mean something else in Mermaid, in lower case.
const RESERVED: [&str; 12] = [
    "state",
    "note",
    "end",
    "class",
    "classdef",
    "direction",
    "as",
    "style",
    "hide",
    "scale",
    "click",
    "default",
];

/// The machine, one statement a line.
pub fn mermaid(machine: &Machine) -> String {
    let ids: Vec<String> = (0..machine.states.len()).map(|at| id(machine, at)).collect();
    let mut out = String::from("stateDiagram-v2\n");
    let mut line = |text: std::fmt::Arguments<'_>| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "    {text}");
    };
    for (state, id) in machine.states.iter().zip(&ids).filter(|(state, id)| state.name != **id) {
        line(format_args!("state \"{}\" as {id}", state.name));
    }
    line(format_args!("[*] --> {}", ids[0]));
    for (state, id) in machine.states.iter().zip(&ids) {
        for transition in &state.transitions {
            line(format_args!("{id} --> {}: {}", ids[transition.to], escaped(&label(transition))));
        }
        if state.is_final() {
            line(format_args!("{id} --> [*]"));
        }
    }
    for (state, id) in machine.states.iter().zip(&ids) {
        if let Some(tools) = &state.tools {
            let allowed: Vec<&str> = tools.iter().chain(&machine.always).map(Pattern::as_str).collect();
            let allowed = if allowed.is_empty() { "no tools".to_owned() } else { allowed.join(", ") };
            line(format_args!("note right of {id} : {}", escaped(&allowed)));
        }
    }
    out
}

/// The state's own name where Mermaid accepts it, else a name that no state has.
fn id(machine: &Machine, at: usize) -> String {
    let name = &machine.states[at].name;
    let plain = name.starts_with(|char: char| char.is_ascii_alphabetic())
        && name.chars().all(|char| char.is_ascii_alphanumeric() || char == '_');
    if plain && !RESERVED.contains(&name.to_ascii_lowercase().as_str()) {
        return name.clone();
    }
    let mut id = format!("state_{at}");
    while machine.states.iter().any(|state| state.name == id) {
        id.push('_');
    }
    id
}

/// `text` with every character that is special in Mermaid as a numbered character.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_alphanumeric() || " _-.,*()/".contains(char) {
            out.push(char);
        } else {
            let _ = write!(out, "#{};", u32::from(char));
        }
    }
    out
}
