//! Where a configuration comes from: a file, standard input, the Caddyfile of the working folder, or ourselves.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use causeway_config::caddyfile::{self, Directives, SiteOrigin};
use causeway_config::plan::{self, LoadError, Loaded};
use causeway_pipeline::build::Problem;
use clap::Args;
use serde_json::{Value, json};

use super::environment::Environment;
use super::say;
use super::serve::Verbosity;

/// The file that is served when no other is named.
pub(super) const CADDYFILE: &str = "Caddyfile";
/// Where the welcome site listens.
const WELCOME_LISTEN: &str = ":8080";

/// Which configuration.
#[derive(Args)]
pub(crate) struct ConfigFlags {
    /// The configuration's file; `-` reads standard input
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Its language: `caddyfile` or `json`; by default what the file's name says
    #[arg(short, long, value_name = "NAME")]
    pub(crate) adapter: Option<String>,
    /// A file of NAME=value lines for `{$NAME}` in the Caddyfile; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) envfile: Vec<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Language {
    Caddyfile,
    Json,
}

/// A configuration as it was found.
pub(crate) struct Source {
    /// What messages call it.
    pub(crate) name: String,
    text: String,
    language: Language,
    environment: Environment,
}

/// A configuration as JSON, with what a message needs to name its lines.
pub(crate) struct AdaptedSource {
    pub(crate) json: Value,
    sites: Vec<SiteOrigin>,
}

/// A configuration that can be served.
pub(crate) struct LoadedSource {
    pub(crate) loaded: Loaded,
    /// What it says of the server's own messages.
    pub(crate) verbosity: Verbosity,
}

impl ConfigFlags {
    /// Reads the configuration; `None` when none was named and the working folder has no Caddyfile.
    pub(crate) fn find(&self) -> anyhow::Result<Option<Source>> {
        let environment = Environment::read(&self.envfile)?;
        let path = match &self.config {
            Some(path) => path.as_path(),
            None if Path::new(CADDYFILE).is_file() => Path::new(CADDYFILE),
            None => return Ok(None),
        };
        let language = self.language(path)?;
        let stdin = path.as_os_str() == "-";
        let name = if stdin { "standard input".to_owned() } else { path.display().to_string() };
        let octets = if stdin {
            let mut octets = Vec::new();
            std::io::stdin().read_to_end(&mut octets).map(|_| octets)
        } else {
            std::fs::read(path)
        };
        let octets = octets.with_context(|| format!("{name}: reading the configuration"))?;
        let Ok(text) = String::from_utf8(octets) else {
            bail!("{name}: found octets that are not UTF-8, expected text")
        };
        Ok(Some(Source { name, text, language, environment }))
    }

    fn language(&self, path: &Path) -> anyhow::Result<Language> {
        match self.adapter.as_deref() {
            Some("caddyfile") => return Ok(Language::Caddyfile),
            Some("json" | "") => return Ok(Language::Json),
            Some(other) => bail!("--adapter: found '{other}', expected 'caddyfile' or 'json'"),
            None => {}
        }
        // Caddy's rule: a name that begins with Caddyfile, or ends so, is one; anything else is JSON.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let caddyfile = name.starts_with(CADDYFILE) || name.ends_with(".caddyfile");
        Ok(if caddyfile { Language::Caddyfile } else { Language::Json })
    }
}

impl Source {
    /// The configuration as JSON.
    pub(crate) fn adapt(&self, directives: &Directives) -> anyhow::Result<AdaptedSource> {
        match self.language {
            Language::Json => {
                let json = serde_json::from_str(&self.text).map_err(|error| self.no_json(&error))?;
                Ok(AdaptedSource { json, sites: Vec::new() })
            }
            Language::Caddyfile => {
                let env = |name: &str| self.environment.get(name);
                let adapted = caddyfile::adapt(&self.text, &self.name, directives, &env)?;
                for warning in &adapted.warnings {
                    say::note(&format!("Warning: {}: {}", warning.at, warning.message));
                }
                Ok(AdaptedSource { json: adapted.json, sites: adapted.sites })
            }
        }
    }

    /// The configuration, compiled.
    pub(crate) fn load(&self) -> anyhow::Result<LoadedSource> {
        let registry = causeway::registry();
        let adapted = self.adapt(&causeway::directives(&registry))?;
        match plan::load(&adapted.json, &registry) {
            Ok(loaded) => Ok(LoadedSource { loaded, verbosity: verbosity(&adapted.json) }),
            Err(error) => match adapted.origin(&error) {
                Some(site) => bail!("{}: {}", site.at, needs_tls(site)),
                None => bail!("{}", self.refused(&error)),
            },
        }
    }

    /// The parser's words, with the place in front where editors look for it.
    fn no_json(&self, error: &serde_json::Error) -> anyhow::Error {
        let (line, column) = (error.line(), error.column());
        let words = error.to_string();
        let words = words.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&words);
        // An end that comes too early is counted as column 0 of the line behind the last.
        let hint =
            if self.text.trim_start().starts_with('{') { "" } else { "; is it a Caddyfile? --adapter caddyfile" };
        anyhow!("{}:{line}:{}: {words}, expected JSON{hint}", self.name, column.max(1))
    }

    /// A refusal with the line of the Caddyfile that holds the refused word, or else with its place in the JSON.
    fn refused(&self, error: &LoadError) -> String {
        if let (Language::Caddyfile, LoadError::Build(refused)) = (self.language, error) {
            let word = match &refused.problem {
                Problem::UnknownModule { name, .. } => name,
                Problem::Value { found, .. } => found,
                // Options keep their names in the JSON.
                Problem::Shape(words) => words.strip_prefix("unknown field `").and_then(until_backquote).unwrap_or(""),
                _ => "",
            };
            // Where the word is not to be found, the option may be: most keep their names in the JSON's path.
            let options = refused.path.rsplit('.').map(|step| if step == "logging" { "log" } else { step });
            let options = options.filter(|step| !matches!(*step, "apps" | "http" | "servers"));
            let place = std::iter::once(word).chain(options).find_map(|word| only_place(&self.text, word));
            if let (Some((line, column)), Some((_, words))) = (place, error.to_string().split_once(": ")) {
                return format!("{}:{line}:{column}: {words}", self.name);
            }
            return format!("{}: in its JSON, {error}", self.name);
        }
        format!("{}: {error}", self.name)
    }
}

fn until_backquote(words: &str) -> Option<&str> {
    words.split_once('`').map(|(word, _)| word)
}

/// Line and column of a word of a Caddyfile; `None` unless it stands there once, and no other file can hold it.
fn only_place(text: &str, word: &str) -> Option<(usize, usize)> {
    let mut only = None;
    for (index, line) in text.lines().enumerate() {
        for found in line.split_whitespace() {
            if found == "import" {
                return None;
            }
            if !word.is_empty() && found.trim_matches(['"', '`']) == word {
                if only.is_some() {
                    return None;
                }
                let before = found.as_ptr().addr() - line.as_ptr().addr();
                only = Some((index + 1, line[..before].chars().count() + 1));
            }
        }
    }
    only
}

/// The global option `debug` arrives as the default log's level.
fn verbosity(json: &Value) -> Verbosity {
    match json["logging"]["logs"]["default"]["level"].as_str() {
        Some("DEBUG") => Verbosity::Debug,
        _ => Verbosity::Normal,
    }
}

impl AdaptedSource {
    /// The address that an error about a site is about: of several that fit the first that did not ask for the clear.
    fn origin(&self, error: &LoadError) -> Option<&SiteOrigin> {
        let LoadError::NeedsTls { site } = error else { return None };
        let fits = |origin: &&SiteOrigin| origin.host == *site || format!(":{}", origin.port) == *site;
        self.sites.iter().filter(fits).min_by_key(|origin| origin.scheme == "http")
    }
}

/// What the operator may write instead: the same address in the clear. (`auto_https off` would be of no use: Caddy serves such
/// a site over TLS all the same, with certificates that it was given.)
fn needs_tls(site: &SiteOrigin) -> String {
    let SiteOrigin { written, host, port, .. } = site;
    let clear = match (host.as_str(), port.as_str()) {
        ("", _) => ":80".to_owned(),
        (host, "" | "443") => format!("http://{host}"),
        (host, port) => format!("http://{host}:{port}"),
    };
    format!("{written} needs TLS, which this version does not speak; expected an address in the clear, as {clear}")
}

/// Text that a template shows as it is: braces open no placeholder, and no backslash is taken for an escape.
pub(crate) fn literal(text: &str) -> String {
    text.replace("\\}", "\\\\}").replace('{', "\\{")
}

/// The welcome site's configuration.
pub(crate) fn welcome(listen: Option<&str>) -> Source {
    let page = include_str!("../welcome/index.html");
    let body = literal(page);
    let json = json!({ "admin": { "disabled": true }, "apps": { "http": { "servers": { "welcome": {
        "listen": [listen.unwrap_or(WELCOME_LISTEN)],
        "routes": [
            {
                "match": [{ "path": ["/"] }],
                "handle": [{
                    "handler": "static_response",
                    "headers": { "Content-Type": ["text/html; charset=utf-8"] },
                    "body": body,
                }],
                "terminal": true,
            },
            { "handle": [{ "handler": "static_response", "status_code": 404, "body": "Not found\n" }] },
        ],
    } } } } });
    Source {
        name: "the welcome site".into(),
        text: json.to_string(),
        language: Language::Json,
        environment: Environment::default(),
    }
}

#[cfg(test)]
mod tests {
    use causeway_pipeline::{Build, Registry};

    use super::*;

    #[test]
    fn a_literal_is_shown_as_it_is() {
        for text in ["", "a", "{a}", "\\", "\\{", "\\}", "\\\\{x\\\\}", "a\\b{http.request.host}", "{{}}", "}{"] {
            let registry = Registry::default();
            let template = Build::new(&registry).template(&literal(text));
            assert_eq!(template.literal(), Some(text));
        }
    }

    #[test]
    fn the_place_of_a_word() {
        for (text, word, want) in [
            (":80 {\n\tbind nowhere\n}", "nowhere", Some((2, 7))),
            (":80\nbind \"nowhere\"", "nowhere", Some((2, 6))),
            ("é nowhere", "nowhere", Some((1, 3))),
            ("a\nb a", "a", None),
            ("import x\na", "a", None),
            ("a", "", None),
            ("a", "b", None),
        ] {
            assert_eq!(only_place(text, word), want, "{text:?} {word:?}");
        }
    }
}
