//! The directive `log` and the global option `log`.
//!
//! - [`directive`], [`option`]: parse the lines of either into a [`Logger`]
//! - [`ServerLogs`]: assigns loggers to a server's hosts
//! - [`configuration`]: combines all loggers into the configuration's `logging`
//! - `writer`, `encoder`, `filter`: the output, format and field filters of a logger

mod encoder;
mod filter;
mod writer;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::address::Address;
use super::dispenser::Dispenser;
use super::error::{Error, ErrorKind};
use super::quantity::integer;
use super::registry::DirectiveOutput;
use super::{EvaluatedSite, Session};
use causeway_pipeline::build::nanoseconds;

/// The logger for all entries that no other logger includes.
const DEFAULT: &str = "default";

/// A logger of a site or of the global block.
#[derive(Debug, Clone, PartialEq)]
pub struct Logger {
    /// Empty if the logger has neither a name nor options.
    name: String,
    /// The hosts that it logs, in place of the site's.
    hosts: Vec<String>,
    selection: LoggerSelection,
    /// Its configuration; `None` if it has no options.
    log: Option<Map<String, Value>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LoggerSelection {
    Hosts,
    /// `no_hostname`: used only by requests that select it by name.
    Named,
}

/// The block that contains a `log`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LogScope {
    Site,
    Global,
}

/// Parses `log [<name>] { hostnames …; output …; format …; level …; sampling { … }; core …; queue_full …; no_hostname
/// }`.
pub(super) fn directive(d: &mut Dispenser<'_>) -> Result<Vec<DirectiveOutput>, Error> {
    let name = d.argument().map_or("", |token| &*token.text);
    d.expect_no_argument()?;
    let mut logger = read(d, name, LogScope::Site)?;
    // Only a logger with options of its own needs a name to refer to it.
    if logger.name.is_empty() && logger.log.is_some() {
        logger.name = d.next_log_name();
    }
    if let (false, Some(log)) = (logger.name.is_empty(), &mut logger.log) {
        log.insert("include".into(), json!([format!("http.log.access.{}", logger.name)]));
    }
    Ok(vec![DirectiveOutput::Log(logger)])
}

/// Parses the global option: no `hostnames`, but `include` and `exclude`. The name must differ from those in `before`.
pub(super) fn option(d: &mut Dispenser<'_>, before: &[Logger]) -> Result<Logger, Error> {
    let name = d.argument().map_or(DEFAULT, |token| &*token.text);
    d.expect_no_argument()?;
    if before.iter().any(|other| other.name == name) {
        let kind = ErrorKind::Word { rule: "duplicate global log option for: {}", found: name.into() };
        return Err(Error::at(d.last(), kind));
    }
    let logger = read(d, name, LogScope::Global)?;
    if logger.log.is_none() {
        d.warn(d.last(), format!("the logger '{name}' has no options, so it has no effect"));
    }
    Ok(logger)
}

fn read(d: &Dispenser<'_>, name: &str, place: LogScope) -> Result<Logger, Error> {
    const OPTIONS: &[&str] =
        &["core", "format", "hostnames", "level", "no_hostname", "output", "queue_full", "sampling"];
    const GLOBAL_OPTIONS: &[&str] =
        &["core", "exclude", "format", "include", "level", "output", "queue_full", "sampling"];
    let mut logger = Logger { name: name.to_owned(), hosts: Vec::new(), selection: LoggerSelection::Hosts, log: None };
    let mut log = Map::new();
    let mut seen = BTreeSet::new();
    for mut line in d.lines() {
        let option = &*line.name().text;
        let single =
            matches!(option, "core" | "format" | "level" | "no_hostname" | "output" | "queue_full" | "sampling");
        if single && !seen.insert(option) {
            return Err(line.word("'{}' subdirective specified more than once in the same log block"));
        }
        match (option, place) {
            ("hostnames", LogScope::Site) => {
                line.require()?;
                logger.hosts.extend(line.arguments().iter().map(|token| token.text.to_string()));
            }
            ("hostnames", LogScope::Global) => {
                return Err(line.rule("hostnames is not allowed in the log global options"));
            }
            ("output", _) => {
                log.insert("writer".into(), writer::writer(&mut line)?);
            }
            ("format", _) => {
                log.insert("encoder".into(), encoder::encoder(&mut line)?);
            }
            ("core", _) => {
                log.insert("core".into(), core(&mut line)?);
            }
            ("sampling", _) => {
                log.insert("sampling".into(), sampling(&line)?);
            }
            ("level", _) => {
                let level = line.require()?;
                line.expect_no_argument()?;
                if !level.text.is_empty() {
                    log.insert("level".into(), (*level.text).into());
                }
            }
            // Ours: whether a full queue drops lines or blocks the requests that write them.
            ("queue_full", _) => match &*line.sole_argument()?.text {
                policy @ ("drop" | "wait") => drop(log.insert("queue_full".into(), policy.into())),
                _ => return Err(line.word("unrecognized queue_full policy '{}': expected drop or wait")),
            },
            ("include" | "exclude", LogScope::Global) => {
                let names = line.rest().iter().map(|token| Value::from(&*token.text));
                if let Value::Array(list) = log.entry(option).or_insert_with(|| json!([])) {
                    list.extend(names);
                }
            }
            ("include", _) => return Err(line.rule("include is not allowed in the log directive")),
            ("exclude", _) => return Err(line.rule("exclude is not allowed in the log directive")),
            ("no_hostname", _) => {
                line.expect_no_argument()?;
                logger.selection = LoggerSelection::Named;
            }
            _ => {
                let expected = if place == LogScope::Site { OPTIONS } else { GLOBAL_OPTIONS };
                return Err(line.unknown("unrecognized subdirective: {}", expected));
            }
        }
    }
    log.retain(|_, value| value.as_array().is_none_or(|list| !list.is_empty()));
    logger.log = (!log.is_empty()).then_some(log);
    Ok(logger)
}

/// Parses `core <module>`. Caddy has one module, for its own tests.
fn core(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    match &*d.require()?.text {
        "mock" => Ok(json!({ "module": "mock" })),
        _ => Err(d.unknown_module("getting module named 'caddy.logging.cores.{}': module not registered", &["mock"])),
    }
}

/// Parses `sampling { interval …; first …; thereafter … }`.
fn sampling(d: &Dispenser<'_>) -> Result<Value, Error> {
    let mut sampling = Map::new();
    let mut seen = BTreeSet::new();
    for mut line in d.lines() {
        let name = &*line.name().text;
        if !seen.insert(name) {
            return Err(line.word("'{}' specified more than once in the same sampling block"));
        }
        let number = match name {
            "interval" => nanoseconds(&line.require()?.text)
                .ok_or_else(|| line.word("failed to parse interval: '{}' is no duration; expected one such as 1s"))?,
            "first" => integer(&line.require()?.text)
                .ok_or_else(|| line.word("failed to parse first: '{}' is no number; expected one such as 100"))?,
            "thereafter" => integer(&line.require()?.text)
                .ok_or_else(|| line.word("failed to parse thereafter: '{}' is no number; expected one such as 100"))?,
            _ => return Err(line.unknown("unrecognized subdirective: {}", &["first", "interval", "thereafter"])),
        };
        line.expect_no_argument()?;
        if number != 0 {
            sampling.insert(name.to_owned(), number.into());
        }
    }
    Ok(sampling.into())
}

/// Warns of loggers without effect: as in Caddy, a site without host names uses only its last logger.
pub(super) fn warn_of_unused(site: &EvaluatedSite, session: &Session<'_>) {
    // With a host, each logger counts on the server of that host.
    if site.addresses.iter().any(|address| !address.host.is_empty()) {
        return;
    }
    let of_site = site.outputs.iter().filter_map(|placed| match &placed.output {
        DirectiveOutput::Log(logger) if logger.selection == LoggerSelection::Hosts && logger.hosts.is_empty() => {
            Some(&placed.at)
        }
        _ => None,
    });
    let mut unused = Vec::from_iter(of_site);
    unused.pop();
    for at in unused {
        session.warn_at(at, "a site without host names uses only its last log, so this one has no effect".to_owned());
    }
}

/// A server's `logs`, while its sites are added.
#[derive(Debug, Default)]
pub(super) struct ServerLogs {
    default: String,
    names: Map<String, Value>,
    skip: BTreeSet<String>,
    skip_others: bool,
}

impl ServerLogs {
    /// Adds a site by its addresses on this server and its loggers. If any site of a server is logged, the hosts of the
    /// other sites must be skipped explicitly.
    pub(super) fn site<'a, 'b>(
        &mut self,
        addresses: impl Iterator<Item = &'a Address>,
        loggers: impl Iterator<Item = &'b Logger>,
    ) {
        let mut hosts = BTreeSet::new();
        let mut every_host = false;
        for address in addresses {
            // Caddy omits the standard ports in `skip_hosts`.
            let port = if matches!(&*address.port, "80" | "443") { "" } else { &*address.port };
            if address.host.is_empty() {
                every_host = true;
            } else {
                hosts.insert((&*address.host, port));
            }
        }
        let mut logged = false;
        for logger in loggers {
            logged = true;
            if logger.selection == LoggerSelection::Named {
                continue;
            }
            if every_host && logger.hosts.is_empty() {
                self.default.clone_from(&logger.name);
            } else if logger.hosts.is_empty() {
                hosts.iter().for_each(|(host, _)| self.name(host, logger));
            } else {
                logger.hosts.iter().for_each(|host| self.name(host, logger));
            }
        }
        if !logged {
            self.skip_others |= every_host;
            self.skip.extend(hosts.into_iter().map(|(host, port)| match (port, host.contains(':')) {
                ("", _) => host.to_owned(),
                (_, true) => format!("[{host}]:{port}"),
                (_, false) => format!("{host}:{port}"),
            }));
        }
    }

    fn name(&mut self, host: &str, logger: &Logger) {
        if let Value::Array(names) = self.names.entry(host).or_insert_with(|| json!([])) {
            names.push(logger.name.as_str().into());
        }
    }

    pub(super) fn json(self) -> Map<String, Value> {
        let mut logs = Map::new();
        if !self.default.is_empty() {
            logs.insert("default_logger_name".into(), self.default.into());
        }
        if !self.names.is_empty() {
            logs.insert("logger_names".into(), self.names.into());
        }
        if !self.skip.is_empty() {
            logs.insert("skip_hosts".into(), self.skip.into_iter().collect());
        }
        if self.skip_others {
            logs.insert("skip_unmapped_hosts".into(), true.into());
        }
        logs
    }
}

/// The configuration's `logs`: the global loggers, then the sites' in the order of their servers. Entries that a named
/// logger includes are excluded from the default logger.
pub(super) fn configuration<'a>(
    global: &'a [Logger],
    sites: impl Iterator<Item = &'a Logger>,
    debug: bool,
) -> Map<String, Value> {
    let level = |log: &Map<String, Value>| {
        let mut log = log.clone();
        if debug {
            log.entry("level").or_insert_with(|| "DEBUG".into());
        }
        log
    };
    let mut logs = Map::new();
    let mut excluded = BTreeSet::new();
    let mut default = None;
    if debug && global.iter().all(|logger| logger.name != DEFAULT) {
        default = Some(level(&Map::new()));
    }
    for logger in global.iter().chain(sites).filter(|logger| !logger.name.is_empty()) {
        let Some(log) = &logger.log else { continue };
        if logger.name == DEFAULT {
            default.get_or_insert_with(|| level(log));
            continue;
        }
        let included = log.get("include").and_then(Value::as_array).into_iter().flatten();
        excluded.extend(included.filter_map(|name| Some(name.as_str()?.to_owned())));
        logs.insert(logger.name.clone(), level(log).into());
    }
    if !excluded.is_empty() {
        let default = default.get_or_insert_default();
        let own = default.get("exclude").and_then(Value::as_array).into_iter().flatten();
        excluded.extend(own.filter_map(|name| Some(name.as_str()?.to_owned())));
        default.insert("exclude".into(), excluded.into_iter().collect());
    }
    if let Some(default) = default {
        logs.insert(DEFAULT.into(), default.into());
    }
    logs
}
