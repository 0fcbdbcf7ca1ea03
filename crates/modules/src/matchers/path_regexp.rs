//! `path_regexp`: a regular expression on the decoded path, case-sensitive.

use causeway_pipeline::{Build, BuildError, Context, Matched, Matcher};
use serde_json::Value;

use crate::clean_path::{Slashes, clean_as_caddy};
use crate::regexp::{Capturing, RegexpConfig};

struct PathRegexp(Capturing);

/// Compiles the matcher from a pattern and an optional name for the placeholders of its groups.
///
/// # Errors
/// If the pattern is not valid.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> {
    let written: RegexpConfig = build.parse(value)?;
    Ok(Box::new(PathRegexp(Capturing::compile(&written, build)?)))
}

impl Matcher for PathRegexp {
    fn matches(&self, cx: &mut Context) -> Matched {
        // Merge slashes and resolve dot segments first, so that no alternative spelling of a path bypasses the pattern.
        Ok(cx.with_scratch(|cx, path| {
            clean_as_caddy(cx.path(), Slashes::Merged, path);
            self.0.matches(cx, path)
        }))
    }
}
