//! Formats figures as markdown tables.

use std::fmt::Write;

use super::{Metric, MetricKind, Record, Table, chart};
use crate::machine::Machine;

/// Returns the heading of a record: the bench, date, commit and machine.
pub fn heading(bench: &str, date: &str, commit: &str, machine: &Machine, arguments: &str) -> String {
    let Machine { cpu, cores, memory_gib, kernel } = machine;
    let arguments = if arguments.is_empty() { "none" } else { arguments };
    format!(
        "# `./bench {bench}`, {date}, commit {commit}\n\n\
         {cpu}, {cores} cores, {memory_gib} GiB, Linux {kernel}. Arguments: {arguments}.\n\n"
    )
}

/// Formats a whole record as a page.
pub fn page(record: &Record) -> String {
    let mut page = heading(&record.bench, &record.date, &record.commit, &record.machine, &record.arguments);
    for table in &record.tables {
        let _ = write!(page, "## {}\n\n{}\n\n", table.title, table.how);
        if table.chart.is_some() {
            let _ = write!(page, "![{}]({})\n\n", table.title, chart::file(table));
        }
        page.push_str(&markdown(table));
        page.push('\n');
    }
    page.push_str("## Versions\n\n| | version |\n|---|---|\n");
    for (name, version) in &record.versions {
        let _ = writeln!(page, "| {name} | {} |", version.replace('|', "/"));
    }
    if !record.skipped.is_empty() {
        page.push_str("\n## Skipped\n\n");
        for line in &record.skipped {
            let _ = writeln!(page, "- {}", line.replace('\n', " "));
        }
    }
    page
}

/// Formats a table. A missing value is a dash; notes follow the table.
pub fn markdown(table: &Table) -> String {
    let mut columns: Vec<&Metric> = Vec::new();
    for metric in table.rows.iter().flat_map(|row| &row.metrics) {
        if columns.iter().all(|column| column.name != metric.name) {
            columns.push(metric);
        }
    }
    let mut text = String::from("| |");
    for column in &columns {
        let unit = if column.unit.is_empty() { String::new() } else { format!(", {}", column.unit) };
        let _ = write!(text, " {}{unit} |", column.name);
    }
    text.push_str("\n|---|");
    text.push_str(&"--:|".repeat(columns.len()));
    text.push('\n');
    for row in &table.rows {
        let _ = write!(text, "| {} |", row.name);
        for column in &columns {
            let cell = row.metric(&column.name).map_or_else(|| "–".to_owned(), cell);
            let _ = write!(text, " {cell} |");
        }
        text.push('\n');
    }
    for row in table.rows.iter().filter(|row| !row.notes.is_empty()) {
        let _ = write!(text, "\n{}: {}.\n", row.name, row.notes.join("; "));
    }
    text
}

/// Formats a median, with its spread if it is a ratio.
fn cell(metric: &Metric) -> String {
    match metric.kind {
        MetricKind::Paired if metric.count > 1 => format!("{:.2} ± {:.2}", metric.median, metric.spread),
        MetricKind::Paired => format!("{:.2}", metric.median),
        MetricKind::Timed | MetricKind::Counted => number(metric.median),
    }
}

/// Formats a number with three significant figures: 0.36, 4.45, 18.2, 184, 65 210.
pub fn number(value: f64) -> String {
    match value.abs() {
        _ if value.is_nan() => "–".to_owned(),
        size if size < 9.995 => format!("{value:.2}"),
        size if size < 99.95 => format!("{value:.1}"),
        size if size < 9999.5 => format!("{value:.0}"),
        _ => {
            let digits = format!("{:.0}", value.abs());
            let mut grouped = String::from(if value < 0.0 { "-" } else { "" });
            for (index, digit) in digits.chars().enumerate() {
                if index > 0 && (digits.len() - index).is_multiple_of(3) {
                    grouped.push('\u{202f}');
                }
                grouped.push(digit);
            }
            grouped
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_figures() {
        let cases = [
            (0.358, "0.36"),
            (4.449, "4.45"),
            (18.24, "18.2"),
            (183.9, "184"),
            (9999.4, "9999"),
            (65_210.4, "65\u{202f}210"),
            (1_234_567.0, "1\u{202f}234\u{202f}567"),
            (-12_345.0, "-12\u{202f}345"),
            (f64::NAN, "–"),
        ];
        for (value, want) in cases {
            assert_eq!(number(value), want);
        }
    }

    #[test]
    fn a_missing_column_is_a_dash() {
        let record = super::super::sample(vec![1.3, 1.4, 1.35]);
        let text = markdown(&record.tables[0]);
        assert!(text.starts_with("| | user, µs | system, µs | ratio |\n|---|--:|--:|--:|\n"), "{text}");
        assert!(text.contains("| limit | 0.10 | 3.00 | – |"), "{text}");
        assert!(text.contains("| hyper <1> | 1.10 | 4.10 | 1.35 ± 0.05 |"), "{text}");
        assert!(text.contains("hyper <1>: only a test."), "{text}");
    }

    #[test]
    fn the_page_says_machine_versions_and_what_was_left_out() {
        let page = page(&super::super::sample(vec![1.3]));
        for part in ["a CPU, 2 cores", "| hyper | 1.0 |", "- caddy: not there", "![Minimal](minimal.svg)"] {
            assert!(page.contains(part), "{part} in {page}");
        }
    }
}
