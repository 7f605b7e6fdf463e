//! The files of `deploy/` fit the program: they name its real ports, and the configuration that they hold is one
//! that it accepts. No cluster and no image is built here.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail by panicking")]

#[path = "support/mod.rs"]
mod support;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use support::client::get;
use support::program::Toolrein;
use support::reply::Reply;
use support::scripted::Scripted;
use toolrein::config::{Config, Overrides, Source};
use toolrein::policy::REGISTRY;

#[test]
fn the_deployment_names_the_ports_of_the_shipped_configuration() {
    let [proxy, admin] = shipped_ports();
    let dockerfile = deployed("Dockerfile");
    assert!(dockerfile.contains(&format!("EXPOSE {proxy} {admin}\n")), "{dockerfile}");
    let sidecar = deployed("kubernetes/sidecar.yaml");
    for expected in [
        format!("value: http://127.0.0.1:{proxy}/v1\n"),
        format!("containerPort: {admin}\n"),
        format!("prometheus.io/port: \"{admin}\"\n"),
    ] {
        assert!(sidecar.contains(&expected), "no {expected} in\n{sidecar}");
    }
    assert!(deployed("prometheus.yml").contains(&format!("127.0.0.1:{admin}")));
}

#[test]
fn both_ports_are_bound_to_loopback_as_shipped() {
    let shipped = Config::load(Source::Shipped, &Overrides::default(), REGISTRY).unwrap();
    assert!(shipped.listen.proxy.ip().is_loopback() && shipped.listen.admin.ip().is_loopback());
}

#[test]
fn the_service_of_systemd_starts_the_program_and_names_only_what_exists() {
    let unit = deployed("systemd/toolrein.service");
    let named = unit.split(|char: char| char.is_whitespace() || ",;:()".contains(char));
    let missing: Vec<&str> = named
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| ["tests/", "docs/", "deploy/"].iter().any(|folder| word.starts_with(folder)))
        .filter(|path| !root().join(path).exists())
        .collect();
    assert_eq!(missing, [""; 0]);
    assert!(!unit.contains("tests/"), "a comment would promise what no test holds");
    assert!(!unit.contains("man:"), "there is no man page");
    let (_, start) = unit.split_once("ExecStart=/usr/bin/toolrein ").expect("the command");
    let help = Command::new(env!("CARGO_BIN_EXE_toolrein")).args(["serve", "--help"]).output().unwrap();
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    assert!(start.starts_with("serve --config ") && help.contains("--config"), "{help}");
}

#[test]
fn the_sidecars_configuration_is_accepted() {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    file.write_all(sidecar_config().as_bytes()).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_toolrein")).arg("check").arg(file.path()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn the_sidecar_is_given_longer_to_end_than_it_takes_to_drain() {
    let config: toml::Table = sidecar_config().parse().unwrap();
    let drain = humantime::parse_duration(config["limits"]["drain_timeout"].as_str().unwrap()).unwrap();
    let sidecar = deployed("kubernetes/sidecar.yaml");
    let (_, after) = sidecar.split_once("terminationGracePeriodSeconds: ").unwrap();
    let grace: u64 = after.lines().next().unwrap().parse().unwrap();
    assert!(grace > drain.as_secs(), "{grace} s against {drain:?}");
}

#[test]
fn the_config_map_switches_on_what_is_on_without_a_file_with_the_same_settings() {
    let load = |source| Config::load(source, &Overrides::default(), REGISTRY).unwrap();
    let text = sidecar_config();
    let deployed = load(Source::Text { name: "proxy.toml".to_owned(), text });
    let shipped = load(Source::Shipped);
    assert_eq!(deployed.policy_settings, shipped.policy_settings);
    assert_eq!(deployed.policy_names(), shipped.policy_names());
    assert_eq!((deployed.mode, &deployed.reask), (shipped.mode, &shipped.reask));
}

/// What the program takes at most, in bytes. The figures that no setting bounds are measured (docs/performance.md): 12 MB
/// when idle, 33 KB for a connection with an idle stream, 200 bytes for a known call, 280 for a name in a cache, of which a
/// conversation has three (its own, its newest request's and its history's). Bodies count thrice: for what is made of them
/// while they are read (spans, the copy that a body without a length grows in) and for what the allocator keeps.
fn most_memory(config: &Config) -> u64 {
    let (limits, store) = (&config.limits, &config.store);
    let telling_a_shared_store = 16 << 20;
    12_000_000
        + limits.connections as u64 * 48 * 1024
        + 3 * limits.total_bytes
        + store.hidden_exchange_bytes
        + store.memo_bytes
        + store.calls * 200
        + store.conversations * 3 * 280
        + telling_a_shared_store
}

#[test]
fn what_the_limits_allow_fits_the_memory_of_the_pod() {
    let source = Source::Text { name: "proxy.toml".to_owned(), text: sidecar_config() };
    let config = Config::load(source, &Overrides::default(), REGISTRY).unwrap();
    let sidecar = deployed("kubernetes/sidecar.yaml");
    let (_, after) = sidecar.split_once("limits: { memory: ").unwrap();
    let mebibytes: u64 = after.split_once("Mi").unwrap().0.parse().unwrap();
    let (most, limit) = (most_memory(&config), mebibytes << 20);
    assert!(most <= limit, "{most} bytes against {limit}");
    assert!(config.limits.total_bytes / 2 >= config.limits.request_bytes);
    assert!(config.limits.total_bytes / 4 >= config.limits.reply_bytes as u64, "with a decoded copy");
}

#[test]
fn the_pod_mounts_no_token_bounds_its_volumes_and_says_who_reaches_the_admin_port() {
    let sidecar = deployed("kubernetes/sidecar.yaml");
    let [_, admin] = shipped_ports();
    for expected in [
        "      automountServiceAccountToken: false\n".to_owned(),
        "        - name: audit\n          emptyDir: { sizeLimit: ".to_owned(),
        "            - name: audit\n              mountPath: /var/lib/toolrein\n".to_owned(),
        "kind: NetworkPolicy\n".to_owned(),
        format!("    - ports:\n        - port: {admin}\n      from:\n"),
    ] {
        assert!(sidecar.contains(&expected), "no {expected} in\n{sidecar}");
    }
    let volumes = sidecar.matches("emptyDir:").count();
    assert_eq!(volumes, sidecar.matches("sizeLimit:").count(), "every emptyDir has a bound");
}

#[test]
fn the_admin_port_of_the_pod_answers_over_both_families() {
    let config: toml::Table = sidecar_config().parse().unwrap();
    let address: SocketAddr = config["listen"]["admin"].as_str().unwrap().parse().unwrap();
    assert!(address.is_ipv6() && address.ip().is_unspecified(), "{address}");
    let upstream = Scripted::start(|_, _| Reply::text("Fine."));
    let url = upstream.base_url();
    let program = Toolrein::start(&format!(
        "listen.proxy = \"127.0.0.1:0\"\nlisten.admin = \"[::]:0\"\nupstream.url = {url:?}\n"
    ));
    let (_, port) = program.admin_url().rsplit_once(':').unwrap();
    let has_ipv6 = std::net::TcpListener::bind("[::1]:0").is_ok();
    for host in ["127.0.0.1", "[::1]"] {
        if host == "[::1]" && !has_ipv6 {
            continue;
        }
        assert_eq!(get(&format!("http://{host}:{port}/readyz")).status, 200, "{host}");
    }
}

/// The file in the ConfigMap: the lines behind `proxy.toml: |` that stand deeper than it.
fn sidecar_config() -> String {
    let sidecar = deployed("kubernetes/sidecar.yaml");
    let (_, after) = sidecar.split_once("  proxy.toml: |\n").expect("the ConfigMap");
    let lines = after.lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    lines.map(|line| format!("{}\n", line.trim())).collect()
}

/// The ports of `proxy.toml`: the proxy's and the admin's.
fn shipped_ports() -> [u16; 2] {
    let config: toml::Table = std::fs::read_to_string(root().join("proxy.toml")).unwrap().parse().unwrap();
    let port = |key: &str| {
        let address: std::net::SocketAddr = config["listen"][key].as_str().unwrap().parse().unwrap();
        address.port()
    };
    [port("proxy"), port("admin")]
}

fn deployed(name: &str) -> String {
    let path = root().join("deploy").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
