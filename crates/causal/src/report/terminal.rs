//! A report as a table for a terminal.

use std::fmt::Write as _;

use super::words::{digits, percent, places};
use super::{CurvePoint, LoadKind, Measure, Mode, Reason, Report, TargetReport, at};
use crate::target::TargetKind;

/// The speed-ups that have a column.
const COLUMNS: [f64; 2] = [0.2, 0.5];
/// More rows than this are counted only; pages and programs get all.
const ROWS_MAX: usize = 24;
/// The narrowest that a name's column gets.
const NAME_MIN: usize = 16;
/// More targets than this are counted only, where a note is of several.
const NAMED_MAX: usize = 3;

impl TargetKind {
    /// In a word.
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

impl Mode {
    /// In a word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::A => "screened",
            Self::B => "confirmed",
        }
    }
}

impl Report {
    /// A table of the targets, and below it what was measured and what is missing; lines of at most `width` columns where names
    /// allow it. It ends in a line's end.
    #[must_use]
    pub fn to_terminal(&self, width: usize) -> String {
        let mut out = String::new();
        if !self.targets.is_empty() {
            self.table(&mut out, width);
            out.push('\n');
        }
        if self.targets.iter().any(|target| self.counted(target).0 == Measure::Latency) {
            let _ = writeln!(out, "The gains are of the time that {} takes from begin to end.", self.speech.unit);
        }
        out.push_str(&self.facts());
        out
    }

    /// What was measured, what it took, and what is missing, in lines.
    pub(super) fn facts(&self) -> String {
        let mut out = String::new();
        for progress in &self.progress {
            let _ = writeln!(
                out,
                "{}: {} a second, {} each, {} seen",
                plain(&progress.name),
                count(progress.baseline_rate),
                time(progress.baseline_ns),
                progress.count,
            );
        }
        let load = match self.load.kind {
            LoadKind::Closed => "asks for more when it is answered sooner",
            LoadKind::Limited => "keeps its own pace, so that only times can get shorter",
            LoadKind::Mixed => "partly keeps its own pace",
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
        self.notes(&mut out);
        out
    }

    /// A line for each reason; what holds for several targets is said once, with the first few of them.
    fn notes(&self, out: &mut String) {
        let mut notes: Vec<(&str, Vec<String>)> = Vec::new();
        for Reason { target, text, .. } in &self.reasons {
            let about = (!target.is_empty()).then(|| plain(target));
            match notes.iter_mut().find(|(said, targets)| said == text && targets.is_empty() == about.is_none()) {
                Some((_, targets)) => targets.extend(about),
                None => notes.push((text, Vec::from_iter(about))),
            }
        }
        for (text, targets) in notes {
            let mut about = targets[..targets.len().min(NAMED_MAX)].join(", ");
            if let more @ 1.. = targets.len().saturating_sub(NAMED_MAX) {
                let _ = write!(about, " and {more} more");
            }
            if !about.is_empty() {
                about.push_str(": ");
            }
            let _ = writeln!(out, "Note: {about}{}", plain(text));
        }
    }

    fn table(&self, out: &mut String, width: usize) {
        let heads: Vec<String> = COLUMNS
            .iter()
            .map(|column| format!("{} faster", percent(*column)))
            .chain(["share", "samples", "mode"].map(str::to_owned))
            .collect();
        let shown = &self.targets[..self.targets.len().min(ROWS_MAX)];
        let rows: Vec<Vec<String>> = shown.iter().map(|target| self.cells(target)).collect();
        let widths: Vec<usize> = (0..heads.len())
            .map(|column| rows.iter().chain([&heads]).map(|row| row[column].chars().count()).max().unwrap_or(0))
            .collect();
        let taken: usize = widths.iter().map(|width| width + 2).sum();
        let kind_width = shown.iter().map(|target| target.kind.word().len()).max().unwrap_or(0);
        let names: Vec<String> = shown.iter().map(|target| plain(&target.name)).collect();
        let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max("target".len());
        let room = width.saturating_sub(taken + kind_width + 2).max(NAME_MIN).min(longest);
        let mut line = |kind: &str, name: &str, cells: &[String]| {
            let mut text = format!("{name:room$}  {kind:kind_width$}");
            for (cell, width) in cells.iter().zip(&widths) {
                let _ = write!(text, "  {cell:>width$}");
            }
            out.push_str(text.trim_end());
            out.push('\n');
        };
        line("", "target", &heads);
        for ((target, name), row) in shown.iter().zip(&names).zip(&rows) {
            line(target.kind.word(), &shortened(name, room), row);
        }
        if shown.len() < self.targets.len() {
            let _ = writeln!(out, "and {} more", self.targets.len() - shown.len());
        }
    }

    fn cells(&self, target: &TargetReport) -> Vec<String> {
        let (_, curve) = self.counted(target);
        let cell = |column: &f64| at(curve, *column).map_or("–".to_owned(), interval);
        let mut cells: Vec<String> = COLUMNS.iter().map(cell).collect();
        cells.extend([percent(target.share), target.samples.to_string(), target.mode.word().to_owned()]);
        cells
    }
}

/// "+6.4 ± 0.8 %", or "?".
pub(super) fn interval(point: &CurvePoint) -> String {
    let Some(half) = point.half() else { return "?".into() };
    let places = places(point.gain);
    let sign = if point.gain >= 0.0005 { "+" } else { "" };
    format!("{sign}{} ± {} %", digits(point.gain, places), digits(half, places.max(1)))
}

/// A rate or a number of things, with three digits.
fn count(number: f64) -> String {
    match number {
        number if number >= 1e7 => format!("{:.1} M", number / 1e6),
        number if number >= 1e4 => format!("{:.1} k", number / 1e3),
        number if number >= 100.0 => format!("{number:.0}"),
        number => format!("{number:.1}"),
    }
}

/// A time in its own unit.
fn time(ns: f64) -> String {
    match ns {
        ns if ns >= 1e9 => format!("{:.2} s", ns / 1e9),
        ns if ns >= 1e6 => format!("{:.2} ms", ns / 1e6),
        ns if ns >= 1e3 => format!("{:.1} µs", ns / 1e3),
        ns => format!("{ns:.0} ns"),
    }
}

/// Nothing that a terminal would take for a command.
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

/// The beginning and, since that is where names differ, more of the end.
fn shortened(name: &str, room: usize) -> String {
    let long = name.chars().count();
    if long <= room {
        return name.to_owned();
    }
    let front = (room - 1) / 3;
    let back = room - 1 - front;
    name.chars().take(front).chain(['…']).chain(name.chars().skip(long - back)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::sample::report;
    use super::*;

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
        assert!(text.contains("request: 41.2 k a second, 1.51 ms each, 1236915 seen\n"));
        assert!(text.contains("Note: src/encode.rs:112: the interval is"));
        assert!(lines.iter().take(6).all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn what_holds_for_several_targets_is_said_once() {
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
    fn under_a_load_that_keeps_its_pace() {
        let mut report = report();
        report.load.kind = LoadKind::Limited;
        let text = report.to_terminal(100);
        assert!(text.contains("span      +7.7 ± 0.8 %"), "{text}");
        assert!(text.contains("\nThe gains are of the time that a request takes from begin to end.\n"), "{text}");
    }

    #[test]
    fn nothing_is_known() {
        let wide = CurvePoint { speedup: 0.5, gain: 0.1, low: -10.0, high: 1.0, expected: 0.0 };
        assert_eq!(interval(&wide), "?");
        assert_eq!(interval(&CurvePoint { low: 0.0, high: 0.2, ..wide }), "+10 ± 10.0 %");
    }

    #[test]
    fn nothing_was_seen() {
        let text = Report::default().to_terminal(80);
        assert!(text.starts_with("The load asks for more"), "{text}");
    }
}
