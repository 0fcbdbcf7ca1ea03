//! Name-value pairs (§3.4): the parameters of a request.

/// The largest length that takes one byte.
const SHORT_MAX: usize = 127;
/// The bit that distinguishes a length of four bytes.
const LONG: u32 = 1 << 31;

/// Appends a parameter.
///
/// # Panics
/// If the name or the value has 2 GiB or more.
pub fn put_parameter(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    put_lengths(name.len(), value.len(), out);
    out.extend_from_slice(name);
    out.extend_from_slice(value);
}

/// Appends the lengths in bytes of a name and a value. The caller then appends the name and the value, for example
/// piece by piece.
///
/// # Panics
/// If a length is 2 GiB or more.
pub fn put_lengths(name: usize, value: usize, out: &mut Vec<u8>) {
    for length in [name, value] {
        if length <= SHORT_MAX {
            out.push(length as u8);
        } else {
            let length = u32::try_from(length).ok().filter(|length| *length < LONG);
            out.extend_from_slice(&(length.expect("a length below 2 GiB") | LONG).to_be_bytes());
        }
    }
}

/// Returns the length of the first pair in bytes, its lengths included; `None` if `pairs` does not begin with a whole
/// pair.
pub(crate) fn pair_len(pairs: &[u8]) -> Option<usize> {
    let (name, name_width) = length(pairs)?;
    let (value, value_width) = length(&pairs[name_width..])?;
    let len = name.checked_add(value)?.checked_add(name_width + value_width)?;
    (len <= pairs.len()).then_some(len)
}

/// Reads a length, and the number of its own bytes.
fn length(bytes: &[u8]) -> Option<(usize, usize)> {
    let first = *bytes.first()?;
    if usize::from(first) <= SHORT_MAX {
        return Some((usize::from(first), 1));
    }
    let long = u32::from_be_bytes(*bytes.first_chunk()?);
    Some(((long & !LONG) as usize, 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// §3.4: a length up to 127 takes one byte, a longer one four with the high bit set.
    #[test]
    fn lengths_take_one_byte_or_four() {
        for (name, value, want) in [
            (0, 0, &[0, 0][..]),
            (1, 127, &[1, 127]),
            (127, 128, &[127, 0x80, 0, 0, 128]),
            (128, 0, &[0x80, 0, 0, 128, 0]),
            (70_000, 1 << 24, &[0x80, 1, 0x11, 0x70, 0x81, 0, 0, 0]),
        ] {
            let mut out = Vec::new();
            put_lengths(name, value, &mut out);
            assert_eq!(out, want, "{name} {value}");
        }
        for (name, value) in [(0, 0), (1, 127), (127, 128), (128, 0), (300, 70_000)] {
            let mut out = Vec::new();
            put_parameter(&vec![b'n'; name], &vec![b'v'; value], &mut out);
            assert_eq!(pair_len(&out), Some(out.len()), "{name} {value}");
            for cut in 0..out.len().min(20) {
                assert_eq!(pair_len(&out[..cut]), None);
            }
            assert_eq!(pair_len(&out[..out.len() - usize::from(name + value > 0)]).is_some(), name + value == 0);
        }
    }
}
