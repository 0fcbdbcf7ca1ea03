//! The protocol to the upstreams: `transport http|fastcgi|httpgrpc`.
//!
//! - `tls`: TLS to the upstreams

mod tls;

use serde_json::{Map, Value, json};

use super::super::directives::{message_option, texts};
use super::super::dispenser::Dispenser;
use super::super::error::Error;
use super::super::members::Members;
use super::UNKNOWN;
use super::dynamic::resolvers;
use super::setting::{ArgumentType, Setting, set, text};
use causeway_pipeline::build::nanoseconds;

/// A transport while its options are being parsed.
pub(super) struct Transport {
    pub(super) protocol: &'static str,
    pub(super) json: Map<String, Value>,
}

const PROTOCOLS: &[&str] = &["fastcgi", "http", "httpgrpc"];

impl Transport {
    /// HTTP without options.
    pub(super) fn http() -> Self {
        Self { protocol: "http", json: Map::new() }
    }

    /// Parses the options of a transport. Its name is the word handed out last.
    pub(super) fn read(d: &mut Dispenser<'_>) -> Result<Self, Error> {
        let name = &*d.last().text;
        let Some(&protocol) = PROTOCOLS.iter().find(|protocol| **protocol == name) else {
            let rule = "getting module named 'http.reverse_proxy.transport.{}': module not registered";
            return Err(d.unknown_module(rule, PROTOCOLS));
        };
        let mut json = Map::new();
        d.expect_no_argument()?;
        for mut line in d.lines() {
            match protocol {
                "http" => http(&mut line, &mut json)?,
                "fastcgi" => fastcgi(&mut line, &mut json)?,
                _ => httpgrpc(&mut line, &mut json)?,
            }
        }
        Ok(Self { protocol, json })
    }

    /// Whether it supports TLS.
    pub(super) fn knows_tls(&self) -> bool {
        self.protocol != "fastcgi"
    }

    /// Its JSON. `None` for HTTP without options, which is the default.
    pub(super) fn json(mut self) -> Option<Value> {
        if self.protocol == "http" && self.json.is_empty() {
            return None;
        }
        self.json.insert("protocol".into(), self.protocol.into());
        Some(self.json.into())
    }
}

const fn duration(option: &'static str, member: &'static str) -> Setting {
    let rule = "bad timeout value '{}'; expected one such as 30s";
    Setting { option, member, kind: ArgumentType::Duration, rule }
}

const fn number(option: &'static str, member: &'static str) -> Setting {
    Setting { option, member, kind: ArgumentType::Integer, rule: "bad integer value '{}'; expected one such as 100" }
}

const MAX_RESPONSE_HEADER: Setting = Setting {
    option: "max_response_header",
    member: "max_response_header_size",
    kind: ArgumentType::Size,
    rule: "invalid max response header size '{}'; expected one such as 64KiB",
};

const HTTP: &[Setting] = &[
    Setting {
        option: "read_buffer",
        member: "read_buffer_size",
        kind: ArgumentType::Size,
        rule: "invalid read buffer size '{}'; expected one such as 16KiB",
    },
    Setting {
        option: "write_buffer",
        member: "write_buffer_size",
        kind: ArgumentType::Size,
        rule: "invalid write buffer size '{}'; expected one such as 16KiB",
    },
    Setting {
        option: "read_timeout",
        member: "read_timeout",
        kind: ArgumentType::Duration,
        rule: "invalid read timeout duration '{}'; expected one such as 30s",
    },
    Setting {
        option: "write_timeout",
        member: "write_timeout",
        kind: ArgumentType::Duration,
        rule: "invalid write timeout duration '{}'; expected one such as 30s",
    },
    MAX_RESPONSE_HEADER,
    Setting {
        option: "dial_fallback_delay",
        member: "dial_fallback_delay",
        kind: ArgumentType::Duration,
        rule: "bad fallback delay value '{}'; expected one such as 300ms",
    },
    duration("dial_timeout", "dial_timeout"),
    duration("response_header_timeout", "response_header_timeout"),
    duration("expect_continue_timeout", "expect_continue_timeout"),
    number("max_conns_per_host", "max_conns_per_host"),
    duration("queue_timeout", "queue_timeout"),
    text("local_address", "local_address"),
];

const KEEPALIVE: &[Setting] = &[
    Setting {
        option: "keepalive_interval",
        member: "probe_interval",
        kind: ArgumentType::Duration,
        rule: "bad interval value '{}'; expected one such as 30s",
    },
    duration("keepalive_ping_interval", "ping_interval"),
    duration("keepalive_ping_timeout", "ping_timeout"),
    number("keepalive_idle_conns", "max_idle_conns"),
    number("keepalive_idle_conns_per_host", "max_idle_conns_per_host"),
];

pub(in super::super) const HTTP_OPTIONS: &[&str] = &[
    "compression",
    "dial_fallback_delay",
    "dial_timeout",
    "expect_continue_timeout",
    "forward_proxy_url",
    "keepalive",
    "keepalive_idle_conns",
    "keepalive_idle_conns_per_host",
    "keepalive_interval",
    "keepalive_ping_interval",
    "keepalive_ping_timeout",
    "local_address",
    "max_conns_per_host",
    "max_response_header",
    "network_proxy",
    "proxy_protocol",
    "queue_timeout",
    "read_buffer",
    "read_timeout",
    "resolvers",
    "response_header_timeout",
    "tls",
    "tls_client_auth",
    "tls_curves",
    "tls_except_ports",
    "tls_insecure_skip_verify",
    "tls_renegotiation",
    "tls_server_name",
    "tls_timeout",
    "tls_trust_pool",
    "tls_trusted_ca_certs",
    "versions",
    "write_buffer",
    "write_timeout",
];

fn http(line: &mut Dispenser<'_>, json: &mut Map<String, Value>) -> Result<(), Error> {
    match &*line.name().text {
        "proxy_protocol" => match &*line.require()?.text {
            version @ ("v1" | "v2") => json.text("proxy_protocol", version),
            _ => return Err(line.word("invalid proxy protocol version '{}'; expected v1 or v2")),
        },
        "forward_proxy_url" => {
            let url = &*line.require()?.text;
            json.insert("network_proxy".into(), json!({ "from": "url", "url": url }));
            let message = "'forward_proxy_url' is deprecated, please use 'network_proxy url' instead";
            line.warn(line.name(), message.to_owned());
        }
        "network_proxy" => {
            let proxy = network_proxy(line)?;
            json.insert("network_proxy".into(), proxy);
        }
        "resolvers" => resolvers(line, json)?,
        "keepalive" => {
            let token = line.require()?;
            let keepalive = json.child("keep_alive");
            if &*token.text == "off" {
                keepalive.insert("enabled".into(), false.into());
            } else {
                let rule = "bad duration value '{}'; expected one such as 2m, or off";
                keepalive.number("idle_timeout", nanoseconds(&token.text).ok_or_else(|| line.word(rule))?);
            }
        }
        "versions" => {
            let versions = line.rest();
            if versions.is_empty() {
                return Err(line.count_error());
            }
            json.insert("versions".into(), texts(versions).into());
        }
        "compression" => match line.argument() {
            Some(word) if &*word.text == "off" => drop(json.insert("compression".into(), false.into())),
            // DEVIATES: Caddy ignores any other word.
            Some(_) => return Err(line.word("unsupported compression '{}'; expected off")),
            None => {}
        },
        _ if tls::option(line, json)? || set(line, json, HTTP)? => {}
        name if KEEPALIVE.iter().any(|setting| setting.option == name) => {
            set(line, json.child("keep_alive"), KEEPALIVE)?;
        }
        _ => return Err(line.unknown(UNKNOWN, HTTP_OPTIONS)),
    }
    Ok(())
}

/// Parses `network_proxy none|url <url>`.
fn network_proxy(line: &mut Dispenser<'_>) -> Result<Value, Error> {
    match &*line.require()?.text {
        "none" => {
            line.expect_no_argument()?;
            Ok(json!({ "from": "none" }))
        }
        "url" => {
            let url = &*line.require()?.text;
            line.expect_no_argument()?;
            Ok(json!({ "from": "url", "url": url }))
        }
        _ => {
            let rule = "getting module named 'caddy.network_proxy.{}': module not registered";
            Err(line.unknown_module(rule, &["none", "url"]))
        }
    }
}

const FASTCGI: &[Setting] = &[
    text("root", "root"),
    duration("dial_timeout", "dial_timeout"),
    duration("read_timeout", "read_timeout"),
    duration("write_timeout", "write_timeout"),
    // Not one of Caddy's.
    MAX_RESPONSE_HEADER,
];

/// The options that `transport fastcgi` and `php_fastcgi` share.
const FASTCGI_OPTIONS: &[&str] = &[
    "capture_stderr",
    "dial_timeout",
    "env",
    "max_response_header",
    "read_timeout",
    "resolve_root_symlink",
    "root",
    "split",
    "write_timeout",
];

pub(super) fn fastcgi(line: &mut Dispenser<'_>, json: &mut Map<String, Value>) -> Result<(), Error> {
    match &*line.name().text {
        "split" => {
            let parts = line.rest();
            if parts.is_empty() {
                return Err(line.count_error());
            }
            json.insert("split_path".into(), texts(parts).into());
        }
        "env" => {
            let [name, value] = line.rest() else { return Err(line.count_error()) };
            json.child("env").insert(name.text.to_string(), (*value.text).into());
        }
        switch @ ("resolve_root_symlink" | "capture_stderr") => {
            line.expect_no_argument()?;
            json.switch_on(switch);
        }
        _ if set(line, json, FASTCGI)? => {}
        _ => return Err(line.unknown(UNKNOWN, FASTCGI_OPTIONS)),
    }
    Ok(())
}

const PINGS: &[Setting] =
    &[duration("keepalive_ping_interval", "ping_interval"), duration("keepalive_ping_timeout", "ping_timeout")];

const HTTPGRPC: &[Setting] = &[duration("timeout", "timeout"), duration("dial_timeout", "dial_timeout")];

const HTTPGRPC_OPTIONS: &[&str] = &[
    "dial_timeout",
    "forward_host",
    "keepalive_ping_interval",
    "keepalive_ping_timeout",
    "max_message_size",
    "stream",
    "timeout",
    "tls",
    "tls_client_auth",
    "tls_curves",
    "tls_except_ports",
    "tls_insecure_skip_verify",
    "tls_renegotiation",
    "tls_server_name",
    "tls_timeout",
    "tls_trust_pool",
    "tls_trusted_ca_certs",
];

/// Parses an option of the httpgrpc transport. It is not one of Caddy's, so unread words on the line are an error.
fn httpgrpc(line: &mut Dispenser<'_>, json: &mut Map<String, Value>) -> Result<(), Error> {
    match &*line.name().text {
        "forward_host" => json.switch_on("forward_host"),
        name if PINGS.iter().any(|setting| setting.option == name) => {
            set(line, json.child("keep_alive"), PINGS)?;
        }
        _ if tls::option(line, json)? || message_option(line, json)? || set(line, json, HTTPGRPC)? => {}
        _ => return Err(line.unknown(UNKNOWN, HTTPGRPC_OPTIONS)),
    }
    line.expect_no_argument()
}
