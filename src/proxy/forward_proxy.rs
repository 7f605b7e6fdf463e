//! The forward proxy between toolrein and a server outside: which one leads there, and the connection through it
//! (CONNECT). What is sent over the connection is decided elsewhere.

use super::connect::BoxError;
use crate::config::{self, ProxyChoice, ProxyUrl, Target, without_secrets};
use hyper::http::Uri;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::net::TcpStream;
use tower_service::Service;

/// The variables that name a forward proxy for `https`, the first that is set; as curl and the SDKs of providers read them.
const PROXY_VARIABLES: [&str; 4] = ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
/// The variables that list the hosts to which no proxy leads.
const EXCEPTION_VARIABLES: [&str; 2] = ["no_proxy", "NO_PROXY"];
/// This machine, which no proxy can reach for us.
const THIS_MACHINE: &str = "localhost,127.0.0.0/8,::1";

/// Which forward proxy leads to a server. The default: none.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ForwardProxy {
    /// The operator's own choice, for the upstream. May hold a user and a password.
    upstream: Option<String>,
    /// The environment's choice, for `https` servers; empty: none.
    https: String,
    /// Hosts, domains and networks to which the environment's choice does not apply, separated by commas.
    except: String,
}

/// The proxy's address is shown without its credentials.
impl fmt::Debug for ForwardProxy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |url: &String| without_secrets(url);
        out.debug_struct("ForwardProxy")
            .field("upstream", &self.upstream.as_ref().map(shown))
            .field("https", &shown(&self.https))
            .field("except", &self.except)
            .finish()
    }
}

impl ForwardProxy {
    /// The proxy that these settings choose. To servers other than the upstream the environment's leads, unless the
    /// settings want none.
    pub fn new(upstream: &config::Upstream) -> Self {
        match (&upstream.proxy, &upstream.url) {
            (ProxyChoice::None, _) => Self::default(),
            (ProxyChoice::Url(url), Target::Url(_)) => {
                Self { upstream: Some(url.with_credentials().to_owned()), ..Self::from_environment() }
            }
            // The simulated model is inside this process.
            (ProxyChoice::Environment, _) | (ProxyChoice::Url(_), Target::Demo) => Self::from_environment(),
        }
    }

    /// The environment's choice. A proxy that cannot be used is none; [`unusable_proxy`] says so.
    fn from_environment() -> Self {
        let Some((_, Ok(https))) = named_by_environment() else { return Self::default() };
        let except = first_set(&EXCEPTION_VARIABLES).map_or_else(String::new, |(_, hosts)| hosts + ",");
        Self { upstream: None, https: https.with_credentials().to_owned(), except: except + THIS_MACHINE }
    }

    /// The choice for servers other than the upstream.
    pub(super) fn for_other_servers(&self) -> Self {
        Self { upstream: None, ..self.clone() }
    }

    /// The address of the proxy that leads to the server at `base`, without credentials.
    pub fn address_for(&self, base: &Uri) -> Option<String> {
        self.choose_for(base).map(|proxy| proxy.uri().to_string().trim_end_matches('/').to_owned())
    }

    /// The proxy that leads to the server at `base`, and how it is asked.
    pub(super) fn choose_for(&self, base: &Uri) -> Option<Intercept> {
        let matcher = match &self.upstream {
            Some(url) => Matcher::builder().all(url.as_str()).build(),
            None => Matcher::builder().https(self.https.as_str()).no(exceptions(&self.except, base)).build(),
        };
        matcher.intercept(base)
    }
}

/// What is wrong with the proxy that the environment names, as a sentence: its address cannot be read, or it is of a kind
/// that toolrein does not speak, so that connections go without it.
pub fn unusable_proxy(upstream: &config::Upstream) -> Option<String> {
    let (name, read) = named_by_environment().filter(|_| upstream.proxy != ProxyChoice::None)?;
    let why = read.err()?;
    Some(format!(
        "{name}: {why}; toolrein connects without a proxy. upstream.proxy can name one, or \"none\""
    ))
}

/// The variable that names a proxy, and its address, whose scheme may be missing; or why it cannot be read.
fn named_by_environment() -> Option<(&'static str, Result<ProxyUrl, String>)> {
    let (name, url) = first_set(&PROXY_VARIABLES)?;
    Some((name, read_address(&url)))
}

fn read_address(url: &str) -> Result<ProxyUrl, String> {
    let url = url.trim();
    if url.contains("://") { ProxyUrl::parse(url) } else { ProxyUrl::parse(&format!("http://{url}")) }
}

/// The first of these variables that is set, with its value.
fn first_set(names: &[&'static str]) -> Option<(&'static str, String)> {
    let set = |name: &&'static str| Some((*name, std::env::var(name).ok().filter(|it| !it.is_empty())?));
    names.iter().find_map(set)
}

/// The entries of a list of exceptions that may concern `server`, as the matcher reads them. People separate them by
/// blanks too, write `*.domain`, and add the one port that is meant.
fn exceptions(list: &str, server: &Uri) -> String {
    let port = server.port_u16().unwrap_or(if server.scheme_str() == Some("http") { 80 } else { 443 });
    let entries = list.split(|c: char| c == ',' || c.is_whitespace()).filter_map(|entry| {
        let entry = match entry.strip_prefix("*.") {
            Some(domain) => format!(".{domain}"),
            None => entry.to_owned(),
        };
        let (host, own_port) = match entry.rsplit_once(':') {
            Some((host, own_port)) if host.ends_with(']') || !host.contains(':') => {
                (host, own_port.parse().ok())
            }
            _ => (entry.as_str(), None),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_meant = own_port.is_none_or(|own_port: u16| own_port == port);
        (is_meant && !host.is_empty()).then(|| host.to_owned())
    });
    entries.collect::<Vec<_>>().join(",")
}

/// A connection to a server, or to the proxy that leads there, which may speak TLS itself.
pub(super) type RouteStream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Connects to a server: itself, or through a tunnel.
#[derive(Clone)]
pub(super) enum Route {
    Direct(HttpConnector),
    Tunnel(Box<Tunnel<HttpsConnector<HttpConnector>>>),
}

impl Route {
    /// Through `proxy`, which is reached by `connector`.
    pub(super) fn through(proxy: &Intercept, connector: HttpsConnector<HttpConnector>) -> Self {
        let tunnel = Tunnel::new(proxy.uri().clone(), connector);
        Self::Tunnel(Box::new(match proxy.basic_auth() {
            Some(credentials) => tunnel.with_auth(credentials.clone()),
            None => tunnel,
        }))
    }
}

impl Service<Uri> for Route {
    type Response = RouteStream;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<RouteStream, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self {
            Self::Direct(connector) => connector.poll_ready(context).map_err(Into::into),
            Self::Tunnel(tunnel) => tunnel.poll_ready(context).map_err(Into::into),
        }
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        match self {
            Self::Direct(connector) => {
                let connecting = connector.call(server);
                Box::pin(async move { Ok(MaybeHttpsStream::Http(connecting.await?)) })
            }
            Self::Tunnel(tunnel) => {
                let connecting = tunnel.call(with_port(server));
                Box::pin(async move { Ok(connecting.await?) })
            }
        }
    }
}

/// The address with the port of its scheme: a tunnel would take 443 for `http` too.
fn with_port(server: Uri) -> Uri {
    if server.port().is_some() || server.scheme_str() != Some("http") {
        return server;
    }
    let host = server.host().unwrap_or_default();
    Uri::builder()
        .scheme("http")
        .authority(format!("{host}:80"))
        .path_and_query("/")
        .build()
        .unwrap_or(server)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(https: &str, except: &str) -> ForwardProxy {
        ForwardProxy {
            https: https.to_owned(),
            except: format!("{except},{THIS_MACHINE}"),
            ..Default::default()
        }
    }

    #[test]
    fn the_environments_proxy_leads_to_https_servers_outside_of_its_exceptions() {
        let proxy = environment("http://proxy:3128", "internal.example,10.0.0.0/8");
        for (server, is_led) in [
            ("https://api.openai.com/v1", true),
            ("http://api.openai.com/v1", false),
            ("https://llm.internal.example/v1", false),
            ("https://10.1.2.3/v1", false),
            ("https://127.0.0.1:8443/v1", false),
            ("https://localhost/v1", false),
            ("https://[::1]/v1", false),
            ("https://localhost.example/v1", true),
        ] {
            assert_eq!(proxy.choose_for(&server.parse().unwrap()).is_some(), is_led, "{server}");
        }
        assert!(environment("", "").choose_for(&Uri::from_static("https://api.openai.com/v1")).is_none());
    }

    #[test]
    fn the_operators_proxy_leads_to_the_upstream_alone() {
        let proxy =
            ForwardProxy { upstream: Some("http://ann:s3cret@proxy:3128".into()), ..Default::default() };
        for server in ["https://api.openai.com/v1", "http://10.1.2.3:8000/v1", "https://127.0.0.1/v1"] {
            let found = proxy.choose_for(&server.parse().unwrap()).expect(server);
            assert_eq!(
                (found.uri().to_string().as_str(), found.basic_auth().is_some()),
                ("http://proxy:3128/", true)
            );
            assert!(proxy.for_other_servers().choose_for(&server.parse().unwrap()).is_none(), "{server}");
        }
        assert!(!format!("{proxy:?}").contains("s3cret"));
    }

    #[test]
    fn only_http_proxies_are_taken_from_the_environment_and_what_is_wrong_is_said() {
        for (url, expected) in [
            ("http://p:1", Ok("http://p:1")),
            ("HTTPS://p:1", Ok("HTTPS://p:1")),
            ("p:1", Ok("http://p:1")),
            ("ann:pä@p:1", Ok("http://ann:p%C3%A4@p:1")),
            ("socks5://p:1", Err("SOCKS is not spoken")),
            ("not a url", Err("with a host and no path")),
            ("http://", Err("with a host and no path")),
        ] {
            let read = read_address(url);
            match expected {
                Ok(address) => assert_eq!(read.unwrap().with_credentials(), address),
                Err(why) => assert!(read.unwrap_err().contains(why), "{url}"),
            }
        }
    }

    #[test]
    fn exceptions_are_read_as_people_write_them() {
        for (list, server, is_led) in [
            ("a.example:8443", "https://a.example:8443/v1", false),
            ("a.example:8443", "https://a.example/v1", true),
            ("a.example:443", "https://a.example/v1", false),
            ("*.corp.test", "https://llm.corp.test/v1", false),
            ("*.corp.test", "https://corp.example/v1", true),
            ("[fd00::9]", "https://[fd00::9]/v1", false),
            ("[fd00::9]:8443", "https://[fd00::9]:8443/v1", false),
            ("fd00::9", "https://[fd00::9]/v1", false),
            ("a.example b.example", "https://b.example/v1", false),
            ("*", "https://b.example/v1", false),
            ("10.0.0.0/8", "https://10.1.2.3/v1", false),
        ] {
            let proxy = environment("http://proxy:3128", list);
            assert_eq!(proxy.choose_for(&server.parse().unwrap()).is_some(), is_led, "{list} {server}");
        }
    }

    #[test]
    fn a_tunnel_to_an_http_server_goes_to_its_port() {
        for (server, expected) in [
            ("http://h/v1", "http://h:80/"),
            ("http://h:8000/v1", "http://h:8000/v1"),
            ("https://h/v1", "https://h/v1"),
        ] {
            assert_eq!(with_port(server.parse().unwrap()).to_string(), expected);
        }
    }
}
