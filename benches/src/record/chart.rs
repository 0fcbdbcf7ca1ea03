//! Draws figures as a bar chart in SVG. The background is transparent, lines are middle grey, and the colours are
//! distinguishable on white and black and for colour-blind readers; dark mode uses lighter text.

use std::fmt::Write;

use super::table::number;
use super::{Row, Table};

const WIDTH: f64 = 760.0;
const NAMES: f64 = 170.0;
const LABELS: f64 = 150.0;
const LINE: f64 = 28.0;
const TOP: f64 = 66.0;
const COLOURS: [&str; 3] = ["#2f81f7", "#e5812b", "#8a63d2"];

/// Returns the file name of a table's chart.
pub fn file(table: &Table) -> String {
    format!("{}.svg", table.name)
}

/// Returns a table's chart, if it has one and any row has its metrics.
pub fn svg(table: &Table) -> Option<String> {
    let chart = table.chart.as_ref()?;
    let rows: Vec<&Row> =
        table.rows.iter().filter(|row| chart.bars.iter().any(|bar| row.metric(bar).is_some())).collect();
    let length = |row: &Row| chart.bars.iter().filter_map(|bar| row.metric(bar)).map(|bar| bar.median).sum::<f64>();
    let longest = rows.iter().map(|row| length(row)).fold(0.0, f64::max);
    if longest <= 0.0 {
        return None;
    }
    let unit = rows.iter().find_map(|row| row.metric(&chart.bars[0])).map_or("", |metric| &metric.unit);
    let height = TOP + LINE * rows.len() as f64 + 12.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
         <style>text{{fill:#57606a}}.t{{fill:#24292f;font-weight:600;font-size:15px}}.n{{fill:#24292f}}line{{stroke:#8c959f}}\
         @media(prefers-color-scheme:dark){{text{{fill:#9da7b3}}.t,.n{{fill:#e6edf3}}}}</style>\n\
         <title>{title}</title>\n<text class=\"t\" x=\"12\" y=\"24\">{title}</text>\n",
        title = escape(&table.title)
    );
    let mut x = 12.0;
    for (bar, colour) in chart.bars.iter().zip(COLOURS) {
        let legend = if unit.is_empty() { bar.clone() } else { format!("{bar}, {unit}") };
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"38\" width=\"11\" height=\"11\" rx=\"2\" fill=\"{colour}\"/><text x=\"{}\" y=\"48\">{}</text>",
            x + 16.0,
            escape(&legend)
        );
        x += 40.0 + 7.5 * legend.chars().count() as f64;
    }
    let scale = (WIDTH - NAMES - LABELS) / longest;
    for (index, row) in rows.iter().enumerate() {
        let y = TOP + LINE * index as f64;
        let _ = writeln!(
            svg,
            "<text class=\"n\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            NAMES - 10.0,
            y + 15.0,
            escape(&row.name)
        );
        let mut x = NAMES;
        for (bar, colour) in chart.bars.iter().zip(COLOURS) {
            let Some(metric) = row.metric(bar) else { continue };
            let width = metric.median.max(0.0) * scale;
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{}\" fill=\"{colour}\"/>",
                LINE - 8.0
            );
            x += width;
        }
        let mut label = number(length(row));
        if let Some(metric) = chart.label.as_ref().and_then(|label| row.metric(label)) {
            let _ = write!(label, " (× {})", number(metric.median));
        }
        let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{}\">{}</text>", x + 8.0, y + 15.0, escape(&label));
    }
    let _ =
        write!(svg, "<line x1=\"{NAMES}\" x2=\"{NAMES}\" y1=\"{}\" y2=\"{}\"/>\n</svg>\n", TOP - 6.0, height - 10.0);
    Some(svg)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sample;

    #[test]
    fn every_row_has_its_bars_and_its_name_is_escaped() {
        let svg = svg(&sample(vec![1.35]).tables[0]).unwrap();
        assert!(svg.contains("hyper &lt;1&gt;") && !svg.contains("<1>"), "{svg}");
        // Two legend squares, and two bars for each of two rows.
        assert_eq!(svg.matches("<rect").count(), 2 + 2 * 2);
        assert!(svg.contains("5.20 (× 1.35)"), "{svg}");
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }

    #[test]
    fn the_longest_bar_reaches_the_labels() {
        let mut table = sample(vec![1.35]).tables.remove(0);
        table.chart.as_mut().unwrap().bars.truncate(1);
        let svg = svg(&table).unwrap();
        assert!(svg.contains(&format!("width=\"{:.1}\"", WIDTH - NAMES - LABELS)), "{svg}");
    }

    #[test]
    fn a_table_without_figures_has_no_chart() {
        let mut table = sample(vec![1.35]).tables.remove(0);
        table.rows.clear();
        assert_eq!(svg(&table), None);
    }
}
