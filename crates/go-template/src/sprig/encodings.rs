//! Base64, Base32 and checksums.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use data_encoding::HEXLOWER;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};

use super::{STRING, fixed, text};
use crate::error::FunctionError;
use crate::functions::{Builtin, CallContext};
use crate::value::Value;

pub(super) static BUILTINS: &[Builtin] = &[
    fixed("adler32sum", STRING, |call, args| {
        call.charge_steps(text(&args[0]).len() / 16)?;
        Ok(adler32(text(&args[0])).to_string().into())
    }),
    // As in Sprig, the message in place of a text that cannot be decoded.
    fixed("b32dec", STRING, |call, args| {
        call.charge_memory(text(&args[0]).len())?;
        let decoded = base32_decoded(text(&args[0]));
        Ok(decoded.unwrap_or_else(|at| format!("illegal base32 data at input byte {at}").into_bytes()).into())
    }),
    fixed("b32enc", STRING, |call, args| {
        call.charge_memory(2 * text(&args[0]).len())?;
        Ok(base32(text(&args[0])).into())
    }),
    fixed("b64dec", STRING, |call, args| {
        call.charge_memory(text(&args[0]).len())?;
        let decoded = base64_decoded(text(&args[0]));
        Ok(decoded.unwrap_or_else(|at| format!("illegal base64 data at input byte {at}").into_bytes()).into())
    }),
    fixed("b64enc", STRING, |call, args| {
        call.charge_memory(2 * text(&args[0]).len())?;
        Ok(BASE64_STANDARD.encode(text(&args[0])).into())
    }),
    fixed("sha1sum", STRING, |call, args| digest::<Sha1>(call, &args[0])),
    fixed("sha256sum", STRING, |call, args| digest::<Sha256>(call, &args[0])),
    fixed("sha512sum", STRING, |call, args| digest::<Sha512>(call, &args[0])),
];

fn digest<D: Digest>(call: &CallContext<'_>, value: &Value) -> Result<Value, FunctionError> {
    call.charge_steps(1 + text(value).len() / 16)?;
    Ok(HEXLOWER.encode(&D::digest(text(value))).into())
}

/// RFC 1950 §8.2: the checksum Adler-32.
fn adler32(text: &[u8]) -> u32 {
    const MODULUS: u32 = 65521;
    let (mut a, mut b) = (1, 0);
    for byte in text {
        a = (a + u32::from(*byte)) % MODULUS;
        b = (b + a) % MODULUS;
    }
    b << 16 | a
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

/// Decodes Base64 between whose characters lines may end, as Go's decoder; the error is the byte that it complains
/// about.
fn base64_decoded(text: &[u8]) -> Result<Vec<u8>, usize> {
    let mut out = Vec::new();
    let mut at = 0;
    loop {
        let (mut bits, mut count) = (0_u32, 0);
        // A group of four characters is three bytes.
        while count < 4 {
            let Some(&byte) = text.get(at) else {
                return if count == 0 { Ok(out) } else { Err(at - count) };
            };
            at += 1;
            let digit = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                b'=' if count >= 2 => {
                    padding(text, &mut at, count)?;
                    let bytes = (bits << (6 * (4 - count))).to_be_bytes();
                    out.extend_from_slice(&bytes[1..count]);
                    return Ok(out);
                }
                byte if is_line_end(byte) => continue,
                _ => return Err(at - 1),
            };
            bits = bits << 6 | u32::from(digit);
            count += 1;
        }
        out.extend_from_slice(&bits.to_be_bytes()[1..]);
    }
}

/// Reads the rest after the first `=`: another one if two characters came before, and no more than ends of lines.
fn padding(text: &[u8], at: &mut usize, count: usize) -> Result<(), usize> {
    let skip = |at: &mut usize| {
        while text.get(*at).is_some_and(|byte| is_line_end(*byte)) {
            *at += 1;
        }
    };
    if count == 2 {
        skip(at);
        match text.get(*at) {
            None => return Err(text.len()),
            Some(b'=') => *at += 1,
            Some(_) => return Err(*at - 1),
        }
    }
    skip(at);
    if *at < text.len() { Err(*at) } else { Ok(()) }
}

const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

fn base32(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for group in text.chunks(5) {
        let mut bytes = [0; 8];
        bytes[3..3 + group.len()].copy_from_slice(group);
        let bits = u64::from_be_bytes(bytes);
        let count = (group.len() * 8).div_ceil(5);
        out.extend((0..count).map(|index| BASE32[(bits >> (35 - 5 * index)) as usize & 31]));
        out.extend(std::iter::repeat_n(b'=', 8 - count));
    }
    out
}

/// Decodes Base32 between whose characters lines may end. The error counts the bytes without the ends of lines, as Go
/// does.
fn base32_decoded(text: &[u8]) -> Result<Vec<u8>, usize> {
    let text: Vec<u8> = text.iter().copied().filter(|byte| !is_line_end(*byte)).collect();
    let mut out = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let (mut bits, mut count) = (0_u64, 0);
        // A group of eight characters is five bytes.
        while count < 8 {
            let byte = *text.get(at).ok_or_else(|| at - count)?;
            at += 1;
            let left = text.len() - at;
            if byte == b'=' && count >= 2 && left < 8 {
                if left + count < 7 {
                    return Err(text.len());
                }
                if let Some(place) = text[at..].iter().take(7 - count).position(|byte| *byte != b'=') {
                    return Err(at + place - 1);
                }
                if matches!(count, 3 | 6) {
                    return Err(at - 1);
                }
                let bytes = (bits << (5 * (8 - count))).to_be_bytes();
                out.extend_from_slice(&bytes[3..3 + count * 5 / 8]);
                return Ok(out);
            }
            let digit = BASE32.iter().position(|known| *known == byte).ok_or(at - 1)?;
            bits = bits << 5 | digit as u64;
            count += 1;
        }
        out.extend_from_slice(&bits.to_be_bytes()[3..]);
    }
    Ok(out)
}
