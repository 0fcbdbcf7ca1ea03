//! `{$NAME}` and `{$NAME:default}`: substituted before the text is split into tokens, so that a value can contain
//! several tokens.

use std::sync::Arc;

use super::position::Position;

/// A character and its position. All characters of a substituted value have the position of their `{$`.
#[derive(Clone, Copy)]
pub(crate) struct SourceChar {
    pub(crate) value: char,
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// A variable that is not set and has no default. It becomes an empty text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unset {
    pub(crate) name: Arc<str>,
    pub(crate) at: Position,
}

/// Substitutes all variables, in one pass: a `{$…}` inside a value is not substituted. Also returns each unset
/// variable, with the index that its first character would have. An unset variable without a default becomes empty; an
/// unclosed or nameless `{$` is left as it is.
pub(crate) fn substitute(
    source: &str,
    file: &Arc<str>,
    env: &dyn Fn(&str) -> Option<String>,
) -> (Vec<SourceChar>, Vec<(usize, Unset)>) {
    let mut out = Vec::with_capacity(source.len());
    let mut unset = Vec::new();
    let (mut line, mut column) = (1, 1);
    let mut rest = source.strip_prefix('\u{feff}').unwrap_or(source);
    // The bytes after the last `}`: many `{$` there must not cause a search to the end of the text each.
    let unclosed = rest.len() - rest.rfind('}').map_or(0, |at| at + 1);
    while let Some(ch) = rest.chars().next() {
        let inner = rest.strip_prefix("{$").filter(|_| rest.len() > unclosed);
        let span = inner.and_then(|inner| inner.split_once('}')).filter(|(name, _)| !name.is_empty());
        let consumed = match span {
            Some((inner, _)) => {
                let (name, default) = inner.split_once(':').map_or((inner, None), |(name, text)| (name, Some(text)));
                let value = env(name).or_else(|| default.map(str::to_owned)).unwrap_or_else(|| {
                    let at = Position { file: file.clone(), line, column };
                    unset.push((out.len(), Unset { name: name.into(), at }));
                    String::new()
                });
                out.extend(value.chars().map(|ch| SourceChar { value: ch, line, column }));
                "{$".len() + inner.len() + "}".len()
            }
            None => {
                out.push(SourceChar { value: ch, line, column });
                ch.len_utf8()
            }
        };
        for ch in rest[..consumed].chars() {
            (line, column) = if ch == '\n' { (line + 1, 1) } else { (line, column + 1) };
        }
        rest = &rest[consumed..];
    }
    (out, unset)
}
