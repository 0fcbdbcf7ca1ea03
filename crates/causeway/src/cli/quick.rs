//! `file-server` and `respond`: a server without a configuration file, as Caddy's commands of these names.

use std::io::{IsTerminal as _, Read as _};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::{Map, Value, json};

use super::compile;
use super::serve::{ServeFlags, Site, serve_loaded};

#[derive(Args)]
pub(crate) struct FileServer {
    /// Serve only this host name
    #[arg(short, long, value_name = "NAME")]
    domain: Option<String>,
    /// The folder; by default the working one
    #[arg(short, long, value_name = "FOLDER")]
    root: Option<PathBuf>,
    /// Where to listen
    #[arg(short, long, value_name = "ADDRESS", default_value = ":80")]
    listen: String,
    /// List folders that have no index file
    #[arg(short, long)]
    browse: bool,
    /// Print a line for every request
    #[arg(short, long)]
    access_log: bool,
    #[command(flatten)]
    serve: ServeFlags,
}

#[derive(Args)]
pub(crate) struct Respond {
    /// The status (three digits), or the body
    #[arg(value_name = "STATUS|BODY")]
    answer: Option<String>,
    /// The status
    #[arg(short, long, value_name = "CODE")]
    status: Option<u16>,
    /// A field of the answer, as in "Name: value"; may be repeated
    #[arg(short = 'H', long, value_name = "FIELD")]
    header: Vec<String>,
    /// The body; by default what comes by way of a pipe
    #[arg(short, long)]
    body: Option<String>,
    /// Where to listen
    #[arg(short, long, value_name = "ADDRESS", default_value = ":0")]
    listen: String,
    /// Print a line for every request
    #[arg(long)]
    access_log: bool,
    #[command(flatten)]
    serve: ServeFlags,
}

impl FileServer {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let root = self.root.clone().unwrap_or_else(|| PathBuf::from("."));
        let folder = std::fs::metadata(&root).with_context(|| format!("the folder {}", root.display()))?;
        if !folder.is_dir() {
            bail!("{} is no folder", root.display());
        }
        let Some(root) = root.to_str() else { bail!("{} is not UTF-8, which a root must be", root.display()) };
        let mut handler = json!({ "handler": "file_server", "root": literal(root) });
        if self.browse {
            handler["browse"] = json!({});
        }
        let mut route = json!({ "handle": [handler] });
        if let Some(domain) = &self.domain {
            route["match"] = json!([{ "host": [domain] }]);
        }
        let config = config(&self.listen, route, self.access_log);
        serve_loaded(compile(&config)?, root, Site::Configured, &self.serve)
    }
}

impl Respond {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let (mut status, mut body) = (self.status, self.body.clone());
        if let Some(answer) = &self.answer {
            // Caddy's rule: three digits are a status, unless one was given already.
            match answer.parse::<u16>() {
                Ok(code) if answer.len() == 3 && status.is_none() => status = Some(code),
                _ if body.is_none() => body = Some(answer.clone()),
                _ => bail!("the body is given twice: '{answer}' and --body"),
            }
        }
        if body.is_none() && !std::io::stdin().is_terminal() {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("reading the body from standard input")?;
            body = Some(text).filter(|text| !text.is_empty());
        }
        let mut handler = json!({ "handler": "static_response" });
        if let Some(status) = status {
            handler["status_code"] = json!(status);
        }
        if let Some(body) = &body {
            handler["body"] = json!(body);
        }
        if !self.header.is_empty() {
            handler["headers"] = Value::Object(fields(&self.header)?);
        }
        let config = config(&self.listen, json!({ "handle": [handler] }), self.access_log);
        serve_loaded(compile(&config)?, "one answer", Site::Configured, &self.serve)
    }
}

fn fields(written: &[String]) -> anyhow::Result<Map<String, Value>> {
    let mut fields = Map::new();
    for field in written {
        let Some((name, value)) = field.split_once(':') else {
            bail!("--header '{field}': expected \"Name: value\"");
        };
        let values = fields.entry(name.trim()).or_insert_with(|| json!([]));
        if let Value::Array(values) = values {
            values.push(json!(value.trim()));
        }
    }
    Ok(fields)
}

/// One server with one route. Named hosts are served in the clear here: whoever uses these commands asked for just that.
fn config(listen: &str, route: Value, access_log: bool) -> Value {
    let mut server = json!({ "listen": [listen], "routes": [route], "automatic_https": { "disable": true } });
    if access_log {
        server["logs"] = json!({});
    }
    json!({ "admin": { "disabled": true }, "apps": { "http": { "servers": { "static": server } } } })
}

/// A path is text, even where it holds what would be a placeholder.
fn literal(path: &str) -> String {
    path.replace('\\', "\\\\").replace('{', "\\{")
}
