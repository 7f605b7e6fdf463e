//! What the protocols ask of a proxy: HTTP/1.1 and HTTP/2 on either side in all four combinations, trailers, headers of
//! one hop, hints before an answer, parts of a file, and methods that ask about a resource.

use crate::faults::hand::{GENEROUS, Hand, Wire, answer, before, chat, code, peak, question};
use crate::support::program::Toolrein;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::http::{HeaderMap, Request, Response, Version};
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

type Frames = Pin<Box<dyn stream::Stream<Item = Result<Frame<Bytes>, io::Error>> + Send>>;

const EVENT: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"one\"}}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";
const WHOLE: &str = "{\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"one\"}}]}";

/// A permit for each time that a client has seen the beginning of a reply that is to break off.
static SEEN: Semaphore = Semaphore::const_new(0);

/// Answers as a model does, with a trailer, and says in headers how it was asked. The path tells what goes wrong.
async fn model(request: Request<Incoming>) -> Result<Response<StreamBody<Frames>>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let streamed = body.windows(13).any(|window| window == b"\"stream\":true");
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "7".parse().unwrap());
    let text = if streamed { [EVENT, DONE].concat() } else { WHOLE.to_owned() };
    let mut frames = vec![Ok(Frame::data(Bytes::from(text)))];
    if parts.uri.path().contains("cut") {
        frames = vec![Ok(Frame::data(Bytes::from(EVENT)))];
    } else {
        frames.push(Ok(Frame::trailers(trailers)));
    }
    let cut = stream::iter(parts.uri.path().contains("cut").then_some(())).then(|()| async {
        // Not before the client has something: else no head would have gone out.
        SEEN.acquire().await.unwrap().forget();
        Err(io::Error::other("cut"))
    });
    let kind = if streamed { "text/event-stream" } else { "application/json" };
    let response = Response::builder()
        .header("content-type", kind)
        .header("trailer", "x-sum")
        .header("x-version", format!("{:?}", parts.version))
        .header("x-hop-seen", parts.headers.contains_key("x-hop").to_string());
    Ok(response.body(StreamBody::new(Box::pin(stream::iter(frames).chain(cut)) as Frames)).unwrap())
}

/// The model on a free port, and the program before it, speaking HTTP/2 to it or not.
fn stage(runtime: &Runtime, http2: bool) -> Toolrein {
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let builder = Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(TokioIo::new(stream), service_fn(model)).await;
            });
        }
    });
    before(&url, &format!("upstream.http2 = {http2}\n{GENEROUS}"))
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// A response with its body, if that came to its proper end, and its trailers.
type Got = (Response<()>, Result<Bytes, String>, Option<HeaderMap>);

fn ask(runtime: &Runtime, toolrein: &Toolrein, (http2, path, stream): (bool, &str, bool)) -> Got {
    let url = format!("{}{path}", toolrein.origin());
    let mut request = Request::post(url).header("te", "trailers");
    if !http2 {
        request = request.header("connection", "x-hop, te").header("x-hop", "1");
    }
    let request = request.body(Full::new(Bytes::from(question(stream)))).unwrap();
    runtime.block_on(async {
        let client = Client::builder(TokioExecutor::new()).http2_only(http2).build_http();
        let (parts, mut body) = client.request(request).await.unwrap().into_parts();
        let (mut bytes, mut trailers) = (Vec::new(), None);
        let end = loop {
            match body.frame().await {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        let first = bytes.is_empty() && path.contains("cut");
                        bytes.extend(data);
                        SEEN.add_permits(usize::from(first));
                    }
                    Err(frame) => trailers = frame.into_trailers().ok(),
                },
                Some(Err(error)) => break Err(error.to_string()),
                None => break Ok(bytes.into()),
            }
        };
        (Response::from_parts(parts, ()), end, trailers)
    })
}

const PATHS: [&str; 2] = ["/v1/chat/completions", "/v1/other"];
const SIDES: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

#[test]
fn replies_and_their_trailers_pass_between_both_versions_of_http_in_all_four_combinations() {
    let runtime = runtime();
    for (client, upstream) in SIDES {
        let toolrein = stage(&runtime, upstream);
        for path in PATHS {
            for stream in [false, true] {
                let (response, body, trailers) = ask(&runtime, &toolrein, (client, path, stream));
                let case = format!("client h2 {client}, upstream h2 {upstream}, {path}, stream {stream}");
                let version = if client { Version::HTTP_2 } else { Version::HTTP_11 };
                assert_eq!((response.status().as_u16(), response.version()), (200, version), "{case}");
                let spoken = if upstream { "HTTP/2.0" } else { "HTTP/1.1" };
                assert_eq!(response.headers()["x-version"], spoken, "{case}");
                assert_eq!(response.headers()["x-hop-seen"], "false", "{case}");
                let expected = if stream { [EVENT, DONE].concat() } else { WHOLE.to_owned() };
                assert_eq!(body.unwrap(), expected, "{case}");
                assert_eq!(trailers.expect(&case)["x-sum"], "7");
            }
        }
    }
}

#[test]
fn a_stream_that_breaks_off_ends_broken_in_all_four_combinations() {
    let runtime = runtime();
    for (client, upstream) in SIDES {
        let toolrein = stage(&runtime, upstream);
        for path in ["/v1/cut/chat/completions", "/v1/cut"] {
            let (response, body, _) = ask(&runtime, &toolrein, (client, path, true));
            assert_eq!(response.status().as_u16(), 200);
            assert!(body.is_err(), "client h2 {client}, upstream h2 {upstream}, {path}: never a clean end");
        }
    }
}

#[test]
fn an_http_2_upstream_is_judged_like_any_other() {
    let runtime = runtime();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let call = "{\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\
                \"c\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},\"finish_reason\":\
                \"tool_calls\"}]}";
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = service_fn(move |_: Request<Incoming>| async move {
                let response = Response::builder().header("content-type", "application/json");
                Ok::<_, Infallible>(response.body(Full::new(Bytes::from(call))).unwrap())
            });
            tokio::spawn(async move {
                let builder = Builder::new(TokioExecutor::new()).http2_only();
                let _ = builder.serve_connection(TokioIo::new(stream), answer).await;
            });
        }
    });
    let toolrein = before(&url, "upstream.http2 = true\nreask.max = 0\n[policy.allow]\nexcept = [\"f\"]\n");
    for client in [false, true] {
        let (_, body, _) = ask(&runtime, &toolrein, (client, PATHS[0], false));
        let body = String::from_utf8(body.unwrap().to_vec()).unwrap();
        assert!(!body.contains("\"id\":\"c\"") && body.contains("finish_reason"), "{body}");
    }
}

#[test]
fn hop_by_hop_headers_are_not_forwarded_on_the_governed_route() {
    let (hand, toolrein) = Hand::behind("");
    for stream in [false, true] {
        let mut client = Wire::to(&toolrein);
        let hop = "connection: keep-alive, x-hop\r\nx-hop: 1\r\nkeep-alive: 9\r\nproxy-authorization: p\r\nte: gzip\r\n\
                   upgrade: h2c\r\nx-end: 1\r\n";
        client.write(chat(stream).replacen("host: us\r\n", &format!("host: us\r\n{hop}"), 1));
        let mut upstream = hand.accept();
        let (head, _) = upstream.request();
        let names: Vec<&str> = head.headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["host", "x-end", "content-length"]);
        let kind = if stream { "text/event-stream" } else { "application/json" };
        let body = if stream { [EVENT, DONE].concat() } else { WHOLE.to_owned() };
        upstream.write(format!(
            "HTTP/1.1 200 OK\r\nconnection: close, x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\nx-end: 1\r\n\
             proxy-authenticate: p\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ));
        let (head, body) = client.response();
        assert!(body.is_ok() && head.header("x-end").is_some());
        for name in ["connection", "x-hop", "keep-alive", "proxy-authenticate"] {
            assert_eq!(head.header(name), None, "{name}, stream {stream}");
        }
    }
}

#[test]
fn hints_before_an_answer_are_passed_over_and_the_answer_comes_whole() {
    // hyper's server can send none: a client loses a hint, never an answer.
    let (hand, toolrein) = Hand::behind("");
    for request in [chat(false), chat(true), "GET /v1/models HTTP/1.1\r\nhost: us\r\n\r\n".to_owned()] {
        let mut client = Wire::to(&toolrein);
        client.write(request);
        let mut upstream = hand.asked();
        upstream.write("HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n");
        upstream.write("HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 199 Odd\r\nx-odd: 1\r\n\r\n");
        upstream.write("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </b>\r\n\r\n");
        upstream.write(answer("after the hints"));
        let (head, body) = client.response();
        assert_eq!((head.word(1), head.header("link"), head.header("x-odd")), ("200", None, None));
        assert!(String::from_utf8(body.unwrap()).unwrap().contains("after the hints"));
    }
}

#[test]
fn an_upstream_that_sends_nothing_but_hints_is_given_up() {
    let (hand, toolrein) = Hand::behind("upstream.first_byte_timeout = \"300ms\"\n");
    let before = peak(&toolrein);
    let mut client = Wire::to(&toolrein);
    client.write(chat(false));
    hand.asked().flood_until_cut(b"HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n");
    let (head, body) = client.response();
    assert_eq!((head.word(1), code(&body.unwrap()).as_str()), ("504", "upstream_timeout"));
    assert!(peak(&toolrein) < before + (16 << 20));
}

#[test]
fn too_many_informational_responses_are_an_error_that_names_them() {
    let (hand, toolrein) = Hand::behind("");
    for request in [chat(false), chat(true), "GET /v1/models HTTP/1.1\r\nhost: us\r\n\r\n".to_owned()] {
        let mut client = Wire::to(&toolrein);
        client.write(&request);
        hand.asked().flood_until_cut(b"HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n");
        let (head, body) = client.response();
        let body = body.unwrap();
        assert_eq!((head.word(1), code(&body).as_str()), ("504", "upstream_timeout"));
        assert!(String::from_utf8(body).unwrap().contains("more than 256 informational responses"));
    }
    // As many as are allowed are.
    let mut client = Wire::to(&toolrein);
    client.write(chat(false));
    let mut upstream = hand.asked();
    upstream.write("HTTP/1.1 102 Processing\r\n\r\n".repeat(256));
    upstream.write(answer("after the hints"));
    assert_eq!(client.response().0.word(1), "200");
}

#[test]
fn parts_of_a_file_pass_as_parts() {
    let (hand, toolrein) = Hand::behind("");
    for (status, headers, body) in [
        (
            "206 Partial Content",
            "content-range: bytes 2-4/9\r\naccept-ranges: bytes\r\netag: \"x\"\r\n",
            "cde",
        ),
        ("416 Range Not Satisfiable", "content-range: bytes */9\r\n", ""),
        ("304 Not Modified", "etag: \"x\"\r\n", ""),
    ] {
        let mut client = Wire::to(&toolrein);
        client.write(
            "GET /v1/files/1/content HTTP/1.1\r\nhost: us\r\nrange: bytes=2-4\r\nif-range: \"x\"\r\n\r\n",
        );
        let mut upstream = hand.accept();
        let (head, _) = upstream.request();
        assert_eq!((head.header("range"), head.header("if-range")), (Some("bytes=2-4"), Some("\"x\"")));
        let length = if status.starts_with("304") {
            String::new()
        } else {
            format!("content-length: {}\r\n", body.len())
        };
        upstream.write(format!("HTTP/1.1 {status}\r\n{headers}{length}\r\n{body}"));
        let (head, got) = client.response();
        assert_eq!(
            (head.first_line.as_str(), got.unwrap()),
            (format!("HTTP/1.1 {status}").as_str(), body.into())
        );
        assert!(headers.contains(head.header("content-range").or(head.header("etag")).unwrap()));
    }
}

#[test]
fn options_and_head_are_the_upstreams_to_answer_on_every_route() {
    let (hand, toolrein) = Hand::behind("");
    for target in ["*", "/v1/chat/completions", "/v1/models"] {
        let mut client = Wire::to(&toolrein);
        let preflight = "origin: https://a.example\r\naccess-control-request-method: POST\r\n";
        client.write(format!("OPTIONS {target} HTTP/1.1\r\nhost: us\r\n{preflight}\r\n"));
        let mut upstream = hand.accept();
        let (head, _) = upstream.request();
        assert_eq!((head.word(0), head.word(1)), ("OPTIONS", target));
        assert_eq!(head.header("origin"), Some("https://a.example"));
        upstream.write("HTTP/1.1 204 No Content\r\nallow: POST\r\naccess-control-allow-origin: *\r\n\r\n");
        let (head, _) = client.response();
        assert_eq!((head.word(1), head.header("allow")), ("204", Some("POST")));
        assert_eq!(head.header("access-control-allow-origin"), Some("*"));
    }
    let mut client = Wire::to(&toolrein);
    client.write("HEAD /v1/chat/completions HTTP/1.1\r\nhost: us\r\n\r\n");
    hand.asked().write("HTTP/1.1 405 Method Not Allowed\r\nallow: POST\r\ncontent-length: 123\r\n\r\n");
    let head = client.head();
    assert_eq!((head.word(1), head.header("content-length")), ("405", Some("123")));
}
