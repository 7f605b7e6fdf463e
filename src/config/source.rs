//! Where a configuration comes from. Gets its text, bounded and as UTF-8; does not understand it.

use super::error::Problem;
use super::shipped;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The longest configuration that is read, in bytes: a thousand times what one needs.
const MAX_BYTES: u64 = 1 << 20;

/// Where a configuration comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The file embedded in the program.
    Shipped,
    File(PathBuf),
    /// A text at hand; `name` stands in problems.
    Text {
        name: String,
        text: String,
    },
}

impl Source {
    /// What stands in problems and reports.
    pub fn name(&self) -> String {
        match self {
            Self::Shipped => shipped::NAME.to_owned(),
            Self::File(path) => path.display().to_string(),
            Self::Text { name, .. } => name.clone(),
        }
    }

    /// The text; `is_again`: the program runs already, with what it read before.
    pub(super) fn text(self, is_again: bool) -> Result<String, Problem> {
        let name = self.name();
        let problem = |line, text| Problem { source: name.clone(), line, key: String::new(), text };
        let bytes = match self {
            Self::Shipped => return Ok(shipped::TEXT.to_owned()),
            Self::Text { text, .. } => text.into_bytes(),
            Self::File(path) if is_again && is_spent(&path) => {
                return Err(problem(None, "is no regular file, so it cannot be read twice".to_owned()));
            }
            Self::File(path) => read(&path).map_err(|error| problem(None, reason(&error)))?,
        };
        if bytes.len() as u64 > MAX_BYTES {
            return Err(problem(None, "larger than 1 MiB, so hardly a configuration".to_owned()));
        }
        String::from_utf8(bytes).map_err(|error| {
            let (good, bad) = error.as_bytes().split_at(error.utf8_error().valid_up_to());
            let line = good.iter().filter(|&&byte| byte == b'\n').count() + 1;
            let byte = bad.first().copied().unwrap_or_default();
            problem(Some(line), format!("not UTF-8 text (byte 0x{byte:02x})"))
        })
    }
}

/// The file's bytes, one more than allowed at most.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether nothing can be had of `path` a second time: of a pipe, which would keep who reads it waiting for ever.
fn is_spent(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// Why a file cannot be read, in plain words.
pub(super) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::IsADirectory => "is a directory, not a file".to_owned(),
        io::ErrorKind::PermissionDenied => "may not be read (permission denied)".to_owned(),
        _ => format!("cannot be read: {error}"),
    }
}
