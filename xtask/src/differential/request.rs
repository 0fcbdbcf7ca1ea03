//! Generates requests as bytes from the shared vocabulary, including malformed ones that clients and attackers send.

use super::grammar::Drawn;
use super::random::Random;
use super::words::{FIELDS, HOSTS, ODD_PATHS, PATHS, QUERIES};

/// A request. [`Request::bytes`] writes it without validation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Index of the port that it goes to.
    pub(crate) port: usize,
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) version: &'static str,
    /// Lines without their line break, in order; they include `Host` and the fields that frame the content.
    pub(crate) fields: Vec<String>,
    /// The bytes after the head, as sent.
    pub(crate) content: Vec<u8>,
}

impl Request {
    pub(crate) fn get(port: usize, host: &str) -> Self {
        let fields = vec![format!("Host: {host}")];
        let text = |text: &str| text.to_owned();
        Self { port, method: text("GET"), target: text("/"), version: "HTTP/1.1", fields, content: Vec::new() }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut text = format!("{} {} {}\r\n", self.method, self.target, self.version);
        for field in &self.fields {
            text += field;
            text += "\r\n";
        }
        text += "\r\n";
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(&self.content);
        bytes
    }

    /// Returns the values of a field, in order. `name` is compared case-insensitively.
    pub(crate) fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.fields.iter().filter_map(move |line| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.values(name).next().is_some()
    }
}

const METHODS: &[(&str, usize)] = &[
    ("GET", 60),
    ("HEAD", 8),
    ("POST", 10),
    ("PUT", 4),
    ("DELETE", 3),
    ("OPTIONS", 3),
    ("PATCH", 2),
    ("PROPFIND", 1),
    ("get", 1),
    ("M-SEARCH", 1),
];

/// Generates a request for a Caddyfile.
pub(crate) fn draw(random: &mut Random, drawn: &Drawn) -> Request {
    let Drawn { paths, hosts, ports, .. } = drawn;
    let method = METHODS[random.weighted(METHODS.iter().map(|(_, weight)| *weight))].0.to_owned();
    let port = ports[random.below(ports.len())];
    let host = host(random, port, hosts);
    let target = target(random, paths, &host);
    let mut request = Request {
        port,
        method,
        target,
        version: "HTTP/1.1",
        fields: vec![format!("Host: {host}")],
        content: Vec::new(),
    };
    match random.below(100) {
        0..4 => {
            request.version = "HTTP/1.0";
            if random.chance(30) {
                request.fields.push("Connection: keep-alive".to_owned());
            }
            if random.chance(20) {
                request.fields.remove(0);
            }
        }
        4 => request.version = random.pick(&["HTTP/1.2", "HTTP/2.0", "http/1.1", "HTTP/0.9", "HTTP/11"]),
        _ => {}
    }
    let count = [0, 0, 1, 1, 2, 3, 5][random.below(7)];
    for _ in 0..count {
        field(random, &mut request);
    }
    if matches!(&*request.method, "POST" | "PUT" | "PATCH") || random.chance(3) {
        content(random, &mut request);
    }
    if random.chance(3) {
        spoil(random, &mut request);
    }
    request
}

fn host(random: &mut Random, port: usize, hosts: &[String]) -> String {
    let name = match random.below(100) {
        0..55 if !hosts.is_empty() => hosts[random.below(hosts.len())].clone(),
        0..85 => (random.pick(HOSTS)).to_owned(),
        85..97 => (random.pick(&[
            "A.Test",
            "x.a.test",
            "c.test",
            "a.test.",
            "[::1]",
            "deep.sub.a.test",
            "xn--bcher-kva.test",
            "..",
            "a_b.test",
        ]))
        .to_owned(),
        _ => {
            return (random.pick(&[
                "",
                "a.test:",
                "a.test:99999",
                "a.test:x",
                "a test",
                "a.test/x",
                "user@a.test",
                "[::1",
                "a.test, b.test",
                "a%2etest",
            ]))
            .to_owned();
        }
    };
    match random.below(10) {
        0..7 => format!("{name}:<p{port}>"),
        7..9 => name,
        _ => format!("{name}:80"),
    }
}

fn target(random: &mut Random, paths: &[String], host: &str) -> String {
    let path = match random.below(100) {
        0..40 if !paths.is_empty() => {
            let pattern = random.below(paths.len());
            instance(random, &paths[pattern])
        }
        0..80 => (random.pick(PATHS)).to_owned(),
        80..95 => (random.pick(ODD_PATHS)).to_owned(),
        95..98 => format!("{}{}", random.pick(PATHS).trim_end_matches('/'), random.pick(ODD_PATHS)),
        _ => {
            return match random.below(8) {
                0 => "*".to_owned(),
                1 => "?a=1".to_owned(),
                2 => "a.txt".to_owned(),
                3 => format!("http://{host}"),
                4 => format!("http://{host}?a=1"),
                5 => format!("http://other.test{}", random.pick(PATHS)),
                6 => format!("{}#fragment", random.pick(PATHS)),
                _ => format!("http://{host}{}", random.pick(PATHS)),
            };
        }
    };
    if random.chance(35) { path + random.pick(QUERIES) } else { path }
}

/// Returns a path that the pattern matches, or nearly matches.
fn instance(random: &mut Random, pattern: &str) -> String {
    let mut path = String::new();
    for letter in pattern.chars() {
        match letter {
            '*' => path += random.pick(&["", "x", "x/y", "b.html", "a.txt", "%20", "2024"]),
            ' ' => path += "%20",
            '{' | '}' | '"' | '^' | '$' | '(' | ')' | '[' | ']' | '|' | '\\' | '<' | '>' | '`' => {}
            letter if letter.is_ascii_graphic() => path.push(letter),
            _ => {}
        }
    }
    if random.chance(10) {
        path = path.to_ascii_uppercase();
    }
    if random.chance(10) {
        path.push('/');
    }
    if path.starts_with('/') { path } else { format!("/{path}") }
}

fn field(random: &mut Random, request: &mut Request) {
    let (name, values) = FIELDS[random.below(FIELDS.len())];
    let value = random.pick(values);
    let line = match random.below(40) {
        0 => format!("{name}:{value}"),
        1 => format!("{}:   {value}\t", name.to_ascii_uppercase()),
        _ => format!("{name}: {value}"),
    };
    if random.chance(8) {
        let again = random.pick(values);
        request.fields.push(format!("{name}: {again}"));
    }
    request.fields.push(line);
    // A range needs a file, and a condition the entity tag of a file. Such combinations would be rare without this.
    if matches!(name, "Range" | "If-Range" | "If-None-Match" | "If-Modified-Since") && random.chance(60) {
        request.method = random.pick(&["GET", "GET", "GET", "HEAD"]).to_owned();
        request.target = random.pick(&["/a.txt", "/a.txt", "/large.txt", "/x.js", "/empty.txt", "/b/c.txt"]).to_owned();
        if name == "If-Range" && !request.has("Range") {
            request.fields.push("Range: bytes=1-3".to_owned());
        }
    }
}

fn content(random: &mut Random, request: &mut Request) {
    let body: Vec<u8> = match random.below(6) {
        0 => Vec::new(),
        1 => b"a=1&b=two".to_vec(),
        2 => b"{\"json\": [1, 2]}".to_vec(),
        3 => b"line one\nline two\n".to_vec(),
        4 => (0..random.below(3000)).map(|at| b'a' + (at % 26) as u8).collect(),
        _ => b"hello".to_vec(),
    };
    if random.chance(10) {
        request.fields.push("Expect: 100-continue".to_owned());
    }
    if random.chance(60) || request.version == "HTTP/1.0" {
        request.fields.push(format!("Content-Length: {}", body.len()));
        request.content = body;
        return;
    }
    request.fields.push("Transfer-Encoding: chunked".to_owned());
    let size = 1 + random.below(600);
    for piece in body.chunks(size) {
        let extension = if random.chance(10) { ";a=b" } else { "" };
        request.content.extend_from_slice(format!("{:x}{extension}\r\n", piece.len()).as_bytes());
        request.content.extend_from_slice(piece);
        request.content.extend_from_slice(b"\r\n");
    }
    request.content.extend_from_slice(b"0\r\n");
    if random.chance(10) {
        request.fields.push("Trailer: X-T".to_owned());
        request.content.extend_from_slice(b"X-T: late\r\n");
    }
    request.content.extend_from_slice(b"\r\n");
}

/// Breaks a rule of HTTP/1 that both servers must enforce.
fn spoil(random: &mut Random, request: &mut Request) {
    match random.below(10) {
        0 => request.fields.push("Host: other.test".to_owned()),
        1 => request.fields.push("X-A : 1".to_owned()),
        2 => request.fields.push("Bad Name: 1".to_owned()),
        3 => request.fields.push(" folded".to_owned()),
        4 => request.fields.push("no colon".to_owned()),
        5 => request.fields.push("Content-Length: -1".to_owned()),
        6 => request.fields.push("Transfer-Encoding: gzip".to_owned()),
        7 => request.fields.push("X-A: a\u{1}b".to_owned()),
        8 => request.fields.retain(|line| !line.starts_with("Host")),
        _ => request.fields.push(": empty".to_owned()),
    }
}
