//! Targets for Causeway's figures, noted in the tables.

use crate::record::Row;

/// An upper bound of a figure.
pub struct UpperBound {
    /// Names of the tables.
    pub tables: &'static [&'static str],
    /// The row's name.
    pub row: &'static str,
    /// The column's name; `None` for the ratio.
    pub column: Option<&'static str>,
    /// The upper bound.
    pub most: f64,
}

/// Notes each target in its row, and whether it was met. `ratio` is the name of the ratio's column.
pub fn note(rows: &mut [Row], targets: &[UpperBound], table: &str, ratio: &str) {
    for target in targets.iter().filter(|target| target.tables.contains(&table)) {
        if let Some(row) = rows.iter_mut().find(|row| row.name == target.row) {
            note_row(row, target, ratio);
        }
    }
}

/// Notes a target in a row, if the row has the figure.
pub fn note_row(row: &mut Row, target: &UpperBound, ratio: &str) {
    let column = target.column.unwrap_or(ratio);
    let Some(metric) = row.metric(column) else { return };
    let met = if metric.median <= target.most { "met" } else { "missed" };
    let unit = if metric.unit.is_empty() { String::new() } else { format!(" {}", metric.unit) };
    let note = format!("{column} {:.2}{unit}, wanted at most {}{unit}: {met}", metric.median, target.most);
    row.notes.push(note);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Metric;

    #[test]
    fn a_target_is_noted_where_its_figure_is() {
        const TARGETS: &[UpperBound] = &[
            UpperBound { tables: &["a"], row: "causeway", column: None, most: 1.8 },
            UpperBound { tables: &["a", "b"], row: "causeway", column: Some("user"), most: 1.0 },
            UpperBound { tables: &["a"], row: "nobody", column: None, most: 1.0 },
        ];
        let mut row = Row::new("causeway");
        row.metrics = vec![Metric::ratio("ratio", vec![1.7]), Metric::time("user", "µs", vec![1.25])];
        let mut rows = [row];
        note(&mut rows, TARGETS, "a", "ratio");
        assert_eq!(rows[0].notes, ["ratio 1.70, wanted at most 1.8: met", "user 1.25 µs, wanted at most 1 µs: missed"]);
        note(&mut rows, TARGETS, "c", "ratio");
        assert_eq!(rows[0].notes.len(), 2);
    }
}
