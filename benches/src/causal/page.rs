//! The record as a page and as a picture.

use std::fmt::Write;

use causal::report::GainSource;

use super::Results;
use super::cases::Quantity;
use super::cost::{BUDGET, Cost, WORK};
use super::prediction::PredictedGain;
use super::verdict::{COVERED, VerdictRow};
use crate::record::table::heading;
use crate::stats;

const SIZE: f64 = 560.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 56.0;
const FOOT: f64 = 56.0;
const OURS: &str = "#2f81f7";
const COZ: &str = "#e5812b";

/// Formats the whole record.
pub fn page(results: &Results) -> String {
    let Results { date, commit, machine, arguments, .. } = results;
    let mut page = heading("causal", date, commit, machine, arguments);
    page.push_str(HOW);
    let _ = writeln!(page, "The host took {:.1} % of the processors' time during the run.\n", 100.0 * results.stolen);
    let judged: Vec<&VerdictRow> = results.rows.iter().filter(|row| row.covered.1 > 0).collect();
    if !judged.is_empty() {
        let passed = judged.iter().filter(|row| row.passes()).count();
        let (covered, asked) = judged.iter().fold((0, 0), |sum, row| (sum.0 + row.covered.0, sum.1 + row.covered.1));
        let part = covered as f64 / asked as f64;
        let _ = writeln!(
            page,
            "**{passed} of {} predictions pass; the intervals cover the truth in {covered} of {asked} runs, {:.0} %: {}.**",
            judged.len(),
            100.0 * part,
            if part >= COVERED { "passes" } else { "missed" }
        );
        let coz: Vec<bool> = judged.iter().filter_map(|row| row.coz_is_near()).collect();
        let asked = judged.iter().filter(|row| row.coz.is_some()).count();
        if asked > 0 {
            let near = coz.iter().filter(|near| **near).count();
            let of_these = judged.iter().filter(|row| row.coz.is_some() && row.passes()).count();
            let _ = writeln!(
                page,
                "Coz was asked for {asked} of them and is as near in {near}; ours passes {of_these} of these."
            );
        }
        page.push_str("\n![predicted against true](predictions.svg)\n\n");
    }
    if !results.rows.is_empty() {
        page.push_str(&table(&results.rows));
    }
    let disturbed = results.rows.iter().filter(|row| row.truth.disturbed > 0.05).count();
    if disturbed > 0 {
        let _ = writeln!(
            page,
            "\nIn {disturbed} rows (†) the programs waited for their cores more than 5 % of the time, because of other processes."
        );
    }
    if let Some(worthless) = &results.worthless {
        let _ = writeln!(
            page,
            "\n## 9: a target that does nothing\n\nProfiled {} times; {} intervals excluded 0 and {} profiles had no result: {}.",
            worthless.asked,
            worthless.alarms,
            worthless.silent,
            if worthless.passes() { "passes" } else { "**missed**" }
        );
    }
    if let Some(cost) = &results.cost {
        page.push_str(&cost_page(cost));
    }
    let faults: Vec<_> = results.rows.iter().filter(|row| row.covered.1 > 0 && !row.passes()).collect();
    if !faults.is_empty() {
        page.push_str("\n## Missed predictions\n\n");
        for row in faults {
            let _ = writeln!(page, "- {} at {} %: {}", row.case, row.truth.speedup, row.faults.join("; "));
        }
    }
    if !results.skipped.is_empty() {
        page.push_str("\n## Skipped\n\n");
        for line in &results.skipped {
            let _ = writeln!(page, "- {line}");
        }
    }
    page
}

const HOW: &str = "A knob actually reduces a planted cost by v. The profiler ran first, in a process of its own and with the knob at 0, and its \
predictions were written to a file before the truth was measured: the knob at 0 and at v alternately, in a process in which no profiler \
ever ran, from the client or by the program's own count. Gains are S = 1 − p(v)/p(0), p the time per unit of progress (or the mean \
latency); the truth is the centre of the pairs (Hodges-Lehmann), which is robust against a host that stalls during a few. A prediction passes \
if it is off by at most 2 pp or a tenth and half of its interval is at most 2 pp or a fifth. Nine of ten intervals of all runs must overlap the \
truth's; *covers* is the number of runs in a row whose interval does. No parameter is fitted to a case; a missing answer counts as missed. Figures are the first run's, followed by half of \
the 95 % interval, in percent. *Share* is the target's share in an ordinary profile.\n\n";

fn table(rows: &[VerdictRow]) -> String {
    let mut text = String::from(
        "| case | | v, % | share | truth | predicted | covers | by | pauses | Coz | |\n|---|---|--:|--:|--:|--:|--:|---|--:|--:|---|\n",
    );
    for row in rows {
        let percent = |part: f64| format!("{:.1}", 100.0 * part);
        let pair = |gain: f64, half: f64| format!("{} ± {}", percent(gain), percent(half));
        let answer =
            |answer: Option<PredictedGain>| answer.map_or("–".to_owned(), |answer| pair(answer.gain, answer.half()));
        let coz = row.coz.as_ref().map_or("–".to_owned(), |said| match (said.gain, &said.why) {
            (Some(gain), _) => pair(gain, said.half),
            (None, why) => why.clone().unwrap_or_default().replace('|', "/"),
        });
        let of = if row.truth.quantity == Quantity::Latency { ", latency" } else { "" };
        let _ = writeln!(
            text,
            "| {}{of} | {} | {} | {} | {}{} | {} | {} of {} | {} | {} | {coz} | {} |",
            row.case,
            row.title,
            row.truth.speedup,
            row.share.map_or("–".to_owned(), percent),
            pair(row.truth.gain, row.truth.half),
            if row.truth.disturbed > 0.05 { " †" } else { "" },
            answer(row.answer),
            row.covered.0,
            row.covered.1,
            match row.mode {
                Some(GainSource::Screened) => "replay",
                Some(GainSource::Confirmed) => "pauses",
                None => "–",
            },
            answer(row.confirmed),
            match (row.covered.1, row.passes()) {
                (0, _) => "not asked",
                (_, true) => "passes",
                (_, false) => "**missed**",
            }
        );
    }
    text
}

fn cost_page(cost: &Cost) -> String {
    let mut text = format!(
        "\n## 10: the overhead of a running profile\n\nA small response after {} µs of work under wrk: {:.0} requests a second, and {:.2} µs of the server's CPU time and {:.2} of wrk's each, without a \
         profile; each slot with one has slots without before and after it. *By wrk*: relative to wrk's CPU time per request in that slot, since the host's speed varies. Budget: \
         {:.0} %. The first column decides.\n\n| mode | requests a second less, by wrk, % | as measured, % | CPU time more, by wrk's, % | µs a request | what the profile said, % |\n\
         |---|--:|--:|--:|--:|--:|\n",
        WORK,
        cost.rate,
        cost.cpu_us,
        cost.wrk_us,
        100.0 * BUDGET
    );
    for mode in &cost.modes {
        let pair = |(part, half): (f64, f64)| format!("{:.1} ± {:.1}", 100.0 * part, 100.0 * half);
        let said = stats::median(&mode.said.iter().map(|(paused, other)| paused + other).collect::<Vec<_>>());
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {:.2} | {:.1} |",
            mode.mode,
            pair(mode.rate_lost),
            pair(mode.rate_lost_raw),
            pair(mode.cpu_more),
            mode.cpu_more.0 * cost.cpu_us,
            100.0 * said
        );
    }
    let _ = writeln!(text, "\n{}.", if cost.passes() { "Passes" } else { "**Missed**" });
    text.push_str("\nProfiles of all targets in case 1's server, and the widest half interval at 50 % of their first five targets:\n\n");
    for (seconds, half) in &cost.precision {
        let half = half.map_or("fewer than five targets".to_owned(), |half| format!("± {:.2} pp", 100.0 * half));
        let _ = writeln!(text, "- {seconds:.0} s: {half}");
    }
    let known = cost.known_after().map_or("not reached".to_owned(), |seconds| format!("{seconds:.0} s"));
    let _ = writeln!(text, "\nKnown to ± 1 pp after: {known}.");
    text
}

/// Draws predictions against the truth: ours with their intervals, Coz's as rings. Exact predictions are on the
/// diagonal, passing ones in the band.
pub fn picture(rows: &[VerdictRow]) -> Option<String> {
    let points = rows.iter().filter_map(|row| Some((row, row.answer?)));
    let points: Vec<(&VerdictRow, PredictedGain)> = points.filter(|(_, answer)| answer.gain.is_finite()).collect();
    let coz = rows.iter().filter_map(|row| Some((row.truth.gain, row.coz.as_ref()?.gain?)));
    let coz: Vec<(f64, f64)> = coz.filter(|(_, gain)| gain.is_finite()).collect();
    if points.is_empty() && coz.is_empty() {
        return None;
    }
    let all = points.iter().flat_map(|(row, answer)| [row.truth.gain, answer.gain]);
    let all: Vec<f64> = all.chain(coz.iter().flat_map(|&(truth, gain)| [truth, gain])).collect();
    let low = all.iter().copied().fold(0.0, f64::min).max(-0.5) - 0.05;
    let high = all.iter().copied().fold(0.0, f64::max).min(1.0) + 0.05;
    let side = SIZE - LEFT - 24.0;
    let x = |gain: f64| LEFT + (gain.clamp(low, high) - low) / (high - low) * side;
    let y = |gain: f64| TOP + (high - gain.clamp(low, high)) / (high - low) * side;
    let height = TOP + side + FOOT;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {SIZE} {height}\" width=\"{SIZE}\" height=\"{height}\" role=\"img\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\">\n\
         <style>text{{fill:#57606a}}.t{{fill:#24292f;font-weight:600;font-size:15px}}.g{{stroke:#8c959f;stroke-opacity:.35}}\
         .d{{stroke:#8c959f}}@media(prefers-color-scheme:dark){{text{{fill:#9da7b3}}.t{{fill:#e6edf3}}}}</style>\n\
         <title>Predicted gains against true ones</title>\n<text class=\"t\" x=\"12\" y=\"22\">Predicted gain by true gain, %</text>\n\
         <circle cx=\"18\" cy=\"40\" r=\"4\" fill=\"{OURS}\"/><text x=\"28\" y=\"44\">Causeway, 95 % interval</text>\n"
    );
    if !coz.is_empty() {
        let _ = writeln!(
            svg,
            "<circle cx=\"198\" cy=\"40\" r=\"4\" fill=\"none\" stroke=\"{COZ}\" stroke-width=\"2\"/><text x=\"208\" y=\"44\">Coz</text>"
        );
    }
    // The band of passing predictions.
    let steps: Vec<f64> = (0..=60).map(|step| low + (high - low) * f64::from(step) / 60.0).collect();
    let allowed = |gain: f64| (0.1 * gain.abs()).max(0.02);
    let upper = steps.iter().map(|&gain| format!("{:.1},{:.1}", x(gain), y(gain + allowed(gain))));
    let lower = steps.iter().rev().map(|&gain| format!("{:.1},{:.1}", x(gain), y(gain - allowed(gain))));
    let band: Vec<String> = upper.chain(lower).collect();
    let _ = writeln!(svg, "<polygon points=\"{}\" fill=\"#3fb950\" fill-opacity=\".16\"/>", band.join(" "));
    for tenth in -5..=10 {
        let gain = f64::from(tenth) / 10.0;
        if gain < low || gain > high {
            continue;
        }
        let (label, at, across) = (tenth * 10, x(gain), y(gain));
        let (right, bottom) = (LEFT + side, TOP + side);
        let _ = writeln!(
            svg,
            "<line class=\"g\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/><line class=\"g\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{across:.1}\" y2=\"{across:.1}\"/>\
             <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            bottom + 18.0,
            LEFT - 8.0,
            across + 4.0
        );
    }
    let _ = writeln!(
        svg,
        "<line class=\"d\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>\
         <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">measured</text>",
        x(low),
        y(low),
        x(high),
        y(high),
        LEFT + side / 2.0,
        TOP + side + 40.0
    );
    for (truth, gain) in coz {
        let _ = writeln!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4.5\" fill=\"none\" stroke=\"{COZ}\" stroke-width=\"2\"/>",
            x(truth),
            y(gain)
        );
    }
    for (row, answer) in points {
        let at = x(row.truth.gain);
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"{OURS}\" stroke-width=\"1.5\"/>\
             <circle cx=\"{at:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"{OURS}\"><title>{} at {} %</title></circle>",
            y(answer.low),
            y(answer.high),
            y(answer.gain),
            row.case,
            row.truth.speedup
        );
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

#[cfg(test)]
mod tests {
    use super::super::coz::CozResult;
    use super::super::truth::Truth;
    use super::*;

    fn row(gain: f64, answer: Option<f64>, coz: Option<f64>) -> VerdictRow {
        let truth = Truth {
            quantity: Quantity::Throughput,
            speedup: 50,
            gain,
            half: 0.01,
            baseline_ns: 1e5,
            pairs: vec![gain],
            disturbed: 0.0,
        };
        VerdictRow {
            case: "1".to_owned(),
            title: "one".to_owned(),
            share: Some(0.5),
            truth,
            answer: answer.map(|gain| PredictedGain { gain, low: gain - 0.01, high: gain + 0.01 }),
            mode: answer.map(|_| GainSource::Screened),
            confirmed: None,
            coz: coz.map(|gain| CozResult { speedup: 50, gain: Some(gain), why: None, half: 0.01 }),
            covered: (usize::from(answer.is_some()), 1),
            faults: if answer.is_some() { Vec::new() } else { vec!["no answer: none".to_owned()] },
        }
    }

    #[test]
    fn a_picture_has_a_point_for_each_answer_and_a_ring_for_each_of_cozs() {
        let rows = [row(0.2, Some(0.21), Some(0.4)), row(0.5, Some(-0.9), None), row(0.1, None, None)];
        let svg = picture(&rows).unwrap();
        // Two points and one in the legend; one ring and one in the legend.
        assert_eq!(svg.matches(&format!("fill=\"{OURS}\"")).count(), 2 + 1);
        assert_eq!(svg.matches(&format!("stroke=\"{COZ}\"")).count(), 1 + 1);
        assert!(!svg.contains("NaN"), "{svg}");
        assert_eq!(picture(&rows[2..]), None);
    }

    #[test]
    fn a_row_says_what_was_predicted_and_whether_it_passes() {
        let text = table(&[row(0.2, Some(0.21), Some(0.4)), row(0.1, None, None)]);
        assert!(text.contains("| 20.0 ± 1.0 | 21.0 ± 1.0 | 1 of 1 | replay | – | 40.0 ± 1.0 | passes |"), "{text}");
        assert!(text.contains("| 10.0 ± 1.0 | – | 0 of 1 | – | – | – | **missed** |"), "{text}");
    }
}
