//! Generates Caddyfiles: a grammar over the directives and matchers that both servers support, driven by a seed.
//!
//! - [`matchers`]: matcher tokens, definitions of matchers, and expressions
//! - [`handlers`]: directives that change or answer a request
//! - [`proxies`]: `reverse_proxy` and `forward_auth`
//!
//! Every effect of a directive is visible in the response: most sites end in a `respond` that prints the request in its
//! final state.

mod handlers;
mod matchers;
mod proxies;

use super::document::{ConfigLine, Document};
use super::random::Random;
use super::words::{HOSTS, PATHS, PLACEHOLDERS, PORTS};

/// A generated Caddyfile, with targets for requests.
pub(crate) struct Drawn {
    pub(crate) document: Document,
    pub(crate) paths: Vec<String>,
    pub(crate) hosts: Vec<String>,
    /// The ports of the sites, once for each address.
    pub(crate) ports: Vec<usize>,
}

/// The position of a directive; some directives are invalid in some positions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DirectivePosition {
    Site,
    Errors,
    /// The routes for an upstream's responses.
    Answers,
}

struct Grammar<'a> {
    random: &'a mut Random,
    paths: Vec<String>,
    /// Number of named matchers in the current site.
    matchers: usize,
    /// Number of named routes in this Caddyfile.
    routes: usize,
    depth: usize,
}

const DEPTH_MAX: usize = 3;
const SNIPPET: &str = "(snip) {\n\theader X-Snip {args[0]}\n\tvars snip {args[1]}\n}\n";

/// Generates a Caddyfile.
pub(crate) fn draw(random: &mut Random) -> Drawn {
    let mut grammar = Grammar { random, paths: Vec::new(), matchers: 0, routes: 0, depth: 0 };
    let mut lines = vec![grammar.options()];
    // One line for the whole snippet: the shrinker need not remove its parts.
    lines.push(ConfigLine::new(SNIPPET.trim_end()));
    let routes = grammar.random.below(3);
    for route in 0..routes {
        let directives = grammar.directives(DirectivePosition::Site, 3);
        lines.push(ConfigLine::block(format!("&(route{route})"), directives));
    }
    grammar.routes = routes;

    let (mut hosts, mut ports) = (Vec::new(), Vec::new());
    let mut taken = Vec::new();
    for _ in 0..1 + grammar.random.below(4) {
        let Some(address) = grammar.address(&mut taken, &mut hosts, &mut ports) else { continue };
        let site = grammar.site();
        lines.push(ConfigLine::block(address, site));
    }
    let paths = grammar.paths;
    Drawn { document: Document(lines), paths, hosts, ports }
}

impl Grammar<'_> {
    fn options(&mut self) -> ConfigLine {
        let mut lines = vec!["admin localhost:<admin>", "persist_config off", "auto_https off"];
        lines.extend(self.maybe(
            10,
            &["order respond before rewrite", "order header last", "order rewrite first", "order vars after respond"],
        ));
        let mut lines: Vec<ConfigLine> = lines.into_iter().map(ConfigLine::new).collect();
        if self.random.chance(20) {
            let mut servers = Vec::new();
            servers.extend(self.maybe(
                60,
                &["trusted_proxies static private_ranges", "trusted_proxies static 127.0.0.0/8 10.0.0.0/8"],
            ));
            servers.extend(self.maybe(30, &["trusted_proxies_strict"]));
            servers.extend(self.maybe(20, &["client_ip_headers X-A X-Forwarded-For"]));
            servers.extend(self.maybe(20, &["expected_underscore_headers X-Under_score"]));
            lines.push(ConfigLine::block("servers", servers.into_iter().map(ConfigLine::new).collect()));
        }
        ConfigLine::block("", lines)
    }

    /// Generates a site's addresses, at most two; `None` when all of them are taken.
    fn address(&mut self, taken: &mut Vec<String>, hosts: &mut Vec<String>, ports: &mut Vec<usize>) -> Option<String> {
        let mut addresses = Vec::new();
        for _ in 0..1 + usize::from(self.random.chance(15)) {
            let port = self.random.below(PORTS);
            let host = match self.random.below(10) {
                0..3 => String::new(),
                3..8 => (self.random.pick(HOSTS)).to_owned(),
                _ => (self.random.pick(&["*.test", "*.a.test", "A.TEST", "bücher.test"])).to_owned(),
            };
            let path = if self.random.chance(10) { self.random.pick(&["/api", "/a/*", "/api/*", "/"]) } else { "" };
            let address = format!("http://{host}:<p{port}>{path}");
            let key = address.to_lowercase();
            if taken.contains(&key) {
                continue;
            }
            taken.push(key);
            if !host.is_empty() {
                hosts.push(host.replace('*', "x").replace('ü', "u"));
            }
            ports.push(port);
            addresses.push(address);
        }
        (!addresses.is_empty()).then(|| addresses.join(", "))
    }

    fn site(&mut self) -> Vec<ConfigLine> {
        // Always set a root: the servers run in different directories.
        let mut lines = vec![ConfigLine::new(self.random.pick(&[
            "root * <root>",
            "root <root>",
            "root * <root>/b",
            "root <root>/",
        ]))];
        self.matchers = self.random.below(5);
        for matcher in 0..self.matchers {
            let definition = self.definition(matcher);
            lines.push(definition);
        }
        let count = 1 + self.random.below(7);
        lines.extend(self.directives(DirectivePosition::Site, count));
        if self.random.chance(60) {
            let state = self.state();
            let status = self.random.pick(&["", "", "", " 201", " 418"]);
            lines.push(ConfigLine::new(format!("respond \"{state}\"{status}")));
        } else if self.random.chance(50) {
            let server = self.file_server();
            lines.push(server);
        }
        if self.random.chance(35) {
            let statuses = self.random.pick(&["", "", "", " 404", " 4xx", " 5xx", " 404 403", " 500 4xx", " 3xx"]);
            let count = 1 + self.random.below(3);
            let mut routes = self.directives(DirectivePosition::Errors, count);
            if self.random.chance(80) {
                let state = self.state();
                let status = self.random.pick(&["", "", " 200", " {err.status_code}", " 599"]);
                routes.push(ConfigLine::new(format!(
                    "respond \"{{err.status_code}} {{err.status_text}} {{err.message}} {state}\"{status}"
                )));
            }
            lines.push(ConfigLine::block(format!("handle_errors{statuses}"), routes));
        }
        self.matchers = 0;
        lines
    }

    /// Returns text that prints the request and the state that handlers left in it.
    fn state(&mut self) -> String {
        let mut state = "{method} {uri}".to_owned();
        for _ in 0..self.random.below(5) {
            state.push(' ');
            state += self.random.pick(PLACEHOLDERS);
        }
        state
    }

    fn directives(&mut self, place: DirectivePosition, count: usize) -> Vec<ConfigLine> {
        self.depth += 1;
        let mut lines = Vec::new();
        for _ in 0..count {
            lines.extend(self.directive(place));
        }
        self.depth -= 1;
        lines
    }

    /// Returns a value: words, placeholders, or both.
    fn value(&mut self) -> String {
        match self.random.below(10) {
            0..4 => (self.random.pick(&[
                "1",
                "foo",
                "foobar",
                "a b",
                "",
                "yes",
                "X",
                "a/b",
                "%41",
                "a,b",
                "é",
                "\\{path\\}",
                "{",
                "a;b=c",
            ]))
            .to_owned(),
            4..8 => (self.random.pick(PLACEHOLDERS)).to_owned(),
            _ => format!("{}-{}", self.random.pick(PLACEHOLDERS), self.random.pick(PLACEHOLDERS)),
        }
    }

    /// Returns a value in quotes.
    fn quoted(&mut self) -> String {
        format!("\"{}\"", self.value())
    }

    /// Returns a path pattern for the Caddyfile, and records it as a target for requests.
    fn path(&mut self) -> String {
        let path = match self.random.below(10) {
            0..4 => self.plain_path(),
            4..7 => {
                let path = self.plain_path();
                format!("{}/*", path.trim_end_matches('/'))
            }
            _ => (self.random.pick(&[
                "/a*",
                "*.html",
                "*.txt",
                "*/b",
                "/api/*/users",
                "/*/b.html",
                "*a*",
                "/A/*",
                "/foo*bar.txt",
                "/foo%20*",
                "/a%2Fb",
                "/a%2fb*",
                "//a",
                "/a//b",
                "/b/%2a",
                "/list/*.css",
                "/*",
                "/api*",
                "/%61*",
                "*/c.txt",
                "/{path.0}",
                "/secret/*",
            ]))
            .to_owned(),
        };
        self.paths.push(path.clone());
        path
    }

    fn plain_path(&mut self) -> String {
        (self.random.pick(PATHS)).replace("%2520", "").replace("%20", "")
    }

    /// Returns one of `lines` with the given probability in percent.
    fn maybe<'b>(&mut self, percent: usize, lines: &[&'b str]) -> Option<&'b str> {
        self.random.chance(percent).then(|| self.random.pick(lines))
    }
}
