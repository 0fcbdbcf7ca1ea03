//! Configurations of many sites, as Caddyfiles that Caddy and Causeway read alike.

use std::fmt::Write;

use crate::request::HOST;

/// Where the admin API is.
#[derive(Debug, Clone, Copy)]
pub enum Admin {
    /// Nowhere.
    Off,
    /// On this port of the loopback.
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

/// The path that is asked for: matched, rewritten and named in the answer.
pub const PATH: &str = "/articles/2026/11/a-page.html";

/// A site's host. The last of `count` is the one that every request names unless told otherwise.
pub fn host(number: usize, count: usize) -> String {
    if number + 1 == count { HOST.to_owned() } else { format!("site{number}.{HOST}") }
}

/// One answer to everything.
pub fn one_respond(port: u16, admin: Admin) -> String {
    format!("{}http://:{port} {{\n\tbind 127.0.0.1\n\trespond \"Hello, World!\"\n}}\n", options(admin))
}

/// So many sites, each with routes that match paths, rewrite, set fields, and answer with placeholders in body and fields. The
/// answer to [`PATH`] is the same hello, with two fields more. `edition` is written into each, so that one edition is not
/// another.
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
