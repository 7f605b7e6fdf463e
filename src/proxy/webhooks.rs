//! Notifications about calls that wait for a person: signed with HMAC-SHA256 as Standard Webhooks has it, sent again with
//! pauses that grow, and bounded in number. No request waits for one, and one that is lost changes nothing: the call
//! goes on waiting. Who is notified of what is the exchange's decision.

use super::body::UpBody;
use super::drain::Drain;
use super::handler::AppState;
use super::upstream::{Upstream, UpstreamSettings, UpstreamSetupError};
use crate::config::{Config, without_path};
use crate::secret::{UNSET, random_key};
use crate::telemetry::log::Level;
use crate::telemetry::spans::Child;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::http::header::CONTENT_TYPE;
use hyper::http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use model::identity::Domain;
use model::record::WebhookResult;
use policies::approvals::Webhook;
use ring::hmac;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

/// The most notifications on their way at once, with those that wait for another try.
const MOST_RUNNING: usize = 256;
/// The pause before the first retry; each further one is twice as long, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A shorter secret could be guessed from a signature.
const LEAST_SECRET: usize = 16;
/// How secrets in base64 begin, by Standard Webhooks.
const ENCODED: &str = "whsec_";

static ID: HeaderName = HeaderName::from_static("webhook-id");
static TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
static SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// Why a webhook cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WebhookSetupError {
    #[error("policy.confirm.webhook.secret_env: the environment variable {name} {problem}")]
    Secret { name: String, problem: String },
    #[error("policy.confirm.webhook.url: {0}")]
    Url(UpstreamSetupError),
}

/// The webhooks that the settings of all profiles name.
pub struct Webhooks {
    known: HashMap<Webhook, Endpoint>,
    running: Arc<Semaphore>,
    drain: Drain,
}

struct Endpoint {
    upstream: Upstream,
    path: Uri,
    secret: hmac::Key,
}

/// What a receiver is notified of.
pub(crate) struct Notification {
    /// `approval.requested` or `approval.expired`.
    pub(crate) kind: &'static str,
    pub(crate) data: Value,
    /// When it is of no use any more.
    pub(crate) until: Instant,
    /// The token of the call that it asks about: once that waits no longer, it is not sent again.
    pub(crate) asks_about: Option<String>,
    /// Its step in the trace of the request, where one is kept.
    pub(crate) step: Option<Child>,
}

/// The outcome of a notification.
struct Delivery {
    result: WebhookResult,
    tries: u32,
    /// Why it was not delivered.
    problem: String,
}

/// A signed notification: every try sends the same one, with another time.
struct Message {
    id: String,
    body: Bytes,
}

impl Webhooks {
    /// Reads the secrets from the environment; connects to nothing. `like`: the connection settings of the upstream.
    /// The drain ends every retry.
    pub(crate) fn of(
        config: &Config,
        like: &UpstreamSettings,
        drain: Drain,
    ) -> Result<Self, WebhookSetupError> {
        let known = endpoints(config, like)?;
        Ok(Self { known, running: Arc::new(Semaphore::new(MOST_RUNNING)), drain })
    }

    /// The webhooks of another configuration, with the same limit on running notifications and the same drain.
    pub(crate) fn renewed(
        &self,
        config: &Config,
        like: &UpstreamSettings,
    ) -> Result<Self, WebhookSetupError> {
        let (running, drain) = (Arc::clone(&self.running), self.drain.clone());
        Ok(Self { known: endpoints(config, like)?, running, drain })
    }
}

fn endpoints(
    config: &Config,
    like: &UpstreamSettings,
) -> Result<HashMap<Webhook, Endpoint>, WebhookSetupError> {
    let known = config.webhooks().map(|webhook| {
        let endpoint = Endpoint::of(&webhook, like)?;
        Ok((webhook, endpoint))
    });
    known.collect()
}

impl Endpoint {
    fn of(webhook: &Webhook, like: &UpstreamSettings) -> Result<Self, WebhookSetupError> {
        let wrong = |problem| {
            WebhookSetupError::Url(UpstreamSetupError::Url { url: without_path(&webhook.url), problem })
        };
        let url: Uri = webhook.url.parse().map_err(|_| wrong("is not a URL"))?;
        let path = url.path_and_query().map_or("/", |path| path.as_str());
        // An upstream maps `/v1` to its own path, which is empty here.
        let path = format!("/v1{path}").parse().map_err(|_| wrong("is not a URL"))?;
        let mut parts = url.into_parts();
        parts.path_and_query = Some(hyper::http::uri::PathAndQuery::from_static("/"));
        let base = Uri::from_parts(parts).map_err(|_| wrong("is not a URL"))?;
        let upstream = Upstream::new(like.for_other_server(base)).map_err(WebhookSetupError::Url)?;
        Ok(Self { upstream, path, secret: secret(&webhook.secret_env)? })
    }

    fn request(&self, message: &Message) -> Request<UpBody> {
        let seconds =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let signature = self.signature(message, seconds);
        let mut request = Request::new(UpBody::rope(vec![message.body.clone()]));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.path.clone();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let ours = [(&ID, message.id.clone()), (&TIMESTAMP, seconds.to_string()), (&SIGNATURE, signature)];
        for (name, value) in ours {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(name.clone(), value);
            }
        }
        request
    }

    /// HMAC-SHA256 over id, time and body, with dots between them, in base64.
    fn signature(&self, message: &Message, seconds: u64) -> String {
        let signed =
            [message.id.as_bytes(), b".", seconds.to_string().as_bytes(), b".", &message.body].concat();
        format!("v1,{}", STANDARD.encode(hmac::sign(&self.secret, &signed)))
    }
}

/// The secret in the variable `name`.
fn secret(name: &str) -> Result<hmac::Key, WebhookSetupError> {
    let refused = |problem: String| WebhookSetupError::Secret { name: name.to_owned(), problem };
    let value = std::env::var(name).map_err(|_| refused(UNSET.to_owned()))?;
    let value = value.trim();
    let bytes = match value.strip_prefix(ENCODED) {
        Some(encoded) => {
            STANDARD.decode(encoded).map_err(|_| refused(format!("is not base64 after {ENCODED}")))?
        }
        None => value.as_bytes().to_vec(),
    };
    if bytes.len() < LEAST_SECRET {
        return Err(refused(format!("has fewer than {LEAST_SECRET} bytes")));
    }
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}

impl AppState {
    /// The link in a notification about the call under `token`: the operator's, else the address on the admin port to
    /// which the answer is sent.
    pub(crate) fn approval_link(&self, webhook: &Webhook, token: &str) -> String {
        match &webhook.link {
            Some(link) => link.replace("{token}", token),
            None => format!("http://{}/api/confirmations/{token}", self.config.listen.admin),
        }
    }

    /// Sends a notification, in a task of its own.
    pub(crate) fn notify(self: &Arc<Self>, webhook: &Arc<Webhook>, notification: Notification) {
        let Ok(permit) = Arc::clone(&self.webhooks.running).try_acquire_owned() else {
            let problem = "too many at once".to_owned();
            let delivery = Delivery { result: WebhookResult::Dropped, tries: 0, problem };
            return self.note_webhook(webhook, notification.kind, &delivery);
        };
        let (app, webhook) = (Arc::clone(self), Arc::clone(webhook));
        let (guard, mut notification) = (self.webhooks.drain.guard(), notification);
        tokio::spawn(async move {
            let (kind, step) = (notification.kind, notification.step.take());
            let delivery = app.deliver(&webhook, notification).await;
            app.note_webhook(&webhook, kind, &delivery);
            step.into_iter().for_each(|step| app.trace_webhook(step, kind, &delivery));
            drop((permit, guard));
        });
    }

    async fn deliver(&self, webhook: &Webhook, notification: Notification) -> Delivery {
        let ended = |result, tries, problem: &str| Delivery { result, tries, problem: problem.to_owned() };
        let Some(endpoint) = self.webhooks.known.get(webhook) else {
            return ended(WebhookResult::Failed, 0, "it is not in the configuration any more");
        };
        let Notification { kind, data, until, asks_about, .. } = notification;
        let id = format!("msg_{}", random_key().hash(Domain::Confirmation, &[]));
        let at = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let body = json!({ "type": kind, "timestamp": at, "data": data }).to_string().into();
        let message = Message { id, body };
        let (mut pause, mut tries) = (FIRST_PAUSE, 0);
        loop {
            tries += 1;
            let within = Duration::from_millis(webhook.timeout_ms);
            let sent = timeout(within, endpoint.upstream.send(endpoint.request(&message)));
            let reply = tokio::select! {
                () = self.webhooks.drain.started() => {
                    return ended(WebhookResult::Failed, tries, "toolrein is shutting down");
                }
                reply = sent => reply,
            };
            let problem = match reply {
                Ok(Ok(reply)) if reply.status().is_success() => {
                    return ended(WebhookResult::Delivered, tries, "");
                }
                Ok(Ok(reply)) if !may_pass_later(reply.status()) => {
                    let problem = format!("its status is {}", reply.status().as_u16());
                    return ended(WebhookResult::Refused, tries, &problem);
                }
                Ok(Ok(reply)) => format!("its status is {}", reply.status().as_u16()),
                Ok(Err(error)) => error.code().to_owned(),
                Err(_) => "it does not answer in time".to_owned(),
            };
            if tries > webhook.retries || Instant::now() + pause >= until {
                return ended(WebhookResult::Failed, tries, &problem);
            }
            tokio::select! {
                () = self.webhooks.drain.started() => return ended(WebhookResult::Failed, tries, &problem),
                () = sleep(pause) => {}
            }
            if asks_about.as_ref().is_some_and(|token| !self.held.is_waiting(token)) {
                return ended(WebhookResult::Failed, tries, &problem);
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Ends a notification's step in its trace.
    fn trace_webhook(&self, mut child: Child, kind: &'static str, delivery: &Delivery) {
        let step = &mut child.step;
        step.note("toolrein.event", kind).note("toolrein.tries", i64::from(delivery.tries));
        match delivery.result {
            WebhookResult::Delivered => step.end(),
            result => step.fail(result.as_str()),
        }
        self.telemetry.spans.record_child(&child);
    }

    /// Counts the outcome of a notification, and logs one that was not delivered. The log names its receiver by host
    /// only, since a path may be a secret.
    fn note_webhook(&self, webhook: &Webhook, kind: &'static str, delivery: &Delivery) {
        let Delivery { result, tries, problem } = delivery;
        self.telemetry.metrics.count_webhook(*result);
        if *result == WebhookResult::Delivered {
            return;
        }
        let host = webhook.url.parse::<Uri>().ok().and_then(|url| url.host().map(str::to_owned));
        let fields = json!({
            "host": host, "event": kind, "result": result.as_str(), "tries": tries, "problem": problem,
        });
        self.telemetry.log.note(Level::Warn, "a webhook was not delivered", fields);
    }
}

/// Whether a receiver that answers so may take the same notification later.
fn may_pass_later(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_standard_webhooks() {
        // The example of the specification's reference libraries.
        let secret = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let key = hmac::Key::new(hmac::HMAC_SHA256, &secret);
        let signed = b"msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{\"test\": 2432232314}";
        let signature = STANDARD.encode(hmac::sign(&key, signed));
        assert_eq!(signature, "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }
}
