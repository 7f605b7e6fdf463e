//! Aliases of response ids: after toolrein has asked the model again, the client knows the id of the first reply and the
//! upstream goes on from the last one. Requests about a stored response (read, delete, cancel, list its input) name the
//! client's id in their path, which is replaced by the upstream's.

use super::caller::caller_of;
use super::credential::Credentials;
use super::handler::AppState;
use crate::conversation::identity::Identity;
use crate::dialect::responses::upstream_id;
use hyper::http::uri::{Parts, PathAndQuery};
use hyper::http::{Request, Uri};
use std::ops::Range;

/// The segment before the id.
const SEGMENT: &str = "/responses/";
/// Characters of ids, beside letters and digits, that a path holds as they are. An id with another one is not used.
const IN_IDS: [char; 2] = ['_', '-'];

/// Where the id of a stored response is in `path`.
pub(super) fn id_in(path: &str) -> Option<Range<usize>> {
    let start = path.rfind(SEGMENT)? + SEGMENT.len();
    let end = path[start..].find('/').map_or(path.len(), |length| start + length);
    (start < end).then_some(start..end)
}

impl AppState {
    /// The request with the upstream's id of the stored response that its path names, where that is another.
    pub(super) async fn with_upstream_id<B>(&self, mut request: Request<B>) -> Request<B> {
        if let Some(uri) = self.uri_with_upstream_id(&request).await {
            *request.uri_mut() = uri;
        }
        request
    }

    async fn uri_with_upstream_id<B>(&self, request: &Request<B>) -> Option<Uri> {
        let (path, at) = (request.uri().path(), id_in(request.uri().path())?);
        let credentials = Credentials::of(request.headers(), request.uri());
        let caller = caller_of(&self.key, (request.headers(), &credentials), &self.config).ok()?;
        let identity = Identity { key: self.key.clone(), caller, explicit: None };
        let name = identity.response_key(&path[at.clone()]);
        let known = self.store.history(name).await?;
        let id = upstream_id(&known)?;
        let is_plain = id.chars().all(|char| char.is_ascii_alphanumeric() || IN_IDS.contains(&char));
        let query = request.uri().query().map_or(String::new(), |query| format!("?{query}"));
        let (before, after) = (&path[..at.start], &path[at.end..]);
        let path = PathAndQuery::try_from(format!("{before}{id}{after}{query}")).ok().filter(|_| is_plain)?;
        let mut parts: Parts = request.uri().clone().into_parts();
        parts.path_and_query = Some(path);
        Uri::from_parts(parts).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_follows_the_last_segment_of_that_name() {
        for (path, id) in [
            ("/v1/responses/resp_1", Some("resp_1")),
            ("/v1/responses/resp_1/input_items", Some("resp_1")),
            ("/responses/resp_1/cancel", Some("resp_1")),
            ("/v1/responses", None),
            ("/v1/responses/", None),
            ("/v1/models", None),
        ] {
            assert_eq!(id_in(path).map(|at| &path[at]), id, "{path}");
        }
    }
}
