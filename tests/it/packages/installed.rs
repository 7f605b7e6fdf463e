//! Packages without a compiler, as people install them: a wheel by pip and uv in a fresh virtual environment, npm's packages
//! in a fresh folder by way of a registry on this machine, the archive by the installer. Each is made of the debug build
//! by the script that packs releases; nothing is compiled and nothing is downloaded.

use super::support::program::Toolrein;
use super::{is_ready, only, root, run, said, text_of};
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_toolrein");
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The last line of the demonstration's first part.
const ANSWERED: &str = "toolrein: 4 of 4 scenes answered, not 1;";

/// The target of this build, as Rust names it.
fn host() -> String {
    let version = run(Command::new("rustc").arg("-vV"));
    version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned()
}

/// A folder with packages of the debug build.
fn packed(kinds: &str) -> tempfile::TempDir {
    let dist = tempfile::tempdir().unwrap();
    pack(Path::new(PROGRAM), &host(), kinds, dist.path());
    dist
}

fn pack(program: &Path, target: &str, kinds: &str, dist: &Path) {
    run(&mut packing(program, target, kinds, dist));
}

fn packing(program: &Path, target: &str, kinds: &str, dist: &Path) -> Command {
    let mut command = Command::new("python3");
    command.arg(root().join("deploy/pack.py")).arg(program).args([target, "--fast", "--kinds", kinds]);
    command.env("DIST", dist).env("PYTHONDONTWRITEBYTECODE", "1").current_dir(root());
    command
}

/// The demonstration, on free ports.
fn demonstrate(command: &mut Command) -> String {
    let free = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    run(command.args(["demo", "--once"]).args(free))
}

/// A tool of the virtual environment for tests.
fn tool(name: &str) -> PathBuf {
    let path = root().join(".venv/bin").join(name);
    assert!(path.exists(), "{} is missing: make clients", path.display());
    path
}

#[test]
fn the_wheel_installs_in_a_fresh_environment_and_runs_by_pip_and_by_uv() {
    let dist = tempfile::tempdir().unwrap();
    let make = Command::new("make")
        .args(["packages", "PROFILE=dev", &format!("PROGRAM={PROGRAM}")])
        .env("DIST", dist.path())
        .current_dir(root())
        .output()
        .unwrap();
    assert!(make.status.success(), "{}", said(&make));
    let home = tempfile::tempdir().unwrap();
    let environment = home.path().join("venv");
    run(Command::new("python3").args(["-m", "venv"]).arg(&environment));
    let pip = |arguments: &[&str]| {
        let mut pip = Command::new(environment.join("bin/pip"));
        pip.env("HOME", home.path()).env("PIP_DISABLE_PIP_VERSION_CHECK", "1").args(arguments);
        run(&mut pip)
    };
    let dist = dist.path().to_str().unwrap();
    pip(&["install", "--no-index", "--find-links", dist, "toolrein"]);
    let installed = environment.join("bin/toolrein");
    assert!(demonstrate(Command::new(&installed).env("HOME", home.path())).contains(ANSWERED));
    let about = pip(&["show", "--files", "toolrein"]);
    for line in [format!("Version: {VERSION}"), format!("toolrein-{VERSION}.dist-info/licenses/LICENSE")] {
        assert!(about.contains(&line), "{about}");
    }
    pip(&["uninstall", "--yes", "toolrein"]);
    assert!(!installed.exists(), "pip removes what it installed");

    let mut uvx = Command::new(tool("uvx"));
    uvx.env("HOME", home.path())
        .env("UV_CACHE_DIR", home.path().join("uv"))
        .env("UV_PYTHON_DOWNLOADS", "never");
    uvx.args(["--offline", "--no-index", "--find-links", dist, "toolrein"]);
    assert!(demonstrate(&mut uvx).contains(ANSWERED));
}

/// A registry of npm with the packages of a folder.
struct Registry {
    server: Child,
    address: String,
}

impl Registry {
    fn of(dist: &Path) -> Self {
        let mut command = Command::new("python3");
        command.arg(root().join("tests/packages/registry.py")).arg(dist);
        let mut server = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut address = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut address).unwrap();
        Self { server, address: address.trim().to_owned() }
    }

    /// npm or npx in this folder, which ask this registry alone.
    fn client(&self, name: &str, folder: &Path) -> Command {
        let mut command = Command::new(name);
        command.current_dir(folder).env("HOME", folder).env("npm_config_registry", &self.address);
        command.env("npm_config_cache", folder.join("cache")).env("npm_config_update_notifier", "false");
        command.env("npm_config_audit", "false").env("npm_config_fund", "false");
        command
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn the_packages_of_npm_run_in_a_fresh_folder_and_pass_signals_and_exit_codes_on() {
    let dist = packed("npm");
    let registry = Registry::of(dist.path());
    let folder = tempfile::tempdir().unwrap();
    let mut npx = registry.client("npx", folder.path());
    assert!(demonstrate(npx.args(["--yes", "toolrein"])).contains(ANSWERED));

    // Without the scripts of packages, as careful people install: this one has none.
    run(registry.client("npm", folder.path()).args(["install", "--ignore-scripts", "toolrein"]));
    let starter = folder.path().join("node_modules/.bin/toolrein");
    let output = Command::new(&starter).args(["check", "missing.toml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    let settings =
        "listen.proxy = \"127.0.0.1:0\"\nlisten.admin = \"127.0.0.1:0\"\nupstream.url = \"demo:\"\n";
    let program = Toolrein::start_at(&starter, settings);
    let address = program.origin().trim_start_matches("http://").to_owned();
    is_ready(&program);
    let logs = program.stop();
    assert!(logs.iter().any(|line| line.contains("\"drained\"")), "SIGTERM reached the program: {logs:?}");
    assert!(std::net::TcpStream::connect(&address).is_err(), "and nothing serves any more");

    std::fs::remove_dir_all(folder.path().join("node_modules/@toolrein")).unwrap();
    let output = Command::new(&starter).arg("--version").output().unwrap();
    assert!(!output.status.success() && said(&output).contains("--omit=optional"), "{}", said(&output));
}

#[test]
fn equal_programs_give_equal_packages() {
    let program = windows_program();
    let digests = || {
        let dist = tempfile::tempdir().unwrap();
        pack(program.path(), "x86_64-pc-windows-msvc", "archive,wheel,npm", dist.path());
        run(Command::new("sh").args(["-c", "sha256sum *"]).current_dir(dist.path()))
    };
    let first = digests();
    assert!(first.lines().count() == 4 && first == digests(), "{first}");
}

/// The first bytes of a program for Windows, as far as they name its processor.
fn windows_program() -> tempfile::NamedTempFile {
    let mut bytes = vec![0; 256];
    bytes[..2].copy_from_slice(b"MZ");
    bytes[60] = 128;
    bytes[128..134].copy_from_slice(b"PE\0\0\x64\x86");
    written(&bytes)
}

fn written(bytes: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    file
}

#[test]
fn each_platform_has_its_names_and_a_program_of_another_one_is_refused() {
    let mac = written(&[b"\xcf\xfa\xed\xfe\x0c\0\0\x01".as_slice(), &[0; 64]].concat());
    let windows = windows_program();
    for (program, target, tag, platform, file) in [
        (mac.path(), "aarch64-apple-darwin", "macosx_11_0_arm64", "darwin-arm64", "toolrein"),
        (windows.path(), "x86_64-pc-windows-msvc", "win_amd64", "win32-x64", "toolrein.exe"),
    ] {
        let dist = tempfile::tempdir().unwrap();
        pack(program, target, "wheel,npm", dist.path());
        let wheel = only(dist.path(), ".whl");
        assert!(wheel.ends_with(format!("toolrein-{VERSION}-py3-none-{tag}.whl")), "{}", wheel.display());
        let files = run(Command::new("python3").args(["-m", "zipfile", "-l"]).arg(&wheel));
        assert!(files.contains(&format!("toolrein-{VERSION}.data/scripts/{file}")), "{files}");
        let about = member(&dist.path().join(format!("toolrein-{platform}-{VERSION}.tgz")), "package.json");
        let (system, processor) = platform.split_once('-').unwrap();
        assert_eq!((&about["os"][0], &about["cpu"][0]), (&system.into(), &processor.into()));
        let starter = member(&dist.path().join(format!("toolrein-{VERSION}.tgz")), "package.json");
        assert_eq!(starter["optionalDependencies"][about["name"].as_str().unwrap()], VERSION, "{starter}");
        let dist = tempfile::tempdir().unwrap();
        for other in ["x86_64-unknown-linux-musl", "x86_64-apple-darwin"] {
            let refused = packing(program, other, "wheel", dist.path()).output().unwrap();
            assert!(
                !refused.status.success() && said(&refused).contains("is no program for"),
                "{}",
                said(&refused)
            );
        }
    }
}

/// A member of a package of npm, as JSON.
fn member(package: &Path, name: &str) -> Value {
    let mut tar = Command::new("tar");
    tar.arg("-xOzf").arg(package).arg(format!("package/{name}"));
    serde_json::from_str(&run(&mut tar)).unwrap()
}

/// A release in a folder: the archive of this host and its checksum.
fn released() -> tempfile::TempDir {
    let dist = tempfile::tempdir().unwrap();
    let release = dist.path().join(format!("v{VERSION}"));
    std::fs::create_dir(&release).unwrap();
    pack(Path::new(PROGRAM), &host(), "archive", &release);
    run(Command::new("sh").args(["-c", "sha256sum -- *.tar.gz > SHA256SUMS"]).current_dir(&release));
    dist
}

/// Runs the installer, or this part of it, for a user whose home is `home`.
fn install(script: &str, downloads: &Path, home: &Path) -> Output {
    let mut sh = Command::new("sh");
    sh.args(["-c", script]).env("HOME", home).env("TOOLREIN_VERSION", VERSION).env("TOOLREIN_TARGET", host());
    sh.env("TOOLREIN_DOWNLOADS", format!("file://{}", downloads.display())).current_dir(home);
    sh.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn the_installer_installs_what_was_released_and_nothing_else() {
    let release = released();
    let script = text_of("deploy/install/install.sh");
    let home = tempfile::tempdir().unwrap();
    let output = install(&script, release.path(), home.path());
    assert!(output.status.success(), "{}", said(&output));
    let installed = home.path().join(".local/bin/toolrein");
    assert!(run(Command::new(&installed).arg("--version")).contains(VERSION));
    assert!(
        said(&output).contains("Try it: ") && said(&output).contains("is not in PATH"),
        "{}",
        said(&output)
    );

    let folder = release.path().join(format!("v{VERSION}"));
    let archive = only(&folder, ".tar.gz");
    let untouched = std::fs::read(&archive).unwrap();
    let refused = |script: &str, expected: &str| {
        let home = tempfile::tempdir().unwrap();
        let output = install(script, release.path(), home.path());
        assert!(
            !output.status.success() && said(&output).contains(expected),
            "{expected}: {}",
            said(&output)
        );
        assert!(!home.path().join(".local/bin/toolrein").exists(), "{expected}: nothing is installed");
    };
    let mut other = untouched.clone();
    other.push(0);
    std::fs::write(&archive, other).unwrap();
    refused(&script, "is not the released file");
    std::fs::write(&archive, untouched).unwrap();
    std::fs::write(folder.join("SHA256SUMS"), "").unwrap();
    refused(&script, "has no toolrein-");
    std::fs::remove_file(folder.join("SHA256SUMS")).unwrap();
    refused(&script, "cannot download");
    // A connection that breaks leaves half of the script.
    let home = tempfile::tempdir().unwrap();
    let half = script.rsplit_once("\nmain").unwrap().0;
    install(half, release.path(), home.path());
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "it is run as a whole or not at all");
    let mut unfilled = Command::new("sh");
    unfilled.arg(root().join("deploy/install/install.sh")).env("HOME", home.path());
    let output = unfilled.env_remove("TOOLREIN_DOWNLOADS").output().unwrap();
    assert!(!output.status.success() && said(&output).contains("belongs to no release"), "{}", said(&output));
}

#[test]
fn the_formula_and_the_installer_of_a_release_have_its_checksums() {
    let dist = tempfile::tempdir().unwrap();
    let targets = [
        "aarch64-apple-darwin",
        "x86_64-apple-darwin",
        "aarch64-unknown-linux-musl",
        "x86_64-unknown-linux-musl",
    ];
    let mut sums = String::new();
    for (nth, target) in targets.iter().enumerate() {
        writeln!(sums, "{:064x}  toolrein-{VERSION}-{target}.tar.gz", nth + 1).unwrap();
    }
    let fill = |sums: &str| {
        std::fs::write(dist.path().join("SHA256SUMS"), sums).unwrap();
        let mut fill = Command::new("python3");
        fill.arg(root().join("deploy/install/fill.py")).arg("https://code.example/acme/toolrein");
        fill.arg(dist.path().join("SHA256SUMS")).env("DIST", dist.path()).output().unwrap()
    };
    let output = fill(&sums);
    assert!(output.status.success(), "{}", said(&output));
    let formula = std::fs::read_to_string(dist.path().join("toolrein.rb")).unwrap();
    let downloads = format!("https://code.example/acme/toolrein/releases/download/v{VERSION}");
    for (nth, target) in targets.iter().enumerate() {
        let lines = format!(
            "url \"{downloads}/toolrein-{VERSION}-{target}.tar.gz\"\n      sha256 \"{:064x}\"\n",
            nth + 1
        );
        assert!(formula.contains(&lines), "{formula}");
    }
    let installer = std::fs::read_to_string(dist.path().join("install.sh")).unwrap();
    assert!(installer.contains(&format!("${{TOOLREIN_VERSION:-{VERSION}}}")), "{installer}");
    assert!(
        [&formula, &installer].iter().all(|text| !text.contains("@VERSION@") && !text.contains("@SHA256"))
    );
    run(Command::new("sh").arg("-n").arg(dist.path().join("install.sh")));
    let output = fill(sums.split_once('\n').unwrap().1);
    assert!(!output.status.success() && said(&output).contains("has no toolrein-"), "{}", said(&output));
}

#[test]
fn cargo_binstall_finds_the_archive_that_is_released() {
    let manifest: toml::Table = text_of("Cargo.toml").parse().unwrap();
    let binstall = &manifest["package"]["metadata"]["binstall"];
    let filled = |key: &str, target: &str| {
        let ending = if target.contains("windows") { ".exe" } else { "" };
        let values = [
            ("repo", "REPO"),
            ("name", "toolrein"),
            ("version", VERSION),
            ("target", target),
            ("bin", "toolrein"),
            ("binary-ext", ending),
        ];
        let text = binstall[key].as_str().unwrap().to_owned();
        values.iter().fold(text, |text, (name, value)| text.replace(&format!("{{ {name} }}"), value))
    };
    let dist = tempfile::tempdir().unwrap();
    let program = windows_program();
    pack(program.path(), "x86_64-pc-windows-msvc", "archive", dist.path());
    let archive = only(dist.path(), ".tar.gz");
    let url = filled("pkg-url", "x86_64-pc-windows-msvc");
    let (folder, file) = url.rsplit_once('/').unwrap();
    assert_eq!(folder, format!("REPO/releases/download/v{VERSION}"));
    assert!(archive.ends_with(file), "{file} against {}", archive.display());
    let files = run(Command::new("tar").arg("-tzf").arg(&archive));
    assert!(files.lines().any(|line| line == filled("bin-dir", "x86_64-pc-windows-msvc")), "{files}");
    assert_eq!(binstall["pkg-fmt"].as_str(), Some("tgz"));
}

#[test]
fn the_source_distribution_has_what_pip_builds_the_program_from() {
    let dist = tempfile::tempdir().unwrap();
    run(Command::new(tool("maturin")).args(["sdist", "--out"]).arg(dist.path()));
    let files = run(Command::new("tar").arg("-tzf").arg(only(dist.path(), ".tar.gz")));
    for file in [
        "Cargo.toml",
        "Cargo.lock",
        "proxy.toml",
        "src/main.rs",
        "docs/clients.md",
        "PKG-INFO",
        "pyproject.toml",
    ] {
        assert!(
            files.lines().any(|line| line == format!("toolrein-{VERSION}/{file}")),
            "no {file} in\n{files}"
        );
    }
    let settings: toml::Table = text_of("pyproject.toml").parse().unwrap();
    assert_eq!(settings["tool"]["maturin"]["bindings"].as_str(), Some("bin"));
}

#[test]
fn a_target_that_cannot_be_installed_is_named_and_fails_nothing() {
    let tools = tempfile::tempdir().unwrap();
    let rustup = tools.path().join("rustup");
    std::fs::write(&rustup, "#!/bin/sh\necho 'error: could not download' >&2\nexit 1\n").unwrap();
    run(Command::new("chmod").arg("+x").arg(&rustup));
    let path = format!("{}:{}", tools.path().display(), std::env::var("PATH").unwrap());
    let mut make = Command::new("make");
    make.args(["static", "TARGET=aarch64-unknown-linux-musl"]).env("PATH", path).current_dir(root());
    let output = make.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(
        said(&output).contains("aarch64-unknown-linux-musl cannot be installed here"),
        "{}",
        said(&output)
    );
}

#[test]
fn the_release_builds_every_platform_that_its_packages_name_and_attests_what_it_publishes() {
    let release = text_of(".github/workflows/release.yml");
    let dist = tempfile::tempdir().unwrap();
    pack(windows_program().path(), "x86_64-pc-windows-msvc", "npm", dist.path());
    let starter = member(&dist.path().join(format!("toolrein-{VERSION}.tgz")), "package.json");
    let (_, published) = release.split_once("for platform in ").unwrap();
    let mut published: Vec<&str> = published.split(';').next().unwrap().split_whitespace().collect();
    published.sort_unstable();
    let named: Vec<String> = starter["optionalDependencies"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(named, published.iter().map(|it| format!("@toolrein/{it}")).collect::<Vec<_>>());
    let built: Vec<&str> =
        release.split("{ target: ").skip(1).map(|rest| rest.split(',').next().unwrap()).collect();
    assert_eq!(built.len(), named.len(), "{built:?}");
    let formula = text_of("deploy/install/toolrein.rb");
    for found in formula.split("@SHA256 ").skip(1) {
        let target = found.split('@').next().unwrap();
        assert!(built.contains(&target), "the formula names {target}, which is not built");
    }
    for step in
        ["attest-build-provenance@", "attest-sbom@", "subject-checksums: dist/SHA256SUMS", "make sbom"]
    {
        assert!(release.contains(step), "{step}");
    }
}
