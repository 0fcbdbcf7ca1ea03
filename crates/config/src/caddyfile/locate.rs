//! Finds the position of a token that only the plan rejects. The plan works on JSON, which has no line numbers.

use std::sync::Arc;

use super::position::Position;
use super::segment::Segment;
use super::token::Token;
use super::{lexer, parser, placeholder};

/// A token of a Caddyfile and the line it is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLine {
    /// Position of the token.
    pub at: Position,
    /// The tokens of its line as written, without those of its block.
    pub line: String,
}

/// Finds the tokens equal to `text`, in imports too; each position once. Without any, finds those that `environment` makes
/// equal to it. Parses the file and its imports again, so it is meant for error messages only.
pub fn locate(
    source: &str,
    file_name: &str,
    text: &str,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Vec<SourceLine> {
    let file: Arc<str> = Arc::from(file_name);
    let written = places(source, &file, text, &|_| None);
    if !written.is_empty() {
        return written;
    }
    let mut found = places(source, &file, text, environment);
    for place in &mut found {
        // The line as written: other variables in it may be secrets.
        let is_here = *place.at.file == *file;
        let line = source.lines().nth((place.at.line as usize).saturating_sub(1)).filter(|_| is_here);
        place.line = line.unwrap_or_default().trim().to_owned();
    }
    found
}

fn places(source: &str, file: &Arc<str>, text: &str, environment: &dyn Fn(&str) -> Option<String>) -> Vec<SourceLine> {
    let mut found = Vec::new();
    let Ok(tokens) = lexer::lex(source, file, environment) else { return found };
    let Ok((blocks, _)) = parser::parse(tokens, file, environment) else { return found };
    for mut block in blocks {
        let plain = block.segments.clone();
        placeholder::expand_shorthands(&mut block.segments);
        search(&block.segments, &plain, text, &mut found);
    }
    found
}

/// `plain` holds the same segments as `lines`, but with shorthand placeholders not expanded.
fn search(lines: &[Segment], plain: &[Segment], text: &str, found: &mut Vec<SourceLine>) {
    for (line, plain) in lines.iter().zip(plain) {
        for token in std::iter::once(&line.name).chain(&line.arguments) {
            // `map` marks regular expressions with `~`. A snippet that is imported several times repeats its positions.
            let is_it = &*token.text == text || token.text.strip_prefix('~') == Some(text);
            if is_it && found.iter().all(|earlier| earlier.at != token.at) {
                let words = std::iter::once(&plain.name).chain(&plain.arguments).map(Token::raw);
                found.push(SourceLine { at: token.at.clone(), line: Vec::from_iter(words).join(" ") });
            }
        }
        if let (Some(lines), Some(plain)) = (&line.block, &plain.block) {
            search(lines, plain, text, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::locate;

    #[test]
    fn the_places_of_a_word() {
        for (source, text, want) in [
            (":80 {\n\tbind nowhere\n}", "nowhere", &["f:2:7: bind nowhere"][..]),
            (":80\nbind \"nowhere\"", "nowhere", &["f:2:6: bind \"nowhere\""]),
            (":80\nbind é nowhere", "nowhere", &["f:2:8: bind é nowhere"]),
            (":80\nbind nowhere elsewhere", "where", &[]),
            (":80\nbind nowhere\nbind nowhere x", "nowhere", &["f:2:6: bind nowhere", "f:3:6: bind nowhere x"]),
            (":80\nrespond hi", "", &[]),
            (":80\nrespond \"a \\\"b\\\"\"", "a \"b\"", &["f:2:9: respond \"a \"b\"\""]),
            (":80\n@a `{path} ==\n1`", "{http.request.uri.path} ==\n1", &["f:2:4: @a `{path} ==\n1`"]),
            (":80\nmap {a} {b} {\n\t~^/(x 1\n}", "^/(x", &["f:3:2: ~^/(x 1"]),
            (
                "(s) {\n\tbind nowhere\n}\n:80 {\n\timport s\n}\n:81 {\n\timport s\n}",
                "nowhere",
                &["f:2:7: bind nowhere"],
            ),
            (":80\nimport is-not-there", "is-not-there", &[]),
            ("{", "{", &[]),
        ] {
            let found = locate(source, "f", text, &|_| None);
            let found = Vec::from_iter(found.iter().map(|word| format!("{}: {}", word.at, word.line)));
            assert_eq!(found, want, "{source:?} {text:?}");
        }
    }

    // A token that a variable makes is found where the variable is, unless the text has the token itself.
    #[test]
    fn the_places_of_a_variable() {
        let environment = |name: &str| Some(if name == "CODE" { "abc".to_owned() } else { "secret".to_owned() });
        for (source, want) in [
            (":80 {\n\trespond x {$CODE} # {$KEY}\n}", &["f:2:12: respond x {$CODE} # {$KEY}"][..]),
            (":80 {\n\trespond {$KEY} {$CODE:200}\n}", &["f:2:17: respond {$KEY} {$CODE:200}"]),
            (":80 {\n\trespond x {$CODE}\n\trespond y abc\n}", &["f:3:12: respond y abc"]),
            (":80 {\n\trespond x {$KEY}\n}", &[]),
        ] {
            let found = locate(source, "f", "abc", &environment);
            let found = Vec::from_iter(found.iter().map(|word| format!("{}: {}", word.at, word.line)));
            assert_eq!(found, want, "{source:?}");
        }
    }
}
