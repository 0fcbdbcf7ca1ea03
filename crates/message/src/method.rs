//! Request methods (RFC 9110 §9, RFC 5789).

use crate::syntax::is_token;

/// A request method; case-sensitive (RFC 9110 §9.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Method<'a> {
    /// GET
    #[default]
    Get,
    /// HEAD
    Head,
    /// POST
    Post,
    /// PUT
    Put,
    /// DELETE
    Delete,
    /// CONNECT
    Connect,
    /// OPTIONS
    Options,
    /// TRACE
    Trace,
    /// PATCH
    Patch,
    /// Any other token
    Other(&'a str),
}

impl<'a> Method<'a> {
    /// The bytes of the longest method that the protocol machines accept; a longer one is 501 (RFC 9112 §3). The
    /// longest registered method has 17 bytes.
    pub const BYTES_MAX: usize = 64;

    /// Parses a method; `None` when the bytes are not a token. O(n).
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        Self::known(bytes)
            .or_else(|| if is_token(bytes) { Some(Self::Other(std::str::from_utf8(bytes).ok()?)) } else { None })
    }

    /// Returns the named variant for its exact spelling, else `None`.
    pub(crate) fn known(bytes: &[u8]) -> Option<Method<'static>> {
        Some(match bytes {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"CONNECT" => Method::Connect,
            b"OPTIONS" => Method::Options,
            b"TRACE" => Method::Trace,
            b"PATCH" => Method::Patch,
            _ => return None,
        })
    }

    /// The method as it is sent in a request line.
    #[must_use]
    pub const fn as_str(self) -> &'a str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
            Self::Options => "OPTIONS",
            Self::Trace => "TRACE",
            Self::Patch => "PATCH",
            Self::Other(name) => name,
        }
    }

    /// Whether the method is read-only by definition (RFC 9110 §9.2.1). An unknown method is not safe.
    #[must_use]
    pub const fn is_safe(self) -> bool {
        matches!(self, Self::Get | Self::Head | Self::Options | Self::Trace)
    }

    /// Whether sending the request twice has the effect of sending it once (RFC 9110 §9.2.2). An unknown method is
    /// not idempotent.
    #[must_use]
    pub const fn is_idempotent(self) -> bool {
        self.is_safe() || matches!(self, Self::Put | Self::Delete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc9110_9_1_methods_are_case_sensitive_tokens() {
        assert_eq!(Method::parse(b"GET"), Some(Method::Get));
        assert_eq!(Method::parse(b"get"), Some(Method::Other("get")));
        assert_eq!(Method::parse(b"PROPFIND").map(Method::as_str), Some("PROPFIND"));
        for bad in [&b""[..], b"G T", b"G@T", b"G\xe9T", b"GET\r"] {
            assert_eq!(Method::parse(bad), None, "{bad:?}");
        }
        assert!(Method::Put.is_idempotent() && !Method::Put.is_safe() && !Method::Other("X").is_idempotent());
    }
}
