//! Porkbun (<https://porkbun.com/api/json/v3/documentation>).

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Value, json};

use super::provider::{Provider, ProviderError, Receipt, TxtRecord, Work, call_json, encoded};
use crate::http::{HttpClient, HttpRequest, Method};

/// The lowest time to live in seconds.
const TTL_MIN: u32 = 600;

/// Settings: the two keys of an account.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Porkbun {
    api_key: String,
    api_secret_key: String,
    #[serde(skip, default = "base")]
    pub(super) base: Cow<'static, str>,
}

fn base() -> Cow<'static, str> {
    "https://api.porkbun.com/api/json/v3".into()
}

impl Porkbun {
    /// Sends a command with the keys in its body, where this interface expects them.
    async fn command(&self, http: &HttpClient, path: &str, mut body: Value) -> Result<Value, ProviderError> {
        body["apikey"] = self.api_key.as_str().into();
        body["secretapikey"] = self.api_secret_key.as_str().into();
        let request = HttpRequest::new(Method::POST, format!("{}/dns/{path}", self.base));
        call_json(http, request.json(&body)).await
    }
}

impl Provider for Porkbun {
    fn name(&self) -> &'static str {
        "porkbun"
    }

    fn add<'a>(&'a self, http: &'a HttpClient, record: &'a TxtRecord) -> Work<'a, Receipt> {
        Box::pin(async move {
            // A number is accepted as text only. The apex has the empty name.
            let name = if record.relative() == "@" { "" } else { record.relative() };
            let ttl = record.ttl_from(TTL_MIN).to_string();
            let new = json!({ "type": "TXT", "name": name, "content": record.value, "ttl": ttl });
            let added = self.command(http, &format!("create/{}", encoded(&record.zone)), new).await?;
            // The ID is a number in some answers and a text in others.
            let id = match &added["id"] {
                Value::String(id) => id.clone(),
                Value::Number(id) => id.to_string(),
                _ => return Err(ProviderError::Unexpected("'id'")),
            };
            Ok(Receipt(id))
        })
    }

    fn remove<'a>(&'a self, http: &'a HttpClient, record: &'a TxtRecord, receipt: &'a Receipt) -> Work<'a, ()> {
        Box::pin(async move {
            let path = format!("delete/{}/{}", encoded(&record.zone), encoded(&receipt.0));
            self.command(http, &path, json!({})).await.map(drop)
        })
    }
}
