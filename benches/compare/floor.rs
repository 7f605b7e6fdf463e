//! The baseline: a pass-through that uses only hyper, so that the table shows which part of a proxy's cost is hyper's.
//! Keeps one upstream connection for each client connection. Has no pool, deadline, limit, log or metric, and does not
//! preserve the case of header names; a production proxy needs all of these.

use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper::{Request, client, header, server};
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

/// Serves on `port` of 127.0.0.1 until the process ends.
pub async fn serve(port: u16, upstream: SocketAddr) {
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        socket.set_nodelay(true).unwrap();
        tokio::spawn(async move {
            // Locked by one request at a time: the client's next one comes when this one is answered.
            let kept = Arc::new(Mutex::new(connected(upstream).await));
            let pass = service_fn(move |request| passed(request, Arc::clone(&kept)));
            // How a connection ends does not matter here.
            let _ = server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), pass).await;
        });
    }
}

async fn passed(
    mut request: Request<Incoming>,
    upstream: Arc<Mutex<SendRequest<Incoming>>>,
) -> hyper::Result<hyper::Response<Incoming>> {
    request.headers_mut().remove(header::CONNECTION);
    let mut upstream = upstream.lock().await;
    upstream.ready().await?;
    upstream.send_request(request).await
}

async fn connected(upstream: SocketAddr) -> SendRequest<Incoming> {
    let socket = TcpStream::connect(upstream).await.unwrap();
    socket.set_nodelay(true).unwrap();
    let (sender, connection) = client::conn::http1::handshake(TokioIo::new(socket)).await.unwrap();
    tokio::spawn(connection);
    sender
}
