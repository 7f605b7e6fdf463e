//! Identifiers derived from a request: the same bytes give the same ids, in the same order. They look like
//! their API's and are unique per request; they are not secret.

use highway::{HighwayHash, HighwayHasher, Key};

const ALPHABET: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
/// 2025-01-01: replies have times in the year after it.
const FIRST_CREATED: u64 = 1_735_689_600;
const YEAR_SECONDS: u64 = 365 * 24 * 3600;

/// A source of ids, seeded with a request.
#[derive(Clone, Debug)]
pub(super) struct Ids(u64);

impl Ids {
    /// The source of the request with this body.
    pub(super) fn of(body: &[u8]) -> Self {
        Self(HighwayHasher::new(Key([0; 4])).hash64(body))
    }

    /// `chatcmpl-` and 29 characters.
    pub(super) fn completion(&mut self) -> String {
        self.id("chatcmpl-", 29)
    }

    /// `call_` and 24 characters.
    pub(super) fn call(&mut self) -> String {
        self.id("call_", 24)
    }

    /// `msg_` and 24 characters, for a reply of the Messages API.
    pub(super) fn message(&mut self) -> String {
        self.id("msg_", 24)
    }

    /// `toolu_` and 24 characters.
    pub(super) fn tool_use(&mut self) -> String {
        self.id("toolu_", 24)
    }

    /// `prefix`, an underscore and 48 characters, for a response or one of its items.
    pub(super) fn item(&mut self, prefix: &str) -> String {
        self.id(&format!("{prefix}_"), 48)
    }

    /// One to 16 characters that hide the length of what they pad.
    pub(super) fn padding(&mut self) -> String {
        let characters = 1 + self.draw() % 16;
        self.id("", characters as usize)
    }

    /// `req_` and 32 characters, for the header `x-request-id`.
    pub(super) fn request(&mut self) -> String {
        self.id("req_", 32)
    }

    /// When the reply was made, in seconds since the epoch: invented, since equal requests get equal replies.
    pub(super) fn created(&mut self) -> u64 {
        FIRST_CREATED + self.draw() % YEAR_SECONDS
    }

    fn id(&mut self, prefix: &str, characters: usize) -> String {
        let drawn = (0..characters).map(|_| char::from(ALPHABET[(self.draw() % 62) as usize]));
        prefix.chars().chain(drawn).collect()
    }

    /// The next number of SplitMix64 (Steele, Lea and Flood, 2014).
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
