//! A profile started by an environment variable, for programs that have no other way to start one.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::profiler::{Builder, Modes, Profiler};

/// The environment variable that [`run_from_env`] reads.
const NAME: &str = "CAUSAL";

/// Starts a profile if the environment variable `CAUSAL` is set and not empty. Dropping the guard writes the report.
///
/// `CAUSAL=30s` profiles for 30 seconds. Further words follow after commas, as in
/// `CAUSAL=30s,budget=2%,target=encode,out=report.json`:
/// - `budget`: the fraction of the time that the profile may cost;
/// - `target`, `progress`: names; each may be given several times;
/// - `mode`: `both`, `screen` or `confirm`;
/// - `seed`: a number;
/// - `out`: the file; its extension selects the format: `.html` (a page), `.json`, `.coz`, `.folded` or `.pprof`.
///   Default: `causal.html`;
/// - `wait`: the drop of the guard blocks until the given time is over. Without it the drop ends the profile.
///
/// If the value cannot be parsed or the profile cannot start, prints the error to standard error and returns `None`.
///
/// ```no_run
/// let _profile = causal::run_from_env();
/// ```
#[must_use = "the profile ends when the guard is dropped"]
pub fn run_from_env() -> Option<Guard> {
    let value = std::env::var(NAME).ok().filter(|value| !value.is_empty())?;
    // An invalid value must not stop the program: report it, and run without a profile.
    let started = read(&value).map_err(|error| error.to_string()).and_then(|asked| {
        let profiler = asked.builder.start().map_err(|error| error.to_string())?;
        Ok(Guard { profiler: Some(profiler), out: asked.out, waits: asked.waits })
    });
    started.map_err(|error| eprintln!("{NAME}: {error}")).ok()
}

/// A running profile. Its drop writes the report; see [`run_from_env`].
#[derive(Debug)]
pub struct Guard {
    profiler: Option<Profiler>,
    out: PathBuf,
    waits: bool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(profiler) = self.profiler.take() else { return };
        // The program ends now, so the profile does as well.
        if !self.waits {
            profiler.stop();
        }
        let report = profiler.finish();
        eprintln!("{}", report.to_terminal(100));
        // An unknown extension gets the page: every reader has a browser.
        let bytes = match self.out.extension().and_then(|ending| ending.to_str()) {
            Some("json") => report.to_json().into_bytes(),
            Some("coz") => report.to_coz().into_bytes(),
            Some("folded") => report.to_folded_stacks().into_bytes(),
            Some("pprof") => report.to_pprof(),
            _ => report.to_html().into_bytes(),
        };
        match std::fs::write(&self.out, bytes) {
            Ok(()) => eprintln!("{NAME}: the report is in {}", self.out.display()),
            Err(error) => eprintln!("{NAME}: {} cannot be written: {error}", self.out.display()),
        }
    }
}

/// The parsed value of `CAUSAL`.
#[derive(Debug)]
struct EnvSettings {
    builder: Builder,
    out: PathBuf,
    waits: bool,
}

/// A word that cannot be parsed, and the form that was expected.
#[derive(Debug, PartialEq, Eq)]
struct WordError {
    word: String,
    expected: &'static str,
}

impl fmt::Display for WordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "found {:?}, expected {}", self.word, self.expected)
    }
}

fn read(value: &str) -> Result<EnvSettings, WordError> {
    // Commas and not spaces, so that the value needs no quotes in a shell.
    let mut words = value.split(',').map(str::trim);
    let first = words.next().unwrap_or_default();
    let wrong = |word: &str, expected| WordError { word: word.to_owned(), expected };
    let duration = duration(first).ok_or_else(|| wrong(first, "a duration first, as 30s, 500ms or 2m"))?;
    let mut asked = EnvSettings {
        builder: Profiler::builder().duration(duration),
        out: PathBuf::from("causal.html"),
        waits: false,
    };
    for word in words {
        if word == "wait" {
            asked.waits = true;
            continue;
        }
        // A name without a value falls through to an error below: each pattern asks for a value.
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let builder = asked.builder;
        asked.builder = match (name.trim(), value.trim()) {
            ("budget", value) => builder
                .budget(part(value).ok_or_else(|| wrong(word, "a part of the time, as budget=3% or budget=0.03"))?),
            ("target", value) if !value.is_empty() => builder.target(value),
            ("progress", value) if !value.is_empty() => builder.progress(value),
            ("mode", "both") => builder.mode(Modes::Both),
            ("mode", "screen") => builder.mode(Modes::Screen),
            ("mode", "confirm") => builder.mode(Modes::Confirm),
            ("mode", _) => return Err(wrong(word, "mode=both, mode=screen or mode=confirm")),
            ("seed", value) => builder.seed(value.parse().map_err(|_| wrong(word, "a number, as seed=7"))?),
            ("out", value) if !value.is_empty() => {
                asked.out = PathBuf::from(value);
                builder
            }
            _ => {
                return Err(wrong(word, "budget=…, target=NAME, progress=NAME, mode=…, seed=…, out=FILE or wait"));
            }
        };
    }
    Ok(asked)
}

fn duration(word: &str) -> Option<Duration> {
    // A number without a unit is in seconds.
    let unit_at = word.find(|ch: char| !ch.is_ascii_digit() && ch != '.').unwrap_or(word.len());
    let (number, unit) = word.split_at(unit_at);
    let seconds = match unit {
        "ms" => 1e-3,
        "s" | "" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()
}

fn part(word: &str) -> Option<f64> {
    match word.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok().map(|percent| percent / 100.0),
        None => word.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_parsed() {
        let settings_text =
            read("500ms, budget=2%,target=encode,target=span b,mode=screen,seed=7,out=x.json,wait").unwrap();
        let want = Profiler::builder()
            .duration(Duration::from_millis(500))
            .budget(0.02)
            .target("encode")
            .target("span b")
            .mode(Modes::Screen)
            .seed(7);
        assert_eq!(format!("{:?}", settings_text.builder), format!("{want:?}"));
        assert_eq!((settings_text.out, settings_text.waits), (PathBuf::from("x.json"), true));
        for (value, want) in [("30s", 30_000), ("2m", 120_000), ("1.5", 1500), ("250ms", 250), ("1h", 3_600_000)] {
            assert_eq!(duration(value), Some(Duration::from_millis(want)), "{value}");
        }
    }

    #[test]
    fn errors_name_the_invalid_setting() {
        for (value, word, expected) in [
            ("soon", "soon", "a duration first"),
            ("-3s", "-3s", "a duration first"),
            ("", "", "a duration first"),
            ("5s,budget=much", "budget=much", "a part of the time"),
            ("5s,mode=c", "mode=c", "mode=both"),
            ("5s,seed=x", "seed=x", "a number"),
            ("5s,target=", "target=", "budget=…, target=NAME"),
            ("5s,tempo=3", "tempo=3", "budget=…, target=NAME"),
        ] {
            let error = read(value).unwrap_err();
            assert_eq!(error.word, word, "{value}");
            assert!(error.expected.starts_with(expected), "{value}: {error}");
        }
    }
}
