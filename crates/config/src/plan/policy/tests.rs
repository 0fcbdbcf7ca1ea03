use base64::prelude::{BASE64_STANDARD, Engine as _};
use causeway_pipeline::{ClientAuthenticationMode, Registry};
use serde_json::{Value, json};

use causeway_pipeline::build::trust_pool::{CertificateList, EndpointTls};

use super::super::{
    AuthorityCertificates, CertificateAuthority, CertificateReadError, CertificateReader, CertificateSource,
    KeyAlgorithm, Loaded, Storage, load, load_with,
};
use super::*;

fn read(policies: &Value, protocols: &[&str], files: &Value) -> Result<Loaded, String> {
    let config = json!({ "apps": {
        "http": { "servers": { "s": {
            "listen": [":8443"], "tls_connection_policies": policies, "protocols": protocols,
            "automatic_https": { "disable": true },
        } } },
        "tls": { "certificates": { "load_files": files } },
    } });
    let mut registry = Registry::default();
    causeway_modules::register(&mut registry);
    load(&config, &registry).map_err(|error| error.to_string())
}

fn policy(policy: Value) -> Result<TlsPolicy, String> {
    let loaded = read(&json!([policy]), &[], &json!([]))?;
    Ok(loaded.listeners[0].tls.as_ref().expect("a server with policies uses TLS").policies[0].clone())
}

// Caddy's JSON of a TLS connection policy.
#[test]
fn fields_of_a_policy() {
    let got = policy(json!({
        "match": { "sni": ["A.example", "*.bücher.example"], "sni_regexp": { "pattern": "^a" }, "local_ip": { "ranges": ["10.0.0.1"] },
                   "remote_ip": { "ranges": ["10.0.0.0/8", "::1"], "not_ranges": ["10.1.0.0/16"] },
                   "not": [{ "sni": [] }, { "sni": ["b.example"], "not": [{ "local_ip": { "ranges": ["::1"] } }] }] },
        "certificate_selection": { "any_tag": ["a", "b"] },
        "cipher_suites": ["X", "Y", "X"], "curves": ["x25519"], "alpn": ["h2", "http/1.1", "acme-tls/1"],
        "protocol_min": "tls1.3", "protocol_max": "tls1.3", "drop": true, "default_sni": "D", "fallback_sni": "f", "insecure_secrets_log": "/s",
    }))
    .unwrap();
    assert_eq!(got.matchers.server_names, ["a.example", "*.xn--bcher-kva.example"]);
    assert_eq!(got.matchers.server_name_matcher.as_deref().map(|matcher| matcher.text()), Some("^a"));
    let ranges = |ranges: &[IpNet]| ranges.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    assert_eq!(ranges(&got.matchers.remote_ranges), "10.0.0.0/8 ::1/128");
    assert_eq!(
        (&*ranges(&got.matchers.remote_ranges_not), &*ranges(&got.matchers.local_ranges)),
        ("10.1.0.0/16", "10.0.0.1/32")
    );
    // A condition that no handshake meets refuses none.
    let [not] = &got.matchers.not[..] else { panic!("{:?}", got.matchers.not) };
    assert_eq!((&not.server_names[..], &*ranges(&not.not[0].local_ranges)), (&["b.example".to_owned()][..], "::1/128"));
    assert_eq!(
        (&got.certificate_tags[..], &got.cipher_suites[..]),
        (&["a".into(), "b".into()][..], &["X".into(), "Y".into()][..])
    );
    assert_eq!((&got.groups[..], &got.alpn[..]), (&["x25519".into()][..], &["h2".into(), "http/1.1".into()][..]));
    assert_eq!((got.version_min, got.version_max, got.drop), (TlsVersion::Tls13, TlsVersion::Tls13, true));
    assert_eq!((got.default_server_name.as_deref(), got.fallback_server_name.as_deref()), (Some("d"), Some("f")));
    assert_eq!(got.secrets_log.as_deref(), Some(std::path::Path::new("/s")));
    let plain = policy(json!({})).unwrap();
    assert_eq!(
        (plain.version_min, plain.version_max, plain.client.is_none()),
        (TlsVersion::Tls12, TlsVersion::Tls13, true)
    );
    let silent = policy(json!({ "client_authentication": {} })).unwrap();
    assert!(silent.client.is_none(), "an empty object requests no certificate");
}

// A version that the server has not enabled is not offered; a policy that no name matches is omitted.
#[test]
fn omitted_protocols_and_policies() {
    let offered = |protocols: &[&str]| {
        let loaded = read(&json!([{ "alpn": ["h2", "http/1.1"] }]), protocols, &json!([])).unwrap();
        loaded.listeners[0].tls.clone().unwrap().policies[0].alpn.join(" ")
    };
    assert_eq!(
        (&*offered(&["h1"]), &*offered(&["h2"]), &*offered(&["h1", "h2", "h3"])),
        ("http/1.1", "h2", "h2 http/1.1")
    );
    // A policy of which nothing would be left is an error, unless it drops its connections: without a list, all
    // protocols would be offered.
    let refused = |policy: Value, protocols: &[&str]| read(&json!([policy]), protocols, &json!([])).err();
    let at = "apps.http.servers.s.tls_connection_policies[0].alpn";
    for (alpn, protocols, want) in [
        (&["h2"][..], &["h1"][..], "found 'h2', expected http/1.1 too"),
        (&["http/1.1"], &["h2", "h2c"], "found 'http/1.1', expected h2 too"),
        (&["h3"], &[], "found 'h3', expected h2 or http/1.1 too"),
        (&["h3", "acme-tls/1"], &["h1"], "found 'h3 acme-tls/1', expected http/1.1 too"),
    ] {
        let want = format!("{at}: {want}, which the server's `protocols` enable with TLS");
        assert_eq!(refused(json!({ "alpn": alpn }), protocols), Some(want));
    }
    let want = format!("{at}: found 'h2', expected h2 or http/1.1, and h2 or h1 among the server's `protocols`");
    assert_eq!(refused(json!({ "alpn": ["h2"] }), &["h2c"]), Some(want));
    assert_eq!(refused(json!({ "alpn": ["h3"], "drop": true }), &[]), None);
    let loaded = read(&json!([{ "match": { "sni": [] } }, { "default_sni": "x" }]), &[], &json!([])).unwrap();
    assert_eq!(loaded.listeners[0].tls.clone().unwrap().policies.len(), 1);
    // As in Caddy, handshakes fail then; the server does not fall back to plain HTTP.
    let loaded = read(&json!([{ "match": { "sni": [] } }]), &[], &json!([])).unwrap();
    let policies_without_hosts = loaded.listeners[0].tls.clone().unwrap().policies;
    assert!(matches!(&policies_without_hosts[..], [policy] if policy.drop), "{policies_without_hosts:?}");
    let warnings = |protocols: &[&str]| read(&json!([]), protocols, &json!([])).unwrap().warnings;
    assert_eq!(warnings(&["h1", "h3"]), ["server s: HTTP/3 is not supported; serving its other protocols"]);
    assert!(warnings(&[]).is_empty() && warnings(&["h1"]).is_empty());
}

// Caddy's `protocols`: all by default, except for `h2c`. Here the default also includes HTTP/2 by prior knowledge.
#[test]
fn protocols_of_a_server() {
    let all = Protocols::default();
    assert!(all.http2_clear && !all.http2_upgrade);
    let clear = |on| (on, on);
    for (list, http1, http2, (http2_clear, http2_upgrade)) in [
        (&["h1"][..], true, false, clear(false)),
        (&["h1", "h2"], true, true, clear(false)),
        (&["h1", "h2", "h2c"], true, true, clear(true)),
        (&["h2c"], false, false, clear(true)),
        (&["h2", "h2c"], false, true, clear(true)),
    ] {
        let loaded = read(&json!([]), list, &json!([])).unwrap();
        assert_eq!(loaded.listeners[0].protocols, Protocols { http1, http2, http2_clear, http2_upgrade }, "{list:?}");
    }
    assert_eq!(read(&json!([]), &[], &json!([])).unwrap().listeners[0].protocols, all);
    // As in Caddy: `h2` needs TLS, so a plain listener for it alone is omitted, with a warning.
    for (policies, list, listeners, warnings) in [
        (
            json!([]),
            &["h2"][..],
            0,
            &[
                "server s: not listening on :8443: HTTP/2 needs TLS there, and neither h1 nor h2c is among its protocols",
            ][..],
        ),
        (json!([{}]), &["h2"], 1, &[]),
        (json!([{}]), &["h2c"], 1, &[]),
        (json!([]), &["h2", "h2c"], 1, &[]),
    ] {
        let loaded = read(&policies, list, &json!([])).unwrap();
        assert_eq!(
            (loaded.listeners.len(), &loaded.warnings[..]),
            (listeners, &warnings.iter().map(|&warning| warning.to_owned()).collect::<Vec<_>>()[..]),
            "{policies} {list:?}"
        );
    }
}

// caddytls/certselection.go: `any_tag` alone is the policy's own list of tags; all other conditions have a tag.
#[test]
fn certificates_by_conditions() {
    let default_selection = CertificateSelection::default;
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    let selected = |selection: Value| {
        let loaded = read(&json!([{ "certificate_selection": selection }]), &[], &json!([])).unwrap();
        let tags = loaded.listeners[0].tls.as_ref().unwrap().policies[0].certificate_tags.clone();
        (tags, loaded.certificates.selections)
    };
    assert_eq!(selected(json!({ "any_tag": ["a", "b"] })), (texts(&["a", "b"]), BTreeMap::new()));
    for (written, want) in [
        // As in Caddy, a selection without conditions matches all certificates.
        (json!({}), default_selection()),
        (json!({ "all_tags": ["a"] }), CertificateSelection { all_tags: texts(&["a"]), ..default_selection() }),
        (
            json!({ "any_tag": ["a"], "all_tags": ["b", "c"] }),
            CertificateSelection { any_tag: texts(&["a"]), all_tags: texts(&["b", "c"]), ..default_selection() },
        ),
        (
            json!({ "any_tag": ["a"], "subject_organization": ["Ex Ltd"] }),
            CertificateSelection { any_tag: texts(&["a"]), organizations: texts(&["Ex Ltd"]), ..default_selection() },
        ),
        (
            json!({ "serial_number": ["0", "7", "00256", "340282366920938463463374607431768211456"] }),
            CertificateSelection {
                serial_numbers: vec![vec![], vec![7], vec![1, 0], [&[1][..], &[0; 16]].concat()],
                ..default_selection()
            },
        ),
        (
            json!({ "public_key_algorithm": "ECDSA" }),
            CertificateSelection { key_algorithm: Some(KeyAlgorithm::Ecdsa), ..default_selection() },
        ),
        (
            json!({ "public_key_algorithm": "rsa" }),
            CertificateSelection { key_algorithm: Some(KeyAlgorithm::Rsa), ..default_selection() },
        ),
    ] {
        let (tags, selections) = selected(written.clone());
        let [tag] = &tags[..] else { panic!("{written}: {tags:?}") };
        assert!(tag.starts_with('\0'), "{written}: no configured tag is equal to it");
        assert_eq!(selections, BTreeMap::from([(tag.clone(), want)]), "{written}");
    }
    let twice = json!([
        { "match": { "sni": ["a.test"] }, "certificate_selection": { "serial_number": ["1"] } },
        { "certificate_selection": { "serial_number": ["01"] } },
    ]);
    assert_eq!(read(&twice, &[], &json!([])).unwrap().certificates.selections.len(), 1, "equal conditions share a tag");
}

// Caddy's JSON of `client_authentication`: modes, and where certificates come from.
#[test]
fn clients() {
    use ClientAuthenticationMode::{Request, Require, RequireAndVerify, VerifyIfGiven};
    let der = vec![0x30, 0x01, 0x00];
    let text = BASE64_STANDARD.encode(&der);
    for (client, mode, authorities, leaves) in [
        (json!({ "mode": "request" }), Request, 0, 0),
        (json!({ "mode": "require" }), Require, 0, 0),
        (json!({ "mode": "verify_if_given", "trusted_ca_certs": [text] }), VerifyIfGiven, 1, 0),
        (json!({ "trusted_ca_certs": [text, text] }), RequireAndVerify, 2, 0),
        (json!({ "trusted_leaf_certs": [text] }), RequireAndVerify, 0, 1),
        (json!({ "ca": { "provider": "inline", "trusted_ca_certs": [text] } }), RequireAndVerify, 1, 0),
    ] {
        let got = policy(json!({ "client_authentication": client })).unwrap().client.unwrap();
        assert_eq!((got.mode, got.authorities.len(), got.leaves.len()), (mode, authorities, leaves), "{client}");
    }
}

/// A reader of sources with fixed contents, as JSON of Caddy names them.
struct Sources(Vec<u8>);

impl CertificateReader for Sources {
    fn load(&self, _: &[CertificateSource], _: &Storage) -> Result<Vec<String>, CertificateReadError> {
        Ok(Vec::new())
    }

    fn system(&self) -> Result<CertificateList, CertificateReadError> {
        Ok(vec![b"system".to_vec()])
    }

    fn authority(
        &self,
        authority: &CertificateAuthority,
        default_storage: &Storage,
    ) -> Result<AuthorityCertificates, CertificateReadError> {
        assert_eq!(*default_storage, Storage::FileSystem(None));
        let pem = |which: &str| pem(format!("{} {which}", authority.id).as_bytes());
        Ok(AuthorityCertificates { root: pem("root"), intermediate: pem("intermediate") })
    }

    fn stored(&self, storage: &Storage, key: &str) -> Result<Vec<u8>, CertificateReadError> {
        let Storage::FileSystem(directory) = storage else { panic!("{storage:?}") };
        let directory = directory.as_ref().map_or(String::new(), |directory| directory.display().to_string());
        match key {
            "missing" => Err("not in the storage".into()),
            "empty" => Ok(Vec::new()),
            key => Ok(pem(format!("{directory}/{key}").as_bytes()).into_bytes()),
        }
    }

    fn fetched(&self, url: &str, tls: &EndpointTls) -> Result<Vec<u8>, CertificateReadError> {
        let roots = tls.roots.iter().flatten().map(|root| String::from_utf8_lossy(root).into_owned());
        let roots: Vec<_> = roots.collect();
        let limit = tls.handshake_timeout.map_or(0, |limit| limit.as_secs());
        let name = tls.server_name.as_deref().unwrap_or("-");
        let mut text = self.0.clone();
        text.extend(pem(format!("{url} {} {} {name} {limit}", roots.join("+"), tls.is_insecure).as_bytes()).bytes());
        Ok(text)
    }
}

fn pem(der: &[u8]) -> String {
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", BASE64_STANDARD.encode(der))
}

// Caddy's modules `tls.ca_pool.source.NAME`, and its loaders of leaf certificates.
#[test]
fn sources_of_trusted_certificates() {
    let ask = |client: Value| {
        let config = json!({ "apps": {
            "http": { "servers": { "s": {
                "listen": [":8443"], "tls_connection_policies": [{ "client_authentication": client }],
                "automatic_https": { "disable": true },
            } } },
            "pki": { "certificate_authorities": { "other": {} } },
        } });
        let loaded = load_with(&config, &Registry::default(), &Sources(b"a comment\n".to_vec()), Vec::new());
        let loaded = loaded.map_err(|error| error.to_string())?;
        let client = loaded.listeners[0].tls.as_ref().unwrap().policies[0].client.clone().unwrap();
        assert_eq!(client.mode, ClientAuthenticationMode::RequireAndVerify);
        let text = |certificates: &[Vec<u8>]| {
            let texts: Vec<_> = certificates.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect();
            texts.join(", ")
        };
        let authorities =
            loaded.certificates.authorities.iter().map(|authority| &*authority.id).collect::<Vec<_>>().join(" ");
        Ok::<_, String>((text(&client.authorities), text(&client.leaves), authorities))
    };
    let pool = |pool: Value| ask(json!({ "ca": pool }));
    for (written, want, authorities) in [
        (json!({ "provider": "pki_root", "authority": ["other"] }), "other root", "other"),
        // The local authority exists without being configured, and is renewed from then on.
        (
            json!({ "provider": "pki_intermediate", "authority": ["local", "other"] }),
            "local intermediate, other intermediate",
            "other local",
        ),
        (json!({ "provider": "storage", "pem_keys": ["a", "b/c.pem"] }), "/a, /b/c.pem", "other"),
        (
            json!({ "provider": "storage", "pem_keys": ["a"], "storage": { "module": "file_system", "root": "/s" } }),
            "/s/a",
            "other",
        ),
        (json!({ "provider": "http", "endpoints": ["http://a", "b"] }), "http://a  false - 0, b  false - 0", "other"),
        (
            json!({ "provider": "http", "endpoints": ["https://a"], "tls": {
                "insecure_skip_verify": true, "server_name": "n", "handshake_timeout": "7s", "renegotiation": "never",
                "ca": { "provider": "pki_root", "authority": ["other"] },
            } }),
            "https://a other root true n 7",
            "other",
        ),
        (json!({ "provider": "system" }), "system", "other"),
        (
            json!({ "provider": "combined", "sources": [
                { "provider": "system" }, { "provider": "combined", "sources": [{ "provider": "storage", "pem_keys": ["k"] }] },
            ] }),
            "system, /k",
            "other",
        ),
    ] {
        let want = (want.to_owned(), String::new(), authorities.to_owned());
        assert_eq!(pool(written.clone()), Ok(want), "{written}");
    }
    let loader = json!({ "loader": "storage", "certificates": ["a", "b"], "storage": { "module": "file_system", "root": "/s" } });
    let verifiers = json!([{ "verifier": "leaf", "leaf_certs_loaders": [loader] }]);
    let leaves = ask(json!({ "mode": "require_and_verify", "verifiers": verifiers }));
    assert_eq!(leaves.map(|(_, leaves, _)| leaves).as_deref(), Ok("/s/a, /s/b"));
    // As in Caddy, each verifier must accept a client's certificate. `trusted_leaf_certs` are one more verifier.
    let verifier = |keys: &[&[&str]]| {
        let loader = |keys: &&[&str]| json!({ "loader": "storage", "certificates": keys });
        json!({ "verifier": "leaf", "leaf_certs_loaders": keys.iter().map(loader).collect::<Vec<_>>() })
    };
    let none = "apps.http.servers.s.tls_connection_policies[0].client_authentication.verifiers: found 'no certificate in common', \
                expected one leaf certificate at least that all of them have: each verifier must accept a client";
    let der = [0x30, 1, 0];
    let old = json!([BASE64_STANDARD.encode(der)]);
    let loader = json!({ "loader": "pem", "certificates": [pem(b"/b"), pem(&der)] });
    let both = json!({ "verifier": "leaf", "leaf_certs_loaders": [loader] });
    for (verifiers, old, want) in [
        (vec![verifier(&[&["a"], &["b", "c"]])], json!([]), Ok("/a, /b, /c")),
        (vec![verifier(&[&["a", "b"], &["c"]]), verifier(&[&["c", "b", "d"]])], json!([]), Ok("/b, /c")),
        (vec![both.clone()], old.clone(), Ok("0\u{1}\0")),
        (vec![], old.clone(), Ok("0\u{1}\0")),
        (vec![verifier(&[&["a"]]), verifier(&[&["b"]])], json!([]), Err(none)),
        (vec![verifier(&[&["b"]]), both], old, Err(none)),
    ] {
        let mut client = json!({ "mode": "require_and_verify", "verifiers": verifiers });
        client["trusted_leaf_certs"] = old;
        let leaves = ask(client.clone()).map(|(_, leaves, _)| leaves);
        assert_eq!(leaves.as_deref().map_err(String::as_str), want, "{client}");
    }

    let at = "apps.http.servers.s.tls_connection_policies[0].client_authentication.ca";
    for (written, want) in [
        (
            json!({ "provider": "pki_root", "authority": ["x"] }),
            ".authority[0]: found 'x', expected 'local', or an authority that the option `pki` names",
        ),
        (json!({ "provider": "pki_root" }), ": found 'no certificate', expected an authority's certificate at least"),
        (json!({ "provider": "file" }), ": found 'no certificate', expected an authority's certificate at least"),
        (
            json!({ "provider": "storage", "pem_keys": ["a", "missing"] }),
            ".pem_keys[1]: found 'missing', expected a source of certificates that can be read: not in the storage",
        ),
        (
            json!({ "provider": "storage", "pem_keys": ["empty"] }),
            ".pem_keys[0]: found 'empty: nothing: it is empty', expected a certificate as PEM: `-----BEGIN CERTIFICATE-----`",
        ),
        (
            json!({ "provider": "storage", "pem_keys": ["a"], "storage": { "module": "x" } }),
            ".pem_keys[0].storage: storage module 'x' is not supported (docs/refused.md)",
        ),
        (
            json!({ "provider": "http", "endpoints": [], "tls": { "renegotiation": "once" } }),
            ".tls.renegotiation: found 'once', expected `never`: renegotiation is not supported (docs/refused.md)",
        ),
        (json!({ "provider": "system", "x": 1 }), ".x: unknown field `x`, expected `provider`"),
        (
            json!({ "provider": "combined", "sources": [{ "provider": "system" }, {}] }),
            ".sources[1]: found '{}', expected an object with the member 'provider', such as file",
        ),
    ] {
        assert_eq!(pool(written.clone()), Err(format!("{at}{want}")), "{written}");
    }
    // RFC 7468 §3: the end of a section takes a line. The authority after it would be lost.
    let joined = std::env::temp_dir().join(format!("causeway-joined-{}.pem", std::process::id()));
    std::fs::write(&joined, pem(b"a").trim_end().repeat(2)).unwrap();
    let shown = joined.display();
    assert_eq!(
        pool(json!({ "provider": "file", "pem_files": [&joined] })),
        Err(format!(
            "{at}.pem_files[0]: found '{shown}:3: text after `-----END CERTIFICATE-----`', expected it on a line of its own"
        ))
    );
    std::fs::remove_file(&joined).unwrap();
    // A plan that is compiled without a reader, as by `load`, refuses them all.
    let unread = policy(json!({ "client_authentication": { "ca": { "provider": "system" } } })).map(drop);
    assert_eq!(
        unread,
        Err(format!(
            "{at}: found 'system', expected a source of certificates that can be read: the configuration is compiled without its certificates"
        ))
    );
}

#[test]
fn refused_settings() {
    let at = "apps.http.servers.s.tls_connection_policies[0]";
    for (written, want) in [
        (
            json!({ "match": { "sni_regexp": { "pattern": "(" } } }),
            format!("{at}.match.sni_regexp.pattern: found '(', expected a regular expression: unclosed group"),
        ),
        (
            json!({ "certificate_selection": { "serial_number": ["1", "0x2"] } }),
            format!(
                "{at}.certificate_selection.serial_number[1]: found '0x2', expected a serial number in decimal digits"
            ),
        ),
        (
            json!({ "certificate_selection": { "serial_number": [5] } }),
            format!("{at}.certificate_selection.serial_number[0]: found the number 5, expected a string"),
        ),
        (
            json!({ "certificate_selection": { "public_key_algorithm": "ed25519" } }),
            format!("{at}.certificate_selection.public_key_algorithm: found 'ed25519', expected rsa, ecdsa or dsa"),
        ),
        (json!({ "alpn": [] }), format!("{at}.alpn: found '[]', expected h2, http/1.1 or both, or no `alpn`")),
        (json!({ "protocol_min": "tls1.1" }), format!("{at}.protocol_min: found 'tls1.1', expected tls1.2 or tls1.3")),
        (
            json!({ "protocol_min": "tls1.3", "protocol_max": "tls1.2" }),
            format!(
                "{at}.protocol_min: found 'tls1.3 above tls1.2', expected a lowest version that is not above the highest"
            ),
        ),
        (json!({ "alpn": ["spdy"] }), format!("{at}.alpn[0]: found 'spdy', expected h2 or http/1.1")),
        (
            json!({ "match": { "remote_ip": { "ranges": ["10.0.0.0/33"] } } }),
            format!(
                "{at}.match.remote_ip.ranges[0]: found '10.0.0.0/33', expected an IP address, or a network such as 10.0.0.0/8"
            ),
        ),
        (
            json!({ "client_authentication": { "mode": "maybe" } }),
            format!(
                "{at}.client_authentication.mode: found 'maybe', expected request, require, verify_if_given or require_and_verify"
            ),
        ),
        (
            json!({ "client_authentication": { "trusted_ca_certs": ["?"] } }),
            format!(
                "{at}.client_authentication.trusted_ca_certs[0]: found 'a text of 1 bytes', expected a certificate as DER in Base64"
            ),
        ),
        (
            json!({ "client_authentication": { "ca": { "provider": "vault" } } }),
            format!("{at}.client_authentication.ca: ca_pool.source module 'vault' is not supported (docs/refused.md)"),
        ),
        (
            json!({ "client_authentication": { "verifiers": [{ "verifier": "leaf" }] } }),
            format!(
                "{at}.client_authentication.verifiers[0]: found 'no certificate', expected one leaf certificate at least"
            ),
        ),
    ] {
        assert_eq!(policy(written).map(drop), Err(want));
    }
    let want = "apps.http.servers.s.protocols: found 'h3', expected h1, h2 or h2c too: HTTP/3 is not supported (docs/refused.md)";
    assert_eq!(read(&json!([]), &["h3"], &json!([])).map(drop), Err(want.to_owned()));
}
