//! Redaction: secrets and personal data in tool results are replaced by placeholders before they leave for the provider.
//!
//! # What it does
//! Finds keys, passwords, e-mail addresses, phone and card numbers, bank accounts, and what the operator's own patterns
//! match, in tool results and, with `user_text`, in user messages. The model reads a placeholder such as
//! `[EMAIL_7f3a9c21]`, the same one for the same value through the whole conversation. A call's arguments that hold a
//! placeholder get the value back on the way to the program; where the client sends them again, they are hidden again.
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
//! A result `{"mail":"anna@example.org"}` reaches the model as `{"mail":"[EMAIL_7f3a9c21]"}`. The model calls
//! `send_email` with `{"to":"[EMAIL_7f3a9c21]"}`, and the program gets `{"to":"anna@example.org"}`.

mod checks;
mod detect;
mod expressions;
mod kept;
mod named;
mod rules;
mod value;

pub use kept::Redactor;

use super::about::{About, list_tools};
use super::pattern::{Pattern, any_fits, problem_of};
use super::texts::{OwnTexts, Text, Texts};
use super::{ConfigError, Policy};
use crate::conversation::identity::{Domain, Hash};
use crate::conversation::memo::Derived;
use crate::conversation::{Event, View};
use crate::plan::placeholders::{Placeholders, Redaction, SHORTEST, replaced};
use crate::plan::{Plan, Proposed, Verdict};
use crate::wire::body::Str;
use crate::wire::json::decode;
use crate::wire::json_strings::map_strings;
use detect::{Detector, Found, What};
use regex::Regex;
use rules::Kind;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use value::{Position, placeholder, restored_value};

/// The most patterns of the operator.
const MOST_PATTERNS: usize = 64;

/// What the model reads once, after the first values that are hidden from it.
const EXPLAINED: Text = Text {
    key: "explained",
    default: "[toolrein] Texts such as {example} stand for secret or personal data that is kept from you. Where you need \
              the data, also in a tool call, write the text exactly as it is, with its brackets: programs get the data.",
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
            restore: vec![Pattern::new("*")],
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

impl Policy for Redact {
    const NAME: &'static str = "redact";
    const SUMMARY: &'static str =
        "hides secrets and personal data from the model, and puts them back into its calls";
    const SCOPE: Option<&'static str> = Some(
        "strings and text parts of results and user messages; with previous_response_id or a conversation upstream, \
         values of earlier requests are put back where the state store kept what came before",
    );
    const TEXTS: &'static [Text] = &[EXPLAINED];
    type Config = Config;
    type State = State;

    fn new(config: Config) -> Result<Self, Vec<ConfigError>> {
        let mut problems = Vec::new();
        let own = own_patterns(&config.patterns, &mut problems);
        problems.extend(problem_of("exempt", &config.exempt));
        problems.extend(problem_of("restore", &config.restore));
        // Compiled at the start, not in the first request.
        rules::compile();
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
        map_strings(arguments, |text| state.hidden.restore(text)).map_or(Verdict::Allow, Verdict::Modify)
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
            let found = self.found(view, place);
            if found.is_empty() && state.hidden.is_empty() {
                continue;
            }
            let text = decode(place, view.body);
            self.issue(view, &text, &found, state);
            let known = state.hidden.find(&text, view.index);
            if found.is_empty() && known.is_empty() {
                continue;
            }
            kinds.extend(found.iter().map(|one| one.what));
            let ranges = self.redactions(view, &text, joined(&found, &known), state);
            // Not what is written for short values and for the rest of a text: nothing is put back in their place.
            let mut written = ranges.iter().map(|one| one.by.trim_matches('"'));
            if let Some(example) = written.find(|by| state.hidden.gave_out(by)) {
                state.example = Some(example.into());
            }
            plan.redact(at, replaced(&text, &ranges).into(), ranges.into());
        }
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

    /// Hides what is `found` in `text`, so that it is known wherever else it occurs.
    fn issue(&self, view: &View<'_>, text: &str, found: &[Found], state: &mut State) {
        let mut places = Position::in_text(text);
        for one in found.iter().filter(|one| one.what != What::Rest) {
            self.placeholder_of(
                view,
                &text[one.range.clone()],
                one.what,
                places.at(one.range.clone()),
                state,
            );
        }
    }

    /// The `ranges` of `text`, each with its placeholder.
    fn redactions(
        &self,
        view: &View<'_>,
        text: &str,
        ranges: Vec<(Range<usize>, Option<What>)>,
        state: &mut State,
    ) -> Vec<Redaction> {
        let mut places = Position::in_text(text);
        let redact = |(range, what): (Range<usize>, Option<What>)| {
            let (place, written) = (places.at(range.clone()), &text[range.clone()]);
            let by: Cow<'_, str> = match (what, state.hidden.of(written)) {
                (Some(What::Rest), _) => value::REST.into(),
                (None, Some(known)) => known.to_string().into(),
                (what, _) => self.placeholder_of(view, written, what.unwrap_or(What::Other), place, state),
            };
            let by = if place.is_number { format!("\"{by}\"").into() } else { by };
            Redaction { range, by: by.into() }
        };
        ranges.into_iter().map(redact).collect()
    }

    /// The placeholder of a value that is `written` so in a text.
    fn placeholder_of<'a>(
        &self,
        view: &View<'_>,
        written: &str,
        what: What,
        place: Position,
        state: &mut State,
    ) -> Cow<'a, str> {
        if written.len() < SHORTEST {
            // It cannot be told from other texts: it is hidden, and never put back.
            return value::SHORT.into();
        }
        let value = restored_value(written, &place);
        if let Some(known) = state.hidden.of(&value) {
            return known.to_string().into();
        }
        let root = view.identity.root();
        let label = self.label(what);
        let name = |longer| placeholder(&view.identity.key, root, (label, &value), longer);
        Arc::make_mut(&mut state.hidden).hide(&value, view.index, name).to_string().into()
    }

    fn label(&self, what: What) -> &str {
        match what {
            What::Kind(kind) => kind.word(),
            What::Own(at) => self.detector.own.get(at).map_or("value", |(name, _)| name),
            What::Rest | What::Other => "value",
        }
    }

    /// What is found in a text, from the cache if it was looked at before.
    fn found(&self, view: &View<'_>, place: Str) -> Arc<Vec<Found>> {
        let find = || Arc::new(self.detector.find(&decode(place, view.body)));
        let kept = |found: Arc<Vec<Found>>| match found.is_empty() {
            // Most texts hold nothing, and that takes no room.
            true => Derived::Cut(None),
            false => Derived::Compiled(found),
        };
        let parts = [&view.text_digest(place).0.to_le_bytes()[..], self.settings.as_bytes()];
        let key: Hash = view.identity.key.hash(Domain::Redaction, &parts);
        match view.memo.derive(key, &mut || kept(find())) {
            Derived::Compiled(kept) => kept.downcast().unwrap_or_else(|_| find()),
            Derived::Cut(None) => Arc::default(),
            _ => find(),
        }
    }

    /// Explains placeholders to the model, where it has just read its first.
    fn explain(&self, state: &mut State, plan: &mut Plan) {
        if let Some(example) = state.example.take()
            && self.explain
            && !std::mem::replace(&mut state.was_explained, true)
        {
            plan.notice("explained", self.texts.fill(&EXPLAINED, &[("example", &example)]));
        }
    }
}

/// Hides in what the model has written the values that it never read: the client was given them in calls.
fn hide_again(view: &View<'_>, state: &State, plan: &mut Plan) {
    for (at, place) in view.message.content.texts().enumerate() {
        let text = decode(place, view.body);
        let known = state.hidden.find(&text, view.index);
        if !known.is_empty() {
            plan.redact(at, replaced(&text, &known).into(), known.into());
        }
    }
    for (at, call) in view.message.calls.iter().enumerate() {
        let arguments = call.arguments.text(view.body);
        if let Some(by) = map_strings(&arguments, |text| state.hidden.hide_in(text, view.index)) {
            plan.redact_call(at, by.into());
        }
    }
}

/// The ranges of both lists in order, overlapping ones as one; with what it is, where it is not known.
fn joined(found: &[Found], known: &[Redaction]) -> Vec<(Range<usize>, Option<What>)> {
    let mut all: Vec<_> = found.iter().map(|one| (one.range.clone(), Some(one.what))).collect();
    all.extend(known.iter().map(|one| (one.range.clone(), None)));
    all.sort_by_key(|(range, _)| range.start);
    let mut joined: Vec<(Range<usize>, Option<What>)> = Vec::with_capacity(all.len());
    for (range, what) in all {
        match joined.last_mut().filter(|(last, _)| range.start < last.end) {
            Some((last, of)) => {
                last.end = last.end.max(range.end);
                *of = if what == Some(What::Rest) { what } else { of.or(what) };
            }
            None => joined.push((range, what)),
        }
    }
    joined
}

#[cfg(test)]
mod tests;
