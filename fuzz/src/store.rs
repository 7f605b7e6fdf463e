//! Target: a record of the shared state store, as an attacker may have written it there. An unsealed record is never
//! read; a sealed one that is read is written the same again, and goes into requests and replies as valid JSON.

use crate::world::{choices, is_json};
use dialects::Handed;
use dialects::chat::approved::reply;
use dialects::hidden_exchange::is_hidden_exchange;
use model::fact::{Record, RecordKind};
use model::identity::{Hash, HashKey};
use model::plan::approval::Confirmation;
use model::released::Release;
use model::store::{Evidence, HiddenExchange, LengthRefusal, SentExchanges};
use model::uses::Use;
use state::claims::ClaimRecord;
use state::redis::records::{Seals, SeenMarker, StoreKeys};
use std::fmt::Debug;
use std::sync::Arc;

const ABOUT: (RecordKind, Hash) = (RecordKind::HiddenExchange, Hash(7));

pub fn run(input: &[u8]) -> bool {
    let (kind, body) = choices(input);
    match kind % 9 {
        0 => read::<Release>(body).is_some(),
        1 => read::<ClaimRecord>(body).is_some(),
        2 => read::<LengthRefusal>(body).is_some(),
        3 => read::<Use>(body).is_some(),
        4 => read::<SentExchanges>(body).is_some(),
        5 => read::<SeenMarker>(body).is_some(),
        6 => read::<Evidence>(body).is_some(),
        7 => read::<HiddenExchange>(body).is_some_and(|round| is_round(&round)),
        _ => read::<Arc<Confirmation>>(body).is_some_and(|asked| is_handed_out(&asked)),
    }
}

fn read<R: Record + PartialEq + Debug>(body: &[u8]) -> Option<R> {
    let seals = Seals::new(&StoreKeys { names: HashKey::fixed(1), records: [1; 32] });
    assert_eq!(seals.open::<R>(ABOUT, body), None, "not sealed");
    let record = R::from_body(body)?;
    let written = record.to_body().unwrap();
    assert!(written.len() <= body.len() * 6 + 100, "{} bytes of {}", written.len(), body.len());
    let sealed = seals.seal(ABOUT, &record);
    assert_eq!(seals.open::<R>(ABOUT, &sealed).as_ref(), Some(&record));
    assert_eq!(seals.open::<R>((RecordKind::Question, Hash(7)), &sealed), None, "about something else");
    Some(record)
}

/// As it goes into a request, between other messages.
fn is_round(round: &HiddenExchange) -> bool {
    if !is_hidden_exchange(&round.messages) {
        // It counts as unreadable.
        return false;
    }
    if round.messages.is_empty() {
        // The client was shown all: nothing is restored.
        return true;
    }
    let messages = [&b"[{},"[..], &round.messages, b",{}]"].concat();
    assert!(is_json(&messages), "{}", String::from_utf8_lossy(&messages));
    true
}

fn is_handed_out(asked: &Confirmation) -> bool {
    let key = HashKey::fixed(1);
    let handed = Handed { question: Hash(9), key: &key, model: "m", created: 1, usage: true };
    let whole = reply(asked, &handed);
    // Parsed without building a tree, whose bound of depth the reply's own members may have used up.
    let read: Result<&serde_json::value::RawValue, _> = serde_json::from_slice(&whole);
    assert!(read.is_ok(), "{}", String::from_utf8_lossy(&whole));
    true
}
