//! One round trip to Redis.
//!
//! ```text
//! PREFIX/WINDOW_MS/ID/PERIOD   integer with an expiry: the events of a key in one period
//! ```
//! The id is in hexadecimal digits. Periods follow the clock of the Redis server, which each round reads, so the clocks
//! of the servers may differ.

use std::io;
use std::time::{Duration, Instant};

use data_encoding::HEXLOWER;
use redis::{
    Client, Connection, ConnectionAddr, IntoConnectionInfo as _, Pipeline, RedisConnectionInfo, RedisError, Value,
};

use crate::exchange::{KeyDelta, WindowCounts};
use crate::server::{RedisPlace, RedisServer};

/// Limit for a connection's start, and for each wait for the server.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Limit for a round; reached only if each of its responses is late.
const ROUND_MAX: Duration = Duration::from_secs(4);

/// How long the server's time is computed from the last one: its clock may be set meanwhile.
const CLOCK_VALID: Duration = Duration::from_secs(10);

/// The connection to a server, opened when it is needed.
pub(crate) struct RedisConnection {
    server: RedisServer,
    client: Client,
    open: Option<OpenConnection>,
}

struct OpenConnection {
    connection: Connection,
    /// The server's time when it was last read.
    clock: ServerClock,
}

/// The time of the Redis server, in milliseconds since 1970, at an instant of this process.
#[derive(Debug, Clone, Copy)]
struct ServerClock {
    at: Instant,
    millis: u64,
}

/// A period of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Period {
    number: u64,
    began: Instant,
}

impl ServerClock {
    /// The period in which `now` is.
    fn period(&self, window_millis: u64, now: Instant) -> Period {
        let millis = self.millis + now.saturating_duration_since(self.at).as_millis() as u64;
        let since = Duration::from_millis(millis % window_millis);
        // An instant cannot be before the machine's start: the period then begins later, and old events count for
        // longer.
        Period { number: millis / window_millis, began: now.checked_sub(since).unwrap_or(now) }
    }
}

fn text(error: &RedisError) -> String {
    if error.is_timeout() { format!("no response within {} s", TIMEOUT.as_secs()) } else { error.to_string() }
}

impl RedisConnection {
    pub(crate) fn new(server: &RedisServer) -> io::Result<Self> {
        let addr = match &server.place {
            RedisPlace::Tcp { host, port, tls: false } => ConnectionAddr::Tcp(host.clone(), *port),
            RedisPlace::Tcp { host, port, tls: true } => {
                // The crate redis uses the default provider of the process, which rustls cannot choose in a program
                // that enables its feature `ring` too. A default that the program has installed remains.
                let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
                ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None }
            }
            RedisPlace::Unix(path) => ConnectionAddr::Unix(path.clone()),
        };
        let mut login =
            RedisConnectionInfo::default().set_db(server.db.into()).set_lib_name("causeway", env!("CARGO_PKG_VERSION"));
        if !server.username.is_empty() {
            login = login.set_username(&server.username);
        }
        if !server.password.is_empty() {
            login = login.set_password(&server.password);
        }
        let refused = |error: RedisError| io::Error::other(error.to_string());
        let client = Client::open(addr.into_connection_info().map_err(refused)?.set_redis_settings(login));
        Ok(Self { server: server.clone(), client: client.map_err(refused)?, open: None })
    }

    pub(crate) fn server(&self) -> &RedisServer {
        &self.server
    }

    /// Adds the new events of these keys, and returns the counts of all servers in the same order. If the answer is
    /// lost, the events may have been counted; a caller that sends them again counts them twice.
    pub(crate) fn exchange<'k, K: Iterator<Item = (&'k str, KeyDelta)>>(
        &mut self,
        keys: impl Fn() -> K,
    ) -> Result<Vec<WindowCounts>, String> {
        if let Some(mut open) = self.open.take() {
            match open.exchange(&keys) {
                // The server has closed an idle connection.
                Err(error) if error.is_connection_dropped() => {}
                Err(error) => return Err(text(&error)),
                Ok(counts) => {
                    self.open = Some(open);
                    return Ok(counts);
                }
            }
        }
        let mut open = OpenConnection::connect(&self.client).map_err(|error| text(&error))?;
        let counts = open.exchange(&keys).map_err(|error| text(&error))?;
        self.open = Some(open);
        Ok(counts)
    }
}

impl OpenConnection {
    fn connect(client: &Client) -> Result<Self, RedisError> {
        let mut connection = client.get_connection_with_timeout(TIMEOUT)?;
        connection.set_read_timeout(Some(TIMEOUT))?;
        connection.set_write_timeout(Some(TIMEOUT))?;
        let time = redis::cmd("TIME").query(&mut connection)?;
        Ok(Self { connection, clock: clock(time) })
    }

    fn exchange<'k, K: Iterator<Item = (&'k str, KeyDelta)>>(
        &mut self,
        keys: impl Fn() -> K,
    ) -> Result<Vec<WindowCounts>, RedisError> {
        if self.clock.at.elapsed() > CLOCK_VALID {
            self.clock = clock(redis::cmd("TIME").query(&mut self.connection)?);
        }
        let now = Instant::now();
        let mut pipeline = Pipeline::new();
        pipeline.cmd("TIME");
        let mut periods = Vec::new();
        for (prefix, delta) in keys() {
            let window = u64::try_from(delta.window.as_millis()).unwrap_or(u64::MAX).max(1);
            let period = self.clock.period(window, now);
            let current = name(prefix, window, &delta.id, period.number);
            let previous = name(prefix, window, &delta.id, period.number.saturating_sub(1));
            if delta.events > 0 {
                // The expiry comes first, so that a counter without one never exists. It is after the end of the next
                // period.
                let expiry = window.saturating_mul(2).min(i64::MAX as u64 / 2);
                pipeline.cmd("SET").arg(&current).arg(0).arg("PX").arg(expiry).arg("NX");
                pipeline.cmd("INCRBY").arg(&current).arg(delta.events);
            } else {
                pipeline.cmd("GET").arg(&current);
            }
            pipeline.cmd("GET").arg(&previous);
            periods.push((period, delta.events > 0));
        }
        // Not `req_packed_commands`, which waits for each response, also after the first timeout.
        self.connection.send_packed_command(&pipeline.get_packed_pipeline())?;
        let connection = &mut self.connection;
        let mut value = || {
            if now.elapsed() > ROUND_MAX {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
            connection.recv_response()?.extract_error()
        };
        self.clock = clock(redis::from_redis_value(value()?)?);
        let mut counts = Vec::with_capacity(periods.len());
        for (period, has_events) in periods {
            if has_events {
                value()?;
            }
            let (current, previous) = (number(value()?)?, number(value()?)?);
            counts.push(WindowCounts { period: period.number, began: period.began, current, previous });
        }
        Ok(counts)
    }
}

fn clock((seconds, micros): (u64, u64)) -> ServerClock {
    ServerClock { at: Instant::now(), millis: seconds.saturating_mul(1000).saturating_add(micros / 1000) }
}

/// A missing counter is 0.
fn number(value: Value) -> Result<u32, RedisError> {
    let count: Option<i64> = redis::from_redis_value(value)?;
    Ok(count.unwrap_or(0).clamp(0, u32::MAX.into()) as u32)
}

fn name(prefix: &str, window_millis: u64, id: &[u8; 16], period: u64) -> String {
    format!("{prefix}/{window_millis}/{}/{period}", HEXLOWER.encode(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods() {
        let at = Instant::now();
        let clock = ServerClock { at, millis: 100_250 };
        assert_eq!(clock.period(1000, at).number, 100);
        let later = at + Duration::from_millis(800);
        assert_eq!(clock.period(1000, later), Period { number: 101, began: at + Duration::from_millis(750) });
        assert_eq!(name("p/z", 1000, &[0xab; 16], 7), format!("p/z/1000/{}/7", "ab".repeat(16)));
    }
}
