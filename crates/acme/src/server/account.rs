//! The accounts of a server, in storage: `acme_server/AUTHORITY/accounts/ID.json`, and `keys/FINGERPRINT.json`, which
//! finds an account by its key. They outlive the process; orders do not.

use causeway_certs::{Durability, Error, Lock, Storage, safe_key};
use serde_json::{Value, json};

use super::jws::{Envelope, Jwk};
use super::problem::Problem;

/// Accounts of one authority. Each is a file of some hundred bytes.
pub(super) const ACCOUNTS_MAX: usize = 10_000;
const CONTACTS_MAX: usize = 10;
const CONTACT_BYTES_MAX: usize = 256;

/// A registered client.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ClientAccount {
    pub(super) id: String,
    pub(super) key: Jwk,
    pub(super) contacts: Vec<String>,
    pub(super) is_active: bool,
}

impl ClientAccount {
    /// The account as clients see it (RFC 8555 §7.1.2).
    pub(super) fn to_json(&self, orders_url: &str) -> Value {
        json!({ "status": self.status(), "contact": self.contacts, "orders": orders_url })
    }

    fn status(&self) -> &'static str {
        if self.is_active { "valid" } else { "deactivated" }
    }
}

/// The accounts of one authority.
pub(super) struct Accounts<'s> {
    pub(super) authority: &'s str,
    pub(super) storage: &'s dyn Storage,
}

impl Accounts<'_> {
    /// Finds an account by its id. `None` also for an id that this server cannot have made.
    pub(super) fn by_id(&self, id: &str) -> Result<Option<ClientAccount>, Problem> {
        if id.len() != 2 * super::ID_BYTES || !id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Ok(None);
        }
        let at = self.key("accounts", id);
        let Some(text) = self.storage.load(&at)? else { return Ok(None) };
        let account = read(id, &text);
        account.map(Some).ok_or_else(|| Problem::internal(&format!("{} is malformed", self.storage.location(&at))))
    }

    /// Returns the account of this id, which has signed the request: the signature is by the key that it has now, and
    /// it is active.
    pub(super) fn signer(&self, id: &str, envelope: &Envelope) -> Result<ClientAccount, Problem> {
        let missing = || Problem::new("accountDoesNotExist", 400, "this server has no such account");
        let account = self.by_id(id)?.ok_or_else(missing)?;
        envelope.verify(&account.key)?;
        if !account.is_active {
            return Err(Problem::new("unauthorized", 401, "the account is deactivated"));
        }
        Ok(account)
    }

    pub(super) fn by_key(&self, key: &Jwk) -> Result<Option<ClientAccount>, Problem> {
        let Some(text) = self.storage.load(&self.key("keys", &key.fingerprint()))? else { return Ok(None) };
        let value: Value = serde_json::from_slice(&text).unwrap_or_default();
        let account = value["account"].as_str().map(|id| self.by_id(id)).transpose()?.flatten();
        // After a change of keys the old entry may still exist.
        Ok(account.filter(|account| account.key == *key))
    }

    /// Registers an account, unless the key has one. Returns whether it is new.
    pub(super) fn register(&self, key: Jwk, contacts: Vec<String>) -> Result<(ClientAccount, bool), Problem> {
        let lock = self.lock()?;
        if let Some(known) = self.by_key(&key)? {
            return Ok((known, false));
        }
        if self.storage.list(&self.dir("accounts"))?.len() >= ACCOUNTS_MAX {
            return Err(Problem::limited(format!("this server has {ACCOUNTS_MAX} accounts already")));
        }
        let account = ClientAccount { id: super::random_id()?, key, contacts, is_active: true };
        self.write(&account, &lock)?;
        Ok((account, true))
    }

    /// Changes the account that has signed the request.
    pub(super) fn update(
        &self,
        id: &str,
        envelope: &Envelope,
        change: impl FnOnce(&mut ClientAccount),
    ) -> Result<ClientAccount, Problem> {
        let lock = self.lock()?;
        // Again, under the lock: meanwhile another request may have changed the key or deactivated the account.
        let mut account = self.signer(id, envelope)?;
        change(&mut account);
        self.write(&account, &lock)?;
        Ok(account)
    }

    /// Replaces the key of the account that has signed the request, unless another account has it.
    pub(super) fn change_key(&self, id: &str, envelope: &Envelope, key: Jwk) -> Result<ClientAccount, Problem> {
        let lock = self.lock()?;
        // Again, as in `update`.
        let mut account = self.signer(id, envelope)?;
        if self.by_key(&key)?.is_some() {
            return Err(Problem::new("malformed", 409, "another account has this key"));
        }
        let old = self.key("keys", &account.key.fingerprint());
        account.key = key;
        self.write(&account, &lock)?;
        self.storage.delete(&old)?;
        Ok(account)
    }

    fn write(&self, account: &ClientAccount, lock: &Lock) -> Result<(), Problem> {
        let ClientAccount { id, key, contacts, .. } = account;
        let record = json!({ "status": account.status(), "contact": contacts, "key": key.to_json() });
        let put = |at: &str, value: &Value| lock.store(at, format!("{value:#}").as_bytes(), Durability::Flushed);
        // The account first: an entry without its account would find nothing.
        put(&self.key("accounts", id), &record)?;
        Ok(put(&self.key("keys", &key.fingerprint()), &json!({ "account": id }))?)
    }

    fn lock(&self) -> Result<Lock, Error> {
        self.storage.lock(&format!("acme_server_{}", self.authority))
    }

    fn dir(&self, kind: &str) -> String {
        format!("acme_server/{}/{kind}", safe_key(self.authority))
    }

    fn key(&self, kind: &str, name: &str) -> String {
        format!("{}/{name}.json", self.dir(kind))
    }
}

fn read(id: &str, text: &[u8]) -> Option<ClientAccount> {
    let record: Value = serde_json::from_slice(text).ok()?;
    let contacts = record["contact"].as_array()?.iter().filter_map(|contact| contact.as_str().map(str::to_owned));
    Some(ClientAccount {
        id: id.to_owned(),
        key: Jwk::read(&record["key"]).ok()?,
        contacts: contacts.collect(),
        is_active: record["status"] == "valid",
    })
}

/// Reads the member `contact` of a request (RFC 8555 §7.3).
pub(super) fn contacts(payload: &Value) -> Result<Vec<String>, Problem> {
    let written = match &payload["contact"] {
        Value::Null => return Ok(Vec::new()),
        Value::Array(contacts) if contacts.len() <= CONTACTS_MAX => contacts,
        _ => {
            return Err(Problem::new(
                "invalidContact",
                400,
                format!("`contact` is not a list of at most {CONTACTS_MAX}"),
            ));
        }
    };
    let contact = |value: &Value| {
        let text = value.as_str().filter(|text| text.len() <= CONTACT_BYTES_MAX && !text.contains(char::is_control));
        let text = text.ok_or_else(|| Problem::new("invalidContact", 400, "a contact is not a short text"))?;
        match text.strip_prefix("mailto:") {
            Some(address) if address.contains('@') => Ok(text.to_owned()),
            Some(_) => Err(Problem::new("invalidContact", 400, format!("{text:?} is no address"))),
            None => Err(Problem::new("unsupportedContact", 400, "expected contacts that begin with \"mailto:\"")),
        }
    };
    written.iter().map(contact).collect()
}
