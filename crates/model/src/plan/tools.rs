//! Changes of the tools that a request declares.

use super::{Declared, OwnTool, Plan};
use std::sync::Arc;

/// A change of the request's tools. It must be a function of the configuration and the declared tools alone, so that
/// `tools` stays the same through a conversation and with it the prompt cache. Annotations may depend on pinned
/// definitions too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolsEdit {
    /// The tool is hidden from the model.
    Hide(String),
    /// `text` is put before the description of the tool with this index of those that the request declares.
    Annotate { index: usize, text: String },
    /// A tool of ours is declared after the client's: JSON with its name, description and parameters.
    Declare(Arc<str>),
    /// The name is that of a tool of this policy's own: the policy alone judges its calls, and the client never sees
    /// them. `reads_results`: markers in place of results may name it as the way to read that result.
    Own { name: &'static str, reads_results: bool },
    /// The model is asked for one call at a time.
    OneCallAtATime,
}

impl Plan {
    /// Changes the tools that the model is shown.
    pub fn edit_tools(&mut self, edit: ToolsEdit) {
        let policy = self.at.policy;
        match edit {
            ToolsEdit::Hide(name) => {
                if !self.hidden.iter().any(|(_, hidden)| *hidden == name) {
                    self.hidden.push((policy, name));
                }
            }
            ToolsEdit::Annotate { index, text } => self.annotated.push((policy, index, text)),
            ToolsEdit::Declare(tool) => self.declared.push(Declared { policy, tool }),
            ToolsEdit::Own { name, reads_results } => self.own.push(OwnTool { policy, name, reads_results }),
            ToolsEdit::OneCallAtATime => self.one_at_a_time = true,
        }
    }

    /// What is put before descriptions: the policy, the tool's index, the text.
    pub fn annotated_tools(&self) -> impl Iterator<Item = (&'static str, usize, &str)> {
        self.annotated.iter().map(|(policy, at, text)| (*policy, *at, text.as_str()))
    }

    /// The tools of ours that the model may call, each with its policy.
    pub fn own_tools(&self) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
        self.own.iter().map(|own| (own.name, own.policy))
    }

    /// The tool of ours by which the model reads a whole result, by the number of its call, if there is one.
    pub fn reader(&self) -> Option<&'static str> {
        self.own.iter().find(|own| own.reads_results).map(|own| own.name)
    }
}
