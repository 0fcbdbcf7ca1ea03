//! Parameters of a profile. A query and a JSON body use one set of names.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Formatter;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

/// Longest profile.
const SECONDS_MAX: f64 = 3600.0;
/// Largest share of the run time that profiling may cost.
const BUDGET_MAX: f64 = 0.25;
/// The names listed in the message about an unknown name.
const NAMES: &str = "seconds, budget, mode, targets, progress, seed";

/// Longest quotation of a client's text in an error message, in characters.
const FOUND_MAX: usize = 80;

/// The parameters of a profile.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::admin) struct ProfileOptions {
    pub(super) seconds: Duration,
    /// Largest share of the run time that profiling may cost.
    pub(super) budget: Option<f64>,
    pub(super) modes: ProfileModes,
    /// Only targets with these names, or with names that contain them. Empty: all targets.
    pub(super) targets: Vec<String>,
    /// Progress points to report, instead of the server's default.
    pub(super) progress: Vec<String>,
    pub(super) seed: Option<u64>,
}

/// The method of measuring gains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::admin) enum ProfileModes {
    #[default]
    Both,
    Screen,
    Confirm,
}

impl Default for ProfileOptions {
    fn default() -> Self {
        Self {
            seconds: Duration::from_secs(30),
            budget: None,
            modes: ProfileModes::Both,
            targets: Vec::new(),
            progress: Vec::new(),
            seed: None,
        }
    }
}

impl ProfileOptions {
    /// Parses a query such as `seconds=30&target=a&target=b`.
    pub(super) fn from_query(query: &str) -> Result<Self, String> {
        let mut options = Self::default();
        for (key, value) in pairs(query) {
            options.set(&key, &value)?;
        }
        let is_single = |key: &String| !matches!(&**key, "target" | "targets" | "progress");
        check_distinct(pairs(query).map(|(key, _)| key).filter(is_single))?;
        Ok(options)
    }

    /// Parses a body such as `{"seconds": 30, "targets": ["a", "b"]}`. An empty body means `{}`.
    pub(super) fn from_json(text: &[u8]) -> Result<Self, String> {
        let mut options = Self::default();
        if text.iter().all(u8::is_ascii_whitespace) {
            return Ok(options);
        }
        let value: Value =
            serde_json::from_slice(text).map_err(|error| format!("decoding request body: {error}, expected JSON"))?;
        let Value::Object(object) = value else {
            return Err(format!("found {}, expected an object with some of {NAMES}", clipped(&value.to_string())));
        };
        for (key, value) in &object {
            // Convert scalars to text, so that queries and JSON share one parser.
            let mut set = |value: &Value| match value {
                Value::String(text) => options.set(key, text),
                Value::Number(number) => options.set(key, &number.to_string()),
                // As if it were not there, but a wrong name is wrong with any value.
                Value::Null if key == "target" || NAMES.split(", ").any(|name| name == key) => Ok(()),
                Value::Null => options.set(key, ""),
                other => {
                    let (key, found) = (clipped(key), other.to_string());
                    Err(format!("{key}: found {}, expected a string or a number", clipped(&found)))
                }
            };
            match (&**key, value) {
                ("target" | "targets" | "progress", Value::Array(values)) => values.iter().try_for_each(&mut set)?,
                _ => set(value)?,
            }
        }
        // A second time for the names: of members with one name, `Value` has the last.
        let MemberNames(names) =
            serde_json::from_slice(text).map_err(|error| format!("decoding request body: {error}, expected JSON"))?;
        check_distinct(names.into_iter())?;
        Ok(options)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let wrong = |expected: &str| format!("{key}: found '{}', expected {expected}", clipped(value));
        match key {
            "seconds" => {
                let seconds = value.strip_suffix('s').unwrap_or(value).parse().ok();
                let seconds = seconds.filter(|seconds| (0.5..=SECONDS_MAX).contains(seconds));
                let seconds = seconds.ok_or_else(|| wrong("a number of seconds from 0.5 to 3600"))?;
                self.seconds = Duration::from_secs_f64(seconds);
            }
            "budget" => {
                let part = match value.strip_suffix('%') {
                    Some(percent) => percent.trim().parse().map(|percent: f64| percent / 100.0),
                    None => value.parse(),
                };
                let part = part.ok().filter(|part| *part > 0.0 && *part <= BUDGET_MAX);
                self.budget = Some(part.ok_or_else(|| wrong("a part of the time up to a quarter, as in 3% or 0.03"))?);
            }
            "mode" => {
                self.modes = match value {
                    "both" => ProfileModes::Both,
                    "screen" => ProfileModes::Screen,
                    "confirm" => ProfileModes::Confirm,
                    _ => return Err(wrong("one of both, screen, confirm")),
                }
            }
            "seed" => self.seed = Some(value.parse().map_err(|_| wrong("a whole number from 0 to 2^64-1"))?),
            "target" | "targets" if value.is_empty() => return Err(wrong("a target's name or a part of it")),
            "target" | "targets" => self.targets.push(value.to_owned()),
            "progress" if value.is_empty() => return Err(wrong("a progress point's name")),
            "progress" => self.progress.push(value.to_owned()),
            _ => return Err(format!("found '{}', expected one of {NAMES}", clipped(key))),
        }
        Ok(())
    }
}

/// Returns an error if a name occurs twice: the first of its values would have no effect.
pub(super) fn check_distinct(names: impl Iterator<Item = String>) -> Result<(), String> {
    let mut seen = HashSet::new();
    for name in names {
        if let Some(name) = seen.replace(name) {
            return Err(format!("{}: found twice, expected once", clipped(&name)));
        }
    }
    Ok(())
}

/// The names of an object's members, in their order and with repetitions.
struct MemberNames(Vec<String>);

impl<'de> Deserialize<'de> for MemberNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NamesVisitor;
        impl<'de> Visitor<'de> for NamesVisitor {
            type Value = MemberNames;

            fn expecting(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<MemberNames, A::Error> {
                let mut names = Vec::new();
                while let Some((name, IgnoredAny)) = members.next_entry()? {
                    names.push(name);
                }
                Ok(MemberNames(names))
            }
        }
        deserializer.deserialize_map(NamesVisitor)
    }
}

/// Shortens a client's text for quotation in a message, which must fit a log line.
pub(super) fn clipped(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(FOUND_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

/// Yields a query's keys and values, decoded as HTML forms are.
pub(in crate::admin) fn pairs(query: &str) -> impl Iterator<Item = (String, String)> {
    let text = |part: &str| percent_decode_str(&part.replace('+', " ")).decode_utf8_lossy().into_owned();
    query.split('&').filter(|pair| !pair.is_empty()).map(move |pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (text(key), text(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_and_json_options() {
        let want = ProfileOptions {
            seconds: Duration::from_millis(2500),
            budget: Some(0.03),
            modes: ProfileModes::Screen,
            targets: vec!["tls write".into(), "Map<K, V>".into()],
            progress: vec!["route /api/*".into()],
            seed: Some(u64::MAX),
        };
        let query = "seconds=2.5s&budget=3%25&mode=screen&target=tls+write&targets=Map%3CK,%20V%3E&progress=route%20/api/*&seed=18446744073709551615";
        assert_eq!(ProfileOptions::from_query(query), Ok(want.clone()));
        let json = r#"{"seconds": 2.5, "budget": "3%", "mode": "screen", "targets": ["tls write", "Map<K, V>"],
            "progress": "route /api/*", "seed": 18446744073709551615}"#;
        assert_eq!(ProfileOptions::from_json(json.as_bytes()), Ok(want));
        let named = ProfileOptions { targets: vec!["a".into(), "b".into()], ..ProfileOptions::default() };
        assert_eq!(ProfileOptions::from_json(br#"{"target": ["a"], "targets": "b"}"#), Ok(named));
        for nothing in ["", " \n", "{}", r#"{"seed": null}"#] {
            assert_eq!(ProfileOptions::from_json(nothing.as_bytes()), Ok(ProfileOptions::default()), "{nothing}");
        }
        assert_eq!(ProfileOptions::from_query("").unwrap().seconds, Duration::from_secs(30));
    }

    #[test]
    fn mistakes() {
        for (query, want) in [
            ("seconds=x", "seconds: found 'x', expected a number of seconds from 0.5 to 3600"),
            ("seconds=0", "seconds: found '0', expected a number of seconds from 0.5 to 3600"),
            ("seconds=NaN", "seconds: found 'NaN', expected a number of seconds from 0.5 to 3600"),
            ("seconds=1e9", "seconds: found '1e9', expected a number of seconds from 0.5 to 3600"),
            ("budget=26%25", "budget: found '26%', expected a part of the time up to a quarter, as in 3% or 0.03"),
            ("mode=A", "mode: found 'A', expected one of both, screen, confirm"),
            ("seed=-1", "seed: found '-1', expected a whole number from 0 to 2^64-1"),
            ("target=", "target: found '', expected a target's name or a part of it"),
            // One of the two values would have no effect.
            ("seconds=1&seconds=2", "seconds: found twice, expected once"),
            ("mode=screen&seed=1&mode=screen", "mode: found twice, expected once"),
            ("second=1", "found 'second', expected one of seconds, budget, mode, targets, progress, seed"),
        ] {
            assert_eq!(ProfileOptions::from_query(query), Err(want.to_owned()), "{query}");
        }
        for (json, want) in [
            ("[1]", "found [1], expected an object with some of seconds, budget, mode, targets, progress, seed"),
            (r#"{"targets": [["a"]]}"#, "targets: found [\"a\"], expected a string or a number"),
            (r#"{"foo": null}"#, "found 'foo', expected one of seconds, budget, mode, targets, progress, seed"),
            (r#"{"seconds": 1, "seconds": 2}"#, "seconds: found twice, expected once"),
            (r#"{"targets": ["a"], "seed": 1, "targets": ["b"]}"#, "targets: found twice, expected once"),
            (r#"{"seconds": [1]}"#, "seconds: found [1], expected a string or a number"),
        ] {
            assert_eq!(ProfileOptions::from_json(json.as_bytes()), Err(want.to_owned()), "{json}");
        }
        let many = "é".repeat(81);
        let clipped = format!("found '{}…', expected one of {NAMES}", "é".repeat(80));
        assert_eq!(ProfileOptions::from_query(&format!("{many}=1")), Err(clipped));
        for json in [format!("[\"{many}\"]"), format!("{{\"{many}\": [1]}}"), format!("{{\"seconds\": [\"{many}\"]}}")]
        {
            let message = ProfileOptions::from_json(json.as_bytes()).unwrap_err();
            assert!(message.contains('…') && !message.contains(&many), "{message}");
        }
        let error = ProfileOptions::from_json(b"{").unwrap_err();
        assert!(error.starts_with("decoding request body: EOF") && error.ends_with(", expected JSON"), "{error}");
    }
}
