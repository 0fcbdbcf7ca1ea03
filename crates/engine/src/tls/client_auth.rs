//! Client authentication: Caddy's four modes as rustls verifiers.

use std::sync::Arc;
use std::time::SystemTime;

use causeway_pipeline::{ClientAuthentication, ClientAuthenticationMode as Mode};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};

use super::certificate_checks;
use super::x509_v1;

/// Makes the verifier for a policy's mode.
///
/// # Errors
/// Verification is on without a usable authority, or a leaf is malformed.
pub(super) fn verifier(
    spec: &ClientAuthentication,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let is_mandatory = matches!(spec.mode, Mode::Require | Mode::RequireAndVerify);
    let verifies = matches!(spec.mode, Mode::VerifyIfGiven | Mode::RequireAndVerify);
    // Without an authority no client could ever be verified: a mistake that must not wait for the first client.
    if verifies && spec.authorities.is_empty() {
        return Err("found no authority to verify clients' certificates with, expected at least one".into());
    }
    let (mut chains, mut all) = (Vec::new(), RootCertStore::empty());
    for (number, authority) in spec.authorities.iter().enumerate().filter(|_| verifies) {
        let authority = CertificateDer::from(authority.clone());
        all.add(authority.clone())
            .map_err(|error| format!("authority {number} is not a certificate that can be trusted: {error}"))?;
        // webpki checks neither of a trust anchor: without this, each listed client could sign certificates for others.
        if !certificate_checks::parse(&authority).is_ok_and(|authority| certificate_checks::may_sign(&authority)) {
            continue;
        }
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone()).map_err(|error| error.to_string())?;
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
        let verifier = builder.build().map_err(|error| error.to_string())?;
        chains.push(TrustedAuthority { certificate: authority, verifier });
    }
    for (number, leaf) in spec.leaves.iter().enumerate() {
        // No client could present it.
        if !certificate_checks::is_certificate(leaf) {
            return Err(format!("leaf {number} is not a certificate in DER"));
        }
    }
    Ok(Arc::new(ClientChainVerifier {
        verifies,
        chains,
        hints: all.subjects(),
        authorities: spec.authorities.clone(),
        leaves: spec.leaves.clone(),
        is_mandatory,
        provider: Arc::clone(provider),
    }))
}

/// An authority with the verifier of the chains that lead to it. One for each, since an authority counts only within
/// its dates.
#[derive(Debug)]
struct TrustedAuthority {
    certificate: CertificateDer<'static>,
    verifier: Arc<dyn ClientCertVerifier>,
}

/// Certificates that stand for clients: those with the same key, and those whose certificates lead to one of them. For
/// the choice among the clients that a listener with `RequireAndVerify` has admitted.
#[derive(Debug, Clone)]
pub struct ClientTrust {
    verifier: Arc<dyn ClientCertVerifier>,
    /// The keys of the certificates, as SubjectPublicKeyInfo.
    keys: Vec<Vec<u8>>,
}

impl ClientTrust {
    /// `certificates` are in DER.
    ///
    /// # Errors
    /// There is none, or one is malformed: the reason, with its index.
    pub fn new(certificates: &[Vec<u8>]) -> Result<Self, String> {
        let mode = Mode::RequireAndVerify;
        let spec = ClientAuthentication { mode, authorities: certificates.to_vec(), leaves: Vec::new() };
        let verifier = verifier(&spec, &Arc::new(default_provider()))?;
        let keys =
            certificates.iter().filter_map(|der| certificate_checks::public_key(&CertificateDer::from(&der[..])));
        Ok(Self { verifier, keys: keys.collect() })
    }

    /// Whether the certificates stand for the client that has proved to have the key of `leaf`. `intermediates` are the
    /// other certificates that the client sent: they count only as far as signatures lead through them. Costs a few
    /// signature checks.
    pub fn includes(&self, leaf: &[u8], intermediates: &[Box<[u8]>], now: SystemTime) -> bool {
        // A clock before 1970 verifies nothing.
        let Ok(now) = now.duration_since(SystemTime::UNIX_EPOCH) else { return false };
        let (leaf, now) = (CertificateDer::from(leaf), UnixTime::since_unix_epoch(now));
        // It may have expired since the handshake.
        if certificate_checks::verify_dates(&leaf, now).is_err() {
            return false;
        }
        if certificate_checks::public_key(&leaf).is_some_and(|key| self.keys.contains(&key)) {
            return true;
        }
        let intermediates: Vec<_> = intermediates.iter().map(|der| CertificateDer::from(&der[..])).collect();
        self.verifier.verify_client_cert(&leaf, &intermediates, now).is_ok()
    }
}

/// Verifies a client's certificate. The client always proves that it has the certificate's key; the mode decides
/// whether the chain must lead to an authority, and a list of leaves may restrict the certificate further.
#[derive(Debug)]
struct ClientChainVerifier {
    /// Whether the mode verifies the chain.
    verifies: bool,
    /// The authorities that may sign.
    chains: Vec<TrustedAuthority>,
    /// The subjects of all authorities.
    hints: Vec<DistinguishedName>,
    /// All authorities: each is also its own chain.
    authorities: Vec<Vec<u8>>,
    /// The only leaves allowed; empty allows all.
    leaves: Vec<Vec<u8>>,
    is_mandatory: bool,
    provider: Arc<CryptoProvider>,
}

impl ClientChainVerifier {
    /// Verifies that a chain leads to one of the authorities within its dates, as Go does. The error is that of the
    /// authority that came closest.
    fn verify_chain(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let unknown = Error::from(CertificateError::UnknownIssuer);
        let mut closest = unknown.clone();
        for TrustedAuthority { certificate, verifier } in &self.chains {
            let verified = verifier.verify_client_cert(leaf, intermediates, now);
            match verified.and_then(|_| certificate_checks::verify_dates(certificate, now)) {
                Ok(()) => return Ok(()),
                Err(error) if error != unknown => closest = error,
                Err(_) => {}
            }
        }
        Err(closest)
    }
}

impl ClientChainVerifier {
    /// Returns whether a handshake's signature is verified without webpki. webpki refuses certificates of version 1,
    /// and those with unknown critical extensions, which RFC 5280 §4.2 forbids only where a certificate is verified.
    fn bypasses_webpki(&self, leaf: &CertificateDer<'_>) -> bool {
        !self.verifies || x509_v1::is_x509_v1(leaf)
    }
}

impl ClientCertVerifier for ClientChainVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.is_mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if self.verifies {
            // As Go: a certificate in the pool is its own chain. webpki refuses it as a leaf if it is marked as a CA,
            // which self-signed certificates usually are.
            if self.authorities.iter().any(|authority| authority[..] == **leaf) {
                certificate_checks::verify_listed(leaf, now)?;
            } else if x509_v1::is_x509_v1(leaf) {
                // webpki refuses X.509 version 1, which Go accepts and old client certificates have.
                let algorithms = &self.provider.signature_verification_algorithms;
                x509_v1::verify_client(leaf, &self.authorities, now, algorithms)?;
            } else {
                self.verify_chain(leaf, intermediates, now)?;
            }
        }
        // Compared as a whole, byte by byte: a leaf in the list is pinned.
        if !self.leaves.is_empty() && !self.leaves.iter().any(|known| known[..] == **leaf) {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        if self.bypasses_webpki(leaf) {
            return x509_v1::verify_signature(message, leaf, signed, algorithms, false);
        }
        verify_tls12_signature(message, leaf, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        if self.bypasses_webpki(leaf) {
            return x509_v1::verify_signature(message, leaf, signed, algorithms, true);
        }
        verify_tls13_signature(message, leaf, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    };

    use super::*;

    type Issuer = CertifiedIssuer<'static, KeyPair>;

    fn authority(name: &str, change: impl FnOnce(&mut CertificateParams)) -> Issuer {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        Issuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    fn signed(by: &Issuer) -> Vec<u8> {
        let params = CertificateParams::new(["client".to_owned()]).unwrap();
        params.signed_by(&KeyPair::generate().unwrap(), by).unwrap().der().to_vec()
    }

    // Go's x509.Verify: a certificate in the pool is a chain by itself, if it is valid and for clients.
    #[test]
    fn a_listed_certificate_is_its_own_chain() {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let verify = |listed: &Issuer, now: Duration| {
            let authorities = vec![listed.der().to_vec()];
            let spec = ClientAuthentication { mode: Mode::RequireAndVerify, authorities, leaves: Vec::new() };
            let verifier = verifier(&spec, &Arc::new(default_provider())).unwrap();
            verifier.verify_client_cert(listed.der(), &[], UnixTime::since_unix_epoch(now)).map(|_| ())
        };
        let ca = authority("ca", |_| {});
        assert_eq!(verify(&ca, now), Ok(()));
        assert_eq!(verify(&ca, Duration::from_secs(1)), Err(CertificateError::NotValidYet.into()));
        for (usage, want) in [
            (ExtendedKeyUsagePurpose::ClientAuth, Ok(())),
            (ExtendedKeyUsagePurpose::Any, Ok(())),
            (ExtendedKeyUsagePurpose::ServerAuth, Err(CertificateError::InvalidPurpose.into())),
        ] {
            let listed = authority("ca", |params| params.extended_key_usages = vec![usage.clone()]);
            assert_eq!(verify(&listed, now), want, "{usage:?}");
        }
    }

    // Go's x509.Verify, RFC 5280 §6.1.4: a listed certificate signs others only if it is an authority by its
    // extensions, and within its dates. Else one client could name itself as another, or renew its own certificate.
    #[test]
    fn only_authorities_sign() {
        let now = UnixTime::now();
        let verify = |listed: &Issuer, leaf: &[u8], now: UnixTime| {
            let authorities = vec![authority("other", |_| {}).der().to_vec(), listed.der().to_vec()];
            let spec = ClientAuthentication { mode: Mode::RequireAndVerify, authorities, leaves: Vec::new() };
            let verifier = verifier(&spec, &Arc::new(default_provider())).unwrap();
            assert_eq!(verifier.root_hint_subjects().len(), 2);
            verifier.verify_client_cert(&CertificateDer::from(leaf), &[], now).map(|_| ())
        };
        let usual = authority("usual", |_| {});
        assert_eq!(verify(&usual, &signed(&usual), now), Ok(()));
        let with_usage = authority("usage", |params| params.key_usages = vec![KeyUsagePurpose::KeyCertSign]);
        assert_eq!(verify(&with_usage, &signed(&with_usage), now), Ok(()));
        for (case, change) in [
            ("a client", (|params| params.is_ca = IsCa::NoCa) as fn(&mut CertificateParams)),
            ("explicitly none", |params| params.is_ca = IsCa::ExplicitNoCa),
            ("another usage", |params| params.key_usages = vec![KeyUsagePurpose::DigitalSignature]),
        ] {
            let listed = authority("alice", change);
            assert!(verify(&listed, &signed(&listed), now).is_err(), "{case}");
        }
        let expired = authority("expired", |params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
        assert!(verify(&expired, &signed(&expired), now).is_err());
        // On an open connection too.
        let trust = ClientTrust::new(&[expired.der().to_vec()]).unwrap();
        assert!(!trust.includes(expired.der(), &[], SystemTime::now()));
    }

    // A leaf that no client can present is a mistake of the operator.
    #[test]
    fn malformed_leaves_are_refused() {
        let check = |leaf: Vec<u8>| {
            let leaves = vec![signed(&authority("ca", |_| {})), leaf];
            let spec = ClientAuthentication { mode: Mode::Require, authorities: Vec::new(), leaves };
            verifier(&spec, &Arc::new(default_provider())).map(drop)
        };
        assert_eq!(check(signed(&authority("ca", |_| {}))), Ok(()));
        let refusal = Err("leaf 1 is not a certificate in DER".to_owned());
        assert_eq!(check(vec![0x30, 0x82, 0x01]), refusal);
        // RFC 5280 §4.1: a certificate is one SEQUENCE. The bytes after it would be compared too.
        assert_eq!(check([signed(&authority("ca", |_| {})), vec![0]].concat()), refusal);
    }

    // A certificate that a client merely sends proves nothing: anyone can have it.
    #[test]
    fn certificates_of_clients() {
        let (ours, other) = (authority("ours", |_| {}), authority("other", |_| {}));
        let trust = ClientTrust::new(&[ours.der().to_vec()]).unwrap();
        let now = SystemTime::now();
        let (member, foreign) = (signed(&ours), signed(&other));
        assert!(trust.includes(ours.der(), &[], now));
        assert!(trust.includes(&member, &[], now));
        assert!(!trust.includes(&foreign, &[], now));
        assert!(!trust.includes(&foreign, &[ours.der()[..].into(), member[..].into()], now));
        assert!(!trust.includes(b"no certificate", &[ours.der()[..].into()], now));
        assert!(!trust.includes(&member, &[], SystemTime::UNIX_EPOCH - Duration::from_secs(1)));
        assert!(ClientTrust::new(&[]).is_err() && ClientTrust::new(&[vec![0x30, 0]]).is_err());
    }
}
