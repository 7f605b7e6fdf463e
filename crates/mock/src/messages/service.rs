//! The endpoints of the Messages API: from a request to its response.

use super::error::MessagesError;
use super::head::RequestHead;
use super::prompt_cache::PromptCache;
use super::reply::MessageReply;
use super::request::{MessageRequest, read_model};
use super::threads::Threads;
use super::validator::{errors_of, not_json};
use crate::ids::Ids;
use crate::server::{Body, Form, json_response, read_body};
use crate::{Upstream, tokens};
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use serde_json::{Value, json};

/// The response header with the id of the request.
const REQUEST_ID: &str = "request-id";

/// The state between requests for messages; bounded.
#[derive(Debug, Default)]
pub(crate) struct State {
    threads: Threads,
    cache: PromptCache,
}

/// An endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessagesEndpoint {
    /// `POST .../messages`.
    Create,
    /// `POST .../messages/count_tokens`.
    Count,
}

impl MessagesEndpoint {
    /// The endpoint of a path. `/threads/{id}/messages` is OpenAI's.
    pub(crate) fn from_path(path: &str) -> Option<Self> {
        if path.ends_with("/messages/count_tokens") {
            return Some(Self::Count);
        }
        (path.ends_with("/messages") && !path.contains("/threads/")).then_some(Self::Create)
    }
}

impl Upstream {
    /// The response to a request of the Messages API, whatever its method.
    pub(crate) async fn respond_to_message(
        &self,
        endpoint: MessagesEndpoint,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let (answer, mut ids) = match read_body(body).await {
            Ok(bytes) => {
                let ids = Ids::of(&bytes);
                (self.answer(endpoint, &parts.method, &parts.headers, &bytes), ids)
            }
            Err(refusal) => (Err(MessagesError::from_refusal(refusal)), Ids::of(&[])),
        };
        let request_id = ids.request();
        let mut response = match answer {
            Ok(form) => self.deliver(form).await,
            Err(error) => json_response(error.status, &error.body(&request_id)),
        };
        if let Ok(id) = HeaderValue::try_from(request_id) {
            response.headers_mut().insert(REQUEST_ID, id);
        }
        response
    }

    /// The reply to a request, or the error with which it is refused.
    pub(super) fn answer(
        &self,
        endpoint: MessagesEndpoint,
        method: &Method,
        headers: &HeaderMap,
        bytes: &Bytes,
    ) -> Result<Form, MessagesError> {
        if method != Method::POST {
            let error = MessagesError::unrecorded("Method Not Allowed");
            return Err(MessagesError { status: StatusCode::METHOD_NOT_ALLOWED, ..error });
        }
        let named = headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap_or_default()));
        let head = RequestHead::from_headers(named);
        let body: Value = serde_json::from_slice(bytes).map_err(|error| not_json(&error))?;
        let needs_max_tokens = endpoint == MessagesEndpoint::Create;
        let Some(model) = read_model(&body)? else {
            let first = errors_of(&head, &body, needs_max_tokens).into_iter().next();
            return Err(first.unwrap_or_else(|| MessagesError::field_required("model")));
        };
        self.record(model, bytes.len(), 0);
        let threads = &self.messages.threads;
        let request = MessageRequest::read(&head, body, model, bytes, threads, needs_max_tokens)?;
        if endpoint == MessagesEndpoint::Count {
            return Ok(Form::Whole(json!({"input_tokens": tokens(request.chat.bytes)})));
        }
        if let Some(id) = &request.continues {
            threads.set_continued(id)?;
        }
        let cached = self.messages.cache.use_prompt(&request.prompt);
        let reply = MessageReply::new(&request, &model.reply(&request.chat), cached);
        let form =
            if request.chat.stream { Form::Events(reply.events()) } else { Form::Whole(reply.whole()) };
        if request.keeps_thread {
            threads.keep(&reply.id, request.body, &reply.content);
        }
        Ok(form)
    }
}
