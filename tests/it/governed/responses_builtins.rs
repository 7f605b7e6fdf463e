//! Built-in tools that clients run: a call is one of the tool that the request declares, whatever its item says.

use crate::governed::talk::BOTH;
use crate::support::program::Toolrein;
use crate::support::responses::Output;
use crate::support::responses_kit::{Talk, may_call};
use crate::support::scripted::Scripted;
use serde_json::{Value, json};

fn local() -> Value {
    json!([{"type": "shell"}])
}

/// An upstream whose model makes this call while it may call.
fn upstream(call: &Value) -> Scripted {
    let call = call.clone();
    Scripted::start(move |nth, request| match may_call(request) && nth == 0 {
        true => Output::new(nth).item(call.clone()).reply(request),
        false => Output::text(nth, "Then without.").reply(request),
    })
}

fn shell(environment: &Value) -> Value {
    let mut call = json!({"type": "shell_call", "id": "sh_1", "call_id": "call_1", "status": "completed",
        "action": {"commands": ["rm -r secret"]}});
    if !environment.is_null() {
        call["environment"] = environment.clone();
    }
    call
}

fn local_shell() -> Value {
    json!({"type": "local_shell_call", "id": "lsh_1", "call_id": "call_1", "status": "completed",
        "action": {"type": "exec", "command": ["rm", "secret"], "env": {}}})
}

fn named(kind: &str, name: &str) -> Value {
    let member = if kind == "function_call" { "arguments" } else { "input" };
    let id = if kind == "function_call" { "fc_1" } else { "ctc_1" };
    let mut call = json!({"type": kind, "id": id, "call_id": "call_1", "status": "completed", "name": name});
    call[member] = "{\"command\":\"rm secret\"}".into();
    call
}

#[test]
fn a_call_that_clients_run_by_a_declared_built_in_tool_has_the_rules_of_that_tool() {
    let container = json!({"type": "container_reference", "container_id": "cntr_1"});
    let local_shell_tool = json!([{"type": "local_shell"}]);
    let patch = json!([{"type": "apply_patch"}]);
    let both_shells =
        json!([{"type": "shell"}, {"type": "shell", "environment": {"type": "container_auto"}}]);
    for (tools, rule, call) in [
        (local(), "shell", shell(&Value::Null)),
        (local(), "shell", shell(&container)),
        (json!([{"type": "shell", "environment": {"type": "local"}}]), "shell", shell(&container)),
        (both_shells, "shell", shell(&container)),
        (local_shell_tool.clone(), "local_shell", shell(&container)),
        (local_shell_tool.clone(), "local_shell", named("function_call", "shell")),
        (local_shell_tool, "local_shell", local_shell()),
        (local(), "shell", local_shell()),
        (local(), "shell", named("function_call", "local_shell")),
        (local(), "shell", named("function_call", "shell")),
        (local(), "shell", named("custom_tool_call", "shell")),
        (patch.clone(), "apply_patch", named("function_call", "apply_patch")),
        (patch.clone(), "apply_patch", named("custom_tool_call", "Apply_Patch")),
        (patch.clone(), "apply_patch", named("function_call", "apply_patch_v2")),
        (
            patch,
            "apply_patch",
            json!({"type": "apply_patch_call", "id": "apc_1", "call_id": "call_1", "status": "completed",
            "operation": {"type": "delete_file", "path": "secret"}}),
        ),
    ] {
        for stream in BOTH {
            let upstream = upstream(&call);
            let policies = format!("[policy.allow]\nexcept = [\"{rule}\"]\nundeclared = \"pass\"\n");
            let toolrein = Toolrein::before(&upstream, &policies);
            let answer = Talk::new(stream).with_tools(tools.clone()).ask(&toolrein);
            assert_eq!(answer.said(), "Then without.", "{tools} {call}");
            assert!(!answer.text().contains("secret"), "{tools} {call}: {}", answer.text());
        }
    }
}

#[test]
fn a_shell_that_the_provider_runs_passes_where_the_request_declares_such_a_shell_alone() {
    let tools = json!([{"type": "shell", "environment": {"type": "container_auto"}}]);
    for stream in BOTH {
        let upstream = upstream(&shell(&json!({"type": "container_reference", "container_id": "cntr_1"})));
        let toolrein = Toolrein::before(
            &upstream,
            "[policy.allow]\nexcept = [\"shell\"]\n[policy.turn_limits]\ncalls = 1\n",
        );
        let answer = Talk::new(stream).with_tools(tools.clone()).ask(&toolrein);
        assert!(answer.text().contains("rm -r secret"), "{}", answer.text());
        assert_eq!(upstream.requests().len(), 1);
    }
}

#[test]
fn calls_of_a_local_shell_count_although_their_items_name_a_container() {
    for (tools, may) in
        [(local(), false), (json!([{"type": "shell", "environment": {"type": "container_auto"}}]), true)]
    {
        let upstream = Scripted::start(|nth, request| match may_call(request) {
            true => Output::new(nth).item(shell(&Value::Null)).reply(request),
            false => Output::text(nth, "Enough.").reply(request),
        });
        let toolrein = Toolrein::before(&upstream, "[policy.turn_limits]\ncalls = 2\n");
        let mut talk = Talk::new(false).with_tools(tools);
        for nth in 0..2 {
            let mut call = shell(&json!({"type": "container_reference", "container_id": "cntr_1"}));
            (call["id"], call["call_id"]) = (format!("sh_{nth}x").into(), format!("call_{nth}x").into());
            let output = json!([{"stdout": nth.to_string(), "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]);
            talk.add(call).add(
                json!({"type": "shell_call_output", "call_id": format!("call_{nth}x"), "output": output}),
            );
        }
        let answer = talk.ask(&toolrein);
        assert_eq!(answer.said() != "Enough.", may, "{}", answer.text());
    }
}
