//! The arguments of a call of `read_more`, parsed leniently: numbers may be texts, a range may be written in any of
//! the usual ways of models. The errors say what is wrong in words that the model can act on.

use crate::path::Path;
use serde_json::{Map, Value};

/// A call of `read_more`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReadRequest {
    /// The number of the call whose result is to be read.
    pub(super) call: usize,
    pub(super) part: Part,
}

/// The requested part of a result. Positions count from 1, and the last one is included.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    Characters { first: usize, last: usize },
    Lines { first: usize, last: usize },
    Search(String),
    Path(Path),
}

impl ReadRequest {
    /// Parses the arguments of a call.
    pub(super) fn read(arguments: &str) -> Result<Self, String> {
        let Ok(Value::Object(arguments)) = serde_json::from_str(arguments) else {
            return Err("the arguments are not a JSON object; give call, and the part to read".to_owned());
        };
        let call = number(arguments.get("call"))
            .ok_or("give call: the number of the call, as the marker of the cut result names it")?;
        Ok(Self { call, part: part(&arguments)? })
    }
}

/// The first part that is given counts: models like to fill in every parameter with an empty value.
fn part(arguments: &Map<String, Value>) -> Result<Part, String> {
    let text = |name: &str| {
        let text = arguments.get(name).and_then(Value::as_str).map(str::trim);
        text.filter(|text| !text.is_empty())
    };
    if let Some(search) = text("search") {
        return Ok(Part::Search(search.to_owned()));
    }
    if let Some(lines) = arguments.get("lines").filter(|lines| !is_nothing(lines)) {
        let (first, last) = range(lines).ok_or("give lines as first and last, such as 120-180")?;
        return Ok(Part::Lines { first, last });
    }
    if let Some(path) = text("path") {
        return Path::parse(path).map(Part::Path);
    }
    let first = number(arguments.get("from")).unwrap_or(1);
    let last = number(arguments.get("to")).unwrap_or(usize::MAX);
    ordered(first, last)
        .map(|(first, last)| Part::Characters { first, last })
        .ok_or_else(|| format!("from ({first}) is greater than to ({last}); characters count from 1"))
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.trim().is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// A range as "120-180", "120", [120, 180], {"from": 120, "to": 180} or 120.
fn range(value: &Value) -> Option<(usize, usize)> {
    let ends: Vec<usize> = match value {
        Value::String(text) => {
            let digits = text.split(|char: char| !char.is_ascii_digit()).filter(|digits| !digits.is_empty());
            digits.map(|digits| digits.parse().ok()).collect::<Option<_>>()?
        }
        Value::Array(items) => items.iter().map(|item| number(Some(item))).collect::<Option<_>>()?,
        Value::Object(ends) => [["from", "first", "start"], ["to", "last", "end"]]
            .iter()
            .map(|names| names.iter().find_map(|name| number(ends.get(*name))))
            .collect::<Option<_>>()?,
        other => vec![number(Some(other))?],
    };
    match ends.as_slice() {
        [only] => ordered(*only, *only),
        [first, last] => ordered(*first, *last),
        _ => None,
    }
}

/// The first position is 1; some models count from 0.
fn ordered(first: usize, last: usize) -> Option<(usize, usize)> {
    (first <= last).then_some((first.max(1), last.max(1)))
}

fn number(value: Option<&Value>) -> Option<usize> {
    match value? {
        Value::Number(number) => {
            let whole = number.as_u64().or_else(|| number.as_f64().map(|number| number.max(0.0) as u64))?;
            usize::try_from(whole).ok()
        }
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_in_the_ways_in_which_models_write_them() {
        let lines = |first, last| Part::Lines { first, last };
        let search = Part::Search("linker".to_owned());
        for (arguments, part) in [
            (r#"{"call":7,"search":"linker"}"#, search),
            (r#"{"call":"7","search":"","lines":"120-180","path":""}"#, lines(120, 180)),
            (r#"{"call":7,"lines":"lines 120 to 180"}"#, lines(120, 180)),
            (r#"{"call":7.0,"lines":[0,180]}"#, lines(1, 180)),
            (r#"{"call":7,"lines":{"from":"120","to":180}}"#, lines(120, 180)),
            (r#"{"call":7,"lines":120,"search":null}"#, lines(120, 120)),
            (r#"{"call":7,"path":"a[0].b"}"#, Part::Path(Path::parse("a[0].b").unwrap())),
            (r#"{"call":7,"from":0,"to":5}"#, Part::Characters { first: 1, last: 5 }),
            (r#"{"call":7}"#, Part::Characters { first: 1, last: usize::MAX }),
        ] {
            assert_eq!(ReadRequest::read(arguments), Ok(ReadRequest { call: 7, part }), "{arguments}");
        }
    }

    #[test]
    fn invalid_arguments_of_read_more_are_explained() {
        for (arguments, word) in [
            ("", "JSON"),
            ("[7]", "JSON"),
            ("{}", "give call"),
            (r#"{"call":"the last"}"#, "give call"),
            (r#"{"call":7,"lines":"all"}"#, "120-180"),
            (r#"{"call":7,"lines":"9-3"}"#, "120-180"),
            (r#"{"call":7,"path":"a..b"}"#, "path"),
            (r#"{"call":7,"from":9,"to":3}"#, "count from 1"),
        ] {
            let problem = ReadRequest::read(arguments).unwrap_err();
            assert!(problem.contains(word), "{arguments}: {problem}");
        }
    }
}
