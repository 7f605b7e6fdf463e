//! A question to a person about calls, as a fact: its body is JSON.

use super::Confirmation;
use crate::assembled::Assembled;
use crate::fact::{Fact, Record, RecordKind, Retention, Room};
use crate::plan::Extends;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use wire::body::Scanner;

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

impl Record for Arc<Confirmation> {
    /// Calls in another encoding than UTF-8 are left out: their question is then unknown to other replicas.
    fn to_body(&self) -> Option<Vec<u8>> {
        let kept = KeptQuestion {
            token: self.token.clone(),
            words: self.words.clone(),
            calls: self.calls.iter().filter_map(KeptCall::of).collect(),
            expires_ms: self.expires_ms,
            extends: self.extends,
        };
        let is_whole = kept.calls.len() == self.calls.len();
        is_whole.then(|| serde_json::to_vec(&kept).ok())?
    }

    fn from_body(body: &[u8]) -> Option<Self> {
        let mut kept: KeptQuestion = serde_json::from_slice(body).ok()?;
        let calls: Option<Vec<Assembled>> =
            std::mem::take(&mut kept.calls).into_iter().map(KeptCall::call).collect();
        let calls = calls.filter(|calls| !calls.is_empty())?;
        let KeptQuestion { token, words, expires_ms, extends, .. } = kept;
        Some(Self::new(Confirmation { token, words, calls, extends, expires_ms }))
    }
}

impl Fact for Arc<Confirmation> {
    const KIND: RecordKind = RecordKind::Question;
    const RETENTION: Retention = Retention::Once;
    const ROOM: Room = Room::Bytes;

    fn size(&self) -> usize {
        Confirmation::size(self)
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
