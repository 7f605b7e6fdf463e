//! Configuration reload without a restart. Renews what depends on the configuration and keeps what outlives it: the
//! state store, the memo, connections to an unchanged upstream, pending approvals. A refused configuration changes
//! nothing. The caller decides when to reload.

use super::sinks::{live_bounds, log_settings, own_series, seconds, seconds_now};
use super::{Running, SimulatedModel, StartError, bearer_of, body_timeout, configured, upstream_settings};
use crate::admin::{Admin, Pages, StopScope};
use crate::config::{Certificates, Change, Config, Overrides, Source, Target};
use crate::proxy::handler::AppState;
use crate::proxy::summaries::ModelEndpoints;
use crate::proxy::upstream::{Upstream, UpstreamSettings};
use crate::proxy::upstream_key::UpstreamKeyError;
use crate::telemetry::log::{Configured, Level};
use engine::Shared;
use serde::Serialize;
use serde_json::json;
use std::sync::Arc;

impl Running {
    /// Reads the configuration again, from the same source and with the same overrides as at the start. Running
    /// requests keep the configuration with which they began; the next request gets the new one. The result is logged
    /// and counted; `false`: the new one was refused and everything stays as it was.
    pub fn reload(&self, source: &Source, overrides: &Overrides, registry: &[policies::Entry]) -> bool {
        let log = &self.telemetry.log;
        let read = self.handler.0.load_full().config.reload(source.clone(), overrides, registry);
        let refused = match read {
            Ok(config) => self.swap(config).err().map(|error| vec![error.to_string()]),
            Err(problems) => Some(problems.0.iter().map(ToString::to_string).collect()),
        };
        for problem in refused.iter().flatten() {
            log.note(
                Level::Error,
                "the new configuration is refused; the old one stays in force",
                json!({ "problem": problem }),
            );
        }
        self.telemetry.metrics.count_reload(refused.is_none());
        refused.is_none()
    }

    /// All steps that can fail come before any change.
    fn swap(&self, config: Config) -> Result<(), StartError> {
        let (old, pages) = (self.handler.0.load_full(), self.pages.0.load_full());
        let bearer = bearer_of(&config.admin)?;
        let app = renewed(&old, config, self.model.as_ref())?;
        let (config, telemetry) = (Arc::clone(&app.config), &self.telemetry);
        let admin = Admin {
            config: config.effective.as_json().into(),
            bearer,
            stop_scope: Arc::new(StopScope::of(&config)),
            body_timeout: body_timeout(&config),
            settings: Arc::clone(&config),
            upstream: app.upstream.name().into(),
            ..(*pages.admin).clone()
        };
        telemetry.log.set_level(log_settings(&config.log).level);
        self.filter.set(&config.log.level);
        let series = &config.telemetry;
        telemetry.metrics.configure(own_series(&config), series.callers, series.gen_ai);
        telemetry.metrics.configured(&config.hash, seconds_now());
        self.replace_certificates(old.config.certificates.as_ref(), &config);
        telemetry.live.configure(live_bounds(&config));
        self.handler.0.store(Arc::new(app));
        self.pages.0.store(Arc::new(Pages::new(admin)));
        for warning in &config.warnings {
            telemetry.log.note(Level::Warn, warning, json!({}));
        }
        let changes = old.config.effective.changes(&config.effective);
        let mode = config.mode.as_str();
        let reloaded = Reloaded { mode, config: configured(&config), changes };
        telemetry.log.note(Level::Info, "the configuration was reloaded", reloaded);
        Ok(())
    }

    /// Takes the certificates of `config` for connections from now on; logs it where they are others than the `old` ones.
    fn replace_certificates(&self, old: Option<&Certificates>, config: &Config) {
        let Some((port, found)) = self.proxy.tls().zip(config.certificates.as_ref()) else { return };
        port.replace(Arc::clone(&found.server), config.listen.tls.handshake_timeout);
        self.telemetry.metrics.tls().certificate_ends(seconds(found.ends));
        if old.is_some_and(|old| old.own != found.own) {
            let ends = humantime::format_rfc3339_seconds(found.ends).to_string();
            let message = "connections from now on get another certificate (listen.tls)";
            self.telemetry.log.note(Level::Info, message, json!({ "ends": ends }));
        }
    }
}

/// The log line about a reload.
#[derive(Serialize)]
struct Reloaded<'a> {
    mode: &'static str,
    #[serde(flatten)]
    config: Configured<'a>,
    /// No value contains a secret: these are the values of `/config`.
    changes: Vec<Change>,
}

/// The state with another configuration.
fn renewed(old: &AppState, config: Config, model: Option<&SimulatedModel>) -> Result<AppState, StartError> {
    let settings = reach(&config, model)?;
    // With https the roots of trust are read again too, since they may have been renewed.
    let stays = settings == reach(&old.config, model)? && settings.base.scheme_str() == Some("http");
    let endpoints = ModelEndpoints::of(&config, &settings)?;
    let webhooks = old.webhooks.renewed(&config, &settings)?;
    let upstream = if stays { Arc::clone(&old.upstream) } else { Arc::new(Upstream::new(settings)?) };
    let config = Arc::new(config);
    let shared = Arc::new(Shared {
        settings: Arc::new(config.engine_settings()),
        memo: Arc::clone(&old.memo),
        key: old.key.clone(),
        secret: old.shared.secret.clone(),
        upstream: upstream.name().to_owned(),
        summaries: Arc::clone(&old.summaries.pins) as _,
    });
    Ok(AppState {
        config,
        upstream,
        shared,
        store: Arc::clone(&old.store),
        memo: Arc::clone(&old.memo),
        memory: old.memory.clone(),
        telemetry: old.telemetry.clone(),
        keepers: old.keepers.clone(),
        key: old.key.clone(),
        held: Arc::clone(&old.held),
        conversation_lock: Arc::clone(&old.conversation_lock),
        equal_requests: Arc::clone(&old.equal_requests),
        summaries: old.summaries.at(endpoints),
        webhooks,
    })
}

/// The settings of the upstream; the simulated model has the address at which it was started.
fn reach(config: &Config, model: Option<&SimulatedModel>) -> Result<UpstreamSettings, UpstreamKeyError> {
    let base = match (&config.upstream.url, model) {
        (Target::Url(base), _) => base.clone(),
        (Target::Demo, model) => model.map(SimulatedModel::base).unwrap_or_default(),
    };
    upstream_settings(config, base)
}
