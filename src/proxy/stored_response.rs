//! Requests about a stored response: read, delete, cancel, list its input. After toolrein has asked the model again, the
//! client knows the id of the first reply and the upstream goes on from the last one, so that the client's id in the path
//! is replaced by the upstream's. Where the reply is the response itself, its calls keep the verdict that they had.

use super::body::{ReplyBody, UpBody};
use super::caller::caller_of;
use super::credential::Credentials;
use super::handler::{AppState, refused};
use super::record::Record;
use super::stream;
use super::ungoverned;
use super::whole::Read;
use crate::conversation::identity::Identity;
use crate::dialect::responses::{StoredReply, read_stored, upstream_id};
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::http::uri::{Parts, PathAndQuery};
use hyper::http::{Method, Request, Response, Uri};
use std::ops::Range;

/// The reason why calls of a stored response count as not judged.
const UNJUDGED: &str = "stored_response";

/// The segment before the id.
const SEGMENT: &str = "/responses/";
/// Characters of ids, beside letters and digits, that a path holds as they are. An id with another one is not used.
const IN_IDS: [char; 2] = ['_', '-'];

/// Where the id of a stored response is in `path`.
pub(super) fn id_in(path: &str) -> Option<Range<usize>> {
    let start = path.rfind(SEGMENT)? + SEGMENT.len();
    let end = path[start..].find('/').map_or(path.len(), |length| start + length);
    (start < end).then_some(start..end)
}

/// What the state store knows of the response that a request is about.
pub(super) struct StoredResponse {
    /// The client's id of it.
    id: String,
    /// The record of its conversation.
    known: Option<Bytes>,
}

impl AppState {
    /// The stored response that `request` is about, and the request with the upstream's id of it.
    pub(super) async fn with_upstream_id<B>(
        &self,
        mut request: Request<B>,
    ) -> (Request<B>, Option<StoredResponse>) {
        let path = request.uri().path();
        let Some(at) = id_in(path) else { return (request, None) };
        let id = path[at.clone()].to_owned();
        let credentials = Credentials::of(request.headers(), request.uri());
        let caller = caller_of(&self.key, request.headers(), &credentials, &self.config).ok();
        let known = match caller {
            Some(caller) => {
                let identity = Identity { key: self.key.clone(), caller, explicit: None };
                self.store.history(identity.response_key(&id)).await
            }
            None => None,
        };
        if let Some(uri) = known.as_ref().and_then(|known| with_id(request.uri(), at, &upstream_id(known)?)) {
            *request.uri_mut() = uri;
        }
        (request, Some(StoredResponse { id, known }))
    }

    /// Sends a request whose reply is a stored response, and passes on what the client may see of it.
    pub(super) async fn relay_stored(
        &self,
        request: Request<Incoming>,
        stored: StoredResponse,
        mut record: Record,
    ) -> Response<ReplyBody> {
        let idle = self.config.upstream.idle_timeout;
        let sent = self.upstream.send(request.map(|body| UpBody::relay(body, idle))).await;
        record.sent(sent.as_ref().map(Response::headers));
        record.upstream_time();
        let response = match sent {
            Ok(response) => response,
            Err(error) => return refused(record, &error),
        };
        if stream::is_stream(response.headers()) && response.status().is_success() {
            record.data.status = response.status().as_u16();
            passes_unjudged(&mut record);
            return response.map(|body| ReplyBody::relay_observed(body, idle, record, Record::passes));
        }
        let mut read = match Read::read(response, true, self, Some(&mut record)).await {
            Ok(read) => read,
            Err(error) => return refused(record, &error),
        };
        let (status, body) = read.to_judge();
        record.data.status = status;
        if (200..300).contains(&status) {
            let reply = match &body {
                Ok(body) => read_stored(body, stored.known.as_deref(), &stored.id),
                Err(_) => StoredReply { edited: None, is_unjudged: true },
            };
            if reply.is_unjudged {
                passes_unjudged(&mut record);
            }
            if let Some(edited) = reply.edited {
                read.edit(edited);
            }
        }
        let (response, bytes) = read.into_response(idle);
        record.data.reply_bytes = bytes;
        record.answers();
        record.end();
        response
    }
}

/// Calls that no policy has judged may pass.
fn passes_unjudged(record: &mut Record) {
    record.data.unjudged.push(UNJUDGED);
    ungoverned::warn_stored_once(&record.data.path);
}

/// Whether the reply to a request about a stored response is that response: it is read or cancelled, whatever the id.
pub(super) fn is_answered_with_it<B>(request: &Request<B>) -> bool {
    let path = request.uri().path();
    let Some(at) = id_in(path) else { return false };
    matches!((request.method(), &path[at.end..]), (&Method::GET, "" | "/") | (&Method::POST, "/cancel"))
}

/// `uri` with another id of the response; `None` where a path cannot hold it as it is.
fn with_id(uri: &Uri, at: Range<usize>, id: &str) -> Option<Uri> {
    let is_plain = id.chars().all(|char| char.is_ascii_alphanumeric() || IN_IDS.contains(&char));
    let query = uri.query().map_or(String::new(), |query| format!("?{query}"));
    let (before, after) = (&uri.path()[..at.start], &uri.path()[at.end..]);
    let path = PathAndQuery::try_from(format!("{before}{id}{after}{query}")).ok().filter(|_| is_plain)?;
    let mut parts: Parts = uri.clone().into_parts();
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_response_id_is_the_segment_after_responses() {
        for (path, id) in [
            ("/v1/responses/resp_1", Some("resp_1")),
            ("/v1/responses/resp_1/input_items", Some("resp_1")),
            ("/responses/resp_1/cancel", Some("resp_1")),
            ("/v1/responses", None),
            ("/v1/responses/", None),
            ("/v1/models", None),
        ] {
            assert_eq!(id_in(path).map(|at| &path[at]), id, "{path}");
        }
    }
}
