//! The variables of a request (RFC 3875 §4.1, and those that Caddy and nginx add), encoded into its call.

use std::collections::BTreeMap;
use std::net::IpAddr;

use causeway_fastcgi::{put_lengths, put_parameter};
use causeway_message::syntax::write_number;
use causeway_message::{Method, names, path};
use causeway_pipeline::{Build, Call, Context, Endpoints, Fault, Scheme, Template, UNIX_PEER};

use super::FastCgi;
use super::fields::{OwnFields, put_fields};
use super::script::ScriptPath;
use crate::ip_text::put_ip;

/// Declares the variables with their names.
macro_rules! variables {
    ($($variable:ident $name:literal,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Variable { $($variable,)* }

        impl Variable {
            const ALL: &[Self] = &[$(Self::$variable,)*];

            const fn name(self) -> &'static str {
                match self { $(Self::$variable => $name,)* }
            }
        }
    };
}

variables! {
    AuthType "AUTH_TYPE",
    ContentLength "CONTENT_LENGTH",
    ContentType "CONTENT_TYPE",
    DocumentRoot "DOCUMENT_ROOT",
    DocumentUri "DOCUMENT_URI",
    GatewayInterface "GATEWAY_INTERFACE",
    Host "HTTP_HOST",
    Https "HTTPS",
    PathInfo "PATH_INFO",
    PathTranslated "PATH_TRANSLATED",
    QueryString "QUERY_STRING",
    RemoteAddr "REMOTE_ADDR",
    RemoteHost "REMOTE_HOST",
    RemoteIdent "REMOTE_IDENT",
    RemotePort "REMOTE_PORT",
    RemoteUser "REMOTE_USER",
    RequestMethod "REQUEST_METHOD",
    RequestScheme "REQUEST_SCHEME",
    RequestUri "REQUEST_URI",
    ScriptFilename "SCRIPT_FILENAME",
    ScriptName "SCRIPT_NAME",
    ServerAddr "SERVER_ADDR",
    ServerName "SERVER_NAME",
    ServerPort "SERVER_PORT",
    ServerProtocol "SERVER_PROTOCOL",
    ServerSoftware "SERVER_SOFTWARE",
    SslCipher "SSL_CIPHER",
    SslProtocol "SSL_PROTOCOL",
}

const SOFTWARE: &str = concat!("Causeway/", env!("CARGO_PKG_VERSION"));
/// The type of content without a Content-Type, as in Caddy.
const FORM: &[u8] = b"application/x-www-form-urlencoded";

/// The variables that delimit the content. An entry of `env` with such a name has no effect, as in Caddy: the
/// application would wait for content that does not come.
const OF_CONTENT: [Variable; 3] = [Variable::ContentLength, Variable::ContentType, Variable::RequestMethod];

/// `env`: variables of the configuration, which replace those of the request.
pub(super) struct Overrides {
    entries: Box<[(Box<[u8]>, Template)]>,
    /// A bit for each [`Variable`] that an entry replaces.
    replaced: u64,
    /// The entries that replace variables of fields.
    fields: OwnFields,
}

impl Overrides {
    pub(super) fn build(written: &BTreeMap<String, String>, build: &mut Build<'_>) -> Self {
        let is_of_content = |name: &str| OF_CONTENT.iter().any(|variable| variable.name() == name);
        let kept = || written.iter().filter(|(name, _)| !is_of_content(name));
        let replaced = Variable::ALL.iter().filter(|variable| written.contains_key(variable.name()));
        let replaced = replaced.filter(|variable| !OF_CONTENT.contains(variable));
        Self {
            replaced: replaced.fold(0, |bits, variable| bits | 1 << *variable as u32),
            fields: OwnFields::new(kept().map(|(name, _)| name.as_str())),
            entries: kept().map(|(name, value)| (name.as_bytes().into(), build.template(value))).collect(),
        }
    }
}

/// The encoded variables so far.
struct Encoded<'o> {
    out: &'o mut Vec<u8>,
    replaced: u64,
}

impl Encoded<'_> {
    fn put(&mut self, variable: Variable, value: &[u8]) {
        self.put_joined(variable, [value, b""]);
    }

    /// Appends a variable whose value has two parts.
    fn put_joined(&mut self, variable: Variable, parts: [&[u8]; 2]) {
        if self.replaced & 1 << variable as u32 == 0 {
            let name = variable.name().as_bytes();
            put_lengths(name.len(), parts[0].len() + parts[1].len(), self.out);
            self.out.extend_from_slice(name);
            parts.iter().for_each(|part| self.out.extend_from_slice(part));
        }
    }

    fn put_number(&mut self, variable: Variable, number: u64) {
        self.put(variable, write_number(number, &mut [0; 20]));
    }
}

/// Encodes all variables of a request whose content has this many bytes.
///
/// # Errors
/// If its path or the document root cannot be used.
pub(super) fn put(fastcgi: &FastCgi, cx: &mut Context, call: &Call, bytes: u64) -> Result<(), Fault> {
    let parameters = &mut *call.parameters_mut();
    let mut encoded = Encoded { out: parameters, replaced: fastcgi.overrides.replaced };
    put_paths(fastcgi, cx, call, &mut encoded)?;
    put_content(call, bytes, &mut encoded);
    put_host(cx, call, &mut encoded);
    put_connection(cx, &mut encoded);
    cx.with_rendered(&fastcgi.user, |_, user| encoded.put(Variable::RemoteUser, user));
    // Not used, but sent, so that no variable of the application's own environment takes their place.
    encoded.put(Variable::AuthType, b"");
    encoded.put(Variable::RemoteIdent, b"");
    encoded.put(Variable::GatewayInterface, b"CGI/1.1");
    encoded.put(Variable::ServerSoftware, SOFTWARE.as_bytes());
    put_fields(call.request().fields(), &fastcgi.overrides.fields, encoded.out);
    for (name, value) in &fastcgi.overrides.entries {
        cx.with_rendered(value, |_, value| put_parameter(name, value, encoded.out));
    }
    Ok(())
}

/// The variables of the script, the rest of the path and the document root.
fn put_paths(fastcgi: &FastCgi, cx: &mut Context, call: &Call, encoded: &mut Encoded<'_>) -> Result<(), Fault> {
    cx.with_scratch(|cx, path| {
        cx.with_scratch(|cx, text| {
            cx.with_scratch(|_, encoded| fastcgi.splits.decode(call, path, [&mut *text, encoded]))?;
            text.clear();
            let ScriptPath { document, script, info } = fastcgi.splits.divide(path);
            encoded.put(Variable::DocumentUri, document);
            encoded.put(Variable::ScriptName, script);
            fastcgi.root.put(cx, text)?;
            encoded.put(Variable::DocumentRoot, text);
            let root_len = text.len();
            join(text, script);
            encoded.put(Variable::ScriptFilename, text);
            text.truncate(root_len);
            if info.is_empty() {
                // The file matcher has divided the path before it was rewritten.
                cx.with_rendered(&fastcgi.remainder, |_, info| put_info(info, text, encoded));
            } else {
                put_info(info, text, encoded);
            }
            Ok(())
        })
    })
}

/// `text` is the document root.
fn put_info(info: &[u8], text: &mut Vec<u8>, encoded: &mut Encoded<'_>) {
    encoded.put(Variable::PathInfo, info);
    // RFC 3875 §4.1.6: only with path info.
    if !info.is_empty() {
        join(text, info);
        encoded.put(Variable::PathTranslated, text);
    }
}

/// Appends a path to a root. Its dot segments are resolved first, so that none leads above the root.
fn join(root: &mut Vec<u8>, below: &[u8]) {
    // As in Caddy, the root itself gets no slash.
    if matches!(below, b"" | b"/") {
        return;
    }
    if root.last() == Some(&b'/') {
        root.pop();
    }
    if path::is_clean(below) {
        root.extend_from_slice(below);
    } else {
        path::clean(below, root);
    }
}

fn put_content(call: &Call, bytes: u64, encoded: &mut Encoded<'_>) {
    let request = call.request();
    let has_type = !matches!(request.method(), Method::Get | Method::Head | Method::Options);
    let content_type = request.fields().get(names::CONTENT_TYPE).filter(|text| !text.is_empty());
    encoded.put_number(Variable::ContentLength, bytes);
    encoded.put(Variable::ContentType, content_type.unwrap_or(if has_type { FORM } else { b"" }));
    encoded.put(Variable::RequestMethod, request.method().as_str().as_bytes());
    encoded.put(Variable::QueryString, request.target().query().unwrap_or_default().as_bytes());
}

fn put_host(cx: &Context, call: &Call, encoded: &mut Encoded<'_>) {
    let request = call.request();
    let authority = request.authority().unwrap_or_default();
    encoded.put(Variable::Host, authority.as_bytes());
    let (host, port) = split_host_port(authority);
    encoded.put(Variable::ServerName, host.as_bytes());
    let is_secure = cx.arrival().scheme == Scheme::Https;
    // RFC 3875 §4.1.15: also if the port is the scheme's own.
    let port = if !port.is_empty() {
        port
    } else if is_secure {
        "443"
    } else {
        "80"
    };
    encoded.put(Variable::ServerPort, port.as_bytes());
}

/// As Go's `net.SplitHostPort`; without a port, the whole text is the host.
fn split_host_port(authority: &str) -> (&str, &str) {
    let (host, port) = authority.rsplit_once(':').unwrap_or((authority, ""));
    if let Some(bare) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        return (bare, port);
    }
    if host.contains([':', '[', ']']) { (authority, "") } else { (host, port) }
}

/// The variables of the client's connection and of the request as it arrived.
fn put_connection(cx: &mut Context, encoded: &mut Encoded<'_>) {
    match cx.arrival().ends {
        Endpoints::Ip { peer, local } => {
            let mut put_address = |ip: IpAddr, variables: &[Variable]| {
                cx.with_scratch(|_, text| {
                    put_ip(ip.to_canonical(), text);
                    variables.iter().for_each(|variable| encoded.put(*variable, text));
                });
            };
            put_address(peer.ip(), &[Variable::RemoteAddr, Variable::RemoteHost]);
            put_address(local.ip(), &[Variable::ServerAddr]);
            encoded.put_number(Variable::RemotePort, u64::from(peer.port()));
        }
        // As in Caddy: a Unix socket's peer is one without a port.
        Endpoints::Unix(_) => {
            for variable in [Variable::RemoteAddr, Variable::RemoteHost] {
                encoded.put(variable, UNIX_PEER.as_bytes());
            }
            encoded.put(Variable::RemotePort, b"");
        }
    }
    let arrival = cx.arrival();
    encoded.put(Variable::RequestScheme, arrival.scheme.as_str().as_bytes());
    encoded.put(Variable::ServerProtocol, cx.version().as_str().as_bytes());
    // The client's own target, before any rewrite: applications find their routes in it.
    let target = cx.original().target();
    match target.query() {
        _ if target.form() != causeway_message::TargetForm::Absolute => {
            encoded.put(Variable::RequestUri, target.as_str().as_bytes());
        }
        None => encoded.put(Variable::RequestUri, target.path().as_bytes()),
        Some(query) => {
            let path = target.path().as_bytes();
            put_target(path, query.as_bytes(), encoded);
        }
    }
    if arrival.scheme == Scheme::Https {
        encoded.put(Variable::Https, b"on");
    }
    if let Some(facts) = &arrival.tls {
        // As Apache's mod_ssl writes it: `TLSv1.3`.
        if let Some(version) = facts.version.strip_prefix("tls") {
            encoded.put_joined(Variable::SslProtocol, [b"TLSv", version.as_bytes()]);
        }
        encoded.put(Variable::SslCipher, facts.cipher_suite.as_bytes());
    }
}

/// Appends an absolute target's path and query as REQUEST_URI.
#[cold]
fn put_target(path: &[u8], query: &[u8], encoded: &mut Encoded<'_>) {
    encoded.put_joined(Variable::RequestUri, [&[path, b"?"].concat(), query]);
}
