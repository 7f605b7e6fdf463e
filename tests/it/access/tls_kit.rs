//! Certificates made for a test, and a TLS client that shows what it received.

use crate::support::PATIENCE;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An authority that issues certificates.
pub(crate) struct Authority {
    /// Its own certificate, in PEM.
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// For a server on this machine, until this year.
    pub(crate) fn server(&self, until: i32) -> Pair {
        let names = ["localhost", "127.0.0.1"].map(str::to_owned);
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = rcgen::date_time_ymd(2019, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        self.issue(params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// For a client.
    pub(crate) fn client(&self) -> Pair {
        let params = CertificateParams::new(["agent".to_owned()]).unwrap();
        self.issue(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn issue(&self, mut params: CertificateParams, usage: ExtendedKeyUsagePurpose) -> Pair {
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }
}

/// The files of a server, in a folder of their own.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new(pair: &Pair, client_ca: Option<&str>) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        folder.put(pair);
        if let Some(authority) = client_ca {
            folder.write("ca.crt", authority);
        }
        folder
    }

    pub(crate) fn put(&self, pair: &Pair) {
        self.write("tls.crt", &pair.certificate);
        self.write("tls.key", &pair.key);
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// The settings that name the files.
    pub(crate) fn settings(&self) -> String {
        let at = |name: &str| self.path().join(name);
        let ca = if at("ca.crt").exists() {
            format!("listen.tls.client_ca = {:?}\n", at("ca.crt"))
        } else {
            String::new()
        };
        format!("listen.tls.certificate = {:?}\nlisten.tls.key = {:?}\n{ca}", at("tls.crt"), at("tls.key"))
    }
}

/// What a client saw.
pub(crate) struct Seen {
    /// Everything that came.
    pub(crate) text: String,
    /// The protocol that was agreed on.
    pub(crate) protocol: Option<String>,
    /// The server's certificate.
    pub(crate) certificate: Vec<u8>,
}

/// An open connection.
pub(crate) type Tls = StreamOwned<ClientConnection, TcpStream>;

/// Connects to `origin` over TLS and trusts `authority`; offers these protocols and shows `own`.
pub(crate) fn connect(origin: &str, authority: &str, protocols: &[&str], own: Option<&Pair>) -> Tls {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let chain = vec![CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let session = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    let stream = TcpStream::connect(origin.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    StreamOwned::new(session, stream)
}

/// Sends one request of HTTP/1.1 and reads to the end.
///
/// # Errors
/// The server refuses the client, or the client the server.
pub(crate) fn ask(mut tls: Tls) -> io::Result<Seen> {
    tls.write_all(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    tls.flush()?;
    let mut text = Vec::new();
    tls.read_to_end(&mut text)?;
    let protocol = tls.conn.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned());
    let certificate = tls.conn.peer_certificates().unwrap()[0].to_vec();
    Ok(Seen { text: String::from_utf8_lossy(&text).into_owned(), protocol, certificate })
}

/// A certificate as it is sent.
pub(crate) fn der(pair: &Pair) -> Vec<u8> {
    CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap().to_vec()
}
