//! `stop`, `reload`, `upgrade` and `status`, and the client with which commands call a server's admin API.
//!
//! It uses a plain socket instead of an HTTP client. Each request is HTTP/1.0 on a connection of its own, so the
//! response ends with the connection, and the peer cannot choose a framing to be parsed.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixSocketAddr, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use causeway_config::plan::AdminAddress;
use causeway_pipeline::{ListeningSocket, Registry, UnixAddress};
use clap::Args;
use serde_json::Value;

use super::output;
use super::source::{self, ConfigFlags};

/// Admin API address when neither the environment nor a configuration sets one; Caddy's default.
const DEFAULT_ADDRESS: &str = "localhost:2019";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for `status`: the server answers without other work.
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause before a command is sent again to the process that takes a server's place.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// How often it is sent again at most: a server that stops without an upgrade has status 503 too.
const RETRIES_MAX: u32 = 10;
/// The port of [`DEFAULT_ADDRESS`].
const DEFAULT_PORT: u16 = 2019;
/// Largest response that is read. A profile's report may hold many stacks.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

#[derive(Args)]
pub(crate) struct StopCommand {
    /// Configuration that sets the address of the admin API
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Language of the configuration: `caddyfile`, `json` or `nginx`; default: by file name
    #[arg(short, long, value_name = "NAME")]
    adapter: Option<String>,
    /// Address of the admin API; overrides the configuration, CADDY_ADMIN and the default localhost:2019
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
}

#[derive(Args)]
pub(crate) struct Reload {
    #[command(flatten)]
    config: ConfigFlags,
    /// Address of the admin API; overrides the configuration, CADDY_ADMIN and the default localhost:2019
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
    /// Load the configuration even if it is unchanged
    #[arg(short, long)]
    force: bool,
}

#[derive(Args)]
pub(crate) struct StatusCommand {
    /// Address of the admin API; overrides CADDY_ADMIN and the default localhost:2019
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
}

#[derive(Args)]
pub(crate) struct UpgradeCommand {
    /// Program to run instead of the server's own file; only if the admin API is on a Unix socket
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Configuration that sets the address of the admin API
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Language of the configuration: `caddyfile`, `json` or `nginx`; default: by file name
    #[arg(short, long, value_name = "NAME")]
    adapter: Option<String>,
    /// Address of the admin API; overrides the configuration, CADDY_ADMIN and the default localhost:2019
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
}

impl UpgradeCommand {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let config = configured(self.address.as_deref(), self.config, self.adapter)?;
        let address = address(self.address.as_deref(), &config, &Registry::default())?;
        let binary = match self.binary {
            // The server may have another working directory.
            Some(path) => Some(std::path::absolute(&path).with_context(|| format!("--binary {}", path.display()))?),
            None => None,
        };
        let body = serde_json::json!({ "binary": binary }).to_string();
        let fields = [("Content-Type", "application/json")];
        let response = AdminEndpoint::of(&address).command("POST /causeway/upgrade", &fields, body.as_bytes())?;
        // A server that stops does not serve on, nor does one that another process has replaced. (One that is busy
        // does.)
        let serves = if matches!(response.status, 409 | 503) { "" } else { " continues to serve" };
        response.error_for_status().map_err(|message| anyhow!("the server on {address}{serves}: {message}"))?;
        let response: Value = serde_json::from_str(&response.body).unwrap_or_default();
        output::print(&format!("Process {} serves now; the former one ends with its last request", response["pid"]))
    }
}

/// Returns the configuration that sets the admin API's address; null if a flag does, or there is none.
pub(super) fn configured(
    address: Option<&str>,
    config: Option<PathBuf>,
    adapter: Option<String>,
) -> anyhow::Result<Value> {
    match (address, config) {
        (None, Some(config)) => {
            let flags = ConfigFlags { config: Some(config), adapter, envfile: Vec::new() };
            Ok(flags.read()?.adapt()?.json)
        }
        _ => Ok(Value::Null),
    }
}

impl StatusCommand {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let address = address(self.address.as_deref(), &Value::Null, &Registry::default())?;
        let endpoint = AdminEndpoint { read_timeout: Some(STATUS_TIMEOUT), ..AdminEndpoint::of(&address) };
        let response = endpoint.request("GET /causeway/status", &[], b"")?;
        response
            .error_for_status()
            .map_err(|message| anyhow!("the server on {address} does not report its status: {message}"))?;
        output::print(response.body.trim_end())
    }
}

impl StopCommand {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let config = configured(self.address.as_deref(), self.config, self.adapter)?;
        let address = address(self.address.as_deref(), &config, &Registry::default())?;
        let response = AdminEndpoint::of(&address).command("POST /stop", &[], b"")?;
        response.error_for_status().map_err(|message| anyhow!("the server on {address} does not stop: {message}"))
    }
}

impl Reload {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        // Adapt locally, so that mistakes are reported with the line in the file. The server receives JSON.
        let source = self.config.read()?;
        source.print_notes();
        let adapted = source.adapt()?;
        source::warn_before_load(&source.document, &adapted);
        // The server has resolved the placeholders of its address with these variables too.
        let registry = source::registry(&source.environment);
        let address = address(self.address.as_deref(), &adapted.json, &registry)?;
        let file = source.file.as_deref().map(|file| file.display().to_string());
        let mut fields = vec![("Content-Type", "application/json")];
        if let Some(file) = &file {
            fields.push(("Caddy-Config-Source-File", file));
            fields.push(("Caddy-Config-Source-Adapter", source.document.language.adapter()));
        }
        if self.force {
            fields.push(("Cache-Control", "must-revalidate"));
        }
        let response =
            AdminEndpoint::of(&address).command("POST /load", &fields, adapted.json.to_string().as_bytes())?;
        response.error_for_status().map_err(|message| match source.validate(&adapted) {
            // The local check names the line in the file; the server saw only the JSON.
            Err(error) => error,
            Ok(_) => anyhow!("{}: the server on {address} refuses it: {message}", source.name()),
        })
    }
}

/// Returns the admin API's address in the absence of a flag and a configuration: `CADDY_ADMIN`, or else localhost:2019.
/// As in Caddy, `CADDY_ADMIN` is a variable of the process, not of `--envfile`.
pub(crate) fn default_address(registry: &Registry) -> anyhow::Result<AdminAddress> {
    match std::env::var("CADDY_ADMIN") {
        Ok(address) if !address.is_empty() => Ok(AdminAddress::parse_with(&address, "CADDY_ADMIN", registry)?),
        _ => Ok(AdminAddress::parse(DEFAULT_ADDRESS, "the admin API")?),
    }
}

/// Returns the admin API's address: of a flag, a configuration, `CADDY_ADMIN`, or else the default. `registry` resolves
/// placeholders.
pub(super) fn address(flag: Option<&str>, config: &Value, registry: &Registry) -> anyhow::Result<AdminAddress> {
    match (flag, config["admin"]["listen"].as_str()) {
        (Some(flag), _) => Ok(AdminAddress::parse_with(flag, "--address", registry)?),
        (None, Some(listen)) if !listen.is_empty() => Ok(AdminAddress::parse_with(listen, "admin.listen", registry)?),
        _ => default_address(registry),
    }
}

/// An admin API's response.
pub(super) struct ApiResponse {
    pub(super) status: u16,
    pub(super) body: String,
}

impl ApiResponse {
    /// Returns the error message of a response with status 400 or above.
    pub(super) fn error_for_status(&self) -> Result<(), String> {
        if self.status < 400 {
            return Ok(());
        }
        let value: Option<Value> = serde_json::from_str(&self.body).ok();
        let error = value.as_ref().and_then(|value| value["error"].as_str()).unwrap_or(self.body.trim());
        // A configured list takes the place of the default one, which has the address of the API.
        let is_unlisted = ["host not allowed", "client is not allowed"].iter().any(|start| error.starts_with(start));
        let hint = if is_unlisted { "; `origins` of the server's `admin` option must list it" } else { "" };
        Err(format!("{error} (HTTP {}){hint}", self.status))
    }
}

/// The address of an admin API, with the fields that it checks.
pub(super) struct AdminEndpoint {
    /// The address as the operator wrote it.
    pub(super) name: String,
    socket: AdminSocket,
    host: String,
    /// Value of the `Origin` field, for servers with `enforce_origin`. None over a Unix socket, as of Caddy's commands.
    origin: Option<String>,
    /// Read timeout; `None` waits without limit.
    read_timeout: Option<Duration>,
}

/// Where an admin API listens.
#[derive(PartialEq)]
enum AdminSocket {
    Tcp(SocketAddr),
    Unix(UnixAddress),
    /// A socket that the server has inherited; its configuration does not contain the address.
    Inherited,
}

impl AdminSocket {
    /// Connects. The result is a [`TcpStream`] also for a Unix socket: the type only needs a stream socket.
    fn connect(&self) -> std::io::Result<TcpStream> {
        let stream = match self {
            Self::Tcp(address) => return TcpStream::connect_timeout(address, CONNECT_TIMEOUT),
            Self::Unix(address) => match address.abstract_name() {
                Some(name) => UnixStream::connect_addr(&UnixSocketAddr::from_abstract_name(name)?)?,
                None => UnixStream::connect(&*address.path)?,
            },
            Self::Inherited => {
                let message = "expected the address to which the service manager has bound this socket";
                return Err(std::io::Error::new(ErrorKind::InvalidInput, message));
            }
        };
        Ok(TcpStream::from(OwnedFd::from(stream)))
    }
}

impl AdminEndpoint {
    pub(super) fn of(address: &AdminAddress) -> Self {
        let listen = match &address.listen {
            ListeningSocket::Bound(listen) => listen,
            socket => {
                let socket = match socket {
                    ListeningSocket::Descriptor(_) => AdminSocket::Inherited,
                    ListeningSocket::Unix(address) => AdminSocket::Unix(address.clone()),
                    ListeningSocket::Bound(_) => unreachable!("the arm before"),
                };
                // The server checks no host there, but HTTP/1.1 has one.
                return Self {
                    name: address.to_string(),
                    socket,
                    host: "127.0.0.1".into(),
                    origin: None,
                    read_timeout: None,
                };
            }
        };
        let port = listen.port;
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let socket = listen.host.and_then(|_| listen.candidates().next()).unwrap_or(any);
        // A server that listens on every address accepts any host. Its trusted origin is the configured listen address.
        let host = if address.host.is_empty() { format!("localhost:{port}") } else { address.to_string() };
        Self {
            name: address.to_string(),
            socket: AdminSocket::Tcp(socket),
            host,
            origin: Some(format!("http://{address}")),
            read_timeout: None,
        }
    }

    /// Parses an address, also of another machine and with a host name. The default port is 2019.
    pub(super) fn parse(text: &str, flag: &str, read_timeout: Duration) -> anyhow::Result<Self> {
        let read_timeout = Some(read_timeout);
        if let Ok(address) = AdminAddress::parse(text, flag)
            && address.listen.address().and_then(|listen| listen.host).is_none_or(|ip| ip.is_loopback())
        {
            return Ok(Self { read_timeout, ..Self::of(&address) });
        }
        let has_port = text.rsplit_once(':').is_some_and(|(host, port)| {
            port.parse::<u16>().is_ok() && (!host.contains(':') || (host.starts_with('[') && host.ends_with(']')))
        });
        let host = if has_port { text.to_owned() } else { format!("{text}:{DEFAULT_PORT}") };
        let found = host.to_socket_addrs().map_err(|error| {
            anyhow!("{flag}: found '{text}', expected the address of an admin API as in localhost:2019: {error}")
        })?;
        let socket = found
            .min_by_key(SocketAddr::is_ipv6)
            .with_context(|| format!("{flag}: '{text}' resolves to no address"))?;
        // For a remote server the configured listen address is unknown.
        let origin = socket.ip().is_loopback().then(|| format!("http://{host}"));
        Ok(Self { name: text.to_owned(), socket: AdminSocket::Tcp(socket), host, origin, read_timeout })
    }

    /// Returns whether both have one address, also if they were given by different names.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.socket == other.socket
    }

    /// As [`request`](Self::request), for requests that change the server. During an upgrade the former process has
    /// status 503 for them and has not executed them; it closes its listener, so the new process accepts the next
    /// connection.
    fn command(&self, line: &str, fields: &[(&str, &str)], body: &[u8]) -> anyhow::Result<ApiResponse> {
        let mut response = self.request(line, fields, body)?;
        for _ in 0..RETRIES_MAX {
            if response.status != 503 {
                break;
            }
            std::thread::sleep(RETRY_PAUSE);
            // Without another process the server was stopping.
            let Ok(stream) = self.connect() else { break };
            response = self.send(stream, line, fields, body)?;
        }
        Ok(response)
    }

    /// Sends one request on a connection of its own and returns the response.
    pub(super) fn request(&self, line: &str, fields: &[(&str, &str)], body: &[u8]) -> anyhow::Result<ApiResponse> {
        self.send(self.connect()?, line, fields, body)
    }

    fn connect(&self) -> anyhow::Result<TcpStream> {
        let name = &self.name;
        self.socket.connect().map_err(|error| match error.kind() {
            ErrorKind::ConnectionRefused | ErrorKind::NotFound => {
                anyhow!("no server listens on {name}; is it running with its admin API there? set another address with --address")
            }
            _ => anyhow!("connecting to the admin API on {name}: {error}"),
        })
    }

    fn send(
        &self,
        mut stream: TcpStream,
        line: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> anyhow::Result<ApiResponse> {
        let name = &self.name;
        let talk = || format!("calling the admin API on {name}");
        stream.set_read_timeout(self.read_timeout).with_context(talk)?;
        let mut head = format!("{line} HTTP/1.0\r\nHost: {}\r\n", self.host);
        if let Some(origin) = &self.origin {
            head.push_str(&format!("Origin: {origin}\r\n"));
        }
        for (name, value) in fields {
            // A line break in a file name would inject a field.
            if value.chars().any(char::is_control) {
                bail!("found a control character in '{}', expected none in a {name} field", value.escape_default());
            }
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
        let mut bytes = Vec::new();
        let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        let read = stream.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes);
        // A server that refuses a request early may respond and close before it has read the body.
        if bytes.is_empty() {
            sent.and(read.map(drop)).with_context(talk)?;
        }
        parse(&bytes).with_context(|| format!("{}: expected an HTTP/1 response", talk()))
    }
}

/// Parses a response; `None` when it is malformed or truncated.
fn parse(bytes: &[u8]) -> Option<ApiResponse> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut words = head.lines().next()?.split(' ');
    words.next().filter(|version| version.starts_with("HTTP/1."))?;
    let status = words.next()?.parse().ok().filter(|status| (200..600).contains(status))?;
    let length = head.lines().filter_map(|line| line.split_once(':'));
    let length = length.filter(|(name, _)| name.eq_ignore_ascii_case("content-length")).map(|(_, value)| value.trim());
    // A body shorter than its Content-Length means that the connection broke.
    let whole = length.clone().all(|length| length.parse() == Ok(body.len()));
    whole.then(|| ApiResponse { status, body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn responses() {
        for (text, want) in [
            ("HTTP/1.0 200 OK\r\n\r\n", Some((200, ""))),
            ("HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno", Some((400, "no"))),
            ("HTTP/1.1 204\r\nA: b\r\n\r\n", Some((204, ""))),
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nno", None),
            ("HTTP/1.1 100 Continue\r\n\r\n", None),
            ("HTTP/2 200\r\n\r\n", None),
            ("HTTP/1.1 200 OK\r\n", None),
            ("SSH-2.0-x\r\n\r\n", None),
            ("", None),
        ] {
            let got = parse(text.as_bytes());
            assert_eq!(got.as_ref().map(|response| (response.status, &*response.body)), want, "{text:?}");
        }
    }
}
