//! The variables for `{$NAME}` in a Caddyfile: those of the process, then those of `--envfile`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use causeway::server::data_directory_in;

use super::VERSION;

/// Variables from environment files. Variables of the process take precedence, as in Caddy.
#[derive(Debug, Default)]
pub(super) struct EnvironmentFiles(BTreeMap<String, String>);

impl EnvironmentFiles {
    /// Reads the files in order. When several set a variable, the first wins, as in Caddy.
    pub(super) fn read(files: &[PathBuf]) -> anyhow::Result<Self> {
        let mut all = BTreeMap::new();
        for file in files {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("{}: reading the environment file", file.display()))?;
            for (name, value) in parse(&text).with_context(|| file.display().to_string())? {
                all.entry(name).or_insert(value);
            }
        }
        Ok(Self(all))
    }

    /// Returns a variable's value, from the process or from the files.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        std::env::var(name).ok().or_else(|| self.0.get(name).cloned())
    }
}

/// Prints the variables of this process and of the files, for `--environ` and `environ`.
pub(super) fn print(files: &[PathBuf]) -> anyhow::Result<()> {
    let mut lines = vec![format!("causeway.Version={VERSION}")];
    let of_files = EnvironmentFiles::read(files)?;
    lines.push(format!("causeway.AppDataDir={}", data_directory_in(&|name| of_files.get(name)).display()));
    if let Ok(directory) = std::env::current_dir() {
        lines.push(format!("os.Getwd={}", directory.display()));
    }
    lines.push(String::new());
    let of_files = of_files.0.into_iter().map(|(name, value)| (name.into(), value.into()));
    let mut variables: BTreeMap<OsString, OsString> = of_files.collect();
    // Inserted last: the process's variables override those of files.
    variables.extend(std::env::vars_os());
    for (name, value) in variables {
        lines.push(format!("{}={}", name.display(), value.display()));
    }
    super::output::print(&lines.join("\n"))
}

/// Parses an environment file by Caddy's rules: one `NAME=value` per line, an optional `export ` prefix, `#` comments.
/// A quoted value may span lines.
fn parse(text: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let mut variables = BTreeMap::new();
    // DEVIATES Caddy, where an editor's byte order mark belongs to the first name, which is then not found.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let (number, line) = (index + 1, line.trim());
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((name, value)) = line.split_once('=') else {
            bail!("line {number}: found '{line}', expected NAME=value");
        };
        let name = name.strip_prefix("export ").unwrap_or(name);
        if name.is_empty() || name.contains(char::is_whitespace) {
            bail!("line {number}: found '{name}', expected a name without spaces before '='");
        }
        if value.starts_with([' ', '\t']) {
            bail!("line {number}: found a space after '=', expected the value of {name}");
        }
        let value = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => {
                let rest = &mut lines;
                quoted(&value[1..], quote, rest.map(|(_, line)| line))
                    .with_context(|| format!("line {number}: the value of {name} has no closing {quote}"))?
            }
            _ => value.split('#').next().unwrap_or_default().trim_end().to_owned(),
        };
        variables.insert(name.to_owned(), value);
    }
    Ok(variables)
}

/// Returns a value up to its closing quote, reading more lines as needed; `None` when it is never closed. As in Caddy,
/// only a value of several lines has escaped quotes; on one line a backslash is a part of the value.
fn quoted<'t>(first: &'t str, quote: char, rest: impl Iterator<Item = &'t str>) -> Option<String> {
    let mut value = Vec::new();
    for line in std::iter::once(first).chain(rest) {
        let end = closing(line, quote);
        value.push(&line[..end.unwrap_or(line.len())]);
        if end.is_some() {
            return Some(match &*value {
                [line] => (*line).to_owned(),
                lines => lines.join("\n").replace(&format!("\\{quote}"), &quote.to_string()),
            });
        }
    }
    None
}

/// Returns the place of the closing quote in a line: it ends the line, or a comment follows. A backslash before a quote
/// escapes it, and other quotes are a part of the value.
fn closing(line: &str, quote: char) -> Option<usize> {
    // DEVIATES Caddy, which removes a comment before it looks for quotes: there `A="x # y"` is `x`, and `A="x" # note`
    // goes on in the next lines until one ends with a quote. Here both are as a shell reads them.
    let is_closing = |at: &usize| {
        let after = line[at + 1..].trim_start();
        !line[..*at].ends_with('\\') && (after.is_empty() || after.starts_with('#'))
    };
    line.match_indices(quote).map(|(at, _)| at).find(is_closing)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn variables_of_a_file() {
        for (text, want) in [
            ("A=1\nB=two words\n", &[("A", "1"), ("B", "two words")][..]),
            ("# note\n\n  export A=1 # of one\n", &[("A", "1")]),
            ("A=\nB=a=b", &[("A", ""), ("B", "a=b")]),
            ("\u{feff}A=1\r\nB=2\r\n", &[("A", "1"), ("B", "2")]),
            ("A=\"x # y\"\nB='it' # it", &[("A", "x # y"), ("B", "it")]),
            ("A=\"one\ntwo \\\"2\\\"\"\nB=3", &[("A", "one\ntwo \"2\""), ("B", "3")]),
            // cmd/main.go, parseEnvFile: quotes within a value need no backslash, and on one line a backslash stays.
            (r#"A="a\"b""#, &[("A", r#"a\"b"#)]),
            ("A='it's'", &[("A", "it's")]),
            ("A=\"a\"b\"", &[("A", "a\"b")]),
            ("A=\"\"\nB='' # 'none'", &[("A", ""), ("B", "")]),
            ("A=\"one \"1\"x\ntwo\"", &[("A", "one \"1\"x\ntwo")]),
        ] {
            let got = parse(text).unwrap_or_else(|error| panic!("{text:?}: {error:#}"));
            let got: Vec<_> = got.iter().map(|(name, value)| (&**name, &**value)).collect();
            assert_eq!(got, want, "{text:?}");
        }
    }

    #[test]
    fn mistakes_name_their_line() {
        for (text, want) in [
            ("A=1\nB\n", "line 2: found 'B', expected NAME=value"),
            ("=1", "line 1: found '', expected a name without spaces before '='"),
            ("A B=1", "line 1: found 'A B', expected a name without spaces before '='"),
            ("\nA= 1", "line 2: found a space after '=', expected the value of A"),
            ("A=\"1\nB=2", "line 1: the value of A has no closing \""),
            ("A=\"1\"2", "line 1: the value of A has no closing \""),
        ] {
            let got = parse(text).map_err(|error| format!("{error:#}"));
            assert_eq!(got.err().as_deref(), Some(want), "{text:?}");
        }
    }
}
