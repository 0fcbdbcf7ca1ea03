//! Matchers: the token after a directive's name, definitions of named matchers, and expressions.

use super::super::document::{ConfigLine, Document};
use super::super::words::FILE_POLICIES;
use super::{Grammar, PLACEHOLDERS};

const REGEXPS: &[&str] = &[
    "^/a/(.*)$",
    "/([a-z]+)/([a-z0-9]+)",
    "(?P<name>[a-z]+)",
    "(?<name>\\\\d+)",
    "\\\\.([a-z]+)$",
    "(?i)^/API",
    "^/(api)?",
    "[^/]+$",
    "(a|b)",
    ".",
    "^$",
    "\\\\bfoo\\\\b",
    "(x)?(y)?",
];

impl Grammar<'_> {
    /// Returns a matcher token followed by a blank, or an empty string.
    pub(super) fn token(&mut self) -> String {
        match self.random.below(10) {
            0..4 => String::new(),
            4 => "* ".to_owned(),
            5..8 if self.matchers > 0 => format!("@m{} ", self.random.below(self.matchers)),
            _ => {
                let path = self.path();
                if path.starts_with('/') { format!("{path} ") } else { String::new() }
            }
        }
    }

    /// Returns `@m0 …`, on one line or as a block.
    pub(super) fn definition(&mut self, index: usize) -> ConfigLine {
        if self.random.chance(12) {
            let expression = self.expression(2);
            return ConfigLine::new(format!("@m{index} `{expression}`"));
        }
        if self.random.chance(55) {
            let matcher = self.matcher(index);
            if let Some(block) = matcher.block {
                return ConfigLine::block(format!("@m{index}"), vec![ConfigLine::block(matcher.words, block)]);
            }
            return ConfigLine::new(format!("@m{index} {}", matcher.words));
        }
        let count = 1 + self.random.below(3);
        let lines = (0..count).map(|_| self.plain_matcher(index)).collect();
        ConfigLine::block(format!("@m{index}"), lines)
    }

    /// Returns a matcher that stores nothing in the request. Caddy evaluates the matchers of a set in an order that
    /// changes from load to load, so that in a set without a match the presence of captures is random.
    fn plain_matcher(&mut self, index: usize) -> ConfigLine {
        loop {
            let matcher = self.matcher(index);
            let text = Document(vec![matcher.clone()]).to_string();
            if !["regexp", "file", "expression"].iter().any(|name| text.contains(name)) {
                return matcher;
            }
        }
    }

    fn matcher(&mut self, index: usize) -> ConfigLine {
        let name = match self.random.below(3) {
            0 => "r ".to_owned(),
            1 => format!("m{index} "),
            _ => String::new(),
        };
        let regexp = self.random.pick(REGEXPS);
        let words = match self.random.below(19) {
            0..3 => {
                let count = 1 + self.random.below(3);
                let paths: Vec<String> = (0..count).map(|_| self.path()).collect();
                format!("path {}", paths.join(" "))
            }
            3..5 => format!("path_regexp {name}\"{regexp}\""),
            5..7 => {
                let header = self.random.pick(&["X-A", "x-b", "X-C", "User-Agent", "Cookie", "Host", "Accept"]);
                let value =
                    self.random.pick(&[" *", " 1", " foo*", " *bar", " *a*", " abc", " \"\"", " {header.X-B}", ""]);
                let not = if value.is_empty() { "!" } else { "" };
                format!("header {not}{header}{value}")
            }
            7 => format!(
                "header_regexp {name}{} \"{regexp}\"",
                self.random.pick(&["X-A", "x-c", "User-Agent", "Cookie", "Host"])
            ),
            8 => format!(
                "host {}",
                self.random.pick(&[
                    "a.test",
                    "*.test",
                    "A.test b.test",
                    "localhost 127.0.0.1",
                    "{header.X-A}",
                    "*.*.test"
                ])
            ),
            9..11 => format!("method {}", self.random.pick(&["GET", "POST PUT", "get", "HEAD GET", "DELETE", "PUT"])),
            11..13 => format!(
                "query {}",
                self.random.pick(&[
                    "a=1",
                    "a=*",
                    "a=1 b=2",
                    "b=2",
                    "a=x*",
                    "a=",
                    "\"\"",
                    "a={header.X-A}",
                    "{header.X-B}=1",
                    "debug=1 debug=true"
                ])
            ),
            13 => {
                let inner = self.matcher(index);
                return match inner.block {
                    None if self.random.chance(60) => ConfigLine::new(format!("not {}", inner.words)),
                    _ => ConfigLine::block("not", vec![inner]),
                };
            }
            14 => format!(
                "{} {}",
                self.random.pick(&["remote_ip", "client_ip"]),
                self.random.pick(&["127.0.0.1", "private_ranges", "10.0.0.0/8", "127.0.0.0/8 ::1", "10.0.0.1"])
            ),
            15 => format!(
                "protocol {}",
                self.random.pick(&[
                    "http",
                    "https",
                    "http/1.1",
                    "http/1.0",
                    "http/1.0+",
                    "http/1.1+",
                    "http/2",
                    "grpc"
                ])
            ),
            16 => format!(
                "vars {} {}",
                self.random.pick(&["{vars.v1}", "v1", "{query.a}", "{header.X-A}", "v2"]),
                self.random.pick(&["1", "foo foobar", "\"\"", "yes 1", "{query.b}"])
            ),
            17 => {
                if self.random.chance(50) {
                    format!(
                        "vars_regexp {name}{} \"{regexp}\"",
                        self.random.pick(&["{path}", "v1", "{vars.v1}", "{query.a}"])
                    )
                } else {
                    let expression = self.expression(2);
                    format!("expression `{expression}`")
                }
            }
            _ => return self.file_matcher(),
        };
        ConfigLine::new(words)
    }

    fn file_matcher(&mut self) -> ConfigLine {
        let tries = self.random.pick(&[
            "{path}",
            "{path} {path}/",
            "{path}.html {path}/index.html",
            "/index.html",
            "{path}/",
            "/a.*",
            "/b/",
            "{file}",
            "/missing {path}",
            "*.txt",
            "/x.js",
            "{path}.br",
        ]);
        if self.random.chance(50) {
            return ConfigLine::new(format!("file {tries}"));
        }
        let mut lines = vec![ConfigLine::new(format!("try_files {tries}"))];
        if self.random.chance(50) {
            lines.push(ConfigLine::new(self.random.pick(&["root <root>", "root <root>/b", "root <root>/list"])));
        }
        if self.random.chance(30) {
            let policy = self.random.pick(FILE_POLICIES);
            lines.push(ConfigLine::new(format!("try_policy {policy}")));
        }
        if self.random.chance(20) {
            lines.push(ConfigLine::new(self.random.pick(&["split_path .php", "split_path .html .txt"])));
        }
        ConfigLine::block("file", lines)
    }

    pub(super) fn expression(&mut self, depth: usize) -> String {
        if depth > 0 && self.random.chance(45) {
            let (left, right) = (self.expression(depth - 1), self.expression(depth - 1));
            return match self.random.below(4) {
                0 => format!("{left} && {right}"),
                1 => format!("{left} || {right}"),
                2 => format!("!({left})"),
                _ => format!("({left} ? {right} : true)"),
            };
        }
        let text = self.random.pick(&["1", "foo", "GET", "/a", "a.test", "", "abc"]);
        let placeholder = self.random.pick(PLACEHOLDERS);
        // The body's placeholder reads the body before matchers run, which other cases cover. Caddy's port is a number,
        // which fails in CEL where a string is expected.
        let placeholder =
            if ["body", "port"].iter().any(|word| placeholder.contains(word)) { "{path}" } else { placeholder };
        match self.random.below(14) {
            0 => format!("{{method}} == '{}'", self.random.pick(&["GET", "POST", "HEAD"])),
            1 => format!("{placeholder} != '{text}'"),
            2 => format!("{placeholder}.startsWith('{text}')"),
            3 => format!("{{path}}.matches('{}')", self.random.pick(&["^/a", "html$", "[0-9]+", "(?i)api"])),
            4 => format!("{{method}} in ['GET', '{text}']"),
            5 => {
                let path = self.path();
                format!("path('{path}')")
            }
            6 => format!("header({{'X-A': '{}'}})", self.random.pick(&["1", "*", "foo*"])),
            7 => format!("query({{'a': '{}'}})", self.random.pick(&["1", "*"])),
            8 => format!("host('{}')", self.random.pick(&["a.test", "*.test", "localhost"])),
            9 => format!("path_regexp('{}', '^/(a|b)')", self.random.pick(&["r", "m0"])),
            10 => format!("remote_ip('{}')", self.random.pick(&["127.0.0.1", "10.0.0.0/8"])),
            11 => format!("size({placeholder}) {} {}", self.random.pick(&["==", ">", "<="]), self.random.below(6)),
            12 => format!("file({{'try_files': [{{path}}, '{}']}})", self.random.pick(&["/a.html", "/index.html"])),
            _ => format!(
                "{placeholder} == {}",
                self.random
                    .pick(PLACEHOLDERS)
                    .replace("http.request.body", "path")
                    .replace("http.request.local.port", "uri")
                    .replace("{port}", "{uri}")
                    .replace("hostport", "host")
            ),
        }
    }
}
