//! The facts of one request that policies get before its first event. Gathers them; decides nothing.

use crate::transcript::identity::{Hash, HashKey};
use crate::transcript::memo::Memo;
use crate::transcript::summaries::Summaries;
use crate::transcript::tokens::Estimate;
use crate::transcript::{Stopped, Transcript};
use crate::wire::json::decode;
use crate::wire::message::{Message, Role};
use crate::wire::request::Choice;
use bytes::Bytes;
use std::borrow::Cow;
use std::sync::Arc;

/// What a request says beside its messages.
pub struct RequestFacts<'a> {
    /// The tools that it declares, in order.
    pub tools: Vec<DeclaredTool<'a>>,
    /// It takes another tool: it has a list `tools` with fewer than providers allow, and none in the deprecated form.
    pub takes_tools: bool,
    /// The reply must be a call.
    pub forced: bool,
    /// A policy that is on may cut results.
    pub cuts: bool,
    /// When calls of each thing that is counted for the caller were handed out, in ms since the epoch.
    pub spent: &'a [Vec<u64>],
    shared_body: Option<Bytes>,
    body: &'a [u8],
    /// Their estimated tokens.
    pub tools_tokens: Estimate,
    transcript: &'a Transcript<'a>,
    /// No more characters stand in its messages.
    pub most_chars: usize,
    /// See [`Transcript::context_window`](crate::transcript::Transcript::context_window).
    pub context_window: Option<u32>,
    /// See [`Transcript::overflowed`](crate::transcript::Transcript::overflowed).
    pub overflowed: bool,
    /// See [`Transcript::overflows`](crate::transcript::Transcript::overflows).
    pub overflows: &'a [usize],
    /// What was derived before, for what is costly to derive from a tool's declaration.
    pub memo: &'a dyn Memo,
    /// Names what is kept in the memo.
    pub key: &'a HashKey,
    /// The caller, as a keyed hash of its credential.
    pub principal: Hash,
    /// See [`Transcript::tier`](crate::transcript::Transcript::tier).
    pub tier: Option<&'a str>,
    /// See [`Transcript::stopped`](crate::transcript::Transcript::stopped).
    pub stopped: Option<Stopped>,
    /// See [`Transcript::summaries`](crate::transcript::Transcript::summaries).
    pub summaries: Option<&'a Arc<dyn Summaries>>,
}

/// What a policy puts in the place of a result's text, or adds where it cuts it, is no more: a pointer or a marker.
const REPLACED: Estimate = Estimate::of_tokens(200);

/// The most tools that OpenAI takes.
const MOST_TOOLS: usize = 128;

impl<'a> RequestFacts<'a> {
    /// The facts of the request that `transcript` was read from; `cuts`: a policy that is on may cut results.
    pub(super) fn of(transcript: &'a Transcript<'_>, cuts: bool) -> Self {
        let body = transcript.body;
        let declared = transcript.request.tools.iter().filter_map(|tool| {
            let name = decode(tool.name?, body);
            Some(DeclaredTool { name, parameters: tool.parameters.map(|span| span.of(body)) })
        });
        let unseen: usize = transcript.hidden_rounds.iter().map(|(_, round)| round.len()).sum();
        let most_chars = transcript.request.messages_span.len() + unseen;
        Self {
            tools: declared.collect(),
            takes_tools: takes_tools(transcript),
            forced: transcript.request.choice == Choice::Forced,
            cuts,
            spent: &transcript.spent,
            shared_body: transcript.shared_body.clone(),
            body,
            tools_tokens: transcript.declared_tokens(),
            transcript,
            most_chars,
            context_window: transcript.context_window,
            overflowed: transcript.overflowed,
            overflows: &transcript.overflows,
            memo: transcript.memo,
            key: &transcript.identity.key,
            principal: transcript.identity.principal,
            tier: transcript.tier.as_deref(),
            stopped: transcript.stopped,
            summaries: transcript.summaries.as_ref(),
        }
    }

    /// The conversation's id as it is logged: the client's own, else one that is derived from how it begins.
    pub fn conversation(&self) -> Cow<'a, str> {
        let Transcript { identity, request, body, .. } = self.transcript;
        match &identity.explicit {
            Some(explicit) => Cow::Borrowed(explicit),
            None => identity.conversation(request, body).spelled().into(),
        }
    }
}

impl RequestFacts<'_> {
    /// Whether no estimate of the whole request comes to more than `tokens`, nor one of its beginning, whatever is cut:
    /// for who need not count it then. Looks no closer than it must.
    pub fn fits(&self, tokens: u64) -> bool {
        let Transcript { request, .. } = self.transcript;
        let (hidden_rounds, token_factor) = (&self.transcript.hidden_rounds, &self.transcript.token_factor);
        let most_of = |bytes| Estimate::most_of(bytes).scaled(*token_factor);
        if (self.tools_tokens + most_of(self.most_chars)).tokens() <= tokens {
            return true;
        }
        let unseen: usize = hidden_rounds.iter().map(|(_, round)| round.len()).sum();
        let replaced = |role| if role == Role::Tool { REPLACED } else { Estimate::ZERO };
        let mut most = self.tools_tokens + most_of(unseen);
        most += request.messages.iter().map(|message| replaced(message.role)).sum();
        // With the comma behind it: see `Estimate::most_of`.
        let bytes = |message: &Message| message.span.len() + 1;
        let mut unread: usize = request.messages.iter().map(bytes).sum();
        for (at, message) in request.messages.iter().enumerate() {
            if (most + most_of(unread)).tokens() <= tokens {
                return true;
            }
            unread -= bytes(message);
            most += self.transcript.view(at).most_tokens();
            if most.tokens() > tokens {
                return false;
            }
        }
        true
    }

    /// The request's bytes, for who keeps them: copied only where they are not shared.
    pub fn body(&self) -> Bytes {
        self.shared_body.clone().unwrap_or_else(|| Bytes::copy_from_slice(self.body))
    }
}

/// A tool that the model may call.
pub struct DeclaredTool<'a> {
    pub name: Cow<'a, str>,
    /// Its JSON Schema as written, where it has one.
    pub parameters: Option<&'a [u8]>,
}

/// Whether a tool of ours may be declared beside the client's.
fn takes_tools(transcript: &Transcript<'_>) -> bool {
    let declared = transcript.request.tools.len();
    let has = |list| transcript.request.value(transcript.body, list).is_some();
    (1..MOST_TOOLS).contains(&declared) && has("tools") && !has("functions")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript::identity::Identity;
    use crate::transcript::memo::NoMemo;
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
            prop_assert_eq!(RequestFacts::of(&transcript, false).fits(tokens), most.tokens() <= tokens);
        }
    }
}
