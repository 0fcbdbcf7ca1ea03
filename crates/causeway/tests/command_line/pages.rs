//! `completion`, `manpage` and `build-info`.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::process::Directory;

/// All commands, with those of `storage`.
const COMMANDS: &[&str] = &[
    "adapt",
    "build-info",
    "completion",
    "environ",
    "file-server",
    "fmt",
    "hash-password",
    "list-modules",
    "manpage",
    "profile",
    "reload",
    "respond",
    "reverse-proxy",
    "run",
    "start",
    "status",
    "stop",
    "storage",
    "storage-export",
    "storage-import",
    "trust",
    "untrust",
    "upgrade",
    "validate",
    "version",
];

// Caddy, `manpage`: section 8, one page for each command, into a directory that is created.
#[test]
fn manual_pages() {
    let directory = Directory::new();
    assert!(directory.output(&["manpage", "--directory", "share/man8"]).status.success());
    let mut names: Vec<_> = std::fs::read_dir(directory.path("share/man8"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let mut want: Vec<_> = COMMANDS.iter().map(|name| format!("causeway-{name}.8")).collect();
    want.push("causeway.8".into());
    want.sort();
    assert_eq!(names, want);
    let page = std::fs::read_to_string(directory.path("share/man8/causeway-reverse-proxy.8")).unwrap();
    assert!(page.contains(".TH causeway-reverse-proxy 8 "), "{page}");
    assert!(page.contains("\\-\\-change\\-host\\-header"), "{page}");
    let missing = directory.output(&["manpage"]);
    assert_eq!(missing.status.code(), Some(1));
    // A file in the directory's place.
    directory.write("file", "");
    let error = String::from_utf8(directory.output(&["manpage", "-o", "file"]).stderr).unwrap();
    assert!(error.starts_with("Error: --directory file: "), "{error}");
}

// Caddy, `completion`: bash, zsh, fish or powershell.
#[test]
fn completion_scripts() {
    let directory = Directory::new();
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let output = directory.output(&["completion", shell]);
        assert!(output.status.success());
        let script = String::from_utf8(output.stdout).unwrap();
        for word in ["reverse-proxy", "change-host-header", "pretty"] {
            assert!(script.contains(word), "{shell} {word}");
        }
        assert!(!script.contains("pingback"), "{shell}: a hidden flag");
        assert!(script.contains("resume"), "{shell}: a flag of `run`");
    }
    let error = String::from_utf8(directory.output(&["completion", "tcsh"]).stderr).unwrap();
    assert!(error.contains("possible values: bash, zsh, fish, powershell"), "{error}");
}

/// bash itself completes a command and a flag.
#[test]
fn completion_in_bash() {
    if Command::new("bash").arg("--version").stdout(Stdio::null()).status().is_err() {
        return;
    }
    let directory = Directory::new();
    let mut script = String::from_utf8(directory.output(&["completion", "bash"]).stdout).unwrap();
    for (words, want) in [("causeway rever", "reverse-proxy"), ("causeway adapt --pre", "--pretty")] {
        let last = words.split(' ').count() - 1;
        let current = words.rsplit_once(' ').unwrap().1;
        script += &format!(
            "\nCOMP_WORDS=({words}); COMP_CWORD={last}; _causeway causeway '{current}' x; echo \"${{COMPREPLY[@]}}\" # {want}\n"
        );
    }
    let mut bash = Command::new("bash").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    bash.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = bash.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "reverse-proxy\n--pretty\n");
}

#[test]
fn facts_about_the_build() {
    let directory = Directory::new();
    let text = String::from_utf8(directory.output(&["build-info"]).stdout).unwrap();
    let version = format!("version\tv{}\n", env!("CARGO_PKG_VERSION"));
    assert!(text.starts_with("program\tcauseway\n") && text.contains(&version), "{text}");
    assert!(text.contains("\nrust\trustc 1.") && text.contains("linux"), "{text}");
}
