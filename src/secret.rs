//! Random keys: secrets from the operating system, under which names are hashed. Keeps none of them.

use crate::transcript::identity::HashKey;

/// A fresh key. A system without randomness ends the process: whatever took its place could be guessed.
pub fn random_key() -> HashKey {
    let mut secret = [0; 32];
    if getrandom::fill(&mut secret).is_err() {
        std::process::abort();
    }
    HashKey::of(secret)
}
