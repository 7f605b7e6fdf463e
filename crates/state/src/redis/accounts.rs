//! The records of accounts: what was used and billed as of a reply, and the parts of sums. Encodes, decodes and writes
//! commands.

use super::names::Names;
use super::records::{Kind, Record};
use crate::tallies::{MOST_PARTS, Part};
use ::redis::Pipeline;
use model::account::{Carried, KINDS, Marks, Once, Pin, SCOPES, Sums, Tally};
use model::identity::Hash;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A part of a sum that grew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grown {
    pub(super) key: Hash,
    pub(super) before: Option<Part>,
    pub(super) after: Part,
    /// In ms since the epoch.
    pub(super) at_ms: u64,
}

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

/// A part of a sum: its name and its numbers. Parts that an older version wrote end before what it did not know.
#[derive(Serialize, Deserialize)]
struct KeptPart(
    String,
    [u64; KINDS],
    [u32; KINDS],
    u32,
    #[serde(default)] [u64; KINDS],
    #[serde(default)] u64,
);

impl Record for Arc<Carried> {
    fn write(&self) -> Vec<u8> {
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
        serde_json::to_vec(&kept).unwrap_or_default()
    }

    fn read(body: &[u8]) -> Option<Self> {
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

impl Record for Part {
    fn write(&self) -> Vec<u8> {
        let Tally { sums, refunded, marks, bought, final_answer_day } = self.tally;
        let kept = KeptPart(self.of.to_hex(), sums.0, marks.0, bought, refunded.0, final_answer_day);
        serde_json::to_vec(&kept).unwrap_or_default()
    }

    fn read(body: &[u8]) -> Option<Self> {
        let KeptPart(of, sums, marks, bought, refunded, final_answer_day) =
            serde_json::from_slice(body).ok()?;
        let (sums, refunded, marks) = (Sums(sums), Sums(refunded), Marks(marks));
        let tally = Tally { sums, refunded, marks, bought, final_answer_day };
        Some(Self { of: Hash(u128::from_str_radix(&of, 16).ok()?), tally })
    }
}

/// Asks for the parts of a sum, the newest first.
pub(super) fn ask_for_parts(names: &Names, key: Hash, commands: &mut Pipeline) {
    let key = names.key((Kind::Tally, key));
    commands.cmd("ZREVRANGE").arg(key).arg(0).arg(MOST_PARTS - 1);
}

/// Replaces the part by its later state.
pub(super) fn add_part(names: &Names, grown: &Grown, commands: &mut Pipeline) {
    let about = (Kind::Tally, grown.key);
    let key = names.key(about);
    commands.cmd("ZADD").arg(&key).arg(grown.at_ms).arg(names.seals.seal(about, &grown.after));
    if let Some(before) = grown.before.filter(|before| *before != grown.after) {
        remove_part(names, grown.key, &before, commands);
    }
    commands.cmd("ZREMRANGEBYRANK").arg(&key).arg(0).arg(-(MOST_PARTS as i64) - 1);
    commands.cmd("PEXPIRE").arg(&key).arg(names.tally_ttl_ms);
}

/// Removes a state of a part, where a later one is stored.
pub(super) fn remove_part(names: &Names, key: Hash, state: &Part, commands: &mut Pipeline) {
    let about = (Kind::Tally, key);
    commands.cmd("ZREM").arg(names.key(about)).arg(&names.seals.forms(about, state)[..]);
}

/// The states among `found` beside which there is a later one of the same part, as where an update was lost between them.
/// They would take the room of other parts.
pub(super) fn outdated(found: &[Part]) -> impl Iterator<Item = Part> + '_ {
    let is_later = |one: &Part, other: &Part| {
        one.of == other.of && one != other && one.tally.later(&other.tally) == one.tally
    };
    found.iter().filter(move |part| found.iter().any(|other| is_later(other, part))).copied()
}

/// Stores the account as of a reply.
pub(super) fn add_carried(names: &Names, key: Hash, carried: &Arc<Carried>, commands: &mut Pipeline) {
    let about = (Kind::Account, key);
    let sealed = names.seals.seal(about, carried);
    commands.cmd("SET").arg(names.key(about)).arg(sealed).arg("PX").arg(names.ttl_ms);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn all_states_of_a_part_except_the_latest_are_outdated() {
        let part = |of: u128, calls: u64| {
            let sums = Sums::default().with(model::account::Kind::Calls, calls);
            Part { of: Hash(of), tally: Tally { sums, ..Tally::default() } }
        };
        let found = [part(1, 5), part(2, 3), part(1, 7), part(1, 6), part(3, 7)];
        assert_eq!(outdated(&found).collect::<Vec<_>>(), [part(1, 5), part(1, 6)]);
        assert_eq!(outdated(&found[3..]).count(), 0);
    }

    proptest! {
        #[test]
        fn records_are_read_as_they_were_written(numbers in prop::array::uniform6(any::<u64>()), text in ".{0,40}", of: u128) {
            let marks = numbers.map(|number| number as u32);
            let pin = Pin { messages: 3, history: Hash(of), by: "budget".into(), text: text.as_str().into() };
            let left = vec![(Arc::from(text.as_str()), numbers[2])];
            let carried = Arc::new(Carried {
                turn: Sums(numbers), conversation: Sums(numbers), at_ms: numbers[0], day: numbers[1],
                marks: [Marks(marks); SCOPES], bought: [1, 2, 3], once: Once { calls: 9, bought: [4, 5, 6], tries: 2 }, pins: vec![pin], left,
                final_answer: numbers[3] % 2 == 0,
            });
            prop_assert_eq!(Arc::<Carried>::read(&carried.write()), Some(carried));
            let sums = Sums(numbers);
            let tally = Tally { sums, refunded: sums, marks: Marks(marks), bought: 7, final_answer_day: numbers[4] };
            let part = Part { of: Hash(of), tally };
            prop_assert_eq!(Part::read(&part.write()), Some(part));
            // As an older version wrote it.
            let older = serde_json::to_vec(&(part.of.to_hex(), numbers, marks, 7)).unwrap();
            let tally = Tally { refunded: Sums::default(), final_answer_day: 0, ..tally };
            prop_assert_eq!(Part::read(&older), Some(Part { tally, ..part }));
        }

        #[test]
        fn arbitrary_bytes_are_not_read_as_records(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            prop_assert_eq!(Part::read(&bytes), None);
            prop_assert_eq!(Arc::<Carried>::read(&bytes), None);
        }
    }
}
