//! The source of a configuration. Reads its text, bounded and as UTF-8; does not parse it.

use super::error::Problem;
use super::shipped;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The longest accepted configuration, in bytes: a thousand times what one needs.
pub const MAX_BYTES: u64 = 1 << 20;

/// The name under which people keep their configuration.
const IN_FOLDER: &str = "proxy.toml";

/// The source of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The file embedded in the program.
    Shipped,
    File(PathBuf),
    /// `toolrein.toml` in the current folder, where it only allows less than the shipped file; else the shipped file.
    Folder,
    /// The text of that file, which may be loaded.
    Found {
        name: String,
        text: String,
    },
    /// Standard input.
    Stdin,
    /// A text in memory; `name` is used in problems.
    Text {
        name: String,
        text: String,
    },
    /// A text that came in a request: no variable is read for it and no file is opened, since its sender could learn what is
    /// in them.
    Request(String),
}

impl Source {
    /// The name in problems and reports.
    pub fn name(&self) -> String {
        match self {
            Self::Shipped | Self::Folder => shipped::NAME.to_owned(),
            Self::File(path) => path.display().to_string(),
            Self::Stdin => "standard input".to_owned(),
            Self::Text { name, .. } | Self::Found { name, .. } => name.clone(),
            Self::Request(_) => "configuration".to_owned(),
        }
    }

    /// Whether variables of the environment and files may be read for it.
    pub(super) fn is_trusted(&self) -> bool {
        !matches!(self, Self::Request(_))
    }

    /// A warning about a file in the current folder that looks like a configuration and is not this source.
    pub(super) fn passed_over(&self) -> Option<String> {
        let is_unnamed = matches!(self, Self::Shipped | Self::Found { .. });
        let is_there = is_unnamed && Path::new(IN_FOLDER).is_file();
        let text = is_there.then(|| std::fs::read_to_string(IN_FOLDER).unwrap_or_default())?;
        // A copy of the shipped file says what is in force anyway.
        (text != shipped::TEXT).then(|| {
            format!("{IN_FOLDER}: there is such a file in the current folder, and it is not loaded: --config {IN_FOLDER} loads it")
        })
    }

    /// The text; `is_again`: this is a reload by the running program.
    pub(super) fn text(self, is_again: bool) -> Result<String, Problem> {
        let name = self.name();
        let problem = |line, text| Problem { source: name.clone(), line, key: String::new(), text };
        let bytes = match self {
            Self::Shipped | Self::Folder => return Ok(shipped::TEXT.to_owned()),
            Self::Found { .. } if is_again => {
                let text = "is read at the start alone, since it was found and not named; --config names it"
                    .to_owned();
                return Err(problem(None, text));
            }
            Self::Found { text, .. } => return Ok(text),
            Self::Text { text, .. } | Self::Request(text) => text.into_bytes(),
            Self::File(path) if is_again && is_spent(&path) => {
                return Err(problem(None, "is not a regular file, so it cannot be read twice".to_owned()));
            }
            Self::Stdin if is_again => return Err(problem(None, "cannot be read twice".to_owned())),
            Self::Stdin => bounded(io::stdin().lock()).map_err(|error| problem(None, reason(&error)))?,
            Self::File(path) => {
                File::open(path).and_then(bounded).map_err(|error| problem(None, reason(&error)))?
            }
        };
        if bytes.len() as u64 > MAX_BYTES {
            return Err(problem(
                None,
                "is larger than 1 MiB, which is too large for a configuration".to_owned(),
            ));
        }
        String::from_utf8(bytes).map_err(|error| {
            let (good, bad) = error.as_bytes().split_at(error.utf8_error().valid_up_to());
            let line = good.iter().filter(|&&byte| byte == b'\n').count() + 1;
            let byte = bad.first().copied().unwrap_or_default();
            problem(Some(line), format!("not UTF-8 text (byte 0x{byte:02x})"))
        })
    }
}

/// All bytes, at most one more than allowed.
pub(super) fn bounded(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether `path` cannot be read a second time, as a pipe, which would block the reader for ever.
pub(super) fn is_spent(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// Why a file cannot be read, as a text for the operator.
pub(super) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::IsADirectory => "is a directory, not a file".to_owned(),
        io::ErrorKind::PermissionDenied => "cannot be read (permission denied)".to_owned(),
        _ => format!("cannot be read: {error}"),
    }
}
