//! Laws over recorded replies: they pass as they came where nothing acts, and each of their calls can be blocked alone. Runs
//! over the odd replies, and over the corpus too where `TOOLREIN_CORPUS` names its folder.

use super::client::blocks;
use super::*;
use std::path::PathBuf;

/// Blocks one call, known by its tool and its arguments.
#[derive(Clone, Default)]
struct BlocksOne {
    tool: String,
    arguments: Value,
}

impl Policy for BlocksOne {
    const NAME: &'static str = "blocks_one";
    const SUMMARY: &'static str = "for tests";
    type Config = ();
    type State = ();

    fn new(_: ()) -> Result<Self, Vec<ConfigError>> {
        Ok(Self::default())
    }

    fn about(&self) -> About {
        About { restricts_calls: true, ..About::default() }
    }

    fn judge(&self, call: &Proposed<'_>, _state: &()) -> Verdict {
        match call.arguments {
            _ if call.name != self.tool => Verdict::Allow,
            None => Verdict::NeedsArguments,
            Some(arguments) if value_of(arguments) == self.arguments => {
                Verdict::Block(Reason::new(ReasonKind::RateLimit, "no".to_owned()))
            }
            Some(_) => Verdict::Allow,
        }
    }
}

fn value_of(arguments: &str) -> Value {
    serde_json::from_str(arguments).unwrap_or_else(|_| arguments.into())
}

/// The recorded successes of the corpus, if there is one, as replies.
fn recorded() -> Vec<Variant> {
    let corpus = std::env::var_os("TOOLREIN_CORPUS").filter(|folder| !folder.is_empty());
    let Some(folder) = corpus.map(|folder| PathBuf::from(folder).join("messages")) else {
        return Vec::new();
    };
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.to_string_lossy().contains('+'));
    let mut found = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for said in text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
            let is_other = ["count_tokens", "models"].contains(&said["kind"].as_str().unwrap());
            let Some(body) = said["response"].as_str().filter(|_| said["status"] == 200 && !is_other) else {
                continue;
            };
            let form = if body.trim_start().starts_with('{') { Form::Whole } else { Form::Streamed };
            let name = format!("{} {}", said["unit"].as_str().unwrap(), said["n"]);
            found.push(Variant { name, form, body: body.to_owned() });
        }
    }
    assert!(found.len() > 500, "{}", found.len());
    found
}

/// Whether a policy that restricts calls leaves the stream as it came: not where the first event of a message has blocks, nor where
/// several messages follow each other.
fn is_plain(reply: &Variant) -> bool {
    let heads: Vec<Value> =
        events(&reply.body).into_iter().filter(|event| event["type"] == "message_start").collect();
    let is_empty = |head: &Value| head["message"]["content"].as_array().is_none_or(Vec::is_empty);
    heads.len() < 2 && heads.iter().all(is_empty)
}

#[test]
fn every_recorded_reply_passes_as_it_came_in_any_chunks_where_nothing_acts() {
    let nowhere = Blocks { tool: "", word: "atlantis, which no recorded call names" };
    for reply in recorded() {
        for (policy, observes) in [(None, false), (Some(nowhere), false), (Some(nowhere), true)] {
            if policy.is_some() && !observes && !is_plain(&reply) {
                continue;
            }
            for chunks in splits(&reply.body) {
                let mut judge = pipeline(judging(policy, observes), reply.form, Options::default());
                let (out, ending) = run(&mut judge, chunks);
                if ending == Ending::Refused {
                    let error = serde_json::from_str::<Value>(&reply.body).unwrap_or_default();
                    assert!(
                        error["type"] == "error" || reply.body.contains("event: error"),
                        "{}",
                        reply.name
                    );
                    break;
                }
                assert_eq!(ending, Ending::Complete, "{}", reply.name);
                assert_eq!(out, reply.body, "{}", reply.name);
                assert!(!judge.is_changed(), "{}", reply.name);
            }
        }
    }
}

#[test]
fn each_call_of_a_sound_recorded_reply_is_blocked_alone_and_the_others_are_left_as_they_were() {
    let own = variants().into_iter().filter(|variant| flaws(&variant.body).is_empty());
    let mut blocked = 0;
    for reply in own.chain(recorded()).filter(|reply| flaws(&reply.body).is_empty()) {
        let made = calls(&reply.body);
        for (tool, arguments) in &made {
            let policy = BlocksOne { tool: tool.clone(), arguments: value_of(arguments) };
            let is_it = |call: &(String, String)| call.0 == *tool && value_of(&call.1) == policy.arguments;
            let others: Vec<(String, String)> = made.iter().filter(|call| !is_it(call)).cloned().collect();
            assert_blocked(&reply, &policy, &others);
            blocked += 1;
        }
    }
    assert!(blocked > 30, "{blocked}");
}

/// Asserts that a client finds these calls and no other where a policy blocks one, however the reply comes.
fn assert_blocked(reply: &Variant, policy: &BlocksOne, others: &[(String, String)]) {
    let name = &reply.name;
    let mut first: Option<(String, Ending)> = None;
    for chunks in splits(&reply.body) {
        let mut judge = pipeline(judging_by(policy.clone()), reply.form, Options::default());
        let (mut out, mut ending) = run(&mut judge, chunks);
        if matches!(ending, Ending::Reask { .. }) {
            judge.continue_with(0);
            let later = match reply.form {
                Form::Streamed => text_reply("It is sunny."),
                Form::Whole => json!({"type": "message", "role": "assistant", "stop_reason": "end_turn",
                    "content": [{"type": "text", "text": "It is sunny."}], "usage": {"output_tokens": 1}})
                .to_string(),
            };
            let (more, end) = whole(&mut judge, &later);
            (out, ending) = (out + &more, end);
        }
        if ending == (Ending::BrokenOff(Unjudged::Ambiguous)) && name == "cut_mid_args" {
            return;
        }
        let is_cut = reasons(&reply.body).is_empty();
        assert_eq!(ending, Ending::Complete, "{name}");
        assert_eq!(
            calls(&out).iter().map(spelled).collect::<Vec<_>>(),
            others.iter().map(spelled).collect::<Vec<_>>(),
            "{name}: {out}"
        );
        if reply.form == Form::Streamed && !is_cut {
            assert_eq!(flaws(&out), [""; 0], "{name}: {out}");
        }
        assert!(is_cut || reasons(&out).len() == 1, "{name}: {out}");
        let shown = blocks(&out).len();
        assert!(shown > 0 || !others.is_empty(), "{name}: {out}");
        let first = first.get_or_insert_with(|| (out.clone(), Ending::Complete));
        assert_eq!(first.0, out, "{name}");
    }
}

fn spelled((tool, arguments): &(String, String)) -> (String, Value) {
    (tool.clone(), value_of(arguments))
}
