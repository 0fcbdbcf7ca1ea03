//! Evidence of the kind of load without probes, from the clients' behaviour.
//!
//! An open loop shows in two ways. A client with a rate of its own returns the sooner, the longer it had to wait. And
//! in a closed loop, fewer requests arrive while more clients are waiting for answers; in an open loop, the rate of
//! arrivals does not change.
//!
//! A load generator at its limit shows the first sign, too: its clients wait for the generator instead of the program.
//! The behaviour of clients alone does not distinguish it from a generator with a fixed rate.

use std::collections::HashMap;

use crate::constants::{CLIENTS_FIXED_MIN, CLIENTS_HALF_WIDTH_MAX, CLIENTS_POINTS_MIN, CLIENTS_STRETCHES_MAX};
use crate::trace::{Event, Trace};

/// The clients' behaviour, as sums over windows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClientBehaviour {
    away: Slope,
    crowd: Slope,
    /// Arrivals in windows with a fixed set of connections that each have one request in flight at a time, and all
    /// arrivals.
    fixed: [f64; 2],
}

/// Linear regression through points, as sums of deviations from the means of each window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Slope {
    count: f64,
    squares: f64,
    products: f64,
    /// For the standard error of the slope.
    noise: f64,
}

impl Slope {
    /// Computes the sums of points whose slope, times `scale`, is an estimate of the elasticity.
    fn of(points: &[(f64, f64)], scale: f64) -> Self {
        let count = points.len() as f64;
        // Too few points for a slope and its error.
        if points.len() < 3 || !scale.is_finite() {
            return Self::default();
        }
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let squares: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        let products: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
        let scatter: f64 = points.iter().map(|point| (point.1 - y).powi(2)).sum::<f64>() / count;
        Self { count: count - 1.0, squares, products: products * scale, noise: scatter * scale * scale * squares }
    }

    fn and(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            squares: self.squares + other.squares,
            products: self.products + other.products,
            noise: self.noise + other.noise,
        }
    }

    /// Returns the slope, if it is known well enough.
    fn known(self) -> Option<f64> {
        let half_width = 2.0 * self.noise.sqrt() / self.squares;
        (self.count >= CLIENTS_POINTS_MIN && half_width < CLIENTS_HALF_WIDTH_MAX).then(|| self.products / self.squares)
    }
}

impl ClientBehaviour {
    /// Reads the behaviour from the connections of a window.
    #[must_use]
    pub fn of(trace: &Trace) -> Self {
        let mut connections: HashMap<u64, Vec<(u64, bool)>> = HashMap::new();
        for &(at, event) in trace.threads.iter().flat_map(|thread| &thread.events) {
            match event {
                Event::Arrived { connection, at } => connections.entry(connection).or_default().push((at, true)),
                Event::Written { connection } => connections.entry(connection).or_default().push((at, false)),
                _ => {}
            }
        }
        let mut clients = Self::default();
        let (mut moments, mut in_turns, mut away) = (Vec::new(), 0, (0.0, 0.0));
        // Number of connections with more than one arrival.
        let again = connections.values().filter(|all| all.iter().filter(|moment| moment.1).count() > 1).count();
        for connection in connections.values_mut() {
            connection.sort_unstable();
            // Arrivals and answers alternate if there is never more than one request in flight.
            in_turns += connection.array_windows::<2>().filter(|[a, b]| a.1 != b.1).count() + 1;
            // An arrival, its answer, and the next arrival.
            let pairs: Vec<_> = connection
                .array_windows::<3>()
                .filter(|[a, b, c]| a.1 && !b.1 && c.1)
                .map(|[a, b, c]| ((b.0 - a.0) as f64, (c.0 - b.0) as f64))
                .collect();
            clients.away = clients.away.and(Slope::of(&pairs, 1.0));
            away = pairs.iter().fold(away, |sum, pair| (sum.0 + pair.1, sum.1 + 1.0));
            moments.append(connection);
        }
        // With several requests in flight on a connection, the waiting one is unknown.
        if in_turns * 10 > moments.len() * 9 {
            moments.sort_unstable();
            let came = moments.iter().filter(|moment| moment.1).count() as f64;
            clients.fixed[0] = if again * 10 >= connections.len() * 9 { came } else { 0.0 };
            clients.crowd = crowd(&moments, connections.len() as f64, away.0 / f64::max(away.1, 1.0));
        }
        clients.fixed[1] = moments.iter().filter(|moment| moment.1).count() as f64;
        clients
    }

    /// Adds the sums of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let sum = |a: [f64; 2], b: [f64; 2]| [a[0] + b[0], a[1] + b[1]];
        Self {
            away: self.away.and(other.away),
            crowd: self.crowd.and(other.crowd),
            fixed: sum(self.fixed, other.fixed),
        }
    }

    /// Returns whether the set of connections is fixed, each with one request in flight at a time.
    pub(super) fn is_fixed(self) -> bool {
        let [fixed, all] = self.fixed;
        all >= CLIENTS_POINTS_MIN && fixed >= CLIENTS_FIXED_MIN * all
    }

    #[cfg(test)]
    pub(super) fn of_elasticity(elasticity: f64) -> Self {
        let crowd = Slope { count: 2.0 * CLIENTS_POINTS_MIN, squares: 1.0, products: elasticity, noise: 0.0 };
        Self { crowd, ..Self::default() }
    }

    #[cfg(test)]
    pub(super) fn of_fixed_connections() -> Self {
        Self { fixed: [2.0 * CLIENTS_POINTS_MIN; 2], ..Self::default() }
    }

    /// Returns the elasticity by the behaviour, from 0 to 1; the lower one of both. `None` if neither is known.
    pub(super) fn elasticity(self) -> Option<f64> {
        let away = self.away.known().map(|slope| 1.0 + slope);
        let of = [away, self.crowd.known()].into_iter().flatten();
        of.min_by(f64::total_cmp).map(|elasticity| elasticity.clamp(0.0, 1.0))
    }
}

/// Compares, in short stretches of time, the number of arrivals with the number of clients waiting at its begin.
/// `moments` are the times of arrivals (`true`) and answers; a client is `away` for that long on average.
///
/// A stretch must be much shorter than that: otherwise most arrivals in it follow an answer in it, and the number at
/// its begin is irrelevant.
fn crowd(moments: &[(u64, bool)], clients: f64, away: f64) -> Slope {
    let (Some(&(first, _)), Some(&(last, _))) = (moments.first(), moments.last()) else { return Slope::default() };
    let arrivals = moments.iter().filter(|moment| moment.1).count() as u64;
    // The mean time between two arrivals.
    let distance = (last - first) / arrivals.max(1);
    let stretch = distance.min(away as u64 / 4);
    if stretch == 0 || stretch * CLIENTS_STRETCHES_MAX < distance {
        return Slope::default();
    }
    let (mut waiting, mut points, mut end, mut at_begin, mut came) = (0.0_f64, Vec::new(), first + stretch, 0.0, 0.0);
    for &(at, is_arrival) in moments {
        // Close all stretches that ended before this moment, including empty ones.
        while at >= end {
            points.push((at_begin, came));
            (end, at_begin, came) = (end + stretch, waiting, 0.0);
        }
        if is_arrival {
            came += 1.0;
            waiting += 1.0;
        } else {
            waiting = f64::max(waiting - 1.0, 0.0);
        }
    }
    // The number of waiting clients is not right until each of them has been seen.
    points.drain(..points.len() / 10);
    let count = points.len().max(1) as f64;
    let (waiting, came) =
        points.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0 / count, sum.1 + point.1 / count));
    Slope::of(&points, -(clients - waiting) / came)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::SeededRandom;
    use crate::trace::Thread;

    /// Simulates a server that takes 50 to 150 per request, one after the other. `next` returns a client's next arrival
    /// from the number of requests so far and the time of its last answer.
    fn behaviour(clients: usize, mut next: impl FnMut(&mut SeededRandom, u64, u64) -> u64) -> Option<f64> {
        let mut random = SeededRandom::new(7);
        let mut due: Vec<u64> = (0..clients as u64).map(|client| client * 31).collect();
        let (mut now, mut events) = (0, Vec::new());
        for request in 0..4000 {
            let client = (0..clients).min_by_key(|&client| due[client]).unwrap();
            let came = due[client];
            now = now.max(came) + 50 + random.bits() % 100;
            events.push((now, Event::Arrived { connection: client as u64 + 1, at: came }));
            events.push((now, Event::Written { connection: client as u64 + 1 }));
            due[client] = next(&mut random, request, now).max(now + 1);
        }
        let thread = Thread { events, ..Thread::default() };
        ClientBehaviour::of(&Trace { time: 0..now, threads: vec![thread], ..Trace::default() }).elasticity()
    }

    #[test]
    fn clients_that_wait_for_their_responses() {
        for clients in [1, 2, 4, 8, 16] {
            for away in [20, 100, 600, 2000] {
                let random = behaviour(clients, |random, _, answered| answered + away + random.bits() % away);
                assert!(random.is_none_or(|elasticity| elasticity > 0.3), "{clients}, {away}: {random:?}");
                let fixed = behaviour(clients, |_, _, answered| answered + away);
                assert!(fixed.is_none_or(|elasticity| elasticity > 0.3), "{clients}, {away}: {fixed:?}");
            }
        }
        let away = behaviour(8, |random, _, answered| answered + 600 + random.bits() % 600);
        assert!(away.is_some_and(|elasticity| elasticity > 0.6), "{away:?}");
    }

    #[test]
    fn clients_with_a_fixed_rate() {
        let paced = behaviour(4, |_, request, _| (request / 4 + 1) * 700 + request % 4 * 31);
        assert!(paced.is_some_and(|elasticity| elasticity < 0.3), "{paced:?}");
    }

    // A free connection carries the next request, which arrives at random.
    #[test]
    fn random_arrivals() {
        let mut at = 0;
        let random = behaviour(16, |random, _, _| {
            at += (-(random.bits() as f64 / u64::MAX as f64).max(1e-9).ln() * 200.0) as u64;
            at + 1500
        });
        assert!(random.is_some_and(|elasticity| elasticity < 0.3), "{random:?}");
    }

    #[test]
    fn little_evidence_gives_no_result() {
        assert_eq!(ClientBehaviour::default().elasticity(), None);
        assert_eq!(ClientBehaviour::of(&Trace::default()).elasticity(), None);
    }
}
