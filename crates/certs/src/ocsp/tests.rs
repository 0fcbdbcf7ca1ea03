use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    PublicKeyData as _, SigningKey as _,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use time::OffsetDateTime;
use time::macros::format_description;

use super::*;
use crate::tests::{DAY, Directory, now};
use crate::{CertificatePlan, FileStorage, Keeper, PublicCertificateSpec};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// DER with this tag.
fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let mut der = vec![tag];
    match content.len() {
        len @ 0..128 => der.push(len as u8),
        len @ 128..256 => der.extend_from_slice(&[0x81, len as u8]),
        len => der.extend_from_slice(&[0x82, (len >> 8) as u8, len as u8]),
    }
    der.extend_from_slice(&content);
    der
}

fn moment(at: SystemTime) -> Vec<u8> {
    let form = format_description!("[year][month][day][hour][minute][second]Z");
    der(0x18, &[OffsetDateTime::from(at).format(form).unwrap().as_bytes()])
}

/// An authority, and a leaf that it has signed and that names a responder.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    der: CertificateDer<'static>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        (params.not_before, params.not_after) = ((now() - 90 * DAY).into(), (now() + 900 * DAY).into());
        let key = KeyPair::generate().unwrap();
        let der = params.self_signed(&key).unwrap().der().clone();
        Self { issuer: Issuer::new(params, key), der }
    }

    fn leaf(&self, with_issuer: bool) -> Certificate {
        let (chain, key) = self.pair(with_issuer);
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        Certificate::new(chain, key.into(), Vec::new(), ("chain", "key")).unwrap()
    }

    /// The leaf's chain and key.
    fn pair(&self, with_issuer: bool) -> (Vec<CertificateDer<'static>>, KeyPair) {
        let url = |method: u8, url: &str| {
            der(0x30, &[&[6, 8, 0x2b, 6, 1, 5, 5, 7, 0x30, method], &der(0x86, &[url.as_bytes()])])
        };
        let access = der(0x30, &[&url(2, "http://ca.test/ca.der"), &url(1, "http://ocsp.test/")]);
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.custom_extensions.push(CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], access));
        (params.not_before, params.not_after) = ((now() - 10 * DAY).into(), (now() + 80 * DAY).into());
        let key = KeyPair::generate().unwrap();
        let mut chain = vec![params.signed_by(&key, &self.issuer).unwrap().der().clone()];
        if with_issuer {
            chain.push(self.der.clone());
        }
        (chain, key)
    }

    /// A responder's key and certificate.
    fn responder(&self, usage: Option<ExtendedKeyUsagePurpose>, end: SystemTime) -> (KeyPair, Vec<u8>) {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "responder");
        params.extended_key_usages = usage.into_iter().collect();
        (params.not_before, params.not_after) = ((now() - DAY).into(), end.into());
        let key = KeyPair::generate().unwrap();
        let der = params.signed_by(&key, &self.issuer).unwrap().der().to_vec();
        (key, der)
    }
}

/// The content of a response.
struct TestResponse {
    id: Vec<u8>,
    status: Vec<u8>,
    begin: SystemTime,
    end: Option<SystemTime>,
}

impl TestResponse {
    /// A good status from an hour ago, for a day.
    fn good(leaf: &Certificate) -> Self {
        let request = OcspRequest::from_der(&leaf.status_request(None).unwrap()).unwrap();
        let id = request.tbs_request.request_list[0].req_cert.to_der().unwrap();
        Self { id, status: vec![0x80, 0], begin: now() - HOUR, end: Some(now() + 23 * HOUR) }
    }

    fn signed(&self, key: &KeyPair, certificates: &[&[u8]]) -> Vec<u8> {
        let end = self.end.map_or(Vec::new(), |end| der(0xa0, &[&moment(end)]));
        let single = der(0x30, &[&self.id, &self.status, &moment(self.begin), &end]);
        let name = der(0xa1, &[&der(0x30, &[])]);
        let data = der(0x30, &[&name, &moment(self.begin), &der(0x30, &[&single])]);
        // ecdsa-with-SHA256.
        let algorithm = der(0x30, &[&[6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]]);
        let signature = der(3, &[&[0], &key.sign(&data).unwrap()]);
        let certificates = match certificates {
            [] => Vec::new(),
            some => der(0xa0, &[&der(0x30, some)]),
        };
        let basic = der(0x30, &[&data, &algorithm, &signature, &certificates]);
        let bytes = der(0x30, &[&[6, 9, 0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1], &der(4, &[&basic])]);
        der(0x30, &[&[0x0a, 1, 0], &der(0xa0, &[&bytes])])
    }
}

// RFC 6960 §4.1.1: the ID has hashes of the issuer's name and key, and the serial number.
#[test]
fn a_request() {
    let authority = Authority::new("ca");
    let leaf = authority.leaf(true);
    let request = OcspRequest::from_der(&leaf.status_request(None).unwrap()).unwrap();
    let id = &request.tbs_request.request_list[0].req_cert;
    let signed = leaf.signed();
    let (_, parsed) = X509Certificate::from_der(&signed.cert[0]).unwrap();
    assert_eq!(id.serial_number.as_bytes(), parsed.raw_serial());
    let key = digest(&SHA1_FOR_LEGACY_USE_ONLY, authority.issuer.key().der_bytes());
    assert_eq!(id.issuer_key_hash.as_bytes(), key.as_ref());
    assert_eq!(leaf.responder().unwrap().url, "http://ocsp.test/");
    // RFC 5280 §4.2.2.1: without the issuer in the chain, its certificate is at the URL of id-ad-caIssuers.
    assert_eq!(leaf.missing_issuer(), None);
    let alone = authority.leaf(false);
    assert_eq!(alone.missing_issuer(), Some("http://ca.test/ca.der"));
    assert!(matches!(alone.status_request(None), Err(OcspError::NoIssuer)));
    assert!(alone.status_request(Some(&authority.der)).is_ok());
    assert!(matches!(alone.status_request(Some(&Authority::new("ca").der)), Err(OcspError::BadIssuer)));
}

// RFC 6960 §3.2: a response is accepted if it is about the certificate, its signer is the issuer or a responder that
// the issuer has authorized (§4.2.2.2), and it is current.
#[test]
fn signers_of_responses() {
    let (authority, other) = (Authority::new("ca"), Authority::new("other"));
    let signing = || Some(ExtendedKeyUsagePurpose::OcspSigning);
    let leaf = authority.leaf(true);
    let answer = TestResponse::good(&leaf);
    let far = now() + 10 * DAY;
    let delegated = authority.responder(signing(), far);
    let cases = [
        ("the issuer", answer.signed(authority.issuer.key(), &[]), true),
        ("the issuer, with its certificate", answer.signed(authority.issuer.key(), &[&authority.der]), true),
        ("a responder", answer.signed(&delegated.0, &[&delegated.1]), true),
        ("a responder without its certificate", answer.signed(&delegated.0, &[]), false),
        ("another authority", answer.signed(other.issuer.key(), &[&other.der]), false),
    ];
    let unfit = [
        ("a responder without a purpose", authority.responder(None, far)),
        ("a web server", authority.responder(Some(ExtendedKeyUsagePurpose::ServerAuth), far)),
        ("a responder whose certificate has expired", authority.responder(signing(), now() - HOUR)),
        ("the responder of another authority", other.responder(signing(), far)),
    ];
    let unfit = unfit.iter().map(|(name, (key, der))| (*name, answer.signed(key, &[der]), false));
    for (name, response, is_accepted) in cases.into_iter().chain(unfit) {
        leaf.drop_old_staple(now() + DAY);
        let status = leaf.staple(&response, None, now());
        match is_accepted {
            true => assert_eq!(status.unwrap(), OcspStatus::Good, "{name}"),
            false => assert!(matches!(status, Err(OcspError::BadSignature)), "{name}: {status:?}"),
        }
        assert_eq!(leaf.signed().ocsp, is_accepted.then_some(response), "{name}");
    }
}

// RFC 6960 §2.4, RFC 5019 §2.2.4, and CertMagic's check of the end.
#[test]
fn contents_of_a_response() {
    let authority = Authority::new("ca");
    let leaf = authority.leaf(true);
    let check = |change: &dyn Fn(&mut TestResponse)| {
        let mut answer = TestResponse::good(&leaf);
        change(&mut answer);
        leaf.staple(&answer.signed(authority.issuer.key(), &[]), None, now())
    };
    type Fits = fn(&Result<OcspStatus, OcspError>) -> bool;
    type Mutation = fn(&mut TestResponse);
    let bad: [(&str, Mutation, Fits); 6] = [
        ("over", |answer| answer.end = Some(now()), |found| matches!(found, Err(OcspError::NotCurrent))),
        ("of the future", |answer| answer.begin = now() + HOUR, |found| matches!(found, Err(OcspError::NotCurrent))),
        ("without an end", |answer| answer.end = None, |found| matches!(found, Err(OcspError::NoEnd))),
        (
            "longer than the certificate",
            |answer| answer.end = Some(now() + 81 * DAY),
            |found| matches!(found, Err(OcspError::OutlivesCertificate)),
        ),
        (
            "of another serial number",
            |answer| *answer.id.last_mut().unwrap() ^= 1,
            |found| matches!(found, Err(OcspError::OtherCertificate)),
        ),
        ("of another issuer", |answer| answer.id[20] ^= 1, |found| matches!(found, Err(OcspError::OtherCertificate))),
    ];
    for (name, change, fits) in bad {
        let found = check(&change);
        assert!(fits(&found), "{name}: {found:?}");
        assert_eq!((leaf.signed().ocsp.clone(), leaf.response_due()), (None, None), "{name}");
    }
    assert!(check(&|_| {}).is_ok() && leaf.signed().ocsp.is_some() && !leaf.is_revoked());
    // RFC 6960 §2.2: unknown [2], revoked [1] with its time. Only a good status is stapled, and another one replaces
    // it.
    assert_eq!(check(&|answer| answer.status = vec![0x82, 0]).unwrap(), OcspStatus::Unknown);
    assert_eq!((leaf.signed().ocsp.clone(), leaf.is_revoked()), (None, false));
    let revoked = check(&|answer| answer.status = der(0xa1, &[&moment(now() - DAY)]));
    assert_eq!((revoked.unwrap(), leaf.is_revoked(), leaf.signed().ocsp.is_none()), (OcspStatus::Revoked, true, true));
}

// RFC 6960 §2.3: an error has no content. A cut or changed response is refused and never panics.
#[test]
fn malformed_responses() {
    let authority = Authority::new("ca");
    let leaf = authority.leaf(true);
    let whole = TestResponse::good(&leaf).signed(authority.issuer.key(), &[&authority.der]);
    for cut in 0..whole.len() {
        assert!(leaf.staple(&whole[..cut], None, now()).is_err(), "{cut}");
        let mut changed = whole.clone();
        for bit in [1, 0x80] {
            changed[cut] = whole[cut] ^ bit;
            // The certificate in it is superfluous, so that a change there does no harm.
            let _ = leaf.staple(&changed, None, now());
        }
    }
    for status in [1, 2, 3, 5, 6] {
        let found = leaf.staple(&[0x30, 3, 0x0a, 1, status], None, now());
        assert!(matches!(found, Err(OcspError::Refused(_))), "{status}: {found:?}");
    }
    for junk in [&b""[..], b"<html>", &[0x30, 3, 0x0a, 1, 0], &[0x30; 70_000]] {
        let found = leaf.staple(junk, None, now());
        assert!(matches!(found, Err(OcspError::Malformed(_) | OcspError::TooLong)), "{found:?}");
    }
}

// CertMagic's `freshOCSP`: the next request is due at half of the validity. A staple is removed at its end.
#[test]
fn the_life_of_a_staple() {
    let authority = Authority::new("ca");
    let leaf = authority.leaf(true);
    let response = TestResponse::good(&leaf).signed(authority.issuer.key(), &[]);
    leaf.staple(&response, None, now()).unwrap();
    assert_eq!(leaf.response_due(), Some(now() + 11 * HOUR));
    assert_eq!(leaf.staple_end(), Some(now() + 23 * HOUR));
    leaf.drop_old_staple(now() + 22 * HOUR);
    assert_eq!(leaf.signed().ocsp, Some(response));
    leaf.drop_old_staple(now() + 23 * HOUR);
    assert_eq!((leaf.signed().ocsp.clone(), leaf.staple_end(), leaf.response_due()), (None, None, None));
}

// CertMagic's `StorageKeys.OCSPStaple`: `ocsp/NAME-HASH`, the hash of the chain's PEM by FNV-1a.
#[test]
fn in_storage() {
    let directory = Directory::new();
    let storage = FileStorage::new(directory.path(""));
    let authority = Authority::new("ca");
    let leaf = authority.leaf(true);
    let response = TestResponse::good(&leaf).signed(authority.issuer.key(), &[]);
    store_response(&leaf, &response, &storage).unwrap();
    let key = storage.list("ocsp").unwrap().remove(0);
    assert!(key.starts_with("ocsp/a.example-") && key.len() <= "ocsp/a.example-".len() + 8, "{key}");
    let off = OcspPolicy { is_enabled: false, ..OcspPolicy::default() };
    restore(&leaf, &off, &storage, now());
    assert_eq!(leaf.signed().ocsp, None);
    restore(&leaf, &OcspPolicy::default(), &storage, now() + DAY);
    assert_eq!(leaf.signed().ocsp, None, "it is over");
    restore(&leaf, &OcspPolicy::default(), &storage, now());
    assert_eq!(leaf.signed().ocsp.as_deref(), Some(&*response));
    assert!(!is_expired(&response, now()) && is_expired(&response, now() + DAY) && is_expired(b"nonsense", now()));
}

// Caddy's `ocsp_stapling off`: after the reload no handshake carries the former configuration's response, which nothing
// would replace at its end. Handshakes of the former configuration still do, because the load may be refused.
#[test]
fn a_reload_that_disables_stapling() {
    const NAME: &str = "a.example";
    let (directory, authority) = (Directory::new(), Authority::new("ca"));
    let open = |is_enabled, before: Option<&Keeper>| {
        let public = PublicCertificateSpec {
            name: NAME.to_owned(),
            authorities: vec!["one".to_owned()],
            renewal_ratio: 1.0 / 3.0,
            ocsp: OcspPolicy { is_enabled, ..OcspPolicy::default() },
            storage: None,
            on_demand: true,
        };
        let plan = CertificatePlan {
            storage: Arc::new(FileStorage::new(directory.path("data"))),
            authorities: Vec::new(),
            loaded: Vec::new(),
            selections: Vec::new(),
            loaded_ocsp: OcspPolicy::default(),
            local: Vec::new(),
            public: vec![public],
            renewal_check_interval: DAY,
        };
        Keeper::open(plan, before, now()).unwrap_or_else(|error| panic!("{error}"))
    };
    let served = |keeper: &Keeper| keeper.store().find(Some(NAME), &[], &|_| true).unwrap();
    let first = open(true, None);
    let (chain, key) = authority.pair(true);
    let lock = first.storage().lock("issue_cert_a.example").unwrap();
    first.install_public(NAME, "one", &pem::write_chain(&chain), &key.serialize_pem(), &lock).unwrap();
    let leaf = served(&first);
    leaf.mark_used();
    leaf.staple(&TestResponse::good(&leaf).signed(authority.issuer.key(), &[]), None, now()).unwrap();
    assert!(Arc::ptr_eq(&served(&open(true, Some(&first))), &leaf));
    let second = open(false, Some(&first));
    let without = served(&second);
    assert_eq!((without.signed().ocsp.clone(), without.staple_end()), (None, None));
    assert!(without.signed().cert == leaf.signed().cert && without.is_used());
    assert!(second.ocsp_targets().is_empty() && leaf.signed().ocsp.is_some());
    assert_eq!(open(true, Some(&second)).ocsp_targets().len(), 1, "its responder is still known");
}

// Caddy's `ocsp_overrides`: another URL for a responder; an empty one disables it.
#[test]
fn overrides() {
    let leaf = Authority::new("ca").leaf(true);
    let url = |overrides: &[(&str, &str)]| {
        let overrides = overrides.iter().map(|(key, url)| ((*key).to_owned(), (*url).to_owned())).collect();
        OcspPolicy { is_enabled: true, overrides: Arc::new(overrides) }.responder(&leaf)
    };
    assert_eq!(url(&[("http://other.test/", "http://b/")]).as_deref(), Some("http://ocsp.test/"));
    assert_eq!(url(&[("http://ocsp.test/", "http://b/")]).as_deref(), Some("http://b/"));
    assert_eq!(url(&[("http://ocsp.test/", "")]), None);
}
