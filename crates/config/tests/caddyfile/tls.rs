//! TLS: the directive, the global options, and the connection and automation policies that result.

use serde_json::{Value, json};

use super::{json, read, server};

/// The connection policies of the first server.
#[track_caller]
fn handshakes(source: &str) -> Value {
    server(source).get("tls_connection_policies").cloned().unwrap_or(Value::Null)
}

/// The automation policies.
#[track_caller]
fn automation(source: &str) -> Value {
    json(source)["apps"]["tls"]["automation"].get("policies").cloned().unwrap_or(Value::Null)
}

/// The members of a connection policy from a subdirective, without the server name.
#[track_caller]
fn settings(lines: &str) -> Value {
    let mut policy = handshakes(&format!("a.test {{\ntls {{\n{lines}\n}}\n}}\n"))[0].clone();
    assert_eq!(policy.as_object_mut().unwrap().shift_remove("match"), Some(json!({ "sni": ["a.test"] })), "{lines}");
    policy
}

/// The issuers of `a.test`.
#[track_caller]
fn issuers(global: &str, directive: &str) -> Value {
    automation(&format!("{{\n{global}\n}}\na.test {{\n{directive}\n}}\n"))[0]["issuers"].clone()
}

// tls: protocols, ciphers, curves, alpn, client_auth, insecure_secrets_log.
#[test]
fn options_of_a_handshake() {
    for (lines, want) in [
        ("protocols tls1.3", json!({ "protocol_min": "tls1.3" })),
        ("protocols tls1.2 tls1.3", json!({ "protocol_min": "tls1.2", "protocol_max": "tls1.3" })),
        (
            "ciphers TLS_AES_128_GCM_SHA256\nciphers TLS_CHACHA20_POLY1305_SHA256",
            json!({ "cipher_suites": ["TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"] }),
        ),
        ("curves x25519mlkem768 secp256r1", json!({ "curves": ["x25519mlkem768", "secp256r1"] })),
        ("alpn h2\nalpn http/1.1", json!({ "alpn": ["http/1.1"] })),
        ("insecure_secrets_log /tmp/keys", json!({ "insecure_secrets_log": "/tmp/keys" })),
        ("client_auth {\nmode request\n}", json!({ "client_authentication": { "mode": "request" } })),
        ("client_auth", json!({ "client_authentication": {} })),
        (
            "client_auth {\ntrusted_ca_cert Zm9v\ntrusted_ca_cert YmFy\ntrusted_leaf_cert YmF6\n}",
            json!({ "client_authentication": {
                "ca": { "provider": "inline", "trusted_ca_certs": ["Zm9v", "YmFy"] }, "trusted_leaf_certs": ["YmF6"],
            } }),
        ),
        (
            "client_auth {\nverifier leaf file a.pem b.pem\nverifier leaf {\nfolder c\npem d\n}\nverifier leaf\n}",
            json!({ "client_authentication": { "verifiers": [
                { "verifier": "leaf", "leaf_certs_loaders": [{ "loader": "file", "files": ["a.pem", "b.pem"] }] },
                { "verifier": "leaf", "leaf_certs_loaders": [
                    { "loader": "folder", "folders": ["c"] }, { "loader": "pem", "certificates": ["d"] },
                ] },
                { "verifier": "leaf" },
            ] } }),
        ),
    ] {
        assert_eq!(settings(lines), want, "{lines}");
    }
}

// tls: trust_pool and its modules.
#[test]
fn trust_pools() {
    for (pool, want) in [
        ("inline {\ntrust_der Zm9v\ntrust_der YmFy\n}", json!({ "trusted_ca_certs": ["Zm9v", "YmFy"] })),
        ("file a.pem {\npem_file b.pem c.pem\n}", json!({ "pem_files": ["a.pem", "b.pem", "c.pem"] })),
        ("pki_root local", json!({ "authority": ["local"] })),
        ("pki_intermediate {\nauthority local other\n}", json!({ "authority": ["local", "other"] })),
        (
            "storage a {\nkeys b\nstorage file_system /srv\n}",
            json!({ "pem_keys": ["a", "b"], "storage": { "module": "file_system", "root": "/srv" } }),
        ),
        ("system", json!({})),
        (
            "http http://a.test/ca {\nendpoints http://b.test/ca\ntls {\nca file d.pem\ninsecure_skip_verify\n\
             handshake_timeout 5s\nserver_name b.test\nrenegotiation once\n}\n}",
            json!({
                "endpoints": ["http://a.test/ca", "http://b.test/ca"],
                "tls": {
                    "ca": { "provider": "file", "pem_files": ["d.pem"] }, "insecure_skip_verify": true,
                    "handshake_timeout": 5_000_000_000_u64, "server_name": "b.test", "renegotiation": "once",
                },
            }),
        ),
        (
            "combined {\nsource file a.pem\nsource pki_root local\n}",
            json!({ "sources": [
                { "provider": "file", "pem_files": ["a.pem"] }, { "provider": "pki_root", "authority": ["local"] },
            ] }),
        ),
    ] {
        let mut found =
            settings(&format!("client_auth {{\ntrust_pool {pool}\n}}"))["client_authentication"]["ca"].clone();
        let provider = found.as_object_mut().unwrap().shift_remove("provider");
        assert_eq!(provider, pool.split([' ', '\n']).next().map(Value::from), "{pool}");
        assert_eq!(found, want, "{pool}");
    }
}

// tls: trusted_ca_cert_file and trusted_leaf_cert_file are read when the Caddyfile is adapted.
#[test]
fn certificates_from_pem_files() {
    let directory = std::env::temp_dir().join(format!("causeway-tls-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let two = "-----BEGIN CERTIFICATE-----\nZm9v\n-----END CERTIFICATE-----\nbetween\n\
               -----BEGIN CERTIFICATE-----\nYmFy\n-----END CERTIFICATE-----\n";
    let (two, key) =
        (file("two.pem", two), file("key.pem", "-----BEGIN PRIVATE KEY-----\nZm9v\n-----END PRIVATE KEY-----\n"));
    let empty = file("empty.pem", "");
    let clients = |lines: &str| format!("a.test {{\ntls {{\nclient_auth {{\n{lines}\n}}\n}}\n}}\n");
    let found = handshakes(&clients(&format!("trusted_ca_cert_file {two}\ntrusted_leaf_cert_file {two}")));
    assert_eq!(
        found[0]["client_authentication"],
        json!({ "ca": { "provider": "inline", "trusted_ca_certs": ["Zm9v", "YmFy"] }, "trusted_leaf_certs": ["Zm9v", "YmFy"] })
    );
    for (name, want) in [(&key, "no CERTIFICATE pem block found in"), (&empty, "no CERTIFICATE pem block found in")] {
        let error = read(&clients(&format!("trusted_leaf_cert_file {name}"))).unwrap_err().to_string();
        assert!(error.starts_with("Caddyfile:4:24: ") && error.contains(want), "{error}");
    }
    // RFC 7468 §3: the end of a section takes a line. The certificate after it would be lost.
    let section = "-----BEGIN CERTIFICATE-----\nZm9v\n-----END CERTIFICATE-----";
    let joined = file("joined.pem", &section.repeat(2));
    let error = read(&clients(&format!("trusted_ca_cert_file {joined}"))).unwrap_err().to_string();
    let want = format!("{joined}:3: found text after `-----END CERTIFICATE-----`, expected it on a line of its own");
    assert!(error.starts_with("Caddyfile:4:") && error.contains(&want), "{error}");
    let error = read(&clients("trusted_leaf_cert_file /does/not/exist")).unwrap_err().to_string();
    assert!(error.contains("open /does/not/exist: No such file or directory (os error 2)"), "{error}");
    std::fs::remove_dir_all(&directory).unwrap();
}

// tls: <certificate> <key>, load. A file is loaded once, with one tag, even if several sites name it.
#[test]
fn certificates_to_load() {
    let source = "a.test {\ntls a.pem a.key\n}\nb.test {\ntls b.pem b.key {\nload /one /two\n}\ntls a.pem a.key\n}\n";
    let adapted = json(source);
    assert_eq!(
        adapted["apps"]["tls"]["certificates"],
        json!({
            "load_files": [
                { "certificate": "a.pem", "key": "a.key", "tags": ["cert0"] },
                { "certificate": "b.pem", "key": "b.key", "tags": ["cert1"] },
            ],
            "load_folders": ["/one", "/two"],
        })
    );
    // Two directives for one name become one policy with both tags. A final policy is for all other names.
    assert_eq!(
        handshakes(source),
        json!([
            { "match": { "sni": ["a.test"] }, "certificate_selection": { "any_tag": ["cert0"] } },
            { "match": { "sni": ["b.test"] }, "certificate_selection": { "any_tag": ["cert1", "cert0"] } },
            {},
        ])
    );
}

// tls: issuers by name and by the short forms.
#[test]
fn issuers_of_a_site() {
    let zerossl = "https://acme.zerossl.com/v2/DV90";
    for (directive, want) in [
        ("tls internal", json!([{ "module": "internal" }])),
        (
            "tls ann@a.test",
            json!([
                { "module": "acme", "email": "ann@a.test" },
                { "module": "acme", "ca": zerossl, "email": "ann@a.test" },
            ]),
        ),
        (
            "tls ann@a.test {\nca https://ca.test/dir\nca_root r.pem\neab id key\n}",
            json!([{
                "module": "acme", "email": "ann@a.test", "ca": "https://ca.test/dir",
                "trusted_roots_pem_files": ["r.pem"], "external_account": { "key_id": "id", "mac_key": "key" },
            }]),
        ),
        (
            "tls {\nissuer internal {\nca home\nlifetime 1h\nsign_with_root\n}\nissuer zerossl key {\nvalidity_days 90\n\
             alt_http_port 81\nresolvers 192.0.2.1\ndns_ttl 1m\n}\n}",
            json!([
                { "module": "internal", "ca": "home", "lifetime": 3_600_000_000_000_u64, "sign_with_root": true },
                {
                    "module": "zerossl", "api_key": "key", "validity_days": 90, "alternate_http_port": 81,
                    "cname_validation": { "resolvers": ["192.0.2.1"], "ttl": 60_000_000_000_u64 },
                },
            ]),
        ),
        (
            "tls {\nissuer acme https://ca.test/dir {\ntest_dir https://t.test/dir\nemail ann@a.test\nprofile short\n\
             timeout 5s\nlifetime 1d\ndisable_http_challenge\nalt_http_port 81\nalt_tlsalpn_port 444\ndistributed false\n\
             eab id key\ntrusted_roots r.pem s.pem\npreferred_chains {\nroot_common_name \"A Root\" B\n}\n}\n}",
            json!([{
                "module": "acme", "ca": "https://ca.test/dir", "test_ca": "https://t.test/dir", "email": "ann@a.test",
                "profile": "short", "acme_timeout": 5_000_000_000_u64, "certificate_lifetime": 86_400_000_000_000_u64,
                "challenges": {
                    "http": { "disabled": true, "alternate_port": 81 }, "tls-alpn": { "alternate_port": 444 },
                    "distributed": false,
                },
                "external_account": { "key_id": "id", "mac_key": "key" },
                "trusted_roots_pem_files": ["r.pem", "s.pem"],
                "preferred_chains": { "root_common_name": ["A Root", "B"] },
            }]),
        ),
        (
            "tls {\nissuer acme {\ndns\npropagation_timeout -1\npropagation_delay 2s\ndns_challenge_override_domain b.test\n}\n}",
            json!([{ "module": "acme", "challenges": { "dns": {
                "propagation_timeout": -1, "propagation_delay": 2_000_000_000_u64, "override_domain": "b.test",
            } } }]),
        ),
    ] {
        assert_eq!(issuers("", directive), want, "{directive}");
    }
}

// The syntax of Caddy's plugins `dns.providers.*`. In Caddy the DNS challenge of a site applies to all its default
// authorities.
#[test]
fn dns_providers() {
    for (written, want) in [
        ("cloudflare {env.T}", json!({ "name": "cloudflare", "api_token": "{env.T}" })),
        (
            "cloudflare {\napi_token a\nzone_token b\n}",
            json!({ "name": "cloudflare", "api_token": "a", "zone_token": "b" }),
        ),
        ("digitalocean a", json!({ "name": "digitalocean", "auth_token": "a" })),
        ("digitalocean {\napi_token a\n}", json!({ "name": "digitalocean", "auth_token": "a" })),
        (
            "duckdns a {\noverride_domain b.duckdns.org\n}",
            json!({
                "name": "duckdns", "api_token": "a", "override_domain": "b.duckdns.org",
            }),
        ),
        ("gandi a", json!({ "name": "gandi", "bearer_token": "a" })),
        ("hetzner a", json!({ "name": "hetzner", "api_token": "a" })),
        (
            "porkbun {\napi_key a\napi_secret_key b\n}",
            json!({
                "name": "porkbun", "api_key": "a", "api_secret_key": "b",
            }),
        ),
        (
            "rfc2136 {\nkey_name k\nkey_alg hmac-sha256\nkey cw==\nserver 192.0.2.1:53\n}",
            json!({
                "name": "rfc2136", "key_name": "k", "key_alg": "hmac-sha256", "key": "cw==", "server": "192.0.2.1:53",
            }),
        ),
        (
            "route53 {\naccess_key_id a\nsecret_access_key b\n}",
            json!({
                "name": "route53", "access_key_id": "a", "secret_access_key": "b",
            }),
        ),
        (
            "route53 {\naccess_key_id a\nsecret_access_key b\ntoken c\nmax_retries 10\nwait_for_route53_sync true\nmax_wait_dur 60s\n}",
            json!({
                "name": "route53", "access_key_id": "a", "secret_access_key": "b", "session_token": "c",
            }),
        ),
        ("acmedns /etc/acmedns.json", json!({ "name": "acmedns", "config_file_path": "/etc/acmedns.json" })),
        (
            "acmedns {\nconfig {\na.test {\nusername u\npassword p\n}\n}\n}",
            json!({
                "name": "acmedns", "config": { "a.test": { "username": "u", "password": "p" } },
            }),
        ),
        ("exec /bin/hook", json!({ "name": "exec", "command": "/bin/hook" })),
        ("exec /bin/hook -v b", json!({ "name": "exec", "command": "/bin/hook", "args": ["-v", "b"] })),
    ] {
        let dns = json!([{ "module": "acme", "challenges": { "dns": { "provider": want } } }]);
        assert_eq!(issuers("", &format!("tls {{\ndns {written}\n}}")), dns, "{written}");
        assert_eq!(issuers(&format!("acme_dns {written}"), "tls {\nissuer acme\n}"), dns, "{written}");
    }
    let cloudflare = json!({ "name": "cloudflare", "api_token": "t" });
    for (global, directive, want) in [
        (
            "dns cloudflare t\nacme_dns",
            "tls {\nissuer acme\n}",
            json!([{ "module": "acme", "challenges": { "dns": {} } }]),
        ),
        ("dns cloudflare t", "tls {\ndns\n}", json!([{ "module": "acme", "challenges": { "dns": {} } }])),
        (
            "acme_dns cloudflare global\ntls_resolvers 192.0.2.1",
            "tls {\ndns cloudflare t\ndns_ttl 1m\n}",
            json!([{ "module": "acme", "challenges": { "dns": {
                "provider": cloudflare, "ttl": 60_000_000_000_u64, "resolvers": ["192.0.2.1"],
            } } }]),
        ),
        (
            "http_port 8080\ndefault_bind 192.0.2.1",
            "tls {\ndns cloudflare t\n}",
            json!([{ "module": "acme", "challenges": { "dns": { "provider": cloudflare } } }]),
        ),
        (
            "",
            "tls {\nissuer zerossl key {\ndns cloudflare t\ndns_ttl 1m\n}\n}",
            json!([{ "module": "zerossl", "api_key": "key", "cname_validation": {
                "provider": cloudflare, "ttl": 60_000_000_000_u64,
            } }]),
        ),
    ] {
        assert_eq!(issuers(global, directive), want, "{global}\n{directive}");
    }
}

// Global ACME options complete an issuer's own settings. The short forms override global ACME issuers.
#[test]
fn global_options_complete_issuers() {
    for (global, directive, want) in [
        ("email g@a.test", "tls {\nissuer acme\n}", json!([{ "module": "acme", "email": "g@a.test" }])),
        ("email g@a.test", "tls {\nissuer internal\n}", json!([{ "module": "internal" }])),
        (
            "acme_ca https://g.test/dir\nacme_ca_root g.pem\ncert_lifetime 1h",
            "tls {\nissuer acme https://own.test/dir {\ntrusted_roots own.pem\n}\n}",
            json!([{
                "module": "acme", "ca": "https://own.test/dir", "trusted_roots_pem_files": ["own.pem", "g.pem"],
                "certificate_lifetime": 3_600_000_000_000_u64,
            }]),
        ),
        (
            "acme_eab {\nkey_id id\nmac_key key\n}\npreferred_chains smallest",
            "tls {\nissuer acme\n}",
            json!([{
                "module": "acme", "external_account": { "key_id": "id", "mac_key": "key" },
                "preferred_chains": { "smallest": true },
            }]),
        ),
        (
            "http_port 8080\nhttps_port 8443\ndefault_bind 192.0.2.1",
            "tls {\nissuer acme\n}",
            json!([{ "module": "acme", "challenges": {
                "http": { "alternate_port": 8080 }, "tls-alpn": { "alternate_port": 8443 }, "bind_host": "192.0.2.1",
            } }]),
        ),
        (
            "default_bind 192.0.2.1",
            "bind 192.0.2.2\ntls {\nissuer acme\n}",
            json!([{ "module": "acme", "challenges": { "bind_host": "192.0.2.2" } }]),
        ),
        (
            "cert_issuer acme https://g.test/dir {\nprofile short\n}\ncert_issuer internal",
            "tls own@a.test",
            json!([{ "module": "acme", "ca": "https://g.test/dir", "profile": "short", "email": "own@a.test" }]),
        ),
    ] {
        assert_eq!(issuers(global, directive), want, "{global}\n{directive}");
    }
}

// Automatic HTTPS: which names share a policy, and the issuer of names without a configured one.
#[test]
fn automation_policies() {
    let internal = || json!([{ "module": "internal" }]);
    for (why, source, want) in [
        ("nothing to say", "a.test\nrespond x\n", Value::Null),
        (
            "names that only a local authority certifies",
            "a.test, localhost {\n}\n",
            json!([{ "subjects": ["a.test"] }, { "subjects": ["localhost"], "issuers": internal() }]),
        ),
        (
            "equal policies are joined",
            "a.test {\ntls internal\n}\nb.test {\ntls internal\n}\n",
            json!([{ "subjects": ["a.test", "b.test"], "issuers": internal() }]),
        ),
        (
            "different ones are not",
            "a.test {\ntls internal\n}\nb.test {\ntls {\nissuer internal {\nlifetime 1h\n}\n}\n}\n",
            json!([
                { "subjects": ["a.test"], "issuers": internal() },
                { "subjects": ["b.test"], "issuers": [{ "module": "internal", "lifetime": 3_600_000_000_000_u64 }] },
            ]),
        ),
        (
            "a name keeps its own policy before a wildcard that covers it",
            "*.a.test {\ntls internal\n}\nb.a.test {\n}\n",
            json!([{ "subjects": ["b.a.test"] }, { "subjects": ["*.a.test"], "issuers": internal() }]),
        ),
        (
            "but a wildcard's managers apply to it too",
            "*.a.test {\ntls {\nget_certificate http http://c.test/\n}\n}\nb.a.test {\n}\n",
            json!([{
                "subjects": ["*.a.test"], "get_certificate": [{ "via": "http", "url": "http://c.test/" }],
            }]),
        ),
        (
            "a site for every host sets the policy for every name",
            ":443 {\ntls internal\ntls {\non_demand\n}\n}\n",
            json!([{ "issuers": internal(), "on_demand": true }]),
        ),
        (
            "all settings of a policy",
            "a.test {\ntls {\nkey_type p384\nreuse_private_keys\nrenewal_window_ratio 0.5\nget_certificate tailscale\n}\n}\n",
            json!([{
                "subjects": ["a.test"], "key_type": "p384", "reuse_private_keys": true, "renewal_window_ratio": 0.5,
                "get_certificate": [{ "via": "tailscale" }],
            }]),
        ),
        ("of the global block", "{\nkey_type p384\n}\na.test\n", json!([{ "key_type": "p384" }])),
        (
            "settings of the global block and of a site",
            "{\nocsp_stapling off\nrenewal_window_ratio 0.2\nlocal_certs\n}\na.test {\ntls {\nrenewal_window_ratio 0.4\n}\n}\nb.test\n",
            json!([
                {
                    "subjects": ["a.test"], "issuers": internal(), "renewal_window_ratio": 0.4, "disable_ocsp_stapling": true,
                },
                { "issuers": internal(), "renewal_window_ratio": 0.2, "disable_ocsp_stapling": true },
            ]),
        ),
        (
            "an email address alone adds issuers for public names",
            "{\nemail g@a.test\n}\na.test, localhost {\n}\n",
            json!([
                {
                    "subjects": ["a.test"],
                    "issuers": [
                        { "module": "acme", "email": "g@a.test" },
                        { "module": "acme", "email": "g@a.test", "ca": "https://acme.zerossl.com/v2/DV90" },
                    ],
                },
                { "subjects": ["localhost"], "issuers": internal() },
            ]),
        ),
        (
            "hosts next to an address for every host",
            "localhost, a.test, :8443 {\n}\n",
            json!([{ "subjects": ["localhost"], "issuers": internal() }]),
        ),
    ] {
        assert_eq!(automation(source), want, "{why}: {source}");
    }
}

// tls force_automate, tls_automate_names, and hosts that no matcher shows.
#[test]
fn certificates_to_obtain() {
    let automate = |source: &str| json(source)["apps"]["tls"]["certificates"]["automate"].clone();
    for (source, want) in [
        ("a.test, :443 {\n}\n", json!(["a.test"])),
        ("{\nauto_https disable_certs\n}\na.test, :443 {\n}\n", Value::Null),
        ("*.a.test {\ntls c.pem c.key\n}\nb.a.test {\ntls force_automate\n}\n", json!(["b.a.test"])),
        (
            "{\ntls_automate_names b.test c.test\ntls_automate_names a.test\n}\na.test\n",
            json!(["a.test", "b.test", "c.test"]),
        ),
    ] {
        assert_eq!(automate(source), want, "{source}");
    }
}

// default_sni, fallback_sni. A policy for every name is last, and is added if there is none.
#[test]
fn names_of_handshakes() {
    for (source, want) in [
        ("a.test\n", Value::Null),
        ("{\ndefault_sni a.test\n}\na.test\n", json!([{ "default_sni": "a.test" }])),
        (
            "{\ndefault_sni a.test\n}\na.test {\ntls {\nalpn h2\n}\n}\n",
            json!([
                { "match": { "sni": ["", "a.test"] }, "alpn": ["h2"], "default_sni": "a.test" },
                { "default_sni": "a.test" },
            ]),
        ),
        (":8443 {\ntls internal\n}\n", json!([{}])),
        (
            ":8443 {\ntls {\nalpn h2\n}\n}\nhttps://a.test:8443 {\ntls {\nprotocols tls1.3\n}\n}\n",
            json!([{ "match": { "sni": ["a.test"] }, "protocol_min": "tls1.3" }, { "alpn": ["h2"] }]),
        ),
        (
            "a.test {\ntls {\nalpn h2\n}\n}\nb.test {\ntls {\nalpn h2\n}\n}\n",
            json!([{ "match": { "sni": ["a.test", "b.test"] }, "alpn": ["h2"] }, {}]),
        ),
        (
            // A wildcard site's client authentication does not apply to a name with its own site.
            "*.a.test {\ntls {\nalpn h2\nclient_auth {\nmode require\n}\n}\n}\nb.a.test {\n}\n",
            json!([
                { "match": { "sni": ["b.a.test"] }, "alpn": ["h2"] },
                { "match": { "sni": ["*.a.test"] }, "alpn": ["h2"], "client_authentication": { "mode": "require" } },
                {},
            ]),
        ),
    ] {
        assert_eq!(handshakes(source), want, "{source}");
    }
}

// Global options of the TLS app itself.
#[test]
fn tls_app() {
    for (options, want) in [
        ("storage_check off", json!({ "disable_storage_check": true })),
        ("storage_clean_interval off", json!({ "disable_storage_clean": true })),
        ("storage_clean_interval 7d", json!({ "automation": { "storage_clean_interval": 604_800_000_000_000_u64 } })),
        (
            "renew_interval 30s\nocsp_interval 1h",
            json!({ "automation": { "renew_interval": 30_000_000_000_u64, "ocsp_interval": 3_600_000_000_000_u64 } }),
        ),
        (
            "on_demand_tls {\nask http://a.test/ask\n}",
            json!({ "automation": { "on_demand": { "permission": { "module": "http", "endpoint": "http://a.test/ask" } } } }),
        ),
        (
            "on_demand_tls {\npermission http http://a.test/ask\n}",
            json!({ "automation": { "on_demand": { "permission": { "module": "http", "endpoint": "http://a.test/ask" } } } }),
        ),
        ("tls_resolvers 192.0.2.1 192.0.2.2", json!({ "resolvers": ["192.0.2.1", "192.0.2.2"] })),
        (
            "ech a.test",
            json!({
                "encrypted_client_hello": { "configs": [{ "public_name": "a.test" }] },
            }),
        ),
        (
            "ech a.test\nlocal_certs",
            json!({
                "automation": { "policies": [{ "issuers": [{ "module": "internal" }] }] },
                "encrypted_client_hello": { "configs": [{ "public_name": "a.test" }] },
            }),
        ),
    ] {
        assert_eq!(json(&format!("{{\n{options}\n}}\n:80\n"))["apps"]["tls"], want, "{options}");
    }
}
