//! Passwords as they are kept: bcrypt's and Argon2's strings, read, compared and made.

use std::fmt;

use argon2::{Argon2, Params, Version};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use subtle::ConstantTimeEq as _;

/// How a password is hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// bcrypt.
    Bcrypt,
    /// Argon2id (RFC 9106).
    Argon2id,
}

impl Algorithm {
    /// By its name in a configuration.
    pub fn of_name(name: &str) -> Option<Self> {
        [Self::Bcrypt, Self::Argon2id].into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// As a configuration names it.
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

/// A password's hash.
pub(super) enum Hash {
    Bcrypt { text: Box<str>, cost: u32 },
    Argon2id { hasher: Box<Argon2<'static>>, salt: Box<[u8]>, key: Box<[u8]> },
}

impl Hash {
    /// From its string, as the algorithm writes it.
    pub(super) fn parse(text: &str, algorithm: Algorithm) -> Option<Self> {
        match algorithm {
            Algorithm::Bcrypt => {
                let cost = text.parse::<bcrypt::HashParts>().ok()?.get_cost();
                (4..=31).contains(&cost).then(|| Self::Bcrypt { text: text.into(), cost })
            }
            Algorithm::Argon2id => Self::parse_argon2id(text),
        }
    }

    /// `$argon2id$v=19$m=…,t=…,p=…$salt$key`
    fn parse_argon2id(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix("$argon2id$v=19$")?.split('$');
        let (written, salt, key) = (parts.next()?, parts.next()?, parts.next()?);
        let mut numbers = written.split(',').zip(["m=", "t=", "p="]);
        let mut number = || numbers.next().and_then(|(part, name)| part.strip_prefix(name)?.parse::<u32>().ok());
        let (memory, time, lanes) = (number()?, number()?, number()?);
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

    /// Something that grows with the time that a comparison takes, for hashes of one algorithm.
    pub(super) fn cost(&self) -> u64 {
        match self {
            Self::Bcrypt { cost, .. } => 1 << cost,
            Self::Argon2id { hasher, .. } => u64::from(hasher.params().m_cost()) * u64::from(hasher.params().t_cost()),
        }
    }

    /// Whether this is the password; takes as long as the hash was made to take. Of a password for bcrypt only the first 72
    /// octets count.
    pub(super) fn matches(&self, password: &[u8]) -> bool {
        match self {
            Self::Bcrypt { text, .. } => bcrypt::verify(password, text).unwrap_or(false),
            Self::Argon2id { hasher, salt, key } => {
                let mut made = vec![0; key.len()];
                let hashed = hasher.hash_password_into(password, salt, &mut made);
                hashed.is_ok() && bool::from(made.ct_eq(key))
            }
        }
    }
}

fn argon2id(memory: u32, time: u32, lanes: u32, key_len: usize) -> Result<Argon2<'static>, argon2::Error> {
    let params = Params::new(memory, time, lanes, Some(key_len))?;
    Ok(Argon2::new(argon2::Algorithm::Argon2id, Version::V0x13, params))
}

/// What a new Argon2id hash costs.
#[derive(Debug, Clone, Copy)]
pub struct Argon2idCost {
    /// Passes over the memory.
    pub time: u32,
    /// KiB.
    pub memory: u32,
    /// Lanes.
    pub lanes: u8,
    /// Octets of the key.
    pub key_len: u32,
}

/// Why a password was not hashed.
#[derive(Debug)]
#[non_exhaustive]
pub enum HashError {
    /// bcrypt knows no passwords of more than 72 octets.
    TooLong(usize),
    /// The parameters are none, or the system gave no random octets.
    Refused(String),
}

impl fmt::Display for HashError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(octets) => write!(f, "found a password of {octets} octets, bcrypt takes at most 72"),
            Self::Refused(words) => f.write_str(words),
        }
    }
}

impl std::error::Error for HashError {}

/// bcrypt's string for a password; `cost` is from 4 to 31.
///
/// # Errors
/// When the password is too long or the cost is none.
pub fn bcrypt(password: &[u8], cost: u32) -> Result<String, HashError> {
    if password.len() > 72 {
        return Err(HashError::TooLong(password.len()));
    }
    let parts = bcrypt::hash_with_result(password, cost).map_err(|error| HashError::Refused(error.to_string()))?;
    Ok(parts.format_for_version(bcrypt::Version::TwoA))
}

/// Argon2's string for a password, with a salt of 16 octets.
///
/// # Errors
/// When the parameters are none.
pub fn argon2id_string(password: &[u8], cost: Argon2idCost) -> Result<String, HashError> {
    let refused = |error: argon2::Error| HashError::Refused(error.to_string());
    let Argon2idCost { time, memory, lanes, key_len } = cost;
    let hasher = argon2id(memory, time, lanes.into(), key_len as usize).map_err(refused)?;
    let mut salt = [0; 16];
    getrandom::fill(&mut salt).map_err(|error| HashError::Refused(error.to_string()))?;
    let mut key = vec![0; key_len as usize];
    hasher.hash_password_into(password, &salt, &mut key).map_err(refused)?;
    let encode = |octets: &[u8]| BASE64_STANDARD_NO_PAD.encode(octets);
    Ok(format!("$argon2id$v=19$m={memory},t={time},p={lanes}${}${}", encode(&salt), encode(&key)))
}
