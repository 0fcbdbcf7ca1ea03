//! A network proxy between this machine and other servers, and the choice of one.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hyper::Uri;
use hyper_util::client::proxy::matcher::Matcher;

/// Which proxy a connection uses.
#[derive(Debug, Clone, Default)]
pub enum ProxyChoice {
    /// None.
    #[default]
    Direct,
    /// The one that the environment had when this was made.
    Environment(ProxyEnvironment),
    /// This one.
    Proxy(NetworkProxy),
}

impl ProxyChoice {
    /// Returns the choice of the environment of this process.
    pub fn environment() -> Self {
        // It does not change.
        static ENVIRONMENT: LazyLock<ProxyEnvironment> = LazyLock::new(ProxyEnvironment::read);
        Self::Environment(ENVIRONMENT.clone())
    }
}

/// The proxies of the environment: `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, in upper or lower case.
#[derive(Clone)]
pub struct ProxyEnvironment(Arc<Matcher>);

impl ProxyEnvironment {
    /// Reads the variables.
    pub(super) fn read() -> Self {
        Self(Arc::new(Matcher::from_env()))
    }

    /// Returns the proxy for a URL; `None`: there is none. As in Go, this machine's own addresses need none.
    pub(super) fn proxy(&self, to: &Uri) -> Option<NetworkProxy> {
        let host = to.host()?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback()) {
            return None;
        }
        let found = self.0.intercept(to)?;
        let mut proxy: NetworkProxy = found.uri().to_string().parse().ok()?;
        if let Some((user, password)) = found.raw_auth() {
            proxy.credentials = Some((user.to_owned(), password.to_owned()));
        } else if let Some(basic) = found.basic_auth() {
            // The header is decoded here and encoded again when it is sent.
            let text = basic.to_str().ok()?.strip_prefix("Basic ")?;
            let text = String::from_utf8(BASE64_STANDARD.decode(text).ok()?).ok()?;
            let (user, password) = text.split_once(':')?;
            proxy.credentials = Some((user.to_owned(), password.to_owned()));
        }
        // An HTTP proxy gets no other request than to connect, and most refuse that for port 80.
        let is_reachable = proxy.kind == ProxyKind::Socks5 || to.scheme_str() != Some("http");
        is_reachable.then_some(proxy)
    }
}

impl fmt::Debug for ProxyEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProxyEnvironment")
    }
}

/// A proxy for outgoing connections, from a URL such as `http://user:password@proxy.example:3128`. `Debug` does not
/// show the password.
#[derive(Clone, PartialEq, Eq)]
pub struct NetworkProxy {
    kind: ProxyKind,
    /// Without credentials, and with a port.
    uri: Uri,
    credentials: Option<(String, String)>,
}

/// The protocol that names the destination to a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProxyKind {
    /// By `CONNECT` (RFC 9110 §9.3.6).
    Http,
    /// By `CONNECT`, over TLS.
    Https,
    /// By SOCKS version 5 (RFC 1928); the proxy resolves the host's name.
    Socks5,
}

impl NetworkProxy {
    /// The shape of URLs that [`from_str`](Self::from_str) accepts, for error messages.
    pub const EXPECTED: &'static str =
        "a URL with the scheme http, https, socks5 or socks5h, and a host, such as http://proxy.example:3128";

    pub(super) fn kind(&self) -> ProxyKind {
        self.kind
    }

    pub(super) fn uri(&self) -> &Uri {
        &self.uri
    }

    pub(super) fn credentials(&self) -> Option<&(String, String)> {
        self.credentials.as_ref()
    }

    /// The value of `Proxy-Authorization` (RFC 7617 §2).
    pub(super) fn basic_authorization(&self) -> Option<String> {
        let (user, password) = self.credentials.as_ref()?;
        Some(format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}"))))
    }
}

impl FromStr for NetworkProxy {
    type Err = ProxyUrlError;

    fn from_str(url: &str) -> Result<Self, ProxyUrlError> {
        let (scheme, rest) = url.split_once("://").ok_or(ProxyUrlError)?;
        let (kind, port) = match &*scheme.to_ascii_lowercase() {
            "http" => (ProxyKind::Http, 80),
            "https" => (ProxyKind::Https, 443),
            "socks5" | "socks5h" => (ProxyKind::Socks5, 1080),
            _ => return Err(ProxyUrlError),
        };
        // As in Go, a path, a query and a fragment have no meaning.
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (credentials, host) = match authority.rsplit_once('@') {
            Some((credentials, host)) => (Some(credentials), host),
            None => (None, authority),
        };
        let decoded = |text: &str| decoded(text).ok_or(ProxyUrlError);
        let credentials = match credentials.map(|text| text.split_once(':').unwrap_or((text, ""))) {
            Some((user, password)) => Some((decoded(user)?, decoded(password)?)),
            None => None,
        };
        // RFC 1929 §2: the length of both is one byte.
        let is_long = |(user, password): &(String, String)| user.len() > 255 || password.len() > 255;
        if kind == ProxyKind::Socks5 && credentials.as_ref().is_some_and(is_long) {
            return Err(ProxyUrlError);
        }
        let named: Uri = format!("http://{host}").parse().map_err(|_| ProxyUrlError)?;
        let host = named.host().filter(|host| !host.is_empty()).ok_or(ProxyUrlError)?;
        let port = match named.authority().map_or("", |authority| &authority.as_str()[host.len()..]) {
            "" | ":" => port,
            // `http` accepts any text as the port.
            _ => named.port_u16().ok_or(ProxyUrlError)?,
        };
        let scheme = if kind == ProxyKind::Https { "https" } else { "http" };
        let uri = format!("{scheme}://{host}:{port}").parse().map_err(|_| ProxyUrlError)?;
        Ok(Self { kind, uri, credentials })
    }
}

/// Replaces `%XX` (RFC 3986 §2.1). `None` for a malformed escape, or a result with control characters.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let value = 16 * digit(rest.next()?)? + digit(rest.next()?)?;
                u8::try_from(value).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok().filter(|text| !text.contains(char::is_control))
}

/// The text is not the URL of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyUrlError;

impl fmt::Display for ProxyUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}", NetworkProxy::EXPECTED)
    }
}

impl std::error::Error for ProxyUrlError {}

impl fmt::Debug for NetworkProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetworkProxy").field("kind", &self.kind).field("uri", &self.uri).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Go's documentation of `http.Transport.Proxy`: the schemes http, https, socks5 and socks5h. The default ports are
    // those of the schemes.
    #[test]
    fn urls_of_proxies() {
        let auth = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        for (url, kind, uri, credentials) in [
            ("http://proxy.example", ProxyKind::Http, "http://proxy.example:80/", None),
            ("HTTP://proxy.example:3128/path?a#b", ProxyKind::Http, "http://proxy.example:3128/", None),
            ("https://proxy.example", ProxyKind::Https, "https://proxy.example:443/", None),
            ("socks5://10.0.0.1", ProxyKind::Socks5, "http://10.0.0.1:1080/", None),
            ("socks5h://[::1]:9050", ProxyKind::Socks5, "http://[::1]:9050/", None),
            ("http://ann:p%40ss:w@p.example:1", ProxyKind::Http, "http://p.example:1/", auth("ann", "p@ss:w")),
            ("socks5://ann@p.example", ProxyKind::Socks5, "http://p.example:1080/", auth("ann", "")),
        ] {
            let proxy: NetworkProxy = url.parse().unwrap();
            assert_eq!((proxy.kind, &*proxy.uri.to_string(), proxy.credentials), (kind, uri, credentials), "{url}");
        }
        let long = format!("socks5://{}@p.example", "a".repeat(256));
        for url in [
            "",
            "proxy.example:3128",
            "ftp://p.example",
            "http://",
            "http://:80",
            "http:///path",
            "http://a b",
            "http://p.example:port",
            "http://a%zz@p.example",
            "http://a%0d%0ab@p.example",
            &long,
        ] {
            assert_eq!(url.parse::<NetworkProxy>(), Err(ProxyUrlError), "{url}");
        }
    }

    // Go's documentation of `http.ProxyFromEnvironment`: a proxy for HTTPS, exceptions in `NO_PROXY`, and none for
    // `localhost` and loopback addresses.
    #[test]
    fn proxies_of_the_environment() {
        let matcher =
            Matcher::builder().https("http://ann:p%40@p.example:3128").http("http://other").no("in.example,10.0.0.0/8");
        let environment = ProxyEnvironment(Arc::new(matcher.build()));
        for (url, is_proxied) in [
            ("https://ca.example/dir", true),
            ("https://192.0.2.1/dir", true),
            ("https://a.in.example/dir", false),
            ("https://10.1.2.3/dir", false),
            ("https://localhost:14000/dir", false),
            ("https://127.0.0.1/dir", false),
            ("https://[::1]/dir", false),
            // Most HTTP proxies refuse a tunnel to port 80.
            ("http://ocsp.example/", false),
        ] {
            let found = environment.proxy(&url.parse().unwrap());
            let want: Option<NetworkProxy> = is_proxied.then(|| "http://ann:p%40@p.example:3128".parse().unwrap());
            assert_eq!(found, want, "{url}");
        }
        let socks = ProxyEnvironment(Arc::new(Matcher::builder().all("socks5h://ann:pass@p.example").build()));
        let want = "socks5://ann:pass@p.example:1080".parse().ok();
        assert_eq!(socks.proxy(&"https://ca.example".parse().unwrap()), want);
        assert_eq!(socks.proxy(&"http://ocsp.example".parse().unwrap()), want);
    }

    #[test]
    fn a_password_is_not_shown() {
        let proxy: NetworkProxy = "http://ann:secret@p.example".parse().unwrap();
        assert!(!format!("{proxy:?}").contains("secret"));
        assert_eq!(proxy.basic_authorization().as_deref(), Some("Basic YW5uOnNlY3JldA=="));
    }
}
