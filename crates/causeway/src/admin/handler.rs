//! The admin listener's handler: checks the client, then parses the request into a command.

use std::sync::Arc;
use std::time::SystemTime;

use causeway_config::plan::canonical_path;
use causeway_message::{Method, NameRef, names};
use causeway_modules::cache::Purge;
use causeway_pipeline::metrics::Format;
use causeway_pipeline::{Context, Endpoints, Handler, Step};

use super::remote::{RemoteClient, RemoteGuard};
use super::response::AdminResponse;
use super::rules::{Guard, ListenerAccess};
use super::work::{AdminCommand, AuthorityForm, perform};
use super::{AdminState, causal};
use crate::server::{ConfigFile, Force, LoadOrigin, Verb};

const SOURCE_FILE: NameRef<'static> = NameRef::Other("Caddy-Config-Source-File");
const SOURCE_ADAPTER: NameRef<'static> = NameRef::Other("Caddy-Config-Source-Adapter");

/// The handler of the only route of [`Admin`](super::Admin).
#[derive(Clone)]
pub(super) struct AdminHandler {
    guard: Guard,
    state: Arc<AdminState>,
}

impl AdminHandler {
    pub(super) fn new(access: &ListenerAccess, state: Arc<AdminState>) -> Self {
        Self { guard: Guard::new(access), state }
    }
}

impl Handler for AdminHandler {
    fn enter(&self, cx: &mut Context) -> Step {
        // Check Host and Origin first, whatever the path.
        if let Err(response) = self.guard.check(cx) {
            return response.step(cx);
        }
        let endpoint = std::str::from_utf8(cx.path()).ok().and_then(endpoint);
        let parsed =
            parse_command(cx).and_then(|command| check_declared_length(cx, command.body_bytes_max()).map(|()| command));
        let command = match parsed {
            Ok(command) => command,
            Err(response) => {
                if let Some(endpoint) = endpoint {
                    response.count(cx, endpoint, &self.state.metrics);
                }
                return response.step(cx);
            }
        };
        let body = cx.take_body();
        let state = Arc::clone(&self.state);
        let remote = self.guard.remote().map(|guard| (Arc::clone(guard), RemoteClient::of(cx)));
        let (worker, at_work) = (cx.worker().clone(), Arc::clone(&state));
        let work = async move {
            match resolved(command, remote, &at_work).await {
                Ok(command) => perform(command, body, at_work, worker).await,
                Err(response) => response,
            }
        };
        cx.wait(work, move |cx, response: AdminResponse| {
            if let Some(endpoint) = endpoint {
                response.count(cx, endpoint, &state.metrics);
            }
            response.step(cx)
        })
    }
}

/// Replaces `/id/NAME` in a command of a remote client by the path that it stands for now, if the client may use that
/// path: as in Caddy, a permission for the name alone is not enough.
async fn resolved(
    mut command: AdminCommand,
    remote: Option<(Arc<RemoteGuard>, Option<RemoteClient>)>,
    state: &AdminState,
) -> Result<AdminCommand, AdminResponse> {
    let (AdminCommand::Read { path } | AdminCommand::Change { path, .. } | AdminCommand::Refused { path, .. }) =
        &mut command
    else {
        return Ok(command);
    };
    if let Some((guard, client)) = remote.filter(|_| path.starts_with("/id/")) {
        // The path that was checked is the one that is used, even if the name moves meanwhile.
        *path = state.control.resolve(path.clone()).await.map_err(|error| AdminResponse::change_error(&error))?;
        guard.check(client.as_ref(), path, SystemTime::now())?;
    }
    Ok(command)
}

/// The endpoints, as the metrics name them. One that ends in a slash stands for all paths below it.
const ENDPOINTS: [&str; 16] = [
    "/load",
    "/adapt",
    "/stop",
    "/metrics",
    "/reverse_proxy/upstreams",
    "/causal",
    "/causeway/status",
    "/causeway/certificates",
    "/causeway/upgrade",
    "/causeway/cache",
    "/debug/vars",
    causal::PPROF_PATH,
    "/config/",
    "/id/",
    "/pki/",
    "/causal/",
];

/// Returns the endpoint of a path. As in Caddy, requests to no endpoint are not counted.
fn endpoint(path: &str) -> Option<&'static str> {
    ENDPOINTS.into_iter().find(|&endpoint| path == endpoint || endpoint.ends_with('/') && path.starts_with(endpoint))
}

/// Refuses a body by its declared length. A body without a declared length is counted as it arrives.
fn check_declared_length(cx: &Context, bytes_max: usize) -> Result<(), AdminResponse> {
    match cx.head().fields().content_length() {
        Ok(Some(length)) if length > bytes_max as u64 => Err(AdminResponse::too_large(bytes_max)),
        _ => Ok(()),
    }
}

/// Parses a request into a command.
fn parse_command(cx: &Context) -> Result<AdminCommand, AdminResponse> {
    let head = cx.head();
    let target = head.target();
    if let Some(mut location) = canonical_location(target.path()) {
        if let Some(query) = target.query() {
            location = format!("{location}?{query}");
        }
        return Err(AdminResponse::redirect(location));
    }
    let path = String::from_utf8_lossy(cx.path()).into_owned();
    let method = head.method();
    let text = |name: NameRef<'_>| {
        let value = head.fields().get(name).unwrap_or_default();
        String::from_utf8_lossy(value).into_owned()
    };
    let only_post = |command| match method {
        Method::Post => Ok(command),
        _ => Err(AdminResponse::not_allowed("POST")),
    };
    let content_type = text(names::CONTENT_TYPE.into());
    let force = match head.fields().has_token(names::CACHE_CONTROL, "must-revalidate") {
        true => Force::Always,
        false => Force::IfChanged,
    };
    let source = ConfigFile { file: text(SOURCE_FILE).into(), adapter: text(SOURCE_ADAPTER) };
    let by = LoadOrigin::Peer((!source.file.as_os_str().is_empty()).then_some(source));
    match &*path {
        "/load" => only_post(AdminCommand::Load { content_type, force, by }),
        "/adapt" => only_post(AdminCommand::Adapt { content_type }),
        "/stop" => only_post(AdminCommand::Stop),
        "/causeway/upgrade" => {
            let is_over_unix = matches!(cx.arrival().ends, Endpoints::Unix(_));
            let command = only_post(AdminCommand::Upgrade { is_over_unix })?;
            require_json(&content_type).map(|()| command)
        }
        _ if path.starts_with("/pki/") => parse_authority(&path, method),
        _ if path == "/causal" || path.starts_with("/causal/") || path == causal::PPROF_PATH => {
            causal::parse_command(&path, method, target.query())
                .unwrap_or_else(|| Err(nothing_at(&path)))
                .map(AdminCommand::Causal)
        }
        "/metrics" if matches!(method, Method::Get | Method::Head) => {
            let accept = head.fields().get(names::ACCEPT).unwrap_or_default();
            Ok(AdminCommand::Metrics(Format::accepted(accept)))
        }
        "/metrics" => Err(AdminResponse::not_allowed("GET, HEAD")),
        "/causeway/status" if method == Method::Get => Ok(AdminCommand::Status),
        "/causeway/certificates" if method == Method::Get => Ok(AdminCommand::Certificates),
        "/reverse_proxy/upstreams" if method == Method::Get => Ok(AdminCommand::Upstreams),
        "/debug/vars" if method == Method::Get => Ok(AdminCommand::Variables),
        "/causeway/cache" => match method {
            Method::Get => Ok(AdminCommand::CacheUsage),
            Method::Delete => purge(target.query().unwrap_or_default())
                .map(AdminCommand::Purge)
                .map_err(|message| AdminResponse::error(400, message)),
            _ => Err(AdminResponse::not_allowed("GET, DELETE")),
        },
        "/debug/vars" | "/causeway/status" | "/causeway/certificates" | "/reverse_proxy/upstreams" => {
            Err(AdminResponse::not_allowed("GET"))
        }
        _ if path.starts_with("/config/") || path.starts_with("/id/") => {
            let if_match = Some(text(names::IF_MATCH.into())).filter(|tag| !tag.is_empty());
            match parse_verb(method, &content_type) {
                Ok(None) => Ok(AdminCommand::Read { path }),
                Ok(Some(verb)) => Ok(AdminCommand::Change { verb, path, if_match, force, by }),
                // A mistake in the `@id` precedes one in the method or the content type.
                Err(response) if path.starts_with("/id/") => Ok(AdminCommand::Refused { path, response }),
                Err(response) => Err(response),
            }
        }
        _ => Err(nothing_at(&path)),
    }
}

/// Returns the change that a request to `/config/` or `/id/` makes; `None` if it reads.
fn parse_verb(method: Method<'_>, content_type: &str) -> Result<Option<Verb>, AdminResponse> {
    let verb = match method {
        Method::Get => return Ok(None),
        Method::Delete => return Ok(Some(Verb::Delete)),
        Method::Post => Verb::Post,
        Method::Put => Verb::Put,
        Method::Patch => Verb::Patch,
        other => {
            let message = format!("method {} not allowed", other.as_str());
            return Err(AdminResponse::not_allowed_with("GET, POST, PUT, PATCH, DELETE", message));
        }
    };
    require_json(content_type).map(|()| Some(verb))
}

/// Refuses another content type than JSON: a page of another origin may send such types without a CORS preflight.
fn require_json(content_type: &str) -> Result<(), AdminResponse> {
    if content_type.contains("/json") {
        return Ok(());
    }
    let message = format!("unacceptable content-type: {content_type}; 'application/json' required");
    Err(AdminResponse::error(400, message))
}

/// Parses `/pki/ca/ID` and `/pki/ca/ID/certificates`.
fn parse_authority(path: &str, method: Method<'_>) -> Result<AdminCommand, AdminResponse> {
    let steps: Vec<_> = path["/pki/".len()..].split('/').collect();
    match steps[..] {
        // A malformed path is a 404 for every method.
        ["ca", id, ..] if id.is_empty() || steps.len() > 3 => Err(nothing_at(path)),
        ["ca", _, last] if last != "certificates" => Err(nothing_at(path)),
        ["ca", ..] if method != Method::Get => Err(AdminResponse::not_allowed("GET")),
        ["ca", id] => Ok(AdminCommand::Authority { id: id.to_owned(), form: AuthorityForm::Json }),
        ["ca", id, _] => Ok(AdminCommand::Authority { id: id.to_owned(), form: AuthorityForm::Pem }),
        _ => Err(nothing_at(path)),
    }
}

/// Reads which stored responses a request removes: all of them without a query.
fn purge(query: &str) -> Result<Purge, String> {
    let mut which = Purge::All;
    for (key, value) in causal::pairs(query) {
        if which != Purge::All {
            return Err("found a second parameter, expected one of uri, prefix and tag".into());
        }
        which = match &*key {
            _ if value.is_empty() => return Err(format!("{key}: found an empty text")),
            "uri" => Purge::Uri(value),
            "prefix" => Purge::Prefix(value),
            "tag" => Purge::Tag(value),
            _ => return Err(format!("found '{key}', expected uri, prefix or tag")),
        };
    }
    Ok(which)
}

fn nothing_at(path: &str) -> AdminResponse {
    let message = "the endpoints are /config/, /id/, /load, /adapt, /stop, /pki/ca/, /metrics, /reverse_proxy/upstreams, \
                 /causal, /causeway/status, /causeway/certificates, /causeway/upgrade, \
                 /causeway/cache, /debug/vars and /debug/pprof/profile";
    AdminResponse::error(404, format!("no endpoint at {path}; {message}"))
}

/// Returns the canonical path to redirect to when `path` is not canonical. As in Caddy, empty and dot segments are
/// removed, and the roots end in a slash.
fn canonical_location(path: &str) -> Option<String> {
    let mut clean = canonical_path(path);
    let is_root = matches!(&*clean, "/config" | "/id");
    if clean != "/" && (path.ends_with('/') || is_root) {
        clean.push('/');
    }
    (clean != path).then_some(clean)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{ENDPOINTS, canonical_location, nothing_at};

    // `parse_command` has the methods of each; the command line's test `endpoints` sends a request to each.
    #[test]
    fn endpoints_are_named_in_responses_and_documentation() {
        let response = nothing_at("/");
        let (_, message) = response.status_and_error();
        let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/admin-api.md");
        let document = std::fs::read_to_string(document).unwrap();
        for endpoint in ENDPOINTS {
            let name = endpoint.trim_end_matches('/');
            assert!(message.contains(name), "{name} is missing in the message of `nothing_at`: {message}");
            assert!(document.contains(name), "{name} is missing in docs/admin-api.md");
        }
    }

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
            assert_eq!(canonical_location(path).as_deref(), want, "{path}");
        }
    }
}
