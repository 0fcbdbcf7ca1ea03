//! A report for tests, with names and values that are hard to format.

use super::{CurvePoint, GainSource, Load, LoadKind, OtherCurve, Perturbation, Progress, Reason, ReasonCode, Report};
use super::{Speech, Stack, TargetReport};
use crate::target::TargetKind;

const SPEEDUPS: [f64; 11] = [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 1.0];

/// A curve; `slope` is its gain at a speed-up of 100 %.
pub(super) fn curve(slope: f64, bend: f64, half: f64, share: f64) -> Vec<CurvePoint> {
    SPEEDUPS
        .map(|speedup: f64| {
            let gain = slope * speedup.powf(bend);
            CurvePoint { speedup, gain, low: gain - half, high: gain + half, expected: share * speedup }
        })
        .to_vec()
}

fn target(name: &str, kind: TargetKind, share: f64, curve: Vec<CurvePoint>, mode: GainSource) -> TargetReport {
    let samples = (share * 7421.0) as u64;
    let confirmed = match mode {
        GainSource::Screened => Vec::new(),
        GainSource::Confirmed => curve.iter().filter(|point| [0.25, 0.5].contains(&point.speedup)).copied().collect(),
    };
    let latency = curve.iter().map(|point| CurvePoint { gain: point.gain * 1.2, ..*point }).collect();
    TargetReport {
        name: name.into(),
        kind,
        share,
        curve,
        latency,
        mode,
        samples,
        confirmed,
        others: Vec::new(),
        folded: None,
    }
}

pub(super) fn report() -> Report {
    let mut write = target("tls write", TargetKind::Span, 0.11, curve(0.32, 1.0, 0.008, 0.11), GainSource::Confirmed);
    write.others = vec![OtherCurve {
        progress: "route /api/*".into(),
        curve: curve(0.11, 1.0, 0.012, 0.11),
        latency: curve(0.15, 1.0, 0.012, 0.11),
    }];
    let targets = vec![
        write,
        target(
            "<T as h1::Parse>::head</script>",
            TargetKind::Function,
            0.09,
            curve(0.08, 0.9, 0.006, 0.09),
            GainSource::Screened,
        ),
        target("route /api/*", TargetKind::Span, 0.34, curve(0.002, 1.0, 0.005, 0.34), GainSource::Screened),
        target("src/encode.rs:112", TargetKind::Line, 0.03, curve(0.02, 1.0, 0.06, 0.03), GainSource::Screened),
        target("accept > Pool::take", TargetKind::Path, 0.02, curve(-0.04, 1.0, 0.006, 0.02), GainSource::Confirmed),
    ];
    Report {
        program: "causeway".into(),
        speech: Speech::server(),
        began: 1_795_341_600,
        seconds: 30.0,
        targets,
        progress: vec![
            Progress {
                name: "request".into(),
                baseline_rate: 41_230.5,
                baseline_ns: Some(1_512_300.25),
                count: 1_236_915,
            },
            Progress {
                name: "route /api/*".into(),
                baseline_rate: 9_120.0,
                baseline_ns: Some(2_800_000.0),
                count: 273_600,
            },
        ],
        load: Load { kind: LoadKind::Closed, limit: None, elasticity: Some(0.97), utilisation: 0.84 },
        perturbation: Perturbation {
            budget: 0.03,
            paused: 0.019,
            recording: 0.006,
            own: 0.004,
            windows: [182, 64],
            aborted: 1,
        },
        reasons: vec![Reason {
            target: "src/encode.rs:112".into(),
            code: ReasonCode::Imprecise,
            text: "the interval is ± 6 points wide after 30 s; a longer run narrows it".into(),
        }],
        stacks: vec![Stack {
            frames: vec!["worker".into(), "drive".into(), "tls write".into()],
            count: 17,
            nanoseconds: 68_000_000,
        }],
        parts: Vec::new(),
    }
}
