//! Finds the position of a token that only the plan rejects. The plan works on JSON, which has no line numbers.

use std::collections::HashMap;
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

/// Returns for each of the texts, which are different ones, the tokens equal to it, in imports too; each position once.
/// Without any, those that `environment` makes equal to it. Parses the file and its imports once more, or twice, so it
/// is meant for messages only.
pub fn locate(
    source: &str,
    file_name: &str,
    texts: &[&str],
    environment: &dyn Fn(&str) -> Option<String>,
) -> Vec<Vec<SourceLine>> {
    let mut found = vec![Vec::new(); texts.len()];
    if texts.is_empty() {
        return found;
    }
    let file: Arc<str> = Arc::from(file_name);
    let all: HashMap<&str, usize> = texts.iter().enumerate().map(|(index, text)| (*text, index)).collect();
    collect(source, &file, &all, &|_| None, &mut found);
    let missing: HashMap<&str, usize> = all.into_iter().filter(|(_, index)| found[*index].is_empty()).collect();
    if missing.is_empty() {
        return found;
    }
    collect(source, &file, &missing, environment, &mut found);
    let lines: Vec<&str> = source.lines().collect();
    for index in missing.into_values() {
        for place in &mut found[index] {
            // The line as written: other variables in it may be secrets.
            let is_here = *place.at.file == *file;
            let line = lines.get((place.at.line as usize).saturating_sub(1)).filter(|_| is_here);
            place.line = line.map_or("", |line| line.trim()).to_owned();
        }
    }
    found
}

/// Adds the places of the texts, each to the list with its index.
fn collect(
    source: &str,
    file: &Arc<str>,
    texts: &HashMap<&str, usize>,
    environment: &dyn Fn(&str) -> Option<String>,
    found: &mut [Vec<SourceLine>],
) {
    let Ok(tokens) = lexer::lex(source, file, environment) else { return };
    let Ok((blocks, _)) = parser::parse(tokens, file, environment) else { return };
    for mut block in blocks {
        let plain = block.segments.clone();
        placeholder::expand_shorthands(&mut block.segments);
        search(&block.segments, &plain, texts, found);
    }
}

/// `plain` holds the same segments as `lines`, but with shorthand placeholders not expanded.
fn search(lines: &[Segment], plain: &[Segment], texts: &HashMap<&str, usize>, found: &mut [Vec<SourceLine>]) {
    for (line, plain) in lines.iter().zip(plain) {
        for token in std::iter::once(&line.name).chain(&line.arguments) {
            // `map` marks regular expressions with `~`.
            let marked = token.text.strip_prefix('~').and_then(|text| texts.get(text));
            for index in texts.get(&*token.text).into_iter().chain(marked) {
                // A snippet that is imported several times repeats its positions.
                if found[*index].iter().all(|earlier| earlier.at != token.at) {
                    let words = std::iter::once(&plain.name).chain(&plain.arguments).map(Token::raw);
                    found[*index].push(SourceLine { at: token.at.clone(), line: Vec::from_iter(words).join(" ") });
                }
            }
        }
        if let (Some(lines), Some(plain)) = (&line.block, &plain.block) {
            search(lines, plain, texts, found);
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
            let found = &locate(source, "f", &[text], &|_| None)[0];
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
            let found = &locate(source, "f", &["abc"], &environment)[0];
            let found = Vec::from_iter(found.iter().map(|word| format!("{}: {}", word.at, word.line)));
            assert_eq!(found, want, "{source:?}");
        }
    }

    // Each text has its own places, in one pass.
    #[test]
    fn the_places_of_several_texts() {
        let environment = |name: &str| (name == "ROOT").then(|| "/srv/b".to_owned());
        let source = ":80 {\n\troot /srv/a\n\troot /x {$ROOT}\n\troot /srv/a\n}";
        let found = locate(source, "f", &["/srv/a", "/srv/b", "/srv/c"], &environment);
        let found: Vec<Vec<u32>> =
            found.iter().map(|places| places.iter().map(|place| place.at.line).collect()).collect();
        assert_eq!(found, [vec![2, 4], vec![3], vec![]]);
    }
}
