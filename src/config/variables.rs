//! Environment variables in a configuration: `${NAME}` within its strings, and variables that set a key. Changes a
//! parsed document before anything reads its values.

use super::document::{dotted, in_order};
use std::borrow::Cow;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What the name of a variable that sets a key begins with: `TOOLREIN__POLICY__BUDGET__TOOL_CALLS=20`.
pub const PREFIX: &str = "TOOLREIN__";

/// The deepest key that a variable can set: none that exists is as deep.
const DEEPEST: usize = 16;

/// A wrong use of a variable.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    /// The dotted key.
    pub key: String,
    pub text: String,
}

/// Gives the value of a variable; `None`: there are no variables in this document.
pub(super) type ValueOf<'v> = Option<&'v dyn Fn(&str) -> Option<String>>;

/// Replaces `${NAME}` and `${NAME:-default}` in all strings of `table` by what `value_of` gives; `$${` is a plain `${`.
/// Returns what could not be replaced.
pub(super) fn expand(table: &mut DeTable<'_>, value_of: ValueOf<'_>) -> Vec<Trouble> {
    let mut troubles = Vec::new();
    for (key, value) in table.iter_mut() {
        expand_value(&dotted([key.get_ref().as_ref()].into_iter()), value.get_mut(), value_of, &mut troubles);
    }
    troubles
}

fn expand_value(key: &str, value: &mut DeValue<'_>, value_of: ValueOf<'_>, troubles: &mut Vec<Trouble>) {
    match value {
        DeValue::String(text) if text.contains("${") => match expanded(text, value_of) {
            Ok(new) => *text = Cow::Owned(new),
            Err(text) => troubles.push(Trouble { key: key.to_owned(), text }),
        },
        DeValue::Array(items) => {
            items.iter_mut().for_each(|item| expand_value(key, item.get_mut(), value_of, troubles));
        }
        DeValue::Table(table) => {
            let inner = expand(table, value_of).into_iter();
            troubles.extend(inner.map(|it| Trouble { key: format!("{key}.{}", it.key), ..it }));
        }
        _ => {}
    }
}

/// `text` with its variables replaced.
fn expanded(text: &str, value_of: ValueOf<'_>) -> Result<String, String> {
    const FORM: &str = "expected ${NAME} or ${NAME:-default}; $${ is a plain ${";
    let mut new = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            new.push_str(before);
            new.push_str("${");
            rest = &from[2..];
            continue;
        }
        new.push_str(before);
        let value_of = value_of
            .ok_or("only a configuration that was named at the start uses variables of the environment")?;
        let (inner, after) = from[2..].split_once('}').ok_or(FORM)?;
        let (name, default) =
            inner.split_once(":-").map_or((inner, None), |(name, default)| (name, Some(default)));
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || !name.bytes().all(is_name) {
            return Err(FORM.to_owned());
        }
        // An empty variable counts as unset where there is a default, as in shells.
        let found = value_of(name).filter(|found| default.is_none() || !found.is_empty());
        let found = found.or_else(|| default.map(str::to_owned));
        new.push_str(&found.ok_or_else(|| {
            format!("the variable {name} is not set; write ${{{name}:-default}} to do without it")
        })?);
        rest = after;
    }
    new.push_str(rest);
    Ok(new)
}

/// The values of `settings`, each the name of a variable (see [`PREFIX`]) and its text, as a TOML document with the key
/// `v0` for the first. Its values begin at the byte `from`, so that their positions differ from all in the file.
pub(super) fn as_toml(settings: &[(String, String)], from: usize) -> String {
    let mut text = " ".repeat(from);
    for (at, (_, value)) in settings.iter().enumerate() {
        text.push_str(&format!("v{at} = {}\n", value_as_toml(value)));
    }
    text
}

/// A number, `true`, `false`, a list, a table or a quoted string as it is; anything else as a string.
fn value_as_toml(text: &str) -> String {
    let text = text.trim();
    let line = format!("v = {text}");
    let parsed = DeTable::parse(&line).ok().filter(|table| table.get_ref().len() == 1);
    let value = parsed.as_ref().and_then(|table| table.get_ref().get("v")).map(Spanned::get_ref);
    let is_written = value.is_some_and(|value| !matches!(value, DeValue::Datetime(_)));
    if is_written && !text.contains(['#', '\n']) {
        text.to_owned()
    } else {
        toml::Value::from(text).to_string()
    }
}

/// Sets the keys that `settings` name in `root` to the values of `written`, see [`as_toml`]. Returns each key with its
/// variable, and what could not be set.
pub(super) fn set<'a>(
    root: &mut DeTable<'a>,
    settings: &[(String, String)],
    written: &'a str,
) -> (Vec<(String, String)>, Vec<Trouble>) {
    let (mut keys, mut troubles) = (Vec::new(), Vec::new());
    let mut values = DeTable::parse(written).map(Spanned::into_inner).unwrap_or_default();
    for (at, (variable, _)) in settings.iter().enumerate() {
        let Some((place, value)) = values.remove_entry(format!("v{at}").as_str()) else { continue };
        let parts: Vec<String> =
            variable.strip_prefix(PREFIX).unwrap_or_default().split("__").map(str::to_lowercase).collect();
        let is_key = !parts.iter().any(String::is_empty) && parts.len() <= DEEPEST;
        let key = if is_key { dotted(parts.iter().map(String::as_str)) } else { String::new() };
        let done = match is_key {
            true => put(root, &parts, value, place.span()),
            false => {
                Err(format!("expected a key after {PREFIX}, such as {PREFIX}POLICY__BUDGET__TOOL_CALLS"))
            }
        };
        keys.push((key.clone(), variable.clone()));
        troubles.extend(done.err().map(|text| Trouble { key, text }));
    }
    (keys, troubles)
}

/// Puts `value` where `parts` say; tables that are missing on the way are made. Names are compared without case, since
/// variables are written in capitals.
fn put<'a>(
    table: &mut DeTable<'a>,
    parts: &[String],
    value: Spanned<DeValue<'a>>,
    at: Range<usize>,
) -> Result<(), String> {
    let Some((name, rest)) = parts.split_first() else { return Ok(()) };
    let written = in_order(table).into_iter().map(|entry| entry.name);
    let name = written.into_iter().find(|it| it.eq_ignore_ascii_case(name)).unwrap_or_else(|| name.clone());
    let key = || Spanned::new(at.clone(), Cow::Owned(name.clone()));
    if rest.is_empty() {
        table.remove(name.as_str());
        table.insert(key(), value);
        return Ok(());
    }
    if !table.contains_key(name.as_str()) {
        // An empty span, which no problem of a value has.
        let empty = Spanned::new(at.start..at.start, DeValue::Table(DeTable::new()));
        table.insert(Spanned::new(at.start..at.start, Cow::Owned(name.clone())), empty);
    }
    match table.get_mut(name.as_str()).map(Spanned::get_mut) {
        Some(DeValue::Table(inner)) => put(inner, rest, value, at),
        _ => Err(format!("{name} is not a table")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value_of(name: &str) -> Option<String> {
        match name {
            "HOST" => Some("models.internal".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        }
    }

    #[test]
    fn variables_in_strings_are_expanded_and_invalid_ones_are_errors() {
        for (text, expected) in [
            ("https://${HOST}/v1", Ok("https://models.internal/v1")),
            ("${HOST}${HOST}", Ok("models.internalmodels.internal")),
            ("${NONE:-http://localhost}", Ok("http://localhost")),
            ("${EMPTY:-else}", Ok("else")),
            ("a${EMPTY}b", Ok("ab")),
            ("${NONE:-}", Ok("")),
            ("costs $5, $HOST", Ok("costs $5, $HOST")),
            ("$${HOST}", Ok("${HOST}")),
            ("${NONE}", Err("the variable NONE is not set; write ${NONE:-default} to do without it")),
            ("${HOST", Err("expected ${NAME} or ${NAME:-default}; $${ is a plain ${")),
            ("${a b}", Err("expected ${NAME} or ${NAME:-default}; $${ is a plain ${")),
            ("${}", Err("expected ${NAME} or ${NAME:-default}; $${ is a plain ${")),
        ] {
            let found = expanded(text, Some(&value_of));
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{text}");
        }
    }

    #[test]
    fn the_value_of_a_variable_is_not_expanded_again() {
        let of = |_: &str| Some("${HOST}".to_owned());
        assert_eq!(expanded("${A}", Some(&of)).unwrap(), "${HOST}");
        assert!(expanded("${A:-x}", None).unwrap_err().contains("named at the start"));
    }

    #[test]
    fn a_setting_is_a_toml_value_where_it_is_one_and_else_a_string() {
        for (text, written) in [
            ("20", "20"),
            ("0.5", "0.5"),
            ("true", "true"),
            ("[0.5, 0.9]", "[0.5, 0.9]"),
            ("{ calls = 5 }", "{ calls = 5 }"),
            ("\"quoted\"", "\"quoted\""),
            ("30s", "\"30s\""),
            ("https://host/v1", "\"https://host/v1\""),
            ("2026-11-24", "\"2026-11-24\""),
            ("1\nother = 2", "\"\"\"\n1\nother = 2\"\"\""),
            ("5 # five", "\"5 # five\""),
            ("", "\"\""),
        ] {
            assert_eq!(value_as_toml(text), written, "{text}");
        }
    }
}
