//! The challenge DNS-01 (RFC 8555 §8.4): a TXT record below the name, written through the operator's DNS provider.
//!
//! - [`DnsChallenge`]: the settings of one issuer
//! - `provider`: the trait of providers, and the requests to their interfaces; one file for each provider
//! - `zone`: the zone and servers of a name
//! - `propagation`: waits until the authority can see the record

mod acmedns;
mod cloudflare;
mod digitalocean;
mod duckdns;
mod exec;
mod gandi;
mod hetzner;
mod porkbun;
mod propagation;
mod provider;
mod rfc2136;
mod route53;
mod zone;

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tokio::sync::OwnedMutexGuard;

use crate::http::HttpClient;
use crate::named_locks::NamedLocks;
use provider::{Provider, Receipt, TxtRecord};
pub(crate) use zone::{Resolvers, absolute};

pub use propagation::PropagationError;
pub(crate) use provider::encoded;
pub use provider::{ProviderError, SettingError};
pub use zone::ZoneError;

/// Caddy's default of the time limit until the record is visible.
pub const PROPAGATION_TIMEOUT: Duration = Duration::from_secs(2 * 60);
/// Locks for the records that orders of this process change: some interfaces replace all values at once, and a wildcard
/// has the name of its base.
static RECORD_LOCKS: LazyLock<NamedLocks> = LazyLock::new(NamedLocks::default);
/// How long adding or removing a record may take, with all requests that it needs.
const STEP_TIMEOUT: Duration = Duration::from_secs(3 * 60);

/// The settings for DNS-01 of one issuer.
#[derive(Debug, Clone)]
pub struct DnsChallenge {
    /// Writes the records.
    pub provider: DnsProvider,
    /// The records' time to live; `None`: the provider's lowest.
    pub ttl: Option<Duration>,
    /// The pause between writing a record and the first look whether it is visible.
    pub propagation_delay: Duration,
    /// How long the record may take to become visible; `None`: it is not checked.
    pub propagation_timeout: Option<Duration>,
    /// The resolvers to use, as `host` or `host:port`. Empty: the system's, and the servers of the zone for the look.
    pub resolvers: Vec<String>,
    /// The name of the record, if it is not `_acme-challenge.NAME`.
    pub override_domain: Option<String>,
}

impl DnsChallenge {
    /// The longest time from the start to a visible record, and for its removal. An order for a record that shares its
    /// lock has to end first in this time too.
    pub(crate) fn timeout(&self) -> Duration {
        self.propagation_delay + self.propagation_timeout.unwrap_or_default() + 2 * STEP_TIMEOUT
    }

    /// Writes the record with `value` for `name` and waits until it is visible. A wildcard's record stands at the name
    /// below it.
    pub(crate) async fn present(&self, name: &str, value: String) -> Result<PresentedRecord, DnsError> {
        let default_name = || format!("_acme-challenge.{}", name.strip_prefix("*.").unwrap_or(name));
        let at = self.override_domain.clone().unwrap_or_else(default_name);
        let at = at.trim_end_matches('.').to_owned();
        let absolute = absolute(&at).map_err(DnsError::Zone)?;
        let resolvers = Resolvers::new(&self.resolvers).await.map_err(DnsError::Zone)?;
        let zone = match self.provider.0.needs_zone() {
            true => resolvers.zone_of_record(&absolute).await.map_err(DnsError::Zone)?.to_ascii(),
            false => String::new(),
        };
        let zone = zone.trim_end_matches('.').to_ascii_lowercase();
        let ttl = self.ttl.map(|ttl| u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX));
        let record = TxtRecord { name: at, zone, value: value.clone(), ttl };
        let provider = self.provider.clone();
        // Not in the task: an order that is cancelled while it waits leaves the queue.
        let lock = RECORD_LOCKS.lock(provider.0.lock_name(&record)).await;
        // A task of its own: if this order is cancelled meanwhile, the record is still removed.
        let presented = tokio::spawn(PresentedRecord::new(provider, record, lock)).await;
        let presented = presented.unwrap_or_else(|error| Err(DnsError::Panic(error.to_string())))?;
        tokio::time::sleep(self.propagation_delay).await;
        if let Some(limit) = self.propagation_timeout
            && let Err(hidden) = propagation::wait(&resolvers, &absolute, &value, limit).await
        {
            let record = presented.record.name.clone();
            presented.remove().await;
            return Err(DnsError::Hidden(record, hidden));
        }
        Ok(presented)
    }
}

/// A DNS provider with its settings. Debug shows no secrets.
#[derive(Clone)]
pub struct DnsProvider(Arc<dyn Provider>);

impl DnsProvider {
    /// The names of all providers, sorted.
    pub const NAMES: [&str; 10] = [
        "acmedns",
        "cloudflare",
        "digitalocean",
        "duckdns",
        "exec",
        "gandi",
        "hetzner",
        "porkbun",
        "rfc2136",
        "route53",
    ];

    /// Makes a provider from its name and its settings, as in the JSON of Caddy's module `dns.providers.NAME`.
    ///
    /// # Errors
    /// If there is no such provider, or one of the settings is missing, unknown or invalid.
    pub fn new(name: &str, settings: Map<String, Value>) -> Result<Self, SettingError> {
        Ok(Self(match name {
            "acmedns" => Arc::new(acmedns::AcmeDns::new(settings)?),
            "cloudflare" => Arc::new(provider::read::<cloudflare::Cloudflare>(settings)?),
            "digitalocean" => Arc::new(provider::read::<digitalocean::DigitalOcean>(settings)?),
            "duckdns" => Arc::new(provider::read::<duckdns::DuckDns>(settings)?),
            "exec" => Arc::new(provider::read::<exec::Exec>(settings)?),
            "gandi" => Arc::new(provider::read::<gandi::Gandi>(settings)?),
            "hetzner" => Arc::new(provider::read::<hetzner::Hetzner>(settings)?),
            "porkbun" => Arc::new(provider::read::<porkbun::Porkbun>(settings)?),
            "rfc2136" => Arc::new(rfc2136::Rfc2136::new(settings)?),
            "route53" => Arc::new(provider::read::<route53::Route53>(settings)?),
            name => {
                let expected = format!("one of {}", Self::NAMES.join(", "));
                return Err(SettingError::new("name", name, expected));
            }
        }))
    }
}

impl fmt::Debug for DnsProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DnsProvider").field(&self.0.name()).finish()
    }
}

/// The reason why a record could not be presented.
#[derive(Debug)]
#[non_exhaustive]
pub enum DnsError {
    /// The zone of the record could not be found.
    Zone(ZoneError),
    /// This provider could not add this record.
    Provider(&'static str, String, ProviderError),
    /// This record did not become visible.
    Hidden(String, PropagationError),
    /// The provider's code panicked.
    Panic(String),
}

impl fmt::Display for DnsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zone(error) => write!(f, "dns-01: {error}"),
            Self::Provider(name, record, error) => {
                write!(f, "dns-01: the DNS provider {name} added no TXT record {record}: {error}")
            }
            Self::Hidden(record, hidden) => write!(f, "dns-01: {record}: {hidden}"),
            Self::Panic(error) => write!(f, "dns-01: {error}"),
        }
    }
}

impl std::error::Error for DnsError {}

/// A record that the provider has added. [`remove`](Self::remove) it; dropping it removes it in the background.
#[derive(Debug)]
pub(crate) struct PresentedRecord {
    provider: DnsProvider,
    record: TxtRecord,
    /// Taken by the removal.
    receipt: Option<Receipt>,
    /// Held if a further value would replace this one.
    lock: Option<OwnedMutexGuard<()>>,
}

impl PresentedRecord {
    /// `lock` is that of the record.
    async fn new(provider: DnsProvider, record: TxtRecord, lock: OwnedMutexGuard<()>) -> Result<Self, DnsError> {
        let name = provider.0.name();
        let failed = |error| DnsError::Provider(name, record.name.clone(), error);
        let added = async { provider.0.add(&http()?, &record).await };
        let receipt = in_time(added).await.map_err(failed)?;
        let lock = provider.0.keeps_one_value().then_some(lock);
        Ok(Self { provider, record, receipt: Some(receipt), lock })
    }

    /// Removes the record. A failure is only logged: the certificate does not depend on it.
    pub(crate) async fn remove(mut self) {
        if let Some(receipt) = self.receipt.take() {
            remove(self.provider.clone(), self.record.clone(), receipt, self.lock.take()).await;
        }
    }
}

impl Drop for PresentedRecord {
    fn drop(&mut self) {
        if let (Some(receipt), Ok(runtime)) = (self.receipt.take(), Handle::try_current()) {
            runtime.spawn(remove(self.provider.clone(), self.record.clone(), receipt, self.lock.take()));
        }
    }
}

async fn remove(provider: DnsProvider, record: TxtRecord, receipt: Receipt, held: Option<OwnedMutexGuard<()>>) {
    let _lock = match held {
        Some(lock) => lock,
        None => RECORD_LOCKS.lock(provider.0.lock_name(&record)).await,
    };
    let removed = async { provider.0.remove(&http()?, &record, &receipt).await };
    if let Err(error) = in_time(removed).await {
        let name = provider.0.name();
        tracing::warn!("the DNS provider {name} did not remove the TXT record {}: {error}", record.name);
    }
}

/// A client for one step. Making it reads the system's roots, which takes some milliseconds.
fn http() -> Result<HttpClient, ProviderError> {
    HttpClient::new(&[]).map_err(ProviderError::Http)
}

async fn in_time<T>(work: impl Future<Output = Result<T, ProviderError>>) -> Result<T, ProviderError> {
    tokio::time::timeout(STEP_TIMEOUT, work).await.unwrap_or(Err(ProviderError::Timeout(STEP_TIMEOUT)))
}

#[cfg(test)]
mod tests;
