//! The forms of a hidden value: its placeholder, and what a program gets back.

use model::identity::{Domain, Hash, HashKey};
use std::borrow::Cow;

/// How every placeholder begins.
pub(super) const OPENS: char = '[';
/// What the model reads where a text holds more values than are counted.
pub(super) const REST: &str =
    "[toolrein: the rest is left out, since it holds too much secret or personal data]";
/// What it reads in place of a value that is too short for a placeholder of its own.
pub(super) const SHORT: &str = "[hidden]";

/// Digits of a placeholder's hash: as few as are hardly ever equal; more where they are.
const DIGITS: [usize; 4] = [8, 12, 16, 32];

/// The placeholder of `value`, which its rule calls `label`, in the conversations that begin with `root`; the `longer`-th
/// choice. `None`: there is no longer one. Made under the secret `key`, so that nobody can try values.
pub(super) fn placeholder(
    key: &HashKey,
    root: Hash,
    (label, value): (&str, &str),
    longer: usize,
) -> Option<String> {
    let digits = *DIGITS.get(longer)?;
    let hash = key.hash(Domain::Placeholder, &[&root.0.to_le_bytes(), value.as_bytes()]).to_hex();
    Some(format!("[{}_{}]", label.to_ascii_uppercase(), &hash[..digits]))
}

/// Whether a pattern may have this name: it is a part of placeholders.
pub(super) fn is_name(name: &str) -> bool {
    (1..=32).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// What a program gets for the value that is `written` so in a text without its escapes.
pub(super) fn restored_value(written: &str) -> Cow<'_, str> {
    // A key as programs print it, in one line.
    if written.starts_with("-----BEGIN ") && !written.contains('\n') && written.contains("\\n") {
        return written.replace("\\n", "\n").into();
    }
    written.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_depends_on_the_secret_the_conversation_and_the_value() {
        let of =
            |seed, root, value| placeholder(&HashKey::fixed(seed), Hash(root), ("email", value), 0).unwrap();
        let one = of(1, 1, "a@b.de");
        assert_eq!(one, of(1, 1, "a@b.de"));
        assert!(one.starts_with("[EMAIL_") && one.len() == 16, "{one}");
        for other in [of(2, 1, "a@b.de"), of(1, 2, "a@b.de"), of(1, 1, "b@b.de")] {
            assert_ne!(one, other);
        }
        assert_eq!(placeholder(&HashKey::fixed(1), Hash(1), ("email", "a"), DIGITS.len()), None);
    }

    #[test]
    fn a_key_in_one_line_is_restored_with_its_lines() {
        for (written, value) in
            [(r"a\/b", r"a\/b"), (r"-----BEGIN PRIVATE KEY-----\nMII", "-----BEGIN PRIVATE KEY-----\nMII")]
        {
            assert_eq!(restored_value(written), value);
        }
    }
}
