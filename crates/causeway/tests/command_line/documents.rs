//! The documentation shows nothing that would be refused, and lists what there is.

use std::collections::BTreeSet;
use std::path::Path;

use crate::process::Folder;

/// Every fenced block of README.md and docs/ that says it is a Caddyfile or JSON.
#[test]
fn configurations_in_the_documentation_are_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut checked = 0;
    for name in ["README.md", "docs/caddyfile.md", "docs/httpgrpc.md", "docs/limits.md", "docs/reverse-proxy.md"] {
        let text = std::fs::read_to_string(root.join(name)).unwrap();
        for (language, file) in [("caddyfile", "Caddyfile"), ("json", "config.json")] {
            for block in text.split(&format!("```{language}\n")).skip(1) {
                let block = block.split("\n```").next().unwrap();
                let folder = Folder::with(&[(file, block)]);
                let output = folder.output(&["validate", "--config", file]);
                assert_eq!(output.status.code(), Some(0), "{name}: {}", String::from_utf8_lossy(&output.stderr));
                checked += 1;
            }
        }
    }
    assert!(checked >= 5, "the blocks are marked otherwise by now: only {checked} were found");
}

/// What docs/caddyfile.md lists as working is what the binary has, no more and no less. Whoever builds a directive or a matcher
/// adds it there.
#[test]
fn the_lists_of_directives_and_matchers_are_true() {
    let registry = causeway::registry();
    let directives = causeway::directives(&registry);
    assert_eq!(listed("## Directives"), directives.built().map(str::to_owned).collect());
    let modules = registry.modules();
    let matchers = modules.iter().filter_map(|module| module.strip_prefix("http.matchers."));
    let mut listed = listed("## Matchers");
    assert!(listed.remove("*"), "the path token has no module");
    assert_eq!(listed, matchers.map(str::to_owned).collect());
}

/// The words in back quotes in the first column of a chapter's table.
fn listed(chapter: &str) -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("docs/caddyfile.md")).unwrap();
    let (_, text) = text.split_once(&format!("\n{chapter}\n")).expect("the chapter");
    let rows = text.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with("| "));
    let cells = rows.map(|row| row.split(" | ").next().unwrap_or_default());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}
