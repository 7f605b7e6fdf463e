//! The texts that the model reads about its loops: what it repeats, and what to do instead. Each is a template, which the
//! operator may replace.

use super::near::Nearness;
use super::trail::{Arguments, Cycle, Kind, Step};
use crate::texts::{Text, Texts};
use model::outcome::Likeness;
use std::collections::HashSet;
use std::fmt::Display;
use std::sync::Arc;

/// Most tools that a sentence names.
const MOST_NAMED: usize = 5;

pub const NOTICE: Text = Text {
    key: "notice",
    default: "[toolrein] {made}. {advice}{warning}",
    placeholders: &["made", "advice", "warning", "tools", "times"],
};
pub const BLOCKED: Text = Text {
    key: "blocked",
    default: "The call was not run: {made}. {advice}",
    placeholders: &["made", "advice", "tools", "times"],
};
pub const BLOCKED_EQUAL: Text = Text {
    key: "blocked_equal",
    default: "The call was not run: {tools} was already called {times} in this turn with the same arguments. {advice}",
    placeholders: &["tools", "times", "advice"],
};
pub const EMPTY: Text = Text {
    key: "empty",
    default: "[toolrein] The last {results} tool {results:result was/results were} empty ({tools}). If you are looking for something, \
              {advice}",
    placeholders: &["results", "tools", "advice"],
};
pub const BLOCKED_EMPTY: Text = Text {
    key: "blocked_empty",
    default: "The call was not run: the last {results} tool {results:result was/results were} empty, those of {tools} among them. Instead of \
              calling it again, {advice}",
    placeholders: &["results", "tools", "advice"],
};

/// The notice after results: these calls repeat in a cycle. `last`: the next round will be blocked.
pub fn notice(texts: &Texts, cycle: &Cycle<'_>, last: bool) -> String {
    let warning = match cycle.steps.len() {
        _ if !last => "",
        1 => " The next time the call will not be run.",
        _ => " The next time these calls will not be run.",
    };
    of_cycle(texts, &NOTICE, cycle, warning)
}

/// The reason for a blocked call: it continues a cycle.
pub fn blocked(texts: &Texts, cycle: &Cycle<'_>) -> String {
    of_cycle(texts, &BLOCKED, cycle, "")
}

fn of_cycle(texts: &Texts, text: &Text, cycle: &Cycle<'_>, warning: &str) -> String {
    let values: [(&str, &dyn Display); 5] = [
        ("made", &made(cycle)),
        ("advice", &advice(kind(cycle))),
        ("warning", &warning),
        ("tools", &named(tools_of(cycle))),
        ("times", &cycle.made),
    ];
    texts.fill(text, &values)
}

/// The reason where equal calls of a turn are counted: the call was made `times` times before.
pub fn blocked_equal(texts: &Texts, tool: &str, times: usize) -> String {
    let times = if times == 1 { "once".to_owned() } else { format!("{times} times") };
    texts.fill(&BLOCKED_EQUAL, &[("tools", &tool), ("times", &times), ("advice", &advice(Kind::Useful))])
}

/// The notice after results: so many empty results in a row.
pub fn notice_empty(texts: &Texts, results: usize, tools: &[Arc<str>]) -> String {
    let tools = named(tools.iter().map(|tool| &**tool));
    texts.fill(&EMPTY, &[("results", &results), ("tools", &tools), ("advice", &ELSEWHERE)])
}

/// The reason for a blocked call: this tool gave so many empty results in a row.
pub fn blocked_empty(texts: &Texts, tool: &str, results: usize) -> String {
    texts.fill(&BLOCKED_EMPTY, &[("results", &results), ("tools", &tool), ("advice", &ELSEWHERE)])
}

const ELSEWHERE: &str = "look elsewhere, work with what you have, or tell the user that nothing was found.";

fn made(cycle: &Cycle<'_>) -> String {
    let times = cycle.made;
    let result = match (kind(cycle), cycle.manner.results) {
        (Kind::Useful, Likeness::Equal) => "gave the same result each time",
        (Kind::Useful, Likeness::ButForMarks) => {
            "gave the same result each time, but for times, ids or counts"
        }
        (Kind::Useful, _) => "gave the same result each time, but for numbers",
        (Kind::Empty, _) => "gave an empty result each time",
        (Kind::Failed, _) => "failed in the same way each time",
        (Kind::Running, _) => "said each time that it is not finished",
    };
    let arguments = match cycle.manner.arguments {
        Arguments::Equal => "the same arguments",
        Arguments::Near(Nearness::Form) => "nearly the same arguments",
        Arguments::Near(_) => "the same arguments but for counts, times or ids",
        Arguments::Other => "different arguments",
    };
    match cycle.steps {
        [step] => {
            format!("{} was called {times} times in a row with {arguments} and {result}", step.call.tool)
        }
        steps => format!(
            "The same {} calls ({}) were made {times} times in a row, and each {result}",
            steps.len(),
            named(tools_of(cycle))
        ),
    }
}

fn advice(kind: Kind) -> &'static str {
    match kind {
        Kind::Useful => "Use the result that you have, change the arguments, use another tool, or answer.",
        Kind::Empty => "Change the arguments, use another tool, or tell the user that nothing was found.",
        Kind::Failed => "Correct the arguments, use another tool, or tell the user what does not work.",
        Kind::Running => {
            "Wait before you ask again, do something else meanwhile, or tell the user that it is not finished."
        }
    }
}

/// The common kind of all steps of the cycle; useful where they differ.
fn kind(cycle: &Cycle<'_>) -> Kind {
    let first = cycle.steps.first().map_or(Kind::Useful, Step::kind);
    if cycle.steps.iter().all(|step| step.kind() == first) { first } else { Kind::Useful }
}

fn tools_of<'a>(cycle: &Cycle<'a>) -> impl Iterator<Item = &'a str> {
    cycle.steps.iter().map(|step| &*step.call.tool)
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
