//! Re-requests: calls that were made again right after their result was cut. They measure the cost of a cut. Finds
//! calls that are nearly the same as one whose result was cut in the group of results before; the plan carries the
//! finding and the metrics count it.

use model::calls::Call;
use model::identity::Hash;
pub use model::plan::work::step;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// The calls of the last reply and of the one before.
#[derive(Clone, Default)]
pub(super) struct ReRequests {
    /// The calls whose results were cut since the last reply.
    cut: HashMap<String, CutCalls>,
    /// The same for the reply before.
    before: HashMap<String, CutCalls>,
    /// The calls of the last reply, by message and position, that repeat one of these.
    again: HashSet<(usize, usize)>,
}

/// The calls of one tool as they are compared.
#[derive(Clone, Default)]
struct CutCalls {
    arguments: HashSet<Hash>,
    /// Arguments that name a location, as names and values.
    places: HashSet<(String, String)>,
}

impl ReRequests {
    /// A reply begins.
    pub(super) fn begin_reply(&mut self) {
        std::mem::swap(&mut self.before, &mut self.cut);
        self.cut.clear();
        self.again.clear();
    }

    /// The result of `call` was cut.
    pub(super) fn cut(&mut self, call: &Call) {
        let asked = self.cut.entry(call.name.to_string()).or_default();
        asked.arguments.insert(call.arguments);
        asked.places.extend(places(call));
    }

    /// A call was made.
    pub(super) fn call(&mut self, call: &Call) {
        let Some(asked) = self.before.get(&*call.name) else { return };
        let is_place = |place: &(String, String)| {
            step();
            asked.places.contains(place)
        };
        if asked.arguments.contains(&call.arguments) || places(call).iter().any(is_place) {
            self.again.insert((call.message, call.position));
        }
    }

    /// The tool, if `call`, whose result is read, repeated a call whose result was cut.
    pub(super) fn re_requested(&self, call: &Call) -> Option<String> {
        self.again.contains(&(call.message, call.position)).then(|| call.name.to_string())
    }
}

/// Longer arguments write content and do not look anything up.
const MAX_ARGUMENTS_BYTES: usize = 4_096;
/// Names of arguments for a file, a page or the like.
const PLACE_NAMES: [&str; 5] = ["path", "file", "url", "uri", "page"];

/// The arguments of `call` that name a location.
fn places(call: &Call) -> Vec<(String, String)> {
    let text = call.arguments_text();
    if text.len() > MAX_ARGUMENTS_BYTES {
        return Vec::new();
    }
    let Ok(Value::Object(arguments)) = serde_json::from_str(&text) else { return Vec::new() };
    let is_place = |name: &str, value: &str| {
        let name = name.to_ascii_lowercase();
        // A command line has slashes too, and is no location.
        let is_path = value.contains('/') && !value.contains(char::is_whitespace);
        is_path || PLACE_NAMES.iter().any(|place| name.contains(place))
    };
    let texts = arguments.into_iter().filter_map(|(name, value)| match value {
        Value::String(value) => Some((name, value)),
        _ => None,
    });
    texts.filter(|(name, value)| is_place(name, value)).collect()
}

#[cfg(test)]
mod tests {
    use crate::cases::{plan_of, policy};
    use crate::truncate::Truncate;
    use model::plan::Finding;
    use model::testing::{SampleRequest, call, reply, result, user};
    use serde_json::{Value, json};

    /// The indexes of the results that report a re-request, for calls of one tool each with a result, a reply each.
    fn re_requests(steps: &[(&str, Value, &str)]) -> Vec<usize> {
        let mut items = vec![user("q")];
        for (at, (tool, arguments, text)) in steps.iter().enumerate() {
            let id = format!("c{at}");
            items.extend([reply([call(&id, tool, &arguments.to_string())]), result(&id, text)]);
        }
        let request = SampleRequest::new(&items);
        let plan = plan_of(&policy::<Truncate>("max_chars = 1000\nduplicates = false"), &request);
        let is_of_read = |finding: &Finding| *finding == Finding::ReRequest { tool: "read".into() };
        assert!(plan.findings().all(|(_, finding)| is_of_read(finding)));
        plan.findings().map(|(message, _)| message / 2).collect()
    }

    #[test]
    fn the_same_call_or_the_same_place_right_after_a_cut_is_a_re_request() {
        let long = "many words\n".repeat(200);
        let read = |arguments: Value, result| ("read", arguments, result);
        let file = |name: &str| json!({ "path": name, "n": 1 });
        let part = json!({ "path": "/a", "offset": 100 });
        let (long, short) = (long.as_str(), "short");
        for (second, again) in [
            (read(file("/a"), long), true),
            (read(json!({ "n": 1, "path": "/a" }), short), true),
            (read(part.clone(), short), true),
            (read(file("/b"), short), false),
            (("grep", file("/a"), short), false),
        ] {
            let expected: &[usize] = if again { &[2] } else { &[] };
            assert_eq!(re_requests(&[read(file("/a"), long), second.clone()]), expected, "{second:?}");
        }
        assert!(re_requests(&[read(file("/a"), short), read(file("/a"), short)]).is_empty());
        let meanwhile = ("grep", json!({}), short);
        assert!(re_requests(&[read(file("/a"), long), meanwhile, read(part, short)]).is_empty());
        let command = |pipe: &str| json!({ "cmd": format!("ls /tmp | {pipe}") });
        assert!(re_requests(&[read(command("wc"), long), read(command("sort"), short)]).is_empty());
    }
}
