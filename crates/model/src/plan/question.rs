//! Questions to another model about a call of the reply, as plain data: what is asked, of whom, and the answers that are
//! known. Asks nobody.

use super::ModelEndpoint;
use std::sync::Arc;
use std::time::Duration;

/// A question about a call. The call is held until the answer is known; equal questions have one answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelQuestion {
    pub terms: Arc<ModelTerms>,
    /// The instructions.
    pub system: Arc<str>,
    /// What they are about: data, whoever wrote it.
    pub text: String,
}

/// Who is asked, and within which limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelTerms {
    pub model: String,
    /// The longest answer, in tokens.
    pub max_tokens: u32,
    /// How long the call waits for it.
    pub timeout: Duration,
    pub endpoint: ModelEndpoint,
}

/// The answers that have come for one request; `None` for a question that got none.
#[derive(Clone, Debug, Default)]
pub struct Answers(Vec<(ModelQuestion, Option<Arc<str>>)>);

impl Answers {
    /// What became of `question`; `None`: it was not asked yet.
    pub fn of(&self, question: &ModelQuestion) -> Option<Option<&str>> {
        let (_, answer) = self.0.iter().find(|(known, _)| known == question)?;
        Some(answer.as_deref())
    }

    /// Takes the answer to `question`; the first one stays.
    pub fn learn(&mut self, question: ModelQuestion, answer: Option<Arc<str>>) {
        if self.of(&question).is_none() {
            self.0.push((question, answer));
        }
    }
}
