//! `metrics`: responds with the server's metrics, in the format that the request accepts.

use std::sync::Arc;

use causeway_message::{Chunk, FieldValue, StatusCode, names};
use causeway_pipeline::metrics::Format;
use causeway_pipeline::worker::{Work, WorkKind, offload};
use causeway_pipeline::{Build, BuildError, Context, Fault, Handler, Metrics, Response, Step};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricsConfig {
    #[serde(default)]
    disable_openmetrics: bool,
}

struct MetricsHandler {
    metrics: Arc<Metrics>,
    disable_openmetrics: bool,
}

/// Compiles the handler from its JSON.
///
/// # Errors
/// If an option is unknown.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let MetricsConfig { disable_openmetrics } = build.parse_module(value)?;
    Ok(Box::new(MetricsHandler { metrics: Arc::clone(build.metrics()), disable_openmetrics }))
}

impl Handler for MetricsHandler {
    fn enter(&self, cx: &mut Context) -> Step {
        let accept = cx.head().fields().get(names::ACCEPT).unwrap_or_default();
        let format = if self.disable_openmetrics { Format::Text } else { Format::accepted(accept) };
        let metrics = Arc::clone(&self.metrics);
        // A server with many hosts has many thousands of lines, and collectors read files.
        let Ok(scrape) = offload(&**cx.worker(), Work::of(WorkKind::Blocking), move || metrics.scrape(format)) else {
            return Step::Fail(Fault::busy());
        };
        cx.wait(scrape, move |cx, text: Option<String>| {
            let Some(text) = text else { return Step::Fail(Fault::from_status(StatusCode::INTERNAL_SERVER_ERROR)) };
            cx.response_mut().set(names::CONTENT_TYPE, FieldValue::from_static(format.media_type()));
            Step::Respond(Response::chunk(StatusCode::OK, Chunk::from(text.into_bytes())))
        })
    }
}
