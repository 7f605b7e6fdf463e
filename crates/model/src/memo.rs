//! The memo: a cache of values derived from pieces of a conversation, by the hash of their bytes. Histories are sent
//! again with every request, and so each message is counted, cut and hashed once. Only the interface: the cache
//! itself, with its bound, belongs to the shell.

use super::identity::Hash;
use super::tokens::Estimate;
use crate::checkpoint::Checkpoint;
use std::any::Any;
use std::sync::Arc;
use wire::escaped_text::EscapedText;

/// A value derived from some bytes, cheap to clone.
#[derive(Clone, Debug)]
pub enum Derived {
    /// The hash of a canonical form.
    Hash(Hash),
    /// Estimated tokens.
    Tokens(Estimate),
    /// A shortened text and the characters that are gone; `None` where the text is left as it is.
    Cut(Option<(EscapedText, usize)>),
    /// Whether something holds.
    Flag(bool),
    /// A checkpoint of a request's beginning.
    Checkpoint(Arc<Checkpoint>),
    /// What one policy compiled, such as a validator; the policy knows the type.
    Compiled(Arc<dyn Any + Send + Sync>),
}

/// A cache of derived values. Implementations may forget at any time.
pub trait Memo: Send + Sync {
    /// The value under `key`, computed now if it is not known. `key` must identify the input bytes and what is
    /// derived from them.
    fn derive(&self, key: Hash, compute: &mut dyn FnMut() -> Derived) -> Derived;

    /// The value under `key`, if it is known.
    fn find(&self, _key: Hash) -> Option<Derived> {
        None
    }

    /// Keeps a value that was computed elsewhere.
    fn keep(&self, _key: Hash, _derived: Derived) {}
}

/// Remembers nothing.
pub struct NoMemo;

impl Memo for NoMemo {
    fn derive(&self, _key: Hash, compute: &mut dyn FnMut() -> Derived) -> Derived {
        compute()
    }
}
