//! The forward proxy between toolrein and a server outside: which one leads there, and the connection through it
//! (CONNECT). What is sent over the connection is decided elsewhere.

use super::connect::BoxError;
use crate::config::{self, ProxyChoice, Target, without_secrets};
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
const PROXY_VARIABLES: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
/// The variables that list the hosts to which no proxy leads.
const EXCEPTION_VARIABLES: [&str; 2] = ["NO_PROXY", "no_proxy"];
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

    /// The environment's choice. A proxy of another kind than HTTP (SOCKS) is none.
    fn from_environment() -> Self {
        let https = first_set(&PROXY_VARIABLES).map(|(_, url)| url).unwrap_or_default();
        if !is_http(&https) {
            return Self::default();
        }
        let except = first_set(&EXCEPTION_VARIABLES).map_or_else(String::new, |(_, hosts)| hosts + ",");
        Self { upstream: None, https, except: except + THIS_MACHINE }
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
            None => Matcher::builder().https(self.https.as_str()).no(self.except.as_str()).build(),
        };
        matcher.intercept(base)
    }
}

/// What is wrong with the proxy that the environment names, as a sentence: it is of a kind that toolrein does not speak,
/// so that connections go without it.
pub fn unspoken_proxy(upstream: &config::Upstream) -> Option<String> {
    let (name, url) = first_set(&PROXY_VARIABLES).filter(|(_, url)| !is_http(url))?;
    (upstream.proxy != ProxyChoice::None).then(|| unspoken(name, &url))
}

fn unspoken(name: &str, url: &str) -> String {
    format!(
        "{name} names {}, which is no HTTP proxy (SOCKS is not spoken), so toolrein connects without it; HTTPS_PROXY or \
         upstream.proxy can name an HTTP proxy, and upstream.proxy = \"none\" wants none",
        without_secrets(url)
    )
}

/// The first of these variables that is set, with its value.
fn first_set(names: &[&'static str]) -> Option<(&'static str, String)> {
    let set = |name: &&'static str| Some((*name, std::env::var(name).ok().filter(|it| !it.is_empty())?));
    names.iter().find_map(set)
}

/// Whether `url` can be an HTTP proxy's address, whose scheme may be missing.
fn is_http(url: &str) -> bool {
    let scheme = url.split_once("://").map_or("http", |(scheme, _)| scheme);
    ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
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
    fn only_http_proxies_are_taken_from_the_environment() {
        for (url, is_taken) in [
            ("http://p:1", true),
            ("HTTPS://p:1", true),
            ("p:1", true),
            ("socks5://p:1", false),
            ("socks5h://p:1", false),
            ("", true),
        ] {
            assert_eq!(is_http(url), is_taken, "{url:?}");
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
