//! The simulated model with its strict Messages API, served by the test itself: what `upstream.url = "demo:"` serves, at an
//! address that clients can reach without toolrein too.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

/// The running model; it ends when dropped.
pub struct Simulated {
    address: SocketAddr,
    /// Dropped to shut the server down.
    _shutdown: oneshot::Sender<()>,
}

impl Simulated {
    /// The model on a free port.
    pub fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a listener for tokio");
        let address = listener.local_addr().expect("its address");
        let (shutdown, ended) = oneshot::channel();
        std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                let upstream = Arc::new(mock::Upstream::new(Duration::ZERO));
                mock::serve(listener, upstream, async { drop(ended.await) }).await;
            });
        });
        Self { address, _shutdown: shutdown }
    }

    /// The origin: `http://127.0.0.1:PORT`.
    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }
}
