use causeway_config::caddyfile::{Directives, ErrorKind, NameTable, adapt};

use super::read;

/// Every message is one line that starts with the exact position.
#[track_caller]
fn check(cases: &[(&str, &str)]) {
    for (source, want) in cases {
        let error = read(source).map(|adapted| adapted.json).expect_err(source).to_string();
        assert_eq!(error, format!("Caddyfile:{want}"), "{source:?}");
        assert!(!error.contains('\n'));
    }
}

// An address may contain a password, so that the error does not repeat it.
#[test]
fn addresses_of_redis() {
    for address in [
        "a",
        ":6379",
        "a:0",
        "a:65536",
        "::1:6379",
        "u:secret@a:6379",
        "unix/run/redis.sock",
        "redis://u:secret@",
        "redis://u:secret@a/x",
        "redis://u:secret@a:6379/-1",
        "redis://u:secret@a:6379/0?protocol=resp3",
        "redis://u:%FF@a",
        "rediss://a#insecure",
        "valkey://a",
    ] {
        check(&[(
            &format!(":80\nrate_limit {{\n\tredis {address}\n}}"),
            "3:8: parsing caddyfile tokens for 'rate_limit': this is no address of a Redis server; expected host:port, \
             redis://[user:password@]host[:port][/db], the same with rediss:// for TLS, or unix//path",
        )]);
    }
}

#[test]
fn directives() {
    check(&[
        (
            ":80 {\n\trespnd x\n}\n",
            "2:2: unrecognized directive: respnd (did you mean \"respond\"?); expected a directive",
        ),
        (":80 {\n    xyzzyx x\n}\n", "2:5: unrecognized directive: xyzzyx; expected a directive"),
        (
            ":80 {\n\thandle {\n\t\tfile_servr\n\t}\n}\n",
            "3:3: parsing caddyfile tokens for 'handle': unrecognized directive: file_servr (did you mean \"file_server\"?) \
             - are you sure your Caddyfile structure (nesting and braces) is correct?",
        ),
        (
            "a.test\nrespond x\nb.test\n",
            "3:1: unrecognized directive: b.test; expected a directive. Did you mean to define a second site? If so, you \
             must use curly braces around each site to separate their configurations.",
        ),
        (
            ":80\ntemplates {\n\tbetween a\n}",
            "3:10: parsing caddyfile tokens for 'templates': wrong argument count or unexpected line ending after 'a'",
        ),
        (
            ":80\ntemplates {\n\textensions {\n\t\tgit\n\t}\n}",
            "4:3: parsing caddyfile tokens for 'templates': 'git' is not supported (docs/refused.md): templates have no extensions",
        ),
        (
            ":80\ntimeouts {\n\tread_timeout 1s fast\n}",
            "3:18: parsing caddyfile tokens for 'timeouts': 'fast' is no number of bytes a second; expected an integer",
        ),
        (
            ":80\nrate_limit {\n\tzone a {\n\t\twindow 1s\n\t}\n}",
            "3:7: parsing caddyfile tokens for 'rate_limit': a zone needs 'window' and 'events', both above 0",
        ),
        (
            ":80\nrate_limit {\n\tzone a {\n\t\twindow x\n\t}\n}",
            "4:10: parsing caddyfile tokens for 'rate_limit': 'x' is no duration; expected one such as 30s or 1m",
        ),
        (
            ":80\nrate_limit {\n\tdistributed\n}",
            "3:2: parsing caddyfile tokens for 'rate_limit': 'distributed' is not supported; 'redis <address>' adds up the requests of several servers (docs/caddyfile.md, Rate limits)",
        ),
        (
            ":80\nrate_limit {\n\tredis a:1\n\tredis b:1\n}",
            "4:8: parsing caddyfile tokens for 'rate_limit': this option is given above; expected it once",
        ),
        (
            ":80\nrate_limit {\n\tredis\n}",
            "3:2: parsing caddyfile tokens for 'rate_limit': wrong argument count or unexpected line ending after 'redis'",
        ),
        (
            ":80\ncache {\n\tttl x\n}",
            "3:6: parsing caddyfile tokens for 'cache': 'x' is no duration; expected one such as 30s or 1m",
        ),
        (
            ":80\ncache {\n\tredis {\n\t\turl x\n\t}\n}",
            "3:2: parsing caddyfile tokens for 'cache': 'redis' is not supported; docs/cache.md lists the parts of the plugin that are",
        ),
        (
            ":80\ncache {\n\tsimplefs {\n\t}\n}",
            "3:2: parsing caddyfile tokens for 'cache': 'simplefs' needs the 'path' of a directory",
        ),
        (
            ":80\ncache {\n\tkey {\n\t\tdisable_vary\n\t}\n}",
            "4:3: parsing caddyfile tokens for 'cache': 'disable_vary' is not supported: Vary of a response always counts (RFC 9111 §4.1)",
        ),
        (
            "{\n\tcache {\n\t\tallowed_additional_status_codes 99\n\t}\n}",
            "3:35: parsing caddyfile tokens for 'cache': '99' is no status code; expected one from 200 to 999",
        ),
        (
            ":80\nencode lzw",
            "2:8: parsing caddyfile tokens for 'encode': getting module named 'http.encoders.lzw': module not registered; expected \
             br, gzip, zstd",
        ),
        (
            ":80\nencode {\n\tbr best\n}",
            "3:5: parsing caddyfile tokens for 'encode': bad level 'best'; expected a number",
        ),
        (
            ":80\nencode {\n\tzstd fast\n}",
            "3:7: parsing caddyfile tokens for 'encode': unexpected compression level, use one of 'fastest', 'better', 'best', \
             'default'",
        ),
        (
            ":80\nfile_server {\n\tprecompress on\n}",
            "3:14: parsing caddyfile tokens for 'file_server': unknown format 'on'; expected br, gzip or zstd",
        ),
        (
            ":80\nfile_server {\n\tprecompress br gzip br\n}",
            "3:22: parsing caddyfile tokens for 'file_server': format 'br' is named twice; expected each format once",
        ),
        (
            ":80\nfile_server {\n\tprecompress\n\tprecompress br\n}",
            "4:2: parsing caddyfile tokens for 'file_server': precompress is already configured",
        ),
        (
            ":80\npush {\n\theaders {\n\t\t?A b\n\t}\n}",
            "4:3: parsing caddyfile tokens for 'push': ?A: the default header modifier ('?') can only be used on response headers; \
             for conditional manipulation of request headers, use matchers",
        ),
        (
            "respond {\n}\n",
            "1:1: parsed 'respond' as a site address, but it is a known directive; directives must appear in a site block",
        ),
        (
            ":80\nrespond",
            "2:1: parsing caddyfile tokens for 'respond': wrong argument count or unexpected line ending after 'respond'",
        ),
        (
            ":80\nrespond a b c",
            "2:13: parsing caddyfile tokens for 'respond': wrong argument count or unexpected line ending after 'c'",
        ),
        (":80\nrespond a {\n\tbody b\n}", "3:2: parsing caddyfile tokens for 'respond': body already specified"),
        (
            ":80\nrespond a {\n\tbdy b\n}",
            "3:2: parsing caddyfile tokens for 'respond': unrecognized subdirective 'bdy' (did you mean \"body\"?); expected body, close",
        ),
        (
            ":80\nheader A b {\n\tC d\n}",
            "3:2: parsing caddyfile tokens for 'header': cannot specify headers in both arguments and block",
        ),
        (
            ":80\nheader {\n\t?Etag a\n\tmatch header Etag b\n}",
            "3:2: parsing caddyfile tokens for 'header': cannot match on response header Etag and also set a default for it",
        ),
        (":80\nroot", "2:1: parsing caddyfile tokens for 'root': too few arguments; must have at least a root path"),
        (
            ":80\nroot a b c",
            "2:10: parsing caddyfile tokens for 'root': too many arguments; should only be a matcher and a path",
        ),
        (
            ":80\nfile_server brows",
            "2:13: parsing caddyfile tokens for 'file_server': wrong argument count or unexpected line ending after 'brows'",
        ),
        (
            ":80\nfile_server {\n\tpass_thru x\n}",
            "3:12: parsing caddyfile tokens for 'file_server': wrong argument count or unexpected line ending after 'x'",
        ),
        (
            ":80\nfile_server {\n\tbrowse {\n\t\tsort weight\n\t}\n}",
            "4:8: parsing caddyfile tokens for 'file_server': unknown sort option 'weight'",
        ),
        (
            ":80\nfile_server {\n\troot a b\n}",
            "3:9: parsing caddyfile tokens for 'file_server': unknown subdirective 'b'; expected nothing more on this line",
        ),
        (":80\nabort {\n}", "2:1: parsing caddyfile tokens for 'abort': unexpected token '{', expecting argument"),
        (
            ":80\nbasic_auth md5 {\n}",
            "2:12: parsing caddyfile tokens for 'basic_auth': unrecognized hash algorithm: md5; expected bcrypt or argon2id",
        ),
        (
            ":80\nbasic_auth {\n\tann\n}",
            "3:2: parsing caddyfile tokens for 'basic_auth': username and password cannot be empty or missing",
        ),
        (
            ":80\nrequest_body {\n\tmax_size much\n}",
            "3:11: parsing caddyfile tokens for 'request_body': parsing max_size: 'much' is no size; expected one such as 16KiB or 100MB",
        ),
        (
            ":80\nlog_level loud",
            "2:11: parsing caddyfile tokens for 'log_level': invalid log level \"loud\": expected DEBUG, INFO, WARN, or ERROR",
        ),
        (
            ":80\nrespond a \"{\" b",
            "2:15: parsing caddyfile tokens for 'respond': wrong argument count or unexpected line ending after 'b'",
        ),
        (
            ":80\nredir * /a 500",
            "2:12: parsing caddyfile tokens for 'redir': Redir code not in the 3xx range or 401: '500'",
        ),
        (
            ":80\nredir /a",
            // A word that looks like a matcher is one.
            "2:1: parsing caddyfile tokens for 'redir': wrong argument count or unexpected line ending after 'redir'",
        ),
    ]);
}

#[test]
fn matchers() {
    check(&[
        ("@a {\n}\n", "1:1: request matchers may not be defined globally, they must be in a site block; found @a"),
        (
            ":80\nrespond @a x",
            "2:9: parsing caddyfile tokens for 'respond': unrecognized matcher name: @a; expected one defined in this block",
        ),
        (":80\n@a path /x\n@a path /y", "3:1: matcher is defined more than once: @a"),
        (
            ":80\n@a path /x\nhandle {\n\t@a path /y\n}",
            "4:2: parsing caddyfile tokens for 'handle': matcher is defined more than once: @a",
        ),
        (":80\n@a header X y z", "2:15: unexpected 'z' in a matcher; expected the line to end before it"),
        (
            ":80\n@a `path('/a')` z",
            "2:17: unexpected 'z' after a quoted expression; expected the line to end before it",
        ),
        // Caddy: words after a quoted expression are another matcher.
        (
            ":80\n@a not `path('/a')` z",
            "2:21: getting matcher module 'z': module not registered; expected client_ip, expression, file, header, header_regexp, \
             host, method, not, path, path_regexp, protocol, query, remote_ip, tls, url_pattern, vars, vars_regexp",
        ),
        (
            ":80\n@a {\n\tmaxmind_geolocation {\n\t}\n}",
            "3:2: getting matcher module 'maxmind_geolocation': module not registered (of the plugin MaxMind GeoIP, which is not supported; here: no equivalent)",
        ),
        (
            ":80\nlog {\n\tformat jsonselect \"{ts}\"\n}",
            "3:9: parsing caddyfile tokens for 'log': getting module named 'caddy.logging.encoders.jsonselect': module not registered \
             (of the plugin caddy-jsonselect-encoder, which is not supported; here: format filter, or format transform)",
        ),
        (
            ":80\nreverse_proxy localhost {\n\tlb_retry_match `path('/a')` z\n}",
            "3:30: parsing caddyfile tokens for 'reverse_proxy': getting matcher module 'z': module not registered; expected client_ip, expression, file, header, header_regexp, \
             host, method, not, path, path_regexp, protocol, query, remote_ip, tls, url_pattern, vars, vars_regexp",
        ),
        (
            ":80\n@a not `path('/a')` `path('/b')`",
            "2:21: repeated expression matchers are not supported, combine them into one expression with &&",
        ),
        (":80\n@a protocol http https", "2:18: expected exactly one protocol; expected it after 'https'"),
        (
            ":80\n@a file {\n\troot /a /b\n}",
            "3:10: unrecognized subdirective: /b; expected root, split_path, try_files, try_policy",
        ),
        (":80\n@a query x", "2:10: malformed query matcher token: x; must be in param=val format"),
        (":80\n@a url_pattern", "2:4: expected exactly one URL pattern; found 'url_pattern'"),
        (":80\n@a url_pattern /a /b", "2:19: expected exactly one URL pattern; found '/b'"),
        (
            ":80\n@a url_pattern /a {\n\tignorecase\n}",
            "3:2: unrecognized url_pattern option 'ignorecase' (did you mean \"ignore_case\"?); expected base_url, ignore_case",
        ),
        (
            ":80\n@a url_pattern /a {\n\tignore_case on\n}",
            "3:14: wrong argument count or unexpected line ending after 'on'",
        ),
        (":80\n@a {\n\turl_pattern /a\n\turl_pattern /b\n}", "4:2: expected no second url_pattern in a named matcher"),
        (":80\n@a path_regexp", "2:4: wrong argument count or unexpected line ending after 'path_regexp'"),
        (
            ":80\n@a file {\n\troots x\n}",
            "3:2: unrecognized subdirective: roots (did you mean \"root\"?); expected root, split_path, try_files, try_policy",
        ),
    ]);
    let error = read(":80\n@a pth /x").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unknown { name, .. } if &**name == "pth"), "{error}");
    assert_eq!(error.position().column, 4);
}

#[test]
fn structure() {
    check(&[
        ("", "1:1: unexpected EOF, expecting a site address"),
        (":80 {\n\trespond x\n", "1:5: unexpected EOF, expecting '}'; the block that begins here is never closed"),
        ("(s) {\n\trespond x\n", "1:5: unexpected EOF, expecting '}'; the block that begins here is never closed"),
        (
            ":80 {\n\trespond \"x\n}\n",
            "2:10: the quote \" that begins here is never closed; expected another one before the end of the file",
        ),
        (
            ":80 {\n\trespond `x\n}\n",
            "2:10: the quote ` that begins here is never closed; expected another one before the end of the file",
        ),
        (
            ":80 {\n\trespond \"x\n\tredir \"/a b c d\n}\n",
            "3:16: parsing caddyfile tokens for 'respond': wrong argument count or unexpected line ending after 'd'; the quote \
             that begins at Caddyfile:2:10 ends on line 3",
        ),
        (
            ":80 {\n\trespond x\n\n:81 {\n\trespond y\n}\n",
            "4:1: unrecognized directive: :81; expected a directive; if it is a site address, the block of ':80' that begins at \
             Caddyfile:1:5 lacks its '}'",
        ),
        (
            "a.test {\n\thandle {\n\t\trespond x\n\nb.test {\n\trespond y\n}\n}\n}\n",
            "5:1: parsing caddyfile tokens for 'handle': unrecognized directive: b.test - are you sure your Caddyfile structure \
             (nesting and braces) is correct?; if it is a site address, the block of 'handle' that begins at Caddyfile:2:9 lacks \
             its '}'",
        ),
        (
            ":80 {
	handle
	{
	}
}
",
            "3:2: Unexpected '{' on a new line; did you mean to place the '{' on the previous line?",
        ),
        (
            ":80{\n}\n",
            "1:1: Site addresses cannot end with a curly brace: ':80{' - put a space between the token and the brace",
        ),
        (
            "a.test,b.test {\n}\n",
            "1:1: Site addresses cannot contain a comma ',': 'a.test,b.test' - put a space after the comma to separate site addresses",
        ),
        ("a.test, {\n}\n", "1:9: Expected another address but had '{' - check for extra comma"),
        (":80 {\n}\n}\n", "3:1: Unexpected '}' because no matching opening brace"),
        (":80 {\n\thandle { respond x\n\t}\n}\n", "2:9: Unexpected next token after '{' on same line"),
        (":80 {\n\thandle {}\n}\n", "2:9: Unexpected '{}' at end of line"),
        // Words after the brace would belong to no sub-block.
        (
            "(s) {\n\theader {\n\t\t{blocks.a}\n\t}\n}\n:80 {\n\timport s {\n\t\ta {\n\t\t\tB c\n\t\t} D e\n\t}\n}\n",
            "10:5: Unexpected next token after '}' on same line",
        ),
        (
            ":80 {\n\troute {\n\t\tacme_server {\n\t\t\tca c\n\t\t}\n\t}\n}\n",
            "3:3: parsing caddyfile tokens for 'route': acme_server directive returned something other than an HTTP route or subroute (only handler directives can be used in routes)",
        ),
        (
            ":80 {\n}\n{\n\tdebug\n}\n",
            "3:1: server block without any key is global configuration, and if used, it must be first",
        ),
        ("(s) {\n}\n(s) {\n}\n", "3:1: redeclaration of previously declared snippet s"),
        (
            "(a) {\n\timport a\n}\nimport a\n",
            "2:2: a cycle of imports exists between Caddyfile:a and Caddyfile:a (imported at Caddyfile:4:1)",
        ),
        (":80\nimport", "2:1: wrong argument count or unexpected line ending after 'import'"),
        ("&(r) {\n}\n&(r) {\n}\n", "3:1: cannot have duplicate named_routes: r"),
        (":80 {\n\tinvoke r\n}\n", "2:9: cannot invoke named route 'r', which was not defined"),
    ]);
}

#[test]
fn heredocs() {
    check(&[
        (
            ":80\nrespond <<\n",
            "2:9: missing opening heredoc marker on line #2; must contain only alphanumeric characters, dashes and underscores; got empty string",
        ),
        (":80\nrespond <<<A\nx\nA\n", "2:9: too many '<' for heredoc on line #2; only use two, for example <<END"),
        (
            ":80\nrespond <<A!\nx\nA!\n",
            "2:9: heredoc marker on line #2 must contain only alphanumeric characters, dashes and underscores; got 'A!'",
        ),
        (":80\nrespond <<A\nx\n", "2:9: incomplete heredoc <<A on line #2, expected ending marker A"),
        (
            ":80\nrespond <<A\n x\n  A\n",
            "3:1: mismatched leading whitespace in heredoc <<A on line #3 [ x], expected whitespace [  ] to match the closing marker",
        ),
    ]);
}

#[test]
fn addresses() {
    check(&[
        ("a.test:70000 {\n}\n", "1:1: port 70000 is out of range; expected 0 to 65535"),
        ("a.test, b.test:-1 {\n}\n", "1:9: port -1 is out of range; expected 0 to 65535"),
        ("a.test:http {\n}\n", "1:1: invalid port 'http': expected a number"),
        ("wss://a.test {\n}\n", "1:1: the scheme wss:// is only supported in browsers; use https:// instead"),
        ("http://a.test:443 {\n}\n", "1:1: [http://a.test:443] scheme and port violate convention"),
        (
            "a.test {\n}\na.test {\n}\n",
            "3:1: ambiguous site definition: a.test; its first definition is at Caddyfile:1:1",
        ),
        (
            "http://a.test:81 {\n}\nhttps://b.test:81 {\n}\n",
            "3:1: server listening on [:81] is configured for HTTP and cannot natively multiplex HTTP and HTTPS: https://b.test:81",
        ),
    ]);
}

#[test]
fn options() {
    let unknown = read("{\n\thttp_prt 1\n}\n").unwrap_err().to_string();
    assert!(
        unknown.starts_with(
            "Caddyfile:2:2: unrecognized global option: http_prt (did you mean \"http_port\"?); expected acme_ca, "
        ),
        "{unknown}"
    );
    check(&[
        ("{\n\tevents\n}\n", "2:2: global option 'events' is not supported (docs/refused.md)"),
        (
            "{\n\thttp_port x\n}\n",
            "2:12: parsing caddyfile tokens for 'http_port': converting port 'x' to integer value: not a number",
        ),
        (
            "{\n\tgrace_period 5\n}\n",
            "2:15: parsing caddyfile tokens for 'grace_period': invalid duration '5'; expected one such as 30s, 1m30s or 2d",
        ),
        ("{\n\torder nope first\n}\n", "2:8: parsing caddyfile tokens for 'order': nope is not a registered directive"),
        (
            "{\n\tservers {\n\t\tlistener_wrappers {\n\t\t\ttsl\n\t\t}\n\t}\n}\n",
            "4:4: parsing caddyfile tokens for 'servers': getting module named 'caddy.listeners.tsl': module not registered (did you mean \"tls\"?); expected http_redirect, proxy_protocol, tls",
        ),
        (
            "{\n\tservers {\n\t\tmax_header_size big\n\t}\n}\n",
            "3:19: parsing caddyfile tokens for 'servers': parsing max_header_size: 'big' is no size; expected one such as 16KiB or 1MB",
        ),
        (
            "{\n\tservers {\n\t\ttimeouts {\n\t\t\tidle 5\n\t\t}\n\t}\n}\n",
            "4:9: parsing caddyfile tokens for 'servers': parsing idle timeout duration: invalid duration '5'; expected one such as 30s",
        ),
        (
            "{\n\tservers {\n\t\ttrusted_proxies\n\t}\n}\n",
            "3:3: parsing caddyfile tokens for 'servers': trusted_proxies expects an IP range source module name as its first \
             argument",
        ),
        (
            "{\n\tservers {\n\t\ttrusted_proxies cloudfare\n\t}\n}\n",
            "3:19: parsing caddyfile tokens for 'servers': getting module named 'http.ip_sources.cloudfare': module not \
             registered (did you mean \"cloudflare\"?); expected cloudflare, combine, static",
        ),
        (
            "{\n\tservers {\n\t\ttrusted_proxies cloudflare 1h\n\t}\n}\n",
            "3:30: parsing caddyfile tokens for 'servers': wrong argument count or unexpected line ending after '1h'",
        ),
        (
            "{\n\tservers {\n\t\ttrusted_proxies cloudflare {\n\t\t\tinterval often\n\t\t}\n\t}\n}\n",
            "4:13: parsing caddyfile tokens for 'servers': parsing cloudflare interval: invalid duration 'often'; expected one \
             such as 12h",
        ),
        (
            "{\n\tservers {\n\t\ttrusted_proxies cloudflare {\n\t\t\turls x\n\t\t}\n\t}\n}\n",
            "4:4: parsing caddyfile tokens for 'servers': unrecognized cloudflare option 'urls'; expected interval, timeout",
        ),
        (
            "{\n\tservers {\n\t\ttrusted_proxies combine {\n\t\t\tcloudflare {\n\t\t\t\ttimeout\n\t\t\t}\n\t\t}\n\t}\n}\n",
            "5:5: parsing caddyfile tokens for 'servers': wrong argument count or unexpected line ending after 'timeout'",
        ),
        (
            "{\n\tservers {\n\t\ttrusted_proxies combine {\n\t\t\tdns cloudflared\n\t\t}\n\t}\n}\n",
            "4:4: parsing caddyfile tokens for 'servers': getting module named 'http.ip_sources.dns': module not registered; \
             expected cloudflare, combine, static",
        ),
        (
            "{\n\tservers :80 {\n\t\tname a\n\t}\n\tservers :81 {\n\t\tname a\n\t}\n}\n",
            "5:10: applying global server options: cannot use duplicate server name 'a'",
        ),
        (
            "{\n\tstorage consul\n}\n",
            "2:10: parsing caddyfile tokens for 'storage': module 'caddy.storage.consul' is not supported (docs/refused.md)",
        ),
        (
            "{\n\tstorage redis cluster\n}\n",
            "2:16: parsing caddyfile tokens for 'storage': 'cluster' is not supported (docs/refused.md); expected no argument, for a \
             single server",
        ),
        (
            "{\n\tstorage redis {\n\t\tmaster_name m\n\t}\n}\n",
            "3:3: parsing caddyfile tokens for 'storage': clusters and Sentinel are not supported (docs/refused.md), only a single \
             server",
        ),
        (
            "{\n\tstorage redis {\n\t\ttls_enabled yes\n\t}\n}\n",
            "3:15: parsing caddyfile tokens for 'storage': invalid boolean value 'yes'; expected true or false",
        ),
        (
            "{\n\tstorage file_system\n}\n",
            "2:10: parsing caddyfile tokens for 'storage': missing root path (to use default, omit storage config entirely)",
        ),
        (
            "{\n\tadmin off {\n\t}\n}\n",
            "2:8: parsing caddyfile tokens for 'admin': No more option is allowed after turning off admin config",
        ),
        (
            "{\n\tservers :80\n\tservers :80\n}\n",
            "3:10: cannot have 'servers' global options with duplicate listener addresses: :80",
        ),
    ]);
}

// Columns count characters of the file as written: substituted values and joined lines do not shift later columns.
#[test]
fn positions_refer_to_the_original_text() {
    check(&[
        (
            ":80\nheader A \"äöü\" b\nrespnd",
            "3:1: unrecognized directive: respnd (did you mean \"respond\"?); expected a directive",
        ),
        (
            ":80\nrespond {$HOST}{$HOST} b c",
            "2:26: parsing caddyfile tokens for 'respond': wrong argument count or unexpected line ending after 'c'",
        ),
        (
            ":80\nrespond a \\\n\tb c",
            "3:4: parsing caddyfile tokens for 'respond': wrong argument count or unexpected line ending after 'c'",
        ),
        (
            ":80\nrespond <<A\nx\nA b c",
            "4:5: parsing caddyfile tokens for 'respond': wrong argument count or unexpected line ending after 'c'",
        ),
    ]);
}

// Each part of a message can repeat a word that contains a line break.
#[test]
fn messages_are_one_line() {
    check(&[
        (
            ":80\nimport `a\nb`",
            "2:8: File to import not found: a\\nb; no snippet (a\\nb) stands above this line either",
        ),
        (
            ":80\nhandle `/a\nb` {\n\t`c\nd`\n}",
            "4:2: parsing caddyfile tokens for 'handle': unrecognized directive: c\\nd - are you sure your Caddyfile structure (nesting and braces) is correct?; the quote that begins at Caddyfile:4:2 ends on line 5",
        ),
    ]);
}

// An imported word has the position where it is written; the message also names the position of the import.
#[test]
fn imported_words() {
    let error = read("(s) {\n\tredir\n\t{block}\n}\n:80 {\n\timport s {\n\t\theader a b\n\t}\n}\n").unwrap_err();
    let sentence = "parsing caddyfile tokens for 'redir': wrong argument count or unexpected line ending after 'redir'";
    assert_eq!(error.to_string(), format!("Caddyfile:2:2: {sentence} (imported at Caddyfile:6:2)"));
    assert_eq!(error.caddy_message(), format!("{sentence}, at Caddyfile:2 import chain ['Caddyfile:8 (import s)']"));
}

// docs/limits.md: a text of 1 KB must not take all memory. Each level has four times the words or bytes of the one
// below it.
#[test]
fn imports_that_grow() {
    let levels = |word: &str, import: &dyn Fn(usize) -> String| {
        let snippets = (1..15).map(|level| format!("(s{level}) {{\n{}\n}}\n", import(level - 1)));
        format!("(s0) {{\nrespond {word}\n}}\n{}", snippets.collect::<String>())
    };
    let by_arguments = levels("{args[0]}", &|below| format!("import s{below} {}", "{args[0]}".repeat(4)));
    let by_blocks = levels("a", &|below| format!("{{block}}\nimport s{below} {{\n{}}}", "{block}\n".repeat(4)));
    let by_imports = levels("a", &|below| format!("import s{below}\n").repeat(4));
    for (text, import, want) in [
        (by_arguments, "import s14 xxxxxxxx", "imports bring in more than 64 MiB of text"),
        (by_blocks, "import s14 {\nvars a b\n}", "imports bring in more than a million tokens"),
        (by_imports, "import s14", "imports bring in more than a million tokens"),
    ] {
        let error = read(&format!("{text}:80 {{\n{import}\n}}\n")).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    }
}

// A feature of Caddy's that is not supported has another error than an unknown name.
#[test]
fn not_supported_is_a_separate_error_kind() {
    let mut directives = Directives::standard();
    directives.withhold("templates");
    let error = adapt(":80\ntemplates", "Caddyfile", &directives, &|_| None).unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::NotSupported(NameTable::Directive, "templates".into()));
}

#[test]
fn proxy_options_in_the_wrong_block() {
    for (option, want) in [
        ("timeout 30s", "those of 'transport http', such as 'response_header_timeout'"),
        ("dial_timeout 3s", "it belongs in the block of 'transport http'"),
        ("header_upstream X y", "it is 'header_up' here"),
        ("websocket", "the proxy does this by itself"),
        ("nonsense", "unrecognized subdirective nonsense"),
    ] {
        let error = read(&format!(":80 {{\n\treverse_proxy a:1 {{\n\t\t{option}\n\t}}\n}}\n")).unwrap_err().to_string();
        assert!(error.starts_with("Caddyfile:3:3: ") && error.contains(want), "{error}");
    }
}

// Hints for the directives of other servers.
#[test]
fn words_of_other_servers() {
    for (line, want) in [
        ("proxy_pass http://a;", "reverse_proxy"),
        ("location / {\n}", "handle"),
        ("listen 80;", "the site's address"),
        ("gzip on;", "encode"),
        ("server_name a.b;", "the site's address"),
        ("return 301 /x;", "redir"),
        ("ssl_certificate a;", "tls CERTIFICATE KEY"),
        ("add_header A b;", "header"),
        ("DocumentRoot /x", "root"),
        ("proxy / localhost:9000", "reverse_proxy"),
    ] {
        let error = read(&format!(":80 {{\n{line}\n}}\n")).unwrap_err().to_string();
        assert!(error.starts_with("Caddyfile:2:1: unrecognized directive: "), "{error}");
        assert!(error.contains("of another server; here: ") && error.contains(want), "{error}");
    }
    for (text, want) in [
        (
            "{\nservers {\nprotocol {\nexperimental_http3\n}\n}\n}",
            "3:1: parsing caddyfile tokens for 'servers': unrecognized servers option 'protocol'; the block `protocol` was removed in Caddy 2.6, \
             and needs no replacement",
        ),
        (
            "{\nexperimental_http3\n}",
            "2:1: unrecognized global option: experimental_http3; it was removed in Caddy 2.6, and needs no replacement",
        ),
        (
            "{\nservers {\nexperimental_http3\n}\n}",
            "3:1: parsing caddyfile tokens for 'servers': unrecognized servers option 'experimental_http3'; it was removed in Caddy 2.6, and \
             needs no replacement",
        ),
        (
            ":80 {\nlog {\nformat single_field common_log\n}\n}",
            "3:8: parsing caddyfile tokens for 'log': getting module named 'caddy.logging.encoders.single_field': module not registered; it was \
             removed in Caddy 2.5; `format transform \"{common_log}\"` writes the lines of `single_field common_log`",
        ),
        (
            "{\nservers {\ntrusted_proxies private_ranges\n}\n}",
            "3:17: parsing caddyfile tokens for 'servers': getting module named 'http.ip_sources.private_ranges': module not registered; expected cloudflare, combine, static; networks \
             follow static: static private_ranges",
        ),
        (
            "{env.HOST} {\n}",
            "1:1: subject does not qualify for certificate: '{env.HOST}'; in an address an environment variable is written {$NAME}",
        ),
        (
            ":80\nreverse_proxy localhost/api",
            "2:15: parsing caddyfile tokens for 'reverse_proxy': found 'localhost/api', expected HOST:PORT without a path",
        ),
        (
            ":80\nheader_up A b",
            "2:1: unrecognized directive: header_up (it belongs in the block of reverse_proxy); expected a directive",
        ),
        (
            ":80\nphp_server",
            "2:1: unrecognized directive: php_server (of the plugin FrankenPHP, which is not supported; here: php_fastcgi, with PHP-FPM)",
        ),
        (
            "{\nlayer4 {\n}\n}",
            "2:1: unrecognized global option: layer4 (of the plugin layer4, which is not supported; here: no equivalent: this server carries HTTP only)",
        ),
        (
            "{\norder webdav last\n}",
            "2:7: parsing caddyfile tokens for 'order': webdav is not a registered directive (of the plugin WebDAV, which is not supported; here: reverse_proxy to a WebDAV server)",
        ),
    ] {
        assert_eq!(read(text).unwrap_err().to_string(), format!("Caddyfile:{want}"));
    }
    for (text, want) in [
        (":80 {\n\tlog a {\n\t\toutput stdout\n\t}\n\tlog b {\n\t\toutput stderr\n\t}\n}\n", 1),
        ("a.test {\n\tlog a {\n\t\toutput stdout\n\t}\n\tlog b {\n\t\toutput stderr\n\t}\n}\n", 0),
        ("a.test, :90 {\n\tlog a {\n\t\toutput stdout\n\t}\n\tlog b {\n\t\toutput stderr\n\t}\n}\n", 0),
        (":80 {\n\tlog a {\n\t\tno_hostname\n\t}\n\tlog b {\n\t\thostnames a.test\n\t}\n\tlog\n}\n", 0),
    ] {
        let warnings = read(text).unwrap().warnings;
        let found = Vec::from_iter(warnings.iter().map(|warning| format!("{}: {}", warning.at, warning.message)));
        let message = "Caddyfile:2:2: a site without host names uses only its last log, so this one has no effect";
        assert_eq!(found, vec![message; want], "{text}");
    }
    let warnings = read(":80 {\n\theader -A b\n}\n").unwrap().warnings;
    let found = Vec::from_iter(warnings.iter().map(|warning| format!("{}: {}", warning.at, warning.message)));
    assert_eq!(found, ["Caddyfile:2:12: 'b' has no effect: -A deletes the field, whatever its value"]);
    for (text, want) in [
        (
            ":80\nrespond 400 \"Bad request\"",
            "2:1: the body comes before the status; expected 'respond \"Bad request\" 400'",
        ),
        (
            ":80 {\n\treverse_proxy https://a {\n\t\theader_up Host {upstream_hostport}\n\t}\n}\n",
            "3:13: header_up Host is not needed: to an upstream over TLS the proxy sends the upstream's host by itself",
        ),
        (
            "http:// {\n\tbind 127.0.0.1:8080 ::1\n}\n",
            "2:7: the port of '127.0.0.1:8080' has no effect: that of the site's address counts",
        ),
        (
            "{\n\tservers {\n\t\tmetrics\n\t}\n}\n:80\n",
            "3:3: the option 'metrics' in 'servers' is deprecated and counts the requests of all servers; expected the global option \
             'metrics'",
        ),
        // Caddy 2.11 warns of these forms too.
        (
            "(a) {\n\theader X {args.0}\n}\n:80 {\n\timport a one\n}\n",
            "2:11: found '{args.0}', expected '{args[0]}': the form with a dot is deprecated",
        ),
        (
            "(a) {\n\theader X \"{args[0]} of {args[:]}\"\n}\n:80 {\n\timport a one\n}\n",
            "2:11: '{args[:]}' has no effect beside other text, expected it as a word of its own",
        ),
        (
            "http://a.example/b* {\n}\n",
            "1:1: a path in a site's address is deprecated, please use 'handle /b*' instead",
        ),
        (
            "a.example {\n\ttls internal {\n\t\tclient_auth {\n\t\t\ttrusted_ca_cert AA==\n\t\t}\n\t}\n}\n",
            "4:4: 'trusted_ca_cert' is deprecated, please use 'trust_pool' instead",
        ),
    ] {
        let warnings = read(text).unwrap().warnings;
        let found = Vec::from_iter(warnings.iter().map(|warning| format!("{}: {}", warning.at, warning.message)));
        assert_eq!(found.iter().filter(|found| found.ends_with(want)).count(), 1, "{found:?}");
    }
    let warnings = read(":80 {\n\ttry_files $uri /b;\n}\n").unwrap().warnings;
    let warnings = Vec::from_iter(warnings.iter().map(|warning| format!("{}: {}", warning.at, warning.message)));
    assert_eq!(
        warnings,
        [
            "Caddyfile:2:12: '$uri' is plain text in a Caddyfile; expected {path}",
            "Caddyfile:2:17: the ';' is part of this word; a line of a Caddyfile ends without one",
        ]
    );
    // No warning: Caddy's documentation has this value, and Host of an upstream without TLS is the client's.
    for text in [
        ":80 {\n\theader Strict-Transport-Security max-age=31536000;\n}\n",
        ":80 {\n\treverse_proxy a:1 {\n\t\theader_up Host {upstream_hostport}\n\t}\n}\n",
    ] {
        assert!(read(text).unwrap().warnings.is_empty(), "{text}");
    }
}

// RFC 1035 §2.3.4: the lengths of labels and names. The site is served all the same, as in Caddy, and so are the
// others.
#[test]
fn hosts_that_dns_does_not_allow() {
    let (label, long) = ("a".repeat(63), "a.".repeat(126));
    for (address, found) in [
        ("a..b.example.com", Some("an empty label".to_owned())),
        ("http://.example.com", Some("an empty label".to_owned())),
        (&*format!("http://{label}a.test:81"), Some("a label of 64 characters".to_owned())),
        (&*format!("{long}aa"), Some("254 characters".to_owned())),
        (&*format!("{long}a"), None),
        (&*format!("http://*.{label}.test."), None),
        ("http://{env.HOST}..test", None),
        ("bücher.test", None),
        ("[::1]:80", None),
        (":80", None),
    ] {
        let warnings = read(&format!("b.test, {address} {{\n}}\n")).unwrap().warnings;
        let warnings = Vec::from_iter(warnings.iter().map(|warning| format!("{}: {}", warning.at, warning.message)));
        let want = found.map(|found| {
            format!(
                "Caddyfile:1:9: no client can use the host of {address}, and no authority signs a certificate for it: found {found}, \
                 expected labels of 1 to 63 characters, and 253 in all"
            )
        });
        assert_eq!(warnings, Vec::from_iter(want), "{address}");
    }
}

// In Caddy an unset variable is an empty text, so that such a site listens on every address.
#[test]
fn variables_without_a_value_in_addresses() {
    for (source, place, name) in [
        (":{$PORT} {\n}\n", "1:2", "PORT"),
        ("{$NAME} {\n}\n", "1:1", "NAME"),
        ("a.test {$NAME} {\n}\n", "1:8", "NAME"),
        ("http://{$NAME}:80, a.test\n", "1:8", "NAME"),
        (":80 {\n\tbind {$NAME}\n}\n", "2:7", "NAME"),
        ("(s) {\n\tbind a {$NAME}\n}\n:80 {\n\timport s\n}\n", "2:9", "NAME"),
        ("{\n\tdefault_bind {$NAME}\n}\n:80\n", "2:15", "NAME"),
        ("{\n\tadmin {$NAME}\n}\n:80\n", "2:8", "NAME"),
    ] {
        let error = read(source).map(|adapted| adapted.json).expect_err(source).to_string();
        let want =
            format!("Caddyfile:{place}: the environment variable {name} is not set, and an address here needs it; ");
        assert!(error.starts_with(&want), "{error}");
    }
    for source in [
        "# {$PORT}\n:80 # {$PORT}\n",
        ":{$PORT:80} {\n}\n",
        ":80 {\n\trespond \"{$NAME}\"\n\t{$NAME}\n}\n",
        ":80{$EMPTY} {\n}\n",
        "{$HOST} {\n}\n",
    ] {
        assert!(read(source).is_ok(), "{source}");
    }
}

// Caddy ignores an empty block after a directive that has no options. One with lines is a mistake: Caddy ignores these
// too.
#[test]
fn empty_blocks() {
    for line in
        ["redir https://x.com", "root * /x", "uri strip_prefix /a", "request_header A b", "rewrite * /a", "method GET"]
    {
        let name = line.split(' ').next().unwrap();
        let with = |block: &str| read(&format!(":80 {{\n\t{line} {{\n{block}\t}}\n}}\n"));
        let adapted = with("").unwrap();
        assert_eq!(adapted.json, read(&format!(":80 {{\n\t{line}\n}}\n")).unwrap().json, "{line}");
        let [warning] = adapted.warnings.as_slice() else { panic!("{line}: {:?}", adapted.warnings) };
        let want = format!("Caddyfile:2:2: the empty block of '{name}' has no effect");
        assert_eq!(format!("{}: {}", warning.at, warning.message), want);
        let error = with("\t\tfoo\n").unwrap_err().to_string();
        assert!(error.contains("unexpected block after"), "{line}: {error}");
    }
}

// caddy-dns/route53: settings of the plugin without a counterpart here have no effect, and a warning.
#[test]
fn settings_of_a_dns_provider_without_effect() {
    let source = "a.test {\n\ttls {\n\t\tdns route53 {\n\t\t\taccess_key_id a\n\t\t\tsecret_access_key b\n\t\t\tmax_retries 10\n\t\t}\n\t}\n}\n";
    let warnings = read(source).unwrap().warnings;
    let warnings = Vec::from_iter(warnings.iter().map(|warning| format!("{}: {}", warning.at, warning.message)));
    let want = "Caddyfile:6:4: 'max_retries' of the DNS provider route53 has no effect: the certificate's next attempt repeats a failed one";
    assert_eq!(warnings, [want]);
}

// As in Caddy, error routes are not guarded. A file that they serve for a 401 can be the guarded one.
#[test]
fn error_routes_that_serve_guarded_files() {
    let warned = |errors: &str| {
        let source =
            format!(":80 {{\n\tbasic_auth {{\n\t\tbob hash\n\t}}\n\tfile_server\n\thandle_errors {errors}\n}}\n");
        let warnings = read(&source).unwrap().warnings;
        warnings.iter().any(|warning| warning.at.line == 6 && warning.message.contains("guarded file"))
    };
    for errors in
        ["{\n\t\tfile_server\n\t}", "401 {\n\t\tfile_server\n\t}", "4xx {\n\t\troute {\n\t\t\tfile_server\n\t\t}\n\t}"]
    {
        assert!(warned(errors), "{errors}");
    }
    for errors in [
        "404 {\n\t\tfile_server\n\t}",
        "5xx {\n\t\tfile_server\n\t}",
        "{\n\t\trewrite * /{err.status_code}.html\n\t\tfile_server\n\t}",
        "{\n\t\trespond sorry\n\t}",
    ] {
        assert!(!warned(errors), "{errors}");
    }
}

// Caddy ends a message with the line of the error, then the lines where the enclosing directives end.
#[test]
fn caddys_words() {
    let cases = [
        (
            ":80\nrespond",
            "parsing caddyfile tokens for 'respond': wrong argument count or unexpected line ending after 'respond', at Caddyfile:2",
        ),
        (
            ":80 {\nhandle {\nrespnd\n}\n}",
            "parsing caddyfile tokens for 'handle': unrecognized directive: respnd - are you sure your Caddyfile structure (nesting and braces) is correct?, at Caddyfile:4",
        ),
        (
            ":80 {\nhandle {\nroot\n}\n}",
            "parsing caddyfile tokens for 'handle': parsing caddyfile tokens for 'root': too few arguments; must have at least a root path, at Caddyfile:3, at Caddyfile:4",
        ),
        ("{\nnope\n}", "Caddyfile:2: unrecognized global option: nope"),
        (
            "a\nb",
            "Caddyfile:2: unrecognized directive: b\nDid you mean to define a second site? If so, you must use curly braces around each site to separate their configurations.",
        ),
    ];
    for (source, want) in cases {
        assert_eq!(read(source).unwrap_err().caddy_message(), want, "{source:?}");
    }
}
