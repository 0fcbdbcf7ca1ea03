//! `timeouts`: limits on the time that a client may take for its body and for the response, in place of the server's.

use std::num::NonZeroU64;

use causeway_pipeline::build::DurationConfig;
use causeway_pipeline::{Build, BuildError, Context, Handler, Step, TransferLimit};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TimeoutsConfig {
    #[serde(default)]
    read_timeout: Option<DurationConfig>,
    #[serde(default)]
    read_min_rate: i64,
    #[serde(default)]
    write_timeout: Option<DurationConfig>,
    #[serde(default)]
    write_min_rate: i64,
    /// Ignored: the kernel accepts parts of a write, and each is progress.
    #[serde(default)]
    max_write_chunk: i64,
}

struct TransferTimeouts {
    body: Option<TransferLimit>,
    write: Option<TransferLimit>,
}

/// Compiles the handler from its JSON. A time of zero or less keeps the server's limit.
///
/// # Errors
/// A rate without a time, an unknown option, or a duration that is none.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let written: TimeoutsConfig = build.parse_module(value)?;
    if written.max_write_chunk > 0 {
        build.warn_unused("max_write_chunk", "each part of a write that the kernel accepts is progress");
    }
    let body = limit(("read_timeout", &written.read_timeout), ("read_min_rate", written.read_min_rate), build)?;
    let write = limit(("write_timeout", &written.write_timeout), ("write_min_rate", written.write_min_rate), build)?;
    Ok(Box::new(TransferTimeouts { body, write }))
}

fn limit(
    (key, time): (&str, &Option<DurationConfig>),
    (rate_key, rate): (&str, i64),
    build: &mut Build<'_>,
) -> Result<Option<TransferLimit>, BuildError> {
    let idle = match time {
        Some(time) => build.at(key, |build| time.read(build))?,
        None => None,
    };
    // As in Caddy, a rate of zero or less is none.
    let bytes_per_second = u64::try_from(rate).ok().and_then(NonZeroU64::new);
    match (idle, bytes_per_second) {
        (None, Some(_)) => {
            build.at(rate_key, |build| Err(build.refuse(rate.to_string(), format!("a rate only together with {key}"))))
        }
        (idle, _) => Ok(idle.map(|idle| TransferLimit { idle, bytes_per_second })),
    }
}

impl Handler for TransferTimeouts {
    fn enter(&self, cx: &mut Context) -> Step {
        cx.limit_transfers(self.body, self.write);
        Step::Next
    }
}

#[cfg(test)]
mod tests {
    use causeway_pipeline::Registry;
    use causeway_testkit::Kit;
    use serde_json::{Value, json};

    // Caddy, http.handlers.timeouts: durations as nanoseconds or text; a rate has an effect only together with a time.
    #[test]
    fn settings() {
        let mut registry = Registry::default();
        crate::register(&mut registry);
        let error = |options: Value| {
            let mut handler = options;
            handler["handler"] = "timeouts".into();
            let routes = json!([{ "handle": [handler] }]);
            Kit::build(&registry, &routes, &Value::Null).err().map(|error| error.to_string())
        };
        for options in [
            json!({}),
            json!({ "read_timeout": 5_000_000_000_u64, "read_min_rate": 500, "max_write_chunk": 65536 }),
            json!({ "write_timeout": "5s", "write_min_rate": -1 }),
            json!({ "read_timeout": 0, "read_min_rate": 0 }),
        ] {
            assert_eq!(error(options.clone()), None, "{options}");
        }
        for (options, text) in [
            (
                json!({ "read_min_rate": 500 }),
                "read_min_rate: found '500', expected a rate only together with read_timeout",
            ),
            (json!({ "write_timeout": "0s", "write_min_rate": 1 }), "only together with write_timeout"),
            (json!({ "write_timeout": "soon" }), "found 'soon', expected a duration"),
            (json!({ "idle": "5s" }), "unknown field `idle`"),
        ] {
            let error = error(options.clone()).unwrap_or_default();
            assert!(error.contains(text), "{options}: {error}");
        }
    }
}
