//! Rotated files: a directory of JSON lines, bounded in the size of each file, in the size of all, and in age. Only files
//! that the recorder made itself are removed.

use crate::telemetry::private_file;
use std::fs::{File, read_dir, remove_file};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The beginning and the end of a file's name.
const PREFIX: &str = "toolrein-";
const SUFFIX: &str = ".jsonl";
/// A file is followed by another one after this part of `max_age`, since it is removed as a whole.
const PARTS_OF_AGE: u32 = 8;

/// The bounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub file_bytes: u64,
    pub total_bytes: u64,
    /// `None`: none.
    pub max_age: Option<Duration>,
}

/// See the file's head.
pub(super) struct Files {
    dir: PathBuf,
    bounds: Bounds,
    open: Option<OpenFile>,
    /// Files opened so far, so that no two have one name.
    opened: u64,
}

struct OpenFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    since: SystemTime,
}

/// A file of the recorder.
struct Kept {
    path: PathBuf,
    bytes: u64,
    since: SystemTime,
}

impl Files {
    /// The files of the directory `dir`, which is made when something is written.
    pub(super) fn new(dir: &Path, bounds: Bounds) -> Self {
        Self { dir: dir.to_owned(), bounds, open: None, opened: 0 }
    }

    /// Appends lines, all or none as far as the disk allows.
    ///
    /// # Errors
    /// Those of the disk. The next lines are tried again.
    pub(super) fn append(&mut self, lines: &[u8], now: SystemTime) -> io::Result<()> {
        let length = lines.len() as u64;
        let is_over = |open: &OpenFile| open.bytes > 0 && open.bytes + length > self.bounds.file_bytes;
        // Somebody may have moved or removed it.
        let is_gone = |open: &OpenFile| !private_file::is_at(&open.file, &open.path);
        if self.open.as_ref().is_some_and(|open| is_over(open) || is_gone(open)) {
            self.open = None;
        }
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                let new = self.begin(now)?;
                self.open.insert(new)
            }
        };
        match open.file.write_all(lines) {
            Ok(()) => {
                open.bytes += length;
                Ok(())
            }
            Err(error) => {
                // Half a line would spoil the next one.
                if open.file.set_len(open.bytes).is_err() {
                    self.open = None;
                }
                Err(error)
            }
        }
    }

    /// Removes what is too old or too much. Called now and then, also while nothing is written.
    pub(super) fn sweep(&mut self, now: SystemTime) {
        let part = self.bounds.max_age.map(|age| age / PARTS_OF_AGE);
        let is_aged = |open: &OpenFile| part.is_some_and(|part| age(open.since, now) >= part);
        if self.open.as_ref().is_some_and(is_aged) {
            self.open = None;
        }
        self.remove_beyond(now, self.bounds.total_bytes);
    }

    /// A new file, after room was made for it.
    fn begin(&mut self, now: SystemTime) -> io::Result<OpenFile> {
        private_file::create_dir(&self.dir)?;
        self.remove_beyond(now, self.bounds.total_bytes.saturating_sub(self.bounds.file_bytes));
        self.opened += 1;
        let ms = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let name = format!("{PREFIX}{ms:013}-{}-{:04}{SUFFIX}", std::process::id(), self.opened);
        let path = self.dir.join(name);
        let file = private_file::create(&path)?;
        Ok(OpenFile { path, file, bytes: 0, since: now })
    }

    /// Removes the oldest files until the others have at most so many bytes, and those that are too old.
    fn remove_beyond(&self, now: SystemTime, most_bytes: u64) {
        let mut kept = self.kept();
        kept.sort_by(|one, other| one.path.cmp(&other.path));
        let mut bytes: u64 = kept.iter().map(|file| file.bytes).sum();
        for file in kept {
            let is_open = self.open.as_ref().is_some_and(|open| open.path == file.path);
            let is_old = self.bounds.max_age.is_some_and(|most| age(file.since, now) >= most);
            if !is_open && (is_old || bytes > most_bytes) && remove_file(&file.path).is_ok() {
                bytes = bytes.saturating_sub(file.bytes);
            }
        }
    }

    /// The recorder's files that are there.
    fn kept(&self) -> Vec<Kept> {
        let entries = read_dir(&self.dir).into_iter().flatten().flatten();
        let kept = entries.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let ms = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.split('-').next()?.parse().ok()?;
            let metadata = entry.metadata().ok().filter(std::fs::Metadata::is_file)?;
            let since = UNIX_EPOCH.checked_add(Duration::from_millis(ms))?;
            Some(Kept { path: entry.path(), bytes: metadata.len(), since })
        });
        kept.collect()
    }
}

fn age(since: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(since).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(unix)]
    use std::os::unix::fs::MetadataExt as _;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn files(dir: &Path) -> Files {
        let max_age = Some(8 * HOUR);
        Files::new(dir, Bounds { file_bytes: 20, total_bytes: 60, max_age })
    }

    fn texts(dir: &Path) -> Vec<String> {
        let mut paths: Vec<PathBuf> = read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
    }

    #[test]
    fn files_are_followed_by_others_and_the_oldest_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("made/when/needed");
        let (mut files, start) = (files(&folder), SystemTime::now());
        for nth in 0..9 {
            files.append(format!("line {nth}..\n").as_bytes(), start + HOUR / 100 * nth).unwrap();
        }
        assert_eq!(texts(&folder), ["line 4..\nline 5..\n", "line 6..\nline 7..\n", "line 8..\n"]);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(
            (mode(&folder), mode(&read_dir(&folder).unwrap().next().unwrap().unwrap().path())),
            (0o700, 0o600)
        );
    }

    #[test]
    fn nothing_is_kept_beyond_its_age_and_other_files_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("toolrein-notes.jsonl"), "mine").unwrap();
        let (mut files, start) = (files(dir.path()), SystemTime::now());
        files.append(b"old\n", start).unwrap();
        files.sweep(start + HOUR);
        files.append(b"newer\n", start + HOUR).unwrap();
        assert_eq!(texts(dir.path()), ["old\n", "newer\n", "mine"]);
        files.sweep(start + 8 * HOUR);
        assert_eq!(texts(dir.path()), ["newer\n", "mine"]);
        files.sweep(start + 9 * HOUR);
        assert_eq!(texts(dir.path()), ["mine"]);
    }

    #[test]
    fn a_file_that_was_removed_is_replaced_and_a_line_that_is_too_long_has_one_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let (mut files, start) = (files(dir.path()), SystemTime::now());
        files.append(b"gone\n", start).unwrap();
        std::fs::remove_file(read_dir(dir.path()).unwrap().next().unwrap().unwrap().path()).unwrap();
        files.append(b"one\n", start).unwrap();
        files.append(b"a line of more than twenty bytes\n", start).unwrap();
        assert_eq!(texts(dir.path()), ["one\n", "a line of more than twenty bytes\n"]);
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_an_error_each_time() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut files = files(&file.path().join("below"));
        assert!(files.append(b"x\n", SystemTime::now()).is_err());
        assert!(files.append(b"x\n", SystemTime::now()).is_err());
    }
}
