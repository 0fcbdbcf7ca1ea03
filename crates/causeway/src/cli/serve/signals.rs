//! The signals that a server answers.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT and SIGTERM end it.
pub(in crate::cli) struct End {
    interrupt: Signal,
    terminate: Signal,
}

/// SIGUSR1 makes it read its file again.
pub(super) struct Reload(Signal);

/// Listens; from here on none of them has its default effect.
pub(super) fn listen() -> anyhow::Result<(End, Reload)> {
    // A terminal that closes sends this to what was left running; once listened for, it ends nothing, as in Caddy.
    drop(heard(SignalKind::hangup())?);
    // Caddy has nothing to do for this one either.
    drop(heard(SignalKind::user_defined2())?);
    Ok((End::listen()?, Reload(heard(SignalKind::user_defined1())?)))
}

fn heard(kind: SignalKind) -> anyhow::Result<Signal> {
    signal(kind).context("listening for signals")
}

impl End {
    /// Listens for these alone; needs a runtime.
    pub(in crate::cli) fn listen() -> anyhow::Result<Self> {
        Ok(Self { interrupt: heard(SignalKind::interrupt())?, terminate: heard(SignalKind::terminate())? })
    }

    /// Until the next one comes.
    pub(in crate::cli) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

impl Reload {
    /// Until the next one comes.
    pub(super) async fn next(&mut self) {
        self.0.recv().await;
    }
}
