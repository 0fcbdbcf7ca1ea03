//! The reasons why an authority issued no certificate.

use std::fmt;
use std::time::{Duration, SystemTime};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::bad_nonce::is_problem;
use crate::dns::DnsError;
use crate::http::HttpError;

/// The reason why an authority issued no certificate. Displays a sentence without the authority's name.
#[derive(Debug)]
#[non_exhaustive]
pub enum AcmeError {
    /// The authority, or the connection to it, failed.
    Protocol(instant_acme::Error),
    /// The authority could not verify that this server controls the name: its reasons.
    Unverified(String, OtherChallenge),
    /// The authority offers these challenges, and not one that this server can answer and the configuration allows (the
    /// second text).
    NoChallenge(String, &'static str),
    /// The test authority with this directory issued nothing, so the authority itself got no order.
    Test(String, Box<Self>),
    /// The order failed, and the last response has a `Retry-After` of this time (RFC 8555 §6.6).
    NotBefore(SystemTime, Box<Self>),
    /// The order failed because the account's holder has to act at this URL (RFC 8555 §7.3.3).
    UserAction(String, Box<Self>),
    /// The TXT record of DNS-01 could not be presented.
    Dns(DnsError),
    /// A request outside the protocol's own connection failed.
    Http(HttpError),
    /// The authority's answer cannot be used: a description of the answer.
    Malformed(String),
    /// The authority did not answer in this time.
    Timeout(Duration),
    /// The use of storage did not end: the runtime is shutting down, or the job panicked.
    Interrupted,
    /// The account's files in storage could not be read or written.
    Storage(causeway_certs::Error),
    /// The authority has answered with an account that storage could not keep: each further attempt is another request
    /// to the authority, and creates another account if that is an external one.
    Unstored(causeway_certs::Error),
    /// The account's key at this location is not a P-256 key.
    AccountKey(String),
    /// The authority has no account for the key that the configuration sets.
    NoAccount,
    /// A key or a certificate request could not be made.
    Key(String),
    /// The external account's key is not base64url (RFC 8555 §7.3.4).
    ExternalKey,
    /// ZeroSSL's interface refused this step, with this explanation.
    ZeroSsl(&'static str, String),
    /// ZeroSSL created no external account: the status and the reason that it answered.
    NoExternalAccount(String),
}

/// Whether an order with another challenge may succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherChallenge {
    /// A challenge has failed, and this server can answer another one of the authority.
    MaySucceed,
    /// There is no other one, or the reason is not the challenge.
    CannotHelp,
}

impl AcmeError {
    /// Returns the time before which another order is useless, if the authority named it by `Retry-After`, or refused
    /// this order by a rate limit (RFC 8555 §6.6) in a text like that of Let's Encrypt: `… retry after 2026-11-26
    /// 21:00:00 UTC: see …`. The later one counts.
    pub fn retry_at(&self) -> Option<SystemTime> {
        match self {
            Self::Protocol(error @ instant_acme::Error::Api(problem)) if is_problem(error, "rateLimited") => {
                let (_, time) = problem.detail.as_deref()?.split_once("retry after ")?;
                let (date, time) = (time.get(..10)?, time.get(11..19)?);
                OffsetDateTime::parse(&format!("{date}T{time}Z"), &Rfc3339).ok().map(Into::into)
            }
            Self::NotBefore(at, error) => error.retry_at().max(Some(*at)),
            Self::Test(_, error) | Self::UserAction(_, error) => error.retry_at(),
            _ => None,
        }
    }

    /// Whether this server's storage failed, so that the authority has got no order.
    pub fn is_of_storage(&self) -> bool {
        use causeway_certs::Error;
        match self {
            // Other errors are about a certificate or a key that the authority has sent.
            Self::Storage(error) => matches!(
                error,
                Error::Read(..) | Error::Write(..) | Error::Locked(_) | Error::LockLost(_) | Error::BadValue(..)
            ),
            Self::NotBefore(_, error) | Self::Test(_, error) | Self::UserAction(_, error) => error.is_of_storage(),
            _ => false,
        }
    }

    /// The error of an operation on storage after the authority has answered with an account.
    pub(crate) fn after_answer(self) -> Self {
        match self {
            Self::Storage(error) => Self::Unstored(error),
            error => error,
        }
    }

    /// Adds the time of a `Retry-After`, if there is one.
    pub(crate) fn not_before(self, at: Option<SystemTime>) -> Self {
        match at {
            Some(at) => Self::NotBefore(at, Box::new(self)),
            None => self,
        }
    }
}

/// Writes an error and its causes.
pub(crate) fn write_with_causes(
    mut error: &(dyn std::error::Error + 'static),
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    write!(f, "{error}")?;
    while let Some(cause) = error.source() {
        write!(f, ": {cause}")?;
        error = cause;
    }
    Ok(())
}

impl fmt::Display for AcmeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol(error) => {
                // A connection failure's cause is in its sources.
                write_with_causes(error, f)
            }
            Self::Unverified(detail, _) => write!(f, "the authority could not verify the name: {detail}"),
            Self::NoChallenge(offered, expected) => write!(f, "found the challenges {offered}, expected {expected}"),
            Self::Test(directory, error) => write!(f, "the test authority {directory} issued nothing: {error}"),
            Self::NotBefore(_, error) => error.fmt(f),
            Self::UserAction(url, error) => write!(f, "{error}: visit {url}"),
            Self::Dns(error) => error.fmt(f),
            Self::Http(error) => error.fmt(f),
            Self::Malformed(found) => write!(f, "the authority's answer cannot be used: {found}"),
            Self::Interrupted => {
                f.write_str("the use of storage was interrupted: the server is shutting down, or the job panicked")
            }
            Self::Timeout(timeout) => write!(f, "the authority did not answer within {} s", timeout.as_secs()),
            Self::Storage(error) => error.fmt(f),
            Self::Unstored(error) => write!(f, "the account at the authority could not be stored: {error}"),
            Self::AccountKey(location) => {
                write!(f, "{location}: found an account key of another kind, expected a P-256 key as PEM")
            }
            Self::NoAccount => {
                f.write_str("found no account for the key in account_key at the authority, expected one")
            }
            Self::Key(error) => write!(f, "cannot make a key: {error}"),
            Self::ExternalKey => f.write_str("found an external account key that is not base64url"),
            Self::ZeroSsl(step, why) => write!(f, "the step '{step}' failed: {why}"),
            Self::NoExternalAccount(answer) => {
                write!(f, "ZeroSSL created no external account for the email address: it answered {answer}")
            }
        }
    }
}

impl std::error::Error for AcmeError {}

impl From<instant_acme::Error> for AcmeError {
    fn from(error: instant_acme::Error) -> Self {
        Self::Protocol(error)
    }
}

impl From<DnsError> for AcmeError {
    fn from(error: DnsError) -> Self {
        Self::Dns(error)
    }
}

impl From<HttpError> for AcmeError {
    fn from(error: HttpError) -> Self {
        Self::Http(error)
    }
}

impl From<causeway_certs::Error> for AcmeError {
    fn from(error: causeway_certs::Error) -> Self {
        Self::Storage(error)
    }
}

impl From<rcgen::Error> for AcmeError {
    fn from(error: rcgen::Error) -> Self {
        Self::Key(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Let's Encrypt's documentation, "Rate limits": the error's text contains the time of the next attempt.
    #[test]
    fn the_end_of_a_rate_limit() {
        let error = |kind: &str, detail: &str| {
            let problem = serde_json::json!({ "type": format!("urn:ietf:params:acme:error:{kind}"), "detail": detail });
            AcmeError::Protocol(instant_acme::Error::Api(serde_json::from_value(problem).unwrap()))
        };
        let text = "too many certificates (5) already issued for this exact set of identifiers in the last 168h0m0s, retry after \
                    2026-11-26 21:00:00 UTC: see https://letsencrypt.org/docs/rate-limits/";
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_726_800);
        assert_eq!(error("rateLimited", text).retry_at(), Some(at));
        assert_eq!(AcmeError::Test("x".into(), Box::new(error("rateLimited", text))).retry_at(), Some(at));
        assert_eq!(error("rateLimited", "retry after 2026-11-26T21:00:00Z").retry_at(), Some(at));
        // RFC 9110 §10.2.3: a header, with and without the text.
        for (header, later) in
            [(at - Duration::from_secs(9), at), (at + Duration::from_secs(9), at + Duration::from_secs(9))]
        {
            let limited = |detail: &str| AcmeError::NotBefore(header, Box::new(error("rateLimited", detail)));
            assert_eq!(limited(text).retry_at(), Some(later));
            assert_eq!(limited("too many orders").retry_at(), Some(header));
        }
        for (kind, detail) in [
            ("rateLimited", "too many orders"),
            ("rateLimited", "retry after a while"),
            ("rateLimited", "retry after 2026-13-26 21:00:00 UTC"),
            ("rateLimited", "retry after 2026-11-26 21:0é:00"),
            ("malformed", text),
        ] {
            assert_eq!(error(kind, detail).retry_at(), None, "{kind}: {detail}");
        }
    }
}
