//! Comma-separated lists (RFC 9110 §5.6.1).

use crate::syntax::trim_ows;

/// Iterates over the elements of one list-valued field value. Trims white space around each element, skips empty
/// elements (RFC 9110 §5.6.1.2) and does not split at a comma inside a quoted string (§5.6.4). An unterminated quoted
/// string extends to the end of the value.
#[derive(Clone, Debug)]
pub struct List<'a>(&'a [u8]);

impl<'a> List<'a> {
    /// Iterates over the elements of `value`; does not allocate.
    #[must_use]
    pub const fn new(value: &'a [u8]) -> Self {
        Self(value)
    }
}

impl<'a> Iterator for List<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while !self.0.is_empty() {
            let end = element_end(self.0);
            let element = trim_ows(&self.0[..end]);
            self.0 = &self.0[(end + 1).min(self.0.len())..];
            if !element.is_empty() {
                return Some(element);
            }
        }
        None
    }
}

fn element_end(bytes: &[u8]) -> usize {
    let mut at = 0;
    let mut quoted = false;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => quoted = !quoted,
            // A backslash escapes the next byte inside a quoted string only (RFC 9110 §5.6.4).
            b'\\' if quoted => at += 1,
            b',' if !quoted => return at,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc9110_5_6_1_lists() {
        for (value, want) in [
            ("", &[][..]),
            (" , ,", &[]),
            ("a", &["a"]),
            ("a,b ,\tc", &["a", "b", "c"]),
            ("\"a,b\", c", &["\"a,b\"", "c"]),
            (r#""a\",b",c"#, &[r#""a\",b""#, "c"]),
            ("\"a,b", &["\"a,b"]),
            ("\"a\\", &["\"a\\"]),
        ] {
            let got: Vec<_> = List::new(value.as_bytes()).map(|e| std::str::from_utf8(e).unwrap()).collect();
            assert_eq!(got, want, "{value:?}");
        }
    }
}
