//! Checks after each step, whatever model and client do: what is sent upstream is in order, what the client gets is
//! one coherent reply whose calls the model made, and every count agrees with the reference.

use super::client::Client;
use super::driver::Passed;
use super::model::Call;
use super::reference::{Counts, Reference, calls_of, canonical, text_of};
use bytes::Bytes;
use dialects::edit::NO_ANSWER;
use dialects::variant::{Tools, Variant};
use engine::judging::Judged;
use mock::strict::violations;
use model::adaptation::Adaptation;
use model::plan::decision::Decision;
use model::plan::{Change, Edit};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The result of a check: an error says what is wrong.
pub type Found = Result<(), String>;

/// Whether anything about the tools differs from what the client sent.
pub fn is_fallback(form: &Variant) -> bool {
    form.tools() != Tools::Kept || form.has(Adaptation::Flattened)
}

/// Whether nothing changes the client's request, as it is sent first.
fn is_untouched(passed: &Passed) -> bool {
    let plan = &passed.plan;
    plan.edits.is_empty()
        && plan.dropped.is_empty()
        && plan.hidden.is_empty()
        && plan.declared.is_empty()
        && !plan.one_at_a_time
        && passed.restored.is_empty()
        && !passed.forms.first().is_some_and(is_fallback)
}

/// Every request sent is in order if the client's own request is, and unchanged if no policy changed it.
pub fn sendings(client: &Client, body: &Bytes, passed: &Passed) -> Found {
    if let (true, Some(first)) = (is_untouched(passed), passed.sent.first())
        && first != body
    {
        return Err(format!("touched without a reason: {}", lossy(first)));
    }
    let own = violations(body);
    let (is_strict, pairs) = (own.is_empty(), unpaired(body) == 0);
    if !is_strict && !client.is_careless {
        return Err(format!("what the client was given is refused: {own:?}"));
    }
    let empty_ids = passed.said.iter().flatten().flat_map(|said| &said.calls).any(|call| call.id.is_empty());
    for sent in &passed.sent {
        let found = violations(sent);
        if is_strict && !empty_ids && !found.is_empty() && !has_empty_ids(passed) {
            return Err(format!("a strict upstream refuses: {found:?} in {}", lossy(sent)));
        }
        if pairs && unpaired(sent) > 0 {
            return Err(format!("calls and answers do not pair: {}", lossy(sent)));
        }
    }
    Ok(())
}

fn has_empty_ids(passed: &Passed) -> bool {
    passed.restored.iter().any(|(_, round)| lossy(round).contains("\"id\":\"\""))
}

/// The number of calls without an answer and of answers without a call, paired by position.
fn unpaired(body: &[u8]) -> usize {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let (mut open, mut found) = (0_usize, 0);
    for message in body["messages"].as_array().into_iter().flatten() {
        if matches!(message["role"].as_str(), Some("tool" | "function")) {
            found += usize::from(open == 0);
            open = open.saturating_sub(1);
            continue;
        }
        found += open;
        open = calls_of(message).len();
    }
    found + open
}

/// Each result counts as the answer to the open call that it names, or to the first open call if it names none.
pub fn pairs(client: &Client, pairs: &[Option<(usize, usize)>]) -> Found {
    let mut open: Vec<(usize, usize, String)> = Vec::new();
    for (at, message) in client.history.iter().enumerate() {
        match message["role"].as_str() {
            Some("assistant") => {
                let calls = calls_of(message).into_iter().enumerate();
                open = calls.map(|(position, (id, ..))| (at, position, id)).collect();
            }
            Some("tool" | "function") => {
                let id = message["tool_call_id"].as_str();
                let named = open.iter().position(|(_, _, open)| Some(open.as_str()) == id);
                let taken = (!open.is_empty()).then(|| open.remove(named.unwrap_or(0)));
                let expected = taken.map(|(call, position, _)| (call, position));
                if pairs[at] != expected {
                    return Err(format!("result {at} answers {expected:?}, not {:?}", pairs[at]));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Results that the model has not read yet are not cleared, and a result that no policy changed is sent in every form
/// of the request.
pub fn unread(client: &Client, passed: &Passed) -> Found {
    let new_from = client.history.iter().rposition(|message| message["role"] == "assistant");
    let new_from = new_from.map_or(0, |last| last + 1);
    if let Some(edit) = passed.plan.cleared().find(|edit| edit.item.index >= new_from) {
        return Err(format!("cleared before anybody read it: {}", client.history[edit.item.index]));
    }
    let plans = [&passed.planned, &passed.plan];
    let changed = |at: usize| {
        plans.iter().any(|plan| {
            let edited = |edit: &Edit| {
                edit.item.index == at && !matches!(edit.change, Change::Notice { .. } | Change::Remark { .. })
            };
            plan.edits.iter().any(edited) || plan.dropped.iter().any(|dropped| dropped.messages.contains(&at))
        })
    };
    let results = client.history.iter().enumerate();
    let results = results.filter(|(at, message)| message["role"] == "tool" && !changed(*at));
    let texts: Vec<String> = results.map(|(_, message)| text_of(message)).collect();
    for sent in &passed.sent {
        let sent: Value = serde_json::from_slice(sent).unwrap_or_default();
        let all: Vec<String> = sent["messages"].as_array().into_iter().flatten().map(text_of).collect();
        let all = all.join("\n");
        let count = |text: &str| all.matches(text).count();
        let alike = |text: &str| texts.iter().filter(|other| *other == text).count();
        if let Some(gone) = texts.iter().find(|text| !text.is_empty() && count(text) < alike(text)) {
            return Err(format!("a result is gone: {gone} of {sent}"));
        }
    }
    Ok(())
}

/// The hidden exchanges that were put back are those that the reference expects.
pub fn rounds(reference: &Reference, client: &Client, passed: &Passed) -> Found {
    let (expected, lost) = reference.restored(&client.history);
    if (&expected, lost) != (&passed.restored, passed.lost) {
        let shown = |rounds: &[(usize, Bytes)]| {
            rounds.iter().map(|(at, round)| format!("{at}: {}", lossy(round))).collect::<Vec<_>>()
        };
        return Err(format!(
            "expected {lost} lost and\n{:#?}\nfound {} lost and\n{:#?}",
            shown(&expected),
            passed.lost,
            shown(&passed.restored)
        ));
    }
    let dropped = |at: usize| passed.plan.dropped.iter().any(|dropped| dropped.messages.contains(&at));
    for (at, round) in expected.iter().filter(|(at, _)| !dropped(*at)) {
        let behind = format!("{},{}", lossy(round), client.history[*at]);
        // A flattened history contains the exchange in another form.
        let mut sent =
            passed.sent.iter().zip(&passed.forms).filter(|(_, form)| !form.has(Adaptation::Flattened));
        let is_there = sent.all(|(sent, _)| lossy(sent).contains(&behind));
        if !is_there {
            return Err(format!("the round before message {at} is not there: {behind}"));
        }
    }
    Ok(())
}

/// As [`limits`], for a whole reply of several choices that was not asked again: each choice is counted separately.
pub fn limits_of_each(client: &Client, counts: &[Counts], passed: &Passed) -> Found {
    let [said] = passed.said.as_slice() else { return Ok(()) };
    if client.is_stream || passed.approved.is_some() {
        return Ok(());
    }
    let mut rest = passed.record.as_slice();
    for choice in said {
        let (own, others) = rest.split_at_checked(choice.calls.len()).ok_or("a call was not judged")?;
        in_one_way(counts, |mut counts| objections(&mut counts, own))?;
        rest = others;
    }
    Ok(())
}

/// The judged calls of a reply with one choice: the limits object exactly where the reference says so.
pub fn limits(counts: &[Counts], passed: &Passed) -> Found {
    in_one_way(counts, |counts| limits_by(counts, passed))
}

/// Whether the check succeeds for at least one of the possible counts.
fn in_one_way(counts: &[Counts], holds: impl Fn(Counts) -> Found) -> Found {
    let found = counts.iter().cloned().map(holds);
    found.reduce(|one, other| one.or(other)).unwrap_or(Ok(()))
}

fn limits_by(mut counts: Counts, passed: &Passed) -> Found {
    let until = passed.landed_at.unwrap_or(passed.record.len());
    objections(&mut counts, &passed.record[..until])?;
    let used = passed.usage.iter().find(|(policy, usage)| *policy == "budget" && usage.tool == "*");
    let used = used.map_or(0, |(_, usage)| usage.used);
    if passed.landed_at.is_none() && used != counts.turn {
        return Err(format!("the budget says {used} used, the reference {}", counts.turn));
    }
    Ok(())
}

/// Compares the limits' objections to the `judged` calls of one choice with the reference.
fn objections(counts: &mut Counts, judged: &[Judged]) -> Found {
    let ours = ["budget", "rate_limit", "turn_limits"];
    for judged in judged {
        let is_own = matches!(judged.decision, Decision::Answer { own: true, .. });
        let named_ours = judged.tool.starts_with("toolrein") || judged.tool.starts_with("read_more");
        if is_own || named_ours {
            continue;
        }
        let expected = counts.objections(&judged.tool);
        let found: Vec<&str> =
            judged.objections.iter().map(|(name, _)| *name).filter(|name| ours.contains(name)).collect();
        let mut sorted = found.clone();
        sorted.sort_unstable();
        if sorted != expected {
            return Err(format!("{}: expected {expected:?}, found {found:?}", judged.tool));
        }
        if judged.decision.is_released() {
            counts.release(&judged.tool);
        }
    }
    Ok(())
}

/// A stream without the one comment before its last event that says what toolrein did to its request.
fn without_comment(reply: &Bytes) -> Bytes {
    const COMMENT: &[u8] = b": toolrein ";
    let lines: Vec<&[u8]> = reply.split_inclusive(|byte| *byte == b'\n').collect();
    let last = lines.iter().rposition(|line| line.starts_with(b"data:")).unwrap_or(0);
    let is_it = |at: usize| at + 1 == last && lines[at].starts_with(COMMENT);
    lines.iter().enumerate().filter(|(at, _)| !is_it(*at)).flat_map(|(_, line)| *line).copied().collect()
}

/// The events of a stream by their choice; under none what is about all of them.
fn by_choice(stream: &[u8]) -> BTreeMap<Option<u64>, Vec<String>> {
    let mut events: BTreeMap<Option<u64>, Vec<String>> = BTreeMap::new();
    for event in lossy(stream).split_inclusive("\n\n") {
        let data = event.strip_prefix("data: ").and_then(|data| serde_json::from_str::<Value>(data).ok());
        let choice = data.and_then(|data| data["choices"][0]["index"].as_u64());
        events.entry(choice).or_default().push(event.to_owned());
    }
    events
}

/// A reply that no policy acted on is what the upstream sent, but for the comment where its request was changed. The events
/// of one choice keep their order; those of another may pass them while a call of it is read.
pub fn untouched(passed: &Passed) -> Found {
    let acted = passed.record.iter().any(|judged| judged.decision != Decision::Release);
    let may_comment = !is_untouched(passed) || !passed.tried.is_empty();
    match (passed.raw.as_slice(), &passed.reply) {
        ([raw], Some(reply)) if !acted && raw != reply => {
            let is_same = by_choice(raw) == by_choice(reply) && raw.len() == reply.len();
            let is_commented = may_comment && by_choice(raw) == by_choice(&without_comment(reply));
            let trouble = || format!("touched without a reason: {} became {}", lossy(raw), lossy(reply));
            (is_same || is_commented).then_some(()).ok_or_else(trouble)
        }
        _ => Ok(()),
    }
}

/// The message of each choice as a client puts it together, in order.
pub fn reply(client: &Client, bytes: &Bytes) -> Result<Vec<Value>, String> {
    let choices = if client.is_stream { assembled(bytes)? } else { read(bytes)? };
    let n = client.n as usize;
    // Approved calls come alone.
    if choices.len() != n && choices.len() != 1 {
        return Err(format!("{} choices where {n} were asked for", choices.len()));
    }
    Ok(choices)
}

fn read(bytes: &Bytes) -> Result<Vec<Value>, String> {
    let reply: Value = serde_json::from_slice(bytes).map_err(|error| format!("{error}: {}", lossy(bytes)))?;
    let choices = reply["choices"].as_array().cloned().unwrap_or_default();
    choices
        .into_iter()
        .enumerate()
        .map(|(at, mut choice)| {
            let message = choice["message"].take();
            finishes(&message, &choice["finish_reason"])?;
            if choice["index"] != at {
                Err(format!("index {} at {at}", choice["index"]))
            } else {
                Ok(message)
            }
        })
        .collect()
}

fn finishes(message: &Value, reason: &Value) -> Found {
    let expected = match (calls_of(message).is_empty(), message["function_call"].is_object()) {
        (true, _) => "stop",
        (false, true) => "function_call",
        (false, false) => "tool_calls",
    };
    if *reason == expected { Ok(()) } else { Err(format!("finish {reason} behind {message}")) }
}

/// The choices of a stream, which must be one coherent stream.
fn assembled(stream: &[u8]) -> Result<Vec<Value>, String> {
    let text = lossy(stream);
    let mut choices: Vec<(Value, Value)> = Vec::new();
    let (mut ids, mut done) = (Vec::new(), 0);
    for event in text.split("\n\n").map(str::trim).filter(|event| !event.is_empty()) {
        let Some(data) = event.lines().find_map(|line| line.strip_prefix("data: ")) else {
            if event.starts_with(':') { continue } else { return Err(format!("no event: {event}")) }
        };
        if done > 0 {
            return Err(format!("data behind the end: {text}"));
        }
        if data == "[DONE]" {
            done += 1;
            continue;
        }
        let chunk: Value = serde_json::from_str(data).map_err(|error| format!("{error}: {data}"))?;
        ids.push(chunk["id"].clone());
        for choice in chunk["choices"].as_array().into_iter().flatten() {
            add(&mut choices, choice)?;
        }
    }
    ids.dedup();
    if ids.len() != 1 || done != 1 {
        return Err(format!("ids {ids:?}, {done} ends: {text}"));
    }
    choices
        .into_iter()
        .map(|(message, finish)| {
            finishes(&message, &finish).map(|()| message).map_err(|why| format!("{why} in {text}"))
        })
        .collect()
}

fn add(choices: &mut Vec<(Value, Value)>, choice: &Value) -> Found {
    let index = choice["index"].as_u64().unwrap_or(0) as usize;
    while choices.len() <= index {
        choices.push((json!({"role": null, "content": null}), Value::Null));
    }
    let (message, finish) = &mut choices[index];
    if !finish.is_null() {
        return Err(format!("a delta behind the finish: {choice}"));
    }
    *finish = choice["finish_reason"].clone();
    let delta = &choice["delta"];
    if !delta["role"].is_null() {
        if !message["role"].is_null() {
            return Err(format!("a second role: {choice}"));
        }
        message["role"] = delta["role"].clone();
    }
    if let Some(text) = delta["content"].as_str() {
        message["content"] = format!("{}{text}", message["content"].as_str().unwrap_or("")).into();
    }
    if let Some(function) = delta.get("function_call").filter(|function| !function.is_null()) {
        if message.get("function_call").is_none() {
            message["function_call"] = json!({"name": function["name"], "arguments": ""});
        }
        append(&mut message["function_call"]["arguments"], &function["arguments"]);
    }
    for call in delta["tool_calls"].as_array().into_iter().flatten() {
        add_call(message, call)?;
    }
    Ok(())
}

fn add_call(message: &mut Value, call: &Value) -> Found {
    if message.get("tool_calls").is_none() {
        message["tool_calls"] = json!([]);
    }
    let Some(calls) = message["tool_calls"].as_array_mut() else { return Ok(()) };
    let index = call["index"].as_u64().unwrap_or(0) as usize;
    if index > calls.len() {
        return Err(format!("a gap before {call}"));
    }
    if index == calls.len() {
        calls.push(json!({"id": call["id"], "type": "function", "function": {"name": call["function"]["name"], "arguments": ""}}));
    }
    append(&mut calls[index]["function"]["arguments"], &call["function"]["arguments"]);
    Ok(())
}

fn append(to: &mut Value, piece: &Value) {
    *to = format!("{}{}", to.as_str().unwrap_or(""), piece.as_str().unwrap_or("")).into();
}

/// What the client is shown of one choice: only calls that the model made or that a person approved, and never
/// nothing.
pub fn shown(message: &Value, (passed, rounds): (&Passed, &[Bytes])) -> Found {
    let made: Vec<&Call> = passed.said.iter().flatten().flat_map(|said| &said.calls).collect();
    let approved = passed.approved.iter().flat_map(|asked| &asked.calls);
    let approved: Vec<(String, String)> =
        approved.map(|call| (call.name(), canonical(&call.arguments()))).collect();
    for (id, name, arguments) in calls_of(message) {
        let is_made = made.iter().any(|call| {
            // A policy may strip a key that harms programs.
            let same = canonical(&call.arguments) == arguments || call.arguments.contains("__proto__");
            call.id == id && call.name == name && same
        });
        if !is_made && !approved.contains(&(name.clone(), arguments.clone())) {
            return Err(format!("nobody made the call {id} {name} {arguments}"));
        }
    }
    let silent = calls_of(message).is_empty() && text_of(message).trim().is_empty();
    // The record does not say which choice a call was of.
    let is_alone = passed.hidden.len() == 1;
    let acted = passed.record.iter().any(|judged| !judged.decision.is_released());
    let taken = !rounds.is_empty() || (is_alone && acted);
    if silent && taken {
        return Err(format!("nothing is left to the client: {message}"));
    }
    if text_of(message).contains(NO_ANSWER) && !acted {
        return Err("our sentence where nothing was taken".to_owned());
    }
    Ok(())
}

pub fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
