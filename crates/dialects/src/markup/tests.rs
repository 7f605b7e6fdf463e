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
    "Solar opens with <|tool_call:begin|> and goes on with <|tool_call:name|>.",
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

/// Calls of known tools in forms that no table lists: each is removed whole.
const STRUCTURES: &[&str] = &[
    // xLAM, Hammer, Qwen, Llama: JSON in a code block.
    "```json\n[{\"name\": \"search\", \"arguments\": {\"q\": \"a ``` b\"}}]\n```",
    "```\n{\"name\": \"search\", \"parameters\": {\"q\": 1}}\n```",
    "```json\n{\n  \"tool_calls\": [\n    {\"name\": \"search\", \"arguments\": {}}\n  ]\n}\n```",
    "```[{\"name\": \"search\", \"arguments\": {\"q\": 1}}]```",
    "````json\n{\"name\": \"search\", \"arguments\": {}}\n// looks it up\n````",
    "~~~json\n{\"tool\": \"search\", \"args\": {}}\n~~~",
    // Gemma 3, Gemini.
    "```tool_code\nsearch(q=\"news\")\n```",
    "```tool_code\nprint(search(q='it\\'s'))\n```",
    "```tool_code\nprint(default_api.search(q=\"news\"))\n```",
    "```python\nprint(default_api.search(q=\"news\"))\n```",
    "```tool_call\n{'name': 'search', 'arguments': {'q': 'it\\'s }'}}\n```",
    "```tool_call\nsearch\n{\"q\": 1}\n```",
    "```xml\n<tool_use><name>search</name><arguments>{}</arguments></tool_use>\n```",
    // Tags of any name, and of calls.
    "<tool_use>\n{\"name\": \"search\", \"input\": {\"q\": \"x\"}}\n</tool_use>",
    "<tool_use>\n<name>search</name>\n<arguments>{\"q\": 1}</arguments>\n</tool_use>",
    "<tool_use name=\"search\">\n<q>news</q>\n</tool_use>",
    "<tool name=\"search\" q=\"news\"/>",
    "<use_mcp_tool>\n<server_name>web</server_name>\n<tool_name>search</tool_name>\n<arguments>\n{}\n</arguments>\n</use_mcp_tool>",
    "<invoke>\n<tool_name>search</tool_name>\n<parameters><q>x</q></parameters>\n</invoke>",
    "<tools>\n<tool>{\"name\": \"search\", \"arguments\": {}}</tool>\n</tools>",
    "<response>{\"name\": \"search\", \"arguments\": {}}</response>",
    "<json>\n{\"arguments\": {\"q\": {\"a\": [1, \"}\"]}}, \"name\": \"search\"}\n</json>",
    "<function_call name=\"search\">{\"q\": 1}</function_call>",
    "<function name=\"search\"><param name=\"q\">x</param></function>",
    "<tool_call:6124c78e>search<arg_key:6124c78e>q</arg_key:6124c78e></tool_call:6124c78e>",
    "<tool_code>\nprint(search(q=\"x\"))\n</tool_code>",
    "<list_files>\n<path>.</path>\n</list_files>",
    "<action>\n<search>\n<q>x</q>\n</search>\n</action>",
    // Tokens.
    "[TOOL_REQUEST]\n{\"name\": \"search\", \"arguments\": {}}\n[END_TOOL_REQUEST]",
    "<<function>>[search(q=\"x\")]",
    "<|tool_request|>{\"name\": \"search\", \"arguments\": {}}",
    "<|plamo:begin_tool_name:plamo|>search<|plamo:end_tool_name:plamo|>{\"q\": 1}",
    // Functionary 3.2.
    ">>>search\n{\"q\": \"news\"}",
    // Labels.
    "Action: search\nAction Input: {\"q\": \"news\"}\nObservation:",
    "Action: search\nAction Input: the news of today\n",
    "Action:\n```json\n{\"action\": \"search\", \"action_input\": \"news\"}\n```",
    "**Tool Call:**\n```json\n{\"name\": \"search\", \"arguments\": {}}\n```",
    "Tool: search\nArguments: {\"q\": 1}",
    "Calling tools:\n[{'id': 'a', 'type': 'function', 'function': {'name': 'search', 'arguments': {'q': None}}}]",
    "Call: search(q='x')",
    "✿FUNCTION✿: search\n✿ARGS✿: {\"q\": 1}",
    // Bare.
    "{\"name\": \"search\", \"parameters\": {\"q\": \"news\"}}",
    "{\"name\": \"a\", \"parameters\": {}}; {\"name\": \"b\", \"parameters\": {}}",
    "{\"type\": \"function\", \"name\": \"search\", \"parameters\": {}}",
    "{\"type\": \"function\", \"function\": {\"name\": \"search\", \"arguments\": {}}}",
    "{\"tool_calls\": [{\"name\": \"search\", \"arguments\": {}}]}",
    "[{\"name\": \"search\", \"arguments\": {\"q\": \"news\"}}]",
    "[search(q='it\\'s ]'), fetch()]",
    // GPT-5, gpt-oss: the header of a message to a tool, with tokens and without.
    "to=search code\n{\"q\": \"news\"}<|call|>",
    "commentary to=search json\n{\"q\": \"news\"}",
    "assistant to=functions.search\n{\n  \"q\": \"news\"\n}",
    "<|channel|>final to=search code<|message|>{\"q\": 1}<|call|>",
    // Cline, Roo Code: a tag that is named after the tool, and its parameters.
    "<search>\n<q>news of <b>today</b></q>\n</search>",
    "<search><limit>3</limit><q>x</q></search>",
    "<search>{\"q\": \"</search>\"}</search>",
    "<search q=\"news\" />",
    "<list_files>\n<path>.</path>\n</list_files>",
    // Code that calls tools in the name space which models are told of.
    "```ts\nawait functions.search({q: \"a ``` b\"})\n```",
    "```js\nawait functions.search({q: 'x'});\nawait functions.fetch({u: 1});\n```",
    "```python\nfunctions.search(q=\"news\")\n```",
    "```\nfunctions.search({\"q\": \"news\"})\n```",
    "await functions.search({q: \"news\"})",
    "functions.search(q=\"news\")",
];

/// Calls that are recognised only as the whole answer.
const WHOLE_ANSWERS: &[&str] = &[
    "search\n{\"q\": \"news\"}",
    "search\n```python\ntool_call(q='news')\n```",
    "search(q=\"a) b\")\nfetch(u=1)",
    "search()",
    "await search({q: \"news\"})",
    "```python\nsearch(q=\"news\")\n```",
    "```js\nawait search({q: \"news\"});\n```",
    "```\nsearch(q='it\\'s')\nfetch(u=1)\n```",
    "```python\nprint(search(q=\"news\"))\n```\n\n```python\nfetch(u=1)\n```",
    "```xml\n<search>\n<q>news</q>\n</search>\n```",
];

/// Healthy answers of a model that has the tools of [`tools`].
const HEALTHY: &[&str] = &[
    "search(q) looks it up.",
    "search the web\nand read",
    "The call `search(q=1)` looks it up.",
    "Use it so:\n```python\nresult = search(q=\"news\")\nprint(result)\n```\n",
    "Use it so:\n```python\nsearch(q=\"news\")\n```\n",
    "Use it so:\n```js\nawait fetch(\"/a\")\n```\n",
    "Send this:\n```json\n{\"name\": \"deploy\", \"arguments\": {\"to\": \"prod\"}}\n```\nThat is all.",
    "The package:\n```json\n{\"name\": \"search\", \"version\": \"1.0\"}\n```\n",
    "```json\n[{\"name\": \"search\", \"description\": \"Looks it up\"}]\n```",
    "{\"name\": \"search\", \"parameters\": {\"type\": \"object\", \"properties\": {}}}",
    "{\"type\": \"function\", \"function\": {\"name\": \"search\", \"description\": \"x\", \"parameters\": {\"properties\": {}}}}",
    "{\"id\": 1, \"name\": \"Ann\", \"arguments\": {}}",
    "{\"name\": \"deploy\", \"parameters\": {\"to\": \"prod\"}}",
    "<ul>\n<li>search</li>\n</ul>",
    "<search>\n<form>x</form>\n</search>",
    "<user><name>search</name></user>",
    "<input name=\"search\">",
    "x <y and z> w, 1 << 2, a <b",
    "- search: looks it up\n- fetch: reads it",
    "Tool: search\nInput: a query\nOutput: results",
    "Tools:\n1. search\n2. fetch",
    "Action items:\n- search the archive",
    "Action: none needed.",
    "[search](https://example.org)",
    "[SEE_NOTE] search",
    ">>> search(q=1)\n'x'",
    "Call search(q=1) first.",
    "Result: {\"name\": \"search\", \"parameters\": {\"q\": 1}}",
    "```\n$ search news\n```",
    "```tool_code\ndeploy(to=\"prod\")\n```",
    "```yaml\nname: search\narguments: {}\n```",
    "```xml\n<function name=\"search\"><doc>Looks it up</doc></function>\n```",
    "```xml\n<tools>\n<tool name=\"search\">\n<description>Looks it up</description>\n</tool>\n</tools>\n```",
    "```xml\n<tool name=\"search\"/>\n<tool name=\"fetch\"/>\n```",
    "```xml\n<function name=\"search\">Looks it up</function>\n```",
    "```xml\n<tool>\n<name>search</name>\n<description>Looks it up</description>\n</tool>\n```",
    "<function name=\"search\"><doc>Looks it up</doc></function>",
    "<tool name=\"search\" description=\"Looks it up\"/>",
    "<function name=\"search\">{\"type\": \"object\", \"properties\": {}}</function>",
    "<tools>[{\"name\": \"search\", \"description\": \"Looks it up\"}]</tools>",
    "<search>\n<result>x</result>\n</search>",
    "<search>{\"hits\": 3}</search>",
    "<search/>",
    "```html\n<search>\n<form>x</form>\n</search>\n```",
    "```ts\nconst found = await functions.search({q: 1});\n```",
    "```ts\nawait functions.search({q: 1});\nconsole.log(\"done\");\n```",
    "```python\nsearch(q=\"news\")\n```\nThis looks it up.",
    "```python\nsearch(q=\"news\")\nprint(1)\n```",
    "to=functions.search is the header. A call follows: {\"q\": 1}",
    "to=functions.deploy and json",
    "commentary to=search",
    "analysis of the search {x}",
    "final answer: {\"q\": 1}",
];

fn tools() -> Arc<ToolNames> {
    let names = ["a", "b", "fetch", "list_files", "search"];
    let parameters = [("fetch", &["u"][..]), ("list_files", &["path"]), ("search", &["q", "limit"])];
    let parameters =
        parameters.map(|(tool, names)| (tool.to_owned(), names.iter().map(|it| (*it).to_owned()).collect()));
    Arc::new(ToolNames::new(names.map(str::to_owned)).with_parameters(&parameters))
}

fn cut(text: &str) -> String {
    let mut markup = Markup::new(&tools());
    let out = markup.push(text);
    out + &markup.finish()
}

fn cut_in_pieces(text: &str, sizes: &[usize]) -> String {
    let mut markup = Markup::new(&tools());
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
fn a_call_of_a_known_tool_is_cut_out_in_any_form() {
    for example in STRUCTURES.iter().chain(WHOLE_ANSWERS) {
        assert_eq!(cut(example).trim(), "", "{example}");
        assert_eq!(cut(&format!("  \n{example}\n")).trim(), "", "{example}");
    }
    for example in STRUCTURES {
        for (before, after) in [("I looked.\n", ""), ("I looked.\n\n", "\n\nIt is 7.")] {
            let expected = format!("{before}{after}");
            let expected = expected.split_whitespace().collect::<Vec<_>>();
            let out = cut(&format!("{before}{example}{after}"));
            assert_eq!(out.split_whitespace().collect::<Vec<_>>(), expected, "{example}");
        }
        for size in 1..9 {
            assert_eq!(cut_in_pieces(example, &[size]).trim(), "", "{size}: {example}");
        }
    }
}

#[test]
fn a_call_of_a_tool_that_nobody_knows_stays_where_only_its_form_says_that_it_is_one() {
    for example in STRUCTURES.iter().chain(WHOLE_ANSWERS) {
        let unknown =
            example.replace("search", "deploy").replace("fetch", "deploy").replace("list_files", "x_y");
        if unknown != **example {
            assert_eq!(cut(&unknown), unknown);
        }
    }
}

#[test]
fn healthy_answers_stay_byte_for_byte() {
    for text in HEALTHY {
        assert_eq!(cut(text), *text);
        assert_eq!(cut(&format!("So:\n\n{text}\n")), format!("So:\n\n{text}\n"));
        for size in 1..9 {
            assert_eq!(cut_in_pieces(text, &[size]), *text);
        }
    }
}

#[test]
fn the_text_around_a_block_stays() {
    for family in FAMILIES {
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
        ("[TOOL_CALLS]x_y{} So.\n[TOOL_CALLS] is a token.", " So.\n[TOOL_CALLS] is a token."),
        ("[TOOL_CALLS]x_y{}\n[TOOL_CALLS]deploy{} So.", "\n So."),
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
fn names_of_any_length_are_read_alike_however_the_text_is_split() {
    for length in 48..72 {
        let (word, capitals, attribute) = ("x".repeat(length), "X".repeat(length), "x".repeat(4 * length));
        for text in [
            format!("Call {word}: search(q=1)"),
            format!("<|tool_{word}|>search(q=1)"),
            format!("[TOOL_{capitals}]search(q=1)"),
            format!("[TOOL_CALLS]a{{}}<|tool_{word}|>"),
            format!("```tool_{word}\nsearch(q=1)\n```"),
            format!("Action: search\n{word} input: {{}}"),
            format!("<tool_{word} name=\"search\">1</tool_{word}>"),
            format!("<tool name=\"search\" {attribute}>1</tool>"),
        ] {
            for size in 1..6 {
                assert_eq!(cut_in_pieces(&text, &[size]), cut(&text), "{size}: {text}");
            }
        }
    }
}

#[test]
fn hostile_text_never_makes_the_markup_scanner_hold_back_much() {
    // Each piece keeps something waiting, or begins something that never ends. Only held text is scanned twice.
    for piece in [
        "<",
        "<tool_call>",
        "<tool_call> ",
        "`",
        "[",
        "{\"name\" ",
        "<tool_call>{",
        "commentary to=",
        " ",
        "{\"id\": ",
        "<tool a",
        "```\n",
        "Action: ",
        "search\n",
        "<tool_call>{}[TOOL_CALLS]search ",
        "```python\nprint(",
    ] {
        for (tools, most) in [(Arc::default(), 2 * LOOKAHEAD), (tools(), 2 * structure::WINDOW)] {
            let mut markup = Markup::new(&tools);
            for c in piece.repeat(20_000 / piece.len()).chars() {
                markup.push(c.encode_utf8(&mut [0; 4]));
                assert!(markup.pending.len() < most, "{piece}");
            }
        }
    }
}

/// Texts made of tags, bodies, near misses and noise.
fn soup() -> impl Strategy<Value = String> {
    let mut bits: Vec<&'static str> = [NEAR_MISSES, STRUCTURES, WHOLE_ANSWERS, HEALTHY].concat();
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
