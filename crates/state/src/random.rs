//! Random bytes and keys from the operating system.

use model::identity::HashKey;
use ring::rand::{SecureRandom as _, SystemRandom};

/// A fresh key, as [`random_bytes`].
pub fn random_key() -> HashKey {
    HashKey::of(random_bytes())
}

/// Random bytes of the operating system. A system without them ends the process: any substitute could be guessed.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    if SystemRandom::new().fill(&mut bytes).is_err() {
        std::process::abort();
    }
    bytes
}
