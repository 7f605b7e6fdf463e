//! Consistency checks between the values of a configuration, and warnings about what is allowed but probably a mistake.
//! Changes nothing.

use super::caller::Caller;
use super::callers;
use super::certificates::{self, Certificates};
use super::document::{Document, MOST_PROBLEMS};
use super::error::{Problem, nearest};
use super::file::{File, Overriding, Written};
use super::record::Record;
use super::shared;
use super::source::reason;
use super::tables::{Admin, Audit, EQUAL_REQUESTS_OF_A_STORM, Limits, StateStore};
use super::target::{ENDPOINTS, Target};
use super::traces;
use super::units::{write_size, write_span};
use super::upstream::KeyHeader;
use engine::settings::Mode;
use hyper::http::Uri;
use policies::endpoint::is_variable;
use policies::redact::Redactor;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};
use tracing_subscriber::EnvFilter;

/// The most re-asks: each is a whole reply that is paid for.
const MAX_REASK: u32 = 20;
/// `admin.conversations`: some hundred MiB at the most.
const MOST_CONVERSATIONS: u32 = 100_000;

/// `telemetry.callers`: each is four series, and a scrape should stay below some MiB.
const MOST_CALLERS: usize = 10_000;

/// The smallest limit of a body or an event, in bytes: below it not even an error would fit.
const MIN_BYTES: u64 = 1024;

/// What was found.
pub(super) struct Checked {
    pub problems: Vec<Problem>,
    pub warnings: Vec<String>,
    /// What the files of `listen.tls` hold, if they are fit for use.
    pub certificates: Option<Certificates>,
}

/// Checks the file and its overrides. Files that it names are looked at if it `is_trusted`.
pub(super) fn check(
    document: &Document<'_>,
    written: &Written,
    overriding: &Overriding,
    is_trusted: bool,
) -> Checked {
    let mut checker = Checker {
        document,
        written,
        overriding,
        is_trusted,
        checked: Checked { problems: Vec::new(), warnings: Vec::new(), certificates: None },
    };
    let file = &written.file;
    checker.addresses(file);
    checker.tls(file);
    checker.upstream(file);
    checker.upstream_key(file);
    checker.sizes(&file.limits);
    checker.durations(file);
    checker.counts(file);
    checker.equal_requests(file.limits.equal_requests);
    checker.log(&file.log.level);
    checker.audit(&file.audit);
    checker.record(&file.record);
    checker.admin(&file.admin);
    checker.store(&file.store);
    checker.traces(file);
    checker.callers(file);
    checker.checked
}

/// The addresses at which the program listens, by key.
fn own_ports(file: &File) -> impl Iterator<Item = (&'static str, SocketAddr)> {
    let probes = file.listen.probes.map(|address| ("listen.probes", address));
    [("listen.proxy", file.listen.proxy), ("listen.admin", file.listen.admin)].into_iter().chain(probes)
}

struct Checker<'a> {
    document: &'a Document<'a>,
    written: &'a Written,
    overriding: &'a Overriding,
    /// Whether the files that it names may be looked at.
    is_trusted: bool,
    checked: Checked,
}

impl Checker<'_> {
    fn addresses(&mut self, file: &File) {
        let (proxy, admin) = (file.listen.proxy, file.listen.admin);
        let text = format!("{admin} is taken by listen.proxy ({proxy})");
        self.require(&["listen.admin", "listen.proxy"], !meet(proxy, admin), text);
        if let Some(probes) = file.listen.probes {
            for (key, other) in [("listen.proxy", proxy), ("listen.admin", admin)] {
                let text = format!("{probes} is taken by {key} ({other})");
                self.require(&["listen.probes", key], !meet(probes, other), text);
            }
        }
        if !admin.ip().is_loopback() {
            self.warn(format!(
                "listen.admin: {admin} can be reached from other machines; anybody there can read the metrics and \
                 the configuration (listen.probes gives probes and Prometheus a port of their own)"
            ));
        }
    }

    fn tls(&mut self, file: &File) {
        let tls = &file.listen.tls;
        self.require(&["listen.tls.handshakes"], tls.handshakes > 0, "expected more than 0".to_owned());
        let loaded = match self.is_trusted {
            true => certificates::load(tls, SystemTime::now()),
            false => certificates::incomplete(tls).map(|()| None),
        };
        match loaded {
            Ok(found) => self.checked.certificates = found,
            Err(troubles) => {
                for (key, text) in troubles {
                    self.require(&[key], false, text);
                }
            }
        }
        if let Some(found) = &self.checked.certificates {
            self.checked.warnings.extend(found.warnings.iter().cloned());
        }
    }

    fn upstream(&mut self, file: &File) {
        let upstream = &file.upstream;
        let Target::Url(uri) = &upstream.url else { return };
        for (key, own) in own_ports(file) {
            let text = format!("{} is {key} itself: requests would go round in circles", upstream.url);
            self.require(&["upstream.url", key], !leads_to(uri, own), text);
        }
        self.upstream_path(&upstream.url, uri);
        let is_tls = uri.scheme_str() == Some("https");
        if upstream.http2 && is_tls {
            self.warn(
                "upstream.http2: applies to http:// only; with https:// HTTP/2 is negotiated anyway"
                    .to_owned(),
            );
        }
        if let Some(path) = upstream.ca_file.as_ref().filter(|_| self.is_trusted) {
            let trouble = std::fs::File::open(path).err().map(|error| reason(&error));
            let text =
                format!("{}: {}", path.display(), trouble.as_deref().unwrap_or("is a directory, not a file"));
            self.require(&["upstream.ca_file"], trouble.is_none() && !path.is_dir(), text);
        }
        if upstream.ca_file.is_some() && !is_tls {
            self.warn("upstream.ca_file: has no effect on an http:// upstream".to_owned());
        }
    }

    /// Paths that are most likely slips: clients add the path of an endpoint to the base.
    fn upstream_path(&mut self, url: &Target, uri: &Uri) {
        let path = uri.path().trim_end_matches('/');
        let without = |end: &str| url.to_string().replacen(end, "", 1);
        if path.is_empty() {
            self.warn(format!(
                "upstream.url: {url} has no path, so /v1/chat/completions is sent as /chat/completions; most servers \
                 want .../v1"
            ));
        } else if path.ends_with("/v1/v1") {
            self.warn(format!("upstream.url: /v1 is doubled; expected {}", without("/v1")));
        } else if let Some(end) = ENDPOINTS.iter().find(|end| path.ends_with(**end)) {
            self.warn(format!(
                "upstream.url: ends in {end}, to which the path of each request is added; expected {}",
                without(end)
            ));
        }
    }

    /// The variable itself is read only at the start: a check may run without the secret.
    fn upstream_key(&mut self, file: &File) {
        let (upstream, proxy) = (&file.upstream, file.listen.proxy);
        let text = "expected the name of an environment variable (letters, digits and _), not the key itself";
        self.require(&["upstream.api_key_env"], is_variable(&upstream.api_key_env), text.to_owned());
        if upstream.api_key_env.is_empty() {
            if upstream.api_key_header != KeyHeader::default() {
                self.warn("upstream.api_key_header: has no effect without upstream.api_key_env".to_owned());
            }
        } else if !proxy.ip().is_loopback()
            && file.caller.is_empty()
            && !file.listen.tls.requires_client_certificate()
        {
            self.warn(format!(
                "upstream.api_key_env: {proxy} (listen.proxy) can be reached from other machines; anybody there uses \
                 this key"
            ));
        }
    }

    fn sizes(&mut self, limits: &Limits) {
        let sizes = [
            ("limits.request_bytes", limits.request_bytes),
            ("limits.event_bytes", bytes(limits.event_bytes)),
            ("limits.held_bytes", bytes(limits.held_bytes)),
            ("limits.reply_bytes", bytes(limits.reply_bytes)),
        ];
        for (key, size) in sizes {
            let text = format!("expected at least {}, found {}", write_size(MIN_BYTES), write_size(size));
            self.require(&[key], size >= MIN_BYTES, text);
        }
        for (key, size, times) in [
            ("limits.request_bytes", limits.request_bytes, 2),
            ("limits.reply_bytes", bytes(limits.reply_bytes), 4),
        ] {
            let total = limits.total_bytes;
            let text =
                format!("{} is less than {times} times {key} ({})", write_size(total), write_size(size));
            self.require(&["limits.total_bytes", key], total / times >= size, text);
        }
        for pair in sizes[1..].windows(2) {
            let [(small_key, small), (large_key, large)] = [pair[0], pair[1]];
            let holds = small <= large || small < MIN_BYTES || large < MIN_BYTES;
            let text = format!(
                "{large_key} ({}) is less than {small_key} ({})",
                write_size(large),
                write_size(small)
            );
            self.require(&[large_key, small_key], holds, text);
        }
    }

    fn durations(&mut self, file: &File) {
        let (upstream, limits) = (&file.upstream, &file.limits);
        for (key, span) in [
            ("upstream.connect_timeout", upstream.connect_timeout),
            ("upstream.first_byte_timeout", upstream.first_byte_timeout),
            ("upstream.idle_timeout", upstream.idle_timeout),
            ("listen.tls.handshake_timeout", file.listen.tls.handshake_timeout),
            ("limits.header_timeout", limits.header_timeout),
            ("limits.body_timeout", limits.body_timeout),
            ("limits.upload_timeout", limits.upload_timeout),
            ("limits.stall_timeout", limits.stall_timeout),
            ("limits.keepalive_comment", limits.keepalive_comment),
            ("store.ttl", file.store.ttl),
            ("store.timeout", file.store.timeout),
        ] {
            // Timers count in ms, and a clock overflows with durations of centuries.
            let holds = (Duration::from_millis(1)..=YEAR).contains(&span);
            let text = format!("expected a duration from 1ms to 1 year, found {}", write_span(span));
            self.require(&[key], holds, text);
        }
        for (key, span) in [
            ("upstream.remember", upstream.remember),
            ("limits.drain_timeout", limits.drain_timeout),
            ("conversation.in_flight_wait", file.conversation.in_flight_wait),
        ] {
            let text = format!("expected at most 1 year, found {}", write_span(span));
            self.require(&[key], span <= YEAR, text);
        }
    }

    fn counts(&mut self, file: &File) {
        for (key, count) in [
            ("store.calls", file.store.calls),
            ("store.hidden_exchange_bytes", file.store.hidden_exchange_bytes),
            ("store.conversations", file.store.conversations),
            ("limits.connections", bytes(file.limits.connections)),
        ] {
            self.require(&[key], count > 0, "expected more than 0".to_owned());
        }
        let callers = file.telemetry.callers;
        let text = format!("expected at most {MOST_CALLERS}, found {callers}");
        self.require(&["telemetry.callers"], callers <= MOST_CALLERS, text);
        let max = file.reask.max;
        self.require(&["reask.max"], max <= MAX_REASK, format!("expected at most {MAX_REASK}, found {max}"));
    }

    fn equal_requests(&mut self, allowed: u32) {
        if (1..EQUAL_REQUESTS_OF_A_STORM).contains(&allowed) {
            self.warn(format!(
                "limits.equal_requests: {allowed} also refuses what libraries send again: a client library sends a \
                 failed request up to 3 times, with an agent framework around it up to 9 times"
            ));
        }
    }

    fn log(&mut self, level: &str) {
        let text = level_trouble(level);
        self.require(&["log.level"], text.is_none(), text.unwrap_or_default());
    }

    /// The file itself is opened only at the start: a check creates none.
    fn audit(&mut self, audit: &Audit) {
        let Some(path) = audit.path().filter(|_| self.is_trusted) else { return };
        // The parent of a bare name is "", which is the working directory.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let text = folder
            .filter(|folder| !folder.is_dir())
            .map(|folder| format!("{}: there is no directory {}", path.display(), folder.display()));
        let is_folder = || path.is_dir().then(|| format!("{}: is a directory, not a file", path.display()));
        let text = text.or_else(is_folder);
        self.require(&["audit.file"], text.is_none(), text.unwrap_or_default());
    }

    /// The directory itself is made only when something is recorded: a check creates none.
    fn record(&mut self, record: &Record) {
        for problem in Redactor::problems(&record.redact, &record.patterns) {
            self.require(&[&format!("record.{}", problem.key)], false, problem.problem);
        }
        let least =
            format!("expected at least {}, found {}", write_size(MIN_BYTES), write_size(record.file_bytes));
        self.require(&["record.file_bytes"], record.file_bytes >= MIN_BYTES, least);
        let twice = format!(
            "{} is less than twice record.file_bytes ({})",
            write_size(record.total_bytes),
            write_size(record.file_bytes)
        );
        let fits = record.total_bytes / 2 >= record.file_bytes;
        self.require(&["record.total_bytes", "record.file_bytes"], fits, twice);
        let text = format!("expected at most 1 year, found {}", write_span(record.max_age));
        self.require(&["record.max_age"], record.max_age <= YEAR, text);
        let Some(path) = record.path() else { return };
        let text = format!("{}: is a file, not a directory", path.display());
        self.require(&["record.dir"], !self.is_trusted || !path.is_file(), text);
        if record.bodies && !record.redact.iter().any(|kind| kind == "secret") {
            self.warn(
                "record.redact: does not name \"secret\", so keys and passwords that tools return are written to disk"
                    .to_owned(),
            );
        }
    }

    /// The variable itself is read only at the start: a check may run without the secret.
    fn admin(&mut self, admin: &Admin) {
        let name = admin.token_env.as_str();
        let text =
            "expected the name of an environment variable (letters, digits and _), not the token itself";
        self.require(&["admin.token_env"], is_variable(name), text.to_owned());
        let (count, most) = (admin.conversations, MOST_CONVERSATIONS);
        let text = format!("expected 1 to {most}, found {count}");
        self.require(&["admin.conversations"], (1..=most).contains(&count), text);
    }

    fn store(&mut self, store: &StateStore) {
        for (key, text) in shared::problems(store) {
            self.require(&[key], false, text);
        }
        self.checked.warnings.extend(shared::warnings(store));
    }

    fn traces(&mut self, file: &File) {
        let traces = &file.telemetry.traces;
        for (key, text) in traces::problems(traces) {
            self.require(&[key], false, text);
        }
        self.checked.warnings.extend(traces::warnings(traces));
        if traces.contents && !file.record.redact.iter().any(|kind| kind == "secret") {
            self.warn(
                "telemetry.traces.contents: record.redact does not name \"secret\", so keys and passwords that tools \
                 return are sent to the collector"
                    .to_owned(),
            );
        }
        let Some(uri) = traces.address() else { return };
        for (key, own) in own_ports(file) {
            let text = format!("{uri} is {key} itself, which is no collector");
            self.require(&["telemetry.traces.endpoint", key], !leads_to(&uri, own), text);
        }
    }

    fn callers(&mut self, file: &File) {
        for (key, text) in callers::problems(file).into_iter().take(MOST_PROBLEMS) {
            if !self.written.left_out.contains(&key) {
                self.checked.problems.push(self.document.problem_within(&key, text));
            }
        }
        match &file.conversation.caller {
            Caller::Jwt if file.caller.is_empty() => self.warn(
                "conversation.caller: \"jwt\" verifies no token: whoever can send a request to listen.proxy chooses \
                 whose limits and approvals count, unless a gateway or the upstream verifies its token"
                    .to_owned(),
            ),
            Caller::Jwt => self.warn(
                "conversation.caller: \"jwt\" has no effect, since callers are recognised by their keys \
                 ([caller.NAME])"
                    .to_owned(),
            ),
            caller @ Caller::Body(_) => self.warn(format!(
                "conversation.caller: \"{caller}\" is a part of the request: whoever writes the body of a request to \
                 listen.proxy chooses whose limits and approvals count. Let your own server write it; where users' \
                 programs do, take a header that a gateway sets (\"header:NAME\")"
            )),
            Caller::Credential | Caller::Header(_) => {}
        }
    }

    /// Adds a problem at `keys` unless `holds`, or unless one of them was refused before, so that only its default
    /// would be checked.
    fn require(&mut self, keys: &[&str], holds: bool, text: String) {
        let refused = |key: &&str| {
            let left_out = &self.written.left_out;
            left_out.iter().any(|out| out == key) && self.flag(key).is_none()
        };
        if holds || keys.iter().any(refused) {
            return;
        }
        let flagged = keys.iter().find_map(|key| self.flag(key).map(|flag| (key, flag)));
        let problem = match flagged {
            Some((key, flag)) => {
                Problem { source: flag.to_owned(), line: None, key: (*key).to_owned(), text }
            }
            None => self.document.problem_at(keys, text),
        };
        self.checked.problems.push(problem);
    }

    /// The flag that set `key`.
    fn flag(&self, key: &str) -> Option<&'static str> {
        self.overriding.keys.iter().find(|(set, _)| *set == key).map(|(_, flag)| *flag)
    }

    fn warn(&mut self, text: String) {
        self.checked.warnings.push(text);
    }
}

const YEAR: Duration = Duration::from_secs(366 * 24 * 3_600);

/// The warning for a configuration in which no policy is on.
pub(super) fn idle_warning(mode: Mode, policies: usize) -> Option<String> {
    (policies == 0 && mode != Mode::Off).then(|| {
        "no policy is on, so everything passes through; a file without base = \"none\" keeps the shipped ones"
            .to_owned()
    })
}

/// Whether two listeners cannot both be bound.
fn meet(one: SocketAddr, other: SocketAddr) -> bool {
    let same_ip = one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && one.port() != 0 && same_ip
}

/// Whether `uri` names `own`, as far as is visible without resolving names.
fn leads_to(uri: &Uri, own: SocketAddr) -> bool {
    let default_port = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    if uri.port_u16().unwrap_or(default_port) != own.port() {
        return false;
    }
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let is_own = |ip: IpAddr| ip == own.ip() || (own.ip().is_unspecified() && ip.is_loopback());
    match host.parse::<IpAddr>() {
        Ok(ip) => is_own(ip),
        Err(_) => {
            host.eq_ignore_ascii_case("localhost") && (own.ip().is_loopback() || own.ip().is_unspecified())
        }
    }
}

fn bytes(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The problem of a log filter. A single word that is not a level would silently count as a module.
fn level_trouble(filter: &str) -> Option<String> {
    let directives = filter.split(',').map(str::trim);
    let stray = directives.clone().find(|directive| {
        let is_word = !directive.contains(['=', '[', ':']);
        is_word && !LEVELS.iter().any(|level| level.eq_ignore_ascii_case(directive))
    });
    if let Some(word) = stray {
        let hint =
            nearest(word, LEVELS).map_or_else(String::new, |level| format!("; did you mean {level:?}?"));
        return Some(format!(
            "expected a level ({}) or levels by module (\"info,toolrein::proxy=debug\"), found {word:?}{hint}",
            LEVELS.join(", ")
        ));
    }
    EnvFilter::builder()
        .parse(filter)
        .err()
        .map(|error| format!("expected a log filter, found {filter:?}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_conflict_if_ports_are_equal_and_addresses_are_equal_or_wildcards() {
        for (one, other, met) in [
            ("127.0.0.1:1", "127.0.0.1:1", true),
            ("0.0.0.0:1", "127.0.0.1:1", true),
            ("127.0.0.1:1", "[::]:1", true),
            ("127.0.0.1:1", "127.0.0.2:1", false),
            ("127.0.0.1:1", "127.0.0.1:2", false),
            ("127.0.0.1:0", "127.0.0.1:0", false),
        ] {
            assert_eq!(meet(one.parse().unwrap(), other.parse().unwrap()), met, "{one} {other}");
        }
    }

    #[test]
    fn an_upstream_url_that_leads_to_toolrein_itself_is_detected() {
        for (uri, own, leads) in [
            ("http://127.0.0.1:4242/v1", "127.0.0.1:4242", true),
            ("http://LOCALHOST:4242/v1", "127.0.0.1:4242", true),
            ("http://localhost:4242/v1", "0.0.0.0:4242", true),
            ("http://[::1]:4242/v1", "[::1]:4242", true),
            ("http://127.0.0.1/v1", "127.0.0.1:80", true),
            ("http://127.0.0.1:4242/v1", "10.0.0.1:4242", false),
            ("http://host:4242/v1", "127.0.0.1:4242", false),
            ("http://127.0.0.1:8000/v1", "127.0.0.1:4242", false),
        ] {
            assert_eq!(leads_to(&uri.parse().unwrap(), own.parse().unwrap()), leads, "{uri} {own}");
        }
    }

    #[test]
    fn a_log_filter_is_one_level_or_a_list_of_levels_by_module() {
        for (filter, good) in [
            ("info", true),
            ("DEBUG", true),
            ("info,toolrein::proxy=debug", true),
            ("warn,hyper=off", true),
            ("inof", false),
            ("toolrein", false),
            ("", false),
            ("toolrein=loud", false),
        ] {
            assert_eq!(level_trouble(filter).is_none(), good, "{filter}");
        }
        assert!(level_trouble("inof").unwrap().contains("did you mean \"info\"?"));
    }
}
