//! What a trace does not contain: texts, arguments, results, credentials.

use crate::collector::{Collector, program};
use crate::requests::{Endpoint, in_all_forms};
use crate::support::client::get;
use crate::support::program::Toolrein;
use crate::support::scripted::Scripted;

fn holds(bytes: &[u8], needle: &str) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle.as_bytes())
}

#[test]
fn nothing_of_what_was_said_and_no_credential_is_in_a_trace() {
    in_all_forms(|endpoint, stream| {
        let upstream = Scripted::start(move |_, request| {
            endpoint.says(request, "s3cr3t text", &[("call_1", "{\"a\":\"s3cr3t\"}")])
        });
        let collector = Collector::start();
        let toolrein = program(&upstream, &collector, "[policy.budget]\n");
        endpoint.ask(&toolrein, stream, &[("x-extra", "s3cr3t")]);
        assert_eq!(collector.trace(0).calls().len(), 1);
        for export in collector.exports() {
            // The key is the test client's.
            for secret in ["s3cr3t", "sk-test"] {
                assert!(!holds(&export.body, secret), "{}", String::from_utf8_lossy(&export.body));
            }
        }
    });
}

#[test]
fn the_collectors_headers_come_from_the_environment_and_are_shown_nowhere() {
    let upstream = Scripted::start(|_, request| Endpoint::Chat.says(request, "Hello.", &[]));
    let collector = Collector::start();
    let headers = "headers = { authorization = \"OTLP_AUTH\", x-tenant = \"OTLP_TENANT\" }\n";
    let variables = [("OTLP_AUTH", "Bearer s3cr3t"), ("OTLP_TENANT", "blue")];
    let settings = format!("log.level = \"trace\"\n{}", collector.settings(headers));
    let toolrein = Toolrein::before_in(&upstream, &settings, &variables);
    Endpoint::Chat.ask(&toolrein, false, &[]);
    collector.trace(0);
    let export = collector.exports().remove(0);
    assert_eq!(
        (export.header("authorization"), export.header("x-tenant")),
        (Some("Bearer s3cr3t"), Some("blue"))
    );
    let config = get(&format!("{}/config", toolrein.admin_url())).text();
    assert!(config.contains("OTLP_AUTH") && !config.contains("s3cr3t"), "{config}");
    let logs = toolrein.stop().join("\n");
    assert!(!logs.contains("s3cr3t"), "{logs}");
}
