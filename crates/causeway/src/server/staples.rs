//! Requests OCSP responses in the background, so that handshakes carry them. No handshake waits for a responder.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use causeway_acme::http::{HttpClient, HttpRequest, Method, StatusCode};
use causeway_certs::{Certificate, Keeper, OcspStatus, OcspTarget, SharedStorage};
use tokio::task::{AbortHandle, JoinSet};

use super::blocking::blocking;
use super::renewals::CertificateEvents;

/// The longest time between two checks, and from a failure to the next request; CertMagic's.
const CHECK_INTERVAL: Duration = Duration::from_secs(60 * 60);
/// The shortest time between two checks.
const CHECK_PAUSE: Duration = Duration::from_secs(1);
/// How long a responder may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest response, or certificate of an issuer.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Concurrent requests.
const CONCURRENT_MAX: usize = 8;

/// The task that keeps the OCSP responses of a configuration's certificates current. Dropping it aborts the task.
pub(super) struct Staples(AbortHandle);

impl Staples {
    /// Starts the task, which checks at once after a certificate was issued. `interval`: the longest time between two
    /// checks, if it is not the default.
    pub(super) fn start(keeper: &Arc<Keeper>, events: &Arc<CertificateEvents>, interval: Option<Duration>) -> Self {
        let task = Task {
            keeper: Arc::clone(keeper),
            events: Arc::clone(events),
            interval: interval.unwrap_or(CHECK_INTERVAL).max(CHECK_PAUSE),
            client: None,
            failed: HashMap::new(),
        };
        Self(tokio::spawn(task.run()).abort_handle())
    }
}

impl Drop for Staples {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Task {
    keeper: Arc<Keeper>,
    events: Arc<CertificateEvents>,
    interval: Duration,
    /// `None` until a certificate names a responder.
    client: Option<HttpClient>,
    /// By address: the certificates whose last request brought no answer that counts, and when the next one is due. At
    /// most as many as the keeper has.
    failed: HashMap<usize, FailedRequest>,
}

struct FailedRequest {
    certificate: Weak<Certificate>,
    retry_at: SystemTime,
}

impl Task {
    async fn run(mut self) {
        loop {
            let pause = self.check().await;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.events.issued.notified() => {}
            }
        }
    }

    /// Queries the responders of all certificates that are due. Returns the time until the next check.
    async fn check(&mut self) -> Duration {
        let known = self.keeper.ocsp_targets();
        self.failed.retain(|_, failed| failed.certificate.strong_count() > 0);
        let now = SystemTime::now();
        let mut due = Vec::new();
        for stapled in &known {
            let certificate = &stapled.certificate;
            certificate.drop_old_staple(now);
            if self.next(certificate, now) <= now && now < certificate.not_after() {
                due.push(stapled.clone());
            }
        }
        let mut requests = JoinSet::new();
        for stapled in due {
            if requests.len() >= CONCURRENT_MAX {
                let ended = requests.join_next().await;
                self.note(ended);
            }
            let Some(client) = self.client().await else { break };
            requests.spawn(refresh(stapled, client));
        }
        while let Some(ended) = requests.join_next().await {
            self.note(Some(ended));
        }
        let now = SystemTime::now();
        let current = known.iter().map(|stapled| &stapled.certificate).filter(|known| now < known.not_after());
        let next = current.flat_map(|known| [Some(self.next(known, now)), known.staple_end()]).flatten().min();
        let pause = next.map_or(self.interval, |at| at.duration_since(now).unwrap_or_default());
        pause.clamp(CHECK_PAUSE, self.interval)
    }

    /// The time of the next request to the certificate's responder.
    fn next(&self, certificate: &Arc<Certificate>, now: SystemTime) -> SystemTime {
        let failed = self.failed.get(&address(certificate)).map(|failed| failed.retry_at);
        failed.or(certificate.response_due()).unwrap_or(now)
    }

    fn note(&mut self, ended: Option<Result<(Arc<Certificate>, bool), tokio::task::JoinError>>) {
        // The request of a task that panicked is repeated at the next check.
        let Some(Ok((certificate, is_known))) = ended else { return };
        if certificate.is_revoked() {
            self.events.revoked.send_replace(());
        }
        let at = address(&certificate);
        if is_known {
            self.failed.remove(&at);
        } else {
            let retry_at = SystemTime::now() + self.interval;
            self.failed.insert(at, FailedRequest { certificate: Arc::downgrade(&certificate), retry_at });
        }
    }

    async fn client(&mut self) -> Option<HttpClient> {
        if self.client.is_none() {
            match blocking(|| HttpClient::new(&[])).await {
                Ok(Ok(client)) => self.client = Some(client.timeout(REQUEST_TIMEOUT).body_bytes_max(BODY_BYTES_MAX)),
                Ok(Err(error)) => tracing::warn!("OCSP: {error}"),
                Err(error) => tracing::warn!("OCSP: {error}"),
            }
        }
        self.client.clone()
    }
}

/// Identifies a certificate. Its `Weak` in [`FailedRequest`] keeps the address from being used for another one.
fn address(certificate: &Arc<Certificate>) -> usize {
    Arc::as_ptr(certificate).addr()
}

/// Staples a current response from storage, where another process may have put it, or else from the responder. Returns
/// whether the certificate then has one with a known status.
async fn refresh(stapled: OcspTarget, client: HttpClient) -> (Arc<Certificate>, bool) {
    let OcspTarget { certificate, responder: url, storage } = stapled;
    let (at_work, at) = (Arc::clone(&certificate), storage.clone());
    let restored = blocking(move || causeway_certs::restore_response(&at_work, &*at, SystemTime::now())).await;
    if restored.is_ok() && certificate.response_due().is_some_and(|due| SystemTime::now() < due) {
        return (certificate, true);
    }
    let name = certificate.names()[0].clone();
    let is_known = match fetch_staple(&certificate, &url, &client, &storage).await {
        Ok(OcspStatus::Good) => {
            tracing::info!("{name}: stapled the OCSP response of {url}");
            true
        }
        Ok(OcspStatus::Revoked) => {
            tracing::warn!("{name}: the OCSP responder {url} reports the certificate as revoked");
            true
        }
        Ok(OcspStatus::Unknown) => {
            tracing::warn!(
                "{name}: the OCSP responder {url} reports the status 'unknown'; no OCSP response is stapled"
            );
            false
        }
        Err(why) if certificate.is_short_lived() => {
            tracing::debug!("{name}: no OCSP response of {url}: {why}");
            false
        }
        Err(why) => {
            tracing::warn!("{name}: no OCSP response of {url}: {why}");
            false
        }
    };
    (certificate, is_known)
}

async fn fetch_staple(
    certificate: &Arc<Certificate>,
    url: &str,
    client: &HttpClient,
    storage: &SharedStorage,
) -> Result<OcspStatus, String> {
    let issuer = match certificate.missing_issuer() {
        Some(from) => Some(fetch(client, HttpRequest::get(from)).await?.into()),
        None => None,
    };
    let request = certificate.status_request(issuer.as_ref()).map_err(|error| error.to_string())?;
    let request = HttpRequest::new(Method::POST, url).body("application/ocsp-request", request);
    let response = fetch(client, request).await?;
    let status = certificate.staple(&response, issuer.as_ref(), SystemTime::now());
    let status = status.map_err(|error| error.to_string())?;
    if status == OcspStatus::Good {
        let (certificate, storage) = (Arc::clone(certificate), storage.clone());
        let stored = blocking(move || causeway_certs::store_response(&certificate, &response, &*storage)).await?;
        // It is stapled nevertheless. The next start queries the responder again.
        stored.unwrap_or_else(|error| tracing::warn!("{error}"));
    }
    Ok(status)
}

async fn fetch(client: &HttpClient, request: HttpRequest) -> Result<Vec<u8>, String> {
    let response = client.send(request).await.map_err(|error| error.to_string())?;
    match response.status {
        StatusCode::OK => Ok(response.body.to_vec()),
        status => Err(format!("found the status {}, expected 200", status.as_u16())),
    }
}
