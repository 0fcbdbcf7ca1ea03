//! `trusted_proxies`: the sources of the networks of trusted proxies, Caddy's modules `http.ip_sources`.
//!
//! - `cloudflare`: the networks of Cloudflare at the time of this version

mod cloudflare;

use std::sync::Arc;
use std::time::Duration;

use causeway_pipeline::build::DurationConfig;
use causeway_pipeline::{Build, BuildError, FetchedRanges};
use ipnet::IpNet;
use serde::Deserialize;
use serde_json::Value;

use super::policy::ranges;

/// Default of `interval`; that of the plugin caddy-cloudflare-ip.
const INTERVAL: Duration = Duration::from_secs(60 * 60);

/// A list of networks that the server has to fetch while it serves.
#[derive(Debug, Clone)]
pub struct RangeFetch {
    /// The list, with its URLs, whose scheme is `https`.
    pub ranges: Arc<FetchedRanges>,
    /// The pause between two fetches.
    pub interval: Duration,
    /// The time limit of each request; `None`: the default.
    pub timeout: Option<Duration>,
}

/// Equal fetches fill one list at equal times.
impl PartialEq for RangeFetch {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.ranges, &other.ranges) && (self.interval, self.timeout) == (other.interval, other.timeout)
    }
}

/// The networks of trusted proxies.
#[derive(Debug, Default)]
pub(super) struct IpSources {
    /// Networks that the configuration names.
    pub(super) ranges: Vec<IpNet>,
    /// Lists of networks that the server fetches.
    pub(super) fetches: Vec<RangeFetch>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StaticConfig {
    #[serde(rename = "source")]
    _source: String,
    #[serde(default)]
    ranges: Vec<String>,
}

/// The plugin caddy-cloudflare-ip, and `urls`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CloudflareConfig {
    #[serde(rename = "source")]
    _source: String,
    #[serde(default)]
    interval: Option<DurationConfig>,
    #[serde(default)]
    timeout: Option<DurationConfig>,
    /// Ours: a mirror of Cloudflare's lists.
    #[serde(default)]
    urls: Option<Vec<String>>,
}

/// The plugin caddy-combine-ip-ranges.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CombineConfig {
    #[serde(rename = "source")]
    _source: String,
    #[serde(default)]
    parts: Vec<Value>,
}

impl IpSources {
    /// Adds the networks of a source.
    pub(super) fn add(&mut self, written: &Value, build: &mut Build<'_>) -> Result<(), BuildError> {
        match written["source"].as_str().unwrap_or_default() {
            "static" => {
                let written: StaticConfig = build.parse(written)?;
                self.ranges.extend(ranges("ranges", &written.ranges, build)?);
            }
            "cloudflare" => {
                let written: CloudflareConfig = build.parse(written)?;
                let fetch = written.read(build)?;
                if !self.fetches.contains(&fetch) {
                    self.fetches.push(fetch);
                }
            }
            "combine" => {
                let written: CombineConfig = build.parse(written)?;
                for (index, part) in written.parts.iter().enumerate() {
                    build.at(format!("parts[{index}]"), |build| self.add(part, build))?;
                }
            }
            name => {
                let expected = "static, cloudflare or combine: no other source is supported (docs/refused.md)";
                return build.at("source", |build| Err(build.refuse(name, expected)));
            }
        }
        Ok(())
    }
}

impl CloudflareConfig {
    fn read(self, build: &mut Build<'_>) -> Result<RangeFetch, BuildError> {
        let read = |key: &str, written: Option<DurationConfig>, build: &mut Build<'_>| match written {
            Some(written) => build.at(key, |build| written.read(build)),
            None => Ok(None),
        };
        let interval = read("interval", self.interval, build)?.unwrap_or(INTERVAL);
        let timeout = read("timeout", self.timeout, build)?;
        let urls = self.urls.unwrap_or_else(|| cloudflare::URLS.map(str::to_owned).to_vec());
        if urls.is_empty() {
            return build.at("urls", |build| Err(build.refuse("[]", "at least one URL")));
        }
        for (index, url) in urls.iter().enumerate() {
            // A forged list would let its forger choose the address of every client.
            if !url.starts_with("https://") {
                return build.at(format!("urls[{index}]"), |build| {
                    Err(build.refuse(&**url, "a URL with the scheme https, such as https://mirror.example/ips"))
                });
            }
        }
        Ok(RangeFetch { ranges: build.fetched_ranges(&urls, cloudflare::networks), interval, timeout })
    }
}
