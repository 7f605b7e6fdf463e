//! The private folder of one run: the recording that `explain` reads, and the log. Folders of earlier runs are removed
//! after a week.

use crate::secret::random_token;
use crate::state_dir;
use crate::telemetry::private_file;
use std::fs::{File, read_dir, remove_dir_all};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// As long as the recorder keeps what it wrote (`record.max_age`).
const KEPT: Duration = Duration::from_secs(7 * 24 * 3_600);
/// The beginning of a folder's name; no other folder is removed.
const PREFIX: &str = "run-";

/// See the module's documentation.
pub struct Folder(PathBuf);

impl Folder {
    /// A new folder below the user's directory of state; in the system's temporary directory where that cannot be
    /// written.
    ///
    /// # Errors
    /// Neither can be written.
    pub fn create() -> io::Result<Self> {
        let runs = state_dir::path().map(|state| state.join("runs"));
        if let Some(folder) = runs.as_deref().and_then(|runs| Self::create_in(runs).ok()) {
            return Ok(folder);
        }
        // A name that nobody can take before.
        Self::create_in(&std::env::temp_dir().join(format!("toolrein-{}", random_token())))
    }

    fn create_in(runs: &Path) -> io::Result<Self> {
        state_dir::create(runs)?;
        remove_old(runs, SystemTime::now());
        let started = humantime::format_rfc3339_seconds(SystemTime::now()).to_string().replace(':', "");
        let folder = runs.join(format!("{PREFIX}{started}-{}", std::process::id()));
        state_dir::create(&folder)?;
        Ok(Self(folder))
    }

    /// The folder of the recording.
    pub fn recording(&self) -> PathBuf {
        self.0.join("recording")
    }

    /// Writes the configuration of the agent that is run, for this run alone, and returns where it is.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn write_configuration(&self, text: &str) -> io::Result<PathBuf> {
        let path = self.0.join("agent.yaml");
        private_file::create(&path)?.write_all(text.as_bytes())?;
        Ok(path)
    }

    /// The new file of the log.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn log(&self) -> io::Result<File> {
        private_file::create(&self.0.join("toolrein.log"))
    }
}

/// Removes the folders of runs that ended long ago.
fn remove_old(runs: &Path, now: SystemTime) {
    for entry in read_dir(runs).into_iter().flatten().flatten() {
        let is_run = entry.file_name().to_string_lossy().starts_with(PREFIX);
        // Of the entry itself: a link is no folder of a run.
        let found = entry.metadata().ok().filter(std::fs::Metadata::is_dir);
        let changed = found.and_then(|found| found.modified().ok());
        let is_old = changed.is_some_and(|changed| now.duration_since(changed).is_ok_and(|age| age > KEPT));
        if is_run && is_old {
            // What cannot be removed is tried again by the next run.
            let _ = remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_runs_are_removed_after_a_week_and_nothing_else_is() {
        let runs = tempfile::tempdir().unwrap();
        let folder = Folder::create_in(runs.path()).unwrap();
        std::fs::create_dir(runs.path().join("mine")).unwrap();
        let names = || read_dir(runs.path()).unwrap().count();
        remove_old(runs.path(), SystemTime::now() + KEPT - Duration::from_secs(60));
        assert_eq!(names(), 2);
        remove_old(runs.path(), SystemTime::now() + KEPT + Duration::from_secs(60));
        assert_eq!((names(), folder.0.exists()), (1, false));
    }
}
