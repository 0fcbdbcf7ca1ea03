//! A head as `http` has it.
//!
//! The octets of a head are copied once, into a buffer that many heads share; names are looked up by number and values are parts of that
//! copy. A map is an earlier answer's, emptied. So a request whose service keeps nothing of it costs no allocation here.

use bytes::{Bytes, BytesMut};
use causeway_message::{Head, Method, NameRef, Version};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri};

use crate::names;

/// Octets that heads are copied into at a time. Whoever keeps a value keeps so much.
const ARENA_OCTETS: usize = 8 * 1024;

/// A head that `http` has no words for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unspeakable;

/// Where a worker's heads are copied to.
pub(crate) struct Arena {
    free: BytesMut,
    registered: &'static [HeaderName],
}

impl Default for Arena {
    fn default() -> Self {
        Self { free: BytesMut::new(), registered: names::registered() }
    }
}

impl Arena {
    /// Gives a request this head; `fields` is an empty map.
    pub(crate) fn fill<B>(
        &mut self,
        head: &Head,
        mut fields: HeaderMap,
        request: &mut Request<B>,
    ) -> Result<(), Unspeakable> {
        debug_assert!(fields.is_empty(), "no field of another message");
        let (octets, target) = (head.fields().arena(), head.target_octets());
        let place = place_of(octets, target);
        let copied = self.copy(octets, if place.is_none() { target } else { b"" });
        for (name, value) in head.fields().iter() {
            let name = match name {
                NameRef::Known(known) => self.registered[known.index()].clone(),
                NameRef::Other(spelled) => HeaderName::from_bytes(spelled.as_bytes()).map_err(|_| Unspeakable)?,
            };
            // A value is always a part of the arena.
            let at = place_of(octets, value).ok_or(Unspeakable)?;
            let value = HeaderValue::from_maybe_shared(copied.slice(at..at + value.len())).map_err(|_| Unspeakable)?;
            fields.try_append(name, value).map_err(|_| Unspeakable)?;
        }
        let at = place.unwrap_or(octets.len());
        *request.uri_mut() = Uri::from_maybe_shared(copied.slice(at..at + target.len())).map_err(|_| Unspeakable)?;
        *request.method_mut() = method(head.method())?;
        *request.version_mut() = version(head.version());
        // The map that a request is made with allocates nothing, so nothing is lost that dropping it would give back.
        std::mem::forget(std::mem::replace(request.headers_mut(), fields));
        Ok(())
    }

    /// One copy of both, in memory that they share with other heads.
    fn copy(&mut self, octets: &[u8], more: &[u8]) -> Bytes {
        let len = octets.len() + more.len();
        if self.free.capacity() < len {
            // Takes the old memory again when no head in it is left.
            self.free.reserve(len.max(ARENA_OCTETS));
        }
        self.free.extend_from_slice(octets);
        self.free.extend_from_slice(more);
        self.free.split().freeze()
    }
}

/// Where in `whole` its part lies; `None` when it is no part of it.
#[inline]
fn place_of(whole: &[u8], part: &[u8]) -> Option<usize> {
    let at = part.as_ptr().addr().wrapping_sub(whole.as_ptr().addr());
    (at <= whole.len() && part.len() <= whole.len() - at).then_some(at)
}

fn method(method: Method<'_>) -> Result<http::Method, Unspeakable> {
    Ok(match method {
        Method::Get => http::Method::GET,
        Method::Head => http::Method::HEAD,
        Method::Post => http::Method::POST,
        Method::Put => http::Method::PUT,
        Method::Delete => http::Method::DELETE,
        Method::Connect => http::Method::CONNECT,
        Method::Options => http::Method::OPTIONS,
        Method::Trace => http::Method::TRACE,
        Method::Patch => http::Method::PATCH,
        Method::Other(name) => http::Method::from_bytes(name.as_bytes()).map_err(|_| Unspeakable)?,
    })
}

const fn version(version: Version) -> http::Version {
    match version {
        Version::Http10 => http::Version::HTTP_10,
        Version::Http11 => http::Version::HTTP_11,
        Version::Http2 => http::Version::HTTP_2,
    }
}
