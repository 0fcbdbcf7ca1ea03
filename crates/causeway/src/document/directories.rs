//! Warns about roots in a configuration which are not readable directories. The check runs when it is loaded.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use causeway_config::caddyfile::{Position, Warning};
use serde_json::Value;

use super::{AdaptedDocument, Document, Language};

/// Returns a warning for each such root, at its position in the text. A root with placeholders is skipped: its value
/// depends on the request.
pub(super) fn root_warnings(document: &Document, adapted: &AdaptedDocument) -> Vec<Warning> {
    let mut roots = BTreeSet::new();
    collect(&adapted.json, &mut roots);
    let literal = roots.into_iter().filter(|root| !root.is_empty() && !root.contains('{'));
    let found = literal.filter_map(|root| Some((root, complaint(Path::new(root))?)));
    let (roots, messages): (Vec<_>, Vec<_>) = found.unzip();
    let places = places(document, adapted, &roots);
    let mut warnings: Vec<_> = places.into_iter().zip(messages).map(|(at, message)| Warning { at, message }).collect();
    warnings.sort_by_key(|Warning { at, .. }| (Arc::clone(&at.file), at.line, at.column));
    warnings
}

/// Collects the `root` of every `vars` and `file_server` handler and of every `file` matcher.
fn collect<'v>(value: &'v Value, roots: &mut BTreeSet<&'v str>) {
    match value {
        Value::Object(members) => {
            if matches!(members.get("handler").and_then(Value::as_str), Some("vars" | "file_server")) {
                roots.extend(members.get("root").and_then(Value::as_str));
            }
            for set in members.get("match").and_then(Value::as_array).into_iter().flatten() {
                roots.extend(set.pointer("/file/root").and_then(Value::as_str));
            }
            members.values().for_each(|value| collect(value, roots));
        }
        Value::Array(list) => list.iter().for_each(|value| collect(value, roots)),
        _ => {}
    }
}

/// Returns the warning for a directory; `None` when it can be read.
fn complaint(root: &Path) -> Option<String> {
    let found = match std::fs::metadata(root) {
        Ok(metadata) if !metadata.is_dir() => "it is not a directory".to_owned(),
        Ok(_) => std::fs::read_dir(root).err()?.to_string(),
        Err(error) => error.to_string(),
    };
    Some(format!("found the root '{}', expected a directory that can be read: {found}", root.display()))
}

/// Returns the position of each root in the text, or of its first line when it is not found.
fn places(document: &Document, adapted: &AdaptedDocument, roots: &[&str]) -> Vec<Position> {
    let file: Arc<str> = Arc::from(&*document.name);
    match document.language {
        Language::Caddyfile => {
            let start = Position { file, line: 1, column: 1 };
            let found = document.locate_all(adapted, roots);
            found.into_iter().map(|words| words.into_iter().next().map_or(start.clone(), |word| word.at)).collect()
        }
        Language::Json => {
            let at = |root: &str| {
                let quoted = Value::from(root).to_string();
                let before = document.text.find(&quoted).map_or("", |at| &document.text[..at]);
                let line = before.matches('\n').count() + 1;
                let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
                let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
                Position { file: Arc::clone(&file), line: count(line), column: count(column) }
            };
            roots.iter().map(|root| at(root)).collect()
        }
    }
}
