//! Lists that restrict calls: a bare name in one holds in every namespace, however that is written, in both APIs; lists that
//! allow calls are exact.

use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::responses::Output;
use crate::support::responses_kit::Talk as Responses;
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Talk, in_both_forms, text};
use serde_json::{Value, json};

/// Names under which a client may keep the tool `pay`.
const NAMES: [&str; 9] = [
    "mcp__shop__pay",
    "shop__pay",
    "shop.pay",
    "crm:pay",
    "shop/pay",
    "Shop.Pay",
    "mcp_shop_pay",
    "shop.mcp_shop_pay",
    "functions.shop.pay",
];
/// Names of other tools.
const OTHERS: [&str; 5] = ["payment", "auto_pay", "mcp__shop__payments", "pay.history", "shop.repay"];

/// A conversation whose client declares a tool of this name.
fn talk(form: Form, name: &str) -> Talk {
    let mut talk = Talk::new(form);
    talk.members["tools"] =
        json!([{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}]);
    talk
}

/// The model makes these calls, of a tool each, in one reply, and then answers.
fn calling(names: &[&'static str]) -> Scripted {
    let calls: Vec<(String, &'static str)> =
        names.iter().enumerate().map(|(at, name)| (format!("call_{at}"), *name)).collect();
    Scripted::start(move |_, request| {
        if request.json()["messages"].as_array().is_some_and(|all| all.last().unwrap()["role"] == "tool") {
            return text("Then without.", request);
        }
        let calls: Vec<_> = calls.iter().map(|(id, name)| (id.as_str(), *name, "{}")).collect();
        Reply::speech(request, &Speech::calls(&calls))
    })
}

#[test]
fn a_bare_name_that_may_not_be_called_is_blocked_in_every_namespace() {
    in_both_forms(|form| {
        for name in NAMES {
            let upstream = calling(&[name]);
            let program = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"pay\"]\n");
            let said = talk(form, name).ask(&program);
            assert_eq!((said.calls.len(), said.text.as_str()), (0, "Then without."), "{name}");
        }
        for name in OTHERS {
            let upstream = calling(&[name]);
            let program = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"pay\"]\n");
            assert_eq!(talk(form, name).ask(&program).calls.len(), 1, "{name}");
        }
    });
}

#[test]
fn a_name_that_may_be_called_is_allowed_in_no_other_namespace() {
    in_both_forms(|form| {
        for (name, calls) in [("pay", 1), ("shop.pay", 0), ("mcp__shop__pay", 0)] {
            let upstream = calling(&[name]);
            let program = Toolrein::before(&upstream, "[policy.allow]\nonly = [\"pay\"]\n");
            assert_eq!(talk(form, name).ask(&program).calls.len(), calls, "{name}");
        }
    });
}

#[test]
fn a_tool_that_needs_approval_needs_it_in_every_namespace() {
    in_both_forms(|form| {
        for name in NAMES {
            let upstream = calling(&[name]);
            let program = Toolrein::before(&upstream, "[policy.confirm]\ntools = [\"pay\"]\n");
            let said = talk(form, name).ask(&program);
            assert_eq!(said.calls.len(), 0, "{name}");
            assert!(said.text.contains("pay") || said.text.contains("Pay"), "{name}: {}", said.text);
        }
    });
}

/// How many of these calls of one reply the client gets.
fn released(form: Form, settings: &str, names: &[&'static str]) -> usize {
    let upstream = calling(names);
    let program = Toolrein::before(&upstream, settings);
    let mut talk = Talk::new(form);
    let tool = |name: &&str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
    talk.members["tools"] = names.iter().map(tool).collect();
    talk.ask(&program).calls.len()
}

#[test]
fn a_limit_of_a_bare_name_counts_its_calls_in_all_namespaces_together() {
    in_both_forms(|form| {
        let names = ["mcp__shop__pay", "crm:pay", "pay", "shop/pay"];
        for settings in [
            "[policy.turn_limits]\ntools = { pay = 2 }\n",
            "[policy.turn_limits]\ntools = { \"*\" = 50, pay = 2 }\n",
            "[policy.turn_limits]\ncategories = { money = { tools = [\"pay\"], calls = 2 } }\n",
            "[policy.rate_limit]\ntools = { pay = { calls = 2, per = \"1h\" } }\n",
            "[policy.quota.limits]\nmoney = { tools = [\"pay\"], calls = 2, per = \"1h\" }\n",
        ] {
            assert_eq!(released(form, settings, &names), 2, "{settings}");
        }
        // A limit that is lifted for a bare name is lifted for that name alone.
        let settings = "[policy.turn_limits]\ntools = { \"*\" = 1, think = 0 }\n";
        assert_eq!(released(form, settings, &["think", "think", "think"]), 3);
        assert_eq!(released(form, settings, &["x.think", "x.think", "x.think"]), 1);
        // A pattern counts each tool for itself, as before.
        let settings = "[policy.turn_limits]\ntools = { \"*search*\" = 1 }\n";
        assert_eq!(released(form, settings, &["web_search", "notes.search", "web_search"]), 2);
    });
}

#[test]
fn a_closed_tool_and_one_with_limited_arguments_are_so_in_every_namespace() {
    in_both_forms(|form| {
        for settings in [
            "[policy.intents]\ntools = [\"boss\"]\nclosable = [\"pay\"]\nclosed = [\"pay\"]\nallow = [\"close_tool\"]\n",
            "[policy.serial]\ntools = [\"pay\"]\n",
            "[policy.min_conversation]\ntools = { pay = { min_user_messages = 9 } }\n",
        ] {
            let most = usize::from(settings.contains("serial"));
            assert_eq!(released(form, settings, &["shop.pay", "crm:pay"]), most, "{settings}");
        }
    });
}

/// The model answers with this item, and then in words.
fn saying(item: Value) -> Scripted {
    Scripted::start(move |nth, request: &Recorded| match nth {
        0 => Output::new(nth).item(item.clone()).reply(request),
        _ => Output::text(nth, "Then without.").reply(request),
    })
}

#[test]
fn a_bare_name_holds_for_calls_in_a_namespace_and_for_approvals_that_a_provider_asks_for() {
    for stream in [false, true] {
        let call = |more: Value| {
            let mut call = json!({"type": "function_call", "id": "fc_a", "call_id": "call_a", "status": "completed", "arguments": "{}"});
            call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            call
        };
        let tool = json!({"type": "function", "name": "pay", "parameters": {"type": "object"}});
        let in_crm = json!({"type": "namespace", "name": "crm", "description": "d", "tools": [tool]});
        let mcp = json!({"type": "mcp", "server_label": "shop", "server_url": "https://x.example", "require_approval": "always"});
        let asks = json!({"type": "mcp_approval_request", "id": "mcpr_1", "name": "pay", "server_label": "shop", "arguments": "{}"});
        for (item, declared) in [
            (call(json!({"name": "pay", "namespace": "crm"})), in_crm.clone()),
            (call(json!({"name": "pay", "namespace": "mcp__crm__"})), in_crm),
            (
                call(json!({"name": "mcp__crm__pay"})),
                json!({"type": "function", "name": "mcp__crm__pay", "parameters": {}}),
            ),
            (asks, mcp),
        ] {
            for settings in [
                "[policy.allow]\nexcept = [\"pay\"]\nundeclared = \"pass\"\n",
                "[policy.allow]\nundeclared = \"pass\"\n[policy.confirm]\ntools = [\"pay\"]\n",
            ] {
                let upstream = saying(item.clone());
                let toolrein = Toolrein::before(&upstream, settings);
                let answer = Responses::new(stream).with_tools(json!([declared])).ask(&toolrein);
                assert_eq!(answer.kinds(), ["assistant"], "{item} {settings}: {}", answer.text());
            }
        }
    }
}
