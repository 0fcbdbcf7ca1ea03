//! The requests to a proxy, and its upstream.

use std::path::Path;

use anyhow::Result;

use crate::http2;
use crate::load;
use crate::peers::{self, LIMIT, Launch, Want};
use crate::request;
use crate::server::{Answered, Cores, PeerServer, free_port};
use crate::workshop::Workshop;

/// Size of an upload or a download in bytes.
const BODY_BYTES: usize = 1 << 20;
/// Size of a long one: so long that its begin and its end hardly count, and a body of 1 GiB costs as much per byte.
const LONG_BYTES: usize = 16 << 20;
/// Number of connections for small requests over HTTP/1.1.
const CONNECTIONS: usize = 64;
/// Number of connections for bodies of [`BODY_BYTES`]; those of [`LONG_BYTES`] have one.
const BODIES: usize = 8;
/// Number of connections over HTTP/2, and streams on each.
const CONNECTIONS_HTTP2: usize = 10;
const STREAMS: usize = 10;

/// The protocol of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Front {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 with prior knowledge.
    Http2,
}

/// The protocol to the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Back {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 with prior knowledge.
    Http2,
}

/// The kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestShape {
    /// A short response, with a minimal set of fields.
    Minimal,
    /// A short response, with a browser's fields.
    Browser,
    /// The page, with a browser's fields.
    Page,
    /// An upload of that many bytes, with a short response.
    Upload(usize),
    /// A response of that many bytes.
    Download(usize),
}

/// The protocols and the kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyPath {
    /// The protocol to the proxy.
    pub front: Front,
    /// The protocol from the proxy to the upstream.
    pub back: Back,
    /// The kind of request.
    pub asked: RequestShape,
}

/// The parameters of a table.
pub struct Scenario {
    /// The table's name.
    pub name: &'static str,
    /// The table's title.
    pub title: &'static str,
    /// The protocols and the kind of request.
    pub way: ProxyPath,
}

/// The tables, in order.
pub const SCENARIOS: &[Scenario] = &[
    scenario("h1-minimal", "Minimal GET passed on, 13 bytes", Front::Http1, Back::Http1, RequestShape::Minimal),
    scenario(
        "h1-browser",
        "Browser-like GET passed on, 12 fields, 13 bytes",
        Front::Http1,
        Back::Http1,
        RequestShape::Browser,
    ),
    scenario("h1-page", "Browser-like GET passed on, a page of 48 KiB", Front::Http1, Back::Http1, RequestShape::Page),
    bodies("h1-upload", "Upload of 1 MiB passed on", RequestShape::Upload(BODY_BYTES)),
    bodies("h1-download", "Download of 1 MiB passed on", RequestShape::Download(BODY_BYTES)),
    bodies("h1-upload-long", "Upload of 16 MiB passed on", RequestShape::Upload(LONG_BYTES)),
    bodies("h1-download-long", "Download of 16 MiB passed on", RequestShape::Download(LONG_BYTES)),
    scenario(
        "h2-h1",
        "HTTP/2 to HTTP/1.1: browser-like GET, 13 bytes",
        Front::Http2,
        Back::Http1,
        RequestShape::Browser,
    ),
    scenario(
        "h1-h2c",
        "HTTP/1.1 to HTTP/2: browser-like GET, 13 bytes",
        Front::Http1,
        Back::Http2,
        RequestShape::Browser,
    ),
];

const fn scenario(name: &'static str, title: &'static str, front: Front, back: Back, asked: RequestShape) -> Scenario {
    Scenario { name, title, way: ProxyPath { front, back, asked } }
}

const fn bodies(name: &'static str, title: &'static str, asked: RequestShape) -> Scenario {
    scenario(name, title, Front::Http1, Back::Http1, asked)
}

impl ProxyPath {
    /// Whether h2load is needed.
    pub fn over_http2(self) -> bool {
        self.front == Front::Http2 || self.back == Back::Http2
    }

    /// Returns the number of client connections.
    pub fn connections(self) -> usize {
        match (self.front, self.asked) {
            (Front::Http2, _) => CONNECTIONS_HTTP2,
            (Front::Http1, RequestShape::Upload(LONG_BYTES) | RequestShape::Download(LONG_BYTES)) => 1,
            (Front::Http1, RequestShape::Upload(_) | RequestShape::Download(_)) => BODIES,
            (Front::Http1, _) => CONNECTIONS,
        }
    }

    /// Returns the number of streams per connection.
    pub fn streams(self) -> usize {
        if self.front == Front::Http2 { STREAMS } else { 1 }
    }

    /// Returns the number of concurrent requests.
    pub fn open(self) -> usize {
        self.connections() * self.streams()
    }

    /// Returns the body of responses.
    pub fn body(self) -> String {
        match self.asked {
            RequestShape::Minimal | RequestShape::Browser | RequestShape::Upload(_) => answer::BODY.to_owned(),
            RequestShape::Page => answer::page(),
            RequestShape::Download(bytes) => answer::text(bytes),
        }
    }

    /// Returns a request over HTTP/1.1.
    pub fn request(self) -> String {
        match self.asked {
            RequestShape::Minimal | RequestShape::Download(_) => request::minimal("/"),
            RequestShape::Browser | RequestShape::Page => request::browser("/"),
            RequestShape::Upload(bytes) => request::upload("/", bytes),
        }
    }

    /// Describes the load in words.
    pub fn asked(self) -> String {
        match self.front {
            Front::Http1 => format!("{} connections in a closed loop", self.connections()),
            Front::Http2 => format!("`h2load` with {} connections × {} streams", self.connections(), self.streams()),
        }
    }
}

/// Starts the upstream, on the load's core.
pub fn start_origin(shop: &Workshop, way: ProxyPath, h2load: &Path) -> Result<PeerServer> {
    let recipe = match way.back {
        Back::Http1 => peers::recipe(LIMIT)?,
        Back::Http2 => http2::servers::recipe_of(LIMIT)?,
    };
    // Not `peers::obtain`, which caches programs by name: both are named `limit`.
    let tool = (recipe.obtain)(shop)?;
    let port = free_port()?;
    let want = Want { port, workers: 1, ..Want::default() };
    let mut launch = (recipe.launch)(shop, &tool, &want)?;
    match (way.back, way.asked) {
        (Back::Http1, RequestShape::Page) => launch.command.push("page".into()),
        (Back::Http1, RequestShape::Upload(_)) => launch.command.push("upload".into()),
        (Back::Http1, RequestShape::Download(bytes)) => launch.command.push(bytes.to_string().into()),
        _ => {}
    }
    PeerServer::start_asked(shop, recipe, launch, port, Cores::One(1), &|address, launch: &Launch| match way.back {
        Back::Http1 => answered(address, way),
        Back::Http2 => {
            let once = asking(ProxyPath { front: Front::Http2, ..way }, h2load, 1, 1);
            once.said(address.port(), &launch.path, 1, way.body().len()).map(|_| Answered::Right)
        }
    })
}

/// Requests the server at `address` over HTTP/1.1 and checks its response.
pub fn answered(address: std::net::SocketAddr, way: ProxyPath) -> Result<Answered> {
    let response = load::ask_once(address, &way.request())?;
    let right = response.ends_with(format!("\r\n\r\n{}", way.body()).as_bytes());
    let shown = &response[..response.len().min(300)];
    Ok(if right { Answered::Right } else { Answered::Otherwise(String::from_utf8_lossy(shown).into_owned()) })
}

/// Returns the parameters of h2load.
pub fn asking(way: ProxyPath, h2load: &Path, connections: usize, streams: usize) -> http2::load::H2loadRun {
    debug_assert!(way.front == Front::Http2, "h2load speaks HTTP/2");
    http2::load::H2loadRun {
        program: h2load.to_owned(),
        cores: Cores::One(1),
        under: Vec::new(),
        connections,
        streams,
        tls: false,
    }
}
