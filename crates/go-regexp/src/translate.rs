//! Translates Go's regular expression syntax (package regexp/syntax, which is RE2's) to that of the `regex` crate.
//!
//! The two syntaxes are nearly equal. The translation rewrites the differences: in Go `\d`, `\w`, `\s` and `\b` are
//! ASCII; `\<` is a literal `<`; inside a class `[`, `&&`, `--` and `~~` are literal too; `\Q…\E` and octal escapes
//! exist; a `{` that does not begin a count is literal; counts end at 1000; a repetition cannot follow a repetition.

use std::collections::HashSet;
use std::fmt;
use std::ops::RangeInclusive;

/// The largest repetition count that Go accepts.
const COUNT_MAX: u32 = 1000;

/// All characters of Unicode, and those of its largest class of letters, rounded up.
const CHARACTERS: usize = 0x11_0000;
const LARGEST_CLASS: usize = 150_000;

/// The surrogates are no characters. In Go they can be written, and match nothing.
const SURROGATES: RangeInclusive<u32> = 0xD800..=0xDFFF;

/// A class without characters, also as a member of another class.
const NOTHING: &str = "[a&&b]";

/// Returns whether a Unicode class is larger than [`LARGEST_CLASS`], for example because it has the unassigned code
/// points. The crate ignores case, underscores and `is` at the start.
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
    /// The characters whose case the crate must look up: those of all ranges and Unicode classes, if the pattern has
    /// the flag `i`, an estimate from above. It takes some ten nanoseconds for each, within any `size_limit`.
    pub folded_characters: usize,
}

/// A syntax error, and its position: a 1-based index in characters.
#[derive(Debug, PartialEq, Eq)]
pub struct PatternError {
    at: usize,
    message: &'static str,
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at character {}", self.message, self.at)
    }
}

/// Returns the reason in an error of the crates `regex` and `regex-syntax`: the last line of its message, after a
/// drawing of the position.
#[must_use]
pub fn error_reason(error: impl fmt::Display) -> String {
    error.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// Translates a pattern, in a time proportional to its length. The crate may still refuse the result, for example for
/// an unbalanced parenthesis.
///
/// # Errors
/// If the crate would read the pattern in another way than Go, and Go refuses it.
pub fn translate(go: &str) -> Result<Translated, PatternError> {
    let mut translation = Translation {
        source: go,
        at: 0,
        out: String::with_capacity(go.len()),
        names: vec![None],
        known_names: HashSet::new(),
        has_class_names: true,
        class_characters: 0,
        folds: false,
    };
    translation.translate()?;
    let folded_characters = if translation.folds { translation.class_characters } else { 0 };
    Ok(Translated { pattern: translation.out, names: translation.names, folded_characters })
}

struct Translation<'g> {
    source: &'g str,
    /// Number of bytes consumed.
    at: usize,
    out: String,
    names: Vec<Option<Box<str>>>,
    known_names: HashSet<&'g str>,
    /// False if the unread part is known to be without `:]`, so that no second search is needed.
    has_class_names: bool,
    class_characters: usize,
    /// The flag `i` was read.
    folds: bool,
}

/// The construct that begins with `(`.
enum Group {
    /// An opening parenthesis, translated.
    Open(String),
    /// Flags for the rest of the group around them, translated. Go allows `(?)`, which changes none.
    Flags(String),
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
    fn mistake<T>(&self, at: usize, message: &'static str) -> Result<T, PatternError> {
        Err(PatternError { at: self.source[..at].chars().count() + 1, message })
    }

    fn translate(&mut self) -> Result<(), PatternError> {
        let mut repeated = false;
        // The largest product of nested counts in the last atom, and in each open group.
        let (mut atom, mut groups) = (1, vec![1]);
        // Flags after the last atom. In Go a repetition after them still repeats the atom, and the crate refuses it.
        let mut flags = String::new();
        while let Some(ch) = self.peek() {
            let start = self.at;
            if let Some((length, count)) = self.repetition()? {
                // The `regex` crate accepts `a**`; Go rejects it.
                if repeated {
                    return self.mistake(start, "a repetition operator after a repetition");
                }
                // DEVIATES Go: there this flag changes how the repetition matches.
                if flags.contains('U') {
                    return self.mistake(start, "a repetition operator after the flag U");
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
                self.out.push_str(&std::mem::take(&mut flags));
                repeated = true;
                continue;
            }
            self.next();
            if ch == '(' {
                match self.group(start)? {
                    // DEVIATES Go: `a*(?i)*` is refused, for without the flags it would have another meaning in the
                    // crate.
                    Group::Flags(more) => flags.push_str(&more),
                    Group::Open(opening) => {
                        self.out.push_str(&std::mem::take(&mut flags));
                        self.out.push_str(&opening);
                        (repeated, atom) = (false, 1);
                        groups.push(1);
                    }
                }
                continue;
            }
            self.out.push_str(&std::mem::take(&mut flags));
            (repeated, atom) = (false, 1);
            match ch {
                '\\' => self.escape(start)?,
                '[' => self.class(start)?,
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
        self.out.push_str(&flags);
        Ok(())
    }

    /// Returns the length in bytes of the repetition at the current position, without a trailing `?`, and its largest
    /// count, which is 1 without counts. `None` if there is none.
    fn repetition(&self) -> Result<Option<(usize, u32)>, PatternError> {
        let rest = self.rest();
        if rest.starts_with(['*', '+', '?']) {
            return Ok(Some((1, 1)));
        }
        let Some(rest) = rest.strip_prefix('{') else { return Ok(None) };
        // Only to the end of the counts: a search for `}` from each `{` would be quadratic.
        let length = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b',').count();
        let (counts, rest) = rest.split_at(length);
        if !rest.starts_with('}') {
            return Ok(None);
        }
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
                None => match char::from_u32(self.escaped(start)?) {
                    Some(ch) => self.literal(ch),
                    None => self.out.push_str(NOTHING),
                },
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
        const MESSAGE: &str = "an invalid Unicode class";
        self.next();
        // `\pL` or `\p{Greek}`.
        let name = match self.next() {
            Some('{') => {
                let Some((name, _)) = self.rest().split_once('}') else { return self.mistake(start, MESSAGE) };
                self.at += name.len() + 1;
                name
            }
            Some(ch) => &self.source[self.at - ch.len_utf8()..self.at],
            None => return self.mistake(start, MESSAGE),
        };
        // `\p{^Greek}` negates once more.
        let (name, negated) = match name.strip_prefix('^') {
            Some(name) => (name, !negated),
            None => (name, negated),
        };
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return self.mistake(start, MESSAGE);
        }
        self.class_characters += if negated || is_huge(name) { CHARACTERS } else { LARGEST_CLASS };
        Ok(format!("\\{}{{{name}}}", if negated { 'P' } else { 'p' }))
    }

    /// Returns the character that an escape denotes, or a surrogate. The backslash is already consumed.
    fn escaped(&mut self, start: usize) -> Result<u32, PatternError> {
        const MESSAGE: &str = "an invalid escape";
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
                let Some((digits, length)) = hex else { return self.mistake(start, MESSAGE) };
                self.at += length;
                let Ok(code) = u32::from_str_radix(digits, 16) else { return self.mistake(start, MESSAGE) };
                code
            }
            // Any escaped ASCII punctuation is literal; an escaped letter or digit must have a meaning.
            Some(ch) if ch.is_ascii() && !ch.is_ascii_alphanumeric() => u32::from(ch),
            _ => return self.mistake(start, MESSAGE),
        };
        if code > u32::from(char::MAX) { self.mistake(start, MESSAGE) } else { Ok(code) }
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
            let mut high = low;
            // A `-` before `]`, or as the last character, is a member, not a range.
            if self.rest().starts_with('-') && self.rest().len() > 1 && !self.rest().starts_with("-]") {
                self.next();
                high = match self.member()? {
                    Some(high) => high,
                    None => return self.mistake(start, "an unclosed character class"),
                };
                if high < low {
                    return self.mistake(at, "a descending range");
                }
                self.class_characters += (high as usize) - (low as usize);
            }
            self.range(low, high);
        }
        self.out.push(']');
        Ok(())
    }

    /// Consumes one member of a class, a character or a surrogate; `None` at the end of the pattern.
    fn member(&mut self) -> Result<Option<u32>, PatternError> {
        let start = self.at;
        match self.next() {
            Some('\\') => self.escaped(start).map(Some),
            ch => Ok(ch.map(u32::from)),
        }
    }

    /// Appends a range within a class, without the surrogates at its ends.
    fn range(&mut self, low: u32, high: u32) {
        let low = if SURROGATES.contains(&low) { SURROGATES.end() + 1 } else { low };
        let high = if SURROGATES.contains(&high) { SURROGATES.start() - 1 } else { high };
        match (char::from_u32(low), char::from_u32(high)) {
            (Some(low), Some(high)) if low <= high => {
                self.literal(low);
                if low < high {
                    self.out.push('-');
                    self.literal(high);
                }
            }
            _ => self.out.push_str(NOTHING),
        }
    }

    /// Copies `[:alpha:]` and the like. Returns false for a literal `[`.
    fn posix_class(&mut self) -> Result<bool, PatternError> {
        const NAMES: &[&str] = &[
            "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper",
            "word", "xdigit",
        ];
        let name = self.has_class_names.then(|| self.rest()[2..].split_once(":]")).flatten();
        let Some((name, _)) = name else {
            self.has_class_names = false;
            return Ok(false);
        };
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
    fn group(&mut self, start: usize) -> Result<Group, PatternError> {
        if !self.take("?") {
            self.names.push(None);
            return Ok(Group::Open("(".to_owned()));
        }
        if self.take("P<") || self.take("<") {
            let name = self.rest().split_once('>').map(|(name, _)| name);
            let word =
                |name: &&str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            let Some(name) = name.filter(word) else { return self.mistake(start, "an invalid group name") };
            if !self.known_names.insert(name) {
                return self.mistake(start, "a duplicate group name");
            }
            self.at += name.len() + 1;
            self.names.push(Some(name.into()));
            return Ok(Group::Open("(".to_owned()));
        }
        // Only flags remain: `(?i)` or `(?i:`. Go has no lookaround and no `x` flag. The crate refuses a flag that is
        // there twice; in Go the last one counts.
        let (mut on, mut off, mut is_off) = (String::new(), String::new(), false);
        loop {
            match self.next() {
                Some(flag @ ('i' | 'm' | 's' | 'U')) => {
                    self.folds |= flag == 'i';
                    let flags = if is_off { &mut off } else { &mut on };
                    if !flags.contains(flag) {
                        flags.push(flag);
                    }
                }
                Some('-') if !is_off => is_off = true,
                Some(end @ (':' | ')')) if !is_off || !off.is_empty() => {
                    on.retain(|flag| !off.contains(flag));
                    let minus = if off.is_empty() { "" } else { "-" };
                    return Ok(match (end, on.is_empty() && off.is_empty()) {
                        (':', _) => Group::Open(format!("(?{on}{minus}{off}:")),
                        (_, true) => Group::Flags(String::new()),
                        (_, false) => Group::Flags(format!("(?{on}{minus}{off})")),
                    });
                }
                _ => return self.mistake(start, "an unknown group type"),
            }
        }
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
