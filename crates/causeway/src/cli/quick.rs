//! `file-server`, `respond` and `reverse-proxy`: servers without a configuration file, like Caddy's commands of these
//! names.
//!
//! - `answer_template`: the variables in the body of `respond`
//! - `reverse_proxy`: the command of this name

mod answer_template;
mod reverse_proxy;

use std::io::{IsTerminal as _, Read as _};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use causeway::document::{AdaptedDocument, Document, Language};
use clap::Args;
use serde_json::{Map, Value, json};

use super::serve::{Predecessor, ServeFlags, Serving, SiteKind, serve_generated};
use super::source::literal;
use answer_template::Numbered;
pub(crate) use reverse_proxy::ReverseProxy;

#[derive(Args)]
pub(crate) struct FileServer {
    /// Serve only this host name: over TLS, or without TLS on the address of --listen
    #[arg(short, long, value_name = "NAME")]
    domain: Option<String>,
    /// The directory to serve; by default the working directory
    #[arg(short, long, value_name = "DIRECTORY")]
    root: Option<PathBuf>,
    /// Listen address, without TLS; by default `:80`, or with --domain `:443` over TLS
    #[arg(short, long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// List directories that have no index file
    #[arg(short, long)]
    browse: bool,
    /// Show the targets of symbolic links in listings
    #[arg(long)]
    reveal_symlinks: bool,
    /// Largest number of entries in a listing
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    file_limit: Option<u32>,
    /// Render files as templates
    #[arg(short, long)]
    templates: bool,
    /// Do not compress responses
    #[arg(long)]
    no_compress: bool,
    /// Send files that are compressed already (gzip, zstd, br); may be repeated, the preferred one first
    #[arg(short, long, value_name = "ENCODING", value_delimiter = ',')]
    precompressed: Vec<String>,
    /// Print a line for every request
    #[arg(short, long)]
    access_log: bool,
    #[command(flatten)]
    serve: ServeFlags,
}

#[derive(Args)]
pub(crate) struct Respond {
    /// The status (three digits) or the body; --status and --body take precedence
    #[arg(value_name = "STATUS|BODY")]
    answer: Option<String>,
    /// The status of the response
    #[arg(short, long, value_name = "CODE", value_parser = clap::value_parser!(u16).range(100..=999))]
    status: Option<u16>,
    /// A header of the response, such as "Name: value"; may be repeated
    #[arg(short = 'H', long, value_name = "FIELD")]
    header: Vec<String>,
    /// The body; by default standard input, if it is a pipe; may contain {{.N}}, {{.Port}} and {{.Address}}
    #[arg(short, long)]
    body: Option<String>,
    /// Listen address; a range of ports starts one server per port
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
        let directory = std::fs::metadata(&root).with_context(|| format!("--root {}", root.display()))?;
        if !directory.is_dir() {
            bail!("--root {}: found a file, expected a directory", root.display());
        }
        let Some(root) = root.to_str() else { bail!("--root {}: expected a name in UTF-8", root.display()) };
        let listen = match (&self.listen, &self.domain) {
            (Some(listen), _) => listen,
            // As in Caddy, a host name without an address implies HTTPS.
            (None, Some(_)) => ":443",
            (None, None) => ":80",
        };
        let mut handler = json!({ "handler": "file_server", "root": literal(root) });
        if self.browse {
            let mut browse = json!({});
            if self.reveal_symlinks {
                browse["reveal_symlinks"] = json!(true);
            }
            if let Some(limit) = self.file_limit {
                browse["file_limit"] = json!(limit);
            }
            handler["browse"] = browse;
        }
        if !self.precompressed.is_empty() {
            let encodings: Map<_, _> = self.precompressed.iter().map(|name| (name.clone(), json!({}))).collect();
            handler["precompressed"] = encodings.into();
            handler["precompressed_order"] = json!(self.precompressed);
        }
        let mut handlers = Vec::new();
        if !self.no_compress {
            let encodings = json!({ "zstd": {}, "gzip": {} });
            handlers.push(json!({ "handler": "encode", "encodings": encodings, "prefer": ["zstd", "gzip"] }));
        }
        if self.templates {
            handlers.push(json!({ "handler": "templates", "file_root": literal(root) }));
        }
        handlers.push(handler);
        let mut route = json!({ "handle": handlers });
        if let Some(domain) = &self.domain {
            route["match"] = json!([{ "host": [domain] }]);
        }
        let mut server = server(listen, route, self.access_log);
        if self.listen.is_none() && self.domain.is_some() {
            server["automatic_https"] = json!({});
        }
        let config = config([server]);
        serve_generated(
            serving(SiteKind::FileServer, root, format!("file-server --listen {listen}"), config),
            &self.serve,
        )
    }
}

impl Respond {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let (mut status, mut body) = (self.status, self.body.clone());
        if let Some(answer) = &self.answer {
            // Caddy's rule: three digits are the status unless a flag sets it; any other text is the body.
            match answer.parse::<u16>() {
                Ok(code @ 100..) if answer.len() == 3 && status.is_none() => status = Some(code),
                _ => body = body.or_else(|| Some(answer.clone())),
            }
        }
        // A terminal would block here for input that the user does not expect to type.
        // Nor has a process that takes the place of another any input, but the running configuration.
        if body.is_none() && !std::io::stdin().is_terminal() && !Predecessor::is_offered() {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("reading the body from standard input")?;
            body = Some(text).filter(|text| !text.is_empty());
        }
        let mut handler = json!({ "handler": "static_response" });
        if let Some(status) = status {
            handler["status_code"] = json!(status);
        }
        if !self.header.is_empty() {
            handler["headers"] = Value::Object(fields(&self.header)?);
        }
        let mut servers = Vec::new();
        for numbered in Numbered::all(&self.listen) {
            let mut handler = handler.clone();
            if let Some(body) = &body {
                handler["body"] = json!(numbered.fill(body)?);
            }
            servers.push(server(&numbered.address, json!({ "handle": [handler] }), self.access_log));
        }
        let config = config(servers);
        serve_generated(
            serving(SiteKind::Respond, "a fixed response", format!("respond --listen {}", self.listen), config),
            &self.serve,
        )
    }
}

/// Describes the server for [`serve`]. `command` is the document's name in messages about mistakes.
fn serving(site: SiteKind, name: &str, command: String, config: Value) -> Serving {
    Serving {
        site,
        name: name.to_owned(),
        document: Document { name: command, text: String::new(), language: Language::Json },
        adapted: AdaptedDocument::of(config),
        environment: Arc::default(),
        follows: None,
        pingback: None,
        predecessor: None,
    }
}

fn fields(written: &[String]) -> anyhow::Result<Map<String, Value>> {
    let mut fields = Map::new();
    for written in written {
        let (name, value) = field("--header", written)?;
        let values = fields.entry(name).or_insert_with(|| json!([]));
        if let Value::Array(values) = values {
            values.push(json!(value));
        }
    }
    Ok(fields)
}

/// Parses the name and the value of a field. As in Caddy, neither may be empty.
fn field<'w>(flag: &str, written: &'w str) -> anyhow::Result<(&'w str, &'w str)> {
    let parts = written.split_once(':').map(|(name, value)| (name.trim(), value.trim()));
    parts
        .filter(|(name, value)| !name.is_empty() && !value.is_empty())
        .ok_or_else(|| anyhow!("{flag}: found '{written}', expected \"Name: value\""))
}

/// Returns a server with one route. Automatic HTTPS is off: an explicit address is served without TLS, also for a named
/// host.
fn server(listen: &str, route: Value, access_log: bool) -> Value {
    let mut server = json!({ "listen": [listen], "routes": [route], "automatic_https": { "disable": true } });
    if access_log {
        server["logs"] = json!({});
    }
    server
}

/// Returns the configuration; the servers get the names that Caddy gives them.
fn config(servers: impl IntoIterator<Item = Value>) -> Value {
    let named = servers.into_iter().enumerate().map(|(index, server)| (format!("static{index}"), server));
    json!({ "admin": { "disabled": true }, "apps": { "http": { "servers": Map::from_iter(named) } } })
}
