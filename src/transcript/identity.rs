//! Who speaks and in which conversation: keyed hashes of credentials, conversations and calls. Gives names
//! to things so that the ledger can find them again; keeps no credential and stores nothing.

use crate::wire::message::Role;
use crate::wire::request::Request;
use highway::{HighwayHash, HighwayHasher, Key};

/// A keyed 128-bit hash; equal only for equal inputs, also against somebody who picks the inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash(pub u128);

/// The name of one call: principal, explicit conversation id, and the call's own id, tool and arguments. Where ids repeat,
/// calls of several conversations share it; what stands before a call tells them apart.
pub type CallKey = Hash;

/// The secret under which this process hashes, and others that share its ledger.
#[derive(Clone)]
pub struct HashKey([u64; 4]);

/// What the bytes under a hash are, so that no two kinds share a name.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub enum Domain {
    Principal = 1,
    Conversation,
    Root,
    Arguments,
    Call,
    Tokens,
    Cut,
    Text,
    Place,
    Context,
    Model,
    Request,
    Schema,
    Injection,
    Clear,
    History,
    Confirmation,
    Quota,
    Summary,
    Prefix,
    Record,
    Hidden,
}

impl std::fmt::Display for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(std::str::from_utf8(&self.digits()).unwrap_or_default())
    }
}

impl Hash {
    /// In hexadecimal, as it is displayed. Written with every log line; the formatter's own way takes 900 instructions,
    /// this 150.
    pub fn spelled(self) -> String {
        String::from_utf8(self.digits().into()).unwrap_or_default()
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

/// Parts of a name that are joined before they are hashed.
const JOINED_BYTES: usize = 128;

impl HashKey {
    /// The key that a secret of 32 random bytes is: for processes that must agree on names.
    pub fn of(secret: [u8; 32]) -> Self {
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(secret.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Self(words)
    }

    /// A fixed key, for tests and for names that must be the same in every process.
    pub const fn fixed(seed: u64) -> Self {
        Self([seed, 0x746f_6f6c, 0x7265_696e, seed])
    }

    /// The hashes of the beginnings of `bytes` with these lengths, which must grow, in one pass. Not named yet: few of
    /// the names are asked for, and each takes as long as a hundred bytes or more.
    pub fn beginnings(&self, domain: Domain, bytes: &[u8], lengths: &[usize]) -> Vec<Chain> {
        let mut chain = self.chain(domain);
        let mut done = 0;
        let beginning = |length: &usize| {
            chain.add(&bytes[done..*length]);
            done = *length;
            chain.clone()
        };
        lengths.iter().map(beginning).collect()
    }

    /// A name under `domain` that parts are added to.
    pub fn chain(&self, domain: Domain) -> Chain {
        let mut hasher = HighwayHasher::new(Key(self.0));
        // As many bytes as it takes at once, so that it takes what follows so too.
        hasher.append(&[domain as u8; 32]);
        Chain(hasher)
    }

    /// The hash of `parts`, each with its length, under `domain`.
    pub fn hash(&self, domain: Domain, parts: &[&[u8]]) -> Hash {
        self.hash_all(domain, parts.iter().copied())
    }

    /// The same of parts that stand in no list.
    pub fn hash_all<'a>(&self, domain: Domain, parts: impl Iterator<Item = &'a [u8]>) -> Hash {
        let mut hasher = HighwayHasher::new(Key(self.0));
        // Most names are made of a few short parts: joined first, since the hasher takes longer over each piece than the
        // joining does.
        let mut joined = [0; JOINED_BYTES];
        joined[0] = domain as u8;
        let mut filled = 1;
        for part in parts {
            let length = (part.len() as u64).to_le_bytes();
            if filled + length.len() + part.len() > JOINED_BYTES {
                hasher.append(&joined[..filled]);
                filled = 0;
            }
            if let Some(place) = joined[filled..].first_chunk_mut() {
                *place = length;
                filled += length.len();
            }
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

/// The hash of what was added so far. To name it takes as long as to add to it, so that who needs few names is quicker
/// by it than by hashes of hashes.
#[derive(Clone)]
pub struct Chain(HighwayHasher);

impl Chain {
    /// Adds bytes, which must tell themselves where they end.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.append(bytes);
    }

    /// The name of all that was added.
    pub fn name(&self) -> Hash {
        let [low, high] = self.0.clone().finalize128();
        Hash(u128::from(high) << 64 | u128::from(low))
    }
}

/// Whose conversation a request carries.
#[derive(Clone)]
pub struct Identity {
    pub key: HashKey,
    /// The caller: a keyed hash of the credential, equal for equal credentials within one process.
    pub principal: Hash,
    /// The conversation id that the client gave, if it gave one.
    pub explicit: Option<String>,
}

impl Identity {
    /// The caller's conversation, before anything is said in it: what every key in it begins with.
    pub fn root(&self) -> Hash {
        let principal = self.principal.0.to_le_bytes();
        let explicit = self.explicit.as_deref().unwrap_or("");
        self.key.hash(Domain::Root, &[&principal, explicit.as_bytes()])
    }

    /// The key of a call in the conversation that begins with `root`.
    pub fn call_key(&self, root: Hash, id: &[u8], name: &str, arguments: Hash) -> CallKey {
        let (root, arguments) = (root.0.to_le_bytes(), arguments.0.to_le_bytes());
        self.key.hash(Domain::Call, &[&root, id, name.as_bytes(), &arguments])
    }

    /// The name of a text reply behind `context`.
    pub fn text_anchor(&self, context: Hash, text: &str) -> Hash {
        self.key.hash(Domain::Text, &[&context.0.to_le_bytes(), text.trim().as_bytes()])
    }

    /// A name of the conversation that is the same in every process and for every caller, and so no secret: for what
    /// must not change with a restart. A client that gives no name is known by how the conversation begins.
    pub fn lasting_name(&self, request: &Request, body: &[u8]) -> Hash {
        let nobody =
            Self { key: HashKey::fixed(0), principal: Hash::default(), explicit: self.explicit.clone() };
        nobody.conversation(request, body)
    }

    /// The name of what is counted as `name` for the caller, whatever the conversation.
    pub fn quota(&self, name: &str) -> Hash {
        self.key.hash(Domain::Quota, &[&self.principal.0.to_le_bytes(), name.as_bytes()])
    }

    /// The name under which the requests of one conversation are grouped: the client's own, else the
    /// principal's conversations that begin with the same system messages and the same first user message.
    pub fn conversation(&self, request: &Request, body: &[u8]) -> Hash {
        let principal = self.principal.0.to_le_bytes();
        if let Some(explicit) = &self.explicit {
            return self.key.hash(Domain::Conversation, &[&principal, b"given", explicit.as_bytes()]);
        }
        let user = request.messages.iter().position(|message| message.role == Role::User);
        let opening = request.messages.iter().take(user.map_or(1, |user| user + 1));
        let opening = opening.filter(|message| matches!(message.role, Role::System | Role::User));
        let texts = opening.flat_map(|message| message.content.texts()).map(|text| text.raw(body));
        self.key.hash_all(Domain::Conversation, std::iter::once(&principal[..]).chain(texts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_hash_of_its_domain_and_its_parts_with_their_lengths_however_they_are_joined() {
        let bytes: Vec<u8> = (0..=255).cycle().take(400).collect();
        let lengths = [0, 1, 16, 110, 111, 112, 119, 120, 121, 128, 300];
        for first in lengths {
            for second in lengths {
                let parts = [&bytes[..first], &bytes[7..][..second], b"end"];
                let mut spelled = vec![Domain::Text as u8];
                for part in parts {
                    spelled.extend_from_slice(&(part.len() as u64).to_le_bytes());
                    spelled.extend_from_slice(part);
                }
                let key = HashKey::fixed(1);
                let [low, high] = HighwayHasher::new(Key(key.0)).hash128(&spelled);
                let expected = Hash(u128::from(high) << 64 | u128::from(low));
                assert_eq!(key.hash(Domain::Text, &parts), expected, "{first} {second}");
            }
        }
    }

    #[test]
    fn a_name_is_spelled_in_hexadecimal() {
        for name in [0, 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210, u128::MAX, 0x0a90] {
            let expected = format!("{name:032x}");
            assert_eq!((Hash(name).spelled(), Hash(name).to_string()), (expected.clone(), expected));
        }
    }
}
