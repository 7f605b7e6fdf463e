//! The memo: a cache of values derived from pieces of a conversation, by the hash of their bytes. Histories are sent
//! again with every request, and so each message is counted, cut and hashed once. Only the interface: the cache
//! itself, with its bound, belongs to the shell.

use super::identity::Hash;
use super::tokens::Estimate;
use std::any::Any;
use std::sync::Arc;
use wire::escaped_text::EscapedText;

/// A value derived from some bytes. Whoever derives it defines its type: nobody else reads it.
pub trait Derived: Any + Send + Sync {
    /// The memory that it takes beside the value itself, in bytes.
    fn weight(&self) -> usize {
        0
    }
}

/// The hash of a canonical form.
impl Derived for Hash {}

impl Derived for Estimate {}

/// Whether something holds.
impl Derived for bool {}

/// A shortened text and the characters that are gone; `None` where the text is left as it is.
impl Derived for Option<(EscapedText, usize)> {
    fn weight(&self) -> usize {
        self.as_ref().map_or(0, |(text, _)| text.weight())
    }
}

/// A derived value whose type only the key's user knows.
pub type DerivedValue = Arc<dyn Any + Send + Sync>;

/// A cache of derived values. Implementations may forget at any time.
pub trait Memo: Send + Sync {
    /// The value under `key`, if it is known.
    fn find(&self, key: Hash) -> Option<DerivedValue>;

    /// Keeps the value under `key`; `weight`: the memory that it takes, in bytes.
    fn keep(&self, key: Hash, value: DerivedValue, weight: usize);
}

impl dyn Memo + '_ {
    /// The value under `key`, computed now if it is not known. `key` must identify the input bytes and what is derived
    /// from them.
    pub fn derive<T: Derived>(&self, key: Hash, compute: impl FnOnce() -> T) -> Arc<T> {
        // Two requests may compute the same value at the same time; waiting for each other would cost more.
        self.known(key).unwrap_or_else(|| {
            let value = Arc::new(compute());
            self.remember(key, &value);
            value
        })
    }

    /// The value under `key`, if it is known.
    pub fn known<T: Derived>(&self, key: Hash) -> Option<Arc<T>> {
        self.find(key)?.downcast().ok()
    }

    /// Keeps a value that was computed elsewhere.
    pub fn remember<T: Derived>(&self, key: Hash, value: &Arc<T>) {
        let weight = size_of::<T>() + value.weight();
        self.keep(key, Arc::clone(value) as DerivedValue, weight);
    }
}

/// Remembers nothing.
pub struct NoMemo;

impl Memo for NoMemo {
    fn find(&self, _key: Hash) -> Option<DerivedValue> {
        None
    }

    fn keep(&self, _key: Hash, _value: DerivedValue, _weight: usize) {}
}
