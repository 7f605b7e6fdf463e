//! Cases of the made-up protocol: what is no law, and must work for the laws to mean anything.

use super::super::laws::{
    BY_ARGUMENTS, BY_NAME, Client, FINAL, HELD, STRICT, judging_by, judging_of, piped, run_all,
};
use super::*;

fn streamed() -> ReplyPipeline {
    piped(judging_of(BY_NAME), Form::Streamed, LIMITS, false)
}

#[test]
fn a_reply_in_the_other_form_becomes_one_in_the_clients() {
    let lines = [
        "{\"choice\":0,\"text\":\"t\"}",
        "{\"choice\":0,\"call\":1,\"name\":\"deny\",\"end\":true}",
        "{\"choice\":0,\"call\":2,\"name\":\"ok\",\"end\":true}",
        "{\"choice\":0,\"finish\":\"calls\"}",
        "{\"end\":true}",
    ];
    let (stream, body) = (lines.join("\n") + "\n", format!("[\n{}\n]", lines.join(",\n")));
    let mut judge = streamed();
    judge.begin(Form::Whole, OK);
    let (out, _) = run_all(&mut judge, body.as_bytes().chunks(7), &[]);
    assert_eq!(
        out,
        lines[..1].join("") + "\n" + &lines[2..4].join("\n") + "\n# toolrein rules=blocked\n{\"end\":true}\n"
    );
    let mut judge = piped(judging_of(BY_NAME), Form::Whole, LIMITS, false);
    judge.begin(Form::Streamed, OK);
    let (out, _) = run_all(&mut judge, stream.as_bytes().chunks(7), &[]);
    assert_eq!(out, format!("[{},{},{}]", lines[0], lines[2..4].join(","), lines[4]));
    let mut judge = streamed();
    judge.turn_to(Form::Whole);
    let (out, _) = run_all(&mut judge, [body.as_bytes()], &[]);
    assert!(out.starts_with('[') && !out.contains("deny"), "{out}");
    let mut judge = streamed();
    judge.begin(Form::Whole, OK);
    let (out, endings) = run_all(&mut judge, [b"{}".as_slice()], &[]);
    assert_eq!(
        (out.as_str(), endings),
        ("", vec![Ending::BrokenOff(Unjudged::NotJson)]),
        "no stream can be made of it"
    );
}

#[test]
fn an_error_at_the_head_waits_for_the_exchange_and_a_later_one_ends_the_reply() {
    let error = "{\"error\":{\"message\":\"busy\",\"code\":\"x\"}}\n";
    let mut judge = streamed();
    assert_eq!(run_all(&mut judge, [error.as_bytes()], &[]), (String::new(), vec![Ending::Refused]));
    assert_eq!(judge.refusal().unwrap().error.messages, ["busy"]);
    let mut out = Vec::new();
    judge.let_refusal_stand(0, &mut out);
    assert_eq!((judge.finish(0, &mut out), out.concat()), (Ending::Complete, error.into()));
    let text = "{\"choice\":0,\"text\":\"t\"}\n{\"choice\":0,\"call\":1,\"name\":\"deny\"}\n";
    let (out, endings) = run_all(&mut streamed(), [(text.to_owned() + error).as_bytes()], &[]);
    let remark = "# toolrein rules=blocked\n";
    let expected = format!("{{\"choice\":0,\"text\":\"t\"}}\n{error}{remark}");
    assert_eq!(
        (out, endings),
        (expected, vec![Ending::Complete]),
        "no finish is added, and nothing asked again"
    );
    for form in [Form::Whole, Form::Streamed] {
        let mut judge = piped(judging_of(BY_NAME), form, LIMITS, false);
        judge.begin(Form::Whole, 503);
        let (_, endings) = run_all(&mut judge, [b"busy".as_slice()], &[]);
        assert_eq!(
            (endings, judge.refusal().unwrap().error.messages.clone()),
            (vec![Ending::Refused], vec!["busy".to_owned()])
        );
        let raw = if form == Form::Whole { "busy" } else { "{\"error\":\"busy\"}\n" };
        assert_eq!(judge.refusal().unwrap().raw, raw);
    }
}

#[test]
fn an_escape_that_is_split_between_two_lines_is_one_character_for_the_policies() {
    let line = |piece: &str| format!("{{\"choice\":0,\"call\":1,\"arguments\":\"{piece}\"}}\n");
    let stream = "{\"choice\":0,\"call\":1,\"name\":\"ok\"}\n".to_owned()
        + &line("[\\\"\\ud83d")
        + &line("\\ude00\\\"]")
        + "{\"choice\":0,\"call\":1,\"end\":true}\n{\"choice\":0,\"finish\":\"calls\"}\n{\"end\":true}\n";
    let mut judge = piped(judging_of(BY_ARGUMENTS), Form::Streamed, LIMITS, false);
    assert_eq!(run_all(&mut judge, [stream.as_bytes()], &[]).0, stream);
    assert_eq!(judge.shown()[0].released()[0].arguments(), "[\"\u{1f600}\"]");
}

#[test]
fn the_line_before_the_answer_and_the_sentence_in_its_place_are_texts_of_the_choice() {
    for form in [Form::Streamed, Form::Whole] {
        let mut judge = piped(judging_of(BY_NAME), form, LIMITS, false);
        judge.set_options(Options { preface: Some("(No tools.)".to_owned()), ..Options::default() });
        let said = |text: &str| match form {
            Form::Streamed => {
                format!("{{\"choice\":0,\"text\":\"{text}\"}}\n{{\"choice\":0,\"finish\":\"stop\"}}\n")
            }
            Form::Whole => {
                format!("[{{\"choice\":0,\"text\":\"{text}\"}},{{\"choice\":0,\"finish\":\"stop\"}}]")
            }
        };
        let (out, _) = run_all(&mut judge, [said("Hi").as_bytes()], &[]);
        let client = if form == Form::Whole { Client::of_body(&out) } else { Client::of_stream(&out) };
        assert_eq!(
            (client.choices[&0].text.as_str(), client.choices[&0].finishes.len()),
            ("(No tools.)\n\nHi", 1)
        );
    }
    let deny = "{\"choice\":0,\"call\":1,\"name\":\"deny\",\"end\":true}\n{\"choice\":0,\"finish\":\"calls\"}\n{\"end\":true}\n";
    let nothing = "{\"choice\":0,\"text\":\"\"}\n".to_owned();
    let (out, endings) = run_all(&mut streamed(), [deny.as_bytes()], &[nothing]);
    let client = Client::of_stream(&out);
    assert_eq!((endings.len(), client.choices[&0].text.as_str()), (2, NO_ANSWER));
    assert_eq!(client.choices[&0].finishes, ["stop"], "the one that the upstream left out");
}

#[test]
fn a_question_to_the_person_takes_the_place_of_the_calls() {
    let mut judge =
        piped(judging_by(BY_NAME, "[confirm]\ntools = [\"pay\"]\n"), Form::Streamed, LIMITS, false);
    let stream = "{\"choice\":0,\"text\":\"I pay.\"}\n{\"choice\":0,\"call\":1,\"name\":\"pay\",\"arguments\":\"{}\",\"end\":true}\n\
        {\"choice\":0,\"text\":\"Done.\"}\n{\"choice\":0,\"finish\":\"calls\"}\n{\"end\":true}\n";
    let (out, endings) = run_all(&mut judge, [stream.as_bytes()], &[]);
    let client = Client::of_stream(&out);
    let choice = &client.choices[&0];
    assert!(choice.text.starts_with("I pay.Done.\n\nI need your approval"), "{out}");
    assert!(choice.text.contains("K7PQ3M") && choice.calls.is_empty(), "{out}");
    assert_eq!(
        (choice.finishes.clone(), client.ends, endings),
        (vec!["stop".to_owned()], 1, vec![Ending::Complete])
    );
    assert_eq!(judge.shown()[0].text(), choice.text);
}

#[test]
fn usage_that_only_toolrein_requested_is_left_out_and_known() {
    let mut judge = streamed();
    judge.set_options(Options { cut_usage: true, ..Options::default() });
    let stream = "{\"usage\":{\"total_tokens\":7}}\n".to_owned() + FINAL;
    assert_eq!(run_all(&mut judge, [stream.as_bytes()], &[]).0, FINAL);
    assert_eq!(judge.usage().unwrap()["total_tokens"], 7);
}

#[test]
fn a_line_that_another_reader_reads_differently_breaks_a_strict_reply_off() {
    let named_twice = "{\"choice\":0,\"call\":1,\"name\":\"ok\",\"name\":\"deny\"}\n";
    for (rules, expected) in [
        (STRICT, (String::new(), vec![Ending::BrokenOff(Unjudged::Ambiguous)])),
        (BY_NAME, (named_twice.to_owned() + FINAL, vec![Ending::Complete])),
    ] {
        let mut judge = piped(judging_of(rules), Form::Streamed, LIMITS, false);
        assert_eq!(run_all(&mut judge, [(named_twice.to_owned() + FINAL).as_bytes()], &[]), expected);
        assert_eq!(judge.unjudged(), [Unjudged::Ambiguous]);
    }
}

#[test]
fn what_comes_after_the_end_of_a_call_is_judged_with_it_and_the_call_is_written_once() {
    // The second call waits for the first, and a client that acts at its end would not see what comes after that.
    let line = |rest: &str| format!("{{\"choice\":0,{rest}}}\n");
    let stream = line("\"call\":1,\"name\":\"ok\"")
        + &line("\"call\":2,\"name\":\"look\",\"arguments\":\"[\\\"bad\",\"end\":true")
        + &line("\"call\":2,\"arguments\":\" sorry\\\"]\"")
        + &line("\"call\":1,\"end\":true")
        + &line("\"finish\":\"calls\"")
        + "{\"end\":true}\n";
    let (out, _) =
        run_all(&mut piped(judging_of(STRICT), Form::Streamed, LIMITS, false), [stream.as_bytes()], &[]);
    let call = &Client::of_stream(&out).choices[&0].calls[1];
    assert_eq!(call.at_ends, [("look".to_owned(), "[\"bad sorry\"]".to_owned())], "{out}");
}

#[test]
fn a_client_is_told_in_its_own_words_that_it_waits() {
    let mut judge = piped(judging_of(HELD), Form::Streamed, LIMITS, false);
    assert_eq!(judge.heartbeat(), "# toolrein waits\n");
    assert_eq!(judge.own_error_event("no", "x"), own_error_body("no", "x") + "\n");
    assert_eq!(judge.error_event(500, b"{\"error\":{\"message\":\"busy\"}}"), "{\"error\":\"busy\"}\n");
}

#[test]
fn a_stream_is_whole_with_its_end_or_with_a_finish_for_every_choice() {
    let (text, finish) = ("{\"choice\":0,\"text\":\"t\"}\n", "{\"choice\":0,\"finish\":\"stop\"}");
    for (stream, is_whole) in [
        (text.to_owned(), false),
        (format!("{text}{finish}"), true),
        (format!("{text}{finish}\n"), true),
        (format!("{text}{{\"end\":true}}"), true),
        (format!("{text}{{\"end\""), false),
        (format!("{text}{{\"choice\":1,\"text\":\"t\"}}\n{finish}"), false),
        (format!("{text}{finish}\n# waits"), true),
    ] {
        let (mut judge, mut out) = (streamed(), Vec::new());
        judge.push(stream.clone().into(), 0, &mut out);
        assert_eq!(judge.is_whole(), is_whole, "{stream}");
    }
}

#[test]
fn a_line_that_is_too_long_passes_in_parts_between_which_nothing_may_be_written() {
    let (mut judge, mut out) =
        (piped(judging_of(BY_NAME), Form::Streamed, Limits { event: 29, ..LIMITS }, false), Vec::new());
    for (chunk, at_boundary) in
        [("{\"choice\":0,", true), ("\"text\":\"0123456789", false), ("0123\"}", false), ("\n# one", true)]
    {
        judge.push(chunk.into(), 0, &mut out);
        assert_eq!(judge.at_boundary(), at_boundary, "{chunk}");
    }
    assert_eq!(out.concat(), b"{\"choice\":0,\"text\":\"01234567890123\"}\n");
    assert_eq!(
        (judge.finish(0, &mut out), judge.unjudged()),
        (Ending::Complete, &[Unjudged::EventTooLong][..])
    );
}

#[test]
fn a_call_that_is_complete_when_it_comes_is_not_held() {
    let stream = format!(
        "{{\"choice\":0,\"call\":1,\"name\":\"ok\",\"arguments\":\"{}\",\"end\":true}}\n{FINAL}",
        "x".repeat(200)
    );
    let mut judge = piped(judging_of(STRICT), Form::Streamed, Limits { held: 100, ..LIMITS }, false);
    assert_eq!(run_all(&mut judge, [stream.as_bytes()], &[]), (stream, vec![Ending::Complete]));
    assert_eq!(judge.unjudged(), []);
}

#[test]
fn a_call_that_gets_its_name_after_the_finish_does_not_go_on_unjudged() {
    let line = |rest: &str| format!("{{\"choice\":0,{rest}}}\n");
    let before = line("\"call\":1,\"arguments\":\"{\"") + &line("\"finish\":\"stop\"");
    let after = line("\"call\":1,\"name\":\"x\",\"arguments\":\"\\\"q\\\":\"")
        + &line("\"call\":1,\"arguments\":\"\\\"bad\\\"}\"");
    let mut judge = piped(judging_of(STRICT), Form::Streamed, LIMITS, false);
    let (out, endings) = run_all(&mut judge, [(before.clone() + &after).as_bytes()], &[]);
    assert_eq!((out, endings), (before, vec![Ending::BrokenOff(Unjudged::Ambiguous)]));
}

#[test]
fn a_last_line_without_its_end_gets_one_where_something_follows_it() {
    let line = |choice: u8, rest: &str| format!("{{\"choice\":{choice},{rest}}}\n");
    let pay = line(0, "\"call\":1,\"name\":\"pay\",\"arguments\":\"{}\",\"end\":true");
    for last in [line(1, "\"text\":\"t\""), line(0, "\"text\":\"t\""), line(0, "\"finish\":\"calls\"")] {
        let stream = pay.clone() + &line(0, "\"text\":\"u\"") + &last;
        let mut judge = piped(judging_of(HELD), Form::Streamed, LIMITS, false);
        let (out, endings) = run_all(&mut judge, [stream.trim_end().as_bytes()], &[]);
        let client = Client::of_stream(&out);
        let lines = out.lines().filter(|line| line.starts_with('{')).count();
        assert_eq!(
            (client.unreadable, lines, endings),
            (0, 3, vec![Ending::Waits, Ending::Complete]),
            "{out}"
        );
    }
    let text = line(0, "\"text\":\"t\"");
    let (out, _) = run_all(&mut streamed(), [text.trim_end().as_bytes()], &[]);
    assert_eq!(out, text.trim_end(), "nothing follows");
}

#[test]
fn a_placeholder_that_gets_a_name_after_its_end_is_a_call_and_nothing_is_asked_again() {
    let line = |rest: &str| format!("{{\"choice\":0,{rest}}}\n");
    let placeholder = line("\"call\":1,\"arguments\":\"{\",\"end\":true");
    let named = line("\"call\":1,\"name\":\"de\"");
    let stream = placeholder.clone() + &line("\"call\":2,\"name\":\"deny\"") + &named + FINAL;
    let (out, endings) = run_all(&mut streamed(), [stream.as_bytes()], &[]);
    assert!(out.starts_with(&(placeholder + &named)) && !out.contains("deny"), "{out}");
    assert_eq!(endings, [Ending::Complete]);
}
