//! Separates the comments of a Rust file from its code. Of the grammar it handles only strings, characters and nested
//! comments.

/// A line of a comment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Comment {
    /// From 1.
    pub(super) line: usize,
    /// The text without the marker.
    pub(super) text: String,
    pub(super) kind: CommentKind,
    /// Whether it is in a test module or file.
    pub(super) in_test: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommentKind {
    /// `///`, `//!`, `/**`, `/*!`.
    Doc,
    /// `//`, `/*`.
    Inline,
}

/// A Rust file.
pub(super) struct RustSource {
    pub(super) comments: Vec<Comment>,
    /// The code with the same lines, but with spaces for comments and for the content of strings.
    pub(super) code: String,
    /// Whether each line of the code is in a test module or file.
    tests: Vec<bool>,
}

impl RustSource {
    /// Separates comments and code. `is_test` marks the whole file as a test.
    pub(super) fn parse(text: &str, is_test: bool) -> Self {
        let (code, mut comments) = split(text);
        let lines = code.lines().count();
        let mut tests = vec![is_test; lines];
        if !is_test {
            for (from, to) in test_modules(&code) {
                tests[from - 1..to.min(lines)].fill(true);
            }
        }
        for comment in &mut comments {
            comment.in_test = tests.get(comment.line - 1).copied().unwrap_or(is_test);
        }
        Self { comments, code, tests }
    }

    /// Returns the number of code lines outside tests, and of the lines of inline comments there.
    pub(super) fn density(&self) -> (usize, usize) {
        let code = self.code.lines().zip(&self.tests).filter(|(line, test)| !**test && !line.trim().is_empty()).count();
        let comments =
            self.comments.iter().filter(|comment| comment.kind == CommentKind::Inline && !comment.in_test).count();
        (code, comments)
    }
}

/// Returns the code without comments and string contents, and the comments.
fn split(text: &str) -> (String, Vec<Comment>) {
    let (mut code, mut comments) = (String::with_capacity(text.len()), Vec::new());
    let (mut rest, mut line) = (text, 1);
    while let Some(next) = rest.chars().next() {
        let taken = match next {
            '/' if rest.starts_with("//") => {
                let end = rest.find('\n').unwrap_or(rest.len());
                comments.push(comment(&rest[2..end], line));
                end
            }
            '/' if rest.starts_with("/*") => {
                let end = block_end(rest);
                let inner = &rest[2..end].trim_end_matches("*/");
                let kind = if inner.starts_with(['*', '!']) { CommentKind::Doc } else { CommentKind::Inline };
                for (at, text) in inner.trim_start_matches(['*', '!']).split('\n').enumerate() {
                    let text = text.trim().trim_start_matches("* ").to_owned();
                    comments.push(Comment { line: line + at, text, kind, in_test: false });
                }
                keep_lines(&rest[..end], &mut code)
            }
            '"' => string(rest, &mut code),
            'r' if raw_hashes(&rest[1..]).is_some() && !ends_in_word(&code) => raw_string(rest, 1, &mut code),
            'b' | 'c' if rest[1..].starts_with('r') && raw_hashes(&rest[2..]).is_some() && !ends_in_word(&code) => {
                raw_string(rest, 2, &mut code)
            }
            '\'' => {
                let end = character_end(rest);
                code.push_str(if end > 1 { "' '" } else { "'" });
                end
            }
            _ => {
                // Up to the next character with an arm of its own.
                let first = next.len_utf8();
                let end = rest[first..].find(['/', '"', '\'', 'r', 'b', 'c']).map_or(rest.len(), |at| first + at);
                code.push_str(&rest[..end]);
                end
            }
        };
        line += rest[..taken].matches('\n').count();
        rest = &rest[taken..];
    }
    (code, comments)
}

/// Makes a comment of the text after `//`.
fn comment(text: &str, line: usize) -> Comment {
    let doc = text.starts_with('!') || (text.starts_with('/') && !text.starts_with("//"));
    let (kind, text) = if doc { (CommentKind::Doc, &text[1..]) } else { (CommentKind::Inline, text) };
    Comment { line, text: text.trim().to_owned(), kind, in_test: false }
}

fn ends_in_word(code: &str) -> bool {
    code.ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// Adds the line breaks of a skipped text, and returns the text's length.
fn keep_lines(text: &str, code: &mut String) -> usize {
    code.push(' ');
    code.extend(text.chars().filter(|c| *c == '\n'));
    text.len()
}

/// Returns the end of a comment that begins with `/*` and may contain others.
fn block_end(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        if text[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if text[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// Skips a string, keeping its line breaks.
fn string(text: &str, code: &mut String) -> usize {
    let mut escaped = false;
    let end = text.char_indices().skip(1).find(|(_, c)| {
        let ends = *c == '"' && !escaped;
        escaped = *c == '\\' && !escaped;
        ends
    });
    let end = end.map_or(text.len(), |(at, _)| at + 1);
    code.push('"');
    keep_lines(&text[..end], code);
    code.push('"');
    end
}

/// Returns the number of `#` before a raw string's quote.
fn raw_hashes(text: &str) -> Option<usize> {
    let hashes = text.len() - text.trim_start_matches('#').len();
    text[hashes..].starts_with('"').then_some(hashes)
}

/// Skips a raw string whose prefix (`r`, `br`) has the given length.
fn raw_string(text: &str, prefix: usize, code: &mut String) -> usize {
    let hashes = raw_hashes(&text[prefix..]).unwrap_or_default();
    let close = format!("\"{}", "#".repeat(hashes));
    let from = prefix + hashes + 1;
    let end = text[from..].find(&close).map_or(text.len(), |at| from + at + close.len());
    code.push('"');
    keep_lines(&text[..end], code);
    code.push('"');
    end
}

/// Returns the length of a character literal, or 1 for the quote of a lifetime.
fn character_end(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            // The escaped character may be a quote itself.
            let rest = chars.next().map_or(text.len(), |(at, c)| at + c.len_utf8());
            text[rest..].find('\'').map_or(1, |at| rest + at + 1)
        }
        Some((at, c)) if text[at + c.len_utf8()..].starts_with('\'') => at + c.len_utf8() + 1,
        _ => 1,
    }
}

/// Returns the first and last line of every module with `#[cfg(test)]`.
fn test_modules(code: &str) -> Vec<(usize, usize)> {
    let mut modules = Vec::new();
    let mut from = 0;
    while let Some(at) = code[from..].find("#[cfg(test)]").map(|at| from + at) {
        from = at + "#[cfg(test)]".len();
        let item = code[from..].trim_start();
        let header = item.split(['{', ';']).next().unwrap_or_default();
        if !header.split_whitespace().any(|word| word == "mod") || item[header.len()..].starts_with(';') {
            continue;
        }
        let open = code.len() - item.len() + header.len();
        let mut depth = 0;
        let close = code[open..].find(|c| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            depth == 0
        });
        let end = close.map_or(code.len(), |close| open + close);
        let line = |at: usize| code[..at].matches('\n').count() + 1;
        modules.push((line(at), line(end)));
        from = end;
    }
    modules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_found_outside_of_strings() {
        let text = "let a = \"http://x \\\" // no\"; // one\n/// two\nlet b = r#\"// no \" \"#;\n//! three\n\
            let c = ('\"', '\\'', b'/', 'd); // four\n/* five\n * six /* in */ */ let e = br\"//\";\n//// seven\n";
        let (code, comments) = split(text);
        let found: Vec<(usize, &str, CommentKind)> =
            comments.iter().map(|comment| (comment.line, comment.text.as_str(), comment.kind)).collect();
        let expected = [
            (1, "one", CommentKind::Inline),
            (2, "two", CommentKind::Doc),
            (4, "three", CommentKind::Doc),
            (5, "four", CommentKind::Inline),
            (6, "five", CommentKind::Inline),
            (7, "six /* in */", CommentKind::Inline),
            (8, "// seven", CommentKind::Inline),
        ];
        assert_eq!(found, expected);
        assert_eq!(code.lines().count(), 8, "{code}");
        assert!(!code.contains("no") && code.contains("let e ="), "{code}");
    }

    #[test]
    fn test_modules_are_tests_to_their_closing_brace() {
        let text = "// a\nfn a() {}\n#[cfg(test)]\nmod tests {\n    // b\n    fn b() { let s = \"}\"; }\n}\n// c\n\
            #[cfg(test)]\nmod more;\n#[cfg(test)]\nfn d() {} // d\n";
        let source = RustSource::parse(text, false);
        let tests: Vec<bool> = source.comments.iter().map(|comment| comment.in_test).collect();
        assert_eq!(tests, [false, true, false, false]);
        assert_eq!(source.density(), (5, 3));
        assert!(RustSource::parse(text, true).comments.iter().all(|comment| comment.in_test));
    }
}
