//! IP addresses as text, without the cost of `std::fmt` for IPv4.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};

/// The longest text: an IPv6 address with an IPv4 address in it.
const TEXT_BYTES_MAX: usize = 45;

/// An address as text, on the stack.
pub(crate) struct IpText {
    text: [u8; TEXT_BYTES_MAX],
    len: usize,
}

impl IpText {
    pub(crate) fn of(ip: IpAddr) -> Self {
        let ip = match ip {
            IpAddr::V4(ip) => return Self::of_v4(ip),
            IpAddr::V6(ip) => ip,
        };
        let mut text = [0; TEXT_BYTES_MAX];
        let mut rest = &mut text[..];
        // The longest address fits.
        let _ = write!(rest, "{ip}");
        let left = rest.len();
        Self { text, len: TEXT_BYTES_MAX - left }
    }

    /// `std::fmt` takes several times as long for it.
    fn of_v4(ip: Ipv4Addr) -> Self {
        let (mut text, mut len) = ([0; TEXT_BYTES_MAX], 0);
        let mut put = |byte| {
            text[len] = byte;
            len += 1;
        };
        for (index, octet) in ip.octets().into_iter().enumerate() {
            if index > 0 {
                put(b'.');
            }
            if octet >= 100 {
                put(b'0' + octet / 100);
            }
            if octet >= 10 {
                put(b'0' + octet / 10 % 10);
            }
            put(b'0' + octet % 10);
        }
        Self { text, len }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.text[..self.len]
    }
}

/// Appends an address as text.
pub(crate) fn put_ip(ip: IpAddr, out: &mut Vec<u8>) {
    out.extend_from_slice(IpText::of(ip).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_that_of_std() {
        for octet in 0..=u8::MAX {
            let ip = IpAddr::from([octet, 255 - octet, 0, octet]);
            assert_eq!(IpText::of(ip).as_bytes(), ip.to_string().as_bytes());
        }
        for text in ["::", "::1", "2001:db8::ff", "::ffff:192.0.2.1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"] {
            assert_eq!(IpText::of(text.parse().unwrap()).as_bytes(), text.as_bytes());
        }
    }
}
