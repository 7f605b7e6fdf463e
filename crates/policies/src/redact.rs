//! Redaction: secrets and personal data in tool results are replaced by placeholders before they leave for the provider.
//!
//! # What it does
//! Finds keys, passwords, e-mail addresses, phone and card numbers, bank accounts, and what the operator's own patterns
//! match, in tool results and, with `user_text`, in user messages. The model reads a placeholder such as
//! `[EMAIL_7f3a9c21]`, the same one for the same value through the whole conversation. Where the operator names a tool in
//! `restore`, the arguments of its calls get the value back on the way to the program; where the client sends them again,
//! they are hidden again.
//!
//! # Why
//! What a tool returns is sent to the provider, with whatever the tool has found. The model seldom needs the value
//! itself: it needs to know that two values are the same, and to pass one on.
//!
//! # State
//! The values hidden so far, each with its placeholder: derived from the conversation that the client sends. A placeholder
//! is a hash of the value under a secret key of this process, or of the replicas that share one, so that it stays the
//! same where the history is shortened, and says nothing about the value.
//!
//! # Example
//! A result `{"mail":"anna@example.org"}` reaches the model as `{"mail":"[EMAIL_7f3a9c21]"}`. With
//! `restore = ["send_email"]`, the model calls `send_email` with `{"to":"[EMAIL_7f3a9c21]"}`, and the program gets `{"to":"anna@example.org"}`.

mod beside;
mod checks;
mod detect;
mod expressions;
mod kept;
mod lines;
mod markup;
mod members;
mod named;
mod phrases;
mod rules;
mod signs;
mod value;
mod words;

pub use kept::{Redactor, Replacements};
pub use rules::LEAST_NUMBER;

use super::about::{About, list_tools};
use super::pattern::{Pattern, any_fits, problem_of};
use super::texts::{OwnTexts, Text, Texts};
use super::{ConfigError, Policy};
use detect::{Detector, Findings, Found, What};
use model::identity::{Domain, Hash};
use model::plan::placeholders::{Occurrence, Placeholders, Redaction, SHORTEST, merged, replaced};
use model::plan::{Change, Plan, Proposed, Verdict};
use model::{Event, View};
use regex::Regex;
use rules::Kind;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use value::{placeholder, restored_value};
use wire::decoded::Decoded;
use wire::json::decode;

/// The most patterns of the operator.
const MOST_PATTERNS: usize = 64;

/// What the model reads once, after the first values that are hidden from it.
const EXPLAINED: Text = Text {
    key: "explained",
    default: "[toolrein] Texts such as {example} stand for secret or personal data that is kept from you. Where you need \
              the data, also in a tool call, write the text exactly as it is, with its brackets: programs get the data.",
    placeholders: &["example"],
};

/// The same, where no tool gets a value back.
const KEPT_BACK: Text = Text {
    key: "kept_back",
    default: "[toolrein] Texts such as {example} stand for secret or personal data that is kept from you and from the \
              tools that you call. In your answer you may write such a text exactly as it is. A tool would get the text \
              and not the data, so if a task needs the data, say so.",
    placeholders: &["example"],
};

/// See the module.
pub struct Redact {
    detector: Detector,
    user_text: bool,
    exempt: Vec<Pattern>,
    restore: Vec<Pattern>,
    explain: bool,
    texts: Texts,
    /// What the findings depend on, for the memo.
    settings: String,
}

/// `[policy.redact]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// What is looked for.
    kinds: Vec<Kind>,
    /// Further patterns by name: regular expressions; where one has a group, that is the value.
    patterns: BTreeMap<String, String>,
    /// User messages too.
    user_text: bool,
    /// Tools whose results are left alone, by name or pattern.
    exempt: Vec<Pattern>,
    /// Tools whose calls get the values back, by name or pattern.
    restore: Vec<Pattern>,
    /// Explain placeholders to the model, once.
    explain: bool,
    texts: OwnTexts,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            kinds: Kind::ALL.to_vec(),
            patterns: BTreeMap::new(),
            user_text: false,
            exempt: Vec::new(),
            restore: Vec::new(),
            explain: true,
            texts: OwnTexts::default(),
        }
    }
}

/// What is known of one conversation.
#[derive(Clone, Default)]
pub struct State {
    hidden: Arc<Placeholders>,
    /// A placeholder that the model has read since it had none explained.
    example: Option<Arc<str>>,
    was_explained: bool,
}

/// Compiles the rules at the start, not in the first request, where this policy is among `policies`, which are on. They take
/// some MB, and a policy is also made to be looked at.
pub fn compile_for(policies: &[&str]) {
    if policies.contains(&Redact::NAME) {
        rules::compile();
    }
}

impl Policy for Redact {
    const NAME: &'static str = "redact";
    const SUMMARY: &'static str = "hides secrets and personal data from the model, and puts them back into the calls of tools that you name";
    const SCOPE: Option<&'static str> = Some(
        "strings and text parts of results and user messages; with previous_response_id or a conversation upstream, \
         values of earlier requests are put back where the state store kept what came before",
    );
    const TEXTS: &'static [Text] = &[EXPLAINED, KEPT_BACK];
    type Config = Config;
    type State = State;

    fn new(config: Config) -> Result<Self, Vec<ConfigError>> {
        let mut problems = Vec::new();
        let own = own_patterns(&config.patterns, &mut problems);
        problems.extend(problem_of("exempt", &config.exempt));
        problems.extend(problem_of("restore", &config.restore));
        let settings = format!("{:?} {:?}", config.kinds, config.patterns);
        let texts = config.texts.check(Self::TEXTS, &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self {
            detector: Detector::new(config.kinds, own),
            user_text: config.user_text,
            exempt: config.exempt,
            restore: config.restore,
            explain: config.explain,
            texts,
            settings,
        })
    }

    fn about(&self) -> About {
        About {
            named_tools: [list_tools("exempt", &self.exempt), list_tools("restore", &self.restore)].concat(),
            idle: self.detector.is_empty().then_some("kinds and patterns are empty"),
            ..About::default()
        }
    }

    fn read(&self, event: &Event<'_>, state: &mut State, plan: &mut Plan) {
        match event {
            Event::Result(result) if !any_fits(&self.exempt, result.tool()) => {
                self.hide_texts(&result.view, state, plan);
                self.hide_values(&result.view, state, plan);
            }
            Event::User(view) if self.user_text => {
                self.hide_texts(view, state, plan);
                self.explain(state, plan);
            }
            Event::Assistant(view) if !state.hidden.is_empty() => hide_again(view, state, plan),
            Event::ResultsComplete(_) => self.explain(state, plan),
            _ => {}
        }
    }

    fn close(&self, state: &State, plan: &mut Plan) {
        if !state.hidden.is_empty() {
            plan.hide_values(Arc::clone(&state.hidden));
        }
    }

    fn judge(&self, call: &Proposed<'_>, state: &State) -> Verdict {
        if state.hidden.is_empty() || !any_fits(&self.restore, call.name) {
            return Verdict::Allow;
        }
        let Some(arguments) = call.arguments else { return Verdict::NeedsArguments };
        if !arguments.contains([value::OPENS, '\\']) {
            return Verdict::Allow;
        }
        state.hidden.restore(arguments).map_or(Verdict::Allow, Verdict::Modify)
    }
}

/// The operator's patterns; adds to `problems` what is wrong with them.
fn own_patterns(
    written: &BTreeMap<String, String>,
    problems: &mut Vec<ConfigError>,
) -> Vec<(Arc<str>, Regex)> {
    if written.len() > MOST_PATTERNS {
        problems.push(ConfigError::new("patterns", format!("expected at most {MOST_PATTERNS}")));
        return Vec::new();
    }
    let mut own = Vec::new();
    for (name, pattern) in written {
        let key = format!("patterns.{name}");
        let mut problem = |problem: String| problems.push(ConfigError::new(key.clone(), problem));
        if !value::is_name(name) {
            problem("expected a name of at most 32 letters, digits and _".to_owned());
        }
        match Regex::new(pattern) {
            Err(error) => problem(format!("not a regular expression: {}", last_line(&error.to_string()))),
            Ok(regex) if regex.is_match("") => problem("it matches an empty text".to_owned()),
            Ok(regex) => own.push((name.as_str().into(), regex)),
        }
    }
    own
}

/// The line of a parser's error that says what is wrong.
fn last_line(error: &str) -> &str {
    let line = error.lines().next_back().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line)
}

impl Redact {
    /// Hides the values in the texts of a message.
    fn hide_texts(&self, view: &View<'_>, state: &mut State, plan: &mut Plan) {
        let mut kinds: Vec<What> = Vec::new();
        for (at, place) in view.message.content.texts().enumerate() {
            let parts = [&view.text_digest(place).0.to_le_bytes()[..], self.settings.as_bytes()];
            let text = || decode(place, view.body);
            if let Some((text, ranges)) = self.redactions(view, &parts, text, state, &mut kinds) {
                plan.edit(Change::Redact {
                    text: at,
                    by: replaced(&text, &ranges).into(),
                    ranges: ranges.into(),
                });
            }
        }
        self.remark(&kinds, plan);
    }

    /// Hides the values in everything else that a result holds: in objects, in parts that are no texts, in other members.
    fn hide_values(&self, view: &View<'_>, state: &mut State, plan: &mut Plan) {
        let mut kinds: Vec<What> = Vec::new();
        for span in beside::values_beside_texts(view) {
            let json = span.of(view.body);
            let parts = [json, &b"value"[..], self.settings.as_bytes()];
            let text = || String::from_utf8_lossy(json);
            let Some((_, mut ranges)) = self.redactions(view, &parts, text, state, &mut kinds) else {
                continue;
            };
            if !json.starts_with(b"{") && !json.starts_with(b"[") && !json.starts_with(b"\"") {
                // A number by itself.
                ranges.truncate(1);
                ranges.iter_mut().for_each(|whole| *whole = whole_value(json.len(), &whole.by));
            }
            plan.edit(Change::RedactValue { span, ranges: ranges.into() });
        }
        self.remark(&kinds, plan);
    }

    /// Counts what was found.
    fn remark(&self, kinds: &[What], plan: &mut Plan) {
        for kind in Kind::ALL {
            if kinds.contains(&What::Kind(kind)) {
                plan.remark(kind.word());
            }
        }
        for (at, (name, _)) in self.detector.own.iter().enumerate() {
            if kinds.contains(&What::Own(at)) {
                plan.remark_of("own", name);
            }
        }
    }

    /// The text with the ranges of its values, each with its placeholder; `None` where there are none. `name` is the
    /// text's key in the cache. What is found is added to `kinds`.
    fn redactions<'t>(
        &self,
        view: &View<'_>,
        name: &[&[u8]],
        text: impl Fn() -> Cow<'t, str>,
        state: &mut State,
        kinds: &mut Vec<What>,
    ) -> Option<(Cow<'t, str>, Vec<Redaction>)> {
        let found = &self.found(view, name, &text).0;
        if found.is_empty() && state.hidden.is_empty() {
            return None;
        }
        let text = text();
        let decoded = Decoded::new(&text);
        // All values get their placeholders first, so that each is known wherever else it occurs.
        for one in found.iter().filter(|one| one.what != What::Rest) {
            self.placeholder_of(view, &decoded, one, state);
        }
        kinds.extend(found.iter().map(|one| one.what));
        let known = state.hidden.find(&decoded, view.index).into_iter();
        let known = known.map(|Occurrence { range, layer, .. }| Found { range, layer, what: What::Other });
        let all = merged(found.iter().cloned().chain(known).collect(), What::of_both);
        let mut rest = value::REST;
        let redact = |one: Found| {
            let word = match one.what {
                // Said once, in the first of the strings that are left out.
                What::Rest => std::mem::replace(&mut rest, value::SHORT).into(),
                _ => self.placeholder_of(view, &decoded, &one, state),
            };
            Redaction { by: decoded.written_at(&one.range, &word).into(), range: one.range }
        };
        let ranges: Vec<Redaction> = all.into_iter().map(redact).collect();
        drop(decoded);
        (!ranges.is_empty()).then_some((text, ranges))
    }

    /// The placeholder of a value of a text.
    fn placeholder_of(
        &self,
        view: &View<'_>,
        text: &Decoded<'_>,
        found: &Found,
        state: &mut State,
    ) -> Cow<'static, str> {
        let written = text.text_of(found.layer, found.range.clone());
        if written.len() < SHORTEST {
            // It cannot be told from other texts: it is hidden, and never put back.
            return value::SHORT.into();
        }
        let value = restored_value(written);
        // The same value in other escapes: what all of them mean, and how it is written in this text.
        let meant = text.text_of(text.layers() - 1, found.range.clone());
        let spellings = [meant, text.text_of(0, found.range.clone())];
        let known = [&*value, meant].into_iter().find_map(|spelling| state.hidden.of(spelling).cloned());
        let is_spelled_alike = spellings.iter().all(|spelling| **spelling == *value);
        if let Some(known) = known.as_ref().filter(|_| is_spelled_alike) {
            return known.to_string().into();
        }
        let root = view.identity().root();
        let label = self.label(found.what);
        let name = |longer| placeholder(&view.identity().key, root, (label, meant), longer);
        let hidden = Arc::make_mut(&mut state.hidden);
        let placeholder = known.unwrap_or_else(|| hidden.hide(&value, view.index, name));
        // Not where it is the placeholder of another value, because all its digits are taken.
        if hidden.value_of(&placeholder).is_some_and(|known| known == &*value || known == meant) {
            for spelling in spellings.into_iter().chain([&*value]) {
                hidden.add_spelling(spelling, &placeholder);
            }
            state.example.get_or_insert_with(|| Arc::clone(&placeholder));
        }
        placeholder.to_string().into()
    }

    fn label(&self, what: What) -> &str {
        match what {
            What::Kind(kind) => kind.word(),
            What::Own(at) => self.detector.own.get(at).map_or("value", |(name, _)| name),
            What::Rest | What::Other => "value",
        }
    }

    /// What is found in a text, from the cache if it was looked at before.
    fn found<'t>(&self, view: &View<'_>, name: &[&[u8]], text: &impl Fn() -> Cow<'t, str>) -> Arc<Findings> {
        let key: Hash = view.identity().key.hash(Domain::Redaction, name);
        view.memo().derive(key, || Findings(self.detector.find(&Decoded::new(&text()))))
    }

    /// Explains placeholders to the model, where it has just read its first.
    fn explain(&self, state: &mut State, plan: &mut Plan) {
        if let Some(example) = state.example.take()
            && self.explain
            && !std::mem::replace(&mut state.was_explained, true)
        {
            let is_own = self.texts.own(&EXPLAINED).is_some();
            let text = if self.restore.is_empty() && !is_own { &KEPT_BACK } else { &EXPLAINED };
            plan.notice("explained", self.texts.fill(text, &[("example", &example)]));
        }
    }
}

/// The change that puts a string in place of a JSON value of so many bytes.
fn whole_value(bytes: usize, by: &str) -> Redaction {
    Redaction { range: 0..bytes, by: format!("\"{by}\"").into() }
}

/// Hides in what the model has written the values that it never read: the client was given them in calls.
fn hide_again(view: &View<'_>, state: &State, plan: &mut Plan) {
    for (at, place) in view.message.content.texts().enumerate() {
        let text = decode(place, view.body);
        let known = state.hidden.redactions(&text, view.index);
        if !known.is_empty() {
            plan.edit(Change::Redact { text: at, by: replaced(&text, &known).into(), ranges: known.into() });
        }
    }
    for (at, call) in view.message.calls.iter().enumerate() {
        let arguments = call.arguments.text(view.body);
        if let Some(by) = state.hidden.hide_in(&arguments, view.index) {
            plan.edit(Change::RedactCall { call: at, by: by.into() });
        }
    }
}

#[cfg(test)]
mod tests;
