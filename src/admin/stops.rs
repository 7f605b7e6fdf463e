//! Stops, a kill switch: the holder of the bearer token stops conversations and callers, lists what is stopped, and
//! ends stops. Reads and writes JSON; a policy acts on a stop.

use super::Admin;
use super::answer::{Answer, JSON};
use super::code::Code;
use super::pages::segment;
use crate::config::{Config, Mode};
use axum::extract::State;
use hyper::http::{StatusCode, Uri};
use model::Stopped;
use model::store::Stop;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use state::stops::{MOST_STOPS, StopError};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The longest id of a conversation.
const MOST_ID_BYTES: usize = 256;
/// Hexadecimal digits of a caller's hash.
const HASH_DIGITS: usize = 32;

/// The requests for which a stop has an effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopScope {
    /// Why it has none anywhere.
    off: Option<&'static str>,
    /// The profiles in which it has none; `None` for requests without a profile.
    except: Vec<Option<String>>,
}

impl StopScope {
    /// The scope under this configuration.
    pub fn of(config: &Config) -> Self {
        let profiles = config.profiles.iter();
        let profiles = profiles.map(|profile| (Some(profile.name.to_string()), &profile.policies));
        let sets: Vec<_> = std::iter::once((None, &config.policies)).chain(profiles).collect();
        let off = match config.mode {
            Mode::Enforce if sets.iter().any(|(_, policies)| policies.obeys_stops()) => None,
            Mode::Enforce => Some("the policy that blocks the calls of what is stopped (kill) is off"),
            Mode::Observe | Mode::Off => Some("mode is not \"enforce\""),
        };
        let except = sets.into_iter().filter(|(_, policies)| !policies.obeys_stops());
        Self { off, except: except.map(|(name, _)| name).collect() }
    }
}

/// What is stopped, the soonest end first.
pub(super) async fn list(State(admin): State<Arc<Admin>>) -> Answer {
    admin.list_stops().await
}

pub(super) async fn stop_conversation(State(admin): State<Arc<Admin>>, uri: Uri) -> Answer {
    match named(Stopped::Conversation, &uri) {
        Ok(stop) => admin.stop(stop).await,
        Err(refusal) => refusal,
    }
}

pub(super) async fn resume_conversation(State(admin): State<Arc<Admin>>, uri: Uri) -> Answer {
    match named(Stopped::Conversation, &uri) {
        Ok(stop) => admin.resume(stop).await,
        Err(refusal) => refusal,
    }
}

pub(super) async fn stop_caller(State(admin): State<Arc<Admin>>, uri: Uri) -> Answer {
    match named(Stopped::Caller, &uri) {
        Ok(stop) => admin.stop(stop).await,
        Err(refusal) => refusal,
    }
}

pub(super) async fn resume_caller(State(admin): State<Arc<Admin>>, uri: Uri) -> Answer {
    match named(Stopped::Caller, &uri) {
        Ok(stop) => admin.resume(stop).await,
        Err(refusal) => refusal,
    }
}

/// The stop that the path names.
fn named(what: Stopped, uri: &Uri) -> Result<Stop, Answer> {
    stop(what, segment(uri, 2)).ok_or_else(|| {
        let message = match what {
            Stopped::Conversation => "A conversation's id is 1 to 256 visible ASCII characters.",
            Stopped::Caller => "A caller's id is its hash from the log: 32 hexadecimal digits.",
        };
        Answer::error(Code::BadId, message)
    })
}

impl Admin {
    async fn list_stops(&self) -> Answer {
        let mut listed = self.store.stops(now_ms()).await;
        listed.stops.sort_by_key(|(_, until_ms)| *until_ms);
        let data: Vec<Value> = listed.stops.iter().map(|(stop, until_ms)| line(stop, *until_ms)).collect();
        let body = json!({"object": "list", "data": data, "complete": listed.whole});
        Answer(StatusCode::OK, JSON, body.to_string().into())
    }

    async fn stop(&self, stop: Stop) -> Answer {
        if let Some(why) = self.stop_scope.off {
            let message = format!("A stop would have no effect: {why}.");
            return Answer::error(Code::StopsOff, &message);
        }
        let stopped = self.store.stop(stop.clone(), now_ms()).await;
        if stopped != Err(StopError::Full) {
            tracing::warn!(what = word(stop.what), id = stop.id, "stopped at the admin port");
        }
        match stopped {
            Ok(until_ms) => {
                let mut body = line(&stop, until_ms);
                body["stopped"] = json!(true);
                if !self.stop_scope.except.is_empty() {
                    body["not_in_profiles"] = json!(self.stop_scope.except);
                }
                Answer(StatusCode::OK, JSON, body.to_string().into())
            }
            Err(StopError::Away) => away("It is stopped at this replica only"),
            Err(StopError::Full) => {
                let message = format!("There are {MOST_STOPS} stops already: end some of them first.");
                Answer::error(Code::TooManyStops, &message)
            }
        }
    }

    async fn resume(&self, stop: Stop) -> Answer {
        let resumed = self.store.resume(stop.clone()).await;
        match resumed {
            Ok(true) => {
                tracing::info!(what = word(stop.what), id = stop.id, "a stop was ended at the admin port");
                let body = json!({"what": word(stop.what), "id": stop.id, "stopped": false});
                Answer(StatusCode::OK, JSON, body.to_string().into())
            }
            Ok(false) => {
                let message =
                    "No stop for this id was set here; end stops of the configuration in the configuration.";
                Answer::error(Code::NotStopped, message)
            }
            Err(_) => away("It is resumed at this replica only"),
        }
    }
}

/// The stop that the path names; `None` if no conversation or caller can have such an id.
fn stop(what: Stopped, id: &str) -> Option<Stop> {
    let id = percent_decode_str(id).decode_utf8().ok()?;
    let id = match what {
        Stopped::Conversation => id.trim().to_owned(),
        Stopped::Caller => id.to_ascii_lowercase(),
    };
    let is_id = match what {
        Stopped::Conversation => (1..=MOST_ID_BYTES).contains(&id.len()) && !id.chars().any(char::is_control),
        Stopped::Caller => id.len() == HASH_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit()),
    };
    is_id.then_some(Stop { what, id })
}

fn away(what: &str) -> Answer {
    let message = format!("{what}: the state store that replicas share did not answer. Send it again.");
    Answer::error(Code::StoreAway, &message)
}

fn line(stop: &Stop, until_ms: u64) -> Value {
    let until = SystemTime::UNIX_EPOCH + Duration::from_millis(until_ms);
    let until = humantime::format_rfc3339_millis(until).to_string();
    json!({"what": word(stop.what), "id": stop.id, "until": until})
}

fn word(what: Stopped) -> &'static str {
    match what {
        Stopped::Conversation => "conversation",
        Stopped::Caller => "caller",
    }
}

pub(super) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
