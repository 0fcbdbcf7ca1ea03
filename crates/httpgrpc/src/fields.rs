//! Fields of HTTP ⇄ headers of a message: one name with all its values.

use causeway_message::octets::{is_value, trim_ows};
use causeway_message::{FieldMap, KnownName, NameRef, is_host_port, names};

use crate::fault::DecodeFault;
use crate::limits::Limits;
use crate::wire::{Fields, Value, field_len, put_len, put_octets};

mod field {
    pub(super) const KEY: u8 = 1;
    pub(super) const VALUES: u8 = 2;
}

/// What a message may still hold of method, target and fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    octets: u32,
    fields: u16,
}

impl Room {
    pub(crate) const fn new(limits: &Limits) -> Self {
        Self { octets: limits.head_bytes_max, fields: limits.fields_max }
    }

    pub(crate) fn octets(&mut self, octets: usize) -> Result<(), DecodeFault> {
        let octets = u32::try_from(octets).ok();
        let left = octets.and_then(|octets| self.octets.checked_sub(octets)).ok_or(DecodeFault::HeadTooLong)?;
        self.octets = left;
        Ok(())
    }

    fn field(&mut self) -> Result<(), DecodeFault> {
        self.fields = self.fields.checked_sub(1).ok_or(DecodeFault::TooManyFields)?;
        Ok(())
    }
}

/// Fields that speak of the connection they came on, or of how their content was sent there (RFC 9110 §7.6.1): a message has neither,
/// and whoever believed them would be confused. Senders copy them from their own peer; they are passed over.
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

/// Takes a header into the fields.
pub(crate) fn take(header: &[u8], fields: &mut FieldMap, room: &mut Room) -> Result<(), DecodeFault> {
    let mut key: &[u8] = b"";
    for part in Fields::new(header) {
        match part? {
            (1, Value::Octets(octets)) => key = octets,
            (field @ (1 | 2), Value::Number(_) | Value::Fixed) => return Err(DecodeFault::WireType(field)),
            _ => {}
        }
    }
    room.field()?;
    // A name of a field map ends at 64 KiB.
    if key.len() > usize::from(u16::MAX) {
        return Err(DecodeFault::HeadTooLong);
    }
    let name = NameRef::parse(key).ok_or(DecodeFault::FieldName)?;
    if is_of_connection(name) {
        return Ok(());
    }
    // As dskit has it: the last header of a name stands.
    fields.remove(name);
    for part in Fields::new(header) {
        let (2, Value::Octets(value)) = part? else { continue };
        // RFC 9110 §5.5: white space around a value is not part of it.
        let value = trim_ows(value);
        if !is_value(value) {
            return Err(DecodeFault::FieldValue);
        }
        room.field()?;
        room.octets(key.len() + value.len())?;
        match name {
            NameRef::Known(known) => fields.push_known(known, value),
            NameRef::Other(other) => fields.push_other(other, value),
        }
    }
    Ok(())
}

/// RFC 9110 §7.2: at most one Host, and a good one.
pub(crate) fn check_host(fields: &FieldMap) -> Result<(), DecodeFault> {
    match fields.get(names::HOST) {
        Some(_) if fields.is_repeated(names::HOST) => Err(DecodeFault::Host),
        Some(host) if !is_host_port(host) => Err(DecodeFault::Host),
        _ => Ok(()),
    }
}

/// Puts a header for each name, with all its values in order, as field `number` of the message.
pub(crate) fn put(number: u8, fields: &FieldMap, leave_out: impl Fn(NameRef<'_>) -> bool, out: &mut Vec<u8>) {
    for (at, (name, value)) in fields.iter().enumerate() {
        if is_of_connection(name) || leave_out(name) {
            continue;
        }
        let repeated = match name {
            NameRef::Known(known) => fields.is_repeated(known),
            NameRef::Other(_) => true,
        };
        if !repeated {
            put_header(number, name, || std::iter::once(value), out);
        } else if is_first(fields, at, name, value) {
            put_header(number, name, || fields.get_all(name), out);
        }
    }
}

/// Whether no field before this one has its name.
fn is_first(fields: &FieldMap, at: usize, name: NameRef<'_>, value: &[u8]) -> bool {
    match name {
        NameRef::Known(_) => !fields.iter().take(at).any(|(before, _)| before == name),
        // Cheaper: a map keeps a name that is not registered before its value, so no two values lie at one place.
        NameRef::Other(_) => fields.get(name).is_some_and(|first| std::ptr::eq(first, value)),
    }
}

fn put_header<'a, I: Iterator<Item = &'a [u8]>>(
    number: u8,
    name: NameRef<'_>,
    values: impl Fn() -> I,
    out: &mut Vec<u8>,
) {
    let name = name.as_str();
    let octets = values().map(|value| field_len(value.len() as u64)).sum::<u64>() + field_len(name.len() as u64);
    put_len(number, octets, out);
    put_len(field::KEY, name.len() as u64, out);
    put_canonical(name, out);
    values().for_each(|value| put_octets(field::VALUES, value, out));
}

/// A name as Go spells it, since Go looks names up by their spelling: a capital at the start and behind each hyphen, and nowhere else.
fn put_canonical(name: &str, out: &mut Vec<u8>) {
    let mut capital = true;
    out.extend(name.bytes().map(|octet| {
        let spelled = if capital { octet.to_ascii_uppercase() } else { octet.to_ascii_lowercase() };
        capital = octet == b'-';
        spelled
    }));
}
