//! Tables drawn with bars: Markdown, and what psql and mysql print.

use super::{Form, MAX_ROWS, Table, lines_from};
use std::ops::Range;

/// The largest table: a line with bars, a line that is drawn under it, and the rows that follow.
pub(super) fn read(text: &str) -> Option<Table> {
    memchr::memmem::find(text.as_bytes(), b"---")?;
    let mut best: Option<Table> = None;
    let (mut before, mut open): (Option<Range<usize>>, Option<Table>) = (None, None);
    for line in lines_from(text, 0) {
        let row = &text[line.clone()];
        if let Some(table) = &mut open {
            if row.contains('|') && table.rows.len() < MAX_ROWS {
                table.rows.push(line);
                continue;
            }
            best = larger(best, open.take());
        }
        let header = before.as_ref().map_or("", |before| &text[before.clone()]);
        if header.contains('|') && is_drawn(row) {
            open = Some(Table { form: form_of(header), rows: Vec::new() });
        }
        before = Some(line);
    }
    larger(best, open)
}

fn larger(one: Option<Table>, other: Option<Table>) -> Option<Table> {
    let length = |table: &Option<Table>| table.as_ref().map_or(0, |table| table.rows.len());
    if length(&other) > length(&one) { other } else { one }
}

/// `|---|:--:|`, `----+----`, `+----+----+`.
fn is_drawn(line: &str) -> bool {
    line.contains("---") && line.trim_ascii().bytes().all(|byte| b"-|+: ".contains(&byte))
}

/// With the same bars as the header; a bar after a backslash belongs to a cell.
fn form_of(header: &str) -> Form {
    let header = header.trim_ascii();
    let bars = header.matches('|').count() - header.matches("\\|").count();
    let closed = header.starts_with('|') && header.len() > 1 && header.ends_with('|');
    Form::Bars { cells: if closed { (bars.max(2)) - 1 } else { bars + 1 }, closed }
}
