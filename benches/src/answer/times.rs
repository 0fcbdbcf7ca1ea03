//! Records the request times of a measured program and sends them to clients of its second port: count, mean, median
//! and 99th percentile since the last query, as one line of JSON.

use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;

/// Request times since the last query.
#[derive(Clone)]
pub struct Times(Arc<Mutex<Histogram<u64>>>);

impl Times {
    /// Creates an empty recorder, and answers every connection to `port` on loopback with the statistics.
    ///
    /// # Errors
    /// When the port is taken.
    pub fn told_on(port: u16) -> io::Result<Self> {
        let times = Self::new();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let told = times.clone();
        std::thread::spawn(move || {
            for asker in listener.incoming().flatten() {
                // Ignore a client that closes early.
                let _ = (&asker).write_all(told.take().as_bytes());
            }
        });
        Ok(times)
    }

    fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("good bounds");
        Self(Arc::new(Mutex::new(histogram)))
    }

    /// Records a time; times above a minute count as a minute.
    pub fn add(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(nanos.max(1));
    }

    /// Returns the statistics as a line, and resets them.
    fn take(&self) -> String {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let us = |nanos: u64| nanos as f64 / 1e3;
        let (p50, p99) = (us(times.value_at_quantile(0.5)), us(times.value_at_quantile(0.99)));
        let line = format!(
            "{{\"count\":{},\"mean_us\":{:.3},\"p50_us\":{p50:.3},\"p99_us\":{p99:.3}}}\n",
            times.len(),
            times.mean() / 1e3
        );
        times.reset();
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_once() {
        let times = Times::new();
        for us in [10, 20, 60] {
            times.add(Duration::from_micros(us));
        }
        let said: serde_json::Value = serde_json::from_str(&times.take()).unwrap();
        assert_eq!(said["count"], 3);
        assert!((said["mean_us"].as_f64().unwrap() - 30.0).abs() < 0.1, "{said}");
        assert!((said["p50_us"].as_f64().unwrap() - 20.0).abs() < 0.1, "{said}");
        let said: serde_json::Value = serde_json::from_str(&times.take()).unwrap();
        assert_eq!(said["count"], 0);
    }
}
