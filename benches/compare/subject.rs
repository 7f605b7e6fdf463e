//! What is measured: a proxy of its own process, pinned to a processor, with what the kernel knows of it.

use super::load::connect;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// The processor of every subject; the load has the other one.
const PROCESSOR: &str = "0";

/// A running proxy; ended when dropped.
pub struct Subject {
    pub port: u16,
    child: Child,
}

impl Subject {
    /// nginx with one process, connections kept, no log, bodies in memory.
    pub async fn nginx(folder: &Path, upstream: SocketAddr) -> Self {
        let port = free_port();
        let config = folder.join("nginx.conf");
        let text = include_str!("nginx.conf");
        let text = text.replace("PORT", &port.to_string()).replace("UPSTREAM", &upstream.to_string());
        fs::write(&config, text).unwrap();
        let child = pinned(&["nginx", "-p", &folder.to_string_lossy(), "-c", &config.to_string_lossy()]);
        Self { port, child }.answering().await
    }

    /// toolrein with the shipped policy; its log goes nowhere.
    pub async fn toolrein(program: &str, folder: &Path, upstream: SocketAddr, mode: &str) -> Self {
        let (port, admin) = (free_port(), free_port());
        let config = folder.join(format!("{mode}.toml"));
        fs::write(&config, include_str!("../../proxy.toml")).unwrap();
        let mut command = vec![program];
        let serve = serve(&config, (port, admin), upstream, mode);
        command.extend(serve.iter().map(String::as_str));
        let child = pinned(&command);
        Self { port, child }.answering().await
    }

    /// toolrein under callgrind, which counts nothing until it is told to and writes to `out`.
    pub async fn counted(
        program: &str,
        folder: &Path,
        upstream: SocketAddr,
        (mode, out): (&str, &Path),
    ) -> Self {
        let (port, admin) = (free_port(), free_port());
        let config = folder.join(format!("{mode}.toml"));
        fs::write(&config, include_str!("../../proxy.toml")).unwrap();
        let out = format!("--callgrind-out-file={}", out.display());
        let mut command = vec!["valgrind", "--tool=callgrind", "--instr-atstart=no", &out, program];
        let serve = serve(&config, (port, admin), upstream, mode);
        command.extend(serve.iter().map(String::as_str));
        let child = pinned(&command);
        Self { port, child }.answering().await
    }

    /// CPU time that it has spent so far, all its threads together.
    pub fn cpu(&self) -> Duration {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let spent = tasks.map(|task| {
            // Nanoseconds on a processor; /proc/PID/stat counts in ticks of 10 ms.
            let text = fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap_or_default();
            text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0)
        });
        Duration::from_nanos(spent.sum())
    }

    /// Memory that it holds.
    pub fn resident_mb(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
    }

    pub fn program_mb(&self) -> f64 {
        let program: PathBuf = format!("/proc/{}/exe", self.child.id()).into();
        fs::metadata(program).unwrap().len() as f64 / 1e6
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
        let _ = self.child.kill();
        let _ = self.child.wait();
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
    control.args(command).arg(subject.child.id().to_string()).stdin(Stdio::null()).stdout(Stdio::null());
    assert!(control.status().unwrap().success(), "callgrind_control {command:?}");
}

fn pinned(command: &[&str]) -> Child {
    let mut taskset = Command::new("taskset");
    taskset.args(["-c", PROCESSOR]).args(command).stdin(Stdio::null()).stdout(Stdio::null());
    taskset.stderr(Stdio::null()).spawn().unwrap()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
