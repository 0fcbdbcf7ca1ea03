//! Random servers: locations within each other, rules and access rules in many combinations, compared with nginx.

use crate::support::*;
use crate::upstream;

const SERVERS: usize = 60;

const PATHS: &[&str] = &[
    "/",
    "/index.html",
    "/page.html",
    "/a",
    "/a/",
    "/a/x.txt",
    "/a/b/y.css",
    "/a/b/none.txt",
    "/a/none?q=1",
    "/assets/app.css",
    "/b",
    "/b/",
    "/b/index.html",
    "/b/x",
    "/b/.hidden",
    "/private/",
    "/private/index.html",
    "/private/x.txt?d=1",
    "/.well-known/x",
    "/.git/config",
    "//a/x.txt",
    "/a/../b/",
    "/to/x",
    "/%61/x.txt",
];

/// Numbers without an evident order: a linear congruential generator with Knuth's constants.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn one_of<'t>(&mut self, of: &[&'t str]) -> &'t str {
        of[self.below(of.len())]
    }

    fn is_one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

/// The lines of a location. Rules lead to `/to/`, where no other rules are: nginx follows several in a row, and
/// Causeway one.
fn body(random: &mut Numbers, head: &str, depth: usize) -> String {
    let mut lines = Vec::new();
    if random.is_one_in(2) {
        lines.push(random.one_of(&[
            "deny all;",
            "allow 127.0.0.1; deny all;",
            "deny 192.0.2.1;",
            "allow all;",
            "internal;",
            "limit_except GET { deny all; }",
        ]));
    }
    for _ in 0..random.below(3) {
        lines.push(random.one_of(&[
            "if ($http_x = y) { return 403; }",
            "if ($request_method = POST) { return 405; }",
            "if ($uri ~ /x) { return 402; }",
            "if ($uri = /a/x.txt) { return 409; }",
            "if ($arg_d) { return 410; }",
            "set $v 1;",
            "if ($http_x = z) { rewrite ^ /to/z last; }",
            "if (!-e $request_filename) { rewrite ^(.*)$ /to$1 last; }",
            "rewrite ^/a/b/(.*)$ /to/$1 last;",
            "rewrite ^/b/(.*)$ /to/$1 permanent;",
            "rewrite ^/private/(.*)$ https://other.test/$1 redirect;",
        ]));
    }
    let sources: &[&str] = &[
        "try_files $uri $uri/ =404;",
        "try_files $uri /to/missing;",
        "try_files $uri $uri/ /to/missing?$args;",
        "try_files $uri @upstream;",
        "try_files $uri.html $uri =404;",
        "proxy_pass http://127.0.0.1:UP1;",
        "return 200 answer;",
        "return 301 /elsewhere;",
        "root ROOT/www/a;",
        "add_header X-Kind 1;",
        "",
    ];
    lines.push(random.one_of(sources));
    let mut text = lines.join(" ");
    if depth < 2 && !head.starts_with('=') && random.is_one_in(3) {
        let expressions = ["~ \\.txt$", "~ /x", "~* \\.CSS$"];
        let prefix = head.trim_start_matches("^~ ");
        let longer = match prefix {
            "/a/" => "/a/b/",
            "/a" => "/a/",
            _ => expressions[0],
        };
        let inner = if random.is_one_in(2) { longer } else { random.one_of(&expressions) };
        text += &format!(" location {inner} {{ {} }}", body(random, inner, depth + 1));
    }
    text
}

fn server(random: &mut Numbers, index: usize) -> String {
    let mut text = format!("server {{ listen 80; server_name s{index}.test; root ROOT/www; default_type text/plain;\n");
    if random.is_one_in(3) {
        text += random.one_of(&["deny 192.0.2.1;", "if ($arg_q) { return 418; }", "add_header X-Outer 1 always;"]);
        text.push('\n');
    }
    // The first server is that of all other hosts.
    if index == 0 || random.is_one_in(3) {
        text += random.one_of(&["error_page 402 403 404 @upstream;", "error_page 403 405 409 @text;"]);
        text.push('\n');
    }
    let heads = [
        "/a/",
        "/a",
        "^~ /a/",
        "/b",
        "^~ /b/",
        "/private/",
        "= /a/x.txt",
        "~ \\.txt$",
        "~ ^/(a|b)/",
        "~ /\\.(?!well-known)",
    ];
    let mut taken: Vec<&str> = Vec::new();
    for _ in 0..=random.below(4) {
        let head = random.one_of(&heads);
        let path = head.trim_start_matches("^~ ");
        if !taken.contains(&path) {
            taken.push(path);
            text += &format!("location {head} {{ {} }}\n", body(random, head, 0));
        }
    }
    text += &format!("location / {{ {} }}\n", body(random, "/", 2));
    text + "location ^~ /to/ { proxy_pass http://127.0.0.1:UP1; }\nlocation @upstream { proxy_pass http://127.0.0.1:UP1; }\n\
            location @text { return 200 text; }\n}\n"
}

/// nginx's documentation of `location`, `if`, `rewrite`, `try_files` and the access rules, taken together.
#[test]
fn random_servers_equal_those_of_nginx() {
    let Some(nginx) = installed_nginx() else { return };
    let mut random = Numbers(8);
    let servers: Vec<String> = (0..SERVERS).map(|index| server(&mut random, index)).collect();
    let directory = ShapeDirectory::new("random");
    let up = upstream();
    let ([theirs, ours], _servers) = both(nginx, &servers.concat(), &directory, [up, up]);
    let mut differences = Vec::new();
    for (index, text) in servers.iter().enumerate() {
        let host = format!("s{index}.test");
        let plain = PATHS.iter().map(|path| ("GET", *path, ""));
        let posts = PATHS.iter().step_by(3).map(|path| ("POST", *path, "Content-Length: 0\r\n"));
        let with_field = |field| PATHS.iter().step_by(2).map(move |path| ("GET", *path, field));
        let requests = plain.chain(posts).chain(with_field("X: y\r\n")).chain(with_field("X: z\r\n"));
        for (method, path, lines) in requests {
            let [a, b] = [theirs, ours].map(|port| request_with(port, (method, &host, path), lines, FIELDS));
            let is_meant = match (a.status, b.status) {
                // A rule that leads to its own location again and again.
                (500, _) => true,
                // A directory without an index, and one without its slash.
                (403, 404) | (301, 308) => true,
                (status, other) => status == other && status >= 400 && a.body == b.body,
            };
            if a != b && !is_meant {
                differences.push(format!("{method} {path} {lines:?}\n  nginx    {a:?}\n  causeway {b:?}\n{text}"));
            }
        }
    }
    assert!(
        differences.is_empty(),
        "{} differences:\n{}",
        differences.len(),
        differences[..differences.len().min(5)].join("\n")
    );
}
