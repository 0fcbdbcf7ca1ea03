use std::sync::Arc;

use hyper::header::LOCATION;
use rcgen::{CertificateParams, KeyPair};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use super::double::{self, Double};
use super::*;

#[tokio::test]
async fn a_request_and_its_response_are_complete() {
    let double = Double::new(&[("404 Not Found\r\nRetry-After: 7", "gone")]).await;
    let request =
        HttpRequest::new(Method::PUT, format!("{}/a?b=c", double.url)).bearer("token").json(&json!({ "a": 1 }));
    let response = HttpClient::new(&[]).unwrap().send(request).await.unwrap();
    assert_eq!((response.status.as_u16(), &*response.body), (404, &b"gone"[..]));
    assert_eq!((response.header("retry-after"), response.header("etag")), (Some("7"), None));
    let received = &double.received()[0];
    assert_eq!((&*received.line, &*received.body), ("PUT /a?b=c", r#"{"a":1}"#));
    assert_eq!(received.header("authorization"), "Bearer token");
    assert_eq!(received.header("content-type"), "application/json");
}

#[tokio::test]
async fn a_response_has_bounds() {
    let double = Double::new(&[("200 OK", "12345678"), ("200 OK", "123456789")]).await;
    let client = HttpClient::new(&[]).unwrap().body_bytes_max(8);
    assert_eq!(client.send(HttpRequest::get(&double.url)).await.unwrap().body.len(), 8);
    assert!(matches!(client.send(HttpRequest::get(&double.url)).await, Err(HttpError::TooLong(8))));
    assert_eq!(double.lines(), ["GET /", "GET /"]);
    // A server that accepts and stays silent.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client.timeout(Duration::from_millis(50));
    let slow = client.send(HttpRequest::get(format!("http://{}", listener.local_addr().unwrap()))).await;
    assert!(matches!(slow, Err(HttpError::Timeout(_))));
}

// docs/limits.md: of the idle connections to one server two stay open, for 90 to 180 seconds.
#[tokio::test]
async fn idle_connections_are_closed() {
    const CONCURRENT: usize = 5;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (closed, mut closes) = tokio::sync::mpsc::unbounded_channel();
    let server = async move {
        let all = Arc::new(tokio::sync::Barrier::new(CONCURRENT));
        while let Ok((mut stream, _)) = listener.accept().await {
            let (all, closed) = (Arc::clone(&all), closed.clone());
            tokio::spawn(async move {
                while double::read(&mut stream).await.is_some() {
                    // No request gets a connection that an earlier one has left.
                    all.wait().await;
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
                }
                closed.send(()).unwrap();
            });
        }
    };
    tokio::spawn(server);
    let client = HttpClient::new(&[]).unwrap();
    let requests: Vec<_> = (0..CONCURRENT)
        .map(|_| {
            let (client, request) = (client.clone(), HttpRequest::get(&url));
            tokio::spawn(async move { client.send(request).await.unwrap() })
        })
        .collect();
    for request in requests {
        request.await.unwrap();
    }
    for _ in 0..CONCURRENT - POOL_IDLE_MAX {
        closes.recv().await.unwrap();
    }
    assert!(closes.try_recv().is_err(), "the others can be reused");
    // The time passes at once, since nothing else happens.
    tokio::time::pause();
    for _ in 0..POOL_IDLE_MAX {
        tokio::time::timeout(3 * POOL_IDLE_TIMEOUT, closes.recv()).await.unwrap().unwrap();
    }
    drop(client);
}

// RFC 9110 §15.4: the statuses that redirect a GET; 304 is none of them.
#[test]
fn redirects() {
    let redirect = |status: u16, location: Option<&'static str>, url: &str| {
        let mut headers = HeaderMap::new();
        headers.extend(location.map(|location| (LOCATION, HeaderValue::from_static(location))));
        let status = StatusCode::from_u16(status).unwrap();
        HttpResponse { status, headers, body: Bytes::new() }.redirect_target(url)
    };
    let from = "http://a.test:81/x/y";
    for (location, want) in [
        ("http://b.test/z", "http://b.test/z"),
        ("//b.test/z", "http://b.test/z"),
        ("/z", "http://a.test:81/z"),
        ("z", "http://a.test:81/x/z"),
    ] {
        assert_eq!(redirect(301, Some(location), from).as_deref(), Some(want));
    }
    assert_eq!(redirect(308, Some("z"), "http://a.test").as_deref(), Some("http://a.test/z"));
    for (status, location) in [(200, Some("/z")), (304, Some("/z")), (301, None)] {
        assert_eq!(redirect(status, location, from), None, "{status} {location:?}");
    }
}

// RFC 3986 §5.4: its examples.
#[test]
fn references() {
    for (reference, want) in [
        ("g:h", "g:h"),
        ("g", "http://a/b/c/g"),
        ("./g", "http://a/b/c/g"),
        ("g/", "http://a/b/c/g/"),
        ("/g", "http://a/g"),
        ("//g", "http://g"),
        ("?y", "http://a/b/c/d;p?y"),
        ("g?y", "http://a/b/c/g?y"),
        ("#s", "http://a/b/c/d;p?q#s"),
        ("g#s", "http://a/b/c/g#s"),
        ("g?y#s", "http://a/b/c/g?y#s"),
        (";x", "http://a/b/c/;x"),
        ("g;x?y#s", "http://a/b/c/g;x?y#s"),
        ("", "http://a/b/c/d;p?q"),
        (".", "http://a/b/c/"),
        ("./", "http://a/b/c/"),
        ("..", "http://a/b/"),
        ("../", "http://a/b/"),
        ("../g", "http://a/b/g"),
        ("../..", "http://a/"),
        ("../../", "http://a/"),
        ("../../g", "http://a/g"),
        ("../../../g", "http://a/g"),
        ("/./g", "http://a/g"),
        ("/../g", "http://a/g"),
        ("g.", "http://a/b/c/g."),
        ("..g", "http://a/b/c/..g"),
        ("./../g", "http://a/b/g"),
        ("./g/.", "http://a/b/c/g/"),
        ("g/./h", "http://a/b/c/g/h"),
        ("g/../h", "http://a/b/c/h"),
        ("g;x=1/../y", "http://a/b/c/y"),
        ("g?y/../x", "http://a/b/c/g?y/../x"),
        ("g#s/../x", "http://a/b/c/g#s/../x"),
        ("http:g", "http:g"),
    ] {
        assert_eq!(resolved("http://a/b/c/d;p?q", reference), want, "{reference}");
    }
    // A slash of the query is none of the path, and schemes have no case.
    for (url, reference, want) in [
        ("https://h/a?next=/b/c", "d", "https://h/d"),
        ("https://h?next=/b/c", "d", "https://h/d"),
        ("https://h?next=/b/c", "/d", "https://h/d"),
        ("https://h/a#/b/c", "d", "https://h/d"),
        ("http://h/a", "HTTPS://b/c", "HTTPS://b/c"),
        ("http://h/a", "b?c:d", "http://h/b?c:d"),
    ] {
        assert_eq!(resolved(url, reference), want, "{url} {reference}");
    }
}

// The time limit holds for all requests together.
#[tokio::test]
async fn redirects_share_the_time_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut url = format!("http://{}/", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            while double::read(&mut stream).await.is_some() {
                tokio::time::sleep(Duration::from_millis(20)).await;
                let response = b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n";
                stream.write_all(response).await.unwrap();
            }
        }
    });
    let client = HttpClient::new(&[]).unwrap();
    let response = client.clone().timeout(Duration::from_millis(100)).get_following(&mut url, 10, Redirects::All).await;
    assert!(matches!(response, Err(HttpError::Timeout(_))), "{response:?}");
    let response = client.get_following(&mut url, 2, Redirects::KeepHttps).await;
    assert!(matches!(response, Err(HttpError::Redirects(2))), "{response:?}");
    server.abort();
}

// A header whose name comes from a configuration. A second User-Agent would be a list, which it is not (RFC 9110
// §10.1.5).
#[tokio::test]
async fn headers_of_any_name() {
    let double = Double::new(&[("200 OK", "")]).await;
    let request = HttpRequest::get(&double.url).named_header("X-Key", "a").unwrap().named_header("x-key", "b").unwrap();
    let request = request.named_header("User-Agent", "tester").unwrap();
    HttpClient::new(&[]).unwrap().send(request).await.unwrap();
    let received = &double.received()[0];
    let values = |name: &str| {
        received.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| &**value).collect::<Vec<_>>()
    };
    assert_eq!((values("x-key"), values("user-agent")), (vec!["a", "b"], vec!["tester"]));
    let refused = HttpRequest::get(&double.url).named_header("a b", "").err().unwrap();
    assert_eq!(refused.to_string(), "found 'a b', expected the name of a header");
}

// RFC 3986 §3.2.1 and RFC 7617 §2; as Go's client, an Authorization of the request comes first.
#[tokio::test]
async fn credentials_in_urls() {
    let double = Double::new(&[("200 OK", ""); 5]).await;
    let client = HttpClient::new(&[]).unwrap();
    let place = double.url.strip_prefix("http://").unwrap();
    for (user, want) in [
        ("Aladdin:open%20sesame@", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
        ("a:b:c@", "Basic YTpiOmM="),
        ("a@", "Basic YTo="),
        ("", ""),
    ] {
        client.send(HttpRequest::get(format!("http://{user}{place}/x?y"))).await.unwrap();
        let received = double.received().pop().unwrap();
        assert_eq!((&*received.line, received.header("authorization")), ("GET /x?y", want), "{user}");
        assert_eq!(received.header("host"), place);
    }
    client.send(HttpRequest::get(format!("http://a:b@{place}/")).bearer("token")).await.unwrap();
    let received = double.received().pop().unwrap();
    assert_eq!(received.header("authorization"), "Bearer token");
}

#[test]
fn urls_without_secrets() {
    for (url, want) in [
        ("http://a.example", "http://a.example"),
        ("https://user:password@a.example:1/x?key=1#y", "https://a.example:1/x"),
        ("http://a.example?key=1@b", "http://a.example"),
        ("http://a.example/x@y", "http://a.example/x@y"),
        ("http://u@[::1]/", "http://[::1]/"),
        ("http://[::1]:80/", "http://[::1]:80/"),
        ("user:password@a.example/x", "a.example/x"),
        ("https://user:pass/word@a.example/", "https://..."),
        ("https://user:pass?word@a.example/", "https://..."),
        ("", ""),
    ] {
        assert_eq!(without_secrets(url), want);
    }
}

#[tokio::test]
async fn mistakes_are_errors_without_secrets() {
    let client = HttpClient::new(&[]).unwrap();
    for url in ["", "/a", "ftp://a.example/", "https://", "http://a b/"] {
        assert!(matches!(client.send(HttpRequest::get(url)).await, Err(HttpError::Url(_))), "{url}");
    }
    let error = client.send(HttpRequest::get("ftp://user:word@a.example/b?key=word")).await.unwrap_err();
    assert_eq!(error.to_string(), "found the URL 'ftp://a.example/b', expected one such as https://api.example/path");
    assert!(!format!("{error:?}").contains("word"), "{error:?}");
    let error = client.send(HttpRequest::get("http://127.0.0.1/").bearer("secret\n")).await.unwrap_err().to_string();
    assert_eq!(error, "the value of the header 'authorization' contains a control character");
    // Nothing listens on a port that was just released.
    let released = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = client.send(HttpRequest::get(format!("http://{released}/"))).await.unwrap_err().to_string();
    assert!(error.contains("refused"), "{error}");
    // A server that is not an HTTP server.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"220 mail.example ESMTP\r\n").await.unwrap();
    };
    let (answer, ()) = tokio::join!(client.send(HttpRequest::get(url)), server);
    assert!(matches!(answer, Err(HttpError::Exchange(_))));
}

#[tokio::test]
async fn https_needs_a_trusted_certificate() {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let path = std::env::temp_dir().join(format!("causeway-http-{}.pem", std::process::id()));
    std::fs::write(&path, certificate.pem()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.serialize_der().try_into().unwrap())
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/", listener.local_addr().unwrap().port());
    let server = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut stream = stream.into_std().unwrap();
            let config = Arc::clone(&config);
            tokio::task::spawn_blocking(move || {
                use std::io::{Read as _, Write as _};
                stream.set_nonblocking(false).unwrap();
                let mut connection = rustls::ServerConnection::new(config).unwrap();
                let mut tls = rustls::Stream::new(&mut connection, &mut stream);
                // The client that does not trust the certificate ends the handshake.
                if tls.read(&mut [0; 1024]).is_ok() {
                    tls.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").unwrap();
                }
            });
        }
    });
    let trusting = HttpClient::new(std::slice::from_ref(&path)).unwrap();
    let strict = HttpClient::new(&[]).unwrap();
    assert_eq!(&*trusting.send(HttpRequest::get(&url)).await.unwrap().body, b"hi");
    assert!(matches!(strict.send(HttpRequest::get(&url)).await, Err(HttpError::Exchange(_))));
    server.abort();
    std::fs::write(&path, "no PEM").unwrap();
    assert!(matches!(HttpClient::new(std::slice::from_ref(&path)), Err(HttpError::Roots(_))));
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(HttpClient::new(std::slice::from_ref(&path)), Err(HttpError::Roots(_))));
}

// RFC 9110 §10.2.3 and §5.6.7: seconds, or a date in each of its three forms; all else is no value.
#[tokio::test]
async fn times_of_the_next_request() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    let seconds = |seconds: u64| Some(Duration::from_secs(seconds));
    for (value, want) in [
        ("0", seconds(0)),
        (" 120 ", seconds(120)),
        ("18446744073709551616", seconds(u64::MAX)),
        ("Sun, 06 Nov 1994 08:49:47 GMT", seconds(10)),
        ("Sunday, 06-Nov-94 08:49:47 GMT", seconds(10)),
        ("Sun Nov  6 08:49:47 1994", seconds(10)),
        ("Sun, 06 Nov 1994 08:49:27 GMT", seconds(0)),
        ("Sun, 06 Nov 1994 08:49:47", None),
        ("-1", None),
        ("+1", None),
        ("1.5", None),
        ("", None),
        ("soon", None),
    ] {
        let double = Double::new(&[(&format!("200 OK\r\nRetry-After: {value}"), "")]).await;
        let response = HttpClient::new(&[]).unwrap().send(HttpRequest::get(&double.url)).await.unwrap();
        assert_eq!(response.retry_after(now), want, "{value}");
    }
    let double = Double::new(&[("200 OK", "")]).await;
    let response = HttpClient::new(&[]).unwrap().send(HttpRequest::get(&double.url)).await.unwrap();
    assert_eq!(response.retry_after(now), None);
}
