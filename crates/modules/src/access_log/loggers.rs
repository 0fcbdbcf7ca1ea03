//! The loggers of a server's hosts, and the logs that they write to.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use causeway_pipeline::context::VarId;
use causeway_pipeline::{Build, BuildError, Context};
use serde_json::Value;

use super::AccessLogConfig;
use super::record::HeaderTable;
use crate::logs::{Entry, Fields, Level, Log, Logs, Output};
use crate::vars::{NAMES_SEPARATOR, SELECTED_LOGGERS};

/// A logger's name, and the logs that accept its records, by index.
struct Logger {
    name: Box<str>,
    logs: Box<[usize]>,
}

/// The loggers of the hosts that a pattern covers, by index.
type WildcardLoggers = (Box<str>, Box<[usize]>);

/// The loggers of a server, by host.
pub(super) struct HostLoggers {
    logs: Arc<Logs>,
    /// Takes the place of standard error.
    stream: Option<Arc<Output>>,
    pub(super) headers: HeaderTable,
    /// The variable with the loggers that `log_name` selects.
    selected: VarId,
    /// The name of the logger above all of them.
    base: &'static str,
    /// The default one first.
    all: Vec<Logger>,
    /// The loggers of a host, by index.
    names: BTreeMap<Box<str>, Box<[usize]>>,
    /// The loggers of host patterns that begin with `*`, the pattern with the fewest stars first.
    wildcards: Box<[WildcardLoggers]>,
    skip_hosts: Box<[String]>,
    skip_unmapped_hosts: bool,
}

impl HostLoggers {
    /// Reads the configuration of a handler, and opens the outputs of its logs. The loggers are `base` itself, and
    /// those of the configuration's names below it.
    ///
    /// # Errors
    /// As [`super::make`].
    pub(super) fn open(
        base: &'static str,
        value: &Value,
        build: &mut Build<'_>,
        stream: Option<Arc<Output>>,
    ) -> Result<Self, BuildError> {
        let written: AccessLogConfig = build.parse_module(value)?;
        let logs = build.at("logs", |build| Logs::open(&written.logs, build))?;
        let mut all = Vec::new();
        let mut logger = |name: &str| {
            let name = if name.is_empty() { base.to_owned() } else { format!("{base}.{name}") };
            if let Some(known) = all.iter().position(|known: &Logger| *known.name == *name) {
                return known;
            }
            let accepts = |(index, log): (usize, &Log)| log.accepts(&name).then_some(index);
            let logs = logs.iter().enumerate().filter_map(accepts).collect();
            all.push(Logger { name: name.into(), logs });
            all.len() - 1
        };
        logger(&written.default);
        // Names that differ only in case are one host, with the loggers of all of them.
        let mut merged = BTreeMap::<Box<str>, Vec<usize>>::new();
        for (host, names) in &written.names {
            let loggers = merged.entry(host.to_ascii_lowercase().into()).or_default();
            for name in names.iter() {
                let index = logger(name);
                if !loggers.contains(&index) {
                    loggers.push(index);
                }
            }
        }
        let names = merged.into_iter().map(|(host, loggers)| (host, loggers.into()));
        let (mut wildcards, names): (Vec<_>, Vec<_>) =
            names.partition(|(name, _): &(Box<str>, _)| name.starts_with('*'));
        wildcards.sort_by_key(|(name, _)| name.matches('*').count());
        let names = names.into_iter().collect();
        Ok(Self {
            logs,
            stream,
            headers: HeaderTable::new(written.credentials),
            selected: build.allocate_slot(SELECTED_LOGGERS),
            base,
            all,
            names,
            wildcards: wildcards.into(),
            skip_hosts: written.skip_hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
            skip_unmapped_hosts: written.skip_unmapped_hosts,
        })
    }

    /// Returns whether a log takes entries of a level: of the loggers `hosts`, or of those that `log_name` has set.
    pub(super) fn takes(&self, cx: &Context, hosts: &[usize], level: Level) -> bool {
        let mut takes = false;
        self.each_log(cx, hosts, |_, log| takes |= level >= log.level());
        takes
    }

    /// Writes an entry of the loggers `hosts`, or of those that `log_name` has set.
    pub(super) fn write(&self, cx: &Context, hosts: &[usize], level: Level, message: &str, fields: &dyn Fields) {
        let time = cx.worker().wall();
        self.each_log(cx, hosts, |logger, log| {
            if level >= log.level() {
                log.write_of_request(self.stream.as_deref(), &Entry { level, time, logger, message, fields });
            }
        });
    }

    /// Returns the loggers of a request's host, by index; `None` if its requests have no records.
    pub(super) fn of(&self, cx: &Context) -> Option<&[usize]> {
        if self.names.is_empty() && self.wildcards.is_empty() && self.skip_hosts.is_empty() {
            return (!self.skip_unmapped_hosts).then_some(&[0]);
        }
        let lower = |text: &str| -> Option<String> {
            text.bytes().any(|byte| byte.is_ascii_uppercase()).then(|| text.to_ascii_lowercase())
        };
        let authority = cx.original().authority().unwrap_or_default();
        let authority = lower(authority).map_or(Cow::Borrowed(authority), Cow::Owned);
        let host = authority.rsplit_once(':').filter(|(name, _)| !name.ends_with(':') && !name.ends_with('['));
        let host = host.filter(|(_, port)| !port.ends_with(']')).map_or(&*authority, |(name, _)| name);
        self.of_host(host.trim_matches(['[', ']']), &authority)
    }

    /// Calls `each` with each logger's name and the logs that accept its records.
    fn each_log(&self, cx: &Context, hosts: &[usize], mut each: impl FnMut(&str, &Log)) {
        let mut of = |logger: &Logger| logger.logs.iter().for_each(|index| each(&logger.name, self.logs.get(*index)));
        let Some(names) = cx.variable(self.selected) else {
            return hosts.iter().for_each(|index| of(&self.all[*index]));
        };
        for name in names.split(|byte| *byte == NAMES_SEPARATOR) {
            let name = String::from_utf8_lossy(name);
            let known = self.all.iter().find(|logger| match logger.name.strip_prefix(self.base) {
                Some("") => name.is_empty(),
                Some(below) => below.strip_prefix('.') == Some(&*name),
                None => false,
            });
            if let Some(logger) = known {
                of(logger);
                continue;
            }
            // A name that no site of the server has; rare, so that its logs are looked up here.
            let name = if name.is_empty() { self.base.to_owned() } else { format!("{}.{name}", self.base) };
            let accepting = self.logs.iter().enumerate().filter(|(_, log)| log.accepts(&name));
            of(&Logger { logs: accepting.map(|(index, _)| index).collect(), name: name.clone().into() });
        }
    }

    /// The loggers of a host are those of its name, or of the name with `*` in place of its first labels. As in Caddy,
    /// a host with loggers is not skipped.
    fn of_host(&self, host: &str, authority: &str) -> Option<&[usize]> {
        if let Some(found) = self.names.get(host) {
            return Some(found);
        }
        if let Some((_, found)) = self.wildcards.iter().find(|(name, _)| covers(name, host)) {
            return Some(found);
        }
        let is_skipped = |skipped: &String| skipped == authority || covers(skipped, host);
        if self.skip_hosts.iter().any(is_skipped) {
            return None;
        }
        (!self.skip_unmapped_hosts).then_some(&[0])
    }
}

/// Returns whether a name with `*` in place of its first labels covers a host.
fn covers(name: &str, host: &str) -> bool {
    let (mut labels, mut hosts) = (name.split('.'), host.split('.'));
    let mut is_leading = true;
    loop {
        match (labels.next(), hosts.next()) {
            (None, None) => return true,
            (Some("*"), Some(label)) if is_leading && !label.is_empty() => {}
            (Some(one), Some(two)) if one == two => is_leading = false,
            _ => return false,
        }
    }
}
