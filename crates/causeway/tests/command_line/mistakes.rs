//! The operator's mistakes. Each prints one line on standard error and nothing on standard output, and exits with
//! status 1.

use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;

use crate::process::Directory;

/// Runs a command that must fail with `want`.
#[track_caller]
fn check(directory: &Directory, arguments: &[&str], want: &str) {
    let output = directory.output(arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr, format!("Error: {want}\n"), "{arguments:?}");
    assert_eq!((output.status.code(), &*output.stdout), (Some(1), &b""[..]), "{arguments:?}");
}

/// `run` and `validate` refuse a Caddyfile with one message.
#[track_caller]
fn check_caddyfile(caddyfile: &str, want: &str) {
    let directory = Directory::with(&[("Caddyfile", caddyfile)]);
    for command in ["validate", "run"] {
        check(&directory, &[command], want);
    }
}

#[test]
fn in_a_caddyfile() {
    for (caddyfile, want) in [
        (
            ":8080 {\n\theader A b\n\trespnd hi\n}\n",
            "Caddyfile:3:2: unrecognized directive: respnd (did you mean \"respond\"?); expected a directive",
        ),
        (
            "a.example {\n\ttls none.pem none.key\n}\n",
            "Caddyfile:2:6: none.pem: cannot be read: No such file or directory (os error 2)",
        ),
        (":8080 {\n\tfoobarbaz\n}\n", "Caddyfile:2:2: unrecognized directive: foobarbaz; expected a directive"),
        (
            ":8080 {\n\trespond hi\n",
            "Caddyfile:1:7: unexpected EOF, expecting '}'; the block that begins here is never closed",
        ),
        (
            ":8080\nrespond hi 200 300\n",
            "Caddyfile:2:16: parsing caddyfile tokens for 'respond': wrong argument count or unexpected line ending after \
             '300'",
        ),
        (
            ":8080\nrespond hi {\n\tbdoy hi\n}\n",
            "Caddyfile:3:2: parsing caddyfile tokens for 'respond': unrecognized subdirective 'bdoy' (did you mean \"body\"?); expected body, close",
        ),
        (
            "respond hi\n",
            "Caddyfile:1:1: parsed 'respond' as a site address, but it is a known directive; directives must appear in a \
             site block",
        ),
        ("", "Caddyfile:1:1: unexpected EOF, expecting a site address"),
        (":80a\nrespond hi\n", "Caddyfile:1:1: invalid port '80a': expected a number"),
        // Caddy accepts these, and fails when a request or a listener needs them.
        (
            ":8080\nreverse_proxy\n",
            "Caddyfile:2:1: parsing caddyfile tokens for 'reverse_proxy': found no upstream, expected one at least, as in reverse_proxy localhost:9000",
        ),
        (
            ":8080 {\n\treverse_proxy a:80\n\tphp_fastcgi\n}\n",
            "Caddyfile:3:2: parsing caddyfile tokens for 'php_fastcgi': found no upstream, expected one at least, as in php_fastcgi localhost:9000",
        ),
        (
            ":8080\nforward_auth {\n\turi /x\n}\n",
            "Caddyfile:2:1: parsing caddyfile tokens for 'forward_auth': found no upstream, expected one at least, as in forward_auth localhost:9000",
        ),
        (
            ":8080\nforward_auth a:80 {\n\turi /x\n\tcopy_headers A> B\n}\n",
            "Caddyfile:4:15: parsing caddyfile tokens for 'forward_auth': found 'A>', expected FIELD or FIELD>NAME, without spaces",
        ),
        (
            ":8080\nreverse_proxy localhost:80/\n",
            "Caddyfile:2:15: parsing caddyfile tokens for 'reverse_proxy': found 'localhost:80/', expected HOST:PORT without a path",
        ),
        (
            "{\n\thttp_port 99999\n}\n:8080\nrespond hi\n",
            "Caddyfile:2:12: parsing caddyfile tokens for 'http_port': found '99999', expected a port from 1 to 65535",
        ),
        (
            ":8080\nreverse_proxy a:80 {\n\thandle_response {\n\t\tcopy_response_headers {\n\t\t\tinclude A\n\t\t\texclude B\n\t\t}\n\t}\n}\n",
            "Caddyfile:6:4: parsing caddyfile tokens for 'reverse_proxy': parsing caddyfile tokens for 'copy_response_headers': \
             found 'exclude' beside its opposite, expected `include` or `exclude`, not both",
        ),
        (":99999\nrespond hi\n", "Caddyfile:1:1: port 99999 is out of range; expected 0 to 65535"),
    ] {
        check_caddyfile(caddyfile, want);
    }
}

#[test]
fn unsupported_features() {
    for (caddyfile, want) in [
        (
            ":8080\nfs native\n",
            "Caddyfile:2:4: found 'native', expected no `fs`; this version serves the file system itself only (docs/refused.md)",
        ),
        (
            "localhost {\n\ttls internal {\n\t\tget_certificate http localhost:9007\n\t}\n}\n",
            "Caddyfile:3:24: found 'localhost:9007', expected a URL that begins with http:// or https:// and a host",
        ),
        (
            "{\n\tservers {\n\t\tlistener_wrappers {\n\t\t\ttls\n\t\t}\n\t}\n}\n\n:8080\nrespond hi\n",
            "Caddyfile:4:4: found 'tls', expected another wrapper before it: TLS is first by default",
        ),
        (
            "{\n\tlog {\n\t\tlevel LOUD\n\t}\n}\n\n:8080\nrespond hi\n",
            "Caddyfile:3:9: found 'LOUD', expected DEBUG, INFO, WARN, ERROR, PANIC or FATAL",
        ),
        // The message quotes the operator's text, not its form in the JSON.
        (
            ":8080\nreverse_proxy a:80 {\n\ttransport http {\n\t\tnetwork_proxy url ftp://p:3128\n\t}\n}\n",
            "Caddyfile:4:21: found 'ftp://p:3128', expected a URL such as http://proxy.internal:3128, https://proxy.internal or socks5://proxy.internal:1080",
        ),
        (
            "{\n\tlog {\n\t\toutput file /dev/null/none/x\n\t}\n}\n\n:8080\nrespond hi\n",
            "Caddyfile:3:15: found '/dev/null/none/x: Not a directory (os error 20)', expected a file that can be written",
        ),
        (
            ":8080 {\n\treverse_proxy a:80 {\n\t\ttransport http {\n\t\t\tversions 3\n\t\t}\n\t}\n}\n\
             :8081 {\n\treverse_proxy a:80 {\n\t\ttransport http {\n\t\t\tversions 3\n\t\t}\n\t}\n}\n",
            "Caddyfile:4:13: found '3', expected 1.1, 2 or h2c; HTTP/3 is not supported (docs/refused.md) (or the same word on line 11)",
        ),
        // The plan detects these; the position comes from a search for the word in the text.
        (
            "{\n\tech a.com\n}\n:8080\nrespond hi\n",
            "Caddyfile:2:2: found 'ech a.com', expected nothing: this is not supported (docs/refused.md)",
        ),
        // Caddy: "evaluated placeholder {env.X} is empty". It would listen on all interfaces.
        (
            ":8080\nbind {env.CAUSEWAY_UNSET} 127.0.0.1\nrespond hi\n",
            "Caddyfile:2:6: found '{env.CAUSEWAY_UNSET}', expected an address: the evaluated placeholder {env.CAUSEWAY_UNSET} is empty",
        ),
        (
            "{\n\tdefault_bind 10.0.0.{env.CAUSEWAY_UNSET}\n}\n:8080\nrespond hi\n",
            "Caddyfile:2:15: found '10.0.0.{env.CAUSEWAY_UNSET}', expected an address: the evaluated placeholder {env.CAUSEWAY_UNSET} is empty",
        ),
        (
            ":8080\nbind tcp/{env.CAUSEWAY_UNSET}\nrespond hi\n",
            "Caddyfile:2:1: found '{env.CAUSEWAY_UNSET}', expected an address: the evaluated placeholder {env.CAUSEWAY_UNSET} is empty",
        ),
        (
            ":8080\nbind udp/127.0.0.1\nrespond hi\n",
            "Caddyfile:2:6: found 'udp/127.0.0.1:8080', expected tcp, unix or fd: other networks are not supported (docs/refused.md)",
        ),
        // Caddy: the same words. The site would have another name.
        (
            "{env.CAUSEWAY_UNSET}.test:8443 {\n\ttls internal\n}\n",
            "Caddyfile:1:1: found '{env.CAUSEWAY_UNSET}.test', expected a host: the evaluated placeholder {env.CAUSEWAY_UNSET} is empty",
        ),
        (
            "a.test {\n}\n*.foo.ts.net {\n}\n",
            "Caddyfile:3:1: found '*.foo.ts.net', expected the global option `on_demand_tls` with `ask <url>`, which says what names may \
             have a certificate: without it, anyone could make this server order certificates for any name",
        ),
        (
            "{\n\ttls_automate_names *.foo.com\n}\n",
            "Caddyfile:2:21: *.foo.com needs the DNS challenge of a public authority; expected a DNS provider for it, names without '*', \
             an internal issuer, a certificate that is loaded, or the site on the HTTP port only",
        ),
        (
            "localhost:8443 {\n\ttls {\n\t\tclient_auth {\n\t\t\tverifier leaf\n\t\t}\n\t}\n}\n",
            "Caddyfile:4:4: found 'no certificate', expected one leaf certificate at least",
        ),
        (
            ":8080 {\n\thandle {\n\t\treverse_proxy a:80 q@w.e\n\t}\n}\n",
            "Caddyfile:3:22: found 'q@w.e:80', expected HOST:PORT, an IPv6 address in brackets",
        ),
        (
            ":8080\nbind /x 127.0.0.1\nrespond hi\n",
            "Caddyfile:2:1: found 'x', expected an IP address, or a name that resolves to one of this machine",
        ),
        (
            ":8080\nbind unixgram//run/x\nrespond hi\n",
            "Caddyfile:2:6: found 'unixgram//run/x', expected unix/PATH: HTTP needs a Unix socket of streams",
        ),
        (
            ":8080\nphp_fastcgi unix//run/php.sock|0222\n",
            "Caddyfile:2:13: found 'unix//run/php.sock|0222', expected unix/PATH without permissions, which are for listeners",
        ),
        (
            ":8080\nreverse_proxy a:80 {\n\tflush_interval -1\n\ttransport http {\n\t\tversions 3\n\t}\n}\n",
            "Caddyfile:5:12: found '3', expected 1.1, 2 or h2c; HTTP/3 is not supported (docs/refused.md)",
        ),
        (
            ":8080\nreverse_proxy {\n\tdynamic a {\n\t\tname b\n\t\tport 80000\n\t}\n}\n",
            "Caddyfile:5:8: found '80000', expected a port from 1 to 65535",
        ),
        (
            ":8080\nreverse_proxy a:80 {\n\tcircuit_breaker {\n\t\terror_ratio 2.5\n\t}\n}\n",
            "Caddyfile:4:15: found '2.5', expected a ratio from 0.0001 to 1",
        ),
        (
            ":8080\nreverse_proxy a:80 {\n\tcircuit_breaker {\n\t\twindow 10s\n\t}\n}\n",
            "Caddyfile:3:2: found 'neither', expected error_ratio, latency or both",
        ),
        (
            ":8080\nreverse_proxy a:80 {\n\tcircuit_breaker {\n\t\tlatency 2h\n\t}\n}\n",
            "Caddyfile:4:3: found 'latency 2h', expected a duration from 1ms to 1h",
        ),
        (
            ":8080\nreverse_proxy a:80 {\n\tlb_slow_start 2d\n}\n",
            "Caddyfile:3:2: found 'lb_slow_start 2d', expected a duration of at most 24h",
        ),
    ] {
        check_caddyfile(caddyfile, want);
    }
}

#[test]
fn in_patterns_and_expressions() {
    for (caddyfile, want) in [
        (
            ":8080\n@a path_regexp /(a\n@b path_regexp /b\nrespond @b hi\nrespond @a hi\n",
            "Caddyfile:2:16: found '/(a', expected a regular expression: unclosed group",
        ),
        (
            ":8080\n@a `{path} ==`\n@b `{path} == '/'`\nrespond @b hi\nrespond @a hi\n",
            "Caddyfile:2:4: found '{http.request.uri.path} ==', expected a CEL expression: the end where a value was expected \
             at character 27",
        ),
        (
            ":8080\nmap {path} {a} {\n\t~^/(b 1\n}\nrespond hi\n",
            "Caddyfile:3:2: found '^/(b', expected a regular expression: unclosed group",
        ),
        (
            ":8080\nbasic_auth {\n\tbob hiccup\n}\nrespond hi\n",
            "Caddyfile:3:2: found 'bob', expected a user with a bcrypt hash, as `causeway hash-password` prints it",
        ),
    ] {
        check_caddyfile(caddyfile, want);
    }
}

/// The site is not served without TLS instead, nor with a certificate that no client trusts.
// `validate` refuses the settings of handshakes too, at the line of the invalid value.
#[test]
fn in_tls_policies() {
    let site =
        |lines: &str| format!("{{\n\tadmin off\n}}\nhttps://localhost:0 {{\n\ttls internal {{\n{lines}\n\t}}\n}}\n");
    check_caddyfile(
        &site("\t\tcurves x25519 secp521r1"),
        "Caddyfile:6:17: found 'secp521r1' for a key exchange group, expected one of x25519mlkem768, x25519, secp256r1, secp384r1",
    );
    check_caddyfile(
        &site("\t\tclient_auth {\n\t\t\tmode require_and_verify\n\t\t}"),
        "Caddyfile:6:3: found no authority to verify clients' certificates with, expected at least one",
    );
    // Only at the start: a check opens no file.
    check(
        &Directory::with(&[("Caddyfile", &*site("\t\tinsecure_secrets_log /proc/none/x"))]),
        &["run"],
        "Caddyfile:6:24: /proc/none/x: No such file or directory (os error 2)",
    );
    check_caddyfile(
        &site("\t\tprotocols tls1.3 tls1.2"),
        "Caddyfile:6:13: found 'tls1.3 above tls1.2', expected a lowest version that is not above the highest",
    );
    check_caddyfile(
        &site("\t\tclient_auth {\n\t\t\ttrust_pool file /none.crt\n\t\t}"),
        "Caddyfile:7:20: found '/none.crt: No such file or directory (os error 2)', expected a file that can be read",
    );
}

#[test]
fn a_wildcard_that_needs_a_public_authority() {
    let two = "http://a.example {\n\trespond hi\n}\n\n*.b.example:8443 {\n\trespond hi\n}\n";
    for (caddyfile, place, site, clear) in [
        ("*.example.com\nrespond hi\n", "1:1", "*.example.com", "http://*.example.com"),
        (two, "5:1", "*.b.example:8443", "http://*.b.example:8443"),
        ("http://*.a.b:80, *.a.b:81\nrespond hi\n", "1:18", "*.a.b:81", "http://*.a.b:81"),
    ] {
        let words = "needs the DNS challenge of a public authority; expected a DNS provider in it, as `tls { dns PROVIDER TOKEN }`, or \
                     for all sites, as the option `acme_dns PROVIDER TOKEN`; or names without '*', `tls internal` or `tls CERTIFICATE \
                     KEY`, or an address without TLS, such as";
        check_caddyfile(caddyfile, &format!("Caddyfile:{place}: {site} {words} {clear}"));
    }
}

#[test]
fn in_json() {
    for (text, want) in [
        ("{\"apps\": {", "config.json:1:10: EOF while parsing an object, expected JSON"),
        ("{\n\t\"apps\": 1,\n}", "config.json:3:1: trailing comma, expected JSON"),
        (
            ":8080\nrespond hi\n",
            "config.json:1:1: expected value, expected JSON; is it a Caddyfile? --adapter caddyfile",
        ),
        (
            "{\n\tdebug\n}\n:8080\n",
            "config.json:2:2: key must be a string, expected JSON; is it a Caddyfile? --adapter caddyfile",
        ),
        (
            "{\"aps\": {}}",
            "config.json: aps: unknown field `aps`, expected one of `admin`, `logging`, `storage`, `apps`",
        ),
        (
            "{\"apps\": {\"http\": {\"servers\": {\"s\": {\"listen\": [\":x\"]}}}}}",
            "config.json: apps.http.servers.s.listen[0]: found ':x', expected [tcp/]host:port or [tcp/]host:first-last",
        ),
        (
            "{\"admin\": {\"remote\": {}}}",
            "config.json: admin.remote: found 'no identity', expected an `admin.identity` with one of `identifiers` at least",
        ),
    ] {
        let directory = Directory::with(&[("config.json", text)]);
        for command in ["validate", "run", "adapt --validate"] {
            let words: Vec<_> = command.split(' ').chain(["--config", "config.json"]).collect();
            check(&directory, &words, want);
        }
    }
}

#[test]
fn missing_files() {
    let directory = Directory::with(&[("bytes", "")]);
    directory.write("Caddyfile.bytes", b":8080\nrespond \xff\n");
    let nothing = "no configuration: there is no Caddyfile in this directory, and --config names no file";
    for (arguments, want) in [
        (&["validate"][..], nothing),
        (&["adapt"], nothing),
        (&["run", "--config", "nope"], "nope: reading the configuration: No such file or directory (os error 2)"),
        (&["adapt", "--config", "nope"], "nope: reading the configuration: No such file or directory (os error 2)"),
        (&["run", "--envfile", "nope"], "nope: reading the environment file: No such file or directory (os error 2)"),
        (
            &["validate", "-c", "."],
            ".: found a directory, expected a file with the configuration (Is a directory (os error 21))",
        ),
        (&["validate", "-c", "Caddyfile.bytes"], "Caddyfile.bytes: found bytes that are not UTF-8, expected text"),
        (&["file-server", "--root", "nope"], "--root nope: No such file or directory (os error 2)"),
        (&["file-server", "--root", "bytes"], "--root bytes: found a file, expected a directory"),
        (
            &["respond", "-l", "127.0.0.1:0", "--pidfile", "no/pid"],
            "no/pid: writing the process id: No such file or directory (os error 2)",
        ),
    ] {
        check(&directory, arguments, want);
    }
}

#[test]
fn a_directory_instead_of_the_caddyfile() {
    let directory = Directory::new();
    std::fs::create_dir(directory.path("Caddyfile")).unwrap();
    let want = "Caddyfile: found a directory, expected a file with the configuration (Is a directory (os error 21))";
    for command in ["run", "validate", "adapt"] {
        check(&directory, &[command], want);
    }
}

// Caddy opens these files when it provisions the modules.
#[test]
fn certificates_of_authorities_that_cannot_be_read() {
    let absent = "No such file or directory (os error 2)";
    let read = format!("found 'absent.pem: {absent}', expected a file that can be read");
    check_caddyfile("{\n\tacme_ca_root absent.pem\n}\na.example.com\n", &format!("Caddyfile:2:15: {read}"));
    check_caddyfile(
        "a.example.com {\n\ttls {\n\t\tissuer acme {\n\t\t\ttrusted_roots absent.pem\n\t\t}\n\t}\n}\n",
        &format!("Caddyfile:4:18: {read}"),
    );
    check_caddyfile(
        "{\n\tpki {\n\t\tca corp {\n\t\t\troot {\n\t\t\t\tcert absent.pem\n\t\t\t\tkey absent.key\n\t\t\t}\n\t\t}\n\t}\n}\n:8080\n",
        &format!("Caddyfile:5:10: found 'absent.pem: cannot be read: {absent}', expected a certificate and its key"),
    );
    check_caddyfile(
        "{\n\tpki {\n\t\tca corp {\n\t\t\tintermediate_lifetime 20000d\n\t\t}\n\t}\n}\n:8080\n",
        "Caddyfile:4:4: found '1728000000 s', expected less than the lifetime of a new root, 3600d",
    );
}

// An absent root is nearly always a mistake, but only a warning: the directory may still be created.
#[test]
fn roots_that_cannot_be_read() {
    let json = "{\"apps\": {\"http\": {\"servers\": {\"s\": {\"listen\": [\":8080\"], \"routes\": [{\"handle\": [\n\
                {\"handler\": \"file_server\", \"root\": \"nowhere\"}]}]}}}}}";
    let directory = Directory::with(&[
        ("Caddyfile", ":8080 {\n\troot nowhere\n\tfile_server {\n\t\troot file\n\t}\n}\n"),
        ("placeholder.caddyfile", ":8080 {\n\troot {env.ROOT}/x\n\tfile_server\n}\n"),
        ("config.json", json),
        ("file", ""),
    ]);
    let found =
        |root: &str, why: &str| format!("found the root '{root}', expected a directory that can be read: {why}\n");
    let absent = found("nowhere", "No such file or directory (os error 2)");
    for (file, want) in [
        (
            "Caddyfile",
            format!(
                "Warning: Caddyfile:2:7: {absent}Warning: Caddyfile:4:8: {}",
                found("file", "it is not a directory")
            ),
        ),
        ("placeholder.caddyfile", String::new()),
        ("config.json", format!("Warning: config.json:2:36: {absent}")),
    ] {
        let output = directory.output(&["validate", "--config", file]);
        assert_eq!(String::from_utf8(output.stderr).unwrap(), want, "{file}");
        assert_eq!(output.status.code(), Some(0), "{file}");
    }
}

// Nothing is skipped in silence: Caddy's sizes of buffers and chunks are accepted, and named.
#[test]
fn settings_without_effect() {
    let options = "{\n\tadmin off\n\tstorage_check off\n\tservers {\n\t\ttimeouts {\n\t\t\twrite 10s\n\t\t\twrite_max_chunk 4096\n\t\t}\n\t}\n}\n";
    let transport = "\t\ttransport http {\n\t\t\tread_buffer 4k\n\t\t\twrite_buffer 8k\n\t\t}\n";
    let proxy = format!("\treverse_proxy localhost:1 {{\n\t\tstream_buffer_size 4k\n{transport}\t}}\n");
    let directory = Directory::with(&[("Caddyfile", &format!("{options}:0 {{\n\tbind 127.0.0.1\n{proxy}}}\n"))]);
    let output = directory.output(&["validate"]);
    let printed = String::from_utf8(output.stderr).unwrap();
    let options = [
        "3:2: 'storage_check'",
        "7:4: 'write_max_chunk'",
        "14:3: 'stream_buffer_size'",
        "16:4: 'read_buffer'",
        "17:4: 'write_buffer'",
    ];
    for (line, option) in printed.lines().zip(options) {
        assert!(line.starts_with(&format!("Warning: Caddyfile:{option}: has no effect: ")), "{line}");
    }
    assert_eq!(printed.lines().count(), options.len(), "{printed}");
    // The log of a run has the place in the JSON.
    let server = directory.start(&["run"]);
    let is_logged = |line: &String| line.contains(".transport.read_buffer_size: has no effect: ");
    assert!(server.startup_lines.iter().any(is_logged), "{:?}", server.startup_lines);
}

// Caddy's documentation of these settings. docs/https.md: an empty `client_auth` requests no certificate.
#[test]
fn further_settings_without_effect() {
    let options = "\tservers {\n\t\t0rtt off\n\t}\n\tlog {\n\t\tformat json {\n\t\t\tcaller_key c\n\t\t\tstacktrace_key s\n\t\t}\n\t}\n\
                   \tpki {\n\t\tca local {\n\t\t\tmaintenance_interval 10m\n\t\t}\n\t}\n";
    let local = "a.localhost {\n\ttls internal {\n\t\tclient_auth\n\t\treuse_private_keys\n\t}\n}\n";
    let tls = "\ttls {\n\t\treuse_private_keys\n\t\tissuer acme {\n\t\t\ttimeout 1m\n\t\t}\n\t}\n";
    let cache = "\tcache {\n\t\tkey {\n\t\t\tdisable_method\n\t\t\tdisable_body\n\t\t\thash\n\t\t\thide\n\t\t}\n\t}\n";
    let limit = "\trate_limit {\n\t\tzone z {\n\t\t\tkey k\n\t\t\tevents 1\n\t\t\twindow 1s\n\t\t}\n\t\tsweep_interval 1m\n\t}\n";
    let proxy = "\treverse_proxy localhost:1 {\n\t\ttransport http {\n\t\t\texpect_continue_timeout 1s\n\t\t\tcompression off\n\t\t}\n\t}\n";
    let text = format!("{{\n\tadmin off\n{options}}}\n{local}b.example.com {{\n{tls}{cache}{limit}{proxy}}}\n");
    let directory = Directory::with(&[("Caddyfile", &text)]);
    let output = directory.output(&["validate"]);
    let printed = String::from_utf8(output.stderr).unwrap();
    let mut got: Vec<_> = printed
        .lines()
        .map(|line| {
            assert!(line.starts_with("Warning: Caddyfile:") && line.contains("': has no effect: "), "{line}");
            line.split('\'').nth(1).unwrap()
        })
        .collect();
    got.sort_unstable();
    let mut want = [
        "caller_key",
        "client_auth",
        "disable_body",
        "disable_method",
        "expect_continue_timeout",
        "hash",
        "hide",
        "maintenance_interval",
        "reuse_private_keys",
        "stacktrace_key",
        "sweep_interval",
        "timeout",
    ];
    want.sort_unstable();
    assert_eq!(got, want, "{printed}");
}

// sd-daemon(3): the journal reads a priority at the start of a line, by which `journalctl -p err` finds the reason of a
// failed start.
#[test]
fn priorities_for_the_journal() {
    use std::os::unix::fs::MetadataExt as _;
    let directory = Directory::with(&[("Caddyfile", ":0\nrespnd hi\n"), ("root.caddyfile", ":0\nroot nowhere\n")]);
    for (file, is_valid, want) in [
        ("Caddyfile", false, "<3>Error: Caddyfile:2:1: unrecognized directive"),
        ("root.caddyfile", true, "<4>Warning: root.caddyfile:2:6: found the root 'nowhere'"),
    ] {
        let journal = std::fs::File::create(directory.path("journal")).unwrap();
        let facts = journal.metadata().unwrap();
        let mut command = directory.command(&["validate", "--config", file]);
        command.env("JOURNAL_STREAM", format!("{}:{}", facts.dev(), facts.ino())).stderr(journal);
        assert_eq!(command.stdout(std::process::Stdio::null()).status().unwrap().success(), is_valid);
        let text = std::fs::read_to_string(directory.path("journal")).unwrap();
        assert!(text.starts_with(want), "{text}");
    }
}

#[test]
fn an_invalid_environment_file() {
    let directory = Directory::with(&[("Caddyfile", ":0\nrespond hi\n"), ("env", "A=1\nB\n")]);
    check(&directory, &["run", "--envfile", "env"], "env: line 2: found 'B', expected NAME=value");
}

#[test]
fn a_caddyfile_that_may_not_be_read() {
    if rustix::process::geteuid().is_root() {
        eprintln!("skipped: root may read every file");
        return;
    }
    let directory = Directory::with(&[("Caddyfile", ":0\nrespond hi\n")]);
    std::fs::set_permissions(directory.path("Caddyfile"), std::fs::Permissions::from_mode(0o000)).unwrap();
    check(&directory, &["run"], "Caddyfile: reading the configuration: Permission denied (os error 13)");
}

#[test]
fn in_flags() {
    let directory = Directory::with(&[("Caddyfile", ":0\nrespond hi\n")]);
    for (arguments, want) in [
        (&["rnu"][..], "unrecognized subcommand 'rnu'; see `causeway --help`"),
        (&["--nope"], "unexpected argument '--nope' found; see `causeway --help`"),
        (
            &["run", "--confg", "x"],
            "unexpected argument '--confg' found; tip: a similar argument exists: '--config'; see `causeway run --help`",
        ),
        (
            &["storage", "export"],
            "the following required arguments were not provided: --output <FILE>; see `causeway storage export --help`",
        ),
        (&["run", "extra"], "unexpected argument 'extra' found; see `causeway run --help`"),
        (
            &["run", "--config"],
            "a value is required for '--config <FILE>' but none was supplied; see `causeway run --help`",
        ),
        (
            &["run", "--workers", "0"],
            "invalid value '0' for '--workers <N>': 0 is not in 1..=1024; see `causeway run --help`",
        ),
        (
            &["respond", "--status", "99"],
            "invalid value '99' for '--status <CODE>': 99 is not in 100..=999; see `causeway respond --help`",
        ),
        (
            &["fmt", "--diff=maybe"],
            "invalid value 'maybe' for '--diff[=<true|false>]': value was not a boolean; see `causeway fmt --help`",
        ),
        (&["run", "--adapter", "yaml"], "--adapter: found 'yaml', expected 'caddyfile', 'json' or 'nginx'"),
        (&["respond", "--header", "none"], "--header: found 'none', expected \"Name: value\""),
        (&["respond", "--header", ": value"], "--header: found ': value', expected \"Name: value\""),
        (&["respond", "--header", "Name: "], "--header: found 'Name: ', expected \"Name: value\""),
        (&["respond", "{{.Nope}}"], "the body: found '{{.Nope}}', expected {{.N}}, {{.Port}} or {{.Address}}"),
        (&["run", "--listen", ":8081"], "--listen is for the welcome site; Caddyfile names its own addresses"),
    ] {
        check(&directory, arguments, want);
    }
}

#[test]
fn in_addresses() {
    let directory = Directory::new();
    let expected = "expected [tcp/]host:port or [tcp/]host:first-last";
    for (arguments, place) in [
        (&["run", "--listen", "8080"][..], "the welcome site: apps.http.servers.welcome"),
        (&["respond", "--listen", "8080"], "respond --listen 8080: apps.http.servers.static0"),
        (&["file-server", "--listen", "8080"], "file-server --listen 8080: apps.http.servers.static0"),
    ] {
        check(&directory, arguments, &format!("{place}.listen[0]: found '8080', {expected}"));
    }
    // RFC 5737 reserves these addresses, so no machine has them.
    check(
        &directory,
        &["respond", "--listen", "192.0.2.1:0"],
        "listening on 192.0.2.1:0: this machine has no such address",
    );
}

#[test]
fn a_site_where_the_admin_api_is() {
    let directory = Directory::with(&[("Caddyfile", "{\n\tadmin localhost:8765\n}\n:8765\nrespond hi\n")]);
    let want = "Caddyfile: listening on :8765: the admin API is on localhost:8765; move one of them first";
    check(&directory, &["run"], want);
}

#[test]
fn a_port_in_use() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let used = format!("listening on {address}: the port is in use already");
    let directory = Directory::new();
    for command in ["run", "file-server", "respond"] {
        let hint = format!("; choose another with --listen, as in `causeway {command} --listen :8081`");
        check(&directory, &[command, "--listen", &address], &format!("{used}{hint}"));
    }
    directory.write("Caddyfile", format!("http://{address} {{\n\tbind 127.0.0.1\n\trespond hi\n}}\n"));
    check(&directory, &["run"], &format!("Caddyfile: {used}"));
}

/// Features that `adapt` translates, or that Caddy has, and this version refuses: the message names the page with the
/// reasons.
#[test]
fn refused_features() {
    let transport = |option: &str| {
        format!(":80 {{\n\treverse_proxy https://a {{\n\t\ttransport http {{\n\t\t\t{option}\n\t\t}}\n\t}}\n}}\n")
    };
    let options = |option: &str| format!("{{\n\t{option}\n}}\nhttp://example.com {{\n\trespond a\n}}\n");
    for caddyfile in [
        transport("tls_renegotiation once"),
        transport("versions 3"),
        options("ech a.example.com {\n\t\tdns cloudflare x\n\t}"),
        options("events"),
        options("filesystem a b"),
        options("servers {\n\t\tprotocols h3\n\t}"),
        ":80 {\n\tfs other\n}\n".to_owned(),
    ] {
        let directory = Directory::with(&[("Caddyfile", &caddyfile)]);
        let output = directory.output(&["validate"]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && stderr.contains("(docs/refused.md)"), "{caddyfile}{stderr}");
    }
}
