//! `not`: a list of matcher sets, none of which may match.

use causeway_pipeline::{Build, BuildError, Context, Matched, Matcher};
use serde_json::{Map, Value};

struct Not(Box<[Vec<Box<dyn Matcher>>]>);

/// Compiles the matcher from a list of matcher sets.
///
/// # Errors
/// The first mistake in a set.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> {
    let written: Vec<Map<String, Value>> = build.parse(value)?;
    let mut sets = Vec::with_capacity(written.len());
    for (index, set) in written.iter().enumerate() {
        sets.push(build.at(format!("[{index}]"), |build| build.matcher_set(set))?);
    }
    Ok(Box::new(Not(sets.into())))
}

impl Matcher for Not {
    fn matches(&self, cx: &mut Context) -> Matched {
        'sets: for set in &self.0 {
            for matcher in set {
                if !matcher.matches(cx)? {
                    continue 'sets;
                }
            }
            return Ok(false);
        }
        Ok(true)
    }
}
