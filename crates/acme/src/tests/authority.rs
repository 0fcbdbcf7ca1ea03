//! A local ACME authority for tests. It verifies neither signatures nor challenges, and answers chosen requests with a
//! fault.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::http::double::read;

/// A request to the authority, by the resource that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AcmeStage {
    Directory,
    Nonce,
    Account,
    NewOrder,
    Authorization,
    Challenge,
    Order,
    Finalize,
    Certificate,
}

impl AcmeStage {
    /// In the order of a run without faults.
    pub(crate) const ALL: [Self; 9] = [
        Self::Directory,
        Self::Nonce,
        Self::Account,
        Self::NewOrder,
        Self::Authorization,
        Self::Challenge,
        Self::Order,
        Self::Finalize,
        Self::Certificate,
    ];

    fn of(target: &str) -> Self {
        match target.trim_start_matches('/').split('/').next().unwrap() {
            "directory" => Self::Directory,
            "nonce" => Self::Nonce,
            "account" => Self::Account,
            "new-order" => Self::NewOrder,
            "authorization" => Self::Authorization,
            "challenge" => Self::Challenge,
            "order" => Self::Order,
            "finalize" => Self::Finalize,
            "certificate" => Self::Certificate,
            other => panic!("found a request for '{other}'"),
        }
    }
}

/// The answer to one request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum InjectedFault {
    /// This status line's rest with headers, and this body. `%NONCE` in them is a fresh nonce.
    Answer(&'static str, &'static str),
    /// The end of the connection, without a response.
    Cut,
    /// The end of the connection in the middle of the usual response's body.
    CutBody,
    /// Nothing.
    Hang,
}

#[derive(Debug, Default)]
struct AuthorityState {
    /// The faults of the next requests for a stage; others get the usual answer.
    faults: VecDeque<(AcmeStage, InjectedFault)>,
    /// All requests so far.
    received: Vec<AcmeStage>,
    /// The payloads of the requests for an account.
    accounts: Vec<Value>,
    nonces: usize,
    /// The last order's progress.
    is_proven: bool,
    is_final: bool,
}

/// The running authority. Dropping it stops it.
pub(crate) struct ScriptedAuthority {
    pub(crate) directory: String,
    /// The root of its own HTTPS certificate, and the chain that it issues, as PEM.
    pub(crate) root: String,
    state: Arc<Mutex<AuthorityState>>,
    task: JoinHandle<()>,
}

impl ScriptedAuthority {
    pub(crate) async fn new() -> Self {
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
        let tls = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth();
        let tls = TlsAcceptor::from(Arc::new(tls.with_single_cert(vec![own.cert.der().clone()], key).unwrap()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let state = Arc::new(Mutex::new(AuthorityState::default()));
        let root = own.cert.pem();
        let (shared, base, chain) = (Arc::clone(&state), url.clone(), root.clone());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, state, base, chain) = (tls.clone(), Arc::clone(&shared), base.clone(), chain.clone());
                tokio::spawn(async move {
                    let Ok(mut stream) = tls.accept(stream).await else { return };
                    while let Some(request) = read(&mut stream).await {
                        let (_, target) = request.line.split_once(' ').unwrap();
                        let stage = AcmeStage::of(target);
                        let (fault, usual, nonce) = {
                            let mut state = state.lock().unwrap();
                            state.received.push(stage);
                            if stage == AcmeStage::Account {
                                state.accounts.push(payload(&request.body));
                            }
                            let at = state.faults.iter().position(|(faulty, _)| *faulty == stage);
                            let fault = at.and_then(|at| state.faults.remove(at)).map(|(_, fault)| fault);
                            let nonce = state.nonce();
                            // With a fault that is no refusal, it does its work all the same.
                            let is_refused =
                                matches!(fault, Some(InjectedFault::Answer(head, _)) if !head.starts_with("200"));
                            let usual = if is_refused { String::new() } else { state.answer(stage, &base, &chain) };
                            (fault, usual, nonce)
                        };
                        let response = match fault {
                            None => usual,
                            Some(InjectedFault::Answer(head, body)) => respond(&head.replace("%NONCE", &nonce), body),
                            Some(InjectedFault::Cut) => return,
                            Some(InjectedFault::CutBody) => usual[..usual.len() - usual.len() / 4].to_owned(),
                            Some(InjectedFault::Hang) => {
                                tokio::time::sleep(Duration::from_secs(3600)).await;
                                return;
                            }
                        };
                        // A response to HEAD has no body.
                        let is_head = request.line.starts_with("HEAD ");
                        let end = response.find("\r\n\r\n").filter(|_| is_head).map_or(response.len(), |at| at + 4);
                        stream.write_all(&response.as_bytes()[..end]).await.unwrap();
                        if matches!(fault, Some(InjectedFault::CutBody)) {
                            return;
                        }
                    }
                });
            }
        });
        Self { directory: format!("{url}/directory"), root, state, task }
    }

    /// Answers the next requests for a stage with these faults, in order.
    pub(crate) fn fail(&self, faults: &[(AcmeStage, InjectedFault)]) {
        let mut state = self.state.lock().unwrap();
        state.faults = faults.iter().copied().collect();
        state.received.clear();
        state.accounts.clear();
    }

    /// The payloads of the requests for an account since the last call of [`fail`](Self::fail).
    pub(crate) fn accounts(&self) -> Vec<Value> {
        self.state.lock().unwrap().accounts.clone()
    }

    /// The number of requests for this stage since the last call of [`fail`](Self::fail).
    pub(crate) fn count(&self, stage: AcmeStage) -> usize {
        self.state.lock().unwrap().received.iter().filter(|received| **received == stage).count()
    }
}

impl Drop for ScriptedAuthority {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl AuthorityState {
    fn nonce(&mut self) -> String {
        self.nonces += 1;
        format!("nonce{}", self.nonces)
    }

    /// The response of an authority without faults.
    fn answer(&mut self, stage: AcmeStage, base: &str, chain: &str) -> String {
        let url = |resource: &str| format!("{base}/{resource}");
        let mut head = format!("200 OK\r\nReplay-Nonce: {}", self.nonce());
        let body = match stage {
            AcmeStage::Directory => {
                json!({
                    "newNonce": url("nonce"), "newAccount": url("account"), "newOrder": url("new-order"),
                    "renewalInfo": url("renewal-info"),
                })
            }
            AcmeStage::Nonce => Value::Null,
            AcmeStage::Account => {
                head.push_str(&format!("\r\nLocation: {}", url("account/1")));
                json!({ "status": "valid" })
            }
            AcmeStage::NewOrder => {
                (self.is_proven, self.is_final) = (false, false);
                head.push_str(&format!("\r\nLocation: {}", url("order/1")));
                self.order(base)
            }
            AcmeStage::Authorization => json!({
                "status": if self.is_proven { "valid" } else { "pending" },
                "identifier": { "type": "dns", "value": "name.example" },
                "challenges": [{ "type": "http-01", "url": url("challenge/1"), "token": "token", "status": "pending" }],
            }),
            AcmeStage::Challenge => {
                self.is_proven = true;
                json!({ "type": "http-01", "url": url("challenge/1"), "token": "token", "status": "processing" })
            }
            AcmeStage::Order => self.order(base),
            AcmeStage::Finalize => {
                self.is_final = true;
                self.order(base)
            }
            AcmeStage::Certificate => return respond(&head, chain),
        };
        respond(&head, &body.to_string())
    }

    fn order(&self, base: &str) -> Value {
        let mut order = json!({
            "status": "pending",
            "identifiers": [{ "type": "dns", "value": "name.example" }],
            "authorizations": [format!("{base}/authorization/1")],
            "finalize": format!("{base}/finalize/1"),
        });
        if self.is_proven {
            order["status"] = "ready".into();
        }
        if self.is_final {
            order["status"] = "valid".into();
            order["certificate"] = format!("{base}/certificate/1").into();
        }
        order
    }
}

/// The payload of a JWS (RFC 7515 §7.2.2).
fn payload(body: &str) -> Value {
    let jws: Value = serde_json::from_str(body).unwrap();
    let payload = BASE64_URL_SAFE_NO_PAD.decode(jws["payload"].as_str().unwrap()).unwrap();
    serde_json::from_slice(&payload).unwrap()
}

fn respond(head: &str, body: &str) -> String {
    format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}
