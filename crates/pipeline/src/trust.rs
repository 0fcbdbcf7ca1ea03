//! Which request fields a server trusts: the proxies that may report the client's address, and the field names that
//! are dropped because a backend could confuse them with others.
//!
//! - `fetched`: networks of proxies that change while the server runs

mod fetched;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use causeway_message::{FieldMap, FieldName};
use ipnet::IpNet;

use crate::context::Client;

pub use fetched::FetchedRanges;
pub(crate) use fetched::FetchedTable;

/// The proxies whose report of the client's address is trusted (Caddy's `trusted_proxies`, `client_ip_headers`,
/// `trusted_proxies_strict`).
#[derive(Debug, Clone)]
pub struct Trust {
    ranges: Vec<IpNet>,
    fetched: Vec<Arc<FetchedRanges>>,
    /// Fields with the client's address, tried in this order.
    headers: Vec<FieldName>,
    strict: bool,
    /// Whether the peers of Unix sockets are trusted (Caddy's `trusted_proxies_unix`).
    unix: bool,
}

impl Trust {
    /// Trusts proxies in these networks. The client's address is taken from the first of the `headers` that has one.
    /// With `strict`, a list is read from the right, up to the first address that is not a trusted proxy. Without it,
    /// the leftmost address counts, which the client can forge where a proxy appends to the field.
    ///
    /// # Errors
    /// The text that is not a field name.
    pub fn new<'w>(ranges: Vec<IpNet>, headers: &[&'w str], strict: bool) -> Result<Self, &'w str> {
        let headers = headers.iter().map(|name| FieldName::parse(name).ok_or(*name)).collect::<Result<_, _>>()?;
        Ok(Self { ranges, fetched: Vec::new(), headers, strict, unix: false })
    }

    /// Trusts the proxies in these networks too, as they are at each request.
    #[must_use]
    pub fn with_fetched(mut self, fetched: Vec<Arc<FetchedRanges>>) -> Self {
        self.fetched = fetched;
        self
    }

    /// Sets whether the peers of Unix sockets are trusted.
    #[must_use]
    pub fn with_unix(mut self, unix: bool) -> Self {
        self.unix = unix;
        self
    }

    /// Returns the client of a request: the peer, or the address in the fields of a trusted one. `peer` is `None` for a
    /// Unix socket.
    pub(crate) fn client(&self, peer: Option<IpAddr>, fields: &FieldMap) -> Client {
        if !peer.map_or(self.unix, |ip| self.trusts(ip)) {
            return Client { ip: peer, proxied: false };
        }
        let told = if self.strict { self.rightmost(fields) } else { self.leftmost(fields) };
        Client { ip: told.or(peer), proxied: true }
    }

    fn trusts(&self, ip: IpAddr) -> bool {
        self.ranges.iter().any(|range| range.contains(&ip)) || self.fetched.iter().any(|ranges| ranges.contains(ip))
    }

    fn leftmost(&self, fields: &FieldMap) -> Option<IpAddr> {
        let values = self.headers.iter().flat_map(|name| fields.get_all(name));
        values.flat_map(|value| value.split(|&byte| byte == b',')).find_map(address)
    }

    fn rightmost(&self, fields: &FieldMap) -> Option<IpAddr> {
        self.headers.iter().find_map(|name| {
            let mut last = None;
            // Read from left to right and keep the last address that is not trusted: it is the first from the right.
            for part in fields.get_all(name).flat_map(|value| value.split(|&byte| byte == b',')) {
                last = address(part).filter(|ip| !self.trusts(*ip)).or(last);
            }
            last
        })
    }
}

/// Parses an address with or without a port, an IPv6 zone, or brackets.
fn address(part: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(part).ok()?.trim();
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(address.ip());
    }
    let host = match text.strip_prefix('[') {
        Some(rest) => rest.split(']').next()?,
        None => text,
    };
    host.split('%').next()?.parse().ok()
}

/// Field names that are dropped because a backend that treats `-`, `_` and `.` as equal could confuse them with
/// others (Caddy's `expected_underscore_headers` and `expected_dot_headers`). By default all names with `_` or `.`
/// are dropped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Confusable {
    keeps_all: bool,
    underscore: Vec<Expected>,
    dot: Vec<Expected>,
}

/// An expected name in lower case, and its spelling with hyphens, which is dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Expected {
    name: Box<str>,
    hyphened: Box<str>,
    is_prefix: bool,
}

impl Confusable {
    /// Keeps the expected names; a `*` at the end of an entry matches any ending.
    ///
    /// # Errors
    /// The invalid entry: not ASCII, with a `*` elsewhere, or without the list's character.
    pub fn new<'w>(underscore: &'w [String], dot: &'w [String]) -> Result<Self, &'w str> {
        let all = |entries: &'w [String], separator| {
            entries.iter().map(|entry| Expected::parse(entry, separator).ok_or(&**entry)).collect::<Result<_, _>>()
        };
        Ok(Self { keeps_all: false, underscore: all(underscore, '_')?, dot: all(dot, '.')? })
    }

    /// Keeps all names, for servers whose handlers are programs that compare names exactly.
    pub fn keep_all() -> Self {
        Self { keeps_all: true, ..Self::default() }
    }

    /// Removes the confusable names from a request's fields.
    #[inline]
    pub(crate) fn drop_from(&self, fields: &mut FieldMap) {
        let strange = fields.unregistered().any(|name| name.bytes().any(|byte| matches!(byte, b'_' | b'.')));
        // The common case, in one pass without allocation: no name with `_` or `.`, and no expected names.
        if (strange || self.has_expected()) && !self.keeps_all {
            self.drop_slowly(fields);
        }
    }

    fn has_expected(&self) -> bool {
        !self.underscore.is_empty() || !self.dot.is_empty()
    }

    #[cold]
    fn drop_slowly(&self, fields: &mut FieldMap) {
        let repeated = |name: &str| fields.unregistered().filter(|other| other.eq_ignore_ascii_case(name)).count() > 1;
        // A name that occurs twice is ambiguous, even if it is expected.
        let allowed: Vec<Box<str>> = fields
            .unregistered()
            .filter(|name| self.expects(name) && !repeated(name))
            .map(|name| name.to_ascii_lowercase().into())
            .collect();
        fields.retain(|name, _| {
            let name = name.as_str();
            // Drop unexpected names; of an expected name drop the spelling with hyphens, which a backend could
            // confuse with it.
            let is_kept = match name.contains(['_', '.']) {
                true => allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(name)),
                false => !self.underscore.iter().chain(&self.dot).any(|expected| expected.is_hyphened(name)),
            };
            if !is_kept {
                tracing::debug!(header = name, "dropping a header that a backend could confuse with another");
            }
            is_kept
        });
    }

    fn expects(&self, name: &str) -> bool {
        match (name.contains('_'), name.contains('.')) {
            // A name with both characters must be expected exactly: the open ending of a prefix could hold the
            // second one.
            (true, true) => self.underscore.iter().chain(&self.dot).any(|e| !e.is_prefix && e.is(name)),
            (true, false) => self.underscore.iter().any(|expected| expected.is(name)),
            (false, true) => self.dot.iter().any(|expected| expected.is(name)),
            (false, false) => false,
        }
    }
}

impl Expected {
    fn parse(entry: &str, separator: char) -> Option<Self> {
        let name = entry.strip_suffix('*').unwrap_or(entry);
        let good = entry.is_ascii() && !name.contains('*') && name.contains(separator);
        let name = name.to_ascii_lowercase();
        good.then(|| Self {
            hyphened: name.replace(separator, "-").into(),
            name: name.into(),
            is_prefix: entry.ends_with('*'),
        })
    }

    fn is(&self, name: &str) -> bool {
        self.spells(&self.name, name)
    }

    fn is_hyphened(&self, name: &str) -> bool {
        self.spells(&self.hyphened, name)
    }

    fn spells(&self, want: &str, name: &str) -> bool {
        let start = name.get(..want.len()).is_some_and(|start| start.eq_ignore_ascii_case(want));
        start && (self.is_prefix || name.len() == want.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_message::FieldValue;

    fn fields(lines: &[(&str, &'static str)]) -> FieldMap {
        let mut map = FieldMap::new();
        for (name, value) in lines {
            map.append(&FieldName::parse(name).unwrap(), FieldValue::from_static(value));
        }
        map
    }

    fn networks(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    // Caddy's documentation of `trusted_proxies`, `client_ip_headers` and `trusted_proxies_strict`.
    #[test]
    fn the_client_behind_proxies() {
        const XFF: &str = "X-Forwarded-For";
        for (peer, strict, lines, want) in [
            ("9.9.9.9", false, &[(XFF, "1.1.1.1")][..], "9.9.9.9"),
            ("10.0.0.1", false, &[], "10.0.0.1 by proxy"),
            ("10.0.0.1", false, &[(XFF, "1.1.1.1, 2.2.2.2")], "1.1.1.1 by proxy"),
            ("10.0.0.1", true, &[(XFF, "1.1.1.1, 2.2.2.2, 10.0.0.7")], "2.2.2.2 by proxy"),
            ("10.0.0.1", true, &[(XFF, "1.1.1.1"), (XFF, "2.2.2.2"), (XFF, "10.0.0.7")], "2.2.2.2 by proxy"),
            ("10.0.0.1", true, &[(XFF, "10.0.0.7")], "10.0.0.1 by proxy"),
            ("10.0.0.1", false, &[(XFF, "unknown, [2001:db8::1%eth0]:443")], "2001:db8::1 by proxy"),
            ("10.0.0.1", false, &[(XFF, "1.1.1.1:80")], "1.1.1.1 by proxy"),
            ("10.0.0.1", false, &[("X-Real-Ip", "3.3.3.3"), (XFF, "1.1.1.1")], "1.1.1.1 by proxy"),
            ("10.0.0.1", false, &[("X-Real-Ip", "3.3.3.3")], "3.3.3.3 by proxy"),
            ("127.0.0.1", false, &[(XFF, "1.1.1.1")], "1.1.1.1 by proxy"),
            ("::ffff:10.0.0.1", false, &[(XFF, "1.1.1.1")], "1.1.1.1 by proxy"),
        ] {
            let ranges = networks(&["10.0.0.0/8", "127.0.0.1/32"]);
            let trust = Trust::new(ranges, &[XFF, "X-Real-Ip"], strict).unwrap();
            let peer_ip = peer.parse::<IpAddr>().unwrap().to_canonical();
            let client = trust.client(Some(peer_ip), &fields(lines));
            let got = format!("{}{}", client.ip.unwrap(), if client.proxied { " by proxy" } else { "" });
            assert_eq!(got, want, "{peer} strict={strict} {lines:?}");
        }
    }

    // Caddy's documentation of `trusted_proxies_unix`: connections over Unix sockets come from a trusted proxy. They
    // are in no range, and a field without an address leaves the client unknown.
    #[test]
    fn the_client_behind_a_unix_socket() {
        const XFF: &str = "X-Forwarded-For";
        for (unix, strict, forwarded_for, want) in [
            (false, false, "1.1.1.1", Client { ip: None, proxied: false }),
            (true, false, "1.1.1.1, 0.0.0.9", Client { ip: Some([1, 1, 1, 1].into()), proxied: true }),
            (true, true, "1.1.1.1, 0.0.0.9", Client { ip: Some([1, 1, 1, 1].into()), proxied: true }),
            (true, true, "0.0.0.9", Client { ip: None, proxied: true }),
            (true, false, "unknown", Client { ip: None, proxied: true }),
        ] {
            let trust = Trust::new(networks(&["0.0.0.0/8"]), &[XFF], strict).unwrap().with_unix(unix);
            assert_eq!(
                trust.client(None, &fields(&[(XFF, forwarded_for)])),
                want,
                "unix={unix} strict={strict} {forwarded_for}"
            );
        }
    }

    #[test]
    fn a_header_that_is_no_field_name() {
        assert_eq!(Trust::new(Vec::new(), &["X Y"], false).unwrap_err(), "X Y");
    }

    // A list that is replaced counts for the next request.
    #[test]
    fn fetched_networks() {
        const XFF: &str = "X-Forwarded-For";
        let ranges = FetchedTable::default().get(&[], || networks(&["10.0.0.0/8"]));
        let trust = Trust::new(networks(&["127.0.0.1/32"]), &[XFF], true).unwrap();
        let trust = trust.with_fetched(vec![Arc::clone(&ranges)]);
        let forwarded_for = fields(&[(XFF, "1.1.1.1, 10.0.0.7, 172.16.0.7, 127.0.0.1")]);
        let client = |peer: [u8; 4]| trust.client(Some(peer.into()), &forwarded_for).ip.unwrap().to_string();
        assert_eq!(
            [client([127, 0, 0, 1]), client([10, 0, 0, 1]), client([9, 9, 9, 9])],
            ["172.16.0.7", "172.16.0.7", "9.9.9.9"]
        );
        ranges.replace(networks(&["172.16.0.0/12", "9.0.0.0/8"]));
        assert_eq!(
            [client([127, 0, 0, 1]), client([10, 0, 0, 1]), client([9, 9, 9, 9])],
            ["10.0.0.7", "10.0.0.1", "10.0.0.7"]
        );
    }

    // Caddy's documentation of `expected_underscore_headers` and `expected_dot_headers`.
    #[test]
    fn names_that_a_backend_could_confuse() {
        for (underscore, dot, names, want) in [
            (&[][..], &[][..], &["A", "Remote_User", "x.y", "Remote-User"][..], &["A", "Remote-User"][..]),
            (&["remote_user"], &[], &["Remote_User", "Remote-User", "Other_One"], &["Remote_User"]),
            (&["remote_user"], &[], &["Remote_User", "REMOTE_user"], &[]),
            (&["hook_*"], &[], &["Hook_a", "Hook-b", "hook_a.b", "hook"], &["Hook_a", "hook"]),
            (&[], &["x.y"], &["x.y", "x-y", "x_y"], &["x.y"]),
            (&["a_b.c"], &[], &["a_b.c"], &["a_b.c"]),
            (&["user_agent"], &[], &["User-Agent"], &[]),
        ] {
            let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
            let (underscore, dot) = (own(underscore), own(dot));
            let confusable = Confusable::new(&underscore, &dot).unwrap();
            let lines: Vec<_> = names.iter().map(|name| (*name, "v")).collect();
            let mut map = fields(&lines);
            confusable.drop_from(&mut map);
            let got: Vec<_> = map.iter().map(|(name, _)| name.as_str().to_ascii_lowercase()).collect();
            let want: Vec<_> = want.iter().map(|name| name.to_ascii_lowercase()).collect();
            assert_eq!(got, want, "{underscore:?} {dot:?} {names:?}");
        }
        for (underscore, dot) in [("plain", ""), ("a*_b", ""), ("é_b", ""), ("", "a_b")] {
            let list = |entry: &str| if entry.is_empty() { Vec::new() } else { vec![entry.to_owned()] };
            let (underscore, dot) = (list(underscore), list(dot));
            assert_eq!(Confusable::new(&underscore, &dot), Err(&*[underscore.concat(), dot.concat()].concat()));
        }
    }
}
