//! The parts of a configuration outside of its apps: `admin` and `logging`; `storage` has its own module.
//!
//! All of Caddy's keys are known. A key that is not supported is rejected by its path, so that an operator cannot
//! rely on a remote endpoint that does not exist.
//!
//! - `pull`: the server that a configuration is pulled from
//! - `identity`: the certificates of the server itself
//! - `remote`: the listener for clients with a certificate

mod identity;
mod pull;
mod remote;

use causeway_pipeline::build::DurationConfig;
use causeway_pipeline::{Build, BuildError, ListeningSocket, Registry};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::certificates::CertificateAuthority;
use super::storage::{self, Storage};
use super::tls::Tls;
use super::{PlanError, RootConfig, address};

pub use identity::Identity;
pub use pull::{ConfigPull, HttpLoader, LoaderCredentials};
pub use remote::{RemoteAccess, RemoteAdmin, RemotePermission, canonical_path};

/// The configuration of the admin API.
#[derive(Debug, Clone, PartialEq)]
pub struct Admin {
    /// Whether the admin API is enabled.
    pub is_enabled: bool,
    /// The address to listen on; `None`: the process decides (`CADDY_ADMIN`, or else `localhost:2019`).
    pub listen: Option<AdminAddress>,
    /// Whether a request without a trusted `Origin` is rejected too.
    pub enforce_origin: bool,
    /// The allowed hosts and origins, instead of those derived from the listener's address.
    pub origins: Option<Vec<String>>,
    /// Whether the configuration is saved for `run --resume`.
    pub persists_config: bool,
    /// The server that has the next configuration.
    pub pull: Option<ConfigPull>,
    /// The names of the server itself.
    pub identity: Option<Identity>,
    /// The listener for clients with a certificate.
    pub remote: Option<RemoteAdmin>,
}

/// The admin API's single address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminAddress {
    /// The host of a TCP address as written, with placeholders replaced and without brackets; empty for every address
    /// of the machine.
    pub host: String,
    /// The TCP address that `host` resolved to, with its port; or a Unix or inherited socket.
    pub listen: ListeningSocket,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct AdminConfig {
    #[serde(default)]
    disabled: bool,
    #[serde(default)]
    listen: String,
    #[serde(default)]
    enforce_origin: bool,
    #[serde(default)]
    origins: Option<Vec<String>>,
    #[serde(default)]
    config: Option<PersistenceConfig>,
    #[serde(default)]
    identity: Option<identity::IdentityConfig>,
    #[serde(default)]
    remote: Option<remote::RemoteConfig>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct PersistenceConfig {
    #[serde(default)]
    persist: Option<bool>,
    #[serde(default)]
    load: Option<Value>,
    #[serde(default)]
    load_delay: Option<DurationConfig>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct LoggingConfig {
    #[serde(default)]
    sink: Option<Value>,
    /// The logs, which the module `access_log` and the program open.
    #[serde(default)]
    pub(super) logs: Map<String, Value>,
}

impl AdminAddress {
    /// Parses an address as written in `admin.listen` or `--address`. `{env.NAME}` in it stands for a variable of the
    /// process.
    ///
    /// # Errors
    /// Fails if the text is not an address or is a range of several. `place` becomes the error's path.
    pub fn parse(text: &str, place: &str) -> Result<Self, BuildError> {
        Self::parse_with(text, place, &Registry::default())
    }

    /// As [`parse`](Self::parse), with the variables of `registry`.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse).
    pub fn parse_with(text: &str, place: &str, registry: &Registry) -> Result<Self, BuildError> {
        Build::new(registry).at(place, |build| Self::read(text, build))
    }

    fn read(text: &str, build: &mut Build<'_>) -> Result<Self, BuildError> {
        let mut addresses = address::read(text, build)?;
        let (Some(listen), None) = (addresses.pop(), addresses.pop()) else {
            return Err(build.refuse(text, "one address: the admin API listens on one port"));
        };
        if listen.address().is_none() {
            return Ok(Self { host: String::new(), listen });
        }
        // The text in which the parser found the address: the host decides which requests are accepted, and a
        // placeholder may stand for any part of it. The parser succeeded, so there is a port.
        let text = build.expand_constants(text);
        let host = text.rsplit_once(':').map_or("", |(host, _)| host);
        let host = host.rsplit_once('/').map_or(host, |(_, host)| host);
        Ok(Self { host: host.trim_start_matches('[').trim_end_matches(']').to_owned(), listen })
    }
}

impl std::fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some(port) = self.listen.port() else { return self.listen.fmt(f) };
        if self.host.contains(':') { write!(f, "[{}]:{port}", self.host) } else { write!(f, "{}:{port}", self.host) }
    }
}

/// The identity that other settings need.
const IDENTITY_NEEDED: &str = "an `admin.identity` with one of `identifiers` at least";

pub(super) fn read(config: &RootConfig, build: &mut Build<'_>) -> Result<(Admin, Storage), BuildError> {
    let admin = build.at("admin", |build| match &config.admin {
        Some(written) => written.read(build),
        None => AdminConfig::default().read(build),
    })?;
    let storage = storage::read(config.storage.as_ref(), build)?;
    if let Some(LoggingConfig { sink, .. }) = &config.logging {
        let expected = "nothing: this server has no log of Go's standard library";
        build.at("logging", |build| refuse_present("sink", sink.as_ref(), expected, build))?;
    }
    Ok((admin, storage))
}

impl Admin {
    /// Adds the identity that `written` describes. `authorities`: those of the configuration.
    pub(super) fn with_identity(
        mut self,
        written: Option<&AdminConfig>,
        tls: &Tls,
        authorities: &[CertificateAuthority],
        build: &mut Build<'_>,
    ) -> Result<Self, PlanError> {
        if let Some(identity) = written.and_then(|written| written.identity.as_ref()) {
            // `Build::at` has errors of one type only.
            let mut read = Ok(());
            build.at("admin.identity", |build| {
                match identity.read(tls, authorities, build) {
                    Ok(identity) => self.identity = Some(identity),
                    Err(PlanError::Build(error)) => return Err(error),
                    Err(other) => read = Err(other),
                }
                Ok(())
            })?;
            read?;
        }
        Ok(self)
    }
}

impl AdminConfig {
    fn read(&self, build: &mut Build<'_>) -> Result<Admin, BuildError> {
        let has_identity = self.identity.as_ref().is_some_and(|identity| !identity.identifiers.is_empty());
        let remote = match &self.remote {
            Some(_) if !has_identity => {
                return build.at("remote", |build| Err(build.refuse("no identity", IDENTITY_NEEDED)));
            }
            Some(remote) => Some(build.at("remote", |build| remote.read(build))?),
            None => None,
        };
        let config = self.config.as_ref();
        let pull = build.at("config", |build| match config {
            Some(config) => pull::read(config.load.as_ref(), config.load_delay.as_ref(), has_identity, build),
            None => Ok(None),
        })?;
        let listen = match &*self.listen {
            "" => None,
            text => Some(build.at("listen", |build| AdminAddress::read(text, build))?),
        };
        Ok(Admin {
            is_enabled: !self.disabled,
            listen,
            enforce_origin: self.enforce_origin,
            origins: self.origins.clone(),
            persists_config: config.and_then(|config| config.persist).unwrap_or(true),
            pull,
            identity: None,
            remote,
        })
    }
}

fn refuse_present(
    key: &str,
    value: Option<&Value>,
    expected: &'static str,
    build: &mut Build<'_>,
) -> Result<(), BuildError> {
    match value {
        Some(value) => build.at(key, |build| Err(build.refuse(value.to_string(), expected))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::json;

    use super::super::load;
    use super::*;

    fn registry() -> Registry {
        let mut registry = Registry::default();
        registry.set_environment(|name| {
            let variables = [
                ("ADMIN", "localhost:3000"),
                ("HOST", "[::1]"),
                ("PORT", "3000"),
                ("DIGIT", "2"),
                ("SOCKET", "unix/@x"),
            ];
            variables.into_iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_owned())
        });
        registry
    }

    fn read(config: &Value) -> Result<(Admin, Storage), String> {
        let loaded = load(config, &registry()).map_err(|error| error.to_string())?;
        Ok((loaded.admin, loaded.storage))
    }

    // Caddy's documentation of `admin`: on at localhost:2019 by default, `config.persist` on.
    #[test]
    fn settings_of_the_admin_api() {
        let silent = Admin {
            is_enabled: true,
            listen: None,
            enforce_origin: false,
            origins: None,
            persists_config: true,
            pull: None,
            identity: None,
            remote: None,
        };
        let at = |host: &str, listen: &str| {
            let listen = AdminAddress { host: host.into(), listen: AdminAddress::parse(listen, "").unwrap().listen };
            Admin { listen: Some(listen), ..silent.clone() }
        };
        for (admin, want) in [
            (json!(null), silent.clone()),
            (json!({}), silent.clone()),
            (json!({ "disabled": true }), Admin { is_enabled: false, ..silent.clone() }),
            (json!({ "listen": "" }), silent.clone()),
            (json!({ "listen": "localhost:3000" }), at("localhost", "127.0.0.1:3000")),
            (json!({ "listen": ":3000" }), at("", ":3000")),
            (json!({ "listen": "tcp/[::1]:3000" }), at("::1", "[::1]:3000")),
            (json!({ "listen": "unix//run/x|0660" }), at("", "unix//run/x|0660")),
            (json!({ "listen": "fd/3" }), at("", "fd/3")),
            // Caddy replaces placeholders before it parses the address (`parseAdminListenAddr`).
            (json!({ "listen": "{env.ADMIN}" }), at("localhost", "127.0.0.1:3000")),
            (json!({ "listen": "tcp/{env.HOST}:{env.PORT}" }), at("::1", "[::1]:3000")),
            (json!({ "listen": "127.0.0.{env.DIGIT}:{env.PORT}" }), at("127.0.0.2", "127.0.0.2:3000")),
            (json!({ "config": { "persist": false } }), Admin { persists_config: false, ..silent.clone() }),
            (json!({ "config": { "persist": null } }), silent.clone()),
            (
                json!({ "enforce_origin": true, "origins": ["a:1"] }),
                Admin { enforce_origin: true, origins: Some(vec!["a:1".into()]), ..silent.clone() },
            ),
        ] {
            assert_eq!(read(&json!({ "admin": admin })).map(|read| read.0), Ok(want), "{admin}");
        }
        for (text, want) in
            [("localhost:2019", "localhost:2019"), ("[::1]:1", "[::1]:1"), (":1", ":1"), ("unix/@x|0660", "unix/@x")]
        {
            assert_eq!(AdminAddress::parse(text, "").map(|address| address.to_string()).as_deref(), Ok(want));
        }
        for (text, want) in [
            ("{env.ADMIN}", "localhost:3000"),
            ("{env.HOST}:{env.PORT}", "[::1]:3000"),
            (":{env.PORT}", ":3000"),
            ("{env.SOCKET}", "unix/@x"),
        ] {
            let address = AdminAddress::parse_with(text, "", &registry());
            assert_eq!(address.map(|address| address.to_string()).as_deref(), Ok(want), "{text}");
        }
    }

    #[test]
    fn storage_of_certificates() {
        for (config, storage) in [
            (json!({}), None),
            (json!({ "storage": { "module": "file_system" } }), None),
            (json!({ "storage": { "module": "file_system", "root": "/var/x" } }), Some("/var/x")),
        ] {
            let want = Storage::FileSystem(storage.map(PathBuf::from));
            assert_eq!(read(&config).map(|(_, storage)| storage), Ok(want), "{config}");
        }
    }

    #[test]
    fn refused_settings() {
        for (config, want) in [
            (
                json!({ "admin": { "listen": "unix//run/x|0060" } }),
                "admin.listen: found 'unix//run/x|0060', expected permission bits that let the owner write, such as 0260",
            ),
            (
                json!({ "admin": { "listen": "fdgram/3" } }),
                "admin.listen: found 'fdgram/3', expected one address: the admin API listens on one port",
            ),
            (
                json!({ "admin": { "listen": ":1-2" } }),
                "admin.listen: found ':1-2', expected one address: the admin API listens on one port",
            ),
            (
                json!({ "admin": { "remote": {}, "identity": {} } }),
                "admin.remote: found 'no identity', expected an `admin.identity` with one of `identifiers` at least",
            ),
            (
                json!({ "storage": { "module": "consul" } }),
                "storage: storage module 'consul' is not supported (docs/refused.md)",
            ),
            (
                json!({ "storage": {} }),
                "storage: found '{}', expected an object with a 'module' key, as {\"module\": \"file_system\"}",
            ),
            (
                json!({ "logging": { "sink": {} } }),
                "logging.sink: found '{}', expected nothing: this server has no log of Go's standard library",
            ),
        ] {
            assert_eq!(read(&config).map(|_| ()).map_err(|error| error.to_string()), Err(want.to_owned()));
        }
    }
}
