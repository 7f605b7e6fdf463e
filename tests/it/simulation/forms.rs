//! Checks on the forms in which a request is sent: at most three retries, each for a reason, no form that is known to
//! be refused, no change where none is allowed, and every history a prefix of the next one.

use super::check::{Found, lossy};
use super::client::Client;
use super::driver::Passed;
use super::reference::{Reference, text_of};
use super::upstream::{Dislike, Refused};
use bytes::Bytes;
use dialects::variant::Tools;
use mock::strict::violations;
use model::adaptation::Adaptation;
use model::plan::decision::Decision;
use model::record::Retry;
use serde_json::Value;
use std::collections::BTreeMap;

/// The most retries of one request in another form.
const MOST: usize = 3;

/// In observe mode the upstream gets what the client sent, once, and the client gets the upstream's answer.
pub fn observed(body: &Bytes, passed: &Passed) -> Found {
    if passed.sent != [body.clone()] {
        return Err(format!("changed while observing: {:?}", passed.sent.iter().map(|sent| lossy(sent))));
    }
    let raw = passed.raw.first();
    if raw.is_some() && raw != passed.reply.as_ref() {
        return Err(format!("the reply was changed while observing: {:?}", passed.reply));
    }
    if raw.is_none() != passed.error.is_some() || !passed.restored.is_empty() {
        return Err("something else than the upstream's answer".to_owned());
    }
    Ok(())
}

/// The tries: not too many, each in another form, each known refusal avoided from the start, and an error for the
/// client only if no form is left.
pub fn tries(reference: &mut Reference, client: &Client, passed: &Passed) -> Found {
    let refused: Vec<Dislike> =
        passed.refused.iter().filter(|(at, _)| *at < passed.tries).map(|(_, it)| it.dislike).collect();
    if passed.tried.len() > MOST || passed.tries > 1 + MOST {
        return Err(format!("{} tries, for {:?}", passed.tries, passed.tried));
    }
    let tries = &passed.sent[..passed.tries];
    if let Some(same) = tries.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("refused for {refused:?}, and sent again as it was: {}", lossy(&same[0])));
    }
    let known = |dislike: Dislike| reference.knows_refusal(client.model, dislike);
    if let Some(first) = refused.first().filter(|first| known(**first) && may_change(passed, **first)) {
        return Err(format!("{} is known to refuse {first:?}: {}", client.model, lossy(&tries[0])));
    }
    if let Some(first) = passed.forms.first() {
        let left_out = [
            (first.tools() == Tools::Dropped, Dislike::Tools),
            // A forced choice may be refused where others are not.
            (first.tools() == Tools::WithoutChoice && !passed.keeps_tools, Dislike::Choice),
            (first.has(Adaptation::Flattened), Dislike::History),
        ];
        if let Some((_, dislike)) = left_out.iter().find(|(is_out, dislike)| *is_out && !known(*dislike)) {
            return Err(format!("{dislike:?} left out, which {} never refused", client.model));
        }
    }
    if let (true, Some(last)) = (passed.said.is_empty(), refused.last())
        && may_change(passed, *last)
        && *last != Dislike::Length
        && passed.tried.len() < MOST
    {
        return Err(format!("{last:?} refused, another form not tried: {}", lossy(&tries[tries.len() - 1])));
    }
    if passed.learned {
        let learned = passed.tried.iter().filter_map(|fallback| dislike_of(*fallback));
        learned.for_each(|dislike| reference.learn_refusal(client.model, dislike));
    }
    Ok(())
}

/// Re-asks: at most so many, then a final-answer request, and that once more without tools if it is refused.
pub fn reasks(client: &Client, passed: &Passed) -> Found {
    let asked = || passed.forms.iter().filter_map(|form| form.asking.as_ref().map(|asking| (form, asking)));
    let is_served = |decision: &Decision| matches!(decision, Decision::Answer { .. });
    let served = passed.record.iter().filter(|judged| is_served(&judged.decision)).count();
    // Each choice may be asked for its final answer, and one of these requests may be refused.
    let most = passed.most_reasks + served + client.n as usize + 1;
    if asked().count() > most {
        return Err(format!("asked again {} times, {most} are allowed", asked().count()));
    }
    let landing = asked().filter(|(_, asking)| asking.land).map(|(form, _)| form.tools() == Tools::Dropped);
    let landing: Vec<bool> = landing.collect();
    // One that is too long is sent once more, with what was hidden shortened.
    let is_long =
        |(at, refused): &&(usize, Refused)| *at >= passed.tries && refused.dislike == Dislike::Length;
    let shortened = usize::from(passed.refused.iter().any(|refused| is_long(&refused)));
    if landing.iter().filter(|bare| !**bare).count() > client.n as usize + shortened {
        return Err(format!("asked for an answer as before: {landing:?}"));
    }
    let last = passed.refused.last().filter(|(at, _)| *at >= passed.tries && *at + 1 == passed.sent.len());
    match last {
        Some((_, refused)) if refused.dislike == Dislike::Choice && !passed.keeps_tools => {
            Err("it refused to be asked for an answer, and was not asked without tools".to_owned())
        }
        Some((at, refused)) if refused.dislike == Dislike::History => {
            let is_bare = passed.forms[*at].tools() == Tools::Dropped;
            if is_bare { Err("asked again with calls, without tools".to_owned()) } else { Ok(()) }
        }
        _ => Ok(()),
    }
}

/// Whether another form can avoid what the model refuses.
fn may_change(passed: &Passed, disliked: Dislike) -> bool {
    matches!(disliked, Dislike::LateSystem) || !passed.keeps_tools
}

fn dislike_of(retry: Retry) -> Option<Dislike> {
    match retry {
        Retry::Adapted(Adaptation::Tools) => Some(Dislike::Tools),
        Retry::Adapted(Adaptation::ToolChoice) => Some(Dislike::Choice),
        Retry::Adapted(Adaptation::Flattened) => Some(Dislike::History),
        Retry::Adapted(Adaptation::Placement) => Some(Dislike::LateSystem),
        _ => None,
    }
}

/// A broken stream or an error does not look like an answer.
pub fn failed(client: &Client, error: &[u8]) -> Found {
    let text = lossy(error);
    if !text.contains("\"error\"") || text.contains("[DONE]") {
        return Err(format!("an error that looks like an answer: {text}"));
    }
    let is_events = text.starts_with("data: ") || text.starts_with(':');
    if is_events && !client.is_stream {
        Err(format!("a stream for who asked for none: {text}"))
    } else {
        Ok(())
    }
}

/// Which conversations are held out, by their opening messages.
#[derive(Default)]
pub struct HeldOut(BTreeMap<Vec<String>, bool>);

impl HeldOut {
    /// A conversation is held out either in all of its requests or in none, and a held-out conversation is sent with
    /// all its texts unchanged.
    pub fn check(&mut self, client: &Client, passed: &Passed) -> Found {
        let user = client.history.iter().position(|message| message["role"] == "user").unwrap_or(0);
        let opening = client.history[..=user].iter().filter(|message| message["role"] != "assistant");
        let known = *self.0.entry(opening.map(text_of).collect()).or_insert(passed.held_out);
        if known != passed.held_out {
            return Err(format!("held out: {known}, and then {}", passed.held_out));
        }
        let sent = passed.sent.iter().map(|sent| serde_json::from_slice::<Value>(sent).unwrap_or_default());
        for sent in sent.filter(|_| passed.held_out) {
            let texts: Vec<String> = sent["messages"].as_array().into_iter().flatten().map(text_of).collect();
            let gone = |message: &&Value| !texts.iter().any(|text| text.contains(&text_of(message)));
            if let Some(gone) = client.history.iter().find(gone) {
                return Err(format!("held out, and yet changed: {gone} in {sent}"));
            }
        }
        Ok(())
    }
}

/// A question for a summary is a request that a strict upstream takes.
pub fn question(passed: &Passed) -> Found {
    let Some(question) = &passed.question else { return Ok(()) };
    let found = violations(question);
    if found.is_empty() { Ok(()) } else { Err(format!("a question that is refused: {found:?}")) }
}

/// The form in which a client's conversation was last sent.
#[derive(Clone, Default)]
pub struct Sent {
    first: Option<Try>,
    /// The one that the upstream took, if it took any.
    last: Option<Try>,
    model: &'static str,
    /// How much of the turn's budget was used, if the reply had one choice.
    used: Option<u64>,
}

/// The messages of one request, and the parts of its form that they depend on.
#[derive(Clone)]
struct Try {
    messages: Bytes,
    form: (String, bool, bool),
}

impl Sent {
    /// What was sent this time; empty if nothing was sent.
    pub fn of(client: &Client, passed: &Passed) -> Self {
        let sent = |at: usize| {
            let form = passed.forms.get(at)?;
            let form = (
                format!("{:?}", form.placement),
                form.tools() == Tools::Dropped,
                form.has(Adaptation::Flattened),
            );
            Some(Try { messages: messages_of(&passed.sent[at])?, form })
        };
        let used = passed.usage.iter().find(|(policy, usage)| *policy == "budget" && usage.tool == "*");
        let used = used.map(|(_, usage)| usage.used).filter(|_| client.n == 1);
        let (first, last) = (sent(0), passed.tries.checked_sub(1).and_then(sent));
        Self { first, last: last.filter(|_| !passed.said.is_empty()), model: client.model, used }
    }

    /// Within a turn the used budget never decreases.
    pub fn shrinks(&self, next: &Self, (client, deed): (&Client, &str)) -> Found {
        let goes_on = client.history.last().is_some_and(|last| last["role"] == "tool");
        match (self.used, next.used) {
            (Some(earlier), Some(later)) if later < earlier && goes_on && deed == "goes on" => {
                Err(format!("{earlier} calls were used of the budget, and then {later}"))
            }
            _ => Ok(()),
        }
    }

    /// Whether the messages that the upstream accepted before are a prefix of what is sent first now; false if the
    /// two cannot be compared, or if the break is recorded.
    pub fn begins(&self, next: &Self, client: &Client, passed: &Passed) -> Result<bool, String> {
        let (Some(earlier), Some(later)) = (&self.last, &next.first) else { return Ok(false) };
        let goes_on = client.deed == "goes on" && self.model == next.model && earlier.form == later.form;
        let new_from = client.history.iter().rposition(|message| message["role"] == "assistant");
        let new_from = new_from.map_or(0, |last| last + 1);
        let plan = &passed.planned;
        let told = plan.cleared().any(|edit| edit.decided >= new_from)
            || plan.dropped.iter().any(|dropped| dropped.decided >= new_from)
            || !plan.summaries.lost.is_empty()
            || passed.lost > 0
            || passed.other_rounds;
        if !goes_on || told {
            return Ok(false);
        }
        let (earlier, later) = (&earlier.messages, &later.messages);
        if later.starts_with(earlier) {
            return Ok(true);
        }
        let same = earlier.iter().zip(later.iter()).take_while(|(one, other)| one == other).count();
        let shown = |bytes: &Bytes| lossy(&bytes[same.saturating_sub(200)..(same + 300).min(bytes.len())]);
        Err(format!("a prefix broke untold: ..{}\nbecame\n..{}", shown(earlier), shown(later)))
    }
}

/// The messages of a request as they are written, without what surrounds them.
fn messages_of(sent: &Bytes) -> Option<Bytes> {
    let request = dialects::chat::parse(sent).ok()?;
    let (first, last) = (request.messages.first()?, request.messages.last()?);
    Some(sent.slice(first.span.start as usize..last.span.end as usize))
}
