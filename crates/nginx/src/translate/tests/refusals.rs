//! Rules without an equivalent that may refuse requests: never nothing.

use super::{check, translated};

fn location(lines: &str) -> String {
    format!("server {{ root /a; location / {{ {lines} }} }}")
}

// docs/from-nginx.md: where an access rule cannot be carried over, requests are refused.
#[test]
fn answers_with_unknown_variables() {
    let note = "$connection has no equivalent here; its requests are refused";
    for (lines, wanted) in [
        ("if ($http_x_key != s3) { return 403 \"denied, $connection\"; }", &["error @if_", " 403"][..]),
        ("return 401 \"denied, $connection\";", &["error * 401"]),
        ("return 302 https://login.test/?id=$connection;", &["error * 403"]),
        ("return https://login.test/?id=$connection;", &["error * 403"]),
        ("return 200 \"not for you, $connection\";", &["error * 403"]),
        ("rewrite ^/x https://a.test/$connection? redirect;", &["handle @rewrite_", "error 403"]),
        ("rewrite ^/x /y/$connection;", &["route @rewrite_", "error 403"]),
        ("if ($arg_a) { rewrite ^/x /y/$connection last; }", &["handle @rewrite_", "error 403"]),
    ] {
        check(&location(lines), wanted, note);
    }
}

// nginx's documentation of `map`: without the source, or the entry, the value would be that of other requests.
#[test]
fn maps_without_an_equivalent() {
    let refused = "all requests are refused";
    let refuses = |variable: &str| location(&format!("if ({variable}) {{ return 403; }}"));
    for maps in [
        "map $geoip_country_code $m { default 0; DE 1; }",
        "geo $g { proxy 10.0.0.1; 10.0.0.0/8 1; } map $g $m { 1 1; }",
        "map $geoip_city $c { default 0; a 1; } map $c$http_a $m { 1x 1; }",
        "map $http_user_agent $m { ~(?<!good)bot 1; }",
        "map $http_a $m { default 0; a $connection; }",
        "map $http_user_agent $c { ~(?<!good)bot 1; } map $c $m { 1 1; }",
        "map $http_user_agent $c { ~(?<!good)bot 1; } map $http_a $m { default $c; }",
    ] {
        check(&format!("{maps} {}", refuses("$m")), &["error 403"], refused);
        check(&format!("{maps} {}", refuses("$m ~ 1")), &["error 403"], refused);
    }
    let partial = "map $http_user_agent $m { ~(?<!good)bot 1; }";
    for lines in [
        "set $x 0; if ($m) { set $x 1; } if ($x) { return 403; }",
        "set $x a$m; if ($x = a1) { return 403; }",
        "if ($http_a) { set $x $m; } if ($x) { return 403; }",
        "if ($m) { return 302 /login; }",
        "if ($m) { rewrite ^ /login last; }",
        "if ($m) { return 403 /$m; }",
        "if ($m) { return 302 /login?why=$m; }",
        "if ($m) { rewrite ^ /login/$m last; }",
        "if ($m$http_a) { return 302 /login/$http_a; }",
    ] {
        check(&format!("{partial} {}", location(lines)), &["error 403"], refused);
    }
    // A redirect map: the site stays open without one of its entries.
    for rule in
        ["return 301 $m;", "return 301 https://$host/$m;", "rewrite ^ /b$m permanent;", "rewrite ^ https://b.test$m;"]
    {
        let (caddyfile, notes) =
            translated(&format!("http {{ {partial} {} }}", location(&format!("if ($m) {{ {rule} }}"))));
        assert!(!caddyfile.contains("error 403") && caddyfile.contains("redir "), "{rule}: {caddyfile}{notes}");
    }
    // Other rules have the values that there are.
    let other = location("if ($m) { set $x 1; } set $x 2; if ($x) { return 403; } return 200 $m;");
    check(&format!("{partial} {other}"), &["vars @if_2 nginx_x 1", "error @if_3 403", "{nginx_m}"], "no equivalent");
}

// nginx's documentation of `set` and `if`: a value that is not known is not the earlier one.
#[test]
fn variables_of_rules_without_an_equivalent() {
    let refused = "all requests are refused";
    for lines in [
        "set $x 0; if ($request_length ~ .) { set $x 1; } if ($x) { return 403; }",
        "set $x 0; set $x $request_length; if ($x) { return 403; }",
        "set $x 0; if ($http_a) { set $x $request_length; } if ($x) { return 403; }",
        "if ($request_length ~ .) { set $args a; } if ($args = a) { return 403; }",
    ] {
        check(&location(lines), &["error 403"], refused);
    }
    let known = location("set $x $request_length; set $x 1; if ($x) { return 403; }");
    check(&known, &["error @if_"], "the variable $request_length has no equivalent here");
}

// docs/from-nginx.md: an `if` without a matcher may lead clients away from content that is not for them.
#[test]
fn conditions_without_an_equivalent() {
    let condition = |rule: &str| {
        let rule = format!("if ($ssl_client_verify != SUCCESS) {{ {rule} }}");
        format!("server {{ server_name a.test www.a.test; location / {{ {rule} proxy_pass http://a:1; }} }}")
    };
    for rule in [
        "return 403;",
        "return 302 /login;",
        "return 200 x;",
        "return 301 https://sso.test$request_uri;",
        "return 301 https://$host/login?to=$request_uri;",
        "rewrite ^ /login last;",
        "rewrite ^ /login break;",
        "rewrite ^ /login redirect;",
        "rewrite ^ https://sso.test/;",
        "rewrite ^/a $scheme://sso.test/;",
        "rewrite ^ /login;",
        "rewrite ^(.*)$ /login?to=$1;",
        "return 403 https://$host$request_uri;",
        "return 200 https://$host$request_uri;",
        "rewrite https://$host$request_uri /login last;",
        "return 301 https://b.test$request_uri;",
        "return 301 https://$host.b.test$request_uri;",
        "return 301 https://$host:8443$request_uri;",
        "return 301 https://$arg_a$request_uri;",
    ] {
        check(&condition(rule), &["error 403"], "all requests are refused");
    }
    for rule in [
        "return 301 https://$host$request_uri;",
        "return https://$host$request_uri;",
        "return 308 https://www.a.test$request_uri;",
        "return 301 https://A.test:443$document_uri;",
        "return 301 https://${host}${request_uri};",
        "return 301 https://${server_name}${uri}${is_args}${args};",
        "rewrite ^ https://$http_host$uri$is_args$args? permanent;",
        "rewrite ^(.*)$ https://$server_name$1 permanent;",
        "rewrite ^/a /b;",
        "set $a 1;",
        "add_header A b;",
    ] {
        let (caddyfile, notes) = translated(&format!("http {{ {} }}", condition(rule)));
        assert!(!caddyfile.contains("error 403") && notes.contains("no matcher"), "{rule}: {caddyfile}{notes}");
    }
}

// nginx's documentation of `$https` ("`on` if connection operates in SSL mode, or an empty string otherwise"),
// `$is_args` and `if`.
#[test]
fn conditions_of_usual_sites() {
    for (condition, matcher) in [
        ("$https", " protocol https"),
        ("$https = on", " protocol https"),
        ("$https != \"\"", " protocol https"),
        ("$https = \"\"", " not protocol https"),
        ("${https} != on", " not protocol https"),
        ("$is_args", " not vars {query} \"\""),
        ("$is_args != ''", " not vars {query} \"\""),
        ("$is_args = \"?\"", " not vars {query} \"\""),
        ("$is_args = ''", " vars {query} \"\""),
        ("-f $request_filename.html", " file {path}.html"),
        ("!-e \"${request_filename}.html\"", " not file {path}.html {path}.html/"),
        ("-f $request_filename/index.html", " file {path}/index.html"),
        ("-d ${document_root}/a", " file /a/"),
    ] {
        let matcher = format!("@if_2{matcher}\n");
        let rule = format!("if ({condition}) {{ return 301 https://www.a.test:8443$request_uri; }}");
        check(&location(&rule), &[&matcher, "redir @if_2 "], "");
    }
    // docs/from-nginx.md, "Differences": such redirects close the site.
    let maps = "map $http_user_agent $mobile { default 0; ~*^(?=.*android)(?=.*mobile) 1; }";
    let redirect = location("if ($mobile) { return 302 https://m.a.test$request_uri; }");
    check(&format!("{maps} {redirect}"), &["error 403"], "all requests are refused");
    let redirect = location("if ($geoip_country_code = DE) { return 302 /de/; }");
    check(&redirect, &["error 403"], "all requests are refused");
    for condition in ["$https = off", "-f $request_filename_old", "-f /$request_length"] {
        let rule = format!("if ({condition}) {{ return 301 /a; }}");
        check(&location(&rule), &["error 403"], "all requests are refused");
    }
}

// nginx keeps the groups of the last expression that has matched, in whichever location or rule: `$1` is not empty
// without one of its own.
#[test]
fn groups_of_other_rules() {
    let page =
        "error_page 404 @fb; location ~ ^/img/(.*)$ { try_files $uri =404; } location @fb { return 200 \"fb[$1]\"; }";
    let last = "location /a/ { rewrite ^/a/(.*)$ /c/x last; }";
    for lines in [
        page,
        &format!("{last} location /c/ {{ return 200 \"c[$1]\"; }}"),
        "location / { if ($http_a) { rewrite ^/b/(.*)$ /c/$1; return 302 /login?to=$1; } }",
        "location ~ ^/(a) { rewrite ^/a/(.)(.) /a/c; return 302 /login?to=$2; }",
    ] {
        check(&format!("server {{ root /a; {lines} }}"), &[" 403"], "has no equivalent here");
    }
    let refused = format!("server {{ root /a; {last} location /c/ {{ if ($1 = admin) {{ return 403; }} }} }}");
    check(&refused, &["error 403"], "all requests are refused");
    check("server { location /c/ { return 200 \"c[$1]\"; } }", &["respond * c[] 200"], "");
    let no_groups =
        "location ~ \\.(?:css|js)$ { expires 1d; } if ($http_user_agent ~ bot) { return 402; } rewrite ^/old /new;";
    check(
        &format!("server {{ root /a; {no_groups} location /c/ {{ return 301 https://c.test/$1; }} }}"),
        &["redir * https://c.test/ 301"],
        "",
    );
    check("server { location ~ ^/(c) { return 200 \"c[$1$2]\"; } }", &[".1}] 200"], "");
}

// An `alias` without an equivalent has no files, and not those of the server's root.
#[test]
fn directories_without_an_equivalent() {
    let lines = "location /a/ { alias /x/$connection/; try_files $uri @b; } location @b { return 404; }";
    check(&format!("server {{ root /a; {lines} }}"), &["\troot /nonexistent\n"], "$connection has no equivalent");
}
