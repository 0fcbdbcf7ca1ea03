//! Counts unclear wording in comments and Markdown, thinly commented code, lines of comments that are too long, type
//! names that are defined too often, paths in the pages about the code that name nothing, and long commit subjects. No
//! count may rise: `prose/limits.toml` holds the highest allowed value of each, and a lower value today becomes the
//! limit with `cargo xtask prose --lower`.
//!
//! In reading order:
//! - [`rust`]: separates the comments of a Rust file from its code
//! - [`words`]: counts words in sentences
//! - [`names`]: finds the definitions of types
//! - [`paths`]: finds paths in the pages about the code that name nothing any more
//! - [`subjects`]: the commit subjects since the limits were introduced
//! - [`limits`]: reads and writes the file of limits

mod limits;
mod names;
mod paths;
mod rust;
mod subjects;
mod words;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

use self::limits::Limits;
use self::paths::PathTally;
use self::rust::RustSource;
use self::words::{Block, WORDS};
use crate::report::{Done, StepError};
use crate::stage::Stage;
use crate::steps::Workspace;

const USAGE: &str = "cargo xtask prose                prints every count with its limit
cargo xtask prose --list COUNT   prints every place of a count, such as code.what
cargo xtask prose --lower        rewrites the limits that are higher than today's counts";

/// The file of limits, relative to the root.
const LIMITS: &str = "xtask/src/prose/limits.toml";

/// Directories that are not searched: build output, fuzzing input, and generated records, whose text never changes.
const SKIPPED: &[&str] =
    &["target", "benches/target", "benches/record", "fuzz/target", "fuzz/corpus", "fuzz/artifacts"];

/// Crates whose code must be commented, and the value at which their limits stop falling: the rule of STYLE.md is a
/// comment every ten to fifteen lines.
const COMMENTED: &[&str] = &["engine", "h2", "causal"];
const LINES_PER_COMMENT_GOAL: f64 = 15.0;

/// The number of definitions of one type name that are allowed.
const DEFINITIONS_MAX: usize = 4;

/// The most characters of a line that is a comment: the width at which rustfmt.toml breaks code. rustfmt does not break
/// comments.
const COMMENT_WIDTH_MAX: usize = 120;

/// The number of places that a failure prints.
const PLACES_SHOWN: usize = 3;

/// A line of a file, or a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TextPlace {
    /// `path:line`, or a commit's id.
    pub(crate) at: String,
    pub(crate) text: String,
}

/// A count with its places, the worst first.
pub(crate) struct Count {
    /// The key in the file of limits: `section.name`.
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) unit: Unit,
    pub(crate) places: Vec<TextPlace>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Occurrences per 10 000 words; its limit has one decimal place.
    Rate,
    /// Code lines per inline comment line; its limit has one decimal place and stops at [`LINES_PER_COMMENT_GOAL`].
    Distance,
    /// A plain number.
    Number,
}

impl Unit {
    fn shown(self) -> &'static str {
        match self {
            Self::Rate => "per 10 000 words",
            Self::Distance => "code lines per inline comment line",
            Self::Number => "",
        }
    }
}

impl Count {
    /// Returns the lowest limit that the count does not exceed.
    pub(crate) fn limit(&self) -> f64 {
        let rounded_up = |value: f64| (value * 10.0).ceil() / 10.0;
        match self.unit {
            Unit::Rate => rounded_up(self.value),
            Unit::Distance => rounded_up(self.value.max(LINES_PER_COMMENT_GOAL)),
            Unit::Number => self.value,
        }
    }
}

/// The kinds of text, which have limits of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TextClass {
    /// Comments outside tests.
    Code,
    /// Comments in tests.
    Tests,
    /// Markdown.
    Markdown,
}

impl TextClass {
    fn name(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Tests => "tests",
            Self::Markdown => "markdown",
        }
    }
}

/// Runs `cargo xtask prose …`.
pub(crate) fn main(words: &[String]) -> anyhow::Result<ExitCode> {
    let root = Workspace::find(false)?.root;
    let ProseReport { counts, skipped } = report(&root)?;
    let path = root.join(LIMITS);
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => {}
        ["--lower"] => {
            let text = fs::read_to_string(&path).unwrap_or_default();
            fs::write(&path, Limits::parse(&text)?.lowered(&counts).to_string())?;
        }
        ["--list", name] => {
            let count = counts.iter().find(|count| count.name == *name);
            let count = count.with_context(|| format!("no count is called {name}"))?;
            count.places.iter().for_each(|place| println!("{}: {}", place.at, place.text));
            return Ok(ExitCode::SUCCESS);
        }
        _ => {
            println!("{USAGE}");
            return Ok(ExitCode::from(2));
        }
    }

    let limits = Limits::parse(&fs::read_to_string(&path).with_context(|| format!("cannot read {LIMITS}"))?)?;
    for count in &counts {
        let limit = limits.get(&count.name).map_or("none".to_owned(), |limit| limit.to_string());
        println!("{:<24} {:>6.2}, limit {limit:>5}  {}", count.name, count.value, count.unit.shown());
    }
    if let Some(why) = skipped {
        println!("commit subjects are not checked: {why}");
    }
    let violations = violations(&counts, &limits);
    violations.iter().for_each(|violation| println!("\n{violation}"));
    Ok(if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub(crate) fn step(_: &mut Stage, workspace: &Workspace) -> Result<Done, StepError> {
    let ProseReport { counts, skipped } = report(&workspace.root)?;
    let text = fs::read_to_string(workspace.root.join(LIMITS)).with_context(|| format!("cannot read {LIMITS}"))?;
    let limits = Limits::parse(&text)?;
    let violations = violations(&counts, &limits);
    if !violations.is_empty() {
        return Err(StepError::Failed(violations.join("\n")));
    }
    let lower =
        counts.iter().filter(|count| limits.get(&count.name).is_some_and(|limit| count.limit() < limit)).count();
    let mut detail = format!("{} counts", counts.len());
    if lower > 0 {
        detail += &format!(", {lower} below their limits: cargo xtask prose --lower");
    }
    if let Some(why) = skipped {
        detail += &format!("; commit subjects not checked: {why}");
    }
    Ok(Done::with_detail(detail))
}

/// Describes every count that exceeds its limit, with its worst places.
fn violations(counts: &[Count], limits: &Limits) -> Vec<String> {
    let mut violations = Vec::new();
    for count in counts {
        let Some(limit) = limits.get(&count.name) else {
            violations.push(format!("{LIMITS} has no limit for {}; cargo xtask prose --lower adds it", count.name));
            continue;
        };
        if count.value > limit + 1e-9 {
            let Count { name, value, unit, places } = count;
            let unit = if unit.shown().is_empty() { String::new() } else { format!(" {}", unit.shown()) };
            let mut violation = format!("{name}: {value:.2}{unit}, and the limit is {limit}");
            for TextPlace { at, text } in places.iter().take(PLACES_SHOWN) {
                violation += &format!("\n  {at}: {text}");
            }
            if places.len() > PLACES_SHOWN {
                violation += &format!("\n  and {} more: cargo xtask prose --list {name}", places.len() - PLACES_SHOWN);
            }
            violations.push(violation);
        }
    }
    let known = |name: &str| counts.iter().any(|count| count.name == name);
    violations
        .extend(limits.names().filter(|name| !known(name)).map(|name| format!("{LIMITS}: no count is called {name}")));
    violations
}

/// All counts, and the reason if the commit subjects could not be checked.
struct ProseReport {
    counts: Vec<Count>,
    skipped: Option<String>,
}

/// Reads the whole repository: two to three seconds without optimisation.
fn report(root: &Path) -> anyhow::Result<ProseReport> {
    let mut files = Vec::new();
    find(root, root, &mut files)?;
    files.sort();
    let mut tally = ProseTally::default();
    for path in &files {
        let text = fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {}", path.display()))?;
        tally.file(&path.to_string_lossy(), &text);
    }
    let mut counts = tally.counts();
    // Without a history the count is 0, so that a source archive passes.
    let (places, skipped) = match subjects::long(root, LIMITS) {
        Ok(places) => (places, None),
        Err(why) => (Vec::new(), Some(why)),
    };
    let name = "commits.long_subjects".to_owned();
    counts.push(Count { name, value: places.len() as f64, unit: Unit::Number, places });
    Ok(ProseReport { counts, skipped })
}

/// Adds the Rust and Markdown files under `directory`, relative to `root`.
fn find(root: &Path, directory: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        let relative = path.strip_prefix(root)?;
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if hidden || SKIPPED.iter().any(|skipped| relative == Path::new(skipped)) {
            continue;
        }
        if kind.is_dir() {
            find(root, &path, files)?;
        } else if kind.is_file() && path.extension().is_some_and(|name| name == "rs" || name == "md") {
            files.push(relative.to_owned());
        }
    }
    Ok(())
}

/// The sums over all files.
#[derive(Default)]
struct ProseTally {
    words: BTreeMap<TextClass, usize>,
    /// The places of a word, with the number of occurrences in the line.
    found: BTreeMap<(TextClass, &'static str), Vec<(usize, TextPlace)>>,
    /// Code lines and comment lines of a crate outside its tests, and the same per file.
    density: BTreeMap<&'static str, Vec<(String, usize, usize)>>,
    /// The places of a type name.
    types: BTreeMap<String, Vec<TextPlace>>,
    /// The comments above [`COMMENT_WIDTH_MAX`].
    long_comments: Vec<TextPlace>,
    paths: PathTally,
}

impl ProseTally {
    /// Counts one file. `path` is relative to the root and decides the class.
    fn file(&mut self, path: &str, text: &str) {
        if path.ends_with(".md") {
            self.blocks(path, TextClass::Markdown, &words::markdown(text));
            self.paths.markdown(path, text);
            return;
        }
        let source = RustSource::parse(text, is_test(path));
        self.paths.rust(path, &source.code);
        self.long_comments(path, text, &source);
        for (in_test, class) in [(false, TextClass::Code), (true, TextClass::Tests)] {
            let comments: Vec<(usize, &str)> = source
                .comments
                .iter()
                .filter(|comment| comment.in_test == in_test)
                .map(|comment| (comment.line, comment.text.as_str()))
                .collect();
            self.blocks(path, class, &words::blocks(&comments));
        }
        let member = COMMENTED.iter().find(|name| path.starts_with(&format!("crates/{name}/src/")));
        if let Some(member) = member {
            let (code, comments) = source.density();
            if code > 0 {
                self.density.entry(member).or_default().push((path.to_owned(), code, comments));
            }
        }
        // Benches and fuzz targets are workspaces of their own.
        if !path.starts_with("benches/") && !path.starts_with("fuzz/") {
            for (line, name) in names::types(&source.code) {
                let place = TextPlace { at: format!("{path}:{line}"), text: format!("type {name}") };
                self.types.entry(name.to_owned()).or_default().push(place);
            }
        }
    }

    fn long_comments(&mut self, path: &str, text: &str, source: &RustSource) {
        let lines: Vec<(&str, &str)> = text.lines().zip(source.code.lines()).collect();
        let mut in_fence = false;
        for comment in &source.comments {
            // A diagram or an example may be wider.
            in_fence ^= comment.text.starts_with("```");
            // The code has the same lines, with blanks for comments.
            let Some((text, code)) = lines.get(comment.line - 1) else { continue };
            if !in_fence && code.trim().is_empty() && text.chars().count() > COMMENT_WIDTH_MAX {
                let at = format!("{path}:{}", comment.line);
                self.long_comments.push(TextPlace { at, text: shortened(text) });
            }
        }
    }

    fn blocks(&mut self, path: &str, class: TextClass, blocks: &[Block]) {
        for block in blocks {
            *self.words.entry(class).or_default() += block.words();
            for word in WORDS {
                for (line, text, count) in block.find(word) {
                    let place = TextPlace { at: format!("{path}:{line}"), text: shortened(text) };
                    self.found.entry((class, word.name)).or_default().push((count, place));
                }
            }
        }
    }

    fn counts(self) -> Vec<Count> {
        let mut counts = Vec::new();
        for class in [TextClass::Code, TextClass::Tests, TextClass::Markdown] {
            for word in WORDS {
                let words = self.words.get(&class).copied().unwrap_or_default();
                let found = self.found.get(&(class, word.name)).map(Vec::as_slice).unwrap_or_default();
                let sum: usize = found.iter().map(|(count, _)| count).sum();
                let value = 1e4 * sum as f64 / words.max(1) as f64;
                let (name, places) = (format!("{}.{}", class.name(), word.name), worst(found));
                counts.push(Count { name, value, unit: Unit::Rate, places });
            }
        }
        for member in COMMENTED {
            let files = self.density.get(member).map(Vec::as_slice).unwrap_or_default();
            counts.push(distance(member, files));
        }
        counts.push(repeated(self.types));
        let (name, places) = ("comments.long_lines".to_owned(), self.long_comments);
        counts.push(Count { name, value: places.len() as f64, unit: Unit::Number, places });
        let places = self.paths.stale();
        counts.push(Count { name: "paths.stale".to_owned(), value: places.len() as f64, unit: Unit::Number, places });
        counts
    }
}

/// Orders places by the occurrences in their line, then by those in their file: where unclear wording accumulates, a
/// rewrite pays most. The first places are in different files.
fn worst(found: &[(usize, TextPlace)]) -> Vec<TextPlace> {
    let file = |place: &TextPlace| place.at.rsplit_once(':').map_or(String::new(), |(path, _)| path.to_owned());
    let mut files: BTreeMap<String, usize> = BTreeMap::new();
    for (count, place) in found {
        *files.entry(file(place)).or_default() += count;
    }
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut sorted: Vec<_> = found.iter().collect();
    // A stable sort keeps the order of lines in a file.
    sorted.sort_by_key(|(count, place)| std::cmp::Reverse((*count, files[&file(place)])));
    let mut ranked: Vec<(usize, &TextPlace)> = Vec::new();
    for (_, place) in sorted {
        let nth = seen.entry(file(place)).or_default();
        ranked.push((*nth, place));
        *nth += 1;
    }
    ranked.sort_by_key(|(nth, _)| *nth);
    ranked.into_iter().map(|(_, place)| place.clone()).collect()
}

/// Counts the code lines of a crate per comment line. The places are the files that lack the most comments.
fn distance(member: &str, files: &[(String, usize, usize)]) -> Count {
    let code: usize = files.iter().map(|(_, code, _)| code).sum();
    let comments: usize = files.iter().map(|(_, _, comments)| comments).sum();
    let value = code as f64 / comments.max(1) as f64;
    let lacking = |code: usize, comments: usize| ((code as f64 / value) as usize).saturating_sub(comments);
    let mut sorted: Vec<_> = files.iter().filter(|(_, code, comments)| lacking(*code, *comments) > 0).collect();
    sorted.sort_by_key(|(_, code, comments)| std::cmp::Reverse(lacking(*code, *comments)));
    let place = |(path, code, comments): &&(String, usize, usize)| TextPlace {
        at: format!("{path}:1"),
        text: format!("{comments} inline comment lines for {code} code lines"),
    };
    let places = sorted.iter().map(place).collect();
    Count { name: format!("lines_per_comment.{member}"), value, unit: Unit::Distance, places }
}

/// Counts the definitions beyond the allowed number, over all type names.
fn repeated(types: BTreeMap<String, Vec<TextPlace>>) -> Count {
    let mut names: Vec<_> = types.into_iter().filter(|(_, places)| places.len() > DEFINITIONS_MAX).collect();
    names.sort_by_key(|(_, places)| std::cmp::Reverse(places.len()));
    let sum: usize = names.iter().map(|(_, places)| places.len() - DEFINITIONS_MAX).sum();
    let place = |(name, places): &(String, Vec<TextPlace>)| TextPlace {
        at: places[0].at.clone(),
        text: format!("{name} is defined {} times; at most {DEFINITIONS_MAX} are allowed", places.len()),
    };
    let name = "types.repeated".to_owned();
    Count { name, value: sum as f64, unit: Unit::Number, places: names.iter().map(place).collect() }
}

/// Whether a whole file is a test, by its path.
fn is_test(path: &str) -> bool {
    path.split('/').any(|part| {
        let stem = part.strip_suffix(".rs").unwrap_or(part);
        stem == "tests" || stem.starts_with("tests_") || stem.ends_with("_tests")
    })
}

fn shortened(text: &str) -> String {
    text.trim().chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(files: &[(&str, &str)]) -> Vec<Count> {
        let mut tally = ProseTally::default();
        files.iter().for_each(|(path, text)| tally.file(path, text));
        tally.counts()
    }

    fn value(counts: &[Count], name: &str) -> f64 {
        counts.iter().find(|count| count.name == name).unwrap().value
    }

    #[test]
    fn classes_are_counted_separately() {
        let code = "/// It keeps what it reads.\nfn a() {}\n#[cfg(test)]\nmod tests {\n    // Behind it.\n}\n";
        let counts = counts(&[
            ("crates/h1/src/a.rs", code),
            ("crates/h1/tests/b.rs", "// One octet more.\n"),
            ("docs/c.md", "Who asked for it?\n"),
        ]);
        assert_eq!(value(&counts, "code.what"), 2000.0);
        assert_eq!(value(&counts, "tests.what"), 0.0);
        assert_eq!(value(&counts, "code.behind"), 0.0);
        assert_eq!(value(&counts, "tests.behind"), 2000.0);
        assert_eq!(value(&counts, "tests.octet"), 2000.0);
        assert_eq!(value(&counts, "markdown.who"), 2500.0);
        assert_eq!(value(&counts, "markdown.person"), 2500.0);
    }

    #[test]
    fn a_crate_is_measured_by_its_code_lines_per_comment() {
        let file = "// Why.\nlet a = 1;\nlet b = 2;\n\n/// Documentation does not count.\nfn c() {}\n";
        let counts = counts(&[
            ("crates/h2/src/a.rs", file),
            ("crates/h2/src/b.rs", "let a = 1;\n"),
            ("crates/h2/src/tests.rs", "let a = 1;\n"),
        ]);
        let h2 = counts.iter().find(|count| count.name == "lines_per_comment.h2").unwrap();
        assert_eq!(h2.value, 4.0);
        assert_eq!(h2.limit(), LINES_PER_COMMENT_GOAL, "the limit stops at the goal");
    }

    #[test]
    fn only_definitions_beyond_the_fourth_count() {
        let files: Vec<(String, &str)> = (0..6).map(|at| (format!("crates/{at}/a.rs"), "struct Kind;\n")).collect();
        let mut files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        files.extend([("crates/x/b.rs", "enum Once {}\n"), ("benches/src/a.rs", "struct Kind;\n")]);
        let counts = counts(&files);
        let types = counts.iter().find(|count| count.name == "types.repeated").unwrap();
        assert_eq!(types.value, 2.0);
        assert_eq!(types.places[0].text, "Kind is defined 6 times; at most 4 are allowed");
    }

    #[test]
    fn only_lines_of_comments_may_be_too_long() {
        let (fits, long) = ("é".repeat(COMMENT_WIDTH_MAX - 3), "é".repeat(COMMENT_WIDTH_MAX - 2));
        let text = format!(
            "// {fits}\n// {long}\nlet a = \"{long}\"; // {long}\nlet b = \"// {long}\";\n/// {long}\n//! ```text\n//! {long}\n//! ```\n"
        );
        let counts = counts(&[("crates/h1/src/a.rs", &text)]);
        let count = counts.iter().find(|count| count.name == "comments.long_lines").unwrap();
        let at: Vec<&str> = count.places.iter().map(|place| place.at.as_str()).collect();
        assert_eq!((count.value, at), (2.0, vec!["crates/h1/src/a.rs:2", "crates/h1/src/a.rs:5"]));
    }

    #[test]
    fn a_count_above_its_limit_names_three_places() {
        let files: Vec<(String, &str)> = (0..5).map(|at| (format!("docs/{at}.md"), "behind\n\nbehind\n")).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let counts = counts(&files);
        let limits = Limits::default().lowered(&counts);
        assert!(violations(&counts, &limits).is_empty());
        let tight = Limits::parse(&limits.to_string().replace("behind = 10000.0", "behind = 9000.0")).unwrap();
        let violations = violations(&counts, &tight);
        assert_eq!(violations.len(), 1, "{violations:?}");
        let expected = "markdown.behind: 10000.00 per 10 000 words, and the limit is 9000\n  docs/0.md:1: behind\n  \
            docs/1.md:1: behind\n  docs/2.md:1: behind\n  and 7 more: cargo xtask prose --list markdown.behind";
        assert_eq!(violations[0], expected);
    }

    #[test]
    fn limits_and_counts_must_match() {
        let counts = counts(&[]);
        let mut limits = Limits::default().lowered(&counts).to_string();
        limits += "[stray]\nword = 1\n";
        limits = limits.replace("octet = 0.0\n", "");
        let violations = violations(&counts, &Limits::parse(&limits).unwrap());
        assert_eq!(violations.len(), 4, "{violations:?}");
        assert!(violations[3].contains("no count is called stray.word"), "{violations:?}");
    }
}
