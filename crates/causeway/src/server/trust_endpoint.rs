//! The pools of trusted authorities that other servers send: `trust_pool http`.

use std::fmt::Display;

use causeway_acme::http::{
    HttpClient, HttpError, REQUEST_TIMEOUT, Redirects, ServerTrust, StatusCode, without_secrets,
};
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
    // The limit of the handshake limits the whole request, with its redirects: a pool is a short text.
    let timeout = tls.handshake_timeout.map_or(REQUEST_TIMEOUT, |timeout| timeout.min(REQUEST_TIMEOUT));
    let client = HttpClient::trusting(&trust, tls.server_name.as_deref())?.timeout(timeout);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(request(&client, url.to_owned()))
}

async fn request(client: &HttpClient, mut url: String) -> Result<Vec<u8>, CertificateReadError> {
    // A pool over plain HTTP could be forged; only the operator may request it.
    let response = client.get_following(&mut url, REDIRECTS_MAX, Redirects::KeepHttps).await;
    let at_url = |why: &dyn Display| format!("{}: {why}", without_secrets(&url));
    match response {
        Ok(response) if response.status == StatusCode::OK => Ok(response.body.to_vec()),
        Ok(response) => {
            Err(at_url(&format_args!("found the status {}, expected 200", response.status.as_u16())).into())
        }
        // Its text has the URL.
        Err(error @ HttpError::Url(_)) => Err(error.into()),
        Err(error) => Err(at_url(&error).into()),
    }
}
