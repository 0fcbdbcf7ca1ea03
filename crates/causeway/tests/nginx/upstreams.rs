//! Upstreams: caches, decisions about access, programs, and their responses.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;

use causeway_testkit::ports::free_port;

use crate::support::*;

/// Responses are stored, answered from the store and updated as nginx does with the same `proxy_cache` lines.
#[test]
fn stored_responses_equal_those_of_nginx() {
    let kinds =
        "plain max-age no-store private no-cache set-cookie expires expired vary vary-all 404 302 301 500 410 503 203";
    let paths: Vec<String> = kinds
        .split(' ')
        .flat_map(|kind| {
            [
                format!("/{kind}"),
                format!("/{kind}"),
                format!("/api/{kind}"),
                format!("/api/{kind}?x=1"),
                format!("/private/{kind}"),
                format!("/hidden/{kind}?h"),
                format!("/hidden/{kind}?h"),
                format!("/uncached/{kind}"),
                format!("/uncached/{kind}"),
            ]
        })
        .collect();
    let mut cases: Vec<(&str, &str, &str)> = paths.iter().map(|path| ("GET", path.as_str(), "")).collect();
    cases.extend([
        ("HEAD", "/plain", ""),
        // Unlike nginx's, the cache drops the response to GET of the same path (RFC 9111 §4.4).
        ("POST", "/posted", "Content-Length: 0\r\n"),
        ("GET", "/v/vary", "X-Kind: a\r\n"),
        ("GET", "/v/vary", "X-Kind: b\r\n"),
        ("GET", "/v/vary", "X-Kind: a\r\n"),
        // Requests that skip the cache.
        ("GET", "/plain?fresh=1", ""),
        ("GET", "/plain?fresh=1", ""),
        ("GET", "/plain?fresh=0", ""),
        ("GET", "/plain?fresh=0", ""),
        ("GET", "/plain", "Cookie: session=1\r\n"),
        ("GET", "/plain", "Cookie: session=1\r\n"),
        ("GET", "/plain", ""),
        ("GET", "/api/max-age", "Authorization: x\r\n"),
        ("GET", "/api/max-age", "Authorization: x\r\n"),
        // The directives of requests do not count.
        ("GET", "/q/plain", "Cache-Control: no-cache\r\n"),
        ("GET", "/q/plain", "Cache-Control: no-cache\r\n"),
        ("GET", "/other/max-age", "Cookie: x=1\r\n"),
        ("GET", "/other/max-age", "Cookie: x=1\r\n"),
        // A stale response instead of 503.
        ("GET", "/stale", ""),
        ("GET", "/stale", ""),
        ("wait", "", ""),
        ("GET", "/stale", ""),
    ]);
    compare("cache", &["x-cache", "set-cookie"], &cases);
    // Hidden fields count for the cache, and added ones do not.
    let hidden = ["/hidden/max-age", "/hidden/no-store", "/hidden/plain"].map(|path| ("GET", path, ""));
    compare("cache", &["cache-control"], &[hidden, hidden].concat());
}

/// Answers one FastCGI request on each connection, with the head and content that `answer` makes of the parameters.
fn program(listener: &UnixListener, mut answer: impl FnMut(&dyn Fn(&str) -> String) -> String) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { continue };
        let mut parameters = Vec::new();
        // The head of a record: the version, the kind, two bytes of the request's number, two of the length, and the
        // padding. The last record has the kind 5 (content) and no length.
        let mut head = [0; 8];
        while stream.read_exact(&mut head).is_ok() {
            let len = usize::from(u16::from_be_bytes([head[4], head[5]]));
            let mut content = vec![0; len + usize::from(head[6])];
            stream.read_exact(&mut content).unwrap();
            match head[1] {
                4 => parameters.extend_from_slice(&content[..len]),
                5 if len == 0 => break,
                _ => {}
            }
        }
        let named = fastcgi_parameters(&parameters);
        let text = answer(&|name| named.get(name).cloned().unwrap_or_default());
        let [high, low] = u16::try_from(text.len()).unwrap().to_be_bytes();
        let _ = stream.write_all(&[1, 6, 0, 1, high, low, 0, 0]);
        let _ = stream.write_all(text.as_bytes());
        let _ = stream.write_all(&[1, 6, 0, 1, 0, 0, 0, 0, 1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}

/// The content has the method, `REQUEST_URI`, and the number of the requests for this URI that the server with this
/// `SERVER_PORT` has sent.
fn counting_program(listener: &UnixListener) {
    let mut counts: HashMap<(String, String), u32> = HashMap::new();
    program(listener, |of| {
        let uri = of("REQUEST_URI");
        let count = counts.entry((uri.clone(), of("SERVER_PORT"))).or_default();
        *count += 1;
        let fields = if uri.contains("cookie") { "Set-Cookie: a=b\r\n" } else { "" };
        let status = if uri.contains("missing") { 404 } else { 200 };
        format!("Status: {status} X\r\n{fields}Content-Type: text/html\r\n\r\n{} {uri} {count}\n", of("REQUEST_METHOD"))
    });
}

/// Reads pairs of names and values, each with its length in one byte, or in four if the first bit is set.
fn fastcgi_parameters(mut bytes: &[u8]) -> HashMap<String, String> {
    fn len(bytes: &mut &[u8]) -> usize {
        let size = if bytes[0] < 0x80 { 1 } else { 4 };
        let (len, rest) = bytes.split_at(size);
        *bytes = rest;
        len.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)) & 0x7fff_ffff
    }
    let mut found = HashMap::new();
    while !bytes.is_empty() {
        let (name_len, value_len) = (len(&mut bytes), len(&mut bytes));
        let (name, rest) = bytes.split_at(name_len);
        let (value, rest) = rest.split_at(value_len);
        bytes = rest;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        found.insert(text(name), text(value));
    }
    found
}

/// All pages of such an application come from one file after a rewrite, and are stored by the client's URI.
#[test]
fn stored_pages_of_a_program_equal_those_of_nginx() {
    let directory = ShapeDirectory::new("program");
    std::fs::write(directory.0.join("www/index.php"), "").unwrap();
    let listener = UnixListener::bind(directory.0.join("php.sock")).unwrap();
    std::thread::spawn(move || counting_program(&listener));
    let paths = "/one /two /one?x=1 /missing /cookie / /index.php /two/";
    let mut cases: Vec<_> = paths.split_ascii_whitespace().flat_map(|path| [("GET", path, ""); 2]).collect();
    cases.extend([
        ("GET", "/one?preview=1", ""),
        ("GET", "/one?preview=1", ""),
        ("GET", "/two", "Cookie: logged_in=1\r\n"),
        ("GET", "/two", ""),
        ("POST", "/two", "Content-Length: 0\r\n"),
    ]);
    compare_in(&directory, "php_cache", &["set-cookie"], &cases);
    let states = ["/three", "/three"].map(|path| ("GET", path, ""));
    compare_in(&directory, "php_cache", &["x-cache"], &states);
}

/// nginx's documentation of `fastcgi_split_path_info`, `fastcgi_index` and `fastcgi_param`.
#[test]
fn scripts_equal_those_of_nginx() {
    let directory = ShapeDirectory::new("scripts");
    for file in [
        "www/index.php",
        "www/new.php",
        "www/a b%/index.html",
        "www/checked/a.php",
        "www/sub/index.php",
        "data/index.php",
        "data/b/x.php",
    ] {
        let file = directory.0.join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "source").unwrap();
    }
    let listener = UnixListener::bind(directory.0.join("php.sock")).unwrap();
    std::thread::spawn(move || {
        program(&listener, |of| {
            let names = ["SCRIPT_FILENAME", "SCRIPT_NAME", "PATH_INFO", "REQUEST_URI", "HTTPS"].map(of);
            format!("Content-Type: text/html\r\n\r\n{}\n", names.join(" "))
        });
    });
    let paths = "/ /x/y?z=1 /index.php /index.php/a/b?c=1 /login.php /login.php/x /checked/a.php /checked/a.php/i /checked/b.php \
                 /checked/b.php/i /split/a.php /split/a.php/b/c?d /split//a%20b/c /front/ /front/x?y /folder/ /folder/x.php \
                 /outer/program.php /outer/program.php/a/b /outer/program.php/ /outer/ /outer/x/ /outer/x.php/i /outer/x.php/ /outer/x \
                 /tool/ /tool/index.php /tool/b/x.php /tool/a.txt /within/x /within/b/ /within/ /closed/ /closed/index.php /closed/a.txt /page.html /sub /sub?x=y /a%20b%25 /a%20b%25/ /new.php /new.php/x/y?z /old.php /old.php/x \
                 /loose/admin.php /loose/admin.php. /loose/admin.php~ /loose/admin.php%20 /loose/admin.phpx /loose/admin.php/x.php \
                 /loose/admin.php/ /checked/a.phpx/b.php /checked/a.php~ /index.php/a.phpx/b.php/c%20d%3Fe";
    let cases: Vec<_> = paths.split_ascii_whitespace().map(|path| ("GET", path, "")).collect();
    compare_in(&directory, "php_scripts", &[], &cases);
    for directory_of_app in ["www/apps/files", "www/apps/styled"] {
        std::fs::create_dir_all(directory.0.join(directory_of_app)).unwrap();
    }
    std::fs::write(directory.0.join("www/apps/styled/a.css"), "style").unwrap();
    let paths = "/apps/files/ /apps/ /apps/files /apps/styled/ /apps/styled/a.css /sub/ /none /none/x?y /index.php/x \
                 /../index.php /..%2findex.php /apps/..%2f..%2fnew.php";
    let cases: Vec<_> = paths.split_ascii_whitespace().map(|path| ("GET", path, "")).collect();
    compare_in(&directory, "php_index", &["location"], &cases);
    // Content of unknown length is buffered, as FastCGI needs the length.
    let chunked =
        |bytes: usize| format!("Transfer-Encoding: chunked\r\n\r\n{bytes:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(bytes));
    let posts = [chunked(1000), chunked(200_000)];
    let cases: Vec<_> = posts.iter().map(|lines| ("POST", "/index.php", lines.as_str())).collect();
    compare_in(&directory, "php_scripts", &[], &cases);
}

/// Answers requests for programs with the names of their scripts.
fn naming_program(directory: &ShapeDirectory) {
    let listener = UnixListener::bind(directory.0.join("php.sock")).unwrap();
    std::thread::spawn(move || {
        program(&listener, |of| {
            let names = ["REQUEST_METHOD", "SCRIPT_FILENAME", "SCRIPT_NAME", "PATH_INFO", "REQUEST_URI"].map(of);
            format!("Content-Type: text/html\r\n\r\n{}\n", names.join(" "))
        });
    });
}

/// nginx's documentation of `index`: the location of the index is chosen again. Where nginx runs no program, the source
/// is not sent.
#[test]
fn indexes_that_are_programs_equal_those_of_nginx() {
    let directory = ShapeDirectory::new("indexes");
    let in_www = ["one", "one/x", "two", "none", "three", "four", "five", "source", "shown", "free"];
    for file in in_www.iter().map(|name| format!("www/{name}")).chain(["data".to_owned(), "data/b".to_owned()]) {
        std::fs::create_dir_all(directory.0.join(&file)).unwrap();
        std::fs::write(directory.0.join(file).join("index.php"), "source").unwrap();
    }
    naming_program(&directory);
    let paths = "/one/ /one /one?a=b /one/x/ /one/x /one/index.php /two/ /two /two/index.php /mail/ /mail/b/ /mail/b /mail/index.php \
                 /mail/a.txt /three/ /three/index.php /four/ /four/index.php?a=b /five/ /five/index.php /six/ /six /six/x/ /six/x /tool /tool?a=b \
                 /tool/ /tool/b /tool/b/ /tool/index.php /tool/a.txt /shown/index.php /one/none/ /page.html";
    let mut cases: Vec<_> = paths.split_ascii_whitespace().map(|path| ("GET", path, "")).collect();
    cases.push(("POST", "/mail/", "Content-Length: 0\r\n"));
    compare_in(&directory, "program_indexes", &["location"], &cases);
    let Some(nginx) = installed_nginx() else { return };
    let ([theirs, ours], _servers) = both(nginx, &shape("program_indexes"), &directory, [1, 1]);
    for path in ["/source/", "/source/index.php", "/none/", "/none/index.php", "/free/", "/free/index.php"] {
        let bodies = [theirs, ours].map(|port| request(port, "GET", "example.com", path).body);
        assert_eq!(bodies, ["source", ""], "{path}: nginx, then causeway");
    }
}

/// nginx's documentation of `error_page`: the query of a URI has no part in the choice of the location.
#[test]
fn pages_of_programs_equal_those_of_nginx() {
    let directory = ShapeDirectory::new("pages");
    std::fs::write(directory.0.join("www/index.php"), "source").unwrap();
    naming_program(&directory);
    let paths = "/none/x /none/x?a=b /closed/x /closed/x?a=b /gone/ /changed/x /changed/closed/x?a=b /x /page.html /index.php?a=b";
    let mut cases: Vec<_> = paths.split_ascii_whitespace().map(|path| ("GET", path, "")).collect();
    cases.extend(["/none/x", "/closed/x", "/changed/x"].map(|path| ("POST", path, "Content-Length: 0\r\n")));
    compare_in(&directory, "program_pages", &[], &cases);
    std::fs::write(directory.0.join("www/403.html"), "forbidden\n").unwrap();
    compare_in(&directory, "program_pages", &[], &["/closed/x", "/closed/x?a=b"].map(|path| ("GET", path, "")));
}

/// nginx's documentation of `client_max_body_size` and `add_header`.
#[test]
fn sizes_and_fields_with_upstreams_equal_those_of_nginx() {
    let content = |bytes: usize| format!("Content-Length: {bytes}\r\n\r\n{}", "x".repeat(bytes));
    let contents = [10, 1500, 5000].map(content);
    let paths = ["/large/x", "/page/x", "/small/x"];
    let cases: Vec<_> =
        paths.iter().flat_map(|path| contents.iter().map(move |lines| ("POST", *path, lines.as_str()))).collect();
    compare("body_named", &[], &cases);
    let paths = ["/max-age", "/plain", "/404", "/empty"].map(|path| ("GET", path, ""));
    compare("upstream_fields", &["x-kind", "x-inner", "x-outer", "x-always"], &paths);
}

/// A lifetime of the configuration is not for requests with a cookie: unlike nginx, and named.
#[test]
fn stored_responses_without_a_lifetime_exclude_cookie_requests() {
    let directory = ShapeDirectory::new("personal");
    let port = free_port();
    std::fs::write(
        directory.0.join("ours.conf"),
        complete(&shape("cache"), &directory, [port, 0], counting_upstream()),
    )
    .unwrap();
    let command = directory.causeway(&["run", "--adapter", "nginx", "--config", "ours.conf"]);
    let log = directory.0.join("ours.log");
    let _causeway = start(command, port, &log);
    let bodies = ["", "Cookie: x=1\r\n", ""]
        .map(|lines| request_with(port, ("GET", "example.com", "/plain"), lines, &[]).body.replace("GET /plain", ""));
    assert_eq!(bodies, [" 1 \n", " 2 \n", " 1 \n"]);
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("a lifetime of the configuration is not for requests with a cookie"), "{log}");
}

#[test]
fn errors_of_an_upstream_equal_those_of_nginx() {
    let paths = "404 500 503 410 plain cookie-path cookie-other";
    let paths: Vec<String> = paths.split(' ').flat_map(|kind| [format!("/{kind}"), format!("/raw/{kind}")]).collect();
    let mut cases: Vec<(&str, &str, &str)> = paths.iter().map(|path| ("GET", path.as_str(), "")).collect();
    cases.extend([("POST", "/404", ""), ("GET", "/404.html", "")]);
    compare("intercept", &["set-cookie"], &cases);
}

/// nginx's documentation of `error_page`: the pages of a location replace all of those around it, and without `=` the
/// status stays.
#[test]
fn error_pages_of_locations_equal_those_of_nginx() {
    let paths = "/ /missing /forbidden/x /spa/ /spa/x /spa/closed/x /spa/own/x /api/404 /api/plain /api/503 /api/418 /api/500 \
                 /api /teapot/x /busy/x /busy/503 /busy/404 /to/x /to/ /away/x /away/y/no /away /away/";
    let cases: Vec<_> = paths.split_ascii_whitespace().map(|path| ("GET", path, "")).collect();
    compare("location_pages", &["location", "x-kind"], &cases);
    let paths = ["403", "404", "410", "418", "451", "none"].map(|code| format!("/closed/{code}?a=b"));
    let of = |path| [("GET", path, ""), ("HEAD", path, ""), ("POST", path, "Content-Length: 0\r\n")];
    let cases: Vec<_> = paths.iter().flat_map(|path| of(path.as_str())).collect();
    compare("answered_pages", &[], &cases);
}

/// nginx's documentation of `auth_request`: 2xx lets a request through, and 401 and 403 refuse it with the location's
/// error page and without the upstream's fields, but for WWW-Authenticate. Any other status is an error.
#[test]
fn requests_that_an_upstream_refuses_equal_those_of_nginx() {
    let paths = [
        "/x?y=1",
        "/login/x?y=1",
        "/away/x",
        "/forbidden/x",
        "/auth/plain",
        "/inner/403",
        "/refused/x",
        "/silent/x",
        "/other/x",
        "/moved/x",
    ];
    let of = |path| [("GET", path, ""), ("POST", path, "Content-Length: 0\r\n")];
    let cases: Vec<_> = paths.into_iter().flat_map(of).collect();
    compare("auth_pages", &["location", "www-authenticate", "set-cookie"], &cases);
    compare("auth_pages", &["www-authenticate", "content-type"], &[("GET", "/silent/json/x", "")]);
}

/// nginx's documentation of `X-Accel-Redirect`: a location with `internal` answers, with some fields of the upstream.
#[test]
fn files_that_an_upstream_permits_equal_those_of_nginx() {
    let paths =
        ["/x", "/accel", "/accel?x=1", "/accel-none", "/accel-closed", "/raw/accel", "/protected/a.txt", "/closed/x"];
    let mut cases: Vec<_> = paths.into_iter().map(|path| ("GET", path, "")).collect();
    cases.extend([
        ("HEAD", "/accel", ""),
        ("POST", "/accel", "Content-Length: 0\r\n"),
        ("GET", "/accel", "Range: bytes=1-2\r\n"),
        ("GET", "/404.html", ""),
    ]);
    compare("accel", &["content-disposition", "x-inner", "content-range"], &cases);
}

/// nginx's documentation of `error_page` and `X-Accel-Redirect`: the method is GET, and the URI is the new one. The
/// second upstream's type replaces that of the first; other fields that nginx keeps stand beside its own.
#[test]
fn second_upstreams_equal_those_of_nginx() {
    let content = "Content-Length: 5\r\n\r\nhello";
    let paths =
        ["/pages/404", "/pages/404?a=b", "/pages/plain", "/accel-typed?x=1", "/accel-untyped", "/accel-query?x=1"];
    let cases: Vec<_> = paths.iter().flat_map(|path| [("GET", *path, ""), ("POST", *path, content)]).collect();
    let fields = ["content-type", "set-cookie", "content-disposition", "cache-control", "expires", "accept-ranges"];
    compare("upstream_again", &fields, &cases);
    compare("upstream_again", &[], &[("POST", "/all/x", content), ("POST", "/some/x", content)]);
}

/// Location of an upstream that names the upstream's own address gets the server's; nginx's documentation of
/// `proxy_redirect`.
#[test]
fn redirects_of_an_upstream_equal_those_of_nginx() {
    let paths = ["/moved", "/app/moved", "/app/x", "/host/moved", "/mapped/moved", "/off/x"];
    let cases: Vec<_> = paths.iter().map(|path| ("GET", *path, "X-Real-IP: 192.0.2.7\r\n")).collect();
    compare("proxy_redirect", &["location"], &cases);
}

/// Addresses and URIs with variables reach the same upstream with the same target.
#[test]
fn targets_with_variables_equal_those_of_nginx() {
    let paths = "/const/x?y=1 /const/ /group/x?y=1 /map/x?to=two /map/x?q=1 /uri/x?y=1 /uri/x /request/x?y=1 /request/%41 \
                 /request/a%2Fb?x=1 /elsewhere/a?x=1 /set/x /other/x?y=1 /a/x.txt /args/x?y=1 /args/x /re/a/b /query/index?y=1 /query/x?y=1 \
                 /query/x /rest /rest?y=1 /rest/x?y=1 /rest/x /path/x?y=1 /path/a%20b /plain/0200?to=two /plain/0200";
    let cases: Vec<_> = paths.split_ascii_whitespace().map(|path| ("GET", path, "")).collect();
    compare("proxy_variables", &[], &cases);
}

/// nginx's documentation of `X-Accel-Redirect`, `expires` and `add_header`: the location that responds has its own
/// fields alone, and `expires` replaces the upstream's Cache-Control before `add_header` adds another one.
#[test]
fn fields_of_the_location_that_responds_equal_those_of_nginx() {
    let paths = "/x /accel /accel-cached /max-age /no-cache /404 /both/max-age /both/x /both/404 /always/max-age /always/404 \
                 /always/accel /named/accel /named/x /cond/accel /cond/x /cond/x?a=1 /cond/accel?a=1 /denied/x /methods/x /files/a.txt";
    let mut cases: Vec<_> = paths.split_ascii_whitespace().map(|path| ("GET", path, "")).collect();
    cases.push(("POST", "/methods/x", "Content-Length: 0\r\n"));
    let fields = ["x-outer", "x-always", "x-kind", "cache-control", "content-disposition", "causeway-accel"];
    compare("accel_fields", &fields, &cases);
    // An upstream cannot set the mark of the translation, which no client gets.
    let cases = ["/marked", "/always/marked", "/named/marked"].map(|path| ("GET", path, ""));
    compare("accel_fields", &fields[..5], &cases);
    // The name of an upstream's software.
    compare("accel_fields", &["server"], &[("GET", "/passed/software", "")]);
}

/// nginx's documentation of `try_files`, whose last word is a URI with a query of its own, and of `fastcgi_index`.
#[test]
fn queries_and_indexes_of_programs_equal_those_of_nginx() {
    let directory = ShapeDirectory::new("queries");
    std::fs::write(directory.0.join("www/qindex.php"), "source").unwrap();
    let listener = UnixListener::bind(directory.0.join("php.sock")).unwrap();
    std::thread::spawn(move || {
        program(&listener, |of| {
            let values = ["SCRIPT_FILENAME", "SCRIPT_NAME", "PATH_INFO", "QUERY_STRING"].map(of);
            format!("Content-Type: text/html\r\n\r\n{}\n", values.join(" "))
        });
    });
    let paths = "/qnone.php?q=1 /qindex.php?q=1 /qnone.php /b/ /b/x /b/?q=1 /d/ /d/x /c/ /c/index.php/x /c/index.php/x/ /e/index.php/";
    let cases: Vec<_> = paths.split_ascii_whitespace().map(|path| ("GET", path, "")).collect();
    compare_in(&directory, "php_query", &[], &cases);
}

/// nginx's documentation of `proxy_pass`: a value of a variable is first looked up among the names of upstreams.
#[test]
fn upstreams_that_variables_name_equal_those_of_nginx() {
    // A map without a default has no host for other values.
    let paths = ["/x", "/uri/x", "/url/x", "/set/x", "/only/x", "/only_url/x"];
    let paths: Vec<_> =
        paths.iter().flat_map(|path| ["one", "two", "three"].map(|to| format!("{path}?to={to}"))).collect();
    let cases: Vec<_> = paths.iter().map(|path| ("GET", path.as_str(), "")).collect();
    compare("proxy_upstreams", &[], &cases);
}

/// nginx's documentation of `auth_request_set`: a field of the application that decides is sent to the client, if there
/// is one, and never the client's own.
#[test]
fn fields_of_a_decision_equal_those_of_nginx() {
    let paths = "/x /404 /set-cookie /none/x /none/404 /both/x /both/404 /twice/x /refused/x /files/a.txt /files/none";
    let paths: Vec<_> = paths.split_ascii_whitespace().collect();
    let lines = ["", "Causeway-Auth-set-cookie: x=y\r\nX-Real-IP: x=y\r\n"];
    let cases: Vec<_> = paths.iter().flat_map(|path| lines.map(|lines| ("GET", *path, lines))).collect();
    compare("auth_fields", &["set-cookie", "x-outer"], &cases);
}

/// nginx's documentation of `add_header`: a decided field is inherited as others are, also by named locations, those of
/// `X-Accel-Redirect` and `if`, and is absent where other fields replace it.
#[test]
fn inherited_fields_of_a_decision_equal_those_of_nginx() {
    let paths = "/x /404 /files/a.txt /page.html /own/x /own/x?file=none /accel /off/x /cond/x /cond/x?a=1 /cond/x?b=1 /cond/x?a=1&b=1 \
                 /cond/x?c=1 /cond/404?a=1 /only/x /only/x?a=1 /answer/x /answer/x?a=1 /protected/a.txt";
    let cases: Vec<_> = paths.split_ascii_whitespace().map(|path| ("GET", path, "")).collect();
    compare("auth_fields_server", &["set-cookie", "x-outer", "x-kind", "causeway-accel"], &cases);
}
