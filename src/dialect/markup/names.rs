//! The names of the tools that a model knows, and the spellings in which it writes them.

/// The names of the tools that the model may call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolNames(Vec<String>);

impl ToolNames {
    /// The names of these tools.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        let mut names: Vec<String> = names.into_iter().filter(|name| !name.is_empty()).collect();
        // A model may leave out the name space of a tool.
        let bare = |name: &String| name.rsplit_once('.').map(|(_, last)| last.to_owned());
        names.extend(names.iter().filter_map(bare).collect::<Vec<_>>());
        names.sort_unstable();
        names.dedup();
        Self(names)
    }

    /// Whether none is known.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `written` names one of the tools, also as a member of a name space or with a number (`functions.f:0`).
    pub(super) fn contain(&self, written: &str) -> bool {
        let is_known = |name: &str| self.0.binary_search_by(|known| known.as_str().cmp(name)).is_ok();
        let unnumbered = written.trim_end_matches(|c: char| c.is_ascii_digit());
        let bare = unnumbered.strip_suffix(':').unwrap_or(written);
        [written, bare]
            .iter()
            .any(|name| is_known(name) || name.rsplit_once('.').is_some_and(|(_, last)| is_known(last)))
    }
}
