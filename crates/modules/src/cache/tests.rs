//! The cache before a handler that answers by the test's script.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Context as PollContext;

use causeway_message::NameRef;
use causeway_pipeline::{BodyError, BodyReader, BodyStream, Frame, Registry, Verdict, Worker};
use causeway_testkit::{Kit, Request, TestResponse};
use serde_json::json;

use super::disk::DiskHandle;
use super::store::Store;
use super::*;

/// The time of [`causeway_testkit::FakeWorker`]'s start.
const START: &str = "Tue, 01 Jan 2030 00:00:00 GMT";

/// A response of the origin.
#[derive(Clone, Default)]
struct Reply {
    status: u16,
    fields: Vec<(String, String)>,
    content: Content,
}

#[derive(Clone)]
enum Content {
    Chunk(String),
    /// Pieces of unknown total length, and how the body ends.
    Pieces(Vec<String>, Option<BodyError>),
    /// A handler of this server fails with the status.
    Fault,
}

impl Default for Content {
    fn default() -> Self {
        Self::Chunk(String::new())
    }
}

/// Reads a reply of the form `name: value | name: value`, with status 200 and a body.
fn reply(fields: &str, body: &str) -> Reply {
    let fields = fields.split('|').filter_map(|field| field.split_once(':'));
    let fields = fields.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect();
    Reply { status: 200, fields, content: Content::Chunk(body.to_owned()) }
}

impl Reply {
    fn status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    fn pieces(self, pieces: &[&str], error: Option<BodyError>) -> Self {
        let pieces = pieces.iter().map(|piece| (*piece).to_owned()).collect();
        Self { content: Content::Pieces(pieces, error), ..self }
    }
}

struct Pieces(VecDeque<String>, Option<BodyError>);

impl BodyStream for Pieces {
    fn poll_frame(&mut self, _: &mut PollContext<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        Poll::Ready(match self.0.pop_front() {
            Some(piece) => Some(Ok(Frame::Chunk(Chunk::from(piece.into_bytes())))),
            None => self.1.take().map(Err),
        })
    }
}

/// A request as the origin saw it.
#[derive(Clone, Debug)]
struct Seen {
    fields: FieldMap,
}

impl Seen {
    fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(NameRef::parse(name.as_bytes())?).and_then(|value| std::str::from_utf8(value).ok())
    }
}

/// The replies of the origin, and the requests that it has seen.
#[derive(Default)]
struct Script {
    /// The last one stays.
    replies: Mutex<VecDeque<Reply>>,
    seen: Mutex<Vec<Seen>>,
}

struct ScriptedOrigin(Arc<Script>);

impl Handler for ScriptedOrigin {
    fn enter(&self, cx: &mut Context) -> Step {
        let seen = Seen { fields: cx.head().fields().clone() };
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
        let mut replies = self.0.replies.lock().unwrap_or_else(PoisonError::into_inner);
        let reply = if replies.len() > 1 { replies.pop_front() } else { replies.front().cloned() };
        let reply = reply.expect("the test has a reply");
        if reply.status == 0 {
            return Step::Fail(Fault::from_status(StatusCode::BAD_GATEWAY));
        }
        let status = StatusCode::new(reply.status).expect("a status");
        if matches!(reply.content, Content::Fault) {
            return Step::Fail(Fault::from_status(status));
        }
        for (name, value) in &reply.fields {
            let name = NameRef::parse(name.as_bytes()).expect("a field name");
            cx.response_mut().append(name, FieldValue::parse(value.as_bytes()).expect("a field value"));
        }
        let body = match reply.content {
            Content::Chunk(text) if text.is_empty() => Body::Empty,
            Content::Chunk(text) => Body::Chunk(Chunk::from(text.into_bytes())),
            Content::Pieces(pieces, error) => Body::Stream(Box::new(Pieces(pieces.into(), error))),
            Content::Fault => unreachable!("returned above"),
        };
        Step::Respond(Response { status, body })
    }
}

struct Bench {
    kit: Kit,
    script: Arc<Script>,
    store: Arc<Store>,
}

fn registry(script: &Arc<Script>) -> Registry {
    let mut registry = Registry::default();
    crate::register(&mut registry);
    let script = Arc::clone(script);
    registry.register_handler("origin", move |_, _| Ok(Box::new(ScriptedOrigin(Arc::clone(&script)))));
    registry
}

/// The cache with a store of its own, with handlers before and after it.
fn bench_with(mut cache: Value, before: &[Value], after: &[Value]) -> Bench {
    // A store is shared by its size.
    static NUMBER: AtomicU64 = AtomicU64::new(1 << 20);
    cache["handler"] = "cache".into();
    let memory = NUMBER.fetch_add(1, Ordering::Relaxed);
    cache["memory"] = memory.into();
    let script = Arc::new(Script::default());
    let handlers: Vec<_> = before
        .iter()
        .cloned()
        .chain([cache])
        .chain(after.iter().cloned())
        .chain([json!({ "handler": "origin" })])
        .collect();
    let kit = Kit::new(&registry(&script), &json!([{ "handle": handlers }]));
    Bench { kit, script, store: Store::of(memory as usize) }
}

fn bench(cache: Value) -> Bench {
    bench_with(cache, &[], &[])
}

impl Bench {
    fn replies(&mut self, replies: impl IntoIterator<Item = Reply>) {
        *self.script.replies.lock().unwrap() = replies.into_iter().collect();
    }

    #[track_caller]
    fn send(&mut self, request: &Request) -> TestResponse {
        self.kit.send(request)
    }

    /// Sends GET for `/` with fields of the form `name: value | name: value`.
    #[track_caller]
    fn get(&mut self, fields: &str) -> TestResponse {
        self.send(&request("/", fields))
    }

    /// How many requests the origin has seen since the last call.
    fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.script.seen.lock().unwrap())
    }

    /// Purges the responses of this cache and of its directory, and not those of other tests.
    fn purge(&self, directory: Option<&CacheDirectory>, which: &Purge) -> Purged {
        let disks: Vec<_> = directory.into_iter().flat_map(CacheDirectory::disks).collect();
        control::purge_of(&[Arc::clone(&self.store)], &disks, which)
    }

    /// Reads a body to its end, which may be an error.
    fn read(&self, body: Body) {
        let worker: Rc<dyn Worker> = self.kit.worker().clone();
        let mut body = BodyReader::from(body);
        let mut poll_cx = PollContext::from_waker(std::task::Waker::noop());
        while let Poll::Ready(Some(Ok(_))) = body.poll_frame(&worker, &mut poll_cx) {}
    }

    fn pass(&self, seconds: u64) {
        self.kit.worker().advance(Duration::from_secs(seconds));
    }
}

fn request(target: &str, fields: &str) -> Request {
    let fields = fields.split('|').filter_map(|field| field.split_once(':'));
    fields.fold(Request::get(target), |request, (name, value)| request.field(name.trim(), value.trim()))
}

/// Sends two requests; checks whether the second one is answered from the store.
#[track_caller]
fn check(first: (&str, &str), later: u64, second: &str, is_hit: bool) {
    let mut bench = bench(json!({}));
    bench.replies([reply(first.1, "content")]);
    let one = bench.get(first.0);
    assert_eq!(one.text(), "content");
    bench.pass(later);
    let two = bench.get(second);
    let is_answered = bench.seen().len() == 1;
    assert_eq!(is_answered, is_hit, "{first:?}, {later} s, {second}: {:?}", two.fields);
    if is_hit {
        assert_eq!((two.status, two.text()), (200, "content"));
    }
}

// RFC 9111 §3: which responses a shared cache stores; §4: which stored ones it uses. With `ttl` for those without
// freshness.
#[test]
fn storing_and_using() {
    let day = "Cache-Control: max-age=86400";
    // §4.2.1: the lifetime.
    check(("", "Cache-Control: max-age=10"), 9, "", true);
    check(("", "Cache-Control: max-age=10"), 10, "", false);
    check(("", "Cache-Control: max-age=100, s-maxage=10"), 11, "", false);
    check(("", "Cache-Control: max-age=1, s-maxage=10"), 9, "", true);
    check(("", "Cache-Control: max-age=10 | Expires: Thu, 01 Jan 1970 00:00:00 GMT"), 9, "", true);
    check(("", "Expires: Tue, 01 Jan 2030 00:01:00 GMT"), 59, "", true);
    check(("", "Expires: Tue, 01 Jan 2030 00:01:00 GMT"), 60, "", false);
    check(("", "Expires: 0"), 0, "", false);
    check(("", "Expires: Tue, 01 Jan 2030 00:01:00 GMT | Expires: Tue, 01 Jan 2030 00:01:00 GMT"), 0, "", false);
    check(("", "Date: Mon, 31 Dec 2029 23:59:00 GMT | Expires: Tue, 01 Jan 2030 00:01:00 GMT"), 59, "", true);
    check(("", "Date: Mon, 31 Dec 2029 23:59:00 GMT | Expires: Tue, 01 Jan 2030 00:01:00 GMT"), 60, "", false);
    check(("", ""), 119, "", true);
    check(("", ""), 120, "", false);
    // §4.2.3: the age.
    check(("", "Cache-Control: max-age=100 | Age: 90"), 9, "", true);
    check(("", "Cache-Control: max-age=100 | Age: 90"), 10, "", false);
    check(("", "Cache-Control: max-age=100 | Age: 90, 0"), 10, "", false);
    check(("", "Cache-Control: max-age=100 | Age: x"), 10, "", true);
    check(("", "Cache-Control: max-age=100 | Date: Mon, 31 Dec 2029 23:58:30 GMT"), 9, "", true);
    check(("", "Cache-Control: max-age=100 | Date: Mon, 31 Dec 2029 23:58:30 GMT"), 10, "", false);
    // §3 and §5.2.2: directives of the response.
    for control in [
        "no-store",
        "private",
        "private=\"x\"",
        "no-cache",
        "max-age=100, no-store",
        "max-age=100, private",
        "max-age=0",
    ] {
        check(("", &format!("Cache-Control: {control}")), 0, "", false);
    }
    check(("", "Cache-Control: no-store, must-understand, max-age=10"), 0, "", true);
    check(("", &format!("{day} | Vary: *")), 0, "", false);
    let names = |count: usize| (0..count).map(|number| format!("X-{number}")).collect::<Vec<_>>().join(", ");
    check(("", &format!("{day} | Vary: {}", names(32))), 0, "", true);
    check(("", &format!("{day} | Vary: {} | Vary: A", names(32))), 0, "", false);
    check(("", &format!("{day} | Set-Cookie: a=b")), 0, "", false);
    // §3.5: requests with credentials.
    let credentials = "Authorization: Basic YTpi";
    check((credentials, day), 0, credentials, false);
    check((credentials, day), 0, "", false);
    check(("", day), 0, credentials, false);
    for control in ["public, max-age=10", "s-maxage=10", "max-age=10, must-revalidate"] {
        let control = format!("Cache-Control: {control}");
        check((credentials, &control), 0, credentials, true);
        check((credentials, &control), 0, "", true);
        check(("", &control), 0, credentials, true);
    }
    // A response without freshness of its own may be one user's: it is neither stored for nor given to requests with
    // cookies.
    check(("Cookie: a=b", ""), 0, "Cookie: a=b", false);
    check(("Cookie: a=b", ""), 0, "", false);
    check(("", ""), 0, "Cookie: a=b", false);
    check(("Cookie: a=b", day), 0, "Cookie: c=d", true);
    check(("Cookie: a=b", "Cache-Control: public"), 0, "", true);
    // §5.2.1: directives of requests.
    for (directives, later, is_hit) in [
        ("no-cache", 0, false),
        ("max-age=0", 0, false),
        ("max-age=5", 5, true),
        ("max-age=5", 6, false),
        ("min-fresh=10", 86_390, true),
        ("min-fresh=11", 86_390, false),
        ("max-stale", 90_000, true),
        ("max-stale=10", 86_410, true),
        ("max-stale=10", 86_411, false),
        ("x", 0, true),
    ] {
        check(("", day), later, &format!("Cache-Control: {directives}"), is_hit);
    }
    check(("", day), 0, "Pragma: no-cache", false);
    check(("", day), 0, "Pragma: no-cache | Cache-Control: max-stale", true);
    check(("Cache-Control: no-store", day), 0, "", false);
    check(("", "Cache-Control: max-age=1, must-revalidate"), 2, "Cache-Control: max-stale", false);
    // RFC 9110 §13.1.1: conditions for the origin.
    check(("", day), 0, "If-Match: \"a\"", false);
    check(("", day), 0, "If-Unmodified-Since: Tue, 01 Jan 2030 00:01:00 GMT", false);
    // §4.1: selecting fields.
    check(("Accept-Encoding: gzip", &format!("{day} | Vary: Accept-Encoding")), 0, "Accept-Encoding: GZIP;q=0.5", true);
    check(("Accept-Encoding: gzip", &format!("{day} | Vary: Accept-Encoding")), 0, "", false);
}

// RFC 9110 §15.1 and RFC 9111 §3: statuses that are stored with and without explicit freshness.
#[test]
fn statuses() {
    for (status, fields, is_stored) in [
        (404, "", true),
        (301, "", true),
        (204, "", true),
        (302, "", false),
        (500, "", false),
        (302, "Cache-Control: max-age=9", true),
        (599, "Cache-Control: max-age=9", true),
        (599, "Cache-Control: max-age=9, must-understand", false),
        (206, "Cache-Control: max-age=9", false),
        (304, "Cache-Control: max-age=9", false),
        (418, "", true),
    ] {
        let mut bench = bench(json!({ "allowed_additional_status_codes": [418] }));
        bench.replies([reply(fields, "").status(status)]);
        assert_eq!(bench.get("").status, status);
        assert_eq!(bench.get("").status, status);
        assert_eq!(bench.seen().len() == 1, is_stored, "{status} {fields}");
    }
}

// RFC 9110 §6.6.1, RFC 9111 §5.1, RFC 9211 §2: the fields of a response from the store.
#[test]
fn fields_of_a_hit() {
    let mut bench = bench(json!({ "cache_name": "my cache" }));
    bench.replies([reply(
        "Cache-Control: max-age=60 | X-A: 1 | X-A: 2 | Connection: X-Hop | X-Hop: 1 | Age: 5",
        "content",
    )]);
    let one = bench.get("");
    assert_eq!(one.field("Cache-Status"), Some("\"my cache\"; fwd=uri-miss; fwd-status=200; stored"));
    bench.pass(7);
    let two = bench.get("");
    assert_eq!(two.field("Cache-Status"), Some("\"my cache\"; hit; ttl=48"));
    assert_eq!((two.field("Age"), two.field("Date")), (Some("12"), Some(START)));
    assert_eq!(two.values("X-A").collect::<Vec<_>>(), ["1", "2"]);
    assert_eq!((two.field("X-Hop"), two.field("Connection"), two.field("Server")), (None, None, Some("Causeway")));
    assert_eq!((two.text(), two.length), ("content", Some(7)));
    let head = bench.send(&Request::new("HEAD", "/"));
    assert_eq!((head.status, head.body.len(), head.length, head.field("Age")), (200, 0, Some(7), Some("12")));
    assert_eq!(bench.seen().len(), 1);
    let post = bench.send(&Request::new("POST", "/"));
    assert_eq!(post.field("Cache-Status"), Some("\"my cache\"; fwd=method; fwd-status=200"));
    let none = bench.get("Cache-Control: only-if-cached, no-cache");
    assert_eq!(none.status, 504, "RFC 9111 §5.2.1.7");
}

// Handlers before the cache act on every response; those after it only when the response is made.
#[test]
fn handlers_before_and_after() {
    let set = |name: &str, value: &str| json!({ "handler": "headers", "response": { "set": { name: [value] }, "deferred": false } });
    let before = [set("X-Id", "{http.request.header.X-Id}"), set("X-Both", "before")];
    let after = [set("X-Both", "after"), json!({ "handler": "headers", "response": { "delete": ["Server"] } })];
    let mut bench = bench_with(json!({}), &before, &after);
    bench.replies([reply("Cache-Control: max-age=60", "content")]);
    for id in ["1", "2", "3"] {
        let answer = bench.get(&format!("X-Id: {id}"));
        assert_eq!(answer.field("X-Id"), Some(id), "a field of this request's own");
        assert_eq!((answer.field("X-Both"), answer.field("Server")), (Some("after"), None));
    }
    assert_eq!(bench.seen().len(), 1);
}

// A validation keeps the fields of handlers before the cache apart too: each client gets those of its own request.
#[test]
fn handlers_before_a_validation() {
    let set = |name: &str, value: &str| json!({ "handler": "headers", "response": { "set": { name: [value] }, "deferred": false } });
    let mut bench = bench_with(json!({}), &[set("X-Id", "{http.request.header.X-Id}")], &[]);
    bench.replies([
        reply("Cache-Control: max-age=10 | ETag: \"a\"", "content"),
        reply("Cache-Control: max-age=10 | X-New: 1", "").status(304),
    ]);
    assert_eq!(bench.get("X-Id: 1").field("X-Id"), Some("1"));
    bench.pass(10);
    for id in ["2", "3"] {
        let answer = bench.get(&format!("X-Id: {id}"));
        assert_eq!((answer.text(), answer.field("X-Id"), answer.field("X-New")), ("content", Some(id), Some("1")));
    }
    assert_eq!(bench.seen().len(), 2);
}

// RFC 9111 §4.1: Vary names fields of the request that the origin got. If this server has set one of them, the client's
// does not select a response.
#[test]
fn fields_that_the_server_sets() {
    let edit = |edit: Value| json!({ "handler": "headers", "request": edit });
    for (edit, vary, is_stored) in [
        (edit(json!({ "set": { "X-Country": ["{http.request.header.X-Ip}"] } })), "X-Country", false),
        (edit(json!({ "set": { "X-Country": ["x"] } })), "X-Other", true),
        (edit(json!({ "delete": ["Accept-Encoding"] })), "Accept-Encoding", true),
        (edit(json!({})), "x-forwarded-for", false),
        (edit(json!({})), "Accept, Forwarded", false),
    ] {
        let mut bench = bench_with(json!({}), &[], &[edit]);
        bench.replies([reply(&format!("Cache-Control: max-age=10 | Vary: {vary}"), "content")]);
        for _ in 0..2 {
            bench.get("X-Ip: 1 | Accept-Encoding: gzip");
        }
        assert_eq!(bench.seen().len() == 1, is_stored, "{vary}");
    }
}

// RFC 9111 §4.3: a stale response is validated; §4.3.4: 304 updates it, 200 replaces it.
#[test]
fn validation() {
    let mut bench = bench(json!({}));
    bench.replies([
        reply("Cache-Control: max-age=10 | ETag: \"a\" | Last-Modified: Tue, 01 Jan 2030 00:00:00 GMT | X-A: old | X-B: kept", "one"),
        reply("Cache-Control: max-age=20 | ETag: \"a\" | X-A: new | Content-Encoding: gzip", "").status(304),
        reply("Cache-Control: max-age=10 | ETag: \"b\"", "two"),
    ]);
    bench.get("");
    bench.pass(10);
    bench.seen();
    let two = bench.get("If-None-Match: \"zzz\" | Range: bytes=0-0");
    let seen = bench.seen();
    assert_eq!((seen[0].field("If-None-Match"), seen[0].field("If-Modified-Since")), (Some("\"a\""), Some(START)));
    assert_eq!(seen[0].field("Range"), None);
    assert_eq!(two.field("Cache-Status"), Some("Causeway; fwd=stale; fwd-status=304; stored"));
    assert_eq!((two.status, two.text(), two.field("Content-Range")), (206, "o", Some("bytes 0-0/3")));
    bench.pass(19);
    let three = bench.get("");
    assert_eq!((three.status, three.text(), three.field("Age")), (200, "one", Some("19")));
    assert_eq!(
        (three.field("X-A"), three.field("X-B"), three.field("Content-Encoding")),
        (Some("new"), Some("kept"), None)
    );
    bench.pass(1);
    let four = bench.get("If-None-Match: \"a\"");
    assert_eq!((four.status, four.text()), (200, "two"));
    assert_eq!(bench.get("").text(), "two");
    assert_eq!(bench.seen().len(), 1);
    // A client's reload is validated too.
    bench.replies([reply("", "").status(304)]);
    let five = bench.get("Cache-Control: no-cache | If-None-Match: \"b\"");
    assert_eq!((five.status, five.field("ETag")), (304, Some("\"b\"")));
    assert_eq!(bench.seen()[0].field("If-None-Match"), Some("\"b\""));
}

// RFC 9111 §4.2.3, §4.3.4: a 304 from another cache has an age, which counts as that of any response.
#[test]
fn the_age_of_a_validation() {
    let mut bench = bench(json!({}));
    let reply = |fields: &str| reply(&format!("Cache-Control: max-age=60 | ETag: \"a\" | {fields}"), "one");
    bench.replies([reply("Age: 10"), reply("Age: 55").status(304)]);
    assert_eq!(bench.get("").text(), "one");
    bench.pass(50);
    assert_eq!(bench.get("").field("Age"), Some("55"));
    bench.pass(4);
    assert_eq!((bench.get("").field("Age"), bench.seen().len()), (Some("59"), 2));
    bench.pass(1);
    bench.get("");
    assert_eq!(bench.seen().len(), 1, "it is stale after 60 s");
}

// RFC 9111 §7.3: a cookie in a validation's response is for the client whose request was forwarded, and for no other.
#[test]
fn cookies_of_a_validation() {
    let mut bench = bench(json!({}));
    bench.replies([
        reply("Cache-Control: max-age=10 | ETag: \"a\"", "one"),
        reply("Cache-Control: max-age=10 | Set-Cookie: a=1 | Set-Cookie: b=2", "").status(304),
    ]);
    bench.get("");
    bench.pass(10);
    let two = bench.get("");
    let cookies = two.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
    let cookies: Vec<_> = cookies.map(|(_, cookie)| &**cookie).collect();
    assert_eq!((two.text(), &*cookies), ("one", &["a=1", "b=2"][..]));
    let three = bench.get("");
    assert_eq!((three.text(), three.field("Set-Cookie")), ("one", None));
    assert_eq!(bench.seen().len(), 2);
}

// RFC 9111 §4.3.4 and §5.2.2: a validation that forbids storing removes the response, also for use instead of an error.
#[test]
fn a_validation_that_forbids_storing() {
    for (control, is_kept) in [("no-store", false), ("private", false), ("max-age=10", true)] {
        let mut bench = bench(json!({ "stale": "1h" }));
        bench.replies([
            reply("Cache-Control: max-age=10 | ETag: \"a\"", "one"),
            reply(&format!("Cache-Control: {control}"), "").status(304),
            reply("", "broken").status(503),
        ]);
        bench.get("");
        bench.pass(10);
        assert_eq!(bench.get("").text(), "one", "{control}");
        bench.pass(10);
        assert_eq!(bench.get("").text(), if is_kept { "one" } else { "broken" }, "{control}");
    }
    // A client that forbids storing removes no response.
    let mut bench = bench(json!({ "stale": "1h" }));
    bench.replies([
        reply("Cache-Control: max-age=10 | ETag: \"a\"", "one"),
        reply("Cache-Control: max-age=10", "").status(304),
        reply("", "broken").status(503),
    ]);
    bench.get("");
    bench.pass(10);
    assert_eq!(bench.get("Cache-Control: no-store").text(), "one");
    assert_eq!(bench.get("").text(), "one");
}

// RFC 9111 §3.2, §4.2.3, §4.3.4: a 304 updates the response to the request that it answers, also if it must not be
// stored.
#[test]
fn a_validation_that_is_not_stored_updates_its_response() {
    for (stored, later, request, update, control) in [
        ("public, max-age=600", 20, "Cache-Control: no-cache", "private", "private"),
        ("public, max-age=600", 20, "Cache-Control: no-cache", "private, no-store", "private, no-store"),
        ("public, max-age=600, s-maxage=1", 2, "", "private", "private"),
        ("max-age=1", 2, "Cache-Control: no-store", "max-age=60", "max-age=60"),
    ] {
        let mut bench = bench(json!({}));
        bench.replies([
            reply(&format!("Cache-Control: {stored} | ETag: \"x\" | X-Old: 1"), "one"),
            reply(&format!("Cache-Control: {update} | ETag: \"x\" | X-Old: 2 | Age: 5 | Set-Cookie: id=a"), "")
                .status(304),
        ]);
        bench.get("");
        bench.pass(later);
        let two = bench.get(request);
        assert_eq!((two.status, two.text()), (200, "one"), "{update}");
        let fields = ["Cache-Control", "X-Old", "Age", "Set-Cookie"].map(|name| two.field(name));
        assert_eq!(fields, [Some(control), Some("2"), Some("5"), Some("id=a")]);
        assert!(!two.field("Cache-Status").unwrap().contains("stored"), "{update}");
    }
}

// RFC 9111 §3.2, §4.1: the names in the Vary of a 304 select the response from then on. Those of the stored one stay.
#[test]
fn a_validation_with_another_vary() {
    for (stored, update, want, is_stored) in [
        ("", "Accept-Language", &["Accept-Language"][..], true),
        ("Accept-Language", "accept-language", &["Accept-Language"], true),
        ("Accept-Language", "Accept-Charset", &["Accept-Language", "Accept-Charset"], true),
        // RFC 9110 §12.5.3: content without a coding is for all clients.
        ("Accept-Language", "Accept-Encoding", &["Accept-Language"], true),
        ("Origin", "Accept, origin, Accept-Language", &["Origin", "Accept, Accept-Language"], true),
        ("", "*", &["*"], false),
        ("", "Accept-Language, X-Forwarded-For", &["Accept-Language, X-Forwarded-For"], false),
    ] {
        let vary = |names: &str| if names.is_empty() { String::new() } else { format!(" | Vary: {names}") };
        let mut bench = bench(json!({}));
        bench.replies([
            reply(&format!("Cache-Control: max-age=1 | ETag: \"x\"{}", vary(stored)), "DE"),
            reply(&format!("Cache-Control: max-age=60 | ETag: \"x\"{}", vary(update)), "").status(304),
            reply("Cache-Control: max-age=60 | Vary: Accept-Language", "EN"),
        ]);
        bench.get("Accept-Language: de");
        bench.pass(1);
        let validated = bench.get("Accept-Language: de");
        assert_eq!((validated.text(), &*validated.values("Vary").collect::<Vec<_>>()), ("DE", want));
        assert_eq!(bench.get("Accept-Language: en").text(), "EN", "{stored}, {update}");
        assert_eq!(bench.get("Accept-Language: de").text() == "DE", is_stored, "{stored}, {update}");
    }
}

// RFC 9111 §4.1: no request matches `*`, nor a name that is none.
#[test]
fn vary_that_matches_no_request() {
    for vary in ["*", "Accept, *", "Accept Language", "a(b)"] {
        check(("", &format!("Cache-Control: max-age=10 | Vary: {vary}")), 1, "", false);
    }
}

// RFC 9111 §4.3.2, RFC 9110 §13 and §14: conditions and ranges of requests, answered from the store.
#[test]
fn conditions_and_ranges() {
    let mut bench = bench(json!({}));
    bench.replies([reply(
        "Cache-Control: max-age=60 | ETag: \"a\" | Last-Modified: Mon, 31 Dec 2029 00:00:00 GMT",
        "0123456789",
    )]);
    bench.get("");
    for (fields, status, body) in [
        ("If-None-Match: \"a\"", 304, ""),
        ("If-None-Match: W/\"a\", \"b\"", 304, ""),
        ("If-None-Match: *", 304, ""),
        ("If-None-Match: \"b\"", 200, "0123456789"),
        ("If-Modified-Since: Mon, 31 Dec 2029 00:00:00 GMT", 304, ""),
        ("If-Modified-Since: Sun, 30 Dec 2029 00:00:00 GMT", 200, "0123456789"),
        ("Range: bytes=2-4", 206, "234"),
        ("Range: bytes=-1", 206, "9"),
        ("Range: bytes=20-", 416, ""),
        ("Range: lines=1", 200, "0123456789"),
        ("Range: bytes=2-4 | If-Range: \"a\"", 206, "234"),
        ("Range: bytes=2-4 | If-Range: \"b\"", 200, "0123456789"),
        ("Range: bytes=2-4 | If-Range: Mon, 31 Dec 2029 00:00:00 GMT", 206, "234"),
        ("Range: bytes=2-4 | If-Range: Sun, 30 Dec 2029 00:00:00 GMT", 200, "0123456789"),
    ] {
        let answer = bench.get(fields);
        assert_eq!((answer.status, answer.text()), (status, body), "{fields}");
    }
    let several = bench.get("Range: bytes=0-0,9-9");
    assert!(several.field("Content-Type").unwrap().starts_with("multipart/byteranges"));
    assert_eq!(bench.seen().len(), 1);
    // RFC 9110 §8.8.2.2: of the second of its response, Last-Modified is no strong validator.
    bench.replies([reply(&format!("Cache-Control: max-age=60 | Last-Modified: {START}"), "0123456789")]);
    bench.send(&request("/new", ""));
    let whole = bench.send(&request("/new", &format!("Range: bytes=2-4 | If-Range: {START}")));
    assert_eq!((whole.status, bench.seen().len()), (200, 1));
    // Without a stored response the origin gets the client's range, and its partial response is not stored.
    bench.replies([reply("Cache-Control: max-age=60 | Content-Range: bytes 0-1/10", "01").status(206)]);
    for _ in 0..2 {
        let part = bench.send(&request("/other", "Range: bytes=0-1"));
        assert_eq!((part.status, part.text()), (206, "01"));
    }
    assert_eq!(bench.seen().len(), 2);
}

// RFC 9110 §8.8.1, §13.1.5: content that a server compresses while it sends it may have other bytes next time, under
// the same tag. A part of it must not complete a part of another response.
#[test]
fn ranges_of_compressed_content() {
    let fresh = "Cache-Control: max-age=60 | Content-Type: text/plain | ETag: \"a\"";
    for (fields, status) in [
        ("", 206),
        ("Content-Encoding: gzip", 200),
        ("Content-Encoding: gzip | Accept-Ranges: none", 200),
        ("Content-Encoding: gzip | Accept-Ranges: bytes", 206),
    ] {
        let mut bench = bench(json!({}));
        bench.replies([
            reply(&format!("{fresh} | {fields}"), "0123456789"),
            reply("Cache-Control: max-age=60 | Accept-Ranges: bytes", "").status(304),
        ]);
        bench.get("");
        assert_eq!(bench.get("Range: bytes=2-4").status, status, "{fields}");
        bench.pass(60);
        assert_eq!(
            bench.get("Range: bytes=2-4").status,
            status,
            "the ranges of a 304 are those of the origin: {fields}"
        );
    }
    let encode = json!({ "handler": "encode", "encodings": { "gzip": {} } });
    let mut bench = bench_with(json!({}), &[], &[encode]);
    bench.replies([reply(&format!("{fresh} | Accept-Ranges: bytes"), &"x".repeat(5000))]);
    for range in ["Range: bytes=0-", "Range: bytes=5-", "Range: bytes=5- | If-Range: \"a-gzip\""] {
        let answer = bench.get(&format!("Accept-Encoding: gzip | {range}"));
        assert_eq!((answer.status, answer.field("ETag")), (200, Some("\"a-gzip\"")), "{range}");
    }
    assert_eq!(bench.seen().len(), 1);
}

// RFC 9111 §4.4: a successful unsafe request invalidates its target, Location and Content-Location of the same origin.
#[test]
fn invalidation() {
    for (method, status, fields, dropped) in [
        ("POST", 200, "", &["/"][..]),
        ("DELETE", 204, "", &["/"]),
        ("PUT", 303, "Location: /other", &["/", "/other"]),
        ("X-OWN", 200, "Content-Location: http://www.example.com/other?q=1#f", &["/", "/other?q=1"]),
        ("POST", 200, "Location: //www.example.com/other", &["/"]),
        ("POST", 200, "Location: https://www.example.com/other", &["/"]),
        ("POST", 200, "Location: http://other.example.com/other", &["/"]),
        ("POST", 500, "", &[]),
        ("OPTIONS", 200, "", &[]),
    ] {
        // A handler after the cache may change fields that are part of the key.
        let edit = json!({ "handler": "headers", "request": { "set": { "X-Forwarded-Proto": ["https"] } } });
        for after in [&[][..], &[edit]] {
            let mut bench = bench_with(json!({}), &[], after);
            let paths = ["/", "/other", "/other?q=1"];
            bench.replies([reply("Cache-Control: max-age=60", "x")]);
            for path in paths {
                bench.send(&request(path, "").without("Host").field("Host", "www.example.com"));
            }
            bench.replies([reply(fields, "").status(status)]);
            bench.send(&Request::new(method, "/").without("Host").field("Host", "www.example.com"));
            bench.replies([reply("", "new")]);
            for path in paths {
                let answer = bench.send(&request(path, "").without("Host").field("Host", "www.EXAMPLE.com"));
                assert_eq!(answer.text() == "new", dropped.contains(&path), "{method} {status} {fields}: {path}");
            }
        }
    }
}

// As above, with a request field in the key: the responses to requests with the same value are removed.
#[test]
fn invalidation_of_keys_with_fields() {
    let mut bench = bench(json!({ "headers": ["X-Lang"] }));
    bench.replies([reply("Cache-Control: max-age=60", "old")]);
    let requests = ["/", "/other"].map(|path| ["de", "en"].map(|lang| request(path, &format!("X-Lang: {lang}"))));
    requests.iter().flatten().for_each(|request| _ = bench.send(request));
    bench.replies([reply("Location: /other", "").status(303)]);
    bench.send(&Request::new("POST", "/").field("X-Lang", "de"));
    bench.replies([reply("", "new")]);
    for [de, en] in &requests {
        assert_eq!((bench.send(de).text(), bench.send(en).text()), ("new", "old"));
    }
}

// RFC 9111 §4.4: a response that is in progress while its URI is invalidated is not reused.
#[test]
fn invalidation_of_a_response_in_progress() {
    let mut bench = bench(json!({}));
    bench.replies([
        reply("Cache-Control: max-age=60", "").pieces(&["old"], None),
        reply("", "").status(204),
        reply("Cache-Control: max-age=60", "new"),
    ]);
    let Verdict::Respond(first) = bench.kit.verdict(&Request::get("/")) else { panic!("the origin responds") };
    bench.send(&Request::new("POST", "/"));
    bench.read(first.body);
    assert_eq!(bench.get("").text(), "new");
    assert_eq!(bench.get("").text(), "new");
    assert_eq!(bench.seen().len(), 3);
}

// RFC 9111 §4: of several responses the most recent counts. One whose content arrives slowly replaces none that was
// fetched meanwhile, neither in memory nor in the directory.
#[test]
fn a_slow_response_replaces_no_newer_one() {
    let directory = CacheDirectory::new("slow");
    let mut bench = directory.bench(json!({}));
    bench.replies([
        reply("Cache-Control: max-age=60", "").pieces(&["old"], None),
        reply("Cache-Control: max-age=60", "new"),
    ]);
    let Verdict::Respond(first) = bench.kit.verdict(&Request::get("/")) else { panic!("the origin responds") };
    bench.pass(5);
    assert_eq!(bench.get("Cookie: a=1").text(), "new");
    bench.read(first.body);
    assert_eq!((bench.get("").text(), bench.seen().len()), ("new", 2));
    directory.end(bench);
    let mut bench = directory.bench(json!({}));
    directory.wait_until_idle();
    assert_eq!((bench.get("").text(), bench.seen().len()), ("new", 0));
}

// RFC 9111 §2: the key is the URI: host, scheme and query are parts of it, and the request's other fields are not (but
// for those of `fields_of_proxies_are_part_of_the_key`).
#[test]
fn keys() {
    let host = |target: &str, host: &str| Request::get(target).without("Host").field("Host", host);
    let cases = [
        (host("/a", "one.example"), host("/a", "ONE.example"), true),
        (host("/a", "one.example"), host("/a", "two.example"), false),
        (host("/a", "one.example"), host("/a", "one.example:81"), false),
        (host("/a", "one.example"), host("http://one.example/a", "one.example"), true),
        (host("/a", "one.example"), host("/a", "one.example").secure(), false),
        (host("/a", "one.example"), host("/a?", "one.example"), false),
        (host("/a?b", "one.example"), host("/a?c", "one.example"), false),
        (host("/a", "one.example"), host("/A", "one.example"), false),
        (host("/a", "one.example"), host("/%61", "one.example"), false),
        (host("/a", "one.example"), host("/a", "one.example").field("X-Forwarded-For", "x"), true),
    ];
    for (number, (one, two, is_same)) in cases.iter().enumerate() {
        let mut bench = bench(json!({}));
        bench.replies([reply("Cache-Control: max-age=60", "x")]);
        bench.send(one);
        bench.send(two);
        assert_eq!(bench.seen().len() == 1, *is_same, "{number}");
    }
    for (key, one, two, is_same) in [
        (json!({ "disable_query": true }), "/a?b", "/a?c", true),
        (json!({ "headers": ["X-A"] }), "/a", "/a", true),
        (json!({ "template": "{http.request.uri.query.q}" }), "/a?q=1", "/b?q=1", true),
        (json!({ "template": "{http.request.uri.query.q}" }), "/a?q=1", "/a?q=2", false),
    ] {
        let mut bench = bench(json!({ "key": key }));
        bench.replies([reply("Cache-Control: max-age=60", "x")]);
        bench.send(&request(one, ""));
        bench.send(&request(two, ""));
        assert_eq!(bench.seen().len() == 1, is_same, "{key}");
    }
    let mut bench = bench(json!({ "headers": ["Cookie"] }));
    bench.replies([reply("", "x")]);
    for (cookie, is_hit) in [("a=1", false), ("a=1", true), ("a=2", false), ("a=1", true)] {
        bench.get(&format!("Cookie: {cookie}"));
        assert_eq!(bench.seen().is_empty(), is_hit, "the operator made cookies part of the key: {cookie}");
    }
}

// RFC 9111 §4.4: a cache removes the stored response of the target URI when it receives a response without an error to
// an unsafe method, also if a later handler is a cache too.
#[test]
fn a_change_reaches_each_of_two_caches() {
    let mut bench = bench_with(json!({}), &[], &[json!({ "handler": "cache" })]);
    bench.replies([reply("Cache-Control: max-age=100", "x")]);
    bench.get("");
    bench.get("");
    assert_eq!(bench.seen().len(), 1);
    bench.send(&Request::new("POST", "/"));
    bench.get("");
    assert_eq!(bench.seen().len(), 2, "the POST, and the GET after it");
}

// The slots of thousands of sites must stay below the number that recycled storage keeps.
#[test]
fn the_caches_of_a_plan_share_a_slot() {
    let registry = registry(&Arc::default());
    let mut build = Build::new(&registry);
    let slot = |build: &mut Build<'_>, path: &str| {
        let rules = build.at(path, |build| config::read(&json!({}), build)).expect("valid");
        (rules.number, rules.passed)
    };
    let [one, other] = ["one", "other"].map(|path| slot(&mut build, path));
    assert_eq!(one.1, other.1);
    assert_ne!(one.0, other.0);
}

// RFC 9211 §2.2: each of two caches appends its own reason to Cache-Status.
#[test]
fn each_of_two_caches_appends_its_own_reason() {
    let mut bench =
        bench_with(json!({ "regex": { "exclude": "/a" } }), &[], &[json!({ "handler": "cache", "cache_name": "B" })]);
    bench.replies([reply("", "x")]);
    let answer = bench.send(&Request::new("HEAD", "/a"));
    let status: Vec<_> = answer.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("cache-status")).collect();
    assert!(
        format!("{status:?}").contains("fwd=uri-miss") && format!("{status:?}").contains("fwd=bypass"),
        "{status:?}"
    );
}

// docs/cache.md: the URI of a stored response is that of the request, also if handlers before the cache have changed
// it. Location and Content-Location are URIs of requests too (RFC 9111 §4.4).
#[test]
fn keys_of_rewritten_requests() {
    let strip = json!({ "handler": "rewrite", "strip_path_prefix": "/api" });
    let mut bench = bench_with(json!({}), &[strip], &[]);
    let fill = |bench: &mut Bench| {
        bench.replies([reply("Cache-Control: max-age=60", "old")]);
        ["/api/a", "/api/b?q", "/a"].iter().for_each(|path| _ = bench.send(&request(path, "")));
        bench.replies([reply("Cache-Control: max-age=60", "new")]);
    };
    let get = |bench: &mut Bench, path: &str| bench.send(&request(path, "")).text().to_owned();
    fill(&mut bench);
    assert_eq!(bench.seen().len(), 3, "two requests that lead to one target may get different responses");
    let purge = |bench: &Bench, path: &str| {
        let purges = |text: &[u8]| key::uri(text).ends_with(path.as_bytes());
        bench.store.purge(|text, _| purges(text))
    };
    assert_eq!(purge(&bench, "/api/a"), 1);
    assert_eq!([get(&mut bench, "/api/a"), get(&mut bench, "/a")], ["new", "old"]);
    for (fields, changed) in [("Location: /api/b?q", "/api/b?q"), ("Content-Location: /api/a", "/api/a")] {
        bench.purge(None, &Purge::All);
        fill(&mut bench);
        bench.replies([reply(fields, "").status(201)]);
        bench.send(&Request::new("POST", "/api/list"));
        bench.replies([reply("Cache-Control: max-age=60", "new")]);
        for path in ["/api/a", "/api/b?q", "/a"] {
            assert_eq!(get(&mut bench, path) == "new", path == changed, "{fields}: {path}");
        }
    }
    bench.purge(None, &Purge::All);
    fill(&mut bench);
    bench.send(&Request::new("POST", "/api/a"));
    assert_eq!([get(&mut bench, "/api/a"), get(&mut bench, "/a")], ["new", "old"]);
}

// Two handlers whose keys lack the host do not share their responses: they may be of different sites.
#[test]
fn keys_without_a_host_belong_to_one_handler() {
    let script = Arc::new(Script::default());
    let cache = json!({ "handler": "cache", "memory": 77_777_777, "key": { "disable_host": true } });
    let route = |path: &str| json!({ "match": [{ "host": [path] }], "handle": [cache, { "handler": "origin" }], "terminal": true });
    let mut kit = Kit::new(&registry(&script), &json!([route("a"), route("b")]));
    script.replies.lock().unwrap().push_back(reply("Cache-Control: max-age=60", "x"));
    for host in ["a", "b", "a", "b"] {
        kit.send(&Request::get("/").without("Host").field("Host", host));
    }
    assert_eq!(script.seen.lock().unwrap().len(), 2);
}

// RFC 9111 §3.3: an incomplete response is not stored.
#[test]
fn bodies() {
    let fresh = || reply("Cache-Control: max-age=60", "");
    for (reply, is_stored) in [
        (fresh().pieces(&["con", "tent"], None), true),
        (fresh().pieces(&["con", "tent"], Some(BodyError::PeerGone)), false),
        (fresh().pieces(&["content", &"x".repeat(2000)], None), false),
        (reply("Cache-Control: max-age=60", &"x".repeat(2000)), false),
        (reply("Cache-Control: max-age=60", &"x".repeat(1000)), true),
    ] {
        let mut bench = bench(json!({ "max_cacheable_body_bytes": 1000 }));
        bench.replies([reply]);
        let one = bench.get("");
        let two = bench.get("");
        assert_eq!(bench.seen().len() == 1, is_stored, "{:?}", one.fields);
        assert_eq!(one.body, two.body);
    }
}

// RFC 5861 §4, RFC 9111 §4.2.4: a stale response instead of an error, unless it must be validated.
#[test]
fn stale_if_error() {
    for (stale, control, later, is_served) in [
        (0, "max-age=10, stale-if-error=20", 29, true),
        (0, "max-age=10, stale-if-error=20", 30, false),
        (0, "max-age=10", 10, false),
        (20, "max-age=10", 29, true),
        (20, "max-age=10", 30, false),
        (20, "max-age=10, must-revalidate", 10, false),
        (20, "max-age=10, proxy-revalidate", 10, false),
        (20, "s-maxage=10", 10, false),
        // Also without a lifetime and a validator: it can be used then, and only then.
        (0, "max-age=0, stale-if-error=20", 19, true),
        (20, "max-age=0", 0, false),
        (20, "max-age=0, must-revalidate", 0, false),
        (20, "no-cache", 0, false),
    ] {
        for (status, seen) in [(503, 503), (0, 502), (500, 500)] {
            let mut bench = bench(json!({ "stale": stale * 1_000_000_000_i64 }));
            bench.replies([reply(&format!("Cache-Control: {control}"), "old")]);
            bench.get("");
            bench.replies([reply("X-New: 1", "error").status(status)]);
            bench.pass(later);
            let answer = bench.get("");
            if is_served {
                assert_eq!(
                    (answer.status, answer.text(), answer.field("X-New")),
                    (200, "old", None),
                    "{control} {later}"
                );
                let want = format!("Causeway; fwd=stale; fwd-status={seen}; detail=stale-if-error");
                assert_eq!(answer.field("Cache-Status"), Some(&*want));
            } else {
                assert_eq!(answer.status, seen, "{control} {later}");
            }
        }
    }
}

// RFC 9111 §5.2.1.4: a client that requires validation gets the origin's error, unless `stale-if-error` allows
// otherwise.
#[test]
fn errors_of_a_required_validation() {
    for (control, status) in [("max-age=10", 503), ("max-age=10, stale-if-error=5", 200)] {
        let mut bench = bench(json!({}));
        bench.replies([reply(&format!("Cache-Control: {control}"), "old"), reply("", "").status(503)]);
        bench.get("");
        assert_eq!(bench.get("Cache-Control: no-cache").status, status, "{control}");
    }
}

// RFC 9111 §4.3.5: a response to HEAD with another validator or length shows that the stored response is not current.
#[test]
fn head_responses_that_differ() {
    for (fields, status, is_kept) in [
        ("ETag: \"a\" | Content-Length: 3", 200, true),
        ("Content-Length: 4", 200, false),
        ("ETag: \"b\"", 200, false),
        ("ETag: \"b\" | Content-Encoding: gzip", 200, true),
        ("Last-Modified: Mon, 31 Dec 2029 00:00:00 GMT", 200, false),
        ("", 200, true),
        ("ETag: \"b\"", 404, false),
        ("Cache-Control: no-store", 410, false),
        ("ETag: \"b\"", 405, true),
        ("ETag: \"b\"", 429, true),
        ("ETag: \"b\"", 503, true),
    ] {
        let mut bench = bench(json!({}));
        bench.replies([
            reply(&format!("Cache-Control: max-age=60 | ETag: \"a\" | Last-Modified: {START}"), "one"),
            reply(&format!("X-Head: 1 | {fields}"), "").status(status),
            reply("", "two"),
        ]);
        bench.get("");
        let head =
            bench.send(&Request::new("HEAD", "/").field("Cache-Control", "no-cache").field("If-None-Match", "\"c\""));
        assert_eq!((head.status, head.field("X-Head"), head.field("Age")), (status, Some("1"), None));
        let seen = bench.seen();
        assert_eq!(seen[1].field("If-None-Match"), Some("\"c\""), "the condition is the client's");
        assert_eq!(bench.get("").text() == "one", is_kept, "{fields}");
    }
}

// RFC 9530 §2: Content-Digest is one of the content that is sent, and Repr-Digest of the whole. RFC 2616 §14.15: so is
// Content-MD5.
#[test]
fn digests_of_parts() {
    for (range, status) in [("bytes=0-1", 206), ("bytes=0-1,4-5", 206), ("bytes=99-", 416), ("lines=1", 200)] {
        let mut bench = bench(json!({}));
        let digests = "Content-Digest: sha-256=:a: | Content-MD5: a | Repr-Digest: sha-256=:a: | Digest: a";
        bench.replies([reply(&format!("Cache-Control: max-age=60 | {digests}"), "content")]);
        bench.get("");
        let answer = bench.get(&format!("Range: {range}"));
        assert_eq!(answer.status, status, "{range}");
        for (name, is_kept) in
            [("Content-Digest", status == 200), ("Content-MD5", status == 200), ("Repr-Digest", true), ("Digest", true)]
        {
            assert_eq!(answer.field(name).is_some(), is_kept, "{range} {name}");
        }
    }
}

// RFC 9111 §4.3.3: a response to a validation that is neither 304 nor an error of the server takes the place of the
// stored one, which is not used again, also if the new one is not stored.
#[test]
fn withdrawn_responses() {
    let large = "x".repeat(300_000);
    for (status, fields, body, personal, is_kept) in [
        (404, "no-store", "", "", false),
        (410, "no-store", "", "", false),
        (403, "no-store", "", "", false),
        (302, "no-cache", "", "", false),
        (200, "private", "", "", false),
        (200, "max-age=60", &*large, "", false),
        (429, "no-store", "", "", true),
        (400, "no-store", "", "", true),
        (401, "no-store", "", "", true),
        (406, "no-store", "", "", true),
        (503, "no-store", "", "", true),
        (200, "private", "", "Cookie: a=b", true),
    ] {
        for is_refresh in [false, true] {
            let mut bench = bench(json!({ "stale": 3600 * 1_000_000_000_i64 }));
            let swr = if is_refresh { ", stale-while-revalidate=60" } else { "" };
            let answer = reply(&format!("Cache-Control: {fields}"), "").status(status);
            bench.replies([
                reply(&format!("Cache-Control: max-age=1{swr} | ETag: \"a\""), "old"),
                answer.pieces(&[body], None),
                reply("Cache-Control: no-store", "").status(503),
            ]);
            bench.get("");
            bench.pass(if is_refresh { 2 } else { 0 });
            let forced = if is_refresh { "X: 1" } else { "Cache-Control: no-cache" };
            bench.get(&format!("{forced} | {personal}"));
            bench.kit.worker().drive_spawned();
            assert_eq!(bench.seen().len(), 2, "{status} {fields}");
            bench.pass(100);
            assert_eq!(bench.get("").text() == "old", is_kept, "{status} {fields} {personal} {is_refresh}");
        }
    }
}

// docs/cache.md: a refusal by a handler of this server, such as `basic_auth`, concerns the client alone. A file that is
// missing concerns all of them.
#[test]
fn refusals_remove_no_response() {
    for (status, is_kept) in
        [(401, true), (403, true), (406, true), (429, true), (503, true), (404, false), (410, false)]
    {
        let mut bench = bench(json!({}));
        bench.replies([
            reply("Cache-Control: max-age=60", "old"),
            Reply { status, fields: Vec::new(), content: Content::Fault },
            reply("Cache-Control: no-store", "new"),
        ]);
        bench.get("");
        assert_eq!(bench.get("Cache-Control: no-cache").status, status);
        assert_eq!(bench.get("").text(), if is_kept { "old" } else { "new" }, "{status}");
    }
}

// RFC 5861 §4: a stale response answers HEAD too instead of an error.
#[test]
fn head_instead_of_an_error() {
    for status in [503, 0, 404] {
        let mut bench = bench(json!({}));
        bench.replies([reply("Cache-Control: max-age=10, stale-if-error=20", "old"), reply("", "").status(status)]);
        bench.get("");
        bench.pass(10);
        let head = bench.send(&Request::new("HEAD", "/"));
        assert_eq!((head.status, head.length), if status == 404 { (404, Some(0)) } else { (200, Some(3)) });
    }
}

// RFC 5861 §3: a stale response is served while a fresh one is fetched, once for all requests.
#[test]
fn stale_while_revalidate() {
    let mut bench = bench(json!({}));
    bench.replies([
        reply("Cache-Control: max-age=10, stale-while-revalidate=20 | ETag: \"a\"", "old"),
        reply("Cache-Control: max-age=10, stale-while-revalidate=20 | ETag: \"b\"", "new").pieces(&["ne", "w"], None),
    ]);
    bench.get("");
    bench.pass(29);
    bench.seen();
    for _ in 0..3 {
        let answer = bench.get("Cache-Control: x | Range: bytes=0-1");
        assert_eq!((answer.status, answer.text(), answer.field("Age")), (206, "ol", Some("29")));
        assert_eq!(answer.field("Cache-Status"), Some("Causeway; hit; ttl=-19"));
    }
    assert_eq!(bench.seen().len(), 0, "the task has not run yet");
    bench.kit.worker().drive_spawned();
    let seen = bench.seen();
    assert_eq!((seen.len(), seen[0].field("If-None-Match"), seen[0].field("Range")), (1, Some("\"a\""), None));
    assert_eq!(bench.kit.worker().drive_spawned(), 0);
    let answer = bench.get("");
    assert_eq!((answer.text(), answer.field("Age")), ("new", Some("0")));
    bench.pass(31);
    bench.get("");
    assert_eq!(bench.seen().len(), 1, "after that time the client waits for a fresh one");
    // RFC 9111 §4.2.4.
    bench.replies([reply("Cache-Control: max-age=10, stale-while-revalidate=20, must-revalidate", "x")]);
    bench.send(&request("/strict", ""));
    bench.pass(11);
    bench.send(&request("/strict", ""));
    assert_eq!(bench.seen().len(), 2);
}

// A refresh whose origin fails leaves the stale response, and a later request tries again.
#[test]
fn a_refresh_that_fails() {
    let mut bench = bench(json!({}));
    bench.replies([reply("Cache-Control: max-age=10, stale-while-revalidate=200", "old"), Reply::default()]);
    bench.get("");
    bench.pass(11);
    for _ in 0..2 {
        assert_eq!(bench.get("").text(), "old");
        bench.kit.worker().drive_spawned();
        // As after each fetch that failed, none begins at once.
        bench.pass(1);
    }
    assert_eq!(bench.seen().len(), 3);
}

// Concurrent requests of one key: one fetches, the others wait for its response.
#[test]
fn one_fetch_for_many_requests() {
    let mut bench = bench(json!({}));
    // The origin's body has not ended while the response is not read.
    bench.replies([reply("Cache-Control: max-age=10", "").pieces(&["con", "tent"], None)]);
    let Verdict::Respond(first) = bench.kit.verdict(&Request::get("/")) else { panic!("the origin responds") };
    let waiting: Vec<_> = (0..3).map(|_| bench.kit.send_pending(&Request::get("/")).expect_err("it waits")).collect();
    assert_eq!(bench.seen().len(), 1);
    bench.read(first.body);
    for pending in waiting {
        let answer = pending.finish(&mut bench.kit);
        assert_eq!(answer.text(), "content");
        assert_eq!(answer.field("Cache-Status"), Some("Causeway; fwd=uri-miss; collapsed"));
    }
    assert_eq!(bench.seen().len(), 0);
    // docs/metrics.md: each request is counted once.
    let lookups = bench.store.usage().lookups;
    assert_eq!((lookups[Lookup::UriMiss as usize], lookups.iter().sum::<u64>()), (1, 4), "{lookups:?}");
}

// The first client is gone before its response is complete: of the others, one fetches, and the rest wait for it.
#[test]
fn an_abandoned_fetch() {
    let mut bench = bench(json!({}));
    bench.replies([reply("Cache-Control: max-age=10", "").pieces(&["con", "tent"], None)]);
    let first = bench.kit.verdict(&Request::get("/"));
    let waiting: Vec<_> = (0..3).map(|_| bench.kit.send_pending(&Request::get("/")).expect_err("it waits")).collect();
    drop(first);
    for pending in waiting {
        assert_eq!(pending.finish(&mut bench.kit).text(), "content");
    }
    assert_eq!(bench.seen().len(), 2, "one more fetch");
}

// A response that is not storable: the waiting ones fetch for themselves, and later requests do not wait.
#[test]
fn waiting_requests_fetch_unstorable_responses() {
    let mut bench = bench(json!({}));
    bench.replies([reply("Cache-Control: no-store", "").pieces(&["con", "tent"], None)]);
    let one = bench.kit.verdict(&Request::get("/"));
    let two = bench.kit.verdict(&Request::get("/"));
    assert_eq!(bench.seen().len(), 2, "none waits after the head of the first response");
    drop((one, two));
    let mut apart = bench_with(json!({ "disable_coalescing": true }), &[], &[]);
    apart.replies([reply("Cache-Control: max-age=10", "").pieces(&["x"], None)]);
    let _one = apart.kit.verdict(&Request::get("/"));
    let _two = apart.kit.verdict(&Request::get("/"));
    assert_eq!(apart.seen().len(), 2);
}

// docs/cache.md: "If it proves not storable, the others go on, and for 10 s the requests for this URI do not wait",
// also if that shows only after the head; after a response that failed, for 1 s.
#[test]
fn responses_that_prove_unstorable() {
    let fresh = || reply("Cache-Control: max-age=60", "");
    let long = || fresh().pieces(&["content", &"x".repeat(2000)], None);
    let outage = || Reply { status: 503, ..reply("", "") };
    for (reply, seconds) in [
        (long(), 10),
        (fresh().pieces(&["con"], Some(BodyError::PeerGone)), 1),
        (Reply::default(), 1),
        (outage().pieces(&["x"], None), 10),
    ] {
        let mut bench = bench(json!({ "max_cacheable_body_bytes": 1000 }));
        bench.replies([reply, long()]);
        if let Verdict::Respond(first) = bench.kit.verdict(&Request::get("/")) {
            bench.read(first.body);
        }
        let two = bench.kit.verdict(&Request::get("/"));
        let begun = bench.kit.worker().now();
        let three = bench.kit.verdict(&Request::get("/"));
        assert_eq!((bench.seen().len(), bench.kit.worker().now()), (3, begun), "the third does not wait: {seconds}");
        drop((two, three));
        bench.pass(seconds);
        let _four = bench.kit.verdict(&Request::get("/"));
        assert!(bench.kit.send_pending(&Request::get("/")).is_err(), "it waits again: {seconds}");
    }
}

// RFC 5861 §4: also if a stale response takes the place of the error.
#[test]
fn outages_do_not_serialize_requests() {
    for outage in [Reply::default(), Reply { status: 503, ..reply("", "") }] {
        let mut bench = bench(json!({}));
        bench.replies([
            reply("Cache-Control: max-age=1, stale-if-error=60", "old"),
            outage,
            reply("Cache-Control: max-age=60", "").pieces(&["x"], None),
        ]);
        bench.get("");
        bench.pass(2);
        assert_eq!(bench.get("").text(), "old");
        let _two = bench.kit.verdict(&Request::get("/"));
        let begun = bench.kit.worker().now();
        let _three = bench.kit.verdict(&Request::get("/"));
        assert_eq!((bench.seen().len(), bench.kit.worker().now()), (4, begun));
    }
}

// Errors that fields outside of the key cause are not stored: one client could replace the page of all others by them.
#[test]
fn errors_of_one_request() {
    for (fields, status) in
        [("Range: bytes=99999-", 416), ("Range: bytes=0-1", 404), ("X-Large: 1", 431), ("X-Bad: 1", 400)]
    {
        let mut bench = bench(json!({ "default_cache_control": "public, max-age=60" }));
        bench.replies([
            reply("Cache-Control: max-age=60", "error").status(status),
            reply("Cache-Control: max-age=60", "content"),
        ]);
        assert_eq!(bench.get(fields).status, status);
        assert_eq!(bench.get("").text(), "content", "{status}");
    }
    // The operator's default is for responses that are cacheable by default, and not for credentials (RFC 9111 §3.5).
    for (fields, status) in [("", 500), ("", 403), ("Authorization: Basic YTpi", 200)] {
        let mut bench = bench(json!({ "default_cache_control": "public, max-age=60" }));
        bench.replies([reply("", "one").status(status), reply("", "two")]);
        bench.get(fields);
        assert_eq!(bench.get("").text(), "two", "{fields} {status}");
    }
}

// Two handlers of one server do not share responses: routes may admit other clients to each.
#[test]
fn handlers_do_not_share_responses() {
    let script = Arc::new(Script::default());
    let cache = json!({ "handler": "cache", "memory": 66_666_666 });
    let route = |zone: &str| json!({ "match": [{ "header": { "Zone": [zone] } }], "handle": [cache, { "handler": "origin" }], "terminal": true });
    let mut kit = Kit::new(&registry(&script), &json!([route("in"), route("out")]));
    script.replies.lock().unwrap().push_back(reply("Cache-Control: max-age=60", "x"));
    for zone in ["in", "out", "in", "out"] {
        kit.send(&request("/", &format!("Zone: {zone}")));
    }
    assert_eq!(script.seen.lock().unwrap().len(), 2);
}

// Requests whose response is one user's do not wait for each other, nor do they make others wait.
#[test]
fn personal_requests_do_not_wait() {
    let mut bench = bench(json!({}));
    bench.replies([reply("", "").pieces(&["x"], None)]);
    let fetching: Vec<_> = ["Cookie: a=1", "Cookie: a=2", "If-None-Match: \"a\"", ""]
        .iter()
        .map(|fields| bench.kit.verdict(&request("/", fields)))
        .collect();
    assert_eq!(bench.seen().len(), 4);
    drop(fetching);
}

// RFC 9111 §5.2.2.4: each request for the response is validated. The requests do not wait for each other's validation.
#[test]
fn validations_do_not_wait() {
    for control in ["no-cache", "max-age=0", "no-cache, max-age=60"] {
        let mut bench = bench(json!({}));
        let (head, update) = (format!("Cache-Control: {control} | ETag: \"a\""), format!("Cache-Control: {control}"));
        bench.replies([reply(&head, "one"), reply(&update, "").pieces(&["two"], None)]);
        bench.get("");
        let _one = bench.kit.verdict(&Request::get("/"));
        let _two = bench.kit.verdict(&Request::get("/"));
        assert_eq!(bench.seen().len(), 3, "{control}");
    }
}

// A fetch that takes too long: the waiting request is forwarded to the origin, and later ones do not wait.
#[test]
fn a_fetch_that_takes_too_long() {
    let mut bench = bench(json!({}));
    bench.replies([reply("Cache-Control: max-age=60", "").pieces(&["x"], None)]);
    let _first = bench.kit.verdict(&Request::get("/"));
    let waiting = bench.kit.send_pending(&Request::get("/")).expect_err("it waits");
    assert_eq!(waiting.finish(&mut bench.kit).text(), "x");
    let begun = bench.kit.worker().now();
    bench.kit.send(&Request::get("/other"));
    assert_eq!((bench.seen().len(), bench.kit.worker().now()), (3, begun));
}

// Cache poisoning: an application may make links from fields of proxies, so that their values are part of the key. A
// request that changes the resource removes the responses to requests with its own values.
#[test]
fn fields_of_proxies_are_part_of_the_key() {
    for field in [
        "Forwarded: host=evil.test",
        "x-forwarded-host: evil.test",
        "X-Forwarded-Port: 1",
        "X-Forwarded-Proto: http",
        "X-Forwarded-Prefix: /evil",
        "X-Forwarded-Scheme: http",
        "X-Forwarded-Server: evil.test",
        "X-Forwarded-Ssl: off",
        "X-Host: evil.test",
        "X-HTTP-Host-Override: evil.test",
        "X-Original-Host: evil.test",
        "X-Forwarded-Protocol: http",
        "Front-End-Https: on",
        "Forwarded: for=\", for=1.2.3.4",
        "Forwarded: for=\"a\\\", for=1.2.3.4",
        "Forwarded: for=\"a,b\";host=evil.test",
        "Forwarded: for=\"a;host=evil.test\"",
        "Forwarded: for=\"a\\\";host=evil.test\"",
        "Forwarded: for=ahost=evil.test",
        "Forwarded: by=\"_a proto=http\"",
        "Forwarded: for=a\"b",
    ] {
        let mut bench = bench(json!({}));
        bench.replies([reply("Cache-Control: max-age=60", "evil"), reply("Cache-Control: max-age=60", "good")]);
        assert_eq!(bench.get(field).text(), "evil");
        assert_eq!(bench.get("").text(), "good", "{field}");
        assert_eq!(bench.get(&format!("{field} | {field}")).text(), "good", "{field}");
        assert_eq!((bench.get(field).text(), bench.seen().len()), ("evil", 3), "{field}");
        let (name, value) = field.split_once(": ").unwrap();
        bench.replies([reply("", "")]);
        bench.send(&Request::new("POST", "/").field(name, value));
        bench.replies([reply("", "new")]);
        assert_eq!((bench.get(field).text(), bench.get("").text()), ("new", "good"), "{field}");
    }
}

// The operator's defaults and exceptions.
#[test]
fn settings() {
    let hits = |cache: Value, fields: &str, request_fields: &str, later: u64| {
        let mut bench = bench(cache);
        bench.replies([reply(fields, "x")]);
        bench.get(request_fields);
        bench.pass(later);
        bench.get(request_fields);
        bench.seen().len() == 1
    };
    let second = 1_000_000_000_i64;
    assert!(hits(json!({ "ttl": 10 * second }), "", "", 9));
    assert!(!hits(json!({ "ttl": 10 * second }), "", "", 10));
    assert!(hits(json!({ "ttl": 10 * second }), "Cache-Control: max-age=60", "", 50));
    assert!(!hits(json!({ "default_cache_control": "no-store" }), "", "", 0));
    assert!(hits(json!({ "default_cache_control": "public, max-age=50" }), "", "Cookie: a=b", 49));
    assert!(!hits(json!({}), "", "Cache-Control: no-cache", 0));
    assert!(hits(json!({ "mode": "bypass_request" }), "", "Cache-Control: no-cache", 0));
    assert!(hits(json!({}), "", "Connection: close, Keep-Alive, TE", 0));
    // RFC 9110 §7.6.1: a proxy removes such a field, so that the origin's response is one to a request without it.
    assert!(!hits(json!({}), "", "Connection: close, Accept", 0));
    let mut one = bench(json!({}));
    one.replies([reply("", "x")]);
    one.get("Forwarded: For=192.0.2.1;by=_a;host=a.test;proto=https, for=192.0.2.2");
    one.get("Forwarded: by=_b; host=a.test; proto=https, for=\"[2001:db8::1]\"");
    assert_eq!(one.seen().len(), 1, "addresses are as many as clients");
    assert!(hits(json!({}), "", "X-Forwarded-Proto: https | X-Forwarded-Port: 443", 0));
    // A response to another method, or about another URI, in applications with such fields.
    assert!(!hits(json!({}), "", "x-http-method-override: PUT", 0));
    assert!(!hits(json!({}), "", "X-Original-URL: /b", 0));
    assert!(!hits(json!({ "regex": { "exclude": "^/$" } }), "", "", 0));
    assert!(hits(json!({ "regex": { "exclude": "^/x" } }), "", "", 0));
    let mut bench = bench(json!({ "default_cache_control": "max-age=50" }));
    bench.replies([reply("", "x")]);
    // RFC 9110 §9.3.2: the fields of a response to HEAD are those of one to GET.
    for (method, name, value, is_set) in [
        ("HEAD", "X-A", "1", true),
        ("HEAD", "Authorization", "Basic YTpi", false),
        ("POST", "X-A", "1", false),
        ("GET", "X-A", "1", true),
        ("HEAD", "Cache-Control", "no-cache", true),
    ] {
        let answer = bench.send(&Request::new(method, "/").field(name, value));
        assert_eq!(answer.field("Cache-Control"), is_set.then_some("max-age=50"), "{method} {value}");
    }
    bench.replies([reply("", "x").status(500)]);
    assert_eq!(bench.send(&Request::new("HEAD", "/").field("Cache-Control", "no-cache")).field("Cache-Control"), None);
}

/// A directory of the test's own, removed at its end.
struct CacheDirectory(std::path::PathBuf);

impl CacheDirectory {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("causeway-cache-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        Self(directory)
    }

    /// A cache with this directory, and with a memory of its own, as after a restart.
    fn bench(&self, bounds: Value) -> Bench {
        bench(json!({ "simplefs": { "path": self.0.to_str(), "configuration": bounds } }))
    }

    /// Drops a cache with this directory, and waits for the end of the directory's thread, as of the process.
    fn end(&self, bench: Bench) {
        drop(bench);
        while !self.disks().is_empty() {
            std::thread::yield_now();
        }
    }

    fn disks(&self) -> Vec<Arc<DiskHandle>> {
        let directory = self.0.canonicalize().unwrap();
        DiskHandle::all().into_iter().filter(|disk| disk.is_of(&directory)).collect()
    }

    /// Waits for the directory's thread.
    fn wait_until_idle(&self) {
        self.disks().iter().for_each(|disk| disk.wait_until_idle());
    }

    fn files(&self) -> Vec<std::path::PathBuf> {
        self.wait_until_idle();
        let entries = std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = entries.filter(|path| !path.to_str().unwrap().contains("writing-")).collect();
        files.sort();
        files
    }
}

impl Drop for CacheDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

// Responses outlive the process, with their age; each variant has its file.
#[test]
fn files_of_responses() {
    let directory = CacheDirectory::new("files");
    let mut bench = directory.bench(json!({}));
    bench.replies([reply("Cache-Control: max-age=60 | Vary: Accept-Language | ETag: \"a\"", "content")]);
    bench.get("Accept-Language: de");
    bench.get("Accept-Language: en");
    assert_eq!((bench.seen().len(), directory.files().len()), (2, 2));
    directory.end(bench);
    let mut bench = directory.bench(json!({}));
    directory.wait_until_idle();
    bench.replies([reply("Cache-Control: no-store", "other")]);
    for (language, is_hit) in [("de", true), ("en", true), ("fr", false)] {
        let answer = bench.get(&format!("Accept-Language: {language}"));
        assert_eq!(answer.text() == "content", is_hit, "{language}");
        assert_eq!(bench.seen().is_empty(), is_hit, "{language}");
        if is_hit {
            assert_eq!(answer.field("Cache-Status"), Some("Causeway; hit; ttl=60"));
        }
    }
    // A successful unsafe request removes the files too.
    bench.replies([reply("", "")]);
    bench.send(&Request::new("POST", "/"));
    assert_eq!(directory.files().len(), 0);
}

// docs/cache.md: a client cannot get a response stored for others by a value of its own. A placeholder of the template
// decodes a line end.
#[test]
fn a_template_cannot_forge_the_rest_of_the_key() {
    let mut bench = bench(json!({ "key": { "template": "{http.request.uri.path}" } }));
    bench.replies([reply("Cache-Control: max-age=60", "x")]);
    for (path, fields) in [
        ("/t%0Ax-forwarded-host:shop", ""),
        ("/t", "X-Forwarded-Host: shop"),
        ("/t", ""),
        ("/t%0Aforwarded:host=shop", ""),
        ("/t", "Forwarded: host=shop"),
    ] {
        bench.send(&request(path, fields));
        assert_eq!(bench.seen().len(), 1, "{path} {fields}");
        bench.send(&request(path, fields));
        assert_eq!(bench.seen().len(), 0, "{path} {fields}");
    }
}

// docs/cache.md: requests for different responses of one key, by the fields that Vary names, do not wait for each
// other.
#[test]
fn requests_for_other_variants_do_not_wait() {
    let mut bench = bench(json!({}));
    bench.replies([reply("Cache-Control: max-age=10 | Vary: Origin", "x").pieces(&["x"], None)]);
    bench.get("Origin: a");
    bench.seen();
    let begun = bench.kit.worker().now();
    let from = |origin: &str| Request::get("/").field("Origin", origin);
    // The bodies are not read, so that the fetches are under way.
    let _answers = ["b", "c", "d"].map(|origin| bench.kit.verdict(&from(origin)));
    assert_eq!((bench.seen().len(), bench.kit.worker().now()), (3, begun));
    let same = bench.kit.send_pending(&from("b")).expect_err("it waits");
    same.cancel(&mut bench.kit);
    assert_eq!(bench.seen().len(), 0);
}

// Concurrent requests of one key: one reads its file, and the others wait for it.
#[test]
fn a_file_is_read_once() {
    let directory = CacheDirectory::new("once");
    let mut bench = directory.bench(json!({}));
    bench.replies([reply("Cache-Control: max-age=60", "content")]);
    bench.get("");
    directory.wait_until_idle();
    directory.end(bench);
    let mut bench = directory.bench(json!({}));
    directory.wait_until_idle();
    bench.kit.worker().queue_jobs(8);
    let waiting: Vec<_> = (0..3).map(|_| bench.kit.send_pending(&Request::get("/")).expect_err("it waits")).collect();
    assert_eq!(bench.kit.worker().jobs_seen(), 1);
    for pending in waiting {
        let answer = pending.finish(&mut bench.kit);
        assert_eq!(answer.text(), "content");
        // RFC 9211 §2.1: the response was in the cache; none of the requests was forwarded.
        assert_eq!(answer.field("Cache-Status"), Some("Causeway; hit; ttl=60"));
    }
    assert!(bench.seen().is_empty());
}

// docs/limits.md: a lookup reads the content of the latest response that fits the request alone, and counts it as a
// response that is received. The others stay in their files until a request for them.
#[test]
fn content_of_other_requests_is_not_read() {
    let directory = CacheDirectory::new("heads");
    let mut bench = directory.bench(json!({}));
    bench.replies([reply("Cache-Control: max-age=60 | Vary: Accept-Language", &"x".repeat(10_000))]);
    ["de", "en"].iter().for_each(|language| _ = bench.get(&format!("Accept-Language: {language}")));
    directory.wait_until_idle();
    directory.end(bench);
    let mut bench = directory.bench(json!({}));
    directory.wait_until_idle();
    bench.replies([reply("Cache-Control: no-store", "other")]);
    for (language, status) in [("de", "hit; ttl=60"), ("en", "hit; ttl=60"), ("fr", "fwd=vary-miss; fwd-status=200")] {
        let answer = bench.get(&format!("Accept-Language: {language}"));
        assert_eq!(answer.field("Cache-Status"), Some(&*format!("Causeway; {status}")), "{language}");
    }
    assert_eq!(bench.store.usage().responses, 2);
    directory.end(bench);
    let mut bench = directory.bench(json!({}));
    directory.wait_until_idle();
    bench.replies([reply("Cache-Control: no-store", "other")]);
    let fr = bench.get("Accept-Language: fr");
    assert_eq!(fr.field("Cache-Status"), Some("Causeway; fwd=vary-miss; fwd-status=200"));
    assert_eq!(bench.store.usage().responses, 0);
    bench.get("Accept-Language: de");
    assert_eq!(bench.store.usage().responses, 1);
    // Without memory for the content the origin responds.
    let mut receiving = bench.store.receive();
    assert!(receiving.grow((bench.store.usage().bytes_max / 4) - 5000));
    assert_eq!(bench.get("Accept-Language: en").text(), "other");
    drop(receiving);
    assert_eq!(bench.get("Accept-Language: en").text().len(), 10_000);
}

// Damaged and missing files are misses, and disappear; a pool without a free place is one too.
#[test]
fn files_that_cannot_be_used() {
    for damage in [0, 1, 2] {
        let directory = CacheDirectory::new(&format!("damaged-{damage}"));
        let mut bench = directory.bench(json!({}));
        bench.replies([reply("Cache-Control: max-age=60", "content")]);
        bench.get("");
        let [file] = &directory.files()[..] else { panic!("one file") };
        directory.end(bench);
        let mut bench = directory.bench(json!({}));
        directory.wait_until_idle();
        match damage {
            0 => std::fs::write(file, b"x").unwrap(),
            1 => std::fs::remove_file(file).unwrap(),
            _ => bench.kit.worker().queue_jobs(0),
        }
        bench.replies([reply("Cache-Control: no-store", "other")]);
        assert_eq!(bench.get("").text(), "other");
        assert_eq!(directory.files().len(), usize::from(damage == 2), "{damage}");
    }
}

// Above the directory's bounds the oldest files that were not read since are removed.
#[test]
fn a_directory_has_bounds() {
    let directory = CacheDirectory::new("bounds");
    for bounds in [json!({ "size": 3 }), json!({ "directory_size": 3 * 6000 })] {
        let mut bench = directory.bench(bounds);
        bench.replies([reply("Cache-Control: max-age=60", &"x".repeat(1000))]);
        for path in 0..10 {
            bench.send(&request(&format!("/{path}"), ""));
            directory.wait_until_idle();
        }
        assert_eq!(directory.files().len(), 3);
        directory.end(bench);
    }
}

// docs/internals/reload.md: a plan that is refused changes nothing. The running server's files stay within reach of
// removals, and so does the file of a response that an earlier plan has fetched.
#[test]
fn a_directory_has_one_index() {
    let directory = CacheDirectory::new("index");
    let mut bench = directory.bench(json!({ "size": 3 }));
    bench.replies([reply("Cache-Control: max-age=60", "x")]);
    bench.send(&request("/1", ""));
    let written = json!({ "simplefs": { "path": directory.0.to_str(), "configuration": { "size": 1 } } });
    let registry = Registry::default();
    drop(config::read(&written, &mut Build::new(&registry)).expect("it is valid"));
    ["/2", "/3"].iter().for_each(|path| _ = bench.send(&request(path, "")));
    assert_eq!((directory.files().len(), directory.disks().len()), (3, 1));
    let later = directory.bench(json!({ "size": 2 }));
    bench.send(&request("/4", ""));
    assert_eq!((directory.files().len(), directory.disks().len()), (2, 1));
    assert_eq!((later.purge(Some(&directory), &Purge::All).files, directory.files().len()), (2, 0));
    drop(later);
    bench.send(&request("/5", ""));
    // Until then, the purge would only stop the write.
    directory.wait_until_idle();
    assert_eq!((bench.purge(Some(&directory), &Purge::All).files, directory.files().len()), (1, 0));
}

// Two handlers of one plan with a directory need the same bounds: one of them would be without effect.
#[test]
fn handlers_agree_on_the_bounds_of_a_directory() {
    let directory = CacheDirectory::new("agree");
    let script = Arc::new(Script::default());
    let build = |one: Value, other: Value| {
        let cache = |bounds: Value| json!({ "handler": "cache", "simplefs": { "path": directory.0.to_str(), "configuration": bounds } });
        let routes = json!([{ "handle": [cache(one)] }, { "handle": [cache(other)] }]);
        Kit::build(&registry(&script), &routes, &json!([])).err().map(|error| error.to_string())
    };
    assert_eq!(build(json!({ "directory_size": 1 << 30 }), json!({})), None, "the default");
    let error =
        build(json!({ "directory_size": 9000 }), json!({ "size": 7, "directory_size": 8000 })).expect("it is refused");
    assert!(error.contains("simplefs.configuration: found ''size' 7, 'directory_size' 8000'"), "{error}");
    assert!(error.contains("expected 'directory_size' 9000, as another handler has for the directory"), "{error}");
}

// RFC 9111 §4: a response that another one has replaced is never used again, also if the other one has another file, or
// none.
#[test]
fn replaced_responses_have_no_files() {
    let directory = CacheDirectory::new("replaced");
    let mut bench = directory.bench(json!({ "directory_size": 20_000 }));
    let cached = "Cache-Control: max-age=60";
    bench.replies([
        reply(&format!("{cached} | Vary: Accept-Language"), "one"),
        reply(cached, "two"),
        reply(cached, &"x".repeat(20_000)),
        reply(cached, "four"),
        reply(cached, "five"),
    ]);
    bench.get("");
    assert_eq!(directory.files().len(), 1);
    bench.get("Cache-Control: no-cache");
    assert_eq!(directory.files().len(), 1, "of the second response alone");
    bench.get("Cache-Control: no-cache");
    assert_eq!(directory.files().len(), 0, "the third is too large");
    bench.get("Cache-Control: no-cache");
    let [file] = &directory.files()[..] else { panic!("one file") };
    // A file cannot replace a directory.
    std::fs::remove_file(file).unwrap();
    std::fs::create_dir(file).unwrap();
    bench.get("Cache-Control: no-cache");
    directory.wait_until_idle();
    assert_eq!((directory.disks()[0].usage().0, bench.seen().len()), (0, 5));
    // The part that was written is gone too.
    assert_eq!(std::fs::read_dir(&directory.0).unwrap().count(), 1);
}

// A key has at most 64 files, and a lookup reads the latest 16.
#[test]
fn files_of_one_key_have_a_bound() {
    let directory = CacheDirectory::new("variants");
    let mut bench = directory.bench(json!({}));
    bench.replies([reply("Cache-Control: max-age=60 | Vary: Accept-Language", "content")]);
    for number in 0..70 {
        bench.get(&format!("Accept-Language: {number}"));
        directory.wait_until_idle();
    }
    assert_eq!(directory.files().len(), 64);
    // The same directory, with another memory.
    let mut other = directory.bench(json!({}));
    other.replies([reply("Cache-Control: no-store", "other")]);
    for (number, want) in [(69, "content"), (54, "content"), (53, "other"), (0, "other")] {
        assert_eq!(other.get(&format!("Accept-Language: {number}")).text(), want, "{number}");
    }
}

// The admin API removes the files of responses that are no longer in memory.
#[test]
fn purging_files() {
    let directory = CacheDirectory::new("purge");
    let mut bench = directory.bench(json!({}));
    bench.replies([
        reply("Cache-Control: max-age=60 | Cache-Tag: purged-tag", "x"),
        reply("Cache-Control: max-age=60", "y"),
    ]);
    bench.send(&request("/a", ""));
    bench.send(&request("/b", ""));
    directory.wait_until_idle();
    directory.end(bench);
    let bench = directory.bench(json!({}));
    directory.wait_until_idle();
    let purged = bench.purge(Some(&directory), &Purge::Tag("purged-tag".to_owned()));
    assert_eq!((purged.files, directory.files().len()), (1, 1));
}

// The global option holds defaults: a handler's own members win.
#[test]
fn defaults_of_all_handlers() {
    let registry = registry(&Arc::default());
    let read = |app: Value, handler: Value| {
        let mut build = Build::new(&registry);
        build.set_app("cache", app);
        config::read(&handler, &mut build).map(|rules| (rules.storing.ttl, rules.name))
    };
    let app = json!({ "ttl": 60_000_000_000_i64, "cache_name": "all" });
    let minute = Duration::from_secs(60);
    assert_eq!(read(app.clone(), json!({ "handler": "cache" })), Ok((minute, "all".to_owned())));
    assert_eq!(read(app, json!({ "handler": "cache", "cache_name": "own" })), Ok((minute, "own".to_owned())));
    assert_eq!(read(json!({}), json!({ "handler": "cache" })), Ok((2 * minute, "Causeway".to_owned())));
    assert!(read(json!({ "ttl": "x" }), json!({ "handler": "cache" })).is_err());
}

#[test]
fn bad_configurations_name_the_place() {
    let script = Arc::new(Script::default());
    for (member, value, want) in [
        ("ttl", json!("x"), "ttl"),
        ("allowed_http_verbs", json!(["POST"]), "allowed_http_verbs: found 'POST', expected GET or HEAD"),
        ("mode", json!("bypass"), "mode: found 'bypass'"),
        ("cache_name", json!("\u{e9}"), "cache_name"),
        ("redis", json!({ "url": "x" }), "redis: found 'redis', expected nothing: this is not supported"),
        ("key", json!({ "headers": ["a b"] }), "key: found 'a b'"),
        ("regex", json!({ "exclude": "(" }), "regex.exclude"),
        (
            "max_cacheable_body_bytes",
            json!((32 << 20) + 1),
            "max_cacheable_body_bytes: found '33554433', expected at most 33554432, a quarter of 'memory'",
        ),
        (
            "simplefs",
            json!({ "path": "/dev/null/x" }),
            "simplefs.path: found '/dev/null/x', expected a directory that can be written to",
        ),
        ("simplefs", json!({ "path": "" }), "simplefs.path"),
        ("x", json!(1), "unknown field `x`"),
    ] {
        let routes = json!([{ "handle": [{ "handler": "cache", member: value }] }]);
        let error = Kit::build(&registry(&script), &routes, &json!([])).err().expect("it is refused").to_string();
        assert!(error.contains(want), "{error}");
    }
}

// The admin API removes responses by URI, by a prefix of it, and by the tags of `Surrogate-Key` and `Cache-Tag`.
#[test]
fn purging() {
    let mut bench = bench(json!({ "headers": ["X-A"] }));
    let get = |bench: &mut Bench, path: &str| {
        bench.send(&Request::get(path).without("Host").field("Host", "purge.example").field("X-A", "1"));
    };
    let paths = ["/a", "/a?b", "/ab", "/c"];
    let uri = |path: &str| format!("http://purge.example{path}");
    let fill = |bench: &mut Bench| {
        bench.purge(None, &Purge::Prefix(uri("")));
        for (path, tags) in paths.iter().zip(["one two", "two", "", ""]) {
            bench.replies([reply(
                &format!("Cache-Control: max-age=60 | Surrogate-Key: {tags} | Cache-Tag: x, t{tags}"),
                "x",
            )]);
            get(bench, path);
        }
        bench.seen();
    };
    for (which, purged, left) in [
        (Purge::Uri(uri("/a")), 1, &["/a?b", "/ab", "/c"][..]),
        (Purge::Uri(uri("/")), 0, &paths),
        // RFC 9110 §4.2.3: scheme and host are case-insensitive.
        (Purge::Uri("HTTP://Purge.Example/a?b".to_owned()), 1, &["/a", "/ab", "/c"]),
        (Purge::Uri("http://purge.example/A".to_owned()), 0, &paths),
        (Purge::Prefix("http://PURGE.exam".to_owned()), 4, &[]),
        (Purge::Prefix(uri("/a")), 3, &["/c"]),
        (Purge::Prefix(uri("")), 4, &[]),
        (Purge::Tag("two".to_owned()), 2, &["/ab", "/c"]),
        (Purge::Tag("ttwo".to_owned()), 1, &["/a", "/ab", "/c"]),
        (Purge::Tag("tw".to_owned()), 0, &paths),
    ] {
        fill(&mut bench);
        assert_eq!(bench.purge(None, &which).responses, purged, "{which:?}");
        let is_left = |path: &&&str| {
            get(&mut bench, path);
            bench.seen().is_empty()
        };
        let found: Vec<_> = paths.iter().filter(is_left).copied().collect();
        assert_eq!(found, left, "{which:?}");
    }
    assert!(usage().responses > 0);
}
