//! The file of limits: a table in TOML's syntax, of which only sections and numbers are used.

use std::fmt;

use anyhow::{Context, bail};

use super::{Count, Unit};

const HEAD: &str = "\
# The highest allowed value of each count of `cargo xtask prose`, a step of ./test. A limit may only fall:
# `cargo xtask prose --lower` rewrites those that are higher than today's counts.
# Words are per 10 000 words of the text: comments in code and in tests, and Markdown.
";

/// The limits by `section.name`, in the order of the file.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Limits(Vec<(String, Limit)>);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Limit {
    value: f64,
    /// Whether it is written with a decimal place.
    decimal: bool,
}

impl Limits {
    /// Parses the file.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let (mut limits, mut section) = (Vec::new(), "");
        for (at, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                section = name;
                continue;
            }
            let at = at + 1;
            let (name, value) =
                line.split_once('=').with_context(|| format!("limits.toml:{at}: expected name = number"))?;
            let (name, number) = (format!("{section}.{}", name.trim()), value.trim());
            let value =
                number.parse().with_context(|| format!("limits.toml:{at}: expected a number, found {number}"))?;
            if limits.iter().any(|(known, _)| *known == name) {
                bail!("limits.toml:{at}: {name} has two limits");
            }
            limits.push((name, Limit { value, decimal: number.contains('.') }));
        }
        Ok(Self(limits))
    }

    pub(super) fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, limit)| limit.value)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the limits of today's counts, but none that is higher than before.
    pub(super) fn lowered(&self, counts: &[Count]) -> Self {
        let limit = |count: &Count| {
            let value = self.get(&count.name).map_or(count.limit(), |before| before.min(count.limit()));
            (count.name.clone(), Limit { value, decimal: count.unit != Unit::Number })
        };
        Self(counts.iter().map(limit).collect())
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEAD)?;
        let mut open = "";
        for (name, Limit { value, decimal }) in &self.0 {
            let (section, name) = name.split_once('.').unwrap_or(("", name));
            if section != open {
                open = section;
                writeln!(f, "\n[{section}]")?;
            }
            let places = usize::from(*decimal);
            writeln!(f, "{name} = {value:.places$}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(name: &str, value: f64, unit: Unit) -> Count {
        Count { name: name.to_owned(), value, unit, places: Vec::new() }
    }

    #[test]
    fn limits_only_fall() {
        let before = Limits::parse("[code]\nwhat = 1.5 # a comment\nwho = 0.2\n[types]\nrepeated = 7\n").unwrap();
        let counts = [
            count("code.what", 1.61, Unit::Rate),
            count("code.who", 0.11, Unit::Rate),
            count("types.repeated", 6.0, Unit::Number),
            count("types.new", 3.0, Unit::Number),
        ];
        let after = before.lowered(&counts);
        let expected = [("code.what", 1.5), ("code.who", 0.2), ("types.repeated", 6.0), ("types.new", 3.0)];
        for (name, value) in expected {
            assert_eq!(after.get(name), Some(value), "{name}");
        }
        let text = after.to_string();
        assert_eq!(Limits::parse(&text).unwrap(), after);
        assert!(text.ends_with("\n\n[code]\nwhat = 1.5\nwho = 0.2\n\n[types]\nrepeated = 6\nnew = 3\n"), "{text}");
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, expected) in [
            ("\nwhat", "limits.toml:2: expected name = number"),
            ("what = much", "limits.toml:1: expected a number, found much"),
            ("[a]\nb = 1\nb = 2", "limits.toml:3: a.b has two limits"),
        ] {
            assert_eq!(Limits::parse(text).unwrap_err().to_string(), expected);
        }
    }
}
