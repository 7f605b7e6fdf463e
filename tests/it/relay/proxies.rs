//! A forward proxy on the way to the upstream: the tunnel through it, its credentials, and what its refusals look like.

use crate::relay::support::{Wire, ask, own_error, settings, soon, start};
use crate::relay::tls::{authority, serve_tls};
use std::io::Write as _;
use tokio::net::{TcpListener, TcpStream};
use toolrein::config::{ProxyChoice, ProxyUrl, Target, Upstream};
use toolrein::proxy::forward_proxy::ForwardProxy;
use toolrein::proxy::upstream::UpstreamSettings;

/// The operator's choice of the proxy on this port.
fn chosen(url: &str) -> ForwardProxy {
    let proxy = ProxyChoice::Url(ProxyUrl::parse(url).unwrap());
    ForwardProxy::new(&Upstream { proxy, url: Target::parse("http://h/v1").unwrap(), ..Upstream::default() })
}

/// A proxy that serves one tunnel: returns the head of the request for it.
async fn serve_tunnel(listener: TcpListener, to: std::net::SocketAddr) -> Vec<String> {
    let mut client = Wire::new(soon("a connection to the proxy", listener.accept()).await.unwrap().0);
    let head = client.head().await;
    client.send("HTTP/1.1 200 Connection established\r\n\r\n").await;
    let mut server = TcpStream::connect(to).await.unwrap();
    let _ = tokio::io::copy_bidirectional(&mut client.stream, &mut server).await;
    std::iter::once(head.first).chain(head.lines).collect()
}

#[tokio::test]
async fn an_upstream_is_reached_over_tls_through_the_proxy_that_the_operator_names() {
    let (pem, config) = authority();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(pem.as_bytes()).unwrap();
    let server = serve_tls(config);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tunnel = tokio::spawn(serve_tunnel(listener, server));
    // A name that only the proxy resolves: the certificate is for it.
    let base = format!("https://localhost:{}/v1", server.port());
    let proxy = chosen(&format!("http://ann:s3cret@{address}"));
    let (proxy, drain) =
        start(UpstreamSettings { ca_file: Some(file.path().into()), proxy, ..settings(&base) });
    let (head, body) = ask(&proxy).await;
    assert_eq!((head.first.as_str(), &body[..]), ("HTTP/1.1 200 OK", &b"secret"[..]));
    drop((proxy, drain));
    let asked = soon("the end of the tunnel", tunnel).await.unwrap();
    assert_eq!(asked[0], format!("CONNECT localhost:{} HTTP/1.1", server.port()));
    // "ann:s3cret" in base64.
    assert!(asked.contains(&"Proxy-Authorization: Basic YW5uOnMzY3JldA==".to_owned()), "{asked:?}");
}

#[tokio::test]
async fn an_upstream_without_tls_is_reached_through_a_tunnel_too() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = chosen(&format!("http://{}", listener.local_addr().unwrap()));
    let tunnel = tokio::spawn(serve_tunnel(listener, server.local_addr().unwrap()));
    let (proxy, _drain) = start(UpstreamSettings { proxy, ..settings("http://upstream.test/v1") });
    let asking = tokio::spawn(async move { ask(&proxy).await });
    let mut upstream = Wire::new(soon("a connection", server.accept()).await.unwrap().0);
    let head = upstream.head().await;
    assert_eq!((head.first.as_str(), head.all("host")), ("GET /v1/models HTTP/1.1", vec!["upstream.test"]));
    upstream.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").await;
    assert_eq!(asking.await.unwrap().1, b"ok");
    drop(upstream);
    let asked = soon("the end of the tunnel", tunnel).await.unwrap();
    assert_eq!(asked[0], "CONNECT upstream.test:80 HTTP/1.1");
}

#[tokio::test]
async fn a_proxy_that_refuses_is_a_502_that_names_it_without_its_credentials() {
    for (answer, expected) in [
        ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "proxy authorization required"),
        ("HTTP/1.1 403 Forbidden\r\n\r\n", "unsuccessful"),
        ("", "unexpected end of file"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let proxy = chosen(&format!("http://ann:s3cret@{address}"));
        let (proxy, _drain) = start(UpstreamSettings { proxy, ..settings("https://upstream.test/v1") });
        let asking = tokio::spawn(async move { ask(&proxy).await });
        let mut client = Wire::new(soon("a connection", listener.accept()).await.unwrap().0);
        client.head().await;
        client.send(answer).await;
        drop(client);
        let (head, body) = asking.await.unwrap();
        assert_eq!(own_error(&head, &body), ("upstream_unreachable".into(), Some("true".into())));
        let message = String::from_utf8(body).unwrap();
        assert!(message.contains(&format!("through the proxy http://{address}")), "{message}");
        assert!(message.contains(expected) && !message.contains("s3cret"), "{message}");
    }
}
