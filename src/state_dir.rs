//! The private directory of state that outlives a command: recordings of `run`, copies of files that `setup` changed.
//! Only its owner may read it.

use crate::telemetry::private_file;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// The name below the user's directory of state.
const NAME: &str = "toolrein";

/// Where it is: in `XDG_STATE_HOME`, else in the home directory's `.local/state`. `None`: the user has no home.
pub fn path() -> Option<PathBuf> {
    path_by(|name| std::env::var_os(name))
}

fn path_by(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // The specification has relative paths ignored.
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join(NAME))
}

/// Makes the directory `path` and those above it, readable by their owner alone where they are new.
///
/// # Errors
/// Those of the disk.
pub fn create(path: &Path) -> io::Result<()> {
    private_file::create_dir(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_of_state_is_that_of_the_xdg_specification() {
        for (state, home, expected) in [
            (Some("/s"), Some("/h"), Some("/s/toolrein")),
            (Some("relative"), Some("/h"), Some("/h/.local/state/toolrein")),
            (Some(""), Some("/h"), Some("/h/.local/state/toolrein")),
            (None, Some("/h"), Some("/h/.local/state/toolrein")),
            (None, Some(""), None),
            (None, None, None),
        ] {
            let variable = |name: &str| match name {
                "XDG_STATE_HOME" => state.map(OsString::from),
                _ => home.map(OsString::from),
            };
            assert_eq!(path_by(variable), expected.map(PathBuf::from), "{state:?} {home:?}");
        }
    }
}
