use serde_json::{Value, json};

use super::{json as adapt, read, server};

/// The JSON of a `log` block in a site for every host.
#[track_caller]
fn logger(block: &str) -> Value {
    let config = adapt(&format!(":80 {{\n\tlog {{\n{block}\n\t}}\n}}\n"));
    let mut log = config["logging"]["logs"]["log0"].clone();
    assert_eq!(log.as_object_mut().unwrap().remove("include").unwrap(), json!(["http.log.access.log0"]), "{config}");
    log
}

#[track_caller]
fn check(cases: &[(&str, Value)]) {
    for (block, want) in cases {
        assert_eq!(logger(block), *want, "{block}");
    }
}

// A logger with options gets a name and a configuration of its own, and its entries are excluded from the default
// logger. One without options only enables logging for its site.
#[test]
fn names() {
    let config = adapt("a.test {\n\tlog\n}\n");
    assert_eq!(config.get("logging"), None);
    assert_eq!(config["apps"]["http"]["servers"]["srv0"]["logs"], json!({ "logger_names": { "a.test": [""] } }));

    let config = adapt(
        "a.test {\n\tlog {\n\t\tlevel INFO\n\t}\n}\nb.test {\n\tlog own {\n\t\toutput stdout\n\t}\n\tlog other\n}\n",
    );
    assert_eq!(
        config["logging"]["logs"],
        json!({
            "default": { "exclude": ["http.log.access.log0", "http.log.access.own"] },
            "log0": { "level": "INFO", "include": ["http.log.access.log0"] },
            "own": { "writer": { "output": "stdout" }, "include": ["http.log.access.own"] },
        })
    );
    assert_eq!(
        config["apps"]["http"]["servers"]["srv0"]["logs"],
        json!({ "logger_names": { "a.test": ["log0"], "b.test": ["own", "other"] } })
    );
}

// If one site of a server is logged, the hosts of its other sites are skipped. A port other than 80 and 443 is part of
// the name.
#[test]
fn hosts() {
    for (sites, want) in [
        (":80 {\n\tlog x\n}\n", json!({ "default_logger_name": "x" })),
        (":80 {\n\tlog x\n}\nhttp://b.test {\n}\n", json!({ "default_logger_name": "x", "skip_hosts": ["b.test"] })),
        (
            "http://b.test {\n\tlog x\n}\n:80 {\n}\n",
            json!({ "logger_names": { "b.test": ["x"] }, "skip_unmapped_hosts": true }),
        ),
        (
            "http://b.test:81 {\n\tlog x\n}\nhttp://c.test:81, http://[::1]:81 {\n}\n",
            json!({ "logger_names": { "b.test": ["x"] }, "skip_hosts": ["[::1]:81", "c.test:81"] }),
        ),
        (
            ":80 {\n\tlog x {\n\t\thostnames b.test c.test\n\t}\n\tlog y {\n\t\tno_hostname\n\t}\n}\n",
            json!({ "logger_names": { "b.test": ["x"], "c.test": ["x"] } }),
        ),
    ] {
        assert_eq!(server(sites)["logs"], want, "{sites}");
    }
    assert_eq!(
        server("{\n\tservers {\n\t\ttrace\n\t}\n}\n:80 {\n\tlog x\n}\n")["logs"],
        json!({ "default_logger_name": "x", "trace": true })
    );
    assert_eq!(server(":80 {\n}\n").get("logs"), None);
}

// The global option names its loggers, with `default` as the default name. `debug` sets the level of loggers without
// one.
#[test]
fn the_global_option() {
    for (options, want) in [
        ("log {\n\tlevel ERROR\n}", json!({ "default": { "level": "ERROR" } })),
        (
            "debug\nlog {\n\toutput discard\n}",
            json!({ "default": { "writer": { "output": "discard" }, "level": "DEBUG" } }),
        ),
        (
            "debug\nlog a {\n\tinclude http admin\n\texclude admin.x\n\tlevel WARN\n}",
            json!({
                "default": { "level": "DEBUG", "exclude": ["admin", "http"] },
                "a": { "include": ["http", "admin"], "exclude": ["admin.x"], "level": "WARN" },
            }),
        ),
        ("log\nlog a {\n\tinclude\n\toutput stderr\n}", json!({ "a": { "writer": { "output": "stderr" } } })),
    ] {
        let config = adapt(&format!("{{\n{options}\n}}\n:80\n"));
        assert_eq!(config["logging"]["logs"], want, "{options}");
    }
}

#[test]
fn writers() {
    let file = |options: Value| {
        let mut file = json!({ "output": "file", "filename": "/x.log" });
        file.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        json!({ "writer": file })
    };
    check(&[
        ("output stdout", json!({ "writer": { "output": "stdout" } })),
        ("output file /x.log", file(json!({}))),
        (
            "output file /x.log {\nmode 640\ndir_mode inherit\nroll_size 10MB\nroll_keep 3\nroll_keep_for 36h\nroll_local_time\n}",
            file(json!({
                "mode": "0640", "dir_mode": "inherit", "roll_size_mb": 10, "roll_keep": 3, "roll_keep_days": 2,
                "roll_local_time": true,
            })),
        ),
        (
            "output file /x.log {\nroll_disabled\nroll_uncompressed\nroll_compression ZSTD\nroll_interval 12h\nroll_minutes 0,30 45\nroll_at 00:00\n}",
            file(json!({
                "roll": false, "roll_gzip": false, "roll_compression": "zstd", "roll_interval": 43_200_000_000_000_u64,
                "roll_minutes": [0, 30, 45], "roll_at": ["00:00"],
            })),
        ),
        ("output file /x.log {\nmode 0\nroll_keep 3\nroll_keep 0\n}", file(json!({}))),
        (
            "output net 127.0.0.1:9 {\ndial_timeout 5s\nsoft_start\n}",
            json!({ "writer": { "output": "net", "address": "127.0.0.1:9", "dial_timeout": 5_000_000_000_u64, "soft_start": true } }),
        ),
        (
            "sampling {\ninterval 2s\nfirst 10\nthereafter 0\n}",
            json!({ "sampling": { "interval": 2_000_000_000_u64, "first": 10 } }),
        ),
    ]);
}

// Several `regexp` filters of one field become one filter.
#[test]
fn formats() {
    let encoder = |encoder: Value| json!({ "encoder": encoder });
    check(&[
        ("format console", encoder(json!({ "format": "console" }))),
        ("format transform", encoder(json!({ "format": "transform", "template": "{common_log}" }))),
        (
            "format transform \"{ts} {status}\" x {\nplaceholder ?\nunescape_strings\ntime_format wall\ntime_local\n}",
            encoder(json!({
                "format": "transform", "template": "{ts} {status} x", "placeholder": "?", "unescape_strings": true,
                "time_format": "wall", "time_local": true,
            })),
        ),
        ("queue_full wait", json!({ "queue_full": "wait" })),
        (
            "format json {\ntime_local\ntime_format wall\nlevel_key \"\"\nlevel_format \"\"\n}",
            encoder(json!({ "format": "json", "time_local": true, "time_format": "wall", "level_key": "" })),
        ),
        (
            "format filter {\nwrap console\nfields {\na delete\n}\nb replace x\nc rename d\ne hash\n}",
            encoder(json!({
                "format": "filter", "wrap": { "format": "console" },
                "fields": {
                    "a": { "filter": "delete" }, "b": { "filter": "replace", "value": "x" },
                    "c": { "filter": "rename", "name": "d" }, "e": { "filter": "hash" },
                },
            })),
        ),
        (
            "format filter {\na ip_mask 16 {\nipv6 32\n}\nb query {\nreplace k v\ndelete l\n}\nc cookie {\nhash s\n}\nd query\n}",
            encoder(json!({
                "format": "filter",
                "fields": {
                    "a": { "filter": "ip_mask", "ipv4_cidr": 16, "ipv6_cidr": 32 },
                    "b": { "filter": "query", "actions": [
                        { "type": "replace", "parameter": "k", "value": "v" }, { "type": "delete", "parameter": "l" },
                    ] },
                    "c": { "filter": "cookie", "actions": [{ "type": "hash", "name": "s" }] },
                    "d": { "filter": "query", "actions": null },
                },
            })),
        ),
        (
            "format filter {\na regexp x y\nb regexp u\na regexp z\n}",
            encoder(json!({
                "format": "filter",
                "fields": {
                    "a": { "filter": "multi_regexp", "operations": [{ "regexp": "x", "value": "y" }, { "regexp": "z" }] },
                    "b": { "filter": "regexp", "regexp": "u" },
                },
            })),
        ),
        (
            "format append {\nwrap json\nfields {\nn 1\n}\nt \"1\"\n}",
            encoder(json!({ "format": "append", "wrap": { "format": "json" }, "fields": { "n": 1, "t": "1" } })),
        ),
        ("format journald {\nwrap json\n}", encoder(json!({ "format": "journald", "wrap": { "format": "json" } }))),
    ]);
}

#[test]
fn mistakes() {
    for (block, want) in [
        (
            "output",
            "3:1: parsing caddyfile tokens for 'log': wrong argument count or unexpected line ending after 'output'",
        ),
        (
            "output sink",
            "3:8: parsing caddyfile tokens for 'log': getting module named 'caddy.logging.writers.sink': module not registered; expected discard, file, net, stderr, stdout",
        ),
        (
            "output file x {\nmode rw\n}",
            "4:6: parsing caddyfile tokens for 'log': parsing mode: 'rw' is no mode; expected one such as 0640",
        ),
        (
            "output file x {\nroll_keep_for -1h\n}",
            "4:15: parsing caddyfile tokens for 'log': negative roll_keep_for duration: -1h",
        ),
        (
            "queue_full never",
            "3:12: parsing caddyfile tokens for 'log': unrecognized queue_full policy 'never': expected drop or wait",
        ),
        (
            "level A\nlevel B",
            "4:1: parsing caddyfile tokens for 'log': 'level' subdirective specified more than once in the same log block",
        ),
        ("include x", "3:1: parsing caddyfile tokens for 'log': include is not allowed in the log directive"),
        (
            "format filter {\na delete\na hash\n}",
            "5:1: parsing caddyfile tokens for 'log': field a already has a filter; multiple non-regexp filters per field are not supported",
        ),
        (
            "format filter {\na regexp x\na hash\n}",
            "5:1: parsing caddyfile tokens for 'log': cannot mix regexp filters with other filter types for field a",
        ),
        (
            "format json {\ncolour x\n}",
            "4:1: parsing caddyfile tokens for 'log': unrecognized subdirective colour; expected caller_key, duration_format, level_format, level_key, line_ending, message_key, name_key, stacktrace_key, time_format, time_key, time_local",
        ),
        (
            "sampling {\nfirst few\n}",
            "4:7: parsing caddyfile tokens for 'log': failed to parse first: 'few' is no number; expected one such as 100",
        ),
    ] {
        let error = read(&format!(":80 {{\nlog {{\n{block}\n}}\n}}\n")).unwrap_err().to_string();
        assert_eq!(error, format!("Caddyfile:{want}"), "{block}");
    }
    let error = read("{\n\tlog a\n\tlog a\n}\n:80\n").unwrap_err().to_string();
    assert_eq!(error, "Caddyfile:3:6: parsing caddyfile tokens for 'log': duplicate global log option for: a");
    let error = read(":80 {\n\thandle {\n\t\tlog\n\t}\n}\n").unwrap_err().to_string();
    assert!(
        error.starts_with("Caddyfile:3:3: parsing caddyfile tokens for 'handle': directive 'log' is not an ordered"),
        "{error}"
    );
}
