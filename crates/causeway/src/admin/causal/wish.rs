//! What a profile is asked to be: the same names in a query and in JSON.

use std::borrow::Cow;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use serde_json::Value;

/// How long a profile may be.
const SECONDS_MAX: f64 = 3600.0;
/// The largest part of the time that may be lost.
const BUDGET_MAX: f64 = 0.25;
/// What is expected where a name is none of ours.
const NAMES: &str = "seconds, budget, mode, targets, progress, seed";

/// How much of what was found is said again, in characters.
const FOUND_MAX: usize = 80;

/// What a profile is asked to be.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::admin) struct Wish {
    pub(super) seconds: Duration,
    /// The part of the time that the profile may cost.
    pub(super) budget: Option<f64>,
    pub(super) ways: Ways,
    /// Only these: whole names, or parts of them.
    pub(super) targets: Vec<String>,
    /// Progress points that curves are of, in the place of the server's own.
    pub(super) progress: Vec<String>,
    pub(super) seed: Option<u64>,
}

/// How gains are to be found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::admin) enum Ways {
    #[default]
    Both,
    Screen,
    Confirm,
}

impl Default for Wish {
    fn default() -> Self {
        Self {
            seconds: Duration::from_secs(30),
            budget: None,
            ways: Ways::Both,
            targets: Vec::new(),
            progress: Vec::new(),
            seed: None,
        }
    }
}

impl Wish {
    /// From `seconds=30&target=a&target=b`.
    pub(super) fn from_query(query: &str) -> Result<Self, String> {
        let mut wish = Self::default();
        for (key, value) in pairs(query) {
            wish.set(&key, &value)?;
        }
        Ok(wish)
    }

    /// From `{"seconds": 30, "targets": ["a", "b"]}`; nothing is an empty object.
    pub(super) fn from_json(text: &[u8]) -> Result<Self, String> {
        let mut wish = Self::default();
        if text.iter().all(u8::is_ascii_whitespace) {
            return Ok(wish);
        }
        let value: Value =
            serde_json::from_slice(text).map_err(|error| format!("decoding request body: {error}, expected JSON"))?;
        let Value::Object(object) = value else {
            return Err(format!("found {}, expected an object with some of {NAMES}", clipped(&value.to_string())));
        };
        for (key, value) in &object {
            let mut set = |value: &Value| match value {
                Value::String(text) => wish.set(key, text),
                Value::Number(number) => wish.set(key, &number.to_string()),
                Value::Null => Ok(()),
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
        Ok(wish)
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
                self.ways = match value {
                    "both" => Ways::Both,
                    "screen" => Ways::Screen,
                    "confirm" => Ways::Confirm,
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

/// What was found, as it is said again: a log line has no room for all of it.
pub(super) fn clipped(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(FOUND_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

/// A query's keys and values, decoded as forms are.
pub(super) fn pairs(query: &str) -> impl Iterator<Item = (String, String)> {
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
    fn both_ways_to_say_it() {
        let want = Wish {
            seconds: Duration::from_millis(2500),
            budget: Some(0.03),
            ways: Ways::Screen,
            targets: vec!["tls write".into(), "Map<K, V>".into()],
            progress: vec!["route /api/*".into()],
            seed: Some(u64::MAX),
        };
        let query = "seconds=2.5s&budget=3%25&mode=screen&target=tls+write&targets=Map%3CK,%20V%3E&progress=route%20/api/*&seed=18446744073709551615";
        assert_eq!(Wish::from_query(query), Ok(want.clone()));
        let json = r#"{"seconds": 2.5, "budget": "3%", "mode": "screen", "targets": ["tls write", "Map<K, V>"],
            "progress": "route /api/*", "seed": 18446744073709551615}"#;
        assert_eq!(Wish::from_json(json.as_bytes()), Ok(want));
        let named = Wish { targets: vec!["a".into(), "b".into()], ..Wish::default() };
        assert_eq!(Wish::from_json(br#"{"target": ["a"], "targets": "b"}"#), Ok(named));
        for nothing in ["", " \n", "{}", r#"{"seed": null}"#] {
            assert_eq!(Wish::from_json(nothing.as_bytes()), Ok(Wish::default()), "{nothing}");
        }
        assert_eq!(Wish::from_query("").unwrap().seconds, Duration::from_secs(30));
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
            ("second=1", "found 'second', expected one of seconds, budget, mode, targets, progress, seed"),
        ] {
            assert_eq!(Wish::from_query(query), Err(want.to_owned()), "{query}");
        }
        for (json, want) in [
            ("[1]", "found [1], expected an object with some of seconds, budget, mode, targets, progress, seed"),
            (r#"{"targets": [["a"]]}"#, "targets: found [\"a\"], expected a string or a number"),
            (r#"{"seconds": [1]}"#, "seconds: found [1], expected a string or a number"),
        ] {
            assert_eq!(Wish::from_json(json.as_bytes()), Err(want.to_owned()), "{json}");
        }
        let many = "é".repeat(81);
        let clipped = format!("found '{}…', expected one of {NAMES}", "é".repeat(80));
        assert_eq!(Wish::from_query(&format!("{many}=1")), Err(clipped));
        for json in [format!("[\"{many}\"]"), format!("{{\"{many}\": [1]}}"), format!("{{\"seconds\": [\"{many}\"]}}")]
        {
            let words = Wish::from_json(json.as_bytes()).unwrap_err();
            assert!(words.contains('…') && !words.contains(&many), "{words}");
        }
        let error = Wish::from_json(b"{").unwrap_err();
        assert!(error.starts_with("decoding request body: EOF") && error.ends_with(", expected JSON"), "{error}");
    }
}
