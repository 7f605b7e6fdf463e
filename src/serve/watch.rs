//! File watcher: reports when the configuration file, or a file that it names, has changed. It reads the files at an
//! interval rather than waiting for file events, which miss the exchange of symbolic links by which a mounted ConfigMap or
//! Secret changes, and network file systems. Decides when; the caller reloads.

use crate::config::{Certificates, MAX_BYTES, Source, digest_of};
use model::identity::Hash;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Watches what a configuration consists of.
#[derive(Debug)]
pub struct Watch {
    config: FileWatch,
    /// The files of `listen.tls`.
    certificates: FileWatch,
}

impl Watch {
    /// Watches the file of `source` for changes from now on.
    pub fn of(source: &Source) -> Self {
        let path = if let Source::File(path) = source { Some(path.clone()) } else { None };
        Self { config: FileWatch::of(path.into_iter().collect()), certificates: FileWatch::default() }
    }

    /// Watches the files of these certificates for changes since they were read.
    pub fn follow(&mut self, certificates: Option<Certificates>) {
        self.certificates = certificates.map_or_else(FileWatch::default, |found| FileWatch {
            paths: found.files,
            loaded: Some(found.digest),
            changing: None,
        });
    }

    /// Waits until some of the files have changed and were the same twice, `interval` apart. Files that are missing or
    /// empty are waited for. Never returns where `interval` is zero. May be dropped and called again at any time.
    pub async fn changed(&mut self, interval: Duration) {
        tokio::select! {
            () = self.config.changed(interval) => {}
            () = self.certificates.changed(interval) => {}
        }
    }

    /// Takes the present contents for loaded: they are being read for another reason.
    pub fn mark_loaded(&mut self) {
        self.config.mark_loaded();
        self.certificates.mark_loaded();
    }
}

/// Watches files that belong together.
#[derive(Debug, Default)]
struct FileWatch {
    /// Empty: there is no file that can be read twice.
    paths: Vec<PathBuf>,
    /// The digest of the content that was loaded last, or that was refused.
    loaded: Option<Hash>,
    /// The digest of another content, read once so far: it may be half written.
    changing: Option<Hash>,
}

impl FileWatch {
    fn of(paths: Vec<PathBuf>) -> Self {
        let loaded = digest(&paths);
        Self { paths, loaded, changing: None }
    }

    async fn changed(&mut self, interval: Duration) {
        if interval.is_zero() || self.paths.is_empty() {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(interval).await;
            let paths = self.paths.clone();
            // A read of a network file system may block.
            let read = tokio::task::spawn_blocking(move || digest(&paths)).await.ok().flatten();
            if self.has_changed(read) {
                return;
            }
        }
    }

    /// Whether the files have changed, by what was `read` of them now.
    fn has_changed(&mut self, read: Option<Hash>) -> bool {
        let is_steady = read.is_some() && read == self.changing;
        self.changing = read.filter(|read| self.loaded != Some(*read));
        if is_steady {
            self.loaded = self.changing.take();
        }
        is_steady
    }

    fn mark_loaded(&mut self) {
        let read = digest(&self.paths);
        (self.loaded, self.changing) = (read.or(self.loaded), None);
    }
}

/// The digest of the files' contents; `None`: one of them cannot be read, is empty, or is no file, or there are none.
fn digest(paths: &[PathBuf]) -> Option<Hash> {
    let contents: Option<Vec<_>> = paths.iter().map(|path| content(path)).collect();
    let contents = contents.filter(|contents| !contents.is_empty())?;
    Some(digest_of(contents.iter().map(Vec::as_slice)))
}

fn content(path: &Path) -> Option<Vec<u8>> {
    // A pipe would block, and has no second reading.
    let file = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let mut content = Vec::with_capacity(usize::try_from(file.len().min(MAX_BYTES) + 1).ok()?);
    File::open(path).ok()?.take(MAX_BYTES + 1).read_to_end(&mut content).ok()?;
    Some(content).filter(|content| !content.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a change is reported after so many readings.
    fn is_reported(watch: &mut FileWatch, readings: u32) -> bool {
        (0..readings).any(|_| {
            let read = digest(&watch.paths);
            watch.has_changed(read)
        })
    }

    #[test]
    fn a_changed_file_is_reported_once_its_content_is_stable() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("proxy.toml");
        std::fs::write(&path, "a").unwrap();
        let mut watch = FileWatch::of(vec![path.clone()]);
        assert!(!is_reported(&mut watch, 5), "nothing has changed");
        std::fs::write(&path, "half").unwrap();
        assert!(!is_reported(&mut watch, 1), "read once");
        std::fs::write(&path, "half and half").unwrap();
        assert!(!is_reported(&mut watch, 1), "read once, and another content");
        assert!(is_reported(&mut watch, 1));
        assert!(!is_reported(&mut watch, 5), "reported once");
        std::fs::write(&path, "").unwrap();
        assert!(!is_reported(&mut watch, 5), "empty");
        std::fs::remove_file(&path).unwrap();
        assert!(!is_reported(&mut watch, 5), "gone");
        std::fs::write(&path, "back").unwrap();
        watch.mark_loaded();
        assert!(!is_reported(&mut watch, 5), "loaded for another reason");
    }

    #[test]
    fn a_link_that_is_exchanged_is_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("one"), "a").unwrap();
        std::fs::write(at("two"), "b").unwrap();
        std::os::unix::fs::symlink(at("one"), at("proxy.toml")).unwrap();
        let mut watch = FileWatch::of(vec![at("proxy.toml")]);
        std::os::unix::fs::symlink(at("two"), at("next")).unwrap();
        std::fs::rename(at("next"), at("proxy.toml")).unwrap();
        assert!(is_reported(&mut watch, 2));
    }

    #[test]
    fn what_is_not_a_file_is_never_reported() {
        let folder = tempfile::tempdir().unwrap();
        for source in [Source::Shipped, Source::File(folder.path().to_owned())] {
            assert!(!is_reported(&mut Watch::of(&source).config, 5), "{source:?}");
        }
    }

    #[test]
    fn related_files_are_reported_once_all_of_them_are_stable() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["tls.crt", "tls.key"].map(|name| folder.path().join(name));
        paths.iter().for_each(|path| std::fs::write(path, "a").unwrap());
        let mut watch = FileWatch::of(paths.to_vec());
        std::fs::write(&paths[0], "b").unwrap();
        assert!(!is_reported(&mut watch, 1));
        std::fs::write(&paths[1], "b").unwrap();
        assert!(!is_reported(&mut watch, 1), "the second file changed since");
        assert!(is_reported(&mut watch, 1));
        std::fs::remove_file(&paths[1]).unwrap();
        assert!(!is_reported(&mut watch, 5), "one is gone");
    }
}
