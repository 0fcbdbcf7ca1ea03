//! A server embedded in another program: `examples/embed.rs` with real requests, and the other methods of the builder;
//! and certificates for a server of another kind, `examples/tower_service.rs`.

#[path = "../examples/embed.rs"]
#[expect(dead_code, reason = "its main is for the example itself")]
mod embed;

#[path = "../examples/tower_service.rs"]
#[expect(dead_code, reason = "its main is for the example itself")]
mod tower_service;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use causeway::Server;
use causeway::caddyfile::{Dispenser, Error, Order, RegisterError, Syntax, subroute_handler};
use causeway::pipeline::{ListenAddress, async_handler};
use causeway::server::{AdminAddress, AutomaticCertificates, LoadError, RunningServer, ServerError};
use causeway::{message, pipeline};
use serde_json::{Value, json};

/// Runs a test on a runtime like the command line's.
fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
}

/// Sends a GET and returns the status and body.
async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let answer = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    let answer = answer.await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

/// Returns the example's Caddyfile, on a port that the system chooses.
fn caddyfile() -> String {
    embed::CADDYFILE.replace(":8080 {", ":0 {\n\tbind 127.0.0.1")
}

async fn served(server: &RunningServer, path: &str) -> (u16, String) {
    get(server.addresses()[0], path).await
}

#[test]
fn the_example() {
    run(async {
        let server = embed::start(&caddyfile()).await.unwrap();
        for (path, want) in [("/", "HELLO\n"), ("/twice/x", "GET /TWICE/X\nGET /TWICE/X\n")] {
            assert_eq!(served(&server, path).await, (200, want.to_owned()), "{path}");
        }
        server.stop().await;
    });
}

// As for modules of the server: an error of a handler's JSON contains its place, and no key is ignored.
#[test]
fn errors_of_a_handlers_json() {
    run(async {
        let server = embed::start(&caddyfile()).await.unwrap();
        for (handler, want) in [
            (json!({ "handler": "shout", "text": "a", "tims": 1 }), "unknown field `tims`"),
            (json!({ "handler": "shout", "text": "a" }), "missing field `times`"),
            (json!({ "handler": "shout", "text": "a", "times": 10 }), "found '10', expected a number from 1 to 9"),
        ] {
            let site = json!({ "listen": ["127.0.0.1:0"], "routes": [{ "handle": [handler] }] });
            let json = json!({ "apps": { "http": { "servers": { "a": site } } } });
            let error = server.reload(json).await.unwrap_err().to_string();
            assert!(error.contains("apps.http.servers.a.routes[0].handle[0]") && error.contains(want), "{error}");
        }
    });
}

// A mistake in a custom directive is reported with its position, like any other.
#[test]
fn errors_contain_their_position() {
    run(async {
        for (from, to, want) in [
            (
                "times 2",
                "times many",
                "Caddyfile:4:9: parsing caddyfile tokens for 'shout': found 'many', expected a number",
            ),
            ("times 2", "times 10", "Caddyfile:4:9: found '10', expected a number from 1 to 9"),
            (
                "shout hello",
                "shot hello",
                "Caddyfile:6:2: unrecognized directive: shot (did you mean \"shout\"?); expected a directive",
            ),
        ] {
            let error = embed::start(&caddyfile().replace(from, to)).await.expect_err(to);
            assert_eq!(error.to_string(), want);
        }
    });
}

#[test]
fn an_unreadable_root_causes_a_warning() {
    run(async {
        let server = embed::start(":0 {\n\tbind 127.0.0.1\n\troot nowhere\n\tfile_server\n}\n").await.unwrap();
        let [warning] = server.warnings() else { panic!("{:?}", server.warnings()) };
        assert_eq!((warning.at.line, warning.at.column), (3, 7));
        assert!(warning.message.starts_with("found the root 'nowhere'"), "{}", warning.message);
    });
}

#[test]
fn reload_and_drain() {
    run(async {
        let server = embed::start(&caddyfile()).await.unwrap();
        let before = server.addresses();
        server.reload(":0 {\n\tbind 127.0.0.1\n\tshout changed\n}\n").await.unwrap();
        assert_eq!(served(&server, "/").await.1, "CHANGED\n");
        assert_eq!(server.addresses(), before, "the listener stays");
        let error = server.reload(":0 {\n\tbind 127.0.0.1\n\tshout\n}\n").await.unwrap_err();
        assert!(matches!(error, ServerError::Document(_)), "{error}");
        assert_eq!(served(&server, "/").await.1, "CHANGED\n", "what ran before runs on");
        let handler = json!({ "handler": "shout", "text": "json", "times": 1 });
        let json = json!({ "apps": { "http": { "servers": { "a": {
            "listen": ["127.0.0.1:0"], "automatic_https": { "disable": true }, "routes": [{ "handle": [handler] }],
        } } } } });
        server.reload(json).await.unwrap();
        assert_eq!(served(&server, "/").await.1, "JSON\n");
        let address = server.addresses()[0];
        server.drain(Duration::from_secs(5)).await;
        assert!(TcpStream::connect(address).is_err(), "the listener is closed");
    });
}

// The default is no admin API, since two servers in one process would need the same port.
#[test]
fn two_servers_in_one_process() {
    run(async {
        let (one, two) = (embed::start(&caddyfile()).await.unwrap(), embed::start(&caddyfile()).await.unwrap());
        assert_eq!((one.admin_address(), two.admin_address()), (None, None));
        assert_eq!(served(&one, "/").await, served(&two, "/").await);
        let address = one.addresses()[0];
        drop(one);
        tokio::task::yield_now().await;
        assert!(TcpStream::connect(address).is_err(), "dropped is ended");
        assert_eq!(served(&two, "/").await.0, 200);
        let admin = embed::start(&format!("{{\n\tadmin 127.0.0.1:0\n}}\n{}", caddyfile())).await.unwrap();
        let (status, config) = get(admin.admin_address().unwrap(), "/config/").await;
        assert_eq!((status, config.contains("shout")), (200, true), "{config}");
    });
}

#[test]
fn until_a_signal() {
    run(async {
        let builder = || Server::builder().caddyfile(":0\nbind 127.0.0.1\nrespond hello\n").workers(1);
        builder().run_until(std::future::ready(())).await.unwrap();
        let stopped = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            "any future is a signal"
        };
        builder().run_until(stopped).await.unwrap();
    });
}

#[test]
fn refused_settings() {
    let syntax = || Syntax::Handler(|_| Ok(Value::Null));
    run(async {
        let cases = [
            (Server::builder(), "no configuration; expected a Caddyfile or JSON"),
            (
                Server::builder().directive("respond", Order::First, syntax()).json(json!({})),
                "directive 'respond': a directive of this name is already registered",
            ),
            (
                Server::builder().directive("shout", Order::After("whisper"), syntax()).json(json!({})),
                "directive 'shout': the directive to be placed beside, 'whisper', is not in the order",
            ),
            (
                Server::builder().json(json!({ "apps": { "ftp": {} } })),
                "JSON: apps.ftp: unknown field `ftp`, expected one of",
            ),
        ];
        for (builder, want) in cases {
            let error = builder.start().await.expect_err(want).to_string();
            assert!(error.starts_with(want), "{error}");
        }
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let site = format!("http://{}\nrespond hello\n", taken.local_addr().unwrap());
        let error = Server::builder().caddyfile(site).workers(1).start().await.unwrap_err();
        let ServerError::Load(refused) = error else { panic!("{error}") };
        assert!(matches!(refused.load_error(), LoadError::Sites(_)) && refused.load_error().is_port_in_use());
    });
    assert_eq!(
        causeway::caddyfile::Directives::standard().register("log", Order::First, syntax()),
        Err(RegisterError::Taken)
    );
}

// A directive with a block of directives, as `handle` has.
#[test]
fn a_directive_with_nested_directives() {
    fn guarded(d: &mut Dispenser<'_>) -> Result<Value, Error> {
        Ok(subroute_handler(&d.routes()?))
    }
    run(async {
        let server = Server::builder()
            .directive("guarded", Order::Before("respond"), Syntax::Handler(guarded))
            .caddyfile(":0 {\n\tbind 127.0.0.1\n\tguarded /a* {\n\t\trespond /a inner\n\t}\n\trespond outer\n}\n")
            .workers(1)
            .start()
            .await
            .unwrap();
        assert_eq!(served(&server, "/a").await, (200, "inner".to_owned()));
        assert_eq!(served(&server, "/ab").await, (200, "outer".to_owned()));
        server.stop().await;
    });
}

#[test]
fn the_admin_api_has_the_builders_address() {
    run(async {
        let listen = ListenAddress { host: Some([127, 0, 0, 1].into()), port: 0, zone: 0 }.into();
        let address = AdminAddress { host: "127.0.0.1".to_owned(), listen };
        let caddyfile = ":0 {\n\tbind 127.0.0.1\n}\n";
        let server = Server::builder().caddyfile(caddyfile).admin(address).workers(1).start().await.unwrap();
        assert_eq!(get(server.admin_address().unwrap(), "/config/admin").await.0, 200);
        server.stop().await;
    });
}

// A program can return them by `?`.
#[test]
fn errors_are_errors() {
    fn is_error<E: std::error::Error + Send + Sync + 'static>() {}
    is_error::<message::ContentLengthError>();
    is_error::<message::path::EscapeError>();
    is_error::<message::OpenError>();
    is_error::<message::TargetError>();
    is_error::<pipeline::BodyError>();
    is_error::<pipeline::CallError>();
    is_error::<pipeline::Fault>();
    is_error::<RegisterError>();
}

// A handler that is an async function, and variables that the program defines.
#[test]
fn async_handlers_and_variables() {
    run(async {
        let server = Server::builder()
            .handler("greet", |_, _| {
                Ok(Box::new(async_handler(|request| async move {
                    let name = request.head().target().query().unwrap_or("nobody").to_owned();
                    Ok(format!("hello {name}\n"))
                })))
            })
            .directive("greet", Order::Last, Syntax::Handler(|_| Ok(json!({ "handler": "greet" }))))
            .environment(|name| (name == "WHERE").then(|| "127.0.0.1".to_owned()))
            .caddyfile(":0 {\n\tbind {$WHERE}\n\theader Env {env.WHERE}\n\tgreet\n}\n")
            .workers(2)
            .start()
            .await
            .unwrap();
        assert_eq!(served(&server, "/?you").await, (200, "hello you\n".to_owned()));
        assert_eq!(served(&server, "/").await, (200, "hello nobody\n".to_owned()));
        assert_eq!(server.status().unwrap().panics, 0);
    });
}

// All code in docs/embedding.md is part of the examples.
#[test]
fn the_guide_shows_the_examples() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
    let guide = read("../../docs/embedding.md");
    let examples = [read("examples/embed.rs"), read("examples/tower_service.rs")];
    let blocks: Vec<_> = guide.split("```rust\n").skip(1).map(|block| block.split("```").next().unwrap()).collect();
    assert_eq!(blocks.len(), 5);
    for block in blocks {
        assert!(examples.iter().any(|example| example.contains(block)), "{block}");
    }
    assert!(guide.contains(embed::CADDYFILE));
}

// RFC 5280 §6: the client trusts only the local authority, which has signed the certificate. Skipped without curl.
#[test]
fn certificates_for_a_tower_service() {
    let directory = std::env::temp_dir().join(format!("causeway-automatic-{}", std::process::id()));
    let router = axum::Router::new().route("/", axum::routing::get(async || "hello"));
    run(async {
        let server = tower_service::start("127.0.0.1:0", &["app.localhost"], &directory, router).await.unwrap();
        let port = server.addresses()[0].port();
        let trusted = ["--cacert", &format!("{}/pki/authorities/local/root.crt", directory.display())];
        let curl = |name: &str| {
            let route = format!("{name}:443:127.0.0.1:{port}");
            let url = format!("https://{name}/");
            Command::new("curl").args(["-s", "--connect-to", &route]).args(trusted).arg(url).output()
        };
        let Ok(answer) = curl("app.localhost") else { return };
        assert_eq!(String::from_utf8(answer.stdout).unwrap(), "hello", "{}", answer.status);
        assert!(!curl("other.localhost").unwrap().status.success(), "no certificate");
        server.shutdown().await;
    });
    std::fs::remove_dir_all(&directory).unwrap();
}

// As in a configuration: a mistake has its JSON path, and a key without a meaning is one.
#[test]
fn refused_settings_of_certificates() {
    let directory = std::env::temp_dir();
    run(async {
        for (tls, want) in [
            (json!({ "certificates": { "automat": ["a"] } }), "apps.tls.certificates.automat: unknown field `automat`"),
            (json!({ "certificates": { "automate": ["*.example.com"] } }), "*.example.com"),
        ] {
            let error = AutomaticCertificates::start(tls, &directory).await.unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        }
    });
}
