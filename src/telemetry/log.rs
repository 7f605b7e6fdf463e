//! The log: one structured line for each client request, and a few other lines. Decides the level of a line; `request`
//! writes a request's fields, `line` formats any other line, and `queue` writes them.
//!
//! A request's line begins with `request_id`, and always has `method`, `path`, `endpoint`, `route`, `mode`, `status`,
//! `request_bytes`, `reply_bytes`, `total_ms` and `overhead_ms`. Every other field is there only where it has
//! information: no empty text, no zero, no `false`. Names and meanings of fields are stable; new ones may be added.
//! Never a body, an argument or a credential.

use super::line::{Form, bounded_fields, line};
use super::queue::Queue;
use super::request::request_line;
use super::short_line::short_line;
use model::record::RequestRecord;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::SystemTime;

/// `[log]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    pub format: Format,
    /// Lines below it are not written.
    pub level: Level,
}

/// The format of lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Text on a terminal, JSON otherwise.
    #[default]
    Auto,
    Text,
    Json,
}

/// The level of a line, the least important first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Debug,
    /// Requests.
    #[default]
    Info,
    /// Requests that ended in an error of toolrein's own or a status of 500 and above.
    Warn,
    Error,
}

/// The most keys that the sentence about the operator's file names.
const MOST_CHANGES: usize = 5;

/// A handle on the log. Cheap to clone; no call waits for the disk or the terminal.
#[derive(Clone)]
pub struct Log(Option<Arc<Open>>);

struct Open {
    queue: Queue,
    form: Form,
    /// A [`Level`].
    level: AtomicU8,
}

impl Log {
    /// A log on standard error.
    pub fn start(settings: Settings) -> Self {
        Self::open(settings, io::stderr())
    }

    /// A log of JSON lines, requests included, to `sink`.
    pub fn to_writer(sink: impl Write + Send + 'static) -> Self {
        Self::open(Settings { format: Format::Json, level: Level::Info }, sink)
    }

    /// A log that writes nothing.
    pub fn silent() -> Self {
        Self(None)
    }

    /// A log to `sink`, written by its own thread. [`Format::Auto`] depends on standard error.
    pub(super) fn open(settings: Settings, sink: impl Write + Send + 'static) -> Self {
        let form = match settings.format {
            Format::Text => Form::Text,
            Format::Auto if io::stderr().is_terminal() => Form::Text,
            Format::Auto | Format::Json => Form::Json,
        };
        Self(Some(Arc::new(Open {
            queue: Queue::new("log", sink),
            form,
            level: AtomicU8::new(settings.level as u8),
        })))
    }

    /// From now on, lines below `level` are not written.
    pub fn set_level(&self, level: Level) {
        if let Some(open) = &self.0 {
            open.level.store(level as u8, Ordering::Relaxed);
        }
    }

    /// The line of one request.
    pub(super) fn request(&self, record: &RequestRecord) {
        let failed = record.error.is_some() || record.status >= 500;
        let level = if failed { Level::Warn } else { Level::Info };
        let Some(open) = self.at(level) else { return };
        let mut line = match open.form {
            Form::Json => request_line(record, level, SystemTime::now()),
            Form::Text => short_line(record).into_bytes(),
        };
        line.push(b'\n');
        open.queue.push(&line);
    }

    /// The line that reports where the proxy and the admin server listen. It is written at every level, since programs
    /// wait for it; credentials in the upstream's URL are left out.
    pub fn listening(&self, started: &Started<'_>) {
        if let Some(open) = &self.0 {
            let upstream = without_credentials(started.upstream);
            let started = Started { upstream: &upstream, ..started.clone() };
            let changes = your_changes(&started.changes);
            open.write(Level::Info, "listening", bounded_fields(started));
            if let Some(changes) = changes.filter(|_| open.form == Form::Text) {
                open.write(Level::Info, &changes, Map::new());
            }
        }
    }

    /// Any other line, its `fields` a struct or a map. The caller ensures that no value is a body, an argument or a
    /// credential.
    pub fn note(&self, level: Level, message: &str, fields: impl Serialize) {
        if let Some(open) = self.at(level) {
            open.write(level, message, bounded_fields(fields));
        }
    }

    /// An event of the library `target`, which passed the filter by module.
    pub(super) fn forwarded(&self, level: Level, target: &str, fields: impl Serialize) {
        if let Some(open) = &self.0 {
            let mut fields = bounded_fields(fields);
            let message = fields.shift_remove("message");
            fields.shift_insert(0, "target".to_owned(), target.into());
            open.write(level, message.as_ref().and_then(Value::as_str).unwrap_or_default(), fields);
        }
    }

    /// Flushes and ends the log; waits a second at most. Call at the program's end, off the runtime.
    pub fn finish(&self) {
        if let Some(open) = &self.0 {
            open.queue.finish();
        }
    }

    /// Lines lost since the last call, because they came faster than they could be written.
    pub(super) fn take_lost(&self) -> u64 {
        self.0.as_ref().map_or(0, |open| open.queue.take_lost())
    }

    /// The log, if lines of this level are written.
    fn at(&self, level: Level) -> Option<&Open> {
        self.0.as_deref().filter(|open| level as u8 >= open.level.load(Ordering::Relaxed))
    }
}

/// The content of the line about the start.
#[derive(Clone, Debug, Serialize)]
pub struct Started<'a> {
    /// The addresses on which the proxy and the admin server listen.
    pub proxy: String,
    pub admin: String,
    /// Where probes and metrics have a port of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probes: Option<String>,
    pub mode: &'a str,
    /// The upstream's URL.
    pub upstream: &'a str,
    /// The keys, dotted, in which the file differs from the built-in defaults.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    pub version: &'static str,
    #[serde(flatten)]
    pub config: Configured<'a>,
}

/// The configuration in force.
#[derive(Clone, Debug, Serialize)]
pub struct Configured<'a> {
    /// Its source.
    pub config: &'a str,
    /// The beginning of the SHA-256 of its text, in hexadecimal.
    pub config_hash: &'a str,
    /// The policies that are on, in their order.
    pub policies: Vec<&'static str>,
}

impl Open {
    fn write(&self, level: Level, message: &str, fields: impl Serialize) {
        self.queue.push(&line(self.form, SystemTime::now(), level, message, fields));
    }
}

impl Level {
    /// As written in lines.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// The sentence about the settings that the operator's file changes.
fn your_changes(keys: &[String]) -> Option<String> {
    let (named, others) = keys.split_at(keys.len().min(MOST_CHANGES));
    let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
    let (list, noun) = (named.join(", "), if keys.len() == 1 { "setting" } else { "settings" });
    (!keys.is_empty()).then(|| format!("your file changes {} {noun}: {list}{more}", keys.len()))
}

/// A URL without user, password, query and fragment.
fn without_credentials(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::super::cases::{Sink, rich};
    use super::*;
    use model::record::{Endpoint, JudgedCall, Route};
    use serde_json::json;

    /// The lines that `write` makes, without their times.
    fn lines(settings: Settings, write: impl FnOnce(&Log)) -> Vec<Value> {
        let sink = Sink::default();
        let log = Log::open(settings, sink.clone());
        write(&log);
        log.finish();
        let parse = |line: &str| {
            let mut line: Value = serde_json::from_str(line).unwrap();
            let at = line.as_object_mut().unwrap().remove("timestamp").unwrap();
            humantime::parse_rfc3339(at.as_str().unwrap()).unwrap();
            line
        };
        sink.text().lines().map(parse).collect()
    }

    fn json_at(level: Level) -> Settings {
        Settings { format: Format::Json, level }
    }

    #[test]
    fn a_rich_record_becomes_one_line() {
        let expected = json!({
            "level": "info", "message": "request", "request_id": "req-1", "conversation": "talk-1", "caller": "c0ffee",
            "model": "gpt-4o", "profile": "chat", "method": "POST", "path": "/v1/chat/completions",
            "endpoint": "chat_completions", "route": "chat", "mode": "enforce", "status": 200, "streamed": true,
            "actions": [{"policy": "truncate", "action": "shortened", "count": 2},
                {"policy": "budget", "action": "notice", "count": 1},
                {"policy": "rate_limit", "action": "blocked", "count": 1}],
            "tool_calls": [{"name": "search", "id": "call-0", "verdict": "allow"},
                {"name": "search", "id": "call-0", "verdict": "allow"},
                {"name": "weather", "id": "call-0", "verdict": "block", "policy": "rate_limit", "reason": "RATE_LIMIT",
                    "used": 3, "limit": 3, "also": [{"policy": "loops", "reason": "LOOP_DETECTED"}]},
                {"name": "weather", "id": "call-0", "verdict": "allow", "unjudged": true}],
            "results": [{"tool": "search", "bytes": 5120, "tokens": 1280, "ms": 350},
                {"tool": "weather", "bytes": 10, "tokens": 3}],
            "limits": [{"policy": "rate_limit", "tool": "weather", "used": 3, "limit": 3},
                {"tool": "*", "used": 12, "limit": 50}],
            "upstream_requests": 2, "upstream_request_ids": ["up-0", "up-1"], "reasks": 1, "lost_hidden_exchanges": 1,
            "fallbacks": ["placement"], "prefix_breaks": ["store"], "unjudged": ["event_too_long"],
            "tokens_prompt": 3000, "tokens_cached": 2048, "tokens_cache_written": 100, "tokens_completion": 70,
            "tokens_reasoning": 20, "tokens_saved": 900,
            "context_touched": true, "request_bytes": 32768, "reply_bytes": 900,
            "total_ms": 1500.25, "overhead_ms": 0.25, "upstream_ms": 1500.0, "first_byte_ms": 420.5,
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        });
        assert_eq!(lines(json_at(Level::Info), |log| log.request(&rich())), [expected]);
    }

    #[test]
    fn the_line_of_a_request_begins_with_its_id() {
        let sink = Sink::default();
        let log = Log::open(json_at(Level::Info), sink.clone());
        log.request(&rich());
        log.finish();
        assert!(sink.text().starts_with(r#"{"request_id":"req-1","timestamp":""#), "{}", sink.text());
    }

    #[test]
    fn the_first_request_of_a_conversation_has_its_start_tokens_and_a_repetition_has_none() {
        let declared_tools = ["a".to_owned(), "b".to_owned()].into();
        let first = RequestRecord {
            system_tokens: Some(320),
            definition_tokens: 930,
            declared_tools,
            ..RequestRecord::new(Route::Chat)
        };
        let written = |record: &RequestRecord| {
            let line = lines(json_at(Level::Info), |log| log.request(record)).remove(0);
            ["start_tokens", "start_tokens_system", "start_tokens_tools", "start_tools"]
                .map(|key| line.get(key).and_then(Value::as_u64))
        };
        assert_eq!(written(&first), [Some(1_250), Some(320), Some(930), Some(2)]);
        assert_eq!(written(&RequestRecord { repeated: true, ..first.clone() }), [None; 4]);
        assert_eq!(written(&RequestRecord { system_tokens: None, ..first }), [None; 4], "a later request");
    }

    #[test]
    fn as_text_it_is_one_short_line() {
        let sink = Sink::default();
        let log = Log::open(Settings { format: Format::Text, level: Level::Info }, sink.clone());
        log.request(&rich());
        log.finish();
        let text = sink.text();
        assert!(text.starts_with("POST chat gpt-4o 200 1500 ms  "), "{text}");
        assert!(text.contains("weather BLOCKED by rate_limit") && text.lines().count() == 1, "{text}");
    }

    #[test]
    fn a_plain_record_has_only_the_fields_that_say_something() {
        let mut record = RequestRecord::new(Route::Relay);
        record.mode = "observe";
        record.method = "GET".to_owned();
        record.path = "/v1/models".to_owned();
        record.endpoint = Endpoint::Models;
        let expected = json!({
            "level": "info", "message": "request", "request_id": "", "method": "GET", "path": "/v1/models",
            "endpoint": "models", "route": "relay", "mode": "observe", "status": 0, "request_bytes": 0,
            "reply_bytes": 0, "total_ms": 0.0, "overhead_ms": 0.0,
        });
        assert_eq!(lines(json_at(Level::Debug), |log| log.request(&record)), [expected]);
    }

    #[test]
    fn failed_requests_are_warnings_and_lower_levels_are_left_out() {
        let with = |status, error| RequestRecord { status, error, ..RequestRecord::new(Route::Chat) };
        for (record, warned) in [
            (with(200, None), false),
            (with(404, None), false),
            (with(0, None), false),
            (with(400, Some("budget_exhausted")), true),
            (with(503, None), true),
        ] {
            let written = lines(json_at(Level::Warn), |log| log.request(&record));
            assert_eq!(written.len(), usize::from(warned), "{record:?}");
        }
    }

    #[test]
    fn the_listening_line_is_written_at_every_level_and_hides_credentials() {
        let started = Started {
            proxy: "127.0.0.1:4242".to_owned(),
            admin: "127.0.0.1:4243".to_owned(),
            probes: None,
            mode: "enforce",
            upstream: "https://user:secret@api.example:8443/v1/a@b?key=secret#secret",
            changes: vec!["policy.budget.tool_calls".to_owned()],
            version: "1.2.3",
            config: Configured {
                config: "proxy.toml",
                config_hash: "c0ffee",
                policies: vec!["budget", "loops"],
            },
        };
        let expected = json!({
            "level": "info", "message": "listening", "proxy": "127.0.0.1:4242", "admin": "127.0.0.1:4243",
            "mode": "enforce", "upstream": "https://api.example:8443/v1/a@b", "changes": ["policy.budget.tool_calls"], "version": "1.2.3",
            "config": "proxy.toml", "config_hash": "c0ffee", "policies": ["budget", "loops"],
        });
        assert_eq!(lines(json_at(Level::Error), |log| log.listening(&started)), [expected]);
        for (url, shown) in [
            ("demo:", "demo:"),
            ("http://127.0.0.1:1", "http://127.0.0.1:1"),
            ("http://u@h", "http://h"),
            ("http://u:p@ss@h/", "http://h/"),
        ] {
            assert_eq!(without_credentials(url), shown);
        }
    }

    #[test]
    fn notes_carry_fields_of_their_own_and_keep_to_the_level() {
        let written = lines(json_at(Level::Info), |log| {
            log.note(Level::Debug, "too fine", json!({}));
            log.note(Level::Warn, "draining", json!({"open": 3, "why": "signal\n{\"level\":\"error\"}"}));
        });
        let why = "signal\u{fffd}{\"level\":\"error\"}";
        assert_eq!(written, [json!({ "level": "warn", "message": "draining", "open": 3, "why": why })]);
    }

    #[test]
    fn hostile_ids_and_names_stay_bounded_and_inside_their_fields() {
        let hostile = format!("a\",\"level\":\"error\"}}\n{}", "\u{1b}[31mx ".repeat(10_000));
        let mut record = rich();
        record.conversation = Some(hostile.clone());
        record.model = Some(hostile.clone());
        record.traceparent = Some(hostile.clone());
        record.path.clone_from(&hostile);
        record.method.clone_from(&hostile);
        record.upstream_request_ids = vec![hostile.clone(); 5_000];
        record.judged[2].id.clone_from(&hostile);
        record.judged = vec![JudgedCall { tool: hostile.clone(), ..record.judged[2].clone() }; 5_000];
        record.results.iter_mut().for_each(|result| result.tool.clone_from(&hostile));
        let sink = Sink::default();
        let log = Log::to_writer(sink.clone());
        log.request(&record);
        log.finish();
        let text = sink.text();
        assert_eq!(text.lines().count(), 1);
        assert!(text.len() < 16_000, "{}", text.len());
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["level"], &line["status"]), (&json!("info"), &json!(200)));
        assert_eq!(line["model"].as_str().unwrap().chars().count(), 200);
        assert_eq!(line["tool_calls"].as_array().unwrap().len(), 20);
        assert_eq!(line["tool_calls"][0]["id"].as_str().unwrap().chars().count(), 64);
        assert_eq!(line["left_out"], 5_000 - 20, "what is not listed is given as a number");
    }

    #[test]
    fn a_silent_log_takes_everything() {
        let log = Log::silent();
        log.request(&rich());
        log.note(Level::Error, "nothing", json!({}));
        log.finish();
        assert_eq!(log.take_lost(), 0);
    }

    #[test]
    fn formats_and_levels_are_read_from_their_configuration_names() {
        let read = |word: &str| serde_json::from_value::<Level>(json!(word)).ok();
        for level in [Level::Debug, Level::Info, Level::Warn, Level::Error] {
            assert_eq!(read(level.as_str()), Some(level));
        }
        assert_eq!(read("trace"), None);
        assert_eq!(serde_json::from_value::<Format>(json!("auto")).ok(), Some(Format::Auto));
    }
}
