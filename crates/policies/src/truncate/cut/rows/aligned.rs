//! Aligned columns, as terminals show them: `ls -l`, `ps`, `df`, `kubectl get`, `docker ps`.

use super::{Form, MAX_ROWS, MIN_ROWS, Table, lines_from};

/// So many rows are looked at to find the columns.
const SAMPLE: usize = 40;
/// One row in ten may break a column: a value that is too wide pushes the others.
const BROKEN_PART: usize = 10;
const MIN_COLUMNS: usize = 3;

/// The table, if the first line names columns that the others keep, or if it is a long listing of files.
pub(super) fn read(text: &str) -> Option<Table> {
    let lines: Vec<&str> =
        lines_from(text, 0).take(SAMPLE + 1).map(|line| text[line].trim_ascii_end()).collect();
    let (header, sample) = lines.split_first()?;
    if sample.len() < MIN_ROWS || !(is_listing(header, sample) || has_columns(header, sample)) {
        return None;
    }
    let rows: Vec<_> = lines_from(text, 0).skip(1).take(MAX_ROWS + 1).collect();
    (rows.len() <= MAX_ROWS).then_some(Table { form: Form::Aligned, rows })
}

/// `total 40` or a first file, and then nothing but files.
fn is_listing(header: &str, sample: &[&str]) -> bool {
    let is_file = |line: &&&str| {
        let mode = line.as_bytes().get(..10).unwrap_or_default();
        mode.split_first().is_some_and(|(kind, bits)| {
            b"-dlbcps".contains(kind) && bits.iter().all(|bit| b"rwxsStT-".contains(bit))
        })
    };
    let files = sample.iter().filter(is_file).count();
    (header.starts_with("total ") || is_file(&&header))
        && (sample.len() - files) * BROKEN_PART <= sample.len()
}

/// Whether the header is made of names, at least three, and the rows have blanks between their columns where it has.
fn has_columns(header: &str, sample: &[&str]) -> bool {
    let is_name = |word: &&str| word.starts_with(|first: char| !is_value(first));
    if header.split(' ').filter(is_name).count() < MIN_COLUMNS {
        return false;
    }
    let header: Vec<char> = header.chars().collect();
    let rows: Vec<Vec<char>> = sample.iter().map(|line| line.chars().collect()).collect();
    let keep_blank = |at: usize| broken(&rows, at) * BROKEN_PART <= rows.len();
    let mut columns: Vec<usize> = Vec::new();
    let mut in_column = false;
    for (at, letter) in header.iter().enumerate() {
        if *letter == ' ' {
            in_column &= !keep_blank(at);
        } else if !in_column {
            columns.push(at);
            in_column = true;
        }
    }
    let values = columns.iter().filter(|at| is_value(header[**at])).count();
    columns.len() >= MIN_COLUMNS && values * 4 <= columns.len() && !repeats(&header, &rows, &columns)
}

/// Whether a word that begins so is no name of a column; among so few columns each one has a name.
fn is_value(first: char) -> bool {
    first.is_lowercase() || first.is_ascii_digit()
}

fn broken(rows: &[Vec<char>], at: usize) -> usize {
    rows.iter().filter(|row| row.get(at).is_some_and(|found| *found != ' ')).count()
}

/// Whether a row repeats a header's cell in the same column: then the header is no header but a log's first line.
fn repeats(header: &[char], rows: &[Vec<char>], columns: &[usize]) -> bool {
    let cell = |row: &[char], from: usize, to: usize| {
        let cell: String = row.get(from..to).unwrap_or_default().iter().collect();
        cell.trim().to_owned()
    };
    columns.windows(2).any(|pair| {
        let name = cell(header, pair[0], pair[1]);
        rows.iter().any(|row| cell(row, pair[0], pair[1]) == name)
    })
}
