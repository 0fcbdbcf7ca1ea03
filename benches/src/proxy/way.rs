//! What a proxy is asked, and the upstream that it passes it on to.

use std::path::Path;

use anyhow::Result;

use crate::http2;
use crate::load;
use crate::peers::{self, Body, LIMIT, Launch, Want};
use crate::request;
use crate::server::{Answered, Cores, Server, free_port};
use crate::workshop::Workshop;

/// Octets of an upload.
pub const UPLOAD_BYTES: usize = 1 << 20;
/// Connections of small requests over HTTP/1.1.
const CONNECTIONS: usize = 64;
/// Connections of uploads: what is on its way is that many times [`UPLOAD_BYTES`].
const UPLOADS: usize = 8;
/// Connections over HTTP/2, and streams on each.
const CONNECTIONS_HTTP2: usize = 10;
const STREAMS: usize = 10;

/// How clients ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Front {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 by prior knowledge.
    Http2,
}

/// How the upstream is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Back {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 by prior knowledge.
    Http2,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Hello, with the least fields.
    Minimal,
    /// Hello, with a browser's fields.
    Browser,
    /// The page, with a browser's fields.
    Page,
    /// Hello for an upload.
    Upload,
}

/// The way of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// To the proxy.
    pub front: Front,
    /// From it.
    pub back: Back,
    /// What.
    pub asked: Asked,
}

/// One table.
pub struct Scenario {
    /// The table's name.
    pub name: &'static str,
    /// The table's title.
    pub title: &'static str,
    /// What is measured.
    pub way: Way,
}

/// The tables, in their order.
pub const SCENARIOS: &[Scenario] = &[
    scenario("h1-minimal", "Minimal GET passed on, 13 octets", Front::Http1, Back::Http1, Asked::Minimal),
    scenario(
        "h1-browser",
        "Browser-like GET passed on, 12 fields, 13 octets",
        Front::Http1,
        Back::Http1,
        Asked::Browser,
    ),
    scenario("h1-page", "Browser-like GET passed on, a page of 48 KiB", Front::Http1, Back::Http1, Asked::Page),
    scenario("h1-upload", "Upload of 1 MiB passed on", Front::Http1, Back::Http1, Asked::Upload),
    scenario("h2-h1", "HTTP/2 to HTTP/1.1: browser-like GET, 13 octets", Front::Http2, Back::Http1, Asked::Browser),
    scenario("h1-h2c", "HTTP/1.1 to HTTP/2: browser-like GET, 13 octets", Front::Http1, Back::Http2, Asked::Browser),
];

const fn scenario(name: &'static str, title: &'static str, front: Front, back: Back, asked: Asked) -> Scenario {
    Scenario { name, title, way: Way { front, back, asked } }
}

impl Way {
    /// Whether h2load is needed.
    pub fn over_http2(self) -> bool {
        self.front == Front::Http2 || self.back == Back::Http2
    }

    /// Connections of clients.
    pub fn connections(self) -> usize {
        match (self.front, self.asked) {
            (Front::Http2, _) => CONNECTIONS_HTTP2,
            (Front::Http1, Asked::Upload) => UPLOADS,
            (Front::Http1, _) => CONNECTIONS,
        }
    }

    /// Streams on each.
    pub fn streams(self) -> usize {
        if self.front == Front::Http2 { STREAMS } else { 1 }
    }

    /// Requests open at once.
    pub fn open(self) -> usize {
        self.connections() * self.streams()
    }

    /// What is answered.
    pub fn body(self) -> Body {
        if self.asked == Asked::Page { Body::Page } else { Body::Hello }
    }

    /// One request over HTTP/1.1.
    pub fn request(self) -> String {
        match self.asked {
            Asked::Minimal => request::minimal("/"),
            Asked::Browser | Asked::Page => request::browser("/"),
            Asked::Upload => request::upload("/", UPLOAD_BYTES),
        }
    }

    /// How it is asked, in words.
    pub fn asked(self) -> String {
        match self.front {
            Front::Http1 => format!("{} connections in a closed loop", self.connections()),
            Front::Http2 => format!("`h2load` with {} connections × {} streams", self.connections(), self.streams()),
        }
    }
}

/// Starts what answers behind the proxies, on the core of the load.
pub fn start_origin(shop: &Workshop, way: Way, h2load: &Path) -> Result<Server> {
    let recipe = match way.back {
        Back::Http1 => peers::recipe(LIMIT)?,
        Back::Http2 => http2::servers::recipe_of(LIMIT)?,
    };
    // Not by `peers::obtain`, which keeps programs by name: both are called `limit`.
    let tool = (recipe.obtain)(shop)?;
    let port = free_port()?;
    let want = Want { port, workers: 1, body: way.body(), ..Want::default() };
    let mut launch = (recipe.launch)(shop, &tool, &want)?;
    match (way.back, way.asked) {
        (Back::Http1, Asked::Page) => launch.command.push("page".into()),
        (Back::Http1, Asked::Upload) => launch.command.push("upload".into()),
        _ => {}
    }
    Server::start_asked(shop, recipe, launch, port, Cores::One(1), &|address, launch: &Launch| match way.back {
        Back::Http1 => answered(address, way),
        Back::Http2 => {
            let once = asking(Way { front: Front::Http2, ..way }, h2load, 1, 1);
            once.said(address.port(), &launch.path, 1, way.body().text().len()).map(|_| Answered::Right)
        }
    })
}

/// What the server at `address` answers over HTTP/1.1.
pub fn answered(address: std::net::SocketAddr, way: Way) -> Result<Answered> {
    let response = load::ask_once(address, &way.request())?;
    let right = response.ends_with(format!("\r\n\r\n{}", way.body().text()).as_bytes());
    let shown = &response[..response.len().min(300)];
    Ok(if right { Answered::Right } else { Answered::Otherwise(String::from_utf8_lossy(shown).into_owned()) })
}

/// How h2load asks.
pub fn asking(way: Way, h2load: &Path, connections: usize, streams: usize) -> http2::load::Asking {
    debug_assert!(way.front == Front::Http2, "h2load speaks HTTP/2");
    http2::load::Asking {
        program: h2load.to_owned(),
        cores: Cores::One(1),
        under: Vec::new(),
        connections,
        streams,
        tls: false,
    }
}
