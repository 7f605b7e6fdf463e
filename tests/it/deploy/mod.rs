//! The files of `deploy/` fit the program, and the tools that will read them accept them: kustomize renders the
//! overlays and Helm the chart, the schemas of Kubernetes and of the Prometheus Operator hold, Docker Compose and Prometheus
//! accept theirs.
//! No cluster and no image is built here.

mod compose;
mod helm;
use crate::support;

use policies::REGISTRY;
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

/// The longest stream that a shutdown must let finish.
const STREAM: Duration = Duration::from_secs(600);

/// The oldest Kubernetes that each overlay is for, as its kustomization.yaml says, and one of today.
const VERSIONS: [(&str, &[&str]); 2] = [("example", &["1.29", "1.37"]), ("gateway", &["1.30", "1.37"])];

#[test]
fn the_deployment_names_the_ports_of_the_shipped_configuration() {
    let [proxy, admin] = shipped_ports();
    for name in ["Dockerfile", "Dockerfile.release"] {
        let text = deployed(name);
        for line in
            [&*format!("EXPOSE {proxy} {admin}\n"), "USER 65532:65532\n", "ENTRYPOINT [\"/toolrein\"]"]
        {
            assert!(text.contains(line), "{name} has no {line}");
        }
    }
    let agent = of_kind(&rendered("example"), "Deployment");
    let url = at(&agent, "/spec/template/spec/containers/0/env/1");
    assert_eq!(url["name"], "OPENAI_BASE_URL", "added by the component: {url}");
    assert_eq!(url["value"], format!("http://127.0.0.1:{proxy}/v1"));
    let probes = config("kustomize/sidecar/proxy.toml").listen.probes.unwrap().port();
    assert_eq!(sidecar(&agent)["ports"][0]["containerPort"], probes);
    let gateway = of_kind(&rendered("gateway"), "Deployment");
    let ports = at(&gateway, "/spec/template/spec/containers/0/ports");
    assert_eq!([&ports[0]["containerPort"], &ports[1]["containerPort"]], [proxy, probes]);
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
fn what_kustomize_renders_fits_the_schemas_of_kubernetes_and_needs_nothing_else_in_the_cluster() {
    for (overlay, versions) in VERSIONS {
        // The schemas know no custom resource, so that each document is one of every cluster.
        fits_schemas(&rendered(overlay), versions, overlay);
        let mut documents = monitored(overlay);
        let monitors: Vec<Value> = documents.extract_if(.., |it| it["kind"] == "PodMonitor").collect();
        fits_monitor_schema(&monitors, overlay);
    }
}

fn fits_schemas(documents: &[Value], versions: &[&str], what: &str) {
    for version in versions {
        let output = validated(documents, version);
        assert!(output.status.success(), "{what}: {}", said(&output));
        let passed = said(&output).matches(" passed for resource ").count();
        assert_eq!(passed, documents.len(), "{what}: {}", said(&output));
    }
}

fn fits_monitor_schema(monitors: &[Value], what: &str) {
    assert_eq!(monitors.len(), 1, "{what}");
    let output = monitors_validated(monitors);
    assert!(output.status.success(), "{what}: {}", said(&output));
    // The schema of a custom resource accepts unknown members, so that a wrong name is found here.
    let endpoint = &monitors[0]["spec"]["podMetricsEndpoints"][0];
    assert_eq!((&endpoint["port"], &endpoint["path"]), (&"probes".into(), &"/metrics".into()));
}

#[test]
fn the_schemas_refuse_a_wrong_name_a_wrong_type_and_a_missing_member() {
    let documents = monitored("gateway");
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
fn the_pod_mounts_no_token_bounds_its_volumes_and_keeps_the_admin_port_on_loopback() {
    for (overlay, name) in [("example", "sidecar"), ("gateway", "gateway")] {
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
        let listen = config(&format!("kustomize/{name}/proxy.toml")).listen;
        assert!(listen.admin.ip().is_loopback(), "{overlay}");
        let probes = listen.probes.expect("a port of their own").port();
        let container = match overlay {
            "example" => sidecar(&deployment),
            _ => spec["containers"][0].clone(),
        };
        for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
            assert_eq!(container[probe]["httpGet"]["port"], "probes", "{overlay} {probe}");
        }
        let ports: Vec<&Value> = container["ports"].as_array().unwrap().iter().collect();
        assert!(ports.iter().any(|it| it["name"] == "probes" && it["containerPort"] == probes), "{ports:?}");
        assert!(ports.iter().all(|it| it["containerPort"] != listen.admin.port()), "{ports:?}");
    }
}

/// Each port of each rule of a NetworkPolicy, with from where it is opened.
fn opened(policy: &Value) -> Vec<(u64, Value)> {
    let rules = policy["spec"]["ingress"].as_array().unwrap().iter();
    let ports = |rule: &Value| {
        let (from, ports) = (rule["from"].clone(), rule["ports"].as_array().expect("ports").clone());
        ports.into_iter().map(move |it| {
            assert!(it.get("endPort").is_none(), "a range: {it}");
            (it["port"].as_u64().unwrap(), from.clone())
        })
    };
    rules.flat_map(|rule| ports(rule).collect::<Vec<_>>()).collect()
}

#[test]
fn a_network_policy_opens_no_port_of_an_agent_and_none_to_everybody() {
    let policies = |documents: &[Value]| -> Vec<Value> {
        documents.iter().filter(|it| it["kind"] == "NetworkPolicy").cloned().collect()
    };
    // A pod that a policy selects is isolated, and a port that a policy opens is open whatever others deny.
    assert!(policies(&rendered("example")).is_empty(), "the sidecar alone changes nothing for its agent");
    let overlay = tempfile::tempdir_in(root().join("target")).unwrap();
    let text =
        "resources: [../../deploy/kustomize/example]\ncomponents: [../../deploy/kustomize/network-policy]\n";
    std::fs::write(overlay.path().join("kustomization.yaml"), text).unwrap();
    let documents = kustomized(overlay.path());
    let output = validated(&policies(&documents), "1.37");
    assert!(output.status.success(), "{}", said(&output));
    let probes = u64::from(config("kustomize/sidecar/proxy.toml").listen.probes.unwrap().port());
    let [policy] = &policies(&documents)[..] else { panic!("one policy") };
    let [(port, from)] = &opened(policy)[..] else { panic!("one port: {policy}") };
    assert!(*port == probes && from[0]["namespaceSelector"].is_object(), "{policy}");
    let labels = at(&of_kind(&documents, "Deployment"), "/spec/template/metadata/labels");
    assert_eq!(labels["toolrein"], policy["spec"]["podSelector"]["matchLabels"]["toolrein"]);
    let gateway = policies(&rendered("gateway"));
    let gateway = gateway.iter().find(|it| it["metadata"]["name"] == "toolrein-gateway").unwrap();
    let [proxy, admin] = shipped_ports().map(u64::from);
    let gateway = opened(gateway);
    assert_eq!(gateway.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [proxy, probes], "and not {admin}");
    assert!(gateway.iter().all(|(_, from)| from.is_array()));
}

/// A workload of this kind with two containers, its pod where the kind has it.
fn workload(kind: &str, name: &str, metadata: &str, env: &str) -> String {
    let pod = format!(
        "{{ initContainers: [{{ name: migrate, image: migrate:1 }}], containers: [{{ name: logs, image: logs:1 }}, \
         {{ name: agent, image: agent:1, env: [{env}] }}], restartPolicy: Never }}"
    );
    let labels = format!("{{ labels: {{ app: {name} }} }}");
    let (api, spec) = match kind {
        "Pod" => ("v1", pod),
        "ReplicationController" => ("v1", format!("{{ template: {{ metadata: {labels}, spec: {pod} }} }}")),
        "Job" => ("batch/v1", format!("{{ template: {{ metadata: {labels}, spec: {pod} }} }}")),
        "CronJob" => {
            let job = format!("{{ template: {{ metadata: {labels}, spec: {pod} }} }}");
            ("batch/v1", format!("{{ schedule: \"0 3 * * *\", jobTemplate: {{ spec: {job} }} }}"))
        }
        _ => {
            let pod = pod.replace(", restartPolicy: Never", "");
            let selector = format!("{{ matchLabels: {{ app: {name} }} }}");
            let service = if kind == "StatefulSet" { "serviceName: any, " } else { "" };
            let template = format!("{{ metadata: {labels}, spec: {pod} }}");
            ("apps/v1", format!("{{ {service}selector: {selector}, template: {template} }}"))
        }
    };
    format!("---\napiVersion: {api}\nkind: {kind}\nmetadata: {{ name: {name}, {metadata} }}\nspec: {spec}\n")
}

/// The kinds of workloads that the component knows, with the path to their pods.
const WORKLOADS: [(&str, &str); 8] = [
    ("Deployment", "/spec/template"),
    ("StatefulSet", "/spec/template"),
    ("DaemonSet", "/spec/template"),
    ("ReplicaSet", "/spec/template"),
    ("ReplicationController", "/spec/template"),
    ("Job", "/spec/template"),
    ("CronJob", "/spec/jobTemplate/spec/template"),
    ("Pod", ""),
];

/// An overlay with these workloads and the sidecar.
fn overlay_of(workloads: &str) -> tempfile::TempDir {
    let overlay = tempfile::tempdir_in(root().join("target")).unwrap();
    std::fs::write(overlay.path().join("workloads.yaml"), workloads).unwrap();
    let text = "resources: [workloads.yaml]\ncomponents: [../../deploy/kustomize/sidecar]\n";
    std::fs::write(overlay.path().join("kustomization.yaml"), text).unwrap();
    overlay
}

/// The containers of a pod that have the address of toolrein.
fn pointed(pod: &Value) -> Vec<&str> {
    let containers = pod["spec"]["containers"].as_array().unwrap().iter();
    let has_url = |container: &&Value| {
        let is_url = |variable: &Value| {
            variable["name"] == "OPENAI_BASE_URL" && variable["value"] == "http://127.0.0.1:4242/v1"
        };
        container["env"].as_array().is_some_and(|env| env.iter().any(is_url))
    };
    containers.filter(has_url).map(|container| container["name"].as_str().unwrap()).collect()
}

#[test]
fn every_kind_of_workload_gets_the_same_sidecar_and_all_of_its_containers_or_the_marked_ones_use_it() {
    let marked = ("annotations: { toolrein/containers: marked }", "{ name: OPENAI_BASE_URL, value: here }");
    for ((metadata, env), expected) in [(("", ""), &["logs", "agent"][..]), (marked, &["agent"])] {
        let all = WORKLOADS.map(|(kind, _)| workload(kind, &kind.to_lowercase(), metadata, env));
        let overlay = overlay_of(&all.concat());
        let documents = kustomized(overlay.path());
        for version in ["1.29", "1.37"] {
            let output = validated(&documents, version);
            assert!(output.status.success(), "{version}: {}", said(&output));
        }
        assert!(
            documents.iter().all(|it| it["kind"] != "PodTemplate"),
            "the source of the parts is not applied"
        );
        let first = sidecar(&of_kind(&documents, "Deployment"));
        for (kind, pod) in WORKLOADS {
            let pod = of_kind(&documents, kind).pointer(pod).unwrap().clone();
            let names: Vec<&Value> =
                pod["spec"]["initContainers"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
            assert_eq!(names, ["toolrein", "migrate"], "{kind}: it starts before what may need it");
            assert_eq!(pod["spec"]["initContainers"][0], first, "{kind}");
            assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], 660, "{kind}");
            assert_eq!(pod["spec"]["volumes"].as_array().unwrap().len(), 2, "{kind}");
            assert_eq!(pointed(&pod), expected, "{kind}");
            let labels = &pod["metadata"]["labels"];
            let is_scaled = !["DaemonSet", "Job", "CronJob", "Pod"].contains(&kind);
            assert_eq!(labels["toolrein"], "sidecar", "{kind}");
            assert_eq!(labels.get("toolrein-eviction").is_some(), is_scaled, "{kind}");
        }
    }
}

#[test]
fn a_workload_without_a_marked_container_is_an_error_and_what_was_left_out_is_listed() {
    let marked = "annotations: { toolrein/containers: marked }";
    for (kind, _) in WORKLOADS {
        let overlay = overlay_of(&workload(kind, "agent", marked, "{ name: X, value: y }"));
        let output = run(tool("kubectl").arg("kustomize").arg(overlay.path()), "");
        assert!(
            !output.status.success() && said(&output).contains("OPENAI_BASE_URL"),
            "{kind}: {}",
            said(&output)
        );
    }
    let url = "{ name: OPENAI_BASE_URL, value: here }";
    let left_out = |workloads: &str| {
        let rendered = run(tool("kubectl").arg("kustomize").arg(overlay_of(workloads).path()), "");
        assert!(rendered.status.success(), "{}", said(&rendered));
        let rendered = String::from_utf8(rendered.stdout).unwrap();
        run(Command::new("awk").arg("-f").arg(path("kustomize/sidecar/left-out.awk")), &rendered)
    };
    let all = WORKLOADS.map(|(kind, _)| workload(kind, "agent", "", url)).concat();
    let output = left_out(&all);
    assert_eq!((said(&output).as_str(), output.status.code()), ("", Some(0)));
    let off = workload("StatefulSet", "old", "labels: { toolrein: \"off\" }", url);
    let unknown = workload("Deployment", "new", "", url).replace("kind: Deployment", "kind: Rollout");
    let output = left_out(&[all, off, unknown, workload("Job", "some", marked, url)].concat());
    let mut lines: Vec<String> = said(&output).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(
        lines,
        [
            "Job some: container logs does not use toolrein",
            "Rollout new: has no sidecar of toolrein",
            "StatefulSet old: has no sidecar of toolrein"
        ]
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn the_port_of_the_probes_answers_over_both_families_and_has_nothing_else() {
    let address: SocketAddr = config("kustomize/sidecar/proxy.toml").listen.probes.unwrap();
    assert!(address.is_ipv6() && address.ip().is_unspecified(), "{address}");
    let upstream = Scripted::start(|_, _| Reply::text("Fine."));
    let program = Toolrein::before(&upstream, "listen.probes = \"[::]:0\"\n");
    let port = program.probes_port();
    let has_ipv6 = std::net::TcpListener::bind("[::1]:0").is_ok();
    for host in ["127.0.0.1", "[::1]"] {
        if host == "[::1]" && !has_ipv6 {
            continue;
        }
        assert_eq!(get(&format!("http://{host}:{port}/readyz")).status, 200, "{host}");
    }
}

/// The overlay with the monitor of the Prometheus Operator.
fn monitored(overlay: &str) -> Vec<Value> {
    let folder = tempfile::tempdir_in(root().join("target")).unwrap();
    let text = format!(
        "resources: [../../deploy/kustomize/{overlay}]\ncomponents: [../../deploy/kustomize/monitor]\n"
    );
    std::fs::write(folder.path().join("kustomization.yaml"), text).unwrap();
    kustomized(folder.path())
}

/// What the real kustomize renders.
fn rendered(overlay: &str) -> Vec<Value> {
    kustomized(&root().join("deploy/kustomize").join(overlay))
}

fn kustomized(folder: &Path) -> Vec<Value> {
    let output = run(tool("kubectl").arg("kustomize").arg(folder), "");
    assert!(output.status.success(), "{}", said(&output));
    documents(output)
}

/// The YAML documents that a tool wrote.
fn documents(output: Output) -> Vec<Value> {
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
