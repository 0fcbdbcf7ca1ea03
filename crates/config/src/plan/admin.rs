//! What a configuration says beside its apps: `admin`, `storage` and `logging`.
//!
//! Caddy's keys are all known here. What is not built is refused by its path, so that nobody believes in a remote endpoint or a
//! log file that is not there.

use std::collections::BTreeMap;
use std::path::PathBuf;

use causeway_pipeline::build::Problem;
use causeway_pipeline::{Build, BuildError, ListenAddress, Registry};
use serde::Deserialize;
use serde_json::Value;

use super::{Config, address};

/// What a configuration says of the admin API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// Whether there is one.
    pub switch: Switch,
    /// Where it listens; `None` where the configuration leaves that to the process (`CADDY_ADMIN`, else `localhost:2019`).
    pub listen: Option<AdminAddress>,
    /// Whether a request without a trusted `Origin` is refused too.
    pub enforce_origin: bool,
    /// Which hosts and origins may ask, instead of the listener's own.
    pub origins: Option<Vec<String>>,
    /// Whether the configuration is kept for `run --resume`.
    pub persist: bool,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

/// Where the admin API listens: one TCP address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminAddress {
    /// The host as written, without brackets; empty for every address of the machine.
    pub host: String,
    /// What that stands for.
    pub listen: ListenAddress,
}

/// Where what must outlive the process is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// In a folder; `None` is the process's own.
    FileSystem(Option<PathBuf>),
}

/// How much the server says on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What an operator wants to know.
    Info,
    /// Also what is only of use when something is wrong.
    Debug,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenAdmin {
    #[serde(default)]
    disabled: bool,
    #[serde(default)]
    listen: String,
    #[serde(default)]
    enforce_origin: bool,
    #[serde(default)]
    origins: Option<Vec<String>>,
    #[serde(default)]
    config: Option<WrittenConfig>,
    #[serde(default)]
    identity: Option<Value>,
    #[serde(default)]
    remote: Option<Value>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct WrittenConfig {
    #[serde(default)]
    persist: Option<bool>,
    #[serde(default)]
    load: Option<Value>,
    #[serde(default)]
    load_delay: Option<Value>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenLogging {
    #[serde(default)]
    sink: Option<Value>,
    #[serde(default)]
    logs: BTreeMap<String, WrittenLog>,
}

/// Of a log only its level is understood.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct WrittenLog {
    #[serde(default)]
    level: String,
}

impl AdminAddress {
    /// Reads an address as `admin.listen` and `--address` have it.
    ///
    /// # Errors
    /// With `place` for its path: when it is none, or is more than one.
    pub fn parse(text: &str, place: &str) -> Result<Self, BuildError> {
        let registry = Registry::default();
        Build::new(&registry).at(place, |build| Self::read(text, build))
    }

    fn read(text: &str, build: &mut Build<'_>) -> Result<Self, BuildError> {
        let addresses = address::parse_one(text, build)?;
        let [listen] = addresses[..] else {
            return Err(build.refuse(text, "one address: the admin API listens on one port"));
        };
        // It was read, so it has a port.
        let host = text.rsplit_once(':').map_or("", |(host, _)| host);
        let host = host.rsplit_once('/').map_or(host, |(_, host)| host);
        Ok(Self { host: host.trim_start_matches('[').trim_end_matches(']').to_owned(), listen })
    }
}

impl std::fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let port = self.listen.port;
        if self.host.contains(':') { write!(f, "[{}]:{port}", self.host) } else { write!(f, "{}:{port}", self.host) }
    }
}

pub(super) fn read(config: &Config, build: &mut Build<'_>) -> Result<(Admin, Storage, Level), BuildError> {
    let admin = build.at("admin", |build| match &config.admin {
        Some(written) => written.read(build),
        None => WrittenAdmin::default().read(build),
    })?;
    let storage = match &config.storage {
        Some(written) => build.at("storage", |build| storage(written, build))?,
        None => Storage::FileSystem(None),
    };
    let level = match &config.logging {
        Some(written) => build.at("logging", |build| written.read(build))?,
        None => Level::Info,
    };
    Ok((admin, storage, level))
}

impl WrittenAdmin {
    fn read(&self, build: &mut Build<'_>) -> Result<Admin, BuildError> {
        for (key, value, expected) in [
            ("identity", &self.identity, "nothing: the server's identity is not built"),
            ("remote", &self.remote, "nothing: the remote admin endpoint is not built"),
        ] {
            refuse_present(key, value.as_ref(), expected, build)?;
        }
        let config = self.config.as_ref();
        build.at("config", |build| {
            let expected = "nothing: configuration loaders are not built";
            refuse_present("load", config.and_then(|config| config.load.as_ref()), expected, build)?;
            refuse_present("load_delay", config.and_then(|config| config.load_delay.as_ref()), expected, build)
        })?;
        let listen = match &*self.listen {
            "" => None,
            text => Some(build.at("listen", |build| AdminAddress::read(text, build))?),
        };
        Ok(Admin {
            switch: if self.disabled { Switch::Off } else { Switch::On },
            listen,
            enforce_origin: self.enforce_origin,
            origins: self.origins.clone(),
            persist: config.and_then(|config| config.persist).unwrap_or(true),
        })
    }
}

impl WrittenLogging {
    fn read(&self, build: &mut Build<'_>) -> Result<Level, BuildError> {
        refuse_present("sink", self.sink.as_ref(), "nothing: the sink is not built", build)?;
        let mut level = Level::Info;
        build.at("logs", |build| {
            for (name, log) in &self.logs {
                if name != "default" {
                    return Err(build.refuse(name, "'default': other logs are not built"));
                }
                level = build.at("default.level", |build| log.level(build))?;
            }
            Ok(())
        })?;
        Ok(level)
    }
}

impl WrittenLog {
    fn level(&self, build: &Build<'_>) -> Result<Level, BuildError> {
        match &*self.level.to_ascii_lowercase() {
            "" | "info" => Ok(Level::Info),
            "debug" => Ok(Level::Debug),
            _ => Err(build.refuse(self.level.clone(), "DEBUG or INFO: other levels are not built")),
        }
    }
}

fn storage(written: &Value, build: &Build<'_>) -> Result<Storage, BuildError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct FileSystem {
        #[serde(rename = "module")]
        _module: String,
        #[serde(default)]
        root: String,
    }
    match written.get("module").and_then(Value::as_str) {
        Some("file_system") => {
            let FileSystem { root, .. } = build.parse(written)?;
            Ok(Storage::FileSystem((!root.is_empty()).then(|| root.into())))
        }
        Some(name) => Err(build.error(Problem::UnknownModule { kind: "storage", name: name.to_owned() })),
        None => {
            Err(build.refuse(written.to_string(), "an object with a 'module' key, as {\"module\": \"file_system\"}"))
        }
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
    use serde_json::json;

    use super::super::load;
    use super::*;

    fn read(config: &Value) -> Result<(Admin, Storage, Level), String> {
        let loaded = load(config, &Registry::default()).map_err(|error| error.to_string())?;
        Ok((loaded.admin, loaded.storage, loaded.level))
    }

    // Caddy's documentation of `admin`: on at localhost:2019 unless said otherwise, `config.persist` on.
    #[test]
    fn what_is_said_of_the_admin_api() {
        let silent = Admin { switch: Switch::On, listen: None, enforce_origin: false, origins: None, persist: true };
        let at = |host: &str, listen: &str| {
            let listen = AdminAddress { host: host.into(), listen: AdminAddress::parse(listen, "").unwrap().listen };
            Admin { listen: Some(listen), ..silent.clone() }
        };
        for (admin, want) in [
            (json!(null), silent.clone()),
            (json!({}), silent.clone()),
            (json!({ "disabled": true }), Admin { switch: Switch::Off, ..silent.clone() }),
            (json!({ "listen": "" }), silent.clone()),
            (json!({ "listen": "localhost:3000" }), at("localhost", "127.0.0.1:3000")),
            (json!({ "listen": ":3000" }), at("", ":3000")),
            (json!({ "listen": "tcp/[::1]:3000" }), at("::1", "[::1]:3000")),
            (json!({ "config": { "persist": false } }), Admin { persist: false, ..silent.clone() }),
            (json!({ "config": { "persist": null } }), silent.clone()),
            (
                json!({ "enforce_origin": true, "origins": ["a:1"] }),
                Admin { enforce_origin: true, origins: Some(vec!["a:1".into()]), ..silent.clone() },
            ),
        ] {
            assert_eq!(read(&json!({ "admin": admin })).map(|read| read.0), Ok(want), "{admin}");
        }
        for (text, want) in [("localhost:2019", "localhost:2019"), ("[::1]:1", "[::1]:1"), (":1", ":1")] {
            assert_eq!(AdminAddress::parse(text, "").map(|address| address.to_string()).as_deref(), Ok(want));
        }
    }

    #[test]
    fn storage_and_level() {
        for (config, storage, level) in [
            (json!({}), None, Level::Info),
            (json!({ "storage": { "module": "file_system" } }), None, Level::Info),
            (json!({ "storage": { "module": "file_system", "root": "/var/x" } }), Some("/var/x"), Level::Info),
            (json!({ "logging": { "logs": { "default": { "level": "DEBUG" } } } }), None, Level::Debug),
            (json!({ "logging": { "logs": { "default": { "level": "info" } } } }), None, Level::Info),
        ] {
            let want = (Storage::FileSystem(storage.map(PathBuf::from)), level);
            assert_eq!(read(&config).map(|(_, storage, level)| (storage, level)), Ok(want), "{config}");
        }
    }

    #[test]
    fn what_is_refused() {
        for (config, want) in [
            (
                json!({ "admin": { "listen": "unix//run/x" } }),
                "admin.listen: found 'unix//run/x', expected a TCP address: other networks are not built",
            ),
            (
                json!({ "admin": { "listen": ":1-2" } }),
                "admin.listen: found ':1-2', expected one address: the admin API listens on one port",
            ),
            (
                json!({ "admin": { "identity": {} } }),
                "admin.identity: found '{}', expected nothing: the server's identity is not built",
            ),
            (
                json!({ "admin": { "remote": {} } }),
                "admin.remote: found '{}', expected nothing: the remote admin endpoint is not built",
            ),
            (
                json!({ "admin": { "config": { "load": { "module": "http" } } } }),
                "admin.config.load: found '{\"module\":\"http\"}', expected nothing: configuration loaders are not built",
            ),
            (
                json!({ "admin": { "config": { "load_delay": "1s" } } }),
                "admin.config.load_delay: found '\"1s\"', expected nothing: configuration loaders are not built",
            ),
            (
                json!({ "storage": { "module": "redis" } }),
                "storage: no storage module 'redis' is built into this version",
            ),
            (
                json!({ "storage": {} }),
                "storage: found '{}', expected an object with a 'module' key, as {\"module\": \"file_system\"}",
            ),
            (json!({ "logging": { "sink": {} } }), "logging.sink: found '{}', expected nothing: the sink is not built"),
            (
                json!({ "logging": { "logs": { "mine": {} } } }),
                "logging.logs: found 'mine', expected 'default': other logs are not built",
            ),
            (
                json!({ "logging": { "logs": { "default": { "level": "WARN" } } } }),
                "logging.logs.default.level: found 'WARN', expected DEBUG or INFO: other levels are not built",
            ),
            (
                json!({ "logging": { "logs": { "default": { "writer": {} } } } }),
                "logging.logs.default.writer: unknown field `writer`, expected `level`",
            ),
        ] {
            assert_eq!(read(&config).map(|_| ()).map_err(|error| error.to_string()), Err(want.to_owned()));
        }
    }
}
