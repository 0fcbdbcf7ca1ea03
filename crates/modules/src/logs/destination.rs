//! The outputs of logs, as JSON describes them.

use std::time::Duration;

use causeway_log_output::{Compression, DirectoryMode, FileSpec, NetSpec, Network, OutputSpec, RollSpec, Zone};
use causeway_pipeline::build::{DurationConfig, Problem};
use causeway_pipeline::{Build, BuildError};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Caddy's defaults for rolled files.
const ROLL_SIZE_MB: u64 = 100;
const ROLL_KEEP: u64 = 10;
const ROLL_KEEP_DAYS: u64 = 90;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Time limit for a connection without `dial_timeout`. Caddy waits as long as the system does.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileOutputConfig {
    #[serde(rename = "output")]
    _output: String,
    #[serde(default)]
    filename: String,
    #[serde(default)]
    mode: String,
    #[serde(default)]
    dir_mode: String,
    #[serde(default)]
    roll: Option<bool>,
    #[serde(default)]
    roll_size_mb: u64,
    #[serde(default)]
    roll_interval: Option<DurationConfig>,
    #[serde(default)]
    roll_minutes: Vec<i64>,
    #[serde(default)]
    roll_at: Vec<String>,
    #[serde(default)]
    roll_gzip: Option<bool>,
    #[serde(default)]
    roll_compression: String,
    #[serde(default)]
    roll_local_time: bool,
    #[serde(default)]
    roll_keep: u64,
    #[serde(default)]
    roll_keep_days: u64,
    #[serde(default)]
    backup_time_format: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NetOutputConfig {
    #[serde(rename = "output")]
    _output: String,
    #[serde(default)]
    address: String,
    #[serde(default)]
    dial_timeout: Option<DurationConfig>,
    #[serde(default)]
    soft_start: bool,
}

/// Reads a duration; `None` for 0, as for an absent one.
fn duration(
    key: &str,
    written: Option<&DurationConfig>,
    build: &mut Build<'_>,
) -> Result<Option<Duration>, BuildError> {
    let Some(written) = written else { return Ok(None) };
    build.at(key, |build| match u64::try_from(written.signed(build)?) {
        Ok(nanoseconds) => Ok((nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds))),
        Err(_) => Err(build.refuse(written.written(), "a duration above 0")),
    })
}

/// Reads a log's `writer`; standard error without one.
///
/// # Errors
/// An unknown output or option, or a value out of range.
pub(super) fn read(written: Option<&Map<String, Value>>, build: &mut Build<'_>) -> Result<OutputSpec, BuildError> {
    let Some(written) = written else { return Ok(OutputSpec::Stderr) };
    let Some(name) = written.get("output").and_then(Value::as_str) else {
        return Err(build.refuse("no output", "an object with an 'output' key that names one"));
    };
    let plain = match name {
        "stderr" => OutputSpec::Stderr,
        "stdout" => OutputSpec::Stdout,
        "discard" => OutputSpec::Discard,
        "file" => {
            let config: FileOutputConfig = build.parse(&Value::Object(written.clone()))?;
            return config.read(build).map(OutputSpec::File);
        }
        "net" => {
            let config: NetOutputConfig = build.parse(&Value::Object(written.clone()))?;
            return config.read(build).map(OutputSpec::Net);
        }
        name => return Err(build.error(Problem::UnknownModule { kind: "log writer", name: name.to_owned() })),
    };
    match written.keys().find(|key| *key != "output") {
        Some(option) => Err(build.refuse(option, "no options of this output")),
        None => Ok(plain),
    }
}

/// Returns a text whose placeholders are known at load.
pub(super) fn at_load(text: &str, build: &mut Build<'_>) -> Result<String, BuildError> {
    match build.template(text).literal() {
        Some(text) => Ok(text.to_owned()),
        None => Err(build.refuse(text, "placeholders that are known at load, such as {env.NAME}")),
    }
}

fn octal(text: &str, build: &Build<'_>) -> Result<u32, BuildError> {
    // Without the check of the digits, `from_str_radix` would accept a sign.
    let digits = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let mode = digits.and_then(|text| u32::from_str_radix(text, 8).ok()).filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| build.refuse(text, "permissions in octal digits, such as 0640"))
}

impl FileOutputConfig {
    fn read(&self, build: &mut Build<'_>) -> Result<FileSpec, BuildError> {
        let path = build.at("filename", |build| match &*at_load(&self.filename, build)? {
            "" => Err(build.refuse("nothing", "the name of a file")),
            path => Ok(path.into()),
        })?;
        let mode = match &*self.mode {
            "" => None,
            text => Some(build.at("mode", |build| octal(text, build))?).filter(|mode| *mode != 0),
        };
        let directory_mode = match &*self.dir_mode.trim().to_ascii_lowercase() {
            "" | "0" => DirectoryMode::Private,
            "inherit" => DirectoryMode::Inherit,
            "from_file" => DirectoryMode::FromFile,
            text => DirectoryMode::Fixed(build.at("dir_mode", |build| octal(text, build))?),
        };
        let roll = if self.roll == Some(false) { None } else { Some(self.roll(build)?) };
        Ok(FileSpec { path, mode, directory_mode, roll })
    }

    fn roll(&self, build: &mut Build<'_>) -> Result<RollSpec, BuildError> {
        let or = |value: u64, usual: u64| if value == 0 { usual } else { value };
        let compression = match (&*self.roll_compression.trim().to_ascii_lowercase(), self.roll_gzip) {
            ("none", _) | ("", Some(false)) => Compression::None,
            ("gzip" | "", _) => Compression::Gzip,
            ("zstd", _) => Compression::Zstd,
            (name, _) => {
                return build.at("roll_compression", |build| Err(build.refuse(name, "none, gzip or zstd")));
            }
        };
        let interval = duration("roll_interval", self.roll_interval.as_ref(), build)?;
        let minutes = self.roll_minutes.iter().map(|minute| {
            let valid = u8::try_from(*minute).ok().filter(|minute| *minute < 60);
            valid.ok_or_else(|| build.refuse(minute.to_string(), "minutes of an hour, from 0 to 59"))
        });
        let minutes = minutes.collect::<Result<_, _>>()?;
        let times = self.roll_at.iter().map(|text| {
            let time = text.split_once(':').and_then(|(hour, minute)| {
                let number = |text: &str, end: u8| text.parse().ok().filter(|number| *number < end && text.len() <= 2);
                Some((number(hour, 24)?, number(minute, 60)?))
            });
            time.ok_or_else(|| build.refuse(text, "times of day, such as 00:00"))
        });
        let times = times.collect::<Result<_, _>>()?;
        Ok(RollSpec {
            bytes_max: or(self.roll_size_mb, ROLL_SIZE_MB).saturating_mul(1024 * 1024),
            interval,
            minutes,
            times,
            keep: usize::try_from(or(self.roll_keep, ROLL_KEEP)).unwrap_or(usize::MAX),
            keep_for: DAY.saturating_mul(u32::try_from(or(self.roll_keep_days, ROLL_KEEP_DAYS)).unwrap_or(u32::MAX)),
            compression,
            zone: if self.roll_local_time { Zone::Local } else { Zone::Utc },
            stamp: Some(self.backup_time_format.clone()).filter(|layout| !layout.is_empty()),
        })
    }
}

impl NetOutputConfig {
    // Caddy's documentation, "Network addresses": [network/]host:port or network/path.
    fn read(&self, build: &mut Build<'_>) -> Result<NetSpec, BuildError> {
        const EXPECTED: &str = "host:port, udp/host:port, unix//path or unixgram//path";
        let (network, address) = build.at("address", |build| {
            let text = at_load(&self.address, build)?;
            let refuse = || build.refuse(&*text, EXPECTED);
            let (network, address) = text.split_once('/').unwrap_or(("tcp", &*text));
            let network = match network {
                "tcp" | "tcp4" | "tcp6" => Network::Tcp,
                "udp" | "udp4" | "udp6" => Network::Udp,
                "unix" => Network::Unix,
                "unixgram" => Network::UnixDatagram,
                _ => return Err(refuse()),
            };
            let is_path = matches!(network, Network::Unix | Network::UnixDatagram);
            let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
            if address.is_empty() || (!is_path && port.is_none_or(|port| port == 0)) {
                return Err(refuse());
            }
            // As in Caddy, no host is the local one.
            let host = if !is_path && address.starts_with(':') { "localhost" } else { "" };
            Ok((network, format!("{host}{address}")))
        })?;
        let dial_timeout = duration("dial_timeout", self.dial_timeout.as_ref(), build)?.unwrap_or(DIAL_TIMEOUT);
        Ok(NetSpec { network, address, dial_timeout, soft_start: self.soft_start })
    }
}
