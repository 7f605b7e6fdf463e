//! Test support of the policies: a policy from its table, a plan from a body, a conversation to judge calls in.

use super::set::{Judge, PolicySet, Rule, Ruling};
use super::{Entry, FactKeys, Policy};
use model::fact::{Answers, Batch};
use model::identity::{Hash, HashKey, Identity};
use model::pins::Pinned;
use model::plan::Plan;
use model::testing::{SampleRequest, answered_calls, user};
use model::uses::uses_at;
use model::{Now, Transcript};
use std::sync::Arc;
use std::time::Instant;

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

/// What `rule` plans for `request`.
pub(crate) fn plan_of(rule: &Arc<dyn Rule>, request: &SampleRequest) -> Plan {
    read(rule, request, &[]).0
}

/// What `rules` plan together for `request`; `overflowed`: the upstream refused it for its length.
pub(crate) fn plan_together(rules: &[Arc<dyn Rule>], request: &SampleRequest, overflowed: bool) -> Plan {
    read_knowing(rules, request, |transcript| transcript.overflowed = overflowed).0
}

/// What `rule` plans for `request`, and a judge of the reply; the first calls were handed out at `released_ms`.
pub(crate) fn read(
    rule: &Arc<dyn Rule>,
    request: &SampleRequest,
    released_ms: &[Option<u64>],
) -> (Plan, Judge) {
    read_knowing(std::slice::from_ref(rule), request, |transcript| {
        for (call, released_ms) in transcript.calls.calls.iter_mut().zip(released_ms) {
            call.released_ms = *released_ms;
        }
    })
}

/// What `rule` plans for `request`, and a judge of the reply, where these definitions of tools were seen before.
pub(crate) fn read_pinned(rule: &Arc<dyn Rule>, request: &SampleRequest, pinned: &[Pinned]) -> (Plan, Judge) {
    let answer = |mut batch: Batch| {
        batch.answer::<Pinned>(|_, _| Some(Arc::new(pinned.iter().copied().collect())));
        Answers { facts: batch.facts, ..Answers::default() }
    };
    read_answered(std::slice::from_ref(rule), &request.transcript(&somebody()), answer)
}

/// What these policies plan for `request`, and a judge of the reply.
pub(crate) fn read_all(rules: &[Arc<dyn Rule>], request: &SampleRequest) -> (Plan, Judge) {
    read_knowing(rules, request, |_| {})
}

/// As [`read_all`], after `learn` has added what else is known of the conversation.
pub(crate) fn read_knowing(
    rules: &[Arc<dyn Rule>],
    request: &SampleRequest,
    learn: impl FnOnce(&mut Transcript),
) -> (Plan, Judge) {
    let identity = somebody();
    let mut transcript = request.transcript(&identity);
    learn(&mut transcript);
    PolicySet::new(rules.to_vec()).read(&transcript)
}

/// As [`read_all`], of this conversation, where `answer` takes the place of the state store.
pub(crate) fn read_answered(
    rules: &[Arc<dyn Rule>],
    transcript: &Transcript,
    answer: impl FnOnce(Batch) -> Answers,
) -> (Plan, Judge) {
    let policies = PolicySet::new(rules.to_vec());
    let (identity, conversation) = (&transcript.identity, transcript.conversation());
    let id = identity.conversation_id(conversation);
    let keys = FactKeys { identity, conversation, conversation_id: &id };
    let mut batch = Batch::new(Now { at: Instant::now(), ms: transcript.now_ms });
    let mut asked = policies.ask(&keys, &mut batch);
    asked.receive(&answer(batch));
    policies.read_with(transcript, &asked)
}

/// A judge for a caller whose calls, by the state store, were handed out at these times.
pub(crate) fn read_spent(rule: &Arc<dyn Rule>, spent: &[Vec<u64>]) -> Judge {
    let spent = spent.iter().map(|times| uses_at(times)).collect();
    let transcript = turn("f", 0).transcript(&somebody());
    read_answered(std::slice::from_ref(rule), &transcript, |_| Answers { spent, ..Answers::default() }).1
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

    /// A conversation whose request is `request`.
    pub(crate) fn over(rule: &Arc<dyn Rule>, request: &SampleRequest) -> Self {
        Self(read(rule, request, &[]).1)
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
pub(crate) fn declaring(tools: &[(&str, &str)]) -> SampleRequest {
    let request = SampleRequest::new(&[user("q")]);
    tools.iter().fold(request, |request, (name, parameters)| request.declaring(name, parameters))
}

/// A request whose running turn is that of [`answered_calls`].
pub(crate) fn turn(tool: &str, calls: usize) -> SampleRequest {
    SampleRequest::new(&answered_calls(tool, calls))
}

/// Sets when the calls of `transcript`, oldest first, were handed out, in ms since the epoch.
pub(super) fn set_times(transcript: &mut Transcript, released_ms: &[Option<u64>], now_ms: u64) {
    transcript.now_ms = now_ms;
    for (call, released_ms) in transcript.calls.calls.iter_mut().zip(released_ms) {
        call.released_ms = *released_ms;
    }
}
