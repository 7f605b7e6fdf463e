//! JSON lines: one object a line.

use serde_json::value::RawValue;

use super::{Form, MAX_ROWS, Table, lines_from};

/// So many lines are parsed as JSON; the others are checked only by how they begin and end.
const CHECKED_LINES: usize = 20;

/// The table, if every line is an object.
pub(super) fn read(text: &str) -> Option<Table> {
    if !text.starts_with('{') {
        return None;
    }
    let mut rows = Vec::new();
    for row in lines_from(text, 0) {
        let line = text[row.clone()].trim_ascii_end();
        let is_object = line.starts_with('{') && line.ends_with('}');
        let is_checked = rows.len() >= CHECKED_LINES || serde_json::from_str::<&RawValue>(line).is_ok();
        if !is_object || !is_checked || rows.len() == MAX_ROWS {
            return None;
        }
        rows.push(row);
    }
    Some(Table { form: Form::JsonLines, rows })
}
