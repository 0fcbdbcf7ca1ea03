//! The TLS app: the certificates to load and to obtain, and the automation policies.
//!
//! - [`tls_app`]: the app, from the sites and the global block
//! - `policy`: automation policies, their order, and joining of equal ones

mod policy;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::EvaluatedSite;
use super::error::{Error, ErrorKind};
use super::members::Members;
use super::options::{Options, StorageClean};
use super::position::Position;
use super::registry::DirectiveOutput;
use super::servers::{ServerGroup, SitePart};
use super::tls::{Issuer, Tls, complete};
use crate::names::{self, covers};

use policy::{AutomationPolicyDraft, consolidate};

/// The app's members. Empty if it needs no configuration.
pub(crate) fn tls_app(
    server_groups: &[ServerGroup],
    sites: &[EvaluatedSite],
    options: &Options,
) -> Result<Map<String, Value>, Error> {
    let mut automation = Automation::new(sites, options)?;
    let shared = automation.shared(server_groups);
    let http_port = options.http_port();
    // Servers and addresses for plain HTTP only need no certificates.
    for group in server_groups.iter().filter(|group| group.has_listener_off_port(&http_port)) {
        for part in &group.parts {
            if part.addresses(sites).any(|address| address.scheme != "http") {
                automation.site(part)?;
            }
        }
    }
    automation.outer_names()?;
    automation.automate(&shared)?;
    let policies = automation.finish()?;

    let global = &options.certificates;
    let mut certificates = Map::new();
    certificates.list("load_files", automation.files);
    certificates.list("load_folders", automation.directories);
    certificates.list("automate", automation.automated.iter().map(|name| name.as_str().into()).collect());
    let mut json = Map::new();
    json.list("policies", policies);
    if let Some(on_demand) = &global.on_demand {
        json.insert("on_demand".into(), on_demand.clone());
    }
    json.number("ocsp_interval", global.ocsp_interval);
    json.number("renew_interval", global.renew_interval);
    let mut tls = Map::new();
    match global.storage_clean {
        StorageClean::Every(interval) => json.number("storage_clean_interval", interval),
        StorageClean::Never => tls.switch_on("disable_storage_clean"),
    }
    for (key, members) in [("certificates", certificates), ("automation", json)] {
        if !members.is_empty() {
            tls.insert(key.into(), members.into());
        }
    }
    tls.extend(global.dns.clone().map(|provider| ("dns".to_owned(), provider)));
    tls.list("resolvers", global.resolvers.iter().map(|resolver| resolver.as_str().into()).collect());
    if !global.ech.is_empty() {
        let configs = Vec::from_iter(global.ech.iter().map(|name| json!({ "public_name": name })));
        let mut ech = Map::from_iter([("configs".to_owned(), configs.into())]);
        ech.list("publication", global.ech_publication.clone());
        tls.insert("encrypted_client_hello".into(), ech.into());
    }
    for (key, on) in
        [("disable_storage_check", global.no_storage_check), ("disable_ocsp_stapling", global.no_ocsp_stapling)]
    {
        if on {
            tls.switch_on(key);
        }
    }
    Ok(tls)
}

/// The automation policies while they are collected. As in Caddy, sites can share a policy or an issuer, and an
/// addition by one site applies to all of them. Therefore both are referred to by index.
struct Automation<'a> {
    sites: &'a [EvaluatedSite],
    options: &'a Options,
    issuers: Vec<Issuer>,
    /// The issuers of the global block.
    global_issuers: Vec<usize>,
    /// The issuers of each site. A site on several listeners keeps one list.
    site_issuers: BTreeMap<usize, Vec<usize>>,
    policies: Vec<AutomationPolicyDraft>,
    /// The policies in order. A policy can occur more than once.
    order: Vec<usize>,
    /// The policy for all names without a policy of their own.
    every_name: Option<usize>,
    /// Names that sites force to be certified, even if a wildcard covers them.
    forced: BTreeSet<String>,
    automated: BTreeSet<String>,
    files: Vec<Value>,
    directories: Vec<Value>,
}

impl<'a> Automation<'a> {
    fn new(sites: &'a [EvaluatedSite], options: &'a Options) -> Result<Self, Error> {
        let issuers = options.certificates.issuers.clone();
        let mut automation = Self {
            sites,
            options,
            global_issuers: (0..issuers.len()).collect(),
            issuers,
            site_issuers: BTreeMap::new(),
            policies: Vec::new(),
            order: Vec::new(),
            every_name: None,
            forced: BTreeSet::new(),
            automated: BTreeSet::new(),
            files: Vec::new(),
            directories: Vec::new(),
        };
        if options.certificates.change_policies() {
            let base = automation.base()?;
            automation.every_name = Some(automation.push(base));
        }
        Ok(automation)
    }

    fn push(&mut self, policy: AutomationPolicyDraft) -> usize {
        self.policies.push(policy);
        self.order.push(self.policies.len() - 1);
        self.policies.len() - 1
    }

    /// A new policy with the settings of the global block.
    fn base(&mut self) -> Result<AutomationPolicyDraft, Error> {
        let global = &self.options.certificates;
        let mut policy = AutomationPolicyDraft::default();
        if !global.change_policies() {
            return Ok(policy);
        }
        policy.key_type = global.key_type.clone().unwrap_or_default();
        if let (Some(at), false) = (&global.local_certs, self.global_issuers.is_empty()) {
            let rule = "global options are ambiguous: local_certs is confusing when combined with cert_issuer, because \
                        local_certs is also a specific kind of issuer";
            return Err(Error::new(at.clone(), ErrorKind::Rule(rule)));
        }
        if !self.global_issuers.is_empty() {
            policy.issuers.clone_from(&self.global_issuers);
        } else if global.local_certs.is_some() {
            self.issuers.push(Issuer::internal());
            policy.issuers.push(self.issuers.len() - 1);
        }
        if global.complete_issuers_early() {
            self.complete(&policy.issuers)?;
        }
        policy.no_ocsp_stapling = global.no_ocsp_stapling;
        policy.renewal_window_ratio.clone_from(&global.renewal_window_ratio);
        Ok(policy)
    }

    /// Adds the global block's ACME settings to the issuers.
    fn complete(&mut self, issuers: &[usize]) -> Result<(), Error> {
        for &index in issuers {
            if let Some(acme) = self.issuers[index].acme_mut() {
                complete(acme, self.options)?;
            }
        }
        Ok(())
    }

    /// Hosts listed next to an address for every host. They appear in no matcher, so automatic HTTPS would not find
    /// them.
    fn shared(&self, server_groups: &[ServerGroup]) -> BTreeSet<String> {
        let mut shared = BTreeSet::new();
        if self.options.has_auto_https_option("off") {
            return shared;
        }
        for part in server_groups.iter().flat_map(|group| &group.parts) {
            if part.addresses(self.sites).any(|address| address.host.is_empty()) {
                shared.extend(self.secure_names(part));
            }
        }
        shared
    }

    /// A site's names that are served over TLS, sorted.
    fn secure_names(&self, part: &SitePart) -> Vec<String> {
        let http_port = self.options.http_port();
        let secure = part
            .addresses(self.sites)
            .filter(|address| address.scheme != "http" && address.port != http_port && !address.host.is_empty());
        BTreeSet::from_iter(secure.map(|address| address.host.clone())).into_iter().collect()
    }

    /// The issuers of a site. They are added at the first call; later calls return the same indexes.
    fn own_issuers(&mut self, site: usize, directives: &[&Tls]) -> Vec<usize> {
        if let Some(known) = self.site_issuers.get(&site) {
            return known.clone();
        }
        let first = self.issuers.len();
        self.issuers.extend(directives.iter().flat_map(|tls| tls.issuers.iter().cloned()));
        let own = Vec::from_iter(first..self.issuers.len());
        self.site_issuers.insert(site, own.clone());
        own
    }

    /// Adds a site's policy.
    fn site(&mut self, part: &SitePart) -> Result<(), Error> {
        let (sites, options) = (self.sites, self.options);
        let site = &sites[part.site];
        let directives = Vec::from_iter(site.tls().map(|(tls, _)| tls));
        let hosts = part.hosts(sites);
        let base = self.base()?;
        // A site for every host changes the default policy instead of adding one.
        let index = match self.every_name {
            Some(index) if hosts.is_empty() => index,
            _ => {
                self.policies.push(base);
                self.policies.len() - 1
            }
        };
        let is_default = self.every_name == Some(index);
        if directives.iter().any(|tls| tls.force_automate) {
            self.forced.extend(hosts.iter().cloned());
        }
        let policy = &mut self.policies[index];
        policy.on_demand |= directives.iter().any(|tls| tls.on_demand);
        policy.reuse_private_keys |= directives.iter().any(|tls| tls.reuse_private_keys);
        if let Some(key_type) = directives.iter().map(|tls| &tls.key_type).find(|key_type| !key_type.is_empty()) {
            policy.key_type.clone_from(key_type);
        }
        let ratio = directives.iter().find_map(|tls| tls.renewal_window_ratio.as_ref());
        if let Some(ratio) = ratio.or(options.certificates.renewal_window_ratio.as_ref()) {
            policy.renewal_window_ratio = Some(ratio.clone());
        }
        let own = self.own_issuers(part.site, &directives);
        if !own.is_empty() {
            let differ = {
                let known = self.policies[index].issuers.iter().map(|&index| &self.issuers[index]);
                !known.eq(own.iter().map(|&index| &self.issuers[index]))
            };
            if is_default && differ {
                let rule = "automation policy from site block is also default/catch-all policy because of key without \
                            hostname, and the two are in conflict";
                let at = site.tls().find(|(tls, _)| !tls.issuers.is_empty()).map(|(_, at)| at);
                return Err(Error::new(at.unwrap_or(&site.keys[0].at).clone(), ErrorKind::Rule(rule)));
            }
            self.policies[index].issuers = own;
        }
        self.policies[index].getters.extend(directives.iter().flat_map(|tls| tls.getters.iter().cloned()));
        self.bind_challenges(index, site);
        if hosts.is_empty() && self.every_name.is_none() {
            self.every_name = Some(index);
        }
        self.policies[index].subjects = self.secure_names(part);
        let internal = self.internal_part(index, &site.keys[0].at)?;
        // This can add the default policy again; `consolidate` joins the occurrences.
        self.order.push(index);
        if let Some(internal) = internal {
            self.push(internal);
        }
        for tls in directives {
            self.files.extend(tls.files.iter().cloned());
            self.directories.extend(tls.directories.iter().cloned());
        }
        Ok(())
    }

    /// Binds ACME challenges to the site's first `bind` address, unless `bind_host` is set.
    fn bind_challenges(&mut self, policy: usize, site: &EvaluatedSite) {
        let binds = site.outputs.iter().filter_map(|placed| match &placed.output {
            DirectiveOutput::Bind { addresses, .. } => Some(addresses),
            _ => None,
        });
        for addresses in binds {
            for &issuer in &self.policies[policy].issuers {
                let Some(acme) = self.issuers[issuer].acme_mut() else { continue };
                let challenges = acme.child("challenges");
                if challenges.text_of("bind_host").is_empty() {
                    challenges.text("bind_host", addresses.first().map_or("", String::as_str));
                }
            }
        }
    }

    /// Splits a policy without issuers if some of its names qualify only for the local authority. Those names move into
    /// a policy of their own, which is returned.
    fn internal_part(&mut self, index: usize, at: &Position) -> Result<Option<AutomationPolicyDraft>, Error> {
        let policy = &mut self.policies[index];
        if !policy.issuers.is_empty() {
            return Ok(None);
        }
        let (mut internal, mut external) = (Vec::new(), Vec::new());
        for name in policy.subjects.iter().filter(|name| !names::is_tailscale(name)) {
            if !names::qualifies(name) {
                let rule = "subject does not qualify for certificate: '{}'";
                let error = Error::new(at.clone(), ErrorKind::Word { rule, found: name.as_str().into() });
                let note = || "in an address an environment variable is written {$NAME}".to_owned();
                return Err(if name.contains("{env.") || name.contains("${") { error.with_note(note) } else { error });
            }
            if policy.certifies_publicly(name) { &mut external } else { &mut internal }.push(name.clone());
        }
        if internal.is_empty() || external.is_empty() {
            return Ok(None);
        }
        policy.subjects = external;
        let written = vec![Issuer::internal().json()];
        Ok(Some(AutomationPolicyDraft { subjects: internal, written, ..policy.clone() }))
    }

    /// Adds a policy for the public names of Encrypted Client Hello that no site's policy covers.
    fn outer_names(&mut self) -> Result<(), Error> {
        if self.options.certificates.ech.is_empty() {
            return Ok(());
        }
        let mut policy = self.base()?;
        for name in self.options.certificates.ech.iter().filter(|name| !name.is_empty()) {
            let seen = name.trim().to_lowercase();
            let mut known = self.order.iter().flat_map(|&index| &self.policies[index].subjects);
            if !known.any(|subject| covers(subject, &seen)) {
                policy.subjects.push(name.clone());
            }
        }
        if !policy.subjects.is_empty() {
            self.push(policy);
        }
        Ok(())
    }

    /// Collects names to certify that appear in no matcher: those of `shared`, those that sites force, and those of the
    /// global option `tls_automate_names`. Adds policies for them as needed.
    fn automate(&mut self, shared: &BTreeSet<String>) -> Result<(), Error> {
        let mut internal = Vec::new();
        if !self.options.has_auto_https_option("disable_certs") {
            self.automated.extend(shared.iter().cloned());
            internal.extend(shared.iter().filter(|name| !names::is_public(name)).cloned());
        }
        self.automated.append(&mut self.forced);
        let mut public = Vec::new();
        for name in &self.options.certificates.automate_names {
            let named = |index: &usize| self.policies[*index].subjects.contains(name);
            // A name that a site's policy has needs no further policy.
            if !self.automated.insert(name.clone()) || self.order.iter().any(named) {
                continue;
            }
            if names::is_public(name) { &mut public } else { &mut internal }.push(name.clone());
        }
        let global = &self.options.certificates;
        if !public.is_empty() && (global.change_policies() || global.complete_issuers()) {
            let base = self.base()?;
            self.push(AutomationPolicyDraft { subjects: public, ..base });
        }
        if !internal.is_empty() {
            let written = vec![Issuer::internal().json()];
            self.push(AutomationPolicyDraft { subjects: internal, written, ..AutomationPolicyDraft::default() });
        }
        Ok(())
    }

    /// Completes the issuers and returns the policies as JSON: ordered, with equal ones joined.
    fn finish(&mut self) -> Result<Vec<Value>, Error> {
        let global = &self.options.certificates;
        if global.complete_issuers() {
            for &index in &self.order {
                let policy = &mut self.policies[index];
                if policy.issuers.is_empty() && policy.all_public() {
                    let public = match &global.acme_ca {
                        Some(_) => vec![Issuer::any_public()],
                        None => Issuer::public(global.email.as_deref().unwrap_or_default()),
                    };
                    policy.issuers = (self.issuers.len()..self.issuers.len() + public.len()).collect();
                    self.issuers.extend(public);
                }
            }
        }
        for index in self.order.clone() {
            let issuers = self.policies[index].issuers.clone();
            self.complete(&issuers)?;
        }
        for index in self.order.clone() {
            let issuers = &self.policies[index].issuers;
            // From here on, equal issuers have equal indexes.
            let first = |&index: &usize| self.issuers.iter().position(|other| *other == self.issuers[index]);
            let issuers = Vec::from_iter(issuers.iter().filter_map(first));
            let written = Vec::from_iter(issuers.iter().map(|&index| self.issuers[index].json()));
            let policy = &mut self.policies[index];
            policy.issuers = issuers;
            if policy.written.is_empty() {
                policy.written = written;
            }
        }
        let order = consolidate(&mut self.policies, std::mem::take(&mut self.order));
        let mut seen = BTreeSet::new();
        for name in order.iter().flat_map(|&index| &self.policies[index].subjects) {
            if !seen.insert(name) {
                let rule = "hostname appears in more than one automation policy, making certificate management \
                            ambiguous: {}";
                return Err(Error::new(self.place(name), ErrorKind::Word { rule, found: name.as_str().into() }));
            }
        }
        Ok(order.iter().map(|&index| self.policies[index].json()).collect())
    }

    /// Position of the last site address with this host.
    fn place(&self, host: &str) -> Position {
        let keys = self.sites.iter().flat_map(|site| site.keys.iter().zip(&site.addresses));
        let named = keys.rev().find(|(_, address)| address.host == host);
        named.map_or_else(|| self.sites[0].keys[0].at.clone(), |(key, _)| key.at.clone())
    }
}
