//! OCSP (RFC 6960): the request for a certificate's status, and the verification of the response before a handshake
//! carries it.
//!
//! ```text
//!  no response ──► stapled (good) ──► half of its validity: due ──► replaced by the next one
//!       │                                                     └──► its end, without a next one: removed
//!       └────────► unstapled (revoked, unknown): only remembered
//! ```
//! A response comes from the network, or from a storage that other processes write. Both are verified alike.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{Algorithm, SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use der::asn1::{AnyRef, BitStringRef, ObjectIdentifier, OctetString};
use der::{Decode as _, Encode as _, Sequence};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_ocsp::{
    CertId, CertStatus, OcspRequest, OcspResponse, OcspResponseStatus, Request, ResponseData, SingleResponse,
    TbsRequest,
};
use x509_parser::prelude::{FromDer as _, GeneralName, ParsedExtension, X509Certificate};

use super::certificate::Certificate;
use super::replace::Durability;
use super::storage::{Storage, safe_key};
use super::{Error, pem};

/// The longest response, in bytes. Each handshake that requests it contains it.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;
/// How many certificates of a response are tried as the responder's.
const RESPONDERS_MAX: usize = 8;
/// How far the responder's clock may be ahead.
const CLOCK_SKEW: Duration = Duration::from_secs(5 * 60);
/// Certificates that live shorter than this need no status: CertMagic logs no failure for them.
const SHORT_LIVED: Duration = Duration::from_secs(7 * 24 * 60 * 60);

const BASIC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.48.1.1");
const SHA1_OID: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.14.3.2.26");
/// Its AlgorithmIdentifier.
const SHA1_ALGORITHM: &[u8] = &[0x30, 9, 6, 5, 0x2b, 0xe, 3, 2, 0x1a, 5, 0];
const SHA256_OID: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.1");
/// id-kp-OCSPSigning, the content of its DER.
const OCSP_SIGNING: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 9];
/// id-ad-ocsp and id-ad-caIssuers.
const AD_OCSP: &str = "1.3.6.1.5.5.7.48.1";
const AD_ISSUERS: &str = "1.3.6.1.5.5.7.48.2";

/// Which certificates get a staple, and from where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OcspPolicy {
    /// Whether responses are requested and stapled.
    pub is_enabled: bool,
    /// The URL to use instead of the one in the certificate. An empty URL disables requests to that responder.
    pub overrides: Arc<BTreeMap<String, String>>,
}

/// The status of a certificate by its responder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OcspStatus {
    /// Not revoked. Only this is stapled.
    Good,
    /// Revoked.
    Revoked,
    /// The responder does not know the certificate.
    Unknown,
}

/// The responder that a certificate names, and its last response. Boxed in the certificate: most authorities have no
/// responder any more.
#[derive(Debug)]
pub(crate) struct Responder {
    url: String,
    issuer_url: Option<String>,
    last: Mutex<Option<LastResponse>>,
}

/// The last verified response.
#[derive(Debug, Clone, Copy)]
struct LastResponse {
    status: OcspStatus,
    /// Half of the validity.
    due: SystemTime,
    end: SystemTime,
}

impl Responder {
    /// Reads the authority information access (RFC 5280 §4.2.2.1) of a leaf; `None` if it names no responder.
    pub(crate) fn of(leaf: &X509Certificate<'_>) -> Option<Box<Self>> {
        let access = leaf.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::AuthorityInfoAccess(access) => Some(access),
            _ => None,
        })?;
        let url = |method: &str| {
            access.accessdescs.iter().find_map(|description| match &description.access_location {
                GeneralName::URI(uri) if description.access_method.to_id_string() == method => Some((*uri).to_owned()),
                _ => None,
            })
        };
        Some(Box::new(Self { url: url(AD_OCSP)?, issuer_url: url(AD_ISSUERS), last: Mutex::new(None) }))
    }

    /// Returns a copy without the last response.
    pub(crate) fn without_response(&self) -> Self {
        Self { url: self.url.clone(), issuer_url: self.issuer_url.clone(), last: Mutex::new(None) }
    }

    /// Ignores poisoning: each change is one assignment.
    fn last(&self) -> MutexGuard<'_, Option<LastResponse>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for OcspPolicy {
    fn default() -> Self {
        Self { is_enabled: true, overrides: Arc::default() }
    }
}

impl OcspPolicy {
    /// The URL of the certificate's responder; `None` if it has none, or the policy disables it.
    pub fn responder(&self, certificate: &Certificate) -> Option<String> {
        let written = &certificate.responder()?.url;
        let url = self.overrides.get(written).unwrap_or(written);
        (self.is_enabled && !url.is_empty()).then(|| url.clone())
    }
}

impl Certificate {
    /// The URL of the issuer's certificate, if the chain lacks it and the leaf names one.
    pub fn missing_issuer(&self) -> Option<&str> {
        if self.signed().cert.len() > 1 {
            return None;
        }
        self.responder()?.issuer_url.as_deref()
    }

    /// Whether the certificate is revoked, by the last verified response.
    pub fn is_revoked(&self) -> bool {
        self.last_response().is_some_and(|last| last.status == OcspStatus::Revoked)
    }

    /// Whether its lifetime is so short that a missing response is not a fault.
    pub fn is_short_lived(&self) -> bool {
        self.not_after().duration_since(self.not_before()).is_ok_and(|lifetime| lifetime < SHORT_LIVED)
    }

    /// The time from which the next response is to be requested: half of the validity of the last one; `None`: there is
    /// none.
    pub fn response_due(&self) -> Option<SystemTime> {
        self.last_response().map(|last| last.due)
    }

    /// Makes a request for the status (RFC 6960 §4.1). `issuer`: its certificate, if the chain lacks it.
    ///
    /// # Errors
    /// If the issuer's certificate is missing, malformed, or another one than the one that has signed the leaf.
    pub fn status_request(&self, issuer: Option<&CertificateDer<'_>>) -> Result<Vec<u8>, OcspError> {
        let signed = self.signed();
        let (leaf, issuer) = self.pair(&signed.cert, issuer)?;
        let sha1 = |bytes: &[u8]| OctetString::new(digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes).as_ref()).map_err(encoding);
        // RFC 6960 requires no particular hash, and some responders support only SHA-1 (RFC 5019 §2.1.1).
        let req_cert = CertId {
            hash_algorithm: decoded(SHA1_ALGORITHM)?,
            issuer_name_hash: sha1(issuer.subject().as_raw())?,
            issuer_key_hash: sha1(&issuer.public_key().subject_public_key.data)?,
            serial_number: decoded(&serial(&leaf))?,
        };
        let request_list = vec![Request { req_cert, single_request_extensions: None }];
        let tbs_request = TbsRequest { request_list, ..TbsRequest::default() };
        OcspRequest { tbs_request, optional_signature: None }.to_der().map_err(encoding)
    }

    /// Verifies a response and, if the status is good, staples it from the next handshake on. `issuer`: its
    /// certificate, if the chain lacks it.
    ///
    /// # Errors
    /// The response is malformed, not of this certificate, not signed by the issuer or a responder that it has
    /// authorized, or not current. The last response then stays.
    pub fn staple(
        &self,
        response: &[u8],
        issuer: Option<&CertificateDer<'_>>,
        now: SystemTime,
    ) -> Result<OcspStatus, OcspError> {
        let responder = self.responder().ok_or(OcspError::NoResponder)?;
        let signed = self.signed();
        let last = verify(response, self.pair(&signed.cert, issuer)?, now)?;
        // RFC 6960 has no rule for it; CertMagic refuses it, because clients did.
        if last.end > self.not_after() {
            return Err(OcspError::OutlivesCertificate);
        }
        let staple = (last.status == OcspStatus::Good).then(|| response.to_vec());
        // The status first: a reader that sees the new staple then also sees its end.
        *responder.last() = Some(last);
        self.replace_staple(staple);
        Ok(last.status)
    }

    /// Removes a staple that has ended.
    pub fn drop_old_staple(&self, now: SystemTime) {
        let Some(responder) = self.responder() else { return };
        let mut last = responder.last();
        if last.is_some_and(|last| last.end <= now) {
            *last = None;
            self.replace_staple(None);
        }
    }

    /// The end of the staple; `None`: there is none.
    pub fn staple_end(&self) -> Option<SystemTime> {
        self.last_response().filter(|last| last.status == OcspStatus::Good).map(|last| last.end)
    }

    fn last_response(&self) -> Option<LastResponse> {
        *self.responder()?.last()
    }

    /// The parsed leaf and issuer, after a check that the issuer has signed the leaf.
    fn pair<'c>(
        &self,
        chain: &'c [CertificateDer<'static>],
        issuer: Option<&'c CertificateDer<'_>>,
    ) -> Result<(X509Certificate<'c>, X509Certificate<'c>), OcspError> {
        let leaf = chain.first().ok_or(OcspError::NoIssuer)?;
        let issuer = chain.get(1).map(|next| &**next).or(issuer.map(|given| &**given)).ok_or(OcspError::NoIssuer)?;
        let parse =
            |bytes| X509Certificate::from_der(bytes).map(|(_, parsed)| parsed).map_err(|_| OcspError::BadIssuer);
        let (leaf, issuer) = (parse(leaf)?, parse(issuer)?);
        let signed = Signed {
            content: leaf.tbs_certificate.as_ref().to_vec(),
            algorithm: value_of_algorithm(&leaf)?,
            signature: leaf.signature_value.data.to_vec(),
        };
        if !signed.is_by(issuer.as_raw()) {
            return Err(OcspError::BadIssuer);
        }
        Ok((leaf, issuer))
    }
}

/// Returns a certificate for another configuration with this policy. If that requests no response for it, its last one
/// is left out, because nothing would replace it at its end. The given certificate stays as it is: the load of the
/// other configuration may still fail.
pub(crate) fn carried(certificate: &Arc<Certificate>, policy: &OcspPolicy) -> Arc<Certificate> {
    match certificate.last_response() {
        Some(_) if policy.responder(certificate).is_none() => Arc::new(certificate.without_response()),
        _ => Arc::clone(certificate),
    }
}

/// The storage key of the response: the first name and a hash of the chain as PEM, as CertMagic's.
pub(crate) fn storage_key(certificate: &Certificate) -> String {
    // FNV-1a with 32 bits.
    let hash = pem::write_chain(&certificate.signed().cert)
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("ocsp/{}-{hash:x}", safe_key(&certificate.names()[0]))
}

/// Staples the response in storage, if there is one that is current. Blocks on disk. One that cannot be used is
/// ignored: the next request replaces it.
pub fn restore_response(certificate: &Certificate, storage: &dyn Storage, now: SystemTime) {
    let key = storage_key(certificate);
    let found = match storage.load(&key) {
        Ok(Some(found)) => found,
        Ok(None) => return,
        Err(error) => return tracing::warn!("{error}"),
    };
    if let Err(error) = certificate.staple(&found, None, now) {
        tracing::debug!("{}: found an OCSP response that is not stapled: {error}", storage.location(&key));
    }
}

/// As [`restore_response`], unless the policy disables that.
pub(crate) fn restore(certificate: &Certificate, policy: &OcspPolicy, storage: &dyn Storage, now: SystemTime) {
    if policy.responder(certificate).is_some() {
        restore_response(certificate, storage, now);
    }
}

/// Stores a response that was just stapled. Blocks on disk.
///
/// # Errors
/// Storage cannot be written.
pub fn store_response(certificate: &Certificate, response: &[u8], storage: &dyn Storage) -> Result<(), Error> {
    storage.store(&storage_key(certificate), response, Durability::Unflushed)
}

/// Whether a stored response is of no use any more: malformed, or past its end.
pub(crate) fn is_expired(response: &[u8], now: SystemTime) -> bool {
    match basic(response).and_then(|basic| content(&basic)) {
        Ok(data) => data.responses.iter().all(|single| end(single).is_none_or(|end| end <= now)),
        Err(_) => true,
    }
}

/// The parts of a BasicOCSPResponse (RFC 6960 §4.2.1). Their bytes stay as they are, for the signature is over them.
#[derive(Sequence)]
struct Basic<'r> {
    data: AnyRef<'r>,
    algorithm: AnyRef<'r>,
    signature: BitStringRef<'r>,
    #[asn1(context_specific = "0", optional = "true", tag_mode = "EXPLICIT")]
    certificates: Option<Vec<AnyRef<'r>>>,
}

/// Unwraps a response.
fn basic(response: &[u8]) -> Result<OwnedBasic, OcspError> {
    if response.len() > RESPONSE_BYTES_MAX {
        return Err(OcspError::TooLong);
    }
    let outer = OcspResponse::from_der(response).map_err(|error| OcspError::Malformed(error.to_string()))?;
    if outer.response_status != OcspResponseStatus::Successful {
        return Err(OcspError::Refused(outer.response_status));
    }
    let Some(bytes) = outer.response_bytes.filter(|bytes| bytes.response_type == BASIC) else {
        return Err(OcspError::Malformed("expected a basic response".to_owned()));
    };
    let malformed = |error: der::Error| OcspError::Malformed(error.to_string());
    let basic = Basic::from_der(bytes.response.as_bytes()).map_err(malformed)?;
    let certificates = basic.certificates.unwrap_or_default();
    let certificates = certificates.iter().take(RESPONDERS_MAX).map(der::Encode::to_der);
    Ok(OwnedBasic {
        signed: Signed {
            content: basic.data.to_der().map_err(malformed)?,
            algorithm: basic.algorithm.value().to_vec(),
            signature: basic.signature.as_bytes().ok_or(OcspError::BadSignature)?.to_vec(),
        },
        certificates: certificates.collect::<Result<_, _>>().map_err(malformed)?,
    })
}

struct OwnedBasic {
    signed: Signed,
    /// The DER of each certificate that the response carries.
    certificates: Vec<Vec<u8>>,
}

fn content(basic: &OwnedBasic) -> Result<ResponseData, OcspError> {
    ResponseData::from_der(&basic.signed.content).map_err(|error| OcspError::Malformed(error.to_string()))
}

/// Content with its signature.
struct Signed {
    content: Vec<u8>,
    /// The content of the AlgorithmIdentifier.
    algorithm: Vec<u8>,
    signature: Vec<u8>,
}

impl Signed {
    /// Whether the key of this certificate has made the signature.
    fn is_by(&self, signer: &[u8]) -> bool {
        let signer = CertificateDer::from(signer);
        let Ok(signer) = EndEntityCert::try_from(&signer) else { return false };
        let known = default_provider().signature_verification_algorithms.all;
        let mut fitting = known.iter().filter(|known| known.signature_alg_id().as_ref() == self.algorithm);
        fitting.any(|known| signer.verify_signature(*known, &self.content, &self.signature).is_ok())
    }
}

fn value_of_algorithm(certificate: &X509Certificate<'_>) -> Result<Vec<u8>, OcspError> {
    // The DER of a certificate is a sequence of the content, the algorithm and the signature.
    #[derive(Sequence)]
    struct Outer<'c> {
        content: AnyRef<'c>,
        algorithm: AnyRef<'c>,
        signature: AnyRef<'c>,
    }
    let outer = Outer::from_der(certificate.as_raw()).map_err(|_| OcspError::BadIssuer)?;
    Ok(outer.algorithm.value().to_vec())
}

/// Verifies a response for `leaf` (RFC 6960 §3.2).
fn verify(
    response: &[u8],
    (leaf, issuer): (X509Certificate<'_>, X509Certificate<'_>),
    now: SystemTime,
) -> Result<LastResponse, OcspError> {
    let basic = basic(response)?;
    // RFC 6960 §4.2.2.2: the issuer signs, or a responder whose certificate the issuer has signed for this purpose.
    let is_signed = basic.signed.is_by(issuer.as_raw())
        || basic
            .certificates
            .iter()
            .any(|responder| basic.signed.is_by(responder) && is_authorized(responder, issuer.as_raw(), now));
    if !is_signed {
        return Err(OcspError::BadSignature);
    }
    let data = content(&basic)?;
    let single = data.responses.iter().find(|single| is_of(&single.cert_id, &leaf, &issuer));
    let single = single.ok_or(OcspError::OtherCertificate)?;
    let begin = single.this_update.0.to_system_time();
    // RFC 5019 §2.2.4: a response that is kept has an end. Without one, an old response could be used forever.
    let end = end(single).ok_or(OcspError::NoEnd)?;
    if begin > now + CLOCK_SKEW || end <= now || end <= begin {
        return Err(OcspError::NotCurrent);
    }
    let status = match single.cert_status {
        CertStatus::Good(_) => OcspStatus::Good,
        CertStatus::Revoked(_) => OcspStatus::Revoked,
        CertStatus::Unknown(_) => OcspStatus::Unknown,
    };
    let half = end.duration_since(begin).unwrap_or_default() / 2;
    Ok(LastResponse { status, due: begin + half, end })
}

fn end(single: &SingleResponse) -> Option<SystemTime> {
    single.next_update.map(|end| end.0.to_system_time())
}

/// Whether the issuer has signed this certificate, which is valid, as that of a responder.
fn is_authorized(responder: &[u8], issuer: &[u8], now: SystemTime) -> bool {
    let (responder, issuer) = (CertificateDer::from(responder), CertificateDer::from(issuer));
    let (Ok(responder), Ok(anchor)) = (EndEntityCert::try_from(&responder), anchor_from_trusted_cert(&issuer)) else {
        return false;
    };
    let now = UnixTime::since_unix_epoch(now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
    let known = default_provider().signature_verification_algorithms.all;
    responder.verify_for_usage(known, &[anchor], &[], now, KeyUsage::required(OCSP_SIGNING), None, None).is_ok()
}

/// Whether an ID is that of the leaf. The responder may use another hash than the request.
fn is_of(id: &CertId, leaf: &X509Certificate<'_>, issuer: &X509Certificate<'_>) -> bool {
    let hash: &'static Algorithm = match id.hash_algorithm.oid {
        SHA1_OID => &SHA1_FOR_LEGACY_USE_ONLY,
        SHA256_OID => &SHA256,
        _ => return false,
    };
    let is_hash = |found: &OctetString, bytes: &[u8]| found.as_bytes() == digest(hash, bytes).as_ref();
    id.serial_number.as_bytes() == leaf.raw_serial()
        && is_hash(&id.issuer_name_hash, issuer.subject().as_raw())
        && is_hash(&id.issuer_key_hash, &issuer.public_key().subject_public_key.data)
}

/// The DER of the serial number. One of more than 127 bytes, which no certificate has, does not decode.
fn serial(leaf: &X509Certificate<'_>) -> Vec<u8> {
    let content = leaf.raw_serial();
    let mut der = vec![2, u8::try_from(content.len()).unwrap_or(u8::MAX)];
    der.extend_from_slice(content);
    der
}

/// Decodes the DER of a value whose type the caller's context names.
fn decoded<T: for<'d> der::Decode<'d>>(der: &[u8]) -> Result<T, OcspError> {
    T::from_der(der).map_err(encoding)
}

fn encoding(error: der::Error) -> OcspError {
    OcspError::Unfit(error.to_string())
}

/// Why a certificate got no staple.
#[derive(Debug)]
#[non_exhaustive]
pub enum OcspError {
    /// The certificate names no responder.
    NoResponder,
    /// The chain has no issuer, and none was given.
    NoIssuer,
    /// The issuer is malformed, or has not signed the certificate.
    BadIssuer,
    /// The certificate cannot be put into a request: the reason.
    Unfit(String),
    /// The response is longer than 64 KiB.
    TooLong,
    /// The response cannot be parsed: the reason.
    Malformed(String),
    /// The responder refuses the request.
    Refused(OcspResponseStatus),
    /// Neither the issuer nor an authorized responder has signed the response.
    BadSignature,
    /// The response is about another certificate.
    OtherCertificate,
    /// The response has no `nextUpdate`.
    NoEnd,
    /// The response is from the future, or too old.
    NotCurrent,
    /// The response ends after the certificate.
    OutlivesCertificate,
}

impl fmt::Display for OcspError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoResponder => f.write_str("the certificate names no OCSP responder"),
            Self::NoIssuer => f.write_str("found no issuer in the chain, expected its certificate after the leaf"),
            Self::BadIssuer => f.write_str("the certificate of the issuer has not signed the certificate"),
            Self::Unfit(why) => write!(f, "the certificate cannot be put into a request: {why}"),
            Self::TooLong => write!(f, "found a response longer than {RESPONSE_BYTES_MAX} bytes"),
            Self::Malformed(why) => write!(f, "found a malformed response: {why}"),
            Self::Refused(status) => write!(f, "the responder refuses the request: {status:?}"),
            Self::BadSignature => {
                f.write_str("found a response with another signature than the issuer's or that of its responder")
            }
            Self::OtherCertificate => f.write_str("found a response about another certificate"),
            Self::NoEnd => f.write_str("found a response without nextUpdate, which cannot be kept"),
            Self::NotCurrent => f.write_str("found a response that is not valid now"),
            Self::OutlivesCertificate => f.write_str("found a response that is valid for longer than the certificate"),
        }
    }
}

impl std::error::Error for OcspError {}

#[cfg(test)]
mod tests;
