//! Requests about stored replies: read, delete, cancel, list. After toolrein has asked the model again, the client knows
//! the id of the first reply and the upstream goes on from the last one, so that the client's id in the path is replaced
//! by the upstream's. Where the reply is a response or a chat completion, its calls keep the verdict that they had, and
//! where a policy restricts calls, one without a verdict is judged now (`stored_judge`). Of any other JSON that the
//! upstream stores, such as a list, only one whose calls were all handed out before is passed on then.

use super::body::{ReplyBody, UpBody};
use super::caller::caller_of;
use super::credential::Credentials;
use super::error::ProxyError;
use super::handler::{AppState, Sender, refused};
use super::record::Record;
use super::stored_judge::StoredReply as ToJudge;
use super::whole::Read;
use super::{coding, profile, spelling, stream, ungoverned};
use crate::config::{Mode, Unjudged};
use bytes::Bytes;
use dialects::responses::{
    StoredReply, is_ended, own_reply, read_stored, record_blocked, request_of, stream_of_response,
    upstream_id,
};
use dialects::stored::{request_of_completion, without_calls};
use dialects::{CHAT, RESPONSES};
use engine::Answer;
use hyper::body::Incoming;
use hyper::http::header::CONTENT_TYPE;
use hyper::http::request::Parts as RequestParts;
use hyper::http::uri::{Parts, PathAndQuery};
use hyper::http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use model::identity::Identity;
use std::ops::Range;

/// The reason why calls of a stored response count as not judged.
const UNJUDGED: &str = "stored_response";

/// The same, of a stream.
const UNJUDGED_STREAM: &str = "stored_stream";

/// The segment before the id.
const SEGMENT: &str = "/responses/";
/// Characters of ids, beside letters and digits, that a path holds as they are. An id with another one is not used.
const IN_IDS: [char; 2] = ['_', '-'];

/// Where the id of a stored response is in `path`.
pub(super) fn id_in(path: &str) -> Option<Range<usize>> {
    // Some servers take capitals for small letters.
    let start = path.to_ascii_lowercase().rfind(SEGMENT)? + SEGMENT.len();
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
        let caller = caller_of(&self.key, request.headers(), &credentials, None, &self.config).ok();
        let known = match caller {
            Some(caller) => {
                let identity = Identity { key: self.key.clone(), caller: caller.hash, explicit: None };
                self.history(identity.response_key(&id)).await
            }
            None => None,
        };
        if let Some(uri) = known.as_ref().and_then(|known| with_id(request.uri(), at, &upstream_id(known)?)) {
            *request.uri_mut() = uri;
        }
        (request, Some(StoredResponse { id, known }))
    }

    /// Sends a request whose reply holds what the upstream has stored, and passes on what the client may see of it.
    pub(super) async fn relay_stored(
        &self,
        request: Request<Incoming>,
        kind: StoredKind,
        stored: Option<StoredResponse>,
        mut record: Record,
    ) -> Response<ReplyBody> {
        let own =
            stored.as_ref().filter(|_| kind == StoredKind::Response && *request.method() == Method::GET);
        if let Some(response) = own.and_then(|stored| own_reply(stored.known.as_deref()?)) {
            return answer_own(&response, request.uri(), record);
        }
        let idle = self.config.upstream.idle_timeout;
        let (mut parts, body) = request.into_parts();
        let restricts = self.restricts_stored(&parts.headers, &parts.uri);
        if restricts {
            coding::accept_decodable(&mut parts.headers);
        }
        let request = Request::from_parts(parts.clone(), UpBody::relay(body, idle));
        let sent = self.upstream.send(request).await;
        record.sent(sent.as_ref().map(Response::headers));
        record.upstream_time();
        let refuses = self.refuses_unjudged(&parts.headers, &parts.uri);
        let here = |mut response| self.upstream.keep_here(&mut response, || refuses).map(|()| response);
        let response = match sent.and_then(here) {
            Ok(response) => response,
            Err(error) => return refused(record, &error),
        };
        if stream::is_stream(response.headers()) && response.status().is_success() {
            if refuses {
                return refused(record, &ProxyError::ReplyUnjudged { why: UNJUDGED_STREAM });
            }
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
            let view = match body {
                Ok(body) if body.is_empty() => StoredView::AsItCame,
                Ok(body) => self.view_of(&parts, kind, stored.as_ref(), &body, restricts, &mut record).await,
                Err(_) => StoredView::Unjudged,
            };
            match view {
                StoredView::AsItCame => {}
                StoredView::Edited(pieces) => read.edit(pieces),
                StoredView::Unjudged if refuses => {
                    return refused(record, &ProxyError::ReplyUnjudged { why: UNJUDGED });
                }
                StoredView::Unjudged => passes_unjudged(&mut record),
            }
        }
        let (response, bytes) = read.into_response(idle);
        record.data.reply_bytes = bytes;
        record.answers();
        record.end();
        response
    }

    /// Whether calls that the policies restrict may be among what is stored.
    pub(super) fn restricts_stored(&self, headers: &HeaderMap, uri: &Uri) -> bool {
        let credentials = Credentials::of(headers, uri);
        self.config.mode == Mode::Enforce && profile::may_restrict_calls(&self.config, headers, &credentials)
    }

    /// Whether the same must not be passed on without a verdict.
    pub(super) fn refuses_unjudged(&self, headers: &HeaderMap, uri: &Uri) -> bool {
        self.config.upstream.unjudged == Unjudged::Refuse && self.restricts_stored(headers, uri)
    }

    /// What the client may see of `body`.
    async fn view_of(
        &self,
        parts: &RequestParts,
        kind: StoredKind,
        stored: Option<&StoredResponse>,
        body: &Bytes,
        restricts: bool,
        record: &mut Record,
    ) -> StoredView {
        let mut known = StoredReply { edited: None, is_unjudged: true };
        if let (StoredKind::Response, Some(stored)) = (kind, stored) {
            known = read_stored(body, stored.known.as_deref(), &stored.id);
            if !known.is_unjudged {
                return known.edited.map_or(StoredView::AsItCame, StoredView::Edited);
            }
        }
        if !restricts {
            passes_unjudged(record);
            return known.edited.map_or(StoredView::AsItCame, StoredView::Edited);
        }
        // A request without content: the headers alone name the conversation.
        let nothing = Bytes::from_static(br#"{"input":""}"#);
        let Ok(empty) = RESPONSES.read(&nothing) else { return StoredView::Unjudged };
        let Ok(Sender { identity, .. }) = self.identify(parts, &empty, &nothing) else {
            return StoredView::Unjudged;
        };
        if known.edited.is_none() && self.hands_out_nothing_new(&identity, body).await == Some(true) {
            return StoredView::AsItCame;
        }
        match (kind, stored) {
            (StoredKind::Response, Some(stored)) => {
                self.view_response(parts, stored, &identity, body, record).await
            }
            (StoredKind::Completion, _) => self.view_completion(parts, body, record).await,
            _ => StoredView::Unjudged,
        }
    }

    /// Has a stored response judged, and keeps the verdicts, so that it is the same when it is read again.
    async fn view_response(
        &self,
        parts: &RequestParts,
        stored: &StoredResponse,
        identity: &Identity,
        body: &Bytes,
        record: &mut Record,
    ) -> StoredView {
        let known = stored.known.as_deref();
        if !is_ended(body) {
            // Its calls may be incomplete; they are judged when it has ended.
            let nothing = record_blocked(body, known, &stored.id, &|_| String::new());
            let edited = nothing.and_then(|nothing| read_stored(body, Some(&nothing), &stored.id).edited);
            return edited.map_or(StoredView::Unjudged, StoredView::Edited);
        }
        let request = request_of(body, known);
        let unjudged = ToJudge { parts, dialect: RESPONSES, request, reply: body.clone() };
        let Ok(verdicts) = self.judge_stored(unjudged).await else { return StoredView::Unjudged };
        record.data.judged.clone_from(&verdicts.judged);
        let history = match (&verdicts.answer, &verdicts.history) {
            (Some(Answer::Error(_)), _) => return StoredView::Unjudged,
            (Some(_), history) => history.clone(),
            (None, _) => record_blocked(body, known, &stored.id, &|id| verdicts.message(id)),
        };
        let again = history.as_deref().map(|history| read_stored(body, Some(history), &stored.id));
        let view = match (again, verdicts.answer.as_ref()) {
            (Some(again), _) if !again.is_unjudged => {
                again.edited.map_or(StoredView::AsItCame, StoredView::Edited)
            }
            (_, Some(Answer::AsItCame(_))) => StoredView::AsItCame,
            (_, Some(Answer::Edited(_, pieces) | Answer::Own(pieces))) => StoredView::Edited(pieces.clone()),
            _ => return StoredView::Unjudged,
        };
        let key = identity.response_key(&stored.id);
        self.keep_verdicts(verdicts, history.map(|history| (key, history)));
        view
    }

    /// Has a stored chat completion judged.
    async fn view_completion(&self, parts: &RequestParts, body: &Bytes, record: &mut Record) -> StoredView {
        let Some(request) = request_of_completion(body) else { return StoredView::Unjudged };
        let unjudged = ToJudge { parts, dialect: CHAT, request, reply: body.clone() };
        let Ok(verdicts) = self.judge_stored(unjudged).await else { return StoredView::Unjudged };
        record.data.judged.clone_from(&verdicts.judged);
        let view = match &verdicts.answer {
            Some(Answer::AsItCame(_)) => StoredView::AsItCame,
            Some(Answer::Edited(_, pieces) | Answer::Own(pieces)) => StoredView::Edited(pieces.clone()),
            Some(_) => return StoredView::Unjudged,
            None => without_calls(body).map_or(StoredView::Unjudged, |body| StoredView::Edited(vec![body])),
        };
        if verdicts.answer.is_some() {
            self.keep_verdicts(verdicts, None);
        }
        view
    }
}

/// Answers with a response of toolrein's own, which the upstream does not have.
fn answer_own(response: &Bytes, uri: &Uri, mut record: Record) -> Response<ReplyBody> {
    let is_stream = uri.query().is_some_and(|query| query.split('&').any(|member| member == "stream=true"));
    let (body, kind) = match is_stream {
        true => (stream_of_response(response), "text/event-stream"),
        false => (response.clone(), "application/json"),
    };
    (record.data.status, record.data.upstream_requests) = (200, 0);
    record.data.reply_bytes = body.len() as u64;
    record.answers();
    record.end();
    let mut answer = Response::new(ReplyBody::full(body));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

/// What the client may see of what the upstream has stored.
enum StoredView {
    AsItCame,
    Edited(Vec<Bytes>),
    /// It has, or may have, calls without a verdict.
    Unjudged,
}

/// What a request about stored replies is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoredKind {
    /// A response.
    Response,
    /// A chat completion.
    Completion,
    /// A list, or what a server may take for one of these.
    Other,
}

/// What a request with this method and path is answered with, if replies may be in it.
pub(super) fn kind_of(method: &Method, path: &str) -> Option<StoredKind> {
    if spelling::is_plain(path) {
        let mut segments = path.trim_end_matches('/').rsplit('/');
        let [last, parent, above] = std::array::from_fn(|_| segments.next().unwrap_or_default());
        let (is_get, is_post) = (*method == Method::GET, *method == Method::POST);
        let is = |segment: &str, word: &str| segment.eq_ignore_ascii_case(word);
        if (is_get && is(parent, "responses")) || (is_post && is(above, "responses") && is(last, "cancel")) {
            return Some(StoredKind::Response);
        }
        if (is_get || is_post) && is(above, "chat") && is(parent, "completions") {
            return Some(StoredKind::Completion);
        }
    }
    spelling::may_show_stored(path).then_some(StoredKind::Other)
}

/// Calls that no policy has judged may pass.
fn passes_unjudged(record: &mut Record) {
    record.data.unjudged.push(UNJUDGED);
    ungoverned::warn_stored_once(&record.data.path);
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
            ("/V1/Responses/resp_1", Some("resp_1")),
        ] {
            assert_eq!(id_in(path).map(|at| &path[at]), id, "{path}");
        }
    }

    #[test]
    fn what_a_path_is_answered_with_is_known_however_it_is_written() {
        use StoredKind::{Completion, Other, Response};
        for (method, path, kind) in [
            (Method::GET, "/v1/responses/resp_1", Some(Response)),
            (Method::GET, "/v1/Responses/resp_1/", Some(Response)),
            (Method::POST, "/v1/responses/resp_1/cancel", Some(Response)),
            (Method::GET, "/v1/responses/resp_1/input_items", Some(Other)),
            (Method::GET, "/v1/%72esponses/resp_1", Some(Other)),
            (Method::GET, "/v1/responses//resp_1", Some(Other)),
            (Method::GET, "/v1/conversations/conv_1/items", Some(Other)),
            (Method::GET, "/v1/chat/completions", Some(Other)),
            (Method::GET, "/v1/chat/completions/chatcmpl_1", Some(Completion)),
            (Method::POST, "/v1/chat/completions/chatcmpl_1", Some(Completion)),
            (Method::GET, "/v1/chat/completions/chatcmpl_1/messages", Some(Other)),
            (Method::GET, "/v1/models", None),
            (Method::POST, "/v1/embeddings", None),
        ] {
            assert_eq!(kind_of(&method, path), kind, "{method} {path}");
        }
    }
}
