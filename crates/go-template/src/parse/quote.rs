//! The forms of strings and characters in Go.

/// Returns the text of a string in quotes or backquotes, or `None` if an escape is not one of Go's.
pub(crate) fn unquote(quoted: &[u8]) -> Option<Vec<u8>> {
    let (quote, inner) = (*quoted.first()?, quoted.get(1..quoted.len().checked_sub(1)?)?);
    if quote == b'`' {
        return Some(inner.iter().copied().filter(|&byte| byte != b'\r').collect());
    }
    let mut text = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while !rest.is_empty() {
        rest = match unescape(rest, quote)? {
            (Unit::Byte(byte), rest) => {
                text.push(byte);
                rest
            }
            (Unit::Char(c), rest) => {
                text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                rest
            }
        };
    }
    Some(text)
}

/// A character, or a byte by its number.
pub(crate) enum Unit {
    Char(char),
    Byte(u8),
}

/// Reads one character or escape.
pub(crate) fn unescape(input: &[u8], quote: u8) -> Option<(Unit, &[u8])> {
    let (&first, rest) = input.split_first()?;
    if first == quote || first == b'\n' {
        return None;
    }
    if first != b'\\' {
        let (c, size) = bstr::decode_utf8(input);
        return Some((c.map_or(Unit::Byte(first), Unit::Char), &input[size..]));
    }
    let (&letter, rest) = rest.split_first()?;
    let digits = |rest: &'_ [u8], count: usize, radix: u32| -> Option<u32> {
        let digits = std::str::from_utf8(rest.get(..count)?).ok()?;
        // `from_str_radix` accepts a sign.
        digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(())?;
        u32::from_str_radix(digits, radix).ok()
    };
    let byte = match letter {
        b'a' => 7,
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 11,
        b'\\' => b'\\',
        b'\'' | b'"' if letter == quote => letter,
        b'x' => return Some((Unit::Byte(u8::try_from(digits(rest, 2, 16)?).ok()?), &rest[2..])),
        b'u' => return Some((Unit::Char(char::from_u32(digits(rest, 4, 16)?)?), &rest[4..])),
        b'U' => return Some((Unit::Char(char::from_u32(digits(rest, 8, 16)?)?), &rest[8..])),
        b'0'..=b'7' => {
            let number = digits(&input[1..], 3, 8)?;
            return Some((Unit::Byte(u8::try_from(number).ok()?), &rest[2..]));
        }
        _ => return None,
    };
    Some((Unit::Char(char::from(byte)), rest))
}
