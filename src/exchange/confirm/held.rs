//! Calls of one reply that wait for a person's word: which they are, what they are shown as, and what each word makes of
//! them. Says what waits as data; who is asked, how and for how long is the shell's affair.

use super::shown::{is_plain_name, pretty_text};
use crate::plan::approval::Unaskable;
use crate::policy::about::Confirming;

/// What a call would be held as.
///
/// # Errors
/// Why nobody can be asked about it.
pub fn shown(
    tool: &str,
    (arguments, custom): (&str, bool),
    confirming: &Confirming,
) -> Result<String, Unaskable> {
    if !is_plain_name(tool) {
        return Err(Unaskable::Unreadable);
    }
    let shown = pretty_text(arguments, custom).ok_or(Unaskable::Unreadable)?;
    if shown.chars().count() > confirming.max_chars {
        return Err(Unaskable::TooLong { most: confirming.max_chars });
    }
    Ok(shown)
}
