//! A copy of the exchange for a template.

use std::net::SocketAddr;
use std::sync::Arc;

use causeway_message::{FieldMap, Head, Version, path};
use causeway_pipeline::{Client, Context, Environment};
use jiff::Timestamp;

use super::DotFields;
use super::random::RandomSeed;
use crate::field_name;

/// A copy of the exchange for another thread.
pub(super) struct Snapshot {
    /// The template's text.
    pub(super) text: Vec<u8>,
    /// The directory of files that templates read.
    pub(super) root: Vec<u8>,
    pub(super) request: RequestFacts,
    /// The request as it arrived, before other handlers changed it.
    pub(super) original: RequestFacts,
    pub(super) client: Client,
    pub(super) tls: Option<TlsValues>,
    /// The fields of the response, in order.
    pub(super) response: Vec<(String, Vec<u8>)>,
    /// Further fields of the dot.
    pub(super) dot: Option<Arc<dyn DotFields>>,
    pub(super) environment: Environment,
    /// The current time and the random values of all executions.
    pub(super) now: Timestamp,
    pub(super) seed: Arc<RandomSeed>,
}

/// The fields of Go's `tls.ConnectionState`.
#[derive(Debug, Clone)]
pub(super) struct TlsValues {
    pub(super) version: u16,
    pub(super) cipher_suite: u16,
    pub(super) protocol: &'static str,
    pub(super) server_name: String,
    pub(super) is_resumed: bool,
}

/// One form of the request.
pub(super) struct RequestFacts {
    pub(super) method: String,
    pub(super) version: Version,
    /// The target as it was sent, without an authority.
    pub(super) target: Vec<u8>,
    pub(super) path: Vec<u8>,
    pub(super) query: Option<String>,
    /// The authority, with or without a port.
    pub(super) host: String,
    /// `None` for a Unix socket.
    pub(super) peer: Option<SocketAddr>,
    pub(super) content_length: Option<u64>,
    pub(super) fields: Vec<(String, Vec<u8>)>,
}

impl Snapshot {
    pub(super) fn of(cx: &mut Context, root: Vec<u8>, text: Vec<u8>, dot: Option<Arc<dyn DotFields>>) -> Self {
        let client = cx.client();
        let facts = |head: &Head| RequestFacts::of(cx, head);
        let tls = cx.arrival().tls.as_deref().map(|tls| TlsValues {
            version: tls.version_number(),
            cipher_suite: tls.cipher_suite_number(),
            protocol: tls.protocol,
            server_name: tls.server_name.as_deref().unwrap_or_default().to_owned(),
            is_resumed: tls.resumed,
        });
        Self {
            text,
            root,
            request: facts(cx.head()),
            original: facts(cx.original()),
            client,
            tls,
            response: fields(cx.response().fields()),
            dot,
            environment: cx.generation().plan().environment().clone(),
            now: Timestamp::try_from(cx.worker().wall()).unwrap_or_default(),
            seed: Arc::default(),
        }
    }
}

impl RequestFacts {
    fn of(cx: &Context, head: &Head) -> Self {
        let target = head.target();
        let mut decoded = Vec::new();
        if path::decode(target.path(), &mut decoded).is_err() {
            decoded = target.path().as_bytes().to_vec();
        }
        let mut whole = target.path().as_bytes().to_vec();
        if let Some(query) = target.query() {
            whole.push(b'?');
            whole.extend_from_slice(query.as_bytes());
        }
        Self {
            method: head.method().as_str().to_owned(),
            version: head.version(),
            target: whole,
            path: decoded,
            query: target.query().map(str::to_owned),
            host: head.authority().unwrap_or_default().to_owned(),
            peer: cx.arrival().ends.peer(),
            content_length: head.fields().content_length().ok().flatten(),
            fields: fields(head.fields()),
        }
    }

    /// Returns the values of a field; its name in any case.
    pub(super) fn values<'f>(&'f self, name: &'f str) -> impl Iterator<Item = &'f [u8]> {
        self.fields.iter().filter(move |(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| &**value)
    }

    /// Returns a cookie's value; its name has a case.
    pub(super) fn cookie(&self, name: &[u8]) -> Option<&[u8]> {
        self.cookies().find_map(|(known, value)| (known == name).then_some(value))
    }

    /// Returns all cookies by name and value.
    pub(super) fn cookies(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.values("Cookie").flat_map(causeway_message::cookies)
    }
}

/// Returns copies of all fields, with their names in Go's canonical form.
fn fields(fields: &FieldMap) -> Vec<(String, Vec<u8>)> {
    fields.iter().map(|(name, value)| (canonical(name.as_str()), value.to_vec())).collect()
}

/// Returns a field name as Go's maps have it: a capital letter at the start and after each hyphen.
pub(super) fn canonical(name: &str) -> String {
    let mut out = String::new();
    field_name::canonical(name, |name| out.push_str(name));
    out
}
