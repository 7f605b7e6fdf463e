//! The texts that the model reads about its loops: what it repeats, and what to do instead.

use super::trail::{Cycle, Kind};
use std::collections::HashSet;

/// Most tools that a sentence names.
const MOST_NAMED: usize = 5;

/// The notice after results: these calls repeat in a cycle. `last`: the next round will be blocked.
pub fn notice(cycle: &Cycle<'_>, last: bool) -> String {
    let warning = match cycle.steps.len() {
        _ if !last => "",
        1 => " The next time the call will not be run.",
        _ => " The next time these calls will not be run.",
    };
    format!("[toolrein] {}. {}{warning}", made(cycle), advice(kind(cycle)))
}

/// The reason for a blocked call: it continues a cycle.
pub fn blocked(cycle: &Cycle<'_>) -> String {
    format!("The call was not run: {}. {}", made(cycle), advice(kind(cycle)))
}

/// The reason where equal calls of a turn are counted: the call was made `times` times before.
pub fn blocked_equal(tool: &str, times: usize) -> String {
    let times = if times == 1 { "once".to_owned() } else { format!("{times} times") };
    format!(
        "The call was not run: {tool} was already called {times} in this turn with the same arguments. {}",
        advice(Kind::Useful)
    )
}

/// The notice after results: so many empty results in a row.
pub fn notice_empty(results: usize, tools: &[String]) -> String {
    format!(
        "[toolrein] The last {results} tool results were empty ({}). If you are looking for something, {}",
        named(tools.iter().map(String::as_str)),
        ELSEWHERE
    )
}

/// The reason for a blocked call: this tool gave so many empty results in a row.
pub fn blocked_empty(tool: &str, results: usize) -> String {
    let last = if results == 1 { "result was" } else { "results were" };
    let count = if results == 1 { String::new() } else { format!("{results} ") };
    format!(
        "The call was not run: the last {count}{last} empty, those of {tool} among them. Instead of calling it again, {ELSEWHERE}"
    )
}

const ELSEWHERE: &str = "look in another place with another tool, work with what you have, or tell the user that \
                         nothing was found and ask for more to go by.";

fn made(cycle: &Cycle<'_>) -> String {
    let rounds = cycle.rounds;
    let result = match kind(cycle) {
        Kind::Useful => "gave the same result each time",
        Kind::Empty => "gave an empty result each time",
        Kind::Failed => "failed in the same way each time",
    };
    match cycle.steps {
        [step] => {
            format!("{} was called {rounds} times in a row with the same arguments and {result}", step.tool)
        }
        steps => format!(
            "The same {} calls ({}) were made {rounds} times in a row, and each {result}",
            steps.len(),
            named(steps.iter().map(|step| step.tool.as_str()))
        ),
    }
}

fn advice(kind: Kind) -> &'static str {
    match kind {
        Kind::Useful => {
            "Calling again right away will not change that: use the result that you have, change the arguments, use another \
             tool, or give your answer."
        }
        Kind::Empty => {
            "Calling again will not find more: change the arguments, look in another place with another tool, or \
             tell the user that nothing was found."
        }
        Kind::Failed => {
            "Trying again as it is will fail again: correct the arguments, use another tool, or tell the user what \
             does not work."
        }
    }
}

/// The common kind of all steps of the cycle; useful where they differ.
fn kind(cycle: &Cycle<'_>) -> Kind {
    let first = cycle.steps.first().map_or(Kind::Useful, |step| step.kind);
    if cycle.steps.iter().all(|step| step.kind == first) { first } else { Kind::Useful }
}

/// The names, each once.
fn named<'a>(tools: impl Iterator<Item = &'a str>) -> String {
    let (mut names, mut known) = (Vec::new(), HashSet::new());
    names.extend(tools.filter(|tool| known.insert(*tool)));
    let more = names.len().saturating_sub(MOST_NAMED);
    names.truncate(MOST_NAMED);
    let list = names.join(", ");
    if more == 0 { list } else { format!("{list} and {more} more") }
}
