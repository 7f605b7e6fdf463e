//! Values with units, as operators write them: "60s", "64KiB", "127.0.0.1:4242", 1.25, names and paths. Parses each and
//! writes it back in the same form; knows no key and compares no values.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// Units of sizes, each with its number of bytes; the binary ones first, since sizes are written in those.
const SIZE_UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

/// Parses a listening address: "127.0.0.1:4242", "localhost:4242", or a port of 127.0.0.1, ":4242" or "4242". A port
/// alone never means another host: to listen on all addresses, the operator must write them.
///
/// # Errors
/// What was expected.
pub(super) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix("localhost:").or_else(|| text.strip_prefix(':')).unwrap_or(text);
    let is_port = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let local =
        port.parse().ok().filter(|_| is_port).map(|port: u16| SocketAddr::from(([127, 0, 0, 1], port)));
    let found =
        || format!(r#"expected an address and port, such as "127.0.0.1:4242" or ":4242", found {text:?}"#);
    local.map_or_else(|| text.parse().map_err(|_| found()), Ok)
}

/// A duration in the largest unit that divides it; a single minute is 60 s, as rates are written.
pub(super) fn write_span(span: Duration) -> String {
    match span.as_millis() {
        ms if ms > 0 && ms.is_multiple_of(3_600_000) => format!("{}h", ms / 3_600_000),
        ms if ms > 60_000 && ms.is_multiple_of(60_000) => format!("{}m", ms / 60_000),
        ms if span.subsec_nanos() == 0 => format!("{}s", ms / 1_000),
        _ => humantime::format_duration(span).to_string(),
    }
}

fn parse_size(text: &str) -> Option<u64> {
    let (digits, unit) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit())?);
    let unit = unit.trim_start();
    let (_, bytes) = SIZE_UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    digits.parse::<u64>().ok()?.checked_mul(*bytes)
}

/// A size in the largest binary unit that divides it.
pub(super) fn write_size(bytes: u64) -> String {
    let unit = SIZE_UNITS[..3].iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit));
    unit.map_or_else(|| format!("{bytes}B"), |(name, unit)| format!("{}{name}", bytes / unit))
}

/// `#[serde(with)]` of a [`Duration`].
pub(super) mod span {
    use super::{Duration, write_span};
    use policies::period::Period;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(span: &Duration, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&write_span(*span))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        Period::deserialize(from).map(|period| period.0)
    }
}

/// `#[serde(with)]` of a number of bytes: a string with its unit, or a plain number.
pub(super) mod size {
    use super::{fmt, parse_size, write_size};
    use serde::{Deserializer, Serializer, de};

    const EXPECTED: &str = r#"a size such as "64KiB" or "4MB", or a number of bytes"#;

    pub(crate) fn serialize<S: Serializer, T: Copy + TryInto<u64>>(
        bytes: &T,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        out.serialize_str(&write_size((*bytes).try_into().unwrap_or(u64::MAX)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: TryFrom<u64>>(from: D) -> Result<T, D::Error> {
        let bytes = from.deserialize_any(Bytes)?;
        T::try_from(bytes).map_err(|_| de::Error::custom(format!("{bytes} bytes are too many here")))
    }

    struct Bytes;

    impl de::Visitor<'_> for Bytes {
        type Value = u64;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str(EXPECTED)
        }

        fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<u64, E> {
            u64::try_from(bytes).map_err(|_| E::invalid_value(de::Unexpected::Signed(bytes), &self))
        }

        fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<u64, E> {
            Ok(bytes)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
            parse_size(text).ok_or_else(|| E::custom(format!("expected {EXPECTED}, found {text:?}")))
        }
    }
}

/// `#[serde(with)]` of a listening address.
pub(super) mod address {
    use super::{SocketAddr, parse_address};
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(crate) fn serialize<S: Serializer>(address: &SocketAddr, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(address)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
        parse_address(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// `#[serde(with)]` of a listening address that may be left out, which is written as "".
pub(super) mod optional_address {
    use super::{SocketAddr, parse_address};
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(crate) fn serialize<S: Serializer>(address: &Option<SocketAddr>, out: S) -> Result<S::Ok, S::Error> {
        match address {
            Some(address) => out.collect_str(address),
            None => out.serialize_str(""),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
        let text = String::deserialize(from)?;
        (!text.is_empty()).then(|| parse_address(&text)).transpose().map_err(D::Error::custom)
    }
}

/// `#[serde(with)]` of an upstream; written with secrets hidden.
pub(super) mod target {
    use crate::config::target::Target;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(crate) fn serialize<S: Serializer>(target: &Target, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(target)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Target, D::Error> {
        Target::parse(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// `#[serde(with)]` of a forward proxy: `"auto"`, `"none"` or a URL, which is written with its credentials hidden.
pub(super) mod proxy {
    use crate::config::target::ProxyUrl;
    use crate::config::upstream::ProxyChoice;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(crate) fn serialize<S: Serializer>(choice: &ProxyChoice, out: S) -> Result<S::Ok, S::Error> {
        match choice {
            ProxyChoice::Environment => out.serialize_str("auto"),
            ProxyChoice::None => out.serialize_str("none"),
            ProxyChoice::Url(url) => out.collect_str(url),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<ProxyChoice, D::Error> {
        match String::deserialize(from)?.as_str() {
            "auto" => Ok(ProxyChoice::Environment),
            "none" => Ok(ProxyChoice::None),
            url => ProxyUrl::parse(url).map(ProxyChoice::Url).map_err(D::Error::custom),
        }
    }
}

/// `#[serde(with)]` of a factor such as 1.25, stored in percent.
pub(super) mod percent {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(crate) fn serialize<S: Serializer>(percent: &u32, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_f64(f64::from(*percent) / 100.0)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
        let factor = f64::deserialize(from)?;
        if !(0.1..=10.0).contains(&factor) {
            return Err(D::Error::custom(format!("expected a factor from 0.1 to 10, found {factor}")));
        }
        // In range, so the cast is exact.
        Ok((factor * 100.0).round() as u32)
    }
}

/// `#[serde(with)]` of a share from 0 to 1, stored in ten-thousandths.
pub(super) mod share {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(crate) fn serialize<S: Serializer>(share: &u32, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_f64(f64::from(*share) / 10_000.0)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
        let share = f64::deserialize(from)?;
        if !(0.0..=1.0).contains(&share) {
            return Err(D::Error::custom(format!("expected a share from 0 to 1, found {share}")));
        }
        // In range, so the cast is exact.
        Ok((share * 10_000.0).round() as u32)
    }
}

/// The highest price, in dollars for a million tokens: ten times the dearest model's.
const MOST_DOLLARS: f64 = 10_000.0;

/// `#[serde(with)]` of a price in dollars for a million tokens, stored in millionths of a dollar.
pub(super) mod rate {
    use super::MOST_DOLLARS;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(crate) fn serialize<S: Serializer>(micros: &u64, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_f64(*micros as f64 / 1e6)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let dollars = f64::deserialize(from)?;
        if !(0.0..=MOST_DOLLARS).contains(&dollars) {
            return Err(D::Error::custom(format!(
                "expected a price from 0 to {MOST_DOLLARS}, in dollars for a million tokens, found {dollars}"
            )));
        }
        // In range, so the cast is exact.
        Ok((dollars * 1e6).round() as u64)
    }
}

/// As [`rate`], for a price that may be left out.
pub(super) mod optional_rate {
    use super::rate;
    use serde::{Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(micros: &Option<u64>, out: S) -> Result<S::Ok, S::Error> {
        match micros {
            Some(micros) => rate::serialize(micros, out),
            None => out.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
        rate::deserialize(from).map(Some)
    }
}

/// `#[serde(with)]` of when to ask for usage: `true`, `false` or `"auto"`.
pub(super) mod ask_usage {
    use engine::settings::AskUsage;
    use serde::{Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(ask: &AskUsage, out: S) -> Result<S::Ok, S::Error> {
        match ask {
            AskUsage::Never => out.serialize_bool(false),
            AskUsage::Always => out.serialize_bool(true),
            AskUsage::Auto => out.serialize_str("auto"),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<AskUsage, D::Error> {
        from.deserialize_any(When)
    }

    struct When;

    impl de::Visitor<'_> for When {
        type Value = AskUsage;

        fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            out.write_str("true, false or \"auto\"")
        }

        fn visit_bool<E: de::Error>(self, ask: bool) -> Result<AskUsage, E> {
            Ok(if ask { AskUsage::Always } else { AskUsage::Never })
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<AskUsage, E> {
            match text {
                "auto" => Ok(AskUsage::Auto),
                _ => Err(E::custom(format!("expected true, false or \"auto\", found {text:?}"))),
            }
        }
    }
}

/// `#[serde(with)]` of names or patterns with `*`.
pub(super) mod patterns {
    use policies::pattern::Pattern;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(patterns: &[Pattern], out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(patterns.iter().map(Pattern::as_str))
    }

    pub(crate) fn deserialize<'de, D, T>(from: D) -> Result<T, D::Error>
    where
        D: Deserializer<'de>,
        T: FromIterator<Pattern>,
    {
        let named: Vec<Named> = Vec::deserialize(from)?;
        Ok(named.into_iter().map(|named| named.0).collect())
    }

    struct Named(Pattern);

    impl<'de> Deserialize<'de> for Named {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            let text = String::deserialize(from)?;
            if text.is_empty() || text.trim() != text {
                let expected = r#"expected a name, or a pattern such as "search*""#;
                return Err(de::Error::custom(format!("{expected}, found {text:?}")));
            }
            Ok(Self(Pattern::new(text)))
        }
    }
}

/// `#[serde(with)]` of names of request headers with a conversation id.
pub(super) mod headers {
    use crate::secret::KEY_HEADERS;
    use hyper::http::HeaderName;
    use serde::{Deserialize, Deserializer, Serializer, de};

    /// Further headers with credentials.
    const CREDENTIALS: [&str; 2] = ["proxy-authorization", "cookie"];

    pub(crate) fn serialize<S: Serializer>(headers: &[HeaderName], out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(headers.iter().map(HeaderName::as_str))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<HeaderName>, D::Error> {
        let named: Vec<Named> = Vec::deserialize(from)?;
        Ok(named.into_iter().map(|named| named.0).collect())
    }

    struct Named(HeaderName);

    impl<'de> Deserialize<'de> for Named {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            let text = String::deserialize(from)?;
            let name: HeaderName = text.parse().map_err(|_| {
                de::Error::custom(format!(
                    r#"expected the name of a header, such as "x-session-id", found {text:?}"#
                ))
            })?;
            // As a conversation id they would be sent back and logged.
            if KEY_HEADERS.iter().chain(&CREDENTIALS).any(|known| name == *known) {
                return Err(de::Error::custom(format!(
                    "{name} carries a credential, which would be shown as the conversation's id"
                )));
            }
            if name == "x-toolrein-conversation" {
                return Err(de::Error::custom(format!("{name} is always used first, so leave it out")));
            }
            Ok(Self(name))
        }
    }
}

/// `#[serde(with)]` of dotted paths into a request's body.
pub(super) mod paths {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(paths: &[Vec<String>], out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(paths.iter().map(|path| path.join(".")))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Vec<String>>, D::Error> {
        let paths: Vec<Path> = Vec::deserialize(from)?;
        Ok(paths.into_iter().map(|path| path.0).collect())
    }

    /// The steps of a dotted path; `None` if one is empty or has white space around it.
    pub(crate) fn parse(text: &str) -> Option<Vec<String>> {
        let steps: Vec<String> = text.split('.').map(str::to_owned).collect();
        steps.iter().all(|step| !step.is_empty() && step.trim() == step).then_some(steps)
    }

    struct Path(Vec<String>);

    impl<'de> Deserialize<'de> for Path {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            let text = String::deserialize(from)?;
            parse(&text).map(Self).ok_or_else(|| {
                de::Error::custom(format!(
                    r#"expected a path into the body, such as "metadata.session_id", found {text:?}"#
                ))
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_binary_and_decimal_units_and_written_in_the_largest_that_divides() {
        for (text, bytes) in [
            ("64KiB", Some(65_536)),
            ("64 KiB", Some(65_536)),
            ("1mib", Some(1 << 20)),
            ("2GiB", Some(2 << 30)),
            ("4KB", Some(4_000)),
            ("3MB", Some(3_000_000)),
            ("10B", Some(10)),
            ("64", None),
            ("KiB", None),
            ("-1KiB", None),
            ("1.5MiB", None),
            ("64K", None),
            ("", None),
            ("99999999999GiB", None),
        ] {
            assert_eq!(parse_size(text), bytes, "{text}");
        }
        for (bytes, text) in [(0, "0B"), (1_000, "1000B"), (1_536, "1536B"), (32 << 20, "32MiB")] {
            assert_eq!(write_size(bytes), text);
        }
    }

    #[test]
    fn durations_are_written_as_an_operator_would() {
        for (text, written) in [
            ("1m", "60s"),
            ("600s", "10m"),
            ("90s", "90s"),
            ("24h", "24h"),
            ("1day", "24h"),
            ("0s", "0s"),
            ("250ms", "250ms"),
            ("1s 5ms", "1s 5ms"),
        ] {
            assert_eq!(write_span(humantime::parse_duration(text).unwrap()), written, "{text}");
        }
    }
}
