//! Sprig's functions for random values and hashes of passwords.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use causeway_go_template::{Call, FunctionError, Functions, Signature, Type, Value};

use super::text::bytes_of;

/// The steps of a bcrypt hash, which takes about as long as a tenth of an execution may.
const BCRYPT_STEPS: usize = 1_000_000;
/// Go's default.
const BCRYPT_COST: u32 = 10;
/// The bytes of a password that bcrypt takes.
const PASSWORD_BYTES_MAX: usize = 72;

/// Adds the functions.
pub(super) fn with(functions: Functions) -> Functions {
    const NONE: Signature = Signature::fixed(&[]);
    const COUNT: Signature = Signature::fixed(&[Type::Int]);
    const TEXT: Signature = Signature::fixed(&[Type::String]);
    functions
        .with("bcrypt", TEXT, |call, args| Ok(hashed(call, bytes_of(&args[0]))?.into()))
        .with("htpasswd", Signature::fixed(&[Type::String, Type::String]), |call, args| {
            let user = bytes_of(&args[0]);
            if user.contains(&b':') {
                return Ok([b"invalid username: ", user].concat().into());
            }
            Ok([user, b":", hashed(call, bytes_of(&args[1]))?.as_bytes()].concat().into())
        })
        .with("randAlpha", COUNT, |call, args| characters(call, &args[0], u8::is_ascii_alphabetic))
        .with("randAlphaNum", COUNT, |call, args| characters(call, &args[0], u8::is_ascii_alphanumeric))
        .with("randAscii", COUNT, |call, args| characters(call, &args[0], |byte| matches!(byte, b' '..=b'~')))
        .with("randBytes", COUNT, |call, args| {
            let count =
                usize::try_from(args[0].as_integer().unwrap_or(0)).map_err(|_| "makeslice: len out of range")?;
            call.allocate(count.saturating_mul(3))?;
            let mut bytes = vec![0; count];
            fill(&mut bytes)?;
            Ok(BASE64_STANDARD.encode(bytes).into())
        })
        .with("randInt", Signature::fixed(&[Type::Int, Type::Int]), |_, args| {
            let number = |index: usize| args[index].as_integer().unwrap_or(0);
            let range = number(1).wrapping_sub(number(0));
            let range = u64::try_from(range).ok().filter(|range| *range > 0).ok_or("invalid argument to Intn")?;
            Ok(Value::Int(number(0).wrapping_add_unsigned(below(range)?)))
        })
        .with("randNumeric", COUNT, |call, args| characters(call, &args[0], u8::is_ascii_digit))
        .with("shuffle", TEXT, |call, args| {
            let letters = String::from_utf8_lossy(bytes_of(&args[0]));
            call.allocate(letters.len().saturating_mul(4))?;
            call.spend(letters.len())?;
            let mut letters: Vec<char> = letters.chars().collect();
            // Fisher and Yates: each letter changes places with one of those up to it.
            for index in (1..letters.len()).rev() {
                letters.swap(index, below(index as u64 + 1)? as usize);
            }
            Ok(letters.into_iter().collect::<String>().into())
        })
        .with("uuidv4", NONE, |_, _| uuid())
}

fn fill(bytes: &mut [u8]) -> Result<(), FunctionError> {
    getrandom::fill(bytes).map_err(|error| format!("no random bytes: {error}").into())
}

/// Returns a number below `range`, which is not 0, each with the same probability.
fn below(range: u64) -> Result<u64, FunctionError> {
    // The largest multiple of the range: a number from there on would make small results more likely.
    let end = u64::MAX - u64::MAX % range;
    loop {
        let mut bytes = [0; 8];
        fill(&mut bytes)?;
        let number = u64::from_ne_bytes(bytes);
        if number < end {
            return Ok(number % range);
        }
    }
}

/// Makes a text of so many characters of a set; a count below 0 makes none, as in Sprig.
fn characters(call: &Call<'_>, count: &Value, is_wanted: fn(&u8) -> bool) -> Result<Value, FunctionError> {
    let count = usize::try_from(count.as_integer().unwrap_or(0)).unwrap_or(0);
    call.allocate(count.saturating_add(256))?;
    call.spend(count)?;
    let mut out = Vec::with_capacity(count);
    let mut bytes = [0; 256];
    while out.len() < count {
        fill(&mut bytes)?;
        // Each byte of 7 bits has the same probability.
        let wanted = bytes.iter().map(|byte| byte & 0x7f).filter(is_wanted);
        out.extend(wanted.take(count - out.len()));
    }
    Ok(out.into())
}

/// RFC 9562 §5.4: all bits but those of the version and the variant are random.
fn uuid() -> Result<Value, FunctionError> {
    let mut bytes = [0; 16];
    fill(&mut bytes)?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut uuid = String::new();
    for (index, byte) in bytes.iter().enumerate() {
        uuid.push_str(if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" });
        uuid.push_str(&format!("{byte:02x}"));
    }
    Ok(uuid.into())
}

/// Returns the bcrypt hash of a password or, as in Sprig, the reason why there is none.
fn hashed(call: &Call<'_>, password: &[u8]) -> Result<String, FunctionError> {
    call.spend(BCRYPT_STEPS)?;
    if password.len() > PASSWORD_BYTES_MAX {
        return Ok("failed to encrypt string with bcrypt: bcrypt: password length exceeds 72 bytes".to_owned());
    }
    let hashed = bcrypt::hash_with_result(password, BCRYPT_COST);
    let parts = hashed.map_err(|error| format!("failed to encrypt string with bcrypt: {error}"))?;
    Ok(parts.format_for_version(bcrypt::Version::TwoA))
}

#[cfg(test)]
mod tests {
    use causeway_go_template::{ExecutionLimits, TemplateSet};

    use super::*;

    fn output(template: &str) -> Result<String, String> {
        let (set, functions, mut output) = (TemplateSet::new(), with(Functions::new()), Vec::new());
        set.parse("t", template.as_bytes(), &|name| functions.contains(name)).map_err(|error| error.to_string())?;
        set.execute("t", &functions, &Value::Nil, ExecutionLimits::default(), &mut output)
            .map_err(|error| error.to_string())?;
        String::from_utf8(output).map_err(|error| error.to_string())
    }

    // Sprig, "Strings" and "Cryptographic and Security Functions": the length and the characters of random texts.
    #[test]
    fn random_texts_have_their_form() {
        for (template, pattern) in [
            ("{{randAlpha 300}}", "^[A-Za-z]{300}$"),
            ("{{randAlphaNum 300}}", "^[A-Za-z0-9]{300}$"),
            ("{{randNumeric 300}}", "^[0-9]{300}$"),
            ("{{randAscii 300}}", "^[ -~]{300}$"),
            ("{{randAlpha 0}}{{randAscii -1}}{{shuffle \"\"}}", "^$"),
            ("{{randBytes 10}} {{randBytes 0}}", "^[A-Za-z0-9+/]{14}== $"),
            ("{{uuidv4}}", "^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"),
            ("{{range until 100}}{{randInt -3 3}} {{end}}", "^((-[123]|[012]) ){100}$"),
            ("{{randInt 7 8}} {{shuffle \"ää\\xff\"}}", "^7 [ä\u{fffd}]{3}$"),
            ("{{shuffle \"abc\" | splitList \"\" | sortAlpha}}", r"^\[a b c\]$"),
            ("{{bcrypt \"secret\"}}", r"^\$2a\$10\$[./A-Za-z0-9]{53}$"),
            ("{{htpasswd \"user\" \"secret\"}}", r"^user:\$2a\$10\$[./A-Za-z0-9]{53}$"),
            ("{{htpasswd \"us:er\" \"secret\"}}", "^invalid username: us:er$"),
            ("{{bcrypt (repeat 73 \"a\")}}", "^failed to encrypt string with bcrypt: .* exceeds 72 bytes$"),
        ] {
            let text = output(template).unwrap();
            assert!(regex::Regex::new(pattern).unwrap().is_match(&text), "{template}: {text}");
        }
    }

    // Each function keeps the bounds of the execution, and ends without a panic for any argument.
    #[test]
    fn random_values_have_bounds() {
        for (template, want) in [
            ("{{randAlpha 9223372036854775807}}", "need more memory"),
            ("{{randBytes 9223372036854775807}}", "need more memory"),
            ("{{randBytes -1}}", "out of range"),
            ("{{randInt 3 3}}", "invalid argument to Intn"),
            ("{{randInt 3 -5}}", "invalid argument to Intn"),
            ("{{range 20}}{{bcrypt \"a\"}}{{end}}", "more steps"),
        ] {
            let error = output(template).unwrap_err();
            assert!(error.contains(want), "{template}: {error}");
        }
        assert!(output("{{randInt -9223372036854775808 -1}}{{randInt 0 9223372036854775807}}").is_ok());
    }
}
