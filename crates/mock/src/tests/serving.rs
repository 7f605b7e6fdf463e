//! Connections, routes and bounds.

use super::*;

#[tokio::test]
async fn a_body_over_the_bound_is_refused_unread() {
    let served = Served::start().await;
    let body =
        format!("{{\"model\":\"demo-chat\",\"messages\":[],\"pad\":\"{}\"}}", "x".repeat(32 * 1024 * 1024));
    let request = Request::post(format!("http://{}/v1/chat/completions", served.address));
    let sent = served.client.request(request.body(Full::new(Bytes::from(body))).unwrap()).await;
    // The connection may be gone before the client has written all: then there is no response to read.
    if let Ok(response) = sent {
        assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    }
    assert!(served.upstream.stats().is_empty());
}

#[tokio::test]
async fn http2_without_tls_is_served_on_the_same_port() {
    let mut served = Served::start().await;
    served.client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let chunks = served.stream(chat("demo-chat", &[user("q")])).await;
    assert!(assembled(&chunks, 0)["content"].as_str().unwrap().contains("\"q\""));
}

#[tokio::test]
async fn the_shutdown_waits_for_no_idle_connection() {
    let served = Served::start().await;
    served.ask(chat("demo-chat", &[user("q")])).await;
    let silent = tokio::net::TcpStream::connect(served.address).await.unwrap();
    served.stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(4), served.task)
        .await
        .expect("no need of the drain's limit")
        .unwrap();
    drop(silent);
}

#[tokio::test]
async fn the_models_are_listed_and_described() {
    let served = Served::start().await;
    let (_, _, text) = served.send(Method::GET, "/v1/models?limit=9", String::new()).await;
    let list: Value = serde_json::from_str(&text).unwrap();
    let names: Vec<&str> =
        list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["demo-chat", "demo-runaway", "demo-polite", "demo-stuck", "demo-no-tools", "demo-strict"]
    );
    for (name, listed) in names.iter().zip(list["data"].as_array().unwrap()) {
        let (status, _, text) = served.send(Method::GET, &format!("/v1/models/{name}"), String::new()).await;
        assert_eq!((status, serde_json::from_str::<Value>(&text).unwrap()), (StatusCode::OK, listed.clone()));
    }
}
