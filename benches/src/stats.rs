//! Medians and how far to trust them.

use causal::statistics::NORMAL;

/// The median; NaN of nothing.
pub fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// The standard error of the median, from the median absolute deviation so that one disturbed round weighs little:
/// 1.4826 makes the deviation comparable with a standard deviation, 1.2533 is what a median loses against a mean.
/// 0 for fewer than two samples: then nothing is known, and the floor in `compare` stands alone.
pub fn spread(samples: &[f64]) -> f64 {
    if samples.len() < 2 {
        return 0.0;
    }
    let center = median(samples);
    let deviations: Vec<_> = samples.iter().map(|sample| (sample - center).abs()).collect();
    1.2533 * 1.4826 * median(&deviations) / (samples.len() as f64).sqrt()
}

/// Each sample of a peer over the mean of the limit server's slots right before and right behind it, so that a drift of
/// the machine meets both. `limits` has one more element than `peers`.
pub fn paired(peers: &[f64], limits: &[f64]) -> Vec<f64> {
    assert_eq!(limits.len(), peers.len() + 1, "a limit slot stands before and behind each peer's");
    peers.iter().zip(limits.windows(2)).map(|(peer, limit)| peer / f64::midpoint(limit[0], limit[1])).collect()
}

/// What pairs differ by, the Hodges-Lehmann estimate (the median of all means of two, a sample with itself included), and its 95 % interval
/// by Wilcoxon's signed ranks (Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, §3.2 and 3.3). Of a normal distribution it
/// tells nearly as much as the mean, and a few pairs in which the host stood still hardly move it. Of fewer than six the interval is
/// all there is, and holds less often. NaN of nothing.
pub fn centre(samples: &[f64]) -> (f64, [f64; 2]) {
    let mut means: Vec<f64> = (0..samples.len())
        .flat_map(|at| samples[at..].iter().map(move |other| f64::midpoint(samples[at], *other)))
        .collect();
    means.sort_unstable_by(f64::total_cmp);
    let count = samples.len() as f64;
    let (ranks, error) = (count * (count + 1.0) / 4.0, (count * (count + 1.0) * (2.0 * count + 1.0) / 24.0).sqrt());
    let outside = (ranks - NORMAL * error).max(0.0) as usize;
    match means.len().checked_sub(1 + outside) {
        Some(last) => (median(&means), [means[outside], means[last]]),
        None => (f64::NAN, [f64::NAN; 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_even_and_nothing() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn one_outlier_hardly_widens_the_spread() {
        let calm = spread(&[10.0, 10.1, 9.9, 10.05, 9.95]);
        let disturbed = spread(&[10.0, 10.1, 9.9, 10.05, 99.0]);
        assert!(calm > 0.0 && disturbed < 3.0 * calm, "{calm} {disturbed}");
        assert_eq!(spread(&[1.0]), 0.0);
    }

    /// Ten samples: 55 means, of which the table has the 9th and the 47th for 95.1 %.
    #[test]
    fn a_centre_is_hardly_moved_by_what_is_far_off() {
        let calm: Vec<f64> = (1..=10).map(f64::from).collect();
        let (middle, [low, high]) = centre(&calm);
        assert_eq!((middle, low, high), (5.5, 3.0, 8.0));
        let mut many: Vec<f64> = (0..32).map(|at| f64::from(at % 8)).collect();
        let (_, [low, high]) = centre(&many);
        many[..3].fill(1e6);
        let (middle, [disturbed_low, disturbed_high]) = centre(&many);
        assert!((3.5..5.0).contains(&middle) && low <= disturbed_low && disturbed_high < high + 1.5, "{many:?}");
        assert_eq!(centre(&[2.0, 4.0]), (3.0, [2.0, 4.0]));
        assert!(centre(&[]).0.is_nan());
    }

    #[test]
    fn a_drift_that_meets_both_cancels() {
        // The machine slows by 10 % a slot; the peer costs twice the limit throughout.
        let limits = [1.0, 1.2, 1.4];
        let peers = [2.2, 2.6];
        for ratio in paired(&peers, &limits) {
            assert!((ratio - 2.0).abs() < 1e-9, "{ratio}");
        }
    }
}
