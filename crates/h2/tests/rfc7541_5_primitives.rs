//! RFC 7541 §5: integers and strings inside a block. Unit tests cover their edge cases.
#![allow(missing_docs, reason = "a test")]

mod hpack;

use causeway_h2::hpack::{Decoder, HpackError};
use hpack::{decoded, unhex};

/// The reason, the block, and the value of its first field.
type PrimitiveCase<'a> = (&'a str, &'a str, Result<&'a [u8], HpackError>);

#[track_caller]
fn check(cases: &[PrimitiveCase<'_>]) {
    for (why, block, want) in cases {
        let got = decoded(&mut Decoder::new(4096), &unhex(block)).map(|fields| fields[0].1.to_vec());
        assert_eq!(got, want.map(<[u8]>::to_vec), "{why}: {block}");
    }
}

// §5.1: an integer that is cut off by the end of the block, too large or endless.
#[test]
fn rfc7541_5_1_integers() {
    check(&[
        ("an index of 62 in a prefix of four bits", "0f2f", Err(HpackError::Truncated)),
        ("a length past the block", "0001610531", Err(HpackError::Truncated)),
        ("a length of 4 GiB", "0001617f80ffffff0f31", Err(HpackError::Truncated)),
        ("a length of more", "0001617fffffffff7f31", Err(HpackError::IntegerTooLarge)),
        ("an endless length", "0001617fffffffffffffffff", Err(HpackError::IntegerTooLarge)),
        ("an endless index", "0fffffffffffffffff", Err(HpackError::IntegerTooLarge)),
        ("a padded index", "0f828000 0131", Ok(b"1")),
        ("an index padded without end", "0f8280808080808000 0131", Err(HpackError::IntegerTooLarge)),
    ]);
}

// §5.2: strings of any bytes, plain or Huffman-coded.
#[test]
fn rfc7541_5_2_strings() {
    check(&[
        ("an empty value", "000161 00", Ok(b"")),
        ("an empty value, coded", "000161 80", Ok(b"")),
        ("any byte", "000161 0400ff0a80", Ok(b"\0\xff\n\x80")),
        ("no value", "000161", Err(HpackError::Truncated)),
        ("no name", "00", Err(HpackError::Truncated)),
        ("an incomplete name", "00056162", Err(HpackError::Truncated)),
        ("coded", "000161 8107", Ok(b"0")),
        ("padded with zeros", "000161 8100", Err(HpackError::Huffman)),
        ("padded with more than seven bits", "000161 8207ff", Err(HpackError::Huffman)),
        ("with the end of string", "000161 84ffffffff", Err(HpackError::Huffman)),
        ("the name's code is wrong", "008100 0131", Err(HpackError::Huffman)),
        ("inserted, and wrong", "40 0161 8100", Err(HpackError::Huffman)),
    ]);
}

// A block that is cut anywhere is an error or ends between two fields; no cut causes a panic.
#[test]
fn a_block_cut_anywhere() {
    let block = unhex("3fe11f 82 87 4188f439ce75c875fa57 84 400161 8825a849e95ba97d7f 0f0d0131 1001700173 bebf");
    let whole = decoded(&mut Decoder::new(4096), &block).expect("a block");
    assert_eq!(whole.len(), 9);
    let mut between = 0;
    for end in 0..block.len() {
        match decoded(&mut Decoder::new(4096), &block[..end]) {
            Ok(fields) => {
                assert_eq!(fields, whole[..fields.len()], "{end}");
                between += 1;
            }
            Err(fault) => assert_eq!(fault, HpackError::Truncated, "{end}"),
        }
    }
    // Complete at the start, after the size, and after each field except the last.
    assert_eq!(between, 10);
}
