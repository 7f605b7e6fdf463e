//! Redaction: a value that was found is in nothing that is sent later, except in the operator's own words, whatever
//! else happens to the conversation; and programs get the value back unchanged.

use super::generate::{MAIL, any_order, orderly};
use super::world::{Facts, adaptations_of_tools, lossy, messages_of, read, redacting};
use dialects::variant::{Placement, Variant};
use proptest::prelude::*;
use serde_json::Value;

proptest! {
    #![proptest_config(crate::laws::with_cases(120))]

    #[test]
    fn no_redacted_value_is_sent_to_the_model(talk in any_order(), flat in any::<bool>()) {
        let reading = read(&talk.body(), redacting(), &Facts::default());
        let [kept, _, dropped] = adaptations_of_tools(flat);
        for (placement, adapted) in [(Placement::System, kept), (Placement::Suffix, dropped)] {
            let sent = reading.write(&Variant::plain(placement).with(adapted));
            let list = [&messages_of(&sent)[..], b"]"].concat();
            let Ok(sent) = serde_json::from_slice::<Value>(&list) else {
                // serde refuses the odd texts.
                prop_assert!(lossy(&list).contains("\\u"), "{}", lossy(&list));
                continue;
            };
            let mut is_known = false;
            for message in sent.as_array().unwrap() {
                if message["role"] == "system" {
                    continue;
                }
                let told = message.to_string().contains(MAIL);
                let is_read = matches!(message["role"].as_str(), Some("tool" | "function" | "user"));
                // The model's own words from before the value was found: it already knows them.
                prop_assert!(!told || !is_read && !is_known, "{message}");
                is_known |= message.to_string().contains("[EMAIL_");
            }
        }
    }

    #[test]
    fn calls_that_hold_a_placeholder_get_the_value_back(talk in orderly()) {
        let mut reading = read(&talk.body(), redacting(), &Facts::default());
        let sent = lossy(&reading.write(&Variant::plain(Placement::System)));
        let Some(start) = sent.find("[EMAIL_") else { return Ok(()) };
        let end = start + sent[start..].find(']').unwrap();
        let arguments = serde_json::json!({"to": format!("<{}>", &sent[start..=end])}).to_string();
        let ruling = reading.judge.rule(0, "anything", Some(&arguments), 1);
        if let Some((_, rewritten)) = ruling.rewritten {
            let rewritten: Value = serde_json::from_str(&rewritten).unwrap();
            prop_assert_eq!(&rewritten["to"], &format!("<{MAIL}>"));
        } else {
            prop_assert!(false, "{} {:?}", arguments, ruling);
        }
    }
}
