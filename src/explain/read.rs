//! The collector of an explanation: pairs the messages of the last recorded request with those that would have been
//! sent, using the observations of the replay. Decides nothing again and formats nothing.

use super::acts::{Text, acts_of, dropped};
use super::facts::{
    Declared, Explained, Fate, Kind, Limit, LiveBlock, Piece, PolicySum, Refused, Shown, Size, Totals,
};
use super::live;
use super::ruled::Rulings;
use crate::config::Config;
use crate::replay::live::LiveCounts;
use crate::replay::one::{Chosen, Observations};
use crate::secret::random_key;
use dialects::variant::Placement;
use model::identity::{Hash, Identity};
use model::memo::NoMemo;
use model::message::{Content, Role};
use model::outcome::has_failed;
use model::plan::{Change, Plan};
use model::request::Choice;
use model::source::ItemId;
use model::tokens::{TOOL_SCHEMA, estimate_json};
use model::{Transcript, View};
use policies::REGISTRY;
use std::sync::Arc;
use wire::json::decode;

/// The explanation of the conversation.
pub(super) fn explain(
    config: &Config,
    chosen: &Chosen,
    seen: &Observations,
    profile: Option<&str>,
) -> Explained {
    let identity = Identity { key: random_key(), caller: Hash::default(), explicit: None };
    let recording = &chosen.recording;
    let sent = seen.sent.as_ref().and_then(|body| Some((body, recording.dialect.read(body).ok()?)));
    let factor = config.token_factor(&recording.request.model_name(&recording.body));
    let mut before = Transcript::read(
        recording.request.clone(),
        recording.body.clone(),
        identity.clone(),
        Arc::new(NoMemo),
    );
    before.token_factor = factor;
    let after = sent.as_ref().map(|(body, request)| {
        let mut after =
            Transcript::read(request.clone(), (*body).clone(), identity.clone(), Arc::new(NoMemo));
        after.token_factor = factor;
        after
    });
    let pairing = Pairing { seen, before: &before, after: after.as_ref(), rulings: Rulings::new(seen) };
    let messages = pairing.messages();
    let tools = tools_of(&before, &seen.plan);
    let totals = totals(&messages, &tools);
    let policies = policies(config, profile, &messages, &tools);
    let limits = seen.limits.iter().map(|(policy, usage)| {
        let (tool, used, limit) = (usage.tool.clone(), usage.used, usage.limit);
        Limit { policy, tool, used, limit }
    });
    let refusals = seen.refusals.iter().map(|(message, refusal)| {
        let (policy, code, words) = (refusal.policy, refusal.code, refusal.message.clone());
        Refused { message: *message, policy, code, words }
    });
    let live = live::blocks(&recording.live);
    let counterfactual_after = goes_another_way(&messages, &live);
    Explained {
        file: chosen.position.file.to_string(),
        line: chosen.position.line,
        id: recording.labels.id.clone(),
        source: recording.labels.source.clone(),
        model: recording.labels.model.clone(),
        profile: profile.map(str::to_owned),
        placement: seen.placement.map(placement_name),
        limits: limits.collect(),
        refusals: refusals.collect(),
        tools,
        messages,
        totals,
        policies,
        counterfactual_after,
        live,
        live_counts: LiveCounts::of(&recording.live),
    }
}

/// The first message with a call that would be blocked, and was not when it was recorded.
fn goes_another_way(messages: &[Shown], live: &[LiveBlock]) -> Option<usize> {
    let was_blocked = |message: usize, tool: &str| {
        let is_it = |block: &&LiveBlock| block.message == message && block.tool.as_deref() == Some(tool);
        live.iter().filter(is_it).any(|block| block.verdict == "block" && block.mode != "observe")
    };
    let is_new = |shown: &&Shown| {
        let mut blocked = shown.calls.iter().filter(|call| call.ruling.is_blocked());
        blocked.any(|call| !was_blocked(shown.message, &call.tool))
    };
    messages.iter().find(is_new).map(|shown| shown.message)
}

/// The recorded messages and those that would have been sent.
struct Pairing<'a> {
    seen: &'a Observations,
    before: &'a Transcript,
    after: Option<&'a Transcript>,
    rulings: Rulings<'a>,
}

impl Pairing<'_> {
    fn messages(&self) -> Vec<Shown> {
        let plan = &self.seen.plan;
        let mut shown = Vec::new();
        // The next message as sent: kept messages keep their order, and added ones are where notices are placed.
        let mut next = 0;
        for index in 0..self.before.request.messages.len() {
            let is_history = index < self.seen.history;
            if is_history && self.leads(index) {
                shown.extend(self.added(index, &mut next));
            }
            let counterpart = if is_history && !plan.drops_at(index) { self.take(&mut next) } else { None };
            shown.push(self.message(index, counterpart));
            if is_history && self.is_followed(index) {
                shown.extend(self.added(index, &mut next));
            }
        }
        #[cfg(test)]
        assert_eq!(
            next,
            self.after.map_or(0, |after| after.request.messages.len()),
            "all that is sent is shown"
        );
        shown
    }

    /// The next message as sent.
    fn take(&self, next: &mut usize) -> Option<View<'_>> {
        let after = self.after.filter(|after| *next < after.request.messages.len())?;
        *next += 1;
        Some(after.view(*next - 1))
    }

    /// Whether a system message of toolrein precedes the message, which is the first.
    fn leads(&self, index: usize) -> bool {
        let first = self.before.request.messages.first();
        let has_place = first.is_some_and(|first| first.role == Role::System && !first.odd);
        let any = || self.notices().next().is_some();
        index == 0 && self.seen.placement == Some(Placement::Leading) && !has_place && any()
    }

    /// Whether a system message of toolrein follows the message.
    fn is_followed(&self, index: usize) -> bool {
        self.seen.placement == Some(Placement::System)
            && self.notices().any(|item| item == self.before.view(index).id)
    }

    /// The items that notices belong to.
    fn notices(&self) -> impl Iterator<Item = ItemId> + '_ {
        let plan = &self.seen.plan;
        let edits = plan.edits.iter().filter(|edit| !plan.drops(edit.item));
        edits.filter(|edit| matches!(edit.change, Change::Notice { .. })).map(|edit| edit.item)
    }

    /// A message of toolrein.
    fn added(&self, message: usize, next: &mut usize) -> Option<Shown> {
        let view = self.take(next)?;
        let pieces =
            pieces_of(view).into_iter().map(|(kind, text)| Piece { kind, before: None, after: Some(text) });
        Some(Shown {
            message,
            role: role_name(view.message.role),
            tool: None,
            fate: Fate::Added,
            before: None,
            after: Some(size_of(view)),
            pieces: pieces.collect(),
            acts: Vec::new(),
            calls: Vec::new(),
            is_failed: false,
            instead: None,
        })
    }

    fn message(&self, index: usize, counterpart: Option<View<'_>>) -> Shown {
        let (plan, view) = (&self.seen.plan, self.before.view(index));
        let pieces = paired(pieces_of(view), counterpart.map(pieces_of));
        let is_changed = pieces.iter().any(|piece| piece.before != piece.after);
        let is_history = index < self.seen.history;
        let fate = match counterpart {
            _ if is_history && plan.drops_at(index) => Fate::Dropped,
            Some(_) if is_changed => Fate::Changed,
            Some(_) => Fate::Same,
            None if is_history => Fate::Unsent,
            None => Fate::Reply,
        };
        let acts = match fate {
            Fate::Dropped => dropped(plan, index, size_of(view).tokens),
            _ => acts_of(plan, self.seen.placement, &Text { view, factor: self.before.token_factor }),
        };
        let call = self.before.calls.answered_by(index);
        let name = view.message.name.filter(|_| view.message.role == Role::Tool);
        Shown {
            message: index,
            role: role_name(view.message.role),
            tool: call
                .map(|call| call.name.to_string())
                .or_else(|| name.map(|name| decode(name, view.body).into_owned())),
            fate,
            before: Some(size_of(view)),
            after: counterpart.map(size_of),
            pieces,
            acts,
            calls: self.rulings.of(view),
            is_failed: view.message.role == Role::Tool && has_failed(&view),
            instead: call.and_then(|call| self.rulings.result_of(call.message, call.index)),
        }
    }
}

/// The content of a message: its texts, and other parts as JSON.
fn pieces_of(view: View<'_>) -> Vec<(Kind, String)> {
    let raw = |span: wire::body::Span| String::from_utf8_lossy(span.of(view.body)).into_owned();
    match &view.message.content {
        Content::Absent | Content::Null(_) => Vec::new(),
        Content::Text(text) => vec![(Kind::Text, decode(*text, view.body).into_owned())],
        Content::Parts { parts, .. } => parts
            .iter()
            .map(|part| match part.text {
                Some(text) => (Kind::Text, decode(text, view.body).into_owned()),
                None => (Kind::Part, raw(part.span)),
            })
            .collect(),
        Content::Other(span) => vec![(Kind::Part, raw(*span))],
    }
}

/// Pairs the pieces; a notice may be an additional piece.
fn paired(before: Vec<(Kind, String)>, after: Option<Vec<(Kind, String)>>) -> Vec<Piece> {
    let mut after = after.map(Vec::into_iter);
    let mut pieces = Vec::new();
    for (kind, before) in before {
        let after = after.as_mut().and_then(Iterator::next).map(|(_, text)| text);
        pieces.push(Piece { kind, before: Some(before), after });
    }
    let more = after.into_iter().flatten();
    pieces.extend(more.map(|(kind, text)| Piece { kind, before: None, after: Some(text) }));
    pieces
}

fn size_of(view: View<'_>) -> Size {
    Size { chars: view.texts().map(|text| text.chars().count()).sum(), tokens: view.tokens().tokens() }
}

fn tools_of(transcript: &Transcript, plan: &Plan) -> Vec<Declared> {
    let (request, body) = (&transcript.request, &transcript.body);
    // A forced choice may name one of them, so all are sent.
    let hides = request.choice != Choice::Forced;
    let declared = request.tools.iter().map(|tool| {
        let name = tool.full_name(body).unwrap_or_default();
        let hidden = plan.hidden.iter().find(|(_, hidden)| hides && tool.name.is_some() && *hidden == name);
        let tokens = (estimate_json(tool.span.of(body)) + TOOL_SCHEMA).scaled(transcript.token_factor);
        Declared {
            name: name.into_owned(),
            tokens: tokens.tokens(),
            hidden_by: hidden.map(|(policy, _)| *policy),
        }
    });
    declared.collect()
}

fn totals(messages: &[Shown], tools: &[Declared]) -> Totals {
    let history = || messages.iter().filter(|shown| shown.fate != Fate::Reply);
    let tokens = |size: fn(&Shown) -> Option<Size>| history().filter_map(size).map(|size| size.tokens).sum();
    let calls = || messages.iter().flat_map(|shown| &shown.calls);
    let acts = || messages.iter().flat_map(|shown| &shown.acts).filter(|act| act.applies);
    let hidden = tools.iter().filter(|tool| tool.hidden_by.is_some()).map(|tool| tool.tokens as i64);
    let changes: Vec<i64> = acts().map(|act| act.saved_tokens).chain(hidden).collect();
    let sum = |sign: i64| changes.iter().map(|saved| (saved * sign).max(0) as u64).sum();
    Totals {
        tokens_removed: sum(1),
        tokens_added: sum(-1),
        notices: acts().filter(|act| act.is_notice).count(),
        messages_before: history().filter(|shown| shown.before.is_some()).count(),
        messages_after: history().filter(|shown| shown.after.is_some()).count(),
        tokens_before: tokens(|shown| shown.before),
        tokens_after: tokens(|shown| shown.after),
        tool_tokens_before: tools.iter().map(|tool| tool.tokens).sum(),
        tool_tokens_after: tools.iter().filter(|tool| tool.hidden_by.is_none()).map(|tool| tool.tokens).sum(),
        calls: calls().count(),
        blocked: calls().filter(|call| call.ruling.is_blocked()).count(),
    }
}

/// What each policy did, in the registry's order.
fn policies(
    config: &Config,
    profile: Option<&str>,
    messages: &[Shown],
    tools: &[Declared],
) -> Vec<PolicySum> {
    let profile = profile.and_then(|name| config.profiles.named(name).ok());
    let on: Vec<&str> = config.policies_of(profile).names().collect();
    let sums = REGISTRY.iter().filter(|entry| on.contains(&entry.name)).map(|entry| {
        let acts = messages.iter().flat_map(|shown| &shown.acts);
        let acts: Vec<_> = acts.filter(|act| act.policy == entry.name && act.applies).collect();
        let hidden: Vec<_> = tools.iter().filter(|tool| tool.hidden_by == Some(entry.name)).collect();
        let objections = messages.iter().flat_map(|shown| &shown.calls).flat_map(|call| &call.objections);
        let hidden_tokens: u64 = hidden.iter().map(|tool| tool.tokens).sum();
        PolicySum {
            policy: entry.name,
            summary: entry.summary,
            changes: acts.len() + hidden.len(),
            blocked: objections.filter(|objection| objection.policy == entry.name).count(),
            saved_tokens: acts.iter().map(|act| act.saved_tokens).sum::<i64>() + hidden_tokens as i64,
        }
    });
    sums.filter(|sum| sum.changes + sum.blocked > 0).collect()
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
        Role::Other => "other",
    }
}

fn placement_name(placement: Placement) -> &'static str {
    match placement {
        Placement::System => "system",
        Placement::Suffix => "suffix",
        Placement::Leading => "leading",
    }
}

#[cfg(test)]
mod tests;
