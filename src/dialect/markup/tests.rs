//! Tests: markup of every family is removed, near misses stay, and the result does not depend on how the text is split.

use super::*;
use proptest::prelude::*;

/// Explanations, mentions and look-alikes, which all stay as they are.
const NEAR_MISSES: &[&str] = &[
    "",
    "The answer is 42.",
    "a < b and c > d, see [1] and [2](x).",
    "Qwen writes its calls between <tool_call> and </tool_call>.",
    "The tag <tool_call> opens a call.",
    "In GLM a <tool_call> name comes first, then <arg_key>.",
    "Hermes uses `<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>` for this.",
    "Like so:\n\n```\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n```\n\nThat is all.",
    "Like so: ```<tool_call>{\"name\": \"f\"}</tool_call>``` and no more.",
    "~~~xml\n<function=f>{\"a\": 1}</function>\n~~~\n",
    "````md\n```\n<tool_call>{\"name\": \"f\"}</tool_call>\n```\n````\n",
    "The general form is <tool_call>{...}</tool_call>.",
    "The form is <function=name>{arguments}</function>.",
    "Use <function= and a name.",
    "Mistral puts [TOOL_CALLS] before a list of calls.",
    "[TOOL_CALLS] is a token of Mistral's.",
    "Llama ends up with <|python_tag|> and then code.",
    "The token <|python_tag|>, which Llama uses",
    "Kimi opens with <|tool_calls_section_begin|> and closes with <|tool_calls_section_end|>.",
    "DeepSeek opens with <｜tool▁calls▁begin｜> and so on.",
    "MiniMax uses <minimax:tool_call> tags.",
    "gpt-oss writes to the commentary channel, with to=functions.NAME in the header.",
    "<|channel|>commentary is for calls.",
    "Action: read the book.",
    "functools.partial is a function.",
    ">>> print(1)\n1",
    ">>>quoted mail\nand more",
    "[called yesterday with news]",
    "[called search with care]",
    "The person [called Ann with a hat] left.",
    "{\"name\": \"Ann\", \"age\": 7}",
    "{\"name\": \"Ann\", \"arguments\": \"many\"}",
    "{\"answer\": {\"name\": \"x\", \"parameters\": {}}}",
    "[{\"name\": \"Ann\"}]",
    "[link](http://example.org)",
    "[f(x) is a function]",
    "[1, 2, 3]",
    "Result: {\"name\": \"search\", \"parameters\": {\"q\": 1}}",
    "<tool",
    "ends in a tag <tool_call>",
    "a ` b",
    "`",
    "x ~",
    "<invoke",
];

fn cut(text: &str) -> String {
    let mut markup = Markup::default();
    let out = markup.push(text);
    out + &markup.finish()
}

fn cut_in_pieces(text: &str, sizes: &[usize]) -> String {
    let mut markup = Markup::default();
    let (mut out, mut rest, mut sizes) = (String::new(), text, sizes.iter().cycle());
    while !rest.is_empty() {
        let size = rest.ceil_char_boundary(sizes.next().copied().unwrap_or(1).clamp(1, rest.len()));
        out.push_str(&markup.push(&rest[..size]));
        rest = &rest[size..];
    }
    out + &markup.finish()
}

#[test]
fn every_example_of_every_family_is_cut_out() {
    for family in FAMILIES {
        assert!(!family.examples.is_empty(), "{}", family.models);
        for example in family.examples {
            assert_eq!(cut(example).trim(), "", "{}: {example}", family.models);
            let before = cut(&format!("  \n{example}\n"));
            assert_eq!(before.trim(), "", "{}: {example}", family.models);
        }
    }
}

#[test]
fn the_text_around_a_block_stays() {
    for family in FAMILIES.iter().filter(|family| family.place != Position::Text) {
        for example in family.examples {
            let text = format!("I looked.\n{example}");
            assert_eq!(cut(&text).trim(), "I looked.", "{}: {text}", family.models);
        }
    }
    for (text, expected) in [
        (
            "Let me see. <tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_call> It is 7.",
            "Let me see.  It is 7.",
        ),
        (
            "A<tool_call>\n{\"name\": \"a\"}\n</tool_call>\n<tool_call>\n{\"name\": \"b\"}\n</tool_call>\nB",
            "A\n\nB",
        ),
        ("[TOOL_CALLS][{\"name\": \"a\", \"arguments\": {}}] So it is 7.", " So it is 7."),
        ("<tool_call>{\"name\": \"a\", \"arguments\": {}}\n\nSo it is 7.", "\n\nSo it is 7."),
        ("```\nx\n```\n<tool_call>{\"name\": \"a\"}</tool_call>", "```\nx\n```\n"),
        ("x ``` a ```<tool_call>{\"name\": \"a\"}</tool_call>", "x ``` a ```"),
        ("`x` <tool_call>{\"name\": \"a\"}</tool_call> `y`", "`x`  `y`"),
        ("a ` b\n<tool_call>{\"name\": \"a\"}</tool_call>", "a ` b\n"),
        ("<|python_tag|>search.call(q=\"x\")<|eom_id|>Done.", "Done."),
        ("{\"name\": \"a\", \"parameters\": {}}\nIt is 7.", "\nIt is 7."),
    ] {
        assert_eq!(cut(text), expected, "{text}");
    }
}

#[test]
fn what_only_looks_like_markup_stays() {
    for text in NEAR_MISSES {
        assert_eq!(cut(text), *text);
    }
}

#[test]
fn ordinary_text_goes_out_at_once() {
    let mut markup = Markup::default();
    for text in ["Hello", " there, ", "is 1 ", "< 2? ", "Yes. And a ", "second line\n", "a [link] "] {
        assert_eq!(markup.push(text), text);
    }
    assert_eq!(markup.push("then <tool"), "then ");
    assert_eq!(markup.push("box>"), "<toolbox>");
    assert_eq!(markup.push("\n<tool_call>"), "\n");
    assert_eq!(markup.push("\n{"), "");
    assert_eq!(markup.push("\"name\""), "");
    assert_eq!(markup.push(": \"x\"}</tool_call> B"), " B");
}

#[test]
fn no_markup_opener_is_a_prefix_of_another_one_for_the_same_place() {
    let all =
        || FAMILIES.iter().flat_map(|family| family.openers.iter().map(move |opener| (family, *opener)));
    for (family, opener) in all() {
        for (other, longer) in all() {
            let is_hidden = longer.len() > opener.len() && longer.starts_with(opener);
            assert!(!is_hidden || family.place != other.place, "{opener} {longer}");
        }
    }
}

#[test]
fn hostile_text_never_makes_the_markup_scanner_hold_back_much() {
    // Each piece keeps something waiting, or begins something that never ends. Only held text is scanned twice.
    for piece in
        ["<", "<tool_call>", "<tool_call> ", "`", "[", "{\"name\" ", "<tool_call>{", "commentary to=", " "]
    {
        let mut markup = Markup::default();
        for c in piece.repeat(20_000 / piece.len()).chars() {
            markup.push(c.encode_utf8(&mut [0; 4]));
            assert!(markup.pending.len() < 2 * LOOKAHEAD, "{piece}");
        }
    }
}

/// Texts made of tags, bodies, near misses and noise.
fn soup() -> impl Strategy<Value = String> {
    let mut bits: Vec<&'static str> = NEAR_MISSES.to_vec();
    for family in FAMILIES {
        bits.extend(family.examples);
        bits.extend(family.openers);
        bits.extend(family.closers);
    }
    bits.extend(["\n", " ", "```", "`", "{", "}", "\"", "x", "é", "search", ":", "<", "[", "]"]);
    prop::collection::vec(prop::sample::select(bits), 0..8).prop_map(|bits| bits.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_chunking_gives_the_same_text(text in soup(), sizes in prop::collection::vec(1usize..9, 1..6)) {
        prop_assert_eq!(cut_in_pieces(&text, &sizes), cut(&text));
    }

    #[test]
    fn removing_markup_never_adds_text_and_never_panics(text in any::<String>()) {
        let out = cut(&text);
        let mut rest = text.chars();
        prop_assert!(out.chars().all(|c| rest.any(|other| other == c)));
    }
}
