//! A real Redis of the test's own, and programs that share it. It can be stopped, frozen, wiped and filled.

use crate::support::program::Toolrein;
use crate::support::scripted::Scripted;
use crate::support::until;
use redis::{Client, Connection, cmd};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What programs that share a state store have in common.
pub const SECRET: &str = "a-secret-of-the-tests-0123456789";
const PASSWORD: &str = "pass-of-the-tests";

/// A running Redis; killed when dropped.
pub struct Server {
    child: Child,
    port: u16,
    folder: tempfile::TempDir,
}

impl Server {
    /// Starts it empty, on a port that was free a moment before; another if it is taken after all.
    pub fn start() -> Self {
        until("a Redis that stays up", || {
            let port = free_port();
            let folder = tempfile::tempdir().expect("a temporary folder");
            let mut server = Self { child: spawn(port, folder.path(), &[]), port, folder };
            server.is_up().then_some(server)
        })
    }

    /// Starts a server of a Redis Cluster, which serves no slot yet.
    pub fn cluster() -> Self {
        until("a Redis that stays up", || Self::try_cluster_at(free_port()))
    }

    /// Starts such a server at this port.
    pub fn try_cluster_at(port: u16) -> Option<Self> {
        let (folder, bus) = (tempfile::tempdir().expect("a temporary folder"), free_port().to_string());
        let options = ["--cluster-enabled", "yes", "--cluster-port", &bus];
        let mut server = Self { child: spawn(port, folder.path(), &options), port, folder };
        server.is_up().then_some(server)
    }

    /// A port at which no Redis is, and where one may be started later.
    pub fn nowhere() -> u16 {
        free_port()
    }

    /// Starts it at this port.
    pub fn start_at(port: u16) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut server = Self { child: spawn(port, folder.path(), &[]), port, folder };
        assert!(server.is_up(), "a Redis at port {port}");
        server
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills it; what it knew is lost.
    pub fn stop(&mut self) {
        self.child.kill().expect("the signal is sent");
        self.child.wait().expect("its end");
    }

    /// Starts it again, empty, at the same port.
    pub fn start_again(&mut self) {
        self.child = spawn(self.port, self.folder.path(), &[]);
        assert!(self.is_up(), "a Redis at port {}", self.port);
    }

    /// It answers nothing, and its connections stay open.
    pub fn freeze(&self) {
        self.signal("STOP");
    }

    /// It goes on.
    pub fn thaw(&self) {
        self.signal("CONT");
    }

    /// The answer to a command.
    pub fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = cmd(words[0]);
        words[1..].iter().for_each(|word| {
            command.arg(*word);
        });
        command.query(&mut self.connect().expect("a connection")).expect("an answer")
    }

    /// All its keys.
    pub fn keys(&self) -> Vec<String> {
        self.ask(&["KEYS", "*"])
    }

    /// A connection of the test's own.
    pub fn connect(&self) -> redis::RedisResult<Connection> {
        let client = Client::open(address(self.port)).expect("an address");
        let connection = client.get_connection_with_timeout(Duration::from_secs(10))?;
        connection.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(connection)
    }

    /// A program that shares it.
    pub fn share(&self, upstream: &Scripted, settings: &str) -> Toolrein {
        share(self.port, upstream, settings)
    }

    fn is_up(&mut self) -> bool {
        until("Redis to answer or to end", || {
            let ended = self.child.try_wait().expect("its status").is_some();
            let answers = || self.connect().and_then(|mut it| cmd("PING").query::<String>(&mut it)).is_ok();
            (ended || answers()).then_some(!ended)
        })
    }

    fn signal(&self, name: &str) {
        // The shell's own `kill`, since no program of that name is sure to be installed.
        let text = format!("kill -{name} {}", self.child.id());
        let done = Command::new("sh").arg("-c").arg(text).status();
        assert!(done.is_ok_and(|status| status.success()), "the signal was sent");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program that shares the Redis at this port, be it there or not. `settings` as of [`Toolrein::before`], those of the
/// state store dotted.
pub fn share(port: u16, upstream: &Scripted, settings: &str) -> Toolrein {
    let address = address(port);
    share_by(&address, upstream, settings)
}

/// The same by an address of the test's own.
pub fn share_by(address: &str, upstream: &Scripted, settings: &str) -> Toolrein {
    let store = "store.url_env = \"STORE_OF_THE_TESTS\"\nstore.secret_env = \"SECRET_OF_THE_TESTS\"\n";
    let variables = [("STORE_OF_THE_TESTS", address), ("SECRET_OF_THE_TESTS", SECRET)];
    // Long, since two busy cores may run everything at once: no test may depend on how quick an answer is.
    let timeout = if settings.contains("store.timeout") { "" } else { "store.timeout = \"5s\"\n" };
    Toolrein::before_in(upstream, &format!("{store}{timeout}{settings}"), &variables)
}

/// Two programs that have their state store.
pub fn pair(server: &Server, upstream: &Scripted, settings: &str) -> [Toolrein; 2] {
    let programs = [(); 2].map(|()| server.share(upstream, settings));
    programs.iter().for_each(is_connected);
    programs
}

/// Waits until the program has its state store.
pub fn is_connected(program: &Toolrein) {
    program.wait_for_metric("toolrein_store_up", 1.0);
}

pub fn address(port: u16) -> String {
    format!("redis://:{PASSWORD}@127.0.0.1:{port}/0")
}

fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    free.local_addr().expect("its address").port()
}

fn spawn(port: u16, folder: &Path, options: &[&str]) -> Child {
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--requirepass", PASSWORD]);
    command
        .args(options)
        .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
        .arg("--dir")
        .arg(folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
        .spawn()
        .unwrap_or_else(|error| panic!("redis-server cannot be started ({error}); `make test` installs it"))
}
