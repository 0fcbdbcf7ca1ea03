//! Lines of nginx, and the parts of the Caddyfile and of the notes that they become.

mod refusals;

use super::*;

pub(crate) struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &str) -> Result<String, String> {
        Err("there is no such file".into())
    }

    fn glob(&self, _: &str) -> Vec<String> {
        Vec::new()
    }
}

/// Translates a text; returns the Caddyfile, and the notes as lines.
pub(super) fn translated(text: &str) -> (String, String) {
    let Translation { caddyfile, notes } = translate(text, "n", &NoFiles).unwrap();
    let notes: Vec<String> = notes.iter().map(ToString::to_string).collect();
    (caddyfile, notes.join("\n"))
}

/// Checks the translation of the lines of a block `http`: parts of the Caddyfile, and a part of the notes. With an
/// empty one there must be no notes.
#[track_caller]
fn check(lines: &str, in_caddyfile: &[&str], in_notes: &str) {
    let (caddyfile, notes) = translated(&format!("http {{\n{lines}\n}}"));
    for part in in_caddyfile {
        assert!(caddyfile.contains(part), "{lines}: {part}\n{caddyfile}");
    }
    assert!(notes.contains(in_notes) && notes.is_empty() == in_notes.is_empty(), "{lines}: {notes}");
}

/// Shapes without one of their lines, and with a line that has lost its arguments, are translated or refused.
#[test]
fn damaged_shapes() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/shapes");
    for entry in std::fs::read_dir(directory).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for index in 0..lines.len() {
            let bare = format!("{};", lines[index].split_whitespace().next().unwrap_or_default().trim_end_matches(';'));
            for other in ["", &bare, "server_name ~ .* *.;", "set $app; geo $x; proxy_cache_path; upstream;"] {
                let mut changed = lines.clone();
                changed[index] = other;
                _ = translate(&changed.join("\n"), "n", &NoFiles);
            }
        }
    }
}

// nginx's mime.types: a file's media type has another name here, and its compression must not be lost.
#[test]
fn media_types_to_compress() {
    let own = ["header Content-Type application/javascript*", "header Content-Type text/javascript*"];
    check("gzip on; gzip_types application/javascript; server { root /a; }", &own, "");
    let (caddyfile, _) =
        translated("http { gzip on; gzip_types text/javascript application/javascript; server { root /a; } }");
    assert_eq!(caddyfile.matches("text/javascript").count(), 1, "{caddyfile}");
}

// nginx's documentation of `$server_name`: the first name of the server, and not the client's host.
#[test]
fn the_name_of_a_server_for_programs() {
    let server = |name: &str| {
        format!(
            "server {{ server_name {name}; location / {{ fastcgi_pass unix:/s; fastcgi_param SERVER_NAME $server_name; }} }}"
        )
    };
    check(&server("a.test b.test"), &["env SERVER_NAME a.test"], "");
    let (caddyfile, _) = translated(&format!("http {{ {} }}", server("_")));
    assert!(!caddyfile.contains("SERVER_NAME"), "{caddyfile}");
}

// nginx's documentation of `map`: with `hostnames`, texts come before masks at the start, these before masks at the
// end, and longer masks before shorter ones. A value is the text as it is written.
#[test]
fn masks_of_host_names() {
    let map = "map $host $site { hostnames; default d; a.test t;\n# the short one\n*.a.test 007; *.b.a.test l; .c.test c; www.* w; }";
    let (caddyfile, notes) = translated(&format!("http {{ {map} server {{ location / {{ return 200 $site; }} }} }}"));
    let places = [
        r#"^a\.test$` "t""#,
        r"^.+\.b\.a\.test$` l",
        "# the short one",
        r#"^.+\.a\.test$` "007""#,
        r"^(?:.+\.)?c\.test$` c",
        r"^www\..+$` w",
        "default d",
    ];
    let places: Vec<_> =
        places.iter().map(|part| caddyfile.find(part).unwrap_or_else(|| panic!("{part}\n{caddyfile}"))).collect();
    assert!(places.is_sorted() && notes.is_empty(), "{caddyfile}{notes}");
}

// nginx's documentation of `map`: expressions are PCRE's. Those that a Caddyfile cannot have are named.
#[test]
fn expressions_of_maps() {
    let map = |lines: &str| {
        format!("http {{ map $request_uri $a {{ default no; {lines} }} server {{ location / {{ return 200 $a; }} }} }}")
    };
    for (lines, want) in [
        (r#""~*(?<!good)bot" 1;"#, "no equivalent expression: "),
        (r#""~^(?!/a).*:" 1; ~^b 2;"#, "a look-ahead before other expressions"),
        (r#"~^a( 1;"#, "no equivalent expression: "),
    ] {
        let (caddyfile, notes) = translated(&map(lines));
        assert!(notes.contains(want) && caddyfile.contains("default no"), "{caddyfile}{notes}");
    }
    // An excluded text has the default.
    let (caddyfile, notes) = translated(&map(r#"~^/b 2; "~^/(?!a|b).*" 1;"#));
    let lines = ["~^/b 2", "~^/(?:a|b) no", "~^/.* 1", "default no"];
    let places: Vec<_> = lines.map(|line| caddyfile.find(line)).into();
    assert!(places.is_sorted() && places[0].is_some() && notes.is_empty(), "{caddyfile}{notes}");
}

// Access rules of modules that have no equivalent: never open.
#[test]
fn access_rules_of_other_modules() {
    for rule in ["auth_pam x", "auth_ldap x", "auth_jwt x", "modsecurity on", "SecRulesEnabled", "access_by_lua_file x"]
    {
        let note = format!("\"{rule}\": no equivalent; all requests are refused");
        for (around, inner) in [("", rule), (rule, ""), (rule, "proxy_set_header X y")] {
            let server = format!("server {{ {around}; location /a/ {{ {inner}; proxy_pass http://u; }} }}");
            let server = server.replace("{ ; ", "{ ");
            let (caddyfile, notes) = translated(&format!("http {{ {server} }}"));
            let refused = caddyfile.find("error 403").expect(&server);
            assert!(refused < caddyfile.find("reverse_proxy").unwrap() && notes.contains(&note), "{caddyfile}{notes}");
        }
    }
    let (caddyfile, notes) = translated("http { auth_jwt x; server { auth_jwt off; location / { root /a; } } }");
    assert!(!caddyfile.contains("error 403"), "{caddyfile}{notes}");
}

// Conditions for clients' certificates that have no equivalent.
#[test]
fn conditions_for_certificates() {
    let server = |lines: &str| {
        let tls = "listen 443 ssl; ssl_certificate c; ssl_certificate_key k;";
        translated(&format!("http {{ server {{ {tls} {lines} location / {{ root /a; }} }} }}")).0
    };
    let verified = "ssl_verify_client on; ssl_client_certificate a;";
    for lines in [&format!("{verified} ssl_crl r;"), "ssl_verify_client on;", "ssl_verify_client optional_no_ca;"] {
        assert!(server(lines).contains("error 403"), "{lines}");
    }
    for lines in [verified, "ssl_crl r;", "ssl_verify_client off;"] {
        assert!(!server(lines).contains("error 403"), "{lines}");
    }
}

// A server has only the maps that it uses.
#[test]
fn maps_of_other_servers() {
    let maps = "map $http_a $used { default 1; } map $http_b $unused { default 1; } geo $g { default 1; }";
    let (caddyfile, _) = translated(&format!("http {{ {maps} server {{ location / {{ return 200 $used; }} }} }}"));
    assert!(caddyfile.contains("{nginx_used}"), "{caddyfile}");
    assert!(!caddyfile.contains("nginx_unused") && !caddyfile.contains("nginx_g"), "{caddyfile}");
}

#[test]
fn small_forms() {
    let location = |lines: &str| format!("server {{ location / {{ {lines} }} }}");
    let proxy = |lines: &str| location(&format!("proxy_pass http://a:1; {lines}"));
    check(&location("expires +1y;"), &["Cache-Control max-age=31536000"], "");
    check(&location("expires -1h;"), &["Cache-Control no-cache"], "");
    check(
        &proxy("proxy_set_header Host $host:$server_port;"),
        &["header_up Host {host}:{http.request.local.port}"],
        "",
    );
    let trusted = "set_real_ip_from 10.0.0.1;";
    let scheme = "proxy_set_header X-Forwarded-Proto $scheme;";
    check(&format!("{trusted} {}", proxy(scheme)), &["header_up X-Forwarded-Proto {scheme}"], "");
    let client = "proxy_set_header X-Forwarded-For $remote_addr;";
    check(&format!("{trusted} {}", proxy(client)), &["header_up X-Forwarded-For {client_ip}"], "");
    let (caddyfile, _) = translated(&format!("http {{ {} }}", proxy(client)));
    assert!(!caddyfile.contains("X-Forwarded-For"), "{caddyfile}");
    let host = "server { listen 8080; location / { proxy_pass http://a:1; proxy_set_header X-Forwarded-Host $host; } }";
    check(host, &["header_up X-Forwarded-Host {host}"], "");
    check(&location("root /a; try_files $uri =444;"), &["handle @missing_2 {\n\t\t\t\t\tabort"], "");
    let param = "fastcgi_pass a:1; fastcgi_param HTTPS $arg_a if_not_empty; fastcgi_param SERVER_PORT $server_port;";
    check(
        &location(param),
        &["env HTTPS {query.a}", "env SERVER_PORT {http.request.local.port}"],
        "an empty value is sent",
    );
    let script = "fastcgi_pass a:1; fastcgi_split_path_info ^(.+(?<=\\.php))(/.+)$;";
    check(&location(script), &["split \"\""], "no equivalent expression: ");
    let closed = r"server { location ~ /(config|(?<!ext/)phpbb(?!\w+)|store) { deny all; } location / { root /a; } }";
    check(closed, &["@config_ext_phpbb_1", "/(config|phpbb|store)"], "all paths are refused that it matches");
    // The path is not that of the script alone.
    let split =
        "fastcgi_pass a:1; fastcgi_split_path_info ^(.+?\\.php)(/.*)$; fastcgi_param DOCUMENT_URI $document_uri;";
    check(&location(split), &["env DOCUMENT_URI {path}{re.script_"], "");
    // The parameter of nginx's own file counts for requests over TLS only.
    let of_tls = "fastcgi_param HTTPS $https if_not_empty;";
    let (caddyfile, notes) = translated(&location(&format!("fastcgi_pass a:1; fastcgi_param HTTPS on; {of_tls}")));
    assert!(caddyfile.contains("env HTTPS on") && notes.is_empty(), "{caddyfile}{notes}");
    let usual = format!("fastcgi_pass a:1; {of_tls} fastcgi_param HTTPS $arg_a; {of_tls}");
    check(
        &location(&usual),
        &["protocol https", "vars https_2 {query.a}", "vars @https_2 https_2 on", "env HTTPS {vars.https_2}"],
        "",
    );
    let replaced = format!("fastcgi_pass a:1; fastcgi_param HTTPS on; {of_tls} fastcgi_param HTTPS off;");
    let (caddyfile, _) = translated(&location(&replaced));
    assert!(caddyfile.contains("env HTTPS off") && !caddyfile.contains("env HTTPS on"), "{caddyfile}");
    // A variable that is a setting.
    check(&location("set $limit_rate 10k;"), &[], "no limit on the rate");
    check(&location("set $mirror a; return 200 $mirror;"), &["vars nginx_mirror a"], "");
    // A matcher that no line has is left out.
    let (caddyfile, _) = translated(&location("if ($arg_a) { limit_rate 1k; }"));
    assert!(!caddyfile.contains("@if"), "{caddyfile}");
}

// nginx's documentation of ngx_http_core_module.
#[test]
fn limits_of_connections() {
    let server = "server { root /a; }";
    check(&format!("keepalive_timeout 65; {server}"), &["servers {\n\t\ttimeouts {\n\t\t\tidle 65s"], "");
    check(
        &format!("client_header_timeout 3s; client_body_timeout 1m; send_timeout 1500ms; {server}"),
        &["read_header 3s", "read_body_idle 60s", "write_idle 2s"],
        "",
    );
    check(&format!("large_client_header_buffers 4 64k; {server}"), &["max_header_size 256KiB"], "");
    check(&format!("large_client_header_buffers 4 64m; {server}"), &["max_header_size 65536KiB"], "at most 64 MiB");
    check(&format!("large_client_header_buffers 4 8k; {server}"), &["# Translated from n.\n\nhttp://:80"], "");
    let two = "server { keepalive_timeout 5s; root /b; }";
    check(&format!("keepalive_timeout 65; {two}"), &["idle 65s"], "the largest value of the file");
    check(&format!("keepalive_timeout 0; {server}"), &["root"], "no option has this value");
    check(&format!("charset utf-8; {server}"), &["not needed, as these only tune nginx itself: charset"], "only tune");
    check(&format!("charset koi8-r; {server}"), &["root"], "files of text are declared as UTF-8");
}

// nginx's `ngx_parse_time`: a duration may have several units, the last of them `ms`. One that nginx refuses is named.
#[test]
fn limits_of_upstreams() {
    let places = [("proxy_pass http://a:1;", "proxy"), ("fastcgi_pass a:1;", "fastcgi")];
    for (pass, prefix) in places {
        for (name, option) in [("connect", "dial"), ("read", "read"), ("send", "write")] {
            for (time, want) in
                [("1h500ms", Some("3601s")), ("1d1h1m1s1ms", Some("90062s")), ("abc", None), ("1.5s", None)]
            {
                let lines = format!("server {{ location / {{ {pass} {prefix}_{name}_timeout {time}; }} }}");
                let (caddyfile, notes) = translated(&format!("http {{ {lines} }}"));
                let found = caddyfile.lines().find_map(|line| line.trim().strip_prefix(&format!("{option}_timeout ")));
                assert_eq!(found, want, "{lines}: {caddyfile}");
                assert_eq!(notes.contains("found no duration"), want.is_none(), "{lines}: {notes}");
            }
        }
    }
    let upstream = "upstream u { server a:1; server b:1 fail_timeout=abc; }";
    let server = "server { location / { proxy_pass http://u; } }";
    check(&format!("{upstream} {server}"), &["fail_duration 10s"], "fail_timeout: found no duration");
}

// nginx's documentation of ngx_http_realip_module.
#[test]
fn addresses_of_clients() {
    let rest = "server { root /a; deny 192.0.2.1; }";
    let options =
        ["trusted_proxies static 10.0.0.0/8 ::1", "trusted_proxies_strict", "@denied_2 {\n\t\t\t\tclient_ip 192.0.2.1"];
    let from = "set_real_ip_from 10.0.0.0/8; set_real_ip_from ::1;";
    check(&format!("{from} {rest}"), &[&options[..], &["client_ip_headers X-Real-IP"]].concat(), "");
    check(&format!("{from} real_ip_header CF-Connecting-IP; {rest}"), &["client_ip_headers CF-Connecting-IP"], "");
    check(&format!("set_real_ip_from unix:; {rest}"), &["trusted_proxies_unix"], "");
    check(&format!("{from} real_ip_header X-Forwarded-For; {rest}"), &options, "the last address in X-Forwarded-For");
    check(&format!("set_real_ip_from proxy.test; {rest}"), &["\tremote_ip 192.0.2.1"], "no names");
    check(&format!("{from} real_ip_header proxy_protocol; {rest}"), &["\tremote_ip 192.0.2.1"], "listener_wrappers");
    let one = "server { listen 81; set_real_ip_from 10.0.0.1; root /b; }";
    check(&format!("{one} {rest}"), &["\tremote_ip 192.0.2.1"], "n:2: not carried over: \"set_real_ip_from 10.0.0.1\"");
}

// nginx's documentation of `server_name`.
#[test]
fn hosts_of_patterns() {
    let other = "server { listen 80; server_name a.test; return 200 a; }";
    let sites = ["http://a.test {", "http://:80 {", "error @empty_label_", "http://b.test {"];
    check(
        &format!("{other} server {{ server_name b.test ~^(?<n>.+)\\.b\\.test$ c.*; return 200 $n; }}"),
        &[
            &sites[..],
            &["vars_regexp host_", "{host} `(?i)^(?<n>.+)\\.b\\.test$`", "(?i)^c\\..", ".n} 200", "respond * \"\" 200"],
        ]
        .concat(),
        "",
    );
    for (server, reason) in [
        ("server_name ~(?=a);", "the expression is not in Go's syntax"),
        ("server_name *.a.*;", "nginx allows one wildcard"),
        ("server_name ~a; listen 127.0.0.1:80;", "the servers of its port have several addresses"),
        ("server_name ~a; listen unix:/a;", "at a Unix socket the server takes all hosts"),
        ("server_name ~a; access_log /b;", "another certificate or log"),
    ] {
        let (caddyfile, notes) = translated(&format!("http {{ {other} server {{ {server} return 200 b; }} }}"));
        assert!(notes.contains(reason) && !caddyfile.contains("vars_regexp"), "{server}: {notes}\n{caddyfile}");
    }
    let tls = "listen 443 ssl; ssl_certificate c; ssl_certificate_key k;";
    let servers = format!("server {{ {tls} return 200 a; }} server {{ server_name ~b; {tls} return 200 b; }}");
    check(&servers, &["https://:443 {", "tls c k", "(?i)b"], "");
    let other_key = servers.replacen("c; ssl", "d; ssl", 1);
    check(&other_key, &["https://:443 {"], "another certificate or log");
}

// nginx's documentation of `ssl_certificate`: one for each kind of key.
#[test]
fn several_certificates() {
    let pairs = "ssl_certificate c; ssl_certificate_key k; ssl_certificate d; ssl_certificate_key l;";
    let server = format!("server {{ listen 443 ssl; {pairs} ssl_protocols TLSv1.3; return 200 a; }}");
    check(&server, &["\ttls c k\n\ttls d l {\n\t\tprotocols tls1.3 tls1.3"], "");
}

// An upstream without a server that works is 503 here, and 502 in nginx.
#[test]
fn pages_of_upstreams_without_a_server() {
    let server = |lines: &str| {
        format!(
            "upstream u {{ server a; server b; }} server {{ root /a; error_page 502 504 /50x.html; {lines}
             location /u/ {{ proxy_pass http://u/x; }} }}"
        )
    };
    check(&server(""), &["handle_errors 502 504 503 {"], "");
    for lines in ["error_page 503 /other.html;", "location /closed/ { return 503; }", "if ($arg_a) { return 503; }"] {
        check(&server(lines), &["handle_errors 502 504 {"], "");
    }
    check(
        "server { root /a; error_page 502 /e.html; location /u/ { proxy_pass http://a:1; } }",
        &["handle_errors 502 {"],
        "",
    );
}

// nginx's documentation of `ssl_reject_handshake`: without a server for the host the handshake fails.
#[test]
fn handshakes_without_a_host() {
    let rejecting =
        "server { listen 443 ssl default_server; listen 80 default_server; ssl_reject_handshake on; return 444; }";
    let named =
        "server { listen 443 ssl; server_name a.test; ssl_certificate c; ssl_certificate_key k; return 200 a; }";
    let (caddyfile, notes) = translated(&format!("http {{ {rejecting} {named} }}"));
    assert!(notes.is_empty() && !caddyfile.contains("https://:443"), "{notes}\n{caddyfile}");
    assert!(caddyfile.contains("http://:80 {") && caddyfile.contains("https://a.test {"), "{caddyfile}");
    let pattern = named.replace("a.test", "~a");
    check(&format!("{rejecting} {pattern}"), &["http://:80 {"], "another certificate or log");
}

#[test]
fn rules_of_access() {
    let server = |lines: &str| format!("server {{ root /a; location / {{ {lines} }} }}");
    let password = "auth_basic a; auth_basic_user_file none;";
    check(
        &server(&format!("satisfy any; allow 10.0.0.0/8; deny all; {password}")),
        &["@outside_2 not remote_ip 10.0.0.0/8", "error @outside_2 401"],
        "there is no such file",
    );
    for rules in ["deny 10.0.0.1; allow all;", "allow 10.0.0.1;", "deny all;", "allow unix:; deny all;"] {
        let lines = format!("satisfy any; {rules} {password}");
        check(&server(&lines), &["error 401"], "a last 'deny all'; all rules apply");
    }
    check(&server("satisfy any; allow 10.0.0.1; deny all;"), &["not remote_ip 10.0.0.1", "403"], "");
    check(
        "server { location / { auth_request /auth; auth_request_set $u $upstream_http_x_user; auth_request_set $v $upstream_status;
         auth_request_set $n $upstream_http_x_name;
         proxy_set_header X-User $u; proxy_set_header X-N $n; proxy_pass http://a; } location = /auth { proxy_pass http://b; } }",
        &["forward_auth b:80 {", "copy_headers X-User", "copy_headers x-name>X-N"],
        "\"auth_request_set $v $upstream_status\": only a field",
    );
}

// The request of `auth_request` has the connection of its location.
#[test]
fn requests_that_decide() {
    let tls = "proxy_ssl_name n.test; proxy_ssl_verify on; proxy_ssl_trusted_certificate /ca; proxy_read_timeout 3s;";
    for (lines, parts) in [
        ("proxy_pass https://a/v;", &["forward_auth a:443 {", "uri /v/x", "tls\n", "tls_insecure_skip_verify"][..]),
        (&format!("proxy_pass https://a; {tls}"), &["uri /auth/x", "tls_server_name n.test", "read_timeout 3s"]),
        ("proxy_pass http://a/v/;", &["forward_auth a:80 {", "uri /v/x"]),
    ] {
        // The URI of `proxy_pass` takes the place of the location's prefix, as it is written.
        let prefix = if lines.ends_with("/v;") { "/auth" } else { "/auth/" };
        let server = format!(
            "server {{ root /a; location / {{ auth_request /auth/x; }} location {prefix} {{ internal; {lines} }} }}"
        );
        check(&server, parts, "");
    }
}

// An upstream gets no field of the request that keeps a decided one for the client, also of a location that led to its
// own.
#[test]
fn fields_of_a_decision_are_kept_from_upstreams() {
    let decided = "auth_request /auth; auth_request_set $c $upstream_http_set_cookie; add_header Set-Cookie $c;";
    for (lines, kept) in [
        ("proxy_pass http://a:1;", "a:1 {"),
        ("fastcgi_pass a:1;", "a:1 {"),
        ("grpc_pass a:1;", "h2c://a:1 {"),
        ("add_header X-A 1; if ($arg_a) { add_header Set-Cookie $c; } proxy_pass http://a:1;", "a:1 {"),
    ] {
        let auth = "location = /auth { auth_request off; proxy_pass http://b; }";
        for server in [
            format!("server {{ root /a; {decided} location / {{ {lines} }} {auth} }}"),
            format!(
                "server {{ root /a; location / {{ {decided} try_files $uri @a; }} location @a {{ {lines} }} {auth} }}"
            ),
        ] {
            if server.contains("@a") && lines.contains("$c") {
                continue;
            }
            let (caddyfile, _) = translated(&format!("http {{ {server} }}"));
            let (_, upstream) = caddyfile.split_once(&format!("reverse_proxy {kept}")).unwrap();
            let options = upstream.split('}').next().unwrap();
            assert!(options.contains("header_up -Causeway-Auth-*\n"), "{server}\n{caddyfile}");
            assert!(caddyfile.contains("copy_headers set-cookie>Causeway-Auth-set-cookie"), "{caddyfile}");
        }
    }
    assert!(!translated("http { server { location / { proxy_pass http://a:1; } } }").0.contains("Causeway-Auth"));
}

// nginx's documentation of `try_files`: a last word without a slash is the URI of no location with a prefix.
#[test]
fn last_words_without_a_slash_are_named_once() {
    for files in ["try_files $uri none;", "alias /b/; try_files $uri none;"] {
        let (caddyfile, notes) = translated(&format!("http {{ server {{ root /a; location /a/ {{ {files} }} }} }}"));
        let word = "\"try_files $uri none\": the last word 'none' without a slash is '=404'";
        assert!(
            notes.matches("none").count() == 2 && notes.contains(word) && caddyfile.contains("error 404"),
            "{notes}\n{caddyfile}"
        );
    }
}

#[test]
fn requests_to_upstreams() {
    let upstream = "upstream u { server a; server b; server c; }";
    let location = |lines: &str| format!("{upstream} server {{ location / {{ proxy_pass http://u; {lines} }} }}");
    check(&location(""), &["lb_retries 2"], "");
    let others =
        |lines: &str| format!("upstream u {{ {lines} server b; }} server {{ location / {{ proxy_pass http://u; }} }}");
    check(&others("server a max_conns=5 weight=2;"), &["weighted_round_robin 2 1"], "no equivalent of max_conns=5");
    check(
        &others("least_conn; server a weight=2;"),
        &["lb_policy least_conn"],
        "weights have no effect beside least_conn",
    );
    check(
        &location("proxy_next_upstream error timeout; proxy_next_upstream_tries 2; proxy_next_upstream_timeout 10s;"),
        &["lb_retries 1", "lb_try_duration 10s"],
        "",
    );
    check(&location("proxy_next_upstream error non_idempotent;"), &["`{rp.is_transport_error} == true`"], "");
    check(
        &location("proxy_next_upstream http_502 http_503;"),
        &["`{rp.status_code} in [502, 503] && !method"],
        "without its content",
    );
    let (caddyfile, _) = translated(&format!("http {{ {} }}", location("proxy_next_upstream off;")));
    assert!(!caddyfile.contains("lb_retries"), "{caddyfile}");
    check(&location("proxy_cookie_path /a/ /;"), &["header_down Set-Cookie `(?i)(;\\s*path=)/a/` ${1}/"], "");
    check(&location("proxy_cookie_path ~^/a /;"), &["reverse_proxy"], "only two texts");
    // nginx applies the first line that matches, and the proxy all.
    for (lines, is_named) in [
        ("proxy_cookie_path /a/ /b/; proxy_cookie_path /b/ /c/;", true),
        ("proxy_cookie_path /a/ /b/; proxy_cookie_path /c/ /d/;", false),
        ("proxy_cookie_domain a.test b.test; proxy_cookie_domain .b.test c.test;", true),
        ("proxy_redirect http://a/ http://b/; proxy_redirect http://b/ /c/;", true),
        ("proxy_redirect http://a/ /a/; proxy_redirect http://b/ /b/;", false),
    ] {
        let note = if is_named { "may also replace the result of an earlier line" } else { "" };
        check(&location(lines), &["header_down"], note);
    }
    check(&location("proxy_intercept_errors on;"), &["reverse_proxy"], "");
    let pages = "proxy_intercept_errors on; error_page 404 500 /e.html;";
    check(
        &format!(
            "{upstream} server {{ {pages} root /a; location / {{ proxy_pass http://u; }} location = /e.html {{ }} }}"
        ),
        &["status 404 500", "error intercepted {rp.status_code}"],
        "",
    );
    let tls = "proxy_ssl_name a.test; proxy_ssl_trusted_certificate /ca; proxy_ssl_certificate /c; proxy_ssl_certificate_key /k;";
    check(
        &format!("server {{ location / {{ proxy_pass https://a; {tls} }} }}"),
        &["tls_server_name a.test", "tls_trust_pool file /ca", "tls_client_auth /c /k"],
        "",
    );
}

// nginx's documentation of `proxy_pass`: with variables the URI is sent as it is, and the address may be that of an
// upstream.
#[test]
fn addresses_of_upstreams() {
    let map = "map $arg_a $m { default a:1; b b:2; } map $arg_a $n { default a:1; b b; }
               map $arg_a $u { default up; } upstream up { server c:3; }";
    let server = |lines: &str| format!("{map} server {{ set $s http://c:4; location /l/ {{ {lines} }} }}");
    for (lines, parts) in [
        ("proxy_pass https://a;", &["reverse_proxy a:443"][..]),
        ("proxy_pass https://a:8443;", &["reverse_proxy a:8443"]),
        ("proxy_pass http://[::1];", &["reverse_proxy [::1]:80"]),
        ("proxy_pass https://up;", &["reverse_proxy c:3"]),
        ("proxy_pass $s;", &["reverse_proxy c:4"]),
        ("proxy_pass $s/x;", &["rewrite * /x?", "reverse_proxy c:4"]),
        ("set $g up; proxy_pass http://$g;", &["reverse_proxy c:3"]),
        ("proxy_pass http://$m;", &["reverse_proxy {nginx_m}"]),
        ("proxy_pass http://$u;", &["vars {nginx_u} up", "reverse_proxy c:3"]),
        ("proxy_pass http://$host;", &["reverse_proxy {host}:80"]),
        ("proxy_pass https://$host$request_uri;", &["reverse_proxy {host}:443"]),
        (
            "proxy_pass http://$host:81$uri;",
            &["rewrite * {vars.path_resolved}? escape_values", "reverse_proxy {host}:81"],
        ),
        ("set $x $arg_a; proxy_pass http://a:1$x;", &["vars uri_3 {vars.nginx_x}", "reverse_proxy a:1 {"]),
        (
            "set $x $arg_a; proxy_pass http://up$x$is_args$args;",
            &["vars uri_3 {vars.nginx_x}{?query}", "reverse_proxy c:3"],
        ),
        ("proxy_pass http://a:$server_port;", &["reverse_proxy a:{http.request.local.port}"]),
    ] {
        check(&server(lines), parts, "");
    }
    for (lines, reason) in [
        ("proxy_pass http://$n;", "some values of $n have a port"),
        ("set $y up; if ($arg_x) { set $y $arg_z; } proxy_pass http://$y;", "$y may be the name of an upstream"),
        ("proxy_pass http://$http_host;", "$http_host may have a port or not"),
        ("proxy_pass http://$nothing;", "the variable $nothing has no equivalent in an address"),
        ("proxy_pass $arg_url;", "found no http:// or https://"),
        ("if ($arg_x) { set $t http://a; } proxy_pass $t;", "found no http:// or https://"),
    ] {
        check(&server(lines), &["error 502"], reason);
    }
}

// nginx's documentation of `proxy_redirect`, and of `add_header`, which adds no empty field.
#[test]
fn fields_of_responses() {
    let location = |path: &str, lines: &str| format!("server {{ location {path} {{ {lines} }} }}");
    let pass = "proxy_pass http://a:1/in/;";
    for (path, lines, want) in [
        ("/out/", "", Some("header_down Location ^http://a:1/in/ {scheme}://{hostport}/out/")),
        ("~ x", "proxy_pass http://a:1;", Some("header_down Location ^http://a:1/ {scheme}://{hostport}/")),
        ("/out/", "proxy_redirect http://b/ /c/;", Some("header_down Location ^http://b/ {scheme}://{hostport}/c/")),
        ("/out/", "proxy_redirect off;", None),
        ("/out/", "proxy_set_header Host $host;", None),
    ] {
        let pass = if lines.contains("proxy_pass") { "" } else { pass };
        let text = location(path, &format!("{pass} {lines}"));
        check(&text, &want.into_iter().collect::<Vec<_>>(), "");
        assert_eq!(translated(&format!("http {{ {text} }}")).0.contains("Location"), want.is_some(), "{lines}");
    }
    check(&location("/", &format!("{pass} proxy_redirect ~^x /y;")), &["reverse_proxy"], "only two texts");
    let map = "map $http_origin $o { ~^https://(a|b)$ $http_origin; ~c $1$host; }";
    let added = "root /a; location / { add_header X-A $arg_a; add_header X-O $o always; add_header X-H a$arg_a; }";
    check(
        &format!("{map} server {{ {added} }}"),
        &[
            "@has_X_A_2 not vars {query.a} \"\"",
            "header @has_X_O_3 +X-O {nginx_o}",
            "+X-H a{query.a}",
            "~(?s)^.*(?:^https://(a|b)$).*$ ${0}",
        ],
        "\"~c $1$host\": the value of an expression has only its groups",
    );
    check(
        "server { root /a; error_page 404 = @f; location @f { rewrite ^ /i.php last; } }",
        &["file_server"],
        "an error page whose rules choose a location",
    );
}

// Texts of the configuration stay in their places of the Caddyfile.
#[test]
fn texts_that_need_quoting() {
    let server = |lines: &str| format!("server {{ root /a; {lines} }}");
    check(&server("location = /pub* { deny all; }"), &["expression `path_regexp('^/pub\\\\*$')`"], "");
    check(&server("location \"/a b/\" { return 402; }"), &["expression `path_regexp('^/a b/')`"], "");
    check(&server("location \"/{env.HOME}\" { return 402; }"), &["path_regexp('^/\\\\{env\\\\.HOME\\\\}')"], "");
    check(
        &server("server_name \"a.test {\nrespond x\" b.test;"),
        &["http://b.test, http://:80 {"],
        "not that of a host",
    );
    check(&server("access_log /x \"f\nrespond x\";"), &["'f respond x'"], "'f respond x'");
    check("server { return 200 \"a`b\\\\\"; }", &["respond * <<NGINX_TEXT\na`b\\\nNGINX_TEXT 200"], "");
    check(&server("# {$HOME\n"), &["# { $HOME"], "");
    check(
        &server("set $root /b; set $client_ip $arg_a;"),
        &["vars nginx_root /b", "vars nginx_client_ip {query.a}"],
        "",
    );
}

// A rule without an equivalent refuses requests.
#[test]
fn rules_without_an_equivalent() {
    let server = |lines: &str| format!("server {{ root /a; {lines} }}");
    let ended = "rewrite ^/a /b last; set $x 1; ".repeat(20);
    for (lines, part, note) in [
        ("if ($ssl_client_verify != x) { return 403; }", "error 403", "all requests are refused"),
        ("location / { try_files $uri @a; } location @a { try_files /x @a; }", "error 500", "lead to each other"),
        (&ended, "error 500", "too many rules"),
        ("location / { limit_except GET { deny all; auth_basic x; } }", "error @other_methods_2 403", "are refused"),
    ] {
        check(&server(lines), &[part], note);
    }
    let limited = |rules: &str| server(&format!("location / {{ limit_except GET {{ {rules} }} }}"));
    let (refused, _) = translated(&format!("http {{ {} }}", limited("deny all; allow 10.0.0.1;")));
    assert!(!refused.contains("10.0.0.1"), "{refused}");
    check(&limited("allow 10.0.0.1; deny all;"), &["not method GET HEAD", "not remote_ip 10.0.0.1"], "");
    let zone = "limit_req_zone $server_name zone=z:1m rate=2000r/s;";
    check(&format!("{zone} {}", server("limit_req zone=z burst=18446744073709551615;")), &["events 1000000"], "");
}

// An internal location whose named location has an upstream: the field of that upstream is not followed once more.
#[test]
fn internal_locations_with_upstreams() {
    let named = "location @m { proxy_pass http://a:1; }";
    check(
        &format!(
            "server {{ root /a; location /i/ {{ internal; try_files $uri @m; }} location / {{ try_files $uri @m; }} {named} }}"
        ),
        &["header X-Accel-Redirect *", "reverse_proxy a:1"],
        "",
    );
}

// nginx's documentation of `limit_req_zone`: requests with an empty key are not counted.
#[test]
fn limits_by_a_variable() {
    let zone = "geo $o { default 1; 10.0.0.0/8 0; } map $o $k { 0 \"\"; 1 $binary_remote_addr; }
                limit_req_zone $k zone=z:1m rate=1r/s;";
    let server = "server { root /a; limit_req zone=z; }";
    check(
        &format!("{zone} {server}"),
        &["vars nginx_o 1", "map {vars.nginx_o} {nginx_k} {", "not vars {nginx_k} \"\""],
        "",
    );
    check(&format!("{zone} limit_req_status 444; {server}"), &["rate_limit"], "the status beyond the limit is 429");
    let refused = "geo $o {\nproxy 10.0.0.1;\n} server { return 200 $o; }";
    check(refused, &[], "n:3: not carried over: \"proxy 10.0.0.1\"");
    check(
        "split_clients $remote_addr $v { 50% a; * b; } server { return 200 a; }",
        &[],
        "assigns a share of the clients by a hash",
    );
}

// nginx's documentation of `listen`: a Unix socket has no port, and its servers no address in common with others.
#[test]
fn a_unix_socket() {
    let text =
        "server { listen 80; return 200 a; }\nserver { listen unix:/run/a.sock; server_name b.test; return 200 b; }\n";
    let Translation { caddyfile, notes } = translate(text, "nginx.conf", &NoFiles).unwrap();
    assert!(notes.is_empty(), "{notes:?}");
    let (first, second) = caddyfile.split_once("http://b.test, http://:80 {\n\tbind unix//run/a.sock\n").unwrap();
    assert!(first.contains("http://:80 {\n") && second.contains("respond * b 200"), "{caddyfile}");
    let both = "server { listen 80; listen unix:/run/a.sock; return 200 a; }\n";
    let Translation { caddyfile, notes } = translate(both, "nginx.conf", &NoFiles).unwrap();
    assert_eq!(notes.len(), 1);
    assert!(caddyfile.contains("write a second site with `bind unix//run/a.sock`"), "{caddyfile}");
}

// Many rules that may end the rules stand side by side, unless one of them keeps the content of an `if`.
#[test]
fn rules_beside_the_content_of_a_condition() {
    let rewrites = "if ($arg_b) { rewrite ^ /b last; } ".repeat(20);
    let server = |head: &str| format!("server {{ root /a; location / {{ {head} {rewrites} }} location /b {{ }} }}");
    check(&server("if ($arg_a) { add_header X-A 1; }"), &["vars @if_"], "");
    check(&server("if ($arg_a) { add_header X-A 1; break; }"), &["handle {"], "");
}

// nginx's documentation of `rewrite` and `break`: with `break` the request stays in its location, even if other rules
// have changed the path.
#[test]
fn rules_that_keep_their_location() {
    let server = |lines: &str| format!("server {{ root /a; location /p/ {{ deny all; {lines} }} location /d/ {{ }} }}");
    let kept =
        ["@kept_4 vars location_kept kept_4", "vars location_kept kept_4\n", "handle @kept_4 {\n\t\t\terror 403"];
    for lines in [
        "rewrite ^/p/old /p/new; rewrite ^/p/(.*) /d/$1 break;",
        "rewrite ^/p/old /p/new last; rewrite ^/p/(.*) /d/$1 break;",
        "rewrite ^/p/(.*) /d/$1; break;",
        "if ($arg_a) { break; } rewrite ^/p/(.*) /d/$1 last;",
    ] {
        check(&server(lines), &kept, "");
    }
    // A `break` before all rules that select a location, and one without other rules, need no name.
    for lines in
        ["break; rewrite ^ /d/ last;", "rewrite ^/p/(.*) /d/$1 break;", "if ($arg_a) { break; rewrite ^ /d/; }"]
    {
        let (caddyfile, notes) = translated(&format!("http {{ {} }}", server(lines)));
        assert!(!caddyfile.contains("kept") && notes.is_empty(), "{lines}: {caddyfile}{notes}");
    }
    let on = "if ($arg_a) { rewrite ^/p/(.*) /d/$1 break; rewrite ^ /d/; } return 402;";
    check(&server(on), &["error @if_5 500"], "a 'rewrite' without a flag after one with it");
    let twice = "location /v { if (!-f $request_filename) { rewrite (.*) /$1 last; } }";
    check(&format!("server {{ root /a; {twice} }}"), &["vars location_kept doubled_3", "handle @doubled_3"], "");
    check(
        &format!("server {{ root /a; {twice} location / {{ return 402; }} }}"),
        &["rewrite * /{re"],
        "without its double slash",
    );
}

// Where nginx sends the source of a program, as of an index that no location runs, no source is sent.
#[test]
fn sources_of_programs() {
    let fastcgi = "fastcgi_pass a:1;";
    for (server, want) in [
        (format!("location = /index.php {{ {fastcgi} }}"), "hide *.php\n"),
        (format!("location /a/ {{ location ~ x {{ {fastcgi} }} }}"), "hide *.php\n"),
        (format!("location @p {{ {fastcgi} }}"), "hide *.php\n"),
        ("location ~ \\.php$ { proxy_pass http://a:1; }".to_owned(), "hide *.php\n"),
        ("location ~ \\.(php|phtml)$ { deny all; }".to_owned(), "hide *.php *.phtml\n"),
        ("location ~* \\.(cgi|pl)$ { return 403; }".to_owned(), "hide *.cgi *.pl\n"),
        ("error_page 404 /404.php; location ~ \\.cgi$ { deny all; }".to_owned(), "file_server {\n\t\t\thide *.cgi"),
    ] {
        check(&format!("server {{ root /a; {server} }}"), &[want], "");
    }
    let (caddyfile, _) = translated("http { server { root /a; location ~ \\.php$ { expires 1d; } } }");
    assert!(!caddyfile.contains("hide"), "{caddyfile}");
    let shown = format!("location ~ ^/shown/.*\\.php$ {{ }} location = /x.php {{ {fastcgi} }}");
    let (caddyfile, _) = translated(&format!("http {{ server {{ root /a; {shown} }} }}"));
    assert_eq!((caddyfile.matches("file_server").count(), caddyfile.matches("hide").count()), (2, 1), "{caddyfile}");
}

// nginx's documentation of `index`: the location of the index is chosen again, with its access rules.
#[test]
fn indexes_of_other_locations() {
    let directory = "@index_";
    for (rest, want) in [
        ("location ~ ^/docs/.*\\.html$ { deny all; }", true),
        ("location = /x/index.html { proxy_pass http://a:1; }", true),
        ("location ~ \\.html$ { try_files /none @a; } location @a { proxy_pass http://a:1; }", true),
        ("location ~ \\.html$ { rewrite ^ /b last; }", true),
        ("location ~ \\.html$ { expires 1d; }", false),
        ("location ~ \\W$ { deny all; } location ~ x|\\.css$ { deny all; } location ~ (l|\\.css)$ { deny all; }", true),
        ("location ~ \\d$ { deny all; }", true),
        ("location ~ ^/(x|docs)/.+ { deny all; }", true),
        ("location ~ ^/(x|docs)/ { deny all; }", false),
        ("location ~ ^/x/.*$ { deny all; }", false),
        ("location ~ \\.(css|js)$ { deny all; }", false),
        ("location ~ /\\. { deny all; }", false),
        ("location /x/ { deny all; }", false),
    ] {
        let (caddyfile, notes) = translated(&format!("http {{ server {{ root /a; location / {{ }} {rest} }} }}"));
        assert!(caddyfile.contains(directory) == want && notes.is_empty(), "{rest}: {caddyfile}{notes}");
    }
    // The path of a file never ends in a slash, and nginx ignores expressions after a match with `^~`.
    for own in ["~ \\.(css|js)$", "~ \\.css$", "^~ /x/", "= /x"] {
        let rest = "location / { return 402; } location ~ \\.php$ { fastcgi_pass a:1; }";
        let (caddyfile, _) =
            translated(&format!("http {{ server {{ index index.php; root /a; location {own} {{ }} {rest} }} }}"));
        assert!(!caddyfile.contains(directory), "{own}: {caddyfile}");
    }
}

// nginx's documentation of `proxy_pass`: the URI may be a query alone.
#[test]
fn upstreams_with_a_query() {
    check("server { location / { proxy_pass http://a:1?k=1; } }", &["/?k=1{re.rest", "reverse_proxy a:1 {"], "");
    let with_variable = "server { location / { proxy_pass http://a:1?k=$arg_q; } }";
    check(with_variable, &["rewrite * /?k={query.q}\n", "reverse_proxy a:1 {"], "");
}

// nginx's documentation of `error_page`: a query has no part in the choice of the location.
#[test]
fn pages_with_a_query() {
    let php = "location ~ \\.php$ { fastcgi_pass a:1; }";
    let page = ["rewrite * /e.php?a=404\n", "\t}\n\t\t\t\t\treplace_status {err.status_code}"];
    check(&format!("server {{ root /a; error_page 404 /e.php?a=404; {php} }}"), &page, "");
    let named = "location ~ \\.php$ { try_files /none @p; } location @p { fastcgi_pass a:1; }";
    check(&format!("server {{ root /a; error_page 404 /e.php; {named} }}"), &["replace_status {err.status_code}"], "");
    let front = "location / { try_files $uri /index.php?$args; }";
    check(
        &format!("server {{ root /a; error_page 403 /403.html; {front} {php} }}"),
        &["rewrite * /403.html?\n", "handle @missing_4 {\n"],
        "",
    );
}

// nginx's documentation of `client_max_body_size`, `add_header` and `location`.
#[test]
fn limits_fields_and_case_with_upstreams() {
    let named = "location / { try_files /none @a; } location @a { client_max_body_size 1k; proxy_pass http://a:1; }";
    let (caddyfile, _) = translated(&format!("http {{ server {{ root /a; {named} }} }}"));
    assert!(!caddyfile.contains("request_body"), "{caddyfile}");
    let field = |lines: &str| format!("server {{ location / {{ proxy_pass http://a:1; {lines} }} }}");
    let matcher = "+X-A {http.response.header.x-b}\n\t\t\t\tmatch {\n\t\t\t\t\theader x-b *";
    check(&field("add_header X-A $upstream_http_x_b;"), &[matcher, "status 200 201"], "");
    check(
        &field("add_header X-A b$upstream_http_x_b always;"),
        &["+X-A b{http.response.header.x-b}\n\t\t\t\tdefer"],
        "",
    );
    check(&field("proxy_hide_header X-B; add_header X-A $upstream_http_x_b;"), &[], "is hidden, and absent here");
    let closed =
        |lines: &str| format!("server {{ root /a; location / {{ {lines} }} location /open/ {{ expires 1d; }} }}");
    check(&closed(""), &["path /open/*"], "");
    for rule in ["deny 10.0.0.1;", "auth_request /open/x;", "internal;", "return 403;"] {
        let (caddyfile, _) = translated(&format!("http {{ {} }}", closed(rule)));
        assert!(caddyfile.contains("path_regexp ^/open/"), "{rule}: {caddyfile}");
    }
}

// nginx's documentation of `proxy_pass_header`: the upstream's Server is hidden.
#[test]
fn the_server_field_of_upstreams() {
    let server = |pass: &str| format!("server {{ location / {{ {pass} }} }}");
    let own = "header_down Server Causeway";
    check(&server("proxy_pass http://a:1; proxy_pass_header Date;"), &[own], "");
    check(&server("grpc_pass a:1;"), &[own], "");
    let passed = "proxy_pass http://a:1; proxy_pass_header server;";
    for pass in [passed, "grpc_pass a:1; grpc_pass_header Server;", "fastcgi_pass a:1;"] {
        let (caddyfile, notes) = translated(&format!("http {{ {} }}", server(pass)));
        assert!(!caddyfile.contains("header_down Server") && notes.is_empty(), "{pass}: {caddyfile}{notes}");
    }
}

// Each line has an effect, or is named once.
#[test]
fn types_and_parameters_without_an_equivalent() {
    let server = "server { root /a; }";
    check(&format!("types {{ application/x-foo foo; }} {server}"), &[], "the types of files cannot be set");
    check(&format!("include mime.types; {server}"), &[], "");
    let uwsgi = "uwsgi_param A a; uwsgi_param B b; uwsgi_read_timeout 3s; uwsgi_pass a:1;";
    let (_, notes) = translated(&format!("http {{ server {{ location / {{ {uwsgi} }} }} }}"));
    assert_eq!(notes.lines().count(), 1, "{notes}");
}

// nginx's documentation of `set`: a variable of a server's rules may be the root, or the list of passwords.
#[test]
fn files_that_variables_name() {
    struct Passwords;
    impl Files for Passwords {
        fn read(&self, path: &str) -> Result<String, String> {
            Ok(format!("{path}:$2y$05$a"))
        }

        fn glob(&self, _: &str) -> Vec<String> {
            Vec::new()
        }
    }
    let root = "set $root /a; if (!-d /a) { set $root /b; } root $root;";
    check(&format!("server {{ {root} location / {{ }} }}"), &["vars root {vars.nginx_root}"], "");
    let text = "server { set $list /p; location / { root /a; auth_basic a; auth_basic_user_file $list; } }";
    let caddyfile = translate(text, "n", &Passwords).unwrap().caddyfile;
    assert!(caddyfile.contains("\t/p $2y$05$a\n"), "{caddyfile}");
}

// nginx's documentation of ngx_http_core_module: fields of the request that have variables of their own.
#[test]
fn conditions_for_content() {
    let condition =
        |condition: &str| format!("server {{ root /a; location / {{ if ({condition}) {{ return 403; }} }} }}");
    check(&condition("$content_type !~ grpc"), &["not vars_regexp if_2 {header.Content-Type} grpc"], "");
    check(&condition("$content_length = \"\""), &["vars {header.Content-Length} \"\""], "");
}

// nginx's documentation of `gzip`: a location may have its own.
#[test]
fn compression_of_locations() {
    let server = |lines: &str| format!("gzip on; server {{ root /a; {lines} location /b/ {{ expires 1d; }} }}");
    let count = |lines: &str| {
        let (caddyfile, notes) = translated(&format!("http {{ {} }}", server(lines)));
        assert!(notes.is_empty(), "{notes}");
        (caddyfile.matches("encode gzip").count(), caddyfile.matches("minimum_length 7").count())
    };
    assert_eq!(count("location /c/ { }"), (1, 0));
    assert_eq!(count("location /c/ { gzip off; }"), (2, 0));
    assert_eq!(count("location /c/ { gzip_min_length 7; }"), (3, 1));
    assert_eq!(count("location /c/ { location /c/d/ { gzip off; } }"), (3, 0));
    assert_eq!(count("gzip off; location /c/ { gzip on; }"), (1, 0));
}
