//! Gandi LiveDNS (<https://api.gandi.net/docs/livedns/>). Its interface replaces all values of a name at once.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Value, json};

use super::provider::{Provider, ProviderError, Receipt, TxtRecord, Work, call, call_json, encoded};
use crate::http::{HttpClient, HttpRequest, Method, StatusCode};

/// The lowest time to live in seconds.
const TTL_MIN: u32 = 300;

/// Settings: a personal access token that may manage the domain.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Gandi {
    bearer_token: String,
    #[serde(skip, default = "base")]
    pub(super) base: Cow<'static, str>,
}

fn base() -> Cow<'static, str> {
    "https://api.gandi.net/v5/livedns".into()
}

impl Gandi {
    fn request(&self, method: Method, record: &TxtRecord) -> HttpRequest {
        let (zone, name) = (encoded(&record.zone), encoded(record.relative()));
        HttpRequest::new(method, format!("{}/domains/{zone}/records/{name}/TXT", self.base)).bearer(&self.bearer_token)
    }

    /// The name's values except for the record's own.
    async fn others(&self, http: &HttpClient, record: &TxtRecord) -> Result<Vec<Value>, ProviderError> {
        match call_json(http, self.request(Method::GET, record)).await {
            Ok(mut set) => {
                let Some(values) = set["rrset_values"].as_array_mut() else {
                    return Err(ProviderError::Unexpected("'rrset_values'"));
                };
                values.retain(|value| value.as_str() != Some(&record.quoted()));
                Ok(std::mem::take(values))
            }
            Err(ProviderError::Refused(StatusCode::NOT_FOUND, _)) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    async fn put(&self, http: &HttpClient, record: &TxtRecord, values: Vec<Value>) -> Result<(), ProviderError> {
        let body = json!({ "rrset_values": values, "rrset_ttl": record.ttl_from(TTL_MIN) });
        call(http, self.request(Method::PUT, record).json(&body)).await.map(drop)
    }
}

impl Provider for Gandi {
    fn name(&self) -> &'static str {
        "gandi"
    }

    fn add<'a>(&'a self, http: &'a HttpClient, record: &'a TxtRecord) -> Work<'a, Receipt> {
        Box::pin(async move {
            let mut values = self.others(http, record).await?;
            values.push(record.quoted().into());
            self.put(http, record, values).await?;
            Ok(Receipt::default())
        })
    }

    fn remove<'a>(&'a self, http: &'a HttpClient, record: &'a TxtRecord, _: &'a Receipt) -> Work<'a, ()> {
        Box::pin(async move {
            let values = self.others(http, record).await?;
            if values.is_empty() {
                return call(http, self.request(Method::DELETE, record)).await.map(drop);
            }
            self.put(http, record, values).await
        })
    }
}
