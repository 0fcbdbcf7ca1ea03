//! Public issuers by the configuration: their accounts, proxies, DNS providers and challenges.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use causeway_acme::challenge::{self, AuthoritiesOf};
use causeway_acme::http::{NetworkProxy, ProxyChoice};
use causeway_acme::{
    AccountKey, ChainPreference, DnsChallenge, DnsProvider, ExternalAccount, Issuer, LETS_ENCRYPT,
    LETS_ENCRYPT_STAGING, PROPAGATION_TIMEOUT, PublicIssuer, Timing, ZeroSslIssuer,
};
use causeway_certs::SharedStorage;
use causeway_config::plan::{self, PlanError, PropagationLimit, ProxySetting, PublicName, SignedName};
use causeway_pipeline::BuildError;
use causeway_pipeline::build::Problem;

use super::issuance_plan::IssuancePlan;
use super::storage::Storages;

/// The issuers of a name, in the order in which they are tried.
pub(super) fn issuers(written: &PublicName) -> Vec<PublicIssuer> {
    let acme = |written: &plan::AcmeIssuer| {
        let defaults = Issuer::default();
        let directory = if written.ca.is_empty() { defaults.directory } else { directory_url(&written.ca) };
        let test_directory = match &*written.test_ca {
            "" if directory == LETS_ENCRYPT => Some(LETS_ENCRYPT_STAGING.to_owned()),
            "" => None,
            test => Some(directory_url(test)),
        };
        Issuer {
            directory,
            test_directory,
            email: written.email.clone(),
            external_account: written
                .external_account
                .clone()
                .map(|plan::ExternalAccount { key_id, mac_key }| ExternalAccount { key_id, mac_key: mac_key.0 }),
            // `check` has refused texts that cannot be used.
            account_key: account_key(written).unwrap_or_default(),
            proxy: proxy(written).unwrap_or_default(),
            roots: written.roots.clone(),
            profile: written.profile.clone(),
            lifetime: written.lifetime,
            chains: written.chains.as_deref().map(chain_preference),
            allows_http01: written.allows_http01,
            allows_tls_alpn01: written.allows_tls_alpn01,
            is_distributed: written.is_distributed,
            dns: written.dns.as_deref().and_then(dns_challenge),
            timing: Timing::default(),
        }
    };
    let issuer = |written: &plan::PublicIssuer| match written {
        plan::PublicIssuer::Acme(written) => PublicIssuer::Acme(Box::new(acme(written))),
        plan::PublicIssuer::ZeroSsl(written) => {
            PublicIssuer::ZeroSsl(ZeroSslIssuer::new(written.api_key.0.clone(), written.validity_days))
        }
    };
    written.issuers.iter().map(issuer).collect()
}

/// As in CertMagic, a URL without a scheme is an HTTPS one.
fn directory_url(written: &str) -> String {
    if written.contains("://") { written.to_owned() } else { format!("https://{written}") }
}

fn chain_preference(written: &plan::PreferredChains) -> ChainPreference {
    ChainPreference {
        smallest: written.smallest,
        any_common_names: written.any_common_names.clone(),
        root_common_names: written.root_common_names.clone(),
    }
}

/// Returns the lookup of the authorities with which a name can have an open challenge in `storage`: for the names of
/// `plans`, and for those of which a handshake obtains the certificate.
pub(super) fn authorities_of(
    plans: &[IssuancePlan],
    on_demand: Option<plan::OnDemand>,
    storages: &Storages,
    storage: &SharedStorage,
) -> AuthoritiesOf {
    // Thousands of names have few different lists.
    let mut lists: HashSet<Arc<[String]>> = HashSet::new();
    let mut names = HashMap::with_capacity(plans.len());
    let there = plans.iter().filter(|plan| Arc::ptr_eq(plan.storage(storages.default_storage()), storage));
    for plan in there {
        let keys = challenge_storage_names(plan.issuers());
        let list = match lists.get(&*keys) {
            Some(list) => Arc::clone(list),
            None => Arc::from(keys),
        };
        lists.insert(Arc::clone(&list));
        let name = &plan.public().name;
        // An IP address has another name in a ClientHello.
        names.insert(challenge::server_name(name), Arc::clone(&list));
        names.insert(name.clone(), list);
    }
    let (storages, storage) = (storages.clone(), Arc::clone(storage));
    Box::new(move |name| match (names.get(name), &on_demand) {
        (Some(list), _) => Some(Arc::clone(list)).filter(|list| !list.is_empty()),
        (None, Some(on_demand)) => match on_demand.name(name)? {
            SignedName::Public(written) => {
                let is_there = Arc::ptr_eq(storages.of(written.storage.as_ref()), &storage);
                is_there.then(|| Arc::from(challenge_storage_names(&issuers(&written))))
            }
            SignedName::Local(_) => None,
        },
        (None, None) => None,
    })
}

/// The storage keys of the authorities whose challenges are in storage.
fn challenge_storage_names(issuers: &[PublicIssuer]) -> Vec<String> {
    issuers.iter().flat_map(PublicIssuer::challenge_storage_names).collect()
}

/// Checks the settings of DNS providers and issuers, as far as the configuration's own code does not.
pub(super) fn check(certificates: &plan::Certificates) -> Result<(), PlanError> {
    for provider in &certificates.dns_providers {
        dns_provider(provider)?;
    }
    for (path, issuer) in &certificates.acme_issuers {
        let refuse = |key: &str, found: String, expected: &'static str| BuildError {
            path: format!("{path}.{key}"),
            problem: Problem::Value { found, expected: expected.into() },
        };
        for (key, url) in [("ca", &issuer.ca), ("test_ca", &issuer.test_ca)] {
            // DEVIATES from CertMagic: RFC 8555 §6.1 requires HTTPS also of authorities in the local network.
            let is_https = url.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"));
            if url.contains("://") && !is_https {
                return Err(refuse(key, url.clone(), "a URL of the scheme https").into());
            }
        }
        account_key(issuer).map_err(|found| refuse("account_key", found, "a P-256 key as PEM"))?;
        proxy(issuer).map_err(|found| refuse("network_proxy.url", found, NetworkProxy::EXPECTED))?;
    }
    Ok(())
}

/// The key of the issuer's account.
///
/// # Errors
/// A description of a text that is not a key, without the text itself.
fn account_key(written: &plan::AcmeIssuer) -> Result<Option<AccountKey>, String> {
    let Some(plan::Secret(text)) = &written.account_key else { return Ok(None) };
    let describe = || if text.is_empty() { String::new() } else { format!("(another text of {} bytes)", text.len()) };
    AccountKey::from_pem(text).map(Some).ok_or_else(describe)
}

/// The proxy for the issuer's requests.
///
/// # Errors
/// The text that is not a URL of a proxy, without the credentials in it.
fn proxy(written: &plan::AcmeIssuer) -> Result<ProxyChoice, String> {
    Ok(match &written.proxy {
        ProxySetting::Environment => ProxyChoice::environment(),
        ProxySetting::Direct => ProxyChoice::Direct,
        ProxySetting::Url(plan::Secret(url)) => {
            ProxyChoice::Proxy(url.parse().map_err(|_| match url.rsplit_once('@') {
                Some((_, host)) => format!("(credentials)@{host}"),
                None => url.clone(),
            })?)
        }
    })
}

fn dns_provider(written: &plan::DnsProvider) -> Result<DnsProvider, BuildError> {
    DnsProvider::new(&written.name, written.settings.clone()).map_err(|error| BuildError {
        path: format!("{}.{}", written.path, error.setting),
        problem: Problem::Value { found: error.found, expected: error.expected.into() },
    })
}

fn dns_challenge(written: &plan::DnsChallenge) -> Option<DnsChallenge> {
    Some(DnsChallenge {
        // `check` has refused providers that cannot be made.
        provider: dns_provider(&written.provider).ok()?,
        ttl: written.ttl,
        propagation_delay: written.propagation_delay,
        propagation_timeout: match written.propagation_limit {
            PropagationLimit::Default => Some(PROPAGATION_TIMEOUT),
            PropagationLimit::Unchecked => None,
            PropagationLimit::Within(limit) => Some(limit),
        },
        resolvers: written.resolvers.clone(),
        override_domain: Some(written.override_domain.clone()).filter(|name| !name.is_empty()),
    })
}

#[cfg(test)]
mod tests {
    use causeway_certs::KeyKind;

    use super::*;

    // RFC 8555 §6.1: requests to an authority use HTTPS. CertMagic adds the scheme if there is none.
    #[test]
    fn directories() {
        let issuer = |ca: &str, test_ca: &str| {
            let (ca, test_ca) = (ca.to_owned(), test_ca.to_owned());
            plan::AcmeIssuer { ca, test_ca, ..plan::AcmeIssuer::default() }
        };
        let expected = "expected a URL of the scheme https";
        for (ca, test_ca, want) in [
            ("", "", String::new()),
            ("https://a.example/dir", "HTTPS://b.example", String::new()),
            ("a.example:14000/dir", "b.example", String::new()),
            ("http://localhost:1/dir", "", format!("at.ca: found 'http://localhost:1/dir', {expected}")),
            ("", "ftp://b.example", format!("at.test_ca: found 'ftp://b.example', {expected}")),
        ] {
            let acme_issuers = vec![("at".to_owned(), issuer(ca, test_ca))];
            let certificates = plan::Certificates { acme_issuers, ..plan::Certificates::default() };
            let found = check(&certificates).err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(found, want, "{ca} {test_ca}");
        }
        assert_eq!(directory_url("a.example:14000/dir"), "https://a.example:14000/dir");
        assert_eq!(directory_url("https://a.example/dir"), "https://a.example/dir");
    }

    // Caddy's documentation of `account_key`, a private key as PEM, and of `network_proxy`. The messages do not show
    // secrets.
    #[test]
    fn refused_settings() {
        let secret = |text: &str| plan::Secret(text.to_owned());
        let key = causeway_certs::generate_key(KeyKind::P256).unwrap().serialize_pem();
        let other = causeway_certs::generate_key(KeyKind::P384).unwrap().serialize_pem();
        let expected = NetworkProxy::EXPECTED;
        for (account_key, proxy, want) in [
            (None, "http://ann:secret@p.example:3128", String::new()),
            (Some(&*key), "socks5://p.example", String::new()),
            (Some(""), "http://p", "at.account_key: found '', expected a P-256 key as PEM".to_owned()),
            (
                Some("secret"),
                "http://p",
                "at.account_key: found '(another text of 6 bytes)', expected a P-256 key as PEM".to_owned(),
            ),
            (
                Some(&*other),
                "http://p",
                format!("at.account_key: found '(another text of {} bytes)', expected a P-256 key as PEM", other.len()),
            ),
            (None, "", format!("at.network_proxy.url: found '', expected {expected}")),
            (None, "ftp://u:secret@p", format!("at.network_proxy.url: found '(credentials)@p', expected {expected}")),
        ] {
            let issuer = plan::AcmeIssuer {
                account_key: account_key.map(secret),
                proxy: ProxySetting::Url(secret(proxy)),
                ..plan::AcmeIssuer::default()
            };
            let certificates =
                plan::Certificates { acme_issuers: vec![("at".to_owned(), issuer)], ..plan::Certificates::default() };
            let found = check(&certificates).err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(found, want, "{proxy}");
        }
    }
}
