//! Suites, groups and protocols by their names in configurations.

use causeway_pipeline::TlsVersion;
use rustls::crypto::SupportedKxGroup;
use rustls::crypto::aws_lc_rs::{cipher_suite as suite, kx_group};
use rustls::{ProtocolVersion, SupportedCipherSuite, SupportedProtocolVersion};

/// Cipher suites by IANA's names, in rustls's order of preference.
pub(super) static SUITES: &[(&str, SupportedCipherSuite)] = &[
    ("TLS_AES_256_GCM_SHA384", suite::TLS13_AES_256_GCM_SHA384),
    ("TLS_AES_128_GCM_SHA256", suite::TLS13_AES_128_GCM_SHA256),
    ("TLS_CHACHA20_POLY1305_SHA256", suite::TLS13_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

/// Key exchange groups by Caddy's names.
pub(super) static GROUPS: &[(&str, &dyn SupportedKxGroup)] = &[
    ("x25519mlkem768", kx_group::X25519MLKEM768),
    ("x25519", kx_group::X25519),
    ("secp256r1", kx_group::SECP256R1),
    ("secp384r1", kx_group::SECP384R1),
];

/// ALPN's protocol names (RFC 7301 §6).
pub(super) static PROTOCOLS: &[&str] = &["h2", "http/1.1", "http/1.0"];

/// Looks up a cipher suite by IANA's name.
pub(super) fn suite(name: &str) -> Option<SupportedCipherSuite> {
    SUITES.iter().find(|(known, _)| *known == name).map(|(_, suite)| *suite)
}

/// Returns a suite's IANA name, or an empty string for a suite that is not in [`SUITES`].
pub(super) fn suite_name(suite: SupportedCipherSuite) -> &'static str {
    SUITES.iter().find(|(_, known)| *known == suite).map_or("", |(name, _)| name)
}

/// Looks up a key exchange group by Caddy's name.
pub(super) fn group(name: &str) -> Option<&'static dyn SupportedKxGroup> {
    GROUPS.iter().find(|(known, _)| *known == name).map(|(_, group)| *group)
}

/// Looks up a known ALPN protocol; the result is static.
pub(super) fn protocol(name: &[u8]) -> Option<&'static str> {
    PROTOCOLS.iter().find(|known| known.as_bytes() == name).copied()
}

/// Returns Caddy's name of a version, or an empty string for an unknown one.
pub(super) fn version_name(version: Option<ProtocolVersion>) -> &'static str {
    match version {
        Some(ProtocolVersion::TLSv1_3) => "tls1.3",
        Some(ProtocolVersion::TLSv1_2) => "tls1.2",
        _ => "",
    }
}

/// Returns the versions from `min` to `max`, both included, the highest first.
pub(super) fn versions(min: TlsVersion, max: TlsVersion) -> Vec<&'static SupportedProtocolVersion> {
    let known = [(TlsVersion::Tls13, &rustls::version::TLS13), (TlsVersion::Tls12, &rustls::version::TLS12)];
    known.into_iter().filter(|(version, _)| (min..=max).contains(version)).map(|(_, version)| version).collect()
}

#[cfg(test)]
mod tests {
    // The names that a transport may have are those of the groups that exist.
    #[test]
    fn groups_of_transports() {
        let known: Vec<_> = super::GROUPS.iter().map(|(name, _)| *name).collect();
        assert_eq!(known, causeway_pipeline::upstream::TLS_GROUPS);
    }
}
