//! `path_regexp`: a regular expression that the decoded path must match, letter by letter.

use causeway_message::path::is_clean;
use causeway_pipeline::{Build, BuildError, Context, Matched, Matcher};
use serde_json::Value;

use super::path::clean_as_caddy;
use crate::regexp::{Capturing, Written};

struct PathRegexp(Capturing);

/// Makes the matcher from a pattern and the name that the placeholders of its groups get.
///
/// # Errors
/// When the pattern is none.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> {
    let written: Written = build.parse(value)?;
    Ok(Box::new(PathRegexp(Capturing::compile(&written, build)?)))
}

impl Matcher for PathRegexp {
    fn matches(&self, cx: &mut Context) -> Matched {
        // Slashes are merged and dot segments resolved first, so that no other spelling of a path slips through.
        Ok(cx.with_scratch(|cx, path| {
            if is_clean(cx.path()) {
                path.extend_from_slice(cx.path());
            } else {
                clean_as_caddy(cx.path(), true, path);
            }
            self.0.matches(cx, path)
        }))
    }
}
