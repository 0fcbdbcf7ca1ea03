//! Active health checks: requests to each upstream at an interval, by one worker.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use causeway_message::{FieldName, Method, StatusCode, names};
use causeway_pipeline::build::DurationConfig;
use causeway_pipeline::upstream::{CallEvent, CheckStatus, UpstreamStatus};
use causeway_pipeline::worker::Sleep;
use causeway_pipeline::{Body, Build, BuildError, Call, Upstream, UpstreamTransport, Worker};
use causeway_pipeline::{BodyError, Frame};
use regex::bytes::Regex;
use serde::Deserialize;
use serde_json::Value;

use super::super::address::Address;
use super::super::transport::to_address;
use super::reference::{self, Destination};
use crate::headers::status_matches;
use crate::regexp::CompiledRegex;
use crate::rendered::with_field_value;

/// Caddy's defaults.
const INTERVAL: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(5);
/// The longest body that is searched for `expect_body`, unless `max_size` is smaller.
const BODY_BYTES_MAX: usize = 1024 * 1024;
/// Redirects that a check follows, if it follows any; Go's limit.
const REDIRECTS_MAX: usize = 10;
/// In header values: the upstream that is checked.
const TARGET: &str = "{http.reverse_proxy.active.target_upstream}";

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct ActiveConfig {
    path: String,
    uri: String,
    upstream: String,
    port: i64,
    headers: BTreeMap<String, Vec<String>>,
    method: String,
    body: String,
    follow_redirects: bool,
    interval: Option<DurationConfig>,
    timeout: Option<DurationConfig>,
    passes: i64,
    fails: i64,
    max_size: i64,
    expect_status: u16,
    expect_body: String,
}

/// The settings of a handler's active checks.
pub(in super::super) struct ActiveChecks {
    /// The settings as text: equal checks of an upstream share their result.
    key: String,
    method: Box<str>,
    /// Path and query.
    target: Box<str>,
    /// Sent to this address instead of the upstream's.
    elsewhere: Option<Address>,
    port: Option<u16>,
    headers: Vec<(FieldName, String)>,
    body: Vec<u8>,
    follows_redirects: bool,
    interval: Duration,
    timeout: Duration,
    passes: u32,
    fails: u32,
    body_bytes_max: usize,
    /// A code or a class; 0 for 2xx.
    expected_status: u16,
    expected_body: Option<Regex>,
}

/// One upstream's check.
pub(in super::super) struct Check(Arc<CheckStatus>);

impl Check {
    pub(super) fn is_up(&self) -> bool {
        self.0.is_up()
    }

    /// Returns the checked upstream, for the checker.
    pub(in super::super) fn target(&self, status: &Arc<UpstreamStatus>, address: &Address) -> Target {
        Target { status: Arc::clone(status), address: address.clone(), check: Arc::clone(&self.0) }
    }
}

impl ActiveChecks {
    /// Compiles `health_checks.active`; `None` if it sets neither a URI nor a port: only these enable the checks.
    pub(super) fn build(value: &Value, build: &mut Build<'_>) -> Result<Option<Self>, BuildError> {
        let written: ActiveConfig = build.parse(value)?;
        if written.uri.is_empty() && written.path.is_empty() && written.port == 0 {
            return Ok(None);
        }
        let mut duration = |key: &str, written: &Option<DurationConfig>, default| match written {
            Some(written) => build.at(key, |build| written.read(build)).map(|limit| limit.unwrap_or(default)),
            None => Ok(default),
        };
        let interval = duration("interval", &written.interval, INTERVAL)?;
        let timeout = duration("timeout", &written.timeout, TIMEOUT)?;
        let method = if written.method.is_empty() { "GET" } else { &written.method };
        if Method::parse(method.as_bytes()).is_none() {
            return build.at("method", |build| Err(build.refuse(method, "a method")));
        }
        let port = match u16::try_from(written.port) {
            Ok(port) => (port > 0).then_some(port),
            Err(_) => {
                return build.at("port", |build| Err(build.refuse(written.port.to_string(), "a port up to 65535")));
            }
        };
        let elsewhere = match &*written.upstream {
            "" => None,
            text => match Address::parse(text) {
                Ok(address) => Some(address),
                Err(expected) => return build.at("upstream", |build| Err(build.refuse(text, expected))),
            },
        };
        let target = match &*written.uri {
            "" => reference::path_target(&written.path),
            uri => match reference::target(uri) {
                Some(target) => target,
                None => {
                    let expected = "a path and a query, without control characters, and with two hexadecimal digits \
                                    after each % of the path";
                    return build.at("uri", |build| Err(build.refuse(uri, expected)));
                }
            },
        };
        let headers = build.at("headers", |build| check_fields(&written.headers, build))?;
        let body = build.at("body", |build| literal(&written.body, build))?.into_bytes();
        let expected_body = match &*written.expect_body {
            "" => None,
            pattern => Some(build.at("expect_body", |build| CompiledRegex::build(pattern, build))?.regex),
        };
        Ok(Some(Self {
            key: value.to_string(),
            method: method.into(),
            target,
            elsewhere,
            port,
            headers,
            body,
            follows_redirects: written.follow_redirects,
            // A shorter interval would do nothing but check.
            interval: interval.max(Duration::from_millis(1)),
            timeout,
            passes: count(written.passes),
            fails: count(written.fails),
            body_bytes_max: body_bytes_max(written.max_size),
            expected_status: written.expect_status,
            expected_body,
        }))
    }

    /// Returns the check of an upstream, with the result that an earlier plan's check of equal settings left.
    pub(super) fn of(&self, status: &UpstreamStatus, transport_key: &str) -> Check {
        Check(status.check(&format!("{} {transport_key}", self.key)))
    }

    /// Returns where the checks of the upstream at `address` go.
    fn checked_address(&self, address: &Address) -> Address {
        match (&self.elsewhere, self.port) {
            (Some(elsewhere), _) => elsewhere.clone(),
            (None, Some(port)) => address.with_port(port),
            (None, None) => address.clone(),
        }
    }
}

/// Returns the fields of a check's request, each value on its own.
fn check_fields(
    written: &BTreeMap<String, Vec<String>>,
    build: &mut Build<'_>,
) -> Result<Vec<(FieldName, String)>, BuildError> {
    let mut fields = Vec::new();
    for (name, values) in written {
        let Some(name) = FieldName::parse(name) else { return Err(build.refuse(name, "a field name")) };
        for value in values {
            fields.push((name.clone(), literal(value, build)?));
        }
    }
    Ok(fields)
}

/// Returns a number of checks, at least 1.
fn count(written: i64) -> u32 {
    u32::try_from(written).unwrap_or(if written < 1 { 1 } else { u32::MAX }).max(1)
}

fn body_bytes_max(written: i64) -> usize {
    let written = usize::try_from(written).ok().filter(|&max| max > 0);
    written.map_or(BODY_BYTES_MAX, |max| max.min(BODY_BYTES_MAX))
}

/// Returns a text without placeholders, or with those that are known at load. A check belongs to no request, so other
/// placeholders have no value.
fn literal(text: &str, build: &mut Build<'_>) -> Result<String, BuildError> {
    // Replaced for each upstream.
    let spared = text.replace(TARGET, "\0");
    match build.template_keeping_unknown(&spared).literal() {
        Some(text) => Ok(text.replace('\0', TARGET)),
        None => Err(build.refuse(text, format!("no placeholder of a request; {TARGET} is the upstream"))),
    }
}

/// One upstream of the handler, as its checks need it.
pub(in super::super) struct Target {
    status: Arc<UpstreamStatus>,
    address: Address,
    check: Arc<CheckStatus>,
}

/// The checks of a handler's upstreams, for as long as its plan exists.
pub(in super::super) struct Checker {
    checks: ActiveChecks,
    targets: Box<[Target]>,
    transport: Arc<UpstreamTransport>,
}

impl Checker {
    /// Starts the checks when the plan is put into use, on the worker that gets it first.
    pub(in super::super) fn launch(
        checks: ActiveChecks,
        targets: Vec<Target>,
        transport: &Arc<UpstreamTransport>,
        build: &mut Build<'_>,
    ) -> Arc<Self> {
        // Checks do not wait for a connection: an upstream is not unhealthy because all its connections are in use.
        let transport = Arc::new(UpstreamTransport { connection_limits: None, ..UpstreamTransport::clone(transport) });
        let checker = Arc::new(Self { checks, targets: targets.into(), transport });
        let (launched, is_running) = (Arc::downgrade(&checker), AtomicBool::new(false));
        build.allocate_state(move |worker| {
            if is_running.swap(true, Ordering::Relaxed) {
                return;
            }
            let count = launched.upgrade().map_or(0, |checker| checker.targets.len());
            for index in 0..count {
                worker.spawn(Box::pin(run(Weak::clone(&launched), index, Rc::clone(worker))));
            }
        });
        checker
    }
}

/// Checks one upstream until the plan is gone or another plan checks it.
async fn run(plan: Weak<Checker>, index: usize, worker: Rc<dyn Worker>) {
    let mut number = None;
    // Connections of their own: one that is kept open between two checks takes no place of a request's.
    let mut upstream = None;
    // Results in a row that contradict the present state.
    let mut streak = 0;
    loop {
        let Some(checker) = plan.upgrade() else { return };
        let (checks, target) = (&checker.checks, &checker.targets[index]);
        let number = *number.get_or_insert_with(|| target.check.own());
        if !target.check.is_owner(number) {
            return;
        }
        let address = checks.checked_address(&target.address);
        let upstream = upstream
            .get_or_insert_with(|| worker.upstream(&address.to_dial(), &to_address(&checker.transport, &address)));
        let until = worker.now() + checks.timeout;
        let mut end = Some(Sleep::until(Rc::clone(&worker), until));
        let (call, outcome) = checker.check(target, &address, upstream, &mut end).await;
        if let Err(cause) = &outcome {
            tracing::debug!(upstream = target.status.dial(), cause, "an active health check failed");
        }
        let is_up = outcome.is_ok();
        streak = if is_up == target.check.is_up() { 0 } else { streak + 1 };
        let needed = if is_up { checks.passes } else { checks.fails };
        if streak >= needed && target.check.set_up(is_up) {
            streak = 0;
            match outcome {
                Ok(()) => {
                    target.status.set_recovered(worker.now());
                    tracing::info!(upstream = target.status.dial(), "an upstream is healthy again");
                }
                Err(cause) => tracing::warn!(
                    upstream = target.status.dial(),
                    cause,
                    "an upstream gets no requests: its active health check fails"
                ),
            }
        }
        let next = worker.now() + checks.interval;
        if let Some(call) = call {
            // The rest is read so that the connection can be used again, but it changes no result.
            let mut end = Some(Sleep::until(Rc::clone(&worker), until.min(next)));
            let _ = checker.body(&call, &mut end).await;
        }
        let check = Arc::clone(&target.check);
        drop(checker);
        // An end of the checks ends the wait, and so closes the connection, rather than after the interval.
        let mut end = Some(Sleep::until(Rc::clone(&worker), next));
        poll_fn(|poll_cx| {
            let is_needed = check.poll_owner(number, poll_cx) && plan.strong_count() > 0;
            if Sleep::is_over(&mut end, poll_cx) || !is_needed { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl Drop for Checker {
    /// Ends the tasks of the checks, which may be those of another worker.
    fn drop(&mut self) {
        self.targets.iter().for_each(|target| target.check.wake());
    }
}

impl Checker {
    /// Sends one check, and follows redirects if that is set. Returns the call, if its response's content may still be
    /// read, and the result, whose error is the reason of a failure. `end` is over when the check takes too long.
    async fn check(
        &self,
        target: &Target,
        address: &Address,
        upstream: &Rc<dyn Upstream>,
        end: &mut Option<Sleep>,
    ) -> (Option<Call>, Result<(), String>) {
        let (call, status) = match self.last_answer(target, address, upstream, end).await {
            Ok(answered) => answered,
            Err(cause) => return (None, Err(cause)),
        };
        let wanted = if self.checks.expected_status == 0 { 2 } else { self.checks.expected_status };
        if !status_matches(status, wanted) {
            return (Some(call), Err(format!("its status is {}", status.as_u16())));
        }
        let Some(expected) = &self.checks.expected_body else { return (Some(call), Ok(())) };
        let found = self.body(&call, end).await.and_then(|text| match expected.is_match(&text) {
            true => Ok(()),
            false => Err("its content is not as expected".to_owned()),
        });
        (None, found)
    }

    /// Sends one check, and returns the last response.
    async fn last_answer(
        &self,
        target: &Target,
        address: &Address,
        upstream: &Rc<dyn Upstream>,
        end: &mut Option<Sleep>,
    ) -> Result<(Call, StatusCode), String> {
        let mut method = self.checks.method.clone();
        let mut path = self.checks.target.clone();
        let mut host: Option<Box<str>> = None;
        for _ in 0..=REDIRECTS_MAX {
            let call = upstream.calls().take();
            self.fill(&call, target, host.as_deref().unwrap_or(address.host_value()), &method, &path)?;
            let has_body = !self.checks.body.is_empty() && *method == *self.checks.method;
            let body = if has_body { Body::Chunk(self.checks.body.clone().into()) } else { Body::Empty };
            call.send(body, &**upstream);
            let status = head(&call, end).await?;
            let redirect = if self.checks.follows_redirects { location(&call, status, &path)? } else { None };
            let Some(Destination { host: next_host, target: next_path }) = redirect else { return Ok((call, status)) };
            // RFC 9110 §15.4: 307 and 308 keep the method, the others make it a GET.
            if !matches!(status.as_u16(), 307 | 308) && *method != *"HEAD" {
                method = "GET".into();
            }
            host = next_host.or(host);
            path = next_path;
        }
        Err(format!("more than {REDIRECTS_MAX} redirects"))
    }

    fn fill(&self, call: &Call, target: &Target, host: &str, method: &str, path: &str) -> Result<(), String> {
        let mut request = call.request_mut();
        request.set_method(Method::parse(method.as_bytes()).unwrap_or(Method::Get));
        request.set_target(path).map_err(|_| format!("{path} is no request target"))?;
        let fields = request.fields_mut();
        with_field_value(host.as_bytes(), |value| fields.insert(names::HOST, value));
        with_field_value(b"Causeway", |value| fields.insert(names::USER_AGENT, value));
        for (name, value) in &self.checks.headers {
            let value = value.replace(TARGET, target.status.dial());
            with_field_value(value.as_bytes(), |value| {
                // One Host only; the configured one replaces the address. So does a configured User-Agent.
                if name.as_ref() == names::HOST.into() || name.as_ref() == names::USER_AGENT.into() {
                    fields.insert(name, value);
                } else {
                    fields.append(name, value);
                }
            });
        }
        Ok(())
    }

    async fn body(&self, call: &Call, end: &mut Option<Sleep>) -> Result<Vec<u8>, String> {
        let mut text = Vec::new();
        loop {
            let frame = poll_fn(|poll_cx| match Sleep::is_over(end, poll_cx) {
                true => Poll::Ready(Some(Err(BodyError::TimedOut))),
                false => call.poll_content(poll_cx),
            });
            match frame.await {
                None => return Ok(text),
                Some(Ok(Frame::Chunk(chunk))) => {
                    let left = self.checks.body_bytes_max - text.len();
                    text.extend_from_slice(&chunk.as_slice()[..chunk.len().min(left)]);
                    if chunk.len() >= left {
                        return Ok(text);
                    }
                }
                Some(Ok(Frame::Trailers(_))) => {}
                Some(Err(fault)) => return Err(format!("reading its content: {fault}")),
            }
        }
    }
}

/// Waits for the final head.
async fn head(call: &Call, end: &mut Option<Sleep>) -> Result<StatusCode, String> {
    loop {
        let event = poll_fn(|poll_cx| match Sleep::is_over(end, poll_cx) {
            true => Poll::Ready(Err("it did not respond in time".to_owned())),
            false => call.poll_event(poll_cx).map_err(|fault| fault.to_string()),
        });
        if let CallEvent::Head { .. } = event.await? {
            return Ok(call.head().status());
        }
    }
}

/// Returns the destination of a redirect's `Location`, which is relative to `path`. The request still goes to the same
/// upstream.
fn location(call: &Call, status: StatusCode, path: &str) -> Result<Option<Destination>, String> {
    let head = call.head();
    let text = head.fields().get(names::LOCATION).unwrap_or_default();
    if text.is_empty() || !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let next = std::str::from_utf8(text).ok().and_then(|text| reference::resolve(path, text));
    next.map(Some).ok_or_else(|| format!("its Location leads to no HTTP server: {}", text.escape_ascii()))
}
