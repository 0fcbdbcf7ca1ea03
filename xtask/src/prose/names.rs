//! Finds the definitions of types in code without comments and strings.

/// The item that a pair of braces belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ItemScope {
    /// `impl` or `trait`, in which `type` is an associated type.
    Associated,
    Other,
}

/// Returns the line and name of every `struct`, `enum`, `trait` and `type`, except associated types.
pub(super) fn types(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    // With the number of brackets that were open before the brace.
    let mut scopes: Vec<(ItemScope, i32)> = Vec::new();
    // The scope that the next brace opens: decided by the first keyword of an item.
    let mut next: Option<ItemScope> = None;
    let mut keyword: Option<&str> = None;
    // A semicolon in `[u8; 4]` does not end an item.
    let mut brackets = 0;
    for (line, token) in tokens(code) {
        match token {
            "{" => {
                scopes.push((next.take().unwrap_or(ItemScope::Other), brackets));
                brackets = 0;
            }
            "}" => {
                brackets = scopes.pop().map_or(0, |(_, brackets)| brackets);
                next = None;
            }
            "[" | "(" => brackets += 1,
            "]" | ")" => brackets -= 1,
            ";" if brackets == 0 => next = None,
            "impl" | "trait" => next = next.or(Some(ItemScope::Associated)),
            "fn" | "mod" | "struct" | "enum" | "let" | "const" | "static" | "match" => {
                next = next.or(Some(ItemScope::Other));
            }
            _ => {}
        }
        // A name follows its keyword directly; `struct $name` in a macro has none.
        let names_a_type = match keyword {
            Some("type") => !matches!(scopes.last(), Some((ItemScope::Associated, _))),
            Some(_) => true,
            None => false,
        };
        if names_a_type && token.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            found.push((line, token));
        }
        keyword = matches!(token, "struct" | "enum" | "trait" | "type").then_some(token);
    }
    found
}

/// Splits code into identifiers and single characters, with the line of each. Raw identifiers such as `r#type` are one
/// token.
fn tokens(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut line = 1;
    let mut rest = code;
    std::iter::from_fn(move || {
        let trimmed = rest.trim_start();
        line += rest[..rest.len() - trimmed.len()].matches('\n').count();
        let first = trimmed.chars().next()?;
        let end = if first.is_alphanumeric() || first == '_' {
            let skipped = if trimmed.starts_with("r#") { 2 } else { 0 };
            let word = &trimmed[skipped..];
            skipped + word.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(word.len())
        } else {
            first.len_utf8()
        };
        rest = &trimmed[end..];
        Some((line, &trimmed[..end]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(code: &str, expected: &[(usize, &str)]) {
        assert_eq!(types(code), expected, "{code}");
    }

    #[test]
    fn definitions_are_found_with_their_lines() {
        check("pub struct A;\nenum B {\n    C { d: u8 },\n}\ntype E<T> = Vec<T>;\n", &[(1, "A"), (2, "B"), (5, "E")]);
        check("mod m {\n    pub(crate) trait T: Sized {}\n    type U = u8;\n}", &[(2, "T"), (3, "U")]);
    }

    #[test]
    fn associated_types_are_not_definitions() {
        check("impl Iterator for A { type Item = u8; fn f() { struct B; type C = u8; } }", &[(1, "B"), (1, "C")]);
        check("trait T { type A; fn f() -> impl U { g() } type B; }\ntype C = u8;", &[(1, "T"), (2, "C")]);
        check("impl T for [u8; 4] { type A = u8; }", &[]);
        check("f(|| { let a; impl T for A { type B = u8; } });", &[]);
        check("unsafe impl<T> U for A<T> where T: V { type W = T; }", &[]);
    }

    #[test]
    fn other_uses_of_the_keywords_are_not_definitions() {
        check("let r#type = x.r#type; macro! { struct $name; }", &[]);
        check("fn f() -> impl T { type A = u8; }", &[(1, "A")]);
    }
}
