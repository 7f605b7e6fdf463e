//! The configuration: read once, checked whole, then immutable. Covers `proxy.toml`, its defaults and its problems; a
//! policy defines the meaning of its own keys, and `cli` the command line.
//!
//! Two stages: as written (`file`, over `document` and `units`), then checked (`check`), which gives [`Config`].

mod address;
mod caller;
mod callers;
mod certificates;
mod check;
mod contradictions;
mod differences;
mod direction;
mod document;
mod effective;
mod engine_settings;
mod error;
mod file;
mod found;
mod kept;
mod messages;
mod needs;
mod origin;
mod policy_tables;
mod prices;
mod profiles;
mod record;
mod reload;
mod responses;
mod shared;
pub mod shipped;
mod slips;
mod source;
mod tables;
mod target;
mod telemetry;
#[cfg(test)]
mod tests;
mod tiers;
mod tls;
mod tool_rules;
mod traces;
mod units;
mod upstream;
mod variables;
mod windows;

pub use address::{without_path, without_secrets};
pub use caller::Caller;
pub use callers::{Callers, KnownCaller};
pub use certificates::{Certificates, digest_of};
pub use effective::{Change, Effective};
pub use engine::settings::{Mode, Unjudged};
pub use error::{Problem, Problems};
pub use file::{InheritedUpstream, Overrides};
pub use messages::{Messages, Threads};
pub use profiles::{Profile, Profiles};
pub use record::Record;
pub use reload::Reload;
pub use responses::{Responses, WebSocket};
pub use slips::FLAG_VARIABLES;
pub use source::{MAX_BYTES, Source};
pub use tables::{
    Admin, Audit, Conversation, EQUAL_REQUESTS_OF_A_STORM, Limits, Listen, Log, LogFormat, Model, Notices,
    OwnToken, Reask, StateStore,
};
pub use target::{ANTHROPIC_HOST, ENDPOINTS, OPENAI_HOST, ProxyUrl, Target};
pub use telemetry::Telemetry;
pub use tiers::{AUTH, GUEST, KeyHash, Tier};
pub use tls::{ClientCertificate, Tls};
pub use tool_rules::UnfittedRule;
pub use traces::Traces;
pub use upstream::{KeyHeader, ProxyChoice, Upstream};

use crate::secret;
use contradictions::contradictions;
use document::Document;
use engine::price::Price;
use file::{Base, File, Overriding, Written};
use model::plan::ModelEndpoint;
use origin::Origin;
use policies::approvals::Webhook;
use policies::pattern::{Pattern, best_match};
use policies::redact;
use policies::set::PolicySet;
use policy_tables::{Builder, Layer};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use tool_rules::{ToolRule, impossible, own_rules};

/// A whole configuration that has been checked.
pub struct Config {
    pub mode: Mode,
    pub reload: Reload,
    pub listen: Listen,
    /// What the files of `listen.tls` hold; `None`: clients connect without TLS.
    pub certificates: Option<Certificates>,
    pub upstream: Upstream,
    pub limits: Limits,
    pub notices: Notices,
    pub conversation: Conversation,
    pub reask: Reask,
    pub responses: Responses,
    pub messages: Messages,
    pub store: StateStore,
    pub log: Log,
    pub audit: Audit,
    pub record: Record,
    pub admin: Admin,
    pub telemetry: Telemetry,
    /// The only callers that are served, if there are some.
    pub callers: Callers,
    /// Settings by model; the best match counts.
    pub models: Vec<(Pattern, Model)>,
    /// Prices that the settings of models hold.
    prices: Vec<(Pattern, Price)>,
    /// The policies of requests without a profile.
    pub policies: PolicySet,
    pub profiles: Profiles,
    /// The source, and the beginning of the SHA-256 of its text, in hexadecimal.
    pub source: String,
    pub hash: String,
    /// All of the settings as text.
    pub effective: Effective,
    /// The settings of each policy that is on, as TOML, one `key = value` each, in registry order.
    pub policy_settings: Vec<(&'static str, Vec<String>)>,
    /// Settings that are allowed but probably a mistake, one sentence each.
    pub warnings: Vec<String>,
    /// The names and patterns of tools in the operator's own settings.
    tool_rules: Vec<ToolRule>,
    origin: Origin,
}

/// The effective settings: secrets must not reach a log through `{:?}`.
impl fmt::Debug for Config {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.effective.as_toml())
    }
}

impl Config {
    /// Reads a configuration; `overrides` take precedence over it, and `registry` lists the existing policies.
    ///
    /// # Errors
    /// All problems at once. Where the text is not TOML, nothing beyond that is checked.
    pub fn load(
        source: Source,
        overrides: &Overrides,
        registry: &[policies::Entry],
    ) -> Result<Self, Problems> {
        if source != Source::Folder {
            return Self::read(source, overrides, registry, None);
        }
        let (source, mut unread) = found::find(registry, &overrides.settings);
        if matches!(source, Source::Found { .. }) {
            match Self::read(source, overrides, registry, None) {
                Ok(config) => return Ok(config),
                Err(problems) => unread = Some(found::refused(&problems)),
            }
        }
        let mut config = Self::read(Source::Shipped, overrides, registry, None)?;
        config.warnings.extend(unread);
        Ok(config)
    }

    /// Reads a new configuration for the program that runs with this one. Settings that need a restart keep their
    /// current values, which is reported as a warning.
    ///
    /// # Errors
    /// As [`Self::load`], and where a new setting is inconsistent with a kept one.
    pub fn reload(
        &self,
        source: Source,
        overrides: &Overrides,
        registry: &[policies::Entry],
    ) -> Result<Self, Problems> {
        // A file that was found is not looked for again: it may have been changed by the program that is governed.
        let source = if source == Source::Folder { self.origin.source() } else { source };
        Self::read(source, overrides, registry, Some(self))
    }

    fn read(
        source: Source,
        overrides: &Overrides,
        registry: &[policies::Entry],
        running: Option<&Self>,
    ) -> Result<Self, Problems> {
        let overriding = Overriding::read(overrides);
        let give_up = |mut problems: Vec<Problem>| {
            problems.extend(overriding.problems.iter().cloned());
            Problems::sorted(problems)
        };
        let (name, is_shipped, is_trusted) = (source.name(), source == Source::Shipped, source.is_trusted());
        let passed_over = source.passed_over();
        let text = source.clone().text(running.is_some()).map_err(|problem| give_up(vec![problem]))?;
        let mut document = Document::parse(&name, &text).map_err(give_up)?;
        if running.is_some() {
            document.require_a_table().map_err(|problem| give_up(vec![problem]))?;
        }
        let settings = variables::as_toml(&overrides.settings, text.len());
        let environment: &dyn Fn(&str) -> Option<String> = &|name| std::env::var(name).ok();
        let value_of = is_trusted.then_some(environment);
        let misused = document.apply_variables(&overrides.settings, &settings, value_of);
        let mut written = file::read(&document);
        overriding.apply(&mut written.file);
        written.problems.extend(file::inherit_upstream(overrides, &document, &mut written.file));
        let defaults = shipped::with_all_that_is_off();
        let builder = Builder::new(&document, registry, &defaults);
        let under = match std::mem::replace(&mut written.file.base, Base::None) {
            Base::Shipped if !is_shipped => builder.shipped(),
            _ => Layer::default(),
        };
        let (base, refused) =
            builder.build(&["policy"], &document.tables("policy").unwrap_or_default(), &under, &[]);
        let built = profiles::build(&builder, &base, &written.file);
        let shared = profiles::shared_keys(&builder, &written.file);
        let check = |written: &Written| {
            let checked = check::check(&document, written, &overriding, is_trusted);
            let unmet = needs::unmet(&document, &written.file, &base.set(), &built.profiles);
            (checked.certificates, checked.warnings, [checked.problems, unmet].concat())
        };
        let (mut certificates, mut warnings, mut wrong) = check(&written);
        let problems =
            [misused, std::mem::take(&mut written.problems), refused, built.problems, shared, wrong].concat();
        if !(problems.is_empty() && overriding.problems.is_empty()) {
            return Err(give_up(problems));
        }
        if let Some(running) = running {
            let kept = kept::keep(&mut written.file, running);
            // Checked again, since new settings must be consistent with kept ones.
            (certificates, warnings, wrong) = check(&written);
            let restarts: Vec<String> = kept.iter().map(|key| format!("needs a restart: {key}")).collect();
            if !wrong.is_empty() {
                return Err(give_up(because_kept(wrong, &restarts.join(", "))));
            }
            warnings = [restarts, warnings].concat();
        }
        warnings.extend(passed_over.into_iter().chain(built.warnings));
        let (tool_rules, of_policies) = tool_rules_of(&builder, &base, &built.profiles, &written.file);
        warnings.extend(of_policies);
        let mut config = Self::new(written.file, &base, built.profiles, warnings);
        config.tool_rules = tool_rules;
        config.hash = short_hash(&format!("{text}{}", settings.trim_start()));
        config.origin = Origin::new(source, text, overrides);
        (config.source, config.certificates) = (name, certificates);
        config.warnings.extend([config.environment_warnings(), config.unpriced_models()].concat());
        redact::compile_for(&config.policy_names());
        Ok(config)
    }

    /// Warnings about variables; not errors, since the environment may be different where the program starts.
    fn environment_warnings(&self) -> Vec<String> {
        if !self.origin.is_trusted() {
            return Vec::new();
        }
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let secrets = self.secret_variables();
        let is_used =
            |name: &str| self.origin.names_variable(name) || secrets.iter().any(|(_, secret)| secret == name);
        let unusable = secrets.iter().filter_map(|(key, name)| unusable(key, name));
        slips::misspelt_variables(names, is_used).into_iter().chain(unusable).collect()
    }

    /// The variables that hold secrets, each with the key that names it.
    fn secret_variables(&self) -> Vec<(String, String)> {
        let named = |key, name: &String| Some((key, name.clone())).filter(|(_, name)| !name.is_empty());
        let of_file = [
            ("upstream.api_key_env", &self.upstream.api_key_env),
            ("admin.token_env", &self.admin.token_env),
            ("store.url_env", &self.store.url_env),
            ("store.secret_env", &self.store.secret_env),
        ];
        let of_file = of_file.into_iter().filter_map(|(key, name)| named(key, name));
        let of_models = self.model_endpoints();
        let of_models = of_models.filter_map(|(table, at)| Some((format!("{table}.key_env"), at.key_env?)));
        let webhooks = self.webhooks();
        let webhooks =
            webhooks.map(|webhook| ("policy.confirm.webhook.secret_env".to_owned(), webhook.secret_env));
        let of_file = of_file.map(|(key, name)| (key.to_owned(), name));
        let headers =
            self.telemetry.traces.headers.values().filter(|_| self.telemetry.traces.address().is_some());
        let headers = headers.map(|name| ("telemetry.traces.headers".to_owned(), name.clone()));
        of_models.chain(webhooks).chain(of_file).chain(headers).collect()
    }

    /// The factor for the token estimate of `model`, in percent.
    pub fn token_factor(&self, model: &str) -> u32 {
        best_match(&self.models, model).map_or(100, |model| model.token_factor)
    }

    /// What `model` costs, where that is configured or known.
    pub fn price(&self, model: &str) -> Option<&Price> {
        prices::price_of(&self.prices, model)
    }

    /// Models of the settings whose price a policy needs and that have none, one warning each.
    fn unpriced_models(&self) -> Vec<String> {
        if !self.sets().any(|set| set.accounting().is_some_and(|needs| needs.spend)) {
            return Vec::new();
        }
        let named = self.models.iter().map(|(name, _)| name).filter(|name| name.is_exact());
        let unpriced = named.filter(|name| self.price(name.as_str()).is_none());
        let warning = |name: &Pattern| {
            format!(
                "model.{}: its price is not known, so policy.budget.spend_usd does not limit it and only its tokens count; \
                 set price",
                name.as_str()
            )
        };
        unpriced.map(warning).collect()
    }

    /// The context window of `model` in tokens, where it is configured or known.
    pub fn context_window(&self, model: &str) -> Option<u32> {
        let configured = best_match(&self.models, model).map(|model| model.context_window);
        configured.filter(|tokens| *tokens > 0).or_else(|| windows::known(model))
    }

    /// The policies of requests with `profile`.
    pub fn policies_of<'a>(&'a self, profile: Option<&'a Profile>) -> &'a PolicySet {
        profile.map_or(&self.policies, |profile| &profile.policies)
    }

    /// All policy sets, including those of profiles.
    fn sets(&self) -> impl Iterator<Item = &PolicySet> {
        std::iter::once(&self.policies).chain(self.profiles.iter().map(|profile| &profile.policies))
    }

    /// The names of the policies that are on, in any profile.
    pub fn policy_names(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for name in self.sets().flat_map(PolicySet::names) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// The endpoints to which the policies of any profile send summary requests, each once.
    pub fn summary_endpoints(&self) -> impl Iterator<Item = ModelEndpoint> {
        self.sets().flat_map(PolicySet::summary_endpoints).collect::<BTreeSet<_>>().into_iter()
    }

    /// The endpoints at which the policies of any profile ask other models, each once, with the table that names it.
    pub fn model_endpoints(&self) -> impl Iterator<Item = (String, ModelEndpoint)> {
        let about_calls =
            self.sets().flat_map(PolicySet::model_endpoints).collect::<BTreeSet<_>>().into_iter();
        let about_calls = about_calls.map(|(policy, at)| (format!("policy.{policy}.model"), at));
        let summaries = self.summary_endpoints();
        summaries.map(|at| ("policy.compact.summary".to_owned(), at)).chain(about_calls)
    }

    /// The webhooks that the policies of any profile notify of calls that wait, each once.
    pub fn webhooks(&self) -> impl Iterator<Item = Webhook> {
        let webhooks = self.sets().filter_map(|set| set.confirming()?.webhook.as_deref().cloned());
        webhooks.collect::<BTreeSet<_>>().into_iter()
    }

    /// The tools that the settings of any policy name, patterns left out.
    pub fn named_tools(&self) -> Vec<String> {
        let named = self.sets().flat_map(PolicySet::named_tools).map(|(_, tool)| &tool.pattern);
        let exact = named.filter(|pattern| pattern.is_exact());
        let mut tools: Vec<String> = exact.map(|pattern| pattern.as_str().to_owned()).collect();
        tools.sort_unstable();
        tools.dedup();
        tools
    }

    fn new(file: File, base: &Layer<'_>, profiles: Profiles, warnings: Vec<String>) -> Self {
        let policy_settings = base.on().map(|on| (on.rule.name(), setting_lines(&on.settings))).collect();
        // Only numbers, strings and lists, which JSON can always represent.
        let mut all = match serde_json::to_value(&file) {
            Ok(Value::Object(all)) => all,
            _ => Map::new(),
        };
        let callers = Callers::of(&file);
        all.insert("policy".to_owned(), Value::Object(base.settings()));
        all.insert("profile".to_owned(), profiles.iter().map(Profile::as_written).collect());
        Self {
            mode: file.mode,
            reload: file.reload,
            listen: file.listen,
            certificates: None,
            upstream: file.upstream,
            limits: file.limits,
            notices: file.notices,
            conversation: file.conversation,
            reask: file.reask,
            responses: file.responses,
            messages: file.messages,
            store: file.store,
            log: file.log,
            audit: file.audit,
            record: file.record,
            admin: file.admin,
            telemetry: file.telemetry,
            callers,
            prices: prices::own_prices(&file.model),
            models: file.model.into_iter().map(|(name, model)| (Pattern::new(name), model)).collect(),
            policies: base.set(),
            profiles,
            source: String::new(),
            hash: String::new(),
            effective: Effective::new(&all),
            policy_settings,
            warnings,
            tool_rules: Vec::new(),
            origin: Origin::default(),
        }
    }
}

/// Why toolrein would not start here with the secret that the variable `name` holds for `key`, if it would not.
fn unusable(key: &str, name: &str) -> Option<String> {
    if std::env::var_os(name).is_none() {
        return Some(format!("{key}: {name} is not set here, and without it toolrein does not start"));
    }
    let checked = secret::of_variable(name).map_err(str::to_owned).and_then(|secret| match key {
        "admin.token_env" => secret::check_token(&secret),
        "store.url_env" | "store.secret_env" | "policy.confirm.webhook.secret_env" => Ok(()),
        _ => secret::header_value(&secret).map(drop).map_err(str::to_owned),
    });
    let problem = checked.err()?;
    Some(format!(
        "{key}: the value of {name} cannot be used here, and toolrein does not start with it: {problem}"
    ))
}

/// Problems between new settings and those that wait for a restart, each with these.
fn because_kept(problems: Vec<Problem>, restarts: &str) -> Vec<Problem> {
    let because = |problem: Problem| Problem { text: format!("{} ({restarts})", problem.text), ..problem };
    problems.into_iter().map(because).collect()
}

/// Enough of a hash to distinguish files.
fn short_hash(text: &str) -> String {
    let hash = KeyHash::of(text.as_bytes()).map(KeyHash::bytes).unwrap_or_default();
    hash.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// A policy's settings, `key = value` each; nested tables get one line for each entry.
fn setting_lines(settings: &Value) -> Vec<String> {
    let Value::Object(settings) = settings else { return Vec::new() };
    let mut settings = settings.clone();
    effective::hide_secrets(&mut settings, "", &mut BTreeMap::new());
    let mut lines = Vec::new();
    for (key, value) in &settings {
        match value {
            Value::Object(entries) if entries.values().any(Value::is_object) => {
                let entries = entries.iter();
                lines.extend(
                    entries.map(|(name, value)| format!("{key}.{}", effective::setting(name, value))),
                );
            }
            _ => lines.push(effective::setting(key, value)),
        }
    }
    lines
}

/// The file's own rules about tools, and the warnings about its policies together.
fn tool_rules_of(
    builder: &Builder<'_>,
    base: &Layer<'_>,
    profiles: &Profiles,
    file: &File,
) -> (Vec<ToolRule>, Vec<String>) {
    let shipped = builder.shipped_tools();
    let mut warnings = contradictions(base, profiles, &file.reask, &shipped);
    if profiles.is_empty() {
        warnings.extend(check::idle_warning(file.mode, base.on().count()));
    }
    let rules = own_rules(base, profiles, file, &shipped);
    warnings.extend(impossible(&rules));
    (rules, warnings)
}
