//! Translates Go's regular expression syntax (package regexp/syntax, which is RE2's) to that of the `regex` crate.
//!
//! The two syntaxes are nearly equal. The translation rewrites the differences: in Go `\d`, `\w`, `\s` and `\b` are
//! ASCII; `\<` is a literal `<`; inside a class `[`, `&&`, `--` and `~~` are literal too; `\Q…\E` and octal escapes
//! exist; a `{` that does not begin a count is literal; counts end at 1000; a repetition cannot follow a repetition.

use std::fmt;

/// The largest repetition count that Go accepts.
const COUNT_MAX: u32 = 1000;

/// All characters of Unicode, and those of its largest class of letters, rounded up.
const CHARACTERS: usize = 0x11_0000;
const LARGEST_CLASS: usize = 150_000;

/// Returns whether a Unicode class has more than letters, for example the characters without a meaning. The crate ignores
/// case, underscores and `is` at the start.
fn is_huge(class: &str) -> bool {
    let name = class.replace('_', "").to_ascii_lowercase();
    let name = name.strip_prefix("is").unwrap_or(&name);
    ["any", "assigned", "c", "cn", "other", "unassigned", "unknown", "zzzz"].contains(&name)
}

/// A pattern for the crate `regex`.
#[derive(Debug)]
pub struct Translated {
    /// The pattern, for the crate's default options.
    pub pattern: String,
    /// The names of the groups, the whole match first. The translated pattern contains no names.
    pub names: Vec<Option<Box<str>>>,
    /// The characters whose case the crate must look up: those of all ranges and Unicode classes, if the pattern has the
    /// flag `i`, an estimate from above. It takes some ten nanoseconds for each, within any `size_limit`.
    pub folded_characters: usize,
}

/// A syntax error, and its position: a 1-based index in characters.
#[derive(Debug, PartialEq, Eq)]
pub struct PatternError {
    at: usize,
    what: &'static str,
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at character {}", self.what, self.at)
    }
}

/// Translates a pattern. The crate may still refuse the result, for example for a parenthesis without its other half.
///
/// # Errors
/// If the crate would read the pattern in another way than Go, and Go refuses it.
pub fn translate(go: &str) -> Result<Translated, PatternError> {
    let out = String::with_capacity(go.len());
    let mut work = Translation { source: go, at: 0, out, names: vec![None], class_characters: 0, folds: false };
    work.whole()?;
    let folded_characters = if work.folds { work.class_characters } else { 0 };
    Ok(Translated { pattern: work.out, names: work.names, folded_characters })
}

struct Translation<'g> {
    source: &'g str,
    /// Number of bytes consumed.
    at: usize,
    out: String,
    names: Vec<Option<Box<str>>>,
    class_characters: usize,
    /// The flag `i` was read.
    folds: bool,
}

impl<'g> Translation<'g> {
    /// The unread part of the pattern.
    fn rest(&self) -> &'g str {
        &self.source[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let ch = self.peek()?;
        self.at += ch.len_utf8();
        Some(ch)
    }

    /// Consumes `text` if the pattern continues with it.
    fn take(&mut self, text: &str) -> bool {
        let taken = self.rest().starts_with(text);
        self.at += if taken { text.len() } else { 0 };
        taken
    }

    /// Returns the mistake for byte offset `at`.
    fn mistake<T>(&self, at: usize, what: &'static str) -> Result<T, PatternError> {
        Err(PatternError { at: self.source[..at].chars().count() + 1, what })
    }

    fn whole(&mut self) -> Result<(), PatternError> {
        let mut repeated = false;
        // The largest product of nested counts in the last atom, and in each open group.
        let (mut atom, mut groups) = (1, vec![1]);
        while let Some(ch) = self.peek() {
            let start = self.at;
            if let Some((length, count)) = self.repetition()? {
                // The `regex` crate accepts `a**`; Go rejects it.
                if repeated {
                    return self.mistake(start, "a repetition operator after a repetition");
                }
                atom *= count.max(1);
                if atom > COUNT_MAX {
                    return self.mistake(start, "repetition counts whose product is above 1000");
                }
                if let Some(most) = groups.last_mut() {
                    *most = atom.max(*most);
                }
                self.out.push_str(&self.source[start..start + length]);
                self.at += length;
                if self.take("?") {
                    self.out.push('?');
                }
                repeated = true;
                continue;
            }
            repeated = false;
            atom = 1;
            self.next();
            match ch {
                '\\' => self.escape(start)?,
                '[' => self.class(start)?,
                '(' => {
                    self.group(start)?;
                    // `(?i)` is none.
                    if !self.out.ends_with(')') {
                        groups.push(1);
                    }
                }
                ')' => {
                    self.out.push(ch);
                    atom = groups.pop().unwrap_or(1);
                    if let Some(most) = groups.last_mut() {
                        *most = atom.max(*most);
                    }
                }
                '.' | '^' | '$' | '|' => self.out.push(ch),
                _ => self.literal(ch),
            }
        }
        Ok(())
    }

    /// Returns the length in bytes of the repetition at the current position, without a trailing `?`, and its largest count, which
    /// is 1 without counts. `None` if there is none.
    fn repetition(&self) -> Result<Option<(usize, u32)>, PatternError> {
        let rest = self.rest();
        if rest.starts_with(['*', '+', '?']) {
            return Ok(Some((1, 1)));
        }
        let Some((counts, _)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) else { return Ok(None) };
        let (least, most) = match counts.split_once(',') {
            None => (counts, None),
            Some((least, most)) => (least, Some(most)),
        };
        let is_count = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            digits && (text == "0" || !text.starts_with('0'))
        };
        // Go reads `{`, `{,3}` or `{01}` as literal text.
        if !is_count(least) || !most.is_none_or(|most| most.is_empty() || is_count(most)) {
            return Ok(None);
        }
        let value = |text: &str| text.parse::<u32>().ok().filter(|count| *count <= COUNT_MAX);
        let largest = match (value(least), most.filter(|most| !most.is_empty()).map(value)) {
            (Some(least), None) => Some(least),
            (Some(least), Some(Some(most))) if least <= most => Some(most),
            _ => None,
        };
        match largest {
            // The digits and the two braces.
            Some(largest) => Ok(Some((counts.len() + 2, largest))),
            None => self.mistake(self.at, "a repetition count above 1000 or in descending order"),
        }
    }

    /// Translates an escape outside of a class. The backslash is already consumed.
    fn escape(&mut self, start: usize) -> Result<(), PatternError> {
        match self.peek() {
            Some(ch @ ('A' | 'z')) => {
                self.next();
                self.out.extend(['\\', ch]);
            }
            Some(ch @ ('b' | 'B')) => {
                self.next();
                // Go's word boundary is ASCII; the `regex` crate's is Unicode unless `u` is off.
                self.out.extend(["(?-u:\\", if ch == 'b' { "b" } else { "B" }, ")"]);
            }
            Some('Q') => {
                self.next();
                // Without `\E` the quotation extends to the end of the pattern.
                let (plain, length) = match self.rest().split_once("\\E") {
                    Some((plain, _)) => (plain, plain.len() + 2),
                    None => (self.rest(), self.rest().len()),
                };
                plain.chars().for_each(|ch| self.literal(ch));
                self.at += length;
            }
            _ => match self.perl_class(start)? {
                Some(class) => self.out.push_str(&class),
                None => {
                    let ch = self.escaped(start)?;
                    self.literal(ch);
                }
            },
        }
        Ok(())
    }

    /// Translates `d`, `W`, `pL` and the like after a backslash to a class that can also be nested in another class.
    /// `None` if the next character is not such an escape.
    fn perl_class(&mut self, start: usize) -> Result<Option<String>, PatternError> {
        let Some(ch) = self.peek() else { return Ok(None) };
        let class = match ch {
            'd' => "[0-9]",
            'D' => "[^0-9]",
            's' => "[\\t\\n\\x0C\\r ]",
            'S' => "[^\\t\\n\\x0C\\r ]",
            'w' => "[0-9A-Za-z_]",
            'W' => "[^0-9A-Za-z_]",
            'p' | 'P' => return self.unicode_class(start, ch == 'P').map(Some),
            _ => return Ok(None),
        };
        self.next();
        Ok(Some(class.to_owned()))
    }

    fn unicode_class(&mut self, start: usize, negated: bool) -> Result<String, PatternError> {
        const WHAT: &str = "an invalid Unicode class";
        self.next();
        // `\pL` or `\p{Greek}`.
        let name = match self.next() {
            Some('{') => {
                let Some((name, _)) = self.rest().split_once('}') else { return self.mistake(start, WHAT) };
                self.at += name.len() + 1;
                name
            }
            Some(ch) => &self.source[self.at - ch.len_utf8()..self.at],
            None => return self.mistake(start, WHAT),
        };
        // `\p{^Greek}` negates once more.
        let (name, negated) = match name.strip_prefix('^') {
            Some(name) => (name, !negated),
            None => (name, negated),
        };
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return self.mistake(start, WHAT);
        }
        self.class_characters += if negated || is_huge(name) { CHARACTERS } else { LARGEST_CLASS };
        Ok(format!("\\{}{{{name}}}", if negated { 'P' } else { 'p' }))
    }

    /// Returns the character that an escape denotes. The backslash is already consumed.
    fn escaped(&mut self, start: usize) -> Result<char, PatternError> {
        const WHAT: &str = "an invalid escape";
        let octal = |ch: char| ('0'..='7').contains(&ch);
        let code = match self.next() {
            Some('a') => 7,
            Some('f') => 12,
            Some('n') => 10,
            Some('r') => 13,
            Some('t') => 9,
            Some('v') => 11,
            // Go reads `\1` to `\7` as octal only if a second octal digit follows.
            Some('1'..='7') if !self.peek().is_some_and(octal) => {
                return self.mistake(start, "an unsupported backreference");
            }
            Some(first @ '0'..='7') => {
                let more = self.rest().chars().take(2).take_while(|&ch| octal(ch)).count();
                let digits = &self.source[self.at - first.len_utf8()..self.at + more];
                self.at += more;
                u32::from_str_radix(digits, 8).expect("three octal digits at most")
            }
            Some('x') => {
                let digits = match self.take("{") {
                    true => self.rest().split_once('}').map(|(digits, _)| (digits, digits.len() + 1)),
                    false => self.rest().get(..2).map(|digits| (digits, 2)),
                };
                let hex = digits.filter(|(digits, _)| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
                let Some((digits, length)) = hex else { return self.mistake(start, WHAT) };
                self.at += length;
                let Ok(code) = u32::from_str_radix(digits, 16) else { return self.mistake(start, WHAT) };
                code
            }
            // Any escaped ASCII punctuation is literal; an escaped letter or digit must have a meaning.
            Some(ch) if ch.is_ascii() && !ch.is_ascii_alphanumeric() => u32::from(ch),
            _ => return self.mistake(start, WHAT),
        };
        match char::from_u32(code) {
            Some(ch) => Ok(ch),
            None => self.mistake(start, WHAT),
        }
    }

    /// Translates a class. The `[` is already consumed.
    fn class(&mut self, start: usize) -> Result<(), PatternError> {
        self.out.push('[');
        if self.take("^") {
            self.out.push('^');
        }
        let mut first = true;
        // A `]` directly after `[` or `[^` is a member, not the end.
        while first || !self.take("]") {
            first = false;
            if self.rest().starts_with("[:") && self.posix_class()? {
                continue;
            }
            let at = self.at;
            if self.take("\\") {
                if let Some(class) = self.perl_class(at)? {
                    self.class_characters += if class.starts_with("[^") { CHARACTERS } else { 0 };
                    self.out.push_str(&class);
                    continue;
                }
                // Not a nested class: `member` reads the escape again, from its backslash.
                self.at = at;
            }
            let Some(low) = self.member()? else { return self.mistake(start, "an unclosed character class") };
            self.literal(low);
            // A `-` before `]`, or as the last character, is a member, not a range.
            if self.rest().starts_with('-') && self.rest().len() > 1 && !self.rest().starts_with("-]") {
                self.next();
                let Some(high) = self.member()? else { return self.mistake(start, "an unclosed character class") };
                if high < low {
                    return self.mistake(at, "a descending range");
                }
                self.class_characters += (high as usize) - (low as usize);
                self.out.push('-');
                self.literal(high);
            }
        }
        self.out.push(']');
        Ok(())
    }

    /// Consumes one member of a class; `None` at the end of the pattern.
    fn member(&mut self) -> Result<Option<char>, PatternError> {
        let start = self.at;
        match self.next() {
            Some('\\') => self.escaped(start).map(Some),
            ch => Ok(ch),
        }
    }

    /// Copies `[:alpha:]` and the like. Returns false for a literal `[`.
    fn posix_class(&mut self) -> Result<bool, PatternError> {
        const NAMES: &[&str] = &[
            "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper",
            "word", "xdigit",
        ];
        let Some((name, _)) = self.rest()[2..].split_once(":]") else { return Ok(false) };
        if !NAMES.contains(&name.strip_prefix('^').unwrap_or(name)) {
            return self.mistake(self.at, "an unknown class name");
        }
        self.class_characters += if name.starts_with('^') { CHARACTERS } else { 0 };
        let length = name.len() + 4;
        self.out.push_str(&self.rest()[..length]);
        self.at += length;
        Ok(true)
    }

    /// Translates the start of a group. The `(` is already consumed.
    fn group(&mut self, start: usize) -> Result<(), PatternError> {
        self.out.push('(');
        if !self.take("?") {
            self.names.push(None);
            return Ok(());
        }
        if self.take("P<") || self.take("<") {
            let name = self.rest().split_once('>').map(|(name, _)| name);
            let word =
                |name: &&str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            let Some(name) = name.filter(word) else { return self.mistake(start, "a group without a name") };
            if self.names.iter().flatten().any(|known| **known == *name) {
                return self.mistake(start, "a duplicate group name");
            }
            self.at += name.len() + 1;
            self.names.push(Some(name.into()));
            return Ok(());
        }
        // Only flags remain: `(?i)` or `(?i:`. Go has no lookaround and no `x` flag.
        let flags = self.rest().split([':', ')']).next().unwrap_or_default();
        if flags.len() == self.rest().len() || !flags.bytes().all(|byte| b"imsU-".contains(&byte)) {
            return self.mistake(start, "an unknown group type");
        }
        self.folds |= flags.contains('i');
        self.out.push('?');
        self.out.push_str(flags);
        self.at += flags.len();
        let end = self.next();
        self.out.extend(end);
        Ok(())
    }

    /// Appends a character so that it is literal both inside and outside of a class.
    fn literal(&mut self, ch: char) {
        if ch.is_ascii_alphanumeric() || !ch.is_ascii() {
            self.out.push(ch);
        } else {
            self.out.push_str(&format!("\\x{:02X}", u32::from(ch)));
        }
    }
}
