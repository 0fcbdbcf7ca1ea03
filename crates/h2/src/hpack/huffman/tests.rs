use super::*;

fn coded(plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode(plain, |piece| out.extend_from_slice(piece));
    assert_eq!(out.len(), coded_len(plain), "{plain:?}");
    out
}

fn decoded(coded: &[u8]) -> Result<Vec<u8>, HpackError> {
    let mut out = b"before".to_vec();
    decode(coded, &mut out)?;
    assert!(out.len() <= 6 + decoded_max(coded.len()));
    assert_eq!(&out[..6], b"before");
    Ok(out.split_off(6))
}

/// Decodes bit by bit with a loop: the reference for the decoder.
fn decoded_bit_by_bit(coded: &[u8]) -> Option<Vec<u8>> {
    let (mut out, mut code, mut len) = (Vec::new(), 0u32, 0);
    for bit in coded.iter().flat_map(|byte| (0..8).rev().map(move |place| u32::from(byte >> place & 1))) {
        (code, len) = (code << 1 | bit, len + 1);
        if let Some(symbol) = CODES.iter().position(|known| u32::from(known.len) == len && known.bits == code) {
            out.push(u8::try_from(symbol).ok()?);
            (code, len) = (0, 0);
        }
    }
    (len <= 7 && code == (1 << len) - 1).then_some(out)
}

// RFC 7541 Appendix B: some codes of every length class.
#[test]
fn rfc7541_b_the_code() {
    for (symbol, bits, len) in [
        (usize::from(b'0'), 0x0, 5),
        (usize::from(b'a'), 0x3, 5),
        (usize::from(b' '), 0x14, 6),
        (usize::from(b':'), 0x5c, 7),
        (usize::from(b'&'), 0xf8, 8),
        (usize::from(b'!'), 0x3f8, 10),
        (usize::from(b'|'), 0x7fc, 11),
        (usize::from(b'#'), 0xffa, 12),
        (0, 0x1ff8, 13),
        (usize::from(b'^'), 0x3ffc, 14),
        (usize::from(b'{'), 0x7ffe, 15),
        (usize::from(b'\\'), 0x7fff0, 19),
        (128, 0xfffe6, 20),
        (255, 0x3ff_ffee, 26),
        (249, 0xfff_fffe, 28),
        (10, 0x3fff_fffc, 30),
        (END_OF_STRING, 0x3fff_ffff, 30),
    ] {
        assert_eq!((CODES[symbol].bits, CODES[symbol].len), (bits, len), "{symbol}");
    }
}

// RFC 7541 §5.2: decoding reverses encoding for any bytes and any length.
#[test]
fn rfc7541_5_2_every_pair_of_bytes_round_trips() {
    for first in 0..=255u8 {
        for second in 0..=255u8 {
            for plain in [&[first, second][..], &[b'a', first, b'0', b'x', second, b'%', b'1', b'2', first, b'3']] {
                assert_eq!(decoded(&coded(plain)).as_deref(), Ok(plain));
            }
        }
    }
    for len in 0..200 {
        let plain: Vec<u8> = (0..len).map(|at| (at * 7 % 90 + 33) as u8).collect();
        assert_eq!(decoded(&coded(&plain)), Ok(plain));
    }
}

// RFC 7541 §5.2: the padding has fewer than eight bits, all ones; the end-of-string symbol is never sent.
#[test]
fn rfc7541_5_2_padding() {
    for (why, bytes, want) in [
        ("nothing", &[][..], Some(&b""[..])),
        ("'0' and three ones", &[0x07], Some(b"0")),
        ("'0' and three zeros", &[0x00], None),
        ("'0' and two ones", &[0x06], None),
        ("a code of eight bits, without padding", &[0xf8], Some(b"&")),
        ("eight ones", &[0xff], None),
        ("'0', three ones, and eight", &[0x07, 0xff], None),
        ("'&' and eight ones", &[0xf8, 0xff], None),
        ("the end of string", &[0xff, 0xff, 0xff, 0xff], None),
        ("the end of string after a word", &[0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff], None),
        ("the end of string inside a word", &[0x07, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 7], None),
        ("byte 10, 30 bits and 2 ones", &[0xff, 0xff, 0xff, 0xf3], Some(b"\n")),
    ] {
        assert_eq!(decoded(bytes).ok().as_deref(), want, "{why}");
        assert_eq!(decoded_bit_by_bit(bytes).as_deref(), want, "{why}, bit by bit");
    }
}

// The table-driven decoder agrees with the bit loop for random bytes at every offset in a word.
#[test]
fn any_bytes_decode_as_bit_by_bit() {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    for round in 0..60_000 {
        let mut bytes = Vec::new();
        for _ in 0..round % 23 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Many ones, so that long codes and padding occur.
            bytes.push(if state & 0x300 == 0 { state as u8 } else { state as u8 | (state >> 16) as u8 | 0xe0 });
        }
        assert_eq!(decoded(&bytes).ok(), decoded_bit_by_bit(&bytes), "{bytes:?}");
    }
}
