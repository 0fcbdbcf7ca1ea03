//! The measured servers and how to run them. A peer is a recipe: obtain a program once, then launch it on a port with a
//! number of workers. To add a server, add an entry to [`RECIPES`].

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workshop::{self, Workshop};

/// An obtained program.
#[derive(Debug, Clone)]
pub struct Tool {
    /// Its path.
    pub program: PathBuf,
    /// The program's version, as it prints it.
    pub version: String,
}

/// The parameters of a launch.
#[derive(Debug, Clone, Default)]
pub struct Want {
    /// The port on 127.0.0.1.
    pub port: u16,
    /// Number of worker threads or processes.
    pub workers: usize,
    /// The file for the launch's cold path.
    pub cold: Option<PathBuf>,
    /// The body of responses over HTTP/2.
    pub body: PeerBody,
    /// The key and certificate for TLS.
    pub keys: Option<Keys>,
}

/// The body of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PeerBody {
    /// [`answer::BODY`].
    #[default]
    Hello,
    /// [`answer::page`].
    Page,
}

impl PeerBody {
    /// Returns the body's text.
    pub fn text(self) -> String {
        match self {
            Self::Hello => answer::BODY.to_owned(),
            Self::Page => answer::page(),
        }
    }
}

/// The files of a server's key.
#[derive(Debug, Clone)]
pub struct Keys {
    /// The certificate as PEM.
    pub certificate: PathBuf,
    /// The key as PEM.
    pub key: PathBuf,
    /// Certificate and key in one file.
    pub both: PathBuf,
}

/// The command that runs a peer, and its paths.
#[derive(Debug, Clone, Default)]
pub struct Launch {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Environment variables to add to ours.
    pub environment: Vec<(String, OsString)>,
    /// The path of the short response.
    pub path: String,
    /// The path that computes for 50 ms in the way that the peer's documentation recommends, if there is one.
    pub burn: Option<String>,
    /// The path that computes for 50 ms on the worker itself, if that is another one.
    pub hog: Option<String>,
    /// The path of the cold file, if there is one.
    pub cold: Option<String>,
}

/// A measured server.
pub struct Recipe {
    /// The name for `--only` and in tables.
    pub name: &'static str,
    /// A description for the help.
    pub about: &'static str,
    /// The scenarios that it takes part in.
    pub part: PeerScope,
    /// Largest number of workers that it supports.
    pub workers_max: usize,
    /// Prefix of its worker threads' names; `None` when workers cannot be recognised.
    pub worker_threads: Option<&'static str>,
    /// Obtains the program.
    pub obtain: fn(&Workshop) -> Result<Tool>,
    /// Returns the command to run it.
    pub launch: fn(&Workshop, &Tool, &Want) -> Result<Launch>,
}

/// The scenarios of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerScope {
    /// All of them.
    Whole,
    /// Only the isolation scenario: the latency of a route while other routes are busy.
    Isolation,
}

/// The name of the reference server.
pub const LIMIT: &str = "limit";
/// The name of our engine embedded in a program.
pub const EMBEDDED: &str = "embedded";

/// All peers, in the order of the tables.
pub const RECIPES: &[Recipe] = &[
    Recipe {
        name: LIMIT,
        about: "our bare epoll loop: a read, a canned response, no parsing",
        part: PeerScope::Whole,
        workers_max: 1,
        worker_threads: None,
        obtain: |shop| ours(shop, "limit", "of this commit"),
        launch: launch_ours,
    },
    Recipe {
        name: "causeway",
        about: "the server under test, `respond` in a Caddyfile",
        part: PeerScope::Whole,
        workers_max: usize::MAX,
        worker_threads: Some("worker"),
        obtain: |shop| Ok(Tool { program: shop.causeway("dist")?, version: "of this commit".to_owned() }),
        launch: |shop, tool, want| {
            let mut launch = caddyfile(shop, tool, want, "causeway")?;
            limit_workers(&mut launch, "causeway", want.workers);
            Ok(launch)
        },
    },
    Recipe {
        name: EMBEDDED,
        about: "Causeway's engine in a program with routes that compute, one worker",
        part: PeerScope::Isolation,
        workers_max: 1,
        worker_threads: Some("worker"),
        obtain: |shop| ours(shop, "causeway_bench", "of this commit"),
        launch: |shop, tool, want| {
            let mut launch = launch_ours(shop, tool, want)?;
            launch.command.push(want.workers.to_string().into());
            launch.command.extend(want.cold.as_ref().map(OsString::from));
            let cold = want.cold.as_ref().map(|_| "/cold".to_owned());
            Ok(Launch { burn: Some("/burn".to_owned()), hog: Some("/hog".to_owned()), cold, ..launch })
        },
    },
    Recipe {
        name: "tokio",
        about: "the limit server's work over tokio",
        part: PeerScope::Whole,
        workers_max: 1,
        worker_threads: None,
        obtain: |shop| ours(shop, "tokio_bare", "tokio"),
        launch: launch_ours,
    },
    Recipe {
        name: "hyper",
        about: "hyper 1.x over tokio, one thread",
        part: PeerScope::Whole,
        workers_max: 1,
        worker_threads: None,
        obtain: |shop| ours(shop, "hyper_hello", "hyper"),
        launch: |shop, tool, want| Ok(Launch { burn: Some("/burn".to_owned()), ..launch_ours(shop, tool, want)? }),
    },
    Recipe {
        name: "nginx",
        about: "nginx, `return 200`",
        part: PeerScope::Whole,
        workers_max: usize::MAX,
        worker_threads: None,
        obtain: |shop| {
            let program = shop.packaged("nginx", "nginx-light")?;
            Ok(Tool { version: workshop::version(&program, "-v"), program })
        },
        launch: launch_nginx,
    },
    Recipe {
        name: "h2o",
        about: "h2o, a small file",
        part: PeerScope::Whole,
        workers_max: usize::MAX,
        worker_threads: None,
        obtain: |shop| {
            let program = shop.packaged("h2o", "h2o")?;
            Ok(Tool { version: workshop::version(&program, "--version"), program })
        },
        launch: launch_h2o,
    },
    Recipe {
        name: "caddy",
        about: "Caddy, `respond`",
        part: PeerScope::Whole,
        workers_max: usize::MAX,
        worker_threads: None,
        obtain: obtain_caddy,
        launch: |shop, tool, want| {
            let mut launch = caddyfile(shop, tool, want, "caddy")?;
            limit_workers(&mut launch, "caddy", want.workers);
            Ok(launch)
        },
    },
    Recipe {
        name: "go",
        about: "Go's net/http",
        part: PeerScope::Whole,
        workers_max: usize::MAX,
        worker_threads: None,
        obtain: obtain_go,
        launch: |_, tool, want| {
            let mut environment = vec![("GOMAXPROCS".to_owned(), OsString::from(want.workers.to_string()))];
            if let Some(cold) = &want.cold {
                environment.push(("COLD_FILE".to_owned(), cold.into()));
            }
            Ok(Launch {
                command: vec![tool.program.clone().into(), want.port.to_string().into()],
                environment,
                path: "/".to_owned(),
                burn: Some("/burn".to_owned()),
                hog: None,
                cold: want.cold.as_ref().map(|_| "/cold".to_owned()),
            })
        },
    },
    Recipe {
        name: "crystal",
        about: "Crystal's HTTP::Server",
        part: PeerScope::Whole,
        workers_max: 1,
        worker_threads: None,
        obtain: |shop| obtain_crystal(shop, "hello"),
        launch: |shop, tool, want| Ok(Launch { burn: Some("/burn".to_owned()), ..launch_ours(shop, tool, want)? }),
    },
];

/// Returns the recipe of that name.
pub fn recipe(name: &str) -> Result<&'static Recipe> {
    RECIPES.iter().find(|recipe| recipe.name == name).with_context(|| {
        let names: Vec<_> = RECIPES.iter().map(|recipe| recipe.name).collect();
        format!("unknown peer {name:?}; expected one of {}", names.join(", "))
    })
}

/// Returns a peer's program, obtaining it at the first call, and records its version.
pub fn obtain(shop: &mut Workshop, recipe: &'static Recipe) -> Result<Tool> {
    let known = match shop.obtained.get(recipe.name) {
        Some(known) => known.clone(),
        None => {
            let found = (recipe.obtain)(shop).map_err(|error| format!("{error:#}"));
            shop.obtained.insert(recipe.name, found.clone());
            found
        }
    };
    // A failure is remembered too: the attempt may have taken minutes.
    let tool = known.map_err(|why| anyhow::anyhow!(why))?;
    shop.versions.insert(recipe.name.to_owned(), tool.version.clone());
    Ok(tool)
}

/// Returns the list of peers for the help.
pub fn help() -> String {
    let lines = RECIPES.iter().map(|recipe| format!("  {:<10}{}\n", recipe.name, recipe.about));
    format!("Peers:\n{}", lines.collect::<String>())
}

/// Returns one of our binaries. Its version is that of the named library in the lock file, or `library` itself if it
/// has spaces.
pub fn ours(shop: &Workshop, binary: &str, library: &str) -> Result<Tool> {
    let program = shop.binaries.join(binary);
    if !program.is_file() {
        bail!("{binary} is not built: run ./bench, which builds it");
    }
    let lock = fs::read_to_string(shop.bench.join("Cargo.lock"))?;
    let version = if library.contains(' ') { library.to_owned() } else { workshop::locked(&lock, library) };
    Ok(Tool { program, version })
}

/// Returns the launch of one of our own servers, whose first argument is the port.
pub fn launch_ours(_: &Workshop, tool: &Tool, want: &Want) -> Result<Launch> {
    let command = vec![tool.program.clone().into(), want.port.to_string().into()];
    Ok(Launch { command, path: "/".to_owned(), ..Launch::default() })
}

fn launch_nginx(shop: &Workshop, tool: &Tool, want: &Want) -> Result<Launch> {
    let cold = want
        .cold
        .as_ref()
        .map_or_else(String::new, |file| format!("location = /cold {{ alias {}; }}\n", file.display()));
    let directory = shop.scratch.join(format!("nginx-{}", want.port));
    fs::create_dir_all(&directory)?;
    let directory_shown = directory.display();
    // keepalive_requests: by default nginx closes each connection after a thousand requests.
    let text = format!(
        "daemon off;\nworker_processes {workers};\npid {directory_shown}/pid;\nerror_log stderr error;\n{user}\
         events {{ worker_connections 20000; }}\n\
         http {{\naccess_log off;\nsendfile on;\nkeepalive_timeout 1h;\nkeepalive_requests 1000000000;\n\
         default_type text/plain;\nclient_body_temp_path {directory_shown}/body;\nproxy_temp_path {directory_shown}/proxy;\n\
         fastcgi_temp_path {directory_shown}/fastcgi;\nuwsgi_temp_path {directory_shown}/uwsgi;\nscgi_temp_path {directory_shown}/scgi;\n\
         server {{\nlisten 127.0.0.1:{port} backlog=4096 {reuse};\n{cold}location / {{ return 200 \"Hello, World!\"; }}\n}}\n}}\n",
        workers = want.workers,
        port = want.port,
        reuse = if want.workers > 1 { "reuseport" } else { "" },
        // The scratch directory may be readable by us only.
        user = if rustix::process::geteuid().is_root() { "user root;\n" } else { "" },
    );
    let file = directory.join("nginx.conf");
    fs::write(&file, text)?;
    let program = tool.program.clone();
    Ok(Launch {
        command: vec![program.into(), "-p".into(), directory.into(), "-c".into(), file.into()],
        path: "/".to_owned(),
        cold: want.cold.as_ref().map(|_| "/cold".to_owned()),
        ..Launch::default()
    })
}

fn launch_h2o(shop: &Workshop, tool: &Tool, want: &Want) -> Result<Launch> {
    let directory = shop.scratch.join("h2o");
    fs::create_dir_all(&directory)?;
    fs::write(directory.join("hello.txt"), "Hello, World!")?;
    let text = format!(
        "num-threads: {}\nmax-connections: 20000\n{}hosts:\n  default:\n    listen:\n      host: 127.0.0.1\n      port: {}\n    \
         paths:\n      /:\n        file.dir: {}\n",
        want.workers,
        if rustix::process::geteuid().is_root() { "user: root\n" } else { "" },
        want.port,
        directory.display(),
    );
    let file = directory.join(format!("{}.yaml", want.port));
    fs::write(&file, text)?;
    let command = vec![tool.program.clone().into(), "-m".into(), "worker".into(), "-c".into(), file.into()];
    Ok(Launch { command, path: "/hello.txt".to_owned(), ..Launch::default() })
}

/// Returns the launch of `run --config` with a Caddyfile for both Caddy and Causeway.
fn caddyfile(shop: &Workshop, tool: &Tool, want: &Want, name: &str) -> Result<Launch> {
    let launch = configured(shop, tool, name, &format!("{}.Caddyfile", want.port), &caddyfile_text(want))?;
    Ok(Launch { cold: want.cold.as_ref().map(|file| format!("/{}", name_of(file))), ..launch })
}

/// Returns the launch of Caddy or Causeway, selected by `name`, with this configuration: a Caddyfile if the file is
/// named so, else JSON.
pub fn configured(shop: &Workshop, tool: &Tool, name: &str, file: &str, text: &str) -> Result<Launch> {
    let directory = shop.scratch.join(name);
    fs::create_dir_all(&directory)?;
    let adapter = file.ends_with("Caddyfile").then(|| ["--adapter".into(), "caddyfile".into()]);
    let file = directory.join(file);
    fs::write(&file, text)?;
    let command = [OsString::from(&tool.program), "run".into(), "--config".into(), file.into()];
    Ok(Launch {
        command: command.into_iter().chain(adapter.into_iter().flatten()).collect(),
        environment: vec![
            ("XDG_DATA_HOME".into(), directory.clone().into()),
            ("XDG_CONFIG_HOME".into(), directory.into()),
        ],
        path: "/".to_owned(),
        ..Launch::default()
    })
}

/// Sets the number of workers of Caddy or Causeway.
pub fn limit_workers(launch: &mut Launch, name: &str, workers: usize) {
    if name == "caddy" {
        launch.environment.push(("GOMAXPROCS".to_owned(), workers.to_string().into()));
    } else {
        launch.command.extend(["--workers".into(), workers.to_string().into()]);
    }
}

fn name_of(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn caddyfile_text(want: &Want) -> String {
    let hello = "respond \"Hello, World!\"";
    let routes = match &want.cold {
        None => format!("\t{hello}\n"),
        Some(file) => {
            let directory = file.parent().unwrap_or(Path::new("/")).display();
            format!(
                "\thandle /{} {{\n\t\troot * {directory}\n\t\tfile_server\n\t}}\n\thandle {{\n\t\t{hello}\n\t}}\n",
                name_of(file)
            )
        }
    };
    format!("{{\n\tadmin off\n\tauto_https off\n}}\nhttp://:{} {{\n\tbind 127.0.0.1\n{routes}}}\n", want.port)
}

/// Returns the newest Caddy from its Go module, or Debian's when the module proxy is unreachable.
pub fn obtain_caddy(shop: &Workshop) -> Result<Tool> {
    match shop.go_installed("caddy", "github.com/caddyserver/caddy/v2/cmd/caddy@latest") {
        Ok(program) => Ok(Tool { version: workshop::go_version(&program), program }),
        Err(error) => {
            let program = shop.packaged("caddy", "caddy").with_context(|| format!("{error:#}"))?;
            Ok(Tool { version: workshop::version(&program, "version"), program })
        }
    }
}

fn obtain_go(shop: &Workshop) -> Result<Tool> {
    let go = shop.packaged("go", "golang-go")?;
    let directory = shop.bench.join("peers/go");
    let sources = [directory.join("main.go"), directory.join("go.mod")];
    let mut build = Command::new(&go);
    build.current_dir(&directory).args(["build", "-o"]).arg(shop.tools.join("go-hello")).arg(".");
    let program = shop.built("go-hello", &sources, &mut build)?;
    Ok(Tool { program, version: workshop::version(&go, "version") })
}

/// Builds a program of `peers/crystal`.
pub fn obtain_crystal(shop: &Workshop, name: &str) -> Result<Tool> {
    let crystal = shop.packaged("crystal", "crystal")?;
    let source = shop.bench.join(format!("peers/crystal/{name}.cr"));
    let output = format!("crystal-{name}");
    let mut build = Command::new(&crystal);
    build.args(["build", "--release", "-o"]).arg(shop.tools.join(&output)).arg(&source);
    let program = shop.built(&output, std::slice::from_ref(&source), &mut build)?;
    Ok(Tool { program, version: workshop::version(&crystal, "--version") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for (index, one) in RECIPES.iter().enumerate() {
            assert!(RECIPES[..index].iter().all(|other| other.name != one.name), "{}", one.name);
            assert_eq!(recipe(one.name).unwrap().name, one.name);
        }
        assert!(recipe("apache").is_err());
    }

    #[test]
    fn the_caddyfile_serves_a_cold_file_only_when_wanted() {
        let mut want = Want { port: 8080, workers: 1, ..Want::default() };
        assert!(!caddyfile_text(&want).contains("file_server"));
        want.cold = Some("/srv/cold.bin".into());
        let text = caddyfile_text(&want);
        assert!(text.contains("handle /cold.bin {\n\t\troot * /srv\n\t\tfile_server\n\t}"), "{text}");
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }
}
