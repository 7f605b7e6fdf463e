//! The ports of the program: binds them, and serves those of the admin server. Answers nothing itself.

use super::StartError;
use super::pages::{AdminService, ProbeService};
use crate::config::Config;
use crate::proxy::drain::Drain;
use crate::proxy::{Proxy, ServeSettings};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};

/// The accept backlog: connections that wait in the kernel. The kernel may allow fewer (`net.core.somaxconn`, 4096
/// since Linux 5.4).
const BACKLOG: u32 = 4096;

/// The bound ports of the admin server.
pub(super) struct AdminListeners {
    admin: (TcpListener, SocketAddr),
    /// With probes and metrics alone.
    probes: Option<(TcpListener, SocketAddr)>,
}

/// The ports of the admin server. They answer until the end, so that probes see the drain.
pub(super) struct AdminPorts {
    admin: Proxy,
    probes: Option<Proxy>,
}

impl AdminListeners {
    pub(super) fn bind(config: &Config) -> Result<Self, StartError> {
        let (admin, probes) = (config.listen.admin, config.listen.probes);
        let probes = probes.map(|address| Ok::<_, StartError>((listen("listen.probes", address)?, address)));
        Ok(Self { admin: (listen("listen.admin", admin)?, admin), probes: probes.transpose()? })
    }

    pub(super) fn serve(
        self,
        pages: &Arc<AdminService>,
        settings: &ServeSettings,
    ) -> Result<AdminPorts, StartError> {
        let (listener, address) = self.admin;
        let admin = Proxy::start(listener, Arc::clone(pages), settings.clone(), Drain::new())
            .map_err(failed_listening("listen.admin", address))?;
        let probes = self.probes.map(|(listener, address)| {
            // With a limit of its own, so that neither port can keep connections from the other.
            let settings = ServeSettings { limit: settings.limit.separate(), ..settings.clone() };
            let service = Arc::new(ProbeService(Arc::clone(pages)));
            let started = Proxy::start(listener, service, settings, Drain::new());
            started.map_err(failed_listening("listen.probes", address))
        });
        Ok(AdminPorts { admin, probes: probes.transpose()? })
    }
}

impl AdminPorts {
    pub(super) fn address(&self) -> SocketAddr {
        self.admin.address()
    }

    pub(super) fn probes_address(&self) -> Option<SocketAddr> {
        self.probes.as_ref().map(Proxy::address)
    }

    pub(super) async fn stop(self) {
        self.admin.stop(Duration::ZERO).await;
        if let Some(probes) = self.probes {
            probes.stop(Duration::ZERO).await;
        }
    }
}

pub(super) fn failed_listening(
    key: &'static str,
    address: SocketAddr,
) -> impl FnOnce(io::Error) -> StartError {
    move |error| StartError::Listen { key, address, error }
}

pub(super) fn listen(key: &'static str, address: SocketAddr) -> Result<TcpListener, StartError> {
    let bound = match (bind(address), over_ipv4(address)) {
        (Err(error), Some(over_ipv4)) if is_without_ipv6(&error) => bind(over_ipv4),
        (bound, _) => bound,
    };
    bound.map_err(failed_listening(key, address))
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    bind_to(address)?.listen(BACKLOG)
}

/// A socket that is bound to the address and does not listen yet.
pub(super) fn bind_to(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // As `TcpListener::bind` does: a program that starts again finds its port free.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// All addresses of IPv4 where all of IPv6 are wanted: `[::]` serves both families, and on a machine without IPv6 still
/// the other one.
pub(super) fn over_ipv4(address: SocketAddr) -> Option<SocketAddr> {
    let is_all = address.is_ipv6() && address.ip().is_unspecified();
    is_all.then(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())))
}

/// Whether the error means that the machine has no IPv6.
pub(super) fn is_without_ipv6(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied)
}
