use causeway_config::caddyfile::{format, unformatted_at};
use proptest::prelude::*;

use super::read;

#[track_caller]
fn check(cases: &[(&str, &str, &str)]) {
    for (why, text, want) in cases {
        assert_eq!(format(text.as_bytes()), *want, "{why}: {text:?}");
        assert_eq!(format(want.as_bytes()), *want, "{why}, again: {text:?}");
    }
}

// Lines are indented by one tab for each enclosing brace; words are one space apart; at most one empty line remains
// between two lines.
#[test]
fn white_space() {
    check(&[
        ("nothing", "", "\n"),
        ("only blanks", " \t\n\n ", "\n"),
        ("no line break at the end", ":80\nrespond a", ":80\nrespond a\n"),
        ("blanks between words", ":80\n  respond \t a   200  \n", ":80\nrespond a 200\n"),
        ("empty lines", "\n\n:80\n\n\n\nrespond a\n\n\n", ":80\n\nrespond a\n"),
        (
            "blocks in blocks",
            ":80 {\nhandle {\nrespond a\n}\n      respond b\n}\n",
            ":80 {\n\thandle {\n\t\trespond a\n\t}\n\trespond b\n}\n",
        ),
        ("empty lines before a brace", ":80 {\n\n\nrespond a\n\n\n}\n", ":80 {\n\trespond a\n}\n"),
        ("other white space", ":80\u{a0}{\u{2028}\nrespond\u{b}a\n}\n", ":80 {\n\trespond a\n}\n"),
    ]);
    let deep = |depth: usize| {
        let opened: String = (0..depth).map(|level| format!("{}route {{\n", "\t".repeat(level))).collect();
        let closed: String = (0..depth).rev().map(|level| format!("{}}}\n", "\t".repeat(level))).collect();
        opened + &closed
    };
    assert_eq!(format(deep(10).as_bytes()), deep(10));
    let deeper = "route {\n".repeat(40);
    assert!(!format(deeper.as_bytes()).contains(&"\t".repeat(11)), "the indentation is bounded");
}

// A brace that opens a block is at the end of its line, after a space; one that closes a block is on its own line.
// Braces within words are part of the words.
#[test]
fn braces() {
    check(&[
        ("no space before", "a.test{\nrespond a\n}", "a.test {\n\trespond a\n}\n"),
        ("on the next line", "a.test\n{\nrespond a\n}", "a.test {\n\trespond a\n}\n"),
        ("a line after it", "a.test { respond a\n}", "a.test {\n\trespond a\n}\n"),
        ("a word before the closing one", "a.test {\nrespond a }", "a.test {\n\trespond a\n}\n"),
        ("sites on one line", "a.test {\n} b.test {\n}\n", "a.test {\n}\n\nb.test {\n}\n"),
        ("sites below each other", "a.test {\n}\nb.test {\n}\n", "a.test {\n}\nb.test {\n}\n"),
        ("the global options", "{ debug\n}\n\n\n:80 {\n}\n", "{\n\tdebug\n}\n\n:80 {\n}\n"),
        ("global options after an import", "import a\n{\ndebug\n}\n", "import a\n{\n\tdebug\n}\n"),
        ("a placeholder", ":80\nrespond {path}", ":80\nrespond {path}\n"),
        ("placeholders side by side", ":80\nrespond {host}{path}x", ":80\nrespond {host}{path}x\n"),
        ("an unclosed one", "a.test {\nrespond {path\n}", "a.test {\n\trespond {path\n}\n"),
        ("more closed than opened", "a.test {\n}\n}\n", "a.test {\n}\n}\n"),
        ("opened and nothing more", "{", "{\n"),
    ]);
}

// Quoted text, comments, heredocs and escapes stay as they are.
#[test]
fn text() {
    check(&[
        ("quotes", ":80\nrespond  \"a  {  b\n }\"", ":80\nrespond \"a  {  b\n }\"\n"),
        ("an escaped quote", ":80\nrespond \"a\\\"  {\"", ":80\nrespond \"a\\\"  {\"\n"),
        ("backticks", ":80\nrespond  `a  {\n  \"  }`", ":80\nrespond `a  {\n  \"  }`\n"),
        ("a comment", ":80 {\n  #  a   {  b\n respond a\n}", ":80 {\n\t#  a   {  b\n\trespond a\n}\n"),
        ("a comment after words", ":80\nrespond a   #  b", ":80\nrespond a #  b\n"),
        ("a number sign inside a word", ":80\nrespond  a#b   c", ":80\nrespond a#b   c\n"),
        ("a heredoc", ":80 {\nrespond   <<A\n  {  x\n  A   200\n}", ":80 {\n\trespond <<A\n  {  x\n  A 200\n}\n"),
        ("no heredoc", ":80\nrespond <<a   b", ":80\nrespond <<a b\n"),
        ("a guarded heredoc", ":80\nrespond \\<<a   b", ":80\nrespond \\<<a b\n"),
        ("a joined line", ":80\nrespond a \\\n  b", ":80\nrespond a \\\n b\n"),
    ]);
    assert_eq!(format(b":80\nrespond \xff\xe2\x82"), ":80\nrespond \u{fffd}\u{fffd}\u{fffd}\n", "one for each byte");
}

// The time is linear: with a copy of the word for each of its braces, this takes minutes.
#[test]
fn long_words() {
    let word = "{b".repeat(1 << 19);
    let formatted = format(format!("a.test{{\nrespond {word}\n}}\n").as_bytes());
    assert_eq!(formatted, format!("a.test {{\n\trespond {word}\n}}\n"));
}

// The first character that would change, counted as editors do. Windows line breaks are accepted.
#[test]
fn texts_that_are_not_formatted() {
    for (text, want) in [
        (":80\nrespond a\n", None),
        (":80\r\nrespond a\r\n", None),
        (":80\nrespond  a\n", Some((2, 9))),
        (":80\n\n\nrespond a\n", Some((3, 1))),
        ("ä {\nrespond a\n}\n", Some((2, 1))),
        (":80", Some((1, 4))),
        ("", Some((1, 1))),
    ] {
        assert_eq!(unformatted_at(text), want, "{text:?}");
    }
    let adapted = read(":80\n respond a\n").unwrap();
    let [warning] = adapted.warnings.as_slice() else { panic!("{:?}", adapted.warnings) };
    assert_eq!(warning.at.to_string(), "Caddyfile:2:1");
    assert!(read(":80\nrespond a\n").unwrap().warnings.is_empty());
}

// Formatting is repeated until the text no longer changes. A text that never settles is returned unchanged.
#[test]
fn unsettled_texts() {
    for text in ["{{a\n\n{ } b {`x`", "a`{`b c", "x\"y {\n`\n}", "a {\nb\"`\n{`x\n}`a {\n`\"x\"\n}\n"] {
        let once = format(text.as_bytes());
        assert_eq!(format(once.as_bytes()), once, "{text:?}");
    }
}

// Words that Caddy's formatter would split: the file is returned unchanged.
#[test]
fn texts_whose_meaning_would_change() {
    for text in [
        ":80 {\n  respond a}\n}\n",
        ":80 {\n\tvars {\n\t\ta b\n\t\t`c d`   e\n\t}\n}\n",
        "{$HOST} {\n  respond  a}\n}\n",
        // The directive is not supported, but known.
        ":80 {\n  reverse_proxy a}\n}\n",
    ] {
        assert_eq!(format(text.as_bytes()), text);
        assert_eq!(unformatted_at(text), None, "{text:?}");
    }
    // If the text is not a valid Caddyfile, braces may be taken out of words, as formatting may make it valid. No other
    // word changes.
    assert_eq!(format(b":80 {\n  respnd a}\n"), ":80 {\n\trespnd a\n}\n");
    assert_eq!(format(b":80{\n  respnd  `a b`\n}\n"), ":80 {\n\trespnd `a b`\n}\n");
    for text in [
        ":80 {\n\tvars {\n\t\t`a b`   c\n\t}\n\trespnd\n}\n",
        ":80 {\n\tvars {\n\t\t`{$NAME} b`   c\n\t}\n\trespnd\n}\n",
        ":80{\n\tvars{\n\t\t`a b`   c\n\t}\n}\n}\n",
    ] {
        assert_eq!(format(text.as_bytes()), text);
    }
}

fn blank() -> impl Strategy<Value = String> {
    proptest::sample::select(&[" ", "  ", "\t", " \t "][..]).prop_map(str::to_owned)
}

fn line_break() -> impl Strategy<Value = String> {
    proptest::sample::select(&["\n", "\n\n", "\n\n\n\n", " \n\t", "\n# note  {  \n", "  # note\n"][..])
        .prop_map(str::to_owned)
}

/// A directive with blanks of various lengths between its words.
fn directive() -> impl Strategy<Value = String> {
    const LINES: &[&str] = &[
        "respond|a",
        "respond|/x*|\"two  words\"|200",
        "respond|`{  \"`",
        "respond|{path}",
        "respond|{host}{uri}x",
        "respond|<<A\n  one  {\n  A|201",
        "header|-Server",
        "header|A|\"b\\\"  c\"",
        "redir|https://{host}{uri}|permanent",
        "rewrite|*|/index.html?{query}",
        "root|*|/srv/a\\b",
        "vars|a|b#c",
        "uri|strip_prefix|/x",
        "respond|\\<<a",
        "try_files|{path}|{path}/|/index.php?{query}&p={path}",
    ];
    (proptest::sample::select(LINES), blank()).prop_map(|(line, blank)| line.replace('|', &blank))
}

fn block() -> impl Strategy<Value = String> {
    let leaf = (directive(), line_break()).prop_map(|(directive, end)| directive + &end);
    leaf.prop_recursive(3, 24, 4, |inner| {
        let name = proptest::sample::select(&["handle", "route", "handle /x*", "handle_path /y*"][..]);
        (name, blank(), proptest::collection::vec(inner, 0..4), line_break(), line_break())
            .prop_map(|(name, blank, lines, open, end)| format!("{name}{blank}{{{open}{}}}{end}", lines.concat()))
    })
}

fn valid() -> impl Strategy<Value = String> {
    let site = (blank(), proptest::collection::vec(block(), 0..5), line_break());
    proptest::collection::vec(site, 1..3).prop_map(|sites| {
        let numbered = sites.iter().enumerate();
        let site = |(index, (blank, lines, end)): (usize, &(String, Vec<String>, String))| {
            format!(":{}{blank}{{{end}{}}}{end}", 8000 + index, lines.concat())
        };
        numbered.map(site).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn formatting_is_idempotent(text in super::any_input::soup()) {
        let once = format(text.as_bytes());
        prop_assert_eq!(format(once.as_bytes()), once.clone());
        // CRLF counts as a plain line break here, and the text with plain line breaks may format differently.
        prop_assert!(once.contains('\r') || unformatted_at(&once).is_none(), "{:?}", once);
    }

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let once = format(&bytes);
        prop_assert_eq!(format(once.as_bytes()), once);
    }

    #[test]
    fn formatting_keeps_the_meaning_of_a_valid_file(text in valid()) {
        let before = read(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        let formatted = format(text.as_bytes());
        let after = read(&formatted).map_err(|error| TestCaseError::fail(format!("{error}\n{formatted}")))?;
        prop_assert_eq!(before.json, after.json);
        prop_assert!(after.warnings.is_empty(), "{:?}\n{}", after.warnings, formatted);
    }
}
