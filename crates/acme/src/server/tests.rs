//! The protocol by hand: requests are signed here, independently of `jws`.

use std::future::poll_fn;
use std::sync::{Arc, LazyLock, OnceLock};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use causeway_certs::{
    AuthoritySpec, CertificatePlan, Durability, Error, FileStorage, Keeper, Lock, OcspPolicy, SharedStorage, SignedBy,
    Storage,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, MutexGuard};

use super::{
    AcmeServer, ChallengeKind, Policy, Ports, Rules, ServerPlan, ServerRequest, ServerResponse, locked, serve_with,
};

const BASE: &str = "https://ca.test/acme/local";

/// The keeper is one for the process, so the tests take turns.
static TURN: LazyLock<Mutex<()>> = LazyLock::new(Mutex::default);

struct Setting {
    server: AcmeServer,
    /// The server uses it as long as it exists.
    _keeper: Arc<Keeper>,
    dir: std::path::PathBuf,
    _turn: MutexGuard<'static, ()>,
}

impl Drop for Setting {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn plan() -> ServerPlan {
    ServerPlan {
        authority: "local".to_owned(),
        lifetime: Duration::from_secs(12 * 60 * 60),
        by: SignedBy::Intermediate,
        challenges: ChallengeKind::ALL.to_vec(),
        policy: Policy::default(),
        ports: Ports::default(),
        resolvers: Vec::new(),
    }
}

async fn setting(plan: ServerPlan) -> Setting {
    setting_in(plan, |files| Arc::new(files)).await
}

/// A server whose storage is made from files.
async fn setting_in(plan: ServerPlan, storage: impl FnOnce(FileStorage) -> SharedStorage) -> Setting {
    let turn = TURN.lock().await;
    let dir = std::env::temp_dir().join(format!("causeway-acme-server-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let wanted = CertificatePlan {
        storage: storage(FileStorage::new(&dir)),
        authorities: vec![AuthoritySpec::new("local".to_owned())],
        loaded: Vec::new(),
        selections: Vec::new(),
        loaded_ocsp: OcspPolicy::default(),
        local: Vec::new(),
        public: Vec::new(),
        renewal_check_interval: Duration::from_secs(600),
    };
    let keeper = Arc::new(Keeper::open(wanted, None, SystemTime::now()).unwrap());
    serve_with(&keeper);
    Setting { server: AcmeServer::new(plan), _keeper: keeper, dir, _turn: turn }
}

/// A key of a client.
enum ClientKey {
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

impl ClientKey {
    fn new() -> Self {
        Self::P256(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap())
    }

    fn jwk(&self) -> Value {
        match self {
            Self::P256(key) => {
                let point = key.public_key().as_ref();
                json!({ "kty": "EC", "crv": "P-256", "x": encode(&point[1..33]), "y": encode(&point[33..]) })
            }
            Self::Ed25519(key) => json!({ "kty": "OKP", "crv": "Ed25519", "x": encode(key.public_key()) }),
            Self::Rsa(key) => {
                let (n, e) = (key.public_key().modulus(), key.public_key().exponent());
                json!({ "kty": "RSA", "n": encode(n.big_endian_without_leading_zero()), "e": encode(e.big_endian_without_leading_zero()) })
            }
        }
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::P256(_) => "ES256",
            Self::Ed25519(_) => "EdDSA",
            Self::Rsa(_) => "RS256",
        }
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        match self {
            Self::P256(key) => key.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec(),
            Self::Ed25519(key) => key.sign(message).as_ref().to_vec(),
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature).unwrap();
                signature
            }
        }
    }

    /// RFC 7638, by hand.
    fn thumbprint(&self) -> String {
        let jwk = self.jwk();
        let text = |name: &str| jwk[name].as_str().unwrap().to_owned();
        let canonical = match self {
            Self::P256(_) => format!(r#"{{"crv":"P-256","kty":"EC","x":"{}","y":"{}"}}"#, text("x"), text("y")),
            Self::Ed25519(_) => format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{}"}}"#, text("x")),
            Self::Rsa(_) => format!(r#"{{"e":"{}","kty":"RSA","n":"{}"}}"#, text("e"), text("n")),
        };
        encode(digest(&SHA256, canonical.as_bytes()))
    }

    /// Signs a request; `payload` is the text, empty for a POST-as-GET.
    fn envelope(&self, header: &Value, payload: &str) -> Value {
        let (protected, payload) = (encode(header.to_string()), encode(payload));
        let signature = encode(self.sign(format!("{protected}.{payload}").as_bytes()));
        json!({ "protected": protected, "payload": payload, "signature": signature })
    }
}

/// A client with an account.
struct Client<'s> {
    server: &'s AcmeServer,
    key: ClientKey,
    account: Option<String>,
}

impl<'s> Client<'s> {
    fn new(server: &'s AcmeServer, key: ClientKey) -> Self {
        Self { server, key, account: None }
    }

    fn registered(server: &'s AcmeServer) -> Self {
        let mut client = Self::new(server, ClientKey::new());
        let answer = client.post("/new-account", r#"{"termsOfServiceAgreed":true}"#);
        assert_eq!(answer.status, 201, "{answer:?}");
        client.account = field(&answer, "location");
        client
    }

    fn nonce(&self) -> String {
        let request = ServerRequest { method: "HEAD", base: BASE, path: "/new-nonce", media_type: "", body: b"" };
        field(&self.server.answer(request, SystemTime::now()), "replay-nonce").unwrap()
    }

    fn header(&self, path: &str) -> Value {
        let mut header = json!({ "alg": self.key.algorithm(), "nonce": self.nonce(), "url": format!("{BASE}{path}") });
        match &self.account {
            Some(url) => header["kid"] = url.clone().into(),
            None => header["jwk"] = self.key.jwk(),
        }
        header
    }

    fn post(&self, path: &str, payload: &str) -> ServerResponse {
        self.send(path, &self.key.envelope(&self.header(path), payload))
    }

    fn send(&self, path: &str, envelope: &Value) -> ServerResponse {
        let body = envelope.to_string();
        let media_type = "application/jose+json";
        let request = ServerRequest { method: "POST", base: BASE, path, media_type, body: body.as_bytes() };
        self.server.answer(request, SystemTime::now())
    }

    /// The payload by which `account` gets the key `fresh`.
    fn key_change(&self, account: &str, fresh: &ClientKey) -> String {
        let header = json!({ "alg": "ES256", "jwk": fresh.jwk(), "url": format!("{BASE}/key-change") });
        let payload = json!({ "account": account, "oldKey": self.key.jwk() }).to_string();
        fresh.envelope(&header, &payload).to_string()
    }

    fn order(&self, names: &[&str]) -> ServerResponse {
        let names: Vec<_> = names.iter().map(|name| json!({ "type": "dns", "value": name })).collect();
        self.post("/new-order", &json!({ "identifiers": names }).to_string())
    }

    /// Polls a challenge until it is no longer processed.
    async fn validated(&self, path: &str) -> Value {
        self.post(path, "{}");
        loop {
            let found = body(&self.post(path, ""));
            if found["status"] != "processing" {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn field(answer: &ServerResponse, name: &str) -> Option<String> {
    answer.fields.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
}

fn body(answer: &ServerResponse) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_default()
}

/// The path of a URL of the server.
fn path(url: &Value) -> String {
    url.as_str().unwrap().strip_prefix(BASE).unwrap().to_owned()
}

#[track_caller]
fn refused(answer: &ServerResponse, status: u16, kind: &str) {
    let want = format!("urn:ietf:params:acme:error:{kind}");
    assert_eq!((answer.status, body(answer)["type"].as_str()), (status, Some(&*want)), "{answer:?}");
    assert!(field(answer, "replay-nonce").is_some(), "RFC 8555 §6.5");
    assert_eq!(field(answer, "content-type").as_deref(), Some("application/problem+json"));
}

/// Answers HTTP-01 requests with `answer`, for ever.
async fn solver(answer: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            respond(&mut stream, "200 OK", &answer).await;
        }
    });
    port
}

/// Reads a request and answers it.
async fn respond(stream: &mut (impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin), head: &str, text: &str) {
    let mut request = [0; 2048];
    let _ = stream.read(&mut request).await;
    let head = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", text.len());
    let _ = stream.write_all(format!("{head}{text}").as_bytes()).await;
    let _ = stream.shutdown().await;
}

fn request_for(names: &[&str]) -> (rcgen::KeyPair, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = rcgen::CertificateParams::new(names).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    let request = params.serialize_request(&key).unwrap();
    let text = json!({ "csr": encode(request.der()) }).to_string();
    (key, text)
}

// RFC 8555 §7.1.1; the text is that of Caddy's integration test.
#[tokio::test]
async fn directory() {
    let setting = setting(plan()).await;
    let request = ServerRequest { method: "GET", base: BASE, path: "/directory", media_type: "", body: b"" };
    let answer = setting.server.answer(request, SystemTime::now());
    let want = format!(
        "{{\"newNonce\":\"{BASE}/new-nonce\",\"newAccount\":\"{BASE}/new-account\",\"newOrder\":\"{BASE}/new-order\",\
         \"revokeCert\":\"{BASE}/revoke-cert\",\"keyChange\":\"{BASE}/key-change\"}}\n"
    );
    assert_eq!((answer.status, String::from_utf8(answer.body).unwrap()), (200, want));
}

// RFC 8555 §7.4: from an order to a certificate, and its revocation (§7.6), with each kind of account key.
#[tokio::test]
async fn a_certificate() {
    for key in [
        ClientKey::new(),
        ClientKey::Ed25519(Ed25519KeyPair::generate().unwrap()),
        ClientKey::Rsa(RsaKeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap()),
    ] {
        // The token is not known before the order, so the solver gets it from a first server without a port.
        let mut setting = setting(plan()).await;
        let mut client = Client::new(&setting.server, key);
        let answer = client.post("/new-account", r#"{"contact":["mailto:ops@a.test"]}"#);
        assert_eq!((answer.status, &body(&answer)["status"]), (201, &json!("valid")));
        let account = field(&answer, "location");
        assert_eq!(client.post("/new-account", "{}").status, 200, "§7.3: the key has an account");
        client.account = account.clone();
        let answer = client.order(&["localhost"]);
        assert_eq!((answer.status, &body(&answer)["status"]), (201, &json!("pending")));
        let (order, finalize) = (field(&answer, "location").unwrap(), path(&body(&answer)["finalize"]));
        let authorization = path(&body(&answer)["authorizations"][0]);
        let challenges = body(&client.post(&authorization, ""))["challenges"].clone();
        assert_eq!((&challenges[0]["type"], &challenges[1]["type"]), (&json!("http-01"), &json!("tls-alpn-01")));
        let (key_pair, request) = request_for(&["localhost"]);
        refused(&client.post(&finalize, &request), 403, "orderNotReady");
        let thumbprint = client.key.thumbprint();
        let port = solver(format!("{}.{thumbprint}\n", challenges[0]["token"].as_str().unwrap())).await;
        let Client { key, account, .. } = client;
        setting.server.plan.ports.http = port;
        let client = Client { server: &setting.server, key, account };
        let challenge = client.validated(&path(&challenges[0]["url"])).await;
        assert_eq!(challenge["status"], "valid", "{challenge}");
        assert_eq!(body(&client.post(&authorization, ""))["status"], "valid");
        let order = order.strip_prefix(BASE).unwrap();
        assert_eq!(body(&client.post(order, ""))["status"], "ready");
        refused(&client.post(&finalize, &request_for(&["localhost", "b.test"]).1), 400, "badCSR");
        refused(&client.post(&finalize, r#"{"csr":"AAAA"}"#), 400, "badCSR");
        let answer = body(&client.post(&finalize, &request));
        assert_eq!(answer["status"], "valid", "{answer}");
        let at = path(&answer["certificate"]);
        let answer = client.post(&at, "");
        assert_eq!(field(&answer, "content-type").as_deref(), Some("application/pem-certificate-chain"));
        let chain = String::from_utf8(answer.body).unwrap();
        assert_eq!(chain.matches("BEGIN CERTIFICATE").count(), 2, "leaf and intermediate");
        let leaf = x509_parser::pem::parse_x509_pem(chain.as_bytes()).unwrap().1;
        let parsed = leaf.parse_x509().unwrap();
        assert_eq!(&*parsed.public_key().subject_public_key.data, rcgen::PublicKeyData::der_bytes(&key_pair));
        let validity = parsed.validity();
        let before_issue = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64
            - validity.not_before.timestamp();
        assert!((60..120).contains(&before_issue), "a client's clock may be slow: {before_issue}");
        assert_eq!(validity.not_after.timestamp() - validity.not_before.timestamp(), 12 * 60 * 60 + 60);
        // Another account cannot see it, nor revoke it.
        let other = Client::registered(&setting.server);
        refused(&other.post(&at, ""), 404, "malformed");
        let revocation = json!({ "certificate": encode(&leaf.contents) }).to_string();
        refused(&other.post("/revoke-cert", &revocation), 403, "unauthorized");
        let wrong = json!({ "certificate": encode(&leaf.contents), "reason": 7 }).to_string();
        refused(&client.post("/revoke-cert", &wrong), 400, "badRevocationReason");
        assert_eq!(client.post("/revoke-cert", &revocation).status, 200);
        refused(&client.post("/revoke-cert", &revocation), 400, "alreadyRevoked");
    }
}

// RFC 8555 §8.3: the server follows redirects, here to HTTPS. As smallstep, it verifies no certificate there: a machine
// that redirects all of its sites has none of this authority before the first order.
#[tokio::test]
async fn a_redirect_to_https() {
    let mut setting = setting(plan()).await;
    let client = Client::registered(&setting.server);
    let order = body(&client.order(&["localhost"]));
    let challenge = body(&client.post(&path(&order["authorizations"][0]), ""))["challenges"][0].clone();
    let answer = format!("{}.{}", challenge["token"].as_str().unwrap(), client.key.thumbprint());
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls_pki_types::PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let tls = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth();
    let tls = tls.with_single_cert(vec![own.cert.der().clone()], key.into()).unwrap();
    let tls = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
    let secure = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("https://127.0.0.1:{}/", secure.local_addr().unwrap().port());
    tokio::spawn(async move {
        while let Ok((stream, _)) = secure.accept().await {
            let Ok(mut stream) = tls.accept(stream).await else { continue };
            respond(&mut stream, "200 OK", &answer).await;
        }
    });
    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = plain.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = plain.accept().await {
            respond(&mut stream, &format!("308 Permanent Redirect\r\nLocation: {target}"), "").await;
        }
    });
    let Client { key, account, .. } = client;
    setting.server.plan.ports.http = port;
    let client = Client { server: &setting.server, key, account };
    let challenge = client.validated(&path(&challenge["url"])).await;
    assert_eq!(challenge["status"], "valid", "{challenge}");
}

// Our bound of concurrent validations. An order with more names than that is not refused: the further validations wait.
#[tokio::test]
async fn validations_wait_for_a_place() {
    let mut setting = setting(plan()).await;
    setting.server.plan.ports.http = solver("another text".to_owned()).await;
    let client = Client::registered(&setting.server);
    let order = body(&client.order(&["localhost"]));
    let challenge = body(&client.post(&path(&order["authorizations"][0]), ""))["challenges"][0].clone();
    let places = super::validate::SLOTS.acquire_many(super::validate::CONCURRENT_MAX as u32).await.unwrap();
    let answer = client.post(&path(&challenge["url"]), "{}");
    assert_eq!((answer.status, &body(&answer)["status"]), (200, &json!("processing")), "{answer:?}");
    drop(places);
    assert_eq!(client.validated(&path(&challenge["url"])).await["status"], "invalid");
}

// Our bound of the validations of an account that wait: all accounts share the places. Another account waits for at
// most as many of them.
#[tokio::test]
async fn an_account_has_a_number_of_validations() {
    let setting = setting(plan()).await;
    let client = Client::registered(&setting.server);
    let _places = super::validate::SLOTS.acquire_many(super::validate::CONCURRENT_MAX as u32).await.unwrap();
    let names: Vec<_> = (0..super::NAMES_PER_ORDER_MAX).map(|at| format!("a{at}.test")).collect();
    let names: Vec<_> = names.iter().map(|name| &**name).collect();
    let mut statuses = Vec::new();
    for _ in 0..4 {
        let order = body(&client.order(&names));
        for authorization in order["authorizations"].as_array().unwrap() {
            let at = path(authorization).replace("/authz/", "/challenge/");
            statuses.push(client.post(&format!("{at}/http-01"), "{}").status);
        }
    }
    let limit = super::VALIDATIONS_PER_ACCOUNT_MAX;
    assert!(statuses[..limit].iter().all(|&status| status == 200) && statuses.len() > limit);
    assert!(statuses[limit..].iter().all(|&status| status == 429));
    let other = Client::registered(&setting.server);
    let order = body(&other.order(&["localhost"]));
    let challenge = body(&other.post(&path(&order["authorizations"][0]), ""))["challenges"][0].clone();
    assert_eq!(other.post(&path(&challenge["url"]), "{}").status, 200);
}

// A validation that has waited is left out if its authorization has been decided meanwhile, or its order has expired:
// it would occupy a place.
#[tokio::test]
async fn no_validation_of_a_decided_authorization() {
    let mut setting = setting(plan()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    setting.server.plan.ports.http = listener.local_addr().unwrap().port();
    let client = Client::registered(&setting.server);
    let order = body(&client.order(&["localhost"]));
    let authorization = path(&order["authorizations"][0]);
    let challenge = path(&body(&client.post(&authorization, ""))["challenges"][0]["url"]);
    let places = super::validate::SLOTS.acquire_many(super::validate::CONCURRENT_MAX as u32).await.unwrap();
    assert_eq!(body(&client.post(&challenge, "{}"))["status"], "processing");
    assert_eq!(body(&client.post(&authorization, r#"{"status":"deactivated"}"#))["status"], "deactivated");
    drop(places);
    assert_eq!(client.validated(&challenge).await["status"], "pending");
    let account = client.account.as_ref().unwrap().rsplit('/').next().unwrap();
    assert_eq!(locked(&setting.server.state).validations(account), 0);
    assert!(poll_fn(|cx| Poll::Ready(listener.poll_accept(cx).is_pending())).await, "no request");
    let mut state = locked(&setting.server.state);
    let later = SystemTime::now() + Duration::from_secs(2 * 60 * 60);
    assert!(!state.begin_validation(authorization.strip_prefix("/authz/").unwrap(), ChallengeKind::Http, later));
}

// RFC 8555 §7.1.6: a failed challenge makes its authorization and its order invalid.
#[tokio::test]
async fn challenges_that_fail() {
    let mut setting = setting(plan()).await;
    let port = solver("another text".to_owned()).await;
    setting.server.plan.ports = Ports { http: port, tls_alpn: port };
    for (at, kind, problem) in [(0, "http-01", "unauthorized"), (1, "tls-alpn-01", "connection")] {
        let client = Client::registered(&setting.server);
        let answer = client.order(&["localhost"]);
        let order = body(&answer);
        let challenges = body(&client.post(&path(&order["authorizations"][0]), ""))["challenges"].clone();
        let challenge = client.validated(&path(&challenges[at]["url"])).await;
        assert_eq!((&challenge["type"], &challenge["status"]), (&json!(kind), &json!("invalid")));
        let want = format!("urn:ietf:params:acme:error:{problem}");
        assert_eq!(challenge["error"]["type"], want, "{challenge}");
        let order_path = field(&answer, "location").unwrap();
        let order = body(&client.post(order_path.strip_prefix(BASE).unwrap(), ""));
        assert_eq!((&order["status"], &order["error"]["type"]), (&json!("invalid"), &json!(want)));
    }
}

// RFC 8555 §6: signatures, URLs and nonces.
#[tokio::test]
async fn requests_that_are_refused() {
    let setting = setting(plan()).await;
    let client = Client::registered(&setting.server);
    let mine = |header: Value, payload: &str| client.key.envelope(&header, payload);
    let changed = |name: &str, value: Value| {
        let mut header = client.header("/new-order");
        header[name] = value;
        header
    };
    for (why, envelope, status, kind) in [
        ("not JSON", json!(null), 400, "malformed"),
        ("another URL", mine(changed("url", json!(format!("{BASE}/x"))), "{}"), 401, "unauthorized"),
        ("an unknown nonce", mine(changed("nonce", json!("x")), "{}"), 400, "badNonce"),
        ("another algorithm", mine(changed("alg", json!("none")), "{}"), 400, "badSignatureAlgorithm"),
        ("an algorithm of another key", mine(changed("alg", json!("RS256")), "{}"), 400, "badSignatureAlgorithm"),
        ("both keys", mine(changed("jwk", client.key.jwk()), "{}"), 400, "malformed"),
        ("an extension", mine(changed("crit", json!(["x"])), "{}"), 400, "malformed"),
        ("no account", mine(changed("kid", json!(format!("{BASE}/account/x"))), "{}"), 400, "accountDoesNotExist"),
        ("no path", mine(changed("kid", json!(format!("{BASE}/account/../x"))), "{}"), 400, "accountDoesNotExist"),
        ("another's key", ClientKey::new().envelope(&client.header("/new-order"), "{}"), 400, "malformed"),
        ("no names", mine(client.header("/new-order"), "{}"), 400, "malformed"),
        ("no payload", mine(client.header("/new-order"), ""), 400, "malformed"),
    ] {
        let answer = client.send("/new-order", &envelope);
        let found = body(&answer)["type"].as_str().unwrap_or_default().to_owned();
        assert_eq!((answer.status, found), (status, format!("urn:ietf:params:acme:error:{kind}")), "{why}: {answer:?}");
    }
    // A nonce counts once.
    let envelope =
        client.key.envelope(&client.header("/new-order"), r#"{"identifiers":[{"type":"dns","value":"a.test"}]}"#);
    assert_eq!(client.send("/new-order", &envelope).status, 201);
    refused(&client.send("/new-order", &envelope), 400, "badNonce");
    let request =
        ServerRequest { method: "POST", base: BASE, path: "/new-order", media_type: "text/plain", body: b"{}" };
    refused(&setting.server.answer(request, SystemTime::now()), 415, "malformed");
    let request = ServerRequest { method: "GET", ..request };
    refused(&setting.server.answer(request, SystemTime::now()), 405, "malformed");
}

// Caddy's integration tests of the policies: an allowed name, and names that are rejected.
#[tokio::test]
async fn policies() {
    let allow =
        Policy { allow: Rules { domains: vec!["localhost".to_owned()], ranges: Vec::new() }, ..Policy::default() };
    let deny =
        Policy { deny: Rules { domains: vec!["deny.localhost".to_owned()], ranges: Vec::new() }, ..Policy::default() };
    for (policy, name, is_allowed) in [
        (&allow, "localhost", true),
        (&allow, "not-matching.localhost", false),
        (&deny, "deny.localhost", false),
        (&deny, "localhost", true),
        (&Policy::default(), "*.localhost", true),
        (&deny, "*.localhost", false),
    ] {
        let setting = setting(ServerPlan { policy: policy.clone(), ..plan() }).await;
        let client = Client::registered(&setting.server);
        let answer = client.order(&[name]);
        if is_allowed {
            assert_eq!(answer.status, 201, "{name}");
        } else {
            refused(&answer, 400, "rejectedIdentifier");
        }
    }
}

// RFC 8555 §7.3.2, §7.3.5, §7.3.6.
#[tokio::test]
async fn accounts_change() {
    let setting = setting(plan()).await;
    let mut client = Client::registered(&setting.server);
    let url = client.account.clone().unwrap();
    let own = url.strip_prefix(BASE).unwrap().to_owned();
    let answer = client.post(&own, r#"{"contact":["mailto:new@a.test"]}"#);
    assert_eq!(body(&answer)["contact"], json!(["mailto:new@a.test"]));
    refused(&client.post(&own, r#"{"contact":["tel:1"]}"#), 400, "unsupportedContact");
    refused(&client.post(&own, r#"{"contact":"x"}"#), 400, "invalidContact");
    let fresh = ClientKey::new();
    refused(&client.post("/key-change", &client.key_change("another", &fresh)), 400, "malformed");
    assert_eq!(client.post("/key-change", &client.key_change(&url, &fresh)).status, 200);
    refused(&client.post(&own, ""), 400, "malformed");
    client.key = fresh;
    assert_eq!(body(&client.post(&own, ""))["contact"], json!(["mailto:new@a.test"]));
    let finds = Client { server: &setting.server, key: client.key, account: None };
    let answer = finds.post("/new-account", r#"{"onlyReturnExisting":true}"#);
    assert_eq!((answer.status, field(&answer, "location")), (200, Some(url)));
    let other_client = Client::new(&setting.server, ClientKey::new());
    refused(&other_client.post("/new-account", r#"{"onlyReturnExisting":true}"#), 400, "accountDoesNotExist");
    let client = Client { account: field(&answer, "location"), ..finds };
    assert_eq!(body(&client.post(&own, r#"{"status":"deactivated"}"#))["status"], "deactivated");
    refused(&client.post(&own, ""), 401, "unauthorized");
}

/// Called with the key of a value.
type AfterLoad = Box<dyn Fn(&str) + Send + Sync>;

/// Storage that calls a function with the key of each value that was read, before the reader continues.
struct WatchedStorage {
    files: FileStorage,
    after_load: OnceLock<AfterLoad>,
}

impl WatchedStorage {
    /// Creates a setting with such a storage. The function is still to be set.
    async fn setting(plan: ServerPlan) -> (Setting, Arc<Self>) {
        let mut storage = None;
        let setting = setting_in(plan, |files| {
            let watched = Arc::new(Self { files, after_load: OnceLock::new() });
            Arc::clone(storage.insert(watched)) as SharedStorage
        });
        (setting.await, storage.unwrap())
    }
}

impl std::fmt::Debug for WatchedStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.files.fmt(f)
    }
}

impl Storage for WatchedStorage {
    fn identity(&self) -> String {
        self.files.identity()
    }

    fn location(&self, key: &str) -> String {
        self.files.location(key)
    }

    fn load(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        let value = self.files.load(key);
        if let Some(after_load) = self.after_load.get() {
            after_load(key);
        }
        value
    }

    fn modified(&self, key: &str) -> Result<Option<SystemTime>, Error> {
        self.files.modified(key)
    }

    fn store(&self, key: &str, value: &[u8], durability: Durability) -> Result<(), Error> {
        self.files.store(key, value, durability)
    }

    fn delete(&self, key: &str) -> Result<(), Error> {
        self.files.delete(key)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, Error> {
        self.files.list(prefix)
    }

    fn lock_within(&self, name: &str, timeout: Duration) -> Result<Lock, Error> {
        self.files.lock_within(name, timeout)
    }
}

// RFC 8555 §7.3.5: after a change of keys the old key is refused. §7.3.6: a deactivated account stays so. A request
// that was authenticated before such a change undoes nothing.
#[tokio::test]
async fn overtaken_changes_of_accounts_undo_nothing() {
    let (setting, storage) = WatchedStorage::setting(plan()).await;
    // The path and the body of a request that is answered after the next read of an account.
    let next: Arc<std::sync::Mutex<Option<(String, String)>>> = Arc::default();
    let overtaking = Arc::clone(&next);
    let overtake = move |key: &str| {
        let next = if key.contains("/accounts/") { overtaking.lock().unwrap().take() } else { None };
        if let Some((path, body)) = next {
            let media_type = "application/jose+json";
            let request = ServerRequest { method: "POST", base: BASE, path: &path, media_type, body: body.as_bytes() };
            let answer = AcmeServer::new(plan()).answer(request, SystemTime::now());
            assert_eq!(answer.status, 200, "{answer:?}");
        }
    };
    assert!(storage.after_load.set(Box::new(overtake)).is_ok());
    const FIRST: &str = r#"{"contact":["mailto:first@a.test"]}"#;
    const SECOND: &str = r#"{"contact":["mailto:second@a.test"]}"#;
    const OFF: &str = r#"{"status":"deactivated"}"#;
    // An empty payload is a change of keys. The last column: whether the old key, that of the first change and that of
    // the second are then the account's.
    for (first, second, status, keys) in [
        ("", SECOND, 400, [400, 200, 400]),
        ("", OFF, 400, [400, 200, 400]),
        ("", "", 400, [400, 200, 400]),
        (OFF, SECOND, 401, [401, 400, 400]),
        (OFF, "", 401, [401, 400, 400]),
        (FIRST, "", 200, [400, 400, 200]),
        (FIRST, OFF, 200, [401, 400, 400]),
        (FIRST, SECOND, 200, [200, 400, 400]),
    ] {
        let client = Client::registered(&setting.server);
        let url = client.account.clone().unwrap();
        let own = url.strip_prefix(BASE).unwrap();
        let fresh = [ClientKey::new(), ClientKey::new()];
        let request = |payload: &str, fresh: &ClientKey| match payload {
            "" => ("/key-change".to_owned(), client.key_change(&url, fresh)),
            payload => (own.to_owned(), payload.to_owned()),
        };
        let [(first_path, first_payload), (path, payload)] = [request(first, &fresh[0]), request(second, &fresh[1])];
        let envelope = client.key.envelope(&client.header(&first_path), &first_payload).to_string();
        *next.lock().unwrap() = Some((first_path, envelope));
        let answer = client.post(&path, &payload);
        assert_eq!(answer.status, status, "{first:?} overtakes {second:?}: {answer:?}");
        let [first_key, second_key] = fresh;
        let contacts = [client.key, first_key, second_key].map(|key| {
            let answer = Client { server: &setting.server, key, account: Some(url.clone()) }.post(own, "");
            (answer.status, body(&answer)["contact"][0].clone())
        });
        assert_eq!([0, 1, 2].map(|at: usize| contacts[at].0), keys, "{first:?} overtakes {second:?}");
        if (first, second) == (FIRST, "") {
            assert_eq!(contacts[2].1, "mailto:first@a.test");
        }
    }
}

// RFC 8555 §8.4 and §7.1.3: only DNS-01 verifies a wildcard, and its authorization names the domain without `*.`.
#[tokio::test]
async fn dns_records() {
    for is_right in [true, false] {
        let mut setting = setting(plan()).await;
        let client = Client::registered(&setting.server);
        let order = body(&client.order(&["*.a.test"]));
        let authorization = body(&client.post(&path(&order["authorizations"][0]), ""));
        assert_eq!(authorization["identifier"], json!({ "type": "dns", "value": "a.test" }));
        assert_eq!(
            (&authorization["wildcard"], authorization["challenges"].as_array().unwrap().len()),
            (&json!(true), 1)
        );
        let challenge = &authorization["challenges"][0];
        let key_authorization = format!("{}.{}", challenge["token"].as_str().unwrap(), client.key.thumbprint());
        let value = if is_right { encode(digest(&SHA256, key_authorization.as_bytes())) } else { "other".to_owned() };
        let Client { key, account, .. } = client;
        setting.server.plan.resolvers = vec![resolver("_acme-challenge.a.test.", value).await];
        let client = Client { server: &setting.server, key, account };
        let found = client.validated(&path(&challenge["url"])).await;
        let (status, problem) = if is_right {
            ("valid", Value::Null)
        } else {
            ("invalid", json!("urn:ietf:params:acme:error:unauthorized"))
        };
        assert_eq!((&found["status"], &found["error"]["type"]), (&json!(status), &problem), "{found}");
    }
    // No challenge that this server offers can verify the name.
    let setting = setting(ServerPlan { challenges: vec![ChallengeKind::Http], ..plan() }).await;
    refused(&Client::registered(&setting.server).order(&["*.a.test"]), 400, "rejectedIdentifier");
}

/// A DNS server that has one TXT record; returns its address.
async fn resolver(name: &'static str, value: String) -> String {
    use hickory_proto::op::Message;
    use hickory_proto::rr::rdata::TXT;
    use hickory_proto::rr::{Name, RData, Record};
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let mut bytes = [0; 2048];
        while let Ok((count, peer)) = socket.recv_from(&mut bytes).await {
            let query = Message::from_vec(&bytes[..count]).unwrap();
            let mut answer = Message::response(query.id, query.op_code);
            answer.queries.clone_from(&query.queries);
            let name = Name::from_ascii(name).unwrap();
            if query.queries[0].name() == &name {
                answer.add_answer(Record::from_rdata(name, 60, RData::TXT(TXT::new(vec![value.clone()]))));
            }
            let _ = socket.send_to(&answer.to_vec().unwrap(), peer).await;
        }
    });
    address
}

// The bounds of one account: a client cannot fill the server's memory.
#[tokio::test]
async fn orders_are_bounded() {
    let setting = setting(plan()).await;
    let client = Client::registered(&setting.server);
    let names: Vec<_> = (0..101).map(|at| format!("a{at}.test")).collect();
    refused(&client.order(&names.iter().map(|name| &**name).collect::<Vec<_>>()), 400, "malformed");
    for _ in 0..300 {
        assert_eq!(client.order(&["a.test"]).status, 201);
    }
    refused(&client.order(&["a.test"]), 429, "rateLimited");
    let client = Client::registered(&setting.server);
    let names: Vec<_> = names[1..].iter().map(|name| &**name).collect();
    for _ in 0..20 {
        assert_eq!(client.order(&names).status, 201, "another account has its own bound");
    }
    refused(&client.order(&["a.test"]), 429, "rateLimited");
    assert_eq!(Client::registered(&setting.server).order(&["a.test"]).status, 201);
}

// RFC 8555 §7.4 and §7.1.6: an order has one certificate. While it is signed the order is `processing`, and another
// request to finalize the order is refused.
#[tokio::test]
async fn an_order_is_signed_once() {
    let (setting, storage) = WatchedStorage::setting(ServerPlan { by: SignedBy::Root, ..plan() }).await;
    // The signature reads the root's key, and waits there until the test opens the gate.
    let (gate, opened) = std::sync::mpsc::channel::<()>();
    let opened = std::sync::Mutex::new(opened);
    let wait = move |key: &str| {
        if key.ends_with("root.key") {
            let _ = opened.lock().unwrap().recv();
        }
    };
    assert!(storage.after_load.set(Box::new(wait)).is_ok());
    let client = Client::registered(&setting.server);
    let answer = client.order(&["a.test"]);
    let (order, finalize) = (path(&field(&answer, "location").into()), path(&body(&answer)["finalize"]));
    let authorization = format!("{}-0", order.strip_prefix("/order/").unwrap());
    locked(&setting.server.state).validated(&authorization, ChallengeKind::Http, Ok(SystemTime::now()));
    assert_eq!(body(&client.post(&order, ""))["status"], "ready");
    let request = request_for(&["a.test"]).1;
    let (ended, ends) = std::sync::mpsc::channel();
    let mut answers = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let ended = ended.clone();
            let (client, finalize, request) = (&client, &finalize, &request);
            scope.spawn(move || ended.send(client.post(finalize, request)).unwrap());
        }
        // Only a defect needs the limit: then both wait for the signature.
        if let Ok(refusal) = ends.recv_timeout(Duration::from_secs(10)) {
            assert_eq!(body(&client.post(&order, ""))["status"], "processing");
            answers.push(refusal);
        }
        drop(gate);
        answers.extend((answers.len()..2).map(|_| ends.recv().unwrap()));
    });
    answers.sort_by_key(|answer| answer.status);
    assert_eq!(body(&answers[0])["status"], "valid", "{answers:?}");
    refused(&answers[1], 403, "orderNotReady");
    assert_eq!(client.post(&path(&body(&answers[0])["certificate"]), "").status, 200);
    refused(&client.post(&finalize, &request), 403, "orderNotReady");
}

// As for any error, the client may try again after a panic (RFC 8555 §7.4).
#[tokio::test]
async fn a_panic_of_a_signature_opens_the_order_again() {
    let (setting, storage) = WatchedStorage::setting(ServerPlan { by: SignedBy::Root, ..plan() }).await;
    let is_first = std::sync::atomic::AtomicBool::new(true);
    let panic_once = move |key: &str| {
        let has_panicked = key.ends_with("root.key") && is_first.swap(false, std::sync::atomic::Ordering::Relaxed);
        assert!(!has_panicked, "a panic of the test");
    };
    assert!(storage.after_load.set(Box::new(panic_once)).is_ok());
    let client = Client::registered(&setting.server);
    let answer = client.order(&["a.test"]);
    let (order, finalize) = (path(&field(&answer, "location").into()), path(&body(&answer)["finalize"]));
    let authorization = format!("{}-0", order.strip_prefix("/order/").unwrap());
    locked(&setting.server.state).validated(&authorization, ChallengeKind::Http, Ok(SystemTime::now()));
    let request = request_for(&["a.test"]).1;
    refused(&client.post(&finalize, &request), 500, "serverInternal");
    assert_eq!(body(&client.post(&order, ""))["status"], "ready");
    assert_eq!(body(&client.post(&finalize, &request))["status"], "valid");
}
