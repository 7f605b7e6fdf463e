//! The part of a configuration that the engine reads.

use super::Config;
use dialects::reply::Limits;
use engine::price::Price;
use engine::settings::{
    ConversationSettings, Models, NoticeSettings, ReaskSettings, Settings, UpstreamSettings, WaitSettings,
};
use std::sync::Arc;
use std::time::Duration;

/// How long a stream may stay open after the event that ends it: servers end it at once, some proxies never do.
const AFTER_END: Duration = Duration::from_secs(2);

impl Config {
    /// What exchanges under this configuration read.
    pub fn engine_settings(self: &Arc<Self>) -> Settings {
        let (limits, upstream, conversation) = (&self.limits, &self.upstream, &self.conversation);
        let profiles = self.profiles.iter();
        let models: Arc<Self> = Arc::clone(self);
        Settings {
            mode: self.mode,
            policies: self.policies.clone(),
            profiles: profiles.map(|profile| (Arc::clone(&profile.name), profile.policies.clone())).collect(),
            limits: Limits { event: limits.event_bytes, held: limits.held_bytes, reply: limits.reply_bytes },
            upstream: UpstreamSettings {
                tools_unsupported: upstream.tools_unsupported,
                tools_unsupported_tell: upstream.tools_unsupported_tell,
                overflow: upstream.overflow,
                broken_history: upstream.broken_history,
                errors: upstream.errors,
                error_in_200: upstream.error_in_200,
                unjudged: upstream.unjudged,
                remember: upstream.remember,
                ask_usage: upstream.ask_usage,
            },
            strict_store: self.store.strict,
            conversation: ConversationSettings {
                holdout: conversation.holdout,
                in_flight: conversation.in_flight,
                in_flight_wait: conversation.in_flight_wait,
            },
            notices: NoticeSettings {
                placement: self.notices.placement,
                system_models: self.notices.system_models.clone(),
            },
            reask: ReaskSettings { max: self.reask.max, answer_tools: Arc::clone(&self.reask.answer_tools) },
            waits: WaitSettings {
                heartbeat: self.limits.keepalive_comment,
                after_end: AFTER_END.min(upstream.idle_timeout),
            },
            models,
        }
    }
}

impl Models for Config {
    fn token_factor(&self, model: &str) -> u32 {
        self.token_factor(model)
    }

    fn context_window(&self, model: &str) -> Option<u32> {
        self.context_window(model)
    }

    fn price(&self, model: &str) -> Option<&Price> {
        self.price(model)
    }
}
