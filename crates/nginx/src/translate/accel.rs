//! `X-Accel-Redirect`: an upstream leaves a response to a location with `internal`, as for files whose access it decides.

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

impl<'a> Translator<'a> {
    /// Writes how the responses of an upstream with the field are answered, if the server has locations for it. `pass` is the prefix of
    /// the directives, `proxy` or `fastcgi`.
    pub(super) fn accel(
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
        let server = location.server_blocks()[1];
        let is_target = |location: &&Location<'a>| is_internal(location) && !has_page(server, location.prefix());
        let targets: Vec<&Location<'a>> = all.ordered.iter().filter(is_target).collect();
        if targets.is_empty() {
            return;
        }
        // The query is that of the field, and not the client's.
        let mut answer = self.new_request("rewrite * {rp.header.X-Accel-Redirect}?".to_owned());
        self.is_in_accel = true;
        let named = std::mem::take(&mut self.named);
        for target in targets {
            let (head, capture) = self.location_matcher(&mut answer, target);
            let content = self.content(target, &all, &target.scope(scope, &capture));
            let mut lines = Vec::new();
            let kept = match passes(target.own()) {
                // A second upstream sends fields of its own beside those of the first. There is only one type, which is the second's.
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
        block(&mut answer, "handle", vec!["error 404".to_owned()]);
        let accel = self.fresh("accel");
        lines.push(format!("@{accel} header X-Accel-Redirect *"));
        let mut ordered = Vec::new();
        block(&mut ordered, "route", answer);
        block(lines, &format!("handle_response @{accel}"), ordered);
    }
}

/// Whether a path is that of an error page or of `auth_request`.
fn has_page(block: &Directive, path: &str) -> bool {
    let is_path =
        |name: &str| own(block, name).iter().any(|d| d.arguments.last().is_some_and(|last| path_of(last) == path));
    is_path("error_page") || is_path("auth_request") || block.block().iter().any(|inner| has_page(inner, path))
}
