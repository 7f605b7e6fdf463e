//! Certificates that the operator has pinned: a server that presents one of them as its own is trusted, although no
//! authority vouches for it. Everything else is verified as usual.

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{VerifierBuilderError, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::sync::Arc;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

/// The extension that lists the names of a server (RFC 5280, 4.2.1.6).
const SUBJECT_ALT_NAME: &str = "2.5.29.17";

/// Verifies a chain up to the roots, or the very certificate that was pinned.
#[derive(Debug)]
pub(super) struct PinnedVerifier {
    chains: Arc<WebPkiServerVerifier>,
    pinned: Vec<CertificateDer<'static>>,
}

impl PinnedVerifier {
    /// # Errors
    /// There is no root.
    pub(super) fn new(
        roots: RootCertStore,
        pinned: Vec<CertificateDer<'static>>,
    ) -> Result<Self, VerifierBuilderError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chains = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        Ok(Self { chains, pinned })
    }
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let chained =
            self.chains.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        if chained.is_err() && self.pinned.iter().any(|pinned| pinned == end_entity) {
            return verify_pinned(end_entity, server_name, now);
        }
        chained
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

/// Verifies the time of a pinned certificate, and its names where it lists any: one without names (`openssl req -x509`
/// makes them so) is valid for any server that holds its key.
fn verify_pinned(
    certificate: &CertificateDer<'_>,
    server_name: &ServerName<'_>,
    now: UnixTime,
) -> Result<ServerCertVerified, Error> {
    let read = Certificate::from_der(certificate)
        .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
    let contents = read.tbs_certificate();
    let validity = contents.validity();
    let not_before = UnixTime::since_unix_epoch(validity.not_before.to_unix_duration());
    let not_after = UnixTime::since_unix_epoch(validity.not_after.to_unix_duration());
    if now < not_before {
        let error = CertificateError::NotValidYetContext { time: now, not_before };
        return Err(Error::InvalidCertificate(error));
    }
    if now > not_after {
        return Err(Error::InvalidCertificate(CertificateError::ExpiredContext { time: now, not_after }));
    }
    let mut extensions = contents.extensions().into_iter().flatten();
    if extensions.any(|extension| extension.extn_id.to_string() == SUBJECT_ALT_NAME) {
        verify_server_name(&ParsedCertificate::try_from(certificate)?, server_name)?;
    }
    Ok(ServerCertVerified::assertion())
}
