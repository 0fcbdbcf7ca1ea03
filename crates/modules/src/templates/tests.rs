use std::path::{Path, PathBuf};

use causeway_pipeline::{BodyError, Registry, TlsFacts};
use causeway_testkit::{Kit, Request, TestResponse};
use serde_json::{Value, json};

fn registry() -> Registry {
    let mut registry = Registry::default();
    crate::register(&mut registry);
    registry
}

/// A directory that is removed at the end.
struct Site(PathBuf);

impl Site {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let directory = std::env::temp_dir().join(format!("causeway-templates-{name}-{}", std::process::id()));
        std::fs::create_dir_all(directory.join("sub")).unwrap();
        for (file, text) in files {
            std::fs::write(directory.join(file), text).unwrap();
        }
        Self(directory)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server whose responses are the request's field `T`, as templates.
fn kit(options: Value) -> Kit {
    let mut templates = options;
    templates["handler"] = "templates".into();
    let respond = json!({
        "handler": "static_response", "body": "{http.request.header.T}",
        "headers": { "Content-Type": ["{http.request.header.Type}"], "Etag": ["\"a\""], "Last-Modified": ["x"], "Accept-Ranges": ["bytes"] },
    });
    let fails = json!({ "handler": "static_response", "body": "failed: {http.error.status_code}" });
    let routes = json!([{ "handle": [{ "handler": "vars", "v": "a variable" }, templates, respond] }]);
    Kit::with_errors(&registry(), &routes, &json!([{ "handle": [fails] }]))
}

fn request(template: &str) -> Request {
    Request::get("/p%20q?a=1&b=x%20y").field("T", template).field("Type", "text/html; charset=utf-8")
}

#[track_caller]
fn check(kit: &mut Kit, template: &str, want: &str) -> TestResponse {
    let response = kit.send(&request(template));
    assert_eq!((response.text(), response.status), (want, 200), "{template}");
    response
}

// Caddy: the functions and placeholders of the environment include the variables of `--envfile`.
#[test]
fn the_environment_of_the_configuration() {
    let mut registry = registry();
    registry.set_environment(|name| (name == "COLOUR").then(|| "blue".to_owned()));
    let respond = json!({
        "handler": "static_response", "body": "{http.request.header.T}", "headers": { "Content-Type": ["text/html"] },
    });
    let routes = json!([{ "handle": [{ "handler": "templates" }, respond] }]);
    let mut kit = Kit::with_errors(&registry, &routes, &json!([]));
    check(&mut kit, "{{env \"COLOUR\"}} {{placeholder \"env.COLOUR\"}} {{env \"PATH\"}}", "blue blue ");
}

// Caddy: the request's body is read when a template uses its placeholder.
#[test]
fn the_body_of_a_request() {
    let mut kit = kit(json!({}));
    let mut post = |template: &str, body: &str| {
        let request = Request::new("POST", "/").content(body).field("T", template).field("Type", "text/html");
        let response = kit.send(&request);
        (response.status, response.text().to_owned())
    };
    let template = "{{placeholder \"http.request.body\"}} {{ph \"http.request.body_base64\"}}";
    assert_eq!(post(template, "posted"), (200, "posted cG9zdGVk".to_owned()));
    assert_eq!(post(template, ""), (200, " ".to_owned()));
    let broken = Request::new("POST", "/").content("a").body_fails(BodyError::Malformed);
    let response = kit.send(&broken.field("T", template).field("Type", "text/html"));
    assert_eq!((response.status, response.text()), (400, "failed: 400"));
    for field in ["Etag", "Last-Modified", "Accept-Ranges"] {
        assert_eq!(response.values(field).count(), 0, "{field}");
    }
}

// Caddy's documentation, templates: the values of the request, the placeholders, and the functions for texts.
#[test]
fn values_and_functions() {
    let mut kit = kit(json!({}));
    for (template, want) in [
        ("{{.Req.Method}} {{.Req.URL.Path}} {{.Req.URL.RawQuery}} {{.Req.Proto}}", "GET /p q a=1&b=x%20y HTTP/1.1"),
        // Go: the request is a `*http.Request`, the original one its copy.
        ("{{printf \"%T\" .Req}} {{typeOf .OriginalReq}}", "*http.Request http.Request"),
        ("{{.Req.URL.Query.Get \"b\"}} {{.Req.FormValue \"a\"}} {{.OriginalReq.URL}}", "x y 1 /p%20q?a=1&b=x%20y"),
        (
            "{{.Req.Header.Get \"type\"}} {{index .Req.Header \"Type\" 0}}",
            "text/html; charset=utf-8 text/html; charset=utf-8",
        ),
        ("{{if .Req.TLS}}secure{{else}}plain{{end}} {{len (index .Req.Header \"Host\")}}", "plain 0"),
        ("{{placeholder \"http.request.method\"}} {{ph \"http.vars.v\"}} {{ph \"http.none\"}}|", "GET a variable |"),
        (
            "{{stripHTML \"<a title='x>y'>z</a> 1 > 0\"}} {{pathEscape \"a b/c\"}} {{humanize \"size\" \"2048000\"}}",
            "z 1 > 0 a%20b%2Fc 2.0 MB",
        ),
        (
            "{{humanize \"time:2006Jan02\" \"1970May05\"}}, {{humanize \"time\" \"Mon, 02 Jan 1950 15:04:05 -0700\"}}",
            "a long while ago, a long while ago",
        ),
        ("{{maybe \"unknown\" 1 2}}|{{env \"CAUSEWAY_NO_SUCH_VARIABLE\"}}|{{env \"\"}}", "||"),
        ("{{ph \"file./etc/passwd\"}}|{{.Cookie \"none\"}}|", "||"),
        // Caddy's `ToString`.
        (
            "{{markdown (dict \"a\" (list 1 nil))}}{{(splitFrontMatter (list 1 \"b\")).Body}}",
            "<p>map[a:[1 <nil>]]</p>\n[1 b]",
        ),
        (
            "{{markdown 1.5}}{{markdown nil}}{{markdown true}}{{markdown (toDate \"2006 MST\" \"2020 UTC\")}}",
            "<p>1.5</p>\n<p>true</p>\n<p>2020-01-01 00:00:00 +0000 UTC</p>\n",
        ),
        (
            "{{markdown \"# A *b*\\n\\n## A b\\n\\n~~x~~ <i>y</i>\"}}",
            "<h1 id=\"a-b\">A <em>b</em></h1>\n<h2 id=\"a-b-1\">A b</h2>\n<p><del>x</del> <i>y</i></p>\n",
        ),
        ("{{with splitFrontMatter \"---\\nt: [1, x]\\n---\\nrest\"}}{{index .Meta.t 1}}{{.Body}}{{end}}", "x\nrest"),
        ("{{with splitFrontMatter \"+++\\nt = 2\\n+++\\nrest\"}}{{.Meta.t}}{{.Body}}{{end}}", "2\nrest"),
        ("{{with splitFrontMatter \"{\\n\\\"t\\\": 3\\n}\\nrest\"}}{{.Meta.t}}{{.Body}}{{end}}", "3\nrest"),
        (
            "{{date \"2006-01-02\" 0 | len}} {{dateInZone \"2006-01-02 15:04\" 86400 \"UTC\"}} {{unixEpoch (toDate \"2006 MST\" \"1971 UTC\")}}",
            "10 1970-01-02 00:00 31536000",
        ),
        (
            "{{if gt (now.Year) 2020}}{{now | date \"2006\" | len}}{{end}} {{default \"d\" \"\"}} {{list 1 2 | join \"-\"}}",
            "4 d 1-2",
        ),
        // The types of yaml.v3: times, words that YAML 1.1 took for booleans, octal numbers.
        (
            "{{with splitFrontMatter \"---\\nd: 2020-01-02\\nt: 2020-01-02T03:04:05+01:00\\nq: '2020-01-02'\\nw: no\\no: 010\\ni: .inf\\nyes: 1\\nl: [2020-1-2, off]\\n---\\n\"}}\
             {{.Meta.d | date \"2 Jan 2006\"}} {{.Meta.t.Format \"15:04 -0700\"}} {{printf \"%T\" .Meta.q}} {{.Meta.w}} {{.Meta.o}} {{.Meta.i}} {{.Meta.yes}} \
             {{.Meta.l}}{{end}}",
            "2 Jan 2020 03:04 +0100 string no 8 +Inf 1 [2020-01-02 00:00:00 +0000 UTC off]",
        ),
        (
            "{{with splitFrontMatter \"+++\\nd = 2020-01-02\\nt = 2020-01-02T03:04:05Z\\ni = inf\\n+++\\n\"}}\
             {{.Meta.d.Format \"2 Jan 2006\"}} {{.Meta.t.Hour}} {{.Meta.i}}{{end}}",
            "2 Jan 2020 3 +Inf",
        ),
        ("{{splitFrontMatter \"---\\nt: [1, x]\\nu: b\\n---\\nrest\"}}", "{map[t:[1 x] u:b] \nrest}"),
        // Go's `%+v` and `%#v` have the names of a structure's fields.
        ("{{splitFrontMatter \"---\\nt: 1\\n---\\nrest\" | printf \"%+v\"}}", "{Meta:map[t:1] Body:\nrest}"),
        (
            "{{splitFrontMatter \"---\\nt: 1\\n---\\nrest\" | printf \"%#v\"}}",
            "templates.parsedMarkdownDoc{Meta:map[string]interface {}{\"t\":1}, Body:\"\\nrest\"}",
        ),
        ("{{with splitFrontMatter \"no front matter\"}}{{.Meta}}{{.Body}}{{end}}", "map[]no front matter"),
    ] {
        check(&mut kit, template, want);
    }
    let cookie = request("{{.Cookie \"b\"}} {{.ClientIP}} {{.RemoteIP}}").field("Cookie", "a=1; b=\"2\"");
    assert_eq!(kit.send(&cookie.peer("192.0.2.1:9".parse().unwrap())).text(), "2 192.0.2.1 192.0.2.1");
    let of_server = request("{{ph \"http.vars.client_ip\"}} {{ph \"http.vars.trusted_proxy\"}}");
    assert_eq!(kit.send(&of_server.peer("192.0.2.1:9".parse().unwrap())).text(), "192.0.2.1 false");
    let own = "{{range .Req.Cookies}}{{.Name}}={{.Value}};{{end}} {{(.Req.Cookie \"b\").Value}}";
    assert_eq!(kit.send(&request(own).field("Cookie", "a=1; b=\"2\"")).text(), "a=1;b=2; 2");
    let facts =
        TlsFacts { version: "tls1.3", server_name: Some("a.test".into()), protocol: "h2", ..TlsFacts::default() };
    let tls = "{{with .Req.TLS}}{{.ServerName}} {{.NegotiatedProtocol}} {{eq .Version 0x304}} {{.DidResume}}{{end}}";
    assert_eq!(kit.send(&request(tls).tls(facts)).text(), "a.test h2 true false");
    let unix = request("[{{.ClientIP}}] {{.RemoteIP}} {{.Req.RemoteAddr}}").over_unix("/run/x.sock");
    assert_eq!(kit.send(&unix).text(), "[] @ @");
    let names = "{{ph (printf \"http.request.header.%s\" (ph \"http.request.header.Name\"))}}";
    assert_eq!(kit.send(&request(names).field("Name", "Type")).text(), "text/html; charset=utf-8");
}

// Caddy: only content of the types is executed; the output has no validators; HEAD has no output.
#[test]
fn responses() {
    let mut kit = kit(json!({ "delimiters": ["[[", "]]"], "mime_types": ["text/x"] }));
    let other = kit.send(&request("[[1]]"));
    assert_eq!((other.text(), other.values("Etag").count()), ("[[1]]", 1));
    let of_type = |template: &str| Request::get("/").field("T", template).field("Type", "text/x");
    let made = kit.send(&of_type("[[1]]{{2}}"));
    assert_eq!(made.text(), "1{{2}}");
    for field in ["Etag", "Last-Modified", "Accept-Ranges"] {
        assert_eq!(made.values(field).count(), 0, "{field}");
    }
    let head = kit.send(&Request::new("HEAD", "/").field("T", "[[1]]").field("Type", "text/x"));
    assert_eq!((head.status, head.values("Etag").count()), (200, 0));
    assert_eq!(head.length, None, "RFC 9110 §8.6: it would be that of the template");
    // Fields of the response, which the template also reads afterwards.
    let fields = "[[.RespHeader.Set \"x-a\" \"1\"]][[.RespHeader.Add \"X-A\" \"2\"]][[.RespHeader.Del \"X-B\"]][[.RespHeader.Values \"X-A\"]]";
    let made = kit.send(&of_type(fields));
    assert_eq!((made.text(), made.values("X-A").collect::<Vec<_>>()), ("[1 2]", vec!["1", "2"]));
    // A client's text in a field cannot add a line.
    let forged = kit.send(&of_type("[[.RespHeader.Set \"X\" \"a\\r\\nY: b\"]]"));
    assert_eq!((forged.status, forged.values("Y").count()), (500, 0));
}

// Caddy: a template that fails keeps its changes of the response's fields, except for those that describe content.
#[test]
fn failures_keep_changed_fields() {
    let mut kit = kit(json!({}));
    for (end, status) in [("{{httpError 401}}", 401), ("{{.Nothing}}", 500)] {
        let set = "{{.RespHeader.Set \"X-A\" \"1\"}}{{.RespHeader.Set \"Content-Range\" \"x\"}}";
        let response = kit.send(&request(&format!("{set}{end}")));
        assert_eq!((response.status, response.field("X-A")), (status, Some("1")), "{end}");
        assert_eq!(response.field("Content-Range"), None, "{end}");
    }
}

// The executions of one response have the same current time and the same random values, so that a URI made of them is
// new only once.
#[test]
fn repeated_executions_are_equal() {
    let page = |body: &str| json!({ "handler": "static_response", "body": body, "headers": { "Content-Type": ["text/html"] } });
    let made = "{{uuidv4}}{{randAlpha 9}}{{randInt 0 999999}}{{now.UnixMilli}}{{shuffle \"abcdefgh\"}}{{bcrypt \"a\" | b64enc}}";
    let body = format!(
        "{{{{$q := printf \"/part?%s\" (list {} | join \"\")}}}}{{{{httpInclude $q}}}}|{{{{$q}}}}",
        made.replace("}}{{", ") (").replace("{{", "(").replace("}}", ")")
    );
    let routes = json!([
        { "match": [{ "path": ["/part"] }], "handle": [page("/part?{http.request.uri.query}")], "terminal": true },
        { "handle": [{ "handler": "templates" }, page(&body)] },
    ]);
    let mut kit = Kit::new(&registry(), &routes);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let answer = kit.send(&Request::get("/main"));
        let (included, made) = answer.text().split_once('|').expect("both");
        assert_eq!((answer.status, included), (200, made));
        assert!(seen.insert(made.to_owned()), "another response has other values");
    }
}

// Caddy: `RequestURI` is that of the rewritten request; `placeholder` sees the response's fields as they are by now.
#[test]
fn values_that_change() {
    let page = |body: &str| json!({ "handler": "static_response", "body": body, "headers": { "Content-Type": ["text/html"] } });
    let body = "{{.Req.RequestURI}} {{.OriginalReq.RequestURI}} {{.RespHeader.Set \"X-A\" \"1\"}}\
                {{.RespHeader.Add \"X-A\" \"2\"}}{{ph \"http.response.header.x-a\"}}{{.RespHeader.Del \"x-a\"}}\
                [{{ph \"http.response.header.X-A\"}}] {{ph \"http.response.header.Content-Type\"}}";
    let rewrite = json!({ "handler": "rewrite", "uri": "/b?c" });
    let mut kit = Kit::new(&registry(), &json!([{ "handle": [rewrite, { "handler": "templates" }, page(body)] }]));
    assert_eq!(kit.send(&Request::get("/a?b=c")).text(), "/b?c /a?b=c 1,2[] text/html");
}

// The source of a template is executed as a whole: not encoded, and not in part. Other types are sent as without
// templates.
#[test]
fn files_are_executed_as_a_whole() {
    let site = Site::new("whole", &[]);
    let template = format!("{{{{1}}}}{}", "text ".repeat(400));
    for file in ["a.html", "a.css"] {
        std::fs::write(site.path().join(file), &template).unwrap();
        std::fs::write(site.path().join(format!("{file}.br")), "{{2}} encoded").unwrap();
    }
    let files = json!({ "handler": "file_server", "root": site.path(), "precompressed": { "br": {} }, "precompress": ["gzip"] });
    let encode = json!({ "handler": "encode", "encodings": { "zstd": {} } });
    let handlers = [
        json!([{ "handler": "templates" }, files]),
        json!([{ "handler": "templates" }, { "handler": "encode", "encodings": { "br": {}, "gzip": {} } }, files]),
        json!([{ "handler": "templates" }, { "handler": "cache" }, files]),
        json!([encode, { "handler": "templates" }, { "handler": "subroute", "routes": [{ "handle": [files] }] }]),
    ];
    let executed = template.replace("{{1}}", "1");
    for handlers in handlers {
        let mut kit = Kit::new(&registry(), &json!([{ "handle": handlers }]));
        let mut send = |path: &str, accept: &str, range: Option<&str>| {
            let request = Request::get(path).field("Accept-Encoding", accept);
            let answer = kit.send(&range.map_or(request.clone(), |range| request.field("Range", range)));
            // A variant is made after the first request for it.
            kit.worker().drive_spawned();
            answer
        };
        for (accept, range) in [("br", None), ("gzip", None), ("gzip", None), ("br", Some("bytes=0-3"))] {
            let answer = send("/a.html", accept, range);
            assert_eq!((answer.status, answer.text()), (200, &*executed), "{accept} {handlers}");
            assert_eq!(answer.field("Content-Encoding"), None, "{accept} {handlers}");
        }
        assert_eq!(send("/a.css", "br", None).text(), "{{2}} encoded", "{handlers}");
        let part = send("/a.css", "identity", Some("bytes=0-3"));
        assert_eq!((part.status, part.text()), (206, "{{1}"), "{handlers}");
    }
}

// The encoded content of an upstream is no text, so it is sent as it is. `identity` is no coding.
#[test]
fn encoded_responses_are_not_executed() {
    for (coding, want) in [("x", "{{1}}"), ("identity, x", "{{1}}"), ("identity", "1"), ("Identity", "1"), ("", "1")] {
        let fields = json!({ "Content-Type": ["text/html"], "Content-Encoding": [coding] });
        let page = json!({ "handler": "static_response", "body": "{{1}}", "headers": fields });
        let mut kit = Kit::new(&registry(), &json!([{ "handle": [{ "handler": "templates" }, page] }]));
        assert_eq!(kit.send(&Request::get("/")).text(), want, "{coding}");
    }
}

// Caddy: a template that fails is an error with the status 500, or with that of httpError; its output is not sent.
#[test]
fn failures() {
    let mut kit = kit(json!({}));
    for (template, status) in [
        ("written{{httpError 404}}", 404),
        ("{{httpError 99}}", 500),
        ("{{none}}", 500),
        ("{{", 500),
        ("{{.Nothing}}", 500),
        ("{{include \"/none\"}}", 500),
        ("{{readFile \"/dev/null\"}}", 500),
        ("{{splitFrontMatter \"---\\na: 1\"}}", 500),
        ("{{splitFrontMatter \"---\\na: [\\n---\\n\"}}", 500),
        ("{{range 1000000000}}x{{end}}", 500),
        ("{{define \"r\"}}{{template \"r\"}}{{end}}{{template \"r\"}}", 500),
        ("{{humanize \"time:2006\" \"May\"}}", 500),
        ("{{genCA \"name\" 365}}", 500),
        ("{{unixEpoch 5}}", 500),
    ] {
        let response = kit.send(&request(template));
        assert_eq!((response.status, response.text()), (status, &*format!("failed: {status}")), "{template}");
        assert_eq!(response.values("Etag").count(), 0);
    }
}

// Caddy: the message of `httpError` is the text of its status. With the template's name, which is the path, a page for
// errors that is a template itself would execute the client's text.
#[test]
fn a_status_has_no_text_of_the_client() {
    let page = |body: &str| json!({ "handler": "static_response", "body": body, "headers": { "Content-Type": ["text/html"] } });
    let templates = json!({ "handler": "templates" });
    let routes = json!([{ "handle": [templates, page("{{httpError 404}}")] }]);
    let errors = json!([{ "handle": [templates, page("{http.error.status_code} {http.error.message}")] }]);
    let mut kit = Kit::with_errors(&registry(), &routes, &errors);
    let answer = kit.send(&Request::get("/%7B%7Bprint%201%7D%7D"));
    assert_eq!((answer.status, answer.text()), (404, "404 Not Found"));
}

// The executions that placeholders cause have the steps of one execution.
#[test]
fn steps_of_all_executions() {
    let mut kit = kit(json!({}));
    // Each round uses a million steps.
    let template = |rounds: u32| {
        format!(
            "{{{{$s := repeat 1000000 \"a\"}}}}{{{{range {rounds}}}}}{{{{$_ := splitList \"{}\" $s}}}}{{{{end}}}}\
             {{{{ph \"http.request.method\"}}}}",
            "b".repeat(16)
        )
    };
    check(&mut kit, &template(4), "GET");
    assert_eq!(kit.send(&request(&template(6))).status, 500);
    check(&mut kit, &template(6).replace("ph ", "print "), "http.request.method");
}

// Caddy: files are those below the root. http.Dir: a name with `..` does not lead out of it.
#[test]
fn files() {
    let site = Site::new(
        "files",
        &[
            ("args.html", "{{.Args}} {{index .Args 1}} {{.Req.Method}}"),
            ("define.html", "{{define \"twice\"}}{{.}}{{.}}{{end}}"),
            ("self.html", "{{include \"self.html\"}}"),
            ("plain.txt", "{{not a template}}"),
        ],
    );
    let root = site.path().join("sub");
    std::fs::write(root.join("inner.txt"), "inner").unwrap();
    let mut outer = kit(json!({ "file_root": site.path() }));
    check(&mut outer, "{{include \"/args.html\" \"a\" 2}}", "[a 2] 2 GET");
    check(&mut outer, "{{import \"define.html\"}}{{template \"twice\" \"x\"}}", "xx");
    check(&mut outer, "{{readFile \"plain.txt\"}}", "{{not a template}}");
    check(
        &mut outer,
        "{{listFiles \"/\"}} {{fileExists \"sub\"}} {{fileExists \"none\"}}",
        "[args.html define.html plain.txt self.html sub] true false",
    );
    check(&mut outer, "{{with fileStat \"plain.txt\"}}{{.Name}} {{.Size}} {{.IsDir}}{{end}}", "plain.txt 18 false");
    let plain = std::fs::File::options().write(true).open(site.path().join("plain.txt")).unwrap();
    plain.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(86_400)).unwrap();
    check(&mut outer, "{{with (fileStat \"plain.txt\").ModTime}}{{.Unix}} {{typeOf .}}{{end}}", "86400 time.Time");
    // A file that includes itself ends within the bounds.
    assert_eq!(outer.send(&request("{{include \"self.html\"}}")).status, 500);
    let mut inner = kit(json!({ "file_root": root }));
    check(
        &mut inner,
        "{{readFile \"../inner.txt\"}} {{fileExists \"../plain.txt\"}} {{fileExists \"/../../plain.txt\"}}",
        "inner false false",
    );
}

// docs/templates.md: Sprig's other functions are there, and the message about one that is not names that page.
#[test]
fn functions_that_are_left_out() {
    let fails = json!({ "handler": "static_response", "body": "{http.error.message}" });
    for function in ["genPrivateKey", "genCA", "encryptAES", "derivePassword", "getHostByName", "expandenv"] {
        let body = format!("{{{{{function} \"x\"}}}}");
        let page = json!({ "handler": "static_response", "body": body, "headers": { "Content-Type": ["text/html"] } });
        let routes = json!([{ "handle": [{ "handler": "templates" }, page] }]);
        let mut kit = Kit::with_errors(&registry(), &routes, &json!([{ "handle": [fails] }]));
        let answer = kit.send(&Request::get("/"));
        let want = format!("function \"{function}\" is not in this server: see docs/templates.md");
        assert!(answer.status == 500 && answer.text().contains(&want), "{}", answer.text());
    }
}

// A mistake in the configuration has its place.
#[test]
fn mistakes() {
    for (options, want) in [
        (json!({ "delimiters": ["{{"] }), "delimiters: found '{{', expected two delimiters"),
        (json!({ "match": {} }), "unknown field `match`"),
    ] {
        let mut templates = options;
        templates["handler"] = "templates".into();
        let error =
            Kit::build(&registry(), &json!([{ "handle": [templates] }]), &Value::Null).err().unwrap().to_string();
        assert!(error.contains(want), "{error}");
    }
}

// Caddy, `extractFrontMatter`: YAML that is wrong is an error. Its message is for the author of the page, in one line.
#[test]
fn wrong_front_matter() {
    let fails = json!({ "handler": "static_response", "body": "{http.error.message}" });
    let page = json!({
        "handler": "static_response", "body": "{{splitFrontMatter \"---\\na: 1\\na: 2\\n---\\n\"}}",
        "headers": { "Content-Type": ["text/html"] },
    });
    let routes = json!([{ "handle": [{ "handler": "templates" }, page] }]);
    let mut kit = Kit::with_errors(&registry(), &routes, &json!([{ "handle": [fails] }]));
    let answer = kit.send(&Request::get("/"));
    let text = answer.text();
    assert!(text.ends_with("yaml: duplicate mapping key `a` is not allowed here at line 3, column 1"), "{text}");
}

// YAML that is nested more deeply than any front matter does not end the server, also without optimization.
#[test]
fn deep_front_matter() {
    let mut kit = kit(json!({}));
    for (depth, status) in [(30, 200), (33, 500), (64, 500), (100_000, 500)] {
        let list = format!("(repeat {depth} \"[\") (repeat {depth} \"]\")");
        let template = format!("{{{{$d := splitFrontMatter (printf \"---\\na: %s%s\\n---\\n\" {list})}}}}");
        assert_eq!(kit.send(&request(&template)).status, status, "{depth}");
    }
}

// Caddy: an empty `Caddy-Templates-Include` counts as none. A negative one allows no more levels than none.
#[test]
fn depth_of_included_responses() {
    let page = |body: &str| json!({ "handler": "static_response", "body": body, "headers": { "Content-Type": ["text/html"] } });
    let templates = json!({ "handler": "templates" });
    let routes = json!([
        { "match": [{ "path": ["/part"] }], "handle": [page("[{http.request.header.Caddy-Templates-Include}]")], "terminal": true },
        { "match": [{ "path": ["/self"] }], "handle": [templates, page("{{httpInclude \"/self\"}}")], "terminal": true },
        { "handle": [templates, page("{{httpInclude \"/part\"}}")] },
    ]);
    let mut kit = Kit::new(&registry(), &routes);
    for (field, path, status, want) in [
        ("", "/", 200, "[1]"),
        ("-5", "/", 200, "[1]"),
        ("2", "/", 200, "[3]"),
        ("3", "/", 500, ""),
        ("x", "/", 500, ""),
        ("-1000000", "/self", 500, ""),
    ] {
        let answer = kit.send(&Request::get(path).field("Caddy-Templates-Include", field));
        assert_eq!((answer.status, answer.text()), (status, want), "{field:?}");
    }
}

// Caddy's documentation, templates, httpInclude: the response of the same server to another request, executed as a
// template.
#[test]
fn responses_of_the_same_server() {
    let page = |body: &str| json!({ "handler": "static_response", "body": body, "headers": { "Content-Type": ["text/html"] } });
    let route =
        |path: &str, handlers: Value| json!({ "match": [{ "path": [path] }], "handle": handlers, "terminal": true });
    let templates = json!({ "handler": "templates" });
    let seen = "{http.request.method} {http.request.uri.query} {http.request.header.Accept-Encoding} \
                {http.request.header.Range} {http.request.header.X-Client} {http.request.header.Content-Length}";
    let routes = json!([
        route("/main", json!([templates, page("<{{httpInclude \"/part?a=b\"}}{{httpInclude \"/part?a=b\"}}>")])),
        route("/part", json!([page(&format!("[{seen} {{{{.Req.URL.Path}}}}]"))])),
        route("/nested", json!([templates, page("1{{httpInclude \"/inner\"}}")])),
        route("/inner", json!([templates, page("2{{httpInclude \"/plain\"}}")])),
        route("/plain", json!([page("3")])),
        route("/self", json!([templates, page("{{httpInclude \"/self\"}}")])),
        route("/missing", json!([templates, page("{{httpInclude \"/none\"}}")])),
        route("/outside", json!([templates, page("{{httpInclude \"http://example.com/\"}}")])),
        route("/space", json!([templates, page("{{httpInclude \"/a b\"}}")])),
        route("/none", json!([{ "handler": "error", "status_code": 404 }])),
    ]);
    let fails = json!({ "handler": "static_response", "body": "failed: {http.error.message}" });
    let mut kit = Kit::with_errors(&registry(), &routes, &json!([{ "handle": [fails] }]));
    let mut get = |path: &str| {
        let request =
            Request::get(path).field("Range", "bytes=0-0").field("X-Client", "c").field("Accept-Encoding", "gzip");
        kit.send(&request)
    };
    let part = "[GET a=b identity  c  /main]";
    assert_eq!(get("/main").text(), format!("<{part}{part}>"));
    assert_eq!(get("/nested").text(), "123");
    for (path, want) in [
        ("/self", "http 500"),
        ("/missing", "http 404"),
        ("/outside", "expected the path of a resource"),
        ("/space", "expected the path of a resource"),
    ] {
        let answer = get(path);
        assert!(answer.status == 500 && answer.text().contains(want), "{path}: {}", answer.text());
    }
}

// Most of the memory is the parser's tree: of a document of many small paragraphs, far more than of plain text.
#[test]
fn memory_of_markdown_is_bounded() {
    let mut kit = kit(json!({}));
    for (template, want) in [
        ("{{markdown (repeat 300000 \"a\\n\\n\")}}", 500),
        ("{{markdown (repeat 300 \"a\\n\\n\")}}", 200),
        ("{{markdown (repeat 200000 \"plain \")}}", 200),
    ] {
        assert_eq!(kit.send(&request(template)).status, want, "{template}");
    }
}
