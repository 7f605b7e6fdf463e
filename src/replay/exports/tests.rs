//! Cases of exports, one of each documented form.

use super::*;
use serde_json::json;

fn unpacked(values: &[Value]) -> Vec<Result<Value, NoConversation>> {
    let mut exports = Exports::default();
    let raw = |value: &Value| RawValue::from_string(value.to_string()).unwrap();
    let unpacked = values.iter().flat_map(|value| exports.unpack(&raw(value)));
    unpacked.map(|text| Ok(serde_json::from_str(&text?).unwrap())).collect()
}

fn user() -> Value {
    json!({"role": "user", "content": "q"})
}

fn calling() -> Value {
    let function = json!({"name": "f", "arguments": "{\"a\":1}"});
    json!({"role": "assistant", "content": "", "tool_calls": [{"id": "c", "type": "function", "function": function}]})
}

fn exchange(id: &str, more: Value) -> Value {
    let mut request = json!({"model": "m", "messages": [user()]});
    let Value::Object(more) = more else { panic!("members") };
    request.as_object_mut().unwrap().extend(more);
    json!({"id": id, "request": request, "response": {"choices": [{"index": 0, "message": calling()}]}})
}

#[test]
fn documents_that_replay_reads_directly_are_left_unchanged() {
    for native in [
        json!({"messages": [user()], "data": []}),
        json!({"model": "m", "input": "q"}),
        json!({"request": {}, "response": {}, "custom_id": "x"}),
        json!({"other": 1}),
        json!("text"),
    ] {
        assert_eq!(unpacked(std::slice::from_ref(&native)), [Ok(native.clone())], "{native}");
    }
}

#[test]
fn lists_are_unpacked_oldest_first_and_a_list_of_messages_is_one_conversation() {
    let one = |id: u32, time: &str| json!({"messages": [user()], "id": id, "timestamp": time});
    let list = json!({"object": "list", "data": [one(2, "2026-01-02"), one(1, "2026-01-01")]});
    let found = unpacked(&[list, json!([one(3, "2026-01-03")])]);
    let ids: Vec<_> = found.iter().map(|one| one.as_ref().unwrap()["id"].clone()).collect();
    assert_eq!(ids, [json!(1), json!(2), json!(3)]);
    assert_eq!(unpacked(&[json!([user(), calling()])]), [Ok(json!({"messages": [user(), calling()]}))]);
    let item = json!({"type": "function_call_output", "call_id": "c", "output": "r"});
    assert_eq!(unpacked(&[json!([user(), item])]), [Ok(json!({"input": [user(), item]}))]);
}

#[test]
fn a_batch_is_its_input_and_then_its_output() {
    let body = json!({"model": "m", "messages": [user()]});
    let input = json!({"custom_id": "r1", "method": "POST", "url": "/v1/chat/completions", "body": body});
    let reply = json!({"choices": [{"index": 0, "message": calling()}]});
    let response = json!({"status_code": 200, "request_id": "req", "body": reply});
    let output = json!({"id": "batch_req", "custom_id": "r1", "response": response, "error": null});
    assert_eq!(unpacked(std::slice::from_ref(&output)), [Err(NoConversation::BatchOutput)]);
    let joined = json!({"id": "r1", "request": body, "response": reply});
    assert_eq!(unpacked(&[input, output]), [Ok(body), Ok(joined)]);
}

#[test]
fn a_stored_completion_needs_its_messages() {
    let stored =
        json!({"object": "chat.completion", "id": "x", "model": "m", "choices": [{"message": calling()}]});
    assert_eq!(unpacked(std::slice::from_ref(&stored)), [Err(NoConversation::StoredReply)]);
    let mut whole = stored;
    whole["input_messages"] = json!([user()]);
    let request = json!({"messages": [user()], "model": "m"});
    assert_eq!(unpacked(&[whole.clone()]), [Ok(json!({"request": request, "response": whole}))]);
}

#[test]
fn runs_of_langsmith_are_read_in_the_forms_of_wrapped_clients_and_of_langchain() {
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let wrapped = json!({"id": "r", "trace_id": "t", "run_type": "llm", "inputs": {"model": "m", "messages": [user()], "tools": tools},
        "outputs": {"choices": [{"message": calling()}]}});
    let lc = |kind: &str, kwargs: Value| json!({"lc": 1, "type": "constructor", "id": ["langchain", "schema", kind], "kwargs": kwargs});
    let human = lc("HumanMessage", json!({"content": "q"}));
    let ai = lc(
        "AIMessage",
        json!({"content": "", "tool_calls": [{"name": "f", "args": {"a": 1}, "id": "c", "type": "tool_call"}]}),
    );
    let chain = json!({"id": "c", "trace_id": "t", "run_type": "chain", "inputs": {}, "child_runs": [
        {"id": "l", "trace_id": "t", "run_type": "llm", "inputs": {"messages": [[human]]},
            "outputs": {"generations": [[{"message": ai}]]},
            "extra": {"invocation_params": {"model": "m", "tools": tools}}},
        {"id": "x", "run_type": "tool", "inputs": {"input": "q"}, "outputs": {"output": "r"}}]});
    let expected = exchange("t", json!({"tools": tools}));
    assert_eq!(unpacked(&[wrapped, chain]), [Ok(expected.clone()), Ok(expected)]);
}

#[test]
fn generations_of_langfuse_are_read_alone_and_in_traces() {
    let generation = |id: &str, time: &str| {
        json!({"id": id, "traceId": "t", "type": "GENERATION", "startTime": time, "model": "m", "input": [user()],
            "output": calling(), "projectId": "p"})
    };
    let span = json!({"id": "s", "traceId": "t", "type": "SPAN", "startTime": "2026-01-01T00:00:00Z", "input": {"a": 1}, "output": "r"});
    let trace = json!({"id": "t", "projectId": "p", "input": "q", "output": "a", "observations": [
        generation("two", "2026-01-01T00:00:02Z"), span, generation("one", "2026-01-01T00:00:01Z")]});
    let expected = || Ok(exchange("t", json!({})));
    assert_eq!(unpacked(&[trace]), [expected(), expected()]);
    let mut text = generation("one", "2026-01-01T00:00:01Z");
    text["input"] = json!(json!({"messages": [user()], "tools": []}).to_string());
    assert_eq!(unpacked(&[span_free(&text)]), [Ok(exchange("t", json!({"tools": []})))]);
}

fn span_free(value: &Value) -> Value {
    json!({"data": [value, {"id": "e", "traceId": "t", "type": "EVENT", "startTime": "2026-01-01T00:00:03Z", "input": null}]})
}
