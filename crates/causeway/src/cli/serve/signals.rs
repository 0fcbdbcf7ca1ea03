//! The signals that a server answers.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT and SIGTERM end it.
pub(super) struct End {
    interrupt: Signal,
    terminate: Signal,
}

/// SIGUSR1 makes it read its file again.
pub(super) struct Reload(Signal);

/// Listens; from here on none of them has its default effect.
pub(super) fn listen() -> anyhow::Result<(End, Reload)> {
    let listen = |kind| signal(kind).context("listening for signals");
    // A terminal that closes sends this to what was left running; once listened for, it ends nothing, as in Caddy.
    drop(listen(SignalKind::hangup())?);
    // Caddy has nothing to do for this one either.
    drop(listen(SignalKind::user_defined2())?);
    let end = End { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? };
    Ok((end, Reload(listen(SignalKind::user_defined1())?)))
}

impl End {
    /// Until the next one comes.
    pub(super) async fn next(&mut self) {
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
