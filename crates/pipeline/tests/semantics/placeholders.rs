//! Placeholders (Caddy's documentation: "Placeholders", and the JSON structure of `apps/http`).

use std::rc::Rc;
use std::time::Duration;

use causeway_message::Version;
use causeway_pipeline::build::ServerSpec;
use causeway_pipeline::{Context, FamilyId, Handler, Registry, Step, Trust};
use causeway_testkit::{Kit, Request};
use serde_json::{Value, json};

use crate::probe::registry;

fn routes(text: &str) -> Value {
    json!([{ "handle": [
        { "handler": "probe", "mark": "a", "set_variable": ["v", "<{http.request.method}>"] },
        { "handler": "probe", "mark": "b", "enter": "respond", "body": text },
    ] }])
}

fn kit(text: &str) -> Kit {
    Kit::new(&registry(), &routes(text))
}

fn check(request: &Request, cases: &[(&str, &str)]) {
    for (text, want) in cases {
        assert_eq!(kit(text).send(request).text(), *want, "{text}");
    }
}

// Caddy: labels are parts of `{http.request.host}`, which keeps the brackets of an IPv6 host without a port.
#[test]
fn labels_of_an_address() {
    check(
        &Request::get("/").field("Host", "[::1]"),
        &[("{http.request.host}|{http.request.host.labels.0}", "[::1]|[::1]")],
    );
    check(
        &Request::get("/").field("Host", "[::1]:80"),
        &[("{http.request.host}|{http.request.host.labels.0}", "::1|::1")],
    );
}

#[test]
fn of_the_request() {
    let request = Request::new("POST", "/a%20b/c.tar.gz?c=d&e=f+g&c=%26")
        .field("Host", "WWW.Ex.test:81")
        .field("X-Y", "1")
        .field("X-Y", "2")
        .field("Cookie", "a=1; B=\"two\"; d=\u{fc}; d=x\"y; d=3; e")
        .version(Version::Http2);
    check(
        &request,
        &[
            ("", ""),
            ("plain", "plain"),
            ("{http.request.method}|{http.request.orig_method}", "POST|POST"),
            ("{http.request.scheme}://{http.request.hostport}", "http://WWW.Ex.test:81"),
            ("{http.request.uri}", "/a%20b/c.tar.gz?c=d&e=f+g&c=%26"),
            ("{http.request.orig_uri}", "/a%20b/c.tar.gz?c=d&e=f+g&c=%26"),
            ("{http.request.uri_escaped}", "%2Fa%2520b%2Fc.tar.gz%3Fc%3Dd%26e%3Df%2Bg%26c%3D%2526"),
            ("{http.request.host}|{http.request.port}", "WWW.Ex.test|81"),
            ("{http.request.host.labels.0}.{http.request.host.labels.2}{http.request.host.labels.3}", "test.www"),
            ("{http.request.uri.path}|{http.request.orig_uri.path}", "/a b/c.tar.gz|/a b/c.tar.gz"),
            ("{http.request.uri.path_escaped}", "%2Fa+b%2Fc.tar.gz"),
            ("{http.request.uri.path.0}|{http.request.uri.path.1}|{http.request.uri.path.2}", "a b|c.tar.gz|"),
            ("{http.request.orig_uri.path.0}|{http.request.orig_uri.path.1}", "a b|c.tar.gz"),
            ("{http.request.uri.path.dir}|{http.request.uri.path.file}", "/a b/|c.tar.gz"),
            ("{http.request.orig_uri.path.dir}|{http.request.orig_uri.path.file}", "/a b/|c.tar.gz"),
            ("{http.request.orig_uri.path.file_escaped}", "c.tar.gz"),
            ("{http.request.uri.path.file.base}|{http.request.uri.path.file.ext}", "c.tar|.gz"),
            ("{http.request.uri.query}|{http.request.uri.prefixed_query}", "c=d&e=f+g&c=%26|?c=d&e=f+g&c=%26"),
            ("{http.request.orig_uri.query}", "c=d&e=f+g&c=%26"),
            ("{http.request.orig_uri.prefixed_query}", "?c=d&e=f+g&c=%26"),
            ("{http.request.uri.query_escaped}", "c%3Dd%26e%3Df%2Bg%26c%3D%2526"),
            ("{http.request.uri.query.c}|{http.request.uri.query.e}|{http.request.uri.query.x}", "d,&|f g|"),
            ("{http.request.header.x-y}{http.request.header.None}", "1,2"),
            ("{http.request.header.a b}", ""),
            ("{http.request.header.Host}", "WWW.Ex.test:81"),
            ("{http.request.cookie.A}|{http.request.cookie.b}|{http.request.cookie.c}", "1|two|"),
            // Go: pairs with a value that a cookie cannot have are skipped.
            ("{http.request.cookie.d}|{http.request.cookie.e}", "3|"),
            ("{http.request.remote}", "192.0.2.1:4711"),
            ("{http.request.remote.host}|{http.request.remote.port}", "192.0.2.1|4711"),
            ("{http.request.remote.host/24}|{http.request.remote.host/16,64}", "192.0.2.0/24|192.0.0.0/16"),
            ("{http.request.remote.host/40}|{http.request.remote.host/x}", "|"),
            ("{http.request.local.host}|{http.request.local.port}", "192.0.2.80|80"),
            ("{http.request.local}", "192.0.2.80:80"),
            ("{http.request.proto}|{http.request.proto_name}", "HTTP/2.0|HTTP/2"),
            ("{http.request.duration}|{http.request.duration_ms}", "0s|0"),
            ("{http.response.header.Trace}", "in a,in b"),
            ("{http.vars.v}{http.vars.unset}", "<POST>"),
            ("{http.vars.client_ip}|{http.vars.trusted_proxy}", "192.0.2.1|false"),
            ("{http.shutting_down}|{http.time_until_shutdown}", "false|"),
        ],
    );
    let bare = Request::get("/").version(Version::Http10);
    check(
        &bare,
        &[
            ("{http.request.uri}{http.request.uri.query}{http.request.uri.prefixed_query}", "/"),
            ("{http.request.uri.path.file}|{http.request.uri.path.dir}|{http.request.uri.path.0}", "|/|"),
            ("{http.request.proto}|{http.request.proto_name}", "HTTP/1.0|HTTP/1.0"),
            ("{http.request.port}", ""),
        ],
    );
    let v6 = Request::get("/").peer("[2001:db8:1:2::3]:9".parse().unwrap());
    check(&v6, &[("{http.request.remote}|{http.request.remote.host/24,32}", "[2001:db8:1:2::3]:9|2001:db8::/32")]);
    // As in Caddy, whose addresses are Go's: a peer of a Unix socket is `@`, and the local address is the path; neither
    // has a port.
    check(
        &Request::get("/").over_unix("/run/x.sock"),
        &[
            ("{http.request.remote}|{http.request.remote.host}|{http.request.remote.port}", "@|@|"),
            ("{http.request.remote.host/24}|{http.vars.client_ip}|{http.vars.trusted_proxy}", "@||false"),
            ("{http.request.local}|{http.request.local.host}", "/run/x.sock|/run/x.sock"),
            ("{http.request.local.port}", ""),
        ],
    );
    for (authority, want) in [("[::1]", "[::1]|"), ("[::1]:8", "::1|8"), ("a.test:8", "a.test|8")] {
        check(&Request::get("/").field("Host", authority), &[("{http.request.host}|{http.request.port}", want)]);
    }
    // Caddy keeps a bare question mark in `{uri}`.
    check(&Request::get("/a/?"), &[("{http.request.uri}|{http.request.uri.prefixed_query}", "/a/?|")]);
    check(&Request::get("/a%2Fb%20c"), &[("{http.request.orig_uri.path.file_escaped}", "a%2Fb%20c")]);
}

// The original request stays as it arrived.
#[test]
fn of_the_original_request() {
    let text =
        "{http.request.uri} {http.request.orig_uri} {http.request.orig_uri.path.file} {http.request.uri.path.file}";
    let routes = json!([{ "handle": [
        { "handler": "probe", "mark": "a", "set_target": "/x/y?z" },
        { "handler": "probe", "mark": "b", "enter": "respond", "body": text },
    ] }]);
    let answer = Kit::new(&registry(), &routes).send(&Request::get("/o/p%20q?r"));
    assert_eq!(answer.text(), "/x/y?z /o/p%20q?r p q y");
}

#[test]
fn constant_placeholders() {
    let mut registry = registry();
    registry.set_environment(|name| (name == "NAME").then(|| "value {http.request.method}".to_owned()));
    let show =
        |text: &str, registry: &Registry| Kit::new(registry, &routes(text)).send(&Request::get("/")).text().to_owned();
    // The value of an environment variable is literal text; placeholders in it are not expanded.
    assert_eq!(show("<{env.NAME}{env.NONE}>", &registry), "<value {http.request.method}>");
    assert_eq!(show("{system.slash}{system.os}", &registry), "/linux");
    assert_eq!(show("{system.wd}", &registry), std::env::current_dir().unwrap().display().to_string());
    assert!(!show("{system.hostname}{system.arch}", &registry).contains('{'));
    let file = std::env::temp_dir().join(format!("causeway-placeholder-{}", std::process::id()));
    std::fs::write(&file, "secret\r\n").unwrap();
    assert_eq!(show(&format!("<{{file.{}}}>", file.display()), &registry), "<secret>");
    std::fs::remove_file(&file).unwrap();
    assert_eq!(show(&format!("<{{file.{}}}>", file.display()), &registry), "<>");
}

// The kit's clock starts at 2030-01-01T00:00:00Z.
#[test]
fn of_the_clock() {
    let mut kit = kit("{time.now.unix}|{time.now.unix_ms}|{time.now.http}|{time.now.year}|{http.request.duration}");
    kit.worker().advance(Duration::from_millis(86_400_000 * 3 + 5));
    assert_eq!(kit.send(&Request::get("/")).text(), "1893715200|1893715200005|Fri, 04 Jan 2030 00:00:00 GMT|2030|0s");
    for (name, shape) in [
        ("time.now.rfc3339", "dddd-dd-ddTdd:dd:dd"),
        ("time.now.common_log", "dd/Jan/2030:dd:dd:dd +dddd"),
        ("time.now", "dddd-dd-dd dd:dd:dd."),
    ] {
        let text = self::kit(&format!("{{{name}}}")).send(&Request::get("/")).text().to_owned();
        let fits =
            |(got, want): (char, char)| if want == 'd' { got.is_ascii_digit() } else { got == want || want == '+' };
        assert!(text.len() >= shape.len() && text.chars().zip(shape.chars()).all(fits), "{name}: {text}");
    }
}

#[test]
fn of_the_fault() {
    let text = "{http.error.status_code} {http.error.status_text} {http.error.message}|{http.error.id}";
    let routes = json!([{ "handle": [{ "handler": "probe", "mark": "a", "enter": "404" }] }]);
    let errors = self::routes(text);
    let answer = Kit::with_errors(&registry(), &routes, &errors).send(&Request::get("/"));
    let (front, id) = answer.text().split_once('|').unwrap();
    // Caddy, HTTPErrorConfig.WithError: the status text is the message of a fault that has none.
    assert_eq!(front, "404 Not Found Not Found");
    assert!(id.len() == 9 && id.chars().all(|ch| ch.is_ascii_alphanumeric()), "{id}");
    // Unknown outside of error routes.
    check(&Request::get("/"), &[("{http.error.status_code}", "{http.error.status_code}")]);
}

// The client's address by Caddy's `trusted_proxies`; the unit tests of `trust` cover the rules.
#[test]
fn of_the_client() {
    let routes = routes("{http.vars.client_ip}|{http.vars.trusted_proxy}|{http.request.remote.host}");
    let trust = Trust::new(vec!["192.0.2.0/24".parse().unwrap()], &["X-Forwarded-For"], false).unwrap();
    let server = ServerSpec { trust: Some(trust), ..ServerSpec::new("s", &routes) };
    let mut kit = Kit::of(&registry(), &server).unwrap();
    let request = Request::get("/").field("X-Forwarded-For", "203.0.113.7, 192.0.2.9");
    assert_eq!(kit.send(&request).text(), "203.0.113.7|true|192.0.2.1");
    let untrusted = request.peer("198.51.100.1:5".parse().unwrap());
    assert_eq!(kit.send(&untrusted).text(), "198.51.100.1|false|198.51.100.1");
}

// Caddy's replacer: an unknown name stays or becomes empty, depending on the template; a backslash escapes a brace.
#[test]
fn text_that_is_no_placeholder() {
    let request = Request::get("/");
    check(
        &request,
        &[
            ("{unknown} {", "{unknown} {"),
            ("{}", "{}"),
            ("\\{http.request.method\\} \\n", "{http.request.method} \\n"),
            ("{{http.request.method}}", "{GET}"),
            ("a { color: {http.request.method} }", "a { color: GET }"),
            ("{ \"json\": \"{http.request.method}\" }", "{ \"json\": \"GET\" }"),
            ("}{", "}{"),
            ("{a {http.request.method} {b {c \\{d\\}", "{a GET {b {c {d}"),
            ("{http.request.header.x\\}y}|", "|"),
        ],
    );
    for (text, want) in [
        ("<{unknown}>", "<>"),
        ("<{}>", "<>"),
        ("<{a {http.request.method}}>", "<}>"),
        ("<{http.error.status_code}>", "<>"),
        ("<{open", "<{open"),
    ] {
        let set = json!({ "handler": "probe", "mark": "a", "set_variable": ["x", text] });
        let show = json!({ "handler": "probe", "mark": "b", "enter": "respond", "body": "{http.vars.x}" });
        let answer = Kit::new(&registry(), &json!([{ "handle": [set, show] }])).send(&request);
        assert_eq!(answer.text(), want, "{text}");
    }
}

// A module may set any name during the request, before or after the template with that name was compiled.
#[test]
fn placeholders_set_by_modules() {
    let show = |mark: &str| json!({ "handler": "probe", "mark": mark, "set_variable": [mark, "{mine}"] });
    let routes = json!([{ "handle": [
        show("before"),
        { "handler": "probe", "mark": "m", "set_slot": ["mine", "{http.request.method}!"] },
        show("after"),
        { "handler": "probe", "mark": "r", "enter": "respond", "body": "{http.vars.before}|{http.vars.after}|{mine}{other}" },
    ] }]);
    let mut kit = Kit::new(&registry(), &routes);
    assert_eq!(kit.send(&Request::get("/")).text(), "|GET!|GET!{other}");
    assert_eq!(kit.send(&Request::new("PUT", "/")).text(), "|PUT!|PUT!{other}");
}

/// Sets every placeholder of its family that the plan uses to its own name in capitals.
struct Capitals(FamilyId);

impl Handler for Capitals {
    fn enter(&self, cx: &mut Context) -> Step {
        let generation = Rc::clone(cx.generation());
        for (name, id) in generation.plan().family(self.0) {
            cx.set_variable_text(*id, name.to_ascii_uppercase().as_bytes());
        }
        Step::Next
    }
}

// A module's set of placeholders may be open: the build collects those that the plan uses, before or after the
// module.
#[test]
fn a_placeholder_family_has_the_members_used_in_the_plan() {
    let mut registry = registry();
    registry.register_handler("capitals", |_, build| Ok(Box::new(Capitals(build.allocate_family("http.capitals.")))));
    let show = |text: &str| json!({ "handler": "probe", "enter": "respond", "body": text });
    let capitals = json!({ "handler": "capitals" });
    let routes = json!([{ "handle": [capitals, show("{http.capitals.a} {http.capitals.b.c} {http.capital.d} {http.capitals.a}")] }]);
    assert_eq!(Kit::new(&registry, &routes).send(&Request::get("/")).text(), "A B.C {http.capital.d} A");
    let routes = json!([{ "handle": [capitals, capitals, show("none")] }]);
    assert_eq!(Kit::new(&registry, &routes).send(&Request::get("/")).text(), "none");
}
