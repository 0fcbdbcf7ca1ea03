use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

fn header(len: usize, ends: Option<(&str, &str)>) -> Start {
    let ends = ends.map(|(source, destination)| (source.parse().unwrap(), destination.parse().unwrap()));
    Start::Header { len, ends }
}

fn binary(command: u8, family: u8, content: &[u8]) -> Vec<u8> {
    let len = u16::try_from(content.len()).unwrap().to_be_bytes();
    [BINARY_START, &[command, family][..], &len, content].concat()
}

/// Headers and their meaning; the length is that of the whole text.
fn cases() -> Vec<(Vec<u8>, Start)> {
    let four = [192, 0, 2, 1, 192, 0, 2, 2, 0x30, 0x39, 0, 80];
    let mut six = [0; 36];
    (six[15], six[31], six[33], six[35]) = (1, 2, 3, 4);
    let text = |text: &str, ends| (text.as_bytes().to_vec(), header(text.len(), ends));
    let whole = |bytes: Vec<u8>, ends| {
        let len = bytes.len();
        (bytes, header(len, ends))
    };
    vec![
        text("PROXY TCP4 192.0.2.1 192.0.2.2 12345 80\r\n", Some(("192.0.2.1:12345", "192.0.2.2:80"))),
        text("PROXY TCP6 2001:db8::1 ::1 65535 0\r\n", Some(("[2001:db8::1]:65535", "[::1]:0"))),
        text("PROXY UNKNOWN\r\n", None),
        text("PROXY UNKNOWN ff ff whatever\r\n", None),
        whole(binary(0x21, 0x11, &four), Some(("192.0.2.1:12345", "192.0.2.2:80"))),
        whole(binary(0x21, 0x11, &[&four[..], &[4, 0, 1, 9]].concat()), Some(("192.0.2.1:12345", "192.0.2.2:80"))),
        whole(binary(0x21, 0x21, &six), Some(("[::1]:3", "[::2]:4"))),
        whole(binary(0x20, 0x11, &four), None),
        whole(binary(0x20, 0, &[]), None),
        whole(binary(0x21, 0x31, &[0; 216]), None),
        whole(binary(0x21, 0, &[0; BINARY_BYTES_MAX - BINARY_FIXED]), None),
    ]
}

// proxy-protocol.txt §2: the receiver must not decide before it has the whole header, and takes nothing after it.
#[test]
fn headers_cut_at_every_byte() {
    for (bytes, want) in cases() {
        for end in 0..bytes.len() {
            assert_eq!(parse(&bytes[..end]), Start::Incomplete, "{} cut at {end}", bytes.escape_ascii());
        }
        for after in [&b""[..], b"GET / HTTP/1.1\r\n", b"\r\n\r\n"] {
            assert_eq!(parse(&[&bytes, after].concat()), want, "{}", bytes.escape_ascii());
        }
    }
}

#[test]
fn other_starts() {
    for text in [
        "GET / HTTP/1.1\r\n",
        "P / HTTP/1.1",
        "PROPFIND / HTTP/1.1",
        "PRI * HTTP/2.0\r\n\r\n",
        "\x16\x03\x01",
        "\r\n\r\nG",
    ] {
        assert_eq!(parse(text.as_bytes()), Start::Absent, "{text}");
    }
    for text in ["", "P", "PRO", "\r\n", "\r\n\r\n"] {
        assert_eq!(parse(text.as_bytes()), Start::Incomplete, "{text}");
    }
}

#[test]
fn malformed_headers() {
    for text in [
        "PROXY \r\n",
        "PROXY TCP4\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 65536\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n",
        "PROXY TCP4  192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP4 ::1 192.0.2.2 1 2\r\n",
        "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP5 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
    ] {
        assert_eq!(parse(text.as_bytes()), Start::Malformed, "{text}");
    }
    let long = format!("PROXY UNKNOWN {}", "x".repeat(TEXT_BYTES_MAX));
    assert_eq!(parse(long.as_bytes()), Start::Malformed, "§2.1: 107 bytes at most");
    for bytes in [
        binary(0x11, 0x11, &[0; 12]),
        binary(0x22, 0x11, &[0; 12]),
        binary(0x21, 0x11, &[0; 11]),
        binary(0x21, 0x21, &[0; 35]),
        binary(0x21, 0, &[0; BINARY_BYTES_MAX - BINARY_FIXED + 1]),
    ] {
        assert_eq!(parse(&bytes), Start::Malformed, "{}", bytes.escape_ascii());
    }
}

// No bytes of a peer panic, and a header is never longer than its bound: each case with each byte replaced.
#[test]
fn changed_headers() {
    let mut state = 0x5eed_u64;
    for (bytes, _) in cases() {
        for at in 0..bytes.len().min(64) {
            for _ in 0..16 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let mut changed = bytes.clone();
                changed[at] = (state >> 56) as u8;
                if let Start::Header { len, .. } = parse(&changed) {
                    assert!(len <= changed.len() && len <= BINARY_BYTES_MAX);
                }
            }
        }
    }
}

// The bytes for an upstream are a header for every receiver; a source in IPv6's form of IPv4 is IPv4.
#[test]
fn encoded_headers() {
    use ProxyProtocolVersion::{One, Two};
    for (ip, want) in [
        ("192.0.2.1", Some(("192.0.2.1:0", "0.0.0.0:0"))),
        ("::ffff:192.0.2.1", Some(("192.0.2.1:0", "0.0.0.0:0"))),
        ("2001:db8::1", Some(("[2001:db8::1]:0", "[::]:0"))),
        ("", None),
    ] {
        for version in [One, Two] {
            let bytes = encode(ProxyHeader { version, source: ip.parse().ok() });
            assert_eq!(parse(&bytes), header(bytes.len(), want), "{ip} {version:?}");
        }
    }
}

// The bytes after a header stay in the socket, however the header arrives.
#[tokio::test]
async fn reading_takes_the_header_only() {
    for (bytes, want) in cases() {
        for cut in [1, 6, 13, bytes.len() - 1, bytes.len()] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut server, _) = listener.accept().await.unwrap();
            client.set_nodelay(true).unwrap();
            let (first, second) = bytes.split_at(cut.min(bytes.len()));
            client.write_all(first).await.unwrap();
            let writing = async {
                tokio::task::yield_now().await;
                client.write_all(&[second, b"GET"].concat()).await.unwrap();
                client.shutdown().await.unwrap();
            };
            let (start, ()) = tokio::join!(read(&server), writing);
            assert_eq!(start.unwrap(), want);
            let mut rest = Vec::new();
            server.read_to_end(&mut rest).await.unwrap();
            assert_eq!(rest, b"GET");
        }
    }
}

// A peer that ends within a header is not waited for.
#[tokio::test]
async fn an_end_within_a_header() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for text in ["", "PROXY TCP4 1"] {
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        client.write_all(text.as_bytes()).await.unwrap();
        drop(client);
        assert_eq!(read(&server).await.unwrap(), Start::Incomplete);
    }
}
