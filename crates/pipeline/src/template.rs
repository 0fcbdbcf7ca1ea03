//! Placeholder strings, compiled at load: a request looks no name up.
//!
//! `{name}` is a placeholder, `\{` a brace. A name that is not known stays in the text as written, as Caddy leaves it.

use std::io::Write as _;

use causeway_message::{FieldName, TargetForm};

use crate::build::Build;
use crate::context::{Context, VarId};

/// A string with placeholders, ready to be rendered. Rendering costs the octets it writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Box<[Piece]>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(Box<str>),
    Place(Place),
}

/// What a placeholder stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Method,
    Scheme,
    Protocol,
    Host,
    HostPort,
    Port,
    Uri,
    Path,
    Query,
    Remote,
    RemoteHost,
    RemotePort,
    Uuid,
    Field(FieldName),
    ResponseField(FieldName),
    Variable(VarId),
    FaultStatus,
    FaultText,
}

impl Template {
    /// Compiles `source`; variables that it names get their slots from `build`.
    pub fn compile(source: &str, build: &mut Build<'_>) -> Self {
        let mut pieces = Vec::new();
        let mut text = String::new();
        let mut rest = source;
        while let Some(at) = rest.find(['{', '\\']) {
            text.push_str(&rest[..at]);
            let tail = &rest[at..];
            if let Some(escaped) = tail.strip_prefix('\\') {
                let brace = escaped.starts_with(['{', '}']);
                text.push_str(if brace { &escaped[..1] } else { "\\" });
                rest = if brace { &escaped[1..] } else { escaped };
                continue;
            }
            let found = tail.find('}').and_then(|end| Some((place(&tail[1..end], build)?, end)));
            if let Some((place, end)) = found {
                if !text.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut text).into()));
                }
                pieces.push(Piece::Place(place));
                rest = &tail[end + 1..];
            } else {
                text.push('{');
                rest = &tail[1..];
            }
        }
        text.push_str(rest);
        if !text.is_empty() {
            pieces.push(Piece::Text(text.into()));
        }
        Self(pieces.into())
    }

    /// The whole text, when it holds no placeholder.
    pub fn literal(&self) -> Option<&str> {
        match &*self.0 {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Appends what the template stands for in this exchange.
    pub fn render(&self, cx: &mut Context, out: &mut Vec<u8>) {
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Place(place) => place.render(cx, out),
            }
        }
    }
}

fn place(name: &str, build: &mut Build<'_>) -> Option<Place> {
    if let Some(field) = name.strip_prefix("http.request.header.") {
        return FieldName::parse(field).map(Place::Field);
    }
    if let Some(field) = name.strip_prefix("http.response.header.") {
        return FieldName::parse(field).map(Place::ResponseField);
    }
    if let Some(variable) = name.strip_prefix("http.vars.") {
        return Some(Place::Variable(build.variable(variable)));
    }
    Some(match name {
        "http.request.method" => Place::Method,
        "http.request.scheme" => Place::Scheme,
        "http.request.proto" => Place::Protocol,
        "http.request.host" => Place::Host,
        "http.request.hostport" => Place::HostPort,
        "http.request.port" => Place::Port,
        "http.request.uri" => Place::Uri,
        "http.request.uri.path" => Place::Path,
        "http.request.uri.query" => Place::Query,
        "http.request.remote" => Place::Remote,
        "http.request.remote.host" => Place::RemoteHost,
        "http.request.remote.port" => Place::RemotePort,
        "http.request.uuid" => Place::Uuid,
        "http.error.status_code" => Place::FaultStatus,
        "http.error.status_text" => Place::FaultText,
        _ => return None,
    })
}

impl Place {
    fn render(&self, cx: &mut Context, out: &mut Vec<u8>) {
        if let Self::Uuid = self {
            let uuid = uuid_text(cx.uuid());
            out.extend_from_slice(&uuid);
            return;
        }
        let cx = &*cx;
        let head = cx.head();
        let text: &[u8] = match self {
            Self::Method => head.method().as_str().as_bytes(),
            Self::Scheme => cx.arrival().scheme.as_str().as_bytes(),
            Self::Protocol => cx.version().as_str().as_bytes(),
            Self::Host => cx.host().as_bytes(),
            Self::HostPort => head.authority().unwrap_or_default().as_bytes(),
            Self::Port => cx.host_port().unwrap_or_default().as_bytes(),
            Self::Uri => {
                let target = head.target();
                out.extend_from_slice(target.path().as_bytes());
                let Some(query) = target.query().filter(|_| target.form() != TargetForm::Asterisk) else { return };
                out.push(b'?');
                query.as_bytes()
            }
            Self::Path => cx.path(),
            Self::Query => head.target().query().unwrap_or_default().as_bytes(),
            Self::Field(name) => head.fields().get(name).unwrap_or_default(),
            Self::ResponseField(name) => cx.response().fields().get(name).unwrap_or_default(),
            Self::Variable(id) => cx.variable(*id).unwrap_or_default(),
            Self::FaultText => cx.fault().map_or("", |fault| fault.status.reason()).as_bytes(),
            Self::Uuid | Self::Remote | Self::RemoteHost | Self::RemotePort | Self::FaultStatus => {
                self.render_number(cx, out);
                return;
            }
        };
        out.extend_from_slice(text);
    }

    /// What has to be formatted; writing to a vector does not fail.
    fn render_number(&self, cx: &Context, out: &mut Vec<u8>) {
        let peer = cx.arrival().peer;
        let _ = match self {
            Self::Remote => write!(out, "{peer}"),
            Self::RemoteHost => write!(out, "{}", peer.ip().to_canonical()),
            Self::RemotePort => write!(out, "{}", peer.port()),
            Self::FaultStatus => match cx.fault() {
                Some(fault) => write!(out, "{}", fault.status.as_u16()),
                None => Ok(()),
            },
            _ => Ok(()),
        };
    }
}

/// 8-4-4-4-12 hexadecimal digits (RFC 9562 §4).
fn uuid_text(uuid: u128) -> [u8; 36] {
    let mut text = [b'-'; 36];
    let mut shift = 128;
    for (at, octet) in text.iter_mut().enumerate() {
        if !matches!(at, 8 | 13 | 18 | 23) {
            shift -= 4;
            *octet = b"0123456789abcdef"[(uuid >> shift) as usize & 15];
        }
    }
    text
}
