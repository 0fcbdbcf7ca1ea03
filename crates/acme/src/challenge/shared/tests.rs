use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;

use causeway_certs::{Durability, Error, FileStorage, Lock, Storage};

use super::*;
use crate::Issuer;
use crate::challenge::{OpenChallenge, Published, StoredChallenge};

/// A directory that counts reads and can make them slow; removed when dropped.
#[derive(Debug)]
struct CountedStorage {
    dir: PathBuf,
    inner: FileStorage,
    reads: AtomicUsize,
    delay: Duration,
}

impl CountedStorage {
    fn new(test: &str, delay: Duration) -> Arc<Self> {
        let dir = std::env::temp_dir().join(format!("causeway-acme-{test}-{}", std::process::id()));
        Arc::new(Self { inner: FileStorage::new(&dir), dir, reads: AtomicUsize::new(0), delay })
    }

    fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }
}

impl Drop for CountedStorage {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Storage for CountedStorage {
    fn identity(&self) -> String {
        self.inner.identity()
    }
    fn location(&self, key: &str) -> String {
        self.inner.location(key)
    }
    fn load(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(self.delay);
        self.inner.load(key)
    }
    fn modified(&self, key: &str) -> Result<Option<std::time::SystemTime>, Error> {
        self.inner.modified(key)
    }
    fn store(&self, key: &str, value: &[u8], durability: Durability) -> Result<(), Error> {
        self.inner.store(key, value, durability)
    }
    fn delete(&self, key: &str) -> Result<(), Error> {
        self.inner.delete(key)
    }
    fn list(&self, prefix: &str) -> Result<Vec<String>, Error> {
        self.inner.list(prefix)
    }
    fn lock_within(&self, name: &str, timeout: Duration) -> Result<Lock, Error> {
        self.inner.lock_within(name, timeout)
    }
}

fn issuer() -> Issuer {
    Issuer { directory: "https://ca.example/dir".to_owned(), ..Issuer::default() }
}

/// Manages all names that end in `ending`.
fn reader(storage: &SharedStorage, ending: &'static str) -> SharedChallenges {
    let authorities: Arc<[String]> = vec!["other".to_owned(), issuer().storage_name()].into();
    SharedChallenges::new(storage, Box::new(move |name| name.ends_with(ending).then(|| Arc::clone(&authorities))))
}

async fn answer(host: &str, token: &str) -> Option<String> {
    shared_http_answer(host, token)?.await
}

// certmagic's `distributedSolver`, with acmez's JSON: the key has the host, or the server name that a ClientHello
// carries (RFC 8738 §6).
#[tokio::test]
async fn stored_as_certmagic_does() {
    let storage: SharedStorage = CountedStorage::new("stored", Duration::ZERO);
    let of = |challenge| {
        let storage = storage.clone();
        async move { Published::new(&issuer(), &storage, challenge).await.unwrap() }
    };
    let http = of(StoredChallenge::http("a.example", "https://ca.example/1", "token", "token.thumbprint")).await;
    let _six = of(StoredChallenge::http("2001:db8::1", "", "t", "t.t")).await;
    let _tls = of(StoredChallenge::tls_alpn("192.0.2.1", "", "t", "t.t")).await;
    let mut keys = storage.list("acme").unwrap();
    keys.sort();
    let dir = "acme/ca.example-dir/challenge_tokens";
    let names = ["1.2.0.192.in-addr.arpa", "2001-db8--1", "a.example"];
    assert_eq!(keys, names.map(|name| format!("{dir}/{name}.json")));
    let text = storage.load(&keys[2]).unwrap().unwrap();
    assert_eq!(
        String::from_utf8(text).unwrap(),
        r#"{"type":"http-01","url":"https://ca.example/1","status":"pending","token":"token","keyAuthorization":"token.thumbprint","identifier":{"type":"dns","value":"a.example"}}"#
    );
    // Another order for the name has begun: its challenge stays.
    let next = of(StoredChallenge::http("a.example", "", "next", "next.thumbprint")).await;
    http.remove().await;
    assert!(storage.load(&keys[2]).unwrap().is_some());
    next.remove().await;
    assert!(storage.load(&keys[2]).unwrap().is_none());
    let off = Issuer { is_distributed: false, ..issuer() };
    assert!(Published::new(&off, &storage, StoredChallenge::http("b.example", "", "t", "t.t")).await.is_none());
}

// RFC 8555 §8.3 and RFC 8737 §3, by a process that has not opened the challenge.
#[tokio::test]
async fn another_process_responds() {
    let counted = CountedStorage::new("answers", Duration::ZERO);
    let storage: SharedStorage = counted.clone();
    let _reader = reader(&storage, ".answers.example");
    let stored = StoredChallenge::http("a.answers.example", "", "token", "token.thumbprint");
    let published = Published::new(&issuer(), &storage, stored).await.unwrap();
    assert_eq!(answer("A.answers.example", "token").await.as_deref(), Some("token.thumbprint"));
    for (host, token) in [("a.answers.example", "another"), ("b.answers.example", "token")] {
        assert_eq!(answer(host, token).await, None, "{host} {token}");
    }
    let before = counted.reads();
    for (host, token) in [
        ("a.unmanaged.example", "token"),
        ("a.answers.example", ""),
        ("a.answers.example", "../token"),
        ("a.answers.example", &"t".repeat(TOKEN_LEN_MAX + 1)),
    ] {
        assert!(shared_http_answer(host, token).is_none(), "{host} {token}");
    }
    assert_eq!(counted.reads(), before, "such requests do not reach storage");
    assert!(shared_tls_certificate("a.answers.example").unwrap().await.is_none(), "it is an HTTP-01 challenge");
    drop(published);

    let stored = StoredChallenge::tls_alpn("t.answers.example", "", "token", "token.thumbprint");
    let published = Published::new(&issuer(), &storage, stored).await;
    let open = OpenChallenge::tls("t.answers.example", &[0; 32], published).unwrap();
    let certificate = shared_tls_certificate("t.answers.example").unwrap().await.unwrap();
    let hash = digest(&SHA256, b"token.thumbprint");
    let wanted = [&[0x04, 0x20][..], hash.as_ref()].concat();
    assert!(certificate.cert[0].windows(wanted.len()).any(|window| window == wanted));
    assert_eq!(answer("t.answers.example", "token").await, None);
    open.close().await;
    assert!(shared_tls_certificate("t.answers.example").unwrap().await.is_none());
}

// A cancelled order removes its challenge in the background; a configuration that is no longer in effect finds nothing.
#[tokio::test]
async fn challenges_are_removed_from_storage() {
    let storage: SharedStorage = CountedStorage::new("remains", Duration::ZERO);
    let reader = reader(&storage, ".remains.example");
    let stored = StoredChallenge::http("a.remains.example", "", "token", "token.thumbprint");
    drop(Published::new(&issuer(), &storage, stored).await);
    while !storage.list("acme").unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(reader);
    assert!(shared_http_answer("a.remains.example", "token").is_none());
}

// Requests without end, for one name and for ever new ones, cause a bounded number of reads at a bounded rate, and a
// challenge that is opened meanwhile is answered nevertheless.
#[tokio::test]
async fn requests_without_end() {
    let counted = CountedStorage::new("endless", Duration::ZERO);
    let storage: SharedStorage = counted.clone();
    let _reader = reader(&storage, ".endless.example");
    let begun = Instant::now();
    let flood: Vec<_> = (0..100_000).map(|_| shared_http_answer("a.endless.example", "guess")).collect();
    assert_eq!(flood.iter().flatten().count(), WAITING_MAX);
    let stored = StoredChallenge::http("a.endless.example", "", "token", "token.thumbprint");
    let _published = Published::new(&issuer(), &storage, stored).await.unwrap();
    for lookups in flood.into_iter().flatten() {
        assert_eq!(lookups.await, None);
    }
    assert_eq!(answer("a.endless.example", "token").await.as_deref(), Some("token.thumbprint"));
    let many: Vec<_> = (0..50).map(|number| shared_http_answer(&format!("{number}.endless.example"), "t")).collect();
    for lookups in many {
        assert_eq!(lookups.unwrap().await, None);
    }
    // Two authorities per lookup, at most.
    let most = 2 * (1 + begun.elapsed().as_millis() / READ_PAUSE.as_millis()) as usize;
    assert!(counted.reads() <= most, "{} reads", counted.reads());
}

// A storage that hangs: requests end after the limit, and occupy one thread.
#[tokio::test]
async fn a_storage_that_hangs() {
    let counted = CountedStorage::new("hangs", Duration::from_millis(500));
    let storage: SharedStorage = counted.clone();
    let authorities: Arc<[String]> = vec![issuer().storage_name()].into();
    let authorities_of = move |name: &str| name.ends_with(".hangs.example").then(|| Arc::clone(&authorities));
    let _reader = SharedChallenges::with_timeout(&storage, Box::new(authorities_of), Duration::from_millis(50));
    let all: Vec<_> = (0..20).map(|number| shared_http_answer(&format!("{number}.hangs.example"), "t")).collect();
    for lookups in all {
        assert_eq!(lookups.unwrap().await, None);
    }
    assert_eq!(counted.reads(), 1);
}
