//! The formats of texts that JSON Schema names, each by its RFC. Where a grammar is long, what is looked at is its
//! outline, so that a text is refused only where it is surely none; an unknown format says nothing.

mod address;
mod time;

use address::{is_email, is_hostname, is_reference, is_uri};
use std::net::{Ipv4Addr, Ipv6Addr};
use time::{is_date, is_duration, is_time};

/// A format that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// RFC 3339, `full-date`.
    Date,
    /// RFC 3339, `full-time`, with its offset.
    Time,
    /// RFC 3339, `date-time`.
    DateTime,
    /// RFC 3339, appendix A.
    Duration,
    /// RFC 5321, `Mailbox`, in outline.
    Email,
    /// RFC 1123.
    Hostname,
    /// RFC 2673, `dotted-quad`.
    Ipv4,
    /// RFC 4291.
    Ipv6,
    /// RFC 3986, `URI`, in outline.
    Uri,
    /// RFC 3986, `URI-reference`, in outline.
    UriReference,
    /// RFC 4122.
    Uuid,
    /// ECMA-262, in outline.
    Regex,
    /// RFC 6901.
    JsonPointer,
}

const ALL: [Format; 13] = [
    Format::Date,
    Format::Time,
    Format::DateTime,
    Format::Duration,
    Format::Email,
    Format::Hostname,
    Format::Ipv4,
    Format::Ipv6,
    Format::Uri,
    Format::UriReference,
    Format::Uuid,
    Format::Regex,
    Format::JsonPointer,
];

impl Format {
    /// The format of this name.
    pub fn named(name: &str) -> Option<Self> {
        ALL.into_iter().find(|known| known.name() == name)
    }

    /// Its name in schemas.
    pub fn name(self) -> &'static str {
        match self {
            Self::Date => "date",
            Self::Time => "time",
            Self::DateTime => "date-time",
            Self::Duration => "duration",
            Self::Email => "email",
            Self::Hostname => "hostname",
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Uri => "uri",
            Self::UriReference => "uri-reference",
            Self::Uuid => "uuid",
            Self::Regex => "regex",
            Self::JsonPointer => "json-pointer",
        }
    }

    /// Whether `text` is of it.
    pub fn is_met(self, text: &str) -> bool {
        match self {
            Self::Date => is_date(text),
            Self::Time => is_time(text),
            Self::DateTime => {
                text.split_once(['T', 't', ' ']).is_some_and(|(date, time)| is_date(date) && is_time(time))
            }
            Self::Duration => is_duration(text),
            Self::Email => is_email(text),
            Self::Hostname => is_hostname(text),
            Self::Ipv4 => text.parse::<Ipv4Addr>().is_ok(),
            Self::Ipv6 => text.parse::<Ipv6Addr>().is_ok(),
            Self::Uri => is_uri(text),
            Self::UriReference => is_reference(text),
            Self::Uuid => is_uuid(text),
            Self::Regex => is_regex(text),
            Self::JsonPointer => is_json_pointer(text),
        }
    }
}

fn is_uuid(text: &str) -> bool {
    let lengths = text.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12]) && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

/// Whether parentheses and brackets close, and nothing is repeated that is not there.
fn is_regex(text: &str) -> bool {
    let (mut groups, mut in_class, mut repeats_nothing) = (0_usize, false, true);
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        let opens = matches!(c, '(' | '|') && !in_class;
        match c {
            '\\' if characters.next().is_none() => return false,
            ']' if in_class => in_class = false,
            _ if in_class => {}
            '[' => in_class = true,
            '(' => {
                groups += 1;
                // `?` behind it opens a group of another kind.
                if characters.as_str().starts_with('?') {
                    characters.next();
                }
            }
            ')' if groups == 0 => return false,
            ')' => groups -= 1,
            '*' | '+' | '?' if repeats_nothing => return false,
            _ => {}
        }
        repeats_nothing = opens;
    }
    groups == 0 && !in_class
}

fn is_json_pointer(text: &str) -> bool {
    (text.is_empty() || text.starts_with('/'))
        && text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts that are of the format `name`, and others.
    fn holds(name: &str, right: &[&str], wrong: &[&str]) {
        let format = Format::named(name).unwrap();
        assert_eq!(format.name(), name);
        right.iter().for_each(|text| assert!(format.is_met(text), "{name}: {text}"));
        wrong.iter().for_each(|text| assert!(!format.is_met(text), "{name}: {text}"));
    }

    #[test]
    fn dates_and_times_are_those_of_rfc_3339() {
        holds(
            "date",
            &["2026-01-31", "2024-02-29", "2000-02-29"],
            &[
                "2026-02-29",
                "1900-02-29",
                "2026-13-01",
                "2026-00-01",
                "2026-1-1",
                "2026-01-32",
                "2026-01-01Z",
                "tomorrow",
                "٢٠٢٦-01-01",
                "",
            ],
        );
        holds(
            "time",
            &[
                "12:00:00Z",
                "23:59:59.123+01:00",
                "23:59:60Z",
                "00:29:60+00:30",
                "01:02:03-23:59",
                "01:02:03z",
            ],
            &[
                "12:00:00",
                "24:00:00Z",
                "12:60:00Z",
                "12:00:61Z",
                "12:00:60Z",
                "12:00Z",
                "12:00:00.Z",
                "12:00:00+1:00",
                "12:00:00+24:00",
                "é",
                "",
            ],
        );
        holds(
            "date-time",
            &["2026-01-31T12:00:00Z", "2026-01-31t12:00:00.5+02:00"],
            &["2026-01-31", "2026-01-31T12:00:00", "12:00:00Z", "2026-02-30T12:00:00Z"],
        );
        holds(
            "duration",
            &["P1Y2M3DT4H5M6S", "PT1H", "P2W", "P1D", "P1YT1S"],
            &["P", "PT", "1D", "P1", "P1H", "PT1D", "P1D2Y", "P1W1D", "P1DT", "-P1D", "P1.5D", ""],
        );
    }

    #[test]
    fn addresses_have_their_outlines() {
        holds(
            "email",
            &[
                "a@b.example",
                "a.b+c@d",
                "\"a b\"@c.d",
                "a@[127.0.0.1]",
                "a@[IPv6:::1]",
                "!#$%&'*+-/=?^_`{|}~@a",
            ],
            &["a", "@b", "a@", "a@b@c d", "a b@c", ".a@b", "a..b@c", "a@-b", "a@b_c", "a@[b]", ""],
        );
        holds(
            "hostname",
            &["a", "a-b.example", "1.2"],
            &["", ".", "a.", "-a", "a-", "a_b", "é.example", "a..b"],
        );
        holds("ipv4", &["127.0.0.1"], &["127.0.0.256", "127.0.0", "01.0.0.1", "127.0.0.1 ", "::1"]);
        holds(
            "ipv6",
            &["::1", "2001:db8::1", "::ffff:1.2.3.4"],
            &["1.2.3.4", ":::", "12345::", "::1%eth0", "[::1]"],
        );
        holds(
            "uri",
            &[
                "https://a.example/b?c=%20#d",
                "urn:x:y",
                "mailto:a@b",
                "http://[::1]/",
                "http://u:p@[::1]:80",
                "x://a:/",
                "file:///a",
            ],
            &[
                "a/b",
                "//a",
                "1:a",
                "http://a b",
                "http://a/%zz",
                "http://a#b#c",
                "http://é",
                "a:<b>",
                "http://[a]/",
                "http://a:b/",
                "http://a/[",
                "http://a@b@c",
                "",
            ],
        );
        holds(
            "uri-reference",
            &["a/b", "//a:80/b", "#x", "", "?a:b", "./a:b", "a:b"],
            &["1:a", "a b", "%1", "\\a", "[", "//a:b"],
        );
    }

    #[test]
    fn names_and_pointers_and_patterns_have_their_outlines() {
        holds(
            "uuid",
            &["123e4567-e89b-12d3-a456-426614174000", "123E4567-E89B-12D3-A456-426614174000"],
            &[
                "123e4567e89b12d3a456426614174000",
                "123e4567-e89b-12d3-a456-42661417400g",
                "123e4567-e89b-12d3-a4564-26614174000",
                "",
            ],
        );
        holds("json-pointer", &["", "/", "/a/~0~1/0"], &["a", "/~", "/~2", "#/a"]);
        holds(
            "regex",
            &["", "^a+(?:b|c)*$", r"(?=a)(b)\1", r"[(*]\(", "(?<n>a)", "a??", "a{2}"],
            &["(", ")", "a)", "[a", "*", "(*a)", "a|+", "\\"],
        );
    }

    #[test]
    fn an_unknown_format_says_nothing() {
        assert_eq!(Format::named("color"), None);
    }
}
