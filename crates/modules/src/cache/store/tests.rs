use std::future::Future as _;
use std::task::{Context as PollContext, Waker};
use std::time::SystemTime;

use causeway_message::{Chunk, FieldValue, StatusCode, names};
use futures_channel::oneshot::Receiver;

use super::super::directives::ResponseDirectives;
use super::super::stored::{Freshness, StoredFields};
use super::super::vary::Vary;
use super::shard::REMOVALS_KEPT;
use super::*;

pub(in crate::cache) fn stored(bytes: usize, vary: Vary, received: Instant) -> Arc<StoredResponse> {
    Arc::new(StoredResponse {
        status: StatusCode::OK,
        fields: StoredFields::of(FieldMap::new(), &FieldMap::new(), SystemTime::UNIX_EPOCH),
        body: Chunk::from(vec![0; bytes]),
        vary,
        freshness: Freshness {
            requested: received,
            received,
            initial_age: Duration::ZERO,
            apparent_age: Duration::ZERO,
            lifetime: Duration::from_secs(1),
            is_implied: false,
        },
        directives: ResponseDirectives::default(),
        modified: None,
        has_ranges: true,
    })
}

// RFC 9111 §4: the most recent response counts, as the origin's Date shows it.
#[test]
fn of_two_responses_the_newer_one_counts() {
    let start = Instant::now();
    // Milliseconds from the start.
    let freshness = |requested, received, apparent_age| Freshness {
        requested: start + Duration::from_millis(requested),
        received: start + Duration::from_millis(received),
        initial_age: Duration::from_millis(received - requested).max(Duration::from_millis(apparent_age)),
        apparent_age: Duration::from_millis(apparent_age),
        lifetime: Duration::from_secs(1),
        is_implied: false,
    };
    for (why, stored, arriving, want) in [
        ("a fetch after it", freshness(0, 100, 0), freshness(200, 300, 0), false),
        ("a fetch after it, of the same second", freshness(0, 100, 0), freshness(200, 300, 900), false),
        ("a slow content, of the same second", freshness(200, 300, 300), freshness(0, 0, 0), true),
        ("a slow content, of an earlier second", freshness(200, 1300, 0), freshness(0, 0, 0), true),
        ("a slow head with an earlier Date", freshness(1200, 1300, 0), freshness(0, 3000, 3000), true),
        ("a slow head with a later Date", freshness(100, 1300, 1300), freshness(0, 3000, 0), false),
    ] {
        assert_eq!(stored.is_newer_than(&arriving), want, "{why}");
    }
}

fn put(store: &Store, key: &str, bytes: usize) {
    let key = store.key(key.as_bytes());
    store.put(key, &FieldMap::new(), stored(bytes, Vary::default(), Instant::now()), store.epoch(key));
}

fn has(store: &Store, key: &str) -> bool {
    matches!(store.find(store.key(key.as_bytes()), &FieldMap::new(), &mut Vec::new()), Found::Match(_))
}

#[track_caller]
fn check(store: &Store) {
    let mut bytes = 0;
    for shard in &store.shards {
        let shard = shard.lock();
        assert_eq!(shard.indexes.len(), shard.ring.slots.len());
        for (hash, at) in &shard.indexes {
            let slot = &shard.ring.slots[*at];
            assert_eq!(slot.hash, *hash);
            let of_variants: usize = slot.variants.iter().map(|stored| stored.bytes()).sum();
            assert_eq!(slot.bytes, SLOT_BYTES + slot.key.len() + of_variants);
            bytes += slot.bytes;
        }
    }
    assert_eq!(store.bytes.load(Ordering::Relaxed), bytes);
    assert!(bytes <= store.bytes_max);
}

#[test]
fn memory_is_bounded_and_used_keys_are_kept() {
    let store = Store::new(1 << 20);
    put(&store, "kept", 1000);
    for round in 0..3000 {
        assert!(has(&store, "kept"), "round {round}");
        put(&store, &format!("key {round}"), 3000);
        if round % 100 == 0 {
            check(&store);
        }
    }
    check(&store);
    let usage = store.usage();
    assert!(usage.responses > 150 && usage.evicted > 2000, "{usage:?}");
    put(&store, "too large", 1 << 20);
    assert!(!has(&store, "too large") && has(&store, "kept"));
    assert_eq!(store.remove(store.key(b"kept")), 1);
    assert!(!has(&store, "kept"));
    check(&store);
    store.purge(|_, _| true);
    check(&store);
    assert_eq!((store.usage().responses, store.usage().bytes), (0, 0));
}

// docs/limits.md: the bound on memory holds for one key too, whose responses do not evict those of all other keys.
#[test]
fn the_responses_of_one_key_have_a_bound() {
    let store = Store::new(16 << 20);
    for key in 0..100 {
        put(&store, &format!("small {key}"), 1000);
    }
    let key = store.key(b"key");
    let mut response = FieldMap::new();
    response.append(names::VARY, FieldValue::from_static("Origin"));
    for origin in 0..64 {
        let mut request = FieldMap::new();
        request.append(names::ORIGIN, FieldValue::parse(origin.to_string().as_bytes()).unwrap());
        let bytes = if origin % 2 == 0 { 4 << 20 } else { 1 << 20 };
        let stored = stored(bytes - 2000, Vary::of(&response, &request), Instant::now());
        assert!(store.put(key, &request, stored, store.epoch(key)).is_some());
        check(&store);
        let mut scratch = Vec::new();
        assert!(matches!(store.find(key, &request, &mut scratch), Found::Match(_)), "the latest is kept");
    }
    assert_eq!((0..100).filter(|key| has(&store, &format!("small {key}"))).count(), 100);
}

/// A response that was just stored is not dropped for itself, and stays for half a revolution of the hand on average.
#[test]
fn a_full_store_keeps_the_newest() {
    let store = Store::new(16 << 20);
    for key in 0..10_000 {
        put(&store, &format!("key {key}"), 1000);
    }
    assert!(store.usage().evicted > 1000);
    for bytes in [3000, 30_000, 300_000, 3_000_000] {
        let mut kept = 0;
        for round in 0..100 {
            let key = format!("{bytes} {round}");
            put(&store, &key, bytes);
            for small in 0..20 {
                put(&store, &format!("small {bytes} {round} {small}"), 1000);
            }
            kept += usize::from(has(&store, &key));
            check(&store);
        }
        assert!(kept >= 60, "{kept} of 100 with {bytes} bytes");
    }
}

// RFC 9111 §4.1: of several matching responses, the latest; a new response replaces those that answer its request.
#[test]
fn variants() {
    let (store, now) = (Store::new(1 << 20), Instant::now());
    let key = store.key(b"k");
    let fields = |name: causeway_message::KnownName, value: &'static str| {
        let mut fields = FieldMap::new();
        fields.append(name, FieldValue::from_static(value));
        fields
    };
    let vary = fields(names::VARY, "Accept-Language");
    for (language, bytes) in [("de", 1), ("en", 2), ("de", 3)] {
        let request = fields(names::ACCEPT_LANGUAGE, language);
        store.put(key, &request, stored(bytes, Vary::of(&vary, &request), now), 0);
    }
    let find = |language| match store.find(key, &fields(names::ACCEPT_LANGUAGE, language), &mut Vec::new()) {
        Found::Match(stored) => Ok(stored.body.len()),
        Found::Other => Err(true),
        Found::Nothing => Err(false),
    };
    assert_eq!((find("de"), find("en"), find("fr")), (Ok(3), Ok(2), Err(true)));
    assert_eq!(store.usage().responses, 2);
    for number in 0..2 * VARIANTS_MAX {
        let mut request = FieldMap::new();
        request.insert_number(names::ACCEPT_LANGUAGE, number as u64);
        store.put(key, &request, stored(1, Vary::of(&vary, &request), now), 0);
    }
    assert_eq!(store.usage().responses, VARIANTS_MAX);
    check(&store);
    // A response that does not vary replaces all.
    store.put(key, &FieldMap::new(), stored(9, Vary::default(), now + Duration::from_secs(1)), 0);
    assert_eq!(find("fr"), Ok(9));
    check(&store);
}

// RFC 9111 §4.4: a response that was fetched before its key was removed is not stored. Removals of other keys do not
// matter.
#[test]
fn removals_during_a_fetch() {
    let store = Store::new(1 << 20);
    let put = |key: &str, epoch| {
        let stored = stored(10, Vary::default(), Instant::now());
        store.put(store.key(key.as_bytes()), &FieldMap::new(), stored, epoch).is_some()
    };
    let epoch = || store.epoch(store.key(b"a"));
    let before = epoch();
    // In each of 64 shards one or another, and not too many.
    for other in 0..SHARDS * REMOVALS_KEPT / 8 {
        store.remove(store.key(format!("other-{other}").as_bytes()));
    }
    assert!(put("a", before) && has(&store, "a"));
    let before = epoch();
    store.remove(store.key(b"a"));
    assert!(!put("a", before) && !has(&store, "a"));
    assert!(put("a", epoch()));
    let before = epoch();
    store.purge(|_, _| false);
    assert!(!put("a", before), "a purge may be of any key");
    let before = epoch();
    for _ in 0..=REMOVALS_KEPT {
        store.shard(store.key(b"a").hash).removals.add(7);
    }
    assert!(!put("a", before), "more removals than are remembered");
}

fn join(store: &Arc<Store>, key: CacheKey<'_>, now: Instant) -> FetchRole {
    store.join_fetch(key, &FieldMap::new(), &mut Vec::new(), now)
}

#[test]
fn one_fetches_and_others_wait() {
    let (store, now) = (Arc::new(Store::new(1 << 20)), Instant::now());
    let key = store.key(b"k");
    let try_fetch = |key| store.try_fetch(key, &FieldMap::new(), &mut Vec::new(), now);
    let FetchRole::Leader(guard) = join(&store, key, now) else { panic!("the first one fetches") };
    let FetchRole::Follower(mut waiting, _) = join(&store, key, now) else { panic!("the second one waits") };
    assert!(matches!(join(&store, store.key(b"other"), now), FetchRole::Leader(_)), "another key");
    assert!(try_fetch(key).is_none());
    assert!(try_fetch(store.key(b"other")).is_some(), "its fetch has ended");
    let mut poll_cx = PollContext::from_waker(Waker::noop());
    let poll = |waiting: &mut Receiver<()>, poll_cx: &mut PollContext<'_>| {
        std::pin::Pin::new(waiting).poll(poll_cx).is_ready()
    };
    assert!(!poll(&mut waiting, &mut poll_cx));
    drop(guard);
    assert!(poll(&mut waiting, &mut poll_cx));
    // The response was not storable: for a time all fetch for themselves.
    store.pause_coalescing(key, now + UNSTORABLE_PAUSE);
    assert!(matches!(join(&store, key, now), FetchRole::Independent));
    assert!(matches!(store.find(key, &FieldMap::new(), &mut Vec::new()), Found::Nothing));
    assert!(matches!(join(&store, key, now + UNSTORABLE_PAUSE), FetchRole::Leader(_)));
}

// A response without an end: after one request has waited in vain, others do not wait for this fetch.
#[test]
fn a_slow_fetch_delays_no_further_request() {
    let (store, now) = (Arc::new(Store::new(1 << 20)), Instant::now());
    let key = store.key(b"k");
    let FetchRole::Leader(guard) = join(&store, key, now) else { panic!("the first one fetches") };
    let FetchRole::Follower(_, id) = join(&store, key, now) else { panic!("the second one waits") };
    drop(guard);
    store.mark_slow(id);
    let FetchRole::Leader(guard) = join(&store, key, now) else { panic!("the mark was for another fetch") };
    assert!(matches!(join(&store, key, now), FetchRole::Follower(..)));
    store.mark_slow(id);
    let later = now + 2 * UNSTORABLE_PAUSE;
    assert!(matches!(join(&store, key, later), FetchRole::Independent));
    drop(guard);
    assert!(matches!(join(&store, key, later), FetchRole::Leader(_)));
}

// A response whose client reads nothing holds up no other client for long.
#[test]
fn a_slow_reader_delays_no_other_request() {
    let (store, now) = (Arc::new(Store::new(1 << 20)), Instant::now());
    let key = store.key(b"k");
    let FetchRole::Leader(guard) = join(&store, key, now) else { panic!("the first one fetches") };
    let FetchRole::Follower(_, id) = join(&store, key, now + CONTENT_WAIT_MAX) else { panic!("it waits for the head") };
    guard.mark_headed(now);
    assert!(matches!(join(&store, key, now + CONTENT_WAIT_MAX / 2), FetchRole::Follower(..)), "for the content");
    assert!(store.is_slow(id, now + CONTENT_WAIT_MAX));
    assert!(matches!(join(&store, key, now + CONTENT_WAIT_MAX), FetchRole::Independent));
}

// A file that is read late does not replace the response that was fetched meanwhile.
#[test]
fn an_older_file_replaces_no_newer_response() {
    let (store, now) = (Store::new(1 << 20), Instant::now());
    let key = store.key(b"k");
    let later = now + Duration::from_secs(1);
    assert!(store.put(key, &FieldMap::new(), stored(2, Vary::default(), later), 0).is_some());
    assert!(!store.put_read(key, stored(1, Vary::default(), now), 0));
    let find = || match store.find(key, &FieldMap::new(), &mut Vec::new()) {
        Found::Match(stored) => stored.body.len(),
        other => panic!("found {other:?}"),
    };
    assert_eq!(find(), 2);
    check(&store);
    assert!(store.put_read(key, stored(3, Vary::default(), later), 0));
    assert_eq!((find(), store.usage().responses), (3, 1));
    check(&store);
}

// RFC 9111 §4, §4.2.3: of several responses the latest counts, by the time of its generation. That of a file has an
// age, also if it is read later than another was received.
#[test]
fn the_age_of_a_file_counts() {
    let (store, now) = (Store::new(1 << 20), Instant::now());
    let key = store.key(b"k");
    let of_file = |bytes, vary: Vary, age| {
        let mut stored = stored(bytes, vary, now + Duration::from_secs(1));
        Arc::get_mut(&mut stored).unwrap().freshness.initial_age = Duration::from_secs(age);
        stored
    };
    let mut vary = FieldMap::new();
    vary.append(names::VARY, FieldValue::from_static("Accept"));
    let vary = || Vary::of(&vary, &FieldMap::new());
    let find = || match store.find(key, &FieldMap::new(), &mut Vec::new()) {
        Found::Match(stored) => stored.body.len(),
        other => panic!("found {other:?}"),
    };
    store.put(key, &FieldMap::new(), stored(1, Vary::default(), now), 0);
    assert!(!store.put_read(key, of_file(2, Vary::default(), 10), 0));
    assert!(store.put_read(key, of_file(3, vary(), 10), 0));
    assert_eq!((find(), store.usage().responses), (1, 2));
    assert!(store.put_read(key, of_file(4, vary(), 0), 0));
    assert_eq!((find(), store.usage().responses), (4, 2));
}

#[test]
fn responses_that_are_received_have_a_bound() {
    let store = Arc::new(Store::new(4000));
    let mut one = store.receive();
    assert!(one.grow(600) && one.grow(400) && !store.receive().grow(1));
    assert!(!one.grow(1));
    drop(one);
    assert!(store.receive().grow(1000));
}

// docs/metrics.md: counters never fall, also if a store ends because its `memory` changes.
#[test]
fn counts_outlive_their_store() {
    let store = Store::of(3 << 20);
    for _ in 0..1000 {
        store.count(store.key(b"k"), Lookup::VaryMiss);
    }
    for key in 0..2000 {
        put(&store, &format!("key {key}"), 3000);
    }
    let before = crate::cache::usage();
    drop(store);
    let after = crate::cache::usage();
    assert!(before.lookups.iter().zip(after.lookups).all(|(before, after)| *before <= after), "{before:?} {after:?}");
    assert!(before.evicted <= after.evicted, "{before:?} {after:?}");
}
