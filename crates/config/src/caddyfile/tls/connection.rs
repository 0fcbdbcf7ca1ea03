//! A server's handshake policies: those of its sites' `tls` directives, with the names that they are for.

use serde_json::{Map, Value, json};

use super::super::certificates::covers;
use super::super::error::{Error, ErrorKind};
use super::super::members::Members;
use super::super::options::Options;
use super::super::position::Position;
use super::Tls;

#[derive(Debug, Clone, PartialEq)]
struct Policy {
    /// Its members, but for the two below.
    settings: Map<String, Value>,
    /// The names that it is for; without any, the empty list included, for all.
    names: Option<Vec<String>>,
    /// Which of the server's selections it uses.
    selection: Option<usize>,
}

/// The policies of one server, in the order to try them.
#[derive(Default)]
pub(crate) struct ConnectionPolicies<'a> {
    policies: Vec<(Policy, &'a Position)>,
    /// Tags of the certificates to choose from. Policies may share one, as Caddy's do: what is added to it counts for both.
    selections: Vec<Vec<String>>,
    /// Names of sites that say nothing of their handshakes.
    unsettled: Vec<Vec<String>>,
    /// Whether the last policy is for every name.
    every_name: bool,
}

impl<'a> ConnectionPolicies<'a> {
    /// Takes in what a site says; `hosts` are its names, sorted, and none where it is for every host.
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
            // A handshake without a name is for the site whose name stands for it.
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
                self.policies.push((Policy { settings, names, selection }, at));
            } else {
                self.unsettled.extend(names);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.policies.is_empty()
    }

    /// Whether a handshake may meet no policy.
    pub(crate) fn lacks_every_name(&self) -> bool {
        !self.every_name
    }

    /// Keeps the demand for a client's certificate of a policy for a wildcard from the names under it whose own sites say
    /// nothing: these get a policy of their own before it, that is equal otherwise.
    pub(crate) fn shield(&mut self) {
        let mut shielded: Vec<Vec<String>> = vec![Vec::new(); self.policies.len()];
        for host in self.unsettled.iter().flatten() {
            let meant = |(policy, _): &(Policy, &Position)| {
                let names = policy.names.as_deref().unwrap_or_default();
                policy.settings.contains_key("client_authentication")
                    && names.iter().any(|name| name.contains('*') && covers(name, host))
            };
            // Only the first is ever reached.
            if let Some(index) = self.policies.iter().position(meant) {
                shielded[index].push(host.clone());
            }
        }
        for (index, mut hosts) in shielded.into_iter().enumerate().rev().filter(|(_, hosts)| !hosts.is_empty()) {
            hosts.sort();
            hosts.dedup();
            let (mut shield, at) = self.policies[index].clone();
            shield.settings.shift_remove("client_authentication");
            shield.names = Some(hosts);
            self.policies.insert(index, (shield, at));
        }
    }

    /// Adds a policy for every name that no other is for.
    pub(crate) fn push_default(&mut self, options: &Options, at: &'a Position) {
        let mut settings = Map::new();
        settings.text("default_sni", &options.default_sni);
        settings.text("fallback_sni", &options.fallback_sni);
        self.policies.push((Policy { settings, names: None, selection: None }, at));
    }

    /// Policies for every name last; equal ones joined.
    ///
    /// # Errors
    /// Two for the same names that contradict each other.
    pub(crate) fn consolidate(&mut self, server: usize) -> Result<(), Error> {
        self.policies.sort_by_key(|(policy, _)| policy.names.is_none());
        let mut index = 0;
        while index < self.policies.len() {
            let Some(joined) = self.join(index, server)? else {
                index += 1;
                continue;
            };
            // The place is looked at again, which after an earlier policy went is that of the next one.
            self.policies.remove(joined);
        }
        Ok(())
    }

    /// Joins a policy with the first other one that it can be joined with: which one is left over.
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

    fn tags(&self, policy: &Policy) -> Option<&[String]> {
        policy.selection.map(|selection| &*self.selections[selection])
    }

    /// Gives a policy what another one for the same names says besides.
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
        let json = |(policy, _): &(Policy, &Position)| {
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
