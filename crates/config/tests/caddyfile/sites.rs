use serde_json::{Value, json};

use super::{json, read};

fn servers(source: &str) -> Value {
    json(source)["apps"]["http"]["servers"].clone()
}

/// Listener addresses by server, in the order of the servers.
fn listens(source: &str) -> Vec<Value> {
    servers(source).as_object().unwrap().values().map(|server| server["listen"].clone()).collect()
}

// A host listens on the HTTPS port, http:// on the HTTP port, a port on that port. Addresses of one listener form one
// server.
#[test]
fn listeners() {
    assert_eq!(listens("a.test {\n}\n"), [json!([":443"])]);
    assert_eq!(listens("http://a.test {\n}\n"), [json!([":80"])]);
    // In Caddy the port is a number.
    assert_eq!(listens("a.test:08080 {\n}\nb.test:8080 {\n}\nc.test:00 {\n}\n"), [json!([":0"]), json!([":8080"])]);
    assert_eq!(listens("a.test:000443 {\nbind unix//run/0 [::1]\n}\n"), [json!(["[::1]:443", "unix//run/0"])]);
    assert_eq!(listens(":8080 {\n}\na.test:8080 {\nbind 10.0.0.1\n}\n"), [json!(["10.0.0.1:8080"]), json!([":8080"])]);
    assert_eq!(listens("a.test, http://a.test {\n}\n"), [json!([":443"]), json!([":80"])]);
    assert_eq!(listens("a.test {\nbind 10.0.0.1 [::1]\n}\n"), [json!(["10.0.0.1:443", "[::1]:443"])]);
    assert_eq!(listens(":80 {\nbind unix//run/web.sock\n}\n"), [json!(["unix//run/web.sock"])]);
    assert_eq!(
        listens("{\nhttp_port 8080\nhttps_port 8443\n}\na.test, http://b.test {\n}\n"),
        [json!([":8080"]), json!([":8443"])]
    );
}

// The routes of a single site without a host are the server's; otherwise they are wrapped in a terminal route.
#[test]
fn wrapping() {
    let answer = json!([{ "handler": "static_response", "body": "x" }]);
    assert_eq!(servers(":80\nrespond x")["srv0"]["routes"], json!([{ "handle": answer }]));
    let wrapped = json!([{ "handler": "subroute", "routes": [{ "handle": answer }] }]);
    assert_eq!(
        servers("http://a.test, http://b.test/p* {\nrespond x\n}\n")["srv0"]["routes"],
        json!([{ "match": [{ "host": ["a.test"] }, { "host": ["b.test"], "path": ["/p*"] }], "handle": wrapped, "terminal": true }])
    );
    // A host matcher inside must not look like the site's own name.
    let inner = servers(":80 {\n@a host a.test\nrespond @a x\n}\n");
    assert_eq!(inner["srv0"]["routes"][0]["handle"][0]["handler"], "subroute");
    assert_eq!(servers(":80 {\n}\n"), json!({ "srv0": { "listen": [":80"] } }));
}

// The most specific site is first: longer hosts, then longer paths, then wildcards, then every host.
#[test]
fn most_specific_first() {
    let source = ":80 {\n}\nhttp://*.long.example.test {\nrespond w\n}\nhttp://a.test {\nrespond a\n}\nhttp://a.test/deep* {\nrespond d\n}\nhttp://bb.test {\nrespond b\n}\n";
    let routes = servers(source)["srv0"]["routes"].clone();
    let hosts: Vec<_> = routes.as_array().unwrap().iter().map(|route| route["match"][0].clone()).collect();
    assert_eq!(
        hosts,
        [
            json!({ "host": ["bb.test"] }),
            json!({ "host": ["a.test"], "path": ["/deep*"] }),
            json!({ "host": ["a.test"] }),
            json!({ "host": ["*.long.example.test"] }),
        ]
    );
}

#[test]
fn automatic_https() {
    let server = |source: &str| servers(source)["srv0"].clone();
    assert_eq!(server("http://a.test:8080 {\n}\n")["automatic_https"], json!({ "skip": ["a.test"] }));
    assert_eq!(server("{\nauto_https off\n}\na.test {\n}\n")["automatic_https"], json!({ "disable": true }));
    assert_eq!(server("{\nauto_https off\n}\na.test {\n}\n")["tls_connection_policies"], json!([{}]));
    assert_eq!(server("https://:8443 {\n}\n")["tls_connection_policies"], json!([{}]));
    assert_eq!(
        server("{\ndefault_sni b.test\n}\na.test {\n}\n")["tls_connection_policies"],
        json!([{ "default_sni": "b.test" }])
    );
    // Hosts next to an address for every host are in no matcher, so they are listed. Internal ones need their own
    // issuer.
    assert_eq!(
        json(":443, a.test, b.localhost {\n}\n")["apps"]["tls"],
        json!({
            "certificates": { "automate": ["a.test", "b.localhost"] },
            "automation": { "policies": [
                { "subjects": ["a.test"] },
                { "subjects": ["b.localhost"], "issuers": [{ "module": "internal" }] },
            ] },
        })
    );
}

// Policies with equal issuers are joined; those of public and of internal names are not.
#[test]
fn certificate_policies() {
    let policies = |source: &str| json(source)["apps"]["tls"]["automation"]["policies"].clone();
    assert_eq!(
        policies("a.test {\n}\n:443, b.localhost {\nbind 10.0.0.1\n}\n"),
        json!([{ "subjects": ["b.localhost"] }, { "subjects": ["a.test"] }])
    );
    assert_eq!(
        policies("a.test, b.localhost {\n}\n"),
        json!([{ "subjects": ["a.test"] }, { "subjects": ["b.localhost"], "issuers": [{ "module": "internal" }] }])
    );
    assert_eq!(json("a.test {\n}\n")["apps"].get("tls"), None);
}

#[test]
fn error_routes() {
    let server =
        servers(":80 {\nhandle_errors {\nrespond any\n}\nhandle_errors 404 5xx {\nrespond some\n}\n}\n")["srv0"]
            .clone();
    let answer = |body: &str| json!([{ "handler": "subroute", "routes": [{ "handle": [{ "handler": "static_response", "body": body }] }] }]);
    assert_eq!(
        server["errors"]["routes"],
        json!([
            {
                "match": [{ "expression": "{http.error.status_code} >= 500 && {http.error.status_code} <= 599 || {http.error.status_code} in [404]" }],
                "handle": answer("some"),
            },
            { "handle": answer("any") },
        ])
    );
}

#[test]
fn origins() {
    let adapted = read("{\n\tdebug\n}\nHTTP://A.test, :8080 {\n}\n").unwrap();
    let [first, second] = adapted.sites.as_slice() else { panic!("{:?}", adapted.sites) };
    assert_eq!((&*first.written, first.at.to_string()), ("HTTP://A.test", "Caddyfile:4:1".to_owned()));
    assert_eq!((&*first.scheme, &*first.host, &*first.port), ("http", "a.test", ""));
    assert_eq!((second.at.to_string(), &*second.host, &*second.port), ("Caddyfile:4:16".to_owned(), "", "8080"));
}
