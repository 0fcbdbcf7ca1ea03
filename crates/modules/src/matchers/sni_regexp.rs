//! `sni_regexp`: a regular expression on the server name of a ClientHello, for TLS connection policies.
//!
//! As in Caddy, its groups fill no placeholders of requests: Caddy's `{tls.regexp.NAME.GROUP}` belong to the handshake,
//! and nothing that Caddy has without plugins reads them.

use std::sync::Arc;

use causeway_pipeline::{Build, BuildError, ServerNameMatcher};
use regex::bytes::Regex;
use serde_json::Value;

use crate::regexp::{CompiledRegex, RegexpConfig};

#[derive(Debug)]
struct SniRegexp {
    regex: Regex,
    pattern: String,
}

/// Compiles the matcher from a pattern and an optional name.
///
/// # Errors
/// If the pattern or the name is not valid.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Arc<dyn ServerNameMatcher>, BuildError> {
    let written: RegexpConfig = build.parse(value)?;
    written.check_name(build)?;
    build.at("pattern", |build| {
        let template = build.template(&written.pattern);
        if template.literal().is_none() {
            let (at, pattern) = (build.location(), &written.pattern);
            build.warn(format!(
                r"{at}: found a placeholder without a value in '{pattern}'; it counts as no text. A repetition is written as \{{2\}}"
            ));
        }
        let pattern = template.text_of_unknown();
        let compiled = CompiledRegex::read(&pattern).map_err(|reason| {
            let hint = if template.literal().is_none() { "; a text in braces is a placeholder, unless `\\` precedes them" } else { "" };
            build.refuse(&written.pattern, format!("a regular expression: {reason}{hint}"))
        });
        let CompiledRegex { regex, .. } = compiled?;
        Ok(Arc::new(SniRegexp { regex, pattern }) as _)
    })
}

impl ServerNameMatcher for SniRegexp {
    fn matches(&self, server_name: &str) -> bool {
        self.regex.is_match(server_name.as_bytes())
    }

    fn text(&self) -> &str {
        &self.pattern
    }
}
