//! Finds the configuration: a file, standard input, the Caddyfile in the working directory, or the built-in welcome
//! site.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use causeway::document::{AdaptedDocument, Document, Language};
use causeway::server::{self, LoadError};
use causeway_config::caddyfile::{self, Directives, Warning};
use causeway_pipeline::Registry;
use clap::Args;
use serde_json::json;

use super::environment::EnvironmentFiles;
use super::output;

/// The file that is served by default.
pub(super) const CADDYFILE: &str = "Caddyfile";
/// The adapter for configurations of nginx, which become Caddyfiles when they are read.
const NGINX: &str = "nginx";
/// Default listen address of the welcome site.
const WELCOME_LISTEN: &str = ":8080";

/// Flags that select the configuration.
#[derive(Args, Clone)]
pub(crate) struct ConfigFlags {
    /// Configuration file; `-` reads standard input
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Language of the configuration: `caddyfile`, `json` or `nginx`; default: by file name
    #[arg(short, long, value_name = "NAME")]
    pub(crate) adapter: Option<String>,
    /// A file of NAME=value lines for `{$NAME}` in the Caddyfile; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) envfile: Vec<PathBuf>,
}

/// A configuration's text and environment.
pub(crate) struct ConfigSource {
    pub(crate) document: Document,
    pub(crate) environment: Arc<EnvironmentFiles>,
    /// The file to reload; `None` for standard input and for generated configurations.
    pub(crate) file: Option<PathBuf>,
    /// Lines of an nginx configuration that the Caddyfile does not carry over.
    pub(crate) notes: Vec<causeway_nginx::Note>,
    /// The text is that of a Caddyfile that was made of an nginx configuration.
    pub(crate) is_translated: bool,
}

/// The file system, for configurations of nginx.
struct NginxFiles;

impl causeway_nginx::Files for NginxFiles {
    fn read(&self, path: &str) -> Result<String, String> {
        let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
        String::from_utf8(bytes).map_err(|_| "found bytes that are not UTF-8, expected text".to_owned())
    }

    fn glob(&self, pattern: &str) -> Vec<String> {
        // Each part of the pattern in turn; a part without a wildcard is only appended.
        let mut paths = vec![if pattern.starts_with('/') { "/".to_owned() } else { String::new() }];
        for part in pattern.split('/').filter(|part| !part.is_empty()) {
            let mut longer = Vec::new();
            for path in &paths {
                let join = |name: &str| match path.as_str() {
                    "" => name.to_owned(),
                    path if path.ends_with('/') => format!("{path}{name}"),
                    path => format!("{path}/{name}"),
                };
                if part.contains(['*', '?', '[']) {
                    let directory = if path.is_empty() { "." } else { path };
                    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
                    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
                    longer
                        .extend(names.filter(|name| causeway_nginx::glob_matches(part, name)).map(|name| join(&name)));
                } else {
                    longer.push(join(part));
                }
            }
            paths = longer;
        }
        paths.retain(|path| Path::new(path).exists());
        paths.sort();
        paths
    }
}

/// Translates an nginx configuration; the text becomes that of a Caddyfile.
fn from_nginx(source: &mut ConfigSource) -> anyhow::Result<()> {
    let document = &mut source.document;
    let translation = causeway_nginx::translate(&document.text, &document.name, &NginxFiles)?;
    document.text = caddyfile::format(translation.caddyfile.as_bytes());
    document.name = format!("the Caddyfile of {}", document.name);
    source.notes = translation.notes;
    source.is_translated = true;
    Ok(())
}

impl ConfigFlags {
    /// Reads the configuration; `None` when no flag names one and the working directory has no Caddyfile.
    pub(crate) fn find(&self) -> anyhow::Result<Option<ConfigSource>> {
        let environment = EnvironmentFiles::read(&self.envfile)?;
        let path = match &self.config {
            Some(path) => path.as_path(),
            // Reading reports whether it is a regular file.
            None if Path::new(CADDYFILE).exists() => Path::new(CADDYFILE),
            None => return Ok(None),
        };
        let language = self.language(path)?;
        let stdin = path.as_os_str() == "-";
        let name = if stdin { "standard input".to_owned() } else { path.display().to_string() };
        let bytes = if stdin {
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes).map(|_| bytes)
        } else {
            std::fs::read(path)
        };
        // The name of the default is easily that of a directory with configurations.
        if let Some(error) = bytes.as_ref().err().filter(|error| error.kind() == std::io::ErrorKind::IsADirectory) {
            bail!("{name}: found a directory, expected a file with the configuration ({error})")
        }
        let bytes = bytes.with_context(|| format!("{name}: reading the configuration"))?;
        let Ok(text) = String::from_utf8(bytes) else { bail!("{name}: found bytes that are not UTF-8, expected text") };
        // A pipe cannot be read again, and a later attempt would wait for another writer.
        let file = (!stdin && path.is_file()).then(|| path.to_owned());
        let document = Document { name, text, language };
        let mut source = ConfigSource {
            document,
            environment: Arc::new(environment),
            file,
            notes: Vec::new(),
            is_translated: false,
        };
        if self.adapter.as_deref() == Some(NGINX) {
            from_nginx(&mut source)?;
        }
        Ok(Some(source))
    }

    /// Reads the configuration; returns an error when there is none.
    pub(crate) fn read(&self) -> anyhow::Result<ConfigSource> {
        self.find()?.context("no configuration: there is no Caddyfile in this directory, and --config names no file")
    }

    fn language(&self, path: &Path) -> anyhow::Result<Language> {
        if self.adapter.as_deref() == Some(NGINX) {
            return Ok(Language::Caddyfile);
        }
        if let Some(adapter) = self.adapter.as_deref() {
            let language = Language::by_adapter(adapter);
            return language
                .ok_or_else(|| anyhow!("--adapter: found '{adapter}', expected 'caddyfile', 'json' or 'nginx'"));
        }
        Ok(if is_caddyfile(path) { Language::Caddyfile } else { Language::Json })
    }
}

/// Caddy's rule, in any case of letters: a file name that begins with "Caddyfile" or ends in ".caddyfile" means a
/// Caddyfile; one that ends in ".json", and every other name, means JSON.
fn is_caddyfile(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    !name.ends_with(".json") && (name.starts_with("caddyfile") || name.ends_with(".caddyfile"))
}

impl ConfigSource {
    /// Prints the lines of an nginx configuration that are not carried over.
    pub(crate) fn print_notes(&self) {
        for note in &self.notes {
            output::note(&format!("Note: {note}"));
        }
    }

    /// The configuration's name in messages.
    pub(crate) fn name(&self) -> &str {
        &self.document.name
    }

    /// Adapts the text to JSON, with the directives that this version supports.
    pub(crate) fn adapt(&self) -> anyhow::Result<AdaptedDocument> {
        self.adapt_with(&causeway::directives(&causeway::registry()))
    }

    pub(crate) fn adapt_with(&self, directives: &Directives) -> anyhow::Result<AdaptedDocument> {
        let mut adapted = self.document.adapt(directives, &|name: &str| self.environment.get(name))?;
        if self.is_translated {
            // The lines of warnings would be those of a text that the operator has not written, and may never see.
            adapted.warnings.clear();
        }
        Ok(adapted)
    }

    /// Checks that the configuration can be served, and creates no file. Returns warnings about settings that it
    /// accepts.
    pub(crate) fn validate(&self, adapted: &AdaptedDocument) -> anyhow::Result<Vec<String>> {
        let mut registry = registry(&self.environment);
        registry.check_only();
        let checked = server::validate(adapted.json.clone(), &registry);
        checked.map_err(|error| explain(&self.document, adapted, &error))
    }
}

/// Returns a registry with all built-in modules, which resolves `{env.NAME}` with `environment`.
pub(crate) fn registry(environment: &Arc<EnvironmentFiles>) -> Registry {
    let mut registry = causeway::registry();
    let environment = Arc::clone(environment);
    registry.set_environment(move |name| environment.get(name));
    registry
}

/// Prints the warnings of the text, and those about this machine.
pub(crate) fn warn_before_load(document: &Document, adapted: &AdaptedDocument) {
    warn(&adapted.warnings);
    warn(&document.root_warnings(adapted));
}

/// Prints warnings to the operator.
pub(crate) fn warn(warnings: &[Warning]) {
    for warning in warnings {
        output::note(&format!("Warning: {}: {}", warning.at, warning.message));
    }
}

/// Returns the error message for a refused configuration, with its position in the text.
pub(crate) fn explain(document: &Document, adapted: &AdaptedDocument, error: &LoadError) -> anyhow::Error {
    anyhow!("{}", document.explain_load_error(adapted, error))
}

/// Escapes text for use in a template, so that its braces and backslashes are literal.
pub(crate) fn literal(text: &str) -> String {
    text.replace("\\}", "\\\\}").replace('{', "\\{")
}

/// Returns the welcome site's configuration.
pub(crate) fn welcome(listen: Option<&str>) -> ConfigSource {
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
    ConfigSource {
        document: Document { name: "the welcome site".into(), text: json.to_string(), language: Language::Json },
        environment: Arc::default(),
        file: None,
        notes: Vec::new(),
        is_translated: false,
    }
}

#[cfg(test)]
mod tests {
    use causeway_pipeline::Build;

    use super::*;

    #[test]
    fn names_of_caddyfiles() {
        for name in ["Caddyfile", "caddyfile", "a/Caddyfile.prod", "site.caddyfile", "site.Caddyfile", "CADDYFILE"] {
            assert!(is_caddyfile(Path::new(name)), "{name}");
        }
        for name in ["caddy.json", "Caddyfile.json", "Caddyfile/site", "site.caddyfile.json", "my-caddyfile", ""] {
            assert!(!is_caddyfile(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn a_literal_is_shown_unchanged() {
        for text in ["", "a", "{a}", "\\", "\\{", "\\}", "\\\\{x\\\\}", "a\\b{http.request.host}", "{{}}", "}{"] {
            let registry = Registry::default();
            let template = Build::new(&registry).template(&literal(text));
            assert_eq!(template.literal(), Some(text));
        }
    }
}
