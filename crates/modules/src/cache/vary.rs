//! The request fields that select one of several stored responses (RFC 9111 §4.1).

use causeway_message::{FieldMap, FieldName, List, NameRef, names};

use crate::accept_encoding;

/// The fields that a response's Vary names, with the values of its request.
#[derive(Debug, Clone, Default)]
pub(super) struct Vary {
    names: Box<[FieldName]>,
    /// The normalised value of each name, each with [`END`] after it.
    values: Box<[u8]>,
}

/// Names in a Vary whose response is stored. A lookup reads each of them for each response of the key, with a lock.
const NAMES_MAX: usize = 32;

/// No field value contains it (RFC 9110 §5.5).
const END: u8 = b'\n';

/// Returns whether a response with this Vary can be stored.
pub(super) fn is_storable(response: &FieldMap) -> bool {
    // RFC 9111 §4.1: `*` matches no request; nor can a name that is none.
    response.list(names::VARY).all(|name| NameRef::parse(name).is_some_and(|name| name.as_str() != "*"))
        && response.list(names::VARY).nth(NAMES_MAX).is_none()
}

impl Vary {
    /// Reads the response's Vary and copies the request's values.
    pub(super) fn of(response: &FieldMap, request: &FieldMap) -> Self {
        let mut fields: Vec<FieldName> =
            response.list(names::VARY).filter_map(|name| FieldName::parse(std::str::from_utf8(name).ok()?)).collect();
        fields.sort_by(|one, other| one.as_str().cmp(other.as_str()));
        fields.dedup_by(|one, other| one.as_ref() == other.as_ref());
        let mut values = Vec::new();
        for name in &fields {
            write(name.as_ref(), request, &mut values);
        }
        Self { names: fields.into(), values: values.into() }
    }

    /// Returns the names and the values, for a file.
    pub(super) fn parts(&self) -> (&[FieldName], &[u8]) {
        (&self.names, &self.values)
    }

    /// Creates it from the parts in a file.
    pub(super) fn from_parts(names: Vec<FieldName>, values: &[u8]) -> Self {
        Self { names: names.into(), values: values.into() }
    }

    /// Returns whether a request has the same values. `scratch` is an empty buffer.
    pub(super) fn matches(&self, request: &FieldMap, scratch: &mut Vec<u8>) -> bool {
        if self.names.is_empty() {
            return true;
        }
        self.write_values(request, scratch);
        **scratch == *self.values
    }

    /// Writes the normalised values of a request.
    pub(super) fn write_values(&self, request: &FieldMap, out: &mut Vec<u8>) {
        out.clear();
        for name in &self.names {
            write(name.as_ref(), request, out);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.values.len() + self.names.iter().map(|name| name.as_str().len() + size_of::<FieldName>()).sum::<usize>()
    }
}

/// Writes the normalised value of a request field. An absent field and an empty one differ, except for Accept-Encoding.
fn write(name: NameRef<'_>, request: &FieldMap, out: &mut Vec<u8>) {
    if name == NameRef::Known(names::ACCEPT_ENCODING) {
        codings(request, out);
    } else if matches!(name, NameRef::Known(names::ACCEPT | names::ACCEPT_LANGUAGE)) {
        // White space in a list has no meaning (RFC 9110 §5.6.1).
        for value in request.get_all(name) {
            for element in List::new(value) {
                out.push(b',');
                out.extend_from_slice(element);
            }
        }
    } else {
        for value in request.get_all(name) {
            out.push(b',');
            out.extend_from_slice(value);
        }
    }
    out.push(END);
}

/// Writes the codings that the request accepts, in a fixed order and without weights: a response with one of them is
/// acceptable to every request that accepts the same ones (RFC 9110 §12.5.3). Codings outside of the table are written
/// as they stand.
fn codings(request: &FieldMap, out: &mut Vec<u8>) {
    const KNOWN: [&str; 6] = ["gzip", "br", "zstd", "deflate", "identity", "*"];
    let mut accepted = [false; KNOWN.len()];
    let mut refused = [false; KNOWN.len()];
    for element in request.list(names::ACCEPT_ENCODING) {
        let (coding, weight) = accept_encoding::weight(element);
        let coding = if coding.eq_ignore_ascii_case(b"x-gzip") { b"gzip" } else { coding };
        match KNOWN.iter().position(|known| coding.eq_ignore_ascii_case(known.as_bytes())) {
            Some(at) if weight == 0 => refused[at] = true,
            Some(at) => accepted[at] = true,
            None => {
                out.push(b',');
                out.extend_from_slice(element);
            }
        }
    }
    let marks = accepted.into_iter().zip(refused).map(|(accepted, refused)| match (accepted, refused) {
        (true, _) => b'+',
        (false, true) => b'-',
        (false, false) => b'.',
    });
    out.push(b';');
    out.extend(marks);
}

#[cfg(test)]
mod tests {
    use causeway_message::FieldValue;

    use super::*;

    fn fields(all: &[(&str, &str)]) -> FieldMap {
        let mut fields = FieldMap::new();
        for (name, value) in all {
            fields.append(NameRef::parse(name.as_bytes()).unwrap(), FieldValue::parse(value.as_bytes()).unwrap());
        }
        fields
    }

    #[track_caller]
    fn check(vary: &str, one: &[(&str, &str)], other: &[(&str, &str)], want: bool) {
        let vary = Vary::of(&fields(&[("Vary", vary)]), &fields(one));
        assert!(vary.matches(&fields(one), &mut Vec::new()));
        assert_eq!(vary.matches(&fields(other), &mut Vec::new()), want, "{one:?} {other:?}");
    }

    // RFC 9111 §4.1: the request fields that Vary names must match; they may be normalised as their semantics allow.
    #[test]
    fn requests_that_match() {
        check("Origin", &[("Origin", "a")], &[("Origin", "a"), ("Accept", "x")], true);
        check("Origin", &[("Origin", "a")], &[("Origin", "b")], false);
        check("Origin", &[("Origin", "a")], &[], false);
        check("Origin", &[], &[("Origin", "")], false);
        check("origin, X-A", &[("X-A", "1")], &[("x-a", "1")], true);
        check("x-a, X-A", &[("X-A", "1")], &[("x-a", "1")], true);
        check("X-A, X-B", &[("X-A", "1")], &[("X-B", "1")], false);
        check("X-A", &[("X-A", "1"), ("X-A", "2")], &[("X-A", "1")], false);
        check("Accept-Language", &[("Accept-Language", "de, en;q=0.5")], &[("Accept-Language", "de,en;q=0.5")], true);
        check("Accept-Language", &[("Accept-Language", "de, en")], &[("Accept-Language", "en, de")], false);
        let coding = |one: &str, other: &str, want| {
            check("Accept-Encoding", &[("Accept-Encoding", one)], &[("Accept-Encoding", other)], want);
        };
        coding("gzip, br", "br;q=0.5,gzip", true);
        coding("gzip, br", "gzip", false);
        coding("gzip", "gzip;q=0", false);
        coding("br", "br, gzip;q=0.0", false);
        coding("x-gzip", "GZIP", true);
        coding("dcb, gzip", "gzip", false);
        check("Accept-Encoding", &[], &[("Accept-Encoding", "")], true);
    }
}
