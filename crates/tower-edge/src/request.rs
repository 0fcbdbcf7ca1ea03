//! Converts a request head to the types of `http`.
//!
//! The bytes of a head are copied once, to a buffer that many heads share. Registered names are looked up by number;
//! values are slices of the copy. The map is that of an earlier response, cleared. So a request whose service keeps
//! no part of it allocates nothing here.

use bytes::{Bytes, BytesMut};
use causeway_message::{FieldLine, Head, Method, Version};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri};

use crate::names;

/// Size of the shared buffer, in bytes. A service that keeps a value keeps the whole buffer.
const ARENA_BYTES: usize = 8 * 1024;

/// A head that the types of `http` cannot represent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConversionError;

/// The buffer for the copies of a worker's heads.
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
    /// Fills a request with this head, using the empty map `fields`.
    pub(crate) fn fill<B>(
        &mut self,
        head: &Head,
        mut fields: HeaderMap,
        request: &mut Request<B>,
    ) -> Result<(), ConversionError> {
        debug_assert!(fields.is_empty(), "no field of another message");
        // The fields' storage is one slice, which may contain the target too: then one copy serves both.
        let (bytes, target) = (head.fields().arena(), head.target_bytes());
        let place = place_of(bytes, target);
        let copied = self.copy(bytes, if place.is_none() { target } else { b"" });
        for FieldLine { name, value, is_sensitive } in head.fields().lines() {
            let name = names::to_http(name, self.registered).map_err(|_| ConversionError)?;
            // Every value is a slice of the map's storage, so it has the same position in the copy.
            let at = place_of(bytes, value).ok_or(ConversionError)?;
            let mut value =
                HeaderValue::from_maybe_shared(copied.slice(at..at + value.len())).map_err(|_| ConversionError)?;
            value.set_sensitive(is_sensitive);
            fields.try_append(name, value).map_err(|_| ConversionError)?;
        }
        let at = place.unwrap_or(bytes.len());
        *request.uri_mut() =
            Uri::from_maybe_shared(copied.slice(at..at + target.len())).map_err(|_| ConversionError)?;
        *request.method_mut() = method(head.method())?;
        *request.version_mut() = version(head.version());
        // The map of a new request has not allocated, so forgetting it leaks nothing and saves its destructor.
        std::mem::forget(std::mem::replace(request.headers_mut(), fields));
        Ok(())
    }

    /// Copies both slices, contiguously, to shared memory.
    fn copy(&mut self, bytes: &[u8], more: &[u8]) -> Bytes {
        let len = bytes.len() + more.len();
        if self.free.capacity() < len {
            // Reuses the old buffer if no head refers to it any more.
            self.free.reserve(len.max(ARENA_BYTES));
        }
        self.free.extend_from_slice(bytes);
        self.free.extend_from_slice(more);
        // The copy is split off; the rest of the buffer stays for the next heads.
        self.free.split().freeze()
    }
}

/// Returns the position of `part` in `whole`; `None` if it is not a slice of it.
#[inline]
fn place_of(whole: &[u8], part: &[u8]) -> Option<usize> {
    let at = part.as_ptr().addr().wrapping_sub(whole.as_ptr().addr());
    (at <= whole.len() && part.len() <= whole.len() - at).then_some(at)
}

fn method(method: Method<'_>) -> Result<http::Method, ConversionError> {
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
        Method::Other(name) => http::Method::from_bytes(name.as_bytes()).map_err(|_| ConversionError)?,
    })
}

const fn version(version: Version) -> http::Version {
    match version {
        Version::Http10 => http::Version::HTTP_10,
        Version::Http11 => http::Version::HTTP_11,
        Version::Http2 => http::Version::HTTP_2,
    }
}
