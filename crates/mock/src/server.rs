//! The upstream's HTTP server: connections, routes and bodies, each bounded. Reads requests and sends responses; the
//! models decide what is answered.

use super::messages::MessagesEndpoint;
use super::model::Model;
use super::refusal::Refusal;
use super::reply::Reply;
use super::request::{Chat, read_model};
use super::{Upstream, responses};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited, StreamBody};
use hyper::body::{Body as _, Frame, Incoming};
use hyper::http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// The longest request body, in bytes.
const MAX_BODY: usize = 32 * 1024 * 1024;
/// Connections at one time; more wait to be accepted.
const MAX_CONNECTIONS: usize = 256;
/// Requests at one time on one HTTP/2 connection.
const MAX_STREAMS: u32 = 32;
/// How long a connection may take for its first byte and for a request's head, idling between requests
/// included.
const HEAD_TIMEOUT: Duration = Duration::from_secs(90);
/// How long a request's body may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long open replies may go on after the shutdown.
const DRAIN: Duration = Duration::from_secs(5);
/// The pause after a failed accept: mostly a lack of file descriptors, which passes.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Answers on `listener` until `shutdown`, then lets open replies end for at most five seconds.
pub async fn serve(listener: TcpListener, upstream: Arc<Upstream>, shutdown: impl Future<Output = ()>) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let (close, closing) = watch::channel(());
    // Holds every task: those left after the drain end with it.
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let accept = async { (slots.clone().acquire_owned().await, listener.accept().await) };
        tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => {}
            (slot, accepted) = accept => match accepted {
                Ok((stream, _)) => {
                    let connection = converse(stream, upstream.clone(), closing.clone());
                    connections.spawn(async move {
                        connection.await;
                        drop(slot);
                    });
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
    drop(listener);
    // Without open connections nobody receives this, and after the drain the rest is cut: neither is a failure.
    let _ = close.send(());
    let _ = tokio::time::timeout(DRAIN, async { while connections.join_next().await.is_some() {} }).await;
}

/// One connection, from its first byte to its end. A connection that fails only affects its client.
async fn converse(stream: TcpStream, upstream: Arc<Upstream>, mut closing: watch::Receiver<()>) {
    let _ = stream.set_nodelay(true);
    let spoken = tokio::select! {
        spoken = tokio::time::timeout(HEAD_TIMEOUT, stream.readable()) => matches!(spoken, Ok(Ok(()))),
        _ = closing.changed() => false,
    };
    if !spoken {
        return;
    }
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(HEAD_TIMEOUT)
        .max_concurrent_streams(MAX_STREAMS);
    let service = service_fn(move |request| {
        let upstream = upstream.clone();
        async move { Ok::<_, Infallible>(upstream.respond(request).await) }
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = closing.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// A reply as it is sent.
pub(super) enum Form {
    /// One JSON object.
    Whole(Value),
    /// Server-sent events.
    Events(Vec<Bytes>),
}

impl Upstream {
    async fn respond(&self, request: Request<Incoming>) -> Response<Body> {
        if let Some(endpoint) = MessagesEndpoint::from_path(request.uri().path()) {
            return self.respond_to_message(endpoint, request).await;
        }
        let answer = match (request.method(), request.uri().path()) {
            (&Method::POST, "/v1/chat/completions") => self.complete(request).await,
            (&Method::POST, path) if path.ends_with("/responses") => self.create_response(request).await,
            (method, path) if path.starts_with(responses::STORED) => self.stored_response(method, path),
            (&Method::GET, "/v1/models") => Ok(list_models()),
            (&Method::GET, path) if path.starts_with("/v1/models/") => {
                describe_model(&path["/v1/models/".len()..])
            }
            (method, path @ ("/v1/chat/completions" | "/v1/responses" | "/v1/models")) => {
                Err(wrong_method(method, path))
            }
            (method, path) => Err(unknown_route(method, path)),
        };
        answer.unwrap_or_else(|refusal| json_response(refusal.status, &refusal.body()))
    }

    async fn complete(&self, request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
        let (bytes, body) = read_json(request.into_body()).await?;
        let model = read_model(&body)?;
        self.record(model, bytes.len(), 0);
        let mut chat = Chat::read(body, model, &bytes)?;
        let request_id = chat.ids.request();
        let reply = Reply::new(&chat, &model.reply(&chat));
        let form = if chat.stream { Form::Events(reply.events()) } else { Form::Whole(reply.whole()) };
        Ok(self.send(form, request_id).await)
    }

    /// The response that carries a reply, with the id of its request.
    pub(super) async fn send(&self, reply: Form, request_id: String) -> Response<Body> {
        let mut response = self.deliver(reply).await;
        if let Ok(id) = HeaderValue::try_from(request_id) {
            response.headers_mut().insert("x-request-id", id);
        }
        response
    }

    /// The response that carries a reply, at the upstream's pace.
    pub(super) async fn deliver(&self, reply: Form) -> Response<Body> {
        match reply {
            Form::Events(events) => self.stream(events),
            Form::Whole(body) => {
                pause(self.pace).await;
                json_response(StatusCode::OK, &body)
            }
        }
    }

    /// A response that sends one event after the other, at the upstream's pace.
    fn stream(&self, events: Vec<Bytes>) -> Response<Body> {
        let pace = self.pace;
        let frames = stream::unfold(events.into_iter(), move |mut events| async move {
            let event = events.next()?;
            pause(pace).await;
            Some((Ok(Frame::data(event)), events))
        });
        response(StatusCode::OK, "text/event-stream; charset=utf-8", StreamBody::new(frames).boxed_unsync())
    }
}

/// Waits for `pace`. A sleep of no time lasts until the timer's next tick, a millisecond.
async fn pause(pace: Duration) {
    if !pace.is_zero() {
        tokio::time::sleep(pace).await;
    }
}

/// The body of a request and the JSON object that it is.
pub(super) async fn read_json(body: Incoming) -> Result<(Bytes, Value), Refusal> {
    let bytes = read_body(body).await?;
    match serde_json::from_slice(&bytes) {
        Ok(body @ Value::Object(_)) => Ok((bytes, body)),
        _ => Err(not_json()),
    }
}

/// The whole body, within the bounds of size and time.
pub(super) async fn read_body(body: Incoming) -> Result<Bytes, Refusal> {
    let refusal = |status, text: &str| Refusal::plain(status, text);
    let too_large = || refusal(StatusCode::PAYLOAD_TOO_LARGE, "Request body is larger than 32 MiB.");
    // A body whose declared length is too large is refused unread.
    if body.size_hint().lower() > MAX_BODY as u64 {
        return Err(too_large());
    }
    match tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(refusal(StatusCode::BAD_REQUEST, "The request body ended early.")),
        Err(_) => Err(refusal(StatusCode::REQUEST_TIMEOUT, "The request body took longer than 60 s.")),
    }
}

fn list_models() -> Response<Body> {
    let models: Vec<Value> = Model::ALL.into_iter().map(model_object).collect();
    json_response(StatusCode::OK, &json!({"object": "list", "data": models}))
}

fn describe_model(name: &str) -> Result<Response<Body>, Refusal> {
    let found = Model::find(name).map(|model| json_response(StatusCode::OK, &model_object(model)));
    found.ok_or_else(|| Refusal {
        param: Some("model".to_owned()),
        ..Refusal::plain(StatusCode::NOT_FOUND, format!("The model '{name}' does not exist"))
            .coded("model_not_found")
    })
}

fn model_object(model: Model) -> Value {
    json!({"id": model.name(), "object": "model", "created": 1_735_689_600, "owned_by": "toolrein-demo"})
}

fn not_json() -> Refusal {
    let hint = "(HINT: This likely means you aren't using your HTTP library correctly. The OpenAI API \
                expects a JSON payload, but what was sent was not valid JSON. If you have trouble figuring \
                out how to fix this, please contact us through our help center at help.openai.com.)";
    let text = format!("We could not parse the JSON body of your request. {hint}");
    Refusal::plain(StatusCode::BAD_REQUEST, text)
}

pub(super) fn wrong_method(method: &Method, path: &str) -> Refusal {
    let text = format!(
        "Not allowed to {method} on {path}. (HINT: Perhaps you meant to use a different HTTP method?)"
    );
    Refusal::plain(StatusCode::METHOD_NOT_ALLOWED, text)
}

pub(super) fn unknown_route(method: &Method, path: &str) -> Refusal {
    let text = format!(
        "Unknown request URL: {method} {path}. Please check the URL for typos, or see the docs at \
         https://platform.openai.com/docs/api-reference/."
    );
    Refusal::plain(StatusCode::NOT_FOUND, text).coded("unknown_url")
}

pub(super) fn json_response(status: StatusCode, body: &Value) -> Response<Body> {
    response(status, "application/json", Full::new(Bytes::from(body.to_string())).boxed_unsync())
}

fn response(status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
