//! Pinned tool definitions: which definitions of each tool a conversation, or a caller, has declared, in the order in
//! which they were first seen. The first of a tool is its pin. Holds hashes; decides nothing.

use super::identity::{Domain, Hash, HashKey};
use super::memo::{Derived, Memo};
use crate::wire::json::canonical;

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
    /// The hash of its name.
    pub tool: Hash,
    /// The hash of the definition, equal for every form of the same JSON.
    pub definition: Hash,
}

/// How a declared definition relates to those known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It is the first known definition of its tool, or no definition of any tool is known.
    Pinned,
    /// Other tools were declared before, this one was not.
    Appeared,
    /// Its tool first had another definition; `again`: this one was seen later too.
    Changed { again: bool },
}

impl Pinned {
    /// That of the tool `name`, whose `definition` is JSON.
    pub fn of(name: &str, definition: &[u8], key: &HashKey, memo: &dyn Memo) -> Self {
        let hash = || key.hash(Domain::Definition, &[b"form", &canonical(definition)]);
        let written = key.hash(Domain::Definition, &[b"written", definition]);
        let derived = memo.derive(written, &mut || Derived::Hash(hash()));
        let definition = if let Derived::Hash(known) = derived { known } else { hash() };
        Self { tool: key.hash(Domain::Definition, &[b"name", name.as_bytes()]), definition }
    }

    /// How it relates to what is `known`, the first seen first.
    pub fn among(&self, known: &[Self]) -> Known {
        match known.iter().find(|pin| pin.tool == self.tool) {
            Some(first) if first.definition == self.definition => Known::Pinned,
            Some(_) => Known::Changed { again: known.contains(self) },
            None if known.is_empty() => Known::Pinned,
            None => Known::Appeared,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::memo::NoMemo;

    fn pin(name: &str, definition: &str) -> Pinned {
        Pinned::of(name, definition.as_bytes(), &HashKey::fixed(1), &NoMemo)
    }

    #[test]
    fn white_space_member_order_and_escapes_do_not_change_a_pin_but_content_does() {
        let one = pin("f", r#"{"name":"f","description":"Reads é.","parameters":{"a":1,"b":[1,2]}}"#);
        let same = r#"{ "parameters":{"b":[1, 2],"a":1}, "description":"Reads \u00e9.","name":"f"}"#;
        assert_eq!(one, pin("f", same));
        for other in [
            r#"{"name":"f","description":"Reads é!","parameters":{"a":1,"b":[1,2]}}"#,
            r#"{"name":"f","description":"Reads é.","parameters":{"a":1,"b":[2,1]}}"#,
            r#"{"name":"f","description":"Reads é."}"#,
        ] {
            assert_ne!(one, pin("f", other));
        }
        assert_ne!(one.tool, pin("g", "{}").tool);
    }

    #[test]
    fn the_first_definition_of_a_tool_is_its_pin() {
        let (first, second, other) = (pin("f", "1"), pin("f", "2"), pin("g", "1"));
        for (one, known, expected) in [
            (first, &[][..], Known::Pinned),
            (first, &[first, second], Known::Pinned),
            (second, &[first, other], Known::Changed { again: false }),
            (second, &[first, second], Known::Changed { again: true }),
            (other, &[first], Known::Appeared),
        ] {
            assert_eq!(one.among(known), expected);
        }
    }
}
