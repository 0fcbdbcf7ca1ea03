//! A report in sentences. Names stand in backticks.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::{CurvePoint, Measure, Report, TargetReport, at};

/// How sentences speak of a program: "this server answers more", "a request takes less time".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Speech {
    /// Who it is, as in "this server".
    pub subject: String,
    /// What it does, as in "answer".
    pub verb: String,
    /// What it does that with, as in "a request".
    pub unit: String,
}

impl Default for Speech {
    fn default() -> Self {
        Self { subject: "this program".into(), verb: "do".into(), unit: "a unit of its work".into() }
    }
}

impl Speech {
    /// For a server of requests.
    #[must_use]
    pub fn server() -> Self {
        Self { subject: "this server".into(), verb: "answer".into(), unit: "a request".into() }
    }
}

/// The speed-up that sentences are about, where a curve has it.
const SPOKEN: f64 = 0.2;
/// What no time at all must give at least, or take, to be worth a sentence.
const MATTERS: f64 = 0.01;
/// A gain is none where the interval stays within these.
const NONE: f64 = 0.02;
/// From this share on it is worth saying that something does not matter.
const LARGE: f64 = 0.03;
/// Sentences of one sort.
const SORT_MAX: usize = 3;

impl Report {
    /// What it says, the most worthwhile first; never empty.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let (mut more, mut less, mut none, mut unknown) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for target in &self.targets {
            let (measure, curve) = self.counted(target);
            let Some(top) = curve.last() else { continue };
            let spoken = at(curve, SPOKEN).unwrap_or(top);
            let name = quoted(&target.name);
            if top.gain >= MATTERS && (spoken.low > 0.0 || top.low > 0.0) {
                let point = if spoken.low > 0.0 { spoken } else { top };
                more.push(self.change(&name, measure, point));
            } else if top.gain <= -MATTERS && top.high < 0.0 {
                less.push(self.change(&name, measure, top));
            } else if top.low > -NONE && top.high < NONE {
                if target.share >= LARGE {
                    none.push(off_the_path(&name, target));
                }
            } else if top.half().is_none() {
                unknown.push(format!(
                    "It is not known yet whether making {name} faster would help: too little was seen; a longer profile may tell."
                ));
            } else {
                unknown.push(format!(
                    "It is not known yet whether making {name} faster would help: {} faster, it would save between {} and {} of {}.",
                    percent(top.speedup),
                    percent(top.low),
                    percent(top.high),
                    self.saved(measure),
                ));
            }
        }
        unknown.truncate(1);
        let [first, then] = if more.is_empty() { [unknown, Vec::new()] } else { [Vec::new(), unknown] };
        let mut words = Vec::new();
        for mut sort in [more, first, less, none] {
            sort.truncate(SORT_MAX);
            words.append(&mut sort);
        }
        if words.len() < SORT_MAX {
            words.extend(then);
        }
        if words.is_empty() {
            let about_all = self.reasons.iter().filter(|reason| reason.target.is_empty());
            words.extend(about_all.map(|reason| sentence(&reason.text)));
        }
        if words.is_empty() {
            words.push(match &*self.targets {
                [] => "No target was seen, so there is nothing to say yet.".into(),
                _ => format!("Nothing was found that would let {} {} more.", self.speech.subject, self.speech.verb),
            });
        }
        words
    }

    /// One target, faster, and what comes of it.
    fn change(&self, name: &str, measure: Measure, point: &CurvePoint) -> String {
        let Speech { subject, verb, unit } = &self.speech;
        let faster = percent(point.speedup);
        let is_gain = point.gain >= 0.0;
        let (does, amount) = match measure {
            Measure::Latency => {
                let does = if is_gain { "shorten" } else { "lengthen" };
                let amount = amount(point.gain, point.low, point.high, "");
                return format!(
                    "Making {name} {faster} faster would {does} {unit} by {amount}; the load would not ask for more."
                );
            }
            Measure::Pace => {
                let word = if is_gain { " more" } else { " less" };
                let ends = [point.gain, point.low, point.high].map(more);
                match ends {
                    [Some(gain), Some(low), Some(high)] => (verb, amount(gain, low, high, word)),
                    _ => {
                        let amount = amount(point.gain, point.low, point.high, "");
                        return format!(
                            "Making {name} {faster} faster would save {subject} {amount} of the time for {unit}."
                        );
                    }
                }
            }
        };
        format!("Making {name} {faster} faster would let {subject} {does} {amount}.")
    }

    /// What a gain is a part of.
    fn saved(&self, measure: Measure) -> String {
        match measure {
            Measure::Pace => {
                format!("the time per unit of `{}`", self.progress.first().map_or("progress", |it| &it.name))
            }
            Measure::Latency => format!("the time that {} takes", self.speech.unit),
        }
    }
}

fn off_the_path(name: &str, target: &TargetReport) -> String {
    format!(
        "Making {name} faster would not help: it is off the critical path, with {} of all samples.",
        percent(target.share)
    )
}

/// How much more is done when this part of the time is saved; `None` near all of it.
pub(super) fn more(gain: f64) -> Option<f64> {
    (gain < 0.99).then(|| 1.0 / (1.0 - gain) - 1.0)
}

/// "6.8 % ± 1.1 more", or with both ends where they are not as far away.
fn amount(gain: f64, low: f64, high: f64, word: &str) -> String {
    let (gain, low, high) = if gain < 0.0 { (-gain, -high, -low) } else { (gain, low, high) };
    let half = (high - low) / 2.0;
    let skew = (gain - (high + low) / 2.0).abs();
    if half > 0.0 && skew > half / 4.0 {
        return format!("{}{word} ({} to {})", percent(gain), digits(low, places(gain)), percent(high));
    }
    let places = places(gain);
    let shown = digits(half, places);
    let least = if places == 0 { "1" } else { "0.1" };
    let shown = if shown.bytes().all(|digit| matches!(digit, b'0' | b'.')) { least } else { &shown };
    format!("{} ± {shown}{word}", percent(gain))
}

/// A part of a whole as people read it: "6.8 %", "12 %".
pub(super) fn percent(part: f64) -> String {
    let mut text = digits(part, places(part));
    text.push_str(" %");
    text
}

/// Digits behind the point: one for small parts.
pub(super) fn places(part: f64) -> usize {
    let percent = part.abs() * 100.0;
    usize::from(percent < 9.95 && (percent - percent.round()).abs() > 0.04)
}

pub(super) fn digits(part: f64, places: usize) -> String {
    let mut text = String::new();
    write!(text, "{:.places$}", part * 100.0).expect("a string takes every write");
    // Nobody wants to read "-0".
    if text.bytes().all(|digit| matches!(digit, b'-' | b'0' | b'.')) {
        text.retain(|char| char != '-');
    }
    text.replace('-', "−")
}

/// A name in backticks, on one line.
fn quoted(name: &str) -> String {
    let mut text = String::with_capacity(name.len() + 2);
    text.push('`');
    for char in name.chars() {
        match char {
            '`' => text.push('\''),
            char if char.is_control() => text.extend(char.escape_default()),
            char => text.push(char),
        }
    }
    text.push('`');
    text
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(char::to_uppercase);
    let mut sentence: String = first.into_iter().flatten().chain(chars).collect();
    if !sentence.ends_with(['.', '!', '?']) {
        sentence.push('.');
    }
    sentence
}

#[cfg(test)]
mod tests {
    use super::super::sample::{curve, report};
    use super::*;
    use crate::report::{LoadKind, Reason, ReasonCode};

    #[test]
    fn sentences() {
        assert_eq!(
            report().words(),
            [
                "Making `tls write` 20 % faster would let this server answer 6.8 % ± 0.9 more.",
                "Making `<T as h1::Parse>::head</script>` 20 % faster would let this server answer 1.9 % ± 0.6 more.",
                "Making `accept > Pool::take` 100 % faster would let this server answer 3.8 % ± 0.6 less.",
                "Making `route /api/*` faster would not help: it is off the critical path, with 34 % of all samples.",
            ]
        );
    }

    #[test]
    fn under_a_load_that_keeps_its_pace() {
        let mut report = report();
        report.load.kind = LoadKind::Limited;
        report.targets.truncate(1);
        report.targets[0].latency = curve(0.6, 1.0, 0.02, 0.11);
        report.speech = Speech::default();
        let want = "Making `tls write` 20 % faster would shorten a unit of its work by 12 % ± 2; the load would not ask for more.";
        assert_eq!(report.words(), [want]);
    }

    #[test]
    fn what_is_not_known() {
        let mut report = report();
        report.targets.drain(..3);
        report.targets.truncate(1);
        let want = "It is not known yet whether making `src/encode.rs:112` faster would help: 100 % faster, it would save between −4 % and 8 % of the time per unit of `request`.";
        assert_eq!(report.words(), [want]);
        report.targets[0].curve.last_mut().unwrap().low = -10.0;
        let want = "It is not known yet whether making `src/encode.rs:112` faster would help: too little was seen; a longer profile may tell.";
        assert_eq!(report.words(), [want]);
        report.targets.clear();
        assert_eq!(report.words(), ["No target was seen, so there is nothing to say yet."]);
        let text = "no unit of progress was seen".into();
        report.reasons = vec![Reason { target: String::new(), code: ReasonCode::NoProgress, text }];
        assert_eq!(report.words(), ["No unit of progress was seen."]);
    }

    // S is the part of the time that is saved; 1/(1−S) − 1 is what is done more in the same time.
    #[test]
    fn amounts() {
        for (gain, low, high, want) in [
            (0.064, 0.054, 0.074, "6.4 % ± 1"),
            (0.0641, 0.0521, 0.0761, "6.4 % ± 1.2"),
            (0.2, 0.18, 0.22, "20 % ± 2"),
            (0.2, 0.1999, 0.2001, "20 % ± 1"),
            (0.0123, 0.0123, 0.0123, "1.2 % ± 0.1"),
            (-0.03, -0.05, -0.01, "3 % ± 2"),
            (0.25, 0.2, 0.4, "25 % (20 to 40 %)"),
        ] {
            let got = amount(gain, low, high, "");
            // A whole number needs no digits behind the point.
            assert_eq!(got.replace("± 1.0", "± 1"), want, "{gain} {low} {high}");
        }
        assert_eq!(more(0.5), Some(1.0));
        assert_eq!(more(1.0), None);
        for (part, want) in [(0.068, "6.8 %"), (0.0996, "10 %"), (0.3, "30 %"), (-0.004, "−0.4 %"), (-0.0001, "0 %")]
        {
            assert_eq!(percent(part), want);
        }
    }

    #[test]
    fn all_the_time_saved() {
        let mut report = report();
        report.targets.truncate(1);
        report.targets[0].curve = vec![CurvePoint { speedup: 1.0, gain: 1.0, low: 0.9, high: 1.0, expected: 1.0 }];
        let want =
            "Making `tls write` 100 % faster would save this server 100 % (90 to 100 %) of the time for a request.";
        assert_eq!(report.words(), [want]);
    }
}
