//! Dynamic updates (RFC 2136) signed with TSIG (RFC 8945), as BIND, Knot DNS and PowerDNS accept them.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use causeway_dns::query::exchange;
use hickory_proto::op::Message;
use hickory_proto::op::{ResponseCode, update_message};
use hickory_proto::rr::rdata::TXT;
use hickory_proto::rr::rdata::tsig::TsigAlgorithm;
use hickory_proto::rr::{RData, Record, RecordSet, TSigner};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::provider::{Provider, ProviderError, Receipt, SettingError, TxtRecord, Work, read};
use super::zone::{absolute, server_addresses};
use crate::http::HttpClient;

/// The time to live in seconds if none is set.
const TTL: u32 = 60;
/// How far the clocks of both sides may differ, in seconds: the value that RFC 8945 §10 recommends.
const CLOCK_SKEW_S: u16 = 300;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rfc2136Settings {
    key_name: String,
    key_alg: String,
    key: String,
    server: String,
}

/// Settings: the server, and a key with its name and algorithm.
pub(super) struct Rfc2136 {
    server: String,
    signer: TSigner,
}

impl Rfc2136 {
    pub(super) fn new(settings: Map<String, Value>) -> Result<Self, SettingError> {
        let settings: Rfc2136Settings = read(settings)?;
        let algorithm = match settings.key_alg.trim_end_matches('.').to_ascii_lowercase().as_str() {
            "hmac-sha256" => TsigAlgorithm::HmacSha256,
            "hmac-sha384" => TsigAlgorithm::HmacSha384,
            "hmac-sha512" => TsigAlgorithm::HmacSha512,
            _ => {
                let expected = "hmac-sha256, hmac-sha384 or hmac-sha512";
                return Err(SettingError::new("key_alg", settings.key_alg, expected));
            }
        };
        let key = BASE64_STANDARD.decode(settings.key.trim());
        let key = key.map_err(|_| SettingError::new("key", "a key of another form", "base64"))?;
        let name = absolute(&settings.key_name)
            .map_err(|_| SettingError::new("key_name", &settings.key_name, "a DNS name"))?;
        let signer = TSigner::new(key, algorithm, name, CLOCK_SKEW_S);
        let signer = signer.map_err(|error| SettingError::new("key", error.to_string(), "a key"))?;
        Ok(Self { server: settings.server, signer })
    }

    /// Signs an update, sends it to the server, and checks the signature of the answer.
    async fn update(
        &self,
        record: &TxtRecord,
        make: fn(RecordSet, hickory_proto::rr::Name) -> Message,
    ) -> Result<(), ProviderError> {
        let name = absolute(&record.name).map_err(ProviderError::Server)?;
        let zone = absolute(&record.zone).map_err(ProviderError::Server)?;
        if !zone.zone_of(&name) {
            return Err(ProviderError::NoZone(record.zone.clone()));
        }
        let data = RData::TXT(TXT::new(vec![record.value.clone()]));
        let txt = Record::from_rdata(name, record.ttl.unwrap_or(TTL), data);
        let mut message = make(txt.into(), zone);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let sent = message.finalize(&self.signer, now).and_then(|verifier| Ok((verifier, message.to_vec()?)));
        let (verifier, sent) = sent.map_err(|error| ProviderError::Unsigned(error.to_string()))?;
        let server = server_addresses(&self.server).await.map_err(ProviderError::Server)?;
        let (answer, bytes) = exchange(server[0], &sent).await?;
        if answer.response_code != ResponseCode::NoError {
            return Err(ProviderError::Code(answer.response_code));
        }
        // RFC 8945 §5.3: an unsigned success may be forged.
        match verifier {
            Some(mut verifier) => {
                verifier.verify(&bytes).map_err(|error| ProviderError::NoUsableAnswer(error.to_string())).map(drop)
            }
            None => Ok(()),
        }
    }
}

impl Provider for Rfc2136 {
    fn name(&self) -> &'static str {
        "rfc2136"
    }

    fn add<'a>(&'a self, _: &'a HttpClient, record: &'a TxtRecord) -> Work<'a, Receipt> {
        Box::pin(async move {
            self.update(record, |set, zone| update_message::append(set, zone, false, false)).await?;
            Ok(Receipt::default())
        })
    }

    fn remove<'a>(&'a self, _: &'a HttpClient, record: &'a TxtRecord, _: &'a Receipt) -> Work<'a, ()> {
        Box::pin(self.update(record, |set, zone| update_message::delete_by_rdata(set, zone, false)))
    }
}
