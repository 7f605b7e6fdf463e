//! Calls that would wait for a person's word where nobody could say it: a policy in the held form, and no token for the
//! admin port. Told as problems, since such calls would never run.

use super::document::Document;
use super::error::Problem;
use super::file::File;
use super::profiles::Profiles;
use crate::policy::plan::Confirming;
use crate::policy::set::PolicySet;

/// One problem for the policies outside of profiles, and one for each profile.
pub(super) fn unanswerable(
    document: &Document<'_>,
    file: &File,
    base: &PolicySet,
    profiles: &Profiles,
) -> Vec<Problem> {
    if !file.admin.token_env.is_empty() {
        return Vec::new();
    }
    let holds = |policies: &PolicySet| {
        policies.confirming().is_some_and(|confirming| Confirming::hold_ms(confirming).is_some())
    };
    let problem = |key: String| {
        let text =
            "\"held\" needs admin.token_env: the environment variable with the token of those who may answer";
        document.problem_at(&[&key], text.to_owned())
    };
    let mut problems = Vec::new();
    if holds(base) {
        problems.push(problem("policy.confirm.form".to_owned()));
    }
    let own =
        |name: &str| document.problem_at(&[&format!("profile.{name}.policy.confirm.form")], String::new());
    for profile in profiles.iter().filter(|profile| holds(&profile.policies)) {
        // One that only takes the form over is mended with the other.
        if own(&profile.name).line.is_some() || problems.is_empty() {
            problems.push(problem(format!("profile.{}.policy.confirm.form", profile.name)));
        }
    }
    problems
}
