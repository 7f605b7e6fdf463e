//! The guard against DNS rebinding: the host names to which a server on a loopback address answers. It checks the host
//! of the request, not its sender.
//!
//! A page in a browser may not read answers from other origins. An attacker's page can therefore make its own name
//! resolve to 127.0.0.1 after it was loaded; the browser then takes our server for the page's own and lets the page
//! read everything, the configuration too. Such a request still carries the page's name in `host`. An IP address cannot
//! be rebound, and `localhost` is resolved by the machine itself, so only these are accepted.

use hyper::http::Request;
use hyper::http::header::HOST;
use hyper::http::uri::Authority;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Whether every host in the request is an IP address or `localhost`. A request without any, as HTTP/1.0 allows, comes
/// from no browser and is accepted.
pub(super) fn is_local<B>(request: &Request<B>) -> bool {
    // HTTP/2 and absolute targets carry the host in the URI.
    let target = request.uri().authority();
    let named = request.headers().get_all(HOST).iter();
    target.is_none_or(is_local_name)
        && named
            .map(|host| Authority::try_from(host.as_bytes()))
            .all(|host| host.is_ok_and(|host| is_local_name(&host)))
}

fn is_local_name(authority: &Authority) -> bool {
    let host = authority.host();
    let v6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<Ipv4Addr>().is_ok()
        || v6.is_some_and(|host| host.parse::<Ipv6Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(uri: &str, hosts: &[&[u8]]) -> bool {
        let asked = hosts.iter().fold(Request::get(uri), |asked, host| asked.header(HOST, *host));
        is_local(&asked.body(()).unwrap())
    }

    #[test]
    fn only_ip_addresses_and_localhost_are_accepted_as_host() {
        for (host, expected) in [
            ("localhost", true),
            ("LocalHost:4243", true),
            ("127.0.0.1", true),
            ("127.0.0.1:4243", true),
            ("10.1.2.3:80", true),
            ("[::1]:4243", true),
            ("[::1]", true),
            ("rebound.example", false),
            ("rebound.example:4243", false),
            ("localhost.rebound.example", false),
            ("127.0.0.1.rebound.example", false),
            ("127.0.0.1.nip.io:4243", false),
            ("localhost@rebound.example", false),
            ("2130706433", false),
            ("", false),
            ("a b", false),
            ("[::1", false),
        ] {
            assert_eq!(local("/", &[host.as_bytes()]), expected, "{host:?}");
        }
    }

    #[test]
    fn a_request_is_local_only_if_its_uri_and_every_host_header_are_local() {
        assert!(local("/", &[]));
        assert!(!local("/", &[b"\xff\xfe"]));
        assert!(!local("/", &[b"localhost", b"rebound.example"]));
        assert!(local("http://localhost:4243/", &[]));
        assert!(!local("http://rebound.example/", &[b"localhost"]));
        assert!(!local("http://localhost/", &[b"rebound.example"]));
    }
}
