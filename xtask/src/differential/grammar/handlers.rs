//! All directives except those of proxies.

use super::super::document::ConfigLine;
use super::super::words::FILE_POLICIES;
use super::{DEPTH_MAX, DirectivePosition, Grammar};

/// The bcrypt hash of `secret`, with the lowest cost.
const HASH: &str = "$2a$04$U3JFYccS1oTseG1Ir9UVxOqDfQzTReb1Tm2ECIjXxRWWHjVUd/iDO";

/// A directive of the generated configurations; some stand for another one in a position where it is not allowed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Directive {
    Respond,
    Header,
    RequestHeader,
    Redir,
    Rewrite,
    Uri,
    TryFiles,
    FileServer,
    Error,
    Vars,
    Map,
    Method,
    Root,
    BasicAuth,
    Abort,
    Invoke,
    Import,
    Proxy,
    ForwardAuth,
    RequestBody,
    Handle,
    HandlePath,
    Route,
    Log,
}

use Directive::{
    Abort, BasicAuth, Error, FileServer, ForwardAuth, Handle, HandlePath, Header, Import, Invoke, Log, Map, Method,
    Proxy, Redir, RequestBody, RequestHeader, Respond, Rewrite, Root, Route, TryFiles, Uri, Vars,
};

/// Each directive with its weight.
const DIRECTIVES: &[(Directive, usize)] = &[
    (Respond, 12),
    (Header, 14),
    (RequestHeader, 6),
    (Redir, 6),
    (Rewrite, 9),
    (Uri, 12),
    (TryFiles, 6),
    (FileServer, 6),
    (Error, 4),
    (Vars, 7),
    (Map, 4),
    (Method, 3),
    (Root, 5),
    (BasicAuth, 3),
    (Abort, 2),
    (Invoke, 3),
    (Import, 3),
    (Proxy, 10),
    (ForwardAuth, 3),
    (RequestBody, 2),
    (Handle, 10),
    (HandlePath, 8),
    (Route, 6),
    (Log, 2),
];

impl Grammar<'_> {
    pub(super) fn directive(&mut self, place: DirectivePosition) -> Vec<ConfigLine> {
        // The directives from `Handle` on are left out at the largest depth: nearly all of them contain routes.
        let shallow = DIRECTIVES.iter().take_while(|(directive, _)| *directive != Handle).count();
        let choice = if self.depth > DEPTH_MAX { &DIRECTIVES[..shallow] } else { DIRECTIVES };
        let (drawn, _) = choice[self.random.weighted(choice.iter().map(|(_, weight)| *weight))];
        // In error routes Caddy's placeholders show the request before any rewrite there, so only the usual rewrite is
        // generated.
        if place == DirectivePosition::Errors && matches!(drawn, Rewrite | Uri | TryFiles | Method | HandlePath) {
            let lines = vec![ConfigLine::new("rewrite * /{err.status_code}.html"), ConfigLine::new("file_server")];
            return vec![ConfigLine::block("route", lines)];
        }
        let line = self.line_of(drawn, place);
        // Two `handle` blocks are mutually exclusive, so generate a second one.
        if line.words.starts_with("handle") && self.random.chance(50) {
            let other = self.routes_of(place, "handle");
            return vec![line, other];
        }
        vec![line]
    }

    fn line_of(&mut self, directive: Directive, place: DirectivePosition) -> ConfigLine {
        match directive {
            Respond => self.respond(),
            Header => self.header(),
            RequestHeader => self.request_header(),
            Redir => self.redir(),
            Rewrite => self.rewrite(),
            Uri => self.uri(),
            TryFiles => self.try_files(),
            FileServer => self.file_server(),
            Error => self.error(),
            Vars => self.vars(),
            Map => self.map(),
            Method => {
                let token = self.token();
                ConfigLine::new(format!("method {token}{}", self.random.pick(&["GET", "POST", "PUT", "put"])))
            }
            Root => self.root(),
            BasicAuth => self.basic_auth(),
            Abort => self.abort(),
            Invoke if self.routes > 0 && place == DirectivePosition::Site => {
                let token = self.token();
                ConfigLine::new(format!("invoke {token}route{}", self.random.below(self.routes)))
            }
            Invoke | Import => ConfigLine::new(format!(
                "import snip {} {}",
                self.random.pick(&["1", "\"a b\"", "{path}", "{query.a}"]),
                self.random.pick(&["2", "2 3", "{method} x"])
            )),
            Proxy if place != DirectivePosition::Answers => self.proxy(),
            Proxy => self.respond(),
            ForwardAuth if place == DirectivePosition::Site => self.forward_auth(),
            ForwardAuth | RequestBody => self.request_body(),
            Handle => self.routes_of(place, "handle"),
            HandlePath => {
                let path = self.path();
                let path = if path.starts_with('/') { path } else { "/a/*".to_owned() };
                self.routes_of(place, &format!("handle_path {path}"))
            }
            Route => self.routes_of(place, "route"),
            Log if place == DirectivePosition::Site => {
                ConfigLine::new(self.random.pick(&["log_skip", "log_name a b", "log_append field {path}"]))
            }
            Log => ConfigLine::new("header X-Place errors"),
        }
    }

    fn root(&mut self) -> ConfigLine {
        let token = self.token();
        let token = if token.is_empty() { "* ".to_owned() } else { token };
        let folder = self.random.pick(&["<root>", "<root>/b", "<root>/list", "<root>/{path.0}", "<root>/missing"]);
        ConfigLine::new(format!("root {token}{folder}"))
    }

    fn abort(&mut self) -> ConfigLine {
        let path = self.plain_path();
        self.paths.push(path.clone());
        let token = if self.matchers > 0 && self.random.chance(50) {
            format!("@m{}", self.random.below(self.matchers))
        } else {
            path
        };
        ConfigLine::new(format!("abort {token}"))
    }

    fn request_body(&mut self) -> ConfigLine {
        let token = self.token();
        let line = self.random.pick(&["max_size 5", "max_size 1KB", "set \"{method} new\"", "max_size 1MB"]);
        ConfigLine::block(format!("request_body {token}").trim_end().to_owned(), vec![ConfigLine::new(line)])
    }

    fn routes_of(&mut self, place: DirectivePosition, name: &str) -> ConfigLine {
        let token = if name.starts_with("handle_path") { String::new() } else { self.token() };
        let count = 1 + self.random.below(3);
        let mut lines = self.directives(place, count);
        if self.random.chance(35) {
            let state = self.state();
            lines.push(ConfigLine::new(format!("respond \"in {name}: {state}\"")));
        }
        ConfigLine::block(format!("{name} {token}").trim_end().to_owned(), lines)
    }

    fn respond(&mut self) -> ConfigLine {
        let token = self.token();
        // A respond without a matcher would answer every request, so mostly add one.
        let token = if token.trim_end().len() < 2 && self.random.chance(80) {
            format!("{} ", self.random.pick(&["/a", "/api/*", "/old/page", "/a/b"]))
        } else {
            token
        };
        let state = self.state();
        let status = self.random.pick(&["200", "404", "204", "304", "503", "201", "{query.a}", "301", "999", "100"]);
        let words = match self.random.below(6) {
            0 => format!("respond {token}{status}"),
            1 => format!("respond {token}\"{state}\""),
            2 => format!("respond {token}\"{state}\" {status}"),
            3 => format!(
                "respond {token}\"{}\"",
                self.random
                    .pick(&[
                        "<b>html</b>",
                        "{\"json\": true}",
                        "",
                        "plain text",
                        "[1, 2]",
                        "{\"a\": {path}}",
                        "a\u{fc}b"
                    ])
                    .replace('"', "\\\"")
            ),
            4 => format!("respond {token}`{state}`"),
            _ => {
                let mut lines = vec![ConfigLine::new(format!("body \"{state}\""))];
                if self.random.chance(40) {
                    lines.push(ConfigLine::new("close"));
                }
                return ConfigLine::block(
                    format!("respond {token}{}", self.random.pick(&["200", "404", "500"])),
                    lines,
                );
            }
        };
        ConfigLine::new(words)
    }

    fn header(&mut self) -> ConfigLine {
        let token = self.token();
        if self.random.chance(60) {
            let operation = self.field_operation();
            return ConfigLine::new(format!("header {token}{operation}"));
        }
        let mut lines = Vec::new();
        for _ in 0..1 + self.random.below(4) {
            let operation = self.field_operation();
            lines.push(ConfigLine::new(operation));
        }
        if self.random.chance(25) {
            lines.push(ConfigLine::new("defer"));
        }
        if self.random.chance(12) {
            lines.push(ConfigLine::block(
                "match",
                vec![ConfigLine::new(self.random.pick(&[
                    "status 200",
                    "status 4xx",
                    "header X-A *",
                    "header Content-Type text/*",
                ]))],
            ));
        }
        ConfigLine::block(format!("header {token}").trim_end().to_owned(), lines)
    }

    fn field_operation(&mut self) -> String {
        let field = self.random.pick(&[
            "X-A",
            "X-B",
            "x-c",
            "Cache-Control",
            "Content-Type",
            "Server",
            "ETag",
            "Set-Cookie",
            "Location",
            "Vary",
            "X-Snip",
        ]);
        let value = self.quoted();
        match self.random.below(10) {
            0..3 => format!("{field} {value}"),
            3 => format!("+{field} {value}"),
            4 => format!("-{field}"),
            5 => (self.random.pick(&["-X-*", "-*A", "-*-*", "-Server", "-Content-Type", "-Last-Modified", "-Etag"]))
                .to_owned(),
            6 => format!("?{field} {value}"),
            7 => format!(">{field} {value}"),
            // Caddy keeps one value of Server for all responses. A replacement modifies that value, which would affect
            // all later responses of all sites.
            8 if field != "Server" => {
                let find = self.random.pick(&["o+", "^(.)", "1", "(?i)A", "text/(\\\\w+)", "$", ""]);
                format!("{field} \"{find}\" \"{}\"", self.random.pick(&["$1", "z", "", "${1}x", "{method}", "$0$0"]))
            }
            _ => format!("{field}: {value}"),
        }
    }

    fn request_header(&mut self) -> ConfigLine {
        let token = self.token();
        let field = self.random.pick(&[
            "X-A",
            "x-b",
            "X-New",
            "User-Agent",
            "Cookie",
            "Host",
            "Accept-Encoding",
            "Range",
            "If-None-Match",
        ]);
        let value = self.quoted();
        let operation = match self.random.below(6) {
            0..2 => format!("{field} {value}"),
            2 => format!("+{field} {value}"),
            3 => format!("-{field}"),
            4 => (self.random.pick(&["-X-*", "-*A", "-*"])).to_owned(),
            _ => format!(
                "{field} \"{}\" \"{}\"",
                self.random.pick(&["o+", "^(.)", "1", "[a-c]"]),
                self.random.pick(&["$1$1", "z", "", "{path}"])
            ),
        };
        ConfigLine::new(format!("request_header {token}{operation}"))
    }

    fn redir(&mut self) -> ConfigLine {
        let token = self.token();
        let token = if token.trim_end().len() < 2 { "/old/* ".to_owned() } else { token };
        let to = self.random.pick(&[
            "/new",
            "/new{uri}",
            "https://{host}{uri}",
            "http://x.test/?a={query.a}",
            "{path}/",
            "/b?x={path}",
            "?a=1",
            "{header.X-A}",
            "/a b",
            "/ü",
        ]);
        let code =
            self.random.pick(&["", "", " permanent", " temporary", " html", " 303", " 308", " 401", " {query.a}"]);
        ConfigLine::new(format!("redir {token}\"{to}\"{code}"))
    }

    fn rewrite(&mut self) -> ConfigLine {
        let token = self.token();
        let to = self.random.pick(&[
            "/new",
            "/new{uri}",
            "/new{path}",
            "?x=1",
            "{path}?x=1",
            "/a?{query}",
            "/a?{query}&n=1",
            "/a?n=1&{query}",
            "{path}/",
            "/{path.1}",
            "/a%20b",
            "/a b",
            "/%2F{path}",
            "/x?a={query.b}",
            "/b/c.txt",
            "/index.html",
            "/{file}",
            "/{vars.v1}",
            "/{re.r.1}",
            "/é",
            "/a//b",
            "/a/../b",
            "{uri}",
            "?{query}&z=1",
            "/x?",
            "/x#y",
            "/{http.error.status_code}.html",
            "/?q={path}",
            "?a={path}&{query}",
            "{orig_uri}",
            "/{header.X-A}",
            "?path={path}&r={re.r.1}",
            "/a?b=%26&c={query.a}",
            "/%61",
        ]);
        // An unquoted target with a leading slash would be parsed as a matcher.
        let token = if token.is_empty() { "* ".to_owned() } else { token };
        ConfigLine::new(format!("rewrite {token}\"{to}\""))
    }

    fn uri(&mut self) -> ConfigLine {
        let token = self.token();
        let words = match self.random.below(9) {
            0 | 1 => format!(
                "strip_prefix {}",
                self.random.pick(&["/a", "/api", "/api/v1/", "a", "/A", "/a%2Fb", "/foo%20", "//", "/{path.0}"])
            ),
            2 => format!("strip_suffix {}", self.random.pick(&[".html", "/", "b", ".txt", "%20", "/c", "users"])),
            // None of these removes the path's leading slash, which the servers handle differently.
            3 => format!(
                "replace {}{}",
                self.random.pick(&[
                    "/a /z",
                    "a b",
                    "api \"\"",
                    "%20 _",
                    "/b/ /",
                    "e {method}",
                    "// /",
                    "= b",
                    "? %2F",
                    "o %2F",
                    "t \"\""
                ]),
                self.random.pick(&["", "", " 1", " 2"])
            ),
            4 | 5 => format!(
                "path_regexp {}",
                self.random.pick(&[
                    "/+ /",
                    "^/(a|b) /z$1",
                    "[0-9]+ N",
                    "(.)$ $1$1",
                    "/([^/]*)$ \"/x-$1\"",
                    "[aeiou] \"\"",
                    "(?i)API {method}",
                    "([a-z])([a-z]) $2${1}_",
                    "\"^/+(.*)$\" \"/{query.a}/$1\"",
                ])
            ),
            6 => format!(
                "query {}",
                self.random.pick(&["a>b", "-a", "a 1", "+a x", "a {path}", "+n {query.b}", "-{query.b}", "a \"x y\""])
            ),
            _ => {
                let count = 1 + self.random.below(3);
                let operations = [
                    "rename>new",
                    "a>z",
                    "-b",
                    "a 1",
                    "+a x",
                    "c {path}",
                    "a ^(.) $1$1",
                    "b 2 two",
                    "-{query.b}",
                    "* o 0",
                ];
                let lines = (0..count).map(|_| ConfigLine::new(self.random.pick(&operations))).collect();
                return ConfigLine::block(format!("uri {token}query"), lines);
            }
        };
        ConfigLine::new(format!("uri {token}{words}"))
    }

    fn try_files(&mut self) -> ConfigLine {
        let tries = self.random.pick(&[
            "{path} {path}/ /index.html",
            "{path} =404",
            "{path}.html {path}",
            "{path} {path}/index.html =403",
            "/missing /a.txt",
            "{path} /index.html?p={path}&{query}",
            "/b/c.txt",
            "{path}/",
            "/*.txt",
            "{path} /a.html?{query}",
            "{path} =410",
        ]);
        if self.random.chance(25) {
            let policy = self.random.pick(FILE_POLICIES);
            return ConfigLine::block(format!("try_files {tries}"), vec![ConfigLine::new(format!("policy {policy}"))]);
        }
        ConfigLine::new(format!("try_files {tries}"))
    }

    pub(super) fn file_server(&mut self) -> ConfigLine {
        let token = self.token();
        let browse = if self.random.chance(30) { "browse" } else { "" };
        let head = format!("file_server {token}{browse}").trim_end().to_owned();
        let mut lines = Vec::new();
        for option in [
            "root <root>",
            "root <root>/b",
            "hide .git .secret",
            "hide *.txt",
            "hide /b",
            "hide c.txt {path.0}",
            "index a.html index.html",
            "index c.txt",
            "pass_thru",
            "status 404",
            "status 203",
            "status {query.a}",
            "disable_canonical_uris",
            "precompressed",
            "precompressed br gzip",
            "etag_file_extensions .sha256",
        ] {
            if self.random.chance(6) {
                lines.push(ConfigLine::new(option));
            }
        }
        if browse.is_empty() && self.random.chance(10) {
            lines.push(ConfigLine::block(
                "browse",
                vec![ConfigLine::new(self.random.pick(&[
                    "sort name desc",
                    "sort size asc",
                    "reveal_symlinks",
                    "file_limit 5",
                    "sort time",
                ]))],
            ));
        }
        if lines.is_empty() { ConfigLine::new(head) } else { ConfigLine::block(head, lines) }
    }

    fn error(&mut self) -> ConfigLine {
        let token = self.token();
        let token = if token.trim_end().len() < 2 { "/secret/* ".to_owned() } else { token };
        let words = self.random.pick(&[
            "404",
            "403",
            "\"broken {path}\" 500",
            "500",
            "\"no\"",
            "{query.a}",
            "\"x\" 418",
            "302",
            "\"two words\" 503",
            "999",
        ]);
        if self.random.chance(15) {
            return ConfigLine::block(format!("error {token}503"), vec![ConfigLine::new("message \"said {method}\"")]);
        }
        ConfigLine::new(format!("error {token}{words}"))
    }

    fn vars(&mut self) -> ConfigLine {
        let token = self.token();
        let value = self.quoted();
        let other = self.quoted();
        match self.random.below(4) {
            0 => ConfigLine::block(
                format!("vars {token}").trim_end().to_owned(),
                vec![ConfigLine::new(format!("v1 {value}")), ConfigLine::new(format!("v2 {other}"))],
            ),
            1 => ConfigLine::new(format!("vars {token}v2 {value}")),
            2 => ConfigLine::new(format!(
                "vars {token}v1 {}",
                self.random.pick(&["1", "true", "2.5", "-7", "foo", "007"])
            )),
            _ => ConfigLine::new(format!("vars {token}v1 {value}")),
        }
    }

    fn map(&mut self) -> ConfigLine {
        let token = self.token();
        let source = self.random.pick(&["{path}", "{method}", "{host}", "{query.a}", "{header.X-A}", "{path} "]);
        let rows = [
            "/a 1 one",
            "GET get -",
            "a.test \"the host\" {path}",
            "~^/(a|b)(.*) \"$1\" \"${2}\"",
            "~(.*)foo(.*) \"$2$1\" -",
            "1 one 1",
            "~(?i)POST post {query.a}",
            "default none \"no {uri}\"",
            "foo foo",
            "~/([0-9]+) \"n=${1}\" x",
        ];
        let mut lines: Vec<ConfigLine> =
            rows.into_iter().filter(|_| self.random.chance(45)).map(ConfigLine::new).collect();
        if lines.is_empty() {
            lines.push(ConfigLine::new("default d1 d2"));
        }
        ConfigLine::block(format!("map {token}{source} {{m1}} {{m2}}"), lines)
    }

    fn basic_auth(&mut self) -> ConfigLine {
        let token = self.token();
        let token = if token.trim_end().len() < 2 { "/secret/* ".to_owned() } else { token };
        let realm = self.random.pick(&["", "", "bcrypt realm", "bcrypt \"my realm\""]);
        ConfigLine::block(
            format!("basic_auth {token}{realm}").trim_end().to_owned(),
            vec![ConfigLine::new(format!("ann {HASH}"))],
        )
    }
}
