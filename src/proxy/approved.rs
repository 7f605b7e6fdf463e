//! The reply to a user's yes: the approved calls, in the form that the client asked for, on the way of a reply from
//! the upstream. Limits judge them there as they would the model's own; the yes itself was found and taken before.

use super::body::ReplyBody;
use super::exchange::Exchange;
use super::reask::Read;
use super::stream;
use crate::rewrite::confirm::{Confirmation, Handed, events, reply};
use crate::rewrite::judging::Judging;
use crate::transcript::identity::Hash;
use hyper::http::Response;

impl Exchange {
    /// Hands out the calls that were asked about by the text named `anchor`.
    pub(crate) async fn hand_out(
        mut self,
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
