//! `taint`: where nothing was flagged, nothing happens.

use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::Scripted;
use crate::support::talk::{Talk, in_both_forms};

#[test]
fn after_unflagged_results_every_tool_goes_on_and_no_byte_changes() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| {
            Reply::speech(request, &Speech::calls(&[(&format!("call_{nth}"), "fetch", "{}")]))
        });
        let program = Toolrein::before(&upstream, "[policy.taint]\ntools = [\"fetch\"]\n");
        let mut talk = Talk::new(form);
        for round in 0..2 {
            let said = talk.ask(&program);
            said.assert_coherent(form);
            assert_eq!(said.calls.len(), 1);
            assert_eq!(upstream.request(round).body, talk.body().to_string().into_bytes());
            talk.add(&said);
        }
        upstream.assert_clean();
    });
}
