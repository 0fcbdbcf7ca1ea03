use causeway_message::syntax::is_value_byte;

use super::*;

/// Records the name and the validity of each field.
#[derive(Default)]
struct Judged(Vec<(String, bool)>);

impl Sink for Judged {
    fn field(&mut self, field: Field<'_>) {
        let name = match field.name {
            Name::Other(name) => name.to_owned(),
            Name::Known(known) => known.lower().to_owned(),
            other => format!("{other:?}"),
        };
        self.0.push((name, field.value_is_valid));
    }
}

fn literal(first: u8, name: &[u8], value: &[u8]) -> Vec<u8> {
    [&[first, name.len() as u8][..], name, &[value.len() as u8], value].concat()
}

/// Checks a field as a literal without and with insertion, from the table, and with its name from the table.
#[track_caller]
fn check(name: &[u8], value: &[u8], want: (&str, bool)) {
    let mut block = literal(0x00, name, value);
    block.extend(literal(0x40, name, value));
    block.push(0xbe);
    block.extend([&[0x0f, 0x2f, value.len() as u8][..], value].concat());
    let (mut decoder, mut judged) = (Decoder::new(4096), Judged::default());
    decoder.decode(&block, &mut judged).expect("a block");
    assert_eq!(judged.0, vec![(want.0.to_owned(), want.1); 4], "{name:?} {value:?}");
}

// RFC 9113 §8.2, §8.2.1, §8.3: names are lower-case tokens; only pseudo-fields begin with a colon.
#[test]
fn rfc9113_8_2_1_names() {
    for (name, want) in [
        ("content-type", "content-type"),
        ("Content-Type", "Invalid"),
        ("content-typE", "Invalid"),
        ("x-own", "x-own"),
        ("X-own", "Invalid"),
        ("x own", "Invalid"),
        ("x-own:", "Invalid"),
        ("x\0", "Invalid"),
        ("x\u{7f}", "Invalid"),
        ("ü", "Invalid"),
        ("", "Invalid"),
        ("!#$%&'*+-.^_`|~09az", "!#$%&'*+-.^_`|~09az"),
        (":method", "Method"),
        (":scheme", "Scheme"),
        (":authority", "Authority"),
        (":path", "Path"),
        (":protocol", "Protocol"),
        (":status", "Status"),
        (":Method", "OtherPseudo"),
        (":own", "OtherPseudo"),
        (":", "OtherPseudo"),
    ] {
        check(name.as_bytes(), b"value", (want, true));
    }
}

// RFC 9113 §8.2.1: no NUL, CR, LF, and no white space at the ends; RFC 9110 §5.5: no other control byte except HTAB.
#[test]
fn rfc9113_8_2_1_values() {
    for byte in 0..=255u8 {
        let inside = is_value_byte(byte);
        let at_an_end = inside && byte != b' ' && byte != b'\t';
        check(b"x-own", &[b'a', byte, b'b'], ("x-own", inside));
        check(b"server", &[byte, b'b'], ("server", at_an_end));
        check(b":path", &[b'a', byte], ("Path", at_an_end));
        check(b"accept", &[byte], ("accept", at_an_end));
    }
    check(b"x-own", b"", ("x-own", true));
}

/// Asserts that each field received is this one.
struct Expected<'a>(&'a str, &'a str);

impl Sink for Expected<'_> {
    fn field(&mut self, field: Field<'_>) {
        assert_eq!((field.name, field.value), (Name::Other(self.0), self.1.as_bytes()));
    }
}

// Names keep their bytes while the table's memory moves and grows.
#[test]
fn names_and_values_stay_correct_across_evictions() {
    let (mut decoder, mut came) = (Decoder::new(4096), Vec::new());
    for round in 0..3000usize {
        let name = format!("x-{:0width$}", round, width = 1 + round % 40);
        let value = format!("{:1$}", round, round % 97 + 4).replace(' ', "v");
        decoder.decode(&literal(0x40, name.as_bytes(), value.as_bytes()), &mut Judged::default()).expect("a field");
        came.push((name, value));
        let (mut size, mut back) = (0, 0);
        for (name, value) in came.iter().rev() {
            size += field_size(name.len(), value.len());
            if size > 4096 {
                break;
            }
            let mut expected = Expected(name, value);
            decoder.indexed(62 + back, &mut expected).unwrap_or_else(|_| panic!("{round}, {back} back"));
            back += 1;
        }
        assert_eq!(decoder.indexed(62 + back, &mut Judged::default()), Err(HpackError::UnknownIndex), "{round}");
    }
}
