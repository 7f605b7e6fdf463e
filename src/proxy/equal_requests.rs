//! A storm of equal requests: a program sends the same bytes again and again. Warns about it once, and refuses what is
//! over `limits.equal_requests`. The state store's module counts.

use super::error::{ProxyError, repeated_too_often};
use super::handler::AppState;
use crate::config::EQUAL_REQUESTS_OF_A_STORM;
use crate::store::equal_requests::{Billed, RequestCount};
use model::identity::Hash;
use model::record::{On, REJECTED, RequestRecord, STORM};

/// The label `policy` of storms in toolrein_actions_total.
const POLICY: &str = "equal_requests";

impl AppState {
    /// Counts the `request` with those that equal it.
    ///
    /// # Errors
    /// It came too often, and toolrein does not only observe.
    pub(super) fn count_equal(
        &self,
        request: Hash,
        now_ms: u64,
        record: &mut RequestRecord,
    ) -> Result<(), ProxyError> {
        let allowed = self.config.limits.equal_requests;
        let counted = self.equal_requests.count(request, allowed, EQUAL_REQUESTS_OF_A_STORM, now_ms);
        // What a repeated request brings is not counted again; these are about the repetition itself.
        if counted.begins_storm {
            warn(&counted, record, counted.is_over && !self.is_observing());
            record.act(On::Reply, POLICY, STORM, 1);
        }
        if !counted.is_over {
            return Ok(());
        }
        record.act(On::Reply, POLICY, REJECTED, 1);
        if self.is_observing() { Ok(()) } else { Err(repeated_too_often(counted.count, allowed)) }
    }

    /// Notes what the reply to the `request` was billed.
    pub(super) fn bill_equal(&self, request: Hash, record: &RequestRecord) {
        let tokens = record.tokens.prompt + record.tokens.completion;
        self.equal_requests.bill(request, Billed { tokens, nanodollars: record.cost }, self.now_ms());
    }
}

fn warn(counted: &RequestCount, record: &RequestRecord, is_refused: bool) {
    let RequestCount { count, billed, .. } = counted;
    let cost_usd = billed.nanodollars.map(|nanodollars| nanodollars as f64 / 1e9);
    tracing::warn!(
        caller = record.caller.as_deref(),
        endpoint = record.endpoint.as_str(),
        requests = count,
        tokens = billed.tokens,
        cost_usd,
        refused = is_refused,
        request_id = record.request_id,
        "a caller sends one request again and again, byte for byte; so many came within a minute, and those that are \
         answered were billed these tokens (reported once for each storm); limits.equal_requests refuses further ones"
    );
}
