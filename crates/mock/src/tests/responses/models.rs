//! The models over the Responses API: the rules that they follow over chat completions.

use super::*;

#[tokio::test]
async fn the_chat_model_calls_what_the_user_names_once_a_turn_and_then_answers() {
    let served = Served::start().await;
    let tools = ["searchAll", "urlReader", "other"];
    let mut items = vec![user("Use `urlReader`, then SEARCHALL.")];
    let response = served.create(with_functions("demo-chat", &items, &tools)).await;
    assert_eq!(names_of(&response), ["searchAll", "urlReader"]);
    let mut one_by_one = with_functions("demo-chat", &items, &tools);
    one_by_one["parallel_tool_calls"] = json!(false);
    assert_eq!(names_of(&served.create(one_by_one).await), ["searchAll"]);

    items.extend(continued(&response, "found"));
    let answer = served.create(with_functions("demo-chat", &items, &tools)).await;
    assert!(text(&answer).contains("2 tool results with 10 characters"), "{answer}");
    items.extend(answer["output"].as_array().unwrap().clone());
    items.push(user("again with searchAll"));
    assert_eq!(names_of(&served.create(with_functions("demo-chat", &items, &tools)).await), ["searchAll"]);
}

#[tokio::test]
async fn outputs_in_parts_and_outputs_of_custom_tools_are_results_too() {
    let served = Served::start().await;
    let items = [
        user("q"),
        json!({"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}),
        json!({"type": "custom_tool_call", "id": "ctc_1", "call_id": "b", "name": "g", "input": "x"}),
        json!({"type": "custom_tool_call_output", "call_id": "b", "output": "12345"}),
        json!({"type": "function_call_output", "call_id": "a", "output": [
            {"type": "input_text", "text": "123"}, {"type": "input_image", "image_url": "u"}]}),
        json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}),
        json!({"type": "acme:search_result", "any": 1}),
    ];
    let answer = served.create(input("demo-chat", &items)).await;
    assert!(text(&answer).contains("2 tool results with 8 characters"), "{answer}");
}

#[tokio::test]
async fn the_polite_model_stops_when_an_output_or_a_message_says_so() {
    let served = Served::start().await;
    for (result, role, words, stops) in [
        ("nothing", "", "", false),
        ("nothing\n\n[toolrein] Budget: 5 of 10 tool calls", "", "", true),
        ("nothing", "developer", "Answer now.", true),
    ] {
        let mut items = vec![user("find bicycles")];
        let response = served.create(with_functions("demo-polite", &items, &["searchAll"])).await;
        items.extend(continued(&response, result));
        if !role.is_empty() {
            items.push(json!({"type": "message", "role": role, "content": words}));
        }
        let next = served.create(with_functions("demo-polite", &items, &["searchAll"])).await;
        assert_eq!(calls_of(&next).is_empty(), stops, "{result} {role}");
    }
}

#[tokio::test]
async fn a_model_without_tools_and_a_strict_one_refuse_as_they_do_over_chat_completions() {
    let served = Served::start().await;
    let no_tools = json!({"message": "demo-no-tools does not support tools", "type": "api_error",
        "param": null, "code": null});
    let body = with_functions("demo-no-tools", &[user("q")], &["f"]);
    assert_eq!(served.create_refused(body).await, (400, no_tools));
    served.create(with_functions("demo-no-tools", &[user("q")], &[])).await;

    let late = json!({"message": "System message must be at the beginning.", "type": "BadRequestError",
        "param": null, "code": 400});
    for role in ["system", "developer"] {
        let instruction = json!({"role": role, "content": "s"});
        let body = input("demo-strict", &[user("q"), instruction.clone()]);
        assert_eq!(served.create_refused(body).await, (400, late.clone()));
        served.create(input("demo-strict", &[instruction.clone(), user("q")])).await;
        let mut two = input("demo-strict", &[instruction, user("q")]);
        two["instructions"] = json!("i");
        assert_eq!(served.create_refused(two).await, (400, late.clone()));
    }
}

#[tokio::test]
async fn the_model_obeys_tool_choice() {
    let served = Served::start().await;
    let allowed = |mode: &str| json!({"type": "allowed_tools", "mode": mode, "tools": [{"type": "function", "name": "two"}]});
    for (choice, called) in [
        (json!("auto"), ""),
        (json!("none"), ""),
        (json!("required"), "one"),
        (json!({"type": "function", "name": "two"}), "two"),
        (json!({"type": "custom", "name": "three"}), ""),
        (json!({"type": "web_search"}), ""),
        (allowed("required"), "two"),
        (allowed("auto"), ""),
    ] {
        let mut body = with_functions("demo-chat", &[user("q")], &["one", "two"]);
        let others = [json!({"type": "custom", "name": "three"}), json!({"type": "web_search"})];
        body["tools"].as_array_mut().unwrap().extend(others);
        body["tool_choice"] = choice;
        assert_eq!(names_of(&served.create(body.clone()).await).concat(), called, "{body}");
    }
}

#[tokio::test]
async fn tools_that_the_input_adds_can_be_called() {
    let served = Served::start().await;
    let added = json!({"type": "additional_tools", "role": "developer", "tools": [function("searchAll")]});
    let mut body = input("demo-chat", &[added, user("use searchAll")]);
    assert_eq!(names_of(&served.create(body.clone()).await), ["searchAll"]);
    body["tool_choice"] = json!({"type": "function", "name": "searchAll"});
    assert_eq!(names_of(&served.create(body).await), ["searchAll"]);
}
