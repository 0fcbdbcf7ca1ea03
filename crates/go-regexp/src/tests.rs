use regex::bytes::Regex;

use super::ReplacementPiece::{Group, Text};
use super::{as_characters, before_repair, group_number, is_letter_or_digit, replacement_pieces, translate};

#[track_caller]
fn regex(pattern: &str) -> Regex {
    let translated = translate(pattern).unwrap_or_else(|mistake| panic!("{pattern}: {mistake}"));
    Regex::new(&translated.pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"))
}

// Go, package regexp/syntax: constructs that the regex crate reads differently or rejects.
#[test]
fn patterns_match_like_go() {
    for (pattern, text, want) in [
        (r"^\d$", "٣", false),
        (r"^\D$", "٣", true),
        (r"^\w$", "ä", false),
        (r"^[\w]$", "_", true),
        (r"^[^\w]$", "ä", true),
        (r"^[\W]$", "ä", true),
        (r"^\s$", "\u{b}", false),
        (r"^\s$", "\u{c}", true),
        (r"^[[:space:]]$", "\u{b}", true),
        (r"^[[:^alpha:]]$", "1", true),
        (r"^(?i)\w$", "\u{212a}", true),
        (r"ä\b", "ä ", false),
        (r"a\b", "aä", true),
        (r"a\Bb", "ab", true),
        (r"\<a\>", "<a>", true),
        (r"\_\-\/\#\ ", "_-/# ", true),
        (r"^[a&&b]$", "&", true),
        (r"^[[]$", "[", true),
        (r"^[]a]+$", "]a", true),
        (r"^[^]a]$", "b", true),
        (r"^[a-]$", "-", true),
        (r"^[a-c-e]$", "-", true),
        (r"^[\-x]$", "-", true),
        (r"^[~~#]$", "#", true),
        (r"^\Qa.b*\E+$", "a.b**", true),
        (r"^\Qa.b", "a.b", true),
        (r"^\101\x41\x{41}\0$", "AAA\0", true),
        (r"^\a\f\n\r\t\v$", "\x07\x0c\n\r\t\x0b", true),
        (r"^a{,2}$", "a{,2}", true),
        (r"^a{b}$", "a{b}", true),
        (r"^a{02}$", "a{02}", true),
        (r"^a{2}b{1,}c{0,1}$", "aab", true),
        (r"^{", "{", true),
        (r"\b{start}", "a{start}", true),
        (r"^\pL\p{Greek}\PN\p{^Lu}$", "äαxx", true),
        (r"^(?s:.)(?-s:.)$", "\n\n", false),
        (r"^(?m)b$", "a\nb", false),
        (r"(?m)^b$", "a\nb\nc", true),
        (r"b$", "b\n", false),
        (r"\Ab\z", "b", true),
        (r"^(?U)(a+)", "aa", true),
        (r"^(|a)$", "a", true),
        (r"^a??b+?$", "abb", true),
        (r"^(?:a*)*$", "aa", true),
        ("^[\u{7f}-\u{100}]$", "ä", true),
        (r"^[^\n]$", "\n", false),
        (r"^[^a]$", "\n", true),
        // Flags are no atom: the repetition is that of the `a`.
        (r"^a(?i)*B$", "aab", true),
        (r"^a(?i)*B$", "Ab", false),
        (r"^a(?i)(?s){2}.$", "aa\n", true),
        (r"^a*(?i)B$", "aab", true),
        (r"^(?:a(?i))*b$", "aab", true),
        (r"^(?)a$", "a", true),
        (r"^a(?)*$", "aa", true),
        (r"^(?ii)A$", "a", true),
        (r"^(?i-i)A$", "a", false),
        (r"^(?i-i:A)$", "A", true),
        (r"^(?i-ss:A.)$", "a\n", false),
        // No text has surrogates.
        (r"^\x{D800}?$", "", true),
        (r"\x{D800}", "\u{fffd}", false),
        (r"(?i)\x{dfff}", "ab", false),
        (r"[\x{D800}-\x{DFFF}]", "a\u{d7ff}\u{e000}", false),
        (r"^[^\x{D800}-\x{DFFF}]$", "a", true),
        (r"^[x\x{D800}]$", "x", true),
        (r"^[a-\x{D800}][\x{D800}-\x{FFFF}]$", "\u{d7ff}\u{e000}", true),
        (r"^[a-\x{D800}]$", "\u{e000}", false),
    ] {
        assert_eq!(regex(pattern).is_match(text.as_bytes()), want, "{pattern:?} {text:?}");
    }
    assert_eq!(translate("(?P<a>x)(y)(?<b>z)(?:w)").unwrap().names, [None, Some("a".into()), None, Some("b".into())]);
}

#[test]
fn patterns_that_go_refuses() {
    for (pattern, want) in [
        ("a**", "a repetition operator after a repetition at character 3"),
        ("a+?*", "a repetition operator after a repetition at character 4"),
        ("a{2}{3}", "a repetition operator after a repetition at character 5"),
        ("a{1001}", "a repetition count above 1000 or in descending order at character 2"),
        ("((a{1,100}){1,11})x", "repetition counts whose product is above 1000 at character 12"),
        ("(?i)(?:(b|a{500}){3})", "repetition counts whose product is above 1000 at character 18"),
        ("ä{3,2}", "a repetition count above 1000 or in descending order at character 2"),
        (r"(a)\1", "an unsupported backreference at character 4"),
        (r"\C", "an invalid escape at character 1"),
        (r"\Z", "an invalid escape at character 1"),
        (r"a\", "an invalid escape at character 2"),
        (r"[\b]", "an invalid escape at character 2"),
        (r"\x{110000}", "an invalid escape at character 1"),
        (r"\xg0", "an invalid escape at character 1"),
        (r"[a", "an unclosed character class at character 1"),
        (r"[a-\d]", "an invalid escape at character 4"),
        (r"[z-a]", "a descending range at character 2"),
        (r"[[:alfa:]]", "an unknown class name at character 2"),
        (r"(?!a)", "an unknown group type at character 1"),
        (r"(?x)a b", "an unknown group type at character 1"),
        (r"(?i-)a", "an unknown group type at character 1"),
        (r"(?-i-s)a", "an unknown group type at character 1"),
        (r"b(?i", "an unknown group type at character 2"),
        (r"a(?U)*", "a repetition operator after the flag U at character 6"),
        (r"a*(?i)?", "a repetition operator after a repetition at character 7"),
        ("(a{500})(?i){3}", "repetition counts whose product is above 1000 at character 13"),
        (r"(?<a b>x)", "an invalid group name at character 1"),
        (r"(?<a>x)(?P<a>x)", "a duplicate group name at character 8"),
        (r"\p{", "an invalid Unicode class at character 1"),
    ] {
        assert_eq!(translate(pattern).map(|_| ()).unwrap_err().to_string(), want, "{pattern:?}");
    }
    for pattern in ["*", "a|*", "(?i)*", "((?i)*)", "(", ")", r"\p{Nope}"] {
        let translated = translate(pattern).unwrap();
        assert!(Regex::new(&translated.pattern).is_err(), "{pattern}");
    }
}

// A pattern may be a client's. Of each of these the rest was once read again at each place.
#[test]
fn translating_takes_linear_time() {
    let names: String = (0..50_000).map(|name| format!("(?<n{name}>)")).collect();
    assert_eq!(translate(&names).unwrap().names.len(), 50_001);
    let many = |text: &str| text.repeat(500_000);
    for (pattern, want) in [
        (many("{"), None),
        (many("{") + "}", None),
        (many("{1,"), None),
        (format!("[{}x]", many("[:")), None),
        (many("(?i)"), None),
        (many("(?i") + ")", Some("an unknown group type at character 1")),
    ] {
        let got = translate(&pattern).map(|_| ()).map_err(|mistake| mistake.to_string());
        assert_eq!(got.err().as_deref(), want, "{}", &pattern[..10]);
    }
}

// The flag `i` takes time for each character of these, so that a few bytes of a client's pattern could take seconds.
#[test]
fn characters_of_classes() {
    for (pattern, least, most) in [
        (r"abc.*\d\W[xyz]", 0, 0),
        ("[a-z0-9]", 34, 34),
        (r"[^\x00-\x{10ffff}]", 0x10_ffff, 0x10_ffff),
        (r"\pL\p{Greek}", 280_000, 400_000),
        (r"\PL", 1_000_000, 1_200_000),
        (r"[\W]", 1_000_000, 1_200_000),
        ("[[:^alpha:]x]", 1_000_000, 1_200_000),
        (r"\p{^L}", 1_000_000, 1_200_000),
        (r"\p{Any}", 1_000_000, 1_200_000),
        (r"\p{is_any}", 1_000_000, 1_200_000),
        (r"\pC", 1_000_000, 1_200_000),
    ] {
        assert_eq!(translate(pattern).unwrap().folded_characters, 0, "{pattern}");
        let characters = translate(&format!("a(?i:{pattern})")).unwrap().folded_characters;
        assert!((least..=most).contains(&characters), "{pattern} {characters}");
    }
}

// Go, package unicode/utf8: a byte that is not part of a valid character is U+FFFD, one byte wide.
#[test]
fn text_that_is_not_utf8() {
    let text = b"a\xffb\xe2\x82c\xc3\xa4\x80";
    let mut repaired = Vec::new();
    let read = as_characters(text, &mut repaired).to_vec();
    assert_eq!(read, "a\u{fffd}b\u{fffd}\u{fffd}cä\u{fffd}".as_bytes());
    let places: Vec<_> = [0, 1, 4, 5, 8, 11, 12, 14, 17].iter().map(|&at| before_repair(text, at)).collect();
    assert_eq!(places, [0, 1, 2, 3, 4, 5, 6, 8, 9]);
}

// Go, regexp: Expand takes the longest run of letters, digits (unicode.IsLetter, IsDigit) and underscores as a name.
#[test]
fn replacements_split_like_go() {
    for (replacement, want) in [
        ("", &[][..]),
        ("ab", &[Text(b"ab")]),
        ("a$1-${x}b", &[Text(b"a"), Group(b"1"), Text(b"-"), Group(b"x"), Text(b"b")]),
        ("$$1$", &[Text(b"$"), Text(b"1"), Text(b"$")]),
        ("${a-b}$-${", &[Text(b"$"), Text(b"{a-b}"), Text(b"$"), Text(b"-"), Text(b"$"), Text(b"{")]),
        ("$1x_ $1é.", &[Group(b"1x_"), Text(b" "), Group("1é".as_bytes()), Text(b".")]),
        // U+0663 is a digit; U+0301 is a mark and U+2160 a letter number.
        (
            "$\u{663}\u{301}$a\u{2160}",
            &[Group("\u{663}".as_bytes()), Text("\u{301}".as_bytes()), Group(b"a"), Text("\u{2160}".as_bytes())],
        ),
    ] {
        assert_eq!(replacement_pieces(replacement.as_bytes()).collect::<Vec<_>>(), want, "{replacement}");
    }
    assert_eq!(replacement_pieces(b"$1\xff").collect::<Vec<_>>(), [Group(b"1"), Text(b"\xff")]);
    assert!(is_letter_or_digit('A') && is_letter_or_digit('é') && !is_letter_or_digit('½') && !is_letter_or_digit('_'));
}

// Go, regexp: a number has no leading zeros.
#[test]
fn groups_by_name_and_number() {
    let names = translate("(?P<x>a)(b)(?P<a1>c)").unwrap().names;
    for (name, want) in
        [("0", Some(0)), ("2", Some(2)), ("99", Some(99)), ("x", Some(1)), ("a1", Some(3)), ("01", None), ("", None)]
    {
        assert_eq!(group_number(name.as_bytes(), &names), want, "{name}");
    }
}
