//! The configuration file on the command line: its name, its option and its source. Reads no file.

use crate::config::Source;
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::path::PathBuf;

/// A configuration file's name for standard input.
const STDIN: &str = "-";

/// The configuration file of a command that takes no other file: by its name, or as the option that all commands have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(super) struct ConfigArgs {
    /// The configuration file, - for standard input; without it the shipped one.
    #[arg(value_name = "FILE", value_parser = file())]
    config_file: Option<PathBuf>,
    /// The same, as an option.
    #[arg(short, long, value_name = "FILE", env = "TOOLREIN_CONFIG", hide_env_values = true, value_parser = file())]
    pub(super) config: Option<PathBuf>,
}

impl ConfigArgs {
    /// Makes the file that was named alone the one of the option.
    pub(super) fn settle(&mut self) {
        self.config = self.config_file.take().or(self.config.take());
    }

    /// The source of the configuration.
    pub(super) fn source(&self) -> Source {
        source(self.config.as_ref())
    }
}

/// A file's name; unlike clap's own parser it accepts an empty variable, which means none.
pub(super) fn file() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// The source that is named by `config`.
pub(super) fn source(config: Option<&PathBuf>) -> Source {
    let named = config.filter(|path| !path.as_os_str().is_empty());
    named.map_or(Source::Folder, |path| match path.as_os_str() == STDIN {
        true => Source::Stdin,
        false => Source::File(path.clone()),
    })
}
