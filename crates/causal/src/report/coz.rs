//! A report as a `profile.coz`, for the viewer of Coz (plasma-umass/coz, `viewer/ts/profile.ts`) and what else reads that format.
//!
//! The viewer adds up `duration` and `delta` by target, progress point and speed-up, takes p = duration / delta, and draws
//! 1 − p(v)/p(0). What is written here is made so that this comes to our gain: no experiment of the file took place as it
//! stands. Each point has its experiment for itself, since a viewer that adds up keeps points apart but not durations.
//!
//! Times from begin to end are written as throughput points too, called "NAME (time)": of Coz's own latency points the viewer
//! draws the negative, so that what gets shorter points down.

use std::fmt::Write as _;

use super::{CurvePoint, Report, TargetReport};

/// Experiments last as long as this, nanoseconds, where nothing is faster; then a gain is exact to 1e-9.
const DURATION: f64 = 1e9;

impl Report {
    /// As Coz's text format: tabs between fields, one record a line.
    #[must_use]
    pub fn to_coz(&self) -> String {
        let report = self.finite();
        let mut file = File(String::new());
        file.line(format_args!("startup\ttime={}", report.began.saturating_mul(1_000_000_000)));
        let primary = report.progress.first().map_or("progress", |progress| &progress.name);
        for target in &report.targets {
            file.curve(target, primary, &target.curve);
            file.curve(target, &format!("{primary} (time)"), &target.latency);
            for other in &target.others {
                file.curve(target, &other.progress, &other.curve);
                file.curve(target, &format!("{} (time)", other.progress), &other.latency);
            }
        }
        for target in &report.targets {
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

/// A name as a field may hold it: no tab, no end of a line.
fn field(name: &str) -> String {
    name.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::at;
    use super::super::sample::report;

    /// Target, progress point, speed-up in hundredths.
    type Place = (String, String, u32);

    /// What the viewer makes of a file: duration and delta by place, added up; every record must be one that it knows.
    fn viewed(file: &str) -> BTreeMap<Place, f64> {
        let mut sums: BTreeMap<Place, (u64, u64)> = BTreeMap::new();
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
        let time = |place: &Place| sums[place].0 as f64 / sums[place].1 as f64;
        let gain = |place: &Place| {
            let before = time(&(place.0.clone(), place.1.clone(), 0));
            (before - time(place)) / before
        };
        sums.keys().map(|place| (place.clone(), gain(place))).collect()
    }

    #[test]
    fn the_viewer_comes_to_our_gains() {
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
    fn names_cannot_forge_records() {
        let mut report = report();
        report.targets.truncate(1);
        report.targets[0].name = "a\tb=c\nexperiment\tselected=d".into();
        let viewed = viewed(&report.to_coz());
        assert!(viewed.keys().all(|(name, ..)| name == "a b=c experiment selected=d"), "{viewed:?}");
    }
}
