//! What drives the program, as far as that can be seen without trying: how clients behave.
//!
//! Two habits give a load away that comes at its own pace. A client with a pace of its own is away the shorter, the longer he had to wait. And
//! where clients wait for their answers, the fewer can ask the more of them wait already; where they do not, as many come as ever.

use std::collections::HashMap;

use crate::trace::{Event, Trace};

/// What was seen of clients' habits. Sums, so that windows add up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Habit {
    away: Slope,
    crowd: Slope,
}

/// A line through points, by sums of what deviates from the means of each window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Slope {
    count: f64,
    squares: f64,
    products: f64,
    /// For the slope's own error.
    noise: f64,
}

/// Points below which a habit says nothing, and how well its slope must be known.
const POINTS_MIN: f64 = 200.0;
const HALF_WIDTH_MAX: f64 = 0.25;
/// How many stretches of time there may be for each that comes.
const STRETCHES_MAX: u64 = 20;

impl Slope {
    /// Of points whose slope, times `scale`, is the elasticity that they speak for.
    fn of(points: &[(f64, f64)], scale: f64) -> Self {
        let count = points.len() as f64;
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

    /// The slope, where there is enough to say.
    fn known(self) -> Option<f64> {
        let half_width = 2.0 * self.noise.sqrt() / self.squares;
        (self.count >= POINTS_MIN && half_width < HALF_WIDTH_MAX).then(|| self.products / self.squares)
    }
}

impl Habit {
    /// What the connections of a window show.
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
        let mut habit = Self::default();
        let (mut moments, mut in_turns, mut away) = (Vec::new(), 0, (0.0, 0.0));
        for connection in connections.values_mut() {
            connection.sort_unstable();
            in_turns += connection.array_windows::<2>().filter(|[a, b]| a.1 != b.1).count() + 1;
            // Came, was answered, came again.
            let pairs: Vec<_> = connection
                .array_windows::<3>()
                .filter(|[a, b, c]| a.1 && !b.1 && c.1)
                .map(|[a, b, c]| ((b.0 - a.0) as f64, (c.0 - b.0) as f64))
                .collect();
            habit.away = habit.away.and(Slope::of(&pairs, 1.0));
            away = pairs.iter().fold(away, |sum, pair| (sum.0 + pair.1, sum.1 + 1.0));
            moments.append(connection);
        }
        // Where several requests are under way on a connection, nobody knows which one waits.
        if in_turns * 10 > moments.len() * 9 {
            moments.sort_unstable();
            habit.crowd = crowd(&moments, connections.len() as f64, away.0 / f64::max(away.1, 1.0));
        }
        habit
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { away: self.away.and(other.away), crowd: self.crowd.and(other.crowd) }
    }

    /// The elasticity that the habits speak for, between 0 and 1; the lower one.
    pub(super) fn elasticity(self) -> Option<f64> {
        let away = self.away.known().map(|slope| 1.0 + slope);
        let of = [away, self.crowd.known()].into_iter().flatten();
        of.min_by(f64::total_cmp).map(|elasticity| elasticity.clamp(0.0, 1.0))
    }
}

/// In short stretches of time, how many came against how many waited when it began. `moments` says when somebody came or was answered;
/// clients are `away` so long on average.
///
/// A stretch is short against that: else most who come in it were answered in it, and who waited when it began does not matter.
fn crowd(moments: &[(u64, bool)], clients: f64, away: f64) -> Slope {
    let (Some(&(first, _)), Some(&(last, _))) = (moments.first(), moments.last()) else { return Slope::default() };
    let arrivals = moments.iter().filter(|moment| moment.1).count() as u64;
    let distance = (last - first) / arrivals.max(1);
    let stretch = distance.min(away as u64 / 4);
    if stretch == 0 || stretch * STRETCHES_MAX < distance {
        return Slope::default();
    }
    let (mut waiting, mut points, mut end, mut at_begin, mut came) = (0.0_f64, Vec::new(), first + stretch, 0.0, 0.0);
    for &(at, is_arrival) in moments {
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
    // Until each of them was seen, it is not known who waits.
    points.drain(..points.len() / 10);
    let count = points.len().max(1) as f64;
    let (waiting, came) =
        points.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0 / count, sum.1 + point.1 / count));
    Slope::of(&points, -(clients - waiting) / came)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Dice;
    use crate::trace::Thread;

    /// Requests at a server that takes 50 to 150 for each, one after the other: who comes when is said by how often one has come and
    /// when the last answer on the connection was.
    fn habit(clients: usize, mut next: impl FnMut(&mut Dice, u64, u64) -> u64) -> Option<f64> {
        let mut dice = Dice::new(7);
        let mut due: Vec<u64> = (0..clients as u64).map(|client| client * 31).collect();
        let (mut now, mut events) = (0, Vec::new());
        for request in 0..4000 {
            let client = (0..clients).min_by_key(|&client| due[client]).unwrap();
            let came = due[client];
            now = now.max(came) + 50 + dice.bits() % 100;
            events.push((now, Event::Arrived { connection: client as u64 + 1, at: came }));
            events.push((now, Event::Written { connection: client as u64 + 1 }));
            due[client] = next(&mut dice, request, now).max(now + 1);
        }
        let thread = Thread { events, ..Thread::default() };
        Habit::of(&Trace { span: 0..now, threads: vec![thread], ..Trace::default() }).elasticity()
    }

    #[test]
    fn clients_that_wait_for_their_answers() {
        for clients in [1, 2, 4, 8, 16] {
            for away in [20, 100, 600, 2000] {
                let random = habit(clients, |dice, _, answered| answered + away + dice.bits() % away);
                assert!(random.is_none_or(|elasticity| elasticity > 0.3), "{clients}, {away}: {random:?}");
                let fixed = habit(clients, |_, _, answered| answered + away);
                assert!(fixed.is_none_or(|elasticity| elasticity > 0.3), "{clients}, {away}: {fixed:?}");
            }
        }
        let away = habit(8, |dice, _, answered| answered + 600 + dice.bits() % 600);
        assert!(away.is_some_and(|elasticity| elasticity > 0.6), "{away:?}");
    }

    #[test]
    fn clients_with_a_pace_of_their_own() {
        let paced = habit(4, |_, request, _| (request / 4 + 1) * 700 + request % 4 * 31);
        assert!(paced.is_some_and(|elasticity| elasticity < 0.3), "{paced:?}");
    }

    // Whoever is free carries the next request, which comes when it comes.
    #[test]
    fn a_crowd_that_comes_whoever_waits() {
        let mut at = 0;
        let random = habit(16, |dice, _, _| {
            at += (-(dice.bits() as f64 / u64::MAX as f64).max(1e-9).ln() * 200.0) as u64;
            at + 1500
        });
        assert!(random.is_some_and(|elasticity| elasticity < 0.3), "{random:?}");
    }

    #[test]
    fn little_says_nothing() {
        assert_eq!(Habit::default().elasticity(), None);
        assert_eq!(Habit::of(&Trace::default()).elasticity(), None);
    }
}
