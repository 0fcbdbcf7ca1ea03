//! Retries: `lb_retries`, `lb_try_duration`, `lb_try_interval` and `lb_retry_match`.
//!
//! A retry selects an upstream again. It is safe if the failed attempt sent nothing, and then any request is retried,
//! with its body. After that the upstream may have acted on the request: only a request that `lb_retry_match` allows is
//! retried, or without it a GET; and a body only if it was kept ([`Replay`]). A condition of `lb_retry_match` may also
//! be about the response ([`Condition::is_of_response`]).

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context as PollContext, Poll, ready};
use std::time::{Duration, Instant};

use causeway_message::{Chunk, FieldMap, Method};
use causeway_pipeline::build::DurationConfig;
use causeway_pipeline::{
    Body, BodyError, BodyStream, Build, BuildError, Call, CallError, Context, Frame, IncomingBody, Matcher, Stop,
};
use serde_json::Value;

use super::policy::LoadBalancingConfig;
use super::read_duration;
use super::request::with_sent;

/// Bytes of a request body that are kept for a retry, or more with `request_buffers`. A longer body is sent only once.
const KEPT_BYTES_MAX: usize = 256 * 1024;
/// The pause before a retry if only `lb_try_duration` is set; Caddy's.
const INTERVAL: Duration = Duration::from_millis(250);
/// The shortest pause after no upstream was available.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// How placeholders about a response begin in an expression.
const OF_RESPONSE: &[&str] =
    &["{http.reverse_proxy.status_", "{http.reverse_proxy.header.", "{http.reverse_proxy.upstream.latency"];
const OF_TRANSPORT: &str = "{http.reverse_proxy.is_transport_error}";

/// The settings of retries.
pub(super) struct Retries {
    /// `None` is no limit.
    count_max: Option<u32>,
    duration_max: Option<Duration>,
    interval: Duration,
    /// `retry_match`.
    conditions: Vec<Condition>,
}

/// One set of `retry_match`.
struct Condition {
    /// All of them must match.
    matchers: Vec<Box<dyn Matcher>>,
    /// An expression in the set reads the response, so that the set is also evaluated for responses.
    is_of_response: bool,
    /// An expression in the set reads a value that is known only after an attempt.
    is_of_attempt: bool,
}

impl Condition {
    fn build(set: &Value, build: &mut Build<'_>) -> Result<Self, BuildError> {
        let Some(matchers) = set.as_object() else {
            return Err(build.refuse(set.to_string(), "an object of matchers"));
        };
        let expression = match &set["expression"] {
            Value::String(text) => text,
            named => named["expr"].as_str().unwrap_or_default(),
        };
        let is_of_response = OF_RESPONSE.iter().any(|name| expression.contains(name));
        let is_of_attempt = is_of_response || expression.contains(OF_TRANSPORT);
        Ok(Self { matchers: build.matcher_set(matchers)?, is_of_response, is_of_attempt })
    }

    /// Returns whether all matchers match. A matcher that would have to wait, or that fails, does not.
    fn holds(&self, cx: &mut Context) -> bool {
        self.matchers.iter().all(|matcher| match matcher.matches(cx) {
            Ok(matched) => matched,
            Err(Stop::Wait(_)) => {
                // The exchange has room for one wait, and the next one is for the upstream.
                cx.cancel_wait();
                false
            }
            Err(_) => false,
        })
    }
}

impl Retries {
    /// Compiles the settings; `None` if there are no retries.
    pub(super) fn build(written: &LoadBalancingConfig, build: &mut Build<'_>) -> Result<Option<Self>, BuildError> {
        let mut duration = |key: &str, written: &Option<DurationConfig>| read_duration(key, written.as_ref(), build);
        let duration_max = duration("try_duration", &written.try_duration)?;
        let interval = duration("try_interval", &written.try_interval)?;
        let mut conditions = Vec::with_capacity(written.retry_match.len());
        for (index, set) in written.retry_match.iter().enumerate() {
            conditions.push(build.at(format!("retry_match[{index}]"), |build| Condition::build(set, build))?);
        }
        let count_max = u32::try_from(written.retries).ok().filter(|&count| count > 0);
        if count_max.is_none() && duration_max.is_none() {
            return Ok(None);
        }
        let default = if duration_max.is_some() { INTERVAL } else { Duration::ZERO };
        Ok(Some(Self { count_max, duration_max, interval: interval.unwrap_or(default), conditions }))
    }

    /// Returns whether the limits leave another attempt.
    pub(super) fn has_attempt_left(&self, cx: &Context, tries: &Tries) -> bool {
        let took = cx.worker().now().saturating_duration_since(tries.began);
        self.duration_max.is_none_or(|max| took < max) && self.count_max.is_none_or(|max| tries.retries < max)
    }

    /// Returns the pause before the next attempt; `None` if there is no next attempt.
    pub(super) fn pause(&self, cx: &Context, tries: &Tries, failed: AttemptProgress) -> Option<Duration> {
        if !self.has_attempt_left(cx, tries) {
            return None;
        }
        match failed {
            AttemptProgress::NoUpstream => Some(self.interval.max(PAUSE_MIN)),
            AttemptProgress::NotSent | AttemptProgress::Rejected | AttemptProgress::Repeatable => Some(self.interval),
            AttemptProgress::Sent => None,
        }
    }

    /// Returns whether the request of a call may be sent again although an upstream may have acted on it. The call's
    /// request decides, after `rewrite`, `method` and `header_up`: the upstream has acted on that one.
    pub(super) fn allows(&self, cx: &mut Context, call: &Call) -> bool {
        if self.conditions.is_empty() {
            return call.request().method() == Method::Get;
        }
        with_sent(cx, call, |cx| self.conditions.iter().any(|condition| condition.holds(cx)))
    }

    /// Returns whether the body must be kept: the request may be sent again, or an attempt decides that.
    pub(super) fn keeps_body(&self, cx: &mut Context, call: &Call) -> bool {
        self.conditions.iter().any(|condition| condition.is_of_attempt) || self.allows(cx, call)
    }

    /// Returns whether conditions depend on responses.
    pub(super) fn judges_responses(&self) -> bool {
        self.conditions.iter().any(|condition| condition.is_of_response)
    }

    /// Returns whether a condition rejects the response that the placeholders are about. A set that reads nothing of a
    /// response is for failures alone: it would reject every response.
    pub(super) fn rejects(&self, cx: &mut Context, call: &Call) -> bool {
        with_sent(cx, call, |cx| {
            self.conditions.iter().any(|condition| condition.is_of_response && condition.holds(cx))
        })
    }
}

/// How far a failed attempt got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttemptProgress {
    /// No upstream was available.
    NoUpstream,
    /// Nothing was sent, or the upstream has rejected the request.
    NotSent,
    /// The upstream may have received the request.
    Sent,
    /// As [`Self::Sent`], but the request may be sent again ([`Retries::allows`]).
    Repeatable,
    /// The upstream has responded, and `lb_retry_match` rejects the response.
    Rejected,
}

impl AttemptProgress {
    pub(super) fn of(error: &CallError) -> Self {
        match error {
            CallError::Resolve(_)
            | CallError::Connect(_)
            | CallError::ConnectTimedOut
            | CallError::NetworkProxy(_)
            | CallError::Tls(_)
            | CallError::Busy
            | CallError::QueueTimedOut
            | CallError::NoDescriptors
            | CallError::Unprocessed
            // RFC 9113 §8.7: with this code the request was not processed either.
            | CallError::Reset("REFUSED_STREAM")
            // FastCGI 1.0 §5.5: with FCGI_OVERLOADED the application rejects the request.
            | CallError::Overloaded => Self::NotSent,
            _ => Self::Sent,
        }
    }
}

/// The attempts of one request so far.
#[derive(Clone, Copy)]
pub(super) struct Tries {
    pub(super) began: Instant,
    pub(super) retries: u32,
    /// This attempt sends its request to the same address for the second time.
    pub(super) is_repeated: bool,
}

impl Tries {
    pub(super) fn first(cx: &Context) -> Self {
        Self { began: cx.worker().now(), retries: 0, is_repeated: false }
    }

    pub(super) fn next(self) -> Self {
        Self { retries: self.retries + 1, is_repeated: false, ..self }
    }
}

/// A request body that can be read again from its beginning, as long as it is not too long to be kept.
#[derive(Clone)]
pub(super) struct Replay(Rc<RefCell<Kept>>);

struct Kept {
    source: IncomingBody,
    /// The part of the source that was read; empty once it was too long.
    bytes: Vec<u8>,
    trailers: Option<Box<FieldMap>>,
    is_at_end: bool,
    is_too_long: bool,
    len: Option<u64>,
    bytes_max: usize,
}

impl Replay {
    /// `buffered_max` is how much of a body `request_buffers` has in memory anyway.
    pub(super) fn new(source: IncomingBody, buffered_max: usize) -> Self {
        let len = source.len();
        let kept = Kept {
            source,
            bytes: Vec::new(),
            trailers: None,
            is_at_end: false,
            is_too_long: false,
            len,
            bytes_max: KEPT_BYTES_MAX.max(buffered_max),
        };
        Self(Rc::new(RefCell::new(kept)))
    }

    /// Returns whether everything that was read so far is kept.
    pub(super) fn is_whole(&self) -> bool {
        !self.0.borrow().is_too_long
    }

    /// Returns the body from its beginning. The body must be [whole](Self::is_whole), and an earlier reader must not be
    /// used any more.
    pub(super) fn body(&self) -> Body {
        Body::Stream(Box::new(Reader { kept: self.clone(), read: 0, has_trailers: true }))
    }
}

struct Reader {
    kept: Replay,
    /// Bytes of `Kept::bytes` that this reader has returned.
    read: usize,
    /// The trailers were not returned.
    has_trailers: bool,
}

impl BodyStream for Reader {
    fn poll_frame(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        let mut kept = self.kept.0.borrow_mut();
        if self.read < kept.bytes.len() {
            // Rare: only a retry gets here.
            let again = Chunk::from(kept.bytes[self.read..].to_vec());
            self.read = kept.bytes.len();
            return Poll::Ready(Some(Ok(Frame::Chunk(again))));
        }
        if kept.is_at_end {
            let trailers = kept.trailers.clone().filter(|_| std::mem::take(&mut self.has_trailers));
            return Poll::Ready(trailers.map(|trailers| Ok(Frame::Trailers(trailers))));
        }
        let frame = ready!(kept.source.poll_frame(poll_cx));
        match &frame {
            Some(Ok(Frame::Chunk(chunk))) => {
                if !kept.is_too_long && kept.bytes.len() + chunk.len() <= kept.bytes_max {
                    kept.bytes.extend_from_slice(chunk.as_slice());
                } else {
                    kept.is_too_long = true;
                    kept.bytes = Vec::new();
                }
                self.read = kept.bytes.len();
            }
            Some(Ok(Frame::Trailers(trailers))) => {
                kept.trailers = Some(trailers.clone());
                // They are the last frame, and an attempt may fail before it polls for the end.
                kept.is_at_end = true;
                self.has_trailers = false;
            }
            None => kept.is_at_end = true,
            // A body that has failed cannot be sent again.
            Some(Err(_)) => kept.is_too_long = true,
        }
        Poll::Ready(frame)
    }

    fn len(&self) -> Option<u64> {
        let kept = self.kept.0.borrow();
        if kept.is_too_long { kept.source.len() } else { Some(kept.len? - self.read as u64) }
    }

    fn is_over(&self) -> bool {
        let kept = self.kept.0.borrow();
        let has_kept = self.read < kept.bytes.len() || self.has_trailers && kept.trailers.is_some();
        !has_kept && (kept.is_at_end || kept.source.is_over())
    }
}
