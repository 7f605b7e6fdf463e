//! The configuration file of an agent on the disk: read once, and replaced as a whole, with the owner and the mode
//! that it had, and through the symbolic links that lead to it.

use crate::telemetry::private_file;
use std::fs::{File, Metadata, remove_dir, remove_file, rename};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The largest file that is read: a thousand times what a configuration needs.
const MOST_BYTES: u64 = 1 << 20;

/// A file as it was read.
#[derive(Debug)]
pub(super) struct ConfigFile {
    /// Symbolic links followed.
    pub path: PathBuf,
    /// `None`: there is none.
    pub text: Option<String>,
}

impl ConfigFile {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// A sentence for the user.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let about = |what: &str| format!("{}: {what}", path.display());
        let path = match path.canonicalize() {
            Ok(path) => path,
            Err(_) if path.symlink_metadata().is_ok() => {
                return Err(about("is a symbolic link to a file that is not there"));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { path: path.to_owned(), text: None });
            }
            Err(error) => return Err(about(&error.to_string())),
        };
        let found = path.metadata().map_err(|error| about(&error.to_string()))?;
        if !found.is_file() || found.len() > MOST_BYTES {
            return Err(about("is not a file of configuration"));
        }
        let text = std::fs::read(&path).map_err(|error| about(&error.to_string()))?;
        let text = String::from_utf8(text).map_err(|_| about("is not UTF-8 text"))?;
        Ok(Self { path, text: Some(text) })
    }

    /// Checks that it may be changed.
    ///
    /// # Errors
    /// It is read-only.
    pub(super) fn check_writable(&self) -> Result<(), String> {
        let found = self.path.metadata().ok();
        match found.is_some_and(|found| found.permissions().readonly()) {
            true => Err(format!("{}: is read-only, so it is not changed", self.path.display())),
            false => Ok(()),
        }
    }

    /// The folders above it that are not there, the innermost last.
    pub(super) fn missing_folders(&self) -> Vec<PathBuf> {
        let above = self.path.ancestors().skip(1);
        let mut missing: Vec<PathBuf> =
            above.take_while(|folder| folder.symlink_metadata().is_err()).map(Path::to_owned).collect();
        missing.reverse();
        missing
    }

    /// Makes these folders.
    ///
    /// # Errors
    /// Those of the disk.
    pub(super) fn create_folders(folders: &[PathBuf]) -> Result<(), String> {
        folders.iter().try_for_each(|folder| {
            // Private, since configurations may hold keys.
            let made = private_file::create_dir(folder);
            made.map_err(|error| format!("{}: {error}", folder.display()))
        })
    }

    /// Replaces its contents, if it still is as it was read.
    ///
    /// # Errors
    /// Somebody else has changed it meanwhile, or those of the disk; it is unchanged then.
    pub(super) fn replace(&self, text: &str) -> Result<(), String> {
        self.check_unchanged()?;
        let failed = |error: io::Error| format!("{}: {error}", self.path.display());
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".toolrein-{}", std::process::id()));
        let beside = self.path.with_file_name(name);
        let before = self.path.metadata().ok();
        let written = private_file::create(&beside).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            if let Some(before) = before {
                keep_owner(&file, &before)?;
                // After the owner, whose change may take bits of the mode away.
                file.set_permissions(before.permissions())?;
            }
            file.sync_all()
        });
        written.and_then(|()| rename(&beside, &self.path)).map_err(|error| {
            // The file itself is unchanged.
            let _ = remove_file(&beside);
            failed(error)
        })
    }

    /// Removes it, if it still is as it was read, and those of the `folders` that are empty then.
    ///
    /// # Errors
    /// As [`Self::replace`].
    pub(super) fn remove(&self, folders: &[PathBuf]) -> Result<(), String> {
        self.check_unchanged()?;
        if self.text.is_some() {
            remove_file(&self.path).map_err(|error| format!("{}: {error}", self.path.display()))?;
        }
        // One that holds something else by now stays.
        folders.iter().rev().for_each(|folder| drop(remove_dir(folder)));
        Ok(())
    }

    fn check_unchanged(&self) -> Result<(), String> {
        let now = Self::read(&self.path)?;
        match now.text == self.text {
            true => Ok(()),
            false => {
                Err(format!("{}: was changed by another program meanwhile; try again", self.path.display()))
            }
        }
    }
}

/// Gives the new file the owner and the group of the old one, where they differ: root may change files of others.
#[cfg(unix)]
fn keep_owner(file: &File, before: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, fchown};
    let new = file.metadata()?;
    let other = |old: u32, new: u32| Some(old).filter(|old| *old != new);
    let (user, group) = (other(before.uid(), new.uid()), other(before.gid(), new.gid()));
    if user.is_some() || group.is_some() { fchown(file, user, group) } else { Ok(()) }
}

/// Elsewhere a new file has the owner that its directory gives it.
#[cfg(not(unix))]
fn keep_owner(_file: &File, _before: &Metadata) -> io::Result<()> {
    Ok(())
}
