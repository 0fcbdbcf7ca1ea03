//! `X-Accel-Redirect`: an upstream leaves a response to a location with `internal`, as for files whose access it
//! decides.

use super::content::is_internal;
use super::error_pages::{passes, path_of};
use super::{Translator, inherited, own};
use crate::location::{Location, Locations};
use crate::parse::Directive;
use crate::variables::VariableScope;
use crate::write::block;

/// The type of the response with `X-Accel-Redirect`, before a second upstream has answered.
const FIRST_TYPE: &str = "{rp.header.Content-Type}";
/// A variable with that type.
const FIRST_TYPE_KEPT: &str = "first_type";

/// Fields of the upstream that nginx keeps (its documentation of `X-Accel-Redirect`).
const KEPT_FIELDS: &[&str] =
    &["Content-Type", "Content-Disposition", "Set-Cookie", "Accept-Ranges", "Cache-Control", "Expires"];

/// A field of the response of a location that `X-Accel-Redirect` names: with it, the fields around the upstream are not
/// added. It is removed at last.
const MARK: &str = "Causeway-Accel";

/// The fields of the location around an upstream. nginx sends only those of the location that `X-Accel-Redirect` names.
#[derive(Debug, Default, Clone)]
pub(super) struct OuterFields {
    /// Names of the fields that the response has before the upstream's.
    set: Vec<String>,
    /// Others are added to each response without the mark.
    looks_for_mark: bool,
}

impl OuterFields {
    /// Makes the lines of fields such that they are not for a location that `X-Accel-Redirect` names. Those that are
    /// set before the response are removed there. `decided` are lines after the access rules.
    pub(super) fn keep_from_targets(&mut self, fields: &mut Vec<String>, decided: &mut Vec<String>) {
        let mut looks = false;
        for lines in [&mut *fields, decided] {
            *lines = self.without_mark(std::mem::take(lines), &mut looks);
        }
        self.looks_for_mark |= looks;
        if looks {
            let mut removed = Vec::new();
            // Of the fields that wait for the response, the first line comes last.
            block(&mut removed, "header", vec![format!("-{MARK}"), "defer".to_owned()]);
            removed.append(fields);
            block(fields, "route", removed);
        }
    }

    /// Adds to the lines of fields the condition that the response has no mark. `looks` becomes true if some have it.
    fn without_mark(&mut self, lines: Vec<String>, looks: &mut bool) -> Vec<String> {
        let mut out = Vec::new();
        let mut lines = lines.into_iter();
        while let Some(line) = lines.next() {
            if !line.starts_with("header ") || !line.ends_with('{') {
                let words = line.strip_prefix("header ").unwrap_or_default().split(' ');
                let name = words.into_iter().find(|word| !word.starts_with('@'));
                self.set.extend(
                    name.filter(|name| !name.is_empty()).map(|name| name.trim_start_matches(['+', '?']).to_owned()),
                );
                out.push(line);
                continue;
            }
            *looks = true;
            out.push(line);
            let absent = format!("header !{MARK}");
            let mut conditions = Vec::new();
            for line in lines.by_ref() {
                match line.strip_prefix("match ") {
                    Some("{") => conditions.push(absent.clone()),
                    Some(condition) => block(&mut out, "match", vec![absent.clone(), condition.to_owned()]),
                    None if line == "defer" => block(&mut out, "match", vec![absent.clone()]),
                    None if line == "}" && conditions.is_empty() => {
                        out.push(line);
                        break;
                    }
                    None if line == "}" => block(&mut out, "match", std::mem::take(&mut conditions)),
                    None if conditions.is_empty() => out.push(line),
                    None => conditions.push(line),
                }
            }
        }
        out
    }

    /// The line for an upstream, whose own field is not a mark.
    pub(super) fn line_of_upstream(&self) -> Option<String> {
        self.looks_for_mark.then(|| format!("header_down -{MARK}"))
    }

    /// The line for a location that `X-Accel-Redirect` names.
    fn line_of_target(&self) -> Option<Vec<String>> {
        let mut out = Vec::new();
        // It waits for the response, as an error has another one.
        block(&mut out, "header", vec![format!("{MARK} yes"), "defer".to_owned()]);
        self.looks_for_mark.then_some(out)
    }
}

/// Adds to the lines of a location's fields those that remove the fields with these names, which the response has
/// already.
pub(super) fn replace_fields(names: &[String], fields: Vec<String>) -> Vec<String> {
    let mut left: Vec<&String> = names.iter().collect();
    let mut out: Vec<String> = Vec::new();
    for line in fields {
        let name = line.strip_prefix("header +").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
        let before = left.len();
        left.retain(|other| !other.eq_ignore_ascii_case(name));
        out.push(if left.len() < before { line.replacen('+', "", 1) } else { line });
    }
    // They wait for the response, as the fields that are added to it. Of those the last line comes first.
    out.extend(left.into_iter().map(|name| format!("header -{name}")));
    out
}

impl<'a> Translator<'a> {
    /// Whether the response of a location may be that of one which `X-Accel-Redirect` names. `named` is the location
    /// for missing files.
    pub(super) fn may_leave(&self, location: &Location<'a>, all: &Locations<'a>, named: Option<&Location<'a>>) -> bool {
        let conditions = own(location.own(), "if").into_iter();
        let may_pass = conditions.chain([location.own()]).chain(named.map(Location::own)).any(passes);
        may_pass && !self.is_in_accel && !is_internal(location) && !targets(location, all).is_empty()
    }

    /// Writes how the responses of an upstream with the field are answered, if the server has locations for it. `pass`
    /// is the prefix of the directives, `proxy` or `fastcgi`.
    pub(super) fn write_accel(
        &mut self,
        lines: &mut Vec<String>,
        pass: &str,
        location: &Location<'a>,
        scope: &VariableScope,
    ) {
        let ignored = inherited(&location.blocks, &format!("{pass}_ignore_headers"));
        let is_field = |word: &String| word.eq_ignore_ascii_case("X-Accel-Redirect");
        // An internal location may leave the response to an upstream in turn, whose field is not followed.
        if self.is_in_accel || is_internal(location) || ignored.iter().any(|d| d.arguments.iter().any(is_field)) {
            return;
        }
        let all = Locations::of(location.server_blocks());
        let targets = targets(location, &all);
        if targets.is_empty() {
            return;
        }
        // The query is that of the field, and not the client's.
        let mut answer = self.new_request("rewrite * {rp.header.X-Accel-Redirect}?".to_owned());
        self.is_in_accel = true;
        let named = std::mem::take(&mut self.named);
        let outer_fields = std::mem::take(&mut self.outer_fields);
        for target in targets {
            let (head, capture) = self.location_matcher(&mut answer, target);
            self.replaced_fields.clone_from(&outer_fields.set);
            let content = self.content(target, &all, &target.scope(scope, &capture));
            self.replaced_fields.clear();
            let mut lines = outer_fields.line_of_target().unwrap_or_default();
            let kept = match passes(target.own()) {
                // A second upstream sends fields of its own beside those of the first. There is only one type, which is
                // the second's.
                true => {
                    let name = self.fresh("typed");
                    lines.push(format!("@{name} not vars {FIRST_TYPE} \"\""));
                    lines.push(format!("vars @{name} {FIRST_TYPE_KEPT} {FIRST_TYPE}"));
                    lines.push(format!("header @{name} ?Content-Type {{vars.{FIRST_TYPE_KEPT}}}"));
                    &KEPT_FIELDS[1..]
                }
                false => KEPT_FIELDS,
            };
            block(&mut lines, "copy_response_headers", vec![format!("include {}", kept.join(" "))]);
            lines.extend(content);
            let mut ordered = Vec::new();
            block(&mut ordered, "route", lines);
            block(&mut answer, &head, ordered);
        }
        self.is_in_accel = false;
        self.named = named;
        self.outer_fields = outer_fields;
        block(&mut answer, "handle", vec!["error 404".to_owned()]);
        let accel = self.fresh("accel");
        lines.push(format!("@{accel} header X-Accel-Redirect *"));
        let mut ordered = Vec::new();
        block(&mut ordered, "route", answer);
        block(lines, &format!("handle_response @{accel}"), ordered);
    }
}

/// The locations to which `X-Accel-Redirect` may lead from a location.
fn targets<'l, 'a>(location: &Location<'a>, all: &'l Locations<'a>) -> Vec<&'l Location<'a>> {
    let server = location.server_blocks()[1];
    let is_target = |location: &&Location<'a>| is_internal(location) && !has_page(server, location.prefix());
    all.ordered.iter().filter(is_target).collect()
}

/// Whether a path is that of an error page or of `auth_request`.
fn has_page(block: &Directive, path: &str) -> bool {
    let is_path =
        |name: &str| own(block, name).iter().any(|d| d.arguments.last().is_some_and(|last| path_of(last) == path));
    is_path("error_page") || is_path("auth_request") || block.block().iter().any(|inner| has_page(inner, path))
}
