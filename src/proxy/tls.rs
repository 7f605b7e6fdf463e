//! TLS towards the upstream: the roots of trust. It makes no connections.

use super::pinned::PinnedVerifier;
use hyper_rustls::ConfigBuilderExt as _;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The extra certificate file is of no use.
#[derive(Debug, thiserror::Error)]
#[error("upstream.ca_file {}: {problem}", path.display())]
pub struct CaFileError {
    path: PathBuf,
    problem: String,
}

/// Trusts the platform's roots and those in `ca_file`, in PEM; Mozilla's where there are neither. A server may also
/// present a certificate of `ca_file` as its own.
pub(super) fn client_config(ca_file: Option<&Path>) -> Result<ClientConfig, CaFileError> {
    let mut roots = platform_roots();
    let Some(path) = ca_file else {
        return Ok(if roots.is_empty() { with_mozilla_roots() } else { with_roots(roots) });
    };
    let fail = |problem: String| CaFileError { path: path.to_owned(), problem };
    let mut own = Vec::new();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| fail(error.to_string()))? {
        let certificate = certificate.map_err(|error| fail(error.to_string()))?;
        roots.add(certificate.clone()).map_err(|error| fail(error.to_string()))?;
        own.push(certificate);
    }
    if own.is_empty() {
        return Err(fail("holds no certificate in PEM form".into()));
    }
    let verifier = PinnedVerifier::new(roots, own).map_err(|error| fail(error.to_string()))?;
    Ok(builder().dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth())
}

/// Trusts nobody: for an upstream without TLS, which saves reading the roots.
pub(super) fn no_trust() -> ClientConfig {
    with_roots(RootCertStore::empty())
}

fn with_roots(roots: RootCertStore) -> ClientConfig {
    builder().with_root_certificates(roots).with_no_client_auth()
}

fn with_mozilla_roots() -> ClientConfig {
    tracing::info!("this system has no root certificates; using those of Mozilla");
    builder().with_webpki_roots().with_no_client_auth()
}

fn builder() -> ConfigBuilder<ClientConfig, WantsVerifier> {
    // Named here, so that it does not depend on a process-wide default.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    // Ring offers suites for both versions, so this does not fail; rustls's default is the same.
    builder.with_safe_default_protocol_versions().unwrap_or_else(|_| ClientConfig::builder())
}

fn platform_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let loaded = rustls_native_certs::load_native_certs();
    for error in &loaded.errors {
        tracing::warn!(%error, "a root certificate of this system could not be read");
    }
    roots.add_parsable_certificates(loaded.certs);
    roots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ca_file_without_a_certificate_is_refused_by_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = client_config(Some(file.path())).unwrap_err().to_string();
        assert!(error.contains("holds no certificate"), "{error}");
        let missing = client_config(Some(Path::new("/nonexistent/ca.pem"))).unwrap_err().to_string();
        assert!(missing.contains("/nonexistent/ca.pem"), "{missing}");
    }
}
