//! Tests.

use super::*;

#[test]
fn an_input_member_in_another_case_is_not_read_as_input() {
    let read = |body: &str| parse(body.as_bytes()).map(|request| request.messages.len());
    assert_eq!(read(r#"{"previous_response_id":"resp_1"}"#), Ok(0));
    assert_eq!(read(r#"{"previous_response_id":"resp_1","inPut":"q"}"#), Err(Fault::NoMessages));
    assert_eq!(read(r#"{"input":"q","Input":"p"}"#), Err(Fault::Duplicate));
}

fn plain(request: &Request) -> String {
    format!("{:?}", Request { checkpoint: None, known_tools: None, ..request.clone() })
}

/// A stateless conversation: a system item, then turns with reasoning, two calls, their outputs and a text.
fn conversation(turns: usize, rest: &str) -> Vec<u8> {
    let turn = |n: usize| {
        format!(
            r#"{{"role":"user","content":"q{n}\n"}}, {{"type":"reasoning","id":"rs_{n}","summary":[]}},
            {{"type":"function_call","id":"fc_{n}","call_id":"a{n}","name":"f","arguments":"{{}}"}},
            {{"type":"function_call","id":"fd_{n}","call_id":"b{n}","name":"g","arguments":"{{\"x\":1}}"}},
            {{"type":"function_call_output","call_id":"a{n}","output":"r"}},
            {{"type":"function_call_output","call_id":"b{n}","output":[{{"type":"input_text","text":"é"}}]}},
            {{"type":"message","role":"assistant","id":"msg_{n}","content":[{{"type":"output_text","text":"done"}}]}}"#
        )
    };
    let turns: Vec<String> = (0..turns).map(turn).collect();
    format!(
        r#" {{"model":"m","store":false,"input" : [ {{"role":"system","content":"s"}},{}{rest}],
        "tools":[{{"type":"function","name":"f"}}],"tool_choice":{{"type":"function","name":"f"}},"stream":true}} "#,
        turns.join(",")
    )
    .into()
}

#[test]
fn resuming_the_parser_at_any_checkpoint_gives_the_same_request() {
    let body = conversation(2, "");
    let whole = parse(&body).unwrap();
    let mut resumed = 0;
    for keep in 0..=body.len() {
        let first = resume(&body, None, |_| keep).unwrap();
        assert_eq!(plain(&first), plain(&whole));
        let Some(known) = first.checkpoint else { continue };
        assert!(known.bytes() <= keep && known.bytes() > 0);
        for more in [conversation(2, ""), conversation(3, "")] {
            if more[..known.bytes()] == body[..known.bytes()] {
                let again = resume(&more, Some(&known), |_| more.len()).unwrap();
                assert_eq!(plain(&again), plain(&parse(&more).unwrap()), "{keep}");
                resumed += 1;
            }
        }
    }
    assert!(resumed > 1_000, "{resumed}");
}

#[test]
fn a_resumed_parser_adds_new_model_items_to_the_message_before_the_checkpoint() {
    let of_model = r#",{"type":"function_call","id":"fc_9","call_id":"c9","name":"f","arguments":"{}"}"#;
    let body = conversation(1, "");
    let known = resume(&body, None, |_| body.len()).unwrap().checkpoint.unwrap();
    let longer = conversation(1, of_model);
    assert_eq!(plain(&resume(&longer, Some(&known), |_| 0).unwrap()), plain(&parse(&longer).unwrap()));
}

#[test]
fn no_checkpoint_is_made_after_items_that_add_more_than_messages() {
    for item in [
        r#"{"type":"item_reference","id":"msg_1"}"#,
        r#"{"type":"compaction","id":"cmp_1","encrypted_content":"x"}"#,
        r#"{"type":"tool_search_output","call_id":"c","tools":[{"type":"function","name":"h"}]}"#,
    ] {
        let body = conversation(1, &format!(",{item},{{\"role\":\"user\",\"content\":\"q\"}}"));
        let request = resume(&body, None, |_| body.len()).unwrap();
        assert!(request.checkpoint.is_none(), "{item}");
        // A checkpoint that is known from an earlier request is still valid.
        let before = conversation(1, "");
        let known = resume(&before, None, |_| before.len()).unwrap().checkpoint.unwrap();
        let again = resume(&body, Some(&known), |_| body.len()).unwrap();
        assert_eq!(plain(&again), plain(&request), "{item}");
        assert_eq!(again.checkpoint.unwrap().bytes(), known.bytes());
    }
}

#[test]
fn a_resumed_parser_finds_faults_after_the_checkpoint() {
    let body = |rest: &str| format!(r#"{{"model":"m","input":[{{"role":"user"}}{rest}"#).into_bytes();
    let good = body("]}");
    let known = resume(&good, None, |_| good.len()).unwrap().checkpoint.unwrap();
    for (rest, fault) in [
        (r#"],"model":"other"}"#, Fault::Duplicate),
        (r#"],"Input":[]}"#, Fault::Duplicate),
        (r#",1]}"#, Fault::Type),
        (r#",]}"#, Fault::Syntax),
        (r#"]}}"#, Fault::Syntax),
    ] {
        let body = body(rest);
        assert_eq!(resume(&body, Some(&known), |_| 0).unwrap_err(), fault, "{rest}");
        assert_eq!(parse(&body).unwrap_err(), fault, "{rest}");
    }
}

#[test]
fn compactions_programs_and_items_of_mcp_are_the_upstreams_own_record_and_reasoning_is_not() {
    let sealed = |kind: &str| {
        let input =
            format!(r#"{{"input":[{{"role":"user","content":"q"}},{{"type":"{kind}","id":"x_1"}}]}}"#);
        parse(input.as_bytes()).unwrap().messages.iter().any(|message| message.seals)
    };
    for kind in ["compaction", "program", "program_output", "mcp_list_tools", "mcp_call"] {
        assert!(sealed(kind), "{kind}");
    }
    for kind in ["reasoning", "web_search_call"] {
        assert!(!sealed(kind), "{kind}");
    }
}
