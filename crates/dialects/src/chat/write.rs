//! The request writer: the bytes of a request in one variant (tools kept or dropped, history flattened, hidden
//! exchanges appended, a final answer asked for). A pure function of the request, the plan and the variant.

use crate::chat::edit::{
    append, apply_plan, ask_for_answer, ask_for_one, ask_for_one_call, ask_for_usage, declare, force_call,
    hide, restore, without_choice, without_tools,
};
use crate::chat::flatten::flatten;
use crate::chat::repair::repaired;
use crate::edit::{annotate_tools, ask_whole, plan_without_tools};
use crate::variant::{PlannedRequest, Tools, Variant};
use bytes::Bytes;
use model::adaptation::Adaptation;
use wire::splice::{Rope, Splices};

/// The bytes of the request in this variant; slices of the original wherever nothing changes.
pub fn write(planned: &PlannedRequest<'_>, variant: &Variant) -> Rope {
    let (mut splices, mut is_closed) = (Splices::default(), false);
    match variant.tools() {
        Tools::Kept | Tools::WithoutChoice => {
            apply_plan(planned, planned.plan, variant.placement, &mut splices);
            let has_rounds = variant.asking.as_ref().is_some_and(|asking| !asking.rounds.is_empty());
            let restored = !planned.restored.is_empty() || has_rounds;
            is_closed = hide(planned.request, planned.body, &planned.plan.hidden, restored, &mut splices);
            is_closed &= !variant.has(Adaptation::HiddenTools);
            annotate_tools(planned.request, planned.plan, &mut splices);
            if !variant.has(Adaptation::OwnTools) {
                declare(planned.request, planned.body, &planned.plan.declared, &mut splices);
            }
            if !variant.has(Adaptation::ParallelMember) {
                ask_for_one_call(planned.request, planned.body, planned.plan, &mut splices);
            }
            if variant.tools() == Tools::WithoutChoice {
                without_choice(planned.request, planned.body, &mut splices);
            }
        }
        Tools::Dropped => {
            apply_plan(planned, &plan_without_tools(planned), variant.placement, &mut splices);
            without_tools(planned.request, planned.body, &mut splices);
        }
    }
    restore(planned, &mut splices);
    if variant.has(Adaptation::Streaming) {
        ask_whole(planned.request, planned.body, &mut splices);
    } else if variant.ask_usage {
        ask_for_usage(planned.request, planned.body, &mut splices);
    }
    if let Some(asking) = &variant.asking {
        for round in &asking.rounds {
            append(planned.request, round, &mut splices);
        }
        // One choice is asked again; the first request is for all of them.
        if !asking.rounds.is_empty() {
            ask_for_one(planned.request, planned.body, &mut splices);
        }
        is_closed |= asking.land && variant.forced_answer().is_none();
    }
    match variant.forced_answer() {
        _ if variant.tools() != Tools::Kept => {}
        Some(answer) => force_call(planned.request, planned.body, answer, &mut splices),
        None if is_closed => ask_for_answer(planned.request, planned.body, &mut splices),
        None => {}
    }
    let mut rope = splices.apply(planned.body);
    if !variant.repairs().is_empty() {
        rope = repaired(&rope.join(), variant.repairs()).unwrap_or(rope);
    }
    if variant.has(Adaptation::Flattened) { flattened(&rope.join()).unwrap_or(rope) } else { rope }
}

fn flattened(body: &Bytes) -> Option<Rope> {
    let request = crate::chat::parse(body).ok()?;
    let mut splices = Splices::default();
    flatten(&request, body, &mut splices);
    Some(splices.apply(body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variant::{Asking, Placement};
    use model::plan::{Change, Edit, Plan, ToolsEdit};
    use model::source::ItemId;

    fn written(body: &str, variant: &Variant, hidden: &[&str], restored: &[(usize, Bytes)]) -> String {
        written_as(body, variant, (Plan::default(), hidden), restored)
    }

    fn written_as(
        body: &str,
        variant: &Variant,
        (mut plan, hidden): (Plan, &[&str]),
        restored: &[(usize, Bytes)],
    ) -> String {
        plan.hidden = hidden.iter().map(|name| ("allow", (*name).to_owned())).collect();
        let body = Bytes::copy_from_slice(body.as_bytes());
        let request = crate::chat::parse(&body).unwrap();
        let planned = PlannedRequest { restored, ..PlannedRequest::new(&body, &request, &plan) };
        let out = write(&planned, variant).join();
        crate::chat::parse(&out).unwrap();
        String::from_utf8(out.to_vec()).unwrap()
    }

    fn plain() -> Variant {
        Variant::plain(Placement::System)
    }

    const TOOLS: &str = r#"{"messages":[{"role":"user","content":"q"}],"tools":[{}],"tool_choice":"auto","n":2,"parallel_tool_calls":true}"#;

    #[test]
    fn writing_without_changes_keeps_every_byte() {
        assert_eq!(written(TOOLS, &plain(), &[], &[]), TOOLS);
    }

    #[test]
    fn notices_at_the_same_message_are_joined_even_if_planned_apart() {
        let notice = |index, text: &str| Edit {
            item: ItemId::of_client(index),
            decided: index,
            policy: "p",
            change: Change::Notice { text: text.to_owned(), word: "notice" },
        };
        let mut plan = Plan::default();
        plan.edits = vec![notice(0, "one"), notice(1, "between"), notice(0, "two")];
        for (content, expected) in [
            ("", r#""content":"one\n\ntwo","#),
            (r#""content":null,"#, r#""content":"one\n\ntwo","#),
            (r#""content":"","#, r#""content":"one\n\ntwo","#),
            (r#""content":"q","#, r#""content":"q\n\none\n\ntwo","#),
            (r#""content":[],"#, r#""content":[{"type":"text","text":"one\n\ntwo"}],"#),
        ] {
            let body =
                format!(r#"{{"messages":[{{{content}"role":"user"}},{{"role":"user","content":"u"}}]}}"#);
            let out = written_as(&body, &Variant::plain(Placement::Suffix), (plan.clone(), &[]), &[]);
            let last = r#""role":"user"},{"role":"user","content":"u\n\nbetween"}]}"#;
            assert_eq!(out, format!(r#"{{"messages":[{{{expected}{last}"#));
        }
        let out = written_as(TOOLS, &Variant::plain(Placement::Leading), (plan, &[]), &[]);
        assert!(
            out.starts_with(r#"{"messages":[{"role":"system","content":"one\n\ntwo"},"#),
            "the newest: {out}"
        );
    }

    #[test]
    fn parallel_tool_calls_is_set_to_false_only_if_function_tools_remain() {
        let tool = |name: &str| format!(r#"{{"type":"function","function":{{"name":"{name}"}}}}"#);
        let body = |members: &str| format!(r#"{{"messages":[{{"role":"user","content":"q"}}]{members}}}"#);
        let two = format!(r#","tools":[{},{}]"#, tool("a"), tool("b"));
        for (members, hidden, asked) in [
            (two.as_str(), &[][..], true),
            (&two, &["a"], true),
            (&two, &["a", "b"], false),
            (r#","tools":[]"#, &[], false),
            (r#","functions":[{"name":"a"}]"#, &[], false),
            ("", &[], false),
        ] {
            let mut plan = Plan::default();
            plan.edit_tools(ToolsEdit::OneCallAtATime);
            let out = written_as(&body(members), &plain(), (plan, hidden), &[]);
            assert_eq!(out.contains(r#""parallel_tool_calls":false"#), asked, "{members} without {hidden:?}");
        }
    }

    #[test]
    fn dropping_the_tools_removes_all_tool_members_and_informs_the_model() {
        let variant = plain().with(Adaptation::Tools);
        let out = written(TOOLS, &variant, &[], &[]);
        assert!(out.starts_with(
            r#"{"messages":[{"role":"user","content":"q"},{"role":"system","content":"[toolrein] No tools"#
        ));
        assert!(out.ends_with(r#"],"n":2}"#), "{out}");
    }

    #[test]
    fn the_notice_about_missing_tools_keeps_its_place_as_the_conversation_grows() {
        let call = r#"{"role":"assistant","tool_calls":[{"id":"a"}]},{"role":"tool","tool_call_id":"a"}"#;
        for (shorter, more) in [
            (format!(r#"{{"role":"system"}},{call}"#), format!(",{call}")),
            (format!(r#"{{"role":"system"}},{call}"#), r#",{"role":"user","content":"q"}"#.to_owned()),
            (call.to_owned(), format!(",{call}")),
            (r#"{"role":"system"},{"role":"user","content":"q"}"#.to_owned(), format!(",{call}")),
        ] {
            let variant = plain().with(Adaptation::Tools);
            let sent =
                |messages: &str| written(&format!(r#"{{"messages":[{messages}]}}"#), &variant, &[], &[]);
            let longer = sent(&format!("{shorter}{more}"));
            let shorter = sent(&shorter);
            assert!(longer.starts_with(shorter.strip_suffix("]}").unwrap()), "{shorter} {longer}");
        }
        assert_eq!(
            written(r#"{"messages":[{}]}"#, &plain().with(Adaptation::Tools), &[], &[]),
            r#"{"messages":[{}]}"#
        );
    }

    #[test]
    fn dropping_the_tool_choice_keeps_the_tools() {
        let variant = plain().with(Adaptation::ToolChoice);
        assert_eq!(written(TOOLS, &variant, &[], &[]), TOOLS.replace(r#","tool_choice":"auto""#, ""));
    }

    #[test]
    fn hidden_tools_are_removed_and_an_empty_tool_list_is_dropped() {
        let tools = r#"{"messages":[{"role":"user","content":"q"}],"tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"b"}}],"tool_choice":"auto"}"#;
        let out = written(tools, &plain(), &["a"], &[]);
        assert!(
            out.ends_with(r#""tools":[{"type":"function","function":{"name":"b"}}],"tool_choice":"auto"}"#),
            "{out}"
        );
        assert_eq!(
            written(tools, &plain(), &["b", "a"], &[]),
            r#"{"messages":[{"role":"user","content":"q"}]}"#
        );
    }

    #[test]
    fn hidden_tools_that_the_history_calls_stay_declared_and_none_may_be_called() {
        let tool = |name: &str| format!(r#"{{"type":"function","function":{{"name":"{name}"}}}}"#);
        let call = r#"{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"a","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"r"}"#;
        let body = |tools: &[&str], choice: &str| {
            let tools: Vec<String> = tools.iter().map(|name| tool(name)).collect();
            format!(r#"{{"messages":[{call}],"tools":[{}]{choice}}}"#, tools.join(","))
        };
        let none = r#","tool_choice":"none""#;
        for (tools, hidden, left) in [
            (&["a", "b"][..], &["a", "b"][..], body(&["a"], none)),
            (&["b", "c"], &["c", "b"], body(&["b", "c"], none)),
            (&["a", "b"], &["a"], body(&["b"], "")),
            (&["a", "b"], &["b"], body(&["a"], "")),
        ] {
            assert_eq!(written(&body(tools, ""), &plain(), hidden, &[]), left);
        }
        let auto = body(&["a"], r#","tool_choice":"auto""#);
        assert_eq!(written(&auto, &plain(), &["a"], &[]), body(&["a"], none));
        // The member is written only once, also where a final answer is asked for.
        let asking = Asking { rounds: vec![], land: true };
        let landing = Variant { asking: Some(asking), ..plain() };
        assert_eq!(written(&auto, &landing, &["a"], &[]), body(&["a"], none));
        let unchosen = plain().with(Adaptation::ToolChoice);
        assert_eq!(written(&auto, &unchosen, &["a"], &[]), body(&["a"], ""));
        // The messages that are put back contain calls too.
        let talk = format!(r#"{{"messages":[{{"role":"user","content":"q"}}],"tools":[{}]}}"#, tool("a"));
        let put_back = [(0, Bytes::from_static(b"{\"role\":\"assistant\"}"))];
        assert!(
            written(&talk, &plain(), &["a"], &put_back)
                .ends_with(&format!(r#""tools":[{}]{none}}}"#, tool("a")))
        );
    }

    #[test]
    fn a_re_ask_appends_the_hidden_exchanges_and_requests_one_choice() {
        let asking =
            Asking { rounds: vec!["{\"role\":\"a\"}".into(), "{\"role\":\"b\"}".into()], land: false };
        let out = written(TOOLS, &Variant { asking: Some(asking), ..plain() }, &[], &[]);
        assert!(out.contains(r#""content":"q"},{"role":"a"},{"role":"b"}],"tools""#), "{out}");
        assert!(out.contains(r#""tool_choice":"auto","n":1"#), "{out}");
    }

    #[test]
    fn a_final_answer_request_forbids_calls_and_keeps_the_tools_declared() {
        let asking = Asking { rounds: vec![], land: true };
        let out = written(TOOLS, &Variant { asking: Some(asking.clone()), ..plain() }, &[], &[]);
        assert!(out.contains(r#""tools":[{}],"tool_choice":"none""#), "{out}");
        let bare = r#"{"messages":[{"role":"user","content":"q"}],"tools":[{}]}"#;
        let out = written(bare, &Variant { asking: Some(asking.clone()), ..plain() }, &[], &[]);
        assert!(out.ends_with(r#""tools":[{}],"tool_choice":"none"}"#), "{out}");
        let dropped = Variant { asking: Some(asking), ..plain() }.with(Adaptation::Tools);
        assert!(!written(bare, &dropped, &[], &[]).contains("tool_choice"));
    }

    #[test]
    fn restored_hidden_exchanges_are_inserted_before_their_message() {
        let body = r#"{"messages":[{"role":"user","content":"q"}, {"role":"assistant","content":"a"}]}"#;
        let restored = [(1, Bytes::from_static(b"{\"role\":\"x\"}"))];
        assert_eq!(
            written(body, &plain(), &[], &restored),
            r#"{"messages":[{"role":"user","content":"q"}, {"role":"x"},{"role":"assistant","content":"a"}]}"#
        );
    }

    #[test]
    fn flattening_also_applies_to_restored_hidden_exchanges() {
        let body = r#"{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]}"#;
        let round = r#"{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"r"}"#;
        let restored = [(1, Bytes::from_static(round.as_bytes()))];
        let out = written(body, &plain().with(Adaptation::Flattened), &[], &restored);
        assert!(!out.contains("tool_calls") && !out.contains(r#""tool""#), "{out}");
        assert!(out.contains("[called f with {}]") && out.contains("[result of f]"), "{out}");
    }

    #[test]
    fn include_usage_is_added_to_existing_stream_options() {
        for (options, expected) in [
            ("", r#","stream_options":{"include_usage":true}"#),
            (r#","stream_options":{}"#, r#","stream_options":{"include_usage":true}"#),
            (r#","stream_options":null"#, r#","stream_options":{"include_usage":true}"#),
            (r#","stream_options":{"include_usage":false}"#, r#","stream_options":{"include_usage":true}"#),
            (r#","stream_options":{"x":1}"#, r#","stream_options":{"include_usage":true,"x":1}"#),
        ] {
            let with = |options: &str| format!(r#"{{"messages":[]{options}}}"#);
            assert_eq!(
                written(&with(options), &Variant { ask_usage: true, ..plain() }, &[], &[]),
                with(expected)
            );
        }
    }
}
