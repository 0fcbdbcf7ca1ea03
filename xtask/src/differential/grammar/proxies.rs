//! `reverse_proxy` and `forward_auth`; the upstream is always the step's origin.

use super::super::document::ConfigLine;
use super::{DirectivePosition, Grammar};

impl Grammar<'_> {
    pub(super) fn proxy(&mut self) -> ConfigLine {
        let token = self.token();
        let head = format!("reverse_proxy {token}127.0.0.1:<origin>");
        if self.random.chance(25) {
            return ConfigLine::new(head);
        }
        let mut lines = Vec::new();
        for _ in 0..1 + self.random.below(4) {
            let line = self.option();
            lines.push(line);
        }
        if self.random.chance(35) {
            self.answers(&mut lines);
        }
        ConfigLine::block(head, lines)
    }

    fn option(&mut self) -> ConfigLine {
        let value = self.quoted();
        let field = self.random.pick(&["X-A", "X-New", "x-b", "User-Agent"]);
        let words = match self.random.below(16) {
            0 => format!("header_up {field} {value}"),
            1 => format!("header_up +{field} {value}"),
            2 => format!("header_up {}", self.random.pick(&["-X-A", "-X-*", "-*Agent", "-X-Forwarded-For", "-Host"])),
            3 => format!(
                "header_up {field} \"{}\" \"{}\"",
                self.random.pick(&["o+", "^(.)", "1", "a(b)c"]),
                self.random.pick(&["$1$1", "z", "", "{path}"])
            ),
            4 => format!(
                "header_up Host {}",
                self.random.pick(&["up.test", "{upstream_hostport}", "{host}", "{header.X-A}"])
            ),
            5 => format!("header_down {} {value}", self.random.pick(&["X-From", "X-Down", "Server", "Content-Type"])),
            6 => format!("header_down +{} {value}", self.random.pick(&["X-From", "X-Many", "Set-Cookie"])),
            7 => format!("header_down {}", self.random.pick(&["-X-From", "-X-*", "-Server", "-Set-Cookie"])),
            8 => format!(
                "header_down {} \"{}\" \"{}\"",
                self.random.pick(&["X-From", "X-Many", "Location"]),
                self.random.pick(&["o", "^(.)", "/"]),
                self.random.pick(&["$1-", "{method}", ""])
            ),
            9 => format!(
                "rewrite {}",
                self.random.pick(&["/up{uri}", "/fixed", "?x=1", "/up?{query}&y=2", "{path}/end", "/a%2Fb"])
            ),
            10 => format!("method {}", self.random.pick(&["GET", "POST", "PUT"])),
            11 => format!("trusted_proxies {}", self.random.pick(&["private_ranges", "127.0.0.1", "10.0.0.0/8"])),
            12 => "flush_interval -1".to_owned(),
            13 => "lb_policy first".to_owned(),
            14 => {
                let option = self.random.pick(&[
                    "versions 1.1",
                    "keepalive off",
                    "dial_timeout 2s",
                    "compression off",
                    "response_header_timeout 5s",
                ]);
                return ConfigLine::block("transport http", vec![ConfigLine::new(option)]);
            }
            _ => "header_up X-Up {http.reverse_proxy.upstream.hostport}".to_owned(),
        };
        ConfigLine::new(words)
    }

    /// Adds named response matchers, with routes for the responses that they match.
    fn answers(&mut self, lines: &mut Vec<ConfigLine>) {
        for index in 0..1 + self.random.below(2) {
            let matcher = self.random.pick(&[
                "status 404",
                "status 4xx 5xx",
                "header X-From origin",
                "status 2xx",
                "header X-Many *",
                "status 302",
                "header !X-Many",
            ]);
            let token = if self.random.chance(75) { format!(" @s{index}") } else { String::new() };
            if !token.is_empty() {
                lines.push(ConfigLine::new(format!("@s{index} {matcher}")));
            }
            if self.random.chance(35) {
                lines.push(ConfigLine::new(format!(
                    "replace_status{token} {}",
                    self.random.pick(&["202", "404", "{http.request.uri.query.a}", "503"])
                )));
                continue;
            }
            let status = if self.random.chance(10) { " 404" } else { "" };
            if !status.is_empty() {
                lines.push(ConfigLine::new(format!("replace_status{token}{status}")));
                continue;
            }
            let count = self.random.below(3);
            let mut routes = self.directives(DirectivePosition::Answers, count);
            match self.random.below(4) {
                0 => routes.push(ConfigLine::new(
                    "respond \"held {rp.status_code} {rp.status_text} {rp.header.X-From} {rp.header.X-Many}\"",
                )),
                1 => routes.push(ConfigLine::new(self.random.pick(&["copy_response", "copy_response 209"]))),
                2 => {
                    let lines = vec![ConfigLine::new(self.random.pick(&[
                        "include X-From X-Many",
                        "exclude X-From Content-Length",
                        "include Set-Cookie",
                    ]))];
                    routes.push(ConfigLine::block("copy_response_headers", lines));
                    routes.push(ConfigLine::new("respond \"copied\" 203"));
                }
                _ => {}
            }
            lines.push(ConfigLine::block(format!("handle_response{token}"), routes));
        }
    }

    pub(super) fn forward_auth(&mut self) -> ConfigLine {
        let token = self.token();
        let mut lines = vec![ConfigLine::new(self.random.pick(&["uri /auth", "uri /auth?x=1", "uri /auth/{method}"]))];
        if self.random.chance(60) {
            lines.push(ConfigLine::new(self.random.pick(&[
                "copy_headers X-From",
                "copy_headers X-From>X-A X-Many",
                "copy_headers X-None X-From",
            ])));
        }
        if self.random.chance(30) {
            lines.push(ConfigLine::new("header_up X-Auth {uri}"));
        }
        ConfigLine::block(format!("forward_auth {token}127.0.0.1:<origin>"), lines)
    }
}
