//! The files of `deploy/` fit the program: they name its real ports, and the configuration that they hold is one
//! that it accepts. No cluster and no image is built here.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail by panicking")]

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

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
