use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixListener};

use crate::http::double::{Double, read};
use crate::http::{HttpClient, HttpRequest, ProxyChoice};

/// Starts a proxy for one connection, which passes on the head of a CONNECT request, or the bytes of SOCKS, to `greet`
/// and then connects to `to`.
async fn proxy<G, F>(to: SocketAddr, greet: G) -> SocketAddr
where
    G: FnOnce(TcpStream) -> F + Send + 'static,
    F: Future<Output = Option<TcpStream>> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        if let Some(mut client) = greet(client).await {
            let mut server = TcpStream::connect(to).await.unwrap();
            let _ = copy_bidirectional(&mut client, &mut server).await;
        }
    });
    address
}

/// Sends a request for `http://server.example:7/x` through a proxy, and returns the body or the error.
async fn get(proxy: &str) -> Result<String, String> {
    let client = HttpClient::through(&ProxyChoice::Proxy(proxy.parse().unwrap()), &[]).unwrap();
    match client.send(HttpRequest::get("http://server.example:7/x")).await {
        Ok(response) => Ok(String::from_utf8(response.body.to_vec()).unwrap()),
        Err(error) => Err(error.to_string()),
    }
}

async fn server() -> (Double, SocketAddr) {
    let double = Double::new(&[("200 OK", "hi")]).await;
    let address = double.url.strip_prefix("http://").unwrap().parse().unwrap();
    (double, address)
}

// RFC 9110 §9.3.6: a tunnel begins after a response of success to CONNECT with host and port. RFC 7617 §2: the
// credentials.
#[tokio::test]
async fn a_tunnel_through_an_http_proxy() {
    let (double, to) = server().await;
    let at = proxy(to, |mut client| async move {
        let request = read(&mut client).await.unwrap();
        assert_eq!(request.line, "CONNECT server.example:7");
        assert_eq!(request.header("proxy-authorization"), "Basic YW5uOnBhc3M=");
        client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
        Some(client)
    });
    let at = at.await;
    assert_eq!(get(&format!("http://ann:pass@{at}")).await.as_deref(), Ok("hi"));
    assert_eq!(double.lines(), ["GET /x"]);
}

// A refusal names the proxy, and no password.
#[tokio::test]
async fn proxies_that_refuse() {
    let (double, to) = server().await;
    for (answer, want) in [
        ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "the network proxy: "),
        ("HTTP/1.1 502 Bad Gateway\r\n\r\n", "the network proxy: "),
        ("220 mail.example ESMTP\r\n\r\n", "the network proxy: "),
        ("", "the network proxy: "),
    ] {
        let at = proxy(to, move |mut client| async move {
            read(&mut client).await;
            client.write_all(answer.as_bytes()).await.unwrap();
            None
        });
        let error = get(&format!("http://ann:secret@{}", at.await)).await.unwrap_err();
        assert!(error.contains(want) && !error.contains("secret"), "{error}");
    }
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for scheme in ["http", "socks5"] {
        let error = get(&format!("{scheme}://{closed}")).await.unwrap_err();
        assert!(error.contains("the network proxy: "), "{error}");
    }
    assert!(double.lines().is_empty());
}

// RFC 1928 §3 and §4: the greeting, and CONNECT to a name, which the proxy resolves. RFC 1929 §2: a user name and a
// password.
#[tokio::test]
async fn a_connection_through_a_socks_proxy() {
    let connect = [&[5, 1, 0, 3, 14][..], b"server.example", &[0, 7]].concat();
    for (user, greeting, answer, login) in
        [("", &[5u8, 1, 0][..], &[5u8, 0][..], &[][..]), ("ann:pass@", &[5, 1, 2], &[5, 2], b"\x01\x03ann\x04pass")]
    {
        let (double, to) = server().await;
        let connect = connect.clone();
        let at = proxy(to, move |mut client| async move {
            let mut expect = async |want: &[u8], answer: &[u8]| {
                let mut found = vec![0; want.len()];
                client.read_exact(&mut found).await.unwrap();
                assert_eq!(found, want);
                client.write_all(answer).await.unwrap();
            };
            expect(greeting, answer).await;
            if !login.is_empty() {
                expect(login, &[1, 0]).await;
            }
            expect(&connect, &[5, 0, 0, 1, 127, 0, 0, 1, 0, 9]).await;
            Some(client)
        });
        assert_eq!(get(&format!("socks5://{user}{}", at.await)).await.as_deref(), Ok("hi"));
        assert_eq!(double.lines(), ["GET /x"]);
    }
    // RFC 1928 §6: 5 is "connection refused".
    let (_double, to) = server().await;
    let at = proxy(to, |mut client| async move {
        let mut greeting = [0; 3];
        client.read_exact(&mut greeting).await.unwrap();
        client.write_all(&[5, 0]).await.unwrap();
        client.write_all(&[5, 5, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
        let _ = client.read_to_end(&mut Vec::new()).await;
        None
    });
    let error = get(&format!("socks5h://{}", at.await)).await.unwrap_err();
    assert!(error.contains("the network proxy: "), "{error}");
}

#[test]
fn the_port_of_a_scheme() {
    for (url, want) in [
        ("https://a.example/x", "https://a.example:443/x"),
        ("http://a.example", "http://a.example:80/"),
        ("https://[::1]/", "https://[::1]:443/"),
        ("https://a.example:14000/dir", "https://a.example:14000/dir"),
    ] {
        assert_eq!(super::with_port(url.parse().unwrap()).to_string(), want);
    }
}

#[tokio::test]
async fn a_server_on_a_unix_socket() {
    let path = std::env::temp_dir().join(format!("causeway-http-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let client = HttpClient::unix(&path);
    let error = client.send(HttpRequest::get("http://local/")).await.unwrap_err().to_string();
    assert!(error.contains("No such file"), "{error}");
    let listener = UnixListener::bind(&path).unwrap();
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let request = read(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").await.unwrap();
        (request.line.clone(), request.header("host").to_owned())
    };
    let (response, request) = tokio::join!(client.send(HttpRequest::get("http://local/a")), server);
    assert_eq!((&*response.unwrap().body, request), (&b"hi"[..], ("GET /a".to_owned(), "local".to_owned())));
    std::fs::remove_file(&path).unwrap();
}
