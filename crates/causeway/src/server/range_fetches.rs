//! Fetches the networks of trusted proxies in the background: `trusted_proxies cloudflare`.
//!
//! A list is taken as a whole or not at all. A failed fetch keeps the list that requests read.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use causeway_acme::http::{HttpClient, HttpError, REQUEST_TIMEOUT, Redirects, StatusCode, without_secrets};
use causeway_config::plan::RangeFetch;
use ipnet::IpNet;
use tokio::task::AbortHandle;

use super::blocking::blocking;

/// The shortest pause between two fetches, so that a unit forgotten in `interval` does not flood a server.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Redirects that one request follows.
const REDIRECTS_MAX: usize = 3;
/// Networks of one list. Cloudflare has 22, and each request compares its peer with all of them.
const NETWORKS_MAX: usize = 1000;
/// The longest response: as many IPv6 networks.
const BODY_BYTES_MAX: usize = NETWORKS_MAX * 44;
/// The widest networks. A wider one is a mistake that would let most clients of the internet forge their address.
const IPV4_PREFIX_MIN: u8 = 8;
const IPV6_PREFIX_MIN: u8 = 16;
/// How much of a bad line the log has, in characters.
const LINE_CHARS_MAX: usize = 40;

/// The fetches of a configuration. Dropping them ends them.
#[derive(Default)]
pub(super) struct RangeFetches(Vec<RunningFetch>);

struct RunningFetch {
    fetch: RangeFetch,
    task: AbortHandle,
}

impl Drop for RunningFetch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl RangeFetches {
    /// Starts the fetches of a configuration that takes effect. Fetches that the former configuration has too continue,
    /// and its others end. Must run in the server's runtime.
    pub(super) fn switch(&mut self, wanted: Vec<RangeFetch>) {
        self.0.retain(|running| wanted.contains(&running.fetch));
        for fetch in wanted {
            if !self.0.iter().any(|running| running.fetch == fetch) {
                let task = tokio::spawn(repeat(fetch.clone())).abort_handle();
                self.0.push(RunningFetch { fetch, task });
            }
        }
    }
}

/// Fetches a list now and after each pause.
async fn repeat(fetch: RangeFetch) {
    let urls = fetch.ranges.urls().iter().map(|url| without_secrets(url)).collect::<Vec<_>>().join(" and ");
    loop {
        match fetch_all(&fetch).await {
            Ok(networks) => {
                let count = networks.len();
                if fetch.ranges.replace(networks) {
                    tracing::info!("the list of trusted proxies from {urls} has {count} networks now");
                } else {
                    tracing::debug!(count, "the list of trusted proxies from {urls} is unchanged");
                }
            }
            Err((url, error)) => {
                let url = without_secrets(url);
                tracing::warn!("fetching the list of trusted proxies: {url}: {error}; keeping the former list");
            }
        }
        tokio::time::sleep(fetch.interval.max(INTERVAL_MIN)).await;
    }
}

/// Returns the networks of all parts of a list.
///
/// # Errors
/// The first fault, with the URL that has it.
async fn fetch_all(fetch: &RangeFetch) -> Result<Vec<IpNet>, (&str, RangeFetchError)> {
    let urls = fetch.ranges.urls();
    // The system's roots are read again each time, so that renewed ones are used.
    let client = blocking(|| HttpClient::new(&[])).await;
    let client = client.map_err(RangeFetchError::Panicked).and_then(|client| client.map_err(RangeFetchError::Exchange));
    let client = client.map_err(|error| (&*urls[0], error))?;
    let client = client.timeout(fetch.timeout.unwrap_or(REQUEST_TIMEOUT)).body_bytes_max(BODY_BYTES_MAX);
    let mut networks = Vec::new();
    for url in urls {
        networks.extend(fetch_part(&client, url).await.map_err(|error| (&**url, error))?);
        if networks.len() > NETWORKS_MAX {
            return Err((url, RangeFetchError::TooMany));
        }
    }
    Ok(networks)
}

async fn fetch_part(client: &HttpClient, url: &str) -> Result<Vec<IpNet>, RangeFetchError> {
    let mut url = url.to_owned();
    let response = client.get_following(&mut url, REDIRECTS_MAX, Redirects::KeepHttps).await;
    let response = response.map_err(RangeFetchError::Exchange)?;
    if response.status == StatusCode::OK {
        parse(&response.body)
    } else {
        Err(RangeFetchError::Status(response.status))
    }
}

/// Parses a list with one network or address on each line.
fn parse(body: &[u8]) -> Result<Vec<IpNet>, RangeFetchError> {
    let text = std::str::from_utf8(body).map_err(|_| RangeFetchError::NotUtf8)?;
    let mut networks = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let network = line.parse::<IpAddr>().map(IpNet::from).or_else(|_| line.parse::<IpNet>()).ok();
        let is_narrow = |network: &IpNet| match network {
            IpNet::V4(network) => network.prefix_len() >= IPV4_PREFIX_MIN,
            IpNet::V6(network) => network.prefix_len() >= IPV6_PREFIX_MIN,
        };
        match network.filter(is_narrow) {
            Some(network) => networks.push(network),
            None => return Err(RangeFetchError::line(index + 1, line)),
        }
    }
    if networks.is_empty() { Err(RangeFetchError::Empty) } else { Ok(networks) }
}

/// Why a list is not taken.
#[derive(Debug)]
enum RangeFetchError {
    /// The request could not be sent, or its response is not complete or too long.
    Exchange(HttpError),
    /// Making the client failed inside the server; its thread has reported the panic.
    Panicked(String),
    /// A status that comes with no list.
    Status(StatusCode),
    /// The response is not UTF-8.
    NotUtf8,
    /// A line is not a network, or is a network that is too wide.
    Line {
        /// From 1.
        number: usize,
        /// Its beginning.
        start: String,
    },
    Empty,
    TooMany,
}

impl RangeFetchError {
    fn line(number: usize, line: &str) -> Self {
        Self::Line { number, start: line.chars().take(LINE_CHARS_MAX).flat_map(char::escape_debug).collect() }
    }
}

impl fmt::Display for RangeFetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exchange(error) => error.fmt(f),
            Self::Panicked(message) => f.write_str(message),
            Self::Status(status) => write!(f, "found the status {}, expected a list of networks", status.as_u16()),
            Self::NotUtf8 => f.write_str("found bytes that are not UTF-8, expected a list of networks"),
            Self::Line { number, start } => write!(
                f,
                "found '{start}' in line {number}, expected an IP address, or a network of /{IPV4_PREFIX_MIN} or narrower, for IPv6 \
                 /{IPV6_PREFIX_MIN}"
            ),
            Self::Empty => f.write_str("found an empty list, expected networks"),
            Self::TooMany => write!(f, "found more than {NETWORKS_MAX} networks, expected a shorter list"),
        }
    }
}

#[cfg(test)]
mod tests {
    use causeway_pipeline::{Build, Registry};

    use super::*;

    // A task whose fetch is also in the next configuration continues, and the others end.
    #[tokio::test]
    async fn fetches_of_a_former_configuration() {
        let registry = Registry::default();
        let fetch = |interval: u64| {
            // No server listens on this port.
            let urls = ["https://127.0.0.1:1/".to_owned()];
            let ranges = Build::new(&registry).fetched_ranges(&urls, Vec::new);
            RangeFetch { ranges, interval: Duration::from_secs(interval), timeout: None }
        };
        let mut fetches = RangeFetches::default();
        fetches.switch(vec![fetch(60), fetch(120)]);
        let tasks: Vec<_> = fetches.0.iter().map(|running| running.task.clone()).collect();
        fetches.switch(vec![fetch(180), fetch(120)]);
        let ids: Vec<_> = fetches.0.iter().map(|running| running.task.id()).collect();
        assert_eq!((ids.len(), ids.contains(&tasks[0].id()), ids.contains(&tasks[1].id())), (2, false, true));
        while !tasks[0].is_finished() {
            tokio::task::yield_now().await;
        }
        drop(fetches);
        while !tasks[1].is_finished() {
            tokio::task::yield_now().await;
        }
    }

    #[track_caller]
    fn check(body: &[u8], want: &str) {
        let got = match parse(body) {
            Ok(networks) => networks.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        };
        assert!(got.starts_with(want), "{got}");
    }

    // As the plugin caddy-cloudflare-ip reads the lists: one network or address on each line, and a line break at the
    // end or not.
    #[test]
    fn lists() {
        check(b"192.0.2.0/24\n2001:db8::/32", "192.0.2.0/24 2001:db8::/32");
        check(b"192.0.2.0/24\r\n198.51.100.7\r\n", "192.0.2.0/24 198.51.100.7/32");
        check(b"10.0.0.0/8\n2001::/16\n", "10.0.0.0/8 2001::/16");
    }

    #[test]
    fn refused_lists() {
        check(b"", "found an empty list");
        check(b"192.0.2.0/24\n\n198.51.100.0/24\n", "found '' in line 2, expected an IP address, or a network");
        check(b"192.0.2.0/24 198.51.100.0/24", "found '192.0.2.0/24 198.51.100.0/24' in line 1");
        check(b"192.0.2.0/24\n192.0.2.0/33", "found '192.0.2.0/33' in line 2");
        check(b"0.0.0.0/0", "found '0.0.0.0/0' in line 1");
        check(b"10.0.0.0/7", "found '10.0.0.0/7' in line 1");
        check(b"::/0", "found '::/0' in line 1");
        check(b"2000::/15", "found '2000::/15' in line 1");
        check(
            b"<!DOCTYPE html>\x1b[2J<p>Sign in to this network, please",
            "found '<!DOCTYPE html>\\u{1b}[2J<p>Sign in to this ne' in line 1",
        );
        check(b"192.0.2.0/24\n\xff", "found bytes that are not UTF-8");
    }
}
