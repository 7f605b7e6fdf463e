//! The Messages API over real sockets: routes, headers, error bodies, and the demonstration's agent.

use super::super::agent;
use super::super::endpoint::Endpoint;
use super::*;
use hyper::http::HeaderMap;

impl Served {
    /// A response of the Messages API: status, headers, body.
    async fn message(&self, method: Method, path: &str, body: &str) -> (u16, HeaderMap, String) {
        let uri = format!("http://{}{path}", self.address);
        let request = Request::builder().method(method).uri(uri).header("anthropic-version", "2023-06-01");
        let request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
        let response = self.client.request(request).await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, headers, String::from_utf8(body.to_vec()).unwrap())
    }
}

fn asked(stream: bool) -> String {
    json!({"model": "demo-chat", "max_tokens": 64, "messages": [user("q")], "stream": stream}).to_string()
}

#[tokio::test]
async fn messages_are_answered_on_every_path_that_ends_with_them() {
    let served = Served::start().await;
    for path in ["/v1/messages", "/v1/messages?beta=true", "/anthropic/v1/messages", "/api/v1/messages"] {
        for (stream, kind) in [(false, "application/json"), (true, "text/event-stream; charset=utf-8")] {
            let (status, headers, body) = served.message(Method::POST, path, &asked(stream)).await;
            assert_eq!((status, headers["content-type"].to_str().unwrap()), (200, kind), "{body}");
            assert!(headers["request-id"].to_str().unwrap().starts_with("req_"));
            assert!(body.contains("simulated"), "{body}");
        }
    }
    let (status, _, body) = served.message(Method::POST, "/v1/messages/count_tokens", &asked(false)).await;
    assert_eq!(
        (status, body.as_str()),
        (200, format!("{{\"input_tokens\":{}}}", asked(false).len().div_ceil(4)).as_str())
    );
    let (status, _, body) =
        served.message(Method::POST, "/v1/threads/thread_1/messages", &asked(false)).await;
    assert!(status == 404 && body.contains("Unknown request URL"), "{body}");
    assert_eq!(served.upstream.stats()["demo-chat"].requests, 9);
}

#[tokio::test]
async fn refusals_have_anthropics_shape_and_the_id_of_the_request() {
    let served = Served::start().await;
    let unknown = json!({"model": "m", "max_tokens": 1, "messages": [user("q")]}).to_string();
    let cases = [
        (Method::POST, "{}", 400, "invalid_request_error", "model: Field required"),
        (Method::POST, "{", 400, "invalid_request_error", "The request body is not valid JSON: "),
        (Method::POST, unknown.as_str(), 404, "not_found_error", "model: m. "),
        (Method::GET, "", 405, "invalid_request_error", "Method Not Allowed"),
    ];
    for (method, body, expected, kind, message) in cases {
        let (status, headers, text) = served.message(method, "/v1/messages", body).await;
        assert_eq!(status, expected, "{text}");
        let body: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&body["type"], &body["error"]["type"]), (&json!("error"), &json!(kind)), "{body}");
        assert!(body["error"]["message"].as_str().unwrap().starts_with(message), "{body}");
        assert_eq!(body["request_id"], headers["request-id"].to_str().unwrap());
    }
    let (status, _, text) = served.send(Method::POST, "/v1/messages", asked(false)).await;
    assert!(
        status == StatusCode::BAD_REQUEST && text.contains("anthropic-version: header is required"),
        "{text}"
    );
}

#[tokio::test]
async fn the_agent_runs_what_a_streamed_message_calls() {
    let served = Served::start().await;
    let agent = agent::Agent::new(served.address, Endpoint::Messages);
    let journey = agent.work("demo-chat", "Ask web_search, then read_url.").await;
    assert_eq!((journey.tool_calls, journey.outcome), (2, agent::Outcome::Answered));
}
