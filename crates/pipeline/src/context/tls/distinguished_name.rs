//! The text form of a distinguished name: that of Go's `pkix.Name`, which Caddy shows. It is close to RFC 2253.
//!
//! Known attributes appear in a fixed order; values of one attribute are joined by `+`. Other attributes follow in
//! reverse order, as the identifier's number and the value's DER.

use data_encoding::HEXLOWER;
use x509_parser::asn1_rs::{Any, Tag};
use x509_parser::x509::X509Name;

/// The known X.520 attributes by the last byte of their identifier, in the order of the text.
const KNOWN: [(u8, &str); 9] = [
    (5, "SERIALNUMBER"),
    (3, "CN"),
    (11, "OU"),
    (10, "O"),
    (17, "POSTALCODE"),
    (9, "STREET"),
    (7, "L"),
    (8, "ST"),
    (6, "C"),
];

/// The first two bytes of the identifiers of X.520 attributes: 2.5.4.
const X520: [u8; 2] = [0x55, 4];

/// Returns the common name: the last one, as in Go; empty without one.
pub(super) fn common_name(name: &X509Name<'_>) -> String {
    let values = name.iter_common_name().filter_map(|attribute| string(attribute.attr_value()));
    values.last().unwrap_or_default()
}

pub(super) fn text(name: &X509Name<'_>) -> String {
    let mut known: [Vec<String>; KNOWN.len()] = Default::default();
    let mut others = Vec::new();
    for attribute in name.iter_attributes() {
        let identifier = attribute.attr_type();
        let place = match identifier.as_bytes() {
            [first, second, last] if [*first, *second] == X520 => KNOWN.iter().position(|(known, _)| known == last),
            _ => None,
        };
        let Some(value) = string(attribute.attr_value()) else { continue };
        match place {
            // `SERIALNUMBER` and `CN` have one value: the last one.
            Some(place @ (0 | 1)) => known[place] = if value.is_empty() { Vec::new() } else { vec![value] },
            Some(place) => known[place].push(value),
            None => others.push((identifier.to_id_string(), value)),
        }
    }
    let mut out = String::new();
    for ((_, short), values) in KNOWN.iter().zip(known) {
        for (index, value) in values.iter().enumerate() {
            if !out.is_empty() {
                out.push(if index > 0 { '+' } else { ',' });
            }
            out.push_str(short);
            out.push('=');
            escape(value, &mut out);
        }
    }
    for (identifier, value) in others.iter().rev() {
        if !out.is_empty() {
            out.push(',');
        }
        out.push_str(identifier);
        out.push_str("=#");
        HEXLOWER.encode_append(&der_of(value), &mut out);
    }
    out
}

/// Decodes a string type; replaces invalid parts. `None` for other types.
fn string(value: &Any<'_>) -> Option<String> {
    let bytes = value.data;
    match value.tag() {
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String | Tag::NumericString => {
            Some(String::from_utf8_lossy(bytes).into_owned())
        }
        // Decoded as ISO 8859-1, as other implementations do.
        Tag::T61String => Some(bytes.iter().copied().map(char::from).collect()),
        // UTF-16, big-endian; Go removes a terminating NUL.
        Tag::BmpString => {
            let units = bytes.as_chunks().0.iter().copied().map(u16::from_be_bytes);
            let text: String =
                char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
            Some(text.strip_suffix('\0').map(str::to_owned).unwrap_or(text))
        }
        _ => None,
    }
}

fn escape(value: &str, out: &mut String) {
    for (at, char) in value.char_indices() {
        let is_escaped = match char {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' => true,
            ' ' => at == 0 || at == value.len() - 1,
            '#' => at == 0,
            _ => false,
        };
        if is_escaped {
            out.push('\\');
        }
        out.push(char);
    }
}

/// Encodes a text as a PrintableString (X.680 §41.4) if its characters allow that, otherwise as a UTF8String.
fn der_of(text: &str) -> Vec<u8> {
    const PRINTABLE: u8 = 19;
    const UTF8: u8 = 12;
    let is_printable = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(&byte));
    let mut der = vec![if is_printable { PRINTABLE } else { UTF8 }];
    match u8::try_from(text.len()) {
        Ok(len) if len < 0x80 => der.push(len),
        _ => {
            // The long form: the number of length bytes, then the length without leading zeros (X.690 §8.1.3.5).
            let len = text.len().to_be_bytes();
            let len = &len[len.iter().position(|byte| *byte != 0).unwrap_or_default()..];
            der.push(0x80 | len.len() as u8);
            der.extend_from_slice(len);
        }
    }
    der.extend_from_slice(text.as_bytes());
    der
}
