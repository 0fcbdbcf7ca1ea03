//! Error pages: for which requests they are, and their roots, statuses and texts.

use crate::support::*;

/// Sends requests to both servers and compares the responses. Each case has a host and paths, some after a method.
#[track_caller]
fn compare_hosts(name: &str, cases: &[(&str, &str)]) {
    let Some(nginx) = installed_nginx() else { return };
    let directory = ShapeDirectory::new(&format!("hosts-{name}"));
    let ([theirs, ours], _servers) = both(nginx, &shape(name), &directory, [counting_upstream(), counting_upstream()]);
    let mut differences = Vec::new();
    for (host, paths) in cases {
        for path in paths.split(' ') {
            let (method, path) = path.split_once(':').unwrap_or(("GET", path));
            let [a, b] = [theirs, ours].map(|port| request(port, method, host, path));
            if a != b {
                differences.push(format!("{method} {host} {path}\n  nginx    {a:?}\n  causeway {b:?}"));
            }
        }
    }
    assert!(differences.is_empty(), "{name}: {} differences:\n{}", differences.len(), differences.join("\n"));
}

/// nginx's documentation of `error_page`: it is for the requests of its own server.
#[test]
fn error_pages_are_not_for_other_servers() {
    let paths = "/ /forbidden/x /teapot /hidden/ /none";
    let hosts = ["example.com", "other.example.com", "own.example.com", "y.wild.example.com", "x.wild.example.com"];
    compare_hosts("pages_of_servers", &hosts.map(|host| (host, paths)));
}

/// nginx's documentation of `error_page`: an error leads to another location, with the root of that one.
#[test]
fn error_pages_have_the_root_of_their_own_location() {
    compare_hosts(
        "page_roots",
        &[
            ("example.com", "/files/none /files/a.txt /files/forbidden/x /d/none /d/forbidden/x /none /404.html"),
            ("own.example.com", "/files/none /none /forbidden/x"),
        ],
    );
}

/// nginx's documentation of `add_header`: the fields of a location without `always` are for its own responses, and not
/// for its refusals.
#[test]
fn refusals_lack_the_fields_of_the_answer_of_their_location() {
    compare_hosts("page_fields", &[("example.com", "/hidden/ /post/ POST:/post/")]);
}

/// nginx's documentation of `error_page`: with `=` the status is that of the page's own response.
#[test]
fn statuses_of_error_pages_equal_those_of_nginx() {
    compare_hosts(
        "page_answers",
        &[
            ("example.com", "/missing /gone /paid"),
            ("up.example.com", "/missing /404 /500 /503 /201"),
            ("kept.example.com", "/missing /404 /500 /503"),
            ("files.example.com", "/forbidden/ /private/none"),
            ("status.example.com", "/missing /gone /forbidden/ /conflict /teapot /paid"),
        ],
    );
}
