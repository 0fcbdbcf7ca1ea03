//! Addresses in a Caddyfile's notation, outside of a Caddyfile: the arguments of `reverse-proxy`.

use super::address::Address;
use super::position::Position;
use super::proxy::address::UpstreamAddress;
use super::token::{Quote, Token};

/// The address of a site, without a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FromAddress {
    /// `http` or `https`; as Caddy's command `reverse-proxy` chooses it if the text has none.
    pub scheme: String,
    /// The host; empty for every host.
    pub host: String,
    /// The port; that of the scheme if the text has none.
    pub port: String,
}

/// The address of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToAddress {
    /// The scheme; empty if the text has none.
    pub scheme: String,
    /// The addresses to dial: one, or one for each port of a range.
    pub dials: Vec<String>,
}

impl FromAddress {
    /// Parses `[scheme://][host][:port]`.
    ///
    /// # Errors
    /// Returns the reason why the text is no such address.
    pub fn parse(text: &str) -> Result<Self, String> {
        // The errors of addresses show a position, which an argument does not have.
        let at = Position { file: "".into(), line: 0, column: 0 };
        let token = Token {
            text: text.into(),
            quote: Quote::None,
            at,
            rows: (0, 0),
            imported: None,
            unset: None,
            snippet: None,
        };
        let address = Address::parse(&token).map_err(|error| {
            let text = error.to_string();
            text.split_once(": ").map_or_else(|| text.clone(), |(_, reason)| reason.to_owned())
        })?;
        if !address.path.is_empty() {
            return Err(format!("found the path '{}', expected an address without a path", address.path));
        }
        let scheme = match &*address.scheme {
            "" if address.port == "80" || address.host.is_empty() => "http",
            "" => "https",
            scheme => scheme,
        };
        let port = match (&*address.port, scheme) {
            ("", "http") => "80",
            ("", _) => "443",
            (port, _) => port,
        };
        Ok(Self { scheme: scheme.to_owned(), port: port.to_owned(), host: address.host.clone() })
    }
}

impl ToAddress {
    /// Parses an upstream as the directive `reverse_proxy` does.
    ///
    /// # Errors
    /// Returns the reason why the text is no such address.
    pub fn parse(text: &str) -> Result<Self, String> {
        let address = UpstreamAddress::parse(text)?;
        let dials = address.dials()?;
        Ok(Self { scheme: address.scheme, dials })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Caddy, `reverse-proxy`: the address is one of HTTPS if it has a host, unless the scheme is http or the port 80.
    #[test]
    fn the_address_of_a_site() {
        for (text, want) in [
            ("localhost", "https localhost 443"),
            (":8080", "http  8080"),
            ("", "http  80"),
            ("example.com:80", "http example.com 80"),
            ("http://example.com", "http example.com 80"),
            ("http://example.com:8080", "http example.com 8080"),
            ("example.com:8443", "https example.com 8443"),
            ("https://:9443", "https  9443"),
            ("[::1]:1", "https ::1 1"),
        ] {
            let FromAddress { scheme, host, port } = FromAddress::parse(text).unwrap();
            assert_eq!(format!("{scheme} {host} {port}"), want, "{text}");
        }
        for (text, want) in [
            ("a/b", "found the path '/b', expected an address without a path"),
            ("ftp://a", "unsupported URL scheme ftp://; expected http:// or https://"),
            ("a:x", "invalid port 'x': expected a number"),
            ("a:70000", "port 70000 is out of range; expected 0 to 65535"),
        ] {
            assert_eq!(FromAddress::parse(text), Err(want.to_owned()), "{text}");
        }
    }

    #[test]
    fn the_address_of_an_upstream() {
        for (text, scheme, dials) in [
            ("a", "", &["a:80"][..]),
            ("https://a", "https", &["a:443"]),
            (":1-3", "", &[":1", ":2", ":3"]),
            ("unix//run/a", "", &["unix//run/a"]),
        ] {
            let want = ToAddress { scheme: scheme.into(), dials: dials.iter().map(|dial| (*dial).into()).collect() };
            assert_eq!(ToAddress::parse(text), Ok(want), "{text}");
        }
        assert!(ToAddress::parse("http://a:443").unwrap_err().contains("conflicting scheme"));
    }
}
