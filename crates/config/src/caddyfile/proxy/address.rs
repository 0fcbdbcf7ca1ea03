//! Upstream addresses: `host:port`, `network/…`, `scheme://host:port`, with port ranges and placeholders.

use super::super::address::is_path_network;
use super::url;

/// The parts of an upstream address.
#[derive(Debug, Default)]
pub(in super::super) struct UpstreamAddress {
    pub(super) network: String,
    /// The scheme; empty if the address has none.
    pub(in super::super) scheme: String,
    pub(super) host: String,
    /// A port number, a range, or text with a placeholder.
    pub(super) port: String,
}

/// Most ports in a range, and most characters in its text.
const PORTS_MAX: u32 = 65535;
const PORT_LENGTH_MAX: usize = "65535-65535".len();

impl UpstreamAddress {
    /// Parses an address. Adds the port that its scheme implies.
    pub(in super::super) fn parse(text: &str) -> Result<Self, String> {
        if let Some(name) = text.strip_prefix("dns:///") {
            return Self::for_httpgrpc("dns", name);
        }
        if let Some(place) = text.strip_prefix("direct://") {
            return Self::for_httpgrpc("direct", place);
        }
        if text.contains("://") { Self::parse_url(text) } else { Ok(Self::parse_address(text)) }
    }

    /// Parses gRPC's notations: `dns:///` for a name with several addresses, `direct://` for a single address.
    fn for_httpgrpc(scheme: &str, place: &str) -> Result<Self, String> {
        let (host, port) = split_host_port(place).unwrap_or_default();
        if host.is_empty() || port.parse::<u16>().is_err() {
            let slash = if scheme == "dns" { "/" } else { "" };
            return Err(format!("found no host with a port; expected {scheme}://{slash}host:port"));
        }
        Ok(Self { scheme: scheme.into(), host: host.into(), port: port.into(), ..Self::default() })
    }

    fn parse_url(text: &str) -> Result<Self, String> {
        if text.contains('{') {
            return Err(
                "due to parsing difficulties, placeholders are not allowed when an upstream address contains a \
                        scheme"
                    .into(),
            );
        }
        let wrong = |fault: &str| format!("parsing upstream URL: {fault}");
        let mut range = "";
        let url = match url::parse(text) {
            Ok(url) => url,
            // A range is not a valid URL port. Parse the URL with a dummy port in its place.
            Err(fault) if fault.contains("invalid port") && fault.contains('-') => {
                range = text.rsplit_once(':').map_or("", |(_, range)| range);
                if range.matches('-').count() != 1 {
                    return Err(wrong(&format!("parse \"{text}\": port range invalid: {range}")));
                }
                url::parse(&text.replace(range, "0")).map_err(|fault| wrong(&fault))?
            }
            Err(fault) => return Err(wrong(&fault)),
        };
        if url.has_more {
            return Err("for now, URLs for proxy upstreams only support scheme, host, and port components".into());
        }
        let port = if range.is_empty() { url.port.as_str() } else { range };
        let conflict = match (&*url.scheme, port) {
            ("http", "443") => Some("(http://) and port (:443, the HTTPS port)"),
            ("https", "80") => Some("(https://) and port (:80, the HTTP port)"),
            ("h2c", "443") => Some("(h2c://) and port (:443, the HTTPS port)"),
            _ => None,
        };
        if let Some(conflict) = conflict {
            return Err(format!("upstream address has conflicting scheme {conflict}"));
        }
        let port = match (&*url.scheme, port) {
            ("" | "http" | "h2c", "") => "80",
            ("https", "") => "443",
            (_, port) => port,
        };
        let port = port.to_owned();
        Ok(Self { network: String::new(), scheme: url.scheme, host: url.host, port })
    }

    fn parse_address(text: &str) -> Self {
        let (network, host, port) = split_network(text);
        let host = host.unwrap_or_else(|| text.to_owned());
        // A placeholder can expand to a host with a port.
        let implied = port.is_empty() && !host.contains('{') && !is_path_network(&network);
        let port = if implied { "80".to_owned() } else { port.to_owned() };
        if network == "unix+h2c" {
            return Self { network: "unix".into(), scheme: "h2c".into(), host, port };
        }
        Self { network, scheme: String::new(), host, port }
    }

    /// The addresses to dial: one, or one for each port of a range.
    pub(in super::super) fn dials(&self) -> Result<Vec<String>, String> {
        let whole = self.dial();
        if self.port.contains('{') && self.port.contains('}') {
            return Ok(vec![whole]);
        }
        let (network, host, port) = split_network(&whole);
        let Some(host) = host else {
            return Err(format!("address {whole}: brackets at an unexpected place, or no port in address"));
        };
        // Uses the network parsed from the whole text, as Caddy does: an address without a network can look as if it
        // had one.
        let (first, last) = match &*network {
            unix if unix.starts_with("unix") => permissions(&host).map(|()| (0, 0))?,
            fd if fd.starts_with("fd") => (0, 0),
            _ => ports(port)?,
        };
        if self.network.starts_with("unix") || !self.port.contains('-') {
            return Ok(vec![whole]);
        }
        Ok((first..=last).map(|port| join_host_port(&host, &port.to_string())).collect())
    }

    fn dial(&self) -> String {
        let Self { network, host, port, .. } = self;
        if network.is_empty() {
            let whole = port.is_empty() && host.contains('{');
            return if whole { host.clone() } else { join_host_port(host, port) };
        }
        if (!host.is_empty() && port.is_empty()) || is_path_network(network) {
            return format!("{network}/{host}");
        }
        if port.is_empty() { format!("{network}/") } else { format!("{network}/{}", join_host_port(host, port)) }
    }
}

/// Splits network, host and port. The host is `None` if Go's parser would reject the address.
fn split_network(text: &str) -> (String, Option<String>, &str) {
    let (network, rest) = match text.split_once('/') {
        Some((network, rest)) => (network.trim().to_lowercase(), rest),
        None => (String::new(), text),
    };
    if is_path_network(&network) {
        return (network, Some(rest.to_owned()), "");
    }
    if let Some((host, port)) = split_host_port(rest) {
        return (network, Some(host.to_owned()), port);
    }
    // Probably an address without a port. Split it with a dummy port.
    let bare = join_host_port(rest.trim_matches(['[', ']']), "0");
    let host = split_host_port(&bare).map(|(host, _)| host.to_owned());
    (network, host, "")
}

/// As Go's `net.SplitHostPort`: the port is required.
pub(super) fn split_host_port(text: &str) -> Option<(&str, &str)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(inner) => {
            let (host, rest) = inner.split_once(']')?;
            (host, rest.strip_prefix(':')?)
        }
        None => text.rsplit_once(':').filter(|(host, _)| !host.contains([':', ']']))?,
    };
    (!host.contains('[') && !port.contains(['[', ']', ':'])).then_some((host, port))
}

fn join_host_port(host: &str, port: &str) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn ports(text: &str) -> Result<(u16, u16), String> {
    if text.is_empty() {
        return Ok((0, 0));
    }
    if text.len() > PORT_LENGTH_MAX {
        return Err(format!("invalid port: longer than {PORT_LENGTH_MAX} characters"));
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |which: &str, text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let why = if digits { "value out of range" } else { "invalid syntax" };
        let parsed = if digits { text.parse::<u16>().ok() } else { None };
        parsed.ok_or_else(|| format!("invalid {which} port: strconv.ParseUint: parsing {text:?}: {why}"))
    };
    let (first, last) = (number("start", first)?, number("end", last)?);
    if last < first {
        return Err("end port must not be less than start port".into());
    }
    if u32::from(last - first) + 1 > PORTS_MAX {
        return Err(format!("port range exceeds {PORTS_MAX} ports"));
    }
    Ok((first, last))
}

/// Checks the octal permissions after `|` in a socket's path: the owner must be able to write.
fn permissions(path: &str) -> Result<(), String> {
    const OWNER_WRITES: u32 = 0o200;
    let Some((_, mode)) = path.split_once('|') else { return Ok(()) };
    match u32::from_str_radix(mode, 8) {
        Ok(mode) if mode & OWNER_WRITES != 0 => Ok(()),
        Ok(_) => Err(format!(
            "owner of the socket requires '-w-' (write, octal: '2') permissions at least; got none in {path}"
        )),
        Err(_) => Err(format!("could not parse octal permission bits in {path}; expected digits such as 0200")),
    }
}
