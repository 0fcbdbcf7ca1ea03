//! DigitalOcean (<https://docs.digitalocean.com/reference/api/>).

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::json;

use super::provider::{Provider, ProviderError, Receipt, TxtRecord, Work, call, call_json, encoded};
use crate::http::{HttpClient, HttpRequest, Method};

/// The lowest time to live in seconds.
const TTL_MIN: u32 = 30;

/// Settings: a token that may write domains.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DigitalOcean {
    auth_token: String,
    #[serde(skip, default = "base")]
    pub(super) base: Cow<'static, str>,
}

fn base() -> Cow<'static, str> {
    "https://api.digitalocean.com/v2".into()
}

impl Provider for DigitalOcean {
    fn name(&self) -> &'static str {
        "digitalocean"
    }

    fn add<'a>(&'a self, http: &'a HttpClient, record: &'a TxtRecord) -> Work<'a, Receipt> {
        Box::pin(async move {
            let records = format!("/domains/{}/records", encoded(&record.zone));
            let request = HttpRequest::new(Method::POST, format!("{}{records}", self.base)).bearer(&self.auth_token);
            let ttl = record.ttl_from(TTL_MIN);
            let new = json!({ "type": "TXT", "name": record.relative(), "data": record.value, "ttl": ttl });
            let added = call_json(http, request.json(&new)).await?;
            let id = added.pointer("/domain_record/id").and_then(|id| id.as_u64());
            let id = id.ok_or(ProviderError::Unexpected("'domain_record.id'"))?;
            Ok(Receipt(format!("{records}/{id}")))
        })
    }

    fn remove<'a>(&'a self, http: &'a HttpClient, _: &'a TxtRecord, receipt: &'a Receipt) -> Work<'a, ()> {
        Box::pin(async move {
            let request = HttpRequest::new(Method::DELETE, format!("{}{}", self.base, receipt.0));
            call(http, request.bearer(&self.auth_token)).await.map(drop)
        })
    }
}
