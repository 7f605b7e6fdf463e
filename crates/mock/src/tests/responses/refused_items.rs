//! Items of `input` that are refused over the Responses API, in OpenAI's words.

use super::*;

const ID_RULE: &str = "Expected an ID that contains letters, numbers, underscores, or dashes, but this value \
                       contained additional characters.";

#[tokio::test]
async fn a_message_out_of_shape_is_refused() {
    refuses([
        (
            said(json!({"role": "tool", "content": ""})),
            "Invalid value: 'tool'. Supported values are: 'assistant', 'system', 'developer', and 'user'.",
            "input[1].role",
            "invalid_value",
        ),
        (
            said(json!({"role": "assistant", "content": null})),
            "Invalid type for 'input[1].content': expected one of an array of objects or string, but got \
             null instead.",
            "input[1].content",
            "invalid_type",
        ),
        (
            said(json!({"role": "assistant", "content": [{"type": "input_text", "text": ""}]})),
            "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'.",
            "input[1].content[0].type",
            "invalid_value",
        ),
        (
            said(json!({"role": "user", "content": [{"type": "input_text"}]})),
            "Missing required parameter: 'input[1].content[0].text'.",
            "input[1].content[0].text",
            "missing_required_parameter",
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_call_or_an_output_out_of_shape_is_refused() {
    refuses([
        (
            said(json!({"type": "function_call", "call_id": "a", "name": "f"})),
            "Missing required parameter: 'input[1].arguments'.",
            "input[1].arguments",
            "missing_required_parameter",
        ),
        (
            said(json!({"type": "function_call_output", "call_id": "a"})),
            "Missing required parameter: 'input[1].output'.",
            "input[1].output",
            "missing_required_parameter",
        ),
        (
            said(json!({"type": "function_call_output", "call_id": "", "output": ""})),
            "Invalid 'input[1].call_id': empty string. Expected a string with minimum length 1, but got an \
             empty string instead.",
            "input[1].call_id",
            "empty_string",
        ),
        (
            said(json!({"type": "function_call_output", "call_id": "a".repeat(65), "output": ""})),
            "Invalid 'input[1].call_id': string too long. Expected a string with maximum length 64, but got \
             a string with length 65 instead.",
            "input[1].call_id",
            "string_above_max_length",
        ),
        (
            said(json!(4)),
            "Invalid type for 'input[1]': expected an object, but got an integer instead.",
            "input[1]",
            "invalid_type",
        ),
    ])
    .await;
    let served = Served::start().await;
    let (status, error) = served.create_refused(said(json!({"type": "tool_result"}))).await;
    assert_eq!((status, &error["param"]), (400, &json!("input[1].type")));
    let message = error["message"].as_str().unwrap();
    assert!(
        message.starts_with("Invalid value: 'tool_result'. Supported values are: 'message', "),
        "{error}"
    );
}

#[tokio::test]
async fn ids_with_another_prefix_or_other_characters_are_refused() {
    let call =
        |id: &str| json!({"type": "function_call", "id": id, "call_id": "a", "name": "f", "arguments": "{}"});
    for (item, rule) in [
        (call("call_1"), "Expected an ID that begins with 'fc'."),
        (call("ctc_1"), "Expected an ID that begins with 'fc'."),
        (call(""), ID_RULE),
        (call("fc 1"), ID_RULE),
        (json!({"role": "user", "id": "item_1", "content": ""}), "Expected an ID that begins with 'msg'."),
        (
            json!({"type": "function_call_output", "id": "msg_1", "call_id": "a", "output": ""}),
            "Expected an ID that begins with 'fc'.",
        ),
        (
            json!({"type": "reasoning", "id": "item_1", "summary": []}),
            "Expected an ID that begins with 'rs'.",
        ),
    ] {
        let message = format!("Invalid 'input[1].id': '{}'. {rule}", item["id"].as_str().unwrap());
        refuses([(said(item), message.as_str(), "input[1].id", "invalid_value")]).await;
    }
}

#[tokio::test]
async fn input_items_with_incomplete_pairs_are_refused() {
    let call = json!({"type": "function_call", "id": "fc_1", "call_id": "a", "name": "f", "arguments": "{}"});
    let output = json!({"type": "function_call_output", "call_id": "a", "output": ""});
    let all =
        |items: &[&Value]| input("demo-chat", &items.iter().map(|item| (*item).clone()).collect::<Vec<_>>());
    refuses([
        (all(&[&call]), "No tool output found for function call a.", "input", ""),
        (all(&[&call, &user("q")]), "No tool output found for function call a.", "input", ""),
        (
            all(&[&user("q"), &output]),
            "No tool call found for function call output with call_id a.",
            "input",
            "",
        ),
        (
            all(&[&call, &output, &call, &output]),
            "Duplicate item found with id fc_1. Remove duplicate items from your input and try again.",
            "input",
            "",
        ),
    ])
    .await;
}
