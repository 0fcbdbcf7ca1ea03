//! Messages to the service manager, in systemd's protocol sd_notify: none without `NOTIFY_SOCKET`.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use causeway::server::{SiteAddress, Stage};
use causeway_engine::WorkerLiveness;
use rustix::io::retry_on_intr;
use rustix::net::SendFlags;
use sd_notify::NotifyState;

use super::urls;

/// A stop with the default `grace_period` and without a `shutdown_delay`.
const USUAL_STOP: Duration = Duration::from_secs(10);
/// The time that a stop may take beyond the delay and the grace period.
const STOP_MARGIN: Duration = Duration::from_secs(10);

/// Time in which a service manager that is busy, as at the start of a machine, may make room for a message. After a
/// message without room later ones do not wait.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// Reports that the server has started.
pub(super) fn ready(site_addresses: &[SiteAddress]) {
    let status = serving(site_addresses);
    send(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// Reports a later stage.
pub(super) fn tell(stage: &Stage<'_>) {
    match stage {
        Stage::Loading => {
            // Since version 253 systemd treats RELOADING=1 without MONOTONIC_USEC as an error.
            let Ok(now) = NotifyState::monotonic_usec_now() else { return };
            send(&[NotifyState::Reloading, now, NotifyState::Status("Loading a configuration")]);
        }
        Stage::Loaded(addresses) => ready(addresses),
        Stage::Refused(error) => {
            // A line break would begin another message.
            let status = format!("The last configuration was refused: {error}").replace(char::is_control, " ");
            send(&[NotifyState::Ready, NotifyState::Status(&status)]);
        }
        Stage::Stopping(within) => {
            let stopping = [NotifyState::Stopping, NotifyState::Status("Stopping")];
            match more_time(*within) {
                Some(text) => send(&[&stopping[..], &[NotifyState::Custom(&text)]].concat()),
                None => send(&stopping),
            }
        }
    }
}

/// Returns the request for the time of a stop that the unit's `TimeoutStopSec=20s` is too short for; `None` for the
/// usual stop, so that an operator may shorten that.
///
/// systemd.service(5): a service with this request is killed when the time is over, if `TimeoutStopSec=` is over too.
fn more_time(within: Duration) -> Option<String> {
    // Not `ExtendTimeoutUsec`, whose number ends at 71 minutes.
    let microseconds = u64::try_from(within.saturating_add(STOP_MARGIN).as_micros()).unwrap_or(u64::MAX / 2);
    (within > USUAL_STOP).then(|| format!("EXTEND_TIMEOUT_USEC={microseconds}"))
}

/// Reports that another process takes this one's place. Only the main process may report it, and its later messages are
/// ignored.
pub(super) fn succeeded_by(process: u32) {
    send(&[NotifyState::MainPid(process)]);
}

/// Sends a sign of life at twice the frequency that the service manager expects, as long as every worker runs its
/// tasks. Returns at once if the service manager expects none.
pub(super) async fn watch(liveness: WorkerLiveness) {
    let every = sd_notify::watchdog_enabled().map(|limit| limit / 2);
    // An interval of nothing would be a panic.
    let Some(every) = every.filter(|every| !every.is_zero()) else { return };
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if !liveness.check().await {
            // A worker has ended: either the server stops, or the service manager should restart it.
            return;
        }
        send(&[NotifyState::Watchdog]);
    }
}

fn serving(site_addresses: &[SiteAddress]) -> String {
    format!("Serving {}", urls(site_addresses))
}

fn send(states: &[NotifyState<'_>]) {
    let Some(place) = std::env::var_os("NOTIFY_SOCKET") else { return };
    // Whether the last message found no room.
    static IS_STALLED: AtomicBool = AtomicBool::new(false);
    let text: String = states.iter().map(|state| format!("{state}\n")).collect();
    // Not by the crate, whose send waits without a limit, and with it all work of the main thread.
    let send = || -> io::Result<()> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(&place)?;
        socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        socket.set_nonblocking(IS_STALLED.load(Ordering::Relaxed))?;
        // A signal interrupts a send that has a timeout, also with SA_RESTART.
        Ok(retry_on_intr(|| rustix::net::send(&socket, text.as_bytes(), SendFlags::empty())).map(drop)?)
    };
    let sent = send();
    let is_stalled = sent.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
    let was_stalled = IS_STALLED.swap(is_stalled, Ordering::Relaxed);
    match sent {
        Err(_) if is_stalled && was_stalled => {}
        Err(error) => tracing::warn!(%error, "cannot notify the service manager at NOTIFY_SOCKET"),
        Ok(()) => {}
    }
}
