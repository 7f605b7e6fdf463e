//! Cases: when a model is advised to ask, and what becomes of its questions.

use super::super::budget::Budget;
use super::super::cases::{plan_of, plan_together, policy, read, somebody};
use super::super::scenario::problem;
use super::*;
use crate::set::{Judge, Ruling};
use ask::TOOL;
use model::plan::{Change, ReasonKind};
use model::request::Choice;
use model::testing::{SampleItem, SampleRequest, assistant, call, reply, result, system, user};
use wire::json::quote;

/// A call as its tool and arguments, and its result.
type Pair<'a> = (&'a str, &'a str, &'a str);

const RULES: &str = "The rules of chess: the king moves one square.";

/// A user's question, and these calls made one after the other.
fn items(pairs: &[Pair<'_>]) -> Vec<SampleItem> {
    let steps = pairs.iter().enumerate().flat_map(|(at, (tool, arguments, text))| {
        let id = format!("c{at}");
        [reply([call(&id, tool, arguments)]), result(&id, text)]
    });
    std::iter::once(user("q")).chain(steps).collect()
}

/// These messages, with a tool declared.
fn talk(items: &[SampleItem]) -> SampleRequest {
    SampleRequest::new(items).declaring("search", r#"{"type":"object"}"#)
}

fn searches<'a>(queries: &'a [String], results: &[&'a str]) -> Vec<Pair<'a>> {
    queries.iter().zip(results).map(|(query, result)| ("search", query.as_str(), *result)).collect()
}

fn queries(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| format!("{{\"query\":{}}}", quote(text))).collect()
}

/// Each notice: the number of results before it, its text.
fn notices(table: &str, pairs: &[Pair<'_>]) -> Vec<(usize, String)> {
    let plan = plan_of(&policy::<AskUser>(table), &talk(&items(pairs)));
    let texts = plan.edits.into_iter().map(|edit| match edit.change {
        Change::Notice { text, .. } => (edit.item.index / 2, text),
        other => panic!("{other:?}"),
    });
    texts.collect()
}

#[test]
fn a_model_that_searches_in_vain_is_advised_once() {
    let asked = queries(&["Anna Sato", "address of her office", "phone list", "Kyoto staff", "team page"]);
    let none = "[toolrein] 3 search results in a row brought nothing for their queries; ask which source, name or term \
                to look for. Answer with what you have, or end your turn with one short question to the user.";
    for (results, told) in [
        (["[]", "no results", "null", "[]", "{}"], Some(3)),
        (["Error: timeout", r#"{"error":"down"}"#, "[]", "x", "y"], Some(3)),
        (["Cats", "Dogs and cats", "Birds", "", ""], Some(3)),
        (["[]", "[]", "Phones: list of the house", "[]", "[]"], None),
        (["Anna Sato, Kyoto", "[]", "[]", "staff in Kyoto", "[]"], None),
    ] {
        let found = notices("errors = 0", &searches(&asked, &results));
        assert_eq!(
            found,
            told.map(|at| (at, none.to_owned())).into_iter().collect::<Vec<_>>(),
            "{results:?}"
        );
    }
    assert_eq!(notices("poor = 0\nerrors = 0", &searches(&asked, &["[]"; 5])), []);
    assert_eq!(notices("poor = 4\nerrors = 0", &searches(&asked, &["[]"; 5]))[0].0, 4);
}

#[test]
fn a_quality_reported_by_the_tool_outweighs_the_words_of_the_result() {
    let table = "quality = { path = \"quality.level\", good = [\"High\", \"2\"] }";
    let asked = queries(&["chess rules", "king moves", "castling"]);
    for (results, told) in [
        (
            [r#"{"quality":{"level":"low"},"text":"chess rules"}"#, r#"{"quality":{"level":"poor"}}"#, "[]"],
            true,
        ),
        ([r#"{"quality":{"level":"low"}}"#, r#"{"quality":{"level":" HIGH"}}"#, "[]"], false),
        ([r#"{"quality":{"level":1}}"#, "[]", r#"{"quality":{"level":2},"results":[]}"#], false),
        // It says nothing of these.
        (["[]", RULES, "[]"], false),
        ([r#"{"quality":{"level":null},"text":"cats"}"#, "dogs", "[]"], true),
    ] {
        assert_eq!(!notices(table, &searches(&asked, &results)).is_empty(), told, "{results:?}");
    }
}

#[test]
fn a_result_that_reports_its_quality_level_needs_no_setting() {
    let asked = queries(&["chess rules", "king moves", "castling"]);
    let level = |level: &str| {
        format!(r#"{{"quality":{{"level":"{level}"}},"text":"chess rules king moves castling"}}"#)
    };
    for (table, levels, told) in [
        ("", ["low"; 3], true),
        ("", ["low", "low", "high"], false),
        ("", ["medium"; 3], false),
        ("quality = { good = [\"high\"] }", ["medium"; 3], true),
        ("quality = { good = [\"high\"] }", ["medium", "HIGH", "low"], false),
        ("quality = { path = \"\" }", ["low"; 3], false),
    ] {
        let results = levels.map(level);
        let results: Vec<&str> = results.iter().map(String::as_str).collect();
        let table = format!("diminishing = 0\n{table}");
        assert_eq!(!notices(&table, &searches(&asked, &results)).is_empty(), told, "{table} {levels:?}");
    }
}

#[test]
fn searches_that_are_answered_by_pictures_have_brought_something() {
    let picture = r#"{"picture":"u"}"#;
    let after = [SampleItem::user_parts().other(picture)];
    for (is_beside, after, told) in [(false, &[][..], 1), (false, &after[..], 0), (true, &[][..], 0)] {
        let mut items = vec![user("q")];
        for at in 0..4 {
            let id = format!("c{at}");
            items.push(reply([call(&id, "search", &format!(r#"{{"q":"cat {at}"}}"#))]));
            items.push(match is_beside {
                true => SampleItem::result_parts(&id).text("See below.").other(picture),
                false => result(&id, "See below."),
            });
            items.extend_from_slice(after);
        }
        let plan = plan_of(&policy::<AskUser>("diminishing = 0"), &SampleRequest::new(&items));
        assert_eq!(plan.edits.len(), told, "{items:?}");
    }
}

#[test]
fn a_lookup_that_has_no_query_may_find_nothing() {
    let route = |from: &str| format!(r#"{{"origin":"{from}","destination":"JFK"}}"#);
    let routes = ["SEA", "LAX", "SFO"].map(route);
    assert_eq!(notices("", &searches(&routes, &["[]"; 3])), []);
    let only = ["SEA", "LAX", "SFO"].map(|from| format!(r#"{{"place":"{from}"}}"#));
    assert_eq!(notices("", &searches(&only, &["[]"; 3])).len(), 1, "the only argument is the query");
    let low = [r#"{"quality":"low"}"#; 3];
    assert_eq!(notices("quality = { path = \"quality\" }", &searches(&routes, &low)).len(), 1);
}

#[test]
fn the_same_topic_counts_whatever_the_order_and_the_filling_words() {
    let good = "pizza best in rome 2024 pizzeria: one\ntwo\nthree";
    for (texts, told) in [
        (["best pizza in Rome", "Rome: the best pizzas?", "what is the best pizza of Rome"], true),
        (["Wo gibt es die beste Pizza in Rome", "Pizza Rome beste", "beste Pizza, Rome!"], true),
        (["pizza rome", "pizza milan", "pizza naples"], false),
        // The first three content words are the same; the others are not.
        (
            [
                "What is the best pizza in Rome for two people",
                "best pizza Rome near the old station",
                "the best pizzas, Rome, open on a Sunday night",
            ],
            true,
        ),
        (
            [
                "best pizza in Rome for two people",
                "best pizza in Milan near the old station",
                "best pizza in Naples, open on a Sunday night",
            ],
            false,
        ),
        (["東京 の 天気", "東京の天気", "天気、東京の"], false),
        (["東京の天気", "東京の天気？", "「東京の天気」"], true),
        (["the", "of", "what is it"], false),
    ] {
        let results = [0, 1, 2].map(|at| format!("{good} {} {at}", texts[at]));
        let results: Vec<&str> = results.iter().map(String::as_str).collect();
        let found = notices("diminishing = 0", &searches(&queries(&texts), &results));
        assert_eq!(found.len(), usize::from(told), "{texts:?} {found:?}");
        if told {
            assert!(
                found[0].1.contains("The same topic was searched 3 times in this turn; ask what"),
                "{found:?}"
            );
        }
    }
}

#[test]
fn other_pages_and_other_tools_do_not_repeat_a_topic() {
    let query = |page: &str| format!(r#"{{"q":"pizza rome"{page}}}"#);
    for (calls, told) in [
        ([("search", ""), ("search", ""), ("search", "")], true),
        ([("search", ",\"page\":1"), ("search", ",\"page\":2"), ("search", ",\"page\":3")], false),
        ([("search", ""), ("search", ",\"limit\":5"), ("search", ",\"limit\":50")], true),
        ([("search_notes", ""), ("search_tasks", ""), ("search_files", "")], false),
        ([("fetch", ""), ("fetch", ""), ("fetch", "")], false),
    ] {
        let arguments = calls.map(|(_, page)| query(page));
        let results = [0, 1, 2].map(|at| format!("pizza rome {at}\n{at}a\n{at}b"));
        let pairs: Vec<Pair<'_>> =
            (0..3).map(|at| (calls[at].0, arguments[at].as_str(), results[at].as_str())).collect();
        assert_eq!(notices("", &pairs).len(), usize::from(told), "{calls:?}");
    }
}

#[test]
fn results_that_bring_little_new_are_reported_with_their_share() {
    let page = |lines: std::ops::Range<usize>| lines.map(|at| format!("pizza {at}\n")).collect::<String>();
    let asked = queries(&["pizza", "pizza oven", "pizza flour", "pizza cheese"]);
    let (one, two, three, four) = (page(0..10), page(2..12), page(2..14), page(20..30));
    for (results, told) in [
        ([&one, &two, &three, &four], Some((3, "83%"))),
        ([&one, &two, &four, &two], None),
        ([&one, &one, &one, &one], Some((3, "100%"))),
        ([&one, &four, &one, &two], Some((4, "80%"))),
    ] {
        let results = results.map(String::as_str);
        let found = notices("same_topic = 0", &searches(&asked, &results));
        assert_eq!(found.len(), usize::from(told.is_some()), "{found:?}");
        if let Some((at, share)) = told {
            assert_eq!(found[0].0, at);
            assert!(
                found[0].1.contains(&format!("{share} of the last result was in earlier results")),
                "{found:?}"
            );
        }
    }
}

#[test]
fn errors_count_if_consecutive_for_any_tool_or_similar_within_the_turn() {
    let fails = |text: &'static str| ("run", "{}", text);
    let works = ("run", "{}", "done");
    let (a, b) = (fails("Error: port 80 is taken"), fails("Error: port 8080 is taken"));
    for (pairs, told) in [
        (
            vec![fails("Error: x"), ("see", "{}", "Error: y"), fails("Error: z")],
            Some("3 calls in a row failed"),
        ),
        (vec![a, works, b, works, a], Some("The same error came 3 times")),
        (vec![fails("Error: x"), works, fails("Error: y"), works, fails("Error: z")], None),
        (vec![a, b, works, works], None),
    ] {
        let found = notices("errors = 3", &pairs);
        assert_eq!(found.len(), usize::from(told.is_some()), "{pairs:?} {found:?}");
        assert!(told.is_none_or(|told| found[0].1.contains(told)), "{found:?}");
    }
}

#[test]
fn a_low_budget_is_announced_once_a_turn_whichever_policy_keeps_it() {
    let calls = |count: usize| vec![("f", "{}", "ok"); count];
    let texts = |table: &str, limit: usize, count: usize| {
        let rules = [policy::<Budget>(&format!("tool_calls = {limit}")), policy::<AskUser>(table)];
        let plan = plan_together(&rules, &talk(&items(&calls(count))), false);
        let own = plan.edits.into_iter().filter(|edit| edit.policy == "ask_user");
        own.map(|edit| (edit.item.index / 2, edit.change.text().to_owned())).collect::<Vec<_>>()
    };
    for (table, limit, count, told) in [
        ("", 10, 7, None),
        ("", 10, 8, Some((8, "20% of the budget is left"))),
        ("", 10, 10, Some((8, "20% of the budget is left"))),
        ("", 0, 10, None),
        ("budget_left = 0", 10, 10, None),
        ("budget_left = 0.6", 10, 5, Some((5, "50% of the budget is left"))),
    ] {
        let found = texts(table, limit, count);
        assert_eq!(found.len(), usize::from(told.is_some()), "{table} {limit} {count} {found:?}");
        if let Some((at, says)) = told {
            assert!(found[0].0 == at && found[0].1.contains(says), "{found:?}");
        }
    }
}

#[test]
fn triggers_at_the_same_message_give_one_notice_and_a_new_turn_starts_over() {
    let asked = queries(&["chess", "chess", "chess"]);
    let mut pairs = searches(&asked, &["Error: a", "Error: b", "Error: c"]);
    pairs.extend(pairs.clone());
    let found = notices("", &pairs);
    assert_eq!(found.len(), 1, "{found:?}");
    for part in
        ["3 search results in a row", "The same topic was searched 3 times", "3 calls in a row failed"]
    {
        assert!(found[0].1.contains(part), "{found:?}");
    }
    let turn = items(&pairs);
    let both = [&turn, &[assistant("done"), user("more")][..], &turn[1..]].concat();
    let plan = plan_of(&policy::<AskUser>(""), &talk(&both));
    assert_eq!(plan.edits.len(), 2);
}

#[test]
fn notices_and_questions_are_templates() {
    let table = "tool = true\ntexts = { notice = \"{advice} ({reasons})\", advice_tool = \"Frag mit {tool}.\", poor = \"{results} leer\" }";
    let found = notices(table, &searches(&queries(&["a1", "b2", "c3"]), &["[]"; 3]));
    assert_eq!(found, [(3, "Frag mit ask_for_clarification. (3 leer)".to_owned())]);
    let table = "tool = true\ntexts = { question_with_context = \"Frage: {question} [{context}]\" }";
    let ruling = ask(table, &[], r#"{"question":" Which? ","context":"Two Annas."}"#);
    assert_eq!(ruling.clarification.unwrap().question, "Frage: Which? [Two Annas.]");
}

fn judge(table: &str, more: &[SampleItem]) -> Judge {
    read(&policy::<AskUser>(table), &talk(&[&[user("q")], more].concat()), &[]).1
}

/// The ruling on a question after more messages.
fn ask(table: &str, more: &[SampleItem], arguments: &str) -> Ruling {
    judge(table, more).rule(0, TOOL, Some(arguments), 0)
}

#[test]
fn the_tool_is_declared_where_the_client_declares_tools_and_none_of_that_name() {
    let plain = SampleRequest::new(&[user("q")]);
    let declares = plain.clone().declaring("search", "{}");
    let own = plain.clone().declaring(TOOL, "{}");
    let mut forced = declares.clone();
    forced.request.choice = Choice::Forced;
    for (table, request, is_declared, is_own) in [
        ("tool = true", &declares, true, true),
        ("", &declares, false, false),
        ("tool = true", &own, false, false),
        ("tool = true", &forced, false, true),
        ("tool = true", &plain, false, false),
    ] {
        let plan = plan_of(&policy::<AskUser>(table), request);
        assert_eq!(
            (!plan.declared.is_empty(), plan.own_tools().count() > 0),
            (is_declared, is_own),
            "{request:?}"
        );
        assert_eq!(plan.reader(), None);
    }
    let declared: serde_json::Value = serde_json::from_str(include_str!("tool.json")).unwrap();
    assert_eq!(declared["name"], TOOL);
    assert_eq!(declared["parameters"]["required"], serde_json::json!(["question", "context"]));
}

#[test]
fn a_valid_question_is_shown_and_an_invalid_one_is_explained_to_the_model() {
    let long = format!("{{\"question\":\"{}?\",\"context\":\"\"}}", "é".repeat(2_000));
    for (arguments, expected) in [
        (r#"{"question":"Which one?","context":""}"#, Ok("Which one?")),
        (r#"{"question":"Which\n one?","context":" ","more":1}"#, Ok("Which\n one?")),
        (r#"{"question":"Which?","context":" I found two. "}"#, Ok("I found two.\n\nWhich?")),
        (r#"{"question":"Which\udb40\udc41?","context":""}"#, Ok("Which?")),
        (r#"{"question":" ?! ","context":"x"}"#, Err(("question", "the question is empty"))),
        (r#"{"context":"x"}"#, Err(("question", "the question is missing"))),
        (r#"{"question":"Which one?"}"#, Err(("context", "the context is missing"))),
        (r#"{"question":"Which one?","context":null}"#, Err(("context", "the context is missing"))),
        (r#"{"question":["x"],"context":"x"}"#, Err(("arguments", "its arguments cannot be read"))),
        ("Which one?", Err(("arguments", "its arguments cannot be read"))),
        ("", Err(("arguments", "its arguments cannot be read"))),
        (r#"{"question":"a","question":"b"}"#, Err(("arguments", "its arguments cannot be read"))),
        (&long, Err(("question", "have 2001 characters, more than the 2000 allowed"))),
    ] {
        let ruling = ask("tool = true", &[], arguments);
        assert!(ruling.own && !ruling.is_allowed(), "{arguments}");
        match expected {
            Ok(question) => assert_eq!(ruling.clarification.unwrap().question, question),
            Err((path, problem)) => {
                let (_, reason) = &ruling.objections[0];
                assert_eq!((reason.kind, reason.retryable), (ReasonKind::Validation, true));
                assert!(reason.message.contains(problem), "{}", reason.message);
                assert_eq!(reason.issues.len(), 1);
                let issue = &reason.issues[0];
                assert!(issue.path == path && issue.message.contains(problem), "{issue:?}");
            }
        }
    }
}

#[test]
fn no_second_question_is_asked_before_the_user_has_written() {
    let looks = || assistant("I look.");
    let call = || [looks().calling([call("a", "search", "{}")]), result("a", "r")].to_vec();
    let asked = || assistant("Which one?");
    let answered = || vec![asked(), user("the first")];
    for (more, may_ask) in [
        (vec![], true),
        (call(), true),
        (vec![asked()], false),
        (vec![asked(), system("go on")], false),
        (answered(), true),
        ([answered(), call()].concat(), true),
        // As some protocols have it: text and calls of one reply are messages of their own.
        ([vec![looks()], call()].concat(), true),
    ] {
        let ruling = ask("tool = true", &more, r#"{"question":"Which?","context":""}"#);
        assert_eq!(ruling.clarification.is_some(), may_ask, "{more:?}");
        if !may_ask {
            let (_, reason) = &ruling.objections[0];
            assert_eq!((reason.kind, reason.retryable), (ReasonKind::Clarification, false));
            assert!(reason.message.contains("they have not answered what you said last"));
        }
    }
    let mut judge = judge("tool = true", &[]);
    let mut asks = |choice| judge.rule(choice, TOOL, Some(r#"{"question":"Which?","context":""}"#), 0);
    assert!(asks(0).clarification.is_some());
    assert!(asks(0).objections[0].1.message.contains("one question at a time"));
    assert!(asks(1).clarification.is_some(), "another choice");
}

#[test]
fn a_question_known_from_the_hidden_exchange_waits_for_the_user_whatever_comes_between() {
    let mut asking = Asking::ours();
    let asked = ask::asked(&Texts::default());
    let mut read = |text: &str| {
        let hidden = SampleRequest::new(&[result("c", text)]);
        let transcript = hidden.transcript(&somebody());
        asking.read(&Event::Hidden(transcript.view(0)), &asked);
        asking.may_ask()
    };
    assert!(read("put off"));
    assert!(!read(&asked));
    assert!(!read("put off"));
}

#[test]
fn settings_that_cannot_work_are_reported() {
    for (table, expected) in [
        ("overlap = 1.5", "overlap: expected a share from 0 to 1, found 1.5"),
        ("shared = -0.1", "shared: expected a share from 0 to 1, found -0.1"),
        ("budget_left = 2.0", "budget_left: expected a share from 0 to 1, found 2"),
        ("max_chars = 0", "max_chars: expected at least 1"),
        ("searches = [\"\"]", "searches: expected names or patterns, found an empty one"),
        (
            "quality = { path = \"a..b\" }",
            "quality.path: expected a path such as \"card.id\" or \"cards[*].id\", found \"a..b\"",
        ),
        (
            "quality = { path = \"a\", good = [] }",
            "quality.good: expected the values that are good, found none",
        ),
    ] {
        assert_eq!(problem::<AskUser>(table), expected, "{table}");
    }
    let off = "poor = 0\nsame_topic = 0\ndiminishing = 0\nerrors = 0\nbudget_left = 0.0\n";
    assert!(policy::<AskUser>(off).about().idle.is_some());
    assert!(policy::<AskUser>(&format!("{off}tool = true")).about().idle.is_none());
}
