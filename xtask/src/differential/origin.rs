//! The upstream that both servers proxy to. Its response contains the received request, so that comparing two responses
//! compares two forwarded requests.
//!
//! The field `X-Origin` requests another response by a comma-separated list: `status=404`, `chunked`, `close`, `early`
//! (sends a 103 first), `untyped` (no Content-Type), `fields` (more fields, some repeated and one named by Connection),
//! `cut` (ends in the middle of its content) or `silent` (closes without a response).

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use anyhow::Context as _;

/// First line of a body that repeats a request.
pub(crate) const ECHO: &str = "#origin\n";
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Starts the origin on a free port and returns the port. Its threads end with the process.
pub(crate) fn start() -> anyhow::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot bind the origin's port")?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A broken connection concerns only the server that opened it; the comparison shows the effect.
            std::thread::spawn(move || drop(serve(stream)));
        }
    });
    Ok(port)
}

/// Serves one connection until either side closes it.
fn serve(stream: TcpStream) -> anyhow::Result<()> {
    stream.set_read_timeout(Some(IDLE_MAX))?;
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    while let Some(request) = read(&mut reader, &mut writer)? {
        if answer(&mut writer, &request)? == After::Close {
            break;
        }
    }
    Ok(())
}

struct ForwardedRequest {
    line: String,
    /// Names in lower case, in order of arrival.
    fields: Vec<(String, String)>,
    body: Vec<u8>,
    trailers: Vec<(String, String)>,
}

fn read(reader: &mut BufReader<TcpStream>, writer: &mut TcpStream) -> anyhow::Result<Option<ForwardedRequest>> {
    let Some(line) = read_line(reader)? else { return Ok(None) };
    let fields = read_fields(reader)?;
    let value = |name: &str| fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str());
    if value("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
        writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let mut body = Vec::new();
    let mut trailers = Vec::new();
    if value("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
        loop {
            let size = read_line(reader)?.context("the request ended before a chunk")?;
            let size = u64::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16)?;
            if size == 0 {
                trailers = read_fields(reader)?;
                break;
            }
            reader.take(size).read_to_end(&mut body)?;
            read_line(reader)?;
        }
    } else if let Some(length) = value("content-length") {
        reader.take(length.parse()?).read_to_end(&mut body)?;
    }
    Ok(Some(ForwardedRequest { line, fields, body, trailers }))
}

fn read_line(reader: &mut BufReader<TcpStream>) -> anyhow::Result<Option<String>> {
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line)?;
    Ok((!line.is_empty()).then(|| String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned()))
}

fn read_fields(reader: &mut BufReader<TcpStream>) -> anyhow::Result<Vec<(String, String)>> {
    let mut fields = Vec::new();
    while let Some(line) = read_line(reader)?.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').context("a field line without a colon")?;
        fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    Ok(fields)
}

#[derive(PartialEq, Eq)]
enum After {
    Keep,
    Close,
}

/// Responds as the request's `X-Origin` fields require.
fn answer(writer: &mut TcpStream, request: &ForwardedRequest) -> anyhow::Result<After> {
    let wishes = request.fields.iter().filter(|(name, _)| name == "x-origin").map(|(_, value)| value.as_str());
    let wishes: Vec<&str> = wishes.flat_map(|value| value.split(',')).map(str::trim).collect();
    let asks = |wish: &str| wishes.contains(&wish);
    if asks("silent") {
        return Ok(After::Close);
    }
    let status = wishes.iter().find_map(|wish| wish.strip_prefix("status=")).unwrap_or("200");
    // A response to HEAD and these statuses have no content, so they cannot repeat the request.
    let bodiless = matches!(status, "204" | "304") || request.line.starts_with("HEAD ");

    // Forwarded requests may differ in length on purpose. A constant body hides that where only its length is visible.
    let body = if request.line.starts_with("HEAD ") {
        b"the length of HEAD".to_vec()
    } else if asks("cut") {
        vec![b'x'; 100]
    } else {
        echo(request)
    };
    let mut head = String::new();
    if asks("early") {
        head += "HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n";
    }
    let reason = match status {
        "200" => "OK",
        "204" => "No Content",
        "302" => "Found",
        "304" => "Not Modified",
        "401" => "Unauthorized",
        "404" => "Not Found",
        _ => "Internal Server Error",
    };
    write!(head, "HTTP/1.1 {status} {reason}\r\nX-From: origin\r\n")?;
    if !asks("untyped") {
        head += "Content-Type: text/plain\r\n";
    }
    if asks("fields") {
        head +=
            "Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nX-Many: one\r\nX-Many: two\r\nX-Hop: hop\r\nConnection: x-hop\r\n";
        head += "ETag: \"origin\"\r\nLocation: /from/origin\r\nServer: origin\r\nVia: 1.0 before\r\nCache-Control: no-store\r\n";
    }
    let chunked = asks("chunked") && status != "204";
    if chunked {
        head += "Transfer-Encoding: chunked\r\n";
    } else if asks("close") {
        head += "Connection: close\r\n";
    } else if status != "204" {
        write!(head, "Content-Length: {}\r\n", body.len())?;
    }
    writer.write_all(format!("{head}\r\n").as_bytes())?;
    let body = if bodiless { &[] } else { body.as_slice() };
    let sent = if asks("cut") { &body[..body.len() / 2] } else { body };
    if !chunked {
        writer.write_all(sent)?;
    } else if !bodiless {
        for piece in sent.chunks(100) {
            writer.write_all(format!("{:x}\r\n", piece.len()).as_bytes())?;
            writer.write_all(piece)?;
            writer.write_all(b"\r\n")?;
        }
        if !asks("cut") {
            writer.write_all(b"0\r\n\r\n")?;
        }
    }
    Ok(if asks("cut") || asks("close") { After::Close } else { After::Keep })
}

/// Formats a request: its line, the fields sorted by name, and the content.
fn echo(request: &ForwardedRequest) -> Vec<u8> {
    let mut fields = request.fields.clone();
    fields.sort_by(|one, other| one.0.cmp(&other.0));
    let mut text = format!("{ECHO}{}\n", request.line);
    for (name, value) in &fields {
        text += &format!("{name}: {value}\n");
    }
    for (name, value) in &request.trailers {
        text += &format!("trailer {name}: {value}\n");
    }
    text.push('\n');
    let mut bytes = text.into_bytes();
    bytes.extend_from_slice(&request.body);
    bytes
}
