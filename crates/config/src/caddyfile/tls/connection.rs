//! A server's TLS connection policies, from the `tls` directives of its sites.

use serde_json::{Map, Value, json};

use super::super::error::{Error, ErrorKind};
use super::super::members::Members;
use super::super::options::Options;
use super::super::position::Position;
use super::Tls;
use crate::names::covers;

#[derive(Debug, Clone, PartialEq)]
struct ConnectionPolicy {
    /// Its members, except for the two below.
    settings: Map<String, Value>,
    /// The server names that it matches. `None` or an empty list: all.
    names: Option<Vec<String>>,
    /// Index of its certificate selection in `selections`.
    selection: Option<usize>,
}

/// The policies of one server, in matching order.
#[derive(Default)]
pub(crate) struct ConnectionPolicies<'a> {
    policies: Vec<(ConnectionPolicy, &'a Position)>,
    /// Tags of the certificates to select from. As in Caddy, joined policies can share a selection; an addition then
    /// applies to both.
    selections: Vec<Vec<String>>,
    /// Names of the sites without TLS settings.
    unsettled: Vec<Vec<String>>,
    /// Whether the last policy added matches every name.
    every_name: bool,
}

impl<'a> ConnectionPolicies<'a> {
    /// Adds a site. `hosts` holds its names, sorted; empty if the site is for every host.
    pub(crate) fn site(&mut self, mut hosts: Vec<String>, directives: &[(&Tls, &'a Position)], options: &Options) {
        let (default, fallback) = (&options.default_sni, &options.fallback_sni);
        if directives.is_empty() {
            hosts.retain(|host| !host.contains('*'));
            self.unsettled.extend((!hosts.is_empty()).then_some(hosts));
            return;
        }
        let forced = directives.iter().any(|(tls, _)| tls.force_automate) && !hosts.is_empty();
        for (tls, at) in directives {
            let mut settings = tls.connection.clone();
            // `default_sni` or `fallback_sni` is one of the site's names: its policy then also matches handshakes
            // without a name.
            let chosen = hosts.iter().find(|host| *host == default || *host == fallback);
            if let Some(host) = chosen {
                settings.text(if host == default { "default_sni" } else { "fallback_sni" }, host);
                hosts.push(String::new());
            }
            hosts.sort();
            if hosts.is_empty() {
                settings.text("default_sni", default);
                settings.text("fallback_sni", fallback);
            }
            let selection = tls.tag.as_ref().map(|tag| {
                self.selections.push(vec![tag.clone()]);
                self.selections.len() - 1
            });
            let settled = !settings.is_empty() || selection.is_some();
            let names = (!hosts.is_empty()).then(|| hosts.clone());
            if settled || forced {
                self.every_name = names.is_none();
                self.policies.push((ConnectionPolicy { settings, names, selection }, at));
            } else {
                self.unsettled.extend(names);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.policies.is_empty()
    }

    /// Whether a handshake can match no policy.
    pub(crate) fn lacks_every_name(&self) -> bool {
        !self.every_name
    }

    /// Exempts names from the client authentication of a wildcard policy, if the names' own sites have no TLS settings.
    /// They get a copy of that policy in front of it, without client authentication.
    pub(crate) fn exempt_from_client_authentication(&mut self) {
        let mut exempted: Vec<Vec<String>> = vec![Vec::new(); self.policies.len()];
        for host in self.unsettled.iter().flatten() {
            let meant = |(policy, _): &(ConnectionPolicy, &Position)| {
                let names = policy.names.as_deref().unwrap_or_default();
                policy.settings.contains_key("client_authentication")
                    && names.iter().any(|name| name.contains('*') && covers(name, host))
            };
            // Handshakes use the first matching policy only.
            if let Some(index) = self.policies.iter().position(meant) {
                exempted[index].push(host.clone());
            }
        }
        for (index, mut hosts) in exempted.into_iter().enumerate().rev().filter(|(_, hosts)| !hosts.is_empty()) {
            hosts.sort();
            hosts.dedup();
            let (mut exemption, at) = self.policies[index].clone();
            exemption.settings.shift_remove("client_authentication");
            exemption.names = Some(hosts);
            self.policies.insert(index, (exemption, at));
        }
    }

    /// Appends a policy for all names without a policy.
    pub(crate) fn push_default(&mut self, options: &Options, at: &'a Position) {
        let mut settings = Map::new();
        settings.text("default_sni", &options.default_sni);
        settings.text("fallback_sni", &options.fallback_sni);
        self.policies.push((ConnectionPolicy { settings, names: None, selection: None }, at));
    }

    /// Moves policies for every name to the end and joins equal ones.
    ///
    /// # Errors
    /// If two policies for equal names have conflicting settings.
    pub(crate) fn consolidate(&mut self, server: usize) -> Result<(), Error> {
        self.policies.sort_by_key(|(policy, _)| policy.names.is_none());
        let mut index = 0;
        while index < self.policies.len() {
            let Some(joined) = self.join(index, server)? else {
                index += 1;
                continue;
            };
            // Stay at this index: if an earlier policy was removed, it now holds the next one.
            self.policies.remove(joined);
        }
        Ok(())
    }

    /// Joins the policy at `index` with the first other that allows it. Returns the index of the policy to remove.
    fn join(&mut self, index: usize, server: usize) -> Result<Option<usize>, Error> {
        for other in (0..self.policies.len()).filter(|other| *other != index) {
            let (own, theirs) = (&self.policies[index].0, &self.policies[other].0);
            let equal = own.settings == theirs.settings && self.tags(own) == self.tags(theirs);
            if equal && own.names == theirs.names {
                return Ok(Some(other));
            }
            if equal && other == index + 1 && own.names.is_some() && theirs.names.is_some() {
                let more = theirs.names.clone();
                self.policies[index].0.names.get_or_insert_default().extend(more.unwrap_or_default());
                return Ok(Some(other));
            }
            if own.names == theirs.names {
                self.reconcile(index, other, server)?;
                return Ok(Some(other));
            }
        }
        Ok(None)
    }

    fn tags(&self, policy: &ConnectionPolicy) -> Option<&[String]> {
        policy.selection.map(|selection| &*self.selections[selection])
    }

    /// Adds the settings of another policy for equal names.
    fn reconcile(&mut self, index: usize, other: usize, server: usize) -> Result<(), Error> {
        const RECONCILED: [(&str, &str); 8] = [
            ("alpn", "ALPN"),
            ("cipher_suites", "cipher suites"),
            ("client_authentication", "client auth configuration"),
            ("curves", "curves"),
            ("default_sni", "default SNI"),
            ("fallback_sni", "fallback SNI"),
            ("protocol_min", "min protocol"),
            ("protocol_max", "max protocol"),
        ];
        let (theirs, at) = self.policies[other].clone();
        let own = &mut self.policies[index].0;
        for (key, name) in RECONCILED {
            let Some(value) = theirs.settings.get(key) else { continue };
            match own.settings.get(key) {
                Some(known) if known != value => {
                    let sentence = format!(
                        "consolidating TLS connection policies for server {server}: two policies with same match criteria \
                         have conflicting {name}: {} vs. {}",
                        shown(known),
                        shown(value)
                    );
                    return Err(Error::new(at.clone(), ErrorKind::Custom(sentence.into())));
                }
                Some(_) => {}
                None => drop(own.settings.insert(key.to_owned(), value.clone())),
            }
        }
        match (own.selection, theirs.selection) {
            (None, selection) => own.selection = selection,
            (Some(own), Some(theirs)) => {
                for tag in self.selections[theirs].clone() {
                    if !self.selections[own].contains(&tag) {
                        self.selections[own].push(tag);
                    }
                }
            }
            (Some(_), None) => {}
        }
        Ok(())
    }

    pub(crate) fn json(&self) -> Vec<Value> {
        let json = |(policy, _): &(ConnectionPolicy, &Position)| {
            let mut json = Map::new();
            if let Some(names) = &policy.names {
                json.insert("match".into(), json!({ "sni": names }));
            }
            if let Some(tags) = self.tags(policy) {
                json.insert("certificate_selection".into(), json!({ "any_tag": tags }));
            }
            json.extend(policy.settings.clone());
            json.into()
        };
        self.policies.iter().map(json).collect()
    }
}

/// A list's words in brackets, as Caddy prints them.
fn shown(value: &Value) -> String {
    match value {
        Value::Array(list) => {
            let words = list.iter().map(|word| word.as_str().unwrap_or_default());
            format!("[{}]", Vec::from_iter(words).join(" "))
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
