//! Uses of quotas: the calls that were handed out to a caller, each by its tool, its arguments and the request that brought it.
//! Whoever sends a request again, because the answer was lost, gets the same call once more without using more.
//! Keeps and limits nothing.

use super::fact::Record;
use super::fact::body::{parse_number, split_hash};
use super::identity::{Domain, Hash, HashKey};

/// Within this time an equal call is one for a client that lost the answer: the openai packages wait ten minutes for one.
pub const AGAIN_WITHIN_MS: u64 = 15 * 60_000;
/// How often one call is handed out and counts once: the openai packages make three tries. After that, it counts anew.
pub const MOST_TRIES: u32 = 3;

/// The most calls of one thing that are counted for a caller: the times of all of them are kept.
pub const MOST_COUNTED: usize = 10_000;

/// A call that was handed out. Of an older version: equal calls that were handed out together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// See [`use_key`]. Of an older version: the request that brought the calls.
    pub call: Hash,
    /// See [`request_key`]; zero where that is not known.
    pub request: Hash,
    /// Distinguishes equal calls: a random number. Of an older version: how often the same call was counted before.
    pub nth: u32,
    /// When they were counted, in ms since the epoch.
    pub at_ms: u64,
    /// How often they were handed out; 0: a reservation that is not granted yet.
    pub tries: u32,
    /// How many of them one reply held.
    pub calls: u32,
}

impl Use {
    /// Whether the calls may be handed out once more without counting.
    pub fn is_open(&self, now_ms: u64) -> bool {
        (1..MOST_TRIES).contains(&self.tries) && now_ms.saturating_sub(self.at_ms) < AGAIN_WITHIN_MS
    }
}

/// A use that an older version wrote does not name its request.
impl Record for Use {
    fn to_body(&self) -> Option<Vec<u8>> {
        let Self { call, request, nth, at_ms, tries, calls } = self;
        Some(format!("{call}{request}{at_ms} {nth} {tries} {calls}").into_bytes())
    }

    fn from_body(body: &[u8]) -> Option<Self> {
        let (call, rest) = split_hash(body)?;
        let (request, rest) = split_hash(rest).unwrap_or((Hash::default(), rest));
        let numbers: Option<Vec<u64>> = rest.split(|byte| *byte == b' ').map(parse_number).collect();
        let [at_ms, nth, tries, calls] = numbers?.try_into().ok()?;
        let small = |number| u32::try_from(number).ok();
        let (nth, tries, calls) = (small(nth)?, small(tries)?, small(calls)?);
        Some(Self { call, request, nth, at_ms, tries, calls })
    }
}

/// The key of a request whose body has this digest, with these bytes of the conversation that the upstream keeps: equal for
/// equal bytes of one caller alone.
pub fn request_key<'a>(
    key: &HashKey,
    caller: Hash,
    body: Hash,
    upstream: impl IntoIterator<Item = &'a [u8]>,
) -> Hash {
    let upstream = upstream.into_iter().map(|part| key.hash(Domain::Request, &[part]));
    upstream.fold(caller.combined_with(body), Hash::combined_with)
}

/// The key of a call of `tool` with these arguments in a reply to `request`, whatever its id.
pub fn use_key(key: &HashKey, request: Hash, tool: &str, arguments: Hash) -> Hash {
    let (request, arguments) = (request.0.to_le_bytes(), arguments.0.to_le_bytes());
    key.hash(Domain::Quota, &[b"call", &request, tool.as_bytes(), &arguments])
}

/// Uses at these times, each of another conversation.
#[cfg(any(test, feature = "testing"))]
pub fn uses_at(times: &[u64]) -> Vec<Use> {
    let one = |(nth, at_ms): (usize, &u64)| {
        let (call, request) = (Hash(nth as u128 + 1), Hash(u128::MAX));
        Use { call, request, nth: 0, at_ms: *at_ms, tries: 1, calls: 1 }
    };
    times.iter().enumerate().map(one).collect()
}
