//! `{$NAME}` and `{$NAME:default}`: replaced in the text before it is split into words, so that a value may hold several.

/// A character and where the operator sees it: those of a substituted value all stand at its `{$`.
#[derive(Clone, Copy)]
pub(crate) struct Glyph {
    pub(crate) ch: char,
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// The text with every substitution made once; a value's own `{$…}` is left alone. An unset variable without a default
/// is empty, an unclosed or nameless `{$` stays as it is.
pub(crate) fn substitute(source: &str, env: &dyn Fn(&str) -> Option<String>) -> Vec<Glyph> {
    let mut out = Vec::with_capacity(source.len());
    let (mut line, mut column) = (1, 1);
    let mut rest = source.strip_prefix('\u{feff}').unwrap_or(source);
    while let Some(ch) = rest.chars().next() {
        let span = rest.strip_prefix("{$").and_then(|inner| inner.split_once('}')).filter(|(name, _)| !name.is_empty());
        let consumed = match span {
            Some((inner, _)) => {
                let (name, default) = inner.split_once(':').unwrap_or((inner, ""));
                let value = env(name).unwrap_or_else(|| default.to_owned());
                out.extend(value.chars().map(|ch| Glyph { ch, line, column }));
                "{$".len() + inner.len() + "}".len()
            }
            None => {
                out.push(Glyph { ch, line, column });
                ch.len_utf8()
            }
        };
        for ch in rest[..consumed].chars() {
            (line, column) = if ch == '\n' { (line + 1, 1) } else { (line, column + 1) };
        }
        rest = &rest[consumed..];
    }
    out
}
