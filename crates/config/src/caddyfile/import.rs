//! `import`: replaces a line with the tokens of a snippet or of files.

mod graph;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::graph::{ImportGraph, ImportGraphError};
use super::Warning;
use super::clean_path::clean_path;
use super::error::{Error, ErrorKind};
use super::lexer;
use super::token::{Imported, Token};

/// Maximum number of tokens that the imports of one adaptation insert, and of bytes in them. Snippets that import each
/// other repeatedly, and arguments that repeat arguments, grow exponentially.
const TOKENS_MAX: usize = 1 << 20;
const TEXT_BYTES_MAX: usize = 64 << 20;

/// Maximum size of an imported file. Bounds endless devices such as `/dev/zero`.
const FILE_BYTES_MAX: u64 = 64 << 20;

type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

pub(crate) struct Imports<'a> {
    /// `None`: imports insert no tokens.
    env: Option<Environment<'a>>,
    graph: ImportGraph,
    budget: ImportBudget,
    pub(crate) warnings: Vec<Warning>,
}

/// The arguments and the block of one import line.
struct Given<'a> {
    arguments: &'a [Token],
    block: &'a [Token],
    /// For each named sub-block, its naming token and its tokens.
    named: BTreeMap<&'a str, (&'a Token, &'a [Token])>,
}

/// The arguments and blocks that the imported tokens refer to.
#[derive(Default)]
struct Used {
    arguments: BTreeSet<usize>,
    block: bool,
    named: BTreeSet<String>,
    /// About the forms of the references.
    warnings: Vec<Warning>,
}

impl Used {
    /// A warning about the first argument or block that the imported tokens do not use. Caddy accepts such an import,
    /// and shared snippets often leave arguments unused.
    fn surplus(&self, given: &Given<'_>) -> Option<Warning> {
        let unused = |token: &Token, word: &str, expected: &str| {
            let message = format!(
                "the {word} '{}' has no effect: no imported text uses it; expected {expected} there",
                token.text
            );
            Some(Warning { at: token.at.clone(), message })
        };
        // An unused argument before a used one is needed to keep the used one's index.
        let surplus = self.arguments.last().map_or(0, |last| last + 1);
        if let Some(argument) = given.arguments.get(surplus) {
            return unused(argument, "argument", &format!("{{args[{surplus}]}}"));
        }
        if self.block {
            return None;
        }
        let (name, (token, _)) = given.named.iter().find(|(name, _)| !self.named.contains(**name))?;
        unused(token, "block", &format!("{{block}} or {{blocks.{name}}}"))
    }
}

/// The tokens and bytes that imports may still insert.
struct ImportBudget {
    tokens: usize,
    bytes: usize,
}

impl Default for ImportBudget {
    fn default() -> Self {
        Self { tokens: TOKENS_MAX, bytes: TEXT_BYTES_MAX }
    }
}

impl ImportBudget {
    /// Counts a token of this length.
    ///
    /// # Errors
    /// Beyond the bounds: the error's text.
    fn take(&mut self, len: usize) -> Result<(), &'static str> {
        self.tokens = self.tokens.checked_sub(1).ok_or("imports bring in more than a million tokens")?;
        self.check(len)?;
        self.bytes -= len;
        Ok(())
    }

    /// Appends a token within the bounds.
    fn push(&mut self, out: &mut Vec<Token>, token: Token) -> Result<(), &'static str> {
        self.take(token.text.len())?;
        out.push(token);
        Ok(())
    }

    /// Checks whether a token may have this length.
    fn check(&self, len: usize) -> Result<(), &'static str> {
        if len <= self.bytes { Ok(()) } else { Err("imports bring in more than 64 MiB of text") }
    }
}

impl<'a> Imports<'a> {
    pub(crate) fn new(env: Environment<'a>) -> Self {
        Self { env: Some(env), ..Self::none() }
    }

    /// Imports that insert no tokens.
    pub(crate) fn none() -> Self {
        Self { env: None, graph: ImportGraph::new(), budget: ImportBudget::default(), warnings: Vec::new() }
    }

    /// Returns the tokens that replace `line` (`import`, a name, arguments). `block` holds the tokens of the line's
    /// block, and `last_line` is the line of its last token. `nesting` is 0 for an import between blocks, which can
    /// insert whole sites and snippets.
    pub(crate) fn expand(
        &mut self,
        line: &[Token],
        block: &[Token],
        last_line: u32,
        snippets: &BTreeMap<String, Vec<Token>>,
        nesting: usize,
    ) -> Result<Vec<Token>, Error> {
        let keyword = &line[0];
        let Some(target) = line.get(1) else {
            return Err(Error::at(keyword, ErrorKind::ArgumentCount(keyword.text.clone())));
        };
        if target.text.is_empty() {
            return Err(Error::at(target, ErrorKind::Rule("Import requires a non-empty filepath")));
        }
        let Some(env) = self.env else { return Ok(Vec::new()) };
        let given = Given { arguments: &line[2..], block, named: named_blocks(block)? };
        let (tokens, nodes) = match snippets.get(&*target.text) {
            Some(tokens) => {
                let node = tokens.first().map(|token| format!("{}:{}", token.at.file, target.text));
                (tokens.clone(), Vec::from_iter(node))
            }
            None => self.files(target, env)?,
        };
        let mut from = keyword.at.file.to_string();
        if let Some(snippet) = &keyword.snippet {
            from = format!("{from}:{snippet}");
        }
        for to in nodes {
            self.graph.add(&from, &to).map_err(|error| {
                let kind = match error {
                    ImportGraphError::Cycle => ErrorKind::ImportCycle { from: from.as_str().into(), to: to.into() },
                    ImportGraphError::TooEntangled => {
                        ErrorKind::Rule("the chains of imports are too long to search for cycles")
                    }
                };
                Error::at(keyword, kind)
            })?;
        }
        let mut used = Used::default();
        let filled = substitute(&tokens, &given, &mut used, (keyword, last_line), nesting, &mut self.budget);
        let filled = filled.map_err(|rule| Error::at(keyword, ErrorKind::Rule(rule)))?;
        // A pattern without matches and an empty file each have a warning of their own.
        if !tokens.is_empty() {
            self.warnings.extend(used.surplus(&given));
        }
        self.warnings.append(&mut used.warnings);
        Ok(filled)
    }

    /// Reads the files that `target` names, by a path or a pattern with at most one `*` and one `?`. Relative to the
    /// importing file.
    fn files(&mut self, target: &Token, env: Environment<'_>) -> Result<(Vec<Token>, Vec<String>), Error> {
        let word = |rule| Error::at(target, ErrorKind::Word { rule, found: target.text.clone() });
        let base = Path::new(&*target.at.file).parent().unwrap_or(Path::new(""));
        let pattern = base.join(&*target.text);
        // As Go's `filepath.Join`, which Caddy uses for relative names only.
        let pattern = if Path::new(&*target.text).is_absolute() {
            pattern
        } else {
            clean_path(&std::path::absolute(&pattern).unwrap_or(pattern))
        };
        let text = pattern.to_string_lossy();
        let brackets = text.contains('[') && text.contains(']');
        if text.matches('*').count() > 1 || text.matches('?').count() > 1 || brackets {
            return Err(word("Glob pattern may only contain one wildcard (*), but has others: {}"));
        }
        let wild = text.contains(['*', '?']);
        let paths = if wild { glob(&pattern) } else { vec![pattern] };
        let mut tokens = Vec::new();
        let mut nodes = Vec::new();
        if paths.is_empty() {
            let message = format!("No files matching import glob pattern {}", target.text);
            self.warnings.push(Warning { at: target.at.clone(), message });
        }
        for path in paths {
            // Absolute, as in Caddy: `file_server` hides files by this name.
            let path = std::path::absolute(&path).unwrap_or(path);
            let name: Arc<str> = Arc::from(&*path.to_string_lossy());
            let source = match read(&path) {
                Ok(source) => source,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let error = word("File to import not found: {}");
                    return Err(match target.text.contains(['/', '.']) {
                        true => error,
                        false => {
                            error.with_note(|| format!("no snippet ({}) stands above this line either", target.text))
                        }
                    });
                }
                Err(error) => return Err(Error::at(target, ErrorKind::ImportRead((&*name).into(), error.kind()))),
            };
            if source.trim().is_empty() {
                self.warnings.push(Warning { at: target.at.clone(), message: format!("Import file is empty: {name}") });
            } else {
                tokens.extend(lexer::lex(&source, &name, env)?);
            }
            nodes.push(name.to_string());
        }
        Ok((tokens, nodes))
    }
}

/// Reads a file as text. An error if it has more than `FILE_BYTES_MAX` bytes.
fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(text) }
}

/// Substitutes `{args[…]}`, `{block}` and `{blocks.name}` within the bounds of `budget`, and marks each token with its
/// import. Placeholders in the body of a snippet that the imported file defines are left for that snippet's own
/// imports.
fn substitute(
    tokens: &[Token],
    given: &Given<'_>,
    used: &mut Used,
    (keyword, last_line): (&Token, u32),
    nesting: usize,
    budget: &mut ImportBudget,
) -> Result<Vec<Token>, &'static str> {
    let mut out: Vec<Token> = Vec::with_capacity(tokens.len());
    let mut imports: BTreeMap<Option<*const Imported>, Arc<Imported>> = BTreeMap::new();
    let mut snippets = SnippetBodies::new(nesting);
    for (index, token) in tokens.iter().enumerate() {
        let starts_line = index == 0 || tokens[index - 1].line_ends_before(token);
        let is_of_snippet = snippets.advance(token, starts_line);
        let mut token = token.clone();
        let before = token.imported.take();
        // Tokens of one earlier import share one `Imported`, so that `together_with` can compare by address.
        let imported = imports.entry(before.as_ref().map(Arc::as_ptr)).or_insert_with(|| {
            Arc::new(Imported { at: keyword.at.clone(), last_line, snippet: token.snippet.clone(), before })
        });
        token.imported = Some(imported.clone());
        if is_of_snippet {
            budget.push(&mut out, token)?;
        } else if &*token.text == "{block}" {
            used.block = true;
            for token in given.block {
                budget.push(&mut out, token.clone())?;
            }
        } else if let Some(name) = token.text.strip_prefix("{blocks.").and_then(|name| name.strip_suffix('}')) {
            used.named.insert(name.to_owned());
            for token in given.named.get(name).map_or(&[][..], |(_, tokens)| tokens) {
                budget.push(&mut out, token.clone())?;
            }
        } else if let Some(range) = all_arguments(&token, given.arguments.len()) {
            used.arguments.extend(range.clone());
            for argument in &given.arguments[range] {
                budget.push(&mut out, Token { text: argument.text.clone(), ..token.clone() })?;
            }
        } else {
            token.text = with_arguments(&token, given.arguments, used, budget)?.into();
            budget.push(&mut out, token)?;
        }
    }
    Ok(out)
}

/// Finds the bodies of the snippets that imported tokens define: a definition is a line outside of blocks that starts
/// with `(name)` and continues with a brace.
struct SnippetBodies {
    /// Whether the import is outside of blocks: elsewhere it cannot define snippets.
    is_outside: bool,
    nesting: usize,
    /// The index of the last token in its line.
    index_in_line: usize,
    /// A line began with `(name)`, and no body has followed.
    is_named: bool,
    is_open: bool,
}

impl SnippetBodies {
    fn new(nesting: usize) -> Self {
        Self { is_outside: nesting == 0, nesting, index_in_line: 0, is_named: false, is_open: false }
    }

    /// Moves on to the next token. Returns whether it is in a body, or opens one.
    fn advance(&mut self, token: &Token, starts_line: bool) -> bool {
        if self.is_outside && !self.is_open {
            self.index_in_line = if starts_line { 0 } else { self.index_in_line + 1 };
            let text = &token.text;
            self.is_named |= self.index_in_line == 0 && text.len() >= 3 && text.starts_with('(') && text.ends_with(')');
        }
        if token.opens() {
            self.nesting += 1;
            if self.is_outside && self.is_named && self.index_in_line == 1 && self.nesting == 1 {
                self.is_open = true;
                self.is_named = false;
            }
        } else if token.closes() {
            self.nesting = self.nesting.saturating_sub(1);
            if self.nesting == 0 {
                self.is_open = false;
            }
        }
        self.is_open
    }
}

/// Splits an import's block into its named sub-blocks: `name a b` has the tokens `a b`, `name { … }` those of its
/// lines.
fn named_blocks(block: &[Token]) -> Result<BTreeMap<&str, (&Token, &[Token])>, Error> {
    let mut named = BTreeMap::new();
    let mut index = 0;
    while index < block.len() {
        let name = &block[index];
        if name.opens() {
            return Err(Error::at(name, ErrorKind::Rule("anonymous blocks are not supported")));
        }
        let start = index + 1;
        index = start;
        while index < block.len() && !block[index].opens() && !block[index - 1].line_ends_before(&block[index]) {
            index += 1;
        }
        let mut range = start..index;
        let opens = index < block.len() && block[index].opens() && !block[index - 1].line_ends_before(&block[index]);
        if opens {
            let mut depth = 0_usize;
            let body = index + 1;
            while index < block.len() {
                depth = if block[index].opens() { depth + 1 } else { depth - usize::from(block[index].closes()) };
                index += 1;
                if depth == 0 {
                    break;
                }
            }
            // DEVIATES Caddy, which takes the brace as a token and all that follows as tokens of this sub-block, up to
            // the end of the import's block.
            if let Some(token) = block.get(index).filter(|token| !block[index - 1].line_ends_before(token)) {
                return Err(Error::at(token, ErrorKind::Rule("Unexpected next token after '}' on same line")));
            }
            if range.is_empty() {
                range = body..index - 1;
            } else {
                // Tokens precede the brace: they belong to the sub-block, which then keeps its braces.
                range = start..index;
            }
        }
        named.insert(&*name.text, (name, &block[range]));
    }
    Ok(named)
}

/// The files that match a pattern with wildcards in any of its components, sorted. As Go's `filepath.Glob`: a directory
/// that cannot be read has no matches, and after a wildcard no entry of a directory has the name `.`, `..` or an empty
/// one. As in Caddy, a leading `*` does not match hidden files in the last component; in a directory's name it does.
fn glob(pattern: &Path) -> Vec<PathBuf> {
    let text = pattern.to_string_lossy();
    let mut names = text.split(std::path::is_separator).skip_while(|name| !name.contains(['*', '?']));
    if names.any(|name| matches!(name, "" | "." | "..")) {
        return Vec::new();
    }
    let mut found = vec![PathBuf::new()];
    let mut components = pattern.components().peekable();
    while let Some(component) = components.next() {
        let wanted = component.as_os_str().to_string_lossy();
        if !wanted.contains(['*', '?']) {
            found.iter_mut().for_each(|path| path.push(component));
            continue;
        }
        let hides = components.peek().is_none() && wanted.starts_with('*');
        let mut longer = Vec::new();
        for path in &found {
            let directory = if path.as_os_str().is_empty() { Path::new(".") } else { path };
            let entries = std::fs::read_dir(directory).into_iter().flatten();
            let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            let names = names.filter(|name| matches(&wanted, name) && !(hides && name.starts_with('.')));
            longer.extend(names.map(|name| path.join(name)));
        }
        found = longer;
    }
    // A component without wildcards need not exist in every directory. A link without a target does: reading it is an
    // error.
    found.retain(|path| path.symlink_metadata().is_ok());
    found.sort();
    found
}

/// Matches a name against a pattern of `*` (any run of characters) and `?` (any one character). Backtracks only to the
/// last `*`.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    let mut retry = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                retry = Some((p, n));
                p += 1;
            }
            Some(&wanted) if wanted == '?' || wanted == name[n] => (p, n) = (p + 1, n + 1),
            _ => match retry {
                Some((star, from)) => {
                    retry = Some((star, from + 1));
                    (p, n) = (star + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&ch| ch == '*')
}

/// The range of `{args[from:to]}`, if that is the whole token. Either end can be omitted.
fn all_arguments(token: &Token, count: usize) -> Option<std::ops::Range<usize>> {
    let inner = token.text.strip_prefix("{args[")?.strip_suffix("]}")?;
    let (from, to) = inner.split_once(':')?;
    let bound = |text: &str, default| if text.is_empty() { Some(default) } else { text.parse::<usize>().ok() };
    let (from, to) = (bound(from, 0)?, bound(to, count)?);
    (from <= to && to <= count).then_some(from..to)
}

/// Substitutes `{args[n]}` and the older form `{args.n}` anywhere in a token. References to missing arguments are left
/// as written, and so is `{args[from:to]}` beside other text: it stands for tokens.
fn with_arguments(
    token: &Token,
    arguments: &[Token],
    used: &mut Used,
    budget: &ImportBudget,
) -> Result<String, &'static str> {
    let mut out = String::new();
    let mut rest = &*token.text;
    while let Some(open) = rest.find("{args") {
        out.push_str(&rest[..open]);
        rest = &rest[open..];
        // Up to the next brace only, so that a text of open braces takes no quadratic time.
        let brace = rest["{args".len()..].find(['{', '}']).map(|brace| "{args".len() + brace);
        let span = brace.map(|brace| &rest[..=brace]).filter(|span| span.ends_with('}'));
        let number = span.and_then(|span| {
            let inner = &span["{args".len()..span.len() - 1];
            inner.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).or(inner.strip_prefix('.'))
        });
        let index = number.and_then(|number| number.parse::<usize>().ok());
        let argument = index.and_then(|index| Some((index, arguments.get(index)?)));
        match (argument, span) {
            (Some((index, argument)), Some(span)) => {
                used.arguments.insert(index);
                if span.starts_with("{args.") {
                    let message =
                        format!("found '{span}', expected '{{args[{index}]}}': the form with a dot is deprecated");
                    used.warnings.push(Warning { at: token.at.clone(), message });
                }
                out.push_str(&argument.text);
                budget.check(out.len())?;
                rest = &rest[span.len()..];
            }
            _ => {
                if let (Some(number), Some(span)) = (number, span)
                    && number.contains(':')
                    && span.starts_with("{args[")
                {
                    let message = if span.len() == token.text.len() {
                        format!("'{span}' has no effect: expected a range within the {} arguments", arguments.len())
                    } else {
                        format!("'{span}' has no effect beside other text, expected it as a word of its own")
                    };
                    used.warnings.push(Warning { at: token.at.clone(), message });
                }
                out.push_str("{args");
                rest = &rest["{args".len()..];
            }
        }
    }
    Ok(out + rest)
}
