//! `redact`: results of every shape, and what toolrein itself has said: no value reaches the provider by another way than a
//! text.

use crate::support::client::{Request, post};
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::responses::{Output, events};
use crate::support::responses_kit::Talk as Responses;
use crate::support::scripted::Scripted;
use crate::support::talk::{Talk, in_both_forms, text};
use serde_json::{Value, json};

const MAIL: &str = "anna@example.org";
const TOKEN: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
const CARD: &str = "4111111111111111";

fn has_no_value(sent: &str) {
    for value in ["anna", "example.org", TOKEN, CARD, "hunter2secret", "9aF3kLm2Qx7Z"] {
        assert!(!sent.contains(value), "{value} in {sent}");
    }
}

#[test]
fn a_result_of_any_shape_in_a_chat_is_hidden_and_stays_of_its_shape() {
    let upstream = Scripted::start(|_, request| text("Good.", request));
    let program = Toolrein::before(&upstream, "[policy.redact]\nexplain = false\n");
    let inner = json!({"to": MAIL, "password": "9aF3kLm2Qx7Z"}).to_string();
    for (nth, content) in [
        json!({"mail": MAIL, "n": 1.0, "card": 4_111_111_111_111_111_u64, "inner": inner}),
        json!([{"type": "text", "text": "see"}, {"type": "json", "json": {"mail": [MAIL], "token": TOKEN}}]),
        json!([{"type": "image_url", "image_url": {"url": format!("https://x.example.net/i.png?t={TOKEN}")}}]),
        json!([{"type": "resource", "resource": {"uri": "a", "text": format!("<{MAIL}>")}}, format!("bare {MAIL}")]),
        json!(4_111_111_111_111_111_u64),
    ]
    .iter()
    .enumerate()
    {
        let messages = json!([{"role": "user", "content": "q"},
            {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "a", "content": content}]);
        let body = json!({"model": "m", "messages": messages}).to_string();
        assert_eq!(post(&program.chat_url(), &body).status, 200);
        let sent = upstream.request(nth).json();
        has_no_value(&sent.to_string());
        let shown = &sent["messages"][2]["content"];
        assert_eq!(shape(shown), shape(content), "{shown}");
    }
}

/// The names and kinds in a JSON value; a number may have become a string.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(members) => members.iter().map(|(name, value)| (name.clone(), shape(value))).collect(),
        Value::Array(items) => items.iter().map(shape).collect(),
        _ => Value::Null,
    }
}

#[test]
fn a_result_of_any_shape_in_the_responses_api_is_hidden() {
    for stream in [false, true] {
        let upstream = Scripted::start(|_, request| Output::text("x", "Good.").reply(request));
        let program = Toolrein::before(&upstream, "[policy.redact]\n");
        let address = format!("https://me:hunter2secret@shots.example.net/1.png?t={TOKEN}");
        let call = |kind: &str, more: Value| {
            let mut item = json!({"type": format!("{kind}_call"), "id": "x_1", "call_id": "call_a", "status": "completed"});
            item.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            item
        };
        let output = |kind: &str, more: Value| {
            let mut item = json!({"type": format!("{kind}_call_output"), "call_id": "call_a"});
            item.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            item
        };
        for (nth, items) in [
            [
                call("function", json!({"name": "f", "arguments": "{}"})),
                output("function", json!({"output": {"mail": MAIL, "password": "9aF3kLm2Qx7Z"}})),
            ],
            [
                call("function", json!({"name": "f", "arguments": "{}"})),
                output("function", json!({"output": [{"type": "input_file", "file_url": address, "filename": MAIL}]})),
            ],
            [
                call("computer", json!({"action": {"type": "screenshot"}, "pending_safety_checks": []})),
                output("computer", json!({"output": {"type": "computer_screenshot", "image_url": address},
                    "current_url": address, "acknowledged_safety_checks": [{"id": "s", "message": format!("Sent to {MAIL}")}]})),
            ],
            [
                call("shell", json!({"action": {"commands": ["env"]}})),
                output("shell", json!({"output": [{"stdout": format!("TOKEN={TOKEN}"), "stderr": MAIL,
                    "outcome": {"type": "exit", "exit_code": 0}}]})),
            ],
            [
                call("local_shell", json!({"action": {"command": ["env"]}})),
                output("local_shell", json!({"output": format!("{{\"stdout\":\"{MAIL}\"}}")})),
            ],
            [
                json!({"type": "mcp_approval_request", "id": "mcpr_1", "name": "mail", "server_label": "s", "arguments": "{}"}),
                json!({"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": false,
                    "reason": format!("Not to {MAIL}, nor to card {CARD}")}),
            ],
        ]
        .into_iter()
        .enumerate()
        {
            let mut talk = Responses::new(stream);
            for item in items {
                talk.add(item);
            }
            talk.ask(&program);
            let sent = upstream.request(nth).json();
            has_no_value(&sent.to_string());
            assert_eq!(shape(&sent["input"][2]), shape(&talk.body["input"][2]), "{sent}");
        }
    }
}

#[test]
fn a_question_of_toolreins_own_is_hidden_in_a_history_that_the_client_sends() {
    const KEY: &str = "aB3\"dE5\\gH7jK9mN1";
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => {
                let body = request.json().to_string();
                let start = body.find("[SECRET_").unwrap();
                let hidden = &body[start..=start + body[start..].find(']').unwrap()];
                let inner = json!({"key": hidden}).to_string();
                let arguments = json!({"k": hidden, "inner": inner}).to_string();
                Reply::speech(request, &Speech::calls(&[("b", "search", &arguments)]))
            }
            _ => text("Done.", request),
        });
        let settings = "[policy.redact]\nrestore = [\"*\"]\n[policy.confirm]\ntools = [\"search\"]\n";
        let program = Toolrein::before(&upstream, settings);
        let mut talk = Talk::new(form);
        let call =
            json!({"id": "call_a", "type": "function", "function": {"name": "fetch", "arguments": "{}"}});
        talk.messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
        let result = json!({"api_key": KEY}).to_string();
        talk.messages.push(json!({"role": "tool", "tool_call_id": "call_a", "content": result}));
        let asked = talk.ask(&program);
        assert!(asked.text.contains(r#""aB3\"dE5\\gH7jK9mN1""#), "the person sees the key: {}", asked.text);
        talk.add(&asked);
        talk.say("no");
        talk.ask(&program).assert_coherent(form);
        for request in upstream.requests() {
            let sent = String::from_utf8_lossy(&request.body).into_owned();
            for part in ["aB3", "dE5", "gH7jK9mN1"] {
                assert!(!sent.contains(part), "{part} in {sent}");
            }
        }
    });
}

#[test]
fn a_question_of_toolreins_own_is_hidden_where_the_upstream_keeps_the_history() {
    for stream in [false, true] {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => Output::calls("x", &[("a", "f", "{}")]).reply(request),
            1 => {
                let body = request.json().to_string();
                let start = body.find("[EMAIL_").unwrap();
                let hidden = &body[start..=start + body[start..].find(']').unwrap()];
                let arguments = json!({"to": hidden}).to_string();
                Output::calls("y", &[("b", "f", &arguments)]).reply(request)
            }
            _ => Output::text("z", "Done.").reply(request),
        });
        let settings = "[policy.redact]\nrestore = [\"*\"]\n[policy.confirm]\ntools = [\"f\"]\n";
        let program = Toolrein::before(&upstream, settings);
        let tools = json!([{"type": "function", "name": "f", "parameters": {"type": "object"}}]);
        let ask = |input: Value, previous: Option<&Value>| {
            let mut body = json!({"model": "gpt-5", "stream": stream, "tools": tools, "input": input});
            if let Some(previous) = previous {
                body["previous_response_id"] = previous.clone();
            }
            let response =
                Request::post(&format!("{}/v1/responses", program.origin()), body.to_string()).send();
            assert_eq!(response.status, 200, "{}", response.text());
            match stream {
                true => events(&response.text()).last().unwrap()["response"].clone(),
                false => response.json(),
            }
        };
        // The first call needs an approval too; its result brings the address.
        let first = ask(json!("q"), None);
        let said = first["output"].to_string();
        let token = said.split("reply with `").nth(1).unwrap().split('`').next().unwrap().to_owned();
        let approved = ask(json!(token), Some(&first["id"]));
        let call = &approved["output"]
            .as_array()
            .unwrap()
            .iter()
            .find(|item| item["type"] == "function_call")
            .unwrap()["call_id"];
        let result =
            json!([{"type": "function_call_output", "call_id": call, "output": format!("Mail {MAIL}.")}]);
        let asked = ask(result, Some(&approved["id"]));
        assert!(asked["output"].to_string().contains(MAIL), "the person sees the address: {asked}");
        ask(json!("no"), Some(&asked["id"]));
        for request in upstream.requests() {
            has_no_value(&String::from_utf8_lossy(&request.body));
        }
    }
}

#[test]
fn as_shipped_no_tool_gets_a_value_back_and_the_model_is_told_so() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request| {
            let body = request.json().to_string();
            assert!(body.contains("kept from you and from the tools that you call"), "{body}");
            let start = body.find("[EMAIL_").unwrap();
            let hidden = &body[start..=start + body[start..].find(']').unwrap()];
            let arguments = json!({"to": hidden}).to_string();
            Reply::speech(request, &Speech::calls(&[("b", "search", &arguments)]))
        });
        let program = Toolrein::before(&upstream, "[policy.redact]\n");
        let mut talk = Talk::new(form);
        let call =
            json!({"id": "call_a", "type": "function", "function": {"name": "search", "arguments": "{}"}});
        talk.messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
        talk.messages.push(json!({"role": "tool", "tool_call_id": "call_a", "content": MAIL}));
        let said = talk.ask(&program);
        assert!(said.calls[0].2.contains("[EMAIL_") && !said.calls[0].2.contains(MAIL), "{:?}", said.calls);
    });
}

#[test]
fn a_secret_that_its_place_describes_is_hidden_in_every_form_of_text() {
    const SECRET: &str = "Xq7Zp2Lm9Rt4Vw8K";
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request| text("Good.", request));
        let program = Toolrein::before(&upstream, "[policy.redact]\nexplain = false\n");
        for (nth, written) in [
            r#"{"password":{"current":{"plain":"@"}}}"#,
            r#"{"env":[{"name":"DB_PASSWORD","value":"@"}]}"#,
            r#"{"headers":[["authorization","ApiKey @"]]}"#,
            "<password><value>@</value></password>",
            "<add value=\"@\" key=\"ApiKey\"/>",
            "password: |\n  @\n",
            "- name: DB_PASSWORD\n  value: @",
            "user,password\nanna,@\n",
            "Authorization: token @",
            "Set-Cookie: session=@; Path=/",
            "FROM x\nENV DB_PASSWORD @\n",
            "Das Passwort lautet @.",
        ]
        .iter()
        .enumerate()
        {
            let mut talk = Talk::new(form);
            let call = json!({"id": "call_a", "type": "function", "function": {"name": "search", "arguments": "{}"}});
            talk.messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
            let result = written.replace('@', SECRET);
            talk.messages.push(json!({"role": "tool", "tool_call_id": "call_a", "content": result}));
            talk.ask(&program);
            let sent = upstream.request(nth).json().to_string();
            assert!(!sent.contains(SECRET) && sent.contains("[SECRET_"), "{written}: {sent}");
        }
    });
}
