//! php-fpm, the FastCGI server of PHP.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use causeway_testkit::ports::free_port;
use rustix::process::{Pid, Signal, getuid, kill_process};

use crate::client::{connect, get, send, send_body};
use crate::process::{Directory, ServerProcess};

const TIMEOUT: Duration = Duration::from_secs(20);

/// A running php-fpm with its pool `www`; killed when dropped.
struct PhpFpm {
    program: PathBuf,
    child: Option<Child>,
    directory: Directory,
    /// Of the socket. Not in the test's directory, whose path may be longer than a socket's.
    socket: PathBuf,
}

/// How the pool listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listen {
    Unix,
    Tcp(u16),
}

impl PhpFpm {
    /// Starts php-fpm with one script for each test. `None` without PHP, and prints that the test is skipped.
    fn start(listen: Listen) -> Option<Self> {
        let Some(program) = installed() else {
            assert!(std::env::var_os("INTEROP_TOOLS").is_none(), "there is no php-fpm (Debian: php-fpm)");
            eprintln!("skipped: there is no php-fpm (Debian: php-fpm)");
            return None;
        };
        let directory = Directory::new();
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let socket = std::env::temp_dir().join(format!("causeway-php-{}-{number}.sock", std::process::id()));
        let at = directory.path("").display().to_string();
        let address = match listen {
            Listen::Unix => socket.display().to_string(),
            Listen::Tcp(port) => format!("127.0.0.1:{port}"),
        };
        // Root must name the workers' user; anyone else may not. Root, because the test's directory may be closed to
        // others.
        let user = if getuid().is_root() { "user = root\ngroup = root\n" } else { "" };
        directory.write(
            "fpm.conf",
            format!(
                "[global]\nerror_log = {at}/fpm.log\ndaemonize = no\n[www]\nlisten = {address}\nlisten.mode = 0666\n{user}\
                 pm = static\npm.max_children = 4\nclear_env = yes\ncatch_workers_output = yes\n\
                 php_admin_flag[log_errors] = on\nphp_admin_value[upload_max_filesize] = 64M\n\
                 php_admin_value[post_max_size] = 64M\n"
            ),
        );
        for (name, text) in SCRIPTS {
            directory.write(&format!("www/{name}"), text);
        }
        let mut fpm = Self { program, child: None, directory, socket };
        fpm.run();
        Some(fpm)
    }

    /// Runs php-fpm until [`stop`](Self::stop).
    fn run(&mut self) {
        let log = File::create(self.directory.path("out.log")).unwrap();
        let mut command = Command::new(&self.program);
        command.args(["--nodaemonize", "--allow-to-run-as-root", "--fpm-config"]).arg(self.directory.path("fpm.conf"));
        self.child = Some(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        let begun = Instant::now();
        while !std::fs::read_to_string(self.directory.path("fpm.log")).is_ok_and(|log| log.contains("ready to handle"))
        {
            let out = std::fs::read_to_string(self.directory.path("out.log")).unwrap();
            assert!(begun.elapsed() < TIMEOUT, "php-fpm is not ready: {out}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Not killed: its processes would go on.
            let _ = kill_process(Pid::from_child(&child), Signal::TERM);
            let _ = child.wait();
        }
        let _ = std::fs::remove_file(self.directory.path("fpm.log"));
    }

    /// Starts a server with this site; `SOCKET` and `ROOT` stand for the pool's socket and the scripts' directory.
    #[track_caller]
    fn serve(&self, site: &str) -> ServerProcess {
        let site = site.replace("SOCKET", &format!("unix/{}", self.socket.display()));
        let site = site.replace("ROOT", &self.directory.path("www").display().to_string());
        self.directory.write("Caddyfile", site);
        self.directory.start(&["run"])
    }
}

impl Drop for PhpFpm {
    fn drop(&mut self) {
        self.stop();
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Debian's programs have PHP's version in their names.
fn installed() -> Option<PathBuf> {
    let is_fpm = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("php-fpm"));
    ["/usr/sbin", "/usr/local/sbin"].iter().find_map(|directory| {
        let entries = std::fs::read_dir(directory).ok()?;
        entries.flatten().map(|entry| entry.path()).find(|path| is_fpm(path))
    })
}

const SCRIPTS: &[(&str, &str)] = &[
    ("hello.php", "<?php header('X-Php: 1'); echo 'Hello, ', $_GET['name'] ?? 'world', \"\\n\";"),
    // A front controller such as WordPress's: every path without a file ends here.
    (
        "index.php",
        "<?php foreach (['REQUEST_URI', 'SCRIPT_NAME', 'SCRIPT_FILENAME', 'PATH_INFO', 'DOCUMENT_ROOT', 'QUERY_STRING', \
         'SERVER_NAME', 'SERVER_PORT', 'HTTPS', 'REMOTE_ADDR', 'REQUEST_METHOD', 'PHP_SELF', 'HTTP_PROXY', 'APP'] as $name) \
         { echo $name, '=', $_SERVER[$name] ?? '-', \"\\n\"; }",
    ),
    ("blog/index.php", "<?php echo 'blog ', $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['PATH_INFO'] ?? '-', \"\\n\";"),
    ("static.txt", "a file\n"),
    (
        "upload.php",
        "<?php $in = file_get_contents('php://input'); echo strlen($in), ' ', md5($in), ' ', $_SERVER['CONTENT_LENGTH'], \"\\n\";",
    ),
    (
        "form.php",
        "<?php echo $_POST['a'] ?? '-', ' ', $_FILES['f']['size'] ?? '-', ' ', md5_file($_FILES['f']['tmp_name'] ?? '/dev/null'), \"\\n\";",
    ),
    ("large.php", "<?php for ($i = 0; $i < 512; $i++) { echo str_repeat(chr(65 + $i % 26), 8192); }"),
    ("slow.php", "<?php sleep(30);"),
    ("stream.php", "<?php foreach ([1, 2, 3] as $i) { echo \"$i\\n\"; @ob_flush(); flush(); usleep(300000); } "),
    ("error.php", "<?php error_log('the disk is full'); http_response_code(500); echo \"failed\\n\";"),
    ("warning.php", "<?php error_log('a small thing'); echo \"fine\\n\";"),
    ("status.php", "<?php http_response_code(404); header('X-A: 1'); header('X-A: 2', false); echo \"gone\\n\";"),
    ("redirect.php", "<?php header('Location: /hello.php');"),
    ("nothing.php", "<?php http_response_code(204);"),
    ("length.php", "<?php header('Content-Length: 5'); echo 'hello';"),
    ("chunks.php", "<?php header('Transfer-Encoding: chunked'); echo \"5\\r\\nhello\\r\\n0\\r\\n\\r\\n\";"),
    (
        "cookies.php",
        "<?php for ($i = 0; $i < 40; $i++) { header('X-Large: ' . str_repeat('x', 500), false); } echo 'many';",
    ),
    ("fatal.php", "<?php nothing();"),
    ("early.php", "<?php http_response_code(413); echo \"too much\\n\";"),
];

const SITE: &str = "{
	admin off
}
:0 {
	root ROOT
	php_fastcgi SOCKET {
		env APP {http.request.host}
	}
	file_server
}
";

#[test]
fn scripts() {
    let Some(fpm) = PhpFpm::start(Listen::Unix) else { return };
    let server = fpm.serve(SITE);
    let port = server.port();
    let hello = get(port, "/hello.php?name=PHP");
    assert_eq!((hello.status, &*hello.body, hello.field("X-Php").as_deref()), (200, "Hello, PHP\n", Some("1")));
    assert!(hello.field("Content-Type").unwrap().starts_with("text/html"));
    for (path, status, body) in [
        ("/status.php", 404, "gone\n"),
        ("/redirect.php", 302, ""),
        ("/nothing.php", 204, ""),
        ("/length.php", 200, "hello"),
        ("/chunks.php", 200, "hello"),
        // A head of 20 KB, which PHP sends in several records.
        ("/cookies.php", 200, "many"),
    ] {
        let found = get(port, path);
        assert_eq!((found.status, &*found.body), (status, body), "{path}");
    }
    assert_eq!(get(port, "/status.php").field("X-A").as_deref(), Some("1, 2"));
    assert_eq!(get(port, "/redirect.php").field("Location").as_deref(), Some("/hello.php"));
    let large = get(port, "/large.php").body;
    assert!(large.len() == 512 * 8192 && large.starts_with("AAAA"), "{}", large.len());
    let head = send(port, "HEAD /hello.php", &["Host: localhost"]);
    assert_eq!((head.status, &*head.body), (200, ""));
    // Content arrives while the script runs.
    let mut stream = connect(port);
    stream.write_all(b"GET /stream.php HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let (begun, mut seen) = (Instant::now(), Vec::new());
    while !seen.ends_with(b"2\r\n1\n\r\n") {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "{}", seen.escape_ascii());
        seen.push(byte[0]);
    }
    assert!(begun.elapsed() < Duration::from_millis(600), "it was sent at once: {:?}", begun.elapsed());
}

// As WordPress is served: files as they are, directories with their slash, everything else by /index.php.
#[test]
fn a_front_controller() {
    let Some(fpm) = PhpFpm::start(Listen::Unix) else { return };
    let server = fpm.serve(SITE);
    let port = server.port();
    let root = fpm.directory.path("www").display().to_string();
    let page = send(port, "GET /2026/11/a%20post/?preview=1", &["Host: blog.test", "Proxy: http://evil.test"]).body;
    for line in [
        "REQUEST_URI=/2026/11/a%20post/?preview=1",
        "SCRIPT_NAME=/index.php",
        &format!("SCRIPT_FILENAME={root}/index.php"),
        "PATH_INFO=",
        &format!("DOCUMENT_ROOT={root}"),
        "QUERY_STRING=preview=1",
        "SERVER_NAME=blog.test",
        "SERVER_PORT=80",
        "HTTPS=-",
        "REMOTE_ADDR=127.0.0.1",
        "REQUEST_METHOD=GET",
        "PHP_SELF=/index.php",
        "HTTP_PROXY=-",
        "APP=blog.test",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is not in {page}");
    }
    assert_eq!(get(port, "/static.txt").body, "a file\n");
    assert_eq!(get(port, "/blog/").body, "blog /blog/index.php \n");
    let directory = get(port, "/blog?a=b");
    assert_eq!((directory.status, directory.field("Location").as_deref()), (308, Some("./blog/?a=b")));
    assert_eq!(get(port, "/blog/index.php/a/b").body, "blog /blog/index.php /a/b\n");
    // A file that is no script is never run.
    assert_eq!(get(port, "/static.txt/x.php").status, 200);
    assert!(get(port, "/static.txt/x.php").body.contains("SCRIPT_NAME=/index.php\n"));
}

#[test]
fn uploads() {
    let Some(fpm) = PhpFpm::start(Listen::Unix) else { return };
    let server = fpm.serve(SITE);
    let port = server.port();
    let content = "0123456789abcdef".repeat(512 * 1024);
    let found = send_body(port, "POST /upload.php", &["Host: localhost", "Content-Type: text/plain"], &content).body;
    let md5 = md5_of(&fpm, &content);
    assert_eq!(found, format!("{} {md5} {0}\n", content.len()));
    let boundary = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\none\r\n--b\r\nContent-Disposition: form-data; \
                    name=\"f\"; filename=\"f.txt\"\r\n\r\n";
    let form = format!("{boundary}{content}\r\n--b--\r\n");
    let fields = ["Host: localhost", "Content-Type: multipart/form-data; boundary=b"];
    assert_eq!(send_body(port, "POST /form.php", &fields, &form).body, format!("one {} {md5}\n", content.len()));
    assert_eq!(send_body(port, "POST /form.php", &["Host: localhost"], "a=two").body.split(' ').next(), Some("two"));
    // A chunked request, whose length php-fpm has to know first.
    let chunked = |parts: &[&str]| {
        let mut stream = connect(port);
        let head =
            "POST /upload.php HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        for part in parts {
            // The server may have responded.
            let _ = stream.write_all(format!("{:x}\r\n{part}\r\n", part.len()).as_bytes());
        }
        let _ = stream.write_all(b"0\r\n\r\n");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    let answer = chunked(&["hello, ", "world"]);
    assert!(answer.contains(&format!("12 {} 12\n", md5_of(&fpm, "hello, world"))), "{answer}");
    let most = "x".repeat(16 * 1024);
    assert!(chunked(&[&*most; 4]).contains(&format!("65536 {} 65536\n", md5_of(&fpm, &most.repeat(4)))));
    let answer = chunked(&[&*most; 8]);
    assert!(answer.starts_with("HTTP/1.1 411 "), "{answer}");
    // A script that responds without reading.
    let found = send_body(port, "POST /early.php", &["Host: localhost"], &"x".repeat(100_000));
    assert_eq!((found.status, &*found.body), (413, "too much\n"));
}

/// Returns the MD5 sum in hexadecimal digits.
fn md5_of(fpm: &PhpFpm, content: &str) -> String {
    let path = fpm.directory.path("content");
    std::fs::write(&path, content).unwrap();
    let output = Command::new("md5sum").arg(path).output().expect("md5sum, of coreutils");
    String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned()
}

#[test]
fn failures() {
    let Some(mut fpm) = PhpFpm::start(Listen::Unix) else { return };
    let site = SITE.replace("env APP", "read_timeout 300ms\n\t\tenv APP");
    let mut server = fpm.serve(&site);
    let port = server.port();
    assert_eq!(get(port, "/slow.php").status, 504);
    let line = server.line_with("did not respond in time");
    assert!(line.contains(&format!("unix/{}", fpm.socket.display())), "{line}");

    // Text on STDERR is logged, once a second at most.
    assert_eq!(get(port, "/warning.php").body, "fine\n");
    let line = server.line_with("wrote to its stderr");
    assert!(line.contains(r#""level":"warn""#) && line.contains("PHP message: a small thing"), "{line}");
    let failed = get(port, "/fatal.php");
    assert_eq!(failed.status, 500);

    // php-fpm's own answer for a script that is not there. With index.php, only a request by another rule reaches it.
    let bare = fpm.serve("{\n\tadmin off\n}\n:0 {\n\troot ROOT\n\treverse_proxy SOCKET {\n\t\ttransport fastcgi {\n\t\t\tsplit .php\n\t\t}\n\t}\n}\n");
    let missing = get(bare.port(), "/missing.php");
    assert_eq!((missing.status, &*missing.body), (404, "File not found.\n"));
    assert_eq!(get(bare.port(), "/hello.php/x").body, "Hello, world\n");
    assert_eq!(get(bare.port(), "/static.txt%00.php").status, 400);

    fpm.stop();
    assert_eq!(get(port, "/hello.php").status, 502);
    let line = server.line_with("an upstream cannot be reached");
    assert!(line.contains("connecting: "), "{line}");
    fpm.run();
    assert_eq!(get(port, "/hello.php").body, "Hello, world\n");
    assert!(UnixStream::connect(&fpm.socket).is_ok());
}

// `capture_stderr`: every text is logged, as an error if the response is one.
#[test]
fn captured_errors() {
    let Some(fpm) = PhpFpm::start(Listen::Unix) else { return };
    let mut server = fpm.serve(&SITE.replace("env APP", "capture_stderr\n\t\tenv APP"));
    let port = server.port();
    for _ in 0..2 {
        get(port, "/warning.php");
        assert_eq!(get(port, "/error.php").status, 500);
    }
    for _ in 0..2 {
        let line = server.line_with("wrote to its stderr");
        assert!(line.contains(r#""level":"warn""#) && line.contains("a small thing"), "{line}");
        let line = server.line_with("wrote to its stderr");
        assert!(line.contains(r#""level":"error""#) && line.contains("the disk is full"), "{line}");
    }
}

// Over TCP, from many clients at once: four processes, no kept connections.
#[test]
fn concurrent_requests_over_tcp() {
    let port = free_port();
    let Some(fpm) = PhpFpm::start(Listen::Tcp(port)) else { return };
    let server = fpm.serve(&SITE.replace("SOCKET", &format!("127.0.0.1:{port}")));
    let to = server.port();
    let clients: Vec<_> = (0..8)
        .map(|client| {
            std::thread::spawn(move || {
                for number in 0..50 {
                    let found = get(to, &format!("/hello.php?name={client}-{number}"));
                    assert_eq!((found.status, found.body), (200, format!("Hello, {client}-{number}\n")));
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
}
