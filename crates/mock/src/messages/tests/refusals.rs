//! One row for each rule: a request that passes, the smallest change that is refused, and the wording.

use super::*;

/// A request that passes with `betas`, a change of it, and a part of the one violation after the change.
struct Rule {
    betas: &'static str,
    passes: Value,
    change: fn(&mut Value),
    refusal: &'static str,
}

/// Checks each rule. `Value::take` leaves a null, which counts as absent.
fn check(rules: Vec<Rule>) {
    for Rule { betas, mut passes, change, refusal } in rules {
        assert_eq!(violations_of(betas, &passes), Vec::<String>::new(), "before: {refusal}");
        change(&mut passes);
        let found = violations_of(betas, &passes);
        assert!(found.len() == 1 && found[0].contains(refusal), "{refusal}: {found:#?}");
    }
}

fn rule(passes: Value, change: fn(&mut Value), refusal: &'static str) -> Rule {
    Rule { betas: "", passes, change, refusal }
}

fn rule_with(betas: &'static str, passes: Value, change: fn(&mut Value), refusal: &'static str) -> Rule {
    Rule { betas, passes, change, refusal }
}

/// The content of the message at `index`.
fn content(body: &mut Value, index: usize) -> &mut Vec<Value> {
    body["messages"][index]["content"].as_array_mut().unwrap()
}

fn messages(body: &mut Value) -> &mut Vec<Value> {
    body["messages"].as_array_mut().unwrap()
}

fn of_model(model: &str, body: Value) -> Value {
    with(body, "model", json!(model))
}

fn thought(signature: &str) -> Value {
    json!({"type": "thinking", "thinking": "", "signature": signature})
}

#[test]
fn calls_and_results_belong_together() {
    check(vec![
        rule(
            looped(),
            |body| drop(content(body, 2).pop()),
            "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_2. Each \
             `tool_use` block must have a corresponding `tool_result` block in the next message.",
        ),
        rule(looped(), |body| drop(messages(body).pop()), "immediately after: toolu_1, toolu_2."),
        rule(
            looped(),
            |body| content(body, 2).insert(0, text("first")),
            "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1, toolu_2.",
        ),
        rule(looped(), |body| content(body, 2).insert(1, text("between")), "immediately after: toolu_2."),
        rule(
            looped(),
            |body| messages(body).insert(2, user(&json!("a message before the results"))),
            "immediately after: toolu_1, toolu_2.",
        ),
        rule(
            looped(),
            |body| content(body, 2).push(result("toolu_9")),
            "messages.2.content.2: unexpected `tool_use_id` found in `tool_result` blocks: toolu_9. Each `tool_result` \
             block must have a corresponding `tool_use` block in the previous message.",
        ),
        rule(
            request(&[user(&json!("q"))]),
            |body| messages(body).push(user(&json!([result("toolu_1")]))),
            "messages.0.content.1: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1.",
        ),
        rule(
            looped(),
            |body| content(body, 2).push(result("toolu_2")),
            "messages.2.content.2: each tool_use must have a single result. Found multiple `tool_result` blocks with id: \
             toolu_2",
        ),
        rule(
            request(&[
                user(&json!("q")),
                assistant(&json!([call("toolu_1")])),
                user(&json!([result("toolu_1")])),
                assistant(&json!([call("toolu_2")])),
                user(&json!([result("toolu_2")])),
            ]),
            |body| {
                body["messages"][3]["content"][0]["id"] = json!("toolu_1");
                body["messages"][4]["content"][0]["tool_use_id"] = json!("toolu_1");
            },
            "messages.3.content.0: `tool_use` ids must be unique",
        ),
        rule(
            of_model("claude-opus-4-6", looped()),
            |body| drop(messages(body).pop()),
            "immediately after: toolu_1, toolu_2.",
        ),
        rule(
            request(&[
                user(&json!("q")),
                assistant(&json!([
                    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
                    call("toolu_1")
                ])),
                user(&json!([result("toolu_1")])),
            ]),
            |body| {
                content(body, 1)[0]["id"] = json!("toolu_1");
            },
            "messages.1.content.1: `tool_use` ids must be unique",
        ),
        rule(
            with(looped(), "messages", {
                let mut call = call("toolu_1");
                call["caller"] = json!({"type": "code_execution_20260120", "tool_id": "srvtoolu_1"});
                json!([user(&json!("q")), assistant(&json!([call])), user(&json!([result("toolu_1")]))])
            }),
            |body| content(body, 2).push(text("a notice")),
            "messages.2: only `tool_result` blocks may be provided in response to programmatic tool calls",
        ),
        rule(
            request(&[
                user(&json!("q")),
                assistant(&json!([
                    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
                    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
                    text("an answer")
                ])),
                user(&json!("more")),
            ]),
            |body| drop(content(body, 1).remove(0)),
            "messages.1.content.0: unexpected `tool_use_id` found in `web_search_tool_result` blocks: srvtoolu_1.",
        ),
    ]);
}

#[test]
fn blocks_have_their_types_members_and_patterns() {
    check(vec![
        rule(
            looped(),
            |body| body["messages"][1]["content"][1]["input"] = json!("{}"),
            "messages.1.content.1.tool_use.input: Input should be a valid dictionary",
        ),
        rule(
            looped(),
            |body| drop(content(body, 1)[1].as_object_mut().unwrap().remove("input")),
            "messages.1.content.1.tool_use.input: Field required",
        ),
        rule(
            looped(),
            |body| body["messages"][1]["content"][0]["text"] = json!(""),
            "messages: text content blocks must be non-empty",
        ),
        rule(
            looped(),
            |body| {
                body["messages"][1]["content"][0] =
                    json!({"type": "text", "text": "", "cache_control": {"type": "ephemeral"}});
            },
            "messages.1.content.0.text: cache_control cannot be set for empty text blocks",
        ),
        rule(
            looped(),
            |body| body["messages"][2]["content"][0]["content"] = json!([text("")]),
            "messages: text content blocks must be non-empty",
        ),
        rule(
            looped(),
            |body| body["messages"][0]["content"] = json!(""),
            "text content blocks must be non-empty",
        ),
        rule(
            looped(),
            |body| body["messages"][0]["content"] = json!([]),
            "messages.0: all messages must have",
        ),
        rule(
            looped(),
            |body| body["messages"][1]["content"][1]["name"] = json!("a b"),
            "messages.1.content.1.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
        ),
        rule(
            looped(),
            |body| body["messages"][1]["content"][1]["extra"] = json!(1),
            "messages.1.content.1.tool_use.extra: Extra inputs are not permitted",
        ),
        rule(
            looped(),
            |body| body["messages"][2]["content"][0]["status"] = json!("ok"),
            "messages.2.content.0.tool_result.status: Extra inputs are not permitted",
        ),
        rule(
            looped(),
            |body| body["messages"][2]["content"][0]["content"] = json!([{"type": "audio"}]),
            "messages.2.content.0.tool_result.content.0: Input tag 'audio' found using 'type' does not match any",
        ),
        rule(
            looped(),
            |body| content(body, 2).push(json!({"type": "thinking", "thinking": "", "signature": "s"})),
            "messages.2.content.2: `thinking` blocks can only be in `assistant` messages",
        ),
        rule(
            looped(),
            |body| content(body, 1).push(json!({"type": "image", "source": {}})),
            "messages.1.content.3: `image` blocks can only be in `user` messages",
        ),
        rule(
            request(&[user(&json!([text("q")]))]),
            |body| content(body, 0).push(json!({"type": "input_text", "text": "q"})),
            "messages.0.content.1: Input tag 'input_text' found using 'type' does not match any of the expected tags: \
             'text', 'image', ",
        ),
        rule(
            looped(),
            |body| body["messages"][0]["name"] = json!("n"),
            "messages.0.name: Extra inputs are not permitted",
        ),
        rule(
            looped(),
            |body| body["messages"][0]["output_config"] = json!({"effort": "low"}),
            "messages.0.output_config: Extra inputs are not permitted",
        ),
        rule(
            request(&[user(&json!("q"))]),
            |body| messages(body).push(json!({"role": "tool", "content": "x"})),
            "messages: Unexpected role \"tool\". Allowed roles are \"user\" or \"assistant\".",
        ),
        rule(
            looped(),
            |body| body["messages"][0] = json!("q"),
            "messages.0: Input does not match the expected shape.",
        ),
    ]);
}

#[test]
fn ids_match_their_pattern() {
    let mut body = looped();
    body["messages"][1]["content"][1]["id"] = json!("call:1");
    body["messages"][2]["content"][0]["tool_use_id"] = json!("call:1");
    let pattern = "String should match pattern '^[a-zA-Z0-9_-]+$'";
    let paths = ["messages.1.content.1.tool_use.id", "messages.2.content.0.tool_result.tool_use_id"];
    assert_eq!(violations_of("", &body), paths.map(|path| format!("{path}: {pattern}")));
}

#[test]
fn members_of_the_request_are_known_and_have_their_types() {
    let asked = || request(&[user(&json!("q"))]);
    check(vec![
        rule(asked(), |body| body["toolrein"] = json!(true), "toolrein: Extra inputs are not permitted"),
        rule(asked(), |body| drop(body["max_tokens"].take()), "max_tokens: Field required"),
        rule(asked(), |body| drop(body["model"].take()), "model: Field required"),
        rule(asked(), |body| drop(body["messages"].take()), "messages: Field required"),
        rule(asked(), |body| body["messages"] = json!([]), "messages: at least one message is required"),
        rule(asked(), |body| body["max_tokens"] = json!("9"), "max_tokens: Input should be a valid integer"),
        rule(asked(), |body| body["temperature"] = json!(1.5), "temperature: range: 0..1"),
        rule(
            with(asked(), "system", json!([text("s")])),
            |body| body["system"][0]["text"] = json!(""),
            "system: text content blocks must be non-empty",
        ),
        rule(
            with(asked(), "thinking", json!({"type": "enabled", "budget_tokens": 1024})),
            |body| body["thinking"]["budget_tokens"] = json!(1023),
            "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
        ),
        rule(
            with(asked(), "thinking", json!({"type": "enabled", "budget_tokens": 1024})),
            |body| body["max_tokens"] = json!(1024),
            "`max_tokens` must be greater than `thinking.budget_tokens`.",
        ),
        rule(
            with(
                of_model("claude-opus-4-6", asked()),
                "thinking",
                json!({"type": "enabled", "budget_tokens": 1024}),
            ),
            |body| body["model"] = json!("claude-opus-4-7"),
            "\"thinking.type.enabled\" is not supported for this model.",
        ),
        rule(
            with(of_model("claude-opus-4-6", asked()), "thinking", json!({"type": "adaptive"})),
            |body| body["model"] = json!("claude-sonnet-4-5"),
            "adaptive thinking is not supported on this model",
        ),
        rule(
            asked(),
            |body| body["thinking"] = json!({"type": "disabled", "block_binding": {}}),
            "thinking.disabled.block_binding: Extra inputs are not permitted",
        ),
        rule(
            with(asked(), "system", json!(marked_texts(4))),
            |body| body["system"] = json!(marked_texts(5)),
            "A maximum of 4 blocks with cache_control may be provided. Found 5.",
        ),
        rule(
            with(asked(), "system", json!(marked_texts(4))),
            |body| body["cache_control"] = json!({"type": "ephemeral"}),
            "A maximum of 4 blocks with cache_control may be provided. Found 5.",
        ),
        rule(
            with(looped(), "system", json!(marked_texts(3))),
            |body| {
                body["tools"][0]["cache_control"] = json!({"type": "ephemeral"});
                let part = json!({"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}});
                body["messages"][2]["content"][0]["content"] = json!([part]);
            },
            "A maximum of 4 blocks with cache_control may be provided. Found 5.",
        ),
    ]);
}

fn marked_texts(number: usize) -> Vec<Value> {
    let marked = json!({"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}});
    vec![marked; number]
}

#[test]
fn members_of_a_beta_need_its_header() {
    let mut system = request(&[
        user(&json!("q")),
        json!({"role": "system", "content": [text("s")], "clear_at": "next_user_message"}),
    ]);
    system["model"] = json!("claude-opus-5");
    let mut added = request(&[user(&json!("q")), json!({"role": "system", "content": []})]);
    added["model"] = json!("claude-opus-5");
    let mut named = added.clone();
    named["messages"][1]["content"] = json!([{"type": "tool_addition", "tool": {"name": "other"}}]);
    added["messages"][1]["content"] =
        json!([{"type": "tool_addition", "tool_definition": {"name": "other"}}]);
    let asked = request(&[user(&json!("q"))]);
    for (beta, body, refusal) in [
        (
            "context-management-2025-06-27",
            with(asked.clone(), "context_management", json!({})),
            "context_management",
        ),
        ("message-threads-2026-08-12", with(asked.clone(), "thread", json!({"type": "create"})), "thread"),
        ("dangerous-tool-use-2026-09-03", with(asked, "safeguards", json!({})), "safeguards"),
        ("mid-conversation-system-clear-at-2026-08-21", system, "messages.1.clear_at"),
        ("mid-conversation-tool-changes-2026-07-01", named, "messages.1.content.0"),
        ("inline-tools-2026-09-15", added, "messages.1.content.0"),
    ] {
        assert_eq!(violations_of(beta, &body), Vec::<String>::new(), "{beta}");
        let expected = format!("{refusal}: Extra inputs are not permitted");
        assert_eq!(violations_of("other-beta", &body), [expected], "{beta}");
    }
}

#[test]
fn a_turn_scoped_system_message_has_texts_alone() {
    const BETAS: &str = "mid-conversation-system-clear-at-2026-08-21, inline-tools-2026-09-15";
    let asked = || {
        let system = json!({"role": "system", "content": [text("s")], "clear_at": "next_user_message"});
        of_model("claude-opus-5", request(&[user(&json!("q")), system]))
    };
    check(vec![
        rule_with(
            BETAS,
            asked(),
            |body| body["messages"][1]["clear_at"] = json!("later"),
            "messages.1.clear_at: Input should be 'next_user_message'",
        ),
        rule_with(
            BETAS,
            asked(),
            |body| content(body, 1)[0]["cache_control"] = json!({"type": "ephemeral"}),
            "messages.1.content.0.text.cache_control: Extra inputs are not permitted",
        ),
        rule_with(
            BETAS,
            asked(),
            |body| content(body, 1).push(json!({"type": "tool_removal", "tool": {"name": "search"}})),
            "messages.1.content.1: a message with `clear_at` can only have `text` blocks",
        ),
    ]);
}

#[test]
fn headers_name_a_known_version_and_the_newest_one_refuses_sampling() {
    let with_version = |version: &str, body: &Value| {
        let head = RequestHead::from_headers([("anthropic-version", version)]);
        violations(&head, body.to_string().as_bytes())
    };
    let body = request(&[user(&json!("q"))]);
    let none = violations(&RequestHead::default(), body.to_string().as_bytes());
    assert_eq!(none, ["anthropic-version: header is required"]);
    let unknown = with_version("2024-01-01", &body);
    assert_eq!(unknown, ["anthropic-version: \"2024-01-01\" is not a valid version"]);
    let mut answered =
        request(&[user(&json!([text("q")])), assistant(&json!([text("a")])), user(&json!("q"))]);
    for (member, value) in [("temperature", json!(1)), ("top_p", json!(0.5)), ("top_k", json!(3))] {
        let body = with(body.clone(), member, value);
        assert_eq!(with_version("2023-06-01", &body), Vec::<String>::new());
        assert_eq!(with_version("2026-10-21", &body), [format!("{member}: Extra inputs are not permitted")]);
    }
    assert_eq!(with_version("2026-10-21", &answered), Vec::<String>::new());
    answered["messages"][0]["content"][0]["citations"] = json!([]);
    answered["messages"][1]["content"][0] = json!({"type": "document", "source": {}});
    assert_eq!(with_version("2023-06-01", &answered), Vec::<String>::new());
    assert_eq!(
        with_version("2026-10-21", &answered),
        [
            "messages.0.content.0.text.citations: Extra inputs are not permitted",
            "messages.1.content.0: `document` blocks can only be in `user` messages"
        ]
    );
    assert!(violations(&head(""), b"{")[0].starts_with("The request body is not valid JSON: "));
}

#[test]
fn tools_and_the_choice_among_them_fit_the_model() {
    let asked = || request(&[user(&json!("q"))]);
    let forced = || with(asked(), "tool_choice", json!({"type": "any"}));
    check(vec![
        rule(
            asked(),
            |body| body["tools"][0]["name"] = json!("a.b"),
            "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
        ),
        rule(
            with(asked(), "tools", json!([{"name": "n".repeat(128), "input_schema": {"type": "object"}}])),
            |body| body["tools"][0]["name"] = json!("n".repeat(129)),
            "tools.0.custom.name: String should match pattern",
        ),
        rule(asked(), |body| drop(body["tools"][0]["name"].take()), "tools.0.custom.name: Field required"),
        rule(
            asked(),
            |body| drop(body["tools"][0]["input_schema"].take()),
            "tools.0.custom.input_schema: Field required",
        ),
        rule(
            asked(),
            |body| body["tools"][0]["input_schema"] = json!({"properties": {}}),
            "tools.0.custom.input_schema.type: Field required",
        ),
        rule(
            asked(),
            |body| body["tools"][0]["input_schema"]["oneOf"] = json!([]),
            "tools.0.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level",
        ),
        rule(
            asked(),
            |body| {
                let tool = body["tools"][0].clone();
                body["tools"].as_array_mut().unwrap().push(tool);
            },
            "tools: Tool names must be unique.",
        ),
        rule(
            with(asked(), "tools", json!(strict_tools(20))),
            |body| body["tools"] = json!(strict_tools(21)),
            "Too many strict tools (21). The maximum number of strict tools supported is 20.",
        ),
        rule(
            forced(),
            |body| body["model"] = json!("claude-opus-5-5"),
            "tool_choice: type \"tool\" and \"any\" are not supported for this model.",
        ),
        rule(
            with(asked(), "tool_choice", json!({"type": "tool", "name": "search"})),
            |body| body["model"] = json!("claude-fable-5-1"),
            "tool_choice: type \"tool\" and \"any\" are not supported for this model.",
        ),
        rule(
            forced(),
            |body| body["thinking"] = json!({"type": "enabled", "budget_tokens": 1024}),
            "Thinking may not be enabled when tool_choice forces tool use.",
        ),
        rule(
            with(asked(), "tool_choice", json!({"type": "tool", "name": "search"})),
            |body| body["tool_choice"]["name"] = json!("other"),
            "tool_choice: Tool 'other' not found in provided tools",
        ),
        rule(
            with(asked(), "tool_choice", json!({"type": "tool", "name": "search"})),
            |body| drop(body["tool_choice"]["name"].take()),
            "tool_choice.tool.name: Field required",
        ),
        rule(
            with(asked(), "tool_choice", json!({"type": "none"})),
            |body| drop(body["tools"].take()),
            "tool_choice: `tool_choice` may only be specified while providing `tools`.",
        ),
        rule(
            with(asked(), "tool_choice", json!({"type": "auto"})),
            |body| body["tool_choice"]["type"] = json!("required"),
            "tool_choice: Input tag 'required' found using 'type' does not match any of the expected tags: 'auto', 'any', \
             'tool', 'none'",
        ),
    ]);
}

fn strict_tools(number: usize) -> Vec<Value> {
    let tool =
        |index| json!({"name": format!("t{index}"), "strict": true, "input_schema": {"type": "object"}});
    (0..number).map(tool).collect()
}

#[test]
fn system_messages_follow_a_user_and_precede_an_assistant() {
    let system = || json!({"role": "system", "content": [{"type": "text", "text": "s"}]});
    let asked = || {
        let asked = [user(&json!("q")), assistant(&json!("a")), user(&json!("q"))];
        of_model("claude-opus-4-8", request(&asked))
    };
    let with_system = |index: usize| {
        let mut body = asked();
        body["messages"].as_array_mut().unwrap().insert(index, system());
        body
    };
    let results = |body: Value| of_model("claude-opus-4-8", body);
    let mut after_results = results(looped());
    after_results["messages"].as_array_mut().unwrap().push(system());
    check(vec![
        rule(
            with_system(1),
            |body| body["messages"].as_array_mut().unwrap().swap(1, 2),
            "messages.2: role 'system' must follow a 'user' message or an 'assistant' message ending in a server tool \
             result; the directive-only form (content: [] with output_config) is accepted at any position",
        ),
        rule(
            with_system(3),
            |body| messages(body).push(json!({"role": "user", "content": "q"})),
            "messages.3: role 'system' must precede an 'assistant' message or end the array; the directive-only form",
        ),
        rule(
            asked(),
            |body| messages(body).insert(0, json!({"role": "system", "content": "s"})),
            "messages.0: use the top-level 'system' parameter for the initial system prompt; the directive-only form",
        ),
        rule(
            with_system(1),
            |body| body["messages"][1]["content"] = json!([]),
            "messages.1: system content must contain at least one block",
        ),
        rule(
            after_results,
            |body| body["messages"][3]["content"][0] = json!({"type": "image", "source": {}}),
            "messages.3.content.0: Input tag 'image' found using 'type' does not match any of the expected tags: 'text', \
             'tool_addition', 'tool_removal'",
        ),
        rule(
            with_system(1),
            |body| body["model"] = json!("claude-sonnet-5"),
            "messages: Unexpected role \"system\".",
        ),
    ]);
    let mut directive = asked();
    let only = json!({"role": "system", "content": [], "output_config": {"effort": "low"}});
    directive["messages"].as_array_mut().unwrap().insert(0, only);
    assert_eq!(violations_of("", &directive), Vec::<String>::new());
}

#[test]
fn the_last_message_is_no_prefill_where_the_model_refuses_it() {
    let prefilled = |end: &str| request(&[user(&json!("q")), assistant(&json!([text(end)]))]);
    check(vec![
        rule(
            prefilled("The answer"),
            |body| body["model"] = json!("claude-opus-4-6"),
            "This model does not support assistant message prefill. The conversation must end with a user message.",
        ),
        rule(
            prefilled("The answer"),
            |body| body["messages"][1]["content"][0]["text"] = json!("The answer "),
            "messages: final assistant content cannot end with trailing whitespace",
        ),
        rule(
            prefilled("The answer"),
            |body| body["messages"][1]["content"][0]["text"] = json!(" "),
            "messages: text content blocks must be non-empty",
        ),
    ]);
    let mut paused = prefilled("x");
    paused["model"] = json!("claude-opus-5");
    paused["messages"][1]["content"] =
        json!([{"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}]);
    assert_eq!(violations_of("", &paused), Vec::<String>::new(), "a reply that paused");
}

#[test]
fn thinking_is_first_in_its_message_and_first_in_an_open_loop() {
    let thinking = json!({"type": "enabled", "budget_tokens": 1024});
    let mut thought_loop = with(looped(), "thinking", thinking.clone());
    content(&mut thought_loop, 1).insert(0, thought("s"));
    check(vec![
        rule(
            thought_loop.clone(),
            |body| drop(content(body, 1).remove(0)),
            "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`. When `thinking` is \
             enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of \
             `tool_use` and `tool_result` blocks).",
        ),
        rule(
            with(thought_loop.clone(), "thinking", json!({"type": "disabled"})),
            |body| content(body, 1).swap(0, 1),
            "If an assistant message contains any thinking blocks, the first block must be `thinking` or \
             `redacted_thinking`. Found `text`",
        ),
        rule(
            with(
                request(&[user(&json!("q")), assistant(&json!([thought("s"), text("a")]))]),
                "thinking",
                thinking,
            ),
            |body| drop(body["thinking"].take()),
            "When thinking is disabled, an `assistant` message in the final position cannot contain `thinking`",
        ),
        rule(
            thought_loop.clone(),
            |body| drop(body["messages"][1]["content"][0]["signature"].take()),
            "messages.1.content.0.thinking.signature: Field required",
        ),
        rule(
            thought_loop,
            |body| body["messages"][1]["content"][0]["cache_control"] = json!({"type": "ephemeral"}),
            "messages.1.content.0.thinking.cache_control: Extra inputs are not permitted",
        ),
    ]);
}

#[test]
fn thinking_may_follow_blocks_of_the_server_and_end_a_reply_that_paused() {
    let search = || json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}});
    let mut follows = request(&[user(&json!("q")), assistant(&json!([search(), thought("s"), text("a")]))]);
    messages(&mut follows).push(user(&json!("more")));
    assert_eq!(violations_of("", &follows), Vec::<String>::new());
    let paused = request(&[user(&json!("q")), assistant(&json!([thought("s"), search()]))]);
    assert_eq!(violations_of("", &paused), Vec::<String>::new());
}

#[test]
fn a_thread_is_created_with_everything_and_continued_with_the_new_messages_alone() {
    const BETAS: &str = "message-threads-2026-08-12, context-management-2025-06-27";
    let created = || with(request(&[user(&json!("q"))]), "thread", json!({"type": "create"}));
    let continued = || {
        let mut body = request(&[user(&json!([result("toolu_1")]))]);
        body.as_object_mut().unwrap().remove("tools");
        with(body, "thread", json!({"type": "continue", "previous_message_id": "msg_1"}))
    };
    check(vec![
        rule_with(
            BETAS,
            created(),
            |body| body["thread"]["type"] = json!("fork"),
            "thread: Input tag 'fork' found",
        ),
        rule_with(
            BETAS,
            created(),
            |body| body["thread"]["id"] = json!("x"),
            "thread.create.id: Extra inputs are not permitted",
        ),
        rule_with(
            BETAS,
            created(),
            |body| body["context_management"] = json!({}),
            "This request cannot use a thread.",
        ),
        rule_with(
            BETAS,
            with(created(), "system", json!(marked_texts(3))),
            |body| body["system"] = json!(marked_texts(4)),
            "A maximum of 3 blocks with cache_control may be provided. Found 4.",
        ),
        rule_with(
            BETAS,
            continued(),
            |body| drop(body["thread"]["previous_message_id"].take()),
            "thread.continue.previous_message_id: Field required",
        ),
        rule_with(
            BETAS,
            continued(),
            |body| body["system"] = json!("s"),
            "The request does not match the thread that it continues.",
        ),
    ]);
    let empty = with(continued(), "messages", json!([]));
    assert_eq!(violations_of(BETAS, &empty), Vec::<String>::new(), "after a pause");
    let mut chosen = with(continued(), "tool_choice", json!({"type": "tool", "name": "search"}));
    chosen["messages"] = json!([{"role": "system", "content": "s"}]);
    chosen["model"] = json!("claude-opus-5");
    assert_eq!(violations_of(BETAS, &chosen), Vec::<String>::new(), "tools and messages are in the thread");
}
