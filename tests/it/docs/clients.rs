//! Programs of the pages, in Python and Node: each runs with the real packages and prints an answer of the simulated
//! model. Commands for a cluster: the real kubectl and helm render what they would apply. Apart from the other tests,
//! since they need these packages and tools (`make clients deploy-tools`).

use super::commands::CLUSTER;
use super::pages::{page, pages, root};
use super::sandbox::Sandbox;
use std::io::Write as _;
use std::process::{Command, Stdio};

#[test]
fn every_program_of_the_pages_prints_an_answer() {
    let sandbox = Sandbox::new();
    let mut programs = 0;
    for page in pages() {
        for block in page.blocks() {
            let mut command = match block.language {
                "python" => python(),
                "js" => node(),
                _ => continue,
            };
            sandbox.equip(&mut command);
            // LiteLLM's table of prices comes with the package.
            command.env("LITELLM_LOCAL_MODEL_COST_MAP", "True").env("PYTHONUTF8", "1");
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            child.stdin.take().unwrap().write_all(sandbox.here(&block.text).as_bytes()).unwrap();
            let output = child.wait_with_output().unwrap();
            let (printed, said) =
                (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            let at = format!("{}:{}", page.path, block.line);
            assert!(output.status.success() && !printed.trim().is_empty(), "{at}\n{printed}{said}");
            programs += 1;
        }
    }
    assert!(programs >= 8, "{programs}");
    let governed = sandbox.program.metric(r#"toolrein_requests_total{status="200"}"#);
    assert!(governed >= f64::from(programs), "{governed} requests of {programs} programs");
}

#[test]
fn every_command_for_a_cluster_renders_an_agent_with_its_sidecar() {
    let sandbox = Sandbox::new();
    assert!(root().join(".venv/bin/helm").exists(), "helm is missing: make deploy-tools");
    let mut agents = 0;
    let page = page(CLUSTER.to_owned());
    for block in page.blocks().iter().filter(|block| block.language == "sh") {
        let output = sandbox.run(&block.text);
        let (printed, said) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{}:{}\n{printed}{said}", page.path, block.line);
        let applies = block.text.contains("apply -k") || block.text.contains("helm upgrade");
        let has_sidecar =
            printed.contains("image: toolrein:0.1.0") && printed.contains("restartPolicy: Always");
        assert!(!applies || has_sidecar, "{}:{}\n{printed}", page.path, block.line);
        agents += u32::from(applies);
    }
    assert_eq!(agents, 3, "by kustomize twice and by helm");
}

fn python() -> Command {
    let python = root().join(".venv/bin/python");
    assert!(python.exists(), "{} is missing: make clients", python.display());
    let mut command = Command::new(python);
    command.args(["-I", "-"]);
    command
}

fn node() -> Command {
    let folder = root().join("tests/clients/node");
    assert!(folder.join("node_modules/openai").exists(), "no packages in {}: make clients", folder.display());
    let mut command = Command::new("node");
    command.args(["--input-type=module", "-"]).current_dir(folder);
    command
}
