use std::path::{Path, PathBuf};
use std::time::Duration;

use causeway_pipeline::Registry;
use causeway_testkit::{Kit, Request};
use serde_json::json;

use super::*;
use crate::logs::flush_all;

/// A directory that is removed at the end.
struct LogDirectory(PathBuf);

impl LogDirectory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("causeway-access-log-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for LogDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn registry() -> Registry {
    let mut registry = Registry::default();
    crate::register(&mut registry);
    registry
}

fn routes(config: Value, respond: Value) -> Value {
    let (mut config, mut respond) = (config, respond);
    config["handler"] = "access_log".into();
    respond["handler"] = "static_response".into();
    if let Some(logs) = config["logs"].as_object_mut() {
        logs.insert("default".into(), discarded());
    }
    json!([{ "handle": [config] }, { "handle": [respond] }])
}

/// The log `default`, which would print every record.
fn discarded() -> Value {
    json!({ "writer": { "output": "discard" } })
}

fn kit(config: Value, respond: Value) -> Kit {
    Kit::new(&registry(), &routes(config, respond))
}

fn log(file: &str, include: &str) -> Value {
    json!({ "writer": { "output": "file", "filename": file }, "encoder": { "format": "json" }, "include": [include] })
}

#[track_caller]
fn lines(path: impl AsRef<Path>) -> Vec<Value> {
    flush_all(Duration::from_secs(10));
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

// Caddy 2.11.9: 499 for a client that left before the response began; 0 for a handler that aborted.
#[test]
fn the_status_of_a_request_without_a_response() {
    let directory = LogDirectory::new("none");
    let file = directory.file("a.log");
    for (handler, want) in [
        (json!({ "handler": "reverse_proxy", "upstreams": [{ "dial": "a.test:1" }] }), 499),
        (json!({ "handler": "static_response", "abort": true }), 0),
    ] {
        let config = json!({ "default": "log0", "logs": { "log0": log(&file, "http.log.access.log0") } });
        let mut routes = routes(config, json!({}));
        routes[1]["handle"][0] = handler;
        let mut kit = Kit::new(&registry(), &routes);
        if let Err(pending) = kit.send_pending(&Request::get("/")) {
            pending.cancel(&mut kit);
        }
        let line = lines(&file).pop().expect("a record");
        assert_eq!((&line["status"], &line["level"]), (&json!(want), &json!("info")));
    }
}

// Caddy: a request that is rejected before all routes has a record too.
#[test]
fn a_record_of_a_rejected_request() {
    let directory = LogDirectory::new("rejected");
    let file = directory.file("a.log");
    let config = json!({ "default": "log0", "logs": { "log0": log(&file, "http.log.access.log0") } });
    let mut kit = kit(config, json!({}));
    let method = "A".repeat(33);
    for (request, status) in [(Request::new(&method, "/"), 501), (Request::get("/").field("Host", ".."), 400)] {
        assert_eq!(kit.send(&request).status, status);
        let lines = lines(&file);
        let line = lines.last().expect("a record");
        assert_eq!((&line["msg"], &line["status"]), (&json!("handled request"), &json!(status)));
    }
    assert_eq!(lines(&file).len(), 2);
}

// Caddy: the peer of a Unix socket is `@`, without a port; it is no client's address unless it is a trusted proxy.
#[test]
fn a_record_of_a_unix_socket() {
    let directory = LogDirectory::new("unix");
    let file = directory.file("a.log");
    let config = json!({ "default": "log0", "logs": { "log0": log(&file, "http.log.access.log0") } });
    let mut kit = kit(config, json!({}));
    kit.send(&Request::get("/").over_unix("/run/x.sock"));
    let logged_request = &lines(&file)[0]["request"];
    assert_eq!(
        [&logged_request["remote_ip"], &logged_request["remote_port"], &logged_request["client_ip"]],
        ["@", "", ""]
    );
}

// Caddy's documentation, "Structured logs": the members of an access record; credentials are redacted unless
// log_credentials is on.
#[test]
fn a_record_has_caddys_shape() {
    let directory = LogDirectory::new("shape");
    let file = directory.file("a.log");
    for credentials in [false, true] {
        let config = json!({ "default": "log0", "credentials": credentials, "logs": { "log0": log(&file, "http.log.access.log0") } });
        let respond = json!({ "body": "hello", "headers": { "Set-Cookie": ["s=1"], "X-Two": ["a", "b\"\\"] } });
        let mut kit = kit(config, respond);
        let request = Request::new("POST", "/p?q=1")
            .field("cookie", "c=1")
            .field("x-a", "1")
            .field("X-A", "é\té")
            .content("body");
        assert_eq!(kit.send(&request).text(), "hello");
        let lines = lines(&file);
        let line = lines.last().expect("a record");
        let redacted = |value: &str| if credentials { json!([value]) } else { json!(["REDACTED"]) };
        assert_eq!(
            (&line["level"], &line["logger"], &line["msg"]),
            (&json!("info"), &json!("http.log.access.log0"), &json!("handled request"))
        );
        assert!(line["ts"].as_f64().is_some_and(|ts| ts > 1e9) && line["duration"].as_f64().is_some(), "{line}");
        let logged_request = &line["request"];
        assert_eq!(
            (&logged_request["method"], &logged_request["uri"], &logged_request["proto"]),
            (&json!("POST"), &json!("/p?q=1"), &json!("HTTP/1.1"))
        );
        assert_eq!(
            (&logged_request["remote_ip"], &logged_request["client_ip"]),
            (&logged_request["client_ip"], &logged_request["remote_ip"])
        );
        assert_eq!(
            (&logged_request["headers"]["Cookie"], &logged_request["headers"]["X-A"]),
            (&redacted("c=1"), &json!(["1", "é\té"]))
        );
        assert!(logged_request["headers"].get("Host").is_none(), "{line}");
        assert_eq!((&line["size"], &line["status"], &line["user_id"]), (&json!(5), &json!(200), &json!("")));
        assert_eq!(
            (&line["resp_headers"]["X-Two"], &line["resp_headers"]["Set-Cookie"]),
            (&json!(["a", "b\"\\"]), &redacted("s=1"))
        );
    }
}

// Caddy's documentation of `log`: `hostnames`, `no_hostname`, the level, include and exclude, log_skip. A host whose
// name or wildcard has loggers is not skipped.
#[test]
fn records_go_to_the_logs_that_accept_them() {
    let directory = LogDirectory::new("which");
    let [one, wild, rest, errors] = ["one", "wild", "rest", "errors"].map(|name| directory.file(name));
    let mut loud = log(&errors, "http.log.access");
    loud["level"] = "ERROR".into();
    let mut others = log(&rest, "http.log.access");
    others["exclude"] = json!(["http.log.access.one", "http.log.access.wild"]);
    let config = json!({
        // Caddy: names that differ only in case are merged.
        "names": {
            "a.example": ["one"], "*.b.example": ["wild", "one"], "M.Example": ["wild"], "m.example": ["one", "wild"],
        },
        "skip_hosts": ["skipped.example", "*.*.skipped.example", "z.b.example"],
        "logs": { "one": log(&one, "http.log.access.one"), "wild": log(&wild, "http.log.access.wild"), "rest": others, "errors": loud },
    });
    let mut routes = routes(config, json!({ "status_code": "{http.request.uri.query.s}" }));
    routes
        .as_array_mut()
        .unwrap()
        .insert(1, json!({ "match": [{ "path": ["/skip"] }], "handle": [{ "handler": "vars", "log_skip": true }] }));
    let mut kit = Kit::new(&registry(), &routes);
    for (host, target) in [
        ("a.example", "/1?s=200"),
        ("A.Example:8080", "/2?s=500"),
        ("x.b.example", "/3?s=200"),
        ("c.example", "/4?s=404"),
        ("skipped.example", "/5?s=200"),
        ("a.example", "/skip?s=200"),
        ("m.EXAMPLE", "/6?s=200"),
        ("x.y.skipped.example", "/7?s=200"),
        ("y.skipped.example", "/8?s=200"),
        ("z.b.example", "/9?s=200"),
    ] {
        kit.send(&Request::get(target).without("Host").field("Host", host));
    }
    let targets = |file: &str| -> Vec<String> {
        lines(file)
            .iter()
            .map(|line| line["request"]["uri"].as_str().unwrap().split('?').next().unwrap().to_owned())
            .collect()
    };
    assert_eq!(targets(&one), ["/1", "/2", "/3", "/6", "/9"]);
    assert_eq!(targets(&wild), ["/3", "/6", "/9"]);
    assert_eq!(targets(&rest), ["/4", "/8"]);
    assert_eq!(targets(&errors), ["/2"]);
    assert_eq!(lines(&errors)[0]["level"], "error");
}

// Caddy's documentation of `output file`: a full file is renamed and compressed, and old ones are removed.
#[test]
fn files_are_rolled() {
    let directory = LogDirectory::new("roll");
    let file = directory.file("access.log");
    let mut log = log(&file, "http.log.access");
    log["writer"]["roll_size_mb"] = 1.into();
    log["writer"]["roll_keep"] = 2.into();
    let mut kit = kit(json!({ "logs": { "log": log } }), json!({ "body": "x" }));
    let long = "v".repeat(7000);
    let count = 700;
    for number in 0..count {
        kit.send(&Request::get(&format!("/{number}")).field("X-Long", &long));
        if number % 100 == 99 {
            flush_all(Duration::from_secs(20));
        }
    }
    let last = lines(&file);
    assert!(std::fs::metadata(&file).unwrap().len() <= 1024 * 1024);
    // Another thread compresses and removes rolled files.
    let rolled = loop {
        let names =
            std::fs::read_dir(&directory.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut rolled: Vec<_> = names.filter(|name| name != "access.log").collect();
        rolled.sort();
        if rolled.len() == 2
            && rolled.iter().all(|name| name.starts_with("access-20") && name.ends_with("-size.log.gz"))
        {
            break rolled;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    // The newest rolled file ends where the present one begins.
    let mut text = String::new();
    let newest = std::fs::File::open(directory.0.join(&rolled[1])).unwrap();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(newest), &mut text).unwrap();
    let before: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let number = |line: &Value| -> u32 { line["request"]["uri"].as_str().unwrap()[1..].parse().unwrap() };
    assert_eq!(number(&before) + 1, number(&last[0]));
    assert_eq!(number(last.last().unwrap()), count - 1);
}

// After a file was moved, as by logrotate, or removed, records are written to a new file of that name.
#[test]
fn a_moved_file_is_reopened() {
    let directory = LogDirectory::new("moved");
    let file = directory.file("a.log");
    let mut kit = kit(json!({ "logs": { "log": log(&file, "http.log.access") } }), json!({ "body": "x" }));
    kit.send(&Request::get("/before"));
    assert_eq!(lines(&file).len(), 1);
    std::fs::rename(&file, directory.file("a.log.1")).unwrap();
    kit.send(&Request::get("/after"));
    assert_eq!(lines(&file).len(), 1, "the next record is in a new file");
    std::fs::remove_file(&file).unwrap();
    kit.send(&Request::get("/after"));
    assert_eq!((lines(directory.file("a.log.1")).len(), lines(&file).len()), (1, 1), "no record is lost");
}

/// Returns the lines of one request to a server with one log of this format.
#[track_caller]
fn formatted(name: &str, encoder: Value, append: &[Value], request: &Request) -> String {
    let directory = LogDirectory::new(name);
    let file = directory.file("a.log");
    let log =
        json!({ "writer": { "output": "file", "filename": file }, "encoder": encoder, "include": ["http.log.access"] });
    let mut handlers =
        vec![json!({ "handler": "access_log", "logs": { "l": log, "default": discarded() }, "credentials": true })];
    handlers.extend(append.iter().cloned());
    let answer = json!({ "handler": "static_response", "body": "hello", "headers": {
        "Set-Cookie": ["s=1; Path=/", "t=2; Secure", "bare; x"], "X-Two": ["a", "b"] } });
    handlers.push(answer);
    let routes: Vec<_> = handlers.iter().map(|handler| json!({ "handle": [handler] })).collect();
    // The kit keeps the output open until its lines are written.
    let mut kit = Kit::new(&registry(), &routes.into());
    kit.send(request);
    flush_all(Duration::from_secs(10));
    std::fs::read_to_string(file).unwrap()
}

// Caddy's documentation of `format filter`: each filter, and fields of every depth. Numbers and objects have no text to
// change.
#[test]
fn filters() {
    let hash = "2c624232";
    let actions = |name: &str| {
        json!([
            { "type": "replace", name: "r", "value": "R" }, { "type": "delete", name: "d" }, { "type": "hash", name: "h" },
        ])
    };
    for (field, filter, want) in [
        ("status", json!({ "filter": "delete" }), json!(null)),
        ("status", json!({ "filter": "replace", "value": "x" }), json!("x")),
        ("status", json!({ "filter": "hash" }), json!(200)),
        ("request>headers", json!({ "filter": "replace", "value": "none" }), json!("none")),
        ("request>headers>X-Ip", json!({ "filter": "hash" }), json!(["f7a2ef7d"])),
        ("request>method", json!({ "filter": "regexp", "regexp": "(G)(E)", "value": "$2${1}x" }), json!("EGxT")),
        ("request>method", json!({ "filter": "regexp", "regexp": "P", "value": "-" }), json!("GET")),
        (
            "request>method",
            json!({ "filter": "multi_regexp", "operations": [{ "regexp": "G", "value": "T" }, { "regexp": "T", "value": "_" }] }),
            json!("_E_"),
        ),
        (
            "request>headers>X-Ip",
            json!({ "filter": "ip_mask", "ipv4_cidr": 16, "ipv6_cidr": 32 }),
            json!(["10.1.0.0, [2001:db8::]:80, unknown, 10.1.0.0:9, 10.1.0.0"]),
        ),
        (
            "request>headers>X-Ip",
            json!({ "filter": "ip_mask", "ipv4_cidr": 8 }),
            json!(["10.0.0.0, <nil>, unknown, 10.0.0.0:9, 10.0.0.0"]),
        ),
        (
            "request>uri",
            json!({ "filter": "query", "actions": actions("parameter") }),
            json!(format!("/p?a=%2F+b&h={hash}&r=R&r=R")),
        ),
        (
            "request>headers>Referer",
            json!({ "filter": "query", "actions": actions("parameter") }),
            // Only a URL has a fragment; a target's `#` hides no parameter.
            json!(["/r?x=y%23", "https://a.test/r#f?d=3"]),
        ),
        (
            "request>headers>Cookie",
            json!({ "filter": "cookie", "actions": actions("name") }),
            // Quotes are no part of a value, and stay.
            json!([format!("a=1; r=R; h={hash}; h=\"{hash}\"; q=\"1\"")]),
        ),
        (
            "resp_headers>Set-Cookie",
            json!({ "filter": "set_cookie", "actions": [{ "type": "replace", "name": "s", "value": "R" }, { "type": "delete", "name": "t" }] }),
            json!(["s=R; Path=/", "bare; x"]),
        ),
    ] {
        let request = Request::get("/p?r=1&h=42&d=3&r=2&a=%2f+b&bad=%zz")
            .field("X-Ip", "10.1.2.3, [2001:db8:1::1]:80, unknown, 10.1.2.3:9, 10.1.2.3:")
            .field("Referer", "/r?x=y#&d=3")
            .field("Referer", "https://a.test/r?d=3#f?d=3")
            .field("Cookie", "a=1; r=1; d=2; h=42; h=\"42\"; q=\"1\"");
        let encoder = json!({ "format": "filter", "wrap": { "format": "json" }, "fields": { field: filter } });
        let line = formatted("filters", encoder, &[], &request);
        let line: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let found = field.split('>').fold(&line, |value, key| &value[key]);
        let is_hash = |value: &Value| value.to_string().contains(hash);
        if is_hash(&want) {
            // The hash of `42` is computed here, so that the table shows its place only.
            let digits = sha2::Digest::finalize(<sha2::Sha256 as sha2::Digest>::new_with_prefix("42"));
            let digits: String = digits.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(found.to_string(), want.to_string().replace(hash, &digits), "{field} {filter}");
        } else if filter["filter"] == "hash" && found.is_array() {
            assert_eq!(found[0].as_str().map(str::len), Some(8), "{field}: four bytes in hexadecimal digits");
        } else {
            assert_eq!(*found, want, "{field} {filter}");
        }
        assert_eq!(line["request"]["host"], "localhost", "the other fields stay");
    }
    let rename = json!({ "format": "filter", "wrap": { "format": "json" }, "fields": { "request>uri": { "filter": "rename", "name": "target" } } });
    let line: Value = serde_json::from_str(&formatted("rename", rename, &[], &Request::get("/x"))).unwrap();
    assert_eq!((&line["request"]["target"], &line["request"]["uri"]), (&json!("/x"), &Value::Null));
}

// Caddy's documentation of `format append`, of the options of `json`, and of `log_append`.
#[test]
fn appended_fields_and_options() {
    let encoder = json!({
        "format": "append",
        "fields": { "zone": "eu", "number": 7, "rate": 0.5, "on": true, "brace": "a {b}" },
        "wrap": {
            "format": "filter",
            "fields": { "zone": { "filter": "replace", "value": "inner" } },
            "wrap": {
                "format": "json", "time_key": "time", "level_key": "", "message_key": "message", "name_key": "name",
                "time_format": "2006", "duration_format": "string", "line_ending": "\r\n",
            },
        },
    });
    let append = [
        json!({ "handler": "vars", "v": "variable" }),
        json!({ "handler": "log_append", "key": "port", "value": "{http.request.local.port}" }),
        json!({ "handler": "log_append", "key": "var", "value": "v" }),
        json!({ "handler": "log_append", "key": "constant", "value": "plain" }),
        json!({ "handler": "log_append", "key": "early", "value": "{http.request.method}", "early": true }),
    ];
    let line = formatted("append", encoder, &append, &Request::get("/"));
    assert!(line.ends_with("}\r\n"), "{line:?}");
    let line: Value = serde_json::from_str(&line).unwrap();
    assert!(line["time"].as_str().is_some_and(|year| year.len() == 4) && line["port"].is_u64(), "{line}");
    assert!(line["duration"].as_str().is_some_and(|span| span.ends_with('s')), "{line}");
    for (key, want) in [
        ("level", json!(null)),
        ("message", json!("handled request")),
        ("name", json!("http.log.access")),
        ("zone", json!("inner")),
        ("number", json!(7)),
        ("rate", json!(0.5)),
        ("on", json!(true)),
        ("brace", json!("a {b}")),
        ("var", json!("variable")),
        ("constant", json!("plain")),
        ("early", json!("GET")),
    ] {
        assert_eq!(line[key], want, "{key}");
    }
}

// Caddy: a record has the request's UUID if a placeholder has used it, before the fields of `log_append`.
#[test]
fn uuid_of_a_request() {
    let append = json!({ "handler": "log_append", "key": "last", "value": "x" });
    let header = json!({ "handler": "headers", "response": { "set": { "X-Id": ["{http.request.uuid}"] } } });
    let line = formatted("uuid", json!({ "format": "json" }), &[append.clone(), header], &Request::get("/"));
    let record: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(record["uuid"], record["resp_headers"]["X-Id"][0], "{line}");
    assert!(line.contains("},\"uuid\":\"") && line.ends_with("\",\"last\":\"x\"}\n"), "{line}");
    let line = formatted("no-uuid", json!({ "format": "json" }), &[append], &Request::get("/"));
    assert!(!line.contains("uuid"), "{line}");
}

// Caddy: the value of `log_append` has the type of the placeholder or of the variable; a placeholder without a value is
// null.
#[test]
fn types_of_appended_fields() {
    let append = |key: &str, value: &str| json!({ "handler": "log_append", "key": key, "value": value });
    let map = json!({
        "handler": "map", "source": "{http.request.method}", "destinations": ["{mapped}", "{none}"],
        "mappings": [{ "input": "GET", "outputs": [7, null] }],
    });
    let handlers = [
        json!({ "handler": "vars", "n": 5, "f": -1.5, "t": true, "s": "5" }),
        map,
        append("n", "{http.vars.n}"),
        append("n_by_name", "n"),
        append("f", "{http.vars.f}"),
        append("t", "{http.vars.t}"),
        append("s", "{http.vars.s}"),
        append("unset", "{nope}"),
        append("unset_variable", "{http.vars.nope}"),
        append("mapped", "{mapped}"),
        append("none", "{none}"),
        append("port", "{http.request.port}"),
        append("text_of_port", "{http.request.port}/"),
        append("trusted", "{http.vars.trusted_proxy}"),
        append("status", "{http.error.status_code}"),
        append("field", "{http.request.header.X-None}"),
        append("unset_span", "{http.reverse_proxy.duration}"),
        append("unset_span_ms", "{http.reverse_proxy.upstream.duration_ms}"),
        append("unix", "{time.now.unix}"),
        append("span", "{http.request.duration}"),
        append("span_ms", "{http.request.duration_ms}"),
        json!({ "handler": "log_append", "key": "early_span", "value": "{http.request.duration}", "early": true }),
    ];
    let request = Request::get("/").field("Host", "localhost:8080");
    let line: Value =
        serde_json::from_str(&formatted("types", json!({ "format": "json" }), &handlers, &request)).unwrap();
    for (key, want) in [
        ("n", json!(5)),
        ("n_by_name", json!(5)),
        ("f", json!(-1.5)),
        ("t", json!(true)),
        ("s", json!("5")),
        ("unset", json!(null)),
        ("unset_variable", json!(null)),
        ("mapped", json!("7")),
        ("none", json!(null)),
        ("port", json!(8080)),
        ("text_of_port", json!("{http.request.port}/")),
        ("trusted", json!(false)),
        ("status", json!(null)),
        ("field", json!("")),
        ("unset_span", json!(null)),
        ("unset_span_ms", json!(null)),
    ] {
        assert_eq!(line.get(key), Some(&want), "{key}: {line}");
    }
    // A handler's value of the server's own variables has its own type.
    let handlers = [
        json!({ "handler": "vars", "client_ip": 5, "trusted_proxy": "5" }),
        append("client", "{http.vars.client_ip}"),
        append("trusted", "{http.vars.trusted_proxy}"),
    ];
    let set: Value =
        serde_json::from_str(&formatted("own-types", json!({ "format": "json" }), &handlers, &request)).unwrap();
    assert_eq!((&set["client"], &set["trusted"]), (&json!(5), &json!("5")), "{set}");
    assert!(line["unix"].is_string() && line["span"] == line["duration"], "{line}");
    assert!(line["span_ms"].is_number() && line["early_span"].is_number(), "{line}");
}

// caddyserver/transform-encoder: the values of fields, alternatives, elements of lists, and the text for an absent
// value.
#[test]
fn transformed_lines() {
    for (template, options, want) in [
        ("{common_log}", json!({ "time_format": "2006" }), r#"IP - - [YEAR] "GET /p HTTP/1.1" 200 5"#),
        ("{combined_log}", json!({ "time_format": "2006" }), r#"IP - - [YEAR] "GET /p HTTP/1.1" 200 5 "-" "a \"b""#),
        ("{nope:request>method} {nope>x} {resp_headers>X-Two>[1]} {", json!({ "placeholder": "?" }), "GET ? b {"),
        (
            "{resp_headers>X-Two}{request>headers>User-Agent>[0]}",
            json!({ "unescape_strings": true }),
            r#"["a","b"]a "b"#,
        ),
        ("{level} {logger} {msg}", json!({ "level_format": "upper" }), "INFO http.log.access handled request"),
    ] {
        let mut encoder = options;
        encoder["format"] = "transform".into();
        encoder["template"] = template.into();
        let line = formatted("transform", encoder, &[], &Request::get("/p").field("User-Agent", "a \"b"));
        let ip = line.split(' ').next().unwrap_or_default();
        assert_eq!(line, format!("{want}\n").replace("YEAR", "2030").replace("IP", ip), "{template}");
    }
}

// Caddy's documentation: `log_name` selects loggers, `log_level` is the record's level; without an entry in `include`
// no log takes it.
#[test]
fn names_and_levels_of_a_request() {
    let directory = LogDirectory::new("names");
    let [one, two] = ["one", "two"].map(|name| directory.file(name));
    let base = directory.file("base");
    let mut logs = json!({ "one": log(&one, "http.log.access.one"), "two": log(&two, "http.log.access.two"), "default": discarded() });
    logs["two"]["level"] = "WARN".into();
    logs["base"] = log(&base, "http.log.access");
    let handler = json!({ "handler": "access_log", "default": "one", "logs": logs });
    let vars = |path: &str, names: Value, level: Value| {
        let mut vars = json!({ "handler": "vars", "access_logger_names": names });
        if level.is_string() {
            vars["log_level"] = level;
        }
        json!({ "match": [{ "path": [path] }], "handle": [vars] })
    };
    let routes = json!([
        { "handle": [handler] },
        vars("/both", json!(["one", "two"]), json!("error")),
        vars("/two", json!(["two"]), json!("warn")),
        vars("/quiet", json!(["two"]), json!(null)),
        vars("/none", json!(null), json!(null)),
        vars("/base", json!([""]), json!(null)),
        // As in Caddy, placeholders in names are not expanded, and a text selects nothing: a client does not choose the
        // log of its request.
        vars("/chosen", json!(["{http.request.uri.query.log}"]), json!("error")),
        vars("/text", json!("{http.request.uri.query.log}"), json!(null)),
        { "handle": [{ "handler": "static_response" }] },
    ]);
    let mut kit = Kit::new(&registry(), &routes);
    for path in ["/", "/both", "/two", "/quiet", "/none", "/chosen?log=two", "/text?log=two", "/base"] {
        kit.send(&Request::get(path));
    }
    let seen = |file: &str| -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        lines(file).iter().map(|line| (text(&line["request"]["uri"]), text(&line["level"]))).collect()
    };
    let pair = |path: &str, level: &str| (path.to_owned(), level.to_owned());
    assert_eq!(
        seen(&one),
        [pair("/", "info"), pair("/both", "error"), pair("/none", "info"), pair("/text?log=two", "info")]
    );
    assert_eq!(seen(&two), [pair("/both", "error"), pair("/two", "warn")]);
    // In Caddy an empty name is the base logger.
    let loggers: Vec<_> = lines(&base).iter().map(|line| line["logger"].as_str().unwrap().to_owned()).collect();
    assert_eq!(loggers.last().map(String::as_str), Some("http.log.access"));
}

// Two logs write to one file: with equal options they share it, with others they are refused.
#[test]
fn logs_of_one_file() {
    let directory = LogDirectory::new("shared");
    let file = directory.file("a.log");
    let mut logs = json!({ "one": log(&file, "http.log.access"), "two": log(&file, "http.log.access") });
    let mut kit = kit(json!({ "logs": logs }), json!({}));
    (0..100).for_each(|_| drop(kit.send(&Request::get("/"))));
    assert_eq!(lines(&file).len(), 200);
    // Another spelling of the path is no other option.
    let name = directory.0.file_name().unwrap().to_str().unwrap();
    logs["two"]["writer"]["filename"] = directory.file(&format!("../{name}/a.log")).into();
    let mut kit = Kit::new(&registry(), &routes(json!({ "logs": logs }), json!({})));
    kit.send(&Request::get("/"));
    assert_eq!(lines(&file).len(), 202);
    logs["two"]["writer"]["filename"] = file.as_str().into();
    logs["two"]["writer"]["roll_keep"] = 3.into();
    // Two spellings of a directory that is made with the first log.
    let mut unmade = logs.clone();
    for (name, path) in [("one", "new/a.log"), ("two", "link/new/a.log")] {
        unmade[name]["writer"]["filename"] = directory.file(path).into();
    }
    std::os::unix::fs::symlink(".", directory.file("link")).unwrap();
    let error = Kit::build(&registry(), &routes(json!({ "logs": unmade }), json!({})), &json!([])).err();
    assert!(error.expect("a mistake").to_string().contains("the options that the log 'one' has for it"));
    let routes = routes(json!({ "logs": logs }), json!({}));
    let error = Kit::build(&registry(), &routes, &json!([])).err().expect("a mistake").to_string();
    assert_eq!(
        error,
        format!(
            "routes[0].handle[0].logs.two.writer: found 'other options for {file}', expected the options that the log 'one' has for it"
        )
    );
}

#[test]
fn mistakes() {
    let directory = LogDirectory::new("mistakes");
    std::fs::create_dir_all(&directory.0).unwrap();
    std::fs::write(directory.file("file"), "").unwrap();
    let below = directory.file("file/a.log");
    for (log, want) in [
        (
            json!({ "writer": { "output": "syslog" } }),
            "writer: log writer module 'syslog' is not supported (docs/refused.md)".to_owned(),
        ),
        (
            json!({ "writer": { "output": 5 } }),
            "writer: found 'no output', expected an object with an 'output' key that names one".into(),
        ),
        (
            json!({ "encoder": { "time_format": "unix" } }),
            "encoder: found 'no format', expected an object with a 'format' key that names one".into(),
        ),
        (
            json!({ "writer": { "output": "stdout", "mode": "1" } }),
            "writer: found 'mode', expected no options of this output".into(),
        ),
        (
            json!({ "writer": { "output": "file", "filename": "a", "mode": "9" } }),
            "writer.mode: found '9', expected permissions in octal digits, such as 0640".into(),
        ),
        (
            json!({ "writer": { "output": "file", "filename": "a", "mode": "+640" } }),
            "writer.mode: found '+640', expected permissions in octal digits, such as 0640".into(),
        ),
        (
            json!({ "writer": { "output": "file", "filename": below } }),
            format!("writer: found '{below}: File exists (os error 17)', expected a file that can be written"),
        ),
        (
            json!({ "writer": { "output": "file", "filename": "a", "roll_at": ["24:00"] } }),
            "writer: found '24:00', expected times of day, such as 00:00".into(),
        ),
        (
            json!({ "writer": { "output": "net", "address": "tcp/localhost" } }),
            "writer.address: found 'tcp/localhost', expected host:port, udp/host:port, unix//path or unixgram//path"
                .into(),
        ),
        (
            json!({ "encoder": { "format": "xml" } }),
            "encoder: log encoder module 'xml' is not supported (docs/refused.md)".into(),
        ),
        (
            json!({ "encoder": { "format": "filter", "fields": { "a": { "filter": "blur" } } } }),
            "encoder.fields.a: log filter module 'blur' is not supported (docs/refused.md)".into(),
        ),
        (
            json!({ "encoder": { "format": "filter", "fields": { "a": { "filter": "hash", "value": "x" } } } }),
            "encoder.fields.a: found 'value', expected options of the filter 'hash'".into(),
        ),
        (
            json!({ "encoder": { "format": "filter", "fields": { "a": { "filter": "multi_regexp", "operations": [{}] } } } }),
            "encoder.fields.a: found '', expected a regular expression in `regexp`".into(),
        ),
        (
            json!({ "encoder": { "format": "filter", "fields": { "a": { "filter": "ip_mask", "ipv4_cidr": 33 } } } }),
            "encoder.fields.a.ipv4_cidr: found '33', expected bits from 0 to 32".into(),
        ),
        (
            json!({ "encoder": { "format": "json", "duration_format": "years" } }),
            "encoder.duration_format: found 'years', expected s, ms, ns or string".into(),
        ),
        (
            json!({ "encoder": { "format": "transform", "template": "{request>}" } }),
            "encoder.template: found '{request>}', expected the name of a field, such as {request>remote_ip}".into(),
        ),
        (json!({ "queue_full": "panic" }), "queue_full: found 'panic', expected drop or wait".into()),
        (
            json!({ "include": ["a"], "exclude": ["b"] }),
            "include: found 'a', expected a name within a name of 'exclude', or one that contains it".into(),
        ),
        (json!({ "level": "LOUD" }), "level: found 'LOUD', expected DEBUG, INFO, WARN, ERROR, PANIC or FATAL".into()),
    ] {
        let error = Kit::build(&registry(), &routes(json!({ "logs": { "l": log } }), json!({})), &json!([]))
            .err()
            .expect("a mistake");
        assert_eq!(error.to_string(), format!("routes[0].handle[0].logs.l.{want}"));
    }
}
