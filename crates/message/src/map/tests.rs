//! The map against a plain list of pairs, and its guarantees about order, positions and memory.

use super::*;

fn value(text: &str) -> FieldValue<'_> {
    FieldValue::parse(text.as_bytes()).unwrap()
}

fn name(text: &str) -> NameRef<'_> {
    NameRef::parse(text.as_bytes()).unwrap()
}

#[test]
fn behaves_like_a_list_of_pairs() {
    let spellings = ["Host", "Accept", "X-One", "x-two", "Set-Cookie", "cookie", "X-ONE"];
    let mut seed = 0x1234_5678_9abc_def1u64;
    let mut next = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 20) as usize % below
    };
    let mut map = FieldMap::new();
    let mut list: Vec<(&str, String)> = Vec::new();
    for step in 0..4_000 {
        let spelled = spellings[next(spellings.len())];
        let text = "v".repeat(next(12));
        let same = |other: &str| other.eq_ignore_ascii_case(spelled);
        match next(400) {
            0 => {
                map.clear();
                list.clear();
            }
            1..=40 => {
                let before = list.len();
                list.retain(|(n, _)| !same(n));
                assert_eq!(map.remove(name(spelled)), before - list.len());
            }
            41..=120 => {
                map.insert(name(spelled), value(&text));
                match list.iter().position(|(n, _)| same(n)) {
                    None => list.push((spelled, text)),
                    Some(first) => {
                        list[first].1 = text;
                        let mut at = 0;
                        list.retain(|(n, _)| {
                            at += 1;
                            at - 1 <= first || !same(n)
                        });
                    }
                }
            }
            _ => {
                map.append(name(spelled), value(&text));
                list.push((spelled, text));
            }
        }
        assert_eq!(map.len(), list.len(), "step {step}");
        for ((a, av), (b, bv)) in map.iter().zip(&list) {
            assert!(a.as_str().eq_ignore_ascii_case(b) && av == bv.as_bytes(), "step {step}: {a:?} {b}");
        }
        for spelled in spellings {
            let mut want = list.iter().filter(|(n, _)| n.eq_ignore_ascii_case(spelled)).map(|(_, v)| v.as_bytes());
            assert!(map.get_all(name(spelled)).eq(want.clone()), "step {step}");
            assert_eq!(map.get(name(spelled)), want.next(), "step {step}");
        }
    }
}

#[test]
fn finds_a_known_name_after_position_255() {
    let mut map = FieldMap::new();
    for _ in 0..300 {
        map.append(NameRef::Other("x-filler"), value("f"));
    }
    map.append(names::HOST, value("a"));
    map.append(names::HOST, value("b"));
    assert_eq!(map.get(names::HOST), Some(&b"a"[..]));
    assert_eq!(map.get_all(names::HOST).count(), 2);
    assert_eq!(map.remove(names::HOST), 2);
    assert!(!map.contains(names::HOST));
}

#[test]
fn rewriting_a_field_repeatedly_needs_no_more_memory() {
    let mut map = FieldMap::new();
    map.insert(names::SERVER, value("Causeway"));
    let bytes = map.bytes();
    for _ in 0..1000 {
        map.insert(names::SERVER, value("a"));
        map.insert_number(names::SERVER, 12);
    }
    assert_eq!((map.bytes(), map.get(names::SERVER)), (bytes, Some(&b"12"[..])));
    map.insert(names::SERVER, value("long ".repeat(10_000).trim_end()));
    map.clear();
    map.shrink_to(16 * 1024);
    assert!(map.bytes_capacity() <= 16 * 1024 && map.is_empty());
}

#[test]
fn an_other_name_equal_to_a_known_name_matches_it() {
    let mut map = FieldMap::new();
    map.append(NameRef::Other("hOST"), value("a"));
    assert_eq!(map.get(names::HOST), Some(&b"a"[..]));
    assert_eq!(map.get(NameRef::Other("HOST")), Some(&b"a"[..]));
    map.insert(NameRef::Other("host"), value("b"));
    assert_eq!((map.len(), map.get(names::HOST)), (1, Some(&b"b"[..])));
}

#[test]
fn rfc9110_8_6_content_length() {
    #[track_caller]
    fn check(values: &[&str], want: Result<Option<u64>, ContentLengthError>) {
        let mut map = FieldMap::new();
        for text in values {
            map.append(names::CONTENT_LENGTH, value(text));
        }
        assert_eq!(map.content_length(), want, "{values:?}");
    }
    check(&[], Ok(None));
    check(&["17"], Ok(Some(17)));
    check(&["017"], Ok(Some(17)));
    check(&["9223372036854775807"], Ok(Some(i64::MAX as u64)));
    check(&["9223372036854775808"], Err(ContentLengthError::Malformed));
    check(&["17", "17"], Err(ContentLengthError::Repeated));
    for bad in ["17, 17", "+17", "-17", "0x17", "17.0", "", "18446744073709551616", "1 7"] {
        check(&[bad], Err(ContentLengthError::Malformed));
    }
}

#[test]
fn rfc9110_5_6_1_lists_span_field_lines() {
    let mut map = FieldMap::new();
    map.append(names::CONNECTION, value("keep-alive, \"close, x\""));
    map.append(names::CONNECTION, value(", Upgrade ,"));
    assert_eq!(map.list(names::CONNECTION).count(), 3);
    assert!(map.has_token(names::CONNECTION, "upgrade") && !map.has_token(names::CONNECTION, "close"));
    assert!(!map.has_token(names::UPGRADE, "x"));
}

#[test]
fn pushing_is_appending() {
    let (mut pushed, mut appended) = (FieldMap::new(), FieldMap::new());
    for (spelled, text) in [("host", "a"), ("x-own", "b"), ("host", ""), ("x-own", "c"), ("via", "d")] {
        appended.append(name(spelled), value(text));
        match name(spelled) {
            NameRef::Known(known) => pushed.push_known(known, text.as_bytes()),
            NameRef::Other(other) => pushed.push_other(other, text.as_bytes()),
        }
    }
    assert_eq!(pushed, appended);
    assert!(pushed.is_repeated(names::HOST) && !pushed.is_repeated(names::VIA));
    assert_eq!(pushed.unregistered().collect::<Vec<_>>(), ["x-own", "x-own"]);
    assert_eq!(pushed.get(name("x-own")), Some(&b"b"[..]));
}

// RFC 9113 §8.2.3 is the use: adjacent cookie pieces are joined as they arrive, separated ones at the end.
#[test]
fn values_are_joined() {
    let mut map = FieldMap::new();
    map.join_known(names::COOKIE, b"; ", b"a=b");
    map.join_known(names::COOKIE, b"; ", b"c=d");
    map.push_known(names::ACCEPT, b"x");
    map.join_known(names::COOKIE, b"; ", b"e=f");
    map.push_other("x-own", b"y");
    assert_eq!((map.len(), map.is_repeated(names::COOKIE)), (4, true));
    map.join_repeated(names::COOKIE, b"; ");
    map.join_repeated(names::HOST, b"; ");
    let all: Vec<_> = map.iter().map(|(name, value)| (name.as_str(), std::str::from_utf8(value).unwrap())).collect();
    assert_eq!(all, [("Cookie", "a=b; c=d; e=f"), ("Accept", "x"), ("x-own", "y")]);
    assert!(!map.is_repeated(names::COOKIE));
    map.insert(names::COOKIE, value("short"));
    assert_eq!(map.get(names::COOKIE), Some(&b"short"[..]));
}

// RFC 9113 §8.2.1: a value neither begins nor ends with a space, so an empty piece gets no separator.
#[test]
fn empty_values_are_joined_without_a_separator() {
    for (adjacent, apart, want) in [
        (&["a=b", ""][..], &[][..], "a=b"),
        (&["", "a=b"], &[], "a=b"),
        (&["a=b", "", "c=d"], &[], "a=b; c=d"),
        (&["", ""], &["", ""], ""),
        (&["a=b", ""], &["", "c=d", ""], "a=b; c=d"),
        (&[""], &["a=b", ""], "a=b"),
    ] {
        let mut map = FieldMap::new();
        adjacent.iter().for_each(|piece| map.join_known(names::COOKIE, b"; ", piece.as_bytes()));
        for piece in apart {
            map.push_known(names::ACCEPT, b"x");
            map.join_known(names::COOKIE, b"; ", piece.as_bytes());
        }
        map.join_repeated(names::COOKIE, b"; ");
        assert_eq!(map.get(names::COOKIE), Some(want.as_bytes()), "{adjacent:?} {apart:?}");
        assert!(!map.is_repeated(names::COOKIE));
    }
}

#[test]
fn each_value_lies_within_the_arena() {
    let mut map = FieldMap::new();
    map.insert(names::HOST, value("first"));
    map.append(name("X-Own"), value(""));
    map.insert(names::HOST, value("longer than before"));
    for (_, value) in map.iter() {
        let at = value.as_ptr().addr() - map.arena().as_ptr().addr();
        assert_eq!(&map.arena()[at..at + value.len()], value);
    }
}

fn sensitive(map: &FieldMap) -> Vec<&[u8]> {
    map.lines().filter(|line| line.is_sensitive).map(|line| line.value).collect()
}

// RFC 7541 §6.2.3: the mark stays with its field through all changes of the map.
#[test]
fn a_sensitive_field_remains_sensitive() {
    let mut map = FieldMap::new();
    for (spelled, text) in [("x-first", "a"), ("host", "secret value"), ("x-own", "b"), ("accept", "c")] {
        map.append(name(spelled), value(text));
        if matches!(spelled, "host" | "x-own") {
            map.mark_last_sensitive();
        }
    }
    assert_eq!(sensitive(&map), [&b"secret value"[..], b"b"]);
    // Shorter, then as long as the slack allows, then longer.
    for text in ["s", "other secret", "a longer secret value"] {
        map.insert(names::HOST, value(text));
        assert_eq!(sensitive(&map), [text.as_bytes(), b"b"]);
    }
    map.remove(name("x-first"));
    map.retain(|name, _| name != NameRef::Known(names::ACCEPT));
    assert_eq!((map.len(), sensitive(&map).len()), (2, 2));
    let mut copy = FieldMap::new();
    copy.copy_from(&map);
    assert_eq!(sensitive(&copy), sensitive(&map));
    let mut lines = FieldMap::new();
    map.lines().for_each(|line| lines.push_line(line));
    assert_eq!((&lines, sensitive(&lines)), (&map, sensitive(&map)));
    map.clear();
    map.append(names::HOST, value("public"));
    assert!(sensitive(&map).is_empty());
    map.append(names::ACCEPT, value("d"));
    map.mark_sensitive(names::HOST);
    map.mark_sensitive(names::COOKIE);
    assert_eq!(sensitive(&map), [b"public"]);
}

#[test]
fn one_sensitive_value_makes_a_joined_one_sensitive() {
    for secret in 0..3 {
        let mut map = FieldMap::new();
        for piece in 0..3 {
            if piece == 2 {
                map.push_known(names::ACCEPT, b"x");
            }
            map.join_known(names::COOKIE, b"; ", b"a=b");
            if piece == secret {
                map.mark_last_sensitive();
            }
        }
        let mut set = map.clone();
        map.join_repeated(names::COOKIE, b"; ");
        assert_eq!(sensitive(&map), [b"a=b; a=b; a=b"]);
        set.insert(names::COOKIE, value("c=d"));
        assert_eq!(sensitive(&set), [b"c=d"]);
    }
}

#[test]
fn the_slack_of_a_value_is_at_most_127_bytes() {
    let (long, room) = ("v".repeat(300), "v".repeat(128));
    let mut map = FieldMap::new();
    map.insert(names::SERVER, value(&long));
    map.insert(names::SERVER, value("a"));
    let bytes = map.bytes();
    map.insert(names::SERVER, value(&room));
    assert_eq!((map.bytes(), map.get(names::SERVER)), (bytes, Some(room.as_bytes())));
    map.insert(names::SERVER, value(&long));
    assert_eq!((map.bytes(), map.get(names::SERVER)), (bytes + 300, Some(long.as_bytes())));
}

// Copies of maps that differ only in the mark are sent differently.
#[test]
fn maps_are_identical_only_with_the_same_marks() {
    let mut map = FieldMap::new();
    map.append(names::HOST, value("a"));
    let plain = map.clone();
    assert!(plain.is_identical(&map));
    map.mark_last_sensitive();
    assert!(!plain.is_identical(&map) && plain == map);
}
