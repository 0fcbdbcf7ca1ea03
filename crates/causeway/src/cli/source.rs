//! Where a configuration comes from: a file, standard input, the Caddyfile of the working folder, or ourselves.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use causeway_config::caddyfile::{self, Directives, SiteOrigin};
use causeway_config::plan::{self, LoadError, Loaded};
use clap::Args;
use serde_json::{Value, json};

/// The file that is served when no other is named.
const CADDYFILE: &str = "Caddyfile";
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
}

/// A configuration as JSON, with what a message needs to name its lines.
pub(crate) struct AdaptedSource {
    pub(crate) json: Value,
    sites: Vec<SiteOrigin>,
}

impl ConfigFlags {
    /// Reads the configuration; `None` when none was named and the working folder has no Caddyfile.
    pub(crate) fn find(&self) -> anyhow::Result<Option<Source>> {
        let path = match &self.config {
            Some(path) => path.as_path(),
            None if Path::new(CADDYFILE).is_file() => Path::new(CADDYFILE),
            None => return Ok(None),
        };
        let language = self.language(path)?;
        let name = if path.as_os_str() == "-" { "standard input".to_owned() } else { path.display().to_string() };
        let text = if path.as_os_str() == "-" {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("reading the configuration from standard input")?;
            text
        } else {
            std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?
        };
        Ok(Some(Source { name, text, language }))
    }

    fn language(&self, path: &Path) -> anyhow::Result<Language> {
        match self.adapter.as_deref() {
            Some("caddyfile") => return Ok(Language::Caddyfile),
            Some("json" | "") => return Ok(Language::Json),
            Some(other) => bail!("no adapter '{other}': there are 'caddyfile' and 'json'"),
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
                let json = serde_json::from_str(&self.text)
                    .map_err(|error| anyhow::anyhow!("{}:{}:{}: {error}", self.name, error.line(), error.column()))?;
                Ok(AdaptedSource { json, sites: Vec::new() })
            }
            Language::Caddyfile => {
                let env = |name: &str| std::env::var(name).ok();
                let adapted = caddyfile::adapt(&self.text, &self.name, directives, &env)?;
                for warning in &adapted.warnings {
                    eprintln!("Warning: {}: {}", warning.at, warning.message);
                }
                Ok(AdaptedSource { json: adapted.json, sites: adapted.sites })
            }
        }
    }

    /// The configuration, compiled, and its JSON.
    pub(crate) fn load(&self) -> anyhow::Result<(Value, Loaded)> {
        let registry = causeway::registry();
        let adapted = self.adapt(&causeway::directives(&registry))?;
        match plan::load(&adapted.json, &registry) {
            Ok(loaded) => Ok((adapted.json, loaded)),
            Err(error) => match adapted.origin(&error) {
                Some(site) => bail!("{}: {error}", site.at),
                None => bail!("{}: {error}", self.name),
            },
        }
    }
}

impl AdaptedSource {
    /// The line that an error about a site is about.
    fn origin(&self, error: &LoadError) -> Option<&SiteOrigin> {
        let LoadError::NeedsTls { site } = error else { return None };
        self.sites.iter().find(|origin| origin.host == *site || format!(":{}", origin.port) == *site)
    }
}

/// The welcome site's configuration.
pub(crate) fn welcome(listen: Option<&str>) -> Source {
    let page = include_str!("../welcome/index.html");
    // Braces in the page are its own, not placeholders.
    let body = page.replace('\\', "\\\\").replace('{', "\\{");
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
    Source { name: "the welcome site".into(), text: json.to_string(), language: Language::Json }
}
