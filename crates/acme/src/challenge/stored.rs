//! An open challenge in storage, where other processes with the same storage find it:
//! `acme/AUTHORITY/challenge_tokens/NAME.json`, as CertMagic stores it, with the JSON of acmez. Files of ZeroSSL are at
//! `zerossl/challenge_tokens/NAME.json`.

use std::net::IpAddr;

use causeway_certs::{Durability, Error, SharedStorage, Storage, safe_key};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use super::server_name;
use crate::Issuer;
use crate::account::blocking;
use crate::zerossl::certificates as zerossl;

pub(super) const HTTP: &str = "http-01";
pub(super) const TLS_ALPN: &str = "tls-alpn-01";
/// ZeroSSL's files are not challenges of ACME, so CertMagic writes no type.
pub(super) const FILE: &str = "";

/// A challenge as acmez encodes it; members that it does not need are omitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoredChallenge {
    #[serde(default, rename = "type")]
    pub(super) kind: String,
    #[serde(default)]
    url: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    pub(super) token: String,
    #[serde(default)]
    pub(super) key_authorization: String,
    pub(super) identifier: StoredIdentifier,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredIdentifier {
    #[serde(default, rename = "type")]
    kind: String,
    pub(super) value: String,
}

impl StoredChallenge {
    /// An HTTP-01 challenge for a DNS name in lower case or an IP address.
    pub(crate) fn http(name: &str, url: &str, token: &str, key_authorization: &str) -> Self {
        Self::new(HTTP, name, url, token, key_authorization)
    }

    /// A TLS-ALPN-01 challenge for a DNS name in lower case or an IP address.
    pub(crate) fn tls_alpn(name: &str, url: &str, token: &str, key_authorization: &str) -> Self {
        Self::new(TLS_ALPN, name, url, token, key_authorization)
    }

    /// A validation file of ZeroSSL. CertMagic writes its content in place of the token.
    pub(crate) fn file(name: &str, url: &str, content: &str) -> Self {
        Self::new(FILE, name, url, content, "")
    }

    /// The path of a validation file.
    pub(super) fn file_path(&self) -> Option<&str> {
        let rest = self.url.strip_prefix("http://").filter(|_| self.kind == FILE)?;
        Some(&rest[rest.find('/')?..])
    }

    fn new(kind: &str, name: &str, url: &str, token: &str, key_authorization: &str) -> Self {
        let identifier = if name.parse::<IpAddr>().is_ok() { "ip" } else { "dns" };
        Self {
            kind: kind.to_owned(),
            url: url.to_owned(),
            status: "pending".to_owned(),
            token: token.to_owned(),
            key_authorization: key_authorization.to_owned(),
            identifier: StoredIdentifier { kind: identifier.to_owned(), value: name.to_owned() },
        }
    }

    /// The name by which the process that receives the authority's request looks for the challenge: the host of an HTTP
    /// request, or the server name of a ClientHello.
    fn sought_name(&self) -> String {
        match &*self.kind {
            TLS_ALPN => server_name(&self.identifier.value),
            _ => self.identifier.value.clone(),
        }
    }

    /// Reads the challenge that is open at one of `authorities`, storage keys, for the name of a request. A malformed
    /// one counts as absent: the authority's request is not answered. Blocks.
    pub(super) fn find(authorities: &[String], name: &str, storage: &dyn Storage) -> Result<Option<Self>, Error> {
        for authority in authorities {
            let at = storage_key(authority, name);
            let Some(text) = storage.load(&at)? else { continue };
            match serde_json::from_slice(&text) {
                Ok(found) => return Ok(Some(found)),
                Err(error) => tracing::warn!("{}: found a malformed challenge: {error}", storage.location(&at)),
            }
        }
        Ok(None)
    }
}

fn storage_key(authority: &str, name: &str) -> String {
    let dir = if authority == zerossl::STORAGE_NAME { authority.to_owned() } else { format!("acme/{authority}") };
    format!("{dir}/challenge_tokens/{}.json", safe_key(name))
}

/// A challenge in storage. [`remove`](Self::remove) it; dropping it removes it in the background.
#[derive(Debug)]
pub(crate) struct Published {
    storage: SharedStorage,
    at: String,
    /// Taken by the removal.
    challenge: Option<StoredChallenge>,
}

impl Published {
    /// Writes a challenge. `None` if the issuer disables that, or if storage fails: this process can answer the
    /// challenge nevertheless.
    pub(crate) async fn new(issuer: &Issuer, storage: &SharedStorage, challenge: StoredChallenge) -> Option<Self> {
        if !issuer.is_distributed {
            return None;
        }
        Self::at(&issuer.storage_name(), storage, challenge).await
    }

    /// As [`new`](Self::new), for an authority by its name in storage keys.
    pub(crate) async fn at(authority: &str, storage: &SharedStorage, challenge: StoredChallenge) -> Option<Self> {
        let at = storage_key(authority, &challenge.sought_name());
        let published = Self { storage: storage.clone(), at: at.clone(), challenge: Some(challenge.clone()) };
        let written = blocking(storage, move |storage| {
            let text = serde_json::to_vec(&challenge).unwrap_or_default();
            Ok(storage.store(&at, &text, Durability::Unflushed)?)
        });
        match written.await {
            Ok(()) => Some(published),
            Err(error) => {
                let name = published.challenge.as_ref().map_or("", |challenge| &challenge.identifier.value);
                tracing::warn!("{name}: other servers with this storage cannot answer its challenge: {error}");
                None
            }
        }
    }

    pub(crate) async fn remove(mut self) {
        if let Some(challenge) = self.challenge.take() {
            let at = self.at.clone();
            // A failure is logged. The certificate does not depend on it, and the next clean-up of storage removes the
            // challenge.
            let _ = blocking(&self.storage, move |storage| {
                remove(&at, &challenge, storage);
                Ok(())
            })
            .await;
        }
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        if let (Some(challenge), Ok(runtime)) = (self.challenge.take(), Handle::try_current()) {
            let (storage, at) = (self.storage.clone(), self.at.clone());
            runtime.spawn_blocking(move || remove(&at, &challenge, &*storage));
        }
    }
}

/// Removes a challenge, unless storage has another one for the name by now: the removal after a cancelled order can be
/// late.
fn remove(at: &str, challenge: &StoredChallenge, storage: &dyn Storage) {
    let removed = storage.load(at).and_then(|text| {
        let found: Option<StoredChallenge> = text.and_then(|text| serde_json::from_slice(&text).ok());
        if found.is_some_and(|found| found.token == challenge.token) { storage.delete(at) } else { Ok(()) }
    });
    if let Err(error) = removed {
        tracing::warn!("{}: cannot remove a challenge: {error}", challenge.identifier.value);
    }
}
