//! Keeps the tables of `docs/internals/causal-model.md` equal to the source. With the environment variable
//! `UPDATE_PAGE` the test writes the tables instead of comparing them.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// A constant as the source declares it.
#[derive(Debug, Default, PartialEq)]
struct Declared {
    /// The name, after that of its inner module.
    name: String,
    value: String,
    /// The paragraphs of its doc comment, each on one line.
    docs: Vec<String>,
}

/// A line of a file that is of interest here.
#[derive(Debug, PartialEq)]
enum Item {
    /// A comment `// Group.` at the top level, before constants.
    Group(String),
    Constant(Declared),
}

/// Reads the groups and constants of a file, without those of its tests.
fn items(source: &str) -> Vec<Item> {
    let (mut items, mut docs, mut follows) = (Vec::new(), Vec::<String>::new(), false);
    // The open inner module, and its doc comment for constants without one.
    let (mut module, mut about) = (String::new(), Vec::new());
    let mut lines = source.lines().peekable();
    while let Some(line) = lines.next() {
        let text = line.trim();
        if text == "#[cfg(test)]" && lines.peek().is_some_and(|next| next.starts_with("mod tests {")) {
            break;
        }
        if let Some(doc) = text.strip_prefix("///") {
            match (doc.trim(), docs.last_mut()) {
                ("", _) => docs.push(String::new()),
                (doc, Some(last)) if !last.is_empty() => *last += &format!(" {doc}"),
                (doc, Some(last)) => *last = doc.to_owned(),
                (doc, None) => docs.push(doc.to_owned()),
            }
        } else if let Some(declared) = declaration(text) {
            let mut all = declared.to_owned();
            while !all.ends_with(';') {
                let Some(next) = lines.next() else { break };
                all += &format!(" {}", next.trim());
            }
            let (name, rest) = all.split_once(':').unwrap_or_default();
            let value = rest.split_once(" = ").unwrap_or_default().1.trim_end_matches(';').to_owned();
            let name = if line.starts_with(' ') { format!("{module}{name}") } else { name.to_owned() };
            // One doc comment may be that of several constants in a row, or of their module.
            if docs.is_empty() && !about.is_empty() {
                docs.clone_from(&about);
            } else if docs.is_empty() && follows {
                docs.push("see the constant above".to_owned());
            }
            items.push(Item::Constant(Declared { name, value, docs: std::mem::take(&mut docs) }));
            follows = true;
            continue;
        } else if !text.starts_with("#[") {
            let before = std::mem::take(&mut docs);
            if let Some(inner) = text.trim_start_matches("pub(super) ").strip_prefix("mod ")
                && let Some(inner) = inner.strip_suffix(" {")
            {
                (module, about) = (format!("{inner}::"), before);
            } else if line == "}" {
                (module, about) = (String::new(), Vec::new());
            } else if let Some(group) = line.strip_prefix("// ")
                && lines.peek().is_some_and(|next| next.is_empty())
            {
                items.push(Item::Group(group.trim_end_matches('.').to_owned()));
            }
        }
        follows = false;
    }
    items
}

/// Returns a declaration from the constant's name on; `None` if the line has none.
fn declaration(text: &str) -> Option<&str> {
    let rest = match text.split_once("const ")? {
        ("" | "pub " | "pub(crate) " | "pub(super) ", rest) => rest,
        _ => return None,
    };
    let (name, _) = rest.split_once(": ")?;
    name.chars().all(|letter| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_').then_some(rest)
}

/// Makes text fit for a cell of a table.
fn cell(text: &str) -> String {
    text.replace("[`", "`").replace("`]", "`").replace('|', "\\|")
}

/// The tables of the constants in `constants.rs`, one for each group.
fn tuning(source: &str) -> String {
    let mut page = String::new();
    let head = "\n| constant | value | unit | meaning | calibration |\n|---|---|---|---|---|\n";
    page.push_str(head);
    for item in items(source) {
        match item {
            Item::Group(name) => write!(page, "\n### {name}\n{head}").unwrap(),
            Item::Constant(Declared { name, value, docs }) => {
                let [meaning, facts] = &docs[..] else { panic!("{name}: two paragraphs are needed, of {docs:?}") };
                let facts = facts.strip_prefix("Unit: ").and_then(|facts| facts.split_once(". Calibration: "));
                let (unit, calibration) = facts.unwrap_or_else(|| panic!("{name}: its unit and its calibration"));
                let [meaning, calibration] = [meaning, calibration].map(|text| cell(text.trim_end_matches('.')));
                writeln!(page, "| `{name}` | `{value}` | {unit} | {meaning} | {calibration} |").unwrap();
            }
        }
    }
    page + "\n"
}

/// The table of all other constants.
fn others(sources: &Path) -> String {
    let mut page = "\n| file | constant | value | meaning |\n|---|---|---|---|\n".to_owned();
    for file in files(sources) {
        let name = file.strip_prefix(sources).unwrap().to_str().unwrap();
        if ["constants.rs", "report/sample.rs"].contains(&name) || name.ends_with("tests.rs") {
            continue;
        }
        for item in items(&fs::read_to_string(&file).unwrap()) {
            let Item::Constant(Declared { name: constant, value, docs }) = item else { continue };
            // Tables, styles and texts are not repeated.
            let value = if value.len() > 60 { "…".to_owned() } else { format!("`{}`", cell(&value)) };
            let meaning = docs.first().map_or("", |doc| doc.trim_end_matches('.'));
            writeln!(page, "| `{name}` | `{constant}` | {value} | {} |", cell(meaning)).unwrap();
        }
    }
    page + "\n"
}

/// All files in a directory and those below it, in order of their paths.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.push(path);
        }
    }
    all.sort();
    all
}

#[test]
fn the_page_lists_each_constant_with_its_value() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("../../docs/internals/causal-model.md");
    let page = fs::read_to_string(&path).unwrap();
    let mut want = page.clone();
    let sources = root.join("src");
    let tables = [("constants", tuning(include_str!("../constants.rs"))), ("other constants", others(&sources))];
    for (name, table) in tables {
        let [begin, end] = [format!("<!-- begin: {name} -->\n"), format!("<!-- end: {name} -->\n")];
        let (before, rest) = want.split_once(&begin).unwrap_or_else(|| panic!("the page lacks {begin}"));
        let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("the page lacks {end}"));
        want = format!("{before}{begin}{table}{end}{after}");
    }
    if std::env::var_os("UPDATE_PAGE").is_some() {
        fs::write(&path, want).unwrap();
    } else if let Some((line, (is, should))) = (1..).zip(page.lines().zip(want.lines())).find(|(_, (a, b))| a != b) {
        panic!("line {line} of {} is\n{is}\ninstead of\n{should}\nset UPDATE_PAGE to write it", path.display());
    } else {
        assert_eq!(page.lines().count(), want.lines().count());
    }
}

#[test]
fn constants_are_read_from_source() {
    let source = "/// One.\n///\n/// Unit: 1.\n/// Two.\n#[cfg(unix)]\npub(crate) const A: u8 = 1;\nconst B: [u8; 2] =\n    [1, 2];\n\n\
        // Group.\n\n/// Inner.\nmod inner {\n    pub(super) const C: u8 = 3;\n}\nconst fn f() {}\n#[cfg(test)]\nmod tests {\n    const D: u8 = 4;\n}\n";
    let constant = |name: &str, value: &str, docs: &[&str]| {
        let docs = docs.iter().map(|&doc| doc.to_owned()).collect();
        Item::Constant(Declared { name: name.into(), value: value.into(), docs })
    };
    let want = [
        constant("A", "1", &["One.", "Unit: 1. Two."]),
        constant("B", "[1, 2]", &["see the constant above"]),
        Item::Group("Group".into()),
        constant("inner::C", "3", &["Inner."]),
    ];
    assert_eq!(items(source), want);
}
