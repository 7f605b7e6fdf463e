//! What the simulated models say and refuse over the Messages API.

use super::*;

#[test]
fn the_polite_model_heeds_a_text_wherever_a_notice_may_be() {
    let simulated = Simulated::new();
    let mut body = demo("demo-polite", &[user(&json!("find bicycles"))], &["searchAll"]);
    let reply = simulated.ask(&body);
    go_on(&mut body, &reply, "nothing");
    assert_eq!(calls(&simulated.ask(&body)).len(), 1);
    let notice = "Answer now, with what you have.";
    let mut in_result = body.clone();
    in_result["messages"][2]["content"][0]["content"] = json!([text("nothing"), text(notice)]);
    let mut after_result = body.clone();
    after_result["messages"][2]["content"].as_array_mut().unwrap().push(text(notice));
    let mut of_system = body.clone();
    of_system["messages"].as_array_mut().unwrap().push(json!({"role": "system", "content": notice}));
    for body in [in_result, after_result, of_system] {
        let reply = simulated.ask(&body);
        assert_eq!((calls(&reply).len(), &reply["stop_reason"]), (0, &json!("end_turn")), "{body:#}");
    }
}

#[test]
fn a_text_after_results_begins_no_new_turn() {
    let simulated = Simulated::new();
    let mut body = demo("demo-chat", &[user(&json!("Ask searchAll."))], &["searchAll"]);
    let reply = simulated.ask(&body);
    go_on(&mut body, &reply, "found");
    body["messages"][2]["content"]
        .as_array_mut()
        .unwrap()
        .push(text("<system-reminder>searchAll</system-reminder>"));
    let answer = simulated.ask(&body);
    assert_eq!(calls(&answer), Vec::<(&str, &Value)>::new());
    let characters = "found\n<system-reminder>searchAll</system-reminder>".len();
    assert!(said(&answer).contains(&format!("1 tool result with {characters} characters")), "{answer}");
    body["messages"]
        .as_array_mut()
        .unwrap()
        .extend([assistant(&json!("Found.")), user(&json!("again searchAll"))]);
    assert_eq!(calls(&simulated.ask(&body)).len(), 1);
}

#[test]
fn tools_are_callable_once_they_are_loaded_and_until_they_are_removed() {
    let simulated = Simulated::new();
    let mut body = demo("demo-chat", &[user(&json!("Use urlReader."))], &["searchAll", "urlReader"]);
    body["tools"][1]["defer_loading"] = json!(true);
    assert_eq!(calls(&simulated.ask(&body)).len(), 0, "deferred");
    let addition = |block: Value| json!({"role": "system", "content": [block]});
    let mut added = body.clone();
    let by_name = json!({"type": "tool_addition", "tool": {"name": "urlReader"}});
    added["messages"].as_array_mut().unwrap().push(addition(by_name.clone()));
    assert_eq!(calls(&simulated.ask(&added)).len(), 1, "added by name");
    let removal = json!({"type": "tool_removal", "tool": {"name": "urlReader"}});
    added["messages"][1]["content"] = json!([by_name, removal]);
    assert_eq!(calls(&simulated.ask(&added)).len(), 0, "removed again");
    let definition = json!({"name": "other", "input_schema": {"type": "object"}});
    let mut inline = demo("demo-chat", &[user(&json!("Use other."))], &["searchAll"]);
    let whole = json!({"type": "tool_addition", "tool_definition": definition});
    inline["messages"].as_array_mut().unwrap().push(addition(whole));
    assert_eq!(calls(&simulated.ask(&inline)), [("other", &json!({}))], "added with its definition");
}

#[test]
fn a_model_that_does_not_exist_or_refuses_has_anthropics_error_shape() {
    let simulated = Simulated::new();
    let unknown = simulated.refused(&demo("claude-opus-5", &[user(&json!("q"))], &[]));
    assert_eq!((unknown.status.as_u16(), unknown.kind), (404, "not_found_error"));
    assert!(unknown.message.starts_with("model: claude-opus-5. "), "{}", unknown.message);
    let no_tools = simulated.refused(&demo("demo-no-tools", &[user(&json!("q"))], &["searchAll"]));
    assert_eq!(
        no_tools.body("req_1"),
        json!({"type": "error", "request_id": "req_1", "error":
            {"type": "invalid_request_error", "message": "demo-no-tools does not support tools"}})
    );
    assert!(said(&simulated.ask(&demo("demo-no-tools", &[user(&json!("q"))], &[]))).contains("\"q\""));
    let system = json!({"role": "system", "content": "s"});
    let strict = simulated.refused(&demo("demo-strict", &[user(&json!("q")), system], &[]));
    assert_eq!(strict.message, "System message must be at the beginning.");
}
