//! `httpInclude`: responses of this server to requests that it makes itself.

use std::collections::BTreeSet;

use causeway_message::{FieldValue, Method, NameRef, StatusCode, names};
use causeway_pipeline::detached::fetch;
use causeway_pipeline::{Context, Ending};

use super::TEMPLATE_BYTES_MAX;

/// Caddy's field with the number of templates that include this request.
const DEPTH: NameRef<'static> = NameRef::Other("Caddy-Templates-Include");
/// Templates that include each other, as in Caddy.
const DEPTH_MAX: u64 = 3;
/// Responses that one execution of a template may add.
const INCLUDES_MAX: usize = 64;

/// Requests these URIs of the exchange's server, one after the other; returns the content of each response, or why
/// there is none. All contents together have at most `bytes_left` bytes.
pub(super) fn responses(
    cx: &Context,
    uris: BTreeSet<String>,
    mut bytes_left: usize,
) -> impl Future<Output = Vec<(String, Result<Vec<u8>, String>)>> + use<> {
    let requests: Vec<_> = uris
        .into_iter()
        .enumerate()
        .map(|(index, uri)| {
            let request = if index < INCLUDES_MAX {
                request(cx, &uri)
            } else {
                Err(format!("a template includes more than {INCLUDES_MAX} responses at a time"))
            };
            (uri, request)
        })
        .collect();
    async move {
        let mut responses = Vec::with_capacity(requests.len());
        for (uri, request) in requests {
            let content = match request {
                Ok(request) => content(fetch(request, bytes_left).await),
                Err(cause) => Err(cause),
            };
            bytes_left -= content.as_ref().map_or(0, Vec::len);
            responses.push((uri, content));
        }
        responses
    }
}

fn content(fetched: Result<(StatusCode, Vec<u8>), Ending>) -> Result<Vec<u8>, String> {
    match fetched {
        // As in Caddy.
        Ok((status, _)) if status.as_u16() >= 400 => Err(format!("http {}", status.as_u16())),
        Ok((_, content)) => Ok(content),
        Err(Ending::TimedOut) => Err("no response in time".to_owned()),
        Err(_) => Err(format!("no whole response; all of them may have {TEMPLATE_BYTES_MAX} bytes")),
    }
}

/// Makes a GET request with the fields of the client's request.
fn request(cx: &Context, uri: &str) -> Result<Context, String> {
    let depth = match cx.original().fields().get(DEPTH) {
        None | Some(b"") => 0,
        Some(value) => {
            let depth = std::str::from_utf8(value).ok().and_then(|value| value.parse::<i64>().ok());
            let depth = depth.ok_or("the field Caddy-Templates-Include is no number")?;
            // A client sends a negative one: with it, templates must not include each other more often.
            depth.max(0).unsigned_abs()
        }
    };
    if depth >= DEPTH_MAX {
        return Err("virtual request cycle".to_owned());
    }
    // RFC 9112 §3.2.1: the path of this server, with a query.
    let mut is_target = uri.starts_with('/');
    let request = cx.repeat(|head| {
        head.set_method(Method::Get);
        is_target = is_target && head.set_target(uri).is_ok();
        let fields = head.fields_mut();
        // The included response is a part of another one: it has no ranges and validators.
        for name in [names::IF_NONE_MATCH, names::IF_MODIFIED_SINCE, names::IF_MATCH, names::IF_UNMODIFIED_SINCE] {
            fields.remove(name);
        }
        for name in [names::RANGE, names::IF_RANGE] {
            fields.remove(name);
        }
        fields.insert(names::ACCEPT_ENCODING, FieldValue::from_static("identity"));
        fields.insert_number(DEPTH, depth + 1);
    });
    if !is_target {
        return Err("expected the path of a resource, with a slash at its start".to_owned());
    }
    request.ok_or_else(|| "a request that was carried in another one cannot include responses".to_owned())
}
