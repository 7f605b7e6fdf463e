//! The files of `deploy/` fit the program, and the tools that will read them accept them: kustomize renders the
//! overlays, the schemas of Kubernetes and of the Prometheus Operator hold, Docker Compose and Prometheus accept theirs.
//! No cluster and no image is built here.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail by panicking")]

#[path = "deploy/compose.rs"]
mod compose;
mod support;

use serde_json::Value;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use support::client::get;
use support::program::Toolrein;
use support::reply::Reply;
use support::scripted::Scripted;
use toolrein::config::{Config, Overrides, Source};
use toolrein::policy::REGISTRY;

/// The longest stream that a shutdown must let finish.
const STREAM: Duration = Duration::from_secs(600);

/// The oldest Kubernetes that each overlay is for, as its kustomization.yaml says, and one of today.
const VERSIONS: [(&str, &[&str]); 2] = [("example", &["1.29", "1.37"]), ("gateway", &["1.30", "1.37"])];

#[test]
fn the_deployment_names_the_ports_of_the_shipped_configuration() {
    let [proxy, admin] = shipped_ports();
    let dockerfile = deployed("Dockerfile");
    assert!(dockerfile.contains(&format!("EXPOSE {proxy} {admin}\n")), "{dockerfile}");
    let agent = of_kind(&rendered("example"), "Deployment");
    let url = at(&agent, "/spec/template/spec/containers/0/env/1");
    assert_eq!(url["name"], "OPENAI_BASE_URL", "added by the component: {url}");
    assert_eq!(url["value"], format!("http://127.0.0.1:{proxy}/v1"));
    assert_eq!(sidecar(&agent)["ports"][0]["containerPort"], admin);
    let gateway = of_kind(&rendered("gateway"), "Deployment");
    let ports = at(&gateway, "/spec/template/spec/containers/0/ports");
    assert_eq!([&ports[0]["containerPort"], &ports[1]["containerPort"]], [proxy, admin]);
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
    let (_, start) = unit.split_once("ExecStart=/usr/bin/toolrein ").expect("the command");
    let help = Command::new(env!("CARGO_BIN_EXE_toolrein")).args(["serve", "--help"]).output().unwrap();
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    assert!(start.starts_with("serve --config ") && help.contains("--config"), "{help}");
}

#[test]
fn the_images_have_the_version_of_the_program() {
    let image = format!("toolrein:{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(sidecar(&of_kind(&rendered("example"), "Deployment"))["image"], image);
    let gateway = of_kind(&rendered("gateway"), "Deployment");
    assert_eq!(at(&gateway, "/spec/template/spec/containers/0/image"), image);
}

#[test]
fn what_kustomize_renders_fits_the_schemas_of_kubernetes() {
    for (overlay, versions) in VERSIONS {
        let mut documents = rendered(overlay);
        let monitors: Vec<Value> = documents.extract_if(.., |it| it["kind"] == "PodMonitor").collect();
        assert_eq!(monitors.len(), 1, "{overlay}");
        for version in versions {
            let output = validated(&documents, version);
            assert!(output.status.success(), "{overlay}: {}", said(&output));
            let passed = said(&output).matches(" passed for resource ").count();
            assert_eq!(passed, documents.len(), "{overlay}: {}", said(&output));
        }
        let output = monitors_validated(&monitors);
        assert!(output.status.success(), "{overlay}: {}", said(&output));
        // The schema of a custom resource accepts unknown members, so that a wrong name is found here.
        let endpoint = &monitors[0]["spec"]["podMetricsEndpoints"][0];
        assert_eq!((&endpoint["port"], &endpoint["path"]), (&"admin".into(), &"/metrics".into()));
    }
}

#[test]
fn the_schemas_refuse_a_wrong_name_a_wrong_type_and_a_missing_member() {
    let documents = rendered("gateway");
    let broken = |kind: &str, pointer: &str, value: Value| {
        let mut document = of_kind(&documents, kind);
        *document.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer} in {kind}")) = value;
        document
    };
    for document in [
        broken(
            "Deployment",
            "/spec/template/spec/containers/0/ports/0",
            serde_json::json!({ "containerport": 1 }),
        ),
        broken("Deployment", "/spec/template/spec/terminationGracePeriodSeconds", "660s".into()),
        broken("PodDisruptionBudget", "/spec", serde_json::json!({ "maxUnavailabel": 1 })),
        broken("NetworkPolicy", "/spec", serde_json::json!({ "policyTypes": ["Ingress"], "ingres": [] })),
    ] {
        assert!(!validated(std::slice::from_ref(&document), "1.37").status.success(), "{document}");
    }
    let monitor = broken("PodMonitor", "/spec/podMetricsEndpoints/0/interval", "15 seconds".into());
    assert!(!monitors_validated(&[monitor]).status.success());
}

#[test]
fn the_component_adds_the_sidecar_to_any_deployment_and_keeps_what_it_has() {
    let overlay = tempfile::tempdir_in(root().join("target")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(overlay.path().join(name), text).unwrap();
    let deployment = |name: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{ name: {name} }}\nspec:\n  selector: {{ matchLabels: {{ \
             app: {name} }} }}\n  template:\n    metadata: {{ labels: {{ app: {name} }} }}\n    spec:\n      \
             initContainers: [{{ name: migrate, image: migrate:1 }}]\n      containers: [{{ name: {name}, image: \
             agent:1, volumeMounts: [{{ name: data, mountPath: /data }}] }}]\n      volumes: [{{ name: data, emptyDir: \
             {{}} }}]\n"
        )
    };
    write("one.yaml", &deployment("one"));
    write("two.yaml", &deployment("two"));
    write(
        "kustomization.yaml",
        "resources: [one.yaml, two.yaml]\ncomponents: [../../deploy/kustomize/sidecar]\nnamePrefix: team-\n",
    );
    let documents = kustomized(overlay.path());
    let found: Vec<&Value> = documents.iter().filter(|it| it["kind"] == "Deployment").collect();
    assert_eq!(found.len(), 2);
    for deployment in found {
        let spec = at(deployment, "/spec/template/spec");
        let names = |list: &str| -> Vec<String> {
            let items = spec[list].as_array().unwrap().iter();
            items.map(|item| item["name"].as_str().unwrap().to_owned()).collect()
        };
        let contains = |list: &str, name: &str| names(list).iter().any(|it| it == name);
        assert!(contains("initContainers", "migrate") && contains("initContainers", "toolrein"), "{spec}");
        assert!(
            ["data", "toolrein", "toolrein-audit"].iter().all(|name| contains("volumes", name)),
            "{spec}"
        );
        assert_eq!(spec["containers"][0]["env"][0]["name"], "OPENAI_BASE_URL");
        assert_eq!(spec["containers"][0]["volumeMounts"][0]["name"], "data");
        let mounted = spec["volumes"].as_array().unwrap().iter().find(|it| it["name"] == "toolrein").unwrap();
        assert_eq!(mounted["configMap"]["name"], "team-toolrein", "the map is renamed with the rest");
        assert_eq!(at(deployment, "/spec/template/metadata/labels/toolrein"), "sidecar");
    }
}

#[test]
fn the_configurations_are_accepted() {
    for name in [
        "kustomize/sidecar/proxy.toml",
        "kustomize/gateway/proxy.toml",
        "compose/proxy.toml",
        "debian/proxy.toml",
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolrein"));
        command
            .env("REDIS_URL", "redis://:secret@redis:6379/0")
            .env("STORE_SECRET", "0123456789abcdef".repeat(4));
        let output = command.arg("check").arg(root().join("deploy").join(name)).output().unwrap();
        assert!(output.status.success(), "{name}: {}", said(&output));
        assert!(!said(&output).contains("is not set here"), "{name}: {}", said(&output));
    }
}

#[test]
fn streams_of_ten_minutes_finish_before_anything_is_killed() {
    for (overlay, name) in [("example", "sidecar"), ("gateway", "gateway")] {
        let drain = config(&format!("kustomize/{name}/proxy.toml")).limits.drain_timeout;
        assert!(drain >= STREAM, "{overlay}: {drain:?}");
        let deployment = of_kind(&rendered(overlay), "Deployment");
        let spec = at(&deployment, "/spec/template/spec");
        let grace = spec["terminationGracePeriodSeconds"].as_u64().unwrap();
        let before =
            spec["containers"][0].pointer("/lifecycle/preStop/sleep/seconds").and_then(Value::as_u64);
        assert!(grace > drain.as_secs() + before.unwrap_or(0), "{overlay}: {grace} s against {drain:?}");
    }
}

#[test]
fn the_config_maps_hold_the_files_and_switch_on_what_is_on_without_a_file() {
    let shipped = Config::load(Source::Shipped, &Overrides::default(), REGISTRY).unwrap();
    for (overlay, name) in [("example", "kustomize/sidecar"), ("gateway", "kustomize/gateway")] {
        let map = of_kind(&rendered(overlay), "ConfigMap");
        assert_eq!(at(&map, "/data/proxy.toml"), deployed(&format!("{name}/proxy.toml")));
        let deployed = config(&format!("{name}/proxy.toml"));
        assert_eq!(deployed.policy_settings, shipped.policy_settings);
        assert_eq!(deployed.policy_names(), shipped.policy_names());
        assert_eq!((deployed.mode, &deployed.reask), (shipped.mode, &shipped.reask));
    }
}

/// What the program takes at most, in bytes. The figures that no setting bounds are measured (docs/performance.md): 12 MB
/// when idle, 48 KiB for a connection with an idle stream, 200 bytes for a known call, 280 for a name in a cache; a
/// conversation has three (its own, its newest request's and its history's). Each byte of a body counts three times:
/// for what is derived while it is read (spans, the copy of a body of unknown length) and for what the allocator keeps.
fn most_memory(config: &Config) -> u64 {
    let (limits, store) = (&config.limits, &config.store);
    let updates_of_a_shared_store = 16 << 20;
    // With a token: the newest requests of conversations, and fifty decisions with a text of 500 characters each.
    let contents = match config.admin.has_token() {
        true => config.admin.bodies_bytes + u64::from(config.admin.conversations) * 120 * 1024,
        false => 0,
    };
    12_000_000
        + limits.connections as u64 * 48 * 1024
        + 3 * limits.total_bytes
        + store.hidden_exchange_bytes
        + store.memo_bytes
        + store.calls * 200
        + store.conversations * 3 * 280
        + u64::from(config.admin.conversations) * 2 * 1024
        + contents
        + updates_of_a_shared_store
}

#[test]
fn what_the_limits_allow_fits_the_memory_of_the_pod() {
    let sidecar = sidecar(&of_kind(&rendered("example"), "Deployment"));
    let gateway = at(&of_kind(&rendered("gateway"), "Deployment"), "/spec/template/spec/containers/0");
    for (name, container) in [("sidecar", sidecar), ("gateway", gateway)] {
        let config = config(&format!("kustomize/{name}/proxy.toml"));
        let limit = container["resources"]["limits"]["memory"].as_str().unwrap();
        let mebibytes: u64 = limit.strip_suffix("Mi").unwrap().parse().unwrap();
        let (most, limit) = (most_memory(&config), mebibytes << 20);
        assert!(most <= limit, "{name}: {most} bytes against {limit}");
        assert!(config.limits.total_bytes / 2 >= config.limits.request_bytes);
        assert!(config.limits.total_bytes / 4 >= config.limits.reply_bytes as u64, "with a decoded copy");
    }
}

#[test]
fn the_pod_mounts_no_token_bounds_its_volumes_and_says_who_reaches_the_admin_port() {
    let [proxy, admin] = shipped_ports();
    for overlay in ["example", "gateway"] {
        let documents = rendered(overlay);
        let deployment = of_kind(&documents, "Deployment");
        let spec = at(&deployment, "/spec/template/spec");
        assert_eq!(spec["automountServiceAccountToken"], false);
        for volume in spec["volumes"].as_array().unwrap() {
            assert!(
                volume.get("emptyDir").is_none_or(|it| it["sizeLimit"].is_string()),
                "no bound: {volume}"
            );
        }
        let policies = documents.iter().filter(|it| it["kind"] == "NetworkPolicy");
        let ours = policies.filter(|it| it["spec"]["podSelector"]["matchLabels"]["toolrein"].is_string());
        let [policy] = ours.collect::<Vec<_>>()[..] else { panic!("one policy for toolrein in {overlay}") };
        assert!(
            deployment["spec"]["template"]["metadata"]["labels"]["toolrein"]
                == policy["spec"]["podSelector"]["matchLabels"]["toolrein"]
        );
        for rule in policy["spec"]["ingress"].as_array().unwrap() {
            let opens = |port: u16| {
                rule["ports"].as_array().unwrap().iter().any(|range| {
                    let first = range["port"].as_u64().unwrap();
                    let last = range["endPort"].as_u64().unwrap_or(first);
                    range["protocol"] != "UDP" && (first..=last).contains(&port.into())
                })
            };
            assert!(!opens(admin) || rule["from"][0]["namespaceSelector"].is_object(), "{overlay}: {rule}");
            assert!(overlay != "gateway" || !opens(proxy) || rule["from"].is_array(), "{overlay}: {rule}");
        }
    }
}

#[test]
fn the_admin_port_of_the_pod_answers_over_both_families() {
    let address: SocketAddr = config("kustomize/sidecar/proxy.toml").listen.admin;
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

/// What the real kustomize renders.
fn rendered(overlay: &str) -> Vec<Value> {
    kustomized(&root().join("deploy/kustomize").join(overlay))
}

fn kustomized(folder: &Path) -> Vec<Value> {
    let output = run(tool("kubectl").arg("kustomize").arg(folder), "");
    assert!(output.status.success(), "{}", said(&output));
    let script = root().join("tests/deploy/documents.py");
    let output = run(tool("python").arg(script), &String::from_utf8(output.stdout).unwrap());
    assert!(output.status.success(), "{}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The only document of this kind, or the first.
fn of_kind(documents: &[Value], kind: &str) -> Value {
    documents.iter().find(|it| it["kind"] == kind).unwrap_or_else(|| panic!("no {kind}")).clone()
}

fn sidecar(deployment: &Value) -> Value {
    let containers = at(deployment, "/spec/template/spec/initContainers");
    let found = containers.as_array().unwrap().iter().find(|it| it["name"] == "toolrein").unwrap().clone();
    assert_eq!(found["restartPolicy"], "Always", "a native sidecar");
    found
}

fn at(document: &Value, pointer: &str) -> Value {
    document.pointer(pointer).unwrap_or_else(|| panic!("no {pointer} in {document}")).clone()
}

/// What kubernetes-validate says of these documents, by the schemas of one version of Kubernetes.
fn validated(documents: &[Value], version: &str) -> Output {
    let mut file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    for document in documents {
        // JSON is YAML.
        writeln!(file, "---\n{document}").unwrap();
    }
    run(tool("kubernetes-validate").args(["-k", version, "--strict"]).arg(file.path()), "")
}

fn monitors_validated(monitors: &[Value]) -> Output {
    let script = root().join("tests/deploy/pod_monitor.mjs");
    run(Command::new("node").arg(script), &Value::from(monitors.to_vec()).to_string())
}

/// A tool of the virtual environment.
fn tool(name: &str) -> Command {
    let path = root().join(".venv/bin").join(name);
    assert!(path.exists(), "{} is missing: make deploy-tools", path.display());
    Command::new(path)
}

fn run(command: &mut Command, input: &str) -> Output {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    // A tool that has failed already reads nothing.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// The configuration in this file of `deploy/`.
fn config(name: &str) -> Config {
    Config::load(Source::File(path(name)), &Overrides::default(), REGISTRY)
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The ports of `proxy.toml`: the proxy's and the admin's.
fn shipped_ports() -> [u16; 2] {
    let shipped = Config::load(Source::Shipped, &Overrides::default(), REGISTRY).unwrap();
    [shipped.listen.proxy.port(), shipped.listen.admin.port()]
}

fn deployed(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn path(name: &str) -> PathBuf {
    root().join("deploy").join(name)
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
