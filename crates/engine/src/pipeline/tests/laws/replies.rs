//! Replies of an upstream in the lines protocol: proper ones, whose lines are interleaved in any way, and lines in any order
//! whatsoever.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};
use std::collections::VecDeque;

/// The lines of a reply, as JSON, and comments.
#[derive(Clone, Debug)]
pub struct Reply {
    pub lines: Vec<String>,
}

impl Reply {
    pub fn of(lines: impl IntoIterator<Item = Value>) -> Self {
        Self { lines: lines.into_iter().map(|line| line.to_string()).collect() }
    }

    pub fn stream(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }

    pub fn body(&self) -> String {
        let lines: Vec<&str> =
            self.lines.iter().map(String::as_str).filter(|line| !line.starts_with('#')).collect();
        format!("[{}]", lines.join(", "))
    }
}

/// How a proper reply is made.
#[derive(Clone, Copy, Debug)]
pub struct Making {
    pub choices: u32,
    pub names: &'static [&'static str],
    pub has_name_pieces: bool,
    /// Some choices are cut, or lack their finish.
    pub has_odd_ends: bool,
    /// Choices that begin with a text begin with a blank one.
    pub has_blank_texts: bool,
}

const ARGUMENTS: [&str; 8] = [
    "{}",
    "",
    r#"{"q":"good"}"#,
    r#"{"q":"bad"}"#,
    r#"{"q":"bad, sorry"}"#,
    r#"{"q":"spoilt"}"#,
    r#"{"q":"é\n"}"#,
    r#"{"q":["b","ad"]}"#,
];

/// An item of a choice: a text, or a call and the way in which it is written.
type Item = Option<(&'static str, &'static str, u8)>;

/// A proper reply: every call is named and ended, and every choice has its finish after its last line.
pub fn arb_reply(making: Making) -> impl Strategy<Value = Reply> {
    let call = (select(making.names), select(&ARGUMENTS[..]), 0..5u8);
    let item = prop_oneof![2 => Just(None), 3 => call.prop_map(Some)];
    let choice = (prop::collection::vec(item, 0..5), 0..8u8);
    let choices = prop::collection::vec(choice, making.choices as usize);
    let picks = prop::collection::vec(any::<Index>(), 150);
    (choices, picks, any::<bool>(), 1..50u32).prop_map(move |(choices, picks, is_interleaved, tokens)| {
        let mut picks = picks.into_iter();
        let mut pick =
            |length: usize| picks.next().filter(|_| is_interleaved).map_or(0, |index| index.index(length));
        let mut all: Vec<Vec<String>> = Vec::new();
        for ((items, end), choice) in choices.iter().zip(0..) {
            let written = items.iter().zip(1..).map(|(item, at)| item_lines(choice, at, item, making));
            let mut lines = merged(written.collect(), &mut pick);
            let calls = if items.iter().any(Option::is_some) { "calls" } else { "stop" };
            match end {
                0 if making.has_odd_ends => {}
                1 if making.has_odd_ends => {
                    lines.push(json!({"choice": choice, "finish": "cut"}).to_string());
                }
                _ => lines.push(json!({"choice": choice, "finish": calls}).to_string()),
            }
            all.push(lines);
        }
        all.push(vec!["# one".to_owned(), "#two".to_owned()]);
        let mut lines = merged(all, &mut pick);
        let usage = json!({"prompt_tokens": tokens, "completion_tokens": 1, "total_tokens": tokens + 1});
        lines.extend([json!({"usage": usage}).to_string(), json!({"end": true}).to_string()]);
        Reply { lines }
    })
}

/// The number of the item at this position of a choice, if it is a call: no other call of the reply has it.
fn number_of(choice: u32, at: u64) -> u64 {
    u64::from(choice) * 100 + at
}

fn item_lines(choice: u32, at: u64, item: &Item, making: Making) -> Vec<String> {
    let number = number_of(choice, at);
    let Some((name, arguments, way)) = *item else {
        let is_blank = making.has_blank_texts && at == 1;
        let text = if is_blank { " ".to_owned() } else { format!("t{number} ") };
        return vec![json!({"choice": choice, "text": text}).to_string()];
    };
    // Nobody is asked twice about equal calls.
    let own = format!("{{\"n\":{number}}}");
    let arguments = if name == "pay" { &own } else { arguments };
    let line = |more: Value| {
        let mut line = json!({"choice": choice, "call": number});
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        line.to_string()
    };
    let (one, two) = arguments.split_at(arguments.floor_char_boundary(arguments.len() / 2));
    let (ends, both) = (line(json!({"end": true})), line(json!({"arguments": arguments})));
    let pieces = [line(json!({"arguments": one})), line(json!({"arguments": two}))];
    let names = match name.split_at(name.len() / 2) {
        (first, second) if making.has_name_pieces => {
            vec![line(json!({"name": first})), line(json!({"name": second}))]
        }
        _ => vec![line(json!({"name": name}))],
    };
    match way {
        0 => vec![line(json!({"name": name, "arguments": arguments, "end": true}))],
        1 => [names, vec![both, ends]].concat(),
        2 => [names, pieces.to_vec(), vec![ends]].concat(),
        // Arguments before the name.
        3 => [pieces.to_vec(), names, vec![ends]].concat(),
        _ => [names, vec![line(json!({"arguments": arguments, "end": true}))]].concat(),
    }
}

/// The lines of all sequences, those of each in their order; `pick` chooses among so many.
fn merged(sequences: Vec<Vec<String>>, pick: &mut impl FnMut(usize) -> usize) -> Vec<String> {
    let mut open: Vec<VecDeque<String>> = sequences.into_iter().map(VecDeque::from).collect();
    let mut lines = Vec::new();
    loop {
        open.retain(|lines| !lines.is_empty());
        if open.is_empty() {
            return lines;
        }
        let at = pick(open.len());
        lines.extend(open[at].pop_front());
    }
}

/// What may stand in a line of [`arb_lines`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wildness {
    /// Texts and calls whose names and arguments no rule objects to, nothing after the end of a call or of a choice.
    Harmless,
    /// Anything, late pieces and lines that no reader understands included.
    Anything,
}

const WILD_NAMES: [&str; 6] = ["ok", "look", "deny", "de", "ny", "x"];
const WILD_PIECES: [&str; 9] = ["{", "}", "{}", "\"q\":", "\"bad\"", "\"b", "ad\"", " sorry", ""];
const UNREADABLE: [&str; 8] = [
    "{",
    "nonsense",
    "[]",
    "",
    r#"{"choice":0,"call":1,"name":"ok","name":"deny"}"#,
    r#"{"choice":0,"text":"t","call":1,"name":"deny"}"#,
    r#"{"choice":0,"name":"deny"}"#,
    r#"{"choice":0,"call":"1","name":"deny"}"#,
];

/// Lines of two choices in any order: calls repeated, never ended, named in pieces, after the finish.
pub fn arb_lines(wildness: Wildness) -> impl Strategy<Value = Reply> {
    let is_wild = wildness == Wildness::Anything;
    let names = if is_wild { &WILD_NAMES[..] } else { &["ok", "look", "x"] };
    let pieces = if is_wild { &WILD_PIECES[..] } else { &["{", "}", "{}", "\"q\":", "\"good\"", ""] };
    let of_call = (select(names), select(pieces), 0..7u8).prop_map(|(name, piece, kind)| match kind {
        0 | 1 => json!({"name": name}),
        2 | 3 => json!({"arguments": piece}),
        4 => json!({"name": name, "arguments": piece}),
        5 => json!({"arguments": piece, "end": true}),
        _ => json!({"end": true}),
    });
    let call = (0..2u32, 1..4u64, of_call).prop_map(|(choice, number, mut line)| {
        (line["choice"], line["call"]) = (choice.into(), number.into());
        line.to_string()
    });
    let finish = (0..2u32, select(vec!["stop", "calls", "cut"]));
    let other = prop_oneof![
        6 => (0..2u32, "[a-z]{0,3}").prop_map(|(choice, text)| json!({"choice": choice, "text": text}).to_string()),
        1 => finish.prop_map(|(choice, finish)| json!({"choice": choice, "finish": finish}).to_string()),
        1 => Just(json!({"usage": {"total_tokens": 3}}).to_string()),
        1 => Just("# waits".to_owned()),
        2 => select(&UNREADABLE[..]).prop_map(move |line| if is_wild { line } else { "" }.to_owned()),
    ];
    let line = prop_oneof![3 => call, 2 => other];
    prop::collection::vec(line, 0..14).prop_map(move |mut lines| {
        if !is_wild {
            let mut ended = Vec::new();
            lines.retain(|line| is_before_end(line, &mut ended));
        }
        Reply { lines }
    })
}

/// Whether a line is about no call and no choice that has ended.
fn is_before_end(line: &str, ended: &mut Vec<(Value, Value)>) -> bool {
    let line: Value = serde_json::from_str(line).unwrap_or_default();
    let (call, choice) =
        ((line["choice"].clone(), line["call"].clone()), (line["choice"].clone(), Value::Null));
    let is_late = ended.contains(&call) || ended.contains(&choice);
    if line["end"] == true {
        ended.push(call);
    }
    if !line["finish"].is_null() {
        ended.push(choice);
    }
    !is_late
}
