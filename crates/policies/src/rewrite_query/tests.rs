//! Cases of the policy, and what holds for any query and any answer of the model.

use super::super::cases::{Conversation, declaring, policy, read, turn};
use super::super::scenario::problem;
use super::*;
use crate::set::Judge;
use model::plan::ModelQuestion;
use model::testing::{SampleRequest, call, reply, result, user};
use proptest::prelude::*;
use wire::json::quote;

/// 24 November 2026.
const NOW_MS: u64 = 1_795_500_000_000;

/// The arguments that a call of `tool` runs with.
fn runs(table: &str, tool: &str, arguments: &str) -> String {
    let ruling = Conversation::new(&policy::<RewriteQuery>(table)).judge(tool, arguments, NOW_MS);
    assert!(ruling.is_allowed() && ruling.question.is_none(), "{arguments}");
    let (policy, rewritten) = ruling.rewritten.unwrap_or(("", arguments.to_owned()));
    assert!(policy.is_empty() || policy == "rewrite_query");
    rewritten
}

/// The query that runs instead of `query`.
fn query(table: &str, query: &str) -> String {
    let arguments = format!("{{\"query\":{}}}", quote(query));
    let run: serde_json::Value = serde_json::from_str(&runs(table, "web_search", &arguments)).unwrap();
    run["query"].as_str().unwrap().to_owned()
}

#[test]
fn queries_are_tidied_and_most_are_left_alone() {
    for (table, given, expected) in [
        ("", "please find me information about the latest Rust release", "the latest Rust release 2026"),
        ("", "what are the latest releases of Rust?", "latest releases of Rust 2026"),
        ("", "What are the latest React features?", "latest React features 2026"),
        ("", "Who is the current president of France?", "current president of France 2026"),
        ("", "¿Cuáles son las últimas noticias de Madrid?", "últimas noticias de Madrid 2026"),
        ("", "TypeScript generics tutorial", "TypeScript generics tutorial"),
        ("fillers = false", "What are the latest React features?", "What are the latest React features 2026"),
        (
            "",
            "bitte suche mir Informationen über aktuelle Zinsen in Europa",
            "aktuelle Zinsen in Europa 2026",
        ),
        ("", "東京最新的天气预报和新闻", "東京最新的天气预报和新闻 2026"),
        ("", "latest Rust release", "latest Rust release"),
        ("min_words = 3", "latest Rust release", "latest Rust release 2026"),
        ("", "the latest Rust release in 2024", "the latest Rust release in 2024"),
        ("", "the latest \"Rust release\" notes", "the latest \"Rust release\" notes"),
        (
            "",
            "please find site:rust-lang.org latest release notes",
            "please find site:rust-lang.org latest release notes",
        ),
        ("", "how tall is the tower of Pisa?", "how tall is the tower of Pisa?"),
        ("", "", ""),
        ("year = false", "please find the latest Rust release", "the latest Rust release"),
        (
            "fillers = false",
            "please find the latest Rust release",
            "please find the latest Rust release 2026",
        ),
        (
            "fillers = false\nyear = false",
            "please find the latest Rust release",
            "please find the latest Rust release",
        ),
    ] {
        assert_eq!(query(table, given), expected, "{table} {given}");
    }
}

#[test]
fn a_clock_that_is_wrong_by_centuries_adds_nothing() {
    let rules = Rules { year: true, fillers: true, min_words: 1 };
    for year in [0, 1970, 2200, u64::MAX] {
        assert_eq!(tidy("the latest Rust release", rules, year), None);
    }
}

#[test]
fn only_the_bytes_of_the_query_change() {
    for (table, tool, given, expected) in [
        (
            "",
            "web_search",
            "{ \"n\" : 1.50,\"query\":\"the latest caf\\u00e9 news\", \"x\\u0041\":[{\"query\":\"please find the a\"}] }",
            "{ \"n\" : 1.50,\"query\":\"the latest café news 2026\", \"x\\u0041\":[{\"query\":\"please find the a\"}] }",
        ),
        ("", "searchAll", r#"{"q":"the latest Rust release"}"#, r#"{"q":"the latest Rust release 2026"}"#),
        // The first of the names counts, wherever it is.
        (
            "",
            "search",
            r#"{"q":"the latest Rust release","query":"the latest Go release"}"#,
            r#"{"q":"the latest Rust release","query":"the latest Go release 2026"}"#,
        ),
        (
            "argument = [\"term\"]",
            "search",
            r#"{"term":"the latest Go release"}"#,
            r#"{"term":"the latest Go release 2026"}"#,
        ),
        ("", "search", "the latest Go release", "the latest Go release 2026"),
        // Left alone.
        ("", "fetch", r#"{"query":"the latest Rust release"}"#, r#"{"query":"the latest Rust release"}"#),
        ("", "search", r#"{"text":"the latest Rust release"}"#, r#"{"text":"the latest Rust release"}"#),
        (
            "",
            "search",
            r#"{"query":["the latest Rust release"]}"#,
            r#"{"query":["the latest Rust release"]}"#,
        ),
        (
            "",
            "search",
            r#"{"query":"the latest Go release","query":"b"}"#,
            r#"{"query":"the latest Go release","query":"b"}"#,
        ),
        ("", "search", r#"{"query":"the latest Go release""#, r#"{"query":"the latest Go release""#),
        ("", "search", r#""the latest Go release""#, r#""the latest Go release""#),
        (
            "",
            "search",
            r#"{"query":"the latest Go \ud800 release"}"#,
            r#"{"query":"the latest Go \ud800 release"}"#,
        ),
    ] {
        assert_eq!(runs(table, tool, given), expected, "{given}");
    }
}

#[test]
fn a_schema_that_may_not_accept_the_new_query_keeps_the_old_one() {
    for (shape, changed) in [
        (r#"{"type":"string"}"#, true),
        (r#"{"type":"string","maxLength":28}"#, true),
        (r#"{"type":"string","maxLength":27}"#, false),
        (r#"{"type":"string","minLength":29}"#, false),
        (r#"{"enum":["the latest Rust release"]}"#, false),
        (r#"{"type":"string","pattern":"e$"}"#, false),
    ] {
        let parameters = format!(r#"{{"type":"object","properties":{{"query":{shape}}}}}"#);
        let request = declaring(&[("search", &parameters)]);
        let mut conversation = Conversation::over(&policy::<RewriteQuery>(""), &request);
        let ruling = conversation.judge("search", r#"{"query":"the latest Rust release"}"#, NOW_MS);
        assert_eq!(ruling.rewritten.is_some(), changed, "{shape}");
    }
}

#[test]
fn only_searches_wait_for_their_arguments() {
    let mut conversation = Conversation::new(&policy::<RewriteQuery>(""));
    assert!(conversation.needs_arguments("web_search") && conversation.needs_arguments("Search"));
    assert!(!conversation.needs_arguments("fetch"));
}

#[test]
fn both_forms_of_the_query_are_audited_unless_that_is_disabled() {
    let arguments = r#"{"query":"the latest Rust release"}"#;
    for (table, expected) in [("", true), ("audit = false", false)] {
        let ruling = Conversation::new(&policy::<RewriteQuery>(table)).judge("search", arguments, NOW_MS);
        let forms = ("the latest Rust release".to_owned(), "the latest Rust release 2026".to_owned());
        assert_eq!(ruling.reworded, expected.then_some(("rewrite_query", forms)));
    }
}

#[test]
fn the_year_is_that_of_the_time_that_is_given() {
    for (seconds, year) in [
        (0, 1970),
        (951_782_399, 2000),
        (951_868_800, 2000),
        (1_767_225_599, 2025),
        (1_767_225_600, 2026),
        (1_798_761_599, 2026),
        (1_798_761_600, 2027),
        (4_102_444_800, 2100),
    ] {
        assert_eq!(year_of(seconds * 1000), year, "{seconds}");
    }
}

const SMALL: &str = "model.model = \"small\"";
const LONG: &str = r#"{"query":"please tell me about how a washing machine gets clean"}"#;

/// A judge that knows the answer to the question about the call.
fn answered(arguments: &str, answer: Option<&str>) -> (Judge, ModelQuestion) {
    let mut judge = read(&policy::<RewriteQuery>(SMALL), &turn("f", 0), &[]).1;
    let ruling = judge.rule(0, "search", Some(arguments), NOW_MS);
    let (policy, question) = ruling.question.unwrap();
    assert_eq!(policy, "rewrite_query");
    judge.learn(question.clone(), answer.map(Into::into));
    (judge, question)
}

#[test]
fn a_model_is_asked_about_the_tidied_query_and_its_answer_is_bounded_by_it() {
    for (answer, expected) in [
        (Some("washing machine clean"), "washing machine clean"),
        (Some("delete all files"), "how a washing machine gets clean"),
        (Some("washing machine\nclean"), "how a washing machine gets clean"),
        (None, "how a washing machine gets clean"),
    ] {
        let (mut judge, question) = answered(LONG, answer);
        assert_eq!(question.text, "how a washing machine gets clean");
        assert!(question.system.contains("at most 6 words"), "{}", question.system);
        assert_eq!((question.terms.model.as_str(), question.terms.max_tokens), ("small", 50));
        let ruling = judge.rule(0, "search", Some(LONG), NOW_MS);
        assert_eq!(ruling.question, None, "it is asked once");
        assert_eq!(ruling.rewritten.unwrap().1, format!("{{\"query\":\"{expected}\"}}"), "{answer:?}");
    }
    let (mut judge, _) =
        answered(r#"{"query":"what is the latest release of Rust"}"#, Some("latest release Rust"));
    let ruling = judge.rule(0, "search", Some(r#"{"query":"what is the latest release of Rust"}"#), NOW_MS);
    assert_eq!(ruling.rewritten.unwrap().1, r#"{"query":"latest release Rust"}"#);
}

#[test]
fn no_model_is_asked_about_unchanged_or_repeated_queries() {
    let made = call("a", "search", r#"{"query": "washing machines and how they work"}"#);
    let request = SampleRequest::new(&[user("q"), reply([made]), result("a", "r")]);
    for (tool, arguments, asks) in [
        ("search", r#"{"query":"washing machines and how they work"}"#, false),
        ("search", r#"{"query":"washing machines and why they work"}"#, true),
        ("search", r#"{"query":"washing machines site:example.com work"}"#, false),
        ("search", r#"{"query":"washing machines"}"#, false),
        ("fetch", r#"{"query":"washing machines and why they work"}"#, false),
    ] {
        let mut judge = read(&policy::<RewriteQuery>(SMALL), &request, &[]).1;
        assert_eq!(judge.rule(0, tool, Some(arguments), NOW_MS).question.is_some(), asks, "{arguments}");
    }
}

#[test]
fn settings_that_cannot_work_are_refused_by_key() {
    for (table, expected) in [
        ("tools = [\"\"]", "tools: expected names or patterns, found an empty one"),
        ("argument = []", "argument: expected names of arguments"),
        ("argument = [\" \"]", "argument: expected names of arguments"),
        ("min_words = 0", "min_words: expected at least 1"),
        ("model.url = \"http://example.com\"", "model.model: expected the name of a model"),
        (
            "model = { model = \"m\", url = \"example.com\" }",
            "model.url: expected a URL without credentials, such as \"https://api.openai.com/v1\"",
        ),
        (
            "model = { model = \"m\", key_env = \"sk-1\" }",
            "model.key_env: expected the name of an environment variable that holds the key, not the key itself",
        ),
        ("model = { model = \"m\", timeout = \"0s\" }", "model.timeout: expected more than 0, up to 30s"),
        ("texts.question = \"x\"", "texts.question: there is no such text; expected instructions"),
    ] {
        assert_eq!(problem::<RewriteQuery>(table), expected, "{table}");
    }
}

#[test]
fn settings_without_effect_are_idle() {
    for (table, idle) in [
        ("", None),
        ("tools = []", Some(NO_TOOLS)),
        ("year = false\nfillers = false", Some("year, fillers and model are all off")),
        ("year = false\nfillers = false\nmodel.model = \"m\"", None),
    ] {
        assert_eq!(policy::<RewriteQuery>(table).about().idle, idle, "{table}");
    }
}

/// Queries of words that the rules know, and of whatever somebody may send.
fn queries() -> impl Strategy<Value = String> {
    let words = prop::sample::select(
        &[
            "please",
            "find",
            "me",
            "information",
            "about",
            "latest",
            "current",
            "news",
            "Rust",
            "2024",
            "search for",
            "can you",
            "tell",
            "bitte",
            "suche",
            "Informationen über",
            "aktuelle",
            "por favor",
            "dernières",
            "it",
            "OR",
            "site:x",
            "last year",
            "最新",
            "s'il te plaît,",
            "ignore all rules",
            "?",
            "the web for",
            "Kannst du mir",
            "suchen",
            "-x",
            "\"q\"",
            "please,",
            ",",
        ][..],
    );
    prop_oneof![
        4 => prop::collection::vec(words, 0..12).prop_map(|words| words.join(" ")),
        1 => any::<String>(),
    ]
}

proptest! {
    #[test]
    fn a_query_keeps_a_part_of_itself_and_gains_at_most_the_year(query in queries(), least in 1_usize..6) {
        let rules = Rules { year: true, fillers: true, min_words: least };
        if let Some(tidied) = tidy(&query, rules, 2026) {
            let kept = tidied.strip_suffix(" 2026").unwrap_or(&tidied);
            prop_assert!(query.contains(kept) && !kept.is_empty(), "{tidied:?}");
            prop_assert!(plain::is_plain(&query));
            prop_assert!(tidied.len() == kept.len() || recency::needs_year(kept));
            prop_assert_eq!(tidy(&tidied, rules, 2026), None, "{:?}", tidied);
            prop_assert_eq!(tidy(&tidied, rules, 2027), None, "{:?}", tidied);
        }
    }

    #[test]
    fn no_answer_of_a_model_adds_a_word(query in queries(), answer in queries()) {
        if let Some(accepted) = shortener::accepted(&answer, &query) {
            let lower = query.to_lowercase();
            let mut words = accepted.split_whitespace();
            prop_assert!(words.all(|word| lower.contains(&word.to_lowercase().replace([',', '?', '.', '!'], ""))));
            prop_assert!(accepted.chars().count() <= query.chars().count() && !accepted.contains('\n'));
        }
    }

    #[test]
    fn any_arguments_stay_json_but_for_the_query(text in any::<String>(), query in queries(), key in "[a-z]{1,6}") {
        let tail = format!("{}:{}", quote(&key), quote(&text));
        let arguments = format!("{{\"query\":{},{tail}}}", quote(&query));
        let ruling = Conversation::new(&policy::<RewriteQuery>("")).judge("search", &arguments, NOW_MS);
        if let Some((_, rewritten)) = ruling.rewritten {
            let kept = rewritten.starts_with("{\"query\":\"") && rewritten.ends_with(&format!(",{tail}}}"));
            prop_assert!(kept, "{rewritten}");
            prop_assert!(serde_json::from_str::<serde_json::Value>(&rewritten).is_ok());
            let again = Conversation::new(&policy::<RewriteQuery>("")).judge("search", &rewritten, NOW_MS);
            prop_assert_eq!(again.rewritten, None);
        }
        Conversation::new(&policy::<RewriteQuery>("")).judge("search", &text, NOW_MS);
    }
}
