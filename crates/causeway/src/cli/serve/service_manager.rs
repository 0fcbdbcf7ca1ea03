//! Messages to the service manager, in systemd's protocol sd_notify: none without `NOTIFY_SOCKET`.

use causeway::server::Stage;
use causeway_engine::Pulse;
use causeway_pipeline::BoundAddress;
use sd_notify::NotifyState;

use super::urls;

/// Reports that the server has started.
pub(super) fn ready(places: &[(BoundAddress, bool)]) {
    let status = serving(places);
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
        Stage::Loaded(places) => ready(places),
        Stage::Refused(fault) => {
            // A line break would begin another message.
            let status = format!("The last configuration was refused: {fault}").replace(char::is_control, " ");
            send(&[NotifyState::Ready, NotifyState::Status(&status)]);
        }
        Stage::Stopping => send(&[NotifyState::Stopping, NotifyState::Status("Stopping")]),
    }
}

/// Reports that another process takes this one's place. Only the main process may report it, and its later messages are ignored.
pub(super) fn succeeded_by(process: u32) {
    send(&[NotifyState::MainPid(process)]);
}

/// Sends a sign of life at twice the frequency that the service manager expects, as long as every worker runs its tasks. Returns
/// at once if the service manager expects none.
pub(super) async fn watch(pulse: Pulse) {
    let every = sd_notify::watchdog_enabled().map(|limit| limit / 2);
    // An interval of nothing would be a panic.
    let Some(every) = every.filter(|every| !every.is_zero()) else { return };
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if !pulse.beat().await {
            // A worker has ended: either the server stops, or the service manager should restart it.
            return;
        }
        send(&[NotifyState::Watchdog]);
    }
}

fn serving(places: &[(BoundAddress, bool)]) -> String {
    format!("Serving {}", urls(places))
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "cannot notify the service manager at NOTIFY_SOCKET");
    }
}
