//! Pinned tool definitions: which definitions of each tool a conversation, or a caller, has declared, in the order in
//! which they were first seen. The first of a tool is its pin. Holds hashes; decides nothing.

use super::fact::body::split_hash;
use super::fact::{Fact, Record, RecordKind, Retention, Room};
use super::identity::{Domain, Hash, HashKey};
use super::memo::Memo;
use super::names::dispatch_form;
use wire::json::canonical;

/// The most definitions that are kept under one key, the first ones.
pub const MOST_PINS: usize = 512;

/// Whose definitions are pinned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PinScope {
    #[default]
    Conversation,
    /// All conversations of a caller together.
    Caller,
}

/// One definition of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pinned {
    /// The hash of the form of its name that programs look up, and in the lower half that of the name; 0 there where only
    /// the form is pinned.
    pub tool: Hash,
    /// The hash of the definition, equal for every form of the same JSON.
    pub definition: Hash,
}

impl Record for Pinned {
    fn to_body(&self) -> Option<Vec<u8>> {
        Some(format!("{}{}", self.tool, self.definition).into_bytes())
    }

    fn from_body(body: &[u8]) -> Option<Self> {
        let (tool, definition) = split_hash(body)?;
        let (definition, rest) = split_hash(definition)?;
        rest.is_empty().then_some(Self { tool, definition })
    }
}

impl Fact for Pinned {
    const KIND: RecordKind = RecordKind::Pins;
    const RETENTION: Retention = Retention::First(MOST_PINS);
    const ROOM: Room = Room::Bytes;
}

/// How a declared definition relates to those known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinComparison {
    /// It is the first known definition of its tool, or no definition of any tool is known.
    Pinned,
    /// Other tools were declared before, this one was not.
    Appeared,
    /// Its tool first had another definition, or it takes the place of a tool whose name differs only in what lenient programs
    /// ignore; `again`: this one was seen later too.
    Changed { again: bool },
}

/// A definition that a request declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Under the tool's name.
    exact: Pinned,
    /// Under the form of its name that lenient programs look up: another tool of this form is run in its place.
    form: Pinned,
}

/// How many bits of a pin's tool are those of the name; the others are those of the form that programs look up.
const NAME_BITS: u32 = 64;

impl Declared {
    /// That of the tool `name`, whose `definition` is JSON.
    pub fn new(name: &str, definition: &[u8], key: &HashKey, memo: &dyn Memo) -> Self {
        let hash = || key.hash(Domain::Definition, &[b"form", &canonical(definition)]);
        let written = key.hash(Domain::Definition, &[b"written", definition]);
        let definition = *memo.derive(written, hash);
        let named = |kind: &[u8], name: &str| key.hash(Domain::Definition, &[kind, name.as_bytes()]).0;
        let form = named(b"dispatch", &dispatch_form(name)) >> NAME_BITS << NAME_BITS;
        let exact = form | (named(b"name", name) >> NAME_BITS);
        let pinned = |tool| Pinned { tool: Hash(tool), definition };
        Self { exact: pinned(exact), form: pinned(form) }
    }

    /// How it relates to what is `known`, the first seen first.
    pub fn among(&self, known: &[Pinned]) -> PinComparison {
        if let Some(first) = known.iter().find(|pin| pin.tool == self.exact.tool) {
            return match first.definition == self.exact.definition {
                true => PinComparison::Pinned,
                false => PinComparison::Changed { again: known.contains(&self.exact) },
            };
        }
        let is_of_form = |pin: &Pinned| pin.tool.0 >> NAME_BITS == self.form.tool.0 >> NAME_BITS;
        if known.iter().any(is_of_form) {
            return PinComparison::Changed { again: known.contains(&self.form) };
        }
        if known.is_empty() { PinComparison::Pinned } else { PinComparison::Appeared }
    }

    /// What is to be pinned of it beside what is `known`.
    pub fn unpinned(&self, known: &[Pinned]) -> Option<Pinned> {
        let is_named = known.iter().any(|pin| pin.tool == self.exact.tool);
        let is_change = matches!(self.among(known), PinComparison::Changed { .. });
        // A change under another name is pinned by the form alone: its own name is not known as a tool's, so it stays a
        // change.
        let pin = if is_change && !is_named { self.form } else { self.exact };
        Some(pin).filter(|pin| !known.contains(pin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memo::NoMemo;

    fn declared(name: &str, definition: &str) -> Declared {
        Declared::new(name, definition.as_bytes(), &HashKey::fixed(1), &NoMemo)
    }

    /// How the last of these definitions, declared one after the other, relates to those before.
    fn last(definitions: &[(&str, &str)]) -> PinComparison {
        let mut pins = Vec::new();
        let mut last = PinComparison::Pinned;
        for (name, definition) in definitions {
            let declared = declared(name, definition);
            last = declared.among(&pins);
            pins.extend(declared.unpinned(&pins));
        }
        last
    }

    #[test]
    fn white_space_member_order_and_escapes_do_not_change_a_pin_but_content_does() {
        let one = declared("f", r#"{"name":"f","description":"Reads é.","parameters":{"a":1,"b":[1,2]}}"#);
        let same = r#"{ "parameters":{"b":[1, 2],"a":1}, "description":"Reads \u00e9.","name":"f"}"#;
        assert_eq!(one, declared("f", same));
        for other in [
            r#"{"name":"f","description":"Reads é!","parameters":{"a":1,"b":[1,2]}}"#,
            r#"{"name":"f","description":"Reads é.","parameters":{"a":1,"b":[2,1]}}"#,
            r#"{"name":"f","description":"Reads é."}"#,
        ] {
            assert_ne!(one, declared("f", other));
        }
    }

    #[test]
    fn the_first_definition_of_a_tool_is_its_pin() {
        let changed = |again| PinComparison::Changed { again };
        for (definitions, expected) in [
            (&[("f", "1")][..], PinComparison::Pinned),
            (&[("f", "1"), ("f", "2"), ("f", "1")], PinComparison::Pinned),
            (&[("f", "1"), ("g", "1"), ("f", "2")], changed(false)),
            (&[("f", "1"), ("f", "2"), ("f", "2")], changed(true)),
            (&[("f", "1"), ("g", "1")], PinComparison::Appeared),
        ] {
            assert_eq!(last(definitions), expected, "{definitions:?}");
        }
    }

    #[test]
    fn a_name_that_programs_run_as_a_known_one_is_a_change_of_it() {
        let changed = |again| PinComparison::Changed { again };
        for (definitions, expected) in [
            (&[("add", "1"), ("Add", "2")][..], changed(false)),
            (&[("Add", "1"), ("add", "2")], changed(false)),
            (&[("Add", "1"), ("ADD", "2")], changed(false)),
            (&[("add", "1"), ("functions.add", "2")], changed(false)),
            (&[("add", "1"), ("Add", "2"), ("Add", "2")], changed(true)),
            (&[("add", "1"), ("Add", "2"), ("Add", "3")], changed(false)),
            (&[("add", "1"), ("Add", "2"), ("add", "1")], PinComparison::Pinned),
            (&[("Add", "1"), ("Add", "1")], PinComparison::Pinned),
            (&[("add", "1"), ("shop.add", "2")], PinComparison::Appeared),
        ] {
            assert_eq!(last(definitions), expected, "{definitions:?}");
        }
    }

    #[test]
    fn two_tools_of_one_request_whose_names_differ_in_case_are_no_change_of_each_other() {
        let both = [declared("add", "1"), declared("Add", "2")];
        let pins: Vec<Pinned> = both.iter().filter_map(|one| one.unpinned(&[])).collect();
        assert_eq!(pins.len(), 2, "one for each name, whatever its capitals");
        assert_eq!(both.map(|one| one.among(&pins)), [PinComparison::Pinned; 2]);
    }
}
