//! The text of a held call for the person who decides on it. Makes the text; the shell asks the person.

use super::shown::{is_plain_name, pretty_text};
use model::plan::approval::Unaskable;
use policies::about::Confirming;

/// The text that a person is shown of a call.
///
/// # Errors
/// Why no person can be asked about it.
pub fn shown(
    tool: &str,
    arguments: &str,
    custom: bool,
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
