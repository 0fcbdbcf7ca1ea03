//! The global option `servers [<listener address>] { … }`.

use serde_json::{Map, Value, json};

use super::super::dispenser::Dispenser;
use super::super::error::Error;
use super::super::position::Position;
use super::super::quantity::integer;
use super::ip_sources::ip_source;
use super::listeners;
use causeway_pipeline::build::nanoseconds;

/// Options for the servers that listen on an address, or for all servers without options of their own.
#[derive(Debug)]
pub(crate) struct ServerOptions {
    pub(crate) at: Position,
    /// Empty: matches every server.
    pub(crate) listener: String,
    /// The server's name, in place of `srvN`. Empty if not set.
    pub(crate) name: String,
    /// Members of the server's JSON.
    pub(crate) members: Map<String, Value>,
    /// Members of the server's `logs`.
    pub(crate) logs: Map<String, Value>,
    /// The deprecated form of the global option, nested here.
    pub(crate) metrics: Option<Map<String, Value>>,
}

const OPTIONS: &[&str] = &[
    "0rtt",
    "client_ip_headers",
    "enable_full_duplex",
    "expected_dot_headers",
    "expected_underscore_headers",
    "keepalive_count",
    "keepalive_idle",
    "keepalive_interval",
    "listener_wrappers",
    "log_credentials",
    "max_header_size",
    "metrics",
    "name",
    "packet_conn_wrappers",
    "protocols",
    "strict_sni_host",
    "timeouts",
    "trace",
    "trusted_proxies",
    "trusted_proxies_strict",
    "trusted_proxies_unix",
];

impl ServerOptions {
    pub(super) fn read(d: &mut Dispenser<'_>) -> Result<Self, Error> {
        let listener = d.argument().map(|token| token.text.to_string()).unwrap_or_default();
        // DEVIATES: Caddy accepts any word, but a word without a port never matches a listener.
        if !listener.is_empty() && !listener.contains([':', '/']) {
            return Err(d.word("'{}' is no listener address; expected one such as :443 or 127.0.0.1:8080"));
        }
        d.expect_no_argument()?;
        let at = d.last().at.clone();
        let (members, logs) = (Map::new(), Map::new());
        let mut options = Self { at, listener, name: String::new(), members, logs, metrics: None };
        for mut line in d.lines() {
            options.option(&mut line)?;
        }
        Ok(options)
    }

    fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.members.insert(key.to_owned(), value.into());
    }

    /// Sets a number. As in Caddy, 0 removes the member.
    fn number(&mut self, key: &str, number: i64) {
        if number == 0 {
            self.members.remove(key);
        } else {
            self.set(key, number);
        }
    }

    fn option(&mut self, d: &mut Dispenser<'_>) -> Result<(), Error> {
        let name = &*d.name().text;
        match name {
            "name" => {
                if self.listener.is_empty() {
                    return Err(d.rule("cannot set a name for a server without a listener address"));
                }
                self.name = d.require()?.text.to_string();
            }
            "timeouts" => {
                for mut line in d.lines() {
                    self.timeout(&mut line)?;
                }
            }
            "max_header_size" => {
                let size = d.size("parsing max_header_size: '{}' is no size; expected one such as 16KiB or 1MB")?;
                self.number("max_header_bytes", size);
            }
            "keepalive_interval" | "keepalive_idle" => {
                let rule = match name {
                    "keepalive_idle" => {
                        "parsing keepalive idle duration: invalid duration '{}'; expected one such as 30s"
                    }
                    _ => "parsing keepalive interval duration: invalid duration '{}'; expected one such as 30s",
                };
                let nanoseconds = duration(d, rule)?;
                self.number(name, nanoseconds);
            }
            "keepalive_count" => {
                let token = d.require()?;
                let count = token.text.parse::<i32>();
                let count = count.map_err(|_| d.word("parsing keepalive count int: '{}' is no 32-bit integer"))?;
                self.number(name, count.into());
            }
            "enable_full_duplex" | "trusted_proxies_unix" => {
                d.expect_no_argument()?;
                self.set(name, true);
            }
            "trusted_proxies_strict" => {
                d.expect_no_argument()?;
                self.set(name, 1);
            }
            "expected_underscore_headers" | "expected_dot_headers" => {
                d.require()?;
                self.set(name, super::super::directives::texts(d.arguments()));
            }
            "log_credentials" => {
                d.expect_no_argument()?;
                self.logs.insert("should_log_credentials".into(), true.into());
            }
            "trace" => {
                d.expect_no_argument()?;
                self.logs.insert("trace".into(), true.into());
            }
            "protocols" => {
                while let Some(protocol) = d.argument() {
                    if !matches!(&*protocol.text, "h1" | "h2" | "h2c" | "h3") {
                        return Err(d.word("unknown protocol '{}': expected h1, h2, h2c, or h3"));
                    }
                    self.push_once(name, d, "protocol {} specified more than once")?;
                }
                d.expect_empty_block("protocols takes no block")?;
            }
            "client_ip_headers" => {
                while d.argument().is_some() {
                    self.push_once(name, d, "client IP header {} specified more than once")?;
                }
                d.expect_empty_block("client_ip_headers takes no block")?;
            }
            "strict_sni_host" => match d.argument().map(|token| &*token.text) {
                None | Some("on") => self.set(name, true),
                Some("insecure_off") => self.set(name, false),
                Some(_) => return Err(d.word("strict_sni_host only supports 'on' or 'insecure_off', got '{}'")),
            },
            "0rtt" => {
                if &*d.require()?.text != "off" {
                    return Err(d.word("unsupported 0rtt argument '{}' (only 'off' is supported)"));
                }
                self.set("allow_0rtt", false);
            }
            "trusted_proxies" => {
                if d.argument().is_none() {
                    let rule = "trusted_proxies expects an IP range source module name as its first argument";
                    return Err(d.rule(rule));
                }
                let source = ip_source(d)?;
                self.set(name, source);
            }
            "metrics" => {
                let mut metrics = Map::new();
                for line in d.lines() {
                    if &*line.name().text != "per_host" {
                        return Err(line.unknown("unrecognized metrics option '{}'", &["per_host"]));
                    }
                    metrics.insert("per_host".into(), true.into());
                }
                let instead = "the option 'metrics' in 'servers' is deprecated and counts the requests of all servers; expected the global option 'metrics'";
                d.warn(d.name(), instead.to_owned());
                self.metrics = Some(metrics);
            }
            "listener_wrappers" => {
                let wrappers = listeners::wrappers(d)?;
                if !wrappers.is_empty()
                    && let Value::Array(list) = self.members.entry(name).or_insert_with(|| json!([]))
                {
                    list.extend(wrappers);
                }
            }
            "packet_conn_wrappers" => listeners::packet_wrappers(d)?,
            "protocol" => {
                let note = || "the block `protocol` was removed in Caddy 2.6, and needs no replacement".to_owned();
                return Err(d.unknown("unrecognized servers option '{}'", &[]).with_note(note));
            }
            _ => return Err(d.unknown("unrecognized servers option '{}'", OPTIONS)),
        }
        Ok(())
    }

    fn push_once(&mut self, key: &str, d: &Dispenser<'_>, rule: &'static str) -> Result<(), Error> {
        let word = Value::from(&*d.last().text);
        let list = self.members.entry(key).or_insert_with(|| json!([]));
        let Value::Array(list) = list else { return Ok(()) };
        if list.contains(&word) {
            return Err(d.word(rule));
        }
        list.push(word);
        Ok(())
    }

    fn timeout(&mut self, d: &mut Dispenser<'_>) -> Result<(), Error> {
        let (key, rate, rule) = match &*d.name().text {
            "read_body" => (
                "read_timeout",
                None,
                "parsing read_body timeout duration: invalid duration '{}'; expected one such as 30s",
            ),
            "read_header" => (
                "read_header_timeout",
                None,
                "parsing read_header timeout duration: invalid duration '{}'; expected one such as 30s",
            ),
            "write" => (
                "write_timeout",
                None,
                "parsing write timeout duration: invalid duration '{}'; expected one such as 30s",
            ),
            "idle" => {
                ("idle_timeout", None, "parsing idle timeout duration: invalid duration '{}'; expected one such as 30s")
            }
            "read_body_idle" => (
                "read_idle_timeout",
                Some(("read_min_rate", "parsing read_body_idle min_rate bytes/second: '{}' is no integer")),
                "parsing read_body_idle timeout duration: invalid duration '{}'; expected one such as 30s",
            ),
            "write_idle" => (
                "write_idle_timeout",
                Some(("write_min_rate", "parsing write_idle min_rate bytes/second: '{}' is no integer")),
                "parsing write_idle timeout duration: invalid duration '{}'; expected one such as 30s",
            ),
            "write_max_chunk" => {
                let size = d.size("parsing write_max_chunk: '{}' is no size; expected one such as 16KiB or 1MB")?;
                self.number("max_write_chunk", size);
                return Ok(());
            }
            _ => {
                let expected =
                    &["idle", "read_body", "read_body_idle", "read_header", "write", "write_idle", "write_max_chunk"];
                return Err(d.unknown("unrecognized timeouts option '{}'", expected));
            }
        };
        let nanoseconds = duration(d, rule)?;
        self.number(key, nanoseconds);
        if let Some((rate, rule)) = rate {
            if let Some(token) = d.argument() {
                let bytes = integer(&token.text).ok_or_else(|| d.word(rule))?;
                self.number(rate, bytes);
            }
            d.expect_no_argument()?;
        }
        Ok(())
    }
}

/// Takes the next argument, a duration, and returns its nanoseconds. `rule` is the error's sentence.
pub(super) fn duration(d: &mut Dispenser<'_>, rule: &'static str) -> Result<i64, Error> {
    let token = d.require()?;
    nanoseconds(&token.text).ok_or_else(|| d.word(rule))
}
