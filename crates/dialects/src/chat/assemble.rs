//! The assembler of streamed tool calls: it finds the call that a delta belongs to, under every recorded quirk of
//! indexes, ids and names. Keeps the pieces as they were written; judges nothing and writes nothing.

use crate::reply_choice::ReplyChoice;
use model::assembled::{Assembled, MOST_NAME_BYTES, join_names, joined_by_index, total};
use model::call::{Arguments, ToolCall};
use wire::body::{Kind, Scanner, Span};
use wire::json::{decode_bytes, escape_into, unescape};

/// The known members of a call and of its function.
const KNOWN: [&str; 8] = ["id", "index", "type", "function", "custom", "name", "arguments", "input"];

/// The effect of a delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// The call that it belongs to.
    pub call: usize,
    /// It began that call.
    pub begins: bool,
    /// It changed or gave the call's name.
    pub names: bool,
    /// It gave another piece of a name, so that some client may know the call by a new name.
    pub respells: bool,
    /// It gave arguments other than white space.
    pub argues: bool,
    /// Clients that use only the index, or only the id, may take it for part of another call.
    pub ambiguous: bool,
}

/// Assembles the calls of one choice of one reply.
#[derive(Clone, Debug, Default)]
pub struct Assembler {
    event: u64,
    /// The call that the last delta belonged to.
    touched: usize,
}

impl Assembler {
    /// The following deltas are in a new event.
    pub fn next_event(&mut self) {
        self.event += 1;
    }

    /// Adds one delta, read from `text`.
    pub fn add(&mut self, choice: &mut ReplyChoice, delta: &ToolCall, text: &[u8]) -> Added {
        let found = self.belongs_to(choice, delta, text);
        let says = delta.name.is_some_and(|name| !name.span.is_empty()) || delta.arguments.bytes() > 0;
        let is_unclear = says && self.is_unclear(choice, delta, found);
        let added = match found {
            Some(at) => self.go_on(choice, at, delta, text),
            None => self.begin(choice, delta, text),
        };
        self.touched = added.call;
        Added { ambiguous: added.ambiguous || is_unclear, ..added }
    }

    /// Whether `delta` is a placeholder: it adds nothing to a known call and begins none, since what might come later
    /// for it begins the call then.
    pub fn is_placeholder(&self, choice: &ReplyChoice, delta: &ToolCall, text: &[u8]) -> bool {
        let has_id = delta.id.is_some_and(|id| !id.span.is_empty());
        // An object comes whole: an empty one is all of the arguments, and no later piece is added to it.
        let is_object = matches!(delta.arguments, Arguments::Value(_));
        let says_nothing = delta.is_empty() || (is_object && delta.is_placeholder(text));
        says_nothing && !has_id && self.belongs_to(choice, delta, text).is_none()
    }

    /// Begins a new call with `delta`.
    fn begin(&mut self, choice: &mut ReplyChoice, delta: &ToolCall, text: &[u8]) -> Added {
        let index = delta.index.map(|(_, index)| index);
        let known: Vec<&Assembled> = assembled(choice).collect();
        let earlier: Vec<&Assembled> = joined_by_index(known, index, delta.legacy).collect();
        let is_within = earlier.first().is_some_and(|call| !call.is_blank() && !call.is_whole());
        let joined = join_names(&earlier);
        let ambiguous = is_within || joined.is_none();
        let (before, argued_before) = joined.unwrap_or_default();
        let at = choice.add_call(Assembled {
            legacy: delta.legacy,
            before,
            argued_before,
            ..Assembled::default()
        });
        let added = self.go_on(choice, at, delta, text);
        Added { begins: true, ambiguous: added.ambiguous | ambiguous, ..added }
    }

    /// Begins a call that came whole, to which no delta belongs.
    pub fn begin_whole(&mut self, choice: &mut ReplyChoice, delta: &ToolCall, text: &[u8]) -> usize {
        let at = self.begin(choice, delta, text).call;
        choice.change_call(at, |call| {
            call.before.clear();
            call.beside = true;
        });
        at
    }

    /// Whether clients may take a delta without an index for part of different calls: the one that began last, the one
    /// that was continued last, the one of index 0, or the one of its id.
    fn is_unclear(&self, choice: &ReplyChoice, delta: &ToolCall, found: Option<usize>) -> bool {
        if delta.index.is_some() || delta.legacy {
            return false;
        }
        let mut others = assembled(choice).enumerate().filter(|(_, call)| call.is_joined_by(delta));
        let Some((_, first)) = others.next() else { return false };
        let last = others.next_back().map(|(at, _)| at);
        let is_alone = last.is_none() && first.index.is_none_or(|index| index == 0);
        let has_indexes = assembled(choice).any(|call| call.index.is_some() && call.is_joined_by(delta));
        let goes_back = found.zip(last).is_some_and(|(found, last)| found != last || self.touched != last);
        (has_indexes && !is_alone) || goes_back
    }

    fn go_on(&mut self, choice: &mut ReplyChoice, at: usize, delta: &ToolCall, text: &[u8]) -> Added {
        let event = self.event;
        choice.change_call(at, |call| {
            call.event = event;
            call.deltas += 1;
            let has_arguments = delta.arguments.bytes() > 0;
            let mut ambiguous = has_arguments && call.carried && delta.custom != call.custom;
            call.custom |= delta.custom;
            call.index = delta.index.map(|(_, index)| index).or(call.index);
            if let Some(id) = delta.id.filter(|id| !id.span.is_empty()) {
                call.id = id.raw(text).to_vec();
            }
            ambiguous |= matches!(delta.arguments, Arguments::Value(_)) && !call.arguments.is_empty();
            let name = delta.name.map(|name| name.raw(text)).filter(|name| !name.is_empty());
            let named = name.map_or(Named::Not, |name| add_name(call, name));
            ambiguous |= named == Named::TooLong;
            let length = call.arguments.len();
            add_arguments(&mut call.arguments, delta.arguments, text);
            call.wholeness.push(&call.arguments[length..]);
            let argues = call.arguments[length..].iter().any(|byte| !byte.is_ascii_whitespace());
            add_extra(&mut call.extra, delta.span, text);
            let names = matches!(named, Named::Anew | Named::TooLong);
            Added { call: at, begins: false, names, respells: named != Named::Not, argues, ambiguous }
        })
    }

    /// The call that a delta continues; `None` if it begins a new one.
    fn belongs_to(&self, choice: &ReplyChoice, delta: &ToolCall, text: &[u8]) -> Option<usize> {
        let calls = || assembled(choice);
        let id = delta.id.map(|id| id.raw(text)).filter(|id| !id.is_empty());
        let name = delta.name.map(|name| name.raw(text)).filter(|name| !name.is_empty());
        if let Some((_, index)) = delta.index {
            let at = calls().rposition(|call| call.index == Some(index) && call.is_joined_by(delta))?;
            return (!begins_anew(nth(choice, at), id, name)).then_some(at);
        }
        if let Some(id) = id
            && let Some(at) = calls().rposition(|call| call.id == id && call.is_joined_by(delta))
        {
            return (!begins_anew(nth(choice, at), None, name)).then_some(at);
        }
        let last = calls().rposition(|call| call.is_joined_by(delta))?;
        let call = nth(choice, last);
        let new_id = id.is_some() && !call.id.is_empty();
        // Without an index, two named deltas of one event are two calls.
        let twice_in_event = name.is_some() && call.event == self.event;
        (!new_id && !twice_in_event && !begins_anew(call, id, name)).then_some(last)
    }
}

/// The calls of a choice, in the order in which they began.
pub fn assembled(choice: &ReplyChoice) -> impl DoubleEndedIterator<Item = &Assembled> + ExactSizeIterator {
    choice.calls().iter().map(|call| &call.assembled)
}

fn nth(choice: &ReplyChoice, at: usize) -> &Assembled {
    &choice.calls()[at].assembled
}

/// Whether `delta`, just added to the call `at`, is its first with arguments.
pub fn carries(choice: &mut ReplyChoice, at: usize, delta: &ToolCall) -> bool {
    let has_arguments = matches!(delta.arguments, Arguments::Text(_) | Arguments::Value(_));
    has_arguments && choice.change_call(at, |call| !std::mem::replace(&mut call.carried, true))
}

/// Whether a delta with this id and name begins a new call although its index is that of `call`: some engines give every
/// parallel call the index 0.
fn begins_anew(call: &Assembled, id: Option<&[u8]>, name: Option<&[u8]>) -> bool {
    if id.is_some_and(|id| !call.id.is_empty() && call.id != id) {
        return true;
    }
    let Some(name) = name else { return false };
    let other_name = !call.name.is_empty() && call.name != name;
    // A delta that repeats the name without any id begins a new call only if the call before is whole. With an
    // id, it is the repetition that some providers put into every delta.
    let renamed = other_name || (id.is_none() && call.id.is_empty() && !call.name.is_empty());
    renamed && call.is_whole()
}

/// The effect of a piece of a name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Named {
    Not,
    /// It repeats the whole name, as some providers do with every delta; clients that join names get another name.
    Again,
    Anew,
    /// There is more of it than is kept.
    TooLong,
}

fn add_name(call: &mut Assembled, piece: &[u8]) -> Named {
    if call.name.is_empty() {
        call.name.extend_from_slice(piece);
        return Named::Anew;
    }
    if call.pieces.is_empty() {
        call.pieces.push(call.name.clone());
    }
    let fits = total(&call.pieces) + piece.len() <= MOST_NAME_BYTES;
    if fits {
        call.pieces.push(piece.to_vec());
    }
    // The openai packages join names that come in pieces.
    match (piece == call.name, fits) {
        (true, true) => Named::Again,
        (true, false) => Named::Not,
        (false, true) => {
            call.name.extend_from_slice(piece);
            Named::Anew
        }
        (false, false) => Named::TooLong,
    }
}

/// Adds a delta's arguments: a string is appended, an object is the whole, null and absent add nothing.
fn add_arguments(so_far: &mut Vec<u8>, arguments: Arguments, text: &[u8]) {
    match arguments {
        Arguments::Text(piece) => so_far.extend_from_slice(piece.raw(text)),
        Arguments::Value(span) if so_far.is_empty() => {
            escape_into(&String::from_utf8_lossy(span.of(text)), so_far);
        }
        _ => {}
    }
}

/// Most members of a call that are kept beside those that are known. Providers send one.
const MOST_EXTRA: usize = 16;
fn add_extra(extra: &mut Vec<(Vec<u8>, Vec<u8>)>, span: Span, text: &[u8]) {
    let mut scanner = Scanner::within(text, span);
    if !matches!(scanner.peek(), Ok(Kind::Object)) || scanner.object().is_err() {
        return;
    }
    while let Ok(Some(key)) = scanner.member() {
        let Ok(value) = scanner.skip() else { return };
        // By the decoded name: a JSON parser takes `functi\u006fn` for a second `function`, and Go ignores its case.
        let name = decode_bytes(key, text);
        let is_known = KNOWN.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()));
        let is_new = extra.iter().all(|(seen, _)| unescape(seen).as_bytes() != &*name);
        if !is_known && is_new && extra.len() < MOST_EXTRA && value.of(text) != b"null" {
            extra.push((key.raw(text).to_vec(), value.of(text).to_vec()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::completion::Reply;

    /// Assembles the `tool_calls` arrays of successive events.
    fn assemble(events: &[&str]) -> Vec<(String, String, String)> {
        let (mut assembler, mut choice) = (Assembler::default(), ReplyChoice::new(0, true));
        for event in events {
            let body = format!(r#"{{"choices":[{{"delta":{{"tool_calls":{event}}}}}]}}"#);
            let reply = Reply::parse(body.as_bytes()).unwrap();
            assembler.next_event();
            for delta in &reply.choices[0].delta.calls {
                assembler.add(&mut choice, delta, body.as_bytes());
            }
        }
        assembled(&choice).map(|call| (call.id(), call.name(), call.arguments())).collect()
    }

    fn calls(expected: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
        expected.iter().map(|(id, name, args)| ((*id).into(), (*name).into(), (*args).into())).collect()
    }

    const F_AND_G: &[(&str, &str, &str)] = &[("a", "f", "{\"x\":1}"), ("b", "g", "{}")];

    /// The name of each case, and its events' `tool_calls`.
    const WAYS: &[(&str, &[&str])] = &[
        (
            "OpenAI",
            &[
                r#"[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}]"#,
                r#"[{"index":0,"function":{"arguments":"{\"x\""}}]"#,
                r#"[{"index":0,"function":{"arguments":":1}"}}]"#,
                r#"[{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":""}}]"#,
                r#"[{"index":1,"function":{"arguments":"{}"}}]"#,
            ],
        ),
        (
            "whole calls in one delta (Groq, xAI)",
            &[
                r#"[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}]"#,
                r#"[{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}]"#,
            ],
        ),
        (
            "both in one delta (Mistral)",
            &[
                r#"[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}},{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}]"#,
            ],
        ),
        (
            "both in one delta without index (Gemini)",
            &[
                r#"[{"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}},{"id":"b","function":{"name":"g","arguments":"{}"}}]"#,
            ],
        ),
        (
            "index null (relays)",
            &[
                r#"[{"index":null,"id":"a","function":{"name":"f","arguments":"{\"x\":"}}]"#,
                r#"[{"index":null,"function":{"arguments":"1}"}}]"#,
                r#"[{"index":null,"id":"b","function":{"name":"g","arguments":"{}"}}]"#,
            ],
        ),
        (
            "every call has index 0 (Ollama 0.20)",
            &[
                r#"[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}]"#,
                r#"[{"index":0,"id":"b","function":{"name":"g","arguments":"{}"}}]"#,
            ],
        ),
        (
            "sparse index (Anthropic)",
            &[
                r#"[{"index":1,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}]"#,
                r#"[{"index":7,"id":"b","function":{"name":"g","arguments":"{}"}}]"#,
            ],
        ),
        (
            "id empty in later deltas (Qwen)",
            &[
                r#"[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]"#,
                r#"[{"index":0,"id":"","function":{"name":"","arguments":"{\"x\":1}"}}]"#,
                r#"[{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}]"#,
            ],
        ),
        (
            "id null and type repeated (Fireworks)",
            &[
                r#"[{"index":0,"id":"a","type":"function","function":{"name":"f"}}]"#,
                r#"[{"index":0,"id":null,"type":"function","function":{"name":null,"arguments":"{\"x\":1}"}}]"#,
                r#"[{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]"#,
            ],
        ),
        (
            "id and name in every delta (Novita)",
            &[
                r#"[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\""}}]"#,
                r#"[{"index":0,"id":"a","function":{"name":"f","arguments":":1}"}}]"#,
                r#"[{"index":1,"id":"b","function":{"name":"g","arguments":"{"}}]"#,
                r#"[{"index":1,"id":"b","function":{"name":"g","arguments":"}"}}]"#,
            ],
        ),
        (
            "later deltas have arguments only (OCI)",
            &[
                r#"[{"id":"a","function":{"name":"f","arguments":""}}]"#,
                r#"[{"function":{"arguments":"{\"x\":1}"}}]"#,
                r#"[{"id":"b","function":{"name":"g","arguments":""}}]"#,
                r#"[{"function":{"arguments":"{}"}}]"#,
            ],
        ),
        (
            "arguments as an object (llama.cpp)",
            &[
                r#"[{"index":0,"id":"a","function":{"name":"f","arguments":{"x":1}}}]"#,
                r#"[{"index":1,"id":"b","function":{"name":"g","arguments":{}}}]"#,
            ],
        ),
        (
            "arguments before the name (SGLang)",
            &[
                r#"[{"index":0,"id":"a","function":{"arguments":"{\"x\""}}]"#,
                r#"[{"index":0,"function":{"name":"f","arguments":":1}"}}]"#,
                r#"[{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}]"#,
            ],
        ),
        (
            "interleaved",
            &[
                r#"[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\""}}]"#,
                r#"[{"index":1,"id":"b","function":{"name":"g","arguments":"{"}}]"#,
                r#"[{"index":0,"function":{"arguments":":1}"}},{"index":1,"function":{"arguments":"}"}}]"#,
            ],
        ),
    ];

    #[test]
    fn every_recorded_way_to_stream_two_calls_gives_the_same_two_calls() {
        for (who, events) in WAYS {
            assert_eq!(assemble(events), calls(F_AND_G), "{who}");
        }
    }

    #[test]
    fn calls_without_ids_are_distinguished_by_name_and_completeness() {
        assert_eq!(
            assemble(&[
                r#"[{"index":0,"id":"","function":{"name":"f","arguments":"{\"x\":1}"}}]"#,
                r#"[{"index":0,"id":"","function":{"name":"f","arguments":"{\"x\":2}"}}]"#,
            ]),
            calls(&[("", "f", "{\"x\":1}"), ("", "f", "{\"x\":2}")])
        );
        assert_eq!(
            assemble(&[
                r#"[{"index":0,"id":"s","function":{"name":"f","arguments":"{}"}}]"#,
                r#"[{"index":0,"id":"s","function":{"name":"g","arguments":"{}"}}]"#,
            ]),
            calls(&[("s", "f", "{}"), ("s", "g", "{}")])
        );
    }

    #[test]
    fn calls_without_arguments_stay_empty() {
        for piece in [r#""arguments":null"#, r#""arguments":"""#, r#""parameters":1"#] {
            let event = format!(r#"[{{"index":0,"id":"a","function":{{"name":"f",{piece}}}}}]"#);
            assert_eq!(assemble(&[&event]), calls(&[("a", "f", "")]));
        }
    }

    #[test]
    fn a_surrogate_pair_cut_by_a_delta_is_joined() {
        let cut = [
            r#"[{"index":0,"id":"a","function":{"name":"f","arguments":"\"\ud83d"}}]"#,
            r#"[{"index":0,"function":{"arguments":"\ude00\""}}]"#,
        ];
        assert_eq!(assemble(&cut), calls(&[("a", "f", "\"\u{1F600}\"")]));
    }

    #[test]
    fn unknown_members_of_a_call_are_kept_as_written() {
        let body = r#"{"choices":[{"delta":{"tool_calls":[{"id":"a","extra_content":{"google":{"thought_signature":"s\u002b"}},"custom":null}]}}]}"#;
        let reply = Reply::parse(body.as_bytes()).unwrap();
        let (mut assembler, mut choice) = (Assembler::default(), ReplyChoice::new(0, true));
        assembler.add(&mut choice, &reply.choices[0].delta.calls[0], body.as_bytes());
        let kept = (b"extra_content".to_vec(), br#"{"google":{"thought_signature":"s\u002b"}}"#.to_vec());
        assert_eq!(nth(&choice, 0).extra, [kept]);
    }

    #[test]
    fn an_extra_member_that_repeats_a_known_name_is_dropped() {
        let body = r#"{"choices":[{"delta":{"tool_calls":[{"functi\u006fn":{"name":"mallory"},"\u0069d":"b","inp\u0075t":"x","input":"y","a":1,"\u0061":2,"function":{"name":"ann"},"id":"a"}]}}]}"#;
        let reply = Reply::parse(body.as_bytes()).unwrap();
        let (mut assembler, mut choice) = (Assembler::default(), ReplyChoice::new(0, true));
        assembler.add(&mut choice, &reply.choices[0].delta.calls[0], body.as_bytes());
        assert_eq!(nth(&choice, 0).extra, [(b"a".to_vec(), b"1".to_vec())]);
        assert_eq!(nth(&choice, 0).name(), "ann");
    }
}
