//! Files that only their owner may read: made with that permission, and compared with what is at their path now. The one
//! place that asks the operating system for either; who writes what is decided elsewhere.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::path::Path;

#[cfg(unix)]
use rustix::fs::{OFlags, fcntl_setfl};
#[cfg(unix)]
use rustix::io::Errno;
#[cfg(unix)]
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};

#[cfg(unix)]
const DIR_MODE: u32 = 0o700;
#[cfg(unix)]
const FILE_MODE: u32 = 0o600;

/// Makes a directory that only its owner may enter, and the directories above it.
///
/// # Errors
/// Those of the disk.
pub(crate) fn create_dir(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, DIR_MODE);
    builder.create(path)
}

/// Opens the file at `path` for appending. A new file may be read and written by its owner alone; outside of Unix it has
/// the permissions of its directory.
///
/// # Errors
/// Those of the disk; a named pipe that no program reads, which would otherwise be waited for.
pub(crate) fn append(path: &Path) -> io::Result<File> {
    #[cfg(unix)]
    if std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo()) {
        return open_pipe(path);
    }
    options().create(true).open(path)
}

/// Opens a named pipe without waiting for a reader; writing to it then waits, as to any file.
#[cfg(unix)]
fn open_pipe(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let pipe = options().custom_flags(flags).open(path).map_err(|error| {
        let is_unread = Errno::from_io_error(&error) == Some(Errno::NXIO);
        if is_unread { io::Error::other("it is a pipe that no program reads") } else { error }
    })?;
    fcntl_setfl(&pipe, OFlags::APPEND)?;
    Ok(pipe)
}

/// Makes a new file for appending, never through a link that somebody has put there.
///
/// # Errors
/// Those of the disk; there is something at `path`.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    options().create_new(true).open(path)
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.append(true);
    #[cfg(unix)]
    options.mode(FILE_MODE);
    options
}

/// Whether `path` still leads to `file`: somebody may have moved or removed it.
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    let there = std::fs::metadata(path).ok();
    file.metadata().ok().zip(there).is_some_and(|(here, there)| is_same(&here, &there))
}

#[cfg(unix)]
fn is_same(here: &std::fs::Metadata, there: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    (here.dev(), here.ino()) == (there.dev(), there.ino())
}

/// Elsewhere a file has no number in the standard library; two of one time of creation and one length are taken for one.
#[cfg(not(unix))]
fn is_same(here: &std::fs::Metadata, there: &std::fs::Metadata) -> bool {
    let created = here.created().ok();
    created.is_some() && created == there.created().ok() && here.len() == there.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn a_file_is_its_owners_alone_and_is_not_at_a_path_that_leads_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("made/when/needed");
        create_dir(&dir).unwrap();
        let path = dir.join("audit.jsonl");
        let mut file = append(&path).unwrap();
        file.write_all(b"one").unwrap();
        append(&path).unwrap().write_all(b"two").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "onetwo");
        assert!(is_at(&file, &path));
        assert_eq!(create(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt as _;
            let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
            assert_eq!((mode(&dir), mode(&path)), (DIR_MODE, FILE_MODE));
        }
        std::fs::rename(&path, dir.join("moved")).unwrap();
        assert!(!is_at(&file, &path), "there is none");
        create(&path).unwrap().write_all(b"another").unwrap();
        assert!(!is_at(&file, &path), "there is another");
    }
}
