//! The input reader: lines of files, one after the other, each bounded in length, whatever else is wrong with the
//! files. Returns bytes and their positions; does not interpret them.

use super::document::{self, Content};
use super::exports::{Exports, NoConversation, Unpacked};
use super::live::Live;
use super::recording::Recording;
use bytes::Bytes;
use dialects::{AnyDialect, dialect_of};
use serde_json::value::RawValue;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::body::Fault;

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
    /// What a recording of toolrein's own shows of the live requests of the conversation, oldest first.
    pub live: Vec<Live>,
    /// The dialect of the endpoint, where that is recorded.
    pub dialect: Option<AnyDialect>,
}

impl Line {
    /// A line about which nothing else is known.
    pub(super) fn new(position: InputPosition, content: Result<Bytes, Flaw>) -> Self {
        Self { position, content, request_end: None, live: Vec::new(), dialect: None }
    }

    /// The conversation.
    ///
    /// # Errors
    /// There is no content, or it is no request that can be read.
    pub(super) fn recording(&self) -> Result<Recording, Flaw> {
        let (content, dialect) = self.request().map_err(Flaw::clone)?;
        Ok(Recording::read(content, dialect)?)
    }

    /// The content with its dialect: that of the endpoint, or the one that the content shows.
    ///
    /// # Errors
    /// There is no content.
    pub(super) fn request(&self) -> Result<(&Bytes, AnyDialect), &Flaw> {
        let content = self.content.as_ref()?;
        Ok((content, self.dialect.unwrap_or_else(|| dialect_of(content))))
    }
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
    #[error("the document is longer than {0} bytes: conversations one a line may be more")]
    DocumentTooLong(u64),
    #[error("it was recorded without its request (record.bodies, or it was too long)")]
    NoBodies,
    #[error(transparent)]
    NoConversation(#[from] NoConversation),
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

/// Passes every conversation of `files` to `take`, with the bytes read so far, until it returns false: every line that is
/// not blank, or the values of a whole JSON document, which are numbered like lines. `limit`: the longest one, in bytes.
pub(super) fn read_files(files: &[PathBuf], limit: u64, take: &mut dyn FnMut(Line, u64) -> bool) {
    let mut reading = Reading { limit, exports: Exports::default(), bytes_read: 0, take };
    for path in files.iter().flat_map(|path| expanded(path)) {
        if !reading.file(&path) {
            return;
        }
    }
}

/// Files that are being read, one after the other.
struct Reading<'a> {
    limit: u64,
    exports: Exports,
    bytes_read: u64,
    take: &'a mut dyn FnMut(Line, u64) -> bool,
}

impl Reading<'_> {
    /// Reads a file; false: no more is wanted.
    fn file(&mut self, path: &Path) -> bool {
        let name: Arc<str> = path.to_string_lossy().into();
        let whole = InputPosition { file: Arc::clone(&name), line: 0 };
        match open(path).and_then(|reader| document::content(reader, self.limit)) {
            Err(error) => self.pass(whole, Err(Flaw::Unreadable(error.to_string()))),
            Ok(Content::TooLong) => self.pass(whole, Err(Flaw::DocumentTooLong(document::MOST_BYTES))),
            Ok(Content::Values(values, bytes)) => {
                self.bytes_read += bytes;
                self.values(&values, &name)
            }
            Ok(Content::Lines(reader)) => {
                let mut lines = Lines { reader, limit: self.limit, bytes_read: self.bytes_read, line: 0 };
                while let Some(content) = lines.next_line() {
                    self.bytes_read = lines.bytes_read;
                    let position = InputPosition { file: Arc::clone(&name), line: lines.line };
                    if !self.line(&position, content) {
                        return false;
                    }
                }
                self.bytes_read = lines.bytes_read;
                true
            }
        }
    }

    /// The values of a document.
    fn values(&mut self, values: &[Box<RawValue>], name: &Arc<str>) -> bool {
        let unpacked: Vec<_> = values.iter().flat_map(|value| self.exports.unpack(value)).collect();
        unpacked.into_iter().zip(1..).all(|(unpacked, line)| {
            let position = InputPosition { file: Arc::clone(name), line };
            let content = self.bounded(unpacked);
            self.pass(position, content)
        })
    }

    /// A line: a conversation, or what an export holds in it.
    fn line(&mut self, position: &InputPosition, content: Result<Bytes, Flaw>) -> bool {
        let value = content.as_ref().ok().and_then(|line| serde_json::from_slice::<&RawValue>(line).ok());
        let Some(value) = value else { return self.pass(position.clone(), content) };
        let unpacked = self.exports.unpack(value);
        if matches!(unpacked.as_slice(), [Ok(text)] if text.as_bytes() == value.get().as_bytes()) {
            // As it is, which is the usual case.
            return self.pass(position.clone(), content);
        }
        unpacked.into_iter().all(|unpacked| {
            let content = self.bounded(unpacked);
            self.pass(position.clone(), content)
        })
    }

    fn bounded(&self, unpacked: Unpacked) -> Result<Bytes, Flaw> {
        let text = unpacked?;
        if text.len() as u64 > self.limit { Err(Flaw::TooLong(self.limit)) } else { Ok(text.into()) }
    }

    fn pass(&mut self, position: InputPosition, content: Result<Bytes, Flaw>) -> bool {
        (self.take)(Line::new(position, content), self.bytes_read)
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
