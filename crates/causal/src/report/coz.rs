//! A report as a `profile.coz`, for the viewer of Coz (plasma-umass/coz, `viewer/ts/profile.ts`) and other readers of
//! that format.
//!
//! The viewer sums `duration` and `delta` by target, progress point and speed-up, takes p = duration / delta, and draws
//! 1 − p(v)/p(0). The records are synthetic: their values are chosen so that the viewer computes our gains. Each point
//! has an experiment of its own, because the viewer keeps points apart when it sums, but not durations.
//!
//! Folded targets are left out: the viewer ranks all targets, and cannot show a reason.
//!
//! Latencies are written as throughput points too, named "NAME (time)": for Coz's own latency points the viewer draws
//! the negated value, so an improvement would point down.

use std::fmt::Write as _;

use super::{CurvePoint, Report, TargetReport};

/// Duration of a control experiment, nanoseconds; gains are then exact to 1e-9.
const DURATION: f64 = 1e9;

impl Report {
    /// The report in Coz's text format: one record per line, fields separated by tabs.
    #[must_use]
    pub fn to_coz(&self) -> String {
        let report = self.finite();
        let mut file = File(String::new());
        file.line(format_args!("startup\ttime={}", report.began.saturating_mul(1_000_000_000)));
        let primary = report.progress.first().map_or("progress", |progress| &progress.name);
        for target in report.shown() {
            file.curve(target, primary, &target.curve);
            file.curve(target, &format!("{primary} (time)"), &target.latency);
            for other in &target.others {
                file.curve(target, &other.progress, &other.curve);
                file.curve(target, &format!("{} (time)", other.progress), &other.latency);
            }
        }
        for target in report.shown() {
            file.line(format_args!("samples\tlocation={}\tcount={}", field(&target.name), target.samples));
        }
        file.line(format_args!("runtime\ttime={:.0}", report.seconds * 1e9));
        file.0
    }
}

struct File(String);

impl File {
    fn line(&mut self, fields: std::fmt::Arguments<'_>) {
        self.0.write_fmt(fields).expect("a string takes every write");
        self.0.push('\n');
    }

    fn curve(&mut self, target: &TargetReport, progress: &str, curve: &[CurvePoint]) {
        if curve.is_empty() {
            return;
        }
        let nothing = CurvePoint::default();
        let control = (!curve.iter().any(|point| point.speedup == 0.0)).then_some(&nothing);
        for point in control.into_iter().chain(curve) {
            // The viewer needs a control at speed-up 0; with delta fixed, the duration encodes the gain.
            let duration = (DURATION * (1.0 - point.gain)).max(0.0);
            self.line(format_args!(
                "experiment\tselected={}\tspeedup={}\tduration={duration:.0}\tselected-samples={}",
                field(&target.name),
                point.speedup,
                target.samples,
            ));
            self.line(format_args!("throughput-point\tname={}\tdelta=1000", field(progress)));
        }
    }
}

/// A name without tabs and newlines.
fn field(name: &str) -> String {
    name.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::at;
    use super::super::sample::report;
    use crate::target::{FoldReason, Folded};

    /// Target, progress point, and speed-up in hundredths.
    type CozPoint = (String, String, u32);

    /// Computes gains as the viewer does; panics on a record that the viewer does not support.
    fn viewed(file: &str) -> BTreeMap<CozPoint, f64> {
        let mut sums: BTreeMap<CozPoint, (u64, u64)> = BTreeMap::new();
        let mut experiment = None;
        for line in file.lines() {
            let mut parts = line.split('\t');
            let kind = parts.next().unwrap();
            let fields: BTreeMap<_, _> = parts.map(|part| part.split_once('=').unwrap()).collect();
            match kind {
                "experiment" => {
                    let speedup: f64 = fields["speedup"].parse().unwrap();
                    let duration: u64 = fields["duration"].parse().unwrap();
                    fields["selected-samples"].parse::<u64>().unwrap();
                    experiment = Some((fields["selected"].to_owned(), (speedup * 100.0).round() as u32, duration));
                }
                "throughput-point" => {
                    let (selected, speedup, duration) = experiment.clone().unwrap();
                    let sum = sums.entry((selected, fields["name"].to_owned(), speedup)).or_default();
                    *sum = (sum.0 + duration, sum.1 + fields["delta"].parse::<u64>().unwrap());
                }
                "samples" => assert!(fields["count"].parse::<u64>().is_ok() && !fields["location"].is_empty()),
                "startup" | "runtime" => assert!(fields["time"].parse::<u64>().is_ok(), "{line}"),
                other => panic!("the viewer does not know {other}"),
            }
        }
        let time = |place: &CozPoint| sums[place].0 as f64 / sums[place].1 as f64;
        let gain = |place: &CozPoint| {
            let before = time(&(place.0.clone(), place.1.clone(), 0));
            (before - time(place)) / before
        };
        sums.keys().map(|place| (place.clone(), gain(place))).collect()
    }

    #[test]
    fn the_viewer_computes_our_gains() {
        let report = report();
        let viewed = viewed(&report.to_coz());
        let mut curves = Vec::new();
        for target in &report.targets {
            curves.push((target, "request".to_owned(), &target.curve));
            curves.push((target, "request (time)".to_owned(), &target.latency));
            for other in &target.others {
                curves.push((target, other.progress.clone(), &other.curve));
                curves.push((target, format!("{} (time)", other.progress), &other.latency));
            }
        }
        let points: usize = curves.iter().map(|(_, _, curve)| curve.len() + 1).sum();
        assert_eq!(viewed.len(), points);
        for ((name, progress, speedup), gain) in &viewed {
            let (_, _, curve) = curves.iter().find(|(it, at, _)| it.name == *name && at == progress).unwrap();
            let want = at(curve, f64::from(*speedup) / 100.0).map_or(0.0, |point| point.gain);
            assert!((gain - want).abs() < 1e-8, "{name} {progress} {speedup}: {gain} {want}");
        }
    }

    #[test]
    fn folded_targets_are_omitted() {
        let mut report = report();
        report.targets[0].folded = Some(Folded { why: FoldReason::Whole, into: String::new() });
        let file = report.to_coz();
        assert!(!file.contains("selected=tls write\t") && !file.contains("location=tls write\t"), "{file}");
        assert!(file.contains("selected=route /api/*\t"));
    }

    #[test]
    fn names_cannot_forge_records() {
        let mut report = report();
        report.targets.truncate(1);
        report.targets[0].name = "a\tb=c\nexperiment\tselected=d".into();
        let viewed = viewed(&report.to_coz());
        assert!(viewed.keys().all(|(name, ..)| name == "a b=c experiment selected=d"), "{viewed:?}");
    }
}
