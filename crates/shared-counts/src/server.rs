//! The address of a Redis server.

use std::fmt;
use std::path::PathBuf;

/// A Redis or Valkey server. `Display` and `Debug` show neither the user's name nor the password.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RedisServer {
    /// Where it listens.
    pub place: RedisPlace,
    /// The name of an ACL user; empty: the default user.
    pub username: String,
    /// The password; empty: none is sent.
    pub password: String,
    /// The number of the database.
    pub db: u32,
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RedisPlace {
    /// TCP.
    Tcp {
        /// Host name or IP address, without brackets.
        host: String,
        /// The port.
        port: u16,
        /// Whether the connection uses TLS, with the system's roots.
        tls: bool,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

impl RedisServer {
    /// Reads `HOST:PORT`, with brackets around an IPv6 address, or `unix//PATH`. `None` for other text. The server has
    /// no user, no password, the database 0 and no TLS.
    pub fn parse_address(text: &str) -> Option<Self> {
        let place = match text.strip_prefix("unix/") {
            Some(path) => RedisPlace::Unix(path.starts_with('/').then(|| path.into())?),
            None => {
                let (host, port) = text.rsplit_once(':')?;
                let bare = host.strip_prefix('[').map_or(Some(host), |host| host.strip_suffix(']'))?;
                let is_host = !bare.is_empty() && (bare.len() < host.len() || !bare.contains(':'));
                let port = port.parse().ok().filter(|port| *port != 0)?;
                (is_host && !bare.contains(['/', '@', '[', ']'])).then(|| RedisPlace::Tcp {
                    host: bare.to_owned(),
                    port,
                    tls: false,
                })?
            }
        };
        Some(Self { place, username: String::new(), password: String::new(), db: 0 })
    }
}

impl fmt::Display for RedisServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            RedisPlace::Tcp { host, port, tls } => {
                let scheme = if *tls { "rediss" } else { "redis" };
                let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
                write!(f, "{scheme}://{open}{host}{close}:{port}/{}", self.db)
            }
            RedisPlace::Unix(path) => write!(f, "unix/{} database {}", path.display(), self.db),
        }
    }
}

impl fmt::Debug for RedisServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisServer({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, want) in [
            ("a:6379", Some("redis://a:6379/0")),
            ("[::1]:7", Some("redis://[::1]:7/0")),
            ("unix//run/redis.sock", Some("unix//run/redis.sock database 0")),
            ("", None),
            ("a", None),
            (":1", None),
            ("[]:1", None),
            ("[::1:1", None),
            ("::1:1", None),
            ("a:0", None),
            ("a:65536", None),
            ("a:x", None),
            ("unix/run/redis.sock", None),
            ("user:p@a:1", None),
            ("redis://a:1", None),
        ] {
            assert_eq!(RedisServer::parse_address(text).map(|server| server.to_string()).as_deref(), want, "{text}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let mut server = RedisServer::parse_address("a:1").unwrap();
        (server.username, server.password) = ("hunter1".into(), "hunter2".into());
        assert!(!format!("{server} {server:?}").contains("hunter"));
    }
}
