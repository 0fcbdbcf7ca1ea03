//! The result of a TLS handshake: placeholders (Caddy's documentation, JSON structure of `apps/http`), and strict
//! host matching.
//!
//! The certificates were made with openssl; the expected texts are those of Go's crypto/x509.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use causeway_message::Version;
use causeway_pipeline::build::ServerSpec;
use causeway_pipeline::{ClientCertificate, TlsFacts};
use causeway_testkit::counting::allocations_during;
use causeway_testkit::{Kit, Request};
use serde_json::{Value, json};

use crate::probe::registry;

const RICH: &str = include_str!("../certificates/rich.pem");
const RSA: &str = include_str!("../certificates/rsa.pem");
const ED25519: &str = include_str!("../certificates/ed25519.pem");
const BMP: &str = include_str!("../certificates/bmp.pem");

fn der(pem: &str) -> Vec<u8> {
    let lines: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    BASE64_STANDARD.decode(lines).unwrap()
}

fn facts() -> TlsFacts {
    TlsFacts {
        version: "tls1.3",
        cipher_suite: "TLS_AES_128_GCM_SHA256",
        protocol: "h2",
        server_name: Some("a.test".into()),
        resumed: false,
        client_certificate: None,
        client_intermediates: Vec::new(),
    }
}

fn with(pem: &str) -> Request {
    let client = ClientCertificate::new(der(pem));
    Request::get("/").tls(TlsFacts { client_certificate: Some(client), ..facts() })
}

fn routes(text: &str) -> Value {
    json!([{ "handle": [{ "handler": "probe", "mark": "a", "enter": "respond", "body": text }] }])
}

#[track_caller]
fn check(request: &Request, cases: &[(&str, &str)]) {
    for (name, want) in cases {
        let text = format!("<{{http.request.tls.{name}}}>");
        let answer = Kit::new(&registry(), &routes(&text)).send(request);
        assert_eq!(answer.text(), format!("<{want}>"), "{name}");
    }
}

/// Every placeholder.
const NAMES: [&str; 23] = [
    "version",
    "cipher_suite",
    "resumed",
    "proto",
    "proto_mutual",
    "server_name",
    "ech",
    "client.fingerprint",
    "client.public_key",
    "client.public_key_sha256",
    "client.issuer",
    "client.serial",
    "client.subject",
    "client.certificate_pem",
    "client.certificate_der_base64",
    "client.san.dns_names",
    "client.san.emails",
    "client.san.ips",
    "client.san.uris",
    "client.san.dns_names.0",
    "client.san.emails.0",
    "client.san.ips.0",
    "client.san.uris.0",
];

#[test]
fn of_the_handshake() {
    let request = Request::get("/").version(Version::Http2).tls(facts());
    check(
        &request,
        &[
            ("version", "tls1.3"),
            ("VERSION", "tls1.3"),
            ("cipher_suite", "TLS_AES_128_GCM_SHA256"),
            ("resumed", "false"),
            ("proto", "h2"),
            ("proto_mutual", "true"),
            ("server_name", "a.test"),
            ("ech", "false"),
        ],
    );
    let bare = TlsFacts { version: "tls1.2", resumed: true, ..TlsFacts::default() };
    check(
        &Request::get("/").tls(bare),
        &[("version", "tls1.2"), ("resumed", "true"), ("proto", ""), ("server_name", "")],
    );
    let text = "{http.request.scheme} {http.request.proto}";
    assert_eq!(Kit::new(&registry(), &routes(text)).send(&request).text(), "https HTTP/2.0");
}

// Caddy: known and empty without TLS; unknown names remain as written.
#[test]
fn without_tls_and_without_a_certificate() {
    let clear = NAMES.map(|name| (name, ""));
    check(&Request::get("/"), &clear);
    check(&Request::get("/").tls(facts()), &clear[7..]);
    for request in [Request::get("/"), Request::get("/").tls(facts()), with(RICH)] {
        for name in [
            "",
            "unknown",
            "client",
            "client.unknown",
            "client.san",
            "client.san.unknown",
            "client.san.dns_names_extra",
            "client.san.dns_names.",
            "client.san.dns_names.-1",
            "client.san.dns_names.nope",
            "client.san.dns_names.0.0",
        ] {
            check(&request, &[(name, &format!("{{http.request.tls.{name}}}"))]);
        }
    }
}

// RFC 5280 §4.1, §4.2.1.6; names as RFC 2253 writes them.
#[test]
fn of_the_client() {
    let base64: String = RICH.lines().filter(|line| !line.starts_with('-')).collect();
    let name = "SERIALNUMBER=77,CN=\\#client\\;\\<x\\>,OU=ops\\+dev,O=One\\, Two & Three+O=\\ lead\\ ,ST=Württemberg,C=DE,\
                1.2.840.113549.1.9.1=#0c0e61406578616d706c652e74657374,0.9.2342.19200300.100.1.25=#13076578616d706c65,\
                0.9.2342.19200300.100.1.25=#130474657374";
    check(
        &with(RICH),
        &[
            ("client.subject", name),
            ("client.issuer", name),
            ("client.serial", "728647820496538813932143755509453462103226692291"),
            ("client.fingerprint", "a632d7c117d02b4f63e604eadcf97cb079fc22c14cb6dd673c6be51de23deb22"),
            (
                "client.public_key",
                "04266f281e0f12c35be82eacd088b94c0d9acc73742baad90fcc7f4b416113ce890ead0badf0a164d51cee128c85e2da5fe89359b6261d\
                 713e0cfefe21d5520849",
            ),
            ("client.public_key_sha256", "904be77b3b176ca3ef5d2f1c91102c38355b025d0833d60446bf44d32d3ef508"),
            ("client.certificate_pem", RICH),
            ("client.certificate_der_base64", &base64),
            ("client.san.dns_names", "[one.example.test *.example.test]"),
            ("client.san.dns_names.0", "one.example.test"),
            ("client.san.dns_names.1", "*.example.test"),
            ("client.san.dns_names.2", ""),
            ("client.san.emails", "[a@example.test b@example.test]"),
            ("client.san.emails.1", "b@example.test"),
            ("client.san.ips", "[192.0.2.7 2001:db8::7]"),
            ("client.san.ips.1", "2001:db8::7"),
            ("client.san.uris", "[spiffe://example.test/client https://example.test/a?b=c]"),
            ("client.san.uris.0", "spiffe://example.test/client"),
        ],
    );
    check(
        &with(RSA),
        &[
            ("client.subject", "CN=rsa.example.test,O=Example"),
            ("client.serial", "2"),
            ("client.public_key_sha256", "bd16d1bb5d7d4ee9e1ee1347c7a7cfb3443fa797fa14a25e209644bdd3baa1d5"),
            ("client.san.dns_names", "[]"),
            ("client.san.ips.0", ""),
        ],
    );
    check(
        &with(ED25519),
        &[
            ("client.subject", "CN=ed.example.test"),
            ("client.public_key", "e8215c8f85cb2bcc699684631e1057c4a5221b59c5a58ff8bb5a686d3cc329d2"),
        ],
    );
    check(&with(BMP), &[("client.subject", "CN=Ωμέγα,O=Müller"), ("client.san.ips", "[192.0.2.9]")]);
}

// A certificate is the peer's input and need not be verified: no bytes may cause a panic.
#[test]
fn any_bytes_for_a_certificate() {
    let mut kit = Kit::new(&registry(), &routes(&NAMES.map(|name| format!("{{http.request.tls.{name}}}")).join("")));
    let mut send = |bytes: Vec<u8>| {
        let client = ClientCertificate::new(bytes);
        kit.run(&Request::get("/").tls(TlsFacts { client_certificate: Some(client), ..facts() }));
    };
    let good = der(RICH);
    for at in 0..good.len() {
        send(good[..at].to_vec());
        for value in [0, 0x7f, 0x80, 0xff, good[at] ^ 1] {
            let mut bad = good.clone();
            bad[at] = value;
            send(bad);
        }
    }
    let garbage = Request::get("/")
        .tls(TlsFacts { client_certificate: Some(ClientCertificate::new(&b"garbage"[..])), ..facts() });
    check(
        &garbage,
        &[
            ("client.subject", ""),
            ("client.serial", ""),
            ("client.public_key", ""),
            ("client.san.dns_names", "[]"),
            ("client.certificate_der_base64", "Z2FyYmFnZQ=="),
        ],
    );
}

// A certificate is parsed once for all requests of its connection.
#[test]
fn a_connection_reads_its_certificate_once() {
    let text = NAMES.map(|name| format!("{{http.request.tls.{name}}}")).join(" ");
    let set = json!([{ "handle": [{ "handler": "probe", "mark": "a", "set_variable": ["v", text] }] }]);
    let mut kit = Kit::new(&registry(), &set);
    let request = with(RICH);
    kit.run(&request);
    kit.run(&request);
    assert_eq!(allocations_during(|| (0..100).for_each(|_| kit.run(&request))), 0);
}

// Caddy, JSON structure, `strict_sni_host`: a request whose host differs from the connection's server name gets 421.
#[test]
fn strict_host_matching() {
    let routes = routes("served");
    let named = |name: Option<&str>| TlsFacts { server_name: name.map(Into::into), ..facts() };
    let over = |name: Option<&str>, host: &str| Request::get("/").field("Host", host).tls(named(name));
    let errors = json!([{ "handle": [
        { "handler": "probe", "mark": "e", "enter": "respond", "body": "{http.error.status_code} {http.error.message}" },
    ] }]);
    let strict = ServerSpec { strict_sni_host: true, errors: Some(&errors), ..ServerSpec::new("s", &routes) };
    let mut kit = Kit::of(&registry(), &strict).unwrap();
    for (name, host, is_served) in [
        (Some("a.test"), "a.test", true),
        (Some("a.test"), "A.Test:8443", true),
        (Some("a.test"), "b.test", false),
        (Some("a.test"), "a.test.", false),
        (Some("a.test"), "", false),
        (Some("a.test"), "x.a.test", false),
        (None, "a.test", false),
        (None, "192.0.2.80", false),
        (None, "[::1]:443", false),
        // RFC 4291 §2.2: the same address in several texts. The server name is in the canonical one (RFC 5952).
        (Some("2001:db8::7"), "[2001:db8:0::7]", true),
        (Some("2001:db8::7"), "[2001:DB8::7]:8443", true),
        (Some("2001:db8::7"), "[2001:db8::8]", false),
    ] {
        let request =
            if host.is_empty() { over(name, "x").without("host").version(Version::Http10) } else { over(name, host) };
        let answer = kit.send(&request);
        assert_eq!(answer.text() == "served", is_served, "{name:?} {host}: {answer:?}");
    }
    assert_eq!(
        kit.send(&over(Some("a.test"), "b.test:8443")).text(),
        "421 strict host matching: TLS ServerName (a.test) and HTTP Host (b.test) values differ"
    );
    // On a cleartext connection there is no server name; a server that is not strict serves all hosts.
    assert_eq!(kit.send(&Request::get("/")).text(), "served");
    let bare = ServerSpec { strict_sni_host: true, ..ServerSpec::new("s", &routes) };
    assert_eq!(Kit::of(&registry(), &bare).unwrap().send(&over(Some("a.test"), "b.test")).status, 421);
    assert_eq!(Kit::new(&registry(), &routes).send(&over(Some("a.test"), "b.test")).text(), "served");
}
