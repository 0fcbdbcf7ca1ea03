//! Caddyfiles with many sites, for both Caddy and Causeway.

use std::fmt::Write;
use std::net::SocketAddr;

use crate::request::HOST;

/// The admin API's address.
#[derive(Debug, Clone, Copy)]
pub enum Admin {
    /// No admin API.
    Off,
    /// This port on loopback.
    Port(u16),
}

impl Admin {
    fn text(self) -> String {
        match self {
            Self::Off => "off".to_owned(),
            Self::Port(port) => format!("127.0.0.1:{port}"),
        }
    }
}

/// The path of requests: it is matched, rewritten and shown in the response.
pub const PATH: &str = "/articles/2026/11/a-page.html";

/// Returns a site's host name. The last of `count` sites has [`HOST`], the default host of requests.
pub fn host(number: usize, count: usize) -> String {
    if number + 1 == count { HOST.to_owned() } else { format!("site{number}.{HOST}") }
}

/// Returns a configuration with one response for all requests.
pub fn one_respond(port: u16, admin: Admin) -> String {
    format!("{}http://:{port} {{\n\tbind 127.0.0.1\n\trespond \"Hello, World!\"\n}}\n", options(admin))
}

/// Returns a configuration of `count` sites, each with routes that match paths, rewrite, set fields, and respond with
/// placeholders in body and fields. The response to [`PATH`] is the usual text with two more fields. `edition` is part
/// of each site, so that two editions differ.
pub fn sites(count: usize, port: u16, admin: Admin, edition: usize) -> String {
    let mut text = options(admin);
    for number in 0..count {
        let host = host(number, count);
        let _ = write!(
            text,
            "http://{host}:{port} {{\n\
             \tbind 127.0.0.1\n\
             \tvars {{\n\t\twhom World\n\t\tedition {edition}\n\t}}\n\
             \theader X-Site {{host}}\n\
             \t@feed path /feed /feed/* *.rss\n\
             \thandle @feed {{\n\t\trespond \"feed of {{host}}, edition {{vars.edition}}\"\n\t}}\n\
             \thandle /static/* {{\n\t\trespond \"static {{path}}\"\n\t}}\n\
             \thandle_path /api/* {{\n\t\trespond \"api {{path}} by {{method}}\"\n\t}}\n\
             \thandle /articles/* {{\n\t\trewrite * /pages{{uri}}\n\t\theader X-Page {{path}}\n\t\trespond \"Hello, {{vars.whom}}!\"\n\t}}\n\
             \thandle {{\n\t\terror \"nothing is here\" 404\n\t}}\n}}\n"
        );
    }
    text
}

/// Returns a configuration that forwards three kinds of streams to upstreams at `plain` (HTTP/1.1) and `h2c`. `edition`
/// is part of it, so that two editions differ.
pub fn streams(port: u16, admin: Admin, plain: SocketAddr, h2c: SocketAddr, edition: usize) -> String {
    let admin = admin.text();
    format!(
        "{{\n\tadmin {admin}\n\tauto_https off\n\tpersist_config off\n\tgrace_period 5s\n\
         \tservers {{\n\t\tprotocols h1 h2 h2c\n\t}}\n}}\n\
         http://:{port} {{\n\
         \tbind 127.0.0.1\n\
         \theader X-Edition {edition}\n\
         \thandle /grpc {{\n\t\treverse_proxy h2c://{h2c}\n\t}}\n\
         \t@plain path /socket /events\n\
         \thandle @plain {{\n\t\treverse_proxy {plain}\n\t}}\n\
         \thandle {{\n\t\trespond \"Hello, World!\"\n\t}}\n}}\n"
    )
}

fn options(admin: Admin) -> String {
    format!("{{\n\tadmin {}\n\tauto_https off\n\tpersist_config off\n}}\n", admin.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_close_and_the_last_site_has_the_usual_host() {
        let text = sites(3, 8080, Admin::Port(2020), 7);
        assert_eq!(text.matches('{').count(), text.matches('}').count());
        let hosts: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("http://")).collect();
        assert_eq!(hosts, ["site0.bench.example:8080 {", "site1.bench.example:8080 {", "bench.example:8080 {"]);
        assert!(text.contains("admin 127.0.0.1:2020") && text.contains("edition 7"));
    }
}
