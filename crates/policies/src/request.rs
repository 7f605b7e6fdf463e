//! What policies get of a request before its first event. Collects; decides nothing.

use model::Transcript;
use model::identity::Hash;
use model::message::{Message, Role};
use model::request::Choice;
use model::tokens::Estimate;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::Arc;

/// What a request declares beside its messages, as more than one policy needs it; the rest is in the transcript.
pub struct RequestView<'a> {
    /// The whole request.
    pub transcript: &'a Transcript,
    /// The tools that it declares, in order.
    pub tools: Vec<DeclaredTool<'a>>,
    /// The names of the tools, to be kept.
    pub names: Arc<[String]>,
    /// See [`Transcript::definitions_digest`].
    pub(super) definitions: Option<Hash>,
    /// It accepts one more tool: it has a list `tools` with fewer than providers allow, and none in the deprecated
    /// form.
    pub takes_tools: bool,
    /// The reply must be a call.
    pub forced: bool,
    /// An enabled policy may cut results.
    pub cuts: bool,
    /// The estimated tokens of its tools.
    pub(super) definition_tokens: Estimate,
    /// See [`Self::tools_tokens`]: most requests need no more than a bound.
    tools_tokens: OnceCell<Estimate>,
}

/// The most characters that a policy puts in place of a result's text, or adds where it cuts it: a pointer or a
/// marker.
const REPLACED: Estimate = Estimate::of_tokens(200);

/// The most tools that OpenAI takes.
const MOST_TOOLS: usize = 128;

impl<'a> RequestView<'a> {
    /// The view of the request that `transcript` was read from; `cuts`: an enabled policy may cut results.
    pub(super) fn new(transcript: &'a Transcript, cuts: bool) -> Self {
        let named =
            transcript.tools().zip(tool_indexes(transcript)).filter(|((tool, _), _)| tool.name.is_some());
        let declared = named.zip(&**transcript.tool_names()).map(|(((tool, body), at), name)| DeclaredTool {
            name: name.into(),
            at,
            definition: tool.span.of(body),
            parameters: tool.parameters.map(|span| span.of(body)),
        });
        let definitions = transcript.definitions_digest();
        let definition_tokens =
            definitions.map_or(Estimate::ZERO, |digest| transcript.definition_tokens_of(digest));
        Self {
            transcript,
            definitions,
            names: Arc::clone(transcript.tool_names()),
            tools: declared.collect(),
            takes_tools: takes_tools(transcript),
            forced: transcript.request.choice == Choice::Forced,
            cuts,
            definition_tokens,
            tools_tokens: OnceCell::new(),
        }
    }
}

impl RequestView<'_> {
    /// The estimated tokens of its tools and of its instructions outside of the messages.
    pub fn tools_tokens(&self) -> Estimate {
        *self.tools_tokens.get_or_init(|| self.definition_tokens + self.transcript.instructions_tokens())
    }

    /// Whether no estimate of the whole request or of its beginning exceeds `tokens`, whatever is cut: then it need
    /// not be counted. Computes no more than it must.
    pub fn fits(&self, tokens: u64) -> bool {
        let transcript = self.transcript;
        let most_of = |bytes| Estimate::most_of(bytes).scaled(transcript.token_factor);
        let most_before = self.definition_tokens + transcript.most_instructions_tokens();
        if (most_before + most_of(transcript.most_bytes())).tokens() <= tokens {
            return true;
        }
        let replaced = |role| if role == Role::Tool { REPLACED } else { Estimate::ZERO };
        let mut most = self.tools_tokens() + most_of(transcript.hidden_bytes());
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
            prop_assert_eq!(RequestView::new(&transcript, false).fits(tokens), most.tokens() <= tokens);
        }
    }
}
