//! The certificates that proxies present to upstreams, as far as the server obtains them:
//! `client_certificate_automate`.

use std::collections::BTreeSet;

use causeway_pipeline::Build;
use serde_json::Value;

use super::handlers;
use super::tls::ascii;

/// Returns the names of the certificates that the handlers `reverse_proxy` in the HTTP app's JSON present, in ASCII.
pub(super) fn names(json: &Value, build: &mut Build<'_>) -> BTreeSet<String> {
    let proxies = handlers("reverse_proxy", json).into_iter();
    let written = proxies.filter_map(|proxy| proxy["transport"]["tls"]["client_certificate_automate"].as_str());
    // The handler itself refuses a name that no certificate can have.
    written.filter_map(|name| ascii(name, build).ok()).filter(|name| !name.is_empty()).collect()
}
