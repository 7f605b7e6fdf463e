//! The floor: a pass-through made of hyper and nothing else, so that the table shows what of a proxy's cost is hyper's.
//! Keeps one upstream connection for each client's; has no pool, deadline, limit, log or metric, and keeps no spelling
//! of headers, all of which a proxy to be trusted has.

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
            // What a connection ends with is the client's business.
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
