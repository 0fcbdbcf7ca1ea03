//! The loggers of a server's hosts.

use std::borrow::Cow;
use std::collections::BTreeMap;

use causeway_pipeline::Context;

use super::AccessLogConfig;
use crate::logs::{Log, Logs};

/// A logger's name, and the logs that accept its records, by index.
pub(super) struct Logger {
    pub(super) name: Box<str>,
    pub(super) logs: Box<[usize]>,
}

/// The loggers of the hosts that a pattern covers, by index.
type WildcardLoggers = (Box<str>, Box<[usize]>);

/// The loggers of a server, by host.
pub(super) struct HostLoggers {
    /// The default one first.
    pub(super) all: Vec<Logger>,
    /// The loggers of a host, by index.
    names: BTreeMap<Box<str>, Box<[usize]>>,
    /// Those whose names begin with `*`, the one with the fewest stars first.
    wildcards: Box<[WildcardLoggers]>,
    skip_hosts: Box<[String]>,
    skip_unmapped_hosts: bool,
}

impl HostLoggers {
    /// The loggers are `base` itself, and those of the configuration's names below it.
    pub(super) fn new(base: &str, written: &AccessLogConfig, logs: &Logs) -> Self {
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
        let names = written.names.iter().map(|(host, names)| {
            let loggers = names.iter().map(|name| logger(name)).collect();
            (host.to_ascii_lowercase().into(), loggers)
        });
        let (mut wildcards, names): (Vec<_>, Vec<_>) =
            names.partition(|(name, _): &(Box<str>, _)| name.starts_with('*'));
        wildcards.sort_by_key(|(name, _)| name.matches('*').count());
        Self {
            all,
            names: names.into_iter().collect(),
            wildcards: wildcards.into(),
            skip_hosts: written.skip_hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
            skip_unmapped_hosts: written.skip_unmapped_hosts,
        }
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

    /// The loggers of a host are those of its name, or of the name with `*` in place of its first labels.
    fn of_host(&self, host: &str, authority: &str) -> Option<&[usize]> {
        if let Some(found) = self.names.get(host) {
            return Some(found);
        }
        let is_skipped = |skipped: &String| {
            let is_wild = |parent: &str| host.split_once('.').is_some_and(|(_, rest)| rest == parent);
            *skipped == host || skipped == authority || skipped.strip_prefix("*.").is_some_and(is_wild)
        };
        if self.skip_hosts.iter().any(is_skipped) {
            return None;
        }
        if let Some((_, found)) = self.wildcards.iter().find(|(name, _)| covers(name, host)) {
            return Some(found);
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
