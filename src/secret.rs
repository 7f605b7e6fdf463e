//! Random keys from the operating system, for keyed hashes of names. Keeps none of them.

use crate::conversation::identity::HashKey;

/// A fresh key. A system without randomness ends the process: any substitute could be guessed.
pub fn random_key() -> HashKey {
    let mut secret = [0; 32];
    if getrandom::fill(&mut secret).is_err() {
        std::process::abort();
    }
    HashKey::of(secret)
}
