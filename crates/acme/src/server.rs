//! An ACME authority (RFC 8555) that signs with a local certificate authority: Caddy's `acme_server`.
//!
//! - [`AcmeServer::answer`]: one request and its response
//! - `jws`: signed requests; `problem`: errors
//! - `account`: accounts, in storage
//! - `order`: orders, authorizations, challenges and nonces, in memory
//! - `policy`: the names that may be in certificates
//! - `validate`: verifies that a client controls a name
//!
//! It sees no connection: the caller passes a request's parts. Everything blocks except the validations, which are
//! tasks on the runtime of [`serve_with`].

mod account;
mod jws;
mod order;
mod policy;
mod problem;
#[cfg(test)]
mod tests;
mod validate;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use causeway_certs::{Keeper, SharedStorage, SignedBy};
use data_encoding::HEXLOWER;
use rcgen::CertificateSigningRequestParams;
use rustls_pki_types::CertificateSigningRequestDer;
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::runtime::Handle;
use x509_parser::prelude::{FromDer as _, X509Certificate, X509CertificationRequest};

pub use self::policy::{Policy, Rules};

use self::account::{Accounts, ClientAccount};
use self::jws::{Envelope, Jwk, Signer};
use self::order::{
    Challenge, ChallengeState, IssuedChain, NAMES_PER_ORDER_MAX, ServerOrder, ServerState, VALIDATIONS_PER_ACCOUNT_MAX,
};
use self::policy::Identifier;
use self::problem::Problem;
use self::validate::Validation;

/// The longest request body, in bytes: a signing request for a hundred names, twice encoded as base64, with an RSA key
/// and signature.
pub const BODY_BYTES_MAX: usize = 64 << 10;
/// Certificates are valid from this time before their issue on, for clients whose clocks are slow; Caddy's value.
const BACKDATED: Duration = Duration::from_secs(60);
/// Random bytes in the id of an account or order, and in a nonce.
const ID_BYTES: usize = 16;
/// Random bytes in a challenge's token. RFC 8555 §8 requires at least 128 bits of entropy.
const TOKEN_BYTES: usize = 32;

/// The settings of one server.
#[derive(Debug, Clone)]
pub struct ServerPlan {
    /// The ID of the local authority that signs.
    pub authority: String,
    /// The lifetime of certificates.
    pub lifetime: Duration,
    /// The certificate that signs.
    pub by: SignedBy,
    /// The challenges to offer, without duplicates.
    pub challenges: Vec<ChallengeKind>,
    /// The names to issue for.
    pub policy: Policy,
    /// The ports on which clients answer challenges.
    pub ports: Ports,
    /// DNS servers for DNS-01, as `host` or `host:port`; the system's if it is empty.
    pub resolvers: Vec<String>,
}

/// A way to prove control of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChallengeKind {
    /// HTTP-01 (RFC 8555 §8.3).
    Http,
    /// TLS-ALPN-01 (RFC 8737).
    TlsAlpn,
    /// DNS-01 (RFC 8555 §8.4).
    Dns,
}

impl ChallengeKind {
    /// All kinds, in the order in which they are offered.
    pub const ALL: [Self; 3] = [Self::Http, Self::TlsAlpn, Self::Dns];

    /// The kind's name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http-01",
            Self::TlsAlpn => "tls-alpn-01",
            Self::Dns => "dns-01",
        }
    }

    /// Finds a kind by its name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// All names, for error messages.
    pub fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// Whether it can verify a name. Only a DNS record proves control of all names below a domain (RFC 8555 §8.4), and
    /// an address has none (RFC 8738 §7).
    fn fits(self, identifier: &Identifier) -> bool {
        match identifier {
            Identifier::Ip(_) => self != Self::Dns,
            Identifier::Dns(_) => self == Self::Dns || !identifier.is_wildcard(),
        }
    }
}

/// Ports of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// For HTTP-01.
    pub http: u16,
    /// For TLS-ALPN-01.
    pub tls_alpn: u16,
}

impl Default for Ports {
    /// The ports of the RFCs: 80 and 443.
    fn default() -> Self {
        Self { http: 80, tls_alpn: 443 }
    }
}

/// A request, below the URL of the server's directory.
#[derive(Debug, Clone, Copy)]
pub struct ServerRequest<'r> {
    /// The method, in upper case.
    pub method: &'r str,
    /// `https://HOST/PREFIX/AUTHORITY`, as the client addresses it.
    pub base: &'r str,
    /// The rest of the path, with its first slash.
    pub path: &'r str,
    /// The value of Content-Type.
    pub media_type: &'r str,
    /// The whole body.
    pub body: &'r [u8],
}

/// A response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerResponse {
    /// The status code.
    pub status: u16,
    /// The header fields, with names in lower case.
    pub fields: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl ServerResponse {
    fn empty(status: u16) -> Self {
        Self { status, fields: Vec::new(), body: Vec::new() }
    }

    fn json(status: u16, value: &Value) -> Self {
        let fields = vec![("content-type", "application/json".to_owned())];
        Self { status, fields, body: format!("{value}\n").into_bytes() }
    }

    fn problem(problem: &Problem) -> Self {
        let fields = vec![("content-type", "application/problem+json".to_owned())];
        Self { status: problem.status, fields, body: format!("{}\n", problem.to_json()).into_bytes() }
    }

    fn field(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }
}

/// The certificates of the configuration in effect, and the runtime for validations.
#[derive(Clone)]
struct SigningContext {
    keeper: Weak<Keeper>,
    runtime: Handle,
}

/// Static, like the challenges of this process: a plan is compiled before its certificates are loaded, and replaced
/// separately.
static SIGNING: Mutex<Option<SigningContext>> = Mutex::new(None);
/// The states by authority, while a server uses them: orders survive a reload.
static SERVER_STATES: LazyLock<Mutex<HashMap<String, Weak<Mutex<ServerState>>>>> = LazyLock::new(Mutex::default);

/// Makes all servers of this process sign with `keeper`'s authorities from now on. Validations run on the current tokio
/// runtime.
///
/// # Panics
/// Panics outside of a tokio runtime.
pub fn serve_with(keeper: &Arc<Keeper>) {
    *locked(&SIGNING) = Some(SigningContext { keeper: Arc::downgrade(keeper), runtime: Handle::current() });
}

/// Ignores poisoning: every change is one insertion, removal or assignment.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An ACME server. Those with the same authority share accounts and orders.
pub struct AcmeServer {
    plan: ServerPlan,
    state: Arc<Mutex<ServerState>>,
}

/// An authenticated request.
struct Call<'r> {
    request: ServerRequest<'r>,
    envelope: Envelope,
    account: ClientAccount,
    keeper: &'r Keeper,
    now: SystemTime,
}

impl AcmeServer {
    /// Creates a server.
    pub fn new(plan: ServerPlan) -> Self {
        let mut states = locked(&SERVER_STATES);
        let known = states.get(&plan.authority).and_then(Weak::upgrade);
        let state = known.unwrap_or_default();
        states.retain(|_, state| state.strong_count() > 0);
        states.insert(plan.authority.clone(), Arc::downgrade(&state));
        drop(states);
        Self { plan, state }
    }

    /// Answers a request. Blocks on storage and signatures.
    pub fn answer(&self, request: ServerRequest<'_>, now: SystemTime) -> ServerResponse {
        let answered = self.route(request, now);
        let response = answered.unwrap_or_else(|problem| ServerResponse::problem(&problem));
        let response = response.field("cache-control", "no-store");
        if request.path == "/directory" {
            return response;
        }
        // RFC 8555 §6.5: also errors carry a nonce, for the next attempt.
        let response = response.field("link", format!("<{}/directory>;rel=\"index\"", request.base));
        match random_id() {
            Ok(nonce) => {
                locked(&self.state).add_nonce(nonce.clone());
                response.field("replay-nonce", nonce)
            }
            Err(problem) => ServerResponse::problem(&problem),
        }
    }

    fn route(&self, request: ServerRequest<'_>, now: SystemTime) -> Result<ServerResponse, Problem> {
        let base = request.base;
        match (request.method, request.path) {
            ("GET" | "HEAD", "/directory") => Ok(ServerResponse::json(
                200,
                &json!({
                    "newNonce": format!("{base}/new-nonce"),
                    "newAccount": format!("{base}/new-account"),
                    "newOrder": format!("{base}/new-order"),
                    "revokeCert": format!("{base}/revoke-cert"),
                    "keyChange": format!("{base}/key-change"),
                }),
            )),
            // RFC 8555 §7.2.
            ("HEAD", "/new-nonce") => Ok(ServerResponse::empty(200)),
            ("GET", "/new-nonce") => Ok(ServerResponse::empty(204)),
            ("POST", _) => self.post(request, now),
            _ => Err(Problem::new("malformed", 405, "this server expects signed POST requests here")),
        }
    }

    fn post(&self, request: ServerRequest<'_>, now: SystemTime) -> Result<ServerResponse, Problem> {
        let media_type = request.media_type.split(';').next().unwrap_or_default().trim();
        if !media_type.eq_ignore_ascii_case("application/jose+json") {
            let detail = format!("found the content type {media_type:?}, expected application/jose+json");
            return Err(Problem::new("malformed", 415, detail));
        }
        let envelope = Envelope::parse(request.body)?;
        // RFC 8555 §6.4: a signed request counts only for the URL that it was signed for.
        if envelope.url != format!("{}{}", request.base, request.path) {
            let detail = format!("the request was signed for another URL, {:?}", envelope.url);
            return Err(Problem::new("unauthorized", 401, detail));
        }
        if !locked(&self.state).take_nonce(&envelope.nonce) {
            return Err(Problem::new("badNonce", 400, "the nonce is unknown, used or too old"));
        }
        let signing = locked(&SIGNING).clone();
        let keeper = signing.as_ref().and_then(|signing| signing.keeper.upgrade());
        let (Some(signing), Some(keeper)) = (signing, keeper) else {
            return Err(Problem::internal(&"the certificates are not loaded yet"));
        };
        let storage = keeper.storage();
        match (request.path, &envelope.signer) {
            ("/new-account", Signer::Key(key)) => {
                envelope.verify(key)?;
                self.new_account(&request, &envelope, key, storage)
            }
            ("/revoke-cert", Signer::Key(key)) => {
                envelope.verify(key)?;
                self.revoke(&envelope, None, Some(key))
            }
            (_, Signer::Key(_)) => Err(Problem::malformed("found `jwk`, expected `kid`: the account's URL")),
            ("/new-account", Signer::Account(_)) => {
                Err(Problem::malformed("found `kid`, expected `jwk`: the account's key"))
            }
            (_, Signer::Account(url)) => {
                let id = url.strip_prefix(request.base).and_then(|path| path.strip_prefix("/account/"));
                let account = self.accounts(storage).signer(id.unwrap_or_default(), &envelope)?;
                let call = Call { request, envelope, account, keeper: &keeper, now };
                self.authenticated(call, &signing.runtime)
            }
        }
    }

    fn authenticated(&self, call: Call<'_>, runtime: &Handle) -> Result<ServerResponse, Problem> {
        let (base, now) = (call.request.base, call.now);
        let parts: Vec<&str> = call.request.path.split('/').skip(1).collect();
        let account = call.account.id.clone();
        match parts[..] {
            ["new-order"] => self.new_order(&call),
            ["key-change"] => self.change_key(&call),
            ["revoke-cert"] => self.revoke(&call.envelope, Some(&account), None),
            ["account", id] if id == account => self.account(call),
            ["account", id, "orders"] if id == account => {
                let state = locked(&self.state);
                let orders = state.orders_of(&account, now);
                let orders: Vec<_> = orders.into_iter().map(|id| format!("{base}/order/{id}")).collect();
                Ok(ServerResponse::json(200, &json!({ "orders": orders })))
            }
            ["account", ..] => Err(Problem::new("unauthorized", 401, "this is another account")),
            ["order", id] => {
                let mut state = locked(&self.state);
                let order = state.order(id, &account, now)?;
                Ok(ServerResponse::json(200, &order.to_json(id, base)))
            }
            ["order", id, "finalize"] => self.finalize(&call, id),
            ["certificate", id] => {
                let mut state = locked(&self.state);
                let issued = state.order(id, &account, now).ok().and_then(|order| order.issued());
                let pem = issued.ok_or_else(|| Problem::missing("certificate"))?.pem.clone();
                let response = ServerResponse { body: pem.into_bytes(), ..ServerResponse::empty(200) };
                Ok(response.field("content-type", "application/pem-certificate-chain"))
            }
            ["authz", id] => {
                let mut state = locked(&self.state);
                let (authorization, expires) = state.authorization(id, &account, now)?;
                // RFC 8555 §7.5.2.
                if !call.envelope.payload.is_empty() && call.envelope.payload_object()?["status"] == "deactivated" {
                    authorization.is_deactivated = true;
                }
                Ok(ServerResponse::json(200, &authorization.to_json(id, base, expires)))
            }
            ["challenge", id, kind] => self.challenge(&call, id, kind, runtime),
            _ => Err(Problem::missing("URL")),
        }
    }

    fn accounts<'s>(&'s self, storage: &'s SharedStorage) -> Accounts<'s> {
        Accounts { authority: &self.plan.authority, storage: &**storage }
    }

    fn new_account(
        &self,
        request: &ServerRequest<'_>,
        envelope: &Envelope,
        key: &Jwk,
        storage: &SharedStorage,
    ) -> Result<ServerResponse, Problem> {
        let payload = envelope.payload_object()?;
        let accounts = self.accounts(storage);
        let (account, is_new) = if payload["onlyReturnExisting"] == true {
            let missing = || Problem::new("accountDoesNotExist", 400, "no account has this key");
            (accounts.by_key(key)?.ok_or_else(missing)?, false)
        } else {
            accounts.register(key.clone(), account::contacts(&payload)?)?
        };
        if !account.is_active {
            return Err(Problem::new("unauthorized", 401, "the account of this key is deactivated"));
        }
        let url = format!("{}/account/{}", request.base, account.id);
        let status = if is_new { 201 } else { 200 };
        Ok(ServerResponse::json(status, &account.to_json(&format!("{url}/orders"))).field("location", url))
    }

    /// Reads or changes the account (RFC 8555 §7.3.2, §7.3.6).
    fn account(&self, call: Call<'_>) -> Result<ServerResponse, Problem> {
        let Call { request, envelope, mut account, keeper, .. } = call;
        if !envelope.payload.is_empty() {
            let payload = envelope.payload_object()?;
            let contacts = if payload["contact"].is_null() { None } else { Some(account::contacts(&payload)?) };
            account = self.accounts(keeper.storage()).update(&account.id, &envelope, |account| {
                if let Some(contacts) = contacts {
                    account.contacts = contacts;
                }
                account.is_active = payload["status"] != "deactivated";
            })?;
        }
        let url = format!("{}/account/{}/orders", request.base, account.id);
        Ok(ServerResponse::json(200, &account.to_json(&url)))
    }

    /// RFC 8555 §7.3.5: the payload is a JWS by the new key, which names the account and the old key.
    fn change_key(&self, call: &Call<'_>) -> Result<ServerResponse, Problem> {
        let inner = Envelope::read(&call.envelope.payload_object()?)?;
        let Signer::Key(key) = &inner.signer else {
            return Err(Problem::malformed("the inner JWS must have `jwk`: the new key"));
        };
        inner.verify(key)?;
        let payload = inner.payload_object()?;
        let url = format!("{}/account/{}", call.request.base, call.account.id);
        let is_consistent = inner.url == call.envelope.url
            && payload["account"] == url
            && Jwk::read(&payload["oldKey"])? == call.account.key;
        if !is_consistent {
            return Err(Problem::malformed("the inner JWS names another URL, account or old key"));
        }
        let accounts = self.accounts(call.keeper.storage());
        let account = accounts.change_key(&call.account.id, &call.envelope, key.clone())?;
        Ok(ServerResponse::json(200, &account.to_json(&format!("{url}/orders"))))
    }

    /// RFC 8555 §7.4.
    fn new_order(&self, call: &Call<'_>) -> Result<ServerResponse, Problem> {
        let payload = call.envelope.payload_object()?;
        if payload.get("notBefore").is_some() || payload.get("notAfter").is_some() {
            return Err(Problem::malformed("this server chooses the validity itself: no `notBefore`, no `notAfter`"));
        }
        let written =
            payload["identifiers"].as_array().filter(|names| (1..=NAMES_PER_ORDER_MAX).contains(&names.len()));
        let written = written.ok_or_else(|| {
            Problem::malformed(format!("`identifiers` is not a list of 1 to {NAMES_PER_ORDER_MAX} names"))
        })?;
        let mut identifiers = Vec::with_capacity(written.len());
        for name in written {
            let text = |member: &str| name[member].as_str().unwrap_or_default();
            let identifier = Identifier::read(text("type"), text("value"))?;
            self.plan.policy.check(&identifier)?;
            if !identifiers.contains(&identifier) {
                identifiers.push(identifier);
            }
        }
        let order = ServerOrder::new(&call.account.id, identifiers, |identifier| self.offer(identifier), call.now)?;
        let id = random_id()?;
        let mut state = locked(&self.state);
        let shown = order.to_json(&id, call.request.base);
        state.add(id.clone(), order, call.now)?;
        let url = format!("{}/order/{id}", call.request.base);
        Ok(ServerResponse::json(201, &shown).field("location", url))
    }

    /// Returns the challenges of a new authorization.
    fn offer(&self, identifier: &Identifier) -> Result<Vec<Challenge>, Problem> {
        let fitting = self.plan.challenges.iter().filter(|kind| kind.fits(identifier));
        let challenge = |kind: &ChallengeKind| {
            let mut token = [0; TOKEN_BYTES];
            aws_lc_rs::rand::fill(&mut token).map_err(|_| Problem::internal(&causeway_certs::Error::Random))?;
            Ok(Challenge { kind: *kind, token: HEXLOWER.encode(&token), state: ChallengeState::Pending })
        };
        let challenges = fitting.map(challenge).collect::<Result<Vec<_>, Problem>>()?;
        if challenges.is_empty() {
            return Err(Problem::rejected(format!(
                "{}: no challenge of this server can verify it",
                identifier.value()
            )));
        }
        Ok(challenges)
    }

    /// Begins the validation of a challenge, or shows it (RFC 8555 §7.5.1).
    fn challenge(&self, call: &Call<'_>, id: &str, kind: &str, runtime: &Handle) -> Result<ServerResponse, Problem> {
        let base = call.request.base;
        let missing = || Problem::missing("challenge");
        let up = format!("<{base}/authz/{id}>;rel=\"up\"");
        let kind = ChallengeKind::by_name(kind).ok_or_else(missing)?;
        let mut state = locked(&self.state);
        let is_full = state.validations(&call.account.id) >= VALIDATIONS_PER_ACCOUNT_MAX;
        let (authorization, _) = state.authorization(id, &call.account.id, call.now)?;
        let is_pending = authorization.status() == "pending";
        let identifier = authorization.identifier.clone();
        let challenge = authorization.challenge(kind).ok_or_else(missing)?;
        if is_pending && challenge.state == ChallengeState::Pending && !call.envelope.payload.is_empty() {
            if is_full {
                return Err(Problem::limited(format!(
                    "{VALIDATIONS_PER_ACCOUNT_MAX} challenges of the account are being verified, or wait for that"
                )));
            }
            challenge.state = ChallengeState::Processing;
            let key_authorization = format!("{}.{}", challenge.token, call.account.key.thumbprint());
            let validation = Validation {
                identifier,
                kind,
                token: challenge.token.clone(),
                key_authorization,
                ports: self.plan.ports,
                resolvers: self.plan.resolvers.clone(),
            };
            let shown = challenge.to_json(id, base);
            let queued = QueuedValidation::new(&self.state, &mut state, &call.account.id);
            // A runtime that has ended drops the task at once, which locks the state.
            drop(state);
            let id = id.to_owned();
            runtime.spawn(async move {
                let slot = validate::SLOTS.acquire().await;
                // The order may have expired meanwhile, or another challenge have decided.
                if locked(&queued.state).begin_validation(&id, kind, SystemTime::now()) {
                    let result = validation.run().await;
                    locked(&queued.state).validated(&id, kind, result.map(|()| SystemTime::now()));
                }
                drop(slot);
            });
            return Ok(ServerResponse::json(200, &shown).field("link", up));
        }
        let shown = challenge.to_json(id, base);
        Ok(ServerResponse::json(200, &shown).field("link", up))
    }

    /// RFC 8555 §7.4.
    fn finalize(&self, call: &Call<'_>, id: &str) -> Result<ServerResponse, Problem> {
        let payload = call.envelope.payload_object()?;
        let request = jws::decode("csr", payload["csr"].as_str().unwrap_or_default())?;
        let wanted = locked(&self.state).order(id, &call.account.id, call.now)?.begin()?;
        // Without the lock: other requests need the state meanwhile. A panic must not leave the order in `processing`
        // until it expires.
        let signed = catch_unwind(AssertUnwindSafe(|| self.sign(call, &request, wanted)))
            .unwrap_or_else(|_| Err(Problem::internal(&"signing the certificate failed inside the server")));
        let mut state = locked(&self.state);
        let order = state.order(id, &call.account.id, call.now)?;
        order.end(signed, call.now)?;
        let url = format!("{}/order/{id}", call.request.base);
        Ok(ServerResponse::json(200, &order.to_json(id, call.request.base)).field("location", url))
    }

    /// Signs a certificate if the signing request is for these names.
    fn sign(&self, call: &Call<'_>, request: &[u8], mut wanted: Vec<Identifier>) -> Result<IssuedChain, Problem> {
        wanted.sort();
        let (parsed, mut found) = read_request(request)?;
        found.sort();
        found.dedup();
        if found != wanted {
            return Err(bad_request("its names are not those of the order"));
        }
        // The policy may have changed since the order.
        wanted.iter().try_for_each(|identifier| self.plan.policy.check(identifier))?;
        let names: Vec<String> = wanted.iter().map(Identifier::value).collect();
        let plan = &self.plan;
        let (from, lifetime) = (call.now - BACKDATED, plan.lifetime + BACKDATED);
        let signed = call.keeper.sign(&plan.authority, &names, &parsed.public_key, lifetime, plan.by, from)?;
        let missing = || Problem::internal(&format!("there is no certificate authority '{}'", plan.authority));
        let (pem, leaf) = signed.ok_or_else(missing)?;
        // rcgen derives the key's algorithm from that of the signature. They differ for a P-384 key that signs with
        // SHA-256.
        if spki(&leaf).is_none_or(|issued| request_spki(request) != Some(issued)) {
            return Err(bad_request("its key and its signature have different algorithms"));
        }
        tracing::info!(
            "acme_server: issued a certificate of the authority '{}' for {}",
            plan.authority,
            names.join(", ")
        );
        Ok(IssuedChain { pem, leaf, is_revoked: false })
    }

    /// RFC 8555 §7.6: the account that ordered the certificate, or the certificate's key, may revoke it.
    fn revoke(&self, envelope: &Envelope, account: Option<&str>, key: Option<&Jwk>) -> Result<ServerResponse, Problem> {
        let payload = envelope.payload_object()?;
        let leaf = jws::decode("certificate", payload["certificate"].as_str().unwrap_or_default())?;
        match payload["reason"].as_u64() {
            None if payload["reason"].is_null() => {}
            // RFC 5280 §5.3.1 leaves 7 out.
            Some(0..=6 | 8..=10) => {}
            _ => {
                return Err(Problem::new(
                    "badRevocationReason",
                    400,
                    "found an unknown reason, expected 0 to 10 without 7",
                ));
            }
        }
        let mut state = locked(&self.state);
        let (owner, issued) = state.issued(&leaf).ok_or_else(|| Problem::missing("certificate"))?;
        let is_own_key = key.is_some_and(|key| {
            X509Certificate::from_der(&leaf)
                .is_ok_and(|(_, leaf)| key.is_subject_key(&leaf.public_key().subject_public_key.data))
        });
        if !is_own_key && account != Some(owner) {
            return Err(Problem::unauthorized("neither the certificate's account nor its key signed the request"));
        }
        if std::mem::replace(&mut issued.is_revoked, true) {
            return Err(Problem::new("alreadyRevoked", 400, "the certificate is revoked already"));
        }
        tracing::info!("acme_server: a certificate of the authority '{}' was revoked", self.plan.authority);
        Ok(ServerResponse::empty(200))
    }
}

/// A validation that waits or runs. It counts for its account until it is dropped, also by a panic.
struct QueuedValidation {
    state: Arc<Mutex<ServerState>>,
    account: String,
}

impl QueuedValidation {
    /// `locked` is the content of `state`.
    fn new(state: &Arc<Mutex<ServerState>>, locked: &mut ServerState, account: &str) -> Self {
        locked.add_validation(account);
        Self { state: Arc::clone(state), account: account.to_owned() }
    }
}

impl Drop for QueuedValidation {
    fn drop(&mut self) {
        locked(&self.state).end_validation(&self.account);
    }
}

fn bad_request(why: &str) -> Problem {
    Problem::new("badCSR", 400, format!("the signing request is refused: {why}"))
}

/// Parses and verifies a signing request, and returns its names.
fn read_request(der: &[u8]) -> Result<(CertificateSigningRequestParams, Vec<Identifier>), Problem> {
    let parsed = CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(der));
    let parsed = parsed.map_err(|error| bad_request(&error.to_string()))?;
    let mut names = Vec::new();
    for name in &parsed.params.subject_alt_names {
        names.push(match name {
            rcgen::SanType::DnsName(name) => Identifier::read("dns", name.as_str())?,
            rcgen::SanType::IpAddress(ip) => Identifier::ip(*ip),
            _ => return Err(bad_request("it has a name that is neither a DNS name nor an address")),
        });
    }
    // The common name counts as a name too (RFC 8555 §7.4).
    let (_, request) = X509CertificationRequest::from_der(der).map_err(|error| bad_request(&error.to_string()))?;
    for name in request.certification_request_info.subject.iter_common_name() {
        let name = name.as_str().map_err(|_| bad_request("its common name is not a text"))?;
        let kind = if name.parse::<std::net::IpAddr>().is_ok() { "ip" } else { "dns" };
        names.push(Identifier::read(kind, name)?);
    }
    Ok((parsed, names))
}

fn request_spki(der: &[u8]) -> Option<Vec<u8>> {
    let (_, request) = X509CertificationRequest::from_der(der).ok()?;
    Some(request.certification_request_info.subject_pki.raw.to_vec())
}

fn spki(leaf: &[u8]) -> Option<Vec<u8>> {
    let (_, leaf) = X509Certificate::from_der(leaf).ok()?;
    Some(leaf.public_key().raw.to_vec())
}

fn random_id() -> Result<String, Problem> {
    let mut bytes = [0; ID_BYTES];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| Problem::internal(&causeway_certs::Error::Random))?;
    Ok(HEXLOWER.encode(&bytes))
}

/// Formats a date as RFC 3339.
fn date(moment: SystemTime) -> String {
    let moment = OffsetDateTime::from(moment);
    let (day, time) = (moment.date(), moment.time());
    let (year, month, day) = (day.year(), u8::from(day.month()), day.day());
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", time.hour(), time.minute(), time.second())
}
