//! The admin pages as a service of the accept loop, and what they show by way of modules that the admin server does not
//! know: explanations and replays.

use crate::admin::{Pages, Review};
use crate::config::Config;
use crate::explain::LiveCounts;
use crate::proxy::body::{BodyError, ReplyBody};
use crate::proxy::{ResponseFuture, Service};
use crate::replay::Enforced;
use crate::telemetry::live::conversations::Conversation;
use crate::{explain, replay};
use arc_swap::ArcSwap;
use axum::body::Body;
use bytes::Bytes;
use futures_util::StreamExt as _;
use http_body_util::{BodyExt as _, BodyStream, Collected};
use hyper::body::{Body as _, Incoming};
use hyper::http::{Request, Response};
use model::identity::HashKey;
use policies::REGISTRY;
use policies::redact::Redactor;
use serde_json::Value;
use std::sync::Arc;
use wire::plural::counted;

/// See the module's documentation.
pub(super) struct AdminService(pub(super) ArcSwap<Pages>);

impl Service for AdminService {
    fn call(self: Arc<Self>, request: Request<Incoming>) -> ResponseFuture {
        Box::pin(answer(self.0.load_full(), request))
    }
}

/// The pages of the port of the probes.
pub(super) struct ProbeService(pub(super) Arc<AdminService>);

impl Service for ProbeService {
    fn call(self: Arc<Self>, request: Request<Incoming>) -> ResponseFuture {
        let pages = self.0.0.load_full();
        Box::pin(async move { written(pages.answer_probe(request.map(Body::new)).await).await })
    }
}

async fn answer(pages: Arc<Pages>, request: Request<Incoming>) -> Response<ReplyBody> {
    written(pages.answer(request.map(Body::new)).await).await
}

/// A response of the router in the form that the accept loop takes.
async fn written(response: Response<Body>) -> Response<ReplyBody> {
    let (head, body) = response.into_parts();
    // One of known length is a page in memory; any other is a stream.
    let body = match body.size_hint().exact() {
        Some(_) => ReplyBody::full(body.collect().await.map(Collected::to_bytes).unwrap_or_default()),
        None => {
            let frames = BodyStream::new(body);
            ReplyBody::from_stream(frames.map(|frame| frame.map_err(|_| BodyError::UpstreamCut)))
        }
    };
    Response::from_parts(head, body)
}

/// Explanations and replays of the conversations that the admin server keeps.
pub(super) struct Reviewer {
    /// Placeholders of redacted values depend on it.
    pub(super) key: HashKey,
}

impl Review for Reviewer {
    fn page(&self, config: &Config, body: &Bytes, conversation: &Conversation) -> Result<String, String> {
        let live_counts = LiveCounts {
            requests: conversation.requests,
            refused: conversation.refused,
            calls: conversation.calls,
            blocked: conversation.blocked,
            first_by: conversation.first_blocked_by.map(str::to_owned),
        };
        explain::page_of(&enforced(config)?, &self.redacted(config, body)?, &conversation.id, live_counts)
    }

    fn items(&self, config: &Config, body: &Bytes, id: &str) -> Result<Value, String> {
        explain::items_of(&enforced(config)?, &self.redacted(config, body)?, id)
    }

    fn replay(&self, config: Config, body: &Bytes, id: &str) -> Result<Value, String> {
        replay::report_of(&Enforced::new(config), body, id)
    }
}

impl Reviewer {
    /// The `body` as it may be shown, redacted like a recording.
    fn redacted(&self, config: &Config, body: &Bytes) -> Result<Bytes, String> {
        if !config.admin.redact {
            return Ok(body.clone());
        }
        let refused = |_| "It cannot be redacted: record.redact or record.patterns is wrong.".to_owned();
        let redactor = Redactor::new(&config.record.redact, &config.record.patterns).map_err(refused)?;
        let text = std::str::from_utf8(body).map_err(|_| "It is not in UTF-8.".to_owned())?;
        Ok(redactor.redact(text, &self.key).map_or_else(|| body.clone(), Bytes::from))
    }
}

/// The configuration for a replay.
fn enforced(config: &Config) -> Result<Enforced, String> {
    let again = config.again(REGISTRY).map_err(|problems| {
        format!("The configuration in force cannot be built again: {}.", counted(problems.0.len(), "problem"))
    });
    again.map(Enforced::new)
}
