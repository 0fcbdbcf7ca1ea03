//! Rules, locations and addresses, with the requests that distinguish them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use causeway_testkit::ports::free_port;

use crate::support::*;

/// nginx's documentation of `valid_referers`.
#[test]
fn referers_that_are_refused_equal_those_of_nginx() {
    let referers = "http://example.com https://EXAMPLE.com/x http://example.com:8080/ http://example.com.evil.test/ \
                    http://evil.test/example.com http://a.partner.test/ http://partner.test/ http://shop.test/ http://shop \
                    http://friend.test/gallery/1 http://friend.test/other http://friend.test:80/gallery/ http://www.search.test/ \
                    example.com nonsense ftp://x http:// https://evil.test";
    let fields: Vec<_> = referers.split_ascii_whitespace().map(|referer| format!("Referer: {referer}\r\n")).collect();
    let lines = || fields.iter().map(String::as_str).chain([""]);
    let paths = ["/assets/app.css", "/a/", "/b/"];
    let cases: Vec<_> = paths.into_iter().flat_map(|path| lines().map(move |line| ("GET", path, line))).collect();
    compare("referers", &[], &cases);
}

/// Fields whose value is empty are not sent, other methods are refused before a `return`, and rules after one with a
/// flag do not apply.
#[test]
fn rules_and_fields_equal_those_of_nginx() {
    let origin = "Origin: https://www.example.com\r\n";
    let cases = [
        ("GET", "/page.html", ""),
        ("GET", "/page.html?kind=", ""),
        ("GET", "/page.html?kind=a", origin),
        ("GET", "/page.html", "Origin: https://example.com\r\n"),
        ("GET", "/page.html", "Origin: https://other.test\r\n"),
        ("POST", "/missing", origin),
        ("GET", "/go/x/y", ""),
        ("GET", "/text", ""),
        ("POST", "/text", ""),
        ("HEAD", "/old", ""),
        ("DELETE", "/old", ""),
    ];
    compare("named_rewrite", &["access-control-allow-origin", "x-kind", "location"], &cases);
    // The groups of a redirect's target are encoded again.
    let redirects =
        "/moved/a%20b /moved/%C3%A4?x=1 /moved/a%25b /moved/ /gone/a%20b?x=1 /gone/%E4 /find/a/b /find/a/b?y=%20";
    let cases: Vec<_> = redirects.split(' ').map(|path| ("GET", path, "")).collect();
    compare("named_rewrite", &["location"], &cases);
    let paths =
        ["/kind", "/kind?debug=1", "/page.html", "/user/1", "/go/x", "/strip/x", "/files/a.txt", "/files/b/c.txt"];
    compare("rewrite_if", &[], &paths.map(|path| ("GET", path, "")));
}

/// nginx's documentation of `try_files` and `rewrite`: they choose another location after the rules of the first have
/// applied.
#[test]
fn rules_before_another_location_equal_those_of_nginx() {
    let deny = "X-Deny: 1\r\n";
    let long = format!("Content-Length: 200\r\n\r\n{}", "x".repeat(198));
    let cases = [
        ("GET", "/page.html", ""),
        ("GET", "/page.html", deny),
        ("GET", "/none", ""),
        ("GET", "/none", deny),
        ("GET", "/none?limited=a", ""),
        ("GET", "/none?limited=a", ""),
        ("GET", "/page.html?limited=b", ""),
        ("GET", "/none?limited=b", ""),
        ("POST", "/none", "Content-Length: 0\r\n"),
        ("POST", "/none", &long),
        ("GET", "/closed/x", ""),
        ("GET", "/old/page.html", ""),
        ("GET", "/old/none?a=b", ""),
        ("GET", "/old/page.html?stop=1", ""),
        ("GET", "/old/page.html", deny),
        ("GET", "/private/index.html", ""),
        ("GET", "/private/x", ""),
        ("GET", "/own/x", ""),
        ("GET", "/locked/x", ""),
    ];
    compare("rules_before", &[], &cases);
}

/// nginx's documentation of `break` and of the flags of `rewrite`: no rule after them applies.
#[test]
fn rules_after_a_flag_equal_those_of_nginx() {
    let paths = "/ /page.html?a=1 /page.html?a=1&b=1 /page.html?b=1 /r /r?b=1 /one/ /one/x?q=1 /two/page.txt /two/page.txt?c=1 \
                 /two/x?c=1 /three/ /three/?c=1";
    let mut cases: Vec<_> = paths.split_ascii_whitespace().map(|path| ("GET", path, "")).collect();
    cases.extend(["/three/", "/three/?c=1", "/one/"].map(|path| ("POST", path, "Content-Length: 0\r\n")));
    compare("rules_end", &["location"], &cases);
}

/// nginx's documentation of `rewrite`: after `break` the request stays in its location, even if other rules have
/// changed the path.
#[test]
fn a_break_with_other_rules_equals_that_of_nginx() {
    let paths = "/closed/x /closed/old/x /closed/index.html /leaves/index.html /leaves/one/index.html /asked/index.html /asked/index.html?a=1 \
                 /asked/index.html?b=1 /asked/index.html?b=1&c=1 /asked/index.html?c=1 /asked/two/index.html /ended/index.html /more/page.html \
                 /more/old/page.html /more/b/ /more/b /more /up/x?y=1 /up/old/x /named/one/ /named/x?y=1 /named/x /twice/x?y=1 /twice/ /view/x \
                 /page.html /opened/ /opened/index.html /opened/none /within/index.html /within/index.html?a=1 /answer/x?a=1 /answer/y?a=1 \
                 /answer/x /tried/index.html /tried/ /tried/away /tried/none";
    let cases: Vec<_> = paths.split_ascii_whitespace().map(|path| ("GET", path, "")).collect();
    compare("kept", &["location", "x-kind"], &cases);
}

/// nginx's documentation of `location`: the path is compared without encoding, dot segments and double slashes.
#[test]
fn paths_in_conditions_equal_those_of_nginx() {
    let paths = "/mapped/x //mapped/x /./mapped/x /x/../mapped/x /exact/mapped //Exact/Mapped /admin //admin /./admin /x/../admin \
                 /%61dmin /equal //equal /EQUAL /upper //upper /page.html /a/page /.env /.well-known/x /.well-known/.env /.w \
                 /.well-known2 /names/abc //names/abc /names/ /names/1 /folder/ /folder /folder//x /folder/one/ /folder/one /a/b";
    let cases: Vec<_> = paths.split_ascii_whitespace().map(|path| ("GET", path, "")).collect();
    compare("paths_as_sent", &[], &cases);
    let Some(nginx) = installed_nginx() else { return };
    let directory = ShapeDirectory::new("dot-segments");
    let (ports, _servers) = both(nginx, &shape("paths_as_sent"), &directory, [1, 1]);
    for path in ["/folder/.", "/folder/x/..", "/folder/%2e", "/folder/one/.", "/folder/one/x/.."] {
        let [theirs, ours] = ports.map(|port| request(port, "GET", "example.com", path).status);
        assert!(theirs >= 400 && ours == 400, "{path}: {theirs} {ours}");
    }
}

/// nginx's documentation of `$uri`: it is the path without encoding, dot segments and double slashes, also in a text
/// beside others.
#[test]
fn resolved_paths_equal_those_of_nginx() {
    let rules =
        ["private/x", "secret/x", "admin/x", "script/x", "assets/app.css", "equal/x", "local/index.html", "page.html"];
    let forms = ["/", "//", "/./", "/x/../", "/%2e/", "/x/%2E%2e//"];
    let mut paths: Vec<String> = rules.iter().flat_map(|rule| forms.map(|form| format!("{form}{rule}"))).collect();
    paths.extend(["/private/%FF", "/admin/%FF", "/admin//%FF%0a", "/assets/%C3%BC"].map(String::from));
    let others = "/up/a//b/../c /up/a%20b /same//a/./b /text//x/../y /to//evil/./x /files//none/../z /files/a%26b";
    paths.extend(others.split(' ').map(String::from));
    let cases: Vec<_> = paths.iter().map(|path| ("GET", path.as_str(), "")).collect();
    compare("resolved_paths", &["location", "x-kind"], &cases);
}

/// nginx makes the target of `return` absolute if its value begins with a slash: a browser would take `//name/` for
/// another host.
#[test]
fn redirects_to_paths_equal_those_of_nginx() {
    let paths = "//evil.com /x//evil.com /index.php//evil.com/ /index.php/evil.com/ /a/index.php/x /%5cevil.html /x.html /mapped/%5cevil \
                 /mapped//evil.com /url /sent/x?y=1 /sent//x /set /set//x /scheme/x /one//evil.com /three/evil.com";
    let cases: Vec<_> = paths.split_ascii_whitespace().map(|path| ("GET", path, "")).collect();
    compare("redirect_origin", &["location"], &cases);
}

/// nginx's documentation of `location`, and its order for locations within others.
#[test]
fn nested_locations_equal_those_of_nginx() {
    let paths = "/in/ /in/one/ /in/x.txt /in/up /in/up/ /in /p/ /p/x /p/q/t /p/q/x /p/t /p/r/t /p/r/ /p/r/s/ /p/r/s/t /p/r/s/x \
                 /e/ /e/a.txt /e/f/a.txt /e/f/x /e/x /a.txt /x /f/a.txt";
    let cases: Vec<_> = paths.split_ascii_whitespace().map(|path| ("GET", path, "")).collect();
    compare("nested_order", &["location"], &cases);
}

/// A request with `%25` cannot make a path of another meaning, as by `%252e%252e`.
#[test]
fn escapes_in_groups_equal_those_of_nginx() {
    let rests = [
        "page.html",
        "%252e%252e/page.html",
        "..%252fpage.html",
        "page%252ehtml",
        "a%3Fb",
        "a%23b",
        "a%2525b",
        "a%20b",
        "%C3%BC",
    ];
    let paths: Vec<String> = ["al", "f", "k", "l", "s", "n"]
        .iter()
        .flat_map(|directory| rests.map(|rest| format!("/{directory}/{rest}")))
        .collect();
    // In a redirect nginx writes the `?` of a group without its escape, so that a query begins there.
    let paths = paths.iter().filter(|path| *path != "/l/a%3Fb");
    let cases: Vec<_> = paths.map(|path| ("GET", path.as_str(), "")).collect();
    compare("escapes", &["location"], &cases);
}

/// The path of a directory without its slash, whose listing is that of a location or whose directory is that of an
/// alias.
#[test]
fn listings_equal_those_of_nginx() {
    let paths = ["/assets", "/assets?x=1", "/assets/app.css", "/none", "/none/"];
    compare("listing", &["location"], &paths.map(|path| ("GET", path, "")));
    compare("autoindex", &["location"], &[("GET", "/assets", "")]);
    let paths = [
        "/media",
        "/media?x=1",
        "/media/app.css",
        "/docs",
        "/docs/x.txt",
        "/spa/x",
        "/spa/x/y",
        "/spa/",
        "/spa",
        "/none/x",
    ];
    compare("alias_slash", &["location", "x-kind"], &paths.map(|path| ("GET", path, "")));
}

/// nginx's documentation of `map`: texts are compared ignoring case, and before expressions.
#[test]
fn texts_of_a_map_equal_those_of_nginx() {
    let kinds = ["abc", "ABC", "Abc", "abcd", "default", "~b", "b", "12", "123", "Two Words", "x two words", ""];
    let fields = kinds.map(|kind| format!("X-Kind: {kind}\r\n"));
    let mut cases: Vec<_> = fields.iter().map(|field| ("GET", "/", field.as_str())).collect();
    cases.extend([("GET", "/", ""), ("GET", "/?a='", ""), ("GET", "/?a=b", "")]);
    compare("map_texts", &[], &cases);
    let Some(nginx) = installed_nginx() else { return };
    let directory = ShapeDirectory::new("hosts-of-conditions");
    let (ports, _servers) = both(nginx, &shape("map_texts"), &directory, [1, 1]);
    for host in ["Example.Com", "other.example.com", "OTHER.example.com", "Third.x", "third", "FOUR.x", "five"] {
        let [theirs, ours] = ports.map(|port| request(port, "GET", host, "/"));
        assert_eq!(theirs, ours, "{host}: nginx, then causeway");
    }
}

/// The counting upstream's response has the field X-Real-IP of the request. `auth_request_set` and `$remote_user` are
/// empty without a subrequest and a password.
#[test]
fn fields_of_clients_equal_those_of_nginx() {
    let lines = ["", "X-Real-IP: 192.0.2.1\r\n", "X-User: ann\r\nX-Real-IP: 192.0.2.1\r\n"];
    let paths = ["/free/x", "/user/x", "/x", "/auth/plain"];
    let cases: Vec<_> = paths.iter().flat_map(|path| lines.map(|line| ("GET", *path, line))).collect();
    compare("fields_up", &[], &cases);
    // Without the client's method, fields and content.
    let user = "X-User: ann\r\nX-Real-IP: 192.0.2.1\r\n";
    let with_content = "X-Real-IP: 192.0.2.1\r\nContent-Length: 0\r\n";
    compare("fields_up", &[], &[("GET", "/bare/x", user), ("POST", "/bare/y", with_content)]);
    // A condition sets a variable that has a value without it.
    let lines = ["", "X-Proto: https\r\n"];
    let cases: Vec<_> = lines.iter().map(|line| ("GET", "/kept/x", *line)).collect();
    compare("fields_up", &[], &cases);
    compare("map_path", &[], &["/", "/go", "/page.html", "/index.html", "/404.html"].map(|path| ("GET", path, "")));
    let paths = ["/host/a%20b%25z%C3%BC?x=y", "/host/", "/exact", "/exact/", "/exact/x"];
    compare("rewrites", &["location"], &paths.map(|path| ("GET", path, "")));
}

/// nginx's documentation of `listen`: each address and port has its own servers and its own default server.
#[test]
fn addresses_of_servers_equal_those_of_nginx() {
    let Some(nginx) = installed_nginx() else { return };
    let directory = ShapeDirectory::new("addresses");
    let text = |ports: [u16; 2]| {
        let [a, b] = ports;
        format!(
            "server {{ listen 127.0.0.1:{a}; listen 127.0.0.2:{b}; listen 127.0.0.3:{a}; server_name one.test; return 200 one; }}
             server {{ listen 127.0.0.2:{a}; server_name two.test; return 200 two; }}
             server {{ listen 127.0.0.2:{a}; listen 127.0.0.3:{a} default_server; server_name three.test; return 200 three; }}
             server {{ listen {b}; server_name one.test; return 200 four; }}"
        )
    };
    let ports = [[free_port(), free_port()], [free_port(), free_port()]];
    for (name, ports) in ["theirs", "ours"].into_iter().zip(ports) {
        let complete = complete(&text(ports), &directory, [0, 0], 1);
        std::fs::write(directory.0.join(format!("{name}.conf")), complete).unwrap();
    }
    let mut command = Command::new(nginx);
    command.arg("-p").arg(&directory.0).arg("-c").arg(directory.0.join("theirs.conf")).args(["-g", "daemon off;"]);
    let _nginx = start(command, ports[0][0], &directory.0.join("theirs.log"));
    let command = directory.causeway(&["run", "--adapter", "nginx", "--config", "ours.conf"]);
    let _causeway = start(command, ports[1][0], &directory.0.join("ours.log"));
    let answer = |ip: &str, port: u16, host: &str| {
        let Ok(mut stream) = TcpStream::connect((ip, port)) else { return "no listener".to_owned() };
        write!(stream, "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text.rsplit("\r\n").next().unwrap_or_default().to_owned()
    };
    for ip in ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"] {
        for port in [0, 1] {
            for host in ["one.test", "two.test", "three.test", "other.test"] {
                let [theirs, ours] = ports.map(|ports| answer(ip, ports[port], host));
                assert_eq!(theirs, ours, "{ip}, port {port}, {host}: nginx, then causeway");
            }
        }
    }
}

#[test]
fn addresses_of_clients_equal_those_of_nginx() {
    let chains = [
        "",
        "X-Forwarded-For: 192.0.2.7\r\n",
        "X-Forwarded-For: 192.0.2.7, 10.1.1.1\r\n",
        "X-Forwarded-For: 192.0.2.7, 198.51.100.1\r\n",
        "X-Forwarded-For: 198.51.100.1, 192.0.2.7\r\n",
        "X-Forwarded-For: nonsense\r\n",
    ];
    let paths = ["/", "/kind", "/admin/index.html", "/api/plain"];
    let cases: Vec<_> = chains.iter().flat_map(|chain| paths.map(|path| ("GET", path, *chain))).collect();
    compare("real_ip", FIELDS, &cases);
    let networks = [("GET", "/kind", ""), ("GET", "/", ""), ("GET", "/", ""), ("GET", "/admin/", "")];
    compare("geo", FIELDS, &networks);
}

/// Names with a wildcard at the end and expressions are found in nginx's order, with their groups.
#[test]
fn hosts_of_patterns_equal_those_of_nginx() {
    let Some(nginx) = installed_nginx() else { return };
    let directory = ShapeDirectory::new("hosts");
    let ([theirs, ours], _servers) = both(nginx, &shape("host_patterns"), &directory, [1, 1]);
    let hosts = "main.test a.example.com b.example.com private.example.com www.example.com www.example.org www.other.test \
                 two.example.com two.x three.example.com x.three.example.com x.y.three.example.com three.zone x..example.com ...example.com \
                 none.test www.";
    for host in hosts.split_ascii_whitespace() {
        for path in ["/", "/kind", "/user/12", "/index.html", "/missing", "/a.txt"] {
            let (a, b) = (request(theirs, "GET", host, path), request(ours, "GET", host, path));
            assert_eq!(a, b, "{host} {path}: nginx, then causeway");
        }
    }
}

/// Rules of Gitea's documentation, with which the upstream gets the URI as it was sent, without a prefix.
#[test]
fn a_prefix_of_the_uri_as_sent_is_removed_as_by_nginx() {
    let paths = "/git/ /git /git/a%2Fb?c=%20d /git/a%20b /git/%C3%A4 /rest/a%2Fb /other/x%2Fy?z /git/moved \
                 /gitea/ /gitea /gitea?a=1 /gitea/a%2Fb?c=%20d /gitea/%C3%A4 /v2/x%2Fy?z=1 /v2";
    let cases: Vec<_> = paths.split(' ').map(|path| ("GET", path, "")).collect();
    compare("uri_as_sent", &["location"], &cases);
}

/// nginx's documentation of `$args`: its value can be changed, and is the query of the request.
#[test]
fn a_query_that_rules_set_equals_that_of_nginx() {
    let paths = "/api/x /api/x?y=1 /api/uri/x?y=1 /api/more/x?y=1 /api/none/x?y=1 /api/if/x?p=12 /api/if/x?p=a /api/sent/x?y=1 \
                 /api/none/x?all=1 /br/x?y=1 /re/x?y=1 /see?y=1 /old/x?y=1 /text?y=1 /text /to/x?all=1&y=2 \
                 /api/both/x?y=1";
    let cases: Vec<_> = paths.split_ascii_whitespace().map(|path| ("GET", path, "")).collect();
    compare("set_args", &["location"], &cases);
}

/// nginx's documentation of `if`: the condition is evaluated once, before the rules within it.
#[test]
fn a_condition_whose_rules_change_its_value_equals_that_of_nginx() {
    let paths = "/?p=1 /?q=1 /x?p=1 /s/x /s/x?f=1 /t/x?f=1 /old/x /new/x /none/x /page.html /n/x /m/x /v/x /v";
    let cases: Vec<_> = paths.split(' ').map(|path| ("GET", path, "")).collect();
    compare("conditions_once", &["location"], &cases);
}

/// nginx's documentation of `set`: a value that contains its own variable grows once for each time that the location is
/// chosen.
#[test]
fn values_that_contain_their_own_variable_equal_those_of_nginx() {
    let paths =
        "/x/k /x/nok /y/k /if/k /if/k?q=1 /if/nok?q=1 /if/againk /to/k /query/k?y=1 /query/nok?y=1 /named/k /named/nok";
    let cases: Vec<_> = paths.split(' ').map(|path| ("GET", path, "")).collect();
    compare("repeated_sets", &[], &cases);
}

/// nginx's documentation of `location`: the case of a path matters. A rule that refuses a path cannot be passed by
/// another case.
#[test]
fn paths_in_another_case_equal_those_of_nginx() {
    let paths = "/files/a.txt /FILES/a.txt /files/b/c.txt /FILES/b/c.txt /files/B/c.txt /app/admin /APP/admin /App/x /app/x /app/ADMIN \
                 /outer/x /OUTER/x /outer/exact /outer/EXACT /Outer/exact /outer/x.php /OUTER/x.php /Admin /admin /ADMIN";
    let cases: Vec<_> = paths.split_ascii_whitespace().map(|path| ("GET", path, "")).collect();
    compare("path_case", &[], &cases);
    let paths = "/x /public/x /PUBLIC/x /Public/x /exact /EXACT /%50UBLIC/x";
    let cases: Vec<_> = paths.split_ascii_whitespace().map(|path| ("GET", path, "")).collect();
    compare("access_case", &[], &cases);
}

/// A negative look-ahead in one of several alternatives, and in a rule.
#[test]
fn look_ahead_equals_that_of_nginx() {
    let paths = "/page.html /x.yml /x.INC~ /.git/config /.well-known/x /.WELL-KNOWN/x /a/.hidden /composer.json /assets/app.js /assets/app.css \
                 /old/ /old/x /old/a/ /old/a/b /old/ab /old/b.html /old/b.htm /old/x.keep /old/.keep \
                 /deep/x /deep/a/x /deep/a/x.rar /deep/ /x.rar /x.rar/y";
    let cases: Vec<_> = paths.split_ascii_whitespace().map(|path| ("GET", path, "")).collect();
    compare("look_ahead", &[], &cases);
}

/// nginx's documentation of `return`, `default_type` and `types`. A named group is a variable also after later
/// expressions.
#[test]
fn answers_equal_those_of_nginx() {
    let paths = ["/robots.txt", "/none.xyz", "/a/x.css", "/ab/12", "/old/12"];
    let kinds = ["", "X-Kind: a1\r\n", "X-Kind: a\r\n", "X-Kind: b\r\n"];
    let cases: Vec<_> = paths.iter().flat_map(|path| kinds.map(|kind| ("GET", *path, kind))).collect();
    compare("answers", &["location"], &cases);
    // A file of text has `charset=utf-8` here.
    compare("answers", &["content-type"], &paths[..3].iter().map(|path| ("GET", *path, "")).collect::<Vec<_>>());
}

/// nginx's documentation of `try_files`: a named location gets the URI of the request.
#[test]
fn named_locations_after_an_alias_equal_those_of_nginx() {
    let paths = "/files/a.txt /files/none?x=1 /files/a%20b /files/b/c.txt /files/b/none /d/a /d/a.txt /d/b/c /d/b /d/ /d/none?x=1";
    let cases: Vec<_> = paths.split_ascii_whitespace().map(|path| ("GET", path, "")).collect();
    compare("alias_named", &["x-kind"], &cases);
}
