//! A report as sentences. Names are in backticks.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::{CurvePoint, Limit, Quantity, Report, TargetReport, at};
use crate::constants::{NOTED_SAMPLES_FEW, SENTENCE_GAIN_MIN, SENTENCE_NO_GAIN, SENTENCE_SHARE_MIN, SENTENCE_SPEEDUP};

/// The words for a program in sentences: "this server answers more", "a request takes less time".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Speech {
    /// The program: "this server".
    pub subject: String,
    /// Its activity, as a verb: "answer".
    pub verb: String,
    /// The object of that activity, one unit of work: "a request".
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

/// Bound on the sentences of one kind.
const SENTENCES_MAX: usize = 3;

impl Report {
    /// The sentences, largest gain first; never empty.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let (mut more, mut less, mut none, mut unknown) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for target in self.shown() {
            let (measure, curve) = self.counted(target);
            let Some(top) = curve.last() else { continue };
            let spoken = at(curve, SENTENCE_SPEEDUP).unwrap_or(top);
            let name = quoted(&target.name);
            // An effect counts if its interval excludes 0, at the usual speed-up or at 100 %.
            if top.gain >= SENTENCE_GAIN_MIN && (spoken.low > 0.0 || top.low > 0.0) {
                let point = if spoken.low > 0.0 { spoken } else { top };
                more.push(self.change(&name, measure, point));
            } else if top.gain <= -SENTENCE_GAIN_MIN && top.high < 0.0 {
                less.push(self.change(&name, measure, top));
            } else if top.low > -SENTENCE_NO_GAIN && top.high < SENTENCE_NO_GAIN {
                if target.share >= SENTENCE_SHARE_MIN {
                    none.push(self.no_gain(&name, target));
                }
            } else if top.half().is_none() {
                unknown.push(format!(
                    "It is not known yet whether making {name} faster would help: there is too little data; run a longer \
                     profile."
                ));
            } else {
                unknown.push(format!(
                    "It is not known yet whether making {name} faster would help: {} faster, it would save between {} and \
                     {} of {}.",
                    percent(top.speedup),
                    percent(top.low),
                    percent(top.high),
                    self.saved(measure),
                ));
            }
        }
        // Only targets around the work would help: no part of it stands out.
        if more.is_empty()
            && unknown.is_empty()
            && let Some((target, _)) = self.subsumed().find(|(target, _)| self.would_help(target))
        {
            more.push(format!(
                "No part of the work stands out: {} contains nearly all of it, and no part inside would help much by \
                 itself.",
                quoted(&target.name)
            ));
        }
        // One unknown effect is a reason for a longer profile; further ones add nothing to it.
        unknown.truncate(1);
        // Unknown effects come first only if there is no known gain, and last only if there are few other sentences.
        let [first, then] = if more.is_empty() { [unknown, Vec::new()] } else { [Vec::new(), unknown] };
        let mut words = Vec::new();
        for mut sort in [more, first, less, none] {
            sort.truncate(SENTENCES_MAX);
            words.append(&mut sort);
        }
        if words.len() < SENTENCES_MAX {
            words.extend(then);
        }
        if words.is_empty() {
            let about_all = self.reasons.iter().filter(|reason| reason.target.is_empty());
            words.extend(about_all.map(|reason| sentence(&reason.text)));
        }
        if words.is_empty() {
            words.push(match &*self.targets {
                [] => "No target was sampled yet, so there is no result.".into(),
                _ => format!("No target was found that would let {} {} more.", self.speech.subject, self.speech.verb),
            });
        }
        words
    }

    fn would_help(&self, target: &TargetReport) -> bool {
        self.counted(target).1.last().is_some_and(|top| top.gain >= SENTENCE_GAIN_MIN && top.low > 0.0)
    }

    /// The sentence about one target: its speed-up, and the effect.
    fn change(&self, name: &str, measure: Quantity, point: &CurvePoint) -> String {
        let Speech { subject, verb, unit } = &self.speech;
        let faster = percent(point.speedup);
        let is_gain = point.gain >= 0.0;
        let (does, amount) = match measure {
            Quantity::Latency => {
                let does = if is_gain { "shorten" } else { "lengthen" };
                let amount = amount(point.gain, point.low, point.high, "");
                let load = match self.load.limit {
                    Some(Limit::Generator) => "the load generator is likely at its limit and",
                    _ => "the load",
                };
                return format!(
                    "Making {name} {faster} faster would {does} {unit} by {amount}; {load} would not send more."
                );
            }
            Quantity::TimePerUnit => {
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

    /// The sentence about a target with a share of the samples, but no gain. It is off the critical path if the gain
    /// would be clearly larger on it. Samples are taken only while a thread works, so a large share of them may be a
    /// small part of the time.
    fn no_gain(&self, name: &str, target: &TargetReport) -> String {
        let (measure, curve) = self.counted(target);
        let top = curve.last().copied().unwrap_or_default();
        // The part of the samples, and then of the time: the busiest thread is the one that the others wait for.
        let on_the_path = top.expected * self.utilisation(target);
        if target.samples >= NOTED_SAMPLES_FEW && on_the_path > top.high + top.half_width() {
            let share = percent(target.share);
            return format!(
                "Making {name} faster would not help: it is off the critical path, with {share} of all samples."
            );
        }
        // The measured bound and not the part of the time, which few samples do not show.
        format!(
            "Making {name} faster would not help: it is too small to matter, with at most {} of {}.",
            percent(top.high.max(0.0)),
            self.saved(measure)
        )
    }

    /// Returns the utilisation of the program. Of several programs, that of the least busy one with the target: samples
    /// do not show in which of them the target is a small part of the time.
    fn utilisation(&self, target: &TargetReport) -> f64 {
        let with_target = self.parts.iter().filter(|part| part.find(target).is_some());
        let each = with_target.map(|part| part.load.utilisation);
        each.min_by(f64::total_cmp).unwrap_or(self.load.utilisation)
    }

    /// The quantity of which a gain is a part.
    fn saved(&self, measure: Quantity) -> String {
        match measure {
            Quantity::TimePerUnit => {
                format!("the time per unit of `{}`", self.progress.first().map_or("progress", |it| &it.name))
            }
            Quantity::Latency => format!("the time that {} takes", self.speech.unit),
        }
    }
}

/// The increase of the rate when this part of the time is saved, 1/(1 − S) − 1; `None` near S = 1.
pub(super) fn more(gain: f64) -> Option<f64> {
    (gain < 0.99).then(|| 1.0 / (1.0 - gain) - 1.0)
}

/// "6.8 % ± 1.1 more", or the gain with both ends of its interval if that is not symmetric.
fn amount(gain: f64, low: f64, high: f64, word: &str) -> String {
    // A loss is printed as a positive amount, so its interval is mirrored.
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

/// A fraction as text: "6.8 %", "12 %".
pub(super) fn percent(part: f64) -> String {
    let mut text = digits(part, places(part));
    text.push_str(" %");
    text
}

/// The number of decimal places: one for small fractions.
pub(super) fn places(part: f64) -> usize {
    let percent = part.abs() * 100.0;
    usize::from(percent < 9.95 && (percent - percent.round()).abs() > 0.04)
}

pub(super) fn digits(part: f64, places: usize) -> String {
    let mut text = String::new();
    write!(text, "{:.places$}", part * 100.0).expect("a string takes every write");
    // No "-0".
    if text.bytes().all(|digit| matches!(digit, b'-' | b'0' | b'.')) {
        text.retain(|char| char != '-');
    }
    text.replace('-', "−")
}

/// A name in backticks, without control characters.
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
    use crate::target::{FoldReason, Folded};

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
    fn under_an_open_load() {
        let mut report = report();
        report.load.kind = LoadKind::Limited;
        report.targets.truncate(1);
        report.targets[0].latency = curve(0.6, 1.0, 0.02, 0.11);
        report.speech = Speech::default();
        let want = "Making `tls write` 20 % faster would shorten a unit of its work by 12 % ± 2; the load would not send \
                    more.";
        assert_eq!(report.words(), [want]);
    }

    /// A server that works 6 % of the time has few samples, and none of its parts can gain much.
    #[test]
    fn a_small_part_of_the_time_is_not_off_the_critical_path() {
        let small = "Making `route /api/*` faster would not help: it is too small to matter, with at most 0.7 % of the time \
                     per unit of `request`.";
        let off = "Making `route /api/*` faster would not help: it is off the critical path, with 34 % of all samples.";
        for (utilisation, samples, want) in [(0.84, 2523, off), (0.03, 2523, small), (0.84, 4, small)] {
            let mut report = report();
            report.targets = vec![report.targets.swap_remove(2)];
            (report.load.utilisation, report.targets[0].samples) = (utilisation, samples);
            assert_eq!(report.words(), [want], "{utilisation}, {samples}");
        }
    }

    /// The largest utilisation of several servers is no bound for a target of the others.
    #[test]
    fn a_small_part_of_the_time_of_several_servers() {
        let with = |utilisation, has_target: bool| {
            let mut report = report();
            report.load.utilisation = utilisation;
            report.targets = if has_target { vec![report.targets.swap_remove(2)] } else { Vec::new() };
            report
        };
        for (of_other, has_target, is_small) in [(0.01, true, true), (0.01, false, false), (0.9, true, false)] {
            let merged = Report::merged(vec![with(0.84, true), with(of_other, has_target)]).expect("two reports");
            let words = merged.words();
            assert_eq!(words[0].contains("too small to matter"), is_small, "{words:?}");
            assert_eq!(words[0].contains("off the critical path"), !is_small, "{words:?}");
        }
    }

    /// A folded target is no headline, however large its gain; if no other target would help, a sentence states that.
    #[test]
    fn wrapper_frames_are_no_headline() {
        let mut report = report();
        report.targets[0].folded = Some(Folded { why: FoldReason::Whole, into: String::new() });
        let first = &report.words()[0];
        assert!(first.starts_with("Making `<T as h1::Parse>::head</script>` 20 % faster"), "{first}");
        report.targets.truncate(1);
        let want = "No part of the work stands out: `tls write` contains nearly all of it, and no part inside would help \
                    much by itself.";
        assert_eq!(report.words(), [want]);
    }

    #[test]
    fn a_saturated_generator_is_named() {
        let mut report = report();
        (report.load.kind, report.load.limit) = (LoadKind::Limited, Some(Limit::Generator));
        let first = &report.words()[0];
        assert!(first.ends_with("; the load generator is likely at its limit and would not send more."), "{first}");
    }

    #[test]
    fn uncertain_results() {
        let mut report = report();
        report.targets.drain(..3);
        report.targets.truncate(1);
        let want = "It is not known yet whether making `src/encode.rs:112` faster would help: 100 % faster, it would save \
                    between −4 % and 8 % of the time per unit of `request`.";
        assert_eq!(report.words(), [want]);
        report.targets[0].curve.last_mut().unwrap().low = -10.0;
        let want = "It is not known yet whether making `src/encode.rs:112` faster would help: there is too little data; \
                    run a longer profile.";
        assert_eq!(report.words(), [want]);
        report.targets.clear();
        assert_eq!(report.words(), ["No target was sampled yet, so there is no result."]);
        let text = "no unit of progress was seen".into();
        report.reasons = vec![Reason { target: String::new(), code: ReasonCode::NoProgress, text }];
        assert_eq!(report.words(), ["No unit of progress was seen."]);
    }

    // S is the saved part of the time; 1/(1−S) − 1 is the increase of the rate.
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
            // `amount` may print a whole number with a decimal place.
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
