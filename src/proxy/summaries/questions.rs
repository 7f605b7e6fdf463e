//! Questions to another model about calls: asked at once, once more where the model fails, answered within their time or
//! not at all. Answers are kept, so that an equal question is not asked again later; two at the same time are both asked.
//! The core decides what is asked and what becomes of the answer.

use super::{AppState, NoReply};
use crate::proxy::body::UpBody;
use dialects::summary::{Answer, answer};
use engine::AskedModel;
use hyper::http::Request;
use hyper::http::request::Parts;
use model::plan::ModelEndpoint;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The most words of an answer that are read: more than any question allows.
const MOST_WORDS: usize = 500;

impl AppState {
    /// Asks, with the credentials that the endpoint takes; the receiver gets the answer, or `None`.
    pub(crate) fn ask_model(
        self: &Arc<Self>,
        asked: &AskedModel,
        parts: &Parts,
    ) -> oneshot::Receiver<Option<Arc<str>>> {
        let (sender, receiver) = oneshot::channel();
        let summaries = &self.summaries;
        let known = summaries.answers.find(asked.key);
        let permit = Arc::clone(&summaries.asking).try_acquire_owned().ok();
        let Some(permit) = permit.filter(|_| known.is_none() && !summaries.drain.is_started()) else {
            // Sending fails where the receiver has gone, which does not matter.
            let _ = sender.send(known);
            return receiver;
        };
        let question = || summaries.endpoints.post(&asked.terms.endpoint, parts, asked.question.clone());
        let tries = [question(), question()];
        let (app, key, terms) = (Arc::clone(self), asked.key, Arc::clone(&asked.terms));
        let guard = summaries.drain.guard();
        tokio::spawn(async move {
            let (endpoint, within) = (&terms.endpoint, terms.timeout);
            let answer = tokio::select! {
                () = app.summaries.drain.started() => None,
                answer = timeout(within, app.model_answer(endpoint, within, tries)) => answer.ok().flatten(),
            };
            if let Some(answer) = &answer {
                app.summaries.answers.keep(key, Arc::clone(answer));
            }
            let _ = sender.send(answer);
            drop((permit, guard));
        });
        receiver
    }

    /// The first answer to one of the `tries`: an error, or a reply without a text, is followed by the next one.
    async fn model_answer(
        &self,
        endpoint: &ModelEndpoint,
        within: Duration,
        tries: [Request<UpBody>; 2],
    ) -> Option<Arc<str>> {
        for request in tries {
            let reply = match self.reply_of(endpoint, within, request).await {
                Ok(reply) => reply,
                Err(NoReply::Failed) => continue,
                Err(NoReply::Refused) => return None,
            };
            let Answer { text, usage } = answer(&reply, MOST_WORDS);
            self.telemetry.metrics.count_question_tokens(usage.prompt, usage.completion);
            if text.is_some() {
                return text;
            }
        }
        None
    }
}
