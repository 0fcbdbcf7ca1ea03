//! Password hashes: parses, verifies and creates the strings of bcrypt and Argon2.

use std::fmt;

use argon2::{Argon2, Params, Version};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use subtle::ConstantTimeEq as _;

/// A password hashing algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// bcrypt, at most 72 bytes of password.
    Bcrypt,
    /// Argon2id (RFC 9106).
    Argon2id,
}

impl Algorithm {
    pub(super) const ALL: [Self; 2] = [Self::Bcrypt, Self::Argon2id];

    /// Finds an algorithm by its name in a configuration.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// Returns the algorithm's name in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bcrypt => "bcrypt",
            Self::Argon2id => "argon2id",
        }
    }

    pub(super) fn expected(self) -> &'static str {
        match self {
            Self::Bcrypt => "a bcrypt hash, as `causeway hash-password` prints it",
            Self::Argon2id => "an argon2id hash, as `causeway hash-password --algorithm argon2id` prints it",
        }
    }
}

/// A parsed password hash.
pub(super) enum Hash {
    Bcrypt { text: Box<str>, cost: u32 },
    Argon2id { hasher: Box<Argon2<'static>>, salt: Box<[u8]>, key: Box<[u8]> },
}

impl Hash {
    /// Parses a hash in the algorithm's own string format.
    pub(super) fn parse(text: &str, algorithm: Algorithm) -> Option<Self> {
        match algorithm {
            Algorithm::Bcrypt => {
                // The crate accepts costs that hashing then rejects.
                let cost = text.parse::<bcrypt::HashParts>().ok()?.get_cost();
                (4..=31).contains(&cost).then(|| Self::Bcrypt { text: text.into(), cost })
            }
            Algorithm::Argon2id => Self::parse_argon2id(text),
        }
    }

    /// Parses `$argon2id$v=19$m=…,t=…,p=…$salt$key`.
    fn parse_argon2id(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix("$argon2id$v=19$")?.split('$');
        let (written, salt, key) = (parts.next()?, parts.next()?, parts.next()?);
        let mut numbers = written.split(',').zip(["m=", "t=", "p="]);
        let mut number = || numbers.next().and_then(|(part, name)| part.strip_prefix(name)?.parse::<u32>().ok());
        let (memory, time, lanes) = (number()?, number()?, number()?);
        // `zip` would ignore further parameters, and `split` further parts: reject them here.
        if parts.next().is_some() || written.split(',').count() != 3 {
            return None;
        }
        let decode = |text: &str| BASE64_STANDARD_NO_PAD.decode(text).ok();
        let (salt, key) = (decode(salt)?, decode(key)?);
        let hasher = argon2id(memory, time, lanes, key.len()).ok()?;
        (salt.len() >= argon2::MIN_SALT_LEN).then(|| Self::Argon2id {
            hasher: Box::new(hasher),
            salt: salt.into(),
            key: key.into(),
        })
    }

    /// Returns a number that grows with the time of a comparison. Comparable only among hashes of one algorithm.
    pub(super) fn cost(&self) -> u64 {
        match self {
            Self::Bcrypt { cost, .. } => 1 << cost,
            Self::Argon2id { hasher, .. } => u64::from(hasher.params().m_cost()) * u64::from(hasher.params().t_cost()),
        }
    }

    /// Verifies a password. Takes as long as the hash's cost parameters demand. bcrypt uses only the first 72 bytes.
    pub(super) fn matches(&self, password: &[u8]) -> bool {
        match self {
            Self::Bcrypt { text, .. } => bcrypt::verify(password, text).unwrap_or(false),
            Self::Argon2id { hasher, salt, key } => {
                let mut made = vec![0; key.len()];
                let hashed = hasher.hash_password_into(password, salt, &mut made);
                // Constant time: the comparison must not reveal a common prefix.
                hashed.is_ok() && bool::from(made.ct_eq(key))
            }
        }
    }
}

fn argon2id(memory: u32, time: u32, lanes: u32, key_len: usize) -> Result<Argon2<'static>, argon2::Error> {
    let params = Params::new(memory, time, lanes, Some(key_len))?;
    Ok(Argon2::new(argon2::Algorithm::Argon2id, Version::V0x13, params))
}

/// Cost parameters for a new Argon2id hash.
#[derive(Debug, Clone, Copy)]
pub struct Argon2idCost {
    /// Number of passes over the memory.
    pub time: u32,
    /// Memory in KiB.
    pub memory: u32,
    /// Degree of parallelism.
    pub lanes: u8,
    /// Length of the derived key in bytes.
    pub key_len: u32,
}

/// The reason that a password was not hashed.
#[derive(Debug)]
#[non_exhaustive]
pub enum HashError {
    /// The password's length in bytes, above bcrypt's limit of 72.
    TooLong(usize),
    /// The parameters are not valid, or the system's random generator failed.
    Refused(String),
}

impl fmt::Display for HashError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(bytes) => write!(f, "found a password of {bytes} bytes, bcrypt takes at most 72"),
            Self::Refused(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for HashError {}

/// Hashes a password with bcrypt and a random salt. `cost` is the base-2 logarithm of the rounds, from 4 to 31.
///
/// # Errors
/// If the password is longer than 72 bytes or the cost is out of range.
pub fn bcrypt(password: &[u8], cost: u32) -> Result<String, HashError> {
    if password.len() > 72 {
        return Err(HashError::TooLong(password.len()));
    }
    let parts = bcrypt::hash_with_result(password, cost).map_err(|error| HashError::Refused(error.to_string()))?;
    // `$2a$`, as Caddy's and Go's bcrypt write it.
    Ok(parts.format_for_version(bcrypt::Version::TwoA))
}

/// Hashes a password with Argon2id and a random salt of 16 bytes.
///
/// # Errors
/// If the parameters are not valid or the system's random generator fails.
pub fn argon2id_string(password: &[u8], cost: Argon2idCost) -> Result<String, HashError> {
    let refused = |error: argon2::Error| HashError::Refused(error.to_string());
    let Argon2idCost { time, memory, lanes, key_len } = cost;
    let hasher = argon2id(memory, time, lanes.into(), key_len as usize).map_err(refused)?;
    let mut salt = [0; 16];
    getrandom::fill(&mut salt).map_err(|error| HashError::Refused(error.to_string()))?;
    let mut key = vec![0; key_len as usize];
    hasher.hash_password_into(password, &salt, &mut key).map_err(refused)?;
    let encode = |bytes: &[u8]| BASE64_STANDARD_NO_PAD.encode(bytes);
    Ok(format!("$argon2id$v=19$m={memory},t={time},p={lanes}${}${}", encode(&salt), encode(&key)))
}
