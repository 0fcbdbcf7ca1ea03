//! Adapts a Caddyfile to Caddy's JSON.
//!
//! [`adapt`] works in five steps. The modules in the order of the steps:
//!
//! - `position`, `environment`, `lexer`, `token`: split the text into tokens, each with its file, line and column
//! - `parser`, `import`, `segment`: build site blocks and nested directives from the tokens, and splice in snippets and
//!   files
//! - `error`, `hint`: the errors that an operator can cause; each states its place, the text found and the text
//!   expected
//! - `registry`, `dispenser`, `directives`, `matcher`: the table of directives, and the syntax of each
//! - `clean_path`: paths of files without dot segments
//! - `placeholder`, `quantity`: shorthand placeholders; sizes, numbers and booleans
//! - `log`: loggers, of sites and of the global block
//! - `tls`: TLS settings and issuers, of sites and of the global block; `members`: JSON objects that omit empty members
//! - `proxy`: `reverse_proxy` and related directives
//! - `address`, `options`, `route`, `servers`: combine sites and global options into servers, listeners and routes
//! - `certificates`, `pki`: the TLS and PKI apps; `sort`: the order of routes and policies
//! - `format`, `locate`: used apart from adapting: formatting a file, and finding a token's position
//!
//! The JSON equals that of Caddy 2.11 for the same file, except for the order of object members. A directive or option
//! of Caddy's that is not supported is rejected by name ([`ErrorKind::NotSupported`]), never skipped.

mod address;
mod arguments;
mod certificates;
mod clean_path;
mod directives;
mod dispenser;
mod environment;
mod error;
mod format;
mod hint;
mod import;
mod lexer;
mod locate;
mod log;
mod matcher;
mod members;
mod options;
mod parser;
mod pki;
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
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use causeway_pipeline::punycode;
use serde_json::{Map, Value, json};

pub use arguments::{FromAddress, ToAddress};
pub use dispenser::{Dispenser, Lines};
pub(crate) use error::write_plugin;
pub use error::{Error, ErrorKind, NameTable};
pub use format::{format, unformatted_at};
pub use locate::{SourceLine, locate};
pub use log::Logger;
pub use matcher::MatcherSet;
pub use position::Position;
pub(crate) use proxy::POLICIES;
pub use registry::{DirectiveOutput, Directives, Order, RegisterError, Syntax};
pub use route::{Route, subroute_handler};
pub use segment::Segment;
pub use tls::Tls;
pub use token::{Quote, Token};

use address::Address;
use dispenser::Scope;
use environment::Unset;
use options::Options;
use parser::{BlockKind, ServerBlock};
use route::Placed;

/// The result of adapting a Caddyfile.
#[derive(Debug)]
pub struct Adapted {
    /// Caddy's JSON configuration.
    pub json: Value,
    /// Accepted input that is probably a mistake, in the order found.
    pub warnings: Vec<Warning>,
    /// Every site address in the order written, so that later errors about a site can name its line.
    pub sites: Vec<SiteOrigin>,
}

/// Accepted input that is probably a mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The token in question.
    pub at: Position,
    /// One sentence.
    pub message: String,
}

/// The position and the parts of a site address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteOrigin {
    /// The address as written, without a separating comma.
    pub written: String,
    /// Position of its first character.
    pub at: Position,
    /// `http`, `https`, or empty if not written.
    pub scheme: String,
    /// Lower-case host, possibly with wildcards or placeholders; empty for every host.
    pub host: String,
    /// Port as written, or empty.
    pub port: String,
}

/// State shared by all blocks of one adaptation.
pub(crate) struct Session<'a> {
    pub(crate) directives: &'a Directives,
    pub(crate) options: &'a Options,
    /// The order of directives.
    pub(crate) order: Vec<Box<str>>,
    /// Number of group names handed out so far.
    pub(crate) groups: Cell<usize>,
    /// Number of logger names handed out so far.
    pub(crate) logs: Cell<usize>,
    /// The tag of each certificate file.
    pub(crate) tags: RefCell<BTreeMap<String, String>>,
    pub(crate) warnings: RefCell<Vec<Warning>>,
    /// Named routes that the current directives invoke. Taken by the enclosing site or named route.
    pub(crate) invoked: RefCell<BTreeMap<String, Position>>,
    /// The error for the first token that the current directive did not read. Taken after each directive.
    pub(crate) unread: RefCell<Option<Error>>,
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
            unread: RefCell::default(),
        }
    }

    /// Records a warning about accepted input.
    pub(crate) fn warn(&self, token: &Token, message: String) {
        self.warn_at(&token.at, message);
    }

    /// As [`warn`](Self::warn), about a directive that was evaluated before.
    pub(crate) fn warn_at(&self, at: &Position, message: String) {
        self.warnings.borrow_mut().push(Warning { at: at.clone(), message });
    }

    /// Records the error for an unread token, unless an earlier one is recorded.
    pub(crate) fn note_unread(&self, error: Error) {
        self.unread.borrow_mut().get_or_insert(error);
    }

    /// The tag of a certificate file, and whether it is new.
    fn assign_certificate_tag(&self, file: &str) -> (String, bool) {
        let mut tags = self.tags.borrow_mut();
        if let Some(tag) = tags.get(file) {
            return (tag.clone(), false);
        }
        let tag = format!("cert{}", tags.len());
        tags.insert(file.to_owned(), tag.clone());
        (tag, true)
    }

    /// A fresh group name. Caddy numbers groups in the order in which subroutes are finished.
    pub(crate) fn next_group_name(&self) -> String {
        let number = self.groups.get();
        self.groups.set(number + 1);
        format!("group{number}")
    }

    /// A fresh logger name.
    pub(crate) fn next_log_name(&self) -> String {
        let number = self.logs.get();
        self.logs.set(number + 1);
        format!("log{number}")
    }
}

/// A site block with its directives evaluated.
pub(crate) struct EvaluatedSite {
    pub(crate) keys: Vec<Token>,
    pub(crate) addresses: Vec<Address>,
    pub(crate) outputs: Vec<Placed>,
    pub(crate) invoked: BTreeMap<String, Position>,
}

impl EvaluatedSite {
    /// Its loggers, in the order written.
    pub(crate) fn loggers(&self) -> impl Iterator<Item = &Logger> {
        self.outputs.iter().filter_map(|placed| match &placed.output {
            DirectiveOutput::Log(logger) => Some(logger),
            _ => None,
        })
    }

    /// Its `tls` directives with their positions, in the order written.
    pub(crate) fn tls(&self) -> impl Iterator<Item = (&Tls, &Position)> {
        self.outputs.iter().filter_map(|placed| match &placed.output {
            DirectiveOutput::Tls(tls) => Some((&**tls, &placed.at)),
            _ => None,
        })
    }
}

/// A `&(name)` block: its route, and the named routes that it invokes in turn.
pub(crate) struct NamedRoute {
    pub(crate) route: Value,
    pub(crate) invoked: BTreeMap<String, Position>,
}

/// Adapts Caddyfile text to Caddy's JSON.
///
/// `file_name` names the text in errors, and is the base of relative `import` paths. `env` returns the value of
/// `{$NAME}`. Returns the first error. Reads files only for `import` and for the certificates that `client_auth` names.
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
    // Keep the long quotes: the tokens are consumed below, and an error may need a note about one of them.
    let long_quotes = Vec::from_iter(tokens.iter().filter_map(LongQuote::of));
    let adapted = parser::parse(tokens, &file, env).and_then(|(blocks, warnings)| {
        refuse_unset_addresses(&blocks)?;
        assemble(blocks, warnings, directives)
    });
    let mut adapted = adapted.map_err(|error| {
        let at = error.position();
        match long_quotes.iter().find(|quote| quote.at.file == at.file && (quote.at == *at || quote.ends == at.line)) {
            Some(quote) => {
                error.with_note(|| format!("the quote that begins at {} ends on line {}", quote.at, quote.ends))
            }
            None => error,
        }
    })?;
    if let Some((line, column)) = unformatted_at(source) {
        let message = "the file is not formatted; `causeway fmt --overwrite` puts it in order".to_owned();
        adapted.warnings.push(Warning { at: Position { file, line, column }, message });
    }
    Ok(adapted)
}

/// A quoted token that spans lines. An error near its end is often caused at its start, or by a quote left out before.
struct LongQuote {
    at: Position,
    /// The line of its closing quote.
    ends: u32,
}

impl LongQuote {
    fn of(token: &Token) -> Option<Self> {
        let lines = token.rows.1 - token.rows.0;
        let is_quote = matches!(token.quote, Quote::Double | Quote::Backtick);
        (is_quote && lines > 0).then(|| Self { at: token.at.clone(), ends: token.at.line + lines })
    }
}

/// Converts parsed blocks to JSON.
fn assemble(
    mut blocks: Vec<ServerBlock>,
    mut warnings: Vec<Warning>,
    directives: &Directives,
) -> Result<Adapted, Error> {
    refuse_directives_as_addresses(&blocks, directives)?;

    // A first block without keys holds the global options.
    let options = match blocks.first() {
        Some(block) if block.kind == BlockKind::Site && block.keys.is_empty() => {
            let (options, more) = options::read(&blocks.remove(0).segments, directives)?;
            warnings.extend(more);
            options
        }
        _ => Options::default(),
    };
    let session = Session::new(directives, &options, warnings);
    for block in &mut blocks {
        placeholder::expand_shorthands(&mut block.segments);
        warn_of_other_servers(&mut block.segments, &session);
    }
    let named = named_routes(&blocks, &session)?;
    let mut sites = Vec::new();
    for block in blocks.iter().filter(|block| block.kind == BlockKind::Site) {
        sites.push(site(block, &session)?);
    }
    let origins = sites.iter().flat_map(origins).collect();

    let server_groups = servers::group(&sites, &options)?;
    let server_groups = servers::sort(server_groups, &sites);
    warn_of_unused_routes(&blocks, &sites, &named, &session);
    let http = servers::http_app(&server_groups, &sites, &named, &options, &session)?;
    let tls = certificates::tls_app(&server_groups, &sites, &options)?;
    let pki = pki::pki_app(&server_groups, &sites, &options);
    let parts = server_groups.iter().flat_map(|group| &group.parts);
    let loggers = parts.flat_map(|part| sites[part.site].loggers());
    let logs = log::configuration(&options.loggers, loggers, options.debug);
    let json =
        config_json(&options, logs, [("cache", options.cache.clone()), ("http", http), ("tls", tls), ("pki", pki)]);
    Ok(Adapted { json, warnings: session.warnings.take(), sites: origins })
}

/// Whether tokens form a valid Caddyfile, judged without the content of its imports.
fn is_valid_alone(tokens: Vec<Token>, file: &Arc<str>) -> bool {
    let Ok((blocks, warnings)) = parser::parse_alone(tokens, file) else { return false };
    match assemble(blocks, warnings, &Directives::standard()) {
        Ok(_) => true,
        Err(error) => matches!(error.kind(), ErrorKind::NotSupported(..)),
    }
}

/// DEVIATES: in Caddy an unset variable is an empty text, so that `:{$PORT}` listens for all hosts on ports 80 and 443.
/// Here an unset variable in an address is an error.
fn refuse_unset_addresses(blocks: &[ServerBlock]) -> Result<(), Error> {
    let unset = |unset: Option<&Unset>| match unset {
        Some(Unset { name, at }) => {
            let rule = "the environment variable {} is not set, and an address here needs it; expected a value, or a default as \
                        in {$NAME:8080}";
            Err(Error::new(at.clone(), ErrorKind::Word { rule, found: (&**name).into() }))
        }
        None => Ok(()),
    };
    for block in blocks.iter().filter(|block| block.kind == BlockKind::Site) {
        block.keys.iter().map(|key| key.unset.as_ref()).chain([block.unset.as_ref()]).try_for_each(unset)?;
        let is_global = block.keys.is_empty();
        for segment in &block.segments {
            // These directives and options contain addresses or ports.
            let addresses = match &*segment.name.text {
                "bind" => !is_global,
                "admin" | "default_bind" | "http_port" | "https_port" | "servers" => is_global,
                _ => false,
            };
            if addresses {
                let words = std::iter::once(&segment.name).chain(&segment.arguments);
                words.map(|token| token.unset.as_ref()).try_for_each(unset)?;
            }
        }
    }
    Ok(())
}

fn refuse_directives_as_addresses(blocks: &[ServerBlock], directives: &Directives) -> Result<(), Error> {
    for key in blocks.iter().filter(|block| block.kind == BlockKind::Site).flat_map(|block| &block.keys) {
        if directives.knows(&key.text) {
            return Err(Error::at(key, ErrorKind::DirectiveAsAddress(key.text.clone())));
        }
    }
    Ok(())
}

/// Evaluates the named routes. Each numbers its groups from 0, as in Caddy.
fn named_routes(blocks: &[ServerBlock], session: &Session<'_>) -> Result<BTreeMap<String, NamedRoute>, Error> {
    let mut named = BTreeMap::new();
    for block in blocks {
        let BlockKind::NamedRoute(name) = &block.kind else { continue };
        let files = block.files();
        let scope = Scope { session, matchers: BTreeMap::new(), files: &files };
        let outputs = dispenser::evaluate(&block.segments, scope, None);
        let outputs = outputs.map_err(|error| error.inside("", &block.closes))?;
        let routes = route::subroute(outputs, session, route::RouteOrder::ByDirective)?;
        let route = match routes.as_slice() {
            // As in Caddy, only the first handler survives: Caddy assumes that a single route without matchers has one
            // handler.
            [only] if only.matchers.is_empty() && !only.handlers.is_empty() => {
                if only.handlers.len() > 1 {
                    let message = "only the first directive of this named route runs; the others have no effect, unless \
                                   `route { … }` encloses all of them";
                    session.warn(&block.keys[0], message.to_owned());
                }
                json!({ "handle": [only.handlers[0]] })
            }
            _ => json!({ "handle": [subroute_handler(&routes)] }),
        };
        let invoked = session.invoked.take();
        if named.insert(name.clone(), NamedRoute { route, invoked }).is_some() {
            return Err(Error::at(&block.keys[0], ErrorKind::NamedRouteTwice(name.as_str().into())));
        }
    }
    // The sites number their groups and logs from 0 again.
    session.groups.set(0);
    session.logs.set(0);
    Ok(named)
}

/// Warns if error routes serve files to clients that `basic_auth` rejected. Without a rewrite that is the very file
/// that the client requested.
fn warn_of_guarded_files(outputs: &[Placed], session: &Session<'_>) {
    let has = |placed: &Placed, handler: &str| match &placed.output {
        DirectiveOutput::Route(route) => has_handler(&route.json(), handler),
        DirectiveOutput::Routes(routes) | DirectiveOutput::ErrorRoutes(routes) => {
            routes.iter().any(|route| has_handler(&route.json(), handler))
        }
        _ => false,
    };
    let (errors, routes): (Vec<_>, Vec<_>) =
        outputs.iter().partition(|placed| matches!(placed.output, DirectiveOutput::ErrorRoutes(_)));
    if !routes.iter().any(|placed| has(placed, "authentication")) {
        return;
    }
    for placed in errors {
        let DirectiveOutput::ErrorRoutes(routes) = &placed.output else { continue };
        // A route without matchers handles every status. Otherwise look for a 401 in the text of its matchers.
        let meets_401 = routes.iter().any(|route| match route.matchers.as_slice() {
            [] => true,
            sets => sets.iter().any(|set| {
                set.values().any(|test| {
                    let test = test.to_string();
                    test.contains("401") || test.contains(">= 400")
                })
            }),
        });
        if meets_401 && has(placed, "file_server") && !has(placed, "rewrite") && !has(placed, "authentication") {
            let message = "basic_auth does not guard these routes, so file_server answers a 401 with the guarded file itself; \
                           expected a rewrite to an error page, or a status other than 401";
            session.warnings.borrow_mut().push(Warning { at: placed.at.clone(), message: message.to_owned() });
        }
    }
}

fn has_handler(value: &Value, name: &str) -> bool {
    match value {
        Value::Object(members) => {
            members.get("handler").is_some_and(|own| own == name)
                || members.values().any(|value| has_handler(value, name))
        }
        Value::Array(list) => list.iter().any(|value| has_handler(value, name)),
        _ => false,
    }
}

/// Warns of a host that DNS does not allow: no client finds it, and no authority signs a certificate for it.
fn warn_of_unusable_host(key: &Token, address: &Address, session: &Session<'_>) {
    let Some(host) = punycode::to_ascii(&address.host) else { return };
    let host = host.strip_suffix('.').unwrap_or(&host);
    if host.is_empty() || host.contains(['{', ':']) {
        return;
    }
    // RFC 1035 §2.3.4; a name of 255 bytes on the wire has 253 characters.
    let found = match host.split('.').find(|label| label.is_empty() || label.len() > 63) {
        Some("") => "an empty label".to_owned(),
        Some(label) => format!("a label of {} characters", label.len()),
        None if host.len() > 253 => format!("{} characters", host.len()),
        None => return,
    };
    let message = format!(
        "no client can use the host of {}, and no authority signs a certificate for it: found {found}, expected labels of 1 to 63 \
         characters, and 253 in all",
        address.written
    );
    session.warn(key, message);
}

/// Warns of tokens that are plain text here but special in nginx.
fn warn_of_other_servers(segments: &mut [Segment], session: &Session<'_>) {
    for segment in segments {
        segment.for_each_token(&mut |token| {
            if token.quoted() {
                return;
            }
            if let Some((variable, instead)) = hint::of_variable(&token.text) {
                session.warn(token, format!("'{variable}' is plain text in a Caddyfile; expected {instead}"));
            }
            // `max-age=31536000;` is a usual value of a header.
            let parameter = token.text.strip_suffix(';').is_some_and(|text| text.contains('=') && !text.contains('/'));
            if token.text.len() > 1 && token.text.ends_with(';') && !parameter {
                let message = "the ';' is part of this word; a line of a Caddyfile ends without one";
                session.warn(token, message.to_owned());
            }
        });
    }
}

/// Warns of named routes that no site reaches. Routes from imported files are exempt: a shared file may define routes
/// that only some of its importers use.
fn warn_of_unused_routes(
    blocks: &[ServerBlock],
    sites: &[EvaluatedSite],
    named: &BTreeMap<String, NamedRoute>,
    session: &Session<'_>,
) {
    let mut reached = BTreeSet::new();
    let mut next = Vec::from_iter(sites.iter().flat_map(|site| site.invoked.keys()));
    while let Some(name) = next.pop() {
        if reached.insert(name) {
            next.extend(named.get(name).into_iter().flat_map(|route| route.invoked.keys()));
        }
    }
    for block in blocks {
        let BlockKind::NamedRoute(name) = &block.kind else { continue };
        if block.keys[0].imported.is_none() && !reached.contains(name) {
            session.warn(&block.keys[0], format!("named route {name} is never used"));
        }
    }
}

fn site(block: &ServerBlock, session: &Session<'_>) -> Result<EvaluatedSite, Error> {
    if block.keys.is_empty() {
        return Err(Error::new(block.at.clone(), ErrorKind::GlobalOptionsNotFirst));
    }
    let files = block.files();
    let scope = Scope { session, matchers: BTreeMap::new(), files: &files };
    let outputs = dispenser::evaluate(&block.segments, scope, Some(block.braces));
    let outputs = outputs.map_err(|error| match &block.opens {
        Some(opens) => error.in_unclosed(&block.keys[0].text, opens),
        None => error,
    })?;
    warn_of_guarded_files(&outputs, session);
    let mut addresses = Vec::new();
    for key in &block.keys {
        let address = Address::parse(key)?;
        warn_of_unusable_host(key, &address, session);
        if !address.path.is_empty() {
            let message =
                format!("a path in a site's address is deprecated, please use 'handle {}' instead", address.path);
            session.warn(key, message);
        }
        addresses.push(address);
    }
    Ok(EvaluatedSite { keys: block.keys.clone(), addresses, outputs, invoked: session.invoked.take() })
}

fn origins(site: &EvaluatedSite) -> Vec<SiteOrigin> {
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

fn config_json(options: &Options, logs: Map<String, Value>, apps: [(&str, Map<String, Value>); 4]) -> Value {
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
