//! Everything that a start does before it serves, tried without its effects, for `toolrein check`: whatever would stop
//! the start is found, at once, and by the code that the start runs. Connects to no other host, and keeps no port and
//! no file.

use super::ports::{bind_to, is_without_ipv6, over_ipv4};
use super::{StartError, bearer_of, connection_settings, store, upstream_settings};
use crate::config::{Config, Target};
use crate::doctor;
use crate::proxy::collector::CollectorClient;
use crate::proxy::drain::Drain;
use crate::proxy::forward_proxy::unusable_proxy;
use crate::proxy::summaries::ModelEndpoints;
use crate::proxy::upstream::{Upstream, UpstreamSettings};
use crate::proxy::webhooks::Webhooks;
use crate::secret::UNSET;
use crate::telemetry::audit::Audit;
use hyper::http::Uri;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

/// What a trial found, one sentence each.
#[derive(Debug, Default)]
pub struct Trial {
    /// What would stop the start.
    pub problems: Vec<String>,
    /// What would stop it here and now, and may be meant so.
    pub warnings: Vec<String>,
}

impl Trial {
    /// Tries what a start with `config` does. A secret whose variable is not set is not among the problems: the
    /// environment may be another one where the program starts, and the configuration's warnings name it.
    pub async fn run(config: &Config) -> Self {
        let mut trial = Self::default();
        trial.note(bearer_of(&config.admin));
        trial.note(upstream_settings(config, base_of(config)));
        trial.warnings.extend(unusable_proxy(&config.upstream));
        let mut settings = connection_settings(config, base_of(config));
        if trial.note(Upstream::new(settings.clone())).is_none() {
            // What is wrong with the roots of trust is said once.
            settings = UpstreamSettings { ca_file: None, ..settings };
        }
        trial.note(ModelEndpoints::of(config, &settings));
        trial.note(Webhooks::of(config, &settings, Drain::new()));
        if let Some(address) = config.telemetry.traces.address() {
            trial.note(CollectorClient::new(&config.telemetry.traces, &address, &settings));
        }
        store::try_secrets(config).into_iter().for_each(|error| trial.add(&error.into()));
        if let Some(path) = config.audit.path() {
            let refused = |error| StartError::Audit { path: path.display().to_string(), error };
            trial.note(try_file(path).map_err(refused));
        }
        trial.listeners(config).await;
        trial
    }

    /// Notes why a step fails, if it does.
    fn note<T, E: Into<StartError>>(&mut self, step: Result<T, E>) -> Option<T> {
        match step {
            Ok(done) => Some(done),
            Err(error) => {
                self.add(&error.into());
                None
            }
        }
    }

    fn add(&mut self, error: &StartError) {
        let text = error.to_string();
        if !text.contains(UNSET) && !self.problems.contains(&text) {
            self.problems.push(text);
        }
    }

    async fn listeners(&mut self, config: &Config) {
        let mut runs_here = None;
        let (proxy, admin) = (config.listen.proxy, config.listen.admin);
        let ports = [
            ("listen.proxy", Some(proxy)),
            ("listen.admin", Some(admin)),
            ("listen.probes", config.listen.probes),
        ];
        for (key, address) in ports.into_iter().filter_map(|(key, address)| Some((key, address?))) {
            let Err(error) = try_listener(address) else { continue };
            if error.kind() == io::ErrorKind::AddrInUse {
                let runs = match runs_here {
                    Some(runs) => runs,
                    None => doctor::runs_at(config.listen.admin).await,
                };
                runs_here = Some(runs);
                if runs {
                    self.warnings.push(format!(
                        "{key}: {address} is taken by a toolrein that runs here; another one would not start beside it"
                    ));
                    continue;
                }
            }
            self.add(&StartError::Listen { key, address, error });
        }
    }
}

/// The base address of the upstream; of the simulated model, whose port is not known before the start, any.
fn base_of(config: &Config) -> Uri {
    match &config.upstream.url {
        Target::Url(base) => base.clone(),
        Target::Demo => Uri::from_static("http://127.0.0.1/v1"),
    }
}

/// Binds the address as a start does, and gives it free again. The port is never listened on.
fn try_listener(address: SocketAddr) -> io::Result<()> {
    match (bind_to(address), over_ipv4(address)) {
        (Err(error), Some(over_ipv4)) if is_without_ipv6(&error) => bind_to(over_ipv4).map(drop),
        (bound, _) => bound.map(drop),
    }
}

/// Opens the file of the audit log as a start does; one that was not there is removed again.
fn try_file(path: &Path) -> io::Result<()> {
    let is_new = !path.try_exists()?;
    Audit::try_open(path)?;
    if is_new { std::fs::remove_file(path) } else { Ok(()) }
}
