//! Orders with their authorizations and challenges (RFC 8555 §7.1.6), and the nonces of one authority. All of it is in
//! memory: after a restart clients begin their orders again.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::policy::Identifier;
use super::problem::Problem;
use super::{ChallengeKind, date};

/// The latest nonces, used or not. A client whose nonce has been dropped gets another one and repeats its request.
const NONCES_MAX: usize = 4096;
/// Names in all orders, and in one.
const NAMES_MAX: usize = 20_000;
pub(super) const NAMES_PER_ORDER_MAX: usize = 100;
/// Orders of one account that have no certificate yet, and the names in them: a tenth of all names, so that no account
/// takes the place of all others.
const OPEN_PER_ACCOUNT_MAX: usize = 300;
const OPEN_NAMES_PER_ACCOUNT_MAX: usize = NAMES_MAX / 10;
/// Challenges of one account that are being verified or wait for that: one for each of its orders. Accounts share the
/// places, so the challenges of an account wait for at most as many of another one.
pub(super) const VALIDATIONS_PER_ACCOUNT_MAX: usize = OPEN_PER_ACCOUNT_MAX;
/// How long an order exists without a certificate.
const OPEN_LIFETIME: Duration = Duration::from_secs(60 * 60);
/// How long an order with its certificate's URL exists after the issue, and how long if new orders need its place.
const ISSUED_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
const ISSUED_LIFETIME_MIN: Duration = Duration::from_secs(60 * 60);

/// The changing state of one authority's server.
#[derive(Default)]
pub(super) struct ServerState {
    nonces: HashSet<String>,
    nonce_order: VecDeque<String>,
    orders: HashMap<String, ServerOrder>,
    /// The number of validations that wait or run, by account.
    validations: HashMap<String, usize>,
}

/// A client's request for one certificate.
#[derive(Debug)]
pub(super) struct ServerOrder {
    pub(super) account: String,
    pub(super) authorizations: Vec<Authorization>,
    pub(super) expires: SystemTime,
    issuance: Issuance,
}

/// `Open` → `Processing`, while the certificate is signed → `Issued`; or back to `Open` if it could not be signed.
#[derive(Debug)]
enum Issuance {
    Open,
    Processing,
    Issued(IssuedChain),
}

/// The result of an order.
#[derive(Debug, Clone)]
pub(super) struct IssuedChain {
    /// PEM, leaf first.
    pub(super) pem: String,
    /// The leaf's DER.
    pub(super) leaf: Vec<u8>,
    pub(super) is_revoked: bool,
}

/// Proof that the account controls one name of the order.
#[derive(Debug)]
pub(super) struct Authorization {
    pub(super) identifier: Identifier,
    pub(super) is_deactivated: bool,
    pub(super) challenges: Vec<Challenge>,
}

#[derive(Debug)]
pub(super) struct Challenge {
    pub(super) kind: ChallengeKind,
    pub(super) token: String,
    pub(super) state: ChallengeState,
}

/// `Pending` → `Processing`, when the client responds → `Valid` or `Invalid`.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ChallengeState {
    Pending,
    Processing,
    Valid(SystemTime),
    Invalid(Problem),
}

impl ServerState {
    pub(super) fn add_nonce(&mut self, nonce: String) {
        if self.nonce_order.len() >= NONCES_MAX
            && let Some(oldest) = self.nonce_order.pop_front()
        {
            self.nonces.remove(&oldest);
        }
        self.nonces.insert(nonce.clone());
        self.nonce_order.push_back(nonce);
    }

    /// Uses a nonce up. Returns whether it was unused.
    pub(super) fn take_nonce(&mut self, nonce: &str) -> bool {
        self.nonces.remove(nonce)
    }

    pub(super) fn add(&mut self, id: String, order: ServerOrder, now: SystemTime) -> Result<(), Problem> {
        self.orders.retain(|_, order| now < order.expires);
        let open = self.orders.values().filter(|known| known.account == order.account && known.issued().is_none());
        let (mut open_orders, mut open_names) = (0, order.authorizations.len());
        for known in open {
            open_orders += 1;
            open_names += known.authorizations.len();
        }
        if open_orders >= OPEN_PER_ACCOUNT_MAX {
            return Err(Problem::limited(format!(
                "the account has {OPEN_PER_ACCOUNT_MAX} orders without a certificate"
            )));
        }
        if open_names > OPEN_NAMES_PER_ACCOUNT_MAX {
            return Err(Problem::limited(format!(
                "the account's orders without a certificate would have more than {OPEN_NAMES_PER_ACCOUNT_MAX} names"
            )));
        }
        let has_room = |state: &Self| {
            let names: usize = state.orders.values().map(|order| order.authorizations.len()).sum();
            names + order.authorizations.len() <= NAMES_MAX
        };
        if !has_room(self) {
            let latest = now + (ISSUED_LIFETIME - ISSUED_LIFETIME_MIN);
            self.orders.retain(|_, order| order.issued().is_none() || latest < order.expires);
        }
        if !has_room(self) {
            return Err(Problem::limited(format!("the orders of this server have {NAMES_MAX} names, its limit")));
        }
        self.orders.insert(id, order);
        Ok(())
    }

    /// Returns an order of this account.
    pub(super) fn order(&mut self, id: &str, account: &str, now: SystemTime) -> Result<&mut ServerOrder, Problem> {
        let order = self.orders.get_mut(id).filter(|order| order.account == account && now < order.expires);
        order.ok_or_else(|| Problem::missing("order"))
    }

    /// Returns an authorization of this account, by `ORDER-INDEX`, with its order's expiry date.
    pub(super) fn authorization(
        &mut self,
        id: &str,
        account: &str,
        now: SystemTime,
    ) -> Result<(&mut Authorization, SystemTime), Problem> {
        let missing = || Problem::missing("authorization");
        let (order, index) = id.split_once('-').ok_or_else(missing)?;
        let order = self.order(order, account, now).map_err(|_| missing())?;
        let at: usize = index.parse().map_err(|_| missing())?;
        let expires = order.expires;
        Ok((order.authorizations.get_mut(at).ok_or_else(missing)?, expires))
    }

    /// The number of validations of an account that wait or run.
    pub(super) fn validations(&self, account: &str) -> usize {
        self.validations.get(account).copied().unwrap_or_default()
    }

    pub(super) fn add_validation(&mut self, account: &str) {
        *self.validations.entry(account.to_owned()).or_default() += 1;
    }

    pub(super) fn end_validation(&mut self, account: &str) {
        if let Some(count) = self.validations.get_mut(account) {
            *count -= 1;
            if *count == 0 {
                self.validations.remove(account);
            }
        }
    }

    /// Returns whether a validation that has waited is still of use. If its authorization has been decided meanwhile,
    /// the challenge is pending again (RFC 8555 §7.1.6: only the authorization has a final state then).
    pub(super) fn begin_validation(&mut self, id: &str, kind: ChallengeKind, now: SystemTime) -> bool {
        let Some((expires, authorization)) = self.authorization_of_any(id) else { return false };
        let is_pending = now < expires && authorization.status() == "pending";
        if let Some(challenge) = authorization.challenge(kind).filter(|_| !is_pending) {
            challenge.state = ChallengeState::Pending;
        }
        is_pending
    }

    /// An authorization of any account, with its order's expiry date.
    fn authorization_of_any(&mut self, id: &str) -> Option<(SystemTime, &mut Authorization)> {
        let (order, index) = id.split_once('-')?;
        let order = self.orders.get_mut(order)?;
        Some((order.expires, order.authorizations.get_mut(index.parse::<usize>().ok()?)?))
    }

    /// Records the result of a validation. The order may have expired meanwhile.
    pub(super) fn validated(&mut self, id: &str, kind: ChallengeKind, result: Result<SystemTime, Problem>) {
        let found = self.authorization_of_any(id);
        let challenge = found.and_then(|(_, authorization)| authorization.challenge(kind));
        if let Some(challenge) = challenge {
            challenge.state = match result {
                Ok(at) => ChallengeState::Valid(at),
                Err(problem) => ChallengeState::Invalid(problem),
            };
        }
    }

    /// The ids of an account's orders.
    pub(super) fn orders_of(&self, account: &str, now: SystemTime) -> Vec<&str> {
        let own = self.orders.iter().filter(|(_, order)| order.account == account && now < order.expires);
        own.map(|(id, _)| &**id).collect()
    }

    /// Returns the account of an issued certificate, and its record.
    pub(super) fn issued(&mut self, leaf: &[u8]) -> Option<(&str, &mut IssuedChain)> {
        self.orders.values_mut().find_map(|order| match &mut order.issuance {
            Issuance::Issued(issued) if issued.leaf == leaf => Some((&*order.account, issued)),
            _ => None,
        })
    }
}

impl ServerOrder {
    /// An order whose authorizations are all pending. The tokens are 128 random bits or more.
    pub(super) fn new(
        account: &str,
        identifiers: Vec<Identifier>,
        challenges: impl Fn(&Identifier) -> Result<Vec<Challenge>, Problem>,
        now: SystemTime,
    ) -> Result<Self, Problem> {
        let authorization = |identifier: Identifier| {
            let challenges = challenges(&identifier)?;
            Ok(Authorization { identifier, is_deactivated: false, challenges })
        };
        let authorizations = identifiers.into_iter().map(authorization).collect::<Result<_, Problem>>()?;
        Ok(Self { account: account.to_owned(), authorizations, expires: now + OPEN_LIFETIME, issuance: Issuance::Open })
    }

    /// Begins the signature of a certificate for the names that it returns. Another one cannot begin before
    /// [`end`](Self::end).
    pub(super) fn begin(&mut self) -> Result<Vec<Identifier>, Problem> {
        if self.status() != "ready" {
            let detail = format!("the order is {}, expected ready", self.status());
            return Err(Problem::new("orderNotReady", 403, detail));
        }
        self.issuance = Issuance::Processing;
        Ok(self.authorizations.iter().map(|one| one.identifier.clone()).collect())
    }

    /// Ends the signature. After an error the client may try again (RFC 8555 §7.4).
    pub(super) fn end(&mut self, signed: Result<IssuedChain, Problem>, now: SystemTime) -> Result<(), Problem> {
        match signed {
            Ok(issued) => {
                self.issuance = Issuance::Issued(issued);
                self.expires = now + ISSUED_LIFETIME;
                Ok(())
            }
            Err(problem) => {
                self.issuance = Issuance::Open;
                Err(problem)
            }
        }
    }

    pub(super) fn issued(&self) -> Option<&IssuedChain> {
        match &self.issuance {
            Issuance::Issued(issued) => Some(issued),
            Issuance::Open | Issuance::Processing => None,
        }
    }

    pub(super) fn status(&self) -> &'static str {
        let all = |status: &str| self.authorizations.iter().all(|authorization| authorization.status() == status);
        let is_waiting = self.authorizations.iter().all(|one| matches!(one.status(), "pending" | "valid"));
        match &self.issuance {
            Issuance::Issued(_) => "valid",
            Issuance::Processing => "processing",
            Issuance::Open if all("valid") => "ready",
            Issuance::Open if is_waiting => "pending",
            Issuance::Open => "invalid",
        }
    }

    /// The order as clients see it; `base` is the URL of the server's objects.
    pub(super) fn to_json(&self, id: &str, base: &str) -> Value {
        let identifiers: Vec<_> =
            self.authorizations.iter().map(|one| identifier(&one.identifier.value(), one)).collect();
        let authorizations: Vec<_> = (0..identifiers.len()).map(|at| format!("{base}/authz/{id}-{at}")).collect();
        let mut order = json!({
            "id": id,
            "status": self.status(),
            "expires": date(self.expires),
            "identifiers": identifiers,
            "authorizations": authorizations,
            "finalize": format!("{base}/order/{id}/finalize"),
        });
        if self.issued().is_some() {
            order["certificate"] = format!("{base}/certificate/{id}").into();
        }
        let failed = self.authorizations.iter().find_map(Authorization::failure);
        if let Some(problem) = failed.filter(|_| matches!(self.issuance, Issuance::Open)) {
            order["error"] = problem.to_json();
        }
        order
    }
}

fn identifier(value: &str, authorization: &Authorization) -> Value {
    json!({ "type": authorization.identifier.kind(), "value": value })
}

impl Authorization {
    pub(super) fn challenge(&mut self, kind: ChallengeKind) -> Option<&mut Challenge> {
        self.challenges.iter_mut().find(|challenge| challenge.kind == kind)
    }

    pub(super) fn status(&self) -> &'static str {
        let any = |fits: fn(&ChallengeState) -> bool| self.challenges.iter().any(|challenge| fits(&challenge.state));
        if self.is_deactivated {
            "deactivated"
        } else if any(|state| matches!(state, ChallengeState::Invalid(_))) {
            // RFC 8555 §7.1.6: one failed challenge fails the authorization.
            "invalid"
        } else if any(|state| matches!(state, ChallengeState::Valid(_))) {
            "valid"
        } else {
            "pending"
        }
    }

    fn failure(&self) -> Option<&Problem> {
        self.challenges.iter().find_map(|challenge| match &challenge.state {
            ChallengeState::Invalid(problem) => Some(problem),
            _ => None,
        })
    }

    pub(super) fn to_json(&self, id: &str, base: &str, expires: SystemTime) -> Value {
        let challenges: Vec<_> = self.challenges.iter().map(|challenge| challenge.to_json(id, base)).collect();
        let mut authorization = json!({
            "identifier": identifier(&self.identifier.base(), self),
            "status": self.status(),
            "challenges": challenges,
            "expires": date(expires),
        });
        if self.identifier.is_wildcard() {
            authorization["wildcard"] = true.into();
        }
        authorization
    }
}

impl Challenge {
    /// The challenge as clients see it; `id` is that of its authorization.
    pub(super) fn to_json(&self, id: &str, base: &str) -> Value {
        let status = match &self.state {
            ChallengeState::Pending => "pending",
            ChallengeState::Processing => "processing",
            ChallengeState::Valid(_) => "valid",
            ChallengeState::Invalid(_) => "invalid",
        };
        let kind = self.kind.name();
        let mut challenge = json!({ "type": kind, "status": status, "token": self.token, "url": format!("{base}/challenge/{id}/{kind}") });
        match &self.state {
            ChallengeState::Valid(at) => challenge["validated"] = date(*at).into(),
            ChallengeState::Invalid(problem) => challenge["error"] = problem.to_json(),
            ChallengeState::Pending | ChallengeState::Processing => {}
        }
        challenge
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(account: &str, names: usize, now: SystemTime) -> ServerOrder {
        let names = (0..names).map(|at| Identifier::Dns(format!("a{at}.test"))).collect();
        ServerOrder::new(account, names, |_| Ok(Vec::new()), now).unwrap()
    }

    /// A state in which ten accounts have all names.
    fn full_state(is_issued: bool, now: SystemTime) -> ServerState {
        let mut state = ServerState::default();
        for at in 0..NAMES_MAX / NAMES_PER_ORDER_MAX {
            let mut order = order(&format!("account{}", at % 10), NAMES_PER_ORDER_MAX, now);
            if is_issued {
                let issued = IssuedChain { pem: String::new(), leaf: Vec::new(), is_revoked: false };
                order.end(Ok(issued), now).unwrap();
            }
            state.add(at.to_string(), order, now).unwrap();
        }
        state
    }

    // Our bound: neither orders that their clients leave nor old certificates take the place of new orders for longer
    // than an hour.
    #[test]
    fn a_full_book_has_room_after_an_hour() {
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        for is_issued in [false, true] {
            let mut state = full_state(is_issued, start);
            for (seconds, is_added) in [(3599, false), (3600, true)] {
                let now = start + Duration::from_secs(seconds);
                let added = state.add("new".to_owned(), order("another", 1, now), now);
                assert_eq!(added.map_err(|problem| problem.kind), if is_added { Ok(()) } else { Err("rateLimited") });
            }
            assert_eq!(state.orders.len(), 1);
        }
    }

    // Clients may download and revoke a certificate for a day.
    #[test]
    fn an_order_with_a_certificate_exists_for_a_day() {
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let mut state = full_state(true, start);
        state.orders.remove("0");
        let exists = |state: &mut ServerState, seconds: u64| {
            let now = start + Duration::from_secs(seconds);
            state.add("new".to_owned(), order("another", 1, now), now).unwrap();
            state.order("1", "account1", now).is_ok()
        };
        assert!(exists(&mut state, 24 * 60 * 60 - 1));
        assert!(!exists(&mut state, 24 * 60 * 60));
    }
}
