//! The formats of a scrape: Prometheus's text format 0.0.4, and OpenMetrics 1.0.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// A format of a scrape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Prometheus's text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// Chooses the format for the value of an `Accept` field; the text format if the field names neither.
    pub fn accepted(accept: &[u8]) -> Self {
        let accept = String::from_utf8_lossy(accept);
        let (mut best, mut quality) = (Self::Text, 0.0);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media_type = parts.next().unwrap_or_default();
            let (mut version, mut weight) = ("", 1.0);
            for (name, value) in parts.filter_map(|part| part.split_once('=')) {
                match name.trim() {
                    "version" => version = value.trim().trim_matches('"'),
                    "q" => weight = value.trim().parse().unwrap_or(0.0),
                    _ => {}
                }
            }
            let format = if media_type.eq_ignore_ascii_case("application/openmetrics-text") {
                // 0.0.1 is the draft that Prometheus accepts too; it has the same syntax.
                matches!(version, "" | "1.0.0" | "0.0.1").then_some(Self::OpenMetrics)
            } else if media_type.eq_ignore_ascii_case("text/plain") {
                matches!(version, "" | "0.0.4").then_some(Self::Text)
            } else {
                None
            };
            // Of equal weights the first wins.
            if let Some(format) = format.filter(|_| weight > quality) {
                (best, quality) = (format, weight);
            }
        }
        best
    }

    /// Returns the media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8; escaping=underscores",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores",
        }
    }
}

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number that only grows; its name ends with `_total`.
    Counter,
    /// A number that may shrink.
    Gauge,
    /// Counts of observations by their size.
    Histogram,
}

/// A number in a scrape.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// A whole number.
    Whole(u64),
    /// A fraction.
    Real(f64),
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<usize> for Number {
    fn from(value: usize) -> Self {
        Self::Whole(value as u64)
    }
}

impl From<bool> for Number {
    fn from(value: bool) -> Self {
        Self::Whole(value.into())
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(value) => value.fmt(f),
            Self::Real(value) => value.fmt(f),
        }
    }
}

/// A label's name and value.
pub type Label<'l> = (&'l str, &'l str);

/// The observations of a histogram.
pub struct Buckets<'b> {
    /// The upper bounds, ascending, as texts.
    pub bounds: &'static [&'static str],
    /// The observations of each bucket alone; one more than `bounds`.
    pub counts: &'b [u64],
    /// The sum of the observed values.
    pub sum: Number,
}

/// A metric with its samples.
pub struct Family {
    kind: Kind,
    help: &'static str,
    samples: Vec<Sample>,
}

/// A number or a histogram, with its labels.
struct Sample {
    /// The names and values of the labels, one after the other.
    labels: String,
    /// Where they end in `labels`.
    ends: Box<[usize]>,
    value: SampleValue,
}

enum SampleValue {
    Number(Number),
    Histogram { bounds: &'static [&'static str], counts: Box<[u64]>, sum: Number },
}

/// The value of a sample.
pub enum Observed<'s> {
    /// A counter or a gauge.
    Number(Number),
    /// A histogram.
    Buckets(Buckets<'s>),
}

impl Family {
    /// Returns the type.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the description.
    pub fn help(&self) -> &'static str {
        self.help
    }

    /// Adds a sample. Labels must be in the order of their names.
    pub fn sample(&mut self, labels: &[Label<'_>], value: impl Into<Number>) {
        self.push(labels, SampleValue::Number(value.into()));
    }

    /// Adds a histogram. Labels must be in the order of their names.
    pub fn histogram(&mut self, labels: &[Label<'_>], buckets: &Buckets<'_>) {
        let Buckets { bounds, counts, sum } = *buckets;
        self.push(labels, SampleValue::Histogram { bounds, counts: counts.into(), sum });
    }

    fn push(&mut self, written: &[Label<'_>], value: SampleValue) {
        let texts = written.iter().flat_map(|(name, value)| [*name, *value]);
        let mut labels = String::with_capacity(texts.clone().map(str::len).sum());
        let end = |text: &str| {
            labels.push_str(text);
            labels.len()
        };
        let ends = texts.map(end).collect();
        self.samples.push(Sample { labels, ends, value });
    }

    /// Calls `visit` for each sample, with its labels.
    pub fn for_each(&self, mut visit: impl FnMut(&mut dyn Iterator<Item = Label<'_>>, Observed<'_>)) {
        for sample in &self.samples {
            let value = match &sample.value {
                SampleValue::Number(number) => Observed::Number(*number),
                SampleValue::Histogram { bounds, counts, sum } => {
                    Observed::Buckets(Buckets { bounds, counts, sum: *sum })
                }
            };
            visit(&mut sample.labels(), value);
        }
    }
}

impl Sample {
    fn labels(&self) -> impl Iterator<Item = Label<'_>> {
        let start = |index: usize| if index == 0 { 0 } else { self.ends[index - 1] };
        let text = move |index: usize| &self.labels[start(index)..self.ends[index]];
        (0..self.ends.len()).step_by(2).map(move |index| (text(index), text(index + 1)))
    }
}

/// The metrics of one scrape, sorted by name.
#[derive(Default)]
pub struct Exposition {
    families: BTreeMap<&'static str, Family>,
}

impl Exposition {
    /// Returns the metric of this name. A metric without samples is not shown.
    pub fn family(&mut self, name: &'static str, kind: Kind, help: &'static str) -> &mut Family {
        self.families.entry(name).or_insert(Family { kind, help, samples: Vec::new() })
    }

    /// Adds a metric that has one sample without labels.
    pub fn single(&mut self, name: &'static str, kind: Kind, help: &'static str, value: impl Into<Number>) {
        self.family(name, kind, help).sample(&[], value);
    }

    /// Returns the metrics that have samples, by their names.
    pub fn families(&self) -> impl Iterator<Item = (&'static str, &Family)> {
        let all = self.families.iter().filter(|(_, family)| !family.samples.is_empty());
        all.map(|(name, family)| (*name, family))
    }

    /// Writes all metrics.
    pub fn render(&self, format: Format) -> String {
        let mut out = String::new();
        for (name, family) in self.families() {
            // Writing to a string cannot fail.
            let _ = write_family(&mut out, name, family, format);
        }
        if format == Format::OpenMetrics {
            out.push_str("# EOF\n");
        }
        out
    }
}

fn write_family(out: &mut String, name: &str, family: &Family, format: Format) -> fmt::Result {
    let kind = match family.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    // OpenMetrics: a counter is named without the suffix that its samples have.
    let named = match format {
        Format::OpenMetrics => name.strip_suffix("_total").unwrap_or(name),
        Format::Text => name,
    };
    write!(out, "# HELP {named} ")?;
    escape(out, family.help, format == Format::OpenMetrics);
    write!(out, "\n# TYPE {named} {kind}\n")?;
    for sample in &family.samples {
        let labels = formatted(sample.labels());
        match &sample.value {
            SampleValue::Number(value) => write_sample(out, name, "", &labels, value)?,
            SampleValue::Histogram { bounds, counts, sum } => {
                let comma = if labels.is_empty() { "" } else { "," };
                let mut count = 0;
                for (bound, bucket) in bounds.iter().copied().chain(["+Inf"]).zip(counts) {
                    count += bucket;
                    // OpenMetrics: bounds are floating-point numbers.
                    let is_whole = format == Format::OpenMetrics && bound.bytes().all(|byte| byte.is_ascii_digit());
                    let point = if is_whole { ".0" } else { "" };
                    writeln!(out, "{name}_bucket{{{labels}{comma}le=\"{bound}{point}\"}} {count}")?;
                }
                write_sample(out, name, "_sum", &labels, sum)?;
                write_sample(out, name, "_count", &labels, &count.into())?;
            }
        }
    }
    Ok(())
}

fn write_sample(out: &mut String, name: &str, suffix: &str, labels: &str, value: &Number) -> fmt::Result {
    match labels {
        "" => writeln!(out, "{name}{suffix} {value}"),
        labels => writeln!(out, "{name}{suffix}{{{labels}}} {value}"),
    }
}

fn formatted<'l>(labels: impl Iterator<Item = Label<'l>>) -> String {
    let mut out = String::new();
    for (name, value) in labels {
        let comma = if out.is_empty() { "" } else { "," };
        let _ = write!(out, "{comma}{name}=\"");
        escape(&mut out, value, true);
        out.push('"');
    }
    out
}

/// Appends a text so that it stays within its line, and if necessary within its quotes.
fn escape(out: &mut String, text: &str, is_quoted: bool) {
    for char in text.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if is_quoted => out.push_str("\\\""),
            char => out.push(char),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Exposition {
        let mut page = Exposition::default();
        page.single("b", Kind::Gauge, "A \"gauge\"\nof \\.", 1.5);
        page.family("absent", Kind::Gauge, "Without samples.");
        page.family("a_total", Kind::Counter, "Count.").sample(&[("x", "a\"b\\c\nd"), ("y", "é")], 7_u64);
        let buckets = Buckets { bounds: &["0.5", "1", "1.5e+06"], counts: &[1, 0, 2, 4], sum: 9.25.into() };
        page.family("h", Kind::Histogram, "H.").histogram(&[("k", "v")], &buckets);
        page
    }

    // Prometheus, "Exposition formats": in a label's value \, " and the line feed are escaped, in a help text \ and the
    // line feed; buckets are cumulative, and the last has the bound +Inf and equals the count.
    #[test]
    fn the_text_format() {
        let want = "# HELP a_total Count.\n# TYPE a_total counter\na_total{x=\"a\\\"b\\\\c\\nd\",y=\"é\"} 7\n\
                    # HELP b A \"gauge\"\\nof \\\\.\n# TYPE b gauge\nb 1.5\n\
                    # HELP h H.\n# TYPE h histogram\nh_bucket{k=\"v\",le=\"0.5\"} 1\nh_bucket{k=\"v\",le=\"1\"} 1\n\
                    h_bucket{k=\"v\",le=\"1.5e+06\"} 3\nh_bucket{k=\"v\",le=\"+Inf\"} 7\nh_sum{k=\"v\"} 9.25\nh_count{k=\"v\"} 7\n";
        assert_eq!(example().render(Format::Text), want);
    }

    // OpenMetrics 1.0: a counter's family has no suffix, its sample has `_total`; a bound is a floating-point number;
    // the quote is escaped in a help text too; the text ends with `# EOF`.
    #[test]
    fn the_format_open_metrics() {
        let text = example().render(Format::OpenMetrics);
        for want in [
            "# HELP a Count.\n# TYPE a counter\na_total{",
            "# HELP b A \\\"gauge\\\"\\nof \\\\.\n",
            "le=\"1.0\"} 1\n",
            "le=\"0.5\"} 1\n",
            "le=\"1.5e+06\"} 3\n",
            "le=\"+Inf\"} 7\n",
        ] {
            assert!(text.contains(want), "{want} in {text}");
        }
        assert!(text.ends_with("} 7\n# EOF\n"), "{text}");
    }

    // RFC 9110 §12.5.1: the highest weight wins; a weight of 0 excludes.
    #[test]
    fn the_accepted_format() {
        let scraper = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                       text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, want) in [
            ("", Format::Text),
            ("*/*", Format::Text),
            (scraper, Format::OpenMetrics),
            ("text/plain, application/openmetrics-text", Format::Text),
            ("text/plain;q=0.2, Application/OpenMetrics-Text; version=\"1.0.0\"; q=0.3", Format::OpenMetrics),
            ("application/openmetrics-text;version=2.0.0", Format::Text),
            ("application/openmetrics-text;q=0", Format::Text),
            ("application/openmetrics-text;q=x", Format::Text),
            ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily, text/plain;q=0.1", Format::Text),
            ("\u{fffd};;=,;q=1,", Format::Text),
        ] {
            assert_eq!(Format::accepted(accept.as_bytes()), want, "{accept}");
        }
    }
}
