//! Every matcher in a Caddyfile, on a running server: the definitions of Caddy's documentation, with requests that
//! match and requests that do not.

use std::fmt::Write as _;

use crate::client::send;
use crate::process::Directory;

/// The definition of `@m`, a request's method and target, its fields without the host, and whether it matches.
type MatcherCase = (&'static str, &'static str, &'static [&'static str], bool);

/// Starts one server with a handle for each definition, selected by a field, and sends the requests.
#[track_caller]
fn check(cases: &[MatcherCase]) {
    let mut definitions: Vec<_> = cases.iter().map(|(definition, ..)| *definition).collect();
    definitions.dedup();
    let mut text = String::from(":0 {\n\tvars magic_number 3\n");
    for (number, definition) in definitions.iter().enumerate() {
        // Each definition has a handle of its own, selected by its number.
        let _ = write!(text, "\t@h{number} header X-Case {number}\n\thandle @h{number} {{\n\t\t@m {definition}\n");
        let _ = write!(text, "\t\trespond @m \"yes{{re.m.1}}\"\n\t\trespond \"no\"\n\t}}\n");
    }
    text.push_str("}\n");
    let directory = Directory::with(&[("Caddyfile", &text)]);
    let server = directory.start(&["run"]);
    for (definition, line, fields, want) in cases {
        let number = definitions.iter().position(|known| known == definition).unwrap();
        let case = format!("X-Case: {number}");
        let mut all = vec![&*case];
        all.extend(*fields);
        if !fields.iter().any(|field| field.starts_with("Host:")) {
            all.push("Host: example.com");
        }
        let answer = send(server.port(), line, &all);
        let got = answer.body.starts_with("yes");
        assert_eq!((answer.status, got), (200, *want), "{definition}: {line} {fields:?} gave {:?}", answer.body);
    }
}

// Caddy's documentation, "Request matchers": each example, with requests for both results.
#[test]
fn of_the_documentation() {
    check(&[
        ("path /foo/*", "GET /foo/x", &[], true),
        ("path /foo/*", "GET /foo", &[], false),
        ("path /foo*", "GET /foobar", &[], true),
        ("host example.com sub.example.com", "GET /", &["Host: SUB.example.com:8080"], true),
        ("host example.com sub.example.com", "GET /", &["Host: example.org"], false),
        ("host bücher.example", "GET /", &["Host: xn--bcher-kva.example"], true),
        ("method GET", "GET /", &[], true),
        ("method PUT POST DELETE", "GET /", &[], false),
        ("not method GET", "GET /", &[], false),
        ("not method GET", "POST /", &[], true),
        ("{\n not path /css/* /js/*\n not path /images/*\n }", "GET /css/x", &[], false),
        ("{\n not path /css/* /js/*\n not path /images/*\n }", "GET /x", &[], true),
        ("not {\n method GET\n path /x\n }", "GET /x", &[], false),
        ("not {\n method GET\n path /x\n }", "GET /y", &[], true),
        ("{\n header Connection *Upgrade*\n header Upgrade websocket\n }", "GET /", &["Upgrade: websocket"], false),
        ("{\n header Foo bar\n header Foo foo\n }", "GET /", &["Foo: foo"], true),
        ("{\n header Foo bar\n header Foo foo\n }", "GET /", &["Foo: other"], false),
        ("header !Foo", "GET /", &[], true),
        ("header !Foo", "GET /", &["Foo: x"], false),
        ("header_regexp login Cookie login_([a-f0-9]+)", "GET /", &["Cookie: a=b; login_1f"], true),
        ("header_regexp login Cookie login_([a-f0-9]+)", "GET /", &["Cookie: a=b"], false),
        ("path_regexp static \\.([a-f0-9]{6})\\.(css|js)$", "GET /a.0f1e2d.css", &[], true),
        ("path_regexp static \\.([a-f0-9]{6})\\.(css|js)$", "GET /a.css", &[], false),
        ("path_regexp \\.([a-f0-9]{6})\\.(css|js)$", "GET /a.0f1e2d.js", &[], true),
        ("query sort=asc", "GET /?sort=asc", &[], true),
        ("query sort=asc", "GET /?sort=desc", &[], false),
        ("query sort=asc sort=desc", "GET /?sort=desc", &[], true),
        ("query sort=*", "GET /?q=1", &[], false),
        ("query", "GET /", &[], true),
        ("query", "GET /?q=1", &[], false),
        ("protocol http", "GET /", &[], true),
        ("protocol https", "GET /", &[], false),
        ("protocol grpc", "POST /", &["Content-Type: application/grpc"], true),
        ("protocol http/1.1", "GET /", &[], true),
        ("protocol http/2+", "GET /", &[], false),
        ("remote_ip 192.168.0.0/16 10.0.0.0/8", "GET /", &[], false),
        ("remote_ip private_ranges", "GET /", &[], true),
        ("client_ip 127.0.0.1/8 ::1", "GET /", &["X-Forwarded-For: 9.9.9.9"], true),
        ("not client_ip private_ranges", "GET /", &["X-Forwarded-For: 9.9.9.9"], false),
        ("vars {http.vars.magic_number} 3 5", "GET /", &[], true),
        ("vars magic_number 5", "GET /", &[], false),
        ("vars_regexp {http.vars.magic_number} ^[0-9]$", "GET /", &[], true),
        ("vars_regexp debug {query.debug} ^(.+)$", "GET /", &[], false),
        ("expression {method}.startsWith(\"P\")", "PUT /", &[], true),
        ("expression {method}.startsWith(\"P\")", "GET /", &[], false),
        ("`{method}.startsWith('P')`", "POST /", &[], true),
        ("expression `{header.X} == 'a' && (path('/b*') || query({'c': ['d', 'e']}))`", "GET /b", &["X: a"], true),
        ("expression `{header.X} == 'a' && (path('/b*') || query({'c': ['d', 'e']}))`", "GET /?c=e", &["X: a"], true),
        ("expression `{header.X} == 'a' && (path('/b*') || query({'c': ['d', 'e']}))`", "GET /b", &[], false),
        ("expression `{vars.magic_number} in [3, 5]`", "GET /", &[], true),
        ("expression !path('/b*') && method('GET', 'HEAD')", "GET /a", &[], true),
        ("expression `vars({'{vars.magic_number}': ['3', '5']})`", "GET /", &[], true),
        ("{\n method GET\n expression `int({query.n}) > 5`\n }", "GET /?n=6", &[], true),
        ("{\n method GET\n expression `int({query.n}) > 5`\n }", "GET /?n=5", &[], false),
    ]);
}

// Caddy: "If name is not specified, the name of the matcher is used", also in expressions.
#[test]
fn groups_are_named_after_their_matcher() {
    let directory = Directory::with(&[(
        "Caddyfile",
        ":0 {\n\
         \t@year path_regexp ^/y/(?<n>[0-9]+)\n\
         \trespond @year \"{re.year.n} {re.year.1} {re.1} {http.regexp.year.0}\"\n\
         \t@own path_regexp other ^/o/(.)\n\
         \trespond @own \"{re.other.1}\"\n\
         \t@both `path_regexp('^/b/(.)') && {re.both.1} == 'x'`\n\
         \trespond @both \"{re.both.1}\"\n\
         \t@field header_regexp Cookie id=([0-9]+)\n\
         \trewrite @field /users/{re.field.1}\n\
         \trespond {uri}\n\
         }\n",
    )]);
    let server = directory.start(&["run"]);
    for (target, fields, want) in [
        ("/y/2024", &["Host: a"][..], "2024 2024 2024 /y/2024"),
        ("/o/z", &["Host: a"], "z"),
        ("/b/x", &["Host: a"], "x"),
        ("/b/y", &["Host: a"], "/b/y"),
        ("/", &["Host: a", "Cookie: id=17"], "/users/17"),
    ] {
        assert_eq!(send(server.port(), &format!("GET {target}"), fields).body, want, "{target}");
    }
}

// Caddy's documentation, the file matcher in an expression: one file, several, or the matcher's options.
#[test]
fn files_in_expressions() {
    let directory = Directory::with(&[
        (
            "Caddyfile",
            ":0 {\n\
         \troot * www\n\
         \t@up `file({'try_files': [{path} + '.txt', '/down.txt']}) && {file_match.relative} == '/up.txt'`\n\
         \trespond @up \"found {file_match.relative}\"\n\
         \t@any `!path('/x') && file() || file('/never', '/b.txt') && path('/b')`\n\
         \trespond @any any\n\
         \trespond none\n\
         }\n",
        ),
        ("www/up.txt", "x"),
        ("www/b.txt", "x"),
    ]);
    let server = directory.start(&["run"]);
    for (target, want) in
        [("/up", "found /up.txt"), ("/up.txt", "any"), ("/b", "any"), ("/x", "none"), ("/nope", "none")]
    {
        assert_eq!(send(server.port(), &format!("GET {target}"), &["Host: a"]).body, want, "{target}");
    }
}

// Caddy's documentation, handle_errors: codes and classes. An error that no block handles keeps its status.
#[test]
fn handle_errors_of_codes_and_classes() {
    let directory = Directory::with(&[(
        "Caddyfile",
        ":0 {\n\
         \terror /404 404\n\terror /410 410\n\terror /502 502\n\terror /403 403\n\
         \thandle_errors 404 410 {\n\t\trespond \"gone {err.status_code}\"\n\t}\n\
         \thandle_errors 5xx {\n\t\trespond \"ours {err.status_code}\"\n\t}\n\
         }\n",
    )]);
    let server = directory.start(&["run"]);
    for (target, want) in
        [("/404", (404, "gone 404")), ("/410", (410, "gone 410")), ("/502", (502, "ours 502")), ("/403", (403, ""))]
    {
        let answer = send(server.port(), &format!("GET {target}"), &["Host: a"]);
        assert_eq!((answer.status, &*answer.body), want, "{target}");
    }
}
