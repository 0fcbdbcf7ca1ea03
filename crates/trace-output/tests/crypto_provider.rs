//! The choice of the provider of cryptography. The default one belongs to the process, so this test has a process of
//! its own.

use causeway_trace_output::{TraceOutput, TraceSettings};
use rustls::crypto::{CryptoProvider, aws_lc_rs};

// rustls, `CryptoProvider`: without a default one, and with the features `aws_lc_rs` and `ring`,
// `ClientConfig::builder` panics. With this unusable default it panics too.
#[test]
fn clients_use_no_default_provider() {
    let unusable = CryptoProvider { cipher_suites: Vec::new(), ..aws_lc_rs::default_provider() };
    unusable.install_default().expect("the first one");
    let endpoint = |name: &str| (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| "https://127.0.0.1:1".to_owned());
    let settings = TraceSettings::read(&endpoint).expect("settings");
    // A system without roots is an error.
    drop(TraceOutput::open(&settings.export.expect("an exporter")));
}
