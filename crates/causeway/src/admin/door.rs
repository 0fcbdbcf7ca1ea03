//! The handler behind the admin listener: who asks, for what, and whether that may be asked at all.

use std::sync::Arc;

use causeway_message::{Method, NameRef, names};
use causeway_pipeline::{Context, Handler, Step};

use super::answer::Answer;
use super::rules::{Guard, Rules};
use super::work::{Ask, AuthorityForm, perform};
use super::{Office, causal};
use crate::server::{By, Force, Source, Verb};

const SOURCE_FILE: NameRef<'static> = NameRef::Other("Caddy-Config-Source-File");
const SOURCE_ADAPTER: NameRef<'static> = NameRef::Other("Caddy-Config-Source-Adapter");

#[derive(Clone)]
pub(super) struct Door {
    guard: Guard,
    office: Arc<Office>,
}

impl Door {
    pub(super) fn new(rules: &Rules, office: Arc<Office>) -> Self {
        Self { guard: Guard::new(rules), office }
    }
}

impl Handler for Door {
    fn enter(&self, cx: &mut Context) -> Step {
        let asked = self.guard.check(cx).and_then(|()| ask(cx));
        let ask = match asked.and_then(|ask| too_large(cx, ask.body_octets_max()).map(|()| ask)) {
            Ok(ask) => ask,
            Err(answer) => return answer.step(cx),
        };
        let body = cx.take_body();
        let work = perform(ask, body, Arc::clone(&self.office), cx.worker().clone());
        cx.wait(work, |cx, answer: Answer| answer.step(cx))
    }
}

/// Refuses a body by the length that it announces; one that announces none is counted as it comes.
fn too_large(cx: &Context, octets_max: usize) -> Result<(), Answer> {
    match cx.head().fields().content_length() {
        Ok(Some(length)) if length > octets_max as u64 => Err(Answer::too_large(octets_max)),
        _ => Ok(()),
    }
}

/// What a request asks for.
fn ask(cx: &Context) -> Result<Ask, Answer> {
    let head = cx.head();
    let target = head.target();
    if let Some(mut location) = elsewhere(target.path()) {
        if let Some(query) = target.query() {
            location = format!("{location}?{query}");
        }
        return Err(Answer::elsewhere(location));
    }
    let path = String::from_utf8_lossy(cx.path()).into_owned();
    let method = head.method();
    let text = |name: NameRef<'_>| {
        let value = head.fields().get(name).unwrap_or_default();
        String::from_utf8_lossy(value).into_owned()
    };
    let only_post = |ask| match method {
        Method::Post => Ok(ask),
        _ => Err(Answer::error(405, "method not allowed")),
    };
    let content_type = text(names::CONTENT_TYPE.into());
    let force = match head.fields().has_token(names::CACHE_CONTROL, "must-revalidate") {
        true => Force::Always,
        false => Force::IfChanged,
    };
    let source = Source { file: text(SOURCE_FILE).into(), adapter: text(SOURCE_ADAPTER) };
    let by = By::Peer((!source.file.as_os_str().is_empty()).then_some(source));
    match &*path {
        "/load" => only_post(Ask::Load { content_type, force, by }),
        "/adapt" => only_post(Ask::Adapt { content_type }),
        "/stop" => only_post(Ask::Stop),
        place if place.starts_with("/pki/") => {
            let steps: Vec<_> = place["/pki/".len()..].split('/').collect();
            match steps[..] {
                ["ca", id, ..] if id.is_empty() || steps.len() > 3 => Err(nothing_at(place)),
                ["ca", _, last] if last != "certificates" => Err(nothing_at(place)),
                ["ca", ..] if method != Method::Get => Err(Answer::error(405, "method not allowed")),
                ["ca", id] => Ok(Ask::Authority { id: id.to_owned(), form: AuthorityForm::Json }),
                ["ca", id, _] => Ok(Ask::Authority { id: id.to_owned(), form: AuthorityForm::Pem }),
                _ => Err(nothing_at(place)),
            }
        }
        place if place == "/causal" || place.starts_with("/causal/") => {
            causal::ask(place, method, target.query()).unwrap_or_else(|| Err(nothing_at(place))).map(Ask::Causal)
        }
        "/causeway/status" if method == Method::Get => Ok(Ask::Status),
        "/causeway/status" => Err(Answer::error(405, "method not allowed")),
        place if place.starts_with("/config/") || place.starts_with("/id/") => {
            let verb = match method {
                Method::Get => return Ok(Ask::Read { path }),
                Method::Post => Verb::Post,
                Method::Put => Verb::Put,
                Method::Patch => Verb::Patch,
                Method::Delete => Verb::Delete,
                other => return Err(Answer::error(405, format!("method {} not allowed", other.as_str()))),
            };
            // A page of another origin may send any other kind without asking first.
            if verb != Verb::Delete && !content_type.contains("/json") {
                let words = format!("unacceptable content-type: {content_type}; 'application/json' required");
                return Err(Answer::error(400, words));
            }
            let if_match = Some(text(names::IF_MATCH.into())).filter(|tag| !tag.is_empty());
            Ok(Ask::Change { verb, path, if_match, force, by })
        }
        _ => Err(nothing_at(&path)),
    }
}

fn nothing_at(path: &str) -> Answer {
    let words = "there are /config/, /id/, /load, /adapt, /stop, /pki/ca/, /causal and /causeway/status";
    Answer::error(404, format!("nothing is at {path}; {words}"))
}

/// Where a path leads that is not in the one spelling that is looked at, as in Caddy: no empty and no dot segments, and a slash
/// behind the roots.
fn elsewhere(path: &str) -> Option<String> {
    let mut segments = Vec::new();
    for segment in path.split('/').filter(|segment| !matches!(*segment, "" | ".")) {
        if segment == ".." {
            segments.pop();
        } else {
            segments.push(segment);
        }
    }
    let mut clean = format!("/{}", segments.join("/"));
    let is_root = matches!(&*clean, "/config" | "/id");
    if !segments.is_empty() && (path.ends_with('/') || is_root) {
        clean.push('/');
    }
    (clean != path).then_some(clean)
}

#[cfg(test)]
mod tests {
    use super::elsewhere;

    #[test]
    fn paths_in_another_spelling() {
        for (path, want) in [
            ("/config", Some("/config/")),
            ("/id", Some("/id/")),
            ("/config//apps", Some("/config/apps")),
            ("/config/./apps/../x/", Some("/config/x/")),
            ("/..//config/", Some("/config/")),
            ("/config/", None),
            ("/config/a/...", None),
            ("/load", None),
            ("/", None),
        ] {
            assert_eq!(elsewhere(path).as_deref(), want, "{path}");
        }
    }
}
