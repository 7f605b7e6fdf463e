//! The demonstration, from its scenes to its line for the shell.

use super::super::{Addresses, curl_line, run};
use super::*;

#[tokio::test]
async fn the_demonstration_shows_no_difference_where_there_is_no_proxy() {
    let served = Served::start().await;
    let addresses = Addresses { direct: served.address, proxied: served.address };
    let mut out = Vec::new();
    run(addresses, &served.upstream, &mut out).await.unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.iter().all(|line| line.chars().count() <= 100), "{text}");
    // Scene and way are in the first 34 columns, the measurements after them.
    let measured: Vec<&str> = lines[2..10].iter().map(|line| &line[34..]).collect();
    for pair in measured.chunks(2) {
        assert_eq!(pair[0], pair[1], "{text}");
    }
    assert!(measured[0].ends_with("gave up after 25 calls"), "{text}");
    assert!(measured[2].ends_with("gave up after 25 calls"), "{text}");
    assert!(measured[4].ends_with("answered"), "{text}");
    assert!(measured[6].ends_with("refused (HTTP 400)"), "{text}");
    assert_eq!(lines[11], "No difference: 1 of 4 scenes answered either way.");
    let outcomes = ["gave up after 25 calls", "gave up after 25 calls", "answered", "refused (HTTP 400)"];
    for (at, api) in [(13, "Responses"), (20, "Messages")] {
        let heading = format!("The same agent over the {api} API, directly -> through toolrein:");
        assert_eq!(lines[at], heading, "{text}");
        for (line, outcome) in lines[at + 2..].iter().zip(outcomes) {
            let (outcomes, tokens) = line[18..].split_once("; tokens ").unwrap();
            assert_eq!(outcomes, format!("{outcome} -> {outcome}"));
            let (before, after) = tokens.split_once(" -> ").unwrap();
            assert_eq!(before, after, "{text}");
        }
    }
    assert_eq!(lines.len(), 26, "{text}");
    let stats = served.upstream.stats();
    assert_eq!(
        (stats["demo-runaway"].requests, stats["demo-chat"].requests, stats["demo-no-tools"].requests),
        (150, 12, 6)
    );
    assert!(stats["demo-chat"].request_bytes > 2 * 200 * 1024, "{stats:?}");
}

#[tokio::test]
async fn the_demonstration_survives_a_proxy_that_hangs_up() {
    let served = Served::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone = listener.local_addr().unwrap();
    let hangs_up = async move { while listener.accept().await.is_ok() {} };
    let proxy = tokio::spawn(hangs_up);
    let mut out = Vec::new();
    run(Addresses { direct: served.address, proxied: gone }, &served.upstream, &mut out).await.unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.lines().filter(|line| line.ends_with("no connection")).count(), 4, "{text}");
    assert_eq!(text.lines().filter(|line| line.contains(" -> no connection; ")).count(), 8, "{text}");
    proxy.abort();
}

#[tokio::test]
async fn the_printed_curl_command_names_the_proxy_and_its_body_is_accepted() {
    let served = Served::start().await;
    let line = curl_line("127.0.0.1:4242".parse().unwrap());
    assert!(line.starts_with("curl -N http://127.0.0.1:4242/v1/chat/completions "), "{line}");
    let body: Value = serde_json::from_str(line.split('\'').rev().nth(1).unwrap()).unwrap();
    served.stream(body).await;
}
