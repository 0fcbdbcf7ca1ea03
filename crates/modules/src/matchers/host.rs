//! `host`: a list of hosts, one of which the request must name.

use std::collections::HashMap;

use causeway_pipeline::{Build, BuildError, Context, Matched, Matcher, Reach, Template, punycode};
use serde_json::Value;

struct HostMatcher {
    /// In lower case and sorted, for a binary search among thousands.
    exact: Box<[Box<str>]>,
    /// Hosts with wildcards or placeholders.
    patterns: Box<[Template]>,
}

/// Compiles the matcher from a list of hosts, in which a whole label may be `*`. The request's port is ignored, and so
/// is the case of letters. Labels outside of ASCII are compared in Punycode, as browsers send them.
///
/// # Errors
/// If the value is not a list of strings, or a host occurs twice or is not one that IDNA allows.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> {
    let written: Vec<String> = build.parse(value)?;
    let mut exact = Vec::with_capacity(written.len());
    let mut patterns = Vec::new();
    let mut seen = HashMap::new();
    for (index, host) in written.iter().enumerate() {
        // Duplicates are found after normalization: `A.test` and `a.test` are one host.
        let Some(ascii) = punycode::to_ascii(host) else {
            return build.at(format!("[{index}]"), |build| Err(build.refuse(host, punycode::EXPECTED)));
        };
        if seen.insert(ascii.to_ascii_lowercase(), index).is_some() {
            return build.at(format!("[{index}]"), |build| Err(build.refuse(host, "each host once")));
        }
        let template = build.template(&ascii);
        match template.literal() {
            Some(literal) if !literal.contains('*') => exact.push(literal.to_ascii_lowercase().into_boxed_str()),
            _ => patterns.push(template),
        }
    }
    exact.sort_unstable();
    Ok(Box::new(HostMatcher { exact: exact.into(), patterns: patterns.into() }))
}

impl Matcher for HostMatcher {
    fn matches(&self, cx: &mut Context) -> Matched {
        Ok(self.is_exact(cx.host())
            || self
                .patterns
                .iter()
                .any(|pattern| cx.with_rendered(pattern, |cx, pattern| matches(pattern, cx.host().as_bytes()))))
    }

    fn reach(&self) -> Reach<'_> {
        let patterns: Option<Vec<_>> = self.patterns.iter().map(Template::literal).collect();
        match patterns {
            Some(patterns) => Reach::Hosts(self.exact.iter().map(|host| &**host).chain(patterns).collect()),
            None => Reach::All,
        }
    }
}

impl HostMatcher {
    fn is_exact(&self, host: &str) -> bool {
        let lower = || host.bytes().map(|byte| byte.to_ascii_lowercase());
        self.exact.binary_search_by(|known| known.bytes().cmp(lower())).is_ok()
    }
}

fn matches(pattern: &[u8], host: &[u8]) -> bool {
    if !pattern.contains(&b'*') {
        return pattern.eq_ignore_ascii_case(host);
    }
    let (mut wanted, mut labels) = (pattern.split(|&byte| byte == b'.'), host.split(|&byte| byte == b'.'));
    loop {
        match (wanted.next(), labels.next()) {
            (None, None) => return true,
            (Some(want), Some(label)) if want == b"*" || want.eq_ignore_ascii_case(label) => {}
            _ => return false,
        }
    }
}
