//! The records of the shared state store, as bytes: each is encrypted under the secret that replicas share and bound to
//! its key, so that nobody else reads it, and what somebody else wrote there, or under another key, counts as lost.
//! Seals and opens; fetches nothing and trusts nothing.
//!
//! A record is the digit of the format's version and the body, encrypted by AES-256-GCM-SIV (RFC 8452). Equal records of
//! one key are equal bytes, since members of lists and sets are found and removed by what they are: whoever reads the
//! Redis sees that two are equal, and how long they are, and no more. Records of the version before are read too: they
//! are in the clear after a keyed hash of 32 hexadecimal digits.

use aes_gcm_siv::aead::{Aead as _, KeyInit as _, Payload};
use aes_gcm_siv::{Aes256GcmSiv, Nonce};
use model::fact::body::{DIGITS, parse_hash};
use model::fact::{Record, RecordKind};
use model::identity::{Domain, Hash, HashKey};

/// The version of the format. Replicas of the version before cannot read these records.
const VERSION: u8 = b'4';
/// The version before.
const SIGNED_VERSION: u8 = b'3';
/// The size of a nonce (RFC 8452).
const NONCE_BYTES: usize = 12;
/// A longer record is not ours: a reply beyond the limit is never held, so it is never blocked.
const MOST_BYTES: usize = 32 << 20;

/// The keys that replicas derive from the secret that they share.
#[derive(Clone)]
pub struct StoreKeys {
    /// For hashes: names of keys, and nonces.
    pub names: HashKey,
    /// For the encryption of records.
    pub records: [u8; 32],
}

/// Seals records, and opens those that were sealed with the same keys.
#[derive(Clone)]
pub struct Seals {
    names: HashKey,
    cipher: Aes256GcmSiv,
}

impl Seals {
    /// Seals with these keys.
    pub fn new(keys: &StoreKeys) -> Self {
        Self { names: keys.names.clone(), cipher: Aes256GcmSiv::new(&keys.records.into()) }
    }

    /// The body of a record, sealed for its key.
    pub fn seal_body(&self, about: (RecordKind, Hash), body: &[u8]) -> Vec<u8> {
        let name = name_of(about);
        let sealed = self.cipher.encrypt(&self.nonce(&name), Payload { msg: body, aad: &name });
        // Only a body of 64 GiB cannot be encrypted. Nothing is read there then.
        sealed.map_or_else(|_| Vec::new(), |sealed| [&[VERSION], &sealed[..]].concat())
    }

    /// A sealed record, which can be written.
    pub fn seal(&self, about: (RecordKind, Hash), record: &impl Record) -> Vec<u8> {
        self.seal_body(about, &record.to_body().unwrap_or_default())
    }

    /// The forms in which the same record may be stored: this version's, and that of the version before.
    pub fn forms(&self, about: (RecordKind, Hash), record: &impl Record) -> [Vec<u8>; 2] {
        let body = record.to_body().unwrap_or_default();
        let tag = self.tag(about, &body).to_string();
        [self.seal_body(about, &body), [&[SIGNED_VERSION], tag.as_bytes(), &body].concat()]
    }

    /// The body of a sealed record; `None` if it is not one.
    pub fn open_body(&self, about: (RecordKind, Hash), bytes: &[u8]) -> Option<Vec<u8>> {
        if bytes.len() > MOST_BYTES {
            return None;
        }
        match bytes.split_first()? {
            (&VERSION, sealed) => {
                let name = name_of(about);
                self.cipher.decrypt(&self.nonce(&name), Payload { msg: sealed, aad: &name }).ok()
            }
            (&SIGNED_VERSION, signed) => {
                let (tag, body) = signed.split_at_checked(DIGITS)?;
                (parse_hash(tag)? == self.tag(about, body)).then(|| body.to_vec())
            }
            _ => None,
        }
    }

    /// Opens a sealed record; `None` if it is not one.
    pub fn open<R: Record>(&self, about: (RecordKind, Hash), bytes: &[u8]) -> Option<R> {
        R::from_body(&self.open_body(about, bytes)?)
    }

    /// The nonce of all records of one key: their cipher needs no other one for each (RFC 8452, section 9).
    fn nonce(&self, name: &[u8]) -> Nonce {
        let hash = self.names.hash(Domain::Nonce, &[name]).0.to_le_bytes();
        let mut nonce = Nonce::default();
        nonce.copy_from_slice(&hash[..NONCE_BYTES]);
        nonce
    }

    fn tag(&self, (kind, name): (RecordKind, Hash), body: &[u8]) -> Hash {
        self.names.hash(Domain::Record, &[&[kind.letter()], &name.0.to_le_bytes(), body])
    }
}

/// The key of a record as bytes.
fn name_of((kind, name): (RecordKind, Hash)) -> Vec<u8> {
    [&[kind.letter()][..], &name.0.to_le_bytes()].concat()
}

/// A marker without content: something was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenMarker;

impl Record for SeenMarker {
    fn to_body(&self) -> Option<Vec<u8>> {
        Some(Vec::new())
    }

    fn from_body(body: &[u8]) -> Option<Self> {
        body.is_empty().then_some(Self)
    }
}

#[cfg(test)]
mod tests;
