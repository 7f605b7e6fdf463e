//! A shared text that many requests contain, with its JSON-escaped form: clones share both, and the text is escaped
//! once.

use crate::json::escaped;
use bytes::Bytes;
use std::fmt::{self, Display, Formatter};
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// See the file's head.
#[derive(Clone, Debug)]
pub struct EscapedText(Arc<Spelling>);

#[derive(Debug)]
struct Spelling {
    text: Box<str>,
    escaped: OnceLock<Bytes>,
}

impl EscapedText {
    /// The text escaped as a JSON string, without quotes.
    pub fn escaped(&self) -> Bytes {
        // Without the room that was left over, since it is kept.
        self.0.escaped.get_or_init(|| escaped(self).into_boxed_slice().into()).clone()
    }

    /// The memory that both forms take, in bytes: with control characters, six times as much as the text.
    pub fn weight(&self) -> usize {
        self.len() + self.escaped().len()
    }
}

impl<T: Into<Box<str>>> From<T> for EscapedText {
    fn from(text: T) -> Self {
        Self(Arc::new(Spelling { text: text.into(), escaped: OnceLock::new() }))
    }
}

impl Deref for EscapedText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0.text
    }
}

impl Display for EscapedText {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(self)
    }
}

impl PartialEq for EscapedText {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for EscapedText {}

impl Hash for EscapedText {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_one_spelling() {
        let text = EscapedText::from("a \"b\"\n");
        let clone = text.clone();
        assert_eq!((&*clone, &clone.escaped()[..]), ("a \"b\"\n", &b"a \\\"b\\\"\\n"[..]));
        assert_eq!(text.escaped().as_ptr(), clone.escaped().as_ptr());
    }

    #[test]
    fn the_weight_of_a_text_includes_its_escapes() {
        assert_eq!(EscapedText::from("word").weight(), 8);
        assert_eq!(EscapedText::from("\u{1}".repeat(1000)).weight(), 7000);
    }
}
