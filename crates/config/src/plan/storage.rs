//! `storage`: where certificates and authorities are stored.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use causeway_pipeline::build::Problem;
use causeway_pipeline::{Build, BuildError};
use serde::Deserialize;
use serde_json::Value;

use super::address::decimal;

/// Where certificates and authorities are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// A directory; `None`: the process's default directory.
    FileSystem(Option<PathBuf>),
    /// A Redis or Valkey server.
    Redis(Box<RedisServer>),
}

/// A Redis or Valkey server with the values of the Caddy plugin caddy-storage-redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisServer {
    /// Host name or IP address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The name of an ACL user; may be empty.
    pub username: String,
    /// The password; may be empty.
    pub password: Secret,
    /// The number of the database.
    pub db: u32,
    /// Limit for each wait; `None`: the default.
    pub timeout: Option<Duration>,
    /// The beginning of each key, without a slash at its ends.
    pub key_prefix: String,
    /// The key of the encryption, at least 32 bytes; empty: no encryption.
    pub encryption_key: Secret,
    /// The compression of new values.
    pub compression: RedisCompression,
    /// `None`: without TLS.
    pub tls: Option<RedisTlsSettings>,
}

/// A text that `Debug` does not show.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "(secret)" })
    }
}

/// How new values are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedisCompression {
    /// Not at all.
    None,
    /// Raw DEFLATE.
    Flate,
    /// zlib.
    Zlib,
}

/// TLS towards a Redis server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisTlsSettings {
    /// Whether any certificate is accepted.
    pub insecure: bool,
    /// The roots to trust.
    pub roots: RedisRoots,
}

/// The roots that a Redis server's certificate is checked against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisRoots {
    /// The system's.
    System,
    /// PEM text.
    Pem(String),
    /// A PEM file.
    File(PathBuf),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileSystemConfig {
    #[serde(rename = "module")]
    _module: String,
    #[serde(default)]
    root: String,
}

/// The plugin's members, with those that are refused unless they have their default.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RedisConfig {
    #[serde(rename = "module")]
    _module: String,
    #[serde(default)]
    client_type: String,
    #[serde(default)]
    address: Option<Vec<String>>,
    #[serde(default)]
    host: Option<Vec<String>>,
    #[serde(default)]
    port: Option<Vec<String>>,
    #[serde(default)]
    db: Option<NumberConfig>,
    #[serde(default)]
    timeout: String,
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    key_prefix: String,
    #[serde(default)]
    encryption_key: String,
    #[serde(default)]
    compression: Option<CompressionConfig>,
    #[serde(default)]
    tls_enabled: bool,
    #[serde(default)]
    tls_insecure: bool,
    #[serde(default)]
    tls_server_certs_pem: String,
    #[serde(default)]
    tls_server_certs_path: String,
    #[serde(default)]
    sentinel_password: String,
    #[serde(default)]
    master_name: String,
    #[serde(default)]
    route_by_latency: bool,
    #[serde(default)]
    route_randomly: bool,
    /// Without effect: a name for `CLIENT LIST`.
    #[serde(default)]
    client_name: String,
    /// Ignored: a connection ends with its last user.
    #[serde(default, rename = "client_shutdown_grace_period")]
    _client_shutdown_grace_period: String,
    /// Ignored: the server starts without a connection in any case.
    #[serde(default, rename = "skip_connection_check")]
    _skip_connection_check: bool,
}

/// A number, or its digits as text, which may come from a placeholder.
#[derive(Deserialize)]
#[serde(untagged)]
enum NumberConfig {
    Number(u32),
    Text(String),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum CompressionConfig {
    Switch(bool),
    Text(String),
}

/// Reads the storage of a configuration.
pub(super) fn read(written: Option<&Value>, build: &mut Build<'_>) -> Result<Storage, BuildError> {
    match written {
        Some(written) => build.at("storage", |build| storage(written, build)),
        None => Ok(Storage::FileSystem(None)),
    }
}

/// Reads the storage of a policy or an authority; `None`: it has the configuration's.
pub(super) fn read_own(written: Option<&Value>, build: &mut Build<'_>) -> Result<Option<Storage>, BuildError> {
    build.at("storage", |build| written.map(|written| storage(written, build)).transpose())
}

fn storage(written: &Value, build: &mut Build<'_>) -> Result<Storage, BuildError> {
    match written.get("module").and_then(Value::as_str) {
        Some("file_system") => {
            let FileSystemConfig { root, .. } = build.parse(written)?;
            Ok(Storage::FileSystem((!root.is_empty()).then(|| root.into())))
        }
        Some("redis") => {
            let written: RedisConfig = build.parse(written)?;
            Ok(Storage::Redis(Box::new(written.read(build)?)))
        }
        Some(name) => Err(build.error(Problem::UnknownModule { kind: "storage", name: name.to_owned() })),
        None => {
            Err(build.refuse(written.to_string(), "an object with a 'module' key, as {\"module\": \"file_system\"}"))
        }
    }
}

impl RedisConfig {
    fn read(&self, build: &mut Build<'_>) -> Result<RedisServer, BuildError> {
        self.refuse_unsupported(build)?;
        if !self.client_name.is_empty() {
            build.warn_unused("client_name", "connections to Redis have no name");
        }
        let (host, port) = self.address(build)?;
        let number = |text: &str, key: &str, expected: &'static str, build: &mut Build<'_>| {
            build.at(key, |build| decimal::<u32>(text).ok_or_else(|| build.refuse(text, expected)))
        };
        let db = match &self.db {
            None => 0,
            Some(NumberConfig::Number(db)) => *db,
            Some(NumberConfig::Text(text)) => match &*build.expand_constants(text) {
                "" => 0,
                text => number(text, "db", "the number of a database, such as 0", build)?,
            },
        };
        let timeout = match &*build.expand_constants(&self.timeout) {
            // As in the plugin, 0 is the default too.
            "" | "0" => None,
            text => Some(number(text, "timeout", "a number of seconds, such as 5", build)?),
        };
        let key_prefix = match build.expand_constants(&self.key_prefix) {
            empty if empty.is_empty() => "caddy".to_owned(),
            prefix => prefix,
        };
        if key_prefix.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
            let expected = "names with single slashes between them, such as caddy";
            return build.at("key_prefix", |build| Err(build.refuse(key_prefix, expected)));
        }
        let encryption_key = build.expand_constants(&self.encryption_key);
        if !encryption_key.is_empty() && encryption_key.len() < 32 {
            let found = format!("{} bytes", encryption_key.len());
            return build.at("encryption_key", |build| Err(build.refuse(found, "at least 32 bytes")));
        }
        let compression = match &self.compression {
            None | Some(CompressionConfig::Switch(false)) => RedisCompression::None,
            Some(CompressionConfig::Switch(true)) => RedisCompression::Flate,
            Some(CompressionConfig::Text(text)) => match &*build.expand_constants(text) {
                "" | "false" => RedisCompression::None,
                "flate" | "true" => RedisCompression::Flate,
                "zlib" => RedisCompression::Zlib,
                other => return build.at("compression", |build| Err(build.refuse(other, "flate, zlib or false"))),
            },
        };
        Ok(RedisServer {
            host,
            port,
            username: build.expand_constants(&self.username),
            password: Secret(build.expand_constants(&self.password)),
            db,
            timeout: timeout.map(|seconds| Duration::from_secs(seconds.into())),
            key_prefix,
            encryption_key: Secret(encryption_key),
            compression,
            tls: self.tls(build)?,
        })
    }

    fn refuse_unsupported(&self, build: &mut Build<'_>) -> Result<(), BuildError> {
        let expected = "nothing: clusters and Sentinel are not supported (docs/refused.md), only a single server";
        let is_single = matches!(&*self.client_type, "" | "simple");
        for (key, found, is_default) in [
            ("client_type", &*self.client_type, is_single),
            ("sentinel_password", "(secret)", self.sentinel_password.is_empty()),
            ("master_name", &self.master_name, self.master_name.is_empty()),
            ("route_by_latency", "true", !self.route_by_latency),
            ("route_randomly", "true", !self.route_randomly),
        ] {
            if !is_default {
                return build.at(key, |build| Err(build.refuse(found, expected)));
            }
        }
        Ok(())
    }

    /// Host and port: those of `address`, which has precedence, or `host` and `port`.
    fn address(&self, build: &mut Build<'_>) -> Result<(String, u16), BuildError> {
        let one =
            |key: &str, values: &Option<Vec<String>>, default: &str, build: &mut Build<'_>| match values.as_deref() {
                None | Some([]) => Ok(default.to_owned()),
                Some([one]) => Ok(build.expand_constants(one)),
                Some(several) => {
                    let found = format!("{} values", several.len());
                    build.at(key, |build| Err(build.refuse(found, "one: clusters are not supported (docs/refused.md)")))
                }
            };
        let port = |key: &str, text: &str, build: &mut Build<'_>| {
            build.at(key, |build| decimal(text).ok_or_else(|| build.refuse(text, "a port, such as 6379")))
        };
        let address = one("address", &self.address, "", build)?;
        if address.is_empty() {
            let host = one("host", &self.host, "127.0.0.1", build)?;
            let written = one("port", &self.port, "6379", build)?;
            return Ok((bare(&host), port("port", &written, build)?));
        }
        let Some((host, written)) = address.rsplit_once(':').filter(|(host, _)| !host.is_empty()) else {
            return build
                .at("address", |build| Err(build.refuse(address.clone(), "HOST:PORT, such as 127.0.0.1:6379")));
        };
        Ok((bare(host), port("address", written, build)?))
    }

    fn tls(&self, build: &mut Build<'_>) -> Result<Option<RedisTlsSettings>, BuildError> {
        let (pem, path) =
            (build.expand_constants(&self.tls_server_certs_pem), build.expand_constants(&self.tls_server_certs_path));
        let roots = match (pem.is_empty(), path.is_empty()) {
            (true, true) => RedisRoots::System,
            (false, true) => RedisRoots::Pem(pem),
            (true, false) => RedisRoots::File(path.into()),
            (false, false) => {
                let expected = "either tls_server_certs_pem or tls_server_certs_path";
                return build.at("tls_server_certs_path", |build| Err(build.refuse(path, expected)));
            }
        };
        if !self.tls_enabled && (self.tls_insecure || roots != RedisRoots::System) {
            let expected = "true: other settings of TLS are set";
            return build.at("tls_enabled", |build| Err(build.refuse("false", expected)));
        }
        Ok(self.tls_enabled.then_some(RedisTlsSettings { insecure: self.tls_insecure, roots }))
    }
}

/// A host without the brackets of an IPv6 address.
fn bare(host: &str) -> String {
    host.trim_start_matches('[').trim_end_matches(']').to_owned()
}

#[cfg(test)]
mod tests {
    use causeway_pipeline::Registry;
    use serde_json::json;

    use super::*;

    fn check(written: &Value) -> Result<Storage, String> {
        let mut registry = Registry::default();
        registry.set_environment(|name| (name == "REDIS").then(|| "from-env".to_owned()));
        read(Some(written), &mut Build::new(&registry)).map_err(|error| error.to_string())
    }

    fn default_server() -> RedisServer {
        RedisServer {
            host: "127.0.0.1".into(),
            port: 6379,
            username: String::new(),
            password: Secret::default(),
            db: 0,
            timeout: None,
            key_prefix: "caddy".into(),
            encryption_key: Secret::default(),
            compression: RedisCompression::None,
            tls: None,
        }
    }

    // The plugin's README: defaults, the JSON form with all members, `address` before `host` and `port`, placeholders.
    #[test]
    fn redis() {
        let secret = |text: &str| Secret(text.to_owned());
        let tls = |insecure, roots| Some(RedisTlsSettings { insecure, roots });
        for (written, want) in [
            (json!({}), default_server()),
            (
                json!({
                    "address": ["127.0.0.1:6379"], "client_name": "", "client_type": "simple", "compression": false, "db": 0,
                    "encryption_key": "", "host": ["127.0.0.1"], "key_prefix": "caddy", "master_name": "", "password": "",
                    "port": ["6379"], "route_by_latency": false, "route_randomly": false, "timeout": "5",
                    "tls_enabled": false, "tls_insecure": false, "tls_server_certs_path": "", "tls_server_certs_pem": "",
                    "username": "",
                }),
                RedisServer { timeout: Some(Duration::from_secs(5)), ..default_server() },
            ),
            (
                json!({ "address": ["[::1]:7"], "host": ["x"], "db": "3", "key_prefix": "a/b", "compression": "zlib" }),
                RedisServer {
                    host: "::1".into(),
                    port: 7,
                    db: 3,
                    key_prefix: "a/b".into(),
                    compression: RedisCompression::Zlib,
                    ..default_server()
                },
            ),
            (
                json!({ "host": ["{env.REDIS}"], "username": "{env.REDIS}", "password": "{env.REDIS}", "compression": true }),
                RedisServer {
                    host: "from-env".into(),
                    username: "from-env".into(),
                    password: secret("from-env"),
                    compression: RedisCompression::Flate,
                    ..default_server()
                },
            ),
            (
                json!({ "tls_enabled": true, "tls_server_certs_path": "/ca.pem", "encryption_key": "k".repeat(33) }),
                RedisServer {
                    tls: tls(false, RedisRoots::File("/ca.pem".into())),
                    encryption_key: secret(&"k".repeat(33)),
                    ..default_server()
                },
            ),
            (
                json!({ "tls_enabled": true, "tls_insecure": true, "tls_server_certs_pem": "p" }),
                RedisServer { tls: tls(true, RedisRoots::Pem("p".into())), ..default_server() },
            ),
        ] {
            let mut written = written;
            written["module"] = "redis".into();
            assert_eq!(check(&written), Ok(Storage::Redis(Box::new(want))), "{written}");
        }
        assert!(!format!("{:?}", secret("hunter2")).contains("hunter2"));
    }

    #[test]
    fn redis_mistakes() {
        let unsupported =
            "expected nothing: clusters and Sentinel are not supported (docs/refused.md), only a single server";
        for (written, want) in [
            (json!({ "client_type": "cluster" }), &*format!("storage.client_type: found 'cluster', {unsupported}")),
            (json!({ "master_name": "m" }), &*format!("storage.master_name: found 'm', {unsupported}")),
            (
                json!({ "sentinel_password": "p" }),
                &*format!("storage.sentinel_password: found '(secret)', {unsupported}"),
            ),
            (json!({ "route_randomly": true }), &*format!("storage.route_randomly: found 'true', {unsupported}")),
            (
                json!({ "host": ["a", "b"] }),
                "storage.host: found '2 values', expected one: clusters are not supported (docs/refused.md)",
            ),
            (json!({ "port": ["x"] }), "storage.port: found 'x', expected a port, such as 6379"),
            // As in Go, the text of a number has no sign.
            (json!({ "port": ["+6379"] }), "storage.port: found '+6379', expected a port, such as 6379"),
            (json!({ "db": "+1" }), "storage.db: found '+1', expected the number of a database, such as 0"),
            (json!({ "address": ["a"] }), "storage.address: found 'a', expected HOST:PORT, such as 127.0.0.1:6379"),
            (json!({ "address": ["a:70000"] }), "storage.address: found '70000', expected a port, such as 6379"),
            (json!({ "db": "x" }), "storage.db: found 'x', expected the number of a database, such as 0"),
            (json!({ "timeout": "5s" }), "storage.timeout: found '5s', expected a number of seconds, such as 5"),
            (
                json!({ "key_prefix": "a//b" }),
                "storage.key_prefix: found 'a//b', expected names with single slashes between them, such as caddy",
            ),
            (
                json!({ "encryption_key": "short" }),
                "storage.encryption_key: found '5 bytes', expected at least 32 bytes",
            ),
            (json!({ "compression": "lz4" }), "storage.compression: found 'lz4', expected flate, zlib or false"),
            (
                json!({ "tls_insecure": true }),
                "storage.tls_enabled: found 'false', expected true: other settings of TLS are set",
            ),
            (
                json!({ "tls_enabled": true, "tls_server_certs_pem": "p", "tls_server_certs_path": "f" }),
                "storage.tls_server_certs_path: found 'f', expected either tls_server_certs_pem or tls_server_certs_path",
            ),
        ] {
            let mut written = written;
            written["module"] = "redis".into();
            assert_eq!(check(&written), Err(want.to_owned()), "{written}");
        }
    }
}
