//! Lifetimes of stored responses by status: `proxy_cache_valid`.

use std::collections::{BTreeMap, BTreeSet};

use crate::parse::Directive;
use crate::translate::units::seconds;
use crate::translate::{Translator, inherited};

/// Lifetimes of responses without one of their own, by status.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Lifetimes {
    /// `ttl`, in seconds.
    pub(super) ttl: u64,
    /// `allowed_additional_status_codes`.
    pub(super) additional: Vec<u16>,
    /// Statuses with other lifetimes, by seconds; 0 for those that nginx does not store.
    pub(super) others: BTreeMap<u64, Vec<u16>>,
}

impl Lifetimes {
    /// Takes the rules of `proxy_cache_valid` in their order, of which the first for a status counts; `None` is `any`.
    fn of(rules: &[(Option<u16>, u64)]) -> Self {
        let time_of = |status: u16| {
            let rule = rules.iter().find(|(code, _)| code.is_none_or(|code| code == status));
            rule.map_or(0, |(_, time)| *time)
        };
        let first = rules.iter().map(|(_, time)| *time).find(|time| *time > 0).unwrap_or(0);
        let ttl = Some(time_of(200)).filter(|time| *time > 0).unwrap_or(first);
        let mut lifetimes = Self { ttl, ..Self::default() };
        let listed = rules.iter().filter_map(|(code, _)| *code);
        let statuses: BTreeSet<u16> = listed.chain(ANY.iter().copied()).filter(|code| !NEVER.contains(code)).collect();
        for status in statuses {
            let (time, is_default) = (time_of(status), BY_DEFAULT.contains(&status));
            if time == ttl {
                if ttl > 0 && !is_default {
                    lifetimes.additional.push(status);
                }
            } else if time > 0 || is_default {
                lifetimes.others.entry(time).or_default().push(status);
            }
        }
        lifetimes
    }
}

impl Translator<'_> {
    pub(super) fn read_lifetimes(&mut self, out: &mut Vec<String>, pass: &str, blocks: &[&Directive]) -> Lifetimes {
        let mut rules = Vec::new();
        for valid in inherited(blocks, &format!("{pass}_cache_valid")) {
            let Some((time, codes)) = valid.arguments.split_last() else { continue };
            let Some(time) = seconds(time) else {
                self.note(out, valid, "found no duration at its end");
                continue;
            };
            if codes.is_empty() {
                rules.extend([200, 301, 302].map(|code| (Some(code), time)));
            }
            for code in codes {
                match code.parse::<u16>() {
                    _ if code == "any" => rules.push((None, time)),
                    Ok(code) if NEVER.contains(&code) => {
                        self.note(
                            out,
                            valid,
                            &format!(
                                "responses with {code} depend on fields that are not in the key, and are not stored"
                            ),
                        );
                    }
                    Ok(code) => rules.push((Some(code), time)),
                    Err(_) => self.note(out, valid, &format!("found '{code}', expected a status or 'any'")),
                }
            }
        }
        Lifetimes::of(&rules)
    }
}

/// Writes seconds with the largest unit that needs no fraction.
pub(super) fn duration(seconds: u64) -> String {
    let units = [(86400, "d"), (3600, "h"), (60, "m")];
    let unit = units.iter().find(|(unit, _)| seconds > 0 && seconds.is_multiple_of(*unit));
    unit.map_or_else(|| format!("{seconds}s"), |(unit, name)| format!("{}{name}", seconds / unit))
}

pub(super) fn list(statuses: &[u16]) -> String {
    statuses.iter().map(u16::to_string).collect::<Vec<_>>().join(" ")
}

/// Statuses that `cache` stores with its `ttl`, without a lifetime of their own (docs/cache.md).
const BY_DEFAULT: &[u16] = &[200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501];

/// Statuses that `cache` never stores, since they depend on request fields that are not part of a key.
const NEVER: &[u16] = &[206, 304, 400, 412, 416, 417, 426, 431];

/// The statuses of `any` in `proxy_cache_valid`, without those that are never stored.
const ANY: &[u16] = &[
    200, 201, 202, 203, 204, 300, 301, 302, 303, 307, 308, 401, 402, 403, 404, 405, 406, 407, 408, 409, 410, 411, 413,
    414, 415, 421, 422, 423, 424, 425, 428, 429, 451, 500, 501, 502, 503, 504,
];

#[cfg(test)]
mod tests {
    use super::*;

    // nginx's documentation of `proxy_cache_valid`: the first rule for a status counts, and `any` is for all.
    #[test]
    fn lifetimes_by_status() {
        let rules = [(Some(200), 600), (Some(302), 600), (Some(404), 60)];
        let lifetimes = Lifetimes::of(&rules);
        assert_eq!((lifetimes.ttl, &*lifetimes.additional), (600, &[302][..]));
        let rest = vec![203, 204, 300, 301, 308, 405, 410, 414, 501];
        assert_eq!(lifetimes.others, BTreeMap::from([(0, rest), (60, vec![404])]));

        let lifetimes = Lifetimes::of(&[(Some(200), 60), (None, 5)]);
        assert_eq!((lifetimes.ttl, lifetimes.additional.len()), (60, 0));
        assert!(lifetimes.others[&5].contains(&500) && !lifetimes.others[&5].contains(&200));

        let lifetimes = Lifetimes::of(&[(None, 5), (Some(200), 60)]);
        assert_eq!((lifetimes.ttl, lifetimes.others.len()), (5, 0));
        assert!(lifetimes.additional.contains(&302) && !lifetimes.additional.contains(&404));

        assert_eq!(Lifetimes::of(&[]), Lifetimes::default());
        let lifetimes = Lifetimes::of(&[(Some(404), 60)]);
        assert_eq!(lifetimes.ttl, 60);
        assert!(lifetimes.others[&0].contains(&200));
    }

    #[test]
    fn durations() {
        assert_eq!([0, 1, 60, 90, 7200, 86400].map(duration), ["0s", "1s", "1m", "90s", "2h", "1d"]);
    }
}
