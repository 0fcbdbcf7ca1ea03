//! Parsers of the output of wrk and ab.

/// The figures of a load tool.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Requests per second.
    pub requests: f64,
    /// Median latency in µs.
    pub p50_us: f64,
    /// 99th percentile of the latency in µs.
    pub p99_us: f64,
    /// Total number of requests.
    pub total: u64,
}

/// Parses the output of `wrk --latency`; `None` also if wrk reported an error: a server with errors is not fast.
pub fn wrk_rates(said: &str) -> Option<Rates> {
    if said.contains("Socket errors") || said.contains("Non-2xx") {
        return None;
    }
    let after = |mark: &str| said.lines().find_map(|line| line.trim().strip_prefix(mark)).map(str::trim);
    let total = said.lines().find_map(|line| line.trim().split_once(" requests in ")).map(|(count, _)| count);
    Some(Rates {
        requests: after("Requests/sec:")?.parse().ok()?,
        p50_us: wrk_time(after("50%")?)?,
        p99_us: wrk_time(after("99%")?)?,
        total: total?.parse().ok()?,
    })
}

/// The counts that wrk reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Number of responses.
    pub requests: u64,
    /// Refused and broken connections, timeouts, and responses with a status other than 2xx.
    pub failed: u64,
}

/// Parses wrk's counts, including those of errors.
pub fn wrk_counts(said: &str) -> Option<Counts> {
    let requests = said.lines().find_map(|line| line.trim().split_once(" requests in "))?.0.parse().ok()?;
    let mut failed = 0;
    for line in said.lines().map(str::trim) {
        if let Some(errors) = line.strip_prefix("Socket errors: ") {
            for part in errors.split(", ") {
                failed += part.rsplit_once(' ')?.1.parse::<u64>().ok()?;
            }
        }
        if let Some(other) = line.strip_prefix("Non-2xx or 3xx responses: ") {
            failed += other.parse::<u64>().ok()?;
        }
    }
    Some(Counts { requests, failed })
}

/// Parses a time of wrk, in µs.
fn wrk_time(text: &str) -> Option<f64> {
    let (figure, scale) = if let Some(figure) = text.strip_suffix("us") {
        (figure, 1.0)
    } else if let Some(figure) = text.strip_suffix("ms") {
        (figure, 1e3)
    } else {
        (text.strip_suffix('s')?, 1e6)
    };
    Some(figure.parse::<f64>().ok()? * scale)
}

/// Parses the output of ab, whose latencies are whole milliseconds; `None` if a request failed.
pub fn ab_rates(said: &str) -> Option<Rates> {
    let after = |mark: &str| said.lines().find_map(|line| line.trim().strip_prefix(mark)).map(str::trim);
    if after("Failed requests:")? != "0" || after("Non-2xx responses:").is_some() {
        return None;
    }
    let first = |text: &str| text.split_ascii_whitespace().next().map(str::to_owned);
    let milliseconds = |mark: &str| first(after(mark)?)?.parse::<f64>().ok();
    Some(Rates {
        requests: first(after("Requests per second:")?)?.parse().ok()?,
        p50_us: milliseconds("50%")? * 1e3,
        p99_us: milliseconds("99%")? * 1e3,
        total: after("Complete requests:")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRK: &str = "Running 2s test @ http://127.0.0.1:1/\n  1 threads and 64 connections\n  Thread Stats   Avg\n  \
        Latency Distribution\n     50%  458.00us\n     75%    1.00ms\n     90%    1.20ms\n     99%    1.73ms\n  \
        301720 requests in 2.10s, 40.00MB read\nRequests/sec: 143676.19\nTransfer/sec:     19.05MB\n";

    #[test]
    fn wrk_is_read_and_its_errors_count() {
        let want = Rates { requests: 143_676.19, p50_us: 458.0, p99_us: 1730.0, total: 301_720 };
        assert_eq!(wrk_rates(WRK), Some(want));
        assert_eq!(wrk_rates(&format!("{WRK}  Socket errors: connect 0, read 3, write 0, timeout 0\n")), None);
        assert_eq!(wrk_rates(""), None);
        assert_eq!(wrk_time("1.50s"), Some(1_500_000.0));
    }

    #[test]
    fn what_wrk_counts_as_failed() {
        assert_eq!(wrk_counts(WRK), Some(Counts { requests: 301_720, failed: 0 }));
        let errors = "  Socket errors: connect 1, read 30, write 0, timeout 4\n  Non-2xx or 3xx responses: 200\n";
        assert_eq!(wrk_counts(&format!("{WRK}{errors}")), Some(Counts { requests: 301_720, failed: 235 }));
        assert_eq!(wrk_counts(""), None);
    }

    #[test]
    fn ab_is_read_and_its_failures_count() {
        let said = "Complete requests:      1000\nFailed requests:        0\nRequests per second:    65432.10 [#/sec] (mean)\n\
            Percentage of the requests served within a certain time (ms)\n  50%      1\n  99%      3\n 100%      5 (longest request)\n";
        assert_eq!(ab_rates(said), Some(Rates { requests: 65_432.1, p50_us: 1e3, p99_us: 3e3, total: 1000 }));
        assert_eq!(ab_rates(&said.replace("requests:        0", "requests:        2")), None);
    }
}
