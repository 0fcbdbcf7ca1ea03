use statrs::distribution::{ContinuousCDF, Normal, StudentsT};
use statrs::function::{beta::beta_reg, gamma};

use super::*;
use crate::experiment::SeededRandom;

#[track_caller]
fn close(got: f64, want: f64, by: f64) {
    assert!((got - want).abs() <= by, "{got} is not {want} ± {by}");
}

/// Values of Student's t from the usual tables, two-sided 95 %.
#[test]
fn quantiles_match_published_tables() {
    for (freedom, want) in
        [(1.0, 12.7062), (2.0, 4.3027), (3.0, 3.1824), (5.0, 2.5706), (10.0, 2.2281), (30.0, 2.0423), (120.0, 1.9799)]
    {
        close(t_quantile(freedom), want, 5e-5);
        close(t_tails(want, freedom), 0.05, 1e-5);
    }
    close(t_quantile(1e9), 1.959_964, 1e-6);
    close(t_tails(0.0, 4.0), 1.0, 1e-12);
    // Small and large arguments of ln Γ: ln Γ(½) = ln √π, ln Γ(101) = ln 100!.
    close(ln_gamma(0.5), std::f64::consts::PI.sqrt().ln(), 1e-12);
    close(ln_gamma(101.0), 363.739_375_555_563_5, 1e-9);
}

/// Relative bounds: 1e-13 for ln Γ (absolute below 1); 1e-11 for tails and quantiles, 1e-7 from 1000 degrees of freedom
/// on, where differences of ln Γ lose digits. From 10 000 on, statrs's quantiles are off by up to 4e-4, so ours are
/// checked by statrs's tails.
#[test]
fn functions_agree_with_those_of_statrs() {
    let near = |what: &str, got: f64, want: f64, by: f64| {
        assert!((got / want - 1.0).abs() <= by, "{what}: {got} is not {want}, by {:e}", got / want - 1.0);
    };
    let grid = |from: f64, to: f64, factor: f64| {
        std::iter::successors(Some(from), move |at| Some(at * factor)).take_while(move |&at| at < to)
    };
    near("the normal quantile", NORMAL_QUANTILE, Normal::standard().inverse_cdf(0.975), 1e-13);
    for x in grid(0.05, 1e6, 1.03) {
        let (got, want) = (ln_gamma(x), gamma::ln_gamma(x));
        assert!((got - want).abs() <= 1e-13 * want.abs().max(1.0), "ln Γ({x}): {got} is not {want}");
    }
    for freedom in grid(0.25, 1e6, 1.03) {
        let (quantile, bound) = (t_quantile(freedom), if freedom < 1e3 { 1e-11 } else { 1e-7 });
        for t in grid(0.001, 1000.0, 1.5).chain([quantile]) {
            let want = beta_reg(freedom / 2.0, 0.5, freedom / (freedom + t * t));
            // Smaller probabilities are certain findings, whatever their value.
            if want > 1e-30 {
                near(&format!("the tails beyond {t} with {freedom}"), t_tails(t, freedom), want, bound);
            }
        }
        if freedom < 1e4 {
            let student = StudentsT::new(0.0, 1.0, freedom).unwrap();
            near(&format!("the quantile with {freedom}"), quantile, student.inverse_cdf(0.975), bound);
        } else {
            let tails = beta_reg(freedom / 2.0, 0.5, freedom / (freedom + quantile * quantile));
            near(&format!("the tails beyond the quantile with {freedom}"), tails, 0.05, bound);
        }
    }
}

#[test]
fn a_stream_has_mean_and_variance() {
    let mut stream = Stream::default();
    assert_eq!(stream.estimate(), None);
    stream.push(1e9 + 4.0);
    assert_eq!(stream.estimate().map(|one| one.error), Some(f64::INFINITY));
    assert_eq!(stream.estimate().map(|one| one.half_width()), Some(f64::INFINITY));
    for value in [7.0, 13.0, 16.0] {
        stream.push(1e9 + value);
    }
    close(stream.mean(), 1e9 + 10.0, 1e-6);
    close(stream.variance(), 30.0, 1e-6);
}

/// Gelman et al., Bayesian Data Analysis, §2.6: ν₀ = 4 with σ₀ = 2 and three degrees of freedom with s = 1 give √(19/7)
/// and seven.
#[test]
fn a_prior_error_is_combined_with_the_observed_one() {
    let seen = Estimate { mean: 5.0, error: 1.0, freedom: 3.0 };
    let both = seen.expecting(2.0, 4.0);
    assert_eq!((both.mean, both.freedom), (5.0, 7.0));
    close(both.error, (19.0_f64 / 7.0).sqrt(), 1e-12);
    // With one observation the error is unknown.
    let alone = Estimate { mean: 5.0, error: f64::INFINITY, freedom: 0.0 }.expecting(2.0, 4.0);
    assert_eq!((alone.error, alone.freedom), (2.0, 4.0));
}

/// Merged results of several threads equal those of one.
#[test]
fn parts_are_combined() {
    let mut random = SeededRandom::new(5);
    let (mut whole, mut parts) = ((Stream::default(), Ratio::default()), [(Stream::default(), Ratio::default()); 3]);
    for at in 0..100 {
        let (weight, value) = (1.0 + random.fraction(), 1.0 + 0.1 * random.normal());
        for (stream, ratio) in [&mut whole, &mut parts[at % 2]] {
            stream.push(value);
            ratio.push(weight, value);
        }
    }
    let mut sum = (Stream::default(), Ratio::default());
    for (stream, ratio) in &parts {
        sum.0.merge(stream);
        sum.1.merge(ratio);
    }
    close(sum.0.mean(), whole.0.mean(), 1e-12);
    close(sum.0.variance(), whole.0.variance(), 1e-12);
    let (sum, whole) = (sum.1.estimate().unwrap(), whole.1.estimate().unwrap());
    close(sum.mean, whole.mean, 1e-12);
    close(sum.error, whole.error, 1e-12);
    close(sum.freedom, whole.freedom, 1e-9);
}

/// The worked example of the paper (Benjamini & Hochberg 1995, §4): four of fifteen.
#[test]
fn significant_results_match_the_paper() {
    let probabilities = [
        0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590,
        1.0,
    ];
    assert_eq!(benjamini_hochberg(&probabilities, 0.05).iter().filter(|&&one| one).count(), 4);
    assert_eq!(benjamini_hochberg(&[0.06, 0.9], 0.05), [false, false]);
    assert!(benjamini_hochberg(&[], 0.05).is_empty());
}

/// Noisy windows of unequal length: the interval contains the truth in 95 of 100 runs, with few or many windows.
#[test]
fn intervals_of_ratios_have_their_coverage() {
    for windows in [4, 12, 60] {
        let mut held = 0;
        for seed in 0..4000 {
            let mut random = SeededRandom::new(seed);
            let mut ratio = Ratio::default();
            for _ in 0..windows {
                ratio.push(0.8 + 0.4 * random.fraction(), 0.93 + 0.02 * random.normal());
            }
            let estimate = ratio.estimate().unwrap();
            held += u32::from((estimate.mean - 0.93).abs() <= estimate.half_width());
        }
        assert!((3740..3950).contains(&held), "{windows} windows: {held} of 4000");
    }
}

/// A window with twice the time counts twice: (2·0.5 + 1·1) / 3.
#[test]
fn ratios_are_weighted_by_time() {
    let mut ratio = Ratio::default();
    ratio.push(2.0, 0.5);
    ratio.push(1.0, 1.0);
    for (weight, bad) in [(1.0, 0.0), (0.0, 1.0), (1.0, f64::NAN), (f64::INFINITY, 1.0)] {
        ratio.push(weight, bad);
    }
    assert_eq!(ratio.count(), 2);
    close(ratio.estimate().unwrap().mean, 2.0 / 3.0, 1e-12);
}

/// Counts of rare events: the bias of the plain ratio of sums is about one over the count, that of the jackknife is
/// much smaller.
#[test]
fn the_jackknife_holds_for_ratios_of_counts() {
    let (mut held, mut sum) = (0, 0.0);
    for seed in 0..3000 {
        let mut random = SeededRandom::new(seed);
        let blocks: Vec<(f64, f64)> = (0..16)
            .map(|_| ((100.0 + 10.0 * random.normal()).round(), (90.0 + 10.0 * random.normal()).round()))
            .collect();
        let estimate = jackknife(&blocks, |blocks| {
            let (a, b) = blocks.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            (b > 0.0).then_some(a / b)
        })
        .unwrap();
        sum += estimate.mean;
        held += u32::from((estimate.mean - 100.0 / 90.0).abs() <= estimate.half_width());
    }
    close(sum / 3000.0, 100.0 / 90.0, 0.002);
    assert!((2800..2970).contains(&held), "{held} of 3000");
    assert_eq!(jackknife(&[] as &[f64], |all| all.next().copied()), None);
    assert_eq!(jackknife(&[1.0], |all| all.next().copied()).map(|one| one.error), Some(f64::INFINITY));
}

/// With a look after every observation, at most one run of twenty may be wrong. A plain interval is wrong in many more,
/// which shows that the test can fail.
#[test]
fn an_interval_remains_valid_under_repeated_checks() {
    let (mut wrong, mut plain) = (0, 0);
    // Both half-widths are proportional to the standard deviation.
    let bounds: Vec<(f64, f64)> = (0..=300)
        .map(|count| {
            let one = Estimate { mean: 0.0, error: 1.0 / (count as f64).sqrt(), freedom: count as f64 - 1.0 };
            (sequence_half_width(1.0, count), if count < 5 { f64::INFINITY } else { one.half_width() })
        })
        .collect();
    for seed in 0..1500 {
        let mut random = SeededRandom::new(seed);
        let (mut stream, mut out, mut plainly_out) = (Stream::default(), false, false);
        for _ in 0..300 {
            stream.push(0.1 + 0.02 * random.normal());
            let (off, deviation) = ((stream.mean() - 0.1).abs(), stream.variance().sqrt());
            let (always, once) = bounds[stream.count() as usize];
            out |= stream.count() > 1 && off > deviation * always;
            plainly_out |= stream.count() > 1 && off > deviation * once;
        }
        wrong += u32::from(out);
        plain += u32::from(plainly_out);
    }
    assert!(wrong <= 75, "{wrong} of 1500 were wrong at some time");
    assert!(plain > 300, "{plain}");
    assert_eq!(sequence_half_width(1.0, 4), f64::INFINITY);
    // The price: less than twice the plain width.
    assert!(sequence_half_width(1.0, 60) < 2.0 * NORMAL_QUANTILE / 60f64.sqrt());
}

#[test]
fn probabilities_of_an_estimate() {
    let estimate = Estimate { mean: 0.9, error: 0.02, freedom: 10.0 };
    close(estimate.probability(0.9 + 0.02 * 2.2281, 0.0), 0.05, 1e-4);
    assert!(estimate.probability(1.0, 0.0) < 0.001);
    assert!(estimate.probability(1.0, 0.1) > 0.3, "more error makes it less sure");
    assert_eq!(Estimate { mean: 0.5, error: f64::INFINITY, freedom: 0.0 }.probability(1.0, 0.0), 1.0);
    assert_eq!(Estimate { mean: 0.5, error: 0.0, freedom: 3.0 }.probability(1.0, 0.0), 0.0);
}
