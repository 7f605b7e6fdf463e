//! The steps of a request as children of its span: re-asks, fallbacks, questions to people and other models, the state
//! store; and its calls as events.

use crate::support::person::Person;
use crate::support::program::Toolrein;
use crate::support::reply::Reply;
use crate::support::scripted::Scripted;
use crate::support::until;
use crate::traces::collector::{Collector, Trace, of, program};
use crate::traces::requests::in_all_forms;
use crate::traces::server::{Server, is_connected};
use serde_json::{Value, json};

#[test]
fn calls_are_events_with_verdict_and_policy_and_asking_again_is_a_step() {
    in_all_forms(|endpoint, stream| {
        let upstream = Scripted::start(move |nth, request| match nth {
            0 => endpoint.says(request, "", &[("call_1", "{}"), ("call_2", "{}")]),
            _ => endpoint.says(request, "As you like.", &[]),
        });
        let collector = Collector::start();
        let deny = "[policy.allow]\nexcept = [\"f\"]\n";
        let toolrein = program(&upstream, &collector, deny);
        endpoint.ask(&toolrein, stream, &[]);
        let trace = collector.trace(0);
        let call = || (json!("f"), json!("block"), json!("allow"));
        assert_eq!(trace.calls(), [call(), call()], "{endpoint:?}, streamed {stream}");
        let names = trace.names();
        assert_eq!(names[0], "upstream request");
        assert!(["re-ask", "final-answer request"].contains(&names[1]) && names.len() == 2, "{names:?}");
        assert_eq!(
            (trace.says("toolrein.upstream_requests"), trace.says("toolrein.reasks")),
            (json!(2), json!(1))
        );
        assert!(trace.says("toolrein.actions").to_string().contains("allow=blocked"), "{trace:#?}");
        let [first, again] = [&trace.steps[0], &trace.steps[1]];
        assert!(first.end_time_unix_nano <= again.start_time_unix_nano, "one after the other: {trace:#?}");
        let event = &trace.request.events[0];
        assert!(event.time_unix_nano >= trace.request.start_time_unix_nano);
        assert!(event.time_unix_nano <= trace.request.end_time_unix_nano);
    });
}

#[test]
fn a_released_call_is_an_event_without_a_policy() {
    in_all_forms(|endpoint, stream| {
        let upstream = Scripted::start(move |_, request| endpoint.says(request, "", &[("call_1", "{}")]));
        let collector = Collector::start();
        let toolrein = program(&upstream, &collector, "[policy.budget]\n");
        endpoint.ask(&toolrein, stream, &[]);
        assert_eq!(collector.trace(0).calls(), [(json!("f"), json!("allow"), Value::Null)]);
    });
}

#[test]
fn a_fallback_is_a_step_that_names_what_was_left_out() {
    in_all_forms(|endpoint, stream| {
        let upstream = Scripted::start(move |nth, request| match nth {
            0 => {
                let message = "This model does not support tools.";
                Reply::error(400, "invalid_request_error", "unsupported_parameter", message)
            }
            _ => endpoint.says(request, "Without tools.", &[]),
        });
        let collector = Collector::start();
        let toolrein = program(&upstream, &collector, "");
        endpoint.ask(&toolrein, stream, &[]);
        let trace = collector.trace(0);
        assert_eq!(trace.names(), ["upstream request", "fallback"], "{endpoint:?}, streamed {stream}");
        let refused = trace.step("upstream request");
        assert_eq!(
            (of(refused, "http.response.status_code"), of(refused, "error.type")),
            (json!(400), json!("400"))
        );
        assert_eq!(of(trace.step("fallback"), "toolrein.fallback"), json!("tools"));
        assert_eq!(trace.says("http.response.status_code"), json!(200));
    });
}

#[test]
fn the_wait_for_a_person_is_a_step_and_so_is_the_webhook() {
    in_all_forms(|endpoint, stream| {
        let upstream = Scripted::start(move |_, request| endpoint.says(request, "", &[("call_1", "{}")]));
        let receiver = Scripted::start(|_, _| Reply::json(200, &json!({})));
        let collector = Collector::start();
        let webhook = format!(
            "[policy.confirm.webhook]\nurl = \"{}/hook\"\nsecret_env = \"WEBHOOK_SECRET\"\n",
            receiver.origin()
        );
        let confirm = format!("[policy.confirm]\ntools = [\"f\"]\nform = \"held\"\n{webhook}");
        let settings = format!("{}{}", Person::SETTINGS, collector.settings(&confirm));
        let secret = [("WEBHOOK_SECRET", "a-secret-of-the-webhook")];
        let toolrein = Toolrein::before_in(&upstream, &settings, &secret);
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| endpoint.ask(&toolrein, stream, &[]));
            Person::at(&toolrein).answers(true);
            asking.join().unwrap();
        });
        let trace: Trace = until("both steps", || {
            Some(collector.trace(0)).filter(|trace| trace.names().contains(&"webhook"))
        });
        let approval = trace.step("approval");
        assert_eq!(
            (of(approval, "gen_ai.tool.name"), of(approval, "toolrein.outcome")),
            (json!("f"), json!("approved"))
        );
        let webhook = trace.step("webhook");
        assert_eq!(
            (of(webhook, "toolrein.event"), of(webhook, "toolrein.tries")),
            (json!("approval.requested"), json!(1))
        );
        assert_eq!(webhook.status.as_ref().map_or(0, |status| status.code), 0);
    });
}

#[test]
fn another_model_that_is_asked_about_a_call_is_a_step() {
    in_all_forms(|endpoint, stream| {
        let upstream = Scripted::start(move |_, request| match request.json()["model"] == "small" {
            true => Reply::text("Rust release"),
            false => endpoint.says(
                request,
                "",
                &[("call_1", "{\"query\":\"the latest Rust release of this month\"}")],
            ),
        });
        let collector = Collector::start();
        let asks =
            "[policy.rewrite_query]\ntools = [\"f\"]\n[policy.rewrite_query.model]\nmodel = \"small\"\n";
        let toolrein = program(&upstream, &collector, asks);
        endpoint.ask(&toolrein, stream, &[]);
        let trace = collector.trace(0);
        let question = trace.step("model question");
        assert_eq!(of(question, "gen_ai.request.model"), json!("small"), "{endpoint:?}, streamed {stream}");
        assert_eq!(of(question, "toolrein.outcome"), json!("answered"));
        assert_eq!(trace.calls()[0].1, json!("modify"));
    });
}

#[test]
fn a_question_to_a_store_that_replicas_share_is_a_step() {
    let redis = Server::start();
    in_all_forms(|endpoint, stream| {
        let upstream = Scripted::start(move |_, request| endpoint.says(request, "Hello.", &[]));
        let collector = Collector::start();
        let toolrein = redis.share(&upstream, &collector.settings("[policy.rate_limit]\n"));
        is_connected(&toolrein);
        endpoint.ask(&toolrein, stream, &[]);
        let trace = collector.trace(0);
        assert_eq!(trace.names(), ["store", "upstream request"], "{endpoint:?}, streamed {stream}");
        assert_eq!(of(trace.step("store"), "db.operation.name"), json!("look_up"));
    });
}
