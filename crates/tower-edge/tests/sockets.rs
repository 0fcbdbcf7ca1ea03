//! Sockets that are not an IP address: Unix sockets, inherited ones, those that the program has opened; and the PROXY
//! protocol.

mod support;

use std::ffi::OsStr;
use std::net::{Ipv6Addr, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::routing::get;
use socket2::SockRef;
use support::{TestClient, builder};
use tower_edge::{ConnectInfo, ProxyPolicy, ProxyProtocol, Server};

async fn peer(request: Request) -> String {
    match request.extensions().get::<ConnectInfo>() {
        Some(info) => info.peer.to_string(),
        None => "no address".to_owned(),
    }
}

fn router() -> Router {
    Router::new().route("/", get(peer))
}

// The file has the requested permissions, and is removed at the end.
#[test]
fn unix_socket() {
    let directory = std::env::temp_dir().join(format!("tower-edge-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("app.sock");
    let server = Server::builder().listen_unix(&path, 0o660).workers(2).with_connect_info();
    let running = server.start(router()).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
    assert_eq!(running.addresses(), []);
    let stream = UnixStream::connect(&path).unwrap();
    assert_eq!(TestClient::with(stream).get("/").text(), "no address");
    drop(running);
    assert!(!path.exists());
    std::fs::remove_dir(&directory).unwrap();
}

#[test]
fn inherited_socket() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // As a service manager leaves it to the process that it starts.
    SockRef::from(&listener).set_cloexec(false).unwrap();
    let descriptor = OwnedFd::from(listener);
    let number = u16::try_from(descriptor.as_raw_fd()).unwrap();
    let running = Server::builder().listen_inherited(number).workers(1).with_connect_info().start(router()).unwrap();
    assert_eq!(running.addresses(), [address]);
    assert!(TestClient::connect(address).get("/").text().starts_with("127.0.0.1:"));
    let error = Server::builder().listen_inherited(9_999).start(router()).err().unwrap();
    assert!(error.to_string().starts_with("listening on fd/9999: the process has inherited no such"), "{error}");
}

// accept(2): duplicates of a socket share its queue, so that every worker accepts, and no connection is lost that
// arrived before the start.
#[test]
fn sockets_of_the_program() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let early = TcpStream::connect(address).unwrap();
    let path = std::env::temp_dir().join(format!("tower-edge-own-{}", std::process::id()));
    let unix = UnixListener::bind(&path).unwrap();
    let descriptor = OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
    let other = SockRef::from(&descriptor).local_addr().unwrap().as_socket().unwrap();
    let builder = Server::builder().listen_on(listener).listen_on(unix).listen("127.0.0.1:0").listen_on(descriptor);
    let running = builder.workers(2).with_connect_info().start(router()).unwrap();
    let [first, bound, last] = running.addresses() else { panic!("{running:?}") };
    assert_eq!([*first, *last], [address, other]);
    assert!(TestClient::with(early).get("/").text().starts_with("127.0.0.1:"));
    for address in [address, *bound, other].repeat(3) {
        assert!(TestClient::connect(address).get("/").text().starts_with("127.0.0.1:"));
    }
    assert_eq!(TestClient::with(UnixStream::connect(&path).unwrap()).get("/").text(), "no address");
    support::block_on(running.shutdown());
    TcpStream::connect(address).expect_err("the socket is closed");
    assert!(path.exists(), "the program's own file");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn sockets_on_which_no_server_can_listen() {
    #[track_caller]
    fn refused(socket: impl Into<OwnedFd>, want: &str) {
        let error = Server::builder().listen_on(socket).start(router()).unwrap_err().to_string();
        assert!(error.starts_with("listening on fd/"), "{error}");
        assert!(error.ends_with(&format!(": found {want}, expected a TCP or Unix socket that listens")), "{error}");
    }
    refused(UdpSocket::bind("127.0.0.1:0").unwrap(), "a datagram socket");
    refused(std::fs::File::open("/dev/null").unwrap(), "no socket");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    refused(TcpStream::connect(listener.local_addr().unwrap()).unwrap(), "a socket that does not listen");
    SockRef::from(&listener).shutdown(std::net::Shutdown::Both).unwrap();
    refused(listener, "a socket that does not listen");
}

// RFC 4007 §11: `<address>%<zone>`, where the zone is the name of an interface or its index. Each machine has `lo`,
// with the index 1.
#[test]
fn link_local_addresses() {
    for zone in ["1", "lo"] {
        let error = Server::builder().listen(format!("[fe80::dead%{zone}]:0")).start(router()).unwrap_err().to_string();
        assert!(error.starts_with("listening on [fe80::dead%1]:0: "), "{error}");
        // Without a zone, the system would refuse the argument.
        assert!(!error.contains("Invalid argument"), "{error}");
    }
    // The kernel's list: address, index, length of the prefix, scope, flags, name; the indices in hexadecimal.
    let interfaces = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let Some(line) = interfaces.lines().find(|line| line.starts_with("fe80")) else { return };
    let words: Vec<_> = line.split_whitespace().collect();
    let ip = Ipv6Addr::from(u128::from_str_radix(words[0], 16).unwrap());
    let address = SocketAddrV6::new(ip, 0, 0, u32::from_str_radix(words[1], 16).unwrap());
    for address in [address.to_string(), format!("[{ip}%{}]:0", words[5])] {
        let running = Server::builder().listen(address).workers(2).with_connect_info().start(router()).unwrap();
        let text = TestClient::connect(running.addresses()[0]).get("/").text().to_owned();
        assert!(text.starts_with(&format!("[{ip}%")), "{text}");
    }
}

#[test]
fn addresses_of_other_types() {
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let builder = Server::builder().listen(address).workers(1);
    assert!(format!("{builder:?}").contains("127.0.0.1:0"));
    let running = builder.start(router()).unwrap();
    assert!(format!("{running:?}").contains(&running.addresses()[0].port().to_string()));
    let path = OsStr::from_bytes(b"/nonexistent/\xff.sock");
    let error = Server::builder().listen_unix(path, 0o600).start(router()).unwrap_err();
    assert_eq!(error.to_string(), r#"found "/nonexistent/\xFF.sock" to listen on, expected a path in UTF-8"#);
}

// The service sees the address that the peer reports.
#[test]
fn proxy_protocol() {
    let settings = ProxyProtocol {
        timeout: Duration::from_secs(5),
        allow: vec!["127.0.0.0/8".parse().unwrap()],
        deny: Vec::new(),
        fallback: ProxyPolicy::Ignore,
    };
    let running = builder().proxy_protocol(settings).with_connect_info().start(router()).unwrap();
    let mut client = TestClient::connect(running.addresses()[0]);
    client.send("PROXY TCP4 192.0.2.7 192.0.2.1 5000 80\r\n");
    assert_eq!(client.get("/").text(), "192.0.2.7:5000");
}
