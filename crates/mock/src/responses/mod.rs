//! The Responses API of the simulated upstream: its endpoints, and the steps from a request to its reply. The models
//! decide what is answered, as for chat completions; what is refused is decided by the modules below.

mod content;
mod conversation;
mod items;
mod pairs;
mod reply;
mod request;
mod store;
mod stream;
mod tools;

pub(super) use store::Store;

use super::Upstream;
use super::refusal::Refusal;
use super::server::{Body, Form, json_response, read_json, unknown_route, wrong_method};
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::http::{Method, Request, Response, StatusCode};
use reply::Reply;
use request::{Create, read_model};
use serde_json::{Value, json};
use store::Record;

/// The path of stored responses.
pub(super) const STORED: &str = "/v1/responses/";

impl Upstream {
    /// `POST .../responses`.
    pub(super) async fn create_response(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Refusal> {
        let (bytes, body) = read_json(request.into_body()).await?;
        let model = read_model(&body)?;
        let history = self.history(&body["previous_response_id"]);
        self.record(model, bytes.len(), history.as_ref().map_or(0, Bytes::len));
        let mut create = Create::read(body, model, &bytes, history, &self.responses)?;
        let request_id = create.chat.ids.request();
        let reply = Reply::new(&create, &model.reply(&create.chat));
        let form = if create.chat.stream { Form::Events(reply.events()) } else { Form::Whole(reply.whole()) };
        if create.store {
            self.responses.keep(Record::new(&reply.whole(), create.items));
        }
        Ok(self.send(form, request_id).await)
    }

    /// The endpoints of one stored response, below [`STORED`].
    pub(super) fn stored_response(&self, method: &Method, path: &str) -> Result<Response<Body>, Refusal> {
        let below = path.strip_prefix(STORED).unwrap_or_default();
        let (id, rest) = below.split_once('/').unwrap_or((below, ""));
        let missing = || Refusal::plain(StatusCode::NOT_FOUND, format!("Response with id '{id}' not found."));
        let body = match (method, rest) {
            (&Method::GET, "") => {
                let response = self.responses.response(id).ok_or_else(missing)?;
                serde_json::from_slice(&response).unwrap_or_default()
            }
            (&Method::DELETE, "") => {
                self.responses.delete(id).ok_or_else(missing)?;
                json!({"id": id, "object": "response.deleted", "deleted": true})
            }
            (&Method::GET, "input_items") => list(&self.responses.input_items(id).ok_or_else(missing)?),
            (_, "" | "input_items") => return Err(wrong_method(method, path)),
            _ => return Err(unknown_route(method, path)),
        };
        Ok(json_response(StatusCode::OK, &body))
    }

    /// The conversation that the response `previous` ended, as a JSON array; empty where there is none to continue.
    fn history(&self, previous: &Value) -> Result<Bytes, Refusal> {
        let param = "previous_response_id";
        match previous {
            Value::Null => Ok(Bytes::new()),
            Value::String(id) => self.responses.conversation(id).ok_or_else(|| {
                let text = format!("Previous response with id '{id}' not found.");
                Refusal::invalid(text, param).coded("previous_response_not_found")
            }),
            other => Err(Refusal::wrong_type(param, "a string", other)),
        }
    }
}

/// A whole list: there are no pages.
fn list(items: &[Value]) -> Value {
    let id = |item: Option<&Value>| item.map_or(Value::Null, |item| item["id"].clone());
    json!({
        "object": "list",
        "data": items,
        "first_id": id(items.first()),
        "last_id": id(items.last()),
        "has_more": false
    })
}
