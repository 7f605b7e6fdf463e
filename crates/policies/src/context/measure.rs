//! The size of texts in a model's context: in estimated tokens, or in characters, each counted as a token, where an
//! operator does not trust the estimate. Measures; sums up nothing.

use model::View;
use model::call::Arguments;
use model::tokens::{Estimate, MESSAGE_OVERHEAD};
use wire::body::Str;
use wire::first_characters;
use wire::json::decode;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Measure {
    #[default]
    Tokens,
    /// Each counts as one token.
    Characters,
}

impl Measure {
    /// A whole message, calls included.
    pub(super) fn message(self, view: &View<'_>) -> Estimate {
        if self == Self::Tokens {
            return view.tokens();
        }
        let (message, body) = (view.message, view.body);
        let texts = message.content.texts().map(|text| characters(text, body));
        let calls = message.calls.iter().map(|call| {
            let arguments = match call.arguments {
                Arguments::Text(text) => characters(text, body),
                Arguments::Value(span) => plain(span.of(body)),
                Arguments::Absent | Arguments::Null(_) => 0,
            };
            call.name.map_or(0, |name| characters(name, body)) + arguments
        });
        counted(texts.chain(calls).sum())
    }

    /// One of its strings of text.
    pub(super) fn text(self, view: &View<'_>, text: Str) -> Estimate {
        if self == Self::Tokens { view.tokens_of(text) } else { counted(characters(text, view.body)) }
    }

    /// A text that replaces one of its own.
    pub(super) fn other(self, view: &View<'_>, text: &str) -> Estimate {
        if self == Self::Tokens { view.tokens_of_other(text) } else { counted(text.chars().count()) }
    }

    /// The size of a message without its texts.
    pub(super) fn frame(self, view: &View<'_>) -> Estimate {
        if self == Self::Tokens { MESSAGE_OVERHEAD.scaled(view.token_factor()) } else { Estimate::ZERO }
    }

    /// The assumed size of a cleared text.
    pub(super) fn cleared(self) -> Estimate {
        // Its marker: two lines, and 200 characters of the text.
        if self == Self::Tokens { super::CLEARED } else { Estimate::of_tokens(350) }
    }
}

/// How many characters a text has.
pub fn characters(text: Str, body: &[u8]) -> usize {
    if text.escaped && !text.odd {
        first_characters::characters(text.raw(body))
    } else if text.escaped {
        decode(text, body).chars().count()
    } else {
        plain(text.raw(body))
    }
}

/// Every byte except continuation bytes of a character.
fn plain(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| *byte & 0xc0 != 0x80).count()
}

fn counted(characters: usize) -> Estimate {
    Estimate::of_tokens(u32::try_from(characters).unwrap_or(u32::MAX))
}
