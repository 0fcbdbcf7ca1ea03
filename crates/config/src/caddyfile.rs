//! How does a Caddyfile become Caddy's JSON?
//!
//! [`adapt`] answers in five steps, and the rooms below stand in their order:
//!
//! - `position`, `environment`, `lexer`, `token`: text to words, each with its file, line and column;
//! - `parser`, `import`, `segment`: words to site blocks and nested directives, with snippets and files spliced in;
//! - `error`: the mistakes an operator can make, each naming where, what was found and what was expected;
//! - `registry`, `dispenser`, `directives`, `matcher`: the table of directive syntax and what each line means;
//! - `log`: loggers, of sites and of the global block;
//! - `tls`: what sites and the global block say of handshakes and issuers; `members`: what JSON objects leave out;
//! - `proxy`: `reverse_proxy` and its relatives;
//! - `format`: what a file should look like; `place`: where a word stands; nothing above needs them;
//! - `address`, `options`, `route`, `servers`: sites and global options to servers, listeners, routes;
//! - `certificates`, `pki`: the same to the TLS and PKI apps; `sort`: how routes and policies are put in order.
//!
//! The JSON equals what Caddy 2.11 emits for the same file, the order of object members aside. A directive or option that
//! Caddy has and this version has not is refused by name ([`ErrorKind::NotBuilt`]), never skipped.

mod address;
mod certificates;
mod directives;
mod dispenser;
mod environment;
mod error;
mod format;
mod import;
mod lexer;
mod log;
mod matcher;
mod members;
mod options;
mod parser;
mod pki;
mod place;
mod placeholder;
mod position;
mod proxy;
mod quantity;
mod registry;
mod route;
mod segment;
mod servers;
mod sort;
mod tls;
mod token;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

pub use dispenser::Dispenser;
pub use error::{Error, ErrorKind, Part};
pub use format::{format, unformatted_at};
pub use log::Logger;
pub use matcher::MatcherSet;
pub use place::only_place;
pub use position::Position;
pub use registry::{Directives, Order, Output, RegisterError, Syntax};
pub use route::Route;
pub use segment::Segment;
pub use tls::Tls;
pub use token::{Quote, Token};

use address::Address;
use dispenser::Scope;
use options::Options;
use parser::{Kind, ServerBlock};
use route::Placed;

/// What a Caddyfile turned into.
#[derive(Debug)]
pub struct Adapted {
    /// Caddy's JSON configuration.
    pub json: Value,
    /// What was accepted but is probably not what the operator meant.
    pub warnings: Vec<Warning>,
    /// Every site address in the order written, so that later refusals can name the line that asked.
    pub sites: Vec<SiteOrigin>,
}

/// Something accepted that deserves a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The word it is about.
    pub at: Position,
    /// One sentence.
    pub message: String,
}

/// Where a site address stands in the Caddyfile, and how it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteOrigin {
    /// The address as written, without a separating comma.
    pub written: String,
    /// Its first character.
    pub at: Position,
    /// `http`, `https` or empty.
    pub scheme: String,
    /// Lower-case host, possibly with wildcards or placeholders; empty for every host.
    pub host: String,
    /// Port as written; empty when it follows from the scheme.
    pub port: String,
}

/// State that all blocks of one adaptation share.
pub(crate) struct Session<'a> {
    pub(crate) directives: &'a Directives,
    pub(crate) options: &'a Options,
    pub(crate) order: Vec<Box<str>>,
    pub(crate) groups: Cell<usize>,
    pub(crate) logs: Cell<usize>,
    /// Tags of certificates by their files.
    pub(crate) tags: RefCell<BTreeMap<String, String>>,
    pub(crate) warnings: RefCell<Vec<Warning>>,
    /// Named routes that the directive being read invokes; taken by whoever owns that directive.
    pub(crate) invoked: RefCell<BTreeMap<String, Position>>,
}

impl<'a> Session<'a> {
    fn new(directives: &'a Directives, options: &'a Options, warnings: Vec<Warning>) -> Self {
        let order = options.order.clone().unwrap_or_else(|| directives.order().to_vec());
        Self {
            directives,
            options,
            order,
            groups: Cell::new(0),
            logs: Cell::new(0),
            tags: RefCell::default(),
            warnings: RefCell::new(warnings),
            invoked: RefCell::default(),
        }
    }

    /// The tag of a certificate's file, and whether it is new.
    fn certificate_tag(&self, file: &str) -> (String, bool) {
        let mut tags = self.tags.borrow_mut();
        if let Some(tag) = tags.get(file) {
            return (tag.clone(), false);
        }
        let tag = format!("cert{}", tags.len());
        tags.insert(file.to_owned(), tag.clone());
        (tag, true)
    }

    /// A fresh group name; Caddy numbers them in the order subroutes are finished.
    pub(crate) fn next_group(&self) -> String {
        let number = self.groups.get();
        self.groups.set(number + 1);
        format!("group{number}")
    }

    /// A fresh logger's name.
    pub(crate) fn next_log(&self) -> String {
        let number = self.logs.get();
        self.logs.set(number + 1);
        format!("log{number}")
    }
}

/// A site block with its directives evaluated.
pub(crate) struct Site {
    pub(crate) keys: Vec<Token>,
    pub(crate) addresses: Vec<Address>,
    pub(crate) outputs: Vec<Placed>,
    pub(crate) invoked: BTreeMap<String, Position>,
}

impl Site {
    /// Its loggers in the order written.
    pub(crate) fn loggers(&self) -> impl Iterator<Item = &Logger> {
        self.outputs.iter().filter_map(|placed| match &placed.output {
            Output::Log(logger) => Some(logger),
            _ => None,
        })
    }

    /// Its `tls` directives in the order written, with their places.
    pub(crate) fn tls(&self) -> impl Iterator<Item = (&Tls, &Position)> {
        self.outputs.iter().filter_map(|placed| match &placed.output {
            Output::Tls(tls) => Some((&**tls, &placed.at)),
            _ => None,
        })
    }
}

/// A `&(name)` block: its route, and the named routes it invokes in turn.
pub(crate) struct NamedRoute {
    pub(crate) route: Value,
    pub(crate) invoked: BTreeMap<String, Position>,
}

/// Turns Caddyfile text into Caddy's JSON.
///
/// `file_name` names the text in errors and anchors relative `import`s; `env` answers `{$NAME}`. Fails on the first
/// mistake; touches the file system only for `import` of files and for the certificates that `client_auth` names.
///
/// ```
/// use causeway_config::caddyfile::{Directives, adapt};
/// let adapted = adapt(":80\nrespond hello\n", "Caddyfile", &Directives::standard(), &|_| None).unwrap();
/// let server = &adapted.json["apps"]["http"]["servers"]["srv0"];
/// assert_eq!(server["routes"][0]["handle"][0]["body"], "hello");
/// let error = adapt(":80\nrespnd hello\n", "Caddyfile", &Directives::standard(), &|_| None).unwrap_err();
/// assert!(error.to_string().starts_with("Caddyfile:2:1: unrecognized directive: respnd (did you mean \"respond\"?)"));
/// ```
pub fn adapt(
    source: &str,
    file_name: &str,
    directives: &Directives,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Adapted, Error> {
    let file: Arc<str> = Arc::from(file_name);
    let tokens = lexer::lex(source, &file, env)?;
    let (blocks, warnings) = parser::parse(tokens, &file, env)?;
    let mut adapted = assemble(blocks, warnings, directives)?;
    if let Some((line, column)) = unformatted_at(source) {
        let message = "the file is not formatted; `causeway fmt --overwrite` puts it in order".to_owned();
        adapted.warnings.push(Warning { at: Position { file, line, column }, message });
    }
    Ok(adapted)
}

/// Blocks to JSON.
fn assemble(mut blocks: Vec<ServerBlock>, warnings: Vec<Warning>, directives: &Directives) -> Result<Adapted, Error> {
    refuse_directives_as_addresses(&blocks, directives)?;

    let options = match blocks.first() {
        Some(block) if block.kind == Kind::Site && block.keys.is_empty() => {
            options::read(&blocks.remove(0).segments, directives)?
        }
        _ => Options::default(),
    };
    let session = Session::new(directives, &options, warnings);
    for block in &mut blocks {
        placeholder::expand_shorthands(&mut block.segments);
    }
    let named = named_routes(&blocks, &session)?;
    let mut sites = Vec::new();
    for block in blocks.iter().filter(|block| block.kind == Kind::Site) {
        sites.push(site(block, &session)?);
    }
    let origins = sites.iter().flat_map(origins).collect();

    let pairings = servers::pair(&sites, &options)?;
    let pairings = servers::sort(pairings, &sites);
    let http = servers::http_app(&pairings, &sites, &named, &options, &session)?;
    let tls = certificates::tls_app(&pairings, &sites, &options)?;
    let pki = pki::pki_app(&pairings, &sites, &options);
    let shares = pairings.iter().flat_map(|pairing| &pairing.shares);
    let loggers = shares.flat_map(|share| sites[share.site].loggers());
    let logs = log::configuration(&options.loggers, loggers, options.debug);
    let json = top(&options, logs, [("http", http), ("tls", tls), ("pki", pki)]);
    Ok(Adapted { json, warnings: session.warnings.take(), sites: origins })
}

/// Whether words make a Caddyfile, as far as can be told without what it imports.
fn readable(tokens: Vec<Token>, file: &Arc<str>) -> bool {
    let Ok((blocks, warnings)) = parser::parse_alone(tokens, file) else { return false };
    match assemble(blocks, warnings, &Directives::standard()) {
        Ok(_) => true,
        Err(error) => matches!(error.kind(), ErrorKind::NotBuilt(..)),
    }
}

fn refuse_directives_as_addresses(blocks: &[ServerBlock], directives: &Directives) -> Result<(), Error> {
    for key in blocks.iter().filter(|block| block.kind == Kind::Site).flat_map(|block| &block.keys) {
        if directives.knows(&key.text) {
            return Err(Error::at(key, ErrorKind::DirectiveAsAddress(key.text.clone())));
        }
    }
    Ok(())
}

/// Named routes number their groups for themselves, starting at 0 again.
fn named_routes(blocks: &[ServerBlock], session: &Session<'_>) -> Result<BTreeMap<String, NamedRoute>, Error> {
    let mut named = BTreeMap::new();
    for block in blocks {
        let Kind::NamedRoute(name) = &block.kind else { continue };
        let files = block.files();
        let scope = Scope { session, matchers: BTreeMap::new(), files: &files };
        let outputs = dispenser::evaluate(&block.segments, scope, None);
        let outputs = outputs.map_err(|error| error.inside("", &block.closes))?;
        let routes = route::subroute(outputs, session, route::Ordering::ByDirective)?;
        let route = match routes.as_slice() {
            // Only the first handler survives here, as in Caddy, which assumes that one plain route has one handler.
            [only] if only.matchers.is_empty() && !only.handlers.is_empty() => json!({ "handle": [only.handlers[0]] }),
            _ => json!({ "handle": [route::subroute_handler(&routes)] }),
        };
        let invoked = session.invoked.take();
        if named.insert(name.clone(), NamedRoute { route, invoked }).is_some() {
            return Err(Error::at(&block.keys[0], ErrorKind::NamedRouteTwice(name.as_str().into())));
        }
    }
    session.groups.set(0);
    session.logs.set(0);
    Ok(named)
}

fn site(block: &ServerBlock, session: &Session<'_>) -> Result<Site, Error> {
    if block.keys.is_empty() {
        return Err(Error::new(block.at.clone(), ErrorKind::GlobalOptionsNotFirst));
    }
    let files = block.files();
    let scope = Scope { session, matchers: BTreeMap::new(), files: &files };
    let outputs = dispenser::evaluate(&block.segments, scope, Some(block.braces))?;
    let mut addresses = Vec::new();
    for key in &block.keys {
        addresses.push(Address::parse(key)?);
    }
    Ok(Site { keys: block.keys.clone(), addresses, outputs, invoked: session.invoked.take() })
}

fn origins(site: &Site) -> Vec<SiteOrigin> {
    let pairs = site.keys.iter().zip(&site.addresses);
    pairs
        .map(|(key, address)| SiteOrigin {
            written: key.text.to_string(),
            at: key.at.clone(),
            scheme: address.scheme.clone(),
            host: address.host.clone(),
            port: address.port.clone(),
        })
        .collect()
}

fn top(options: &Options, logs: Map<String, Value>, apps: [(&str, Map<String, Value>); 3]) -> Value {
    let mut config = Map::new();
    if let Some(admin) = options.admin_json() {
        config.insert("admin".into(), admin);
    }
    if !logs.is_empty() {
        config.insert("logging".into(), json!({ "logs": logs }));
    }
    if let Some(storage) = &options.storage {
        config.insert("storage".into(), storage.clone());
    }
    let apps = apps.into_iter().filter(|(_, app)| !app.is_empty());
    let apps: Map<String, Value> = apps.map(|(name, app)| (name.to_owned(), app.into())).collect();
    if !apps.is_empty() {
        config.insert("apps".into(), Value::Object(apps));
    }
    Value::Object(config)
}
