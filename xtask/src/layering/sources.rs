//! Searches a crate's source for forbidden names.
//!
//! A plain search for whole words, line by line; strings count as code. Ignored are text after `//`, files and
//! directories named `tests`, and everything after `mod tests {` in a file, since tests come last.

use std::path::Path;

use anyhow::Context;

/// Returns every line under `directory` that contains a word of `forbidden_names`, with its path relative to `root`.
pub(super) fn violations(directory: &Path, forbidden_names: &[&str], root: &Path) -> anyhow::Result<Vec<String>> {
    let mut violations = Vec::new();
    if forbidden_names.is_empty() {
        return Ok(violations);
    }
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))? {
        entries.push(entry?.path());
    }
    entries.sort();
    for path in entries {
        if path.file_stem().is_some_and(|stem| stem == "tests") {
            continue;
        }
        if path.is_dir() {
            violations.extend(self::violations(&path, forbidden_names, root)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let shown = path.strip_prefix(root).unwrap_or(&path).display();
            let line =
                |(line, word)| format!("{shown}:{line}: this crate must not mention {word} (xtask/src/layering.rs)");
            violations.extend(occurrences(&text, forbidden_names).into_iter().map(line));
        }
    }
    Ok(violations)
}

/// Returns the line number and word of every occurrence.
pub(super) fn occurrences<'w>(text: &str, forbidden_names: &[&'w str]) -> Vec<(usize, &'w str)> {
    let code = text.lines().enumerate().take_while(|(_, line)| line.trim() != "mod tests {");
    let code = code.map(|(at, line)| (at + 1, before_comment(line)));
    code.flat_map(|(at, line)| {
        forbidden_names.iter().filter(move |word| has_word(line, word)).map(move |word| (at, *word))
    })
    .collect()
}

/// Returns the part of a line before its comment. The `//` of a URL in a string begins none.
fn before_comment(line: &str) -> &str {
    let comment = line.match_indices("//").find(|(at, _)| !line[..*at].ends_with(':'));
    comment.map_or(line, |(at, _)| &line[..at])
}

fn has_word(line: &str, word: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    // A word such as `tokio::` ends with a delimiter, so any character may follow it.
    // Only identifier characters can continue a word.
    let open_end = word.ends_with(|c| !joins(c));
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].ends_with(joins);
        let after = line[at + word.len()..].starts_with(joins);
        !before && (open_end || !after)
    })
}
