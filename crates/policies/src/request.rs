//! The facts of one request that policies get before its first event. Collects them; decides nothing.

use model::account::Account;
use model::identity::{Hash, HashKey};
use model::memo::Memo;
use model::message::{Message, Role};
use model::request::Choice;
use model::summaries::Summaries;
use model::tokens::Estimate;
use model::{LengthCut, Transcript};
use std::borrow::Cow;
use std::sync::Arc;

/// What a request says beside its messages.
pub struct RequestFacts<'a> {
    /// The tools that it declares, in order.
    pub tools: Vec<DeclaredTool<'a>>,
    /// The namespaces and servers of tools that it describes: the index of each counts on from the tools.
    pub namespaces: Vec<DeclaredTool<'a>>,
    /// The names of the tools, to be kept.
    pub names: Arc<[String]>,
    /// A tool is declared that has no name of its own, such as one of the provider's or of an MCP server: calls may bear
    /// names that the request does not show.
    pub declares_nameless: bool,
    /// See [`Request::declares_elsewhere`](model::request::Request::declares_elsewhere).
    pub declares_elsewhere: bool,
    /// See [`Request::hosts_shell`](model::request::Request::hosts_shell).
    pub hosts_shell: bool,
    /// It accepts one more tool: it has a list `tools` with fewer than providers allow, and none in the deprecated
    /// form.
    pub takes_tools: bool,
    /// The reply must be a call.
    pub forced: bool,
    /// An enabled policy may cut results.
    pub cuts: bool,
    /// When it came, in ms since the epoch. Used only by what is counted.
    pub now_ms: u64,
    /// The estimated tokens of its tools.
    pub definition_tokens: Estimate,
    /// The same with those of its instructions outside of the messages.
    pub tools_tokens: Estimate,
    transcript: &'a Transcript,
    /// Its messages have at most so many characters.
    pub most_chars: usize,
    /// See [`Transcript::context_window`](model::Transcript::context_window).
    pub context_window: Option<u32>,
    /// See [`Transcript::overflowed`](model::Transcript::overflowed).
    pub overflowed: bool,
    /// See [`Transcript::overflows`](model::Transcript::overflows).
    pub overflows: &'a [usize],
    /// See [`Transcript::length_cuts`](model::Transcript::length_cuts).
    pub length_cuts: &'a [LengthCut],
    /// Cached results, for what is costly to derive from a tool's declaration.
    pub memo: &'a dyn Memo,
    /// The keys of the memo.
    pub key: &'a HashKey,
    /// The caller, as a keyed hash of its credential.
    pub caller: Hash,
    /// See [`Transcript::account`](model::Transcript::account).
    pub account: Option<&'a Arc<Account>>,
    /// How many messages the conversation has.
    pub messages: usize,
    /// See [`Transcript::tier`](model::Transcript::tier).
    pub tier: Option<&'a str>,
    /// See [`Transcript::summaries`](model::Transcript::summaries).
    pub summaries: Option<&'a Arc<dyn Summaries>>,
}

/// The most characters that a policy puts in place of a result's text, or adds where it cuts it: a pointer or a
/// marker.
const REPLACED: Estimate = Estimate::of_tokens(200);

/// The most tools that OpenAI takes.
const MOST_TOOLS: usize = 128;

impl<'a> RequestFacts<'a> {
    /// See [`Transcript::request_key`](model::Transcript::request_key).
    pub fn request_key(&self) -> Hash {
        self.transcript.request_key()
    }

    /// The facts of the request that `transcript` was read from; `cuts`: an enabled policy may cut results.
    pub(super) fn of(transcript: &'a Transcript, cuts: bool) -> Self {
        let indexes = tool_indexes(transcript);
        let declared = transcript.tools().zip(indexes).filter_map(|((tool, body), at)| {
            let name = tool.full_name(body)?;
            let (definition, parameters) = (tool.span.of(body), tool.parameters.map(|span| span.of(body)));
            Some(DeclaredTool { name, at, definition, parameters })
        });
        let definition_tokens = transcript.definition_tokens();
        let tools: Vec<DeclaredTool<'_>> = declared.collect();
        Self {
            names: tools.iter().map(|tool| tool.name.clone().into_owned()).collect(),
            declares_nameless: tools.len() < transcript.tools().count(),
            tools,
            namespaces: described_namespaces(transcript),
            declares_elsewhere: transcript.request.declares_elsewhere,
            hosts_shell: transcript.request.hosts_shell,
            takes_tools: takes_tools(transcript),
            forced: transcript.request.choice == Choice::Forced,
            cuts,
            now_ms: transcript.now_ms,
            definition_tokens,
            tools_tokens: definition_tokens + transcript.instructions_tokens(),
            transcript,
            most_chars: transcript.most_bytes(),
            context_window: transcript.context_window,
            overflowed: transcript.overflowed,
            overflows: &transcript.overflows,
            length_cuts: &transcript.length_cuts,
            memo: &*transcript.memo,
            key: &transcript.identity.key,
            caller: transcript.identity.caller,
            account: transcript.account.as_ref(),
            messages: transcript.len(),
            tier: transcript.tier.as_deref(),
            summaries: transcript.summaries.as_ref(),
        }
    }

    /// See [`Identity::conversation_id`](model::identity::Identity::conversation_id).
    pub fn conversation_id(&self) -> String {
        self.transcript.identity.conversation_id(self.transcript.conversation())
    }
}

impl RequestFacts<'_> {
    /// Whether no estimate of the whole request or of its beginning exceeds `tokens`, whatever is cut: then it need
    /// not be counted. Computes no more than it must.
    pub fn fits(&self, tokens: u64) -> bool {
        let transcript = self.transcript;
        let most_of = |bytes| Estimate::most_of(bytes).scaled(transcript.token_factor);
        if (self.tools_tokens + most_of(self.most_chars)).tokens() <= tokens {
            return true;
        }
        let replaced = |role| if role == Role::Tool { REPLACED } else { Estimate::ZERO };
        let mut most = self.tools_tokens + most_of(transcript.hidden_bytes());
        let messages = || (0..transcript.len()).map(|index| transcript.message(index));
        most += messages().map(|message| replaced(message.role)).sum();
        // With the comma after it: see `Estimate::most_of`.
        let bytes = |message: &Message| message.span.len() + 1;
        let mut unread: usize = messages().map(bytes).sum();
        for (at, message) in messages().enumerate() {
            if (most + most_of(unread)).tokens() <= tokens {
                return true;
            }
            unread -= bytes(message);
            most += transcript.view(at).most_tokens();
            if most.tokens() > tokens {
                return false;
            }
        }
        true
    }
}

/// What the request says of namespaces and servers: their descriptions, which the model reads like those of tools.
fn described_namespaces<'a>(transcript: &'a Transcript) -> Vec<DeclaredTool<'a>> {
    let request = &transcript.request;
    let own = request.tools.len()..request.tools.len() + request.namespaces.len();
    let indexes = own.chain(transcript.tools().count() + request.namespaces.len()..);
    let described = transcript.namespaces().zip(indexes).filter_map(|((space, body), at)| {
        let definition = space.description.map_or(&b"null"[..], |text| text.quoted().of(body));
        Some(DeclaredTool { name: space.full_name(body)?, at, definition, parameters: None })
    });
    described.collect()
}

/// The indexes of the tools: those of the request, and after its namespaces those that the upstream keeps.
fn tool_indexes(transcript: &Transcript) -> impl Iterator<Item = usize> + use<> {
    let (own, spaces) = (transcript.request.tools.len(), transcript.request.namespaces.len());
    (0..own).chain(own + spaces..)
}

/// A tool that the model may call.
pub struct DeclaredTool<'a> {
    pub name: Cow<'a, str>,
    /// Its index: the tools of the request, its namespaces, the tools that the upstream keeps, their namespaces.
    pub at: usize,
    /// All of it, as written.
    pub definition: &'a [u8],
    /// Its JSON Schema as written, where it has one.
    pub parameters: Option<&'a [u8]>,
}

/// Whether a tool of ours may be declared beside the client's.
fn takes_tools(transcript: &Transcript) -> bool {
    transcript.request.takes_more_tools && (1..MOST_TOOLS).contains(&transcript.request.tools.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::somebody;
    use model::testing::{SampleItem, SampleRequest, user};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_request_fits_exactly_if_the_sum_of_its_message_estimates_fits(
            texts in prop::collection::vec("[a-z0-9 .中\n\"]{0,400}", 1..8),
            tokens in 0_u64..1500,
        ) {
            let messages: Vec<SampleItem> = texts.iter().map(|text| user(text)).collect();
            let (request, identity) = (SampleRequest::new(&messages), somebody());
            let transcript = request.transcript(&identity);
            let most: Estimate = (0..messages.len()).map(|at| transcript.view(at).most_tokens()).sum();
            prop_assert_eq!(RequestFacts::of(&transcript, false).fits(tokens), most.tokens() <= tokens);
        }
    }
}
