//! The handler's JSON: the members of the plugin `cache-handler` that apply here, and `memory`.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use causeway_message::OwnedValue;
use causeway_pipeline::build::DurationConfig;
use causeway_pipeline::{Build, BuildError};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::CacheRules;
use super::disk::{DiskBounds, DiskHandle};
use super::key::{KeyConfig, KeyRules};
use super::status;
use super::store::{RECEIVING_DIVISOR, Store};
use super::stored::StoringRules;
use super::tiers::Tiers;
use crate::regexp::WorkerRegex;
use crate::rendered::with_field_value;

/// The plugin's default of `ttl`.
const TTL: Duration = Duration::from_secs(120);
/// Default of `memory`, in bytes.
const MEMORY: u64 = 128 << 20;
/// Default of `max_cacheable_body_bytes`.
const BODY_BYTES_MAX: u64 = 8 << 20;
/// Default of `directory_size`, in bytes.
const DIRECTORY_BYTES_MAX: u64 = 1 << 30;
/// The name in Cache-Status without `cache_name`.
const NAME: &str = "Causeway";

/// Members of the plugin that choose where responses are stored, or that other services answer.
const NOT_SUPPORTED: [&str; 13] = [
    "api",
    "badger",
    "cache_keys",
    "cdn",
    "distributed",
    "etcd",
    "nats",
    "nuts",
    "olric",
    "otter",
    "redis",
    "storers",
    "timeout",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CacheConfig {
    ttl: Option<DurationConfig>,
    stale: Option<DurationConfig>,
    #[serde(default)]
    default_cache_control: String,
    #[serde(default)]
    cache_name: String,
    #[serde(default)]
    allowed_http_verbs: Vec<String>,
    #[serde(default)]
    allowed_additional_status_codes: Vec<u16>,
    max_cacheable_body_bytes: Option<u64>,
    #[serde(default)]
    key: KeyConfig,
    #[serde(default)]
    headers: Vec<String>,
    #[serde(default)]
    mode: String,
    #[serde(default)]
    regex: RegexConfig,
    #[serde(default)]
    disable_coalescing: bool,
    /// The memory of stored responses, in bytes.
    memory: Option<u64>,
    simplefs: Option<DirectoryConfig>,
}

/// The plugin's storage in files.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DirectoryConfig {
    path: String,
    #[serde(default)]
    configuration: DirectoryBounds,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct DirectoryBounds {
    /// The number of files; 0 is no bound.
    #[serde(default)]
    size: usize,
    /// Their bytes; 0 is the default.
    #[serde(default)]
    directory_size: u64,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RegexConfig {
    #[serde(default)]
    exclude: String,
}

/// Opens the directory. `None` if the plan is only checked: its files may be a running server's.
fn open(
    written: &DirectoryConfig,
    key: &KeyRules,
    build: &mut Build<'_>,
) -> Result<Option<Arc<DiskHandle>>, BuildError> {
    if written.path.is_empty() {
        return build.at("path", |build| Err(build.refuse("nothing", "the path of a directory")));
    }
    if !key.is_lasting() {
        let expected = "keys with the host and without a template: other keys are not distinct in another process";
        return Err(build.refuse(&written.path, expected));
    }
    let DirectoryBounds { size, directory_size } = written.configuration;
    let bounds = DiskBounds {
        bytes: if directory_size == 0 { DIRECTORY_BYTES_MAX } else { directory_size },
        files: if size == 0 { usize::MAX } else { size },
    };
    let directory = Path::new(&written.path);
    if build.is_check_only() {
        let is_other = match std::fs::metadata(directory) {
            Ok(found) => !found.is_dir(),
            Err(error) => error.kind() == io::ErrorKind::NotADirectory,
        };
        return match is_other {
            true => build.at("path", |build| Err(build.refuse(&written.path, "a directory"))),
            false => agree(directory, bounds, build).map(|()| None),
        };
    }
    let disk = DiskHandle::open(directory).or_else(|error| {
        build.at("path", |build| {
            Err(build.refuse(&written.path, format!("a directory that can be written to: {error}")))
        })
    })?;
    agree(directory, bounds, build)?;
    // Each worker sets the bounds when it gets the plan: one that is refused must not change those of the running
    // server.
    let of_plan = Arc::clone(&disk);
    build.allocate_state(move |_| of_plan.set_bounds(bounds));
    Ok(Some(disk))
}

/// The bounds of each directory of a plan.
type DirectoriesOfPlan = HashMap<PathBuf, DiskBounds>;

/// The number of a plan's caches.
#[derive(Default)]
struct CachesOfPlan(u32);

/// Refuses a directory for which another handler of the plan has other bounds.
fn agree(directory: &Path, bounds: DiskBounds, build: &mut Build<'_>) -> Result<(), BuildError> {
    // When a plan is only checked, the directory may not exist yet.
    let directory = std::fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    let other = *build.shared::<DirectoriesOfPlan>().entry(directory.clone()).or_insert(bounds);
    if other == bounds {
        return Ok(());
    }
    let shown = |bounds: DiskBounds| match bounds.files {
        usize::MAX => format!("'directory_size' {}", bounds.bytes),
        files => format!("'size' {files}, 'directory_size' {}", bounds.bytes),
    };
    let expected = format!("{}, as another handler has for the directory '{}'", shown(other), directory.display());
    build.at("configuration", |build| Err(build.refuse(shown(bounds), expected)))
}

/// Reads the handler's members, and those of the app for members that it does not have.
pub(super) fn read(value: &Value, build: &mut Build<'_>) -> Result<CacheRules, BuildError> {
    let members = members(value, build)?;
    let written: CacheConfig = build.parse_module(&Value::Object(members))?;
    if let Some(verb) = written.allowed_http_verbs.iter().find(|verb| !matches!(verb.as_str(), "GET" | "HEAD")) {
        return build.at("allowed_http_verbs", |build| {
            Err(build.refuse(verb, "GET or HEAD: responses to other methods are not stored"))
        });
    }
    let honors_request_directives = build.at("mode", |build| honors_request_directives(&written.mode, build))?;
    let duration = |key: &str, written: &Option<DurationConfig>, default, build: &mut Build<'_>| match written {
        Some(written) => build.at(key, |build| written.duration(build)),
        None => Ok(default),
    };
    let memory = written.memory.unwrap_or(MEMORY);
    let body_bytes_max = build
        .at("max_cacheable_body_bytes", |build| body_bytes_max(written.max_cacheable_body_bytes, memory, build))?;
    let mut control = None;
    if !written.default_cache_control.is_empty() {
        with_field_value(written.default_cache_control.as_bytes(), |value| control = Some(OwnedValue::from(value)));
    }
    let key = build.at("key", |build| KeyRules::build(written.key, &written.headers, build))?;
    let disk = match &written.simplefs {
        None => None,
        Some(directory) => build.at("simplefs", |build| open(directory, &key, build))?,
    };
    let name = if written.cache_name.is_empty() { NAME } else { &written.cache_name };
    let Some(name) = status::name(name) else {
        return build.at("cache_name", |build| Err(build.refuse(name, "at most 64 visible ASCII characters")));
    };
    let excluded = match &*written.regex.exclude {
        "" => None,
        pattern => Some(build.at("regex.exclude", |build| WorkerRegex::compile(pattern, build))?),
    };
    let CachesOfPlan(count) = build.shared();
    *count += 1;
    let number = *count;
    Ok(CacheRules {
        tiers: Tiers { store: Store::of(usize::try_from(memory).unwrap_or(usize::MAX)), disk },
        key,
        storing: StoringRules {
            ttl: duration("ttl", &written.ttl, TTL, build)?,
            statuses: written.allowed_additional_status_codes.into(),
            body_bytes_max,
        },
        stale: duration("stale", &written.stale, Duration::ZERO, build)?,
        control,
        name,
        excluded,
        coalesces: !written.disable_coalescing,
        honors_request_directives,
        fetch: build.allocate_local(),
        refresh: build.allocate_local(),
        refreshes: build.allocate_state(|_| Rc::default()),
        number,
        passed: build.allocate_slot("http.cache.passed"),
    })
}

/// Returns the handler's members and the app's. Refuses those of the plugin that are not supported.
fn members(value: &Value, build: &mut Build<'_>) -> Result<Map<String, Value>, BuildError> {
    let mut members = value.as_object().cloned().unwrap_or_else(Map::new);
    for (key, value) in build.app("cache").and_then(Value::as_object).into_iter().flatten() {
        if key == "handler" {
            return Err(build.refuse(key, "settings in the app 'cache', which names no handler"));
        }
        members.entry(key.clone()).or_insert_with(|| value.clone());
    }
    for name in NOT_SUPPORTED {
        if members.get(name).is_some_and(|value| !value.is_null()) {
            let expected = "nothing: this is not supported; docs/cache.md lists the parts of the plugin that are";
            return build.at(name, |build| Err(build.refuse(name, expected)));
        }
    }
    Ok(members)
}

/// Returns whether a request's directives count in this mode.
fn honors_request_directives(mode: &str, build: &Build<'_>) -> Result<bool, BuildError> {
    match mode {
        "" | "strict" => Ok(true),
        "bypass_request" => Ok(false),
        other => Err(build.refuse(other, "'strict' or 'bypass_request': the directives of responses always count")),
    }
}

/// Returns the largest body that is stored. No recording of a longer one than the bound on all of them would ever end.
fn body_bytes_max(written: Option<u64>, memory: u64, build: &Build<'_>) -> Result<u64, BuildError> {
    let most = memory / RECEIVING_DIVISOR as u64;
    let bytes = written.filter(|bytes| *bytes > 0).unwrap_or(BODY_BYTES_MAX.min(most));
    if bytes > most {
        let expected =
            format!("at most {most}, a quarter of 'memory', which all responses share while they are received");
        return Err(build.refuse(bytes.to_string(), expected));
    }
    Ok(bytes)
}
