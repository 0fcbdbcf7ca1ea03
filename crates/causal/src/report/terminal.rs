//! A report as a table for a terminal.

use std::fmt::Write as _;

use super::words::{digits, percent, places};
use super::{CurvePoint, GainSource, Limit, LoadKind, Quantity, Reason, Report, TargetReport, at};
use crate::target::{FoldReason, TargetKind};

/// The speed-ups that have a column.
const COLUMNS: [f64; 2] = [0.2, 0.5];
/// Bound on the rows; further targets are only counted. Pages and JSON have all.
const ROWS_MAX: usize = 24;
/// Smallest width of the name column, in characters.
const NAME_MIN: usize = 16;
/// Bound on the targets named in one note; further ones are only counted.
const NAMED_MAX: usize = 3;

impl TargetKind {
    /// The kind as a word, as in the table.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Line => "line",
            Self::Inlined => "inlined",
            Self::Path => "path",
            Self::Span => "span",
            Self::Upstream => "upstream",
        }
    }
}

impl GainSource {
    /// The mode as a word, as in the table.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Screened => "screened",
            Self::Confirmed => "confirmed",
        }
    }
}

impl Report {
    /// The table of targets, then measurements and notes. Lines have at most `width` columns unless names are too long.
    /// Ends with a newline.
    #[must_use]
    pub fn to_terminal(&self, width: usize) -> String {
        let mut out = String::new();
        // Without targets a table of heads would only hide the notes that say why.
        if self.shown().next().is_some() {
            self.write_table(&mut out, width);
            out.push('\n');
        }
        self.write_folds(&mut out);
        if self.shown().any(|target| self.counted(target).0 == Quantity::Latency) {
            let _ = writeln!(out, "The gains are in latency: the time of {} from begin to end.", self.speech.unit);
        }
        out.push_str(&self.facts());
        out
    }

    /// The measurements, the profile's cost, and the notes, in lines.
    pub(super) fn facts(&self) -> String {
        let mut out = String::new();
        for progress in &self.progress {
            let _ = writeln!(
                out,
                "{}: {} a second,{} {} counted",
                plain(&progress.name),
                count(progress.baseline_rate),
                progress.baseline_ns.map_or(String::new(), |ns| format!(" {} each,", time(ns))),
                progress.count,
            );
        }
        let load = match self.load.kind {
            LoadKind::Closed if self.load.elasticity.is_none() => "is unknown, and taken as closed-loop",
            LoadKind::Closed => "is closed-loop: it sends more when it is answered sooner",
            // Before the kinds: a generator at its limit looks like an open loop, but is none.
            _ if self.load.limit == Some(Limit::Generator) => {
                "does not follow the program: most likely its generator sends as fast as it can"
            }
            LoadKind::Limited => "is open-loop: it keeps its own rate, so only latency can improve",
            LoadKind::Mixed => "is partly open-loop: it follows the program only in part",
        };
        let _ =
            writeln!(out, "The load {load}; the busiest thread works {} of the time.", percent(self.load.utilisation));
        let cost = &self.perturbation;
        let _ = writeln!(
            out,
            "The profile took {} of the time in pauses, {} in recording and {} in its own threads, of {} allowed.",
            percent(cost.paused),
            percent(cost.recording),
            percent(cost.own),
            percent(cost.budget),
        );
        for part in &self.parts {
            let rate = part.progress.first().map_or(0.0, |progress| progress.baseline_rate);
            let _ = writeln!(out, "{}: {} a second", plain(&part.program), count(rate));
        }
        self.write_notes(&mut out);
        out
    }

    /// One line for each reason text, with the first few of its targets.
    fn write_notes(&self, out: &mut String) {
        let mut notes: Vec<(&str, Vec<String>)> = Vec::new();
        for Reason { target, text, .. } in &self.reasons {
            let about = (!target.is_empty()).then(|| plain(target));
            // Equal texts are merged, but a note about the whole program stays separate from those about targets.
            match notes.iter_mut().find(|(existing, targets)| existing == text && targets.is_empty() == about.is_none())
            {
                Some((_, targets)) => targets.extend(about),
                None => notes.push((text, Vec::from_iter(about))),
            }
        }
        for (text, targets) in notes {
            let mut about = first_few(&targets);
            if !about.is_empty() {
                about.push_str(": ");
            }
            let _ = writeln!(out, "Note: {about}{}", plain(text));
        }
    }

    /// The folded targets by reason; JSON has their curves.
    fn write_folds(&self, out: &mut String) {
        let mut groups: Vec<(FoldReason, Vec<String>)> = Vec::new();
        for (target, folded) in self.subsumed() {
            let name = plain(&target.name);
            match groups.iter_mut().find(|(why, _)| *why == folded.why) {
                Some((_, names)) => names.push(name),
                None => groups.push((folded.why, vec![name])),
            }
        }
        for (why, names) in groups {
            let _ = writeln!(out, "Left out, {}: {}", why.text(), first_few(&names));
        }
    }

    /// Writes the table of targets, at most `width` columns wide unless names are too long.
    fn write_table(&self, out: &mut String, width: usize) {
        let heads: Vec<String> = COLUMNS
            .iter()
            .map(|column| format!("{} faster", percent(*column)))
            .chain(["share", "samples", "mode"].map(str::to_owned))
            .collect();
        let shown: Vec<&TargetReport> = self.shown().take(ROWS_MAX).collect();
        let rows: Vec<Vec<String>> = shown.iter().map(|target| self.cells(target)).collect();
        // Measured in characters and not in bytes, since names and signs are not all ASCII.
        let widths: Vec<usize> = (0..heads.len())
            .map(|column| rows.iter().chain([&heads]).map(|row| row[column].chars().count()).max().unwrap_or(0))
            .collect();
        let taken: usize = widths.iter().map(|width| width + 2).sum();
        // Names get the remaining width.
        let kind_width = shown.iter().map(|target| target.kind.word().len()).max().unwrap_or(0);
        let names: Vec<String> = shown.iter().map(|target| plain(&target.name)).collect();
        let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max("target".len());
        let room = width.saturating_sub(taken + kind_width + 2).max(NAME_MIN).min(longest);
        let mut line = |kind: &str, name: &str, cells: &[String]| {
            let mut text = format!("{name:room$}  {kind:kind_width$}");
            for (cell, width) in cells.iter().zip(&widths) {
                let _ = write!(text, "  {cell:>width$}");
            }
            // No spaces at the ends of lines: reports are pasted into issues and compared.
            out.push_str(text.trim_end());
            out.push('\n');
        };
        line("", "target", &heads);
        for ((target, name), row) in shown.iter().zip(&names).zip(&rows) {
            line(target.kind.word(), &shortened(name, room), row);
        }
        // `shown` is a part of `self.shown()`, so the difference cannot be negative.
        if let more @ 1.. = self.shown().count() - shown.len() {
            let _ = writeln!(out, "and {more} more");
        }
    }

    /// The cells of a target's row after its name and kind, in the order of the columns.
    fn cells(&self, target: &TargetReport) -> Vec<String> {
        let (_, curve) = self.counted(target);
        let cell = |column: &f64| at(curve, *column).map_or("–".to_owned(), interval);
        let mut cells: Vec<String> = COLUMNS.iter().map(cell).collect();
        cells.extend([percent(target.share), target.samples.to_string(), target.mode.word().to_owned()]);
        cells
    }
}

/// The first [`NAMED_MAX`] names, and how many more there are.
fn first_few(names: &[String]) -> String {
    let mut text = names[..names.len().min(NAMED_MAX)].join(", ");
    if let more @ 1.. = names.len().saturating_sub(NAMED_MAX) {
        let _ = write!(text, " and {more} more");
    }
    text
}

/// A gain with its interval, "+6.4 ± 0.8 %", or with both ends if one is where all time is saved, or "?" if the
/// interval is too wide.
pub(super) fn interval(point: &CurvePoint) -> String {
    let Some(half) = point.half() else { return "?".into() };
    let places = places(point.gain);
    // A smaller gain is printed as 0.0, and `+0.0` would suggest one.
    let sign = if point.gain >= 0.0005 { "+" } else { "" };
    let gain = digits(point.gain, places);
    // A symmetric interval would promise more than all of the time.
    if point.is_cut() {
        return format!("{sign}{gain} ({} to {}) %", digits(point.low, places), digits(point.high, places));
    }
    format!("{sign}{gain} ± {} %", digits(half, places.max(1)))
}

/// A rate or a number with three digits.
fn count(number: f64) -> String {
    match number {
        number if number >= 1e7 => format!("{:.1} M", number / 1e6),
        number if number >= 1e4 => format!("{:.1} k", number / 1e3),
        number if number >= 100.0 => format!("{number:.0}"),
        number => format!("{number:.1}"),
    }
}

/// A duration in a suitable unit.
fn time(ns: f64) -> String {
    match ns {
        ns if ns >= 1e9 => format!("{:.2} s", ns / 1e9),
        ns if ns >= 1e6 => format!("{:.2} ms", ns / 1e6),
        ns if ns >= 1e3 => format!("{:.1} µs", ns / 1e3),
        ns => format!("{ns:.0} ns"),
    }
}

/// Escapes control characters, so that a name cannot send commands to the terminal.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_control() {
            plain.extend(char.escape_default());
        } else {
            plain.push(char);
        }
    }
    plain
}

/// Shortens a name in the middle; keeps more of its end, since that is where names differ.
fn shortened(name: &str, room: usize) -> String {
    let long = name.chars().count();
    if long <= room {
        return name.to_owned();
    }
    // One character is for the ellipsis.
    let front = (room - 1) / 3;
    let back = room - 1 - front;
    name.chars().take(front).chain(['…']).chain(name.chars().skip(long - back)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::sample::report;
    use super::*;
    use crate::target::Folded;

    #[test]
    fn a_table() {
        let text = report().to_terminal(100);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "target                                      20 % faster   50 % faster  share  samples       mode"
        );
        assert_eq!(
            lines[1],
            "tls write                        span      +6.4 ± 0.8 %   +16 ± 0.8 %   11 %      816  confirmed"
        );
        assert!(text.contains("request: 41.2 k a second, 1.51 ms each, 1236915 counted\n"));
        assert!(text.contains("Note: src/encode.rs:112: the interval is"));
        assert!(lines.iter().take(6).all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn folded_targets_are_below_the_table() {
        let mut report = report();
        report.load.limit = Some(Limit::Generator);
        report.load.kind = LoadKind::Limited;
        for at in [0, 2] {
            report.targets[at].folded = Some(Folded { why: FoldReason::Wrapper, into: String::new() });
        }
        let text = report.to_terminal(100);
        assert!(!text.contains("tls write  ") && !text.contains("route /api/*  "), "{text}");
        let line = "\nLeft out, a library's wrapper around the program's code: tls write, route /api/*\n";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("\nThe load does not follow the program: most likely its generator"), "{text}");
    }

    #[test]
    fn equal_notes_of_several_targets_are_one_line() {
        let mut report = report();
        let reason = report.reasons[0].clone();
        let of = |target: &str, text: &str| Reason { target: target.into(), text: text.into(), ..reason.clone() };
        report.reasons = ["a", "b", "c", "d", "e"].map(|target| of(target, "no budget")).into();
        report.reasons.extend([of("", "no load"), of("b", "too short"), of("f", "too short"), of("", "no budget")]);
        let text = report.to_terminal(100);
        let notes: Vec<&str> = text.lines().filter(|line| line.starts_with("Note: ")).collect();
        let want = ["Note: a, b, c and 2 more: no budget", "Note: no load", "Note: b, f: too short", "Note: no budget"];
        assert_eq!(notes, want);
    }

    #[test]
    fn long_names_and_narrow_terminals() {
        let mut report = report();
        report.targets[0].name =
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa::bbbbbbbbbbbbbbbbbbbbb::ccccccccccccccccccccc\u{1b}[31m".into();
        let text = report.to_terminal(80);
        let line = text.lines().nth(1).unwrap();
        assert!(line.starts_with("aaaaa…") && line.contains("\\u{1b}[31m  span"), "{line}");
        assert!(!text.contains('\u{1b}'));
        assert!(report.to_terminal(0).lines().nth(1).unwrap().contains('…'));
    }

    #[test]
    fn under_an_open_load() {
        let mut report = report();
        report.load.kind = LoadKind::Limited;
        let text = report.to_terminal(100);
        assert!(text.contains("span      +7.7 ± 0.8 %"), "{text}");
        assert!(text.contains("\nThe gains are in latency: the time of a request from begin to end.\n"), "{text}");
    }

    #[test]
    fn an_unbounded_interval() {
        let wide = CurvePoint { speedup: 0.5, gain: 0.1, low: -10.0, high: 1.0, expected: 0.0 };
        assert_eq!(interval(&wide), "?");
        assert_eq!(interval(&CurvePoint { low: 0.0, high: 0.2, ..wide }), "+10 ± 10.0 %");
        // A gain is a part of the time, so no interval reaches beyond 100 %.
        let cut = CurvePoint { gain: 0.363, low: -0.37, high: 1.0, ..wide };
        assert_eq!(interval(&cut), "+36 (−37 to 100) %");
    }

    #[test]
    fn an_empty_report() {
        let text = Report::default().to_terminal(80);
        assert!(text.starts_with("The load is unknown, and taken as closed-loop; "), "{text}");
        let mut measured = Report::default();
        measured.load.elasticity = Some(0.9);
        let text = measured.to_terminal(80);
        assert!(text.starts_with("The load is closed-loop: "), "{text}");
    }
}
