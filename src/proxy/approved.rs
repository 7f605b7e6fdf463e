//! The reply to a user's yes: the approved calls, in the form that the client asked for, on the way of a reply from
//! the upstream. Limits judge them there as they would the model's own. What is a yes is the core's to say, and who takes it the ledger's.

use super::body::ReplyBody;
use super::exchange::Exchange;
use super::handler::AppState;
use super::reask::Read;
use super::record::Record;
use super::stream;
use crate::ledger::Claim;
use crate::rewrite::confirm::{Answer, Confirmation, Handed, events, reply};
use crate::rewrite::judging::Judging;
use crate::telemetry::outcome::{Consent, On};
use crate::transcript::identity::{Domain, Hash};
use hyper::http::Response;
use std::sync::Arc;

/// The name under which it is told what the user said to a question.
const CONFIRM: &str = "confirm";

impl AppState {
    /// The calls that the request says yes to, taken for it alone, with the name of the text that asked.
    pub(crate) async fn approved(
        &self,
        (answer, asked): (&Answer, &Arc<Confirmation>),
        body: &[u8],
        record: &mut Record,
    ) -> Option<(Hash, Arc<Confirmation>)> {
        let anchor = answer.anchor;
        let request = self.key.hash(Domain::Request, &[b"approval", body]);
        let claim = Claim { anchor, request, now_ms: self.now_ms() };
        let is_approved = asked.is_approved_by(&answer.text);
        let is_taken = is_approved && self.ledger.claim(claim).await;
        let (word, told) = match (is_approved, is_taken) {
            (true, true) => ("approved", Consent::Approved),
            (true, false) => ("lapsed", Consent::Expired),
            (false, _) => ("declined", Consent::Declined),
        };
        record.outcome.act(On::Request, CONFIRM, word, 1);
        // A question is answered once; who comes again to the byte has been counted.
        if !record.outcome.repeated {
            record.outcome.confirmations.push(told);
        }
        is_taken.then(|| (anchor, Arc::clone(asked)))
    }
}

impl Exchange {
    /// Hands out the calls that were asked about by the text named `anchor`.
    pub(crate) async fn hand_out(
        mut self: Box<Self>,
        anchor: Hash,
        confirmation: &Confirmation,
        mut judging: Judging,
    ) -> Response<ReplyBody> {
        let model = self.request.model_name(&self.body).into_owned();
        let created = self.gateway.now_ms() / 1000;
        let usage = self.request.include_usage;
        let handed = Handed { anchor, key: &self.identity.key, model: &model, created, usage };
        judging.approve(true);
        if self.request.stream {
            let events = events(confirmation, &handed);
            return stream::answer_own(self, judging, &events);
        }
        let read = Read::own(reply(confirmation, &handed));
        self.judge_whole(read, judging).await
    }
}
