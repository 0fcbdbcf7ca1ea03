//! Small servers beside nginx, each with the requests that it is about: directories, their indexes, files that are
//! found, and the rules for them.

use crate::support::*;
use crate::upstream;

/// Serves these bodies of servers, and compares the responses to the paths after each.
#[track_caller]
fn check(name: &str, servers: &[(&str, &str)]) {
    let Some(nginx) = installed_nginx() else { return };
    let server = |(index, (body, _)): (usize, &(&str, &str))| {
        format!("server {{ listen 80; server_name s{index}.test; root ROOT/www; {body} }}\n")
    };
    let text: String = servers.iter().enumerate().map(server).collect();
    let directory = ShapeDirectory::new(name);
    let up = upstream();
    let (ports, _servers) = both(nginx, &text, &directory, [up, up]);
    let mut differences = Vec::new();
    for (index, (body, paths)) in servers.iter().enumerate() {
        let host = format!("s{index}.test");
        for path in paths.split_ascii_whitespace() {
            let [theirs, ours] = ports.map(|port| request_with(port, ("GET", &host, path), "", FIELDS));
            let is_meant = match (theirs.status, ours.status) {
                // The redirect to a directory's slash.
                (301, 308) => true,
                // A directory without an index, and a dot segment at the end.
                (a, b) => a >= 400 && b >= 400,
            };
            if theirs != ours && !is_meant {
                differences.push(format!("{body}\n{path}\n  nginx    {theirs:?}\n  causeway {ours:?}"));
            }
        }
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

/// nginx takes a dot segment at the end for a directory, also in rules by expression.
#[test]
fn dot_segments_at_the_end_are_refused_where_nginx_refuses_the_directory() {
    let paths = "/private/. /admin/. /admin/x/.. /admin/x/%2e%2e /admin/%2E /admin/ /a/index.html";
    check(
        "dots",
        &[
            ("location ~ ^/(private|admin)/ { deny all; } location / { proxy_pass http://127.0.0.1:UP1; }", paths),
            ("location ~ ^/(private|admin)/ { internal; } location / { try_files $uri $uri/index.html =404; }", paths),
            (
                "if ($uri ~ ^/(private|admin)/) { return 403; } location / { try_files $uri $uri/index.html =404; }",
                paths,
            ),
            (
                "location /private/ { return 403; } location /admin/ { if ($cookie_a = \"\") { return 403; } proxy_pass http://127.0.0.1:UP1; } \
                 location / { proxy_pass http://127.0.0.1:UP1; }",
                paths,
            ),
        ],
    );
}

/// nginx chooses the location again for an index, and the first expression that takes its path counts. Without an index
/// it does not.
#[test]
fn rules_of_an_index_are_those_of_its_location() {
    let to = "location /to/ { proxy_pass http://127.0.0.1:UP1; }";
    let closed = format!(
        "index index.php index.html; location ~ ^/admin/ {{ deny all; }} \
         location ~ \\.html$ {{ rewrite ^(.*)\\.html$ /to$1 last; }} \
         location ~ \\.php$ {{ proxy_pass http://127.0.0.1:UP1; }} {to}"
    );
    let kept = "location ~ ^/a/ { } location ~ \\.html$ { rewrite ^ /assets/app.css last; }";
    let nested = "location ~ ^/b/ { rewrite html$ /assets/app.css last; location ~ index\\.html$ { } }";
    let tried = "location / { } location ~ \\.html$ { try_files /cache$uri /private/secret.txt; } location /private/ { deny all; }";
    let found = "location / { } location ~ \\.html$ { try_files /cache$uri /assets/app.css; }";
    let both =
        "location ~ \\.html$ { rewrite ^/b/ /page.txt last; try_files /cache$uri /assets/app.css; } location / { }";
    check(
        "indexes",
        &[
            (&closed, "/admin/settings.html /admin/index.html /admin/ / /a/ /page.html /files/"),
            (kept, "/a/index.html /a/ /b/ /b/index.html / /a/none.html"),
            (nested, "/b/ /b/index.html /b/none.html /a/ /"),
            (tried, "/ /a/ /page.html /assets/app.css"),
            (found, "/ /a/ /page.html /none.html"),
            (both, "/ /a/ /b/ /b/index.html /page.html"),
        ],
    );
}

/// An expression may take the index of a directory, but not the directory, or the reverse.
#[test]
fn an_index_does_not_pass_the_rules_of_its_location() {
    let paths = "/ /private/ /private/index.html /a/ /admin/ /admin/index.html /a/index.html /private /secret/";
    check(
        "expressions",
        &[
            ("location ~ ^/(docs|private)/.+ { deny all; }", paths),
            ("location ~ ^/(?:docs|private)/[^/]+$ { deny all; }", paths),
            ("location ~ ^/([^/]+)/$ { autoindex on; } location /private/ { deny all; }", paths),
            ("location ~ ^/a/$ { } location /a/ { deny all; }", paths),
            (
                "location ~ ^[^.]*$ { try_files $uri $uri/ =404; } location /admin/ { allow 10.0.0.0/8; deny all; }",
                paths,
            ),
            ("location ~ ^/(private|admin)/i { deny all; }", paths),
            ("location ~ (private/)index { deny all; }", paths),
            ("location ~ ^/private/|admin/. { deny all; }", paths),
            ("location ~* /INDEX\\. { deny all; } location /a/ { }", paths),
            ("location ~ /\\.(?!well-known) { deny all; } location ~ ^/secret/ { deny all; }", paths),
            ("location ~ ^/\\w+/\\w { deny all; }", paths),
        ],
    );
}

/// nginx's documentation of `try_files`: the first file that exists is sent by the location itself, and only the last
/// word chooses another.
#[test]
fn files_that_are_found_stay_in_their_location() {
    let missing = "location /to/ { proxy_pass http://127.0.0.1:UP1; }";
    let cached = format!(
        "location / {{ try_files /a$uri/index.html $uri $uri/ /to/missing?$args; }} location ~ ^/a/ {{ deny all; }} {missing}"
    );
    let own = format!(
        "location / {{ proxy_pass http://127.0.0.1:UP1; }} location /app/ {{ try_files $uri /page.html /to/x; }} {missing}"
    );
    let ruled = format!(
        "location / {{ proxy_pass http://127.0.0.1:UP1; }} {missing} \
         location /app/ {{ if ($arg_a) {{ return 403; }} add_header X-Kind app; try_files $uri /page.html /to/x; }} \
         location /closed/ {{ deny all; try_files $uri /page.html /to/x; }}"
    );
    let ordered = "location / { try_files $uri.html $uri $uri/ =404; } location = /a/index.html { deny all; }";
    let twins = "location / { try_files $uri $uri/index.html $uri/ /to/x; } location ~ index { return 402; } \
                 location /to/ { proxy_pass http://127.0.0.1:UP1; }";
    check(
        "found",
        &[
            (&cached, "/ /a /a/ /a/index.html /page.html /none /none?x=1 /b /b/"),
            (&own, "/app/x /app/ /page.html /to/y"),
            (&ruled, "/app/x /app/x?a=1 /app/ /closed/x"),
            (
                "location / { allow 127.0.0.1; deny all; rewrite ^/private/(.*)$ /to/r redirect; try_files $uri/index.html $uri/ /to/y; } \
                 location /to/ { proxy_pass http://127.0.0.1:UP1; }",
                "/private /a /none /b",
            ),
            (
                "location ~ ^/(a|b)/$ { try_files $uri/index.html $uri/ /to/y; } location / { deny all; }",
                "/private/ /c/",
            ),
            (ordered, "/page /page.html /a /a/ /b/ /none"),
            (twins, "/a /b /b/ /none /"),
            ("location / { try_files index.html /to/x; } location /to/ { proxy_pass http://127.0.0.1:UP1; }", "/ /x"),
        ],
    );
}

/// nginx's documentation of `index`: nginx chooses the location again for an index, and only its `try_files` counts
/// then.
#[test]
fn files_are_tried_again_only_in_the_location_of_an_index() {
    let to = "location /to/ { proxy_pass http://127.0.0.1:UP1; }";
    let paths = "/ /a/ /a /b/ /b/index.html /page.html /none /none/ /private/ /assets/ /assets";
    let servers = [
        "location / { try_files /none.html $uri $uri/ /to/x; } location ~ \\.html$ { deny all; }",
        "location / { try_files /none.html $uri $uri/ /to/x; } location = /index.html { deny all; } location ~ ^/(a|b)/.*l$ { deny all; }",
        "location / { try_files /none$uri $uri/ /to/x?$args; } location ~ l$ { proxy_pass http://127.0.0.1:UP1; }",
        "location / { try_files $uri/ @to; } location @to { rewrite ^ /to/y last; } location ~ l$ { add_header X-Kind l; deny all; }",
        "location / { try_files $uri/ /to/x; } location ~ l$ { deny all; }",
        // The index is in the same location.
        "location / { try_files /b$uri $uri/ /to/x; } location = /a/index.html { deny all; }",
        // Other names of the path.
        "location / { try_files ${uri} ${uri}/ =404; } location ~ l$ { deny all; }",
        "location / { try_files $document_uri ${document_uri}/ /to/x; } location ~ l$ { deny all; }",
        "location / { try_files /store${uri}/ $document_uri/ =404; } location ~ l$ { deny all; }",
        // Rules of the index's location choose another one.
        "location / { try_files $uri $uri/ /to/x; } location ~ l$ { rewrite ^(.*)\\.html$ $1 last; }",
        "location / { try_files $uri $uri/ /to/x; } location ~ l$ { rewrite ^ /to/rule last; }",
        // The index's location finds a file by another path.
        "location / { try_files $uri $uri.html $uri/ /to/x; } location = /index.html { deny all; try_files /page.html $uri /to/y; }",
        "location / { try_files $uri $uri.html $uri/ /to/x; } location ~ x.html$ { add_header X-Kind i; try_files /page.html $uri /to/y; }",
        // An absolute index.
        "index index.html /none; location / { try_files $uri $uri/ /to/x; } location /none { return 402; } location ~ l$ { deny all; }",
    ]
    .map(|server| format!("{server} {to}"));
    check("again", &servers.iter().map(|server| (server.as_str(), paths)).collect::<Vec<_>>());
}

/// nginx's documentation of `try_files`: a word with a slash at its end is for a directory, whose index is that of
/// another location.
#[test]
fn directories_by_other_paths_equal_those_of_nginx() {
    let to = "location /to/ { proxy_pass http://127.0.0.1:UP1; }";
    let paths = "/ /a/ /a /c/ /c /c?x=1 /page /page.html /store/c/ /store/c /none /none/ /store/ /store";
    let closed = "location ~ l$ { deny all; }";
    let servers = [
        "location / { try_files $uri /store$uri/ /to/y; }",
        "location / { try_files $uri /store$uri/ $uri/ $uri.html /to/y; }",
        "location / { try_files /store$uri/ $uri =404; }",
        "location / { try_files /store$uri/ $uri @to; } location @to { rewrite ^ /to/y last; }",
        "location / { try_files /store$uri/ $uri @to; } location @to { return 402; }",
        "location / { try_files /store$uri.html /store$uri/ $uri/ =404; }",
        "location / { try_files $uri/index.html /store/c/ /to/y; } location ~ c/index { deny all; }",
        "location / { add_header X-Kind a; try_files $uri /store$uri/ /to/y; } location ^~ /store/ { add_header X-Kind b; }",
        // Words that end in another variable, whose value may end in a slash.
        "location ~ ^/(.*)$ { try_files /$1 /$1/ =404; }",
        "location ~ ^/store/(.*)$ { try_files /store/$1 /store/$1/ =404; } location ~ ^/(.*)$ { try_files /store/$1/ =404; }",
        "location / { try_files $uri /store$request_uri/ =404; }",
        "location / { try_files $uri $fastcgi_script_name/ =404; }",
        "location / { try_files $uri /store/c// /to/y; }",
    ];
    let servers: Vec<_> =
        servers.iter().flat_map(|server| [format!("{server} {closed} {to}"), format!("{server} {to}")]).collect();
    check("others", &servers.iter().map(|server| (server.as_str(), paths)).collect::<Vec<_>>());
}

/// nginx's documentation of `if` and `index`: where an `if` with an upstream holds, that makes the response, and
/// otherwise an index is that of the location that its path chooses.
#[test]
fn directories_beside_upstreams_of_conditions_equal_those_of_nginx() {
    let pass = "proxy_pass http://127.0.0.1:UP1;";
    let paths =
        "/ /?x=1 /a /a?x=1 /a/ /a/?x=1 /c?x=1 /none /none?x=1 /page.html /page.html?x=1 /?x=1&y=1 /old /old?x=1";
    let servers = [
        format!("if ($arg_x) {{ {pass} }}"),
        format!("if ($arg_x) {{ {pass} }} if ($arg_y) {{ add_header X-Kind y; }}"),
        format!("if ($arg_x) {{ {pass} }} try_files $uri $uri/ /to/x;"),
        format!("if ($arg_x) {{ {pass} }} try_files $uri /store$uri/ /to/x;"),
        format!("if (!-f $request_filename) {{ {pass} break; }}"),
        format!("rewrite ^/old$ /a/ last; if ($arg_x) {{ {pass} }}"),
        format!("if ($arg_x) {{ {pass} }} allow 127.0.0.1; deny all;"),
    ];
    let closed = "location ~ l$ { deny all; }";
    let servers: Vec<_> =
        servers.iter().map(|lines| format!("location / {{ {lines} }} {closed} location /to/ {{ {pass} }}")).collect();
    check("passes", &servers.iter().map(|server| (server.as_str(), paths)).collect::<Vec<_>>());
}

/// An upstream gets the path of the request, or the URI of `proxy_pass` with the rest of the path after it.
#[test]
fn paths_of_upstreams_equal_those_of_nginx() {
    check(
        "upstream-paths",
        &[
            (
                "location = /c { proxy_pass http://127.0.0.1:UP1/cc?x=1; } location /j { proxy_pass http://127.0.0.1:UP1/j?z=; } \
                 location /k/ { proxy_pass http://127.0.0.1:UP1/?z=; }",
                "/c /j /jabc /k/x",
            ),
            (
                "location /sub/ { alias ROOT/www/; location /sub/api/ { proxy_pass http://127.0.0.1:UP1; } \
                 location /sub/in/ { proxy_pass http://127.0.0.1:UP1/out/; } }",
                "/sub/api/x /sub/in/x /sub/page.html /sub/a/",
            ),
            (
                "location /adm { allow 127.0.0.1; deny all; alias ROOT/www/admin; }",
                "/adm /adm/ /adm/index.html /adm?x=1",
            ),
        ],
    );
}

/// A target with scheme and host would get into the middle of a path.
#[test]
fn absolute_targets_beside_rules_with_the_uri_are_refused() {
    let Some(nginx) = installed_nginx() else { return };
    let directory = ShapeDirectory::new("absolute-targets");
    let text = "server { listen 80; location /remote { return 301 /remote.php$request_uri; } }";
    let (ports, _servers) = both(nginx, text, &directory, [1, 1]);
    let send = |path| ports.map(|port| request(port, "GET", "example.com", path).status);
    assert_eq!(send("/remote"), [301, 301]);
    assert_eq!(send("http://example.com/remote"), [301, 400]);
}

/// nginx's documentation of `alias`: the rest of the path is joined to its text, whether or not that ends with a slash.
/// So the text may also be the name of a file.
#[test]
fn paths_beside_the_directory_of_an_alias_equal_those_of_nginx() {
    let paths = "/a /a/ /a/page.html /a/private/ /a/private/index.html /aprivate/ /aprivate/index.html /apage.html /a.git/config \
                 /a/.git/config /a%0apage.html /a. /a./page.html /aw/page.html /a//page.html /%61private/index.html /a%2Fpage.html";
    let password = "auth_basic x; auth_basic_user_file ROOT/htpasswd;";
    let closed =
        format!("location /a {{ alias ROOT/www; }} location /a/private {{ {password} alias ROOT/www/private; }}");
    check(
        "beside",
        &[
            ("location /a { alias ROOT/www; } location /a/private/ { deny all; } location ~ /\\. { deny all; }", paths),
            ("location ^~ /a { alias ROOT/www; } location ~ /\\. { deny all; }", paths),
            (&closed, paths),
            ("location /a { alias ROOT/ww; autoindex on; }", "/aw/page.html /aw/ /aw/a/ /aw/a /a/page.html /a/ /a"),
            ("location / { alias ROOT/www/; } location ~ l$ { deny all; }", "/ /a/ /a"),
            ("location /a/ { alias ROOT/ww; }", "/a/w/page.html /a/page.html /a/private/index.html /a"),
            ("location /a { alias ROOT/www; try_files $uri $uri/ /a/index.html; }", paths),
            ("location /a { alias ROOT/www; try_files $uri =404; }", paths),
            ("location /a { alias ROOT/www; try_files $uri @n; } location @n { return 200 named; }", paths),
            (
                "location /a { alias ROOT/www; location ~ \\.html$ { try_files $uri =404; } }",
                "/aprivate/index.html /a/private/index.html /apage.html",
            ),
            (
                "location /icon { alias ROOT/www/page.html; } location ~ ^/same { alias ROOT/www/page.html; } \
                 location ^~ /b.css { deny 192.0.2.1; alias ROOT/www/assets/app.css; }",
                "/icon /icons /icon/ /icon/x /same /same/x /b.css /b.cssx /b.css/",
            ),
        ],
    );
}

/// nginx's documentation of `try_files`: the last word is a URI. Without a slash it is that of no location with a
/// prefix.
#[test]
fn last_words_without_a_slash_lead_to_no_other_location() {
    let other = "location / { return 200 other; }";
    let servers = ["index.html", "page.html", "none"].map(|last| {
        format!("location /a/ {{ try_files $uri $uri/ {last}; }} location /b/ {{ alias ROOT/www/; try_files $uri {last}; }} {other}")
    });
    let servers: Vec<_> =
        servers.iter().map(|server| (server.as_str(), "/a/none /a/ /a/index.html /b/none /b/page.html /")).collect();
    check("last", &servers);
}

/// nginx's documentation of `if`: its content is that of a location, which inherits from the one around it. The last
/// that holds counts.
#[test]
fn the_last_condition_that_holds_replaces_content() {
    let proxied = "proxy_pass http://127.0.0.1:UP1; break;";
    let thin = format!(
        "location / {{ if (-f $request_filename/index.html) {{ rewrite (.*) $1/index.html break; }} \
         if (-f $request_filename.html) {{ rewrite (.*) $1.html break; }} if (!-f $request_filename) {{ {proxied} }} }}"
    );
    let jenkins = format!(
        "location / {{ add_header X-Outer 1; if (!-f $request_filename) {{ add_header X-Kind up; {proxied} }} }}"
    );
    let login = "if ($arg_s = \"\") { proxy_pass http://127.0.0.1:UP1; break; }";
    let files = format!("location / {{ {login} if (-f $request_filename) {{ break; }} }}");
    let rewritten = format!("location / {{ {login} if (-f $request_filename) {{ rewrite ^ /a/index.html break; }} }}");
    let chosen = format!(
        "location / {{ {login} if (-f $request_filename) {{ rewrite ^ /a/index.html last; }} }} location /a/ {{ add_header X-Kind a; }}"
    );
    let fields = "location / { add_header X-Outer 1; if ($arg_s = \"\") { add_header X-Inner 1; expires 1h; break; } \
                  if (-f $request_filename) { break; } }";
    let kept = format!(
        "location / {{ {login} if (-f $request_filename) {{ break; }} rewrite ^/x /a/index.html last; }} location /a/ {{ }}"
    );
    let of_session = "/page.html /page.html?s=1 /x /x?s=1 /assets/app.css /assets/app.css?s=1";
    check(
        "held",
        &[
            (&files, of_session),
            (&rewritten, of_session),
            (&chosen, of_session),
            (fields, of_session),
            (&kept, of_session),
            (
                "location / { add_header X-Outer 1; if ($request_method = GET) { add_header X-Kind get; } \
                 if ($arg_x) { add_header X-Inner 1; expires 1h; } if ($arg_y) { set $z 1; } }",
                "/page.html /page.html?x=1 /page.html?x=1&y=1 /page.html?y=1 /none",
            ),
            (
                "location / { add_header X-Outer 1; if ($arg_x) { add_header X-Inner $arg_x always; } \
                 if ($arg_y) { add_header X-Kind 1; return 404; } return 200 text; }",
                "/ /?x=1 /?x=1&y=1 /?y=1",
            ),
            ("location / { if ($content_length = \"\") { return 411; } }", "/page.html"),
            (&thin, "/page /a /a/ / /none /page.html /assets/app.css"),
            (&jenkins, "/page.html /none /a/ / /a"),
        ],
    );
}

/// nginx's documentation of `gzip`: a location may have its own.
#[test]
fn compression_of_locations_equals_that_of_nginx() {
    let paths =
        "/page.html /assets/app.css /a/ /index.html /answer/ /answer/if?a=1 /answer/if /plain/ /named/x /named/x?a=1";
    let cases: Vec<_> =
        paths.split_ascii_whitespace().map(|path| ("HEAD", path, "Accept-Encoding: gzip\r\n")).collect();
    compare("gzip_of_locations", &["content-encoding"], &cases);
}
