//! The usage sum of several replies: every one of them was billed. Changes only numbers.

use crate::usage::{Counts, Usage};
use bytes::Bytes;
use serde_json::{Map, Number, Value};

/// The usage of the replies to one client request.
#[derive(Debug, Default)]
pub struct Usages {
    /// The sum of the replies before the present one.
    earlier: Option<Value>,
    /// Each of these as numbers, where it reported any.
    earlier_tokens: Vec<Usage>,
    /// The usage of the present reply, unchanged: its first report, where others followed, and its last one.
    first: Option<Bytes>,
    last: Option<Bytes>,
    /// Its numbers, from all its reports.
    counts: Option<Counts>,
    /// The model that bills it, as JSON.
    model: Option<Bytes>,
}

impl Usages {
    /// Notes the present reply's usage. The last report counts, unless it has nothing but zeros: Perplexity sends one with
    /// every chunk, some send two. `model`: the value that names the model.
    pub fn note(&mut self, usage: &[u8], model: Option<&[u8]>) {
        let counts = Counts::parse(usage);
        if self.last.is_none() || !counts.is_zero() {
            let before = self.last.replace(Bytes::copy_from_slice(usage));
            self.first = self.first.take().or(before);
        }
        self.counts = Some(self.counts.map_or(counts, |known| known.with_later(&counts)));
        self.model = model.map(Bytes::copy_from_slice).or(self.model.take());
    }

    /// Notes the usage in an error of the upstream, as a whole body or as an event: what came before the failure is billed.
    pub fn note_error(&mut self, raw: &[u8]) {
        let object =
            raw.iter().position(|byte| *byte == b'{').zip(raw.iter().rposition(|byte| *byte == b'}'));
        let object = object.and_then(|(start, end)| raw.get(start..=end));
        let error: Option<Value> = object.and_then(|object| serde_json::from_slice(object).ok());
        let found = error.iter().flat_map(|error| [&error["response"]["usage"], &error["usage"]]);
        let usage = found.filter(|usage| usage.is_object()).map(Usage::read).find(is_report);
        self.earlier_tokens.extend(usage);
    }

    /// The model that the last reply with a usage names.
    pub fn model(&self) -> Option<String> {
        serde_json::from_slice(self.model.as_ref()?).ok()
    }

    pub fn begin_next_reply(&mut self) {
        self.earlier = self.total();
        self.earlier_tokens = self.tokens();
        (self.first, self.last, self.counts) = (None, None, None);
    }

    /// The usage of the present reply: its last report, with what only the first one says. The Messages API reports what it
    /// has read when it begins, and what it has written when it ends.
    pub fn last(&self) -> Option<Value> {
        let mut last = serde_json::from_slice(self.last.as_ref()?).ok()?;
        let first = self.first.as_ref().and_then(|usage| serde_json::from_slice(usage).ok());
        if let Some(first) = first {
            complete(&mut last, first);
        }
        Some(last)
    }

    /// The tokens of the present reply's completion, by what [`Self::last`] reports.
    pub fn written(&self) -> u64 {
        match (&self.first, &self.counts) {
            // The only report was read when it came.
            (None, Some(counts)) => counts.usage().completion,
            _ => self.last().map_or(0, |usage| Usage::read(&usage).completion),
        }
    }

    /// The usage of all replies.
    pub fn total(&self) -> Option<Value> {
        match (&self.earlier, self.last()) {
            (Some(earlier), Some(last)) => Some(sum(earlier, &last)),
            (earlier, last) => last.or_else(|| earlier.clone()),
        }
    }

    /// The usage of each reply that reported any tokens or a cost, as numbers.
    pub fn tokens(&self) -> Vec<Usage> {
        let last = self.counts.iter().map(Counts::usage);
        self.earlier_tokens.iter().copied().chain(last.filter(is_report)).collect()
    }

    /// What takes the place of the present reply's own usage, if others came before it that reported any.
    pub fn sum(&self) -> Option<Value> {
        self.earlier.as_ref().and_then(|_| self.total())
    }
}

/// Whether it reports anything.
fn is_report(usage: &Usage) -> bool {
    usage.billed() > 0 || usage.cost > 0 || usage.implausible
}

/// Gives `last` what only the `first` report of the reply says: counts of one reply only grow, so that a 0 says nothing.
fn complete(last: &mut Value, first: Value) {
    match (last, first) {
        (Value::Object(last), Value::Object(first)) => {
            for (name, value) in first {
                complete(last.entry(name).or_insert(Value::Null), value);
            }
        }
        (last, first) if last.is_null() || last.as_f64() == Some(0.0) => *last = first,
        _ => {}
    }
}

/// The sum of two usage objects: numbers of equal path are added, lists (the `iterations` of the Messages API) are joined,
/// other members are those of `later`.
fn sum(earlier: &Value, later: &Value) -> Value {
    match (earlier, later) {
        (Value::Object(earlier), Value::Object(later)) => Value::Object(sum_members(earlier, later)),
        (Value::Number(a), Value::Number(b)) => Value::Number(add(a, b)),
        (Value::Array(earlier), Value::Array(later)) => earlier.iter().chain(later).cloned().collect(),
        (earlier, Value::Null) => earlier.clone(),
        (_, later) => later.clone(),
    }
}

fn sum_members(earlier: &Map<String, Value>, later: &Map<String, Value>) -> Map<String, Value> {
    let mut all = later.clone();
    for (key, value) in earlier {
        let added = later.get(key).map_or_else(|| value.clone(), |later| sum(value, later));
        all.insert(key.clone(), added);
    }
    all
}

fn add(a: &Number, b: &Number) -> Number {
    let whole = a.as_u64().zip(b.as_u64()).and_then(|(a, b)| a.checked_add(b)).map(Number::from);
    let float = || Number::from_f64(a.as_f64()? + b.as_f64()?);
    whole.or_else(float).unwrap_or_else(|| b.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_reply_and_each_error_that_reports_tokens_is_billed_once() {
        let mut usages = Usages::default();
        let prompts = |usages: &Usages| usages.tokens().iter().map(|usage| usage.prompt).collect::<Vec<_>>();
        for (raw, expected) in [
            (r#"data: {"type":"response.failed","response":{"usage":{"input_tokens":7}}}"#, vec![7]),
            (r#"{"error":{"message":"busy"},"usage":{"prompt_tokens":9}}"#, vec![7, 9]),
            (r#"{"error":{"message":"busy"},"usage":null}"#, vec![7, 9]),
            ("busy", vec![7, 9]),
            ("}{", vec![7, 9]),
        ] {
            usages.note_error(raw.as_bytes());
            assert_eq!(prompts(&usages), expected);
        }
        usages.note(br#"{"prompt_tokens":20,"completion_tokens":1}"#, None);
        usages.note(br#"{"prompt_tokens":20,"completion_tokens":5}"#, None);
        usages.note(br#"{"prompt_tokens":0,"completion_tokens":0}"#, None);
        assert_eq!(usages.last().unwrap()["completion_tokens"], 5, "zeros are no report");
        usages.begin_next_reply();
        assert_eq!(prompts(&usages), [7, 9, 20]);
        usages.note(br#"{"prompt_tokens":0}"#, None);
        assert_eq!(prompts(&usages), [7, 9, 20]);
    }

    #[test]
    fn what_only_the_first_report_of_a_reply_says_stays_and_the_rest_is_that_of_the_last_one() {
        let mut usages = Usages::default();
        usages.note(br#"{"input_tokens":100,"output_tokens":1}"#, None);
        usages.note(br#"{"output_tokens":50}"#, None);
        assert_eq!(usages.last(), Some(json!({"input_tokens": 100, "output_tokens": 50})));
        assert_eq!(usages.written(), 50);
        usages.begin_next_reply();
        assert_eq!(usages.written(), 0);
        usages.note(br#"{"input_tokens":7,"output_tokens":2}"#, None);
        assert_eq!(usages.last(), Some(json!({"input_tokens": 7, "output_tokens": 2})));
        assert_eq!(usages.written(), 2);
        assert_eq!(usages.sum(), Some(json!({"input_tokens": 107, "output_tokens": 52})));
    }

    /// Usage that Anthropic reported, by recorded replies: the reports of one reply, in order.
    const RECORDED: &str = include_str!("../../../tests/data/messages/usage.jsonl");

    /// What the reports of one reply of the Messages API come to, by their own names: the last number above 0 of each, and of
    /// all iterations where these are more.
    fn recomputed(reports: &[Value]) -> Usage {
        let last = |path: &str| {
            let mut numbers = reports.iter().rev().filter_map(|report| report.pointer(path)?.as_u64());
            numbers.find(|number| *number > 0).unwrap_or(0)
        };
        let iterations = reports.iter().rev().find_map(|report| report["iterations"].as_array());
        let all = |path: &str| -> u64 {
            iterations.into_iter().flatten().filter_map(|one| one.pointer(path)?.as_u64()).sum()
        };
        let [read, written] = ["/cache_read_input_tokens", "/cache_creation_input_tokens"];
        let prompt = ["/input_tokens", read, written];
        Usage {
            prompt: prompt.map(last).iter().sum::<u64>().max(prompt.map(all).iter().sum()),
            cached: last(read).max(all(read)),
            cache_written: last(written).max(all(written)),
            cache_written_hour: last("/cache_creation/ephemeral_1h_input_tokens"),
            completion: last("/output_tokens").max(all("/output_tokens")),
            reasoning: last("/output_tokens_details/thinking_tokens"),
            ..Usage::default()
        }
    }

    #[test]
    fn recorded_usage_of_the_messages_api_is_billed_whole_and_summed_over_replies() {
        let (mut usages, mut expected) = (Usages::default(), Vec::new());
        for line in RECORDED.lines() {
            let reply: Value = serde_json::from_str(line).unwrap();
            let reports = reply["reports"].as_array().unwrap();
            reports.iter().for_each(|report| usages.note(report.to_string().as_bytes(), None));
            let usage = recomputed(reports);
            // A programmatic call begins with a reply that reports no tokens.
            if usage.billed() > 0 {
                assert_eq!(usages.tokens().last(), Some(&usage), "{line}");
                expected.push((usage, reports.clone()));
            }
            usages.begin_next_reply();
        }
        assert!(expected.len() > 60, "{}", expected.len());
        assert_eq!(usages.tokens(), expected.iter().map(|(usage, _)| *usage).collect::<Vec<_>>());
        let total = usages.total().unwrap();
        for name in
            ["input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"]
        {
            let last = |reports: &Vec<Value>| {
                let mut numbers = reports.iter().rev().filter_map(|report| report[name].as_u64());
                numbers.find(|number| *number > 0).unwrap_or(0)
            };
            let sum: u64 = expected.iter().map(|(_, reports)| last(reports)).sum();
            assert_eq!(total[name], sum, "{name}");
        }
        let iterations = expected.iter().filter_map(|(_, reports)| reports.last()?["iterations"].as_array());
        assert_eq!(total["iterations"].as_array().unwrap().len(), iterations.map(Vec::len).sum::<usize>());
    }

    #[test]
    fn usage_of_the_messages_api_is_summed_member_by_member_and_its_iterations_are_joined() {
        let mut usages = Usages::default();
        usages.note(
            br#"{"input_tokens":10,"cache_creation_input_tokens":30,"cache_read_input_tokens":5,"cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":20},"output_tokens":1,"service_tier":"standard","server_tool_use":{"web_search_requests":1}}"#,
            None,
        );
        usages.note(
            br#"{"input_tokens":0,"cache_creation":null,"output_tokens":40,"iterations":[{"type":"message","input_tokens":10,"output_tokens":40}]}"#,
            None,
        );
        usages.begin_next_reply();
        usages.note(
            br#"{"input_tokens":7,"cache_creation_input_tokens":4,"cache_read_input_tokens":35,"cache_creation":{"ephemeral_5m_input_tokens":4,"ephemeral_1h_input_tokens":0},"output_tokens":3,"service_tier":"priority","server_tool_use":{"web_search_requests":2,"web_fetch_requests":1},"iterations":[{"type":"compaction","input_tokens":900,"output_tokens":50},{"type":"message","input_tokens":7,"output_tokens":3}]}"#,
            None,
        );
        let iteration = |kind: &str, input: u32, output: u32| json!({"type": kind, "input_tokens": input, "output_tokens": output});
        assert_eq!(
            usages.sum(),
            Some(json!({
                "input_tokens": 17, "cache_creation_input_tokens": 34, "cache_read_input_tokens": 40,
                "cache_creation": {"ephemeral_5m_input_tokens": 14, "ephemeral_1h_input_tokens": 20},
                "output_tokens": 43, "service_tier": "priority",
                "server_tool_use": {"web_search_requests": 3, "web_fetch_requests": 1},
                "iterations": [iteration("message", 10, 40), iteration("compaction", 900, 50), iteration("message", 7, 3)]
            }))
        );
        let [first, second] = usages.tokens()[..] else { panic!("two replies") };
        assert_eq!((first.prompt, first.cache_written, first.cache_written_hour), (45, 30, 20));
        assert_eq!((second.prompt, second.cached, second.completion), (907, 35, 53));
    }

    #[test]
    fn usage_objects_are_summed_by_path_and_keep_every_member() {
        let first = json!({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 4}, "cost": 0.5, "is_byok": true});
        let second = json!({"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"audio_tokens": 1},
            "cost": 0.25, "is_byok": false, "x": null});
        assert_eq!(
            sum(&first, &second),
            json!({"prompt_tokens": 17, "completion_tokens": 2,
                "prompt_tokens_details": {"audio_tokens": 1, "cached_tokens": 4}, "cost": 0.75, "is_byok": false, "x": null})
        );
    }
}
