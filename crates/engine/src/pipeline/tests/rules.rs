//! The rules that a prototype of codecs with three protocols forced on the interface, and what it did not reach: each with
//! the tests that hold it. Those that no other file holds are here, where they can be across the three protocols.

use super::super::*;
use super::messages::{
    Blocks, PARIS, call_block, event as messages_event, judging, message, text_block, text_reply,
};
use super::{DONE, LIMITS, delta, finish, messages, role, run, whole};
use dialects::{CHAT, RESPONSES};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Each rule by its number: what it says, and the tests that hold it.
const RULES: [(u8, &str, &str); 18] = [
    (
        1,
        "Spans refer to the payload; pieces of a call are joined as they are escaped, and decoded once.",
        "a_surrogate_pair_that_two_deltas_share_is_one_character_in_every_protocol",
    ),
    (
        2,
        "Arguments as text, as an object and by their kind alone are one call; some calls have no name on the wire.",
        "arguments_are_judged_as_text_and_as_an_object_in_every_protocol \
         every_kind_of_call_that_a_client_runs_has_a_name_an_id_and_arguments",
    ),
    (
        3,
        "A call has one decision; new arguments are written once, and its other pieces are left out.",
        "replaced_arguments_are_sent_in_the_calls_first_delta \
         changed_arguments_appear_in_every_event_that_carries_them \
         a_changed_call_goes_out_once_with_one_delta_right_after_its_start",
    ),
    (
        4,
        "Usage of one reply overwrites, of several it is summed; the end is written also where the upstream sends none.",
        "usage_of_one_reply_overwrites_and_of_several_is_summed_in_every_protocol \
         a_later_reply_without_a_reason_gets_an_end_of_its_own",
    ),
    (
        5,
        "A reply is asked again at its finish, at its end, or where its bytes end; a cut stream stays cut.",
        "a_reply_is_asked_again_after_a_finish_or_an_end_alone_and_not_after_a_cut",
    ),
    (
        6,
        "A reason that wants calls is replaced where none was released, even if none was blocked; in chat only where something \
         of the reply is left out.",
        "a_reason_that_wants_calls_is_replaced_where_none_was_released \
         calls_in_the_final_answer_are_dropped_and_replaced_by_a_fixed_sentence",
    ),
    (
        7,
        "What is ambiguous in a call concerns that call: it goes out as it was judged. Beside calls it concerns its frame: \
         toolrein breaks off there if a policy restricts calls.",
        "a_call_with_two_names_goes_out_under_the_one_that_was_judged \
         calls_that_share_an_id_are_two_calls \
         a_stream_in_which_clients_read_different_items_is_broken_off",
    ),
    (
        8,
        "A whole text and joined pieces of one call are compared: where they differ, what was judged goes out alone.",
        "no_client_reads_a_call_whose_arguments_are_blocked_and_the_others_are_left \
         no_client_reads_a_blocked_call_however_the_upstream_writes_it \
         a_call_without_arguments_is_judged_in_each_of_its_forms",
    ),
    (
        9,
        "The boundary between two replies is explicit, and a second head within a reply is one too.",
        "a_second_head_in_one_reply_begins_its_blocks_anew \
         a_reply_whose_calls_were_all_blocked_is_continued_by_the_next_one_as_one_stream",
    ),
    (
        10,
        "What says nothing passes or keeps its place; what belongs to a choice waits with it, and after a finish that is held \
         back nothing of the reply goes out.",
        "keepalive_and_usage_events_in_the_middle_of_a_call_are_forwarded \
         each_choice_waits_for_its_own_decision \
         nothing_of_a_reply_goes_out_after_a_finish_that_is_held_back",
    ),
    (
        11,
        "Differs here: usage comes before the finish in a frame, since a finish after all allowed tokens is a cut; the end is \
         last.",
        "usage_comes_before_the_finish_in_a_frame_and_may_make_it_a_cut",
    ),
    (
        12,
        "JSON over several lines is put on one line where it becomes an event.",
        "a_whole_reply_over_several_lines_becomes_events_of_one_line",
    ),
    (
        13,
        "Every id of an item is a name of it; its index decides where only one item has it.",
        "a_stream_whose_ids_change_with_every_event_passes_as_it_came \
         calls_that_share_an_id_are_two_calls",
    ),
    (
        14,
        "A text of toolrein's has an id where items have one, in both forms; a heartbeat shifts the numbers after it.",
        "a_text_of_toolreins_own_has_an_id_and_a_heartbeat_shifts_the_numbers_after_it",
    ),
    (
        15,
        "What goes back to the model is valid: arguments are an object, and unknown members of deltas are joined.",
        "arguments_that_are_no_object_go_back_to_the_model_as_one_in_every_protocol \
         thinking_goes_back_to_the_model_whole_and_arguments_that_are_no_object_within_one",
    ),
    (
        16,
        "A whole reply inside of the head is read and judged as one.",
        "the_calls_in_the_head_of_a_stream_are_judged_and_the_others_are_left",
    ),
    (
        17,
        "A reply is joined in one place for the other form and for the history.",
        "converting_a_whole_reply_to_a_stream_and_back_gives_the_same_reply \
         a_stream_becomes_a_whole_reply_also_where_serde_json_refuses_it_or_only_the_event_line_names_its_type",
    ),
    (
        18,
        "Decided: a call of a chat is complete when the next one begins or the finish comes, and not where its JSON is closed.",
        "a_chat_call_is_judged_by_its_arguments_when_the_next_begins_or_the_finish_comes",
    ),
];

/// What the prototype did not reach, with the tests that hold it.
const NOT_REACHED: [(&str, &str); 11] = [
    (
        "complete names in chat",
        "a_chat_name_is_complete_where_no_declared_name_goes_on_from_it \
         a_name_that_comes_in_pieces_is_judged_when_it_is_whole",
    ),
    (
        "a call that is repeated differently after its release",
        "a_call_that_was_counted_once_is_shown_once a_late_arguments_event_does_not_change_a_complete_call",
    ),
    (
        "pending verdicts",
        "a_call_that_waits_for_a_person_keeps_what_is_after_it_and_goes_out_in_one_piece \
         text_is_forwarded_while_the_held_call_and_everything_after_it_wait",
    ),
    (
        "bounds",
        "a_call_over_the_held_limit_is_released_unjudged_and_counted \
         a_held_call_is_never_released_on_overflow_or_upstream_error \
         the_held_limit_counts_argument_bytes_and_not_event_framing",
    ),
    ("an own error while a block is open", "an_error_of_toolreins_own_comes_after_the_end_of_the_open_block"),
    (
        "a re-asked reply whose head has content",
        "a_later_reply_whose_head_holds_everything_goes_on_in_the_message_of_the_first",
    ),
    (
        "namespaces",
        "a_bare_name_holds_for_calls_in_a_namespace_and_for_approvals_that_a_provider_asks_for \
         a_bare_name_that_may_not_be_called_is_blocked_in_every_namespace",
    ),
    (
        "wrappers",
        "an_allowed_wrapper_call_is_forwarded_and_each_inner_call_is_counted \
         a_call_within_a_wrapper_that_a_policy_forbids_blocks_every_kind_of_wrapper",
    ),
    (
        "markup",
        "markup_is_cut_out_of_texts_in_every_form_and_spelling \
         a_call_that_names_parameters_of_a_declared_tool_reaches_no_client_of_the_responses_api",
    ),
    (
        "a legacy message beside a delta",
        "a_call_in_a_message_beside_the_delta_is_judged_for_the_clients_that_read_it \
         a_message_call_with_the_index_of_a_delta_call_does_not_count_its_bytes_twice",
    ),
    (
        "the deprecated form beside the other one",
        "the_deprecated_function_call_is_judged_like_any_other a_call_that_is_written_in_both_forms_is_one_call",
    ),
];

#[test]
fn every_rule_of_the_interface_names_tests_and_all_of_them_exist() {
    assert!(RULES.iter().map(|(number, ..)| *number).eq(1..=18));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    ["crates/engine/src", "crates/dialects/src", "tests"]
        .iter()
        .for_each(|folder| add_files(&root.join(folder), &mut files));
    let sources: Vec<String> = files.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let is_test = |name: &str| {
        let begins = [format!("fn {name}()"), format!("fn {name}(\n")];
        let is_it = |source: &String| {
            begins.iter().any(|begin| {
                source.find(begin).is_some_and(|at| {
                    let before: Vec<&str> = source[..at].trim_end().lines().rev().take(3).collect();
                    before.iter().any(|line| line.contains("#[test]") || line.contains("#[tokio::test"))
                })
            })
        };
        sources.iter().any(is_it)
    };
    let rules = RULES.iter().map(|(_, says, tests)| (*says, *tests));
    for (says, tests) in rules.chain(NOT_REACHED) {
        assert!(tests.split_whitespace().next().is_some(), "no test holds: {says}");
        for name in tests.split_whitespace() {
            assert!(is_test(name), "{says} There is no test {name}.");
        }
    }
}

fn add_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            add_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// One protocol: its pipelines, and its streams of one call.
struct Protocol {
    name: &'static str,
    pipeline: fn(Judging, Form, Options) -> ReplyPipeline,
    /// A stream of one call of this tool, with its arguments in pieces, as written in JSON strings.
    stream: fn(tool: &str, pieces: &[&str]) -> String,
    /// The reply of one call, whole.
    whole: fn(arguments: &Value) -> String,
    /// A stream of this text alone.
    text: fn(text: &str) -> String,
}

const PROTOCOLS: [Protocol; 3] = [
    Protocol {
        name: "chat",
        pipeline: |judging, form, options| ReplyPipeline::new(judging, CHAT, form, LIMITS, options),
        stream: |tool, pieces| {
            let part = |inner: &str| {
                format!(
                    r#"data: {{"choices":[{{"index":0,"delta":{{"tool_calls":[{{"index":0,{inner}}}]}}}}]}}"#
                ) + "\n\n"
            };
            let begin =
                part(&format!(r#""id":"c","type":"function","function":{{"name":"{tool}","arguments":""}}"#));
            let pieces = pieces.iter().map(|piece| part(&format!(r#""function":{{"arguments":"{piece}"}}"#)));
            role() + &begin + &pieces.collect::<String>() + &finish("tool_calls") + DONE
        },
        whole: |arguments| {
            let call =
                json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}});
            let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
            json!({"id": "r", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})
                .to_string()
        },
        text: |text| role() + &delta(&json!({ "content": text })) + &finish("stop") + DONE,
    },
    Protocol {
        name: "responses",
        pipeline: |judging, form, options| ReplyPipeline::new(judging, RESPONSES, form, LIMITS, options),
        stream: |tool, pieces| {
            let item = |arguments: &str| {
                format!(
                    r#"{{"type":"function_call","id":"fc","call_id":"c","name":"{tool}","arguments":"{arguments}"}}"#
                )
            };
            let event =
                |kind: &str, inner: &str| format!("event: {kind}\ndata: {{\"type\":\"{kind}\",{inner}}}\n\n");
            let of_item = |kind: &str, item: &str| event(kind, &format!(r#""output_index":0,"item":{item}"#));
            let delta = |piece: &&str| {
                let inner = format!(r#""output_index":0,"item_id":"fc","delta":"{piece}""#);
                event("response.function_call_arguments.delta", &inner)
            };
            let done = item(&pieces.concat());
            let response = |status: &str, output: &str| {
                let usage = r#""usage":{"input_tokens":100,"output_tokens":7}"#;
                format!(r#""response":{{"id":"resp_1","status":"{status}","output":[{output}],{usage}}}"#)
            };
            event("response.created", &response("in_progress", ""))
                + &of_item("response.output_item.added", &item(""))
                + &pieces.iter().map(delta).collect::<String>()
                + &of_item("response.output_item.done", &done)
                + &event("response.completed", &response("completed", &done))
        },
        whole: |arguments| {
            let call = json!({"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": arguments});
            json!({"id": "resp_1", "object": "response", "status": "completed", "output": [call]}).to_string()
        },
        text: |text| {
            let part = json!({"type": "output_text", "text": text});
            let item = json!({"type": "message", "id": "msg", "role": "assistant", "content": [part]});
            let usage = json!({"input_tokens": 100, "output_tokens": 7});
            let response = |status: &str, output: Value| json!({"id": "resp_2", "status": status, "output": output, "usage": usage});
            let events = [
                json!({"type": "response.created", "response": response("in_progress", json!([]))}),
                json!({"type": "response.output_item.added", "output_index": 0, "item": item}),
                json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
                json!({"type": "response.completed", "response": response("completed", json!([item]))}),
            ];
            events.iter().map(messages_event).collect()
        },
    },
    Protocol {
        name: "messages",
        pipeline: messages::pipeline,
        stream: |tool, pieces| {
            // The pieces take their places as they are written.
            let marks: Vec<String> = (0..pieces.len()).map(|at| format!("<piece {at}>")).collect();
            let marks: Vec<&str> = marks.iter().map(String::as_str).collect();
            let stream = message("msg_1", &[call_block(0, tool, &marks)], Some("tool_use"));
            marks.iter().zip(pieces).fold(stream, |stream, (mark, piece)| stream.replace(mark, piece))
        },
        whole: |arguments| {
            let call = json!({"type": "tool_use", "id": "c", "name": "f", "input": arguments});
            json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [call],
                "stop_reason": "tool_use", "stop_sequence": null, "usage": {"input_tokens": 1, "output_tokens": 1}})
            .to_string()
        },
        text: text_reply,
    },
];

impl Protocol {
    fn judge(&self, policy: Blocks) -> ReplyPipeline {
        self.judge_in(Form::Streamed, policy, Options::default())
    }

    fn judge_in(&self, form: Form, policy: Blocks, options: Options) -> ReplyPipeline {
        (self.pipeline)(judging(Some(policy), false), form, options)
    }
}

/// The data of every event.
fn data_of(stream: &str) -> Vec<Value> {
    let data = stream.lines().filter_map(|line| line.strip_prefix("data: ").filter(|data| *data != "[DONE]"));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[test]
fn a_surrogate_pair_that_two_deltas_share_is_one_character_in_every_protocol() {
    for protocol in PROTOCOLS {
        let stream = (protocol.stream)("f", &[r#"{\"q\":\"\ud83d"#, r#"\ude00\"}"#]);
        let mut judge = protocol.judge(PARIS);
        assert_eq!(whole(&mut judge, &stream), (stream.clone(), Ending::Complete), "{}", protocol.name);
        let calls: Vec<String> = judge.shown()[0].released().iter().map(|call| call.arguments()).collect();
        assert_eq!(calls, [r#"{"q":"😀"}"#], "{}", protocol.name);
        let (_, ending) = whole(&mut protocol.judge(Blocks { tool: "", word: "😀" }), &stream);
        assert!(matches!(ending, Ending::Reask { choice: 0, .. }), "{}: {ending:?}", protocol.name);
    }
}

#[test]
fn arguments_are_judged_as_text_and_as_an_object_in_every_protocol() {
    for protocol in PROTOCOLS {
        for (city, is_blocked) in [("paris", true), ("berlin", false)] {
            for arguments in [json!({ "city": city }), json!(format!("{{\"city\":\"{city}\"}}"))] {
                let reply = (protocol.whole)(&arguments);
                let mut judge = protocol.judge_in(Form::Whole, PARIS, Options::default());
                let (out, ending) = whole(&mut judge, &reply);
                let name = protocol.name;
                assert_eq!(
                    matches!(ending, Ending::Reask { .. }),
                    is_blocked,
                    "{name} {arguments}: {ending:?}"
                );
                assert_eq!(out, if is_blocked { "" } else { &reply }, "{name} {arguments}");
            }
        }
    }
}

#[test]
fn usage_of_one_reply_overwrites_and_of_several_is_summed_in_every_protocol() {
    let with_usage = |stream: String| {
        let usage = |completion: u32| json!({"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": completion}});
        let both = format!("data: {}\n\ndata: {}\n\n{DONE}", usage(1), usage(7));
        stream.replace(DONE, &both)
    };
    for protocol in PROTOCOLS {
        let is_chat = protocol.name == "chat";
        let reply = |stream: String| if is_chat { with_usage(stream) } else { stream };
        let mut judge = protocol.judge(PARIS);
        let (first, ending) = whole(&mut judge, &reply((protocol.stream)("f", &[r#"{\"city\":\"paris\"}"#])));
        assert!(matches!(ending, Ending::Reask { .. }), "{}", protocol.name);
        let usage = judge.usages();
        assert_eq!((usage[0].prompt, usage[0].completion), (100, 7), "{}", protocol.name);
        judge.continue_with(0);
        let (second, ending) = whole(&mut judge, &reply((protocol.text)("Sunny.")));
        assert_eq!(ending, Ending::Complete, "{}", protocol.name);
        let usages: Vec<Value> = data_of(&(first + &second))
            .into_iter()
            .filter(|event| event["type"] != "message_start" && event["type"] != "response.created")
            .flat_map(|event| [event["usage"].clone(), event["response"]["usage"].clone()])
            .filter(Value::is_object)
            .collect();
        let last = usages.last().unwrap();
        let [read, written] =
            if is_chat { ["prompt_tokens", "completion_tokens"] } else { ["input_tokens", "output_tokens"] };
        assert_eq!((&last[read], &last[written]), (&json!(200), &json!(14)), "{}: {usages:?}", protocol.name);
    }
}

#[test]
fn a_later_reply_without_a_reason_gets_an_end_of_its_own() {
    let mut judge = messages::judge(PARIS);
    let (first, _) = whole(
        &mut judge,
        &message("msg_1", &[call_block(0, "f", &["{\"city\":\"paris\"}"])], Some("tool_use")),
    );
    judge.continue_with(0);
    let later = message("msg_2", &[text_block(0, &["Sunny."])], None)
        + &messages_event(&json!({"type": "message_stop"}));
    let (second, ending) = whole(&mut judge, &later);
    assert_eq!(ending, Ending::Complete);
    let events = data_of(&(first + &second));
    let [.., end, stop] = &events[..] else { panic!("{events:?}") };
    assert_eq!((&end["delta"]["stop_reason"], &stop["type"]), (&json!("end_turn"), &json!("message_stop")));
    assert!(end["usage"]["output_tokens"].is_u64(), "clients fail without: {end}");
}

#[test]
fn a_reply_is_asked_again_after_a_finish_or_an_end_alone_and_not_after_a_cut() {
    let asked_again = |protocol: &Protocol, stream: &str| {
        let (out, ending) = whole(&mut protocol.judge(PARIS), stream);
        assert!(!out.contains("paris"), "{}: {out}", protocol.name);
        matches!(ending, Ending::Reask { choice: 0, .. })
    };
    let without = |stream: &str, kinds: &[&str]| -> String {
        let events = stream.split_inclusive("\n\n");
        events.filter(|event| !kinds.iter().any(|kind| event.contains(kind))).collect()
    };
    for protocol in &PROTOCOLS {
        let stream = (protocol.stream)("f", &[r#"{\"city\":\"paris\"}"#]);
        let (finish, end, is_cut_without_both) = match protocol.name {
            // The end of the connection ends such a stream too.
            "chat" => ("\"finish_reason\":\"", "[DONE]", false),
            "messages" => ("event: message_delta", "event: message_stop", true),
            _ => ("event: response.completed", "event: response.completed", true),
        };
        assert!(asked_again(protocol, &stream), "{}", protocol.name);
        if finish != end {
            assert!(asked_again(protocol, &without(&stream, &[finish])), "{}: the end alone", protocol.name);
            assert!(asked_again(protocol, &without(&stream, &[end])), "{}: the finish alone", protocol.name);
        }
        let neither = without(&stream, &[finish, end]);
        assert_eq!(asked_again(protocol, &neither), !is_cut_without_both, "{}: neither", protocol.name);
    }
    // Of a cut stream only the call is blocked that is not complete: one after it is judged.
    let open = call_block(0, "f", &["{\"city\":\"par"]);
    let open = &open[..open.find("event: content_block_stop").unwrap()];
    let parts = [open.to_owned(), call_block(1, "f", &["{\"city\":\"berlin\"}"])];
    let (out, ending) =
        whole(&mut messages::judge(Blocks { tool: "", word: "par" }), &message("msg_1", &parts, None));
    assert_eq!(ending, Ending::Complete);
    assert!(out.contains("berlin") && !out.contains("\"id\":\"toolu_0\""), "{out}");
    assert!(out.contains("event: error") && !out.contains("message_stop"), "it stays cut: {out}");
    // A call that is cut is not corrected.
    let open = call_block(0, "f", &["{\"city\":\"rome"]);
    let open = &open[..open.find("event: content_block_stop").unwrap()];
    let cut = message("msg_1", &[open.to_owned()], None);
    assert_eq!(whole(&mut messages::judge(PARIS), &cut), (cut, Ending::Complete));
}

#[test]
fn a_reason_that_wants_calls_is_replaced_where_none_was_released() {
    let nothing = message("msg_1", &[text_block(0, &["Let me look."])], Some("tool_use"));
    let (out, ending) = whole(&mut messages::judge(PARIS), &nothing);
    assert_eq!((ending, out), (Ending::Complete, nothing.replace("\"tool_use\"", "\"end_turn\"")));
    // Where an earlier reply lost its calls.
    let mut judge = messages::judge(PARIS);
    whole(&mut judge, &message("msg_1", &[call_block(0, "f", &["{\"city\":\"paris\"}"])], Some("tool_use")));
    judge.continue_with(0);
    let (out, _) = whole(&mut judge, &text_reply("Sunny.").replace("\"end_turn\"", "\"tool_use\""));
    assert!(out.contains("\"end_turn\"") && !out.contains("\"tool_use\""), "{out}");
}

#[test]
fn a_call_with_two_names_goes_out_under_the_one_that_was_judged() {
    let call = call_block(0, "get_weather", &["{\"city\":\"berlin\"}"]);
    let twice = call.replacen("\"name\":\"get_weather\"", "\"name\":\"get_weather\",\"name\":\"nothing\"", 1);
    let stream = message("msg_1", &[twice, call_block(1, "get_weather", &["{}"])], Some("tool_use"));
    let (out, ending) = whole(&mut messages::judge(Blocks { tool: "get_weather", word: "" }), &stream);
    assert_eq!(ending, Ending::Complete);
    assert!(out.contains("\"name\":\"nothing\"") && !out.contains("get_weather"), "{out}");
    let (out, _) = whole(&mut messages::judge(Blocks { tool: "nothing", word: "" }), &stream);
    assert!(out.contains("\"id\":\"toolu_1\"") && !out.contains("\"id\":\"toolu_0\""), "{out}");
}

#[test]
fn calls_that_share_an_id_are_two_calls() {
    let both =
        [call_block(0, "f", &["{\"city\":\"paris\"}"]), call_block(1, "f", &["{\"city\":\"berlin\"}"])];
    let stream = message("msg_1", &both, Some("tool_use")).replace("toolu_1", "toolu_0");
    let mut judge = messages::judge(PARIS);
    let (out, ending) = whole(&mut judge, &stream);
    assert_eq!(ending, Ending::Complete);
    assert!(out.contains("berlin") && !out.contains("paris"), "{out}");
    let hidden = judge.shown()[0].hidden_exchange().unwrap();
    let hidden = String::from_utf8_lossy(&hidden);
    assert_eq!(hidden.matches("\"toolu_0\"").count(), 1, "the client has a call of that id: {hidden}");
}

#[test]
fn a_second_head_in_one_reply_begins_its_blocks_anew() {
    let first = message("msg_1", &[text_block(0, &["I look."])], None);
    let second = message("msg_2", &[call_block(0, "f", &["{\"city\":", "\"berlin\"}"])], Some("tool_use"));
    let (out, ending) = whole(&mut messages::judge(PARIS), &(first + &second));
    assert_eq!(ending, Ending::Complete);
    let one = message(
        "msg_1",
        &[text_block(0, &["I look."]), call_block(1, "f", &["{\"city\":", "\"berlin\"}"])],
        Some("tool_use"),
    );
    // The id of the call has the number that it had.
    assert_eq!(out, one.replace("toolu_1", "toolu_0"));
}

#[test]
fn nothing_of_a_reply_goes_out_after_a_finish_that_is_held_back() {
    let stream = message("msg_1", &[call_block(0, "f", &["{\"city\":\"paris\"}"])], Some("tool_use"));
    let note = messages_event(&json!({"type": "a_note"}));
    let at = stream.find("event: message_stop").unwrap();
    let stream = [&stream[..at], &note, &stream[at..], "data: [DONE]\n\n"].concat();
    let (out, ending) = whole(&mut messages::judge(PARIS), &stream);
    assert!(matches!(ending, Ending::Reask { .. }), "{ending:?}");
    let kinds: Vec<Value> = data_of(&out).iter().map(|event| event["type"].clone()).collect();
    assert_eq!(kinds, [json!("message_start")], "{out}");
    let (out, ending) =
        whole(&mut PROTOCOLS[0].judge(PARIS), &(PROTOCOLS[0].stream)("f", &[r#"{\"city\":\"paris\"}"#]));
    assert!(matches!(ending, Ending::Reask { .. }) && !out.contains("[DONE]"), "{out}");
}

#[test]
fn usage_comes_before_the_finish_in_a_frame_and_may_make_it_a_cut() {
    // The call is cut: it is blocked for what there is of it, and a reply that would be cut again is not asked for.
    let pieces = [r#"{\"city\":\"paris"#];
    for protocol in PROTOCOLS {
        for (limit, is_cut) in [(Some(7), true), (Some(8), false), (None, false)] {
            let stream = (protocol.stream)("f", &pieces);
            let usage = r#""usage":{"prompt_tokens":100,"completion_tokens":7},"choices":"#;
            let at = stream.rfind("\"choices\":").filter(|_| protocol.name == "chat");
            let stream =
                at.map_or(stream.clone(), |at| format!("{}{usage}{}", &stream[..at], &stream[at + 10..]));
            let options = Options { output_limit: limit, ..Options::default() };
            let mut judge = protocol.judge_in(Form::Streamed, PARIS, options);
            let (out, ending) = whole(&mut judge, &stream);
            assert_eq!(
                matches!(ending, Ending::Reask { .. }),
                !is_cut,
                "{} {limit:?}: {ending:?}",
                protocol.name
            );
            assert!(!out.contains("paris"), "{}: {out}", protocol.name);
        }
    }
}

#[test]
fn a_whole_reply_over_several_lines_becomes_events_of_one_line() {
    for protocol in &PROTOCOLS {
        let reply: Value = serde_json::from_str(&(protocol.whole)(&json!("{\"city\":\"berlin\"}"))).unwrap();
        let pretty = serde_json::to_string_pretty(&reply).unwrap().replace('\n', "\r\n");
        let mut judge = protocol.judge(PARIS);
        judge.begin(Form::Whole, 200);
        let (out, ending) = run(&mut judge, pretty.as_bytes().chunks(9));
        assert_eq!(ending, Ending::Complete, "{}", protocol.name);
        let is_line =
            |line: &str| line.is_empty() || line.starts_with("data: ") || line.starts_with("event: ");
        assert!(out.split('\n').all(is_line), "{}: {out}", protocol.name);
        assert!(
            data_of(&out).iter().any(|event| event.to_string().contains("berlin")),
            "{}: {out}",
            protocol.name
        );
    }
}

#[test]
fn a_text_of_toolreins_own_has_an_id_and_a_heartbeat_shifts_the_numbers_after_it() {
    let responses = &PROTOCOLS[1];
    let (mut at, mut stream) = (0, String::new());
    for line in (responses.text)("Hi").split_inclusive('\n') {
        let numbered =
            line.strip_prefix("data: {").map(|rest| format!("data: {{\"sequence_number\":{at},{rest}"));
        at += usize::from(numbered.is_some());
        stream += numbered.as_deref().unwrap_or(line);
    }
    let options = || Options { preface: Some("(No tools.)".to_owned()), ..Options::default() };
    let idle = |form, options| (responses.pipeline)(judging(None, false), form, options);
    let mut judge = idle(Form::Streamed, options());
    let mut out = Vec::new();
    let first = stream.find("\n\n").unwrap() + 2;
    judge.push(Bytes::from(stream[..first].to_owned()), 0, &mut out);
    out.push(judge.heartbeat());
    judge.push(Bytes::from(stream[first..].to_owned()), 0, &mut out);
    judge.finish(0, &mut out);
    let out = String::from_utf8(out.concat()).unwrap();
    let events = data_of(&out);
    let numbers: Vec<u64> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert!(numbers.windows(2).all(|two| two[0] < two[1]), "{numbers:?}: {out}");
    let ids = |output: &Value| -> Vec<String> {
        let ids = output.as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned());
        ids.collect()
    };
    let shown = ids(&events.last().unwrap()["response"]["output"]);
    assert!(shown.len() == 2 && !shown[0].is_empty() && shown[1] == "msg", "{shown:?}");
    let body = json!({"id": "resp_2", "object": "response", "status": "completed", "output": [
        {"type": "message", "id": "msg", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]}]});
    let (out, _) = whole(&mut idle(Form::Whole, options()), &body.to_string());
    let out: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(ids(&out["output"]), shown, "the same in a whole reply");
}

#[test]
fn arguments_that_are_no_object_go_back_to_the_model_as_one_in_every_protocol() {
    for protocol in PROTOCOLS {
        let stream = (protocol.stream)("f", &[r#"[\"paris"#, r#"\"]"#]);
        let (_, ending) = whole(&mut protocol.judge(PARIS), &stream);
        let Ending::Reask { hidden, .. } = ending else { panic!("{}: {ending:?}", protocol.name) };
        let hidden = String::from_utf8_lossy(&hidden).into_owned();
        let call = hidden.find("\"arguments\":").or(hidden.find("\"input\":")).unwrap();
        let text = &hidden[call..].split_once(':').unwrap().1;
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        let arguments = values.next().unwrap().unwrap();
        let arguments = match arguments.as_str() {
            Some(text) => serde_json::from_str(text).unwrap(),
            None => arguments,
        };
        assert!(arguments.is_object(), "{}: {hidden}", protocol.name);
    }
}

#[test]
fn a_chat_call_is_judged_by_its_arguments_when_the_next_begins_or_the_finish_comes() {
    let part = |index: usize, function: Value| {
        delta(&json!({"tool_calls": [{"index": index, "id": format!("c{index}"), "function": function}]}))
    };
    let first = role() + &part(0, json!({"name": "f", "arguments": "{\"city\":\"berlin\"}"}));
    let second = part(1, json!({"name": "f", "arguments": "{\"city\":\"bonn\"}"}));
    let mut judge = PROTOCOLS[0].judge(PARIS);
    let mut push = |text: &str| {
        let mut out = Vec::new();
        judge.push(Bytes::copy_from_slice(text.as_bytes()), 0, &mut out);
        String::from_utf8(out.concat()).unwrap()
    };
    assert_eq!(push(&first), role(), "closed JSON alone completes no call: more may come");
    assert_eq!(push(&second), first[role().len()..], "the next call ends the first");
    assert_eq!(push(&finish("tool_calls")), second + &finish("tool_calls"), "the finish ends the last");
}

#[test]
fn a_chat_name_is_complete_where_no_declared_name_goes_on_from_it() {
    // The request declares `f`, `fine`, `fix` and `deny` among others.
    for (name, is_complete) in [("deny", true), ("den", false), ("denyx", false)] {
        let mut judge = super::judge(false);
        let begin = delta(
            &json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": name, "arguments": ""}}]}),
        );
        let mut out = Vec::new();
        judge.push(Bytes::from(role() + &begin), 0, &mut out);
        assert_eq!(judge.choices()[0].calls()[0].decision.is_some(), is_complete, "{name}");
    }
    let mut judge = super::judge(false);
    let begin =
        delta(&json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}]}));
    let mut out = Vec::new();
    judge.push(Bytes::from(role() + &begin), 0, &mut out);
    assert!(judge.is_holding(), "it may be the beginning of `fine` or `fix`");
    let arguments = delta(&json!({"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}));
    judge.push(Bytes::from(arguments.clone()), 0, &mut out);
    assert_eq!(out.concat(), (role() + &begin + &arguments).as_bytes(), "its arguments have begun");
}

#[test]
fn a_call_in_a_message_beside_the_delta_is_judged_for_the_clients_that_read_it() {
    let call = |city: &str| json!([{"id": city, "function": {"name": "f", "arguments": format!("{{\"city\":\"{city}\"}}")}}]);
    let chunk = |city: &str| {
        super::event(
            &json!([{"index": 0, "delta": {"content": "Hi"}, "message": {"tool_calls": call(city)}, "finish_reason": null}]),
        )
    };
    let stream = |city: &str| role() + &chunk(city) + &finish("tool_calls") + DONE;
    let (out, ending) = whole(&mut PROTOCOLS[0].judge(PARIS), &stream("berlin"));
    assert_eq!((out, ending), (stream("berlin"), Ending::Complete));
    let (out, ending) = whole(&mut PROTOCOLS[0].judge(PARIS), &stream("paris"));
    assert!(matches!(ending, Ending::Reask { .. }) && !out.contains("paris"), "{ending:?}: {out}");
    assert!(out.contains("\"Hi\""), "the text beside it is left: {out}");
}
