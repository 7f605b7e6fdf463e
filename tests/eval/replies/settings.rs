//! The settings under which each reply is played: policies, the form that the client asks for, what the upstream says
//! before the reply, what people decide, and how the reply ends.

use super::fixed::{BLOCKED, Opening};
use super::trace::Counts;
use crate::world::no_memo;
use engine::Shared;
use model::identity::HashKey;
use model::summaries::NoSummaries;
use policies::REGISTRY;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use toolrein::config::{Config, Overrides, Source};

/// One setting.
#[derive(Clone, Copy)]
pub struct Setting {
    pub name: &'static str,
    policies: Policies,
    pub form: Wanted,
    pub opening: Opening,
    pub people: People,
    pub end: End,
    /// The requests of the conversation are used up, in the middle of a turn.
    pub is_used_up: bool,
    /// One argument of the reply's calls has a name that harms programs.
    pub renames: bool,
    /// Whether it was at work, over all replies of the project.
    pub works: fn(&Counts) -> bool,
}

/// A configuration: the text of a file.
#[derive(Clone, Copy)]
enum Policies {
    Fixed(&'static str),
    Made(fn(&Called) -> String),
}

/// The form of the reply that the client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// That of the recorded reply.
    Recorded,
    Other,
    Stream,
}

/// What people decide on calls that wait, and when that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum People {
    /// At once, as soon as they are asked.
    Approve,
    Decline,
    /// After the upstream's reply has ended and the client has waited; other models answer then too.
    ApproveLate,
    /// The same, but the first call is declined.
    DeclineFirstLate,
}

impl People {
    /// Whether all decisions come after the upstream's reply.
    pub fn are_late(self) -> bool {
        matches!(self, Self::ApproveLate | Self::DeclineFirstLate)
    }
}

/// How the upstream's recorded reply ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Whole,
    /// Nothing but the end of the connection ends it.
    Closing,
    /// It breaks off after two thirds, or cannot be read.
    Cut,
    /// The client leaves after two thirds.
    Left,
}

/// What a reply calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Called {
    /// The tools, in the order of the calls.
    pub tools: Vec<String>,
    /// The names of arguments.
    pub arguments: BTreeSet<String>,
}

const IDLE: Setting = Setting {
    name: "idle",
    policies: Policies::Fixed("base = \"none\"\n"),
    form: Wanted::Recorded,
    opening: Opening::Nothing,
    people: People::Approve,
    end: End::Whole,
    is_used_up: false,
    renames: false,
    works: |counts| counts.calls > 50 && counts.changed < 5,
};

const HELD: &str = "base = \"none\"\nadmin.token_env = \"TOOLREIN_ADMIN_TOKEN\"\n[policy.confirm]\ntools = [\"*\"]\nform = \"held\"\n";

const BLOCKS_ONE: &str = "base = \"none\"\n[policy.allow]\nexcept = [\"blocked_tool\"]\n";

/// Every setting, in the order of the columns of the golden file.
pub const SETTINGS: [Setting; 30] = [
    IDLE,
    Setting { name: "shipped", policies: Policies::Fixed(""), ..IDLE },
    Setting {
        name: "named",
        policies: Policies::Made(blocks_names),
        works: |it| it.blocked > 50 && it.reasks > 30,
        ..IDLE
    },
    Setting {
        name: "arguments",
        policies: Policies::Made(blocks_arguments),
        works: |it| it.blocked > 50 && it.reasks > 30,
        ..IDLE
    },
    Setting {
        name: "modified",
        policies: Policies::Made(shortens),
        works: |it| it.modified > 5 && it.questions > 20,
        ..IDLE
    },
    Setting {
        name: "stripped",
        policies: Policies::Fixed(
            "base = \"none\"\n[policy.arguments]\nunsafe_keys = \"strip\"\ntools = { \"*\" = { other = { max_chars = 1 } } }\n",
        ),
        renames: true,
        works: |it| it.modified > 30,
        ..IDLE
    },
    Setting {
        name: "approved",
        policies: Policies::Fixed(HELD),
        works: |it| it.held > 50 && it.blocked < 5,
        ..IDLE
    },
    Setting {
        name: "declined",
        policies: Policies::Fixed(HELD),
        people: People::Decline,
        works: |it| it.held > 50 && it.blocked > 50,
        ..IDLE
    },
    Setting {
        name: "late",
        policies: Policies::Fixed(HELD),
        people: People::ApproveLate,
        works: |it| it.held > 50 && it.blocked < 5,
        ..IDLE
    },
    Setting {
        name: "modified_late",
        policies: Policies::Made(shortens),
        people: People::ApproveLate,
        works: |it| it.modified > 5 && it.questions > 20,
        ..IDLE
    },
    Setting {
        name: "mixed",
        policies: Policies::Fixed(HELD),
        people: People::DeclineFirstLate,
        works: |it| it.held > 50 && it.blocked > 30 && it.held > it.blocked,
        ..IDLE
    },
    Setting {
        name: "asked",
        policies: Policies::Fixed("base = \"none\"\n[policy.confirm]\ntools = [\"*\"]\n"),
        works: |it| it.asked > 50,
        ..IDLE
    },
    Setting { name: "first", policies: Policies::Made(blocks_first), works: |it| it.blocked > 30, ..IDLE },
    Setting {
        name: "serial",
        policies: Policies::Fixed("base = \"none\"\n[policy.serial]\ntools = [\"*\"]\n"),
        works: |it| it.blocked > 5 && it.calls > 50 && it.reasks < 5,
        ..IDLE
    },
    Setting {
        name: "final",
        policies: Policies::Fixed(
            "base = \"none\"\n[policy.budget]\ntool_calls = 0\nconversation = { requests = 1 }\n",
        ),
        is_used_up: true,
        works: |it| it.blocked > 50 && it.changed > 30,
        ..IDLE
    },
    Setting {
        name: "again",
        policies: Policies::Fixed(BLOCKS_ONE),
        opening: Opening::Call,
        works: |it| it.reasks > 50 && it.calls > 100,
        ..IDLE
    },
    Setting {
        name: "last",
        policies: Policies::Fixed(
            "base = \"none\"\nreask.max = 0\n[policy.allow]\nexcept = [\"blocked_tool\"]\n",
        ),
        opening: Opening::Call,
        works: |it| it.reasks > 50 && it.blocked > 100,
        ..IDLE
    },
    Setting { name: "other", form: Wanted::Other, works: |it| it.calls > 50, ..IDLE },
    Setting {
        name: "other_named",
        policies: Policies::Made(blocks_names),
        form: Wanted::Other,
        works: |it| it.blocked > 50 && it.reasks > 30,
        ..IDLE
    },
    Setting {
        name: "other_again",
        policies: Policies::Fixed(BLOCKS_ONE),
        opening: Opening::Call,
        form: Wanted::Other,
        works: |it| it.reasks > 50 && it.calls > 100,
        ..IDLE
    },
    Setting {
        name: "unstreamed",
        opening: Opening::RefusesStream,
        form: Wanted::Stream,
        works: |it| it.sends > 100 && it.changed > 10,
        ..IDLE
    },
    Setting {
        name: "untooled",
        policies: Policies::Fixed("base = \"none\"\nupstream.tools_unsupported_tell = \"text\"\n"),
        opening: Opening::RefusesTools,
        works: |it| it.sends > 100 && it.changed > 30,
        ..IDLE
    },
    Setting {
        name: "observed",
        policies: Policies::Made(|called| format!("mode = \"observe\"\n{}", blocks_names(called))),
        works: |it| it.calls > 50 && it.reasks == 0 && it.changed < 5,
        ..IDLE
    },
    Setting {
        name: "counted",
        policies: Policies::Fixed(
            "base = \"none\"\n[policy.budget]\ntool_calls = 0\nbilled_tokens = 1_000_000_000\nspend_usd = 1000.0\n",
        ),
        works: |it| it.changed > 5 && it.calls > 50,
        ..IDLE
    },
    Setting {
        name: "status",
        policies: Policies::Fixed(
            "base = \"none\"\nupstream.error_in_200 = \"status\"\nupstream.errors = \"friendly\"\n",
        ),
        works: |it| it.changed > 10,
        ..IDLE
    },
    Setting {
        name: "bounded",
        policies: Policies::Made(|called| {
            format!("upstream.unjudged = \"pass\"\n{}", bounded(&blocks_arguments(called)))
        }),
        works: |it| it.unjudged > 30 && it.failed * 5 < it.unjudged,
        ..IDLE
    },
    Setting {
        name: "bounded_strict",
        policies: Policies::Made(|called| bounded(&format!("{}[policy.serial]\n", blocks_arguments(called)))),
        works: |it| it.unjudged > 5 && it.failed > 30,
        ..IDLE
    },
    Setting { name: "closed", end: End::Closing, works: |it| it.failed > 0, ..IDLE },
    Setting {
        name: "cut",
        policies: Policies::Made(blocks_arguments),
        end: End::Cut,
        works: |it| it.failed > 30,
        ..IDLE
    },
    Setting {
        name: "left",
        policies: Policies::Made(blocks_arguments),
        end: End::Left,
        works: |it| it.blocked > 5,
        ..IDLE
    },
];

/// A text in quotation marks, as TOML has it.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn list<'a>(texts: impl IntoIterator<Item = &'a String>) -> String {
    let texts: Vec<String> = texts.into_iter().map(|text| quoted(text)).collect();
    format!("[{}]", texts.join(", "))
}

/// Every call of these tools is blocked by its name.
fn blocks_names(called: &Called) -> String {
    let names: BTreeSet<&String> = called.tools.iter().collect();
    format!("base = \"none\"\n[policy.allow]\nexcept = {}\n", list(names))
}

/// Calls of the tool that is called first are blocked.
fn blocks_first(called: &Called) -> String {
    format!("base = \"none\"\n[policy.allow]\nexcept = {}\n", list(called.tools.first()))
}

/// Every call with an argument, or with arguments that are not JSON, is blocked by them.
fn blocks_arguments(called: &Called) -> String {
    let limits =
        called.arguments.iter().map(|name| format!("{} = {{ hosts = [\"nowhere.example\"] }}", quoted(name)));
    let limits: Vec<String> = limits.collect();
    format!("base = \"none\"\n[policy.arguments]\ntools = {{ \"*\" = {{ {} }} }}\n", limits.join(", "))
}

/// Texts among the arguments are put shorter by another model.
fn shortens(called: &Called) -> String {
    let query = "query".to_owned();
    let names = list(called.arguments.iter().chain([&query]));
    let policy = format!("[policy.rewrite_query]\ntools = [\"*\"]\nargument = {names}\nmin_words = 1\n");
    format!("base = \"none\"\n{policy}[policy.rewrite_query.model]\nmodel = \"small\"\n")
}

/// The same with bounds that many replies exceed.
fn bounded(text: &str) -> String {
    format!("limits.event_bytes = 1024\nlimits.held_bytes = 1024\nlimits.reply_bytes = 2048\n{text}")
}

/// What exchanges share, by configuration: those that do not depend on a reply's calls.
#[derive(Default)]
pub struct Settled(Mutex<BTreeMap<String, Arc<Shared>>>);

impl Settled {
    /// What the exchanges of a setting share.
    pub fn shared(&self, setting: &Setting, called: &Called) -> Arc<Shared> {
        let (text, is_own) = match setting.policies {
            Policies::Made(made) => (made(called), *called != Called::default()),
            Policies::Fixed(text) => (text.to_owned(), false),
        };
        if is_own {
            return shared(&text);
        }
        let mut known = self.0.lock().unwrap();
        Arc::clone(known.entry(text).or_insert_with_key(|text| shared(text)))
    }
}

fn shared(text: &str) -> Arc<Shared> {
    assert!(!text.contains(BLOCKED) || text.contains("except"), "the blocked call is blocked by its name");
    let source = Source::Text { name: "replies.toml".to_owned(), text: text.to_owned() };
    let config = Config::load(source, &Overrides::default(), REGISTRY)
        .unwrap_or_else(|error| panic!("{error}: {text}"));
    Arc::new(Shared {
        settings: Arc::new(Arc::new(config).engine_settings()),
        memo: no_memo(),
        key: HashKey::fixed(1),
        secret: HashKey::fixed(2),
        upstream: "upstream".to_owned(),
        summaries: Arc::new(NoSummaries),
    })
}
