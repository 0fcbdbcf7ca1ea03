//! The pools of trusted authorities that other servers send: `trust_pool http`.

use causeway_acme::http::{HttpClient, HttpError, HttpRequest, LIMIT, ServerTrust, StatusCode, without_secrets};
use causeway_config::plan::CertificateReadError;
use causeway_pipeline::build::trust_pool::EndpointTls;

/// The number of redirects that are followed; that of Go's client.
const REDIRECTS_MAX: usize = 10;

/// Requests the pool at `url`. Blocks the thread until the server has answered, or for 30 s.
///
/// # Errors
/// The server sends no answer with status 200. The text names the URL without its password.
pub(super) fn fetch(url: &str, tls: &EndpointTls) -> Result<Vec<u8>, CertificateReadError> {
    let trust = match (&tls.roots, tls.is_insecure) {
        (_, true) => ServerTrust::Unverified,
        (Some(roots), false) => ServerTrust::Roots(roots.clone()),
        (None, false) => ServerTrust::System,
    };
    // The limit of the handshake limits the whole request: a pool is a short text.
    let limit = tls.handshake_timeout.map_or(LIMIT, |limit| limit.min(LIMIT));
    let client = HttpClient::trusting(&trust, tls.server_name.as_deref())?.limit(limit);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(request(&client, url.to_owned()))
}

async fn request(client: &HttpClient, mut url: String) -> Result<Vec<u8>, CertificateReadError> {
    for _ in 0..=REDIRECTS_MAX {
        let at_url = |why: String| format!("{}: {why}", without_secrets(&url));
        let response = match client.send(HttpRequest::get(&*url)).await {
            Ok(response) => response,
            // Its text has the URL.
            Err(error @ HttpError::Url(_)) => return Err(error.into()),
            Err(error) => return Err(at_url(error.to_string()).into()),
        };
        match response.redirect(&url) {
            // A pool over plain HTTP could be forged; only the operator may ask for it.
            Some(target) if is_https(&url) && !is_https(&target) => {
                let target = without_secrets(&target);
                return Err(at_url(format!("found a redirect to {}, expected HTTPS", target.escape_debug())).into());
            }
            Some(target) => url = target,
            None if response.status == StatusCode::OK => return Ok(response.body.to_vec()),
            None => return Err(at_url(format!("found the status {}, expected 200", response.status.as_u16())).into()),
        }
    }
    Err(format!("{}: more than {REDIRECTS_MAX} redirects", without_secrets(&url)).into())
}

fn is_https(url: &str) -> bool {
    url.get(.."https:".len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:"))
}
