//! Medians and their uncertainty.

use causal::statistics::NORMAL_QUANTILE;

/// Returns the median; NaN without samples.
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

/// Returns the standard error of the median, from the median absolute deviation, so that one disturbed round has little
/// weight. The factor 1.4826 converts the deviation to a standard deviation, and 1.2533 is the relative error of a
/// median against a mean. Returns 0 for fewer than two samples; `compare` then only applies its floor.
pub fn spread(samples: &[f64]) -> f64 {
    if samples.len() < 2 {
        return 0.0;
    }
    let center = median(samples);
    let deviations: Vec<_> = samples.iter().map(|sample| (sample - center).abs()).collect();
    1.2533 * 1.4826 * median(&deviations) / (samples.len() as f64).sqrt()
}

/// Divides each sample of a peer by the mean of the limit server's adjacent slots, so that a drift of the machine
/// affects both. `limits` has one more element than `peers`.
pub fn paired(peers: &[f64], limits: &[f64]) -> Vec<f64> {
    assert_eq!(limits.len(), peers.len() + 1, "a limit slot precedes and follows each peer's");
    peers.iter().zip(limits.windows(2)).map(|(peer, limit)| peer / f64::midpoint(limit[0], limit[1])).collect()
}

/// Returns the Hodges-Lehmann estimate of the samples (the median of the means of all pairs, each sample paired with
/// itself included), and its 95 % interval by Wilcoxon's signed ranks (Hollander, Wolfe and Chicken, Nonparametric
/// Statistical Methods, §3.2 and 3.3). For a normal distribution it is nearly as efficient as the mean, and a few
/// samples in which the host was stalled hardly change it. For fewer than six samples the interval is their whole
/// range, and covers the value less often. NaN without samples.
pub fn centre(samples: &[f64]) -> (f64, [f64; 2]) {
    let mut means: Vec<f64> = (0..samples.len())
        .flat_map(|at| samples[at..].iter().map(move |other| f64::midpoint(samples[at], *other)))
        .collect();
    means.sort_unstable_by(f64::total_cmp);
    let count = samples.len() as f64;
    let (ranks, error) = (count * (count + 1.0) / 4.0, (count * (count + 1.0) * (2.0 * count + 1.0) / 24.0).sqrt());
    // Normal approximation: the number of means outside each bound of the interval.
    let outside = (ranks - NORMAL_QUANTILE * error).max(0.0) as usize;
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

    /// Ten samples have 55 means; the table gives the 9th and the 47th for 95.1 %.
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
        // The machine slows down by 10 % per slot; the peer always costs twice the limit.
        let limits = [1.0, 1.2, 1.4];
        let peers = [2.2, 2.6];
        for ratio in paired(&peers, &limits) {
            assert!((ratio - 2.0).abs() < 1e-9, "{ratio}");
        }
    }
}
