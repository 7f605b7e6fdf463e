//! Truncation of bloated tool results.
//!
//! # What it does
//! A tool result longer than `max_chars` characters (or the limit of its tool) is shortened: text by whole lines,
//! head and tail, with lines and stack traces that look like errors kept; tables by rows with their header kept; JSON
//! stays valid JSON; base64 of more than 1,000 characters becomes a note of its type and size. One marker says how
//! much is gone. In a result that fits, base64 of more than `blob_chars` becomes such a note too, and nothing else
//! changes. With `duplicates`, a result of more than 400 characters that equals an earlier one is replaced by a
//! pointer to it, which names the tool and the call's number. Only text parts are changed; images and other parts
//! stay. A result that alone is larger than the model's known context window is cut even where its tool has no limit,
//! and so are the longest results of a request that the upstream refused for its length.
//!
//! # Why
//! A bloated result is paid for again with every later request. The cut is made when the result first comes and is a
//! pure function of its bytes, so the result never changes again and the provider's prompt cache keeps hitting.
//! Measured on recorded coding agents: at 16,000 characters 96% of the lines that are used later are still there.
//! 3.9% of all bytes are repeated results.
//!
//! # State
//! The results so far, each by a hash of its text with the number of its call, for duplicates; a cut needs no state.
//! The calls whose results were cut in the last group, to count those that are made again right after (*re_request*).
//! A pointer is valid only while its original is shown: where compaction clears that one, the text is shown again
//! (the plan carries both, the cut and the pointer).
//!
//! # Example
//! With `max_chars = 16000` a build log of 200,000 characters becomes its first 3,000, its errors and its last
//! 12,000 characters around `[toolrein: ...]`; read again unchanged it becomes one line that points to call 3.

mod cut;
mod earlier_results;
mod re_request;

use super::about::{About, NO_LIMITS, Service, list_keys};
use super::pattern::{Pattern, best_match};
use super::texts::{OwnTexts, Text, Texts};
use super::{ConfigError, Policy, RequestView};
use cut::announce::{self, Wording};
use cut::{Bounds, How, MIN_CHARS, blob};
use earlier_results::{EarlierResults, Pointer, REPEATED};
use model::identity::Domain;
use model::plan::{Change, Finding, Plan};
use model::tokens::estimate_json;
use model::{Event, EventKind, LengthCut, ToolResult};
use re_request::ReRequests;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use wire::body::Str;
use wire::escaped_text::EscapedText;
use wire::json::decode;

/// See the module.
pub struct Truncate {
    max_chars: usize,
    tools: Vec<(Pattern, usize)>,
    /// `usize::MAX` where base64 is left alone in results that fit.
    blob_chars: usize,
    duplicates: bool,
    texts: Texts,
    /// The operator's own texts, as a part of the keys of cached cuts.
    fingerprint: String,
}

/// `[policy.truncate]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Longest result, in characters; 0: no limit.
    max_chars: usize,
    /// The same for tools by name or pattern.
    tools: BTreeMap<String, usize>,
    /// Longest base64 in a result that fits, in characters; 0: no limit.
    blob_chars: usize,
    /// Point to an earlier equal result.
    duplicates: bool,
    /// The operator's own texts.
    texts: OwnTexts,
}

impl Default for Config {
    fn default() -> Self {
        let texts = OwnTexts::default();
        Self { max_chars: 16_000, tools: BTreeMap::new(), blob_chars: 4_000, duplicates: true, texts }
    }
}

/// What is known of one conversation.
#[derive(Clone, Default)]
pub struct State {
    earlier: EarlierResults,
    re_requests: ReRequests,
    /// The tool of ours by which the model reads what is cut.
    reader: Option<&'static str>,
    room: Room,
}

/// What is known of the room in the model's context.
#[derive(Clone, Default)]
struct Room {
    /// The size of the context window in tokens, where it is known.
    window: Option<u64>,
    /// How the results of requests were cut that were too long.
    cuts: Vec<LengthCut>,
}

impl Room {
    fn new(request: &RequestView<'_>) -> Self {
        Self {
            window: request.transcript.context_window.map(u64::from),
            cuts: request.transcript.length_cuts.to_vec(),
        }
    }

    /// The most characters of `text`, of the message `index`, where it leaves no room for others. A text that alone is
    /// larger than the window gets one for each token of it, so that about a quarter of it is used. `None` for a text
    /// that leaves room.
    fn limit(&self, text: &[u8], index: usize) -> Option<usize> {
        let cuts = self.cuts.iter().filter(|cut| index < cut.messages).map(|cut| cut.most_chars);
        // A token is at least a byte.
        let is_larger = |window: &u64| text.len() as u64 > *window && estimate_json(text).tokens() > *window;
        let of_window =
            self.window.filter(is_larger).map(|window| usize::try_from(window).unwrap_or(usize::MAX));
        cuts.chain(of_window).min().map(|most| most.max(MIN_CHARS))
    }
}

impl Policy for Truncate {
    const NAME: &'static str = "truncate";
    const SUMMARY: &'static str =
        "shortens bloated and repeated tool results, once, and says how much is gone";
    const SCOPE: Option<&'static str> = Some(
        "strings and text parts of results; with previous_response_id or a conversation upstream once, when they are sent",
    );
    const TEXTS: &'static [Text] = &[
        announce::CUT,
        announce::LINES,
        announce::ROWS,
        announce::ERRORS,
        announce::NARROWER,
        announce::READ,
        announce::JSON,
        announce::LAYOUT,
        announce::JSON_LAYOUT,
        announce::INSIDE,
        announce::INSIDE_STRING,
        announce::ENCODED,
        REPEATED,
    ];
    type Config = Config;
    type State = State;

    fn new(config: Config) -> Result<Self, Vec<ConfigError>> {
        let limits = std::iter::once(("max_chars".to_owned(), config.max_chars))
            .chain(config.tools.iter().map(|(tool, limit)| (format!("tools.{tool}"), *limit)))
            .chain([("blob_chars".to_owned(), config.blob_chars)]);
        let limits: Vec<(String, usize)> = limits.collect();
        let least = limits.iter().map(|(_, limit)| *limit).filter(|limit| *limit > 0).min();
        let mut problems: Vec<ConfigError> = limits
            .into_iter()
            .filter(|(_, limit)| (1..MIN_CHARS).contains(limit))
            .map(|(key, _)| ConfigError::new(key, format!("expected 0 or at least {MIN_CHARS} characters")))
            .collect();
        let texts = config.texts.check(Self::TEXTS, &mut problems);
        problems.extend(problems_of(&texts, least));
        if !problems.is_empty() {
            return Err(problems);
        }
        let fingerprint = texts.fingerprint();
        let tools = config.tools.into_iter().map(|(tool, limit)| (Pattern::new(tool), limit)).collect();
        let blob_chars = if config.blob_chars == 0 { usize::MAX } else { config.blob_chars };
        Ok(Self {
            max_chars: config.max_chars,
            tools,
            blob_chars,
            duplicates: config.duplicates,
            texts,
            fingerprint,
        })
    }

    fn about(&self) -> About {
        let limits = self.tools.iter().any(|(_, limit)| *limit > 0);
        let cuts_results = self.max_chars > 0 || self.duplicates || limits;
        About {
            named_tools: list_keys("tools", &self.tools),
            ignored_events: !(EventKind::Assistant | EventKind::Call | EventKind::Result),
            edits_context: true,
            services: if cuts_results { vec![Service::CutResults] } else { Vec::new() },
            idle: (!cuts_results && self.blob_chars == usize::MAX).then_some(NO_LIMITS),
            resumes: true,
            ..About::default()
        }
    }

    fn open(&self, request: &RequestView<'_>, state: &mut State, plan: &mut Plan) {
        state.reader = plan.reader();
        state.room = Room::new(request);
    }

    fn read(&self, event: &Event<'_>, state: &mut State, plan: &mut Plan) {
        match event {
            Event::Assistant(_) => state.re_requests.begin_reply(),
            Event::Call(call) => {
                state.re_requests.call(call);
                if self.duplicates {
                    state.earlier.call(call);
                }
            }
            Event::Result(result) => {
                if let Some(tool) = result.call.and_then(|call| state.re_requests.re_requested(call)) {
                    plan.report(Finding::ReRequest { tool: tool.into() });
                }
                if !result.view.message.odd {
                    self.read_result(result, state, plan);
                }
            }
            _ => {}
        }
    }
}

impl Truncate {
    fn read_result(&self, result: &ToolResult<'_>, state: &mut State, plan: &mut Plan) {
        let limit = best_match(&self.tools, result.tool()).copied().unwrap_or(self.max_chars);
        // Without a limit it is not cut, but later results may point to it.
        let configured = if limit == 0 { usize::MAX } else { limit };
        let call = result.call.map(|call| call.ordinal);
        let how = state.reader.zip(call).map_or(How::Narrower, |(reader, call)| How::Read { reader, call });
        let redacted = plan.changes_text_here().then(|| redacted(result, plan));
        for (at, text) in result.view.message.content.texts().enumerate() {
            let room = state.room.limit(text.raw(result.view.body), result.view.index);
            let max_chars = room.map_or(configured, |most| most.min(configured));
            let bounds = Bounds { max_chars, blob_chars: self.blob_chars, how, texts: &self.texts };
            let pointer = if self.duplicates {
                state.earlier.pointer(result, text, max_chars, &self.texts)
            } else {
                None
            };
            if max_chars == usize::MAX {
                continue;
            }
            // If the original is cleared later, the cut applies.
            let instead = redacted.as_ref().and_then(|texts| texts.get(&at)).map(|by| &**by);
            if let Some((by, gone_chars)) = shortened(result, text, instead, bounds, &self.fingerprint) {
                plan.edit(Change::Shorten { text: at, by, gone_chars });
                result.call.iter().for_each(|call| state.re_requests.cut(call));
            }
            if let Some(pointer) = pointer {
                let Pointer { text: by, gone_chars, original } = pointer;
                plan.edit(Change::Point { text: at, by, gone_chars, original });
            }
        }
    }
}

/// What is wrong with the operator's own texts; `least`: the smallest limit of a result, in characters.
fn problems_of(texts: &Texts, least: Option<usize>) -> Vec<ConfigError> {
    // They are put into strings of JSON as they are.
    let unsafe_ones = Truncate::TEXTS
        .iter()
        .filter(|text| texts.own(text).is_some_and(|own| own.contains(['"', '\\', '\n'])));
    let mut problems: Vec<ConfigError> = unsafe_ones
        .map(|text| {
            let key = format!("texts.{}", text.key);
            ConfigError::new(
                key,
                "expected no quotes, backslashes or line ends, since the text may be put into JSON",
            )
        })
        .collect();
    let how = How::Read { reader: "read_more", call: 9_999 };
    let longest = [How::Narrower, how].map(|how| Wording { texts, how }.longest()).into_iter().max();
    if let (Some(longest), Some(least)) = (longest, least)
        && texts.is_own()
        && longest * 2 > least
    {
        let problem = format!(
            "with these texts an announcement has up to {longest} characters; expected at most half of the smallest limit, {least}"
        );
        problems.push(ConfigError::new("texts", problem));
    }
    problems
}

/// The texts of `result` in which values are hidden: what is cut is what the model would read of the whole text, since
/// a cut may leave a part of a value.
fn redacted(result: &ToolResult<'_>, plan: &Plan) -> BTreeMap<usize, EscapedText> {
    let facts = plan.facts_here();
    let texts = 0..result.view.message.content.texts().count();
    texts.filter_map(|text| Some((text, facts.text(text)?.redacted?.clone()))).collect()
}

/// The text, or what it is read as `instead`, cut to `bounds`; from the cache if it was cut before.
fn shortened(
    result: &ToolResult<'_>,
    text: Str,
    instead: Option<&str>,
    bounds: Bounds<'_>,
    fingerprint: &str,
) -> Option<(EscapedText, usize)> {
    let view = &result.view;
    let raw = instead.map_or_else(|| text.raw(view.body), str::as_bytes);
    let Bounds { max_chars, blob_chars, how, .. } = bounds;
    // Fewer bytes than the limit cannot be more characters.
    if raw.len() <= max_chars && (raw.len() <= blob_chars || !blob::may_occur(raw, blob_chars)) {
        return None;
    }
    // Calls are numbered from 1, and there is one reader at most.
    let call = if let How::Read { call, .. } = how { call } else { 0 };
    let form: &[u8] = if instead.is_some() { b"text" } else { b"" };
    let numbers = [max_chars, blob_chars, call].map(usize::to_le_bytes);
    let parts = [&numbers[0][..], &numbers[1], &numbers[2], raw, form, fingerprint.as_bytes()];
    let key = view.identity().key.hash(Domain::Cut, &parts);
    let cut = view.memo().derive(key, || {
        let cut = cut::cut(&instead.map_or_else(|| decode(text, view.body), Cow::Borrowed), bounds);
        cut.map(|cut| (EscapedText::from(cut.text), cut.gone_chars))
    });
    (*cut).clone()
}

#[cfg(test)]
mod tests {
    use super::super::cases::{plan_of, policy};
    use super::*;
    use model::plan::Change;
    use model::testing::{SampleItem, SampleRequest, call, reply, result, user};

    /// What is planned for one result, of `tool`.
    fn plan(config: &str, tool: &str, result: SampleItem) -> Plan {
        let request = SampleRequest::new(&[user("q"), reply([call("a", tool, "{}")]), result]);
        plan_of(&policy::<Truncate>(config), &request)
    }

    fn cuts(config: &str, tool: &str, result: SampleItem) -> Vec<(usize, usize, usize)> {
        let plan = plan(config, tool, result);
        let cuts = plan.edits.into_iter().map(|edit| match edit.change {
            Change::Shorten { text, by, gone_chars } => (text, by.chars().count(), gone_chars),
            other => panic!("{other:?}"),
        });
        cuts.collect()
    }

    #[test]
    fn results_are_cut_by_the_limit_of_their_tool() {
        let long = "word word word\n".repeat(100);
        for (config, tool, cut) in [
            ("max_chars = 1000", "any", true),
            ("max_chars = 2000", "any", false),
            ("max_chars = 0", "any", false),
            ("max_chars = 2000\ntools = { \"read*\" = 500 }", "readFile", true),
            ("max_chars = 1000\ntools = { readFile = 0 }", "readFile", false),
        ] {
            let cuts = cuts(config, tool, result("a", &long));
            assert_eq!(!cuts.is_empty(), cut, "{config}");
            assert!(cuts.iter().all(|(_, chars, gone)| *chars <= 1000 && *gone > 0));
        }
    }

    #[test]
    fn text_parts_are_cut_and_other_parts_are_not() {
        let long = "x".repeat(3000);
        let picture = format!(r#"{{"picture":"{long}"}}"#);
        let parts = SampleItem::result_parts("a").other(&picture).text("s").text(&long);
        let cuts = cuts("max_chars = 1000", "f", parts);
        assert_eq!(cuts.len(), 1);
        assert_eq!(cuts[0].0, 1);
    }

    #[test]
    fn strings_that_many_parsers_cannot_read_are_left_alone() {
        let content = format!("\"{}\\ud800\"", "x".repeat(3000));
        let odd = SampleItem::result_of("a").raw_text(&content);
        assert_eq!(cuts("max_chars = 1000", "f", odd), []);
    }

    const OWN: &str = "max_chars = 1000\ntexts.cut = \"<{gone}/{total}{place}>\"\ntexts.lines = \" {first}-{last}\"\n\
                       texts.json = \"<{gone}>\"\ntexts.encoded = \"<{kind}>\"\ntexts.repeated = \"<={call}>\"";

    #[test]
    fn the_operators_texts_announce_cuts_of_every_form() {
        let lines = "word word word\n".repeat(100);
        let items = serde_json::to_string(&vec!["word"; 400]).unwrap();
        let encoded = format!("data:image/png;base64,{}", "iVBORw0KGgoAAAANSUhEUgAAA9k7".repeat(200));
        for (text, expected) in [(&lines, "<"), (&items, "\"<"), (&encoded, "<image/png>")] {
            let plan = plan(OWN, "f", result("a", text));
            let Change::Shorten { by, .. } = &plan.edits[0].change else { panic!("{plan:?}") };
            assert!(by.contains(expected) && !by.contains("toolrein"), "{by}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(by).is_ok(), text == &items, "{by}");
        }
    }

    #[test]
    fn texts_that_could_break_json_or_fill_a_limit_are_refused() {
        for (table, key) in [
            ("texts.cut = \"{gone} \\\"quoted\\\"\"".to_owned(), "texts.cut"),
            ("texts.inside = \"a\\nb\"".to_owned(), "texts.inside"),
            (format!("max_chars = 400\ntexts.json = \"{}\"", "x".repeat(300)), "texts"),
            ("tools = { f = 200 }\ntexts.errors = \"!\"".to_owned(), "texts"),
        ] {
            let config: Config = toml::from_str(&table).unwrap();
            let keys: Vec<String> =
                Truncate::new(config).err().unwrap().into_iter().map(|error| error.key).collect();
            assert_eq!(keys, [key], "{table}");
        }
        let config: Config = toml::from_str("texts.cut = \"{gone}\"").unwrap();
        assert!(Truncate::new(config).is_ok());
    }

    #[test]
    fn limits_too_small_for_a_marker_are_refused() {
        let tools = BTreeMap::from([("f".to_owned(), 10)]);
        let config = Config { max_chars: 50, tools, blob_chars: 199, ..Config::default() };
        let keys: Vec<String> =
            Truncate::new(config).err().unwrap().into_iter().map(|error| error.key).collect();
        assert_eq!(keys, ["max_chars", "tools.f", "blob_chars"]);
    }
}
