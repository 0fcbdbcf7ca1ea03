//! The thread of an exchange. A round sends the new events of all members and returns the counts of all servers.
//!
//! While the server is unreachable, members keep their events, and the thread tries again every second. Two lines are
//! logged: one when the server goes and one when it is back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::connection::RedisConnection;
use crate::exchange::{CountedKeys, ExchangeState, KEYS_PER_ROUND, KeyDelta, ROUND_INTERVAL};

/// The wait after a failed round.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The deltas of one member.
struct MemberDeltas {
    member: Arc<dyn CountedKeys>,
    deltas: Vec<KeyDelta>,
}

/// Runs until the exchange is closed.
pub(crate) fn run(shared: &ExchangeState, mut connection: RedisConnection) {
    let mut is_down = false;
    // Another member is first in each round, so that one with many keys cannot keep the others out.
    let mut first = 0_usize;
    let mut next = Instant::now();
    while !shared.is_closed() {
        let wait = next.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            std::thread::park_timeout(wait);
            continue;
        }
        if !shared.take_pending() {
            std::thread::park();
            continue;
        }
        let began = Instant::now();
        first = first.wrapping_add(1);
        let (round, is_rest) = collect(shared, first, began);
        if is_rest {
            shared.set_pending();
        }
        if round.is_empty() {
            continue;
        }
        let result = send(&mut connection, &round);
        match &result {
            Ok(()) if is_down => {
                tracing::info!("{}: limits are shared again", connection.server());
            }
            Err(why) if !is_down => {
                tracing::error!("{}: limits are not shared: {why}; each server limits for itself", connection.server());
            }
            _ => {}
        }
        is_down = result.is_err();
        shared.set_down(is_down);
        next = if is_down { Instant::now() + RETRY_AFTER } else { began + ROUND_INTERVAL };
        if is_down {
            round
                .iter()
                .for_each(|MemberDeltas { member, deltas }| deltas.iter().for_each(|delta| member.restore(delta)));
            shared.set_pending();
        }
    }
}

/// Returns the deltas of a round, and whether keys are left for the next one.
fn collect(shared: &ExchangeState, first: usize, now: Instant) -> (Vec<MemberDeltas>, bool) {
    let mut members = shared.members();
    if !members.is_empty() {
        let len = members.len();
        members.rotate_left(first % len);
    }
    let (mut left, mut is_rest) = (KEYS_PER_ROUND, false);
    let mut round = Vec::new();
    for member in members {
        let mut deltas = Vec::new();
        is_rest |= member.collect(now, left, &mut deltas);
        left -= deltas.len();
        if !deltas.is_empty() {
            round.push(MemberDeltas { member, deltas });
        }
    }
    (round, is_rest)
}

/// Sends the deltas and gives the answers to the members, all or none.
fn send(connection: &mut RedisConnection, round: &[MemberDeltas]) -> Result<(), String> {
    let keys = || {
        round.iter().flat_map(|MemberDeltas { member, deltas }| deltas.iter().map(|delta| (member.prefix(), *delta)))
    };
    let counts = connection.exchange(keys)?;
    let mut counts = counts.into_iter();
    for MemberDeltas { member, deltas } in round {
        for (delta, all) in deltas.iter().zip(&mut counts) {
            member.update(delta, all);
        }
    }
    Ok(())
}
