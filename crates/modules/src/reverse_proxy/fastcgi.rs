//! The transport `fastcgi`: requests to applications such as php-fpm, with the variables of CGI (RFC 3875).
//!
//! - `whole`: reads content of unknown length, which CGI does not have
//! - `root`: the document root
//! - `script`: divides a path into the script and the rest
//! - `variables`: the variables of a request
//! - `fields`: the request's fields as variables

mod fields;
mod root;
mod script;
mod variables;
mod whole;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use causeway_message::Method;
use causeway_pipeline::{Body, Build, BuildError, Call, Context, Fault, Step, Template, UpstreamTransport};
use serde::Deserialize;
use serde_json::Value;

use super::transport::{TransportParts, set_head_bytes_max};
use super::wire_form::WireForm;
use super::{Local, attempt, read_duration};
use causeway_pipeline::build::DurationConfig;
use root::DocumentRoot;
use script::Splits;
use variables::Overrides;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct FastCgiTransportConfig {
    #[serde(rename = "protocol")]
    _protocol: Option<String>,
    root: String,
    split_path: Vec<String>,
    resolve_root_symlink: bool,
    env: BTreeMap<String, String>,
    dial_timeout: Option<DurationConfig>,
    read_timeout: Option<DurationConfig>,
    write_timeout: Option<DurationConfig>,
    /// Not in Caddy.
    max_response_header_size: i64,
    capture_stderr: bool,
}

/// The transport's options.
pub(super) struct FastCgi {
    root: DocumentRoot,
    splits: Splits,
    overrides: Overrides,
    /// `{http.auth.user.id}`.
    user: Template,
    /// `{http.matchers.file.remainder}`.
    remainder: Template,
}

pub(super) fn build(value: &Value, build: &mut Build<'_>) -> Result<TransportParts, BuildError> {
    let written: FastCgiTransportConfig = build.parse(value)?;
    let mut duration = |key: &str, written: &Option<DurationConfig>| read_duration(key, written.as_ref(), build);
    let read_timeout = duration("read_timeout", &written.read_timeout)?;
    let mut transport = UpstreamTransport {
        fastcgi: Some(causeway_pipeline::FastCgi { captures_stderr: written.capture_stderr }),
        // DEVIATES Caddy: its limit is for the whole response. Here it is for each wait: for the head, and for more of
        // the content, so that a long download may take its time.
        head_timeout: read_timeout,
        read_timeout,
        write_timeout: duration("write_timeout", &written.write_timeout)?,
        // A connection carries one request.
        idle_timeout: Duration::ZERO,
        ..UpstreamTransport::default()
    };
    if let Some(limit) = duration("dial_timeout", &written.dial_timeout)? {
        transport.connect_timeout = limit;
    }
    set_head_bytes_max(&mut transport, written.max_response_header_size);
    let splits = build.at("split_path", |build| Splits::build(written.split_path, build))?;
    let fastcgi = FastCgi {
        root: DocumentRoot::build(&written.root, written.resolve_root_symlink, build),
        splits,
        overrides: Overrides::build(&written.env, build),
        user: build.template("{http.auth.user.id}"),
        remainder: build.template("{http.matchers.file.remainder}"),
    };
    Ok(TransportParts {
        wire_form: WireForm::FastCgi(Box::new(fastcgi)),
        transport: Arc::new(transport),
        server_name: None,
        network_proxy: None,
        key: value.to_string(),
    })
}

impl FastCgi {
    /// Waits for content of unknown length, and for the document root if its symbolic links are to be resolved; then
    /// dispatches the request. `None` if both are known.
    pub(super) fn prepare(&self, cx: &mut Context, local: &Rc<Local>) -> Option<Step> {
        if cx.body_len().is_none() && !local.plan.drops_body && has_content(cx.head().method()) {
            return whole::read(cx, Rc::clone(local));
        }
        self.root.prepare(cx, local)
    }

    /// Waits for the document root, and then dispatches the request.
    fn dispatch(&self, cx: &mut Context, local: &Rc<Local>) -> Step {
        self.root.prepare(cx, local).unwrap_or_else(|| attempt::start(cx, Rc::clone(local)))
    }

    /// Encodes the request's variables into the call, and returns the content to send.
    pub(super) fn wrap(&self, cx: &mut Context, call: &Call, content: &mut Body) -> Result<(), Fault> {
        let has_content = has_content(call.request().method());
        // `prepare` has read content of unknown length; content that a retry repeats has its length again.
        let bytes = if has_content { content.len() } else { Some(0) };
        let bytes = bytes.ok_or_else(|| whole::no_length(whole::UNSIZED_BYTES_MAX))?;
        variables::put(self, cx, call, bytes)?;
        if !has_content {
            *content = Body::Empty;
        }
        Ok(())
    }
}

/// Returns whether a request with this method is sent with its content. As in Caddy, HEAD and OPTIONS are not.
fn has_content(method: Method<'_>) -> bool {
    !matches!(method, Method::Head | Method::Options)
}
