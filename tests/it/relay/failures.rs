//! Upstreams that cannot be reached or do not answer: the errors that the client gets.

use crate::relay::support::{ask, own_error, settings, stage, stage_with, start};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use toolrein::proxy::upstream::UpstreamSettings;

const GET: &str = "GET /v1/models HTTP/1.1\r\nHost: us\r\n\r\n";

#[tokio::test]
async fn a_dead_upstream_is_a_502_worth_a_retry() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let (proxy, _drain) = start(settings(&format!("http://{address}/v1")));
    let (head, body) = ask(&proxy).await;
    assert_eq!(head.first, "HTTP/1.1 502 Bad Gateway");
    assert_eq!(own_error(&head, &body), ("upstream_unreachable".into(), Some("true".into())));
    let text = String::from_utf8(body).unwrap();
    assert!(text.contains(&address.to_string()) && text.contains("refused"), "{text}");
}

#[tokio::test]
async fn a_dead_upstream_answers_head_without_a_body() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let (proxy, _drain) = start(settings(&base));
    let mut client = crate::relay::support::Wire::new(TcpStream::connect(proxy.address()).await.unwrap());
    client.send("HEAD /v1/models HTTP/1.1\r\nHost: us\r\nConnection: close\r\n\r\n").await;
    assert_eq!(client.head().await.first, "HTTP/1.1 502 Bad Gateway");
    client.closed().await;
}

#[tokio::test]
async fn an_upstream_that_does_not_answer_is_a_504_and_its_connection_is_closed() {
    let first_byte = Duration::from_millis(50);
    let stage = stage_with(|settings| UpstreamSettings { first_byte, ..settings }).await;
    let mut client = stage.client().await;
    client.send(GET).await;
    let mut upstream = stage.upstream().await;
    upstream.head().await;
    let (head, body) = client.response().await;
    assert_eq!(head.first, "HTTP/1.1 504 Gateway Timeout");
    assert_eq!(own_error(&head, &body), ("upstream_timeout".into(), Some("true".into())));
    upstream.closed().await;
}

#[tokio::test]
async fn an_upstream_that_does_not_speak_http_is_a_502() {
    let stage = stage().await;
    let mut client = stage.client().await;
    client.send(GET).await;
    let mut upstream = stage.upstream().await;
    upstream.head().await;
    upstream.send("SSH-2.0-OpenSSH_9.9\r\n\r\n").await;
    let (head, body) = client.response().await;
    assert_eq!(head.first, "HTTP/1.1 502 Bad Gateway");
    assert_eq!(own_error(&head, &body), ("upstream_cut".into(), Some("true".into())));
}

#[tokio::test]
async fn an_upstream_whose_name_nobody_knows_is_a_502_worth_a_retry_and_says_which_name() {
    // The label is too long for any resolver, so that none is asked.
    let name = format!("{}.invalid", "a".repeat(64));
    let (proxy, _drain) = start(settings(&format!("http://{name}/v1")));
    let (head, body) = ask(&proxy).await;
    assert_eq!(head.first, "HTTP/1.1 502 Bad Gateway");
    assert_eq!(own_error(&head, &body), ("upstream_unreachable".into(), Some("true".into())));
    let text = String::from_utf8(body).unwrap();
    assert!(text.contains(&name) && text.contains("upstream.url"), "{text}");
}
