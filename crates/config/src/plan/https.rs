//! Which sites need TLS, by Caddy's rules for automatic HTTPS: a server that listens on anything but the HTTP port, and
//! whose routes name hosts, serves those over TLS, unless it was told not to. Until TLS is built such a site is refused.

use causeway_pipeline::ListenAddress;
use serde::Deserialize;
use serde_json::Value;

use super::LoadError;
use super::server::Server;

/// The ports that stand for the schemes.
#[derive(Clone, Copy)]
pub(super) struct Ports {
    pub(super) http: u16,
    pub(super) https: u16,
}

/// A server's `automatic_https`.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "read to be accepted: they say how HTTPS is done where it is done")]
pub(super) struct Automatic {
    #[serde(default)]
    disable: bool,
    #[serde(default)]
    disable_redirects: bool,
    #[serde(default)]
    disable_certificates: bool,
    #[serde(default)]
    skip: Vec<String>,
    #[serde(default)]
    skip_certificates: Vec<String>,
    #[serde(default)]
    ignore_loaded_certificates: bool,
}

/// Refuses a server that would have to speak TLS.
pub(super) fn check(server: &Server, addresses: &[ListenAddress], ports: Ports) -> Result<(), LoadError> {
    let automatic = &server.automatic_https;
    if automatic.disable && server.tls_connection_policies.as_ref().is_none_or(Vec::is_empty) {
        return Ok(());
    }
    let elsewhere = addresses.iter().find(|address| address.port != ports.http);
    let host = server.routes().iter().flat_map(hosts).find(|host| !automatic.skip.iter().any(|skip| skip == host));
    let site = match (elsewhere, host) {
        (Some(_), Some(host)) => host.to_owned(),
        (Some(address), None) if server.tls_connection_policies.is_some() || address.port == ports.https => {
            format!(":{}", address.port)
        }
        _ => return Ok(()),
    };
    Err(LoadError::NeedsTls { site })
}

/// Hosts that a route's matchers name, as Caddy collects them: of the server's own routes, not of nested ones.
fn hosts(route: &Value) -> Vec<&str> {
    let sets = route.get("match").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    sets.iter().filter_map(|set| set.get("host")?.as_array()).flatten().filter_map(Value::as_str).collect()
}
