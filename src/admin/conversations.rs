//! The pages of conversations: the newest ones, one with its items, decisions and budgets, and its explanation. For the
//! holder of the token alone.

use super::Admin;
use super::answer::{Answer, HTML};
use super::code::Code;
use super::pages::segment;
use crate::telemetry::live::conversations::Conversation;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::http::header::CONTENT_SECURITY_POLICY;
use hyper::http::{HeaderValue, StatusCode, Uri};
use model::Stopped;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;

/// Conversations of a page at most, and without a number.
const MOST: usize = 1_000;
const USUAL: usize = 100;
/// An explanation has its style inline, and no script.
const EXPLAINED: HeaderValue =
    HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'");

/// What to list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// A policy that acted on it.
    policy: Option<String>,
    /// A part of the id, the model, the profile or the caller, in any case.
    query: Option<String>,
    limit: Option<usize>,
    offset: Option<usize>,
}

impl ListQuery {
    /// The query in the form that is compared: empty members are absent, and the text is in lower case.
    fn normalised(self) -> Self {
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let query = given(self.query).map(|query| query.to_lowercase());
        Self { policy: given(self.policy), query, ..self }
    }

    fn fits(&self, conversation: &Conversation) -> bool {
        let texts = [
            Some(conversation.id.as_str()),
            conversation.model.as_deref(),
            conversation.profile.as_deref(),
            conversation.caller.as_deref(),
        ];
        let holds = |part: &str| texts.iter().flatten().any(|text| text.to_lowercase().contains(part));
        self.policy.as_deref().is_none_or(|policy| conversation.policies.contains(policy))
            && self.query.as_deref().is_none_or(holds)
    }
}

/// The newest conversations.
pub(super) async fn list(
    State(admin): State<Arc<Admin>>,
    asked: Result<Query<ListQuery>, QueryRejection>,
) -> Answer {
    let Ok(Query(asked)) = asked else {
        let message = "This path takes policy, query, limit and offset; the last two are numbers.";
        return Answer::error(Code::BadQuery, message);
    };
    let asked = asked.normalised();
    let (offset, most) = (asked.offset.unwrap_or_default(), asked.limit.unwrap_or(USUAL).min(MOST));
    let (total, listed) = admin.live.conversations(|one| asked.fits(one), offset, most);
    let stopped = admin.stopped().await;
    let listed: Vec<Value> = listed.iter().map(|one| member(one, &stopped)).collect();
    Answer::json(&json!({"total": total, "conversations": listed}))
}

/// One conversation.
pub(super) async fn one(State(admin): State<Arc<Admin>>, uri: Uri) -> Answer {
    let Some(conversation) = admin.named(&uri) else { return unknown() };
    let mut shown = member(&conversation, &admin.stopped().await);
    let budgets = conversation.limits.iter().map(
        |limit| json!({"policy": limit.policy, "name": limit.tool, "used": limit.used, "limit": limit.limit}),
    );
    shown["decisions"] = json!(conversation.decisions);
    shown["tool_calls"] = json!(conversation.timed_calls);
    shown["budgets"] = budgets.collect();
    let items =
        admin.reviewed(&conversation.id, |admin, body, id| admin.review.items(&admin.settings, body, id));
    (shown["items"], shown["items_note"]) = match items.await {
        Ok(items) => (items, Value::Null),
        Err(why) => (json!([]), json!(why)),
    };
    Answer::json(&shown)
}

/// The explanation of one conversation, as a page.
pub(super) async fn explain(State(admin): State<Arc<Admin>>, uri: Uri) -> Response {
    let Some(conversation) = admin.named(&uri) else { return unknown().into_response() };
    let id = conversation.id.clone();
    let page =
        admin.reviewed(&id, move |admin, body, _| admin.review.page(&admin.settings, body, &conversation));
    match page.await {
        Ok(page) => {
            let answer = Answer(StatusCode::OK, HTML, page.into());
            ([(CONTENT_SECURITY_POLICY, EXPLAINED)], answer).into_response()
        }
        Err(why) => Answer::not_found(&why).into_response(),
    }
}

impl Admin {
    /// The conversation that the path names.
    fn named(&self, uri: &Uri) -> Option<Conversation> {
        let id = percent_decode_str(segment(uri, 2)).decode_utf8().ok()?;
        self.live.conversation(&id)
    }

    /// Has the newest request of a conversation looked at, off the threads that serve requests.
    pub(super) async fn reviewed<T: Send + 'static>(
        self: &Arc<Self>,
        id: &str,
        review: impl FnOnce(&Self, &Bytes, &str) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let Some(body) = self.live.body(id) else {
            return Err("Its newest request is not kept (admin.token_env, admin.bodies_bytes).".to_owned());
        };
        let Ok(_permit) = self.reviews.acquire().await else {
            return Err("The server is being stopped.".to_owned());
        };
        let (admin, id) = (Arc::clone(self), id.to_owned());
        let reviewed = tokio::task::spawn_blocking(move || review(&admin, &body, &id));
        reviewed.await.unwrap_or_else(|_| Err("It cannot be shown: an error of toolrein's own.".to_owned()))
    }

    /// The ids of the conversations that are stopped.
    async fn stopped(&self) -> HashSet<String> {
        let stops = self.store.stops(super::stops::now_ms()).await.stops.into_iter();
        let stops = stops.filter(|(stop, _)| stop.what == Stopped::Conversation);
        stops.map(|(stop, _)| stop.id).collect()
    }
}

fn member(conversation: &Conversation, stopped: &HashSet<String>) -> Value {
    let mut shown = json!(conversation);
    shown["is_stopped"] = json!(stopped.contains(&conversation.id));
    shown
}

fn unknown() -> Answer {
    let message = "No conversation with this id is among the newest (admin.conversations).";
    Answer::error(Code::ConversationUnknown, message)
}
