//! Go's regular expressions in the syntax of the `regex` crate, which is nearly the same.
//!
//! What differs: in Go `\d`, `\w`, `\s` and `\b` know ASCII only, `\Q…\E` quotes, a `{` that counts nothing is a brace, an octal
//! number follows `\`, any punctuation may be escaped, and a class holds no other class and no operators.

use std::iter::Peekable;
use std::str::Chars;

type Source<'s> = Peekable<Chars<'s>>;

/// The expression in the other syntax; `None` for what Go would refuse and `regex` might not.
pub(super) fn translated(source: &str) -> Option<String> {
    let mut out = String::with_capacity(source.len());
    let mut chars = source.chars().peekable();
    while let Some(ch) = chars.next() {
        match ch {
            '\\' => escape(&mut chars, &mut out)?,
            '[' => class(&mut chars, &mut out)?,
            '{' if !is_count(chars.clone()) => out.push_str(r"\{"),
            '(' if chars.peek() == Some(&'?') && !has_gos_flags(chars.clone()) => return None,
            _ => out.push(ch),
        }
    }
    Some(out)
}

/// Whether `n}`, `n,}` or `n,m}` comes.
fn is_count(chars: Source<'_>) -> bool {
    let text: String = chars.take_while(|ch| *ch != '}').collect();
    let (low, high) = text.split_once(',').unwrap_or((&text, ""));
    let is_number = |text: &str| text.bytes().all(|octet| octet.is_ascii_digit());
    !low.is_empty() && is_number(low) && is_number(high)
}

/// Whether a group begins with a name or with flags that Go knows.
fn has_gos_flags(chars: Source<'_>) -> bool {
    let flags: String = chars.skip(1).take_while(|ch| !matches!(ch, ':' | ')')).collect();
    let is_name = |name: &str| name.starts_with('<') && !name.starts_with("<=") && !name.starts_with("<!");
    is_name(&flags) || flags.strip_prefix('P').is_some_and(is_name) || flags.chars().all(|flag| "imsU-".contains(flag))
}

/// What follows a backslash outside of a class.
fn escape(chars: &mut Source<'_>, out: &mut String) -> Option<()> {
    match chars.next()? {
        'Q' => quoted(chars, out),
        'b' => out.push_str(r"(?-u:\b)"),
        'B' => out.push_str(r"(?-u:\B)"),
        'A' => out.push_str(r"\A"),
        'z' => out.push_str(r"\z"),
        // Not folded: in Go `(?i)\w` is ASCII too.
        ch @ ('w' | 'W') => out.push_str(&format!("(?-i:{})", perl_class(ch)?)),
        ch => element(ch, chars, out)?,
    }
    Some(())
}

fn quoted(chars: &mut Source<'_>, out: &mut String) {
    while let Some(ch) = chars.next() {
        if ch == '\\' && chars.peek() == Some(&'E') {
            chars.next();
            return;
        }
        literal(ch, out);
    }
}

/// What `\ch` stands for where it is one character or a class of them, in a class and outside.
fn element(ch: char, chars: &mut Source<'_>, out: &mut String) -> Option<()> {
    match ch {
        'd' | 'D' | 's' | 'S' | 'w' | 'W' => out.push_str(perl_class(ch)?),
        'a' | 'f' | 'n' | 'r' | 't' | 'v' => out.extend(['\\', ch]),
        'x' | 'p' | 'P' => {
            out.extend(['\\', ch]);
            let braced = chars.peek() == Some(&'{');
            let len = if ch == 'x' { 2 } else { 1 };
            for count in 1.. {
                let next = chars.next()?;
                out.push(next);
                if if braced { next == '}' } else { count == len } {
                    break;
                }
            }
        }
        // One digit but 0 is a reference to a group, which neither has.
        '0'..='7' => {
            let mut code = ch.to_digit(8)?;
            let mut digits = 1;
            while digits < 3
                && let Some(digit) = chars.peek().and_then(|next| next.to_digit(8))
            {
                code = code * 8 + digit;
                digits += 1;
                chars.next();
            }
            if ch != '0' && digits == 1 {
                return None;
            }
            literal(char::from_u32(code)?, out);
        }
        _ if ch.is_ascii_alphanumeric() => return None,
        _ if ch.is_ascii() => literal(ch, out),
        _ => return None,
    }
    Some(())
}

fn perl_class(ch: char) -> Option<&'static str> {
    Some(match ch {
        'd' => "[0-9]",
        'D' => "[^0-9]",
        's' => r"[\t\n\x0c\r ]",
        'S' => r"[^\t\n\x0c\r ]",
        'w' => "[0-9A-Za-z_]",
        'W' => "[^0-9A-Za-z_]",
        _ => return None,
    })
}

/// A character that means itself, in a class and outside.
fn literal(ch: char, out: &mut String) {
    if ch.is_ascii_punctuation() && !matches!(ch, '<' | '>' | '_') {
        out.push('\\');
    }
    out.push(ch);
}

/// A class, behind its `[`.
fn class(chars: &mut Source<'_>, out: &mut String) -> Option<()> {
    out.push('[');
    if chars.next_if_eq(&'^').is_some() {
        out.push('^');
    }
    let mut is_first = true;
    loop {
        match chars.next()? {
            ']' if !is_first => {
                out.push(']');
                return Some(());
            }
            '[' if chars.peek() == Some(&':') && named(chars.clone()).is_some() => {
                let len = named(chars.clone())?;
                out.push('[');
                out.extend(chars.by_ref().take(len));
            }
            '\\' => {
                let ch = chars.next()?;
                element(ch, chars, out)?;
            }
            ch => literal(ch, out),
        }
        is_first = false;
        // A hyphen between two characters is a range; its end comes next and is read as any character.
        if chars.peek() == Some(&'-') {
            let mut behind = chars.clone();
            behind.next();
            if !matches!(behind.peek(), None | Some(']')) {
                chars.next();
                out.push('-');
                match chars.next()? {
                    '\\' => {
                        let ch = chars.next()?;
                        element(ch, chars, out)?;
                    }
                    ch => literal(ch, out),
                }
            }
        }
    }
}

/// Characters of `:name:]`.
fn named(chars: Source<'_>) -> Option<usize> {
    let text: String = chars.collect();
    let end = text[1..].find(":]")?;
    text[1..=end].bytes().all(|octet| octet.is_ascii_lowercase() || octet == b'^').then_some(end + 3)
}

#[cfg(test)]
mod tests {
    use super::super::compile;

    // Go, regexp/syntax.
    #[test]
    fn what_differs() {
        for (source, matching, other) in [
            (r"^\d+$", "123", "\u{663}"),
            (r"^\w$", "_", "\u{e9}"),
            (r"(?i)^\w$", "K", "\u{212a}"),
            (r"^\W$", "\u{e9}", "x"),
            (r"^[\w.]+$", "a.b", "a-b"),
            (r"^[^\d]$", "x", "7"),
            (r"^\S\s$", "x ", "x\u{b}"),
            (r"\bcat\b", "a cat", "concat"),
            (r"^\Qa.b*\E+$", "a.b**", "axb*"),
            (r"^\Qa.b", "a.b", "axb"),
            (r"^\<b\>$", "<b>", "b"),
            (r"^a{,2}$", "a{,2}", "aa"),
            (r"^a{2}$", "aa", "a{2}"),
            (r"^a{2,}b{1,2}$", "aaabb", "aaabbb"),
            (r"^{x}$", "{x}", "x"),
            (r"^[[]$", "[", "]"),
            (r"^[]a]$", "]", "b"),
            (r"^[a&&b]+$", "a&b", "c"),
            (r"^[a~~b]+$", "~", "c"),
            (r"^[+--]+$", "+,-", "."),
            (r"^[a-]$", "-", "b"),
            (r"^[-a]$", "-", "b"),
            (r"^[[:alpha:]_]$", "_", ":"),
            (r"^[[:^alpha:]]$", "7", "a"),
            (r"^[\]\-\\]+$", r"]-\", "["),
            (r"^\101\x41\x{42}$", "AAB", "AAA"),
            (r"^\pL\p{Greek}$", "a\u{3b1}", "1\u{3b1}"),
            (r"(?U)^(a+)a*$", "aaa", "b"),
            (r"^(?P<n>a)(?<m>b)(?i:C)$", "abc", "acb"),
            (r"^\/\-\_\ $", "/-_ ", "/"),
            (r"^a.c$", "abc", "a\nc"),
            (r"a\z", "a", "ab"),
        ] {
            let regex = compile(source).expect(source);
            assert!(regex.is_match(matching.as_bytes()), "{source} {matching:?}");
            assert!(!regex.is_match(other.as_bytes()), "{source} {other:?}");
        }
    }

    #[test]
    fn refused() {
        for source in [
            "(",
            "[a",
            "a**(",
            r"\1",
            r"\8",
            r"\Z",
            r"\u0041",
            r"\C",
            r"\",
            r"(?x)a",
            r"(?=a)",
            r"(?<=a)",
            r"(?u)a",
            "*a",
            r"\x4",
            r"[\b]",
            r"[a\",
            "(?P=n)",
            r"\p{None}",
            "[b-a]",
        ] {
            assert!(compile(source).is_none(), "{source}");
        }
    }
}
