//! Amazon Route 53 (API version 2013-04-01). Its interface replaces all values of a name at once, and its bodies are
//! XML.

use std::borrow::Cow;
use std::time::SystemTime;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac::{HMAC_SHA256, Key, Tag, sign};
use data_encoding::HEXLOWER;
use serde::Deserialize;
use time::OffsetDateTime;

use super::provider::{Provider, ProviderError, Receipt, TxtRecord, Work, call, encoded};
use crate::http::{HttpClient, HttpRequest, Method};

/// The time to live in seconds if none is set.
const TTL: u32 = 60;
/// The zones of one page of a listing. Zones of one name beyond that are not looked at.
const ZONES_MAX: u32 = 100;
const SERVICE: &str = "route53";

/// Settings: an access key. Credentials of profiles, of containers and of instances are not supported.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Route53 {
    access_key_id: String,
    secret_access_key: String,
    #[serde(default)]
    session_token: String,
    #[serde(default = "region")]
    region: String,
    #[serde(default)]
    hosted_zone_id: String,
    #[serde(skip, default = "base")]
    pub(super) base: Cow<'static, str>,
}

fn region() -> String {
    "us-east-1".to_owned()
}

fn base() -> Cow<'static, str> {
    "https://route53.amazonaws.com".into()
}

/// The values of a name, as the interface has them: in quotation marks.
struct TxtSet {
    ttl: u32,
    values: Vec<String>,
}

impl Route53 {
    async fn request(
        &self,
        http: &HttpClient,
        method: Method,
        path: &str,
        query: &str,
        body: String,
    ) -> Result<String, ProviderError> {
        let host = self.base.split_once("://").map_or("", |(_, host)| host);
        let url = format!("{}{path}{}{query}", self.base, if query.is_empty() { "" } else { "?" });
        let date = amz_date(SystemTime::now());
        let mut headers = vec![("host", host), ("x-amz-date", &*date)];
        if !self.session_token.is_empty() {
            headers.push(("x-amz-security-token", &self.session_token));
        }
        let credentials = Credentials {
            id: &self.access_key_id,
            secret: &self.secret_access_key,
            region: &self.region,
            service: SERVICE,
        };
        let authorization = credentials.authorization(&date, method.as_str(), path, query, &headers, body.as_bytes());
        let mut request =
            HttpRequest::new(method, url).header("x-amz-date", &date).header("authorization", authorization);
        if !self.session_token.is_empty() {
            request = request.header("x-amz-security-token", &self.session_token);
        }
        if !body.is_empty() {
            request = request.body("application/xml", body);
        }
        Ok(String::from_utf8_lossy(&call(http, request).await?).into_owned())
    }

    /// The ID of the public zone with the record's zone name.
    async fn zone(&self, http: &HttpClient, record: &TxtRecord) -> Result<String, ProviderError> {
        if !self.hosted_zone_id.is_empty() {
            return Ok(self.hosted_zone_id.clone());
        }
        // In the order that signing needs.
        let query = format!("dnsname={}&maxitems={ZONES_MAX}", encoded(&record.zone));
        let list = self.request(http, Method::GET, "/2013-04-01/hostedzonesbyname", &query, String::new()).await?;
        let wanted = format!("{}.", record.zone);
        let zone = list.split("<HostedZone>").skip(1).find(|zone| {
            element(zone, "Name").is_some_and(|name| name.eq_ignore_ascii_case(&wanted))
                && element(zone, "PrivateZone") != Some("true")
        });
        let id = zone.and_then(|zone| element(zone, "Id")).and_then(|id| id.rsplit('/').next());
        id.map(str::to_owned).ok_or_else(|| ProviderError::NoZone(record.zone.clone()))
    }

    /// The values that the name has now.
    async fn set(&self, http: &HttpClient, zone: &str, record: &TxtRecord) -> Result<TxtSet, ProviderError> {
        let query = format!("maxitems=1&name={}&type=TXT", encoded(&record.name));
        let path = format!("/2013-04-01/hostedzone/{}/rrset", encoded(zone));
        let list = self.request(http, Method::GET, &path, &query, String::new()).await?;
        let empty = TxtSet { ttl: record.ttl.unwrap_or(TTL), values: Vec::new() };
        // The listing begins at the name, and with the next one if it has no record.
        let Some(set) = list.split("<ResourceRecordSet>").nth(1) else { return Ok(empty) };
        let is_other =
            element(set, "Name").is_none_or(|name| !name.trim_end_matches('.').eq_ignore_ascii_case(&record.name));
        if is_other || element(set, "Type") != Some("TXT") {
            return Ok(empty);
        }
        let ttl = element(set, "TTL").and_then(|ttl| ttl.parse().ok()).unwrap_or(empty.ttl);
        let values = set.split("<ResourceRecord>").skip(1);
        let values = values.filter_map(|value| Some(unescaped(element(value, "Value")?))).collect();
        Ok(TxtSet { ttl, values })
    }

    async fn change(
        &self,
        http: &HttpClient,
        zone: &str,
        name: &str,
        action: &str,
        set: TxtSet,
    ) -> Result<(), ProviderError> {
        let value = |value: &String| format!("<ResourceRecord><Value>{}</Value></ResourceRecord>", escaped(value));
        let values: String = set.values.iter().map(value).collect();
        let (name, ttl) = (escaped(name), set.ttl);
        let body = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
             <ChangeResourceRecordSetsRequest xmlns=\"https://route53.amazonaws.com/doc/2013-04-01/\">\
             <ChangeBatch><Changes><Change><Action>{action}</Action><ResourceRecordSet>\
             <Name>{name}.</Name><Type>TXT</Type><TTL>{ttl}</TTL><ResourceRecords>{values}</ResourceRecords>\
             </ResourceRecordSet></Change></Changes></ChangeBatch></ChangeResourceRecordSetsRequest>"
        );
        let path = format!("/2013-04-01/hostedzone/{}/rrset/", encoded(zone));
        self.request(http, Method::POST, &path, "", body).await.map(drop)
    }
}

impl Provider for Route53 {
    fn name(&self) -> &'static str {
        "route53"
    }

    fn add<'a>(&'a self, http: &'a HttpClient, record: &'a TxtRecord) -> Work<'a, Receipt> {
        Box::pin(async move {
            let zone = self.zone(http, record).await?;
            let mut set = self.set(http, &zone, record).await?;
            if !set.values.contains(&record.quoted()) {
                set.values.push(record.quoted());
            }
            self.change(http, &zone, &record.name, "UPSERT", set).await?;
            Ok(Receipt(zone))
        })
    }

    fn remove<'a>(&'a self, http: &'a HttpClient, record: &'a TxtRecord, receipt: &'a Receipt) -> Work<'a, ()> {
        Box::pin(async move {
            let zone = &receipt.0;
            let mut set = self.set(http, zone, record).await?;
            // A deletion must state all values, so the last one stays in the list.
            if set.values == [record.quoted()] {
                return self.change(http, zone, &record.name, "DELETE", set).await;
            }
            let count = set.values.len();
            set.values.retain(|value| *value != record.quoted());
            if set.values.len() == count {
                return Ok(());
            }
            self.change(http, zone, &record.name, "UPSERT", set).await
        })
    }
}

/// The text of the first element of this name. Enough for the flat answers of this interface.
pub(super) fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Replaces the predefined entities (XML 1.0 §4.6). The ampersand comes last: `&amp;lt;` is the text `&lt;`.
fn unescaped(text: &str) -> String {
    let text = text.replace("&quot;", "\"").replace("&apos;", "'").replace("&lt;", "<").replace("&gt;", ">");
    text.replace("&amp;", "&")
}

/// A time as `20150830T123600Z`.
fn amz_date(now: SystemTime) -> String {
    let now = OffsetDateTime::from(now);
    let (month, day) = (u8::from(now.month()), now.day());
    format!("{:04}{month:02}{day:02}T{:02}{:02}{:02}Z", now.year(), now.hour(), now.minute(), now.second())
}

/// An access key for one service, and the signature of requests with it (AWS Signature Version 4).
struct Credentials<'a> {
    id: &'a str,
    secret: &'a str,
    region: &'a str,
    service: &'a str,
}

impl Credentials<'_> {
    /// The value of the header `Authorization`. `headers` are sorted by name, and `query` by its names.
    fn authorization(
        &self,
        date: &str,
        method: &str,
        path: &str,
        query: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> String {
        let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
        let lines: String = headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
        let canonical =
            format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{}", HEXLOWER.encode(digest(&SHA256, body).as_ref()));
        let day = &date[..date.len().min(8)];
        let scope = format!("{day}/{}/{}/aws4_request", self.region, self.service);
        let text = format!(
            "AWS4-HMAC-SHA256\n{date}\n{scope}\n{}",
            HEXLOWER.encode(digest(&SHA256, canonical.as_bytes()).as_ref())
        );
        let mac = |key: &[u8], text: &str| -> Tag { sign(&Key::new(HMAC_SHA256, key), text.as_bytes()) };
        let mut key = mac(format!("AWS4{}", self.secret).as_bytes(), day);
        for part in [self.region, self.service, "aws4_request"] {
            key = mac(key.as_ref(), part);
        }
        let signature = HEXLOWER.encode(mac(key.as_ref(), &text).as_ref());
        format!("AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // AWS's documentation, "Create a signed request": the example with ListUsers of IAM.
    #[test]
    fn the_documented_signature() {
        let credentials = Credentials {
            id: "AKIDEXAMPLE",
            secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
            region: "us-east-1",
            service: "iam",
        };
        let date = "20150830T123600Z";
        let headers = [
            ("content-type", "application/x-www-form-urlencoded; charset=utf-8"),
            ("host", "iam.amazonaws.com"),
            ("x-amz-date", date),
        ];
        let query = "Action=ListUsers&Version=2010-05-08";
        assert_eq!(
            credentials.authorization(date, "GET", "/", query, &headers, b""),
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, \
             SignedHeaders=content-type;host;x-amz-date, \
             Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
        );
    }

    // Values of other records on the name are written back as they were read.
    #[test]
    fn entities() {
        for text in ["\"v=1; a<b>&c'\"", "&lt;&amp;lt;", "plain"] {
            assert_eq!(unescaped(&escaped(text)), text);
        }
        assert_eq!(unescaped("&apos;&amp;apos;"), "'&apos;");
    }

    #[test]
    fn dates() {
        let at = |seconds| amz_date(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds));
        assert_eq!((at(0), at(1_440_938_160)), ("19700101T000000Z".to_owned(), "20150830T123600Z".to_owned()));
    }
}
