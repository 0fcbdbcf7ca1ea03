use super::read;

#[track_caller]
fn refused(cases: &[(&str, &str)]) {
    for (source, want) in cases {
        let error = read(source).map(|adapted| adapted.json).expect_err(source).to_string();
        assert_eq!(error, format!("Caddyfile:{want}"), "{source:?}");
    }
}

// Errors: the text found, its position, and the text expected.
#[test]
fn mistakes() {
    let tls = "parsing caddyfile tokens for 'tls': ";
    let site = |lines: &str| format!("a.test {{\n\ttls {{\n\t\t{lines}\n\t}}\n}}\n");
    let nowhere = "expected nothing more on this line";
    for (lines, want) in [
        (
            "protocol tls1.3",
            "3:3: {tls}unknown subdirective: protocol (did you mean \"protocols\"?); expected alpn, ca, ca_root, ciphers, client_auth, curves, dns, \
          dns_challenge_override_domain, dns_ttl, eab, get_certificate, insecure_secrets_log, issuer, key_type, load, on_demand, \
          propagation_delay, propagation_timeout, protocols, renewal_window_ratio, resolvers, reuse_private_keys",
        ),
        (
            "protocols tls1.1",
            "3:13: {tls}wrong protocol name or protocol not supported: 'tls1.1'; expected tls1.2 or tls1.3 (did you mean \"tls1.2\"?)",
        ),
        (
            "ciphers RC4",
            "3:11: {tls}wrong cipher suite name or cipher suite not supported: 'RC4'; expected a name such as TLS_AES_128_GCM_SHA256",
        ),
        (
            "curves p256",
            "3:10: {tls}Wrong curve name or curve not supported: 'p256'; expected x25519mlkem768, x25519, secp256r1, secp384r1 or secp521r1",
        ),
        ("alpn", "3:3: {tls}wrong argument count or unexpected line ending after 'alpn'"),
        ("on_demand now", "3:13: {tls}unknown subdirective 'now'; {nowhere}"),
        ("key_type {\n}", "3:3: {tls}wrong argument count or unexpected line ending after 'key_type'"),
        ("key_type p256 {\n}", "3:12: {tls}unexpected block; expected the line to end here"),
        (
            "renewal_window_ratio 1",
            "3:24: {tls}renewal_window_ratio must be between 0 and 1 (exclusive); expected one such as 0.3 instead of '1'",
        ),
        (
            "issuer acm",
            "3:10: {tls}getting module named 'tls.issuance.acm': module not registered (did you mean \"acme\"?); expected acme, internal, zerossl",
        ),
        (
            "issuer internal {\n\t\t\tcas x\n\t\t}",
            "4:4: {tls}unrecognized subdirective 'cas'; expected ca, lifetime, sign_with_root",
        ),
        (
            "issuer acme {\n\t\t\ttimeout soon\n\t\t}",
            "4:12: {tls}invalid timeout duration soon; expected one such as 30s",
        ),
        (
            "issuer acme {\n\t\t\tdistributed true\n\t\t}",
            "4:16: {tls}only accepted value is 'false'; expected it instead of 'true'",
        ),
        ("issuer zerossl", "3:10: {tls}wrong argument count or unexpected line ending after 'zerossl'"),
        (
            "get_certificate file",
            "3:19: {tls}getting module named 'tls.get_certificate.file': module not registered; expected http, tailscale",
        ),
        (
            "dns moon token",
            "3:7: {tls}getting module named 'dns.providers.moon': module not registered; expected acmedns, cloudflare, digitalocean, \
          duckdns, exec, gandi, hetzner, porkbun, rfc2136, route53",
        ),
        ("dns", "3:3: {tls}wrong argument count or unexpected line ending after 'dns'"),
        ("dns cloudflare", "3:7: {tls}missing api_token of the DNS provider cloudflare; it has api_token, zone_token"),
        ("dns cloudflare a b", "3:20: {tls}wrong argument count or unexpected line ending after 'b'"),
        ("dns cloudflare a {\n\t\t\tapi_token b\n\t\t}", "4:4: {tls}'api_token' is already set"),
        (
            "dns cloudflare {\n\t\t\ttoken b\n\t\t}",
            "4:4: {tls}unrecognized subdirective 'token'; expected api_token, zone_token",
        ),
        ("dns rfc2136 a", "3:15: {tls}wrong argument count or unexpected line ending after 'a'"),
        (
            "dns acmedns {\n\t\t\tconfig {\n\t\t\t\ta.test {\n\t\t\t\t\tuser a\n\t\t\t\t}\n\t\t\t}\n\t\t}",
            "6:6: {tls}unrecognized subdirective 'user'; expected fulldomain, password, server_url, subdomain, username",
        ),
        (
            "propagation_delay 2s",
            "2:2: {tls}setting DNS challenge options [propagation_delay] requires a DNS provider (set with the 'dns' \
          subdirective or 'acme_dns' global option)",
        ),
        (
            "client_auth {\n\t\t\tmodes request\n\t\t}",
            "4:4: {tls}unknown subdirective for client_auth: modes (did you mean \"mode\"?); expected mode, trust_pool, \
          trusted_ca_cert, trusted_ca_cert_file, trusted_leaf_cert, trusted_leaf_cert_file, verifier",
        ),
        (
            "client_auth {\n\t\t\ttrust_pool files a\n\t\t}",
            "4:15: {tls}getting module named 'tls.ca_pool.source.files': module not registered (did you mean \"file\"?); \
          expected combined, file, http, inline, pki_intermediate, pki_root, storage, system",
        ),
        (
            "client_auth {\n\t\t\ttrust_pool file\n\t\t}",
            "4:15: {tls}no certificates specified; expected the names of PEM files",
        ),
        (
            "client_auth {\n\t\t\ttrust_pool file a\n\t\t\ttrusted_ca_cert Zm9v\n\t\t}",
            "5:4: {tls}cannot specify both 'trust_pool' and \
          'trusted_ca_cert' or 'trusted_ca_cert_file'",
        ),
        (
            "issuer internal\n\t\tca https://a.test",
            "2:2: {tls}cannot mix issuer subdirective (explicit issuers) with other issuer-specific \
          subdirectives (implicit issuers)",
        ),
    ] {
        let want = want.replace("{tls}", tls).replace("{nowhere}", nowhere);
        refused(&[(&site(lines), &want)]);
    }
    refused(&[
        (
            "a.test\ntls\n",
            "2:1: parsing caddyfile tokens for 'tls': wrong argument count or unexpected line ending after 'tls'",
        ),
        (
            "a.test\ntls a b c\n",
            "2:9: parsing caddyfile tokens for 'tls': wrong argument count or unexpected line ending after 'c'",
        ),
        (
            "a.test\ntls on\n",
            "2:5: parsing caddyfile tokens for 'tls': single argument must either be 'internal', 'force_automate', or an email \
             address; expected one of them instead of 'on'",
        ),
        (
            "a.test {\n\thandle {\n\t\ttls internal\n\t}\n}\n",
            "3:3: parsing caddyfile tokens for 'handle': directive 'tls' is not an ordered HTTP handler, so it cannot be used here - \
             try placing within a route block or using the order global option",
        ),
        (
            "a.test {\n\ttls internal {\n\t\tca https://a.test\n\t}\n}\n",
            "2:6: parsing caddyfile tokens for 'tls': cannot create both ACME and internal certificate issuers",
        ),
    ]);
}

// Errors that are detected only when the whole file is known.
#[test]
fn contradictions() {
    refused(&[
        (
            "{\n\tcert_issuer internal\n\tlocal_certs\n}\na.test\n",
            "3:2: global options are ambiguous: local_certs is confusing when combined with cert_issuer, because local_certs is also \
             a specific kind of issuer",
        ),
        (
            "{\n\tacme_dns\n\tcert_issuer acme\n}\na.test\n",
            "2:2: acme_dns specified without DNS provider config, but no provider specified with 'dns' global option",
        ),
        (
            ":443 {\n\tbind 192.0.2.1\n}\n:443 {\n\tbind 192.0.2.2\n\ttls {\n\t\tissuer acme\n\t}\n}\n",
            "6:2: automation policy from site block is also default/catch-all policy because of key without hostname, and the two \
             are in conflict",
        ),
        (
            "a.test {\n\tbind 192.0.2.1\n\ttls internal\n}\na.test {\n\tbind 192.0.2.2\n\ttls x@a.test\n}\n",
            "5:1: hostname appears in more than one automation policy, making certificate management ambiguous: a.test",
        ),
        ("a_.test., b.test {\n}\n", "1:1: subject does not qualify for certificate: 'a_.test.'"),
        (
            "a.test {\n\ttls {\n\t\talpn h2\n\t}\n\ttls {\n\t\talpn http/1.1\n\t}\n}\n",
            "5:2: consolidating TLS connection policies for server 0: two policies with same match criteria have conflicting ALPN: \
             [h2] vs. [http/1.1]",
        ),
        (
            "http://a.test {\n\ttls {\n\t\talpn h2\n\t}\n}\n",
            "1:1: server listening on [:80] is HTTP, but attempts to configure TLS connection policies",
        ),
        (
            "{\n\tpki {\n\t\tca {\n\t\t\troot {\n\t\t\t\tpem x\n\t\t\t}\n\t\t}\n\t}\n}\n:80\n",
            "5:5: parsing caddyfile tokens for 'pki': unrecognized pki ca root option 'pem'; expected cert, format, key",
        ),
        (
            "{\n\ton_demand_tls {\n\t}\n}\n:80\n",
            "2:2: parsing caddyfile tokens for 'on_demand_tls': expected at least one config parameter for on_demand_tls",
        ),
        (
            "{\n\tocsp_stapling on\n}\n:80\n",
            "2:16: parsing caddyfile tokens for 'ocsp_stapling': invalid argument 'on'; expected off",
        ),
        (
            "{\n\tstorage_clean_interval never\n}\n:80\n",
            "2:25: parsing caddyfile tokens for 'storage_clean_interval': failed to parse storage_clean_interval, must be a duration \
             or 'off'; expected one such as 24h instead of 'never'",
        ),
    ]);
}
