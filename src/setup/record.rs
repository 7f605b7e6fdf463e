//! What `setup` did to one agent's file: kept in the user's private directory of state with a copy of the file as it was,
//! until `undo`.

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

    /// The record of this agent, if it was set up.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn of(&self, agent: &str) -> Result<Option<Record>, String> {
        let path = self.path(agent);
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| failed(&error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Keeps the record. Done before the file is changed, so that nothing is changed that cannot be undone.
    ///
    /// # Errors
    /// Those of the disk.
    pub(super) fn keep(&self, agent: &str, record: &Record) -> Result<(), String> {
        let path = self.path(agent);
        let written =
            serde_json::to_vec(record).map_err(io::Error::other).and_then(|bytes| write_new(&path, &bytes));
        written.map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Forgets the agent.
    ///
    /// # Errors
    /// Those of the disk.
    pub(super) fn forget(&self, agent: &str) -> Result<(), String> {
        let path = self.path(agent);
        remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))
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

    fn path(&self, agent: &str) -> PathBuf {
        self.folder.join(format!("{agent}.json"))
    }
}

/// Writes a file that must not be there yet. Only its owner may read it: the copied file may hold keys.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = private_file::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
