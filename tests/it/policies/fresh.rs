//! `fresh`: a call with a stale reference is fixed by the model.

use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::Scripted;
use crate::support::talk::{Talk, in_both_forms, text};
use serde_json::{Value, json};

#[test]
fn a_call_with_an_outdated_value_is_blocked_and_the_corrected_one_reaches_the_client() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => Reply::speech(request, &Speech::calls(&[("a", "fetch", "{}")])),
            1 => Reply::speech(request, &Speech::calls(&[("b", "search", "{\"card_id\":\"c1\"}")])),
            2 => Reply::speech(request, &Speech::calls(&[("c", "search", "{\"card_id\":\"c2\"}")])),
            _ => text("Done.", request),
        });
        let settings = "[policy.fresh]\nrules = [{ tool = \"search\", argument = \"card_id\", from = \"fetch\", path = \"card.id\" }]\n";
        let program = Toolrein::before(&upstream, settings);
        let mut talk = Talk::new(form);
        let first = talk.ask(&program);
        assert_eq!(first.calls[0].0, "a", "the source itself is free");
        talk.add(&first);
        talk.messages.last_mut().unwrap()["content"] = json!("{\"card\": {\"id\": \"c2\"}}");
        let second = talk.ask(&program);
        second.assert_coherent(form);
        assert_eq!(second.calls, [("c".into(), "search".into(), "{\"card_id\":\"c2\"}".into())]);
        assert!(!second.response.text().contains("c1"), "{}", second.response.text());
        let messages = upstream.request(2).json()["messages"].clone();
        let shown = messages.as_array().unwrap().last().unwrap()["content"].clone();
        let envelope: Value = serde_json::from_str(shown.as_str().unwrap()).unwrap();
        assert_eq!(envelope["error"]["type"], "STALE_REFERENCE");
        let message = envelope["error"]["message"].as_str().unwrap();
        assert!(message.contains("card_id is \"c1\", but fetch last gave \"c2\""), "{message}");
        upstream.assert_clean();
    });
}
