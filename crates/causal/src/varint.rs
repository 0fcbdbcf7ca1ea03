//! Variable-length integers: seven bits per byte, the lowest first, as in protobuf.

/// Appends `number`, in one to ten bytes.
pub(crate) fn put(mut number: u64, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Removes the number at the front of `bytes`; `None` if the slice ends within it. Reads at most ten bytes.
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    // Ten bytes of seven bits hold 64 bits; the upper bits of the tenth byte are dropped.
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    Some(number)
}
