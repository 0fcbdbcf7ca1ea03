//! The signals that a server handles.

use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT, SIGTERM and SIGQUIT, which stop the server.
pub(in crate::cli) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    quit: Signal,
}

/// How a signal stops the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum StopKind {
    /// In-flight requests may finish.
    Graceful,
    /// The process ends at once: SIGQUIT, as in Caddy.
    Immediate,
}

/// Why the server stops.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StopCause {
    /// This process got a signal.
    Signal(StopKind),
    /// The former process got a signal, and has passed it on to this one.
    PassedOn,
}

/// How long after a signal that was passed on this process may get the same one: a terminal and systemd send it to both
/// processes.
const SAME_SIGNAL_WITHIN: Duration = Duration::from_secs(1);

/// Waits until a signal ends the process at once: SIGQUIT, or the second signal. `next` waits for the next one.
pub(super) async fn forced(cause: StopCause, mut next: impl AsyncFnMut() -> StopKind) {
    let is_immediate = match cause {
        StopCause::Signal(kind) => kind == StopKind::Immediate,
        StopCause::PassedOn => tokio::time::timeout(SAME_SIGNAL_WITHIN, next()).await == Ok(StopKind::Immediate),
    };
    if !is_immediate {
        next().await;
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    // docs/upgrade.md: a stop that is passed on, and the same signal to this process, are one stop.
    #[tokio::test]
    async fn signals_that_end_the_process_at_once() {
        use StopCause::{PassedOn, Signal};
        use StopKind::{Graceful, Immediate};
        for (cause, signals, want) in [
            (Signal(Immediate), &[][..], true),
            (Signal(Graceful), &[], false),
            (Signal(Graceful), &[Graceful], true),
            (PassedOn, &[], false),
            (PassedOn, &[Graceful], false),
            (PassedOn, &[Immediate], true),
            (PassedOn, &[Graceful, Graceful], true),
        ] {
            let mut signals = signals.iter().copied();
            let next = async || match signals.next() {
                Some(kind) => kind,
                None => std::future::pending().await,
            };
            let is_forced = tokio::select! {
                biased;
                () = forced(cause, next) => true,
                () = tokio::task::yield_now() => false,
            };
            assert_eq!(is_forced, want);
        }
    }
}
