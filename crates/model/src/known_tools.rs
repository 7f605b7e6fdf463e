//! Lists of tools that requests declare after their messages: at another position in every request, and always with the same
//! bytes. Such a list is read once. Knows no dialect.

use super::checkpoint::Checkpoint;
use super::identity::{Domain, Hash, HashKey};
use super::memo::{Derived, Memo};
use super::request::{Request, Tool};
use super::tokens::Estimate;
use std::sync::{Arc, OnceLock};
use wire::body::{Scanner, Span, Str};

/// A list of tools as it is written, and what was read of it. The memo keeps it; checkpoints only refer to it, since many
/// conversations declare the same tools.
#[derive(Debug)]
pub struct KnownTools {
    bytes: Box<[u8]>,
    /// As spans of these bytes.
    tools: Vec<Tool>,
    namespaces: Vec<Tool>,
    /// See [`Transcript::tool_names`](super::Transcript::tool_names).
    pub(crate) names: OnceLock<Arc<[String]>>,
    /// A hash of the tools' names.
    pub(crate) names_hash: OnceLock<Hash>,
    /// See [`Transcript::definitions_digest`](super::Transcript::definitions_digest).
    pub(crate) digest: OnceLock<Hash>,
    /// The estimate of their definitions.
    pub(crate) counted: OnceLock<Estimate>,
}

impl Derived for KnownTools {
    fn weight(&self) -> usize {
        // Each name is kept with its namespace.
        let length = |text: Option<Str>| text.map_or(0, |text| text.span.len() + 1);
        let name_of = |tool: &Tool| length(tool.namespace) + length(tool.name) + size_of::<String>();
        let names: usize = self.tools.iter().map(name_of).sum();
        self.bytes.len() + (self.tools.len() + self.namespaces.len()) * size_of::<Tool>() + names
    }
}

impl KnownTools {
    fn of(request: &Request, list: Span, body: &[u8]) -> Self {
        let start = list.range().start;
        let within = |tools: &[Tool]| {
            let own = tools.iter().filter(|tool| list.start <= tool.span.start && tool.span.end <= list.end);
            own.map(|tool| tool.moved(start, 0)).collect()
        };
        Self {
            bytes: list.of(body).into(),
            tools: within(&request.tools),
            namespaces: within(&request.namespaces),
            names: OnceLock::new(),
            names_hash: OnceLock::new(),
            digest: OnceLock::new(),
            counted: OnceLock::new(),
        }
    }
}

impl Checkpoint {
    /// Keeps the tools that `request`, which was read from `body`, declares after its messages: for requests that go on
    /// from here.
    pub fn keep_tools(&self, request: &Request, body: &[u8], key: &HashKey, memo: &dyn Memo) {
        let is_after = |list: &Span| list.range().start >= self.bytes() && !request.has_odd_text;
        let Some(list) = request.tool_list.filter(is_after) else { return };
        let name = key.hash(Domain::Prefix, &[b"tools", list.of(body)]);
        let tools = memo.derive(name, || KnownTools::of(request, list, body));
        self.know_tools(&tools);
    }
}

impl Request {
    /// Takes the tools of the list before which `scanner` is, if an earlier request of the conversation declared the same
    /// list; says whether it did.
    pub fn take_known_tools(&mut self, scanner: &mut Scanner<'_>) -> bool {
        let known = self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.tools());
        let at = scanner.at();
        let Some(known) = known.filter(|known| scanner.text()[at..].starts_with(&known.bytes)) else {
            return false;
        };
        self.tools.extend(known.tools.iter().map(|tool| tool.moved(0, at)));
        self.namespaces.extend(known.namespaces.iter().map(|tool| tool.moved(0, at)));
        scanner.pass(known.bytes.len());
        self.known_tools = Some(known);
        true
    }

    /// The list of tools that it took, if it declares no others.
    pub(crate) fn only_known_tools(&self) -> Option<&Arc<KnownTools>> {
        self.known_tools.as_ref().filter(|known| known.tools.len() == self.tools.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;
    use crate::testing::{SampleRequest, hidden_exchange, user};

    #[test]
    fn the_names_of_tools_are_in_order_and_a_tool_without_a_name_has_none() {
        let request = SampleRequest::new(&[user("q")]);
        let request = request.declaring("a", "{}").defining(None, "{}").declaring("b", "{}");
        let identity = Identity { key: HashKey::fixed(1), caller: Hash(1), explicit: None };
        let mut transcript = request.transcript(&identity);
        assert_eq!(**transcript.tool_names(), ["a", "b"]);
        transcript.add_hidden(0, hidden_exchange(&[user("h")]));
        assert_eq!(**transcript.tool_names(), ["a", "b"]);
    }

    #[test]
    fn a_list_of_tools_weighs_at_least_what_the_names_with_their_namespaces_take() {
        let text = |length: usize| Some(Str { span: Span::new(0, length), ..Str::default() });
        let tool = Tool { name: text(1), namespace: text(16_000), ..Tool::default() };
        let known = KnownTools {
            bytes: Box::default(),
            tools: vec![tool; 100],
            namespaces: Vec::new(),
            names: OnceLock::new(),
            names_hash: OnceLock::new(),
            digest: OnceLock::new(),
            counted: OnceLock::new(),
        };
        assert!(known.weight() > 100 * 16_000);
    }
}
