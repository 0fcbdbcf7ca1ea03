//! Answers challenges that other processes with the same storage have opened: the authority's request may reach any
//! server of a fleet.
//!
//! ```text
//!  request ──► managed name? ──► queue of names ──► one reader ──► answer, if storage has the challenge
//! ```
//! Anyone can send such requests, so the work for them is bounded: one task reads storage, for one name after the
//! other, at most 1 / [`READ_PAUSE`] times a second. Concurrent requests for one name share a read. A request waits for
//! a read that begins after its arrival, so earlier requests of an attacker cannot hide a challenge. A storage that
//! hangs occupies one thread.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use causeway_certs::SharedStorage;
use rustls::sign::CertifiedKey;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::stored::{HTTP, StoredChallenge, TLS_ALPN};
use super::{certificate, server_name};

/// Requests that wait for a read. Further ones are not answered.
const WAITING_MAX: usize = 512;
/// The shortest time between the starts of two reads.
const READ_PAUSE: Duration = Duration::from_millis(10);
/// How long a read may take, and how long a request waits in the queue.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest token, in characters. Authorities use 43 (RFC 8555 §8.1 requires 22 at least).
const TOKEN_LEN_MAX: usize = 256;

/// Returns the storage keys of the authorities that sign for a name; `None` if the server does not manage the name.
pub type AuthoritiesOf = Box<dyn Fn(&str) -> Option<Arc<[String]>> + Send + Sync>;

/// The result of a lookup; `None`: no such challenge is open.
pub type ChallengeLookup<T> = Pin<Box<dyn Future<Output = Option<T>> + Send>>;

/// Finds the challenges of other processes for the names of one configuration, until it is dropped.
pub struct SharedChallenges(Arc<ChallengeReader>);

struct ChallengeReader {
    storage: SharedStorage,
    authorities_of: AuthoritiesOf,
    /// [`READ_TIMEOUT`].
    timeout: Duration,
    runtime: Handle,
    queue: Mutex<LookupQueue>,
    /// A read that has exceeded its time still occupies a thread.
    is_reading: Arc<AtomicBool>,
}

#[derive(Default)]
struct LookupQueue {
    /// The names in the order of their first request.
    names: VecDeque<String>,
    requests: HashMap<String, NameRequests>,
    waiting: usize,
    has_task: bool,
}

struct NameRequests {
    first_at: Instant,
    authorities: Arc<[String]>,
    senders: Vec<oneshot::Sender<Option<Arc<StoredChallenge>>>>,
}

/// The readers of the configurations in this process. Any listener of the process may receive a request.
static READERS: Mutex<Vec<Arc<ChallengeReader>>> = Mutex::new(Vec::new());

/// Ignores poisoning: every change is one insertion or removal.
fn readers() -> MutexGuard<'static, Vec<Arc<ChallengeReader>>> {
    READERS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedChallenges {
    /// Begins to find challenges. Must run in the runtime that executes the reads.
    pub fn new(storage: &SharedStorage, authorities_of: AuthoritiesOf) -> Self {
        Self::with_timeout(storage, authorities_of, READ_TIMEOUT)
    }

    fn with_timeout(storage: &SharedStorage, authorities_of: AuthoritiesOf, timeout: Duration) -> Self {
        let reader = Arc::new(ChallengeReader {
            storage: storage.clone(),
            authorities_of,
            timeout,
            runtime: Handle::current(),
            queue: Mutex::default(),
            is_reading: Arc::default(),
        });
        readers().push(Arc::clone(&reader));
        Self(reader)
    }
}

impl Drop for SharedChallenges {
    fn drop(&mut self) {
        readers().retain(|reader| !Arc::ptr_eq(reader, &self.0));
    }
}

impl fmt::Debug for SharedChallenges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedChallenges").field(&self.0.storage).finish()
    }
}

/// Starts to look in storage for the content of `http://HOST/.well-known/acme-challenge/TOKEN`. `None`: the server does
/// not manage the host, the token is malformed, or too many requests wait. Does not block.
pub fn shared_http_answer(host: &str, token: &str) -> Option<ChallengeLookup<String>> {
    let is_base64url = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if token.is_empty() || token.len() > TOKEN_LEN_MAX || !token.bytes().all(is_base64url) {
        return None;
    }
    let host = host.to_ascii_lowercase();
    let found = find(&host)?;
    let token = token.to_owned();
    Some(Box::pin(async move {
        let challenge = found.await.ok()??;
        // The host too, as Caddy does: a name that an attacker has pointed to this server gets no answer for another
        // one.
        let is_sought = challenge.kind == HTTP
            && challenge.token == token
            && challenge.identifier.value.eq_ignore_ascii_case(&host);
        is_sought.then(|| {
            tracing::debug!(host, "answering an HTTP-01 challenge of another server");
            challenge.key_authorization.clone()
        })
    }))
}

/// Starts to look in storage for a validation file of ZeroSSL, the content of `http://HOST/PATH`. `None`: the server
/// does not manage the host, or too many requests wait. Does not block.
pub fn shared_file(host: &str, path: &str) -> Option<ChallengeLookup<String>> {
    if !path.starts_with(super::FILE_PREFIX) || path.len() > TOKEN_LEN_MAX {
        return None;
    }
    let host = host.to_ascii_lowercase();
    let found = find(&host)?;
    let path = path.to_owned();
    Some(Box::pin(async move {
        let challenge = found.await.ok()??;
        let is_sought = challenge.file_path() == Some(&path) && challenge.identifier.value.eq_ignore_ascii_case(&host);
        is_sought.then(|| {
            tracing::debug!(host, "answering with a validation file of another server");
            challenge.token.clone()
        })
    }))
}

/// Starts to look in storage for the certificate of a handshake that offers `acme-tls/1` for a server name in lower
/// case. `None`: the server does not manage the name, or too many requests wait. Does not block.
pub fn shared_tls_certificate(name: &str) -> Option<ChallengeLookup<Arc<CertifiedKey>>> {
    let found = find(name)?;
    let name = name.to_owned();
    Some(Box::pin(async move {
        let challenge = found.await.ok()??;
        let identifier = &challenge.identifier.value;
        if challenge.kind != TLS_ALPN || server_name(identifier) != name {
            return None;
        }
        tracing::debug!(name, "answering a TLS-ALPN-01 challenge of another server");
        let digest = digest(&SHA256, challenge.key_authorization.as_bytes());
        certificate(identifier, digest.as_ref()).ok().map(Arc::new)
    }))
}

fn find(name: &str) -> Option<oneshot::Receiver<Option<Arc<StoredChallenge>>>> {
    // The newest configuration first.
    let readers: Vec<_> = readers().iter().rev().cloned().collect();
    readers.iter().find_map(|reader| Some((reader, (reader.authorities_of)(name)?))).and_then(
        |(reader, authorities)| {
            let (sender, receiver) = oneshot::channel();
            reader.push(name, authorities, sender).then_some(receiver)
        },
    )
}

impl ChallengeReader {
    /// Queues a request. Returns `false` if too many requests wait.
    fn push(
        self: &Arc<Self>,
        name: &str,
        authorities: Arc<[String]>,
        sender: oneshot::Sender<Option<Arc<StoredChallenge>>>,
    ) -> bool {
        let mut queue = self.queue();
        if queue.waiting >= WAITING_MAX {
            return false;
        }
        queue.waiting += 1;
        match queue.requests.get_mut(name) {
            Some(requests) => requests.senders.push(sender),
            None => {
                let requests = NameRequests { first_at: Instant::now(), authorities, senders: vec![sender] };
                queue.requests.insert(name.to_owned(), requests);
                queue.names.push_back(name.to_owned());
            }
        }
        if !queue.has_task {
            queue.has_task = true;
            self.runtime.spawn(Arc::clone(self).run());
        }
        true
    }

    /// Answers requests until none waits.
    async fn run(self: Arc<Self>) {
        while let Some((name, requests)) = self.next() {
            let begun = Instant::now();
            let is_late = requests.first_at.elapsed() > self.timeout;
            let found = if is_late { None } else { self.read(name, requests.authorities).await };
            let found = found.map(Arc::new);
            for sender in requests.senders {
                // The client may have gone.
                let _ = sender.send(found.clone());
            }
            tokio::time::sleep(READ_PAUSE.saturating_sub(begun.elapsed())).await;
        }
    }

    fn next(&self) -> Option<(String, NameRequests)> {
        let mut queue = self.queue();
        let next = queue.names.pop_front().and_then(|name| queue.requests.remove_entry(&name));
        match &next {
            Some((_, requests)) => queue.waiting -= requests.senders.len(),
            None => queue.has_task = false,
        }
        next
    }

    async fn read(&self, name: String, authorities: Arc<[String]>) -> Option<StoredChallenge> {
        // While an earlier read hangs, another one would only occupy a further thread.
        if self.is_reading.swap(true, Ordering::AcqRel) {
            return None;
        }
        let (storage, is_reading) = (self.storage.clone(), Arc::clone(&self.is_reading));
        let read = tokio::task::spawn_blocking(move || {
            let found = StoredChallenge::find(&authorities, &name, &*storage);
            is_reading.store(false, Ordering::Release);
            found.map_err(|error| tracing::debug!("{name}: cannot look for a challenge in storage: {error}"))
        });
        tokio::time::timeout(self.timeout, read).await.ok()?.ok()?.ok()?
    }

    /// Ignores poisoning: no code in the lock's scopes can panic between two changes.
    fn queue(&self) -> MutexGuard<'_, LookupQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
