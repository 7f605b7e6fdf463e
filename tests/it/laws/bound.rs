//! An agent on the Messages API, before an upstream that binds what the model thinks to all that came before it. Whatever
//! policies do, and whenever toolrein restarts or is configured anew, the upstream refuses no request for that, and the
//! client gets replies that its library can read. The upstream is the strict one of crate `mock`.

use bytes::Bytes;
use dialects::MESSAGES;
use dialects::prefix::read_request;
use engine::{
    Answer, Arrived, Effect, EffectResult, Exchange, Input, Now, Outgoing, Output, Shared, WholeReply,
};
use futures_util::FutureExt as _;
use mock::messages::{RequestHead, sign, violations};
use model::identity::{Hash, HashKey, Identity};
use model::record::{On, RequestRecord};
use policies::REGISTRY;
use proptest::prelude::*;
use serde_json::{Value, json};
use state::StateStore as _;
use state::memo::MemoCache;
use state::memory::{Bounds, Memory};
use std::sync::Arc;
use std::time::{Duration, Instant};
use toolrein::config::{Config, Overrides, Source};

const BOUNDS: Bounds = Bounds {
    calls: 100_000,
    hidden_exchange_bytes: 1 << 26,
    conversations: 10_000,
    lifetime: Duration::from_secs(86_400),
    refusals: Duration::from_secs(86_400),
};

/// Configurations under which much happens: each adds to the one before.
const CONFIGS: [&str; 5] = [
    "",
    "base = \"none\"\n[policy.truncate]\nmax_chars = 200\n[policy.budget]\ntool_calls = 4\nnotify_at = [0.3, 0.6]\nnotify = \"every_result\"\n",
    "base = \"none\"\n[reask]\nmax = 2\n[policy.rate_limit]\ndefault = { calls = 1, per = \"60s\" }\n[policy.loops]\nnotice = 2\nblock = 3\n[policy.arguments]\nstrict = true\n",
    "base = \"none\"\n[policy.allow]\nexcept = [\"pay\"]\n[policy.turn_limits]\ncalls = 3\nparallel = 1\n[policy.budget]\ntool_calls = 5\nnotify_at = [0.3]\n[policy.redact]\n",
    "base = \"none\"\n[policy.truncate]\nmax_chars = 300\n[policy.compact]\ncontext_window = 1200\ntrigger = 0.5\nkeep = 1\nmin_gain = 0\n[policy.history]\nmax_tokens = 300\ndown_to = 0.5\n",
];

/// One reply of the model.
#[derive(Clone, Debug)]
struct Reply {
    thinks: bool,
    text: Option<String>,
    /// The tool and its argument.
    calls: Vec<(&'static str, u8)>,
    /// It thinks between its calls too.
    thinks_again: bool,
}

/// What happens before a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    /// toolrein starts anew, with nothing in its state store.
    Restart,
    /// toolrein goes on with the configuration of this number.
    Reload(usize),
}

/// How the client sends a reply back.
#[derive(Clone, Copy, Debug)]
enum Echo {
    AsItCame,
    /// Members in another order, and members that say nothing left out.
    Respelled,
}

#[derive(Clone, Debug)]
struct Run {
    config: usize,
    replies: Vec<Reply>,
    before: Vec<Before>,
    echo: Echo,
    streams: bool,
    /// The client marks the newest block for the cache.
    marks: bool,
    /// Characters of a result.
    result: usize,
    /// Texts after results.
    reminds: bool,
}

fn reply() -> impl Strategy<Value = Reply> {
    let call = (prop_oneof![Just("look"), Just("read"), Just("pay")], 0..3_u8);
    let calls = prop_oneof![
        1 => Just(Vec::new()),
        4 => prop::collection::vec(call, 1..4),
    ];
    let text = prop_oneof![Just(None), "[a-z]{1,9}".prop_map(Some)];
    (any::<bool>(), text, calls, prop::bool::weighted(0.3))
        .prop_map(|(thinks, text, calls, thinks_again)| Reply { thinks, text, calls, thinks_again })
}

fn run(disturbed: bool) -> impl Strategy<Value = Run> {
    let before = prop_oneof![
        6 => Just(Before::Nothing),
        1 => Just(Before::Restart),
        1 => (0..CONFIGS.len()).prop_map(Before::Reload),
    ];
    let before = prop::collection::vec(before, 24)
        .prop_map(move |before| if disturbed { before } else { vec![Before::Nothing; 24] });
    let echo = prop_oneof![Just(Echo::AsItCame), Just(Echo::Respelled)];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let sizes = prop_oneof![Just(20_usize), Just(700)];
    (0..CONFIGS.len(), prop::collection::vec(reply(), 4..14), before, echo, flags, sizes).prop_map(
        |(config, replies, before, echo, (streams, marks, reminds), result)| Run {
            config,
            replies,
            before,
            echo,
            streams,
            marks,
            result,
            reminds,
        },
    )
}

/// toolrein, with its state.
struct Process {
    shared: Arc<Shared>,
    store: Memory,
    now_ms: u64,
}

fn shared(config: usize) -> Arc<Shared> {
    let source = Source::Text { name: "law.toml".to_owned(), text: CONFIGS[config].to_owned() };
    let config = Arc::new(Config::load(source, &Overrides::default(), REGISTRY).unwrap());
    Arc::new(Shared {
        settings: Arc::new(config.engine_settings()),
        memo: Arc::new(MemoCache::new(1 << 22)),
        key: HashKey::fixed(1),
        secret: HashKey::fixed(2),
        upstream: "upstream".to_owned(),
        summaries: Arc::new(model::summaries::NoSummaries),
    })
}

/// What came of one request of the client's.
#[derive(Default)]
struct Passed {
    sent: Vec<Bytes>,
    /// The violations of each request that was sent.
    refused: Vec<Vec<String>>,
    status: u16,
    body: Vec<u8>,
    left_out: Vec<String>,
}

impl Process {
    fn pass(&mut self, body: &Bytes, model: &mut Model, streams: bool) -> Passed {
        self.now_ms += 1_000;
        let request = read_request(MESSAGES, body, &self.shared.key, &*self.shared.memo).unwrap();
        let arrived = Arrived {
            dialect: MESSAGES,
            body: body.clone(),
            identity: Identity { key: HashKey::fixed(1), caller: Hash(7), explicit: None },
            profile: None,
            tier: None,
            reports: false,
            path: "/v1/messages".to_owned(),
            request,
        };
        let now = Now { at: Instant::now(), ms: self.now_ms };
        let mut exchange =
            Exchange::begin(Arc::clone(&self.shared), arrived, Box::<RequestRecord>::default(), now);
        let mut passed = Passed { status: 200, ..Passed::default() };
        let mut replies: Vec<Bytes> = Vec::new();
        while let Some(output) = exchange.poll() {
            match output {
                Output::Start(id, Effect::LookUp(batch)) => {
                    let answers = self.store.look_up(*batch).now_or_never().unwrap();
                    exchange.handle(Input::Finished(id, EffectResult::LookedUp(Box::new(answers))), now);
                }
                Output::Store(writes) => self.store.record(*writes),
                Output::Send(Outgoing { pieces, .. }) => {
                    let sent = Bytes::from(pieces.concat());
                    let (status, reply) = model.answer(&sent, &mut passed.refused);
                    passed.sent.push(sent);
                    if streams && status == 200 {
                        exchange.handle(Input::StreamBegins { ends_by_closing: false }, now);
                        for piece in model.streamed(&reply).chunks(37) {
                            exchange.handle(Input::Bytes(Bytes::copy_from_slice(piece)), now);
                        }
                        exchange.handle(Input::End, now);
                    } else {
                        let body = Bytes::from(reply.to_string());
                        let id = replies.len() as u32;
                        replies.push(body.clone());
                        exchange.handle(Input::Reply(WholeReply { id, status, body: Ok(body) }), now);
                    }
                }
                Output::Emit(bytes) => passed.body.extend_from_slice(&bytes),
                Output::Answer(Answer::AsItCame(id)) => passed.body = replies[id as usize].to_vec(),
                Output::Answer(Answer::Edited(_, pieces) | Answer::Own(pieces)) => {
                    passed.body = pieces.concat();
                }
                Output::Answer(Answer::Restated { status, body, .. }) => {
                    (passed.status, passed.body) = (status, body.to_vec());
                }
                Output::Answer(Answer::Error(error)) => {
                    (passed.status, passed.body) = (599, error.message().into_bytes());
                }
                Output::BreakOff(_) => passed.status = 598,
                Output::Start(_, other) => panic!("no configuration here asks for {other:?}"),
                _ => {}
            }
        }
        let closed = exchange.close(now);
        closed.writes.into_iter().for_each(|writes| self.store.record(writes));
        let acts =
            closed.record.actions.iter().filter(|act| act.on == On::Request && act.policy == "thinking");
        passed.left_out = acts.map(|act| act.action.to_string()).collect();
        passed
    }
}

/// The model, and the upstream's rules.
struct Model {
    replies: std::vec::IntoIter<Reply>,
    head: RequestHead,
    calls: usize,
    messages: usize,
}

impl Model {
    fn answer(&mut self, body: &[u8], refused: &mut Vec<Vec<String>>) -> (u16, Value) {
        let found = violations(&self.head, body);
        refused.push(found.clone());
        if let Some(message) = found.first() {
            let error = json!({"type": "invalid_request_error", "message": message});
            return (400, json!({"type": "error", "error": error, "request_id": "req_1"}));
        }
        let request: Value = serde_json::from_slice(body).unwrap();
        let may_call = request["tool_choice"]["type"] != "none";
        let next = self.replies.next();
        let reply = next.unwrap_or(Reply {
            thinks: false,
            text: Some("That is all.".to_owned()),
            calls: Vec::new(),
            thinks_again: false,
        });
        let mut content: Vec<Value> = Vec::new();
        let think = |content: &mut Vec<Value>| {
            let mut before = request.clone();
            if !content.is_empty() {
                let said = json!({"role": "assistant", "content": content});
                before["messages"].as_array_mut().unwrap().push(said);
            }
            let thought = "hm";
            content
                .push(json!({"type": "thinking", "thinking": thought, "signature": sign(&before, thought)}));
        };
        if reply.thinks {
            think(&mut content);
        }
        content.extend(reply.text.as_ref().map(|text| json!({"type": "text", "text": text})));
        for (at, (tool, argument)) in reply.calls.iter().filter(|_| may_call).enumerate() {
            if at > 0 && reply.thinks && reply.thinks_again {
                think(&mut content);
            }
            self.calls += 1;
            let id = format!("toolu_01Qx7Rz{:04}kPq", self.calls);
            content.push(json!({"type": "tool_use", "id": id, "name": tool, "input": {"q": argument}}));
        }
        let calls = content.iter().any(|block| block["type"] == "tool_use");
        self.messages += 1;
        let reason = if calls { "tool_use" } else { "end_turn" };
        let id = format!("msg_{}", self.messages);
        (
            200,
            json!({"id": id, "type": "message", "role": "assistant", "model": "claude-opus-5-5",
            "content": content, "stop_reason": reason, "stop_sequence": null,
            "usage": {"input_tokens": 10, "output_tokens": 5}}),
        )
    }

    /// The reply as events.
    fn streamed(&self, reply: &Value) -> Vec<u8> {
        let mut head = reply.clone();
        (head["content"], head["stop_reason"]) = (json!([]), Value::Null);
        let mut events = vec![json!({"type": "message_start", "message": head})];
        for (index, block) in reply["content"].as_array().unwrap().iter().enumerate() {
            let (mut start, deltas) = (block.clone(), deltas_of(block));
            for (member, empty) in
                [("text", json!("")), ("thinking", json!("")), ("signature", json!("")), ("input", json!({}))]
            {
                if !start[member].is_null() {
                    start[member] = empty;
                }
            }
            events.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
            events.extend(
                deltas
                    .into_iter()
                    .map(|delta| json!({"type": "content_block_delta", "index": index, "delta": delta})),
            );
            events.push(json!({"type": "content_block_stop", "index": index}));
        }
        let delta = json!({"stop_reason": reply["stop_reason"], "stop_sequence": null});
        events.push(json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}}));
        events.push(json!({"type": "message_stop"}));
        let lines = events
            .iter()
            .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()));
        lines.collect::<String>().into_bytes()
    }
}

fn deltas_of(block: &Value) -> Vec<Value> {
    match block["type"].as_str().unwrap() {
        "text" => vec![json!({"type": "text_delta", "text": block["text"]})],
        "thinking" => vec![
            json!({"type": "thinking_delta", "thinking": block["thinking"]}),
            json!({"type": "signature_delta", "signature": block["signature"]}),
        ],
        _ => {
            let input = block["input"].to_string();
            let (one, two) = input.split_at(input.len() / 2);
            vec![
                json!({"type": "input_json_delta", "partial_json": one}),
                json!({"type": "input_json_delta", "partial_json": two}),
            ]
        }
    }
}

/// A stream as the helpers of Anthropic's libraries read it.
fn joined(stream: &[u8]) -> Result<Value, String> {
    let text = String::from_utf8_lossy(stream);
    let (mut message, mut arguments, mut has_ended) = (Value::Null, Vec::<String>::new(), false);
    for event in text.split("\n\n").filter_map(|event| event.split_once("data: ")) {
        let event: Value = serde_json::from_str(event.1).map_err(|error| error.to_string())?;
        if has_ended {
            return Err(format!("{event} after the end"));
        }
        let at = event["index"].as_u64().unwrap_or_default() as usize;
        match event["type"].as_str().unwrap_or_default() {
            "message_start" if message.is_null() => message = event["message"].clone(),
            "content_block_start" => {
                let content = message["content"].as_array_mut().ok_or("no message")?;
                if content.len() != at {
                    return Err(format!("a gap before {event}"));
                }
                content.push(event["content_block"].clone());
                arguments.push(String::new());
            }
            "content_block_delta" => {
                let delta = event["delta"].as_object().ok_or("no delta")?;
                for (name, value) in delta.iter().filter(|(name, _)| *name != "type") {
                    let more = value.as_str().unwrap_or_default();
                    if name == "partial_json" {
                        arguments.get_mut(at).ok_or("no block")?.push_str(more);
                    } else {
                        let known = message["content"][at][name].as_str().unwrap_or_default().to_owned();
                        message["content"][at][name] = (known + more).into();
                    }
                }
            }
            "content_block_stop" => {
                if !arguments[at].is_empty() {
                    message["content"][at]["input"] =
                        serde_json::from_str(&arguments[at]).map_err(|error| error.to_string())?;
                }
            }
            "message_delta" => {
                message["stop_reason"] = event["delta"]["stop_reason"].clone();
                event["usage"].as_object().ok_or("no usage")?;
            }
            "message_stop" => has_ended = true,
            "ping" => {}
            _ => return Err(format!("not expected: {event}")),
        }
    }
    if has_ended { Ok(message) } else { Err("no end".to_owned()) }
}

/// The client's block as this client sends it back.
fn echoed(block: &Value, echo: Echo) -> Value {
    match (echo, block) {
        (Echo::Respelled, Value::Object(members)) => {
            Value::Object(members.iter().rev().map(|(name, value)| (name.clone(), value.clone())).collect())
        }
        _ => block.clone(),
    }
}

fn body(messages: &[Value], run: &Run) -> Bytes {
    let mut messages = messages.to_vec();
    if run.marks
        && let Some(block) = messages.last_mut().and_then(|last| last["content"].as_array_mut()?.last_mut())
    {
        block["cache_control"] = json!({"type": "ephemeral"});
    }
    let schema = json!({"type": "object", "properties": {"q": {"type": "integer"}}});
    let tools: Vec<Value> =
        ["look", "read", "pay"].iter().map(|name| json!({"name": name, "input_schema": schema})).collect();
    json!({"model": "claude-opus-5-5", "max_tokens": 1000, "system": "Help.", "stream": run.streams,
        "thinking": {"type": "adaptive"}, "tools": tools, "messages": messages})
    .to_string()
    .into()
}

/// Runs the agent to its end; how often thinking was left out, by cause.
fn play(run: &Run) -> Result<Vec<String>, TestCaseError> {
    let mut process =
        Process { shared: shared(run.config), store: Memory::new(&BOUNDS), now_ms: 1_790_000_000_000 };
    let head = RequestHead::from_headers([("anthropic-version", "2023-06-01")]);
    let mut model = Model { replies: run.replies.clone().into_iter(), head, calls: 0, messages: 0 };
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    let mut messages = vec![json!({"role": "user", "content": text("q0")})];
    let mut left_out = Vec::new();
    let (mut config, mut is_forgotten) = (run.config, false);
    for (nth, before) in run.before.iter().enumerate() {
        match before {
            Before::Nothing => {}
            Before::Restart => {
                process.store = Memory::new(&BOUNDS);
                process.shared = shared(config);
                is_forgotten = true;
            }
            Before::Reload(next) => {
                config = *next;
                process.shared = shared(config);
            }
        }
        let body = body(&messages, run);
        let passed = process.pass(&body, &mut model, run.streams);
        let shown = || String::from_utf8_lossy(&passed.body).into_owned();
        left_out.extend(passed.left_out.iter().cloned());
        let refusals: Vec<&Vec<String>> = passed.refused.iter().filter(|found| !found.is_empty()).collect();
        // After its store was lost toolrein may learn from one refusal what it has to leave out.
        prop_assert!(
            refusals.len() <= usize::from(is_forgotten),
            "{refusals:?}\n{}\n{}",
            String::from_utf8_lossy(&body),
            String::from_utf8_lossy(passed.sent.last().unwrap())
        );
        is_forgotten &= refusals.is_empty() && passed.left_out.is_empty();
        prop_assert_eq!(passed.status, 200, "{}", shown());
        let reply = if run.streams {
            joined(&passed.body).map_err(|why| TestCaseError::fail(format!("{why}: {}", shown())))?
        } else {
            serde_json::from_slice::<Value>(&passed.body).unwrap()
        };
        prop_assert!(reply["content"].is_array(), "{}", reply);
        let content = reply["content"].as_array().unwrap();
        let calls: Vec<&Value> = content.iter().filter(|block| block["type"] == "tool_use").collect();
        prop_assert_eq!(reply["stop_reason"] == "tool_use", !calls.is_empty(), "{}", reply);
        if content.is_empty() {
            break;
        }
        let echo: Vec<Value> = content.iter().map(|block| echoed(block, run.echo)).collect();
        messages.push(json!({"role": "assistant", "content": echo}));
        let mut next: Vec<Value> = calls
            .iter()
            .map(|call| {
                let result = format!("{} {}", call["input"], "word ".repeat(run.result / 5));
                json!({"type": "tool_result", "tool_use_id": call["id"], "content": result})
            })
            .collect();
        if next.is_empty() {
            if model.replies.len() == 0 {
                break;
            }
            next = vec![json!({"type": "text", "text": format!("q{}", nth + 1)})];
        } else if run.reminds {
            next.push(json!({"type": "text", "text": "<system-reminder>go on</system-reminder>"}));
        }
        messages.push(json!({"role": "user", "content": next}));
    }
    Ok(left_out)
}

proptest! {
    #![proptest_config(crate::laws::with_cases(150))]

    #[test]
    fn the_upstream_accepts_every_request_of_an_agent_whose_model_thinks(run in run(false)) {
        play(&run)?;
    }

    #[test]
    fn a_restart_or_a_new_configuration_takes_thinking_out_and_gives_the_client_no_error(run in run(true)) {
        play(&run)?;
    }
}

#[test]
fn in_an_undisturbed_conversation_thinking_leaves_for_cleared_results_alone() {
    use proptest::strategy::ValueTree as _;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut without, mut cleared) = (0, 0);
    for _ in 0..100 {
        let run = run(false).new_tree(&mut runner).unwrap().current();
        let left_out = play(&run).unwrap();
        let clears = matches!(run.config, 0 | 4);
        assert!(clears || left_out.is_empty(), "{left_out:?} with {run:?}");
        without += usize::from(!clears);
        cleared += left_out.len();
    }
    assert!(without > 30 && cleared > 5, "{without} {cleared}");
}
