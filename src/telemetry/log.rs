//! The log: one structured line for each client request, and a few plain ones around them. Decides which
//! fields there are and which level a line has; how it is spelled is `line`'s affair, writing it `queue`'s.
//!
//! A request's line always has `request_id`, `route`, `mode`, `status`, `request_bytes`, `reply_bytes`,
//! `total_ms` and `overhead_ms`. Every other field is there only where it says something: no empty text, no
//! zero, no `false`. Names and meanings of fields stay; new ones may come. Never a body, an argument or a
//! credential.

use super::bounded;
use super::line::{Form, Line};
use super::outcome::{Action, EDITS, JudgedCall, LimitUse, NewResult, Outcome};
use super::queue::Queue;
use serde::Deserialize;
use std::fmt::{self, Display, Write as _};
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, SystemTime};

/// `[log]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    pub format: Format,
    /// Lines below it are not written.
    pub level: Level,
}

/// How lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Text on a terminal, JSON otherwise.
    #[default]
    Auto,
    Text,
    Json,
}

/// How much a line matters, the least first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Debug,
    /// Requests.
    #[default]
    Info,
    /// Requests that ended in an error of ours or a status of 500 and above.
    Warn,
    Error,
}

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

    /// A log of JSON lines, requests included, to `sink`; for tests.
    pub fn to_writer(sink: impl Write + Send + 'static) -> Self {
        Self::open(Settings { format: Format::Json, level: Level::Info }, sink)
    }

    /// A log that writes nothing.
    pub fn silent() -> Self {
        Self(None)
    }

    /// A log to `sink`, which is written by a thread of its own. [`Format::Auto`] looks at standard error.
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

    /// Lines below `level` are not written from now on.
    pub fn set_level(&self, level: Level) {
        if let Some(open) = &self.0 {
            open.level.store(level as u8, Ordering::Relaxed);
        }
    }

    /// The line of one request.
    pub(super) fn request(&self, outcome: &Outcome) {
        let failed = outcome.error.is_some() || outcome.status >= 500;
        let level = if failed { Level::Warn } else { Level::Info };
        self.write(level, "request", |line| describe(outcome, line));
    }

    /// The line that says where the proxy and the admin server listen. It is written at every level, since
    /// programs wait for it; credentials in the upstream's URL are left out.
    pub fn listening(&self, proxy: SocketAddr, admin: SocketAddr, mode: &str, upstream: &str) {
        let Some(open) = &self.0 else { return };
        let mut line = Line::new(open.form, SystemTime::now(), Level::Info, "listening");
        line.text("proxy", &proxy.to_string());
        line.text("admin", &admin.to_string());
        line.text("mode", mode);
        line.text("upstream", &without_credentials(upstream));
        line.text("version", env!("CARGO_PKG_VERSION"));
        open.queue.push(&line.end());
    }

    /// Any other line. The caller sees to it that no value is a body, an argument or a credential.
    pub fn note(&self, level: Level, message: &str, fields: &[(&'static str, &dyn Display)]) {
        self.write(level, message, |line| fill(line, fields));
    }

    /// A line that was let through elsewhere, by the levels of modules.
    pub(super) fn forwarded(&self, level: Level, message: &str, fields: &[(&'static str, &dyn Display)]) {
        if let Some(open) = &self.0 {
            open.write(level, message, |line| fill(line, fields));
        }
    }

    /// Waits until what was logged so far is written, at most `within`; whether it was. To be called at the
    /// program's end, off the runtime.
    pub fn finish(&self, within: Duration) -> bool {
        self.0.as_ref().is_none_or(|open| open.queue.finish(within))
    }

    /// Lines that were lost since this was last asked, because they came faster than they could be written.
    pub(super) fn take_lost(&self) -> u64 {
        self.0.as_ref().map_or(0, |open| open.queue.take_lost())
    }

    fn write(&self, level: Level, message: &str, fill: impl FnOnce(&mut Line)) {
        let Some(open) = self.0.as_ref().filter(|open| level as u8 >= open.level.load(Ordering::Relaxed))
        else {
            return;
        };
        open.write(level, message, fill);
    }
}

impl Open {
    fn write(&self, level: Level, message: &str, fill: impl FnOnce(&mut Line)) {
        let mut line = Line::new(self.form, SystemTime::now(), level, message);
        fill(&mut line);
        self.queue.push(&line.end());
    }
}

fn fill(line: &mut Line, fields: &[(&'static str, &dyn Display)]) {
    for (key, value) in fields {
        line.text(key, &value.to_string());
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

fn describe(outcome: &Outcome, line: &mut Line) {
    line.text("request_id", &outcome.request_id);
    line.some("conversation", outcome.conversation.as_deref());
    line.some("model", outcome.model.as_deref());
    line.some("profile", outcome.profile.as_deref());
    line.word("route", outcome.route.as_str());
    line.word("mode", outcome.mode);
    line.number("status", outcome.status.into());
    line.some("error", outcome.error);
    line.flag("client_gone", outcome.client_gone);
    line.flag("streamed", outcome.streamed);
    line.flag("repeated", outcome.repeated);
    line.some("ungoverned", outcome.ungoverned);
    describe_deeds(outcome, line);
    line.count("tokens_prompt", outcome.tokens.prompt);
    line.count("tokens_cached", outcome.tokens.cached);
    line.count("tokens_cache_written", outcome.tokens.cache_written);
    line.count("tokens_completion", outcome.tokens.completion);
    line.count("tokens_reasoning", outcome.tokens.reasoning);
    line.count("tokens_saved", outcome.tokens.saved);
    line.flag("context_touched", outcome.context.touched);
    line.flag("held_out", outcome.context.held_out);
    line.number("request_bytes", outcome.request_bytes);
    line.number("reply_bytes", outcome.reply_bytes);
    line.millis("total_ms", outcome.times.total);
    line.millis("overhead_ms", outcome.times.overhead);
    if !outcome.times.upstream.is_zero() {
        line.millis("upstream_ms", outcome.times.upstream);
    }
    if let Some(first_byte) = outcome.times.first_byte {
        line.millis("first_byte_ms", first_byte);
    }
    line.some("traceparent", outcome.traceparent.as_deref());
}

fn describe_deeds(outcome: &Outcome, line: &mut Line) {
    line.list("actions", &outcome.actions, show_action);
    line.list("calls", &outcome.judged, show_call);
    line.list("results", &outcome.results, show_result);
    line.list("limits", &outcome.usage_of_limits, show_limit);
    line.count("billed_requests", outcome.billed_requests.into());
    line.count("reasks", outcome.reasks.into());
    line.count("lost_rounds", outcome.lost_rounds.into());
    line.flag("implausible_usage", outcome.implausible_usage);
    line.list("fallbacks", &outcome.fallbacks, |kind, shown| shown.push_str(kind.as_str()));
    line.list("prefix_breaks", &outcome.prefix_breaks, |cause, shown| shown.push_str(cause.as_str()));
    line.list("unjudged", &outcome.unjudged, |why, shown| shown.push_str(why));
}

/// `truncate=2`, `budget=notice`: as in the header.
fn show_action(action: &Action, shown: &mut String) {
    shown.extend([action.policy, "="]);
    if EDITS.contains(&&*action.action) {
        put(shown, format_args!("{}", action.count));
    } else {
        shown.push_str(&action.action);
    }
}

/// `weather=withheld by=rate_limit reason=RATE_LIMIT also=loops:LOOP_DETECTED`; of a call that the client got all the
/// same, since policies only observe, `weather=allowed said=rate_limit:RATE_LIMIT`. A tool's name holds no white
/// space here.
fn show_call(call: &JudgedCall, shown: &mut String) {
    shown.extend([bounded::name(&call.tool).as_ref(), "=", call.verdict.as_str()]);
    let (spoke, others) = call.said.split_at(usize::from(call.is_spoken && !call.said.is_empty()));
    for said in spoke {
        shown.extend([" by=", said.policy, " reason=", said.reason]);
    }
    let word = if spoke.is_empty() { " said=" } else { " also=" };
    for (at, said) in others.iter().enumerate() {
        shown.extend([if at == 0 { word } else { "," }, said.policy, ":", said.reason]);
    }
}

/// `weather bytes=5120 tokens=1280 ms=350`.
fn show_result(result: &NewResult, shown: &mut String) {
    shown.push_str(&bounded::name(&result.tool));
    put(shown, format_args!(" bytes={} tokens={}", result.bytes, result.tokens));
    if let Some(took) = result.took {
        put(shown, format_args!(" ms={}", took.as_millis()));
    }
}

/// `weather=3/5 by=rate_limit`.
fn show_limit(limit: &LimitUse, shown: &mut String) {
    shown.push_str(&bounded::name(&limit.tool));
    put(shown, format_args!("={}/{}", limit.used, limit.limit));
    show_policy(limit.policy, shown);
}

fn show_policy(policy: Option<&str>, shown: &mut String) {
    if let Some(policy) = policy {
        shown.extend([" by=", policy]);
    }
}

/// Writing to a `String` cannot fail.
fn put(shown: &mut String, words: fmt::Arguments<'_>) {
    let _ = shown.write_fmt(words);
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
    use super::super::outcome::Route;
    use super::*;
    use serde_json::{Value, json};

    /// The lines that `write` makes, without their times.
    fn lines(settings: Settings, write: impl FnOnce(&Log)) -> Vec<Value> {
        let sink = Sink::default();
        let log = Log::open(settings, sink.clone());
        write(&log);
        assert!(log.finish(Duration::from_secs(20)));
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
    fn a_rich_outcome_becomes_one_flat_line() {
        let expected = json!({
            "level": "info", "message": "request", "request_id": "req-1", "conversation": "talk-1",
            "model": "gpt-4o", "profile": "chat", "route": "chat", "mode": "enforce", "status": 200, "streamed": true,
            "actions": ["truncate=2", "budget=notice", "rate_limit=withheld"],
            "calls": ["search=allowed", "search=allowed", "weather=withheld by=rate_limit reason=RATE_LIMIT also=loops:LOOP_DETECTED",
                "weather=unjudged"],
            "results": ["search bytes=5120 tokens=1280 ms=350", "weather bytes=10 tokens=3"],
            "limits": ["weather=3/3 by=rate_limit", "*=12/50"],
            "billed_requests": 2, "reasks": 1, "lost_rounds": 1,
            "fallbacks": ["placement"], "prefix_breaks": ["ledger"], "unjudged": ["event_too_long"],
            "tokens_prompt": 3000, "tokens_cached": 2048, "tokens_cache_written": 100, "tokens_completion": 70,
            "tokens_reasoning": 20, "tokens_saved": 900,
            "context_touched": true, "request_bytes": 32768, "reply_bytes": 900,
            "total_ms": 1500.25, "overhead_ms": 0.25, "upstream_ms": 1500.0, "first_byte_ms": 420.5,
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        });
        assert_eq!(lines(json_at(Level::Info), |log| log.request(&rich())), [expected]);
    }

    #[test]
    fn a_plain_outcome_has_only_the_fields_that_say_something() {
        let mut outcome = Outcome::new(Route::Relay);
        outcome.mode = "observe";
        let expected = json!({
            "level": "info", "message": "request", "request_id": "", "route": "relay", "mode": "observe",
            "status": 0, "request_bytes": 0, "reply_bytes": 0, "total_ms": 0.0, "overhead_ms": 0.0,
        });
        assert_eq!(lines(json_at(Level::Debug), |log| log.request(&outcome)), [expected]);
    }

    #[test]
    fn failed_requests_are_warnings_and_lower_levels_are_left_out() {
        let with = |status, error| Outcome { status, error, ..Outcome::new(Route::Chat) };
        for (outcome, warned) in [
            (with(200, None), false),
            (with(404, None), false),
            (with(0, None), false),
            (with(400, Some("budget_exhausted")), true),
            (with(503, None), true),
        ] {
            let written = lines(json_at(Level::Warn), |log| log.request(&outcome));
            assert_eq!(written.len(), usize::from(warned), "{outcome:?}");
        }
    }

    #[test]
    fn the_listening_line_is_written_at_every_level_and_hides_credentials() {
        let (proxy, admin) =
            (SocketAddr::from(([127, 0, 0, 1], 4242)), SocketAddr::from(([127, 0, 0, 1], 4243)));
        let url = "https://user:secret@api.example:8443/v1/a@b?key=secret#secret";
        let expected = json!({
            "level": "info", "message": "listening", "proxy": "127.0.0.1:4242", "admin": "127.0.0.1:4243",
            "mode": "enforce", "upstream": "https://api.example:8443/v1/a@b", "version": env!("CARGO_PKG_VERSION"),
        });
        let written = lines(json_at(Level::Error), |log| log.listening(proxy, admin, "enforce", url));
        assert_eq!(written, [expected]);
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
            log.note(Level::Debug, "too fine", &[]);
            log.note(Level::Warn, "draining", &[("open", &3), ("why", &"signal\n{\"level\":\"error\"}")]);
        });
        let why = "signal\u{fffd}{\"level\":\"error\"}";
        assert_eq!(written, [json!({ "level": "warn", "message": "draining", "open": "3", "why": why })]);
    }

    #[test]
    fn hostile_ids_and_names_stay_bounded_and_inside_their_fields() {
        let hostile = format!("a\",\"level\":\"error\"}}\n{}", "\u{1b}[31mx ".repeat(10_000));
        let mut outcome = rich();
        outcome.conversation = Some(hostile.clone());
        outcome.model = Some(hostile.clone());
        outcome.traceparent = Some(hostile.clone());
        outcome.judged.iter_mut().for_each(|call| call.tool.clone_from(&hostile));
        outcome.results.iter_mut().for_each(|result| result.tool.clone_from(&hostile));
        let sink = Sink::default();
        let log = Log::to_writer(sink.clone());
        log.request(&outcome);
        assert!(log.finish(Duration::from_secs(20)));
        let text = sink.text();
        assert_eq!(text.lines().count(), 1);
        assert!(text.len() < 4_000, "{}", text.len());
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["level"], &line["status"]), (&json!("info"), &json!(200)));
        assert_eq!(line["model"].as_str().unwrap().chars().count(), 200);
    }

    #[test]
    fn a_silent_log_takes_everything_and_is_always_finished() {
        let log = Log::silent();
        log.request(&rich());
        log.note(Level::Error, "nothing", &[]);
        assert!(log.finish(Duration::ZERO));
        assert_eq!(log.take_lost(), 0);
    }

    #[test]
    fn words_of_the_configuration_name_formats_and_levels() {
        let read = |word: &str| serde_json::from_value::<Level>(json!(word)).ok();
        for level in [Level::Debug, Level::Info, Level::Warn, Level::Error] {
            assert_eq!(read(level.as_str()), Some(level));
        }
        assert_eq!(read("trace"), None);
        assert_eq!(serde_json::from_value::<Format>(json!("auto")).ok(), Some(Format::Auto));
    }
}
