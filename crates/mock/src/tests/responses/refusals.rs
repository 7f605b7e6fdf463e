//! Refusals over the Responses API, in OpenAI's words.

use super::*;

#[tokio::test]
async fn a_request_without_its_basics_is_refused() {
    refuses([
        (
            json!({"input": "q"}),
            "Missing required parameter: 'model'.",
            "model",
            "missing_required_parameter",
        ),
        (
            json!({"model": "gpt-9", "input": "q"}),
            "The requested model 'gpt-9' does not exist. This upstream is simulated and has the models demo-chat, \
             demo-runaway, demo-polite, demo-stuck, demo-no-tools, demo-strict.",
            "model",
            "model_not_found",
        ),
        (
            json!({"model": "demo-chat"}),
            "Missing required parameter: 'input'.",
            "input",
            "missing_required_parameter",
        ),
        (
            input("demo-chat", &[]),
            "Invalid 'input': empty array. Expected an array with minimum length 1, but got an empty array \
             instead.",
            "input",
            "empty_array",
        ),
        (
            with("input", json!(4)),
            "Invalid type for 'input': expected one of a string or an array of objects, but got an integer \
             instead.",
            "input",
            "invalid_type",
        ),
        (
            with("store", json!("no")),
            "Invalid type for 'store': expected a boolean, but got a string instead.",
            "store",
            "invalid_type",
        ),
        (
            with("max_output_tokens", json!(15)),
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 15 \
             instead.",
            "max_output_tokens",
            "integer_below_min_value",
        ),
        (
            with("text", json!({"format": {"type": "json_object"}})),
            "Response input messages must contain the word 'json' in some form to use 'text.format' of type \
             'json_object'.",
            "input",
            "",
        ),
    ])
    .await;
}

#[tokio::test]
async fn members_that_openai_does_not_know_are_refused_on_every_level() {
    let unknown = [
        (with("messages", json!([])), "messages"),
        (with("max_tokens", json!(5)), "max_tokens"),
        (with("toolrein", json!({})), "toolrein"),
        (said(json!({"role": "assistant", "content": "", "tool_calls": []})), "input[1].tool_calls"),
        (said(json!({"type": "reasoning", "summary": [], "role": "x"})), "input[1].role"),
        (said(json!({"type": "function_call_output", "call_id": "a", "output": "", "by": 1})), "input[1].by"),
        (
            said(json!({"type": "function_call", "call_id": "a", "name": "f", "arguments": "", "x": 1})),
            "input[1].x",
        ),
        (
            said(json!({"role": "user", "content": [{"type": "input_text", "text": "", "x": 1}]})),
            "input[1].content[0].x",
        ),
        (
            with("tools", json!([{"type": "function", "name": "f", "function": {"name": "f"}}])),
            "tools[0].function",
        ),
        (
            with("tool_choice", json!({"type": "function", "name": "f", "function": {}})),
            "tool_choice.function",
        ),
    ];
    for (body, path) in unknown {
        refuses([(body, &*format!("Unknown parameter: '{path}'."), path, "unknown_parameter")]).await;
    }
}

#[tokio::test]
async fn tools_out_of_shape_are_refused() {
    refuses([
        (
            with("tools", json!([{"type": "function", "function": {"name": "f"}}])),
            "Missing required parameter: 'tools[0].name'.",
            "tools[0].name",
            "missing_required_parameter",
        ),
        (
            with("tools", json!([{"name": "f"}])),
            "Missing required parameter: 'tools[0].type'.",
            "tools[0].type",
            "missing_required_parameter",
        ),
        (
            with("tools", json!([function("a.b")])),
            "Invalid 'tools[0].name': string does not match pattern. Expected a string that matches the \
             pattern '^[a-zA-Z0-9_-]+$'.",
            "tools[0].name",
            "invalid_value",
        ),
        (
            with("tools", json!([function(&"a".repeat(129))])),
            "Invalid 'tools[0].name': string too long. Expected a string with maximum length 128, but got a \
             string with length 129 instead.",
            "tools[0].name",
            "string_above_max_length",
        ),
    ])
    .await;
}

#[tokio::test]
async fn choices_of_undeclared_tools_are_refused() {
    let absent = |choice: Value| {
        let mut body = input("demo-chat", &[user("q")]);
        body["tool_choice"] = choice;
        body
    };
    let allowed = json!({"type": "allowed_tools", "tools": [{"type": "function", "name": "g"}]});
    refuses([
        (
            with("tool_choice", json!({"type": "function", "name": "g"})),
            "Tool choice 'g' not found in 'tools' parameter.",
            "tool_choice",
            "",
        ),
        (
            with("tool_choice", json!({"type": "custom", "name": "f"})),
            "Tool choice 'f' not found in 'tools' parameter.",
            "tool_choice",
            "",
        ),
        (with("tool_choice", allowed), "Tool choice 'g' not found in 'tools' parameter.", "tool_choice", ""),
        (
            with("tool_choice", json!({"type": "function", "function": {"name": "f"}})),
            "Missing required parameter: 'tool_choice.name'.",
            "tool_choice.name",
            "missing_required_parameter",
        ),
        (
            absent(json!("required")),
            "Tool choice 'required' must be specified with 'tools' parameter.",
            "tool_choice",
            "",
        ),
    ])
    .await;
    let served = Served::start().await;
    served.create(absent(json!("auto"))).await;
    served.create(with("tools", json!([function(&"a".repeat(128))]))).await;
}

#[tokio::test]
async fn references_to_unknown_conversations_and_responses_are_refused() {
    let served = Served::start().await;
    for (key, value, status, message, code) in [
        ("conversation", json!("conv_1"), 404, "Conversation with id 'conv_1' not found.", Value::Null),
        (
            "conversation",
            json!({"id": "conv_1"}),
            404,
            "Conversation with id 'conv_1' not found.",
            Value::Null,
        ),
        ("prompt", json!({"id": "pmpt_1"}), 404, "Prompt with id 'pmpt_1' not found.", Value::Null),
        (
            "previous_response_id",
            json!("resp_1"),
            400,
            "Previous response with id 'resp_1' not found.",
            json!("previous_response_not_found"),
        ),
        (
            "background",
            json!(true),
            400,
            "Unsupported parameter: 'background' is not supported with this model.",
            Value::Null,
        ),
    ] {
        let (got, error) = served.create_refused(with(key, value)).await;
        assert_eq!((got, &error["message"], &error["code"]), (status, &json!(message), &code), "{key}");
    }
    let mut both = with("conversation", json!("conv_1"));
    both["previous_response_id"] = json!("resp_1");
    let (status, error) = served.create_refused(both).await;
    assert_eq!((status, &error["code"]), (400, &json!("mutually_exclusive_parameters")));
}

#[tokio::test]
async fn bad_json_and_wrong_routes_get_openais_errors() {
    let served = Served::start().await;
    let (status, _, text) = served.send(Method::POST, PATH, "{".to_owned()).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(text.contains("We could not parse the JSON body of your request."), "{text}");
    for (method, path, status) in [
        (Method::GET, "/v1/responses", 405),
        (Method::POST, "/v1/responses/resp_1", 405),
        (Method::DELETE, "/v1/responses/resp_1/input_items", 405),
        (Method::POST, "/v1/responses/resp_1/cancel", 404),
    ] {
        let (got, _, text) = served.send(method, path, String::new()).await;
        assert_eq!(got.as_u16(), status, "{path} {text}");
    }
    assert!(served.upstream.stats().is_empty());
}
