//! `min_conversation`: a tool waits until there was a conversation.

use crate::support::program::Toolrein;
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Talk, in_both_forms, search, text};

fn has_notice(request: &Recorded) -> bool {
    let body = request.json();
    let last = body["messages"].as_array().unwrap().last().unwrap().clone();
    last["content"].as_str().is_some_and(|text| text.contains("CONVERSATION_TOO_SHORT"))
}

#[test]
fn a_hasty_call_is_blocked_and_made_after_the_user_has_answered() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| {
            if has_notice(request) { text("What do you think?", request) } else { search(nth, request) }
        });
        let settings =
            "[policy.min_conversation]\ntools = { search = { min_exchanges = 1, min_user_words = 5 } }\n";
        let program = Toolrein::before(&upstream, settings);
        let mut talk = Talk::new(form);
        let first = talk.ask(&program);
        first.assert_coherent(form);
        assert_eq!((first.text.as_str(), first.calls.len()), ("What do you think?", 0));
        talk.add(&first);
        talk.say("A cat.");
        let second = talk.ask(&program);
        second.assert_coherent(form);
        assert_eq!(second.calls.len(), 1);
        let shown = upstream.request(1).json()["messages"][2]["content"].as_str().unwrap().to_owned();
        assert!(
            shown.contains("0 of 1 exchange with the user, 3 of 5 words of the user")
                && shown.contains("\"min_exchanges\":1"),
            "{shown}"
        );
        upstream.assert_clean();
    });
}
