//! Paths into JSON texts as an operator writes them: `card.id`, `cards[*].id`, `[0].name`. Finds values and compares
//! them; what they mean is for the policy to decide.

use wire::body::{Fault, Kind, Scanner, Span};
use wire::json::{canonical, decode};

/// A path: names of members with dots between them, `[*]` for every item of a list, `[2]` for one. A string that
/// holds JSON itself is entered too: some clients wrap results so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    text: String,
    steps: Vec<Step>,
}

/// A step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Member(String),
    Each,
    At(usize),
}

impl Path {
    /// Reads a path as written.
    ///
    /// # Errors
    /// What was expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!(r#"expected a path such as "card.id" or "cards[*].id", found {text:?}"#);
        let mut steps = Vec::new();
        for (at, piece) in text.split('.').enumerate() {
            let (name, items) = piece.find('[').map_or((piece, ""), |open| piece.split_at(open));
            if name.trim() != name || name.contains(']') || (name.is_empty() && (at > 0 || items.is_empty()))
            {
                return Err(wrong());
            }
            if !name.is_empty() {
                steps.push(Step::Member(name.to_owned()));
            }
            if items.is_empty() {
                continue;
            }
            let inner =
                items.strip_prefix('[').and_then(|items| items.strip_suffix(']')).ok_or_else(wrong)?;
            for item in inner.split("][") {
                steps.push(match item {
                    "*" => Step::Each,
                    number => Step::At(number.parse().map_err(|_| wrong())?),
                });
            }
        }
        Ok(Self { text: text.to_owned(), steps })
    }

    /// As written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Its steps, from the outside in.
    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The values at the path in `text`, each in a form in which equal values are equal: a string as its characters,
    /// so that "7" and 7 are equal, anything else as canonical JSON. null is no value, and a text that is not JSON
    /// has none.
    pub fn values(&self, text: &str) -> Vec<String> {
        let mut values = Vec::new();
        if find_in(text.as_bytes(), &self.steps, &mut values).is_err() {
            values.clear();
        }
        values
    }
}

fn find_in(text: &[u8], steps: &[Step], values: &mut Vec<String>) -> Result<(), Fault> {
    let mut scanner = Scanner::new(text);
    let whole = scanner.skip()?;
    scanner.end()?;
    find(text, whole, steps, values)
}

fn find(text: &[u8], span: Span, steps: &[Step], values: &mut Vec<String>) -> Result<(), Fault> {
    let Some((step, rest)) = steps.split_first() else {
        values.extend(comparable(span.of(text)));
        return Ok(());
    };
    let mut scanner = Scanner::within(text, span);
    match (scanner.peek()?, step) {
        (Kind::String, _) => {
            let inner = decode(scanner.string()?, text);
            // A string that is not JSON is no fault of the document around it.
            let mut found = Vec::new();
            if find_in(inner.as_bytes(), steps, &mut found).is_ok() {
                values.append(&mut found);
            }
            Ok(())
        }
        (Kind::Object, Step::Member(name)) => {
            scanner.object()?;
            let mut found = None;
            while let Some(key) = scanner.member()? {
                let value = scanner.skip()?;
                // Of equal keys the last, like parsers.
                if decode(key, text) == name.as_str() {
                    found = Some(value);
                }
            }
            found.map_or(Ok(()), |value| find(text, value, rest, values))
        }
        (Kind::Array, Step::Each | Step::At(_)) => {
            scanner.array()?;
            let mut at = 0;
            while scanner.element()? {
                let value = scanner.skip()?;
                if matches!(step, Step::Each) || *step == Step::At(at) {
                    find(text, value, rest, values)?;
                }
                at += 1;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn comparable(value: &[u8]) -> Option<String> {
    let mut scanner = Scanner::new(value);
    match scanner.peek().ok()? {
        Kind::String => Some(decode(scanner.string().ok()?, value).into_owned()),
        Kind::Null => None,
        _ => String::from_utf8(canonical(value)).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values(path: &str, text: &str) -> Vec<String> {
        Path::parse(path).unwrap().values(text)
    }

    #[test]
    fn a_path_leads_to_members_items_and_into_strings_that_hold_json() {
        let deep = r#"{"card":{"id":"c1","id":"c2","tags":["a",7,null,[1, 2]]},"n":1.0}"#;
        let wrapped = r#"{"content":[{"type":"text","text":"{\"card\":{\"id\":\"c9\"}}"},{"text":"bye"}]}"#;
        for (path, text, expected) in [
            ("card.id", deep, vec!["c2"]),
            ("card.tags[*]", deep, vec!["a", "7", "[1,2]"]),
            ("card.tags[1]", deep, vec!["7"]),
            ("card.tags[3][0]", deep, vec!["1"]),
            ("n", deep, vec!["1"]),
            ("card.none", deep, vec![]),
            ("card.id.more", deep, vec![]),
            ("card[*]", deep, vec![]),
            ("[*].id", r#"[{"id":1},{"x":2},{"id":"3"}]"#, vec!["1", "3"]),
            ("content[*].text.card.id", wrapped, vec!["c9"]),
            ("card.id", r#""{\"card\":{\"id\":\"c9\"}}""#, vec!["c9"]),
            ("card.id", "no card", vec![]),
            ("card.id", r#"{"card":{"id":"c1"}"#, vec![]),
            ("card.id", "", vec![]),
        ] {
            assert_eq!(values(path, text), expected, "{path} {text}");
        }
    }

    #[test]
    fn invalid_paths_are_refused() {
        for text in
            ["", ".", "a.", ".a", "a..b", "a[", "a[]", "a[x]", "a]", "a[*]b", "a .b", "a.[*]", "a[-1]"]
        {
            assert!(Path::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in any::<String>(), path in "[a.\\[\\]*0]{0,8}") {
            if let Ok(path) = Path::parse(&path) {
                path.values(&text);
            }
        }
    }
}
