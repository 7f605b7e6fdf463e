//! The input reader: lines of files, one after the other, each bounded, whatever else is wrong with them. Gives bytes
//! and their positions; does not interpret them.

use crate::wire::body::Fault;
use bytes::Bytes;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file's name for standard input.
const STDIN: &str = "-";
/// The endings of the files of a directory that are read.
const ENDINGS: [&str; 3] = ["jsonl", "json", "ndjson"];
/// Some editors put it before the first line.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// A line, or the problem at its position.
pub(super) struct Line {
    pub position: InputPosition,
    pub content: Result<Bytes, Flaw>,
    /// Where the messages of the request end, if those of its reply follow.
    pub request_end: Option<usize>,
}

/// Where a line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InputPosition {
    pub file: Arc<str>,
    /// From 1; 0: the file as a whole.
    pub line: u64,
}

/// Why a line, or a whole file, cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Flaw {
    #[error("cannot be read: {0}")]
    Unreadable(String),
    #[error("the line is longer than limits.request_bytes ({0} bytes)")]
    TooLong(u64),
    #[error("{}", in_words(.0))]
    Fault(#[from] Fault),
}

impl fmt::Display for InputPosition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => out.write_str(&self.file),
            line => write!(out, "{}:{line}", self.file),
        }
    }
}

/// The total size of `files` in bytes, if it is known.
pub(super) fn total_bytes(files: &[PathBuf]) -> Option<u64> {
    let size = |path: PathBuf| std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file);
    files.iter().flat_map(|path| expanded(path)).map(|path| size(path).map(|file| file.len())).sum()
}

/// The recordings of a directory, in the order of their names, which is that of the recorder's times; anything else is
/// itself.
fn expanded(path: &Path) -> Vec<PathBuf> {
    let is_recording = |path: &PathBuf| {
        let ending = path.extension().and_then(|ending| ending.to_str());
        ending.is_some_and(|ending| ENDINGS.contains(&ending)) && path.is_file()
    };
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = entries.filter(is_recording).collect();
    found.sort();
    if found.is_empty() { vec![path.to_owned()] } else { found }
}

/// Passes every line of `files` that is not blank to `take`, with the bytes read so far, until it returns false.
/// `limit`: the longest line, in bytes.
pub(super) fn read_files(files: &[PathBuf], limit: u64, take: &mut dyn FnMut(Line, u64) -> bool) {
    let mut bytes_read = 0;
    for path in &files.iter().flat_map(|path| expanded(path)).collect::<Vec<_>>() {
        let name: Arc<str> = path.to_string_lossy().into();
        let mut lines = match open(path) {
            Ok(reader) => Lines { reader, limit, bytes_read, line: 0 },
            Err(error) => {
                let position = InputPosition { file: name, line: 0 };
                if !take(
                    Line { position, content: Err(Flaw::Unreadable(error.to_string())), request_end: None },
                    bytes_read,
                ) {
                    return;
                }
                continue;
            }
        };
        while let Some(content) = lines.next_line() {
            let position = InputPosition { file: Arc::clone(&name), line: lines.line };
            if !take(Line { position, content, request_end: None }, lines.bytes_read) {
                return;
            }
        }
        bytes_read = lines.bytes_read;
    }
}

fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    if path.as_os_str() == STDIN {
        return Ok(Box::new(io::stdin().lock()));
    }
    if path.is_dir() {
        return Err(io::Error::other(format!(
            "a directory without files that end in .{}",
            ENDINGS.join(" or .")
        )));
    }
    Ok(Box::new(BufReader::with_capacity(1 << 18, File::open(path)?)))
}

struct Lines {
    reader: Box<dyn BufRead>,
    limit: u64,
    bytes_read: u64,
    line: u64,
}

impl Lines {
    /// The next line that is not blank, without its end.
    fn next_line(&mut self) -> Option<Result<Bytes, Flaw>> {
        loop {
            self.line += 1;
            let mut line = Vec::new();
            match self.read_bounded(&mut line) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) => return Some(Err(self.give_up(&error))),
            }
            if line.len() as u64 > self.limit && line.last() != Some(&b'\n') {
                return Some(Err(match self.skip_rest() {
                    Ok(()) => Flaw::TooLong(self.limit),
                    Err(error) => self.give_up(&error),
                }));
            }
            let text = line.strip_prefix(BYTE_ORDER_MARK).filter(|_| self.line == 1).unwrap_or(&line);
            let text = text.trim_ascii();
            if !text.is_empty() {
                let from = text.as_ptr() as usize - line.as_ptr() as usize;
                let range = from..from + text.len();
                return Some(Ok(Bytes::from(line).slice(range)));
            }
        }
    }

    /// One byte more than the limit at most, so that a longer line is known.
    fn read_bounded(&mut self, line: &mut Vec<u8>) -> io::Result<usize> {
        let read = self.reader.by_ref().take(self.limit + 1).read_until(b'\n', line)?;
        self.bytes_read += read as u64;
        Ok(read)
    }

    fn skip_rest(&mut self) -> io::Result<()> {
        let skipped = self.reader.skip_until(b'\n')?;
        self.bytes_read += skipped as u64;
        Ok(())
    }

    /// Ends the file at an error: reading on might give the same error for ever.
    fn give_up(&mut self, error: &io::Error) -> Flaw {
        self.reader = Box::new(io::empty());
        Flaw::Unreadable(error.to_string())
    }
}

/// A fault of a request's body, in words about a line.
fn in_words(fault: &Fault) -> String {
    fault.to_string().replacen("the body", "the line", 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn lines(text: &[u8], limit: u64) -> Vec<(u64, Result<String, Flaw>)> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text).unwrap();
        let mut found = Vec::new();
        let mut last = 0;
        read_files(&[file.path().to_owned()], limit, &mut |line, bytes_read| {
            let text = line.content.map(|text| String::from_utf8_lossy(&text).into_owned());
            found.push((line.position.line, text));
            last = bytes_read;
            true
        });
        assert!(last <= text.len() as u64);
        found
    }

    #[test]
    fn lines_are_found_whatever_ends_them_and_blank_ones_are_passed_over() {
        let ok = |text: &str| Ok(text.to_owned());
        assert_eq!(
            lines(b"\xEF\xBB\xBFone\r\n\n  \ntwo \nthree", 100),
            [(1, ok("one")), (4, ok("two")), (5, ok("three"))]
        );
        assert_eq!(lines(b"", 100), []);
        assert_eq!(lines(b"\n\n", 100), []);
    }

    #[test]
    fn a_line_beyond_the_limit_is_reported_and_the_next_one_read() {
        let ok = |text: &str| Ok(text.to_owned());
        assert_eq!(
            lines(b"12345\n123456\n1234\n1234567", 5),
            [(1, ok("12345")), (2, Err(Flaw::TooLong(5))), (3, ok("1234")), (4, Err(Flaw::TooLong(5)))]
        );
    }

    #[test]
    fn a_file_that_is_not_there_is_named_and_the_others_are_read() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"x\n").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let files = [folder.path().join("none"), folder.path().to_owned(), file.path().to_owned()];
        let mut found = Vec::new();
        read_files(&files, 10, &mut |line, _| {
            found.push((line.position.line, line.content.is_ok()));
            true
        });
        assert_eq!(found, [(0, false), (0, false), (1, true)]);
        assert_eq!(total_bytes(&files), None);
        assert_eq!(total_bytes(&files[2..]), Some(2));
    }
}
