//! An acme-dns server (<https://github.com/joohoi/acme-dns>): a CNAME record at `_acme-challenge.NAME` points to the
//! account's record there. It keeps the last two values and removes none: a third one replaces the first, also if only
//! the order of the first is not done.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::provider::{Provider, ProviderError, Receipt, SettingError, TxtRecord, Work, call, read};
use crate::http::{HttpClient, HttpRequest, Method};

/// The setting that names a file with accounts.
const FILE: &str = "config_file_path";
/// The setting that has an account for each name.
const BY_NAME: &str = "config";

/// An account, as the server's `/register` returns it.
#[derive(Deserialize, Debug, Clone, PartialEq, Eq)]
struct AcmeDnsAccount {
    username: String,
    password: String,
    subdomain: String,
    server_url: String,
}

impl AcmeDnsAccount {
    fn read(json: Map<String, Value>) -> Result<Self, SettingError> {
        for key in ["username", "password", "subdomain", "server_url"] {
            if json.get(key).is_none_or(|value| value == "") {
                let found = if json.contains_key(key) { "" } else { "none" };
                return Err(SettingError::new(key, found, "username, password, subdomain and server_url"));
            }
        }
        read(json)
    }
}

/// One account for all names, or one for each name.
#[derive(Debug, PartialEq, Eq)]
enum Accounts {
    All(AcmeDnsAccount),
    ByName(BTreeMap<String, AcmeDnsAccount>),
}

/// Settings: `username`, `password`, `subdomain` and `server_url`; or `config` with these for each name; or a file with
/// either.
pub(super) struct AcmeDns(Accounts);

impl AcmeDns {
    /// Reads the settings, and the file that they name.
    pub(super) fn new(mut settings: Map<String, Value>) -> Result<Self, SettingError> {
        let only = |key: &'static str| SettingError::new(key, "other settings too", "only this one");
        if let Some(path) = settings.remove(FILE) {
            if !settings.is_empty() {
                return Err(only(FILE));
            }
            let path = path.as_str().unwrap_or_default();
            let failed = |error: String| SettingError::new(FILE, path, format!("a JSON file with accounts: {error}"));
            let text = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
            let json: Map<String, Value> = serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))?;
            return Self::accounts(json).map_err(|error| failed(error.to_string()));
        }
        match settings.remove(BY_NAME) {
            Some(Value::Object(config)) if settings.is_empty() => Self::by_name(config),
            Some(_) => Err(only(BY_NAME)),
            None => Self::accounts(settings),
        }
    }

    fn accounts(json: Map<String, Value>) -> Result<Self, SettingError> {
        if !json.is_empty() && json.values().all(Value::is_object) {
            return Self::by_name(json);
        }
        Ok(Self(Accounts::All(AcmeDnsAccount::read(json)?)))
    }

    fn by_name(json: Map<String, Value>) -> Result<Self, SettingError> {
        let account = |(name, account): (String, Value)| match account {
            Value::Object(account) => Ok((name, AcmeDnsAccount::read(account)?)),
            _ => Err(SettingError::new(BY_NAME, name, "names, each with an account")),
        };
        Ok(Self(Accounts::ByName(json.into_iter().map(account).collect::<Result<_, _>>()?)))
    }

    fn account(&self, record: &TxtRecord) -> Option<&AcmeDnsAccount> {
        match &self.0 {
            Accounts::All(account) => Some(account),
            Accounts::ByName(accounts) => {
                accounts.get(record.name.strip_prefix("_acme-challenge.").unwrap_or(&record.name))
            }
        }
    }
}

impl Provider for AcmeDns {
    fn name(&self) -> &'static str {
        "acmedns"
    }

    fn add<'a>(&'a self, http: &'a HttpClient, record: &'a TxtRecord) -> Work<'a, Receipt> {
        Box::pin(async move {
            let account = self.account(record).ok_or_else(|| ProviderError::NoAccount(record.name.clone()))?;
            let url = format!("{}/update", account.server_url.trim_end_matches('/'));
            let request = HttpRequest::new(Method::POST, url)
                .header("x-api-user", &account.username)
                .header("x-api-key", &account.password)
                .json(&json!({ "subdomain": account.subdomain, "txt": record.value }));
            call(http, request).await?;
            Ok(Receipt::default())
        })
    }

    fn remove<'a>(&'a self, _: &'a HttpClient, _: &'a TxtRecord, _: &'a Receipt) -> Work<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn needs_zone(&self) -> bool {
        false
    }

    fn lock_name(&self, record: &TxtRecord) -> String {
        let account = self.account(record);
        account.map_or_else(
            || record.name.clone(),
            |account| format!("acmedns {} {}", account.server_url.trim_end_matches('/'), account.subdomain),
        )
    }

    fn keeps_one_value(&self) -> bool {
        true
    }
}
