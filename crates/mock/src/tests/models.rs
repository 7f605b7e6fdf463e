//! What each model says and refuses.

use super::*;

#[tokio::test]
async fn chat_calls_each_tool_that_the_user_names_once_a_turn() {
    let served = Served::start().await;
    let tools = ["searchAll", "urlReader", "other"];
    let mut messages = vec![user("Use `urlReader`, then SEARCHALL.")];
    let mut one_by_one = with_tools("demo-chat", &messages, &tools);
    let reply = served.ask(one_by_one.clone()).await;
    let names: Vec<String> = calls(&reply).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["searchAll", "urlReader"]);
    assert_eq!(calls(&reply)[1].1, json!({"url": "https://example.com/page"}));
    one_by_one["parallel_tool_calls"] = json!(false);
    assert_eq!(calls(&served.ask(one_by_one).await).len(), 1);

    messages.extend(group(&reply, "found"));
    let answer = served.ask(with_tools("demo-chat", &messages, &tools)).await;
    assert!(content(&answer).contains("2 tool results with 10 characters"), "{answer}");
    messages.extend([answer["choices"][0]["message"].clone(), user("again with searchAll")]);
    assert_eq!(calls(&served.ask(with_tools("demo-chat", &messages, &tools)).await).len(), 1);
}

#[tokio::test]
async fn the_runaway_model_never_repeats_a_call_and_answers_only_when_forced() {
    let served = Served::start().await;
    let messages = history(&served, "demo-runaway", 30).await;
    let made = messages.iter().filter_map(|message| message["tool_calls"].as_array()).flatten();
    let mut made: Vec<String> = made.map(|call| call["function"].to_string()).collect();
    assert_eq!(made.iter().filter(|call| call.contains("urlReader")).count(), 5);
    made.sort();
    made.dedup();
    assert_eq!(made.len(), 30);
    let mut forced = with_tools("demo-runaway", &messages, &["searchAll"]);
    forced["tool_choice"] = json!("none");
    for body in [forced, chat("demo-runaway", &messages)] {
        let reply = served.ask(body).await;
        assert!(content(&reply).contains("30 tool results"), "{reply}");
    }
}

#[tokio::test]
async fn the_stuck_model_makes_one_and_the_same_call_of_the_first_tool() {
    let served = Served::start().await;
    let mut messages = vec![user("find bicycles")];
    let mut made = Vec::new();
    for _ in 0..5 {
        let reply = served.ask(with_tools("demo-stuck", &messages, &["lookup", "other"])).await;
        made.extend(calls(&reply));
        messages.extend(group(&reply, "nothing"));
    }
    assert_eq!(made, vec![("lookup".to_owned(), json!({"query": "find bicycles"})); 5]);
}

#[tokio::test]
async fn the_polite_model_stops_when_the_newest_text_says_so_and_not_for_old_or_buried_words() {
    let served = Served::start().await;
    for (result, role, text, stops) in [
        ("nothing", "", "", false),
        ("nothing\n\n[toolrein] Budget: 5 of 10 tool calls", "", "", true),
        (r#"{"ok":false,"error":{"type":"BUDGET_EXCEEDED"}}"#, "", "", true),
        ("nothing", "system", "Answer now.", true),
        ("nothing", "user", "please give your final answer", true),
        (&format!("budget{}", "x".repeat(5_000)), "", "", false),
    ] {
        let mut messages = history(&served, "demo-polite", 2).await;
        messages.last_mut().unwrap()["content"] = json!(result);
        if !role.is_empty() {
            messages.push(json!({"role": role, "content": text}));
        }
        let reply = served.ask(with_tools("demo-polite", &messages, &["searchAll"])).await;
        assert_eq!(calls(&reply).is_empty(), stops, "{result:.60} {role} {text}");
    }
    let mut messages = history(&served, "demo-polite", 2).await;
    messages[2]["content"] = json!("answer now");
    assert_eq!(calls(&served.ask(with_tools("demo-polite", &messages, &["searchAll"])).await).len(), 1);
}

#[tokio::test]
async fn a_model_without_tools_refuses_them_in_ollamas_words_and_answers_without() {
    let served = Served::start().await;
    let expected = json!({"message": "demo-no-tools does not support tools", "type": "api_error",
         "param": null, "code": null});
    let mut legacy = chat("demo-no-tools", &[user("q")]);
    legacy["functions"] = json!([{"name": "f"}]);
    for body in [with_tools("demo-no-tools", &[user("q")], &["f"]), legacy] {
        assert_eq!(served.refused(body).await, (400, expected.clone()));
    }
    let reply = served.ask(chat("demo-no-tools", &[user("q")])).await;
    assert!(content(&reply).contains("\"q\""));
}

#[tokio::test]
async fn the_strict_model_takes_a_system_message_at_the_beginning_alone() {
    let served = Served::start().await;
    let system = json!({"role": "system", "content": "s"});
    served.ask(chat("demo-strict", &[system.clone(), user("q")])).await;
    let late = served.refused(chat("demo-strict", &[user("q"), system.clone()])).await;
    let expected = json!({"message": "System message must be at the beginning.",
        "type": "BadRequestError", "param": null, "code": 400});
    assert_eq!(late, (400, expected));
    served.ask(chat("demo-polite", &[user("q"), system])).await;
}

#[tokio::test]
async fn the_model_obeys_tool_choice() {
    let served = Served::start().await;
    for (choice, called, finish) in [
        (json!("auto"), "", "stop"),
        (json!("none"), "", "stop"),
        (json!("required"), "one", "tool_calls"),
        (json!({"type": "function", "function": {"name": "two"}}), "two", "stop"),
        (
            json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools":
                [{"type": "function", "function": {"name": "two"}}]}}),
            "two",
            "tool_calls",
        ),
    ] {
        let mut body = with_tools("demo-chat", &[user("q")], &["one", "two"]);
        body["tool_choice"] = choice;
        let reply = served.ask(body.clone()).await;
        let names: Vec<String> = calls(&reply).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.concat(), called, "{body}");
        assert_eq!(reply["choices"][0]["finish_reason"], finish, "{body}");
    }
}
