//! Calls that wait for a person's word: they are held, counted against limits as if they were made, and settled once
//! the word is there. Holds data; waits for nothing.

use super::{Decision, Judged, Judging};
use crate::policy::about::Confirming;
use crate::policy::plan::Reason;
use crate::policy::set::Ruling;
use crate::rewrite::confirm::held::{HeldCall, Word, shown};
use crate::rewrite::confirm::put_off;
use crate::transcript::identity::Hash;
use crate::wire::assemble::Assembled;

/// What waits, and what was said before in this client request.
#[derive(Default)]
pub(super) struct Holding {
    waiting: Vec<Waiting>,
    /// The tools and arguments that somebody said no to: they are not asked about twice.
    declined: Vec<(String, Hash)>,
    /// Nobody is there any more, and why.
    silent: Option<Word>,
    next: u32,
}

struct Waiting {
    call: HeldCall,
    choice: u32,
    arguments: Hash,
    /// The calls that limits had let through with this one.
    passed: usize,
    objections: Vec<(&'static str, Reason)>,
    /// A policy before has mended the arguments.
    mended: bool,
}

impl Judging {
    /// Whether a reply waits for a person's word on calls that need one.
    pub(super) fn holds(&self) -> bool {
        let waits = self.judge.confirming().and_then(Confirming::hold_ms).is_some();
        waits && !self.observe && self.token.is_some()
    }

    /// How long it waits, in ms.
    pub fn hold_ms(&self) -> u64 {
        self.judge.confirming().and_then(Confirming::hold_ms).unwrap_or(0)
    }

    /// The calls that wait for a word now.
    pub fn held(&self) -> impl Iterator<Item = &HeldCall> {
        self.holding.waiting.iter().map(|waiting| &waiting.call)
    }

    /// Holds a call of `choice` to which nobody objects but for want of a yes; or withholds it, where nobody can be
    /// asked about it.
    pub(super) fn hold(
        &mut self,
        (choice, now_ms): (u32, u64),
        call: &Assembled,
        (policy, reason): (&'static str, &Reason),
        ruling: Ruling,
    ) -> Decision {
        let (tool, id) = (call.name(), self.holding.next);
        let mended = ruling.rewritten.map(|(_, arguments)| arguments);
        let arguments = mended.clone().unwrap_or_else(|| call.arguments());
        let hash = self.judge.arguments_hash(&arguments);
        match self.askable(&tool, (&arguments, call.custom), hash, reason) {
            Err(reason) => {
                let decision = Decision::Withhold { policy, reason };
                self.tell((tool, call.id()), decision.clone(), ruling.objections, Vec::new());
                decision
            }
            Ok(shown) => {
                self.judge.approve(true);
                self.judge.rule(choice, &tool, Some(&call.arguments()), now_ms);
                self.judge.approve(false);
                self.holding.next += 1;
                self.holding.waiting.push(Waiting {
                    call: HeldCall { id, call_id: call.id(), tool, arguments, shown },
                    choice,
                    arguments: hash,
                    passed: self.judge.passed(),
                    objections: ruling.objections,
                    mended: mended.is_some(),
                });
                Decision::Hold { id, arguments: mended }
            }
        }
    }

    /// Ends the waiting of the call `id`: what becomes of it, `None` if it does not wait.
    pub fn settle(&mut self, id: u32, word: Word) -> Option<Decision> {
        let at = self.holding.waiting.iter().position(|waiting| waiting.call.id == id)?;
        let Waiting { call, choice, arguments, passed, objections, mended } = self.holding.waiting.remove(at);
        let (policy, reason) = objections.first()?;
        let policy = *policy;
        if word == Word::Approved {
            let decision = match mended {
                true => Decision::Rewrite { arguments: call.arguments },
                false => Decision::Release,
            };
            let mut acts = vec![(policy, word.as_str())];
            acts.extend(mended.then_some((policy, "rewritten")));
            self.tell((call.tool, call.call_id), decision.clone(), Vec::new(), acts);
            return Some(decision);
        }
        self.judge.take_back(choice, passed);
        let decision = Decision::Withhold { policy, reason: word.refusal(reason) };
        match word {
            Word::Declined => self.holding.declined.push((call.tool.clone(), arguments)),
            silent => self.holding.silent = Some(silent),
        }
        self.tell((call.tool, call.call_id), decision.clone(), objections, Vec::new());
        Some(decision)
    }

    /// What somebody would be shown of the call.
    fn askable(
        &self,
        tool: &str,
        (arguments, custom): (&str, bool),
        hash: Hash,
        reason: &Reason,
    ) -> Result<String, Reason> {
        let declined = self.holding.declined.iter().any(|(name, seen)| name == tool && *seen == hash);
        let said = declined.then_some(Word::Declined).or(self.holding.silent);
        if let Some(word) = said {
            return Err(word.refusal(reason));
        }
        let Some(confirming) = self.judge.confirming() else { return Err(reason.clone()) };
        shown(tool, (arguments, custom), confirming).map_err(|why| put_off(reason, Some(&Err(why))))
    }

    fn tell(
        &mut self,
        (tool, id): (String, String),
        decision: Decision,
        objections: Vec<(&'static str, Reason)>,
        acts: Vec<(&'static str, &'static str)>,
    ) {
        self.record.push(Judged { tool, id, decision, objections, acts, regret: None, unjudged: false });
    }
}

#[cfg(test)]
pub(in crate::rewrite) mod tests;
