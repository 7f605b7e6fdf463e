//! The configuration of the running program read again and swapped whole. Makes what hangs on a configuration anew and
//! keeps what outlives one: the ledger, the memo, connections to an upstream that stays, what waits for a person. A
//! configuration that is refused changes nothing. When to read again is its caller's affair.

use super::{
    Pages, Running, SimulatedModel, StartError, bearer_of, configured, log_settings, patience,
    upstream_settings,
};
use crate::admin::Admin;
use crate::config::{Change, Config, Overrides, Source, Target};
use crate::exchange::Shared;
use crate::policy;
use crate::proxy::handler::AppState;
use crate::proxy::summaries::Places;
use crate::proxy::upstream::{Upstream, UpstreamSettings};
use crate::telemetry::log::{Configured, Level};
use serde::Serialize;
use serde_json::json;
use std::sync::Arc;

impl Running {
    /// Reads the configuration again, from where and with what it was read at the start. Requests that run go on with
    /// the one that they began with, the next one has the new. What became of it is logged and counted; `false`: it
    /// was refused and everything is as it was.
    pub fn reload(&self, source: &Source, overrides: &Overrides, registry: &[policy::Entry]) -> bool {
        let log = &self.telemetry.log;
        let read = self.handler.0.load_full().config.reload(source.clone(), overrides, registry);
        let refused = match read {
            Ok(config) => self.swap(config).err().map(|error| vec![error.to_string()]),
            Err(problems) => Some(problems.0.iter().map(ToString::to_string).collect()),
        };
        for problem in refused.iter().flatten() {
            log.note(
                Level::Error,
                "the configuration is refused and stays as it was",
                json!({ "problem": problem }),
            );
        }
        self.telemetry.metrics.count_reload(refused.is_none());
        refused.is_none()
    }

    /// Everything that can fail comes before anything that changes.
    fn swap(&self, config: Config) -> Result<(), StartError> {
        let (old, pages) = (self.handler.0.load_full(), self.pages.0.load_full());
        let bearer = bearer_of(&config.admin)?;
        let gateway = renewed(&old, config, self.model.as_ref())?;
        let (config, telemetry) = (Arc::clone(&gateway.config), &self.telemetry);
        let admin = Admin { config: config.effective.as_json().into(), bearer, ..pages.admin.clone() };
        telemetry.log.set_level(log_settings(&config.log).level);
        self.filter.set(&config.log.level);
        telemetry.metrics.configure_tools(&config.named_tools());
        self.handler.0.store(Arc::new(gateway));
        self.pages.0.store(Arc::new(Pages { admin, patience: patience(&config) }));
        for warning in &config.warnings {
            telemetry.log.note(Level::Warn, warning, json!({}));
        }
        let changes = old.config.effective.changes(&config.effective);
        let mode = config.mode.as_str();
        let reloaded = Reloaded { mode, config: configured(&config), changes };
        telemetry.log.note(Level::Info, "the configuration was read again", reloaded);
        Ok(())
    }
}

/// What the line about a reload says.
#[derive(Serialize)]
struct Reloaded<'a> {
    mode: &'static str,
    #[serde(flatten)]
    config: Configured<'a>,
    /// Secrets are in none of the values: these are those of `/config`.
    changes: Vec<Change>,
}

/// The gateway with another configuration.
fn renewed(old: &AppState, config: Config, model: Option<&SimulatedModel>) -> Result<AppState, StartError> {
    let settings = reach(&config, model);
    // Behind https the roots of trust are read again too, since they may have been renewed.
    let stays = settings == reach(&old.config, model) && settings.base.scheme_str() == Some("http");
    let places = Places::of(&config, &settings)?;
    let upstream = if stays { Arc::clone(&old.upstream) } else { Arc::new(Upstream::new(settings)?) };
    let config = Arc::new(config);
    let shared = Arc::new(Shared {
        config: Arc::clone(&config),
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
        ledger: Arc::clone(&old.ledger),
        memo: Arc::clone(&old.memo),
        memory: old.memory.clone(),
        telemetry: old.telemetry.clone(),
        key: old.key.clone(),
        held: Arc::clone(&old.held),
        conversation_lock: Arc::clone(&old.conversation_lock),
        summaries: old.summaries.at(places),
    })
}

/// How the upstream is reached; the simulated model is where it was started.
fn reach(config: &Config, model: Option<&SimulatedModel>) -> UpstreamSettings {
    let base = match (&config.upstream.url, model) {
        (Target::Url(base), _) => base.clone(),
        (Target::Demo, model) => model.map(SimulatedModel::base).unwrap_or_default(),
    };
    upstream_settings(config, base)
}
