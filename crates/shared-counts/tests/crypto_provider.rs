//! The choice of the provider of cryptography. The default one belongs to the process, so this test has a process of
//! its own.

use causeway_shared_counts::{CountExchange, RedisPlace, RedisServer};
use rustls::crypto::CryptoProvider;

// rustls, `CryptoProvider`: without a default one, and with the features `aws_lc_rs` and `ring`,
// `ClientConfig::builder` panics. The crate redis calls it at each connection.
#[test]
fn redis_over_tls_has_a_default_provider() {
    let place = RedisPlace::Tcp { host: "127.0.0.1".to_owned(), port: 1, tls: true };
    let server = RedisServer { place, username: String::new(), password: String::new(), db: 0 };
    // The place is one of a server that refuses connections.
    let _exchange = CountExchange::open(&server).unwrap();
    assert!(CryptoProvider::get_default().is_some());
}
