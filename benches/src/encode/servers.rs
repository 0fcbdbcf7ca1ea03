//! The servers that compress, and their configurations.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::load;
use crate::peers::{self, Launch};
use crate::request;
use crate::server::{Answered, Cores, PeerServer, free_port};
use crate::workshop::Workshop;

/// A server with a way to compress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coder {
    /// `encode` and `file_server`.
    Causeway,
    /// `file_server` with `precompress`.
    Precompress,
    /// nginx with its default level; of gzip that is 1, of br 6.
    Nginx,
    /// nginx with Causeway's and Caddy's default level of gzip.
    NginxLevel5,
    /// `encode` and `file_server`, with Causeway's Caddyfile.
    Caddy,
}

impl Coder {
    /// Returns the peers that have this coding.
    pub fn peers(coding: &str) -> Vec<Self> {
        match coding {
            "gzip" => vec![Self::Nginx, Self::NginxLevel5, Self::Caddy],
            "br" => vec![Self::Nginx],
            _ => vec![Self::Caddy],
        }
    }

    /// Returns the name of its row.
    pub fn name(self) -> &'static str {
        match self {
            Self::Causeway => "causeway",
            Self::Precompress => "causeway, precompress",
            Self::Nginx => "nginx",
            Self::NginxLevel5 => "nginx, level 5",
            Self::Caddy => "caddy",
        }
    }

    fn recipe(self) -> &'static str {
        match self {
            Self::Causeway | Self::Precompress => "causeway",
            Self::Nginx | Self::NginxLevel5 => "nginx",
            Self::Caddy => "caddy",
        }
    }
}

/// A running server that compresses the files of a directory.
pub struct EncodedPeer {
    pub coder: Coder,
    pub server: PeerServer,
}

impl EncodedPeer {
    /// Starts a server with one worker on core 0, and checks that it serves the shortest text.
    pub fn start(shop: &mut Workshop, coder: Coder, coding: &str, directory: &Path) -> Result<Self> {
        let recipe = peers::recipe(coder.recipe())?;
        let tool = peers::obtain(shop, recipe)?;
        let port = free_port()?;
        let mut launch = match coder {
            Coder::Nginx | Coder::NginxLevel5 => launch_nginx(shop, &tool.program, port, coder, coding, directory)?,
            Coder::Causeway | Coder::Precompress | Coder::Caddy => {
                let file = format!("encode-{port}.Caddyfile");
                let mut launch =
                    peers::configured(shop, &tool, recipe.name, &file, &caddyfile(port, coder, coding, directory))?;
                peers::limit_workers(&mut launch, recipe.name, 1);
                launch
            }
        };
        launch.path = "/1k.txt".to_owned();
        let text = fs::read(directory.join("1k.txt"))?;
        let server = PeerServer::start_asked(shop, recipe, launch, port, Cores::One(0), &|address, launch| {
            let response = load::ask_once(address, &request::minimal(&launch.path))?;
            let is_right = response.ends_with(&text);
            let otherwise = || Answered::Otherwise(String::from_utf8_lossy(&response).into_owned());
            Ok(if is_right { Answered::Right } else { otherwise() })
        })?;
        Ok(Self { coder, server })
    }
}

/// Returns a Caddyfile for both Caddy and Causeway.
fn caddyfile(port: u16, coder: Coder, coding: &str, directory: &Path) -> String {
    let serve = match coder {
        Coder::Precompress => "\tfile_server {\n\t\tprecompress\n\t}\n".to_owned(),
        _ => format!("\tencode {coding}\n\tfile_server\n"),
    };
    format!(
        "{{\n\tadmin off\n\tauto_https off\n\tpersist_config off\n}}\nhttp://:{port} {{\n\tbind 127.0.0.1\n\troot \"{}\"\n{serve}}}\n",
        directory.display()
    )
}

/// Returns the path of nginx's module for br.
fn nginx_brotli(shop: &Workshop) -> Result<PathBuf> {
    let module = "ngx_http_brotli_filter_module.so";
    let directories = ["/usr/lib/nginx/modules", "/usr/lib64/nginx/modules", "/usr/share/nginx/modules"];
    let found = || directories.iter().map(|directory| Path::new(directory).join(module)).find(|path| path.is_file());
    if let Some(found) = found() {
        return Ok(found);
    }
    // The package has no program that could be found: only the installation counts.
    let installed = shop.packaged("ngx_http_brotli_filter_module", "libnginx-mod-http-brotli-filter");
    found().with_context(|| match installed {
        Err(error) => format!("nginx has no module for br: {error:#}"),
        Ok(_) => "nginx has no module for br".to_owned(),
    })
}

fn launch_nginx(shop: &Workshop, program: &Path, port: u16, coder: Coder, coding: &str, root: &Path) -> Result<Launch> {
    let module = if coding == "br" { Some(nginx_brotli(shop)?) } else { None };
    let directory = shop.scratch.join(format!("nginx-{port}"));
    fs::create_dir_all(&directory)?;
    let file = directory.join("nginx.conf");
    let is_root = rustix::process::geteuid().is_root();
    fs::write(&file, nginx_conf(port, coder, module.as_deref(), root, &directory, is_root))?;
    let command = vec![program.into(), "-p".into(), directory.into(), "-c".into(), file.into()];
    Ok(Launch { command, path: "/".to_owned(), ..Launch::default() })
}

fn nginx_conf(port: u16, coder: Coder, module: Option<&Path>, root: &Path, directory: &Path, is_root: bool) -> String {
    let shown = directory.display();
    let load = module.map_or_else(String::new, |module| format!("load_module {};\n", module.display()));
    // The scratch directory may be readable by us only.
    let user = if is_root { "user root;\n" } else { "" };
    let coding = if module.is_some() { "brotli" } else { "gzip" };
    let level = if coder == Coder::NginxLevel5 { "gzip_comp_level 5;\n" } else { "" };
    // open_file_cache: Causeway and Caddy do not open a file for each request either, or have no such option.
    format!(
        "{load}daemon off;\nworker_processes 1;\npid {shown}/pid;\nerror_log stderr error;\n{user}events {{ worker_connections 20000; }}\n\
         http {{\naccess_log off;\nsendfile on;\nkeepalive_timeout 1h;\nkeepalive_requests 1000000000;\ntypes {{ text/plain txt; }}\n\
         client_body_temp_path {shown}/body;\nproxy_temp_path {shown}/proxy;\nfastcgi_temp_path {shown}/fastcgi;\n\
         uwsgi_temp_path {shown}/uwsgi;\nscgi_temp_path {shown}/scgi;\nopen_file_cache max=100;\n\
         {coding} on;\n{coding}_types text/plain;\n{level}\
         server {{\nlisten 127.0.0.1:{port} backlog=4096;\nroot \"{}\";\n}}\n}}\n",
        root.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_name_the_coding_and_the_directory() {
        let directory = Path::new("/texts");
        let ours = caddyfile(8081, Coder::Causeway, "zstd", directory);
        assert!(ours.contains("\tencode zstd\n") && ours.contains("/texts") && ours.contains(":8081"), "{ours}");
        let gzip = nginx_conf(8081, Coder::NginxLevel5, None, directory, Path::new("/t"), false);
        assert!(gzip.contains("gzip on;") && gzip.contains("gzip_comp_level 5;") && !gzip.contains("brotli"), "{gzip}");
        let br = nginx_conf(8081, Coder::Nginx, Some(Path::new("/m.so")), directory, Path::new("/t"), true);
        assert!(br.starts_with("load_module /m.so;") && br.contains("brotli on;") && !br.contains("gzip"), "{br}");
    }
}
