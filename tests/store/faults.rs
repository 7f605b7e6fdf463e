//! Every fault of a shared state store: no request fails or waits long for it, the metrics show what is wrong, and
//! afterwards the programs share again. How long a request waits is measured by counters and not by a clock: each
//! look-up that times out is an error of `look_up`.

use crate::server::{SECRET, Server, address, is_connected, share, share_by};
use crate::support::client::{Request, get};
use crate::support::program::Toolrein;
use crate::support::scripted::Scripted;
use crate::support::talk::{Form, Talk, search, text};
use crate::support::until;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const TWO_SEARCHES: &str =
    "reask.max = 0\n[policy.rate_limit]\ntools = { search = { calls = 2, per = \"1h\" } }\n";
const ONE_SEARCH: &str = "[policy.rate_limit]\ntools = { search = { calls = 1, per = \"1h\" } }\n";

/// Two calls are released and a third is not: what the rate limit does with a state store and without.
fn limits_calls(program: &Toolrein) {
    let mut talk = Talk::new(Form::Whole);
    for released in [1, 1, 0] {
        let said = talk.ask(program);
        assert_eq!((said.response.status, said.calls.len()), (200, released));
        talk.add(&said);
    }
}

fn errors(program: &Toolrein, op: &str) -> f64 {
    program.metric(&format!("toolrein_store_errors_total{{op=\"{op}\"}}"))
}

/// How many calls the server has the times of, each under its key and under a key without its id.
fn times_told(server: &Server) -> usize {
    server.keys().iter().filter(|key| key.starts_with("toolrein:t:")).count() / 2
}

#[test]
fn down_at_the_start_and_there_later() {
    let (upstream, port) = (Scripted::start(search), Server::nowhere());
    let program = share(port, &upstream, TWO_SEARCHES);
    assert!(program.metric("toolrein_store_up").abs() < 0.5);
    limits_calls(&program);
    program.wait_for_metric("toolrein_store_away_total{result=\"local\"}", 3.0);
    assert!(errors(&program, "look_up").abs() < 0.5, "nobody waited");
    assert_eq!(get(&format!("{}/readyz", program.admin_url())).status, 200);
    until("a connection to be tried", || (errors(&program, "connect") > 0.5).then_some(()));
    let server = Server::start_at(port);
    is_connected(&program);
    until("what was told meanwhile", || (times_told(&server) == 2).then_some(()));
    let other = server.share(&upstream, TWO_SEARCHES);
    is_connected(&other);
    limits_calls(&other);
}

#[test]
fn going_down_and_coming_back_empty() {
    let (mut server, upstream) = (Server::start(), Scripted::start(search));
    let program = server.share(&upstream, TWO_SEARCHES);
    is_connected(&program);
    let mut talk = Talk::new(Form::Whole);
    talk.add(&talk.ask(&program));
    server.stop();
    program.wait_for_metric("toolrein_store_up", 0.0);
    talk.add(&talk.ask(&program));
    assert!(talk.ask(&program).calls.is_empty(), "this process knows what it released");
    server.start_again();
    is_connected(&program);
    until("what was told meanwhile", || (times_told(&server) > 0).then_some(()));
    assert!(talk.ask(&program).calls.is_empty());
    limits_calls(&program);
}

#[test]
fn a_store_that_answers_nothing_costs_a_few_requests_one_timeout_and_the_others_nothing() {
    let (server, upstream) = (Server::start(), Scripted::start(search));
    let program = server.share(&upstream, &format!("store.timeout = \"300ms\"\n{TWO_SEARCHES}"));
    is_connected(&program);
    server.freeze();
    for _ in 0..4 {
        limits_calls(&program);
    }
    program.wait_for_metric("toolrein_store_up", 0.0);
    let waited = errors(&program, "look_up");
    assert!(waited <= 3.0, "{waited} requests waited");
    program.wait_for_metric("toolrein_store_away_total{result=\"local\"}", 12.0);
    server.thaw();
    is_connected(&program);
    until("what was told meanwhile", || (times_told(&server) >= 2).then_some(()));
    limits_calls(&program);
}

/// Passes bytes on, each a good while after it came.
pub fn delay(to: u16, by: Duration) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let pass = move |mut from: TcpStream, mut to: TcpStream| {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            std::thread::sleep(by);
            if to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    };
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = TcpStream::connect(("127.0.0.1", to)).unwrap();
            let (back, forth) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || pass(client, server));
            std::thread::spawn(move || pass(back, forth));
        }
    });
    port
}

#[test]
fn a_store_that_is_too_slow_is_not_asked_at_all() {
    let (server, upstream) = (Server::start(), Scripted::start(search));
    let port = delay(server.port(), Duration::from_millis(200));
    let program = share(port, &upstream, &format!("store.timeout = \"100ms\"\n{TWO_SEARCHES}"));
    until("it to be tried", || (errors(&program, "connect") > 1.5).then_some(()));
    limits_calls(&program);
    assert!(errors(&program, "look_up").abs() < 0.5, "nobody waited");
    assert!(program.metric("toolrein_store_up").abs() < 0.5);
    program.wait_for_metric("toolrein_store_away_total{result=\"local\"}", 3.0);
}

#[test]
fn flapping() {
    let (mut server, upstream) = (Server::start(), Scripted::start(search));
    let program = server.share(&upstream, TWO_SEARCHES);
    is_connected(&program);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                limits_calls(&program);
            }
        });
        for _ in 0..4 {
            server.stop();
            program.wait_for_metric("toolrein_store_up", 0.0);
            server.start_again();
            is_connected(&program);
        }
        is_over.store(true, Ordering::SeqCst);
        asking.join().unwrap();
    });
    is_connected(&program);
    until("it to be told", || (times_told(&server) > 0).then_some(()));
    limits_calls(&program);
}

#[test]
fn wiped() {
    let (server, upstream) = (Server::start(), Scripted::start(search));
    let [one, other] = [(); 2].map(|()| server.share(&upstream, TWO_SEARCHES));
    [&one, &other].into_iter().for_each(is_connected);
    let mut talk = Talk::new(Form::Whole);
    for told in 1..=2 {
        talk.add(&talk.ask(&one));
        until("it to be told", || (times_told(&server) == told).then_some(()));
    }
    server.ask::<()>(&["FLUSHALL"]);
    assert!(talk.ask(&one).calls.is_empty(), "this process knows what it released");
    assert_eq!(talk.ask(&other).calls.len(), 1, "to another one these are calls of long ago");
    for program in [&one, &other] {
        assert!(program.metric("toolrein_store_errors_total").abs() < 0.5);
        assert!((program.metric("toolrein_store_up") - 1.0).abs() < 0.5);
    }
    limits_calls(&other);
}

#[test]
fn approved_calls_are_not_handed_out_twice_after_the_store_was_wiped() {
    let fetch = [("call_f", "fetch", "{}")];
    let server = Server::start();
    let upstream = Scripted::start(move |nth, request| match nth {
        0 => crate::support::reply::Reply::speech(request, &crate::support::reply::Speech::calls(&fetch)),
        _ => text("As you like.", request),
    });
    let program = server.share(&upstream, "[policy.confirm]\ntools = [\"fetch\"]\n");
    is_connected(&program);
    let mut talk = Talk::new(Form::Whole);
    talk.add(&talk.ask(&program));
    talk.say("yes");
    assert_eq!(talk.ask(&program).calls.len(), 1);
    server.ask::<()>(&["FLUSHALL"]);
    talk.members["user"] = "somebody".into();
    assert!(talk.ask(&program).calls.is_empty());
}

#[test]
fn an_approval_takes_effect_only_once_the_store_is_back() {
    let fetch = [("call_f", "fetch", "{}")];
    let mut server = Server::start();
    let upstream = Scripted::start(move |nth, request| match nth {
        0 => crate::support::reply::Reply::speech(request, &crate::support::reply::Speech::calls(&fetch)),
        _ => text("As you like.", request),
    });
    let program = server.share(&upstream, "[policy.confirm]\ntools = [\"fetch\"]\n");
    is_connected(&program);
    let mut talk = Talk::new(Form::Whole);
    talk.add(&talk.ask(&program));
    talk.say("yes");
    server.stop();
    program.wait_for_metric("toolrein_store_up", 0.0);
    let said = talk.ask(&program);
    assert_eq!(
        (said.calls.len(), said.text.as_str()),
        (0, "As you like."),
        "who else was asked is not known"
    );
    server.start_again();
    is_connected(&program);
    assert_eq!(talk.ask(&program).calls.len(), 1, "the question still stands");
}

#[test]
fn a_wrong_password_is_counted_and_told_to_nobody() {
    let (server, upstream) = (Server::start(), Scripted::start(search));
    let address = format!("redis://:wrong-canary-pass@127.0.0.1:{}/0", server.port());
    let program = share_by(&address, &upstream, TWO_SEARCHES);
    limits_calls(&program);
    until("a connection to be tried", || (errors(&program, "connect") > 0.5).then_some(()));
    assert!(program.metric("toolrein_store_up").abs() < 0.5);
    let said = format!("{}{}", program.metrics(), program.stop().join("\n"));
    assert!(said.contains("the shared state store does not answer"), "{said}");
    assert!(!said.contains("wrong-canary-pass"), "{said}");
}

#[test]
fn garbage_in_its_keys_counts_as_lost() {
    for garbage in [
        &["SET", "*", "garbage"][..],
        &["SET", "*", ""],
        &["RPUSH", "*", "1", "{}", "\u{fffd}"],
        &["HSET", "*", "a", "b"],
        &["ZADD", "*", "1e300", "x", "-inf", "1"],
        &["SADD", "*", "tools"],
    ] {
        let server = Server::start();
        let upstream = Scripted::start(|nth, request| match nth {
            0 | 1 => search(nth, request),
            _ => text("Fine.", request),
        });
        let quota = "[policy.quota.limits]\nsearches = { tools = [\"*\"], calls = 20, per = \"5h\" }\n";
        let settings = format!("{ONE_SEARCH}{quota}");
        let program = server.share(&upstream, &settings);
        is_connected(&program);
        let mut talk = Talk::new(Form::Whole);
        for _ in 0..2 {
            talk.add(&talk.ask(&program));
        }
        talk.say("And?");
        // All that it has to tell is told at the end.
        program.stop();
        let keys = server.keys();
        assert!(keys.iter().any(|key| key.starts_with("toolrein:r:")), "{keys:?}");
        for key in keys {
            server.ask::<()>(&["DEL", &key]);
            let words: Vec<&str> =
                garbage.iter().map(|word| if *word == "*" { &*key } else { word }).collect();
            server.ask::<redis::Value>(&words);
        }
        let other = server.share(&upstream, &settings);
        is_connected(&other);
        let said = talk.ask(&other);
        assert_eq!((said.response.status, said.text.as_str()), (200, "Fine."), "{garbage:?}");
        assert!(errors(&other, "unreadable") > 0.5, "{garbage:?}");
        let sent = upstream.requests().last().unwrap().json()["messages"].clone();
        assert_eq!(sent, serde_json::json!(talk.messages), "nothing is put back");
        assert!((other.metric("toolrein_store_up") - 1.0).abs() < 0.5);
        upstream.assert_clean();
    }
}

#[test]
fn full() {
    let (server, upstream) = (Server::start(), Scripted::start(search));
    let program = server.share(&upstream, TWO_SEARCHES);
    is_connected(&program);
    server.ask::<()>(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    limits_calls(&program);
    until("what was refused to be counted", || (errors(&program, "record") > 0.5).then_some(()));
    program.wait_for_metric("toolrein_store_up", 0.0);
    assert!(program.metric("toolrein_store_away_total").abs() < 0.5, "it still answers look-ups");
    assert_said_once(&program, REFUSES);
    assert_said_once(&program, "\"cause\":\"OOM\"");
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    until("what was told meanwhile", || (times_told(&server) == 2).then_some(()));
    is_connected(&program);
    until("the recovery to be logged", || (lines(&program, TAKES) == 1).then_some(()));
    limits_calls(&program);
    assert_eq!(lines(&program, REFUSES), 1);
}

const REFUSES: &str = "the shared state store refuses writes";
const TAKES: &str = "the shared state store takes writes again";

fn lines(program: &Toolrein, text: &str) -> usize {
    program.logs().iter().filter(|line| line.contains(text)).count()
}

/// Asserts that the log says `text`, and once: it is written after the reply and the metrics.
fn assert_said_once(program: &Toolrein, text: &str) {
    until(text, || (lines(program, text) > 0).then_some(()));
    assert_eq!(lines(program, text), 1, "{text}: {:?}", program.logs());
}

#[test]
fn full_and_strict() {
    let (server, upstream) = (Server::start(), Scripted::start(search));
    let program = server.share(&upstream, &format!("store.strict = true\n{TWO_SEARCHES}"));
    is_connected(&program);
    server.ask::<()>(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    let talk = Talk::new(Form::Whole);
    let ask = || Request::post(&program.chat_url(), talk.body().to_string()).send();
    let refused = ask();
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (503, &"store_away".into()));
    program.wait_for_metric("toolrein_store_away_total{result=\"refused\"}", 1.0);
    program.wait_for_metric("toolrein_store_up", 0.0);
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(ask().status, 200);
    is_connected(&program);
}

#[test]
fn without_the_right_to_write() {
    let (server, upstream) = (Server::start(), Scripted::start(search));
    let program = server.share(&upstream, TWO_SEARCHES);
    is_connected(&program);
    server.ask::<()>(&["ACL", "SETUSER", "default", "-@write"]);
    limits_calls(&program);
    program.wait_for_metric("toolrein_store_up", 0.0);
    limits_calls(&program);
    assert_said_once(&program, REFUSES);
    assert_said_once(&program, "\"cause\":\"NOPERM\"");
    server.ask::<()>(&["ACL", "SETUSER", "default", "+@write"]);
    until("the recovery", || {
        limits_calls(&program);
        (lines(&program, TAKES) == 1).then_some(())
    });
    is_connected(&program);
}

/// What a user reads who gives the address of a cluster.
const CLUSTER: &str = "a Redis Cluster spreads keys over servers";

#[test]
fn a_cluster_is_no_start() {
    let (server, upstream) = (Server::cluster(), Scripted::start(search));
    let address = address(server.port());
    // With a hash tag all keys have one slot, which moves to another server some day.
    for prefix in ["toolrein:", "{toolrein}:"] {
        let settings = format!(
            "store.prefix = \"{prefix}\"\nstore.timeout = \"5s\"\nstore.url_env = \"STORE\"\nstore.secret_env = \
             \"SECRET\"\n"
        );
        if prefix.starts_with('{') {
            server.ask::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
        }
        let variables = [("STORE", &*address), ("SECRET", SECRET)];
        let start = std::panic::AssertUnwindSafe(|| Toolrein::before_in(&upstream, &settings, &variables));
        let panic = std::panic::catch_unwind(start).err().expect("it does not start");
        let said = panic.downcast_ref::<String>().unwrap();
        let told = format!("store.url_env: the environment variable STORE: {CLUSTER}");
        assert!(said.contains(&told) && !said.contains("pass-of-the-tests"), "{said}");
    }
}

#[test]
fn a_store_that_turns_out_to_be_a_cluster_is_not_used_and_named_once() {
    let (upstream, port) = (Scripted::start(search), Server::nowhere());
    let program = share(port, &upstream, TWO_SEARCHES);
    let _server = Server::try_cluster_at(port).expect("the port is still free");
    until("the error", || (lines(&program, CLUSTER) > 0).then_some(()));
    let before = errors(&program, "connect");
    until("another attempt", || (errors(&program, "connect") > before).then_some(()));
    limits_calls(&program);
    assert!(program.metric("toolrein_store_up").abs() < 0.5);
    program.wait_for_metric("toolrein_store_away_total{result=\"local\"}", 3.0);
    assert_eq!(lines(&program, CLUSTER), 1);
}

#[test]
fn a_server_that_comes_back_as_a_cluster_is_not_used() {
    let (server, upstream) = (Server::start(), Scripted::start(search));
    let (port, program) = (server.port(), server.share(&upstream, TWO_SEARCHES));
    is_connected(&program);
    drop(server);
    program.wait_for_metric("toolrein_store_up", 0.0);
    let _cluster = Server::try_cluster_at(port).expect("the port is free again");
    until("the error", || (lines(&program, CLUSTER) > 0).then_some(()));
    limits_calls(&program);
    assert!(program.metric("toolrein_store_up").abs() < 0.5);
}

#[test]
fn a_store_that_refuses_a_part_of_a_look_up_counts_as_away() {
    // The first request has no single record to ask for, and MGET asks for these.
    for (refused, count) in [("lrange", 3.0), ("mget", 2.0)] {
        let (server, upstream) = (Server::start(), Scripted::start(search));
        let program = server.share(&upstream, TWO_SEARCHES);
        is_connected(&program);
        server.ask::<()>(&["ACL", "SETUSER", "default", &format!("-{refused}")]);
        limits_calls(&program);
        program.wait_for_metric("toolrein_store_up", 0.0);
        assert!((errors(&program, "look_up") - count).abs() < 0.5, "{}", program.metrics());
        program.wait_for_metric("toolrein_store_away_total{result=\"local\"}", count);
        limits_calls(&program);
        assert_said_once(&program, "the shared state store refuses look-ups");
        server.ask::<()>(&["ACL", "SETUSER", "default", &format!("+{refused}")]);
        limits_calls(&program);
        is_connected(&program);
        assert_said_once(&program, "the shared state store takes look-ups again");
    }
}

#[test]
fn strict_refuses_governed_requests_alone_while_it_is_away() {
    let (upstream, port) = (Scripted::start(search), Server::nowhere());
    let program = share(port, &upstream, &format!("store.strict = true\n{TWO_SEARCHES}"));
    let talk = Talk::new(Form::Whole);
    let refused = Request::post(&program.chat_url(), talk.body().to_string()).send();
    assert_eq!(refused.status, 503);
    let error = refused.json()["error"].clone();
    assert_eq!((&error["type"], &error["code"]), (&"toolrein_error".into(), &"store_away".into()), "{error}");
    assert_eq!(refused.header("x-should-retry"), Some("true"));
    program.wait_for_metric("toolrein_store_away_total{result=\"refused\"}", 1.0);
    assert!(upstream.requests().is_empty());
    assert_eq!(get(&format!("{}/v1/models", program.origin())).status, 200, "relayed all the same");
    let server = Server::start_at(port);
    is_connected(&program);
    limits_calls(&program);
    drop(server);
}

#[test]
fn a_store_without_its_address_or_with_a_short_secret_is_no_start() {
    let upstream = Scripted::start(search);
    for (variables, told) in [
        (&[("SECRET", SECRET)][..], "store.url_env: the environment variable STORE is not set"),
        (&[("STORE", "redis://h"), ("SECRET", "short-canary")], "SECRET has fewer than 32 characters"),
        (&[("STORE", "nonsense-canary"), ("SECRET", SECRET)], "STORE is not the address of a Redis"),
    ] {
        let settings = "store.url_env = \"STORE\"\nstore.secret_env = \"SECRET\"\n";
        let start = std::panic::AssertUnwindSafe(|| Toolrein::before_in(&upstream, settings, variables));
        let panic = std::panic::catch_unwind(start).err().expect("it does not start");
        let said = panic.downcast_ref::<String>().unwrap();
        assert!(said.contains(told) && !said.contains("canary"), "{said}");
    }
}

#[test]
fn a_store_behind_tls_is_reached_where_its_certificate_is_trusted() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let certificate = write("cert.pem", made.cert.pem());
    let key = write("key.pem", made.signing_key.serialize_pem());
    let server = Server::start();
    let port = Server::nowhere().to_string();
    for (name, value) in [
        ("tls-cert-file", certificate.as_str()),
        ("tls-key-file", &key),
        ("tls-ca-cert-file", &certificate),
        ("tls-auth-clients", "no"),
        ("tls-port", &port),
    ] {
        server.ask::<()>(&["CONFIG", "SET", name, value]);
    }
    let upstream = Scripted::start(search);
    let address = format!("rediss://:pass-of-the-tests@localhost:{port}/0");
    let start = |roots: &str| {
        let settings = format!(
            "store.timeout = \"5s\"\nstore.url_env = \"STORE\"\nstore.secret_env = \"SECRET\"\n{TWO_SEARCHES}"
        );
        let variables = [("STORE", &*address), ("SECRET", SECRET), ("SSL_CERT_FILE", roots)];
        Toolrein::before_in(&upstream, &settings, &variables)
    };
    let trusting = start(&certificate);
    is_connected(&trusting);
    limits_calls(&trusting);
    until("it to be told", || (times_told(&server) == 2).then_some(()));
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let wary = start(&write("other.pem", other.cert.pem()));
    until("a connection to be tried", || (errors(&wary, "connect") > 0.5).then_some(()));
    limits_calls(&wary);
    assert!(wary.metric("toolrein_store_up").abs() < 0.5);
}

#[test]
fn a_server_that_was_demoted_is_left_for_the_one_that_the_address_leads_to() {
    let (server, upstream) = (Server::start(), Scripted::start(search));
    let program = server.share(&upstream, TWO_SEARCHES);
    is_connected(&program);
    let nowhere = Server::nowhere().to_string();
    server.ask::<()>(&["REPLICAOF", "127.0.0.1", &nowhere]);
    limits_calls(&program);
    // Each of them is another connection to the same server.
    until("what was refused to be counted", || (errors(&program, "record") > 3.5).then_some(()));
    program.wait_for_metric("toolrein_store_up", 0.0);
    assert_said_once(&program, REFUSES);
    assert_said_once(&program, "READONLY");
    server.ask::<()>(&["REPLICAOF", "NO", "ONE"]);
    is_connected(&program);
    until("what was told meanwhile", || (times_told(&server) == 2).then_some(()));
}

/// The report of `toolrein doctor` beside a running program that shares the Redis at `address`.
fn doctor(program: &Toolrein, address: &str) -> String {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_toolrein"));
    let admin = program.admin_url().trim_start_matches("http://");
    command.args(["doctor", "--admin", admin, "--config"]).arg(program.config_file());
    command.envs([("STORE_OF_THE_TESTS", address), ("SECRET_OF_THE_TESTS", SECRET)]);
    String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned()
}

#[test]
fn the_doctor_looks_at_the_store_and_at_its_errors() {
    let (mut server, upstream) = (Server::start(), Scripted::start(search));
    let program = server.share(&upstream, TWO_SEARCHES);
    is_connected(&program);
    let address = address(server.port());
    let report = doctor(&program, &address);
    assert!(report.contains("the Redis of store.url_env (STORE_OF_THE_TESTS) answers"), "{report}");
    assert!(!report.contains("problem"), "{report}");
    server.stop();
    program.wait_for_metric("toolrein_store_up", 0.0);
    until("a connection to be tried", || (errors(&program, "connect") > 0.5).then_some(()));
    let report = doctor(&program, &address);
    for told in
        ["cannot be used", "the running toolrein has no shared state store", "since the start: connect"]
    {
        assert!(report.contains(told) && !report.contains("pass-of-the-tests"), "{told}: {report}");
    }
    let cluster = Server::cluster();
    let report = doctor(&program, &crate::server::address(cluster.port()));
    assert!(report.contains(CLUSTER), "{report}");
}

#[test]
fn the_documented_rights_are_enough() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/replicas.md")).unwrap();
    let rights = page.lines().filter(|line| line.starts_with('+')).flat_map(str::split_whitespace);
    let (server, upstream) = (Server::start(), Scripted::start(search));
    let rights: Vec<&str> = ["ACL", "SETUSER", "default", "-@all"].into_iter().chain(rights).collect();
    // A right to set rights, for the test alone.
    server.ask::<()>(&[&rights[..], &["+acl", "+keys"]].concat());
    let everything = "[policy.quota.limits]\nsearches = { tools = [\"search*\"], calls = 20, per = \"5h\" }\n\
        [policy.definitions]\n[policy.kill]\nconversations = [\"nobody\"]\n[policy.budget]\nspend_usd = 100.0\nday = { \
        tool_calls = 50 }\n";
    let program = server.share(&upstream, &format!("{TWO_SEARCHES}{everything}"));
    is_connected(&program);
    limits_calls(&program);
    until("what was told", || (times_told(&server) >= 2).then_some(()));
    program.wait_for_metric("toolrein_store_up", 1.0);
    assert!(program.metric("toolrein_store_errors_total").abs() < 0.5, "{}", program.metrics());
}

/// The rights that the version before needed.
#[test]
fn a_user_without_the_right_to_transactions_shares_limits_all_the_same() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/replicas.md")).unwrap();
    let rights = page.lines().filter(|line| line.starts_with('+')).flat_map(str::split_whitespace);
    let rights = rights.filter(|right| !["+multi", "+exec"].contains(right));
    let (server, upstream) = (Server::start(), Scripted::start(search));
    let rights: Vec<&str> = ["ACL", "SETUSER", "default", "-@all"].into_iter().chain(rights).collect();
    server.ask::<()>(&[&rights[..], &["+acl", "+keys"]].concat());
    let limits = "[policy.quota.limits]\nsearches = { tools = [\"search*\"], calls = 3, per = \"5h\" }\n\
        [policy.budget]\ntool_calls = 0\nday = { requests = 5, tool_calls = 9 }\n";
    let programs = [(); 2].map(|()| server.share(&upstream, limits));
    programs.iter().for_each(is_connected);
    let ask = |nth: usize| {
        let mut talk = Talk::new(Form::Whole);
        talk.say(&format!("Question {nth}"));
        let said = talk.ask(&programs[nth % 2]);
        (said.response.status, said.calls.len())
    };
    let said: Vec<(u16, usize)> = (0..5).map(ask).collect();
    assert_eq!(said[..3], [(200, 1); 3]);
    assert_eq!(said[3].1 + said[4].1, 0, "{said:?}");
    for program in &programs {
        assert_said_once(program, "refuses transactions");
        program.wait_for_metric("toolrein_store_up", 1.0);
        assert!(errors(program, "reserve") > 0.5 && program.metric("toolrein_store_away_total").abs() < 0.5);
    }
}
