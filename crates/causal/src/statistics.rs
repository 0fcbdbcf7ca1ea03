//! What may be concluded from numbers that vary: quantiles, intervals of ratios, intervals that may be looked at again and again, and how many
//! of many findings are believed.

/// The level of every interval in a report.
pub const CONFIDENCE: f64 = 0.95;

/// The part of the findings that may be false ones.
pub const FALSE_DISCOVERIES: f64 = 0.05;

/// A mean with its standard error and how many degrees of freedom that has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The value.
    pub mean: f64,
    /// Its standard error; infinite when one observation is all there is.
    pub error: f64,
    /// Degrees of freedom of the error.
    pub freedom: f64,
}

impl Estimate {
    /// Half of the interval of [`CONFIDENCE`].
    #[must_use]
    pub fn half_width(&self) -> f64 {
        if self.freedom > 0.0 { t_quantile(self.freedom) * self.error } else { f64::INFINITY }
    }

    /// The same where an error of `error` was expected before anything was observed, as firmly as `freedom` observations beyond the first
    /// would show it (a scaled inverse χ² as the variance's prior: Gelman et al., Bayesian Data Analysis, §2.6). Where nothing was
    /// observed of the error, only what was expected is left. `freedom` is above 0.
    #[must_use]
    pub fn expecting(&self, error: f64, freedom: f64) -> Self {
        let all = self.freedom + freedom;
        let squares =
            freedom * error * error + if self.freedom > 0.0 { self.freedom * self.error * self.error } else { 0.0 };
        Self { error: (squares / all).sqrt(), freedom: all, ..*self }
    }

    /// How probable a value at least that far from `from` is if that were the truth; `more` is a standard error from elsewhere.
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

/// Mean and spread of a stream of numbers (Welford).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stream {
    count: u64,
    mean: f64,
    squares: f64,
}

impl Stream {
    /// One more.
    pub fn push(&mut self, value: f64) {
        self.count += 1;
        let before = value - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (value - self.mean);
    }

    /// Those of another stream, too (Chan et al.).
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        let (count, apart) = ((self.count + other.count) as f64, other.mean - self.mean);
        self.squares += other.squares + apart * apart * self.count as f64 * other.count as f64 / count;
        self.mean += apart * other.count as f64 / count;
        self.count += other.count;
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean; 0 without any.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Their variance; 0 of fewer than two.
    #[must_use]
    pub fn variance(&self) -> f64 {
        if self.count < 2 { 0.0 } else { self.squares / (self.count - 1) as f64 }
    }

    /// The mean with its error; `None` without any.
    #[must_use]
    pub fn estimate(&self) -> Option<Estimate> {
        (self.count > 0).then(|| Estimate {
            mean: self.mean,
            error: if self.count < 2 { f64::INFINITY } else { (self.variance() / self.count as f64).sqrt() },
            freedom: (self.count - 1) as f64,
        })
    }
}

/// The ratio of two sums over windows, each of which has both: Σ aᵢrᵢ / Σ aᵢ with aᵢ what the window lasted and rᵢ what became of it.
///
/// The mean of the logarithms would weigh a window in which much happens like one in which little does. The error is that of the
/// linearised ratio (Cochran, Sampling Techniques, §6.4), whose degrees of freedom are those of the effective number of windows.
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
    /// One window: what it lasted, and the factor by which that changed. What is not a positive number is left out.
    pub fn push(&mut self, weight: f64, ratio: f64) {
        if !(weight > 0.0 && ratio > 0.0 && weight.is_finite() && ratio.is_finite()) {
            return;
        }
        // Around 1, where the ratios are: the squares would cancel otherwise.
        let change = ratio - 1.0;
        self.count += 1;
        self.weight += weight;
        self.change += weight * change;
        self.weight_squares += weight * weight;
        self.weight_change += weight * weight * change;
        self.change_squares += weight * weight * change * change;
    }

    /// Other windows, too.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.weight += other.weight;
        self.change += other.change;
        self.weight_squares += other.weight_squares;
        self.weight_change += other.weight_change;
        self.change_squares += other.change_squares;
    }

    /// How many windows there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The ratio; `None` without any window.
    #[must_use]
    pub fn estimate(&self) -> Option<Estimate> {
        if self.count == 0 {
            return None;
        }
        let change = self.change / self.weight;
        let squares = self.change_squares - 2.0 * change * self.weight_change + change * change * self.weight_squares;
        let count = self.count as f64;
        let error = if self.count < 2 {
            f64::INFINITY
        } else {
            (squares.max(0.0) * count / (count - 1.0)).sqrt() / self.weight
        };
        let effective = self.weight * self.weight / self.weight_squares;
        Some(Estimate { mean: 1.0 + change, error, freedom: (effective - 1.0).max(0.0) })
    }
}

/// What `of` makes of all observations, with the error that leaving out each of them in turn shows (the jackknife), which also takes
/// away most of the bias of a ratio. `None` where `of` has no answer.
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
            Some(rest) => pseudo.push(count * all - (count - 1.0) * rest),
            // All hangs on one observation.
            None => return Some(Estimate { mean: all, error: f64::INFINITY, freedom: 0.0 }),
        }
    }
    pseudo.estimate()
}

/// For how many observations [`sequence_half_width`] is narrowest, about a tenth of it.
const MIXTURE: f64 = 6.0;

/// Half of an interval around a mean that holds at all times at once, so that one may look after each observation and stop when it
/// is narrow enough: the normal mixture's boundary (Howard et al., "Time-uniform confidence sequences", 2021, §3.2), a little
/// wider where the variance itself is known from few observations. Infinite below 5.
#[must_use]
pub fn sequence_half_width(variance: f64, count: u64) -> f64 {
    if count < 5 {
        return f64::INFINITY;
    }
    let (n, alpha) = (count as f64, 1.0 - CONFIDENCE);
    let boundary = ((n + MIXTURE) * ((n + MIXTURE) / (MIXTURE * alpha * alpha)).ln()).sqrt() / n;
    boundary * variance.sqrt() * t_quantile(n - 1.0) / NORMAL
}

/// Which findings, by their probabilities, are believed so that at most a part of these is false (Benjamini & Hochberg, 1995).
#[must_use]
pub fn believed(probabilities: &[f64], part: f64) -> Vec<bool> {
    let mut order: Vec<f64> = probabilities.to_vec();
    order.sort_by(f64::total_cmp);
    let count = order.len() as f64;
    let last = order.iter().zip(1u32..).filter(|&(&p, rank)| p <= part * f64::from(rank) / count).last();
    let threshold = last.map_or(-1.0, |(&p, _)| p);
    probabilities.iter().map(|&p| p <= threshold).collect()
}

/// The two-sided 95 % quantile of the normal distribution.
pub const NORMAL: f64 = 1.959_963_984_540_054;

/// The two-sided quantile of [`CONFIDENCE`] of Student's t.
#[must_use]
pub fn t_quantile(freedom: f64) -> f64 {
    if freedom > 1e6 {
        return NORMAL;
    }
    let freedom = freedom.max(0.25);
    let front = ln_gamma(freedom.midpoint(1.0)) - ln_gamma(freedom / 2.0) - (freedom * std::f64::consts::PI).ln() / 2.0;
    // By Newton's method from below: the tails fall ever more slowly there, so no step goes too far.
    let mut t = NORMAL;
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

/// The probability that Student's t is beyond `t` on either side.
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
    if x < (a + 1.0) / (a + b + 2.0) {
        front * beta_fraction(a, b, x) / a
    } else {
        1.0 - front * beta_fraction(b, a, 1.0 - x) / b
    }
}

fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
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

/// Lanczos' approximation (g = 7), for arguments above 0; good to 13 digits from a half on.
fn ln_gamma(x: f64) -> f64 {
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
