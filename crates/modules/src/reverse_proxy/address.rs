//! Addresses of upstreams.

use std::borrow::Cow;

/// A parsed `[tcp/]host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) host: Box<str>,
    pub(super) port: Box<str>,
    /// `host:port`, with brackets around an IPv6 address.
    pub(super) authority: Box<str>,
}

impl Address {
    /// # Errors
    /// A description of the expected form.
    pub(super) fn parse(text: &str) -> Result<Self, Cow<'static, str>> {
        let rest = match text.split_once('/') {
            Some(("tcp", rest)) => rest,
            Some((network @ ("unix" | "unix+h2c" | "tcp4" | "tcp6" | "udp" | "udp4" | "udp6"), _)) => {
                return Err(format!("HOST:PORT; upstreams at `{network}/` are not built into this version").into());
            }
            Some(_) => return Err("HOST:PORT".into()),
            None => text,
        };
        let (host, port) = rest.rsplit_once(':').ok_or("HOST:PORT")?;
        if port.contains('-') {
            return Err("HOST:PORT with one port; each upstream is one".into());
        }
        if !port.bytes().all(|byte| byte.is_ascii_digit()) || !port.parse::<u16>().is_ok_and(|port| port > 0) {
            return Err("HOST:PORT with a port from 1 to 65535".into());
        }
        let (bare, is_literal) = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(host) => (host, true),
            None => (host, false),
        };
        let is_host = if is_literal {
            bare.split('%').next().is_some_and(|ip| ip.parse::<std::net::Ipv6Addr>().is_ok())
        } else {
            bare.bytes().all(|byte| byte.is_ascii_graphic() && !b"[]:/@{}\"".contains(&byte))
        };
        if !is_host {
            return Err("HOST:PORT, an IPv6 address in brackets".into());
        }
        Ok(Self { host: bare.into(), port: port.into(), authority: rest.into() })
    }

    /// Returns the same host with another port.
    pub(super) fn with_port(&self, port: u16) -> Self {
        let host = &self.host;
        let authority = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        Self { host: host.clone(), port: port.to_string().into(), authority: authority.into() }
    }

    /// Returns the address to connect to. Without a host it is localhost, as in Go.
    pub(super) fn to_dial(&self) -> Cow<'_, str> {
        if self.host.is_empty() { format!("localhost:{}", self.port).into() } else { (&*self.authority).into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Caddy, conventions, network addresses; an upstream is exactly one socket.
    #[test]
    fn addresses() {
        for (text, want) in [
            ("127.0.0.1:80", Ok(("127.0.0.1", "80", "127.0.0.1:80"))),
            ("tcp/a.test:8080", Ok(("a.test", "8080", "a.test:8080"))),
            ("[::1]:443", Ok(("::1", "443", "[::1]:443"))),
            ("[fe80::1%eth0]:443", Ok(("fe80::1%eth0", "443", "[fe80::1%eth0]:443"))),
            (":9000", Ok(("", "9000", "localhost:9000"))),
            ("a.test", Err("HOST:PORT")),
            ("", Err("HOST:PORT")),
            ("a:0", Err("HOST:PORT with a port from 1 to 65535")),
            ("a:65536", Err("HOST:PORT with a port from 1 to 65535")),
            ("a:+1", Err("HOST:PORT with a port from 1 to 65535")),
            ("a:http", Err("HOST:PORT with a port from 1 to 65535")),
            ("a:80-82", Err("HOST:PORT with one port; each upstream is one")),
            ("::1:80", Err("HOST:PORT, an IPv6 address in brackets")),
            ("[::g]:80", Err("HOST:PORT, an IPv6 address in brackets")),
            ("a b:80", Err("HOST:PORT, an IPv6 address in brackets")),
            ("unix//run/x.sock", Err("HOST:PORT; upstreams at `unix/` are not built into this version")),
            ("http://a:80", Err("HOST:PORT")),
        ] {
            let found = Address::parse(text);
            let found = found.as_ref().map(|found| (&*found.host, &*found.port, found.to_dial()));
            match (found, want) {
                (Ok((host, port, dial)), Ok(want)) => assert_eq!((host, port, &*dial), want),
                (Err(found), Err(want)) => assert_eq!(found, want, "{text}"),
                (found, want) => panic!("{text}: {found:?}, not {want:?}"),
            }
        }
    }
}
