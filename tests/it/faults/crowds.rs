//! More clients than `limits.connections` allows: the others wait in the kernel's queue, are served as connections
//! become free, and cost the program nothing until then.

use crate::faults::hand::{Hand, Wire, answer, chat, still_answers};
use crate::support::client::get;
use crate::support::until;
use std::io::{ErrorKind, Read as _};
use std::time::Duration;

const TOLD: &str = "limits.connections is reached";

fn told(toolrein: &crate::support::program::Toolrein) -> usize {
    toolrein.logs().iter().filter(|line| line.contains(TOLD)).count()
}

#[test]
fn clients_beyond_the_limit_wait_and_are_served_when_others_leave() {
    let (hand, toolrein) = Hand::behind("limits.connections = 3\n");
    let mut first: Vec<Wire> = (0..3).map(|_| Wire::to(&toolrein)).collect();
    first.iter_mut().for_each(|client| client.write(chat(false)));
    let mut asked: Vec<Wire> = first.iter().map(|_| hand.asked()).collect();
    assert!((toolrein.metric("toolrein_connections") - 3.0).abs() < 0.5);
    let mut waiting: Vec<Wire> = (0..20).map(|_| Wire::to(&toolrein)).collect();
    // They leave as soon as they are answered.
    let request = chat(false).replacen("host: us", "host: us\r\nconnection: close", 1);
    waiting.iter_mut().for_each(|client| client.write(&request));
    until("the limit to be told", || (told(&toolrein) > 0).then_some(()));
    // The admin port has a connection limit of its own.
    assert_eq!(get(&format!("{}/readyz", toolrein.admin_url())).status, 200);
    waiting[0].stream().set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let nothing = waiting[0].reader.get_mut().read(&mut [0]).unwrap_err();
    assert!(matches!(nothing.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{nothing}");
    assert!((toolrein.metric("toolrein_connections") - 3.0).abs() < 0.5);
    asked.iter_mut().for_each(|upstream| upstream.write(answer("first")));
    for client in &mut first {
        assert_eq!(client.response().0.word(1), "200");
    }
    drop(first);
    drop(asked);
    for client in &mut waiting {
        client.stream().set_read_timeout(Some(crate::support::PATIENCE)).unwrap();
        hand.asked().write(answer("then"));
    }
    for mut client in waiting {
        assert_eq!(client.response().0.word(1), "200");
    }
    still_answers(&hand, &toolrein);
    assert!(told(&toolrein) < 10, "not for every client");
}

#[test]
fn a_tunnel_keeps_its_place_for_as_long_as_it_lives() {
    let (hand, toolrein) = Hand::behind("limits.connections = 2\n");
    let (client, mut upstream) = hand.tunnel(&toolrein);
    still_answers(&hand, &toolrein);
    toolrein.wait_for_metric("toolrein_connections", 1.0);
    drop(client);
    upstream.wait_for_hang_up();
    drop(upstream);
    toolrein.wait_for_metric("toolrein_connections", 0.0);
}

#[test]
fn five_hundred_idle_streams_cost_little_and_leave_nothing_behind() {
    const STREAMS: usize = 500;
    let (hand, toolrein) = Hand::behind("");
    still_answers(&hand, &toolrein);
    let before = crate::faults::hand::resident(&toolrein);
    let event = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"one\"}}]}\n\n";
    let mut pairs = Vec::new();
    for _ in 0..STREAMS {
        let mut client = Wire::to(&toolrein);
        client.write(chat(true));
        let mut upstream = hand.asked();
        upstream.write(format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{event}"));
        client.head();
        pairs.push((client, upstream));
    }
    let each = crate::faults::hand::resident(&toolrein).saturating_sub(before) / STREAMS;
    assert!(each < 64 * 1024, "{each} bytes a stream");
    toolrein.wait_for_metric("toolrein_streams_open", STREAMS as f64);
    drop(pairs);
    toolrein.wait_for_metric("toolrein_streams_open", 0.0);
    toolrein.wait_for_metric("toolrein_connections", 0.0);
    let descriptors = toolrein.descriptors();
    assert!(descriptors < 40, "{descriptors} descriptors are left open");
}

#[test]
fn idle_connections_to_the_admin_port_keep_no_probe_out() {
    let (hand, toolrein) = Hand::behind("");
    let admin = toolrein.admin_url();
    let address = admin.trim_start_matches("http://");
    let mut idle = Vec::new();
    for nth in 0..2000 {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        // Some clients send nothing, some stop within a head, some send one request and stay connected.
        let begun: &[u8] = match nth % 3 {
            0 => b"",
            1 => b"GET /livez HTTP/1.1\r\nhos",
            _ => b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n",
        };
        // The program may have closed it for the next one already.
        let _ = std::io::Write::write_all(&mut stream, begun);
        idle.push(stream);
    }
    for path in ["/livez", "/readyz", "/metrics", "/livez"] {
        assert_eq!(get(&format!("{admin}{path}")).status, 200, "{path}");
    }
    assert!(toolrein.descriptors() < 400, "{} descriptors", toolrein.descriptors());
    drop(idle);
    still_answers(&hand, &toolrein);
}

#[test]
fn many_clients_that_come_at_once_are_let_in_by_the_kernel_while_nobody_accepts() {
    // The kernel may be set to allow fewer.
    let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse().unwrap_or(0);
    let clients = 1500.min(most);
    let (_hand, toolrein) = Hand::behind("limits.connections = 1\n");
    let address = toolrein.origin().trim_start_matches("http://").parse().unwrap();
    let first = Wire::to(&toolrein);
    // Beyond the queue, the kernel drops connection attempts, and the client would wait in vain.
    let connect = |_| std::net::TcpStream::connect_timeout(&address, crate::support::PATIENCE).unwrap();
    let made: Vec<_> = (0..clients).map(connect).collect();
    assert_eq!(made.len(), clients);
    drop(first);
}
