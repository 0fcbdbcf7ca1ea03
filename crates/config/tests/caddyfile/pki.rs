use serde_json::{Value, json};

use super::{handlers, json};

/// The PKI app of a file.
#[track_caller]
fn app(source: &str) -> Option<Value> {
    json(source)["apps"].get("pki").cloned()
}

#[track_caller]
fn authorities(options: &str) -> Option<Value> {
    app(&format!("{{\n{options}\n}}\n:80\n")).map(|app| app["certificate_authorities"].clone())
}

// Global options: pki. An authority without a name is `local`.
#[test]
fn authorities_of_the_global_block() {
    for (options, want) in [
        ("pki {\n}", None),
        ("pki {\nca\n}", Some(json!({ "local": {} }))),
        (
            "pki {\nca corporate {\nname \"Our CA\"\nroot_cn Root\nintermediate_cn Between\nintermediate_lifetime 30d\n\
             maintenance_interval 10m\nrenewal_window_ratio 0.25\n}\n}",
            Some(json!({ "corporate": {
                "name": "Our CA", "root_common_name": "Root", "intermediate_common_name": "Between",
                "intermediate_lifetime": 2_592_000_000_000_000_u64, "maintenance_interval": 600_000_000_000_u64,
                "renewal_window_ratio": 0.25,
            } })),
        ),
        (
            "pki {\nca {\nroot {\ncert r.pem\nkey r.key\nformat pem_file\n}\nintermediate {\ncert i.pem\n}\n}\n}",
            Some(json!({ "local": {
                "root": { "certificate": "r.pem", "private_key": "r.key", "format": "pem_file" },
                "intermediate": { "certificate": "i.pem" },
            } })),
        ),
        ("pki {\nca a {\nrenewal_window_ratio 1\n}\nca a\n}", Some(json!({ "a": {} }))),
        ("pki {\nca a {\nrenewal_window_ratio 1\n}\n}", Some(json!({ "a": { "renewal_window_ratio": 1 } }))),
        ("pki {\nca a {\nroot\n}\n}", Some(json!({ "a": { "root": {} } }))),
    ] {
        assert_eq!(authorities(options), want, "{options}");
    }
}

// Global options: skip_install_trust applies to every authority, or to the local one if none is configured.
#[test]
fn authorities_without_trust_installation() {
    let distrusted = || json!({ "install_trust": false });
    for (source, want) in [
        ("{\nskip_install_trust\n}\n:80\n", Some(json!({ "local": distrusted() }))),
        ("{\nskip_install_trust\nauto_https off\n}\n:80\n", None),
        ("{\nskip_install_trust\npki {\nca a\n}\n}\n:80\n", Some(json!({ "a": distrusted() }))),
        (
            "{\nskip_install_trust\nauto_https off\n}\na.test {\ntls {\nissuer internal {\nca b\n}\n}\n}\n",
            Some(json!({ "b": distrusted() })),
        ),
        (
            "{\nskip_install_trust\nauto_https off\n}\na.test {\ntls internal\n}\n",
            Some(json!({ "local": distrusted() })),
        ),
        ("a.test {\nacme_server {\nca c\n}\n}\n", Some(json!({ "c": {} }))),
        // httpcaddyfile's `buildSubroute` drops the authority of a directive inside `handle`.
        ("a.test {\nhandle {\nacme_server {\nca c\n}\n}\n}\n", None),
        (
            "{\npki {\nca c {\nname x\n}\n}\n}\na.test {\nacme_server {\nca c\n}\n}\n",
            Some(json!({ "c": { "name": "x" } })),
        ),
    ] {
        let found = app(source).map(|app| app["certificate_authorities"].clone());
        assert_eq!(found, want, "{source}");
    }
}

// Directives: acme_server.
#[test]
fn acme_server() {
    for (body, want) in [
        ("acme_server", json!({})),
        (
            "acme_server {\nca home\nlifetime 12h\nresolvers 192.0.2.1:53\nchallenges http-01\nchallenges dns-01\n\
             sign_with_root\n}",
            json!({
                "ca": "home", "lifetime": 43_200_000_000_000_u64, "resolvers": ["192.0.2.1:53"],
                "challenges": ["http-01", "dns-01"], "sign_with_root": true,
            }),
        ),
        (
            "acme_server {\nallow_wildcard_names\nallow {\ndomains a.test b.test\nip_ranges 10.0.0.0/8\n}\ndeny {\n}\n}",
            json!({ "policy": {
                "allow_wildcard_names": true,
                "allow": { "domains": ["a.test", "b.test"], "ip_ranges": ["10.0.0.0/8"] },
                "deny": {},
            } }),
        ),
    ] {
        let mut found = handlers(body)[0].clone();
        assert_eq!(found.as_object_mut().unwrap().shift_remove("handler"), Some(json!("acme_server")), "{body}");
        assert_eq!(found, want, "{body}");
    }
}
