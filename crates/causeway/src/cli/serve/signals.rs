//! The signals that a server handles.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT, SIGTERM and SIGQUIT, which stop the server.
pub(in crate::cli) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    quit: Signal,
}

/// How a signal stops the server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum StopKind {
    /// In-flight requests may finish.
    Graceful,
    /// The process ends at once: SIGQUIT, as in Caddy.
    Immediate,
}

/// SIGUSR1, which reloads the configuration's file.
pub(super) struct Reload(Signal);

/// SIGUSR2, at which another process takes the server's place.
pub(super) struct UpgradeSignal(Signal);

/// Registers all handlers, which replaces the signals' default actions.
pub(super) fn listen() -> anyhow::Result<(StopSignals, Reload, UpgradeSignal)> {
    // A closing terminal sends SIGHUP to background processes. The registration disables its default action, as in
    // Caddy.
    drop(listen_for(SignalKind::hangup())?);
    // DEVIATES Caddy, which ignores SIGUSR2: it is nginx's signal for this.
    let upgrade = UpgradeSignal(listen_for(SignalKind::user_defined2())?);
    Ok((StopSignals::listen()?, Reload(listen_for(SignalKind::user_defined1())?), upgrade))
}

fn listen_for(kind: SignalKind) -> anyhow::Result<Signal> {
    signal(kind).context("listening for signals")
}

impl StopSignals {
    /// Registers the handlers. Requires a tokio runtime.
    pub(in crate::cli) fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: listen_for(SignalKind::interrupt())?,
            terminate: listen_for(SignalKind::terminate())?,
            quit: listen_for(SignalKind::quit())?,
        })
    }

    /// Waits for the next signal.
    pub(in crate::cli) async fn next(&mut self) -> StopKind {
        tokio::select! {
            _ = self.interrupt.recv() => StopKind::Graceful,
            _ = self.terminate.recv() => StopKind::Graceful,
            _ = self.quit.recv() => StopKind::Immediate,
        }
    }
}

impl Reload {
    /// Waits for the next signal.
    pub(super) async fn next(&mut self) {
        self.0.recv().await;
    }
}

impl UpgradeSignal {
    /// Waits for the next signal.
    pub(super) async fn next(&mut self) {
        self.0.recv().await;
    }
}
