//! The choice of the provider of cryptography. The default one belongs to the process, so this test has a process of
//! its own.

use std::path::Path;

use causeway_acme::http::{HttpClient, ProxyChoice, ServerTrust};
use rustls::crypto::{CryptoProvider, aws_lc_rs};

// rustls, `CryptoProvider`: without a default one, and with the features `aws_lc_rs` and `ring`,
// `ClientConfig::builder` panics. With this unusable default it panics too.
#[test]
fn clients_use_no_default_provider() {
    let unusable = CryptoProvider { cipher_suites: Vec::new(), ..aws_lc_rs::default_provider() };
    unusable.install_default().unwrap();
    for trust in [ServerTrust::System, ServerTrust::Roots(Vec::new()), ServerTrust::Unverified] {
        // A system without roots is an error.
        let client = HttpClient::trusting(&trust, None);
        assert!(client.is_ok() || matches!(trust, ServerTrust::System));
    }
    let proxy = ProxyChoice::Proxy("http://127.0.0.1:1".parse().unwrap());
    drop(HttpClient::through(&proxy, &[]));
    HttpClient::unix(Path::new("/nonexistent"));
}
