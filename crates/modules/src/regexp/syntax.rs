//! From Go's syntax (package regexp/syntax, which is RE2's) to that of the `regex` crate.
//!
//! They are nearly one. What Go means otherwise is written out: `\d`, `\w`, `\s`, `\b` are ASCII; `\<` is a plain `<`; in a
//! class `[`, `&&`, `--` and `~~` are plain too; `\Q…\E` and octal escapes exist; `{` that begins no count is plain; counts
//! end at 1000; one repetition does not follow another.

use std::fmt;

/// Counts that Go allows.
const COUNT_MAX: u32 = 1000;

#[derive(Debug)]
pub(super) struct Translated {
    pub(super) pattern: String,
    /// The names of the groups, the whole match first. The pattern itself names none.
    pub(super) names: Vec<Option<Box<str>>>,
}

/// What Go refuses, and where: counted in characters, from 1.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    at: usize,
    what: &'static str,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at character {}", self.what, self.at)
    }
}

pub(super) fn translate(go: &str) -> Result<Translated, Mistake> {
    let mut work = Translation { source: go, at: 0, out: String::with_capacity(go.len()), names: vec![None] };
    work.whole()?;
    Ok(Translated { pattern: work.out, names: work.names })
}

struct Translation<'g> {
    source: &'g str,
    /// Octets that were read.
    at: usize,
    out: String,
    names: Vec<Option<Box<str>>>,
}

impl<'g> Translation<'g> {
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

    fn take(&mut self, text: &str) -> bool {
        let taken = self.rest().starts_with(text);
        self.at += if taken { text.len() } else { 0 };
        taken
    }

    fn mistake<T>(&self, at: usize, what: &'static str) -> Result<T, Mistake> {
        Err(Mistake { at: self.source[..at].chars().count() + 1, what })
    }

    fn whole(&mut self) -> Result<(), Mistake> {
        let mut repeated = false;
        while let Some(ch) = self.peek() {
            let start = self.at;
            if let Some(length) = self.repetition()? {
                if repeated {
                    return self.mistake(start, "a repetition of a repetition");
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
            self.next();
            match ch {
                '\\' => self.escape(start)?,
                '[' => self.class(start)?,
                '(' => self.group(start)?,
                '.' | '^' | '$' | '|' | ')' => self.out.push(ch),
                _ => self.literal(ch),
            }
        }
        Ok(())
    }

    /// The length of the repetition that comes next, a `?` that makes it lazy not counted.
    fn repetition(&self) -> Result<Option<usize>, Mistake> {
        let rest = self.rest();
        if rest.starts_with(['*', '+', '?']) {
            return Ok(Some(1));
        }
        let Some((counts, _)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) else { return Ok(None) };
        let (least, most) = match counts.split_once(',') {
            None => (counts, None),
            Some((least, most)) => (least, Some(most)),
        };
        let is_count = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|octet| octet.is_ascii_digit());
            digits && (text == "0" || !text.starts_with('0'))
        };
        if !is_count(least) || !most.is_none_or(|most| most.is_empty() || is_count(most)) {
            return Ok(None);
        }
        let value = |text: &str| text.parse::<u32>().ok().filter(|count| *count <= COUNT_MAX);
        let good = match (value(least), most.filter(|most| !most.is_empty()).map(value)) {
            (Some(_), None) => true,
            (Some(least), Some(Some(most))) => least <= most,
            _ => false,
        };
        if !good {
            return self.mistake(self.at, "a count that is above 1000 or goes down");
        }
        Ok(Some(counts.len() + 2))
    }

    /// Behind a backslash, outside of a class.
    fn escape(&mut self, start: usize) -> Result<(), Mistake> {
        match self.peek() {
            Some(ch @ ('A' | 'z')) => {
                self.next();
                self.out.extend(['\\', ch]);
            }
            Some(ch @ ('b' | 'B')) => {
                self.next();
                self.out.extend(["(?-u:\\", if ch == 'b' { "b" } else { "B" }, ")"]);
            }
            Some('Q') => {
                self.next();
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

    /// Behind a backslash: `d`, `W`, `pL` and the like, as a class that may stand in another one.
    fn perl_class(&mut self, start: usize) -> Result<Option<String>, Mistake> {
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

    fn unicode_class(&mut self, start: usize, negated: bool) -> Result<String, Mistake> {
        const WHAT: &str = "a Unicode class that is none";
        self.next();
        let name = match self.next() {
            Some('{') => {
                let Some((name, _)) = self.rest().split_once('}') else { return self.mistake(start, WHAT) };
                self.at += name.len() + 1;
                name
            }
            Some(ch) => &self.source[self.at - ch.len_utf8()..self.at],
            None => return self.mistake(start, WHAT),
        };
        let (name, negated) = match name.strip_prefix('^') {
            Some(name) => (name, !negated),
            None => (name, negated),
        };
        if name.is_empty() || !name.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'_') {
            return self.mistake(start, WHAT);
        }
        Ok(format!("\\{}{{{name}}}", if negated { 'P' } else { 'p' }))
    }

    /// Behind a backslash: the one character that is meant.
    fn escaped(&mut self, start: usize) -> Result<char, Mistake> {
        const WHAT: &str = "an escape that is none";
        let octal = |ch: char| ('0'..='7').contains(&ch);
        let code = match self.next() {
            Some('a') => 7,
            Some('f') => 12,
            Some('n') => 10,
            Some('r') => 13,
            Some('t') => 9,
            Some('v') => 11,
            Some('1'..='7') if !self.peek().is_some_and(octal) => {
                return self.mistake(start, "a reference to a group, which regular expressions here do not have");
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
                let hex = digits.filter(|(digits, _)| digits.bytes().all(|octet| octet.is_ascii_hexdigit()));
                let Some((digits, length)) = hex else { return self.mistake(start, WHAT) };
                self.at += length;
                let Ok(code) = u32::from_str_radix(digits, 16) else { return self.mistake(start, WHAT) };
                code
            }
            Some(ch) if ch.is_ascii() && !ch.is_ascii_alphanumeric() => u32::from(ch),
            _ => return self.mistake(start, WHAT),
        };
        match char::from_u32(code) {
            Some(ch) => Ok(ch),
            None => self.mistake(start, WHAT),
        }
    }

    /// Behind a `[`.
    fn class(&mut self, start: usize) -> Result<(), Mistake> {
        self.out.push('[');
        if self.take("^") {
            self.out.push('^');
        }
        let mut first = true;
        while first || !self.take("]") {
            first = false;
            if self.rest().starts_with("[:") && self.posix_class()? {
                continue;
            }
            let at = self.at;
            if self.take("\\") {
                if let Some(class) = self.perl_class(at)? {
                    self.out.push_str(&class);
                    continue;
                }
                self.at = at;
            }
            let Some(low) = self.member()? else { return self.mistake(start, "a class that is not closed") };
            self.literal(low);
            if self.rest().starts_with('-') && self.rest().len() > 1 && !self.rest().starts_with("-]") {
                self.next();
                let Some(high) = self.member()? else { return self.mistake(start, "a class that is not closed") };
                if high < low {
                    return self.mistake(at, "a range that goes down");
                }
                self.out.push('-');
                self.literal(high);
            }
        }
        self.out.push(']');
        Ok(())
    }

    fn member(&mut self) -> Result<Option<char>, Mistake> {
        let start = self.at;
        match self.next() {
            Some('\\') => self.escaped(start).map(Some),
            ch => Ok(ch),
        }
    }

    /// `[:alpha:]`; false for a plain `[`.
    fn posix_class(&mut self) -> Result<bool, Mistake> {
        const NAMES: &[&str] = &[
            "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper",
            "word", "xdigit",
        ];
        let Some((name, _)) = self.rest()[2..].split_once(":]") else { return Ok(false) };
        if !NAMES.contains(&name.strip_prefix('^').unwrap_or(name)) {
            return self.mistake(self.at, "a class of an unknown name");
        }
        let length = name.len() + 4;
        self.out.push_str(&self.rest()[..length]);
        self.at += length;
        Ok(true)
    }

    /// Behind a `(`.
    fn group(&mut self, start: usize) -> Result<(), Mistake> {
        self.out.push('(');
        if !self.take("?") {
            self.names.push(None);
            return Ok(());
        }
        if self.take("P<") || self.take("<") {
            let name = self.rest().split_once('>').map(|(name, _)| name);
            let word = |name: &&str| {
                !name.is_empty() && name.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'_')
            };
            let Some(name) = name.filter(word) else { return self.mistake(start, "a group without a name") };
            if self.names.iter().flatten().any(|known| **known == *name) {
                return self.mistake(start, "a second group of the same name");
            }
            self.at += name.len() + 1;
            self.names.push(Some(name.into()));
            return Ok(());
        }
        let flags = self.rest().split([':', ')']).next().unwrap_or_default();
        if flags.len() == self.rest().len() || !flags.bytes().all(|octet| b"imsU-".contains(&octet)) {
            return self.mistake(start, "a group of an unknown kind");
        }
        self.out.push('?');
        self.out.push_str(flags);
        self.at += flags.len();
        let end = self.next();
        self.out.extend(end);
        Ok(())
    }

    /// A character that means itself wherever it stands.
    fn literal(&mut self, ch: char) {
        if ch.is_ascii_alphanumeric() || !ch.is_ascii() {
            self.out.push(ch);
        } else {
            self.out.push_str(&format!("\\x{:02X}", u32::from(ch)));
        }
    }
}
