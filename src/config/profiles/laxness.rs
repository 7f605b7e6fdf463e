//! Whether a profile allows more than the policies outside of profiles. Clients may choose profiles by a header, so an
//! operator is warned of a laxer one.

use crate::config::differences::{Effect, of_policy};
use crate::config::policy_tables::Layer;

/// What `profile` allows beyond `base`: policies that are off in it, and settings that allow more. Policies that only
/// change texts are left out. In the order of the registry.
pub(super) fn allowed_beyond(base: &Layer<'_>, profile: &Layer<'_>) -> Vec<String> {
    let own = profile.settings();
    let mut found = Vec::new();
    for configured in base.on() {
        let (name, about) = (configured.rule.name(), configured.rule.about());
        // Those that edit the context only change texts.
        if about.edits_context || about.idle.is_some() {
            continue;
        }
        let differences = of_policy(name, &configured.settings, own.get(name));
        let laxer = differences.into_iter().filter(|difference| difference.effect == Effect::Laxer);
        found.extend(laxer.map(|difference| format!("{} {}", difference.key, difference.what)));
    }
    found
}
