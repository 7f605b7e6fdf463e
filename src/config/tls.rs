//! `[listen.tls]` as written: TLS on the proxy's port. Documents the keys; `certificates` loads the files that they name.

use super::units::span;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `[listen.tls]`. Relative paths start at the working directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    /// The certificate and those of its issuers, in PEM; empty: no TLS.
    pub certificate: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
    /// The authorities of the clients' certificates, in PEM; empty: clients are asked for none.
    pub client_ca: PathBuf,
    /// Whether clients need a certificate of these authorities.
    pub client_certificate: ClientCertificate,
    /// The limit for a handshake.
    #[serde(with = "span")]
    pub handshake_timeout: Duration,
    /// The most handshakes at once; further ones wait.
    pub handshakes: usize,
}

/// Whether clients need a certificate, where there are authorities for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientCertificate {
    /// Without one there is no connection.
    #[default]
    Required,
    /// Clients may do without; one that is shown must be good.
    Optional,
}

impl Tls {
    /// Whether the port speaks TLS.
    pub fn is_on(&self) -> bool {
        is_set(&self.certificate)
    }

    /// Whether nobody can connect without a certificate.
    pub fn requires_client_certificate(&self) -> bool {
        self.is_on() && is_set(&self.client_ca) && self.client_certificate == ClientCertificate::Required
    }

    /// The files that are read, each with its key in the settings.
    pub(super) fn files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let files = [
            ("listen.tls.certificate", &self.certificate),
            ("listen.tls.key", &self.key),
            ("listen.tls.client_ca", &self.client_ca),
        ];
        files.into_iter().filter(|(_, path)| is_set(path)).map(|(key, path)| (key, path.as_path()))
    }
}

fn is_set(path: &Path) -> bool {
    !path.as_os_str().is_empty()
}

impl Default for Tls {
    /// A handshake takes two round trips; a thousand at once are more than two processors finish in a second.
    fn default() -> Self {
        Self {
            certificate: PathBuf::new(),
            key: PathBuf::new(),
            client_ca: PathBuf::new(),
            client_certificate: ClientCertificate::Required,
            handshake_timeout: Duration::from_secs(10),
            handshakes: 1024,
        }
    }
}
