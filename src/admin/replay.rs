//! Replay of a conversation under another configuration: what its policies would have done, without any network.

use super::Admin;
use super::answer::Answer;
use super::code::Code;
use super::pages::body_of;
use crate::config::{Config, Overrides, Source};
use axum::body::Body;
use axum::extract::State;
use policies::REGISTRY;
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;

/// The longest body, in bytes.
const BODY_BYTES: usize = 1 << 20;

/// The body of the request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplayRequest {
    /// The conversation's id.
    conversation: String,
    /// A configuration as TOML, which changes the shipped one. No variable and no file is read for it.
    configuration: String,
}

/// The page.
pub(super) async fn replay(State(admin): State<Arc<Admin>>, body: Body) -> Answer {
    let body = match body_of(body, BODY_BYTES, admin.body_timeout).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let Ok(ReplayRequest { conversation, configuration }) = serde_json::from_slice(&body) else {
        let message = "The body must be {\"conversation\": ID, \"configuration\": \"TOML text\"}.";
        return Answer::error(Code::BadRequest, message);
    };
    let source = Source::Request(configuration);
    let config = match Config::load(source, &Overrides::default(), REGISTRY) {
        Ok(config) => config,
        Err(problems) => {
            let problems: Vec<String> = problems.0.iter().map(ToString::to_string).collect();
            let message = problems.join("; ");
            return Answer::error(Code::ConfigurationRefused, &message);
        }
    };
    let report = admin.reviewed(&conversation, |admin, body, id| admin.review.replay(config, body, id));
    match report.await {
        Ok(report) => Answer::json(&json!({ "report": report })),
        Err(why) => Answer::not_found(&why),
    }
}
