//! The servers measured over HTTP/2, each configured to send twelve fields and a body, with or without TLS.

use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::machine;
use crate::peers::{self, EMBEDDED, Keys, LIMIT, Launch, PeerBody, PeerScope, Recipe, Tool, Want};
use crate::request::HOST;
use crate::server::free_port;
use crate::workshop::{self, Workshop};

/// All servers, in the order of the tables.
pub const RECIPES: &[Recipe] = &[
    Recipe {
        obtain: |shop| peers::ours(shop, "h2_limit", "of this commit"),
        launch: |_, tool, want| Ok(program(tool, want, &[])),
        ..recipe(LIMIT, "our bare epoll loop: walks frames, reads no fields, canned responses")
    },
    Recipe {
        obtain: |shop| peers::ours(shop, "h2_limit", "of this commit"),
        launch: |_, tool, want| Ok(program(tool, want, &["indexed"])),
        ..recipe("indexed", "limit, with the response's fields as indices of the peer's table")
    },
    Recipe {
        obtain: |shop| Ok(Tool { program: shop.causeway("dist")?, version: "of this commit".to_owned() }),
        launch: |shop, tool, want| launch_caddyfile(shop, tool, want, "causeway"),
        ..recipe("causeway", "the server under test, `respond` in a Caddyfile")
    },
    Recipe {
        obtain: |shop| peers::ours(shop, "engine_http2", "of this commit"),
        launch: |_, tool, want| {
            let mut launch = program(tool, want, &[]);
            launch.command.insert(2, free_port()?.to_string().into());
            Ok(launch)
        },
        ..recipe(EMBEDDED, "Causeway's engine in a program")
    },
    Recipe {
        obtain: |shop| packaged(shop, "h2o", "h2o", "--version"),
        launch: launch_h2o,
        ..recipe("h2o", "h2o, a file")
    },
    Recipe {
        obtain: |shop| packaged(shop, "nghttpd", "nghttp2-server", "--version"),
        launch: launch_nghttpd,
        ..recipe("nghttpd", "nghttp2's server, a file; seven fields only")
    },
    Recipe {
        obtain: |shop| packaged(shop, "nginx", "nginx-light", "-v"),
        launch: launch_nginx,
        ..recipe("nginx", "nginx, `return 200` or a file")
    },
    Recipe {
        obtain: |shop| peers::ours(shop, "hyper_http2", "hyper"),
        launch: |_, tool, want| Ok(program(tool, want, &[])),
        ..recipe("hyper", "hyper 1.x over tokio, one thread")
    },
    Recipe {
        obtain: |shop| packaged(shop, "haproxy", "haproxy", "-v"),
        launch: launch_haproxy,
        ..recipe("haproxy", "HAProxy, `http-request return`")
    },
    Recipe {
        obtain: |shop| obtain_go(shop, "hello"),
        launch: |_, tool, want| {
            let mut launch = program(tool, want, &[]);
            launch.environment.push(("GOMAXPROCS".to_owned(), want.workers.to_string().into()));
            Ok(launch)
        },
        ..recipe("go", "Go's net/http")
    },
    Recipe {
        obtain: peers::obtain_caddy,
        launch: |shop, tool, want| launch_caddyfile(shop, tool, want, "caddy"),
        ..recipe("caddy", "Caddy, `respond`")
    },
];

/// The servers measured over TLS too.
pub const OVER_TLS: [&str; 7] = ["causeway", EMBEDDED, "h2o", "nginx", "nghttpd", "go", "caddy"];

/// Default values of the recipes here.
const fn recipe(name: &'static str, about: &'static str) -> Recipe {
    Recipe {
        name,
        about,
        part: PeerScope::Whole,
        workers_max: 1,
        worker_threads: None,
        obtain: |_| bail!("obtain is not set"),
        launch: |_, _, _| bail!("launch is not set"),
    }
}

/// Returns the recipe of that name.
pub fn recipe_of(name: &str) -> Result<&'static Recipe> {
    RECIPES.iter().find(|recipe| recipe.name == name).with_context(|| format!("unknown server {name:?}"))
}

/// Returns the list of servers for the help.
pub fn help() -> String {
    let lines = RECIPES.iter().map(|recipe| format!("  {:<10}{}\n", recipe.name, recipe.about));
    format!("Servers:\n{}", lines.collect::<String>())
}

fn packaged(shop: &Workshop, program: &str, package: &str, version: &str) -> Result<Tool> {
    let program = shop.packaged(program, package)?;
    Ok(Tool { version: workshop::version(&program, version), program })
}

/// Builds a program of `peers/go-http2`.
pub fn obtain_go(shop: &Workshop, name: &str) -> Result<Tool> {
    let go = shop.packaged("go", "golang-go")?;
    let directory = shop.bench.join("peers/go-http2").join(name);
    let sources = [directory.join("main.go"), directory.join("go.mod")];
    let output = format!("go-http2-{name}");
    let mut build = Command::new(&go);
    build.current_dir(&directory).args(["build", "-o"]).arg(shop.tools.join(&output)).arg(".");
    let program = shop.built(&output, &sources, &mut build)?;
    Ok(Tool { program, version: workshop::version(&go, "version") })
}

/// Creates a P-256 key for [`HOST`] and a self-signed certificate, once.
pub fn keys(shop: &Workshop) -> Result<Keys> {
    let directory = shop.scratch.join("keys");
    let file = |name: &str| directory.join(name);
    let keys = Keys { certificate: file("certificate.pem"), key: file("key.pem"), both: file("both.pem") };
    // The file that is written last shows that all are complete.
    if !keys.both.is_file() {
        fs::create_dir_all(&directory)?;
        let openssl = shop.packaged("openssl", "openssl")?;
        let mut make = Command::new(openssl);
        make.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3650"]);
        make.args(["-subj", &format!("/CN={HOST}"), "-addext", &format!("subjectAltName=DNS:{HOST}")]);
        make.arg("-keyout").arg(&keys.key).arg("-out").arg(&keys.certificate);
        machine::output(&mut make).context("making a certificate")?;
        fs::write(&keys.both, fs::read_to_string(&keys.certificate)? + &fs::read_to_string(&keys.key)?)?;
    }
    Ok(keys)
}

/// Returns the launch of `PROGRAM PORT [page] [CERTIFICATE KEY]`.
pub fn program(tool: &Tool, want: &Want, options: &[&str]) -> Launch {
    let mut command = vec![tool.program.clone().into()];
    command.extend(options.iter().map(OsString::from));
    command.push(want.port.to_string().into());
    if want.body == PeerBody::Page {
        command.push("page".into());
    }
    if let Some(keys) = &want.keys {
        command.extend([keys.certificate.clone().into(), keys.key.clone().into()]);
    }
    Launch { command, path: "/".to_owned(), ..Launch::default() }
}

fn launch_caddyfile(shop: &Workshop, tool: &Tool, want: &Want, name: &str) -> Result<Launch> {
    let mut launch = peers::configured(shop, tool, name, &format!("{}.Caddyfile", want.port), &caddyfile(want))?;
    peers::limit_workers(&mut launch, name, want.workers);
    Ok(launch)
}

/// Returns a Caddyfile for both Caddy and Causeway.
fn caddyfile(want: &Want) -> String {
    let (protocols, site, tls) = match &want.keys {
        None => ("h1 h2c", format!("http://:{}", want.port), String::new()),
        Some(keys) => (
            "h1 h2",
            format!("https://{HOST}:{}", want.port),
            format!("\ttls {} {}\n", keys.certificate.display(), keys.key.display()),
        ),
    };
    let mut text = format!(
        "{{\n\tadmin off\n\tauto_https off\n\tpersist_config off\n\tservers {{\n\t\tprotocols {protocols}\n\t}}\n}}\n\
         {site} {{\n\tbind 127.0.0.1\n{tls}\theader {{\n"
    );
    for (name, value) in answer::FIELDS {
        let _ = writeln!(text, "\t\t{name} `{value}`");
    }
    let _ = write!(text, "\t}}\n\trespond `{}`\n}}\n", want.body.text());
    text
}

/// Creates a directory with the body as a file; returns the file's URL path too.
fn served(shop: &Workshop, body: PeerBody) -> Result<(PathBuf, &'static str)> {
    let directory = shop.scratch.join("served");
    fs::create_dir_all(&directory)?;
    let path = match body {
        PeerBody::Hello => "/hello.txt",
        PeerBody::Page => "/page.txt",
    };
    fs::write(directory.join(&path[1..]), body.text())?;
    Ok((directory, path))
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn launch_h2o(shop: &Workshop, tool: &Tool, want: &Want) -> Result<Launch> {
    let (directory, path) = served(shop, want.body)?;
    let mut text = format!("num-threads: {}\nmax-connections: 20000\nhttp2-idle-timeout: 3600\n", want.workers);
    if is_root() {
        // By default h2o gives up root, but the scratch directory may be readable by us only.
        text.push_str("user: root\n");
    }
    let _ = write!(text, "hosts:\n  default:\n    listen:\n      host: 127.0.0.1\n      port: {}\n", want.port);
    if let Some(keys) = &want.keys {
        let (certificate, key) = (keys.certificate.display(), keys.key.display());
        let _ = write!(text, "      ssl:\n        certificate-file: {certificate}\n        key-file: {key}\n");
    }
    let _ = write!(text, "    paths:\n      /:\n        file.dir: {}\n", directory.display());
    for (name, value) in &answer::FIELDS[..answer::FIELDS_OF_FILES] {
        let _ = writeln!(text, "    header.set: \"{name}: {value}\"");
    }
    let file = shop.scratch.join(format!("h2o-{}.yaml", want.port));
    fs::write(&file, text)?;
    let command = vec![tool.program.clone().into(), "-m".into(), "worker".into(), "-c".into(), file.into()];
    Ok(Launch { command, path: path.to_owned(), ..Launch::default() })
}

fn launch_nghttpd(shop: &Workshop, tool: &Tool, want: &Want) -> Result<Launch> {
    let (directory, path) = served(shop, want.body)?;
    let mut command: Vec<OsString> = vec![tool.program.clone().into(), "-a".into(), "127.0.0.1".into()];
    command.extend(["-n".into(), want.workers.to_string().into(), "-d".into(), directory.into()]);
    match &want.keys {
        None => command.extend(["--no-tls".into(), want.port.to_string().into()]),
        Some(keys) => {
            command.extend([want.port.to_string().into(), keys.key.clone().into(), keys.certificate.clone().into()]);
        }
    }
    Ok(Launch { command, path: path.to_owned(), ..Launch::default() })
}

fn launch_nginx(shop: &Workshop, tool: &Tool, want: &Want) -> Result<Launch> {
    let (served, path) = served(shop, want.body)?;
    let directory = shop.scratch.join(format!("nginx-{}", want.port));
    fs::create_dir_all(&directory)?;
    let shown = directory.display();
    let (count, answers) = match want.body {
        PeerBody::Hello => (answer::FIELDS.len(), format!("return 200 \"{}\";", answer::BODY)),
        PeerBody::Page => (answer::FIELDS_OF_FILES, format!("root {};", served.display())),
    };
    let fields = answer::FIELDS[..count].iter().fold(String::new(), |mut fields, (name, value)| {
        let _ = writeln!(fields, "add_header {name} '{value}';");
        fields
    });
    let (ssl, keys) = want.keys.as_ref().map_or(("", String::new()), |keys| {
        let (certificate, key) = (keys.certificate.display(), keys.key.display());
        let lines =
            format!("ssl_certificate {certificate};\nssl_certificate_key {key};\nssl_protocols TLSv1.2 TLSv1.3;\n");
        ("ssl", lines)
    });
    // keepalive_requests: by default nginx closes each connection after a thousand requests.
    let text = format!(
        "daemon off;\nworker_processes {workers};\npid {shown}/pid;\nerror_log stderr error;\n{user}\
         events {{ worker_connections 20000; }}\n\
         http {{\naccess_log off;\nsendfile on;\nkeepalive_timeout 1h;\nkeepalive_requests 1000000000;\n\
         default_type text/plain;\nclient_body_temp_path {shown}/body;\nproxy_temp_path {shown}/proxy;\n\
         fastcgi_temp_path {shown}/fastcgi;\nuwsgi_temp_path {shown}/uwsgi;\nscgi_temp_path {shown}/scgi;\n{keys}\
         server {{\nlisten 127.0.0.1:{port} {ssl} http2 backlog=4096;\n{fields}location / {{ {answers} }}\n}}\n}}\n",
        workers = want.workers,
        port = want.port,
        user = if is_root() { "user root;\n" } else { "" },
    );
    let file = directory.join("nginx.conf");
    fs::write(&file, text)?;
    let command = vec![tool.program.clone().into(), "-p".into(), directory.into(), "-c".into(), file.into()];
    Ok(Launch { command, path: path.to_owned(), ..Launch::default() })
}

fn launch_haproxy(shop: &Workshop, tool: &Tool, want: &Want) -> Result<Launch> {
    let (directory, path) = served(shop, want.body)?;
    // no strict-limits: HAProxy otherwise requires two descriptors per connection, one for a backend that does not
    // exist here.
    let mut text = format!(
        "global\n\tnbthread {}\n\tmaxconn 20000\n\tno strict-limits\n\ttune.bufsize 65536\n\
         defaults\n\tmode http\n\ttimeout client 1h\n\ttimeout server 1h\n\ttimeout connect 5s\n\
         frontend bench\n\tbind 127.0.0.1:{} proto h2\n\thttp-request return status 200 content-type text/plain file {}{path}",
        want.workers,
        want.port,
        directory.display(),
    );
    let own = [("server", "haproxy"), ("date", "Sat, 21 Nov 2026 12:00:00 GMT")];
    for (name, value) in own.into_iter().chain(answer::FIELDS) {
        let _ = write!(text, " hdr {name} '{value}'");
    }
    text.push('\n');
    let file = shop.scratch.join(format!("haproxy-{}.cfg", want.port));
    fs::write(&file, text)?;
    let command = vec![tool.program.clone().into(), "-db".into(), "-f".into(), file.into()];
    Ok(Launch { command, path: path.to_owned(), ..Launch::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_those_over_tls_are_known() {
        for (index, one) in RECIPES.iter().enumerate() {
            assert!(RECIPES[..index].iter().all(|other| other.name != one.name), "{}", one.name);
        }
        assert!(OVER_TLS.iter().all(|name| RECIPES.iter().any(|recipe| recipe.name == *name)));
    }

    #[test]
    fn the_caddyfile_says_which_protocols_and_keys() {
        let mut want = Want { port: 8080, workers: 1, ..Want::default() };
        let clear = caddyfile(&want);
        assert!(clear.contains("protocols h1 h2c\n") && clear.contains("http://:8080 {") && !clear.contains("tls"));
        want.keys = Some(Keys { certificate: "/c.pem".into(), key: "/k.pem".into(), both: "/b.pem".into() });
        let tls = caddyfile(&want);
        assert!(tls.contains("protocols h1 h2\n") && tls.contains("\ttls /c.pem /k.pem\n"), "{tls}");
        assert!(tls.contains(&format!("https://{HOST}:8080 {{")));
        assert_eq!(tls.matches('{').count(), tls.matches('}').count());
    }
}
