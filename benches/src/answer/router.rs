//! The same axum router for whoever serves it.

use axum::Router;
use axum::routing::get;

/// `/` says hello.
pub fn router() -> Router {
    Router::new().route("/", get(async || crate::BODY))
}
