//! Numbers of as many octets as they need, seven bits each, the lowest first; as in protobuf.

/// Appends a number.
pub(crate) fn put(mut number: u64, octets: &mut Vec<u8>) {
    while number >= 0x80 {
        octets.push(number as u8 | 0x80);
        number >>= 7;
    }
    octets.push(number as u8);
}

/// Takes the number at the front; `None` where it is cut. What is longer than ten octets ends there.
pub(crate) fn take(octets: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&octet, rest) = octets.split_first()?;
        *octets = rest;
        number |= u64::from(octet & 0x7f) << shift;
        if octet < 0x80 {
            break;
        }
    }
    Some(number)
}
