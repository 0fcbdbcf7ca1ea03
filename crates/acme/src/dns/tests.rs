//! The providers against local doubles: their requests as the interfaces' documentation has them, and their errors.

mod answers;
pub(super) mod servers;

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use serde_json::json;

use super::provider::{Provider, ProviderError, Receipt, TxtRecord};
use super::*;
use crate::http::double::{Double, Received};

fn record() -> TxtRecord {
    TxtRecord {
        name: "_acme-challenge.www.example.com".to_owned(),
        zone: "example.com".to_owned(),
        value: "a-text_1".to_owned(),
        ttl: None,
    }
}

/// Reads the settings of a provider and sets the URL of its interface.
macro_rules! at {
    ($kind:ty, $url:expr, $settings:tt) => {{
        let mut provider: $kind = provider::read(json!($settings).as_object().unwrap().clone()).unwrap();
        provider.base = $url.to_owned().into();
        Box::new(provider)
    }};
}

/// A provider whose interface is at `url`.
fn provider(name: &str, url: &str) -> Box<dyn Provider> {
    match name {
        "cloudflare" => at!(cloudflare::Cloudflare, url, { "api_token": "secret", "zone_token": "zones" }),
        "digitalocean" => at!(digitalocean::DigitalOcean, url, { "auth_token": "secret" }),
        "duckdns" => at!(duckdns::DuckDns, url, { "api_token": "secret" }),
        "gandi" => at!(gandi::Gandi, url, { "bearer_token": "secret" }),
        "hetzner" => at!(hetzner::Hetzner, url, { "api_token": "secret" }),
        "porkbun" => at!(porkbun::Porkbun, url, { "api_key": "key", "api_secret_key": "secret" }),
        "route53" => at!(route53::Route53, url, {
            "access_key_id": "ID", "secret_access_key": "secret", "session_token": "session",
        }),
        "acmedns" => {
            let settings = json!({ "username": "u", "password": "secret", "subdomain": "s", "server_url": url });
            Box::new(acmedns::AcmeDns::new(settings.as_object().unwrap().clone()).unwrap())
        }
        name => panic!("{name}"),
    }
}

/// Adds the record and removes it again. Returns the requests.
async fn exchange(name: &str, record: &TxtRecord, answers: &[(&str, &str)]) -> Vec<Received> {
    let double = Double::new(answers).await;
    let (provider, http) = (provider(name, &double.url), HttpClient::new(&[]).unwrap());
    let receipt = provider.add(&http, record).await.unwrap_or_else(|error| panic!("{name}: {error}"));
    provider.remove(&http, record, &receipt).await.unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(provider.name(), name);
    double.received()
}

/// Lines and bodies, with the header that authenticates.
fn shown(received: &[Received], header: &str) -> Vec<String> {
    let one = |request: &Received| format!("{} [{}] {}", request.line, request.header(header), request.body);
    received.iter().map(one).collect()
}

// https://developers.cloudflare.com/api/resources/dns/subresources/records/
#[tokio::test]
async fn cloudflare() {
    let answers = [
        ("200 OK", r#"{"success":true,"result":[{"id":"z1","name":"example.com"}]}"#),
        ("200 OK", r#"{"success":true,"result":{"id":"r1"}}"#),
        ("200 OK", r#"{"success":true,"result":{"id":"r1"}}"#),
    ];
    let new = r#"{"type":"TXT","name":"_acme-challenge.www.example.com","content":"\"a-text_1\"","ttl":1}"#;
    assert_eq!(
        shown(&exchange("cloudflare", &record(), &answers).await, "authorization"),
        [
            "GET /zones?name=example.com [Bearer zones] ".to_owned(),
            format!("POST /zones/z1/dns_records [Bearer secret] {new}"),
            "DELETE /zones/z1/dns_records/r1 [Bearer secret] ".to_owned(),
        ]
    );
}

// https://docs.digitalocean.com/reference/api/ (Domain Records)
#[tokio::test]
async fn digitalocean() {
    let answers = [("201 Created", r#"{"domain_record":{"id":7,"type":"TXT"}}"#), ("204 No Content", "")];
    let new = r#"{"type":"TXT","name":"_acme-challenge.www","data":"a-text_1","ttl":30}"#;
    assert_eq!(
        shown(&exchange("digitalocean", &record(), &answers).await, "authorization"),
        [
            format!("POST /domains/example.com/records [Bearer secret] {new}"),
            "DELETE /domains/example.com/records/7 [Bearer secret] ".to_owned(),
        ]
    );
}

// https://docs.hetzner.cloud/reference/cloud (Zone RRSet Actions)
#[tokio::test]
async fn hetzner() {
    let answers = [("201 Created", r#"{"action":{"id":1}}"#), ("201 Created", r#"{"action":{"id":2}}"#)];
    let set = "/zones/example.com/rrsets/_acme-challenge.www/TXT/actions";
    assert_eq!(
        shown(&exchange("hetzner", &record(), &answers).await, "authorization"),
        [
            format!(r#"POST {set}/add_records [Bearer secret] {{"records":[{{"value":"\"a-text_1\""}}],"ttl":60}}"#),
            format!(r#"POST {set}/remove_records [Bearer secret] {{"records":[{{"value":"\"a-text_1\""}}]}}"#),
        ]
    );
}

// https://porkbun.com/api/json/v3/documentation (DNS Create Record): the keys are in the body.
#[tokio::test]
async fn porkbun() {
    let answers = [("200 OK", r#"{"status":"SUCCESS","id":106926659}"#), ("200 OK", r#"{"status":"SUCCESS"}"#)];
    let keys = r#""apikey":"key","secretapikey":"secret"}"#;
    let new = r#"{"type":"TXT","name":"_acme-challenge.www","content":"a-text_1","ttl":"600","#;
    assert_eq!(
        shown(&exchange("porkbun", &record(), &answers).await, "content-type"),
        [
            format!("POST /dns/create/example.com [application/json] {new}{keys}"),
            format!("POST /dns/delete/example.com/106926659 [application/json] {{{keys}"),
        ]
    );
}

// https://api.gandi.net/docs/livedns/: PUT replaces all values, so other orders' values are kept.
#[tokio::test]
async fn gandi() {
    let other = r#"{"rrset_values":["\"other\"","\"a-text_1\""],"rrset_ttl":300}"#;
    let answers = [
        ("404 Not Found", r#"{"message":"Can't find the DNS record"}"#),
        ("201 Created", r#"{"message":"DNS Record Created"}"#),
        ("200 OK", other),
        ("201 Created", "{}"),
    ];
    let set = "/domains/example.com/records/_acme-challenge.www/TXT [Bearer secret]";
    assert_eq!(
        shown(&exchange("gandi", &record(), &answers).await, "authorization"),
        [
            format!("GET {set} "),
            format!(r#"PUT {set} {{"rrset_values":["\"a-text_1\""],"rrset_ttl":300}}"#),
            format!("GET {set} "),
            format!(r#"PUT {set} {{"rrset_values":["\"other\""],"rrset_ttl":300}}"#),
        ]
    );
    let only = r#"{"rrset_values":["\"a-text_1\""]}"#;
    let answers =
        [("200 OK", r#"{"rrset_values":[]}"#), ("201 Created", "{}"), ("200 OK", only), ("204 No Content", "")];
    let lines = exchange("gandi", &record(), &answers).await;
    assert!(lines[3].line.starts_with("DELETE "), "{lines:?}");
}

// https://www.duckdns.org/spec.jsp
#[tokio::test]
async fn duckdns() {
    let record = TxtRecord { name: "_acme-challenge.www.mine.duckdns.org".to_owned(), ..record() };
    let received = exchange("duckdns", &record, &[("200 OK", "OK"), ("200 OK", "OK")]).await;
    assert_eq!(
        shown(&received, "host").iter().map(|line| line.split(' ').nth(1).unwrap()).collect::<Vec<_>>(),
        ["/update?domains=mine&token=secret&txt=a-text_1", "/update?domains=mine&token=secret&txt=a-text_1&clear=true",]
    );
    let double = Double::new(&[("200 OK", "KO")]).await;
    let (duck, http) = (provider("duckdns", &double.url), HttpClient::new(&[]).unwrap());
    assert!(matches!(duck.add(&http, &record).await, Err(ProviderError::NoZone(zone)) if zone == "mine.duckdns.org"));
    let elsewhere = TxtRecord { name: "_acme-challenge.example.com".to_owned(), ..record };
    assert!(matches!(duck.add(&http, &elsewhere).await, Err(ProviderError::NoZone(_))));
}

// https://github.com/joohoi/acme-dns#update-endpoint; nothing is removed.
#[tokio::test]
async fn acmedns() {
    let received = exchange("acmedns", &record(), &[("200 OK", r#"{"txt":"a-text_1"}"#)]).await;
    assert_eq!(shown(&received, "x-api-key"), [r#"POST /update [secret] {"subdomain":"s","txt":"a-text_1"}"#]);
    assert_eq!(received[0].header("x-api-user"), "u");
    // An account for each name, as its own client's storage file has them.
    let account = json!({ "username": "u", "password": "p", "fulldomain": "f", "subdomain": "s", "server_url": "x" });
    let many = json!({ "www.example.com": account });
    let path = std::env::temp_dir().join(format!("causeway-acmedns-{}.json", std::process::id()));
    std::fs::write(&path, many.to_string()).unwrap();
    let http = HttpClient::new(&[]).unwrap();
    for settings in [json!({ "config": many }), json!({ "config_file_path": path })] {
        let acmedns = acmedns::AcmeDns::new(settings.as_object().unwrap().clone()).unwrap();
        let other = TxtRecord { name: "_acme-challenge.b.example.com".to_owned(), ..record() };
        assert!(matches!(acmedns.add(&http, &other).await, Err(ProviderError::NoAccount(_))));
        assert!(matches!(acmedns.add(&http, &record()).await, Err(ProviderError::Http(_))));
    }
    std::fs::remove_file(&path).unwrap();
    for (settings, want) in [
        (json!({ "username": "u" }), "password: found 'none', expected username, password, subdomain and server_url"),
        (
            json!({ "username": "u", "password": "", "subdomain": "s", "server_url": "x" }),
            "password: found '', expected username, password, subdomain and server_url",
        ),
        (
            json!({ "config": { "www.example.com": { "username": "u" } } }),
            "password: found 'none', expected username, password, subdomain and server_url",
        ),
        (json!({ "config": many, "username": "u" }), "config: found 'other settings too', expected only this one"),
    ] {
        let error = DnsProvider::new("acmedns", settings.as_object().unwrap().clone()).unwrap_err();
        assert_eq!(error.to_string(), want);
    }
    let missing = json!({ "config_file_path": "/nowhere" });
    let error = DnsProvider::new("acmedns", missing.as_object().unwrap().clone()).unwrap_err();
    assert_eq!((error.setting, &*error.found), ("config_file_path", "/nowhere"));
}

// Duck DNS: "a domain has one TXT record". acme-dns keeps the last two values of an account, which names may share.
// Orders of different names must then not replace the values of each other, so they take turns.
#[test]
fn names_with_one_text_take_turns() {
    let at = |name: &str| TxtRecord { name: format!("_acme-challenge.{name}"), ..record() };
    for (provider, one, other, has_one_text) in [
        (provider("duckdns", ""), "mine.duckdns.org", "www.mine.duckdns.org", true),
        (provider("duckdns", ""), "mine.duckdns.org", "yours.duckdns.org", false),
        (provider("acmedns", "https://a.example"), "a.example", "b.example", true),
        (provider("cloudflare", ""), "a.example", "b.example", false),
    ] {
        let name = provider.name();
        assert_eq!(provider.lock_name(&at(one)) == provider.lock_name(&at(other)), has_one_text, "{name}");
        assert_eq!(provider.keeps_one_value(), name != "cloudflare");
    }
    // The same server, of two issuers.
    let lock = |url: &str| provider("acmedns", url).lock_name(&record());
    assert_eq!(lock("https://a.example/"), lock("https://a.example"));
}

/// A provider that counts the records that were added.
struct Counting(Arc<AtomicUsize>);

impl Provider for Counting {
    fn name(&self) -> &'static str {
        "counting"
    }

    fn add<'a>(&'a self, _: &'a HttpClient, _: &'a TxtRecord) -> provider::Work<'a, Receipt> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Ok(Receipt::default()) })
    }

    fn remove<'a>(&'a self, _: &'a HttpClient, _: &'a TxtRecord, _: &'a Receipt) -> provider::Work<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn needs_zone(&self) -> bool {
        false
    }

    fn keeps_one_value(&self) -> bool {
        true
    }
}

// Orders for one record take turns. One that is cancelled while it waits for its turn adds no record, which the next
// one would wait for.
#[tokio::test]
async fn a_cancelled_order_leaves_the_queue() {
    let added = Arc::new(AtomicUsize::new(0));
    let challenge = DnsChallenge {
        provider: DnsProvider(Arc::new(Counting(Arc::clone(&added)))),
        ttl: None,
        propagation_delay: Duration::ZERO,
        propagation_timeout: None,
        resolvers: vec!["127.0.0.1:1".to_owned()],
        override_domain: None,
    };
    let yields = || async {
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
    };
    let held = RECORD_LOCKS.lock("_acme-challenge.queue.example".to_owned()).await;
    let mut cancelled = Box::pin(challenge.present("queue.example", "a".to_owned()));
    for _ in 0..8 {
        assert!(poll_fn(|context| Poll::Ready(cancelled.as_mut().poll(context).is_pending())).await);
        tokio::task::yield_now().await;
    }
    drop(cancelled);
    drop(held);
    yields().await;
    let presented = challenge.present("queue.example", "b".to_owned()).await.unwrap();
    assert_eq!(added.load(Ordering::SeqCst), 1);
    presented.remove().await;
}

// https://docs.aws.amazon.com/Route53/latest/APIReference/: a change replaces all values, and a deletion states them.
#[tokio::test]
async fn route53() {
    let zones = "<ListHostedZonesByNameResponse><HostedZones>\
                 <HostedZone><Id>/hostedzone/ZP</Id><Name>example.com.</Name><Config><PrivateZone>true</PrivateZone></Config></HostedZone>\
                 <HostedZone><Id>/hostedzone/Z1</Id><Name>example.com.</Name><Config><PrivateZone>false</PrivateZone></Config></HostedZone>\
                 </HostedZones></ListHostedZonesByNameResponse>";
    let set = |values: &[&str]| {
        let value = |value: &&str| format!("<ResourceRecord><Value>&quot;{value}&quot;</Value></ResourceRecord>");
        let values: String = values.iter().map(value).collect();
        format!(
            "<ResourceRecordSets><ResourceRecordSet><Name>_acme-challenge.www.example.com.</Name><Type>TXT</Type>\
             <TTL>60</TTL><ResourceRecords>{values}</ResourceRecords></ResourceRecordSet></ResourceRecordSets>"
        )
    };
    let (other, both, own) = (set(&["other"]), set(&["other", "a-text_1"]), set(&["a-text_1"]));
    let changed = ("200 OK", "<ChangeInfo/>");
    let received =
        exchange("route53", &record(), &[("200 OK", zones), ("200 OK", &*other), changed, ("200 OK", &*both), changed])
            .await;
    let read = "GET /2013-04-01/hostedzone/Z1/rrset?maxitems=1&name=_acme-challenge.www.example.com&type=TXT";
    let change = "POST /2013-04-01/hostedzone/Z1/rrset/";
    let lines: Vec<_> = received.iter().map(|request| &*request.line).collect();
    let zone = "GET /2013-04-01/hostedzonesbyname?dnsname=example.com&maxitems=100";
    assert_eq!(lines, [zone, read, change, read, change]);
    for request in &received {
        let authorization = request.header("authorization");
        let scope = "/us-east-1/route53/aws4_request, SignedHeaders=host;x-amz-date;x-amz-security-token, Signature=";
        assert!(authorization.starts_with("AWS4-HMAC-SHA256 Credential=ID/") && authorization.contains(scope));
        assert_eq!(request.header("x-amz-security-token"), "session");
    }
    let values = |request: &Received| {
        let action = route53::element(&request.body, "Action").unwrap().to_owned();
        let values = request.body.split("<Value>").skip(1).map(|value| value.split('<').next().unwrap().to_owned());
        (action, values.collect::<Vec<_>>())
    };
    assert_eq!(
        values(&received[2]),
        ("UPSERT".to_owned(), vec!["&quot;other&quot;".into(), "&quot;a-text_1&quot;".into()])
    );
    assert_eq!(values(&received[4]), ("UPSERT".to_owned(), vec!["&quot;other&quot;".into()]));
    let none = ("200 OK", "<ResourceRecordSets></ResourceRecordSets>");
    let received =
        exchange("route53", &record(), &[("200 OK", zones), none, changed, ("200 OK", &*own), changed]).await;
    assert_eq!(values(&received[4]), ("DELETE".to_owned(), vec!["&quot;a-text_1&quot;".into()]));
}

#[test]
fn names_in_zones() {
    for (name, zone, want) in [
        ("_acme-challenge.a.example.com", "example.com", "_acme-challenge.a"),
        ("example.com", "example.com", "@"),
        ("_acme-challenge.example.com", "_acme-challenge.example.com", "@"),
        ("_acme-challenge.badexample.com", "example.com", "_acme-challenge.badexample.com"),
    ] {
        let record = TxtRecord { name: name.to_owned(), zone: zone.to_owned(), ..record() };
        assert_eq!(record.relative(), want, "{name} {zone}");
    }
}

#[test]
fn providers_by_name() {
    let error = DnsProvider::new("moon", Map::new()).unwrap_err().to_string();
    assert_eq!(error, format!("name: found 'moon', expected one of {}", DnsProvider::NAMES.join(", ")));
    assert!(DnsProvider::NAMES.is_sorted());
    for name in DnsProvider::NAMES {
        // Each name is valid, and each provider requires settings.
        let required = if name == "acmedns" { "username" } else { "" };
        assert_eq!(DnsProvider::new(name, Map::new()).unwrap_err().setting, required, "{name}");
    }
    let settings = json!({ "api_token": "secret" }).as_object().unwrap().clone();
    assert_eq!(format!("{:?}", DnsProvider::new("hetzner", settings).unwrap()), "DnsProvider(\"hetzner\")");
}

fn receipt(text: &str) -> Receipt {
    Receipt(text.to_owned())
}
