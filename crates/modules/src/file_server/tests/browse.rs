//! Listings.

use std::slice;

use super::*;

const HOSTILE: [&str; 9] = [
    "<b>x<b>.txt",
    "\" onmouseover=injected=1 x=\".txt",
    "&lt;amp&amp;.txt",
    "%2f.txt",
    "#hash?.txt",
    "javascript:x=1.txt",
    "back\\slash.txt",
    "invoice\u{202e}fdp.txt",
    "Grüße-日本-\u{1f600}.txt",
];

/// Four files and two directories; each sort key gives a different order.
fn sorted() -> Directory {
    let directory = Directory::new();
    directory
        .file("B.txt", vec![0; 100])
        .file("a.txt", vec![0; 300])
        .file("c.txt", vec![0; 200])
        .file("z/x", "")
        .file("d/x", "");
    for (name, seconds) in [("B.txt", 3000), ("a.txt", 2000), ("c.txt", 4000), ("z", 1000), ("d", 5000)] {
        set_modified(&directory.0.join(name), seconds);
    }
    set_modified(&directory.0, 6000);
    directory
}

fn page(answer: &TestResponse) -> &str {
    assert_eq!((answer.status, answer.field("content-type")), (200, Some("text/html; charset=utf-8")));
    answer.text()
}

/// The names in a page's rows, unescaped as a browser would.
fn names(page: &str) -> Vec<String> {
    let rows = page.split("<tr class=\"entry\">").skip(1);
    rows.map(|row| {
        let name = row.split("<bdi>").nth(1).and_then(|rest| rest.split("</bdi>").next()).expect("a name");
        assert!(!name.contains(['<', '>', '"', '\'']), "{name}");
        ["&lt;|<", "&gt;|>", "&quot;|\"", "&#39;|'", "&amp;|&"].iter().fold(name.to_owned(), |name, pair| {
            let (escape, text) = pair.split_once('|').expect("a pair");
            name.replace(escape, text)
        })
    })
    .collect()
}

// Caddy, fileserver browse: `sort` is name, namedirfirst, size or time; `order` is asc or desc; `limit` and `offset`
// select a part.
#[test]
fn orders() {
    let directory = sorted();
    let mut kit = directory.kit(json!({ "browse": {} }));
    for (query, want) in [
        ("", "d z a.txt B.txt c.txt"),
        ("?sort=name", "a.txt B.txt c.txt d z"),
        // Go's `Query().Get`: decoded, and the first of several.
        ("?%73ort=%6eame", "a.txt B.txt c.txt d z"),
        ("?sort=name&limit=2&limit=4&sort=size", "a.txt B.txt"),
        ("?sort=name&limit=%zz&limit=2", "a.txt B.txt"),
        ("?sort=name&order=desc", "z d c.txt B.txt a.txt"),
        ("?sort=namedirfirst&order=asc", "d z a.txt B.txt c.txt"),
        ("?sort=size", "d z B.txt c.txt a.txt"),
        ("?sort=size&order=desc", "a.txt c.txt B.txt z d"),
        ("?sort=time", "z a.txt B.txt c.txt d"),
        ("?sort=time&order=desc", "d c.txt B.txt a.txt z"),
        ("?sort=nonsense&order=sideways", "d z a.txt B.txt c.txt"),
        ("?limit=2", "d z"),
        ("?limit=2&offset=2", "a.txt B.txt"),
        ("?offset=4", "c.txt"),
        ("?offset=5", ""),
        // Caddy, applySortAndLimit: an offset beyond the last entry is ignored.
        ("?offset=6&limit=-1", "d z a.txt B.txt c.txt"),
        ("?offset=99&limit=2", "d z"),
        // The words of the one parameter are unknown to the other.
        ("?sort=desc&order=size", "d z a.txt B.txt c.txt"),
    ] {
        let answer = kit.send(&Request::get(&format!("/{query}")));
        assert_eq!(names(page(&answer)).join(" "), want, "{query}");
    }
    let answer = directory.kit(json!({ "browse": { "sort": ["size", "desc"] } })).send(&Request::get("/"));
    assert_eq!(names(page(&answer)).join(" "), "a.txt c.txt B.txt z d");
}

// Properties of every page: sort links in the header, and one row for each file whose first link is the file's.
#[test]
fn a_page() {
    let directory = sorted();
    let answer = directory.kit(json!({ "browse": {} })).send(&Request::get("/"));
    let text = page(&answer);
    for part in [
        "<th scope=\"col\" class=\"name\" aria-sort=\"ascending\"><a data-sort=\"name\" href=\"?sort=namedirfirst&amp;order=desc\">",
        "<a data-sort=\"size\" href=\"?sort=size&amp;order=asc\">",
        "<a data-sort=\"time\" href=\"?sort=time&amp;order=asc\">",
        "<tr class=\"entry\"><td class=\"name\"><a href=\"./B.txt\">",
        "<a href=\"./d/\">",
        "<data value=\"300\" title=\"300 bytes\">300 B</data>",
        "<time datetime=\"1970-01-01T00:50:00Z\" title=\"1970-01-01T00:50:00Z\">1970-01-01 00:50</time>",
        "2 directories · 3 files · <data value=\"600\" title=\"600 bytes\">600 B</data>",
    ] {
        assert!(text.contains(part), "{part}");
    }
    // No external resource, no script.
    assert!(!text.contains("<script") && !text.contains("<tr class=\"up\">"));
    assert!(!text.replace("http://www.w3.org/2000/svg", "").contains("//"), "an address of another site");
    assert!(answer.field("content-security-policy").is_some_and(|policy| policy.starts_with("default-src 'none'")));
    assert_eq!(answer.field("vary"), Some("Accept, Accept-Encoding"));
    assert_eq!(answer.field("last-modified"), Some("Thu, 01 Jan 1970 01:40:00 GMT"));
}

#[test]
fn hostile_names_are_escaped() {
    let directory = Directory::new();
    for (at, name) in HOSTILE.iter().enumerate() {
        fs::write(directory.0.join(name), format!("file {at}")).expect("a file");
    }
    let mut kit = directory.kit(json!({ "browse": {} }));
    let answer = kit.send(&Request::get("/"));
    let text = page(&answer).to_owned();
    let mut shown = names(&text);
    let mut want: Vec<String> = HOSTILE.iter().map(ToString::to_string).collect();
    shown.sort();
    want.sort();
    assert_eq!(shown, want);
    for row in text.split("<tr class=\"entry\">").skip(1) {
        let href = row.split("<a href=\"./").nth(1).and_then(|rest| rest.split('"').next()).expect("a link");
        assert_eq!(kit.send(&Request::get(&format!("/{href}"))).status, 200, "{href}");
        // Every row has one structure, whatever the name.
        assert_eq!(row.split("</tr>").next().expect("a row").matches('<').count(), 17, "{row}");
    }
}

#[test]
fn nested_directories() {
    let directory = Directory::new();
    directory.file("a & b/c/x", "").file(".hidden/x", "").file("a & b/.env", "");
    let mut kit = directory.kit(json!({ "browse": {}, "hide": [".*"] }));
    let answer = kit.send(&Request::get("/a%20%26%20b/c/?limit=5"));
    let text = page(&answer);
    assert!(text.contains("<title>/a &amp; b/c/</title>"));
    assert!(text.contains("<li><a href=\"../../\" aria-label=\"Top directory\">"));
    assert!(text.contains("<li><a href=\"../\"><bdi>a &amp; b</bdi></a></li>"));
    assert!(text.contains("<li><span aria-current=\"page\"><bdi>c</bdi></span></li>"));
    assert!(text.contains("<tr class=\"up\"><td class=\"name\"><a href=\"../\">"));
    // Relative links need the trailing slash.
    let answer = kit.send(&Request::get("/a%20%26%20b?sort=size"));
    assert_eq!((answer.status, answer.field("location")), (308, Some("/a%20%26%20b/?sort=size")));
    // Caddy: the redirect also happens without `canonical_uris`. Not in Caddy: also where handle_path stripped the
    // whole path.
    let mut plain = directory.kit(json!({ "browse": {}, "canonical_uris": false }));
    assert_eq!(plain.send(&Request::get("/a%20%26%20b")).field("location"), Some("/a%20%26%20b/"));
    let strip = json!({ "handler": "rewrite", "strip_path_prefix": "/files" });
    let routes = json!([{ "handle": [strip, directory.handler(json!({ "browse": {} }))] }]);
    let mut stripped = Kit::new(&registry(), &routes);
    assert_eq!(stripped.send(&Request::get("/files")).field("location"), Some("/files/"));
    assert_eq!(names(page(&stripped.send(&Request::get("/files/")))), [".hidden", "a & b"]);
    assert_eq!(names(page(&kit.send(&Request::get("/")))), ["a & b"]);
    assert_eq!(names(page(&kit.send(&Request::get("/a%20%26%20b/")))), ["c"]);
    assert_eq!(kit.send(&Request::get("/.hidden/")).status, 404);
    assert_eq!(kit.send(&Request::get("/nope/")).status, 404);
    let post = kit.send(&Request::new("POST", "/"));
    assert_eq!((post.status, post.field("allow")), (405, Some("GET, HEAD")));
    fs::create_dir(directory.0.join("void")).expect("a directory");
    assert!(page(&kit.send(&Request::get("/void/"))).contains("This directory is empty."));
}

// Caddy: JSON with these keys if Accept names it; a text table for text/plain.
#[test]
fn json_and_text() {
    let directory = sorted();
    std::os::unix::fs::symlink("a.txt", directory.0.join("link")).expect("a link");
    set_modified(&directory.0, 6000);
    let mut kit = directory.kit(json!({ "browse": { "reveal_symlinks": true } }));
    let answer = kit.send(&Request::get("/?limit=3").field("Accept", "text/html, Application/JSON"));
    assert_eq!(answer.field("content-type"), Some("application/json; charset=utf-8"));
    let items: Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!(items[0]["name"], "d/");
    assert_eq!((&items[0]["url"], &items[0]["is_dir"]), (&json!("./d/"), &json!(true)));
    assert!(items[0]["mode"].as_u64().is_some_and(|mode| mode & 1 << 31 != 0));
    assert_eq!((&items[2]["name"], &items[2]["size"]), (&json!("a.txt"), &json!(300)));
    assert_eq!((&items[2]["mod_time"], &items[2]["is_symlink"]), (&json!("1970-01-01T00:33:20Z"), &json!(false)));
    let all = kit.send(&Request::get("/?sort=name").field("Accept", "application/json"));
    let all: Value = serde_json::from_slice(&all.body).expect("JSON");
    let link = all.as_array().expect("a list").iter().find(|item| item["name"] == "link").expect("the link");
    assert_eq!(
        (&link["is_symlink"], &link["symlink_path"], &link["size"]),
        (&json!(true), &json!("a.txt"), &json!(300))
    );
    let answer = kit.send(&Request::get("/?sort=size&order=desc&limit=1").field("Accept", "text/plain"));
    assert_eq!(answer.field("content-type"), Some("text/plain; charset=utf-8"));
    let want = "Name\tSize\tModified\n----\t----\t--------\na.txt\t300 B\tJanuary 1, 1970 at 00:33:20\n";
    assert!(answer.text() == want || answer.text().contains("link"), "{}", answer.text());
    // A browser prefers a page.
    let browser = "text/html,application/xhtml+xml,text/plain;q=0.8,*/*;q=0.5";
    page(&kit.send(&Request::get("/").field("Accept", browser)));
}

// Go's `tabwriter` with tabs: a column is as wide as its longest cell and one more, up to a multiple of 8. Go's
// `FileMode`: setuid, setgid and sticky have their own bits. JSON has times with decimals.
#[test]
fn columns_and_modes() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = Directory::new();
    directory.file("exactly8", "12").file("longer-than-that", "1").file("sticky/x", "");
    let set = |name: &str, mode| {
        fs::set_permissions(directory.0.join(name), fs::Permissions::from_mode(mode)).expect("a mode");
    };
    set("exactly8", 0o4755);
    set("longer-than-that", 0o2640);
    set("sticky", 0o1777);
    let late = std::time::UNIX_EPOCH + Duration::new(6000, 120_000_000);
    fs::File::open(directory.0.join("exactly8")).and_then(|file| file.set_modified(late)).expect("a time");
    let mut kit = directory.kit(json!({ "browse": {} }));
    let answer = kit.send(&Request::get("/?sort=name").field("Accept", "text/plain"));
    let lines: Vec<_> = answer.text().lines().map(|line| line.rsplit_once('\t').unwrap().0).collect();
    assert_eq!(
        lines[..4],
        ["Name\t\t\tSize", "----\t\t\t----", "exactly8\t\t2 B", "longer-than-that\t1 B"],
        "{lines:?}"
    );
    assert!(lines[4].starts_with("sticky/\t\t\t"), "{lines:?}");
    let answer = kit.send(&Request::get("/?sort=name").field("Accept", "application/json"));
    let items: Value = serde_json::from_slice(&answer.body).expect("JSON");
    let modes: Vec<_> = (0..3).map(|index| items[index]["mode"].as_u64().unwrap()).collect();
    assert_eq!(modes, [0x0080_01ed, 0x0040_01a0, 0x8010_01ff]);
    assert_eq!(items[0]["mod_time"], "1970-01-01T01:40:00.12Z");
}

// Caddy: a listing's Last-Modified is its latest change, and If-Modified-Since is honoured.
#[test]
fn a_listing_that_did_not_change_is_304() {
    let directory = sorted();
    let mut kit = directory.kit(json!({ "browse": {} }));
    for (since, want) in [("Thu, 01 Jan 1970 01:40:00 GMT", 304), ("Thu, 01 Jan 1970 01:39:59 GMT", 200)] {
        let answer = kit.send(&Request::get("/").field("If-Modified-Since", since));
        assert_eq!((answer.status, answer.body.is_empty()), (want, want == 304), "{since}");
    }
}

// RFC 9110 §13.2.2: the order of conditions; a listing has no tag. §13.1.3: If-Modified-Since is ignored if there is
// If-None-Match.
#[test]
fn conditions_of_a_listing() {
    let (directory, late, early) = (sorted(), "Sun, 01 Nov 2037 00:00:00 GMT", "Thu, 01 Jan 1970 01:39:59 GMT");
    let (_directory, custom) = custom("page");
    for mut kit in [directory.kit(json!({ "browse": {} })), custom] {
        for (name, value, want) in [
            ("If-None-Match", "\"x\"", 200),
            ("If-None-Match", "*", 304),
            ("If-Match", "\"x\"", 412),
            ("If-Match", "*", 304),
            ("If-Unmodified-Since", early, 412),
            ("If-Unmodified-Since", late, 304),
        ] {
            let request = Request::get("/").field("If-Modified-Since", late).field(name, value);
            assert_eq!(kit.send(&request).status, want, "{name}: {value}");
        }
    }
    // The listing of an error route is not the representation that the client has.
    let missing =
        json!([{ "handle": [directory.handler(json!({ "canonical_uris": false, "index_names": ["none"] }))] }]);
    let listing = json!([{ "handle": [directory.handler(json!({ "browse": {} }))] }]);
    let mut kit = Kit::with_errors(&registry(), &missing, &listing);
    page(&kit.send(&Request::get("/").field("If-Modified-Since", late)));
}

#[test]
fn requests_within_a_second_share_one_listing() {
    let directory = sorted();
    let mut kit = directory.kit(json!({ "browse": {} }));
    let first = kit.send(&Request::get("/"));
    // One job looks up the directory, one makes the listing.
    assert_eq!(kit.worker().jobs_seen(), 2);
    for request in [Request::get("/"), Request::get("/?unknown=1"), Request::new("HEAD", "/")] {
        let answer = kit.send(&request);
        assert_eq!((answer.status, answer.field("content-type")), (200, Some("text/html; charset=utf-8")));
        assert_eq!(answer.length, Some(first.body.len() as u64));
    }
    assert_eq!(kit.send(&Request::new("POST", "/")).status, 405);
    assert_eq!(kit.worker().jobs_seen(), 2);
    // Another order, part or format is another listing.
    for (target, accept) in
        [("/?sort=size", ""), ("/?limit=1", ""), ("/?limit=1&offset=1", ""), ("/", "application/json")]
    {
        let answer = kit.send(&Request::get(target).field("Accept", accept));
        assert!(answer.status == 200 && answer.body != first.body, "{target} {accept}");
    }
    assert_eq!(kit.worker().jobs_seen(), 10);
    directory.file("new.txt", "x");
    assert_eq!(kit.send(&Request::get("/")).body, first.body);
    kit.worker().advance(Duration::from_secs(1));
    assert!(kit.send(&Request::get("/")).text().contains("new.txt"));
    // The directory has an index now.
    directory.file("index.html", "index");
    kit.worker().advance(Duration::from_secs(1));
    assert_eq!(summary(&kit.send(&Request::get("/"))), (200, "index"));
}

// Queued listings must not delay file lookups on the pool.
#[test]
fn concurrent_listings_are_bounded() {
    let directory = sorted();
    for name in ["a", "b", "c", "d"] {
        directory.file(&format!("folder-{name}/x.txt"), "x");
    }
    let mut kit = directory.kit(json!({ "browse": {} }));
    kit.worker().queue_jobs(usize::MAX);
    let targets = ["/folder-a/", "/folder-b/", "/folder-c/", "/folder-d/", "/folder-c/"];
    let mut waiting: Vec<_> =
        targets.iter().filter_map(|target| kit.send_pending(&Request::get(target)).err()).collect();
    assert_eq!(waiting.len(), 5);
    let mut jobs = Vec::new();
    while !waiting.is_empty() {
        jobs.push(kit.worker().run_jobs());
        kit.worker().drive_spawned();
        let polled: Vec<_> = std::mem::take(&mut waiting).into_iter().map(|pending| pending.poll(&mut kit)).collect();
        for answer in polled {
            match answer {
                Ok(answer) => assert_eq!(answer.status, 200),
                Err(pending) => waiting.push(pending),
            }
        }
        assert!(jobs.len() < 20, "{jobs:?}");
    }
    // Lookups of four directories, then never more than two listings; the second request for one of them may find it
    // made.
    let made = jobs.iter().skip(1).sum::<usize>();
    assert!(jobs[0] == 4 && jobs[1..].iter().all(|&jobs| jobs <= 2), "{jobs:?}");
    assert!((4..=5).contains(&made), "{jobs:?}");
}

// A request that waits for its permit finds the listing that the one before it has made, in any sequence in which the
// engine polls them.
#[test]
fn requests_for_one_directory_wait_for_its_listing() {
    let directory = sorted();
    let mut kit = directory.kit(json!({ "browse": {} }));
    kit.worker().queue_jobs(usize::MAX);
    let mut waiting: Vec<_> = (0..4).map(|_| kit.send_pending(&Request::get("/")).expect_err("a lookup")).collect();
    kit.worker().run_jobs();
    kit.worker().drive_spawned();
    let lookups = kit.worker().jobs_seen();
    waiting = waiting.into_iter().map(|pending| pending.poll(&mut kit).expect_err("a listing, or a permit")).collect();
    kit.worker().run_jobs();
    kit.worker().drive_spawned();
    while let Some(pending) = waiting.pop() {
        let answer = pending.poll(&mut kit);
        assert_eq!(answer.ok().map(|answer| answer.status), Some(200));
    }
    assert_eq!(kit.worker().jobs_seen() - lookups, 2);
}

// Caddy has no such bound. A job that a thread has begun cannot be stopped, so a client that cancels its requests must
// not get permits for further jobs before the first ones have ended. A job in the queue leaves it, like those of other
// requests.
#[test]
fn cancelled_listings_count_until_their_jobs_end() {
    let directory = sorted();
    let [(_one, custom), (_other, other_custom)] = [custom("page"), custom("page")];
    for (mut kit, have_begun) in [
        (directory.kit(json!({ "browse": {} })), true),
        (directory.kit(json!({ "browse": {} })), false),
        (custom, true),
        (other_custom, false),
    ] {
        kit.worker().queue_jobs(usize::MAX);
        let mut waiting: Vec<_> = (1..=5)
            .map(|offset| kit.send_pending(&Request::get(&format!("/?offset={offset}"))).expect_err("a lookup"))
            .collect();
        kit.worker().run_jobs();
        kit.worker().drive_spawned();
        waiting =
            waiting.into_iter().map(|pending| pending.poll(&mut kit).expect_err("a listing, or a permit")).collect();
        let jobs = kit.worker().jobs_seen();
        if have_begun {
            // Their results have not arrived.
            assert_eq!(kit.worker().run_jobs(), 2);
        }
        for pending in waiting {
            pending.cancel(&mut kit);
        }
        assert_eq!(kit.worker().jobs_seen(), jobs, "no further job for cancelled requests");
        kit.worker().drive_spawned();
        assert_eq!(kit.worker().drop_abandoned(), if have_begun { 0 } else { 2 });
        page(&kit.send(&Request::get("/")));
        assert_eq!(kit.worker().drive_spawned(), 0);
    }
}

/// A directory, a template for its listings, and the routes for them.
fn custom(template: &str) -> (Directory, Kit) {
    let directory = Directory::new();
    directory.file("page.tpl", template).file("site/b.TXT", "12345").file("site/a&b/x", "").file("site/c.js", "1");
    set_modified(&directory.0.join("site/b.TXT"), 1_000_000_000);
    let options = json!({
        "root": directory.0.join("site"),
        "browse": { "template_file": directory.0.join("page.tpl"), "sort": ["name", "desc"] },
    });
    let kit = directory.kit(options);
    (directory, kit)
}

// Caddy's documentation of `browse <template_file>`: the fields of a listing and of its items; those of `templates`
// too.
#[test]
fn a_custom_template() {
    let (_directory, mut kit) = custom(
        "{{.Name}} {{.Path}} {{.CanGoUp}} {{.NumDirs}}+{{.NumFiles}} {{.TotalFileSize}} {{.HumanTotalFileSize}} {{.Sort}} {{.Order}} \
         {{.Layout}} {{.Limit}} {{.Offset}} {{.Req.Method}}{{range .Items}}|{{.Name}} {{.URL}} {{.Size}} {{.HumanSize}} {{.IsDir}} \
         {{.IsSymlink}} {{.HasExt \".css\" \".txt\"}} {{.Tpl.NumFiles}}{{if .HasExt \"txt\"}} {{.HumanModTime \"2006-01-02\"}} \
         {{.ModTime.Year}}{{end}}{{end}}",
    );
    let answer = kit.send(&Request::get("/"));
    assert_eq!(
        page(&answer),
        "/ / false 1+2 6 6 B name desc  0 0 GET|c.js ./c.js 1 1 B false false false 2|b.TXT ./b.TXT 5 5 B false false true 2 \
         2001-09-09 2001|a&b/ ./a%26b/ 4096 4.0 KiB true false false 2"
    );
    assert!(answer.field("last-modified").is_some() && answer.field("content-security-policy").is_none());
    let answer = kit.send(&Request::get("/?limit=1&offset=1&layout=grid&sort=size&order=asc"));
    assert!(page(&answer).starts_with("/ / false 1+2 6 6 B size asc grid 1 1 GET|c.js "), "{}", answer.text());
    let answer = kit.send(&Request::get("/?limit=2&offset=2"));
    assert!(page(&answer).starts_with("/ / false 1+2 6 6 B name desc  0 2 GET|a&b/ "), "{}", answer.text());
    let answer = kit.send(&Request::get("/?limit=2&offset=4"));
    assert!(page(&answer).starts_with("/ / false 1+2 6 6 B name desc  2 0 GET|c.js "), "{}", answer.text());
    let later = Request::get("/").field("If-Modified-Since", "Sun, 01 Nov 2037 00:00:00 GMT");
    assert_eq!(kit.send(&later).status, 304);
    // JSON and text need no template.
    let answer = kit.send(&Request::get("/").field("Accept", "application/json"));
    assert_eq!(answer.field("content-type"), Some("application/json; charset=utf-8"));
}

#[test]
fn breadcrumbs_of_a_template() {
    let (_directory, mut kit) =
        custom("{{.Name}} {{.Path}} {{.CanGoUp}}{{range .Breadcrumbs}} [{{.Link}} {{.Text}}]{{end}}");
    assert_eq!(page(&kit.send(&Request::get("/a%26b/"))), "a&b /a%26b true [../ /] [ a&b]");
}

// A template that is changed applies at once; one that is missing or broken is an error of the server.
#[test]
fn templates_that_fail() {
    let (directory, mut kit) = custom("{{.Nothing}}");
    let status = |kit: &mut Kit| kit.send(&Request::get("/")).status;
    assert_eq!(status(&mut kit), 500);
    directory.file("page.tpl", "{{if}}");
    assert_eq!(status(&mut kit), 500);
    directory.file("page.tpl", "{{.NumFiles}}");
    assert_eq!(page(&kit.send(&Request::get("/"))), "2");
    fs::remove_file(directory.0.join("page.tpl")).unwrap();
    assert_eq!(status(&mut kit), 500);
}

// Caddy's `plain_time_format`: Go's layout of the times in a text.
#[test]
fn times_in_a_text() {
    let directory = sorted();
    let mut kit = directory.kit(json!({ "browse": { "plain_time_format": "2006-01-02 15:04" } }));
    let answer = kit.send(&Request::get("/").field("Accept", "text/plain"));
    assert!(answer.text().contains("B.txt\t100 B\t1970-01-01 00:50\n"), "{}", answer.text());
}

// Caddy, serveBrowse: the redirect to the client's path with a slash applies if a rewrite has left nothing of the path,
// and not if it has set another one. Not in Caddy 2.11.9: a removed prefix or suffix can leave nothing too.
#[test]
fn listings_of_rewritten_paths() {
    let directory = Directory::new();
    directory.file("a.txt", "a");
    let browse = directory.handler(json!({ "browse": {} }));
    let kit = |rewrites: &[Value]| {
        let rewrites = rewrites.iter().map(|written| {
            let mut rewrite = written.clone();
            rewrite["handler"] = "rewrite".into();
            rewrite
        });
        let handlers: Vec<_> = rewrites.chain([browse.clone()]).collect();
        Kit::new(&registry(), &json!([{ "handle": handlers }]))
    };
    let (strip, root) = (json!({ "strip_path_prefix": "/old" }), json!({ "uri": "/" }));
    let replace = |find: &str| json!({ "uri_substring": [{ "find": find, "replace": "" }] });
    let regexp = |find: &str, replace: &str| json!({ "path_regexp": [{ "find": find, "replace": replace }] });
    let query = json!({ "uri": "?x=1" });
    for (rewrites, target, want) in [
        (slice::from_ref(&root), "/old", None),
        (slice::from_ref(&strip), "/old", Some("/old/")),
        (slice::from_ref(&strip), "/old/", None),
        (&[strip.clone(), root.clone()], "/old", None),
        (slice::from_ref(&strip), "/", None),
        (&[replace("/old")], "/old", Some("/old/")),
        (&[replace("/old")], "/old/", None),
        (&[regexp("^/old$", "")], "/old", Some("/old/")),
        (&[json!({ "uri": "{http.request.header.none}" })], "/old", Some("/old/")),
        // A change of the query keeps the empty path.
        (&[replace("/old"), query.clone()], "/old", Some("/old/?x=1")),
        (&[replace("/old"), json!({ "uri": "/?x=1" })], "/old", None),
        // A later change makes a path.
        (&[replace("/old"), regexp("^/?$", "/new"), regexp("^/new$", "/")], "/old", None),
        (&[replace("/old"), regexp("none", "x")], "/old", Some("/old/")),
    ] {
        let mut kit = kit(rewrites);
        // Twice: the second response may be from the cache.
        for _ in 0..2 {
            let answer = kit.send(&Request::get(target));
            let status = if want.is_some() { 308 } else { 200 };
            assert_eq!((answer.status, answer.field("location")), (status, want), "{target} {rewrites:?}");
        }
    }
}
