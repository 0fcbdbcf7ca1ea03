//! Caddy's checks of Host and Origin. They keep out requests of web pages that the operator's browser happens to show.
//!
//! A page may send requests to any address, and its domain may resolve to this server (DNS rebinding). `Host` then
//! names the page's domain. A page cannot forge `Origin` and `Sec-Fetch-Mode`.

use std::sync::Arc;

use causeway_config::plan::AdminAddress;
use causeway_message::{FieldValue, Method, NameRef, names};
use causeway_pipeline::{Context, ListeningSocket, TlsSpec};

use super::remote::RemoteGuard;
use super::response::AdminResponse;

const SEC_FETCH_MODE: NameRef<'static> = NameRef::Other("Sec-Fetch-Mode");
const SEC_FETCH_SITE: NameRef<'static> = NameRef::Other("Sec-Fetch-Site");
const METHODS: FieldValue<'static> = FieldValue::from_static("OPTIONS, GET, POST, PUT, PATCH, DELETE");
const FIELDS: FieldValue<'static> = FieldValue::from_static("Content-Type, Content-Length, Cache-Control");
const TRUE: FieldValue<'static> = FieldValue::from_static("true");

/// The address of a listener of the admin API, and the clients that it accepts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ListenerAccess {
    pub(crate) address: AdminAddress,
    pub(crate) clients: AcceptedClients,
}

/// The clients that a listener accepts, as configured.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AcceptedClients {
    /// All except pages of other origins.
    Local { enforce_origin: bool, origins: Option<Vec<String>> },
    /// Clients with a certificate.
    Remote(Arc<RemoteGuard>),
}

impl ListenerAccess {
    /// Returns the TLS settings; `None` for cleartext.
    pub(super) fn tls(&self) -> Option<TlsSpec> {
        match &self.clients {
            AcceptedClients::Local { .. } => None,
            AcceptedClients::Remote(guard) => Some(guard.tls()),
        }
    }
}

/// The rules in the form that requests are checked against.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    trusted: Vec<Trusted>,
    enforce_host: bool,
    enforce_origin: bool,
    /// The check of clients' certificates, which comes before the others.
    remote: Option<Arc<RemoteGuard>>,
}

/// An accepted host, with the scheme that its pages must have; an empty scheme accepts any.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Trusted {
    scheme: String,
    host: Host,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    /// The host as written, with its port if it names one.
    Written(String),
    /// The host with the port that the request arrived at, which the system may have chosen.
    OwnPort(&'static str),
}

impl Host {
    fn is(&self, authority: &str, port: u16) -> bool {
        match self {
            Self::Written(host) => host.eq_ignore_ascii_case(authority),
            Self::OwnPort(host) => authority
                .rsplit_once(':')
                .is_some_and(|(name, digits)| name.eq_ignore_ascii_case(host) && digits == port.to_string()),
        }
    }
}

impl Guard {
    pub(super) fn new(access: &ListenerAccess) -> Self {
        let (enforce_origin, origins) = match &access.clients {
            AcceptedClients::Local { enforce_origin, origins } => (*enforce_origin, origins),
            // As in Caddy: any host, because the handshake identifies the client; and no origin, so no page of a
            // browser that has such a certificate.
            AcceptedClients::Remote(guard) => {
                let remote = Some(Arc::clone(guard));
                return Self { trusted: Vec::new(), enforce_host: false, enforce_origin: false, remote };
            }
        };
        let listen = &access.address.listen;
        let ip = listen.address().and_then(|address| address.host);
        let of_any_scheme = |host| Trusted { scheme: String::new(), host };
        let trusted = match origins {
            Some(origins) => origins.iter().map(|origin| trusted(origin)).collect(),
            // As in Caddy: browsers open no Unix sockets, and no name resolves to one. The permission bits of its file
            // decide.
            None if listen.address().is_none() => Vec::new(),
            None if ip.is_some_and(|ip| ip.is_loopback()) => {
                ["localhost", "[::1]", "127.0.0.1"].map(Host::OwnPort).map(of_any_scheme).to_vec()
            }
            None => vec![of_any_scheme(Host::Written(access.address.to_string()))],
        };
        // A listener on every address of the machine is reachable under any name. A Unix or inherited socket has no
        // host. The address decides, not the text that it was written as.
        let everywhere = ip.is_none_or(|ip| ip.is_unspecified());
        // DEVIATES Caddy: with `enforce_origin` and without `origins` it refuses every client of a Unix socket, its own
        // commands too.
        let enforce_origin = enforce_origin && !(trusted.is_empty() && matches!(listen, ListeningSocket::Unix(_)));
        Self { trusted, enforce_host: !everywhere, enforce_origin, remote: None }
    }

    /// Whether the user opened a page of the API directly in a browser. The browser then sends no `Origin`. A page of
    /// another origin cannot make it send these fields, and the requested page itself changes nothing.
    fn opens_a_page(&self, cx: &Context) -> bool {
        let head = cx.head();
        let target = head.target();
        let is_page = match target.path() {
            "/causal" => target.query().is_none(),
            path => path == "/causal/report",
        };
        let is = |name: NameRef<'_>, value: &str| head.fields().get(name) == Some(value.as_bytes());
        !self.enforce_origin
            && self.remote.is_none()
            && is_page
            && head.method() == Method::Get
            && head.fields().get(names::ORIGIN).is_none()
            && is(SEC_FETCH_MODE, "navigate")
            && is(SEC_FETCH_SITE, "none")
    }

    /// Returns the check of clients' certificates, if there is one.
    pub(super) fn remote(&self) -> Option<&Arc<RemoteGuard>> {
        self.remote.as_ref()
    }

    /// Returns an error for a client that may not use the API. Sets the CORS fields that let an accepted origin's page
    /// read the response.
    pub(super) fn check(&self, cx: &mut Context) -> Result<(), AdminResponse> {
        if let Some(remote) = &self.remote {
            remote.check_request(cx)?;
        }
        let port = cx.arrival().ends.local().map_or(0, |local| local.port());
        let fields = cx.head().fields();
        let text = |name: NameRef<'_>| fields.get(name).map(|value| String::from_utf8_lossy(value).into_owned());
        // The same-origin policy does not apply to WebSockets.
        if text(names::UPGRADE.into()).is_some_and(|value| value.to_ascii_lowercase().contains("websocket")) {
            return Err(AdminResponse::error(400, "WebSocket connections aren't allowed."));
        }
        let mode = text(SEC_FETCH_MODE);
        if mode.as_ref().is_some_and(|mode| mode.contains("no-cors")) {
            return Err(AdminResponse::error(400, "Disabling same-origin restrictions is not allowed."));
        }
        let origin = text(names::ORIGIN.into());
        if origin.as_deref() == Some("null") {
            return Err(AdminResponse::error(400, "Buggy browser is sending null Origin header."));
        }
        let host = cx.head().authority().unwrap_or_default();
        // Stops DNS rebinding: the page's own domain name is not in the list.
        if self.enforce_host && !self.trusted.iter().any(|trusted| trusted.host.is(host, port)) {
            return Err(AdminResponse::error(403, format!("host not allowed: {host}")));
        }
        // A page in a current browser always sends `Origin` or `Sec-Fetch-Mode`.
        if (!self.enforce_origin && origin.is_none() && mode.is_none()) || self.opens_a_page(cx) {
            return Ok(());
        }
        let origin = origin.filter(|origin| !origin.is_empty());
        // Browsers omit `Origin` in same-origin GETs; `Referer` then names the page.
        let origin = origin.or_else(|| text(names::REFERER.into())).unwrap_or_default();
        let Some((scheme, host)) = split(&origin) else {
            return Err(AdminResponse::error(403, "required Origin header is missing or invalid"));
        };
        let fits =
            |trusted: &Trusted| (trusted.scheme.is_empty() || trusted.scheme == scheme) && trusted.host.is(host, port);
        if !self.trusted.iter().any(fits) {
            let message = format!("client is not allowed to access from origin '{origin}'");
            return Err(AdminResponse::error(403, message));
        }
        let is_preflight = cx.head().method() == Method::Options;
        let allowed = if scheme.is_empty() { format!("//{host}") } else { format!("{scheme}://{host}") };
        let response = cx.response_mut();
        if is_preflight {
            response.set(names::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
            response.set(names::ACCESS_CONTROL_ALLOW_HEADERS, FIELDS);
            response.set(names::ACCESS_CONTROL_ALLOW_CREDENTIALS, TRUE);
        }
        if let Some(allowed) = FieldValue::parse(allowed.as_bytes()) {
            response.set(names::ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
        }
        Ok(())
    }
}

fn trusted(origin: &str) -> Trusted {
    let (scheme, host) = split(origin).filter(|(scheme, _)| !scheme.is_empty()).unwrap_or(("", origin));
    Trusted { scheme: scheme.to_owned(), host: Host::Written(host.to_owned()) }
}

/// Splits an origin, or a page's URL, into scheme and authority; both are empty without a `://`. `None` when the
/// authority contains user information.
fn split(origin: &str) -> Option<(&str, &str)> {
    let Some((scheme, rest)) = origin.split_once("://") else { return Some(("", "")) };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    (!authority.contains('@')).then_some((scheme, authority))
}

#[cfg(test)]
mod tests {
    use causeway_config::plan::AdminAddress;
    use causeway_pipeline::Registry;

    use super::*;

    fn guard(listen: &str, origins: Option<&[&str]>) -> Guard {
        let mut registry = Registry::default();
        registry.set_environment(|name| match name {
            "LOCAL" => Some("localhost:2019".to_owned()),
            "OTHER" => Some("192.0.2.1".to_owned()),
            "PORT" => Some("2019".to_owned()),
            "ALL" => Some("0.0.0.0".to_owned()),
            _ => None,
        });
        let address = AdminAddress::parse_with(listen, "", &registry).unwrap();
        let origins = origins.map(|origins| origins.iter().map(|&origin| origin.to_owned()).collect());
        Guard::new(&ListenerAccess { address, clients: AcceptedClients::Local { enforce_origin: false, origins } })
    }

    // Caddy's documentation of `admin.origins`: the default is the listener's address; hosts are compared
    // case-insensitively. An address in a placeholder is checked like a written one.
    #[test]
    fn hosts() {
        for (listen, origins, host, want) in [
            ("localhost:2019", None, "localhost:2019", true),
            ("localhost:2019", None, "LocalHost:2019", true),
            ("localhost:2019", None, "127.0.0.1:2019", true),
            ("127.0.0.1:2019", None, "[::1]:2019", true),
            ("localhost:2019", None, "localhost", false),
            ("localhost:2019", None, "localhost:2020", false),
            ("localhost:2019", None, "evil.example:2019", false),
            ("localhost:2019", None, "", false),
            ("192.0.2.1:2019", None, "192.0.2.1:2019", true),
            ("192.0.2.1:2019", None, "localhost:2019", false),
            ("{env.LOCAL}", None, "localhost:2019", true),
            ("{env.LOCAL}", None, "evil.example", false),
            ("{env.OTHER}:{env.PORT}", None, "192.0.2.1:2019", true),
            ("{env.OTHER}:{env.PORT}", None, "{env.OTHER}:2019", false),
            ("localhost:2019", Some(&["a.example"][..]), "a.example", true),
            ("localhost:2019", Some(&["http://a.example:1"]), "a.example:1", true),
            ("localhost:2019", Some(&["a.example"]), "localhost:2019", false),
            ("localhost:2019", Some(&[]), "localhost:2019", false),
        ] {
            let guard = guard(listen, origins);
            assert!(guard.enforce_host);
            let got = guard.trusted.iter().any(|trusted| trusted.host.is(host, 2019));
            assert_eq!(got, want, "{listen} {origins:?} {host}");
        }
        for everywhere in [":2019", "0.0.0.0:2019", "{env.ALL}:2019", "[::]:2019", "unix//run/a.sock", "fd/3"] {
            assert!(!guard(everywhere, None).enforce_host, "{everywhere}");
        }
    }

    // docs/admin-api.md: browsers open no Unix sockets, so their clients need no Origin, also with `enforce_origin`.
    #[test]
    fn unix_sockets_need_no_origin() {
        for (listen, want) in [("unix//run/a.sock", false), ("localhost:2019", true), ("fd/3", true)] {
            let address = AdminAddress::parse(listen, "").unwrap();
            let clients = AcceptedClients::Local { enforce_origin: true, origins: None };
            assert_eq!(Guard::new(&ListenerAccess { address, clients }).enforce_origin, want, "{listen}");
        }
    }

    #[test]
    fn origins() {
        for (origin, want) in [
            ("http://a:1", Some(("http", "a:1"))),
            ("https://a/path?query", Some(("https", "a"))),
            ("http://[::1]:1#x", Some(("http", "[::1]:1"))),
            ("a", Some(("", ""))),
            ("", Some(("", ""))),
            ("http://localhost:2019@evil.example", None),
        ] {
            assert_eq!(split(origin), want, "{origin}");
        }
    }
}
