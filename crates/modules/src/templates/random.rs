//! Sprig's functions for random values and hashes of passwords.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use causeway_go_template::{CallContext, FunctionError, Functions, Signature, Type, Value};
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use super::text::bytes_of;

/// The steps of a bcrypt hash, which takes about as long as a tenth of an execution may.
const BCRYPT_STEPS: usize = 1_000_000;
/// Go's default.
const BCRYPT_COST: u32 = 10;
/// The bytes of a password that bcrypt takes.
const PASSWORD_BYTES_MAX: usize = 72;

/// The secret that all random values of one response come from, drawn with the first of them.
#[derive(Default)]
pub(super) struct RandomSeed(OnceLock<[u8; 32]>);

/// The random bytes of one execution: those of a repetition are the same.
pub(super) struct RandomBytes {
    seed: Arc<RandomSeed>,
    /// Blocks of bytes so far.
    blocks: Cell<u64>,
}

impl RandomBytes {
    pub(super) fn new(seed: &Arc<RandomSeed>) -> Self {
        Self { seed: Arc::clone(seed), blocks: Cell::new(0) }
    }

    /// Fills `bytes`. Each block is a hash of the secret and the block's number, from which no other block can be
    /// derived.
    fn fill(&self, bytes: &mut [u8]) -> Result<(), FunctionError> {
        let seed = match self.seed.0.get() {
            Some(seed) => seed,
            None => {
                let mut seed = [0; 32];
                getrandom::fill(&mut seed).map_err(|error| format!("no random bytes: {error}"))?;
                self.seed.0.get_or_init(|| seed)
            }
        };
        for part in bytes.chunks_mut(32) {
            let number = self.blocks.replace(self.blocks.get() + 1);
            let block = Sha256::new().chain_update(seed).chain_update(number.to_be_bytes()).finalize();
            part.copy_from_slice(&block[..part.len()]);
        }
        Ok(())
    }

    /// Returns a number below `range`, which is not 0, each with the same probability.
    fn below(&self, range: u64) -> Result<u64, FunctionError> {
        // The largest multiple of the range: a number from there on would make small results more likely.
        let end = u64::MAX - u64::MAX % range;
        loop {
            let mut bytes = [0; 8];
            self.fill(&mut bytes)?;
            let number = u64::from_ne_bytes(bytes);
            if number < end {
                return Ok(number % range);
            }
        }
    }
}

type Function = fn(&RandomBytes, &mut CallContext<'_>, &[Value]) -> Result<Value, FunctionError>;

/// Adds the functions.
pub(super) fn with(functions: Functions, random: &Rc<RandomBytes>) -> Functions {
    const NONE: &[Type] = &[];
    const COUNT: &[Type] = &[Type::Int];
    const TEXT: &[Type] = &[Type::String];
    let table: &[(&str, &'static [Type], Function)] = &[
        ("bcrypt", TEXT, |random, call, args| Ok(hashed(random, call, bytes_of(&args[0]))?.into())),
        ("htpasswd", &[Type::String, Type::String], |random, call, args| {
            let user = bytes_of(&args[0]);
            if user.contains(&b':') {
                return Ok([b"invalid username: ", user].concat().into());
            }
            Ok([user, b":", hashed(random, call, bytes_of(&args[1]))?.as_bytes()].concat().into())
        }),
        ("randAlpha", COUNT, |random, call, args| characters(random, call, &args[0], u8::is_ascii_alphabetic)),
        ("randAlphaNum", COUNT, |random, call, args| characters(random, call, &args[0], u8::is_ascii_alphanumeric)),
        ("randAscii", COUNT, |random, call, args| {
            characters(random, call, &args[0], |byte| matches!(byte, b' '..=b'~'))
        }),
        ("randBytes", COUNT, |random, call, args| {
            let count =
                usize::try_from(args[0].as_integer().unwrap_or(0)).map_err(|_| "makeslice: len out of range")?;
            call.charge_memory(count.saturating_mul(3))?;
            let mut bytes = vec![0; count];
            random.fill(&mut bytes)?;
            Ok(BASE64_STANDARD.encode(bytes).into())
        }),
        ("randInt", &[Type::Int, Type::Int], |random, _, args| {
            let number = |index: usize| args[index].as_integer().unwrap_or(0);
            let range = number(1).wrapping_sub(number(0));
            let range = u64::try_from(range).ok().filter(|range| *range > 0).ok_or("invalid argument to Intn")?;
            Ok(Value::Int(number(0).wrapping_add_unsigned(random.below(range)?)))
        }),
        ("randNumeric", COUNT, |random, call, args| characters(random, call, &args[0], u8::is_ascii_digit)),
        ("shuffle", TEXT, |random, call, args| {
            let letters = String::from_utf8_lossy(bytes_of(&args[0]));
            call.charge_memory(letters.len().saturating_mul(4))?;
            call.charge_steps(letters.len())?;
            let mut letters: Vec<char> = letters.chars().collect();
            // Fisher and Yates: each letter changes places with one of those up to it.
            for index in (1..letters.len()).rev() {
                letters.swap(index, random.below(index as u64 + 1)? as usize);
            }
            Ok(letters.into_iter().collect::<String>().into())
        }),
        ("uuidv4", NONE, |random, _, _| uuid(random)),
    ];
    table.iter().fold(functions, |functions, &(name, parameters, function)| {
        let random = Rc::clone(random);
        functions.with(name, Signature::fixed(parameters), move |call, arguments| function(&random, call, arguments))
    })
}

/// Makes a text of so many characters of a set; a count below 0 makes none, as in Sprig.
fn characters(
    random: &RandomBytes,
    call: &CallContext<'_>,
    count: &Value,
    is_wanted: fn(&u8) -> bool,
) -> Result<Value, FunctionError> {
    let count = usize::try_from(count.as_integer().unwrap_or(0)).unwrap_or(0);
    call.charge_memory(count.saturating_add(256))?;
    call.charge_steps(count)?;
    let mut out = Vec::with_capacity(count);
    let mut bytes = [0; 256];
    while out.len() < count {
        random.fill(&mut bytes)?;
        // Each byte of 7 bits has the same probability.
        let wanted = bytes.iter().map(|byte| byte & 0x7f).filter(is_wanted);
        out.extend(wanted.take(count - out.len()));
    }
    Ok(out.into())
}

/// RFC 9562 §5.4: all bits but those of the version and the variant are random.
fn uuid(random: &RandomBytes) -> Result<Value, FunctionError> {
    let mut bytes = [0; 16];
    random.fill(&mut bytes)?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut uuid = HEXLOWER.encode(&bytes);
    // From the end, so that no hyphen moves the place of another one.
    [20, 16, 12, 8].into_iter().for_each(|at| uuid.insert(at, '-'));
    Ok(uuid.into())
}

/// Returns the bcrypt hash of a password or, as in Sprig, the reason why there is none.
fn hashed(random: &RandomBytes, call: &CallContext<'_>, password: &[u8]) -> Result<String, FunctionError> {
    call.charge_steps(BCRYPT_STEPS)?;
    if password.len() > PASSWORD_BYTES_MAX {
        return Ok("failed to encrypt string with bcrypt: bcrypt: password length exceeds 72 bytes".to_owned());
    }
    let mut salt = [0; 16];
    random.fill(&mut salt)?;
    let hashed = bcrypt::hash_with_salt(password, BCRYPT_COST, salt);
    let parts = hashed.map_err(|error| format!("failed to encrypt string with bcrypt: {error}"))?;
    Ok(parts.format_for_version(bcrypt::Version::TwoA))
}

#[cfg(test)]
mod tests {
    use causeway_go_template::{ExecutionLimits, TemplateSet};

    use super::*;

    fn output(template: &str) -> Result<String, String> {
        let random = Rc::new(RandomBytes::new(&Arc::default()));
        let (set, functions, mut output) = (TemplateSet::new(), with(Functions::new(), &random), Vec::new());
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
