//! The account as of a reply, as a fact: its body is JSON.

use super::{Carried, KINDS, Marks, Once, Pin, SCOPES, Sums};
use crate::fact::{Fact, Record, RecordKind, Retention, Room};
use crate::identity::Hash;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The members of the body.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptAccount {
    turn: [u64; KINDS],
    conversation: [u64; KINDS],
    at_ms: u64,
    day: u64,
    marks: [[u32; KINDS]; SCOPES],
    bought: [u32; SCOPES],
    once: (u64, [u32; SCOPES], u32),
    pins: Vec<(usize, String, String, String)>,
    left: Vec<(String, u64)>,
    /// Left out where there was none, so that replicas of an older version know the account too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    final_answer: bool,
}

impl Record for Arc<Carried> {
    fn to_body(&self) -> Option<Vec<u8>> {
        let pins = self.pins.iter();
        let kept = KeptAccount {
            turn: self.turn.0,
            conversation: self.conversation.0,
            at_ms: self.at_ms,
            day: self.day,
            marks: self.marks.map(|marks| marks.0),
            bought: self.bought,
            once: (self.once.calls, self.once.bought, self.once.tries),
            pins: pins
                .map(|pin| (pin.messages, pin.history.to_hex(), pin.by.to_string(), pin.text.to_string()))
                .collect(),
            left: self.left.iter().map(|(name, left)| (name.to_string(), *left)).collect(),
            final_answer: self.final_answer,
        };
        serde_json::to_vec(&kept).ok()
    }

    fn from_body(body: &[u8]) -> Option<Self> {
        let kept: KeptAccount = serde_json::from_slice(body).ok()?;
        let pins = kept.pins.into_iter().map(|(messages, history, by, text)| {
            let history = Hash(u128::from_str_radix(&history, 16).ok()?);
            Some(Pin { messages, history, by: by.into(), text: text.into() })
        });
        Some(Self::new(Carried {
            turn: Sums(kept.turn),
            conversation: Sums(kept.conversation),
            at_ms: kept.at_ms,
            day: kept.day,
            marks: kept.marks.map(Marks),
            bought: kept.bought,
            once: Once { calls: kept.once.0, bought: kept.once.1, tries: kept.once.2 },
            pins: pins.collect::<Option<_>>()?,
            left: kept.left.into_iter().map(|(name, left)| (name.into(), left)).collect(),
            final_answer: kept.final_answer,
        }))
    }
}

impl Fact for Arc<Carried> {
    const KIND: RecordKind = RecordKind::Account;
    const RETENTION: Retention = Retention::Value;
    const ROOM: Room = Room::Bytes;

    fn size(&self) -> usize {
        Carried::size(self)
    }

    /// The later one counts, if several processes know the account as of one reply.
    fn prevails_over(&self, shared: &Self) -> bool {
        self.at_ms >= shared.at_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_account_is_read_as_it_was_written(numbers in prop::array::uniform6(any::<u64>()), text in ".{0,40}", of: u128) {
            let marks = numbers.map(|number| number as u32);
            let pin = Pin { messages: 3, history: Hash(of), by: "budget".into(), text: text.as_str().into() };
            let left = vec![(Arc::from(text.as_str()), numbers[2])];
            let carried = Arc::new(Carried {
                turn: Sums(numbers), conversation: Sums(numbers), at_ms: numbers[0], day: numbers[1],
                marks: [Marks(marks); SCOPES], bought: [1, 2, 3], once: Once { calls: 9, bought: [4, 5, 6], tries: 2 }, pins: vec![pin], left,
                final_answer: numbers[3] % 2 == 0,
            });
            prop_assert_eq!(Arc::<Carried>::from_body(&carried.to_body().unwrap()), Some(carried));
        }

        #[test]
        fn arbitrary_bytes_are_no_account(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            prop_assert_eq!(Arc::<Carried>::from_body(&bytes), None);
        }
    }
}
