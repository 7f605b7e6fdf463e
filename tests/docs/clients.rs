//! Programs of the pages, in Python and Node: each runs with the real packages and prints an answer of the simulated
//! model. Apart from the other tests, since they need these packages (`make clients`).

use super::pages::{pages, root};
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
