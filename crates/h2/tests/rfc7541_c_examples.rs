//! RFC 7541 Appendix C: the bytes of its examples, decoded, and encoded where our encoder makes equal choices.
#![allow(missing_docs, reason = "a test")]

mod hpack;

use causeway_h2::hpack::{Decoder, Encoder};
use hpack::{Fields, decoded, unhex};

const FIRST: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")];
const CACHE: (&str, &str) = ("cache-control", "no-cache");
const THIRD: [(&str, &str); 5] = [
    (":method", "GET"),
    (":scheme", "https"),
    (":path", "/index.html"),
    (":authority", "www.example.com"),
    ("custom-key", "custom-value"),
];

/// Checks blocks on one connection, each with its fields.
#[track_caller]
fn check(decoder: &mut Decoder, blocks: &[(&str, &[(&str, &str)])]) {
    for (block, want) in blocks {
        let want: Fields = want.iter().map(|(name, value)| (name.as_bytes().into(), value.as_bytes().into())).collect();
        assert_eq!(decoded(decoder, &unhex(block)), Ok(want), "{block}");
    }
}

// C.2: one field in each representation.
#[test]
fn rfc7541_c_2_field_representations() {
    for (block, name, value) in [
        ("400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572", "custom-key", "custom-header"),
        ("040c 2f73 616d 706c 652f 7061 7468", ":path", "/sample/path"),
        ("1008 7061 7373 776f 7264 0673 6563 7265 74", "password", "secret"),
        ("82", ":method", "GET"),
    ] {
        check(&mut Decoder::new(4096), &[(block, &[(name, value)])]);
    }
}

// C.3, C.4: three requests on one connection, plain and Huffman-coded.
#[test]
fn rfc7541_c_3_and_c_4_requests() {
    let second = [&FIRST[..], &[CACHE]].concat();
    for blocks in [
        [
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ],
        [
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ],
    ] {
        check(&mut Decoder::new(4096), &[(blocks[0], &FIRST), (blocks[1], &second), (blocks[2], &THIRD)]);
    }
}

// C.5, C.6: three responses with a table of 256 bytes, so that fields are evicted. In the RFC the size is agreed on
// beforehand; here the first block sets it.
#[test]
fn rfc7541_c_5_and_c_6_responses() {
    let first = [
        (":status", "302"),
        ("cache-control", "private"),
        ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
        ("location", "https://www.example.com"),
    ];
    let mut second = first;
    second[0].1 = "307";
    let third = [
        (":status", "200"),
        ("cache-control", "private"),
        ("date", "Mon, 21 Oct 2013 20:13:22 GMT"),
        ("location", "https://www.example.com"),
        ("content-encoding", "gzip"),
        ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"),
    ];
    for blocks in [
        [
            "3fe101 4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 \
             3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "4803 3330 37c1 c0bf",
            "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 \
             7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 \
             6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
        ],
        [
            "3fe101 4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d \
             29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
            "4883 640e ffc1 c0bf",
            "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 \
             e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
        ],
    ] {
        check(&mut Decoder::new(4096), &[(blocks[0], &first), (blocks[1], &second), (blocks[2], &third)]);
    }
}

// C.4 and C.6, encoded. Where the examples insert values that change, our encoder does not; `hpack_differential`
// covers the rest.
#[test]
fn rfc7541_c_examples_that_our_encoder_reproduces() {
    let mut encoder = Encoder::new(4096);
    let mut request = FIRST.to_vec();
    assert_eq!(hpack::encoded(&mut encoder, &request), unhex("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff"));
    request.push(CACHE);
    assert_eq!(hpack::encoded(&mut encoder, &request), unhex("8286 84be 5886 a8eb 1064 9cbf"));
    // A field with an unregistered name is inserted when it occurs again.
    let plain = "0a63 7573 746f 6d2d 6b65 790c 6375 7374 6f6d 2d76 616c 7565";
    assert_eq!(hpack::encoded(&mut encoder, &THIRD), unhex(&format!("8287 85bf 00{plain}")));
    let coded = "4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf";
    assert_eq!(hpack::encoded(&mut encoder, &THIRD), unhex(&format!("8287 85bf {coded}")));
    assert_eq!(hpack::encoded(&mut encoder, &THIRD), unhex("8287 85c0 be"));

    let mut encoder = Encoder::new(256);
    let response =
        [(":status", "302"), ("cache-control", "private"), ("date", "Mon, 21 Oct 2013 20:13:21 GMT"), ("age", "3")];
    let want =
        "3fe101 4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff 0f06 0133";
    assert_eq!(hpack::encoded(&mut encoder, &response), unhex(want));
    assert_eq!(hpack::encoded(&mut encoder, &response), unhex("c0bfbe 0f06 0133"));
}
