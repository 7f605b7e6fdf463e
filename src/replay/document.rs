//! Whole JSON documents in place of lines: a list, or an object over several lines. A document is recognised by its
//! beginning; a file that turns out to be something else is read line by line.

use serde_json::value::RawValue;
use std::io::{self, BufRead, Cursor, Read as _};

/// The longest document that is read, in bytes.
pub(super) const MOST_BYTES: u64 = 512 << 20;

/// What a file holds.
pub(super) enum Content {
    /// Lines, from the beginning.
    Lines(Box<dyn BufRead>),
    /// The values of a document, and its length in bytes.
    Values(Vec<Box<RawValue>>, u64),
    /// A document beyond the bound.
    TooLong,
}

/// Looks at the first line, of at most `longest` bytes, and reads the rest where a document begins with it.
///
/// # Errors
/// Those of the reader.
pub(super) fn content(mut reader: Box<dyn BufRead>, longest: u64) -> io::Result<Content> {
    let mut start = Vec::new();
    loop {
        let before = start.len();
        reader.by_ref().take(longest + 1).read_until(b'\n', &mut start)?;
        let is_blank = trimmed(&start).is_empty();
        if start.len() == before || !is_blank || start.len() as u64 > longest {
            break;
        }
    }
    if !begins_document(trimmed(&start)) {
        return Ok(Content::Lines(Box::new(Cursor::new(start).chain(reader))));
    }
    reader.by_ref().take(MOST_BYTES).read_to_end(&mut start)?;
    if start.len() as u64 > MOST_BYTES {
        return Ok(Content::TooLong);
    }
    let values = serde_json::Deserializer::from_slice(trimmed(&start)).into_iter::<Box<RawValue>>();
    match values.collect() {
        Ok(values) => Ok(Content::Values(values, start.len() as u64)),
        // For example, a file of lines whose first line is incomplete.
        Err(_) => Ok(Content::Lines(Box::new(Cursor::new(start)))),
    }
}

/// A list, or an object that goes on in the next line.
fn begins_document(line: &[u8]) -> bool {
    match line.first() {
        Some(b'[') => true,
        Some(b'{') => serde_json::from_slice::<&RawValue>(line).is_err_and(|error| error.is_eof()),
        _ => false,
    }
}

fn trimmed(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes).trim_ascii()
}
