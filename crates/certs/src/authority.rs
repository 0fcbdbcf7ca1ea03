//! The local certificate authority: a root that clients are configured to trust, and an intermediate that signs leaves.
//!
//! Both are stored where Caddy stores its own (`pki/authorities/ID/`), unless the configuration names files. The root's
//! key is not kept in memory. Another process, or the operator, may replace the root meanwhile. Therefore each use of
//! the key reads the certificate with it, refuses a pair that does not match, and continues with a root that is new.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, SanType, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::certificate::{is_not_yet_valid, moment, renew_at};
use super::replace::Durability;
use super::storage::{LOCK_TIMEOUT, Lock, SharedStorage, Storage, StorageRequirement, lock_if_writable, safe_key};
use super::{Certificate, Error, pem};

/// The lifetime of a new root: Caddy's ten years, of 360 days each.
pub const ROOT_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60 * 30 * 12 * 10);

/// An authority as configured.
#[derive(Debug, Clone, PartialEq)]
pub struct AuthoritySpec {
    /// The ID, by which issuers refer to the authority and under which storage keeps it.
    pub id: String,
    /// The human-readable name.
    pub name: String,
    /// The root's common name; `{pki.ca.name}` and `{time.now.year}` are replaced.
    pub root_common_name: String,
    /// The intermediate's common name, with the same placeholders.
    pub intermediate_common_name: String,
    /// Lifetime of a new intermediate. Must be less than the root's remaining lifetime.
    pub intermediate_lifetime: Duration,
    /// The intermediate is renewed when this fraction of its lifetime remains.
    pub renewal_ratio: f64,
    /// The operator's root. `None`: the authority generates one.
    pub root: Option<PairFiles>,
    /// The operator's intermediate, which is never renewed. `None`: the authority generates one.
    pub intermediate: Option<PairFiles>,
    /// Where the authority is stored. `None`: where the certificates are.
    pub storage: Option<SharedStorage>,
}

impl AuthoritySpec {
    /// An authority with Caddy's defaults: the intermediate lives for seven days and is renewed when a fifth of that
    /// remains.
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
            storage: None,
        }
    }

    /// A common name with its placeholders replaced.
    fn common_name(&self, written: &str, now: SystemTime) -> String {
        let year = OffsetDateTime::from(now).year().to_string();
        written.replace("{pki.ca.name}", &self.name).replace("{time.now.year}", &year)
    }

    fn key(&self, file: &str) -> String {
        format!("pki/authorities/{}/{file}", safe_key(&self.id))
    }
}

/// A certificate and its key, as PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairFiles {
    /// The certificate.
    pub certificate: PathBuf,
    /// The key's file. A root needs one only to sign.
    pub key: Option<PathBuf>,
}

impl PairFiles {
    /// Reads the files without keeping them.
    ///
    /// # Errors
    /// A file cannot be read, has no certificate or key, or the key is not that of the certificate.
    pub fn check(&self) -> Result<(), Error> {
        let location = self.certificate.display().to_string();
        let chain = read(&self.certificate)?;
        match &self.key {
            Some(key) => pair(&chain, &read(key)?, &location, &key.display().to_string()).map(drop),
            None => read_validity(&pem::chain(&chain, &location)?[0], &location).map(drop),
        }
    }
}

/// An authority that is ready to sign leaves.
pub struct Authority {
    spec: AuthoritySpec,
    storage: SharedStorage,
    root_location: String,
    /// Replaced at a renewal. Signatures meanwhile use the old ones, and do not wait.
    current: ArcSwap<CurrentCertificates>,
}

/// The certificates in use. The intermediate is of another root only until the next renewal check, or if the operator
/// has supplied it.
#[derive(Clone)]
struct CurrentCertificates {
    root: CertificateDer<'static>,
    intermediate: Arc<Signer>,
}

/// A certificate of the authority, and the chain to it, with its key.
struct Signer {
    chain: Vec<CertificateDer<'static>>,
    issuer: Issuer<'static, KeyPair>,
    not_before: SystemTime,
    not_after: SystemTime,
}

impl Signer {
    /// Whether it needs no renewal as an intermediate. A clock that was ahead has signed one that is not valid yet.
    fn is_fresh(&self, spec: &AuthoritySpec, now: SystemTime) -> bool {
        now < renew_at(self.not_before, self.not_after, spec.renewal_ratio) && !is_not_yet_valid(self.not_before, now)
    }

    fn is_of(&self, root: &CertificateDer<'_>) -> bool {
        self.chain.last().is_some_and(|last| is_issued_by(last, root))
    }
}

/// The root at its source, a storage or the operator's files.
struct Root {
    certificate: CertificateDer<'static>,
    /// `None`: the source has no key.
    signer: Option<Signer>,
}

impl Root {
    /// Reads certificate and key. `None` if the storage has no root.
    fn load(spec: &AuthoritySpec, storage: &dyn Storage, location: &str) -> Result<Option<Self>, Error> {
        let (chain, key) = match &spec.root {
            Some(files) => {
                let key = files.key.as_ref().map(|path| Ok((read(path)?, path.display().to_string())));
                (read(&files.certificate)?, key.transpose()?)
            }
            None => {
                let Some(chain) = storage.load(&spec.key("root.crt"))? else { return Ok(None) };
                let key = spec.key("root.key");
                (chain, storage.load(&key)?.map(|text| (text, storage.location(&key))))
            }
        };
        let certificate = pem::chain(&chain, location)?.swap_remove(0);
        // Parse it now, so that an error names the root's file.
        read_validity(&certificate, location)?;
        let signer = key.map(|(key, key_location)| pair(&chain, &key, location, &key_location)).transpose()?;
        Ok(Some(Self { certificate, signer }))
    }

    fn signer(&self, spec: &AuthoritySpec) -> Result<&Signer, Error> {
        self.signer.as_ref().ok_or_else(|| Error::NoRootKey(spec.id.clone()))
    }
}

impl Authority {
    /// Loads the authority from storage or from the operator's files, and generates the missing certificates.
    /// `default_storage`: the storage of authorities without one of their own. Blocks.
    ///
    /// # Errors
    /// Fails if the root cannot be read or must be made and cannot be written, is malformed, has the key of another
    /// certificate, or has no key when one is needed; and if the operator's intermediate is malformed. A malformed
    /// intermediate of the authority's own is replaced.
    pub fn open(spec: AuthoritySpec, default_storage: &SharedStorage, now: SystemTime) -> Result<Self, Error> {
        let storage = spec.storage.as_ref().unwrap_or(default_storage).clone();
        let lock = lock_if_writable(&*storage, &format!("pki_{}", spec.id), LOCK_TIMEOUT)?;
        let root_location = match &spec.root {
            Some(files) => files.certificate.display().to_string(),
            None => storage.location(&spec.key("root.crt")),
        };
        let root = match Root::load(&spec, &*storage, &root_location)? {
            Some(root) => root,
            None => make_root(&spec, &*storage, &lock, now)?,
        };
        let intermediate = match &spec.intermediate {
            Some(files) => {
                let signer = intermediate_from(files, &spec)?;
                if !signer.is_of(&root.certificate) {
                    let location = files.certificate.display();
                    tracing::warn!(
                        "certificate authority '{}': the root {root_location} did not sign the intermediate {location}, so clients that \
                         trust the root refuse its certificates",
                        spec.id
                    );
                }
                signer
            }
            None => {
                let stored = stored_intermediate(&spec, &*storage, &root.certificate)?;
                match stored.filter(|signer| signer.is_fresh(&spec, now)) {
                    Some(signer) => signer,
                    None => {
                        let signer = root.signer(&spec)?;
                        make_intermediate(&spec, (&*storage, &lock), signer, StorageRequirement::Optional, now)?
                    }
                }
            }
        };
        let current = CurrentCertificates { root: root.certificate, intermediate: Arc::new(intermediate) };
        Ok(Self { spec, storage, root_location, current: ArcSwap::from_pointee(current) })
    }

    /// The configuration of this authority.
    pub fn spec(&self) -> &AuthoritySpec {
        &self.spec
    }

    /// Where the root's certificate is, which clients must trust: a file path, or a location in storage.
    pub fn root_location(&self) -> &str {
        &self.root_location
    }

    /// The root's certificate as PEM.
    pub fn root_pem(&self) -> String {
        pem::write_chain(std::slice::from_ref(&self.current.load().root))
    }

    /// The intermediate, and any certificates between it and the root, as PEM.
    pub fn intermediate_pem(&self) -> String {
        pem::write_chain(&self.current.load().intermediate.chain)
    }

    /// The common names of root and intermediate, with placeholders replaced.
    pub fn common_names(&self, now: SystemTime) -> (String, String) {
        let spec = &self.spec;
        (spec.common_name(&spec.root_common_name, now), spec.common_name(&spec.intermediate_common_name, now))
    }

    /// When to renew the intermediate; `None` if the operator supplied it.
    pub(crate) fn renew_at(&self) -> Option<SystemTime> {
        let signer = &self.current.load().intermediate;
        self.spec.intermediate.is_none().then(|| renew_at(signer.not_before, signer.not_after, self.spec.renewal_ratio))
    }

    /// Renews the intermediate if it is due, or of a former root. Returns whether it was. Blocks; the authority signs
    /// meanwhile. As in Caddy (caddypki/maintain.go), a root that was replaced since the start takes effect now.
    pub(crate) fn renew(&self, now: SystemTime) -> Result<bool, Error> {
        let current = self.current.load_full();
        let is_due = !current.intermediate.is_fresh(&self.spec, now) || !current.intermediate.is_of(&current.root);
        if self.spec.intermediate.is_some() || !is_due {
            return Ok(false);
        }
        // Several processes can share the storage: only one may replace the intermediate.
        let lock = lock_if_writable(&*self.storage, &format!("pki_{}", self.spec.id), LOCK_TIMEOUT)?;
        let root = self.load_root()?;
        // Another process may have renewed it while this one waited for the lock.
        let stored = stored_intermediate(&self.spec, &*self.storage, &root.certificate)?;
        let intermediate = match stored.filter(|signer| signer.is_fresh(&self.spec, now)) {
            Some(signer) => signer,
            None => {
                let requirement = StorageRequirement::while_served(current.intermediate.not_after, now);
                make_intermediate(&self.spec, (&*self.storage, &lock), root.signer(&self.spec)?, requirement, now)?
            }
        };
        self.replace(root.certificate, Some(Arc::new(intermediate)));
        Ok(true)
    }

    /// Reads the root again.
    fn load_root(&self) -> Result<Root, Error> {
        Root::load(&self.spec, &*self.storage, &self.root_location)?.ok_or_else(|| {
            let gone = std::io::Error::new(std::io::ErrorKind::NotFound, "the storage has lost the root");
            Error::Read(self.root_location.clone(), gone)
        })
    }

    /// Uses these certificates from now on; without `intermediate`, the one in use stays.
    fn replace(&self, root: CertificateDer<'static>, intermediate: Option<Arc<Signer>>) {
        let before = self.current.rcu(|current| CurrentCertificates {
            root: root.clone(),
            intermediate: Arc::clone(intermediate.as_ref().unwrap_or(&current.intermediate)),
        });
        if before.root != root {
            tracing::warn!(
                "certificate authority '{}': its root was replaced; clients must trust the new one, {}",
                self.spec.id,
                self.root_location
            );
        }
    }

    /// Signs a leaf for `names`, at least one, with the intermediate or the root. The leaf's validity is cut to that of
    /// its signer. Returns the chain to send, leaf first, without the root.
    pub(crate) fn sign(
        &self,
        names: &[String],
        key: &impl PublicKeyData,
        lifetime: Duration,
        by: SignedBy,
        now: SystemTime,
    ) -> Result<Vec<CertificateDer<'static>>, Error> {
        let name = names.join(", ");
        let failed = |error: rcgen::Error| Error::Sign(name.clone(), error.to_string());
        let alternative = |name: &String| match name.parse::<IpAddr>() {
            Ok(ip) => Ok(SanType::IpAddress(ip)),
            Err(_) => Ok(SanType::DnsName(name.as_str().try_into().map_err(failed)?)),
        };
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.subject_alt_names = names.iter().map(alternative).collect::<Result<_, Error>>()?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(serial()?);
        let by_root;
        let intermediate = &self.current.load().intermediate;
        let signer = match by {
            SignedBy::Intermediate => intermediate,
            SignedBy::Root => {
                by_root = self.load_root()?;
                if by_root.certificate != self.current.load().root {
                    self.replace(by_root.certificate.clone(), None);
                }
                by_root.signer(&self.spec)?
            }
        };
        let signer_ends = signer.not_after;
        if signer_ends <= now {
            return Err(Error::SignerExpired(self.spec.id.clone()));
        }
        if now + lifetime > signer_ends {
            tracing::warn!("{name}: shortening its certificate's lifetime: its issuer expires first");
        }
        params.not_before = whole_seconds(now);
        params.not_after = whole_seconds((now + lifetime).min(signer_ends));
        let leaf = params.signed_by(key, &signer.issuer).map_err(failed)?;
        let above: &[_] = if by == SignedBy::Root { &[] } else { &signer.chain };
        Ok(std::iter::once(leaf.der().clone()).chain(above.iter().cloned()).collect())
    }

    /// Whether a stored chain was issued under this root. It was not if an operator deleted the authority's files but
    /// left the leaves.
    pub(crate) fn issued(&self, certificate: &Certificate) -> bool {
        certificate.signed().cert.last().is_some_and(|last| is_issued_by(last, &self.current.load().root))
    }
}

/// The certificate that signs a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignedBy {
    /// The intermediate, as usual.
    Intermediate,
    /// The root, for clients that do not verify chains.
    Root,
}

/// Compares names and key identifiers (RFC 5280 §4.2.1.1), not signatures. Storage is trusted; the check only detects
/// certificates of an earlier root.
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

/// Generates and stores a root. Stores the key first, so that a crash cannot leave a certificate without its key.
fn make_root(spec: &AuthoritySpec, storage: &dyn Storage, lock: &Lock, now: SystemTime) -> Result<Root, Error> {
    let name = spec.common_name(&spec.root_common_name, now);
    let failed = |error: rcgen::Error| Error::Sign(name.clone(), error.to_string());
    let key = KeyPair::generate().map_err(failed)?;
    let params = authority_params(&name, 1, now, now + ROOT_LIFETIME)?;
    let root = params.self_signed(&key).map_err(failed)?;
    lock.store(&spec.key("root.key"), key.serialize_pem().as_bytes(), Durability::Flushed)?;
    lock.store(
        &spec.key("root.crt"),
        pem::write_chain(std::slice::from_ref(root.der())).as_bytes(),
        Durability::Flushed,
    )?;
    let location = storage.location(&spec.key("root.crt"));
    tracing::info!("certificate authority '{}': made its root, {location}", spec.id);
    let certificate = root.der().clone();
    let signer = Some(signer(vec![certificate.clone()], key, &location)?);
    Ok(Root { certificate, signer })
}

fn make_intermediate(
    spec: &AuthoritySpec,
    (storage, lock): (&dyn Storage, &Lock),
    root: &Signer,
    requirement: StorageRequirement,
    now: SystemTime,
) -> Result<Signer, Error> {
    let name = spec.common_name(&spec.intermediate_common_name, now);
    let failed = |error: rcgen::Error| Error::Sign(name.clone(), error.to_string());
    let root_left = root.not_after.duration_since(now).unwrap_or_default();
    if spec.intermediate_lifetime >= root_left {
        return Err(Error::IntermediateTooLong { id: spec.id.clone(), root_left });
    }
    let key = KeyPair::generate().map_err(failed)?;
    let mut params = authority_params(&name, 0, now, now + spec.intermediate_lifetime)?;
    params.use_authority_key_identifier_extension = true;
    let intermediate = params.signed_by(&key, &root.issuer).map_err(failed)?;
    let chain = vec![intermediate.der().clone()];
    let stored =
        lock.store(&spec.key("intermediate.key"), key.serialize_pem().as_bytes(), Durability::Flushed).and_then(|()| {
            lock.store(&spec.key("intermediate.crt"), pem::write_chain(&chain).as_bytes(), Durability::Flushed)
        });
    requirement.check(&format!("certificate authority '{}': made an intermediate", spec.id), stored)?;
    let location = storage.location(&spec.key("intermediate.crt"));
    signer(chain, key, &location)
}

/// The usable intermediate in storage. `None` if there is none, or if it is malformed or of another root: the caller
/// replaces it.
fn stored_intermediate(
    spec: &AuthoritySpec,
    storage: &dyn Storage,
    root: &CertificateDer<'_>,
) -> Result<Option<Signer>, Error> {
    let (chain_key, key_key) = (spec.key("intermediate.crt"), spec.key("intermediate.key"));
    let (Some(chain), Some(key)) = (storage.load(&chain_key)?, storage.load(&key_key)?) else { return Ok(None) };
    let (chain_location, key_location) = (storage.location(&chain_key), storage.location(&key_key));
    let read = pair(&chain, &key, &chain_location, &key_location);
    match read {
        Ok(signer) if signer.is_of(root) => Ok(Some(signer)),
        Ok(_) => Ok(None),
        Err(error) => {
            tracing::warn!("{error}; replacing the intermediate");
            Ok(None)
        }
    }
}

fn intermediate_from(files: &PairFiles, spec: &AuthoritySpec) -> Result<Signer, Error> {
    let Some(key) = &files.key else {
        return Err(Error::NoKey(
            format!("certificate authority '{}'", spec.id),
            "no key file for its intermediate".to_owned(),
        ));
    };
    let (chain_location, key_location) = (files.certificate.display().to_string(), key.display().to_string());
    pair(&read(&files.certificate)?, &read(key)?, &chain_location, &key_location)
}

/// Parses a signing chain and its key, and checks that they match.
fn pair(chain: &[u8], key: &[u8], chain_location: &str, key_location: &str) -> Result<Signer, Error> {
    let (chain, key) = (pem::chain(chain, chain_location)?, pem::key(key, key_location)?);
    // Constructed only to check that the key belongs to the certificate.
    let certificate = Certificate::new(chain.clone(), key.clone_key(), Vec::new(), (chain_location, key_location))?;
    let key = KeyPair::try_from(&key).map_err(|error| Error::BadKey(key_location.to_owned(), error.to_string()))?;
    drop(certificate);
    signer(chain, key, chain_location)
}

fn signer(chain: Vec<CertificateDer<'static>>, key: KeyPair, location: &str) -> Result<Signer, Error> {
    let (not_before, not_after) = read_validity(&chain[0], location)?;
    let issuer = Issuer::from_ca_cert_der(&chain[0], key);
    let issuer = issuer.map_err(|error| Error::BadCertificate(location.to_owned(), error.to_string()))?;
    Ok(Signer { chain, issuer, not_before, not_after })
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

/// RFC 5280 §4.1.2.2: positive, at most 20 bytes. Random, because a renewed certificate has the same issuer name and
/// still needs a new number.
fn serial() -> Result<SerialNumber, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| Error::Random)?;
    // Clear the sign bit; set the next one, so that the first byte is not zero and the length is always 16 bytes.
    bytes[0] = (bytes[0] & 0x7f) | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

/// Truncates to the resolution of certificate dates (RFC 5280 §4.1.2.5).
fn whole_seconds(moment: SystemTime) -> OffsetDateTime {
    let moment = OffsetDateTime::from(moment);
    moment.replace_nanosecond(0).unwrap_or(moment)
}

fn read_validity(certificate: &CertificateDer<'_>, location: &str) -> Result<(SystemTime, SystemTime), Error> {
    let (_, certificate) = X509Certificate::from_der(certificate)
        .map_err(|error| Error::BadCertificate(location.to_owned(), error.to_string()))?;
    let validity = certificate.validity();
    Ok((moment(validity.not_before), moment(validity.not_after)))
}

fn read(path: &PathBuf) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|error| Error::Read(path.display().to_string(), error))
}

#[cfg(test)]
mod tests;
