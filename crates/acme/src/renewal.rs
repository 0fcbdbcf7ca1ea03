//! ACME renewal information (RFC 9773): the time that an authority suggests for a certificate's renewal.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant, SystemTime};

use instant_acme::CertificateIdentifier;
use rustls_pki_types::CertificateDer;
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::Mutex;

use crate::http::{HttpClient, HttpRequest, HttpResponse};
use crate::{AcmeError, Issuer};

/// How long a directory is valid: authorities seldom change it.
const DIRECTORY_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// How long an authority that did not respond is not queried: otherwise each of thousands of names would wait for its
/// time limit.
const SILENT_PAUSE: Duration = Duration::from_secs(10 * 60);
/// Bounds of `Retry-After`, and the time until the next query without it (RFC 9773 §4.3).
const VALID_FOR_MIN: Duration = Duration::from_secs(60);
const VALID_FOR_MAX: Duration = Duration::from_secs(24 * 60 * 60);
const VALID_FOR_DEFAULT: Duration = Duration::from_secs(6 * 60 * 60);

/// An authority's advice for one certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenewalAdvice {
    /// When to renew: a random time in the suggested window, so that not all servers renew at once.
    pub at: SystemTime,
    /// How long the advice is valid.
    pub valid_for: Duration,
    /// A page that explains the window, if the authority names one.
    pub explanation: Option<String>,
}

/// Queries authorities for advice, one query at a time.
#[derive(Default)]
pub struct RenewalAdvisor {
    known: Mutex<KnownAuthorities>,
}

/// Both maps have the directories' URLs as keys.
#[derive(Default)]
struct KnownAuthorities {
    authorities: HashMap<String, CachedDirectory>,
    /// When a query got no response.
    silent: HashMap<String, Instant>,
}

struct CachedDirectory {
    client: HttpClient,
    /// The directory's `renewalInfo`; `None`: the authority gives no advice.
    url: Option<String>,
    read_at: Instant,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RenewalInfo {
    suggested_window: SuggestedWindow,
    #[serde(rename = "explanationURL")]
    explanation_url: Option<String>,
}

#[derive(Deserialize)]
struct SuggestedWindow {
    start: String,
    end: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RenewalDirectory {
    renewal_info: Option<String>,
}

impl RenewalAdvisor {
    /// Returns the authority's advice for a certificate that it has issued; `None` if it gives none, or did not respond
    /// to another query within the last minutes.
    ///
    /// # Errors
    /// The authority did not answer, or its answer is malformed.
    pub async fn advise(&self, issuer: &Issuer, leaf: &CertificateDer<'_>) -> Result<Option<RenewalAdvice>, AcmeError> {
        let mut known = self.known.lock().await;
        if known.silent.get(&issuer.directory).is_some_and(|since| since.elapsed() < SILENT_PAUSE) {
            return Ok(None);
        }
        let advice = known.query(issuer, leaf).await;
        if matches!(advice, Err(AcmeError::Http(_))) {
            known.silent.insert(issuer.directory.clone(), Instant::now());
        }
        advice
    }
}

impl KnownAuthorities {
    async fn query(&mut self, issuer: &Issuer, leaf: &CertificateDer<'_>) -> Result<Option<RenewalAdvice>, AcmeError> {
        let authorities = &mut self.authorities;
        let known = authorities.get(&issuer.directory).filter(|known| known.read_at.elapsed() < DIRECTORY_LIFETIME);
        if known.is_none() {
            let client = HttpClient::through(&issuer.proxy, &issuer.roots)?;
            let response = accepted(client.send(HttpRequest::get(&issuer.directory)).await?)?;
            let RenewalDirectory { renewal_info: url } = parsed(&response)?;
            let read = CachedDirectory { client, url, read_at: Instant::now() };
            authorities.insert(issuer.directory.clone(), read);
        }
        let Some(CachedDirectory { client, url: Some(url), .. }) = authorities.get(&issuer.directory) else {
            return Ok(None);
        };
        // A certificate without an authority key identifier has no name in this protocol (RFC 9773 §4.1).
        let Ok(identifier) = CertificateIdentifier::try_from(leaf) else { return Ok(None) };
        let response = accepted(client.send(HttpRequest::get(format!("{url}/{identifier}"))).await?)?;
        advice(&response).map(Some)
    }
}

fn advice(response: &HttpResponse) -> Result<RenewalAdvice, AcmeError> {
    let RenewalInfo { suggested_window: SuggestedWindow { start, end }, explanation_url } = parsed(response)?;
    let date = |text: &str| {
        let date = OffsetDateTime::parse(text, &Rfc3339);
        date.map(SystemTime::from).map_err(|_| AcmeError::Malformed(format!("found the date '{text}'")))
    };
    let (start, end) = (date(&start)?, date(&end)?);
    // RFC 9773 §4.2: an end that is not after the start makes the answer invalid.
    let Some(length) = end.duration_since(start).ok().filter(|length| !length.is_zero()) else {
        return Err(AcmeError::Malformed("found a renewal window that ends before it begins".to_owned()));
    };
    // 32 random bits as a fraction of the window.
    let fraction = f64::from((RandomState::new().hash_one(0) >> 32) as u32) / f64::from(u32::MAX);
    let valid_for = response.retry_after(SystemTime::now());
    Ok(RenewalAdvice {
        at: start + length.mul_f64(fraction),
        valid_for: valid_for.unwrap_or(VALID_FOR_DEFAULT).clamp(VALID_FOR_MIN, VALID_FOR_MAX),
        explanation: explanation_url,
    })
}

fn accepted(response: HttpResponse) -> Result<HttpResponse, AcmeError> {
    match response.status.as_u16() {
        200 => Ok(response),
        status => Err(AcmeError::Malformed(format!("found the status {status}, expected 200"))),
    }
}

fn parsed<'r, T: Deserialize<'r>>(response: &'r HttpResponse) -> Result<T, AcmeError> {
    serde_json::from_slice(&response.body).map_err(|error| AcmeError::Malformed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

    use super::*;
    use crate::http::double::Double;

    fn leaf() -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        params.use_authority_key_identifier_extension = true;
        params.signed_by(&KeyPair::generate().unwrap(), &authority).unwrap().der().clone()
    }

    /// Queries an authority that sends these responses.
    async fn advise(
        responses: &[(&str, &str)],
        leaf: &CertificateDer<'_>,
    ) -> (Result<Option<RenewalAdvice>, String>, Vec<String>) {
        let directory = "{\"renewalInfo\": \"URL/info\", \"newNonce\": \"n\"}";
        let double = Double::new(&[&[("200 OK", directory)], responses].concat()).await;
        let advisor = RenewalAdvisor::default();
        // The double's URL is known only now.
        let url = Some(format!("{}/info", double.url));
        let issuer = Issuer { directory: format!("{}/dir", double.url), ..Issuer::default() };
        advisor
            .advise(&Issuer { directory: format!("{}/dir", double.url), ..Issuer::default() }, leaf)
            .await
            .unwrap_err();
        let mut known = advisor.known.lock().await;
        known.authorities.get_mut(&issuer.directory).unwrap().url = url;
        known.silent.clear();
        drop(known);
        let advice = advisor.advise(&issuer, leaf).await.map_err(|error| error.to_string());
        (advice, double.lines())
    }

    // RFC 9773 §4.1 to §4.3: the identifier in the path, a random time within the window, and Retry-After within
    // bounds.
    #[tokio::test]
    async fn advice_of_an_authority() {
        let leaf = leaf();
        let window = r#"{"suggestedWindow": {"start": "2026-01-02T04:00:00Z", "end": "2026-01-03T04:00:00+00:00"},
            "explanationURL": "https://ca.example/why"}"#;
        let start = SystemTime::from(OffsetDateTime::parse("2026-01-02T04:00:00Z", &Rfc3339).unwrap());
        for (head, valid_for) in [
            ("200 OK\r\nRetry-After: 21600", VALID_FOR_DEFAULT),
            ("200 OK", VALID_FOR_DEFAULT),
            ("200 OK\r\nRetry-After: 1", VALID_FOR_MIN),
            ("200 OK\r\nRetry-After: 99999999", VALID_FOR_MAX),
            ("200 OK\r\nRetry-After: soon", VALID_FOR_DEFAULT),
            ("200 OK\r\nRetry-After: Fri, 31 Dec 9999 23:59:59 GMT", VALID_FOR_MAX),
        ] {
            let (advice, lines) = advise(&[(head, window)], &leaf).await;
            let advice = advice.unwrap().unwrap();
            assert_eq!(
                (advice.valid_for, advice.explanation.as_deref()),
                (valid_for, Some("https://ca.example/why")),
                "{head}"
            );
            let offset = advice.at.duration_since(start).unwrap();
            assert!(offset <= Duration::from_secs(24 * 60 * 60), "{offset:?}");
            let path = format!("GET /info/{}", CertificateIdentifier::try_from(&leaf).unwrap());
            assert_eq!(lines.last(), Some(&path));
        }
    }

    #[tokio::test]
    async fn malformed_renewal_information() {
        let leaf = leaf();
        let backwards = r#"{"suggestedWindow": {"start": "2026-01-03T04:00:00Z", "end": "2026-01-02T04:00:00Z"}}"#;
        let no_date = r#"{"suggestedWindow": {"start": "tomorrow", "end": "2026-01-02T04:00:00Z"}}"#;
        for (head, body, want) in [
            ("200 OK", backwards, "found a renewal window that ends before it begins"),
            ("200 OK", no_date, "found the date 'tomorrow'"),
            ("200 OK", "{}", "missing field `suggestedWindow`"),
            ("200 OK", "\u{7f}", "expected value"),
            ("404 Not Found", "{}", "found the status 404, expected 200"),
        ] {
            let (advice, _) = advise(&[(head, body)], &leaf).await;
            let error = advice.unwrap_err();
            assert!(error.contains(want), "{error}");
        }
    }

    // Thousands of names must not wait one after another for an authority that does not respond.
    #[tokio::test]
    async fn a_silent_authority_is_queried_once() {
        let double = Double::new(&[]).await;
        let issuer = Issuer { directory: double.url.clone(), ..Issuer::default() };
        let advisor = RenewalAdvisor::default();
        advisor.advise(&issuer, &leaf()).await.unwrap_err();
        assert_eq!(advisor.advise(&issuer, &leaf()).await.unwrap(), None);
    }

    // An authority without `renewalInfo`, or a certificate without the authority's key identifier: no advice, no error.
    #[tokio::test]
    async fn authorities_without_advice() {
        let double = Double::new(&[("200 OK", "{\"newNonce\": \"n\"}")]).await;
        let issuer = Issuer { directory: double.url.clone(), ..Issuer::default() };
        let advisor = RenewalAdvisor::default();
        for _ in 0..2 {
            assert_eq!(advisor.advise(&issuer, &leaf()).await.unwrap(), None);
        }
        assert_eq!(double.lines(), ["GET /"], "the directory is read once");
        let params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        let nameless = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let double = Double::new(&[("200 OK", "{\"renewalInfo\": \"http://localhost/info\"}")]).await;
        let issuer = Issuer { directory: double.url.clone(), ..Issuer::default() };
        assert_eq!(advisor.advise(&issuer, nameless.der()).await.unwrap(), None);
        assert_eq!(double.lines(), ["GET /"]);
    }
}
