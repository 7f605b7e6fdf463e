//! What is measured: a proxy in a process of its own, pinned to a processor, with what the kernel knows of it; or no
//! proxy at all, which spends nothing.

use super::load::connect;
use std::ffi::OsStr;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// The processor of every subject; the load has the other one.
const PROCESSOR: &str = "0";

/// A running proxy; ended when dropped.
pub struct Subject {
    pub port: u16,
    child: Option<Child>,
    /// It reads bodies, so that what was seen before makes a difference.
    reads: bool,
    /// Where its metrics are, if it has any.
    pub admin: u16,
}

impl Subject {
    /// The upstream itself.
    pub fn direct(upstream: SocketAddr) -> Self {
        Self { port: upstream.port(), child: None, reads: false, admin: 0 }
    }

    /// nginx with one process, connections kept, no log, bodies in memory.
    pub async fn nginx(folder: &Path, upstream: SocketAddr) -> Self {
        let port = free_port();
        let config = folder.join("nginx.conf");
        let text = include_str!("nginx.conf");
        let text = text.replace("PORT", &port.to_string()).replace("UPSTREAM", &upstream.to_string());
        fs::write(&config, text).unwrap();
        let child = pinned(&["nginx", "-p", &folder.to_string_lossy(), "-c", &config.to_string_lossy()]);
        Self { port, child: Some(child), reads: false, admin: 0 }.answering().await
    }

    /// The pass-through made of hyper: this program itself.
    pub async fn floor(upstream: SocketAddr) -> Self {
        let port = free_port();
        let child = pinned(&floor(port, upstream));
        Self { port, child: Some(child), reads: false, admin: 0 }.answering().await
    }

    /// toolrein with the shipped policy; its log goes nowhere.
    pub async fn toolrein(program: &str, folder: &Path, upstream: SocketAddr, mode: &str) -> Self {
        Self::on(&["taskset", "-c", PROCESSOR], program, folder, (upstream, mode)).await
    }

    /// The same on all processors.
    pub async fn unpinned(program: &str, folder: &Path, upstream: SocketAddr) -> Self {
        Self::on(&[], program, folder, (upstream, "enforce")).await
    }

    async fn on(before: &[&str], program: &str, folder: &Path, (upstream, mode): (SocketAddr, &str)) -> Self {
        let (port, admin) = (free_port(), free_port());
        let config = folder.join(format!("{mode}.toml"));
        fs::write(&config, include_str!("../../proxy.toml")).unwrap();
        let serve = serve(&config, (port, admin), upstream, mode);
        let command: Vec<&str> =
            before.iter().copied().chain([program]).chain(serve.iter().map(String::as_str)).collect();
        let child = Some(started(&command));
        Self { port, child, reads: mode != "off", admin }.answering().await
    }

    /// toolrein, or the pass-through where `mode` is none, under callgrind, which counts nothing until it is told to and
    /// writes to `out`.
    pub async fn counted(
        program: &str,
        folder: &Path,
        upstream: SocketAddr,
        (mode, out): (Option<&str>, &Path),
    ) -> Self {
        let (port, admin) = (free_port(), free_port());
        let out = format!("--callgrind-out-file={}", out.display());
        let mut command =
            ["valgrind", "--tool=callgrind", "--instr-atstart=no", &out].map(str::to_owned).to_vec();
        command.extend(match mode {
            None => floor(port, upstream),
            Some(mode) => {
                let config = folder.join(format!("{mode}.toml"));
                fs::write(&config, include_str!("../../proxy.toml")).unwrap();
                let serve = serve(&config, (port, admin), upstream, mode);
                std::iter::once(program.to_owned()).chain(serve).collect()
            }
        });
        let child = Some(pinned(&command));
        Self { port, child, reads: mode.is_some(), admin }.answering().await
    }

    /// CPU time that it has spent so far, all its threads together.
    pub fn cpu(&self) -> Duration {
        let Some(id) = self.id() else { return Duration::ZERO };
        let tasks = fs::read_dir(format!("/proc/{id}/task")).unwrap();
        let spent = tasks.map(|task| {
            // Nanoseconds on a processor; /proc/PID/stat counts in ticks of 10 ms.
            let text = fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap_or_default();
            text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0)
        });
        Duration::from_nanos(spent.sum())
    }

    /// Memory: `VmRSS` is what it holds, `VmHWM` the most that it ever held.
    pub fn memory_mb(&self, field: &str) -> f64 {
        let Some(id) = self.id() else { return 0.0 };
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
        line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
    }

    /// None of the pass-through, which is a part of this program.
    pub fn program_mb(&self) -> f64 {
        let Some(id) = self.id() else { return 0.0 };
        let program = fs::read_link(format!("/proc/{id}/exe")).unwrap();
        if program == std::env::current_exe().unwrap() {
            return 0.0;
        }
        fs::metadata(program).unwrap().len() as f64 / 1e6
    }

    /// Descriptors and threads that it has open.
    pub fn open(&self) -> [usize; 2] {
        let count = |what| {
            fs::read_dir(format!("/proc/{}/{what}", self.id().unwrap_or(0))).map_or(0, Iterator::count)
        };
        [count("fd"), count("task")]
    }

    /// Whether it reads bodies.
    pub fn reads(&self) -> bool {
        self.reads
    }

    fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Waits for its first answer.
    async fn answering(self) -> Self {
        for _ in 0..10_000 {
            if tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.is_ok() {
                let mut socket = connect(self.port).await;
                let request = b"GET /v1/models HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";
                socket.write_all(request).await.unwrap();
                let mut reply = Vec::new();
                socket.read_to_end(&mut reply).await.unwrap();
                assert!(reply.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&reply));
                return self;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("a subject did not start");
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The command line behind the program's name.
fn serve(config: &Path, (port, admin): (u16, u16), upstream: SocketAddr, mode: &str) -> Vec<String> {
    let (listen, admin) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{admin}"));
    let (config, upstream) = (config.display().to_string(), format!("http://{upstream}/v1"));
    let pairs = [
        ("--config", config.as_str()),
        ("--listen", &listen),
        ("--admin", &admin),
        ("--upstream", &upstream),
        ("--mode", mode),
    ];
    let flags = pairs.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value.to_owned()]);
    std::iter::once("serve".to_owned()).chain(flags).collect()
}

/// Tells callgrind what to do with `subject`.
pub fn control(subject: &Subject, command: &[&str]) {
    let mut control = Command::new("callgrind_control");
    let id = subject.id().unwrap_or(0).to_string();
    control.args(command).arg(id).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(control.status().unwrap().success(), "callgrind_control {command:?}");
}

/// The command line of the pass-through: this program once more.
fn floor(port: u16, upstream: SocketAddr) -> Vec<String> {
    let this = std::env::current_exe().unwrap().display().to_string();
    vec![this, "floor".to_owned(), port.to_string(), upstream.to_string()]
}

fn pinned(command: &[impl AsRef<OsStr>]) -> Child {
    let pinned = ["taskset", "-c", PROCESSOR].into_iter().map(OsStr::new);
    started(&pinned.chain(command.iter().map(AsRef::as_ref)).collect::<Vec<_>>())
}

fn started(command: &[impl AsRef<OsStr>]) -> Child {
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null());
    program.stderr(Stdio::null()).spawn().unwrap()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
