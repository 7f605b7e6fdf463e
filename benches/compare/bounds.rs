//! What toolrein may cost at most, in one place: `make gate` holds requests to the instructions, `make bench` names the
//! rows of its table that miss theirs. Measures nothing.
//!
//! Source: the issue "Fast again" of 30 November 2026.

use super::bodies::Api;

/// 1.4 times what a chunk takes in the pass-through of hyper alone: 6,940.
const CHUNK: u64 = 9_720;

/// Instructions of a request, or of one chunk of a stream, by the name of the row in benches/instructions.txt.
pub const INSTRUCTIONS: [(&str, u64); 12] = [
    ("governed 1 KB", 125_000),
    ("governed 32 KB", 230_000),
    ("governed 32 KB, first sight", 390_000),
    ("governed stream, per chunk", CHUNK),
    ("governed Responses 1 KB", 125_000),
    ("governed Responses 32 KB", 230_000),
    ("governed Responses 32 KB, first sight", 390_000),
    ("governed Responses stream, per event", CHUNK),
    ("governed Messages 1 KB", 125_000),
    ("governed Messages 32 KB", 230_000),
    ("governed Messages 32 KB, first sight", 390_000),
    ("governed Messages stream, per event", CHUNK),
];

/// The most instructions of the row `name`, where it has a bound.
pub fn instructions(name: &str) -> Option<u64> {
    INSTRUCTIONS.into_iter().find(|(known, _)| *known == name).map(|(_, most)| most)
}

/// A bound of a row of `make bench`.
#[derive(Clone, Copy)]
pub enum Bound {
    /// So many times the figure that it is compared with.
    Times(f64),
    /// So much more than the figure that it is compared with.
    More(f64),
    Most(f64),
}

/// The rows of `make bench` that have bounds. They are the same for each API.
const ROWS: [(&str, Bound); 26] = [
    ("relayed, 1 KB", Bound::Times(1.5)),
    ("relayed, 32 KB", Bound::Times(1.5)),
    ("relayed, 256 KB", Bound::Times(1.0)),
    ("relayed, 1 MB", Bound::Times(1.0)),
    ("seen before, 1 KB", Bound::Times(2.0)),
    ("seen before, 32 KB", Bound::Times(2.5)),
    ("seen before, 256 KB", Bound::Times(2.0)),
    ("seen before, 1 MB", Bound::Times(2.0)),
    ("first sight, 1 KB", Bound::Times(4.0)),
    ("first sight, 32 KB", Bound::Times(4.0)),
    ("first sight, 256 KB", Bound::Times(4.0)),
    ("first sight, 1 MB", Bound::Times(4.0)),
    ("a streamed chunk", Bound::Times(1.4)),
    ("a stream's first byte, after its arrival", Bound::Most(0.1)),
    ("p99, 32 KB", Bound::More(0.5)),
    ("p99, 1 MB", Bound::More(3.0)),
    ("60 KB cut and a notice, seen before", Bound::Times(1.2)),
    ("60 KB cut and a notice, new", Bound::Times(3.0)),
    ("32 KB, events read", Bound::Times(1.03)),
    ("32 KB, traced", Bound::Times(1.03)),
    ("32 KB, recorded", Bound::Times(1.5)),
    ("memory when idle", Bound::Most(25.0)),
    ("memory with 10,000 idle streams", Bound::Most(450.0)),
    ("memory of 1,000,000 known calls", Bound::Most(300.0)),
    ("size of the program, stripped", Bound::Most(30.0)),
    ("start to first answer", Bound::Most(60.0)),
];

/// The bound of a row of `make bench`; `None` where there is none.
pub fn of(row: &str) -> Option<Bound> {
    let row = Api::ALL.into_iter().find_map(|api| row.strip_prefix(&format!("{api:?}: "))).unwrap_or(row);
    ROWS.into_iter().find(|(known, _)| *known == row).map(|(_, bound)| bound)
}
