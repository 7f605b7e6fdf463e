//! What policies are told of a request before its first event. Gathers it; decides nothing.

use crate::policy::{DeclaredTool, RequestFacts};
use crate::transcript::Transcript;
use crate::wire::json::decode;
use crate::wire::request::Choice;

/// The facts of the request that `transcript` was read from.
pub(super) fn facts_of<'a>(transcript: &'a Transcript<'_>) -> RequestFacts<'a> {
    let body = transcript.body;
    let declared = transcript.request.tools.iter().filter_map(|tool| {
        let name = decode(tool.name?, body);
        Some(DeclaredTool { name, parameters: tool.parameters.map(|span| span.of(body)) })
    });
    let tools_tokens = transcript.declared_tokens();
    let hidden: usize = transcript.hidden_rounds.iter().map(|(_, round)| round.len()).sum();
    let most_chars = transcript.request.messages_span.len() + hidden;
    RequestFacts {
        tools: declared.collect(),
        takes_tools: takes_tools(transcript),
        forced: transcript.request.choice == Choice::Forced,
        cuts: false,
        spent: &transcript.spent,
        shared_body: transcript.shared_body.clone(),
        body,
        tools_tokens,
        transcript,
        most_chars,
        context_window: transcript.context_window,
        overflowed: transcript.overflowed,
        overflows: &transcript.overflows,
        memo: transcript.memo,
        key: &transcript.identity.key,
        principal: transcript.identity.principal,
        summaries: transcript.summaries.as_ref(),
    }
}

/// The most tools that OpenAI takes.
const MOST_TOOLS: usize = 128;

/// Whether a tool of ours may be declared beside the client's.
pub(super) fn takes_tools(transcript: &Transcript<'_>) -> bool {
    let declared = transcript.request.tools.len();
    let has = |list| transcript.request.value(transcript.body, list).is_some();
    (1..MOST_TOOLS).contains(&declared) && has("tools") && !has("functions")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript::identity::{Hash, HashKey, Identity};
    use crate::transcript::memo::NoMemo;
    use crate::transcript::tokens::Estimate;
    use crate::wire::request::Request;
    use proptest::prelude::*;
    use serde_json::json;

    proptest! {
        #[test]
        fn what_fits_does_so_by_the_closer_bound_of_every_message_and_the_other_way_round(
            texts in prop::collection::vec("[a-z0-9 .中\n\"]{0,400}", 1..8),
            tokens in 0_u64..1500,
        ) {
            let messages: Vec<_> = texts.iter().map(|text| json!({"role": "user", "content": text})).collect();
            let body = json!({"messages": messages}).to_string();
            let request = Request::parse(body.as_bytes()).unwrap();
            let identity = Identity { key: HashKey::fixed(1), principal: Hash(1), explicit: None };
            let transcript = Transcript::read(&request, body.as_bytes(), &identity, &NoMemo);
            let most: Estimate = (0..messages.len()).map(|at| transcript.view(at).most_tokens()).sum();
            prop_assert_eq!(facts_of(&transcript).fits(tokens), most.tokens() <= tokens);
        }
    }
}
