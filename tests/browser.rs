//! The dashboard in a real Chromium: on the real program, in which tests make things happen, and on the mock of
//! tests/dashboard, which has states that the program is rarely in. The tests themselves are Python (Selenium).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail by panicking")]

#[path = "support/mod.rs"]
mod support;

use serde_json::{Value, json};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use support::client::Request;
use support::person::Person;
use support::program::{ADMIN_TOKEN, Toolrein};
use support::reply::{Reply, Speech};
use support::scripted::Scripted;
use support::until;

/// `delete_all` is blocked, and `pay` waits for a person.
const SETTINGS: &str = "base = \"shipped\"\nadmin.conversations = 9999\n\
    [policy.allow]\nexcept = [\"delete_all\"]\n\
    [policy.confirm]\ntools = [\"pay\"]\nform = \"held\"\nhold = \"9m\"\n";

/// How many programs ask at once.
const AT_ONCE: usize = 8;

#[test]
fn the_page_shows_and_changes_what_the_program_does() {
    let upstream = obedient();
    let program = Toolrein::before(&upstream, &format!("{}{SETTINGS}", Person::SETTINGS));
    let relay = Relay::before(program.admin_url());
    let url = relay.url();
    let person = Person::at(&program);
    let world = Arc::new(World {
        chat_url: program.chat_url(),
        admin_url: program.admin_url().to_owned(),
        person: person.clone(),
        relay,
        made: AtomicUsize::new(0),
    });
    let controlled = Arc::clone(&world);
    let controls =
        Scripted::start(move |_, request| Reply::json(200, &controlled.act(&request.path, &request.json())));
    run(
        "test_page.py",
        &[
            ("DASHBOARD_URL", &url),
            ("DASHBOARD_TOKEN", ADMIN_TOKEN),
            ("DASHBOARD_CONTROL", &controls.origin()),
        ],
    );
    // Their programs wait for a reply.
    for call in person.list() {
        person.says(&call["token"], false);
    }
}

#[test]
fn the_page_shows_every_state_of_the_mock() {
    run("test_states.py", &[]);
}

/// Runs a file of Python tests with these variables.
fn run(file: &str, variables: &[(&str, &str)]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut python = Command::new(root.join(".venv/bin/python"));
    python.arg(root.join("tests/dashboard").join(file)).envs(variables.iter().copied()).current_dir(root);
    let output = python.output().unwrap_or_else(|error| panic!("{error}: make clients"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&[output.stdout, output.stderr].concat()));
}

/// A model that calls what the last user message names, once, then answers.
fn obedient() -> Scripted {
    Scripted::start(|_, request| {
        let asked = request.json();
        let messages = asked["messages"].as_array().unwrap();
        let has_result = messages.iter().any(|message| message["role"] == "tool");
        let last = messages.iter().rfind(|message| message["role"] == "user").unwrap();
        let wanted: Value = serde_json::from_str(last["content"].as_str().unwrap()).unwrap();
        let speech = match wanted["tool"].as_str() {
            Some(tool) if !has_result && asked["tool_choice"] != "none" => {
                Speech::calls(&[("call_1", tool, wanted["arguments"].as_str().unwrap())])
            }
            _ => Speech::text("Done."),
        };
        Reply::speech(request, &speech)
    })
}

/// The controls by which tests make the program do things: see tests/dashboard/README.md.
struct World {
    chat_url: String,
    admin_url: String,
    person: Person,
    relay: Relay,
    made: AtomicUsize,
}

impl World {
    fn act(self: &Arc<Self>, path: &str, given: &Value) -> Value {
        match path {
            "/block" => self.block(),
            "/approval" => self.approval(given),
            "/cut" => {
                self.relay.cut();
                json!({})
            }
            "/many" => self.many(usize::try_from(given["count"].as_u64().unwrap()).unwrap()),
            other => panic!("there is no control {other}"),
        }
    }

    fn new_name(&self, kind: &str) -> String {
        format!("{kind}-{}", self.made.fetch_add(1, Ordering::SeqCst))
    }

    /// One request of a new conversation in which the model makes this call.
    fn ask(&self, name: &str, tool: Option<&str>, arguments: &str) {
        let wanted = json!({ "tool": tool, "arguments": arguments }).to_string();
        let mut body = json!({ "model": "gpt-4o", "messages": [{ "role": "user", "content": wanted }] });
        if let Some(tool) = tool {
            let function = json!({ "name": tool, "parameters": { "type": "object" } });
            body["tools"] = json!([{ "type": "function", "function": function }]);
        }
        let request = Request::post(&self.chat_url, body.to_string()).header("x-toolrein-conversation", name);
        let response = request.send();
        assert_eq!(response.status, 200, "{}", response.text());
    }

    fn block(&self) -> Value {
        let name = self.new_name("block");
        self.ask(&name, Some("delete_all"), "{\"path\":\"<b>/</b>\"}");
        let url = format!("{}/api/conversations/{name}", self.admin_url);
        until("the conversation", || {
            let request =
                Request::new("GET", &url, "").header("authorization", &format!("Bearer {ADMIN_TOKEN}"));
            (request.send().status == 200).then_some(())
        });
        json!({ "conversation": name })
    }

    fn approval(self: &Arc<Self>, given: &Value) -> Value {
        let name = self.new_name("approval");
        let tool = given["tool"].as_str().unwrap_or("pay").to_owned();
        let arguments = given["arguments"].as_str().unwrap_or("{\"amount\":250,\"to\":\"Ann\"}").to_owned();
        let (world, asked) = (Arc::clone(self), name.clone());
        std::thread::spawn(move || world.ask(&asked, Some(&tool), &arguments));
        let waits = |call: &Value| call["conversation"].as_str() == Some(&name);
        let call = until("the call to wait", || self.person.list().into_iter().find(waits));
        json!({ "token": call["token"] })
    }

    /// At least `count` conversations of one request each.
    fn many(&self, count: usize) -> Value {
        std::thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    (0..count.div_ceil(AT_ONCE)).for_each(|_| self.ask(&self.new_name("many"), None, ""));
                });
            }
        });
        json!({})
    }
}

/// A relay of TCP before the admin port, whose connections can be cut.
struct Relay {
    address: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    fn before(url: &str) -> Self {
        let behind: SocketAddr = url.strip_prefix("http://").unwrap().parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Self { address: listener.local_addr().unwrap(), open: Arc::default() };
        let open = Arc::clone(&relay.open);
        std::thread::spawn(move || {
            for front in listener.incoming().flatten() {
                let Ok(back) = TcpStream::connect(behind) else { continue };
                open.lock().unwrap().push(front.try_clone().unwrap());
                for (mut from, mut to) in
                    [(front.try_clone().unwrap(), back.try_clone().unwrap()), (back, front)]
                {
                    std::thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        relay
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends every connection.
    fn cut(&self) {
        for connection in self.open.lock().unwrap().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}
