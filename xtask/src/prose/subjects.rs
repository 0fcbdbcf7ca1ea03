//! The commit subjects since the limits were introduced. Earlier ones cannot be changed any more.

use std::path::Path;
use std::process::Command;

use super::TextPlace;

/// The longest subject, in characters (STYLE.md).
const SUBJECT_CHARS_MAX: usize = 72;

/// Returns the commits with a longer subject, the newest first; or the reason why the history cannot be read. `file` is
/// the file of limits: the commit that added it is the first one.
pub(super) fn long(root: &Path, file: &str) -> Result<Vec<TextPlace>, String> {
    // A source archive may lie inside of another repository, whose history is not ours.
    let top = git(root, &["rev-parse", "--show-toplevel"]).ok_or("no Git history")?;
    let same = |path: &Path| path.canonicalize().ok();
    if same(Path::new(top.trim())) != same(root) {
        return Err("no Git history".to_owned());
    }
    if git(root, &["rev-parse", "--is-shallow-repository"]).is_none_or(|text| text.trim() != "false") {
        return Err("a shallow clone".to_owned());
    }
    let added = git(root, &["log", "--diff-filter=A", "--format=%H", "--", file]).ok_or("git log failed")?;
    // The oldest commit is last. Before the limits are committed there is none.
    let Some(first) = added.lines().last() else { return Ok(Vec::new()) };
    let parents = git(root, &["log", "-1", "--format=%P", first]).ok_or("git log failed")?;
    let range = if parents.trim().is_empty() { "HEAD".to_owned() } else { format!("{first}^..HEAD") };
    let log = git(root, &["log", "--no-merges", "--format=%h %s", &range]).ok_or("git log failed")?;
    Ok(longer(&log))
}

/// Returns the lines of `id subject` whose subject is too long.
fn longer(log: &str) -> Vec<TextPlace> {
    let commits = log.lines().filter_map(|line| line.split_once(' '));
    let long = commits.filter(|(_, subject)| subject.chars().count() > SUBJECT_CHARS_MAX);
    long.map(|(id, subject)| TextPlace { at: id.to_owned(), text: subject.to_owned() }).collect()
}

/// Returns the output of a git command, or `None` if it fails or there is no git.
fn git(root: &Path, words: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(words).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_measured_in_characters() {
        let (fits, long) = ("ä".repeat(SUBJECT_CHARS_MAX), "a".repeat(SUBJECT_CHARS_MAX + 1));
        let found = longer(&format!("abc {fits}\ndef {long}\n"));
        assert_eq!(found, [TextPlace { at: "def".to_owned(), text: long }]);
    }

    #[test]
    fn a_directory_without_history_is_named_as_such() {
        let directory = std::env::temp_dir().join(format!("xtask-prose-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        assert_eq!(long(&directory, "limits.toml"), Err("no Git history".to_owned()));
        std::fs::remove_dir_all(directory).unwrap();
    }
}
