//! `host`: a list of hosts, one of which the request must name.

use causeway_pipeline::{Build, BuildError, Context, Fault, Matcher, Template};
use serde_json::Value;

use crate::rendered::Rendered;

struct HostMatcher(Box<[Template]>);

/// Makes the matcher from a list of hosts: a whole label may be `*`. A port in the request is ignored, letters are
/// compared in any case.
///
/// # Errors
/// When it is no list of hosts. Names outside ASCII are to be written in Punycode.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> {
    let written: Vec<String> = build.parse(value)?;
    let mut hosts = Vec::with_capacity(written.len());
    for host in written {
        if !host.is_ascii() {
            return Err(build.refuse(host, "a host in ASCII; international names are written in Punycode (xn--…)"));
        }
        hosts.push(build.template(&host));
    }
    Ok(Box::new(HostMatcher(hosts.into())))
}

impl Matcher for HostMatcher {
    fn matches(&self, cx: &mut Context) -> Result<bool, Fault> {
        Ok(self.0.iter().any(|pattern| {
            let pattern = Rendered::of(pattern, cx);
            matches(&pattern, cx.host().as_bytes())
        }))
    }
}

fn matches(pattern: &[u8], host: &[u8]) -> bool {
    if !pattern.contains(&b'*') {
        return pattern.eq_ignore_ascii_case(host);
    }
    let (mut wanted, mut labels) = (pattern.split(|&octet| octet == b'.'), host.split(|&octet| octet == b'.'));
    loop {
        match (wanted.next(), labels.next()) {
            (None, None) => return true,
            (Some(want), Some(label)) if want == b"*" || want.eq_ignore_ascii_case(label) => {}
            _ => return false,
        }
    }
}
