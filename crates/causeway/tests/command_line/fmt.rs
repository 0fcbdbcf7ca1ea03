//! `fmt`: its output, the file that it writes, and its exit status.

use std::process::Output;

use crate::process::Directory;

const UNTIDY: &str = ":8080{\nrespond   hi\n}\n";
const TIDY: &str = ":8080 {\n\trespond hi\n}\n";
const REFUSAL: &str = "1:6: the file is not formatted as printed above; --overwrite rewrites it\n";

fn result_of(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// The result goes to standard output. An unformatted file is an error, so that scripts can check for it.
#[test]
fn prints_the_result_and_refuses_unformatted_files() {
    let directory = Directory::with(&[("Caddyfile", UNTIDY), ("tidy", TIDY)]);
    let refused = (Some(1), TIDY.to_owned(), format!("Error: Caddyfile:{REFUSAL}"));
    assert_eq!(result_of(&directory.output(&["fmt"])), refused);
    assert_eq!(result_of(&directory.output(&["fmt", "Caddyfile"])), refused);
    assert_eq!(result_of(&directory.output(&["fmt", "--config", "Caddyfile"])), refused);
    assert_eq!(result_of(&directory.output(&["fmt", "tidy"])), (Some(0), TIDY.to_owned(), String::new()));
    assert_eq!(std::fs::read_to_string(directory.path("Caddyfile")).unwrap(), UNTIDY);
    // Text from a pipe is formatted without an error.
    assert_eq!(result_of(&directory.output_of(&["fmt", "-"], UNTIDY)), (Some(0), TIDY.to_owned(), String::new()));
}

#[test]
fn overwrites() {
    let directory = Directory::with(&[("Caddyfile", UNTIDY)]);
    for _ in 0..2 {
        assert_eq!(result_of(&directory.output(&["fmt", "--overwrite"])), (Some(0), String::new(), String::new()));
        assert_eq!(std::fs::read_to_string(directory.path("Caddyfile")).unwrap(), TIDY);
    }
}

#[test]
fn shows_changes() {
    let directory = Directory::with(&[("Caddyfile", UNTIDY), ("tidy", TIDY)]);
    let changes = "- :8080{\n- respond   hi\n+ :8080 {\n+ \trespond hi\n  }\n  \n";
    assert_eq!(
        result_of(&directory.output(&["fmt", "--diff"])),
        (Some(1), changes.to_owned(), format!("Error: Caddyfile:{REFUSAL}"))
    );
    // A switch may have a value, and the last of repeated flags applies.
    let without_effect = ["fmt", "--diff=true", "-d=0", "--config", "absent", "--config=tidy"];
    assert_eq!(result_of(&directory.output(&without_effect)), (Some(0), TIDY.to_owned(), String::new()));
    let same = "  :8080 {\n  \trespond hi\n  }\n  \n";
    assert_eq!(result_of(&directory.output(&["fmt", "-d", "tidy"])), (Some(0), same.to_owned(), String::new()));
}

#[test]
fn mistakes() {
    let directory = Directory::new();
    for (arguments, want) in [
        (&["fmt"][..], "Error: Caddyfile: reading the Caddyfile: "),
        (&["fmt", "a", "b"], "Error: unexpected argument 'b' found"),
        (&["fmt", "a", "--config", "b"], "Error: the argument '[FILE]' cannot be used with '--config <FILE>'"),
    ] {
        let (status, stdout, stderr) = result_of(&directory.output(arguments));
        assert_eq!((status, &*stdout), (Some(1), ""), "{arguments:?}");
        assert!(stderr.starts_with(want) && stderr.lines().count() == 1, "{arguments:?}: {stderr}");
    }
    let bytes = b":80\nrespond \xff\n";
    std::fs::write(directory.path("latin1"), bytes).unwrap();
    for arguments in [&["fmt", "latin1"][..], &["fmt", "--overwrite", "latin1"]] {
        let want = "Error: latin1: found bytes that are not UTF-8, expected text\n";
        assert_eq!(result_of(&directory.output(arguments)), (Some(1), String::new(), want.to_owned()));
    }
    let input = std::fs::File::open(directory.path("latin1")).unwrap();
    let want = "Error: standard input: found bytes that are not UTF-8, expected text\n";
    let output = directory.command(&["fmt", "-"]).stdin(input).output().unwrap();
    assert_eq!(result_of(&output), (Some(1), String::new(), want.to_owned()));
    assert_eq!(std::fs::read(directory.path("latin1")).unwrap(), bytes);
}

/// Other commands that read a Caddyfile warn of missing formatting and continue.
#[test]
fn other_commands_warn() {
    let directory = Directory::with(&[("Caddyfile", ":8080\nrespond  hi\n")]);
    let want = "Warning: Caddyfile:2:9: the file is not formatted; `causeway fmt --overwrite` puts it in order\n";
    let (status, _, stderr) = result_of(&directory.output(&["adapt"]));
    assert_eq!((status, &*stderr), (Some(0), want));
    let (status, stdout, stderr) = result_of(&directory.output(&["validate"]));
    assert_eq!((status, &*stdout, &*stderr), (Some(0), "Caddyfile is valid\n", want));
}
