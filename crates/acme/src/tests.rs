mod authority;
mod faults;

use std::sync::Arc;

use aws_lc_rs::encoding::{AsDer as _, EcPrivateKeyRfc5915Der};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use causeway_certs::{FileStorage, SharedStorage};

use crate::account::{blocking, pkcs8, storage_keys};
use crate::challenge::{self, OpenChallenge};
use crate::{AcmeError, Issuer, LETS_ENCRYPT};

fn issuer(directory: &str, email: &str) -> Issuer {
    Issuer { directory: directory.to_owned(), email: email.to_owned(), ..Issuer::default() }
}

// Directory names as Caddy 2.11 writes them.
#[test]
fn storage_keys_are_caddys() {
    for (directory, want) in [
        (LETS_ENCRYPT, "acme-v02.api.letsencrypt.org-directory"),
        ("https://acme.zerossl.com/v2/DV90", "acme.zerossl.com-v2-dv90"),
        ("https://localhost:14000/dir", "localhost-14000-dir"),
        ("https://ca.example", "ca.example"),
    ] {
        assert_eq!(issuer(directory, "").storage_name(), want);
    }
    let dir = "acme/acme-v02.api.letsencrypt.org-directory/users";
    assert_eq!(
        storage_keys(&issuer(LETS_ENCRYPT, "Jo@Example.com")),
        [format!("{dir}/jo@example.com/jo.json"), format!("{dir}/jo@example.com/jo.key")]
    );
    assert_eq!(
        storage_keys(&issuer(LETS_ENCRYPT, "")),
        [format!("{dir}/default/default.json"), format!("{dir}/default/default.key")]
    );
}

#[test]
fn a_challenge_is_open_until_it_is_dropped() {
    let http = OpenChallenge::http("token", "token.thumbprint", None);
    assert_eq!(challenge::http_answer("token").as_deref(), Some("token.thumbprint"));
    assert_eq!(challenge::http_answer("another"), None);
    let tls = OpenChallenge::tls("open.example", &[7; 32], None).unwrap();
    let certificate = challenge::tls_certificate("open.example").unwrap();
    // RFC 8737 §3: the digest as an OCTET STRING in the extension 1.3.6.1.5.5.7.1.31.
    let wanted = [&[0x04, 0x20][..], &[7; 32]].concat();
    assert!(certificate.cert[0].windows(wanted.len()).any(|window| window == wanted));
    // RFC 8738 §6.
    let addresses = ["192.0.2.1", "2001:db8::1"].map(|ip| OpenChallenge::tls(ip, &[7; 32], None).unwrap());
    assert!(challenge::tls_certificate("1.2.0.192.in-addr.arpa").is_some());
    let reverse = "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa";
    assert!(challenge::tls_certificate(reverse).is_some());
    drop((http, tls, addresses));
    assert!(challenge::http_answer("token").is_none() && challenge::tls_certificate("open.example").is_none());
}

// Caddy writes account keys as SEC 1, Causeway as PKCS #8. A key of another kind is not replaced by a new account.
#[test]
fn account_keys() {
    let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
    let sec1: EcPrivateKeyRfc5915Der<'_> = key.private_key().as_der().unwrap();
    let pem = |label: &str, der: &[u8]| {
        format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", BASE64_STANDARD.encode(der))
    };
    let read = pkcs8(pem("EC PRIVATE KEY", sec1.as_ref()).as_bytes()).unwrap();
    let again = pkcs8(pem("PRIVATE KEY", read.secret_pkcs8_der()).as_bytes()).unwrap();
    assert_eq!(read, again);
    assert!(instant_acme::Key::from_pkcs8_der(read).is_ok());
    let p384 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    assert!(pkcs8(p384.serialize_pem().as_bytes()).is_none() && pkcs8(b"").is_none());
}

// STYLE.md, Language: operators read the effect and the cause. The authority did not cause the end of this job.
#[tokio::test]
async fn a_panic_of_the_use_of_storage_is_no_timeout() {
    let storage: SharedStorage = Arc::new(FileStorage::new(std::env::temp_dir()));
    let error = blocking(&storage, |_| -> Result<(), AcmeError> { panic!("expected by the test") }).await.unwrap_err();
    let want = "the use of storage was interrupted: the server is shutting down, or the job panicked";
    assert_eq!(error.to_string(), want);
}
