//! The header of a message to a tool, as OpenAI's models write it, with the tokens of its channel or without them:
//! `commentary to=functions.search json` and the arguments.

use super::{Found, LABEL, Reader, value};
use crate::markup::look::{self, Look, Rest, best, literal};
use crate::markup::values::token_end;

/// What may come before the recipient, besides tokens.
const ROLES: [&str; 4] = ["assistant", "commentary", "analysis", "final"];
/// Most roles and tokens before the recipient.
const MOST_PARTS: usize = 6;
/// Most words between the recipient and the arguments: the type of the content, and tokens of other languages, which
/// models leak there.
const MOST_WORDS: usize = 4;

impl<'a> Reader<'a> {
    /// A header and the arguments.
    pub(super) fn header(&self, text: &'a str) -> Found {
        let mut rest = text;
        for _ in 0..MOST_PARTS {
            let part = rest.trim_start_matches(' ');
            match literal(part, "to=") {
                Err(Look::No) => rest = role(part)?,
                recipient => return self.message(recipient?),
            }
        }
        Err(Look::No)
    }

    /// The name of the recipient, the rest of the header, and the arguments as an object.
    fn message(&self, text: &'a str) -> Found {
        let rest = self.known(text)?;
        let Some(open) = rest.find(['{', '.', ':', ',', '`', '(']) else {
            return if rest.len() <= 2 * LABEL { Err(Look::More) } else { Err(Look::No) };
        };
        let is_header = open <= 2 * LABEL && rest[..open].split_whitespace().count() <= MOST_WORDS;
        if !rest[open..].starts_with('{') || !is_header {
            return Err(Look::No);
        }
        look::value(&rest[open..])?;
        Ok(value(self.at(&rest[open..]), false))
    }
}

/// What follows a role or a token.
fn role(text: &str) -> Rest<'_> {
    let roles = ROLES.iter().map(|role| literal(text, role));
    let token = text.starts_with('<').then(|| token_end(text).map(|(_, rest)| rest));
    best(roles.chain(token))
}
