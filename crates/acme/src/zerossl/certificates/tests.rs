use std::sync::Arc;
use std::time::Duration;

use causeway_certs::{FileStorage, KeyKind, SharedStorage};
use serde_json::json;

use super::*;
use crate::challenge;
use crate::http::double::{Double, Received};

const NAME: &str = "zerossl.example";
const PATH: &str = "/.well-known/pki-validation/0A1B.txt";

/// A directory of its own for the storage.
fn storage(test: &str) -> (SharedStorage, std::path::PathBuf) {
    let dir = std::env::temp_dir().join(format!("causeway-zerossl-{test}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    (Arc::new(FileStorage::new(&dir)), dir)
}

fn created(name: &str, status: &str) -> String {
    let methods = json!({
        "file_validation_url_http": format!("http://{name}{PATH}"), "file_validation_url_https": "https://x",
        "file_validation_content": ["DIGEST", "sectigo.example", "abc"],
        "cname_validation_p1": "_a.example", "cname_validation_p2": "b.example",
    });
    json!({ "id": "cert/1", "type": "1", "status": status, "validation": { "other_methods": { name: methods } } })
        .to_string()
}

fn bundle() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let pem = rcgen::CertificateParams::new(vec![NAME.to_owned()]).unwrap().self_signed(&key).unwrap().pem();
    json!({ "certificate.crt": pem.trim_end(), "ca_bundle.crt": pem }).to_string()
}

async fn run(double: &Double, name: &str, test: &str) -> Result<ObtainedCertificate, String> {
    let mut issuer = ZeroSslIssuer::new("a key&more".to_owned(), Some(90));
    (issuer.base, issuer.poll) = (double.url.clone(), Duration::from_millis(1));
    let (storage, dir) = storage(test);
    let wanted = CertificateRequest { name, key: KeyKind::P256, attempt: 0, must_staple: false, replaces: None };
    let issued = obtain(&issuer, wanted, &storage).await.map_err(|error| error.to_string());
    assert!(storage.list("").unwrap().is_empty(), "the validation file has left the storage");
    let _ = std::fs::remove_dir_all(dir);
    issued
}

fn json_of(received: &Received) -> Value {
    assert_eq!(received.header("content-type"), "application/json");
    serde_json::from_str(&received.body).unwrap()
}

// ZeroSSL's documentation, "Create Certificate", "Verify Domains", "Get Certificate" and "Download Certificate
// (inline)": the methods, the paths, the access key in the query, and the bodies.
#[tokio::test]
async fn a_certificate() {
    let (pending, issued) = (created(NAME, "pending_validation"), created(NAME, "issued"));
    let draft = created(NAME, "draft");
    let bundle = bundle();
    let responses = [&draft, &pending, &pending, &issued, &bundle].map(|body| ("200 OK", &**body));
    let double = Double::new(&responses).await;
    let issued = run(&double, NAME, "a").await.unwrap();
    assert_eq!(issued.chain.matches("-----BEGIN CERTIFICATE-----").count(), 2);
    assert!(is_chain(&issued.chain) && issued.key.starts_with("-----BEGIN PRIVATE KEY-----"));
    let key = "?access_key=a%20key%26more";
    let lines = [
        format!("POST /certificates{key}"),
        format!("POST /certificates/cert%2F1/challenges{key}"),
        format!("GET /certificates/cert%2F1{key}"),
        format!("GET /certificates/cert%2F1{key}"),
        format!("GET /certificates/cert%2F1/download/return{key}"),
    ];
    assert_eq!(double.lines(), lines);
    let received = double.received();
    let body = json_of(&received[0]);
    assert_eq!(
        (&body["certificate_domains"], &body["certificate_validity_days"], &body["strict_domains"]),
        (&json!(NAME), &json!(90), &json!(1))
    );
    let request = body["certificate_csr"].as_str().unwrap();
    assert!(request.starts_with("-----BEGIN CERTIFICATE REQUEST-----\n"), "{request}");
    assert_eq!(json_of(&received[1]), json!({ "validation_method": "HTTP_CSR_HASH" }));
    assert_eq!(challenge::file(NAME, PATH), None, "the file is closed");
}

// The same page: the file has the lines of `file_validation_content`. Only requests with the name as their host get it.
#[tokio::test]
async fn the_validation_file_is_open_while_the_name_is_verified() {
    let name = "file.example";
    let (storage, dir) = storage("file");
    let object: CertificateObject = serde_json::from_str(&created(name, "draft")).unwrap();
    let open = present(&object, name, &storage).await.unwrap();
    let want = Some("DIGEST\nsectigo.example\nabc".to_owned());
    assert_eq!(challenge::file("FILE.example", PATH), want);
    assert_eq!((challenge::file("other.example", PATH), challenge::file(name, "/x")), (None, None));
    // CertMagic: other servers find it at this key.
    let stored = storage.load("zerossl/challenge_tokens/file.example.json").unwrap().unwrap();
    let stored: Value = serde_json::from_slice(&stored).unwrap();
    assert_eq!((&stored["url"], &stored["token"]), (&json!(format!("http://{name}{PATH}")), &json!(want)));
    let keys = Arc::from(vec![STORAGE_NAME.to_owned()]);
    let _shared = challenge::SharedChallenges::new(&storage, Box::new(move |_| Some(Arc::clone(&keys))));
    assert_eq!(challenge::shared_file(name, PATH).unwrap().await, want);
    assert_eq!(challenge::shared_file(name, &format!("{PATH}x")).unwrap().await, None);
    assert!(challenge::shared_file(name, "/a").is_none());
    open.close().await;
    assert!(storage.load("zerossl/challenge_tokens/file.example.json").unwrap().is_none());
    let _ = std::fs::remove_dir_all(dir);
}

// The documentation's "Errors": `success` is false, with a status of 200 in most cases; the client of Caddy accepts
// several types of `success`. A certificate that was created and not issued is cancelled.
#[tokio::test]
async fn faults() {
    let draft = created("faults.example", "draft");
    let cancelled = created("faults.example", "cancelled");
    let issued = created("faults.example", "issued");
    let no_file = json!({ "id": "1", "validation": { "other_methods": {} } }).to_string();
    let elsewhere = draft.replace("/.well-known/", "/elsewhere/");
    let other_host = json!({ "id": "cert/1", "status": "issued" }).to_string();
    let refusal = r#"{"success":false,"error":{"code":2831,"type":"invalid_certificate_csr"}}"#;
    let unverified = r#"{"success":0,"error":{"code":0,"type":"domain_control_validation_failed","details":
        {"faults.example":{"http://faults.example/x":{"file_found":0,"error":true,"error_slug":"not_found","error_info":"the file\n was not found"}}}}}"#;
    let cancel = ("200 OK", r#"{"success":1}"#);
    for (why, responses, want, requests) in [
        ("refused", vec![("200 OK", refusal)], "the step 'create' failed: error 2831: invalid_certificate_csr", 1),
        ("no JSON", vec![("502 Bad Gateway", "<html>")], "the step 'create' failed: found the status 502", 1),
        (
            "another status",
            vec![("500 Internal Server Error", "{}")],
            "the step 'create' failed: found the status 500",
            1,
        ),
        ("garbage", vec![("200 OK", "\u{0}\u{1}")], "the step 'create' failed: found the status 200", 1),
        ("another type", vec![("200 OK", "[]")], "the step 'create' failed: ", 1),
        ("no reason", vec![("200 OK", r#"{"success":"no"}"#)], "the step 'create' failed: it gave no reason", 1),
        ("no file", vec![("200 OK", &no_file), cancel], "found no validation file for faults.example", 2),
        ("another dir", vec![("200 OK", &elsewhere), cancel], "found no http URL of its validation file", 2),
        (
            "not verified",
            vec![("200 OK", &draft), ("200 OK", unverified), cancel],
            "the step 'verify' failed: error 0: domain_control_validation_failed: the file was not found",
            3,
        ),
        ("another state", vec![("200 OK", &draft), ("200 OK", &cancelled), cancel], "the certificate is cancelled", 3),
        (
            "no certificate",
            vec![("200 OK", &draft), ("200 OK", &issued), ("200 OK", r#"{"certificate.crt":"x"}"#), cancel],
            "found a certificate that is not PEM",
            4,
        ),
        ("no cancel", vec![("200 OK", &draft), ("200 OK", &cancelled), ("200 OK", refusal)], "is cancelled", 3),
        ("gone", vec![("200 OK", &draft), ("200 OK", &other_host)], "", 4),
    ] {
        let double = Double::new(&responses).await;
        let error = run(&double, "faults.example", "faults").await.map(drop).unwrap_err();
        assert!(error.contains(want) && !error.contains("a key"), "{why}: {error}");
        let lines = double.lines();
        assert_eq!(lines.len(), requests, "{why}: {lines:?}");
        if requests > 1 {
            let last = lines.last().unwrap();
            assert!(last.starts_with("POST /certificates/") && last.contains("/cancel?access_key="), "{why}: {last}");
        }
        assert_eq!(challenge::file("faults.example", PATH), None, "{why}");
    }
}

// RFC 9110 §10.2.3, with 429.
#[tokio::test]
async fn a_rate_limit_has_an_end() {
    let double = Double::new(&[("429 Too Many Requests\r\nRetry-After: 7", "{}")]).await;
    let interface = Interface { http: HttpClient::new(&[]).unwrap(), base: double.url.clone(), key: String::new() };
    let error = interface.call::<Value>("create", Method::GET, "", None).await.unwrap_err();
    assert!(error.retry_at().is_some_and(|at| at > SystemTime::now()), "{error}");
}

// An order that a reload cancels.
#[tokio::test]
async fn dropping_a_pending_certificate_cancels_it() {
    let double = Double::new(&[("200 OK", r#"{"success":1}"#)]).await;
    let interface = Interface { http: HttpClient::new(&[]).unwrap(), base: double.url.clone(), key: "k".to_owned() };
    drop(Pending { interface, id: Some("7".to_owned()) });
    let begun = std::time::Instant::now();
    while double.lines().is_empty() && begun.elapsed() < Duration::from_secs(10) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(double.lines(), ["POST /certificates/7/cancel?access_key=k"]);
}
