//! Which directives does a configuration consist of? Splits nginx's text into words and blocks, and reads included
//! files.

use std::fmt;
use std::sync::Arc;

use crate::standard;

/// Nesting of blocks beyond which a file is refused.
const BLOCK_DEPTH_MAX: usize = 64;
/// Nesting of `include` beyond which a file is refused; a cycle reaches it.
const INCLUDE_DEPTH_MAX: usize = 16;
/// Directives, blocks and comments in all files together beyond which a configuration is refused. A file that is
/// included twice counts twice.
const DIRECTIVES_MAX: usize = 1_000_000;

/// Reads the files that a configuration names.
pub trait Files {
    /// Returns the content of a file, or a reason why there is none.
    ///
    /// # Errors
    /// Returns the reason as text for the operator.
    fn read(&self, path: &str) -> Result<String, String>;

    /// Returns the paths that match a pattern with `*`, `?` and `[…]`, sorted. No match is an empty list.
    fn glob(&self, pattern: &str) -> Vec<String>;
}

/// The place of a directive's name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The file, as messages show it.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A directive, or a comment, which has the name `#`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Directive {
    pub(crate) name: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) block: Option<Vec<Directive>>,
    pub(crate) place: Place,
}

impl Directive {
    pub(crate) fn argument(&self, index: usize) -> &str {
        self.arguments.get(index).map_or("", String::as_str)
    }

    pub(crate) fn block(&self) -> &[Directive] {
        self.block.as_deref().unwrap_or_default()
    }

    /// The directive as one line, without its block.
    pub(crate) fn text(&self) -> String {
        let words: Vec<&str> = std::iter::once(&self.name).chain(&self.arguments).map(String::as_str).collect();
        let text = words.join(" ").replace(['\n', '\r'], " ");
        if self.block.is_some() { format!("{text} {{…}}") } else { text }
    }
}

/// A text that nginx would refuse too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    /// The place.
    pub place: Place,
    /// The text found, and the text expected.
    pub message: String,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

impl std::error::Error for SyntaxError {}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Lexeme {
    Word(String),
    Comment(String),
    Open,
    Close,
    Semicolon,
}

/// Parses a configuration with all files that it includes. Relative paths of `include` are relative to the directory of
/// `name`, or else to the one around it. A file of nginx's packages that is absent has its standard content.
pub(crate) fn parse(text: &str, name: &str, files: &dyn Files) -> Result<Vec<Directive>, SyntaxError> {
    let mut parser = Parser { files, directory: directory_of(name).to_owned(), count: 0 };
    parser.file(text, name, 0)
}

fn directory_of(name: &str) -> &str {
    name.rfind('/').map_or("", |end| &name[..=end])
}

struct Parser<'a> {
    files: &'a dyn Files,
    directory: String,
    count: usize,
}

impl Parser<'_> {
    fn file(&mut self, text: &str, name: &str, depth: usize) -> Result<Vec<Directive>, SyntaxError> {
        let file: Arc<str> = name.into();
        let lexemes = lex(text, &file)?;
        let last = lexemes.last().map_or(1, |(line, _)| *line);
        let mut stack: Vec<Vec<Directive>> = vec![Vec::new()];
        let mut words: Vec<(u32, String)> = Vec::new();
        for (line, lexeme) in lexemes {
            let error = |message: String| SyntaxError { place: Place { file: Arc::clone(&file), line }, message };
            match lexeme {
                Lexeme::Word(word) => words.push((line, word)),
                Lexeme::Comment(text) => {
                    // One within a directive has no place of its own in the translation.
                    if words.is_empty() {
                        let place = Place { file: Arc::clone(&file), line };
                        let comment = Directive { name: "#".into(), arguments: vec![text], block: None, place };
                        self.push(&mut stack, comment)?;
                    }
                }
                Lexeme::Semicolon | Lexeme::Open if words.is_empty() => {
                    let found = if lexeme == Lexeme::Open { "{" } else { ";" };
                    return Err(error(format!("found '{found}', expected the name of a directive")));
                }
                Lexeme::Semicolon => {
                    let directive = directive_of(&mut words, &file);
                    if directive.name == "include" {
                        self.count(&directive)?;
                        let included = self.include(&directive, depth)?;
                        if let Some(block) = stack.last_mut() {
                            // They were counted in their own files.
                            block.extend(included);
                        }
                    } else {
                        self.push(&mut stack, directive)?;
                    }
                }
                Lexeme::Open => {
                    if stack.len() > BLOCK_DEPTH_MAX {
                        return Err(error(format!("found more than {BLOCK_DEPTH_MAX} blocks within each other")));
                    }
                    let directive = directive_of(&mut words, &file);
                    self.push(&mut stack, directive)?;
                    stack.push(Vec::new());
                }
                Lexeme::Close => {
                    if let Some((line, word)) = words.first() {
                        let place = Place { file: Arc::clone(&file), line: *line };
                        let message = format!("found '}}' after '{word}', expected ';' at the end of the directive");
                        return Err(SyntaxError { place, message });
                    }
                    let block = stack.pop().unwrap_or_default();
                    let owner = stack.last_mut().and_then(|outer| outer.last_mut());
                    let Some(owner) = owner else {
                        return Err(error("found '}', expected a directive: no block is open".into()));
                    };
                    owner.block = Some(block);
                }
            }
        }
        if let Some((line, word)) = words.first() {
            let place = Place { file, line: *line };
            let message = format!("found the end of the file after '{word}', expected ';' or '{{'");
            return Err(SyntaxError { place, message });
        }
        if stack.len() > 1 {
            let open = stack[stack.len() - 2].last().map(|owner| owner.place.clone());
            let place = open.unwrap_or(Place { file, line: last });
            return Err(SyntaxError { place, message: "found no '}' for this block, expected one".into() });
        }
        Ok(stack.pop().unwrap_or_default())
    }

    /// Adds a directive to the innermost block that is open.
    fn push(&mut self, stack: &mut [Vec<Directive>], directive: Directive) -> Result<(), SyntaxError> {
        self.count(&directive)?;
        if let Some(block) = stack.last_mut() {
            block.push(directive);
        }
        Ok(())
    }

    fn count(&mut self, directive: &Directive) -> Result<(), SyntaxError> {
        self.count += 1;
        if self.count > DIRECTIVES_MAX {
            let message = format!("found more than {DIRECTIVES_MAX} directives");
            return Err(SyntaxError { place: directive.place.clone(), message });
        }
        Ok(())
    }

    fn include(&mut self, directive: &Directive, depth: usize) -> Result<Vec<Directive>, SyntaxError> {
        let error = |message: String| SyntaxError { place: directive.place.clone(), message };
        let [pattern] = &*directive.arguments else {
            let count = directive.arguments.len();
            return Err(error(format!("found {count} arguments of 'include', expected 1")));
        };
        if depth >= INCLUDE_DEPTH_MAX {
            let message = format!("found more than {INCLUDE_DEPTH_MAX} files that include each other: is it a cycle?");
            return Err(error(message));
        }
        // Of a file in `sites-available`, nginx's own directory is the one around.
        let directories = match pattern.starts_with('/') {
            true => vec![""],
            false => vec![&*self.directory, directory_of(self.directory.trim_end_matches('/'))],
        };
        let places = directories.iter().map(|directory| format!("{directory}{pattern}"));
        let files = if pattern.contains(['*', '?', '[']) {
            let found = places.map(|pattern| self.files.glob(&pattern)).find(|found| !found.is_empty());
            let read = |path: String| self.files.read(&path).map(|text| (path, text));
            found.into_iter().flatten().map(read).collect::<Result<Vec<_>, _>>()
        } else {
            let mut read = places.map(|path| self.files.read(&path).map(|text| (path, text)));
            let first = read.next().expect("at least one directory");
            first.or_else(|reason| read.find_map(Result::ok).ok_or(reason)).map(|file| vec![file])
        };
        let mut included = Vec::new();
        let files = match (files, standard::content(pattern)) {
            (Err(_), Some(text)) => {
                let words = vec![format!("{pattern} is absent: it has the content of nginx's packages")];
                let place = directive.place.clone();
                included.push(Directive { name: "#".into(), arguments: words, block: None, place });
                vec![(format!("{}{pattern}", directories[0]), text.to_owned())]
            }
            (files, _) => files.map_err(|reason| error(format!("include {}{pattern}: {reason}", directories[0])))?,
        };
        for (path, text) in files {
            let mut directives = self.file(&text, &path, depth + 1)?;
            if !directives.iter().any(|directive| directive.block.is_some()) {
                // Settings for many places, such as fastcgi_params: each would repeat the comments.
                directives.retain(|directive| directive.name != "#");
            }
            included.extend(directives);
        }
        Ok(included)
    }
}

fn directive_of(words: &mut Vec<(u32, String)>, file: &Arc<str>) -> Directive {
    let line = words.first().map_or(1, |(line, _)| *line);
    let mut words = words.drain(..).map(|(_, word)| word);
    let name = words.next().unwrap_or_default();
    Directive { name, arguments: words.collect(), block: None, place: Place { file: Arc::clone(file), line } }
}

/// Splits a text as nginx does: a word ends at white space, `;` or `{`, except that `${` belongs to it; a quote begins
/// a word only at its start; a backslash keeps the next character.
fn lex(text: &str, file: &Arc<str>) -> Result<Vec<(u32, Lexeme)>, SyntaxError> {
    let mut lexemes = Vec::new();
    let mut line = 1;
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '\n' => line += 1,
            '\u{feff}' => {}
            c if c.is_ascii_whitespace() => {}
            ';' => lexemes.push((line, Lexeme::Semicolon)),
            '{' => lexemes.push((line, Lexeme::Open)),
            '}' => lexemes.push((line, Lexeme::Close)),
            '#' => {
                let mut comment = String::new();
                while let Some(c) = characters.next_if(|c| *c != '\n') {
                    comment.push(c);
                }
                lexemes.push((line, Lexeme::Comment(comment.trim().to_owned())));
            }
            '"' | '\'' => {
                let begun = line;
                let error =
                    |line, message: String| SyntaxError { place: Place { file: Arc::clone(file), line }, message };
                let mut word = String::new();
                loop {
                    match characters.next() {
                        Some(end) if end == c => break,
                        Some('\\') => escape(&mut word, characters.next(), &mut line),
                        Some(other) => {
                            line += u32::from(other == '\n');
                            word.push(other);
                        }
                        None => return Err(error(begun, format!("found no end of the text that {c} begins"))),
                    }
                }
                if characters.peek().is_some_and(|c| !c.is_ascii_whitespace() && !matches!(c, ';' | '{' | ')')) {
                    let found = characters.peek().copied().unwrap_or_default();
                    let message = format!("found '{found}' after a closing quote, expected a space, ';' or '{{'");
                    return Err(error(line, message));
                }
                lexemes.push((begun, Lexeme::Word(word)));
            }
            c => {
                let begun = line;
                let mut word = String::new();
                let mut next = Some(c);
                while let Some(c) = next {
                    if c == '\\' {
                        escape(&mut word, characters.next(), &mut line);
                    } else {
                        word.push(c);
                    }
                    let variable = word.ends_with('$');
                    next = characters.next_if(|c| !(c.is_ascii_whitespace() || *c == ';' || *c == '{' && !variable));
                }
                lexemes.push((begun, Lexeme::Word(word)));
            }
        }
    }
    Ok(lexemes)
}

/// Adds the character after a backslash. nginx resolves `\t`, `\r`, `\n`, quotes and the backslash itself; every other
/// backslash stays, as expressions need it.
fn escape(word: &mut String, next: Option<char>, line: &mut u32) {
    match next {
        Some('t') => word.push('\t'),
        Some('r') => word.push('\r'),
        Some('n') => word.push('\n'),
        Some(c @ ('"' | '\'' | '\\')) => word.push(c),
        Some(c) => {
            *line += u32::from(c == '\n');
            word.push('\\');
            word.push(c);
        }
        None => word.push('\\'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(&'static [(&'static str, &'static str)]);

    impl Files for Fixed {
        fn read(&self, path: &str) -> Result<String, String> {
            let found = self.0.iter().find(|(name, _)| *name == path);
            found.map(|(_, text)| (*text).to_owned()).ok_or_else(|| "there is no such file".to_owned())
        }

        fn glob(&self, _: &str) -> Vec<String> {
            self.0.iter().map(|(name, _)| (*name).to_owned()).collect()
        }
    }

    fn words(text: &str) -> Vec<Vec<String>> {
        let parsed = parse(text, "nginx.conf", &Fixed(&[])).unwrap();
        parsed.into_iter().map(|d| std::iter::once(d.name).chain(d.arguments).collect()).collect()
    }

    // nginx's documentation, "Beginner's guide", and its `ngx_conf_read_token`: quotes group, a backslash escapes, `#`
    // begins a comment only where a word may begin.
    #[test]
    fn words_quotes_and_escapes() {
        for (text, want) in [
            ("a b c;", vec!["a", "b", "c"]),
            ("a \"b c\" 'd;e';", vec!["a", "b c", "d;e"]),
            ("a \"\";", vec!["a", ""]),
            (r#"a "b\"c" \.php$;"#, vec!["a", "b\"c", r"\.php$"]),
            ("a b#c;", vec!["a", "b#c"]),
            ("a ${b}c;", vec!["a", "${b}c"]),
            ("a b;# a comment", vec!["a", "b"]),
            ("a\n\tb\r\n;", vec!["a", "b"]),
        ] {
            let found: Vec<Vec<String>> = words(text).into_iter().filter(|words| words[0] != "#").collect();
            assert_eq!(found, [want], "{text}");
        }
    }

    #[track_caller]
    fn refused(text: &str, want: &str) {
        assert_eq!(parse(text, "nginx.conf", &Fixed(&[])).unwrap_err().to_string(), want);
    }

    #[test]
    fn mistakes_name_their_line() {
        refused("a b;\n;", "nginx.conf:2: found ';', expected the name of a directive");
        refused("\n{", "nginx.conf:2: found '{', expected the name of a directive");
        refused("a;\n}\n", "nginx.conf:2: found '}', expected a directive: no block is open");
        refused("\nhttp {\n a;", "nginx.conf:2: found no '}' for this block, expected one");
        refused("http {\n a b\n}", "nginx.conf:2: found '}' after 'a', expected ';' at the end of the directive");
        refused("a\n\nb", "nginx.conf:1: found the end of the file after 'a', expected ';' or '{'");
        refused("a \"b", "nginx.conf:1: found no end of the text that \" begins");
        refused("a \"b\"c;", "nginx.conf:1: found 'c' after a closing quote, expected a space, ';' or '{'");
        refused("\ninclude x;", "nginx.conf:2: include x: there is no such file");
    }

    #[test]
    fn a_cycle_of_files_is_refused() {
        let files = Fixed(&[("a.conf", "include b.conf;"), ("b.conf", "\ninclude a.conf;")]);
        let error = parse("include a.conf;", "nginx.conf", &files).unwrap_err().to_string();
        assert_eq!(error, "b.conf:2: found more than 16 files that include each other: is it a cycle?");
    }

    // The bound is for all kinds of lines, each of which needs memory.
    #[test]
    fn directives_blocks_and_comments_are_counted() {
        let files = Fixed(&[("empty", ""), ("two", "a;\nb {}")]);
        for (text, lines) in [
            ("a;\nb;", 2),
            ("a {}\nb {}", 2),
            ("a {\nb; }", 2),
            ("# a\n# b", 2),
            ("include empty;\ninclude empty;", 2),
            ("\ninclude two;", 3),
        ] {
            let parsed = |room: usize| {
                let mut parser = Parser { files: &files, directory: String::new(), count: DIRECTIVES_MAX - room };
                parser.file(text, "n", 0).map_err(|error| error.to_string())
            };
            assert!(parsed(lines).is_ok(), "{text}");
            let file = if text.contains("two") { "two" } else { "n" };
            assert_eq!(parsed(lines - 1), Err(format!("{file}:2: found more than 1000000 directives")), "{text}");
        }
    }

    #[test]
    fn included_files_replace_their_directive() {
        let files = Fixed(&[("c/a.conf", "x 1;"), ("c/b.conf", "y 2;")]);
        let parsed = parse("include *.conf;\nz;", "c/nginx.conf", &files).unwrap();
        let names: Vec<String> = parsed.iter().map(|d| format!("{} {}", d.place, d.name)).collect();
        assert_eq!(names, ["c/a.conf:1 x", "c/b.conf:1 y", "c/nginx.conf:2 z"]);
    }

    // A file of `sites-available` is written for the directory around it; a copy may lack the files of nginx's
    // packages.
    #[test]
    fn included_files_of_nginx_itself() {
        let parsed = |name: &str, files: &[(&'static str, &'static str)], text: &str| {
            let files = Fixed(Vec::leak(files.to_vec()));
            let parsed = parse(text, name, &files).map_err(|error| error.to_string())?;
            Ok::<_, String>(parsed.iter().map(|d| format!("{} {}", d.place, d.name)).collect::<Vec<_>>())
        };
        let around = [("n/s/own.conf", "x 1;"), ("n/fastcgi_params", "y 2;")];
        let found = parsed("n/sites/a.conf", &around, "include s/own.conf; include fastcgi_params;");
        assert_eq!(found.unwrap(), ["n/s/own.conf:1 x", "n/fastcgi_params:1 y"]);
        let found = parsed("n/a.conf", &[], "include /etc/nginx/mime.types; include snippets/fastcgi-php.conf; z;");
        let names: Vec<String> = found.unwrap();
        assert!(names.contains(&"n/fastcgi.conf:1 fastcgi_param".to_owned()) && names.len() == 9, "{names:?}");
        let error = parsed("n/sites/a.conf", &around, "include none.conf;").unwrap_err();
        assert_eq!(error, "n/sites/a.conf:1: include n/sites/none.conf: there is no such file");
    }

    #[test]
    fn a_text_cut_anywhere_is_parsed_or_refused() {
        let text = "http { server { listen 80; location ~ \\.php$ { return 200 \"a\\\"b${c}\"; } } } # é";
        for (end, _) in text.char_indices() {
            let _ = parse(&text[..end], "nginx.conf", &Fixed(&[]));
        }
    }
}
