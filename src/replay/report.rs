//! The report of a replay: totals, sources, policies, limits and broken lines; and its JSON form. The form for people
//! is in `table`. Never holds a conversation's contents.

use super::input::{Flaw, InputPosition};
use super::live::LiveCounts;
use super::table;
use super::tally::{After, Conversation, Figures, Group, ToolUse, Use, share};
use super::workers::Replayed;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Broken lines that are named; the others are counted.
const MOST_NAMED: usize = 5;

/// Everything found.
pub(super) struct Report {
    pub policies: Vec<&'static str>,
    pub total: Group,
    /// By the line's `source`, or its file.
    pub sources: BTreeMap<String, Group>,
    /// By policy and tool.
    pub limits: BTreeMap<(&'static str, String), LimitSum>,
    /// How the declared tools were used, by name.
    pub tools: BTreeMap<String, ToolUse>,
    pub broken: u64,
    /// The first broken lines.
    pub named: Vec<(InputPosition, Flaw)>,
    /// Request bodies that later lines continued.
    pub continued: u64,
    /// What happened in the conversations that toolrein recorded itself, when it did.
    pub live_counts: LiveSums,
}

/// What happened in recorded conversations when they were recorded.
#[derive(Clone, Debug, Default)]
pub(super) struct LiveSums {
    pub conversations: u64,
    pub requests: u64,
    pub refused: u64,
    pub calls: u64,
    pub blocked: u64,
}

impl LiveSums {
    fn add(&mut self, live_counts: &LiveCounts) {
        self.conversations += 1;
        self.requests += live_counts.requests;
        self.refused += live_counts.refused;
        self.calls += live_counts.calls;
        self.blocked += live_counts.blocked;
    }
}

/// How conversations used a limit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LimitSum {
    /// The use by the conversation that used most of it.
    pub most: Use,
    pub conversations: u64,
    /// Conversations that used all of it.
    pub full: u64,
}

impl Report {
    /// A report on `policies`, in their order.
    pub(super) fn new(policies: Vec<&'static str>) -> Self {
        Self {
            total: Group::new(&policies),
            policies,
            sources: BTreeMap::new(),
            limits: BTreeMap::new(),
            tools: BTreeMap::new(),
            broken: 0,
            named: Vec::new(),
            continued: 0,
            live_counts: LiveSums::default(),
        }
    }

    /// Adds the result of one line.
    pub(super) fn add(&mut self, replayed: Replayed) {
        match replayed {
            Replayed::Continued => self.continued += 1,
            Replayed::Broken(position, flaw) => {
                self.broken += 1;
                if self.named.len() < MOST_NAMED {
                    self.named.push((position, flaw));
                }
            }
            Replayed::Conversation(conversation) => self.add_conversation(&conversation),
        }
    }

    fn add_conversation(&mut self, conversation: &Conversation) {
        self.total.add(conversation);
        conversation.live_counts.iter().for_each(|live_counts| self.live_counts.add(live_counts));
        let source = source_of(conversation).to_owned();
        let of_source = self.sources.entry(source).or_insert_with(|| Group::new(&self.policies));
        of_source.add(conversation);
        for ((policy, tool), used) in &conversation.limits {
            let sum = self.limits.entry((policy, tool.clone())).or_default();
            sum.most.raise(*used);
            sum.conversations += 1;
            sum.full += u64::from(used.used >= used.limit);
        }
        for (tool, used) in &conversation.tools {
            self.tools.entry(tool.clone()).or_default().add(*used);
        }
    }

    /// The tools that were declared and never called, those first that took the most tokens.
    pub(super) fn unused_tools(&self) -> Vec<(&str, ToolUse)> {
        let unused = self.tools.iter().filter(|(_, used)| used.calls == 0);
        let mut unused: Vec<_> = unused.map(|(tool, used)| (tool.as_str(), *used)).collect();
        unused.sort_by_key(|(_, used)| std::cmp::Reverse(used.tokens));
        unused
    }

    /// Writes everything as one JSON object.
    pub(super) fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut all = self.group(&self.total);
        let sources = self.sources.iter().map(|(name, group)| {
            let mut source = Map::from_iter([("source".to_owned(), json!(name))]);
            source.append(&mut self.group(group));
            Value::Object(source)
        });
        all.insert("sources".to_owned(), sources.collect());
        let limits = self.limits.iter().map(|((policy, tool), sum)| {
            json!({
                "policy": policy, "tool": tool, "used": sum.most.used, "limit": sum.most.limit,
                "conversations": sum.conversations, "full": sum.full,
            })
        });
        all.insert("limits".to_owned(), limits.collect());
        let unused = self
            .unused_tools()
            .into_iter()
            .map(|(tool, used)| json!({"tool": tool, "requests": used.requests, "tokens": used.tokens}));
        all.insert("unused_tools".to_owned(), unused.collect());
        let LiveSums { conversations, requests, refused, calls, blocked } = &self.live_counts;
        let live_counts = json!({
            "conversations": conversations, "requests": requests, "refused": refused, "calls": calls, "blocked": blocked,
        });
        all.insert("live_counts".to_owned(), if *conversations > 0 { live_counts } else { Value::Null });
        all.insert("continued".to_owned(), json!(self.continued));
        all.insert("broken".to_owned(), json!(self.broken));
        let named = self.named.iter().map(|(position, flaw)| broken_line(position, flaw));
        all.insert("broken_lines".to_owned(), named.collect());
        writeln!(out, "{}", Value::Object(all))
    }

    fn group(&self, group: &Group) -> Map<String, Value> {
        let mut all = Map::new();
        for (name, count) in [
            ("conversations", group.conversations),
            ("conversations_touched", group.touched),
            ("conversations_blocked", group.stopped),
            ("solved", group.solved),
            ("solved_blocked", group.solved_stopped),
        ] {
            all.insert(name.to_owned(), json!(count));
        }
        all.insert("solved_blocked_share".to_owned(), json!(share(group.solved_stopped, group.solved)));
        all.append(&mut figures(&group.figures));
        let policies = self.policies.iter().filter_map(|name| Some((name, group.policies.get(name)?)));
        let policies = policies.map(|(name, sum)| {
            let acts = &sum.acts;
            json!({
                "policy": name,
                "acted": acts.acted, "blocked": acts.blocked, "notices": acts.notices,
                "rejected": acts.rejected, "actions": acts.actions,
                "bytes_saved": acts.bytes_saved, "tokens_saved": acts.tokens_saved,
                "conversations_touched": sum.touched, "conversations_blocked": sum.stopped,
                "solved_blocked": sum.solved_stopped,
                "solved_blocked_share": share(sum.solved_stopped, group.solved),
            })
        });
        all.insert("policies".to_owned(), policies.collect());
        all
    }
}

/// Writes the result of one line, as JSON or for people.
pub(super) fn write_one(replayed: &Replayed, as_json: bool, out: &mut dyn Write) -> io::Result<()> {
    match replayed {
        Replayed::Conversation(conversation) if as_json => writeln!(out, "{}", one(conversation)),
        Replayed::Conversation(conversation) => table::write_one(conversation, out),
        Replayed::Broken(position, flaw) if as_json => writeln!(out, "{}", broken_line(position, flaw)),
        Replayed::Broken(position, flaw) => writeln!(out, "{}", table::broken(position, flaw)),
        Replayed::Continued => Ok(()),
    }
}

/// The source of a conversation, or its file.
pub(super) fn source_of(conversation: &Conversation) -> &str {
    conversation.labels.source.as_deref().unwrap_or(&conversation.position.file)
}

fn one(conversation: &Conversation) -> Value {
    let (position, labels) = (&conversation.position, &conversation.labels);
    let mut all = Map::new();
    for (name, value) in [
        ("file", json!(&*position.file)),
        ("line", json!(position.line)),
        ("source", json!(source_of(conversation))),
        ("id", json!(labels.id)),
        ("model", json!(labels.model)),
        ("solved", json!(labels.solved)),
    ] {
        all.insert(name.to_owned(), value);
    }
    all.append(&mut figures(&conversation.figures));
    let events = conversation.events.iter().map(|event| {
        json!({
            "message": event.message, "policy": event.policy, "action": event.action,
            "tool": event.tool, "reason": event.reason,
        })
    });
    all.insert("actions".to_owned(), events.collect());
    let limits = conversation.limits.iter().map(|((policy, tool), used)| {
        json!({"policy": policy, "tool": tool, "used": used.used, "limit": used.limit})
    });
    all.insert("limits".to_owned(), limits.collect());
    Value::Object(all)
}

fn figures(figures: &Figures) -> Map<String, Value> {
    let mut all = Map::new();
    for (name, value) in [
        ("requests", figures.requests),
        ("rejected", figures.rejected),
        ("calls", figures.calls),
        ("blocked", figures.blocked),
        ("bytes_before", figures.bytes_before),
        ("bytes_after", figures.bytes_after),
        ("tokens_saved", figures.tokens_saved),
        ("prefix_bytes", figures.prefix_bytes),
        ("prefix_kept", figures.prefix_kept),
        ("prefix_breaks", figures.prefix_breaks),
    ] {
        all.insert(name.to_owned(), json!(value));
    }
    let After { conversations, requests, calls, blocked, tokens_saved } = figures.after;
    let after = json!({
        "conversations": conversations, "requests": requests, "calls": calls,
        "estimated_calls_avoided": blocked, "tokens_saved": tokens_saved,
    });
    all.insert("after_first_block".to_owned(), after);
    all.insert("prefix_kept_share".to_owned(), json!(share(figures.prefix_kept, figures.prefix_bytes)));
    all
}

fn broken_line(position: &InputPosition, flaw: &Flaw) -> Value {
    let line = Some(position.line).filter(|line| *line > 0);
    json!({"file": &*position.file, "line": line, "broken": flaw.to_string()})
}
