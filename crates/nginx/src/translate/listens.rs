//! The addresses of a server: `listen`.

use std::collections::{BTreeMap, BTreeSet};

use super::{Translator, own};
use crate::parse::Directive;

/// An address of `listen`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listen {
    pub(super) bind: Option<String>,
    pub(super) port: u16,
    pub(super) tls: bool,
    pub(super) default: bool,
}

impl Listen {
    pub(super) fn is_unix(&self) -> bool {
        self.bind.as_ref().is_some_and(|bind| bind.starts_with("unix/"))
    }

    /// The address of a site for a host; an empty one is any.
    pub(super) fn address(&self, host: &str) -> String {
        let (scheme, usual) = if self.tls { ("https", 443) } else { ("http", 80) };
        let port = if self.port == usual && !host.is_empty() { String::new() } else { format!(":{}", self.port) };
        format!("{scheme}://{host}{port}")
    }
}

/// The server of each address and port that takes the requests for hosts without one.
pub(super) type Defaults = BTreeMap<(Option<String>, u16), usize>;

/// The part of a server's addresses that one site can have: all its ports are open on all the addresses of `bind`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SiteAddresses<'a> {
    pub(super) binds: Vec<String>,
    pub(super) tls: bool,
    pub(super) listens: Vec<&'a Listen>,
}

/// Divides the addresses of a server into those of sites: without TLS and with it, since only one of them has a
/// certificate, and by the addresses of `bind`.
pub(super) fn site_addresses<'a>(
    listens: &'a [Listen],
    is_default: impl Fn(&Listen) -> bool,
) -> Vec<SiteAddresses<'a>> {
    let mut sites: Vec<SiteAddresses<'a>> = Vec::new();
    for tls in [false, true] {
        let mut by_bind: Vec<(&Option<String>, Vec<&Listen>)> = Vec::new();
        for listen in listens.iter().filter(|listen| listen.tls == tls) {
            match by_bind.iter_mut().find(|(bind, _)| **bind == listen.bind) {
                Some((_, same)) => same.push(listen),
                None => by_bind.push((&listen.bind, vec![listen])),
            }
        }
        for (bind, listens) in by_bind {
            let ports = |listens: &[&Listen]| -> BTreeSet<(u16, bool)> {
                listens.iter().map(|listen| (listen.port, is_default(listen))).collect()
            };
            let is_equal = |site: &&mut SiteAddresses<'_>| {
                site.tls == tls && !site.binds.is_empty() && ports(&site.listens) == ports(&listens)
            };
            match (bind, sites.iter_mut().find(is_equal)) {
                (Some(bind), Some(site)) => site.binds.push(bind.clone()),
                _ => sites.push(SiteAddresses { binds: bind.iter().cloned().collect(), tls, listens }),
            }
        }
    }
    sites
}

impl Translator<'_> {
    /// The addresses of a server.
    pub(super) fn read_listens(&mut self, out: &mut Vec<String>, server: &Directive) -> Vec<Listen> {
        let ssl = own(server, "ssl").last().is_some_and(|d| d.argument(0) == "on");
        let mut listens: Vec<Listen> = Vec::new();
        for directive in own(server, "listen") {
            let address = directive.argument(0);
            let word = |name: &str| directive.arguments.iter().any(|w| w == name);
            if let Some(path) = address.strip_prefix("unix:") {
                if own(server, "listen").len() > 1 {
                    let reason = format!("beside other addresses; write a second site with `bind unix/{path}`");
                    self.note(out, directive, &reason);
                    continue;
                }
                let tls = ssl || word("ssl");
                let port = if tls { 443 } else { 80 };
                listens.push(Listen { bind: Some(format!("unix/{path}")), port, tls, default: false });
                continue;
            }
            let (host, port) = match address.rsplit_once(':') {
                Some((host, port)) if !address.ends_with(']') => (host, port),
                _ if address.bytes().all(|b| b.is_ascii_digit()) => ("", address),
                _ => (address, "80"),
            };
            let Ok(port) = port.parse() else {
                self.note(out, directive, &format!("found the port '{port}', expected a number"));
                continue;
            };
            let host = host.trim_matches(['[', ']']);
            let bind = (!matches!(host, "" | "*" | "::" | "0.0.0.0")).then(|| host.to_owned());
            if word("proxy_protocol") {
                self.note(out, directive, "write the global option `servers { listener_wrappers { proxy_protocol } }`");
            }
            if word("quic") {
                self.note(out, directive, "this version does not serve HTTP/3");
                continue;
            }
            let tls = ssl || word("ssl");
            if matches!((port, tls), (443, false) | (80, true)) {
                self.note(out, directive, "a site cannot be without TLS on port 443, or with it on port 80");
                continue;
            }
            let listen = Listen { bind, port, tls, default: word("default_server") || word("default") };
            if !listens.contains(&listen) {
                listens.push(listen);
            }
        }
        if own(server, "listen").is_empty() {
            listens.push(Listen { bind: None, port: 80, tls: false, default: false });
        }
        listens
    }
}
