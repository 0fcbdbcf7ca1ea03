//! Converts HTTP fields to the headers of a message and back. A header has one name and all its values.

use causeway_message::syntax::{is_value, trim_ows};
use causeway_message::{FieldMap, KnownName, NameRef, is_host_port, names};

use crate::error::DecodeError;
use crate::limits::Limits;
use crate::wire::{Fields, Value, field_len, put_bytes, put_len};

/// Field numbers of `Header`.
mod field {
    pub(super) const KEY: u32 = 1;
    pub(super) const VALUES: u32 = 2;
}

/// The remaining budget of a message for method, target and fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadBudget {
    bytes: u32,
    fields: u16,
}

impl HeadBudget {
    pub(crate) const fn new(limits: &Limits) -> Self {
        Self { bytes: limits.head_bytes_max, fields: limits.fields_max }
    }

    pub(crate) fn bytes(&mut self, bytes: usize) -> Result<(), DecodeError> {
        let bytes = u32::try_from(bytes).ok();
        let left = bytes.and_then(|bytes| self.bytes.checked_sub(bytes)).ok_or(DecodeError::HeadTooLong)?;
        self.bytes = left;
        Ok(())
    }

    fn field(&mut self) -> Result<(), DecodeError> {
        self.fields = self.fields.checked_sub(1).ok_or(DecodeError::TooManyFields)?;
        Ok(())
    }
}

/// Fields about the connection on which they arrived, or about the framing of their content there (RFC 9110 §7.6.1).
/// A message has neither, so they could only mislead a recipient. Senders copy them from their own peer; the codec
/// drops them.
static OF_CONNECTION: [bool; KnownName::COUNT] = {
    let mut table = [false; KnownName::COUNT];
    table[names::CONNECTION.index()] = true;
    table[names::PROXY_CONNECTION.index()] = true;
    table[names::KEEP_ALIVE.index()] = true;
    table[names::TRANSFER_ENCODING.index()] = true;
    table[names::UPGRADE.index()] = true;
    table[names::HTTP2_SETTINGS.index()] = true;
    table[names::TE.index()] = true;
    table[names::TRAILER.index()] = true;
    table[names::EXPECT.index()] = true;
    table
};

fn is_of_connection(name: NameRef<'_>) -> bool {
    matches!(name, NameRef::Known(known) if OF_CONNECTION[known.index()])
}

/// Parses a header of a message and adds its values to the fields.
pub(crate) fn take(header: &[u8], fields: &mut FieldMap, budget: &mut HeadBudget) -> Result<(), DecodeError> {
    let mut key: &[u8] = b"";
    for part in Fields::new(header) {
        match part? {
            (field::KEY, Value::Bytes(bytes)) => key = bytes,
            (field @ (field::KEY | field::VALUES), Value::Number(_) | Value::Fixed) => {
                return Err(DecodeError::WireType(field));
            }
            _ => {}
        }
    }
    budget.field()?;
    // The field map limits a name to 64 KiB.
    if key.len() > usize::from(u16::MAX) {
        return Err(DecodeError::HeadTooLong);
    }
    let name = NameRef::parse(key).ok_or(DecodeError::FieldName)?;
    if is_of_connection(name) {
        return Ok(());
    }
    // As in dskit, the last header of a name replaces earlier ones.
    // Values of the replaced header stay counted in `budget`, so replacing is not free.
    fields.remove(name);
    for part in Fields::new(header) {
        // The second pass reads the values: the key may follow them on the wire.
        let (field::VALUES, Value::Bytes(value)) = part? else { continue };
        // RFC 9110 §5.5: whitespace around a value is not part of it.
        let value = trim_ows(value);
        if !is_value(value) {
            return Err(DecodeError::FieldValue);
        }
        budget.field()?;
        // The field map stores the name once for each value.
        budget.bytes(key.len() + value.len())?;
        match name {
            NameRef::Known(known) => fields.push_known(known, value),
            NameRef::Other(other) => fields.push_other(other, value),
        }
    }
    Ok(())
}

/// Checks RFC 9110 §7.2: at most one Host, with a valid value.
pub(crate) fn check_host(fields: &FieldMap) -> Result<(), DecodeError> {
    match fields.get(names::HOST) {
        Some(_) if fields.is_repeated(names::HOST) => Err(DecodeError::Host),
        Some(host) if !is_host_port(host) => Err(DecodeError::Host),
        _ => Ok(()),
    }
}

/// Appends one header per name, with all its values in order, as field `number` of the message.
pub(crate) fn put(number: u32, fields: &FieldMap, leave_out: impl Fn(NameRef<'_>) -> bool, out: &mut Vec<u8>) {
    for (at, (name, value)) in fields.iter().enumerate() {
        if is_of_connection(name) || leave_out(name) {
            continue;
        }
        let repeated = match name {
            NameRef::Known(known) => fields.is_repeated(known),
            NameRef::Other(_) => true,
        };
        // A single value needs no search for others of its name.
        if !repeated {
            put_header(number, name, || std::iter::once(value), out);
        } else if is_first(fields, at, name, value) {
            put_header(number, name, || fields.get_all(name), out);
        }
    }
}

/// Returns whether no earlier field has the same name.
fn is_first(fields: &FieldMap, at: usize, name: NameRef<'_>, value: &[u8]) -> bool {
    match name {
        NameRef::Known(_) => !fields.iter().take(at).any(|(before, _)| before == name),
        // Cheaper than a scan by name: the map stores an unregistered name before its value, so two values never have
        // one address.
        NameRef::Other(_) => fields.get(name).is_some_and(|first| std::ptr::eq(first, value)),
    }
}

fn put_header<'a, I: Iterator<Item = &'a [u8]>>(
    number: u32,
    name: NameRef<'_>,
    values: impl Fn() -> I,
    out: &mut Vec<u8>,
) {
    let name = name.as_str();
    let bytes = values().map(|value| field_len(value.len() as u64)).sum::<u64>() + field_len(name.len() as u64);
    put_len(number, bytes, out);
    put_len(field::KEY, name.len() as u64, out);
    put_canonical(name, out);
    values().for_each(|value| put_bytes(field::VALUES, value, out));
}

/// Appends a name in Go's canonical spelling, which Go uses for lookups: upper case at the start and after each
/// hyphen, lower case elsewhere.
fn put_canonical(name: &str, out: &mut Vec<u8>) {
    let mut capital = true;
    out.extend(name.bytes().map(|byte| {
        let spelled = if capital { byte.to_ascii_uppercase() } else { byte.to_ascii_lowercase() };
        capital = byte == b'-';
        spelled
    }));
}
