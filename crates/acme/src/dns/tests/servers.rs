//! Zones, propagation and updates against a local DNS server.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use causeway_dns::query::{QueryError, exchange_within, question};
use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::tsig::TsigAlgorithm;
use hickory_proto::rr::rdata::{A, CNAME, NS, SOA, TXT};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType, TSigResponseContext, TSigner};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};

use super::*;
use crate::dns::provider::Work;

/// Binds a port that is free for UDP and for TCP.
async fn sockets() -> (SocketAddr, UdpSocket, TcpListener) {
    loop {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        if let Ok(udp) = UdpSocket::bind(address).await {
            return (address, udp, tcp);
        }
    }
}

/// A port on which nothing listens.
pub(in crate::dns) async fn unused_port() -> u16 {
    sockets().await.0.port()
}

/// Starts a DNS server on UDP and TCP that sends the bytes that `answer` returns; `None`: nothing.
pub(in crate::dns) async fn server(
    answer: impl Fn(&[u8], bool) -> Option<Vec<u8>> + Send + Sync + 'static,
) -> SocketAddr {
    let answer = Arc::new(answer);
    let (address, udp, tcp) = sockets().await;
    let over_udp = Arc::clone(&answer);
    tokio::spawn(async move {
        let mut bytes = [0; 2048];
        while let Ok((length, client)) = udp.recv_from(&mut bytes).await {
            if let Some(answer) = over_udp(&bytes[..length], false) {
                udp.send_to(&answer, client).await.unwrap();
            }
        }
    });
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = tcp.accept().await {
            let length = stream.read_u16().await.unwrap();
            let mut bytes = vec![0; length.into()];
            stream.read_exact(&mut bytes).await.unwrap();
            if let Some(answer) = answer(&bytes, true) {
                stream.write_u16(u16::try_from(answer.len()).unwrap()).await.unwrap();
                stream.write_all(&answer).await.unwrap();
            }
        }
    });
    address
}

fn name(text: &str) -> Name {
    absolute(text).unwrap()
}

fn reply(request: &Message, code: ResponseCode, answers: Vec<Record>) -> Vec<u8> {
    let mut message = Message::response(request.id, request.op_code);
    message.metadata.response_code = code;
    message.queries.clone_from(&request.queries);
    message.answers = answers;
    message.to_vec().unwrap()
}

/// Answers like the resolver of a world with the zone `example.com`, and an alias into the zone `other.example`.
pub(in crate::dns) fn world(request: &[u8], _: bool) -> Option<Vec<u8>> {
    let request = Message::from_vec(request).unwrap();
    let query = &request.queries[0];
    let text = query.name().to_ascii();
    let own = |data: RData| vec![Record::from_rdata(query.name().clone(), 60, data)];
    let soa = || RData::SOA(SOA::new(name("ns.example.com"), name("root.example.com"), 1, 60, 60, 60, 60));
    let answers = match (&*text, query.query_type()) {
        ("example.com." | "other.example.", RecordType::SOA) => own(soa()),
        ("example.com.", RecordType::NS) => own(RData::NS(NS(name("ns.example.com")))),
        ("ns.example.com.", RecordType::A) => own(RData::A(A::new(192, 0, 2, 53))),
        ("_acme-challenge.alias.example.com.", RecordType::CNAME) => own(RData::CNAME(CNAME(name("a.other.example")))),
        // Its own alias leads to another one; two that lead to each other lead nowhere.
        ("_acme-challenge.twice.example.com.", RecordType::CNAME) => {
            own(RData::CNAME(CNAME(name("_acme-challenge.alias.example.com"))))
        }
        ("_acme-challenge.loop.example.com.", RecordType::CNAME) => own(RData::CNAME(CNAME(query.name().clone()))),
        // A resolver adds the SOA record of the target's zone here.
        ("_acme-challenge.alias.example.com.", RecordType::SOA) => {
            let mut answers = own(RData::CNAME(CNAME(name("other.example"))));
            answers.push(Record::from_rdata(name("other.example"), 60, soa()));
            answers
        }
        // Two values, and one in two parts.
        ("_acme-challenge.example.com." | "a.other.example.", RecordType::TXT) => {
            let mut answers = own(RData::TXT(TXT::new(vec!["another".to_owned()])));
            answers.extend(own(RData::TXT(TXT::new(vec!["va".to_owned(), "lue".to_owned()]))));
            answers
        }
        ("refused.example.net.", _) => return Some(reply(&request, ResponseCode::Refused, Vec::new())),
        _ => Vec::new(),
    };
    let code = if answers.is_empty() && text.starts_with('n') { ResponseCode::NXDomain } else { ResponseCode::NoError };
    Some(reply(&request, code, answers))
}

// RFC 1034 §4.2.1: a zone's apex has an SOA record. One after a CNAME record belongs to another zone.
#[tokio::test]
async fn zones() {
    let resolvers = Resolvers::new(&[server(world).await.to_string()]).await.unwrap();
    for (at, want) in [
        ("_acme-challenge.www.example.com", "example.com."),
        ("example.com", "example.com."),
        ("nx.other.example", "other.example."),
        ("_acme-challenge.alias.example.com", "example.com."),
        ("a.test", "found no zone (SOA record) for a.test."),
        ("refused.example.net", "a resolver answered Query Refused for refused.example.net."),
    ] {
        let zone = resolvers.zone(&name(at)).await;
        assert_eq!(zone.map_or_else(|error| error.to_string(), |zone| zone.to_ascii()), want, "{at}");
    }
}

#[tokio::test]
async fn server_names() {
    for (text, want) in [
        ("192.0.2.1", "192.0.2.1:53"),
        ("192.0.2.1:5353", "192.0.2.1:5353"),
        ("2001:db8::1", "[2001:db8::1]:53"),
        ("[2001:db8::1]", "[2001:db8::1]:53"),
        ("[2001:db8::1]:5353", "[2001:db8::1]:5353"),
        ("localhost:x", "found 'localhost:x', expected a DNS server's address such as 192.0.2.1:53"),
    ] {
        let addresses = zone::server_addresses(text).await;
        let shown = addresses.map_or_else(|error| error.to_string(), |addresses| addresses[0].to_string());
        assert_eq!(shown, want, "{text}");
    }
}

// RFC 8555 §8.4: the authority follows aliases and accepts any of several values.
#[tokio::test]
async fn visible_records() {
    let servers = [server(world).await.to_string()];
    let resolvers = Resolvers::new(&servers).await.unwrap();
    for at in ["_acme-challenge.example.com", "_acme-challenge.alias.example.com", "_acme-challenge.twice.example.com"]
    {
        propagation::wait(&resolvers, &name(at), "value", Duration::from_millis(10)).await.unwrap();
        let hidden = propagation::wait(&resolvers, &name(at), "val", Duration::from_millis(10)).await.unwrap_err();
        assert_eq!(hidden.to_string(), "the TXT record was not visible after 0.01 s");
    }
    let refused = name("refused.example.net");
    let hidden = propagation::wait(&resolvers, &refused, "value", Duration::from_millis(10)).await.unwrap_err();
    assert!(hidden.to_string().contains("Query Refused for refused.example.net."), "{hidden}");
    let circle = name("_acme-challenge.loop.example.com");
    propagation::wait(&resolvers, &circle, "value", Duration::from_millis(10)).await.unwrap_err();
}

// RFC 1912 §2.8: of the servers of a zone one may be lame, which refuses. The authority queries another one then, and
// so do we.
#[tokio::test]
async fn a_lame_server_hides_no_record() {
    let lame =
        server(|request, _| Some(reply(&Message::from_vec(request).unwrap(), ResponseCode::Refused, Vec::new())));
    let servers = [server(world).await.to_string(), lame.await.to_string()];
    let reversed = [servers[1].clone(), servers[0].clone()];
    for servers in [servers, reversed] {
        let resolvers = Resolvers::new(&servers).await.unwrap();
        let at = name("_acme-challenge.example.com");
        propagation::wait(&resolvers, &at, "value", Duration::from_millis(10)).await.unwrap();
    }
}

// RFC 1035 §4.2.1, RFC 5452 §9.1: truncation leads to TCP, and answers to other questions are ignored.
#[tokio::test]
async fn transports() {
    let sent = question(&name("example.com"), RecordType::TXT).to_vec().unwrap();
    let timeout = Duration::from_millis(200);
    let answering = |change: fn(&mut Message, bool)| {
        server(move |request, is_tcp| {
            let mut message = Message::from_vec(request).unwrap();
            message.metadata.message_type = MessageType::Response;
            change(&mut message, is_tcp);
            Some(message.to_vec().unwrap())
        })
    };
    let truncating = answering(|message, is_tcp| message.metadata.truncation = !is_tcp).await;
    assert!(!exchange_within(truncating, &sent, timeout).await.unwrap().0.truncation);
    let forge: [fn(&mut Message, bool); 3] = [
        |message, is_tcp| message.metadata.id ^= u16::from(!is_tcp),
        |message, is_tcp| {
            if !is_tcp {
                message.queries[0].set_name(Name::root());
            }
        },
        |message, is_tcp| {
            if !is_tcp {
                message.queries.clear();
            }
        },
    ];
    for forge in forge {
        // Ignored over UDP, so TCP answers.
        let address = answering(forge).await;
        assert!(exchange_within(address, &sent, timeout).await.is_ok());
    }
    let always: fn(&mut Message, bool) = |message, _| message.metadata.id ^= 1;
    let outcome = exchange_within(answering(always).await, &sent, timeout).await;
    assert!(matches!(outcome, Err(QueryError::Malformed)));
    let garbage = server(|_, is_tcp| is_tcp.then(|| vec![1, 2, 3])).await;
    assert!(matches!(exchange_within(garbage, &sent, timeout).await, Err(QueryError::Malformed)));
    let silent = server(|_, _| None).await;
    let outcome = exchange_within(silent, &sent, timeout).await;
    assert!(matches!(outcome, Err(QueryError::Timeout | QueryError::Io(_))), "{outcome:?}");
}

const KEY: &[u8] = b"a key of tests";

fn signer(key: &[u8]) -> TSigner {
    TSigner::new(key.to_vec(), TsigAlgorithm::HmacSha512, name("key.example"), 300).unwrap()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Answers an update that is signed with [`KEY`]; `reply_key` signs the answer.
fn updating(
    reply_key: Option<&'static [u8]>,
    log: Arc<Mutex<Vec<Message>>>,
) -> impl Fn(&[u8], bool) -> Option<Vec<u8>> {
    move |sent, _| {
        let request = Message::from_vec(sent).unwrap();
        let Ok((mac, ..)) = signer(KEY).verify_message_byte(sent, None, true) else {
            return Some(reply(&request, ResponseCode::NotAuth, Vec::new()));
        };
        log.lock().unwrap().push(request.clone());
        let mut answer = Message::response(request.id, OpCode::Update);
        answer.queries.clone_from(&request.queries);
        if let Some(key) = reply_key {
            let context = TSigResponseContext::new(request.id, now(), signer(key), mac, None);
            let signature = context.sign(&answer.to_vec().unwrap()).unwrap();
            answer.set_signature(signature);
        }
        Some(answer.to_vec().unwrap())
    }
}

fn rfc2136(server: SocketAddr, key: &[u8]) -> rfc2136::Rfc2136 {
    let settings = json!({
        "key_name": "key.example", "key_alg": "HMAC-SHA512.", "key": BASE64_STANDARD.encode(key),
        "server": server.to_string(),
    });
    rfc2136::Rfc2136::new(settings.as_object().unwrap().clone()).unwrap()
}

// RFC 2136 §2.5.1 and §2.5.4: a record is added to its set, and deleted by its value. RFC 8945 §5.3: both sides sign.
#[tokio::test]
async fn signed_updates() {
    let http = HttpClient::new(&[]).unwrap();
    let log = Arc::new(Mutex::new(Vec::new()));
    let address = server(updating(Some(KEY), Arc::clone(&log))).await;
    let provider = rfc2136(address, KEY);
    let receipt = provider.add(&http, &record()).await.unwrap();
    provider.remove(&http, &record(), &receipt).await.unwrap();
    let log = log.lock().unwrap().clone();
    for (message, class, ttl) in [(&log[0], DNSClass::IN, 60), (&log[1], DNSClass::NONE, 0)] {
        assert_eq!((message.op_code, message.queries[0].name()), (OpCode::Update, &name("example.com")));
        let [update] = &message.authorities[..] else { panic!("{message:?}") };
        assert_eq!((&update.name, update.dns_class, update.ttl), (&name(&record().name), class, ttl));
        assert_eq!(update.data, RData::TXT(TXT::new(vec!["a-text_1".to_owned()])));
    }
    let error = rfc2136(address, b"another").add(&http, &record()).await.unwrap_err().to_string();
    assert!(error.starts_with("the DNS server answered Not authorized (check key_name"), "{error}");
    for reply_key in [None, Some(&b"another"[..])] {
        let forging = server(updating(reply_key, Arc::default())).await;
        assert!(matches!(rfc2136(forging, KEY).add(&http, &record()).await, Err(ProviderError::NoUsableAnswer(_))));
    }
    let outside = TxtRecord { zone: "other.example".to_owned(), ..record() };
    assert!(matches!(rfc2136(address, KEY).add(&http, &outside).await, Err(ProviderError::NoZone(_))));
}

#[test]
fn keys() {
    let settings = |key: &str, value: &str| {
        let mut all = json!({ "key_name": "k", "key_alg": "hmac-sha256", "key": "AAAA", "server": "192.0.2.1" });
        all[key] = value.into();
        DnsProvider::new("rfc2136", all.as_object().unwrap().clone()).map_err(|error| error.to_string())
    };
    assert!(settings("key", "AAAA").is_ok());
    for (key, value, want) in [
        ("key_alg", "hmac-md5", "key_alg: found 'hmac-md5', expected hmac-sha256, hmac-sha384 or hmac-sha512"),
        ("key", "a secret", "key: found 'a key of another form', expected base64"),
        ("key_name", "a..b", "key_name: found 'a..b', expected a DNS name"),
    ] {
        assert_eq!(settings(key, value).unwrap_err(), want);
    }
}

/// A provider that records its steps.
struct Steps(Arc<Mutex<Vec<String>>>);

impl Provider for Steps {
    fn name(&self) -> &'static str {
        "steps"
    }

    fn add<'a>(&'a self, _: &'a HttpClient, record: &'a TxtRecord) -> Work<'a, Receipt> {
        Box::pin(async move {
            self.0.lock().unwrap().push(format!("add {} {} {:?}", record.name, record.zone, record.ttl));
            Ok(receipt("r"))
        })
    }

    fn remove<'a>(&'a self, _: &'a HttpClient, record: &'a TxtRecord, receipt: &'a Receipt) -> Work<'a, ()> {
        Box::pin(async move {
            self.0.lock().unwrap().push(format!("remove {} {}", record.name, receipt.0));
            Err(ProviderError::Unexpected("removal, which is only logged"))
        })
    }
}

// RFC 8555 §8.4: the name of the record. It is removed after success, failure and cancellation.
#[tokio::test]
async fn presented_and_removed() {
    // The zone's own servers have no address.
    let resolver = server(|request, is_tcp| {
        let message = Message::from_vec(request).unwrap();
        match &*message.queries[0].name().to_ascii() {
            "ns.example.com." => Some(reply(&message, ResponseCode::NoError, Vec::new())),
            _ => world(request, is_tcp),
        }
    });
    let address = resolver.await.to_string();
    let challenge = |steps: &Arc<Mutex<Vec<String>>>| DnsChallenge {
        provider: DnsProvider(Arc::new(Steps(Arc::clone(steps)))),
        ttl: Some(Duration::from_secs(90)),
        propagation_delay: Duration::ZERO,
        propagation_timeout: Some(Duration::from_millis(10)),
        resolvers: vec![address.clone()],
        override_domain: None,
    };
    let taken = |steps: &Arc<Mutex<Vec<String>>>| std::mem::take(&mut *steps.lock().unwrap());
    let steps = Arc::default();
    let added = "add _acme-challenge.example.com example.com Some(90)".to_owned();
    let removed = "remove _acme-challenge.example.com r".to_owned();
    for name in ["example.com", "*.example.com"] {
        let presented = challenge(&steps).present(name, "value".to_owned()).await.unwrap();
        assert_eq!(taken(&steps), [added.as_str()]);
        presented.remove().await;
        assert_eq!(taken(&steps), [removed.as_str()]);
    }
    let hidden = challenge(&steps).present("example.com", "hidden".to_owned()).await.unwrap_err().to_string();
    assert_eq!(hidden, "dns-01: _acme-challenge.example.com: the TXT record was not visible after 0.01 s");
    assert_eq!(taken(&steps), [added.clone(), removed.clone()]);
    drop(challenge(&steps).present("example.com", "value".to_owned()).await.unwrap());
    while steps.lock().unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(taken(&steps), [added, removed]);
    let elsewhere = DnsChallenge {
        override_domain: Some("delegated.other.example.".to_owned()),
        propagation_timeout: None,
        ..challenge(&steps)
    };
    elsewhere.present("example.com", "value".to_owned()).await.unwrap().remove().await;
    let want = ["add delegated.other.example other.example Some(90)", "remove delegated.other.example r"];
    assert_eq!(taken(&steps), want);
}
