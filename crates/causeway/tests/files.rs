//! `file_server`, `try_files` and the `file` matcher, from a Caddyfile to a response: one table per page of Caddy's
//! documentation.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use causeway_config::caddyfile::adapt;
use causeway_testkit::{Kit, Request, TestResponse};

/// A site's directory, removed when dropped. Each file's content is its path.
struct SiteDirectory(PathBuf);

impl SiteDirectory {
    fn new(files: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("causeway-files-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let site = Self(std::env::temp_dir().join(name));
        for file in files {
            let path = site.0.join(file);
            std::fs::create_dir_all(path.parent().expect("a file lies in a directory")).expect("directories");
            std::fs::write(path, format!("/{file}")).expect("a file");
        }
        site
    }

    /// Compiles a site with these directives, in which `ROOT` stands for its directory.
    #[track_caller]
    fn kit(&self, directives: &str) -> Kit {
        let registry = causeway::registry();
        let directives = directives.replace("ROOT", &self.0.display().to_string());
        let source = format!(":80 {{\n{directives}\n}}\n");
        let adapted = adapt(&source, "Caddyfile", &causeway::directives(&registry), &|_: &str| None);
        let json = adapted.unwrap_or_else(|error| panic!("{source}\n{error}")).json;
        let server = &json["apps"]["http"]["servers"]["srv0"];
        Kit::with_errors(&registry, &server["routes"], &server["errors"]["routes"])
    }

    /// Sends each request twice: the second response uses the worker's cache.
    #[track_caller]
    fn check(&self, directives: &str, cases: &[(&str, &str)]) {
        let mut kit = self.kit(directives);
        for (target, want) in cases {
            for _ in 0..2 {
                assert_eq!(summary(&kit.send(&Request::get(target))), *want, "{target} of\n{directives}");
            }
        }
    }
}

impl Drop for SiteDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Formats the content of a 200, or else the status with its location or content.
fn summary(answer: &TestResponse) -> String {
    match (answer.status, answer.field("location")) {
        (200, _) => answer.text().to_owned(),
        (status, Some(to)) => format!("{status} {to}"),
        (status, None) if answer.body.is_empty() => status.to_string(),
        (status, None) => format!("{status} {}", answer.text()),
    }
}

const FILES: [&str; 12] = [
    "index.html",
    "about.html",
    "a.txt",
    "static/style.css",
    "static/docs/index.html",
    "static/.git/config",
    "private.key",
    "404.html",
    "app/index.php",
    "index.php",
    "blog/home.html",
    "style.css",
];

// caddyserver.com/docs/caddyfile/directives/file_server
#[test]
fn file_server() {
    let site = SiteDirectory::new(&FILES);
    for (directives, cases) in [
        (
            "root ROOT\nfile_server",
            &[
                ("/", "/index.html"),
                ("/about.html", "/about.html"),
                ("/static/docs", "308 /static/docs/"),
                ("/static/docs/", "/static/docs/index.html"),
                ("/a.txt/", "308 /a.txt"),
                ("/static/", "404"),
                ("/none", "404"),
            ][..],
        ),
        // A matcher that is a directory; a stripped prefix; a root of the directive's own.
        ("root ROOT\nfile_server /static/*", &[("/static/style.css", "/static/style.css"), ("/a.txt", "")]),
        (
            "handle_path /files/* {\nroot ROOT/static\nfile_server\n}\nhandle {\nrespond other\n}",
            &[("/files/style.css", "/static/style.css"), ("/files/docs", "308 /files/docs/"), ("/style.css", "other")],
        ),
        ("file_server {\nroot ROOT/static\n}", &[("/style.css", "/static/style.css"), ("/a.txt", "404")]),
        (
            "root ROOT\nfile_server {\nhide .git *.key ROOT/static/docs\n}",
            &[
                ("/static/.git/config", "404"),
                ("/private.key", "404"),
                ("/static/docs/", "404"),
                ("/static/docs/index.html", "404"),
                ("/static/style.css", "/static/style.css"),
            ],
        ),
        (
            "root ROOT\nfile_server {\nindex home.html\ndisable_canonical_uris\n}",
            &[("/blog", "/blog/home.html"), ("/blog/", "/blog/home.html"), ("/a.txt/", "/a.txt"), ("/", "404")],
        ),
        (
            "root ROOT\nroute {\nfile_server {\npass_thru\n}\nrespond next\n}",
            &[("/a.txt", "/a.txt"), ("/none", "next"), ("/static/", "next")],
        ),
        ("root ROOT\nfile_server {\nstatus 418\n}", &[("/a.txt", "418 /a.txt"), ("/none", "404")]),
        (
            "root ROOT\nfile_server\nhandle_errors {\nrewrite * /{err.status_code}.html\nfile_server\n}",
            &[("/a.txt", "/a.txt"), ("/none", "404 /404.html")],
        ),
    ] {
        site.check(directives, cases);
    }
}

#[test]
fn file_server_precompressed() {
    let site = SiteDirectory::new(&["app.js", "app.js.br", "app.js.gz", "app.js.zst", "a.txt"]);
    for (option, accept, want) in [
        ("precompressed", "gzip, br, zstd", "/app.js.br"),
        ("precompressed", "gzip, zstd", "/app.js.zst"),
        ("precompressed zstd br gzip", "gzip, br, zstd", "/app.js.zst"),
        ("precompressed gzip", "br, zstd", "/app.js"),
        ("precompressed gzip", "br;q=1, gzip;q=0.1", "/app.js.gz"),
        ("precompressed", "gzip;q=0", "/app.js"),
        ("pass_thru", "gzip, br, zstd", "/app.js"),
    ] {
        let mut kit = site.kit(&format!("root ROOT\nfile_server {{\n{option}\n}}"));
        let answer = kit.send(&Request::get("/app.js").field("Accept-Encoding", accept));
        assert_eq!(answer.text(), want, "{option}: {accept}");
        let coding = match want.rsplit('.').next() {
            Some("br") => Some("br"),
            Some("gz") => Some("gzip"),
            Some("zst") => Some("zstd"),
            _ => None,
        };
        let fields = (answer.field("content-encoding"), answer.field("content-type"), answer.field("vary"));
        assert_eq!(
            fields,
            (coding, Some("text/javascript; charset=utf-8"), Some("Accept-Encoding")),
            "{option}: {accept}"
        );
    }
    let mut kit = site.kit("root ROOT\nfile_server {\netag_file_extensions .gz\n}");
    assert_eq!(kit.send(&Request::get("/app.js")).field("etag"), Some("/app.js.gz"));
}

#[test]
fn file_server_browse() {
    let site = SiteDirectory::new(&["files/b.txt", "files/a-long-name.txt", "files/folder/x", "files/.hidden"]);
    let names = |kit: &mut Kit, target: &str| {
        let answer = kit.send(&Request::get(target).field("Accept", "application/json"));
        let list: serde_json::Value = serde_json::from_str(answer.text()).expect("JSON");
        let names =
            list.as_array().expect("a list").iter().map(|item| item["name"].as_str().expect("a name").to_owned());
        names.collect::<Vec<_>>()
    };
    for (options, target, want) in [
        ("browse", "/files/", &["folder/", ".hidden", "a-long-name.txt", "b.txt"][..]),
        ("browse", "/files/?sort=name&order=desc", &["folder/", "b.txt", "a-long-name.txt", ".hidden"]),
        ("browse {\nsort name desc\n}", "/files/", &["folder/", "b.txt", "a-long-name.txt", ".hidden"]),
        ("browse {\nsort size desc\n}", "/files/?limit=1&offset=0", &["a-long-name.txt"]),
        ("browse\nhide .*", "/files/", &["folder/", "a-long-name.txt", "b.txt"]),
    ] {
        let mut kit = site.kit(&format!("root ROOT\nfile_server {{\n{options}\n}}"));
        assert_eq!(names(&mut kit, target), want, "{options} {target}");
    }
    let mut kit = site.kit("root ROOT\nfile_server {\nbrowse {\nfile_limit 2\n}\n}");
    assert_eq!(names(&mut kit, "/files/").len(), 2);
    // As in Caddy, a negative number is no limit.
    let mut kit = site.kit("root ROOT\nfile_server {\nbrowse {\nfile_limit -1\n}\n}");
    assert_eq!(names(&mut kit, "/files/").len(), 4);
    let mut kit = site.kit("root ROOT\nfile_server browse");
    assert_eq!(summary(&kit.send(&Request::get("/files"))), "308 /files/");
    assert!(kit.send(&Request::get("/files/")).text().contains("a-long-name.txt"));
}

// caddyserver.com/docs/caddyfile/directives/try_files. A field of the response shows the resulting target.
#[test]
fn try_files() {
    let site = SiteDirectory::new(&FILES);
    let check = |tries: &str, cases: &[(&str, &str, &str)]| {
        let mut kit = site.kit(&format!("root ROOT\nheader >X-Target {{uri}}\ntry_files {tries}\nfile_server"));
        for (target, want, left) in cases {
            for _ in 0..2 {
                let answer = kit.send(&Request::get(target));
                // After a failure the `header` directive does not run.
                let result = (summary(&answer), answer.field("x-target").unwrap_or("failed"));
                assert_eq!(result, ((*want).to_owned(), *left), "{target}: {tries}");
            }
        }
    };
    // A single-page application.
    check(
        "{path} /index.html",
        &[
            ("/a.txt", "/a.txt", "/a.txt"),
            ("/some/view?x=1", "/index.html", "/index.html?x=1"),
            ("/static/", "/index.html", "/index.html"),
            ("/../../etc/passwd", "/index.html", "/index.html"),
        ],
    );
    // Paths without their extension.
    check(
        "{path}.html {path}",
        &[("/about", "/about.html", "/about.html"), ("/a.txt", "/a.txt", "/a.txt"), ("/none", "404", "failed")],
    );
    // Also directories, then a script with the query.
    check(
        "{path} {path}/ /index.php?{query}&p=1",
        &[
            ("/a.txt", "/a.txt", "/a.txt"),
            ("/static/docs/", "/static/docs/index.html", "/static/docs/"),
            ("/some/post?x=1", "/index.php", "/index.php?x=1&p=1"),
        ],
    );
    check(
        "{path} {path}/index.php /index.php",
        &[("/app", "/app/index.php", "/app/index.php"), ("/app/", "/app/index.php", "/app/index.php")],
    );
    check("{path} =404", &[("/a.txt", "/a.txt", "/a.txt"), ("/none", "404", "failed")]);
    check("{path} =410", &[("/none", "410", "failed")]);
    check("/none /index.html", &[("/x", "/index.html", "/index.html")]);
    check("{path} /static/*.css", &[("/x", "/static/style.css", "/static/style.css")]);
    check("{file} /{host}/x /a.txt", &[("/deep/style.css", "/style.css", "/style.css"), ("/x", "/a.txt", "/a.txt")]);
    let policy = |name: &str| format!("{{path}} /private.key /static/docs/index.html {{\npolicy {name}\n}}");
    check(&policy("first_exist"), &[("/a.txt", "/a.txt", "/a.txt")]);
    check(&policy("smallest_size"), &[("/a.txt", "/a.txt", "/a.txt"), ("/none", "/private.key", "/private.key")]);
    let largest = "/static/docs/index.html";
    check(&policy("largest_size"), &[("/a.txt", largest, largest)]);
    check("{path} /none {\npolicy first_exist_fallback\n}", &[("/x", "404", "failed"), ("/a.txt", "/a.txt", "/a.txt")]);
}

// caddyserver.com/docs/caddyfile/matchers, `file`
#[test]
fn file_matcher() {
    let site = SiteDirectory::new(&FILES);
    for (directives, cases) in [
        ("@there file\nrespond @there yes\nrespond no", &[("/a.txt", "yes"), ("/none", "no"), ("/static/", "no")][..]),
        ("@there file {path} {path}/\nrespond @there yes\nrespond no", &[("/static", "yes"), ("/static/", "yes")]),
        (
            "@page file {path}.html {path}\nrewrite @page {file_match.relative}\nfile_server",
            &[("/about", "/about.html"), ("/a.txt", "/a.txt"), ("/none", "404")],
        ),
        (
            "@script {\nfile {\ntry_files {path} {path}/index.php index.php\nsplit_path .php\n}\n}\n\
             respond @script \"{file_match.relative} {file_match.type} {file_match.remainder}\"",
            &[
                ("/app/index.php/info", "/app/index.php file /info"),
                ("/app/", "/app/index.php file "),
                ("/x/y", "/index.php file "),
            ],
        ),
        (
            "@missing not file\nrespond @missing \"nothing at {path}\" 404\nfile_server",
            &[("/none", "404 nothing at /none"), ("/a.txt", "/a.txt")],
        ),
        (
            "@maintenance file {\nroot ROOT/static\ntry_files style.css\n}\nrespond @maintenance {file_match.absolute}",
            &[("/", "ROOT/static/style.css")],
        ),
    ] {
        let root = site.0.display().to_string();
        let cases: Vec<_> = cases.iter().map(|(target, want)| (*target, want.replace("ROOT", &root))).collect();
        let cases: Vec<_> = cases.iter().map(|(target, want)| (*target, &**want)).collect();
        site.check(&format!("root ROOT\n{directives}"), &cases);
    }
}

// Unsupported options are refused by name.
#[test]
fn refused() {
    let registry = causeway::registry();
    for (directives, want) in [
        ("file_server {\nfs s3\n}", "found 's3', expected no `fs`"),
        ("file_server {\nbrowse {\nsort desc\n}\n}", "found 'desc', expected one of name"),
        ("file_server {\nprecompressed lzma\n}", "expected br, gzip or zstd"),
        ("@x file {\nroots x\n}\nrespond @x x", "unrecognized subdirective: roots"),
        ("@x file {\ntry_policy best\n}\nrespond @x x", "found 'best', expected first_exist"),
        ("try_files", "wrong argument count"),
        ("try_files a {\npolicy best\n}", "unrecognized try policy: best"),
    ] {
        let source = format!(":80 {{\n{directives}\n}}\n");
        let error = match adapt(&source, "Caddyfile", &causeway::directives(&registry), &|_: &str| None) {
            Err(error) => error.to_string(),
            Ok(adapted) => {
                let routes = &adapted.json["apps"]["http"]["servers"]["srv0"]["routes"];
                Kit::build(&registry, routes, &serde_json::Value::Null).err().expect(want).to_string()
            }
        };
        assert!(error.to_lowercase().contains(&want.to_lowercase()), "{directives}: {error}");
    }
}
