//! The Compose file: accepted by the real Docker Compose, with images of one version and files that exist.

use super::{STREAM, config, deployed, most_memory, path, run, said, shipped_ports, tool};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The file as Docker Compose understands it, with the variables of `example.env` filled in.
fn project() -> Value {
    let mut command = tool("docker-compose");
    for name in variables() {
        command.env(name, "0123456789abcdef".repeat(4));
    }
    let output =
        run(command.arg("-f").arg(path("compose/compose.yaml")).args(["config", "--format", "json"]), "");
    assert!(output.status.success(), "{}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The names that `example.env` asks for.
fn variables() -> Vec<String> {
    let text = deployed("compose/example.env");
    text.lines().filter_map(|line| line.strip_suffix('=')).map(str::to_owned).collect()
}

fn services(project: &Value) -> impl Iterator<Item = (&String, &Value)> {
    project["services"].as_object().unwrap().iter()
}

#[test]
fn docker_compose_accepts_the_file_and_refuses_it_without_its_secrets() {
    let project = project();
    let names: Vec<&String> = services(&project).map(|(name, _)| name).collect();
    assert_eq!(names, ["grafana", "prometheus", "redis", "toolrein"]);
    for missing in variables() {
        let mut command = tool("docker-compose");
        for name in variables().into_iter().filter(|name| *name != missing) {
            command.env(name, "0123456789abcdef".repeat(4));
        }
        let output = run(command.arg("-f").arg(path("compose/compose.yaml")).args(["config", "-q"]), "");
        assert!(
            !output.status.success() && said(&output).contains("example.env"),
            "{missing}: {}",
            said(&output)
        );
    }
}

#[test]
fn images_have_a_version_ports_are_local_and_mounted_files_exist() {
    let project = project();
    let program = env!("CARGO_PKG_VERSION");
    for (name, service) in services(&project) {
        let (_, version) = service["image"].as_str().unwrap().split_once(':').expect(name);
        let numbers: Vec<&str> = version.trim_start_matches('v').split(['.', '-']).take(3).collect();
        assert!(numbers.iter().all(|number| number.parse::<u32>().is_ok()), "{name}: {version}");
        assert!(name != "toolrein" || version == program, "{version}");
        for port in service["ports"].as_array().into_iter().flatten() {
            assert_eq!(port["host_ip"], "127.0.0.1", "{name}");
        }
        for volume in service["volumes"].as_array().unwrap().iter().filter(|volume| volume["type"] == "bind")
        {
            let source = volume["source"].as_str().unwrap();
            assert!(Path::new(source).exists() && volume["read_only"] == true, "{name}: {volume}");
        }
    }
    let build = &project["services"]["toolrein"]["build"];
    let context = Path::new(build["context"].as_str().unwrap());
    assert!(context.join(build["dockerfile"].as_str().unwrap()).exists(), "{build}");
    assert!(context.join("Cargo.toml").exists(), "the project's root: {build}");
}

#[test]
fn toolrein_drains_before_it_is_killed_and_its_limits_fit_its_memory() {
    let project = project();
    let service = &project["services"]["toolrein"];
    let config = config("compose/proxy.toml");
    let grace =
        humantime::parse_duration(service["stop_grace_period"].as_str().unwrap().trim_end_matches("0s"))
            .unwrap();
    let drain = config.limits.drain_timeout;
    assert!(drain >= STREAM && grace > drain, "{grace:?} against {drain:?}");
    let limit: u64 = service["mem_limit"].as_str().unwrap().parse().unwrap();
    assert!(most_memory(&config) <= limit, "{} against {limit}", most_memory(&config));
    let published: Vec<String> =
        service["ports"].as_array().unwrap().iter().map(|port| port["target"].to_string()).collect();
    assert_eq!(published, shipped_ports().map(|port| port.to_string()));
}

#[test]
fn prometheus_finds_toolrein_and_its_rules() {
    let folder = tempfile::tempdir().unwrap();
    for (from, to) in [("compose/prometheus.yml", "prometheus.yml"), ("prometheus/rules.yml", "rules.yml")] {
        std::fs::copy(path(from), folder.path().join(to)).unwrap();
    }
    let output =
        run(Command::new("promtool").args(["check", "config"]).arg(folder.path().join("prometheus.yml")), "");
    assert!(output.status.success() && said(&output).contains("rules.yml"), "{}", said(&output));
    let [_, admin] = shipped_ports();
    assert!(deployed("compose/prometheus.yml").contains(&format!("[\"toolrein:{admin}\"]")));
}

#[test]
fn grafana_gets_prometheus_and_the_dashboard() {
    let project = project();
    let script = super::root().join("tests/deploy/documents.py");
    let provisioned = |name: &str| -> Value {
        let text = deployed(&format!("compose/grafana/provisioning/{name}"));
        serde_json::from_slice(&run(tool("python").arg(&script), &text).stdout).unwrap()
    };
    let source = provisioned("datasources/prometheus.yml");
    assert_eq!(
        source[0]["datasources"][0]["url"], "http://prometheus:9090",
        "the service of that name and its port"
    );
    let provider = provisioned("dashboards/toolrein.yml");
    let folder = provider[0]["providers"][0]["options"]["path"].as_str().unwrap();
    let volumes = project["services"]["grafana"]["volumes"].as_array().unwrap();
    let inside =
        volumes.iter().find(|it| it["target"].as_str().unwrap().starts_with(&format!("{folder}/"))).unwrap();
    assert!(inside["source"].as_str().unwrap().ends_with("deploy/grafana/dashboard.json"), "{inside}");
}
