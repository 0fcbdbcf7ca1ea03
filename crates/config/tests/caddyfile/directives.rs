use serde_json::{Value, json};

use super::{handlers, routes};

/// The only handler of a directive.
#[track_caller]
fn check(cases: &[(&str, Value)]) {
    for (directive, want) in cases {
        assert_eq!(handlers(directive), json!([want]), "{directive}");
    }
}

// respond: one argument of three digits is a status, any other a body; of two arguments the body comes first. A block
// may contain the body and close the connection.
#[test]
fn respond() {
    let body = |text: &str| json!({ "handler": "static_response", "body": text });
    check(&[
        ("respond hello", body("hello")),
        ("respond \"a b\"", body("a b")),
        ("respond 204", json!({ "handler": "static_response", "status_code": 204 })),
        ("respond 000", body("000")),
        ("respond 1234", body("1234")),
        ("respond gone 410", json!({ "handler": "static_response", "body": "gone", "status_code": 410 })),
        (
            "respond x {http.vars.code}",
            json!({ "handler": "static_response", "body": "x", "status_code": "{http.vars.code}" }),
        ),
        ("respond \"\" 403", json!({ "handler": "static_response", "status_code": 403 })),
        ("respond {path}", body("{http.request.uri.path}")),
        (
            "respond 500 {\nbody \"sorry\"\nclose\n}",
            json!({ "handler": "static_response", "status_code": 500, "body": "sorry", "close": true }),
        ),
        ("respond * all", body("all")),
        (
            "respond <<TXT\n\tone\n\t  two\n\tTXT 200",
            json!({ "handler": "static_response", "body": "one\n  two", "status_code": 200 }),
        ),
    ]);
}

// header: a bare field is set, `+` adds, `-` deletes, `?` sets if missing, `>` sets deferred; a third argument replaces
// by regular expression. Deletion is deferred until the response. Field names are canonical where they are set or
// added.
#[test]
fn header() {
    let response = |operations: Value| json!({ "handler": "headers", "response": operations });
    check(&[
        ("header x-frame-options DENY", response(json!({ "set": { "X-Frame-Options": ["DENY"] } }))),
        ("header +link a", response(json!({ "add": { "Link": ["a"] } }))),
        ("header -Server", response(json!({ "delete": ["Server"], "deferred": true }))),
        ("header >Age 1", response(json!({ "set": { "Age": ["1"] }, "deferred": true }))),
        (
            "header Location http: https:",
            response(json!({ "replace": { "Location": [{ "search_regexp": "http:", "replace": "https:" }] } })),
        ),
        (
            "header >Location a b",
            response(
                json!({ "replace": { "Location": [{ "search_regexp": "a", "replace": "b" }] }, "deferred": true }),
            ),
        ),
        (
            "header ?etag none",
            response(json!({ "require": { "headers": { "etag": null } }, "set": { "Etag": ["none"] } })),
        ),
        ("header Empty", response(json!({ "set": { "Empty": [""] } }))),
        (
            "header {\nA: 1\n+B 2\n+b 3\n-C\n>D 4\ndefer\n}",
            response(
                json!({ "set": { "A": ["1"], "D": ["4"] }, "add": { "B": ["2", "3"] }, "delete": ["C"], "deferred": true }),
            ),
        ),
        ("header A 1 {\ndefer\n}", response(json!({ "set": { "A": ["1"] }, "deferred": true }))),
        (
            "header {\nmatch {\nstatus 2xx 404\nheader Content-Type text/*\nheader !Etag\n}\nA 1\n}",
            response(
                json!({ "set": { "A": ["1"] }, "require": { "status_code": [2, 404], "headers": { "Content-Type": ["text/*"], "Etag": null } } }),
            ),
        ),
    ]);
}

// Each `?field` of a block has its own condition, so it becomes its own handler, after the others.
#[test]
fn header_defaults_are_separate_handlers() {
    assert_eq!(
        handlers("header {\n?A 1\nB 2\n?C 3\nmatch status 200\n}"),
        json!([
            { "handler": "headers", "response": { "set": { "B": ["2"] }, "require": { "status_code": [200] } } },
            { "handler": "headers", "response": { "set": { "A": ["1"] }, "require": { "status_code": [200], "headers": { "A": null } } } },
            { "handler": "headers", "response": { "set": { "C": ["3"] }, "require": { "status_code": [200], "headers": { "C": null } } } },
        ])
    );
}

// request_header accepts these signs except for `?`, and is never deferred.
#[test]
fn request_header() {
    let request = |operations: Value| json!({ "handler": "headers", "request": operations });
    check(&[
        ("request_header x-a: 1", request(json!({ "set": { "X-A": ["1"] } }))),
        ("request_header +X 1", request(json!({ "add": { "X": ["1"] } }))),
        ("request_header -X", request(json!({ "delete": ["X"] }))),
        ("request_header X a b", request(json!({ "replace": { "X": [{ "search_regexp": "a", "replace": "b" }] } }))),
    ]);
}

// root sets a variable. A lone argument is the path even if it starts with a slash. Several are exclusive.
#[test]
fn root() {
    check(&[
        ("root /srv", json!({ "handler": "vars", "root": "/srv" })),
        ("root * /srv", json!({ "handler": "vars", "root": "/srv" })),
    ]);
    assert_eq!(
        routes("root * /all\nroot /one/* /1"),
        json!([
            { "group": "group1", "match": [{ "path": ["/one/*"] }], "handle": [{ "handler": "vars", "root": "/1" }] },
            { "group": "group1", "handle": [{ "handler": "vars", "root": "/all" }] },
        ])
    );
}

// file_server: every option. The configuration file is always hidden, but listed only once.
#[test]
fn file_server() {
    let with = |extra: Value| {
        let mut handler = json!({ "handler": "file_server", "hide": ["./Caddyfile"] });
        handler.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        handler
    };
    check(&[
        ("file_server", with(json!({}))),
        ("file_server browse", with(json!({ "browse": {} }))),
        ("file_server {\nfs mine\n}", with(json!({ "fs": "mine" }))),
        ("file_server {\nroot /srv\n}", with(json!({ "root": "/srv" }))),
        (
            "file_server {\nhide .git *.bak\nhide secret\n}",
            with(json!({ "hide": [".git", "*.bak", "secret", "./Caddyfile"] })),
        ),
        ("file_server {\nhide Caddy*\n}", with(json!({ "hide": ["Caddy*"] }))),
        ("file_server {\nindex a.html b.html\n}", with(json!({ "index_names": ["a.html", "b.html"] }))),
        ("file_server {\nbrowse page.html\n}", with(json!({ "browse": { "template_file": "page.html" } }))),
        (
            "file_server {\nbrowse {\nreveal_symlinks\nsort size desc\nfile_limit 7\nplain_time_format 15:04\n}\n}",
            with(
                json!({ "browse": { "reveal_symlinks": true, "sort": ["size", "desc"], "file_limit": 7, "plain_time_format": "15:04" } }),
            ),
        ),
        (
            "file_server {\nprecompressed gzip br\n}",
            with(json!({ "precompressed": { "gzip": {}, "br": {} }, "precompressed_order": ["gzip", "br"] })),
        ),
        (
            "file_server {\nprecompressed\n}",
            with(
                json!({ "precompressed": { "br": {}, "zstd": {}, "gzip": {} }, "precompressed_order": ["br", "zstd", "gzip"] }),
            ),
        ),
        // Our own option: the formats in which the server compresses cached files.
        ("file_server {\nprecompress gzip br\n}", with(json!({ "precompress": ["gzip", "br"] }))),
        ("file_server {\nprecompress\n}", with(json!({ "precompress": ["br", "zstd", "gzip"] }))),
        ("file_server {\nstatus 404\n}", with(json!({ "status_code": 404 }))),
        ("file_server {\nstatus {err.status_code}\n}", with(json!({ "status_code": "{http.error.status_code}" }))),
        ("file_server {\ndisable_canonical_uris\n}", with(json!({ "canonical_uris": false }))),
        ("file_server {\npass_thru\n}", with(json!({ "pass_thru": true }))),
        ("file_server {\netag_file_extensions .sha .md5\n}", with(json!({ "etag_file_extensions": [".sha", ".md5"] }))),
    ]);
}

#[test]
fn other_responses() {
    check(&[
        ("abort", json!({ "handler": "static_response", "abort": true })),
        ("error 404", json!({ "handler": "error", "status_code": 404 })),
        ("error oops 500", json!({ "handler": "error", "error": "oops", "status_code": 500 })),
        ("error 500 {\nmessage oops\n}", json!({ "handler": "error", "error": "oops", "status_code": 500 })),
        (
            "redir https://a{uri}",
            json!({ "handler": "static_response", "status_code": 302, "headers": { "Location": ["https://a{http.request.uri}"] } }),
        ),
        (
            "redir https://a permanent",
            json!({ "handler": "static_response", "status_code": 301, "headers": { "Location": ["https://a"] } }),
        ),
        (
            "redir * /b 308",
            json!({ "handler": "static_response", "status_code": 308, "headers": { "Location": ["/b"] } }),
        ),
    ]);
    let page = handlers("redir <x> html");
    assert!(page[0]["body"].as_str().unwrap().contains("<a href=\"&lt;x&gt;\">"), "{page}");
}

// Rewrites of the target. Each rewrite has its own group, even if it is the only one.
#[test]
fn target() {
    let rewrite = |key: &str, value: Value| json!({ "handler": "rewrite", key: value });
    check(&[
        ("method PUT", rewrite("method", "PUT".into())),
        ("uri strip_prefix /a", rewrite("strip_path_prefix", "/a".into())),
        ("uri strip_suffix b", rewrite("strip_path_suffix", "b".into())),
        ("uri replace a b", rewrite("uri_substring", json!([{ "find": "a", "replace": "b" }]))),
        ("uri replace a b 2", rewrite("uri_substring", json!([{ "find": "a", "replace": "b", "limit": 2 }]))),
        ("uri path_regexp a b", rewrite("path_regexp", json!([{ "find": "a", "replace": "b" }]))),
        ("uri query -a", rewrite("query", json!({ "delete": ["a"] }))),
        (
            "uri query {\n+a 1\nb 2\nc>d\ne f g\n}",
            rewrite(
                "query",
                json!({
                    "add": [{ "key": "a", "val": "1" }],
                    "set": [{ "key": "b", "val": "2" }],
                    "rename": [{ "key": "c", "val": "d" }],
                    "replace": [{ "key": "e", "search_regexp": "f", "replace": "g" }],
                }),
            ),
        ),
    ]);
    assert_eq!(routes("rewrite /x"), json!([{ "group": "group0", "handle": [rewrite("uri", "/x".into())] }]));
    let escaped = json!({ "handler": "rewrite", "uri": "/x", "escape_values": true });
    assert_eq!(routes("rewrite * /x escape_values"), json!([{ "group": "group0", "handle": [escaped] }]));
    assert_eq!(
        routes("try_files {path} /index.php?p={path}"),
        json!([
            { "group": "group0", "match": [{ "file": { "try_files": ["{http.request.uri.path}"] } }], "handle": [rewrite("uri", "{http.matchers.file.relative}".into())] },
            { "group": "group0", "match": [{ "file": { "try_files": ["/index.php"] } }], "handle": [rewrite("uri", "{http.matchers.file.relative}?p={http.request.uri.path}".into())] },
        ])
    );
}

// Bare words become numbers and booleans; quoted ones stay text.
#[test]
fn variables() {
    check(&[
        ("vars a 1", json!({ "handler": "vars", "a": 1 })),
        (
            "vars {\na 1.5\nb \"1\"\nc true\nd 1e3\ne word\nf inf\n}",
            json!({ "handler": "vars", "a": 1.5, "b": "1", "c": true, "d": 1000, "e": "word", "f": "inf" }),
        ),
        ("fs mine", json!({ "handler": "vars", "fs": "mine" })),
        ("log_skip", json!({ "handler": "vars", "log_skip": true })),
        ("log_name a b", json!({ "handler": "vars", "access_logger_names": ["a", "b"] })),
        (
            "map {host} {x} {y} {\na 1 -\n~b$ two\ndefault z\n}",
            json!({
                "handler": "map",
                "source": "{http.request.host}",
                "destinations": ["{x}", "{y}"],
                "mappings": [{ "input": "a", "outputs": [1, null] }, { "input_regexp": "b$", "outputs": ["two", null] }],
                "defaults": ["z", ""],
            }),
        ),
    ]);
}

// Directives run in Caddy's order, regardless of the order written; `route` keeps the written order.
#[test]
fn order() {
    let name = |routes: &Value| -> Vec<String> {
        let handlers = routes.as_array().unwrap().iter().flat_map(|route| route["handle"].as_array().unwrap());
        handlers.map(|handler| handler["handler"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(
        name(&routes("file_server\nrespond x\nheader A b\nroot /x")),
        ["vars", "headers", "static_response", "file_server"]
    );
    let route = routes("route {\nrespond x\nheader A b\n}");
    assert_eq!(name(&route[0]["handle"][0]["routes"]), ["static_response", "headers"]);
}

// Among routes of one directive: longer paths first, an exact path before its prefix, matched before unmatched. `vars`
// is reversed, so that the most specific value is set last.
#[test]
fn order_within_a_directive() {
    let paths = |body: &str| -> Vec<Value> {
        routes(body).as_array().unwrap().iter().map(|route| route["match"][0]["path"][0].clone()).collect()
    };
    let sorted = [json!("/abc"), json!("/ab"), json!("/ab*"), json!("/ba"), Value::Null];
    assert_eq!(paths("respond 1\nrespond /ab* 2\nrespond /ba 3\nrespond /abc 4\nrespond /ab 5"), sorted);
    let reversed: Vec<Value> = sorted.iter().rev().cloned().collect();
    assert_eq!(paths("vars a 1\nvars /ab* a 2\nvars /ba a 3\nvars /abc a 4\nvars /ab a 5"), reversed);
}

// Sibling handles are exclusive; handle_path is one that strips its prefix; matchers are inherited.
#[test]
fn routing() {
    assert_eq!(
        routes("@a method GET\nhandle_path /x/* {\nrespond @a hi\n}\nhandle {\nrespond no\n}"),
        json!([
            { "group": "group2", "match": [{ "path": ["/x/*"] }], "handle": [{ "handler": "subroute", "routes": [
                { "handle": [{ "handler": "rewrite", "strip_path_prefix": "/x" }] },
                { "match": [{ "method": ["GET"] }], "handle": [{ "handler": "static_response", "body": "hi" }] },
            ] }] },
            { "group": "group2", "handle": [{ "handler": "subroute", "routes": [
                { "handle": [{ "handler": "static_response", "body": "no" }] },
            ] }] },
        ])
    );
}

// basic_auth: the hash defaults to bcrypt; each line is an account.
#[test]
fn basic_auth() {
    let basic = |basic: Value| json!({ "handler": "authentication", "providers": { "http_basic": basic } });
    check(&[
        (
            "basic_auth {\nann $2a$14$x\nbob $2a$14$y\n}",
            basic(json!({
                "hash": { "algorithm": "bcrypt" },
                "accounts": [{ "username": "ann", "password": "$2a$14$x" }, { "username": "bob", "password": "$2a$14$y" }],
                "hash_cache": {},
            })),
        ),
        (
            "basic_auth argon2id \"the vault\" {\nann $argon2id$v\n}",
            basic(json!({
                "hash": { "algorithm": "argon2id" },
                "accounts": [{ "username": "ann", "password": "$argon2id$v" }],
                "realm": "the vault",
                "hash_cache": {},
            })),
        ),
        ("basicauth", basic(json!({ "hash": { "algorithm": "bcrypt" }, "hash_cache": {} }))),
    ]);
}

// request_body: the last line applies; 0 and the empty text are the default. A word after the name hides the block.
#[test]
fn request_body() {
    check(&[
        (
            "request_body {\nmax_size 1.5MB\nset {path}\n}",
            json!({ "handler": "request_body", "max_size": 1_500_000, "set": "{http.request.uri.path}" }),
        ),
        ("request_body {\nmax_size 1KiB\nmax_size 0\nset a\nset \"\"\n}", json!({ "handler": "request_body" })),
    ]);
}

// log_append: with `<` before the name the value is evaluated before the request is handled. log_level: any case.
#[test]
fn options_of_the_access_log() {
    check(&[
        (
            "log_append user {header.X-User}",
            json!({ "handler": "log_append", "key": "user", "value": "{http.request.header.X-User}" }),
        ),
        ("log_append <user a", json!({ "handler": "log_append", "key": "user", "value": "a", "early": true })),
        ("log_append < a", json!({ "handler": "log_append", "key": "<", "value": "a" })),
        ("log_level Warning", json!({ "handler": "vars", "log_level": "warn" })),
        ("log_level ERROR", json!({ "handler": "vars", "log_level": "error" })),
    ]);
}

// Underscores are allowed between the digits of a number, as in Go.
#[test]
fn numbers_with_underscores() {
    check(&[
        ("vars a 1_000", json!({ "handler": "vars", "a": 1000 })),
        ("vars a 1_0.5", json!({ "handler": "vars", "a": 10.5 })),
        ("vars a _1", json!({ "handler": "vars", "a": "_1" })),
        ("vars a 1__0", json!({ "handler": "vars", "a": "1__0" })),
    ]);
}

// encode: formats of the block precede those of the line; the default is zstd, then gzip.
#[test]
fn encode() {
    let encode =
        |encodings: Value, prefer: Value| json!({ "handler": "encode", "encodings": encodings, "prefer": prefer });
    check(&[
        ("encode", encode(json!({ "zstd": {}, "gzip": {} }), json!(["zstd", "gzip"]))),
        ("encode gzip", encode(json!({ "gzip": {} }), json!(["gzip"]))),
        // A coding that Caddy has as a plugin.
        ("encode br gzip", encode(json!({ "br": {}, "gzip": {} }), json!(["br", "gzip"]))),
        ("encode {\nbr 0\n}", encode(json!({ "br": { "level": 0 } }), json!(["br"]))),
        (
            "encode gzip {\nzstd best {\ndisable_checksum\n}\n}",
            encode(json!({ "zstd": { "level": "best", "checksum": false }, "gzip": {} }), json!(["zstd", "gzip"])),
        ),
        (
            "encode {\ngzip 6\nminimum_length 256\nmatch {\nstatus 2xx\nheader Content-Type text/*\n}\n}",
            json!({
                "handler": "encode",
                "encodings": { "gzip": { "level": 6 } },
                "prefer": ["gzip"],
                "minimum_length": 256,
                "match": { "status_code": [2], "headers": { "Content-Type": ["text/*"] } },
            }),
        ),
    ]);
}

// The plugin cache-handler: times in nanoseconds, sizes in bytes, and the parts of the key.
#[test]
fn cache() {
    check(&[
        ("cache", json!({ "handler": "cache" })),
        (
            "cache * {\nttl 1m\nstale 1h\ndefault_cache_control public, max-age=60\ncache_name x\nmax_cacheable_body_bytes 1000\nmemory 1MiB\n}",
            json!({
                "handler": "cache", "ttl": 60_000_000_000_i64, "stale": 3_600_000_000_000_i64,
                "default_cache_control": "public, max-age=60", "cache_name": "x", "max_cacheable_body_bytes": 1000,
                "memory": 1_048_576,
            }),
        ),
        (
            "cache {\nkey {\ndisable_host\nhash\nheaders A B\ntemplate {path}\n}\nheaders C\nregex {\nexclude /x.*\n}\nmode strict\n}",
            json!({
                "handler": "cache", "headers": ["C"], "mode": "strict", "regex": { "exclude": "/x.*" },
                "key": {
                    "disable_host": true, "hash": true, "headers": ["A", "B"], "template": "{http.request.uri.path}",
                },
            }),
        ),
        (
            "cache {\nallowed_http_verbs GET HEAD\nallowed_additional_status_codes 418 302\ndisable_coalescing\n}",
            json!({
                "handler": "cache", "allowed_http_verbs": ["GET", "HEAD"],
                "allowed_additional_status_codes": [418, 302], "disable_coalescing": true,
            }),
        ),
        (
            "cache {\nsimplefs {\npath /var/cache/x\nconfiguration {\nsize 1000\ndirectory_size 1GiB\n}\n}\n}",
            json!({
                "handler": "cache",
                "simplefs": {
                    "path": "/var/cache/x", "configuration": { "size": 1000, "directory_size": 1_073_741_824 },
                },
            }),
        ),
    ]);
}

// The plugin caddy-ratelimit: zones with their window and number of events, and matchers.
#[test]
fn rate_limit() {
    check(&[
        (
            "rate_limit {\nzone dynamic {\nkey {remote_host}\nwindow 5s\nevents 2\n}\n}",
            json!({ "handler": "rate_limit", "rate_limits": {
                "dynamic": { "key": "{http.request.remote.host}", "window": 5_000_000_000_i64, "max_events": 2 },
            } }),
        ),
        (
            "rate_limit * {\nzone posts {\nmatch {\nmethod POST\n}\nwindow 1m\nevents 10\n}\njitter 0.2\nsweep_interval 1m\nlog_key\n}",
            json!({
                "handler": "rate_limit", "jitter": 0.2, "sweep_interval": 60_000_000_000_i64, "log_key": true,
                "rate_limits": {
                    "posts": { "match": [{ "method": ["POST"] }], "window": 60_000_000_000_i64, "max_events": 10 },
                },
            }),
        ),
    ]);
}

// `redis` of rate_limit, which is not in the plugin.
#[test]
fn rate_limits_in_redis() {
    for (address, want) in [
        ("redis.internal:6379", json!({ "address": "redis.internal:6379" })),
        ("[::1]:7", json!({ "address": "[::1]:7" })),
        ("unix//run/redis.sock", json!({ "address": "unix//run/redis.sock" })),
        ("redis://a", json!({ "address": "a:6379" })),
        ("redis://[::1]/3", json!({ "address": "[::1]:6379", "db": 3 })),
        ("redis://:p@a:7/", json!({ "address": "a:7", "password": "p" })),
        ("redis://u@a", json!({ "address": "a:6379", "username": "u" })),
        (
            "rediss://us%40r:p@ss:%2F@a:7/1",
            json!({ "address": "a:7", "username": "us@r", "password": "p@ss:/", "db": 1, "tls": true }),
        ),
        ("{env.REDIS}", json!({ "address": "{env.REDIS}" })),
        (
            "redis://u:{env.PASSWORD}@{env.HOST}:{env.PORT}",
            json!({ "address": "{env.HOST}:{env.PORT}", "username": "u", "password": "{env.PASSWORD}" }),
        ),
    ] {
        check(&[(&format!("rate_limit {{\nredis {address}\n}}"), json!({ "handler": "rate_limit", "redis": want }))]);
    }
}

// templates, tracing, timeouts.
#[test]
fn wrapping_directives() {
    check(&[
        ("templates", json!({ "handler": "templates" })),
        (
            "templates * {\nmime text/html text/x\nbetween [[ ]]\nroot /srv\n}",
            json!({
                "handler": "templates", "mime_types": ["text/html", "text/x"], "delimiters": ["[[", "]]"], "file_root": "/srv",
            }),
        ),
        ("tracing", json!({ "handler": "tracing", "span": "" })),
        (
            "tracing {\nspan {method}\nspan_attributes {\na b\nuser {http.auth.user.id}\n}\n}",
            json!({
                "handler": "tracing", "span": "{http.request.method}",
                "span_attributes": { "a": "b", "user": "{http.auth.user.id}" },
            }),
        ),
        (
            "timeouts {\nread_timeout 5s 1024\nwrite_timeout 1m\nmax_write_chunk 64KiB\n}",
            json!({
                "handler": "timeouts", "read_timeout": 5_000_000_000_i64, "read_min_rate": 1024,
                "write_timeout": 60_000_000_000_i64, "max_write_chunk": 65536,
            }),
        ),
    ]);
}

// push: resources with or without a method, and fields of the pushed requests. metrics.
#[test]
fn push_and_metrics() {
    check(&[
        ("push * /style.css", json!({ "handler": "push", "resources": [{ "target": "/style.css" }] })),
        (
            "push {\nGET /a.js\n/b.js\nheaders {\nAccept-Language de\n-Cookie\n}\n}",
            json!({
                "handler": "push",
                "resources": [{ "method": "GET", "target": "/a.js" }, { "target": "/b.js" }],
                "headers": { "set": { "Accept-Language": ["de"] }, "delete": ["Cookie"] },
            }),
        ),
        ("metrics {\ndisable_openmetrics\n}", json!({ "handler": "metrics", "disable_openmetrics": true })),
    ]);
}
