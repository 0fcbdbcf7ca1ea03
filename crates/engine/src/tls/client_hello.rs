//! The fields of a ClientHello that rustls does not return (RFC 8446 §4.1.2). rustls has accepted or refused the
//! message already, so this decides no access: a malformed message has no fields.

use std::borrow::Cow;
use std::net::IpAddr;

const HANDSHAKE_RECORD: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const TLS12: u16 = 0x0303;
/// RFC 6066 §3.
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;
/// RFC 8446 §4.2.1.
const SUPPORTED_VERSIONS: u16 = 43;

/// Returns the server name of a client's first records if it is an IP address. RFC 6066 §3 does not permit it, and
/// rustls ignores it, but some clients send it.
pub(super) fn server_address(records: &[u8]) -> Option<IpAddr> {
    let message = first_message(records)?;
    let mut extension = HelloFields::parse(&message)?.extension(SERVER_NAME)?;
    let mut list = take_vector(&mut extension, 2)?;
    if take_number(&mut list, 1)? != usize::from(HOST_NAME) {
        return None;
    }
    str::from_utf8(take_vector(&mut list, 2)?).ok()?.parse().ok()
}

/// Returns whether a client's first records offer no version from TLS 1.2 on.
pub(super) fn is_before_tls12(records: &[u8]) -> bool {
    let Some(message) = first_message(records) else { return false };
    let Some(fields) = HelloFields::parse(&message) else { return false };
    // RFC 8446 §4.2.1: the extension, if present, determines the versions in place of the older field.
    let listed = fields.extension(SUPPORTED_VERSIONS).and_then(|mut extension| take_vector(&mut extension, 1));
    let is_old = |version: u16| version < TLS12;
    match listed {
        Some(versions) => versions.chunks_exact(2).all(|bytes| is_old(u16::from_be_bytes([bytes[0], bytes[1]]))),
        None => is_old(fields.legacy_version),
    }
}

/// Returns the first handshake message, with its header, if it is complete. It may be fragmented over records (RFC 8446
/// §5.1).
fn first_message(mut records: &[u8]) -> Option<Cow<'_, [u8]>> {
    let mut message = Cow::Borrowed(&[][..]);
    loop {
        let (kind, _version) = (take_number(&mut records, 1)?, take(&mut records, 2)?);
        let fragment = take_vector(&mut records, 2)?;
        if kind != usize::from(HANDSHAKE_RECORD) {
            return None;
        }
        if message.is_empty() {
            message = Cow::Borrowed(fragment);
        } else {
            message.to_mut().extend_from_slice(fragment);
        }
        let mut rest = &message[..];
        if take(&mut rest, 1).and_then(|_| take_vector(&mut rest, 3)).is_some() {
            return Some(message);
        }
    }
}

struct HelloFields<'m> {
    legacy_version: u16,
    extensions: &'m [u8],
}

impl<'m> HelloFields<'m> {
    /// Parses a handshake message; `None` for one that is not a ClientHello.
    fn parse(mut message: &'m [u8]) -> Option<Self> {
        if take_number(&mut message, 1)? != usize::from(CLIENT_HELLO) {
            return None;
        }
        let mut body = take_vector(&mut message, 3)?;
        let legacy_version = u16::try_from(take_number(&mut body, 2)?).ok()?;
        let _random = take(&mut body, 32)?;
        let _session_id = take_vector(&mut body, 1)?;
        let _cipher_suites = take_vector(&mut body, 2)?;
        let _compression_methods = take_vector(&mut body, 1)?;
        // RFC 5246 §7.4.1.2: versions before TLS 1.3 may end here.
        let extensions = if body.is_empty() { body } else { take_vector(&mut body, 2)? };
        Some(Self { legacy_version, extensions })
    }

    fn extension(&self, wanted: u16) -> Option<&'m [u8]> {
        let mut left = self.extensions;
        loop {
            let kind = take_number(&mut left, 2)?;
            let content = take_vector(&mut left, 2)?;
            if kind == usize::from(wanted) {
                return Some(content);
            }
        }
    }
}

/// Takes a vector with a length of `len_bytes` bytes before it (RFC 8446 §3.4).
fn take_vector<'b>(bytes: &mut &'b [u8], len_bytes: usize) -> Option<&'b [u8]> {
    let len = take_number(bytes, len_bytes)?;
    take(bytes, len)
}

/// Takes an unsigned number of `len` bytes, at most 3.
fn take_number(bytes: &mut &[u8], len: usize) -> Option<usize> {
    Some(take(bytes, len)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
}

fn take<'b>(bytes: &mut &'b [u8], len: usize) -> Option<&'b [u8]> {
    let (taken, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(len_bytes: usize, content: &[u8]) -> Vec<u8> {
        let len = u32::try_from(content.len()).unwrap().to_be_bytes();
        [&len[4 - len_bytes..], content].concat()
    }

    fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &vector(2, content)].concat()
    }

    fn named(name: &str) -> Vec<u8> {
        extension(SERVER_NAME, &vector(2, &[&[HOST_NAME][..], &vector(2, name.as_bytes())].concat()))
    }

    fn versions(list: &[u16]) -> Vec<u8> {
        let bytes: Vec<u8> = list.iter().flat_map(|version| version.to_be_bytes()).collect();
        extension(SUPPORTED_VERSIONS, &vector(1, &bytes))
    }

    /// A ClientHello without its record header.
    fn hello(legacy_version: u16, extensions: Option<&[u8]>) -> Vec<u8> {
        let mut body = legacy_version.to_be_bytes().to_vec();
        body.extend([7; 32]);
        body.extend(vector(1, &[9; 32]));
        body.extend(vector(2, &[0xc0, 0x14]));
        body.extend(vector(1, &[0]));
        body.extend(extensions.map(|extensions| vector(2, extensions)).unwrap_or_default());
        [&[CLIENT_HELLO][..], &vector(3, &body)].concat()
    }

    fn record(fragment: &[u8]) -> Vec<u8> {
        [&[HANDSHAKE_RECORD, 3, 1][..], &vector(2, fragment)].concat()
    }

    // RFC 6066 §3: host_name is the only type. Go returns an address in it as the server name.
    #[test]
    fn an_address_as_the_server_name() {
        for (name, want) in [
            ("192.0.2.7", Some("192.0.2.7")),
            ("2001:DB8::7", Some("2001:db8::7")),
            ("a.test", None),
            ("192.0.2", None),
            ("192.0.2.7.", None),
            ("[2001:db8::7]", None),
            ("", None),
        ] {
            let extensions = [extension(23, &[]), named(name), versions(&[0x0304])].concat();
            let found = server_address(&record(&hello(TLS12, Some(&extensions))));
            assert_eq!(found.map(|address| address.to_string()).as_deref(), want, "{name}");
        }
        assert_eq!(server_address(&record(&hello(TLS12, None))), None);
        assert_eq!(server_address(&record(&hello(TLS12, Some(&extension(SERVER_NAME, &[]))))), None);
    }

    // RFC 8446 §4.2.1: supported_versions determines the versions, and legacy_version without it.
    #[test]
    fn versions_before_tls_1_2() {
        for (legacy, listed, want) in [
            (0x0301, None, true),
            (0x0302, None, true),
            (TLS12, None, false),
            (0x0302, Some(&[0x0302, 0x0301][..]), true),
            (TLS12, Some(&[0x0302]), true),
            (0x0301, Some(&[0x0304, 0x0302]), false),
        ] {
            let extensions = listed.map(versions);
            let hello = hello(legacy, extensions.as_deref());
            assert_eq!(is_before_tls12(&record(&hello)), want, "{legacy:x} {listed:x?}");
        }
    }

    // RFC 8446 §5.1: records may fragment a message anywhere.
    #[test]
    fn a_fragmented_message() {
        let message = hello(0x0302, Some(&named("192.0.2.7")));
        for at in 0..=message.len() {
            let (first, second) = message.split_at(at);
            let records = [record(first), record(second)].concat();
            assert!(server_address(&records).is_some() && is_before_tls12(&records), "{at}");
        }
        let each: Vec<u8> = message.iter().flat_map(|byte| record(&[*byte])).collect();
        assert!(server_address(&each).is_some());
    }

    #[test]
    fn malformed_messages_have_no_fields() {
        let whole = record(&hello(0x0302, Some(&[named("192.0.2.7"), versions(&[0x0302])].concat())));
        assert!(server_address(&whole).is_some() && is_before_tls12(&whole));
        for at in 0..whole.len() {
            assert!(server_address(&whole[..at]).is_none() && !is_before_tls12(&whole[..at]), "{at}");
            for change in 1..=255 {
                let mut bytes = whole.clone();
                bytes[at] ^= change;
                // Without a panic.
                let _ = (server_address(&bytes), is_before_tls12(&bytes));
            }
        }
        let other = [&[23, 3, 3][..], &vector(2, &hello(0x0302, None))].concat();
        assert!(!is_before_tls12(&other), "another kind of record");
        assert!(!is_before_tls12(&record(&[2, 0, 0, 0])), "another message");
    }
}
