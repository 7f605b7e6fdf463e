//! Laws of the simulated model and its validator, over conversations that the model made with a client that rebuilds what it
//! sends back, as clients do.

use super::*;
use proptest::prelude::*;
use proptest::sample::Index;

/// One reply, and how the client goes on after it.
#[derive(Clone, Debug)]
struct Step {
    is_streamed: bool,
    /// The text of each result.
    result: String,
    /// Whether results have lists for strings, and `is_error: false`.
    has_list: bool,
    /// Whether a text follows the results.
    has_reminder: bool,
    /// Whether the client leaves `caller` out of the calls that it sends back.
    drops_caller: bool,
    /// Whether a system message follows.
    has_system: bool,
}

/// A conversation to be had.
#[derive(Clone, Debug)]
struct Plan {
    model: &'static str,
    system: Option<String>,
    tools: usize,
    thinking: Value,
    steps: Vec<Step>,
}

fn step() -> impl Strategy<Value = Step> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    ("[a-z]{1,12}", flags).prop_map(|(result, flags)| {
        let (is_streamed, has_list, has_reminder, drops_caller, has_system) = flags;
        Step { is_streamed, result, has_list, has_reminder, drops_caller, has_system }
    })
}

fn plan(thinking: Vec<Value>) -> impl Strategy<Value = Plan> {
    let models = vec!["demo-chat", "demo-runaway", "demo-polite", "demo-stuck"];
    (
        prop::sample::select(models),
        prop::option::of("[a-z]{1,9}"),
        1_usize..3,
        prop::sample::select(thinking),
        prop::collection::vec(step(), 1..6),
    )
        .prop_map(|(model, system, tools, thinking, steps)| Plan {
            model,
            system,
            tools,
            thinking,
            steps,
        })
}

/// The forms of `thinking` that give thinking blocks.
fn thinking() -> Vec<Value> {
    vec![
        json!({"type": "adaptive"}),
        json!({"type": "adaptive", "display": "omitted"}),
        json!({"type": "enabled", "budget_tokens": 1024}),
    ]
}

fn every_setting() -> Vec<Value> {
    thinking().into_iter().chain([Value::Null, json!({"type": "disabled"})]).collect()
}

/// The request after the first question.
fn first_request(plan: &Plan) -> Value {
    let names = &["searchAll", "urlReader"][..plan.tools];
    let mut body = demo(plan.model, &[user(&json!("Ask searchAll and urlReader about bicycles."))], names);
    if let Some(system) = &plan.system {
        body["system"] = json!(system);
    }
    if !plan.thinking.is_null() {
        body["thinking"] = plan.thinking.clone();
    }
    body
}

/// Has the conversation and returns the request that comes next. A request that is refused fails the test.
fn converse(simulated: &Simulated, plan: &Plan) -> Value {
    let mut body = first_request(plan);
    for step in &plan.steps {
        let reply = simulated.ask(&with(body.clone(), "stream", json!(step.is_streamed)));
        continue_with(&mut body, reply, step);
    }
    body
}

/// Appends the reply and the client's next messages.
fn continue_with(body: &mut Value, mut reply: Value, step: &Step) {
    let mut results = Vec::new();
    for block in
        reply["content"].as_array_mut().unwrap().iter_mut().filter(|block| block["type"] == "tool_use")
    {
        if step.drops_caller {
            block.as_object_mut().unwrap().remove("caller");
        }
        let mut result = json!({"type": "tool_result", "tool_use_id": block["id"], "content": step.result});
        if step.has_list {
            result["content"] = json!([text(&step.result)]);
            result["is_error"] = json!(false);
        }
        results.push(result);
    }
    let content = if results.is_empty() {
        json!(format!("And now? {}", step.result))
    } else {
        results.extend(step.has_reminder.then(|| text("<system-reminder/>")));
        json!(results)
    };
    let messages = body["messages"].as_array_mut().unwrap();
    messages.extend([assistant(&reply["content"]), user(&content)]);
    if step.has_system {
        messages.push(json!({"role": "system", "content": format!("Note {}.", messages.len())}));
    }
}

/// The indexes of the messages that have thinking.
fn thoughtful(body: &Value) -> Vec<usize> {
    let messages = body["messages"].as_array().unwrap().iter().enumerate();
    let has_thinking = |message: &Value| message["content"][0]["type"] == "thinking";
    messages.filter(|(_, message)| has_thinking(message)).map(|(index, _)| index).collect()
}

/// Changes something before the last thinking block: the system prompt, a tool, or a part of an earlier message.
fn change(body: &mut Value, kind: usize, at: Index) {
    let last = *thoughtful(body).last().unwrap();
    match kind {
        0 => body["system"] = json!("Another system prompt."),
        1 => body["tools"][0]["description"] = json!("Another description."),
        2 => body["tools"]
            .as_array_mut()
            .unwrap()
            .push(json!({"name": "t", "input_schema": {"type": "object"}})),
        _ => {
            let message = &mut body["messages"][at.index(last)];
            let blocks = match message["content"].take() {
                Value::String(old) => vec![text(&format!("{old} More."))],
                Value::Array(mut blocks) => {
                    let block = blocks.last_mut().unwrap();
                    match block["type"].as_str().unwrap() {
                        "tool_use" => block["input"]["other"] = json!(1),
                        "tool_result" if kind == 3 => block["content"] = json!("Something else."),
                        _ => blocks.push(text("One block more.")),
                    }
                    blocks
                }
                _ => unreachable!("content is a text or blocks"),
            };
            message["content"] = json!(blocks);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn what_the_model_made_is_accepted_when_it_comes_back(plan in plan(every_setting())) {
        let simulated = Simulated::new();
        let body = converse(&simulated, &plan);
        prop_assert_eq!(violations_of("", &body), Vec::<String>::new(), "{:#}", body);
        let other = Simulated::new();
        prop_assert!(other.send(MessagesEndpoint::Create, &body).is_ok(), "nothing is kept: another upstream accepts it");
    }

    #[test]
    fn a_changed_prefix_is_refused_once_and_as_another_conversation(
        plan in plan(thinking()), kind in 0_usize..5, at in any::<Index>()
    ) {
        let mut body = converse(&Simulated::new(), &plan);
        change(&mut body, kind, at);
        let found = violations_of("thinking-binding-controls-2026-08-01", &body);
        prop_assert_eq!(found.len(), 1, "{:#?}", found);
        let wording = "Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove the \
            block, or set `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\".";
        prop_assert!(found[0].ends_with(wording), "{}", found[0]);
    }

    #[test]
    fn the_same_change_passes_without_thinking_blocks(
        plan in plan(vec![json!({"type": "adaptive"})]), kind in 0_usize..5, at in any::<Index>()
    ) {
        let mut body = converse(&Simulated::new(), &plan);
        change(&mut body, kind, at);
        for index in thoughtful(&body) {
            body["messages"][index]["content"].as_array_mut().unwrap().remove(0);
        }
        prop_assert_eq!(violations_of("", &body), Vec::<String>::new());
    }

    #[test]
    fn thinking_may_be_cut_at_both_ends_and_not_in_the_middle(
        plan in plan(vec![json!({"type": "adaptive"})]), from in any::<Index>(), to in any::<Index>()
    ) {
        let body = converse(&Simulated::new(), &plan);
        let all = thoughtful(&body);
        let (from, to) = (from.index(all.len() + 1), to.index(all.len() + 1));
        let (from, to) = (from.min(to), from.max(to));
        let without = |kept: &dyn Fn(usize) -> bool| {
            let mut body = body.clone();
            for (_, index) in all.iter().enumerate().filter(|(number, _)| !kept(*number)) {
                body["messages"][*index]["content"].as_array_mut().unwrap().remove(0);
            }
            violations_of("", &body)
        };
        let run = |number: usize| (from..to).contains(&number);
        prop_assert_eq!(without(&run), Vec::<String>::new());
        let has_gap = from > 0 && from < to && to < all.len();
        prop_assert_eq!(without(&|number| !run(number)).len(), usize::from(has_gap));
    }

    #[test]
    fn a_reply_is_the_same_streamed_and_whole(plan in plan(every_setting())) {
        let body = converse(&Simulated::new(), &plan);
        let whole = Simulated::new().ask(&body);
        let streamed = Simulated::new().ask(&with(body, "stream", json!(true)));
        prop_assert_eq!(streams::without_ids(whole), streams::without_ids(streamed));
    }
}
