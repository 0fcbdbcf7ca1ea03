//! A Caddyfile as a tree of lines: the grammar builds it, the shrinker removes lines, and both servers load its text.

use std::fmt;

/// A line with the lines of its block, if it opens one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigLine {
    pub(crate) words: String,
    pub(crate) block: Option<Vec<ConfigLine>>,
}

impl ConfigLine {
    pub(crate) fn new(words: impl Into<String>) -> Self {
        Self { words: words.into(), block: None }
    }

    pub(crate) fn block(words: impl Into<String>, lines: Vec<ConfigLine>) -> Self {
        Self { words: words.into(), block: Some(lines) }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        let indent = "\t".repeat(depth);
        let Some(lines) = &self.block else { return writeln!(f, "{indent}{}", self.words) };
        writeln!(f, "{indent}{}{{", if self.words.is_empty() { String::new() } else { format!("{} ", self.words) })?;
        lines.iter().try_for_each(|line| line.write(f, depth + 1))?;
        writeln!(f, "{indent}}}")
    }
}

/// A whole Caddyfile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Document(pub(crate) Vec<ConfigLine>);

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| line.write(f, 0))
    }
}

impl Document {
    /// Returns the number of lines, including those in blocks.
    pub(crate) fn len(&self) -> usize {
        fn count(lines: &[ConfigLine]) -> usize {
            lines.iter().map(|line| 1 + line.block.as_deref().map_or(0, count)).sum()
        }
        count(&self.0)
    }

    /// Returns a copy without line `at`, counted from 0 in reading order, and without its block.
    pub(crate) fn without(&self, at: usize) -> Self {
        self.edited(at, |lines, index| drop(lines.remove(index)))
    }

    /// Returns a copy with line `at` replaced by the lines of its block; `None` when it has no block.
    pub(crate) fn unwrapped(&self, at: usize) -> Option<Self> {
        let mut has_block = false;
        let edited = self.edited(at, |lines, index| {
            if let Some(inner) = lines[index].block.take() {
                has_block = true;
                lines.splice(index..=index, inner);
            }
        });
        has_block.then_some(edited)
    }

    /// Returns a copy after `edit` has changed line `at`, given its siblings and its index among them.
    fn edited(&self, at: usize, edit: impl FnOnce(&mut Vec<ConfigLine>, usize)) -> Self {
        /// Counts `at` down while walking the lines; returns `None` once the line is found.
        fn seek<F: FnOnce(&mut Vec<ConfigLine>, usize)>(
            lines: &mut Vec<ConfigLine>,
            mut at: usize,
            edit: F,
        ) -> Option<(usize, F)> {
            let mut edit = edit;
            for index in 0..lines.len() {
                if at == 0 {
                    edit(lines, index);
                    return None;
                }
                at -= 1;
                if let Some(inner) = &mut lines[index].block {
                    (at, edit) = seek(inner, at, edit)?;
                }
            }
            Some((at, edit))
        }
        let mut copy = self.clone();
        seek(&mut copy.0, at, edit);
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Document {
        let inner = ConfigLine::block("handle", vec![ConfigLine::new("respond a"), ConfigLine::new("abort")]);
        Document(vec![
            ConfigLine::block("", vec![ConfigLine::new("debug")]),
            ConfigLine::block(":80", vec![inner, ConfigLine::new("respond b")]),
        ])
    }

    #[test]
    fn blocks_are_indented() {
        let text = "{\n\tdebug\n}\n:80 {\n\thandle {\n\t\trespond a\n\t\tabort\n\t}\n\trespond b\n}\n";
        assert_eq!(document().to_string(), text);
    }

    #[test]
    fn lines_are_counted_in_reading_order() {
        assert_eq!(document().len(), 7);
        for (at, gone) in ["debug", "handle", "respond a", "abort", "respond b"]
            .iter()
            .zip([1, 3, 4, 5, 6])
            .map(|(gone, at)| (at, gone))
        {
            let left = document().without(at).to_string();
            assert!(!left.contains(gone), "{at}: {left}");
        }
        assert_eq!(document().without(7), document());
        assert_eq!(document().unwrapped(3).unwrap().to_string().matches("\t\t").count(), 0);
        assert_eq!(document().unwrapped(4), None);
    }
}
