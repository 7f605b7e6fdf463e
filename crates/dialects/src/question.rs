//! The request that asks another model about a call, as bytes. What it is about is data: one user message that holds
//! nothing else. Sends nothing and decides nothing.

use bytes::Bytes;
use model::plan::ModelQuestion;
use serde_json::json;

/// The body of the request: a chat completion, with the most likely answer.
pub fn written(question: &ModelQuestion) -> Bytes {
    let ModelQuestion { terms, system, text } = question;
    let body = json!({
        "model": terms.model,
        "temperature": 0,
        "max_tokens": terms.max_tokens,
        "messages": [
            {"role": "system", "content": &**system},
            {"role": "user", "content": text},
        ],
    });
    body.to_string().into()
}
