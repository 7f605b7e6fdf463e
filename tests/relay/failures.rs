//! Upstreams that cannot be reached or do not answer: what the client is told.

use crate::support::{own_error, settings, stage, stage_with, start};
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use toolrein::proxy::upstream::UpstreamSettings;

const GET: &str = "GET /v1/models HTTP/1.1\r\nHost: us\r\n\r\n";

async fn ask(proxy: &toolrein::proxy::Proxy) -> (crate::support::Head, Vec<u8>) {
    let mut client = crate::support::Wire::new(TcpStream::connect(proxy.address()).await.unwrap());
    client.send(GET).await;
    client.response().await
}

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
    let mut client = crate::support::Wire::new(TcpStream::connect(proxy.address()).await.unwrap());
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

/// An authority's certificate in PEM, and what a server needs that it vouches for.
fn authority() -> (String, Arc<rustls::ServerConfig>) {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    (cert.pem(), Arc::new(config))
}

/// Serves one response per connection over TLS, in a thread. Failed handshakes are none of its business.
fn serve_tls(config: Arc<rustls::ServerConfig>) -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let session = rustls::ServerConnection::new(config.clone()).unwrap();
            let mut stream = rustls::StreamOwned::new(session, stream.unwrap());
            let mut buffer = [0; 4096];
            if stream.read(&mut buffer).is_ok() {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret").unwrap();
                stream.conn.send_close_notify();
                let _ = stream.flush();
            }
        }
    });
    address
}

#[tokio::test]
async fn an_upstream_vouched_for_by_the_ca_file_is_reached_over_tls() {
    let (pem, config) = authority();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(pem.as_bytes()).unwrap();
    let base = format!("https://127.0.0.1:{}/v1", serve_tls(config).port());
    let (proxy, _drain) = start(UpstreamSettings { ca_file: Some(file.path().into()), ..settings(&base) });
    let (head, body) = ask(&proxy).await;
    assert_eq!((head.first.as_str(), &body[..]), ("HTTP/1.1 200 OK", &b"secret"[..]));
}

#[tokio::test]
async fn an_upstream_that_nobody_vouches_for_is_a_502_that_no_retry_helps() {
    let (_, config) = authority();
    let base = format!("https://127.0.0.1:{}/v1", serve_tls(config).port());
    let (proxy, _drain) = start(settings(&base));
    let (head, body) = ask(&proxy).await;
    assert_eq!(head.first, "HTTP/1.1 502 Bad Gateway");
    assert_eq!(own_error(&head, &body), ("upstream_tls".into(), Some("false".into())));
    assert!(String::from_utf8(body).unwrap().contains("upstream.ca_file"));
}

#[tokio::test]
async fn an_upstream_that_hangs_up_in_the_handshake_is_a_502_worth_a_retry() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("https://{}", listener.local_addr().unwrap());
    let (proxy, _drain) = start(settings(&base));
    let asking = tokio::spawn(async move { ask(&proxy).await });
    let (stream, _) = listener.accept().await.unwrap();
    // Reading the greeting first makes the end a clean one.
    stream.readable().await.unwrap();
    let _ = stream.try_read(&mut [0; 4096]);
    drop(stream);
    let (head, body) = asking.await.unwrap();
    assert_eq!(own_error(&head, &body), ("upstream_tls".into(), Some("true".into())));
}

#[tokio::test]
async fn an_upstream_that_speaks_plain_http_where_tls_is_wanted_is_said_to_fail_at_tls() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("https://{}", listener.local_addr().unwrap());
    let (proxy, _drain) = start(settings(&base));
    let asking = tokio::spawn(async move { ask(&proxy).await });
    let mut upstream = crate::support::Wire::new(listener.accept().await.unwrap().0);
    upstream.exact(5).await;
    upstream.send("HTTP/1.1 400 Bad Request\r\n\r\n").await;
    let (head, body) = asking.await.unwrap();
    assert_eq!(own_error(&head, &body), ("upstream_tls".into(), Some("false".into())));
}
