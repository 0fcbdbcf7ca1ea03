use causeway_pipeline::Registry;
use serde_json::json;

use super::super::{Loaded, load_with};
use super::*;

fn registry() -> Registry {
    let mut registry = Registry::default();
    causeway_modules::register(&mut registry);
    registry
}

fn read(config: &Value, loaded: &[&str]) -> Result<Loaded, String> {
    let names_of = |_: &[super::super::CertificateSource]| Ok(loaded.iter().map(|&name| name.to_owned()).collect());
    load_with(config, &registry(), &names_of).map_err(|error| error.to_string())
}

/// Addresses with `s` behind those that are spoken to over TLS, then the names that are managed and who signs them.
fn outcome(config: &Value, loaded: &[&str]) -> String {
    let loaded = match read(config, loaded) {
        Ok(loaded) => loaded,
        Err(error) => return error,
    };
    let listeners = loaded.listeners.iter().map(|listener| {
        let secure = if listener.tls.is_some() { "s" } else { "" };
        format!("{}{secure}", listener.address)
    });
    let managed = loaded.certificates.managed.iter().map(|managed| format!("{}={}", managed.name, managed.authority));
    listeners.chain(managed).collect::<Vec<_>>().join(" ")
}

fn hosts(hosts: &[&str]) -> Value {
    json!([{ "match": [{ "host": hosts }] }])
}

fn server(server: Value) -> Value {
    json!({ "apps": { "http": { "servers": { "s": server } } } })
}

const NEEDS_ACME: &str = "needs a certificate of a public authority (ACME), which this version cannot get; expected an internal \
     issuer, a certificate that is loaded, or the site on the HTTP port only";

// Caddy's documentation, "Automatic HTTPS: Activation": on for servers whose routes name hosts, but not on the HTTP port; the
// other pieces as caddyhttp/autohttps.go has them.
#[test]
fn which_servers_speak_tls() {
    let local = hosts(&["localhost"]);
    for (why, config, want) in [
        ("a host on the HTTPS port", json!({ "listen": [":443"], "routes": local }), ":443s :80 localhost=local"),
        ("a host on another port", json!({ "listen": [":8443"], "routes": local }), ":8443s :80 localhost=local"),
        ("the HTTP port only", json!({ "listen": [":80"], "routes": local }), ":80"),
        (
            "a range is no other port when the HTTP port is in it",
            json!({ "listen": [":79-80"], "routes": local }),
            ":79 :80",
        ),
        (
            "both ports: the HTTP port stays in the clear",
            json!({ "listen": [":443", ":80"], "routes": local }),
            ":443s :80 localhost=local",
        ),
        ("no host on the HTTPS port means TLS all the same", json!({ "listen": [":443"] }), ":443s :80"),
        ("no host on another port", json!({ "listen": [":8080"] }), ":8080"),
        ("policies mean TLS", json!({ "listen": [":8443"], "tls_connection_policies": [{}] }), ":8443s :80"),
        ("no policies at all", json!({ "listen": [":8443"], "tls_connection_policies": [] }), ":8443"),
        (
            "policies count where automatic HTTPS is off",
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
            "a host that is skipped has none of it",
            json!({ "listen": [":8443"], "routes": local, "automatic_https": { "skip": ["localhost"] } }),
            ":8443",
        ),
        (
            "no certificate for one host",
            json!({ "listen": [":8443"], "routes": hosts(&["localhost", "a.localhost"]),
                    "automatic_https": { "skip_certificates": ["localhost"] } }),
            ":8443s :80 a.localhost=local",
        ),
        ("a host that can have no certificate", json!({ "listen": [":443"], "routes": hosts(&["a b"]) }), ":443s :80"),
        (
            "a redirect on the same address",
            json!({ "listen": ["127.0.0.1:8443"], "routes": local }),
            "127.0.0.1:8443s 127.0.0.1:80 localhost=local",
        ),
    ] {
        assert_eq!(outcome(&server(config), &[]), want, "{why}");
    }
    let ports = json!({ "apps": { "http": { "http_port": 8080, "https_port": 8443, "servers": { "s": {
        "listen": [":8443"] } } } } });
    assert_eq!(outcome(&ports, &[]), ":8443s :8080");
}

// Caddy's documentation, "Hostname requirements" and "Local HTTPS": internal names and addresses are the local authority's; the
// rest is a public one's, unless a policy, or a certificate that is loaded, says otherwise.
#[test]
fn who_signs() {
    let needs = |site: &str| format!("{site} {NEEDS_ACME}");
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
        ("a public name", &["example.com"], json!([]), &[], needs("example.com")),
        ("a public address without policies", &["8.8.8.8"], json!([]), &[], "8.8.8.8=local".into()),
        ("a public address with a policy", &["8.8.8.8"], json!([acme(&[])]), &[], needs("8.8.8.8")),
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
            needs("example.com"),
        ),
        ("internal names keep ours", &["localhost"], json!([acme(&[])]), &[], "localhost=local".into()),
        ("unless named", &["localhost"], json!([acme(&["localhost"])]), &[], needs("localhost")),
        (
            "a policy without issuers",
            &["localhost"],
            json!([{ "subjects": ["localhost"] }]),
            &[],
            "localhost=local".into(),
        ),
        (
            "of mixed names",
            &["localhost"],
            json!([{ "subjects": ["localhost", "example.com"] }]),
            &[],
            needs("localhost"),
        ),
        ("a loaded certificate", &["example.com"], json!([]), &["example.com"], String::new()),
        ("a loaded wildcard", &["a.example.com"], json!([]), &["*.example.com"], String::new()),
        ("that does not fit", &["b.a.example.com"], json!([]), &["*.example.com"], needs("b.a.example.com")),
        ("in ASCII", &["bücher.localhost"], json!([]), &[], "xn--bcher-kva.localhost=local".into()),
        ("in lower case", &["LOCALHOST"], json!([]), &[], "localhost=local".into()),
        ("a wildcard is enough", &["*.a.localhost", "b.a.localhost"], json!([]), &[], "*.a.localhost=local".into()),
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

// Caddy's JSON of `tls.automation` and `pki`.
#[test]
fn what_policies_say_of_certificates() {
    let config = json!({ "apps": {
        "http": { "servers": { "s": { "listen": [":443"], "routes": hosts(&["a.localhost"]) } } },
        "tls": { "automation": { "renew_interval": "1m", "policies": [{
            "subjects": ["a.localhost"], "key_type": "rsa2048", "renewal_window_ratio": 0.5, "reuse_private_keys": true,
            "issuers": [{ "module": "internal", "ca": "mine", "lifetime": "1h", "sign_with_root": true }],
        }] } },
        "pki": { "certificate_authorities": { "mine": {
            "name": "Mine", "root_common_name": "R", "intermediate_common_name": "I", "intermediate_lifetime": "2d",
            "install_trust": false, "renewal_window_ratio": 0.1, "maintenance_interval": "1m",
            "root": { "certificate": "r.crt", "private_key": "r.key" }, "intermediate": { "certificate": "i.crt" },
        } } },
    } });
    let certificates = read(&config, &[]).unwrap_or_else(|error| panic!("{error}")).certificates;
    let day = std::time::Duration::from_secs(24 * 60 * 60);
    let want = ManagedName {
        name: "a.localhost".into(),
        authority: "mine".into(),
        lifetime: Some(day / 24),
        by_root: true,
        renewal_ratio: Some(0.5),
        key: super::super::KeyKind::Rsa2048,
        reuse_key: true,
    };
    assert_eq!(certificates.managed, [want]);
    assert_eq!(certificates.look_every, Some(day / 24 / 60));
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
    };
    assert_eq!(certificates.authorities, [want], "the local one is there where it is used");
    let pki = read(&json!({ "apps": { "pki": {} } }), &[]).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(pki.certificates.authorities, [CertificateAuthority::new("local")]);
}

#[test]
fn what_is_refused() {
    let unbuilt = |place: &str, found: &str| format!("{place}: found '{found}', expected nothing: this is not built");
    let tls = |tls: Value| json!({ "apps": { "tls": tls } });
    let policy = |policy: Value| tls(json!({ "automation": { "policies": [policy] } }));
    let at = "apps.tls.automation.policies[0]";
    for (config, want) in [
        (tls(json!({ "automation": { "on_demand": {} } })), unbuilt("apps.tls.automation.on_demand", "{}")),
        (tls(json!({ "session_tickets": { "max_keys": 4 } })), unbuilt("apps.tls.session_tickets.max_keys", "4")),
        (tls(json!({ "cache": { "capacity": 4 } })), unbuilt("apps.tls.cache.capacity", "4")),
        (tls(json!({ "encrypted_client_hello": {} })), unbuilt("apps.tls.encrypted_client_hello", "{}")),
        (tls(json!({ "certificates": { "load_storage": {} } })), unbuilt("apps.tls.certificates.load_storage", "{}")),
        (policy(json!({ "on_demand": true })), unbuilt(&format!("{at}.on_demand"), "true")),
        (policy(json!({ "get_certificate": [] })), unbuilt(&format!("{at}.get_certificate"), "[]")),
        (
            policy(json!({ "key_type": "p521" })),
            format!("{at}.key_type: found 'p521', expected ed25519, p256, p384, rsa2048 or rsa4096"),
        ),
        (
            policy(json!({ "issuers": [{ "module": "moon" }] })),
            format!("{at}.issuers[0]: no issuance module 'moon' is built into this version"),
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
            "apps.tls.certificates.load_files[0].format: found 'der', expected pem: no other is known".into(),
        ),
    ] {
        assert_eq!(outcome(&config, &[]), want);
    }
    let fails = |_: &[super::super::CertificateSource]| Err("a.crt: found no certificate".into());
    let error = load_with(&json!({}), &registry(), &fails).err().map(|error| error.to_string());
    assert_eq!(error.as_deref(), Some("a.crt: found no certificate"));
}

// caddyhttp/autohttps.go: redirects go behind a server's own routes with hosts, and a redirect of all hosts behind everything;
// mistakes are still at the places that the operator counts.
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
            "apps.http.servers.b.routes[{index}].handle[0]: no handler module 'none' is built into this version"
        );
        assert_eq!(outcome(&config(routes), &[]), want);
    }
}

// certmagic's `MatchWildcard`.
#[test]
fn wildcards() {
    for (name, pattern, want) in [
        ("a.b", "a.b", true),
        ("a.b", "*.b", true),
        ("a.b", "*.*", true),
        ("a.b.c", "*.b.c", true),
        ("a.b.c", "*.*.c", true),
        ("a.b.c", "*.c", false),
        ("b.c", "*.b.c", false),
        (".b", "*.b", false),
        ("a.b", "a.*", false),
        ("a", "*", true),
    ] {
        assert_eq!(matches_wildcard(name, pattern), want, "{name} {pattern}");
    }
}
