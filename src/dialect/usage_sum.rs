//! The usage sum of several replies: every one of them was billed. Changes only numbers.

use crate::dialect::usage::Usage;
use bytes::Bytes;
use serde_json::{Map, Number, Value};

/// The usage of the replies to one client request.
#[derive(Debug, Default)]
pub struct Usages {
    /// The sum of the replies before the present one.
    earlier: Option<Value>,
    /// The usage of the present reply, unchanged.
    last: Option<Bytes>,
    /// The model that bills it, as JSON.
    model: Option<Bytes>,
}

impl Usages {
    /// Notes the present reply's usage. The last report counts: Perplexity sends one with every chunk, some send two.
    /// `model`: the value that names the model.
    pub fn note(&mut self, usage: &[u8], model: Option<&[u8]>) {
        self.last = Some(Bytes::copy_from_slice(usage));
        self.model = model.map(Bytes::copy_from_slice);
    }

    /// The model that the last reply with a usage names.
    pub fn model(&self) -> Option<String> {
        serde_json::from_slice(self.model.as_ref()?).ok()
    }

    pub fn begin_next_reply(&mut self) {
        self.earlier = self.total();
        self.last = None;
    }

    /// The usage of the present reply.
    pub fn last(&self) -> Option<Value> {
        self.last.as_ref().and_then(|usage| serde_json::from_slice(usage).ok())
    }

    /// The usage of all replies.
    pub fn total(&self) -> Option<Value> {
        match (&self.earlier, self.last()) {
            (Some(earlier), Some(last)) => Some(sum(earlier, &last)),
            (earlier, last) => last.or_else(|| earlier.clone()),
        }
    }

    /// As [`Self::total`], as numbers of tokens.
    pub fn total_tokens(&self) -> Usage {
        match (&self.earlier, &self.last) {
            (None, Some(last)) => Usage::parse(last),
            _ => self.total().as_ref().map(Usage::read).unwrap_or_default(),
        }
    }

    /// What replaces the present reply's own usage, if others came before it.
    pub fn sum(&self) -> Option<Value> {
        let earlier = self.earlier.as_ref()?;
        Some(sum(earlier, &self.last()?))
    }
}

/// The sum of two usage objects: numbers of equal path are added, other members are those of `later`.
fn sum(earlier: &Value, later: &Value) -> Value {
    match (earlier, later) {
        (Value::Object(earlier), Value::Object(later)) => Value::Object(sum_members(earlier, later)),
        (Value::Number(a), Value::Number(b)) => Value::Number(add(a, b)),
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
