//! The measured proxies, each configured to forward all requests and to keep its connections.

use std::fmt::Write;
use std::fs;

use anyhow::Result;

use super::recipe_of;
use super::way::{Back, Front, ProxyPath};
use crate::peers::{self, Launch, PeerScope, Recipe, Tool};
use crate::workshop::Workshop;

/// Number of idle connections that a proxy may keep; more than there are concurrent requests.
const KEPT: usize = 256;

/// The parameters of a launch.
pub struct Passing {
    /// The port on 127.0.0.1.
    pub port: u16,
    /// The upstream's port.
    pub upstream_port: u16,
    /// The protocols and requests.
    pub way: ProxyPath,
}

/// A measured proxy.
#[derive(Clone, Copy)]
pub struct Proxy {
    /// The name for `--only` and in tables; also the name of the recipe that obtains it.
    pub name: &'static str,
    /// A description for the help.
    pub about: &'static str,
    /// Whether it supports HTTP/2 to its upstream.
    back: bool,
    /// Returns the command to run it.
    pub launch: fn(&Workshop, &Tool, &Passing) -> Result<Launch>,
}

/// The name of the reference proxy.
pub const RELAY: &str = "relay";

/// All proxies, in the order of the tables.
pub const PROXIES: &[Proxy] = &[
    Proxy {
        name: RELAY,
        about: "our bare epoll loop: a read and a write each way, no parsing; HTTP/1.1 in every scenario",
        back: true,
        launch: |_, tool, passing| {
            let ports = [passing.port, passing.upstream_port].map(|port| port.to_string().into());
            let command = [tool.program.clone().into()].into_iter().chain(ports).collect();
            Ok(Launch { command, path: "/".to_owned(), ..Launch::default() })
        },
    },
    Proxy {
        name: "causeway",
        about: "the server under test, `reverse_proxy` in a Caddyfile",
        back: true,
        launch: |shop, tool, passing| launch_caddyfile(shop, tool, passing, "causeway"),
    },
    Proxy { name: "nginx", about: "nginx, `proxy_pass` with kept connections", back: false, launch: launch_nginx },
    Proxy { name: "haproxy", about: "HAProxy, `http-reuse always`, `splice-auto`", back: true, launch: launch_haproxy },
    Proxy {
        name: "caddy",
        about: "Caddy, `reverse_proxy`, with Causeway's Caddyfile",
        back: true,
        launch: |shop, tool, passing| launch_caddyfile(shop, tool, passing, "caddy"),
    },
];

/// The recipe that obtains the relay.
static RELAY_RECIPE: Recipe = Recipe {
    name: RELAY,
    about: "a bare relay",
    part: PeerScope::Whole,
    workers_max: 1,
    worker_threads: None,
    obtain: |shop| peers::ours(shop, "relay", "of this commit"),
    launch: |_, _, _| anyhow::bail!("a relay needs an upstream"),
};

impl Proxy {
    /// Returns the recipe that obtains it.
    pub fn recipe(self) -> Result<&'static Recipe> {
        if self.name == RELAY { Ok(&RELAY_RECIPE) } else { recipe_of(self.name) }
    }

    /// Whether it supports these protocols.
    pub fn takes(self, way: ProxyPath) -> bool {
        way.back == Back::Http1 || self.back
    }
}

fn launch_caddyfile(shop: &Workshop, tool: &Tool, passing: &Passing, name: &str) -> Result<Launch> {
    let file = format!("proxy-{}.Caddyfile", passing.port);
    let mut launch = peers::configured(shop, tool, name, &file, &caddyfile(passing))?;
    peers::limit_workers(&mut launch, name, 1);
    Ok(launch)
}

/// Returns a Caddyfile for both Caddy and Causeway.
fn caddyfile(passing: &Passing) -> String {
    let versions = match passing.way.back {
        Back::Http1 => "",
        Back::Http2 => "\t\t\tversions h2c\n",
    };
    format!(
        "{{\n\tadmin off\n\tauto_https off\n\tpersist_config off\n\tservers {{\n\t\tprotocols h1 h2c\n\t}}\n}}\n\
         http://:{port} {{\n\tbind 127.0.0.1\n\treverse_proxy 127.0.0.1:{upstream} {{\n\t\ttransport http {{\n\
         \t\t\tkeepalive_idle_conns_per_host {KEPT}\n{versions}\t\t}}\n\t}}\n}}\n",
        port = passing.port,
        upstream = passing.upstream_port,
    )
}

fn launch_nginx(shop: &Workshop, tool: &Tool, passing: &Passing) -> Result<Launch> {
    let directory = shop.scratch.join(format!("nginx-{}", passing.port));
    fs::create_dir_all(&directory)?;
    let file = directory.join("nginx.conf");
    fs::write(&file, nginx_conf(passing, &directory.to_string_lossy(), rustix::process::geteuid().is_root()))?;
    let command = vec![tool.program.clone().into(), "-p".into(), directory.into(), "-c".into(), file.into()];
    Ok(Launch { command, path: "/".to_owned(), ..Launch::default() })
}

/// Adds the fields that Caddy adds; bodies are streamed, through buffers that hold a page and never spill to a file.
fn nginx_conf(passing: &Passing, directory: &str, is_root: bool) -> String {
    let mut text = String::from("daemon off;\nworker_processes 1;\nerror_log stderr error;\n");
    if is_root {
        // The scratch directory may be readable by us only.
        text.push_str("user root;\n");
    }
    let _ = write!(
        text,
        "pid {directory}/pid;\nevents {{ worker_connections 20000; }}\n\
         http {{\naccess_log off;\nkeepalive_timeout 1h;\nkeepalive_requests 1000000000;\nclient_max_body_size 0;\n"
    );
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        let _ = writeln!(text, "{kind}_temp_path {directory}/{kind};");
    }
    let _ = write!(
        text,
        "upstream origin {{\nserver 127.0.0.1:{upstream};\nkeepalive {KEPT};\nkeepalive_requests 1000000000;\n\
         keepalive_timeout 1h;\n}}\n\
         server {{\nlisten 127.0.0.1:{port} {protocol} backlog=4096;\nlocation / {{\nproxy_pass http://origin;\n\
         proxy_http_version 1.1;\nproxy_set_header Connection \"\";\nproxy_set_header Host $http_host;\n\
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\nproxy_set_header X-Forwarded-Proto $scheme;\n\
         proxy_set_header X-Forwarded-Host $http_host;\nproxy_request_buffering off;\nproxy_buffer_size 64k;\n\
         proxy_buffers 8 64k;\nproxy_busy_buffers_size 128k;\nproxy_max_temp_file_size 0;\n}}\n}}\n}}\n",
        upstream = passing.upstream_port,
        port = passing.port,
        protocol = if passing.way.front == Front::Http2 { "http2" } else { "" },
    );
    text
}

fn launch_haproxy(shop: &Workshop, tool: &Tool, passing: &Passing) -> Result<Launch> {
    let file = shop.scratch.join(format!("haproxy-{}.cfg", passing.port));
    fs::write(&file, haproxy_cfg(passing))?;
    let command = vec![tool.program.clone().into(), "-db".into(), "-f".into(), file.into()];
    Ok(Launch { command, path: "/".to_owned(), ..Launch::default() })
}

fn haproxy_cfg(passing: &Passing) -> String {
    let protocol = |is_http2: bool| if is_http2 { " proto h2" } else { "" };
    // no strict-limits: HAProxy's computed limit is more than a process may open on some machines.
    format!(
        "global\n\tnbthread 1\n\tmaxconn 20000\n\tno strict-limits\n\ttune.bufsize 65536\n\
         defaults\n\tmode http\n\ttimeout client 1h\n\ttimeout server 1h\n\ttimeout connect 5s\n\
         \toption forwardfor\n\toption splice-auto\n\thttp-reuse always\n\
         frontend bench\n\tbind 127.0.0.1:{port}{front}\n\thttp-request set-header X-Forwarded-Proto http\n\
         \thttp-request set-header X-Forwarded-Host %[req.hdr(host)]\n\tdefault_backend origin\n\
         backend origin\n\tserver origin 127.0.0.1:{upstream}{back} pool-purge-delay 1h\n",
        port = passing.port,
        front = protocol(passing.way.front == Front::Http2),
        upstream = passing.upstream_port,
        back = protocol(passing.way.back == Back::Http2),
    )
}

#[cfg(test)]
mod tests {
    use super::super::way::RequestShape;
    use super::*;

    #[test]
    fn configurations_name_both_ports_and_the_protocols() {
        let passing = |front, back| Passing {
            port: 8081,
            upstream_port: 8082,
            way: ProxyPath { front, back, asked: RequestShape::Minimal },
        };
        let (plain, two) = (passing(Front::Http1, Back::Http1), passing(Front::Http2, Back::Http2));
        for text in [caddyfile(&plain), nginx_conf(&plain, "/t", false), haproxy_cfg(&plain)] {
            assert!(text.contains(":8081") && text.contains("127.0.0.1:8082"), "{text}");
            assert_eq!(text.matches('{').count(), text.matches('}').count(), "{text}");
        }
        assert!(!caddyfile(&plain).contains("versions") && caddyfile(&two).contains("\t\t\tversions h2c\n\t\t}"));
        assert!(!haproxy_cfg(&plain).contains("proto h2"));
        assert_eq!(haproxy_cfg(&two).matches("proto h2").count(), 2);
        assert!(!nginx_conf(&plain, "/t", false).contains("http2"));
        assert!(nginx_conf(&two, "/t", true).contains("8081 http2 "));
        assert!(nginx_conf(&two, "/t", true).contains("user root;"));
    }
}
