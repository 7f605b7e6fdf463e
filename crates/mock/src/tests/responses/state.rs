//! Stored responses: chains, forks, retries, and the endpoints of one response.

use super::*;

const TOOLS: [&str; 2] = ["searchAll", "urlReader"];

/// A request that continues `response`.
fn after(response: &Value, items: &[Value]) -> Value {
    let mut body = with_functions("demo-chat", items, &TOOLS);
    body["previous_response_id"] = response["id"].clone();
    body
}

async fn first(served: &Served) -> Value {
    let response =
        served.create(with_functions("demo-chat", &[user("use searchAll and urlReader")], &TOOLS)).await;
    assert_eq!(calls_of(&response).len(), 2);
    response
}

#[tokio::test]
async fn previous_response_id_gives_the_model_the_whole_conversation_and_bills_it() {
    let served = Served::start().await;
    let response = first(&served).await;
    let second = served.create(after(&response, &outputs(&response, "found"))).await;
    assert!(text(&second).contains("2 tool results with 10 characters"), "{second}");
    assert_eq!(second["previous_response_id"], response["id"]);
    assert!(second["usage"]["input_tokens"].as_u64() > response["usage"]["input_tokens"].as_u64());

    let third = served.create(after(&second, &[user("once more with searchAll")])).await;
    assert_eq!(names_of(&third), ["searchAll"]);
    let fourth = served.create(after(&third, &outputs(&third, "1"))).await;
    assert!(text(&fourth).contains("3 tool results with 11 characters"), "{fourth}");
    let empty = json!({"model": "demo-chat", "previous_response_id": fourth["id"]});
    assert!(text(&served.create(empty).await).contains("3 tool results"));
    let stats = served.upstream.stats()["demo-chat"];
    assert!(stats.prompt_tokens > stats.request_bytes.div_ceil(4) + 500, "{stats:?}");
}

#[tokio::test]
async fn instructions_and_tools_are_not_inherited() {
    let served = Served::start().await;
    let mut body = input("demo-strict", &[user("q")]);
    body["instructions"] = json!("i");
    let response = served.create(body).await;
    let next = json!({"model": "demo-strict", "input": "more", "previous_response_id": response["id"]});
    let next = served.create(next).await;
    assert_eq!([&next["instructions"], &next["tools"]], [&Value::Null, &json!([])]);
    // A model that refuses late instructions sees one: the first response's is gone.
    let mut again = json!({"model": "demo-strict", "input": "more", "previous_response_id": next["id"]});
    again["instructions"] = json!("j");
    served.create(again).await;
}

#[tokio::test]
async fn a_response_can_be_continued_twice_and_a_retry_gets_the_same() {
    let served = Served::start().await;
    let response = first(&served).await;
    let fork = |text: &str| after(&response, &outputs(&response, text));
    let [left, right] = [served.create(fork("a")).await, served.create(fork("longer")).await];
    assert_ne!(left["id"], right["id"]);
    assert_eq!(served.create(fork("a")).await, left);
    for (branch, characters) in [(&left, 2), (&right, 12)] {
        let next = served.create(after(branch, &[user("q")])).await;
        assert!(text(&next).contains(&format!("with {characters} characters")), "{next}");
    }
}

#[tokio::test]
async fn a_continued_response_needs_an_output_for_each_of_its_calls() {
    let served = Served::start().await;
    let response = first(&served).await;
    let calls = calls_of(&response);
    let unanswered =
        format!("No tool output found for function call {}.", calls[1]["call_id"].as_str().unwrap());
    for items in [vec![output(&calls[0], "")], vec![output(&calls[0], ""), user("q")]] {
        let (status, error) = served.create_refused(after(&response, &items)).await;
        assert_eq!((status, &error["message"], &error["param"]), (400, &json!(unanswered), &json!("input")));
    }
    let repeated = calls.iter().cloned().chain(outputs(&response, "")).collect::<Vec<_>>();
    let (status, error) = served.create_refused(after(&response, &repeated)).await;
    assert_eq!(status, 400);
    let text = format!(
        "Duplicate item found with id {}. Remove duplicate items from your input and try again.",
        calls[0]["id"].as_str().unwrap()
    );
    assert_eq!(error["message"], text);
}

#[tokio::test]
async fn a_response_that_was_not_stored_cannot_be_continued_referenced_or_retrieved() {
    let served = Served::start().await;
    let mut body = with_functions("demo-chat", &[user("use searchAll")], &TOOLS);
    body["store"] = json!(false);
    let response = served.create(body).await;
    let id = response["id"].as_str().unwrap();
    let (status, error) = served.create_refused(after(&response, &outputs(&response, ""))).await;
    let expected = json!({"message": format!("Previous response with id '{id}' not found."),
        "type": "invalid_request_error", "param": "previous_response_id",
        "code": "previous_response_not_found"});
    assert_eq!((status, error), (400, expected));
    let not_found = json!({"message": format!("Response with id '{id}' not found."),
        "type": "invalid_request_error", "param": null, "code": null});
    for (method, path) in [
        (Method::GET, id.to_owned()),
        (Method::DELETE, id.to_owned()),
        (Method::GET, format!("{id}/input_items")),
    ] {
        let (status, body) = served.stored(method, &path).await;
        assert_eq!((status, &body["error"]), (404, &not_found), "{path}");
    }
    let reference = json!({"type": "item_reference", "id": response["output"][0]["id"]});
    let (status, error) = served.create_refused(input("demo-chat", &[user("q"), reference])).await;
    assert_eq!(status, 404);
    let start = format!("Item with id '{}' not found.", response["output"][0]["id"].as_str().unwrap());
    assert!(error["message"].as_str().unwrap().starts_with(&start), "{error}");
}

#[tokio::test]
async fn a_stored_response_is_retrieved_listed_and_deleted() {
    let served = Served::start().await;
    let response = first(&served).await;
    let second = served.create(after(&response, &outputs(&response, "found"))).await;
    let id = second["id"].as_str().unwrap();
    assert_eq!(served.stored(Method::GET, &format!("{id}?include=x")).await, (200, second.clone()));
    let (_, list) = served.stored(Method::GET, &format!("{id}/input_items")).await;
    let data = list["data"].as_array().unwrap();
    let kinds: Vec<&str> = data.iter().map(|item| item["type"].as_str().unwrap_or("message")).collect();
    assert_eq!(
        kinds,
        ["function_call_output", "function_call_output", "function_call", "function_call", "message"]
    );
    assert!(data.iter().all(|item| item["id"].is_string()), "{list}");
    assert_eq!([&list["first_id"], &list["last_id"]], [&data[0]["id"], &data[4]["id"]]);
    assert_eq!([&list["object"], &list["has_more"]], [&json!("list"), &json!(false)]);

    let deleted = json!({"id": id, "object": "response.deleted", "deleted": true});
    assert_eq!(served.stored(Method::DELETE, id).await, (200, deleted));
    assert_eq!(served.stored(Method::GET, id).await.0, 404);
    assert_eq!(served.create_refused(after(&second, &[user("q")])).await.0, 400);
    // The one before it is still there.
    served.create(after(&response, &outputs(&response, "again"))).await;
}

#[tokio::test]
async fn an_item_reference_is_replaced_by_the_stored_item() {
    let served = Served::start().await;
    let response = first(&served).await;
    let mut items = vec![user("use searchAll and urlReader")];
    let ids = calls_of(&response).into_iter().map(|call| call["id"].clone());
    items.extend(ids.map(|id| json!({"type": "item_reference", "id": id})));
    items.extend(outputs(&response, "found"));
    let answer = served.create(with_functions("demo-chat", &items, &TOOLS)).await;
    assert!(text(&answer).contains("2 tool results with 10 characters"), "{answer}");
}

#[tokio::test]
async fn a_stateless_conversation_with_every_item_resent_is_accepted_stored_or_not() {
    let served = Served::start().await;
    for store in [true, false] {
        let mut items = vec![user("find bicycles")];
        for _ in 0..3 {
            let mut body = with_functions("demo-runaway", &items, &TOOLS);
            body["store"] = json!(store);
            let response = served.create(body).await;
            items.extend(continued(&response, "nothing"));
        }
        assert_eq!(items.len(), 7);
    }
}

#[tokio::test]
async fn a_request_of_codex_is_accepted_with_the_members_of_its_own() {
    let item = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "q"}],
        "internal_chat_message_metadata_passthrough": {"a": 1}});
    let served = Served::start().await;
    assert_eq!(served.create(input("demo-chat", &[item])).await["status"], "completed");
}
