//! Status codes (RFC 9110 §15) and the reason phrases of the IANA registry.

/// A three-digit status code, 100..=999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatusCode(u16);

macro_rules! codes {
    ($($number:literal $name:ident $reason:literal;)+) => {
        impl StatusCode {
            $(#[doc = concat!(stringify!($number), " ", $reason)]
            pub const $name: Self = Self($number);)+

            /// The registered reason phrase; empty for an unregistered code. O(1).
            #[must_use]
            pub const fn reason(self) -> &'static str {
                match self.0 {
                    $($number => $reason,)+
                    _ => "",
                }
            }

            /// The whole HTTP/1.1 status line with its line end (RFC 9112 §4); `None` for a code that is not
            /// registered.
            #[must_use]
            pub const fn status_line(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(concat!("HTTP/1.1 ", stringify!($number), " ", $reason, "\r\n")),)+
                    _ => None,
                }
            }
        }
    };
}

codes! {
    100 CONTINUE "Continue";
    101 SWITCHING_PROTOCOLS "Switching Protocols";
    102 PROCESSING "Processing";
    103 EARLY_HINTS "Early Hints";
    200 OK "OK";
    201 CREATED "Created";
    202 ACCEPTED "Accepted";
    203 NON_AUTHORITATIVE_INFORMATION "Non-Authoritative Information";
    204 NO_CONTENT "No Content";
    205 RESET_CONTENT "Reset Content";
    206 PARTIAL_CONTENT "Partial Content";
    207 MULTI_STATUS "Multi-Status";
    208 ALREADY_REPORTED "Already Reported";
    226 IM_USED "IM Used";
    300 MULTIPLE_CHOICES "Multiple Choices";
    301 MOVED_PERMANENTLY "Moved Permanently";
    302 FOUND "Found";
    303 SEE_OTHER "See Other";
    304 NOT_MODIFIED "Not Modified";
    305 USE_PROXY "Use Proxy";
    307 TEMPORARY_REDIRECT "Temporary Redirect";
    308 PERMANENT_REDIRECT "Permanent Redirect";
    400 BAD_REQUEST "Bad Request";
    401 UNAUTHORIZED "Unauthorized";
    402 PAYMENT_REQUIRED "Payment Required";
    403 FORBIDDEN "Forbidden";
    404 NOT_FOUND "Not Found";
    405 METHOD_NOT_ALLOWED "Method Not Allowed";
    406 NOT_ACCEPTABLE "Not Acceptable";
    407 PROXY_AUTHENTICATION_REQUIRED "Proxy Authentication Required";
    408 REQUEST_TIMEOUT "Request Timeout";
    409 CONFLICT "Conflict";
    410 GONE "Gone";
    411 LENGTH_REQUIRED "Length Required";
    412 PRECONDITION_FAILED "Precondition Failed";
    413 CONTENT_TOO_LARGE "Content Too Large";
    414 URI_TOO_LONG "URI Too Long";
    415 UNSUPPORTED_MEDIA_TYPE "Unsupported Media Type";
    416 RANGE_NOT_SATISFIABLE "Range Not Satisfiable";
    417 EXPECTATION_FAILED "Expectation Failed";
    418 IM_A_TEAPOT "I'm a teapot";
    421 MISDIRECTED_REQUEST "Misdirected Request";
    422 UNPROCESSABLE_CONTENT "Unprocessable Content";
    423 LOCKED "Locked";
    424 FAILED_DEPENDENCY "Failed Dependency";
    425 TOO_EARLY "Too Early";
    426 UPGRADE_REQUIRED "Upgrade Required";
    428 PRECONDITION_REQUIRED "Precondition Required";
    429 TOO_MANY_REQUESTS "Too Many Requests";
    431 FIELDS_TOO_LARGE "Request Header Fields Too Large";
    451 UNAVAILABLE_FOR_LEGAL_REASONS "Unavailable For Legal Reasons";
    500 INTERNAL_SERVER_ERROR "Internal Server Error";
    501 NOT_IMPLEMENTED "Not Implemented";
    502 BAD_GATEWAY "Bad Gateway";
    503 SERVICE_UNAVAILABLE "Service Unavailable";
    504 GATEWAY_TIMEOUT "Gateway Timeout";
    505 VERSION_NOT_SUPPORTED "HTTP Version Not Supported";
    506 VARIANT_ALSO_NEGOTIATES "Variant Also Negotiates";
    507 INSUFFICIENT_STORAGE "Insufficient Storage";
    508 LOOP_DETECTED "Loop Detected";
    510 NOT_EXTENDED "Not Extended";
    511 NETWORK_AUTHENTICATION_REQUIRED "Network Authentication Required";
}

impl StatusCode {
    /// A code of three digits; `None` outside 100..=999.
    #[must_use]
    pub const fn new(code: u16) -> Option<Self> {
        if code >= 100 && code <= 999 { Some(Self(code)) } else { None }
    }

    /// The code as a number, 100..=999.
    #[must_use]
    pub const fn as_u16(self) -> u16 {
        self.0
    }

    /// Whether the code is 1xx, an interim response (RFC 9110 §15.2).
    #[must_use]
    pub const fn is_informational(self) -> bool {
        self.0 < 200
    }

    /// Whether the response ends with its head: 1xx, 204 and 304 (RFC 9110 §6.4.1).
    #[must_use]
    pub const fn forbids_content(self) -> bool {
        self.0 < 200 || self.0 == 204 || self.0 == 304
    }
}

impl Default for StatusCode {
    fn default() -> Self {
        Self::OK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc9110_15_three_digits_and_statuses_without_content() {
        assert_eq!(StatusCode::new(99), None);
        assert_eq!(StatusCode::new(1000), None);
        assert_eq!(StatusCode::new(404), Some(StatusCode::NOT_FOUND));
        assert_eq!(StatusCode::NOT_FOUND.reason(), "Not Found");
        assert_eq!(StatusCode::OK.status_line(), Some("HTTP/1.1 200 OK\r\n"));
        let forbidding: Vec<u16> =
            (100..=999).filter(|&code| StatusCode::new(code).is_some_and(StatusCode::forbids_content)).collect();
        assert_eq!(forbidding, (100..200).chain([204, 304]).collect::<Vec<_>>());
        assert_eq!(StatusCode::new(599).map(StatusCode::reason), Some(""));
    }
}
