//! Every site of `docs/patterns.md` answers the requests of its table.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;

use serde_json::{Value, json};

use crate::client::send;
use crate::process::{Directory, ServerProcess};

/// The files of `/srv`, as the page describes them.
const FILES: &[(&str, &str)] = &[
    ("srv/index.html", "home"),
    ("srv/app.js", "script"),
    ("srv/404.html", "not here"),
    ("srv/maintenance.html", "back soon"),
    ("srv/docs/index.html", "docs"),
];

/// A row of a table: a request and its response.
struct Row<'a> {
    text: &'a str,
    method: &'a str,
    scheme: &'a str,
    host: &'a str,
    target: String,
    field: Option<&'a str>,
    status: u16,
    /// Parts of the response: the body, or a field as `Name: value`.
    parts: Vec<&'a str>,
}

impl<'a> Row<'a> {
    /// Parses a row such as ``| `GET https://a.com/` with `Name: value` | 200 `body` `Name: value` |``.
    fn parse(text: &'a str) -> Self {
        let (request, response) = text.trim_matches('|').split_once(" | ").unwrap();
        let mut quoted = request.split('`').skip(1).step_by(2);
        let (method, url) = quoted.next().unwrap().split_once(' ').unwrap();
        let (scheme, rest) = url.split_once("://").unwrap();
        let (host, path) = rest.split_once('/').unwrap();
        let status = response.split_ascii_whitespace().next().unwrap().parse().unwrap();
        let parts = response.split('`').skip(1).step_by(2).collect();
        Self { text, method, scheme, host, target: format!("/{path}"), field: quoted.next(), status, parts }
    }
}

/// Starts an upstream that responds to each request with its name, the method and the target. It lives as long as the
/// process.
fn upstream(name: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, name) = (listener.local_addr().unwrap().to_string(), name.to_owned());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let line = lines.next().unwrap_or_default();
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            let body = format!("{name} {}", line.trim_end_matches(" HTTP/1.1"));
            let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
            // A client that has gone away is no fault.
            let _ = stream.write_all((head + &body).as_bytes());
        }
    });
    address
}

/// Replaces directories and upstreams of the page by those of the test.
fn localize(value: &mut Value, directory: &str, upstreams: &mut BTreeMap<String, String>) {
    match value {
        Value::String(text) if text == "/srv" => *text = directory.to_owned(),
        Value::Array(list) => list.iter_mut().for_each(|value| localize(value, directory, upstreams)),
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(dial) if key == "dial" && dial.starts_with("localhost:") => {
                        let known = upstreams.entry(dial.clone()).or_insert_with_key(|name| upstream(name));
                        dial.clone_from(known);
                    }
                    value => localize(value, directory, upstreams),
                }
            }
        }
        _ => {}
    }
}

/// Serves a Caddyfile without TLS, on ports that the system chooses. Returns the ports by the scheme of their server.
fn serve(directory: &Directory, caddyfile: &str) -> (ServerProcess, BTreeMap<&'static str, u16>) {
    directory.write("Caddyfile", caddyfile);
    let output = directory.output(&["adapt"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut config: Value = serde_json::from_slice(&output.stdout).unwrap();
    localize(&mut config, directory.path("srv").to_str().unwrap(), &mut BTreeMap::new());
    let mut schemes = Vec::new();
    for server in config["apps"]["http"]["servers"].as_object_mut().unwrap().values_mut() {
        schemes.push(if server["listen"] == json!([":443"]) { "https" } else { "http" });
        server["listen"] = json!(["127.0.0.1:0"]);
        server["automatic_https"] = json!({ "disable": true });
        server.as_object_mut().unwrap().remove("tls_connection_policies");
    }
    config["apps"].as_object_mut().unwrap().remove("tls");
    directory.write("config.json", config.to_string());
    let server = directory.start(&["run", "--config", "config.json"]);
    let ports = schemes.into_iter().zip(server.ports.iter().copied()).collect();
    (server, ports)
}

#[test]
fn each_site_answers_its_table() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/patterns.md")).unwrap();
    let mut sites = 0;
    for section in page.split("\n## ").skip(1) {
        let title = section.lines().next().unwrap();
        let (_, rest) = section.split_once("```caddyfile\n").unwrap();
        let (caddyfile, rest) = rest.split_once("\n```").unwrap();
        let directory = Directory::with(FILES);
        let (_server, ports) = serve(&directory, &format!("{caddyfile}\n"));
        let rows: Vec<_> = rest.lines().filter(|line| line.starts_with("| `")).map(Row::parse).collect();
        assert!(!rows.is_empty(), "{title}: no table");
        for row in rows {
            let host = format!("Host: {}", row.host);
            let fields: Vec<_> = [&*host].into_iter().chain(row.field).collect();
            let response = send(ports[row.scheme], &format!("{} {}", row.method, row.target), &fields);
            assert_eq!(response.status, row.status, "{title}: {}", row.text);
            for part in row.parts {
                match part.split_once(": ") {
                    Some((name, value)) => {
                        assert_eq!(response.field(name).as_deref(), Some(value), "{title}: {}", row.text);
                    }
                    None => assert_eq!(response.body.trim_end(), part, "{title}: {}", row.text),
                }
            }
        }
        sites += 1;
    }
    assert!(sites >= 15, "only {sites} sites found");
}
