//! The chart: the real Helm renders from it what kustomize renders from the same files, and its values do what they say.

use super::{
    VERSIONS, WORKLOADS, at, documents, fits_monitor_schema, fits_schemas, kustomized, of_kind, overlay_of,
    path, rendered, run, said, sidecar, tool, workload,
};
use serde_json::{Value, json};
use std::process::{Command, Output};

const CHART: &str = "helm/toolrein";

fn helm(arguments: &[&str]) -> Output {
    helm_of(&path(CHART).to_string_lossy(), arguments)
}

fn helm_of(chart: &str, arguments: &[&str]) -> Output {
    run(tool("helm").args(["template", "release", chart]).args(arguments), "")
}

/// What the chart renders with these arguments, without what is empty.
fn charted(arguments: &[&str]) -> Vec<Value> {
    let output = helm(arguments);
    assert!(output.status.success(), "{}", said(&output));
    documents(output).into_iter().filter(|it| !it.is_null()).collect()
}

/// `--set-file workloads=` with these.
fn with_workloads(workloads: &str, further: &[&str]) -> Result<Vec<Value>, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), workloads).unwrap();
    let argument = format!("workloads={}", file.path().display());
    let output = helm(&[&["--set-file", &argument], further].concat());
    if output.status.success() { Ok(documents(output)) } else { Err(said(&output)) }
}

/// Sorted, and without the note of where the pod is, which kustomize alone needs.
fn comparable(mut documents: Vec<Value>) -> Vec<Value> {
    for document in &mut documents {
        let metadata = document["metadata"].as_object_mut().unwrap();
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove("toolrein/pod");
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    documents.sort_by_key(|it| format!("{} {}", it["kind"], it["metadata"]["name"]));
    documents
}

#[test]
fn the_chart_applies_what_kustomize_applies() {
    let gateway = charted(&["--set", "gateway.enabled=true"]);
    assert_eq!(comparable(gateway), comparable(rendered("gateway")));
    let agent = format!("workloads={}", path("kustomize/example/agent.yaml").display());
    let agent = charted(&["--set-file", &agent]);
    assert_eq!(comparable(agent), comparable(rendered("example")));
    let marked = ("annotations: { toolrein/containers: marked }", "{ name: OPENAI_BASE_URL, value: here }");
    for (metadata, env) in [("", ""), marked] {
        let all = WORKLOADS.map(|(kind, _)| workload(kind, &kind.to_lowercase(), metadata, env)).concat();
        let charted = with_workloads(&all, &[]).unwrap();
        // Both lists of kustomize's own component: the configuration and the budget beside the workloads.
        assert_eq!(charted.len(), WORKLOADS.len() + 2);
        let rendered = comparable(kustomized(overlay_of(&all).path()));
        for (charted, rendered) in comparable(charted).into_iter().zip(rendered) {
            // The overlay leaves the version of the image to its user; the chart has its own.
            let charted =
                charted.to_string().replace(&format!("toolrein:{}", env!("CARGO_PKG_VERSION")), "toolrein");
            let charted: Value = serde_json::from_str(&charted).unwrap();
            assert_eq!(charted, rendered, "{metadata}");
        }
    }
}

#[test]
fn what_the_chart_renders_fits_the_schemas_of_kubernetes_and_needs_nothing_else_in_the_cluster() {
    let agent = format!("workloads={}", path("kustomize/example/agent.yaml").display());
    let arguments: [&[&str]; 2] = [&["--set-file", &agent], &["--set", "gateway.enabled=true"]];
    for (arguments, (overlay, versions)) in arguments.into_iter().zip(VERSIONS) {
        fits_schemas(&charted(arguments), versions, overlay);
        let mut documents = charted(&[arguments, &["--set", "monitor=true"]].concat());
        let monitors: Vec<Value> = documents.extract_if(.., |it| it["kind"] == "PodMonitor").collect();
        fits_monitor_schema(&monitors, overlay);
    }
    assert_eq!(charted(&[]), Vec::<Value>::new(), "nothing unless asked");
}

#[test]
fn the_values_of_the_chart_change_what_they_name() {
    let agent = std::fs::read_to_string(path("kustomize/example/agent.yaml")).unwrap();
    let config = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(config.path(), "upstream.url = \"https://model.example/v1\"\n").unwrap();
    let config = format!("config={}", config.path().display());
    let values = [
        "--set",
        "image.repository=registry.example/toolrein,image.tag=9.9.9,image.pullPolicy=Always",
        "--set-json",
        r#"env=[{"name":"TOOLREIN__MODE","value":"observe"}]"#,
        "--set-json",
        r#"resources={"limits":{"memory":"1Gi"}}"#,
        "--set-file",
        &config,
    ];
    let documents = with_workloads(&agent, &values).unwrap();
    let container = sidecar(&of_kind(&documents, "Deployment"));
    assert_eq!(container["image"], "registry.example/toolrein:9.9.9");
    assert_eq!(container["imagePullPolicy"], "Always");
    assert_eq!(container["env"], json!([{ "name": "TOOLREIN__MODE", "value": "observe" }]));
    assert_eq!(container["resources"], json!({ "limits": { "memory": "1Gi" } }));
    let map = of_kind(&documents, "ConfigMap");
    assert_eq!(at(&map, "/data/proxy.toml"), "upstream.url = \"https://model.example/v1\"\n");

    let own = r#"env=[{"name":"REDIS_URL","value":"redis://own:6379/0"}]"#;
    let gateway =
        charted(&["--set", "gateway.enabled=true,gateway.redis=false,gateway.replicas=5", "--set-json", own]);
    assert!(gateway.iter().all(|it| it["metadata"]["name"] != "toolrein-redis"), "{gateway:?}");
    let deployment = of_kind(&gateway, "Deployment");
    assert_eq!(at(&deployment, "/spec/replicas"), 5);
    let env = at(&deployment, "/spec/template/spec/containers/0/env");
    let urls: Vec<&Value> = env.as_array().unwrap().iter().filter(|it| it["name"] == "REDIS_URL").collect();
    assert_eq!(urls, [&json!({ "name": "REDIS_URL", "value": "redis://own:6379/0" })]);
}

#[test]
fn wrong_values_are_refused_and_what_has_no_pod_or_says_off_stays_as_it_is() {
    for wrong in ["gatway.enabled=true", "gateway.replicas=0", "monitor=perhaps"] {
        let output = helm(&["--set", wrong]);
        assert!(!output.status.success() && said(&output).contains("values"), "{wrong}: {}", said(&output));
    }
    let marked = workload("Deployment", "agent", "annotations: { toolrein/containers: marked }", "");
    assert!(with_workloads(&marked, &[]).unwrap_err().contains("OPENAI_BASE_URL"));
    assert!(with_workloads("kind: [", &[]).unwrap_err().contains("workloads"));
    let off = workload("Deployment", "old", "labels: { toolrein: \"off\" }", "");
    let service =
        "---\napiVersion: v1\nkind: Service\nmetadata: { name: web }\nspec: { ports: [{ port: 80 }] }\n";
    let rendered = with_workloads(&format!("# Two of them.\n{off}{service}"), &[]).unwrap();
    let deployment = of_kind(&rendered, "Deployment");
    assert_eq!(
        at(&deployment, "/spec/template/spec/initContainers").as_array().unwrap().len(),
        1,
        "{deployment}"
    );
    assert_eq!(at(&of_kind(&rendered, "Service"), "/spec"), json!({ "ports": [{ "port": 80 }] }));
}

#[test]
fn the_packed_chart_has_the_version_of_the_program_and_renders_the_same() {
    let lint = run(tool("helm").args(["lint", "--strict"]).arg(path(CHART)), "");
    assert!(lint.status.success(), "{}", said(&lint));
    let folder = tempfile::tempdir().unwrap();
    let packed =
        run(tool("helm").arg("package").arg(path(CHART)).arg("--destination").arg(folder.path()), "");
    assert!(packed.status.success(), "{}", said(&packed));
    let version = env!("CARGO_PKG_VERSION");
    let archive = folder.path().join(format!("toolrein-{version}.tgz"));
    let chart = run(Command::new("tar").arg("-xOzf").arg(&archive).arg("toolrein/Chart.yaml"), "");
    assert!(said(&chart).contains(&format!("appVersion: {version}\n")), "{}", said(&chart));
    // Links lead out of the chart's folder: a package has what they lead to.
    let enabled = ["--set", "gateway.enabled=true"];
    let output = helm_of(&archive.to_string_lossy(), &enabled);
    assert_eq!(documents(output), charted(&enabled));
}
