//! Tiers of callers, identified by the SHA-256 of their API keys, so that no file contains a key. Parses and computes
//! hashes; keeps no key and shows none, not even one that was written here by mistake.

use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// The prefix of the digits.
const PREFIX: &str = "sha256:";
const EXPECTED: &str = r#""sha256:" and 64 hexadecimal digits (printf %s "$KEY" | sha256sum)"#;

/// The tier of requests without a credential, and of those with one of its keys.
pub const GUEST: &str = "guest";

/// The tier of requests with a credential that is in no other tier.
pub const AUTH: &str = "auth";

/// Whether `name` is that of a tier that there always is.
pub fn is_built_in(name: &str) -> bool {
    [GUEST, AUTH].contains(&name)
}

/// `[tier.NAME]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tier {
    /// The keys of its callers.
    #[serde(deserialize_with = "hashes")]
    pub keys: Vec<KeyHash>,
    /// Names of `[caller.NAME]` that are in it.
    pub callers: Vec<String>,
}

/// The SHA-256 of an API key, as it is sent after `Bearer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// The hash of `key`. Computed by the TLS library, which has the function: `None` if that were ever missing.
    pub fn of(key: &[u8]) -> Option<Self> {
        let suite = TLS13_AES_128_GCM_SHA256.tls13()?;
        suite.common.hash_provider.hash(key).as_ref().try_into().ok().map(Self)
    }

    /// The hash itself.
    pub fn bytes(self) -> [u8; 32] {
        self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(PREFIX)?;
        let mut hash = [0; 32];
        if digits.len() != 2 * hash.len() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        for (at, byte) in hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        Some(Self(hash))
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl Serialize for KeyHash {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for KeyHash {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(OneHash)
    }
}

pub(super) fn hashes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<KeyHash>, D::Error> {
    from.deserialize_any(Hashes)
}

/// Custom deserialisers, since the usual error for a wrong value would quote it, and it may be a key.
struct OneHash;

impl Visitor<'_> for OneHash {
    type Value = KeyHash;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(EXPECTED)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<KeyHash, E> {
        KeyHash::parse(text).ok_or_else(|| E::custom(format!("expected {EXPECTED}")))
    }
}

struct Hashes;

impl<'de> Visitor<'de> for Hashes {
    type Value = Vec<KeyHash>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list")
    }

    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<Self::Value, E> {
        Err(E::custom("expected a list of hashes of keys"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut hashes = Vec::new();
        while let Some(hash) = items.next_element()? {
            if hashes.contains(&hash) {
                return Err(A::Error::custom("lists a key twice"));
            }
            hashes.push(hash);
        }
        Ok(hashes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_a_key_is_the_one_that_sha256sum_prints() {
        for (key, hash) in [
            ("abc", "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            ("", "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ] {
            assert_eq!(KeyHash::of(key.as_bytes()).unwrap().to_string(), hash);
            assert_eq!(KeyHash::parse(hash), KeyHash::of(key.as_bytes()));
            assert_eq!(KeyHash::parse(&hash.to_uppercase().replace("SHA", "sha")), KeyHash::parse(hash));
        }
        for wrong in
            ["", "sha256:", "sha256:ab", "sk-live", &"a".repeat(64), &format!("sha256:{}", "+1".repeat(32))]
        {
            assert_eq!(KeyHash::parse(wrong), None, "{wrong}");
        }
    }
}
