//! Refusals and near misses of real upstreams, and the laws of the judgement.

mod messages;

use proptest::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use super::foreign::FOREIGN;
use super::overflow::WORDINGS;
use super::*;
use crate::error::parse;
use model::adaptation::Adaptation::{self, Flattened, Placement, ToolChoice, Tools};

const CORPUS: &str = include_str!("../../../../tests/data/refusals/corpus.jsonl");
const RESPONSES: &str = include_str!("../../../../tests/data/refusals/responses.jsonl");
const HELDOUT: &str = include_str!("../../../../tests/data/refusals/heldout.jsonl");

const STRUCTURE: &str = include_str!("../../../../tests/data/refusals/structure.jsonl");

const FRESH: &str = include_str!("../../../../tests/data/refusals/fresh.jsonl");

/// A line of `tests/data/refusals`.
#[derive(Deserialize)]
struct Case {
    provider: String,
    status: Option<u16>,
    expect: Option<String>,
    body: Value,
}

impl Case {
    fn expected(&self) -> Option<Adaptation> {
        self.expect.as_deref().map(|scope| match scope {
            "tools" => Tools,
            "tool_choice" => ToolChoice,
            "tool_history" => Flattened,
            "late_system" => Placement,
            other => panic!("no such scope: {other}"),
        })
    }

    fn judged(&self) -> Option<Adaptation> {
        let body = self.body.as_str().map_or_else(|| self.body.to_string(), str::to_owned);
        classify(self.status.unwrap_or(400), &parse(body.as_bytes()).unwrap_or_default())
    }
}

/// Judges every line; returns what went wrong, to be shown at once.
fn misjudged(lines: &str) -> Vec<String> {
    let cases = lines.lines().map(|line| serde_json::from_str::<Case>(line).expect("a case"));
    let wrong = cases.filter(|case| case.judged() != case.expected());
    wrong
        .map(|case| format!("{}: {} -> {:?}, not {:?}", case.provider, case.body, case.judged(), case.expect))
        .collect()
}

fn judge(message: &str) -> Option<Adaptation> {
    classify(400, &UpstreamError { messages: vec![message.to_owned()], ..UpstreamError::default() })
}

#[test]
fn the_corpus_is_judged_as_labelled() {
    let wrong = misjudged(CORPUS);
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn wordings_written_before_the_rules_are_judged_as_labelled() {
    let wrong = misjudged(HELDOUT);
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn errors_of_the_responses_api_are_judged_as_labelled() {
    let wrong = misjudged(RESPONSES);
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn wordings_met_after_the_rules_are_judged_as_labelled() {
    let wrong = misjudged(FRESH);
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_rule_finds_its_example() {
    for rule in RULES {
        let normal = normalise(rule.example);
        let words: Vec<&str> = normal.split(' ').collect();
        assert!(rule.applies(&words), "{} in {normal}", rule.says);
        assert_eq!(judge(rule.example), Some(rule.refusal), "{}", rule.example);
    }
    for row in FOREIGN {
        assert_eq!(judge(row.example), Some(row.refusal), "{}", row.example);
    }
    for (says, example) in MISSED {
        let error = UpstreamError { messages: vec![(*example).to_owned()], ..UpstreamError::default() };
        assert!(misses_tools(&error), "{says}: {example}");
        assert_eq!(judge(example), None, "the client's own mistake: {example}");
    }
}

#[test]
fn a_model_that_takes_no_tool_messages_says_which_roles_or_values_it_takes() {
    for message in [
        "Invalid value: 'tool'. Supported values are: 'system', 'assistant', 'user', and 'function'.",
        "'tool' is not one of ['system', 'assistant', 'user', 'function'] - 'messages.3.role'",
        "Failed to deserialize: messages[2].role: unknown variant `tool`, expected one of `system`, `user`, `assistant`",
        "messages.2: Input tag 'tool' found using 'role' does not match any of the expected tags: 'system', 'user'",
        "body.messages.2.role: unexpected value; permitted: 'system', 'user', 'assistant'",
        "Only system, user and assistant roles are supported, got tool.",
    ] {
        assert_eq!(judge(message), Some(Flattened), "{message}");
    }
    for message in [
        "Invalid value: 'tool'. Supported values are: 'function' and 'custom'.",
        "'tool' is not one of ['function', 'custom'] - 'tools.0.type'",
        "unknown variant `tool`, expected `function`",
        "Invalid value: 'bot'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'.",
        "'bot' is not one of ['system', 'assistant', 'user', 'tool'] - 'messages.3.role'",
    ] {
        assert_eq!(judge(message), None, "{message}");
    }
}

#[test]
fn an_error_that_lists_accepted_roles_may_also_be_about_tool_messages() {
    let also = |message: &str| {
        alternative(400, &UpstreamError { messages: vec![message.to_owned()], ..UpstreamError::default() })
    };
    for message in [
        "Only user and assistant roles are supported!",
        "Only user and assistant roles are supported, with the exception of an initial optional system message!",
        "Conversation roles must alternate user/assistant/user/assistant/...",
        "Last message must have role `user`.",
        "messages.1.role: Input should be 'user' or 'assistant'",
    ] {
        assert_eq!((judge(message), also(message)), (Some(Placement), Some(Flattened)), "{message}");
    }
    for message in [
        "System message must be at the beginning.",
        "Only user, assistant and tool roles are supported, got system.",
        "x does not support tools",
        "no rule finds this",
    ] {
        assert_eq!(also(message), None, "{message}");
    }
}

#[test]
fn a_refusal_that_quotes_the_user_is_not_taken_for_one() {
    for message in [
        "Could not answer \"please tell me why this model does not support tools at all\": try again",
        "Request blocked: 'my server says that function calling is not supported here'",
        "Input rejected: “the system message must be at the beginning of all”",
        "{'type': 'string_type', 'loc': ['body', 'messages'], 'input': 'why does gemma not support tools?'}",
        "Invalid prompt: your prompt was flagged: why does this model not support tools",
    ] {
        assert_eq!(judge(message), None, "{message}");
    }
    let filtered = UpstreamError {
        messages: vec!["The model does not support tools, said the user".to_owned()],
        code: Some("content_policy_violation".to_owned()),
        ..UpstreamError::default()
    };
    assert_eq!(classify(400, &filtered), None);
    for message in [
        "Error code: 400 - {'error': {'message': 'registry.ollama.ai/library/x does not support tools'}}",
        "upstream said {\"msg\": \"this model does not support tools\"}",
        "'tools' is not supported by the model 'my model'",
    ] {
        assert_eq!(judge(message), Some(Tools), "{message}");
    }
}

/// Texts without a rule of their own: bits of rules, of near misses and of noise, in any order.
fn soup() -> impl Strategy<Value = String> {
    let bits = [
        "tools",
        "not",
        "support",
        " ",
        ", ",
        ". ",
        "'",
        "param",
        "role",
        "only",
        "no",
        "unsupported",
        "é",
        "工具",
    ];
    prop::collection::vec(prop::sample::select(bits.to_vec()), 0..3_000).prop_map(|bits| bits.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn no_text_makes_it_panic(text in any::<String>(), code in any::<Option<String>>(), param in any::<Option<String>>()) {
        let error = UpstreamError { messages: vec![text], code, param, ..UpstreamError::default() };
        let _ = (classify(400, &error), misses_tools(&error), kinds(400, &error));
    }

    #[test]
    fn text_after_the_part_that_is_read_does_not_change_the_judgement(text in soup(), tail in soup()) {
        let front = words::cut(&text);
        prop_assume!(front.len() < text.len());
        let other = format!("{front}{tail}");
        // If a long character is cut off at the limit, a shorter one may still fit.
        prop_assume!(words::cut(&other) == front);
        prop_assert_eq!(judge(&text), judge(&other));
    }
}

#[test]
fn a_hostile_message_costs_little() {
    // Each word begins many rules and ends none, which is the worst case for a text of the greatest length. Quadratic
    // work would take hours, and the test runner would end the test.
    let words = [
        "not the a of ",
        "tool call not the ",
        "only a, tool, the, role ",
        "unsupported parameter: a, b, ",
        "no x y ",
    ];
    for word in words {
        let error = UpstreamError { messages: vec![word.repeat(10_000); 16], ..UpstreamError::default() };
        assert_eq!(classify(400, &error), None, "{word}");
        kinds(400, &error);
    }
}

#[test]
fn authentication_payment_and_rate_limit_errors_are_not_refusals_of_tools() {
    let error =
        UpstreamError { messages: vec!["x does not support tools".to_owned()], ..UpstreamError::default() };
    for status in [401, 402, 408, 429] {
        assert_eq!(classify(status, &error), None);
    }
    for status in [200, 400, 404, 405, 422, 500, 501] {
        assert_eq!(classify(status, &error), Some(Tools));
    }
}

fn is_overflow(status: u16, message: &str) -> bool {
    overflows(status, &UpstreamError { messages: vec![message.to_owned()], ..UpstreamError::default() })
}

#[test]
fn every_wording_of_an_overflow_is_found_and_refuses_no_tools() {
    for wording in WORDINGS {
        let (by, example) = wording.example;
        assert!(is_overflow(400, example), "{by}: {example}");
        assert_eq!(judge(example), None, "{by}");
        let alone = UpstreamError { code: Some(example.to_owned()), ..UpstreamError::default() };
        assert!(overflows(200, &alone), "{by} as a code");
    }
}

#[test]
fn wordings_of_overflow_met_after_the_table_are_found() {
    for message in [
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens.",
        "'max_tokens' or 'max_completion_tokens' is too large: 2000. This model's maximum context length is 4096 tokens \
         and your request has 2104 input tokens (2000 > 4096 - 2104). None",
        "Prompt contains 40110 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        "Requested token count exceeds the model's maximum context length of 131072 tokens.",
        "Input length (265330) exceeds model's maximum context length (262144).",
        "the request exceeds the available context size, try increasing it",
        "invalid params, context window exceeds limit (2013)",
        "The prompt is too long: 140000, model maximum context length: 131071",
    ] {
        assert!(is_overflow(400, message), "{message}");
    }
}

#[test]
fn errors_that_a_shorter_history_cannot_fix_are_not_overflows() {
    for message in [
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you provided 100000.",
        "The maximum tokens you requested exceeds the model limit of 2048. Try again with a maximum tokens value that is \
         lower than 2048.",
        "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens for claude-3-5-sonnet-20241022",
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        "Range of max_tokens should be [1, 8192]",
        "Request too large for model `llama-3.1-8b-instant` on tokens per minute (TPM): Limit 6000, Requested 9001, please \
         reduce your message size and try again.",
        "Rate limit reached: too many tokens; please reduce the length of the messages",
        "Request Entity Too Large",
        "Invalid 'messages[1].content': string too long. Expected a string with maximum length 10485760.",
        "Invalid 'tools': array too long. Expected an array with maximum length 128",
        "You exceeded your current quota, please check your plan and billing details.",
        "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum",
        "failed to decode, try again, increasing context size or reducing parallel",
    ] {
        assert!(!is_overflow(400, message), "{message}");
    }
    assert!(!is_overflow(429, "prompt is too long"));
}

#[test]
fn a_refusal_that_compares_two_lengths_is_an_overflow_in_any_language() {
    for message in [
        "Der Prompt enthält 140321 Tokens, das Kontextfenster fasst aber nur 131072 Tokens.",
        "La requête contient 140321 jetons, mais le modèle n'en accepte que 131072.",
        "El número de tokens de entrada (140321) supera el máximo permitido (131072)",
        "Превышена максимальная длина контекста: 140321 токенов при лимите 131072",
        "入力トークン数 140321 が上限 131072 を超えています",
        "seq_len 140321 > max_seq_len 131072",
        "The sequence is 140321 tokens long; this deployment was built for 131072",
        "Too many tokens: got 140.321, have 131.072",
        "토큰 140321개는 131072개보다 큽니다: 140321 / 131072",
    ] {
        for status in [400, 413, 422] {
            assert!(is_overflow(status, message), "{message}");
        }
    }
    for message in [
        "Limite de 100000 jetons par minute atteinte: 140321",
        "Ausgabe: 140321 Tokens, erlaubt sind 131072",
        "El máximo de tokens de salida es 8192, se pidieron 100000",
        "Token id 151936 is not in the vocabulary of 151935",
        "输出 token 数 100000 大于 8192",
        "Лимит 100000 токенов в минуту, запрошено 140321",
        "Order 140321 of 131072 was not found",
        "Your access token 140321 expired 131072 seconds ago",
        "seed 140321 must be below 131072",
    ] {
        assert!(!is_overflow(400, message), "{message}");
    }
    assert!(!is_overflow(500, "seq_len 140321 > max_seq_len 131072"), "a server's own error");
}

#[test]
fn a_broken_history_is_suspected_in_other_languages_than_english() {
    let of = |message: &str| {
        kinds(400, &UpstreamError { messages: vec![message.to_owned()], ..UpstreamError::default() })
    };
    for message in [
        "Nachricht 1: Werkzeugergebnis ohne zugehörigen Aufruf",
        "le résultat d'outil zz ne correspond à aucun appel",
        "El resultado de la herramienta zz no corresponde a ninguna llamada",
        "Результат инструмента zz не соответствует ни одному вызову",
        "ツールの結果に対応する呼び出しがありません",
    ] {
        assert!(of(message).contains(&"pairs"), "{message}: {:?}", of(message));
    }
    for message in [
        "Ungültiges JSON in den Argumenten des Aufrufs c2",
        "函数参数不是有效的 JSON",
        "Les arguments de l'appel c2 ne sont pas du JSON",
        "Аргументы вызова c2: некорректный JSON",
    ] {
        assert!(of(message).contains(&"arguments"), "{message}: {:?}", of(message));
    }
    for message in [
        "Das Modell liefert kein Ergebnis",
        "Kein Zugriff auf dieses Modell",
        "Le modèle est introuvable",
        "El modelo no existe",
        "Ungültiges JSON-Schema im Parameter response_format",
        "Результат не найден",
    ] {
        assert_eq!(of(message), [""; 0], "{message}");
    }
}

#[test]
fn an_upstream_that_takes_no_stream_options_is_recognised_by_their_name() {
    let error = |body: &str| parse(body.as_bytes()).unwrap();
    for body in STREAM_OPTIONS.iter().flat_map(|(_, bodies)| *bodies) {
        assert!(refuses_stream_options(422, &error(body)), "{body}");
        assert!(!refuses_stream_options(429, &error(body)), "{body}");
        assert_eq!(classify(400, &error(body)), None, "{body}");
    }
    let other = error(r#"{"error":{"message":"Unknown parameter: 'stream'.","param":"stream"}}"#);
    assert!(!refuses_stream_options(400, &other));
}

/// What the error may refuse, by all that judges it in the order of the fallbacks.
fn kinds(status: u16, error: &UpstreamError) -> Vec<&'static str> {
    if overflows(status, error) {
        return vec!["overflow"];
    }
    let known = classify(status, error);
    let suspected = suspects(status, error);
    let is_guess = known.is_none();
    let found = [
        ("tools", known == Some(Tools)),
        ("tool_choice", known == Some(ToolChoice) || objects_to_choice(status, error)),
        (
            "pairs",
            breaks(status, error) == Some(Adaptation::Pairs)
                || (is_guess && suspected.contains(Adaptation::Pairs)),
        ),
        (
            "arguments",
            breaks(status, error) == Some(Adaptation::Arguments)
                || (is_guess && suspected.contains(Adaptation::Arguments)),
        ),
        ("names", is_guess && suspected.contains(Adaptation::Names)),
        (
            "ids",
            is_guess
                && (suspected.contains(Adaptation::RepeatedIds) || suspected.contains(Adaptation::IdForms)),
        ),
        ("pictures", is_guess && suspected.contains(Adaptation::Pictures)),
        ("other", matches!(known, Some(Flattened | Placement))),
    ];
    found.into_iter().filter(|(_, is_found)| *is_found).map(|(kind, _)| kind).collect()
}

#[test]
fn refusals_in_words_that_no_list_has_are_recognised_by_their_structure_and_near_misses_are_not() {
    let mut wrong = Vec::new();
    for line in STRUCTURE.lines() {
        let case: Value = serde_json::from_str(line).expect("a case");
        let status = u16::try_from(case["status"].as_u64().unwrap()).unwrap();
        let found = kinds(status, &parse(case["body"].to_string().as_bytes()).unwrap_or_default());
        let is_right = case["expect"].as_str().map_or(found.is_empty(), |kind| found.contains(&kind));
        if !is_right {
            wrong.push(format!("{:?}, not {}: {}", found, case["expect"], case["body"]));
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}
