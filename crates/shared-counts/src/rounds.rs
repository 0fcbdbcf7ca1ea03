//! The thread of an exchange. A round sends the new events of all members and returns the counts of all servers.
//!
//! While the server is unreachable, members keep their events, and the thread tries again every second. Two lines are
//! logged: one when the server goes and one when it is back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::exchange::{CountedKeys, ExchangeState, KEYS_PER_ROUND, KeyNews, ROUND_INTERVAL};
use crate::link::RedisLink;

/// The wait after a failed round.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The news of one member.
struct MemberNews {
    member: Arc<dyn CountedKeys>,
    news: Vec<KeyNews>,
}

/// Runs until the exchange is closed.
pub(crate) fn run(shared: &ExchangeState, mut link: RedisLink) {
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
        if !shared.take_news() {
            std::thread::park();
            continue;
        }
        let began = Instant::now();
        first = first.wrapping_add(1);
        let (round, is_rest) = collect(shared, first, began);
        if is_rest {
            shared.keep_news();
        }
        if round.is_empty() {
            continue;
        }
        let result = send(&mut link, &round);
        match &result {
            Ok(()) if is_down => {
                tracing::info!("{}: limits are shared again", link.server());
            }
            Err(why) if !is_down => {
                tracing::error!("{}: limits are not shared: {why}; each server limits for itself", link.server());
            }
            _ => {}
        }
        is_down = result.is_err();
        shared.set_down(is_down);
        next = if is_down { Instant::now() + RETRY_AFTER } else { began + ROUND_INTERVAL };
        if is_down {
            round.iter().for_each(|MemberNews { member, news }| news.iter().for_each(|news| member.restore(news)));
            shared.keep_news();
        }
    }
}

/// Returns the news of a round, and whether keys are left for the next one.
fn collect(shared: &ExchangeState, first: usize, now: Instant) -> (Vec<MemberNews>, bool) {
    let mut members = shared.members();
    if !members.is_empty() {
        let len = members.len();
        members.rotate_left(first % len);
    }
    let (mut left, mut is_rest) = (KEYS_PER_ROUND, false);
    let mut round = Vec::new();
    for member in members {
        let mut news = Vec::new();
        is_rest |= member.collect(now, left, &mut news);
        left -= news.len();
        if !news.is_empty() {
            round.push(MemberNews { member, news });
        }
    }
    (round, is_rest)
}

/// Sends the news and gives the answers to the members, all or none.
fn send(link: &mut RedisLink, round: &[MemberNews]) -> Result<(), String> {
    let keys = || round.iter().flat_map(|MemberNews { member, news }| news.iter().map(|news| (member.prefix(), *news)));
    let counts = link.exchange(keys)?;
    let mut counts = counts.into_iter();
    for MemberNews { member, news } in round {
        for (news, all) in news.iter().zip(&mut counts) {
            member.update(news, all);
        }
    }
    Ok(())
}
