//! `reverse_proxy` and related directives.
//!
//! - `setting`: tables of options with one argument
//! - `address`, `url`: upstream addresses
//! - `dynamic`: sources of upstreams that change at run time
//! - `balance`, `health`, `breaker`: selection of an upstream, health checks, and circuit breakers
//! - `transport`: the protocol to the upstreams
//! - `answer`: handling of upstream responses; `intercept`, `copy_response`, `copy_response_headers`
//! - `shortcut`: `forward_auth` and `php_fastcgi`, which expand to a `reverse_proxy`

pub(super) mod address;
mod answer;
mod balance;
mod breaker;
mod dynamic;
mod health;
mod setting;
mod shortcut;
mod transport;
mod url;

use serde_json::{Map, Value, json};

use super::directives::{FieldOperations, apply};
use super::dispenser::Dispenser;
use super::error::{Error, ErrorKind};
use super::hint;
use super::matcher::PRIVATE_RANGES;
use super::members::Members;
use super::quantity::{bytes, integer};
use super::token::Token;
use address::UpstreamAddress;
use answer::Answers;
use causeway_pipeline::build::nanoseconds;
use transport::Transport;

pub(crate) use answer::{copy_response, copy_response_headers, intercept};
pub(crate) use balance::POLICIES;
pub(crate) use shortcut::{forward_auth, php_fastcgi};
pub(super) use transport::HTTP_OPTIONS as TRANSPORT_OPTIONS;

const UNKNOWN: &str = "unrecognized subdirective {}";

/// Parses `reverse_proxy [<matcher>] [<upstreams…>] { … }`.
pub(crate) fn reverse_proxy(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    Proxy::default().read(d)
}

/// A proxy whose options are being parsed.
#[derive(Default)]
struct Proxy {
    json: Map<String, Value>,
    /// The scheme that all upstreams must share. Empty until an upstream has one.
    scheme: String,
    /// The first upstream with a scheme that only the httpgrpc transport supports.
    for_httpgrpc: Option<Token>,
    up: FieldOperations,
    down: FieldOperations,
    /// A `header_up` that sets Host to the upstream's address.
    upstream_host: Option<Token>,
    /// A transport set by a shortcut. `Some` forbids the option `transport`.
    fixed_transport: Option<Value>,
    transport: Option<Transport>,
    answers: Answers,
}

/// Go's networks and Caddy's own, by which the address of an upstream may begin.
const NETWORKS: &[&str] = &[
    "tcp",
    "tcp4",
    "tcp6",
    "udp",
    "udp4",
    "udp6",
    "ip",
    "ip4",
    "ip6",
    "unix",
    "unix+h2c",
    "unixgram",
    "unixpacket",
    "fd",
    "fdgram",
];

/// The subdirectives of `reverse_proxy`.
pub(super) const OPTIONS: &[&str] = &[
    "circuit_breaker",
    "dynamic",
    "fail_duration",
    "flush_interval",
    "handle_response",
    "header_down",
    "header_up",
    "health_body",
    "health_fails",
    "health_follow_redirects",
    "health_headers",
    "health_interval",
    "health_method",
    "health_passes",
    "health_port",
    "health_request_body",
    "health_status",
    "health_timeout",
    "health_upstream",
    "health_uri",
    "lb_policy",
    "lb_retries",
    "lb_retry_match",
    "lb_slow_start",
    "lb_try_duration",
    "lb_try_interval",
    "max_fails",
    "method",
    "proxy_status_name",
    "replace_status",
    "request_buffers",
    "response_buffers",
    "rewrite",
    "stream_buffer_size",
    "stream_close_delay",
    "stream_timeout",
    "to",
    "transport",
    "trusted_proxies",
    "unhealthy_latency",
    "unhealthy_request_count",
    "unhealthy_status",
    "verbose_logs",
];

impl Proxy {
    fn read(mut self, d: &mut Dispenser<'_>) -> Result<Value, Error> {
        self.upstreams(d)?;
        for mut line in d.lines() {
            self.option(&mut line)?;
        }
        // Only after all options: `handle_response` can use a matcher that is defined below it.
        self.answers.routes(d)?;
        self.choose_transport(d)?;
        self.names(d)?;
        if !self.json.contains_key("upstreams") && !self.json.contains_key("dynamic_upstreams") {
            let name = &d.name().text;
            let sentence = format!("found no upstream, expected one at least, as in {name} localhost:9000");
            return Err(Error::at(d.name(), ErrorKind::Custom(sentence.into())));
        }
        Ok(self.finish())
    }

    /// Parses the remaining words of the line as upstreams.
    fn upstreams(&mut self, d: &mut Dispenser<'_>) -> Result<(), Error> {
        while let Some(token) = d.argument() {
            self.upstream(d, token)?;
        }
        Ok(())
    }

    fn upstream(&mut self, d: &Dispenser<'_>, token: &Token) -> Result<(), Error> {
        let fail = |why: String| {
            let sentence = format!("parsing upstream '{}': {why}", token.text);
            Error::at(token, ErrorKind::Custom(sentence.into()))
        };
        let UpstreamAddress { network, mut scheme, host, port } = UpstreamAddress::parse(&token.text).map_err(fail)?;
        // Without a scheme the host before a path is taken for a network.
        if !network.is_empty() && !NETWORKS.contains(&&*network) && !network.contains('{') {
            return Err(Error::at(
                token,
                ErrorKind::Custom(format!("found '{}', expected HOST:PORT without a path", token.text).into()),
            ));
        }
        if matches!(&*scheme, "direct" | "dns") {
            self.for_httpgrpc.get_or_insert_with(|| token.clone());
            if scheme == "dns" {
                let source = json!({ "source": "a", "name": host, "port": port });
                self.json.extend_list("dns", vec![source]);
                return Ok(());
            }
            scheme.clear();
        }
        match &*scheme {
            "" | "http" | "https" | "h2c" => {}
            "wss" => return Err(fail("the scheme wss:// is only supported in browsers; use https:// instead".into())),
            "ws" => return Err(fail("the scheme ws:// is only supported in browsers; use http:// instead".into())),
            other => return Err(fail(format!("unsupported URL scheme {other}://"))),
        }
        if !self.scheme.is_empty() && scheme != self.scheme {
            return Err(fail(format!(
                "for now, all proxy upstreams must use the same scheme (transport protocol); expecting '{}://' but got \
                 '{scheme}://'",
                self.scheme
            )));
        }
        if matches!(&*scheme, "https" | "h2c") && self.scheme.is_empty() && self.json.contains_key("upstreams") {
            d.warn(token, "its scheme also applies to the upstreams without a scheme".to_owned());
        }
        self.scheme.clone_from(&scheme);
        let upstream = UpstreamAddress { network, scheme, host, port };
        let dials = upstream.dials().map_err(fail)?;
        self.json.extend_list("upstreams", dials.into_iter().map(upstream_json).collect());
        Ok(())
    }

    fn option(&mut self, line: &mut Dispenser<'_>) -> Result<(), Error> {
        let name = line.name();
        match &*name.text {
            _ if self.answers.option(line)? => {}
            _ if balance::option(line, &mut self.json)? => {}
            _ if health::option(line, &mut self.json)? => {}
            "to" => {
                if line.remaining().is_empty() {
                    return Err(line.count_error());
                }
                self.upstreams(line)?;
            }
            "circuit_breaker" => {
                if self.json.contains_key("circuit_breaker") {
                    return Err(line.rule("circuit_breaker already specified"));
                }
                let breaker = breaker::circuit_breaker(line)?;
                self.json.insert("circuit_breaker".into(), breaker);
            }
            "dynamic" => {
                line.require()?;
                if self.json.contains_key("dynamic_upstreams") {
                    return Err(line.rule("dynamic upstreams already specified"));
                }
                let source = dynamic::source(line)?;
                self.json.insert("dynamic_upstreams".into(), source);
            }
            key @ ("flush_interval" | "stream_timeout" | "stream_close_delay") => {
                let token = line.require()?;
                let rule = "bad duration value '{}'; expected one such as 30s, or nanoseconds";
                let duration = integer(&token.text).or_else(|| nanoseconds(&token.text));
                self.json.number(key, duration.ok_or_else(|| line.word(rule))?);
            }
            key @ ("request_buffers" | "response_buffers" | "stream_buffer_size") => {
                let token = line.require()?;
                let size = match &*token.text {
                    "unlimited" => Some(-1),
                    text => bytes(text).and_then(|bytes| i64::try_from(bytes).ok()),
                };
                let rule = "invalid byte size '{}'; expected one such as 16KiB or 1MB, or unlimited";
                self.json.number(key, size.ok_or_else(|| line.word(rule))?);
                line.expect_no_argument()?;
            }
            "proxy_status_name" => {
                let token = line.require()?;
                self.json.text("proxy_status_name", &token.text);
                line.expect_no_argument()?;
            }
            "trusted_proxies" => {
                let ranges = line.rest().iter().flat_map(|token| match &*token.text {
                    "private_ranges" => PRIVATE_RANGES.map(Value::from).to_vec(),
                    range => vec![range.into()],
                });
                self.json.extend_list("trusted_proxies", ranges.collect());
            }
            "header_up" => {
                apply(line.rest(), line, &mut self.up)?;
                warn_of_defaults(line);
                if let [field, value] = line.arguments()
                    && field.text.eq_ignore_ascii_case("host")
                    && &*value.text == "{http.reverse_proxy.upstream.hostport}"
                    // Proxies to other upstreams may import the line too.
                    && field.imported.is_none()
                {
                    self.upstream_host = Some(field.clone());
                }
            }
            "header_down" => apply(line.rest(), line, &mut self.down)?,
            option @ ("method" | "rewrite") => {
                let token = line.require()?;
                let key = if option == "method" { "method" } else { "uri" };
                self.json.child("rewrite").text(key, &token.text);
                line.expect_no_argument()?;
            }
            "transport" => {
                line.require()?;
                if self.fixed_transport.is_some() {
                    return Err(line.rule("transport already specified"));
                }
                if self.transport.is_some() {
                    line.warn(name, "this transport replaces an earlier one".to_owned());
                }
                self.transport = Some(Transport::read(line)?);
            }
            "verbose_logs" if self.json.contains_key("verbose_logs") => {
                return Err(line.rule("verbose_logs already specified"));
            }
            "verbose_logs" => self.json.switch_on("verbose_logs"),
            other => {
                let error = line.unknown(UNKNOWN, OPTIONS);
                return Err(match hint::in_proxy(other) {
                    Some(hint) => error.with_note(|| hint.to_owned()),
                    None => error,
                });
            }
        }
        Ok(())
    }

    /// If no transport is named, the upstreams' scheme selects one. A named transport must be compatible with the
    /// scheme.
    fn choose_transport(&mut self, d: &Dispenser<'_>) -> Result<(), Error> {
        if matches!(&*self.scheme, "https" | "h2c") && self.transport.is_none() {
            self.transport = Some(Transport::http());
        }
        let protocol = self.transport.as_ref().map_or("http", |transport| transport.protocol);
        if let Some(token) = self.for_httpgrpc.as_ref().filter(|_| protocol != "httpgrpc") {
            let rule = "parsing upstream '{}': its scheme needs the transport httpgrpc; expected `transport httpgrpc`";
            return Err(Error::at(token, ErrorKind::Word { rule, found: token.text.clone() }));
        }
        let Some(transport) = &mut self.transport else {
            if let Some(fixed) = self.fixed_transport.take() {
                self.json.insert("transport".into(), fixed);
            }
            return Ok(());
        };
        match (&*self.scheme, transport.knows_tls()) {
            ("https", false) => {
                return Err(d.rule("upstreams are configured for HTTPS but transport module does not support TLS"));
            }
            // An empty `tls` object enables TLS.
            ("https", true) => drop(transport.json.child("tls")),
            ("http", _) if transport.json.contains_key("tls") => {
                let rule = "upstream address scheme is HTTP but transport is configured for HTTP+TLS (HTTPS)";
                return Err(d.rule(rule));
            }
            ("h2c", _) if transport.protocol == "http" => {
                transport.json.insert("versions".into(), json!(["h2c", "2"]));
            }
            _ => {}
        }
        if let Some(field) = self.upstream_host.take_if(|_| transport.json.contains_key("tls")) {
            let message =
                "header_up Host is not needed: to an upstream over TLS the proxy sends the upstream's host by itself";
            d.warn(&field, message.to_owned());
        }
        if let Some(transport) = self.transport.take().and_then(Transport::json) {
            self.json.insert("transport".into(), transport);
        }
        Ok(())
    }

    /// Turns `dns:///` upstreams into a dynamic source. They cannot be combined with other upstreams.
    fn names(&mut self, d: &Dispenser<'_>) -> Result<(), Error> {
        let Some(Value::Array(mut names)) = self.json.shift_remove("dns") else { return Ok(()) };
        if self.json.contains_key("upstreams") || self.json.contains_key("dynamic_upstreams") {
            return Err(d.rule("dns:/// upstreams cannot be combined with others; expected only dns:///"));
        }
        let source = match names.len() {
            1 => names.remove(0),
            _ => json!({ "source": "multi", "sources": names }),
        };
        self.json.insert("dynamic_upstreams".into(), source);
        Ok(())
    }

    fn finish(mut self) -> Value {
        for (side, operations) in [("request", self.up), ("response", self.down)] {
            if !operations.is_empty() {
                self.json.child("headers").insert(side.into(), operations.json().into());
            }
        }
        self.json.list("handle_response", self.answers.json());
        self.json.insert("handler".into(), "reverse_proxy".into());
        self.json.into()
    }
}

fn upstream_json(dial: String) -> Value {
    if dial.is_empty() { json!({}) } else { json!({ "dial": dial }) }
}

/// Warns of a `header_up` that sets a field to the value that the proxy sends by default.
fn warn_of_defaults(line: &mut Dispenser<'_>) {
    const DEFAULTS: &[(&str, &[&str])] = &[
        ("x-forwarded-for", &["{http.request.remote}", "{http.request.remote.host}"]),
        ("x-forwarded-proto", &["{http.request.scheme}"]),
        ("x-forwarded-host", &["{http.request.host}", "{http.request.hostport}"]),
    ];
    let [field, value] = line.arguments() else { return };
    let default =
        |(name, values): &(&str, &[&str])| field.text.eq_ignore_ascii_case(name) && values.contains(&&*value.text);
    if DEFAULTS.iter().any(default) {
        line.warn(field, format!("header_up {} is not needed: the proxy sends this field by itself", field.text));
    }
}
