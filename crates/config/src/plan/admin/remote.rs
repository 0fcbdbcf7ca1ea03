//! `admin.remote`: a second listener of the admin API, for clients with a certificate.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use causeway_pipeline::{Build, BuildError};
use serde::Deserialize;

use super::AdminAddress;

/// Caddy's default of `listen`.
const LISTEN: &str = ":2021";

/// The admin API for clients with a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteAdmin {
    /// The TCP address to listen on.
    pub listen: AdminAddress,
    /// The clients and their permissions. A client may be in several entries.
    pub access: Vec<RemoteAccess>,
}

/// Clients with the same permissions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteAccess {
    /// Certificates in DER. Each stands for the clients that have its key, and for those whose certificates it has
    /// signed.
    pub certificates: Vec<Vec<u8>>,
    /// Each allows requests. Empty: all requests are allowed.
    pub permissions: Vec<RemotePermission>,
}

/// A set of allowed requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemotePermission {
    /// Paths, each with all below it; `None`: all.
    pub paths: Option<Vec<String>>,
    /// Methods; `None`: all.
    pub methods: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RemoteConfig {
    #[serde(default)]
    listen: String,
    #[serde(default)]
    access_control: Vec<AccessConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AccessConfig {
    #[serde(default)]
    public_keys: Vec<String>,
    #[serde(default)]
    permissions: Vec<PermissionConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PermissionConfig {
    #[serde(default)]
    paths: Option<Vec<String>>,
    #[serde(default)]
    methods: Option<Vec<String>>,
}

impl RemoteConfig {
    pub(super) fn read(&self, build: &mut Build<'_>) -> Result<RemoteAdmin, BuildError> {
        let listen = build.at("listen", |build| {
            let listen = AdminAddress::read(if self.listen.is_empty() { LISTEN } else { &self.listen }, build)?;
            match listen.listen.address() {
                Some(_) => Ok(listen),
                None => Err(build.refuse(&*self.listen, "a TCP address: `admin.listen` can be a Unix socket")),
            }
        })?;
        let mut access = Vec::with_capacity(self.access_control.len());
        for (index, written) in self.access_control.iter().enumerate() {
            access.push(build.at(format!("access_control[{index}]"), |build| written.read(build))?);
        }
        if access.iter().all(|entry: &RemoteAccess| entry.certificates.is_empty()) {
            let expected = "one certificate at least in its `public_keys`: no client could connect";
            return build.at("access_control", |build| Err(build.refuse("no public key", expected)));
        }
        Ok(RemoteAdmin { listen, access })
    }
}

impl AccessConfig {
    fn read(&self, build: &mut Build<'_>) -> Result<RemoteAccess, BuildError> {
        let mut certificates = Vec::with_capacity(self.public_keys.len());
        for (index, written) in self.public_keys.iter().enumerate() {
            let text = build.expand_constants(written);
            match BASE64_STANDARD.decode(text.trim()) {
                // 0x30 is the tag of a SEQUENCE, with which every certificate starts (RFC 5280 §4.1).
                Ok(der) if der.first() == Some(&0x30) => certificates.push(der),
                _ => {
                    let found = format!("a text of {} bytes", text.len());
                    let expected = "a certificate in DER, as base64: a PEM block without its first and last line";
                    return build.at(format!("public_keys[{index}]"), |build| Err(build.refuse(found, expected)));
                }
            }
        }
        let mut permissions = Vec::with_capacity(self.permissions.len());
        for (index, written) in self.permissions.iter().enumerate() {
            permissions.push(build.at(format!("permissions[{index}]"), |build| written.read(build))?);
        }
        Ok(RemoteAccess { certificates, permissions })
    }
}

impl PermissionConfig {
    fn read(&self, build: &mut Build<'_>) -> Result<RemotePermission, BuildError> {
        for (index, path) in self.paths.iter().flatten().enumerate() {
            // As in Caddy: another spelling would match no request.
            let canonical = canonical_path(path);
            if !path.is_empty() && *path != canonical && path.strip_suffix('/') != Some(&*canonical) {
                let expected = format!("a path without empty and dot segments, such as {canonical}");
                return build.at(format!("paths[{index}]"), |build| Err(build.refuse(&**path, expected)));
            }
        }
        for (index, method) in self.methods.iter().flatten().enumerate() {
            // Methods are case-sensitive (RFC 9110 §9.1), so this one would never match.
            if method.is_empty() || method.bytes().any(|byte| !byte.is_ascii_uppercase()) {
                let expected = "a method in upper case, such as GET";
                return build.at(format!("methods[{index}]"), |build| Err(build.refuse(&**method, expected)));
            }
        }
        Ok(RemotePermission { paths: self.paths.clone(), methods: self.methods.clone() })
    }
}

/// Returns an absolute path without empty and dot segments, and without a slash at its end unless it is `/`.
pub fn canonical_path(path: &str) -> String {
    let mut segments = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    format!("/{}", segments.join("/"))
}

#[cfg(test)]
mod tests {
    use causeway_pipeline::Registry;
    use serde_json::{Value, json};

    use super::super::super::load;
    use super::*;

    fn read(remote: &Value) -> Result<Option<RemoteAdmin>, String> {
        let identity = json!({ "identifiers": ["localhost"], "issuers": [{ "module": "internal" }] });
        let loaded = load(&json!({ "admin": { "identity": identity, "remote": remote } }), &Registry::default());
        loaded.map(|loaded| loaded.admin.remote).map_err(|error| error.to_string())
    }

    // Caddy's documentation of `admin.remote`: port 2021 by default; without permissions everything is allowed.
    #[test]
    fn listeners() {
        let key = BASE64_STANDARD.encode([0x30, 0]);
        let remote = read(&json!({ "access_control": [{ "public_keys": [key] }] })).unwrap().unwrap();
        assert_eq!(remote.listen.to_string(), ":2021");
        let all = RemoteAccess { certificates: vec![vec![0x30, 0]], permissions: Vec::new() };
        assert_eq!(remote.access, [all]);
        let permissions = json!([{ "paths": ["/config/", "", "/", "/id/x"], "methods": ["GET"] }, {}]);
        let some = json!({ "listen": "localhost:1", "access_control": [{ "public_keys": [key], "permissions": permissions }] });
        let remote = read(&some).unwrap().unwrap();
        assert_eq!(remote.listen.to_string(), "localhost:1");
        let paths = Some(["/config/", "", "/", "/id/x"].map(str::to_owned).to_vec());
        assert_eq!(
            remote.access[0].permissions,
            [
                RemotePermission { paths, methods: Some(vec!["GET".into()]) },
                RemotePermission { paths: None, methods: None },
            ]
        );
    }

    #[test]
    fn mistakes() {
        let key = BASE64_STANDARD.encode([0x30, 0]);
        let with =
            |permission: Value| json!({ "access_control": [{ "public_keys": [key], "permissions": [permission] }] });
        for (remote, want) in [
            (
                json!({}),
                ".access_control: found 'no public key', expected one certificate at least in its `public_keys`: no client could connect",
            ),
            (
                json!({ "access_control": [{ "public_keys": ["-----BEGIN"] }] }),
                ".access_control[0].public_keys[0]: found 'a text of 10 bytes', expected a certificate in DER, as base64: a PEM block without its first and last line",
            ),
            (
                json!({ "listen": "unix//x", "access_control": [{ "public_keys": [key] }] }),
                ".listen: found 'unix//x', expected a TCP address: `admin.listen` can be a Unix socket",
            ),
            (
                with(json!({ "paths": ["/config//apps"] })),
                ".access_control[0].permissions[0].paths[0]: found '/config//apps', expected a path without empty and dot segments, such as /config/apps",
            ),
            (
                with(json!({ "methods": ["get"] })),
                ".access_control[0].permissions[0].methods[0]: found 'get', expected a method in upper case, such as GET",
            ),
        ] {
            assert_eq!(read(&remote), Err(format!("admin.remote{want}")), "{remote}");
        }
    }
}
