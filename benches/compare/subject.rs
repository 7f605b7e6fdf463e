//! The program under test: a proxy in its own process, pinned to a processor, with the kernel's figures about it; or no
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

/// Makes glibc copy and fill long buffers in a loop, some 13 bytes per instruction. callgrind counts `rep movsb`, which a
/// processor runs at about 32 bytes a cycle, as one instruction for each byte.
const WITHOUT_REP: &str = "GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=0xffffffffffffff:\
                           glibc.cpu.x86_rep_stosb_threshold=0xffffffffffffff";

/// The shipped configuration.
pub const SHIPPED: &str = include_str!("../../proxy.toml");

/// How toolrein is run: the upstream's URL, the mode, and the configuration as written.
#[derive(Clone, Copy)]
pub struct Way<'a> {
    pub url: &'a str,
    pub mode: &'a str,
    pub config: &'a str,
}

/// A running proxy; ended when dropped.
pub struct Subject {
    pub port: u16,
    child: Option<Child>,
    /// Where its metrics are, if it has any.
    admin: u16,
}

impl Subject {
    /// The upstream itself.
    pub fn direct(upstream: SocketAddr) -> Self {
        Self { port: upstream.port(), child: None, admin: 0 }
    }

    /// nginx with one process, connections kept, no log, bodies in memory.
    pub async fn nginx(folder: &Path, upstream: SocketAddr) -> Self {
        let port = free_port();
        let config = folder.join("nginx.conf");
        let text = include_str!("nginx.conf");
        let text = text.replace("PORT", &port.to_string()).replace("UPSTREAM", &upstream.to_string());
        fs::write(&config, text).unwrap();
        let child = pinned(&["nginx", "-p", &folder.to_string_lossy(), "-c", &config.to_string_lossy()]);
        Self { port, child: Some(child), admin: 0 }.answering().await
    }

    /// The pass-through of hyper alone: this program itself.
    pub async fn floor(upstream: SocketAddr) -> Self {
        let port = free_port();
        let child = pinned(&floor(port, upstream));
        Self { port, child: Some(child), admin: 0 }.answering().await
    }

    /// toolrein with the shipped policy; its log goes nowhere.
    pub async fn toolrein(program: &str, folder: &Path, upstream: SocketAddr, mode: &str) -> Self {
        Self::pinned(program, folder, Way { url: &bare(upstream), mode, config: SHIPPED }).await
    }

    /// The same with this variable, as `NAME=VALUE`.
    pub async fn with_variable(program: &str, folder: &Path, upstream: SocketAddr, variable: &str) -> Self {
        let way = Way { url: &bare(upstream), mode: "enforce", config: SHIPPED };
        Self::on(&["taskset", "-c", PROCESSOR, "env", variable], program, folder, way).await
    }

    /// The same, run in one way of many.
    pub async fn pinned(program: &str, folder: &Path, way: Way<'_>) -> Self {
        Self::on(&["taskset", "-c", PROCESSOR], program, folder, way).await
    }

    /// toolrein with the shipped policy on all processors.
    pub async fn unpinned(program: &str, folder: &Path, upstream: SocketAddr) -> Self {
        Self::run(program, folder, Way { url: &bare(upstream), mode: "enforce", config: SHIPPED }).await
    }

    /// The same, run in one way of many.
    pub async fn run(program: &str, folder: &Path, way: Way<'_>) -> Self {
        Self::on(&[], program, folder, way).await
    }

    async fn on(before: &[&str], program: &str, folder: &Path, way: Way<'_>) -> Self {
        let (port, admin) = (free_port(), free_port());
        let serve = way.serve(folder, (port, admin));
        let command: Vec<&str> =
            before.iter().copied().chain([program]).chain(serve.iter().map(String::as_str)).collect();
        let child = Some(started(&command));
        Self { port, child, admin }.answering().await
    }

    /// toolrein, or the pass-through where there is no `way`, under callgrind, which counts nothing until
    /// [`control`] switches it on, and writes to `out`. `variables`: its environment, as `NAME=VALUE`.
    pub async fn counted(
        program: &str,
        folder: &Path,
        upstream: SocketAddr,
        way: Option<Way<'_>>,
        out: &Path,
        variables: &[String],
    ) -> Self {
        let (port, admin) = (free_port(), free_port());
        let out = format!("--callgrind-out-file={}", out.display());
        let valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", &out].map(str::to_owned);
        let mut command = vec!["env".to_owned(), WITHOUT_REP.to_owned()];
        command.extend(variables.iter().cloned().chain(valgrind));
        command.extend(match way {
            None => floor(port, upstream),
            Some(way) => {
                std::iter::once(program.to_owned()).chain(way.serve(folder, (port, admin))).collect()
            }
        });
        let child = Some(pinned(&command));
        Self { port, child, admin }.answering().await
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

    /// The same, when it does nothing any more.
    pub async fn cpu_at_rest(&self) -> Duration {
        let mut spent = self.cpu();
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let now = self.cpu();
            if now - spent < Duration::from_micros(200) {
                return now;
            }
            spent = now;
        }
    }

    /// The memory that it holds.
    pub fn memory_mb(&self) -> f64 {
        let Some(id) = self.id() else { return 0.0 };
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
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

    /// The sum of a metric's samples whose labels hold `label`.
    pub async fn metric(&self, name: &str, label: &str) -> f64 {
        let mut socket = connect(self.admin).await;
        let request = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        socket.write_all(request).await.unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).await.unwrap();
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        let samples = text.lines().filter(|line| line.starts_with(name) && line.contains(label));
        // A sum of nothing is -0.
        samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() + 0.0
    }

    /// Reads the admin port's events from now on, in the background.
    pub async fn read_events(&self, token: &str) {
        let mut socket = connect(self.admin).await;
        let request =
            format!("GET /api/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut buffer = vec![0; 64 * 1024];
        let read = socket.read(&mut buffer).await.unwrap();
        assert!(buffer[..read].starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&buffer[..read]));
        tokio::spawn(async move { while socket.read(&mut buffer).await.is_ok_and(|read| read > 0) {} });
    }

    fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Waits for its first answer.
    async fn answering(self) -> Self {
        self.listening().await;
        let mut socket = connect(self.port).await;
        let request = b"GET /v1/models HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";
        socket.write_all(request).await.unwrap();
        let mut reply = Vec::new();
        socket.read_to_end(&mut reply).await.unwrap();
        assert!(reply.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&reply));
        self
    }

    /// Waits until it takes connections.
    async fn listening(&self) {
        for _ in 0..10_000 {
            if tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.is_ok() {
                return;
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

impl Way<'_> {
    /// The command line after the program's name.
    fn serve(&self, folder: &Path, (port, admin): (u16, u16)) -> Vec<String> {
        let config = folder.join(format!("{}.toml", self.mode));
        fs::write(&config, self.config).unwrap();
        let (listen, admin) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{admin}"));
        let pairs = [
            ("--config", &*config.to_string_lossy()),
            ("--listen", &listen),
            ("--admin", &admin),
            ("--upstream", self.url),
            ("--mode", self.mode),
        ];
        let flags = pairs.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value.to_owned()]);
        std::iter::once("serve".to_owned()).chain(flags).collect()
    }
}

/// The URL of an upstream without TLS.
pub fn bare(upstream: SocketAddr) -> String {
    format!("http://{upstream}/v1")
}

/// Sends callgrind a command for `subject`.
pub fn control(subject: &Subject, command: &[&str]) {
    let mut control = Command::new("callgrind_control");
    let id = subject.id().unwrap_or(0).to_string();
    control.args(command).arg(id).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(control.status().unwrap().success(), "callgrind_control {command:?}");
}

/// The command line of the pass-through: this program itself.
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
