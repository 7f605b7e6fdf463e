//! Comma-separated values, and the same with tabs, semicolons or bars.

use super::{Form, MAX_ROWS, Table};
use memchr::{memchr, memchr3};
use std::ops::Range;

/// Lines after the last row that are not rows: `(400 rows)`.
const FOOT_LINES: usize = 5;
/// The longest name of a column.
const NAME_CHARS: usize = 60;

/// The table, if the first line names columns and every record has as many fields.
pub(super) fn read(text: &str) -> Option<Table> {
    let header_end = memchr(b'\n', text.as_bytes())?;
    let header = text[..header_end].trim_end_matches('\r');
    let delimiter = delimiter_of(header)?;
    let bytes = text.as_bytes();
    let (start, fields) = record(bytes, 0, delimiter)?;
    let mut rows: Vec<Range<usize>> = Vec::new();
    let mut at = start;
    while at < bytes.len() {
        let (end, found) = record(bytes, at, delimiter)?;
        if found != fields {
            let foot = text[at..].lines().take(FOOT_LINES + 1).count();
            return (foot <= FOOT_LINES)
                .then_some(Table { form: Form::Separated { delimiter, fields }, rows });
        }
        if rows.len() == MAX_ROWS {
            return None;
        }
        rows.push(at..end);
        at = end;
    }
    Some(Table { form: Form::Separated { delimiter, fields }, rows })
}

/// What separates names of columns: a first row of values, or of a log, is none.
fn delimiter_of(header: &str) -> Option<u8> {
    let count = |delimiter: &u8| memchr::memchr_iter(*delimiter, header.as_bytes()).count();
    let delimiter = *b"|,;\t".iter().max_by_key(|delimiter| count(delimiter))?;
    let names = header.split(char::from(delimiter)).map(|name| name.trim().trim_matches('"'));
    let is_name = |(at, name): (usize, &str)| {
        let is_index = at == 0 && name.is_empty() && header.starts_with([',', ';', '"']);
        let begins_well = name.starts_with(|first: char| first.is_alphabetic() || "_#$%@".contains(first));
        is_index || (begins_well && name.chars().count() <= NAME_CHARS && !name.ends_with(['{', '(', '.']))
    };
    (count(&delimiter) > 0 && names.enumerate().all(is_name)).then_some(delimiter)
}

/// The end of the record at `at`, its line end included, and its number of fields; `None` where quotes do not fit.
fn record(bytes: &[u8], mut at: usize, delimiter: u8) -> Option<(usize, usize)> {
    let mut fields = 1;
    let mut field = at;
    loop {
        let Some(found) = memchr3(delimiter, b'\n', b'"', &bytes[at..]) else {
            return Some((bytes.len(), fields));
        };
        let stop = at + found;
        at = stop + 1;
        match bytes[stop] {
            b'\n' => return Some((at, fields)),
            // A quote within a field is a quote.
            b'"' if stop > field => {}
            // Doubled quotes close the field and open it again.
            b'"' => {
                at += memchr(b'"', &bytes[at..])? + 1;
                field = at;
                let is_closed =
                    bytes.get(at).is_none_or(|next| b"\r\n\"".contains(next) || *next == delimiter);
                is_closed.then_some(())?;
            }
            _ => {
                fields += 1;
                field = at;
            }
        }
    }
}
