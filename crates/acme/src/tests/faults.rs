//! Faults of an authority at each request of an order.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use causeway_certs::{FileStorage, KeyKind, SharedStorage};
use serde_json::json;

use super::authority::{AcmeStage, InjectedFault, ScriptedAuthority};
use crate::account::storage_keys;
use crate::{AcmeError, CertificateRequest, ExternalAccount, Issuer, ObtainedCertificate, Timing, obtain};

const PAUSE: Duration = Duration::from_millis(1);

/// An authority, an empty storage, and the settings to use both.
struct FaultFixture {
    authority: ScriptedAuthority,
    issuer: Issuer,
    dir: PathBuf,
    storage: SharedStorage,
}

impl FaultFixture {
    async fn new(test: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("causeway-acme-faults-{test}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let authority = ScriptedAuthority::new().await;
        let root = dir.join("root.pem");
        fs::write(&root, &authority.root).unwrap();
        let issuer = Issuer {
            directory: authority.directory.clone(),
            roots: vec![root],
            // The order is not repeated with the other challenge.
            allows_tls_alpn01: false,
            is_distributed: false,
            timing: Timing {
                request_timeout: Duration::from_secs(1),
                retry_pause: PAUSE,
                poll_interval: PAUSE,
                download_pause: PAUSE,
                ..Timing::default()
            },
            ..Issuer::default()
        };
        let storage = Arc::new(FileStorage::new(dir.join("storage")));
        Self { authority, issuer, dir, storage }
    }

    async fn obtain(&self) -> Result<ObtainedCertificate, AcmeError> {
        let wanted = CertificateRequest {
            name: "name.example",
            key: KeyKind::P256,
            attempt: 0,
            must_staple: false,
            replaces: None,
        };
        obtain(&self.issuer, wanted, &self.storage).await
    }
}

impl Drop for FaultFixture {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.dir).unwrap();
    }
}

const RATE_LIMITED: &str = r#"{"type":"urn:ietf:params:acme:error:rateLimited","detail":"too many of them"}"#;
const INTERNAL: &str = r#"{"type":"urn:ietf:params:acme:error:serverInternal","detail":"a broken disk"}"#;
const BAD_NONCE: &str = r#"{"type":"urn:ietf:params:acme:error:badNonce","detail":"an old nonce"}"#;

/// The tries of one request.
const TRIES: usize = 3;

// RFC 8555 §6.6 and §6.7; RFC 9110 §10.2.3. A fault that lasts fails one call at most: no panic, no second order at
// once, no second account, and the next call succeeds. A certificate that the authority has issued is fetched again
// instead, and the order's progress while it is polled.
#[tokio::test]
async fn a_fault_at_each_request() {
    let faults: [(&str, InjectedFault, &str); 9] = [
        (
            "429",
            InjectedFault::Answer("429 Too Many Requests\r\nRetry-After: 120\r\nReplay-Nonce: %NONCE", RATE_LIMITED),
            "too many of them",
        ),
        ("429 bare", InjectedFault::Answer("429 Too Many Requests\r\nRetry-After: 120", ""), "429"),
        ("500", InjectedFault::Answer("500 Internal Server Error\r\nReplay-Nonce: %NONCE", INTERNAL), "a broken disk"),
        (
            "503 HTML",
            InjectedFault::Answer("503 Service Unavailable\r\nRetry-After: 18446744073709551615", "<html>down"),
            "503",
        ),
        ("redirect", InjectedFault::Answer("302 Found\r\nLocation: https://localhost/elsewhere", ""), "302"),
        ("not JSON", InjectedFault::Answer("200 OK\r\nReplay-Nonce: %NONCE", "{\"status\": \"pend"), ""),
        ("cut", InjectedFault::Cut, ""),
        ("cut in the body", InjectedFault::CutBody, ""),
        ("hang", InjectedFault::Hang, "1 s"),
    ];
    let bench = FaultFixture::new("each").await;
    let FaultFixture { authority, .. } = &bench;
    bench.obtain().await.unwrap();
    for stage in AcmeStage::ALL {
        for (label, fault, text) in faults {
            let case = format!("{label} at {stage:?}");
            if stage == AcmeStage::Account {
                // Registered once; the fault needs a new storage.
                fs::remove_dir_all(bench.dir.join("storage")).unwrap();
            }
            let is_passing = matches!(label, "500" | "cut" | "cut in the body");
            authority.fail(&vec![(stage, fault); if is_passing { TRIES } else { 1 }]);
            let result = bench.obtain().await;
            let is_harmless = stage == AcmeStage::Nonce && label == "not JSON";
            // Unless `Retry-After` is longer than the order may wait.
            let is_repeated = match stage {
                AcmeStage::Certificate => !label.starts_with("429") && label != "503 HTML",
                // The authority works on. Faults of the connection and of its servers may be over at the next look.
                AcmeStage::Order => is_passing || label == "hang",
                // It has accepted the request, and the response was lost.
                AcmeStage::Finalize => matches!(label, "cut" | "cut in the body" | "hang"),
                _ => false,
            };
            match result {
                Ok(_) => assert!(is_harmless || is_repeated, "{case}: succeeded"),
                Err(error) => {
                    assert!(!is_harmless && !is_repeated, "{case}: {error}");
                    // A response to HEAD has no problem document.
                    let text = match fault {
                        InjectedFault::Answer(head, _) if stage == AcmeStage::Nonce => &head[..3],
                        _ => text,
                    };
                    assert!(error.to_string().contains(text), "{case}: {error}");
                    let wait = error.retry_at().map(|at| at.duration_since(SystemTime::now()).unwrap().as_secs());
                    match label {
                        "429" | "429 bare" => assert!(matches!(wait, Some(115..=120)), "{case}: {wait:?}"),
                        "503 HTML" => assert!(matches!(wait, Some(604_790..=604_800)), "{case}: {wait:?}"),
                        _ => assert_eq!(wait, None, "{case}"),
                    }
                }
            }
            assert!(
                authority.count(AcmeStage::NewOrder) <= if is_passing { TRIES } else { 1 },
                "{case}: {} orders",
                authority.count(AcmeStage::NewOrder)
            );
            authority.fail(&[]);
            bench.obtain().await.unwrap_or_else(|error| panic!("after {case}: {error}"));
            let registers_now = stage == AcmeStage::Account;
            assert_eq!(authority.count(AcmeStage::Account) > 0, registers_now, "after {case}: another account");
        }
    }
}

// acmez, the client in Caddy, repeats a request twice after a fault of the connection, and after a status of 500 and
// above without another explanation than an internal error. RFC 9110 §10.2.3: not before the time of `Retry-After`.
#[tokio::test]
async fn a_passing_fault_at_each_request() {
    let bench = FaultFixture::new("passing").await;
    for stage in AcmeStage::ALL {
        for fault in [
            InjectedFault::Answer("503 Service Unavailable\r\nRetry-After: 0", "<html>busy"),
            InjectedFault::Answer("500 Internal Server Error", ""),
            InjectedFault::Answer("500 Internal Server Error\r\nReplay-Nonce: %NONCE", INTERNAL),
            InjectedFault::Cut,
            InjectedFault::CutBody,
        ] {
            if stage == AcmeStage::Account {
                let _ = fs::remove_dir_all(bench.dir.join("storage"));
            }
            bench.authority.fail(&[(stage, fault); TRIES - 1]);
            bench.obtain().await.unwrap_or_else(|error| panic!("{fault:?} at {stage:?}: {error}"));
            let orders = if stage == AcmeStage::NewOrder { TRIES } else { 1 };
            assert_eq!(bench.authority.count(AcmeStage::NewOrder), orders, "{fault:?} at {stage:?}");
        }
    }
}

// RFC 8555 §7.4: after the authority has accepted the request for the certificate, it answers another one with
// `orderNotReady`. The order's status decides.
#[tokio::test]
async fn a_certificate_that_is_requested_twice() {
    const NOT_READY: &str = r#"{"type":"urn:ietf:params:acme:error:orderNotReady","detail":"it is processing"}"#;
    let bench = FaultFixture::new("finalized").await;
    let not_ready = InjectedFault::Answer("403 Forbidden\r\nReplay-Nonce: %NONCE", NOT_READY);
    bench.authority.fail(&[(AcmeStage::Finalize, InjectedFault::Cut), (AcmeStage::Finalize, not_ready)]);
    bench.obtain().await.unwrap();
    // It has not accepted any.
    bench.authority.fail(&[(AcmeStage::Finalize, not_ready)]);
    let error = bench.obtain().await.unwrap_err().to_string();
    assert!(error.contains("it is processing"), "{error}");
    // RFC 9110 §10.2.3: no request before the time of `Retry-After`.
    let status_requests = bench.authority.count(AcmeStage::Order);
    bench
        .authority
        .fail(&[(AcmeStage::Finalize, InjectedFault::Answer("503 Service Unavailable\r\nRetry-After: 3600", ""))]);
    bench.obtain().await.unwrap_err();
    assert_eq!(bench.authority.count(AcmeStage::Order), status_requests - 1);
}

// RFC 9773 §5: the order does not depend on the certificate that it replaces. Pebble responds to an unknown one with an
// internal error.
#[tokio::test]
async fn an_order_without_the_replaced_certificate() {
    let bench = FaultFixture::new("replaces").await;
    let signer = rcgen::Issuer::new(rcgen::CertificateParams::default(), rcgen::KeyPair::generate().unwrap());
    // RFC 9773 §4.1: the extension is a part of the certificate's identifier.
    let mut params = rcgen::CertificateParams::new(["name.example".to_owned()]).unwrap();
    params.use_authority_key_identifier_extension = true;
    let former = params.signed_by(&rcgen::KeyPair::generate().unwrap(), &signer).unwrap();
    let unknown = InjectedFault::Answer("500 Internal Server Error\r\nReplay-Nonce: %NONCE", INTERNAL);
    bench.authority.fail(&[(AcmeStage::NewOrder, unknown); TRIES]);
    let name = "name.example";
    let wanted =
        CertificateRequest { name, key: KeyKind::P256, attempt: 0, must_staple: false, replaces: Some(former.der()) };
    obtain(&bench.issuer, wanted, &bench.storage).await.unwrap();
    assert_eq!(bench.authority.count(AcmeStage::NewOrder), TRIES + 1);
}

// RFC 8555 §7.3.3: the `instance` of `userActionRequired` is the URL where a human agrees to new terms of service.
#[tokio::test]
async fn an_action_of_the_operator() {
    const ACTION: &str = r#"{"type":"urn:ietf:params:acme:error:userActionRequired","detail":"new terms",
        "instance":"https://ca.example/agree/1"}"#;
    let bench = FaultFixture::new("action").await;
    bench
        .authority
        .fail(&[(AcmeStage::NewOrder, InjectedFault::Answer("403 Forbidden\r\nReplay-Nonce: %NONCE", ACTION))]);
    let error = bench.obtain().await.unwrap_err().to_string();
    assert!(error.contains("new terms") && error.ends_with(": visit https://ca.example/agree/1"), "{error}");
}

// RFC 8555 §7.1: a member that is missing, or of another type, fails the order. No answer makes the client panic or
// fetch another resource.
#[tokio::test]
async fn responses_without_required_members() {
    let head = "200 OK\r\nReplay-Nonce: %NONCE\r\nLocation: https://localhost:1/";
    let bench = FaultFixture::new("members").await;
    bench.obtain().await.unwrap();
    for stage in
        [AcmeStage::Directory, AcmeStage::NewOrder, AcmeStage::Authorization, AcmeStage::Order, AcmeStage::Finalize]
    {
        for body in [
            "",
            "null",
            "{}",
            "[1]",
            r#"{"status": "invalid", "authorizations": [], "finalize": "", "identifiers": []}"#,
            r#"{"status": "valid", "authorizations": [], "finalize": "x:"}"#,
            r#"{"status": "valid", "certificate": "http://localhost:1/", "authorizations": [], "finalize": "x:"}"#,
            r#"{"status": "pending", "authorizations": ["http://localhost:1/", "", "x:"], "finalize": "x:"}"#,
            r#"{"status": "pending", "identifier": {"type": "dns", "value": "name.example"}, "challenges": []}"#,
            r#"{"status": "deactivated", "identifier": {"type": "dns", "value": "name.example"}, "challenges": []}"#,
            r#"{"newNonce": "http://localhost:1/", "newAccount": "", "newOrder": "\u0000"}"#,
        ] {
            // An authorization is fetched twice.
            bench.authority.fail(&[(stage, InjectedFault::Answer(head, body)); 2]);
            // An order is polled until its status is one that ends this.
            let may_succeed = matches!(stage, AcmeStage::Order | AcmeStage::Finalize);
            match bench.obtain().await {
                Ok(issued) => {
                    assert!(may_succeed, "{body} at {stage:?}");
                    assert_eq!(issued.chain, bench.authority.root);
                }
                Err(error) => assert!(!error.to_string().is_empty(), "{body} at {stage:?}"),
            }
            assert!(bench.authority.count(AcmeStage::NewOrder) <= 1, "{body} at {stage:?}");
            bench.authority.fail(&[]);
            bench.obtain().await.unwrap_or_else(|error| panic!("after {body} at {stage:?}: {error}"));
        }
    }
}

// RFC 8555 §7.1.1: a directory is a JSON object. A web server at a wrong URL answers with a page.
#[tokio::test]
async fn a_page_in_place_of_the_directory() {
    let bench = FaultFixture::new("page").await;
    for (head, found) in [
        ("200 OK\r\nContent-Type: text/html", "found no ACME directory (status 200, text/html): "),
        ("200 OK", "found no ACME directory (status 200, no Content-Type): "),
    ] {
        bench.authority.fail(&[(AcmeStage::Directory, InjectedFault::Answer(head, "<html>"))]);
        let error = bench.obtain().await.unwrap_err().to_string();
        assert!(error.contains(found), "{error}");
    }
}

// RFC 8555 §6.5: a client repeats a request whose nonce the authority rejects, with the nonce of this response.
#[tokio::test]
async fn rejected_nonces_at_each_request() {
    let fault = InjectedFault::Answer("400 Bad Request\r\nReplay-Nonce: %NONCE", BAD_NONCE);
    let bench = FaultFixture::new("nonces").await;
    for stage in AcmeStage::ALL.into_iter().filter(|stage| !matches!(stage, AcmeStage::Directory | AcmeStage::Nonce)) {
        let repeats = [(stage, fault); 5];
        bench.authority.fail(&repeats);
        bench.obtain().await.unwrap_or_else(|error| panic!("{stage:?}: {error}"));
        assert_eq!(
            bench.authority.count(AcmeStage::NewOrder),
            if stage == AcmeStage::NewOrder { 6 } else { 1 },
            "{stage:?}"
        );
    }
}

// RFC 8555 §8.2: a challenge has an error as soon as one verification has failed, and may still become valid. An
// authority can have that result before it responds to the request to verify. The status of the order decides.
#[tokio::test]
async fn a_challenge_that_has_failed_at_once() {
    const CHALLENGE: &str = r#"{"type": "http-01", "url": "https://localhost:1/", "token": "token", "status": "invalid",
        "error": {"type": "urn:ietf:params:acme:error:connection", "detail": "port 80 is closed"}}"#;
    const ORDER: &str = r#"{"status": "invalid", "authorizations": [], "finalize": "", "identifiers": []}"#;
    let head = "200 OK\r\nReplay-Nonce: %NONCE";
    let bench = FaultFixture::new("challenge").await;
    let failed = (AcmeStage::Challenge, InjectedFault::Answer(head, CHALLENGE));
    bench.authority.fail(&[failed, (AcmeStage::Order, InjectedFault::Answer(head, ORDER))]);
    let error = bench.obtain().await.unwrap_err();
    assert!(matches!(error, AcmeError::Unverified(..)), "{error}");
    // The next verification succeeds.
    bench.authority.fail(&[failed]);
    bench.obtain().await.unwrap();
}

// RFC 8555 §7.1.3, §7.1.6, §6.7.1: the reason of an invalid order is that of a challenge, of an authorization, or of
// the order itself. A second order follows only if a challenge has failed and there is another one to answer.
#[tokio::test]
async fn the_reason_of_an_invalid_order() {
    let mut bench = FaultFixture::new("invalid").await;
    bench.issuer.allows_tls_alpn01 = true;
    let base = bench.authority.directory.strip_suffix("/directory").unwrap().to_owned();
    let authorization = |status: &str, kinds: &[&str], error: Option<&str>| {
        let challenge = |kind: &&str| {
            let mut challenge =
                json!({ "type": kind, "url": format!("{base}/challenge/1"), "token": "token", "status": "pending" });
            if let Some(detail) = error {
                challenge["error"] = json!({ "type": "urn:ietf:params:acme:error:connection", "detail": detail });
            }
            challenge
        };
        let challenges: Vec<_> = kinds.iter().map(challenge).collect();
        json!({
            "status": status, "identifier": { "type": "dns", "value": "name.example" }, "challenges": challenges,
        })
    };
    let order = |error: Option<&str>| {
        let mut order = json!({
            "status": "invalid", "identifiers": [], "authorizations": [format!("{base}/authorization/1")], "finalize": "",
        });
        if let Some(detail) = error {
            let refused = json!({ "type": "urn:ietf:params:acme:error:caa", "detail": "at the parent" });
            order["error"] =
                json!({ "type": "urn:ietf:params:acme:error:caa", "detail": detail, "subproblems": [refused] });
        }
        order
    };
    let answer = |stage, body: serde_json::Value| {
        (stage, InjectedFault::Answer("200 OK\r\nReplay-Nonce: %NONCE", body.to_string().leak()))
    };
    let both = ["http-01", "tls-alpn-01"];
    let closed = || authorization("invalid", &both[..1], Some("the port is closed"));
    for (case, offered, decided, invalid, orders, texts) in [
        ("challenge", &both[..], closed(), order(None), 2, &["http-01: the port is closed"][..]),
        ("only one", &both[..1], closed(), order(None), 1, &["http-01: the port is closed"]),
        ("order", &both, authorization("valid", &both, None), order(Some("CAA")), 1, &["CAA (", "at the parent"]),
        ("deactivated", &both, authorization("deactivated", &both, None), order(None), 1, &["is deactivated"]),
        ("no reason", &both, authorization("invalid", &both, None), order(None), 2, &["is invalid; the auth"]),
    ] {
        let faults = [
            answer(AcmeStage::Authorization, authorization("pending", offered, None)),
            answer(AcmeStage::Order, invalid),
            answer(AcmeStage::Authorization, decided),
        ];
        bench.authority.fail(&faults.repeat(orders));
        let error = bench.obtain().await.unwrap_err().to_string();
        assert!(texts.iter().all(|text| error.contains(text)), "{case}: {error}");
        assert_eq!(bench.authority.count(AcmeStage::NewOrder), orders, "{case}: {error}");
    }
    // A valid order cannot come of it.
    bench.authority.fail(&[answer(AcmeStage::Authorization, closed())]);
    let error = bench.obtain().await.unwrap_err().to_string();
    assert_eq!(bench.authority.count(AcmeStage::NewOrder), 1, "{error}");
    assert!(error.contains("the port is closed"), "{error}");
}

// RFC 8555 §7.4.2: an issued certificate is fetched up to four times, each with three tries; a new order would count
// towards the authority's rate limits.
#[tokio::test]
async fn the_download_of_a_certificate_is_repeated() {
    let bench = FaultFixture::new("download").await;
    let fault =
        (AcmeStage::Certificate, InjectedFault::Answer("500 Internal Server Error\r\nReplay-Nonce: %NONCE", INTERNAL));
    for (faults, is_obtained) in [(4 * TRIES - 1, true), (4 * TRIES, false)] {
        bench.authority.fail(&vec![fault; faults]);
        assert_eq!(bench.obtain().await.is_ok(), is_obtained, "{faults} faults");
        assert_eq!(bench.authority.count(AcmeStage::NewOrder), 1);
        assert_eq!(bench.authority.count(AcmeStage::Certificate), 4 * TRIES);
    }
    // A chain that is none (RFC 8555 §9.1) counts as a fault.
    bench.authority.fail(&[(
        AcmeStage::Certificate,
        InjectedFault::Answer("200 OK\r\nReplay-Nonce: %NONCE", "-----BEGIN NOTHING"),
    )]);
    assert_eq!(bench.obtain().await.unwrap().chain, bench.authority.root);
}

// The order's progress after the request for the certificate is polled for five minutes. If the authority has not
// answered by then, the order has failed with that fault, and no further time begins.
#[tokio::test]
async fn a_fault_that_lasts_is_the_reason() {
    let mut fixture = FaultFixture::new("lasts").await;
    // One request each for the verified name and for the certificate.
    fixture.issuer.timing.poll_timeout = PAUSE;
    let base = fixture.authority.directory.strip_suffix("/directory").unwrap();
    let ready =
        json!({ "status": "ready", "identifiers": [], "authorizations": [], "finalize": format!("{base}/finalize/1") });
    let ready = InjectedFault::Answer("200 OK\r\nReplay-Nonce: %NONCE", ready.to_string().leak());
    let fault = InjectedFault::Answer("500 Internal Server Error\r\nReplay-Nonce: %NONCE", INTERNAL);
    let order = |fault| (AcmeStage::Order, fault);
    fixture.authority.fail(&[[order(ready)].as_slice(), &[order(fault); 2 * TRIES]].concat());
    let error = fixture.obtain().await.unwrap_err().to_string();
    assert!(error.contains("a broken disk"), "{error}");
    assert_eq!(fixture.authority.count(AcmeStage::Order), 1 + TRIES);
}

// An authority that hangs delays no account at another one, with the same storage and address.
#[tokio::test]
async fn a_registration_waits_for_no_other_authority() {
    let (mut hanging, other) = (FaultFixture::new("hanging").await, FaultFixture::new("other").await);
    hanging.issuer.timing.request_timeout = Duration::from_secs(3600);
    hanging.storage = other.storage.clone();
    hanging.authority.fail(&[(AcmeStage::Account, InjectedFault::Hang)]);
    let registered = async {
        while hanging.authority.count(AcmeStage::Account) == 0 {
            tokio::task::yield_now().await;
        }
        other.obtain().await
    };
    tokio::select! {
        ended = hanging.obtain() => panic!("{ended:?}"),
        issued = registered => assert!(issued.is_ok(), "{issued:?}"),
    }
}

// RFC 8555 §7.3.1: `onlyReturnExisting` finds the account of a key. Caddy's documentation of `account_key`: the account
// exists already. Later orders find it in storage; if the authority has lost it, no other one is registered.
#[tokio::test]
async fn the_account_of_a_key() {
    let mut fixture = FaultFixture::new("account-key").await;
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    fixture.issuer.account_key = crate::AccountKey::from_pem(&key);
    let missing = r#"{"type":"urn:ietf:params:acme:error:accountDoesNotExist","detail":"unknown"}"#;
    let gone = InjectedFault::Answer("400 Bad Request\r\nReplay-Nonce: %NONCE", missing);
    fixture.authority.fail(&[(AcmeStage::Account, gone)]);
    let error = fixture.obtain().await.unwrap_err().to_string();
    assert_eq!(error, "found no account for the key in account_key at the authority, expected one");
    let existing = serde_json::json!({ "onlyReturnExisting": true });
    fixture.authority.fail(&[]);
    fixture.obtain().await.unwrap();
    fixture.obtain().await.unwrap();
    assert_eq!(fixture.authority.accounts(), std::slice::from_ref(&existing));
    fixture.authority.fail(&[(AcmeStage::NewOrder, gone), (AcmeStage::Account, gone)]);
    fixture.obtain().await.unwrap_err();
    assert_eq!(fixture.authority.accounts(), [existing]);
    // An issuer without the key has an account of its own.
    fixture.authority.fail(&[]);
    fixture.issuer.account_key = None;
    fixture.obtain().await.unwrap();
    assert_eq!(fixture.authority.accounts(), [serde_json::json!({ "termsOfServiceAgreed": true })]);
    let keys = fixture.storage.list("acme").unwrap();
    assert_eq!(keys.iter().filter(|key| key.contains("/users/key-")).count(), 2, "{keys:?}");
}

// The documentation of `storage`: an order that fails because of the storage is tried again every 10 s. An account that
// is not stored counts as a failure of the authority, whose attempts are fewer: the next attempt sends another request
// for the account, and with an external account (RFC 8555 §7.3.4) creates another one. Without an external account the
// key is stored first, so the authority gets no request.
#[tokio::test]
async fn an_account_that_cannot_be_stored() {
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let existing = Issuer { account_key: crate::AccountKey::from_pem(&key), ..Issuer::default() };
    let external = ExternalAccount { key_id: "id".to_owned(), mac_key: "a2V5".to_owned() };
    let external = Issuer { external_account: Some(external), ..Issuer::default() };
    for (at, settings, is_key_storable, requests) in [
        (0, &existing, true, 1),
        (1, &external, true, 1),
        (2, &Issuer::default(), true, 1),
        (3, &existing, false, 1),
        (4, &external, false, 1),
        (5, &Issuer::default(), false, 0),
    ] {
        let mut fixture = FaultFixture::new(&format!("unstored-{at}")).await;
        fixture.issuer.account_key = settings.account_key.clone();
        fixture.issuer.external_account = settings.external_account.clone();
        let [account_at, _] = storage_keys(&fixture.issuer);
        let path = fixture.dir.join("storage").join(account_at);
        if is_key_storable {
            // A directory in the place of the file, since permissions do not bind the superuser.
            fs::create_dir_all(&path).unwrap();
        } else {
            // A directory of users that is empty, and where no file can be made.
            let users = path.ancestors().nth(2).unwrap();
            fs::create_dir_all(users.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink("/proc/nonexistent/users", users).unwrap();
        }
        let error = fixture.obtain().await.unwrap_err();
        assert_eq!(matches!(error, AcmeError::Unstored(_)), requests == 1, "case {at}: {error:?}");
        assert_eq!(error.is_of_storage(), requests == 0, "case {at}: {error:?}");
        assert_eq!(fixture.authority.accounts().len(), requests, "case {at}: {error:?}");
    }
}

// Caddy's `network_proxy`: all requests to the authority go through the proxy, by CONNECT (RFC 9110 §9.3.6).
#[tokio::test]
async fn an_order_through_a_proxy() {
    use crate::http::ProxyChoice;
    use tokio::io::AsyncWriteExt as _;

    let mut fixture = FaultFixture::new("proxy").await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = format!("http://{}", listener.local_addr().unwrap());
    let host = fixture.issuer.directory.split('/').nth(2).unwrap().to_owned();
    let (lines, mut received) = tokio::sync::mpsc::unbounded_channel();
    let to = host.clone();
    let task = tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let (lines, to) = (lines.clone(), to.clone());
            tokio::spawn(async move {
                let request = crate::http::double::read(&mut client).await.unwrap();
                lines.send(request.line).unwrap();
                client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                let mut server = tokio::net::TcpStream::connect(&to).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    fixture.issuer.proxy = ProxyChoice::Proxy(proxy.parse().unwrap());
    fixture.issuer.timing.request_timeout = Duration::from_secs(10);
    fixture.obtain().await.unwrap();
    task.abort();
    received.close();
    let mut lines = Vec::new();
    while let Some(line) = received.recv().await {
        lines.push(line);
    }
    assert!(!lines.is_empty() && lines.iter().all(|line| *line == format!("CONNECT {host}")), "{lines:?}");
    // Without the proxy there is no other way.
    let error = fixture.obtain().await.unwrap_err().to_string();
    assert!(error.contains("the network proxy: "), "{error}");
}
