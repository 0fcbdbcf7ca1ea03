//! A configuration's text: adapts a Caddyfile or JSON, and maps a refusal of the adapted JSON back to a position in the
//! text.

mod directories;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use causeway_config::caddyfile::{self, Directives, SiteOrigin, Warning};
use causeway_config::plan::PlanError;
use causeway_engine::TlsError;
use causeway_pipeline::BuildError;
use causeway_pipeline::build::Problem;
use serde_json::Value;

use crate::server::LoadError;

/// The language of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// Caddy's configuration language.
    Caddyfile,
    /// Caddy's JSON.
    Json,
}

impl Language {
    /// Returns the language for the name of Caddy's adapter; `None` for unknown adapters.
    pub fn by_adapter(name: &str) -> Option<Self> {
        match name {
            "caddyfile" => Some(Self::Caddyfile),
            "json" | "" => Some(Self::Json),
            _ => None,
        }
    }

    /// Returns the language for a `Content-Type`: JSON if it is empty, or else that of the adapter which the subtype
    /// names.
    ///
    /// # Errors
    /// It is not a media type, or names an unknown adapter.
    pub fn by_content_type(content_type: &str) -> Result<Self, LanguageError> {
        let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match media_type.split_once('/') {
            None if media_type.is_empty() => Ok(Self::Json),
            None => Err(LanguageError::Malformed),
            Some((_, adapter)) => Self::by_adapter(adapter).ok_or_else(|| LanguageError::Adapter(adapter.to_owned())),
        }
    }

    /// The name of Caddy's adapter; empty for JSON.
    pub fn adapter(self) -> &'static str {
        match self {
            Self::Caddyfile => "caddyfile",
            Self::Json => "",
        }
    }
}

/// The reason why a `Content-Type` selects no language. Displays Caddy's message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LanguageError {
    /// It is not a media type.
    Malformed,
    /// There is no adapter of this name.
    Adapter(String),
}

impl fmt::Display for LanguageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("malformed Content-Type"),
            Self::Adapter(name) => write!(f, "unrecognized config adapter '{name}'"),
        }
    }
}

impl std::error::Error for LanguageError {}

/// A configuration as text.
#[derive(Debug, Clone)]
pub struct Document {
    /// The name in messages.
    pub name: String,
    /// The text, unchanged.
    pub text: String,
    /// The text's language.
    pub language: Language,
}

/// An adapted configuration, with the data that maps errors to lines of the text.
#[derive(Debug)]
pub struct AdaptedDocument {
    /// Caddy's JSON.
    pub json: Value,
    /// Parts of the text that are accepted but may be mistakes.
    pub warnings: Vec<Warning>,
    sites: Vec<SiteOrigin>,
    /// The environment variables that the text names.
    variables: BTreeMap<String, String>,
}

/// A mistake in a configuration's text, with its position.
#[derive(Debug)]
pub enum DocumentError {
    /// A mistake in a Caddyfile.
    Caddyfile(caddyfile::Error),
    /// Text that is not JSON: the message, position included.
    Json(String),
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caddyfile(error) => error.fmt(f),
            Self::Json(sentence) => f.write_str(sentence),
        }
    }
}

impl std::error::Error for DocumentError {}

impl Document {
    /// Adapts the text to JSON. `environment` looks up `{$NAME}`.
    ///
    /// # Errors
    /// Returns the first mistake in the text.
    pub fn adapt(
        &self,
        directives: &Directives,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<AdaptedDocument, DocumentError> {
        match self.language {
            Language::Json => {
                let json = causeway_config::json::parse(self.text.as_bytes()).map_err(|error| self.not_json(&error))?;
                Ok(AdaptedDocument::of(json))
            }
            Language::Caddyfile => {
                let variables = RefCell::new(BTreeMap::new());
                let look_up = |name: &str| {
                    let value = environment(name)?;
                    variables.borrow_mut().insert(name.to_owned(), value.clone());
                    Some(value)
                };
                let adapted = caddyfile::adapt(&self.text, &self.name, directives, &look_up);
                let caddyfile::Adapted { json, warnings, sites, .. } = adapted.map_err(DocumentError::Caddyfile)?;
                Ok(AdaptedDocument { json, warnings, sites, variables: variables.into_inner() })
            }
        }
    }

    /// Returns warnings about this machine, in addition to the warnings of the text: roots that are not readable
    /// directories.
    pub fn root_warnings(&self, adapted: &AdaptedDocument) -> Vec<Warning> {
        directories::root_warnings(self, adapted)
    }

    /// Returns the message for a refused configuration, with its position in the text.
    pub fn explain_load_error(&self, adapted: &AdaptedDocument, error: &LoadError) -> String {
        match error {
            LoadError::Config(error) => self.explain(adapted, error),
            LoadError::TlsPolicy(error) if self.language == Language::Caddyfile => self.bad_policy(adapted, error),
            error => format!("{}: {error}", self.name),
        }
    }

    /// Returns the message for a refusal of the JSON, with the line of the Caddyfile that produced the value if it is
    /// known.
    pub fn explain(&self, adapted: &AdaptedDocument, error: &PlanError) -> String {
        match adapted.origin(error) {
            Some(site) => format!("{}: {}", site.at, needs_dns(site)),
            None => self.refused(adapted, error),
        }
    }

    /// Returns a warning about the JSON with the line of the Caddyfile that produced the value, if it is known. A
    /// warning about one value begins with its path.
    pub fn explain_note(&self, adapted: &AdaptedDocument, note: &str) -> String {
        let (path, message) =
            note.split_once(": ").filter(|_| self.language == Language::Caddyfile).unwrap_or_default();
        let is_path = ["apps.", "logging.", "storage."].iter().any(|app| path.starts_with(app));
        let member = path.rsplit('.').next().filter(|_| is_path).unwrap_or_default();
        let places = options_of(member).into_iter().map(|option| (option, self.locate(adapted, option)));
        match places.filter(|(option, _)| !option.is_empty()).find(|(_, places)| !places.is_empty()) {
            Some((step, places)) => at_places(&places, &format!("'{step}': {message}")),
            None => format!("{}: {note}", self.name),
        }
    }

    /// Formats a JSON syntax error, with the position first, as editors expect it.
    fn not_json(&self, error: &serde_json::Error) -> DocumentError {
        let message = error.to_string();
        let message =
            message.strip_suffix(&format!(" at line {} column {}", error.line(), error.column())).unwrap_or(&message);
        // The options of a Caddyfile begin with a brace too.
        let inner = self.text.trim_start().strip_prefix('{').map(str::trim_start);
        let is_object = inner.is_some_and(|inner| inner.is_empty() || inner.starts_with(['"', '}']));
        let hint = if is_object { "" } else { "; is it a Caddyfile? --adapter caddyfile" };
        // serde_json reports a mistake at the end of a line as column 0 of the next one.
        let (line, column) = match (error.line(), error.column()) {
            (line @ 2.., 0) => (line - 1, self.text.lines().nth(line - 2).map_or(1, |text| text.len().max(1))),
            (line, column) => (line, column.max(1)),
        };
        DocumentError::Json(format!("{}:{line}:{column}: {message}, expected JSON{hint}", self.name))
    }

    /// The places of a word of the text, which may come from an environment variable.
    fn locate(&self, adapted: &AdaptedDocument, word: &str) -> Vec<caddyfile::SourceLine> {
        self.locate_all(adapted, &[word]).pop().unwrap_or_default()
    }

    /// As [`locate`](Self::locate), for several words at the cost of one.
    fn locate_all(&self, adapted: &AdaptedDocument, words: &[&str]) -> Vec<Vec<caddyfile::SourceLine>> {
        caddyfile::locate(&self.text, &self.name, words, &|name| adapted.variables.get(name).cloned())
    }

    /// Describes a fault of a certificate's file, whose path begins the message, with the line that names the file.
    fn bad_certificate(&self, adapted: &AdaptedDocument, error: &str) -> String {
        let file = error.split_once(": ").map_or(error, |(file, _)| file);
        match self.locate(adapted, file).first() {
            Some(place) => format!("{}: {error}", place.at),
            None => format!("{}: {error}", self.name),
        }
    }

    /// Describes an invalid TLS policy, with the lines that have its invalid value, or those that may.
    fn bad_policy(&self, adapted: &AdaptedDocument, error: &TlsError) -> String {
        let words = error.found().into_iter().chain(["client_auth", "protocols"]);
        let mut places = words.map(|word| self.locate(adapted, word)).filter(|found| !found.is_empty());
        match places.next() {
            Some(places) => at_places(&places, error.reason()),
            None => format!("{}: {error}", self.name),
        }
    }

    /// Describes a refusal by the line of the Caddyfile that produced the value, or else by its path in the JSON.
    fn refused(&self, adapted: &AdaptedDocument, error: &PlanError) -> String {
        let refused = match (self.language, error) {
            (_, PlanError::Build(BuildError { problem: problem @ Problem::Environment { .. }, .. })) => {
                return problem.to_string();
            }
            (Language::Caddyfile, PlanError::Build(refused)) => refused,
            (Language::Caddyfile, PlanError::Certificates(error)) => {
                return self.bad_certificate(adapted, &error.to_string());
            }
            // A name that is not a site's.
            (Language::Caddyfile, PlanError::NeedsDns { site }) => {
                let places = self.locate(adapted, site);
                let message = error.to_string();
                return if places.is_empty() {
                    format!("{}: {message}", self.name)
                } else {
                    at_places(&places, &message)
                };
            }
            _ => return format!("{}: {error}", self.name),
        };
        let not_supported = Problem::Value {
            found: String::new(),
            expected: "nothing: this is not supported (docs/refused.md)".into(),
        };
        let (word, problem) = match &refused.problem {
            Problem::UnknownModule { name, .. } => (name.as_str(), &refused.problem),
            Problem::Value { found, .. } => (found.as_str(), &refused.problem),
            // The list of possible members is about the JSON. For a Caddyfile only the option's line is useful.
            Problem::Shape(message) => match message.strip_prefix("unknown field `").and_then(until_backquote) {
                Some(member) => (member, &not_supported),
                None => ("", &refused.problem),
            },
            _ => ("", &refused.problem),
        };
        // Every position in the text at which `word` is written.
        let found = |word: &str| self.locate(adapted, word);
        // A value may have its fault after it: `/file: No such file`, `tls1.3 above tls1.2`.
        let begins = [": ", " "].map(|end| word.split(end).next().filter(|begin| begin.len() > 4));
        // An upstream's port may be that of its scheme.
        let host = word.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map(|(host, _)| host);
        // Search the text for the refused value, or else for the option or directive: most keep their names in the
        // JSON's path.
        let steps = std::iter::once(word)
            .chain(begins.into_iter().flatten())
            .chain(host)
            .flat_map(options_of)
            .chain(refused.path.rsplit('.').flat_map(options_of));
        let steps = steps.filter(|step| !matches!(*step, "" | "apps" | "http" | "servers"));
        let Some((step, places)) = steps.map(|step| (step, found(step))).find(|(_, places)| !places.is_empty()) else {
            return match adapted.sites.iter().find(|site| site.host == word && !word.is_empty()) {
                Some(site) => format!("{}: {problem}", site.at),
                None => format!("{}: in its JSON, {error}", self.name),
            };
        };
        let problem = match problem {
            Problem::Value { found, expected } if !found.starts_with(step) => {
                // A value in JSON spelling, such as nanoseconds, and its JSON member's name do not appear in the
                // operator's text.
                let found = if is_json(found) { &places[0].line } else { found };
                let member = refused.path.rsplit('.').next().unwrap_or_default();
                let expected = expected.replace(&format!("`{member}`"), &format!("`{step}`"));
                &Problem::Value { found: found.clone(), expected: expected.into() }
            }
            problem => problem,
        };
        at_places(&places, &problem.to_string())
    }
}

/// Returns a message about one of these places, of which there is one at least.
fn at_places(places: &[caddyfile::SourceLine], message: &str) -> String {
    let mut message = format!("{}: {message}", places[0].at);
    let mut others = places[1..].iter().map(|place| place.at.line.to_string());
    if let Some(first) = others.next() {
        let others = others.fold(first, |list, line| format!("{list}, {line}"));
        message += &format!(" (or the same word on line {others})");
    }
    message
}

impl AdaptedDocument {
    /// Wraps generated JSON that has no text.
    pub fn of(json: Value) -> Self {
        Self { json, warnings: Vec::new(), sites: Vec::new(), variables: BTreeMap::new() }
    }

    /// Returns the site address that an error is about. When several match, prefers one that does not use `http://`.
    fn origin(&self, error: &PlanError) -> Option<&SiteOrigin> {
        let PlanError::NeedsDns { site } = error else { return None };
        let fits = |origin: &&SiteOrigin| origin.host == *site || format!(":{}", origin.port) == *site;
        self.sites.iter().filter(fits).min_by_key(|origin| origin.scheme == "http")
    }
}

impl DocumentError {
    /// Returns the message, with Caddy's wording on a second line unless the first contains it. Scripts search for that
    /// wording.
    pub fn with_caddys_words(&self) -> String {
        let ours = self.to_string();
        match self {
            // Caddy supports this feature, so it has no error message for it.
            Self::Caddyfile(error) if matches!(error.kind(), caddyfile::ErrorKind::NotSupported(..)) => ours,
            Self::Caddyfile(error) => {
                let theirs = error.caddy_message();
                if ours.contains(&theirs) { ours } else { format!("{ours}\n{theirs}") }
            }
            Self::Json(_) => ours,
        }
    }
}

/// Returns the message for a site that needs the DNS challenge, with the alternatives.
fn needs_dns(site: &SiteOrigin) -> String {
    let SiteOrigin { written, host, port, .. } = site;
    let clear = match (host.as_str(), port.as_str()) {
        ("", _) => ":80".to_owned(),
        (host, "" | "443") => format!("http://{host}"),
        (host, port) => format!("http://{host}:{port}"),
    };
    format!(
        "{written} needs the DNS challenge of a public authority; expected a DNS provider in it, as `tls {{ dns PROVIDER TOKEN }}`, \
         or for all sites, as the option `acme_dns PROVIDER TOKEN`; or names without '*', `tls internal` or `tls CERTIFICATE KEY`, or \
         an address without TLS, such as {clear}"
    )
}

/// Returns the words of a Caddyfile that may have produced a step of the JSON's path.
fn options_of(step: &str) -> Vec<&str> {
    let indexed = step.strip_suffix(']').and_then(|step| step.rsplit_once('['));
    let indexed = indexed.filter(|(_, index)| index.parse::<usize>().is_ok()).map(|(name, _)| name);
    match indexed.unwrap_or(step) {
        "logging" => vec!["log"],
        "http_basic" => vec!["basic_auth"],
        "should_log_credentials" => vec!["log_credentials"],
        "dynamic_upstreams" => vec!["dynamic"],
        "health_checks" => vec!["health_uri", "health_port", "fail_duration", "max_fails", "unhealthy_status"],
        "writer" => vec!["output"],
        "encoder" => vec!["format"],
        "on_demand" => vec!["on_demand", "on_demand_tls"],
        "selection_policy" => vec!["lb_policy"],
        "max_header_bytes" => vec!["max_header_size"],
        "idle_timeout" => vec!["idle", "keepalive"],
        "read_timeout" => vec!["read_body", "read_timeout"],
        "read_header_timeout" => vec!["read_header"],
        "read_idle_timeout" | "read_min_rate" => vec!["read_body_idle"],
        "write_timeout" => vec!["write", "write_timeout"],
        "write_idle_timeout" | "write_min_rate" => vec!["write_idle"],
        "max_write_chunk" => vec!["write_max_chunk", "max_write_chunk"],
        "disable_storage_check" => vec!["storage_check"],
        "allow_0rtt" => vec!["0rtt"],
        "acme_timeout" => vec!["timeout"],
        "expect_status" => vec!["health_status"],
        "upstreams" | "dial" => vec!["reverse_proxy", "to"],
        "client_authentication" => vec!["client_auth"],
        "verifiers" => vec!["verifier"],
        "network_proxy" => vec!["network_proxy", "forward_proxy_url"],
        "keep_alive" => vec!["keepalive"],
        "template_file" => vec!["browse"],
        "encrypted_client_hello" => vec!["ech"],
        "listen_protocols" => vec!["bind"],
        // Without an index it is the admin API's.
        "listen" if indexed.is_some() => vec!["bind", "default_bind"],
        "retries" => vec!["lb_retries"],
        "slow_start" => vec!["lb_slow_start"],
        "retry_match" => vec!["lb_retry_match"],
        "try_duration" => vec!["lb_try_duration"],
        "try_interval" => vec!["lb_try_interval"],
        "resolver" => vec!["resolvers"],
        "read_buffer_size" => vec!["read_buffer"],
        "write_buffer_size" => vec!["write_buffer"],
        // With its index, as `handle[0]` of a route is not the directive `handle`.
        _ => vec![step],
    }
}

/// Whether a refusal shows a value in JSON form. The Caddyfile then spells it differently, or in several words.
fn is_json(found: &str) -> bool {
    found.is_empty()
        || matches!(found, "an object" | "a list" | "null")
        || serde_json::from_str::<Value>(found).is_ok_and(|value| !value.is_string())
}

/// Logs warnings about a configuration that a running server loads. A load must not wait for a reader of standard
/// error, so it does not print them.
pub fn log_warnings(warnings: &[Warning]) {
    for warning in warnings {
        tracing::warn!("{}: {}", warning.at, warning.message);
    }
}

fn until_backquote(message: &str) -> Option<&str> {
    message.split_once('`').map(|(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    // A value from the environment that the caller provides, such as a file of --envfile, is found like that of the
    // process.
    #[test]
    fn a_refused_value_of_a_variable_has_its_line() {
        let text = ":80\n@a path_regexp {$PATTERN}\nrespond @a hi\n".to_owned();
        let document = Document { name: "Caddyfile".into(), text, language: Language::Caddyfile };
        let environment = |name: &str| (name == "PATTERN").then(|| "/(a".to_owned());
        let registry = crate::registry();
        let adapted = document.adapt(&Directives::of(&registry), &environment).unwrap();
        let error = crate::server::validate(adapted.json.clone(), &registry).unwrap_err();
        let message = document.explain_load_error(&adapted, &error);
        assert!(message.starts_with("Caddyfile:2:16: "), "{message}");
    }
}
