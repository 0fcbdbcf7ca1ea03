//! `metrics { otlp }`: sends the metrics of a scrape to an OpenTelemetry collector. The environment variables of
//! OpenTelemetry configure it (`causeway-trace-output`).

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use causeway_pipeline::build::Problem;
use causeway_pipeline::metrics::{Buckets, Kind, Number, Observed};
use causeway_pipeline::{Build, BuildError, Metrics};
use causeway_trace_output::{
    MetricKind, MetricOutput, MetricSettings, MetricWriter, PreparedMetricOutput, SettingError,
};
pub use causeway_trace_output::{PointCounts, point_counts};

/// An export that can start: the environment's settings are valid.
pub struct PreparedPush(PreparedMetricOutput);

/// A running export. Dropping it ends it after the current numbers are sent.
pub struct MetricPush(MetricOutput);

impl PreparedPush {
    /// Reads the environment; `None` if it switches the export off.
    ///
    /// # Errors
    /// A variable of the environment has a value that cannot be used.
    pub fn read(build: &Build<'_>) -> Result<Option<Self>, BuildError> {
        let refuse = |SettingError { variable, found, expected }| {
            build.error(Problem::Environment { variable, found, expected })
        };
        let settings = MetricSettings::read(&|name| build.environment(name)).map_err(refuse)?;
        let prepared = settings.map(PreparedMetricOutput::new).transpose().map_err(refuse)?;
        Ok(prepared.map(Self))
    }

    /// Returns whether `running` has the same settings.
    pub fn is(&self, running: &MetricPush) -> bool {
        self.0.settings() == running.0.settings()
    }

    /// Starts the export. Counters began at zero at `started`.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(self, metrics: &Arc<Metrics>, started: SystemTime) -> io::Result<MetricPush> {
        let metrics = Arc::clone(metrics);
        self.0.start(started, move |writer| write(&metrics, writer)).map(MetricPush)
    }
}

fn write(metrics: &Metrics, writer: &mut MetricWriter) {
    let mut numbers = Vec::new();
    for (name, family) in metrics.collect().families() {
        let kind = match family.kind() {
            Kind::Counter => MetricKind::Sum,
            Kind::Gauge => MetricKind::Gauge,
            Kind::Histogram => MetricKind::Histogram,
        };
        writer.begin(name, family.help(), kind);
        family.for_each(|labels, value| match value {
            Observed::Number(value) => writer.number(labels, real(value)),
            Observed::Buckets(Buckets { bounds, counts, sum }) => {
                numbers.clear();
                numbers.extend(bounds.iter().filter_map(|bound| bound.parse::<f64>().ok()));
                writer.histogram(labels, &numbers, counts, real(sum));
            }
        });
    }
}

/// As in Caddy, all numbers are fractions.
fn real(number: Number) -> f64 {
    match number {
        Number::Whole(value) => value as f64,
        Number::Real(value) => value,
    }
}
