//! Pages (in work).
use super::{
    Hub,
    server::{Reply, Request},
};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
pub(super) fn wants_events(_: &Request) -> bool {
    false
}
pub(super) fn events(_: &Hub, _: &Request) -> Response {
    StatusCode::NOT_FOUND.into_response()
}
pub(super) fn answer(_: &Hub, _: &Request) -> Reply {
    Reply::empty(StatusCode::NOT_FOUND)
}
