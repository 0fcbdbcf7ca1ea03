//! The HTTP requests to one authority: their limits, and the facts in the last response that concern the next request.
//!
//! instant-acme passes on neither the status nor the headers of a response, and adds any `Retry-After` to the time of
//! day, so that a large one panics. Thus it gets its responses from here.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{HeaderValue, RETRY_AFTER};
use hyper::{Request, Response};
use instant_acme::{BodyWrapper, BytesResponse, Error, Problem};
use serde::Deserialize;

use crate::http::{HttpClient, HttpError, HttpRequest, HttpResponse, Method, StatusCode};
use crate::{AcmeError, Issuer};

/// The longest `Retry-After` that counts: the longest period of Let's Encrypt's rate limits.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// How often a request is sent that gets no response, or that of a server which does not work: as in Caddy.
const TRIES_MAX: usize = 3;
/// The longest pause between two of these tries. If `Retry-After` is longer, the request has failed.
pub(crate) const TRY_PAUSE_MAX: Duration = Duration::from_secs(10);

/// The HTTP client of one authority, with the facts in its last response. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct AuthorityClient {
    http: HttpClient,
    retry_pause: Duration,
    last: Arc<Mutex<LastResponse>>,
}

/// Facts of the last response; empty if none has arrived.
#[derive(Debug, Default)]
struct LastResponse {
    status: Option<StatusCode>,
    retry_at: Option<SystemTime>,
    /// The URL at which the account's holder has to act (RFC 8555 §7.3.3).
    instance: Option<String>,
}

impl AuthorityClient {
    /// Makes a client that trusts the roots of the issuer's configuration. Blocks on disk for some milliseconds.
    ///
    /// # Errors
    /// If the roots cannot be read.
    pub(crate) fn new(issuer: &Issuer) -> Result<Self, AcmeError> {
        let http = HttpClient::through(&issuer.proxy, &issuer.roots)?.timeout(issuer.timing.request_timeout);
        Ok(Self { http, retry_pause: issuer.timing.retry_pause, last: Arc::default() })
    }

    /// Sends a request and reads the whole response, of any status. Repeats it after a fault of the connection or of
    /// the authority's servers.
    ///
    /// # Errors
    /// The URL is not an HTTPS one, or no complete response arrives within the limits.
    pub(crate) async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.exchange(request.into_hyper()?).await
    }

    /// The time before which another request is useless, if the last response named one (RFC 8555 §6.6).
    pub(crate) fn retry_at(&self) -> Option<SystemTime> {
        self.last().retry_at
    }

    /// Adds the facts in the last response that concern the operator and the next order to its error.
    pub(crate) fn explain(&self, error: AcmeError) -> AcmeError {
        let (retry_at, instance) = (self.retry_at(), self.last().instance.take());
        let error = match instance {
            Some(url) => AcmeError::UserAction(url, Box::new(error)),
            None => error,
        };
        error.not_before(retry_at)
    }

    /// The time until [`retry_at`](Self::retry_at); zero if the last response named none.
    pub(crate) fn retry_after(&self) -> Duration {
        self.retry_at().and_then(|at| at.duration_since(SystemTime::now()).ok()).unwrap_or_default()
    }

    /// Whether the last response refused the request because of its content: a repetition would be refused too, and
    /// another content may not.
    pub(crate) fn last_is_rejection(&self) -> bool {
        self.last().status.is_some_and(|status| status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS)
    }

    /// Whether the last request got no response, or that of a server which does not work: a repetition may succeed.
    pub(crate) fn last_is_failure(&self) -> bool {
        self.last().status.is_none_or(|status| status.is_server_error())
    }

    /// Whether the last response has a status of success.
    pub(crate) fn last_is_success(&self) -> bool {
        self.last().status.is_some_and(|status| status.is_success())
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<HttpResponse, HttpError> {
        // RFC 8555 §6.1. The URLs come from the authority's directory.
        if request.uri().scheme_str() != Some("https") {
            return Err(HttpError::url(&request.uri().to_string()));
        }
        let mut tries = 1;
        loop {
            *self.last() = LastResponse::default();
            let exchanged = self.http.exchange(request.clone()).await;
            if let Ok(response) = &exchanged {
                let now = SystemTime::now();
                let retry_at = response.retry_after(now).map(|after| now + after.min(RETRY_AFTER_MAX));
                *self.last() = LastResponse { status: Some(response.status), retry_at, instance: instance(response) };
            }
            let pause = self.retry_pause.max(self.retry_after());
            if tries == TRIES_MAX || pause > TRY_PAUSE_MAX || !is_passing(&exchanged) {
                return exchanged;
            }
            tries += 1;
            tracing::debug!(url = %request.uri(), pause = pause.as_secs_f64(), "repeating a request");
            // The nonce of a request that the authority has processed is rejected, and the request is signed again.
            tokio::time::sleep(pause).await;
        }
    }

    /// Ignores poisoning: every change is one assignment.
    fn last(&self) -> MutexGuard<'_, LastResponse> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl instant_acme::HttpClient for AuthorityClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let Ok(body) = body.collect().await;
            let is_post = head.method == Method::POST;
            let request = Request::from_parts(head, Full::new(body.to_bytes()));
            let response = client.exchange(request).await.map_err(|error| Error::Other(Box::new(error)))?;
            // instant-acme reads a directory of any status, and takes every error for a problem document.
            if !response.status.is_success() {
                let problem = problem(&response).ok_or_else(|| Error::Other(Box::new(unexplained(&response))))?;
                if !is_post {
                    return Err(Error::Api(problem));
                }
            }
            Ok(bounded(response).into())
        })
    }
}

/// The problem document of an error response (RFC 8555 §6.7).
pub(crate) fn problem(response: &HttpResponse) -> Option<Problem> {
    serde_json::from_slice::<Problem>(&response.body).ok().filter(|problem| problem.r#type.is_some())
}

/// Whether another try of the request may succeed in a moment. A request that has timed out is not repeated: its time
/// is better left to the next issuer.
fn is_passing(exchanged: &Result<HttpResponse, HttpError>) -> bool {
    match exchanged {
        Ok(response) if response.status.is_server_error() => {
            let kind = problem(response).and_then(|problem| problem.r#type);
            kind.is_none_or(|kind| kind == "urn:ietf:params:acme:error:serverInternal")
        }
        Ok(_) => false,
        Err(error) => matches!(error, HttpError::Exchange(_)),
    }
}

/// The URL in a problem document where the account's holder has to act, for example to agree to new terms of service
/// (RFC 8555 §7.3.3).
fn instance(response: &HttpResponse) -> Option<String> {
    #[derive(Deserialize)]
    struct UserAction {
        r#type: String,
        instance: String,
    }
    if !response.status.is_client_error() {
        return None;
    }
    let UserAction { r#type, instance } = serde_json::from_slice(&response.body).ok()?;
    (r#type == "urn:ietf:params:acme:error:userActionRequired").then_some(instance)
}

/// The error for a response of failure without a problem document.
pub(crate) fn unexplained(response: &HttpResponse) -> AcmeError {
    AcmeError::Malformed(format!("found the status {}", response.status.as_u16()))
}

/// Makes a response for instant-acme, with a `Retry-After` of a week at most.
fn bounded(response: HttpResponse) -> Response<Full<Bytes>> {
    let after = response.retry_after(SystemTime::now());
    let (mut head, body) = response.into_hyper().into_parts();
    match after {
        Some(after) => {
            let seconds = after.min(RETRY_AFTER_MAX).as_secs();
            head.headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        None => drop(head.headers.remove(RETRY_AFTER)),
    }
    Response::from_parts(head, body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::double::Double;

    /// A response with this header section.
    async fn response(head: &str) -> HttpResponse {
        let double = Double::new(&[(head, "")]).await;
        HttpClient::new(&[]).unwrap().send(HttpRequest::get(&double.url)).await.unwrap()
    }

    // RFC 9110 §10.2.3: instant-acme adds the seconds to the time of day, so more than the clock's range would panic.
    #[tokio::test]
    async fn instant_acme_gets_a_bounded_time() {
        for (head, want) in [
            ("200 OK", None),
            ("200 OK\r\nRetry-After: 3", Some("3")),
            ("200 OK\r\nRetry-After: 18446744073709551615", Some("604800")),
            ("200 OK\r\nRetry-After: 99999999999999999999999", Some("604800")),
            ("200 OK\r\nRetry-After: Fri, 31 Dec 9999 23:59:59 GMT", Some("604800")),
            ("200 OK\r\nRetry-After: Fri, 31 Dec 1999 23:59:59 GMT", Some("0")),
            ("200 OK\r\nRetry-After: soon", None),
        ] {
            let bounded = bounded(response(head).await);
            let found = bounded.headers().get(RETRY_AFTER).map(|value| value.to_str().unwrap());
            assert_eq!(found, want, "{head}");
        }
    }

    // RFC 8555 §6.1: HTTPS only, also if the authority's directory names another URL.
    #[tokio::test]
    async fn no_request_without_tls() {
        let client = AuthorityClient::new(&Issuer::default()).unwrap();
        let double = Double::new(&[("200 OK", "")]).await;
        let error = client.send(HttpRequest::get(&double.url)).await.unwrap_err();
        assert!(matches!(error, HttpError::Url(_)), "{error}");
        assert!(double.received().is_empty());
    }
}
