//! Duck DNS (<https://www.duckdns.org/spec.jsp>). A domain has one TXT value, which stands at every name below it too.

use std::borrow::Cow;

use serde::Deserialize;

use super::provider::{Provider, ProviderError, Receipt, TxtRecord, Work, call, encoded};
use crate::http::{HttpClient, HttpRequest};

const SUFFIX: &str = ".duckdns.org";

/// Settings: the account's token, and the domain if it is not the one that the record is below.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DuckDns {
    api_token: String,
    #[serde(default)]
    override_domain: String,
    #[serde(skip, default = "base")]
    pub(super) base: Cow<'static, str>,
}

fn base() -> Cow<'static, str> {
    "https://www.duckdns.org".into()
}

impl DuckDns {
    /// The name of the domain without the suffix.
    fn domain<'a>(&'a self, record: &'a TxtRecord) -> Result<&'a str, ProviderError> {
        let name = if self.override_domain.is_empty() { &record.name } else { &self.override_domain };
        let name = name.strip_suffix(SUFFIX).ok_or_else(|| ProviderError::NoZone(name.clone()))?;
        Ok(name.rsplit('.').next().unwrap_or(name))
    }

    /// Sets or clears the domain's text. The interface answers 200 to mistakes too.
    fn update<'a>(&'a self, http: &'a HttpClient, record: &'a TxtRecord, change: String) -> Work<'a, ()> {
        Box::pin(async move {
            let (domain, token) = (encoded(self.domain(record)?), encoded(&self.api_token));
            let url = format!("{}/update?domains={domain}&token={token}&{change}", self.base);
            match &*call(http, HttpRequest::get(url)).await? {
                [b'O', b'K', ..] => Ok(()),
                [b'K', b'O', ..] => Err(ProviderError::NoZone(format!("{domain}{SUFFIX}"))),
                _ => Err(ProviderError::Unexpected("OK or KO")),
            }
        })
    }
}

impl Provider for DuckDns {
    fn name(&self) -> &'static str {
        "duckdns"
    }

    fn add<'a>(&'a self, http: &'a HttpClient, record: &'a TxtRecord) -> Work<'a, Receipt> {
        Box::pin(async move {
            self.update(http, record, format!("txt={}", encoded(&record.value))).await?;
            Ok(Receipt::default())
        })
    }

    fn remove<'a>(&'a self, http: &'a HttpClient, record: &'a TxtRecord, _: &'a Receipt) -> Work<'a, ()> {
        // The old value is required besides `clear`.
        self.update(http, record, format!("txt={}&clear=true", encoded(&record.value)))
    }

    fn needs_zone(&self) -> bool {
        false
    }

    fn lock_name(&self, record: &TxtRecord) -> String {
        self.domain(record).map_or_else(|_| record.name.clone(), |domain| format!("duckdns {domain}"))
    }

    fn keeps_one_value(&self) -> bool {
        true
    }
}
