//! Compares two records. A figure has changed when the difference exceeds its own noise in both records, and the drift
//! that is typical for such figures.

use std::fmt::Write;

use super::table::number;
use super::{Better, Metric, MetricKind, Record};

/// Number of standard errors of the difference that count as significant, with hundreds of figures compared.
const ERRORS: f64 = 3.0;

/// Returns the typical relative drift between two runs of unchanged code. Paired ratios cancel the machine's drift (±10
/// % here); plain times do not.
fn floor(kind: MetricKind) -> f64 {
    match kind {
        MetricKind::Paired => 0.03,
        MetricKind::Timed => 0.10,
        MetricKind::Counted => 0.02,
    }
}

/// The change of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// Within the noise.
    No,
    /// An improvement beyond the noise.
    Better,
    /// A regression beyond the noise.
    Worse,
}

/// Judges one figure in two records.
pub fn judge(before: &Metric, after: &Metric) -> Moved {
    let moved = after.median - before.median;
    let noise = ERRORS * before.spread.hypot(after.spread);
    if moved.is_nan() || moved.abs() <= noise.max(floor(before.kind) * before.median.abs()) {
        return Moved::No;
    }
    match before.better {
        Better::Lower if moved < 0.0 => Moved::Better,
        Better::Higher if moved > 0.0 => Moved::Better,
        Better::Lower | Better::Higher => Moved::Worse,
    }
}

/// Formats the comparison as markdown: the changes, then rows that could not be compared.
pub fn page(before: &Record, after: &Record) -> String {
    let mut page =
        format!("# {}: {} {} → {} {}\n\n", after.bench, before.date, before.commit, after.date, after.commit);
    if before.machine != after.machine {
        let _ = write!(
            page,
            "**The machines differ** ({:?}; {:?}): only ratios are comparable.\n\n",
            before.machine, after.machine
        );
    }
    let (mut moved, mut compared, mut alone, mut disturbed) = (String::new(), 0, Vec::new(), Vec::new());
    for table in &after.tables {
        let earlier = before.tables.iter().find(|earlier| earlier.name == table.name);
        for row in &table.rows {
            let Some(earlier) =
                earlier.and_then(|earlier| earlier.rows.iter().find(|earlier| earlier.name == row.name))
            else {
                alone.push(format!("{} / {}", table.name, row.name));
                continue;
            };
            if row.is_disturbed() || earlier.is_disturbed() {
                disturbed.push(format!("{} / {}", table.name, row.name));
            }
            for metric in &row.metrics {
                let Some(earlier) = earlier.metric(&metric.name) else { continue };
                compared += 1;
                let word = match judge(earlier, metric) {
                    Moved::No => continue,
                    Moved::Better => "better",
                    Moved::Worse => "**worse**",
                };
                let _ = writeln!(
                    moved,
                    "| {} | {} | {} | {} ± {} | {} ± {} | {:+.1} % | {word} |",
                    table.name,
                    row.name,
                    metric.name,
                    number(earlier.median),
                    number(earlier.spread),
                    number(metric.median),
                    number(metric.spread),
                    100.0 * (metric.median / earlier.median - 1.0),
                );
            }
        }
    }
    if moved.is_empty() {
        let _ = writeln!(page, "No figure changed beyond the noise ({compared} figures compared).");
    } else {
        page.push_str("| scenario | peer | figure | before | after | | |\n|---|---|---|--:|--:|--:|---|\n");
        page.push_str(&moved);
        let _ = write!(page, "\n{compared} figures compared; all others are within the noise.\n");
    }
    if !disturbed.is_empty() {
        let _ = write!(
            page,
            "\nDisturbed by other processes in one of the two, so measure again: {}.\n",
            disturbed.join(", ")
        );
    }
    if !alone.is_empty() {
        let _ = write!(page, "\nOnly in the later record: {}.\n", alone.join(", "));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sample;

    #[test]
    fn figures_are_judged_by_their_noise_and_kind() {
        let steady = |median: f64| vec![median, median * 1.001, median * 0.999];
        let cases = [
            (
                "a ratio beyond its floor",
                Metric::ratio("x", steady(1.3)),
                Metric::ratio("x", steady(1.4)),
                Moved::Worse,
            ),
            ("a ratio within it", Metric::ratio("x", steady(1.3)), Metric::ratio("x", steady(1.32)), Moved::No),
            (
                "a time drifts more",
                Metric::time("x", "µs", steady(1.3)),
                Metric::time("x", "µs", steady(1.4)),
                Moved::No,
            ),
            ("fewer calls", Metric::count("x", "", steady(2.2)), Metric::count("x", "", steady(2.0)), Moved::Better),
            ("a lower rate", Metric::rate("x", steady(100.0)), Metric::rate("x", steady(80.0)), Moved::Worse),
            (
                "noise as wide as the step",
                Metric::ratio("x", vec![1.0, 1.3, 1.6]),
                Metric::ratio("x", vec![1.2, 1.6, 2.0]),
                Moved::No,
            ),
            ("no figure", Metric::ratio("x", vec![]), Metric::ratio("x", steady(1.0)), Moved::No),
        ];
        for (why, before, after, want) in cases {
            assert_eq!(judge(&before, &after), want, "{why}");
        }
    }

    #[test]
    fn the_page_names_what_moved_and_what_is_new() {
        let before = sample(vec![1.3, 1.31, 1.29]);
        let mut after = sample(vec![1.6, 1.61, 1.59]);
        after.tables[0].rows[0].name = "newcomer".to_owned();
        let text = page(&before, &after);
        assert!(
            text.contains("| minimal | hyper <1> | ratio | 1.30 ± 0.01 | 1.60 ± 0.01 | +23.1 % | **worse** |"),
            "{text}"
        );
        assert!(text.contains("Only in the later record: minimal / newcomer"), "{text}");
        let same = page(&before, &before);
        assert!(same.contains("No figure changed") && !same.contains("Disturbed"), "{same}");
        after.tables[0].rows[1].note_disturbed(12.3);
        assert!(page(&before, &after).contains("measure again: minimal / hyper <1>"));
    }
}
