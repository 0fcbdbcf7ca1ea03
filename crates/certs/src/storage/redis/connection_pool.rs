//! The connections to a server.
//!
//! A call takes an idle connection or opens one. After a failure to connect or a lost connection, the server counts as
//! unreachable for [`RETRY_AFTER`]: calls fail at once, so that work over thousands of names does not wait for
//! thousands of timeouts. The first call after that tries again, and the others keep failing until it has succeeded.
//!
//! After a failover the address leads to another server, while the connections of before still lead to the former
//! master. So a connection whose server refuses writes, or has no master, is closed.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::{
    Client, Cmd, Connection, ConnectionAddr, ErrorKind, FromRedisValue, IntoConnectionInfo as _, Pipeline,
    RedisConnectionInfo, RedisError, RedisResult, ServerErrorKind, TlsCertificates, Value,
};

use super::{RedisSpec, RedisTls, TIMEOUT};
use crate::Error;

/// Connections at once; calls beyond it wait for one.
const CONNECTIONS_MAX: usize = 16;
/// How long the server counts as unreachable after a failure.
const RETRY_AFTER: Duration = Duration::from_secs(1);

pub(super) struct ConnectionPool {
    client: Client,
    location: String,
    timeout: Duration,
    state: Mutex<LinkState>,
    /// Notified when a connection is free, and all waiting calls when the server has become unreachable.
    free: Condvar,
}

#[derive(Default)]
struct LinkState {
    idle: Vec<Connection>,
    /// Connections that a call uses or opens.
    used: usize,
    /// While the server is unreachable: the time of the next attempt, and the reason.
    down: Option<(Instant, String)>,
}

/// A free slot for a call, with an idle connection if there is one.
struct CallPermit<'a> {
    pool: &'a ConnectionPool,
    idle: Option<Connection>,
}

impl ConnectionPool {
    pub(super) fn new(spec: &RedisSpec) -> Result<Self, Error> {
        let (host, port) = (spec.host.clone(), spec.port);
        let addr = match &spec.tls {
            None => ConnectionAddr::Tcp(host, port),
            Some(RedisTls { insecure, .. }) => {
                // The crate redis uses the default provider of the process, which rustls cannot choose in a program
                // that enables its feature `ring` too. A default that the program has installed remains.
                let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: None }
            }
        };
        let mut login =
            RedisConnectionInfo::default().set_db(spec.db.into()).set_lib_name("causeway", env!("CARGO_PKG_VERSION"));
        if !spec.username.is_empty() {
            login = login.set_username(&spec.username);
        }
        if !spec.password.is_empty() {
            login = login.set_password(&spec.password);
        }
        let refused = |error: RedisError| Error::StorageSetting("redis", error.to_string());
        let info = addr.into_connection_info().map_err(refused)?.set_redis_settings(login);
        let client = match spec.tls.as_ref().and_then(|tls| tls.roots.clone()) {
            Some(roots) => {
                let certificates = TlsCertificates { client_tls: None, root_cert: Some(roots) };
                Client::build_with_tls(info, certificates)
            }
            None => Client::open(info),
        };
        Ok(Self {
            client: client.map_err(refused)?,
            location: spec.location(),
            timeout: spec.timeout.unwrap_or(TIMEOUT),
            state: Mutex::default(),
            free: Condvar::new(),
        })
    }

    /// Sends a command and returns its response.
    pub(super) fn query<T: FromRedisValue>(&self, command: &Cmd) -> io::Result<T> {
        let value: Value = self.call(|connection| command.query(connection))?;
        redis::from_redis_value(value).map_err(|error| io::Error::other(error.to_string()))
    }

    /// Sends commands and returns their responses; an error is one of them.
    pub(super) fn query_all(&self, commands: &Pipeline) -> io::Result<Vec<Value>> {
        let count = commands.cmd_iter().count();
        // Not `req_packed_commands`, which waits for each response, also after the first timeout.
        self.call(|connection| {
            connection.send_packed_command(&commands.get_packed_pipeline())?;
            let responses: Vec<_> = (0..count).map(|_| connection.recv_response()).collect::<RedisResult<_>>()?;
            let mut errors = responses.iter().filter_map(|response| match response {
                Value::ServerError(error) => Some(RedisError::from(error.clone())),
                _ => None,
            });
            errors.find(is_demoted).map_or(Ok(()), Err)?;
            Ok(responses)
        })
    }

    /// Performs a call, which must be repeatable: if an idle connection turns out to be closed, or that of a former
    /// master, the call is repeated on a new one.
    fn call<T>(&self, run: impl Fn(&mut Connection) -> RedisResult<T>) -> io::Result<T> {
        let mut permit = self.permit()?;
        if let Some(mut connection) = permit.idle.take() {
            match run(&mut connection) {
                Err(error) if (is_broken(&error) && !error.is_timeout()) || is_demoted(&error) => {}
                result => return self.answered(result, connection),
            }
            // The server has probably restarted or been demoted, so the other idle connections are of no use either.
            self.state().idle.clear();
        }
        let mut connection = self.connect().map_err(|error| self.fail(&error))?;
        let result = run(&mut connection);
        self.answered(result, connection)
    }

    fn connect(&self) -> RedisResult<Connection> {
        let connection = self.client.get_connection_with_timeout(self.timeout)?;
        connection.set_read_timeout(Some(self.timeout))?;
        connection.set_write_timeout(Some(self.timeout))?;
        Ok(connection)
    }

    fn answered<T>(&self, result: RedisResult<T>, connection: Connection) -> io::Result<T> {
        match result {
            Err(error) if is_broken(&error) => Err(self.fail(&error)),
            result => {
                let mut state = self.state();
                if !result.as_ref().is_err_and(is_demoted) {
                    state.idle.push(connection);
                }
                if state.down.take().is_some() {
                    tracing::info!("{}: reachable again", self.location);
                }
                drop(state);
                result.map_err(|error| io::Error::other(error.to_string()))
            }
        }
    }

    /// Waits for a slot.
    fn permit(&self) -> io::Result<CallPermit<'_>> {
        let mut state = self.state();
        loop {
            let now = Instant::now();
            if let Some((again, why)) = &state.down
                && now < *again
            {
                return Err(io::Error::new(io::ErrorKind::NotConnected, why.clone()));
            }
            if state.used < CONNECTIONS_MAX {
                // This call tries; the others fail until it has a result.
                if let Some((again, _)) = &mut state.down {
                    *again = now + self.timeout + RETRY_AFTER;
                }
                state.used += 1;
                let idle = state.idle.pop();
                return Ok(CallPermit { pool: self, idle });
            }
            state = self.free.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Marks the server as unreachable.
    fn fail(&self, error: &RedisError) -> io::Error {
        let why = if error.is_timeout() {
            format!("no response within {} ms", self.timeout.as_millis())
        } else {
            error.to_string()
        };
        let mut state = self.state();
        state.idle.clear();
        let before = state.down.replace((Instant::now() + RETRY_AFTER, why.clone()));
        drop(state);
        // All of them: a call that fails has no slot, the release of which would notify the next one.
        self.free.notify_all();
        if before.is_none() {
            tracing::error!("{}: unreachable: {why}; certificates in use stay in use", self.location);
        }
        io::Error::new(io::ErrorKind::NotConnected, why)
    }

    /// Ignores poisoning: every change is one assignment.
    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CallPermit<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        state.used -= 1;
        drop(state);
        self.pool.free.notify_one();
    }
}

/// Whether the connection cannot be used any more.
fn is_broken(error: &RedisError) -> bool {
    error.is_io_error() || error.is_timeout() || error.is_connection_dropped() || error.is_unrecoverable_error()
}

/// Whether the server refuses the call because it is no master, or has lost its own. It still serves reads, so it
/// counts as reachable; but the address may lead to another server by now. A server that answers `LOADING` stays the
/// same one.
fn is_demoted(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown) => true,
        // Every write is a script. Before Redis 7, the error of a command in a script is at the end of the script's own
        // error.
        ErrorKind::Server(ServerErrorKind::ResponseError) => {
            error.detail().is_some_and(|detail| detail.contains("-READONLY You can't write against a read only"))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The answers of a replica to a script that writes: Redis 7, Redis 6 and 5, Redis 4; and to any call if its master
    // is unreachable.
    #[test]
    fn errors_of_a_demoted_master() {
        let script = "ERR Error running script (call to f_0123): @user_script:1: @user_script: 1:";
        for (text, want) in [
            ("READONLY You can't write against a read only replica. script: 0123, on @user_script:1.".to_owned(), true),
            (format!("{script} -READONLY You can't write against a read only replica. "), true),
            (format!("{script} -READONLY You can't write against a read only slave. "), true),
            ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.".to_owned(), true),
            (format!("{script} -OOM command not allowed when used memory > 'maxmemory'. "), false),
            ("LOADING Redis is loading the dataset in memory".to_owned(), false),
        ] {
            let answer = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
            let Value::ServerError(error) = answer else { panic!("{text}: {answer:?}") };
            assert_eq!(is_demoted(&error.into()), want, "{text}");
        }
    }
}
