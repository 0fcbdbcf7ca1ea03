//! Cloudflare (<https://developers.cloudflare.com/api/resources/dns/>).

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::json;

use super::provider::{Provider, ProviderError, Receipt, TxtRecord, Work, call_json, encoded};
use crate::http::{HttpClient, HttpRequest, Method};

/// The value for "automatic".
const TTL_AUTOMATIC: u32 = 1;
/// The lowest time to live in seconds apart from that.
const TTL_MIN: u32 = 60;

/// Settings: a token that may edit DNS records, and optionally another one that may list zones.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cloudflare {
    api_token: String,
    #[serde(default)]
    zone_token: String,
    #[serde(skip, default = "base")]
    pub(super) base: Cow<'static, str>,
}

fn base() -> Cow<'static, str> {
    "https://api.cloudflare.com/client/v4".into()
}

impl Provider for Cloudflare {
    fn name(&self) -> &'static str {
        "cloudflare"
    }

    fn add<'a>(&'a self, http: &'a HttpClient, record: &'a TxtRecord) -> Work<'a, Receipt> {
        Box::pin(async move {
            let token = if self.zone_token.is_empty() { &self.api_token } else { &self.zone_token };
            let url = format!("{}/zones?name={}", self.base, encoded(&record.zone));
            let zones = call_json(http, HttpRequest::get(url).bearer(token)).await?;
            let zone = zones.pointer("/result/0/id").and_then(|id| id.as_str());
            let zone = zone.ok_or_else(|| ProviderError::NoZone(record.zone.clone()))?;
            let records = format!("/zones/{}/dns_records", encoded(zone));
            let request = HttpRequest::new(Method::POST, format!("{}{records}", self.base)).bearer(&self.api_token);
            let ttl = if record.ttl.is_none() { TTL_AUTOMATIC } else { record.ttl_from(TTL_MIN) };
            let new = json!({ "type": "TXT", "name": record.name, "content": record.quoted(), "ttl": ttl });
            let added = call_json(http, request.json(&new)).await?;
            let id = added.pointer("/result/id").and_then(|id| id.as_str());
            let id = id.ok_or(ProviderError::Unexpected("'result.id'"))?;
            Ok(Receipt(format!("{records}/{}", encoded(id))))
        })
    }

    fn remove<'a>(&'a self, http: &'a HttpClient, _: &'a TxtRecord, receipt: &'a Receipt) -> Work<'a, ()> {
        Box::pin(async move {
            let request = HttpRequest::new(Method::DELETE, format!("{}{}", self.base, receipt.0));
            call_json(http, request.bearer(&self.api_token)).await.map(drop)
        })
    }
}
