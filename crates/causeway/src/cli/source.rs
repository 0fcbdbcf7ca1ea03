//! Where a configuration comes from: a file, standard input, the Caddyfile of the working folder, or ourselves.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use causeway::document::{AdaptedDocument, Document, Language};
use causeway::server::{self, LoadFault};
use causeway_config::caddyfile::Directives;
use causeway_pipeline::Registry;
use clap::Args;
use serde_json::json;

use super::environment::Environment;
use super::say;

/// The file that is served when no other is named.
pub(super) const CADDYFILE: &str = "Caddyfile";
/// Where the welcome site listens.
const WELCOME_LISTEN: &str = ":8080";

/// Which configuration.
#[derive(Args, Clone)]
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

/// A configuration as it was found.
pub(crate) struct Source {
    pub(crate) document: Document,
    pub(crate) environment: Arc<Environment>,
    /// The file that it may be read from again.
    pub(crate) file: Option<PathBuf>,
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
        let file = (!stdin).then(|| path.to_owned());
        Ok(Some(Source { document: Document { name, text, language }, environment: Arc::new(environment), file }))
    }

    /// The same, where there has to be one.
    pub(crate) fn read(&self) -> anyhow::Result<Source> {
        self.find()?.context("no configuration: there is no Caddyfile in this folder, and --config names no file")
    }

    fn language(&self, path: &Path) -> anyhow::Result<Language> {
        if let Some(adapter) = self.adapter.as_deref() {
            let language = Language::by_adapter(adapter);
            return language.ok_or_else(|| anyhow!("--adapter: found '{adapter}', expected 'caddyfile' or 'json'"));
        }
        // Caddy's rule: a name that begins with Caddyfile, or ends so, is one; anything else is JSON.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let caddyfile = name.starts_with(CADDYFILE) || name.ends_with(".caddyfile");
        Ok(if caddyfile { Language::Caddyfile } else { Language::Json })
    }
}

impl Source {
    /// What messages call it.
    pub(crate) fn name(&self) -> &str {
        &self.document.name
    }

    /// The configuration as JSON, by what this version can serve.
    pub(crate) fn adapt(&self) -> anyhow::Result<AdaptedDocument> {
        self.adapt_with(&causeway::directives(&causeway::registry()))
    }

    pub(crate) fn adapt_with(&self, directives: &Directives) -> anyhow::Result<AdaptedDocument> {
        Ok(self.document.adapt(directives, &|name: &str| self.environment.get(name))?)
    }

    /// Checks that it can be served.
    pub(crate) fn validate(&self, adapted: &AdaptedDocument) -> anyhow::Result<()> {
        let checked = server::validate(adapted.json.clone(), &registry(&self.environment));
        checked.map_err(|fault| explain(&self.document, adapted, &fault))
    }
}

/// All built-in modules, with the variables that a configuration may name.
pub(crate) fn registry(environment: &Arc<Environment>) -> Registry {
    let mut registry = causeway::registry();
    let environment = Arc::clone(environment);
    registry.environment(move |name| environment.get(name));
    registry
}

/// Says what was accepted but deserves a look.
pub(crate) fn warn(adapted: &AdaptedDocument) {
    for warning in &adapted.warnings {
        say::note(&format!("Warning: {}: {}", warning.at, warning.message));
    }
}

/// Why a configuration is not served, with its place.
pub(crate) fn explain(document: &Document, adapted: &AdaptedDocument, fault: &LoadFault) -> anyhow::Error {
    anyhow!("{}", document.explain_fault(adapted, fault))
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
        document: Document { name: "the welcome site".into(), text: json.to_string(), language: Language::Json },
        environment: Arc::default(),
        file: None,
    }
}

#[cfg(test)]
mod tests {
    use causeway_pipeline::Build;

    use super::*;

    #[test]
    fn a_literal_is_shown_as_it_is() {
        for text in ["", "a", "{a}", "\\", "\\{", "\\}", "\\\\{x\\\\}", "a\\b{http.request.host}", "{{}}", "}{"] {
            let registry = Registry::default();
            let template = Build::new(&registry).template(&literal(text));
            assert_eq!(template.literal(), Some(text));
        }
    }
}
