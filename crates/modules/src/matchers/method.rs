//! `method`: a list of methods, one of which the request must have.

use causeway_pipeline::{Build, BuildError, Context, Matched, Matcher};
use serde_json::Value;

struct MethodMatcher(Box<[Box<str>]>);

/// Compiles the matcher from a list of methods, which may be in lower case. The request's method is compared with their
/// upper case, and case-sensitively (RFC 9110 §9.1).
///
/// # Errors
/// If a method is not a token.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> {
    let written: Vec<String> = build.parse(value)?;
    if let Some(bad) = written.iter().find(|method| !causeway_message::syntax::is_token(method.as_bytes())) {
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
