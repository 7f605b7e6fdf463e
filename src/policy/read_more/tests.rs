//! Cases of `read_more`: when it is declared, what it answers, what it keeps back, its bound.

use super::*;
use crate::conversation::Transcript;
use crate::conversation::memo::NoMemo;
use crate::plan::Change;
use crate::policy::cases::{policy, somebody};
use crate::policy::compact::Compact;
use crate::policy::set::{Judge, PolicySet, Rule, Ruling};
use crate::policy::truncate::Truncate;
use crate::wire::escaped_text::EscapedText;
use serde_json::{Value, json};

/// Keeps results of `secret` from the model and puts lines around those of `web`.
struct Guard;

impl Policy for Guard {
    const NAME: &'static str = "guard";
    const SUMMARY: &'static str = "";
    type Config = Value;
    type State = ();

    fn new(_config: Value) -> Result<Self, Vec<ConfigError>> {
        Ok(Self)
    }

    fn read(&self, event: &Event<'_>, (): &mut (), plan: &mut Plan) {
        let Event::Result(result) = event else { return };
        match result.tool() {
            "secret" => plan.block_text(0, "gone".into(), 10),
            "web" => plan.surround(0, Frame::new("<data>\n", "\n</data>")),
            "dirty" => plan.shorten(0, "washed".into(), 3),
            "hidden" => plan.clean(0, 1),
            _ => {}
        }
    }
}

fn rules(table: &str) -> Vec<Arc<dyn Rule>> {
    vec![policy::<Guard>(""), policy::<ReadMore>(table), policy::<Truncate>("max_chars = 1000")]
}

fn read(rules: Vec<Arc<dyn Rule>>, body: &Value, hidden: &[(usize, Bytes)]) -> (Plan, Judge) {
    let body = body.to_string();
    let request = crate::dialect::chat::parse(body.as_bytes()).unwrap();
    let identity = somebody();
    let mut transcript = Transcript::read(&request, body.as_bytes(), &identity, &NoMemo);
    transcript.hidden_exchanges = hidden.to_vec();
    PolicySet::new(rules).read(&transcript)
}

fn tools(count: usize) -> Value {
    let tool = |at: usize| json!({ "type": "function", "function": { "name": format!("tool{at}") } });
    (0..count).map(tool).collect()
}

/// A turn in which each of these tools gave a result of so many lines, a reply each.
fn asked(results: &[(&str, usize)]) -> Value {
    let mut messages = vec![json!({ "role": "user", "content": "q" })];
    for (at, (tool, lines)) in results.iter().enumerate() {
        let call = json!({ "id": "", "function": { "name": tool, "arguments": "{}" } });
        messages.push(json!({ "role": "assistant", "tool_calls": [call] }));
        let text: String = (1..=*lines).map(|n| format!("\"{tool}\" line {n}\n")).collect();
        messages.push(json!({ "role": "tool", "content": format!("{at}\n{text}") }));
    }
    json!({ "tools": tools(1), "messages": messages })
}

fn rule_on(judge: &mut Judge, arguments: &str) -> Ruling {
    judge.rule(0, TOOL, Some(arguments), 0)
}

fn answer(ruling: Ruling) -> String {
    assert!(ruling.own && ruling.objections.is_empty());
    ruling.answer.unwrap().1
}

#[test]
fn read_more_is_declared_only_if_the_client_sends_tools_and_results_may_be_cut() {
    let with = |name: &str, value: Value| {
        let mut body = asked(&[]);
        body[name] = value;
        body
    };
    let own = json!([{ "type": "function", "function": { "name": TOOL } }]);
    let forced = json!({ "type": "function", "function": { "name": "tool0" } });
    for (body, declared, offered) in [
        (asked(&[("f", 1)]), true, true),
        (with("tool_choice", json!("auto")), true, true),
        (with("tool_choice", json!("none")), true, true),
        (with("tool_choice", json!("required")), false, true),
        (with("tool_choice", forced), false, true),
        (with("tools", tools(127)), true, true),
        (with("tools", tools(128)), false, false),
        (with("tools", json!([])), false, false),
        (with("tools", Value::Null), false, false),
        (with("tools", own), false, false),
        (with("functions", json!([{ "name": "old" }])), false, false),
    ] {
        let (plan, _) = read(rules(""), &body, &[]);
        assert_eq!((plan.declared.len(), plan.reader().is_some()), (declared.into(), offered), "{body}");
    }
    let alone = |other: Arc<dyn Rule>| {
        let rules = vec![policy::<ReadMore>(""), other];
        read(rules, &asked(&[]), &[]).0.declared.len()
    };
    assert_eq!(alone(policy::<Guard>("")), 0);
    assert_eq!(alone(policy::<Truncate>("max_chars = 0\nduplicates = false")), 0);
    assert_eq!(alone(policy::<Truncate>("max_chars = 0\nduplicates = false\ntools = { f = 500 }")), 1);
    assert_eq!(alone(policy::<Compact>("")), 1);
}

#[test]
fn the_declaration_is_a_tool() {
    let tool: Value = serde_json::from_str(DECLARATION).unwrap();
    assert_eq!(tool["name"], json!(TOOL));
    let parameters = tool["parameters"]["properties"].as_object().unwrap();
    for (name, parameter) in parameters {
        assert!(parameter["description"].is_string(), "{name}");
    }
    assert_eq!(parameters.len(), 6);
}

#[test]
fn the_operators_texts_declare_and_answer() {
    let table = "reads = 3\ntexts.declared = \"Mehr \\\"lesen\\\".\"\ntexts.result = \"{tool} {call}: {part}\"\n\
                 texts.invalid = \"Nein: {problem}\"\ntexts.used_up = \"{tool}: {limit} mal.\"";
    let (plan, mut judge) = read(rules(table), &asked(&[("a", 1), ("b", 400)]), &[]);
    let declared: Value = serde_json::from_str(&plan.declared[0].tool).unwrap();
    assert_eq!(declared["description"], json!("Mehr \"lesen\"."));
    assert_eq!(answer(rule_on(&mut judge, r#"{"call":2,"from":1,"to":1}"#)), "b 2: character 1 of 5094\n1");
    assert!(answer(rule_on(&mut judge, "{}")).starts_with("Nein: give call: "));
    assert_eq!(answer(rule_on(&mut judge, r#"{"call":1,"from":1,"to":1}"#)), "a 1: character 1 of 13\n0");
    assert_eq!(rule_on(&mut judge, r#"{"call":1}"#).objections[0].1.message, "read_more: 3 mal.");
    let long = format!("texts.result = \"{}\"", "x".repeat(121));
    let config: Config = toml::from_str(&long).unwrap();
    assert_eq!(ReadMore::new(config).err().unwrap()[0].key, "texts.result");
}

#[test]
fn a_marker_names_the_call_and_the_call_is_answered_from_the_whole_result() {
    let (plan, mut judge) = read(rules(""), &asked(&[("a", 1), ("b", 400)]), &[]);
    let [edit] = plan.edits.as_slice() else { panic!("{:?}", plan.edits) };
    let Change::Shorten { by, .. } = &edit.change else { panic!("{edit:?}") };
    assert!(by.contains("; to see more, use read_more with call 2]"), "{by}");
    assert!(!by.contains("line 250\n"));
    assert_eq!(
        answer(rule_on(&mut judge, r#"{"call":2,"search":"line 250"}"#)),
        "[toolrein: the result of call 2 (b): 1 of 401 lines holds \"line 250\"]\n\
         …\n249: \"b\" line 248\n250: \"b\" line 249\n251: \"b\" line 250\n252: \"b\" line 251\n253: \"b\" line 252\n"
    );
    let ruling = rule_on(&mut judge, r#"{"call":1}"#);
    assert_eq!(ruling.re_request.as_deref(), Some("a"));
    assert_eq!(
        answer(ruling),
        "[toolrein: the result of call 1 (a): characters 1 to 13 of 13]\n0\n\"a\" line 1\n"
    );
    let ruling = rule_on(&mut judge, r#"{"call":3}"#);
    assert_eq!(ruling.re_request, None);
    assert_eq!(answer(ruling), "[toolrein: call 3 of this conversation has no result to read]");
    assert!(answer(rule_on(&mut judge, "{}")).starts_with("[toolrein: give call: "));
}

#[test]
fn what_was_cleared_can_be_read_as_well() {
    let compact = policy::<Compact>("context_window = 4000\ntrigger = 0.5\nmin_gain = 0\nkeep = 1");
    let rules = vec![policy::<ReadMore>(""), compact];
    let (plan, mut judge) = read(rules, &asked(&[("a", 300), ("b", 300), ("c", 1)]), &[]);
    let cleared: Vec<&EscapedText> = plan
        .edits
        .iter()
        .filter_map(|edit| if let Change::Clear { by, .. } = &edit.change { Some(by) } else { None })
        .collect();
    assert!(cleared[0].contains("Use read_more with call 1 if you need it. It began:]\n0\n"), "{cleared:?}");
    assert!(answer(rule_on(&mut judge, r#"{"call":1,"lines":"300"}"#)).ends_with("\"a\" line 299\n"));
}

#[test]
fn read_more_returns_nothing_that_other_policies_keep_from_the_model() {
    let (_, mut judge) = read(rules(""), &asked(&[("secret", 5), ("web", 5), ("dirty", 5)]), &[]);
    assert_eq!(
        answer(rule_on(&mut judge, r#"{"call":1}"#)),
        "[toolrein: the result of call 1 (secret) cannot be read]"
    );
    assert_eq!(
        answer(rule_on(&mut judge, r#"{"call":2,"lines":"2"}"#)),
        "<data>\n[toolrein: the result of call 2 (web): line 2 of 6]\n\"web\" line 1\n\n</data>"
    );
    assert!(answer(rule_on(&mut judge, r#"{"call":3}"#)).ends_with("\nwashed"));

    let mut body = asked(&[("hidden", 0)]);
    body["messages"][2]["content"] = json!("Sun\u{e0049}ny.");
    let (_, mut judge) = read(rules(""), &body, &[]);
    assert!(answer(rule_on(&mut judge, r#"{"call":1}"#)).ends_with("\nSunny."));
}

#[test]
fn the_limit_of_reads_in_a_turn_includes_those_in_hidden_exchanges() {
    let call = r#"{"id":"h","type":"function","function":{"name":"read_more","arguments":"{}"}}"#;
    let quoted = json!({ "role": "tool", "tool_call_id": "h", "content": call });
    let round = format!(r#"{{"role":"assistant","content":null,"tool_calls":[{call}]}},{quoted}"#);
    let hidden = [(3, Bytes::from(round))];
    let mut body = asked(&[("a", 5), ("b", 5)]);
    let left = |body: &Value| {
        let (_, mut judge) = read(rules("reads = 3"), body, &hidden);
        (0..9).take_while(|_| rule_on(&mut judge, r#"{"call":1}"#).answer.is_some()).count()
    };
    assert_eq!(left(&body), 2);
    let (_, mut judge) = read(rules("reads = 1"), &body, &hidden);
    let ruling = rule_on(&mut judge, r#"{"call":1}"#);
    let [(by, reason)] = ruling.objections.as_slice() else { panic!("{ruling:?}") };
    assert_eq!((*by, reason.kind), ("read_more", ReasonKind::BudgetExceeded));
    assert!(ruling.own && reason.message.contains("used 1 time in this turn"), "{}", reason.message);

    let messages = body["messages"].as_array_mut().unwrap();
    messages
        .extend([json!({ "role": "assistant", "content": "a" }), json!({ "role": "user", "content": "q" })]);
    assert_eq!(left(&body), 3);
}

#[test]
fn a_tool_of_the_clients_is_left_alone() {
    let mut body = asked(&[("a", 5)]);
    body["tools"] = json!([{ "type": "function", "function": { "name": TOOL } }]);
    let (_, mut judge) = read(rules(""), &body, &[]);
    assert_eq!(rule_on(&mut judge, r#"{"call":1}"#), Ruling::default());
    assert!(!judge.owns(TOOL));
}

#[test]
fn settings_too_small_are_refused() {
    let keys: Vec<String> = ReadMore::new(Config { reads: 0, max_chars: 999, ..Config::default() })
        .err()
        .unwrap()
        .into_iter()
        .map(|error| error.key)
        .collect();
    assert_eq!(keys, ["reads", "max_chars"]);
}
