//! Redirects from HTTP to HTTPS: routes for the servers on the HTTP port, or an additional server if there is none.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use causeway_pipeline::{BuildError, ListenAddress};
use serde_json::{Value, json};

use super::{HttpsServer, Ports};

/// Name of the additional server that redirects on addresses without a server of the configuration.
pub(in super::super) const SERVER: &str = "remaining_auto_https_redirects";

/// The handler that answers HTTP-01 challenges. The server registers it; no configuration names it.
const CHALLENGE_HANDLER: &str = "acme_challenge";

/// The addresses at which each name is served over TLS. The empty name stands for all names.
#[derive(Default)]
pub(super) struct Redirects(BTreeMap<String, Vec<ListenAddress>>);

/// The additional server's addresses and routes.
pub(in super::super) struct Remaining {
    pub(in super::super) listen: Vec<ListenAddress>,
    pub(in super::super) routes: Value,
}

/// Routes to insert at one position of a server's routes, and to append at its end.
#[derive(Default)]
pub(in super::super) struct Inserted {
    /// Routes before the server's own.
    pub(in super::super) first: Vec<Value>,
    /// Number of the server's own routes before `routes`.
    pub(in super::super) behind: usize,
    pub(in super::super) routes: Vec<Value>,
    pub(in super::super) last: Vec<Value>,
}

impl Inserted {
    /// The server's own routes merged with these. A value that is no list is returned as it is, for its error.
    pub(in super::super) fn among(&self, own: &Value) -> Value {
        let Value::Array(own) = own else { return own.clone() };
        let (before, after) = own.split_at(self.behind.min(own.len()));
        let all = self.first.iter().chain(before).chain(&self.routes).chain(after).chain(&self.last);
        Value::Array(all.cloned().collect())
    }

    /// Corrects the index in an error's JSON path from the merged routes to the server's own routes. `server` is the
    /// server's path.
    pub(in super::super) fn place_of(&self, mut error: BuildError, server: &str) -> BuildError {
        let index = error.path.strip_prefix(server).and_then(|rest| rest.strip_prefix(".routes["));
        let index = index.and_then(|rest| rest.split_once(']'));
        if let Some((digits, rest)) = index {
            // Of the inserted routes only the access log's can fail: its logs are the configuration's.
            if let Some((_, log)) =
                rest.split_once("handle[0].logs.").filter(|_| digits == "0" && !self.first.is_empty())
            {
                error.path = format!("logging.logs.{log}");
                return error;
            }
            let own = digits.parse::<usize>().ok().and_then(|index| index.checked_sub(self.first.len()));
            // Indices before the inserted position are the server's own, and later ones are shifted further.
            let own = own
                .map(|index| if index >= self.behind + self.routes.len() { index - self.routes.len() } else { index });
            if let Some(own) = own {
                error.path = format!("{server}.routes[{own}]{rest}");
            }
        }
        error
    }
}

impl Redirects {
    /// Records that `hosts` are served over TLS by `site`; without hosts, all names are.
    pub(super) fn record_site(&mut self, site: &HttpsServer<'_>, hosts: &BTreeSet<String>, ports: Ports) {
        for range in &site.listen {
            // An inherited socket has no port by the configuration, so no redirect can name it.
            let Some(first) = range.first().and_then(|socket| socket.address()) else { continue };
            if hosts.is_empty() {
                self.record("", first, ports);
            }
            for host in hosts {
                self.record(host, first, ports);
            }
        }
    }

    /// Records that `name` is served over TLS at `address`. If a name has several ports, one is kept: the HTTPS port,
    /// or else the first.
    fn record(&mut self, name: &str, address: ListenAddress, ports: Ports) {
        let known = self.0.entry(name.to_owned()).or_default();
        // All recorded addresses have one port: another port either replaces them or is ignored.
        match known.first().map(|first| first.port) {
            Some(port) if port != address.port => {
                if address.port == ports.https {
                    *known = vec![address];
                }
            }
            _ if known.contains(&address) => {}
            _ => known.push(address),
        }
    }

    /// Inserts the redirects into every server on the HTTP port, and returns the others as an additional server.
    /// `any_managed`: whether any site name has a managed certificate; Tailscale's certificates are not managed. If
    /// none has one, only the catch-all redirect is inserted, at the end, so that a site's own catch-all routes come
    /// first.
    pub(super) fn place(self, sites: &mut [HttpsServer<'_>], ports: Ports, any_managed: bool) -> Option<Remaining> {
        // Group by address: a server gets one route for the names of each TLS address, and one for its patterns.
        let mut by_address: BTreeMap<(Option<IpAddr>, u32, u16), Vec<String>> = BTreeMap::new();
        for (name, addresses) in self.0 {
            for address in addresses {
                by_address.entry((address.host, address.zone, address.port)).or_default().push(name.clone());
            }
        }
        // The names and ports of each server on the HTTP port, by its index in `sites`, and those of the additional
        // server.
        let mut of_sites: BTreeMap<usize, Vec<(Vec<String>, u16)>> = BTreeMap::new();
        let mut left = Vec::new();
        let mut listen = Vec::new();
        for ((host, zone, port), names) in by_address {
            let address = ListenAddress { host, port: ports.http, zone };
            let groups = match sites.iter().position(|site| site.listens_on(address)) {
                Some(index) => of_sites.entry(index).or_default(),
                None => {
                    if listen.last() != Some(&address) {
                        listen.push(address);
                    }
                    &mut left
                }
            };
            groups.extend(by_precision(names).map(|names| (names, port)));
        }
        for (index, groups) in of_sites {
            let site = &mut sites[index];
            let inserted = site.inserted.get_or_insert_default();
            inserted.behind = behind_hosts(site.routes);
            if any_managed {
                inserted.routes.extend(routes(groups, ports));
            }
            inserted.last.push(route(&[], ports.https, ports));
        }
        if listen.is_empty() {
            return None;
        }
        let routes = routes(left, ports).chain([route(&[], ports.https, ports)]).collect();
        Some(Remaining { listen, routes })
    }
}

/// Splits the names of an address into the exact ones and the patterns, because only one of the former is certain to be
/// more specific than another address's pattern. One empty list stands for all names.
fn by_precision(mut names: Vec<String>) -> impl Iterator<Item = Vec<String>> {
    names.retain(|name| !name.is_empty());
    let is_for_all = names.is_empty();
    let (patterns, exact): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| name.contains('*'));
    [exact, patterns].into_iter().filter(|names| !names.is_empty()).chain(is_for_all.then(Vec::new))
}

/// The redirects of one server, the most specific ones first.
///
/// DEVIATES Caddy, which sorts those of each address to listen on, and joins the lists in the order of these addresses
/// as texts: in one server, a site's name must not get the port of another site that is for all names, or for a
/// pattern, at another address.
fn routes(mut groups: Vec<(Vec<String>, u16)>, ports: Ports) -> impl Iterator<Item = Value> {
    groups.sort_by_cached_key(|(names, _)| specific(names));
    groups.into_iter().map(move |(names, port)| route(&names, port, ports))
}

/// Makes the servers on the HTTP port answer HTTP-01 challenges (RFC 8555 §8.3) before their own routes.
pub(super) fn answer_challenges(sites: &mut [HttpsServer<'_>], remaining: &mut Option<Remaining>, ports: Ports) {
    let route = json!({
        "match": [{ "path": ["/.well-known/acme-challenge/*", "/.well-known/pki-validation/*"], "protocol": "http" }],
        "handle": [{ "handler": CHALLENGE_HANDLER }],
    });
    for site in
        sites.iter_mut().filter(|site| site.listen.iter().flatten().any(|socket| socket.port() == Some(ports.http)))
    {
        site.inserted.get_or_insert_default().first.push(route.clone());
    }
    if let Some(Value::Array(routes)) = remaining.as_mut().map(|remaining| &mut remaining.routes) {
        routes.insert(0, route);
    }
}

/// Sort key: exact names first, then wildcards, then all names; longer names before shorter ones.
fn specific(names: &[String]) -> (bool, bool, Reverse<usize>, String) {
    let first = names.first().cloned().unwrap_or_default();
    (first.is_empty(), first.contains('*'), Reverse(first.len()), first)
}

/// The index after the last route with a host matcher; 0 if there is none.
fn behind_hosts(routes: &Value) -> usize {
    let routes = routes.as_array().map_or(&[][..], Vec::as_slice);
    let names_host = |route: &Value| {
        let sets = route.get("match").and_then(Value::as_array);
        sets.into_iter().flatten().any(|set| set.get("host").is_some())
    };
    routes.iter().rposition(names_host).map_or(0, |last| last + 1)
}

/// A route that answers 308 with the same host and target over HTTPS. The port is omitted if it is a standard port or
/// the configured port of a scheme.
fn route(names: &[String], port: u16, ports: Ports) -> Value {
    let unsaid = [ports.http, ports.https, 80, 443].contains(&port);
    let port = if unsaid { String::new() } else { format!(":{port}") };
    let mut set = json!({ "protocol": "http" });
    if !names.is_empty() {
        let names: BTreeSet<_> = names.iter().collect();
        set["host"] = json!(names);
    }
    json!({ "match": [set], "handle": [{
        "handler": "static_response",
        "status_code": 308,
        "headers": { "Location": [format!("https://{{http.request.host}}{port}{{http.request.uri}}")] },
        "close": true,
    }] })
}
