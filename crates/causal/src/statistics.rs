//! Statistics of noisy measurements: quantiles, intervals of ratios, intervals valid at every look, and control of
//! false discoveries.

pub use crate::constants::{CONFIDENCE, FALSE_DISCOVERIES, NORMAL_QUANTILE};
use crate::constants::{SEQUENCE_MIXTURE_RHO, SEQUENCE_OBSERVATIONS_MIN};

/// A mean with its standard error and the degrees of freedom of that error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The value.
    pub mean: f64,
    /// Its standard error; infinite for a single observation.
    pub error: f64,
    /// Degrees of freedom of the error.
    pub freedom: f64,
}

impl Estimate {
    /// Returns half the width of the interval at the level [`CONFIDENCE`]; infinite without degrees of freedom.
    #[must_use]
    pub fn half_width(&self) -> f64 {
        if self.freedom > 0.0 { t_quantile(self.freedom) * self.error } else { f64::INFINITY }
    }

    /// Combines the error with a prior: an expected error of `error`, with the weight of `freedom` observations beyond
    /// the first (a scaled inverse χ² prior for the variance: Gelman et al., Bayesian Data Analysis, §2.6). If the
    /// error was not observed, the result is the prior. `freedom` must be above 0.
    #[must_use]
    pub fn expecting(&self, error: f64, freedom: f64) -> Self {
        let all = self.freedom + freedom;
        let squares =
            freedom * error * error + if self.freedom > 0.0 { self.freedom * self.error * self.error } else { 0.0 };
        Self { error: (squares / all).sqrt(), freedom: all, ..*self }
    }

    /// Returns the probability of a value at least as far from `from`, if `from` were the truth (the p-value). `more`
    /// is an additional standard error.
    #[must_use]
    pub fn probability(&self, from: f64, more: f64) -> f64 {
        let error = self.error.hypot(more);
        if self.freedom <= 0.0 || !error.is_finite() {
            1.0
        } else if error == 0.0 {
            f64::from(u8::from(self.mean == from))
        } else {
            t_tails((self.mean - from).abs() / error, self.freedom)
        }
    }
}

/// Running mean and variance of a stream of numbers (Welford).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stream {
    count: u64,
    mean: f64,
    squares: f64,
}

impl Stream {
    /// Adds a number.
    pub fn push(&mut self, value: f64) {
        self.count += 1;
        let before = value - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (value - self.mean);
    }

    /// Adds all numbers of another stream (Chan et al.).
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        let (count, apart) = ((self.count + other.count) as f64, other.mean - self.mean);
        self.squares += other.squares + apart * apart * self.count as f64 * other.count as f64 / count;
        self.mean += apart * other.count as f64 / count;
        self.count += other.count;
    }

    /// Returns how many numbers were added.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns their mean; 0 without any.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Returns their variance; 0 for fewer than two.
    #[must_use]
    pub fn variance(&self) -> f64 {
        if self.count < 2 { 0.0 } else { self.squares / (self.count - 1) as f64 }
    }

    /// Returns the mean with its error; `None` without any number.
    #[must_use]
    pub fn estimate(&self) -> Option<Estimate> {
        (self.count > 0).then(|| Estimate {
            mean: self.mean,
            error: if self.count < 2 { f64::INFINITY } else { (self.variance() / self.count as f64).sqrt() },
            freedom: (self.count - 1) as f64,
        })
    }
}

/// The ratio of two sums over windows: Σ aᵢrᵢ / Σ aᵢ, where aᵢ is a window's time before a change, and rᵢ the factor of
/// the change.
///
/// The mean of the logarithms would give a window with little progress the weight of one with much. The error is that
/// of the linearised ratio (Cochran, Sampling Techniques, §6.4); its degrees of freedom are those of the effective
/// number of windows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ratio {
    count: u64,
    weight: f64,
    change: f64,
    weight_squares: f64,
    weight_change: f64,
    change_squares: f64,
}

impl Ratio {
    /// Adds a window: its time, and the factor by which that changed. Ignores values that are not positive and finite.
    pub fn push(&mut self, weight: f64, ratio: f64) {
        if !(weight > 0.0 && ratio > 0.0 && weight.is_finite() && ratio.is_finite()) {
            return;
        }
        // Sums of the difference from 1, as ratios are near 1: the squares would cancel otherwise.
        let change = ratio - 1.0;
        self.count += 1;
        self.weight += weight;
        self.change += weight * change;
        self.weight_squares += weight * weight;
        self.weight_change += weight * weight * change;
        self.change_squares += weight * weight * change * change;
    }

    /// Adds all windows of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.weight += other.weight;
        self.change += other.change;
        self.weight_squares += other.weight_squares;
        self.weight_change += other.weight_change;
        self.change_squares += other.change_squares;
    }

    /// Returns the number of windows.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the ratio; `None` without any window.
    #[must_use]
    pub fn estimate(&self) -> Option<Estimate> {
        if self.count == 0 {
            return None;
        }
        let change = self.change / self.weight;
        // Σ a²(r − R)², expanded into the sums that are kept.
        let squares = self.change_squares - 2.0 * change * self.weight_change + change * change * self.weight_squares;
        let count = self.count as f64;
        let error = if self.count < 2 {
            f64::INFINITY
        } else {
            (squares.max(0.0) * count / (count - 1.0)).sqrt() / self.weight
        };
        // Kish's effective sample size: equal to the count for equal weights.
        let effective = self.weight * self.weight / self.weight_squares;
        Some(Estimate { mean: 1.0 + change, error, freedom: (effective - 1.0).max(0.0) })
    }
}

/// Computes `of` from all observations, with the error found by leaving out each of them in turn (the jackknife). This
/// also removes most of the bias of a ratio. `None` if `of` returns `None` for all of them. Calls `of` once more than
/// there are observations.
#[must_use]
pub fn jackknife<T>(observed: &[T], of: impl Fn(&mut dyn Iterator<Item = &T>) -> Option<f64>) -> Option<Estimate> {
    let all = of(&mut observed.iter())?;
    let count = observed.len() as f64;
    if observed.len() < 2 {
        return Some(Estimate { mean: all, error: f64::INFINITY, freedom: 0.0 });
    }
    let mut pseudo = Stream::default();
    for out in 0..observed.len() {
        let rest = of(&mut observed.iter().enumerate().filter(|&(at, _)| at != out).map(|(_, one)| one));
        match rest {
            // Tukey's pseudo-value of the observation left out.
            Some(rest) => pseudo.push(count * all - (count - 1.0) * rest),
            // The result depends on this one observation.
            None => return Some(Estimate { mean: all, error: f64::INFINITY, freedom: 0.0 }),
        }
    }
    pseudo.estimate()
}

/// Returns half the width of an interval around a mean that is valid at all times together, so that a caller may look
/// after each observation and stop when it is narrow enough. The boundary is the normal mixture's (Howard et al.,
/// "Time-uniform confidence sequences", 2021, §3.2), a little wider because the variance is itself estimated. Infinite
/// for fewer than 5 observations.
#[must_use]
pub fn sequence_half_width(variance: f64, count: u64) -> f64 {
    if count < SEQUENCE_OBSERVATIONS_MIN {
        return f64::INFINITY;
    }
    let (n, alpha) = (count as f64, 1.0 - CONFIDENCE);
    // The normal mixture boundary for known variance, divided by n for the mean.
    let boundary = ((n + SEQUENCE_MIXTURE_RHO)
        * ((n + SEQUENCE_MIXTURE_RHO) / (SEQUENCE_MIXTURE_RHO * alpha * alpha)).ln())
    .sqrt()
        / n;
    boundary * variance.sqrt() * t_quantile(n - 1.0) / NORMAL_QUANTILE
}

/// Returns which findings to accept by their probabilities, so that at most `part` of the accepted ones are false on
/// average (Benjamini & Hochberg, 1995).
#[must_use]
pub fn benjamini_hochberg(probabilities: &[f64], part: f64) -> Vec<bool> {
    let mut order: Vec<f64> = probabilities.to_vec();
    order.sort_by(f64::total_cmp);
    let count = order.len() as f64;
    let last = order.iter().zip(1u32..).filter(|&(&p, rank)| p <= part * f64::from(rank) / count).last();
    let threshold = last.map_or(-1.0, |(&p, _)| p);
    probabilities.iter().map(|&p| p <= threshold).collect()
}

/// Returns the two-sided quantile of Student's t at the level [`CONFIDENCE`].
#[must_use]
pub fn t_quantile(freedom: f64) -> f64 {
    if freedom > 1e6 {
        return NORMAL_QUANTILE;
    }
    // For fewer, the quantile is too large to be of any use.
    let freedom = freedom.max(0.25);
    let front = ln_gamma(freedom.midpoint(1.0)) - ln_gamma(freedom / 2.0) - (freedom * std::f64::consts::PI).ln() / 2.0;
    // Newton's method from below: the tails flatten with t, so no step overshoots.
    let mut t = NORMAL_QUANTILE;
    for _ in 0..100 {
        let density = (front - freedom.midpoint(1.0) * (t * t / freedom).ln_1p()).exp();
        let step = (t_tails(t, freedom) - (1.0 - CONFIDENCE)) / (2.0 * density);
        t += step;
        if step.abs() < 1e-10 * t {
            break;
        }
    }
    t
}

/// Returns the probability that |Student's t| exceeds `t`.
#[must_use]
pub fn t_tails(t: f64, freedom: f64) -> f64 {
    incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t * t))
}

/// The regularised incomplete beta function, by Lentz's continued fraction (NIST DLMF §8.17.22).
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp();
    // The fraction converges fast only on this side; use the symmetry I(x; a, b) = 1 − I(1 − x; b, a).
    if x < (a + 1.0) / (a + b + 2.0) {
        front * beta_fraction(a, b, x) / a
    } else {
        1.0 - front * beta_fraction(b, a, 1.0 - x) / b
    }
}

fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    /// In place of a zero denominator.
    const TINY: f64 = 1e-300;
    let away = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / away(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for m in 1..300 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / away(1.0 + even * d);
        c = away(1.0 + even / c);
        fraction *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / away(1.0 + odd * d);
        c = away(1.0 + odd / c);
        fraction *= d * c;
        if (d * c - 1.0).abs() < 1e-13 {
            break;
        }
    }
    fraction
}

/// ln Γ(x) for x > 0, by Lanczos' approximation (g = 7): 13 correct digits for x ≥ 0.5.
fn ln_gamma(x: f64) -> f64 {
    /// Lanczos' coefficients for g = 7.
    const PARTS: [f64; 8] = [
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    // Γ(x + 1) = x Γ(x)
    if x < 0.5 {
        return ln_gamma(x + 1.0) - x.ln();
    }
    let x = x - 1.0;
    let base = x + 7.5;
    let sum: f64 =
        0.999_999_999_999_809_9 + PARTS.iter().zip(1..).map(|(part, i)| part / (x + f64::from(i))).sum::<f64>();
    (std::f64::consts::TAU.sqrt() * sum).ln() + (x + 0.5) * base.ln() - base
}

#[cfg(test)]
mod tests;
