//! The account at an authority, in storage as Caddy keeps it: `acme/AUTHORITY/users/EMAIL/USER.json` and `.key`. An
//! account by its key has `key-HASH` in place of the address.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use causeway_certs::{Durability, Lock, SharedStorage, Storage, safe_key};
use data_encoding::HEXLOWER;
use instant_acme::{Account, AccountBuilder, ExternalAccountKey, Key, NewAccount};
use rcgen::KeyPair;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};

use crate::authority_client::AuthorityClient;
use crate::bad_nonce::retry_bad_nonce;
use crate::named_locks::NamedLocks;
use crate::{AcmeError, ExternalAccount, Issuer, signed, zerossl};

/// How long the authority may take to answer all requests that register its account, or that open it.
const ACCOUNT_TIMEOUT: Duration = Duration::from_secs(60);

/// How long an order waits for the registration by another one of this process: as long as for that by another process.
const TURN_TIMEOUT: Duration = Duration::from_secs(30);

/// One registration of an account at a time: concurrent orders of a new account would otherwise register one account
/// each.
static REGISTRATIONS: LazyLock<NamedLocks> = LazyLock::new(NamedLocks::default);

/// The key of an account that exists at the authority, P-256. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct AccountKey(Arc<[u8]>);

impl AccountKey {
    /// Parses a PEM text: PKCS #8 or SEC 1. `None` for another text or another kind of key.
    pub fn from_pem(text: &str) -> Option<Self> {
        Some(Self(pkcs8(text.as_bytes())?.secret_pkcs8_der().into()))
    }

    fn pkcs8(&self) -> PrivatePkcs8KeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.0.to_vec())
    }

    /// A name of the key for storage: the beginning of its digest.
    fn fingerprint(&self) -> String {
        let digest = digest(&SHA256, &self.0);
        HEXLOWER.encode(&digest.as_ref()[..16])
    }
}

impl std::fmt::Debug for AccountKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AccountKey")
    }
}

/// Returns the issuer's account: the one in storage, or a new one.
pub(crate) async fn open(
    issuer: &Issuer,
    authority: &AuthorityClient,
    storage: &SharedStorage,
) -> Result<Account, AcmeError> {
    let known = match read(issuer, storage).await? {
        Some(known) => known,
        None => register(issuer, authority, storage, None).await?,
    };
    in_time(connect(issuer, authority, known)).await
}

/// Returns the issuer's account after the authority has answered that it has no account `lost`: another one in storage,
/// or a new one.
pub(crate) async fn replace(
    issuer: &Issuer,
    authority: &AuthorityClient,
    storage: &SharedStorage,
    lost: &str,
) -> Result<Account, AcmeError> {
    let known = register(issuer, authority, storage, Some(lost)).await?;
    in_time(connect(issuer, authority, known)).await
}

async fn in_time<T>(work: impl Future<Output = Result<T, AcmeError>>) -> Result<T, AcmeError> {
    tokio::time::timeout(ACCOUNT_TIMEOUT, work).await.unwrap_or(Err(AcmeError::Timeout(ACCOUNT_TIMEOUT)))
}

/// Registers an account and stores it, unless storage has one by now that is not `lost`. A key in storage without an
/// account is registered: the authority returns the account that it has for this key (RFC 8555 §7.3.1).
async fn register(
    issuer: &Issuer,
    authority: &AuthorityClient,
    storage: &SharedStorage,
    lost: Option<&str>,
) -> Result<StoredAccount, AcmeError> {
    let [account_at, _] = storage_keys(issuer);
    let turn = REGISTRATIONS.lock(format!("{} {account_at}", storage.identity()));
    let turn = tokio::time::timeout(TURN_TIMEOUT, turn).await;
    let _turn = turn.map_err(|_| causeway_certs::Error::Locked(storage.location(&account_at)))?;
    // And one at a time of all processes with this storage.
    let dir = account_at.rsplit_once('/').map_or(&*account_at, |(dir, _)| dir);
    let name = format!("register_acme_account_{dir}");
    let lock = blocking(storage, move |storage| Ok(storage.lock(&name)?)).await?;
    // Without the waits for locks, which are no failure of the authority.
    in_time(register_locked(issuer, authority, storage, lost, lock)).await
}

/// As [`register`], with the lock of the account's directory.
async fn register_locked(
    issuer: &Issuer,
    authority: &AuthorityClient,
    storage: &SharedStorage,
    lost: Option<&str>,
    lock: Lock,
) -> Result<StoredAccount, AcmeError> {
    let [account_at, key_at] = storage_keys(issuer);
    if let Some(known) = read(issuer, storage).await?
        && lost.is_none_or(|lost| lost != known.url)
    {
        return Ok(known);
    }
    if let Some(own) = &issuer.account_key {
        let (key, lock) = (own.pkcs8(), Arc::new(lock));
        let url = signed::find_account(issuer, authority, &key).await?;
        store_key(&key, key_at, storage, &lock).await.map_err(AcmeError::after_answer)?;
        store_account(json!({ "status": "valid", "location": url }), account_at, storage, lock).await?;
        return Ok(StoredAccount { url, key });
    }
    let contact = format!("mailto:{}", issuer.email);
    let contacts = [&*contact];
    let new = NewAccount {
        contact: if issuer.email.is_empty() { &[] } else { &contacts },
        terms_of_service_agreed: true,
        only_return_existing: false,
    };
    let external = match &issuer.external_account {
        Some(account) => Some(account.clone()),
        None => zerossl::external_account(issuer).await?,
    };
    let lock = Arc::new(lock);
    let account = match external {
        None => {
            let at = key_at.clone();
            let is_reusable = lost.is_none();
            let found = blocking(storage, move |storage| if is_reusable { read_key(&at, storage) } else { Ok(None) });
            let key = match found.await? {
                Some(key) => key,
                None => {
                    let (_, key) = Key::generate_pkcs8()?;
                    // Before the registration: a process that is killed meanwhile finds its account again by the key.
                    store_key(&key, key_at, storage, &lock).await?;
                    key
                }
            };
            let url = signed::register(issuer, authority, &key, new.contact).await?;
            StoredAccount { url, key }
        }
        Some(external) => {
            let external = external_key(&external)?;
            let (account, credentials) =
                retry_bad_nonce!(client(authority).create(&new, issuer.directory.clone(), Some(&external)))?;
            let key = credentials.private_key().clone_key();
            store_key(&key, key_at, storage, &lock).await.map_err(AcmeError::after_answer)?;
            StoredAccount { url: account.id().to_owned(), key }
        }
    };
    let record = json!({
        "status": "valid",
        "contact": new.contact,
        "termsOfServiceAgreed": true,
        "location": account.url,
    });
    store_account(record, account_at, storage, lock).await?;
    Ok(account)
}

/// Stores the record of an account that the authority has answered with.
async fn store_account(record: Value, at: String, storage: &SharedStorage, lock: Arc<Lock>) -> Result<(), AcmeError> {
    let stored =
        blocking(storage, move |_| Ok(lock.store(&at, format!("{record:#}").as_bytes(), Durability::Flushed)?));
    stored.await.map_err(AcmeError::after_answer)
}

async fn store_key(
    key: &PrivatePkcs8KeyDer<'_>,
    at: String,
    storage: &SharedStorage,
    lock: &Arc<Lock>,
) -> Result<(), AcmeError> {
    let pem = KeyPair::try_from(&PrivateKeyDer::from(key.clone_key()))?.serialize_pem();
    let lock = Arc::clone(lock);
    blocking(storage, move |_| Ok(lock.store(&at, pem.as_bytes(), Durability::Flushed)?)).await
}

/// An account in storage.
pub(crate) struct StoredAccount {
    pub(crate) url: String,
    pub(crate) key: PrivatePkcs8KeyDer<'static>,
}

/// Reads the issuer's account; `None` if storage has none.
pub(crate) async fn read(issuer: &Issuer, storage: &SharedStorage) -> Result<Option<StoredAccount>, AcmeError> {
    let [account_at, key_at] = storage_keys(issuer);
    blocking(storage, move |storage| {
        let Some(key) = read_key(&key_at, storage)? else { return Ok(None) };
        let url = storage.load(&account_at)?.and_then(|text| account_url(&text));
        Ok(url.map(|url| StoredAccount { url, key }))
    })
    .await
}

/// Uses storage on a blocking thread.
///
/// # Errors
/// Those of `work`, and [`AcmeError::Interrupted`] if the runtime shuts down before `work` runs, or `work` panics.
pub(crate) async fn blocking<T: Send + 'static>(
    storage: &SharedStorage,
    work: impl FnOnce(&dyn Storage) -> Result<T, AcmeError> + Send + 'static,
) -> Result<T, AcmeError> {
    let storage = Arc::clone(storage);
    let done = tokio::task::spawn_blocking(move || work(&*storage)).await;
    done.unwrap_or(Err(AcmeError::Interrupted))
}

/// Reads an account's key. One that this crate cannot use is an error and not replaced: it may be the key of an account
/// that Caddy uses.
fn read_key(at: &str, storage: &dyn Storage) -> Result<Option<PrivatePkcs8KeyDer<'static>>, AcmeError> {
    let Some(text) = storage.load(at)? else { return Ok(None) };
    let key = pkcs8(&text).ok_or_else(|| AcmeError::AccountKey(storage.location(at)))?;
    Ok(Some(key))
}

/// Fetches the authority's directory for a known account.
async fn connect(issuer: &Issuer, authority: &AuthorityClient, known: StoredAccount) -> Result<Account, AcmeError> {
    Ok(client(authority).from_parts(known.url, known.key, issuer.directory.clone()).await?)
}

fn client(authority: &AuthorityClient) -> AccountBuilder {
    Account::builder_with_http(Box::new(authority.clone()))
}

fn external_key(account: &ExternalAccount) -> Result<ExternalAccountKey, AcmeError> {
    let key = BASE64_URL_SAFE_NO_PAD.decode(account.mac_key.trim_end_matches('='));
    let key = key.map_err(|_| AcmeError::ExternalKey)?;
    Ok(ExternalAccountKey::new(account.key_id.clone(), &key))
}

/// The storage keys of the account's record and of its private key.
pub(crate) fn storage_keys(issuer: &Issuer) -> [String; 2] {
    let email = match &issuer.account_key {
        // Not below the address: an issuer with this address and without the key has another account.
        Some(key) => format!("key-{}", key.fingerprint()),
        None if issuer.email.is_empty() => "default".to_owned(),
        None => issuer.email.to_lowercase(),
    };
    let user = email.split('@').next().unwrap_or_default();
    let dir = format!("acme/{}/users/{}", issuer.storage_name(), safe_key(&email));
    [("registration", "json"), ("private", "key")].map(|(default, extension)| {
        let user = if user.is_empty() { default } else { user };
        format!("{dir}/{}.{extension}", safe_key(user))
    })
}

/// Converts a stored P-256 key: Caddy writes elliptic curve keys as SEC 1, and instant-acme reads PKCS #8 only.
pub(crate) fn pkcs8(text: &[u8]) -> Option<PrivatePkcs8KeyDer<'static>> {
    let der = PrivateKeyDer::from_pem_slice(text).ok()?;
    let key = EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_FIXED_SIGNING, der.secret_der()).ok()?;
    Some(PrivatePkcs8KeyDer::from(key.to_pkcs8v1().ok()?.as_ref().to_vec()))
}

fn account_url(text: &[u8]) -> Option<String> {
    let record: Value = serde_json::from_slice(text).ok()?;
    Some(record.get("location")?.as_str().filter(|url| !url.is_empty())?.to_owned())
}
