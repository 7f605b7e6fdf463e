//! File watcher: reports when the configuration file has changed. It reads the file at an interval rather than waiting for
//! file events, which miss the exchange of symbolic links by which a mounted ConfigMap changes, and network file systems.
//! Decides when; the caller reloads.

use crate::config::{MAX_BYTES, Source};
use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// See the module.
#[derive(Debug)]
pub struct FileWatch {
    /// `None`: the configuration is not in a file that can be read twice.
    path: Option<PathBuf>,
    /// The digest of the content that was loaded last, or that was refused.
    loaded: Option<u64>,
    /// The digest of another content, read once so far: it may be half written.
    changing: Option<u64>,
}

impl FileWatch {
    /// Watches the file of `source` for changes from now on.
    pub fn of(source: &Source) -> Self {
        let path = if let Source::File(path) = source { Some(path.clone()) } else { None };
        let loaded = path.as_deref().and_then(digest);
        Self { path, loaded, changing: None }
    }

    /// Waits until the file has changed and was the same twice, `interval` apart. A file that is missing or empty is
    /// waited for. Never returns where `interval` is zero. May be dropped and called again at any time.
    pub async fn changed(&mut self, interval: Duration) {
        let Some(path) = self.path.clone().filter(|_| !interval.is_zero()) else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep(interval).await;
            let path = path.clone();
            // A read of a network file system may block.
            let read = tokio::task::spawn_blocking(move || digest(&path)).await.ok().flatten();
            if self.has_changed(read) {
                return;
            }
        }
    }

    /// Whether the file has changed, by what was `read` of it now.
    fn has_changed(&mut self, read: Option<u64>) -> bool {
        let is_steady = read.is_some() && read == self.changing;
        self.changing = read.filter(|read| self.loaded != Some(*read));
        if is_steady {
            self.loaded = self.changing.take();
        }
        is_steady
    }

    /// Takes the present content for loaded: it is being read for another reason.
    pub fn mark_loaded(&mut self) {
        let read = self.path.as_deref().and_then(digest);
        (self.loaded, self.changing) = (read.or(self.loaded), None);
    }
}

/// The digest of a file's content; `None`: it cannot be read, is empty, or is no file.
fn digest(path: &Path) -> Option<u64> {
    // A pipe would block, and has no second reading.
    path.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let mut content = Vec::new();
    File::open(path).ok()?.take(MAX_BYTES + 1).read_to_end(&mut content).ok()?;
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    (!content.is_empty()).then(|| hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a change is reported after so many readings.
    fn is_reported(watch: &mut FileWatch, readings: u32) -> bool {
        (0..readings).any(|_| {
            let read = watch.path.as_deref().and_then(digest);
            watch.has_changed(read)
        })
    }

    #[test]
    fn a_content_is_reported_once_it_was_the_same_twice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("proxy.toml");
        std::fs::write(&path, "a").unwrap();
        let mut watch = FileWatch::of(&Source::File(path.clone()));
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
        let mut watch = FileWatch::of(&Source::File(at("proxy.toml")));
        std::os::unix::fs::symlink(at("two"), at("next")).unwrap();
        std::fs::rename(at("next"), at("proxy.toml")).unwrap();
        assert!(is_reported(&mut watch, 2));
    }

    #[test]
    fn what_is_not_a_file_is_never_reported() {
        let folder = tempfile::tempdir().unwrap();
        for source in [Source::Shipped, Source::File(folder.path().to_owned())] {
            assert!(!is_reported(&mut FileWatch::of(&source), 5), "{source:?}");
        }
    }
}
