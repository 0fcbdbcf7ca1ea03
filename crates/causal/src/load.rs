//! The kind of load: a closed loop, whose clients wait for their answers, or an open loop, with a rate of its own.
//!
//! Load probes find it by pausing the whole program for a fifth of a window's time, without a target. With a closed
//! loop, a fifth less is done; with an open loop, as much as before, only later. The fraction of the pause that the
//! rate gives up is the load's elasticity.
//!
//! - `clients`: evidence without probes, from the clients' behaviour.

mod clients;

use crate::constants::{
    LOAD_ELASTICITIES, LOAD_FORCED_MAX, LOAD_HALF_WIDTH_ENOUGH, LOAD_HALF_WIDTH_MAX, LOAD_IDLE_MIN, PEER_BUSY,
    PEER_SATURATED, PROBE, PROBE_BLOCKS_MIN, PROBE_PENDING_MAX, PROBE_PENDING_MUCH, PROBE_PRIOR_FREEDOM,
};
use crate::peers::PeerProcess;
use crate::replay::LoadModel;
use crate::report::{Limit, LoadKind};
use crate::statistics::jackknife;
pub use clients::ClientBehaviour;

/// One block of probes: two windows with the pause and two longer controls without.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProbeBlock {
    /// Units of progress and nanoseconds of the controls.
    pub control: [f64; 2],
    /// Units of progress and nanoseconds of the windows with the pause.
    pub paused: [f64; 2],
    /// Length of the pauses, nanoseconds.
    pub pauses: f64,
    /// Mean number of units held at a moment of a window with the pause, summed over these windows.
    pub held: f64,
}

impl ProbeBlock {
    fn sum(blocks: &mut dyn Iterator<Item = &Self>) -> Self {
        let mut sum = Self::default();
        for block in blocks {
            for at in 0..2 {
                sum.control[at] += block.control[at];
                sum.paused[at] += block.paused[at];
            }
            sum.pauses += block.pauses;
            sum.held += block.held;
        }
        sum
    }

    /// Returns the paused fraction of the time, and the rate as a fraction of the control's.
    fn pause_and_rate(&self) -> (f64, f64) {
        (self.pauses / self.paused[1], (self.paused[0] / self.paused[1]) / (self.control[0] / self.control[1]))
    }

    /// Returns the fraction of the pause that is missing at the end of its windows with any kind of load. A message is
    /// held for the pauses since the last answer on its connection, as if it had arrived that much later. Only the
    /// client's next message after that shows whether it waits for answers; for messages held at the end there is none
    /// yet.
    fn pending(&self) -> f64 {
        let missing = self.held / (self.control[0] / self.control[1] * self.pauses);
        // No message is held when a window begins. Once each connection has had an answer, all are held for the pauses
        // since the last one. If that takes the fraction x of the window, the mean over the window is x - x²/2; solve
        // for x.
        1.0 - (1.0 - 2.0 * missing.min(0.5)).sqrt()
    }

    fn elasticity(&self) -> Option<f64> {
        let ((pause, left), pending) = (self.pause_and_rate(), self.pending());
        let elasticity = ((1.0 - left) / pause - pending) / (1.0 - pending);
        (elasticity.is_finite() && pause > PROBE / 4.0 && pending < PROBE_PENDING_MAX).then_some(elasticity)
    }

    /// Returns the standard error of the elasticity with Poisson arrivals.
    fn error_by_chance(&self) -> f64 {
        let (pause, left) = self.pause_and_rate();
        // Relative to the units expected without any loss. Without any unit, count one: it might have come.
        let would = self.control[0] * self.paused[1] / self.control[1];
        (left.max(1.0 / would) / would + left * left / self.control[0]).sqrt() / pause / (1.0 - self.pending())
    }
}

/// The result about the load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadVerdict {
    /// Its kind.
    pub kind: LoadKind,
    /// The fraction of a pause that the rate of progress gives up, from 0 to 1; `None` if it is unknown.
    pub elasticity: Option<f64>,
    /// Half-width of its interval.
    pub half_width: f64,
    /// Number of blocks of probes that it is based on; 0 if it is not based on probes.
    pub blocks: usize,
    /// Whether further probes should be longer.
    pub needs_longer_probes: bool,
}

impl LoadVerdict {
    /// Returns whether further probes would not change the result.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.half_width < LOAD_HALF_WIDTH_ENOUGH
    }

    /// Returns the load model for replays.
    #[must_use]
    pub fn load_model(&self) -> LoadModel {
        if self.kind == LoadKind::Limited { LoadModel::Open } else { LoadModel::Closed }
    }

    /// Returns the fraction of a closed load's gain that this load would have, and the half-width of its interval.
    #[must_use]
    pub fn follows(&self) -> (f64, f64) {
        match self.elasticity {
            Some(elasticity) if self.kind == LoadKind::Mixed => (elasticity, self.half_width),
            _ => (1.0, 0.0),
        }
    }
}

/// Returns the cause that limits a load which does not follow the program; `None` if it follows. A generator on this
/// machine is recognised by its processor time; one on another machine looks like one with a fixed rate. `utilisation`
/// is that of the program's busiest thread: if that thread has no time left, the program sets the rate itself.
#[must_use]
pub fn limit(
    verdict: &LoadVerdict,
    clients: ClientBehaviour,
    peer: Option<&PeerProcess>,
    utilisation: f64,
) -> Option<Limit> {
    let is_at_limit = |peer: &PeerProcess| {
        is_saturated(peer) || peer.busy >= PEER_BUSY && clients.is_fixed() && verdict.kind == LoadKind::Limited
    };
    let is_generator = utilisation < 1.0 - LOAD_IDLE_MIN && peer.is_some_and(is_at_limit);
    match verdict.kind {
        LoadKind::Closed => None,
        LoadKind::Limited | LoadKind::Mixed => Some(if is_generator { Limit::Generator } else { Limit::FixedRate }),
    }
}

/// Returns whether the process needs more processor time than its busiest thread can get.
#[must_use]
pub fn is_saturated(peer: &PeerProcess) -> bool {
    peer.busy >= PEER_SATURATED
}

/// Judges the load by its probes, or by its clients' behaviour if there are too few. `utilisation` is that of the
/// program's busiest thread.
///
/// An open-loop load gives up part of the pause, too, if the pause takes more than the program's reserve. This forced
/// part is subtracted.
#[must_use]
pub fn judge(blocks: &[ProbeBlock], utilisation: f64, clients: ClientBehaviour) -> LoadVerdict {
    // The clients' behaviour is weak evidence: only a clear one counts.
    let by_clients = clients
        .elasticity()
        .filter(|&elasticity| elasticity < LOAD_ELASTICITIES[0] && utilisation < 1.0 - LOAD_IDLE_MIN);
    let needs_longer_probes = !blocks.is_empty() && ProbeBlock::sum(&mut blocks.iter()).pending() > PROBE_PENDING_MUCH;
    let (kind, half_width) = match by_clients {
        Some(_) => (LoadKind::Limited, LOAD_HALF_WIDTH_ENOUGH),
        // The load counts as closed, without an elasticity: reports call it unknown.
        None => (LoadKind::Closed, f64::INFINITY),
    };
    let unknown = LoadVerdict { kind, elasticity: by_clients, half_width, blocks: 0, needs_longer_probes };
    // Probes that were too short do not count beside longer ones.
    let blocks: Vec<ProbeBlock> = blocks.iter().filter(|block| block.pending() < PROBE_PENDING_MAX).copied().collect();
    if blocks.len() < PROBE_BLOCKS_MIN {
        return unknown;
    }
    let Some(estimate) = jackknife(&blocks, |blocks| ProbeBlock::sum(blocks).elasticity()) else { return unknown };
    if estimate.freedom == 0.0 {
        // The result depends on one block alone.
        return unknown;
    }
    // With few blocks the measured variance is unreliable: combine it with that of Poisson arrivals.
    let estimate = estimate.expecting(ProbeBlock::sum(&mut blocks.iter()).error_by_chance(), PROBE_PRIOR_FREEDOM);
    // The pause leaves 1 − PROBE of the time for work that needs `utilisation` of it.
    let reserve = (1.0 - PROBE) / utilisation.clamp(0.01, 1.0);
    let forced = ((1.0 - reserve) / PROBE).clamp(0.0, 1.0);
    // If nearly everything is forced, dividing by the rest would only amplify noise.
    let (value, half_width) = if forced > LOAD_FORCED_MAX {
        (estimate.mean, estimate.half_width())
    } else {
        ((estimate.mean - forced) / (1.0 - forced), estimate.half_width() / (1.0 - forced))
    };
    // Do not call an uncertain load limited: the report would hide a gain that may be there.
    if half_width > LOAD_HALF_WIDTH_MAX {
        return unknown;
    }
    let kind = match value {
        value if value < LOAD_ELASTICITIES[0] => LoadKind::Limited,
        value if value < LOAD_ELASTICITIES[1] => LoadKind::Mixed,
        _ => LoadKind::Closed,
    };
    LoadVerdict { kind, elasticity: Some(value.clamp(0.0, 1.0)), half_width, blocks: blocks.len(), needs_longer_probes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::SeededRandom;

    /// The kernel's accounting has precedence over the behaviour of clients, and neither changes the result of probes.
    #[test]
    fn a_saturated_generator_limits_the_load() {
        let verdict =
            |kind| LoadVerdict { kind, elasticity: Some(0.0), half_width: 0.1, blocks: 4, needs_longer_probes: false };
        let peer = |busy| PeerProcess { name: "wrk".into(), process: 7, busy };
        for (kind, peer, utilisation, want) in [
            (LoadKind::Limited, Some(peer(0.98)), 0.5, Some(Limit::Generator)),
            (LoadKind::Mixed, Some(peer(0.98)), 0.5, Some(Limit::Generator)),
            (LoadKind::Limited, Some(peer(0.4)), 0.5, Some(Limit::FixedRate)),
            (LoadKind::Limited, Some(peer(0.7)), 0.5, Some(Limit::FixedRate)),
            (LoadKind::Limited, None, 0.5, Some(Limit::FixedRate)),
            (LoadKind::Limited, Some(peer(0.98)), 0.97, Some(Limit::FixedRate)),
            (LoadKind::Closed, Some(peer(0.98)), 0.5, None),
        ] {
            let got = limit(&verdict(kind), ClientBehaviour::default(), peer.as_ref(), utilisation);
            assert_eq!(got, want, "{kind:?}, {peer:?}, {utilisation}");
        }
        let fixed = ClientBehaviour::of_fixed_connections();
        for (kind, busy, want) in [
            (LoadKind::Limited, 0.7, Limit::Generator),
            (LoadKind::Mixed, 0.7, Limit::FixedRate),
            (LoadKind::Limited, 0.5, Limit::FixedRate),
        ] {
            assert_eq!(limit(&verdict(kind), fixed, Some(&peer(busy)), 0.5), Some(want), "{kind:?}, {busy}");
        }
    }

    fn blocks(seed: u64, count: usize, elasticity: f64, noise: f64) -> Vec<ProbeBlock> {
        let mut random = SeededRandom::new(seed);
        (0..count)
            .map(|_| {
                let mut units = |rate: f64| 2000.0 * rate * (1.0 + noise * random.normal());
                ProbeBlock {
                    control: [units(1.0), 2e8],
                    paused: [units(1.0 - PROBE * elasticity), 2e8],
                    pauses: PROBE * 2e8,
                    held: 0.0,
                }
            })
            .collect()
    }

    #[test]
    fn the_elasticity_determines_the_load_kind() {
        for (elasticity, kind) in [
            (1.0, LoadKind::Closed),
            (0.9, LoadKind::Closed),
            (0.5, LoadKind::Mixed),
            (0.0, LoadKind::Limited),
            (0.1, LoadKind::Limited),
        ] {
            for seed in 0..100 {
                let verdict = judge(&blocks(seed, 8, elasticity, 0.005), 0.6, ClientBehaviour::default());
                assert_eq!(verdict.kind, kind, "{elasticity} with seed {seed}: {verdict:?}");
                assert!(verdict.is_known(), "{verdict:?}");
            }
        }
    }

    /// Poisson arrivals at 2500 a second, with an open loop. In a window of 50 ms a pause of a fifth is 25 arrivals,
    /// and the noise is 11. Six blocks are nearly always enough, and with fewer the result is "unknown" rather than
    /// wrong.
    #[test]
    fn an_open_load_is_not_mistaken_for_a_closed_one() {
        for (elasticity, right, wrong) in
            [(0.0, LoadKind::Limited, LoadKind::Closed), (1.0, LoadKind::Closed, LoadKind::Limited)]
        {
            for (count, least) in [(4, 500), (6, 900), (12, 970)] {
                let (mut judged, mut misjudged) = (0, 0);
                for seed in 0..1000 {
                    let mut random = SeededRandom::new(seed);
                    let mut came = |units: f64| units + units.sqrt() * random.normal();
                    let block = |_| ProbeBlock {
                        control: [came(500.0), 2e8],
                        paused: [came(250.0 * (1.0 - PROBE * elasticity)), 1e8],
                        pauses: PROBE * 1e8,
                        held: 0.0,
                    };
                    let blocks: Vec<_> = (0..count).map(block).collect();
                    let verdict = judge(&blocks, 0.6, ClientBehaviour::default());
                    judged += u32::from(verdict.blocks > 0 && verdict.kind == right);
                    misjudged += u32::from(verdict.blocks > 0 && verdict.kind == wrong);
                }
                assert!(
                    judged > least && misjudged < 5,
                    "{elasticity}, {count} blocks: {judged} right, {misjudged} wrong"
                );
            }
        }
    }

    /// Connections used in turns, each after the same fraction of a window. Messages held at its end are missing with
    /// any load, and do not count as a closed loop. If they are nearly all of the pause, there is no result.
    #[test]
    fn messages_held_at_window_ends_are_no_evidence() {
        let block = |part: f64, elasticity| {
            let pause = PROBE * 25_000.0;
            let missing = pause * (part + (1.0 - part) * elasticity);
            ProbeBlock {
                control: [100_000.0, 2e8],
                paused: [2.0 * (25_000.0 - missing), 1e8],
                pauses: PROBE * 1e8,
                held: 2.0 * pause * (part - part * part / 2.0),
            }
        };
        for (part, is_judged) in [(0.0, true), (0.2, true), (0.5, true), (0.69, true), (0.71, false), (1.0, false)] {
            for (elasticity, kind) in [(0.0, LoadKind::Limited), (1.0, LoadKind::Closed)] {
                let verdict = judge(&[block(part, elasticity); 6], 0.5, ClientBehaviour::default());
                assert_eq!(verdict.needs_longer_probes, part > PROBE_PENDING_MUCH, "{part}: {verdict:?}");
                if is_judged {
                    assert_eq!((verdict.kind, verdict.is_known()), (kind, true), "{part}, {elasticity}: {verdict:?}");
                    assert!(verdict.elasticity.is_some_and(|judged| (judged - elasticity).abs() < 1e-6), "{verdict:?}");
                } else {
                    assert_eq!(
                        (verdict.kind, verdict.blocks),
                        (LoadKind::Closed, 0),
                        "{part}, {elasticity}: {verdict:?}"
                    );
                }
            }
        }
    }

    /// Probes that were too short are ignored once longer ones have followed.
    #[test]
    fn short_probes_do_not_distort_longer_ones() {
        let of = |held, came: f64| ProbeBlock {
            control: [100_000.0, 2e8],
            paused: [came, 1e8],
            pauses: PROBE * 1e8,
            held: held * PROBE * 50_000.0,
        };
        let blocks = [[of(0.5, 40_000.0); 6], [of(0.255, 47_000.0); 6]].concat();
        let verdict = judge(&blocks, 0.5, ClientBehaviour::default());
        assert_eq!((verdict.kind, verdict.blocks), (LoadKind::Limited, 6), "{verdict:?}");
    }

    /// If the host is slow in two blocks, an open loop looks like a closed one. So probing continues.
    #[test]
    fn few_consistent_blocks_are_not_sufficient() {
        for count in 2..8 {
            let verdict = judge(&blocks(1, count, 0.8, 0.0), 0.6, ClientBehaviour::default());
            assert_eq!((verdict.kind, verdict.is_known()), (LoadKind::Closed, count >= 4), "{verdict:?}");
        }
    }

    /// At 96 % of its capacity an open-loop load gives up five sixths of the pause, because it must.
    #[test]
    fn a_saturated_open_load_is_not_mistaken_for_a_closed_one() {
        let forced: f64 = (1.0 - (1.0 - PROBE) / 0.96) / PROBE;
        assert_eq!(judge(&blocks(1, 12, forced, 0.002), 0.96, ClientBehaviour::default()).kind, LoadKind::Limited);
        assert_eq!(judge(&blocks(1, 12, 1.0, 0.002), 0.96, ClientBehaviour::default()).kind, LoadKind::Closed);
        // Without any reserve the program sets the rate with any load.
        assert_eq!(judge(&blocks(1, 12, 1.0, 0.002), 1.0, ClientBehaviour::default()).kind, LoadKind::Closed);
    }

    /// Three units in all: none in the windows with the pause may be chance.
    #[test]
    fn few_units_give_no_verdict() {
        let none = ProbeBlock { control: [1.0, 2e8], paused: [0.0, 1e8], pauses: 2e7, held: 0.0 };
        let verdict = judge(&[none; 6], 0.1, ClientBehaviour::default());
        assert_eq!((verdict.kind, verdict.is_known(), verdict.blocks), (LoadKind::Closed, false, 0), "{verdict:?}");
    }

    /// Clients that clearly keep their own rate are evidence; all others leave the load unknown, and an unknown load
    /// has no elasticity: the report calls a load with one closed or limited.
    #[test]
    fn only_a_clear_open_loop_is_known_by_its_clients() {
        for (elasticity, want) in
            [(0.1, (LoadKind::Limited, true)), (0.4, (LoadKind::Closed, false)), (1.0, (LoadKind::Closed, false))]
        {
            let verdict = judge(&[], 0.5, ClientBehaviour::of_elasticity(elasticity));
            assert_eq!((verdict.kind, verdict.elasticity.is_some()), want, "{elasticity}: {verdict:?}");
        }
        let busy = judge(&[], 0.95, ClientBehaviour::of_elasticity(0.1));
        assert_eq!((busy.kind, busy.elasticity), (LoadKind::Closed, None));
    }

    #[test]
    fn without_probes_there_is_no_verdict() {
        let quiet = ProbeBlock { paused: [0.0, 1e8], control: [0.0, 2e8], pauses: 2e7, held: 0.0 };
        let one = [vec![ProbeBlock { control: [3.0, 2e8], paused: [2.0, 1e8], ..quiet }], vec![quiet; 3]].concat();
        for blocks in [vec![], vec![ProbeBlock::default(); 5], blocks(3, 1, 0.0, 0.0), vec![quiet; 5], one] {
            let verdict = judge(&blocks, 0.5, ClientBehaviour::default());
            assert_eq!((verdict.kind, verdict.is_known()), (LoadKind::Closed, false), "{verdict:?}");
        }
        assert_eq!(
            judge(&blocks(3, 4, 0.0, 0.3), 0.5, ClientBehaviour::default()).kind,
            LoadKind::Closed,
            "noise is no verdict"
        );
    }
}
