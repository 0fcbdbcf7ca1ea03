//! RFC 7541 §2: the two tables and their common index space.
#![allow(missing_docs, reason = "a test")]

mod hpack;

use causeway_h2::hpack::{Decoder, HpackError};
use hpack::{decoded, unhex};

// Literals that are inserted into the table: `a: 1`, `b: 2`, `c: 3`.
const A: &str = "40 0161 0131";
const B: &str = "40 0162 0132";
const C: &str = "40 0163 0133";

#[track_caller]
fn check(cases: &[(&str, &str, Result<&str, HpackError>)]) {
    for (why, block, want) in cases {
        let got = decoded(&mut Decoder::new(4096), &unhex(block)).map(|fields| {
            let lines = fields.iter().map(|(name, value)| {
                format!("{}: {}", std::str::from_utf8(name).unwrap(), std::str::from_utf8(value).unwrap())
            });
            lines.collect::<Vec<_>>().join(", ")
        });
        assert_eq!(got, want.map(str::to_owned), "{why}: {block}");
    }
}

// §2.3.1, Appendix A: the static table has 61 entries.
#[test]
fn rfc7541_2_3_1_static_table() {
    check(&[
        ("the first", "81", Ok(":authority: ")),
        ("the seventh", "87", Ok(":scheme: https")),
        ("one with a value", "90", Ok("accept-encoding: gzip, deflate")),
        ("the last but one", "bc", Ok("via: ")),
        ("the last", "bd", Ok("www-authenticate: ")),
        (
            "all statuses",
            "88898a8b8c8d8e",
            Ok(":status: 200, :status: 204, :status: 206, :status: 304, \
                                              :status: 400, :status: 404, :status: 500"),
        ),
    ]);
}

// §2.3.2: first in, first out; the newest entry has the lowest index. Duplicates are no error.
#[test]
fn rfc7541_2_3_2_dynamic_table() {
    check(&[
        ("newest first", &format!("{A}{B}{C} be bf c0"), Ok("a: 1, b: 2, c: 3, c: 3, b: 2, a: 1")),
        ("a duplicate", &format!("{A}{A} be bf"), Ok("a: 1, a: 1, a: 1, a: 1")),
        ("one that the static table has", "42 0347 4554 be", Ok(":method: GET, :method: GET")),
    ]);
}

// §2.3.3: an index above both tables is an error; §6.1: so is 0.
#[test]
fn rfc7541_2_3_3_index_space() {
    check(&[
        ("index 0", "80", Err(HpackError::UnknownIndex)),
        ("after the static table, without an entry", "be", Err(HpackError::UnknownIndex)),
        ("one too far", &format!("{A} bf"), Err(HpackError::UnknownIndex)),
        ("far too far", "ff ffff ffff 0f", Err(HpackError::IntegerTooLarge)),
        ("the largest", "ff 80ff ffff 0f", Err(HpackError::UnknownIndex)),
        ("as the name of a literal that is inserted", "7f 00 0131", Err(HpackError::UnknownIndex)),
        ("of one that is not", "0f 2f 0131", Err(HpackError::UnknownIndex)),
        ("of one that never is", "1f 2f 0131", Err(HpackError::UnknownIndex)),
        ("the first dynamic one as a name", &format!("{A} 7e 0132 be"), Ok("a: 1, a: 2, a: 2")),
    ]);
}

// §2.2: the table persists over all blocks of the connection.
#[test]
fn rfc7541_2_2_one_context_for_all_blocks() {
    let mut decoder = Decoder::new(4096);
    assert_eq!(decoder.table_bytes(), 0);
    for _ in 0..3 {
        decoded(&mut decoder, &unhex(&format!("{A}{B}"))).expect("a block");
    }
    let again = decoded(&mut decoder, &unhex("c3")).expect("the first of six");
    assert_eq!(again, vec![(b"a"[..].into(), b"1"[..].into())]);
    assert_eq!(decoded(&mut decoder, &unhex("c4")), Err(HpackError::UnknownIndex));
}
