//! The state of a job as words: whether a value such as `IN_PROGRESS`, `ContainerCreating` or "not ready yet" says that it
//! goes on, or that it is over. English forms (`-ing`, "not ... yet") find what no list of states holds. Decides nothing.

/// What a state says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobState {
    Running,
    /// Finished, failed or stopped.
    Over,
    Unknown,
}

/// Longer values are sentences, in bytes.
const LONGEST_STATE: usize = 80;
/// States that wait or run, beside the forms in -ing.
const RUNNING: [&str; 18] = [
    "pending",
    "queued",
    "enqueued",
    "scheduled",
    "submitted",
    "accepted",
    "started",
    "runnable",
    "incomplete",
    "unfinished",
    "ongoing",
    "underway",
    "busy",
    "wait",
    "unready",
    "notready",
    "notstarted",
    "deferred",
];
/// States that do not change any more.
const OVER: [&str; 40] = [
    "complete",
    "completed",
    "finished",
    "done",
    "succeeded",
    "successful",
    "failed",
    "failure",
    "error",
    "errored",
    "cancelled",
    "canceled",
    "aborted",
    "crashed",
    "killed",
    "timeout",
    "expired",
    "rejected",
    "terminated",
    "stopped",
    "dead",
    "denied",
    "exited",
    "skipped",
    "closed",
    "merged",
    "archived",
    "deleted",
    "delivered",
    "passed",
    "ready",
    "healthy",
    "idle",
    "inactive",
    "unknown",
    "lost",
    "found",
    "available",
    "invalid",
    "revoked",
];
/// Words in -ing that are no state of a job that goes on.
const NO_PROGRESS: [&str; 16] = [
    "missing",
    "failing",
    "warning",
    "nothing",
    "something",
    "anything",
    "everything",
    "string",
    "during",
    "existing",
    "setting",
    "listing",
    "according",
    "morning",
    "evening",
    "meaning",
];

/// What the state `value` says.
pub(super) fn of_state(value: &str) -> JobState {
    if value.len() > LONGEST_STATE {
        return JobState::Unknown;
    }
    of_words(&words(value))
}

/// What a few words say: the state itself, or the part of a sentence that names it.
pub(super) fn of_words(words: &[String]) -> JobState {
    if says_in_progress(words) || is_unfinished(words) {
        return JobState::Running;
    }
    if words.iter().any(|word| OVER.contains(&word.as_str())) || has(words, &["timed", "out"]) {
        return JobState::Over;
    }
    if words.iter().any(|word| is_running(word)) { JobState::Running } else { JobState::Unknown }
}

/// Whether a word is the state of something that runs or waits.
pub(super) fn is_running(word: &str) -> bool {
    RUNNING.contains(&word) || is_progressive(word)
}

/// Whether a word has the form of "running", "Building", "provisioning".
pub(super) fn is_progressive(word: &str) -> bool {
    word.len() >= 5 && word.ends_with("ing") && !NO_PROGRESS.contains(&word)
}

/// Whether words say "in progress" or that something waits in a queue.
pub(super) fn says_in_progress(words: &[String]) -> bool {
    [&["in", "progress"][..], &["inprogress"], &["in", "queue"], &["in", "the", "queue"]]
        .iter()
        .any(|said| has(words, said))
}

/// Whether words say that an end has not come: "not ready", "has not finished yet", "isn't done".
pub(super) fn is_unfinished(words: &[String]) -> bool {
    const ENDS: [&str; 8] =
        ["ready", "done", "finished", "complete", "completed", "started", "over", "terminated"];
    words.iter().enumerate().any(|(at, word)| {
        let negates = matches!(word.as_str(), "not" | "isnt" | "hasnt" | "arent" | "havent" | "never");
        let after = words.iter().skip(at + 1).take(3);
        // "Not available yet" waits, "not available" is an answer.
        let comes = after.clone().any(|word| word == "yet");
        let ends = |word: &String| ENDS.contains(&word.as_str()) || (comes && OVER.contains(&word.as_str()));
        negates && after.into_iter().any(ends)
    })
}

fn has(words: &[String], said: &[&str]) -> bool {
    words.windows(said.len()).any(|window| window.iter().zip(said).all(|(one, other)| one == other))
}

/// The words of a text in lower case, those of `camelCase` and `SNAKE_CASE` apart; "isn't" is one word.
pub(super) fn words(text: &str) -> Vec<String> {
    first_words(text, usize::MAX)
}

/// The first `most` of these words; the rest of the text is not read.
pub(super) fn first_words(text: &str, most: usize) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_after_lower = false;
    for char in text.chars() {
        if matches!(char, '\'' | '’') {
            continue;
        }
        let begins = char.is_uppercase() && is_after_lower;
        if (begins || !char.is_alphanumeric()) && words.last().is_some_and(|word| !word.is_empty()) {
            if words.len() == most {
                return words;
            }
            words.push(String::new());
        }
        is_after_lower = char.is_lowercase();
        if let (true, Some(word)) = (char.is_alphanumeric(), words.last_mut()) {
            word.extend(char.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_jobs_that_go_on_are_told_from_those_that_are_over() {
        for (value, expected) in [
            ("running", JobState::Running),
            ("RUNNING", JobState::Running),
            ("in_progress", JobState::Running),
            ("IN PROGRESS", JobState::Running),
            ("InProgress", JobState::Running),
            ("CREATE_IN_PROGRESS", JobState::Running),
            ("UPDATE_COMPLETE_CLEANUP_IN_PROGRESS", JobState::Running),
            ("queued", JobState::Running),
            ("Pending", JobState::Running),
            ("ContainerCreating", JobState::Running),
            ("provisioning", JobState::Running),
            ("transcoding", JobState::Running),
            ("NotStarted", JobState::Running),
            ("not ready", JobState::Running),
            ("not available yet", JobState::Running),
            ("waiting for a worker", JobState::Running),
            ("isn't finished", JobState::Running),
            ("completed", JobState::Over),
            ("Succeeded", JobState::Over),
            ("FAILED", JobState::Over),
            ("build failed", JobState::Over),
            ("timed_out", JobState::Over),
            ("CREATE_COMPLETE", JobState::Over),
            ("not found", JobState::Over),
            ("not available", JobState::Over),
            ("ok", JobState::Unknown),
            ("success", JobState::Unknown),
            ("active", JobState::Unknown),
            ("missing", JobState::Unknown),
            ("", JobState::Unknown),
        ] {
            assert_eq!(of_state(value), expected, "{value}");
        }
        assert_eq!(of_state(&"running ".repeat(20)), JobState::Unknown);
    }
}
