//! Requirements of policies on other tables: somebody who can decide on calls that wait, and a state store that keeps
//! facts as long as the policies' windows. Unmet ones are reported as problems, since such policies could not work.

use super::document::Document;
use super::error::{Problem, suggestion};
use super::file::File;
use super::profiles::Profiles;
use super::tiers::{AUTH, GUEST, is_built_in};
use super::units::write_span;
use policies::about::Confirming;
use policies::set::PolicySet;
use std::time::Duration;

/// The problems of the policies outside of profiles, and of each profile.
pub(super) fn unmet(
    document: &Document<'_>,
    file: &File,
    base: &PolicySet,
    profiles: &Profiles,
) -> Vec<Problem> {
    let mut problems = needs_of(document, file, "", base);
    for profile in profiles.iter() {
        let own = needs_of(document, file, &format!("profile.{}.", profile.name), &profile.policies);
        // A profile that only inherits a setting is fixed where that setting is.
        let is_taken_over = |problem: &Problem| problem.line.is_none() && !problems.is_empty();
        let new: Vec<Problem> = own.into_iter().filter(|problem| !is_taken_over(problem)).collect();
        problems.extend(new);
    }
    problems
}

fn needs_of(document: &Document<'_>, file: &File, before: &str, policies: &PolicySet) -> Vec<Problem> {
    let mut problems = Vec::new();
    let waits = policies.confirming().is_some_and(|confirming| Confirming::hold_ms(confirming).is_some());
    if waits && file.admin.token_env.is_empty() {
        let text = "\"held\" needs admin.token_env: the environment variable with the token of the people who may answer";
        let key = format!("{before}policy.confirm.form");
        problems.push(document.problem_at(&[&key], text.to_owned()));
    }
    if policies.confirming().is_none() {
        for (policy, key) in policies.needs_approvals() {
            let text = "\"ask\" needs policy.confirm, which says how a person is asked".to_owned();
            problems.push(document.problem_at(&[&format!("{before}policy.{policy}.{key}")], text));
        }
    }
    let is_known = |tier: &str| is_built_in(tier) || file.tier.contains_key(tier);
    for counted in policies.counted() {
        for tier in counted.tiers.iter().filter(|tier| !is_known(tier)) {
            let known: Vec<&str> = file.tier.keys().map(String::as_str).chain([GUEST, AUTH]).collect();
            let key = format!("{before}policy.quota.limits.{}.tiers", counted.name);
            let text = format!("there is no [tier.{tier}]; {}", suggestion(tier, &known));
            problems.push(document.problem_at(&[&key], text));
        }
    }
    let counted = policies.counted().iter();
    let counted = counted.map(|counted| ("quota", format!("limits.{}.per", counted.name), counted.window_ms));
    let windows = policies.windows().map(|(policy, key, window_ms)| (policy, key.to_owned(), window_ms));
    for (policy, key, window_ms) in counted.chain(windows) {
        let window = Duration::from_millis(window_ms);
        if window > file.store.ttl {
            let key = format!("{before}policy.{policy}.{key}");
            let (window, ttl) = (write_span(window), write_span(file.store.ttl));
            let text = format!("{window} is longer than the store keeps anything: store.ttl is {ttl}");
            problems.push(document.problem_at(&[&key], text));
        }
    }
    problems
}
