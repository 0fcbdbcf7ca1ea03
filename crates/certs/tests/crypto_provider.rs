//! The choice of the provider of cryptography. The default one belongs to the process, so this test has a process of
//! its own.

use causeway_certs::{RedisSpec, RedisStorage, RedisTls};
use rustls::crypto::CryptoProvider;

// rustls, `CryptoProvider`: without a default one, and with the features `aws_lc_rs` and `ring`,
// `ClientConfig::builder` panics. The crate redis calls it at each connection.
#[test]
fn redis_over_tls_has_a_default_provider() {
    let tls = Some(RedisTls { insecure: true, roots: None });
    RedisStorage::new(&RedisSpec { tls, ..RedisSpec::new("127.0.0.1", 1) }).unwrap();
    assert!(CryptoProvider::get_default().is_some());
}
