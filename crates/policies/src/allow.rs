//! Which tools may be called at all, by name.
//!
//! # What it does
//! A tool may be called if it fits one of `only` (where any are given) and none of `except`. The call of any
//! other tool is blocked; the model reads which tools it may call instead. With `hide`, tools that may not be called
//! are removed from the request's `tools`, so that the model never sees them. A call of a tool that the request does
//! not declare is blocked too, unless `undeclared` says otherwise. A request shows which tools exist only if it declares
//! some, each with a name: where it declares none, tools without a name (the provider's, those of an MCP server) or more
//! of them elsewhere, such calls pass.
//!
//! # Why
//! The same agent runs in environments of different trust. It is safer to take a tool from the model than to ask the
//! model not to use it; and a call of an undeclared tool can only fail at the client, so the model had better learn that
//! at once. That alone is a help and no restriction: only with `only` or `except` does the policy decide which tools may
//! run, and only then are replies refused that cannot be judged. What is hidden depends only on
//! the configuration and the declared tools, so `tools` stays the same through a conversation and the provider's
//! prompt cache keeps hitting.
//!
//! # State
//! The names that the request declares, shared by all who need them.
//!
//! # Example
//! With `except = ["delete_*"]` a call of `delete_all` is blocked with `MODE_RESTRICTED` and the names of up to
//! ten tools that may be called; one of a tool that nobody declared is blocked with `NOT_FOUND`.

use super::about::{About, Callable, list_tools};
use super::pattern::Pattern;
use super::texts::{OwnTexts, Text, Texts};
use super::{ConfigError, Policy, RequestView};
use model::EventKinds;
use model::plan::{Plan, Proposed, Reason, ReasonKind, ToolsEdit, Verdict};
use serde::Deserialize;
use std::cmp::Reverse;
use std::fmt::Display;
use std::sync::Arc;

/// The most names that the reason lists: enough to choose from, short enough to read.
const MOST_NAMES: usize = 10;

/// The longest name that is repeated, in characters: what OpenAI allows.
const LONGEST_NAME: usize = 64;

/// See the module.
pub struct Allow {
    callable: Callable,
    hide: bool,
    undeclared: Undeclared,
    texts: Texts,
}

/// `[policy.allow]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The tools that may be called; none named: all.
    only: Vec<Pattern>,
    /// The tools that may not, although they fit `only`.
    except: Vec<Pattern>,
    /// Keep from the model the tools that may not be called.
    hide: bool,
    /// What to do with calls of tools that the request does not declare.
    undeclared: Undeclared,
    texts: OwnTexts,
}

/// What becomes of calls of tools that the request does not declare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Undeclared {
    #[default]
    Block,
    Pass,
}

/// What the request declares.
#[derive(Clone, Default)]
pub struct Declared {
    /// The names, in order.
    names: Arc<[String]>,
    /// They are all the tools that may be called.
    are_all: bool,
}

impl Allow {
    /// Whether it decides which of the declared tools may be called.
    fn names_tools(&self) -> bool {
        self.callable.only.is_some() || !self.callable.except.is_empty()
    }

    fn idle(&self) -> Option<&'static str> {
        let passes = self.undeclared == Undeclared::Pass;
        (!self.names_tools() && passes).then_some("it names no tools, and undeclared ones pass")
    }
}

impl Policy for Allow {
    const NAME: &'static str = "allow";
    const SUMMARY: &'static str =
        "lets only some tools be called, by name, and none that the request does not declare";
    const TEXTS: &'static [Text] = &[FORBIDDEN, UNDECLARED];
    type Config = Config;
    type State = Declared;

    fn new(config: Config) -> Result<Self, Vec<ConfigError>> {
        let mut problems = Vec::new();
        for (key, patterns) in [("only", &config.only), ("except", &config.except)] {
            if patterns.iter().any(|pattern| pattern.as_str().is_empty()) {
                problems.push(ConfigError::new(key, "expected names or patterns, found an empty one"));
            }
        }
        for pattern in config.except.iter().filter(|pattern| config.only.contains(pattern)) {
            let text = format!("`{}` is in `only` as well", pattern.as_str());
            problems.push(ConfigError::new("except", text));
        }
        let texts = config.texts.check(Self::TEXTS, &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        let Config { only, except, hide, undeclared, .. } = config;
        let callable = Callable { only: Some(only).filter(|only| !only.is_empty()), except };
        Ok(Self { callable, hide, undeclared, texts })
    }

    fn about(&self) -> About {
        let only = list_tools("only", self.callable.only.iter().flatten());
        About {
            named_tools: [only, list_tools("except", &self.callable.except)].concat(),
            callable: self.callable.clone(),
            restricts_calls: self.names_tools(),
            ignored_events: EventKinds::all(),
            idle: self.idle(),
            ..About::default()
        }
    }

    fn open(&self, request: &RequestView<'_>, state: &mut Declared, plan: &mut Plan) {
        // A tool without a name of its own is one of the provider's or of an MCP server: its calls may have any name.
        let declares_nameless = request.names.len() < request.transcript.tools().count();
        let is_open =
            request.transcript.request.declares_elsewhere || declares_nameless || request.names.is_empty();
        *state = Declared { names: Arc::clone(&request.names), are_all: !is_open };
        if self.hide {
            for name in state.names.iter().filter(|name| !self.callable.includes(name)) {
                plan.edit_tools(ToolsEdit::Hide(name.clone()));
            }
        }
    }

    fn judge(&self, call: &Proposed<'_>, state: &Declared) -> Verdict {
        let (kind, text) = if !self.callable.includes(call.name) {
            (ReasonKind::ModeRestricted, &FORBIDDEN)
        } else if self.undeclared == Undeclared::Block && state.are_all && !state.declares(call.name) {
            (ReasonKind::NotFound, &UNDECLARED)
        } else {
            return Verdict::Allow;
        };
        let may =
            state.names.iter().map(String::as_str).filter(|name| self.callable.includes(name)).collect();
        let values: [(&str, &dyn Display); 2] =
            [("tool", &clipped(call.name)), ("instead", &instead(call.name, may))];
        Verdict::Block(Reason::new(kind, self.texts.fill(text, &values)))
    }
}

const FORBIDDEN: Text = Text {
    key: "forbidden",
    default: "The call was not run: {tool} may not be called here. {instead}",
    placeholders: &["tool", "instead"],
};
const UNDECLARED: Text = Text {
    key: "undeclared",
    default: "The call was not run: {tool} is not among the tools of this conversation. {instead}",
    placeholders: &["tool", "instead"],
};

impl Declared {
    fn declares(&self, name: &str) -> bool {
        self.names.iter().any(|declared| declared == name)
    }
}

/// A sentence that names the tools that `may` be called instead of `name`.
fn instead(name: &str, mut may: Vec<&str>) -> String {
    // The closest names come first: the model may have misspelt one.
    may.sort_by_cached_key(|known| Reverse(likeness(known, name)));
    let more = may.len().saturating_sub(MOST_NAMES);
    let names: Vec<String> = may.iter().take(MOST_NAMES).map(|name| clipped(name)).collect();
    match (names.is_empty(), more) {
        (true, _) => "No tool may be called. Answer with what you have.".to_owned(),
        (false, 0) => format!("You may call: {}.", names.join(", ")),
        (false, more) => format!("You may call: {} and {more} more.", names.join(", ")),
    }
}

/// How many characters two names share at their ends, case aside.
fn likeness(a: &str, b: &str) -> usize {
    let same = |(a, b): &(char, char)| a.eq_ignore_ascii_case(b);
    let head = a.chars().zip(b.chars()).take_while(same).count();
    let tail = a.chars().rev().zip(b.chars().rev()).take_while(same).count();
    head + tail
}

fn clipped(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(LONGEST_NAME).collect()
}

#[cfg(test)]
mod tests {
    use super::super::cases::{Conversation, declaring, plan_of, policy};
    use super::*;
    use model::testing::{SampleRequest, user};

    fn blocked(table: &str, tools: &[&str], name: &str) -> Option<Reason> {
        let policy = policy::<Allow>(table);
        let tools: Vec<(&str, &str)> = tools.iter().map(|name| (*name, "{}")).collect();
        let mut talk = Conversation::over(&policy, &declaring(&tools));
        talk.judge(name, "{}", 0).objections.pop().map(|(_, reason)| reason)
    }

    #[test]
    fn a_tool_is_allowed_if_it_matches_only_and_does_not_match_except() {
        for (table, name, allowed) in [
            ("", "read", true),
            ("only = [\"read\"]", "read", true),
            ("only = [\"read\"]", "read_all", false),
            ("only = [\"read*\"]", "read_all", true),
            ("only = [\"read*\"]", "write", false),
            ("only = [\"Read\"]", "read", false),
            ("except = [\"write\"]", "write", false),
            ("except = [\"*_all\"]", "read_all", false),
            ("except = [\"*_all\"]", "read", true),
            ("only = [\"read*\"]\nexcept = [\"read_all\"]", "read_all", false),
            ("except = [\"*\"]", "read", false),
        ] {
            let reason = blocked(table, &["read", "read_all", "write"], name);
            assert_eq!(reason.is_none(), allowed, "{table} {name}");
        }
    }

    #[test]
    fn the_model_reads_what_it_may_call_instead() {
        let reason = blocked("except = [\"write\"]", &["read", "read_all", "write"], "write").unwrap();
        assert_eq!(
            reason,
            Reason::new(
                ReasonKind::ModeRestricted,
                "The call was not run: write may not be called here. You may call: read, read_all."
            )
        );
        let none = blocked("except = [\"*\"]", &["read"], "read").unwrap();
        assert!(none.message.ends_with("No tool may be called. Answer with what you have."));
    }

    #[test]
    fn at_most_ten_names_are_listed_the_closest_first() {
        let names: Vec<String> = (10..40).map(|at| format!("tool_{at}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let reason = blocked("", &names, "tol_39").unwrap();
        assert!(reason.message.contains("You may call: tool_39, "), "{}", reason.message);
        assert!(reason.message.ends_with(" and 20 more."), "{}", reason.message);
        assert_eq!(reason.message.matches("tool_").count(), 10);
        let long = "x".repeat(10_000);
        assert!(blocked("", &[&long], &format!("{long}y")).unwrap().message.len() < 300);
    }

    #[test]
    fn a_tool_that_the_request_does_not_declare_may_not_be_called_unless_the_operator_says_so() {
        for (table, tools, allowed) in [
            ("", vec!["read"], false),
            ("", vec![], true),
            ("except = [\"browse\"]", vec![], false),
            ("only = [\"read\"]", vec![], false),
            ("undeclared = \"pass\"", vec!["read"], true),
            ("undeclared = \"pass\"\nonly = [\"read\"]", vec!["read"], false),
        ] {
            assert_eq!(blocked(table, &tools, "browse").is_none(), allowed, "{table}");
        }
        let reason = blocked("", &["read"], "browse").unwrap();
        assert!(reason.message.contains("browse is not among the tools of this conversation"));
        assert_eq!(reason.kind, ReasonKind::NotFound);
    }

    #[test]
    fn a_request_that_does_not_name_all_its_tools_leaves_calls_of_others_alone() {
        let none = SampleRequest::new(&[user("q")]);
        let named = none.clone().declaring("read", "{}");
        for (request, allowed) in [
            (named.clone(), false),
            (none.clone(), true),
            (named.clone().defining(None, r#"{"type":"web_search"}"#), true),
            (named.clone().defining(None, r#"{"google_search":{}}"#), true),
            (named.clone().defining(Some("other"), r#"{"type":"custom"}"#), false),
            (named.defining(Some("browse"), r#"{"type":"custom"}"#), true),
        ] {
            let mut talk = Conversation::over(&policy::<Allow>(""), &request);
            assert_eq!(talk.judge("browse", "{}", 0).is_allowed(), allowed, "{request:?}");
            let mut talk = Conversation::over(&policy::<Allow>("except = [\"browse\"]"), &request);
            assert!(!talk.judge("browse", "{}", 0).is_allowed(), "{request:?}");
        }
        // The deprecated form, beside which no other tools can be declared.
        let mut functions = none.defining(Some("read"), "{}");
        functions.request.takes_more_tools = false;
        let mut talk = Conversation::over(&policy::<Allow>(""), &functions);
        assert!(
            !talk.judge("browse", "{}", 0).is_allowed() && talk.judge("functions.Read", "{}", 0).is_allowed()
        );
    }

    #[test]
    fn it_restricts_calls_only_where_it_names_tools() {
        for (table, restricts) in [
            ("", false),
            ("undeclared = \"pass\"", false),
            ("only = [\"a\"]", true),
            ("except = [\"a\"]", true),
        ] {
            assert_eq!(policy::<Allow>(table).about().restricts_calls, restricts, "{table}");
        }
    }

    #[test]
    fn the_operator_s_texts_are_used() {
        let table = "except = [\"write\"]\n[x.texts]\nforbidden = \"Nicht {tool}.\"\nundeclared = \"{tool}? {instead}\"";
        let message = |name| blocked(table, &["read", "write"], name).unwrap().message;
        assert_eq!(message("write"), "Nicht write.");
        assert_eq!(message("browse"), "browse? You may call: read.");
    }

    #[test]
    fn only_what_may_not_be_called_is_hidden_and_only_if_asked_to() {
        let body = declaring(&[("read", "{}"), ("write", "{}"), ("delete", "{}")]);
        for (table, expected) in [
            ("only = [\"read\"]", vec![]),
            ("only = [\"read\"]\nhide = true", vec!["write", "delete"]),
            ("except = [\"delete\"]\nhide = true", vec!["delete"]),
            ("hide = true", vec![]),
        ] {
            let plan = plan_of(&policy::<Allow>(table), &body);
            let hidden: Vec<&str> = plan.hidden.iter().map(|(_, name)| name.as_str()).collect();
            assert_eq!(hidden, expected, "{table}");
            assert!(plan.edits.is_empty() && plan.refusal.is_none());
        }
    }

    #[test]
    fn a_hidden_tool_that_is_called_all_the_same_is_blocked_and_not_named() {
        let reason = blocked("except = [\"write\"]\nhide = true", &["read", "write"], "write").unwrap();
        assert!(reason.message.ends_with("You may call: read."), "{}", reason.message);
    }

    #[test]
    fn settings_that_contradict_themselves_are_refused() {
        for (table, key) in [
            ("only = [\"a\"]\nexcept = [\"a\"]", "except"),
            ("only = [\"\"]", "only"),
            ("except = [\"\"]", "except"),
        ] {
            let config: Config = toml::from_str(table).unwrap();
            assert_eq!(Allow::new(config).err().unwrap()[0].key, key, "{table}");
        }
    }
}
