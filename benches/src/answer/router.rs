//! The axum router that all axum benchmarks serve.

use axum::Router;
use axum::routing::get;

/// Returns a router which responds to `/` with [`crate::BODY`].
pub fn router() -> Router {
    Router::new().route("/", get(async || crate::BODY))
}
