//! The plan by which a name's certificate is obtained: its issuers are tried in turn, under the name's lock in storage.

use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::SystemTime;

use causeway_acme::{AcmeError, CertificateRequest, PublicIssuer};
use causeway_certs::{
    Error, IssuedCertificate, Keeper, KeyKind, LocalCertificateSpec, Lock, OcspPolicy, PublicCertificateSpec,
    SharedStorage,
};
use causeway_config::plan::PublicName;

use super::blocking::blocking;
use super::certificates::local_spec;
use super::issuers::issuers;
use super::order_limits::OrderLimits;
use super::storage::Storages;

/// Caddy's default of the lifetime's fraction that remains when a certificate is renewed.
const RENEWAL_RATIO: f64 = 1.0 / 3.0;
/// The largest fraction of a lifetime that may remain. Above it, a policy's ratio would order certificates until the
/// authority's rate limit.
const RENEWAL_RATIO_MAX: f64 = 0.9;

/// A name, its issuers and the options of its certificates, for all its orders.
pub(super) struct IssuancePlan {
    public: PublicCertificateSpec,
    issuers: Box<[PublicIssuer]>,
    /// The local authority that signs when none of the issuers does.
    fallback: Option<Box<LocalCertificateSpec>>,
    key: KeyKind,
    /// Whether the certificate obliges the server to send an OCSP response (RFC 7633).
    must_staple: bool,
}

impl IssuancePlan {
    pub(super) fn new(written: &PublicName, key: KeyKind, on_demand: bool, storages: &Storages) -> Self {
        let issuers = issuers(written);
        let fallback = written.fallback.as_ref().map(|local| Box::new(local_spec(local, on_demand, storages)));
        let authorities = issuers.iter().map(PublicIssuer::storage_name);
        let public = PublicCertificateSpec {
            name: written.name.clone(),
            authorities: authorities.chain(fallback.as_ref().map(|local| local.authority.clone())).collect(),
            renewal_ratio: written.renewal_ratio.unwrap_or(RENEWAL_RATIO).min(RENEWAL_RATIO_MAX),
            ocsp: OcspPolicy { is_enabled: written.ocsp.is_enabled, overrides: Arc::clone(&written.ocsp.overrides) },
            storage: storages.own(written.storage.as_ref()).cloned(),
            on_demand,
        };
        Self { public, issuers: issuers.into(), fallback, key, must_staple: written.ocsp.must_staple }
    }

    /// The keeper's record of the name.
    pub(super) fn public(&self) -> &PublicCertificateSpec {
        &self.public
    }

    /// The issuers in the order in which they are tried.
    pub(super) fn issuers(&self) -> &[PublicIssuer] {
        &self.issuers
    }

    /// The storage name of the authority that orders try first.
    pub(super) fn first_authority(&self) -> &str {
        self.public.authorities.first().map_or("", |authority| authority)
    }

    /// Identifies the issuers' accounts. `default_storage` is the storage of names without one of their own.
    pub(super) fn accounts(&self, default_storage: &SharedStorage) -> Box<[u64]> {
        let storage = self.storage(default_storage).identity();
        let account = |issuer: &PublicIssuer| {
            let mut hasher = DefaultHasher::new();
            issuer.hash_account(&mut hasher);
            // Each storage has accounts of its own.
            storage.hash(&mut hasher);
            hasher.finish()
        };
        self.issuers.iter().map(account).collect()
    }

    /// Whether a local authority signs when none of the issuers does.
    pub(super) fn has_fallback(&self) -> bool {
        self.fallback.is_some()
    }

    /// The name's storage; `default_storage` is that of names without one of their own.
    pub(super) fn storage<'s>(&'s self, default_storage: &'s SharedStorage) -> &'s SharedStorage {
        self.public.storage.as_ref().unwrap_or(default_storage)
    }

    /// Obtains a certificate from the first issuer that signs one, or else from the local authority. `attempt` counts
    /// the failures so far. `is_early`: the authority has suggested to renew the certificate in use before it is due.
    /// Within a rate limit of `limits` no issuer gets an order; a certificate that another process has stored is found,
    /// and the local authority signs.
    pub(super) async fn renew(
        &self,
        keeper: &Arc<Keeper>,
        attempt: usize,
        is_early: bool,
        limits: &OrderLimits,
    ) -> Result<(), RenewError> {
        let failed = |error: Error| RenewError::Local(error.to_string());
        let (storage, name) = (self.storage(keeper.storage()).clone(), self.public.name.clone());
        let locked = blocking(move || storage.lock(&format!("issue_cert_{name}"))).await;
        // Held until the certificate is stored: of several processes with this storage one obtains the certificate, and
        // the others then find it.
        let locked = locked.map_err(RenewError::Local)?.map_err(|error| match error {
            Error::Locked(_) => RenewError::Elsewhere(error.to_string()),
            error => RenewError::Storage(error.to_string()),
        });
        let lock = Arc::new(locked?);
        let old = keeper.issued(&self.public.name);
        let (at_work, name) = (Arc::clone(keeper), self.public.name.clone());
        let is_found = blocking(move || at_work.reload_public(&name, SystemTime::now())).await;
        let is_found = is_found.map_err(RenewError::Local)?.map_err(failed)?;
        let is_old = || {
            let leaf = |issued: IssuedCertificate| issued.certificate.signed().cert.first().cloned();
            old.and_then(leaf) == keeper.issued(&self.public.name).and_then(leaf)
        };
        if is_found && !(is_early && is_old()) {
            return Ok(());
        }
        let mut failure = match limits.find(self, keeper.storage(), SystemTime::now()) {
            Some(limit) => RenewError::Authority(
                format!("no order was sent, because an earlier refusal still holds: {}", limit.reasons),
                Some(limit.until),
            ),
            None => match self.obtain_from_first(keeper, &lock, attempt).await {
                Ok(()) => {
                    limits.remove(&self.public.name);
                    return Ok(());
                }
                Err(failure) => {
                    if let RenewError::Authority(reasons, retry_at) = &failure {
                        limits.add(self, keeper.storage(), reasons, *retry_at, SystemTime::now());
                    }
                    failure
                }
            },
        };
        if let Some(local) = self.fallback.clone().filter(|local| self.lacks_public_certificate(local, keeper)) {
            tracing::error!("{}: {failure}; the local authority '{}' signs", self.public.name, local.authority);
            let keeper = Arc::clone(keeper);
            let signed = blocking(move || keeper.sign_public(&local, &lock, SystemTime::now())).await;
            let Err(error) = signed.and_then(|signed| signed.map_err(|error| error.to_string())) else { return Ok(()) };
            let (RenewError::Storage(why)
            | RenewError::Local(why)
            | RenewError::Elsewhere(why)
            | RenewError::Authority(why, _)) = &mut failure;
            *why = format!("{why}; the local authority: {error}");
        }
        Err(failure)
    }

    /// Obtains a certificate from the first issuer that signs one. The failure is that of the authorities if one of
    /// them was tried.
    async fn obtain_from_first(
        &self,
        keeper: &Arc<Keeper>,
        lock: &Arc<Lock>,
        attempt: usize,
    ) -> Result<(), RenewError> {
        let (mut errors, mut ends) = (Vec::new(), Vec::new());
        let mut is_of_storage = !self.issuers.is_empty();
        for issuer in &self.issuers {
            match self.obtain(issuer, keeper, lock, attempt).await {
                Ok(()) => return Ok(()),
                Err(error) => {
                    is_of_storage &= error.is_of_storage();
                    ends.push(error.retry_at());
                    errors.push(format!("{}: {error}", issuer.label()));
                }
            }
        }
        let reasons = errors.join("; ");
        if is_of_storage {
            return Err(RenewError::Local(reasons));
        }
        // An issuer without a time of the next attempt may be tried sooner.
        let retry_at = ends.into_iter().collect::<Option<Vec<_>>>().and_then(|ends| ends.into_iter().min());
        Err(RenewError::Authority(reasons, retry_at))
    }

    /// Returns whether the name has no certificate of a public authority that clients accept. The local authority
    /// replaces no such one.
    fn lacks_public_certificate(&self, local: &LocalCertificateSpec, keeper: &Keeper) -> bool {
        !keeper.issued(&self.public.name).is_some_and(|issued| {
            let certificate = &issued.certificate;
            issued.authority != local.authority
                && SystemTime::now() < certificate.not_after()
                && !certificate.is_revoked()
        })
    }

    async fn obtain(
        &self,
        issuer: &PublicIssuer,
        keeper: &Arc<Keeper>,
        lock: &Arc<Lock>,
        attempt: usize,
    ) -> Result<(), AcmeError> {
        let name = &self.public.name;
        tracing::info!("{name}: obtaining a certificate from {}", issuer.label());
        let served = keeper.issued(name);
        let old = served.as_ref().filter(|old| old.authority == issuer.storage_name());
        let old = old.map(|old| old.certificate.signed());
        let replaces = old.as_ref().and_then(|old| old.cert.first());
        let wanted = CertificateRequest { name, key: self.key, attempt, must_staple: self.must_staple, replaces };
        let issued = issuer.obtain(wanted, self.storage(keeper.storage())).await?;
        let (putting, lock) = (Arc::clone(keeper), Arc::clone(lock));
        let (at, authority) = (name.clone(), issuer.storage_name());
        let stored = blocking(move || putting.install_public(&at, &authority, &issued.chain, &issued.key, &lock)).await;
        match stored.unwrap_or(Ok(())) {
            // Another server may have taken the lock, and have stored a certificate. Then both serve that one.
            Err(error @ Error::LockLost(_)) => {
                let (keeper, at) = (Arc::clone(keeper), name.clone());
                let reload = move || {
                    let old = served.as_ref().map(|old| &*old.certificate);
                    keeper.reload_public_except(&at, old, SystemTime::now()).unwrap_or(false)
                };
                match blocking(reload).await {
                    Ok(true) => {
                        tracing::warn!("{name}: {error}; the certificate that another server has stored is served");
                    }
                    _ => tracing::error!("{name}: {error}; the new certificate is served, and is only in memory"),
                }
            }
            Err(error @ Error::Write(..)) => {
                tracing::error!("{name}: {error}; the new certificate is served, but the next start orders another");
            }
            stored => stored?,
        }
        tracing::info!("{name}: obtained a certificate from {}", issuer.label());
        Ok(())
    }
}

/// Why a name has no new certificate.
pub(super) enum RenewError {
    /// The storage gave no lock of the name, so it most likely fails for every name.
    Storage(String),
    /// The storage or a local authority failed for this name. No authority has got an order.
    Local(String),
    /// Another process has held the name's lock for as long as storage waits: it is obtaining the certificate.
    Elsewhere(String),
    /// The authorities' reasons, and the time before which all of them refuse another order, if they have named one. It
    /// may be over.
    Authority(String, Option<SystemTime>),
}

impl fmt::Display for RenewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Storage(why) | Self::Local(why) | Self::Elsewhere(why) | Self::Authority(why, _)) = self;
        f.write_str(why)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use causeway_config::plan;

    use super::*;

    pub(in super::super) fn storages() -> Storages {
        let default_storage: SharedStorage = Arc::new(causeway_certs::FileStorage::new(""));
        Storages::open(default_storage, std::iter::empty(), Path::new("")).unwrap()
    }

    /// Makes a name without issuers.
    pub(in super::super) fn public_name() -> PublicName {
        PublicName {
            name: "a.example".to_owned(),
            issuers: Vec::new(),
            fallback: None,
            renewal_ratio: None,
            key: plan::KeyKind::P256,
            ocsp: plan::OcspStapling::default(),
            storage: None,
        }
    }

    // CertMagic's default is a third. A ratio near 1 would make every certificate due as soon as it is issued.
    #[test]
    fn renewal_ratios() {
        for (written, want) in [(None, RENEWAL_RATIO), (Some(0.5), 0.5), (Some(1.0), RENEWAL_RATIO_MAX)] {
            let name = PublicName { renewal_ratio: written, ..public_name() };
            let plan = IssuancePlan::new(&name, KeyKind::P256, false, &storages());
            assert!((plan.public().renewal_ratio - want).abs() < f64::EPSILON, "{written:?}");
        }
    }
}
