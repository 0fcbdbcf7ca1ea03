//! Combines sites into servers: which listeners serve which site blocks, and each server's JSON.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::address::{self, Address};
use super::error::{Error, ErrorKind};
use super::log::{self, ServerLogs};
use super::matcher::MatcherSet;
use super::options::Options;
use super::position::Position;
use super::registry::DirectiveOutput;
use super::route::{self, Placed, Route, RouteOrder};
use super::tls::ConnectionPolicies;
use super::{EvaluatedSite, NamedRoute, Session};

/// The part of a site block that a listener serves: the indexes of some of its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SitePart {
    pub(crate) site: usize,
    keys: Vec<usize>,
}

impl SitePart {
    /// Its hosts, sorted. Empty if one of its addresses is for every host.
    pub(crate) fn hosts(&self, sites: &[EvaluatedSite]) -> Vec<String> {
        if self.addresses(sites).any(|address| address.host.is_empty()) {
            return Vec::new();
        }
        BTreeSet::from_iter(self.addresses(sites).map(|address| address.host.clone())).into_iter().collect()
    }

    pub(crate) fn addresses<'a>(&'a self, sites: &'a [EvaluatedSite]) -> impl Iterator<Item = &'a Address> {
        self.keys.iter().map(|&key| &sites[self.site].addresses[key])
    }
}

/// One server: listeners that serve equal parts of sites.
#[derive(Debug)]
pub(crate) struct ServerGroup {
    /// Listener addresses with the protocols to serve on each. An empty protocol is the default.
    pub(crate) listeners: BTreeMap<String, BTreeSet<String>>,
    pub(crate) parts: Vec<SitePart>,
}

impl ServerGroup {
    /// Whether a listener is on another port than the HTTP port.
    pub(crate) fn has_listener_off_port(&self, http_port: &str) -> bool {
        self.listeners.keys().any(|listener| address::uses_other_port(listener, http_port))
    }
}

/// Maps each listener to its parts of sites, then joins listeners with equal parts.
pub(crate) fn group(sites: &[EvaluatedSite], options: &Options) -> Result<Vec<ServerGroup>, Error> {
    let mut by_listener: BTreeMap<(String, String), Vec<SitePart>> = BTreeMap::new();
    for (index, site) in sites.iter().enumerate() {
        let mut keys: BTreeMap<(String, String), Vec<usize>> = BTreeMap::new();
        for key in 0..site.keys.len() {
            for (listener, protocols) in listeners(site, key, options)? {
                for protocol in protocols {
                    keys.entry((listener.clone(), protocol)).or_default().push(key);
                }
            }
        }
        for (listener, keys) in keys {
            by_listener.entry(listener).or_default().push(SitePart { site: index, keys });
        }
    }
    let mut server_groups: Vec<ServerGroup> = Vec::new();
    let listeners: BTreeSet<String> = by_listener.keys().map(|(listener, _)| listener.clone()).collect();
    for listener in listeners {
        let own = by_listener.keys().filter(|(other, _)| *other == listener).cloned();
        for key in Vec::from_iter(own) {
            // As in Caddy: each further protocol that was joined with the first leaves a server without listeners,
            // which counts in the numbering of servers (`srvN`).
            let parts = by_listener.remove(&key).unwrap_or_default();
            let mut group = ServerGroup { listeners: BTreeMap::new(), parts };
            if !group.parts.is_empty() {
                let joined = by_listener.extract_if(.., |_, parts| *parts == group.parts).map(|(key, _)| key);
                for (listener, protocol) in Vec::from_iter(joined).into_iter().chain([key]) {
                    group.listeners.entry(listener).or_default().insert(protocol);
                }
            }
            server_groups.push(group);
        }
    }
    Ok(server_groups)
}

fn listeners(site: &EvaluatedSite, key: usize, options: &Options) -> Result<BTreeMap<String, BTreeSet<String>>, Error> {
    let address = &site.addresses[key];
    let (http, https) = (options.http_port(), options.https_port());
    let port = match (&*address.port, &*address.scheme) {
        ("", "http") => &http,
        ("", _) => &https,
        (port, _) => port,
    };
    if (address.scheme == "http" && port == https) || (address.scheme == "https" && port == http) {
        let rule = "[{}] scheme and port violate convention";
        let found = address.written.as_str().into();
        return Err(Error::at(&site.keys[key], ErrorKind::Word { rule, found }));
    }
    let own = site.outputs.iter().filter_map(|placed| match &placed.output {
        DirectiveOutput::Bind { addresses, protocols } => Some((addresses, protocols)),
        _ => None,
    });
    let mut binds = Vec::from_iter(own);
    let anywhere = (vec![String::new()], Vec::new());
    if binds.is_empty() {
        binds.extend(options.default_bind.iter().map(|(addresses, protocols)| (addresses, protocols)));
    }
    if binds.is_empty() {
        binds.push((&anywhere.0, &anywhere.1));
    }
    let mut listeners: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (addresses, protocols) in binds {
        for bind in addresses {
            let listener = address::listener(bind, port);
            // A later bind of an address replaces the protocols of an earlier one.
            let default = if protocols.is_empty() { vec![String::new()] } else { protocols.clone() };
            listeners.insert(listener, default.into_iter().collect());
        }
    }
    Ok(listeners)
}

/// Sorts each server's sites, most specific first.
pub(crate) fn sort(mut server_groups: Vec<ServerGroup>, sites: &[EvaluatedSite]) -> Vec<ServerGroup> {
    for group in &mut server_groups {
        group.parts.sort_by_cached_key(|part| Specificity::of(part, sites));
    }
    server_groups
}

/// Sort key of a site within its server. Sites for every host are last and equal to each other, and sites with
/// wildcards precede them. Otherwise longer hosts come first, then longer paths. Wildcards and placeholders do not
/// count towards the length of a host; a path has its length as written, as in Caddy.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Specificity {
    Hosts { wildcard: bool, host: Reverse<usize>, path_bytes: Reverse<usize> },
    EveryHost,
}

impl Specificity {
    fn of(part: &SitePart, sites: &[EvaluatedSite]) -> Self {
        let mut longest = ("", "");
        let mut wildcard = false;
        for address in part.addresses(sites) {
            wildcard |= address.host.is_empty() || address.host.contains('*');
            if specificity(&address.host) > specificity(longest.0) {
                longest.0 = &address.host;
            }
            if specificity(&address.path) > specificity(longest.1) {
                longest.1 = &address.path;
            }
        }
        match specificity(longest.0) {
            0 => Self::EveryHost,
            host => Self::Hosts { wildcard, host: Reverse(host), path_bytes: Reverse(longest.1.len()) },
        }
    }
}

/// Length of a host or path without `*` and without placeholders.
fn specificity(text: &str) -> usize {
    let mut length = text.len() - text.matches('*').count();
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        let Some(close) = rest[open..].find('}') else { return length };
        length = length.saturating_sub(close + 1);
        rest = &rest[open + close + 1..];
    }
    length
}

/// The HTTP app: its servers by name, and the options for all of them. Empty if there is no server.
pub(crate) fn http_app(
    server_groups: &[ServerGroup],
    sites: &[EvaluatedSite],
    named: &BTreeMap<String, NamedRoute>,
    options: &Options,
    session: &Session<'_>,
) -> Result<Map<String, Value>, Error> {
    sites.iter().for_each(|site| log::warn_of_unused(site, session));
    let mut servers = Map::new();
    let mut http = options.http_json();
    for (index, group) in server_groups.iter().enumerate() {
        refuse_ambiguity(group, sites)?;
        let mut server = ServerDraft::new(group, sites, options);
        server.named_routes(named)?;
        for part in &group.parts {
            server.site(part, session)?;
        }
        server.refuse_mixed_schemes()?;
        server.finish_policies(index)?;
        let mut name = format!("srv{index}");
        let mut json = server.json();
        let fits = |own: &&super::options::ServerOptions| {
            own.listener.is_empty() || group.listeners.contains_key(&own.listener)
        };
        // Longer listener addresses come first, so this is the most specific match.
        if let Some(own) = options.servers.iter().find(fits) {
            json.extend(own.members.clone());
            if !own.logs.is_empty()
                && let Value::Object(logs) = json.entry("logs").or_insert_with(|| json!({}))
            {
                logs.extend(own.logs.clone());
            }
            if !own.name.is_empty() {
                name.clone_from(&own.name);
            }
            if let Some(metrics) = &own.metrics {
                // As in Caddy, the nested form applies to all servers and drops every option of the global form except
                // for `per_host`.
                let global = http.get("metrics").is_some_and(|metrics| metrics.get("per_host").is_some());
                let per_host = global || metrics.contains_key("per_host");
                http.insert("metrics".into(), if per_host { json!({ "per_host": true }) } else { json!({}) });
            }
        }
        servers.insert(name, json.into());
    }
    if servers.is_empty() {
        return Ok(servers);
    }
    http.insert("servers".into(), servers.into());
    Ok(http)
}

/// Rejects two blocks with one address on one listener: only one of them could be served.
fn refuse_ambiguity(group: &ServerGroup, sites: &[EvaluatedSite]) -> Result<(), Error> {
    let mut owners: BTreeMap<&str, (usize, &Position)> = BTreeMap::new();
    for part in &group.parts {
        for &key in &part.keys {
            let token = &sites[part.site].keys[key];
            let (owner, at) = *owners.entry(&*token.text).or_insert((part.site, &token.at));
            if owner != part.site {
                let error = Error::at(token, ErrorKind::AmbiguousSite(token.text.clone()));
                return Err(error.with_note(|| format!("its first definition is at {at}")));
            }
        }
    }
    Ok(())
}

struct ServerDraft<'a> {
    group: &'a ServerGroup,
    sites: &'a [EvaluatedSite],
    options: &'a Options,
    routes: Vec<Route>,
    error_routes: Option<Vec<Route>>,
    named: Map<String, Value>,
    /// `None` if none of its sites has a logger.
    logs: Option<ServerLogs>,
    policies: ConnectionPolicies<'a>,
    /// Hosts of explicit `http://` addresses, on a server with a listener on another port than the HTTP port.
    skip: Vec<Value>,
    skipped: HashSet<&'a str>,
    /// Whether one of its sites must be served over TLS.
    secure: bool,
    /// Whether automatic HTTPS enables TLS without a connection policy here.
    automatic: bool,
}

impl<'a> ServerDraft<'a> {
    fn new(group: &'a ServerGroup, sites: &'a [EvaluatedSite], options: &'a Options) -> Self {
        let logged = group.parts.iter().any(|part| sites[part.site].loggers().next().is_some());
        Self {
            group,
            sites,
            options,
            routes: Vec::new(),
            error_routes: None,
            named: Map::new(),
            logs: logged.then(ServerLogs::default),
            policies: ConnectionPolicies::default(),
            skip: Vec::new(),
            skipped: HashSet::new(),
            secure: false,
            automatic: !options.has_auto_https_option("off"),
        }
    }

    /// Adds the named routes that the sites invoke, directly or through other named routes.
    fn named_routes(&mut self, named: &BTreeMap<String, NamedRoute>) -> Result<(), Error> {
        let invoked = self.group.parts.iter().flat_map(|part| &self.sites[part.site].invoked);
        let mut wanted = Vec::from_iter(invoked);
        while let Some((name, at)) = wanted.pop() {
            if self.named.contains_key(name) {
                // The route is already included; a cycle of invocations ends here.
                continue;
            }
            let Some(route) = named.get(name) else {
                let kind = ErrorKind::UnknownNamedRoute(name.as_str().into());
                return Err(Error::new(at.clone(), kind));
            };
            self.named.insert(name.clone(), route.route.clone());
            wanted.extend(&route.invoked);
        }
        Ok(())
    }

    fn site(&mut self, part: &'a SitePart, session: &Session<'_>) -> Result<(), Error> {
        let site = &self.sites[part.site];
        let directives = Vec::from_iter(site.tls());
        self.policies.site(part.hosts(self.sites), &directives, self.options);
        self.decide_tls(part);
        if let Some(logs) = &mut self.logs {
            logs.site(part.addresses(self.sites), site.loggers());
        }
        let matchers = site_matchers(part.addresses(self.sites));
        let handlers = site.outputs.iter().filter_map(|placed| match &placed.output {
            output @ (DirectiveOutput::Route(_) | DirectiveOutput::Routes(_)) => {
                Some(Placed { directive: placed.directive.clone(), at: placed.at.clone(), output: output.clone() })
            }
            _ => None,
        });
        let routes = route::subroute(handlers.collect(), session, RouteOrder::ByDirective)?;
        let alone = self.group.parts.len() == 1;
        append(&mut self.routes, routes, &matchers, alone);

        let errors = site.outputs.iter().filter_map(|placed| match &placed.output {
            DirectiveOutput::ErrorRoutes(routes) => Some(routes.clone()),
            _ => None,
        });
        let mut errors = Vec::from_iter(errors);
        if !errors.is_empty() {
            // Routes for specific statuses come before routes for all statuses.
            let general = |routes: &Vec<Route>| routes.first().is_none_or(|route| route.matchers.is_empty());
            errors.sort_by_key(general);
            append(self.error_routes.get_or_insert_default(), errors.concat(), &matchers, alone);
        }
        Ok(())
    }

    /// As Caddy decides whether the server needs a TLS connection policy. The conditions follow its `httpcaddyfile`.
    fn decide_tls(&mut self, part: &'a SitePart) {
        let (http, https) = (self.options.http_port(), self.options.https_port());
        let mixed = self.group.has_listener_off_port(&http);
        let configured = self.sites[part.site].tls().next().is_some();
        for address in part.addresses(self.sites) {
            let host = &*address.host;
            if mixed && address.scheme == "http" && !host.is_empty() && self.skipped.insert(host) {
                self.skip.push(host.into());
            }
            let named = configured || (!host.is_empty() && !self.skipped.contains(host));
            self.secure |= address.scheme == "https" || (address.scheme != "http" && address.port != http && named);
            self.automatic &= address.port == https || (address.port != http && !address.host.is_empty());
        }
    }

    /// Finalises the TLS connection policies. Adds one for every name, unless one exists or automatic HTTPS will add
    /// it.
    fn finish_policies(&mut self, index: usize) -> Result<(), Error> {
        let options = self.options;
        self.policies.exempt_from_client_authentication();
        let wanted = !self.policies.is_empty()
            || !self.automatic
            || !options.default_sni.is_empty()
            || !options.fallback_sni.is_empty();
        if let Some(first) = self.group.parts.first()
            && self.secure
            && self.policies.lacks_every_name()
            && wanted
        {
            self.policies.push_default(options, &self.sites[first.site].keys[0].at);
        }
        self.policies.consolidate(index)
    }

    /// Rejects a listener that would have to serve both HTTP and HTTPS.
    fn refuse_mixed_schemes(&self) -> Result<(), Error> {
        let (http, https) = (self.options.http_port(), self.options.https_port());
        let is_secure = |address: &Address| {
            if address.scheme == "http" || address.port == http {
                Some(false)
            } else if address.scheme == "https" || address.port == https || !self.policies.is_empty() {
                Some(true)
            } else {
                // With a host, automatic HTTPS decides.
                address.host.is_empty().then_some(false)
            }
        };
        let listeners = || Vec::from_iter(self.group.listeners.keys().map(String::as_str)).join(" ");
        let keys = self.group.parts.iter().flat_map(|part| part.keys.iter().map(|&key| (&self.sites[part.site], key)));
        // The first address that decides sets the scheme; a later one must agree with it.
        let mut seen = None;
        for (site, key) in keys {
            let address = &site.addresses[key];
            let Some(secure) = is_secure(address) else { continue };
            let sentence = match seen {
                None if !secure && !self.policies.is_empty() => format!(
                    "server listening on [{}] is HTTP, but attempts to configure TLS connection policies",
                    listeners()
                ),
                None => {
                    seen = Some(secure);
                    continue;
                }
                Some(seen) if seen == secure => continue,
                Some(seen) => {
                    let (schemes, hint) = match (seen, &*address.scheme) {
                        (true, "") if address.host.is_empty() => ("HTTPS", " (try specifying https:// in the address)"),
                        (true, _) => ("HTTPS", ""),
                        (false, _) => ("HTTP", ""),
                    };
                    format!(
                        "server listening on [{}] is configured for {schemes} and cannot natively multiplex HTTP and \
                         HTTPS: {}{hint}",
                        listeners(),
                        site.keys[key].text
                    )
                }
            };
            return Err(Error::at(&site.keys[key], ErrorKind::Custom(sentence.into())));
        }
        Ok(())
    }

    fn json(self) -> Map<String, Value> {
        let listeners = &self.group.listeners;
        let mut server = Map::new();
        if !listeners.is_empty() {
            server.insert("listen".into(), listeners.keys().map(|listener| Value::from(listener.as_str())).collect());
        }
        let protocols = |protocols: &BTreeSet<String>| match protocols.iter().all(String::is_empty) {
            true => Value::Null,
            false => protocols.iter().map(|protocol| Value::from(protocol.as_str())).collect(),
        };
        let protocols = Vec::from_iter(listeners.values().map(protocols));
        if protocols.iter().any(|own| !own.is_null()) {
            server.insert("listen_protocols".into(), protocols.into());
        }
        let policies = self.policies.json();
        let routes = route::consolidate(self.routes);
        if !routes.is_empty() {
            server.insert("routes".into(), route::json(&routes));
        }
        if let Some(routes) = &self.error_routes {
            let errors = if routes.is_empty() { json!({}) } else { json!({ "routes": route::json(routes) }) };
            server.insert("errors".into(), errors);
        }
        if !self.named.is_empty() {
            server.insert("named_routes".into(), self.named.into());
        }
        if !policies.is_empty() {
            server.insert("tls_connection_policies".into(), policies.into());
        }
        let automatic = [
            ("off", "disable"),
            ("disable_redirects", "disable_redirects"),
            ("disable_certs", "disable_certificates"),
            ("ignore_loaded_certs", "ignore_loaded_certificates"),
        ];
        let chosen = automatic.into_iter().filter(|(word, _)| self.options.has_auto_https_option(word));
        let mut automatic: Map<String, Value> = chosen.map(|(_, key)| (key.to_owned(), true.into())).collect();
        if !self.skip.is_empty() {
            automatic.insert("skip".into(), self.skip.into());
        }
        if !automatic.is_empty() {
            server.insert("automatic_https".into(), automatic.into());
        }
        if let Some(logs) = self.logs {
            server.insert("logs".into(), logs.json().into());
        }
        server
    }
}

/// The matcher sets for a site's addresses: one set for each path, with its hosts. As in Caddy, hosts after an address
/// for every host are ignored.
fn site_matchers<'a>(addresses: impl Iterator<Item = &'a Address>) -> Vec<MatcherSet> {
    let mut sets: Vec<(Vec<Value>, &str)> = Vec::new();
    let mut places = HashMap::new();
    let mut named = HashSet::new();
    let mut every_host = false;
    for address in addresses {
        let index = *places.entry(&*address.path).or_insert_with(|| {
            sets.push((Vec::new(), &address.path));
            sets.len() - 1
        });
        let hosts = &mut sets[index].0;
        if address.host.is_empty() && !every_host {
            hosts.clear();
            every_host = true;
        }
        if !every_host && named.insert((index, &*address.host)) {
            hosts.push((&*address.host).into());
        }
    }
    let set = |(hosts, path): (Vec<Value>, &str)| {
        let mut set = MatcherSet::new();
        if !hosts.is_empty() {
            set.insert("host".into(), hosts.into());
        }
        if !path.is_empty() {
            set.insert("path".into(), json!([path]));
        }
        set
    };
    sets.into_iter().map(set).filter(|set| !set.is_empty()).collect()
}

/// Appends a site's routes to its server's, as one terminal route. A single site for every request needs no wrapping
/// route, unless its routes match hosts: automatic HTTPS would take those for the site's own names.
fn append(list: &mut Vec<Route>, routes: Vec<Route>, matchers: &[MatcherSet], alone: bool) {
    let names_host = || routes.iter().any(|route| route.matchers.iter().any(|set| set.contains_key("host")));
    if matchers.is_empty() && alone && !names_host() {
        list.extend(routes);
        return;
    }
    if matchers.is_empty() && routes.is_empty() {
        return;
    }
    let handlers = if routes.is_empty() { Vec::new() } else { vec![route::subroute_handler(&routes)] };
    list.push(Route { group: None, matchers: matchers.to_vec(), handlers, terminal: true });
}
