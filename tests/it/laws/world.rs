//! Test fixtures of the laws: configurations, an identity, a state store in memory, and one request read and written
//! as the program does it. Knows no law.

use bytes::Bytes;
use dialects::prefix::read_request;
use dialects::upstream_history::UpstreamHistory;
use dialects::variant::{Asking, Placement, PlannedRequest, Variant};
use dialects::{AnyDialect, dialect_of};
use engine::judging::{AnswerTools, Judging};
use engine::restore::{hidden_positions, names, restored};
use model::Transcript;
use model::adaptation::{Adaptation, Adaptations};
use model::identity::{Hash, HashKey, Identity};
use model::memo::{Memo, NoMemo};
use model::plan::Plan;
use model::released::Releases;
use model::request::Request;
use model::store::HiddenExchange;
use model::summaries::{Pin, Summaries};
use policies::REGISTRY;
use policies::set::{Judge, PolicySet};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use toolrein::config::{Config, Overrides, Source};
use wire::splice::Rope;

/// Now, in every law: ms since the epoch.
pub const NOW_MS: u64 = 1_790_000_000_000;

/// Both places at which a notice stays where it was; `Leading` is the named exception.
pub const STEADY: [Placement; 2] = [Placement::System, Placement::Suffix];

/// Low limits, so that every policy acts often.
const LOW: &str = r#"
[policy.intents]
tools = ["*"]
allow = ["end_turn", "close_tool", "open_tool", "queue_text", "hide_after"]
closable = ["look"]
own_text = 100
[policy.budget]
tool_calls = 4
notify_at = [0.3, 0.6]
[policy.rate_limit]
default = { calls = 2, per = "60s" }
[policy.truncate]
max_chars = 200
tools = { "read*" = 300, calm = 0 }
"#;

/// The same with a budget of tokens, and with states that are entered often.
const TOKENS: &str = r#"
[policy.budget]
tool_calls = 0
context_tokens = 600
notify_at = [0.1]
notify = "every_result"
[policy.states]
start = "listening"
[policy.states.state.listening]
text = "Listen."
on = [
    { event = "user_message", pattern = "[aeiou]", words = 2, to = "looking" },
    { event = "tool_called", count = 2, to = "looking" },
]
[policy.states.state.looking]
tools = ["look", "read*", "say"]
text = "Look things up."
on = [
    { event = "tool_failed", to = "listening" },
    { event = "tool_empty", to = "listening" },
    { event = "tool_succeeded", to = "looking" },
    { event = "assistant_question", to = "listening" },
]
"#;

/// Low limits, of none but policies that may go on from copies of their states.
const RESUMING: &str = r#"
[policy.budget]
tool_calls = 6
context_tokens = 3000
notify_at = [0.2, 0.4, 0.6, 0.8]
[policy.rate_limit]
default = { calls = 3, per = "60s" }
[policy.loops]
notice = 2
block = 3
empty = 2
empty_block = 3
[policy.arguments]
[policy.allow]
hide = true
except = ["calm"]
[policy.truncate]
max_chars = 200
tools = { "read*" = 300, calm = 0 }
[policy.compact]
context_window = 6000
keep = 1
min_gain = 0
"#;

/// A context so small that it is cleared often; and the same with turns dropped.
const CLEARING: &str = r#"
[policy.truncate]
max_chars = 4000
[policy.compact]
context_window = 1000
trigger = 0.6
keep = 1
min_gain = 0
exempt = ["calm"]
"#;
const DROPPING: &str = r#"
[policy.budget]
tool_calls = 4
notify_at = [0.3, 0.6]
[policy.compact]
context_window = 1200
keep = 1
min_gain = 0
[policy.history]
max_tokens = 100
down_to = 0.5
"#;

/// Policies that flag, clean and block results, read them again, and a context whose old results are summarised.
const GUARDED: &str = r#"
[policy.intents]
tools = ["*"]
allow = ["queue_text", "hide_after"]
own_text = 100
[policy.injection]
action = "annotate"
[policy.read_more]
reads = 2
max_chars = 1000
[policy.truncate]
max_chars = 4000
[policy.compact]
context_window = 1000
trigger = 0.3
keep = 1
min_gain = 0
style = "summary"
"#;
const STRICT: &str = r#"
[policy.injection]
action = "block"
[policy.taint]
tools = ["readFile", "say"]
[policy.read_more]
[policy.truncate]
max_chars = 4000
[policy.compact]
context_window = 1000
trigger = 0.6
keep = 1
min_gain = 0
[policy.history]
max_chars = 800
down_to = 0.5
"#;

/// Values hidden in most results and user messages, some of them by chance, which are cut and read again.
const REDACTING: &str = r#"
[policy.redact]
restore = ["*"]
user_text = true
patterns = { word = "[b-d]{4}", line = "error at line [0-9]*[05]" }
[policy.injection]
[policy.read_more]
[policy.truncate]
max_chars = 300
[policy.compact]
context_window = 1000
trigger = 0.6
keep = 1
min_gain = 0
"#;

/// What rules on calls and cuts nothing.
const RULED: &str = r#"
[policy.rewrite_query]
tools = ["look", "search"]
argument = ["q", "query", "path"]
min_words = 1
[policy.turn_limits]
calls = 3
parallel = 1
[policy.allow]
except = ["calm"]
[policy.duplicates]
tools = ["look"]
retrieval = ["readFile"]
[policy.serial]
tools = ["look"]
[policy.min_conversation.tools]
weather = { min_user_messages = 2 }
[policy.injection]
[policy.taint]
tools = ["say"]
[policy.confirm]
tools = ["say"]
"#;

/// Stuck after two results, with the tool to ask the user.
const ADVISED: &str = r#"
[policy.budget]
tool_calls = 6
notify_at = [0.3, 0.6]
[policy.ask_user]
searches = ["*"]
poor = 2
same_topic = 2
diminishing = 1
shared = 0.3
errors = 2
budget_left = 0.5
tool = true
[policy.truncate]
max_chars = 200
"#;

pub fn shipped() -> &'static PolicySet {
    static SET: OnceLock<PolicySet> = OnceLock::new();
    SET.get_or_init(|| load(Source::Shipped))
}

pub fn low() -> &'static PolicySet {
    static SET: OnceLock<PolicySet> = OnceLock::new();
    SET.get_or_init(|| load(text(LOW)))
}

pub fn by_tokens() -> &'static PolicySet {
    static SET: OnceLock<PolicySet> = OnceLock::new();
    SET.get_or_init(|| load(text(TOKENS)))
}

/// Sets that make room, and so break the prefix at times.
pub fn making_room() -> [&'static PolicySet; 2] {
    static SETS: OnceLock<[PolicySet; 2]> = OnceLock::new();
    let [clearing, dropping] = SETS.get_or_init(|| [load(text(CLEARING)), load(text(DROPPING))]);
    [clearing, dropping]
}

/// Sets with `injection` and `read_more`, which make room too.
pub fn guarded() -> [&'static PolicySet; 2] {
    static SETS: OnceLock<[PolicySet; 2]> = OnceLock::new();
    let [guarded, strict] = SETS.get_or_init(|| [load(text(GUARDED)), load(text(STRICT))]);
    [guarded, strict]
}

/// A set with `redact`.
pub fn redacting() -> &'static PolicySet {
    static SET: OnceLock<PolicySet> = OnceLock::new();
    SET.get_or_init(|| load(text(REDACTING)))
}

/// A set that advises the model to ask the user, and lets it.
pub fn advised() -> &'static PolicySet {
    static SET: OnceLock<PolicySet> = OnceLock::new();
    SET.get_or_init(|| load(text(ADVISED)))
}

/// A set of policies that rule on calls alone.
pub fn ruled() -> &'static PolicySet {
    static SET: OnceLock<PolicySet> = OnceLock::new();
    SET.get_or_init(|| load(text(RULED)))
}

/// A set of policies that all may go on from copies of their states.
pub fn resuming() -> &'static PolicySet {
    static SET: OnceLock<PolicySet> = OnceLock::new();
    SET.get_or_init(|| load(text(RESUMING)))
}

/// How many sets of policies there are.
pub const SETS: usize = 10;

/// Every set of policies, by number.
pub fn policies(at: usize) -> &'static PolicySet {
    let [clearing, dropping] = making_room();
    let [guarded, strict] = guarded();
    let sets = [
        shipped(),
        low(),
        by_tokens(),
        clearing,
        dropping,
        guarded,
        strict,
        redacting(),
        advised(),
        resuming(),
    ];
    sets[at % SETS]
}

/// The policies of a configuration.
pub fn set_of(tables: &str) -> PolicySet {
    load(text(tables))
}

fn text(text: &str) -> Source {
    Source::Text { name: "laws.toml".to_owned(), text: format!("base = \"none\"\n{text}") }
}

fn load(source: Source) -> PolicySet {
    Config::load(source, &Overrides::default(), REGISTRY).unwrap().policies
}

pub fn identity(seed: u64) -> Identity {
    Identity { key: HashKey::fixed(seed), caller: Hash(7), explicit: None }
}

/// What a state store would know.
#[derive(Clone, Default)]
pub struct Facts {
    pub rounds: BTreeMap<Hash, Vec<HiddenExchange>>,
    pub released: BTreeMap<Hash, Releases>,
    /// How many messages requests had that were refused for their length.
    pub overflows: Vec<usize>,
    /// Batches of cleared results have summaries, half of them.
    pub summaries: bool,
}

/// Every batch is decided; the keys of batches differ by process.
struct Decided;

impl Summaries for Decided {
    fn pinned(&self, batch: Hash) -> Option<Pin> {
        let summary = || Pin::Summary(format!("In short: {:x}.", batch.0 as u16).into());
        Some(if batch.0 & 1 == 0 { summary() } else { Pin::Cleared })
    }
}

/// A memo that keeps nothing.
pub fn no_memo() -> Arc<dyn Memo> {
    Arc::new(NoMemo)
}

/// A request as the policies have read it.
pub struct Reading {
    pub dialect: AnyDialect,
    pub body: Bytes,
    pub request: Request,
    pub upstream: Option<UpstreamHistory>,
    pub plan: Plan,
    pub restored: Vec<(usize, Bytes)>,
    pub lost: u32,
    pub judge: Judge,
    /// The digest of all that the model sees.
    pub context: Hash,
    /// When each call was handed out, as far as is known.
    pub times: Vec<Option<u64>>,
}

/// Reads a body as the program does; `None` where it passes ungoverned.
pub fn try_read(body: &Bytes, policies: &PolicySet, facts: &Facts) -> Option<Reading> {
    read_as(body, policies, facts, (&identity(1), &no_memo()))
}

/// Reads a body that is governed.
pub fn read(body: &Bytes, policies: &PolicySet, facts: &Facts) -> Reading {
    try_read(body, policies, facts).unwrap_or_else(|| panic!("not governed: {}", lossy(body)))
}

/// As [`try_read`], where the dialect is known from the endpoint: not every body shows it.
pub fn try_read_in(
    dialect: AnyDialect,
    body: &Bytes,
    policies: &PolicySet,
    facts: &Facts,
) -> Option<Reading> {
    read_knowing(dialect, body, policies, facts, (&identity(1), &no_memo(), None))
}

/// Reads a body that is governed, in this dialect.
pub fn read_in(dialect: AnyDialect, body: &Bytes, policies: &PolicySet, facts: &Facts) -> Reading {
    try_read_in(dialect, body, policies, facts).unwrap_or_else(|| panic!("not governed: {}", lossy(body)))
}

/// As [`read`], where this record of a conversation that the upstream keeps is known.
pub fn read_with_record(body: &Bytes, record: &Bytes, policies: &PolicySet, facts: &Facts) -> Reading {
    let known = (&identity(1), &no_memo(), Some(record));
    read_knowing(dialect_of(body), body, policies, facts, known)
        .unwrap_or_else(|| panic!("not governed: {}", lossy(body)))
}

/// As [`read`], for another caller and with another memo.
pub fn read_as(
    body: &Bytes,
    policies: &PolicySet,
    facts: &Facts,
    (identity, memo): (&Identity, &Arc<dyn Memo>),
) -> Option<Reading> {
    read_knowing(dialect_of(body), body, policies, facts, (identity, memo, None))
}

fn read_knowing(
    dialect: AnyDialect,
    body: &Bytes,
    policies: &PolicySet,
    facts: &Facts,
    (identity, memo, record): (&Identity, &Arc<dyn Memo>, Option<&Bytes>),
) -> Option<Reading> {
    let mut request = read_request(dialect, body, &identity.key, &**memo).ok()?;
    let upstream =
        record.map(|record| dialect.upstream_history(&mut request, body, record).expect("a record"));
    let sources = upstream.as_ref().map(|upstream| (upstream.sources.clone(), upstream.order.clone()));
    let sent = (Arc::new(request.clone()), body.clone());
    let mut transcript =
        Transcript::with_sources(sent, sources.unwrap_or_default(), identity.clone(), Arc::clone(memo));
    let released: Vec<Option<Releases>> =
        transcript.newest_calls(1024).map(|call| facts.released.get(&call.key).cloned()).collect();
    transcript.learn_releases(&released, 0);
    let places = hidden_positions(&transcript, 1024);
    let known: Vec<Vec<HiddenExchange>> =
        names(&places).iter().map(|name| facts.rounds.get(name).cloned().unwrap_or_default()).collect();
    let (restored, lost) = restored(&transcript, &places, &known, &released);
    for (index, exchange) in &restored {
        transcript.add_hidden(*index, dialect.source(exchange).expect("a hidden exchange can be read"));
    }
    transcript.overflows = facts.overflows.clone();
    let messages = transcript.len();
    transcript.overflows.retain(|count| *count <= messages);
    transcript.summaries = facts.summaries.then(|| Arc::new(Decided) as _);
    let (plan, judge) = policies.read(&transcript);
    let context = transcript.calls.context;
    let times = transcript.calls.calls.iter().map(|call| call.released_ms).collect();
    drop(transcript);
    let body = body.clone();
    Some(Reading { dialect, body, request, upstream, plan, restored, lost, judge, context, times })
}

impl Reading {
    pub fn rope(&self, variant: &Variant) -> Rope {
        let Self { dialect, body, request, upstream, plan, restored, .. } = self;
        let planned = PlannedRequest {
            body,
            request,
            upstream: upstream.as_ref(),
            plan,
            restored: restored.as_slice(),
        };
        dialect.write(&planned, variant)
    }

    pub fn write(&self, variant: &Variant) -> Bytes {
        self.rope(variant).join()
    }

    pub fn judging(self) -> Judging {
        Judging::new(self.judge, AnswerTools::default(), false)
    }
}

/// The `messages` of a body without its closing bracket and the white space before it.
pub fn messages_of(body: &[u8]) -> Vec<u8> {
    let request = dialect_of(body).read(body).unwrap_or_else(|fault| panic!("{fault}: {}", lossy(body)));
    let span = request.messages_span;
    body[span.start as usize..span.end as usize - 1].trim_ascii_end().to_vec()
}

/// With the tools and their choice, without the choice, and without the tools; the history as text if it is `flat`.
pub fn adaptations_of_tools(flat: bool) -> [Adaptations; 3] {
    let history = if flat { Adaptation::Flattened.into() } else { Adaptations::empty() };
    [history, history | Adaptation::ToolChoice, history | Adaptation::Tools]
}

/// Every form in which a request is sent, at one placement.
pub fn forms(placement: Placement, rounds: &[Bytes]) -> Vec<(String, Variant)> {
    let mut forms = Vec::new();
    for flat in [false, true] {
        for adapted in adaptations_of_tools(flat) {
            for asking in [None, Some(false), Some(true)] {
                let asking = asking.map(|land| Asking { rounds: rounds.to_vec(), land });
                let variant = Variant { adapted, asking, ..Variant::plain(placement) };
                forms.push((format!("{variant:?}"), variant));
            }
        }
    }
    forms
}

pub fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
