//! Where a configuration came from: its source and its text, so that the running program can compare itself with the
//! file, and build the same configuration once more.

use super::error::Problems;
use super::{Config, Overrides, Source, found};
use std::path::Path;

/// See the module's documentation. Never shown: the text may hold secrets.
#[derive(Default)]
pub(super) struct Origin {
    source: Option<Source>,
    text: Option<Source>,
    overrides: Overrides,
}

impl Origin {
    pub(super) fn new(source: Source, text: String, overrides: &Overrides) -> Self {
        let name = source.name();
        let text = match source {
            Source::Shipped => Source::Shipped,
            Source::Request(_) => Source::Request(text),
            _ => Source::Text { name, text },
        };
        Self { source: Some(source), text: Some(text), overrides: overrides.clone() }
    }
}

impl Origin {
    /// Where it came from.
    pub(super) fn source(&self) -> Source {
        self.source.clone().unwrap_or(Source::Shipped)
    }

    /// Whether the file uses this variable of the environment: `${NAME}`, `${NAME:-default}`.
    pub(super) fn names_variable(&self, name: &str) -> bool {
        let Some(Source::Text { text, .. }) = &self.text else { return false };
        text.match_indices("${").any(|(at, _)| {
            let rest = text[at + 2..].strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['}', ':']))
        })
    }

    /// Whether the environment may be read for it.
    pub(super) fn is_trusted(&self) -> bool {
        self.source.as_ref().is_some_and(Source::is_trusted)
    }
}

impl Config {
    /// The file that it was read from.
    pub fn file(&self) -> Option<&Path> {
        match self.origin.source.as_ref()? {
            Source::File(path) => Some(path),
            Source::Shipped
            | Source::Folder
            | Source::Found { .. }
            | Source::Stdin
            | Source::Text { .. }
            | Source::Request(_) => None,
        }
    }

    /// The keys, dotted, in which the file differs from the shipped one.
    pub fn changed_keys(&self, registry: &[policies::Entry]) -> Vec<String> {
        let Some(Source::Text { text, .. }) = &self.origin.text else { return Vec::new() };
        let environment: &dyn Fn(&str) -> Option<String> = &|name| std::env::var(name).ok();
        // It was read before, so it has no problems.
        let differences = found::differences(text, registry, &[], Some(environment)).unwrap_or_default();
        differences.into_iter().map(|difference| difference.key).collect()
    }

    /// Reads the file again, as a start would, overrides included; `None`: it came from no file.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn in_file(&self, registry: &[policies::Entry]) -> Option<Result<Self, Problems>> {
        self.file()?;
        let source = self.origin.source.clone()?;
        Some(Self::load(source, &self.origin.overrides, registry))
    }

    /// Builds the same configuration again, from the text that was read.
    ///
    /// # Errors
    /// As [`Self::load`], where the environment has changed.
    pub fn again(&self, registry: &[policies::Entry]) -> Result<Self, Problems> {
        let text = self.origin.text.clone().unwrap_or(Source::Shipped);
        Self::load(text, &self.origin.overrides, registry)
    }
}
