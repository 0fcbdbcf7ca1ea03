//! The request's fields as variables: `HTTP_` and the name in capitals, with `_` for `-` (RFC 3875 §4.1.18).

use causeway_fastcgi::put_lengths;
use causeway_message::{FieldMap, KnownName, NameRef, names};

const PREFIX: &str = "HTTP_";

/// The variables of fields that the configuration sets itself.
pub(super) struct OwnFields(Box<[Box<[u8]>]>);

impl OwnFields {
    /// Takes the fields' variables from the names of all variables.
    pub(super) fn new<'n>(names: impl Iterator<Item = &'n str>) -> Self {
        Self(names.filter_map(|name| name.strip_prefix(PREFIX)).map(|name| name.as_bytes().into()).collect())
    }

    fn has(&self, name: &[u8]) -> bool {
        self.0
            .iter()
            .any(|own| own.len() == name.len() && name.iter().map(|&byte| variable(byte)).eq(own.iter().copied()))
    }
}

/// Returns the byte of a variable's name for a byte of a field's name.
fn variable(byte: u8) -> u8 {
    if byte == b'-' { b'_' } else { byte.to_ascii_uppercase() }
}

/// Appends a variable for each field, except for `Host`, for `Proxy`, and for those that the configuration sets.
pub(super) fn put_fields(fields: &FieldMap, own: &OwnFields, out: &mut Vec<u8>) {
    // The server has dropped the client's names with `_`, so these are the operator's (`header_up`).
    let has_underscores = fields.unregistered().any(|name| name.contains('_'));
    for (at, (name, _)) in fields.iter().enumerate() {
        let is_left_out = match name {
            // HTTP_HOST is the authority, which may be elsewhere.
            NameRef::Known(names::HOST) => true,
            // httpoxy.org: HTTP_PROXY sets the proxy of many programs' own requests.
            NameRef::Other(name) => name.eq_ignore_ascii_case("proxy"),
            NameRef::Known(_) => false,
        };
        if is_left_out || own.has(name.as_str().as_bytes()) || has_underscores && is_shadowed(name, fields) {
            continue;
        }
        let is_single = match name {
            NameRef::Known(known) => !fields.is_repeated(known),
            NameRef::Other(_) => false,
        };
        // One variable for all fields of a name, at the place of the first.
        if is_single || !fields.iter().take(at).any(|(earlier, _)| is_same(earlier, name)) {
            put_field(name, fields, out);
        }
    }
}

fn is_same(one: NameRef<'_>, other: NameRef<'_>) -> bool {
    match (one, other) {
        (NameRef::Known(one), NameRef::Known(other)) => one == other,
        (NameRef::Other(one), NameRef::Other(other)) => one.eq_ignore_ascii_case(other),
        _ => false,
    }
}

/// Returns whether the operator has set a field that differs from this one only in `_`: the client must not be able to
/// replace its variable.
#[cold]
fn is_shadowed(name: NameRef<'_>, fields: &FieldMap) -> bool {
    let name = name.as_str();
    let is_variable = |other: &str| other.bytes().map(variable).eq(name.bytes().map(variable));
    !name.contains('_') && fields.unregistered().any(|other| other.contains('_') && is_variable(other))
}

fn put_field(name: NameRef<'_>, fields: &FieldMap, out: &mut Vec<u8>) {
    let text = name.as_str();
    let between = separator(name);
    let values = || fields.get_all(name);
    let len: usize = values().map(|value| value.len() + between.len()).sum();
    put_lengths(PREFIX.len() + text.len(), len - between.len(), out);
    out.extend_from_slice(PREFIX.as_bytes());
    out.extend(text.bytes().map(variable));
    for (number, value) in values().enumerate() {
        if number > 0 {
            out.extend_from_slice(between);
        }
        out.extend_from_slice(value);
    }
}

/// RFC 9110 §5.3: values are joined by commas. DEVIATES Caddy: RFC 6265 §4.2.1: cookies by semicolons.
fn separator(name: NameRef<'_>) -> &'static [u8] {
    const COOKIE: KnownName = names::COOKIE;
    if name == NameRef::Known(COOKIE) { b"; " } else { b", " }
}
