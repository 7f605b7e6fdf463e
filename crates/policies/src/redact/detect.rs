//! The detector of values that the model must not read: all rules over each layer of a decoded text, in time linear in its
//! length. What is found is a list of ranges; what becomes of them is not decided here.

use super::lines::find_in_lines;
use super::markup::find_in_markup;
use super::members::find_in_members;
use super::named::{named, of_commands};
use super::phrases::{find_after_phrases, find_cookies};
use super::rules::{Kind, RULES, Rule};
use super::signs::Signs;
use super::words::Words;
use memchr::memmem;
use model::memo::Derived;
use model::plan::placeholders::{Occurrence, merged};
use regex::Regex;
use std::ops::Range;
use std::sync::Arc;
use wire::decoded::Decoded;

/// The most values of one text. What comes after them is hidden as a whole.
const MOST_FOUND: usize = 5_000;

/// How every private key in PEM begins.
const BEGIN: &str = "-----BEGIN ";
/// Most strings of a document over which one value may go on: a private key as a list of lines.
const MOST_STRINGS: usize = 256;

/// A value in a text.
pub(super) type Found = Occurrence<What>;

/// All that is found in one text, in order.
#[derive(Default)]
pub(super) struct Findings(pub(super) Vec<Found>);

impl Derived for Findings {
    fn weight(&self) -> usize {
        self.0.len() * size_of::<Found>()
    }
}

/// What a text means for the one after it.
#[derive(Clone, Copy, Default)]
pub(super) struct Ending {
    /// A value that begins in it may go on after its end.
    pub(super) goes_on: bool,
    /// Something in it may call what comes after it a secret.
    pub(super) has_words: bool,
}

/// A value in one layer of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Match {
    /// In bytes.
    range: Range<usize>,
    what: What,
}

/// What it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Kind(Kind),
    /// By the operator's pattern of this index.
    Own(usize),
    /// Too much: everything from here on.
    Rest,
    /// Found by its value alone, or as a part of several.
    Other,
}

/// The rules that are on.
pub(super) struct Detector {
    kinds: Vec<Kind>,
    /// Of the operator, by name.
    pub(super) own: Vec<(Arc<str>, Regex)>,
    /// The most values of one text. What comes after them is hidden as a whole.
    most: usize,
}

impl Detector {
    pub(super) fn new(kinds: Vec<Kind>, own: Vec<(Arc<str>, Regex)>) -> Self {
        Self { kinds, own, most: MOST_FOUND }
    }

    /// A detector for texts that hold whole conversations, without a limit to the values in them.
    pub(super) fn without_limit(kinds: Vec<Kind>, own: Vec<(Arc<str>, Regex)>) -> Self {
        Self { kinds, own, most: usize::MAX }
    }

    /// Whether it finds nothing in any text.
    pub(super) fn is_empty(&self) -> bool {
        self.kinds.is_empty() && self.own.is_empty()
    }

    /// The values in `text`, in order, without overlaps.
    pub(super) fn find(&self, text: &Decoded<'_>) -> Vec<Found> {
        self.find_with_ending(text).0
    }

    /// As [`Self::find`], and what the text means for the one after it.
    pub(super) fn find_with_ending(&self, text: &Decoded<'_>) -> (Vec<Found>, Ending) {
        let (mut all, mut ending): (Vec<Found>, Ending) = (Vec::new(), Ending::default());
        // From the innermost layer: what is found there is known when an outer one would cut an escape.
        for layer in (0..text.layers()).rev() {
            let mut found = Vec::new();
            for one in self.find_in(text.layer(layer), &mut ending) {
                let cuts = text.splits_escape(layer, one.range.start);
                let is_key = text.layer(layer)[one.range.clone()].starts_with(BEGIN);
                let mut sources = text.sources(layer, one.range);
                match one.what {
                    // What a rule matched beyond the end of a string is no part of the value.
                    What::Kind(_) if !is_key => sources.truncate(1),
                    What::Kind(_) if sources.len() > MOST_STRINGS => sources.truncate(1),
                    _ => {}
                }
                if !(cuts && sources.iter().any(|source| touches(&all, source))) {
                    found.extend(sources.into_iter().map(|range| Found { range, layer, what: one.what }));
                }
            }
            if layer == 0 && self.kinds.contains(&Kind::Secret) {
                found.extend(find_in_members(text));
            }
            found.append(&mut all);
            all = merged(found, What::of_both);
        }
        (all, ending)
    }

    /// The values in one layer, in order, without overlaps. Adds to the `ending`.
    fn find_in(&self, text: &str, ending: &mut Ending) -> Vec<Match> {
        // The operator's come first, so that they name what they find.
        let mut found = Vec::new();
        for (at, (_, regex)) in self.own.iter().enumerate() {
            let values = regex.captures_iter(text).filter_map(|captures| captures.get(1).or(captures.get(0)));
            let values = values.filter(|value| !value.is_empty());
            self.add(values.map(|value| value.range()), What::Own(at), text, &mut found);
        }
        if self.kinds.contains(&Kind::Secret) {
            if memmem::find(text.as_bytes(), BEGIN.as_bytes()).is_some() {
                self.add(private_keys(text), What::Kind(Kind::Secret), text, &mut found);
                ending.goes_on |= is_key_open(text);
            }
            let words = Words::of(text);
            ending.has_words |= words.has_any();
            if words.has_name || words.has_other_name {
                self.add(named(text), What::Kind(Kind::Secret), text, &mut found);
            }
            self.add(of_commands(text), What::Kind(Kind::Secret), text, &mut found);
            if words.has_phrase {
                self.add(find_after_phrases(text), What::Kind(Kind::Secret), text, &mut found);
            }
            if words.has_cookie {
                self.add(find_cookies(text).into_iter(), What::Kind(Kind::Secret), text, &mut found);
            }
            // Markup and lines are read for what a name in them calls a secret.
            if words.has_name {
                for (values, is_open) in [find_in_markup(text), find_in_lines(text)] {
                    self.add(values.into_iter(), What::Kind(Kind::Secret), text, &mut found);
                    ending.goes_on |= is_open;
                }
            }
        }
        let signs = Signs::of(text);
        for rule in RULES.iter().filter(|rule| self.kinds.contains(&rule.kind) && (rule.may_be_in)(&signs)) {
            self.add(values_of(rule, text), What::Kind(rule.kind), text, &mut found);
        }
        settle(found, text.len(), self.most)
    }

    /// Adds these `ranges` of `text`, which are in order; where they are too many, the rest of the text.
    fn add(
        &self,
        ranges: impl Iterator<Item = Range<usize>>,
        what: What,
        text: &str,
        found: &mut Vec<Match>,
    ) {
        for (at, range) in ranges.enumerate() {
            if at == self.most {
                found.push(Match { range: range.start..text.len(), what: What::Rest });
                return;
            }
            found.push(Match { range, what });
        }
    }
}

impl What {
    /// What two overlapping values are together.
    pub(super) fn of_both(one: Self, other: Self) -> Self {
        match (one, other) {
            (Self::Rest, _) | (_, Self::Rest) => Self::Rest,
            (Self::Other, other) => other,
            (one, _) => one,
        }
    }
}

/// Whether a value in `all`, which are in order, overlaps `range`.
fn touches(all: &[Found], range: &Range<usize>) -> bool {
    let first = all.partition_point(|one| one.range.end <= range.start);
    all.get(first).is_some_and(|one| one.range.start < range.end)
}

/// What `rule` finds in `text`.
fn values_of<'a>(rule: &'a Rule, text: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
    // Numbers may follow each other like one long number. Their patterns are short, so beginning again costs little.
    let begins_again = matches!(rule.kind, Kind::Card | Kind::Iban);
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let (matched, value) = next_match(rule, text, from)?;
            let length = (rule.check)(&text[value.clone()]);
            let range = value.start..value.start + length.unwrap_or(0);
            let is_value = length.is_some() && is_alone(text, &range, rule.kind);
            from = match is_value {
                true if begins_again => range.end,
                false if begins_again => text.ceil_char_boundary(matched.start + 1),
                _ => matched.end,
            };
            if is_value {
                return Some(range);
            }
        }
    })
}

/// The next match, and the value in it.
fn next_match(rule: &Rule, text: &str, from: usize) -> Option<(Range<usize>, Range<usize>)> {
    if rule.regex.captures_len() == 1 {
        let range = rule.regex.find_at(text, from)?.range();
        return Some((range.clone(), range));
    }
    let captures = rule.regex.captures_at(text, from)?;
    Some((captures.get(0)?.range(), captures.get(1)?.range()))
}

/// Whether no digits go on before or after a number: it would be a part of another one, such as an id, a decimal, or a
/// time.
fn is_alone(text: &str, range: &Range<usize>, kind: Kind) -> bool {
    if !matches!(kind, Kind::Card | Kind::Phone | Kind::Iban) {
        return true;
    }
    let starts = match &text.as_bytes()[..range.start] {
        [.., one] if one.is_ascii_alphanumeric() || matches!(one, b'_' | b'+') => false,
        [.., digit, b'-' | b'.' | b':'] => !digit.is_ascii_digit(),
        [.., letter, b'/'] => !letter.is_ascii_alphanumeric(),
        _ => true,
    };
    let ends = match &text.as_bytes()[range.end..] {
        [one, ..] if one.is_ascii_alphanumeric() || *one == b'_' => false,
        [b'-' | b'.' | b'/' | b':', next, ..] => !next.is_ascii_digit(),
        _ => true,
    };
    starts && ends
}

/// Private keys in PEM, also as a program prints them, with `\n` in place of line ends; also without their end.
fn private_keys(text: &str) -> impl Iterator<Item = Range<usize>> {
    let bytes = text.as_bytes();
    let mut next = 0;
    let mut has_end = true;
    std::iter::from_fn(move || {
        loop {
            let start = next + memmem::find(&bytes[next..], BEGIN.as_bytes())?;
            let head = start + BEGIN.len();
            next = head;
            let title = &bytes[head..bytes.len().min(head + 48)];
            let Some(length) = memmem::find(title, b"PRIVATE KEY") else { continue };
            let body = head + length;
            let end = if has_end { memmem::find(&bytes[body..], b"-----END ") } else { None };
            has_end = end.is_some();
            let end = match end {
                Some(end) => {
                    let end = body + end + 9;
                    let line = &bytes[end..bytes.len().min(end + 64)];
                    end + memmem::find(line, b"-----").map_or(0, |dashes| dashes + 5)
                }
                None => body + key_bytes(&bytes[body..]),
            };
            next = end;
            return Some(start..end);
        }
    })
}

/// Whether a private key begins in `text` and does not end in it.
fn is_key_open(text: &str) -> bool {
    let bytes = text.as_bytes();
    let end = memmem::rfind(bytes, b"-----END ").unwrap_or(0);
    memmem::find(&bytes[end..], BEGIN.as_bytes())
        .is_some_and(|begin| memmem::find(&bytes[end + begin..], b"PRIVATE KEY").is_some())
}

/// How many bytes may be those of a key.
fn key_bytes(bytes: &[u8]) -> usize {
    let is_key = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=-\\\r\n :,".contains(byte);
    bytes.iter().position(|byte| !is_key(byte)).unwrap_or(bytes.len())
}

/// The findings in order, overlapping ones as one: a part of a value must not be left. What comes after too many is one.
fn settle(mut found: Vec<Match>, length: usize, most: usize) -> Vec<Match> {
    // Stable: of equal beginnings the first rule's finding gives its name.
    found.sort_by_key(|one| one.range.start);
    let mut settled: Vec<Match> = Vec::with_capacity(found.len().min(most.saturating_add(1)));
    for one in found {
        let is_full = settled.len() == most;
        let last = settled.last_mut().filter(|last| one.range.start < last.range.end);
        let rest = match last {
            Some(last) if one.what != What::Rest => {
                last.range.end = last.range.end.max(one.range.end);
                continue;
            }
            // A value that it is a part of keeps its name.
            Some(last) => last.range.end,
            None if is_full || one.what == What::Rest => one.range.start,
            None => {
                settled.push(one);
                continue;
            }
        };
        if rest < length {
            settled.push(Match { range: rest..length, what: What::Rest });
        }
        break;
    }
    settled
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all() -> Detector {
        Detector::new(Kind::ALL.to_vec(), vec![("staff".into(), Regex::new("EMP-([0-9]{6})").unwrap())])
    }

    fn found(text: &str) -> Vec<(&str, &'static str)> {
        let word = |what| match what {
            What::Kind(kind) => Kind::word(kind),
            What::Own(_) => "own",
            What::Rest | What::Other => "rest",
        };
        all().find(&Decoded::new(text)).into_iter().map(|one| (&text[one.range], word(one.what))).collect()
    }

    #[test]
    fn values_are_found_and_named() {
        for (text, value, kind) in [
            ("key sk-proj-aB3dE5gH7jK9mN1pQ2rS4tU6 .", "sk-proj-aB3dE5gH7jK9mN1pQ2rS4tU6", "secret"),
            ("AKIAIOSFODNN7EXAMPLE,", "AKIAIOSFODNN7EXAMPLE", "secret"),
            (
                "ghp_0123456789abcdefghijABCDEFGHIJ012345",
                "ghp_0123456789abcdefghijABCDEFGHIJ012345",
                "secret",
            ),
            ("xoxb-123456789012-abcdefABCDEF", "xoxb-123456789012-abcdefABCDEF", "secret"),
            (
                "?key=AIzaSyA1234567890abcdefghijklmnopqrstuv",
                "AIzaSyA1234567890abcdefghijklmnopqrstuv",
                "secret",
            ),
            (
                "t: eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmN",
                "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmN",
                "secret",
            ),
            ("Authorization: Bearer 8f14e45fceea167a5a36", "8f14e45fceea167a5a36", "secret"),
            ("DB=postgres://app:s3cr3t@db.local/x", "s3cr3t@db.local", "secret"),
            ("api_key = \"9aF3kLm2Qx7Z\"", "9aF3kLm2Qx7Z", "secret"),
            ("{\"password\": \"c0rrectHorse!\"}", "c0rrectHorse!", "secret"),
            ("{\\\"password\\\": \\\"c0rrectHorse!\\\"}", "c0rrectHorse!", "secret"),
            ("mail anna.b+x@mail.example.org.", "anna.b+x@mail.example.org", "email"),
            ("<mailto:j\u{fc}rgen@m\u{fc}ller.de>", "j\u{fc}rgen@m\u{fc}ller.de", "email"),
            ("card 4111 1111 1111 1111 12/27", "4111 1111 1111 1111", "card"),
            ("{\"n\":5555555555554444}", "5555555555554444", "card"),
            ("2345 4111 1111 1111 1111", "4111 1111 1111 1111", "card"),
            ("IBAN: DE89 3704 0044 0532 0130 00 BIC", "DE89 3704 0044 0532 0130 00", "iban"),
            ("call +49 151 12345678 now", "+49 151 12345678", "phone"),
            ("tel:+4915112345678", "+4915112345678", "phone"),
            ("call (212) 555-0123", "(212) 555-0123", "phone"),
            ("Phone: 030 1234567", "030 1234567", "phone"),
            ("anna.meier\u{ff20}example.org", "anna.meier\u{ff20}example.org", "email"),
            ("anna.meier&commat;example.org", "anna.meier&commat;example.org", "email"),
            ("4111.1111.1111.1111", "4111.1111.1111.1111", "card"),
            ("4111\u{a0}1111\u{a0}1111\u{a0}1111", "4111\u{a0}1111\u{a0}1111\u{a0}1111", "card"),
            ("de89370400440532013000", "de89370400440532013000", "iban"),
            ("DE89-3704-0044-0532-0130-00", "DE89-3704-0044-0532-0130-00", "iban"),
            ("+49 (0)170 / 123 45 67", "+49 (0)170 / 123 45 67", "phone"),
            ("0049 170 1234567", "0049 170 1234567", "phone"),
            ("https://x/?sv=1&sig=Xq7Zp2Lm9Rt4Vw8KXq7Zp2Lm", "Xq7Zp2Lm9Rt4Vw8KXq7Zp2Lm", "secret"),
            ("password -> aB3dE5gH7", "aB3dE5gH7", "secret"),
            ("for EMP-004217.", "004217", "own"),
        ] {
            assert_eq!(found(text), [(value, kind)], "{text}");
        }
    }

    #[test]
    fn what_only_looks_like_a_value_stays() {
        for text in [
            "at 2024-01-31T10:20:30.123456789Z +0100",
            "1700000000000 1700000000000000000",
            "id 4111111111111112 /orders/4111111111111111 v1.4111111111111111",
            "550e8400-e29b-41d4-a716-446655440000",
            "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "logo@2x.png git@github.com:a/b.git @decorator a@b",
            "token = request.headers.get(name)  password = os.environ.get('PW1')",
            "token_count: 12345678, \"secret\": null, password: ${PASSWORD_1} api_key=YOUR_API_KEY_123",
            "class=\"sk-fading-circle-container-wide\"",
            "postgres://user:$PASSWORD@host/db",
            "lat +52.5200066, lng +13.4049540",
            "+1,234,567 -1234567890 10.0.0.1 192.168.100.200",
            "ISBN 978-3-16-148410-0, 100-200-3000, 555-1234",
            "bearer of bad news, bearer authentication",
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
            "AB12 CDEF GHIJ KLMN OPQR",
        ] {
            assert_eq!(found(text), [], "{text}");
        }
    }

    #[test]
    fn a_long_secret_is_found_to_its_end() {
        let long = "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xYz0_".repeat(40);
        let plain = long.replace('_', "");
        for (before, value, after) in [
            ("", format!("sk-{long}"), " x"),
            ("", format!("ghp_{plain}"), "\n"),
            ("", format!("hf_{plain}"), "."),
            ("", format!("gsk_{plain}"), ","),
            ("", format!("glpat-{long}"), ""),
            ("", format!("xoxb-{plain}"), ""),
            ("", format!("AIza{long}"), ""),
            ("", format!("npm_{plain}"), ""),
            ("", format!("SG.{long}.{long}"), ""),
            ("password=", long.clone(), " x"),
            ("\"api_key\": \"", long.clone(), "\""),
            ("https://u:", long, "@h/"),
            (&format!("https://{}:", "u".repeat(300)), "s3cr3t".to_owned(), "@h/"),
            ("redis://:", "s3cr3t".to_owned(), "@h/0"),
            ("https://u:", "p@s3cr3t".to_owned(), "@h/"),
        ] {
            let text = format!("{before}{value}{after}");
            assert_eq!(found(&text), [(value.as_str(), "secret")], "{}", &text[..40.min(text.len())]);
        }
    }

    #[test]
    fn a_secret_in_a_document_is_found_below_and_beside_its_name() {
        const S: &str = "Xq7Zp2Lm9Rt4Vw8K";
        for document in [
            r#"{"password":{"value":"@"}}"#,
            r#"{"password":{"current":{"plain":"@"}}}"#,
            r#"{"credentials":{"secrets":[{"v":"@"}]}}"#,
            r#"{"password":[["@"]]}"#,
            r#"{"j":"{\"password\":{\"a\":\"@\"}}"}"#,
            r#"{"password":"{\"a\":{\"b\":\"@\"}}"}"#,
            r#"{"name":"DB_PASSWORD","value":"@"}"#,
            r#"{"value":"@","key":"client_secret"}"#,
            r#"[{"Key":"SecretKey","Value":"@"}]"#,
            r#"{"headers":[["authorization","ApiKey @"]]}"#,
            r#"{"headers":{"Authorization":"ApiKey @","accept":"*/*"}}"#,
            r#"{"auths":{"x":{"auth":"@"}}}"#,
        ] {
            let text = document.replace('@', S);
            assert_eq!(found(&text), [(S, "secret")], "{text}");
        }
        for document in [
            r#"{"password":{"type":"@","changed":"2026-11-28T16:50:03Z"},"id":"@"}"#,
            r#"{"name":"BUILD","value":"@"}"#,
            r#"{"name":"password","id":"@"}"#,
            r#"["password","x","@"]"#,
            r#"{"tokens":[{"contract":"@","id":"@"}]}"#,
            r#"[{"name":"DB_PASSWORD"},{"value":"@"}]"#,
        ] {
            let text = document.replace('@', S);
            assert_eq!(found(&text), [], "{text}");
        }
    }

    #[test]
    fn lines_and_headers_of_secrets_take_time_linear_in_the_text() {
        for piece in [
            "password:\n  a: password=x1\n",
            "authorization: x1",
            "- name: password\n  value: x1=\n",
            "authorization:aB3dE5gH7/",
            "passwort:aB3dE5gH7/",
            "<password><a>aB3dE5gH7</a>",
            "user,password\nanna,aB3dE5gH7\n",
        ] {
            model::plan::work::assert_linear(300, |size| {
                let _ = all().find(&Decoded::new(&piece.repeat(size)));
            });
        }
    }

    #[test]
    fn passwords_may_hold_any_punctuation() {
        for (before, value, after) in [
            ("password=", "aB3,dE5(gH)7:jK;9?mN", "\n"),
            ("password: ", "aB3dE5gH7", ", then"),
            ("(password=", "aB3dE5gH7", ")"),
            ("(password=", "aB3(dE5)gH7", ");"),
            ("'password' => '", "aB3,d|E5<g>H{7}\u{e9};", "'"),
            ("{\\\"password\\\": \\\"", "aB3,dE5:gH7", "\\\"}"),
            ("Server=h;Password=", "aB3dE5gH7", ";Database=db1"),
            ("token: secret: ", "aB3dE5gH7", ""),
            ("max_token=4096,token=", "aB3dE5gH7", ",top_p=1"),
        ] {
            let text = format!("{before}{value}{after}");
            assert_eq!(found(&text), [(value, "secret")], "{text}");
        }
        let two = found("password=aB3dE5gH7;token=zY9xW7vU5");
        assert_eq!(two, [("aB3dE5gH7", "secret"), ("zY9xW7vU5", "secret")]);
    }

    #[test]
    fn a_secret_is_found_to_its_end_whatever_its_escapes() {
        for (before, value, after) in [
            ("{\"password\":\"", r#"aB3\"dE5\\gH7 with words"#, "\",\"a\":\"b\"}"),
            ("{\"password\":[\"", r"aB3dE5\u0067H7", "\"]}"),
            ("x {\"password\":\"", r#"aB3dE5gH7\" jK9"#, "\",\"a\":\"b\"}"),
            (r#"x {\"password\":\""#, r#"aB3dE5gH7\\\" jK9"#, r#"\",\"a\":1}"#),
            ("password='", r"aB3dE5gH7'\''jK9", "' x"),
            ("password='", r#"aB3dE5gH7'"'"'jK9"#, "' x"),
            ("password=$'", r"aB3dE5gH7\'jK9", "' x"),
            ("password=", r"aB3dE5gH7\ jK9\$x", " x"),
            ("password=\"", "aB3dE5gH7\"\"jK9", "\" x"),
            (r#"{\"q\":\"password="#, "aB3dE5gH7", r#"\",\"x\":1}"#),
            ("password=", "aB3dE5gH7", r"\nuser=bob"),
        ] {
            let text = format!("{before}{value}{after}");
            assert_eq!(found(&text), [(value, "secret")], "{text}");
        }
    }

    #[test]
    fn tokens_for_the_next_page_and_messages_about_passwords_are_no_secrets() {
        for text in [
            r#"{"nextToken":"aB3dE5gH7jK9","next_page_token":"zY9xW7vU5tS3"}"#,
            "page-token=aB3dE5gH7jK9 continuationToken: zY9xW7vU5tS3",
            r#"{"password":"must have at least 8 characters","token":["is 2 short"]}"#,
        ] {
            assert_eq!(found(text), [], "{text}");
        }
    }

    #[test]
    fn a_secret_is_not_taken_for_code() {
        for (before, value) in [
            ("token=", "MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs"),
            ("access_token: ", "pk.aBc1IjoiZXhhb.XBsZSIsImEiOiJjam"),
            ("password=", "$aB3dE5gH7jK"),
            ("password=", "$2b$12$R9h7cIPz0gi.URNNX3kh2O"),
            ("secret=", "x==aB3dE5gH7"),
            ("secret=", "aB3dE5gH7==x9"),
            ("secret=", "--aB3dE5gH7"),
            ("password=", "%23S3cr3tPwd"),
            ("password=", "*aB3dE5gH7"),
            ("password=", "Tr0ub4dor(3)x"),
            ("password='", "<aB3dE5gH7>"),
            ("password='", "{aB3dE5gH7}"),
            ("ftp://u:", "%23S3cr3tPwd"),
            ("ftp://u:", "$aB3dE5gH7jK"),
        ] {
            let text = format!("{before}{value}{}", if before.contains("//") { "@h/" } else { "" });
            assert_eq!(found(&text), [(value, "secret")], "{text}");
        }
    }

    #[test]
    fn code_is_not_taken_for_a_secret() {
        for text in [
            "token = self.config.api_key1  token=process.env.OPENAI_KEY_1",
            "password=hash_password(pw1,salt2)  password = base64.b64encode(raw1)",
            "Token::Float64Literal(1) secret: Secret::Version1",
            "if token==expected_token1: a.token1==b.token2",
            "password=$DB_PASSWORD_1 password=${PW1:-x} password=$(cat_pw1) token=$userToken12",
            "password=%(password1)s password=%PASSWORD_1% password='<password-1>' token='{user.token1}'",
            "password=****1234abc token=xxxxxxxxxxxx token=props?.user?.token12",
            "--token --api-key1 password=--other-flag1",
            "max_token=4096,temperature=0.7,top_p=1",
            "postgres://u:{password1}@h/ postgres://u:<pw1>@h/ postgres://u:****@h/ postgres://u:%PW1%@h/",
        ] {
            assert_eq!(found(text), [], "{text}");
        }
    }

    #[test]
    fn addresses_of_any_length_and_country_are_hidden() {
        let long = format!("{}@example.org", "anna".repeat(20));
        let longer = format!("a@{}org", "example.".repeat(40));
        for value in ["ana@correo.py", "abdi@mail.so", "an..na@example.org", &long, &longer] {
            assert_eq!(found(&format!("to <{value}>")), [(value, "email")]);
        }
    }

    #[test]
    fn passwords_that_begin_alike_take_time_linear_in_the_text() {
        for piece in ["token=", "token=,", "password=a1,", "password=aB3dE5gH7,", "token:secret:"] {
            model::plan::work::assert_linear(300, |size| {
                let _ = all().find(&Decoded::new(&piece.repeat(size)));
            });
        }
    }

    #[test]
    fn the_rest_of_a_text_is_hidden_after_too_many_findings_even_if_they_merged() {
        // A key without an end covers what another rule found 5,001 times.
        let many = "a@b.de ".repeat(MOST_FOUND + 1);
        let text =
            format!("-----BEGIN PRIVATE KEY-----\n{many}-----END PRIVATE KEY----- and anna@example.org");
        let found = all().find(&Decoded::new(&text));
        let is_hidden = |at: usize| found.iter().any(|one| one.range.contains(&at));
        assert!(is_hidden(text.find("anna@").unwrap()), "{found:?}");
        assert_eq!(found.last().map(|last| (last.what, last.range.end)), Some((What::Rest, text.len())));
        assert!(found.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start));
        let own = Detector::new(Vec::new(), vec![("n".into(), Regex::new("n[0-9]").unwrap())]);
        let text = "n1 ".repeat(MOST_FOUND + 2);
        assert_eq!(own.find(&Decoded::new(&text)).last().map(|last| last.what), Some(What::Rest));
    }

    #[test]
    fn private_keys_are_found_with_and_without_their_end() {
        let key = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIVATE KEY-----";
        assert_eq!(found(&format!("a {key} b")), [(key, "secret")]);
        let printed = key.replace('\n', "\\n");
        assert_eq!(found(&format!("{{\"k\":\"{printed}\"}}")), [(printed.as_str(), "secret")]);
        let cut = &key[..40];
        assert_eq!(found(&format!("{cut}\u{2026} b")), [(cut, "secret")]);
    }

    #[test]
    fn two_adjacent_numbers_are_found_separately() {
        let text = "DE89 3704 0044 0532 0130 00 GB82 WEST 1234 5698 7654 32";
        assert_eq!(found(text).len(), 2);
        assert_eq!(found("4111111111111111 5555555555554444").len(), 2);
    }

    #[test]
    fn overlapping_findings_are_one_and_too_many_hide_the_rest() {
        assert_eq!(found("https://u:p4ssw0rd1@x.de/"), [("p4ssw0rd1@x.de", "secret")]);
        let text = "a@b.de ".repeat(MOST_FOUND + 3);
        let found = all().find(&Decoded::new(&text));
        assert_eq!(found.len(), MOST_FOUND + 1);
        assert_eq!((found[MOST_FOUND].what, found[MOST_FOUND].range.end), (What::Rest, text.len()));
        // What is no value does not count.
        let text = format!("{}a@b.de", "4111111111111112 ".repeat(2 * MOST_FOUND));
        assert_eq!(all().find(&Decoded::new(&text)).len(), 1);
    }

    proptest! {
        #[test]
        fn a_text_in_which_a_rule_finds_a_value_has_its_signs(
            parts in prop::collection::vec(
                prop_oneof![
                    prop::sample::select(vec![
                        "sk-", "AKIA", "ghp_", "xoxb-", "sk_live_", ":AA", "eyJ", ".", "BeaRer ", "ba\u{17f}ic ", "a://", ":", "@",
                        "?", "&", "x-amz-signature=", "\u{17f}ig=", "jwt=", "DE89", "gb82", "4111", "0045", "tel: ", "fax.", "(212) ",
                        "\u{a0}", "\u{202f}", "+49", "\u{ff20}", ".org",
                    ])
                    .prop_map(str::to_owned),
                    "[0-9 ().+/-]{1,16}",
                    "[A-Za-z0-9_-]{1,40}",
                ],
                1..6,
            )
        ) {
            let text = parts.concat();
            for rule in RULES.iter() {
                let has_signs = (rule.may_be_in)(&Signs::of(&text));
                prop_assert!(has_signs || values_of(rule, &text).next().is_none(), "{} in {text}", rule.regex);
            }
        }

        #[test]
        fn findings_are_in_order_non_empty_and_do_not_overlap(text in "(a@b\\.de|4111 1111 1111 1111|[+]49 151 12345678|EMP-004217|-----BEGIN PRIVATE KEY-----|-----END |[ .:/é\"-]|[0-9a-z]{1,5}){0,40}") {
            let found = all().find(&Decoded::new(&text));
            for one in &found {
                prop_assert!(!text[one.range.clone()].is_empty());
            }
            prop_assert!(found.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start));
        }
    }
}
