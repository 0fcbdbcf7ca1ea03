//! The request: its head as it arrived and as handlers changed it, its decoded path, and its client.

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::Instant;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use causeway_message::{FieldValue, Head, Method, Scheme, StatusCode, TargetForm, Version, names, path};

use super::{Arrival, Client, Context, KEPT_BYTES_MAX, clear_and_shrink};
use crate::handler::Fault;
use crate::listen::Endpoints;
use crate::route::ServerId;
use crate::worker::Worker;

pub(super) struct RequestState {
    pub(super) arrival: Arrival,
    /// The request as it arrived; read-only after [`Spare::prepare`](super::Spare::prepare).
    pub(super) original: Head,
    /// A copy of `original` with the handlers' changes; valid if `is_edited`.
    pub(super) edited: Head,
    pub(super) is_edited: bool,
    /// The decoded path of the current target; valid if not `path_is_raw`.
    path: Vec<u8>,
    path_is_raw: bool,
    /// The result of [`Context::path_is_plain`], once computed.
    path_is_plain: Cell<Option<bool>>,
    /// The result of [`Context::client`], once computed.
    pub(super) client: Option<Client>,
    uuid: Option<u128>,
    /// The result of [`Context::is_extended_connect`].
    is_extended_connect: bool,
}

impl RequestState {
    /// An empty request that arrived `at` this time from the unspecified address.
    pub(super) fn new(at: Instant) -> Self {
        let unspecified = SocketAddr::from(([0, 0, 0, 0], 0));
        Self {
            arrival: Arrival {
                ends: Endpoints::Ip { peer: unspecified, local: unspecified },
                scheme: Scheme::Http,
                server: ServerId::FIRST,
                at,
                upgrade: false,
                tls: None,
            },
            original: Head::new(),
            edited: Head::new(),
            is_edited: false,
            path: Vec::new(),
            path_is_raw: true,
            path_is_plain: Cell::default(),
            client: None,
            uuid: None,
            is_extended_connect: false,
        }
    }

    pub(super) fn reset(&mut self) {
        let Self {
            arrival,
            original,
            edited,
            is_edited,
            path,
            path_is_raw,
            path_is_plain,
            client,
            uuid,
            is_extended_connect,
        } = self;
        // `Spare::prepare` overwrites the rest of the arrival; the certificate is freed now.
        arrival.tls = None;
        original.clear();
        original.shrink_to(KEPT_BYTES_MAX);
        // Most exchanges change nothing, and need not touch the copy's memory.
        if *is_edited {
            edited.clear();
            edited.shrink_to(KEPT_BYTES_MAX);
            *is_edited = false;
        }
        clear_and_shrink(path);
        *path_is_raw = true;
        path_is_plain.set(None);
        *client = None;
        *uuid = None;
        *is_extended_connect = false;
    }

    #[inline]
    fn head(&self) -> &Head {
        if self.is_edited { &self.edited } else { &self.original }
    }

    /// Converts an extended CONNECT for a WebSocket (RFC 8441 §5), as a protocol machine decodes it, to the GET with
    /// `Upgrade` that it stands for (RFC 6455 §4.1), so that matchers and handlers see the same request as from an
    /// HTTP/1.1 client.
    #[cold]
    pub(super) fn convert_extended_connect(&mut self, worker: &dyn Worker) {
        let head = &mut self.original;
        let is_web_socket =
            head.fields().get(names::UPGRADE).is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"websocket"));
        if head.method() != Method::Connect || head.target().form() != TargetForm::Origin || !is_web_socket {
            return;
        }
        head.set_method(Method::Get);
        let fields = head.fields_mut();
        fields.insert(names::CONNECTION, FieldValue::from_static("Upgrade"));
        // HTTP/2 has no Sec-WebSocket-Key; HTTP/1.1 requires one.
        let random = (u128::from(worker.random()) << 64 | u128::from(worker.random())).to_be_bytes();
        let mut key = [0; 24];
        if BASE64_STANDARD.encode_slice(random, &mut key).is_ok()
            && let Some(key) = FieldValue::parse(&key)
        {
            fields.insert(names::SEC_WEBSOCKET_KEY, key);
        }
        self.is_extended_connect = true;
    }

    /// Decodes the path of the current target. Must be called after each change of the target.
    #[inline]
    pub(super) fn decode_path(&mut self) {
        let head = if self.is_edited { &self.edited } else { &self.original };
        self.path_is_plain.set(None);
        self.path_is_raw = !head.path_is_escaped();
        if !self.path_is_raw {
            self.path.clear();
            // Decoding cannot fail here: the parser rejects a target whose path has a bad escape.
            self.path_is_raw = path::decode(head.target().path(), &mut self.path).is_err();
        }
    }
}

impl Context {
    /// Returns the request head with the changes of earlier handlers.
    #[inline]
    pub fn head(&self) -> &Head {
        self.0.request.head()
    }

    /// Returns the request head as it arrived.
    pub fn original(&self) -> &Head {
        &self.0.request.original
    }

    /// Returns whether the request arrived as an extended CONNECT for a WebSocket (RFC 8441). Its head is that of the
    /// GET with `Upgrade` that it stands for; its response must not be 2xx unless it opens the tunnel.
    pub fn is_extended_connect(&self) -> bool {
        self.0.request.is_extended_connect
    }

    /// Returns the request head for changes. The first call copies it, so that [`original`](Self::original) stays as
    /// it is. To change the target, use [`set_target`](Self::set_target).
    pub fn head_mut(&mut self) -> &mut Head {
        let parts = &mut *self.0;
        if !parts.request.is_edited {
            parts.request.edited.copy_from(&parts.request.original);
            parts.request.is_edited = true;
        }
        &mut parts.request.edited
    }

    /// Replaces the request target.
    ///
    /// # Errors
    /// 400 if `target` is invalid; the request is then unchanged.
    pub fn set_target(&mut self, target: impl AsRef<[u8]>) -> Result<(), Fault> {
        self.head_mut().set_target(target).map_err(|_| Fault::from_status(StatusCode::BAD_REQUEST))?;
        self.0.request.decode_path();
        Ok(())
    }

    /// Calls `work` with another request head in place of the present one: a proxy decides by the request that it
    /// sends. Both heads are exchanged back afterwards.
    pub fn with_head<T>(&mut self, head: &mut Head, work: impl FnOnce(&mut Self) -> T) -> T {
        self.swap_head(head);
        let result = work(self);
        self.swap_head(head);
        result
    }

    fn swap_head(&mut self, head: &mut Head) {
        std::mem::swap(self.head_mut(), head);
        self.0.request.decode_path();
    }

    /// Restores the request's own method and target and keeps the handlers' changes to its fields, Host too, as Caddy
    /// does before error routes.
    pub(crate) fn restore_target(&mut self) {
        if !self.0.request.is_edited {
            return;
        }
        self.with_scratch(|cx, text| {
            let parts = &mut *cx.0;
            let own = if parts.carried.carrier.is_some() { &parts.carried.head } else { &parts.request.original };
            let (edited, target) = (&mut parts.request.edited, own.target());
            edited.set_method(own.method());
            let has_moved_authority =
                target.form() == TargetForm::Absolute && edited.target().form() == TargetForm::Origin;
            if has_moved_authority {
                // A handler has moved the authority to Host and may have changed it there; the target's would hide
                // that.
                text.extend_from_slice(target.path().as_bytes());
                if let Some(query) = target.query() {
                    text.push(b'?');
                    text.extend_from_slice(query.as_bytes());
                }
            } else {
                text.extend_from_slice(target.as_str().as_bytes());
            }
            edited.set_target(&**text).expect("a target that was parsed once is one, and so is its origin form");
            parts.request.decode_path();
        });
    }

    /// Returns the target's path, percent-decoded once. It may contain any bytes.
    #[inline]
    pub fn path(&self) -> &[u8] {
        if self.0.request.path_is_raw { self.head().path() } else { &self.0.request.path }
    }

    /// Returns whether the path is plain: ASCII, without empty and dot segments. Computed once per target.
    #[inline]
    pub fn path_is_plain(&self) -> bool {
        match self.0.request.path_is_plain.get() {
            Some(plain) => plain,
            None => {
                let plain = self.path().is_ascii() && path::is_clean(self.path());
                self.0.request.path_is_plain.set(Some(plain));
                plain
            }
        }
    }

    /// Returns the requested host as sent, without port and brackets; empty if the request has none.
    pub fn host(&self) -> &str {
        self.head().authority().map_or("", |authority| split_authority(authority).0)
    }

    /// Returns the port of the authority, if it has one.
    pub fn host_port(&self) -> Option<&str> {
        self.head().authority().and_then(|authority| split_authority(authority).1)
    }

    /// Returns how the request arrived.
    pub fn arrival(&self) -> &Arrival {
        &self.0.request.arrival
    }

    /// Returns the protocol version, for placeholders and records. No handler's decision may depend on it.
    pub fn version(&self) -> Version {
        self.0.request.original.version()
    }

    /// Returns the client: the peer, or the address that a trusted proxy reports. Computed once.
    pub fn client(&mut self) -> Client {
        let parts = &mut *self.0;
        *parts.request.client.get_or_insert_with(|| {
            let peer = parts.request.arrival.ends.peer_ip();
            match parts.generation.plan().trust(parts.request.arrival.server) {
                // The original fields: a handler's edit must not change the client.
                Some(trust) => trust.client(peer, parts.request.original.fields()),
                None => Client { ip: peer, proxied: false },
            }
        })
    }

    /// Returns the client if [`client`](Self::client) was called before, and the peer otherwise.
    pub fn known_client(&self) -> Client {
        let peer = Client { ip: self.0.request.arrival.ends.peer_ip(), proxied: false };
        self.0.request.client.unwrap_or(peer)
    }

    /// Returns the request's UUID, version 4; generated on first use.
    pub fn uuid(&mut self) -> u128 {
        let parts = &mut *self.0;
        *parts.request.uuid.get_or_insert_with(|| {
            let random = u128::from(parts.worker.random()) << 64 | u128::from(parts.worker.random());
            // Version 4, variant 10 (RFC 9562 §5.4).
            random & !(0xf000 << 64) & !(0xc << 60) | 0x4000 << 64 | 0x8 << 60
        })
    }

    /// Returns the UUID's text if [`uuid`](Self::uuid) was called before.
    pub fn known_uuid(&self) -> Option<[u8; 36]> {
        self.0.request.uuid.map(uuid_text)
    }
}

/// Formats a UUID as 8-4-4-4-12 hexadecimal digits (RFC 9562 §4).
pub(crate) fn uuid_text(uuid: u128) -> [u8; 36] {
    let mut text = [b'-'; 36];
    let mut shift = 128;
    for (at, byte) in text.iter_mut().enumerate() {
        if !matches!(at, 8 | 13 | 18 | 23) {
            shift -= 4;
            *byte = b"0123456789abcdef"[(uuid >> shift) as usize & 15];
        }
    }
    text
}

/// Splits `host[:port]` into host and port, and removes the brackets of an IPv6 literal.
pub(crate) fn split_authority(authority: &str) -> (&str, Option<&str>) {
    // RFC 3986 §3.2: the protocol machine rejects userinfo in an http authority, so none is handled here.
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, tail) = rest.split_once(']').unwrap_or((rest, ""));
        return (host, tail.strip_prefix(':'));
    }
    match memchr::memchr(b':', authority.as_bytes()) {
        Some(at) => (&authority[..at], Some(&authority[at + 1..])),
        None => (authority, None),
    }
}
