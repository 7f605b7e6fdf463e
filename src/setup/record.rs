//! What `setup` did to an agent's files: a record for each, kept in the user's private directory of state with a copy of the
//! file as it was, until `undo`.

use super::insert::{Insertion, insert_all};
use crate::state_dir;
use crate::telemetry::private_file;
use serde::{Deserialize, Serialize};
use std::fs::{File, TryLockError, remove_file};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// What was done to a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The file, symbolic links followed.
    pub path: PathBuf,
    /// As it was; `None`: there was none.
    pub before: Option<String>,
    pub insertions: Vec<Insertion>,
    /// The folders that were made for it, the innermost last.
    pub folders: Vec<PathBuf>,
}

impl Record {
    /// The file as `setup` left it.
    pub(super) fn after(&self) -> String {
        insert_all(self.before.as_deref().unwrap_or_default(), &self.insertions)
    }

    /// Whether it is about the file at `path`, whose symbolic links were followed.
    pub(super) fn is_of(&self, path: &Path) -> bool {
        // A file that was not there was kept as it was named.
        self.path == path || self.path.canonicalize().is_ok_and(|own| own == path)
    }

    /// Whether this value is part of what was inserted.
    pub(super) fn has(&self, value: &str) -> bool {
        self.insertions.iter().any(|insertion| insertion.text.contains(value))
    }

    /// Whether its insertions are in the text that it holds, in their order.
    fn is_sound(&self) -> bool {
        let before = self.before.as_deref().unwrap_or_default();
        self.insertions.iter().all(|insertion| before.is_char_boundary(insertion.at))
            && self.insertions.is_sorted_by_key(|insertion| insertion.at)
    }
}

/// A record with the file that it is kept in.
pub(super) struct KeptRecord {
    file: PathBuf,
    pub record: Record,
}

/// The records. While it exists no other `setup` or `undo` of the user changes anything.
pub(super) struct Records {
    folder: PathBuf,
    /// Locked.
    _lock: File,
}

impl Records {
    /// Opens the records, and makes their folder where there is none.
    ///
    /// # Errors
    /// A sentence for the user.
    pub(super) fn open() -> Result<Self, String> {
        let folder =
            state_dir::path().ok_or("HOME is not set, so nothing can be kept for undo")?.join("setup");
        let failed = |error: io::Error| format!("{}: {error}", folder.display());
        state_dir::create(&folder).map_err(failed)?;
        let lock = private_file::append(&folder.join("lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { folder, _lock: lock }),
            Err(TryLockError::WouldBlock) => {
                Err("another toolrein setup or undo is running; try again".to_owned())
            }
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// The records of this agent, one for each file that was set up; those that cannot be read as a sentence.
    ///
    /// # Errors
    /// Those of the disk.
    pub(super) fn of(&self, agent: &str) -> Result<Vec<Result<KeptRecord, String>>, String> {
        of_agent(&self.folder, agent)
    }

    /// Keeps the record. Done before the file is changed, so that nothing is changed that cannot be undone.
    ///
    /// # Errors
    /// Those of the disk.
    pub(super) fn keep(&self, agent: &str, record: Record) -> Result<KeptRecord, String> {
        let names = std::iter::once(format!("{agent}.json"));
        let names = names.chain((2_u32..).map(|number| format!("{agent}-{number}.json")));
        let mut paths = names.map(|name| self.folder.join(name));
        let file = paths.find(|path| path.symlink_metadata().is_err()).unwrap_or_default();
        let written = serde_json::to_vec(&record).map_err(io::Error::other);
        written
            .and_then(|bytes| write_new(&file, &bytes))
            .map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(KeptRecord { file, record })
    }

    /// Forgets the record.
    ///
    /// # Errors
    /// Those of the disk.
    pub(super) fn forget(&self, kept: &KeptRecord) -> Result<(), String> {
        remove_file(&kept.file).map_err(|error| format!("{}: {error}", kept.file.display()))
    }

    /// Keeps `text`, the file of the agent as the user had changed it; returns where.
    ///
    /// # Errors
    /// Those of the disk.
    pub(super) fn keep_changed(&self, agent: &str, text: &str) -> Result<PathBuf, String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let path = self.folder.join(format!("{agent}.changed-{now}"));
        write_new(&path, text.as_bytes()).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }
}

/// Whether `setup` has written this value for the agent, as far as is known. Waits for nobody who changes records.
pub(super) fn has_written(agent: &str, value: &str) -> bool {
    let found = state_dir::path().map(|state| of_agent(&state.join("setup"), agent));
    let mut kept = found.and_then(Result::ok).into_iter().flatten().flatten();
    kept.any(|kept| kept.record.has(value))
}

/// The records of an agent in the folder.
fn of_agent(folder: &Path, agent: &str) -> Result<Vec<Result<KeptRecord, String>>, String> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("{}: {error}", folder.display())),
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let number = name.strip_prefix(agent).and_then(|rest| rest.strip_suffix(".json"));
        number.is_some_and(|number| number.is_empty() || number.starts_with('-'))
    });
    files.sort_unstable();
    Ok(files.into_iter().map(|file| read(file, agent)).collect())
}

fn read(file: PathBuf, agent: &str) -> Result<KeptRecord, String> {
    let bytes = std::fs::read(&file).map_err(|error| error.to_string());
    let record = bytes.and_then(|bytes| serde_json::from_slice(&bytes).map_err(|error| error.to_string()));
    let sound = record.and_then(|record: Record| match record.is_sound() {
        true => Ok(record),
        false => Err("its parts do not fit each other".to_owned()),
    });
    match sound {
        Ok(record) => Ok(KeptRecord { file, record }),
        Err(why) => Err(format!(
            "{}: this record of what setup did to {agent} cannot be read ({why}). Take toolrein's line out of the file of \
             {agent} by hand, and remove the record",
            file.display()
        )),
    }
}

/// Writes a file that must not be there yet. Only its owner may read it: the copied file may hold keys.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = private_file::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
