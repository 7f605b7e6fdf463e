//! The public pages of the admin server besides the dashboard: metrics, readiness, the configuration in force, the
//! OpenAPI document.

use super::Admin;
use super::answer::{Answer, JSON};
use axum::extract::State;
use bytes::Bytes;
use hyper::http::StatusCode;
use std::sync::Arc;

/// The Prometheus text format.
pub(super) const EXPOSITION: &str = "text/plain; version=0.0.4";
/// The pages and their bodies in OpenAPI 3.1.
pub(super) const OPENAPI: &str = include_str!("openapi.json");

pub(super) async fn openapi() -> Answer {
    Answer(StatusCode::OK, JSON, Bytes::from_static(OPENAPI.as_bytes()))
}

pub(super) async fn metrics(State(admin): State<Arc<Admin>>) -> Answer {
    Answer(StatusCode::OK, EXPOSITION, admin.metrics.render().into())
}

pub(super) async fn ready(State(admin): State<Arc<Admin>>) -> Answer {
    let is_ready = admin.readiness.is_ready();
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Answer::text(status, admin.readiness.word())
}

pub(super) async fn config(State(admin): State<Arc<Admin>>) -> Answer {
    Answer(StatusCode::OK, JSON, Bytes::copy_from_slice(admin.config.as_bytes()))
}
