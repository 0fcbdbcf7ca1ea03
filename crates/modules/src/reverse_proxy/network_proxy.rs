//! `network_proxy`: the proxy between this server and its upstreams.

use std::borrow::Cow;
use std::sync::Arc;

use causeway_pipeline::{Build, BuildError, NetworkProxy, NetworkProxyProtocol, Template, TlsClient};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use url::Url;

/// A module of `caddy.network_proxy`: `none`, a direct connection, which is also the default, or `url`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NetworkProxyConfig {
    from: String,
    #[serde(default)]
    url: String,
}

/// The proxy of a transport.
pub(super) enum ConfiguredProxy {
    /// One for all requests, and its URL.
    Fixed { url: String, proxy: NetworkProxy },
    /// A URL with placeholders of the request.
    OfRequests(Template),
}

/// Returns the proxy of `network_proxy`, or of the older `forward_proxy_url`. See [`secured`].
///
/// # Errors
/// An unknown module, or a URL that is not valid.
pub(super) fn configured(
    written: Option<&NetworkProxyConfig>,
    former: &str,
    build: &mut Build<'_>,
) -> Result<Option<ConfiguredProxy>, BuildError> {
    let url = match written {
        Some(proxy) => build.at("network_proxy", |build| match &*proxy.from {
            "none" => Ok(None),
            "url" => Ok(Some(("network_proxy", &*proxy.url))),
            other => Err(build.refuse(other, "none or url")),
        })?,
        None => Some(("forward_proxy_url", former)).filter(|(_, url)| !url.is_empty()),
    };
    let Some((key, url)) = url else { return Ok(None) };
    build.at(key, |build| {
        let template = build.template(url);
        let Some(url) = template.literal() else { return Ok(Some(ConfiguredProxy::OfRequests(template))) };
        let refuse = |expected| build.refuse(without_credentials(url), expected);
        let proxy = parse(url).map_err(refuse)?;
        Ok(Some(ConfiguredProxy::Fixed { url: url.to_owned(), proxy }))
    })
}

/// Completes a proxy with the settings of TLS to it. As in Caddy, they are those of the transport; but the name to
/// verify is the proxy's.
pub(super) fn secured(mut proxy: NetworkProxy, tls: Option<&TlsClient>) -> Arc<NetworkProxy> {
    if let (Some(spec), Some(tls)) = (&mut proxy.tls, tls) {
        *spec = Arc::new(TlsClient { server_name: None, ..tls.clone() });
    }
    Arc::new(proxy)
}

/// Parses the URL of a network proxy, such as `http://user:password@proxy.internal:3128`. One with `https` has the
/// default settings of TLS.
///
/// # Errors
/// A description of valid URLs.
pub(super) fn parse(text: &str) -> Result<NetworkProxy, &'static str> {
    const EXPECTED: &str =
        "a URL such as http://proxy.internal:3128, https://proxy.internal or socks5://proxy.internal:1080";
    let url = Url::parse(text).map_err(|_| EXPECTED)?;
    let (protocol, port, is_secure) = match url.scheme() {
        "http" => (NetworkProxyProtocol::Http, 80, false),
        "https" => (NetworkProxyProtocol::Http, 443, true),
        "socks5" | "socks5h" => (NetworkProxyProtocol::Socks5, 1080, false),
        _ => return Err(EXPECTED),
    };
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or(EXPECTED)?;
    let address = format!("{host}:{}", url.port().unwrap_or(port));
    let decode = |text: &str| percent_decode_str(text).decode_utf8().ok().map(Cow::into_owned);
    let credentials = match (url.username(), url.password()) {
        ("", None) => None,
        (user, password) => match (decode(user), decode(password.unwrap_or_default())) {
            // RFC 1929 §2: a byte has the length.
            (Some(user), Some(password)) if user.len() <= 255 && password.len() <= 255 => Some((user, password)),
            _ => return Err("a user name and a password of at most 255 bytes of UTF-8 each"),
        },
    };
    Ok(NetworkProxy { protocol, address, credentials, tls: is_secure.then(Arc::default) })
}

/// Hides the credentials of a URL without a scheme; the error message itself hides those of a URL with one.
fn without_credentials(url: &str) -> Cow<'_, str> {
    match url.rsplit_once('@') {
        Some((_, host)) if !url.contains("://") => format!("…@{host}").into(),
        _ => url.into(),
    }
}
