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
    literal
        .filter_map(|root| Some(Warning { at: place(document, adapted, root), message: complaint(Path::new(root))? }))
        .collect()
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

/// Returns the position of `root` in the text, or of its first line when it is not found.
fn place(document: &Document, adapted: &AdaptedDocument, root: &str) -> Position {
    let file: Arc<str> = Arc::from(&*document.name);
    match document.language {
        Language::Caddyfile => {
            let words = document.locate(adapted, root);
            words.into_iter().next().map_or(Position { file, line: 1, column: 1 }, |word| word.at)
        }
        Language::Json => {
            let quoted = Value::from(root).to_string();
            let before = document.text.find(&quoted).map_or("", |at| &document.text[..at]);
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
            let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
            Position { file, line: count(line), column: count(column) }
        }
    }
}
