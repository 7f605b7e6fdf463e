//! The certificates of `[listen.tls]`: read from their files, and refused where every handshake would fail. Accepts no
//! connections, and shows nothing of a private key.

use super::source::{bounded, is_spent, reason};
use super::tls::{ClientCertificate, Tls};
use model::identity::{Domain, Hash, HashKey};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

/// A certificate whose time ends within this is warned about: renewal has failed by then.
const ENDS_SOON: Duration = Duration::from_secs(3 * 24 * 3_600);

/// A problem: its key, and what is wrong.
type Trouble = (&'static str, String);

/// Certificates that are fit for use.
#[derive(Clone)]
pub struct Certificates {
    /// For the TLS library.
    pub server: Arc<ServerConfig>,
    /// The server's own certificate.
    pub own: CertificateDer<'static>,
    /// When it ends.
    pub ends: SystemTime,
    /// The files, and the digest of what was read of them.
    pub files: Vec<PathBuf>,
    pub digest: Hash,
    /// What is allowed but probably a mistake.
    pub(super) warnings: Vec<String>,
}

/// The content of the files of the settings.
struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Vec<u8>,
    digest: Hash,
}

/// Reads and checks what `tls` names; `None`: TLS is off.
///
/// # Errors
/// Everything that is wrong. No text contains anything of a key.
pub(super) fn load(tls: &Tls, now: SystemTime) -> Result<Option<Certificates>, Vec<Trouble>> {
    incomplete(tls)?;
    if !tls.is_on() {
        return Ok(None);
    }
    let files = read(tls)?;
    let chain = certificates("listen.tls.certificate", &tls.certificate, &files.certificate);
    let key = PrivateKeyDer::from_pem_slice(&files.key)
        .map_err(|_| ("listen.tls.key", format!("{}: holds no private key in PEM form", tls.key.display())));
    let verifier = verifier(tls, &files.client_ca);
    let (chain, key, verifier) = match (chain, key, verifier) {
        (Ok(chain), Ok(key), Ok(verifier)) => (chain, key, verifier),
        (chain, key, verifier) => {
            return Err([chain.err(), key.err(), verifier.err()].into_iter().flatten().collect());
        }
    };
    let (own, ends, warnings) = validity(tls, &chain, now).map_err(|trouble| vec![trouble])?;
    let server = server(tls, chain, key, verifier).map_err(|trouble| vec![trouble])?;
    let paths = tls.files().map(|(_, path)| path.to_owned()).collect();
    Ok(Some(Certificates {
        server: Arc::new(server),
        own,
        ends,
        files: paths,
        digest: files.digest,
        warnings,
    }))
}

/// The digest of the contents of several files, in this order.
pub fn digest_of<'a>(contents: impl Iterator<Item = &'a [u8]>) -> Hash {
    HashKey::fixed(0).hash_all(Domain::Files, contents)
}

/// The settings that lack another one.
pub(super) fn incomplete(tls: &Tls) -> Result<(), Vec<Trouble>> {
    let is_set = |path: &Path| !path.as_os_str().is_empty();
    let (certificate, key) = (is_set(&tls.certificate), is_set(&tls.key));
    let mut found = Vec::new();
    if certificate && !key {
        found.push(("listen.tls.certificate", "needs listen.tls.key, its private key".to_owned()));
    }
    if key && !certificate {
        found.push(("listen.tls.key", "needs listen.tls.certificate, whose key it is".to_owned()));
    }
    if is_set(&tls.client_ca) && !(certificate || key) {
        found.push((
            "listen.tls.client_ca",
            "needs listen.tls.certificate and listen.tls.key: only TLS has client certificates".to_owned(),
        ));
    }
    if found.is_empty() { Ok(()) } else { Err(found) }
}

fn read(tls: &Tls) -> Result<Files, Vec<Trouble>> {
    let mut troubles = Vec::new();
    let mut contents = Vec::new();
    for (key, path) in tls.files() {
        match content(path) {
            Ok(content) => contents.push(content),
            Err(problem) => troubles.push((key, format!("{}: {problem}", path.display()))),
        }
    }
    if !troubles.is_empty() {
        return Err(troubles);
    }
    let digest = digest_of(contents.iter().map(Vec::as_slice));
    let mut contents = contents.into_iter();
    let mut next = || contents.next().unwrap_or_default();
    Ok(Files { certificate: next(), key: next(), client_ca: next(), digest })
}

/// At most what a configuration may have: a chain has some KiB, and a bundle of all public authorities 200 KiB.
fn content(path: &Path) -> Result<Vec<u8>, String> {
    if is_spent(path) {
        return Err("is not a regular file".to_owned());
    }
    let content = File::open(path).and_then(bounded).map_err(|error| reason(&error))?;
    if content.len() as u64 > super::MAX_BYTES {
        return Err("is larger than 1 MiB".to_owned());
    }
    Ok(content)
}

fn certificates(
    key: &'static str,
    path: &Path,
    content: &[u8],
) -> Result<Vec<CertificateDer<'static>>, Trouble> {
    let trouble = |problem: String| (key, format!("{}: {problem}", path.display()));
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(content).collect();
    let found = found.map_err(|error| trouble(format!("is no PEM file: {error}")))?;
    if found.is_empty() {
        return Err(trouble("holds no certificate in PEM form".to_owned()));
    }
    Ok(found)
}

/// The verifier of clients' certificates; `None`: clients are not asked for a certificate.
fn verifier(tls: &Tls, content: &[u8]) -> Result<Option<Arc<dyn ClientCertVerifier>>, Trouble> {
    const KEY: &str = "listen.tls.client_ca";
    if tls.client_ca.as_os_str().is_empty() {
        return Ok(None);
    }
    let trouble = |error: &dyn std::fmt::Display| (KEY, format!("{}: {error}", tls.client_ca.display()));
    let mut roots = RootCertStore::empty();
    for certificate in certificates(KEY, &tls.client_ca, content)? {
        roots.add(certificate).map_err(|error| trouble(&error))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let verifier = match tls.client_certificate {
        ClientCertificate::Required => verifier,
        ClientCertificate::Optional => verifier.allow_unauthenticated(),
    };
    verifier.build().map(|verifier| Some(verifier as _)).map_err(|error| trouble(&error))
}

/// The server's own certificate, when it ends, and warnings about its time.
fn validity(
    tls: &Tls,
    chain: &[CertificateDer<'static>],
    now: SystemTime,
) -> Result<(CertificateDer<'static>, SystemTime, Vec<String>), Trouble> {
    let trouble =
        |problem: String| ("listen.tls.certificate", format!("{}: {problem}", tls.certificate.display()));
    let own = chain.first().cloned().unwrap_or_else(|| CertificateDer::from(Vec::new()));
    let read = Certificate::from_der(&own)
        .map_err(|error| trouble(format!("its certificate cannot be read: {error}")))?;
    let validity = read.tbs_certificate().validity();
    let (begins, ends) = (validity.not_before.to_system_time(), validity.not_after.to_system_time());
    if ends <= now {
        return Err(trouble(format!("expired at {}", at(ends))));
    }
    let warning = |text: String| format!("listen.tls.certificate: {}: {text}", tls.certificate.display());
    let mut warnings = Vec::new();
    // The clock of the issuer and the clock of this machine may differ, so this does not prevent a start.
    if begins > now {
        warnings.push(warning(format!("is not valid before {}", at(begins))));
    }
    if ends.duration_since(now).is_ok_and(|left| left < ENDS_SOON) {
        warnings.push(warning(format!("expires at {}", at(ends))));
    }
    Ok((own, ends, warnings))
}

fn at(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

fn server(
    tls: &Tls,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<ServerConfig, Trouble> {
    // Named here, so that it does not depend on a process-wide default.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let trouble = |error: rustls::Error| {
        let (certificate, key) = (tls.certificate.display(), tls.key.display());
        match error {
            rustls::Error::InconsistentKeys(_) => {
                ("listen.tls.key", format!("{key}: is not the key of the certificate in {certificate}"))
            }
            rustls::Error::InvalidCertificate(error) => {
                ("listen.tls.certificate", format!("{certificate}: cannot be used: {error:?}"))
            }
            error => ("listen.tls.key", format!("{key}: cannot be used: {error}")),
        }
    };
    let builder = builder.map_err(trouble)?;
    let builder = match verifier {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut server = builder.with_single_cert(chain, key).map_err(trouble)?;
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(server)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    /// A certificate between these years, and its key, in PEM.
    fn pair(years: (i32, i32)) -> (String, String) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
        let key = KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    /// The keys of the problems with these contents, and their texts.
    fn refused(certificate: &str, key: &str, client_ca: Option<&str>) -> Vec<(&'static str, String)> {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, content: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            path
        };
        let tls = Tls {
            certificate: write("tls.crt", certificate),
            key: write("tls.key", key),
            client_ca: client_ca.map(|content| write("ca.crt", content)).unwrap_or_default(),
            ..Tls::default()
        };
        load(&tls, SystemTime::now()).err().unwrap_or_default()
    }

    #[test]
    fn certificates_that_would_fail_every_handshake_are_refused_with_their_config_key() {
        let ((good, key), (other, other_key)) = (pair((2020, 2120)), pair((2020, 2120)));
        let (expired, expired_key) = pair((2019, 2020));
        assert_eq!(refused(&good, &key, None), []);
        assert_eq!(refused(&format!("{good}{other}"), &key, Some(&other)), [], "a chain");
        for (certificate, key, ca, expected) in [
            ("", &key, None, ("listen.tls.certificate", "holds no certificate in PEM form")),
            (&good, &good, None, ("listen.tls.key", "holds no private key in PEM form")),
            (&good, &other_key, None, ("listen.tls.key", "is not the key of the certificate in")),
            (&expired, &expired_key, None, ("listen.tls.certificate", "expired at 2020-01-01T00:00:00Z")),
            (&good, &key, Some(""), ("listen.tls.client_ca", "holds no certificate in PEM form")),
            (&good[..good.len() / 2], &key, None, ("listen.tls.certificate", "is no PEM file")),
        ] as [(&str, &String, Option<&str>, (&str, &str)); 6]
        {
            let found = refused(certificate, key, ca);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].0 == expected.0 && found[0].1.contains(expected.1), "{found:?}");
        }
        let both = refused("", "", None);
        assert_eq!(both.len(), 2, "every problem at once: {both:?}");
    }

    #[test]
    fn a_certificate_that_ends_soon_or_begins_later_is_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = pair((2020, 2120));
        let tls = Tls {
            certificate: folder.path().join("tls.crt"),
            key: folder.path().join("tls.key"),
            ..Tls::default()
        };
        std::fs::write(&tls.certificate, certificate).unwrap();
        std::fs::write(&tls.key, key).unwrap();
        let at = |text: &str| humantime::parse_rfc3339(text).unwrap();
        let warnings = |now: &str| load(&tls, at(now)).unwrap().unwrap().warnings;
        assert!(warnings("2060-01-01T00:00:00Z").is_empty());
        assert!(warnings("2119-12-30T00:00:00Z")[0].contains("expires at 2120-01-01"));
        assert!(warnings("2019-12-30T00:00:00Z")[0].contains("not valid before 2020-01-01"));
    }

    #[test]
    fn a_setting_that_lacks_another_one_is_refused_and_a_missing_file_too() {
        let with = |change: fn(&mut Tls)| {
            let mut tls = Tls::default();
            change(&mut tls);
            load(&tls, SystemTime::now())
                .err()
                .unwrap_or_default()
                .into_iter()
                .map(|(key, _)| key)
                .collect::<Vec<_>>()
        };
        assert_eq!(with(|_| {}), [""; 0]);
        assert_eq!(with(|tls| tls.certificate = "a".into()), ["listen.tls.certificate"]);
        assert_eq!(with(|tls| tls.key = "a".into()), ["listen.tls.key"]);
        assert_eq!(with(|tls| tls.client_ca = "a".into()), ["listen.tls.client_ca"]);
        let missing =
            with(|tls| (tls.certificate, tls.key) = ("/nonexistent/a".into(), "/nonexistent/b".into()));
        assert_eq!(missing, ["listen.tls.certificate", "listen.tls.key"]);
    }
}
