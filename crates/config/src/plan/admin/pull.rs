//! `admin.config.load`: the server that a configuration is pulled from.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use causeway_pipeline::build::{DurationConfig, Problem};
use causeway_pipeline::{Build, BuildError};
use serde::Deserialize;
use serde_json::Value;

use super::super::certificates::CertificateFiles;
use super::super::storage::Secret;
use crate::names;

/// Headers that belong to the connection or to the body, which is empty.
const HEADERS_OF_FRAMING: [&str; 4] = ["connection", "content-length", "transfer-encoding", "upgrade"];

/// How a running configuration is replaced by one that another server has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigPull {
    /// The pause before each request; `None`: one request, while the configuration is loaded.
    pub delay: Option<Duration>,
    /// The request.
    pub loader: HttpLoader,
}

/// Caddy's module `caddy.config_loaders.http`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpLoader {
    /// The method, a token.
    pub method: String,
    /// The URL, with the scheme `http` or `https`.
    pub url: String,
    /// The headers. Their values may be secrets.
    pub headers: Vec<(String, Secret)>,
    /// The time limit of each request; `None`: the default.
    pub limit: Option<Duration>,
    /// The name of the configuration adapter. Empty: the response's Content-Type selects it.
    pub adapter: String,
    /// The client's certificate.
    pub credentials: LoaderCredentials,
    /// PEM files with the roots to trust. Empty: the system's roots.
    pub roots: Vec<PathBuf>,
}

/// The certificate that a loader presents to its server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoaderCredentials {
    /// None.
    Anonymous,
    /// The certificate of the server's identity.
    Identity,
    /// The certificate in these files.
    Files(CertificateFiles),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HttpLoaderConfig {
    #[serde(rename = "module")]
    _module: String,
    #[serde(default)]
    method: String,
    #[serde(default)]
    url: String,
    #[serde(default)]
    header: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    timeout: Option<DurationConfig>,
    #[serde(default)]
    adapter: String,
    #[serde(default)]
    tls: Option<LoaderTlsConfig>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct LoaderTlsConfig {
    #[serde(default)]
    use_server_identity: bool,
    #[serde(default)]
    client_certificate_file: String,
    #[serde(default)]
    client_certificate_key_file: String,
    #[serde(default)]
    root_ca_pem_files: Vec<String>,
}

/// Reads `load` and `load_delay`. A delay without a loader has no effect, as in Caddy.
pub(super) fn read(
    load: Option<&Value>,
    delay: Option<&DurationConfig>,
    has_identity: bool,
    build: &mut Build<'_>,
) -> Result<Option<ConfigPull>, BuildError> {
    let delay = build.optional_duration("load_delay", delay)?;
    let Some(load) = load else { return Ok(None) };
    let loader = build.at("load", |build| match load.get("module").and_then(Value::as_str) {
        Some("http") => {
            let written: HttpLoaderConfig = build.parse(load)?;
            written.read(has_identity, build)
        }
        Some(name) => Err(build.error(Problem::UnknownModule { kind: "config_loaders", name: name.to_owned() })),
        None => Err(build.refuse(load.to_string(), "an object with a 'module' key, as {\"module\": \"http\"}")),
    })?;
    Ok(Some(ConfigPull { delay: delay.filter(|delay| !delay.is_zero()), loader }))
}

impl HttpLoaderConfig {
    fn read(&self, has_identity: bool, build: &mut Build<'_>) -> Result<HttpLoader, BuildError> {
        let method = match build.expand_constants(&self.method) {
            method if method.is_empty() => "GET".to_owned(),
            method if is_token(&method) => method,
            method => return build.at("method", |build| Err(build.refuse(method, "a method such as GET"))),
        };
        let url = build.expand_constants(&self.url);
        if names::strip_http_scheme(&url).is_none() {
            return build.at("url", |build| Err(build.refuse(url, names::HTTP_URL)));
        }
        let limit = build.optional_duration("timeout", self.timeout.as_ref())?;
        let none = LoaderTlsConfig::default();
        let tls = self.tls.as_ref().unwrap_or(&none);
        Ok(HttpLoader {
            method,
            url,
            headers: build.at("header", |build| self.headers(build))?,
            limit: limit.filter(|limit| !limit.is_zero()),
            adapter: build.expand_constants(&self.adapter),
            credentials: build.at("tls", |build| tls.credentials(has_identity, build))?,
            roots: tls.root_ca_pem_files.iter().map(|path| build.expand_constants(path).into()).collect(),
        })
    }

    fn headers(&self, build: &mut Build<'_>) -> Result<Vec<(String, Secret)>, BuildError> {
        let mut headers = Vec::new();
        for (written, values) in &self.header {
            let name = build.expand_constants(written);
            if !is_token(&name) || HEADERS_OF_FRAMING.iter().any(|framing| name.eq_ignore_ascii_case(framing)) {
                return Err(build.refuse(name, "the name of a header that does not frame the request"));
            }
            for (index, value) in values.iter().enumerate() {
                let value = build.expand_constants(value);
                if value.chars().any(|ch| ch.is_control() && ch != '\t') {
                    // Not the value, which may be a secret.
                    let found = "a control character";
                    return build
                        .at(format!("{name}[{index}]"), |build| Err(build.refuse(found, "a text on one line")));
                }
                headers.push((name.clone(), Secret(value)));
            }
        }
        Ok(headers)
    }
}

impl LoaderTlsConfig {
    fn credentials(&self, has_identity: bool, build: &mut Build<'_>) -> Result<LoaderCredentials, BuildError> {
        match (self.use_server_identity, has_identity) {
            (true, true) => return Ok(LoaderCredentials::Identity),
            (true, false) => {
                let expected = super::IDENTITY_NEEDED;
                return build.at("use_server_identity", |build| Err(build.refuse("no identity", expected)));
            }
            (false, _) => {}
        }
        let certificate = build.expand_constants(&self.client_certificate_file);
        let key = build.expand_constants(&self.client_certificate_key_file);
        match (certificate.is_empty(), key.is_empty()) {
            (true, true) => Ok(LoaderCredentials::Anonymous),
            (false, false) => Ok(LoaderCredentials::Files(CertificateFiles {
                certificate: certificate.into(),
                key: Some(key.into()),
            })),
            // Caddy then presents no certificate, which the other server reports at best.
            (false, true) => build.at("client_certificate_key_file", |build| Err(build.refuse("", "the key's file"))),
            (true, false) => {
                build.at("client_certificate_file", |build| Err(build.refuse("", "the certificate's file")))
            }
        }
    }
}

/// RFC 9110 §5.6.2: the characters of methods and of header names.
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use causeway_pipeline::Registry;
    use serde_json::json;

    use super::super::super::load;
    use super::*;

    fn read(config: &Value) -> Result<Option<ConfigPull>, String> {
        let loaded = load(&json!({ "admin": { "config": config } }), &Registry::default());
        loaded.map(|loaded| loaded.admin.pull).map_err(|error| error.to_string())
    }

    // Caddy's documentation of `admin.config.load` and of its module `http`: GET by default, no delay, the system's
    // roots.
    #[test]
    fn loaders() {
        let default_loader = HttpLoader {
            method: "GET".into(),
            url: "https://a.example/x".into(),
            headers: Vec::new(),
            limit: None,
            adapter: String::new(),
            credentials: LoaderCredentials::Anonymous,
            roots: Vec::new(),
        };
        let url = "https://a.example/x";
        let at_once = |loader| Some(ConfigPull { delay: None, loader });
        for (config, want) in [
            (json!({}), None),
            (json!({ "load_delay": "1s" }), None),
            (json!({ "load": null }), None),
            (json!({ "load": { "module": "http", "url": url } }), at_once(default_loader.clone())),
            (json!({ "load": { "module": "http", "url": url }, "load_delay": 0 }), at_once(default_loader.clone())),
            (
                json!({ "load": { "module": "http", "url": url, "timeout": 0 }, "load_delay": "2m" }),
                Some(ConfigPull { delay: Some(Duration::from_secs(120)), loader: default_loader.clone() }),
            ),
            (
                json!({ "load": {
                    "module": "http", "url": url, "method": "POST", "timeout": "5s", "adapter": "caddyfile",
                    "header": { "X-Key": ["a", "b"] },
                    "tls": {
                        "client_certificate_file": "c.pem", "client_certificate_key_file": "k.pem",
                        "root_ca_pem_files": ["r.pem", "s.pem"],
                    },
                } }),
                at_once(HttpLoader {
                    method: "POST".into(),
                    headers: ["a", "b"].map(|value| ("X-Key".to_owned(), Secret(value.into()))).to_vec(),
                    limit: Some(Duration::from_secs(5)),
                    adapter: "caddyfile".into(),
                    credentials: LoaderCredentials::Files(CertificateFiles {
                        certificate: "c.pem".into(),
                        key: Some("k.pem".into()),
                    }),
                    roots: vec!["r.pem".into(), "s.pem".into()],
                    ..default_loader.clone()
                }),
            ),
        ] {
            assert_eq!(read(&config), Ok(want), "{config}");
        }
    }

    #[test]
    fn mistakes() {
        let with = |key: &str, value: Value| {
            let mut config = json!({ "load": { "module": "http", "url": "http://a.example" } });
            config["load"][key] = value;
            config
        };
        for (config, want) in [
            (
                json!({ "load": {} }),
                "load: found '{}', expected an object with a 'module' key, as {\"module\": \"http\"}",
            ),
            (
                json!({ "load": { "header": { "Authorization": ["secret"] } } }),
                "load: found '{…}', expected an object with a 'module' key, as {\"module\": \"http\"}",
            ),
            (
                json!({ "load": 1 }),
                "load: found '1', expected an object with a 'module' key, as {\"module\": \"http\"}",
            ),
            (
                json!({ "load": { "module": "s3" } }),
                "load: config_loaders module 's3' is not supported (docs/refused.md)",
            ),
            (
                json!({ "load": { "module": "http" } }),
                "load.url: found '', expected a URL that begins with http:// or https://",
            ),
            (
                with("url", json!("ftp://user:secret@a.example")),
                "load.url: found 'ftp://…@a.example', expected a URL that begins with http:// or https://",
            ),
            (with("method", json!("A B")), "load.method: found 'A B', expected a method such as GET"),
            (
                with("timeout", json!("soon")),
                "load.timeout: found 'soon', expected a duration such as 90s, 1m30s or 250ms",
            ),
            (
                with("header", json!({ "Content-Length": ["1"] })),
                "load.header: found 'Content-Length', expected the name of a header that does not frame the request",
            ),
            (
                with("header", json!({ "A": ["secret\n"] })),
                "load.header.A[0]: found 'a control character', expected a text on one line",
            ),
            (
                with("tls", json!({ "client_certificate_file": "c" })),
                "load.tls.client_certificate_key_file: found '', expected the key's file",
            ),
            (
                with("tls", json!({ "client_certificate_key_file": "k" })),
                "load.tls.client_certificate_file: found '', expected the certificate's file",
            ),
            (
                with("tls", json!({ "use_server_identity": true })),
                "load.tls.use_server_identity: found 'no identity', expected an `admin.identity` with one of `identifiers` at least",
            ),
            (
                json!({ "load_delay": "-1s" }),
                "load_delay: found '-1s', expected a duration such as 90s, 1m30s or 250ms",
            ),
        ] {
            assert_eq!(read(&config), Err(format!("admin.config.{want}")), "{config}");
        }
    }
}
