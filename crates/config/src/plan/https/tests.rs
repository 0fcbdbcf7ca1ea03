use std::time::Duration;

use causeway_pipeline::{Context, Handler, Registry, Step};
use serde_json::json;

use super::super::tls::TlsConfig;
use super::super::{
    AcmeIssuer, CertificateGetter, CertificateReadError, CertificateReader, CertificateSource, DnsChallenge,
    DnsProvider, ExternalAccount, Loaded, PropagationLimit, ProxySetting, PublicIssuer, Secret, Storage,
    TicketKeySource, load_with,
};
use super::*;

fn registry() -> Registry {
    let mut registry = Registry::default();
    causeway_modules::register(&mut registry);
    // The server crate registers the handler of challenges; these tests only compile the plan.
    registry.register_handler("acme_challenge", |_, _| Ok(Box::new(Challenge)));
    registry
}

struct Challenge;

impl Handler for Challenge {
    fn enter(&self, _: &mut Context) -> Step {
        Step::Next
    }
}

fn read(config: &Value, loaded: &[&str]) -> Result<Loaded, String> {
    load_with(config, &registry(), &LoadedNames(Ok(loaded)), Vec::new()).map_err(|error| error.to_string())
}

/// A reader whose certificates cover these names, or cannot be loaded.
struct LoadedNames<'n>(Result<&'n [&'n str], &'n str>);

impl CertificateReader for LoadedNames<'_> {
    fn load(&self, _: &[CertificateSource], _: &Storage) -> Result<Vec<String>, CertificateReadError> {
        let names = self.0.map_err(str::to_owned)?;
        Ok(names.iter().map(|&name| name.to_owned()).collect())
    }
}

/// Lists the addresses, with suffix `s` if served over TLS, then the managed names with their authorities.
fn outcome(config: &Value, loaded: &[&str]) -> String {
    let loaded = match read(config, loaded) {
        Ok(loaded) => loaded,
        Err(error) => return error,
    };
    let listeners = loaded.listeners.iter().map(|listener| {
        let secure = if listener.tls.is_some() { "s" } else { "" };
        format!("{}{secure}", listener.socket)
    });
    let managed = loaded.certificates.managed.iter().map(|managed| format!("{}={}", managed.name, managed.authority));
    let public = loaded.certificates.public.iter().map(|public| {
        let issuers = public.issuers.iter().map(|issuer| match issuer {
            PublicIssuer::Acme(acme) => format!("acme({} {})", acme.ca, acme.email),
            PublicIssuer::ZeroSsl(zerossl) => format!("zerossl({} {:?})", zerossl.api_key.0, zerossl.validity_days),
        });
        format!("{}={}", public.name, issuers.collect::<Vec<_>>().join("+"))
    });
    listeners.chain(managed).chain(public).collect::<Vec<_>>().join(" ")
}

fn hosts(hosts: &[&str]) -> Value {
    json!([{ "match": [{ "host": hosts }] }])
}

fn server(server: Value) -> Value {
    json!({ "apps": { "http": { "servers": { "s": server } } } })
}

// Caddy's documentation of `issuers`: tried in their order. Only the local authority signs a wildcard without a DNS
// provider.
#[test]
fn the_local_authority_after_public_ones() {
    let issuers = json!([{ "module": "acme" }, { "module": "internal", "lifetime": "2h" }, { "module": "zerossl", "api_key": "k" }]);
    let config = json!({ "apps": {
        "http": { "servers": { "s": { "listen": [":443"], "routes": hosts(&["a.example", "*.b.example"]) } } },
        "tls": { "automation": { "policies": [{ "issuers": issuers }] } },
    } });
    let certificates = read(&config, &[]).unwrap().certificates;
    let [public] = &*certificates.public else { panic!("{:?}", certificates.public) };
    let fallback = public.fallback.as_ref().unwrap();
    assert_eq!((&*public.name, public.issuers.len()), ("a.example", 2));
    let lifetime = Some(Duration::from_secs(2 * 60 * 60));
    assert_eq!((&*fallback.name, &*fallback.authority, fallback.lifetime), ("a.example", LOCAL, lifetime));
    let [managed] = &*certificates.managed else { panic!("{:?}", certificates.managed) };
    assert_eq!((&*managed.name, &*managed.authority, managed.lifetime), ("*.b.example", LOCAL, lifetime));
    assert!(certificates.authorities.iter().any(|known| known.id == LOCAL));
}

// Caddy's documentation, "Automatic HTTPS: Activation": on for servers whose routes name hosts, but not on the HTTP
// port. The rest follows caddyhttp/autohttps.go.
#[test]
fn which_servers_speak_tls() {
    let local = hosts(&["localhost"]);
    for (why, config, want) in [
        ("a host on the HTTPS port", json!({ "listen": [":443"], "routes": local }), ":443s :80 localhost=local"),
        ("a host on another port", json!({ "listen": [":8443"], "routes": local }), ":8443s :80 localhost=local"),
        ("the HTTP port only", json!({ "listen": [":80"], "routes": local }), ":80"),
        ("a range that includes the HTTP port", json!({ "listen": [":79-80"], "routes": local }), ":79 :80"),
        (
            "both ports: the HTTP port stays in the clear",
            json!({ "listen": [":443", ":80"], "routes": local }),
            ":443s :80 localhost=local",
        ),
        ("the HTTPS port means TLS, even without hosts", json!({ "listen": [":443"] }), ":443s :80"),
        ("no host on another port", json!({ "listen": [":8080"] }), ":8080"),
        ("policies mean TLS", json!({ "listen": [":8443"], "tls_connection_policies": [{}] }), ":8443s :80"),
        ("no policies at all", json!({ "listen": [":8443"], "tls_connection_policies": [] }), ":8443"),
        (
            "policies apply even if automatic HTTPS is off",
            json!({ "listen": [":443"], "tls_connection_policies": [{}], "automatic_https": { "disable": true } }),
            ":443s",
        ),
        ("off", json!({ "listen": [":443"], "routes": local, "automatic_https": { "disable": true } }), ":443"),
        (
            "no redirects",
            json!({ "listen": [":443"], "routes": local, "automatic_https": { "disable_redirects": true } }),
            ":443s localhost=local",
        ),
        (
            "no certificates",
            json!({ "listen": [":443"], "routes": local, "automatic_https": { "disable_certificates": true } }),
            ":443s :80",
        ),
        (
            "a skipped host gets neither certificate nor redirect",
            json!({ "listen": [":8443"], "routes": local, "automatic_https": { "skip": ["localhost"] } }),
            ":8443",
        ),
        (
            "no certificate for one host",
            json!({ "listen": [":8443"], "routes": hosts(&["localhost", "a.localhost"]),
                    "automatic_https": { "skip_certificates": ["localhost"] } }),
            ":8443s :80 a.localhost=local",
        ),
        (
            "a host for which there can be no certificate",
            json!({ "listen": [":443"], "routes": hosts(&["a b"]) }),
            ":443s :80",
        ),
        (
            "a redirect on the same address",
            json!({ "listen": ["127.0.0.1:8443"], "routes": local }),
            "127.0.0.1:8443s 127.0.0.1:80 localhost=local",
        ),
    ] {
        assert_eq!(outcome(&server(config), &[]), want, "{why}");
    }
    // As in Caddy, 0 is the default.
    let zero = json!({ "apps": { "http": { "http_port": 0, "https_port": 0, "servers": {
        "s": { "listen": [":443"], "routes": hosts(&["localhost"]) }, "t": { "listen": [":80"] },
    } } } });
    assert_eq!(outcome(&zero, &[]), ":443s :80 localhost=local");
    let ports = json!({ "apps": { "http": { "http_port": 8080, "https_port": 8443, "servers": { "s": {
        "listen": [":8443"] } } } } });
    assert_eq!(outcome(&ports, &[]), ":8443s :8080");
}

// Caddy's documentation, "Hostname requirements" and "Local HTTPS": the local authority signs internal names and
// addresses, a public one signs all others, unless a policy or a loaded certificate overrides this.
#[test]
fn issuers_of_certificates() {
    let internal = |subjects: &[&str]| json!({ "subjects": subjects, "issuers": [{ "module": "internal" }] });
    let acme = |subjects: &[&str]| json!({ "subjects": subjects, "issuers": [{ "module": "acme", "email": "a@b" }] });
    for (why, names, policies, loaded, want) in [
        (
            "internal names",
            &["a.localhost", "b.local", "10.0.0.1"][..],
            json!([]),
            &[][..],
            "10.0.0.1=local a.localhost=local b.local=local".to_owned(),
        ),
        ("a public name", &["example.com"], json!([]), &[], "example.com=acme( )".into()),
        ("a public address without policies", &["8.8.8.8"], json!([]), &[], "8.8.8.8=local".into()),
        ("a public address with a policy", &["8.8.8.8"], json!([acme(&[])]), &[], "8.8.8.8=acme( a@b)".into()),
        (
            "a policy with its name",
            &["example.com"],
            json!([internal(&["example.com"])]),
            &[],
            "example.com=local".into(),
        ),
        (
            "a policy with a wildcard",
            &["a.example.com"],
            json!([internal(&["*.example.com"])]),
            &[],
            "a.example.com=local".into(),
        ),
        ("a policy for all", &["example.com"], json!([internal(&[])]), &[], "example.com=local".into()),
        (
            "the first policy",
            &["example.com"],
            json!([acme(&["example.com"]), internal(&[])]),
            &[],
            "example.com=acme( a@b)".into(),
        ),
        (
            "a policy for all names leaves internal names to the local authority",
            &["localhost"],
            json!([acme(&[])]),
            &[],
            "localhost=local".into(),
        ),
        (
            "an internal name in a policy of its own",
            &["localhost"],
            json!([acme(&["localhost"])]),
            &[],
            "localhost=acme( a@b)".into(),
        ),
        (
            "a policy without issuers",
            &["localhost"],
            json!([{ "subjects": ["localhost"] }]),
            &[],
            "localhost=local".into(),
        ),
        (
            "a policy without issuers, with internal and public names",
            &["localhost"],
            json!([{ "subjects": ["localhost", "example.com"] }]),
            &[],
            "localhost=acme( )".into(),
        ),
        ("a loaded certificate", &["example.com"], json!([]), &["example.com"], String::new()),
        ("a loaded wildcard", &["a.example.com"], json!([]), &["*.example.com"], String::new()),
        (
            "a loaded wildcard that does not match",
            &["b.a.example.com"],
            json!([]),
            &["*.example.com"],
            "b.a.example.com=acme( )".into(),
        ),
        ("in ASCII", &["bücher.localhost"], json!([]), &[], "xn--bcher-kva.localhost=local".into()),
        ("in lower case", &["LOCALHOST"], json!([]), &[], "localhost=local".into()),
        (
            "a managed wildcard covers the name",
            &["*.a.localhost", "b.a.localhost"],
            json!([]),
            &[],
            "*.a.localhost=local".into(),
        ),
        (
            "two authorities",
            &["example.com"],
            json!([{ "issuers": [{ "module": "acme", "ca": "https://a/dir" }, { "module": "acme", "ca": "https://b/dir" }] }]),
            &[],
            "example.com=acme(https://a/dir )+acme(https://b/dir )".into(),
        ),
        (
            "ZeroSSL's own interface, and an authority by ACME",
            &["example.com"],
            json!([{ "issuers": [
                { "module": "zerossl", "api_key": "{env.CARGO_PKG_NAME}", "validity_days": 90, "alternate_http_port": 81 },
                { "module": "acme" },
            ] }]),
            &[],
            "example.com=zerossl(causeway-config Some(90))+acme( )".into(),
        ),
        (
            "ZeroSSL's own interface verifies no wildcards here",
            &["*.example.com"],
            json!([{ "issuers": [{ "module": "zerossl", "api_key": "k" }] }]),
            &[],
            "*.example.com needs the DNS challenge of a public authority; expected a DNS provider for it, names without '*', an \
             internal issuer, a certificate that is loaded, or the site on the HTTP port only"
                .into(),
        ),
        (
            "a wildcard of a public authority",
            &["*.example.com"],
            json!([]),
            &[],
            "*.example.com needs the DNS challenge of a public authority; expected a DNS provider for it, names without '*', an \
             internal issuer, a certificate that is loaded, or the site on the HTTP port only"
                .into(),
        ),
        (
            "a wildcard and its base with a DNS provider, and a name that the wildcard covers",
            &["*.example.com", "example.com", "a.example.com"],
            json!([{ "issuers": [
                { "module": "acme", "ca": "https://a/dir" },
                { "module": "acme", "ca": "https://b/dir", "challenges": { "dns": { "provider": {
                    "name": "cloudflare", "api_token": "t",
                } } } },
            ] }]),
            &[],
            // Only the authority with the provider can sign the wildcard.
            "*.example.com=acme(https://b/dir ) example.com=acme(https://a/dir )+acme(https://b/dir )".into(),
        ),
        ("a wildcard", &["*.example.com"], json!([internal(&["*.example.com"])]), &[], "*.example.com=local".into()),
    ] {
        let config = json!({ "apps": {
            "http": { "servers": { "s": { "listen": [":443"], "routes": hosts(names),
                                          "automatic_https": { "disable_redirects": true } } } },
            "tls": { "automation": { "policies": policies } },
        } });
        let got = outcome(&config, loaded);
        assert_eq!(got.strip_prefix(":443s").unwrap_or(&got).trim(), want, "{why}");
    }
    let ignored = json!({ "listen": [":443"], "routes": hosts(&["localhost"]),
        "automatic_https": { "ignore_loaded_certificates": true } });
    assert_eq!(outcome(&server(ignored), &["localhost"]), ":443s :80 localhost=local");
    let automate = json!({ "apps": { "tls": { "certificates": { "automate": ["a.localhost"] } } } });
    assert_eq!(outcome(&automate, &[]), "a.localhost=local");
}

// Caddy's `client_certificate_automate`: the TLS app manages the name as that of a site, whether its server uses TLS or
// not.
#[test]
fn certificates_that_proxies_present() {
    let proxy = |name: &str| {
        let transport = json!({ "protocol": "http", "tls": { "client_certificate_automate": name } });
        json!({ "handler": "reverse_proxy", "transport": transport, "upstreams": [{ "dial": "localhost:1" }] })
    };
    let nested = |name: &str| json!({ "handler": "subroute", "routes": [{ "handle": [proxy(name)] }] });
    let internal = json!([{ "subjects": ["a.example.com"], "issuers": [{ "module": "internal" }] }]);
    for (why, names, policies, want) in [
        ("an internal name", &["Proxy.internal"][..], json!([]), "proxy.internal=local"),
        ("one name twice", &["a.internal", "A.internal"], json!([]), "a.internal=local"),
        ("a public name", &["a.example.com"], json!([]), "a.example.com=acme( )"),
        ("a policy", &["a.example.com"], internal, "a.example.com=local"),
        ("below a managed wildcard", &["a.x.internal", "*.x.internal"], json!([]), "*.x.internal=local"),
        ("no name", &[""], json!([]), ""),
    ] {
        let routes: Vec<_> = names.iter().map(|name| json!({ "handle": [nested(name)] })).collect();
        let mut config = server(json!({ "listen": [":8080"], "routes": routes }));
        config["apps"]["tls"] = json!({ "automation": { "policies": policies } });
        assert_eq!(outcome(&config, &[]), format!(":8080 {want}").trim_end(), "{why}");
    }
}

// Caddy's JSON of `tls.automation` and `pki`.
#[test]
fn certificate_settings_of_policies() {
    let config = json!({ "apps": {
        "http": { "servers": { "s": { "listen": [":443"], "routes": hosts(&["a.localhost"]) } } },
        "tls": { "automation": { "renew_interval": "1m", "storage_clean_interval": "12h", "policies": [{
            "subjects": ["a.localhost"], "key_type": "rsa2048", "renewal_window_ratio": 0.5, "reuse_private_keys": true,
            "issuers": [{ "module": "internal", "ca": "mine", "lifetime": "1h", "sign_with_root": true }],
            "storage": { "module": "file_system", "root": "/leaves" },
        }] } },
        "pki": { "certificate_authorities": { "mine": {
            "name": "Mine", "root_common_name": "R", "intermediate_common_name": "I", "intermediate_lifetime": "2d",
            "install_trust": false, "renewal_window_ratio": 0.1, "maintenance_interval": "1m",
            "root": { "certificate": "r.crt", "private_key": "r.key" }, "intermediate": { "certificate": "i.crt" },
            "storage": { "module": "file_system" },
        } } },
    } });
    let certificates = read(&config, &[]).unwrap_or_else(|error| panic!("{error}")).certificates;
    let day = Duration::from_secs(24 * 60 * 60);
    let want = ManagedName {
        name: "a.localhost".into(),
        authority: "mine".into(),
        lifetime: Some(day / 24),
        by_root: true,
        renewal_ratio: Some(0.5),
        key: super::super::KeyKind::Rsa2048,
        reuse_key: true,
        storage: Some(Storage::FileSystem(Some("/leaves".into()))),
    };
    assert_eq!(certificates.managed, [want]);
    assert_eq!(certificates.renewal_check_interval, Some(day / 24 / 60));
    assert_eq!(certificates.cleaning, super::super::StorageCleaning::Every(day / 2));
    let files = |certificate: &str, key: Option<&str>| {
        Some(super::super::CertificateFiles { certificate: certificate.into(), key: key.map(Into::into) })
    };
    let want = CertificateAuthority {
        id: "mine".into(),
        name: Some("Mine".into()),
        root_common_name: Some("R".into()),
        intermediate_common_name: Some("I".into()),
        intermediate_lifetime: Some(2 * day),
        renewal_ratio: Some(0.1),
        root: files("r.crt", Some("r.key")),
        intermediate: files("i.crt", None),
        storage: Some(Storage::FileSystem(None)),
    };
    assert_eq!(certificates.storages().count(), 2);
    assert_eq!(certificates.authorities, [want], "the local authority is added only if it is used");
    let pki = read(&json!({ "apps": { "pki": {} } }), &[]).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(pki.certificates.authorities, [CertificateAuthority::new("local")]);
}

// Caddy's JSON of the ACME issuer.
#[test]
fn settings_of_an_acme_issuer() {
    let root = std::env::temp_dir().join(format!("causeway-config-root-{}.pem", std::process::id()));
    std::fs::write(&root, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    let issuer = json!({
        "module": "acme", "ca": "https://a/dir", "test_ca": "https://b/dir", "email": "a@b", "profile": "short",
        "account_key": "k", "network_proxy": { "from": "url", "url": "http://{env.CARGO_PKG_NAME}:3128" },
        "external_account": { "key_id": "k", "mac_key": "mac-key" }, "acme_timeout": "10s", "trusted_roots_pem_files": [root],
        "challenges": { "http": { "disabled": true, "alternate_port": 8080 }, "tls-alpn": { "disabled": true },
                        "bind_host": "192.0.2.1", "distributed": false },
        "certificate_lifetime": "6h",
        "preferred_chains": { "smallest": true, "root_common_name": ["X1", "X2"], "any_common_name": ["Y"] },
    });
    let config = json!({ "apps": {
        "http": { "servers": { "s": { "listen": [":443"], "routes": hosts(&["example.com"]) } } },
        "tls": { "automation": { "ocsp_interval": "5m", "policies": [{
            "issuers": [issuer], "key_type": "p384", "renewal_window_ratio": 0.5,
            "must_staple": true, "disable_ocsp_stapling": true, "ocsp_overrides": { "http://a/": "https://b/", "http://c/": "" },
        }] } },
    } });
    let certificates = read(&config, &[]).unwrap_or_else(|error| panic!("{error}")).certificates;
    let want = PublicName {
        name: "example.com".into(),
        issuers: vec![PublicIssuer::Acme(Box::new(AcmeIssuer {
            ca: "https://a/dir".into(),
            test_ca: "https://b/dir".into(),
            email: "a@b".into(),
            profile: "short".into(),
            account_key: Some(Secret("k".into())),
            proxy: ProxySetting::Url(Secret("http://causeway-config:3128".into())),
            lifetime: Some(Duration::from_secs(6 * 60 * 60)),
            chains: Some(Box::new(super::super::PreferredChains {
                smallest: Some(true),
                any_common_names: vec!["Y".into()],
                root_common_names: vec!["X1".into(), "X2".into()],
            })),
            external_account: Some(ExternalAccount { key_id: "k".into(), mac_key: Secret("mac-key".into()) }),
            roots: vec![root.clone()],
            allows_http01: false,
            allows_tls_alpn01: false,
            is_distributed: false,
            dns: None,
        }))],
        fallback: None,
        renewal_ratio: Some(0.5),
        key: super::super::KeyKind::P384,
        ocsp: super::super::OcspStapling {
            is_enabled: false,
            overrides: std::sync::Arc::new(
                [("http://a/", "https://b/"), ("http://c/", "")].map(|(key, url)| (key.into(), url.into())).into(),
            ),
            must_staple: true,
        },
        storage: None,
    };
    assert_eq!(certificates.public, [want]);
    assert!(!format!("{:?}", certificates.public).contains("mac-key"));
    assert_eq!(certificates.ocsp_check_interval, Some(Duration::from_secs(300)));
    std::fs::remove_file(&root).unwrap();
}

// The members of Caddy's `challenges.dns`, and the modules `dns.providers.*`.
#[test]
fn dns_challenges() {
    // For cargo, which sets it.
    let token = "{env.CARGO_PKG_NAME}";
    let config = |dns: Value, tls: Value| {
        let mut tls = tls;
        tls["automation"] =
            json!({ "policies": [{ "issuers": [{ "module": "acme", "challenges": { "dns": dns } }] }] });
        json!({ "apps": {
            "http": { "servers": { "s": { "listen": [":443"], "routes": hosts(&["*.example.com"]) } } },
            "tls": tls,
        } })
    };
    let cloudflare = |token: &str| json!({ "name": "cloudflare", "api_token": token });
    let at = "apps.tls.automation.policies[0].issuers[0].challenges.dns";
    let read = |dns: Value, tls: Value| {
        let public = read(&config(dns, tls), &[])?.certificates.public;
        Ok::<_, String>(public[0].issuers[0].dns().unwrap().clone())
    };
    let own = read(
        json!({
            "provider": cloudflare(token), "ttl": "1m", "propagation_delay": 2_000_000_000, "propagation_timeout": -1,
            "resolvers": ["192.0.2.1"], "override_domain": "a.example",
        }),
        json!({ "dns": cloudflare("global"), "resolvers": ["192.0.2.9"] }),
    );
    let want = DnsChallenge {
        provider: DnsProvider {
            path: format!("{at}.provider"),
            name: "cloudflare".into(),
            settings: json!({ "api_token": "causeway-config" }).as_object().unwrap().clone(),
        },
        ttl: Some(Duration::from_secs(60)),
        propagation_delay: Duration::from_secs(2),
        propagation_limit: PropagationLimit::Unchecked,
        resolvers: vec!["192.0.2.1".into()],
        override_domain: "a.example".into(),
    };
    assert_eq!(own, Ok(want.clone()));
    assert!(!format!("{want:?}").contains("causeway-config"), "a secret in Debug");
    // Settings of the plugin that have no effect are in no provider.
    let route53 = json!({ "name": "route53", "access_key_id": "a", "secret_access_key": "b", "max_retries": 5, "wait_for_route53_sync": true });
    let read_route53 = read(json!({ "provider": route53 }), json!({})).unwrap();
    assert_eq!(read_route53.provider.settings.keys().collect::<Vec<_>>(), ["access_key_id", "secret_access_key"]);
    let inherited = read(json!({}), json!({ "dns": cloudflare("global"), "resolvers": ["192.0.2.9"] })).unwrap();
    assert_eq!(inherited.provider.settings["api_token"], "global");
    assert_eq!(
        (inherited.propagation_limit, inherited.resolvers, inherited.ttl),
        (PropagationLimit::Default, vec!["192.0.2.9".to_owned()], None)
    );
    let names = "acmedns, cloudflare, digitalocean, duckdns, exec, gandi, hetzner, porkbun, rfc2136, route53";
    for (dns, want) in [
        (
            json!({}),
            format!(
                "{at}: found 'no provider', expected a DNS provider here, or one for all issuers in the option `dns`"
            ),
        ),
        (
            json!({ "provider": { "name": "moon" } }),
            format!("{at}.provider.name: found 'moon', expected one of {names}"),
        ),
        (
            json!({ "provider": { "name": "cloudflare", "token": "t" } }),
            format!(
                "{at}.provider: found 'token', expected one of api_token, zone_token in the DNS provider cloudflare"
            ),
        ),
        (
            json!({ "provider": { "name": "cloudflare" } }),
            format!("{at}.provider.api_token: found '', expected a value, which the DNS provider cloudflare requires"),
        ),
        (
            json!({ "provider": cloudflare("{env.CAUSEWAY_UNSET}") }),
            format!(
                "{at}.provider.api_token: found '{{env.CAUSEWAY_UNSET}}', expected a value, which the DNS provider cloudflare \
                 requires, and not an empty one: is it set?"
            ),
        ),
        (
            json!({ "provider": { "name": "cloudflare", "api_token": 7 } }),
            format!("{at}.provider.api_token: found 'a value of another kind', expected a text"),
        ),
        (
            json!({ "provider": cloudflare("t"), "propagation_timeout": "soon" }),
            format!("{at}.propagation_timeout: found 'soon', expected a duration such as 90s, 1m30s or 250ms"),
        ),
    ] {
        assert_eq!(read(dns, json!({})), Err(want));
    }
}

// RFC 8555 §8.3: every server on the HTTP port answers challenges, first of all routes and without a route of its own;
// error paths keep the operator's route indexes.
#[test]
fn challenges_join_a_server_on_the_http_port() {
    let secure = json!({ "listen": [":443"], "routes": hosts(&["example.com"]) });
    let bad = json!([{ "handle": [{ "handler": "none" }] }]);
    let config =
        json!({ "apps": { "http": { "servers": { "a": secure, "b": { "listen": [":80"], "routes": bad } } } } });
    assert_eq!(
        outcome(&config, &[]),
        "apps.http.servers.b.routes[0].handle[0]: handler module 'none' is not supported (docs/refused.md)"
    );
    let config = |redirects: bool| {
        let mut secure = secure.clone();
        secure["automatic_https"] = json!({ "disable_redirects": !redirects });
        json!({ "apps": { "http": { "servers": { "a": secure } } } })
    };
    assert_eq!(outcome(&config(true), &[]), ":443s :80 example.com=acme( )");
    assert_eq!(outcome(&config(false), &[]), ":443s example.com=acme( )", "TLS-ALPN-01 needs no HTTP port");
}

// Caddy's documentation of `on_demand`: the certificates of such names are not obtained at start. The first policy that
// matches a name decides, and a public authority signs only names that it can verify.
#[test]
fn names_on_demand() {
    let config = |policies: Value| {
        json!({ "apps": {
            "http": { "servers": { "s": { "listen": [":443"], "routes": hosts(&["a.example", "b.example", "*.c.example"]) } } },
            "tls": { "automation": {
                "on_demand": { "permission": { "module": "http", "endpoint": "http://localhost/ask" } },
                "policies": policies,
            } },
        } })
    };
    let internal = json!([{ "module": "internal" }]);
    let policies = json!([
        { "subjects": ["a.example"] },
        { "subjects": ["*.c.example"], "on_demand": true, "issuers": internal },
        { "subjects": ["*.e.example", "e.internal"], "on_demand": true, "issuers": [{ "module": "acme" }, { "module": "internal" }] },
        { "on_demand": true },
    ]);
    let loaded = read(&config(policies), &[]).unwrap();
    let names: Vec<_> = loaded.certificates.public.iter().map(|name| &*name.name).collect();
    assert_eq!((names, loaded.certificates.managed), (vec!["a.example"], Vec::new()));
    let on_demand = loaded.certificates.on_demand.unwrap();
    assert_eq!(on_demand.permission(), Some("http://localhost/ask"));
    let by = |name: &str| match on_demand.name(name) {
        None => "nobody",
        Some(SignedName::Local(name)) if name.authority == LOCAL => "local",
        Some(SignedName::Local(_)) => "another local one",
        Some(SignedName::Public(_)) => "public",
    };
    for (name, want) in [
        ("a.example", "nobody"),
        ("b.example", "public"),
        ("x.c.example", "local"),
        ("x.y.c.example", "public"),
        ("stranger.example", "public"),
        ("localhost", "local"),
        ("x.e.example", "public"),
        ("e.internal", "local"),
        ("*.d.example", "nobody"),
        ("a_b!.example", "nobody"),
    ] {
        assert_eq!(by(name), want, "{name}");
    }
    assert!(loaded.certificates.authorities.iter().any(|authority| authority.id == LOCAL));
}

// Caddy, `getAutomationPolicyForName`: the first policy that matches a server name decides, also by wildcard and for
// internal names.
#[test]
fn internal_names_on_demand() {
    let getter = CertificateGetter::Http("http://c/".into());
    let own = json!([{ "module": "internal", "ca": "own" }]);
    let config = json!({ "apps": {
        "pki": { "certificate_authorities": { "own": {} } },
        "tls": { "automation": { "policies": [
            { "subjects": ["*.home.arpa"], "on_demand": true, "issuers": [{ "module": "internal" }] },
            { "subjects": ["*.own.internal", "*.own.localhost"], "on_demand": true, "issuers": own },
            { "subjects": ["*.source.internal"], "get_certificate": [{ "via": "http", "url": "http://c/" }] },
            { "subjects": ["*.public.example", "*.mixed.internal"], "issuers": own },
            { "on_demand": true, "issuers": [{ "module": "internal" }] },
        ] } },
    } });
    let on_demand = read(&config, &[]).unwrap().certificates.on_demand.unwrap();
    for (name, want) in [
        ("a.home.arpa", Some("local")),
        ("a.own.internal", Some("own")),
        ("a.own.localhost", Some("own")),
        ("a.source.internal", None),
        ("a.mixed.internal", None),
        ("a.b.own.internal", Some("local")),
        ("localhost", Some("local")),
    ] {
        let authority = match on_demand.name(name) {
            Some(SignedName::Local(name)) => Some(name.authority),
            Some(SignedName::Public(_)) => panic!("{name}: a public authority"),
            None => None,
        };
        assert_eq!(authority.as_deref(), want, "{name}");
        let getters = if name == "a.source.internal" { vec![getter.clone()] } else { Vec::new() };
        assert_eq!(on_demand.getters(name), getters, "{name}");
    }
}

// CertMagic, `ACMEIssuer.PreCheck`: only authorities that are known to be public refuse names of private networks.
#[test]
fn names_on_demand_of_a_private_authority() {
    let names = |ca: &str| {
        let config = json!({ "apps": { "tls": { "automation": {
            "on_demand": { "permission": { "module": "http", "endpoint": "http://localhost/ask" } },
            "policies": [{ "on_demand": true, "issuers": [{ "module": "acme", "ca": ca }] }],
        } } } });
        let on_demand = read(&config, &[]).unwrap().certificates.on_demand.unwrap();
        let is_signed = |name: &&str| matches!(on_demand.name(name), Some(SignedName::Public(_)));
        ["a.example", "x.internal", "x.localhost", "10.0.0.1", "*.x.internal", "a_b!.internal"]
            .into_iter()
            .filter(is_signed)
            .collect::<Vec<_>>()
    };
    assert_eq!(names("https://ca.internal/directory"), ["a.example", "x.internal", "x.localhost", "10.0.0.1"]);
    for public in ["", "https://acme-v02.api.letsencrypt.org/directory", "https://acme.zerossl.com/v2/DV90"] {
        assert_eq!(names(public), ["a.example"], "{public}");
    }
}

// Caddy refuses on-demand TLS without a permission if clients can choose the names that a public authority has to sign.
#[test]
fn on_demand_without_permission() {
    let config = |policy: Value| json!({ "apps": { "tls": { "automation": { "policies": [policy] } } } });
    let internal = json!([{ "module": "internal" }]);
    for (policy, is_fine) in [
        (json!({ "on_demand": true }), false),
        (json!({ "on_demand": true, "subjects": ["*.example"] }), false),
        (json!({ "on_demand": true, "issuers": [{ "module": "internal" }, { "module": "acme" }] }), false),
        (json!({ "on_demand": true, "subjects": ["a.example"] }), true),
        (json!({ "on_demand": true, "issuers": internal }), true),
        (json!({ "on_demand": false }), true),
    ] {
        let outcome = read(&config(policy.clone()), &[]).map(drop);
        let refused = "apps.tls.automation.policies[0].on_demand: found 'no permission', expected the global option `on_demand_tls`";
        assert_eq!(outcome.is_ok(), is_fine, "{policy}");
        assert!(outcome.err().is_none_or(|error| error.starts_with(refused)), "{policy}");
    }
}

// Caddy's documentation of `get_certificate`: a policy with sources obtains no certificate before a handshake. Names
// below `.ts.net` have the source `tailscale` without a policy, as policies on demand have (`createAutomationPolicies`
// of caddyhttp/autohttps.go). DEVIATES: if strangers could choose names, no authority signs.
#[test]
fn sources_of_certificates() {
    let config = json!({ "apps": {
        "http": { "servers": { "s": { "listen": [":443"], "automatic_https": { "disable_redirects": true },
            "routes": hosts(&["a.example", "b.example", "x.wild.example", "a.tail.ts.net", "own.tail.ts.net"]) } } },
        "tls": { "automation": { "policies": [
            { "subjects": ["a.example", "own.tail.ts.net"], "get_certificate": [{ "via": "http", "url": "http://c/" }] },
            { "subjects": ["*.wild.example"], "get_certificate": [{ "via": "http", "url": "http://d/" }, { "via": "tailscale" }] },
            { "subjects": ["demand.example", "demand.ts.net"], "on_demand": true },
        ] } },
    } });
    assert_eq!(outcome(&config, &[]), ":443s b.example=acme( )");
    let loaded = read(&config, &[]).unwrap();
    let on_demand = loaded.certificates.on_demand.unwrap();
    let (c, d) = (CertificateGetter::Http("http://c/".into()), CertificateGetter::Http("http://d/".into()));
    let tailscale = CertificateGetter::Tailscale;
    for (name, getters, is_signed) in [
        ("a.example", vec![&c], true),
        ("own.tail.ts.net", vec![&c], true),
        ("x.wild.example", vec![&d], false),
        ("a.tail.ts.net", vec![&tailscale], true),
        ("b.tail.ts.net", vec![], false),
        ("demand.example", vec![], true),
        ("demand.ts.net", vec![&tailscale], true),
        ("b.example", vec![], false),
        ("", vec![], false),
    ] {
        let found = on_demand.getters(name);
        assert_eq!((found.iter().collect::<Vec<_>>(), on_demand.name(name).is_some()), (getters, is_signed), "{name}");
    }
    assert_eq!(on_demand.all_getters(), HashSet::from([&c, &d, &tailscale]));
    let note = "*.wild.example: certificates come only from `get_certificate`, not from an authority";
    assert!(loaded.warnings.len() == 1 && loaded.warnings[0].starts_with(note), "{:?}", loaded.warnings);
}

// As in Caddy, a wildcard below `.ts.net` without a policy needs the permission of a policy on demand, or sources of
// the policy for all names.
#[test]
fn wildcards_of_tailscale() {
    let config = |automation: Value| {
        json!({ "apps": {
            "http": { "servers": { "s": { "listen": [":443"], "automatic_https": { "disable_redirects": true },
                "routes": hosts(&["*.tail.ts.net", "a.other.ts.net", "own.tail.ts.net"]) } } },
            "tls": { "automation": automation },
        } })
    };
    let own = json!({ "subjects": ["own.tail.ts.net"] });
    let source = json!({ "get_certificate": [{ "via": "http", "url": "http://c/" }] });
    let ask = json!({ "ask": "http://localhost:9/" });
    let refused = "apps.http: found '*.tail.ts.net', expected the global option `on_demand_tls` with `ask <url>`";
    for automation in [json!({}), json!({ "policies": [own, { "issuers": [{ "module": "internal" }] }] })] {
        let outcome = outcome(&config(automation), &[]);
        assert!(outcome.starts_with(refused), "{outcome}");
    }
    let named = json!({ "subjects": ["*.tail.ts.net"], "issuers": [{ "module": "internal" }] });
    assert_eq!(outcome(&config(json!({ "policies": [named] })), &[]), ":443s *.tail.ts.net=local");

    let (c, tailscale) = (CertificateGetter::Http("http://c/".into()), CertificateGetter::Tailscale);
    for (automation, getters, of_others) in [
        (json!({ "on_demand": ask, "policies": [own] }), vec![tailscale.clone()], vec![]),
        (json!({ "on_demand": ask, "policies": [own, {}] }), vec![tailscale.clone()], vec![]),
        (json!({ "policies": [own, source] }), vec![c.clone(), tailscale.clone()], vec![c]),
    ] {
        let on_demand = read(&config(automation.clone()), &[]).unwrap().certificates.on_demand.unwrap();
        assert_eq!(on_demand.getters("a.tail.ts.net"), getters, "{automation}");
        assert_eq!(on_demand.getters("a.other.ts.net"), getters, "{automation}");
        assert_eq!(on_demand.name("a.tail.ts.net"), None, "{automation}: no authority signs");
        // A policy that lists a name comes first.
        assert!(on_demand.getters("own.tail.ts.net").is_empty(), "{automation}");
        assert_eq!(on_demand.getters("a.example"), of_others, "{automation}");
    }
}

// A client that sends no name gets a certificate of the sources of the policy for all names.
#[test]
fn a_source_for_all_names() {
    let policy = json!({ "get_certificate": [{ "via": "http", "url": "http://c/" }] });
    let config = json!({ "apps": { "tls": { "automation": { "policies": [policy] } } } });
    let on_demand = read(&config, &[]).unwrap().certificates.on_demand.unwrap();
    let getter = [CertificateGetter::Http("http://c/".into())];
    for name in ["", "a.example", "a.localhost", "10.0.0.1"] {
        assert_eq!(on_demand.getters(name), getter, "{name}");
        assert_eq!(on_demand.name(name), None, "{name}");
    }
}

// Caddy's JSON of `session_tickets`: 4 keys, one every 12 hours.
#[test]
fn session_tickets() {
    let rotating = |hours: u64, max_keys, source| super::super::SessionTickets::Rotating {
        interval: Duration::from_secs(hours * 3600),
        max_keys,
        source,
    };
    let own = TicketKeySource::Distributed(Some(Storage::FileSystem(Some("/s".into()))));
    for (written, want) in [
        (json!({}), super::super::SessionTickets::Process),
        (json!({ "disable_rotation": true, "max_keys": 2 }), super::super::SessionTickets::Process),
        (json!({ "disabled": true, "max_keys": 2 }), super::super::SessionTickets::Disabled),
        (json!({ "max_keys": 2 }), rotating(12, 2, TicketKeySource::Standard)),
        (json!({ "rotation_interval": "1h", "max_keys": -1 }), rotating(1, 4, TicketKeySource::Standard)),
        (json!({ "key_source": { "provider": "standard" } }), rotating(12, 4, TicketKeySource::Standard)),
        (json!({ "key_source": { "provider": "distributed" } }), rotating(12, 4, TicketKeySource::Distributed(None))),
        (
            json!({ "key_source": { "provider": "distributed", "storage": { "module": "file_system", "root": "/s" } } }),
            rotating(12, 4, own),
        ),
    ] {
        let config = json!({ "apps": { "tls": { "session_tickets": written } } });
        assert_eq!(read(&config, &[]).unwrap().certificates.session_tickets, want, "{written}");
    }
}

#[test]
fn refused_settings() {
    let unsupported = |place: &str, found: &str| {
        format!("{place}: found '{found}', expected nothing: this is not supported (docs/refused.md)")
    };
    let tls = |tls: Value| json!({ "apps": { "tls": tls } });
    let policy = |policy: Value| tls(json!({ "automation": { "policies": [policy] } }));
    let acme = |mut issuer: Value| {
        issuer["module"] = "acme".into();
        policy(json!({ "issuers": [issuer] }))
    };
    let at = "apps.tls.automation.policies[0]";
    for (config, want) in [
        (
            tls(json!({ "automation": { "on_demand": { "permission": { "module": "moon" } } } })),
            "apps.tls.automation.on_demand.permission.module: permission module 'moon' is not supported (docs/refused.md)"
                .to_owned(),
        ),
        // Caddy: a configuration has one of both.
        (
            tls(json!({ "automation": { "on_demand": { "ask": "http://a/", "permission": { "module": "http", "endpoint": "http://b/" } } } })),
            "apps.tls.automation.on_demand.ask: found 'http://a/', expected either `ask` or `permission`: the server would query only one of them"
                .to_owned(),
        ),
        (
            acme(json!({ "acme_timeout": "soon" })),
            format!("{at}.issuers[0].acme_timeout: found 'soon', expected a duration such as 90s, 1m30s or 250ms"),
        ),
        (
            tls(json!({ "automation": { "on_demand": { "ask": "localhost/ask" }, "policies": [{ "on_demand": true }] } })),
            "apps.tls.automation.on_demand.ask: found 'localhost/ask', expected a URL that begins with http:// or https://"
                .to_owned(),
        ),
        (
            tls(json!({ "session_tickets": { "max_keys": 65 } })),
            "apps.tls.session_tickets.max_keys: found '65', expected at most 64 keys".to_owned(),
        ),
        (
            tls(json!({ "session_tickets": { "rotation_interval": "10ms" } })),
            "apps.tls.session_tickets.rotation_interval: found '10 ms', expected at least 1s".to_owned(),
        ),
        (
            tls(json!({ "session_tickets": { "key_source": { "provider": "moon" } } })),
            "apps.tls.session_tickets.key_source: stek module 'moon' is not supported (docs/refused.md)".to_owned(),
        ),
        (
            tls(json!({ "session_tickets": { "key_source": { "provider": "distributed", "storage": { "module": "moon" } } } })),
            "apps.tls.session_tickets.key_source.storage: storage module 'moon' is not supported (docs/refused.md)".to_owned(),
        ),
        (
            tls(json!({ "cache": { "capacity": -1 } })),
            "apps.tls.cache.capacity: found '-1', expected a number of certificates, or 0 for the default".to_owned(),
        ),
        (tls(json!({ "encrypted_client_hello": {} })), unsupported("apps.tls.encrypted_client_hello", "{}")),
        (
            tls(json!({ "certificates": { "load_storage": { "pairs": [{ "certificate": "a", "key": "b", "format": "der" }] } } })),
            "apps.tls.certificates.load_storage.pairs[0].format: found 'der', expected pem: no other format is supported".to_owned(),
        ),
        (
            policy(json!({ "get_certificate": [{ "via": "moon" }] })),
            format!("{at}.get_certificate[0]: get_certificate module 'moon' is not supported (docs/refused.md)"),
        ),
        (
            policy(json!({ "get_certificate": [{}] })),
            format!("{at}.get_certificate[0]: found '{{}}', expected an object with a 'via' key, as {{\"via\": \"tailscale\"}}"),
        ),
        (
            policy(json!({ "get_certificate": [{ "via": "http" }] })),
            format!("{at}.get_certificate[0].url: found '', expected a URL that begins with http:// or https:// and a host"),
        ),
        (
            policy(json!({ "get_certificate": [{ "via": "http", "url": "https:///x" }] })),
            format!(
                "{at}.get_certificate[0].url: found 'https:///x', expected a URL that begins with http:// or https:// and a host"
            ),
        ),
        (
            policy(json!({ "storage": { "module": "redis", "client_type": "cluster" } })),
            format!(
                "{at}.storage.client_type: found 'cluster', expected nothing: clusters and Sentinel are not supported (docs/refused.md), only a single server"
            ),
        ),
        (
            json!({ "apps": { "pki": { "certificate_authorities": { "mine": { "storage": { "module": "moon" } } } } } }),
            "apps.pki.certificate_authorities.mine.storage: storage module 'moon' is not supported (docs/refused.md)".to_owned(),
        ),
        (
            policy(json!({ "key_type": "p521" })),
            format!("{at}.key_type: found 'p521', expected ed25519, p256, p384, rsa2048 or rsa4096"),
        ),
        (
            policy(json!({ "issuers": [{ "module": "moon" }] })),
            format!("{at}.issuers[0]: issuance module 'moon' is not supported (docs/refused.md)"),
        ),
        (
            policy(json!({ "issuers": [{ "module": "zerossl" }] })),
            format!("{at}.issuers[0].api_key: found '', expected the key of ZeroSSL's interface: is it set?"),
        ),
        (
            policy(json!({ "issuers": [{ "module": "zerossl", "api_key": "{env.NO_SUCH_KEY}" }] })),
            format!("{at}.issuers[0].api_key: found '', expected the key of ZeroSSL's interface: is it set?"),
        ),
        (
            policy(json!({ "issuers": [{ "module": "zerossl", "api_key": "k", "validity_days": -1 }] })),
            format!("{at}.issuers[0].validity_days: found '-1', expected a number of days, such as 90"),
        ),
        (
            // The provider's token is a secret.
            policy(json!({ "issuers": [{ "module": "zerossl", "cname_validation": { "api_token": "secret" } }] })),
            format!(
                "{at}.issuers[0].cname_validation: found '{{…}}', expected nothing: ZeroSSL verifies names by files only in this \
                 version (docs/https.md)"
            ),
        ),
        (
            acme(json!({ "network_proxy": {} })),
            format!("{at}.issuers[0].network_proxy: found '{{}}', expected an object with a 'from' key, as {{\"from\": \"none\"}}"),
        ),
        (
            acme(json!({ "network_proxy": { "from": "moon" } })),
            format!("{at}.issuers[0].network_proxy: network_proxy module 'moon' is not supported (docs/refused.md)"),
        ),
        (
            acme(json!({ "trusted_roots_pem_files": ["/nonexistent/a"] })),
            format!("{at}.issuers[0].trusted_roots_pem_files[0]: found '/nonexistent/a: No such file or directory (os error 2)', expected a file that can be read"),
        ),
        (
            policy(json!({ "issuers": [{ "module": "internal", "ca": "mine" }] })),
            format!("{at}.issuers[0].ca: found 'mine', expected 'local', or an authority that the option `pki` names"),
        ),
        (
            tls(json!({ "automation": { "policies": [{}, {}] } })),
            "apps.tls.automation.policies[1]: found 'a second policy for all names', expected one at most".into(),
        ),
        (
            tls(json!({ "automation": { "policies": [{ "subjects": ["a"] }, { "subjects": ["a"] }] } })),
            "apps.tls.automation.policies[1].subjects: found 'a', expected each name in one policy".into(),
        ),
        (
            tls(json!({ "certificates": { "load_files": [{ "certificate": "a", "key": "b", "format": "der" }] } })),
            "apps.tls.certificates.load_files[0].format: found 'der', expected pem: no other format is supported"
                .into(),
        ),
    ] {
        assert_eq!(outcome(&config, &[]), want);
    }
    let fails = LoadedNames(Err("a.crt: found no certificate"));
    let error = load_with(&json!({}), &registry(), &fails, Vec::new()).err().map(|error| error.to_string());
    assert_eq!(error.as_deref(), Some("a.crt: found no certificate"));
}

// caddyhttp/autohttps.go: redirects are inserted after a server's own routes with hosts, and the redirect of all hosts
// after all routes. Error paths keep the operator's route indexes.
#[test]
fn redirects_join_a_server_on_the_http_port() {
    let secure = json!({ "listen": [":443"], "routes": hosts(&["localhost"]) });
    let config = |routes: Value| json!({ "apps": { "http": { "servers": { "a": secure, "b": { "listen": [":80"], "routes": routes } } } } });
    assert_eq!(outcome(&config(json!([])), &[]), ":443s :80 localhost=local");
    let bad = json!({ "handle": [{ "handler": "none" }] });
    for (routes, index) in [
        (json!([bad]), 0),
        (json!([{ "match": [{ "host": ["x"] }] }, bad]), 1),
        (json!([{ "match": [{ "host": ["x"] }], "handle": bad["handle"] }]), 0),
    ] {
        let want = format!(
            "apps.http.servers.b.routes[{index}].handle[0]: handler module 'none' is not supported (docs/refused.md)"
        );
        assert_eq!(outcome(&config(routes), &[]), want);
    }
}

// caddyhttp/autohttps.go: without names whose certificates are managed, a server's own routes for all hosts come before
// the redirects. Those of Tailscale are not managed.
#[test]
fn redirects_beside_names_of_tailscale() {
    let registry = registry();
    let automation = json!({ "automation": { "policies": [{ "subjects": ["own.tail.ts.net"] }] } });
    let none = json!([]);
    let automatic = AutomaticHttpsConfig::default();
    for (host, redirects) in [("a.tail.ts.net", 0), ("localhost", 1), ("own.tail.ts.net", 1)] {
        let mut build = Build::new(&registry);
        let tls = serde_json::from_value::<TlsConfig>(automation.clone()).unwrap().read(&mut build).unwrap();
        let routes = hosts(&[host]);
        let mut sites = [(443, &routes), (80, &none)].map(|(port, routes)| HttpsServer {
            name: "s",
            automatic: &automatic,
            routes,
            listen: vec![vec![ListeningSocket::Bound(ListenAddress { host: None, port, zone: 0 })]],
            policies: None,
            inserted: None,
            access_log: None,
        });
        let ports = Ports { http: 80, https: 443 };
        let inputs = Inputs { ports, tls: &tls, loaded: &[], has_other_challenges: false };
        arrange(&mut sites, inputs, &mut Vec::new(), &mut build).unwrap();
        let inserted = sites[1].inserted.as_ref().unwrap();
        assert_eq!((inserted.routes.len(), inserted.last.len()), (redirects, 1), "{host}");
    }
}

/// The redirects of the HTTP port, in the order in which they are tried: the hosts of each with the port that its
/// target names. `http` are the addresses of a server on the HTTP port, the other servers are TLS servers with hosts
/// and an address each.
fn redirects(http: &[ListenAddress], servers: &[(&[&str], ListenAddress)]) -> Vec<String> {
    let registry = registry();
    let mut build = Build::new(&registry);
    let internal = json!({ "automation": { "policies": [{ "issuers": [{ "module": "internal" }] }] } });
    let tls = serde_json::from_value::<TlsConfig>(internal).unwrap().read(&mut build).unwrap();
    let (automatic, none) = (AutomaticHttpsConfig::default(), json!([]));
    let routes: Vec<Value> =
        servers.iter().map(|(names, _)| if names.is_empty() { json!([]) } else { hosts(names) }).collect();
    let site = |routes, listen: &[ListenAddress]| HttpsServer {
        name: "s",
        automatic: &automatic,
        routes,
        listen: listen.iter().map(|address| vec![ListeningSocket::Bound(*address)]).collect(),
        policies: None,
        inserted: None,
        access_log: None,
    };
    let mut sites = vec![site(&none, http)];
    for (routes, (_, address)) in routes.iter().zip(servers) {
        sites.push(HttpsServer { policies: Some(vec![TlsPolicy::default()]), ..site(routes, &[*address]) });
    }
    let ports = Ports { http: 80, https: 443 };
    let inputs = Inputs { ports, tls: &tls, loaded: &[], has_other_challenges: false };
    let arranged = arrange(&mut sites, inputs, &mut Vec::new(), &mut build).unwrap();
    let inserted = sites[0].inserted.take().map(|inserted| [inserted.routes, inserted.last].concat());
    let remaining = arranged.remaining.map(|remaining| remaining.routes.as_array().unwrap().clone());
    let described = |route: &Value| {
        let hosts: Vec<_> =
            route["match"][0]["host"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let target = route["handle"][0]["headers"]["Location"][0].as_str()?;
        let port = target.strip_prefix("https://{http.request.host}")?.strip_suffix("{http.request.uri}")?;
        Some(format!("{}{port}", hosts.join(" ")))
    };
    // Without the route of challenges.
    inserted.into_iter().chain(remaining).flatten().filter_map(|route| described(&route)).collect()
}

// caddyhttp/autohttps.go sorts redirects, so that a site's own name precedes the pattern or all names of another site.
// Here this holds for sites at different addresses too.
#[test]
fn redirects_of_exact_names_precede_others() {
    let at = |host: Option<&str>, port| ListenAddress { host: host.map(|host| host.parse().unwrap()), port, zone: 0 };
    let local = Some("127.0.0.1");
    for (servers, want) in [
        (&[(&["a.test"][..], at(local, 443)), (&[], at(None, 8443))][..], &["a.test", ":8443", ""][..]),
        (&[(&["*.test"], at(None, 443)), (&["b.test"], at(local, 8443))], &["b.test:8443", "*.test", ""]),
        (&[(&["*.test"], at(local, 443)), (&["b.test"], at(None, 8443))], &["b.test:8443", "*.test", ""]),
        // The first name in a list does not stand for the others.
        (
            &[(&["*.test", "a.b.test"], at(None, 8443)), (&["*.b.test"], at(None, 8444))],
            &["a.b.test:8443", "*.b.test:8444", "*.test:8443", ""],
        ),
    ] {
        assert_eq!(redirects(&[], servers), want);
        assert_eq!(redirects(&[at(None, 80)], servers), want, "in a server of the configuration");
    }
}

// Caddy: "evaluated placeholder {env.X} is empty". The site would have another name.
#[test]
fn hosts_with_an_empty_placeholder() {
    let config = |host: &str, automatic: Value| json!({ "apps": { "http": { "servers": { "s": { "listen": [":443"], "automatic_https": automatic, "routes": hosts(&["localhost", host]) } } } } });
    for host in ["{env.CAUSEWAY_UNSET}", "{env.CAUSEWAY_UNSET}.localhost", "{env.CARGO_PKG_NAME}{env.CAUSEWAY_UNSET}"] {
        let want = format!(
            "apps.http.servers.s: found '{host}', expected a host: the evaluated placeholder {{env.CAUSEWAY_UNSET}} is empty"
        );
        assert_eq!(outcome(&config(host, json!({})), &[]), want);
        assert_eq!(
            outcome(&config(host, json!({ "disable": true })), &[]),
            ":443",
            "as in Caddy, hosts do not count then"
        );
    }
    let set = outcome(&config("{env.CARGO_PKG_NAME}.localhost", json!({ "disable_redirects": true })), &[]);
    assert_eq!(set, ":443s causeway-config.localhost=local localhost=local");
}

// A file for several environments may have a default that is no URL.
#[test]
fn a_permission_that_no_site_uses() {
    let ask = json!({ "automation": { "on_demand": { "ask": "localhost:8000/ask" } } });
    let loaded = read(&json!({ "apps": { "tls": ask } }), &[]).unwrap();
    assert_eq!(
        loaded.warnings,
        ["on_demand_tls: localhost:8000/ask does not begin with http:// or https://; no site uses it"]
    );
}
