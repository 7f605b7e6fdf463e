//! A simulated agent: a model that calls and a client that runs what it is handed, whole or streamed, with limits
//! that block often. Checks over each run: every request continues the one before it byte for byte, is accepted by
//! the strictest provider, and finds the hidden exchanges again however the client writes our reply.

use super::repetition::respell;
use super::world::{Facts, NOW_MS, Reading, identity, lossy, low, messages_of, read};
use bytes::Bytes;
use dialects::CHAT;
use dialects::edit::NO_ANSWER;
use dialects::reply::{Ending, Form, Limits, Options};
use dialects::variant::{Asking, Placement, Variant};
use engine::judging::Judging;
use engine::pipeline::{ClientChoice, ReplyPipeline};
use engine::restore::{RequestContext, joined, release, released_keys, remembered};
use mock::strict::violations;
use model::fact::Fact as _;
use model::memo::NoMemo;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use serde_json::{Value, json};
use std::sync::Arc;

const LIMITS: Limits = Limits { event: 1 << 20, held: 1 << 20, reply: 1 << 20 };

/// What a model answers.
#[derive(Clone, Debug)]
struct Answer {
    text: String,
    /// Names and arguments.
    calls: Vec<(&'static str, &'static str)>,
    legacy: bool,
}

/// How the client sends our reply back.
#[derive(Clone, Copy, Debug)]
enum Echo {
    AsItCame,
    /// Arguments parsed and written anew, text as a list of parts, content left out where there is none.
    Respelled,
    /// As JavaScript clients write it that keep parsed values.
    Scripted,
}

#[derive(Clone, Debug)]
struct Run {
    answers: Vec<Answer>,
    echo: Echo,
    streamed: bool,
    placement: Placement,
    /// How often the model is asked again before the final-answer request.
    patience: usize,
    /// The user repeats the same words.
    insists: bool,
}

fn answer() -> impl Strategy<Value = Answer> {
    let arguments = prop_oneof![
        Just("{}"),
        Just(""),
        Just("{\"city\":\"Paris\",\"n\":1.0}"),
        Just("{ \"b\": 1e5, \"a\": [null, \"\\u00e9/\"] }"),
        Just("{\"a\":1,\"a\":2}"),
        Just("{\"n\":-0, \"m\":0.10, \"k\":2.5E-3}"),
        Just("{broken"),
    ];
    let call = (prop_oneof![Just("look"), Just("weather"), Just("say")], arguments);
    let text = prop_oneof![Just(String::new()), Just(" ".to_owned()), "[a-z é\n\"]{1,12}"];
    (text, prop::collection::vec(call, 0..4), prop::bool::weighted(0.15)).prop_map(
        |(text, mut calls, legacy)| {
            if legacy {
                calls.truncate(1);
            }
            // A model that says nothing at all makes a history that no provider accepts.
            let text = if text.is_empty() && calls.is_empty() { "well".to_owned() } else { text };
            Answer { text, calls, legacy }
        },
    )
}

fn run() -> impl Strategy<Value = Run> {
    let echo = prop_oneof![Just(Echo::AsItCame), Just(Echo::Respelled), Just(Echo::Scripted)];
    let placement = prop_oneof![Just(Placement::System), Just(Placement::Suffix)];
    let flags = (any::<bool>(), any::<bool>());
    (prop::collection::vec(answer(), 3..14), echo, flags, placement, 0..3_usize).prop_map(
        |(answers, echo, (streamed, insists), placement, patience)| Run {
            answers,
            echo,
            streamed,
            placement,
            patience,
            insists,
        },
    )
}

proptest! {
    #![proptest_config(crate::laws::with_cases(150))]

    #[test]
    fn each_request_of_an_agent_extends_the_previous_one_and_restores_hidden_exchanges(run in run()) {
        let mut agent = Agent::new(&run);
        while agent.turn()? {}
    }
}

#[test]
fn the_runs_hide_and_find_many_rounds() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut found = 0;
    for _ in 0..60 {
        let run = run().new_tree(&mut runner).unwrap().current();
        let mut agent = Agent::new(&run);
        while agent.turn().unwrap() {}
        found += agent.hidden;
    }
    assert!(found > 40, "only {found} hidden exchanges were found again");
}

#[test]
fn white_space_in_the_place_of_blocked_calls_is_no_answer() {
    for streamed in [false, true] {
        let calls = Answer { text: String::new(), calls: vec![("look", "{}"); 3], legacy: false };
        let blank = Answer { text: " ".into(), calls: Vec::new(), legacy: false };
        let answers = vec![calls.clone(), calls, blank];
        let run = run_of(answers, streamed);
        let mut agent = Agent::new(&run);
        while agent.turn().unwrap() {}
        let said = &agent.history[agent.history.len() - 2]["content"];
        assert!(said.as_str().unwrap().contains(NO_ANSWER), "{said}");
    }
}

#[test]
fn equal_replies_do_not_mix_up_their_hidden_exchanges() {
    for streamed in [false, true] {
        let said = Answer { text: "well".into(), calls: Vec::new(), legacy: false };
        let calls = |count| Answer { text: String::new(), calls: vec![("look", "{}"); count], legacy: false };
        // The third is one too many: the first "well" after it has a hidden exchange, the second has none.
        let answers = vec![said.clone(), calls(2), calls(1), said.clone(), said];
        let run = Run { patience: 0, insists: true, ..run_of(answers, streamed) };
        let mut agent = Agent::new(&run);
        while agent.turn().unwrap() {}
        assert_eq!(agent.hidden, 1);
    }
}

fn run_of(answers: Vec<Answer>, streamed: bool) -> Run {
    Run { answers, echo: Echo::AsItCame, streamed, placement: Placement::System, patience: 3, insists: false }
}

struct Agent<'a> {
    run: &'a Run,
    next: usize,
    history: Vec<Value>,
    facts: Facts,
    now_ms: u64,
    /// Messages of the last sending.
    sent: Vec<u8>,
    /// Replies after hidden exchanges so far.
    hidden: usize,
}

impl<'a> Agent<'a> {
    fn new(run: &'a Run) -> Self {
        let history = vec![json!({"role": "user", "content": "begin"})];
        Self { run, next: 0, history, facts: Facts::default(), now_ms: NOW_MS, sent: Vec::new(), hidden: 0 }
    }

    /// One request of the client and its answer; false when the model has no more to say.
    fn turn(&mut self) -> Result<bool, TestCaseError> {
        let body = Bytes::from(
            json!({"model": "m", "messages": self.history, "tools": [tool()], "stream": self.run.streamed})
                .to_string(),
        );
        let reading = read(&body, low(), &self.facts);
        prop_assert_eq!(reading.restored.len(), self.hidden, "hidden exchanges found in {}", lossy(&body));
        prop_assert_eq!(reading.lost, 0);
        self.send(&reading, &Variant::plain(self.run.placement))?;
        let Some(answer) = self.answer() else { return Ok(false) };
        let again = read(&body, low(), &self.facts).judging();
        let message = if self.run.streamed {
            self.streamed(&reading, again, &answer)?
        } else {
            self.whole(&reading, again, &answer)?
        };
        self.echo(message)?;
        self.now_ms += 9_000;
        Ok(true)
    }

    fn send(&mut self, reading: &Reading, variant: &Variant) -> Result<(), TestCaseError> {
        let out = reading.write(variant);
        prop_assert_eq!(violations(&out), Vec::<String>::new(), "{}", lossy(&out));
        let sent = messages_of(&out);
        prop_assert!(sent.starts_with(&self.sent), "after\n{}\ncame\n{}", lossy(&self.sent), lossy(&sent));
        self.sent = sent;
        Ok(())
    }

    fn answer(&mut self) -> Option<Answer> {
        self.next += 1;
        self.run.answers.get(self.next - 1).cloned()
    }

    /// The answer to a re-ask; a model that has no more to say answers with a text that says so.
    fn ask_again(
        &mut self,
        reading: &Reading,
        rounds: &[Bytes],
        judging: &mut Judging,
    ) -> Result<Answer, TestCaseError> {
        let land = rounds.len() > self.run.patience;
        if land {
            judging.land();
        }
        let asking = Some(Asking { rounds: rounds.to_vec(), land });
        self.send(reading, &Variant { asking, ..Variant::plain(self.run.placement) })?;
        Ok(self.answer().unwrap_or(Answer { text: "the end".into(), calls: Vec::new(), legacy: false }))
    }

    fn whole(&mut self, reading: &Reading, judging: Judging, answer: &Answer) -> Judged {
        let body = Bytes::from(self.reply(answer).to_string());
        let mut judge = ReplyPipeline::new(judging, CHAT, Form::Whole, LIMITS, Options::default());
        let (mut out, mut rounds) = (Vec::new(), Vec::new());
        judge.push(body, self.now_ms, &mut out);
        while let Ending::Reask { choice, hidden } = judge.finish(self.now_ms, &mut out) {
            rounds.push(hidden);
            let answer = self.ask_again(reading, &rounds, judge.judging_mut())?;
            judge.continue_with(choice);
            judge.push(self.reply(&answer).to_string().into(), self.now_ms, &mut out);
        }
        let written = out.concat();
        let mut reply: Value = serde_json::from_slice(&written)
            .map_err(|error| TestCaseError::fail(format!("{error}: {}", lossy(&written))))?;
        let shown = judge.shown();
        let [choice] = &shown[..] else { panic!("one choice") };
        rounds.extend(choice.hidden_exchange().filter(|_| !choice.is_wholly_blocked()));
        self.remember(reading, choice, &rounds);
        Ok(reply["choices"][0]["message"].take())
    }

    fn streamed(&mut self, reading: &Reading, judging: Judging, answer: &Answer) -> Judged {
        let mut judge = ReplyPipeline::new(judging, CHAT, Form::Streamed, LIMITS, Options::default());
        let (mut out, mut rounds) = (Vec::new(), Vec::new());
        judge.push(self.events(answer).into(), self.now_ms, &mut out);
        while let Ending::Reask { choice, hidden } = judge.finish(self.now_ms, &mut out) {
            rounds.push(hidden);
            let answer = self.ask_again(reading, &rounds, judge.judging_mut())?;
            judge.continue_with(choice);
            judge.push(self.events(&answer).into(), self.now_ms, &mut out);
        }
        let message = assembled(&out.concat())?;
        let shown = judge.shown();
        let [choice] = &shown[..] else { panic!("one choice") };
        rounds.extend(choice.hidden_exchange().filter(|_| !choice.is_wholly_blocked()));
        self.remember(reading, choice, &rounds);
        Ok(message)
    }

    fn remember(&mut self, reading: &Reading, choice: &ClientChoice<'_>, rounds: &[Bytes]) {
        let identity = identity(1);
        let asked = RequestContext {
            root: identity.root(),
            context: reading.context,
            context_without_ids: reading.context,
            memo: &NoMemo,
        };
        let hidden = joined(rounds);
        let release = release(&asked, &identity, &hidden, self.now_ms);
        for key in released_keys(&asked, &identity, choice) {
            let known = self.facts.released.entry(key).or_default();
            release.add_to(Arc::make_mut(known));
        }
        self.hidden += usize::from(!hidden.is_empty());
        for (place, round) in remembered(&asked, &identity, choice, &hidden) {
            self.facts.rounds.entry(place).or_default().push(round);
        }
    }

    /// The client keeps our reply, runs its calls, or lets its user speak.
    fn echo(&mut self, mut message: Value) -> Result<(), TestCaseError> {
        let at = self.history.len();
        let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
        let legacy = message["function_call"]["name"].as_str().map(str::to_owned);
        let silent = message["content"].as_str().is_none_or(|text| text.trim().is_empty());
        let said = !silent || !calls.is_empty() || legacy.is_some() || self.echoes_silence();
        prop_assert!(said, "the client got nothing: {}", message);
        rewritten(&mut message, self.run.echo);
        self.history.push(message);
        for call in &calls {
            let result = format!("result {at} of {}", call["function"]["name"]);
            self.history.push(json!({"role": "tool", "tool_call_id": call["id"], "content": result}));
        }
        if let Some(name) = &legacy {
            self.history.push(json!({"role": "function", "name": name, "content": format!("result {at}")}));
        } else if calls.is_empty() {
            let words = if self.run.insists { "go on".to_owned() } else { format!("go on {at}") };
            self.history.push(json!({"role": "user", "content": words}));
        }
        Ok(())
    }

    /// The model itself may say nothing; there must be an answer only where toolrein took something away.
    fn echoes_silence(&self) -> bool {
        let last = &self.run.answers[(self.next - 1).min(self.run.answers.len() - 1)];
        last.calls.is_empty() && last.text.trim().is_empty()
    }

    fn reply(&self, answer: &Answer) -> Value {
        let mut message = json!({"role": "assistant", "content": if answer.text.is_empty() { Value::Null } else { answer.text.as_str().into() }});
        if answer.legacy && !answer.calls.is_empty() {
            let (name, arguments) = answer.calls[0];
            message["function_call"] = json!({"name": name, "arguments": arguments});
        } else if !answer.calls.is_empty() {
            message["tool_calls"] = self.calls(answer).into();
        }
        let finish = if answer.calls.is_empty() { "stop" } else { "tool_calls" };
        json!({"id": format!("r{}", self.next), "model": "m", "created": self.next,
            "choices": [{"index": 0, "message": message, "finish_reason": finish}], "usage": {"total_tokens": 3}})
    }

    fn calls(&self, answer: &Answer) -> Vec<Value> {
        let calls = answer.calls.iter().enumerate().map(|(at, (name, arguments))| {
            json!({"id": format!("c{}_{at}", self.next), "type": "function", "function": {"name": name, "arguments": arguments}})
        });
        calls.collect()
    }

    /// The same answer as a stream, arguments in two pieces.
    fn events(&self, answer: &Answer) -> Vec<u8> {
        let reply = self.reply(answer);
        let message = &reply["choices"][0]["message"];
        let mut deltas = vec![json!({"role": "assistant", "content": message["content"]})];
        for (at, call) in message["tool_calls"].as_array().into_iter().flatten().enumerate() {
            let (first, second) = halves(call["function"]["arguments"].as_str().unwrap());
            deltas.push(json!({"tool_calls": [{"index": at, "id": call["id"], "type": "function",
                "function": {"name": call["function"]["name"], "arguments": first}}]}));
            deltas.push(json!({"tool_calls": [{"index": at, "function": {"arguments": second}}]}));
        }
        if let Some(function) = message.get("function_call") {
            let (first, second) = halves(function["arguments"].as_str().unwrap());
            deltas.push(json!({"function_call": {"name": function["name"], "arguments": first}}));
            deltas.push(json!({"function_call": {"arguments": second}}));
        }
        let mut events: Vec<Value> = deltas.into_iter().map(|delta| (delta, Value::Null)).map(|(delta, finish)|
            json!({"id": reply["id"], "model": "m", "created": self.next, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})).collect();
        events.push(json!({"id": reply["id"], "choices": [{"index": 0, "delta": {}, "finish_reason": reply["choices"][0]["finish_reason"]}]}));
        events.push(json!({"id": reply["id"], "choices": [], "usage": {"total_tokens": 3}}));
        let mut out: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        out.push_str("data: [DONE]\n\n");
        out.into_bytes()
    }
}

/// The message for the client.
type Judged = Result<Value, TestCaseError>;

fn tool() -> Value {
    json!({"type": "function", "function": {"name": "look"}})
}

fn halves(text: &str) -> (&str, &str) {
    text.split_at((0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0))
}

fn rewritten(message: &mut Value, echo: Echo) {
    for call in message["tool_calls"].as_array_mut().into_iter().flatten() {
        echo_arguments(&mut call["function"]["arguments"], echo);
    }
    if message["tool_calls"].is_null() {
        message.as_object_mut().unwrap().remove("tool_calls");
    }
    if message["function_call"].is_object() {
        echo_arguments(&mut message["function_call"]["arguments"], echo);
    }
    match (echo, message["content"].as_str().map(str::to_owned)) {
        (Echo::Respelled, Some(text)) => message["content"] = json!([{"type": "text", "text": text.trim()}]),
        (Echo::Respelled, None) => drop(message.as_object_mut().unwrap().remove("content")),
        (Echo::Scripted, None) => message["content"] = "".into(),
        _ => {}
    }
}

fn echo_arguments(arguments: &mut Value, echo: Echo) {
    match echo {
        Echo::AsItCame => {}
        Echo::Respelled => respell(arguments),
        Echo::Scripted => scripted(arguments),
    }
}

/// As JavaScript's `JSON.stringify` writes what it has read: numbers in their shortest form.
fn scripted(arguments: &mut Value) {
    fn numbers(value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(numbers),
            Value::Object(members) => members.values_mut().for_each(numbers),
            Value::Number(number) => {
                let float = number.as_f64().unwrap();
                if float.fract() == 0.0 && float.abs() < 1e15 {
                    *value = json!(float as i64);
                }
            }
            _ => {}
        }
    }
    let Ok(mut value) = serde_json::from_str::<Value>(arguments.as_str().unwrap()) else { return };
    numbers(&mut value);
    *arguments = value.to_string().into();
}

/// The message as a client puts it together from our stream, which must be one coherent stream.
fn assembled(stream: &[u8]) -> Result<Value, TestCaseError> {
    let text = std::str::from_utf8(stream).unwrap();
    let mut message = json!({"role": Value::Null, "content": Value::Null});
    let (mut ids, mut finishes, mut done) = (Vec::new(), 0, 0);
    for event in text.split_terminator("\n\n") {
        let Some(data) = event.lines().find_map(|line| line.strip_prefix("data: ")) else {
            prop_assert!(event.starts_with(':'), "{}", event);
            continue;
        };
        prop_assert_eq!(done, 0, "data after the end: {}", text);
        if data == "[DONE]" {
            done += 1;
            continue;
        }
        let chunk: Value =
            serde_json::from_str(data).map_err(|error| TestCaseError::fail(format!("{error}: {data}")))?;
        ids.push(chunk["id"].clone());
        for choice in chunk["choices"].as_array().unwrap() {
            finishes += usize::from(!choice["finish_reason"].is_null());
            join(&mut message, &choice["delta"])?;
        }
    }
    prop_assert!(ids.windows(2).all(|pair| pair[0] == pair[1]), "ids {:?}", ids);
    prop_assert_eq!((finishes, done), (1, 1), "finishes and ends in {}", text);
    Ok(message)
}

fn join(message: &mut Value, delta: &Value) -> Result<(), TestCaseError> {
    if !delta["role"].is_null() {
        prop_assert!(message["role"].is_null(), "a second role");
        message["role"] = delta["role"].clone();
    }
    if let Some(text) = delta["content"].as_str() {
        message["content"] = format!("{}{text}", message["content"].as_str().unwrap_or("")).into();
    }
    if delta.get("function_call").is_some() {
        if message.get("function_call").is_none() {
            message["function_call"] = json!({"name": delta["function_call"]["name"], "arguments": ""});
        }
        append(&mut message["function_call"]["arguments"], &delta["function_call"]["arguments"]);
    }
    for call in delta["tool_calls"].as_array().into_iter().flatten() {
        if message.get("tool_calls").is_none() {
            message["tool_calls"] = json!([]);
        }
        let calls = message["tool_calls"].as_array_mut().unwrap();
        let index = call["index"].as_u64().unwrap() as usize;
        prop_assert!(index <= calls.len(), "a gap before index {}", index);
        if index == calls.len() {
            calls.push(json!({"id": call["id"], "type": "function", "function": {"name": call["function"]["name"], "arguments": ""}}));
        }
        append(&mut calls[index]["function"]["arguments"], &call["function"]["arguments"]);
    }
    Ok(())
}

fn append(to: &mut Value, piece: &Value) {
    *to = format!("{}{}", to.as_str().unwrap(), piece.as_str().unwrap_or("")).into();
}
