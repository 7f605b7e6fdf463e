//! The records of the shared state store, as bytes: each is encrypted under the secret that replicas share and bound to
//! its key, so that nobody else reads it, and what somebody else wrote there, or under another key, counts as lost.
//! Encodes and decodes; fetches nothing and trusts nothing.
//!
//! A record is the digit of the format's version and the body, encrypted by AES-256-GCM-SIV (RFC 8452). Equal records of
//! one key are equal bytes, since members of lists and sets are found and removed by what they are: whoever reads the
//! Redis sees that two are equal, and how long they are, and no more. Records of the version before are read too: they
//! are in the clear after a keyed hash of 32 hexadecimal digits.

use aes_gcm_siv::aead::{Aead as _, KeyInit as _, Payload};
use aes_gcm_siv::{Aes256GcmSiv, Nonce};
use bytes::Bytes;
use model::Stopped;
use model::adaptation::{Adaptation, Adaptations};
use model::assembled::Assembled;
use model::identity::{Domain, Hash, HashKey};
use model::pins::Pinned;
use model::plan::Extends;
use model::plan::approval::Confirmation;
use model::released::Release;
use model::store::HiddenExchange;
use model::store::{Evidence, Overflow, SentExchanges, Stop};
use model::uses::Use;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wire::body::Scanner;

/// The version of the format. Replicas of the version before cannot read these records.
const VERSION: u8 = b'4';
/// The version before.
const SIGNED_VERSION: u8 = b'3';
/// Hexadecimal digits of a hash.
const DIGITS: usize = 32;
/// The size of a nonce (RFC 8452).
const NONCE_BYTES: usize = 12;
/// A longer record is not ours: a reply beyond the limit is never held, so it is never blocked.
const MOST_BYTES: usize = 32 << 20;

/// The kind of a key's value: a letter in the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Released = b't',
    HiddenExchanges = b'r',
    Evidence = b'v',
    Question = b'a',
    Approved = b'p',
    Claimed = b'c',
    Repeated = b'e',
    History = b'h',
    Request = b'n',
    Overflows = b'o',
    Quota = b'q',
    Stops = b's',
    Pins = b'i',
    UpstreamHistory = b'u',
    Account = b'b',
    Tally = b'd',
}

/// One kind of record.
pub trait Record: Sized {
    /// Encodes the body.
    fn write(&self) -> Vec<u8>;

    /// Decodes a body; `None` if it is invalid.
    fn read(body: &[u8]) -> Option<Self>;
}

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

    /// The record of `kind` about `name`.
    pub fn seal(&self, about: (Kind, Hash), record: &impl Record) -> Vec<u8> {
        let (body, name) = (record.write(), name_of(about));
        let sealed = self.cipher.encrypt(&self.nonce(&name), Payload { msg: &body, aad: &name });
        // Only a body of 64 GiB cannot be encrypted. Nothing is read there then.
        sealed.map_or_else(|_| Vec::new(), |sealed| [&[VERSION], &sealed[..]].concat())
    }

    /// The forms in which the same record may be stored: this version's, and that of the version before.
    pub fn forms(&self, about: (Kind, Hash), record: &impl Record) -> [Vec<u8>; 2] {
        let body = record.write();
        let tag = self.tag(about, &body).to_string();
        [self.seal(about, record), [&[SIGNED_VERSION], tag.as_bytes(), &body].concat()]
    }

    /// Opens a sealed record; `None` if it is not one.
    pub fn open<R: Record>(&self, about: (Kind, Hash), bytes: &[u8]) -> Option<R> {
        if bytes.len() > MOST_BYTES {
            return None;
        }
        match bytes.split_first()? {
            (&VERSION, sealed) => {
                let name = name_of(about);
                let body = self.cipher.decrypt(&self.nonce(&name), Payload { msg: sealed, aad: &name });
                R::read(&body.ok()?)
            }
            (&SIGNED_VERSION, signed) => {
                let (tag, body) = signed.split_at_checked(DIGITS)?;
                (parse_hash(tag)? == self.tag(about, body)).then(|| R::read(body))?
            }
            _ => None,
        }
    }

    /// The nonce of all records of one key: their cipher needs no other one for each (RFC 8452, section 9).
    fn nonce(&self, name: &[u8]) -> Nonce {
        let hash = self.names.hash(Domain::Nonce, &[name]).0.to_le_bytes();
        let mut nonce = Nonce::default();
        nonce.copy_from_slice(&hash[..NONCE_BYTES]);
        nonce
    }

    fn tag(&self, (kind, name): (Kind, Hash), body: &[u8]) -> Hash {
        self.names.hash(Domain::Record, &[&[kind as u8], &name.0.to_le_bytes(), body])
    }
}

/// The key of a record as bytes.
fn name_of((kind, name): (Kind, Hash)) -> Vec<u8> {
    [&[kind as u8][..], &name.0.to_le_bytes()].concat()
}

impl Record for Release {
    fn write(&self) -> Vec<u8> {
        format!("{}{}{}", self.context, self.hidden, self.at_ms).into_bytes()
    }

    fn read(body: &[u8]) -> Option<Self> {
        let (context, rest) = body.split_at_checked(DIGITS)?;
        let (hidden, at_ms) = rest.split_at_checked(DIGITS)?;
        let (context, hidden) = (parse_hash(context)?, parse_hash(hidden)?);
        Some(Self { context, hidden, at_ms: parse_number(at_ms)? })
    }
}

impl Record for HiddenExchange {
    fn write(&self) -> Vec<u8> {
        [self.message_key.to_string().as_bytes(), &self.messages[..]].concat()
    }

    fn read(body: &[u8]) -> Option<Self> {
        let (key, messages) = body.split_at_checked(DIGITS)?;
        Some(Self { message_key: parse_hash(key)?, messages: Bytes::copy_from_slice(messages) })
    }
}

/// The caller, the time, and the words of what was refused and of what was accepted.
impl Record for Evidence {
    fn write(&self) -> Vec<u8> {
        let words = |all: Adaptations| {
            let words: Vec<&str> = all.iter().filter_map(Adaptation::refused).collect();
            words.join(",")
        };
        let (refused, accepted) = (words(self.refused), words(self.accepted));
        format!("{}{} {refused} {accepted}", self.caller, self.at_ms).into_bytes()
    }

    fn read(body: &[u8]) -> Option<Self> {
        let (caller, rest) = body.split_at_checked(DIGITS)?;
        let mut parts = rest.split(|byte| *byte == b' ');
        let (at_ms, refused, accepted) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        let (refused, accepted) = (parse_refusals(refused)?, parse_refusals(accepted)?);
        Some(Self { caller: parse_hash(caller)?, refused, accepted, at_ms: parse_number(at_ms)? })
    }
}

/// The adaptations that avoid the refusals of these names, separated by commas.
fn parse_refusals(names: &[u8]) -> Option<Adaptations> {
    names.split(|byte| *byte == b',').filter(|name| !name.is_empty()).map(Adaptation::of_refused).collect()
}

/// Which request took the calls of a question, and when, in ms since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    pub request: Hash,
    pub at_ms: u64,
}

impl Record for Taken {
    fn write(&self) -> Vec<u8> {
        format!("{}{}", self.request, self.at_ms).into_bytes()
    }

    fn read(body: &[u8]) -> Option<Self> {
        let (request, at_ms) = body.split_at_checked(DIGITS)?;
        Some(Self { request: parse_hash(request)?, at_ms: parse_number(at_ms)? })
    }
}

impl Record for Pinned {
    fn write(&self) -> Vec<u8> {
        format!("{}{}", self.tool, self.definition).into_bytes()
    }

    fn read(body: &[u8]) -> Option<Self> {
        let (tool, definition) = body.split_at_checked(DIGITS)?;
        Some(Self { tool: parse_hash(tool)?, definition: parse_hash(definition)? })
    }
}

impl Record for Overflow {
    fn write(&self) -> Vec<u8> {
        let most_chars = self.most_chars.map(|chars| format!(":{chars}")).unwrap_or_default();
        format!("{}{}{most_chars}", self.history, self.messages).into_bytes()
    }

    fn read(body: &[u8]) -> Option<Self> {
        let (history, rest) = body.split_at_checked(DIGITS)?;
        let number = |digits: &[u8]| usize::try_from(parse_number(digits)?).ok();
        let mut parts = rest.split(|byte| *byte == b':');
        let messages = number(parts.next()?)?;
        let most_chars = parts.next().map(|chars| number(chars).ok_or(())).transpose().ok()?;
        Some(Self { messages, history: parse_hash(history)?, most_chars })
    }
}

impl Record for Stop {
    fn write(&self) -> Vec<u8> {
        let what = match self.what {
            Stopped::Conversation => "c",
            Stopped::Caller => "p",
        };
        [what, &self.id].concat().into_bytes()
    }

    fn read(body: &[u8]) -> Option<Self> {
        let (what, id) = std::str::from_utf8(body).ok()?.split_at_checked(1)?;
        let what = match what {
            "c" => Stopped::Conversation,
            "p" => Stopped::Caller,
            _ => return None,
        };
        Some(Self { what, id: id.to_owned() })
    }
}

/// A use that an older version wrote does not name its request.
impl Record for Use {
    fn write(&self) -> Vec<u8> {
        let Self { call, request, nth, at_ms, tries, calls } = self;
        format!("{call}{request}{at_ms} {nth} {tries} {calls}").into_bytes()
    }

    fn read(body: &[u8]) -> Option<Self> {
        let (call, rest) = body.split_at_checked(DIGITS)?;
        let with_request = rest.split_at_checked(DIGITS);
        let with_request = with_request.and_then(|(request, rest)| Some((parse_hash(request)?, rest)));
        let (request, rest) = with_request.unwrap_or((Hash::default(), rest));
        let numbers: Option<Vec<u64>> = rest.split(|byte| *byte == b' ').map(parse_number).collect();
        let [at_ms, nth, tries, calls] = numbers?.try_into().ok()?;
        let small = |number| u32::try_from(number).ok();
        let (nth, tries, calls) = (small(nth)?, small(tries)?, small(calls)?);
        Some(Self { call: parse_hash(call)?, request, nth, at_ms, tries, calls })
    }
}

/// A marker without content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenMarker;

impl Record for SeenMarker {
    fn write(&self) -> Vec<u8> {
        Vec::new()
    }

    fn read(body: &[u8]) -> Option<Self> {
        body.is_empty().then_some(Self)
    }
}

/// What is known of a conversation that the upstream keeps, as the dialect writes it.
impl Record for Bytes {
    fn write(&self) -> Vec<u8> {
        self.to_vec()
    }

    fn read(body: &[u8]) -> Option<Self> {
        Some(Self::copy_from_slice(body))
    }
}

impl Record for SentExchanges {
    fn write(&self) -> Vec<u8> {
        format!("{}{}", self.history, self.rounds).into_bytes()
    }

    fn read(body: &[u8]) -> Option<Self> {
        let (history, rounds) = body.split_at_checked(DIGITS)?;
        Some(Self { history: parse_hash(history)?, rounds: parse_number(rounds)? })
    }
}

/// A question, as JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptQuestion {
    token: String,
    words: Vec<String>,
    calls: Vec<KeptCall>,
    expires_ms: u64,
    /// Left out where no limit is extended, so that replicas of an older version know the question too.
    #[serde(default, skip_serializing_if = "extends_nothing")]
    extends: Extends,
}

/// Whether an approval extends no limit.
fn extends_nothing(extends: &Extends) -> bool {
    *extends == Extends::default()
}

/// Texts as they were written between quotes, escapes unresolved.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptCall {
    id: String,
    name: String,
    arguments: String,
    extra: Vec<(String, String)>,
    legacy: bool,
    custom: bool,
}

impl Record for Confirmation {
    /// Calls in another encoding than UTF-8 are left out: their question is then unknown to other replicas.
    fn write(&self) -> Vec<u8> {
        let (token, words) = self.approvals();
        let kept = KeptQuestion {
            token: token.to_owned(),
            words: words.to_vec(),
            calls: self.calls.iter().filter_map(KeptCall::of).collect(),
            expires_ms: self.expires_ms,
            extends: self.extends,
        };
        let is_whole = kept.calls.len() == self.calls.len();
        is_whole.then(|| serde_json::to_vec(&kept).ok()).flatten().unwrap_or_default()
    }

    fn read(body: &[u8]) -> Option<Self> {
        let kept: KeptQuestion = serde_json::from_slice(body).ok()?;
        let calls: Option<Vec<Assembled>> = kept.calls.into_iter().map(KeptCall::call).collect();
        let calls = calls.filter(|calls| !calls.is_empty())?;
        let extends = kept.extends;
        Some(Self { extends, ..Self::kept((kept.token, kept.words), calls, kept.expires_ms) })
    }
}

impl KeptCall {
    fn of(call: &Assembled) -> Option<Self> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let extra = call.extra.iter().map(|(key, value)| Some((text(key)?, text(value)?)));
        Some(Self {
            id: text(&call.id)?,
            name: text(&call.name)?,
            arguments: text(&call.arguments)?,
            extra: extra.collect::<Option<_>>()?,
            legacy: call.legacy,
            custom: call.custom,
        })
    }

    fn call(self) -> Option<Assembled> {
        self.is_sound().then_some(())?;
        let mut call = Assembled::default();
        (call.id, call.name, call.arguments) = (self.id.into(), self.name.into(), self.arguments.into());
        call.extra = self.extra.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        (call.legacy, call.custom) = (self.legacy, self.custom);
        Some(call)
    }

    /// Whether every piece is JSON where it goes: between quotes, or after a colon.
    fn is_sound(&self) -> bool {
        let keys = self.extra.iter().map(|(key, _)| key);
        let mut quoted = [&self.id, &self.name, &self.arguments].into_iter().chain(keys);
        let are_json = self.extra.iter().all(|(_, value)| is_json(value.as_bytes()));
        are_json && quoted.all(|text| is_json(format!("\"{text}\"").as_bytes()))
    }
}

/// Whether it is one JSON value, no deeper than any that toolrein reads, with valid characters in its strings: it is
/// fully parsed, since a skipping parser checks less.
fn is_json(bytes: &[u8]) -> bool {
    let mut scanner = Scanner::new(bytes);
    let is_shallow = scanner.skip().is_ok() && scanner.end().is_ok();
    is_shallow && std::str::from_utf8(bytes).is_ok_and(|text| serde_json::from_str::<Value>(text).is_ok())
}

fn parse_number(digits: &[u8]) -> Option<u64> {
    let is_plain = digits.iter().all(u8::is_ascii_digit);
    is_plain.then(|| std::str::from_utf8(digits).ok()?.parse().ok())?
}

fn parse_hash(digits: &[u8]) -> Option<Hash> {
    let is_plain = digits.len() == DIGITS && digits.iter().all(u8::is_ascii_hexdigit);
    is_plain.then(|| u128::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok().map(Hash))?
}

#[cfg(test)]
mod tests;
