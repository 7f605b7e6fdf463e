//! The router of the admin server: one table of its pages, from which axum's routes are made. Each page says who may
//! open it and which methods it allows; the handlers are in the modules of the pages.

use super::answer::Answer;
use super::code::Code;
use super::{
    Admin, confirmations, conversations, dashboard, difference, events, guard, overview, replay, shown,
    stops, validate,
};
use axum::Router;
use axum::body::Body;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::{MethodRouter, delete, get, post};
use bytes::Bytes;
use hyper::http::header::ALLOW;
use hyper::http::uri::PathAndQuery;
use hyper::http::{Request, StatusCode, Uri};
use std::sync::Arc;
use std::time::Duration;
use tower_service::Service as _;

/// Methods as in the `allow` header.
const READ: &str = "GET, HEAD";
const WRITE: &str = "POST";
const SWITCH: &str = "POST, DELETE";

/// Who may open a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Anybody: it shows numbers and no secret.
    Public,
    /// The holder of the bearer token: it shows contents or changes anything.
    Token,
}

/// A page, or all pages of one form.
pub(super) struct Page {
    /// In axum's and in OpenAPI's form: `{name}` is one segment.
    pub(super) path: &'static str,
    pub(super) access: Access,
    pub(super) methods: &'static str,
    route: fn() -> MethodRouter<Arc<Admin>>,
}

const fn public(path: &'static str, route: fn() -> MethodRouter<Arc<Admin>>) -> Page {
    Page { path, access: Access::Public, methods: READ, route }
}

const fn protected(
    path: &'static str,
    methods: &'static str,
    route: fn() -> MethodRouter<Arc<Admin>>,
) -> Page {
    Page { path, access: Access::Token, methods, route }
}

/// All pages.
pub(super) const PAGES: &[Page] = &[
    public("/", || get(dashboard::index)),
    public("/dashboard/{file}", || get(dashboard::file)),
    public("/dashboard/{folder}/{file}", || get(dashboard::file_in)),
    public("/metrics", || get(shown::metrics)),
    public("/livez", || get(async || Answer::text(StatusCode::OK, "live\n"))),
    public("/readyz", || get(shown::ready)),
    public("/config", || get(shown::config)),
    public("/openapi.json", || get(shown::openapi)),
    public("/api/overview", || get(overview::overview)),
    public("/api/tools", || get(overview::tools)),
    public("/api/limits", || get(overview::limits)),
    public("/api/health", || get(overview::health)),
    protected("/api/config/difference", READ, || get(difference::show)),
    protected("/api/events", READ, || get(events::stream)),
    protected("/api/conversations", READ, || get(conversations::list)),
    protected("/api/conversations/{id}", READ, || get(conversations::one)),
    protected("/api/conversations/{id}/explain", READ, || get(conversations::explain)),
    protected("/api/validate", WRITE, || post(validate::validate)),
    protected("/api/replay", WRITE, || post(replay::replay)),
    protected("/api/confirmations/history", READ, || get(confirmations::history)),
    protected("/api/confirmations", READ, || get(confirmations::list)),
    protected("/api/confirmations/{token}", WRITE, || post(confirmations::answer)),
    protected("/api/stops", READ, || get(stops::list)),
    protected("/api/conversations/{id}/stop", SWITCH, || {
        post(stops::stop_conversation).merge(delete(stops::resume_conversation))
    }),
    protected("/api/callers/{hash}/stop", SWITCH, || {
        post(stops::stop_caller).merge(delete(stops::resume_caller))
    }),
];

/// The pages that the port of the probes has too.
const PROBES: [&str; 3] = ["/livez", "/readyz", "/metrics"];

/// The pages of one configuration. Cheap to clone.
#[derive(Clone)]
pub struct Pages {
    pub admin: Arc<Admin>,
    router: Router,
    /// Those of the port of the probes.
    probes: Router,
}

impl Pages {
    /// The pages that show `admin`.
    pub fn new(admin: Admin) -> Self {
        let admin = Arc::new(admin);
        let of = |access: Access| routes(|page| page.access == access);
        let nothing = async || Answer::not_found("There is nothing at this path.");
        let token = from_fn_with_state(Arc::clone(&admin), guard::with_token);
        let router = of(Access::Public)
            .merge(of(Access::Token).route_layer(token))
            .fallback(nothing)
            .layer(from_fn_with_state(Arc::clone(&admin), guard::every_page))
            .with_state(Arc::clone(&admin));
        let probes = routes(|page| PROBES.contains(&page.path))
            .fallback(nothing)
            .layer(from_fn(guard::every_probe))
            .with_state(Arc::clone(&admin));
        Self { admin, router, probes }
    }

    /// Answers one request to the port of the probes.
    pub async fn answer_probe(&self, request: Request<Body>) -> Response {
        self.probes.clone().call(request).await.unwrap_or_else(|never| match never {})
    }

    /// Answers one request.
    pub async fn answer(&self, mut request: Request<Body>) -> Response {
        if let Some(uri) = with_one_id(request.uri()) {
            *request.uri_mut() = uri;
        }
        // A router is ready at any time, and its error type has no value.
        let mut response = self.router.clone().call(request).await.unwrap_or_else(|never| match never {});
        // axum writes it to whatever a page without the method answers.
        if response.status() != StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().remove(ALLOW);
        }
        response
    }
}

/// The routes of the pages that `has` selects.
fn routes(has: impl Fn(&Page) -> bool) -> Router<Arc<Admin>> {
    PAGES.iter().filter(|page| has(page)).fold(Router::new(), |router, page| {
        let methods = page.methods;
        router.route(page.path, (page.route)().fallback(async || Answer::wrong_method(methods)))
    })
}

/// The same address with the slashes of an id written as `%2F`, where there are any: a person who stops a
/// conversation in a hurry need not encode its id.
fn with_one_id(uri: &Uri) -> Option<Uri> {
    let path = uri.path();
    let start = ["/api/conversations/", "/api/callers/"].into_iter().find(|start| path.starts_with(start))?;
    let id = path.strip_prefix(start)?.strip_suffix("/stop").filter(|id| id.contains('/'))?;
    let path = format!("{start}{}/stop", id.replace('/', "%2F"));
    let path = PathAndQuery::try_from(path).ok()?;
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).ok()
}

/// The segment of the path at this position, from 0, as it was written.
pub(super) fn segment(uri: &Uri, position: usize) -> &str {
    uri.path().split('/').nth(position + 1).unwrap_or_default()
}

/// The body of a request: at most `most` bytes.
///
/// # Errors
/// The answer for a body that is longer, that broke off or that did not come in time.
pub(super) async fn body_of(body: Body, most: usize, within: Duration) -> Result<Bytes, Answer> {
    match tokio::time::timeout(within, axum::body::to_bytes(body, most)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(_)) => {
            let message = format!("The body must be whole, and at most {most} bytes.");
            Err(Answer::error(Code::BodyTooLarge, &message))
        }
        Err(_) => {
            let message = "The body did not come in time (limits.body_timeout).";
            Err(Answer::error(Code::RequestTimeout, message))
        }
    }
}
