//! Random keys and tokens from the operating system. Keeps none of them.

use crate::conversation::identity::HashKey;

/// A fresh key. A system without randomness ends the process: any substitute could be guessed.
pub fn random_key() -> HashKey {
    HashKey::of(random_bytes())
}

/// A fresh token of 32 hexadecimal digits, as [`random_key`].
pub fn random_token() -> String {
    format!("{:032x}", u128::from_le_bytes(random_bytes()))
}

fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    if getrandom::fill(&mut bytes).is_err() {
        std::process::abort();
    }
    bytes
}
