//! The tool by which the model asks the user: its declaration, whether a question waits for its answer, and the verdict
//! on its calls.

use super::super::RequestView;
use super::super::texts::{Text, Texts, described};
use model::Event;
use model::message::Content;
use model::plan::{Clarification, Issue, Plan, Proposed, Reason, ReasonKind, ToolsEdit, Verdict};
use serde::Deserialize;
use std::sync::Arc;
use wire::hidden_unicode::strip;

/// The tool's name.
pub(super) const TOOL: &str = "ask_for_clarification";
/// The tool's declaration.
const DECLARATION: &str = include_str!("tool.json");

/// The tool's description.
pub(super) const DECLARED: Text = Text {
    key: "declared",
    default: "Asks the user one short question and ends your turn; their answer is the next message. Use it \
              when a choice, a name or a missing detail blocks you and tools cannot give it. Call it alone.",
    placeholders: &[],
};
pub(super) const QUESTION: Text =
    Text { key: "question", default: "{question}", placeholders: &["question"] };
pub(super) const WITH_CONTEXT: Text = Text {
    key: "question_with_context",
    default: "{context}\n\n{question}",
    placeholders: &["question", "context"],
};
pub(super) const ASKED: Text = Text {
    key: "asked",
    default: "[toolrein: the user is asked; their answer is the next user message]",
    placeholders: &[],
};
pub(super) const PUT_OFF: Text = Text {
    key: "put_off",
    default: "The user was not asked: other calls of the same reply run first. If you still need the answer after \
              their results, ask again, with no other call beside.",
    placeholders: &[],
};
pub(super) const INVALID: Text = Text {
    key: "invalid",
    default: "The user was not asked: {problem}. Correct the call and make it again, or go on without asking.",
    placeholders: &["problem"],
};
pub(super) const TWICE: Text = Text {
    key: "twice",
    default: "The user was not asked: they have not answered what you said last. Go on with what you have, and name \
              what you had to assume.",
    placeholders: &[],
};
pub(super) const ANOTHER: Text = Text {
    key: "another",
    default: "The user was not asked this: one question at a time. The first one of the reply counts.",
    placeholders: &[],
};

/// Whether the tool is there, and whether the user owes an answer.
#[derive(Clone, Copy, Default)]
pub(super) struct Asking {
    /// The tool is ours in this conversation.
    on: bool,
    open: Open,
    /// A call of the reply being judged asks already.
    in_reply: bool,
}

/// What the user has not answered.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Open {
    #[default]
    Nothing,
    /// A text without calls: the end of a turn, whatever it says.
    Text,
    /// A question, known from the hidden exchange.
    Question,
}

/// The call's arguments. Both are required; unknown ones are ignored.
#[derive(Deserialize)]
struct Arguments {
    question: Option<String>,
    context: Option<String>,
}

/// What is wrong with the call's arguments.
struct Problem {
    /// The argument, or all of them.
    path: &'static str,
    text: String,
}

/// The tool's declaration with the description in `texts`.
pub(super) fn declaration(texts: &Texts) -> Arc<str> {
    described(DECLARATION, &texts.fill(&DECLARED, &[]))
}

/// The result of a call whose question was put.
pub(super) fn asked(texts: &Texts) -> String {
    texts.fill(&ASKED, &[])
}

impl Asking {
    pub(super) fn is_on(self) -> bool {
        self.on
    }

    /// Whether the user has answered what was said last.
    pub(super) fn may_ask(self) -> bool {
        self.open == Open::Nothing
    }

    /// Declares the tool, unless the client has one of that name.
    pub(super) fn open(&mut self, request: &RequestView<'_>, declaration: &Arc<str>, plan: &mut Plan) {
        let is_taken = request.tools.iter().any(|tool| tool.name == TOOL);
        self.on = request.takes_tools && !is_taken;
        if !self.on {
            return;
        }
        plan.edit_tools(ToolsEdit::Own { name: TOOL, reads_results: false });
        // The reply that is forced is a call of the client's.
        if !request.forced {
            plan.edit_tools(ToolsEdit::Declare(Arc::clone(declaration)));
        }
    }

    /// Reads whether the user owes an answer; `asked`: see [`asked`].
    pub(super) fn read(&mut self, event: &Event<'_>, asked: &str) {
        match event {
            _ if !self.on => {}
            Event::Hidden(view) if view.texts().any(|text| text.contains(asked)) => {
                self.open = Open::Question;
            }
            Event::User(_) => self.open = Open::Nothing,
            Event::Assistant(view) if self.open == Open::Nothing => {
                let says = !matches!(view.message.content, Content::Absent | Content::Null(_));
                let ends = view.message.calls.is_empty() && says;
                self.open = if ends { Open::Text } else { Open::Nothing };
            }
            // The text was followed by the calls of its reply.
            Event::Call(_) | Event::Result(_) if self.open == Open::Text => self.open = Open::Nothing,
            _ => {}
        }
    }

    /// Judges a call of the tool.
    pub(super) fn judge(self, call: &Proposed<'_>, texts: &Texts, max_chars: usize) -> Verdict {
        if !self.on || call.name != TOOL {
            return Verdict::Allow;
        }
        let block =
            |text: &Text| Verdict::Block(Reason::new(ReasonKind::Clarification, texts.fill(text, &[])));
        if !self.may_ask() {
            return block(&TWICE);
        }
        if self.in_reply {
            return block(&ANOTHER);
        }
        match question(call.arguments.unwrap_or_default(), texts, max_chars) {
            Ok(question) => Verdict::Clarify(Clarification {
                question,
                asked: texts.fill(&ASKED, &[]),
                put_off: Reason::new(ReasonKind::Clarification, texts.fill(&PUT_OFF, &[])).retryable(),
            }),
            Err(Problem { path, text }) => {
                let message = texts.fill(&INVALID, &[("problem", &text)]);
                let issue = Issue { path: path.to_owned(), message: text };
                Verdict::Block(Reason::new(ReasonKind::Validation, message).retryable().about(vec![issue]))
            }
        }
    }

    /// One for which the tool is ours.
    #[cfg(test)]
    pub(super) fn ours() -> Self {
        Self { on: true, ..Self::default() }
    }

    pub(super) fn release(&mut self, call: &Proposed<'_>) {
        self.in_reply |= self.on && call.name == TOOL;
    }
}

/// What the user reads of a call with these arguments.
fn question(arguments: &str, texts: &Texts, max_chars: usize) -> Result<String, Problem> {
    let expected = r#"expected arguments such as {"question": "Which of the two orders do you mean?", "context": "There are orders 7 and 9."}"#;
    let problem = |path: &'static str, text: &str| Problem { path, text: format!("{text}; {expected}") };
    let Arguments { question, context } =
        serde_json::from_str(arguments).map_err(|_| problem("arguments", "its arguments cannot be read"))?;
    let question = question.ok_or_else(|| problem("question", "the question is missing"))?;
    let context = context.ok_or_else(|| problem("context", "the context is missing"))?;
    // Characters that hide text from people go.
    let visible = |text: String| strip(&text).map_or(text, |(visible, _)| visible);
    let (question, context) = (visible(question), visible(context));
    let (question, context) = (question.trim(), context.trim());
    if !question.chars().any(char::is_alphanumeric) {
        return Err(problem("question", "the question is empty"));
    }
    let chars = question.chars().count() + context.chars().count();
    if chars > max_chars {
        let text = format!("question and context have {chars} characters, more than the {max_chars} allowed");
        return Err(Problem { path: "question", text });
    }
    Ok(match context.is_empty() {
        true => texts.fill(&QUESTION, &[("question", &question)]),
        false => texts.fill(&WITH_CONTEXT, &[("question", &question), ("context", &context)]),
    })
}
