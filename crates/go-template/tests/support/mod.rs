//! Go's quoted strings, in which the corpus is written.

/// Returns the bytes of a quoted string of Go.
pub(crate) fn unquoted(line: &str) -> Vec<u8> {
    let inner = line.strip_prefix('"').and_then(|line| line.strip_suffix('"')).expect("a string in quotes");
    let (mut text, mut rest) = (Vec::new(), inner.chars());
    while let Some(c) = rest.next() {
        if c != '\\' {
            text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        let c = match rest.next().expect("an escape") {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'a' => '\x07',
            'b' => '\x08',
            'f' => '\x0c',
            'v' => '\x0b',
            'x' => {
                text.push(u8::try_from(number(&mut rest, 2)).expect("two digits"));
                continue;
            }
            'u' => char::from_u32(number(&mut rest, 4)).expect("a character"),
            'U' => char::from_u32(number(&mut rest, 8)).expect("a character"),
            c => c,
        };
        text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
    text
}

fn number(rest: &mut std::str::Chars<'_>, digits: usize) -> u32 {
    let digits: String = rest.take(digits).collect();
    u32::from_str_radix(&digits, 16).expect("hexadecimal digits")
}
