//! `method`: a list of methods, one of which the request must have.

use causeway_pipeline::{Build, BuildError, Context, Matched, Matcher};
use serde_json::Value;

struct MethodMatcher(Box<[Box<str>]>);

/// Makes the matcher from a list of methods. They may be written in small letters; a request's method is compared letter by
/// letter with the large ones (RFC 9110 §9.1).
///
/// # Errors
/// When one is no token.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> {
    let written: Vec<String> = build.parse(value)?;
    if let Some(bad) = written.iter().find(|method| !causeway_message::octets::is_token(method.as_bytes())) {
        return Err(build.refuse(bad, "a method such as GET"));
    }
    Ok(Box::new(MethodMatcher(written.iter().map(|method| method.to_ascii_uppercase().into()).collect())))
}

impl Matcher for MethodMatcher {
    fn matches(&self, cx: &mut Context) -> Matched {
        let method = cx.head().method().as_str();
        Ok(self.0.iter().any(|wanted| **wanted == *method))
    }
}
