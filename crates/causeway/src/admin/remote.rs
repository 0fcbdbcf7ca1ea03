//! Caddy's access control of the remote listener: the clients' certificates, and the paths and methods that each may
//! use.

use std::time::SystemTime;

use causeway_config::plan::{PlanError, RemoteAccess, RemoteAdmin, RemotePermission, canonical_path};
use causeway_engine::ClientTrust;
use causeway_pipeline::build::Problem;
use causeway_pipeline::{BuildError, ClientAuthentication, ClientAuthenticationMode, Context, TlsPolicy, TlsSpec};

use super::response::AdminResponse;

/// Caddy's message.
const NO_PATH: &str = "not authorized to access this path";

/// The clients of the remote listener, and their permissions.
#[derive(Debug)]
pub(crate) struct RemoteGuard {
    written: Vec<RemoteAccess>,
    /// The name of the certificate for clients that send no server name.
    server_name: String,
    entries: Vec<AccessEntry>,
}

#[derive(Debug)]
struct AccessEntry {
    trust: ClientTrust,
    /// Empty: everything is allowed.
    permissions: Vec<RemotePermission>,
}

/// A client's certificates, for a check after its request's context is out of reach.
pub(super) struct RemoteClient {
    leaf: Box<[u8]>,
    intermediates: Vec<Box<[u8]>>,
    method: String,
}

impl RemoteClient {
    /// Returns the client of a request; `None` if it sent no certificate.
    pub(super) fn of(cx: &Context) -> Option<Self> {
        let facts = cx.arrival().tls.as_ref()?;
        let leaf = facts.client_certificate.as_ref()?.der().into();
        Some(Self {
            leaf,
            intermediates: facts.client_intermediates.clone(),
            method: cx.head().method().as_str().to_owned(),
        })
    }
}

/// Two are equal if they were written so.
impl PartialEq for RemoteGuard {
    fn eq(&self, other: &Self) -> bool {
        (&self.written, &self.server_name) == (&other.written, &other.server_name)
    }
}

impl RemoteGuard {
    /// `identifiers` are the names of the server's own certificates.
    ///
    /// # Errors
    /// One of the clients' certificates is malformed.
    pub(crate) fn new(remote: &RemoteAdmin, identifiers: &[String]) -> Result<Self, PlanError> {
        let mut entries = Vec::with_capacity(remote.access.len());
        for (index, RemoteAccess { certificates, permissions }) in remote.access.iter().enumerate() {
            // No client can be in this entry.
            if certificates.is_empty() {
                continue;
            }
            let trust = ClientTrust::new(certificates).map_err(|found| BuildError {
                path: format!("admin.remote.access_control[{index}].public_keys"),
                problem: Problem::Value { found, expected: "certificates in DER, as base64".into() },
            })?;
            entries.push(AccessEntry { trust, permissions: permissions.clone() });
        }
        let server_name = identifiers.first().cloned().unwrap_or_default();
        Ok(Self { written: remote.access.clone(), server_name, entries })
    }

    /// Returns the TLS settings of the listener: every client must have a certificate that one of the entries includes.
    pub(super) fn tls(&self) -> TlsSpec {
        let authorities = self.written.iter().flat_map(|entry| &entry.certificates).cloned().collect();
        let mode = ClientAuthenticationMode::RequireAndVerify;
        let client = Some(ClientAuthentication { mode, authorities, leaves: Vec::new() });
        let default_server_name = Some(self.server_name.clone()).filter(|name| !name.is_empty());
        TlsSpec { policies: vec![TlsPolicy { client, default_server_name, ..TlsPolicy::default() }] }
    }

    /// Returns an error unless the client may send this request.
    pub(super) fn check_request(&self, cx: &Context) -> Result<(), AdminResponse> {
        let path = String::from_utf8_lossy(cx.path());
        self.check(RemoteClient::of(cx).as_ref(), &path, SystemTime::now())?;
        // Dot segments that were percent-encoded: the check above has resolved them, the endpoints do not. Others are
        // redirected.
        let is_plain = |path: &str| matches!(path.strip_prefix(&*canonical_path(path)), Some("" | "/"));
        if is_plain(cx.head().target().path()) && !is_plain(&path) {
            return Err(AdminResponse::error(403, NO_PATH));
        }
        Ok(())
    }

    /// Returns an error unless one of the entries that include the client allows the path, which is decoded. Caddy's
    /// order of checks and its messages.
    pub(super) fn check(
        &self,
        client: Option<&RemoteClient>,
        path: &str,
        now: SystemTime,
    ) -> Result<(), AdminResponse> {
        let (mut is_known, mut has_path) = (false, false);
        let entries = client.into_iter().flat_map(|client| self.entries.iter().map(move |entry| (client, entry)));
        for (client, AccessEntry { trust, permissions }) in entries {
            if !trust.includes(&client.leaf, &client.intermediates, now) {
                continue;
            }
            is_known = true;
            if permissions.is_empty() {
                return Ok(());
            }
            for RemotePermission { paths, methods } in permissions {
                if paths.as_ref().is_some_and(|paths| !paths.iter().any(|allowed| is_below(path, allowed))) {
                    continue;
                }
                has_path = true;
                if methods.as_ref().is_none_or(|methods| methods.contains(&client.method)) {
                    return Ok(());
                }
            }
        }
        Err(match (is_known, has_path) {
            // The handshake has admitted the client for a former configuration, or its certificate has expired since.
            (false, _) => AdminResponse::error(401, "client identity not authorized"),
            (true, false) => AdminResponse::error(403, NO_PATH),
            (true, true) => AdminResponse::error(403, "not authorized to use this method"),
        })
    }
}

/// Whether a request's path is `allowed` or below it, at a boundary of segments. As in Caddy, an allowed path with a
/// slash at its end does not include the path without it.
fn is_below(path: &str, allowed: &str) -> bool {
    let (clean, clean_allowed) = (canonical_path(path), canonical_path(allowed));
    if allowed.is_empty() || clean_allowed == "/" {
        return true;
    }
    if clean == clean_allowed {
        return !allowed.ends_with('/') || path.ends_with('/');
    }
    clean.strip_prefix(&*clean_allowed).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Caddy's documentation of `permissions.paths`: a path equals an allowed one, or is below it at a boundary of
    // segments.
    #[test]
    fn paths() {
        for (path, allowed, want) in [
            ("/config/apps", "/config/apps", true),
            ("/config/apps/", "/config/apps", true),
            ("/config/apps/http", "/config/apps", true),
            ("/config/appstore", "/config/apps", false),
            ("/config", "/config/apps", false),
            ("/config/apps", "/config/apps/", false),
            ("/config/apps/", "/config/apps/", true),
            ("/config/apps/http", "/config/apps/", true),
            ("/config/apps/../../load", "/config/apps", false),
            ("/load/../config/apps", "/config/apps", true),
            ("/x", "", true),
            ("/x", "/", true),
            ("", "/x", false),
        ] {
            assert_eq!(is_below(path, allowed), want, "{path} {allowed}");
        }
    }
}
