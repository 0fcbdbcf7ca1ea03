use super::*;

#[track_caller]
fn refused(builder: Builder, want: &str) {
    let service = axum::Router::<()>::new();
    let error = builder.start(service).expect_err("a refusal");
    assert!(error.to_string().starts_with(want), "{error}");
}

#[test]
fn errors_of_invalid_settings() {
    let builder = Server::builder;
    refused(builder(), "no address to listen on was given");
    refused(builder().listen("127.0.0.1"), "found '127.0.0.1' to listen on, expected HOST:PORT");
    refused(builder().listen(":http"), "found ':http' to listen on");
    refused(builder().listen("127.0.0.1:70000"), "found '127.0.0.1:70000'");
    let listen = || builder().listen("127.0.0.1:0");
    refused(
        listen().tls("", ""),
        "the certificates: the PEM text: found nothing: it is empty, expected a certificate as PEM: `-----BEGIN CERTIFICATE-----`",
    );
    let http2 = |streams_max, stream_window_bytes| Http2 { streams_max, stream_window_bytes, ..Http2::default() };
    refused(listen().http2(http2(0, 1)), "streams_max: found 0, expected a number from 1 to 4096");
    refused(
        listen().http2(http2(1, u32::MAX)),
        "stream_window_bytes: found 4294967295, expected a number from 1 to 2147483647",
    );
    refused(listen().workers(0), "workers: found 0, expected one at least");
    let none = Protocols { http1: false, http2: true, http2_clear: false, http2_upgrade: true };
    refused(listen().protocols(none), "protocols: expected http1 or http2_clear for a server without TLS");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = || builder().listen(taken.local_addr().unwrap().to_string());
    refused(taken(), "listening on 127.0.0.1:");
    // A program finds the system's error without reading the text.
    let error = taken().start(axum::Router::<()>::new()).expect_err("a refusal");
    let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<std::io::Error>());
    assert_eq!(source.expect("the system's error").kind(), std::io::ErrorKind::AddrInUse);
}

// RFC 6761 §6.3: `localhost` is 127.0.0.1 and ::1, but a machine may be without IPv6. 192.0.2.1 (RFC 5737) stands for
// such an address.
#[test]
fn addresses_that_the_machine_has_not() {
    let [local, other] = ["127.0.0.1", "192.0.2.1"].map(|ip| ListenAddress { host: ip.parse().ok(), port: 0, zone: 0 });
    assert_eq!(present(vec![other, local]), [local]);
    assert_eq!(present(vec![other]), [other]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let in_use = ListenAddress { port: taken.local_addr().unwrap().port(), ..local };
    assert_eq!(present(vec![in_use, other]), [in_use]);
}
