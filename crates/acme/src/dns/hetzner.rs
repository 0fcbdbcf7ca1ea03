//! Hetzner's Cloud API (<https://docs.hetzner.cloud/reference/cloud#dns>).

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Value, json};

use super::provider::{Provider, Receipt, TxtRecord, Work, call, encoded};
use crate::http::{HttpClient, HttpRequest, Method};

/// The lowest time to live in seconds.
const TTL_MIN: u32 = 60;

/// Settings: a token of the zone's project that may read and write.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Hetzner {
    api_token: String,
    #[serde(skip, default = "base")]
    pub(super) base: Cow<'static, str>,
}

fn base() -> Cow<'static, str> {
    "https://api.hetzner.cloud/v1".into()
}

impl Hetzner {
    /// Performs an action on the record's set. The interface creates and deletes the set itself.
    fn act<'a>(&'a self, http: &'a HttpClient, record: &'a TxtRecord, action: &'a str, body: Value) -> Work<'a, ()> {
        Box::pin(async move {
            let (zone, name) = (encoded(&record.zone), encoded(record.relative()));
            let url = format!("{}/zones/{zone}/rrsets/{name}/TXT/actions/{action}", self.base);
            let request = HttpRequest::new(Method::POST, url).bearer(&self.api_token);
            call(http, request.json(&body)).await.map(drop)
        })
    }
}

impl Provider for Hetzner {
    fn name(&self) -> &'static str {
        "hetzner"
    }

    fn add<'a>(&'a self, http: &'a HttpClient, record: &'a TxtRecord) -> Work<'a, Receipt> {
        let body = json!({ "records": [{ "value": record.quoted() }], "ttl": record.ttl_from(TTL_MIN) });
        Box::pin(async move {
            self.act(http, record, "add_records", body).await?;
            Ok(Receipt::default())
        })
    }

    fn remove<'a>(&'a self, http: &'a HttpClient, record: &'a TxtRecord, _: &'a Receipt) -> Work<'a, ()> {
        self.act(http, record, "remove_records", json!({ "records": [{ "value": record.quoted() }] }))
    }
}
