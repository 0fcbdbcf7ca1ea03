//! A configuration as text: a Caddyfile or JSON, what JSON it stands for, and where a refusal of that JSON belongs in the text.

use std::fmt;

use causeway_config::caddyfile::{self, Directives, SiteOrigin, Warning};
use causeway_config::plan::LoadError;
use causeway_pipeline::build::Problem;
use serde_json::Value;

use crate::server::LoadFault;

/// What a configuration is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// Caddy's configuration language.
    Caddyfile,
    /// Caddy's JSON.
    Json,
}

impl Language {
    /// By the name that Caddy gives its adapter.
    pub fn by_adapter(name: &str) -> Option<Self> {
        match name {
            "caddyfile" => Some(Self::Caddyfile),
            "json" | "" => Some(Self::Json),
            _ => None,
        }
    }

    /// The adapter's name; empty for JSON, which needs none.
    pub fn adapter(self) -> &'static str {
        match self {
            Self::Caddyfile => "caddyfile",
            Self::Json => "",
        }
    }
}

/// A configuration's text.
#[derive(Debug, Clone)]
pub struct Document {
    /// What messages call it.
    pub name: String,
    /// As it was found.
    pub text: String,
    /// What it is written in.
    pub language: Language,
}

/// A configuration as JSON, with what a message needs to name its lines.
#[derive(Debug)]
pub struct AdaptedDocument {
    /// Caddy's JSON.
    pub json: Value,
    /// What was accepted but deserves a look.
    pub warnings: Vec<Warning>,
    sites: Vec<SiteOrigin>,
}

/// Why a text stands for no configuration: its writer's mistake, with its place.
#[derive(Debug)]
pub enum Mistake {
    /// In a Caddyfile.
    Caddyfile(caddyfile::Error),
    /// Text that is no JSON; place and sentence.
    Json(String),
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caddyfile(error) => error.fmt(f),
            Self::Json(sentence) => f.write_str(sentence),
        }
    }
}

impl std::error::Error for Mistake {}

impl Document {
    /// The configuration as JSON. `environment` answers `{$NAME}`.
    ///
    /// # Errors
    /// The first mistake in the text.
    pub fn adapt(
        &self,
        directives: &Directives,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<AdaptedDocument, Mistake> {
        match self.language {
            Language::Json => {
                let json = serde_json::from_str(&self.text).map_err(|error| self.no_json(&error))?;
                Ok(AdaptedDocument::of(json))
            }
            Language::Caddyfile => {
                let adapted = caddyfile::adapt(&self.text, &self.name, directives, environment);
                let adapted = adapted.map_err(Mistake::Caddyfile)?;
                Ok(AdaptedDocument { json: adapted.json, warnings: adapted.warnings, sites: adapted.sites })
            }
        }
    }

    /// Why it is not served, with its place.
    pub fn explain_fault(&self, adapted: &AdaptedDocument, fault: &LoadFault) -> String {
        match fault {
            LoadFault::Config(error) => self.explain(adapted, error),
            fault => format!("{}: {fault}", self.name),
        }
    }

    /// Why its JSON is refused, with the line of the Caddyfile that asked for it where that is known.
    pub fn explain(&self, adapted: &AdaptedDocument, error: &LoadError) -> String {
        match adapted.origin(error) {
            Some(site) => format!("{}: {}", site.at, needs_acme(site)),
            None => self.refused(error),
        }
    }

    /// The parser's words, with the place in front where editors look for it.
    fn no_json(&self, error: &serde_json::Error) -> Mistake {
        let (line, column) = (error.line(), error.column());
        let words = error.to_string();
        let words = words.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&words);
        // An end that comes too early is counted as column 0 of the line behind the last.
        let hint =
            if self.text.trim_start().starts_with('{') { "" } else { "; is it a Caddyfile? --adapter caddyfile" };
        Mistake::Json(format!("{}:{line}:{}: {words}, expected JSON{hint}", self.name, column.max(1)))
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
            // Where the word is not to be found, the option or directive may be: most keep their names in the JSON's path.
            let options = refused.path.rsplit('.').flat_map(options_of);
            let options = options.filter(|step| !matches!(*step, "apps" | "http" | "servers"));
            let mut words = std::iter::once(word).chain(options).filter(|word| !word.is_empty());
            let place = words.find_map(|word| caddyfile::only_place(&self.text, &self.name, word));
            if let (Some(place), Some((_, words))) = (place, error.to_string().split_once(": ")) {
                return format!("{place}: {words}");
            }
            return format!("{}: in its JSON, {error}", self.name);
        }
        format!("{}: {error}", self.name)
    }
}

impl AdaptedDocument {
    /// JSON that nobody wrote as text.
    pub fn of(json: Value) -> Self {
        Self { json, warnings: Vec::new(), sites: Vec::new() }
    }

    /// The address that an error about a site is about: of several that fit the first that did not ask for the clear.
    fn origin(&self, error: &LoadError) -> Option<&SiteOrigin> {
        let LoadError::NeedsAcme { site } = error else { return None };
        let fits = |origin: &&SiteOrigin| origin.host == *site || format!(":{}", origin.port) == *site;
        self.sites.iter().filter(fits).min_by_key(|origin| origin.scheme == "http")
    }
}

/// What the operator may write instead.
fn needs_acme(site: &SiteOrigin) -> String {
    let SiteOrigin { written, host, port, .. } = site;
    let clear = match (host.as_str(), port.as_str()) {
        ("", _) => ":80".to_owned(),
        (host, "" | "443") => format!("http://{host}"),
        (host, port) => format!("http://{host}:{port}"),
    };
    format!(
        "{written} needs a certificate of a public authority (ACME), which this version cannot get; expected `tls internal` or \
         `tls CERTIFICATE KEY` in it, or its address in the clear, as {clear}"
    )
}

/// The words of a Caddyfile that a step of the JSON's path may have been.
fn options_of(step: &str) -> Vec<&str> {
    match step {
        "logging" => vec!["log"],
        "http_basic" => vec!["basic_auth"],
        "should_log_credentials" => vec!["log_credentials"],
        "dynamic_upstreams" => vec!["dynamic"],
        "health_checks" => vec!["health_uri", "health_port", "fail_duration", "max_fails", "unhealthy_status"],
        "retries" => vec!["lb_retries"],
        "retry_match" => vec!["lb_retry_match"],
        "try_duration" => vec!["lb_try_duration"],
        "try_interval" => vec!["lb_try_interval"],
        "resolver" => vec!["resolvers"],
        "read_buffer_size" => vec!["read_buffer"],
        "write_buffer_size" => vec!["write_buffer"],
        step => vec![step],
    }
}

fn until_backquote(words: &str) -> Option<&str> {
    words.split_once('`').map(|(word, _)| word)
}
