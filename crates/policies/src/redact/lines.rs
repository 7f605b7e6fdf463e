//! Secrets by the lines that they are in: a line of YAML whose key is on a line above or beside it, and a cell of a table
//! whose column's heading names a secret. In time linear in the text.

use super::named::{
    describes_value, find_secret_in, holds_secret, holds_value, is_name_of_secrets, is_named_value,
    is_secret_name, value_at,
};
pub use model::plan::work::step;
use std::ops::Range;

/// A longer line heads no table, in bytes.
const LONGEST_HEADING: usize = 512;
/// A longer key is none, in bytes.
const LONGEST_KEY: usize = 64;
/// What separates the cells of a line.
const SEPARATORS: [char; 4] = ['\t', '|', ',', ';'];

/// What was read so far.
#[derive(Default)]
struct Reader<'t> {
    found: Vec<Range<usize>>,
    block: Option<Block>,
    pair: Option<Pair<'t>>,
    table: Option<Table>,
}

/// The lines below a key that names a secret: those that are farther in.
struct Block {
    indent: usize,
    /// It is one text, as after `|`.
    is_text: bool,
}

/// The line before, as one of two that describe a value.
struct Pair<'t> {
    column: usize,
    key: &'t str,
    value: &'t str,
    /// Where its value is, if it is a secret.
    secret: Option<Range<usize>>,
}

/// A table whose heading was read.
struct Table {
    separator: char,
    cells: usize,
    /// The columns that hold secrets.
    columns: Vec<usize>,
}

/// A line of YAML with a key.
struct Entry<'t> {
    /// Where the key begins in the line.
    column: usize,
    is_item: bool,
    key: &'t str,
    /// Where the value begins in the line.
    value: usize,
}

/// The secrets, in order, and whether the lines after `text` may hold more.
pub(super) fn find_in_lines(text: &str) -> (Vec<Range<usize>>, bool) {
    let mut reader = Reader::default();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        reader.read(text, start, line.trim_end());
        start += line.len();
    }
    reader.found.sort_by_key(|range| range.start);
    (reader.found, reader.block.is_some() || reader.table.is_some())
}

impl<'t> Reader<'t> {
    /// Reads the `line` of `text` that begins at `start`.
    fn read(&mut self, text: &'t str, start: usize, line: &'t str) {
        step();
        if line.is_empty() {
            self.table = None;
            return;
        }
        let entry = entry(line);
        if !self.read_in_block(text, start, line, entry.as_ref()) {
            match entry {
                Some(entry) => self.read_entry(text, start, line, &entry),
                None => self.pair = None,
            }
        }
        self.read_row(start, line);
    }

    /// Reads a line below a key that names a secret; `false` if it is none.
    fn read_in_block(&mut self, text: &str, start: usize, line: &str, entry: Option<&Entry<'_>>) -> bool {
        let Some(block) = &self.block else { return false };
        let indent = indent(line);
        let is_item = !block.is_text && indent == block.indent && line[indent..].starts_with("- ");
        if indent <= block.indent && !is_item {
            self.block = None;
            return false;
        }
        if block.is_text {
            self.found.extend(find_secret_in(text, start + indent..start + line.len()));
            return true;
        }
        let value = match entry {
            Some(entry) if describes_value(entry.key) => return true,
            Some(entry) => entry.value,
            None => indent + if line[indent..].starts_with("- ") { 2 } else { 0 },
        };
        let value = start + value + properties(&line[value..]);
        self.found.extend(value_at(text, value, "").filter(|range| is_named_value(&text[range.clone()])));
        true
    }

    /// Reads a line with a key.
    fn read_entry(&mut self, text: &'t str, start: usize, line: &'t str, entry: &Entry<'t>) {
        let written = &line[entry.value..];
        let properties = properties(written);
        let value = &written[properties..];
        let at = start + entry.value + properties;
        if is_secret_name(entry.key) {
            let is_text = is_text_marker(value);
            if (is_text || value.is_empty()) && is_name_of_secrets(entry.key) {
                self.block = Some(Block { indent: entry.column, is_text });
            } else if properties > 0 {
                self.found.extend(value_at(text, at, ""));
            }
        }
        self.read_pair(
            text,
            Pair { column: entry.column, key: entry.key, value, secret: None },
            at,
            entry.is_item,
        );
    }

    /// Reads a line that may describe a value together with the one before.
    fn read_pair(&mut self, text: &str, mut pair: Pair<'t>, at: usize, is_item: bool) {
        let is_beside = |before: &&Pair<'t>| before.column == pair.column && !is_item;
        if holds_value(pair.key) {
            pair.secret = value_at(text, at, "");
        }
        if let Some(before) = self.pair.as_ref().filter(is_beside) {
            if names_secret(before) {
                self.found.extend(pair.secret.clone());
            } else if names_secret(&pair) {
                self.found.extend(before.secret.clone());
            }
        }
        self.pair = Some(pair);
    }

    /// Reads the cells of a line of a table, or its heading.
    fn read_row(&mut self, start: usize, line: &str) {
        let Some(table) = &self.table else {
            self.table = heading(line);
            return;
        };
        let cells = cells(line, table.separator);
        if cells.len() != table.cells {
            self.table = heading(line);
            return;
        }
        for column in &table.columns {
            let written = &line[cells[*column].clone()];
            let cell = trimmed(line, cells[*column].clone());
            // A sentence that a comma divides is no row.
            let is_value = !line[cell.clone()].contains(' ') || written.trim_start().starts_with('"');
            if is_value && holds_secret(&line[cell.clone()]) {
                self.found.push(start + cell.start..start + cell.end);
            }
        }
    }
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Whether a line says by its value what the line beside it holds.
fn names_secret(pair: &Pair<'_>) -> bool {
    let is_naming = ["name", "key", "id", "field", "header"].contains(&&*pair.key.to_ascii_lowercase());
    is_naming && is_secret_name(pair.value.trim_matches(['"', '\'']))
}

/// The key in a line of YAML.
fn entry(line: &str) -> Option<Entry<'_>> {
    let mut column = indent(line);
    let mut is_item = false;
    while line[column..].starts_with("- ") {
        column += 1 + indent(&line[column + 1..]);
        is_item = true;
    }
    let rest = &line[column..];
    let is_of_key = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.\"'".contains(byte);
    let length = rest.bytes().take(LONGEST_KEY).take_while(|byte| is_of_key(byte)).count();
    let value = rest[length..].trim_start_matches(' ').strip_prefix(':')?;
    let key = rest[..length].trim_matches(['"', '\'']);
    let is_entry = !key.is_empty() && (value.is_empty() || value.starts_with(' '));
    is_entry.then(|| Entry { column, is_item, key, value: line.len() - value.trim_start().len() })
}

/// How many bytes of a value are its YAML properties: `&name`, `!tag`.
fn properties(value: &str) -> usize {
    let mut rest = value;
    while rest.starts_with(['&', '!']) {
        let Some((property, after)) = rest.split_once(' ') else {
            // Nothing but a property: the value is below.
            return if is_property(rest) { value.len() } else { value.len() - rest.len() };
        };
        if !is_property(property) {
            break;
        }
        rest = after.trim_start();
    }
    value.len() - rest.len()
}

/// Whether a word is a YAML property (`&name`, `!tag`), and none of a secret's own characters.
fn is_property(word: &str) -> bool {
    let name = word.trim_start_matches(['&', '!']);
    name.len() <= 16 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

/// Whether a value says that the lines below are one text.
fn is_text_marker(value: &str) -> bool {
    let rest = value.strip_prefix(['|', '>']);
    rest.is_some_and(|rest| {
        rest.bytes().take_while(|byte| *byte != b'#').all(|byte| b"+-123456789 ".contains(&byte))
    })
}

/// The table that a line heads, if the heading of one of its columns names a secret.
fn heading(line: &str) -> Option<Table> {
    if line.len() > LONGEST_HEADING {
        return None;
    }
    SEPARATORS.into_iter().filter(|separator| line.contains(*separator)).find_map(|separator| {
        let cells = cells(line, separator);
        let names: Vec<&str> = cells.iter().map(|cell| &line[trimmed(line, cell.clone())]).collect();
        let last = names.len() - 1;
        // Lines of a table in Markdown begin and end with the separator.
        let is_edge = |at: usize| separator == '|' && (at == 0 || at == last);
        let is_heading =
            names.iter().enumerate().all(|(at, name)| is_cell_name(name) || name.is_empty() && is_edge(at));
        if !is_heading {
            return None;
        }
        let is_secret = |at: &usize| is_secret_name(&names[*at].replace(' ', "_"));
        let columns: Vec<usize> = (0..names.len()).filter(is_secret).collect();
        (!columns.is_empty()).then_some(Table { separator, cells: names.len(), columns })
    })
}

/// Whether a cell of a heading is a name of few words.
fn is_cell_name(cell: &str) -> bool {
    let is_of_name = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.' | ' ');
    (1..=48).contains(&cell.len()) && cell.split(' ').count() <= 3 && cell.chars().all(is_of_name)
}

/// The cells of a line. What is in double quotes is not divided.
fn cells(line: &str, separator: char) -> Vec<Range<usize>> {
    let (mut cells, mut start, mut is_quoted) = (Vec::new(), 0, false);
    for (at, letter) in line.char_indices() {
        if letter == '"' {
            is_quoted = !is_quoted;
        } else if letter == separator && !is_quoted {
            cells.push(start..at);
            start = at + 1;
        }
    }
    cells.push(start..line.len());
    cells
}

/// A cell without the blanks and the quotes around it.
fn trimmed(line: &str, cell: Range<usize>) -> Range<usize> {
    let is_around = |letter: char| letter.is_whitespace() || matches!(letter, '"' | '\'' | '`' | '*');
    let text = &line[cell.clone()];
    let start = cell.start + text.len() - text.trim_start_matches(is_around).len();
    start..start + text.trim_matches(is_around).len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: &str = "Xq7Zp2Lm9Rt4Vw8K";

    #[test]
    fn a_secret_is_found_below_and_beside_its_key_and_in_its_column() {
        for written in [
            "password: |\n  @\n",
            "db:\n  password: >-\n\n    @\n  user: anna\n",
            "password:\n  value: @\n",
            "password: &pw @",
            "password: !!str '@'",
            "password: &pw\n  current:\n    plain: \"@\"\n",
            "- name: DB_PASSWORD\n  value: @\n",
            "  - value: @\n    name: DB_PASSWORD\n",
            "user,password\nanna,@\n",
            "user\tpassword\nanna\t@",
            "| user | password |\n|---|---|\n| anna | `@` |",
            "\"user\";\"api key\"\n\"a;b\";\"@\"",
        ] {
            let text = written.replace('@', S);
            let found: Vec<&str> = find_in_lines(&text).0.into_iter().map(|range| &text[range]).collect();
            assert_eq!(found, [S], "{text}");
        }
    }

    #[test]
    fn lines_after_a_secret_and_columns_beside_it_are_none() {
        for written in [
            "password:\nid: @",
            "password: |\n  plain words\nid: @",
            "- name: BUILD_ID\n  value: @",
            "- name: DB_PASSWORD\n- value: @",
            "user,password\n@,anna\n",
            "user,password\nanna,none\n\nbob,@\n",
            "token:\n  type: @\n  created: 2026-11-28T16:50:03Z\n",
            "def login(user, password):\n    return a1, @",
            "Give user, password\nThanks, and see commit @ too",
            "tokens:\n  - id: @\n",
            "token:\n  TOKEN_URL: @\n  file: ./secrets/@\n",
        ] {
            let text = written.replace('@', S);
            assert!(find_in_lines(&text).0.is_empty(), "{text}");
        }
    }
}
