//! The trace that a request belongs to: the fields `traceparent` and `tracestate` of W3C Trace Context, level 1.

use causeway_message::{FieldMap, names};
use data_encoding::HEXLOWER;

/// Bytes of a `traceparent` of version 00.
pub(super) const FIELD_BYTES: usize = 55;
/// Members of a `tracestate`. §3.3.1.1
const MEMBERS_MAX: usize = 32;

/// The span of the request's sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) trace: [u8; 16],
    pub(super) span: [u8; 8],
    pub(super) is_sampled: bool,
}

impl Parent {
    /// Reads `traceparent`; `None` if there is none or it is invalid, so that the request begins a trace.
    pub(super) fn of(fields: &FieldMap) -> Option<Self> {
        // §4.3: more than one field is invalid.
        if fields.is_repeated(names::TRACEPARENT) {
            return None;
        }
        Self::parse(fields.get(names::TRACEPARENT)?)
    }

    /// Parses a value. §3.2.2: a later version may have more after the flags, with a dash between.
    fn parse(text: &[u8]) -> Option<Self> {
        let (text, rest) = text.split_at_checked(FIELD_BYTES)?;
        let [version] = hex(&text[..2])?;
        let is_long = match version {
            0 => !rest.is_empty(),
            0xff => true,
            _ => !rest.is_empty() && rest[0] != b'-',
        };
        if is_long || text[2] != b'-' || text[35] != b'-' || text[52] != b'-' {
            return None;
        }
        let (trace, span, [flags]) = (hex(&text[3..35])?, hex(&text[36..52])?, hex(&text[53..])?);
        // §3.2.2.3, §3.2.2.4: zeros are no ids. §3.2.2.5: of the flags only the lowest bit has a meaning.
        (trace != [0; 16] && span != [0; 8]).then_some(Self { trace, span, is_sampled: flags & 1 == 1 })
    }
}

/// Decodes lower-case hexadecimal digits; capitals are invalid (§3.2.2.1).
fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    HEXLOWER.decode_mut(text, &mut bytes).ok()?;
    Some(bytes)
}

/// Returns a `traceparent`.
pub(super) fn field(trace: &[u8; 16], span: &[u8; 8], is_sampled: bool) -> [u8; FIELD_BYTES] {
    let mut text = [b'-'; FIELD_BYTES];
    let mut put = |at: usize, bytes: &[u8]| {
        HEXLOWER.encode_mut(bytes, &mut text[at..at + 2 * bytes.len()]);
    };
    put(0, &[0]);
    put(3, trace);
    put(36, span);
    put(53, &[is_sampled.into()]);
    text
}

/// Returns whether the `tracestate` fields, which are one list, are valid. §3.3.1.1 to §3.3.1.4
pub(super) fn state_is_valid(fields: &FieldMap) -> bool {
    let members = || {
        let values = fields.get_all(names::TRACESTATE);
        let members = values.flat_map(|value| value.split(|byte| *byte == b','));
        members.map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
    };
    let key = |member: &'_ [u8]| member.iter().position(|byte| *byte == b'=').map(|at| at..at + 1);
    members().enumerate().all(|(index, member)| {
        let Some(equals) = key(member) else { return false };
        let (name, value) = (&member[..equals.start], &member[equals.end..]);
        // At most 31 comparisons.
        let is_repeat =
            || members().take(index).any(|other| key(other).is_some_and(|equals| other[..equals.start] == *name));
        index < MEMBERS_MAX && is_key(name) && is_member_value(value) && !is_repeat()
    })
}

fn is_key(name: &[u8]) -> bool {
    let is_name = |name: &[u8], max: usize, digit_first: bool| {
        let may_begin = |byte: &u8| byte.is_ascii_lowercase() || digit_first && byte.is_ascii_digit();
        let may_follow = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/".contains(byte);
        name.len() <= max && name.first().is_some_and(may_begin) && name.iter().all(may_follow)
    };
    match name.iter().position(|byte| *byte == b'@') {
        Some(at) => is_name(&name[..at], 241, true) && is_name(&name[at + 1..], 14, false),
        None => is_name(name, 256, false),
    }
}

/// The white space around a member is no part of its value.
fn is_member_value(value: &[u8]) -> bool {
    (1..=256).contains(&value.len())
        && value.iter().all(|byte| matches!(byte, b' '..=b'~' if *byte != b',' && *byte != b'='))
}

#[cfg(test)]
mod tests {
    use causeway_message::{FieldValue, NameRef};

    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn fields(name: &'static str, values: &[&str]) -> FieldMap {
        let mut fields = FieldMap::default();
        let name = NameRef::parse(name.as_bytes()).expect("a name");
        for value in values {
            fields.append(name, FieldValue::parse(value.as_bytes()).expect("a value"));
        }
        fields
    }

    // §3.2: the cases of W3C's test suite for `traceparent`.
    #[test]
    fn traceparents() {
        let ids = "-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-";
        for (text, sampled) in [
            (VALID.to_owned(), Some(true)),
            (format!("00{ids}00"), Some(false)),
            // Other flags have no meaning.
            (format!("00{ids}ff"), Some(true)),
            (format!("00{ids}02"), Some(false)),
            // A later version: the part of version 00, and more only after a dash.
            (format!("01{ids}01"), Some(true)),
            (format!("cc{ids}01-what-the-future-will-be"), Some(true)),
            (format!("cc{ids}01-"), Some(true)),
            (format!("cc{ids}01.what"), None),
            (format!("cc{ids}0"), None),
            // Version 00 has nothing more.
            (format!("00{ids}01-"), None),
            (format!("00{ids}01-more"), None),
            (format!("00{ids}011"), None),
            // Versions that are none.
            (format!("ff{ids}01"), None),
            (format!("0{ids}01"), None),
            (format!("0.{ids}01"), None),
            (format!("FE{ids}01"), None),
            // Capitals, other characters, wrong lengths.
            (VALID.to_uppercase(), None),
            (VALID.replace("0af", ".af"), None),
            (VALID.replace("b7a", ".7a"), None),
            (format!("00{ids}.0"), None),
            (format!("00{ids}0."), None),
            (format!("00{ids}1"), None),
            (VALID.replace('-', "_"), None),
            (VALID.replace("319c-", "319-"), None),
            (VALID.replace("319c-", "319cd-"), None),
            // Zeros.
            (VALID.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)), None),
            (VALID.replace("b7ad6b7169203331", &"0".repeat(16)), None),
            (String::new(), None),
        ] {
            let parsed = Parent::of(&fields("traceparent", &[&text]));
            assert_eq!(parsed.map(|parent| parent.is_sampled), sampled, "{text}");
        }
        for end in 0..VALID.len() {
            assert_eq!(Parent::parse(&VALID.as_bytes()[..end]), None);
        }
        assert_eq!(Parent::of(&fields("traceparent", &[VALID, VALID])), None);
        assert_eq!(Parent::of(&FieldMap::default()), None);
        let parent = Parent::parse(VALID.as_bytes()).expect("valid");
        assert_eq!(field(&parent.trace, &parent.span, true), VALID.as_bytes());
    }

    // §3.3: a list of at most 32 members with different keys; white space and empty members are permitted.
    #[test]
    fn tracestates() {
        let many = |count: usize| (0..count).map(|index| format!("k{index}=1")).collect::<Vec<_>>().join(",");
        let (long, longer) = (format!("a{}", "z".repeat(255)), format!("a{}", "z".repeat(256)));
        for (values, valid) in [
            (vec!["foo=1"], true),
            (vec!["foo=1", "bar=2"], true),
            (vec!["foo=1 \t , \t bar=2,"], true),
            (vec!["foo=1,,bar=2"], true),
            (vec![""], true),
            (vec!["foo@=1"], false),
            (vec!["@foo=1"], false),
            (vec!["foo@bar=1", "0t@s=2"], true),
            (vec!["0foo=1"], false),
            (vec!["foo =1"], false),
            (vec!["FOO=1"], false),
            (vec!["foo.bar=1"], false),
            (vec!["a*/-_0=! ~"], true),
            (vec!["foo"], false),
            (vec!["foo="], false),
            (vec!["foo=bar=baz"], false),
            (vec!["foo=1,foo=1"], false),
            (vec!["foo=1", "foo=2"], false),
        ] {
            assert_eq!(state_is_valid(&fields("tracestate", &values)), valid, "{values:?}");
        }
        for (text, valid) in [
            (many(32), true),
            (many(33), false),
            (format!("{long}=1"), true),
            (format!("{longer}=1"), false),
            (format!("a={long}"), true),
            (format!("a={longer}"), false),
        ] {
            assert_eq!(state_is_valid(&fields("tracestate", &[&text])), valid, "{text}");
        }
    }
}
