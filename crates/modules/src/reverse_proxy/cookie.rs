//! `cookie`: session affinity by a cookie that identifies the upstream without revealing its address.

use causeway_message::{Cookie, SameSite, cookies, names};
use causeway_pipeline::{Build, BuildError, Context, Scheme};
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::backend::{Backend, Backends};

/// A digest in hexadecimal digits.
type Digits = [u8; 64];

pub(super) struct StickyCookie {
    name: Box<str>,
    max_age: Option<u64>,
    secret: Box<[u8]>,
    /// The cookie value of each configured upstream: an HMAC of its address.
    values: Box<[Digits]>,
}

impl StickyCookie {
    pub(super) fn build(
        name: Option<String>,
        secret: &str,
        max_age: Option<&causeway_pipeline::build::DurationConfig>,
        backends: &[Backend],
        build: &mut Build<'_>,
    ) -> Result<Self, BuildError> {
        let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| "lb".to_owned());
        if Cookie::new(&name, "").is_none() {
            return build.at("name", |build| Err(build.refuse(name, "a cookie's name")));
        }
        let max_age = match max_age {
            // Less than a second would be `Max-Age=0`, which deletes the cookie.
            Some(max_age) => build
                .at("max_age", |build| max_age.read(build))?
                .map(|max_age| max_age.as_secs())
                .filter(|&seconds| seconds > 0),
            None => None,
        };
        let values =
            backends.iter().map(|backend| hmac_sha256(secret.as_bytes(), backend.common.dial.as_bytes())).collect();
        Ok(Self { name: name.into(), max_age, secret: secret.as_bytes().into(), values })
    }

    /// Returns the upstream that the request's cookie identifies, if it is available.
    pub(super) fn backend_of_cookie(&self, cx: &Context, backends: Backends<'_>) -> Option<usize> {
        let mut all = cx.head().fields().get_all(names::COOKIE).flat_map(cookies);
        let told = all.find_map(|(name, value)| (name == self.name.as_bytes()).then_some(value))?;
        (0..backends.len())
            .find(|&number| backends[number].is_available(cx) && bool::from(self.value(backends, number).ct_eq(told)))
    }

    /// Returns the cookie value of an upstream. One that DNS names costs two hashes.
    fn value(&self, backends: Backends<'_>, number: usize) -> Digits {
        match backends {
            Backends::Configured(_) => self.values[number],
            Backends::Found(found) => hmac_sha256(&self.secret, found[number].common.dial.as_bytes()),
        }
    }

    /// Sets the cookie for the selected upstream.
    pub(super) fn set_cookie(&self, cx: &mut Context, backends: Backends<'_>, chosen: usize) {
        let value = self.value(backends, chosen);
        let value = std::str::from_utf8(&value).unwrap_or_default();
        let cookie = Cookie::new(&self.name, value).and_then(|cookie| cookie.path("/"));
        let Some(mut cookie) = cookie.map(Cookie::http_only) else { return };
        let client = cx.client();
        // A trusted proxy may have terminated TLS.
        let says_https = cx.head().fields().get_all(names::X_FORWARDED_PROTO).last() == Some(b"https");
        cookie = match cx.arrival().scheme == Scheme::Https || client.proxied && says_https {
            true => cookie.secure().same_site(SameSite::None),
            false => cookie.same_site(SameSite::Lax),
        };
        if let Some(seconds) = self.max_age {
            cookie = cookie.max_age(seconds);
        }
        // A retry may have selected another upstream before.
        let is_ours =
            |value: &[u8]| value.strip_prefix(self.name.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'='));
        cx.response_mut().fields_mut().retain(|name, value| name != names::SET_COOKIE.into() || !is_ours(value));
        cx.response_mut().set_cookie(&cookie);
    }
}

/// HMAC (RFC 2104) with SHA-256, in hexadecimal digits.
fn hmac_sha256(secret: &[u8], text: &[u8]) -> Digits {
    const BLOCK: usize = 64;
    let mut key = [0; BLOCK];
    if secret.len() > BLOCK {
        key[..32].copy_from_slice(&Sha256::digest(secret));
    } else {
        key[..secret.len()].copy_from_slice(secret);
    }
    let inner = Sha256::new().chain_update(key.map(|byte| byte ^ 0x36)).chain_update(text).finalize();
    let outer = Sha256::new().chain_update(key.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize();
    let mut digits = [0; 64];
    HEXLOWER.encode_mut(&outer, &mut digits);
    digits
}

#[cfg(test)]
mod tests {
    use super::hmac_sha256;

    // RFC 4231 §4.3, §4.7: a short key, and one longer than a block.
    #[test]
    fn rfc4231() {
        let digest = hmac_sha256(b"Jefe", b"what do ya want for nothing?");
        assert_eq!(&digest, b"5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        let digest = hmac_sha256(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First");
        assert_eq!(&digest, b"60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    }
}
