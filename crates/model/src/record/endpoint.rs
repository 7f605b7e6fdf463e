//! The endpoints of LLM APIs as a closed set of names, and the path without anything that could be a secret.

use std::borrow::Cow;

/// The endpoint of a request, by the end of its path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Endpoint {
    ChatCompletions,
    Responses,
    Completions,
    /// Anthropic's.
    Messages,
    /// The number of tokens of a request to it.
    CountTokens,
    /// Bedrock's runtime, whose paths name a model.
    Bedrock,
    Embeddings,
    Models,
    Images,
    Audio,
    Moderations,
    Files,
    Batches,
    Realtime,
    #[default]
    Other,
}

impl Endpoint {
    /// The endpoint that `path` names.
    pub fn of(path: &str) -> Self {
        let mut segments = path.as_bytes().rsplit(|byte| *byte == b'/').filter(|segment| !segment.is_empty());
        let [last, parent, above] = std::array::from_fn(|_| segments.next().unwrap_or_default());
        match (above, parent, last) {
            (_, b"chat", b"completions") => Self::ChatCompletions,
            (_, _, b"completions") => Self::Completions,
            // The messages of a thread belong to another API.
            (b"threads", _, b"messages") => Self::Other,
            (_, _, b"messages") => Self::Messages,
            (_, b"messages", b"count_tokens") => Self::CountTokens,
            (b"model", _, b"invoke" | b"invoke-with-response-stream" | b"converse" | b"converse-stream") => {
                Self::Bedrock
            }
            _ => path.as_bytes().split(|byte| *byte == b'/').find_map(Self::by_segment).unwrap_or_default(),
        }
    }

    /// Endpoints with subpaths, such as one model or one response.
    fn by_segment(segment: &[u8]) -> Option<Self> {
        Some(match segment {
            b"responses" => Self::Responses,
            b"embeddings" => Self::Embeddings,
            b"models" => Self::Models,
            b"images" => Self::Images,
            b"audio" => Self::Audio,
            b"moderations" => Self::Moderations,
            b"files" => Self::Files,
            b"batches" => Self::Batches,
            b"realtime" => Self::Realtime,
            _ => return None,
        })
    }

    /// As in fields.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat_completions",
            Self::Responses => "responses",
            Self::Completions => "completions",
            Self::Messages => "messages",
            Self::CountTokens => "count_tokens",
            Self::Bedrock => "bedrock",
            Self::Embeddings => "embeddings",
            Self::Models => "models",
            Self::Images => "images",
            Self::Audio => "audio",
            Self::Moderations => "moderations",
            Self::Files => "files",
            Self::Batches => "batches",
            Self::Realtime => "realtime",
            Self::Other => "other",
        }
    }
}

/// A path up to the first `;` or `%`, after which some clients put parameters, and so credentials.
pub fn shown(path: &str) -> Cow<'_, str> {
    match path.bytes().position(|byte| matches!(byte, b';' | b'%')) {
        Some(end) => Cow::Owned(format!("{}…", &path[..end])),
        None => Cow::Borrowed(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_endpoints_of_a_closed_set() {
        for (path, expected) in [
            ("/v1/chat/completions", Endpoint::ChatCompletions),
            ("/openai/deployments/x/chat/completions/", Endpoint::ChatCompletions),
            ("/v1/completions", Endpoint::Completions),
            ("/v1/responses", Endpoint::Responses),
            ("/v1/responses/resp_1/input_items", Endpoint::Responses),
            ("/v1/messages", Endpoint::Messages),
            ("/anthropic/v1/messages", Endpoint::Messages),
            ("/v1/messages/count_tokens", Endpoint::CountTokens),
            ("/v1/messages/batches/b/results", Endpoint::Batches),
            ("/v1/threads/t/messages", Endpoint::Other),
            ("/v1/skills", Endpoint::Other),
            ("/api/hello", Endpoint::Other),
            ("/model/anthropic.claude-v2:1/invoke", Endpoint::Bedrock),
            ("/model/anthropic.claude/invoke-with-response-stream", Endpoint::Bedrock),
            ("/model/m/converse-stream", Endpoint::Bedrock),
            ("/v1/models/m/invoke", Endpoint::Models),
            ("/v1/embeddings", Endpoint::Embeddings),
            ("/v1/models/gpt-4o", Endpoint::Models),
            ("/v1/audio/speech", Endpoint::Audio),
            ("/", Endpoint::Other),
            ("", Endpoint::Other),
        ] {
            assert_eq!(Endpoint::of(path), expected, "{path}");
        }
    }

    #[test]
    fn the_shown_path_ends_before_anything_that_may_be_a_parameter() {
        assert_eq!(shown("/v1/models"), "/v1/models");
        assert_eq!(shown("/v1/models;key=s3cr3t"), "/v1/models…");
        assert_eq!(shown("/v1/models%3Fkey=s3cr3t"), "/v1/models…");
    }
}
