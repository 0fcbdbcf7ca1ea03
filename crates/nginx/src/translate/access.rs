//! Access to a location: addresses, methods, passwords, rates, requests to an upstream that decides, and the rules that
//! refuse requests.

use super::fields::ADDED;
use super::rules::is_url;
use super::tables::REFUSING;
use super::upstream::{copied, kept_field};
use super::upstream_address::with_constants;
use super::{Translator, active, inherited, own, value};
use crate::location::{Location, Locations, location_blocks};
use crate::parse::Directive;
use crate::variables::VariableScope;
use crate::write::{block, quote};

/// More requests than any bucket needs.
const EVENTS_MAX: u64 = 1_000_000;

impl<'a> Translator<'a> {
    /// `limit_req`
    pub(super) fn write_limits(&mut self, out: &mut Vec<String>, blocks: &[&'a Directive], scope: &VariableScope) {
        for limit in inherited(blocks, "limit_req") {
            self.write_limit(out, limit, blocks, scope);
        }
    }

    /// The rules of a location that decide whether a request may go on.
    pub(super) fn write_access(&mut self, out: &mut Vec<String>, blocks: &[&'a Directive], scope: &VariableScope) {
        if REFUSING.iter().any(|name| active(blocks, name).is_some()) {
            // Never open because a module is unknown here.
            out.push("# A directive that may refuse requests has no equivalent, so all are refused.".to_owned());
            out.push("error 403".to_owned());
        }
        let level = blocks.iter().rev().find(|b| b.block().iter().any(|d| matches!(&*d.name, "allow" | "deny")));
        let rules = level.map(|level| level.block()).unwrap_or_default();
        if let Some(satisfy) = inherited(blocks, "satisfy").last().copied().filter(|d| d.argument(0) == "any")
            && self.satisfy_any(out, satisfy, rules, blocks)
        {
            return;
        }
        self.write_address_rules(out, rules, None);
        if let Some(realm) = active(blocks, "auth_basic") {
            self.write_passwords(out, realm, blocks, "");
        }
        if let Some(request) = active(blocks, "auth_request") {
            self.write_forward_auth(out, request, blocks, scope);
        }
    }

    /// The lines `allow` and `deny`, of which the first that names the address counts, for the requests that a
    /// matcher's line selects.
    fn write_address_rules(&mut self, out: &mut Vec<String>, rules: &[Directive], condition: Option<&str>) {
        let matcher = self.address_matcher();
        let mut allowed: Vec<String> = Vec::new();
        for rule in rules {
            match (&*rule.name, rule.argument(0)) {
                ("allow" | "deny", "unix:") => self.note(out, rule, "no matcher for peers at Unix sockets"),
                ("allow", "all") => break,
                ("allow", range) => allowed.push(quote(range)),
                ("deny", range) => {
                    let mut lines: Vec<String> = condition.into_iter().map(str::to_owned).collect();
                    if range != "all" {
                        lines.push(format!("{matcher} {}", quote(range)));
                    }
                    if !allowed.is_empty() {
                        lines.push(format!("not {matcher} {}", allowed.join(" ")));
                    }
                    if lines.is_empty() {
                        out.push("error 403".to_owned());
                        break;
                    }
                    let name = self.fresh(if condition.is_some() { "other_methods" } else { "denied" });
                    block(out, &format!("@{name}"), lines);
                    out.push(format!("error @{name} 403"));
                    if range == "all" {
                        break;
                    }
                }
                _ => {}
            }
        }
    }

    /// `satisfy any`: the addresses that `allow` names need no password. Returns whether the rules have this form; all
    /// of them apply otherwise.
    fn satisfy_any(
        &mut self,
        out: &mut Vec<String>,
        satisfy: &Directive,
        rules: &[Directive],
        blocks: &[&'a Directive],
    ) -> bool {
        let rules: Vec<(&str, &str)> = rules
            .iter()
            .filter(|rule| matches!(&*rule.name, "allow" | "deny"))
            .map(|rule| (&*rule.name, rule.argument(0)))
            .collect();
        let has_request = active(blocks, "auth_request").is_some();
        let Some(realm) = active(blocks, "auth_basic").filter(|_| !has_request) else {
            // With one kind of rules both values of `satisfy` are equal.
            if has_request && !rules.is_empty() {
                self.note(out, satisfy, "only with addresses and a password; all rules apply");
            }
            return false;
        };
        let Some((("deny", "all"), allowed)) = rules.split_last() else {
            if !rules.is_empty() {
                self.note(out, satisfy, "only with lines 'allow' and a last 'deny all'; all rules apply");
            }
            return false;
        };
        if allowed.is_empty()
            || !allowed.iter().all(|(name, range)| *name == "allow" && !matches!(*range, "all" | "unix:"))
        {
            self.note(out, satisfy, "only with lines 'allow' and a last 'deny all'; all rules apply");
            return false;
        }
        let name = self.fresh("outside");
        let ranges: Vec<&str> = allowed.iter().map(|(_, range)| *range).collect();
        out.push(format!("@{name} not {} {}", self.address_matcher(), ranges.join(" ")));
        self.write_passwords(out, realm, blocks, &format!("@{name} "));
        true
    }

    /// Refuses the methods that `limit_except` of the last of the blocks does not name, but for the addresses that it
    /// allows.
    pub(super) fn write_other_methods(&mut self, out: &mut Vec<String>, blocks: &[&Directive], scope: &VariableScope) {
        let Some(owner) = blocks.last() else { return };
        for limit in own(owner, "limit_except") {
            let mut lines = Vec::new();
            self.limit_methods(&mut lines, limit);
            for line in lines {
                match line.strip_prefix("error @").and_then(|rest| rest.strip_suffix(" 403")) {
                    Some(matcher) => self.refuse(out, matcher, 403, blocks, scope),
                    None => out.push(line),
                }
            }
        }
    }

    fn limit_methods(&mut self, out: &mut Vec<String>, limit: &Directive) {
        let mut methods: Vec<&str> = limit.arguments.iter().map(String::as_str).collect();
        if methods.contains(&"GET") && !methods.contains(&"HEAD") {
            methods.push("HEAD");
        }
        let condition = format!("not method {}", methods.join(" "));
        let rules: Vec<_> =
            limit.block().iter().filter(|rule| !matches!(&*rule.name, "#" | "allow" | "deny")).collect();
        if rules.is_empty() {
            return self.write_address_rules(out, limit.block(), Some(&condition));
        }
        self.note(out, limit, "only 'allow' and 'deny' are carried over; the other methods are refused");
        let name = self.fresh("other_methods");
        out.push(format!("@{name} {condition}"));
        out.push(format!("error @{name} 403"));
    }

    fn write_limit(
        &mut self,
        out: &mut Vec<String>,
        limit: &Directive,
        blocks: &[&'a Directive],
        scope: &VariableScope,
    ) {
        let word = |d: &Directive, key: &str| d.arguments.iter().find_map(|w| w.strip_prefix(key).map(str::to_owned));
        let name = word(limit, "zone=").unwrap_or_default();
        let zone = self.shared.zones.get(name.as_str()).copied();
        let rate = zone.and_then(|zone| word(zone, "rate="));
        let rate = rate.as_deref().and_then(|rate| {
            let per_second = rate.strip_suffix("r/s").map(|n| (n, 1000_u64));
            let (number, window) = per_second.or_else(|| rate.strip_suffix("r/m").map(|n| (n, 60_000)))?;
            Some((number.parse::<u64>().ok().filter(|n| *n > 0)?, window))
        });
        let (Some(zone), Some((number, window))) = (zone, rate) else {
            return self.note(out, limit, "found no 'limit_req_zone' of this name with a rate");
        };
        let Some(key) = self.expand_path(out, zone, scope, zone.argument(0)) else { return };
        let key = if key.is_empty() { "all".to_owned() } else { key };
        let burst = word(limit, "burst=").and_then(|burst| burst.parse::<u64>().ok()).unwrap_or(0);
        // A leaky bucket lets a burst through and then the rate: as many in the time that the bucket takes to empty.
        let events = burst.saturating_add(1).min(EVENTS_MAX);
        let window = (window.saturating_mul(events) / number).max(1);
        match inherited(blocks, "limit_req_status").last() {
            None => out.push("# The status beyond the limit is 429; nginx's is 503.".to_owned()),
            Some(status) if status.argument(0) == "429" => {}
            Some(status) => self.note(out, status, "the status beyond the limit is 429"),
        }
        let mut lines = vec![format!("key {}", quote(&key)), format!("window {window}ms"), format!("events {events}")];
        // nginx counts no request whose key is empty.
        if self.may_be_empty(zone.argument(0), scope) {
            block(&mut lines, "match", vec![format!("not vars {} \"\"", quote(&key))]);
        }
        let mut zone = Vec::new();
        block(&mut zone, &format!("zone {name}"), lines);
        block(out, "rate_limit", zone);
    }

    /// Requires a password of the requests that `matcher` selects: empty for all, else with a space after it.
    fn write_passwords(&mut self, out: &mut Vec<String>, realm: &Directive, blocks: &[&'a Directive], matcher: &str) {
        let Some(list) = inherited(blocks, "auth_basic_user_file").last().copied() else {
            out.push(format!("error {matcher}403"));
            return self.note(out, realm, "there is no 'auth_basic_user_file'; all requests are refused");
        };
        if realm.argument(0).contains('$') {
            self.remark(out, realm, "a password is always required, also where the variable is 'off'");
        }
        let mut accounts = Vec::new();
        match self.files.read(&with_constants(list.argument(0), blocks)) {
            Err(reason) => self.note(out, list, &reason),
            Ok(text) => {
                for (user, hash) in text.lines().filter_map(|line| line.trim().split_once(':')) {
                    if user.starts_with('#') {
                        continue;
                    }
                    let hash = hash.split(':').next().unwrap_or_default();
                    if ["$2y$", "$2a$", "$2b$"].iter().any(|kind| hash.starts_with(kind)) {
                        accounts.push(format!("{} {}", quote(user), quote(hash)));
                    } else {
                        let reason = format!(
                            "the password of '{user}' is not hashed with bcrypt; `causeway hash-password` makes such a hash"
                        );
                        self.note(out, list, &reason);
                    }
                }
            }
        }
        if accounts.is_empty() {
            // Never open because a list could not be read.
            out.push("# Without an account all requests are refused.".to_owned());
            out.push(format!("error {matcher}401"));
        } else {
            block(out, &format!("basic_auth {matcher}bcrypt {}", quote(realm.argument(0))), accounts);
        }
    }

    /// `auth_request`: the location of its URI is the upstream that decides.
    fn write_forward_auth(
        &mut self,
        out: &mut Vec<String>,
        request: &Directive,
        blocks: &[&'a Directive],
        scope: &VariableScope,
    ) {
        let all = Locations::of(&blocks[..2]);
        let path = request.argument(0);
        let chosen = all.chosen(path);
        let pass = chosen.and_then(|chosen| own(chosen.own(), "proxy_pass").first().copied());
        let url = pass.and_then(|pass| pass.argument(0).split_once("://"));
        let url = url.filter(|(scheme, rest)| {
            matches!(*scheme, "http" | "https") && !rest.contains('$') && !rest.starts_with("unix:")
        });
        let (Some(chosen), Some((scheme, target))) = (chosen, url) else {
            out.push("error 403".to_owned());
            return self.note(
                out,
                request,
                "found no location of this path with 'proxy_pass' and an address; all requests are refused",
            );
        };
        let (host, uri) = match target.find('/') {
            None => (target, path.to_owned()),
            // The URI takes the place of the location's prefix.
            Some(at) => (&target[..at], format!("{}{}", &target[at..], &path[chosen.prefix().len()..])),
        };
        // The request to the upstream has the URI's query, and not the client's.
        let query = if uri.contains('?') { "" } else { "?" };
        let mut lines = vec![format!("uri {}", quote(&format!("{uri}{query}")))];
        let mut scope = scope.clone();
        scope.proxy_host = host.to_owned();
        self.fields_up(out, &mut lines, &chosen.blocks, &scope);
        for set in inherited(blocks, "auth_request_set") {
            // An `if` may have lines of its own.
            let conditions = blocks.last().map(|owner| own(owner, "if")).unwrap_or_default().into_iter();
            let in_conditions = || conditions.map(|inner| [blocks, &[inner]].concat());
            let of_client =
                field_of_client(set, blocks).or_else(|| in_conditions().find_map(|inner| field_of_client(set, &inner)));
            match copied(set, blocks) {
                Some((from, to)) if to != kept_field(&from, blocks) => {}
                Some((from, to)) if from.eq_ignore_ascii_case(to) => lines.push(format!("copy_headers {to}")),
                Some((from, to)) => lines.push(format!("copy_headers {from}>{to}")),
                None if let Some((from, kept, _)) = &of_client => lines.push(format!("copy_headers {from}>{kept}")),
                None => self.note(
                    out,
                    set,
                    "only a field of the response, '$upstream_http_…', that 'proxy_set_header' or 'add_header' sends unchanged is carried over",
                ),
            }
        }
        // The client gets the server's own page, and of the upstream's fields only that of a password.
        for code in ["401", "403"] {
            let answer = self.page_of_refusal(out, code, blocks, &all, &scope);
            let mut answer = answer.unwrap_or_else(|| vec![format!("error {code}")]);
            if code == "401" {
                let mut copied = Vec::new();
                block(&mut copied, "copy_response_headers", vec!["include WWW-Authenticate".to_owned()]);
                answer.splice(..0, copied);
            }
            let name = self.fresh("refused");
            lines.push(format!("@{name} status {code}"));
            block(&mut lines, &format!("handle_response @{name}"), answer);
        }
        let name = self.fresh("unexpected");
        lines.push(format!("@{name} status 3xx 4xx 5xx"));
        block(&mut lines, &format!("handle_response @{name}"), vec!["error 500".to_owned()]);
        let usual = if scheme == "https" { 443 } else { 80 };
        let hosts = self.upstream_addresses(host, usual);
        self.write_transport(out, &mut lines, (scheme, host), &chosen.blocks, &scope);
        block(out, &format!("forward_auth {}", hosts.join(" ")), lines);
    }

    /// Writes the fields of responses that the upstream of `auth_request` has decided, after the request to it.
    pub(super) fn write_decided_fields(&mut self, out: &mut Vec<String>, blocks: &[&Directive]) {
        for (kept, field) in decided_fields(blocks) {
            let name = self.fresh("decided");
            out.push(format!("@{name} header {kept} *"));
            let line = format!("+{} {{header.{kept}}}", field.argument(0));
            let late = if field.argument(2) == "always" { "defer".to_owned() } else { format!("match status {ADDED}") };
            let mut lines = Vec::new();
            block(&mut lines, "header", vec![line, late]);
            block(out, &format!("route @{name}"), lines);
        }
    }

    /// The lines that answer a request which `auth_request` refuses with a status that has an `error_page`: those of a
    /// short page, or the error itself for `handle_errors`. `None` without a page.
    fn page_of_refusal(
        &mut self,
        out: &mut Vec<String>,
        code: &str,
        blocks: &[&'a Directive],
        all: &Locations<'a>,
        scope: &VariableScope,
    ) -> Option<Vec<String>> {
        let has_code = |page: &&Directive| page.arguments.iter().any(|word| word == code);
        let page = inherited(blocks, "error_page").into_iter().find(has_code)?;
        if location_blocks(blocks).iter().all(|block| own(block, "error_page").is_empty()) {
            return Some(vec![format!("error {code}")]);
        }
        let target = page.arguments.last()?;
        if is_url(target) {
            let text = self.expand(out, page, scope, target)?;
            return Some(vec![format!("redir * {} 302", quote(&text))]);
        }
        let answer = target.strip_prefix('@').and_then(|name| all.named(name)).map(|named| {
            let answer = own(named.own(), "return").first().copied();
            answer.map(|answer| self.write_return(out, answer, &named.blocks, scope)).filter(|lines| !lines.is_empty())
        });
        answer.flatten().or_else(|| Some(vec![format!("error {code}")]))
    }
}

/// Returns the field of the upstream of `auth_request`, the request's field that keeps its value, and the line
/// `add_header` that sends it to the client, if a variable of `auth_request_set` only copies it.
pub(super) fn field_of_client<'a>(
    set: &Directive,
    blocks: &[&'a Directive],
) -> Option<(String, String, &'a Directive)> {
    let from = set.argument(1).strip_prefix("$upstream_http_")?.replace('_', "-");
    let field = inherited(blocks, "add_header").into_iter().find(|field| field.argument(1) == set.argument(0))?;
    let kept = kept_field(&from, blocks);
    Some((from, kept, field))
}

/// The lines `add_header` whose values the upstream of `auth_request` has decided, each after the request's field that
/// keeps the value.
pub(super) fn decided_fields<'a>(blocks: &[&'a Directive]) -> Vec<(String, &'a Directive)> {
    if active(blocks, "auth_request").is_none() {
        return Vec::new();
    }
    let sets = inherited(blocks, "auth_request_set").into_iter();
    sets.filter_map(|set| field_of_client(set, blocks)).map(|(_, kept, field)| (kept, field)).collect()
}

/// Whether a location, or one around it, has rules that refuse requests.
pub(super) fn restricts(location: &Location<'_>) -> bool {
    location.location_blocks().iter().any(|block| block.block().iter().any(refuses))
}

/// Whether the addresses of no client may request a location.
pub(super) fn denies_all(location: &Directive) -> bool {
    let denies = own(location, "deny").iter().any(|deny| deny.argument(0) == "all");
    denies && own(location, "allow").is_empty() && value(&[location], "satisfy") != Some("any")
}

/// Whether a location refuses all requests.
pub(super) fn refuses_all(location: &Directive) -> bool {
    let returns = own(location, "return");
    let answers =
        returns.first().is_some_and(|answer| answer.argument(0).parse().is_ok_and(|status: u16| status >= 400));
    denies_all(location) || answers || !own(location, "internal").is_empty()
}

/// Whether a rule may refuse requests.
pub(super) fn refuses(rule: &Directive) -> bool {
    match &*rule.name {
        "deny" | "internal" | "limit_except" | "limit_req" => true,
        "auth_basic" | "auth_request" => rule.argument(0) != "off",
        name if REFUSING.contains(&name) => rule.argument(0) != "off",
        "return" => rule.argument(0).parse().is_ok_and(|status: u16| status >= 400),
        "if" => rule.block().iter().any(refuses),
        _ => false,
    }
}
