//! `set_real_ip_from` and `real_ip_header` as the global options `trusted_proxies` and `client_ip_headers`.
//!
//! With them, nginx's `$remote_addr` and its access rules are about the client, not the peer: placeholders and matchers
//! are those of `client_ip`.

use super::{Translator, inherited, own, value};
use crate::parse::Directive;

/// The settings of a server, as nginx inherits them.
#[derive(Debug, PartialEq, Eq)]
struct RealIp<'a> {
    ranges: Vec<&'a str>,
    field: &'a str,
    recursive: bool,
}

impl<'a> RealIp<'a> {
    fn of(blocks: &[&'a Directive]) -> Option<Self> {
        let ranges: Vec<&str> = inherited(blocks, "set_real_ip_from").iter().map(|d| d.argument(0)).collect();
        let field = value(blocks, "real_ip_header").unwrap_or("X-Real-IP");
        let recursive = value(blocks, "real_ip_recursive") == Some("on");
        (!ranges.is_empty()).then_some(Self { ranges, field, recursive })
    }
}

impl<'a> Translator<'a> {
    /// Adds the global options, if all servers have the same settings.
    pub(super) fn write_real_ip(&mut self, head: &mut Vec<String>, http: &'a Directive, servers: &[&'a Directive]) {
        let of_servers: Vec<Option<RealIp<'_>>> = servers.iter().map(|server| RealIp::of(&[http, server])).collect();
        let lines: Vec<&Directive> =
            servers.iter().chain([&http]).flat_map(|block| own(block, "set_real_ip_from")).collect();
        let Some(Some(first)) = of_servers.iter().find(|found| found.is_some()) else { return };
        let refusal = if of_servers.iter().any(|found| found.as_ref() != Some(first)) {
            Some("the global option `trusted_proxies` is for all servers, and these have different settings")
        } else if first.field == "proxy_protocol" {
            Some(
                "write the global option `servers { listener_wrappers { proxy_protocol } }` with `allow` for these addresses",
            )
        } else {
            None
        };
        if let Some(reason) = refusal {
            for line in lines {
                self.note(head, line, &format!("{reason}; the access rules are for the peers' addresses"));
            }
            return;
        }
        let is_range = |range: &str| {
            let (address, bits) = range.split_once('/').unwrap_or((range, "0"));
            address.parse::<std::net::IpAddr>().is_ok() && bits.parse::<u8>().is_ok()
        };
        let (ranges, others): (Vec<&str>, Vec<&str>) = first.ranges.iter().partition(|range| is_range(range));
        for line in &lines {
            let range = line.argument(0);
            if others.contains(&range) && range != "unix:" {
                self.note(head, line, "only addresses and networks are trusted, no names");
            }
        }
        if !ranges.is_empty() {
            self.options.push(format!("trusted_proxies static {}", ranges.join(" ")));
        }
        if others.contains(&"unix:") {
            self.options.push("trusted_proxies_unix".to_owned());
        }
        if self.options.is_empty() {
            return;
        }
        self.options.extend(["trusted_proxies_strict".to_owned(), format!("client_ip_headers {}", first.field)]);
        if !first.recursive
            && first.field.eq_ignore_ascii_case("x-forwarded-for")
            && let Some(line) = lines.first()
        {
            let reason =
                "the client is the last address in X-Forwarded-For that is not trusted, as with 'real_ip_recursive on'";
            self.remark(head, line, reason);
        }
        self.has_real_ip = true;
    }

    /// The matcher of the addresses that `allow`, `deny` and `geo` compare.
    pub(super) fn address_matcher(&self) -> &'static str {
        if self.has_real_ip { "client_ip" } else { "remote_ip" }
    }
}
