//! Site addresses, `[scheme://][host][:port][/path]`, and the listener addresses that they imply.

use std::net::IpAddr;

use super::error::{Error, ErrorKind};
use super::token::Token;

/// The parts of a site address, with scheme and host in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) written: String,
    pub(crate) scheme: String,
    pub(crate) host: String,
    pub(crate) port: String,
    pub(crate) path: String,
}

impl Address {
    pub(crate) fn parse(token: &Token) -> Result<Self, Error> {
        let written = token.text.trim().to_owned();
        let (scheme, rest) = written.split_once("://").unwrap_or(("", &written));
        let (authority, path) = match rest.split_once('/') {
            Some((authority, path)) => (authority, format!("/{path}")),
            None => (rest, String::new()),
        };
        let (host, port) = split_host_port(authority).unwrap_or((authority, ""));
        if !port.is_empty() {
            let number: i64 = port.parse().map_err(|_| {
                let rule = "invalid port '{}': expected a number";
                Error::at(token, ErrorKind::Word { rule, found: port.into() })
            })?;
            if !(0..=65535).contains(&number) {
                return Err(Error::at(token, ErrorKind::PortRange(number)));
            }
        }
        let scheme = lower_outside_placeholders(scheme);
        let refused = match &*scheme {
            "" | "http" | "https" => None,
            "wss" => Some("the scheme wss:// is only supported in browsers; use https:// instead"),
            "ws" => Some("the scheme ws:// is only supported in browsers; use http:// instead"),
            _ => {
                let rule = "unsupported URL scheme {}://; expected http:// or https://";
                return Err(Error::at(token, ErrorKind::Word { rule, found: scheme.into() }));
            }
        };
        if let Some(rule) = refused {
            return Err(Error::at(token, ErrorKind::Rule(rule)));
        }
        // IPv6 addresses become canonical, except for IPv4-mapped ones, which keep their spelling.
        let host = match host.trim().parse::<IpAddr>() {
            Ok(IpAddr::V6(ip)) if ip.to_ipv4_mapped().is_none() => ip.to_string(),
            _ => lower_outside_placeholders(host.trim()),
        };
        let port = port.to_owned();
        Ok(Self { scheme, host, port, path, written })
    }
}

/// Splits host and port as Go's `net.SplitHostPort`, except that the port is optional. `None` for more than one colon
/// outside of brackets.
pub(crate) fn split_host_port(text: &str) -> Option<(&str, &str)> {
    if let Some(inner) = text.strip_prefix('[') {
        let (host, rest) = inner.split_once(']')?;
        let port = if rest.is_empty() { "" } else { rest.strip_prefix(':')? };
        return (!port.contains(['[', ']', ':'])).then_some((host, port));
    }
    let (host, port) = text.split_once(':').unwrap_or((text, ""));
    (!port.contains(':') && !text.contains(['[', ']'])).then_some((host, port))
}

fn lower_outside_placeholders(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut escaped, mut inside) = (false, false);
    for ch in text.chars() {
        if ch == '\\' && !escaped {
            escaped = true;
            out.push(ch);
            continue;
        }
        // An escaped brace neither starts nor ends a placeholder.
        if !escaped {
            inside = ch == '{' || (inside && ch != '}');
        }
        if inside {
            out.push(ch);
        } else {
            out.extend(ch.to_lowercase());
        }
        escaped = false;
    }
    out
}

/// A listener address in Caddy's notation: a bind address (`[network/]host`) with a port, without leading zeros. Path
/// networks have no port.
pub(crate) fn listener(bind: &str, port: &str) -> String {
    let (network, rest) = match bind.split_once('/') {
        Some((network, rest)) => (network.trim().to_lowercase(), rest),
        None => (String::new(), bind),
    };
    if is_path_network(&network) {
        return format!("{network}/{rest}");
    }
    let host = split_host_port(rest).map_or(rest.trim_matches(['[', ']']), |(host, _)| host);
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let network = if network.is_empty() || network == "tcp" { String::new() } else { format!("{network}/") };
    // In Caddy a number from here on: `:080` and `:80` are one listener.
    let port = match port.trim_start_matches('0') {
        "" => "0",
        port => port,
    };
    format!("{network}{host}:{port}")
}

/// Whether addresses of the network have no port: Unix sockets and file descriptors.
pub(crate) fn is_path_network(network: &str) -> bool {
    network.starts_with("unix") || network.starts_with("fd")
}

/// Whether a listener uses a port other than `port`. Path networks count as port 0.
pub(crate) fn uses_other_port(listener: &str, port: &str) -> bool {
    let network = listener.split_once('/').map_or("", |(network, _)| network);
    if is_path_network(network) {
        return port != "0";
    }
    listener.rsplit_once(':').is_some_and(|(_, own)| own.trim_start_matches('0') != port.trim_start_matches('0'))
}
