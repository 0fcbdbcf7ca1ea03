//! The rate limits of authorities (RFC 8555 §6.6) that orders have met. They outlive a reload: an order before their
//! end would be refused, and might prolong them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use causeway_certs::SharedStorage;

use super::blocking::locked;
use super::issuance_plan::IssuancePlan;

/// The longest limit that counts: the longest period of Let's Encrypt's limits.
pub(super) const LIMITED_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Names whose limits are remembered. The limits of further ones do not outlive a reload.
const LIMITS_MAX: usize = 100_000;

/// The limits by name. Those of a name that leaves memory stay.
#[derive(Default)]
pub(super) struct OrderLimits(Mutex<HashMap<String, Arc<OrderLimit>>>);

/// The refusal of all authorities of a name.
#[derive(Debug)]
pub(super) struct OrderLimit {
    /// The accounts that the authorities limit.
    accounts: Box<[u64]>,
    /// The authorities' reasons, in one line.
    pub(super) reasons: String,
    /// The first time at which one of them accepts another order.
    pub(super) until: SystemTime,
}

impl OrderLimits {
    /// Returns the limit that an order of `plan` would meet: one that limits all accounts of the plan, in any sequence.
    /// `default_storage` is the storage of names without one of their own.
    pub(super) fn find(
        &self,
        plan: &IssuancePlan,
        default_storage: &SharedStorage,
        now: SystemTime,
    ) -> Option<Arc<OrderLimit>> {
        let limit = locked(&self.0).get(&plan.public().name).cloned()?;
        // The upper bound is for a clock that was set back.
        let stands = now < limit.until && limit.until <= now + LIMITED_MAX;
        let applies = stands && plan.accounts(default_storage).iter().all(|account| limit.accounts.contains(account));
        applies.then_some(limit)
    }

    /// Remembers that the authorities refuse further orders until `retry_at`, if that is a time in the future.
    pub(super) fn add(
        &self,
        plan: &IssuancePlan,
        default_storage: &SharedStorage,
        reasons: &str,
        retry_at: Option<SystemTime>,
        now: SystemTime,
    ) {
        let Some(until) = retry_at.filter(|at| now < *at) else { return };
        let until = until.min(now + LIMITED_MAX);
        let limit = OrderLimit { accounts: plan.accounts(default_storage), reasons: reasons.to_owned(), until };
        let mut limits = locked(&self.0);
        if limits.len() >= LIMITS_MAX {
            limits.retain(|_, limit| now < limit.until);
        }
        if limits.len() < LIMITS_MAX {
            limits.insert(plan.public().name.clone(), Arc::new(limit));
        }
    }

    /// Forgets the limit of a name that has a certificate.
    pub(super) fn remove(&self, name: &str) {
        locked(&self.0).remove(name);
    }

    /// Forgets the limits that are over.
    pub(super) fn remove_ended(&self, now: SystemTime) {
        locked(&self.0).retain(|_, limit| now < limit.until);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use causeway_certs::{FileStorage, KeyKind};
    use causeway_config::plan::{AcmeIssuer, ExternalAccount, PublicIssuer, PublicName, Secret};

    use super::super::issuance_plan::RenewError;
    use super::super::issuance_plan::tests::{public_name, storages};
    use super::super::renewals::pause_after;
    use super::*;

    fn plan(issuers: &[AcmeIssuer]) -> IssuancePlan {
        let issuers = issuers.iter().map(|issuer| PublicIssuer::Acme(Box::new(issuer.clone()))).collect();
        IssuancePlan::new(&PublicName { issuers, ..public_name() }, KeyKind::P256, false, &storages())
    }

    fn issuer(ca: &str) -> AcmeIssuer {
        AcmeIssuer { ca: format!("https://{ca}.example/directory"), ..AcmeIssuer::default() }
    }

    fn default_storage() -> SharedStorage {
        Arc::new(FileStorage::new(Path::new("")))
    }

    // RFC 8555 §6.6: a client waits until the time that the authority has named. Our own pause between failed orders,
    // which is for mistakes of the operator, ends with a reload, and so does a time in the past.
    #[test]
    fn a_limit_is_the_time_of_the_authority() {
        let (limits, now, default_storage) = (OrderLimits::default(), SystemTime::now(), default_storage());
        let plan = plan(&[issuer("a")]);
        limits.add(&plan, &default_storage, "busy", Some(now - Duration::from_secs(1)), now);
        limits.add(&plan, &default_storage, "no account", None, now);
        assert!(limits.find(&plan, &default_storage, now).is_none());
        let until = now + Duration::from_secs(3);
        let error = RenewError::Authority("busy".to_owned(), Some(until));
        assert_eq!(pause_after(&error, &mut 11, now), Duration::from_secs(6 * 60 * 60));
        limits.add(&plan, &default_storage, "busy", Some(until), now);
        assert_eq!(limits.find(&plan, &default_storage, now).map(|limit| limit.until), Some(until));
        assert!(limits.find(&plan, &default_storage, until).is_none());
        // A week at most.
        limits.add(&plan, &default_storage, "busy", Some(now + 2 * LIMITED_MAX), now);
        assert_eq!(limits.find(&plan, &default_storage, now).map(|limit| limit.until), Some(now + LIMITED_MAX));
        limits.remove_ended(now + LIMITED_MAX);
        assert!(locked(&limits.0).is_empty());
    }

    // An authority limits an account. With another account or authority there is no wait; the sequence of the
    // authorities and their number do not matter.
    #[test]
    fn a_limit_is_that_of_an_account() {
        let (limits, now, default_storage) = (OrderLimits::default(), SystemTime::now(), default_storage());
        let hour = Duration::from_secs(60 * 60);
        limits.add(&plan(&[issuer("a"), issuer("b")]), &default_storage, "too many", Some(now + hour), now);
        let email = AcmeIssuer { email: "ops@a.example".to_owned(), ..issuer("a") };
        let account = ExternalAccount { key_id: "id".to_owned(), mac_key: Secret("a2V5".to_owned()) };
        let external = AcmeIssuer { external_account: Some(account), ..issuer("a") };
        let other_test = AcmeIssuer { test_ca: "https://test.example/directory".to_owned(), ..issuer("a") };
        let profile = AcmeIssuer { profile: "short".to_owned(), ..issuer("a") };
        for (issuers, is_limited) in [
            (vec![issuer("a"), issuer("b")], true),
            (vec![issuer("b"), issuer("a")], true),
            (vec![issuer("b")], true),
            (vec![profile], true),
            (vec![issuer("a"), issuer("c")], false),
            (vec![email], false),
            (vec![external], false),
            (vec![other_test], false),
        ] {
            let found = limits.find(&plan(&issuers), &default_storage, now);
            assert_eq!(found.is_some(), is_limited, "{issuers:?}");
        }
        let elsewhere: SharedStorage = Arc::new(FileStorage::new(Path::new("elsewhere")));
        assert!(limits.find(&plan(&[issuer("a")]), &elsewhere, now).is_none(), "it has other accounts");
    }
}
