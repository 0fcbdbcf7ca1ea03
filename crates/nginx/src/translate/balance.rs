//! The choice of one of an upstream's servers: policies, weights, retries and failures.

use super::units::seconds;
use super::{Translator, inherited, own, value};
use crate::parse::Directive;
use crate::write::block;

impl Translator<'_> {
    /// Returns the lines of an upstream with several servers.
    pub(super) fn balance(&mut self, out: &mut Vec<String>, host: &str, blocks: &[&Directive]) -> Vec<String> {
        let Some(upstream) = self.shared.upstreams.get(host).copied() else { return Vec::new() };
        let word = |d: &Directive, key: &str| d.arguments.iter().find_map(|w| w.strip_prefix(key).map(str::to_owned));
        let mut servers = own(upstream, "server");
        servers.retain(|d| !d.arguments.iter().any(|w| w == "down"));
        let weights: Vec<String> =
            servers.iter().map(|d| word(d, "weight=").unwrap_or_else(|| "1".to_owned())).collect();
        let backups = servers.iter().filter(|d| d.arguments.iter().any(|w| w == "backup")).count();
        let mut policy = "round_robin".to_owned();
        for directive in upstream.block() {
            match &*directive.name {
                "server" | "keepalive" | "#" => {}
                "least_conn" => policy = "least_conn".to_owned(),
                "ip_hash" => policy = "ip_hash".to_owned(),
                "random" => policy = "random".to_owned(),
                "hash" if directive.argument(0) == "$request_uri" => policy = "uri_hash".to_owned(),
                "hash" if directive.argument(0) == "$remote_addr" => policy = "client_ip_hash".to_owned(),
                "zone" | "keepalive_timeout" | "keepalive_requests" => self.tuning.push(directive.clone()),
                _ => self.note(out, directive, "no equivalent in an upstream"),
            }
        }
        let is_weighted = weights.iter().any(|weight| weight != "1");
        match policy == "round_robin" {
            true if is_weighted => policy = format!("weighted_round_robin {}", weights.join(" ")),
            false if is_weighted => {
                self.remark(out, upstream, &format!("weights have no effect beside {policy}"));
            }
            _ => {}
        }
        let is_read = |word: &str| {
            let known = ["weight=", "max_fails=", "fail_timeout="];
            matches!(word, "backup" | "down") || known.iter().any(|known| word.starts_with(known))
        };
        for server in &servers {
            let others: Vec<&str> =
                server.arguments.iter().skip(1).map(String::as_str).filter(|w| !is_read(w)).collect();
            if !others.is_empty() {
                self.note(
                    out,
                    server,
                    &format!("no equivalent of {}; the upstream itself is carried over", others.join(" ")),
                );
            }
        }
        if backups > 0 {
            if backups + 1 == servers.len() && !servers[0].arguments.iter().any(|w| w == "backup") {
                policy = "first".to_owned();
            } else {
                for server in servers.iter().filter(|d| d.arguments.iter().any(|w| w == "backup")) {
                    self.note(
                        out,
                        server,
                        "the upstream takes part as the others do; only one server with its backups is carried over",
                    );
                }
            }
        }
        if servers.len() < 2 {
            return Vec::new();
        }
        let fails = servers.iter().find_map(|d| word(d, "max_fails=")).unwrap_or_else(|| "1".to_owned());
        let time = servers.iter().find_map(|d| Some((d, word(d, "fail_timeout=")?)));
        let time = time.and_then(|(server, time)| {
            let time = seconds(&time);
            if time.is_none() {
                self.note(out, server, "fail_timeout: found no duration");
            }
            time
        });
        let time = time.unwrap_or(10);
        let mut lines = vec![format!("lb_policy {policy}")];
        self.next_upstream(out, &mut lines, servers.len(), blocks);
        if fails != "0" {
            lines.extend([format!("max_fails {fails}"), format!("fail_duration {time}s")]);
        }
        lines
    }

    /// Writes the retries of an upstream with several servers.
    fn next_upstream(&mut self, out: &mut Vec<String>, lines: &mut Vec<String>, servers: usize, blocks: &[&Directive]) {
        let words = inherited(blocks, "proxy_next_upstream").last().copied();
        let has = |word: &str| words.is_some_and(|words| words.arguments.iter().any(|other| other == word));
        if has("off") {
            return;
        }
        let tries = value(blocks, "proxy_next_upstream_tries").and_then(|tries| tries.parse::<usize>().ok());
        let tries = tries.filter(|tries| *tries > 0).map_or(servers, |tries| tries.min(servers));
        if tries < 2 {
            return;
        }
        lines.push(format!("lb_retries {}", tries - 1));
        if let Some(limit) = inherited(blocks, "proxy_next_upstream_timeout").last().filter(|d| d.argument(0) != "0") {
            match seconds(limit.argument(0)) {
                Some(time) => lines.push(format!("lb_try_duration {time}s")),
                None => self.note(out, limit, "found no duration"),
            }
        }
        let Some(words) = words else { return };
        let codes: Vec<&str> = words.arguments.iter().filter_map(|word| word.strip_prefix("http_")).collect();
        let is_any_method = has("non_idempotent");
        if codes.is_empty() && !is_any_method {
            return;
        }
        // A placeholder alone is not a condition.
        let mut conditions = vec!["{rp.is_transport_error} == true".to_owned()];
        if !codes.is_empty() {
            conditions.push(format!("{{rp.status_code}} in [{}]", codes.join(", ")));
            self.remark(
                out,
                words,
                "if the last server responds so too, the client gets the status without its content",
            );
        }
        for condition in conditions {
            let methods = if is_any_method { "" } else { " && !method('POST', 'LOCK', 'PATCH')" };
            block(lines, "lb_retry_match", vec![format!("expression `{condition}{methods}`")]);
        }
    }
}
