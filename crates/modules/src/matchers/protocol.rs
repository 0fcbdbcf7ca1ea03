//! `protocol`: the scheme, gRPC, or the HTTP version. The only matcher that reads the version, since it is its subject.

use causeway_message::{Version, names};
use causeway_pipeline::{Build, BuildError, Context, Matched, Matcher, Scheme};
use serde_json::Value;

#[derive(Debug, Clone, Copy)]
enum Protocol {
    Scheme(Scheme),
    Grpc,
    Version(Version),
    AtLeast(Version),
    /// HTTP/3, which this server does not support.
    Never,
}

/// Compiles the matcher from one of Caddy's protocol names.
///
/// # Errors
/// If the name is unknown.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> {
    let name: String = build.parse(value)?;
    Ok(Box::new(match &*name {
        "http" => Protocol::Scheme(Scheme::Http),
        "https" => Protocol::Scheme(Scheme::Https),
        "grpc" => Protocol::Grpc,
        "http/1.0" => Protocol::Version(Version::Http10),
        "http/1.0+" => Protocol::AtLeast(Version::Http10),
        "http/1.1" => Protocol::Version(Version::Http11),
        "http/1.1+" => Protocol::AtLeast(Version::Http11),
        "http/2" => Protocol::Version(Version::Http2),
        "http/2+" => Protocol::AtLeast(Version::Http2),
        "http/3" | "http/3+" => Protocol::Never,
        _ => {
            return Err(build.refuse(
                name,
                "http, https, grpc, or http/1.0, http/1.1, http/2, http/3, optionally with + after the version",
            ));
        }
    }))
}

impl Matcher for Protocol {
    fn matches(&self, cx: &mut Context) -> Matched {
        Ok(match *self {
            Self::Scheme(scheme) => cx.arrival().scheme == scheme,
            Self::Grpc => {
                let mut values = cx.head().fields().get_all(names::CONTENT_TYPE);
                values.next().is_some_and(|value| value.starts_with(b"application/grpc"))
            }
            Self::Version(version) => cx.version() == version,
            Self::AtLeast(version) => cx.version() >= version,
            Self::Never => false,
        })
    }
}
