//! `listener_wrappers`: the layers before HTTP on a server's connections.

use std::sync::Arc;
use std::time::Duration;

use causeway_pipeline::build::DurationConfig;
use causeway_pipeline::{Build, BuildError, ProxyPolicy, ProxyProtocol};
use serde::Deserialize;
use serde_json::Value;

/// How long a header may take to arrive; Caddy's documentation.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The longest head of a request that is redirected; Caddy's.
const REDIRECT_BYTES_MAX: usize = 1024 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProxyProtocolConfig {
    #[serde(rename = "wrapper")]
    _wrapper: String,
    timeout: Option<DurationConfig>,
    #[serde(default)]
    allow: Vec<String>,
    #[serde(default)]
    deny: Vec<String>,
    #[serde(default)]
    fallback_policy: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsWrapperConfig {
    #[serde(rename = "wrapper")]
    _wrapper: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RedirectConfig {
    #[serde(rename = "wrapper")]
    _wrapper: String,
    #[serde(default)]
    max_header_bytes: usize,
}

/// The wrappers of a server.
#[derive(Default)]
pub(super) struct Wrappers {
    pub(super) proxy_protocol: Option<Arc<ProxyProtocol>>,
    pub(super) redirect_bytes_max: Option<usize>,
    has_tls: bool,
}

impl Wrappers {
    /// Compiles the list.
    pub(super) fn read(written: &[Value], build: &mut Build<'_>) -> Result<Self, BuildError> {
        let mut wrappers = Self::default();
        for (index, value) in written.iter().enumerate() {
            build.at(format!("listener_wrappers[{index}]"), |build| wrappers.add(index, value, build))?;
        }
        Ok(wrappers)
    }

    fn add(&mut self, index: usize, value: &Value, build: &mut Build<'_>) -> Result<(), BuildError> {
        let name = value["wrapper"].as_str().unwrap_or_default();
        let refuse = |expected: &'static str, build: &mut Build<'_>| {
            build.at("wrapper", |build| Err(build.refuse(name, expected)))
        };
        match name {
            // Caddy: without it, TLS comes first anyway.
            "tls" if index == 0 => refuse("another wrapper before it: TLS is first by default", build),
            "tls" if self.has_tls => refuse("one such wrapper", build),
            "tls" => {
                let TlsWrapperConfig { .. } = build.parse(value)?;
                self.has_tls = true;
                Ok(())
            }
            "proxy_protocol" | "http_redirect" if self.has_tls => refuse("it before `tls`", build),
            "proxy_protocol" if self.proxy_protocol.is_some() => refuse("one such wrapper", build),
            // The first bytes that it looks at are those of the header.
            "proxy_protocol" if self.redirect_bytes_max.is_some() => refuse("it before `http_redirect`", build),
            "proxy_protocol" => {
                self.proxy_protocol = Some(Arc::new(proxy_protocol(build.parse(value)?, build)?));
                Ok(())
            }
            "http_redirect" => {
                let written: RedirectConfig = build.parse(value)?;
                let max = if written.max_header_bytes == 0 { REDIRECT_BYTES_MAX } else { written.max_header_bytes };
                self.redirect_bytes_max = Some(max);
                Ok(())
            }
            _ => refuse("http_redirect, proxy_protocol or tls", build),
        }
    }

    /// Checks the wrappers of a server with TLS.
    // DEVIATES Caddy: it then looks for both within TLS, where neither can be.
    pub(super) fn check_with_tls(&self, build: &mut Build<'_>) -> Result<(), BuildError> {
        if self.has_tls || (self.proxy_protocol.is_none() && self.redirect_bytes_max.is_none()) {
            return Ok(());
        }
        build.at("listener_wrappers", |build| Err(build.refuse("no `tls`", "`tls` at the end: the server uses TLS")))
    }
}

fn proxy_protocol(written: ProxyProtocolConfig, build: &mut Build<'_>) -> Result<ProxyProtocol, BuildError> {
    let timeout = match &written.timeout {
        Some(timeout) => build.at("timeout", |build| timeout.read(build))?,
        None => None,
    };
    let mut ranges = |key: &str, texts: &[String]| {
        let mut ranges = Vec::with_capacity(texts.len());
        for (index, text) in texts.iter().enumerate() {
            match text.parse() {
                Ok(range) => ranges.push(range),
                Err(_) => {
                    return build.at(format!("{key}[{index}]"), |build| {
                        Err(build.refuse(&**text, "a network such as 10.0.0.0/8"))
                    });
                }
            }
        }
        Ok(ranges)
    };
    let (allow, deny) = (ranges("allow", &written.allow)?, ranges("deny", &written.deny)?);
    let fallback = match &*written.fallback_policy.to_ascii_uppercase() {
        "" | "IGNORE" => ProxyPolicy::Ignore,
        "USE" => ProxyPolicy::Use,
        "REJECT" => ProxyPolicy::Reject,
        "REQUIRE" => ProxyPolicy::Require,
        "SKIP" => ProxyPolicy::Skip,
        _ => {
            let expected = "IGNORE, USE, REJECT, REQUIRE or SKIP";
            return build.at("fallback_policy", |build| Err(build.refuse(written.fallback_policy, expected)));
        }
    };
    Ok(ProxyProtocol { timeout: timeout.unwrap_or(TIMEOUT), allow, deny, fallback })
}
