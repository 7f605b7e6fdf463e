//! Identities: keyed hashes of credentials, conversations and calls, under which the state store finds them again.
//! Keeps no credential and stores nothing.

use crate::context::key_without_id;
use crate::pins::PinScope;
use highway::{HighwayHash, HighwayHasher, Key};
use smallvec::SmallVec;

/// A keyed 128-bit hash; equal only for equal inputs, even if somebody chooses the inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash(pub u128);

/// The key of one call: caller, explicit conversation id, and the call's own id, tool and arguments. Where ids
/// repeat, calls of several conversations share it; the digest of what comes before a call distinguishes them.
pub type CallKey = Hash;

/// The secret key of the hashes of this process, and of others that share its state store.
#[derive(Clone)]
pub struct HashKey([u64; 4]);

/// The domain of a hash: what the hashed bytes are, so that no two kinds have equal hashes.
/// A number is never changed and never used again: records in state stores and placeholders in clients' histories contain
/// hashes of it.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub enum Domain {
    Caller = 1,
    Conversation = 2,
    Root = 3,
    Arguments = 4,
    Call = 5,
    Tokens = 6,
    Cut = 7,
    Text = 8,
    Context = 10,
    Model = 11,
    Request = 12,
    Schema = 13,
    Injection = 14,
    Clear = 15,
    History = 16,
    Confirmation = 17,
    Quota = 18,
    Summary = 19,
    Prefix = 20,
    Record = 21,
    Hidden = 22,
    Response = 23,
    Question = 24,
    Redaction = 25,
    Placeholder = 26,
    Definition = 27,
    Pins = 28,
    Account = 29,
    Running = 30,
    Nonce = 31,
    Files = 32,
}

impl std::fmt::Display for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(std::str::from_utf8(&self.digits()).unwrap_or_default())
    }
}

impl Hash {
    /// In hexadecimal, as it is displayed. Written with every log line; the formatter's own way takes 900 instructions,
    /// this 150.
    pub fn to_hex(self) -> String {
        String::from_utf8(self.digits().into()).unwrap_or_default()
    }

    /// A hash of this one and another one, whose order makes no difference. It takes a tenth of a keyed hash's time. Nobody can
    /// choose two pairs with equal results where the hashes are keyed; where they are not, anybody can.
    #[must_use]
    pub fn combined_with(self, other: Self) -> Self {
        /// An odd number with as many ones as zeros: 2^128 divided by the golden ratio.
        const FACTOR: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
        Self((self.0 ^ other.0).wrapping_mul(FACTOR).rotate_left(64))
    }

    fn digits(self) -> [u8; 32] {
        // By arithmetic, which compiles to vector instructions.
        let digit = |half: u8| half + if half < 10 { b'0' } else { b'a' - 10 };
        let mut digits = [0; 32];
        for (two, byte) in digits.as_chunks_mut().0.iter_mut().zip(self.0.to_be_bytes()) {
            *two = [digit(byte >> 4), digit(byte & 15)];
        }
        digits
    }
}

/// Short parts are joined in this many bytes before they are hashed.
const JOINED_BYTES: usize = 128;

impl HashKey {
    /// The key from a secret of 32 random bytes: for processes that must compute equal hashes.
    pub fn of(secret: [u8; 32]) -> Self {
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(secret.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Self(words)
    }

    /// A fixed key, for tests and for hashes that must be the same in every process.
    pub const fn fixed(seed: u64) -> Self {
        Self([seed, 0x746f_6f6c, 0x7265_696e, seed])
    }

    /// The running hashes of the prefixes of `body` with these lengths, which must grow, and the
    /// [digest](Self::digest) of all, in one pass. The prefixes' hashes are not finished: few of them are needed, and each
    /// takes as long as a hundred bytes or more.
    pub fn prefix_hashes(&self, body: &[u8], lengths: &[usize]) -> (Vec<RunningHash>, Hash) {
        let mut hash = self.running_hash(Domain::Prefix);
        let mut done = 0;
        let prefix = |length: &usize| {
            hash.add(&body[done..*length]);
            done = *length;
            hash.clone()
        };
        let prefixes = lengths.iter().map(prefix).collect();
        hash.add(&body[done..]);
        (prefixes, hash.hash())
    }

    /// The digest of a request's body: the hash of its longest prefix.
    pub fn digest(&self, body: &[u8]) -> Hash {
        self.prefix_hashes(body, &[]).1
    }

    /// A running hash under `domain`.
    pub fn running_hash(&self, domain: Domain) -> RunningHash {
        let mut hasher = HighwayHasher::new(Key(self.0));
        // As many bytes as the hasher takes at once, so that what follows is aligned too.
        hasher.append(&[domain as u8; 32]);
        RunningHash(hasher)
    }

    /// The hash of `parts`, each with its length, under `domain`.
    pub fn hash(&self, domain: Domain, parts: &[&[u8]]) -> Hash {
        self.hash_all(domain, parts.iter().copied())
    }

    /// As [`Self::hash`], for an iterator of parts.
    pub fn hash_all<'a>(&self, domain: Domain, parts: impl Iterator<Item = &'a [u8]>) -> Hash {
        let mut hasher = HighwayHasher::new(Key(self.0));
        // Most inputs are a few short parts: these are joined first, since the hasher takes longer over each piece
        // than the copy.
        let mut joined = [0; JOINED_BYTES];
        joined[0] = domain as u8;
        let mut filled = 1;
        for part in parts {
            let length = (part.len() as u64).to_le_bytes();
            if filled + length.len() > JOINED_BYTES {
                hasher.append(&joined[..filled]);
                filled = 0;
            }
            joined[filled..filled + length.len()].copy_from_slice(&length);
            filled += length.len();
            match joined.get_mut(filled..filled + part.len()) {
                Some(place) => {
                    place.copy_from_slice(part);
                    filled += part.len();
                }
                None => {
                    hasher.append(&joined[..filled]);
                    filled = 0;
                    hasher.append(part);
                }
            }
        }
        hasher.append(&joined[..filled]);
        let [low, high] = hasher.finalize128();
        Hash(u128::from(high) << 64 | u128::from(low))
    }
}

/// The hash of what was added so far. Finishing it takes as long as adding a part, so where few hashes are needed it
/// is quicker than hashes of hashes.
#[derive(Clone)]
pub struct RunningHash(HighwayHasher);

impl std::fmt::Debug for RunningHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Its state contains the key.
        f.write_str("RunningHash")
    }
}

impl RunningHash {
    /// Adds bytes, whose end must follow from the bytes themselves.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.append(bytes);
    }

    /// The hash of all that was added.
    pub fn hash(&self) -> Hash {
        let [low, high] = self.0.clone().finalize128();
        Hash(u128::from(high) << 64 | u128::from(low))
    }
}

/// The caller and the conversation of a request.
#[derive(Clone)]
pub struct Identity {
    pub key: HashKey,
    /// The caller: a keyed hash of the credential, equal for equal credentials within one process.
    pub caller: Hash,
    /// The conversation id that the client gave, if it gave one.
    pub explicit: Option<String>,
}

impl Identity {
    /// The root of the caller's conversation: every key in it begins with it.
    pub fn root(&self) -> Hash {
        let explicit = self.explicit.as_deref();
        let explicit = explicit.map(|id| self.key.hash(Domain::Root, &[id.as_bytes()]));
        self.caller.combined_with(explicit.unwrap_or(Hash(Domain::Root as u128)))
    }

    /// The key of a call in the conversation that begins with `root`.
    pub fn call_key(&self, root: Hash, id: &[u8], name: &str, arguments: Hash) -> CallKey {
        let (root, arguments) = (root.0.to_le_bytes(), arguments.0.to_le_bytes());
        self.key.hash(Domain::Call, &[&root, id, name.as_bytes(), &arguments])
    }

    /// The hash of the name of a tool.
    pub(super) fn name_hash(&self, name: &str) -> Hash {
        self.key.hash(Domain::Call, &[b"name", name.as_bytes()])
    }

    /// The key of a call whatever its id: some clients number their calls anew in every request. `context`: see
    /// [`super::calls::PairedCalls::context_without_ids`].
    pub fn key_without_id(&self, context: Hash, name: &str, arguments: Hash) -> CallKey {
        key_without_id(context, self.name_hash(name), arguments)
    }

    /// The key under which a person's approval of a call is kept that was made after `context`.
    pub fn approval(&self, call: CallKey, context: Hash) -> Hash {
        let (call, context) = (call.0.to_le_bytes(), context.0.to_le_bytes());
        self.key.hash(Domain::Confirmation, &[b"approved", &call, &context])
    }

    /// The key of what is known of the conversation that the upstream continues under the name `continues`. The key
    /// depends on the caller, so an id of another caller finds nothing.
    pub fn response_key(&self, continues: &str) -> Hash {
        self.key.hash(Domain::Response, &[&self.caller.0.to_le_bytes(), continues.as_bytes()])
    }

    /// The key of what is known of the conversation that ends with the item `id`, by which requests may refer to it.
    pub fn item_key(&self, id: &str) -> Hash {
        self.key.hash(Domain::Response, &[&self.caller.0.to_le_bytes(), b"item", id.as_bytes()])
    }

    /// The key of a text reply after `context`.
    pub fn text_key(&self, context: Hash, text: &str) -> Hash {
        self.key.hash(Domain::Text, &[&context.0.to_le_bytes(), text.trim().as_bytes()])
    }

    /// A key of the conversation that is the same in every process and for every caller, and so not a secret. It is
    /// for decisions that a restart must not change. A client that gives no id is identified by how the conversation
    /// begins.
    pub fn lasting_name<'a>(&self, opening: impl Iterator<Item = &'a [u8]>) -> Hash {
        let nobody =
            Self { key: HashKey::fixed(0), caller: Hash::default(), explicit: self.explicit.clone() };
        nobody.conversation(opening)
    }

    /// The key of the definitions of tools that are pinned for the `conversation`, or for its caller.
    pub fn pins_key(&self, scope: PinScope, conversation: Hash) -> Hash {
        match scope {
            PinScope::Conversation => {
                self.key.hash(Domain::Pins, &[b"conversation", &conversation.0.to_le_bytes()])
            }
            PinScope::Caller => self.key.hash(Domain::Pins, &[b"caller", &self.caller.0.to_le_bytes()]),
        }
    }

    /// The key of what is counted as `name` for the caller, whatever the conversation.
    pub fn quota(&self, name: &str) -> Hash {
        self.key.hash(Domain::Quota, &[&self.caller.0.to_le_bytes(), name.as_bytes()])
    }

    /// The key of the calls that the request of this [key](super::uses::request_key) was handed out.
    pub fn handed_out(&self, request: Hash) -> Hash {
        self.key.hash(Domain::Quota, &[b"request", &request.0.to_le_bytes()])
    }

    /// The key of the caller's account of the `day`, counted since the epoch.
    pub fn day_account(&self, day: u64) -> Hash {
        self.key.hash(Domain::Account, &[b"day", &self.caller.0.to_le_bytes(), &day.to_le_bytes()])
    }

    /// The key of the account as of the reply or request of this `key`; `context`: what the model saw before it, where
    /// the key may occur in other conversations too.
    pub fn account(&self, key: Hash, context: Option<Hash>) -> Hash {
        let context = context.unwrap_or_default().0.to_le_bytes();
        self.key.hash(Domain::Account, &[b"as of", &key.0.to_le_bytes(), &context])
    }

    /// The id of this conversation as logs show it: the client's own, else the hash in hexadecimal.
    pub fn conversation_id(&self, conversation: Hash) -> String {
        self.explicit.clone().unwrap_or_else(|| conversation.to_hex())
    }

    /// The key under which the requests of one conversation are grouped: from the client's own id, else from the
    /// caller and the texts that open the conversation: its system messages and the first user message.
    pub fn conversation<'a>(&self, opening: impl Iterator<Item = &'a [u8]>) -> Hash {
        let caller = self.caller.0.to_le_bytes();
        if let Some(explicit) = &self.explicit {
            return self.key.hash(Domain::Conversation, &[&caller, b"given", explicit.as_bytes()]);
        }
        let mut parts = SmallVec::<[&[u8]; 4]>::new();
        parts.push(&caller);
        opening.for_each(|text| parts.push(text));
        self.key.hash(Domain::Conversation, &parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keyed_hash_covers_the_domain_and_the_parts_with_their_lengths() {
        let bytes: Vec<u8> = (0..=255).cycle().take(400).collect();
        let lengths = [0, 1, 16, 110, 111, 112, 119, 120, 121, 128, 300];
        for first in lengths {
            for second in lengths {
                let parts = [&bytes[..first], &bytes[7..][..second], b"end"];
                let mut joined = vec![Domain::Text as u8];
                for part in parts {
                    joined.extend_from_slice(&(part.len() as u64).to_le_bytes());
                    joined.extend_from_slice(part);
                }
                let key = HashKey::fixed(1);
                let [low, high] = HighwayHasher::new(Key(key.0)).hash128(&joined);
                let expected = Hash(u128::from(high) << 64 | u128::from(low));
                assert_eq!(key.hash(Domain::Text, &parts), expected, "{first} {second}");
            }
        }
    }

    #[test]
    fn calls_of_tools_with_other_names_have_other_keys_without_ids() {
        let identity = Identity { key: HashKey::fixed(1), caller: Hash(1), explicit: None };
        let key = |name: &str| identity.key_without_id(Hash(8), name, Hash(9));
        for (name, other) in
            [("b", "a\0"), ("", "\u{1}"), ("mcp__github__gea_status_by_id", "mcp__github__gef_statusFby_id")]
        {
            assert_ne!(key(name), key(other), "{name} {other}");
        }
    }

    #[test]
    fn a_hash_is_written_as_32_hexadecimal_digits() {
        for name in [0, 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210, u128::MAX, 0x0a90] {
            let expected = format!("{name:032x}");
            assert_eq!((Hash(name).to_hex(), Hash(name).to_string()), (expected.clone(), expected));
        }
    }
}
