//! What an exchange notes in its record: what is new in the plan, what became of calls, what was billed. Writes plain data
//! that nothing here reads again.

use super::Core;
use crate::policy::plan::Plan;
use crate::rewrite::judging::{Decision, Judged, Judging};
use crate::rewrite::reply::Unjudged;
use crate::rewrite::texts::saved_tokens;
use crate::telemetry::outcome::{
    Fallback, JudgedCall, LimitUse, NewResult, On, PrefixBreak, Regret, Said, Verdict,
};
use crate::transcript::{ToolResult, Transcript};
use crate::wire::usage::Usage;
use std::time::Duration;

/// The policy's name under which fallbacks are recorded.
pub(super) const TOOLS_UNSUPPORTED: &str = "tools_unsupported";

impl Core {
    /// What the store knows: the request came before, what should have been put back and could not, and whether what was
    /// put back earlier is.
    pub(super) fn note_known(&mut self, repeated: bool, (lost, keeps_rounds): (u32, bool)) {
        let record = &mut self.record;
        record.repeated = repeated;
        record.lost_rounds = lost;
        // A lost summary has said it already.
        let is_noted = record.prefix_breaks.contains(&PrefixBreak::Ledger);
        let is_broken = lost > 0 || !keeps_rounds;
        record.prefix_breaks.extend((is_broken && !is_noted).then_some(PrefixBreak::Ledger));
    }

    /// What is new since the last reply.
    pub(super) fn note_new(&mut self, transcript: &Transcript<'_>, plan: &Plan) {
        let new_from = transcript.last_assistant().map_or(0, |last| last + 1);
        self.note_plan(plan, new_from);
        let record = &mut self.record;
        let breaks = [
            (plan.cleared().any(|edit| edit.decided >= new_from), PrefixBreak::Compact),
            (plan.dropped.iter().any(|dropped| dropped.decided >= new_from), PrefixBreak::History),
        ];
        record.prefix_breaks.extend(breaks.into_iter().filter_map(|(is_new, cause)| is_new.then_some(cause)));
        for regret in plan.regrets.iter().filter(|regret| regret.message >= new_from) {
            record.regrets.push(Regret { tool: regret.tool.to_string(), on: On::Request });
        }
        record.results.extend(transcript.results_from(new_from).map(|result| new_result(&result)));
    }

    /// What was planned for the request; of the history only what is new, from the message `new_from` on.
    fn note_plan(&mut self, plan: &Plan, new_from: usize) {
        let record = &mut self.record;
        for (policy, _) in &plan.hidden {
            record.act(On::Request, policy, "hidden", 1);
        }
        record.tokens.saved += saved_tokens(plan);
        for dropped in plan.dropped.iter().filter(|dropped| dropped.decided >= new_from) {
            record.act(On::Request, dropped.policy, "turns_dropped", 1);
        }
        for edit in plan.told().filter(|edit| edit.decided >= new_from) {
            record.act(On::Request, edit.policy, edit.change.word(), 1);
        }
    }

    /// What became of the reply's calls from the `noted`-th on, and what is left of the limits.
    pub(super) fn note_judged(&mut self, judging: &Judging, noted: &mut usize, now_ms: u64) {
        for judged in &judging.record[*noted..] {
            self.note_call(judged);
        }
        *noted = judging.record.len();
        let limits = judging.usage(now_ms).into_iter();
        let limits = limits.map(|(policy, usage)| LimitUse {
            policy: Some(policy),
            tool: usage.tool,
            used: usage.used,
            limit: usage.limit,
        });
        self.record.usage_of_limits = limits.collect();
    }

    fn note_call(&mut self, judged: &Judged) {
        let record = &mut self.record;
        let verdict = match &judged.decision {
            Decision::Release => Verdict::Allow,
            Decision::Rewrite { .. } => Verdict::Modify,
            Decision::Answer { .. } => Verdict::Answer,
            Decision::Withhold { .. } | Decision::Drop => Verdict::Block,
            Decision::Ask { .. } | Decision::Hold { .. } => Verdict::Ask,
        };
        if let Some(tool) = judged.regret.clone() {
            record.regrets.push(Regret { tool, on: On::Reply });
        }
        for (policy, word) in &judged.acts {
            record.act(On::Reply, policy, *word, 1);
        }
        // Every objection is recorded, also where the call is only observed.
        for (policy, _) in &judged.objections {
            record.act(On::Reply, policy, "withheld", 1);
        }
        record.judged.push(JudgedCall {
            tool: judged.tool.clone(),
            id: judged.id.clone(),
            verdict,
            unjudged: judged.unjudged,
            said: said_of(judged),
            is_spoken: judged.decision.is_hidden(),
        });
    }

    /// Tokens as billed, summed over all replies.
    pub(super) fn note_usage(&mut self, usage: Usage) {
        self.record.implausible_usage = usage.implausible;
        let tokens = &mut self.record.tokens;
        tokens.prompt = usage.prompt;
        tokens.cached = usage.cached;
        tokens.cache_written = usage.cache_written;
        tokens.completion = usage.completion;
        tokens.reasoning = usage.reasoning;
    }

    /// Something passed unjudged.
    pub(super) fn note_unjudged(&mut self, why: &'static str) {
        if !self.record.unjudged.contains(&why) {
            self.record.unjudged.push(why);
        }
    }
}

fn new_result(result: &ToolResult<'_>) -> NewResult {
    NewResult {
        tool: result.tool().to_owned(),
        bytes: result.view.text_bytes() as u64,
        tokens: result.view.about_tokens().tokens(),
        took: result.took_ms.map(Duration::from_millis),
    }
}

/// What policies said of a call: their objections, or what else was done to it.
fn said_of(judged: &Judged) -> Vec<Said> {
    let objections = judged.objections.iter();
    let objections = objections.map(|(policy, reason)| Said { policy, reason: reason.kind.as_str() });
    let acts = judged.acts.iter().map(|(policy, word)| Said { policy, reason: word });
    objections.chain(acts).collect()
}

/// What a fallback is called among actions.
pub(super) fn word(fallback: Fallback) -> &'static str {
    match fallback {
        Fallback::Tools => "dropped",
        Fallback::ToolChoice => "choice_dropped",
        other => other.as_str(),
    }
}

/// As in the metric's label.
pub(super) fn label(why: Unjudged) -> &'static str {
    match why {
        Unjudged::EventTooLong => "event_too_long",
        Unjudged::HeldTooMuch => "held_too_much",
        Unjudged::ReplyTooLong => "reply_too_long",
        Unjudged::NotJson => "not_json",
        Unjudged::Ambiguous => "ambiguous",
    }
}
