//! Where requests in the clear are sent to the same place over TLS: routes for servers on the HTTP port, and a server of their own
//! where there is none.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use causeway_pipeline::{BuildError, ListenAddress};
use serde_json::{Value, json};

use super::{Ports, Site};

/// The server that redirects where no other listens.
pub(in super::super) const SERVER: &str = "remaining_auto_https_redirects";

/// Where each name is served over TLS; the empty name stands for all.
#[derive(Default)]
pub(super) struct Redirects(BTreeMap<String, Vec<ListenAddress>>);

/// What redirects where no server listens.
pub(in super::super) struct Remaining {
    pub(in super::super) listen: Vec<ListenAddress>,
    pub(in super::super) routes: Value,
}

/// Routes at one place of a server, and at its end.
#[derive(Default)]
pub(in super::super) struct Inserted {
    /// Behind how many of its own routes.
    pub(in super::super) behind: usize,
    pub(in super::super) routes: Vec<Value>,
    pub(in super::super) last: Vec<Value>,
}

impl Inserted {
    /// A server's own routes with these among them.
    pub(in super::super) fn among(&self, own: &Value) -> Value {
        let own = own.as_array().map_or(&[][..], Vec::as_slice);
        let (before, after) = own.split_at(self.behind.min(own.len()));
        let all = before.iter().chain(&self.routes).chain(after).chain(&self.last);
        Value::Array(all.cloned().collect())
    }

    /// A mistake's place by the server's own count of its routes.
    pub(in super::super) fn place_of(&self, mut error: BuildError, server: &str) -> BuildError {
        let index = error.path.strip_prefix(server).and_then(|rest| rest.strip_prefix(".routes["));
        let index = index.and_then(|rest| rest.split_once(']'));
        if let Some((digits, rest)) = index {
            let written = digits.parse::<usize>().ok().filter(|index| *index >= self.behind + self.routes.len());
            if let Some(written) = written.map(|index| index - self.routes.len()) {
                error.path = format!("{server}.routes[{written}]{rest}");
            }
        }
        error
    }
}

impl Redirects {
    /// A name that is served over TLS there. One that is served on several ports keeps one: the HTTPS port, or else the first.
    pub(super) fn record(&mut self, name: &str, address: ListenAddress, ports: Ports) {
        let known = self.0.entry(name.to_owned()).or_default();
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

    /// Gives every server on the HTTP port its part; what is left is a server's of its own. `any_managed`: whether any name gets
    /// its certificate by itself; else a site's own routes for all hosts go before redirects of names.
    pub(super) fn place(self, sites: &mut [Site<'_>], ports: Ports, any_managed: bool) -> Option<Remaining> {
        let mut by_address: BTreeMap<(Option<std::net::IpAddr>, u16), Vec<String>> = BTreeMap::new();
        for (name, addresses) in self.0 {
            for address in addresses {
                by_address.entry((address.host, address.port)).or_default().push(name.clone());
            }
        }
        let mut by_listener: BTreeMap<Option<std::net::IpAddr>, Vec<(Vec<String>, Value)>> = BTreeMap::new();
        for ((host, port), names) in by_address {
            let names: Vec<String> = names.into_iter().filter(|name| !name.is_empty()).collect();
            let route = route(&names, port, ports);
            by_listener.entry(host).or_default().push((names, route));
        }
        let mut remaining = Remaining { listen: Vec::new(), routes: Value::Null };
        let mut routes_left = Vec::new();
        for (host, mut routes) in by_listener {
            routes.sort_by_key(|(names, _)| specific(names));
            let routes: Vec<Value> = routes.into_iter().map(|(_, route)| route).collect();
            let address = ListenAddress { host, port: ports.http };
            match sites.iter_mut().find(|site| site.listens_on(address)) {
                Some(site) => {
                    let inserted = site.inserted.get_or_insert_default();
                    inserted.behind = behind_hosts(site.routes);
                    if any_managed {
                        inserted.routes.extend(routes);
                    }
                    inserted.last.push(route(&[], ports.https, ports));
                }
                None => {
                    remaining.listen.push(address);
                    routes_left.extend(routes);
                }
            }
        }
        if remaining.listen.is_empty() {
            return None;
        }
        routes_left.push(route(&[], ports.https, ports));
        remaining.routes = Value::Array(routes_left);
        Some(remaining)
    }
}

/// Names before wildcards before all names; longer ones first.
fn specific(names: &[String]) -> (bool, bool, Reverse<usize>, String) {
    let first = names.first().cloned().unwrap_or_default();
    (first.is_empty(), first.contains('*'), Reverse(first.len()), first)
}

/// Behind the last route with a host; at the front where there is none.
fn behind_hosts(routes: &Value) -> usize {
    let routes = routes.as_array().map_or(&[][..], Vec::as_slice);
    let names_host = |route: &Value| {
        let sets = route.get("match").and_then(Value::as_array);
        sets.into_iter().flatten().any(|set| set.get("host").is_some())
    };
    routes.iter().rposition(names_host).map_or(0, |last| last + 1)
}

/// `308` to the same host and target; the port is named where it is none that clients know.
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
