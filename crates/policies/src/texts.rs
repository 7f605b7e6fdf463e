//! Text templates: what the model and people read of a policy, with placeholders such as `{used}` that the operator may
//! put into texts of his own (`texts` in the policy's table). `{limit:call/calls}` is the first word where the value is 1,
//! and the second where it is not. Checks and fills templates; decides nothing.

use super::ConfigError;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::sync::Arc;
use wire::json::quote;
use wire::plural::is_one;

/// The longest template, in characters: a text is sent again in every later request of its conversation.
const MOST_CHARS: usize = 2_000;

/// A text of a policy.
#[derive(Debug)]
pub struct Text {
    /// Its key in the table `texts`.
    pub key: &'static str,
    /// The template that ships.
    pub default: &'static str,
    /// The names that may be between braces, in it and in the operator's.
    pub placeholders: &'static [&'static str],
}

/// The table `texts` of a policy, as written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct OwnTexts(BTreeMap<String, String>);

/// The templates of a policy: the operator's, and for the rest those that ship.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts(BTreeMap<String, String>);

impl OwnTexts {
    /// The texts of a policy that has those `known`. Adds to `problems` each key that is not one of them, and each
    /// template that cannot be filled.
    pub fn check(self, known: &[Text], problems: &mut Vec<ConfigError>) -> Texts {
        for (key, template) in &self.0 {
            let found = match known.iter().find(|text| text.key == *key) {
                None => Some(format!(
                    "there is no such text; expected {}",
                    listed(known.iter().map(|text| text.key.to_owned()))
                )),
                Some(text) => problem_of(template, text.placeholders),
            };
            problems.extend(found.map(|problem| ConfigError::new(format!("texts.{key}"), problem)));
        }
        Texts(self.0)
    }
}

impl Texts {
    /// The operator's own template for `text`, if there is one.
    pub fn own(&self, text: &Text) -> Option<&str> {
        self.0.get(text.key).map(String::as_str)
    }

    /// Whether the operator has written any of them.
    pub fn is_own(&self) -> bool {
        !self.0.is_empty()
    }

    /// The operator's own ones by key, as JSON: what a cached text depends on. Empty without any.
    pub fn fingerprint(&self) -> String {
        if self.is_own() { serde_json::to_string(&self.0).unwrap_or_default() } else { String::new() }
    }

    /// `text` with `values` in place of its placeholders. A value is never read as a template.
    pub fn fill(&self, text: &Text, values: &[(&str, &dyn Display)]) -> String {
        let template = self.0.get(text.key).map_or(text.default, String::as_str);
        let mut filled = String::with_capacity(template.len() + 64);
        for piece in pieces(template) {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                Piece::Brace(brace) => filled.push(brace),
                Piece::Placeholder(name) => {
                    if let Some(value) = value_of(name, values) {
                        // Writing to a string cannot fail.
                        let _ = write!(filled, "{value}");
                    }
                }
                Piece::Forms { of, one, many } => {
                    let value = value_of(of, values).map(ToString::to_string);
                    let is_one = value.and_then(|value| value.parse::<u64>().ok()).is_some_and(is_one);
                    filled.push_str(if is_one { one } else { many });
                }
                // Templates are checked before.
                Piece::Open | Piece::Formless(_) => {}
            }
        }
        filled
    }
}

fn value_of<'a>(name: &str, values: &[(&str, &'a dyn Display)]) -> Option<&'a dyn Display> {
    values.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

/// The `declaration` of a tool of ours, as JSON, with `description` as its own.
pub fn described(declaration: &str, description: &str) -> Arc<str> {
    declaration.trim_end().replace("\"{declared}\"", &quote(description)).into()
}

/// Why `template` cannot be filled by values for `placeholders`, if so.
fn problem_of(template: &str, placeholders: &[&str]) -> Option<String> {
    let chars = template.chars().count();
    if template.trim().is_empty() {
        return Some("expected a text, found an empty one".to_owned());
    }
    if chars > MOST_CHARS {
        return Some(format!("expected at most {MOST_CHARS} characters, found {chars}"));
    }
    if template.chars().any(|char| char.is_control() && char != '\n') {
        return Some("expected no control characters but line ends".to_owned());
    }
    pieces(template).find_map(|piece| match piece {
        Piece::Placeholder(name) | Piece::Forms { of: name, .. } if !placeholders.contains(&name) => {
            let known = listed(placeholders.iter().map(|name| format!("{{{name}}}")));
            let known = if placeholders.is_empty() { "none".to_owned() } else { known };
            Some(format!("there is no placeholder {{{name}}} in this text; expected {known}"))
        }
        Piece::Formless(text) => {
            Some(format!("expected two words after the colon of {{{text}}}, as in {{limit:call/calls}}"))
        }
        Piece::Open => Some("a brace has no partner; a plain one is written {{ or }}".to_owned()),
        _ => None,
    })
}

fn listed(names: impl Iterator<Item = String>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// A part of a template.
enum Piece<'a> {
    Text(&'a str),
    /// A doubled brace, which is a plain one.
    Brace(char),
    Placeholder(&'a str),
    /// One of two words, by whether a value is 1.
    Forms {
        of: &'a str,
        one: &'a str,
        many: &'a str,
    },
    /// The same without its two words.
    Formless(&'a str),
    /// A brace without a partner.
    Open,
}

fn pieces(template: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = template;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        if rest.starts_with("{{") || rest.starts_with("}}") {
            rest = &rest[2..];
            return Some(Piece::Brace(first));
        }
        if first == '{' {
            let Some(end) = rest[1..].find(['{', '}']).filter(|end| rest[1 + end..].starts_with('}')) else {
                rest = &rest[1..];
                return Some(Piece::Open);
            };
            let name = &rest[1..=end];
            rest = &rest[end + 2..];
            return Some(placeholder(name));
        }
        if first == '}' {
            rest = &rest[1..];
            return Some(Piece::Open);
        }
        let (text, after) = rest.split_at(rest.find(['{', '}']).unwrap_or(rest.len()));
        rest = after;
        Some(Piece::Text(text))
    })
}

/// What is between two braces.
fn placeholder(text: &str) -> Piece<'_> {
    let Some((of, words)) = text.split_once(':') else { return Piece::Placeholder(text) };
    match words.split_once('/') {
        Some((one, many)) if !many.contains('/') => Piece::Forms { of, one, many },
        _ => Piece::Formless(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::{built, default_of, read};
    use crate::{BuildError, REGISTRY};
    use model::testing::{SampleRequest, call, reply, result, user};

    static USED: Text = Text {
        key: "used",
        default: "{used} of {limit}: {{{tool}}}",
        placeholders: &["used", "limit", "tool"],
    };

    fn checked(table: &str) -> (Texts, Vec<String>) {
        let mut problems = Vec::new();
        let texts = toml::from_str::<OwnTexts>(table).unwrap();
        let texts = texts.check(std::slice::from_ref(&USED), &mut problems);
        (texts, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn placeholders_are_filled_and_values_are_no_templates() {
        let values: [(&str, &dyn Display); 3] = [("used", &3), ("limit", &5), ("tool", &"{used}")];
        for (table, expected) in [
            ("", "3 of 5: {{used}}"),
            ("used = \"Noch {limit} minus {used}.\\nEnde\"", "Noch 5 minus 3.\nEnde"),
            ("used = \"{{used}} {tool}{tool}\"", "{used} {used}{used}"),
            ("used = \"{used} {used:call/calls}{limit:!/} {tool:a/}\"", "3 calls "),
        ] {
            let (texts, problems) = checked(table);
            assert_eq!(problems, [""; 0], "{table}");
            assert_eq!(texts.fill(&USED, &values), expected, "{table}");
        }
    }

    #[test]
    fn a_word_after_a_number_is_singular_for_one_alone() {
        let (texts, _) = checked("used = \"{used} {used:Aufruf/Aufrufe} von {limit} {limit:ist/sind} weg\"");
        for (used, limit, expected) in [
            (1, 1, "1 Aufruf von 1 ist weg"),
            (1, 2, "1 Aufruf von 2 sind weg"),
            (0, 11, "0 Aufrufe von 11 sind weg"),
        ] {
            let values: [(&str, &dyn Display); 2] = [("used", &used), ("limit", &limit)];
            assert_eq!(texts.fill(&USED, &values), expected);
        }
    }

    #[test]
    fn a_template_that_cannot_be_filled_is_refused_by_key() {
        let long = format!("used = \"{}\"", "x".repeat(MOST_CHARS + 1));
        for (table, expected) in [
            ("user = \"x\"", "texts.user: there is no such text; expected used"),
            ("used = \" \"", "texts.used: expected a text, found an empty one"),
            (
                "used = \"{limt}\"",
                "texts.used: there is no placeholder {limt} in this text; expected {used}, {limit}, {tool}",
            ),
            ("used = \"{used\"", "texts.used: a brace has no partner; a plain one is written {{ or }}"),
            ("used = \"used}\"", "texts.used: a brace has no partner; a plain one is written {{ or }}"),
            ("used = \"a{b{used}\"", "texts.used: a brace has no partner; a plain one is written {{ or }}"),
            ("used = \"a\\u0007\"", "texts.used: expected no control characters but line ends"),
            (
                "used = \"{limt:a/b}\"",
                "texts.used: there is no placeholder {limt} in this text; expected {used}, {limit}, {tool}",
            ),
            (
                "used = \"{used:calls}\"",
                "texts.used: expected two words after the colon of {used:calls}, as in {limit:call/calls}",
            ),
            (
                "used = \"{used:a/b/c}\"",
                "texts.used: expected two words after the colon of {used:a/b/c}, as in {limit:call/calls}",
            ),
            (&long, "texts.used: expected at most 2000 characters, found 2001"),
        ] {
            assert_eq!(checked(table).1, [expected], "{table}");
        }
    }

    /// A turn that looked something up, and went on without an answer; `look` gave the card 7.
    fn looked() -> SampleRequest {
        let schema = r#"{"type":"object","required":["to"],"properties":{"to":{"type":"string"}}}"#;
        let messages = [user("q"), reply([call("c", "look", "{}")]), result("c", r#"{"id":"7"}"#)];
        SampleRequest::new(&messages).declaring("pay", schema)
    }

    #[test]
    fn the_operator_s_texts_are_what_the_model_reads() {
        let fresh = "rules = [{ tool = \"pay\", argument = \"to\", from = \"FROM\", path = \"id\" }]\n";
        let cases: [(&str, String, &[&str], &str); 8] = [
            ("kill", "callers = [\"00000000000000000000000000000001\"]\nmessage = \"Ende.\"\ntexts.blocked = \"Nein: {message}\"".to_owned(), &["pay"], "Nein: Ende."),
            ("arguments", "texts.blocked = \"{tool}! {problems}\"".to_owned(), &["pay"], "pay! to: required, expected string"),
            ("serial", "texts.blocked = \"{first} vor {tool}\"".to_owned(), &["look", "pay"], "look vor pay"),
            ("min_conversation", "tools.pay = { min_user_words = 9 }\ntexts.blocked = \"{tool}: {missing}\"".to_owned(), &["pay"], "pay: 1 of 9 words of the user"),
            ("states", "state.start = { tools = [\"x\"], final = true }\ntexts.blocked = \"{state}: {tool}\"".to_owned(), &["pay"], "start: pay"),
            ("allow", "except = [\"pay\"]\ntexts.forbidden = \"{tool} nicht\"".to_owned(), &["pay"], "pay nicht"),
            ("fresh", fresh.replace("FROM", "other") + "texts.unknown = \"{argument} aus {from}\"", &["pay"], "to aus other"),
            ("fresh", fresh.replace("FROM", "look") + "texts.stale = \"{given}: {current}\"", &["pay"], "\"8\": look last gave \"7\""),
        ];
        for (name, table, calls, expected) in cases {
            let entry = REGISTRY.iter().find(|entry| entry.name == name).unwrap();
            let mut judge = read(&built(entry, &table), &looked(), &[]).1;
            let arguments = if name == "fresh" { "{\"to\":\"8\"}" } else { "{}" };
            let rulings: Vec<_> = calls.iter().map(|call| judge.rule(0, call, Some(arguments), 0)).collect();
            let reason = &rulings.last().unwrap().objections.first().expect(name).1;
            assert_eq!(reason.message, expected, "{name}");
        }
    }

    #[test]
    fn every_policy_with_texts_takes_each_of_them_and_no_other() {
        for entry in REGISTRY.iter().filter(|entry| !entry.texts.is_empty()) {
            let build = |texts: &str| {
                let text = format!("[x]\n{}\n{texts}", default_of(entry));
                let mut root = toml::de::DeTable::parse(&text).unwrap();
                let value = root.get_mut().remove("x").unwrap();
                (entry.build)(toml::de::ValueDeserializer::from(value))
            };
            for text in entry.texts {
                // Some must hold certain placeholders.
                let own = toml::Value::from(format!("{} Indeed.", text.default));
                assert!(build(&format!("texts.{} = {own}", text.key)).is_ok(), "{} {}", entry.name, text.key);
            }
            let Err(BuildError::Checked(problems)) = build("texts.nope = \"x\"") else {
                panic!("{}", entry.name)
            };
            assert_eq!(problems[0].key, "texts.nope", "{}", entry.name);
        }
    }

    #[test]
    fn every_text_that_ships_can_be_filled_and_has_a_key_of_its_own() {
        for entry in REGISTRY {
            for (at, text) in entry.texts.iter().enumerate() {
                assert_eq!(problem_of(text.default, text.placeholders), None, "{} {}", entry.name, text.key);
                let is_first = entry.texts.iter().position(|other| other.key == text.key) == Some(at);
                assert!(is_first, "{} {}", entry.name, text.key);
            }
        }
    }
}
