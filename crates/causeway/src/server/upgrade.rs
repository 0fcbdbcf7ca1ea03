//! The handover of a running server to another process: an upgrade of the program.
//!
//! ```text
//!   this server:      serves ──lend──► waits ──ready──► leaves: accepts no more, drains ──► ends
//!                                        └───failed──► serves on
//!   the other server: starts ──────────► serves with the same sockets and configuration ──►
//! ```

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use causeway_engine::HandedSockets;
use serde_json::Value;

use super::source::ConfigFile;

/// The listening sockets of a server, for another process.
#[derive(Debug, Default)]
pub struct Handover {
    /// The sockets of the sites.
    pub sites: Vec<HandedSockets>,
    /// The socket of the admin API.
    pub admin: Vec<HandedSockets>,
}

/// All that another process needs to take a server's place.
#[derive(Debug)]
pub struct UpgradeOffer {
    /// The running configuration, as Caddy's JSON.
    pub config: Value,
    /// The file that the server follows.
    pub followed_file: Option<ConfigFile>,
    /// The listening sockets.
    pub sockets: Handover,
    /// The program to run; `None` is this server's own.
    pub binary: Option<PathBuf>,
    /// Becomes true when this server is stopped meanwhile: the other process must not take its place then.
    pub is_withdrawn: Arc<AtomicBool>,
}

/// Starts another process and waits until it serves. Returns its process id, or the reason why it does not serve.
pub type SuccessorStart =
    Box<dyn Fn(UpgradeOffer) -> Pin<Box<dyn Future<Output = Result<u32, String>> + Send>> + Send + Sync>;

/// The reason for which a server did not hand over. It continues to serve, unless it is stopping or has been replaced.
#[derive(Debug)]
#[non_exhaustive]
pub enum UpgradeError {
    /// The server is part of another program, which starts no process.
    Embedded,
    /// The sockets cannot be duplicated.
    Sockets(io::Error),
    /// The other process does not serve.
    Successor(String),
    /// A command to stop the server has ended the other process.
    Cancelled,
    /// The server is stopping, or another process has taken its place.
    Stopping,
}

impl fmt::Display for UpgradeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded => f.write_str("this server is part of another program, which starts no new process"),
            Self::Sockets(error) => write!(f, "duplicating the listening sockets: {error}"),
            Self::Successor(message) => f.write_str(message),
            Self::Cancelled => f.write_str("the server was stopped meanwhile"),
            Self::Stopping => f.write_str("the server is stopping, or another process has taken its place"),
        }
    }
}

impl std::error::Error for UpgradeError {}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use causeway_config::plan::AdminAddress;
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tokio::sync::Notify;

    use super::super::control::WAITING_MAX;
    use super::super::{Control, Force, LoadError, LoadOrigin, LoadRequest, Server, ServerSettings, StopError};
    use super::*;

    fn settings() -> ServerSettings {
        let registry = Arc::new(crate::registry());
        ServerSettings {
            workers: 1,
            grace: None,
            directives: Arc::new(crate::directives(&registry)),
            registry,
            environment: Arc::new(|_| None),
            admin: Some(AdminAddress::parse("127.0.0.1:0", "").unwrap()),
            data: std::env::temp_dir().join(format!("causeway-upgrade-{}", std::process::id())),
            autosave: None,
            logs: Box::new(|_| {}),
            stages: Box::new(|_| {}),
            successor: None,
            handed: None,
        }
    }

    /// Starts a server whose successor has this result once a command has stopped the server. The start of the
    /// successor notifies `started`.
    async fn start(started: &Arc<Notify>, result: Result<u32, &'static str>) -> Server {
        let started = Arc::clone(started);
        let successor: SuccessorStart = Box::new(move |offer| {
            started.notify_one();
            Box::pin(async move {
                while !offer.is_withdrawn.load(Ordering::Relaxed) {
                    tokio::task::yield_now().await;
                }
                result.map_err(str::to_owned)
            })
        });
        let settings = ServerSettings { successor: Some(successor), ..settings() };
        Server::start(settings, json!({}), None).await.unwrap()
    }

    /// Stops the server by its API. Returns the response's status.
    async fn stop_by_api(server: &str) -> String {
        let mut stream = TcpStream::connect(server).await.unwrap();
        let request = format!("POST /stop HTTP/1.0\r\nHost: {server}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response.split(' ').nth(1).unwrap().to_owned()
    }

    // A stop that comes when the other process serves already is not lost: its caller gets an error, and may send it to
    // that process.
    #[tokio::test]
    async fn a_stop_that_comes_late() {
        for by_api in [false, true] {
            let started = Arc::new(Notify::new());
            let server = start(&started, Ok(7)).await;
            let (control, address) = (server.control(), server.admin_address().unwrap().to_string());
            let running = tokio::spawn(server.run());
            let stop = async {
                started.notified().await;
                match by_api {
                    false => assert_eq!(control.stop().await.err(), Some(StopError::Overtaken(7))),
                    true => assert_eq!(stop_by_api(&address).await, "503"),
                }
            };
            let (upgraded, ()) = tokio::join!(control.upgrade(None), stop);
            assert_eq!(upgraded.unwrap(), 7);
            assert_eq!(control.stop().await.err(), Some(StopError::Replaced));
            running.await.unwrap();
        }
    }

    // As above, of more stops than the channel holds: the other ones wait too.
    #[tokio::test]
    async fn many_stops_that_come_late() {
        let started = Arc::new(Notify::new());
        let server = start(&started, Ok(7)).await;
        let control = server.control();
        let running = tokio::spawn(server.run());
        let stop = |control: Control| async move { control.stop().await.err() };
        let stops = async {
            started.notified().await;
            (0..3 * WAITING_MAX).map(|_| tokio::spawn(stop(control.clone()))).collect::<Vec<_>>()
        };
        // The new tasks run before the one that reads the first stop is woken, so that each waits.
        let (upgraded, stops) = tokio::join!(control.upgrade(None), stops);
        assert_eq!(upgraded.unwrap(), 7);
        for stop in stops {
            assert_eq!(stop.await.unwrap(), Some(StopError::Overtaken(7)));
        }
        running.await.unwrap();
    }

    // A stop ends an upgrade also if as many other commands wait as the server takes.
    #[tokio::test]
    async fn a_stop_among_other_commands() {
        let load = |control: Control| async move {
            control.load(LoadRequest { config: json!({}), force: Force::Always, by: LoadOrigin::Owner }).await
        };
        let started = Arc::new(Notify::new());
        let server = start(&started, Err("ended")).await;
        let control = server.control();
        let running = tokio::spawn(server.run());
        let stop = async {
            started.notified().await;
            let loads: Vec<_> = (0..3 * WAITING_MAX).map(|_| tokio::spawn(load(control.clone()))).collect();
            // Each load runs until it waits.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            control.stop().await.unwrap_or_else(|error| panic!("{error}")).ended().await;
            loads
        };
        let both = async { tokio::join!(control.upgrade(None), stop) };
        // A stop that waits for the other commands would wait for ever.
        let (upgraded, loads) = tokio::time::timeout(Duration::from_secs(60), both).await.unwrap();
        assert!(matches!(upgraded, Err(UpgradeError::Cancelled)));
        for load in loads {
            assert!(matches!(load.await.unwrap(), Err(LoadError::Stopping)));
        }
        running.await.unwrap();
    }

    // The file is for `--resume`. A configuration that the former process did not save there, as it was pulled, is not
    // saved by the new one.
    #[tokio::test]
    async fn the_last_configuration_is_the_former_one() {
        let file = std::env::temp_dir().join(format!("causeway-upgrade-autosave-{}.json", std::process::id()));
        let _ = std::fs::remove_file(&file);
        for (handed, is_saved) in [(Some(Handover::default()), false), (None, true)] {
            let settings = ServerSettings { handed, autosave: Some(file.clone()), ..settings() };
            let server = Server::start(settings, json!({ "apps": {} }), None).await.unwrap();
            assert_eq!(file.exists(), is_saved);
            drop(server);
        }
        std::fs::remove_file(&file).unwrap();
    }
}
