//! TLS towards the upstream: which certificates are trusted, which protocol is agreed on, and what the errors say.

use crate::relay::support::{Head, Wire, ask, own_error, settings, stage, start};
use std::io::{Read, Write};
use std::sync::{Arc, mpsc};
use tokio::net::{TcpListener, TcpStream};
use toolrein::proxy::upstream::UpstreamSettings;

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

/// The client's error where the upstream has a certificate for these names, valid between these years, issued by a
/// trusted authority.
async fn told_of_a_certificate(names: &[&str], years: (i32, i32)) -> String {
    let (head, body) = ask_server_with(names, |params| {
        params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
    })
    .await;
    assert_eq!(head.first, "HTTP/1.1 502 Bad Gateway");
    assert_eq!(own_error(&head, &body), ("upstream_tls".into(), Some("false".into())));
    String::from_utf8(body).unwrap()
}

#[tokio::test]
async fn an_upstream_with_a_certificate_for_another_name_is_a_502_that_says_so() {
    let told = told_of_a_certificate(&["other.example", "192.0.2.1"], (2020, 2120)).await;
    assert!(told.contains("not valid for name"), "{told}");
}

#[tokio::test]
async fn an_upstream_with_an_expired_certificate_is_a_502_that_says_so() {
    let told = told_of_a_certificate(&["127.0.0.1"], (2019, 2020)).await;
    assert!(told.contains("expired") && told.contains("has to be renewed"), "{told}");
}

#[tokio::test]
async fn an_upstream_with_a_certificate_of_the_future_is_a_502_that_says_so() {
    let told = told_of_a_certificate(&["127.0.0.1"], (2110, 2120)).await;
    assert!(told.contains("not valid yet"), "{told}");
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
async fn an_upstream_that_speaks_plain_http_where_tls_is_wanted_is_a_502_that_names_the_scheme() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("https://{}", listener.local_addr().unwrap());
    let (proxy, _drain) = start(settings(&base));
    let asking = tokio::spawn(async move { ask(&proxy).await });
    let mut upstream = Wire::new(listener.accept().await.unwrap().0);
    upstream.exact(5).await;
    upstream.send("HTTP/1.1 400 Bad Request\r\n\r\n").await;
    let (head, body) = asking.await.unwrap();
    assert_eq!(own_error(&head, &body), ("upstream_tls".into(), Some("false".into())));
    let message = String::from_utf8(body).unwrap();
    assert!(message.contains("write http:// in place of https://"), "{message}");
}

#[tokio::test]
async fn an_upstream_that_speaks_tls_or_http2_where_http1_is_wanted_is_a_502_that_names_both() {
    // The alert of a TLS server that met plain text, and the settings with which an HTTP/2 server begins.
    for first in [
        &b"\x15\x03\x01\x00\x02\x02\x46"[..],
        b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x80",
    ] {
        let stage = stage().await;
        let mut client = stage.client().await;
        client.send("GET /v1/models HTTP/1.1\r\nHost: us\r\n\r\n").await;
        let mut upstream = stage.upstream().await;
        upstream.head().await;
        upstream.send(first).await;
        drop(upstream);
        let (head, body) = client.response().await;
        assert_eq!(own_error(&head, &body).0, "upstream_cut");
        let message = String::from_utf8(body).unwrap();
        assert!(message.contains("write https:// in upstream.url"), "{message}");
        assert!(message.contains("upstream.http2 = true"), "{message}");
    }
}

/// The answer through a proxy whose `ca_file` holds the very certificate that the server presents: a self-signed one for
/// these names, with these changes.
async fn ask_server_with(
    names: &[&str],
    change: impl FnOnce(&mut rcgen::CertificateParams),
) -> (Head, Vec<u8>) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = rcgen::CertificateParams::new(names).unwrap();
    change(&mut params);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(certificate.pem().as_bytes()).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = server_config(certificate.der().clone(), key);
    let base = format!("https://127.0.0.1:{}/v1", serve_tls(Arc::new(config)).port());
    let (proxy, _drain) = start(UpstreamSettings { ca_file: Some(file.path().into()), ..settings(&base) });
    ask(&proxy).await
}

/// The status line and the body of such an answer.
async fn answer_with_pinned(
    change: impl FnOnce(&mut rcgen::CertificateParams),
    names: &[&str],
) -> (String, String) {
    let (head, body) = ask_server_with(names, change).await;
    (head.first, String::from_utf8(body).unwrap())
}

#[tokio::test]
async fn a_self_signed_certificate_is_trusted_where_the_ca_file_holds_it() {
    // As `openssl req -x509` makes them: an authority's, with names or without.
    let authority = |params: &mut rcgen::CertificateParams| {
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    };
    for names in [&["127.0.0.1"][..], &[]] {
        let (first, body) = answer_with_pinned(authority, names).await;
        assert_eq!((first.as_str(), body.as_str()), ("HTTP/1.1 200 OK", "secret"), "{names:?}");
    }
    let (first, _) = answer_with_pinned(|_| (), &[]).await;
    assert_eq!(first, "HTTP/1.1 200 OK");
}

#[tokio::test]
async fn a_pinned_certificate_counts_for_its_own_names_and_time_alone() {
    let authority = |params: &mut rcgen::CertificateParams| {
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    };
    let (first, body) = answer_with_pinned(authority, &["other.example"]).await;
    assert!(first.contains("502") && body.contains("not valid for name"), "{body}");
    let expired = |params: &mut rcgen::CertificateParams| {
        authority(params);
        params.not_before = rcgen::date_time_ymd(2019, 1, 1);
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    };
    for names in [&["127.0.0.1"][..], &[]] {
        let (first, body) = answer_with_pinned(expired, names).await;
        assert!(first.contains("502") && body.contains("expired"), "{body}");
    }
    let future = |params: &mut rcgen::CertificateParams| params.not_before = rcgen::date_time_ymd(2110, 1, 1);
    let (first, body) = answer_with_pinned(
        |params| {
            authority(params);
            future(params);
        },
        &[],
    )
    .await;
    assert!(first.contains("502") && body.contains("not valid yet"), "{body}");
}

#[tokio::test]
async fn another_self_signed_certificate_than_the_pinned_one_is_a_502_that_says_how_to_trust_it() {
    let (pem, _) = authority();
    let (_, config) = authority();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(pem.as_bytes()).unwrap();
    let base = format!("https://127.0.0.1:{}/v1", serve_tls(config).port());
    let (proxy, _drain) = start(UpstreamSettings { ca_file: Some(file.path().into()), ..settings(&base) });
    let (head, body) = ask(&proxy).await;
    assert_eq!(own_error(&head, &body), ("upstream_tls".into(), Some("false".into())));
    let message = String::from_utf8(body).unwrap();
    assert!(message.contains("set upstream.ca_file"), "{message}");
    assert!(message.contains("it holds another certificate") && !message.contains("OtherError"), "{message}");
}

#[tokio::test]
async fn http2_is_agreed_on_where_the_upstream_offers_it_but_never_for_an_upgrade() {
    let (pem, config) = authority();
    let mut config = (*config).clone();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(pem.as_bytes()).unwrap();
    let (address, spoken) = listen_tls(config);
    let base = format!("https://{address}/v1");
    let (proxy, _drain) = start(UpstreamSettings { ca_file: Some(file.path().into()), ..settings(&base) });
    let mut client = Wire::new(TcpStream::connect(proxy.address()).await.unwrap());
    client.send("GET /v1/models HTTP/1.1\r\nHost: us\r\n\r\n").await;
    let (agreed, first) =
        tokio::task::spawn_blocking(move || (spoken.recv().unwrap(), spoken)).await.unwrap();
    assert_eq!((agreed.0.as_deref(), &agreed.1[..14]), (Some(&b"h2"[..]), &b"PRI * HTTP/2.0"[..]));
    let mut client = Wire::new(TcpStream::connect(proxy.address()).await.unwrap());
    client
        .send("GET /v1/realtime HTTP/1.1\r\nHost: us\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
        .await;
    let agreed = tokio::task::spawn_blocking(move || first.recv().unwrap()).await.unwrap();
    assert_eq!((agreed.0, &agreed.1[..26]), (None, &b"GET /v1/realtime HTTP/1.1\r"[..]));
}

/// What was agreed on in the handshake, and the first bytes that came.
type Spoken = (Option<Vec<u8>>, Vec<u8>);

/// Tells of each connection, and hangs up. In a thread.
fn listen_tls(config: rustls::ServerConfig) -> (std::net::SocketAddr, mpsc::Receiver<Spoken>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = mpsc::channel();
    let config = Arc::new(config);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let session = rustls::ServerConnection::new(config.clone()).unwrap();
            let mut stream = rustls::StreamOwned::new(session, stream.unwrap());
            let mut first = vec![0; 26];
            stream.read_exact(&mut first).unwrap();
            let _ = sender.send((stream.conn.alpn_protocol().map(<[u8]>::to_vec), first));
        }
    });
    (address, receiver)
}

/// A self-signed certificate in PEM, and what a server needs that it vouches for.
pub(crate) fn authority() -> (String, Arc<rustls::ServerConfig>) {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    (cert.pem(), Arc::new(server_config(cert.der().clone(), key)))
}

pub(crate) fn server_config(
    certificate: rustls::pki_types::CertificateDer<'static>,
    key: rustls::pki_types::PrivateKeyDer<'static>,
) -> rustls::ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap()
}

/// Serves one response per connection over TLS, in a thread. Failed handshakes are none of its business.
pub(crate) fn serve_tls(config: Arc<rustls::ServerConfig>) -> std::net::SocketAddr {
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
