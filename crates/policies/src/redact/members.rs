//! Secrets in JSON documents by where they are: below a member whose name calls it a secret, and beside one that holds such
//! a name. Each string is found whole.

use super::detect::{Found, What};
use super::named::{
    describes_value, holds_secret, holds_value, is_header, is_name_of_secrets, is_named_value,
    is_secret_name, value_of_argument,
};
use super::rules::Kind;
use wire::decoded::{Decoded, Group, JsonString};

/// What the names in and around a list or an object say of its strings.
#[derive(Clone, Copy, Default)]
struct Secrecy {
    /// The name of a member around it, or its own, calls all of it a secret.
    is_secret: bool,
    /// One of its strings names a secret, whose value is another one.
    names_secret: bool,
    /// That string is the name of a header.
    names_header: bool,
}

/// The strings of documents that are secrets by their place, and the arguments of commands that are.
pub(super) fn find_in_members<'a>(text: &'a Decoded<'_>) -> impl Iterator<Item = Found> + 'a {
    let (first, strings) = (text.layer(0), text.strings());
    let known = secrecy_of_groups(text);
    let secret = strings.iter().enumerate().filter_map(move |(at, string)| {
        let value = &first[string.range.clone()];
        let before = at.checked_sub(1).map(|before| &strings[before]);
        let start = match value_of_argument(value) {
            Some(start) if start < value.len() => start,
            _ if before.is_some_and(|before| names_next(first, before, string)) => 0,
            _ => {
                let known = string.within.map_or(Secrecy::default(), |group| known[group]);
                let groups = text.groups();
                secret_start(first, string, known, string.within.map(|group| &groups[group]))?
            }
        };
        holds_secret(&value[start..]).then(|| string.range.start + start..string.range.end)
    });
    let sources = secret.flat_map(|range| text.sources(0, range));
    sources.map(|range| Found { range, layer: 0, what: What::Kind(Kind::Secret) })
}

/// Where the secret begins in a string that is one by its place.
fn secret_start(first: &str, string: &JsonString, known: Secrecy, group: Option<&Group>) -> Option<usize> {
    if string.is_name {
        return None;
    }
    let value = &first[string.range.clone()];
    let name = string.name.clone().map(|name| &first[name]);
    if let Some(name) = name.filter(|name| is_header(name)) {
        return Some(after_scheme(name, value));
    }
    let is_list = group.is_some_and(|group| group.is_list);
    let is_below =
        known.is_secret && (is_list || !name.is_some_and(describes_value)) && is_named_value(value);
    let is_beside = known.names_secret && (is_list || name.is_some_and(holds_value));
    let is_one = name.is_some_and(is_secret_name) || is_below || is_beside;
    is_one.then(|| if is_beside && known.names_header { after_scheme("authorization", value) } else { 0 })
}

/// Where the secret begins in the value of a header: after the scheme, such as `Bearer`.
fn after_scheme(header: &str, value: &str) -> usize {
    let is_scheme = |word: &str| word.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-');
    match value.split_once(' ') {
        Some((scheme, secret)) if header.to_ascii_lowercase().contains("auth") && is_scheme(scheme) => {
            value.len() - secret.len()
        }
        _ => 0,
    }
}

/// The secrecy of each list and object, in the order of [`Decoded::groups`].
fn secrecy_of_groups(text: &Decoded<'_>) -> Vec<Secrecy> {
    let first = text.layer(0);
    let mut known: Vec<Secrecy> = Vec::with_capacity(text.groups().len());
    for group in text.groups() {
        let around = group.within.is_some_and(|around| known[around].is_secret);
        let name = group.name.clone().map(|name| &first[name]);
        let is_secret = around || name.is_some_and(is_name_of_secrets);
        known.push(Secrecy { is_secret, ..Secrecy::default() });
    }
    let mut is_first = vec![true; known.len()];
    for string in text.strings() {
        let Some(group) = string.within else { continue };
        let value = || &first[string.range.clone()];
        let names = || is_secret_name(value()) || is_header(value());
        let is_first = std::mem::replace(&mut is_first[group], false);
        let names_secret = match (&text.groups()[group], &string.name) {
            // A pair, as lists of headers are written.
            (Group { is_list: true, commas: 1, .. }, _) => is_first && names(),
            (Group { is_list: false, .. }, Some(name)) => is_name_of_other(&first[name.clone()]) && names(),
            _ => false,
        };
        known[group].names_secret |= names_secret;
        known[group].names_header |= names_secret && is_header(value());
    }
    known
}

/// Whether a member with this name says what another member of the object is.
fn is_name_of_other(name: &str) -> bool {
    const NAMES: [&str; 13] = [
        "name",
        "key",
        "id",
        "field",
        "header",
        "variable",
        "var",
        "property",
        "label",
        "param",
        "parameter",
        "attribute",
        "setting",
    ];
    NAMES.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Whether the first of two strings is the option of a command whose value is the second, the next one of its list.
fn names_next(first: &str, option: &JsonString, value: &JsonString) -> bool {
    let between = &first[option.range.end..value.range.start];
    let is_next = between.bytes().all(|byte| matches!(byte, b'"' | b',') || byte.is_ascii_whitespace());
    let option = &first[option.range.clone()];
    is_next && between.contains(',') && value_of_argument(option) == Some(option.len())
}
