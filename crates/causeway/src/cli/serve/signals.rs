//! The signals that a server handles.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT and SIGTERM, which stop the server.
pub(in crate::cli) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

/// SIGUSR1, which reloads the configuration's file.
pub(super) struct Reload(Signal);

/// Registers all handlers, which replaces the signals' default actions.
pub(super) fn listen() -> anyhow::Result<(StopSignals, Reload)> {
    // A closing terminal sends SIGHUP to background processes. The registration disables its default action, as in
    // Caddy.
    drop(listen_for(SignalKind::hangup())?);
    // Caddy ignores SIGUSR2 too.
    drop(listen_for(SignalKind::user_defined2())?);
    Ok((StopSignals::listen()?, Reload(listen_for(SignalKind::user_defined1())?)))
}

fn listen_for(kind: SignalKind) -> anyhow::Result<Signal> {
    signal(kind).context("listening for signals")
}

impl StopSignals {
    /// Registers the two handlers. Requires a tokio runtime.
    pub(in crate::cli) fn listen() -> anyhow::Result<Self> {
        Ok(Self { interrupt: listen_for(SignalKind::interrupt())?, terminate: listen_for(SignalKind::terminate())? })
    }

    /// Waits for the next signal.
    pub(in crate::cli) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

impl Reload {
    /// Waits for the next signal.
    pub(super) async fn next(&mut self) {
        self.0.recv().await;
    }
}
