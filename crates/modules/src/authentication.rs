//! `authentication`: admits only requests with valid credentials, by HTTP's Basic scheme (RFC 7617).
//!
//! - [`hash`]: password hashes
//! - `cache`: results of earlier password checks
//!
//! Passwords are hashed on a thread pool of their own. If its queue is full, or one account or client address exceeds
//! its share of the queue, the response is 503. An unknown username costs as much time as the most expensive account,
//! and is limited as if it were an account, so that neither time nor load reveals which names exist.

mod cache;
pub mod hash;

use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use causeway_message::{FieldMap, FieldValue, StatusCode, names};
use causeway_pipeline::context::VarId;
use causeway_pipeline::worker::{Offloaded, Work, WorkKind, offload};
use causeway_pipeline::{Build, BuildError, Context, Fault, Handler, Reason, StateId, Step};
use serde::Deserialize;
use serde_json::{Map, Value};
use zeroize::{Zeroize as _, Zeroizing};

use cache::{Cache, CacheLookup};
use hash::Hash;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AuthenticationConfig {
    #[serde(default)]
    providers: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BasicAuthConfig {
    #[serde(default)]
    hash: PasswordHashConfig,
    #[serde(default)]
    accounts: Vec<AccountConfig>,
    #[serde(default)]
    realm: String,
    #[serde(default)]
    hash_cache: Option<NoOptions>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PasswordHashConfig {
    algorithm: String,
}

impl Default for PasswordHashConfig {
    fn default() -> Self {
        Self { algorithm: hash::Algorithm::Bcrypt.name().to_owned() }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AccountConfig {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoOptions {}

struct Authentication {
    /// `None` without a provider: then every request is rejected.
    basic: Option<Arc<Basic>>,
}

struct Basic {
    /// Sorted by name.
    accounts: Box<[Account]>,
    /// Index of the account whose password takes the longest to check.
    slowest: usize,
    challenge: Box<[u8]>,
    cache: Option<StateId<Rc<Cache>>>,
    user: VarId,
    error: VarId,
}

struct Account {
    name: Box<[u8]>,
    hash: Hash,
}

/// Like Go, ignores the unused bits after the last byte.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&alphabet::STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// Compiles the handler from its JSON.
///
/// # Errors
/// If a provider or algorithm is not supported, an account has no name, no password or the name of an earlier account,
/// or a password's hash is not valid. DEVIATES Caddy: it reports an invalid hash only when a request names the account.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let written: AuthenticationConfig = build.parse_module(value)?;
    let mut basic = None;
    for (name, provider) in &written.providers {
        if name != "http_basic" {
            let expected = "http_basic: no other provider is supported (docs/refused.md)";
            return build.at("providers", |build| Err(build.refuse(name, expected)));
        }
        basic = Some(Arc::new(build.at("providers.http_basic", |build| Basic::build(provider, build))?));
    }
    Ok(Box::new(Authentication { basic }))
}

impl Handler for Authentication {
    fn enter(&self, cx: &mut Context) -> Step {
        let Some(basic) = &self.basic else { return refused() };
        cx.with_scratch(|cx, credentials| {
            let step = basic.authenticate(cx, credentials);
            // The scratch buffer is reused by later requests: it must not keep a password.
            credentials.zeroize();
            step
        })
    }
}

fn refused() -> Step {
    let reason = Reason::Text("not authenticated".into());
    Step::Fail(Fault { status: StatusCode::UNAUTHORIZED, reason })
}

impl Basic {
    fn build(value: &Value, build: &mut Build<'_>) -> Result<Self, BuildError> {
        let written: BasicAuthConfig = build.parse(value)?;
        let Some(algorithm) = hash::Algorithm::of_name(&written.hash.algorithm) else {
            return build.at("hash.algorithm", |build| Err(build.refuse(written.hash.algorithm, "bcrypt or argon2id")));
        };
        let mut accounts: Vec<Account> = Vec::with_capacity(written.accounts.len());
        let mut identity = format!("http_basic {}", algorithm.name());
        for (index, account) in written.accounts.iter().enumerate() {
            let place = format!("accounts[{index}]");
            let (account, kept) = build.at(place, |build| Account::build(account, algorithm, build))?;
            // The cache's key contains the hashes: a changed password gets a new cache.
            let _ = write!(identity, " {:?} {kept:?}", String::from_utf8_lossy(&account.name));
            match accounts.binary_search_by(|other| other.name.cmp(&account.name)) {
                Ok(_) => {
                    let name = String::from_utf8_lossy(&account.name).into_owned();
                    return build.at(format!("accounts[{index}]"), |build| {
                        Err(build.refuse(name, "a username that no account before it has"))
                    });
                }
                Err(at) => accounts.insert(at, account),
            }
        }
        let slowest = (0..accounts.len()).max_by_key(|&at| accounts[at].hash.cost()).unwrap_or_default();
        let realm = if written.realm.is_empty() { "restricted" } else { &written.realm };
        let challenge = format!("Basic realm=\"{realm}\"").into_bytes();
        if FieldValue::parse(&challenge).is_none() {
            return build.at("realm", |build| Err(build.refuse(realm, "a text without line ends")));
        }
        Ok(Self {
            accounts: accounts.into(),
            slowest,
            challenge: challenge.into(),
            // A reload with equal accounts keeps the cache.
            cache: written.hash_cache.map(|NoOptions {}| build.allocate_kept_state(identity, |_| Rc::default())),
            user: build.allocate_slot("http.auth.user.id"),
            error: build.allocate_slot("http.auth.http_basic.error"),
        })
    }

    fn authenticate(self: &Arc<Self>, cx: &mut Context, credentials: &mut Vec<u8>) -> Step {
        let Some(colon) = read(cx.head().fields(), credentials) else { return self.challenge(cx) };
        // RFC 7617 §2: the name ends at the first colon; the password may contain more.
        let (name, password) = (&credentials[..colon], &credentials[colon + 1..]);
        let account = self.accounts.binary_search_by(|account| (*account.name).cmp(name)).ok();
        if self.accounts.is_empty() {
            return self.challenge(cx);
        }
        let Some(cache) = self.cache.map(|id| Rc::clone(cx.generation().state(id))) else {
            let this = Arc::clone(self);
            return match self.hash(cx, account, name, password) {
                Ok(same) => cx.wait(same, move |cx, same| this.conclude(cx, account, same)),
                Err(fault) => Step::Fail(fault),
            };
        };
        cx.with_scratch(|cx, key| {
            // With the name, also of an unknown account: otherwise a password that was tried with one unknown name
            // would be refused at once with another, but not with that of an account.
            key.extend_from_slice(&(name.len() as u64).to_le_bytes());
            key.extend_from_slice(name);
            key.extend_from_slice(password);
            let flight = match cache.find(key) {
                CacheLookup::Known(same) => Err(self.conclude(cx, account, Some(same))),
                CacheLookup::UnderWay(flight) => Ok(flight),
                CacheLookup::Nothing => match self.hash(cx, account, name, password) {
                    Ok(same) => Ok(cache.start(cx.worker(), key, same)),
                    Err(fault) => Err(Step::Fail(fault)),
                },
            };
            key.zeroize();
            match flight {
                Ok(flight) => {
                    let this = Arc::clone(self);
                    cx.wait(flight, move |cx, same| this.conclude(cx, account, same))
                }
                Err(step) => step,
            }
        })
    }

    /// Hashes the password on the thread pool, also for an unknown name.
    fn hash(
        self: &Arc<Self>,
        cx: &mut Context,
        account: Option<usize>,
        name: &[u8],
        password: &[u8],
    ) -> Result<Offloaded<bool>, Fault> {
        // Limited by name, also for unknown names: under load the response must not reveal which names exist.
        let work = Work::of(WorkKind::Password).for_party("account", name).for_party("client", cx.client().network());
        let (this, password) = (Arc::clone(self), Zeroizing::new(password.to_vec()));
        let at = account.unwrap_or(self.slowest);
        offload(&**cx.worker(), work, move || this.accounts[at].hash.matches(&password)).map_err(|_| Fault::busy())
    }

    fn conclude(&self, cx: &mut Context, account: Option<usize>, same: Option<bool>) -> Step {
        match (account, same) {
            (Some(account), Some(true)) => {
                cx.set_variable_text(self.user, &self.accounts[account].name);
                Step::Next
            }
            (_, None) => {
                cx.set_variable_text(self.error, b"the password could not be hashed");
                self.challenge(cx)
            }
            _ => self.challenge(cx),
        }
    }

    fn challenge(&self, cx: &mut Context) -> Step {
        let value = FieldValue::parse(&self.challenge).expect("validated at load");
        cx.response_mut().set(names::WWW_AUTHENTICATE, value);
        refused()
    }
}

impl Account {
    /// Returns the account, and its hash as a string.
    fn build(
        written: &AccountConfig,
        algorithm: hash::Algorithm,
        build: &mut Build<'_>,
    ) -> Result<(Self, String), BuildError> {
        // Placeholders that are known at load are expanded; others stay literal.
        let mut text = |written: &str| build.template_keeping_unknown(written).literal().unwrap_or(written).to_owned();
        let (name, password) = (text(&written.username), text(&written.password));
        if name.is_empty() || password.is_empty() {
            let found = if name.is_empty() { "no username" } else { "no password" };
            return Err(build.refuse(found, "a username and a password"));
        }
        // Caddy also accepts hashes that are encoded as base64 once more.
        let hash = if password.starts_with('$') {
            Some(password)
        } else {
            BASE64.decode(&password).ok().and_then(|bytes| String::from_utf8(bytes).ok())
        };
        let hash = hash.unwrap_or_default();
        if let Some(parsed) = Hash::parse(&hash, algorithm) {
            return Ok((Self { name: name.into_bytes().into(), hash: parsed }, hash));
        }
        // The value may be a plain password by mistake: the error must not show it.
        let mut expected = format!("a user with {}", algorithm.expected());
        if let Some(other) = hash::Algorithm::ALL.into_iter().find(|other| Hash::parse(&hash, *other).is_some()) {
            expected += &format!("; a hash of {0} needs 'basic_auth {0}'", other.name());
        }
        Err(build.refuse(&written.username, expected))
    }
}

/// Decodes `name:password` into `credentials` and returns the position of the first colon.
fn read(fields: &FieldMap, credentials: &mut Vec<u8>) -> Option<usize> {
    let value = fields.get(names::AUTHORIZATION)?;
    let (scheme, encoded) = value.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"Basic ") {
        return None;
    }
    BASE64.decode_vec(encoded, credentials).ok()?;
    memchr::memchr(b':', credentials)
}

#[cfg(test)]
mod tests;
