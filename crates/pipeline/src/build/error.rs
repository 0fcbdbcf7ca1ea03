//! Mistakes in a configuration, and their text for the operator.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use serde_json::Value;

/// A configuration that cannot be built: an operator's mistake, with its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildError {
    /// JSON path of the invalid value, for example `apps.http.servers.srv0.routes[2]`.
    pub path: String,
    /// The mistake.
    pub problem: Problem,
}

/// A mistake in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// No module of this name is registered.
    UnknownModule {
        /// Such as `handler` or `matcher`.
        kind: &'static str,
        /// The name that was found.
        name: String,
    },
    /// The value has the wrong shape; the text is the deserialiser's.
    Shape(String),
    /// A module rejected the value.
    Value {
        /// The invalid value. [`Display`](fmt::Display) hides what may be secret in it.
        found: String,
        /// A description of valid values.
        expected: Cow<'static, str>,
    },
    /// A module rejected a variable of the environment: no place of the configuration is at fault.
    Environment {
        /// The name of the variable.
        variable: &'static str,
        /// The invalid value. [`Display`](fmt::Display) hides what may be secret in it.
        found: String,
        /// A description of valid values.
        expected: String,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.problem)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownModule { kind, name } => {
                write!(f, "{kind} module '{name}' is not supported (docs/refused.md)")
            }
            Self::Shape(message) => f.write_str(message),
            Self::Value { found, expected } => write_value(f, found, expected),
            Self::Environment { variable, found, expected } => {
                write!(f, "environment variable {variable}: ")?;
                write_value(f, found, expected)
            }
        }
    }
}

fn write_value(f: &mut fmt::Formatter<'_>, found: &str, expected: &str) -> fmt::Result {
    f.write_str("found '")?;
    // Escape control characters: the error is one line, and an expression may have several.
    for char in without_secrets(found).chars() {
        if char.is_control() { write!(f, "{}", char.escape_default())? } else { f.write_char(char)? }
    }
    write!(f, "', expected {expected}")
}

impl std::error::Error for BuildError {}

/// Replaces the content of a JSON object or list, and the part of a URL before its host. They may be secrets, and an
/// error goes to logs and to clients of the admin API.
fn without_secrets(text: &str) -> Cow<'_, str> {
    match serde_json::from_str(text) {
        Ok(Value::Object(members)) if members.values().any(|value| !value.is_null()) => return "{…}".into(),
        Ok(Value::Array(elements)) if !elements.is_empty() => return "[…]".into(),
        _ => {}
    }
    let is_scheme = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    let url = text.split_once("://").filter(|(scheme, _)| is_scheme(scheme));
    // The last `@`, for passwords that are not percent-encoded.
    let credentials = url.and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?.1)));
    match credentials {
        Some((scheme, host)) => format!("{scheme}://…@{host}").into(),
        None => text.into(),
    }
}
