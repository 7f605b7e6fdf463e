//! The parts of sums as records, and the commands that ask for them and write them.

use super::names::Names;
use crate::tallies::{MOST_PARTS, Part};
use ::redis::Pipeline;
use model::account::{KINDS, Marks, Sums, Tally};
use model::fact::{Record, RecordKind};
use model::identity::Hash;
use serde::{Deserialize, Serialize};

/// A part of a sum that grew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grown {
    pub(super) key: Hash,
    pub(super) before: Option<Part>,
    pub(super) after: Part,
    /// In ms since the epoch.
    pub(super) at_ms: u64,
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

impl Record for Part {
    fn to_body(&self) -> Option<Vec<u8>> {
        let Tally { sums, refunded, marks, bought, final_answer_day } = self.tally;
        let kept = KeptPart(self.of.to_hex(), sums.0, marks.0, bought, refunded.0, final_answer_day);
        serde_json::to_vec(&kept).ok()
    }

    fn from_body(body: &[u8]) -> Option<Self> {
        let KeptPart(of, sums, marks, bought, refunded, final_answer_day) =
            serde_json::from_slice(body).ok()?;
        let (sums, refunded, marks) = (Sums(sums), Sums(refunded), Marks(marks));
        let tally = Tally { sums, refunded, marks, bought, final_answer_day };
        Some(Self { of: Hash(u128::from_str_radix(&of, 16).ok()?), tally })
    }
}

/// Asks for the parts of a sum, the newest first.
pub(super) fn ask_for_parts(names: &Names, key: Hash, commands: &mut Pipeline) {
    let key = names.key((RecordKind::Sum, key));
    commands.cmd("ZREVRANGE").arg(key).arg(0).arg(MOST_PARTS - 1);
}

/// Replaces the part by its later state.
pub(super) fn add_part(names: &Names, grown: &Grown, commands: &mut Pipeline) {
    let about = (RecordKind::Sum, grown.key);
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
    let about = (RecordKind::Sum, key);
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
        fn a_part_is_read_as_it_was_written(numbers in prop::array::uniform6(any::<u64>()), of: u128) {
            let (marks, sums) = (numbers.map(|number| number as u32), Sums(numbers));
            let tally = Tally { sums, refunded: sums, marks: Marks(marks), bought: 7, final_answer_day: numbers[4] };
            let part = Part { of: Hash(of), tally };
            prop_assert_eq!(Part::from_body(&part.to_body().unwrap()), Some(part));
            // As an older version wrote it.
            let older = serde_json::to_vec(&(part.of.to_hex(), numbers, marks, 7)).unwrap();
            let tally = Tally { refunded: Sums::default(), final_answer_day: 0, ..tally };
            prop_assert_eq!(Part::from_body(&older), Some(Part { tally, ..part }));
        }

        #[test]
        fn arbitrary_bytes_are_no_part(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            prop_assert_eq!(Part::from_body(&bytes), None);
        }
    }
}
