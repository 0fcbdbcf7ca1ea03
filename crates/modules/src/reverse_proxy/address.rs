//! Addresses of upstreams.

use std::borrow::Cow;

use causeway_pipeline::UnixAddress;
use causeway_pipeline::worker::Families;

/// The name of a Unix socket in `Host`. A path is not a valid value there.
// DEVIATES Caddy: Go's client sends an empty `Host`, and over HTTP/2 fails.
const SOCKET_HOST: &str = "localhost";

/// A parsed `[tcp/]host:port`, with `tcp4/` or `tcp6/` for one family of addresses, or `unix/path`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    network: Network,
    /// The host, or the socket's path.
    pub(super) host: Box<str>,
    /// The port; `0` for a socket, as in Caddy.
    pub(super) port: Box<str>,
    /// `host:port`, with brackets around an IPv6 address; or the socket's path.
    pub(super) authority: Box<str>,
    /// The address in errors and logs: `host:port`, or `unix/` and the path.
    pub(super) name: Box<str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Network {
    Tcp,
    Tcp4,
    Tcp6,
    Unix,
}

impl Address {
    pub(super) fn is_unix(&self) -> bool {
        self.network == Network::Unix
    }

    /// # Errors
    /// A description of the expected form.
    pub(super) fn parse(text: &str) -> Result<Self, Cow<'static, str>> {
        let (network, rest) = match text.split_once('/') {
            Some(("tcp", rest)) => (Network::Tcp, rest),
            Some(("tcp4", rest)) => (Network::Tcp4, rest),
            Some(("tcp6", rest)) => (Network::Tcp6, rest),
            Some(("unix", path)) => return Self::parse_socket(path),
            // Caddy's Caddyfile splits this network to `unix` and the version.
            Some(("unix+h2c", _)) => return Err("unix/PATH, and `h2c` in the transport's `versions`".into()),
            Some((network @ ("udp" | "udp4" | "udp6" | "unixgram" | "unixpacket"), _)) => {
                let expected = "HOST:PORT or unix/PATH; upstreams at";
                return Err(format!("{expected} `{network}/` are not supported (docs/refused.md)").into());
            }
            Some(_) => return Err("HOST:PORT".into()),
            None => (Network::Tcp, text),
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
        Ok(Self { network, host: bare.into(), port: port.into(), authority: rest.into(), name: rest.into() })
    }

    /// Returns the same host with a port of TCP; for a Unix socket, the machine itself.
    pub(super) fn with_port(&self, port: u16) -> Self {
        let host = if self.network == Network::Unix { SOCKET_HOST } else { &self.host };
        let authority: Box<str> =
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }.into();
        let port = port.to_string().into();
        let network = if self.network == Network::Unix { Network::Tcp } else { self.network };
        Self { network, host: host.into(), port, name: authority.clone(), authority }
    }

    /// Parses the path of a Unix socket; `@` at its start is a name in the abstract namespace.
    fn parse_socket(path: &str) -> Result<Self, Cow<'static, str>> {
        if path.trim_start_matches('@').is_empty() {
            return Err("unix/PATH with a path".into());
        }
        if path.contains('|') {
            return Err("unix/PATH without permissions, which are for listeners".into());
        }
        if path.len() > UnixAddress::BYTES_MAX || path.contains('\0') {
            return Err(format!(
                "unix/PATH with a path of at most {} bytes, none of them zero",
                UnixAddress::BYTES_MAX
            )
            .into());
        }
        let name = format!("unix/{path}");
        Ok(Self {
            network: Network::Unix,
            host: path.into(),
            port: "0".into(),
            authority: path.into(),
            name: name.into(),
        })
    }

    /// Returns the address to connect to, as [`Worker::upstream`] expects it. Without a host it is localhost, as in Go.
    ///
    /// [`Worker::upstream`]: causeway_pipeline::Worker::upstream
    pub(super) fn to_dial(&self) -> Cow<'_, str> {
        if self.host.is_empty() { format!("localhost:{}", self.port).into() } else { (&*self.name).into() }
    }

    /// Returns the upstream's own name as a value of `Host`.
    pub(super) fn host_value(&self) -> &str {
        match self.network {
            Network::Unix => SOCKET_HOST,
            _ => &self.authority,
        }
    }

    /// Returns the families of addresses that its name may have.
    pub(super) fn families(&self) -> Families {
        match self.network {
            Network::Tcp | Network::Unix => Families::Both,
            Network::Tcp4 => Families::Ipv4,
            Network::Tcp6 => Families::Ipv6,
        }
    }

    /// Appends the address with its network.
    pub(super) fn put_with_network(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(match self.network {
            Network::Tcp => b"tcp/",
            Network::Tcp4 => b"tcp4/",
            Network::Tcp6 => b"tcp6/",
            // It is part of the name.
            Network::Unix => b"",
        });
        out.extend_from_slice(self.name.as_bytes());
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
            ("tcp4/a.test:8080", Ok(("a.test", "8080", "a.test:8080"))),
            ("tcp6/[::1]:8080", Ok(("::1", "8080", "[::1]:8080"))),
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
            ("http://a:80", Err("HOST:PORT")),
            ("unix//run/x.sock", Ok(("/run/x.sock", "0", "unix//run/x.sock"))),
            ("unix/x.sock", Ok(("x.sock", "0", "unix/x.sock"))),
            ("unix//run/a:b c", Ok(("/run/a:b c", "0", "unix//run/a:b c"))),
            ("unix/@name", Ok(("@name", "0", "unix/@name"))),
            ("unix/", Err("unix/PATH with a path")),
            ("unix/@", Err("unix/PATH with a path")),
            ("unix//run/x.sock|0222", Err("unix/PATH without permissions, which are for listeners")),
            ("unix//run/x\0", Err("unix/PATH with a path of at most 107 bytes, none of them zero")),
            ("unix+h2c//run/x.sock", Err("unix/PATH, and `h2c` in the transport's `versions`")),
            (
                "unixgram//run/x.sock",
                Err("HOST:PORT or unix/PATH; upstreams at `unixgram/` are not supported (docs/refused.md)"),
            ),
        ] {
            let found = Address::parse(text);
            let found = found.as_ref().map(|found| (&*found.host, &*found.port, found.to_dial()));
            match (found, want) {
                (Ok((host, port, dial)), Ok(want)) => assert_eq!((host, port, &*dial), want),
                (Err(found), Err(want)) => assert_eq!(found, want, "{text}"),
                (found, want) => panic!("{text}: {found:?}, not {want:?}"),
            }
        }
        let path = |bytes: usize| format!("unix//{}", "x".repeat(bytes - 1));
        assert!(Address::parse(&path(UnixAddress::BYTES_MAX)).is_ok());
        assert!(Address::parse(&path(UnixAddress::BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn the_names_of_an_address() {
        for (text, host, network) in [
            ("a.test:80", "a.test:80", "tcp/a.test:80"),
            ("tcp/a.test:80", "a.test:80", "tcp/a.test:80"),
            ("tcp4/a.test:80", "a.test:80", "tcp4/a.test:80"),
            ("tcp6/a.test:80", "a.test:80", "tcp6/a.test:80"),
            ("unix//run/x.sock", "localhost", "unix//run/x.sock"),
        ] {
            let address = Address::parse(text).unwrap();
            let mut out = Vec::new();
            address.put_with_network(&mut out);
            assert_eq!((address.host_value(), &*out), (host, network.as_bytes()), "{text}");
        }
    }
}
