//! The formats of texts that JSON Schema names, each by its RFC. Where a grammar is long, what is looked at is its
//! outline, so that a text is refused only where it is surely none; an unknown format says nothing.

use std::net::{Ipv4Addr, Ipv6Addr};

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

/// Two or four digits and no more.
fn number(text: &str, digits: usize) -> Option<u32> {
    let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

fn is_date(text: &str) -> bool {
    let mut parts = text.splitn(3, '-');
    let mut part = |digits| parts.next().and_then(|part| number(part, digits));
    let (Some(year), Some(month), Some(day)) = (part(4), part(2), part(2)) else { return false };
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    (1..=days).contains(&day)
}

fn is_time(text: &str) -> bool {
    let (clock, offset) = match text.strip_suffix(['Z', 'z']) {
        Some(clock) => (clock, 0),
        None => {
            let Some((at, sign)) = text.char_indices().rfind(|(_, c)| matches!(c, '+' | '-')) else {
                return false;
            };
            let Some((hours, minutes)) = text[at + 1..].split_once(':') else { return false };
            let (Some(hours), Some(minutes)) = (number(hours, 2), number(minutes, 2)) else { return false };
            if hours > 23 || minutes > 59 {
                return false;
            }
            let offset = (hours * 60 + minutes).cast_signed();
            (&text[..at], if sign == '-' { -offset } else { offset })
        }
    };
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut parts = clock.splitn(3, ':').map(|part| number(part, 2));
    let (Some(Some(hour)), Some(Some(minute)), Some(Some(second))) =
        (parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    // A leap second is the last of a day in UTC.
    let utc = ((hour * 60 + minute).cast_signed() - offset).rem_euclid(24 * 60);
    let is_second = second < 60 || (second == 60 && utc == 24 * 60 - 1);
    hour < 24
        && minute < 60
        && is_second
        && !fraction.is_empty()
        && fraction.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_duration(text: &str) -> bool {
    let Some(text) = text.strip_prefix('P') else { return false };
    let (date, time) = match text.split_once('T') {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    match time {
        Some(time) => (date.is_empty() || are_amounts(date, "YMD")) && are_amounts(time, "HMS"),
        None => are_amounts(date, "YMD") || are_amounts(date, "W"),
    }
}

/// Whether `text` is numbers with a unit each, in the order of `units`.
fn are_amounts(text: &str, units: &str) -> bool {
    let mut units = units.chars();
    let mut digits = 0;
    for c in text.chars() {
        if c.is_ascii_digit() {
            digits += 1;
        } else if digits == 0 || !units.any(|unit| unit == c) {
            return false;
        } else {
            digits = 0;
        }
    }
    digits == 0 && !text.is_empty()
}

fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    let is_quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    let is_plain = local.split('.').all(|part| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"(),:;<>@[\\]".contains(&byte))
    });
    let literal = domain.strip_prefix('[').and_then(|domain| domain.strip_suffix(']'));
    let is_literal = literal.is_some_and(|address| match address.strip_prefix("IPv6:") {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => address.parse::<Ipv4Addr>().is_ok(),
    });
    (is_quoted || is_plain) && local.len() <= 64 && (is_literal || is_hostname(domain))
}

fn is_hostname(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

fn is_uri(text: &str) -> bool {
    text.split_once(':').is_some_and(|(scheme, rest)| is_scheme(scheme) && is_relative(rest))
}

fn is_reference(text: &str) -> bool {
    // A colon in the first segment ends a scheme.
    let first = text.split(['/', '?', '#']).next().unwrap_or_default();
    if first.contains(':') { is_uri(text) } else { is_relative(text) }
}

/// What may follow a scheme.
fn is_relative(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("//") else { return has_uri_characters(text) };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (user, host) = rest[..end].rsplit_once('@').unwrap_or(("", &rest[..end]));
    let (address, port) = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        Some((address, port)) => (Some(address), port),
        None => (None, host.find(':').map_or("", |at| &host[at..])),
    };
    let is_literal =
        address.is_none_or(|address| address.parse::<Ipv6Addr>().is_ok() || address.starts_with('v'));
    let name = if address.is_some() { "" } else { host };
    is_literal
        && port.strip_prefix(':').unwrap_or(port).bytes().all(|byte| byte.is_ascii_digit())
        && !user.contains('@')
        && [user, name, &rest[end..]].into_iter().all(has_uri_characters)
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// Whether all characters may stand in a URI beside the address of a host, each `%` before two digits, and `#` once.
fn has_uri_characters(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_escape =
        |at: usize| bytes.get(at + 1..at + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    text.matches('#').count() <= 1
        && bytes.iter().enumerate().all(|(at, byte)| match byte {
            b'%' => is_escape(at),
            byte => byte.is_ascii_graphic() && !b"\"<>[\\]^`{|}".contains(byte),
        })
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
