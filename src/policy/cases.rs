//! Test support of the policies: a policy from its table, a plan from a body, a conversation to judge calls in.

use super::set::{Judge, PolicySet, Rule, Ruling};
use super::{Entry, Policy};
use crate::conversation::Transcript;
use crate::conversation::identity::{Hash, HashKey, Identity};
use crate::conversation::memo::NoMemo;
use crate::conversation::pins::Pinned;
use crate::conversation::uses::uses_at;
use crate::plan::Plan;
use std::sync::Arc;

/// The policy `P` with the settings of `table`.
pub(crate) fn policy<P: Policy>(table: &str) -> Arc<dyn Rule> {
    built(&Entry::of::<P>(), table)
}

/// The policy of the registry's `entry` with the settings of `table`.
pub(crate) fn built(entry: &Entry, table: &str) -> Arc<dyn Rule> {
    let text = format!("table = {{}}\n[x]\n{table}");
    let mut root = toml::de::DeTable::parse(&text).unwrap();
    let value = root.get_mut().remove("x").unwrap();
    (entry.build)(toml::de::ValueDeserializer::from(value)).unwrap()
}

/// The least table with which the registry's `entry` can be built.
pub(crate) fn default_of(entry: &Entry) -> &'static str {
    if entry.name == "states" { "state.start.final = true" } else { "" }
}

/// An identity.
pub(crate) fn somebody() -> Identity {
    Identity { key: HashKey::fixed(7), caller: Hash(1), explicit: None }
}

/// What `rule` plans for `body`.
pub(crate) fn plan_of(rule: &Arc<dyn Rule>, body: &str) -> Plan {
    read(rule, body, &[]).0
}

/// What `rules` plan together for `body`; `overflowed`: the upstream refused it for its length.
pub(crate) fn plan_together(rules: &[Arc<dyn Rule>], body: &str, overflowed: bool) -> Plan {
    let is_chat = body.contains("\"messages\"");
    let parse = if is_chat { crate::dialect::chat::parse } else { crate::dialect::responses::parse };
    let request = parse(body.as_bytes()).unwrap();
    let identity = somebody();
    let mut transcript = Transcript::read(&request, body.as_bytes(), &identity, &NoMemo);
    transcript.overflowed = overflowed;
    PolicySet::new(rules.to_vec()).read(&transcript).0
}

/// What `rule` plans for `body`, and a judge of the reply; the first calls were handed out at `released_ms`.
pub(crate) fn read(rule: &Arc<dyn Rule>, body: &str, released_ms: &[Option<u64>]) -> (Plan, Judge) {
    let request = crate::dialect::chat::parse(body.as_bytes()).unwrap();
    let identity = somebody();
    let mut transcript = Transcript::read(&request, body.as_bytes(), &identity, &NoMemo);
    for (call, released_ms) in transcript.calls.calls.iter_mut().zip(released_ms) {
        call.released_ms = *released_ms;
    }
    PolicySet::new(vec![Arc::clone(rule)]).read(&transcript)
}

/// What `rule` plans for `body`, and a judge of the reply, where these definitions of tools were seen before.
pub(crate) fn read_pinned(rule: &Arc<dyn Rule>, body: &str, pinned: &[Pinned]) -> (Plan, Judge) {
    let request = crate::dialect::chat::parse(body.as_bytes()).unwrap();
    let identity = somebody();
    let mut transcript = Transcript::read(&request, body.as_bytes(), &identity, &NoMemo);
    transcript.pinned = pinned.to_vec();
    PolicySet::new(vec![Arc::clone(rule)]).read(&transcript)
}

/// What these policies plan for `body`, and a judge of the reply.
pub(crate) fn read_all(rules: &[Arc<dyn Rule>], body: &str) -> (Plan, Judge) {
    let request = crate::dialect::chat::parse(body.as_bytes()).unwrap();
    let identity = somebody();
    let transcript = Transcript::read(&request, body.as_bytes(), &identity, &NoMemo);
    PolicySet::new(rules.to_vec()).read(&transcript)
}

/// A judge for a caller whose calls, by the state store, were handed out at these times.
pub(crate) fn read_spent(rule: &Arc<dyn Rule>, spent: &[Vec<u64>]) -> Judge {
    let body = turn("f", 0);
    let request = crate::dialect::chat::parse(body.as_bytes()).unwrap();
    let identity = somebody();
    let mut transcript = Transcript::read(&request, body.as_bytes(), &identity, &NoMemo);
    transcript.spent = spent.iter().map(|times| uses_at(times)).collect();
    PolicySet::new(vec![Arc::clone(rule)]).read(&transcript).1
}

/// A conversation in whose next reply calls are judged.
pub(crate) struct Conversation(Judge);

impl Conversation {
    /// A conversation that begins.
    pub(crate) fn new(rule: &Arc<dyn Rule>) -> Self {
        Self::with_calls(rule, "f", &[])
    }

    /// A turn in which `tool` was called and answered once for each of `released_ms`.
    pub(crate) fn with_calls(rule: &Arc<dyn Rule>, tool: &str, released_ms: &[Option<u64>]) -> Self {
        Self(read(rule, &turn(tool, released_ms.len()), released_ms).1)
    }

    /// A conversation whose request is `body`.
    pub(crate) fn over(rule: &Arc<dyn Rule>, body: &str) -> Self {
        Self(read(rule, body, &[]).1)
    }

    /// Whether the judge needs the arguments of a call of this tool.
    pub(crate) fn needs_arguments(&mut self, tool: &str) -> bool {
        self.0.needs_arguments(0, tool)
    }

    /// Judges the next call.
    pub(crate) fn judge(&mut self, tool: &str, arguments: &str, now_ms: u64) -> Ruling {
        self.0.rule(0, tool, Some(arguments), now_ms)
    }
}

/// A request that declares tools, each a name and its parameters.
pub(crate) fn declaring(tools: &[(&str, &str)]) -> String {
    let tools: Vec<String> = tools
        .iter()
        .map(|(name, parameters)| {
            format!(r#"{{"type":"function","function":{{"name":"{name}","parameters":{parameters}}}}}"#)
        })
        .collect();
    let tools = tools.join(",");
    format!(r#"{{"model":"m","tools":[{tools}],"messages":[{{"role":"user","content":"q"}}]}}"#)
}

/// A request whose running turn holds `calls` calls of `tool`, each answered.
pub(crate) fn turn(tool: &str, calls: usize) -> String {
    let steps: String = (0..calls)
        .map(|at| {
            format!(
                r#",{{"role":"assistant","tool_calls":[{{"id":"c{at}","function":{{"name":"{tool}","arguments":"{{\"n\":{at}}}"}}}}]}},{{"role":"tool","tool_call_id":"c{at}","content":"r{at}"}}"#
            )
        })
        .collect();
    format!(r#"{{"model":"m","messages":[{{"role":"user","content":"q"}}{steps}]}}"#)
}

/// Sets when the calls of `transcript`, oldest first, were handed out, in ms since the epoch.
pub(super) fn set_times(transcript: &mut Transcript<'_>, released_ms: &[Option<u64>], now_ms: u64) {
    transcript.now_ms = now_ms;
    for (call, released_ms) in transcript.calls.calls.iter_mut().zip(released_ms) {
        call.released_ms = *released_ms;
    }
}
