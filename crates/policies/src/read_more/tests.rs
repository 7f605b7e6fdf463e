//! Cases of `read_more`: when it is declared, what it answers, what it keeps back, its bound.

use super::*;
use crate::cases::{policy, read_knowing};
use crate::compact::Compact;
use crate::set::{Judge, Rule, Ruling};
use crate::truncate::Truncate;
use model::plan::{Change, Frame};
use model::request::Choice;
use model::testing::{SampleItem, SampleRequest, assistant, call, hidden_exchange, reply, result, user};
use serde_json::{Value, json};
use wire::escaped_text::EscapedText;

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
            "secret" => plan.edit(Change::BlockText { text: 0, by: "gone".into(), gone_chars: 10 }),
            "web" => plan.edit(Change::Surround { text: 0, frame: Frame::new("<data>\n", "\n</data>") }),
            "dirty" => plan.edit(Change::Shorten { text: 0, by: "washed".into(), gone_chars: 3 }),
            "hidden" => plan.edit(Change::Clean { text: 0, gone_chars: 1 }),
            _ => {}
        }
    }
}

fn rules(table: &str) -> Vec<Arc<dyn Rule>> {
    vec![policy::<Guard>(""), policy::<ReadMore>(table), policy::<Truncate>("max_chars = 1000")]
}

/// The plan and the judge of a request, before whose message at an index these items are hidden.
fn read(
    rules: &[Arc<dyn Rule>],
    request: &SampleRequest,
    hidden: &[(usize, [SampleItem; 2])],
) -> (Plan, Judge) {
    read_knowing(rules, request, |transcript| {
        hidden.iter().for_each(|(index, items)| transcript.add_hidden(*index, hidden_exchange(items)));
    })
}

/// A turn in which each of these tools gave a result of so many lines, a reply each.
fn items(results: &[(&str, usize)]) -> Vec<SampleItem> {
    let steps = results.iter().enumerate().flat_map(|(at, (tool, lines))| {
        let text: String = (1..=*lines).map(|n| format!("\"{tool}\" line {n}\n")).collect();
        let id = format!("c{at}");
        [reply([call(&id, tool, "{}")]), result(&id, &format!("{at}\n{text}"))]
    });
    std::iter::once(user("q")).chain(steps).collect()
}

/// The messages, with so many tools declared.
fn with_tools(items: &[SampleItem], count: usize) -> SampleRequest {
    let request = SampleRequest::new(items);
    (0..count).fold(request, |request, at| request.declaring(&format!("tool{at}"), "{}"))
}

/// The turn of [`items`], with a tool declared.
fn asked(results: &[(&str, usize)]) -> SampleRequest {
    with_tools(&items(results), 1)
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
    let choosing = |choice, forced_tool: Option<&str>| {
        let mut made = asked(&[]);
        made.request.choice = choice;
        made.request.forced_tool = forced_tool.map(str::to_owned);
        made
    };
    let with = |count| with_tools(&items(&[]), count);
    let listing_none = |declares_tools| {
        let mut made = with(0);
        made.request.declares_tools = declares_tools;
        made.request.takes_more_tools = true;
        made
    };
    let mut deprecated = asked(&[]).declaring("old", "{}");
    deprecated.request.takes_more_tools = false;
    for (request, declared, offered) in [
        (asked(&[("f", 1)]), true, true),
        (choosing(Choice::Auto, None), true, true),
        (choosing(Choice::None, None), true, true),
        (choosing(Choice::Forced, None), false, true),
        (choosing(Choice::Forced, Some("tool0")), false, true),
        (with(127), true, true),
        (with(128), false, false),
        // An empty list, and null in its place.
        (listing_none(true), false, false),
        (listing_none(false), false, false),
        (with(0).declaring(TOOL, "{}"), false, false),
        (deprecated, false, false),
    ] {
        let (plan, _) = read(&rules(""), &request, &[]);
        assert_eq!((plan.declared.len(), plan.reader().is_some()), (declared.into(), offered), "{request:?}");
    }
    let alone = |other: Arc<dyn Rule>| {
        let rules = vec![policy::<ReadMore>(""), other];
        read(&rules, &asked(&[]), &[]).0.declared.len()
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
    let (plan, mut judge) = read(&rules(table), &asked(&[("a", 1), ("b", 400)]), &[]);
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
    let (plan, mut judge) = read(&rules(""), &asked(&[("a", 1), ("b", 400)]), &[]);
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
    let (plan, mut judge) = read(&rules, &asked(&[("a", 300), ("b", 300), ("c", 1)]), &[]);
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
    let (_, mut judge) = read(&rules(""), &asked(&[("secret", 5), ("web", 5), ("dirty", 5)]), &[]);
    assert_eq!(
        answer(rule_on(&mut judge, r#"{"call":1}"#)),
        "[toolrein: the result of call 1 (secret) cannot be read]"
    );
    assert_eq!(
        answer(rule_on(&mut judge, r#"{"call":2,"lines":"2"}"#)),
        "<data>\n[toolrein: the result of call 2 (web): line 2 of 6]\n\"web\" line 1\n\n</data>"
    );
    assert!(answer(rule_on(&mut judge, r#"{"call":3}"#)).ends_with("\nwashed"));

    let mut items = items(&[("hidden", 0)]);
    items[2] = result("c0", "Sun\u{e0049}ny.");
    let (_, mut judge) = read(&rules(""), &with_tools(&items, 1), &[]);
    assert!(answer(rule_on(&mut judge, r#"{"call":1}"#)).ends_with("\nSunny."));
}

#[test]
fn the_limit_of_reads_in_a_turn_includes_those_in_hidden_exchanges() {
    let quoted = r#"{"id":"h","type":"function","function":{"name":"read_more","arguments":"{}"}}"#;
    let hidden = [(3, [reply([call("h", TOOL, "{}")]), result("h", quoted)])];
    let mut items = items(&[("a", 5), ("b", 5)]);
    let left = |items: &[SampleItem]| {
        let (_, mut judge) = read(&rules("reads = 3"), &with_tools(items, 1), &hidden);
        (0..9).take_while(|_| rule_on(&mut judge, r#"{"call":1}"#).answer.is_some()).count()
    };
    assert_eq!(left(&items), 2);
    let (_, mut judge) = read(&rules("reads = 1"), &with_tools(&items, 1), &hidden);
    let ruling = rule_on(&mut judge, r#"{"call":1}"#);
    let [(by, reason)] = ruling.objections.as_slice() else { panic!("{ruling:?}") };
    assert_eq!((*by, reason.kind), ("read_more", ReasonKind::BudgetExceeded));
    assert!(ruling.own && reason.message.contains("used 1 time in this turn"), "{}", reason.message);

    items.extend([assistant("a"), user("q")]);
    assert_eq!(left(&items), 3);
}

#[test]
fn a_tool_of_the_clients_is_left_alone() {
    let request = SampleRequest::new(&items(&[("a", 5)])).declaring(TOOL, "{}");
    let (_, mut judge) = read(&rules(""), &request, &[]);
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
