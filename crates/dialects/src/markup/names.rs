//! The names of the tools that a model knows, and the spellings in which it writes them.

/// The names of the tools that the model may call, and of their parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolNames {
    names: Vec<String>,
    /// By the tool's name; absent where they are not known.
    parameters: Vec<(String, Vec<String>)>,
}

impl ToolNames {
    /// The names of these tools.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        let mut names: Vec<String> = names.into_iter().filter(|name| !name.is_empty()).collect();
        // A model may leave out the name space of a tool.
        let bare = |name: &String| name.rsplit_once('.').map(|(_, last)| last.to_owned());
        names.extend(names.iter().filter_map(bare).collect::<Vec<_>>());
        names.sort_unstable();
        names.dedup();
        Self { names, parameters: Vec::new() }
    }

    /// The same tools; those in `parameters` have these.
    #[must_use]
    pub fn with_parameters(mut self, parameters: &[(String, Vec<String>)]) -> Self {
        self.parameters.extend_from_slice(parameters);
        self
    }

    /// Whether none is known.
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether `written` names one of the tools, also as a member of a name space or with a number (`functions.f:0`).
    pub(super) fn contain(&self, written: &str) -> bool {
        let is_known = |name: &str| self.names.binary_search_by(|known| known.as_str().cmp(name)).is_ok();
        spellings(written).any(is_known)
    }

    /// Whether the parameters of the tool that `written` names are known.
    pub(super) fn know_parameters(&self, written: &str) -> bool {
        self.parameters_of(written).next().is_some()
    }

    /// Whether the tool that `written` names is known to have this parameter.
    pub(super) fn have_parameter(&self, written: &str, parameter: &str) -> bool {
        self.parameters_of(written).any(|known| known == parameter)
    }

    fn parameters_of(&self, written: &str) -> impl Iterator<Item = &str> {
        let is_named = move |tool: &str| spellings(written).any(|name| last_part(tool) == last_part(name));
        let of_tool = self.parameters.iter().filter(move |(tool, _)| is_named(tool));
        of_tool.flat_map(|(_, parameters)| parameters.iter().map(String::as_str))
    }
}

/// The name as it is written, and without a number and a name space.
fn spellings(written: &str) -> impl Iterator<Item = &str> {
    let unnumbered = written.trim_end_matches(|c: char| c.is_ascii_digit());
    let bare = unnumbered.strip_suffix(':').unwrap_or(written);
    [written, bare].into_iter().flat_map(|name| [name, last_part(name)])
}

fn last_part(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(_, last)| last)
}
