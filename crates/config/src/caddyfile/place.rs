//! Where a word stands that only the plan refused: it knows the JSON, not its lines.

use std::sync::Arc;

use super::position::Position;
use super::{lexer, parser, placeholder};

/// The place of the only word that became this text, imports included; `None` where several did, or none. What the environment
/// brought along is not found. Reads the file, and what it imports, again: for a message, not for every load.
pub fn only_place(source: &str, file_name: &str, text: &str) -> Option<Position> {
    let file: Arc<str> = Arc::from(file_name);
    let unset = |_: &str| None;
    let tokens = lexer::lex(source, &file, &unset).ok()?;
    let (blocks, _) = parser::parse(tokens, &file, &unset).ok()?;
    let mut places: Vec<Position> = Vec::new();
    for mut block in blocks {
        placeholder::expand_shorthands(&mut block.segments);
        for segment in &mut block.segments {
            segment.for_each_token(&mut |token| {
                // `map` has a mark in front of regular expressions. A snippet's word may be brought along several times.
                let is_it = &*token.text == text || token.text.strip_prefix('~') == Some(text);
                if is_it && !places.contains(&token.at) {
                    places.push(token.at.clone());
                }
            });
        }
    }
    let [_] = places[..] else { return None };
    places.pop()
}

#[cfg(test)]
mod tests {
    use super::only_place;

    #[test]
    fn the_place_of_a_word() {
        for (source, text, want) in [
            (":80 {\n\tbind nowhere\n}", "nowhere", Some("f:2:7")),
            (":80\nbind \"nowhere\"", "nowhere", Some("f:2:6")),
            (":80\nbind é nowhere", "nowhere", Some("f:2:8")),
            (":80\nbind nowhere elsewhere", "where", None),
            (":80\nbind nowhere\nbind nowhere", "nowhere", None),
            (":80\nrespond hi", "", None),
            (":80\nrespond \"a \\\"b\\\"\"", "a \"b\"", Some("f:2:9")),
            (":80\n@a `{path} ==\n1`", "{http.request.uri.path} ==\n1", Some("f:2:4")),
            (":80\nmap {a} {b} {\n\t~^/(x 1\n}", "^/(x", Some("f:3:2")),
            ("(s) {\n\tbind nowhere\n}\n:80 {\n\timport s\n}\n:81 {\n\timport s\n}", "nowhere", Some("f:2:7")),
            (":80\nimport is-not-there", "is-not-there", None),
            ("{", "{", None),
        ] {
            let place = only_place(source, "f", text).map(|place| place.to_string());
            assert_eq!(place.as_deref(), want, "{source:?} {text:?}");
        }
    }
}
