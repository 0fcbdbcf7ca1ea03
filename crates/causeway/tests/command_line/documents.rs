//! The documentation shows nothing that would be refused.

use std::path::Path;

use crate::process::Folder;

/// Every fenced block of README.md and docs/ that says it is a Caddyfile or JSON.
#[test]
fn configurations_in_the_documentation_are_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut checked = 0;
    for name in ["README.md", "docs/caddyfile.md", "docs/limits.md"] {
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
