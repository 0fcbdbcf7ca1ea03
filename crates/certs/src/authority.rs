//! An authority of our own: a root that clients are told to trust, and an intermediate below it that signs.
//!
//! Both are kept in storage where Caddy keeps its own (`pki/authorities/ID/`), unless the configuration names files. The root's key is
//! read only when the intermediate is to be renewed.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::certificate::{moment, renew_at};
use super::storage::{FileStorage, Lasting, safe};
use super::{Certificate, Error, pem};

/// Caddy's ten years, of 360 days each.
const ROOT_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60 * 30 * 12 * 10);

/// An authority as it was written.
#[derive(Debug, Clone, PartialEq)]
pub struct AuthoritySpec {
    /// By which issuers name it, and storage.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// The root's common name; `{pki.ca.name}` and `{time.now.year}` stand for what they say.
    pub root_common_name: String,
    /// The intermediate's.
    pub intermediate_common_name: String,
    /// How long an intermediate lives.
    pub intermediate_lifetime: Duration,
    /// The part of the intermediate's lifetime that is left when it is renewed.
    pub renewal_ratio: f64,
    /// The root, where it is not ours to make.
    pub root: Option<PairFiles>,
    /// The intermediate, where it is not ours to make.
    pub intermediate: Option<PairFiles>,
}

impl AuthoritySpec {
    /// One of this name with all defaults: an intermediate lives for a week and is renewed when a fifth of it is left, as Caddy's.
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            name: "Causeway Local Authority".to_owned(),
            root_common_name: "{pki.ca.name} - {time.now.year} ECC Root".to_owned(),
            intermediate_common_name: "{pki.ca.name} - ECC Intermediate".to_owned(),
            intermediate_lifetime: Duration::from_secs(7 * 24 * 60 * 60),
            renewal_ratio: 0.2,
            root: None,
            intermediate: None,
        }
    }

    /// A common name, its placeholders replaced.
    fn common_name(&self, written: &str, now: SystemTime) -> String {
        let year = OffsetDateTime::from(now).year().to_string();
        written.replace("{pki.ca.name}", &self.name).replace("{time.now.year}", &year)
    }

    fn key(&self, file: &str) -> String {
        format!("pki/authorities/{}/{file}", safe(&self.id))
    }
}

/// A certificate and its key, as files of PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairFiles {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key, where there is one.
    pub key: Option<PathBuf>,
}

/// An authority that can sign.
pub struct Authority {
    spec: AuthoritySpec,
    storage: FileStorage,
    root: CertificateDer<'static>,
    root_path: PathBuf,
    signer: Signer,
}

/// What signs leaves.
struct Signer {
    chain: Vec<CertificateDer<'static>>,
    issuer: Issuer<'static, KeyPair>,
    not_before: SystemTime,
    not_after: SystemTime,
}

impl Authority {
    /// Finds the authority in storage or in its files, and makes what is missing.
    ///
    /// # Errors
    /// A root that cannot be read or written, is broken, or has no key where one is needed. A broken intermediate of our own is
    /// replaced; one of the operator's is an error.
    pub fn open(spec: AuthoritySpec, storage: &FileStorage, now: SystemTime) -> Result<Self, Error> {
        let _lock = storage.lock(&format!("pki_{}", spec.id))?;
        let (root, root_path) = match &spec.root {
            Some(files) => {
                let place = files.certificate.display().to_string();
                let mut chain = pem::chain(&read(&files.certificate)?, &place)?;
                (chain.swap_remove(0), files.certificate.clone())
            }
            None => {
                let key = spec.key("root.crt");
                let root = match storage.load(&key)? {
                    Some(text) => pem::chain(&text, &storage.path(&key).display().to_string())?.swap_remove(0),
                    None => make_root(&spec, storage, now)?,
                };
                (root, storage.path(&key))
            }
        };
        let place = root_path.display().to_string();
        // Read now, so that what is no certificate is said by its name.
        read_validity(&root, &place)?;
        let signer = match &spec.intermediate {
            Some(files) => intermediate_from(files, &spec)?,
            None => {
                let stored = stored_intermediate(&spec, storage, &root)?;
                match stored.filter(|signer| now < renew_at(signer.not_before, signer.not_after, spec.renewal_ratio)) {
                    Some(signer) => signer,
                    None => make_intermediate(&spec, storage, &root, &place, now)?,
                }
            }
        };
        Ok(Self { spec, storage: storage.clone(), root, root_path, signer })
    }

    /// As it was written.
    pub fn spec(&self) -> &AuthoritySpec {
        &self.spec
    }

    /// The root's certificate, for those who are to trust it.
    pub fn root_path(&self) -> &PathBuf {
        &self.root_path
    }

    /// The root's certificate as text.
    pub fn root_pem(&self) -> String {
        pem::write_chain(std::slice::from_ref(&self.root))
    }

    /// The intermediate's, and what stands between it and the root, as text.
    pub fn intermediate_pem(&self) -> String {
        pem::write_chain(&self.signer.chain)
    }

    /// The root's and the intermediate's common names, their placeholders replaced.
    pub fn common_names(&self, now: SystemTime) -> (String, String) {
        let spec = &self.spec;
        (spec.common_name(&spec.root_common_name, now), spec.common_name(&spec.intermediate_common_name, now))
    }

    /// When the intermediate is to be renewed; never where it is the operator's.
    pub(crate) fn renew_at(&self) -> Option<SystemTime> {
        let signer = &self.signer;
        self.spec.intermediate.is_none().then(|| renew_at(signer.not_before, signer.not_after, self.spec.renewal_ratio))
    }

    /// Renews the intermediate where it is time; says whether it was.
    pub(crate) fn renew(&mut self, now: SystemTime) -> Result<bool, Error> {
        if self.renew_at().is_none_or(|at| now < at) {
            return Ok(false);
        }
        let _lock = self.storage.lock(&format!("pki_{}", self.spec.id))?;
        // Another process may have been faster.
        let stored = stored_intermediate(&self.spec, &self.storage, &self.root)?;
        let fresh = |signer: &Signer| now < renew_at(signer.not_before, signer.not_after, self.spec.renewal_ratio);
        self.signer = match stored.filter(fresh) {
            Some(signer) => signer,
            None => {
                let place = self.root_path.display().to_string();
                make_intermediate(&self.spec, &self.storage, &self.root, &place, now)?
            }
        };
        Ok(true)
    }

    /// Signs a leaf for one name, with the intermediate or with the root itself; no longer valid than what signs it. Returns the
    /// chain to send.
    pub(crate) fn sign(
        &self,
        name: &str,
        key: &KeyPair,
        lifetime: Duration,
        by: SignedBy,
        now: SystemTime,
    ) -> Result<Vec<CertificateDer<'static>>, Error> {
        let failed = |error: rcgen::Error| Error::Sign(name.to_owned(), error.to_string());
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.subject_alt_names = vec![match name.parse::<IpAddr>() {
            Ok(ip) => SanType::IpAddress(ip),
            Err(_) => SanType::DnsName(name.try_into().map_err(failed)?),
        }];
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(serial()?);
        let place = self.root_path.display().to_string();
        let signer_ends = match by {
            SignedBy::Intermediate => self.signer.not_after,
            SignedBy::Root => read_validity(&self.root, &place)?.1,
        };
        if now + lifetime > signer_ends {
            tracing::warn!("{name}: its certificate is valid for less than asked for: until its issuer's end");
        }
        params.not_before = whole_seconds(now);
        params.not_after = whole_seconds((now + lifetime).min(signer_ends));
        match by {
            SignedBy::Intermediate => {
                let leaf = params.signed_by(key, &self.signer.issuer).map_err(failed)?;
                Ok(std::iter::once(leaf.der().clone()).chain(self.signer.chain.iter().cloned()).collect())
            }
            SignedBy::Root => {
                let root_key = root_key(&self.spec, &self.storage)?;
                let issuer = Issuer::from_ca_cert_der(&self.root, root_key).map_err(failed)?;
                Ok(vec![params.signed_by(key, &issuer).map_err(failed)?.der().clone()])
            }
        }
    }

    /// Whether a stored chain leads to this root: a leaf outlives the authority's files when somebody removes those.
    pub(crate) fn leads_here(&self, certificate: &Certificate) -> bool {
        certificate.signed().cert.last().is_some_and(|last| is_issued_by(last, &self.root))
    }
}

/// What signs a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignedBy {
    Intermediate,
    Root,
}

/// By names and key identifiers (RFC 5280 §4.2.1.1): what is in storage was not put there by an attacker, but may be of another day.
fn is_issued_by(certificate: &CertificateDer<'_>, issuer: &CertificateDer<'_>) -> bool {
    let (Ok((_, certificate)), Ok((_, issuer))) =
        (X509Certificate::from_der(certificate), X509Certificate::from_der(issuer))
    else {
        return false;
    };
    use x509_parser::extensions::ParsedExtension;
    let find = |certificate: &X509Certificate<'_>, wanted: fn(&ParsedExtension<'_>) -> Option<Vec<u8>>| {
        certificate.extensions().iter().find_map(|extension| wanted(extension.parsed_extension()))
    };
    let authority = find(&certificate, |extension| match extension {
        ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.as_ref().map(|id| id.0.to_vec()),
        _ => None,
    });
    let subject = find(&issuer, |extension| match extension {
        ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
        _ => None,
    });
    certificate.issuer().as_raw() == issuer.subject().as_raw()
        && (authority.is_none() || subject.is_none() || authority == subject)
}

/// A new root, in storage: the key first, so that a certificate without a key is never left behind.
fn make_root(spec: &AuthoritySpec, storage: &FileStorage, now: SystemTime) -> Result<CertificateDer<'static>, Error> {
    let name = spec.common_name(&spec.root_common_name, now);
    let failed = |error: rcgen::Error| Error::Sign(name.clone(), error.to_string());
    let key = KeyPair::generate().map_err(failed)?;
    let params = authority_params(&name, 1, now, now + ROOT_LIFETIME)?;
    let root = params.self_signed(&key).map_err(failed)?;
    storage.store(&spec.key("root.key"), key.serialize_pem().as_bytes(), Lasting::Yes)?;
    storage.store(
        &spec.key("root.crt"),
        pem::write_chain(std::slice::from_ref(root.der())).as_bytes(),
        Lasting::Yes,
    )?;
    tracing::info!(
        "certificate authority '{}': made its root, {}",
        spec.id,
        storage.path(&spec.key("root.crt")).display()
    );
    Ok(root.der().clone())
}

fn make_intermediate(
    spec: &AuthoritySpec,
    storage: &FileStorage,
    root: &CertificateDer<'static>,
    root_place: &str,
    now: SystemTime,
) -> Result<Signer, Error> {
    let name = spec.common_name(&spec.intermediate_common_name, now);
    let failed = |error: rcgen::Error| Error::Sign(name.clone(), error.to_string());
    let root_left = read_validity(root, root_place)?.1.duration_since(now).unwrap_or_default();
    if spec.intermediate_lifetime >= root_left {
        return Err(Error::IntermediateTooLong { id: spec.id.clone(), root_left });
    }
    let root_issuer = Issuer::from_ca_cert_der(root, root_key(spec, storage)?).map_err(failed)?;
    let key = KeyPair::generate().map_err(failed)?;
    let mut params = authority_params(&name, 0, now, now + spec.intermediate_lifetime)?;
    params.use_authority_key_identifier_extension = true;
    let intermediate = params.signed_by(&key, &root_issuer).map_err(failed)?;
    let chain = vec![intermediate.der().clone()];
    storage.store(&spec.key("intermediate.key"), key.serialize_pem().as_bytes(), Lasting::Yes)?;
    storage.store(&spec.key("intermediate.crt"), pem::write_chain(&chain).as_bytes(), Lasting::Yes)?;
    tracing::info!("certificate authority '{}': made an intermediate", spec.id);
    let place = storage.path(&spec.key("intermediate.crt")).display().to_string();
    signer(chain, key, &place)
}

/// The intermediate in storage; `None` where there is none, or none that can be used: it is ours to replace.
fn stored_intermediate(
    spec: &AuthoritySpec,
    storage: &FileStorage,
    root: &CertificateDer<'_>,
) -> Result<Option<Signer>, Error> {
    let (chain_key, key_key) = (spec.key("intermediate.crt"), spec.key("intermediate.key"));
    let (Some(chain), Some(key)) = (storage.load(&chain_key)?, storage.load(&key_key)?) else { return Ok(None) };
    let (chain_place, key_place) = (storage.path(&chain_key).display().to_string(), storage.path(&key_key));
    let read = pair(&chain, &key, &chain_place, &key_place.display().to_string());
    match read {
        Ok(signer) if signer.chain.last().is_some_and(|last| is_issued_by(last, root)) => Ok(Some(signer)),
        Ok(_) => Ok(None),
        Err(error) => {
            tracing::warn!("{error}; another is made");
            Ok(None)
        }
    }
}

fn intermediate_from(files: &PairFiles, spec: &AuthoritySpec) -> Result<Signer, Error> {
    let Some(key) = &files.key else { return Err(Error::NoKey(format!("certificate authority '{}'", spec.id))) };
    let (chain_place, key_place) = (files.certificate.display().to_string(), key.display().to_string());
    pair(&read(&files.certificate)?, &read(key)?, &chain_place, &key_place)
}

/// A chain that signs, with its key, which must be its own.
fn pair(chain: &[u8], key: &[u8], chain_place: &str, key_place: &str) -> Result<Signer, Error> {
    let (chain, key) = (pem::chain(chain, chain_place)?, pem::key(key, key_place)?);
    let certificate = Certificate::new(chain.clone(), key.clone_key(), Vec::new(), (chain_place, key_place))?;
    let key = KeyPair::try_from(&key).map_err(|error| Error::BadKey(key_place.to_owned(), error.to_string()))?;
    drop(certificate);
    signer(chain, key, chain_place)
}

fn signer(chain: Vec<CertificateDer<'static>>, key: KeyPair, place: &str) -> Result<Signer, Error> {
    let (not_before, not_after) = read_validity(&chain[0], place)?;
    let issuer = Issuer::from_ca_cert_der(&chain[0], key);
    let issuer = issuer.map_err(|error| Error::BadCertificate(place.to_owned(), error.to_string()))?;
    Ok(Signer { chain, issuer, not_before, not_after })
}

fn root_key(spec: &AuthoritySpec, storage: &FileStorage) -> Result<KeyPair, Error> {
    let (text, place) = match &spec.root {
        Some(files) => {
            let path = files.key.as_ref().ok_or_else(|| Error::NoRootKey(spec.id.clone()))?;
            (read(path)?, path.clone())
        }
        None => {
            let key = spec.key("root.key");
            (storage.load(&key)?.ok_or_else(|| Error::NoRootKey(spec.id.clone()))?, storage.path(&key))
        }
    };
    let place = place.display().to_string();
    let key = pem::key(&text, &place)?;
    KeyPair::try_from(&key).map_err(|error| Error::BadKey(place, error.to_string()))
}

fn authority_params(name: &str, below: u8, from: SystemTime, to: SystemTime) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(below));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.serial_number = Some(serial()?);
    params.not_before = whole_seconds(from);
    params.not_after = whole_seconds(to);
    Ok(params)
}

/// RFC 5280 §4.1.2.2: positive, at most 20 octets; random, since renewals keep the name.
fn serial() -> Result<SerialNumber, Error> {
    let mut octets = [0; 16];
    getrandom::fill(&mut octets).map_err(|_| Error::Random)?;
    octets[0] = (octets[0] & 0x7f) | 0x40;
    Ok(SerialNumber::from_slice(&octets))
}

fn whole_seconds(moment: SystemTime) -> OffsetDateTime {
    let moment = OffsetDateTime::from(moment);
    moment.replace_nanosecond(0).unwrap_or(moment)
}

fn read_validity(certificate: &CertificateDer<'_>, place: &str) -> Result<(SystemTime, SystemTime), Error> {
    let (_, certificate) = X509Certificate::from_der(certificate)
        .map_err(|error| Error::BadCertificate(place.to_owned(), error.to_string()))?;
    let validity = certificate.validity();
    Ok((moment(validity.not_before), moment(validity.not_after)))
}

fn read(path: &PathBuf) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|error| Error::Read(path.clone(), error))
}

#[cfg(test)]
mod tests;
