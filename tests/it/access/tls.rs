//! TLS on the proxy's port: both versions of HTTP, clients' certificates, certificates that change, and clients that
//! never finish a handshake.

use crate::access::QUESTION;
use crate::access::tls_kit::{Authority, Folder, Pair, ask, connect, der};
use crate::support::client::get;
use crate::support::program::{Toolrein, before};
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::Scripted;
use crate::support::until;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

/// No year of a test's certificate.
const LATER: i32 = 2120;

fn answering() -> Scripted {
    Scripted::start(|_, request| Reply::speech(request, &Speech::text("a good answer")))
}

/// curl asks for an answer: its output, then version of HTTP and status.
fn curl(toolrein: &Toolrein, authority: &Path, arguments: &[&str]) -> (bool, String) {
    let url = format!("{}/v1/chat/completions", toolrein.origin().replace("http://", "https://"));
    let done = Command::new("curl")
        .args(["--silent", "--show-error", "--noproxy", "*", "--max-time", "30", "--cacert"])
        .arg(authority)
        .args(["--write-out", " %{http_version} %{http_code}", "--data", QUESTION])
        .args(["--header", "content-type: application/json"])
        .args(arguments)
        .arg(url)
        .output()
        .expect("curl is installed");
    (done.status.success(), String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned())
}

#[test]
fn both_versions_of_http_are_served_over_tls_and_the_better_one_is_agreed_on() {
    let (upstream, authority) = (answering(), Authority::new("a"));
    let folder = Folder::new(&authority.server(LATER), None);
    let toolrein = Toolrein::before(&upstream, &folder.settings());
    for (offered, agreed) in [(&["http/1.1"][..], Some("http/1.1")), (&[], None)] {
        let seen = ask(connect(toolrein.origin(), &authority.pem, offered, None)).unwrap();
        assert!(seen.text.starts_with("HTTP/1.1 200"), "{}", seen.text);
        assert_eq!(seen.protocol.as_deref(), agreed);
    }
    let mut both = connect(toolrein.origin(), &authority.pem, &["h2", "http/1.1"], None);
    both.conn.complete_io(&mut both.sock).unwrap();
    assert_eq!(both.conn.alpn_protocol(), Some(&b"h2"[..]));
    let ca = folder.write("authority.crt", &authority.pem);
    for (argument, version) in [("--http2", " 2 200"), ("--http1.1", " 1.1 200")] {
        let (is_done, said) = curl(&toolrein, &ca, &[argument]);
        assert!(is_done && said.contains("a good answer") && said.ends_with(version), "{said}");
    }
    assert!(toolrein.metric("toolrein_tls_handshakes_total{result=\"done\"}") >= 5.0);
    assert!(toolrein.metric("toolrein_tls_certificate_end_timestamp_seconds") > 4e9);
    assert_eq!(
        get(&format!("{}/livez", toolrein.admin_url())).status,
        200,
        "the admin port speaks plain HTTP"
    );
}

#[test]
fn a_client_needs_a_certificate_where_one_is_required_and_a_bad_one_never_passes() {
    let (upstream, authority, others) = (answering(), Authority::new("a"), Authority::new("b"));
    let folder = Folder::new(&authority.server(LATER), Some(&authority.pem));
    let required = Toolrein::before(&upstream, &folder.settings());
    let optional = format!("{}listen.tls.client_certificate = \"optional\"\n", folder.settings());
    let optional = Toolrein::before(&upstream, &optional);
    let (good, bad) = (authority.client(), others.client());
    for (toolrein, own, passes) in [
        (&required, Some(&good), true),
        (&required, None, false),
        (&required, Some(&bad), false),
        (&optional, Some(&good), true),
        (&optional, None, true),
        (&optional, Some(&bad), false),
    ] {
        let seen = ask(connect(toolrein.origin(), &authority.pem, &[], own));
        assert_eq!(seen.is_ok_and(|seen| seen.text.starts_with("HTTP/1.1 200")), passes);
    }
    required.wait_for_metric("toolrein_tls_handshakes_total{result=\"failed\"}", 2.0);
    let ca = folder.write("authority.crt", &authority.pem);
    let (certificate, key) = (folder.write("c.crt", &good.certificate), folder.write("c.key", &good.key));
    let shown = ["--http2", "--cert", certificate.to_str().unwrap(), "--key", key.to_str().unwrap()];
    let (is_done, said) = curl(&required, &ca, &shown);
    assert!(is_done && said.ends_with(" 2 200"), "{said}");
    assert!(!curl(&required, &ca, &["--http2"]).0, "without a certificate");
}

/// The certificate that the server presents to a new connection.
fn served(toolrein: &Toolrein, authority: &Authority) -> Vec<u8> {
    ask(connect(toolrein.origin(), &authority.pem, &[], None)).unwrap().certificate
}

#[test]
fn a_broken_certificate_on_reload_is_refused_and_named_and_a_good_one_is_taken() {
    let (upstream, authority) = (answering(), Authority::new("a"));
    let (first, second) = (authority.server(LATER), authority.server(LATER + 1));
    let folder = Folder::new(&first, None);
    let toolrein = Toolrein::before(&upstream, &format!("reload.watch = \"0s\"\n{}", folder.settings()));
    let mut open = connect(toolrein.origin(), &authority.pem, &[], None);
    open.conn.complete_io(&mut open.sock).unwrap();
    let half = &second.certificate[..second.certificate.len() / 2];
    for (certificate, key, problem) in [
        (&*second.certificate, &*first.key, "is not the key of the certificate in"),
        (half, &*second.key, "is no PEM file"),
        ("", &*second.key, "holds no certificate"),
        (&*authority.server(2020).certificate, &*second.key, "expired at 2020-01-01T00:00:00Z"),
    ] {
        folder.put(&Pair { certificate: certificate.to_owned(), key: key.to_owned() });
        let before = toolrein.logs().len();
        assert!(!toolrein.reread(), "{problem}");
        assert_eq!(served(&toolrein, &authority), der(&first), "{problem}");
        let named = |line: &&String| line.contains("listen.tls.") && line.contains(problem);
        until("the log line", || (toolrein.logs()[before..].iter().filter(named).count() == 1).then_some(()));
    }
    folder.put(&second);
    assert!(toolrein.reread());
    assert_eq!(served(&toolrein, &authority), der(&second));
    until("the log line", || {
        toolrein.logs().iter().any(|line| line.contains("get another certificate")).then_some(())
    });
    assert!(ask(open).unwrap().text.starts_with("HTTP/1.1 200"), "an open connection goes on");
    assert!(
        toolrein.reload(&before(&upstream.base_url(), "reload.watch = \"0s\"\n")),
        "TLS off needs a restart"
    );
    assert_eq!(served(&toolrein, &authority), der(&second));
    until("the warning", || {
        let named = |line: &String| line.contains("needs a restart: listen.tls.certificate");
        toolrein.logs().iter().any(named).then_some(())
    });
}

#[test]
fn a_secret_whose_link_is_exchanged_is_noticed() {
    let (upstream, authority) = (answering(), Authority::new("a"));
    let (first, second) = (authority.server(LATER), authority.server(LATER + 1));
    // As a kubelet mounts a Secret: the files are links through a link to a folder, and only that link is replaced.
    let mount = Folder::new(&first, None);
    let version = |name: &str, pair: &Pair| {
        let folder = mount.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("tls.crt"), &pair.certificate).unwrap();
        std::fs::write(folder.join("tls.key"), &pair.key).unwrap();
    };
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, mount.path().join(name)).unwrap();
    version("..one", &first);
    link("..one", "..data");
    for name in ["tls.crt", "tls.key"] {
        std::fs::remove_file(mount.path().join(name)).unwrap();
        link(&format!("..data/{name}"), name);
    }
    let toolrein = Toolrein::before(&upstream, &format!("reload.watch = \"20ms\"\n{}", mount.settings()));
    assert_eq!(served(&toolrein, &authority), der(&first));
    version("..two", &second);
    link("..two", "..new");
    std::fs::rename(mount.path().join("..new"), mount.path().join("..data")).unwrap();
    toolrein.wait_for_metric("toolrein_config_reloads_total{result=\"ok\"}", 1.0);
    assert_eq!(served(&toolrein, &authority), der(&second));
    // The same certificate is not loaded again, and a half-written pair is refused only once.
    std::fs::write(mount.path().join("..two/tls.crt"), &first.certificate).unwrap();
    toolrein.wait_for_metric("toolrein_config_reloads_total{result=\"refused\"}", 1.0);
    std::fs::write(mount.path().join("..two/tls.key"), &first.key).unwrap();
    toolrein.wait_for_metric("toolrein_config_reloads_total{result=\"ok\"}", 2.0);
    assert_eq!(served(&toolrein, &authority), der(&first));
    assert!(toolrein.metric("toolrein_config_reloads_total{result=\"refused\"}") < 2.0);
}

#[test]
fn clients_that_never_finish_a_handshake_are_closed_and_block_nobody() {
    let (upstream, authority) = (answering(), Authority::new("a"));
    let folder = Folder::new(&authority.server(LATER), None);
    let few = format!("listen.tls.handshakes = 1\n{}", folder.settings());
    let patient = Toolrein::before(&upstream, &few);
    let address = patient.origin().trim_start_matches("http://").to_owned();
    let silent: Vec<_> = (0..20).map(|_| TcpStream::connect(&address).unwrap()).collect();
    assert_eq!(served(&patient, &authority), der(&Pair::of(&folder)), "the silent ones take no handshake");
    drop(silent);
    let hasty = Toolrein::before(&upstream, &format!("listen.tls.handshake_timeout = \"50ms\"\n{few}"));
    let address = hasty.origin().trim_start_matches("http://").to_owned();
    for first in [&b""[..], &[22, 3, 1, 2, 0]] {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(first).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{rest:?}");
    }
    hasty.wait_for_metric("toolrein_tls_handshakes_total{result=\"timeout\"}", 2.0);
    let mut garbage = TcpStream::connect(patient.origin().trim_start_matches("http://")).unwrap();
    garbage.write_all(&[&[22, 3, 1, 0, 4, 1, 2, 3, 4][..], &[99; 64]].concat()).unwrap();
    let _ = garbage.read_to_end(&mut Vec::new());
    patient.wait_for_metric("toolrein_tls_handshakes_total{result=\"failed\"}", 1.0);
}

#[test]
fn a_client_without_tls_reads_what_to_do() {
    let (upstream, authority) = (answering(), Authority::new("a"));
    let folder = Folder::new(&authority.server(LATER), None);
    let toolrein = Toolrein::before(&upstream, &folder.settings());
    let said = crate::access::post(&toolrein.chat_url(), &[]).send();
    assert!(said.status == 400 && said.text().contains("use https://"), "{said:?}");
    toolrein.wait_for_metric("toolrein_tls_handshakes_total{result=\"plain_http\"}", 1.0);
    assert!(upstream.requests().is_empty());
}

#[test]
fn check_names_what_is_wrong_with_a_certificate_and_when_a_good_one_ends() {
    let authority = Authority::new("a");
    let (good, expired) = (authority.server(LATER), authority.server(2020));
    let mismatched = Pair { key: expired.key.clone(), ..good.clone() };
    for (pair, code, expected) in [
        (&good, 0, "with TLS (certificate until 2120-01-01T00:00:00Z)"),
        (&expired, 2, "tls.crt: expired at 2020-01-01T00:00:00Z"),
        (&mismatched, 2, "tls.key: is not the key of the certificate in"),
    ] {
        let folder = Folder::new(pair, None);
        let file = folder.write("proxy.toml", &folder.settings());
        let done = Command::new(env!("CARGO_BIN_EXE_toolrein")).arg("check").arg(file).output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(done.status.code() == Some(code) && said.contains(expected), "{said}");
        assert!(!said.contains(pair.key.lines().nth(1).unwrap()), "{said}");
    }
}

impl Pair {
    /// What is in the folder.
    fn of(folder: &Folder) -> Self {
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        Self { certificate: read("tls.crt"), key: read("tls.key") }
    }
}
