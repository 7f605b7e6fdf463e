//! Refusals in OpenAI's words.

use super::*;

/// Sends each body and compares the refusal: (body, message, param, code), "" for null.
async fn check(cases: impl IntoIterator<Item = (Value, &str, &str, &str)>) {
    let served = Served::start().await;
    let or_null = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
    for (body, message, param, code) in cases {
        let expected = json!({"message": message, "type": "invalid_request_error", "param": or_null(param),
            "code": or_null(code)});
        assert_eq!(served.refused(body.clone()).await, (400, expected), "{body}");
    }
}

fn with(key: &str, value: Value) -> Value {
    let mut body = chat("demo-chat", &[user("q")]);
    body[key] = value;
    body
}

fn said(message: Value) -> Value {
    chat("demo-chat", &[user("q"), message])
}

const EMPTY: &str = "empty array. Expected an array with minimum length 1, but got an empty array instead.";

#[tokio::test]
async fn a_request_without_its_basics_is_refused() {
    check([
        (json!({"messages": []}), "you must provide a model parameter", "", ""),
        (
            json!({"model": 4}),
            "Invalid type for 'model': expected a string, but got an integer instead.",
            "model",
            "invalid_type",
        ),
        (
            json!({"model": "demo-chat"}),
            "Missing required parameter: 'messages'.",
            "messages",
            "missing_required_parameter",
        ),
        (chat("demo-chat", &[]), &format!("Invalid 'messages': {EMPTY}"), "messages", "empty_array"),
        (
            json!({"model": "demo-chat", "messages": "q"}),
            "Invalid type for 'messages': expected an array of objects, but got a string instead.",
            "messages",
            "invalid_type",
        ),
        (
            with("stream_options", json!({"include_usage": true})),
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
            "stream_options",
            "",
        ),
        (
            with("n", json!(129)),
            "Invalid 'n': integer above maximum value. Expected a value <= 128, but got 129 instead.",
            "n",
            "integer_above_max_value",
        ),
        (
            with("n", json!(-1)),
            "Invalid 'n': integer below minimum value. Expected a value >= 1, but got -1 instead.",
            "n",
            "integer_below_min_value",
        ),
        (
            with("response_format", json!({"type": "json_object"})),
            "'messages' must contain the word 'json' in some form, to use 'response_format' of type \
             'json_object'.",
            "messages",
            "",
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_message_out_of_shape_or_order_is_refused() {
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
    check([
        (
            said(json!({"role": "bot", "content": ""})),
            "Invalid value: 'bot'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', \
             and 'developer'.",
            "messages[1].role",
            "invalid_value",
        ),
        (
            said(json!({"role": "assistant", "content": null})),
            "Invalid value for 'content': expected a string, got null.",
            "messages.[1].content",
            "",
        ),
        (
            said(json!({"role": "assistant", "tool_calls": []})),
            &format!("Invalid 'messages[1].tool_calls': {EMPTY}"),
            "messages[1].tool_calls",
            "empty_array",
        ),
        (
            said(json!({"role": "assistant", "tool_calls": [{"id": "a", "function": {}}]})),
            "Missing required parameter: 'messages[1].tool_calls[0].type'.",
            "messages[1].tool_calls[0].type",
            "missing_required_parameter",
        ),
        (
            said(json!({"role": "assistant", "tool_calls": [call("a"), call("b")]})),
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each \
             'tool_call_id'. The following tool_call_ids did not have response messages: a, b",
            "messages",
            "",
        ),
        (
            said(json!({"role": "tool", "tool_call_id": "a", "content": ""})),
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with \
             'tool_calls'.",
            "messages.[1].role",
            "",
        ),
    ])
    .await;
}

#[tokio::test]
async fn tools_out_of_shape_and_choices_without_tools_are_refused() {
    let tool = |name: &str| json!({"type": "function", "function": {"name": name}});
    let mut absent = with("tools", json!([tool("f")]));
    absent["tool_choice"] = json!({"type": "function", "function": {"name": "g"}});
    check([
        (with("tools", json!([])), &format!("Invalid 'tools': {EMPTY}") as &str, "tools", "empty_array"),
        (
            with("tools", Value::Array(vec![tool("f"); 129])),
            "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array \
             with length 129 instead.",
            "tools",
            "array_above_max_length",
        ),
        (
            with("tools", json!([{"function": {"name": "f"}}])),
            "Missing required parameter: 'tools[0].type'.",
            "tools[0].type",
            "missing_required_parameter",
        ),
        (
            with("tools", json!([{"type": "function", "name": "f"}])),
            "Missing required parameter: 'tools[0].function'.",
            "tools[0].function",
            "missing_required_parameter",
        ),
        (
            with("tools", json!([tool("a.b")])),
            "Invalid 'tools[0].function.name': string does not match pattern. Expected a string that matches \
             the pattern '^[a-zA-Z0-9_-]+$'.",
            "tools[0].function.name",
            "invalid_value",
        ),
        (absent, "Tool choice 'g' not found in 'tools' parameter.", "tool_choice", ""),
        (
            with("tool_choice", json!("none")),
            "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.",
            "tool_choice",
            "",
        ),
        (
            with("parallel_tool_calls", json!(true)),
            "Invalid value for 'parallel_tool_calls': 'parallel_tool_calls' is only allowed when 'tools' are \
             specified.",
            "parallel_tool_calls",
            "",
        ),
    ])
    .await;
}

#[tokio::test]
async fn bad_json_unknown_models_and_wrong_routes_get_openais_errors() {
    let served = Served::start().await;
    for body in ["{", "[]", "", "{\"model\":\"demo-chat\",\"messages\":[\"\u{fffd}"] {
        let (status, _, text) = served.send(Method::POST, "/v1/chat/completions", body.to_owned()).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(text.contains("We could not parse the JSON body of your request."), "{text}");
    }
    let (status, error) = served.refused(chat("gpt-9", &[user("q")])).await;
    assert_eq!((status, &error["code"]), (404, &json!("model_not_found")));
    assert_eq!(
        error["message"],
        "The model `gpt-9` does not exist or you do not have access to it. This upstream is simulated and has the models \
         demo-chat, demo-runaway, demo-polite, demo-stuck, demo-no-tools, demo-strict."
    );
    for (method, path, status, code) in [
        (Method::POST, "/v1/completions", 404, json!("unknown_url")),
        (Method::GET, "/", 404, json!("unknown_url")),
        (Method::GET, "/v1/chat/completions", 405, json!(null)),
        (Method::GET, "/v1/models/gpt-9", 404, json!("model_not_found")),
    ] {
        let (got, _, text) = served.send(method, path, String::new()).await;
        let body: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((got.as_u16(), &body["error"]["code"]), (status, &code), "{path}");
    }
    assert!(served.upstream.stats().is_empty());
}
